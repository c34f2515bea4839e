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
	memset(seen, 0, (size_t)n);
	s->ids = mem_new((size_t)s->n_words, sizeof(*s->ids));
	for (int i = 0; i < s->n_words; i++) {
		char **at = bsearch(&s->words[i], dictionary, (size_t)n, sizeof(*dictionary), compare_words);
		s->ids[i] = (int)(at - dictionary);
		distinct += !seen[s->ids[i]];
		seen[s->ids[i]] = 1;
	}
	return distinct;
}

/* ---- longest common subsequence ---- */

/* Puts the words of the LCS of x and y into the set. table: scratch for (n+1)*(m+1). */
static int lcs_words(const int *x, int n, const int *y, int m, int *table, char *set)
{
	int taken = 0, width = m + 1;
	memset(table, 0, (size_t)width * sizeof(*table));
	for (int i = 1; i <= n; i++) {
		int *row = table + (size_t)i * (size_t)width, *above = row - width;
		row[0] = 0;
		for (int j = 1; j <= m; j++)
			row[j] = x[i - 1] == y[j - 1] ? above[j - 1] + 1 : above[j] > row[j - 1] ? above[j] : row[j - 1];
	}
	for (int i = n, j = m; i && j;) {
		const int *row = table + (size_t)i * (size_t)width;
		if (x[i - 1] == y[j - 1]) {
			taken += !set[x[i - 1]];
			set[x[i - 1]] = 1;
			i--;
			j--;
		} else if (row[j - width] > row[j - 1]) {
			i--;
		} else {
			j--;
		}
	}
	return taken;
}

static int longest(const struct sentences *s)
{
	int most = 0;
	for (int i = 0; i < s->n; i++) {
		int n = s->ends[i] - (i ? s->ends[i - 1] : 0);
		most = n > most ? n : most;
	}
	return most;
}

static int union_words(const struct sentences *ref, const struct sentences *hyp, char *set)
{
	int taken = 0;
	int *table = mem_new(((size_t)longest(ref) + 1) * ((size_t)longest(hyp) + 1), sizeof(*table));
	for (int r = 0; r < ref->n; r++)
		for (int h = 0; h < hyp->n; h++) {
			int x = r ? ref->ends[r - 1] : 0, y = h ? hyp->ends[h - 1] : 0;
			taken += lcs_words(ref->ids + x, ref->ends[r] - x, hyp->ids + y, hyp->ends[h] - y, table, set);
		}
	free(table);
	return taken;
}

static double rouge_pair(const char *answer, const char *gold)
{
	struct sentences hyp = sentences_of(answer), ref = sentences_of(gold);
	int n = hyp.n_words + ref.n_words;
	double f = 0;
	if (hyp.n && ref.n) {
		char **dictionary = mem_new((size_t)n, sizeof(*dictionary)), *set = mem_new((size_t)n, 1);
		memcpy(dictionary, hyp.words, (size_t)hyp.n_words * sizeof(*dictionary));
		memcpy(dictionary + hyp.n_words, ref.words, (size_t)ref.n_words * sizeof(*dictionary));
		n = words_sort(dictionary, n);
		double in_hyp = words_number(&hyp, dictionary, n, set), in_ref = words_number(&ref, dictionary, n, set);
		memset(set, 0, (size_t)n);
		double common = union_words(&ref, &hyp, set), p = common / in_hyp, r = common / in_ref;
		f = 2 * (p * r / (p + r + 1e-8));
		free(dictionary);
		free(set);
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
