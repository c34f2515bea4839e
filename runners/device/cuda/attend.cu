/* attend.cu: attention of many rows over bf16 caches by tensor cores (mma.sync), for any GPU from sm_80 on.
 *
 * A block owns BM rows (query x head of the group, so that the group shares every key) and walks over all keys they see, BN at a time, with the
 * online softmax; K of the next block is under way during softmax and P V, V during Q K. Nothing of size rows x keys exists. P is rounded to
 * bf16 for P V; sums, maxima and the log-sum-exp are fp32. Tiles with the most keys start first. */
#include "runners/device/cuda/attend.cuh"
#include "runners/device/cuda/klaunch.cuh"

enum { WARPS = 4, THREADS = WARPS * 32 };

template <int DP, int MT, int BN> struct attend_tile {
	static const int BM = WARPS * MT * 16, LD = padded<DP>::LD;
	static const size_t BYTES = sizeof(bf16) * LD * (BM + 2 * BN);
};

/* Q of rows [m0, m0 + BM), rounded to bf16; zeros outside. */
template <int DP, int BM>
static __device__ __forceinline__ void load_queries(bf16 *to, const struct attend_item *a, struct attend_shape shape, int64_t m0, int64_t rows)
{
	for (int i = threadIdx.x; i < BM * (DP / 2); i += THREADS) {
		int r = i / (DP / 2), c = i % (DP / 2) * 2;
		int64_t m = m0 + r;
		const float *q = a->q + m / shape.g * shape.q_ld + m % shape.g * shape.d;
		float x = m < rows && c < shape.d ? q[c] : 0, y = m < rows && c + 1 < shape.d ? q[c + 1] : 0;
		*(uint32_t *)&to[r * padded<DP>::LD + c] = pack_bf16(x, y);
	}
}

