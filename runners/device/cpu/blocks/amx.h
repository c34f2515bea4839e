/* amx.h: AMX as the unit of products: eight tiles of 16 rows x 64 bytes, 0-3 sums, 4-5 left operand, 6-7 right.
 *
 * tdpbf16ps adds to each fp32 sum the products of 16 pairs of bf16: even and odd elements of the pairs in a sum each, ascending,
 * then both together. The order of a sum over k is therefore the same for any blocking whose blocks start at multiples of 32. */
#ifndef KVB_BLOCKS_AMX_H
#define KVB_BLOCKS_AMX_H

#include "runners/device/cpu/blocks/block.h"

#define UNIT_OVERLAPS /* products go on beside vector instructions, as far as the order of instructions lets them */
enum { KEYS = 64 };

/* Tiles 0, 1, 4 have `rows` rows, all others 16. The configuration belongs to the thread: every kernel loads it and releases it. */
INLINE void tiles_configure(int rows)
{
	struct {
		uint8_t palette, start, reserved[14];
		uint16_t row_bytes[16];
		uint8_t rows[16];
	} c __attribute__((aligned(64))) = {.palette = 1};
	for (int i = 0; i < 8; i++) {
		c.row_bytes[i] = 64;
		c.rows[i] = (uint8_t)(i == 0 || i == 1 || i == 4 ? rows : 16);
	}
	__asm__ volatile("" : : "r"(&c) : "memory"); /* gcc 12 names 8 of the 64 bytes as input and may drop the other stores */
	_tile_loadconfig(&c);
}

/* gcc's tile loads do not say that they read memory: without this, plain stores before them could be put behind them. */
INLINE void stores_first(void)
{
	__asm__ volatile("" : : : "memory");
}

INLINE void unit_begin(void)
{
	tiles_configure(16);
}
INLINE void unit_end(void)
{
	_tile_release();
}

/* Four sums of 32 x 32 += left block (a) x two right tiles (b); DO(i) is done after product i. The right ones may be used by many rows and stay
 * in L1; `stream` keeps the other operand from pushing them out. */
#define NOTHING(i)
#define TILE_STEP(DO, load_a, a, load_b, b)                                                                                      \
	do {                                                                                                                     \
		load_b(6, b, 64);                                                                                                \
		load_a(4, a, 64);                                                                                                \
		_tile_dpbf16ps(0, 4, 6);                                                                                         \
		DO(0);                                                                                                           \
		load_b(7, (const char *)(b) + 1024, 64);                                                                         \
		_tile_dpbf16ps(1, 4, 7);                                                                                         \
		DO(1);                                                                                                           \
		load_a(5, (const char *)(a) + 1024, 64);                                                                         \
		_tile_dpbf16ps(2, 5, 6);                                                                                         \
		DO(2);                                                                                                           \
		_tile_dpbf16ps(3, 5, 7);                                                                                         \
		DO(3);                                                                                                           \
	} while (0)

INLINE void sums_zero(void)
{
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
}
INLINE void sums_load(const float *c)
{
	_tile_loadd(0, c, 64);
	_tile_loadd(1, c + TILE_VALUES, 64);
	_tile_loadd(2, c + 2 * TILE_VALUES, 64);
	_tile_loadd(3, c + 3 * TILE_VALUES, 64);
}
INLINE void sums_store(float *c)
{
	_tile_stored(0, c, 64);
	_tile_stored(1, c + TILE_VALUES, 64);
	_tile_stored(2, c + 2 * TILE_VALUES, 64);
	_tile_stored(3, c + 3 * TILE_VALUES, 64);
}

/* The sums of one block += left block x the two right tiles at b, which attention uses once and which stream. two: as `many`. */
INLINE void right_step(bool two, const uint16_t *a, const uint16_t *b)
{
	if (two) {
		TILE_STEP(NOTHING, _tile_loadd, a, _tile_stream_loadd, b);
		return;
	}
	_tile_stream_loadd(6, b, 64);
	_tile_loadd(4, a, 64);
	_tile_dpbf16ps(0, 4, 6);
	_tile_stream_loadd(7, b + RIGHT_VALUES, 64);
	_tile_dpbf16ps(1, 4, 7);
}

