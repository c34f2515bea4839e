/* ruler_cwe.c: common words: a numbered list in which some words come often and the rest seldom. A worked example stands in
 * front. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

/* `common` words `often` times each, the rest `seldom`; the example likewise (0 words = none). */
struct cwe_shape {
	int common, often, seldom;
	int example_words, example_often, example_seldom;
};

enum { OWN_SMALL = 1024 };

static struct cwe_shape shape_of(const struct ruler *r)
{
	if (ruler_is_own(r) && r->rq->length_tokens < OWN_SMALL)
		return (struct cwe_shape){5, 4, 1, 0, 0, 0};
	if (ruler_short(r))
		return (struct cwe_shape){10, 6, 1, 20, 3, 1};
	return (struct cwe_shape){10, 30, 3, 40, 10, 3};
}

/* n different words; upstream goes over to a longer list where the first is too short. */
static int words_draw(struct ruler *r, int64_t n, const char **out, char err[ERR_LEN])
{
	const struct ruler_words *from = n <= r->assets.words.n ? &r->assets.words : &r->assets.long_words;
	if (n > from->n)
		return err_set(err, "%s: %lld words are wanted, the list has %d", r->config->name, (long long)n, from->n);
	int *drawn = mem_new((size_t)n, sizeof(*drawn));
	python_sample(&r->random.python, from->n, (int)n, drawn);
	for (int64_t i = 0; i < n; i++)
		out[i] = from->v[drawn[i]];
	free(drawn);
	return 0;
}

/* `1. word`, numbered from 1, a blank between. */
static void item_add(struct strbuf *b, int i, const char *word)
{
	char number[16];
	snprintf(number, sizeof(number), "%s%d. ", i ? " " : "", i + 1);
	strbuf_puts(b, number);
	strbuf_puts(b, word);
}

/* The common words as a block repeated, then the others, shuffled. */
static char *list_write(const struct ruler *r, const char *const *words, int n, int common, int often, int seldom)
{
	struct strbuf b = {0};
	int n_common = common * often, total = n_common + (n - common) * seldom;
	int *order = ruler_shuffled(r, total);
	for (int i = 0; i < total; i++) {
		int k = order[i];
		const char *word = k < n_common ? words[k % common] : words[common + (k - n_common) % (n - common)];
		item_add(&b, i, word);
	}
	free(order);
	return strbuf_take(&b);
}

static void numbered(struct strbuf *b, const char *const *words, int n)
{
	for (int i = 0; i < n; i++)
		item_add(b, i, words[i]);
}

static void prompt_write(const struct ruler *r, struct ruler_draft *d, char *context, int common)
{
	char number[16];
	snprintf(number, sizeof(number), "%d", common);
	const struct ruler_value values[] = {{"num_cw", number}, {"query", ""}};
	ruler_draft_prompt(d, &r->assets.template, context, values, 2);
	free(context);
}

static int example_write(struct ruler *r, struct ruler_draft *d, const struct cwe_shape *s, char err[ERR_LEN])
{
	const char *words[40];
	if (words_draw(r, s->example_words, words, err))
		return -1;
	prompt_write(r, d, list_write(r, words, s->example_words, s->common, s->example_often, s->example_seldom), s->common);
	strbuf_puts(&d->text, r->oct2024 ? "" : " ");
	numbered(&d->text, words, s->common);
	strbuf_puts(&d->text, "\n");
	return 0;
}

static int cwe_write(struct ruler *r, struct ruler_draft *d, int index, int64_t size, bool final, char err[ERR_LEN])
{
	struct cwe_shape s = shape_of(r);
	(void)index, (void) final;
	if (s.example_words && example_write(r, d, &s, err))
		return -1;
	const char **words = mem_new((size_t)size, sizeof(*words));
	int failed = words_draw(r, size, words, err);
	if (!failed) {
		prompt_write(r, d, list_write(r, words, (int)size, s.common, s.often, s.seldom), s.common);
		for (int i = 0; i < s.common; i++)
			ruler_draft_answer(d, words[i]);
	}
	free(words);
	return failed;
}

static int64_t cwe_step(const struct ruler *r)
{
	(void)r;
	return 10;
}

static int64_t cwe_least(const struct ruler *r)
{
	return shape_of(r).common;
}

static int64_t cwe_most(const struct ruler *r)
{
	return r->assets.long_words.n ? INT64_MAX : r->assets.words.n;
}

static void cwe_counted(const struct ruler_draft *d, struct strbuf *b)
{
	strbuf_puts(b, " ");
	numbered(b, (const char *const *)d->answers, d->n_answers);
}

const struct ruler_family ruler_cwe = {
	.key = "common_words_extraction",
	.unit = "words",
	.metric = "string_match_all",
	.new_tokens = 120,
	.first_probe = 4096,
	.step = cwe_step,
	.least = cwe_least,
	.most = cwe_most,
	.write = cwe_write,
	.counted = cwe_counted,
	.fit = ruler_fit_upstream,
	.row = ruler_row_upstream,
};
