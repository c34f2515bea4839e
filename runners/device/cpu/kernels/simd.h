/* simd.h: the one vocabulary the fast kernels are written in. GCC's vector types give the arithmetic; the few operations that
 * have no operator are named here for each width. Compiled once for each instruction set: KVB_ISA is its name, and ends every
 * external name.
 *
 * VL lanes of fp32; TILE_ROWS x (2 VL) is the register tile: 12 x 32 of 32 registers (AVX-512), 6 x 16 of 16 (AVX2). */
#ifndef KVB_SIMD_H
#define KVB_SIMD_H

#include "runners/device/cpu/cpu.h"

#include <immintrin.h>

#define ISA_CAT2(f, isa) f##_##isa
#define ISA_CAT(f, isa) ISA_CAT2(f, isa)
#define ISA(f) ISA_CAT(f, KVB_ISA)
#define ISA_STRING2(isa) #isa
#define ISA_STRING(isa) ISA_STRING2(isa)
#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__
enum { VL = 16, TILE_ROWS = 12 };
#else
enum { VL = 8, TILE_ROWS = 6 };
#endif
enum { TILE_COLS = 2 * VL };

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef float vf_mem __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef uint32_t vu_mem __attribute__((vector_size(VL * 4), aligned(4), may_alias));

INLINE vf vf_load(const float *p)
{
	return *(const vf_mem *)p;
}
INLINE void vf_store(float *p, vf x)
{
	*(vf_mem *)p = x;
}
INLINE vf vf_set(float x)
{
	return x - (vf){0};
}

