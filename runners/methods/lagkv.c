/* lagkv.c: LagKV (arXiv 2504.04704): how far a token's key and value spread when normalised by the partition after theirs.
 * spec/methods.md 5.3.
 *
 * sinks 4, lag 128: kvpress (the authors' own package: 16, 1024). Behind the sinks, partitions of `lag` tokens; in partition p
 * each channel is scaled by the minimum and maximum of p+1; the deviation over channels (divided by d-1) goes through a softmax
 * over p's tokens; keys and values are averaged and ranked inside p, rank / lag. Sinks, the last partition and the remainder
 * score 1. Fewer than sinks + 2*lag tokens: recency. Equal ranks of different partitions tie, so the tie rule keeps early
 * partitions (as kvpress; the authors take r*lag in each). Differences: a range of 0 is lifted to 1e-6 (the references divide by
 * zero); equal values in a partition rank by the tie rule. */
#include "runners/methods/parts.h"

#include <math.h>
#include <stdlib.h>

void lagkv_partition(const float *x, int64_t lag, int d, double *out)
{
	const float *next = x + lag * d;
	double *low = mem_new((size_t)d * 2, sizeof(*low)), *range = low + d, most = -INFINITY, sum = 0;
	for (int i = 0; i < d; i++) {
		double high = low[i] = next[i];
		for (int64_t j = 1; j < lag; j++) {
			low[i] = fmin(low[i], next[j * d + i]);
			high = fmax(high, next[j * d + i]);
		}
		range[i] = fmax(high - low[i], 1e-6);
	}
	for (int64_t j = 0; j < lag; j++) {
		double mean = 0, square = 0;
		for (int i = 0; i < d; i++)
			mean += (x[j * d + i] - low[i]) / range[i] / d;
		for (int i = 0; i < d; i++) {
			double z = (x[j * d + i] - low[i]) / range[i] - mean;
			square += z * z;
		}
		out[j] = sqrt(square / (d > 1 ? d - 1 : 1));
		most = fmax(most, out[j]);
	}
	for (int64_t j = 0; j < lag; j++)
		sum += out[j] = exp(out[j] - most);
	for (int64_t j = 0; j < lag; j++)
		out[j] /= sum;
	free(low);
}

struct ranked {
	double value;
	int64_t at;
};

static int worse_first(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	return x->at > y->at ? -1 : 1; /* of equals the lower index is the better one */
}

void lagkv_scores(const float *k, const float *v, int64_t n, int d, int64_t sinks, int64_t lag, float *out)
{
	if (n < sinks + 2 * lag) {
		for (int64_t j = 0; j < n; j++)
			out[j] = j < sinks ? 1 : (float)(j - sinks) / (float)(n - sinks);
		return;
	}
	int64_t scored = ((n - sinks) / lag - 1) * lag;
	double *of_k = mem_new((size_t)lag * 2, sizeof(*of_k)), *of_v = of_k + lag;
	struct ranked *order = mem_new((size_t)lag, sizeof(*order));
	for (int64_t j = 0; j < n; j++)
		out[j] = 1;
	for (int64_t start = sinks; start < sinks + scored; start += lag) {
		lagkv_partition(k + start * d, lag, d, of_k);
		lagkv_partition(v + start * d, lag, d, of_v);
		for (int64_t j = 0; j < lag; j++)
			order[j] = (struct ranked){(of_k[j] + of_v[j]) / 2, j};
		qsort(order, (size_t)lag, sizeof(*order), worse_first);
		for (int64_t rank = 0; rank < lag; rank++)
			out[start + order[rank].at] = (float)rank / (float)lag;
	}
	free(of_k);
	free(order);
}

static void score(const struct head_rows *h)
{
	const struct scoring *s = h->scoring;
	lagkv_scores(
		h->k, h->v, h->n, h->d, sinks_left(s, param_int(s->params, "sinks")), param_int(s->params, "lag"), h->scores);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	return each_head(s, s->shape.first, s->shape.count, true, score, NULL, err);
}

static const struct param_def defs[] = {{.name = "sinks", .kind = PARAM_INT, .number = 4, .max = 1e6, .origin = "kvpress"},
	{.name = "lag", .kind = PARAM_INT, .number = 128, .min = 1, .max = 1e6, .origin = "kvpress"}, {NULL}};

const struct scorer scorer_lagkv = {.name = "lagkv",
	.title = "spread against the next partition, ranked",
	.origin = "LagKV, arXiv 2504.04704",
	.params = defs,
	.mass = MASS_ALIKE,
	.finish = finish};
