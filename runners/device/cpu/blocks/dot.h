/* dot.h: vdpbf16ps as the unit of products: a register tile of up to 12 rows x 32 columns.
 *
 * Each sum is one chain over ascending pairs of k, whatever the number of rows beside it and wherever it is put down in
 * between: fp32 stores and loads change no bit. */
#ifndef KVB_BLOCKS_DOT_H
#define KVB_BLOCKS_DOT_H

#include "runners/device/cpu/blocks/block.h"

enum {
	KEYS = 64,
	PREFETCH = 4096 /* bytes ahead of what streams from memory */
};

INLINE void unit_begin(void)
{
}
INLINE void unit_end(void)
{
}

INLINE __m512bh pair_of(const uint16_t *a) /* to all lanes */
{
	int32_t pair;
	memcpy(&pair, a, sizeof pair);
	return (__m512bh)_mm512_set1_epi32(pair);
}

/* Calls `call` for rows [ROW, ROW + ROWS) until all `rows` are done; ROWS is a constant where it is used. */
#define FOR_ROW_TILES(rows, call)                                                                                                \
	for (int64_t ROW = 0, left_ = (rows); left_ > 0; ROW += TILE_ROWS, left_ -= TILE_ROWS)                                   \
	FOR_ROWS(left_ < TILE_ROWS ? left_ : TILE_ROWS, call)

/* s[rows][2] += left rows x right columns over n blocks of 32 k; b: two right tiles, b_step values from one k block to the next.
 * stream: b comes from memory. */
INLINE void dot_steps(int rows, bool stream, int64_t n, const uint16_t *a, const uint16_t *b, int64_t b_step, __m512 s[TILE_ROWS][2])
{
	for (; n > 0; n--, a += BLOCK_VALUES, b += b_step)
		for (int p = 0; p < 16; p++) {
			__m512bh w0 = (__m512bh)_mm512_load_si512(b + p * 32), w1 = (__m512bh)_mm512_load_si512(b + p * 32 + RIGHT_VALUES);
			if (stream) {
				_mm_prefetch((const char *)(b + p * 32) + PREFETCH, _MM_HINT_T1);
				_mm_prefetch((const char *)(b + p * 32 + RIGHT_VALUES) + PREFETCH, _MM_HINT_T1);
			}
#pragma GCC unroll 12
			for (int i = 0; i < rows; i++) {
				__m512bh x = pair_of(a + i * BLOCK + 2 * p);
				s[i][0] = _mm512_dpbf16_ps(s[i][0], w0, x);
				s[i][1] = _mm512_dpbf16_ps(s[i][1], w1, x);
			}
		}
}

INLINE void logits_rows(int rows, const uint16_t *q, const uint16_t *keys, int64_t d_blocks, float *logits, int64_t stride)
{
	__m512 s[TILE_ROWS][2];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		s[i][0] = s[i][1] = _mm512_setzero_ps();
	dot_steps(rows, false, d_blocks, q, keys, BLOCK_VALUES, s);
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		_mm512_store_ps(logits + i * stride, s[i][0]);
		_mm512_store_ps(logits + i * stride + 16, s[i][1]);
	}
}

INLINE void logits_block(bool many, int64_t rows, const uint16_t *q, const uint16_t *keys, int64_t d_blocks, float *logits, int64_t stride)
{
	(void)many;
	FOR_ROW_TILES(rows, logits_rows(ROWS, q + ROW * BLOCK, keys, d_blocks, logits + ROW * stride, stride));
}

/* Rows [row, row + rows) of one block of 32 channels */
INLINE void values_rows(int rows, int64_t row, bool fresh, float *out, const uint16_t *p, const uint16_t *values, int64_t d_blocks)
{
	__m512 s[TILE_ROWS][2];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		const float *o = out + sums_row(row + i);
		s[i][0] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(o);
		s[i][1] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(o + TILE_VALUES);
	}
	dot_steps(rows, false, KEYS / BLOCK, p + row * BLOCK, values, d_blocks * BLOCK_VALUES, s);
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		float *o = out + sums_row(row + i);
		_mm512_store_ps(o, s[i][0]);
		_mm512_store_ps(o + TILE_VALUES, s[i][1]);
	}
}

INLINE void values_block(bool many, int64_t rows, bool fresh, float *out, const uint16_t *p, const uint16_t *values, int64_t d_blocks)
{
	(void)many;
	for (int64_t b = 0; b < d_blocks; b++)
		FOR_ROW_TILES(rows, values_rows(ROWS, ROW, fresh, out + b * BLOCK_VALUES, p, values + b * BLOCK_VALUES, d_blocks));
}

#endif
