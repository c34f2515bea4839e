/* reduce_plain.cu: attention probabilities reduced over queries, over fp32 caches (precision fp32, for comparison with the CPU): one lane a key column, queries
 * and heads in ascending order, so that sums are added as the CPU adds them. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"

enum { THREADS = 64 };

static __device__ __forceinline__ float probability(const struct reduce_job *j, const float *k, int head, int64_t i)
{
	const float *q = (const float *)j->q + i * j->q_ld + (int64_t)head * j->d;
	float sum = 0;
	for (int c = 0; c < j->d; c++)
		sum += q[c] * k[c];
	return expf(sum * j->scale - j->lse[i * j->lse_ld + head]);
}

static __global__ void __launch_bounds__(THREADS) reduce_plain(struct reduce_job j)
{
	bool apart = j.group == 0;
	int kv_head = apart ? blockIdx.y / j.g : blockIdx.y, head0 = apart ? blockIdx.y : kv_head * j.g, heads = apart ? 1 : j.g;
	int64_t col = blockIdx.x * (int64_t)THREADS + threadIdx.x;
	if (col >= j.cols)
		return;
	const float *k = (const float *)j.k[kv_head] + col * j.d;
	float *out = j.out + (int64_t)blockIdx.y * j.out_ld + col, total = *out;
	for (int64_t i = 0; i < j.rows; i++) {
		if (col >= j.seen + (j.causal ? i : 0))
			continue;
		float most = 0;
		for (int h = 0; h < heads; h++) {
			float p = probability(&j, k, head0 + h, i);
			if (j.group == 2)
				most = p > most ? p : most;
			else if (j.max)
				total = p > total ? p : total;
			else
				total += j.group == 1 ? p / (float)j.g : p;
		}
		if (j.group == 2)
			total = !j.max ? total + most : most > total ? most : total;
	}
	*out = total;
}

extern "C" cudaError_t kernel_reduce_plain(cudaStream_t s, struct reduce_job j)
{
	dim3 grid(blocks_for(j.cols, THREADS), (unsigned)(j.group == 0 ? j.kv_heads * j.g : j.kv_heads));
	return klaunch(reduce_plain, grid, THREADS, 0, s, j);
}
