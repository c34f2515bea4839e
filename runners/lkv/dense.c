/* dense.c: chooses the table of dense.h that this CPU can run. */
#include "runners/lkv/dense.h"

#include <stddef.h>
#include <string.h>

extern const struct dense_kernels dense_kernels_amx, dense_kernels_avx512, dense_kernels_avx2, dense_kernels_plain;

static bool have_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}
static bool have_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static bool have_any(void)
{
	return true;
}

static const struct { /* best first */
	const struct dense_kernels *kernels;
	bool (*supported)(void);
} tables[] = {{&dense_kernels_avx512, have_avx512}, {&dense_kernels_avx2, have_avx2}, {&dense_kernels_plain, have_any}};
enum { TABLES = sizeof tables / sizeof *tables };

const struct dense_kernels *dense_kernels_at(int i)
{
	for (int t = 0; t < TABLES; t++)
		if (tables[t].supported() && i-- == 0)
			return tables[t].kernels;
	return NULL;
}

const struct dense_kernels *dense_kernels(void)
{
	return dense_kernels_at(0);
}

const struct dense_kernels *dense_kernels_for(const char *isa)
{
	return strcmp(isa, "amx") == 0 ? &dense_kernels_amx : dense_kernels();
}
