/* copy.cu: fills and gathers of rows, and the question whether there are kernels for this GPU at all. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"

enum { THREADS = 256 };

static __global__ void fill(float *x, int64_t n, float value)
{
	int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
	if (i < n)
		x[i] = value;
}

/* One block a row; ld and n in 32-bit words. */
static __global__ void gather_rows(uint32_t *out, int64_t out_ld, const uint32_t *x, int64_t ld, const int32_t *index, int64_t n)
{
	int64_t row = blockIdx.x, from = index[row];
	for (int64_t i = threadIdx.x; i < n; i += THREADS)
		out[row * out_ld + i] = x[from * ld + i];
}

extern "C" cudaError_t kernel_there(void)
{
	struct cudaFuncAttributes a;
	return cudaFuncGetAttributes(&a, (const void *)fill);
}

extern "C" cudaError_t kernel_fill(cudaStream_t s, float *x, int64_t n, float value)
{
	return klaunch(fill, blocks_for(n, THREADS), THREADS, 0, s, x, n, value);
}

extern "C" cudaError_t kernel_gather_rows(
	cudaStream_t s, void *out, int64_t out_bytes, const void *x, int64_t x_bytes, const int32_t *index, int64_t n, int64_t bytes)
{
	return klaunch(gather_rows, (unsigned)n, THREADS, 0, s, (uint32_t *)out, out_bytes / 4, (const uint32_t *)x, x_bytes / 4, index, bytes / 4);
}
