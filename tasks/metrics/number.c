/* number.c: LongBench's synthetic tasks (metrics.py: count_score, retrieval_score, retrieval_zh_score): of the numbers in the
 * answer the share which is the right one, compared as text. The right number is the gold answer itself, or stands in it behind
 * "Paragraph " or "段落". Digits are Unicode's (\d of re). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"

/* The next run of digits: its length in bytes, *p at its start; 0 = none, *p at the end. */
static size_t digits_next(const char **p)
{
	const char *from = NULL, *at = *p;
	for (;;) {
		const char *before = at;
		int32_t c = text_next(&at);
		if (c && text_is_digit(c)) {
			from = from ? from : before;
		} else if (from || !c) {
			*p = from ? from : before;
			return from ? (size_t)(before - from) : 0;
		}
	}
}

static double share(const char *answer, const char *right, size_t len)
{
	int numbers = 0, equal = 0;
	for (size_t n; (n = digits_next(&answer)); answer += n) {
		numbers++;
		equal += n == len && !memcmp(answer, right, n);
	}
	return numbers ? (double)equal / numbers : 0;
}

double count_number(const char *answer, char *const *gold, int n_gold)
{
	double best = n_gold ? 0 : NAN;
	for (int i = 0; i < n_gold; i++)
		best = fmax(best, share(answer, gold[i], strlen(gold[i])));
	return best;
}

/* The first number which follows the mark at once. */
static size_t number_behind(const char **gold, const char *mark)
{
	for (const char *p = *gold; (p = strstr(p, mark));) {
		const char *digits = p += strlen(mark);
		size_t n = digits_next(&digits);
		if (n && digits == p) {
			*gold = p;
			return n;
		}
	}
	return 0;
}

static double retrieval_by(const char *answer, char *const *gold, int n_gold, const char *mark)
{
	double best = NAN; /* no gold answer with a number: does not apply */
	for (int i = 0; i < n_gold; i++) {
		const char *right = gold[i];
		size_t n = number_behind(&right, mark);
		if (n)
			best = fmax(best, share(answer, right, n));
	}
	return best;
}

double retrieval(const char *answer, char *const *gold, int n_gold)
{
	return retrieval_by(answer, gold, n_gold, "Paragraph ");
}

double retrieval_zh(const char *answer, char *const *gold, int n_gold)
{
	return retrieval_by(answer, gold, n_gold, "段落");
}
