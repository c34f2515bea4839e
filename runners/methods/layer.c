/* layer.c: every layer keeps the same number, its KV heads compete for it: kvpress' `layerwise` KVzip. spec/methods.md 3.2.
 * Ada-KV with alpha = 0. compat=kvpress evicts the trunc(heads * n * (1-r)) lowest of each layer. */
#include "runners/methods/parts.h"

static int64_t layer_best(const struct allocation *a)
{
	return pooled_keep(a, a->kv_heads) - (a->protect.first + a->protect.last) * a->kv_heads;
}

static void share_layer(void *arg, int64_t l)
{
	struct allocation *a = arg;
	top_counts(NULL, candidates(a, (int)l * a->kv_heads, a->kv_heads), layer_best(a), a->budget + l * a->kv_heads);
}

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	if (candidates_resident(a)) {
		for (int l = 0; l < a->layers; l++)
			if (resident_counts(a, l * a->kv_heads, a->kv_heads, layer_best(a), a->budget + l * a->kv_heads, err))
				return -1;
	} else if (a->device)
		device_parallel(a->device, a->layers, share_layer, a);
	else
		for (int l = 0; l < a->layers; l++)
			share_layer(a, l);
	for (int i = 0; i < a->layers * a->kv_heads; i++)
		a->budget[i] += a->protect.first + a->protect.last;
	return 0;
}

const struct allocator allocator_layer = {.name = "layer",
	.title = "the same number in every layer, one ranking over its KV heads",
	.origin = "kvpress' layerwise KVzip",
	.allocate = allocate,
	.exact = true};
