/* net.c: what the networks share: kernels of this CPU, memory, masks, transposed weights. See net.h. */
#include "runners/mapper/net.h"

#include <stdlib.h>
#include <string.h>

#define KERNELS(isa) REAL_CAT(REAL(kernels), isa)
extern const struct kernels KERNELS(plain), KERNELS(avx2), KERNELS(avx512);

const struct kernels *REAL(kernels_at)(int i)
{
	const struct kernels *list[3];
	int n = 0;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512vl"))
		list[n++] = &KERNELS(avx512);
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
		list[n++] = &KERNELS(avx2);
	list[n++] = &KERNELS(plain);
	return i < n ? list[i] : NULL;
}

real *REAL(block_new)(size_t count)
{
	void *block;
	if (count > SIZE_MAX / sizeof(real) - 2 * PAD || posix_memalign(&block, 64, (count + 2 * PAD) * sizeof(real)))
		return NULL;
	memset(block, 0, (count + 2 * PAD) * sizeof(real));
	return (real *)block + PAD;
}

void REAL(block_free)(real *block)
{
	if (block)
		free(block - PAD);
}

void REAL(pool_run)(const struct mapper_pool *pool, int64_t n, void (*fn)(void *arg, int64_t item), void *arg)
{
	if (pool && n > 1)
		pool->run(pool->user, n, fn, arg);
	else
		for (int64_t i = 0; i < n; i++)
			fn(arg, i);
}

void REAL(strip_mask)(const struct strip *s, real *rows, int64_t n)
{
	int64_t begin = s->first < 0 ? -s->first : 0, end = s->n - s->first < s->cols ? s->n - s->first : s->cols;
	if (begin == 0 && end == s->cols)
		return;
	for (int64_t r = 0; r < n; r++)
		for (int64_t t = 0; t < s->cols; t++)
			if (t < begin || t >= end)
				rows[r * s->ld + t] = 0;
}

void REAL(conv_transpose)(const real *w, int rows, int channels, int taps, real *out)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < channels; c++)
			for (int k = 0; k < taps; k++)
				out[(c * rows + r) * taps + taps - 1 - k] = w[(r * channels + c) * taps + k];
}

const struct net_kind *REAL(net_kind)(int kind)
{
	static const struct net_kind *const kinds[] = {
		[MAPPER_FLAT] = &REAL(net_flat), [MAPPER_LINEAR] = &REAL(net_linear), [MAPPER_AXIAL] = &REAL(net_axial)};
	return kinds[kind];
}
