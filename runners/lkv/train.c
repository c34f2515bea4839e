/* train.c: see train.h. Reads top to bottom: the loss on answer positions, utilities of one context and their way back, one step,
 * distillation, the optimiser, the whole training. */
#include "runners/lkv/train.h"

#include "runners/lkv/dense.h"
#include "runners/lkv/entries.h"
#include "runners/lkv/file.h"
#include "runners/lkv/soft_topk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STATISTICS_FROM = 16 };
static const double SCORE_EPS = 1e-6; /* KVzip scores are regressed as log(score + this) */

struct lkv_recipe lkv_recipe_default(enum lkv_kind kind)
{
	return (struct lkv_recipe){.shape = {.kind = kind, .hid = 32, .emb = 16, .key = true, .value = true, .pre = true},
		.rates = {.05, .1, .15, .3},
		.tau0 = .3,
		.tau1 = .05,
		.gumbel = 1,
		.steps = kind == LKV_DISTILLED ? 0 : 250,
		.tails = 5,
		.lr_t = 3e-3,
		.lr_h = kind == LKV_HEAD ? 1e-2 : 3e-2,
		.warm = .05,
		.clip = 1,
		.distil_steps = kind == LKV_DISTILLED ? 600 : 0,
		.distil_lr = 3e-3};
}

static int device_failed(struct frozen *f, const char *what, char err[ERR_LEN])
{
	const char *why = device_error(frozen_device(f));
	return err_set(err, "training, %s: %s", what, *why ? why : "out of memory");
}

/* ---- the tails of a step ---- */

/* The chosen tails of a sample side by side: embeddings, and which rows predict an answer token. */
struct batch {
	int n, D;
	int *which, *len;
	int64_t rows, answers;
	float *x0, *hidden, *dhidden; /* [rows][D] */
	int64_t *row, *teacher;       /* [answers]: row of the batch, row of the sample's teacher */
	struct tail_f *tail;
};

static void batch_free(struct batch *b)
{
	tail_free_f(b->tail);
	free(b->which), free(b->len), free(b->x0), free(b->hidden), free(b->dhidden), free(b->row), free(b->teacher);
}

static int batch_make(struct batch *b, struct frozen *f, const struct lkv_sample *s, const int *which, int n, char err[ERR_LEN])
{
	int64_t at = 0, D = frozen_tail(f)->config->hidden;
	*b = (struct batch){
		.n = n, .D = (int)D, .which = mem_new((size_t)n, sizeof(int)), .len = mem_new((size_t)n, sizeof(int))};
	for (int i = 0; i < n; i++) {
		b->which[i] = which[i];
		b->len[i] = s->tail[which[i]].n;
		b->rows += b->len[i];
		b->answers += s->tail[which[i]].n - s->tail[which[i]].answer;
	}
	b->x0 = malloc((size_t)(b->rows * D) * sizeof(float));
	b->hidden = malloc((size_t)(b->rows * D) * sizeof(float));
	b->dhidden = malloc((size_t)(b->rows * D) * sizeof(float));
	b->row = mem_new((size_t)b->answers, sizeof *b->row);
	b->teacher = mem_new((size_t)b->answers, sizeof *b->teacher);
	b->answers = 0;
	for (int i = 0; i < n; i++) {
		const struct lkv_tail *t = &s->tail[which[i]];
		int64_t before = 0;
		for (int j = 0; j < which[i]; j++)
			before += s->tail[j].n - s->tail[j].answer;
		for (int j = t->answer; j < t->n; j++, b->answers++) {
			b->row[b->answers] = at + j - 1;
			b->teacher[b->answers] = before + j - t->answer;
		}
		if (b->x0 && frozen_embed(f, t->ids, t->n, b->x0 + at * D, err))
			return -1;
		at += t->n;
	}
	if (!b->x0 || !b->hidden || !b->dhidden || !(b->tail = tail_new_f(frozen_tail(f), s->prefix + s->context, n, b->len)))
		return device_failed(f, "tails", err);
	return 0;
}

