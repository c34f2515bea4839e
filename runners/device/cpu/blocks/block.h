/* block.h: the layouts that both units of bf16 products share: AMX's tiles and vdpbf16ps.
 *
 * Left operands are blocks of 32 rows x 32 columns, row-major, 2 KB. Right operands come in pairs of k: tiles of [16 pairs of
 * k][16 columns][2], 1 KB, two of them for 32 columns: what streams is read in order. Sums of a 32 x 32 block are four tiles of
 * 16 x 16 fp32. */
#ifndef KVB_BLOCKS_BLOCK_H
#define KVB_BLOCKS_BLOCK_H

#include "runners/device/cpu/kernels/simd.h"

enum {
	BLOCK = OPERAND_BLOCK,     /* rows and columns of a block */
	BLOCK_VALUES = 32 * 32,    /* bf16 of a left operand, or fp32 of four tiles of sums */
	RIGHT_VALUES = 16 * 16 * 2, /* bf16 of a right tile */
	TILE_VALUES = 16 * 16,     /* fp32 of one tile of sums */
	STEP_BYTES = 2048          /* of either operand for 32 k */
};

/* as in cpu.h */
void ISA(pack_panel)(void *dst, const float *src, int64_t n, int64_t k);
void ISA(panel_column)(float *out, const void *panel, int64_t col, int64_t k);

INLINE __m256i bf16_of(vf x)
{
	return (__m256i)_mm512_cvtneps_pbh((__m512)x);
}
/* 32 values to bf16 */
INLINE __m512i bf16_pair(vf low, vf high)
{
	return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* Row i of stored sums of 32 x 32: its first 16 values; the other 16 stand TILE_VALUES behind. */
INLINE int64_t sums_row(int64_t i)
{
	return i / 16 * 2 * TILE_VALUES + i % 16 * 16;
}

/* Equal blocks of at most `most`, in multiples of 32: where the block that starts at k ends. */
INLINE int64_t block_end(int64_t k, int64_t end, int64_t most)
{
	int64_t blocks = (end - k + most - 1) / most, next = k + round_up((end - k + blocks - 1) / blocks, 32);
	return next < end ? next : end;
}

#endif
