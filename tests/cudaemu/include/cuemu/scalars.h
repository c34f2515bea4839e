// cuemu/scalars.h: scalar intrinsics, each by its plain definition. Fast-math forms are exact here: tolerances must be chosen for a GPU.
#pragma once
#include <time.h>
// <math.h> of glibc declares some of these names itself, so they are macros.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __sincosf(x, s, c) sincosf(x, s, c)
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
// Never contracted to an FMA on a GPU: the barrier keeps the host compiler from doing it.
inline float cuemu_keep(float v) {
	asm volatile("" : "+g"(v));
	return v;
}
inline float __fadd_rn(float a, float b) { return cuemu_keep(a) + cuemu_keep(b); }
inline float __fsub_rn(float a, float b) { return cuemu_keep(a) - cuemu_keep(b); }
inline float __fmul_rn(float a, float b) { return cuemu_keep(a * b); }
inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; } // NaN gives 0

template <class A, class B>
constexpr std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> max(A a, B b) {
	using C = std::common_type_t<A, B>;
	if constexpr (std::is_floating_point_v<C>)
		return (C)a != (C)a ? (C)b : (C)a < (C)b ? (C)b : (C)a; // one NaN gives the other, as fmax
	else
		return (C)a < (C)b ? (C)b : (C)a;
}
template <class A, class B>
constexpr std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> min(A a, B b) {
	using C = std::common_type_t<A, B>;
	if constexpr (std::is_floating_point_v<C>)
		return (C)a != (C)a ? (C)b : (C)b < (C)a ? (C)b : (C)a;
	else
		return (C)b < (C)a ? (C)b : (C)a;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x) {
	unsigned long long r = 0;
	for (int i = 0; i < 64; i++) r |= (x >> i & 1) << (63 - i);
	return r;
}
inline unsigned __brev(unsigned x) { return (unsigned)(__brevll(x) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
inline unsigned __byte_perm(unsigned lo, unsigned hi, unsigned s) {
	uint64_t v = (uint64_t)hi << 32 | lo;
	unsigned r = 0;
	for (int i = 0; i < 4; i++) r |= (unsigned)(v >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
	return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((uint64_t)hi << 32 | lo) << (s & 31) >> 32); }
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((uint64_t)hi << 32 | lo) >> (s & 31)); }
inline int __dp4a(int a, int b, int c) {
	for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
	return c;
}

template <class To, class From> inline To cuemu_bits(From f) {
	static_assert(sizeof(To) == sizeof(From));
	To t;
	memcpy((void *)&t, (const void *)&f, sizeof t);
	return t;
}
inline int __float_as_int(float f) { return cuemu_bits<int>(f); }
inline unsigned __float_as_uint(float f) { return cuemu_bits<unsigned>(f); }
inline float __int_as_float(int i) { return cuemu_bits<float>(i); }
inline float __uint_as_float(unsigned i) { return cuemu_bits<float>(i); }
inline long long __double_as_longlong(double d) { return cuemu_bits<long long>(d); }
inline double __longlong_as_double(long long i) { return cuemu_bits<double>(i); }

// Conversions saturate on a GPU, and NaN becomes 0.
template <class I> inline I cuemu_to(double v) {
	const double lo = (double)std::numeric_limits<I>::min(), hi = (double)std::numeric_limits<I>::max();
	return v != v ? 0 : v <= lo ? std::numeric_limits<I>::min() : v >= hi ? std::numeric_limits<I>::max() : (I)v;
}
inline int __float2int_rn(float f) { return cuemu_to<int>(rintf(f)); }
inline int __float2int_rz(float f) { return cuemu_to<int>(truncf(f)); }
inline int __float2int_ru(float f) { return cuemu_to<int>(ceilf(f)); }
inline int __float2int_rd(float f) { return cuemu_to<int>(floorf(f)); }
inline unsigned __float2uint_rn(float f) { return cuemu_to<unsigned>(rintf(f)); }
inline unsigned __float2uint_rz(float f) { return cuemu_to<unsigned>(truncf(f)); }
inline unsigned __float2uint_rd(float f) { return cuemu_to<unsigned>(floorf(f)); }
inline float __int2float_rn(int i) { return (float)i; }
inline float __uint2float_rn(unsigned i) { return (float)i; }
inline float __ll2float_rn(long long i) { return (float)i; }
inline float __ull2float_rn(unsigned long long i) { return (float)i; }
inline double __int2double_rn(int i) { return i; }
inline float __double2float_rn(double d) { return (float)d; }

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldca(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldlu(const T *p) { return *p; }
template <class T> inline T __ldcv(const T *p) { return *p; }
template <class T> inline void __stwb(T *p, typename cuemu::Same<T>::type v) { *p = v; }
template <class T> inline void __stcg(T *p, typename cuemu::Same<T>::type v) { *p = v; }
template <class T> inline void __stcs(T *p, typename cuemu::Same<T>::type v) { *p = v; }
template <class T> inline void __stwt(T *p, typename cuemu::Same<T>::type v) { *p = v; }
[[noreturn]] inline void __trap() { cuemu::trap("__trap()"); }
inline void __nanosleep(unsigned) {}
inline long long clock64() {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}
