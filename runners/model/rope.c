/* rope.c: the inverse frequencies of the rotary embedding, as transformers' modeling_rope_utils.py computes them: in fp32,
 * operation by operation, because the reference keeps them so. */
#include <math.h>

#include "runners/model/config.h"

/* Reciprocal first, then the product: what `scalar / tensor` does in torch. */
static float divide_scalar(double scalar, float x)
{
	return 1.0f / x * (float)scalar;
}

/* Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between blended. */
static float llama3(const struct rope_config *r, float f)
{
	const double n = (double)r->original_max_positions, low = r->low_freq_factor, high = r->high_freq_factor;
	const float factor = (float)r->factor, wavelen = divide_scalar(2 * M_PI, f);
	if (wavelen > (float)(n / low))
		return f / factor;
	if (wavelen < (float)(n / high))
		return f;
	const float smooth = (divide_scalar(n, wavelen) - (float)low) / (float)(high - low);
	return (1 - smooth) * f / factor + smooth * f;
}

/* The dimension whose wave turns `rotations` times within the original context. */
static double yarn_dim(const struct rope_config *r, int dim, double rotations)
{
	return dim * log((double)r->original_max_positions / (rotations * 2 * M_PI)) / (2 * log(r->theta));
}

double yarn_mscale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* YaRN: dimensions below `low` keep their frequency, those above `high` are divided by the factor, a ramp between. */
static void yarn(const struct rope_config *r, int dim, double *inv_freq, double *mscale)
{
	double low = yarn_dim(r, dim, r->beta_fast), high = yarn_dim(r, dim, r->beta_slow);
	if (!r->exact_range)
		low = floor(low), high = ceil(high);
	low = fmax(low, 0), high = fmin(high, dim - 1);
	if (low == high)
		high += 0.001;
	for (int i = 0; i < dim / 2; i++) {
		const float power = (float)pow((float)r->theta, (float)(2 * i) / (float)dim);
		const float ramp = fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0), 1), keep = 1 - ramp;
		inv_freq[i] = 1.0f / ((float)r->factor * power) * (1 - keep) + 1.0f / power * keep;
	}
	*mscale = r->attention_factor > 0 ? r->attention_factor : yarn_mscale(r->factor, 1);
}

void model_rope(const struct model_config *c, double *inv_freq, double *mscale)
{
	const struct rope_config *r = &c->rope;
	*mscale = 1;
	if (r->kind == ROPE_YARN) {
		yarn(r, c->head_dim, inv_freq, mscale);
		return;
	}
	for (int i = 0; i < c->head_dim / 2; i++) {
		const float f = 1.0f / (float)pow((float)r->theta, (float)(2 * i) / (float)c->head_dim);
		inv_freq[i] = r->kind == ROPE_LINEAR   ? f / (float)r->factor
			      : r->kind == ROPE_TABLE  ? f / r->divisors[i]
			      : r->kind == ROPE_LLAMA3 ? llama3(r, f)
						       : f;
	}
}
