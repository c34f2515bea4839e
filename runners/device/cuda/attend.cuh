/* attend.cuh: what the attention kernels share: which keys an item sees, and rows of bf16 keys and values on their way into shared memory. */
#ifndef KVB_ATTEND_CUH
#define KVB_ATTEND_CUH

#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/ptx.cuh"

#define LOG2E 1.4426950408889634f

/* Shared rows are 16 bytes longer than d_pad: eight rows of an ldmatrix then lie in different banks. */
template <int DP> struct padded {
	static const int LD = DP + 8;
};

/* Keys of segment s that the queries up to last_query see. */
static __device__ __forceinline__ int64_t segment_end(const struct attend_item *a, int s, int64_t last_query)
{
	int64_t n = a->seg[s].n;
	if (s < a->n_seg - 1)
		return n;
	int64_t seen = a->seen + (a->causal ? last_query : 0);
	return seen < 0 ? 0 : seen < n ? seen : n;
}

/* A block of keys: [pos, pos + size) of a segment, of which those before `end` count. */
struct key_tile {
	int seg;
	int64_t pos, end;
};
static __device__ __forceinline__ bool tile_there(const struct attend_item *a, const struct key_tile *t)
{
	return t->seg < a->n_seg;
}
/* Steps over empty segments. */
static __device__ __forceinline__ void tile_settle(const struct attend_item *a, struct key_tile *t, int64_t last_query)
{
	while (t->seg < a->n_seg && t->pos >= t->end) {
		t->seg++;
		t->pos = 0;
		t->end = t->seg < a->n_seg ? segment_end(a, t->seg, last_query) : 0;
	}
}

/* Row `key` of a segment's k or v (d columns), in pieces of 8 columns from column c, to shared memory; zeros behind d or when not valid.
 * whole: rows are whole numbers of 16 bytes. */
static __device__ __forceinline__ void load_piece(bf16 *to, const bf16 *base, int64_t row, int c, int d, bool valid, bool whole)
{
	if (whole) {
		copy16_async(to, base + row * d + (c < d ? c : 0), valid && c < d);
		return;
	}
#pragma unroll
	for (int i = 0; i < 8; i++)
		to[i] = valid && c + i < d ? base[row * d + c + i] : __float2bfloat16_rn(0.f);
}

/* Keys [t.pos, +ROWS) of a tile, by THREADS threads. */
template <int DP, int ROWS, int THREADS>
static __device__ __forceinline__ void load_tile(bf16 *to, const bf16 *base, const int32_t *index, struct key_tile t, int d, int thread)
{
	const int PIECES = DP / 8;
	bool whole = d % 8 == 0;
#pragma unroll 4
	for (int i = thread; i < ROWS * PIECES; i += THREADS) {
		int r = i / PIECES, c = i % PIECES * 8;
		int64_t key = t.pos + r;
		bool valid = key < t.end;
		int64_t row = !valid ? 0 : index ? index[key] : key;
		load_piece(to + r * padded<DP>::LD + c, base, row, c, d, valid, whole);
	}
}

/* Products of the warp's MT x 16 rows a with the BN rows b, both in shared memory: queries by keys, or keys by queries. */
template <int DP, int MT, int BN>
static __device__ __forceinline__ void multiply_tiles(float s[MT][BN / 8][4], const bf16 *as, const bf16 *bs, int lane)
{
	const int LD = padded<DP>::LD;
#pragma unroll
	for (int m = 0; m < MT; m++)
#pragma unroll
		for (int n = 0; n < BN / 8; n++)
			s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
#pragma unroll
	for (int kk = 0; kk < DP; kk += 16) {
		uint32_t a[MT][4];
#pragma unroll
		for (int m = 0; m < MT; m++)
			ldmatrix4(a[m], &as[(m * 16 + (lane & 15)) * LD + kk + (lane >> 4) * 8]);
#pragma unroll
		for (int n = 0; n < BN / 16; n++) {
			uint32_t b[4];
			ldmatrix4(b, &bs[(n * 16 + (lane >> 4) * 8 + (lane & 7)) * LD + kk + (lane >> 3 & 1) * 8]);
#pragma unroll
			for (int m = 0; m < MT; m++) {
				mma_bf16(s[m][2 * n], a[m], b);
				mma_bf16(s[m][2 * n + 1], a[m], b + 2);
			}
		}
	}
}

static __device__ __forceinline__ void store_pair(void *out, bool is_bf16, int64_t at, float a, float b, int c, int d)
{
	if (is_bf16) {
		bf16 *to = (bf16 *)out + at + c;
		if (c < d)
			to[0] = __float2bfloat16_rn(a);
		if (c + 1 < d)
			to[1] = __float2bfloat16_rn(b);
	} else {
		float *to = (float *)out + at + c;
		if (c < d)
			to[0] = a;
		if (c + 1 < d)
			to[1] = b;
	}
}

#endif
