// test_scalars.cu: scalar intrinsics and the 16-bit formats against their plain definitions; every bf16 and fp16 value, rounding
// against double.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/cudaemu/test.h"

static unsigned bits(float f)
{
	unsigned u;
	memcpy(&u, &f, 4);
	return u;
}
// The nearest value with `mantissa` bits after the point, ties to even, of those at least `smallest` apart; from the definition,
// in double.
static double nearest(double v, int mantissa, double smallest)
{
	int e;
	if (v == 0 || isnan(v) || isinf(v))
		return v;
	frexp(v, &e);
	double step = ldexp(1.0, e - 1 - mantissa);
	if (step < smallest)
		step = smallest;
	return rint(v / step) * step;
}
static float some_float(uint32_t *seed)
{ // all exponents
	unsigned u = next_random(seed) ^ next_random(seed) >> 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static void test_bf16_conversions(void **)
{
	for (unsigned u = 0; u < 65536; u++) {
		__nv_bfloat16 b = __ushort_as_bfloat16((unsigned short)u);
		assert_int_equal(bits(__bfloat162float(b)), u << 16);
		if (isnan(__bfloat162float(b)))
			assert_int_equal(__bfloat16_as_ushort(__float2bfloat16_rn(__bfloat162float(b))), 0x7fff);
		else
			assert_int_equal(__bfloat16_as_ushort(__float2bfloat16_rn(__bfloat162float(b))), u);
	}
	uint32_t seed = 1;
	for (int i = 0; i < 200000; i++) {
		float f = some_float(&seed);
		if (i % 4 == 0)
			f = __uint_as_float((bits(f) & 0xffff0000u) | 0x8000u); // ties
		if (isnan(f))
			continue;
		double want = nearest(f, 7, ldexp(1.0, -133));
		if (fabs(want) > 3.3895313892515355e38)
			want = copysign(INFINITY, want);
		assert_true((double)__bfloat162float(__float2bfloat16_rn(f)) == want);
		assert_true(fabsf(__bfloat162float(__float2bfloat16_rz(f))) <= fabsf(f));
	}
}
static void test_bf16_arithmetic(void **)
{
	uint32_t seed = 2;
	for (int i = 0; i < 100000; i++) {
		__nv_bfloat16 a = __float2bfloat16_rn(next_float(&seed)), b = __float2bfloat16_rn(next_float(&seed)),
			      c = __float2bfloat16_rn(next_float(&seed));
		double x = __bfloat162float(a), y = __bfloat162float(b), z = __bfloat162float(c);
		assert_true(__bfloat162float(__hadd(a, b)) == nearest(x + y, 7, 0));
		assert_true(__bfloat162float(__hsub(a, b)) == nearest(x - y, 7, 0));
		assert_true(__bfloat162float(__hmul(a, b)) == nearest(x * y, 7, 0));
		assert_true(__bfloat162float(__hfma(a, b, c)) == nearest(x * y + z, 7, 0));
		assert_true(__bfloat162float(__hmax(a, b)) == fmax(x, y));
		assert_true(__hlt(a, b) == (x < y) && __hge(a, b) == (x >= y));
		__nv_bfloat162 p = __hfma2(__halves2bfloat162(a, b), __halves2bfloat162(b, c), __halves2bfloat162(c, a));
		assert_true(__low2float(p) == nearest(x * y + z, 7, 0) && __high2float(p) == nearest(y * z + x, 7, 0));
	}
	__nv_bfloat162 v = __floats2bfloat162_rn(1.5f, -2.25f);
	uint32_t raw;
	memcpy(&raw, &v, 4);
	assert_int_equal(raw, 0xc0103fc0u); // x in the low half
}
static void test_fp16_conversions(void **)
{
	for (unsigned u = 0; u < 65536; u++) {
		float f = __half2float(__ushort_as_half((unsigned short)u));
		int e = (int)(u >> 10 & 31), m = (int)(u & 1023);
		double want = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
		if (u & 0x8000)
			want = -want;
		if (isnan(want)) {
			assert_true(isnan(f));
			continue;
		}
		assert_true(f == want);
		assert_int_equal(__half_as_ushort(__float2half_rn(f)), u);
	}
	uint32_t seed = 3;
	for (int i = 0; i < 200000; i++) {
		float f = some_float(&seed);
		if (isnan(f))
			continue;
		if (i & 1)
			f = ldexpf(next_float(&seed), (int)(next_random(&seed) >> 24) % 48 - 30);
		double want = nearest(f, 10, ldexp(1.0, -24));
		if (fabs(want) > 65504)
			want = copysign(INFINITY, want);
		assert_true((double)__half2float(__float2half_rn(f)) == want);
	}
}
static void test_integers(void **)
{
	uint32_t seed = 4;
	for (int i = 0; i < 50000; i++) {
		unsigned a = next_random(&seed), b = next_random(&seed) >> (i % 32), s = next_random(&seed) >> 8;
		unsigned long long w = (unsigned long long)a << 32 | b;
		int pop = 0, clz = 32, ffs = 0, pop64 = 0, clz64 = 64;
		unsigned rev = 0;
		for (int k = 0; k < 64; k++) {
			if (w >> k & 1)
				pop64++, clz64 = 63 - k;
			if (k >= 32)
				continue;
			if (b >> k & 1) {
				pop++, clz = 31 - k, rev |= 1u << (31 - k);
				if (!ffs)
					ffs = k + 1;
			}
		}
		assert_int_equal(__popc(b), pop);
		assert_int_equal(__clz((int)b), clz);
		assert_int_equal(__ffs((int)b), ffs);
		assert_int_equal(__brev(b), rev);
		assert_int_equal(__popcll(w), pop64);
		assert_int_equal(__clzll((long long)w), clz64);
		assert_int_equal(__umulhi(a, b), (unsigned)((unsigned long long)a * b >> 32));
		assert_int_equal(__mulhi((int)a, (int)b), (int)((long long)(int)a * (int)b >> 32));
		unsigned sh = s & 31, l = sh ? b << sh | a >> (32 - sh) : b, r = sh ? a >> sh | b << (32 - sh) : a;
		assert_int_equal(__funnelshift_l(a, b, s), l);
		assert_int_equal(__funnelshift_r(a, b, s), r);
		unsigned char bytes[8];
		memcpy(bytes, &a, 4);
		memcpy(bytes + 4, &b, 4);
		unsigned perm = 0;
		for (int k = 0; k < 4; k++)
			perm |= (unsigned)bytes[s >> 4 * k & 7] << 8 * k;
		assert_int_equal(__byte_perm(a, b, s), perm);
		int dot = 9;
		for (int k = 0; k < 4; k++)
			dot += (int)(signed char)(a >> 8 * k) * (signed char)(b >> 8 * k);
		assert_int_equal(__dp4a((int)a, (int)b, 9), dot);
	}
	assert_int_equal(__clz(0), 32);
	assert_int_equal(__ffs(0), 0);
}
static void test_floats(void **)
{
	assert_int_equal(__float2int_rn(2.5f), 2);
	assert_int_equal(__float2int_rn(3.5f), 4);
	assert_int_equal(__float2int_rz(-2.9f), -2);
	assert_int_equal(__float2int_ru(2.1f), 3);
	assert_int_equal(__float2int_rd(-2.1f), -3);
	assert_int_equal(__float2int_rz(1e20f), 2147483647);
	assert_int_equal(__float2int_rz(-1e20f), -2147483647 - 1);
	assert_int_equal(__float2int_rz(NAN), 0);
	assert_int_equal(__float2uint_rz(-1.0f), 0);
	assert_true(__saturatef(-1.f) == 0 && __saturatef(2.f) == 1 && __saturatef(.5f) == .5f && __saturatef(NAN) == 0);
	assert_true(max(1, 2.5) == 2.5 && min(3u, 4u) == 3u && max(-1, 1) == 1);
	assert_true(fabsf(rsqrtf(4.f) - .5f) < 1e-7f && __fdividef(1.f, 4.f) == .25f);
	assert_true(__int_as_float(0x3f800000) == 1.f && __float_as_int(-0.f) == (int)0x80000000);
	// not contracted: (1 + 2^-12)^2 - 1 in separate roundings
	float a = 1.000244140625f;
	assert_true(__fadd_rn(__fmul_rn(a, a), -1.f) != fmaf(a, a, -1.f));
	float s, c;
	__sincosf(.5f, &s, &c);
	assert_true(s == sinf(.5f) && c == cosf(.5f) && __expf(1.f) == expf(1.f));
}

int main()
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_bf16_conversions), cmocka_unit_test(test_bf16_arithmetic),
		cmocka_unit_test(test_fp16_conversions), cmocka_unit_test(test_integers), cmocka_unit_test(test_floats)};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
