/* attention.h: how attention's operands lie in tiles, and their packing; for attention.c and reduce.c.
 *
 * d_blocks: blocks of 32 channels, the last one padded with zeros. All pointers are 64-byte aligned. */
#ifndef KVB_BLOCKS_ATTENTION_H
#define KVB_BLOCKS_ATTENTION_H

#include "runners/device/cpu/blocks/unit.h"

INLINE int64_t blocks_of(int64_t n)
{
	return (n + BLOCK - 1) / BLOCK;
}
INLINE __mmask32 channels_left(int d, int t) /* of the 32 from channel t on */
{
	return d - t >= 32 ? 0xffffffffu : (1u << (d - t)) - 1;
}

INLINE const uint16_t *cache_row(const void *base, const struct segment *s, int64_t key, int d)
{
	return (const uint16_t *)base + (s->index ? s->index[key] : key) * d;
}
INLINE void prefetch_row(const void *base, const struct segment *s, int64_t key, int d)
{
	for (int t = 0; t < d; t += BLOCK)
		_mm_prefetch(cache_row(base, s, key, d) + t, _MM_HINT_T0);
}

/* Rows [0, rows) of (query, head of the group), row r = query r / g, head r % g, to left operands
 * dst [row blocks][d_blocks][32][32]; rows behind the last are zeros. q: as attend_item's.
 * Returns the largest magnitude met (infinite or NaN as such). */
float ISA(queries_pack)(uint16_t *dst, const float *q, int64_t q_ld, int64_t rows, int g, int d);

/* One row of them: row i of the block dst. */
void ISA(query_pack)(uint16_t *dst, int64_t i, const float *x, int d);

/* Keys [first, first+n) of the `end` that are wanted next to right tiles dst [blocks of 32 keys][d_blocks][2][16 pairs of channels][16 keys][2]; zeros behind n up to
 * a multiple of KEYS. Returns the largest magnitude. */
float ISA(keys_pack)(uint16_t *dst, const struct segment *s, int64_t first, int64_t n, int64_t end, int d);

/* Values to right tiles dst [blocks of 32 keys][d_blocks][2][16 pairs of keys][16 channels][2], pairs in the order PAIR_KEY;
 * zeros behind n up to a multiple of KEYS. */
void ISA(values_pack)(uint16_t *dst, const struct segment *s, int64_t first, int64_t n, int64_t end, int d);

/* The first key of pair p of 32: the order in which two vectors of 16 leave the saturating pack. */
INLINE int pair_key(int p)
{
	return p / 4 * 4 + (p % 4 < 2 ? p % 4 * 2 : 16 + (p % 4 - 2) * 2);
}

#endif
