/* bleu.c: sentence BLEU-4 of NLTK with smoothing method 4 and one reference, as RepoQA compares functions. Words are what white
 * space separates (of a text of blanks alone: one empty word).
 *
 * Without a common word 0. p_n = clipped matches / max(1, n-grams of the candidate). A p_n without a match becomes, if the
 * candidate has more than one word, ln(words) / (2^k * 5) / denominator for the k-th such; else it is left out. Brevity penalty,
 * geometric mean with weights 1/4. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"
#include "tasks/metrics/numbering.h"

enum { BLEU_N = 4, BLEU_K = 5 };

static struct numbers words_of(struct numbering *words, const char *text)
{
	struct numbers s = {0};
	size_t left = text_strip(&text);
	for (const char *end = text + left, *p = text, *word = text;;) {
		const char *here = p;
		bool at_end = here >= end;
		if (!at_end && !text_is_space(text_next(&p)))
			continue;
		numbers_add(&s, numbering_of(words, word, (size_t)(here - word)));
		if (at_end)
			return s;
		for (word = p; text_is_space(text_next(&p)); word = p)
			;
		p = word;
	}
}

/* ---- n-grams: their first words' places, sorted ---- */

struct grams {
	const int *words;
	int order, n;
	int *at; /* [n] */
};

static int compare(const int *a, const int *b, int order)
{
	for (int i = 0; i < order; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

static int compare_places(const void *a, const void *b, void *user)
{
	const struct grams *g = user;
	return compare(g->words + *(const int *)a, g->words + *(const int *)b, g->order);
}

static struct grams grams_of(const struct numbers *words, int order)
{
	struct grams g = {words->v, order, words->n < order ? 0 : words->n - order + 1, NULL};
	g.at = mem_new((size_t)g.n + 1, sizeof(*g.at));
	for (int i = 0; i < g.n; i++)
		g.at[i] = i;
	qsort_r(g.at, (size_t)g.n, sizeof(*g.at), compare_places, &g);
	return g;
}

/* Matches, each n-gram at most as often as the reference has it. */
static int count_matches(const struct grams *candidate, const struct grams *reference)
{
	int matches = 0;
	for (int i = 0, j = 0; i < candidate->n && j < reference->n;) {
		int d = compare(candidate->words + candidate->at[i], reference->words + reference->at[j], candidate->order);
		matches += d == 0;
		i += d <= 0;
		j += d >= 0;
	}
	return matches;
}

static double bleu(const struct numbers *candidate, const struct numbers *reference)
{
	double logs = 0;
	for (int order = 1, smoothed = 0; order <= BLEU_N; order++) {
		struct grams c = grams_of(candidate, order), r = grams_of(reference, order);
		double matches = count_matches(&c, &r), of = c.n > 1 ? c.n : 1;
		free(c.at);
		free(r.at);
		if (matches == 0 && order == 1)
			return 0;
		if (matches == 0 && candidate->n > 1)
			matches = log(candidate->n) / (pow(2, ++smoothed) * BLEU_K);
		if (matches > 0)
			logs += log(matches / of) / BLEU_N;
	}
	double brevity = candidate->n > reference->n ? 1 : exp(1 - (double)reference->n / candidate->n);
	return brevity * exp(logs);
}

double bleu4(const char *candidate, const char *reference)
{
	struct numbering words = {0};
	struct numbers c = words_of(&words, candidate), r = words_of(&words, reference);
	double score = bleu(&c, &r);
	free(c.v);
	free(r.v);
	numbering_free(&words);
	return score;
}
