/* expected_attention.c: Expected Attention (arXiv 2510.00636): attention expected from queries yet to come, if they are
 * distributed like the prompt's. spec/methods.md 5.8.
 *
 * Pre-RoPE queries (after bias and q-norm) from position `sinks` on: mean mu and covariance of each query head, both turned by
 * the rotation averaged over the next `future` positions, with the model's own scaled frequencies. Logit of a key: k.mu/sqrt(d) +
 * k'Sk/(2d); softmax over all rows from `sinks` on; mean over the group; (p + epsilon) * ||v||. The first `sinks` positions are
 * kept. sinks 4, future 512, covariance and vnorm on, epsilon 0: kvpress (the authors' code). epsilon .01 is their leaderboard's
 * with Ada-KV. Difference: softmax and statistics in double on the host, scores fp32. */
#include "runners/methods/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void average_rotation(const double *inv_freq, int d, double mscale, int64_t first, int64_t count, double *c, double *s)
{
	for (int t = 0; t < d / 2; t++) {
		c[t] = s[t] = 0;
		for (int64_t p = first; p < first + count; p++) {
			c[t] += cos((double)p * inv_freq[t]);
			s[t] += sin((double)p * inv_freq[t]);
		}
		c[t] *= mscale / (double)count;
		s[t] *= mscale / (double)count;
	}
}

void rotate_mean(const double *c, const double *s, int d, double *mu)
{
	for (int t = 0; t < d / 2; t++) {
		double a = mu[t], b = mu[t + d / 2];
		mu[t] = c[t] * a - s[t] * b;
		mu[t + d / 2] = s[t] * a + c[t] * b;
	}
}

void rotate_covariance(const double *c, const double *s, int d, double *sigma) /* R S R': columns, then rows */
{
	for (int i = 0; i < d; i++)
		rotate_mean(c, s, d, sigma + i * d);
	for (int t = 0; t < d / 2; t++)
		for (int i = 0; i < d; i++) {
			double a = sigma[t * d + i], b = sigma[(t + d / 2) * d + i];
			sigma[t * d + i] = c[t] * a - s[t] * b;
			sigma[(t + d / 2) * d + i] = s[t] * a + c[t] * b;
		}
}

enum { KEYS = 16 }; /* keys at once: the innermost loop has a fixed length, which the compiler turns into vectors */

/* k.mu/sqrt(d) + k'Sk/(2d) for n keys. sigma is symmetric: its lower triangle is read. columns: scratch [d][KEYS]. */
static void logits(
	const double *mu, const float *sigma, const float *k, int64_t n, int d, bool covariance, float *columns, double *out)
{
	for (int64_t j0 = 0; j0 < n; j0 += KEYS) {
		int keys = n - j0 < KEYS ? (int)(n - j0) : KEYS;
		double dot[KEYS] = {0}, form[KEYS] = {0};
		for (int b = 0; b < KEYS; b++)
			for (int i = 0; i < d; i++)
				columns[i * KEYS + b] = b < keys ? k[(j0 + b) * d + i] : 0;
		for (int i = 0; i < d; i++) {
			const float *own = columns + i * KEYS;
			float below[KEYS] = {0};
			for (int j = 0; covariance && j < i; j++)
				for (int b = 0; b < KEYS; b++)
					below[b] += sigma[i * d + j] * columns[j * KEYS + b];
			for (int b = 0; b < KEYS; b++) {
				dot[b] += mu[i] * own[b];
				form[b] += (double)(2 * below[b] + sigma[i * d + i] * own[b]) * own[b];
			}
		}
		for (int b = 0; b < keys; b++)
			out[j0 + b] = dot[b] / sqrt(d) + form[b] / (2 * d);
	}
}

void expected_scores(const double *mu, const double *sigma, int g, const float *k, const float *v, int64_t n, int d,
	const struct expected_rule *rule, float *out)
{
	double *p = mem_new((size_t)n + 1, sizeof(*p)), *mean = mem_new((size_t)n + 1, sizeof(*mean));
	float *small = mem_new((size_t)d * (size_t)(d + KEYS), sizeof(*small)),
	      *columns = small + d * d; /* small stays 0 without covariance */
	for (int h = 0; h < g; h++) {
		double most = -INFINITY, sum = 0;
		for (int i = 0; rule->covariance && i < d * d; i++)
			small[i] = (float)sigma[h * d * d + i];
		logits(mu + h * d, small, k, n, d, rule->covariance, columns, p);
		for (int64_t j = 0; j < n; j++)
			most = p[j] > most || p[j] != p[j] ? p[j] : most;
		for (int64_t j = 0; j < n; j++)
			sum += p[j] = exp(p[j] - most);
		for (int64_t j = 0; j < n; j++)
			mean[j] += p[j] / sum / g;
	}
	for (int64_t j = 0; j < n; j++) {
		double square = 0;
		for (int i = 0; i < d; i++)
			square += (double)v[j * d + i] * v[j * d + i];
		out[j] = (float)(rule->vnorm ? (mean[j] + rule->epsilon) * sqrt(square) : mean[j]);
	}
	free(p);
	free(mean);
	free(small);
}

struct state {
	int heads, d;
	double *sum, *outer; /* [layers][heads][d], [layers][heads][d][d] */
	double *c, *s;       /* the averaged rotation */
	bool failed;
};

