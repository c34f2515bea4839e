/* knorm.c: L2-norm (arXiv 2406.11430): s = -||k||_2; keys of small norm are kept. spec/methods.md 5.1.
 * No parameters, no protection. Difference: KVCache-Factory leaves layers 0 and 1 whole; kvpress and ours do not. fp32 (bf16
 * scores would tie). */
#include "runners/methods/parts.h"

#include <math.h>

void knorm_scores(const float *k, int64_t n, int d, float *out)
{
	for (int64_t j = 0; j < n; j++, k += d) {
		double sum = 0;
		for (int i = 0; i < d; i++)
			sum += (double)k[i] * k[i];
		out[j] = (float)-sqrt(sum);
	}
}

static void score(const struct head_rows *h)
{
	knorm_scores(h->k, h->n, h->d, h->scores);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	return each_head(s, s->shape.first, s->shape.count, false, score, NULL, err);
}

const struct scorer scorer_knorm = {
	.name = "knorm", .title = "minus the norm of the key", .origin = "arXiv 2406.11430", .mass = MASS_NONE, .finish = finish};
