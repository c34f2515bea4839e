/* rouge_lsum.c: ROUGE-Lsum of Google's rouge_score, as Hugging Face's `evaluate` calls it (no stemming): summary-level F1.
 *
 * Tokens are runs of a-z and 0-9 of the lower-cased text, sentences end at line ends. For each gold sentence the union, over the
 * answer's sentences, of the words one LCS takes (the package's way back through the table: on a tie up, that is to an earlier
 * gold word); each hit uses up one occurrence of the word in both texts. R = hits / gold words, P = hits / answer words. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/lcs.h"
#include "tasks/metrics/metrics.h"
#include "tasks/metrics/numbering.h"

struct sentences {
	struct numbers words; /* of all sentences */
	struct numbers ends;  /* the first word behind each */
};

static bool is_token(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static struct sentences sentences_of(struct numbering *words, const char *text)
{
	struct sentences s = {0};
	struct strbuf b = {0};
	text_lower(&b, text);
	const char *p = b.text ? b.text : "";
	for (size_t n; *p; p += n) {
		for (n = 0; is_token(p[n]); n++)
			;
		if (n)
			numbers_add(&s.words, numbering_of(words, p, n));
		else if (p[n++] == '\n')
			numbers_add(&s.ends, s.words.n);
	}
	numbers_add(&s.ends, s.words.n);
	strbuf_free(&b);
	return s;
}

static void sentences_free(struct sentences *s)
{
	free(s->words.v);
	free(s->ends.v);
}

static struct numbers sentence(const struct sentences *s, int i)
{
	int first = i ? s->ends.v[i - 1] : 0;
	return (struct numbers){s->words.v + first, s->ends.v[i] - first, 0};
}

static int *count_words(const struct numbers *words, int n_numbers)
{
	int *counts = mem_new((size_t)n_numbers, sizeof(*counts));
	for (int i = 0; i < words->n; i++)
		counts[words->v[i]]++;
	return counts;
}

/* Is there a place that would still count, were it taken? */
static bool any_left(const struct numbers *ref, const char *taken, const int *left_gold, const int *left_answer)
{
	for (int i = 0; i < ref->n; i++)
		if (!taken[i] && left_gold[ref->v[i]] > 0 && left_answer[ref->v[i]] > 0)
			return true;
	return false;
}

static int count_hits(const struct sentences *gold, const struct sentences *answer, int n_numbers)
{
	int hits = 0, *left_gold = count_words(&gold->words, n_numbers), *left_answer = count_words(&answer->words, n_numbers);
	struct lcs *scratch = lcs_new(n_numbers, gold->words.n);
	char *taken = mem_new((size_t)gold->words.n, 1);
	for (int r = 0; r < gold->ends.n; r++) {
		struct numbers ref = sentence(gold, r);
		memset(taken, 0, (size_t)ref.n);
		for (int c = 0; c < answer->ends.n && any_left(&ref, taken, left_gold, left_answer); c++) {
			struct numbers can = sentence(answer, c);
			lcs_mark(scratch, can.v, can.n, ref.v, ref.n, taken);
		}
		for (int i = 0; i < ref.n; i++)
			if (taken[i] && left_gold[ref.v[i]] > 0 && left_answer[ref.v[i]] > 0) {
				hits++;
				left_gold[ref.v[i]]--;
				left_answer[ref.v[i]]--;
			}
	}
	free(left_gold);
	free(left_answer);
	lcs_free(scratch);
	free(taken);
	return hits;
}

static double rouge_pair(const char *answer, const char *gold)
{
	struct numbering words = {0};
	struct sentences can = sentences_of(&words, answer), ref = sentences_of(&words, gold);
	double hits = can.words.n && ref.words.n ? count_hits(&ref, &can, words.n) : 0;
	double p = hits / can.words.n, r = hits / ref.words.n;
	sentences_free(&can);
	sentences_free(&ref);
	numbering_free(&words);
	return hits > 0 ? 2 * p * r / (p + r) : 0;
}

double rouge_lsum(const char *answer, char *const *gold, int n_gold)
{
	double best = n_gold ? 0 : NAN;
	for (int i = 0; i < n_gold; i++)
		best = fmax(best, rouge_pair(answer, gold[i]));
	return best;
}
