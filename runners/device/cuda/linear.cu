/* linear.cu: what stands before and behind cuBLAS in a linear layer: operands rounded and padded, bias and residual, SwiGLU. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"
#include "runners/device/cuda/ptx.cuh"

enum { THREADS = 256, TURN = 16 /* gate and up columns stand by turns of so many */ };

static __device__ __forceinline__ float load(struct rows r, int64_t at)
{
	return r.bf16 ? __bfloat162float(((const bf16 *)r.x)[at]) : ((const float *)r.x)[at];
}
static __device__ __forceinline__ void store(struct rows r, int64_t at, float v)
{
	if (r.bf16)
		((bf16 *)r.x)[at] = __float2bfloat16_rn(v);
	else
		((float *)r.x)[at] = v;
}

static __global__ void linear_in(struct rows out, struct rows x, int64_t k, int64_t rows, int64_t total)
{
	int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
	if (i >= total)
		return;
	int64_t row = i / out.ld, col = i % out.ld;
	store(out, i, row < rows && col < k ? load(x, row * x.ld + col) : 0);
}

static __global__ void linear_out(
	float *out, int64_t ld, const float *y, int64_t y_ld, const float *bias, bool add, int64_t cols, int64_t total)
{
	int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
	if (i >= total)
		return;
	int64_t row = i / cols, col = i % cols;
	float v = y[row * y_ld + col], *to = out + row * ld + col;
	if (bias)
		v += bias[col];
	*to = add ? *to + v : v;
}

static __global__ void swiglu(struct rows out, const float *y, int64_t y_ld, int64_t f, int64_t total)
{
	int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
	if (i >= total)
		return;
	int64_t row = i / f, col = i % f;
	const float *at = y + row * y_ld + col / TURN * 2 * TURN + col % TURN;
	float gate = at[0], up = at[TURN];
	store(out, row * out.ld + col, gate / (1 + expf(-gate)) * up);
}

extern "C" cudaError_t kernel_linear_in(cudaStream_t s, struct rows out, int64_t all_rows, struct rows x, int64_t k, int64_t rows)
{
	int64_t total = all_rows * out.ld;
	return klaunch(linear_in, blocks_for(total, THREADS), THREADS, 0, s, out, x, k, rows, total);
}

extern "C" cudaError_t kernel_linear_out(
	cudaStream_t s, float *out, int64_t ld, const float *y, int64_t y_ld, const float *bias, bool add, int64_t cols, int64_t rows)
{
	int64_t total = rows * cols;
	return klaunch(linear_out, blocks_for(total, THREADS), THREADS, 0, s, out, ld, y, y_ld, bias, add, cols, total);
}

extern "C" cudaError_t kernel_swiglu(cudaStream_t s, struct rows out, const float *y, int64_t y_ld, int64_t f, int64_t rows)
{
	int64_t total = rows * f;
	return klaunch(swiglu, blocks_for(total, THREADS), THREADS, 0, s, out, y, y_ld, f, total);
}