/* ---- KL(teacher || student) over the answer positions of a batch ---- */

struct kl_job {
	int64_t vocab, rows;
	float *student, *teacher; /* [rows][vocab] logits; student becomes d loss / d logits */
	double *kl;               /* [rows] */
};

static float largest(const float *x, int64_t n)
{
	float top = x[0];
	for (int64_t i = 1; i < n; i++)
		top = x[i] > top ? x[i] : top;
	return top;
}

static void kl_row(void *arg, int64_t r)
{
	struct kl_job *j = arg;
	float *s = j->student + r * j->vocab, *t = j->teacher + r * j->vocab;
	double top_s = largest(s, j->vocab), top_t = largest(t, j->vocab), cross = 0;
	/* sum of p_t (t - s) needs the logits, so it is taken in a second pass over exponentials of the teacher's alone */
	float *e = malloc((size_t)j->vocab * sizeof *e);
	if (!e) {
		j->kl[r] = NAN;
		return;
	}
	memcpy(e, t, (size_t)j->vocab * sizeof *e);
	double sum_t = dense_kernels()->exp_sum(e, j->vocab, (float)top_t);
	for (int64_t i = 0; i < j->vocab; i++)
		cross += (double)e[i] * ((double)t[i] - (double)s[i]);
	double sum_s = dense_kernels()->exp_sum(s, j->vocab, (float)top_s);
	j->kl[r] = cross / sum_t - (top_t + log(sum_t)) + top_s + log(sum_s);
	float ps = (float)(1 / sum_s / (double)j->rows), pt = (float)(1 / sum_t / (double)j->rows);
	for (int64_t i = 0; i < j->vocab; i++)
		s[i] = s[i] * ps - e[i] * pt;
	free(e);
}

/* hidden -> loss, and dhidden (NULL = not wanted), whose other rows become 0. */
static int batch_loss(struct batch *b, struct frozen *f, const struct lkv_sample *s, double *loss, bool back, char err[ERR_LEN])
{
	int64_t vocab = frozen_tail(f)->config->vocab, n = b->answers, D = b->D;
	float *rows = malloc((size_t)(2 * n * D) * sizeof *rows), *student = malloc((size_t)(n * vocab) * sizeof *student),
	      *teacher = malloc((size_t)(n * vocab) * sizeof *teacher);
	double *kl = mem_new((size_t)n, sizeof *kl);
	int rc = -1;
	if (!rows || !student || !teacher) {
		device_failed(f, "logits", err);
		goto cleanup;
	}
	for (int64_t i = 0; i < n; i++) {
		memcpy(rows + i * D, b->hidden + b->row[i] * D, (size_t)D * sizeof *rows);
		memcpy(rows + (n + i) * D, s->teacher + b->teacher[i] * D, (size_t)D * sizeof *rows);
	}
	if (frozen_logits(f, rows, n, student) || frozen_logits(f, rows + n * D, n, teacher)) {
		device_failed(f, "logits", err);
		goto cleanup;
	}
	struct kl_job j = {vocab, n, student, teacher, kl};
	device_parallel(frozen_device(f), n, kl_row, &j);
	*loss = 0;
	for (int64_t i = 0; i < n; i++)
		*loss += kl[i] / (double)n;
	if (back) {
		if (frozen_logits_back(f, student, n, rows)) {
			device_failed(f, "logits", err);
			goto cleanup;
		}
		memset(b->dhidden, 0, (size_t)(b->rows * D) * sizeof *b->dhidden);
		for (int64_t i = 0; i < n; i++)
			memcpy(b->dhidden + b->row[i] * D, rows + i * D, (size_t)D * sizeof *rows);
	}
	rc = isfinite(*loss) ? 0 : err_set(err, "training: the loss is not a number");
cleanup:
	free(rows);
	free(student);
	free(teacher);
	free(kl);
	return rc;
}

