/* random.c: independent uniform scores: the lower control of every sweep. spec/methods.md 5.11 (kvpress RandomPress).
 * Ours: one counter-based stream for each (seed of the sample, layer, head), so that threads and the order of layers cannot
 * matter. */
#include "runners/methods/parts.h"

static void fill(void *arg, int64_t i)
{
	const struct scoring *s = arg;
	struct rng r = rng_seed(s->seed, (uint64_t)(i / s->kv_heads) << 32 | (uint64_t)(i % s->kv_heads));
	float *out = s->scores + i * s->shape.count;
	for (int64_t j = 0; j < s->shape.count; j++)
		out[j] = (float)rng_unit(&r);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	(void)err;
	each(s, s->layers * s->kv_heads, fill, s);
	return 0;
}

const struct scorer scorer_random = {.name = "random", .title = "uniform random numbers", .origin = "ours", .finish = finish};
