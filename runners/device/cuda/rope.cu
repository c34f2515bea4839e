/* rope.cu: rotary embedding: the table of a pass's positions, and the rotation of q and k by it. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"

enum { THREADS = 256 };

/* cosf and sinf, not their fast forms: angles reach 170000. */
static __global__ void rope_table(float *cs, int64_t ld, const float *positions, const float *inv_freq, float mscale, int half, int64_t total)
{
	int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
	if (i >= total)
		return;
	int64_t row = i / half;
	int t = (int)(i % half);
	float angle = positions[row] * inv_freq[t];
	cs[row * ld + t] = cosf(angle) * mscale;
	cs[row * ld + half + t] = sinf(angle) * mscale;
}

static __global__ void rope(float *x, int64_t ld, int heads, int half, const float *cs, int64_t cs_ld, int64_t total)
{
	int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
	if (i >= total)
		return;
	int t = (int)(i % half), head = (int)(i / half % heads);
	int64_t row = i / half / heads;
	float *at = x + row * ld + (int64_t)head * 2 * half + t;
	float c = cs[row * cs_ld + t], s = cs[row * cs_ld + half + t], a = at[0], b = at[half];
	at[0] = a * c - b * s;
	at[half] = b * c + a * s;
}

extern "C" cudaError_t kernel_rope_table(
	cudaStream_t s, float *cs, int64_t ld, const float *positions, const float *inv_freq, float mscale, int d, int64_t rows)
{
	int64_t total = rows * (d / 2);
	return klaunch(rope_table, blocks_for(total, THREADS), THREADS, 0, s, cs, ld, positions, inv_freq, mscale, d / 2, total);
}

extern "C" cudaError_t kernel_rope(cudaStream_t s, float *x, int64_t ld, int heads, int d, const float *cs, int64_t cs_ld, int64_t rows)
{
	int64_t total = rows * heads * (d / 2);
	return klaunch(rope, blocks_for(total, THREADS), THREADS, 0, s, x, ld, heads, d / 2, cs, cs_ld, total);
}
