/* global.c: one ranking over all layers and KV heads: KVzip's "pair" budget (arXiv 2505.23416). spec/methods.md 3.1 step 4, 3.2.
 *
 * Difference: the authors keep what is strictly above the (trunc(all * r))-th score, so one pair fewer, and all of a tie is lost
 * (saturated scores lose thousands). Ours is the exact number by the common tie rule. compat=kvzip is theirs; compat=kvpress
 * evicts the trunc(all * (1-r)) lowest. */
#include "runners/methods/parts.h"

#include <math.h>
#include <string.h>

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	int heads = a->layers * a->kv_heads;
	int64_t held = a->protect.first + a->protect.last;
	struct slices s = candidates(a, 0, heads);
	if (strcmp(param_compat(a->params), "kvzip") == 0) {
		double place = trunc((double)(heads * a->n) * a->retained) - 1 - (double)(held * heads);
		counts_above(a->device, s, place > 0 ? (int64_t)place : 0, a->budget);
	} else if (candidates_resident(a)) {
		if (resident_counts(a, 0, heads, pooled_keep(a, heads) - held * heads, a->budget, err))
			return -1;
	} else {
		top_counts(a->device, s, pooled_keep(a, heads) - held * heads, a->budget);
	}
	for (int i = 0; i < heads; i++)
		a->budget[i] += held;
	return 0;
}

static const struct compat_mode modes[] = {{"kvzip", NULL}, {NULL, NULL}};

const struct allocator allocator_global = {.name = "global",
	.title = "one ranking over all layers and KV heads",
	.origin = "KVzip's pair budget, arXiv 2505.23416",
	.compat = modes,
	.allocate = allocate,
	.exact = true};
