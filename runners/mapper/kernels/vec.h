/* vec.h: vectors of `real` for the mapper's kernels, compiled for each element type and instruction set (KVB_ISA).
 *
 * GCC's vector types give the arithmetic; the build lets a * b + c contract to one FMA. double takes exp, log and erf from libm,
 * lane by lane: it serves tests and ridge regression, where digits count and time does not. */
#ifndef KVB_MAPPER_VEC_H
#define KVB_MAPPER_VEC_H

#include "runners/mapper/net.h"

#include <immintrin.h>
#include <math.h>

#define KERNEL_CAT2(name, type, isa) name##_##type##_##isa
#define KERNEL_CAT(name, type, isa) KERNEL_CAT2(name, type, isa)
#define KERNEL(name) KERNEL_CAT(name, KVB_REAL_NAME, KVB_ISA)
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
#define INLINE static inline __attribute__((always_inline))

#if defined __AVX512F__
#define VEC_BYTES 64
enum { TILE_ROWS = 4, TILE_VECS = 4 };
#elif defined __AVX2__
#define VEC_BYTES 32
enum { TILE_ROWS = 4, TILE_VECS = 2 };
#else
#define VEC_BYTES 16
enum { TILE_ROWS = 4, TILE_VECS = 2 };
#endif
enum { VL = VEC_BYTES / sizeof(real) };

typedef real vr __attribute__((vector_size(VEC_BYTES)));
typedef __typeof__((vr){0} > (vr){0}) vr_mask; /* integers of the same width */
typedef real vr_mem __attribute__((vector_size(VEC_BYTES), aligned(sizeof(real)), may_alias));

