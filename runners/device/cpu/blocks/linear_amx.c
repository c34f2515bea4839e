/* linear.c: one block of y = x W^T on AMX: rows of a packed operand against panels of packed W.
 *
 * Many rows: the panel's K block stays in L1 while the rows, in L2, stream past it, and the next one is asked for from memory; a finished block is
 * written (bias, residual, SwiGLU) four rows at a time between the products of the next one, because the vector units are idle there.
 * Few rows (decoding): W streams from memory once, prefetched. Both add in the same order (tile.h). */
#include "runners/device/cpu/blocks/unit.h"

enum {
	DEPTH_L1 = 640,   /* k of a panel in L1: 40 KB */
	DEPTH_L2 = 896,   /* k of the rows in L2, where the whole depth does not fit */
	DEPTH_WHOLE = 1536,
	PREFETCH = 4096,  /* bytes ahead of W when it streams from memory */
	STREAM_ROWS = 128, /* up to so many rows W comes from memory faster than they can use it */
	FEW = 16          /* rows of one tile */
};

/* A finished block that waits to be written. */
struct done {
	const float *c;      /* four tiles; NULL = nothing waits */
	float *out;          /* of its first row and column */
	uint16_t *operand;   /* SwiGLU: the 16 columns of a 32 x 32 block of the next operand */
	const float *bias;
	int64_t rows;
	__mmask16 low, high; /* columns that exist */
};

INLINE void done_row(const struct linear_item *a, const struct done *b, int64_t r)
{
	const float *s = b->c + sums_row(r);
	vf x = vf_load(s), y = vf_load(s + TILE_VALUES);
	if (b->operand) {
		_mm256_store_si256((__m256i *)(b->operand + r * BLOCK), bf16_of(vf_silu(x) * y));
		return;
	}
	if (r >= b->rows)
		return;
	float *out = b->out + r * a->out_ld;
	if (b->bias) {
		x += (vf)_mm512_maskz_loadu_ps(b->low, b->bias);
		y += (vf)_mm512_maskz_loadu_ps(b->high, b->bias + 16);
	}
	if (a->add) {
		x += (vf)_mm512_maskz_loadu_ps(b->low, out);
		y += (vf)_mm512_maskz_loadu_ps(b->high, out + 16);
	}
	_mm512_mask_storeu_ps(out, b->low, (__m512)x);
	_mm512_mask_storeu_ps(out + 16, b->high, (__m512)y);
}

static struct done done_at(const struct linear_item *a, const float *c, int64_t row, int64_t panel)
{
	int64_t left = a->cols - panel * PANEL;
	struct done b = {.c = c, .rows = a->rows - row, .low = left >= 16 ? 0xffff : (__mmask16)((1 << left) - 1)};
	b.high = left >= 32 ? 0xffff : left <= 16 ? 0 : (__mmask16)((1 << (left - 16)) - 1);
	if (a->operand) { /* SwiGLU */
		int64_t p = a->panel0 + panel;
		b.operand = a->operand + (row / BLOCK * a->operand_blocks + p / 2) * BLOCK_VALUES + p % 2 * 16;
	} else {
		b.out = a->out + row * a->out_ld + panel * PANEL;
		b.bias = a->bias ? a->bias + panel * PANEL : NULL;
	}
	return b;
}

/* What linear_few and the first block of few rows read next of W. */
INLINE void prefetch(const char *w)
{
#pragma GCC unroll 32
	for (int i = 0; i < STEP_BYTES / 64; i++)
		_mm_prefetch(w + PREFETCH + 64 * i, _MM_HINT_T1);
}

/* What is asked for of the W that comes next, while this one is multiplied: so many lines a step. */
struct ahead {
	const char *w;
	int64_t lines;
};

/* 32 x 32 sums over kc: from `in` (NULL = zero) to `out`; `before` is written meanwhile. first: W comes from memory. */
INLINE void block_of(const struct linear_item *a, const char *x, const char *w, int64_t kc, const float *in, float *out, bool first,
	const struct done *before, struct ahead *ahead)
{
#define STEP                                                                                                                     \
	TILE_STEP(NOTHING, _tile_stream_loadd, x, _tile_loadd, w);                                                               \
	if (first)                                                                                                               \
		prefetch(w);                                                                                                     \
	else                                                                                                                     \
		for (int64_t i = 0; i < ahead->lines; i++, ahead->w += 64)                                                       \
			_mm_prefetch(ahead->w, _MM_HINT_T1);                                                                     \
	x += STEP_BYTES;                                                                                                         \
	w += STEP_BYTES
	int64_t r = 0;
	if (in)
		sums_load(in);
	else
		sums_zero();
	if (before->c)
		for (; r < BLOCK && kc > 0; kc -= 32) {
			STEP;
#pragma GCC unroll 4
			for (int64_t i = 0; i < 4; i++)
				done_row(a, before, r + i);
			r += 4;
		}
	for (; kc > 0; kc -= 32) {
		STEP;
	}
	sums_store(out);
	if (before->c)
		for (; r < BLOCK; r++)
			done_row(a, before, r);
#undef STEP
}

