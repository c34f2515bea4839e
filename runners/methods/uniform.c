/* uniform.c: every layer and KV head keeps the same number of entries. The budget of SnapKV, H2O, TOVA and all geometric methods
 * (spec/methods.md 2.1, 4, 5), and of KVzip's "pair-uniform" (3.1 step 4). */
#include "runners/methods/parts.h"

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	(void)err;
	for (int i = 0; i < a->layers * a->kv_heads; i++)
		a->budget[i] = a->keep;
	return 0;
}

const struct allocator allocator_uniform = {.name = "uniform",
	.title = "the same number in every layer and KV head",
	.origin = "all one-budget methods",
	.allocate = allocate,
	.fixed = true,
	.exact = true};
