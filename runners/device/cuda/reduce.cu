/* reduce.cu: attention probabilities reduced over queries, by tensor cores over bf16 caches: columns sums and maxima for H2O, SnapKV, KVzip and
 * ProxyKV, with the row log-sum-exp that attention left behind. No rows x keys buffer.
 *
 * A block owns BM key columns of one KV head (of one query head where heads stay apart) and walks over the queries, BQ at a time: keys are the rows of
 * the product and queries its columns, so that sums over queries stay in registers until the end. */
#include "runners/device/cuda/attend.cuh"
#include "runners/device/cuda/klaunch.cuh"

enum { WARPS = 4, THREADS = WARPS * 32, NONE = 0, MEAN = 1, LARGEST = 2 /* enum attn_group */ };

template <int DP, int MT, int BQ> struct reduce_tile {
	static const int BM = WARPS * MT * 16, LD = padded<DP>::LD;
	static const size_t BYTES = sizeof(bf16) * LD * (BM + 2 * BQ) + sizeof(float) * 2 * BQ;
};

/* Queries [i0, i0 + BQ) of one head and their lse. */
template <int DP, int BQ>
static __device__ __forceinline__ void load_step(bf16 *qs, float *ls, const struct reduce_job *j, int head, int64_t i0)
{
	const bf16 *q = (const bf16 *)j->q + (int64_t)head * j->rows * DP;
	struct key_tile t = {0, i0, j->rows};
	load_tile<DP, BQ, THREADS>(qs, q, NULL, t, DP, threadIdx.x);
	for (int i = threadIdx.x; i < BQ; i += THREADS)
		ls[i] = i0 + i < j->rows ? j->lse[(i0 + i) * j->lse_ld + head] : 0;
	copies_commit();
}

/* GROUP: enum attn_group, counted as above; PER_QUERY: the largest over the group is taken for each query before the sum over queries. */
template <int DP, int MT, int BQ, bool PER_QUERY>
static __global__ void __launch_bounds__(THREADS) reduce(struct reduce_job j)
{
	typedef reduce_tile<DP, MT, BQ> T;
	extern __shared__ __align__(16) unsigned char smem_raw[];
	bf16 *ks = (bf16 *)smem_raw, *qs = ks + T::BM * T::LD;
	float *ls = (float *)(qs + 2 * BQ * T::LD);
	bool apart = j.group == NONE;
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	int kv_head = apart ? blockIdx.y / j.g : blockIdx.y, head0 = apart ? blockIdx.y : kv_head * j.g, heads = apart ? 1 : j.g;
	int64_t c0 = (int64_t)blockIdx.x * T::BM, mine = c0 + warp * MT * 16;
	struct key_tile t = {0, c0, j.cols};
	load_tile<DP, T::BM, THREADS>(ks, (const bf16 *)j.k[kv_head], NULL, t, j.d, threadIdx.x);
	/* the first query that sees column c0 */
	int64_t first = j.causal && c0 >= j.seen ? c0 - j.seen + 1 : 0, last = j.causal || c0 < j.seen ? j.rows : 0;
	int64_t i0 = first / BQ * BQ;
	float total[MT][2], share = j.group == MEAN ? 1 / (float)j.g : 1, scale2 = j.scale * LOG2E;
#pragma unroll
	for (int m = 0; m < MT; m++)
		total[m][0] = total[m][1] = 0;
	if (i0 < last)
		load_step<DP, BQ>(qs, ls, &j, head0, i0);
	else
		copies_commit();
	int stage = 0;
	for (; i0 < last; i0 += BQ) {
		float s[MT][BQ / 8][4], most[PER_QUERY ? MT : 1][PER_QUERY ? BQ / 8 : 1][4];
		for (int h = 0; h < heads; h++, stage ^= 1) {
			int64_t next = h + 1 < heads ? i0 : i0 + BQ;
			if (next < last)
				load_step<DP, BQ>(qs + (stage ^ 1) * BQ * T::LD, ls + (stage ^ 1) * BQ, &j, head0 + (h + 1 < heads ? h + 1 : 0), next);
			else
				copies_commit();
			copies_wait<1>();
			__syncthreads(); /* this stage (at first K too) is there */
			if (mine < j.cols) {
				multiply_tiles<DP, MT, BQ>(s, ks + warp * MT * 16 * T::LD, qs + stage * BQ * T::LD, lane);
#pragma unroll
				for (int m = 0; m < MT; m++)
#pragma unroll
					for (int n = 0; n < BQ / 8; n++)
#pragma unroll
						for (int e = 0; e < 4; e++) { /* key g + 8 (e >> 1), query 2 t + (e & 1) */
							int q = n * 8 + 2 * (lane & 3) + (e & 1);
							int64_t col = mine + m * 16 + (e >> 1) * 8 + (lane >> 2), i = i0 + q;
							bool sees = i < j.rows && col < j.seen + (j.causal ? i : 0);
							float p = sees ? exp2f(s[m][n][e] * scale2 - ls[stage * BQ + q] * LOG2E) * share : 0;
							if (PER_QUERY) {
								float *b = &most[PER_QUERY ? m : 0][PER_QUERY ? n : 0][e];
								*b = h == 0 || p > *b ? (h == 0 && !(p > 0) ? 0 : p) : *b;
								if (h + 1 == heads)
									total[m][e >> 1] += *b;
							} else if (j.max)
								total[m][e >> 1] = p > total[m][e >> 1] ? p : total[m][e >> 1];
							else
								total[m][e >> 1] += p;
						}
			}
			__syncthreads(); /* nobody reads this stage any more */
		}
	}
#pragma unroll
	for (int m = 0; m < MT; m++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			float v = j.max ? quad_max(total[m][r]) : quad_sum(total[m][r]);
			int64_t col = mine + m * 16 + r * 8 + (lane >> 2);
			if ((lane & 3) || col >= j.cols)
				continue;
			float *to = j.out + (int64_t)blockIdx.y * j.out_ld + col;
			*to = !j.max ? *to + v : v > *to ? v : *to;
		}
}

