/* scores.h: what the CPU does to scores as plain arrays: the one order, exact selection by it, pooling. The CPU's operations stand on it, and scorers and
 * allocators that hold arrays of their own. */
#ifndef KVB_DEVICE_SCORES_H
#define KVB_DEVICE_SCORES_H

#include "runners/device/device.h"

/* ---- topk.c: the one order of the program: higher score, then lower slice, then lower index; NaN last ---- */
/* `count` slices of `len` scores, `stride` apart: the heads of one layer, or of all. */
struct slices {
	const float *scores;
	int64_t count, stride, len;
};
/* counts[i] = how many of the best k of all slices lie in slice i. d: its threads, or NULL. Returns the number of NaN met. */
int64_t top_counts(struct device *d, struct slices s, int64_t k, int64_t *counts);
/* The same for all entries strictly above the score at place `place` (0 = the highest) of the common order. */
void counts_above(struct device *d, struct slices s, int64_t place, int64_t *counts);
/* Top k of n scores by the common rule, ascending indices into out[k]; returns the number of NaN met (sorted last). O(n). */
int64_t top_k(const float *scores, int64_t n, int64_t k, int32_t *out);

/* ---- pooling.c ---- */
/* 1-D pooling along n, odd size, stride 1. avg: zeros outside, divisor stays size. max: in-range entries only. */
void pool_avg(const float *in, int64_t n, int size, float *out);
void pool_max(const float *in, int64_t n, int size, float *out);
/* op_pool of one group: sums [g][stride], columns [0, n) -> out[n]. */
void pool_scores(const float *sums, int g, int64_t stride, int64_t n, const struct pool_rule *rule, float *out);

#endif
