/* linear.c: one block of y = x W^T: rows of packed X against panels of packed W.
 *
 * Two forms of the same sum, chosen by what W is:
 * - fp32 W: FMA from the panel.
 * - bf16 W: FMA after widening, in registers. Few rows (decoding): while W streams from memory. Many rows: a K block of the panel stays in L1 for all
 *   row tiles, which stay in L2; with AVX-512 it is widened once, into scratch, and then like fp32. All do the same FMAs in the same order.
 * Partial sums between K blocks are kept in scratch in fp32: storing and loading them changes no bit. */
#include "runners/device/cpu/kernels/simd.h"

enum {
	PREFETCH = 2048,     /* bytes ahead, into L2, while W streams */
	LINEAR_K = 192,      /* K block: a panel of fp32 (24 KB) is read from L1 */
	DEPTH_L2 = 1536,     /* k of the rows in L2, where the whole depth does not fit; a multiple of LINEAR_K */
	X_BYTES = 512 << 10  /* of the rows in L2 */
};
/* Shifts of 512 bits take turns with FMAs; those of 256 bits have units beside theirs. */
static const bool WIDEN_ONCE = VL == 16;

/* WORDS columns of a whole tile to [WORDS][TILE_ROWS]. Each store runs into the next one's place, so the last is cut when nothing follows it. */
INLINE void pack_columns(float *p, const char *const row[VL], int64_t column, bool bf16, bool end)
{
	vf v[WORDS];
	columns_load(v, row, column * 4);
#pragma GCC unroll 4
	for (int c = 0; c < WORDS; c++) {
		v[c] = bf16 ? vf_round_bf16(v[c]) : v[c];
		if (c < WORDS - 1 || !end)
			vf_store(p + c * TILE_ROWS, v[c]);
		else
			memcpy(p + c * TILE_ROWS, &v[c], TILE_ROWS * sizeof *p);
	}
}

void ISA(pack_rows)(void *dst, const float *x, int64_t ld, int64_t rows, int64_t k, bool bf16)
{
	int64_t k_pad = round_up(k, 2), whole = rows == TILE_ROWS ? k / WORDS * WORDS : 0;
	const char *row[VL];
	float *p = dst;
	for (int i = 0; i < VL; i++)
		row[i] = (const char *)(x + (i < rows ? i : 0) * ld);
	for (int64_t i = 0; i < whole; i += WORDS)
		pack_columns(p + i * TILE_ROWS, row, i, bf16, i + WORDS == k_pad);
	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = whole; i < k_pad; i++) {
			float v = i < k ? x[r * ld + i] : 0;
			p[i * rows + r] = bf16 ? bf16_round(v) : v;
		}
}

/* As tile_f32 with a = packed rows and b = bf16 pairs, widened on the way. k even. */
INLINE void tile_wide(int rows, int across, const float *a, const uint32_t *b, int64_t k, float *c, bool more)
{
	vf s[TILE_ROWS][ACROSS];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int j = 0; j < across; j++)
			s[i][j] = more ? vf_load(c + i * PANEL + j * VL) : vf_set(0);
	for (int64_t p = 0; p < k; p += 2) {
		_mm_prefetch((const char *)b + PREFETCH, _MM_HINT_T1);
		_mm_prefetch((const char *)b + PREFETCH + 64, _MM_HINT_T1);
#pragma GCC unroll 2
		for (int half = 0; half < 2; half++) {
			vf w[ACROSS];
#pragma GCC unroll 4
			for (int j = 0; j < across; j++) {
				vu pair = *(const vu_mem *)(b + j * VL);
				w[j] = half ? vf_odd(pair) : vf_even(pair);
			}
#pragma GCC unroll 12
			for (int i = 0; i < rows; i++) {
				vf x = vf_set(a[half * rows + i]);
#pragma GCC unroll 4
				for (int j = 0; j < across; j++)
					vf_add_product(&s[i][j], x, w[j]);
			}
			__asm__ volatile("" ::: "memory"); /* pairs are loaded anew: kept, they would leave too few registers */
		}
		a += 2 * rows;
		b += PANEL;
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int j = 0; j < across; j++)
			vf_store(c + i * PANEL + j * VL, s[i][j]);
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

/* Vectors a tile is wide: sums wait for each other, so a row or two take all columns of a panel at once. */
#define TILE_ACROSS(rows) (3 * (rows) <= TILE_ROWS && ACROSS * VL <= PANEL ? ACROSS : 2)

/* c[rows][PANEL] of one row tile and the K block [k0, k0+kc) of one panel. `wide`: the block as fp32, or NULL. */
static void tile_of_panel(const struct linear_item *a, int64_t row, int64_t rows, const char *panel, const float *wide,
	int64_t k0, int64_t kc, float *c)
{
	const float *x = (const float *)a->x + row * a->k + k0 * rows; /* tiles before this one hold row * k values */
	for (int j = 0; j < PANEL; j += TILE_ACROSS(rows) * VL) {
		if (a->bf16 && !wide) {
			const uint32_t *b = (const uint32_t *)panel + k0 / 2 * PANEL + j;
			FOR_ROWS(rows, tile_wide(ROWS, TILE_ACROSS(ROWS), x, b, kc, c + j, k0 > 0));
		} else {
			const float *b = (wide ? wide : (const float *)panel + k0 * PANEL) + j;
			FOR_ROWS(rows, tile_f32(ROWS, TILE_ACROSS(ROWS), x, 1, ROWS, b, PANEL, kc, c + j, PANEL, k0 > 0));
		}
	}
}

