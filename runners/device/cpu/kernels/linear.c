/* linear.c: one block of y = x W^T: rows of packed X against panels of packed W.
 *
 * Two forms of the same sum, chosen by what W is and how many rows there are:
 * - fp32 W: FMA from the panel.
 * - bf16 W: FMA after widening; many rows: a K block of the panel is widened once into scratch (L1) and used by all row tiles;
 * few rows (decoding): widened in registers while W streams from memory. Both do the same FMAs in the same order.
 * Partial sums between K blocks are kept in scratch in fp32: storing and loading them changes no bit. */
#include "runners/device/cpu/kernels/simd.h"

enum { PREFETCH = 2048 }; /* bytes ahead, into L2, while W streams */

void ISA(pack_rows)(void *dst, const float *x, int64_t ld, int64_t rows, int64_t k, bool bf16)
{
	int64_t k_pad = round_up(k, 2);
	float *p = dst;
	for (int64_t r = 0; r < rows; r++) {
		const float *row = x + r * ld;
		int64_t i = 0;
		for (; i + VL <= k; i += VL) {
			vf v = vf_load(row + i);
			if (bf16)
				v = vf_round_bf16(v);
			for (int j = 0; j < VL; j++)
				p[(i + j) * rows + r] = v[j];
		}
		for (; i < k_pad; i++)
			p[i * rows + r] = i >= k ? 0 : bf16 ? bf16_round(row[i]) : row[i];
	}
}

/* As tile_f32 with a = packed rows and b = bf16 pairs, widened on the way. k even. */
INLINE void tile_wide(int rows, const float *a, const uint32_t *b, int64_t k, float *c)
{
	vf s0[TILE_ROWS], s1[TILE_ROWS];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		s0[i] = s1[i] = vf_set(0);
	for (int64_t p = 0; p < k; p += 2) {
		vu w0 = *(const vu_mem *)b, w1 = *(const vu_mem *)(b + VL);
		_mm_prefetch((const char *)b + PREFETCH, _MM_HINT_T1);
		_mm_prefetch((const char *)b + PREFETCH + 64, _MM_HINT_T1);
		vf even0 = vf_even(w0), odd0 = vf_odd(w0), even1 = vf_even(w1), odd1 = vf_odd(w1);
#pragma GCC unroll 12
		for (int i = 0; i < rows; i++) {
			vf x = vf_set(a[i]), y = vf_set(a[rows + i]);
			s0[i] = vf_fma(y, odd0, vf_fma(x, even0, s0[i]));
			s1[i] = vf_fma(y, odd1, vf_fma(x, even1, s1[i]));
		}
		a += 2 * rows;
		b += PANEL;
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		vf_store(c + i * PANEL, s0[i]);
		vf_store(c + i * PANEL + VL, s1[i]);
	}
}

/* [kc/2][32][2] bf16 to [kc][32] fp32 */
static void widen_panel(float *dst, const uint32_t *src, int64_t kc)
{
	for (int64_t k = 0; k < kc; k += 2, src += PANEL, dst += 2 * PANEL)
		for (int c = 0; c < PANEL; c += VL) {
			vu pair = *(const vu_mem *)(src + c);
			vf_store(dst + c, vf_even(pair));
			vf_store(dst + PANEL + c, vf_odd(pair));
		}
}

/* c[rows][PANEL] of one row tile and the K block [k0, k0+kc) of one panel. `wide`: the block as fp32, or NULL. */
static void tile_of_panel(const struct linear_item *a, int64_t row, int64_t rows, const char *panel, const float *wide,
	int64_t k0, int64_t kc, float *c)
{
	const float *x = (const float *)a->x + row * a->k + k0 * rows; /* tiles before this one hold row * k values */
	for (int j = 0; j < PANEL; j += TILE_COLS) {
		if (a->bf16 && !wide) {
			const uint32_t *b = (const uint32_t *)panel + j;
			FOR_ROWS(rows, tile_wide(ROWS, x, b, kc, c + j));
		} else {
			const float *b = (wide ? wide : (const float *)panel + k0 * PANEL) + j;
			FOR_ROWS(rows, tile_f32(ROWS, x, 1, ROWS, b, PANEL, kc, c + j, PANEL, k0 > 0));
		}
	}
}

/* Half a panel: SWIGLU_TURN columns of silu(gate) up. */
static void finish_swiglu(const struct linear_item *a, const float *c, int64_t row, int64_t rows, int64_t col)
{
	for (int64_t r = 0; r < rows; r++, c += PANEL)
		for (int j = 0; j < SWIGLU_TURN; j += VL)
			vf_store(a->out + (row + r) * a->out_ld + col / 2 + j, vf_silu(vf_load(c + j)) * vf_load(c + SWIGLU_TURN + j));
}

static void finish(const struct linear_item *a, const float *c, int64_t row, int64_t rows, int64_t col)
{
	if (a->swiglu) {
		finish_swiglu(a, c, row, rows, col);
		return;
	}
	int64_t cols = a->cols - col < PANEL ? a->cols - col : PANEL;
	for (int64_t r = 0; r < rows; r++, c += PANEL) {
		float *out = a->out + (row + r) * a->out_ld + col;
		if (cols == PANEL)
			for (int j = 0; j < PANEL; j += VL) {
				vf v = vf_load(c + j);
				if (a->bias)
					v += vf_load(a->bias + col + j);
				if (a->add)
					v += vf_load(out + j);
				vf_store(out + j, v);
			}
		else
			for (int64_t j = 0; j < cols; j++) {
				float v = c[j];
				if (a->bias)
					v += a->bias[col + j];
				out[j] = a->add ? v + out[j] : v;
			}
	}
}

void ISA(linear_limits)(int64_t k, int64_t *rows, int64_t *least, int64_t *most)
{
	(void)k;
	*rows = LINEAR_ROWS;
	*least = 1;
	*most = LINEAR_PANELS;
}

void ISA(linear)(const struct linear_item *a, void *scratch)
{
	float *wide = scratch, *sums = wide + LINEAR_K * PANEL; /* sums [panel][rows][PANEL] */
	int64_t panels = (a->cols + PANEL - 1) / PANEL;
	bool few = a->rows <= LINEAR_FEW;
	int64_t block = few ? a->k : LINEAR_K;
	for (int64_t k0 = 0; k0 < a->k; k0 += block) {
		int64_t kc = a->k - k0 < block ? a->k - k0 : block;
		for (int64_t p = 0; p < panels; p++) {
			const char *panel = a->w + p * a->panel_bytes;
			bool widen = a->bf16 && !few;
			if (widen)
				widen_panel(wide, (const uint32_t *)panel + k0 / 2 * PANEL, kc);
			for (int64_t r = 0; r < a->rows; r += TILE_ROWS) {
				int64_t rows = a->rows - r < TILE_ROWS ? a->rows - r : TILE_ROWS;
				tile_of_panel(a, r, rows, panel, widen ? wide : NULL, k0, kc, sums + (p * a->rows + r) * PANEL);
			}
		}
	}
	for (int64_t p = 0; p < panels; p++)
		for (int64_t r = 0; r < a->rows; r += TILE_ROWS)
			finish(a, sums + (p * a->rows + r) * PANEL, r, a->rows - r < TILE_ROWS ? a->rows - r : TILE_ROWS,
				p * PANEL);
}
