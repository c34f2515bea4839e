/* rope.cu: rotary embedding: the table of a pass's positions, and what becomes of heads of q and k by it: norm and rotation. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"
#include "runners/device/cuda/ptx.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

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

/* One warp a head: norm, then rotation. A lane holds channels t and t + d/2 of every 32nd t. */
static __global__ void __launch_bounds__(THREADS) finish_heads(struct heads_job j)
{
	int64_t item = blockIdx.x * (int64_t)WARPS + (threadIdx.x >> 5), row = item / j.heads;
	int lane = threadIdx.x & 31, head = (int)(item % j.heads), half = j.d / 2;
	if (row >= j.rows) /* whole warps leave */
		return;
	bool query = head < j.q_heads;
	const float *w = query ? j.q_norm : j.k_norm, *cs = j.cs + row * j.cs_ld;
	float *x = j.x + row * j.ld + (int64_t)head * j.d, *pre = query && j.pre ? j.pre + row * j.pre_ld + (int64_t)head * j.d : NULL;
	float sum = 0, scale = 1;
	if (w) {
		for (int t = lane; t < half; t += 32)
			sum += x[t] * x[t] + x[half + t] * x[half + t];
		scale = 1 / sqrtf(warp_sum(sum) / (float)j.d + j.eps);
	}
	for (int t = lane; t < half; t += 32) {
		float a = x[t], b = x[half + t], c = cs[t], s = cs[half + t];
		if (w) {
			a = a * scale * w[t];
			b = b * scale * w[half + t];
		}
		if (pre) {
			pre[t] = a;
			pre[half + t] = b;
		}
		x[t] = a * c - b * s;
		x[half + t] = b * c + a * s;
	}
}

extern "C" cudaError_t kernel_rope_table(
	cudaStream_t s, float *cs, int64_t ld, const float *positions, const float *inv_freq, float mscale, int d, int64_t rows)
{
	int64_t total = rows * (d / 2);
	return klaunch(rope_table, blocks_for(total, THREADS), THREADS, 0, s, cs, ld, positions, inv_freq, mscale, d / 2, total);
}

extern "C" cudaError_t kernel_heads(cudaStream_t s, struct heads_job job)
{
	return klaunch(finish_heads, blocks_for(job.rows * job.heads, WARPS), THREADS, 0, s, job);
}
