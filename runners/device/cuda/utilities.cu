/* utilities.cu: a small network over the entries of a cache, one of each KV head (LKV-T): out = b2 + w2 . silu(b1 + W1 (x - mean)), x = [key | value].
 *
 * A block takes 64 entries of one head through 32 hidden units at a time; the inputs stand in shared memory by steps of 32 channels. All sums run in one
 * fixed order, whatever the number of entries. fp32 on plain cores: with 32 units it is 2 % of a prefill's arithmetic or less, and reading the cache bounds it. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"

#include <cuda_bf16.h>

enum { ENTRIES = 64, CHANNELS = 32, UNITS = 32, THREADS = 128, EACH = 4 /* entries, and units, of a thread */, ACROSS = UNITS / EACH };

static __device__ float cached(const void *rows, int64_t at, bool bf16)
{
	return bf16 ? __bfloat162float(((const __nv_bfloat16 *)rows)[at]) : ((const float *)rows)[at];
}

/* Input c of entry i, its mean not yet taken away; a key is turned back by its position. */
static __device__ float input(const struct utility_job &j, int head, int64_t i, int c)
{
	const void *k = j.k[head], *v = j.k[j.heads + head];
	int half = j.d / 2;
	if (!j.key || c >= j.d)
		return cached(v, i * j.d + c - (j.key ? j.d : 0), j.bf16);
	if (!j.turns)
		return cached(k, i * j.d + c, j.bf16);
	const float *turn = j.turns + i * j.d;
	int t = c < half ? c : c - half;
	float a = cached(k, i * j.d + t, j.bf16), b = cached(k, i * j.d + t + half, j.bf16);
	return c < half ? a * turn[t] + b * turn[half + t] : b * turn[t] - a * turn[half + t];
}

static __global__ void __launch_bounds__(THREADS, 4) utilities(struct utility_job j)
{
	__shared__ float x[CHANNELS][ENTRIES + 1], w[CHANNELS][UNITS];
	int head = blockIdx.y, in = j.d * (j.key + j.value), entry = threadIdx.x / ACROSS * EACH, unit = threadIdx.x % ACROSS * EACH;
	int64_t first = (int64_t)blockIdx.x * ENTRIES, net = j.net0 + head;
	float u[EACH] = {};
	for (int h0 = 0; h0 < j.hid; h0 += UNITS) {
		float sum[EACH][EACH] = {};
		for (int c0 = 0; c0 < in; c0 += CHANNELS) {
			__syncthreads();
			for (int e = threadIdx.x; e < CHANNELS * ENTRIES; e += THREADS) {
				int c = c0 + e % CHANNELS;
				int64_t i = first + e / CHANNELS;
				x[e % CHANNELS][e / CHANNELS] = c < in && i < j.n ? input(j, head, i, c) - j.mean[net * in + c] : 0;
			}
			for (int e = threadIdx.x; e < CHANNELS * UNITS; e += THREADS) {
				int c = c0 + e / UNITS;
				w[e / UNITS][e % UNITS] = c < in ? j.w1[(net * in + c) * j.hid + h0 + e % UNITS] : 0;
			}
			__syncthreads();
			for (int c = 0; c < CHANNELS; c++)
				for (int a = 0; a < EACH; a++)
					for (int b = 0; b < EACH; b++)
						sum[a][b] += x[c][entry + a] * w[c][unit + b];
		}
		for (int a = 0; a < EACH; a++)
			for (int b = 0; b < EACH; b++) {
				int64_t at = net * j.hid + h0 + unit + b;
				float h = sum[a][b] + j.b1[at];
				u[a] += h / (1 + expf(-h)) * j.w2[at];
			}
	}
	for (int a = 0; a < EACH; a++) {
		for (int lane = 1; lane < ACROSS; lane *= 2)
			u[a] += __shfl_xor_sync(0xffffffff, u[a], lane);
		if (unit == 0 && first + entry + a < j.n)
			j.out[head * j.n + first + entry + a] = u[a] + j.b2[net];
	}
}

extern "C" cudaError_t kernel_utilities(cudaStream_t s, struct utility_job job)
{
	return klaunch(utilities, dim3(blocks_for(job.n, ENTRIES), (unsigned)job.heads), THREADS, 0, s, job);
}