/* O += P V. */
template <int DP, int MT, int BN>
static __device__ __forceinline__ void multiply_pv(float o[MT][DP / 8][4], float p[MT][BN / 8][4], const bf16 *vs, int lane)
{
	const int LD = padded<DP>::LD;
#pragma unroll
	for (int k = 0; k < BN / 16; k++) {
		uint32_t a[MT][4];
#pragma unroll
		for (int m = 0; m < MT; m++) {
			a[m][0] = pack_bf16(p[m][2 * k][0], p[m][2 * k][1]);
			a[m][1] = pack_bf16(p[m][2 * k][2], p[m][2 * k][3]);
			a[m][2] = pack_bf16(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
			a[m][3] = pack_bf16(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
		}
#pragma unroll
		for (int n = 0; n < DP / 16; n++) {
			uint32_t b[4];
			ldmatrix4_transposed(b, &vs[(k * 16 + (lane & 15)) * LD + n * 16 + (lane >> 4) * 8]);
#pragma unroll
			for (int m = 0; m < MT; m++) {
				mma_bf16(o[m][2 * n], a[m], b);
				mma_bf16(o[m][2 * n + 1], a[m], b + 2);
			}
		}
	}
}

/* Rows of 16: S becomes P; maxima, sums and O follow. limit: keys of the tile that each row sees; edge: some row sees not all BN. */
template <int DP, int MT, int BN>
static __device__ __forceinline__ void softmax_step(float s[MT][BN / 8][4], float o[MT][DP / 8][4], float most[MT][2], float sum[MT][2],
	const int64_t limit[MT][2], bool edge, float scale2, int lane)
{
#pragma unroll
	for (int m = 0; m < MT; m++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			float top = most[m][r];
#pragma unroll
			for (int n = 0; n < BN / 8; n++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					float *x = &s[m][n][2 * r + e];
					if (edge && n * 8 + 2 * (lane & 3) + e >= limit[m][r])
						*x = -INFINITY;
					top = fmaxf(top, *x);
				}
			top = quad_max(top);
			float base = top == -INFINITY ? 0 : top * scale2, shrink = exp2f(most[m][r] * scale2 - base), add = 0;
			most[m][r] = top;
#pragma unroll
			for (int n = 0; n < BN / 8; n++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					float p = exp2f(s[m][n][2 * r + e] * scale2 - base);
					s[m][n][2 * r + e] = p;
					add += p;
				}
			sum[m][r] = sum[m][r] * shrink + add;
#pragma unroll
			for (int n = 0; n < DP / 8; n++) {
				o[m][n][2 * r] *= shrink;
				o[m][n][2 * r + 1] *= shrink;
			}
		}
}

template <int DP, int MT, int BN>
static __global__ void __launch_bounds__(THREADS) attend(const struct attend_item *items, struct attend_shape shape)
{
	typedef attend_tile<DP, MT, BN> T;
	extern __shared__ __align__(16) unsigned char smem_raw[];
	bf16 *qs = (bf16 *)smem_raw, *ks = qs + T::BM * T::LD, *vs = ks + BN * T::LD;
	const struct attend_item *a = &items[blockIdx.y];
	int64_t rows = a->queries * shape.g, tiles = (rows + T::BM - 1) / T::BM, m0 = (tiles - 1 - blockIdx.x) * T::BM;
	if (m0 < 0)
		return;
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	int64_t wm = m0 + warp * MT * 16, last_query = (m0 + T::BM - 1 < rows ? m0 + T::BM - 1 : rows - 1) / shape.g;
	int64_t first_query = wm / shape.g, warp_last = (wm + MT * 16 - 1 < rows ? wm + MT * 16 - 1 : rows - 1) / shape.g;
	float o[MT][DP / 8][4], most[MT][2], sum[MT][2];
#pragma unroll
	for (int m = 0; m < MT; m++) {
		most[m][0] = most[m][1] = -INFINITY;
		sum[m][0] = sum[m][1] = 0;
#pragma unroll
		for (int n = 0; n < DP / 8; n++)
			o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0;
	}
	struct key_tile t = {0, 0, segment_end(a, 0, last_query)};
	tile_settle(a, &t, last_query);
	load_queries<DP, T::BM>(qs, a, shape, m0, rows);
	if (tile_there(a, &t))
		load_tile<DP, BN, THREADS>(ks, (const bf16 *)a->seg[t.seg].k, a->seg[t.seg].index, t, shape.d, threadIdx.x);
	copies_commit();
	bool values = a->out != NULL;
	while (tile_there(a, &t)) {
		copies_wait<0>();
		__syncthreads(); /* K is there (at first Q too); nobody reads V any more */
		if (values)
			load_tile<DP, BN, THREADS>(vs, (const bf16 *)a->seg[t.seg].v, a->seg[t.seg].index, t, shape.d, threadIdx.x);
		copies_commit();
		bool last = t.seg == a->n_seg - 1;
		int64_t whole = last && a->causal ? a->seen + first_query : t.end; /* keys that all rows of the warp see */
		int64_t some = last && a->causal ? a->seen + warp_last : t.end;
		bool works = wm < rows && t.pos < some && t.pos < t.end;
		float s[MT][BN / 8][4];
		if (works)
			multiply_tiles<DP, MT, BN>(s, qs + warp * MT * 16 * T::LD, ks, lane);
		copies_wait<0>();
		__syncthreads(); /* V is there; nobody reads K any more */
		struct key_tile next = t;
		next.pos += BN;
		tile_settle(a, &next, last_query);
		if (tile_there(a, &next))
			load_tile<DP, BN, THREADS>(
				ks, (const bf16 *)a->seg[next.seg].k, a->seg[next.seg].index, next, shape.d, threadIdx.x);
		copies_commit();
		if (works) {
			int64_t limit[MT][2];
#pragma unroll
			for (int m = 0; m < MT; m++)
#pragma unroll
				for (int r = 0; r < 2; r++) {
					int64_t row = wm + m * 16 + r * 8 + (lane >> 2), seen = t.end;
					if (last && a->causal && a->seen + row / shape.g < seen)
						seen = a->seen + row / shape.g;
					limit[m][r] = seen - t.pos;
				}
			bool edge = whole < t.pos + BN || t.end < t.pos + BN;
			softmax_step<DP, MT, BN>(s, o, most, sum, limit, edge, shape.scale * LOG2E, lane);
			if (values)
				multiply_pv<DP, MT, BN>(o, s, vs, lane);
		}
		t = next;
	}
#pragma unroll
	for (int m = 0; m < MT; m++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			int64_t row = wm + m * 16 + r * 8 + (lane >> 2), query = row / shape.g, head = row % shape.g;
			float total = quad_sum(sum[m][r]);
			if (row >= rows)
				continue;
			if (values)
#pragma unroll
				for (int n = 0; n < DP / 8; n++)
					store_pair(a->out, shape.out_bf16, query * shape.out_ld + head * shape.d, o[m][n][2 * r] / total,
						o[m][n][2 * r + 1] / total, n * 8 + 2 * (lane & 3), shape.d);
			if (a->lse && (lane & 3) == 0)
				a->lse[query * shape.lse_ld + head] = (most[m][r] == -INFINITY ? 0 : most[m][r] * shape.scale) + logf(total);
		}
}

template <int DP, int MT, int BN>
static cudaError_t run(cudaStream_t s, const struct attend_item *items, int n, int64_t most_rows, struct attend_shape shape)
{
	typedef attend_tile<DP, MT, BN> T;
	return klaunch(attend<DP, MT, BN>, dim3(blocks_for(most_rows, T::BM), (unsigned)n), THREADS, T::BYTES, s, items, shape);
}

extern "C" int attend_d_pad(int d)
{
	return d <= 32 ? 32 : d <= 64 ? 64 : d <= 128 ? 128 : 256;
}

extern "C" cudaError_t kernel_attend(cudaStream_t s, const struct attend_item *items, int n, int64_t most_rows, struct attend_shape shape)
{
	switch (attend_d_pad(shape.d)) {
	case 32:
		return run<32, 2, 64>(s, items, n, most_rows, shape);
	case 64:
		return run<64, 2, 64>(s, items, n, most_rows, shape);
	case 128:
		return run<128, 2, 32>(s, items, n, most_rows, shape);
	default:
		return run<256, 1, 32>(s, items, n, most_rows, shape);
	}
}
