/* argmax.cu: the greedy token of each row of logits: largest value, lowest index on ties, -1 when a NaN is among them. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"
#include "runners/device/cuda/ptx.cuh"

enum { THREADS = 512, WARPS = THREADS / 32 };

struct best {
	float value;
	int32_t index; /* -1 = a NaN was met */
};

static __device__ __forceinline__ struct best better(struct best a, struct best b)
{
	bool take = a.index >= 0 && (b.index < 0 || b.value > a.value || (b.value == a.value && b.index < a.index));
	return take ? b : a;
}

/* One block a row. */
static __global__ void __launch_bounds__(THREADS) argmax(int32_t *out, const float *x, int64_t ld, int64_t cols)
{
	__shared__ float value[WARPS];
	__shared__ int32_t index[WARPS];
	const float *row = x + blockIdx.x * ld;
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	struct best b = {row[0], row[0] != row[0] ? -1 : 0};
	for (int64_t i = threadIdx.x; i < cols; i += THREADS) {
		struct best c = {row[i], row[i] != row[i] ? -1 : (int32_t)i};
		b = better(b, c);
	}
#pragma unroll
	for (int o = 16; o; o >>= 1) {
		struct best c = {__shfl_xor_sync(ALL_LANES, b.value, o), __shfl_xor_sync(ALL_LANES, b.index, o)};
		b = better(b, c);
	}
	if (lane == 0) {
		value[warp] = b.value;
		index[warp] = b.index;
	}
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	for (int w = 1; w < WARPS; w++) {
		struct best c = {value[w], index[w]};
		b = better(b, c);
	}
	out[blockIdx.x] = b.index;
}

extern "C" cudaError_t kernel_argmax(cudaStream_t s, int32_t *out, const float *x, int64_t ld, int64_t cols, int64_t rows)
{
	return klaunch(argmax, (unsigned)rows, THREADS, 0, s, out, x, ld, cols);
}
