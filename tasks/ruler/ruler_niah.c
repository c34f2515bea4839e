/* ruler_niah.c: the eight needle tasks: keys with values hidden in noise, in an essay or among other needles.
 *
 * Draws, in this order: each key, then its values; places; which keys are asked for. Needles are shuffled by a fresh
 * Random(seed), so always the same way. With one answer the wording is made singular by upstream's own replacements, word for
 * word. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

enum { DEPTHS = 40, LOW = 1000000, HIGH = 9999999 };

static const char *const kind_names[] = {"words", "numbers", "uuids"};

struct niah_needles {
	int n_keys, n_values, n; /* n = n_keys * n_values */
	char **keys, **values;   /* [n_keys], [n] */
	char **sentences;        /* [n], in the order of the text */
};

static void draw(struct ruler *r, enum ruler_kind kind, struct strbuf *b)
{
	struct twister *t = &r->random.python;
	char uuid[37];
	switch (kind) {
	case KIND_WORDS:
		ruler_pairs_at(&r->assets.pairs, python_below(t, (uint32_t)r->assets.pairs.n), b);
		break;
	case KIND_NUMBERS:
		strbuf_printf(b, "%u", LOW + python_below(t, HIGH - LOW + 1));
		break;
	case KIND_UUIDS:
		python_uuid(t, uuid);
		strbuf_puts(b, uuid);
		break;
	}
}

static char *drawn(struct ruler *r, enum ruler_kind kind)
{
	struct strbuf b = {0};
	draw(r, kind, &b);
	return strbuf_take(&b);
}

static bool is_among(const char *text, char *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(text, list[i]))
			return true;
	return false;
}

/* own: drawn on until it is none of taken[0..n). Its keys are some thousands, where upstream has six million and leaves it to
 * chance: a key asked for and hidden twice has a second answer, which would count as wrong. */
static char *drawn_other(struct ruler *r, enum ruler_kind kind, char *const *taken, int n)
{
	char *text = drawn(r, kind);
	while (ruler_is_own(r) && is_among(text, taken, n)) {
		free(text);
		text = drawn(r, kind);
	}
	return text;
}

static void needle_write(const struct ruler *r, struct strbuf *b, const char *key, const char *value)
{
	const struct ruler_value values[] = {{"type_needle_v", kind_names[r->config->value]}, {"key", key}, {"value", value}};
	ruler_fill(b, r->assets.template.needle, values, 3);
}

static void needles_draw(struct ruler *r, struct niah_needles *n)
{
	const struct ruler_config *c = r->config;
	n->n_keys = c->keys > c->queries ? c->keys : c->queries;
	n->n_values = c->values;
	n->n = n->n_keys * n->n_values;
	n->keys = mem_new((size_t)n->n_keys, sizeof(*n->keys));
	n->values = mem_new((size_t)n->n, sizeof(*n->values));
	n->sentences = mem_new((size_t)n->n, sizeof(*n->sentences));
	for (int i = 0; i < n->n; i++) {
		if (i % n->n_values == 0)
			n->keys[i / n->n_values] = drawn_other(r, c->key, n->keys, i / n->n_values);
		n->values[i] = drawn_other(r, c->value, n->values, i);
	}
	int *order = ruler_shuffled(r, n->n);
	for (int i = 0; i < n->n; i++) {
		struct strbuf b = {0};
		needle_write(r, &b, n->keys[order[i] / n->n_values], n->values[order[i]]);
		n->sentences[i] = strbuf_take(&b);
	}
	free(order);
}

static void needles_free(struct niah_needles *n)
{
	for (int i = 0; i < n->n_keys; i++)
		free(n->keys[i]);
	for (int i = 0; i < n->n; i++) {
		free(n->values[i]);
		free(n->sentences[i]);
	}
	free(n->keys);
	free(n->values);
	free(n->sentences);
}

