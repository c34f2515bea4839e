/* ruler_fwe.c: frequent words: coded words of six letters whose counts fall with the square of their rank; the first rank is
 * dots.
 *
 * A size is the number N that counts are reckoned from: the word of rank k comes floor(N k^-2 / zeta(2)) times. The release of
 * 2024 let the prompt alone fill the length; the present one leaves room for the answer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

enum { LETTERS = 6, TOKENS_A_WORD = 50, GROWTHS = 32, ASKED = 3 };

static int64_t text_tokens(const struct ruler *r)
{
	return r->budget - (r->oct2024 ? 0 : r->new_tokens);
}

static bool is_drawn(const struct ruler_words *w, const char *word)
{
	for (int i = 0; i < w->n; i++)
		if (!strcmp(w->v[i], word))
			return true;
	return false;
}

/* Upstream draws as many words as it wants, then one more as often as two were equal. */
static void vocabulary_draw(struct ruler *r)
{
	struct ruler_words *w = &r->vocabulary, sorted = {0};
	int wanted = (int)(text_tokens(r) / TOKENS_A_WORD), drawn = 0;
	ruler_words_free(w);
	size_t room = (size_t)wanted * 2 + 64; /* doubles among 26^6 are rare */
	w->text = mem_new(room, LETTERS + 1);
	for (; w->n < wanted && (size_t)drawn < room; drawn++) {
		char *word = w->text + (size_t)drawn * (LETTERS + 1);
		python_letters(&r->random.python, 'a', LETTERS, word);
		if (!is_drawn(w, word))
			ruler_words_add(w, word);
	}
	ruler_words_sort(w);
	int *order = ruler_shuffled(r, w->n);
	for (int i = 0; i < w->n; i++)
		ruler_words_add(&sorted, w->v[order[i]]);
	free(order);
	free(w->v);
	w->v = sorted.v;
	w->v[0] = "...";
}

static int64_t count_of(int64_t size, int rank)
{
	const double zeta2 = 1.6449340668482264; /* pi^2 / 6 */
	return (int64_t)((double)size * pow(rank, -2.) / zeta2);
}

static char *coded_text(const struct ruler *r, int64_t size)
{
	const struct ruler_words *w = &r->vocabulary;
	struct strbuf b = {0};
	int n = 0, *word = mem_new((size_t)size + 1, sizeof(*word)); /* counts sum up to less than size */
	for (int k = 0; k < w->n; k++)
		for (int64_t count = count_of(size, k + 1); count; count--)
			word[n++] = k;
	int *order = ruler_shuffled(r, n);
	for (int i = 0; i < n; i++) {
		strbuf_puts(&b, i ? " " : "");
		strbuf_puts(&b, w->v[word[order[i]]]);
	}
	free(order);
	free(word);
	return strbuf_take(&b);
}

static void text_write(const struct ruler *r, struct ruler_draft *d, int64_t size)
{
	const struct ruler_value values[] = {{"query", ""}};
	char *context = coded_text(r, size);
	ruler_draft_prompt(d, &r->assets.template, context, values, 1);
	for (int i = 1; i <= ASKED; i++)
		ruler_draft_answer(d, r->vocabulary.v[i]);
	free(context);
}

static int enough_words(const struct ruler *r, char err[ERR_LEN])
{
	if (text_tokens(r) / TOKENS_A_WORD > ASKED)
		return 0;
	return err_set(err, "%s: %lld tokens are too few: the vocabulary is a fiftieth of them", r->config->name,
		(long long)text_tokens(r));
}

static int fwe_write(struct ruler *r, struct ruler_draft *d, int index, int64_t size, bool final, char err[ERR_LEN])
{
	(void)index, (void) final;
	if (enough_words(r, err))
		return -1;
	vocabulary_draw(r);
	text_write(r, d, size);
	return 0;
}

/* Tokens with the present vocabulary. */
static int64_t size_tokens(const struct ruler *r, struct ruler_draft *d, int64_t size, char err[ERR_LEN])
{
	ruler_draft_clear(d);
	text_write(r, d, size);
	return ruler_draft_tokens(r, d, err);
}

/* Growing until the text reaches the length, then one step back. */
static int fwe_fit(struct ruler *r, char err[ERR_LEN])
{
	struct ruler_draft d = {.needle_at = SIZE_MAX};
	int64_t most = text_tokens(r), tokens = 0;
	if (enough_words(r, err))
		return -1;
	vocabulary_draw(r);
	r->step = most / GROWTHS;
	for (r->size = most / LETTERS; (tokens = size_tokens(r, &d, r->size, err)) >= 0 && tokens < most;)
		r->size += r->step;
	r->size -= r->step;
	ruler_draft_free(&d);
	return tokens < 0 ? -1 : 0;
}

/* A row too long shrinks with its vocabulary kept: nothing is drawn again. */
static int fwe_row(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN])
{
	int64_t most = text_tokens(r), tokens, size = r->size;
	(void)index;
	vocabulary_draw(r);
	while ((tokens = size_tokens(r, d, size, err)) > most)
		if ((size -= r->step) < 1)
			return ruler_no_room(r, size + r->step, tokens, err);
	return tokens < 0 ? -1 : 0;
}

static int64_t fwe_least(const struct ruler *r)
{
	(void)r;
	return 1 + ASKED * LETTERS * 2; /* the asked ranks come at least once */
}

const struct ruler_family ruler_fwe = {
	.key = "freq_words_extraction",
	.unit = "words",
	.metric = "string_match_all",
	.new_tokens = 50,
	.least = fwe_least,
	.most = ruler_no_limit,
	.write = fwe_write,
	.fit = fwe_fit,
	.row = fwe_row,
};
