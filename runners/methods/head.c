/* head.c: whole KV heads: KVzip's "head" budget (arXiv 2505.23416). spec/methods.md 3.1 step 4, 6.3.
 *
 * A head's score is its largest candidate score; whole heads are kept by descending score while they fit the budget, the others
 * keep their protected entries alone (none for KVzip: such a head sees prefix, question and answer only). With the scorer
 * kvzip-head the scores are the model's static table, which is the authors' method; any other scorer ranks the heads of this one
 * context. Difference: the authors apply the strict pair threshold to scores spread over all positions. compat=kvzip is theirs.
 * Not exact: the realised share is the largest multiple of one head that fits. */
#include "runners/methods/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	(void)err;
	int heads = a->layers * a->kv_heads;
	int64_t held = a->protect.first + a->protect.last;
	struct slices s = candidates(a, 0, heads);
	float *sigma = mem_new((size_t)heads, sizeof(*sigma));
	for (int i = 0; i < heads; i++) {
		const float *row = s.scores + i * s.stride;
		sigma[i] = row[0];
		for (int64_t j = 1; j < s.len; j++)
			if (row[j] > sigma[i] || row[j] != row[j])
				sigma[i] = row[j];
	}
	struct slices one_each = {sigma, heads, 1, 1};
	if (strcmp(param_compat(a->params), "kvzip") == 0) {
		double place = trunc((double)(heads * a->n) * a->retained) - 1 - (double)(held * heads);
		counts_above(a->device, one_each, place > 0 ? (int64_t)place / s.len : 0, a->budget);
	} else {
		top_counts(a->device, one_each, heads * (a->keep - held) / s.len, a->budget);
	}
	for (int i = 0; i < heads; i++)
		a->budget[i] = held + a->budget[i] * s.len;
	free(sigma);
	return 0;
}

static const struct compat_mode modes[] = {{"kvzip", NULL}, {NULL, NULL}};

const struct allocator allocator_head = {.name = "head",
	.title = "whole KV heads by their best score, as many as fit",
	.origin = "KVzip's head budget, arXiv 2505.23416",
	.compat = modes,
	.allocate = allocate,
	.exact = false};
