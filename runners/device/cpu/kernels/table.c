/* table.c: this instruction set's row of kernels. */
#include "runners/device/cpu/kernels/simd.h"

const struct cpu_kernels ISA(kernels) = {
	.name = ISA_STRING(KVB_ISA),
	.tile_rows = TILE_ROWS,
	.pack_rows = ISA(pack_rows),
	.linear_limits = ISA(linear_limits),
	.linear = ISA(linear),
	.attend_rows = 192,
	.attend = ISA(attend),
	.part_floats = ISA(part_floats),
	.attend_part = ISA(attend_part),
	.attend_merge = ISA(attend_merge),
	.reduce_keys = ATTN_BLOCK,
	.reduce_most = ATTN_BLOCK,
	.reduce = ISA(reduce),
	.rmsnorm = ISA(rmsnorm),
	.rope = ISA(rope),
	.round_row = ISA(round_row),
	.peak_fma = ISA(peak_fma),
	.read = ISA(read_all),
};
