/* pooling.cu: scores pooled along the keys and the heads of a group made one, in the CPU's order of operations (pooling.c), so with its bits. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"

enum { THREADS = 256 };

/* Pools value(t) around column j. */
template <class V> static __device__ __forceinline__ float pooled(const struct pool_job *p, int64_t j, V value)
{
	int64_t half = p->size / 2, from = j - half > 0 ? j - half : 0, to = j + half < p->cols - 1 ? j + half : p->cols - 1;
	if (p->average) {
		double sum = 0;
#pragma unroll 1
		for (int64_t t = from; t <= to; t++)
			sum += value(t);
		return (float)(sum / p->size);
	}
	float best = value(from);
#pragma unroll 1
	for (int64_t t = from + 1; t <= to; t++) {
		float v = value(t);
		if (v > best || v != v) /* NaN wins: it must be seen */
			best = v;
	}
	return best;
}

/* Makes value(h) of the group's heads one. */
template <class V> static __device__ __forceinline__ float joined(const struct pool_job *p, V value)
{
	float one = 0;
#pragma unroll 1
	for (int h = 0; h < p->g; h++) {
		float v = value(h);
		if (p->group_max)
			one = h == 0 || v > one || v != v ? v : one;
		else
			one += v / (float)p->g;
	}
	return one;
}

/* A thread a column; grid: columns x groups. FIRST: pooling before the group is made one. */
template <bool FIRST> static __global__ void __launch_bounds__(THREADS) pool(struct pool_job p)
{
	int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	const float *x = p.x + blockIdx.y * p.g * p.ld;
	if (j >= p.cols)
		return;
	float v;
	if (FIRST)
		v = joined(&p, [&](int h) { return pooled(&p, j, [&](int64_t t) { return x[h * p.ld + t] / p.divisor; }); });
	else
		v = pooled(&p, j, [&](int64_t t) { return joined(&p, [&](int h) { return x[h * p.ld + t] / p.divisor; }); });
	p.out[blockIdx.y * p.out_ld + j] = v;
}

extern "C" cudaError_t kernel_pool(cudaStream_t s, struct pool_job p)
{
	dim3 grid(blocks_for(p.cols, THREADS), (unsigned)p.groups);
	return p.pool_first ? klaunch(pool<true>, grid, THREADS, 0, s, p) : klaunch(pool<false>, grid, THREADS, 0, s, p);
}