int lkv_teach(struct frozen *f, struct lkv_sample *s, char err[ERR_LEN])
{
	struct batch b = {0};
	int *which = mem_new((size_t)s->n_tails, sizeof *which), rc = -1;
	for (int i = 0; i < s->n_tails; i++)
		which[i] = i;
	frozen_context(f, s->kv);
	if (batch_make(&b, f, s, which, s->n_tails, err))
		goto cleanup;
	if (!(s->teacher = malloc((size_t)(b.answers * b.D) * sizeof *s->teacher)) ||
		tail_forward_f(b.tail, b.x0, NULL, b.hidden)) {
		device_failed(f, "teacher", err);
		goto cleanup;
	}
	for (int64_t i = 0; i < b.answers; i++)
		memcpy(s->teacher + b.teacher[i] * b.D, b.hidden + b.row[i] * b.D, (size_t)b.D * sizeof(float));
	rc = 0;
cleanup:
	batch_free(&b);
	free(which);
	return rc;
}

int lkv_loss(struct frozen *f, const struct lkv_sample *s, const float *logm, double *loss, char err[ERR_LEN])
{
	struct batch b = {0};
	int *which = mem_new((size_t)s->n_tails, sizeof *which), rc = -1;
	for (int i = 0; i < s->n_tails; i++)
		which[i] = i;
	frozen_context(f, s->kv);
	if (!batch_make(&b, f, s, which, s->n_tails, err))
		rc = tail_forward_f(b.tail, b.x0, logm, b.hidden) ? device_failed(f, "student", err)
								  : batch_loss(&b, f, s, loss, false, err);
	batch_free(&b);
	free(which);
	return rc;
}

/* ---- utilities of one context, kept for the way back ---- */

struct usage {
	const struct lkv_net *net;
	struct frozen *f;
	const struct lkv_sample *s;
	int G;
	int64_t n, in, hid;
	float *turns, *z, *h, *act, *u; /* [n][d]; [G][n][in], [G][n][hid] twice, [G][n] */
	float *du, *grad;
	bool failed;
};

static void usage_free(struct usage *a)
{
	free(a->turns), free(a->z), free(a->h), free(a->act), free(a->u), free(a->du);
}

static void usage_head(void *arg, int64_t g)
{
	struct usage *a = arg;
	const struct lkv_shape *s = &a->net->shape;
	float *z = a->z + g * a->n * a->in;
	if (lkv_entries(frozen_queue(a->f), a->s->kv, (int)g / s->kv_heads, (int)g % s->kv_heads, a->s->prefix, a->n, s, a->turns,
		    z)) {
		__atomic_store_n(&a->failed, true, __ATOMIC_RELAXED);
		return;
	}
	lkv_standardise(a->net, (int)g, a->n, z);
	lkv_t_forward(a->net, (int)g, a->n, z, a->h + g * a->n * a->hid, a->act + g * a->n * a->hid, a->u + g * a->n);
}

static int usage_make(struct usage *a, const struct lkv_net *net, struct frozen *f, const struct lkv_sample *s, char err[ERR_LEN])
{
	const struct tail_model_f *m = frozen_tail(f);
	int G = net->shape.layers * net->shape.kv_heads;
	size_t rows = (size_t)G * (size_t)s->context;
	*a = (struct usage){
		.net = net, .f = f, .s = s, .G = G, .n = s->context, .in = lkv_inputs(&net->shape), .hid = net->shape.hid};
	a->turns = lkv_turns(frozen_device(f), m->inv_freq, m->mscale, net->shape.d, s->prefix, s->context);
	a->z = malloc(rows * (size_t)a->in * sizeof(float));
	a->h = malloc(rows * (size_t)a->hid * sizeof(float));
	a->act = malloc(rows * (size_t)a->hid * sizeof(float));
	a->u = malloc(rows * sizeof(float));
	a->du = malloc(rows * sizeof(float));
	if (!a->turns || !a->z || !a->h || !a->act || !a->u || !a->du)
		return device_failed(f, "utilities", err);
	device_parallel(frozen_device(f), G, usage_head, a);
	return a->failed ? device_failed(f, "reading the cache", err) : 0;
}

