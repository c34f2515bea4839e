/* pooling.c: one-dimensional pooling along the key axis, stride 1, odd size (spec/methods.md 1.4), and the heads of a group made one. The CPU's side of
 * op_pool. */
#include "runners/device/scores.h"

#include <stdlib.h>
#include <string.h>

void pool_avg(const float *in, int64_t n, int size, float *out)
{
	int64_t half = size / 2;
	for (int64_t j = 0; j < n; j++) {
		int64_t from = j - half > 0 ? j - half : 0, to = j + half < n - 1 ? j + half : n - 1;
		double sum = 0;
		for (int64_t t = from; t <= to; t++)
			sum += in[t];
		out[j] = (float)(sum / size); /* the divisor stays `size` at the edges: count_include_pad */
	}
}

void pool_max(const float *in, int64_t n, int size, float *out)
{
	int64_t half = size / 2;
	for (int64_t j = 0; j < n; j++) {
		int64_t from = j - half > 0 ? j - half : 0, to = j + half < n - 1 ? j + half : n - 1;
		float best = in[from];
		for (int64_t t = from + 1; t <= to; t++)
			if (in[t] > best || in[t] != in[t]) /* NaN wins: it must be seen */
				best = in[t];
		out[j] = best;
	}
}

void pool_scores(const float *sums, int g, int64_t stride, int64_t n, const struct pool_rule *rule, float *out)
{
	float *row = mem_new((size_t)n + 1, sizeof(*row)), *pooled = mem_new((size_t)n + 1, sizeof(*pooled)),
	      *joined = mem_new((size_t)n + 1, sizeof(*joined));
	void (*pool)(const float *, int64_t, int, float *) = rule->kind == 'a' ? pool_avg : rule->kind == 'm' ? pool_max : NULL;
	for (int h = 0; h < g; h++) {
		for (int64_t j = 0; j < n; j++)
			row[j] = sums[h * stride + j] / rule->divisor;
		float *from = row;
		if (pool && rule->pool_first)
			pool(row, n, rule->size, from = pooled);
		for (int64_t j = 0; j < n; j++)
			if (rule->group_max)
				joined[j] = h == 0 || from[j] > joined[j] || from[j] != from[j] ? from[j] : joined[j];
			else
				joined[j] += from[j] / (float)g;
	}
	if (pool && !rule->pool_first)
		pool(joined, n, rule->size, out);
	else
		memcpy(out, joined, (size_t)n * sizeof(*out));
	free(row);
	free(pooled);
	free(joined);
}