static int ascending(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* ---- haystacks ---- */

/* The first n words, the essay repeated where it is too short. */
static void essay_words(const struct ruler_essay *e, int64_t n, struct strbuf *b)
{
	for (; n > e->n; n -= e->n) {
		strbuf_puts(b, e->text);
		strbuf_puts(b, " ");
	}
	strbuf_add(b, e->text, n ? e->word_end[n - 1] : 0);
}

/* Sentences [from, to), a blank between two. */
static void sentences_write(struct strbuf *b, const char *text, const struct ruler_sentence *v, int64_t from, int64_t to)
{
	for (int64_t i = from; i < to; i++) {
		strbuf_puts(b, i > from ? " " : "");
		strbuf_add(b, text + v[i].from, v[i].to - v[i].from);
	}
}

/* Needles at sorted depths, percent of the sentences. Pieces without a sentence stay as empty texts between two blanks. */
static void essay_context(struct ruler *r, const struct niah_needles *needles, int64_t size, struct strbuf *b)
{
	struct strbuf words = {0};
	struct ruler_sentences s = {0};
	int depth[DEPTHS];
	essay_words(&r->assets.essay, size, &words);
	char *text = words.text;
	while (words.len && text[words.len - 1] == ' ')
		text[--words.len] = '\0';
	text += strspn(text, " ");
	ruler_essay_sentences(&r->assets.essay, text, &s);
	python_sample(&r->random.python, DEPTHS, needles->n, depth);
	for (int i = 0; i < needles->n; i++) /* round(linspace(0, 100, 40)) */
		depth[i] = (int)(s.n * (rint(depth[i] * (100. / (DEPTHS - 1))) / 100));
	qsort(depth, (size_t)needles->n, sizeof(*depth), ascending);
	for (int i = 0; i <= needles->n; i++) {
		sentences_write(b, text, s.v, i ? depth[i - 1] : 0, i < needles->n ? depth[i] : s.n);
		if (i < needles->n)
			strbuf_printf(b, " %s ", needles->sentences[i]);
	}
	free(s.v);
	strbuf_free(&words);
}

/* `size` lines of noise, or of needles nobody asks for; the needles among them. */
static void line_context(struct ruler *r, const struct niah_needles *needles, int64_t size, struct strbuf *b)
{
	struct strbuf lines = {0};
	size_t *begin = mem_new((size_t)size + 1, sizeof(*begin));
	int *at = mem_new((size_t)needles->n, sizeof(*at));
	for (int64_t i = 0; i < size; i++, begin[i] = lines.len) {
		if (r->config->haystack == HAYSTACK_NOISE) {
			strbuf_puts(&lines, r->assets.template.noise);
			continue;
		}
		char *key = drawn_other(r, r->config->key, needles->keys, needles->n_keys);
		char *value = drawn_other(r, r->config->value, needles->values, needles->n);
		needle_write(r, &lines, key, value);
		free(key);
		free(value);
	}
	python_sample(&r->random.python, (int)size, needles->n, at);
	qsort(at, (size_t)needles->n, sizeof(*at), ascending);
	for (int64_t i = 0, next = 0; i < size; i++) {
		for (; next < needles->n && at[next] == i; next++) /* the first needle goes to the last place */
			strbuf_printf(b, "%s%s", b->len ? "\n" : "", needles->sentences[needles->n - 1 - next]);
		if (b->len)
			strbuf_puts(b, "\n");
		strbuf_add(b, lines.text + begin[i], begin[i + 1] - begin[i]);
	}
	strbuf_free(&lines);
	free(begin);
	free(at);
}

/* ---- the question ---- */

/* `a`, or `a, b, c, and d` */
static char *keys_joined(const struct niah_needles *needles, const int *asked, int n)
{
	struct strbuf b = {0};
	for (int i = 0; i < n; i++)
		strbuf_printf(&b, "%s%s", !i ? "" : i == n - 1 ? ", and " : ", ", needles->keys[asked[i]]);
	return strbuf_take(&b);
}

static char *singular(const char *text)
{
	char *s = ruler_replace(text_copy(text), "Some", "A");
	s = ruler_replace(s, "are all", "is");
	s = ruler_replace(s, "are", "is");
	return ruler_replace(s, "answers", "answer");
}

static void prompt_write(const struct ruler *r, struct ruler_draft *d, const char *context, const char *query)
{
	const struct ruler_template *t = &r->assets.template;
	char type[16];
	snprintf(type, sizeof(type), "%s", kind_names[r->config->value]);
	struct ruler_template one = {.prompt = singular(t->prompt), .answer_prefix = singular(t->answer_prefix)};
	bool many = r->config->queries * r->config->values > 1;
	if (!many)
		type[strlen(type) - 1] = '\0';
	const struct ruler_value values[] = {{"type_needle_v", type}, {"query", query}};
	ruler_draft_prompt(d, many ? t : &one, context, values, 2);
	ruler_template_free(&one);
}

static int niah_write(struct ruler *r, struct ruler_draft *d, int index, int64_t size, bool final, char err[ERR_LEN])
{
	struct niah_needles needles = {0};
	struct strbuf context = {0};
	int n_asked = r->config->queries, *asked = mem_new((size_t)n_asked, sizeof(*asked));
	(void)index, (void) final, (void)err;
	needles_draw(r, &needles);
	if (r->config->haystack == HAYSTACK_ESSAY)
		essay_context(r, &needles, size, &context);
	else
		line_context(r, &needles, size, &context);
	python_sample(&r->random.python, needles.n_keys, n_asked, asked);
	for (int i = 0; i < n_asked; i++)
		for (int v = 0; v < needles.n_values; v++)
			ruler_draft_answer(d, needles.values[asked[i] * needles.n_values + v]);
	char *query = keys_joined(&needles, asked, n_asked);
	prompt_write(r, d, context.text, query);
	free(query);
	free(asked);
	strbuf_free(&context);
	needles_free(&needles);
	return 0;
}

/* ---- sizes ---- */

static int64_t niah_step(const struct ruler *r)
{
	return r->config->haystack == HAYSTACK_ESSAY ? 500 : ruler_short(r) ? 5 : 25;
}

static int64_t niah_least(const struct ruler *r)
{
	const struct ruler_config *c = r->config;
	return (c->keys > c->queries ? c->keys : c->queries) * c->values;
}

static int64_t niah_most(const struct ruler *r)
{
	return r->config->haystack == HAYSTACK_ESSAY && r->oct2024 ? r->assets.essay.n : INT64_MAX;
}

static void niah_counted(const struct ruler_draft *d, struct strbuf *b)
{
	for (int i = 0; i < d->n_answers; i++)
		strbuf_printf(b, "%s%s", i ? " " : "", d->answers[i]);
}

const struct ruler_family ruler_niah = {
	.key = "niah",
	.unit = "words or lines",
	.metric = "string_match_all",
	.new_tokens = 128,
	.one_place = true,
	.step = niah_step,
	.least = niah_least,
	.most = niah_most,
	.write = niah_write,
	.counted = niah_counted,
	.fit = ruler_fit_upstream,
	.row = ruler_row_upstream,
};
