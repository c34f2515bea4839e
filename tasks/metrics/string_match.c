/* string_match.c: RULER's two metrics: is the gold text found in the answer, whatever the case? And plain equality. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"

/* RULER's cleaning: stripped, control characters become line ends, stripped again. */
static char *answer_clean(const char *answer)
{
	struct strbuf b = {0};
	size_t n = text_strip(&answer);
	char *text = text_format("%.*s", (int)n, answer);
	const char *clean = text;
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 32)
			*p = '\n';
	n = text_strip(&clean);
	text[(size_t)(clean - text) + n] = '\0';
	text_lower(&b, clean);
	free(text);
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
