/* linear_dot.c: one block of y = x W^T by vdpbf16ps: rows of a packed operand against panels of packed W.
 *
 * Many rows: a K block of a panel stays in L1 while the rows, in L2, pass over it; sums wait in scratch between K blocks, and the
 * last one writes (bias, residual, SwiGLU) from registers. Few rows (decoding): W streams from memory once, prefetched. Both add
 * in the same order (dot.h). */
#include "runners/device/cpu/blocks/dot.h"

enum {
	DEPTH_L1 = 448,     /* k of a panel in L1: 28 KB */
	DEPTH_L2 = 1536,    /* k of the rows in L2, where the whole depth does not fit */
	X_BYTES = 480 << 10, /* of the rows in L2 */
	ROWS_MOST = 256
};

/* ---- what becomes of finished sums ---- */

INLINE void write_swiglu(int rows, const struct linear_item *a, int64_t row, int64_t panel, __m512 s[TILE_ROWS][2])
{
	int64_t p = a->panel0 + panel;
	uint16_t *to = a->operand + (row / BLOCK * a->operand_blocks + p / 2) * BLOCK_VALUES + row % BLOCK * BLOCK + p % 2 * 16;
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		_mm256_store_si256((__m256i *)(to + i * BLOCK), bf16_of(vf_silu((vf)s[i][0]) * (vf)s[i][1]));
}

INLINE void write_rows(int rows, const struct linear_item *a, int64_t row, int64_t panel, __m512 s[TILE_ROWS][2])
{
	int64_t left = a->cols - panel * PANEL;
	__mmask16 low = left >= 16 ? 0xffff : (__mmask16)((1 << left) - 1);
	__mmask16 high = left >= 32 ? 0xffff : left <= 16 ? 0 : (__mmask16)((1 << (left - 16)) - 1);
	float *out = a->out + row * a->out_ld + panel * PANEL;
	const float *bias = a->bias ? a->bias + panel * PANEL : NULL;
	__m512 b0 = bias ? _mm512_maskz_loadu_ps(low, bias) : _mm512_setzero_ps();
	__m512 b1 = bias ? _mm512_maskz_loadu_ps(high, bias + 16) : _mm512_setzero_ps();
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++, out += a->out_ld) {
		__m512 x = s[i][0] + b0, y = s[i][1] + b1;
		if (a->add) {
			x += _mm512_maskz_loadu_ps(low, out);
			y += _mm512_maskz_loadu_ps(high, out + 16);
		}
		_mm512_mask_storeu_ps(out, low, x);
		_mm512_mask_storeu_ps(out + 16, high, y);
	}
}

INLINE void write_tile(int rows, const struct linear_item *a, int64_t row, int64_t panel, __m512 s[TILE_ROWS][2])
{
	if (a->operand)
		write_swiglu(rows, a, row, panel, s);
	else
		write_rows(rows, a, row, panel, s);
}

/* ---- many rows ---- */

/* Rows [row, row + rows) of one panel over k in [k0, k1); sums: of the panel, [rows of the item][PANEL]. */
INLINE void panel_rows(int rows, const struct linear_item *a, int64_t row, int64_t panel, int64_t k0, int64_t k1, float *sums)
{
	const uint16_t *x = (const uint16_t *)a->x + (row / BLOCK * a->k + k0) * BLOCK + row % BLOCK * BLOCK;
	const uint16_t *w = (const uint16_t *)(a->w + panel * a->panel_bytes) + k0 * PANEL;
	float *c = sums + row * PANEL;
	__m512 s[TILE_ROWS][2];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		for (int h = 0; h < 2; h++)
			s[i][h] = k0 ? _mm512_load_ps(c + i * PANEL + h * VL) : _mm512_setzero_ps();
	dot_steps(rows, false, (k1 - k0) / BLOCK, x, w, BLOCK_VALUES, s);
	if (k1 == a->k) {
		write_tile(rows, a, row, panel, s);
		return;
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		for (int h = 0; h < 2; h++)
			_mm512_store_ps(c + i * PANEL + h * VL, s[i][h]);
}

static void panel_depth(const struct linear_item *a, int64_t panel, int64_t k0, int64_t k1, float *sums)
{
	for (int64_t row = 0; row < a->rows; row += BLOCK) { /* a tile of rows may not cross into the next block */
		int64_t rows = a->rows - row < BLOCK ? a->rows - row : BLOCK;
		FOR_ROW_TILES(rows, panel_rows(ROWS, a, row + ROW, panel, k0, k1, sums));
	}
}

static void linear_many(const struct linear_item *a, void *scratch)
{
	float *sums = scratch;
	int64_t panels = (a->cols + PANEL - 1) / PANEL;
	for (int64_t k0 = 0, k1; k0 < a->k; k0 = k1) {
		k1 = block_end(k0, a->k, DEPTH_L2);
		bool whole = k0 == 0 && k1 == a->k; /* a panel's sums are done with before the next panel */
		for (int64_t p = 0; p < panels; p++)
			for (int64_t k = k0, next; k < k1; k = next) {
				next = block_end(k, k1, DEPTH_L1);
				panel_depth(a, p, k, next, sums + (whole ? 0 : p * a->rows * PANEL));
			}
	}
}

/* ---- few rows ---- */

INLINE void panel_few(int rows, const struct linear_item *a, int64_t panel)
{
	const uint16_t *x = a->x, *w = (const uint16_t *)(a->w + panel * a->panel_bytes);
	__m512 s[TILE_ROWS][2];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		s[i][0] = s[i][1] = _mm512_setzero_ps();
	dot_steps(rows, true, a->k / BLOCK, x, w, BLOCK_VALUES, s);
	write_tile(rows, a, 0, panel, s);
}

static void linear_few(const struct linear_item *a)
{
	for (int64_t p = 0; p < (a->cols + PANEL - 1) / PANEL; p++)
		FOR_ROWS(a->rows, panel_few(ROWS, a, p));
}

void ISA(linear)(const struct linear_item *a, void *scratch)
{
	if (a->rows <= TILE_ROWS)
		linear_few(a);
	else
		linear_many(a, scratch);
}

/* The rows' depth and, beyond DEPTH_L2, the sums of all panels stay in L2. */
void ISA(linear_limits)(int64_t k, int64_t *rows, int64_t *least, int64_t *most)
{
	bool whole = k <= DEPTH_L2;
	*rows = X_BYTES / (2 * (whole ? k : DEPTH_L2)) / BLOCK * BLOCK;
	*rows = *rows > ROWS_MOST ? ROWS_MOST : *rows;
	*least = 1;
	*most = whole ? 1 << 20 : 24;
}