static void usage_back_head(void *arg, int64_t g)
{
	struct usage *a = arg;
	lkv_t_backward(a->net, (int)g, a->n, a->z + g * a->n * a->in, a->h + g * a->n * a->hid, a->act + g * a->n * a->hid,
		a->du + g * a->n, a->grad);
}

static void usage_back(struct usage *a, float *grad)
{
	a->grad = grad;
	device_parallel(frozen_device(a->f), a->G, usage_back_head, a);
}

int lkv_sample_utilities(const struct lkv_net *net, struct frozen *f, const struct lkv_sample *s, float *u, char err[ERR_LEN])
{
	struct usage a = {0};
	int rc = usage_make(&a, net, f, s, err);
	if (!rc)
		memcpy(u, a.u, (size_t)a.G * (size_t)a.n * sizeof *u);
	usage_free(&a);
	return rc;
}

/* ---- gates ---- */

struct gates {
	const struct usage *use;
	double R, tau, *x;    /* [G][n] utilities with noise */
	double *ratio, *mu;   /* [G]; global: mu[0] */
	double *up, *dx, *dk; /* [G][n] twice, [G] */
	float *logm, *dlogm;  /* [G][prefix + n] */
};

static void gates_free(struct gates *q)
{
	free(q->x), free(q->ratio), free(q->up), free(q->logm);
}

static int gates_make(
	struct gates *q, const struct usage *a, double R, double tau, double noise, uint64_t seed, char err[ERR_LEN])
{
	int64_t G = a->G, n = a->n, all = a->s->prefix + n;
	*q = (struct gates){.use = a,
		.R = R,
		.tau = tau,
		.x = malloc((size_t)(G * n) * sizeof(double)),
		.ratio = mem_new((size_t)G * 3, sizeof(double)),
		.up = calloc((size_t)(2 * G * n), sizeof(double)),
		.logm = calloc((size_t)(2 * G * all), sizeof(float))};
	if (!q->x || !q->up || !q->logm)
		return device_failed(a->f, "gates", err);
	q->mu = q->ratio + G;
	q->dk = q->mu + G;
	q->dx = q->up + G * n;
	q->dlogm = q->logm + G * all;
	for (int64_t g = 0; g < G; g++) {
		struct rng r = rng_seed(seed, (uint64_t)g + 1);
		for (int64_t i = 0; i < n; i++) {
			double unit = noise > 0 ? rng_unit(&r) : .5, clamped = unit < 1e-9       ? 1e-9
									       : unit > 1 - 1e-7 ? 1 - 1e-7
												 : unit;
			q->x[g * n + i] = a->u[g * n + i] + (noise > 0 ? tau * noise * -log(-log(clamped)) : 0);
		}
	}
	return 0;
}

static void gate_head(void *arg, int64_t g)
{
	struct gates *q = arg;
	int64_t n = q->use->n;
	q->mu[g] = soft_topk_solve(q->x + g * n, n, q->ratio[g] * (double)n, q->tau);
	soft_topk_gates(q->x + g * n, n, q->mu[g], q->tau, q->up + g * n);
}

static void gate_head_back(void *arg, int64_t g)
{
	struct gates *q = arg;
	int64_t n = q->use->n;
	q->dk[g] = (double)n * soft_topk_back(q->x + g * n, n, q->mu[g], q->tau, q->up + g * n, q->dx + g * n);
}

