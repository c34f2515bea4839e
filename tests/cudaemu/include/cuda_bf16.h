// cuda_bf16.h (emulation): bfloat16 scalars and pairs with the conversions and arithmetic of NVIDIA's header: every operation is done in fp32 and
// rounded once to nearest even. Types are trivial, so that they may live in __shared__ arrays.
#pragma once
#include "cuda_runtime.h"
#ifdef __cplusplus
struct __nv_bfloat16_raw {
	unsigned short x;
};
struct __nv_bfloat16;
inline unsigned short cuemu_bf16_rn(float f) {
	uint32_t u = __float_as_uint(f);
	if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff; // NaN
	return (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
inline float cuemu_bf16_float(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
struct __nv_bfloat16 {
	unsigned short __x;
	__nv_bfloat16() = default;
	__nv_bfloat16(__nv_bfloat16_raw r) : __x(r.x) {}
	template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> __nv_bfloat16(T v) : __x(cuemu_bf16_rn((float)v)) {}
	operator float() const { return cuemu_bf16_float(__x); }
	operator __nv_bfloat16_raw() const { return {__x}; }
};
struct __attribute__((aligned(4))) __nv_bfloat162 {
	__nv_bfloat16 x, y;
	__nv_bfloat162() = default;
	__nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return __nv_bfloat16_raw{u}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.__x; }
inline short __bfloat16_as_short(__nv_bfloat16 b) { return (short)b.__x; }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __ushort_as_bfloat16(cuemu_bf16_rn(f)); }
inline __nv_bfloat16 __float2bfloat16(float f) { return __float2bfloat16_rn(f); }
inline __nv_bfloat16 __float2bfloat16_rz(float f) { return __ushort_as_bfloat16(f != f ? 0x7fff : (unsigned short)(__float_as_uint(f) >> 16)); }
inline __nv_bfloat16 __double2bfloat16(double d) { // rounded once: odd fp32 first
	float f = (float)d;
	uint32_t u = __float_as_uint(f);
	if (f == f && fabsf(f) < INFINITY && (double)f != d) {
		if (fabs((double)f) > fabs(d)) u--;
		u |= 1;
	}
	return __float2bfloat16_rn(__uint_as_float(u));
}
inline float __bfloat162float(__nv_bfloat16 b) { return cuemu_bf16_float(b.__x); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return __floats2bfloat162_rn(a, a); }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {__bfloat162float(v.x), __bfloat162float(v.y)}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline float __low2float(__nv_bfloat162 v) { return __bfloat162float(v.x); }
inline float __high2float(__nv_bfloat162 v) { return __bfloat162float(v.y); }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 v) { return {v.y, v.x}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }

#define CUEMU_BF16_2(name, expr)                                                                                           \
	inline __nv_bfloat16 name(__nv_bfloat16 p, __nv_bfloat16 q) {                                                          \
		float a = __bfloat162float(p), b = __bfloat162float(q);                                                            \
		return __float2bfloat16_rn(expr);                                                                                  \
	}                                                                                                                      \
	inline __nv_bfloat162 name##2(__nv_bfloat162 p, __nv_bfloat162 q) { return {name(p.x, q.x), name(p.y, q.y)}; }
CUEMU_BF16_2(__hadd, a + b)
CUEMU_BF16_2(__hsub, a - b)
CUEMU_BF16_2(__hmul, a *b)
CUEMU_BF16_2(__hmax, fmaxf(a, b))
CUEMU_BF16_2(__hmin, fminf(a, b))
inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b) { return __float2bfloat16_rn(__bfloat162float(a) / __bfloat162float(b)); }
inline __nv_bfloat162 __h2div(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }
// The product is exact in fp32; the sum is rounded to odd through double, so that the result is rounded once.
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
	return __double2bfloat16((double)__bfloat162float(a) * __bfloat162float(b) + (double)__bfloat162float(c));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) { return __ushort_as_bfloat16(a.__x ^ 0x8000); }
inline __nv_bfloat16 __habs(__nv_bfloat16 a) { return __ushort_as_bfloat16(a.__x & 0x7fff); }
inline __nv_bfloat162 __hneg2(__nv_bfloat162 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline __nv_bfloat162 __habs2(__nv_bfloat162 a) { return {__habs(a.x), __habs(a.y)}; }
inline bool __hisnan(__nv_bfloat16 a) { return (a.__x & 0x7fff) > 0x7f80; }
inline bool __heq(__nv_bfloat16 a, __nv_bfloat16 b) { return __bfloat162float(a) == __bfloat162float(b); }
inline bool __hne(__nv_bfloat16 a, __nv_bfloat16 b) { return __bfloat162float(a) != __bfloat162float(b); }
inline bool __hlt(__nv_bfloat16 a, __nv_bfloat16 b) { return __bfloat162float(a) < __bfloat162float(b); }
inline bool __hle(__nv_bfloat16 a, __nv_bfloat16 b) { return __bfloat162float(a) <= __bfloat162float(b); }
inline bool __hgt(__nv_bfloat16 a, __nv_bfloat16 b) { return __bfloat162float(a) > __bfloat162float(b); }
inline bool __hge(__nv_bfloat16 a, __nv_bfloat16 b) { return __bfloat162float(a) >= __bfloat162float(b); }
inline __nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b) { return __hadd(a, b); }
inline __nv_bfloat16 operator-(__nv_bfloat16 a, __nv_bfloat16 b) { return __hsub(a, b); }
inline __nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b) { return __hmul(a, b); }
inline __nv_bfloat16 operator/(__nv_bfloat16 a, __nv_bfloat16 b) { return __hdiv(a, b); }
inline __nv_bfloat16 operator-(__nv_bfloat16 a) { return __hneg(a); }
#endif