#ifdef __AVX512F__
INLINE vf vf_fma(vf a, vf b, vf c)
{
	return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
INLINE vf vf_max(vf a, vf b) /* b where either is NaN */
{
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}
INLINE vf vf_from_bf16(const uint16_t *p)
{
	return (vf)_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
#else
INLINE vf vf_fma(vf a, vf b, vf c)
{
	return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
INLINE vf vf_max(vf a, vf b)
{
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}
INLINE vf vf_from_bf16(const uint16_t *p)
{
	return (vf)_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
#endif

/* s += a b, where s is one of as many sums as there are registers for. With 16 registers the compiler must be held to this one form and to the order
 * it stands in: left to itself it loads factors early and puts sums on the stack. */
INLINE void vf_add_product(vf *s, vf a, vf b)
{
#ifdef __AVX512F__
	*s = vf_fma(a, b, *s);
#else
	__asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*s) : "x"(a), "x"(b));
#endif
}

/* Pairs of bf16 in 32-bit lanes: the even and the odd one, widened. */
INLINE vf vf_even(vu pair)
{
	return (vf)(pair << 16);
}
INLINE vf vf_odd(vu pair)
{
	return (vf)(pair & 0xffff0000u);
}

INLINE vf vf_select(vi mask, vf yes, vf no) /* mask lanes: all ones or all zeros, as comparisons give them */
{
	return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* Rounds to bf16, held as fp32. NaN stays NaN. */
INLINE vf vf_round_bf16(vf x)
{
	vu u = (vu)x;
	return vf_select(x == x, (vf)((u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u), (vf)((u | 0x400000u) & 0xffff0000u));
}

INLINE vf vf_iota(void)
{
	vf x;
	for (int i = 0; i < VL; i++)
		x[i] = (float)i;
	return x;
}

/* Lanes [0, n) of x, `other` in the rest. */
INLINE vf vf_first(vf x, int64_t n, float other)
{
	float last = n <= 0 ? 0 : n >= VL ? (float)VL : (float)n;
	return vf_select(vf_iota() < vf_set(last), x, vf_set(other));
}

/* Horizontal sum and maximum by halving: one fixed order. A NaN lane makes the maximum NaN or leaves it out. */
INLINE float vf_sum(vf x)
{
#ifdef __AVX512F__
	return _mm512_reduce_add_ps((__m512)x);
#else
	float a[VL];
	vf_store(a, x);
	for (int n = VL / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			a[i] += a[i + n];
	return a[0];
#endif
}
INLINE float vf_highest(vf x)
{
#ifdef __AVX512F__
	return _mm512_reduce_max_ps((__m512)x);
#else
	float a[VL];
	vf_store(a, x);
	for (int n = VL / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			a[i] = a[i] > a[i + n] ? a[i] : a[i + n];
	return a[0];
#endif
}

/* Columns from rows: r[c] = the c-th of four 32-bit words at `byte` of each row, a row a lane. A vector is made of VL/4 rows' words, so that one
 * 4 x 4 transpose inside all its quarters is what is left to do. */
enum { WORDS = 4 };
INLINE void columns_load(vf r[WORDS], const char *const row[VL], int64_t byte)
{
	vf t[WORDS];
#pragma GCC unroll 4
	for (int i = 0; i < WORDS; i++) {
#define ROW_WORDS(j) _mm_loadu_ps((const float *)(row[i + (j)*WORDS] + byte))
		__m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(ROW_WORDS(0)), ROW_WORDS(1), 1);
#ifdef __AVX512F__
		t[i] = (vf)_mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps256_ps512(low), ROW_WORDS(2), 2), ROW_WORDS(3), 3);
#else
		t[i] = (vf)low;
#endif
#undef ROW_WORDS
	}
	vi low, high, low_pair, high_pair;
	for (int i = 0; i < VL; i++) {
		low[i] = i / WORDS * WORDS + i % WORDS / 2 + i % 2 * VL;
		high[i] = low[i] + 2;
		low_pair[i] = i / WORDS * WORDS + i % 2 + i % WORDS / 2 * VL;
		high_pair[i] = low_pair[i] + 2;
	}
	vf a = __builtin_shuffle(t[0], t[1], low), b = __builtin_shuffle(t[2], t[3], low), c = __builtin_shuffle(t[0], t[1], high),
	   d = __builtin_shuffle(t[2], t[3], high);
	r[0] = __builtin_shuffle(a, b, low_pair);
	r[1] = __builtin_shuffle(a, b, high_pair);
	r[2] = __builtin_shuffle(c, d, low_pair);
	r[3] = __builtin_shuffle(c, d, high_pair);
}

/* 2^x: rounding to a whole n by a large constant whose low bits then hold n + 127, a polynomial of degree 5 on [-1/2, 1/2] with
 * p(0) = 1 exactly. Relative error 2.3e-7 for x in [-126, 127]; exactly 0 below -126.5; NaN stays NaN. */
INLINE vf vf_exp2(vf x)
{
	const vf magic = vf_set(12582912.0f + 127);
	x = vf_max(vf_set(-127), x);
	vf t = x + magic, r = x - (t - magic);
	vf p = vf_set(1.33832348e-3f);
	p = vf_fma(p, r, vf_set(9.66832174e-3f));
	p = vf_fma(p, r, vf_set(5.55037855e-2f));
	p = vf_fma(p, r, vf_set(2.40223241e-1f));
	p = vf_fma(p, r, vf_set(6.93147181e-1f));
	p = vf_fma(p, r, vf_set(1.0f));
	return p * (vf)((vu)t << 23);
}
static const float LOG2E = 1.44269504088896f;

INLINE vf vf_silu(vf x)
{
	vf e = x * -LOG2E;
	return x / (1.0f + vf_exp2(vf_select(e > 126.0f, vf_set(126), e))); /* beyond: x / 2^126 stands for 0 */
}

/* c[rows][across VL] (=|+=) a[rows][kc] * b[kc][across VL]: one accumulator an element, k ascending. rows and across <= 4 must be constants
 * where this is inlined. a: element (row, k) at row * a_row + k * a_k. */
enum { ACROSS = 4 };
INLINE void tile_f32(int rows, int across, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_ld, int64_t kc, float *c,
	int64_t c_ld, bool more)
{
	vf s[TILE_ROWS][ACROSS];
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int j = 0; j < across; j++)
			s[i][j] = more ? vf_load(c + i * c_ld + j * VL) : vf_set(0);
	for (int64_t k = 0; k < kc; k++) {
		vf w[ACROSS];
#pragma GCC unroll 4
		for (int j = 0; j < across; j++)
			w[j] = vf_load(b + j * VL);
		b += b_ld;
#pragma GCC unroll 12
		for (int i = 0; i < rows; i++) {
			vf x = vf_set(a[i * a_row]);
#pragma GCC unroll 4
			for (int j = 0; j < across; j++)
				vf_add_product(&s[i][j], x, w[j]);
		}
		a += a_k;
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int j = 0; j < across; j++)
			vf_store(c + i * c_ld + j * VL, s[i][j]);
}

/* Calls `call` with ROWS a constant equal to rows, so that the tile's loops unroll. */
#define CASE_ROWS(n, call)                                                                                                       \
	case n: {                                                                                                                \
		enum { ROWS = n };                                                                                               \
		call;                                                                                                            \
		break;                                                                                                           \
	}
#if defined __AVX512F__
#define FOR_ROWS(rows, call)                                                                                                     \
	switch (rows) {                                                                                                          \
		CASE_ROWS(1, call)                                                                                               \
		CASE_ROWS(2, call)                                                                                               \
		CASE_ROWS(3, call)                                                                                               \
		CASE_ROWS(4, call)                                                                                               \
		CASE_ROWS(5, call)                                                                                               \
		CASE_ROWS(6, call)                                                                                               \
		CASE_ROWS(7, call)                                                                                               \
		CASE_ROWS(8, call)                                                                                               \
		CASE_ROWS(9, call)                                                                                               \
		CASE_ROWS(10, call)                                                                                              \
		CASE_ROWS(11, call)                                                                                              \
		CASE_ROWS(12, call)                                                                                              \
	}
#else
#define FOR_ROWS(rows, call)                                                                                                     \
	switch (rows) {                                                                                                          \
		CASE_ROWS(1, call)                                                                                               \
		CASE_ROWS(2, call)                                                                                               \
		CASE_ROWS(3, call)                                                                                               \
		CASE_ROWS(4, call)                                                                                               \
		CASE_ROWS(5, call)                                                                                               \
		CASE_ROWS(6, call)                                                                                               \
	}
#endif

/* The kernels of this instruction set; contracts in cpu.h. */
void ISA(pack_rows)(void *dst, const float *x, int64_t ld, int64_t rows, int64_t k, bool bf16);
void ISA(linear_limits)(int64_t k, int64_t *rows, int64_t *least, int64_t *most);
void ISA(linear)(const struct linear_item *a, void *scratch);
int64_t ISA(part_floats)(const struct attend_item *a);
void ISA(attend)(const struct attend_item *a, void *scratch);
void ISA(attend_part)(const struct attend_item *a, int64_t part, float *result, void *scratch);
void ISA(attend_merge)(const struct attend_item *a, const float *parts, void *scratch);
void ISA(reduce)(const struct reduce_item *a, void *scratch);
void ISA(rmsnorm)(float *out, const float *x, const float *w, int64_t n, float eps);
void ISA(rope)(float *x, const float *cos, const float *sin, int d);
void ISA(round_row)(uint16_t *out, const float *x, int64_t n);
double ISA(peak_fma)(int64_t n);
float ISA(read_all)(const float *x, int64_t n, int streams);

#endif