/* Fills logm; the prefix keeps log m = 0. */
static void gates_forward(struct gates *q)
{
	const struct usage *a = q->use;
	int64_t G = a->G, n = a->n, all = a->s->prefix + n;
	if (a->net->shape.kind == LKV_GLOBAL) {
		q->mu[0] = soft_topk_solve(q->x, G * n, q->R * (double)(G * n), q->tau);
		soft_topk_gates(q->x, G * n, q->mu[0], q->tau, q->up);
	} else {
		lkv_h_ratios(a->net, q->R, q->ratio);
		device_parallel(frozen_device(a->f), G, gate_head, q);
	}
	for (int64_t g = 0; g < G; g++)
		for (int64_t i = 0; i < n; i++)
			q->logm[g * all + a->s->prefix + i] = (float)q->up[g * n + i];
}

/* dlogm -> the usage's du, and H's gradient. */
static void gates_backward(struct gates *q, float *grad)
{
	const struct usage *a = q->use;
	int64_t G = a->G, n = a->n, all = a->s->prefix + n;
	for (int64_t g = 0; g < G; g++)
		for (int64_t i = 0; i < n; i++)
			q->up[g * n + i] = q->dlogm[g * all + a->s->prefix + i];
	if (a->net->shape.kind == LKV_GLOBAL)
		soft_topk_back(q->x, G * n, q->mu[0], q->tau, q->up, q->dx);
	else {
		device_parallel(frozen_device(a->f), G, gate_head_back, q);
		lkv_h_backward(a->net, q->R, q->dk, grad);
	}
	for (int64_t i = 0; i < G * n; i++)
		a->du[i] = (float)q->dx[i];
}

/* ---- one step ---- */

struct draw { /* what a step uses */
	const struct lkv_sample *s;
	int which[64], n;
	double R, tau, noise;
	uint64_t seed;
};

static int step_run(
	const struct lkv_net *net, struct frozen *f, const struct draw *d, double *loss, float *grad, char err[ERR_LEN])
{
	struct usage use = {0};
	struct gates q = {0};
	struct batch b = {0};
	int rc = -1;
	frozen_context(f, d->s->kv);
	if (usage_make(&use, net, f, d->s, err) || gates_make(&q, &use, d->R, d->tau, d->noise, d->seed, err) ||
		batch_make(&b, f, d->s, d->which, d->n, err))
		goto cleanup;
	gates_forward(&q);
	if (tail_forward_f(b.tail, b.x0, q.logm, b.hidden)) {
		device_failed(f, "student", err);
		goto cleanup;
	}
	if (batch_loss(&b, f, d->s, loss, true, err))
		goto cleanup;
	if (tail_backward_f(b.tail, q.logm, b.dhidden, q.dlogm, NULL)) {
		device_failed(f, "backward", err);
		goto cleanup;
	}
	gates_backward(&q, grad);
	usage_back(&use, grad);
	rc = 0;
cleanup:
	batch_free(&b);
	gates_free(&q);
	usage_free(&use);
	return rc;
}

int lkv_gradient(const struct lkv_net *net, struct frozen *f, const struct lkv_sample *s, double R, double tau, double *loss,
	float *grad, char err[ERR_LEN])
{
	struct draw d = {.s = s, .R = R, .tau = tau};
	for (int i = 0; i < s->n_tails && i < 64; i++)
		d.which[d.n++] = i;
	return step_run(net, f, &d, loss, grad, err);
}

/* The step's sample, R and tails depend on (seed, step) alone. */
static struct draw step_draw(const struct lkv_recipe *r, const struct lkv_sample *s, int n, int step)
{
	struct rng g = rng_seed(r->seed, 1000 + (uint64_t)step);
	struct draw d = {.s = &s[rng_below(&g, (uint64_t)n)], .noise = r->gumbel, .seed = rng_next(&g)};
	int rates = 0, order[1024], all = d.s->n_tails < 1024 ? d.s->n_tails : 1024;
	while (rates < LKV_RATES && r->rates[rates] > 0)
		rates++;
	d.R = r->rates[rng_below(&g, (uint64_t)rates)];
	d.tau = r->tau0 * pow(r->tau1 / r->tau0, (double)step / r->steps);
	for (int i = 0; i < all; i++)
		order[i] = i;
	for (d.n = 0; d.n < all && d.n < r->tails && d.n < 64; d.n++) {
		int j = d.n + (int)rng_below(&g, (uint64_t)(all - d.n)), t = order[j];
		order[j] = order[d.n];
		d.which[d.n] = order[d.n] = t;
	}
	return d;
}

