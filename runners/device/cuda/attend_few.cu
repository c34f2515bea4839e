/* attend_few.cu: attention of a few rows (decoding) over bf16 caches: bound by reading K and V, so the keys of a sequence are cut into parts that blocks
 * read side by side, and a second kernel merges the parts in ascending order. How a sequence is cut depends on its own keys alone, so its
 * bits do not depend on the batch.
 *
 * In a block each warp takes 16 keys of every 16 * W and keeps its own softmax and its own pipeline of loads; at the end the
 * warps' results are merged in ascending order. The 16 rows of a tile are query x head of the group. */
#include "runners/device/cuda/attend.cuh"
#include "runners/device/cuda/klaunch.cuh"

enum { STAGES = 2, KEYS = 16 /* of a warp's step */, ROWS = ATTEND_FEW };

template <int DP, int W> struct few_tile {
	static const int LD = padded<DP>::LD, STAGE = 2 * KEYS * LD; /* K and V of one step, in elements */
	static const size_t PIPE = sizeof(bf16) * W * STAGES * STAGE, MERGE = sizeof(float) * W * ROWS * (DP + 2);
	static const size_t BYTES = PIPE > MERGE ? PIPE : MERGE;
};

/* Which keys part p of an item is. */
static __device__ __forceinline__ struct key_tile part_keys(const struct attend_item *a, int p)
{
	struct key_tile t = {0, 0, 0};
	for (; t.seg < a->n_seg; t.seg++) {
		int64_t end = segment_end(a, t.seg, a->queries - 1), parts = (end + a->part_keys - 1) / a->part_keys;
		if (p < parts) {
			t.pos = (int64_t)p * a->part_keys;
			t.end = t.pos + a->part_keys < end ? t.pos + a->part_keys : end;
			return t;
		}
		p -= (int)parts;
	}
	return t;
}

/* The Q fragments of the item's rows, straight from memory. */
template <int DP>
static __device__ __forceinline__ void load_fragments(uint32_t q[DP / 16][4], const struct attend_item *a, struct attend_shape shape, int lane)
{
	int rows = (int)a->queries * shape.g;
#pragma unroll
	for (int kk = 0; kk < DP / 16; kk++)
#pragma unroll
		for (int i = 0; i < 4; i++) { /* rows g, g+8; columns 2t, 2t+8 */
			int m = (lane >> 2) + (i & 1) * 8, c = kk * 16 + (i >> 1) * 8 + 2 * (lane & 3);
			const float *x = a->q + m / shape.g * shape.q_ld + m % shape.g * shape.d;
			q[kk][i] = pack_bf16(m < rows && c < shape.d ? x[c] : 0, m < rows && c + 1 < shape.d ? x[c + 1] : 0);
		}
}

template <int DP>
static __device__ __forceinline__ void load_step(bf16 *to, const struct key_segment *g, struct key_tile t, int d, bool values, int lane)
{
	load_tile<DP, KEYS, 32>(to, (const bf16 *)g->k, g->index, t, d, lane);
	if (values)
		load_tile<DP, KEYS, 32>(to + KEYS * padded<DP>::LD, (const bf16 *)g->v, g->index, t, d, lane);
	copies_commit();
}

/* One step of a warp: 16 keys. limit: keys of the step that rows g and g + 8 see. */
template <int DP>
static __device__ __forceinline__ void few_step(float o[DP / 8][4], float most[2], float sum[2], const uint32_t q[DP / 16][4], const bf16 *ks,
	const int64_t limit[2], float scale2, bool values, int lane)
{
	const int LD = padded<DP>::LD;
	float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
	for (int kk = 0; kk < DP / 16; kk++) {
		uint32_t b[4];
		ldmatrix4(b, &ks[((lane >> 4) * 8 + (lane & 7)) * LD + kk * 16 + (lane >> 3 & 1) * 8]);
		mma_bf16(s[0], q[kk], b);
		mma_bf16(s[1], q[kk], b + 2);
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float top = most[r];
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float *x = &s[i >> 1][2 * r + (i & 1)];
			if ((i >> 1) * 8 + 2 * (lane & 3) + (i & 1) >= limit[r])
				*x = -INFINITY;
			top = fmaxf(top, *x);
		}
		top = quad_max(top);
		float base = top == -INFINITY ? 0 : top * scale2, shrink = exp2f(most[r] * scale2 - base), add = 0;
		most[r] = top;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float *x = &s[i >> 1][2 * r + (i & 1)];
			*x = exp2f(*x * scale2 - base);
			add += *x;
		}
		sum[r] = sum[r] * shrink + add;
