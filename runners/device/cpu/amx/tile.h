/* tile.h: AMX tiles as this program uses them: eight tiles of 16 rows x 64 bytes, 0-3 sums, 4-5 left operand, 6-7 right.
 *
 * tdpbf16ps adds to each fp32 sum the products of 16 pairs of bf16: even and odd elements of the pairs in a sum each, ascending,
 * then both together. The order of a sum over k is therefore the same for any blocking whose blocks start at multiples of 32.
 *
 * Left operands are blocks of 32 rows x 32 columns, row-major, 2 KB: two tiles above each other. Right operands are tiles of
 * [16 pairs of k][16 columns][2]; packed W has two of them side by side, so a row of a tile is 128 bytes from the next. */
#ifndef KVB_AMX_TILE_H
#define KVB_AMX_TILE_H

#include "runners/device/cpu/kernels/simd.h"

enum {
	BLOCK = OPERAND_BLOCK,     /* rows and columns of a block */
	BLOCK_VALUES = 32 * 32,    /* bf16 of a left operand, or fp32 of four tiles of sums */
	TILE_VALUES = 16 * 16,     /* fp32 of one tile of sums */
	W_STRIDE = PANEL * 4,      /* bytes from one pair of k to the next in packed W */
	STEP_BYTES = 2048          /* of either operand for 32 k */
};

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

INLINE __m256i bf16_of(vf x)
{
	return (__m256i)_mm512_cvtneps_pbh((__m512)x);
}
/* 32 values to bf16 */
INLINE __m512i bf16_pair(vf low, vf high)
{
	return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* Four sums of 32 x 32 += left block (a) x right tiles (b0, b1). The right one is used by many rows and stays in L1; `stream`
 * keeps the other from pushing it out. */
#define TILE_STEP(load_a, a, load_b, b0, b1, stride)                                                                             \
	do {                                                                                                                     \
		load_b(6, b0, stride);                                                                                           \
		load_a(4, a, 64);                                                                                                \
		_tile_dpbf16ps(0, 4, 6);                                                                                         \
		load_b(7, b1, stride);                                                                                           \
		_tile_dpbf16ps(1, 4, 7);                                                                                         \
		load_a(5, (const char *)(a) + 1024, 64);                                                                                       \
		_tile_dpbf16ps(2, 5, 6);                                                                                         \
		_tile_dpbf16ps(3, 5, 7);                                                                                         \
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
/* Row i of a stored 32 x 32 block: its first 16 values; the other 16 stand TILE_VALUES behind. */
INLINE int64_t sums_row(int64_t i)
{
	return i / 16 * 2 * TILE_VALUES + i % 16 * 16;
}

#endif