/* ---- distillation ---- */

struct standard { /* of log KVzip scores: one mean and deviation for the pair */
	double mean, deviation;
};

static struct standard score_standard(struct lkv_net *net, const struct lkv_sample *s, int n)
{
	int G = net->shape.layers * net->shape.kv_heads;
	double sum = 0, square = 0, count = 0, *level = mem_new((size_t)G, sizeof *level);
	for (int c = 0; c < n; c++)
		for (int64_t i = 0; i < G * s[c].context; i++) {
			double y = log((double)s[c].kvzip[i] + SCORE_EPS);
			sum += y;
			square += y * y;
			level[i / s[c].context] += y;
		}
	for (int c = 0; c < n; c++)
		count += (double)s[c].context;
	struct standard z = {sum / (count * G), 0};
	z.deviation = sqrt(square / (count * G) - z.mean * z.mean);
	for (int g = 0; g < G; g++)
		net->p[LKV_B2][g] = (float)((level[g] / count - z.mean) / z.deviation); /* starts at the head's level */
	free(level);
	return z;
}

static int distil_step(const struct lkv_net *net, struct frozen *f, const struct lkv_sample *s, struct standard z, double *loss,
	float *grad, char err[ERR_LEN])
{
	struct usage use;
	int rc = usage_make(&use, net, f, s, err);
	int64_t all = use.G * use.n;
	*loss = 0;
	for (int64_t i = 0; i < all && !rc; i++) {
		double y = (log((double)s->kvzip[i] + SCORE_EPS) - z.mean) / z.deviation, e = use.u[i] - y;
		*loss += e * e / (double)all;
		use.du[i] = (float)(2 * e / (double)all);
	}
	if (!rc)
		usage_back(&use, grad);
	usage_free(&use);
	return rc;
}

/* ---- AdamW ---- */

struct optimiser {
	float *grad, *m, *v; /* [trained] */
	int64_t n;
	int t;
};

static int optimiser_new(struct optimiser *o, int64_t n)
{
	*o = (struct optimiser){.grad = calloc((size_t)n * 3, sizeof(float)), .n = n};
	if (!o->grad)
		return -1;
	o->m = o->grad + n;
	o->v = o->m + n;
	return 0;
}

/* Scales the gradient to norm `clip` where it is longer (0 = never); returns the norm. */
static double clip_norm(float *g, int64_t n, double clip)
{
	double square = 0;
	for (int64_t i = 0; i < n; i++)
		square += (double)g[i] * g[i];
	double norm = sqrt(square), scale = clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
	for (int64_t i = 0; i < n && scale < 1; i++)
		g[i] *= (float)scale;
	return norm;
}

/* Parameters [first, end). Betas .9 and .999, epsilon 1e-8; decay is decoupled. */
static void adamw(struct optimiser *o, float *p, int64_t first, int64_t end, double lr, double decay)
{
	double c1 = 1 - pow(.9, o->t), c2 = 1 - pow(.999, o->t);
	for (int64_t i = first; i < end; i++) {
		double g = o->grad[i], m = .9 * o->m[i] + .1 * g, v = .999 * o->v[i] + .001 * g * g;
		o->m[i] = (float)m;
		o->v[i] = (float)v;
		p[i] = (float)(p[i] * (1 - lr * decay) - lr * (m / c1) / (sqrt(v / c2) + 1e-8));
	}
}

/* ---- statistics ---- */

