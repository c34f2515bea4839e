/* attention.h: how attention's operands lie in tiles, and their packing; for attention.c and reduce.c.
 *
 * d_blocks: blocks of 32 channels, the last one padded with zeros. All pointers are 64-byte aligned. */
#ifndef KVB_AMX_ATTENTION_H
#define KVB_AMX_ATTENTION_H

#include "runners/device/cpu/amx/tile.h"

INLINE int64_t blocks_of(int64_t n)
{
	return (n + BLOCK - 1) / BLOCK;
}
INLINE __mmask32 channels_left(int d, int t) /* of the 32 from channel t on */
{
	return d - t >= 32 ? 0xffffffffu : (1u << (d - t)) - 1;
}

/* Rows [0, rows) of (query, head of the group), row r = query r / g, head r % g, to left operands
 * dst [row blocks][d_blocks][32][32]; rows behind the last are zeros. q: as attend_item's.
 * Returns the largest magnitude met (infinite or NaN as such). */
float amx_pack_queries(uint16_t *dst, const float *q, int64_t q_ld, int64_t rows, int g, int d);

/* One row of them: row i of the block dst. */
void amx_pack_query(uint16_t *dst, int64_t i, const float *x, int d);

/* Keys [first, first+n) to right tiles dst [blocks of 32 keys][d_blocks][2][16 pairs of channels][16 keys][2]; zeros behind n up to
 * a multiple of 64. Returns the largest magnitude. */
float amx_pack_keys(uint16_t *dst, const struct segment *s, int64_t first, int64_t n, int d);

/* Values to right tiles dst [blocks of 32 keys][d_blocks][2][16 pairs of keys][16 channels][2], pairs in the order PAIR_KEY;
 * zeros behind n up to a multiple of 64. */
void amx_pack_values(uint16_t *dst, const struct segment *s, int64_t first, int64_t n, int d);

/* The first key of pair p of 32: the order in which two vectors of 16 leave the saturating pack. */
INLINE int pair_key(int p)
{
	return p / 4 * 4 + (p % 4 < 2 ? p % 4 * 2 : 16 + (p % 4 - 2) * 2);
}

/* logits [32][stride] of one row block against 32 keys: columns [0, 32). two: the block has more than 16 rows. */
INLINE void logits_block(bool two, const uint16_t *q, const uint16_t *keys, int64_t d_blocks, float *logits, int64_t stride)
{
	if (two)
		sums_zero();
	else {
		_tile_zero(0);
		_tile_zero(1);
	}
	for (int64_t b = 0; b < d_blocks; b++, q += BLOCK_VALUES, keys += BLOCK_VALUES) {
		if (two) {
			TILE_STEP(_tile_loadd, q, _tile_stream_loadd, keys, keys + 512, 64);
		} else {
			_tile_stream_loadd(6, keys, 64);
			_tile_loadd(4, q, 64);
			_tile_dpbf16ps(0, 4, 6);
			_tile_stream_loadd(7, keys + 512, 64);
			_tile_dpbf16ps(1, 4, 7);
		}
	}
	_tile_stored(0, logits, stride * 4);
	_tile_stored(1, logits + 16, stride * 4);
	if (two) {
		_tile_stored(2, logits + 16 * stride, stride * 4);
		_tile_stored(3, logits + 16 * stride + 16, stride * 4);
	}
}

#endif
