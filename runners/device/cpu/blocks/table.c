/* table.c: a row of kernels on blocks of bf16; what products do nothing for comes from AVX-512. */
#include "runners/device/cpu/blocks/unit.h"

#ifdef __AMX_TILE__
#define DOT_NAME "tdpbf16ps"
enum { OWN_ROWS = 128, REDUCE_MOST = 1024 };
/* Eight independent products in flight. */
static double peak_dot(int64_t n)
{
	tiles_configure(16);
	sums_zero();
	_tile_zero(4);
	_tile_zero(5);
	_tile_zero(6);
	_tile_zero(7);
	for (int64_t i = 0; i < n; i += 8) { /* a tile product takes as long as eight vector instructions */
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
	_tile_release();
	return 4.0 * 2 * 16 * 16 * 32 * (double)((n + 7) / 8);
}
#else
#define DOT_NAME "vdpbf16ps"
enum { OWN_ROWS = 0, REDUCE_MOST = 256 };
static double peak_dot(int64_t n)
{
	enum { CHAINS = 20 }; /* independent sums: latency x units of every core met so far */
	__m512 s[CHAINS];
	__m512bh a = (__m512bh)_mm512_set1_epi32(0x3f003f00), b = (__m512bh)_mm512_set1_epi32(0x3e803e80);
#pragma GCC unroll 20
	for (int i = 0; i < CHAINS; i++)
		s[i] = _mm512_setzero_ps();
	for (int64_t r = 0; r < n; r++) {
#pragma GCC unroll 20
		for (int i = 0; i < CHAINS; i++) {
			s[i] = _mm512_dpbf16_ps(s[i], a, b);
			__asm__ volatile("" : "+v"(s[i]));
		}
	}
	return 4.0 * VL * CHAINS * (double)n;
}
#endif

extern void rmsnorm_avx512(float *out, const float *x, const float *w, int64_t n, float eps);
extern void rope_avx512(float *x, const float *cos, const float *sin, int d);
extern void round_row_avx512(uint16_t *out, const float *x, int64_t n);
extern double peak_fma_avx512(int64_t n);
extern float read_all_avx512(const float *x, int64_t n, int streams);

const struct cpu_kernels ISA(kernels) = {
	.name = ISA_STRING(KVB_ISA),
	.tile_rows = OPERAND_BLOCK,
	.dot = DOT_NAME,
	.pack_rows = ISA(pack_rows),
	.pack_panel = ISA(pack_panel),
	.panel_column = ISA(panel_column),
	.own_rows = OWN_ROWS,
	.linear_limits = ISA(linear_limits),
	.linear = ISA(linear),
	.attend_rows = 448,
	.attend = ISA(attend),
	.part_floats = ISA(part_floats),
	.attend_part = ISA(attend_part),
	.attend_merge = ISA(attend_merge),
	.reduce_keys = 256,
	.reduce_most = REDUCE_MOST,
	.reduce = ISA(reduce),
	.rmsnorm = rmsnorm_avx512,
	.rope = rope_avx512,
	.round_row = round_row_avx512,
	.peak_fma = peak_fma_avx512,
	.peak_dot = peak_dot,
	.read = read_all_avx512,
};
