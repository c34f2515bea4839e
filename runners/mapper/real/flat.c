/* flat.c: the flat mapper (default) and the linear one: all Ls*Hs proxy rows are channels of one sequence. Spec 1.3.
 *
 *   flat:   h1 = GELU(LN(conv x)), h2 = h1 + GELU(LN(conv h1)), score = a (out h2) + b for each (target layer, head)
 *   linear: score = conv x; solved by ridge regression (ridge.c), so it has no backward pass
 * Training runs one strip and splits every convolution by output rows over the threads; inference runs one strip an item. */
#include "runners/mapper/net.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_PER_ITEM = 8 };

struct work {
	const struct net *net;
	struct strip strip;
	int width, inputs, outputs;
	real *block;
	real *x1, *h1, *x2, *h2, *out; /* [width] normalised, after GELU; twice; [outputs] before scale and bias */
	real *r1, *r2;                 /* [1] 1 / deviation of each position */
	real *d, *d2, *turned;         /* training: gradients [width]; conv 2's weights turned */
};

static size_t flat_carve(struct work *w, real *block, bool training)
{
	struct carve c = {.block = block};
	const int64_t ld = w->strip.ld, width = w->width;
	w->x1 = carve(&c, width, ld);
	w->h1 = carve(&c, width, ld);
	w->x2 = carve(&c, width, ld);
	w->h2 = carve(&c, width, ld);
	w->out = carve(&c, w->outputs, ld);
	w->r1 = carve(&c, 1, ld);
	w->r2 = carve(&c, 1, ld);
	w->d = carve(&c, training ? (width > w->outputs ? width : w->outputs) : 0, ld);
	w->d2 = carve(&c, training ? width : 0, ld);
	w->turned = carve(
		&c, training ? width : 0, width * w->net->config->taps > w->outputs ? width * w->net->config->taps : w->outputs);
	return c.used;
}

static struct work flat_shape(const struct net *n, const struct strip *s)
{
	const struct mapper_config *c = n->config;
	return (struct work){.net = n,
		.strip = *s,
		.width = mapper_width(c),
		.inputs = c->proxy_layers * c->proxy_heads,
		.outputs = c->layers * c->kv_heads};
}

/* ---- convolutions and norms, split by rows over the pool (NULL in inference) ---- */
struct conv_job {
	const struct kernels *kernels;
	struct conv conv;
	struct conv_grad grad;
	bool backward;
};

static void conv_item(void *arg, int64_t item)
{
	const struct conv_job *j = arg;
	int64_t row = item * ROWS_PER_ITEM;
	if (j->backward) {
		struct conv_grad g = j->grad;
		g.rows = g.rows - row < ROWS_PER_ITEM ? (int)(g.rows - row) : ROWS_PER_ITEM;
		g.d += row * g.d_ld;
		g.dw += row * g.dw_ld;
		g.db = g.db ? g.db + row : NULL;
		j->kernels->conv_grad(&g);
	} else {
		struct conv c = j->conv;
		c.rows = c.rows - row < ROWS_PER_ITEM ? (int)(c.rows - row) : ROWS_PER_ITEM;
		c.w += row * c.w_ld;
		c.bias = c.bias ? c.bias + row : NULL;
		c.out += row * c.out_ld;
		j->kernels->conv(&c);
	}
}

