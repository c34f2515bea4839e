/* rouge_l.c: ROUGE-L of the Python package rouge 1.0.1, summary level with set semantics, as LongBench calls it; not Google's.
 *
 * Sentences end at every "."; a sentence of blanks alone holds one empty word. R and P count distinct words of one set U: the
 * words of every reference sentence's LCS with every answer sentence, found by the package's way back through the table (on a tie
 * to the left), of all of both texts' distinct words. F = 2PR / (P + R + 1e-8): equal texts give 0.999999995. Best over the gold
 * answers.
 *
 * Upstream walks back by recursion, so that a sentence pair of about 1000 words together overflows Python's stack and scores 0:
 * not imitated, but counted (rouge_deep_pairs). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/lcs.h"
#include "tasks/metrics/metrics.h"

enum { PYTHON_RECURSION_LIMIT = 1000 };

struct sentences {
	char *text;   /* holds the words, each ended by NUL */
	char **words; /* of all sentences */
	int *ids;     /* the words' numbers, from the dictionary of both texts */
	int n_words;
	int *ends; /* [n]: the first word behind each sentence */
	int n;
};

/* ---- words and sentences ---- */

static void word_add(struct sentences *s, size_t *cap, char *word)
{
	if ((size_t)s->n_words == *cap)
		s->words = mem_grow(s->words, *cap = *cap * 2 + 64, sizeof(*s->words));
	s->words[s->n_words++] = word;
}

/* Pieces of no length, where a "." follows another, are no sentences. */
static struct sentences sentences_of(const char *text)
{
	struct sentences s = {.text = text_copy(text)};
	size_t cap = 0, cap_words = 0;
	char *rest = s.text, *piece;
	while ((piece = strsep(&rest, "."))) {
		if (!*piece)
			continue;
		int before = s.n_words;
		for (char *word; (word = text_split(&piece));)
			word_add(&s, &cap_words, word);
		if (s.n_words == before)
			word_add(&s, &cap_words, "");
		if ((size_t)s.n == cap)
			s.ends = mem_grow(s.ends, cap = cap * 2 + 16, sizeof(*s.ends));
		s.ends[s.n++] = s.n_words;
	}
	return s;
}

static void sentences_free(struct sentences *s)
{
	free(s->text);
	free(s->words);
	free(s->ids);
	free(s->ends);
}

static int compare_words(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, each word once; returns their number. */
static int words_sort(char **words, int n)
{
	int distinct = 0;
	qsort(words, (size_t)n, sizeof(*words), compare_words);
	for (int i = 0; i < n; i++)
		if (!i || strcmp(words[i], words[distinct - 1]))
			words[distinct++] = words[i];
	return distinct;
}

/* Numbers the words by the dictionary; returns how many distinct ones there are in s. */
static int words_number(struct sentences *s, char **dictionary, int n, char *seen)
{
	int distinct = 0;
	s->ids = mem_new((size_t)s->n_words, sizeof(*s->ids));
	for (int i = 0; i < s->n_words; i++) {
		char **at = bsearch(&s->words[i], dictionary, (size_t)n, sizeof(*dictionary), compare_words);
		s->ids[i] = (int)(at - dictionary);
		distinct += !seen[s->ids[i]];
		seen[s->ids[i]] = 1;
	}
	return distinct;
}

/* ---- the set U ---- */

static int longest(const struct sentences *s)
{
	int most = 0;
	for (int i = 0; i < s->n; i++) {
		int n = s->ends[i] - (i ? s->ends[i - 1] : 0);
		most = n > most ? n : most;
	}
	return most;
}

static bool any_open(const int *ids, int n, const char *open)
{
	for (int i = 0; i < n; i++)
		if (open[ids[i]])
			return true;
	return false;
}

/* Distinct words of the LCS of every sentence pair. open[id]: the word is in both texts and not among them yet; a pair that
 * shares no such word adds nothing, so that most pairs of long texts need not be looked at. */
static int union_words(const struct sentences *ref, const struct sentences *hyp, char *open, int n_ids)
{
	int n = 0, most = longest(hyp);
	struct lcs *scratch = lcs_new(n_ids, most);
	char *taken = mem_new((size_t)most, 1);
	for (int r = 0; r < ref->n; r++) {
		const int *x = ref->ids + (r ? ref->ends[r - 1] : 0), n_x = (int)(ref->ids + ref->ends[r] - x);
		for (int h = 0; h < hyp->n && any_open(x, n_x, open); h++) {
			const int *y = hyp->ids + (h ? hyp->ends[h - 1] : 0), n_y = (int)(hyp->ids + hyp->ends[h] - y);
			if (!any_open(y, n_y, open))
				continue;
			memset(taken, 0, (size_t)n_y);
			lcs_mark(scratch, x, n_x, y, n_y, taken);
			for (int i = 0; i < n_y; i++) {
				n += taken[i] && open[y[i]];
				open[y[i]] &= !taken[i];
			}
		}
	}
	lcs_free(scratch);
	free(taken);
	return n;
}

static double rouge_pair(const char *answer, const char *gold)
{
	struct sentences hyp = sentences_of(answer), ref = sentences_of(gold);
	int n = hyp.n_words + ref.n_words;
	double f = 0;
	if (hyp.n && ref.n) {
		char **dictionary = mem_new((size_t)n, sizeof(*dictionary)), *in_hyp = mem_new((size_t)n, 1),
		     *in_ref = mem_new((size_t)n, 1);
		memcpy(dictionary, hyp.words, (size_t)hyp.n_words * sizeof(*dictionary));
		memcpy(dictionary + hyp.n_words, ref.words, (size_t)ref.n_words * sizeof(*dictionary));
		n = words_sort(dictionary, n);
		double n_hyp = words_number(&hyp, dictionary, n, in_hyp), n_ref = words_number(&ref, dictionary, n, in_ref);
		for (int i = 0; i < n; i++)
			in_ref[i] &= in_hyp[i];
		double common = union_words(&ref, &hyp, in_ref, n), p = common / n_hyp, r = common / n_ref;
		f = 2 * (p * r / (p + r + 1e-8));
		free(dictionary);
		free(in_hyp);
		free(in_ref);
	}
	sentences_free(&hyp);
	sentences_free(&ref);
	return f;
}

double rouge_l(const char *answer, char *const *gold, int n_gold)
{
	double best = n_gold ? 0 : NAN;
	for (int i = 0; i < n_gold; i++)
		best = fmax(best, rouge_pair(answer, gold[i]));
	return best;
}

double rouge_l_line(const char *answer, char *const *gold, int n_gold)
{
	char *line = text_first_line(answer);
	double s = rouge_l(line, gold, n_gold);
	free(line);
	return s;
}

int rouge_deep_pairs(const char *answer, char *const *gold, int n_gold)
{
	int deep = 0;
	struct sentences hyp = sentences_of(answer);
	for (int i = 0; i < n_gold; i++) {
		struct sentences ref = sentences_of(gold[i]);
		deep += hyp.n && ref.n && longest(&hyp) + longest(&ref) >= PYTHON_RECURSION_LIMIT;
		sentences_free(&ref);
	}
	sentences_free(&hyp);
	return deep;
}
