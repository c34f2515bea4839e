/* pool.c: one-dimensional pooling along the key axis, stride 1, odd size (spec/methods.md 1.4). */
#include "runners/methods/method.h"

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
