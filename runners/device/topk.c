/* topk.c: the one order of scores, and exact selection by it in O(n): no sort, no approximation. The CPU's side of op_topk and op_top_counts.
 *
 * A score becomes a 32-bit key whose unsigned order is the order of the floats (-0 = +0, NaN lowest). Three passes of histograms
 * (11, 11 and 10 bits) find the key of the k-th score and how many entries equal to it still belong to the best k; those are
 * taken by ascending slice and index. The tie rule and "NaN last" are ours: the references leave both to torch.topk
 * (spec/methods.md 1.5). */
#include "runners/device/scores.h"

#include <stdlib.h>
#include <string.h>

enum { BINS = 2048 };

struct cut {
	uint32_t key;  /* entries above it are in */
	int64_t equal; /* and the first so many equal to it */
};

static uint32_t order_key(float score)
{
	if (score != score)
		return 0;
	score += 0.0f; /* -0 becomes +0: equal scores have equal keys */
	uint32_t bits;
	memcpy(&bits, &score, sizeof(bits));
	return bits & 0x80000000u ? ~bits : bits | 0x80000000u; /* -inf -> 0x007fffff: above NaN */
}

struct pass {
	struct slices s;
	int shift, bits;
	uint32_t prefix; /* the key's bits above this pass */
	uint32_t *bins;  /* [slices][BINS] */
	struct cut cut;
	int64_t *above, *equal; /* [slices] */
};

static void count_bins(void *arg, int64_t i)
{
	struct pass *p = arg;
	uint32_t *bins = p->bins + i * BINS;
	const float *scores = p->s.scores + i * p->s.stride;
	uint32_t mask = (1u << p->bits) - 1;
	memset(bins, 0, BINS * sizeof(*bins));
	for (int64_t j = 0; j < p->s.len; j++) {
		uint32_t key = order_key(scores[j]);
		if ((uint64_t)key >> (p->shift + p->bits) == p->prefix)
			bins[(key >> p->shift) & mask]++;
	}
}

static void run(struct device *d, int64_t n, void (*fn)(void *, int64_t), void *arg)
{
	if (d && n > 1)
		device_parallel(d, n, fn, arg);
	else
		for (int64_t i = 0; i < n; i++)
			fn(arg, i);
}

/* The cut that lets k of all entries through, 0 < k <= count*len. *nan = NaN met. */
static struct cut find_cut(struct device *d, struct slices s, int64_t k, int64_t *nan)
{
	static const int bits[3] = {11, 11, 10};
	struct pass p = {.s = s, .shift = 32, .bins = mem_new((size_t)s.count * BINS, sizeof(uint32_t))};
	int64_t left = k;
	for (int pass = 0; pass < 3; pass++) {
		p.bits = bits[pass];
		p.shift -= p.bits;
		run(d, s.count, count_bins, &p);
		if (pass == 0) /* keys below -inf: NaN only, all in bin 0 */
			for (int64_t i = 0; i < s.count; i++)
				*nan += p.bins[i * BINS];
		for (int bin = (1 << p.bits) - 1;; bin--) {
			int64_t here = 0;
			for (int64_t i = 0; i < s.count; i++)
				here += p.bins[i * BINS + bin];
			if (here >= left || bin == 0) {
				p.prefix = p.prefix << p.bits | (uint32_t)bin;
				break;
			}
			left -= here;
		}
	}
	free(p.bins);
	return (struct cut){p.prefix, left};
}

static void count_cut(void *arg, int64_t i)
{
	struct pass *p = arg;
	const float *scores = p->s.scores + i * p->s.stride;
	int64_t above = 0, equal = 0;
	for (int64_t j = 0; j < p->s.len; j++) {
		uint32_t key = order_key(scores[j]);
		above += key > p->cut.key;
		equal += key == p->cut.key;
	}
	p->above[i] = above;
	p->equal[i] = equal;
}

static int64_t count_by_cut(struct device *d, struct slices s, int64_t k, bool with_equal, int64_t *counts)
{
	int64_t nan = 0;
	struct pass p = {
		.s = s, .cut = find_cut(d, s, k, &nan), .above = counts, .equal = mem_new((size_t)s.count, sizeof(int64_t))};
	run(d, s.count, count_cut, &p);
	int64_t left = with_equal ? p.cut.equal : 0;
	for (int64_t i = 0; i < s.count; i++) {
		int64_t take = p.equal[i] < left ? p.equal[i] : left;
		counts[i] += take;
		left -= take;
	}
	free(p.equal);
	return nan;
}

int64_t top_counts(struct device *d, struct slices s, int64_t k, int64_t *counts)
{
	memset(counts, 0, (size_t)s.count * sizeof(*counts));
	if (s.len <= 0 || s.count <= 0)
		return 0;
	if (k > s.count * s.len)
		k = s.count * s.len;
	if (k > 0)
		return count_by_cut(d, s, k, true, counts);
	return 0;
}

void counts_above(struct device *d, struct slices s, int64_t place, int64_t *counts)
{
	count_by_cut(d, s, place + 1, false, counts);
}

int64_t top_k(const float *scores, int64_t n, int64_t k, int32_t *out)
{
	int64_t nan = 0, taken = 0;
	if (n <= 0)
		return 0;
	if (k > n)
		k = n;
	if (k <= 0) {
		for (int64_t j = 0; j < n; j++)
			nan += scores[j] != scores[j];
		return nan;
	}
	struct cut cut = find_cut(NULL, (struct slices){scores, 1, n, n}, k, &nan);
	for (int64_t j = 0; j < n && taken < k; j++) {
		uint32_t key = order_key(scores[j]);
		if (key > cut.key || (key == cut.key && cut.equal-- > 0))
			out[taken++] = (int32_t)j;
	}
	return nan;
}
