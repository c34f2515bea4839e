/* choice_v2.c: LongBench v2's multiple choice (pred.py: extract_answer): the letter behind "The correct answer is", in
 * parentheses if there is one so, asterisks aside. No letter = wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"

static const char *letter_behind(const char *text, const char *words, bool closed)
{
	for (const char *p = text; (p = strstr(p, words)); p++) {
		const char *letter = p + strlen(words);
		if (*letter >= 'A' && *letter <= 'D' && (!closed || letter[1] == ')'))
			return letter;
	}
	return NULL;
}

double longbench_v2(const char *answer, char *const *gold, int n_gold)
{
	double score = n_gold ? 0 : NAN;
	struct strbuf b = {0};
	for (const char *p = answer; *p; p++)
		if (*p != '*')
			strbuf_add(&b, p, 1);
	char *plain = strbuf_take(&b);
	const char *letter = letter_behind(plain, "The correct answer is (", true);
	letter = letter ? letter : letter_behind(plain, "The correct answer is ", false);
	for (int i = 0; i < n_gold && letter; i++)
		score = fmax(score, gold[i][0] == *letter && !gold[i][1]);
	free(plain);
	return score;
}