#pragma unroll
		for (int n = 0; n < DP / 8; n++) {
			o[n][2 * r] *= shrink;
			o[n][2 * r + 1] *= shrink;
		}
	}
	if (!values)
		return;
	uint32_t p[4] = {pack_bf16(s[0][0], s[0][1]), pack_bf16(s[0][2], s[0][3]), pack_bf16(s[1][0], s[1][1]), pack_bf16(s[1][2], s[1][3])};
#pragma unroll
	for (int n = 0; n < DP / 16; n++) {
		uint32_t b[4];
		ldmatrix4_transposed(b, &ks[(KEYS + (lane & 15)) * LD + n * 16 + (lane >> 4) * 8]);
		mma_bf16(o[2 * n], p, b);
		mma_bf16(o[2 * n + 1], p, b + 2);
	}
}

/* Results of n sets [n][rows][width + 2] (sums, then maximum and sum of p) merged in ascending order: one element. */
static __device__ __forceinline__ float merged(const float *set, int64_t stride, int n, int width, int c, float scale2, float *most, float *sum)
{
	float top = -INFINITY, total = 0, value = 0;
	for (int i = 0; i < n; i++)
		top = fmaxf(top, set[i * stride + width]);
	float base = top == -INFINITY ? 0 : top * scale2;
	for (int i = 0; i < n; i++) {
		float w = exp2f(set[i * stride + width] * scale2 - base);
		total += set[i * stride + width + 1] * w;
		value += set[i * stride + c] * w;
	}
	*most = top;
	*sum = total;
	return value;
}

static __device__ __forceinline__ void store_row(
	const struct attend_item *a, struct attend_shape shape, int m, int c, float value, float most, float sum)
{
	int query = m / shape.g, head = m % shape.g;
	int64_t at = query * shape.out_ld + head * shape.d + c;
	if (a->out && shape.out_bf16)
		((bf16 *)a->out)[at] = __float2bfloat16_rn(value / sum);
	else if (a->out)
		((float *)a->out)[at] = value / sum;
	if (a->lse && c == 0)
		a->lse[query * shape.lse_ld + head] = (most == -INFINITY ? 0 : most * shape.scale) + logf(sum);
}

