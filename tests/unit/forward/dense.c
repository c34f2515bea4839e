/* dense.c: see dense.h. Slow on purpose. */
#include "tests/unit/forward/dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct dense {
	const struct model *model;
	const struct model_config *c;
	double *inv_freq, mscale;
};

struct dense *dense_open(const struct model *m)
{
	struct dense *d = mem_new(1, sizeof *d);
	d->model = m;
	d->c = model_config(m);
	d->inv_freq = mem_new((size_t)d->c->head_dim, sizeof *d->inv_freq);
	model_rope(d->c, d->inv_freq, &d->mscale);
	return d;
}

void dense_close(struct dense *d)
{
	free(d->inv_freq);
	free(d);
}

static float *load(struct dense *d, enum tensor_role role, int l)
{
	int64_t rows, cols;
	char err[ERR_LEN];
	model_shape(d->model, role, l, &rows, &cols);
	float *w = mem_new((size_t)rows * (size_t)cols, sizeof *w);
	if (model_rows(d->model, role, l, 0, rows, w, err))
		die(1, "dense: %s", err);
	return w;
}

/* y[n][out] = x[n][in] W^T + b */
static double *linear(struct dense *d, const double *x, int n, enum tensor_role role, int bias, int l)
{
	int64_t out, in;
	model_shape(d->model, role, l, &out, &in);
	float *w = load(d, role, l), *b = bias >= 0 ? load(d, (enum tensor_role)bias, l) : NULL;
	double *y = mem_new((size_t)n * (size_t)out, sizeof *y);
	for (int i = 0; i < n; i++)
		for (int64_t o = 0; o < out; o++) {
			double s = b ? b[o] : 0;
			for (int64_t k = 0; k < in; k++)
				s += x[i * in + k] * (double)w[o * in + k];
			y[i * out + o] = s;
		}
	free(w);
	free(b);
	return y;
}

static void rmsnorm(struct dense *d, double *out, const double *x, int n, int width, enum tensor_role role, int l)
{
	float *w = load(d, role, l);
	for (int i = 0; i < n; i++) {
		double s = 0;
		for (int k = 0; k < width; k++)
			s += x[i * width + k] * x[i * width + k];
		s = 1 / sqrt(s / width + (double)d->c->norm_eps);
		for (int k = 0; k < width; k++)
			out[i * width + k] = x[i * width + k] * s * (double)w[k];
	}
	free(w);
}

static void rope(struct dense *d, double *x, int n, int heads)
{
	int hd = d->c->head_dim, half = hd / 2;
	for (int i = 0; i < n; i++)
		for (int h = 0; h < heads; h++)
			for (int t = 0; t < half; t++) {
				float angle = (float)i * (float)d->inv_freq[t];
				double c = cos(angle) * d->mscale, s = sin(angle) * d->mscale, *v = x + ((size_t)i * heads + h) * hd;
				double a = v[t], b = v[t + half];
				v[t] = a * c - b * s;
				v[t + half] = b * c + a * s;
			}
}

static double *attend(struct dense *d, const double *q, const double *k, const double *v, int n, int l, const unsigned char *const *mask, int n_masked,
	int from)
{
	int H = d->c->heads, K = d->c->kv_heads, hd = d->c->head_dim;
	double *out = mem_new((size_t)n * H * hd, sizeof *out), *p = mem_new((size_t)n, sizeof *p);
	for (int i = 0; i < n; i++)
		for (int h = 0; h < H; h++) {
			int kv = h / (H / K);
			double max = -INFINITY, sum = 0;
			for (int j = 0; j <= i; j++) {
				p[j] = -INFINITY;
				if (mask && i >= from && j < n_masked && mask[l * K + kv][j])
					continue;
				p[j] = 0;
				for (int t = 0; t < hd; t++)
					p[j] += q[((size_t)i * H + h) * hd + t] * k[((size_t)j * K + kv) * hd + t];
				p[j] /= sqrt(hd);
				max = p[j] > max ? p[j] : max;
			}
			for (int j = 0; j <= i; j++)
				sum += p[j] = exp(p[j] - max);
			for (int j = 0; j <= i; j++)
				for (int t = 0; t < hd; t++)
					out[((size_t)i * H + h) * hd + t] += p[j] / sum * v[((size_t)j * K + kv) * hd + t];
		}
	free(p);
	return out;
}

static void add_free(double *x, double *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] += y[i];
	free(y);
}

static void layer(struct dense *d, double *x, int n, int l, const unsigned char *const *mask, int n_masked, int from)
{
	const struct model_config *c = d->c;
	size_t nx = (size_t)n * c->hidden;
	double *h = mem_new(nx, sizeof *h);
	rmsnorm(d, h, x, n, c->hidden, T_ATTN_NORM, l);
	double *q = linear(d, h, n, T_Q, c->qkv_bias ? T_Q_BIAS : -1, l), *k = linear(d, h, n, T_K, c->qkv_bias ? T_K_BIAS : -1, l);
	double *v = linear(d, h, n, T_V, c->qkv_bias ? T_V_BIAS : -1, l);
	if (c->qk_norm) {
		rmsnorm(d, q, q, n * c->heads, c->head_dim, T_Q_NORM, l);
		rmsnorm(d, k, k, n * c->kv_heads, c->head_dim, T_K_NORM, l);
	}
	rope(d, q, n, c->heads);
	rope(d, k, n, c->kv_heads);
	double *a = attend(d, q, k, v, n, l, mask, n_masked, from);
	add_free(x, linear(d, a, n, T_O, -1, l), nx);
	rmsnorm(d, h, x, n, c->hidden, T_FFN_NORM, l);
	double *g = linear(d, h, n, T_GATE, -1, l), *u = linear(d, h, n, T_UP, -1, l);
	for (size_t i = 0; i < (size_t)n * c->ffn; i++)
		g[i] = g[i] / (1 + exp(-g[i])) * u[i];
	add_free(x, linear(d, g, n, T_DOWN, -1, l), nx);
	free(h), free(q), free(k), free(v), free(a), free(g), free(u);
}

void dense_logits(struct dense *d, const int32_t *ids, int n, const unsigned char *const *mask, int n_masked, int from, float *out)
{
	const struct model_config *c = d->c;
	float *embed = load(d, T_EMBED, 0);
	double *x = mem_new((size_t)n * c->hidden, sizeof *x);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < c->hidden; k++)
			x[(size_t)i * c->hidden + k] = embed[(size_t)ids[i] * c->hidden + k];
	free(embed);
	for (int l = 0; l < c->layers; l++)
		layer(d, x, n, l, mask, n_masked, from);
	double *last = x + (size_t)(n - 1) * c->hidden;
	rmsnorm(d, last, last, 1, c->hidden, T_FINAL_NORM, 0);
	double *y = linear(d, last, 1, c->tied ? T_EMBED : T_LM_HEAD, -1, 0);
	for (int i = 0; i < c->vocab; i++)
		out[i] = (float)y[i];
	free(y);
	free(x);
}