INLINE vr vr_load(const real *p)
{
	return *(const vr_mem *)p;
}
INLINE void vr_store(real *p, vr x)
{
	*(vr_mem *)p = x;
}
INLINE vr vr_set(real x)
{
	return x - (vr){0};
}
INLINE vr vr_select(vr_mask mask, vr yes, vr no) /* mask lanes: all ones or all zeros, as comparisons give them */
{
	return (vr)((mask & (vr_mask)yes) | (~mask & (vr_mask)no));
}
INLINE real vr_sum(vr x) /* by halving: one fixed order */
{
	real a[VL];
	vr_store(a, x);
	for (int n = VL / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			a[i] += a[i + n];
	return a[0];
}

#define IS_DOUBLE (sizeof(real) == sizeof(double))

/* Each lane through a libm function. */
#define VR_EACH(x, f)                                                                                                            \
	real lane[VL];                                                                                                           \
	vr_store(lane, x);                                                                                                       \
	for (int i = 0; i < VL; i++)                                                                                             \
		lane[i] = (real)f((double)lane[i]);                                                                              \
	return vr_load(lane)

typedef int32_t vi __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t vu __attribute__((vector_size(VEC_BYTES)));
typedef float vf __attribute__((vector_size(VEC_BYTES)));

/* The few operations without an operator, by width. */
#if defined __AVX512F__
#define VF_OP(name) (vf) _mm512_##name##_ps
#define VF_IN(x) (__m512)(x)
#elif defined __AVX2__
#define VF_OP(name) (vf) _mm256_##name##_ps
#define VF_IN(x) (__m256)(x)
#else
#define VF_OP(name) (vf) _mm_##name##_ps
#define VF_IN(x) (__m128)(x)
#endif
INLINE vf vf_max(vf a, vf b) /* b where either is NaN */
{
	return VF_OP(max)(VF_IN(a), VF_IN(b));
}
INLINE vf vf_min(vf a, vf b)
{
	return VF_OP(min)(VF_IN(a), VF_IN(b));
}
INLINE vf vf_sqrt(vf a)
{
	return VF_OP(sqrt)(VF_IN(a));
}
INLINE vf vf_set(float x)
{
	return x - (vf){0};
}
INLINE vf vf_abs(vf x)
{
	return (vf)((vi)x & 0x7fffffff);
}

/* e^x in fp32: 2^(n + r), n whole by adding a large constant whose low bits then hold n + 127, 2^r by a polynomial of degree 5
 * that is exactly 1 at 0. Relative error below 4e-7 on [-80, 80]. x in [-88, 88]. */
INLINE vf vf_exp_inside(vf x)
{
	const float magic = 12582912.0f + 127, log2e = 1.44269504f;
	vf y = x * log2e, t = y + magic, r = y - (t - magic);
	vf p = r * 1.33832348e-3f + 9.66832174e-3f;
	p = p * r + 5.55037855e-2f;
	p = p * r + 2.40223241e-1f;
	p = p * r + 6.93147181e-1f;
	p = p * r + 1.0f;
	return p * (vf)((vi)t << 23);
}
INLINE vf vf_exp(vf x)
{
	return vf_exp_inside(vf_max(vf_min(x, vf_set(88)), vf_set(-88)));
}
/* ln x in fp32, x normal and positive: m 2^e with m in [sqrt 1/2, sqrt 2), ln m = 2 atanh(s), s = (m - 1) / (m + 1). Error below
 * 2e-7 of max(1, |ln x|). */
INLINE vf vf_log(vf x)
{
	vi bits = (vi)((vu)x - 0x3f3504f3u); /* unsigned: what is no positive number gives one without a meaning, not an overflow */
	vi e = bits >> 23;
	vf m = (vf)((bits & 0x7fffff) + 0x3f3504f3);
	vf s = (m - 1.0f) / (m + 1.0f), z = s * s;
	vf p = z * 0.2222222f + 0.2857143f;
	p = p * z + 0.4f;
	p = p * z + 0.6666667f;
	p = p * z + 2.0f;
	return p * s + __builtin_convertvector(e, vf) * 0.69314718f;
}
/* 1 / x for x in [1, 5], in 3 Newton steps from a guess that is linear in the bits (12 % off): 2e-7. A division takes longer than
 * all the rest of a GELU, and the CPUs' own estimates differ. */
INLINE vf vf_reciprocal(vf x)
{
	vf r = (vf)(0x7ef311c3 - (vi)x);
	r = r * (2.0f - x * r);
	r = r * (2.0f - x * r);
	return r * (2.0f - x * r);
}
/* Standard normal distribution function and e^(-x^2/2), in fp32 (Abramowitz and Stegun 7.1.26: error below 1.5e-7). Beyond 13
 * deviations it is 0 or 1 long since. */
INLINE vf vf_normal_cdf(vf x, vf *bell)
{
	vf a = vf_min(vf_abs(x), vf_set(13));
	vf t = vf_reciprocal(a * 0.231641900f + 1.0f); /* .3275911 / sqrt 2 */
	*bell = vf_exp_inside(a * a * -0.5f);
	vf p = t * 0.530702715f - 0.726576014f;
	p = p * t + 0.710706871f;
	p = p * t - 0.142248368f;
	p = p * t + 0.127414796f;
	vf centre = 0.5f - p * t * *bell; /* of |x|: how far above 1/2 */
	return 0.5f + (vf)((vi)centre | ((vi)x & (vi)vf_set(-0.0f)));
}

INLINE vr vr_max(vr a, vr b) /* b where either is NaN */
{
	if (!IS_DOUBLE)
		return (vr)vf_max((vf)a, (vf)b);
	return vr_select(a > b, a, b);
}
INLINE vr vr_abs(vr a)
{
	return vr_max(a, -a);
}
INLINE vr vr_rsqrt(vr x)
{
	if (!IS_DOUBLE)
		return (vr)(1.0f / vf_sqrt((vf)x));
	VR_EACH(x, 1 / sqrt);
}
INLINE vr vr_exp(vr x)
{
	if (!IS_DOUBLE)
		return (vr)vf_exp((vf)x);
	VR_EACH(x, exp);
}
INLINE vr vr_log(vr x)
{
	if (!IS_DOUBLE)
		return (vr)vf_log((vf)x);
	VR_EACH(x, log);
}
INLINE vr vr_log1p(vr x) /* in fp32 for x in [0, 1], and for larger x */
{
	if (!IS_DOUBLE) {
		vf y = (vf)x, u = 1.0f + y;
		return (vr)(vf_log(u) + (y - (u - 1.0f)) / u); /* what the rounding of 1 + x lost */
	}
	VR_EACH(x, log1p);
}
INLINE vr vr_normal_cdf(vr x, vr *bell)
{
	if (!IS_DOUBLE) {
		vf b, p = vf_normal_cdf((vf)x, &b);
		*bell = (vr)b;
		return (vr)p;
	}
	real lane[VL], e[VL];
	vr_store(lane, x);
	for (int i = 0; i < VL; i++) {
		e[i] = (real)exp(-0.5 * (double)lane[i] * (double)lane[i]);
		lane[i] = (real)(0.5 * erfc(-(double)lane[i] * 0.70710678118654752440));
	}
	*bell = vr_load(e);
	return vr_load(lane);
}
INLINE vr vr_gelu(vr x)
{
	vr bell;
	return x * vr_normal_cdf(x, &bell);
}
INLINE vr vr_gelu_slope(vr x)
{
	vr bell, p = vr_normal_cdf(x, &bell);
	return p + x * bell * (real)0.39894228040143267794;
}

void KERNEL(conv)(const struct conv *a);
void KERNEL(conv_grad)(const struct conv_grad *a);
void KERNEL(norm)(const struct norm *a);
void KERNEL(norm_grad)(const struct norm *a, real *d, real *dgain, real *dbias);
void KERNEL(norm_back_layer)(const struct norm *a, real *d);
void KERNEL(norm_back_batch)(const struct norm *a, real *d, const real *sum_d, const real *sum_dx, double count);
void KERNEL(gelu)(const real *in, real *out, int64_t n);
void KERNEL(gelu_back)(const real *in, real *d, int64_t n);
void KERNEL(band)(const struct band *a);
void KERNEL(band_back)(const struct band *a);
void KERNEL(mix)(real *z, const real *x, real *mixed, int tokens, int rows, int channels, int64_t cols, int64_t ld);
void KERNEL(mix_back)(const real *a, const real *x, const real *dmixed, real *dz, real *dx, int tokens, int rows, int channels,
	int64_t cols, int64_t ld);
void KERNEL(feature)(const float *x, const float *scale, real mean, real factor, int compress, int64_t n, real *out);
double KERNEL(binary)(const real *s, const real *y, real threshold, real cut, real factor, int64_t n, real *d);

#endif