/* Grid: parts x items. */
template <int DP, int W>
static __global__ void __launch_bounds__(W * 32) attend_few(const struct attend_item *items, struct attend_shape shape)
{
	typedef few_tile<DP, W> T;
	extern __shared__ __align__(16) unsigned char smem_raw[];
	const struct attend_item *a = &items[blockIdx.y];
	if ((int)blockIdx.x >= a->n_parts)
		return;
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rows = (int)a->queries * shape.g;
	bf16 *pipe = (bf16 *)smem_raw + warp * STAGES * T::STAGE;
	bool values = a->out != NULL;
	float o[DP / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, scale2 = shape.scale * LOG2E;
	uint32_t q[DP / 16][4];
#pragma unroll
	for (int n = 0; n < DP / 8; n++)
		o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
	load_fragments<DP>(q, a, shape, lane);
	struct key_tile t = part_keys(a, blockIdx.x);
	const struct key_segment *g = &a->seg[t.seg < a->n_seg ? t.seg : 0];
	bool causal = a->causal && t.seg == a->n_seg - 1;
	t.pos += warp * KEYS;
	struct key_tile ahead = t;
	load_step<DP>(pipe, g, ahead, shape.d, values, lane);
	for (int stage = 0; t.pos < t.end; t.pos += W * KEYS, stage ^= 1) {
		ahead.pos += W * KEYS;
		load_step<DP>(pipe + (stage ^ 1) * T::STAGE, g, ahead, shape.d, values, lane);
		copies_wait<1>();
		__syncwarp(); /* every lane's pieces of this step are there */
		int64_t limit[2];
#pragma unroll
		for (int r = 0; r < 2; r++) {
			int64_t seen = t.end, row = (lane >> 2) + r * 8;
			if (causal && a->seen + row / shape.g < seen)
				seen = a->seen + row / shape.g;
			limit[r] = seen - t.pos;
		}
		few_step<DP>(o, most, sum, q, pipe + stage * T::STAGE, limit, scale2, values, lane);
		__syncwarp(); /* nobody reads this stage any more */
	}
	copies_wait<0>();
	__syncthreads(); /* the pipelines' memory now holds the warps' results */
	float *set = (float *)smem_raw, *mine = set + warp * ROWS * (DP + 2);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		int m = (lane >> 2) + r * 8;
		float total = quad_sum(sum[r]);
#pragma unroll
		for (int n = 0; n < DP / 8; n++) {
			mine[m * (DP + 2) + n * 8 + 2 * (lane & 3)] = o[n][2 * r];
			mine[m * (DP + 2) + n * 8 + 2 * (lane & 3) + 1] = o[n][2 * r + 1];
		}
		if ((lane & 3) == 0) {
			mine[m * (DP + 2) + DP] = most[r];
			mine[m * (DP + 2) + DP + 1] = total;
		}
	}
	__syncthreads();
	for (int i = threadIdx.x; i < rows * shape.d; i += W * 32) {
		int m = i / shape.d, c = i % shape.d;
		float top, total, value = merged(set + m * (DP + 2), ROWS * (DP + 2), W, DP, c, scale2, &top, &total);
		if (a->n_parts == 1) {
			store_row(a, shape, m, c, value, top, total);
			continue;
		}
		float *to = a->parts + ((int64_t)blockIdx.x * rows + m) * (shape.d + 2);
		to[c] = value;
		if (c == 0) {
			to[shape.d] = top;
			to[shape.d + 1] = total;
		}
	}
}

/* Grid: rows x items. */
static __global__ void __launch_bounds__(128) attend_merge(const struct attend_item *items, struct attend_shape shape)
{
	const struct attend_item *a = &items[blockIdx.y];
	int m = blockIdx.x, rows = (int)a->queries * shape.g;
	if (m >= rows || a->n_parts == 1)
		return;
	for (int c = threadIdx.x; c < shape.d; c += 128) {
		float top, total, value = merged(a->parts + (int64_t)m * (shape.d + 2), (int64_t)rows * (shape.d + 2), a->n_parts, shape.d, c,
			shape.scale * LOG2E, &top, &total);
		store_row(a, shape, m, c, value, top, total);
	}
}

template <int DP, int W> static cudaError_t run(cudaStream_t s, const struct attend_item *items, int n, int most_parts, struct attend_shape shape)
{
	cudaError_t e = klaunch(attend_few<DP, W>, dim3((unsigned)most_parts, (unsigned)n), W * 32, few_tile<DP, W>::BYTES, s, items, shape);
	return e != cudaSuccess || most_parts == 1 ? e : klaunch(attend_merge, dim3(ROWS, (unsigned)n), 128, 0, s, items, shape);
}

extern "C" cudaError_t kernel_attend_few(cudaStream_t s, const struct attend_item *items, int n, int most_parts, struct attend_shape shape)
{
	switch (attend_d_pad(shape.d)) {
	case 32:
		return run<32, 4>(s, items, n, most_parts, shape);
	case 64:
		return run<64, 4>(s, items, n, most_parts, shape);
	case 128:
		return run<128, 4>(s, items, n, most_parts, shape);
	default:
		return run<256, 2>(s, items, n, most_parts, shape);
	}
}
