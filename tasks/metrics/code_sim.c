/* code_sim.c: LongBench's similarity of a line of code (metrics.py: code_sim_score, through fuzzywuzzy's ratio).
 *
 * Of the answer the first line with none of `, #, // in it. Upstream's fuzzywuzzy uses Python's difflib, unless
 * python-Levenshtein is installed, when it quietly uses the indel distance and scores rise by about two points: both are here,
 * difflib is the default. A third variant leaves out blank lines (lm-eval). Rounded to whole percents, half to even (of indel as
 * package 0.12 divides; since 0.20 it subtracts from 1, which may move an exact half, 2 * 1 / 80, up by one percent). Lengths in
 * code points. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"

/* ---- difflib's SequenceMatcher(None, a, b).ratio(), autojunk on ---- */

/* A map from characters of b to their places in it, in rising order: places[first..first+count). */
struct places {
	struct place {
		int32_t code;
		int at;
	} * v;
	int n;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	return x->code != y->code ? (x->code < y->code ? -1 : 1) : (x->at > y->at) - (x->at < y->at);
}

/* Characters which are more than 1 % of 200 or more are popular: left out, so that no match begins with them. */
static struct places places_of(const struct codes *b)
{
	struct places p = {.v = mem_new((size_t)b->n, sizeof(*p.v))};
	for (int i = 0; i < b->n; i++)
		p.v[i] = (struct place){b->v[i], i};
	qsort(p.v, (size_t)b->n, sizeof(*p.v), compare_places);
	for (int i = 0, end; i < b->n; i = end) {
		for (end = i; end < b->n && p.v[end].code == p.v[i].code;)
			end++;
		if (b->n >= 200 && end - i > b->n / 100 + 1)
			continue;
		memmove(p.v + p.n, p.v + i, (size_t)(end - i) * sizeof(*p.v));
		p.n += end - i;
	}
	return p;
}

static int first_place(const struct places *p, int32_t code)
{
	int lo = 0, hi = p->n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (p->v[mid].code < code)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct matcher {
	const struct codes *a, *b;
	struct places places;
	int *len, *next; /* [b.n + 1]: length of the match which ends at b's place j-1, for this character of a and the one before
			  */
};

struct block {
	int a, b, size;
};

/* The longest block in a[alo,ahi), b[blo,bhi), the earliest in a, then in b; grown at both ends over popular characters. */
static struct block find_longest(struct matcher *m, int alo, int ahi, int blo, int bhi)
{
	struct block best = {alo, blo, 0};
	memset(m->len, 0, ((size_t)m->b->n + 1) * sizeof(*m->len));
	for (int i = alo; i < ahi; i++) {
		int32_t code = m->a->v[i];
		memset(m->next, 0, ((size_t)m->b->n + 1) * sizeof(*m->next));
		for (int k = first_place(&m->places, code); k < m->places.n && m->places.v[k].code == code; k++) {
			int j = m->places.v[k].at;
			if (j < blo || j >= bhi)
				continue;
			int size = m->next[j + 1] = m->len[j] + 1;
			if (size > best.size)
				best = (struct block){i - size + 1, j - size + 1, size};
		}
		int *swap = m->len;
		m->len = m->next;
		m->next = swap;
	}
	for (; best.a > alo && best.b > blo && m->a->v[best.a - 1] == m->b->v[best.b - 1]; best.size++) {
		best.a--;
		best.b--;
	}
	while (best.a + best.size < ahi && best.b + best.size < bhi && m->a->v[best.a + best.size] == m->b->v[best.b + best.size])
		best.size++;
	return best;
}

static int matched(struct matcher *m, int alo, int ahi, int blo, int bhi)
{
	if (alo >= ahi || blo >= bhi)
		return 0;
	struct block k = find_longest(m, alo, ahi, blo, bhi);
	if (!k.size)
		return 0;
	return k.size + matched(m, alo, k.a, blo, k.b) + matched(m, k.a + k.size, ahi, k.b + k.size, bhi);
}

static int common_difflib(const struct codes *a, const struct codes *b)
{
	struct matcher m = {.a = a, .b = b, .places = places_of(b)};
	m.len = mem_new((size_t)b->n + 1, sizeof(*m.len));
	m.next = mem_new((size_t)b->n + 1, sizeof(*m.next));
	int n = matched(&m, 0, a->n, 0, b->n);
	free(m.places.v);
	free(m.len);
	free(m.next);
	return n;
}

/* ---- indel: the longest common subsequence ---- */

static int common_indel(const struct codes *a, const struct codes *b)
{
	int *row = mem_new((size_t)b->n + 1, sizeof(*row));
	for (int i = 0; i < a->n; i++)
		for (int j = 0, corner = 0; j < b->n; j++) {
			int above = row[j + 1];
			row[j + 1] = a->v[i] == b->v[j] ? corner + 1 : above > row[j] ? above : row[j];
			corner = above;
		}
	int n = row[b->n];
	free(row);
	return n;
}

/* ---- the metric ---- */

/* A copy of the first line without marks of prose or comments; with skip_blank, not of white space alone. */
static char *code_line(const char *answer, bool skip_blank)
{
	answer += strspn(answer, "\n");
	for (;;) {
		char *line = text_format("%.*s", (int)strcspn(answer, "\n"), answer);
		const char *visible = line;
		bool wanted = !strpbrk(line, "`#") && !strstr(line, "//") && !(skip_blank && !text_strip(&visible));
		if (wanted)
			return line;
		answer += strlen(line);
		free(line);
		if (!*answer)
			return text_copy("");
		answer++;
	}
}

static double similarity(const char *q, const char *g, int (*common)(const struct codes *, const struct codes *))
{
	if (!strcmp(q, g))
		return 1;
	if (!*q || !*g)
		return 0;
	struct codes a = text_codes(q), b = text_codes(g);
	double ratio = 2. * common(&a, &b) / (a.n + b.n);
	codes_free(&a);
	codes_free(&b);
	return rint(100 * ratio) / 100;
}

static double best_similarity(const char *answer, char *const *gold, int n_gold, bool skip_blank,
	int (*common)(const struct codes *, const struct codes *))
{
	double best = n_gold ? 0 : NAN;
	char *line = code_line(answer, skip_blank);
	for (int i = 0; i < n_gold; i++)
		best = fmax(best, similarity(line, gold[i], common));
	free(line);
	return best;
}

double code_sim(const char *answer, char *const *gold, int n_gold)
{
	return best_similarity(answer, gold, n_gold, false, common_difflib);
}

double code_sim_indel(const char *answer, char *const *gold, int n_gold)
{
	return best_similarity(answer, gold, n_gold, false, common_indel);
}

double code_sim_skip_blank(const char *answer, char *const *gold, int n_gold)
{
	return best_similarity(answer, gold, n_gold, true, common_difflib);
}
