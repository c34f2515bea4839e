/* string_match.c: RULER's two metrics: is the gold text found in the answer, whatever the case? And plain equality. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"

/* RULER's cleaning: control characters become line ends. Its stripping is left out: it cannot matter to a gold text which begins
 * and ends with something visible. */
static char *answer_clean(const char *answer)
{
	struct strbuf b = {0};
	text_lower(&b, answer);
	for (size_t i = 0; i < b.len; i++)
		if ((unsigned char)b.text[i] < 32)
			b.text[i] = '\n';
	return strbuf_take(&b);
}

static int count_found(const char *answer, char *const *gold, int n_gold)
{
	int found = 0;
	char *clean = answer_clean(answer);
	for (int i = 0; i < n_gold; i++) {
		struct strbuf b = {0};
		text_lower(&b, gold[i]);
		char *g = strbuf_take(&b);
		found += strstr(clean, g) != NULL;
		free(g);
	}
	free(clean);
	return found;
}

double string_match_all(const char *answer, char *const *gold, int n_gold)
{
	return n_gold ? (double)count_found(answer, gold, n_gold) / n_gold : NAN;
}

double string_match_part(const char *answer, char *const *gold, int n_gold)
{
	return n_gold ? count_found(answer, gold, n_gold) > 0 : NAN;
}

double exact(const char *answer, char *const *gold, int n_gold)
{
	size_t n = text_strip(&answer);
	for (int i = 0; i < n_gold; i++) {
		const char *g = gold[i];
		if (text_strip(&g) == n && !memcmp(g, answer, n))
			return 1;
	}
	return n_gold ? 0 : NAN;
}