/* Half a panel: SWIGLU_TURN columns of silu(gate) up. */
static void finish_swiglu(const struct linear_item *a, const float *c, int64_t col)
{
	for (int64_t r = 0; r < a->rows; r++, c += PANEL)
		for (int j = 0; j < SWIGLU_TURN; j += VL)
			vf_store(a->out + r * a->out_ld + col / 2 + j, vf_silu(vf_load(c + j)) * vf_load(c + SWIGLU_TURN + j));
}

/* The sums c [rows][PANEL] of a panel, whose first column is col, go out. */
static void finish(const struct linear_item *a, const float *c, int64_t col)
{
	if (a->swiglu) {
		finish_swiglu(a, c, col);
		return;
	}
	int64_t cols = a->cols - col < PANEL ? a->cols - col : PANEL;
	for (int64_t r = 0; r < a->rows; r++, c += PANEL) {
		float *out = a->out + r * a->out_ld + col;
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

/* Of the rows, so much stays in L2: equal parts of k, in whole K blocks. */
static int64_t row_depth(int64_t k)
{
	int64_t parts = (k + DEPTH_L2 - 1) / DEPTH_L2;
	return round_up((k + parts - 1) / parts, LINEAR_K);
}

/* All row tiles of one panel over the K block [k0, k1), while the next block comes from memory. sums: of the panel, [rows][PANEL]. */
static void panel_depth(const struct linear_item *a, int64_t p, int64_t k0, int64_t k1, float *wide, float *sums)
{
	const char *panel = a->w + p * a->panel_bytes, *block = panel + k0 * PANEL * (a->bf16 ? 2 : 4);
	int64_t bytes = (k1 - k0) * PANEL * (a->bf16 ? 2 : 4), slice = round_up(bytes * TILE_ROWS / a->rows, 64);
	wide = a->bf16 && WIDEN_ONCE ? wide : NULL;
	if (wide)
		widen_panel(wide, (const uint32_t *)block, k1 - k0);
	for (int64_t r = 0; r < a->rows; r += TILE_ROWS) {
		const char *next = block + bytes + r / TILE_ROWS * slice;
		for (int64_t i = 0; i < slice; i += 64)
			_mm_prefetch(next + i, _MM_HINT_T1);
		tile_of_panel(a, r, a->rows - r < TILE_ROWS ? a->rows - r : TILE_ROWS, panel, wide, k0, k1 - k0, sums + r * PANEL);
	}
}

static void linear_many(const struct linear_item *a, void *scratch)
{
	float *wide = scratch, *sums = wide + LINEAR_K * PANEL; /* sums [panel][rows][PANEL], of one panel where the whole depth is done at once */
	int64_t panels = (a->cols + PANEL - 1) / PANEL, depth = row_depth(a->k);
	for (int64_t k0 = 0, k1; k0 < a->k; k0 = k1) {
		k1 = k0 + depth < a->k ? k0 + depth : a->k;
		bool whole = k0 == 0 && k1 == a->k;
		for (int64_t p = 0; p < panels; p++) {
			float *c = sums + (whole ? 0 : p * a->rows * PANEL);
			for (int64_t k = k0; k < k1; k += LINEAR_K)
				panel_depth(a, p, k, k1 - k < LINEAR_K ? k1 : k + LINEAR_K, wide, c);
			if (k1 == a->k)
				finish(a, c, p * PANEL);
		}
	}
}

static void linear_few(const struct linear_item *a, float *sums)
{
	for (int64_t p = 0; p < (a->cols + PANEL - 1) / PANEL; p++) {
		for (int64_t r = 0; r < a->rows; r += TILE_ROWS)
			tile_of_panel(a, r, a->rows - r < TILE_ROWS ? a->rows - r : TILE_ROWS, a->w + p * a->panel_bytes, NULL, 0, a->k, sums + r * PANEL);
		finish(a, sums, p * PANEL);
	}
}

void ISA(linear)(const struct linear_item *a, void *scratch)
{
	if (a->rows <= LINEAR_FEW)
		linear_few(a, scratch);
	else
		linear_many(a, scratch);
}

/* A depth of the rows stays in L2, and with it, where a layer is deeper, the sums of all panels. */
void ISA(linear_limits)(int64_t k, int64_t *rows, int64_t *least, int64_t *most)
{
	*rows = X_BYTES / (4 * row_depth(k)) / TILE_ROWS * TILE_ROWS;
	*rows = *rows > LINEAR_ROWS ? LINEAR_ROWS : *rows;
	*least = 1;
	*most = k > DEPTH_L2 ? LINEAR_PANELS : 1 << 20;
}
