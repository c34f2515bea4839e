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

#include "tasks/metrics/lcs.h"
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

struct span {
	int from, to;
};

/* Number of the first place of `code` not before `at`. */
static int place_find(const struct places *p, int32_t code, int at)
{
	const struct place wanted = {code, at};
	int lo = 0, hi = p->n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (compare_places(&p->v[mid], &wanted) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct matcher {
	const struct codes *a, *b;
	struct places places;
	int *len, *next; /* [b.n + 1]: length of the match which ends at b's place j-1, for the character of a before and for this
			  * one; 0 but where these characters stand in b */
};

/* Parts of a and b between two blocks, or a block's own. */
struct range {
	int alo, ahi, blo, bhi;
};

/* Grows at both ends, over popular characters too. */
static void range_grow(const struct matcher *m, struct range *r, const struct range *within)
{
	const int32_t *a = m->a->v, *b = m->b->v;
	for (; r->alo > within->alo && r->blo > within->blo && a[r->alo - 1] == b[r->blo - 1]; r->alo--)
		r->blo--;
	for (; r->ahi < within->ahi && r->bhi < within->bhi && a[r->ahi] == b[r->bhi]; r->ahi++)
		r->bhi++;
}

/* The longest block within, the earliest in a, then in b. Only places which hold a's character are touched. */
static struct range find_longest(struct matcher *m, const struct range *within)
{
	struct range best = {within->alo, within->alo, within->blo, within->blo};
	const struct place *places = m->places.v;
	struct span before = {0, 0};
	for (int i = within->alo; i < within->ahi; i++) {
		struct span here = {
			place_find(&m->places, m->a->v[i], within->blo), place_find(&m->places, m->a->v[i], within->bhi)};
		for (int k = here.from; k < here.to; k++) {
			int end = places[k].at + 1, size = m->next[end] = m->len[end - 1] + 1;
			if (size > best.ahi - best.alo)
				best = (struct range){i + 1 - size, i + 1, end - size, end};
		}
		for (int k = before.from; k < before.to; k++)
			m->len[places[k].at + 1] = 0;
		int *swap = m->len;
		m->len = m->next;
		m->next = swap;
		before = here;
	}
	for (int k = before.from; k < before.to; k++)
		m->len[places[k].at + 1] = 0;
	range_grow(m, &best, within);
	return best;
}

/* Characters in matching blocks. What is left to do lies in a list, not on the stack: blocks may be as many as characters. */
static int matched(struct matcher *m)
{
	int common = 0, n = 1, cap = 64;
	struct range *left = mem_new((size_t)cap, sizeof(*left));
	left[0] = (struct range){0, m->a->n, 0, m->b->n};
	while (n) {
		struct range r = left[--n];
		if (r.alo >= r.ahi || r.blo >= r.bhi)
			continue;
		struct range block = find_longest(m, &r);
		if (block.alo == block.ahi)
			continue;
		common += block.ahi - block.alo;
		if (n + 2 > cap)
			left = mem_grow(left, (size_t)(cap *= 2), sizeof(*left));
		left[n++] = (struct range){r.alo, block.alo, r.blo, block.blo};
		left[n++] = (struct range){block.ahi, r.ahi, block.bhi, r.bhi};
	}
	free(left);
	return common;
}

static int common_difflib(const struct codes *a, const struct codes *b)
{
	struct matcher m = {.a = a, .b = b, .places = places_of(b)};
	m.len = mem_new((size_t)b->n + 1, sizeof(*m.len));
	m.next = mem_new((size_t)b->n + 1, sizeof(*m.next));
	int n = matched(&m);
	free(m.places.v);
	free(m.len);
	free(m.next);
	return n;
}

/* ---- indel: the longest common subsequence ---- */

static int common_indel(const struct codes *a, const struct codes *b)
{
	enum { CODES = 0x110000 };
	struct lcs *scratch = lcs_new(CODES, b->n);
	int n = lcs_length(scratch, a->v, a->n, b->v, b->n);
	lcs_free(scratch);
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