template <int DP, int MT, int BQ> static cudaError_t run(cudaStream_t s, struct reduce_job j)
{
	typedef reduce_tile<DP, MT, BQ> T;
	dim3 grid(blocks_for(j.cols, T::BM), (unsigned)(j.group == NONE ? j.kv_heads * j.g : j.kv_heads));
	return j.group == LARGEST && !j.max ? klaunch(reduce<DP, MT, BQ, true>, grid, THREADS, T::BYTES, s, j)
				      : klaunch(reduce<DP, MT, BQ, false>, grid, THREADS, T::BYTES, s, j);
}

extern "C" cudaError_t kernel_reduce(cudaStream_t s, struct reduce_job j)
{
	switch (attend_d_pad(j.d)) {
	case 32:
		return run<32, 2, 64>(s, j);
	case 64:
		return run<64, 2, 64>(s, j);
	case 128:
		return run<128, 2, 64>(s, j);
	default:
		return run<256, 1, 32>(s, j);
	}
}

/* One block a (row, head). */
static __global__ void pack_queries(bf16 *out, int d_pad, const float *x, int64_t ld, int d, int64_t rows)
{
	int64_t row = blockIdx.x, head = blockIdx.y;
	for (int c = threadIdx.x; c < d_pad; c += blockDim.x)
		out[(head * rows + row) * d_pad + c] = __float2bfloat16_rn(c < d ? x[row * ld + head * d + c] : 0);
}

extern "C" cudaError_t kernel_pack_queries(cudaStream_t s, void *out, int d_pad, const float *x, int64_t ld, int heads, int d, int64_t rows)
{
	return klaunch(pack_queries, dim3((unsigned)rows, (unsigned)heads), d_pad < 128 ? d_pad : 128, 0, s, (bf16 *)out, d_pad, x, ld, d, rows);
}
