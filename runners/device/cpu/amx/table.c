/* table.c: the AMX row of kernels; what tiles do nothing for comes from AVX-512. */
#include "runners/device/cpu/amx/tile.h"

/* Eight independent products in flight. */
double ISA(peak_dot)(int64_t n)
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

extern void rmsnorm_avx512(float *out, const float *x, const float *w, int64_t n, float eps);
extern void rope_avx512(float *x, const float *cos, const float *sin, int d);
extern double peak_fma_avx512(int64_t n);
extern float read_all_avx512(const float *x, int64_t n);

const struct cpu_kernels ISA(kernels) = {
	.name = ISA_STRING(KVB_ISA),
	.tile_rows = OPERAND_BLOCK,
	.bf16_alone = true,
	.blocks = true,
	.pack_rows = ISA(pack_rows),
	.linear_limits = ISA(linear_limits),
	.linear = ISA(linear),
	.attend_rows = 448,
	.attend = ISA(attend),
	.part_floats = ISA(part_floats),
	.attend_part = ISA(attend_part),
	.attend_merge = ISA(attend_merge),
	.reduce_keys = 256,
	.reduce = ISA(reduce),
	.rmsnorm = rmsnorm_avx512,
	.rope = rope_avx512,
	.peak_fma = peak_fma_avx512,
	.peak_dot = ISA(peak_dot),
	.read = read_all_avx512,
};