int lkv_statistics(struct lkv_net *net, struct frozen *f, const struct lkv_sample *s, int n, char err[ERR_LEN])
{
	const struct tail_model_f *m = frozen_tail(f);
	const struct lkv_shape *shape = &net->shape;
	int G = shape->layers * shape->kv_heads, rc = 0;
	int64_t in = lkv_inputs(shape), count = 0;
	double *sum = mem_new((size_t)(2 * G * in), sizeof *sum), *square = sum + G * in;
	for (int c = 0; c < n && c < STATISTICS_FROM && !rc; c++) {
		float *turns = lkv_turns(frozen_device(f), m->inv_freq, m->mscale, shape->d, s[c].prefix, s[c].context),
		      *x = malloc((size_t)(s[c].context * in) * sizeof *x);
		for (int g = 0; g < G && !rc; g++) {
			rc = !turns || !x ||
			     lkv_entries(frozen_queue(f), s[c].kv, g / shape->kv_heads, g % shape->kv_heads, s[c].prefix,
				     s[c].context, shape, turns, x);
			for (int64_t i = 0; i < s[c].context * in && !rc; i++) {
				sum[g * in + i % in] += x[i];
				square[g * in + i % in] += (double)x[i] * x[i];
			}
		}
		count += s[c].context;
		free(turns);
		free(x);
	}
	for (int64_t i = 0; i < G * in && !rc; i++) {
		double mean = sum[i] / (double)count, var = (square[i] - (double)count * mean * mean) / (double)(count - 1);
		net->p[LKV_MEAN][i] = (float)mean;
		net->p[LKV_DEVIATION][i] = (float)(sqrt(var > 0 ? var : 0) + 1e-3);
	}
	free(sum);
	return rc ? device_failed(f, "statistics", err) : 0;
}

/* ---- the whole training ---- */

struct run {
	const struct lkv_recipe *r;
	const struct lkv_hooks *hooks;
	struct frozen *f;
	const struct lkv_sample *s;
	int n;
	struct lkv_net *net;
	struct optimiser o;
	int64_t start_ns;
};

static void tell(const struct run *t, const char *phase, int step, int steps, double loss, double lr, double tau, double R)
{
	struct lkv_progress p = {phase, step + 1, steps, loss, lr, tau, R, (double)(clock_ns() - t->start_ns) * 1e-9};
	if (t->hooks->step)
		t->hooks->step(t->hooks->user, &p);
}

static int checkpoint(const struct run *t, const char *phase, int done, char err[ERR_LEN])
{
	const struct lkv_checkpoint c = {phase, done, t->o.t, t->net, t->o.m, t->o.v};
	return t->hooks->checkpoint ? lkv_checkpoint_write(t->hooks->checkpoint, &c, t->r, err) : 0;
}

static bool stopped(const struct run *t)
{
	return t->hooks->stop && t->hooks->stop(t->hooks->user);
}

static bool due(const struct run *t, int step)
{
	return t->hooks->every > 0 && (step + 1) % t->hooks->every == 0;
}

static int distil(struct run *t, int from, char err[ERR_LEN])
{
	int steps = t->r->distil_steps;
	float *level = mem_new((size_t)t->net->count[LKV_B2], sizeof *level);
	memcpy(level, t->net->p[LKV_B2], (size_t)t->net->count[LKV_B2] * sizeof *level);
	struct standard z = score_standard(t->net, t->s, t->n);
	if (from > 0) /* a resumed run has its own levels already */
		memcpy(t->net->p[LKV_B2], level, (size_t)t->net->count[LKV_B2] * sizeof *level);
	free(level);
	for (int i = from; i < steps; i++) {
		struct rng g = rng_seed(t->r->seed, 500000 + (uint64_t)i);
		double loss, lr = t->r->distil_lr * .5 * (1 + cos(M_PI * i / steps));
		if (stopped(t))
			return checkpoint(t, "distil", i, err) ? -1 : 1;
		memset(t->o.grad, 0, (size_t)t->o.n * sizeof(float));
		if (distil_step(t->net, t->f, &t->s[rng_below(&g, (uint64_t)t->n)], z, &loss, t->o.grad, err))
			return -1;
		t->o.t++;
		adamw(&t->o, t->net->p[0], 0, t->net->p[LKV_OF_T] - t->net->p[0], lr, .01);
		tell(t, "distil", i, steps, loss, lr, 0, 0);
		if (due(t, i) && checkpoint(t, "distil", i + 1, err))
			return -1;
	}
	return 0;
}

