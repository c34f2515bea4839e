/* steps_plain.h: what a list of steps means (runners/device/steps.h), in plain loops and double precision. */
#ifndef KVB_TEST_STEPS_PLAIN_H
#define KVB_TEST_STEPS_PLAIN_H

#include "runners/device/steps.h"

#include <math.h>
#include <stdlib.h>

struct plain_matrix {
	double *x; /* [rows][cols] */
	int64_t cols;
	const float *params;
};

static inline double *plain_row(const struct plain_matrix *m, struct step_rows r, int item, int64_t row)
{
	return m->x + (r.row + item * r.each + row) * m->cols;
}
static inline double plain_param(const struct plain_matrix *m, struct step_params p, int item, int64_t i)
{
	return p.at < 0 ? 0 : (double)m->params[p.at + item * p.each + i];
}
static inline double plain_gelu(double x)
{
	return .5 * x * erfc(-x / sqrt(2));
}

static inline void plain_feature(const struct plain_matrix *m, const struct step *s, int item)
{
	for (int r = 0; r < s->rows; r++)
		for (int64_t t = 0; t < m->cols; t++) {
			double x = plain_row(m, s->in, item, r)[t] * plain_row(m, s->with, item, 0)[t];
			x = s->compress == STEP_LOG ? log(x + 1e-6) : s->compress == STEP_LOG1P ? log1p(x) : x;
			plain_row(m, s->out, item, r)[t] =
				(x - plain_param(m, s->shift, item, r)) * plain_param(m, s->weight, item, r);
		}
}

static inline void plain_conv(const struct plain_matrix *m, const struct step *s, int item)
{
	for (int r = 0; r < s->rows; r++)
		for (int64_t t = 0; t < m->cols; t++) {
			double *out = &plain_row(m, s->out, item, r)[t],
			       sum = (s->add ? *out : 0) + plain_param(m, s->bias, item, r);
			for (int c = 0; c < s->channels; c++)
				for (int k = 0; k < s->taps; k++) {
					int64_t from = t + k - s->taps / 2;
					if (from >= 0 && from < m->cols)
						sum += plain_param(m, s->weight, item, r * s->stride + c * s->taps + k) *
						       plain_row(m, s->in, item, c * s->apart)[from];
				}
			*out = s->gelu ? plain_gelu(sum) : sum;
		}
}

static inline void plain_norm(const struct plain_matrix *m, const struct step *s, int item)
{
	for (int64_t t = 0; t < m->cols; t++) {
		double mean = 0, square = 0;
		for (int pass = 0; pass < 2; pass++)
			for (int c = 0; c < s->channels; c++) {
				double x = plain_row(m, s->in, item, c)[t] + plain_param(m, s->shift, item, c);
				mean += pass ? 0 : x / s->channels;
				square += pass ? (x - mean) * (x - mean) / s->channels : 0;
			}
		for (int c = 0; c < s->channels; c++) {
			double x = plain_row(m, s->in, item, c)[t] + plain_param(m, s->shift, item, c),
			       *out = &plain_row(m, s->out, item, c)[t];
			x = (x - mean) / sqrt(square + 1e-5) * plain_param(m, s->weight, item, c) +
			    plain_param(m, s->bias, item, c);
			*out = (s->add ? *out : 0) + (s->gelu ? plain_gelu(x) : x);
		}
	}
}

static inline void plain_band(const struct plain_matrix *m, const struct step *s, int item)
{
	double *p = malloc((size_t)m->cols * sizeof *p);
	for (int64_t t = 0; t < m->cols; t++) {
		double sum = 0;
		for (int64_t k = 0; k < m->cols; k++) {
			int64_t far = k - t < -s->half ? -s->half : k - t > s->half ? s->half : k - t;
			double dot = 0;
			for (int c = 0; c < s->channels; c++)
				dot += plain_row(m, s->in, item, c)[t] * plain_row(m, s->in, item, s->apart + c)[k];
			p[k] = llabs(k - t) > s->window
				       ? 0
				       : exp(dot / sqrt(s->channels) + plain_param(m, s->weight, item, s->half + far));
			sum += p[k];
		}
		for (int c = 0; c < s->channels; c++) {
			double mixed = 0;
			for (int64_t k = 0; k < m->cols; k++)
				mixed += p[k] / sum * plain_row(m, s->in, item, 2 * s->apart + c)[k];
			plain_row(m, s->out, item, c)[t] = mixed;
		}
	}
	free(p);
}

static inline void plain_mix(const struct plain_matrix *m, const struct step *s, int item)
{
	for (int r = 0; r < s->rows; r++)
		for (int64_t t = 0; t < m->cols; t++) {
			double sum = 0;
			for (int p = 0; p < s->tokens; p++)
				sum += exp(plain_row(m, s->in, item, (int64_t)p * s->rows + r)[t]);
			for (int c = 0; c < s->channels; c++) {
				double mixed = 0;
				for (int p = 0; p < s->tokens; p++)
					mixed += exp(plain_row(m, s->in, item, (int64_t)p * s->rows + r)[t]) / sum *
						 plain_row(m, s->with, item, (int64_t)p * s->channels + c)[t];
				plain_row(m, s->out, item, (int64_t)r * s->channels + c)[t] = mixed;
			}
		}
}

static inline void plain_steps(const struct plain_matrix *m, const struct step *steps, int n)
{
	static void (*const run[])(const struct plain_matrix *, const struct step *, int) = {[STEP_FEATURE] = plain_feature,
		[STEP_CONV] = plain_conv,
		[STEP_NORM] = plain_norm,
		[STEP_BAND] = plain_band,
		[STEP_MIX] = plain_mix};
	for (int i = 0; i < n; i++)
		for (int item = 0; item < steps[i].batch; item++)
			run[steps[i].kind](m, &steps[i], item);
}

#endif
