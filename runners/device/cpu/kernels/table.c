/* table.c: this instruction set's row of kernels. */
#include "runners/device/cpu/kernels/simd.h"

const struct cpu_kernels ISA(kernels) = {
	.name = ISA_STRING(KVB_ISA),
	.tile_rows = TILE_ROWS,
#ifdef __AVX512BF16__
	.pairs = true,
	.peak_dot = ISA(peak_dot),
#endif
	.pack_rows = ISA(pack_rows),
	.linear = ISA(linear),
	.attend = ISA(attend),
	.attend_part = ISA(attend_part),
	.attend_merge = ISA(attend_merge),
	.reduce = ISA(reduce),
	.rmsnorm = ISA(rmsnorm),
	.rope = ISA(rope),
	.swiglu = ISA(swiglu),
	.peak_fma = ISA(peak_fma),
	.read = ISA(read_all),
};
