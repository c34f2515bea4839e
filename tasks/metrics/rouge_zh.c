/* rouge_zh.c: LongBench's ROUGE-L of Chinese texts: jieba's tokens joined by blanks, then rouge_l. The Chinese full stop ends no
 * sentence there. NAN without jieba's dictionary. */
#include <math.h>
#include <stdlib.h>

#include "tasks/metrics/jieba.h"
#include "tasks/metrics/metrics.h"

static void join(void *user, const char *token, size_t len)
{
	struct strbuf *b = user;
	if (b->len)
		strbuf_puts(b, " ");
	strbuf_add(b, token, len);
}

static char *spaced(const char *text)
{
	struct strbuf b = {0};
	jieba_cut(text, join, &b);
	return strbuf_take(&b);
}

double rouge_zh(const char *answer, char *const *gold, int n_gold)
{
	double best = n_gold ? 0 : NAN;
	if (jieba_load(NULL))
		return NAN;
	char *a = spaced(answer);
	for (int i = 0; i < n_gold; i++) {
		char *g = spaced(gold[i]);
		best = fmax(best, rouge_l(a, &g, 1));
		free(g);
	}
	free(a);
	return best;
}

int rouge_zh_deep_pairs(const char *answer, char *const *gold, int n_gold)
{
	int deep = 0;
	char *a = spaced(answer);
	for (int i = 0; i < n_gold; i++) {
		char *g = spaced(gold[i]);
		deep += rouge_deep_pairs(a, &g, 1);
		free(g);
	}
	free(a);
	return deep;
}
