/* lcs.c: longest common subsequence in bits (lcs.h).
 *
 * A row of the table rises by 0 or 1 from one place to the next: a row is held as one bit a place, 0 = it rises there. The next
 * row is an addition: V' = (V + (V & M)) | (V & ~M) with M = the places of y which hold the row's number (Hyyrö 2004). The way
 * back needs these bits only: where the numbers differ, the cell above is the larger of the two exactly where the row rises.
 *
 * Going back needs the rows in falling order. Every stride-th row is kept on the way down; the rows between two of them are made
 * again when the way back comes to them: twice the time, sqrt of the memory. */
#include "tasks/metrics/lcs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/base.h"

enum { FREQUENT = 64 }; /* most numbers that can be in y more often than once a word of bits */

struct lcs {
	int *head, *next; /* places of each number in y as chains, from 1 on; 0 = the end. [n_numbers], [most + 1] */
	int *count;       /* places of each number; of a frequent one, less than 0: -1 - its mask. [n_numbers] */
	uint64_t *masks;  /* places as bits: of the frequent numbers, then of `masked`. [FREQUENT + 1][width] */
	int masked;       /* -1 = none */
	size_t width;     /* words of a row of bits */
	uint64_t *rows;   /* [n_rows][width] */
	size_t cap;       /* words in rows */
};

struct lcs *lcs_new(int n_numbers, int most)
{
	struct lcs *s = mem_new(1, sizeof(*s));
	s->head = mem_new((size_t)n_numbers, sizeof(*s->head));
	s->count = mem_new((size_t)n_numbers, sizeof(*s->count));
	s->next = mem_new((size_t)most + 1, sizeof(*s->next));
	s->masks = mem_new((size_t)most / 64 + 1, (FREQUENT + 1) * sizeof(*s->masks));
	s->masked = -1;
	return s;
}

void lcs_free(struct lcs *s)
{
	free(s->head);
	free(s->count);
	free(s->next);
	free(s->masks);
	free(s->rows);
	free(s);
}

/* ---- rows ---- */

static void mask_set(const struct lcs *s, uint64_t *mask, int number)
{
	for (int j = s->head[number]; j; j = s->next[j])
		mask[(j - 1) / 64] |= (uint64_t)1 << (j - 1) % 64;
}

/* The places of a number. A frequent one has a mask of its own, for setting it costs more than the row. */
static const uint64_t *mask_of(struct lcs *s, int number)
{
	uint64_t *mask = s->masks + FREQUENT * s->width;
	if (s->count[number] < 0)
		return s->masks + (size_t)(-1 - s->count[number]) * s->width;
	for (int j = s->masked < 0 ? 0 : s->head[s->masked]; j; j = s->next[j])
		mask[(j - 1) / 64] = 0;
	mask_set(s, mask, number);
	s->masked = number;
	return mask;
}

/* The row below `from`, for x's number; to = from is allowed. Bits behind the last place stay 1. */
static void row_below(struct lcs *s, int number, const uint64_t *from, uint64_t *to)
{
	bool carry = false;
	const uint64_t *mask = mask_of(s, number);
	for (size_t k = 0; k < s->width; k++) {
		uint64_t v = from[k], u = v & mask[k], sum;
		bool over = __builtin_add_overflow(v, u, &sum);
		carry = __builtin_add_overflow(sum, (uint64_t)carry, &sum) | over;
		to[k] = sum | (v & ~u);
	}
}

/* Room for n_rows, of which the first is the table's edge: nowhere a rise. */
static void rows_begin(struct lcs *s, const int *y, int m, size_t n_rows)
{
	int frequent = 0;
	s->width = (size_t)m / 64 + 1;
	for (int j = m; j; j--) {
		s->next[j] = s->head[y[j - 1]];
		s->head[y[j - 1]] = j;
		s->count[y[j - 1]]++;
	}
	memset(s->masks, 0, (FREQUENT + 1) * s->width * sizeof(*s->masks));
	for (int j = 0; j < m; j++)
		if (s->count[y[j]] > (int)s->width) {
			mask_set(s, s->masks + (size_t)frequent * s->width, y[j]);
			s->count[y[j]] = -1 - frequent++;
		}
	if (n_rows * s->width > s->cap)
		s->rows = mem_grow(s->rows, s->cap = n_rows * s->width, sizeof(*s->rows));
	memset(s->rows, 0xff, s->width * sizeof(*s->rows));
}

static void rows_end(struct lcs *s, const int *y, int m)
{
	s->masked = -1;
	for (int j = 0; j < m; j++)
		s->head[y[j]] = s->count[y[j]] = 0;
}

int lcs_length(struct lcs *s, const int *x, int n, const int *y, int m)
{
	int length = 0;
	rows_begin(s, y, m, 1);
	for (int i = 0; i < n; i++)
		row_below(s, x[i], s->rows, s->rows);
	for (size_t k = 0; k < s->width; k++)
		length += __builtin_popcountll(~s->rows[k]);
	rows_end(s, y, m);
	return length;
}

void lcs_mark(struct lcs *s, const int *x, int n, const int *y, int m, char *taken)
{
	const int stride = (int)sqrt(n) + 1, blocks = n / stride + 1;
	rows_begin(s, y, m, (size_t)blocks + (size_t)stride);
	const size_t width = s->width;
	uint64_t *kept = s->rows, *block = kept + (size_t)blocks * width; /* rows 0, stride, ..; rows behind one of them */
	memcpy(block, kept, width * sizeof(*block));
	for (int i = 1; i <= n; i++) {
		row_below(s, x[i - 1], block, block);
		if (i % stride == 0)
			memcpy(kept + (size_t)(i / stride) * width, block, width * sizeof(*block));
	}
	for (int b = blocks - 1, i = n, j = m; b >= 0 && j; b--) {
		const int first = b * stride;
		for (int k = first; k < i; k++)
			row_below(s, x[k], k == first ? kept + (size_t)b * width : block + (size_t)(k - first - 1) * width,
				block + (size_t)(k - first) * width);
		while (i > first && j) {
			const uint64_t *row = block + (size_t)(i - first - 1) * width;
			if (x[i - 1] == y[j - 1]) {
				taken[--j] = 1;
				i--;
			} else if (row[(j - 1) / 64] >> (j - 1) % 64 & 1) {
				j--;
			} else {
				i--;
			}
		}
	}
	rows_end(s, y, m);
}
