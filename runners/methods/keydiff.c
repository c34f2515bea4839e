/* keydiff.c: KeyDiff (arXiv 2504.15364): s = -cos(k, mean of the unit keys); keys unlike the others are kept.
 * spec/methods.md 5.2. Post-RoPE keys, anchor over the evictable rows, no parameters, no protection. One-shot as in kvpress; the
 * paper works block by block with a small cache. A key without length has cosine 0 (norms are at least 1e-8, torch's
 * cosine_similarity). */
#include "runners/methods/parts.h"

#include <math.h>
#include <stdlib.h>

static double norm(const float *k, int d)
{
	double sum = 0;
	for (int i = 0; i < d; i++)
		sum += (double)k[i] * k[i];
	return sqrt(sum);
}

void keydiff_scores(const float *k, int64_t n, int d, float *out)
{
	double *anchor = mem_new((size_t)d, sizeof(*anchor)), length = 0;
	for (int64_t j = 0; j < n; j++) {
		double inverse = 1 / fmax(norm(k + j * d, d), 1e-12);
		for (int i = 0; i < d; i++)
			anchor[i] += k[j * d + i] * inverse;
	}
	for (int i = 0; i < d; i++) {
		anchor[i] /= (double)n;
		length += anchor[i] * anchor[i];
	}
	length = fmax(sqrt(length), 1e-8);
	for (int64_t j = 0; j < n; j++) {
		double dot = 0;
		for (int i = 0; i < d; i++)
			dot += k[j * d + i] * anchor[i];
		out[j] = (float)-(dot / (fmax(norm(k + j * d, d), 1e-8) * length));
	}
	free(anchor);
}

static void score(const struct head_rows *h)
{
	keydiff_scores(h->k, h->n, h->d, h->scores);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	return each_head(s, s->shape.first, s->shape.count, false, score, NULL, err);
}

const struct scorer scorer_keydiff = {.name = "keydiff",
	.title = "minus the cosine with the mean key",
	.origin = "KeyDiff, arXiv 2504.15364",
	.mass = MASS_NONE,
	.finish = finish};
