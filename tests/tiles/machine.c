/* machine.c: the machine that the emulated units run on, linked in place of runners/device/cpu/features.c: it has AMX and
 * AVX512-BF16 where the real one has AVX-512, and none of the other sets, so that tests of all paths do not run those once more.
 * The system grants the tiles, unless it is made to refuse (a seccomp filter): syscall() is wrapped.
 *
 * A test program ends at once, with a skip that gives the reason, where there is no AVX-512; and fails if it made no product of
 * tiles. */
#include "runners/device/cpu/cpu.h"
#include "tests/tiles/tiles.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool have_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool cpu_has_avx2(void)
{
	return false;
}
bool cpu_has_avx512(void)
{
	return false;
}
bool cpu_has_avx512bf16(void)
{
	return have_avx512();
}
bool cpu_has_amx(void)
{
	return have_avx512();
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
	long rc = __real_syscall(number, a, b, c, d, e, f);
	bool asked = number == SYS_arch_prctl && a == REQUEST_PERMISSION && b == TILE_DATA;
	if (!asked || (rc && errno == EPERM))
		return rc;
	tiles_grant();
	return 0;
}

__attribute__((constructor)) static void begin(void)
{
	if (have_avx512())
		return;
	printf("skip - %s: emulated tiles need a CPU with AVX-512\n", program_invocation_short_name);
	fflush(stdout);
	_exit(0);
}
__attribute__((destructor)) static void end(void)
{
	if (tiles_were_used())
		return;
	fprintf(stderr, "emulated tiles: no test made a product of them\n");
	_exit(1);
}
