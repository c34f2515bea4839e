/* dense.c: the loops of dense.h, for one instruction set. KVB_ISA is its name and ends every external name; without the flags of
 * a set the vectors are four lanes wide, which every x86-64 has. Contraction to FMA is on for this file alone (Makefile). */
#include "runners/lkv/dense.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define CAT2(a, b) a##_##b
#define CAT(a, b) CAT2(a, b)
#define STRING2(a) #a
#define STRING(a) STRING2(a)
#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
enum { VL = 16, ROWS = 12 };
#elif defined(__AVX2__)
enum { VL = 8, ROWS = 6 };
#else
enum { VL = 4, ROWS = 4 };
#endif
enum { HID_MAX = 512, INPUT_MAX = 512 };

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef float vf_mem __attribute__((vector_size(VL * 4), aligned(4), may_alias));

INLINE vf load(const float *p)
{
	return *(const vf_mem *)p;
}
INLINE void store(float *p, vf x)
{
	*(vf_mem *)p = x;
}
INLINE vf set(float x)
{
	return x - (vf){0};
}
/* vmax and vmin give b where either is NaN; inverse: 1/x to about one unit in the last place, x in [1, 2^125]. */
#if defined(__AVX512F__)
INLINE vf vmax(vf a, vf b)
{
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}
INLINE vf vmin(vf a, vf b)
{
	return (vf)_mm512_min_ps((__m512)a, (__m512)b);
}
INLINE vf inverse(vf x)
{
	vf r = (vf)_mm512_rcp14_ps((__m512)x);
	return r + r * (set(1) - x * r);
}
INLINE float sum(vf x)
{
	return _mm512_reduce_add_ps((__m512)x);
}
#else
#ifdef __AVX2__
INLINE vf vmax(vf a, vf b)
{
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}
INLINE vf vmin(vf a, vf b)
{
	return (vf)_mm256_min_ps((__m256)a, (__m256)b);
}
#else
INLINE vf vmax(vf a, vf b)
{
	vi more = a > b;
	return (vf)((more & (vi)a) | (~more & (vi)b));
}
INLINE vf vmin(vf a, vf b)
{
	vi less = a < b;
	return (vf)((less & (vi)a) | (~less & (vi)b));
}
#endif
INLINE vf inverse(vf x)
{
	return set(1) / x;
}
INLINE float sum(vf x)
{
	float a[VL];
	store(a, x);
	for (int n = VL / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			a[i] += a[i + n];
	return a[0];
}
#endif

/* e^x to about one unit in the last place: 2^n e^r, |r| <= ln 2 / 2, a polynomial of degree 6. */
INLINE vf vexp(vf x)
{
	vf y = vmin(set(88.0f), vmax(set(-87.0f), x)); /* a NaN stays */
	vf n = (y * set(1.44269504f) + set(12582912.0f)) - set(12582912.0f);
	vf r = y - n * set(0.693359375f);
	r = r - n * set(-2.12194440e-4f);
	vf p = set(1.3981999e-3f);
	p = p * r + set(8.3334519e-3f);
	p = p * r + set(4.1665796e-2f);
	p = p * r + set(1.6666665e-1f);
	p = p * r + set(0.5f);
	p = p * r * r + r + set(1.0f);
	vi e = __builtin_convertvector(n, vi) << 23;
	return (vf)((vi)p + e);
}

/* ---- products ---- */

INLINE void tile(int rows, int vecs, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b, int64_t ldb,
	float *c, int64_t ldc, bool add)
{
	vf s[ROWS][2];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
		for (int j = 0; j < vecs; j++)
			s[i][j] = add ? load(c + i * ldc + j * VL) : set(0);
	for (int64_t t = 0; t < k; t++) {
		vf w[2];
#pragma GCC unroll 2
		for (int j = 0; j < vecs; j++)
			w[j] = load(b + t * ldb + j * VL);
#pragma GCC unroll 12
		for (int i = 0; i < rows; i++) {
			vf x = set(a[i * a_row + t * a_col]);
#pragma GCC unroll 2
			for (int j = 0; j < vecs; j++)
				s[i][j] += x * w[j];
		}
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
		for (int j = 0; j < vecs; j++)
			store(c + i * ldc + j * VL, s[i][j]);
}

static void column(int64_t m, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b, int64_t ldb, float *c,
	int64_t ldc, bool add)
{
	for (int64_t i = 0; i < m; i++) {
		float s = add ? c[i * ldc] : 0;
		for (int64_t t = 0; t < k; t++)
			s += a[i * a_row + t * a_col] * b[t * ldb];
		c[i * ldc] = s;
	}
}

static void product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b, int64_t ldb,
	float *c, int64_t ldc, bool add)
{
	int64_t j = 0;
	for (; j + 2 * VL <= n; j += 2 * VL) {
		int64_t i = 0;
		for (; i + ROWS <= m; i += ROWS)
			tile(ROWS, 2, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
		for (; i + 2 <= m; i += 2)
			tile(2, 2, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
		for (; i < m; i++)
			tile(1, 2, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
	}
	for (; j + VL <= n; j += VL) {
		int64_t i = 0;
		for (; i + ROWS <= m; i += ROWS)
			tile(ROWS, 1, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
		for (; i < m; i++)
			tile(1, 1, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
	}
	for (; j < n; j++)
		column(m, k, a, a_row, a_col, b + j, ldb, c + j, ldc, add);
}

/* ---- rows ---- */

static float exp_sum(float *x, int64_t n, float top)
{
	vf s = {0};
	int64_t i = 0;
	float rest = 0;
	for (; i + VL <= n; i += VL) {
		vf e = vexp(load(x + i) - set(top));
		store(x + i, e);
		s += e;
	}
	if (i < n) {
		float buf[VL] = {0};
		memcpy(buf, x + i, (size_t)(n - i) * sizeof *buf);
		vf e = vexp(load(buf) - set(top));
		store(buf, e);
		for (int t = 0; t < n - i; t++) {
			x[i + t] = buf[t];
			rest += buf[t];
		}
	}
	return sum(s) + rest;
}

static void silu(const float *h, int64_t n, float *s, float *ds)
{
	for (int64_t i = 0; i < n; i += VL) {
		float in[VL] = {0}, out[VL], slope[VL];
		size_t bytes = (size_t)(n - i < VL ? n - i : VL) * sizeof(float);
		memcpy(in, h + i, bytes);
		vf x = load(in), g = inverse(set(1) + vexp(-x));
		store(out, x * g);
		store(slope, g * (set(1) + x * (set(1) - g)));
		memcpy(s + i, out, bytes);
		if (ds)
			memcpy(ds + i, slope, bytes);
	}
}

/* ---- utilities ---- */

INLINE void less_mean(const float *from, const float *mean, int n, float *x)
{
	int t = 0;
	for (; t + VL <= n; t += VL)
		store(x + t, load(from + t) - load(mean + t));
	for (; t < n; t++)
		x[t] = from[t] - mean[t];
}

/* Row i of the inputs, less their means: the key turned back by its position's angle, then the value. */
INLINE void input_row(const struct utility_item *u, int64_t i, float *x)
{
	int d = u->d, half = d / 2, t = 0;
	const float *k = u->k + i * d, *c = u->cs + i * d, *m = u->mean;
	if (u->v)
		less_mean(u->v + i * d, u->k ? m + d : m, d, u->k ? x + d : x);
	if (u->k && !u->cs)
		less_mean(k, m, d, x);
	if (!u->k || !u->cs)
		return;
	for (; t + VL <= half; t += VL) {
		vf a = load(k + t), b = load(k + t + half), cos = load(c + t), sin = load(c + half + t);
		store(x + t, a * cos + b * sin - load(m + t));
		store(x + t + half, b * cos - a * sin - load(m + t + half));
	}
	for (; t < half; t++) {
		float a = k[t], b = k[t + half];
		x[t] = a * c[t] + b * c[half + t] - m[t];
		x[t + half] = b * c[t] - a * c[half + t] - m[t + half];
	}
}

/* rows (a constant) rows of inputs x [rows][INPUT_MAX] through the network. */
INLINE void network(const struct utility_item *u, int rows, const float *x, int64_t inputs, float *out)
{
	vf s[ROWS];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
		s[i] = set(0);
	for (int h = 0; h < u->hid; h += 2 * VL) {
		float z[ROWS * 2 * VL];
		tile(rows, 2, inputs, x, INPUT_MAX, 1, u->w1 + h, u->hid, z, 2 * VL, false);
		for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
			for (int j = 0; j < 2; j++) {
				vf a = load(z + i * 2 * VL + j * VL) + load(u->b1 + h + j * VL);
				s[i] += load(u->w2 + h + j * VL) * (a * inverse(set(1) + vexp(-a)));
			}
	}
	for (int i = 0; i < rows; i++)
		out[i] = u->b2 + sum(s[i]);
}

#ifdef __AMX_BF16__
enum { TILE = 16, BLOCK = 32 };

/* The configuration belongs to the thread: loaded and released by every item. */
static void tiles_configure(void)
{
	struct {
		uint8_t palette, start, reserved[14];
		uint16_t row_bytes[16];
		uint8_t rows[16];
	} c __attribute__((aligned(64))) = {.palette = 1};
	for (int i = 0; i < 8; i++) {
		c.row_bytes[i] = 64;
		c.rows[i] = TILE;
	}
	__asm__ volatile("" : : "r"(&c) : "memory"); /* gcc 12 names 8 of the 64 bytes as input and may drop the other stores */
	_tile_loadconfig(&c);
}

/* z [32][32] = x [32][ld] (bf16) times 32 hidden units. */
INLINE void tile_block(const uint16_t *x, int64_t ld, const uint16_t *w, int64_t steps, float *z)
{
	__asm__ volatile("" : : : "memory"); /* gcc's tile loads do not say that they read x */
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	for (int64_t k = 0; k < steps; k++, w += 2 * TILE * 32) {
		_tile_loadd(4, x + k * 32, ld * 2);
		_tile_loadd(5, x + TILE * ld + k * 32, ld * 2);
		_tile_loadd(6, w, 64);
		_tile_loadd(7, w + TILE * 32, 64);
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
	_tile_stored(0, z, BLOCK * 4);
	_tile_stored(1, z + TILE, BLOCK * 4);
	_tile_stored(2, z + TILE * BLOCK, BLOCK * 4);
	_tile_stored(3, z + TILE * BLOCK + TILE, BLOCK * 4);
}

static void utilities(const struct utility_item *u)
{
	uint16_t x[BLOCK * INPUT_MAX] __attribute__((aligned(64)));
	float z[BLOCK * BLOCK] __attribute__((aligned(64))), row[INPUT_MAX];
	int64_t inputs = (int64_t)u->d * ((u->k != NULL) + (u->v != NULL)), ld = (inputs + 31) / 32 * 32;
	memset(row, 0, (size_t)ld * sizeof *row);
	tiles_configure();
	for (int64_t at = 0; at < u->n; at += BLOCK) {
		int64_t rows = u->n - at < BLOCK ? u->n - at : BLOCK;
		vf sums[BLOCK];
		for (int64_t r = 0; r < BLOCK; r++) {
			input_row(u, at + (r < rows ? r : rows - 1), row);
			for (int64_t i = 0; i < ld; i += 32)
				*(__m512i *)(x + r * ld + i) =
					(__m512i)_mm512_cvtne2ps_pbh((__m512)load(row + i + VL), (__m512)load(row + i));
			sums[r] = set(0);
		}
		for (int h = 0; h < u->hid; h += BLOCK) {
			tile_block(x, ld, u->tiles + h / BLOCK * ld * BLOCK, ld / 32, z);
			for (int64_t r = 0; r < rows; r++)
				for (int j = 0; j < 2; j++) {
					vf a = load(z + r * BLOCK + j * VL) + load(u->b1 + h + j * VL);
					sums[r] += load(u->w2 + h + j * VL) * (a * inverse(set(1) + vexp(-a)));
				}
		}
		for (int64_t r = 0; r < rows; r++)
			u->out[at + r] = u->b2 + sum(sums[r]);
	}
	_tile_release();
}
#else
static void utilities(const struct utility_item *u)
{
	float x[ROWS * INPUT_MAX];
	int64_t inputs = (int64_t)u->d * ((u->k != NULL) + (u->v != NULL)), i = 0;
	for (; i + ROWS <= u->n; i += ROWS) {
		for (int r = 0; r < ROWS; r++)
			input_row(u, i + r, x + r * INPUT_MAX);
		network(u, ROWS, x, inputs, u->out + i);
	}
	for (; i < u->n; i++) {
		input_row(u, i, x);
		network(u, 1, x, inputs, u->out + i);
	}
}
#endif

const struct dense_kernels CAT(dense_kernels, KVB_ISA) = {STRING(KVB_ISA), product, exp_sum, silu, utilities};
