/* norm.cu: RMSNorm of rows, in fp32. The sum of squares is added in one fixed order: strided by thread, then a tree. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"
#include "runners/device/cuda/ptx.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

static __device__ __forceinline__ float block_sum(float v)
{
	__shared__ float part[WARPS];
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	v = warp_sum(v);
	if (lane == 0)
		part[warp] = v;
	__syncthreads();
	float sum = 0;
#pragma unroll
	for (int i = 0; i < WARPS; i++)
		sum += part[i];
	return sum;
}

/* One block a row. */
static __global__ void __launch_bounds__(THREADS) rmsnorm(struct rows out, const float *x, int64_t x_ld, const float *w, int64_t n, float eps)
{
	const float *in = x + blockIdx.x * x_ld;
	float sum = 0;
	for (int64_t i = threadIdx.x; i < n; i += THREADS)
		sum += in[i] * in[i];
	float scale = 1 / sqrtf(block_sum(sum) / (float)n + eps);
	int64_t at = blockIdx.x * out.ld;
	for (int64_t i = threadIdx.x; i < n; i += THREADS) {
		float y = in[i] * scale * w[i];
		if (out.bf16)
			((bf16 *)out.x)[at + i] = __float2bfloat16_rn(y);
		else
			((float *)out.x)[at + i] = y;
	}
}

extern "C" cudaError_t kernel_rmsnorm(
	cudaStream_t s, struct rows out, const float *x, int64_t x_ld, const float *w, int64_t n, float eps, int64_t rows)
{
	return klaunch(rmsnorm, (unsigned)rows, THREADS, 0, s, out, x, x_ld, w, n, eps);
}