static int descend(struct run *t, int from, char err[ERR_LEN])
{
	const struct lkv_recipe *r = t->r;
	int64_t of_t = t->net->p[LKV_OF_T] - t->net->p[0];
	for (int i = from; i < r->steps; i++) {
		struct draw d = step_draw(r, t->s, t->n, i);
		double loss, rise = (i + 1) / (r->warm * r->steps),
			     factor = fmax(.02, fmin(1, rise) * .5 * (1 + cos(M_PI * i / r->steps)));
		if (stopped(t))
			return checkpoint(t, "train", i, err) ? -1 : 1;
		memset(t->o.grad, 0, (size_t)t->o.n * sizeof(float));
		if (step_run(t->net, t->f, &d, &loss, t->o.grad, err))
			return -1;
		t->o.t++;
		clip_norm(t->o.grad, t->o.n, r->clip);
		adamw(&t->o, t->net->p[0], 0, of_t, r->lr_t * factor, 0);
		adamw(&t->o, t->net->p[0], of_t, t->o.n, r->lr_h * factor, 0);
		tell(t, "train", i, r->steps, loss, r->lr_t * factor, d.tau, d.R);
		if (due(t, i) && checkpoint(t, "train", i + 1, err))
			return -1;
	}
	return 0;
}

/* Where an earlier run stopped. */
static int resume(struct run *t, int *distilled, int *trained, char err[ERR_LEN])
{
	struct lkv_checkpoint c = {.net = t->net, .m = t->o.m, .v = t->o.v};
	*distilled = *trained = 0;
	if (!t->hooks->checkpoint || !file_exists(t->hooks->checkpoint))
		return 0;
	if (lkv_checkpoint_read(t->hooks->checkpoint, &c, t->r, err))
		return -1;
	t->o.t = c.updates;
	bool end_to_end = !strcmp(c.phase, "train");
	*distilled = end_to_end ? t->r->distil_steps : c.done;
	*trained = end_to_end ? c.done : 0;
	return 1;
}

int lkv_train(struct lkv_net **out, struct frozen *f, const struct lkv_sample *s, int n, const struct lkv_recipe *r,
	const struct lkv_hooks *hooks, char err[ERR_LEN])
{
	struct run t = {.r = r, .hooks = hooks, .f = f, .s = s, .n = n, .start_ns = clock_ns()};
	int distilled, trained, rc = -1;
	*out = NULL;
	if (!(t.net = lkv_net_new(&r->shape, r->seed)) || optimiser_new(&t.o, t.net->trained)) {
		err_set(err, "training: out of memory");
		goto cleanup;
	}
	int resumed = resume(&t, &distilled, &trained, err);
	if (resumed < 0 || (!resumed && lkv_statistics(t.net, f, s, n, err)))
		goto cleanup;
	if (distilled < r->distil_steps && (rc = distil(&t, distilled, err)))
		goto cleanup;
	if (r->distil_steps && !trained) { /* the second phase starts with fresh moments */
		memset(t.o.m, 0, (size_t)t.o.n * 2 * sizeof(float));
		t.o.t = 0;
	}
	rc = r->shape.kind == LKV_DISTILLED ? 0 : descend(&t, trained, err);
	if (rc)
		goto cleanup;
	*out = t.net;
	t.net = NULL;
cleanup:
	lkv_net_free(t.net);
	free(t.o.grad);
	return rc;
}
