/* norm.c: layer norm and batch norm over rows of channels, the GELU behind them (the erf form), and their gradients.
 *
 * Layer norm: statistics of the channels of one position, biased variance, eps 1e-5. Batch norm: statistics of one channel over
 * all positions of all sequences, gathered by the caller. Everything is one vector of positions wide, so both are the same loop.
 */
#include "runners/mapper/kernels/vec.h"

static const real NORM_EPS = (real)1e-5;

INLINE void norm_column(const struct norm *a, int64_t t, bool batch, bool gelu)
{
	vr mean = vr_set(0), factor = vr_set(0);
	if (!batch) {
		for (int c = 0; c < a->channels; c++)
			mean += vr_load(a->in + c * a->ld + t) + (a->shift ? a->shift[c] : 0);
		mean *= (real)1 / (real)a->channels;
		for (int c = 0; c < a->channels; c++) {
			vr x = vr_load(a->in + c * a->ld + t) + (a->shift ? a->shift[c] : 0) - mean;
			factor += x * x;
		}
		factor = vr_rsqrt(factor * ((real)1 / (real)a->channels) + NORM_EPS);
		vr_store(a->rstd + t, factor);
	}
	for (int c = 0; c < a->channels; c++) {
		vr x = vr_load(a->in + c * a->ld + t) + (a->shift ? a->shift[c] : 0);
		x = batch ? (x - a->mean[c]) * a->rstd[c] : (x - mean) * factor;
		vr_store(a->xhat + c * a->ld + t, x);
		x = x * a->gain[c] + a->bias[c];
		vr_store(a->out + c * a->ld + t, gelu ? vr_gelu(x) : x);
	}
}

void KERNEL(norm)(const struct norm *a)
{
	bool batch = a->mean != NULL;
	for (int64_t t = 0; t < a->cols; t += VL)
		if (a->gelu)
			norm_column(a, t, batch, true);
		else
			norm_column(a, t, batch, false);
}

void KERNEL(norm_grad)(const struct norm *a, real *d, real *dgain, real *dbias)
{
	for (int c = 0; c < a->channels; c++) {
		vr sum = vr_set(0), sum_x = vr_set(0);
		for (int64_t t = 0; t < a->cols; t += VL) {
			vr g = vr_load(d + c * a->ld + t), x = vr_load(a->xhat + c * a->ld + t);
			if (a->gelu) {
				g *= vr_gelu_slope(x * a->gain[c] + a->bias[c]);
				vr_store(d + c * a->ld + t, g);
			}
			sum += g;
			sum_x += g * x;
		}
		dgain[c] += vr_sum(sum_x);
		dbias[c] += vr_sum(sum);
	}
}

void KERNEL(norm_back_layer)(const struct norm *a, real *d)
{
	const real share = (real)1 / (real)a->channels;
	for (int64_t t = 0; t < a->cols; t += VL) {
		vr mean = vr_set(0), mean_x = vr_set(0), factor = vr_load(a->rstd + t);
		for (int c = 0; c < a->channels; c++) {
			vr g = vr_load(d + c * a->ld + t) * a->gain[c];
			mean += g;
			mean_x += g * vr_load(a->xhat + c * a->ld + t);
		}
		mean *= share;
		mean_x *= share;
		for (int c = 0; c < a->channels; c++) {
			vr g = vr_load(d + c * a->ld + t) * a->gain[c];
			vr_store(d + c * a->ld + t, factor * (g - mean - vr_load(a->xhat + c * a->ld + t) * mean_x));
		}
	}
}

void KERNEL(norm_back_batch)(const struct norm *a, real *d, const real *sum_d, const real *sum_dx, double count)
{
	const real share = (real)(1 / count);
	for (int c = 0; c < a->channels; c++) {
		const real factor = a->gain[c] * a->rstd[c], mean = sum_d[c] * share, mean_x = sum_dx[c] * share;
		for (int64_t t = 0; t < a->cols; t += VL) {
			vr g = vr_load(d + c * a->ld + t), x = vr_load(a->xhat + c * a->ld + t);
			vr_store(d + c * a->ld + t, factor * (g - mean - x * mean_x));
		}
	}
}

void KERNEL(gelu)(const real *in, real *out, int64_t n)
{
	for (int64_t i = 0; i < n; i += VL)
		vr_store(out + i, vr_gelu(vr_load(in + i)));
}

void KERNEL(gelu_back)(const real *in, real *d, int64_t n)
{
	for (int64_t i = 0; i < n; i += VL)
		vr_store(d + i, vr_load(d + i) * vr_gelu_slope(vr_load(in + i)));
}
