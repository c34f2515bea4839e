/* cache.cu: rows into caches of keys and values: new rows appended, kept rows gathered. Items (one a KV head of a sequence) stand in y. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"
#include "runners/device/cuda/ptx.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

static __device__ __forceinline__ void append_value(void *to, int64_t at, float v, bool is_bf16)
{
	if (is_bf16)
		((bf16 *)to)[at] = __float2bfloat16_rn(v);
	else
		((float *)to)[at] = v;
}

/* One warp a row. */
static __global__ void __launch_bounds__(THREADS, 2) append(const struct append_item *items, int64_t ld, int d, bool is_bf16)
{
	struct append_item a = items[blockIdx.y];
	int64_t row = blockIdx.x * (int64_t)WARPS + (threadIdx.x >> 5);
	if (row >= a.rows)
		return;
	for (int c = threadIdx.x & 31; c < d; c += 32) {
		append_value(a.to_k, row * d + c, a.k[row * ld + c], is_bf16);
		append_value(a.to_v, row * d + c, a.v[row * ld + c], is_bf16);
	}
}

/* One warp a row; T is the widest type that rows are whole numbers of. */
template <class T> static __global__ void __launch_bounds__(THREADS, 2) gather(const struct gather_item *items, int64_t words)
{
	struct gather_item a = items[blockIdx.y];
	int64_t row = blockIdx.x * (int64_t)WARPS + (threadIdx.x >> 5);
	if (row >= a.rows)
		return;
	int64_t from = a.index[row] * words, to = row * words;
	for (int64_t c = threadIdx.x & 31; c < words; c += 32) {
		((T *)a.to_k)[to + c] = ((const T *)a.k)[from + c];
		((T *)a.to_v)[to + c] = ((const T *)a.v)[from + c];
	}
}

extern "C" cudaError_t kernel_append(
	cudaStream_t s, const struct append_item *items, int n, int64_t most_rows, int64_t ld, int d, bool bf16)
{
	return klaunch(append, dim3(blocks_for(most_rows, WARPS), (unsigned)n), THREADS, 0, s, items, ld, d, bf16);
}

extern "C" cudaError_t kernel_gather(cudaStream_t s, const struct gather_item *items, int n, int64_t most_rows, int64_t row_bytes)
{
	dim3 grid(blocks_for(most_rows, WARPS), (unsigned)n);
	return row_bytes % 16 == 0 ? klaunch(gather<uint4>, grid, THREADS, 0, s, items, row_bytes / 16)
				   : klaunch(gather<uint16_t>, grid, THREADS, 0, s, items, row_bytes / 2);
}
