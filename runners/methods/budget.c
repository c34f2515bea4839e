/* budget.c: integers that add up: what the allocators share. */
#include "runners/methods/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void share_out(const double *raw, int n, int64_t total, int64_t *out)
{
	double *rest = mem_new((size_t)n + 1, sizeof(*rest));
	int64_t left = total;
	for (int i = 0; i < n; i++) {
		out[i] = (int64_t)floor(raw[i] + 1e-9); /* sums of fractions often end just under an integer */
		rest[i] = raw[i] - (double)out[i];
		left -= out[i];
	}
	for (; left > 0; left--) {
		int best = 0;
		for (int i = 1; i < n; i++)
			if (rest[i] > rest[best] + 1e-9)
				best = i;
		out[best]++;
		rest[best] -= 1;
	}
	for (; left < 0; left++) { /* only when raw adds up to more than total by rounding */
		int best = n - 1;
		for (int i = n - 2; i >= 0; i--)
			if (out[best] == 0 || (out[i] > 0 && rest[i] < rest[best] - 1e-9))
				best = i;
		out[best]--;
		rest[best] += 1;
	}
	free(rest);
}

struct slices candidates(const struct allocation *a, int first, int count)
{
	return (struct slices){
		a->scores + first * a->n + a->protect.first, count, a->n, a->n - a->protect.first - a->protect.last};
}

bool candidates_resident(const struct allocation *a)
{
	return a->scoring && scores_resident(a->scoring);
}

int resident_counts(const struct allocation *a, int first, int count, int64_t k, int64_t *counts, char err[ERR_LEN])
{
	int64_t len = candidates(a, first, count).len;
	k = k < 0 ? 0 : k < count * len ? k : count * len;
	if (op_top_counts(forward_queue(a->scoring->forward), scores_resident(a->scoring), first, count, a->protect.first, len, k, counts))
		return err_set(err, "ranking scores: %s", device_error(forward_device(a->scoring->forward)));
	return 0;
}

int64_t pooled_keep(const struct allocation *a, int64_t heads)
{
	if (strcmp(param_compat(a->params), "kvpress") == 0) /* evicts trunc(all * its ratio) of the flattened scores */
		return heads * a->n - (int64_t)trunc((double)(heads * a->n) * evicted_share(a->retained));
	return heads * a->keep;
}