static void conv_split(struct conv_job *j, int rows, const struct mapper_pool *pool)
{
	REAL(pool_run)(pool, (rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM, conv_item, j);
}

static void conv_forward(const struct work *w, const real *weight, const real *bias, int rows, int channels, int taps,
	const real *in, real *out, const struct mapper_pool *pool)
{
	struct conv_job j = {.kernels = w->net->kernels};
	j.conv = (struct conv){.w = weight,
		.bias = bias,
		.in = in,
		.out = out,
		.w_ld = (int64_t)channels * taps,
		.in_ld = w->strip.ld,
		.out_ld = w->strip.ld,
		.cols = w->strip.cols,
		.rows = rows,
		.channels = channels,
		.taps = taps};
	conv_split(&j, rows, pool);
}

static void conv_weight_grad(const struct work *w, const real *d, const real *in, int rows, int channels, int taps, real *dw,
	real *db, const struct mapper_pool *pool)
{
	struct conv_job j = {.kernels = w->net->kernels, .backward = true};
	j.grad = (struct conv_grad){.d = d,
		.in = in,
		.dw = dw,
		.db = db,
		.d_ld = w->strip.ld,
		.in_ld = w->strip.ld,
		.dw_ld = (int64_t)channels * taps,
		.cols = w->strip.cols,
		.rows = rows,
		.channels = channels,
		.taps = taps};
	conv_split(&j, rows, pool);
}

static struct norm flat_norm(const struct work *w, const real *params, enum param_id gain, real *x, real *rstd, real *out)
{
	const int64_t *at = w->net->layout->at;
	return (struct norm){.in = x,
		.xhat = x,
		.out = out,
		.rstd = rstd,
		.gain = params + at[gain],
		.bias = params + at[gain + 1],
		.cols = w->strip.cols,
		.ld = w->strip.ld,
		.channels = w->width,
		.gelu = true};
}

static void flat_run(struct work *w, const real *params, const real *x, real *score, const struct mapper_pool *pool)
{
	const int64_t *at = w->net->layout->at, n = w->width * w->strip.ld;
	const int taps = w->net->config->taps;
	struct norm norm1 = flat_norm(w, params, P_N1_W, w->x1, w->r1, w->h1),
		    norm2 = flat_norm(w, params, P_N2_W, w->x2, w->r2, w->h2);
	conv_forward(w, params + at[P_C1_W], params + at[P_C1_B], w->width, w->inputs, taps, x, w->x1, pool);
	w->net->kernels->norm(&norm1);
	REAL(strip_mask)(&w->strip, w->h1, w->width);
	conv_forward(w, params + at[P_C2_W], params + at[P_C2_B], w->width, w->width, taps, w->h1, w->x2, pool);
	w->net->kernels->norm(&norm2);
	for (int64_t i = 0; i < n; i++)
		w->h2[i] += w->h1[i];
	conv_forward(w, params + at[P_OUT_W], params + at[P_OUT_B], w->outputs, w->width, 1, w->h2, w->out, pool);
	for (int64_t r = 0; r < w->outputs; r++)
		for (int64_t t = 0; t < w->strip.cols; t++)
			score[r * w->strip.ld + t] = w->out[r * w->strip.ld + t] * params[at[P_A] + r] + params[at[P_B] + r];
}

/* ---- training ---- */
static void flat_work_free(struct work *w)
{
	if (!w)
		return;
	REAL(block_free)(w->block);
	free(w);
}

static struct work *flat_work_new(const struct net *n, const struct strip *s)
{
	struct work *w = mem_new(1, sizeof *w);
	*w = flat_shape(n, s);
	w->block = REAL(block_new)(flat_carve(w, NULL, true));
	if (!w->block) {
		flat_work_free(w);
		return NULL;
	}
	flat_carve(w, w->block, true);
	return w;
}

static void flat_set_length(struct work *w, int64_t n)
{
	w->strip.n = n;
}

static int flat_forward(struct work *w, real *params, const real *x, real *score, bool update, const struct mapper_pool *pool)
{
	(void)update;
	flat_run(w, params, x, score, pool);
	return 0;
}

/* Gradients of scale and bias; d becomes that of the last convolution's output, in w->d. */
static void scale_back(const struct work *w, const real *params, const real *d, real *grad)
{
	const int64_t *at = w->net->layout->at;
	for (int64_t r = 0; r < w->outputs; r++) {
		double sum = 0, sum_out = 0;
		for (int64_t t = 0; t < w->strip.cols; t++) {
			int64_t i = r * w->strip.ld + t;
			sum += (double)d[i];
			sum_out += (double)d[i] * (double)w->out[i];
			w->d[i] = d[i] * params[at[P_A] + r];
		}
		grad[at[P_A] + r] += (real)sum_out;
		grad[at[P_B] + r] += (real)sum;
	}
}

static int flat_backward(
	struct work *w, const real *params, const real *x, const real *d, real *grad, const struct mapper_pool *pool)
{
	const int64_t *at = w->net->layout->at, n = w->width * w->strip.ld;
	const int taps = w->net->config->taps;
	const struct kernels *k = w->net->kernels;
	struct norm norm1 = flat_norm(w, params, P_N1_W, w->x1, w->r1, w->h1),
		    norm2 = flat_norm(w, params, P_N2_W, w->x2, w->r2, w->h2);
	scale_back(w, params, d, grad);
	conv_weight_grad(w, w->d, w->h2, w->outputs, w->width, 1, grad + at[P_OUT_W], grad + at[P_OUT_B], pool);
	REAL(conv_transpose)(params + at[P_OUT_W], w->outputs, w->width, 1, w->turned);
	conv_forward(w, w->turned, NULL, w->width, w->outputs, 1, w->d, w->d2, pool);
	memcpy(w->d, w->d2, (size_t)n * sizeof(real)); /* d2 stays: the gradient that passes the residual branch by */
	k->norm_grad(&norm2, w->d, grad + at[P_N2_W], grad + at[P_N2_B]);
	k->norm_back_layer(&norm2, w->d);
	conv_weight_grad(w, w->d, w->h1, w->width, w->width, taps, grad + at[P_C2_W], grad + at[P_C2_B], pool);
	REAL(conv_transpose)(params + at[P_C2_W], w->width, w->width, taps, w->turned);
	conv_forward(w, w->turned, NULL, w->width, w->width, taps, w->d, w->x2, pool); /* x2 is not needed any more */
	REAL(strip_mask)(&w->strip, w->x2, w->width);
	for (int64_t i = 0; i < n; i++)
		w->d2[i] += w->x2[i];
	k->norm_grad(&norm1, w->d2, grad + at[P_N1_W], grad + at[P_N1_B]);
	k->norm_back_layer(&norm1, w->d2);
	conv_weight_grad(w, w->d2, x, w->width, w->inputs, taps, grad + at[P_C1_W], grad + at[P_C1_B], pool);
	return 0;
}

/* ---- inference ---- */
static size_t flat_scratch(const struct net *n, const struct strip *s)
{
	struct work w = flat_shape(n, s);
	return flat_carve(&w, NULL, false);
}

static void flat_infer(
	const struct net *n, const real *params, int group, const struct strip *s, struct input in, real *scratch, real *score)
{
	struct work w = flat_shape(n, s);
	(void)group;
	flat_carve(&w, scratch, false);
	flat_run(&w, params, in.x, score, NULL);
}

static size_t linear_scratch(const struct net *n, const struct strip *s)
{
	(void)n, (void)s;
	return 0;
}

static void linear_infer(
	const struct net *n, const real *params, int group, const struct strip *s, struct input in, real *scratch, real *score)
{
	struct work w = flat_shape(n, s);
	const int64_t *at = n->layout->at;
	(void)group, (void)scratch;
	conv_forward(&w, params + at[P_C1_W], params + at[P_C1_B], w.outputs, w.inputs, n->config->taps, in.x, score, NULL);
}

const struct net_kind REAL(net_flat) = {
	.halo_convs = 2,
	.work_new = flat_work_new,
	.work_free = flat_work_free,
	.set_length = flat_set_length,
	.forward = flat_forward,
	.backward = flat_backward,
	.infer_scratch = flat_scratch,
	.infer = flat_infer,
};
const struct net_kind REAL(net_linear) = {.halo_convs = 1, .infer_scratch = linear_scratch, .infer = linear_infer};