static int64_t sinks(const struct scoring *s)
{
	return param_int(s->params, "sinks");
}

static struct protection protect(const struct scoring *s, int64_t n_keep)
{
	(void)n_keep;
	return (struct protection){sinks_left(s, sinks(s)), 0};
}

static int begin(struct scoring *s, char err[ERR_LEN])
{
	struct state *t = s->state = mem_new(1, sizeof(*t));
	t->heads = forward_config(s->forward)->heads;
	t->d = forward_config(s->forward)->head_dim;
	size_t n = (size_t)s->layers * (size_t)t->heads * (size_t)t->d;
	t->sum = calloc(n, sizeof(double));
	t->outer = calloc(n * (size_t)t->d, sizeof(double));
	t->c = mem_new((size_t)t->d, sizeof(double));
	t->s = t->c + t->d / 2;
	return t->sum && t->outer
		       ? 0
		       : err_set(err, "out of memory: query statistics, %zu bytes", n * (size_t)(t->d + 1) * sizeof(double));
}

static int observe(struct scoring *s, const struct layer_rows *r, char err[ERR_LEN])
{
	struct state *t = s->state;
	int64_t row0 = sinks(s) > r->pos0 ? sinks(s) - r->pos0 : 0;
	size_t at = (size_t)r->layer * (size_t)(t->heads * t->d);
	if (row0 < r->rows && op_moments(forward_queue(s->forward), r->q_pre, row0, r->rows - row0, 0, t->heads, t->d,
				      t->sum + at, t->outer + at * (size_t)t->d))
		return err_set(err, "query statistics, layer %d: %s", r->layer, device_error(forward_device(s->forward)));
	return 0;
}

static void score(const struct head_rows *h)
{
	const struct scoring *s = h->scoring;
	struct state *t = s->state;
	int g = t->heads / s->kv_heads, d = t->d;
	size_t at = ((size_t)h->layer * (size_t)t->heads + (size_t)(h->head * g)) * (size_t)d;
	double count = (double)h->n, *mu = t->sum + at,
	       *sigma = t->outer + at * (size_t)d; /* rows from `sinks` on: as many as queries */
	struct expected_rule rule = {
		param_bool(s->params, "covariance"), param_bool(s->params, "vnorm"), param_real(s->params, "epsilon")};
	for (int i = 0; i < g * d; i++)
		mu[i] /= count;
	for (int q = 0; q < g; q++) {
		double *m = mu + q * d, *sq = sigma + (size_t)q * d * d;
		for (int i = 0; i < d; i++)
			for (int j = 0; j < d; j++)
				sq[i * d + j] = sq[i * d + j] / count - m[i] * m[j];
		rotate_mean(t->c, t->s, d, m);
		rotate_covariance(t->c, t->s, d, sq);
	}
	float *out = malloc((size_t)h->n * sizeof(*out) + 1);
	if (!out) {
		__atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
		return;
	}
	expected_scores(mu, sigma, g, h->k, h->v, h->n, d, &rule, out);
	for (int64_t j = 0; j < s->shape.count;
		j++) { /* evictable row j is cache row shape.first + j; out starts at row h->first */
		int64_t row = s->shape.first + j - h->first;
		h->scores[j] = row >= 0 ? out[row] : 0;
	}
	free(out);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	struct state *t = s->state;
	double mscale;
	const double *inv_freq = forward_inv_freq(s->forward, &mscale);
	int64_t n = rows_total(s);
	if (n <= sinks(s))
		return 0; /* nothing but sinks: all are kept */
	average_rotation(inv_freq, t->d, mscale, n, param_int(s->params, "future"), t->c, t->s);
	if (each_head(s, sinks(s), n - sinks(s), true, score, NULL, err))
		return -1;
	return t->failed ? err_set(err, "out of memory: scores of one head") : 0;
}

static void end(struct scoring *s)
{
	struct state *t = s->state;
	if (t) {
		free(t->sum);
		free(t->outer);
		free(t->c);
	}
	free(t);
	s->state = NULL;
}

static const char *unfit_epsilon(const struct plan_method *m)
{
	return param_bool(m->params, "vnorm") ? NULL : "changes nothing with vnorm=false";
}

static const struct param_def defs[] = {
	{.name = "sinks", .kind = PARAM_INT, .number = 4, .max = 1e6, .origin = "kvpress, the authors' code"},
	{.name = "future", .kind = PARAM_INT, .number = 512, .min = 1, .max = 1e6, .origin = "kvpress"},
	{.name = "covariance", .kind = PARAM_BOOL, .number = 1, .origin = "kvpress"},
	{.name = "vnorm", .kind = PARAM_BOOL, .number = 1, .origin = "kvpress"},
	{.name = "epsilon",
		.kind = PARAM_REAL,
		.number = 0,
		.max = 1,
		.unfit = unfit_epsilon,
		.origin = "kvpress; its leaderboard: .01 with Ada-KV"},
	{NULL}};

const struct scorer scorer_expected_attention = {.name = "expected-attention",
	.title = "attention expected from future queries",
	.origin = "Expected Attention, arXiv 2510.00636",
	.params = defs,
	.observes = OBSERVE_Q_PRE,
	.begin = begin,
	.observe = observe,
	.finish = finish,
	.end = end,
	.protect = protect};