static const char *panel_at(const struct linear_item *a, int64_t panel, int64_t k)
{
	return a->w + panel * a->panel_bytes + k / 32 * STEP_BYTES;
}

/* All rows of one panel over k in [k0, k1), which stays in L1; `next` comes after it. `flip` alternates the two places of finished blocks. */
static void panel_depth(const struct linear_item *a, int64_t panel, int64_t k0, int64_t k1, const char *next, float *sums, float *finished, int *flip,
	struct done *before)
{
	int64_t blocks = (a->rows + BLOCK - 1) / BLOCK;
	const char *w = panel_at(a, panel, k0);
	struct ahead ahead = {next, (STEP_BYTES / 64 + blocks - 1) / blocks};
	for (int64_t b = 0; b < blocks; b++) {
		const char *x = (const char *)a->x + (b * a->k + k0) * BLOCK * 2;
		float *c = sums + b * BLOCK_VALUES, *out = k1 == a->k ? finished + (*flip ^= 1) * BLOCK_VALUES : c;
		if (b == 0 && a->rows <= STREAM_ROWS)
			block_of(a, x, w, k1 - k0, k0 ? c : NULL, out, true, before, &ahead);
		else
			block_of(a, x, w, k1 - k0, k0 ? c : NULL, out, false, before, &ahead);
		*before = k1 == a->k ? done_at(a, out, b * BLOCK, panel) : (struct done){0};
	}
}

static void linear_many(const struct linear_item *a, void *scratch)
{
	float *finished = scratch, *sums = finished + 2 * BLOCK_VALUES;
	int64_t panels = (a->cols + PANEL - 1) / PANEL, blocks = (a->rows + BLOCK - 1) / BLOCK;
	struct done before = {0};
	int flip = 0;
	tiles_configure(16);
	for (int64_t k0 = 0, k1; k0 < a->k; k0 = k1) {
		k1 = a->k <= DEPTH_WHOLE ? a->k : block_end(k0, a->k, DEPTH_L2);
		bool whole = k0 == 0 && k1 == a->k; /* a panel's sums are done with before the next panel */
		for (int64_t p = 0; p < panels; p++)
			for (int64_t k = k0, next; k < k1; k = next) {
				next = block_end(k, k1, DEPTH_L1);
				panel_depth(a, p, k, next, next < k1 ? panel_at(a, p, next) : panel_at(a, p + 1, k0),
					sums + (whole ? 0 : p * blocks * BLOCK_VALUES), finished, &flip, &before);
			}
	}
	for (int64_t r = 0; r < BLOCK; r++)
		done_row(a, &before, r);
	_tile_release();
}

static void linear_few(const struct linear_item *a, void *scratch)
{
	float *c = scratch;
	int64_t panels = (a->cols + PANEL - 1) / PANEL;
	tiles_configure((int)a->rows);
	for (int64_t p = 0; p < panels; p++) {
		const char *w = a->w + p * a->panel_bytes, *x = a->x;
		_tile_zero(0);
		_tile_zero(1);
		for (int64_t k = 0; k < a->k; k += 32, x += STEP_BYTES, w += STEP_BYTES) {
			_tile_loadd(4, x, 64);
			_tile_loadd(6, w, 64);
			_tile_dpbf16ps(0, 4, 6);
			_tile_loadd(7, w + 1024, 64);
			_tile_dpbf16ps(1, 4, 7);
			prefetch(w);
		}
		_tile_stored(0, c, 64);
		_tile_stored(1, c + TILE_VALUES, 64);
		struct done b = done_at(a, c, 0, p);
		for (int64_t r = 0; r < a->rows; r++)
			done_row(a, &b, r);
	}
	_tile_release();
}

void ISA(linear)(const struct linear_item *a, void *scratch)
{
	if (a->rows <= FEW)
		linear_few(a, scratch);
	else
		linear_many(a, scratch);
}

/* The rows' depth (and, beyond DEPTH_WHOLE, the sums of all panels) stay in L2; there every item reads its rows from memory. */
void ISA(linear_limits)(int64_t k, int64_t *rows, int64_t *least, int64_t *most)
{
	bool whole = k <= DEPTH_WHOLE;
	*rows = whole ? 900000 / (2 * k) / BLOCK * BLOCK : 256;
	*rows = *rows > 512 ? 512 : *rows;
	*least = whole ? 2 : 14;
	*most = whole ? 1 << 20 : 24;
}
