// cuda_fp16.h (emulation): half precision as a storage format: conversions only, rounded to nearest even. Arithmetic is not emulated.
#pragma once
#include "cuda_runtime.h"
#ifdef __cplusplus
struct __half {
	unsigned short __x;
};
typedef __half half;
inline float __half2float(__half h) {
	unsigned sign = (unsigned)(h.__x & 0x8000) << 16, e = h.__x >> 10 & 31, m = h.__x & 1023;
	if (e == 31) return __uint_as_float(sign | 0x7f800000u | m << 13);
	if (e == 0) return __uint_as_float(sign | __float_as_uint((float)m * 0x1p-24f));
	return __uint_as_float(sign | (e + 112) << 23 | m << 13);
}
inline __half __float2half_rn(float f) {
	unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
	if (a > 0x7f800000u) return {0x7fff};
	if (a >= 0x477ff000u) return {(unsigned short)(sign | 0x7c00)}; // 65520 and more: infinity
	if (a < 0x38800000u) return {(unsigned short)(sign | (unsigned)rintf(__uint_as_float(a) * 0x1p24f))};
	return {(unsigned short)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13))};
}
inline __half __float2half(float f) { return __float2half_rn(f); }
inline __half __ushort_as_half(unsigned short u) { return {u}; }
inline unsigned short __half_as_ushort(__half h) { return h.__x; }
#endif
