/* qa_f1_zh.c: LongBench's F1 over jieba's tokens (metrics.py: normalize_zh_answer, qa_f1_zh_score), the larger over the gold
 * answers.
 *
 * Each token in lower case, without punctuation and white space; empty ones are dropped. NAN without jieba's dictionary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/jieba.h"
#include "tasks/metrics/metrics.h"

struct tokens {
	char **v;
	int n;
};

static void token_add(void *user, const char *token, size_t len)
{
	struct tokens *t = user;
	struct strbuf lower = {0}, b = {0};
	char *copy = text_format("%.*s", (int)len, token);
	text_lower(&lower, copy);
	const char *p = lower.text ? lower.text : "";
	for (int32_t c; (c = text_next(&p));)
		if (!text_is_punctuation_zh(c) && !text_is_space(c))
			text_put(&b, c);
	if (b.len) {
		if (t->n % 64 == 0)
			t->v = mem_grow(t->v, (size_t)t->n + 64, sizeof(*t->v));
		t->v[t->n++] = strbuf_take(&b);
	}
	strbuf_free(&lower);
	free(copy);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static struct tokens tokens_of(const char *text)
{
	struct tokens t = {0};
	jieba_cut(text, token_add, &t);
	if (t.n)
		qsort(t.v, (size_t)t.n, sizeof(*t.v), compare);
	return t;
}

static void tokens_free(struct tokens *t)
{
	while (t->n)
		free(t->v[--t->n]);
	free(t->v);
}

double qa_f1_zh(const char *answer, char *const *gold, int n_gold)
{
	double best = n_gold ? 0 : NAN;
	if (jieba_load(NULL))
		return NAN;
	struct tokens p = tokens_of(answer);
	for (int i = 0; i < n_gold; i++) {
		struct tokens g = tokens_of(gold[i]);
		best = fmax(best, words_f1(p.v, p.n, g.v, g.n));
		tokens_free(&g);
	}
	tokens_free(&p);
	return best;
}
