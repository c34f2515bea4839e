/* embed.cu: rows of the embedding table. One block a token. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"
#include "runners/device/cuda/ptx.cuh"

enum { THREADS = 128 };

static __global__ void embed(float *out, int64_t out_ld, const void *table, bool is_bf16, int64_t ld, const int32_t *ids, int64_t n)
{
	int64_t row = blockIdx.x, from = (int64_t)ids[row] * ld;
	for (int64_t i = threadIdx.x; i < n; i += THREADS)
		out[row * out_ld + i] = is_bf16 ? __bfloat162float(((const bf16 *)table)[from + i]) : ((const float *)table)[from + i];
}

extern "C" cudaError_t kernel_embed(cudaStream_t s, float *out, int64_t out_ld, struct rows table, const int32_t *ids, int64_t n, int64_t rows)
{
	return klaunch(embed, (unsigned)rows, THREADS, 0, s, out, out_ld, (const void *)table.x, table.bf16, table.ld, ids, n);
}
