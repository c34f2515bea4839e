/* features.c: from raw column sums to what a mapper reads (spec 1.2): divided by the queries that see the key, compressed,
 * standardised by the training set's mean and deviation of the row. */
#include "runners/mapper/impl.h"
#include "runners/mapper/net.h"

void feature_row(const struct feature_plan *p, int row, const float *raw, const float *scale, int64_t cols, float *out)
{
	float mean = p->mean ? p->mean[row] : 0, factor = p->dev ? 1.0f / p->dev[row] : 1;
	kernels_at_f32(0)->feature(raw, scale, mean, factor, p->config->compress, cols, out);
}
