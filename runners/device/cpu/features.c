/* features.c: what the CPU has, each set of instructions with all that its kernels take for granted. A file of its own so that
 * the tests' emulated units can be linked in its place (tests/tiles). */
#include "runners/device/cpu/cpu.h"

#include <cpuid.h>

bool cpu_has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool cpu_has_avx512(void)
{
	return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool cpu_has_avx512bf16(void)
{
	return cpu_has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
}

bool cpu_has_amx(void)
{
	unsigned a, b, c, d, bf16 = 1u << 22, tile = 1u << 24;
	return cpu_has_avx512bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & bf16 && d & tile;
}