INLINE void logits_block(bool two, int64_t rows, const uint16_t *q, const uint16_t *keys, int64_t d_blocks, float *logits, int64_t stride)
{
	(void)rows;
	stores_first();
	if (two)
		sums_zero();
	else {
		_tile_zero(0);
		_tile_zero(1);
	}
	for (int64_t b = 0; b < d_blocks; b++, q += BLOCK_VALUES, keys += BLOCK_VALUES)
		right_step(two, q, keys);
	_tile_stored(0, logits, stride * 4);
	_tile_stored(1, logits + 16, stride * 4);
	if (two) {
		_tile_stored(2, logits + 16 * stride, stride * 4);
		_tile_stored(3, logits + 16 * stride + 16, stride * 4);
	}
}

INLINE void values_block(bool two, int64_t rows, bool fresh, float *out, const uint16_t *p, const uint16_t *values, int64_t d_blocks)
{
	(void)rows;
	stores_first();
	for (int64_t b = 0; b < d_blocks; b++, out += BLOCK_VALUES) {
		if (fresh)
			sums_zero();
		else if (two)
			sums_load(out);
		else {
			_tile_loadd(0, out, 64);
			_tile_loadd(1, out + TILE_VALUES, 64);
		}
#pragma GCC unroll 2
		for (int k = 0; k < KEYS / BLOCK; k++) {
			const uint16_t *v = values + (k * d_blocks + b) * BLOCK_VALUES, *x = p + k * BLOCK_VALUES;
			right_step(two, x, v);
		}
		if (two)
			sums_store(out);
		else {
			_tile_stored(0, out, 64);
			_tile_stored(1, out + TILE_VALUES, 64);
		}
	}
}

/* The same for KEYS keys and a row block of more than 16 rows, in pieces of four products, so many of either kind; DO(i) is done after
 * product i of the piece. */
INLINE int64_t product_groups(int64_t d_blocks)
{
	return KEYS / BLOCK * d_blocks;
}

#define LOGITS_GROUP(DO, group, q, keys, d_blocks, logits)                                                                       \
	do {                                                                                                                     \
		int64_t b_ = (group) % (d_blocks);                                                                               \
		float *l_ = (logits) + (group) / (d_blocks)*BLOCK;                                                               \
		stores_first();                                                                                                  \
		if (b_ == 0)                                                                                                     \
			sums_zero();                                                                                             \
		TILE_STEP(DO, _tile_loadd, (q) + b_ * BLOCK_VALUES, _tile_stream_loadd, (keys) + (group)*BLOCK_VALUES);          \
		if (b_ == (d_blocks)-1) {                                                                                        \
			_tile_stored(0, l_, KEYS * 4);                                                                           \
			_tile_stored(1, l_ + 16, KEYS * 4);                                                                      \
			_tile_stored(2, l_ + 16 * KEYS, KEYS * 4);                                                               \
			_tile_stored(3, l_ + 16 * KEYS + 16, KEYS * 4);                                                          \
		}                                                                                                                \
		stores_first();                                                                                                  \
	} while (0)

#define VALUES_GROUP(DO, group, fresh, out, p, values, d_blocks)                                                                 \
	do {                                                                                                                     \
		int64_t b_ = (group) / (KEYS / BLOCK), k_ = (group) % (KEYS / BLOCK);                                            \
		float *o_ = (out) + b_ * BLOCK_VALUES;                                                                           \
		stores_first();                                                                                                  \
		if (k_ == 0 && (fresh))                                                                                          \
			sums_zero();                                                                                             \
		else if (k_ == 0)                                                                                                \
			sums_load(o_);                                                                                           \
		TILE_STEP(DO, _tile_loadd, (p) + k_ * BLOCK_VALUES, _tile_stream_loadd, (values) + (k_ * (d_blocks) + b_) * BLOCK_VALUES); \
		if (k_ == KEYS / BLOCK - 1)                                                                                      \
			sums_store(o_);                                                                                          \
		stores_first();                                                                                                  \
	} while (0)

#endif
