/* layer.c: every layer keeps the same number, its KV heads compete for it: kvpress' `layerwise` KVzip. spec/methods.md 3.2.
 * Ada-KV with alpha = 0. compat=kvpress evicts the trunc(heads * n * (1-r)) lowest of each layer. */
#include "runners/methods/parts.h"

static void share_layer(void *arg, int64_t l)
{
	struct allocation *a = arg;
	int64_t held = a->protect.first + a->protect.last, *budget = a->budget + l * a->kv_heads;
	top_counts(
		NULL, candidates(a, (int)l * a->kv_heads, a->kv_heads), pooled_keep(a, a->kv_heads) - held * a->kv_heads, budget);
	for (int c = 0; c < a->kv_heads; c++)
		budget[c] += held;
}

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	(void)err;
	if (a->device)
		device_parallel(a->device, a->layers, share_layer, a);
	else
		for (int l = 0; l < a->layers; l++)
			share_layer(a, l);
	return 0;
}

const struct allocator allocator_layer = {.name = "layer",
	.title = "the same number in every layer, one ranking over its KV heads",
	.origin = "kvpress' layerwise KVzip; methods.md 3.2",
	.allocate = allocate,
	.exact = true};
