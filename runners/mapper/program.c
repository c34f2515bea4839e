/* program.c: see program.h. Every form is made of the same few steps, since what is constant is folded beforehand, in double
 * precision: batch norm into its convolution, queries and key weights into one matrix (as in axial.c), value and output weights
 * into one, a query into the bias behind them, a score's scale and bias into the last layer. Results differ from the host's by
 * rounding alone. */
#include "runners/mapper/program.h"

#include "runners/mapper/impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct builder {
	struct mapper_program *p;
	const struct mapper *m;
	const struct mapper_config *c;
	int width, room; /* channels; steps that fit */
};
struct linear { /* offsets of a layer's weight and bias */
	int64_t weight, bias;
};

/* ---- the matrix, the vector, the list ---- */

static int64_t take_rows(struct builder *b, int64_t n)
{
	b->p->rows += n;
	return b->p->rows - n;
}

static int64_t take_params(struct builder *b, int64_t n)
{
	struct mapper_program *p = b->p;
	p->params = mem_grow(p->params, (size_t)(p->n_params + n), sizeof *p->params);
	p->n_params += n;
	return p->n_params - n;
}

static void emit(struct builder *b, struct step s)
{
	struct mapper_program *p = b->p;
	if (p->steps == b->room) {
		b->room = b->room ? 2 * b->room : 64;
		p->step = mem_grow(p->step, (size_t)b->room, sizeof *p->step);
	}
	p->step[p->steps++] = s;
}

static int64_t at(const struct builder *b, enum param_id id)
{
	return b->m->layout.at[id];
}

static const float *value(const struct builder *b, enum param_id id)
{
	return b->m->params + at(b, id);
}

static struct linear linear_at(const struct builder *b, enum param_id weight)
{
	return (struct linear){at(b, weight), at(b, weight + 1)};
}

/* ---- the steps of a network ---- */

static void feature(struct builder *b)
{
	static const enum step_compress compress[] = {
		[MAPPER_LOG] = STEP_LOG, [MAPPER_LOG1P] = STEP_LOG1P, [MAPPER_NONE] = STEP_LINEAR};
	const int inputs = b->c->proxy_layers * b->c->proxy_heads;
	const int64_t mean = take_params(b, inputs), factor = take_params(b, inputs);
	for (int i = 0; i < inputs; i++) {
		b->p->params[mean + i] = b->m->feature_mean[i];
		b->p->params[factor + i] = 1.0f / b->m->feature_dev[i];
	}
	b->p->x = take_rows(b, inputs);
	b->p->scale = take_rows(b, 1);
	b->p->score = take_rows(b, (int64_t)b->c->layers * b->c->kv_heads);
	emit(b, (struct step){.kind = STEP_FEATURE,
			.batch = 1,
			.in = {b->p->x},
			.with = {b->p->scale},
			.out = {b->p->x},
			.shift = {mean},
			.weight = {factor},
			.rows = inputs,
			.compress = compress[b->c->compress]});
}

/* A convolution over all of its input's rows. */
static struct step conv(int batch, struct step_rows in, struct step_rows out, struct linear l, int rows, int channels, int taps)
{
	return (struct step){.kind = STEP_CONV,
		.batch = batch,
		.in = in,
		.out = out,
		.weight = {l.weight},
		.bias = {l.bias},
		.rows = rows,
		.channels = channels,
		.taps = taps,
		.stride = (int64_t)channels * taps,
		.apart = 1};
}

static struct step norm(const struct builder *b, int batch, struct step_rows in, struct step_rows out, enum param_id gain)
{
	return (struct step){.kind = STEP_NORM,
		.batch = batch,
		.in = in,
		.out = out,
		.weight = {at(b, gain)},
		.bias = {at(b, gain + 1)},
		.shift = {-1},
		.channels = b->width};
}

static struct step with_gelu(struct step s)
{
	s.gelu = true;
	return s;
}
static struct step added(struct step s)
{
	s.add = true;
	return s;
}

/* ---- flat, linear ---- */

/* Weight [rows][n] and bias times a[r], b[r] added to the bias: scores' scale and bias. */
static struct linear fold_scale(struct builder *b, struct linear l, int64_t rows, int64_t n)
{
	const struct linear out = {take_params(b, rows * n), take_params(b, rows)};
	float *p = b->p->params;
	const float *a = value(b, P_A), *shift = value(b, P_B);
	for (int64_t r = 0; r < rows; r++) {
		for (int64_t i = 0; i < n; i++)
			p[out.weight + r * n + i] = a[r] * p[l.weight + r * n + i];
		p[out.bias + r] = (float)((double)a[r] * (double)p[l.bias + r] + (double)shift[r]);
	}
	return out;
}

static void build_flat(struct builder *b)
{
	const int inputs = b->c->proxy_layers * b->c->proxy_heads, outputs = b->c->layers * b->c->kv_heads, taps = b->c->taps;
	const struct step_rows x = {b->p->x}, h = {take_rows(b, b->width)}, y = {take_rows(b, b->width)};
	const struct linear out = fold_scale(b, linear_at(b, P_OUT_W), outputs, b->width);
	emit(b, conv(1, x, h, linear_at(b, P_C1_W), b->width, inputs, taps));
	emit(b, with_gelu(norm(b, 1, h, h, P_N1_W)));
	emit(b, conv(1, h, y, linear_at(b, P_C2_W), b->width, b->width, taps));
	emit(b, added(with_gelu(norm(b, 1, y, h, P_N2_W))));
	emit(b, conv(1, h, (struct step_rows){b->p->score}, out, outputs, b->width, 1));
}

static void build_linear(struct builder *b)
{
	const int inputs = b->c->proxy_layers * b->c->proxy_heads, outputs = b->c->layers * b->c->kv_heads;
	emit(b, conv(1, (struct step_rows){b->p->x}, (struct step_rows){b->p->score}, linear_at(b, P_C1_W), outputs, inputs,
			b->c->taps));
}

/* ---- axial (real/axial.c says what it is) ---- */

struct axial {
	struct builder *b;
	struct linear conv1, conv2, value, score; /* batch norm folded in; value and output weights; last layer */
	int64_t key;                              /* [Ll][Hl][ATTN_HEADS][C]: queries and key weights */
	int64_t token, rest;                      /* rows: [Hs][C] tokens, norms before; what a stage needs beside them */
};

/* A convolution and the batch norm behind it, by its running statistics; layer norm: the convolution as it is. */
static struct linear fold_norm(struct builder *b, enum param_id weight, enum param_id gain, enum param_id mean, int64_t n)
{
	if (b->c->norm != MAPPER_NORM_BATCH)
		return linear_at(b, weight);
	const struct linear out = {take_params(b, b->width * n), take_params(b, b->width)};
	for (int r = 0; r < b->width; r++) {
		double factor = (double)value(b, gain)[r] / sqrt((double)value(b, mean + 1)[r] + 1e-5);
		for (int64_t i = 0; i < n; i++)
			b->p->params[out.weight + r * n + i] = (float)((double)value(b, weight)[r * n + i] * factor);
		b->p->params[out.bias + r] = (float)(((double)value(b, weight + 1)[r] - (double)value(b, mean)[r]) * factor +
						     (double)value(b, gain + 1)[r]);
	}
	return out;
}

static const float *query_of(const struct builder *b, int64_t layer)
{
	return value(b, P_Q) + (b->c->embeddings == MAPPER_EMB_FULL ? layer * b->c->kv_heads * b->width : 0);
}

/* W_k[h]^T query[q,h] / sqrt d, for every layer. */
static int64_t fold_keys(struct builder *b)
{
	const int C = b->width, d = C / ATTN_HEADS, rows = b->c->kv_heads * ATTN_HEADS;
	const int64_t out = take_params(b, (int64_t)b->c->layers * rows * C);
	const float *key = value(b, P_KV_W);
	for (int64_t r = 0; r < (int64_t)b->c->layers * rows; r++) {
		const float *query = query_of(b, r / rows) + r % rows * d;
		for (int c = 0; c < C; c++) {
			double sum = 0;
			for (int i = 0; i < d; i++)
				sum += (double)query[i] * (double)key[(r % ATTN_HEADS * d + i) * C + c];
			b->p->params[out + r * C + c] = (float)(sum / sqrt(d));
		}
	}
	return out;
}

/* Output times value weights: [C][ATTN_HEADS * C], on the mixed tokens of all heads; bias [Ll*Hl][C] with the query in it. */
static struct linear fold_values(struct builder *b)
{
	const int C = b->width, d = C / ATTN_HEADS;
	const int64_t targets = (int64_t)b->c->layers * b->c->kv_heads;
	const struct linear out = {take_params(b, (int64_t)C * ATTN_HEADS * C), take_params(b, targets * C)};
	const float *o = value(b, P_O_W), *v = value(b, P_KV_W) + C * C, *v_bias = value(b, P_KV_B) + C;
	for (int r = 0; r < C; r++) {
		double bias = (double)value(b, P_O_B)[r];
		for (int i = 0; i < C; i++)
			bias += (double)o[r * C + i] * (double)v_bias[i];
		for (int64_t t = 0; t < targets; t++)
			b->p->params[out.bias + t * C + r] =
				(float)(bias + (double)query_of(b, t / b->c->kv_heads)[t % b->c->kv_heads * C + r]);
		for (int i = 0; i < ATTN_HEADS * C; i++) {
			double sum = 0;
			for (int k = i / C * d; k < (i / C + 1) * d; k++)
				sum += (double)o[r * C + k] * (double)v[k * C + i % C];
			b->p->params[out.weight + r * ATTN_HEADS * C + i] = (float)sum;
		}
	}
	return out;
}

/* The one row of the last layer, for every (target layer, head) by its scale. */
static struct linear fold_last(struct builder *b)
{
	const int64_t targets = (int64_t)b->c->layers * b->c->kv_heads, C = b->width;
	const struct linear all = {take_params(b, targets * C), take_params(b, targets)};
	for (int64_t t = 0; t < targets; t++) {
		memcpy(b->p->params + all.weight + t * C, value(b, P_OUT_W), (size_t)C * sizeof(float));
		b->p->params[all.bias + t] = *value(b, P_OUT_B);
	}
	return fold_scale(b, all, targets, C);
}

/* Stage 1 of all sequences of a group, to `x`: neighbours beyond the proxy's first and last layer have no channel. */
static void stage1(const struct axial *a, int group, struct step_rows x)
{
	struct builder *b = a->b;
	const struct mapper_config *c = b->c;
	const bool batch = c->norm == MAPPER_NORM_BATCH;
	const int n = mapper_group_inputs(c), lowest = c->neighbours == MAPPER_ALL ? 0 : group - c->neighbours;
	const int first = lowest < 0 ? -lowest : 0, end = lowest + n > c->proxy_layers ? c->proxy_layers - lowest : n;
	const struct step_rows in = {b->p->x + (int64_t)(lowest + first) * c->proxy_heads, 1}, token = {a->token, b->width};
	struct step one = conv(c->proxy_heads, in, batch ? token : x, a->conv1, b->width, end - first, c->taps);
	one.weight.at += first * c->taps;
	one.stride = (int64_t)n * c->taps;
	one.apart = c->proxy_heads;
	const struct step two = conv(c->proxy_heads, token, x, a->conv2, b->width, b->width, c->taps);
	emit(b, batch ? with_gelu(one) : one);
	if (!batch)
		emit(b, with_gelu(norm(b, c->proxy_heads, x, token, P_N1_W)));
	emit(b, batch ? with_gelu(two) : two);
	if (!batch)
		emit(b, with_gelu(norm(b, c->proxy_heads, x, x, P_N2_W)));
}

static void attention(const struct axial *a, struct step_rows x, int64_t wide)
{
	struct builder *b = a->b;
	const int C = b->width, d = C / ATTN_HEADS, heads = b->c->proxy_heads;
	const int64_t half = mapper_bias_half(b->c);
	const struct step_rows token = {a->token, C}, qkv = {wide, 3 * C};
	emit(b, norm(b, heads, x, token, P_L1_W));
	emit(b, conv(heads, token, qkv, linear_at(b, P_QKV_W), 3 * C, C, 1));
	for (int h = 0; h < ATTN_HEADS; h++)
		emit(b, (struct step){.kind = STEP_BAND,
				.batch = heads,
				.in = {wide + h * d, 3 * C},
				.out = {a->token + h * d, C},
				.weight = {at(b, P_RB) + h * (2 * half + 1)},
				.channels = d,
				.apart = C,
				.window = b->c->window == MAPPER_ALL ? MAPPER_FULL_MAX : b->c->window,
				.half = half});
	emit(b, added(conv(heads, token, x, linear_at(b, P_AO_W), C, C, 1)));
}

/* Stage 2 and the norm of stage 3: from x to tokens. */
static void stage2(const struct axial *a, int group, struct step_rows x, int64_t wide)
{
	struct builder *b = a->b;
	const int C = b->width, heads = b->c->proxy_heads;
	const struct step_rows token = {a->token, C}, f = {wide, 2 * C};
	if (b->c->encoder && b->c->window)
		attention(a, x, wide);
	if (b->c->encoder) {
		emit(b, norm(b, heads, x, token, P_L2_W));
		emit(b, with_gelu(conv(heads, token, f, linear_at(b, P_F1_W), 2 * C, C, 1)));
		emit(b, added(conv(heads, f, x, linear_at(b, P_F2_W), C, 2 * C, 1)));
	}
	struct step last = norm(b, heads, x, token, P_L3_W);
	last.shift =
		(struct step_params){at(b, P_HE) + (b->c->embeddings == MAPPER_EMB_FULL ? (int64_t)group * heads * C : 0), C};
	emit(b, last);
}

/* Stage 3 of target layers [first, first + n), which read the same tokens; rows from a->rest on. */
static void stage3(const struct axial *a, int first, int n)
{
	struct builder *b = a->b;
	const int C = b->width, heads = b->c->proxy_heads, targets = n * b->c->kv_heads, rows = targets * ATTN_HEADS;
	const int64_t target0 = (int64_t)first * b->c->kv_heads, z = a->rest, mixed = z + (int64_t)heads * rows,
		      y0 = mixed + (int64_t)rows * C;
	const struct step_rows y = {y0, C}, m = {mixed, 2 * C},
			       norms = {mixed + 2 * (int64_t)targets * C, C}; /* m and norms: where `mixed` was */
	emit(b, conv(heads, (struct step_rows){a->token, C}, (struct step_rows){z, rows},
			(struct linear){a->key + target0 * ATTN_HEADS * C, -1}, rows, C, 1));
	emit(b, (struct step){.kind = STEP_MIX,
			.batch = 1,
			.in = {z},
			.with = {a->token},
			.out = {mixed},
			.rows = rows,
			.channels = C,
			.tokens = heads});
	struct step value = conv(targets, (struct step_rows){mixed, ATTN_HEADS * C}, y, a->value, C, ATTN_HEADS * C, 1);
	value.bias = (struct step_params){a->value.bias + target0 * C, C};
	emit(b, value);
	emit(b, norm(b, targets, y, norms, P_L4_W));
	emit(b, with_gelu(conv(targets, norms, m, linear_at(b, P_M1_W), 2 * C, C, 1)));
	emit(b, added(conv(targets, m, y, linear_at(b, P_M2_W), C, 2 * C, 1)));
	emit(b, norm(b, targets, y, norms, P_L5_W));
	struct step last = conv(targets, norms, (struct step_rows){b->p->score + target0, 1}, a->score, 1, C, 1);
	last.weight = (struct step_params){a->score.weight + target0 * C, C};
	last.bias = (struct step_params){a->score.bias + target0, 1};
	emit(b, last);
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void build_axial(struct builder *b)
{
	const struct mapper_config *c = b->c;
	const int C = b->width;
	const int64_t heads = c->proxy_heads, wide = c->encoder ? (c->window ? 3 : 2) * C : 0;
	struct axial a = {.b = b,
		.conv1 = fold_norm(b, P_C1_W, P_N1_W, P_N1_MEAN, (int64_t)mapper_group_inputs(c) * c->taps),
		.conv2 = fold_norm(b, P_C2_W, P_N2_W, P_N2_MEAN, (int64_t)C * c->taps),
		.value = fold_values(b),
		.score = fold_last(b),
		.key = fold_keys(b),
		.token = take_rows(b, heads * C)};
	int64_t most = 0;
	a.rest = b->p->rows;
	for (int group = 0, layer = 0; layer < c->layers; group++) {
		int n = 0;
		while (layer + n < c->layers && mapper_group_of(c, layer + n) == group)
			n++;
		if (n == 0) /* no target layer reads this one */
			continue;
		stage1(&a, group, (struct step_rows){a.rest, C});
		stage2(&a, group, (struct step_rows){a.rest, C}, a.rest + heads * C);
		stage3(&a, layer, n);
		most = larger(most, (int64_t)n * c->kv_heads * (ATTN_HEADS * (heads + C) + C));
		layer += n;
	}
	take_rows(b, larger(most, heads * (C + wide)));
}

/* ---- */

struct mapper_program *mapper_program_new(const struct mapper *m)
{
	static void (*const build[])(struct builder *) = {
		[MAPPER_FLAT] = build_flat, [MAPPER_LINEAR] = build_linear, [MAPPER_AXIAL] = build_axial};
	const struct mapper_config *c = &m->config;
	const bool attention = c->kind == MAPPER_AXIAL && c->encoder && c->window;
	struct mapper_program *p = mem_new(1, sizeof *p);
	struct builder b = {.p = p, .m = m, .c = c, .width = mapper_width(c)};
	p->proxy_layers = c->proxy_layers;
	p->proxy_heads = c->proxy_heads;
	p->targets = c->layers * c->kv_heads;
	p->whole = attention && c->window == MAPPER_ALL;
	p->halo = (c->kind == MAPPER_LINEAR ? 1 : 2) * (c->taps / 2) + (attention && !p->whole ? c->window : 0);
	take_params(&b, (int64_t)m->layout.count); /* as they are, at layout.at[] */
	memcpy(p->params, m->params, m->layout.count * sizeof *m->params);
	feature(&b);
	build[c->kind](&b);
	return p;
}

void mapper_program_free(struct mapper_program *p)
{
	if (!p)
		return;
	free(p->step);
	free(p->params);
	free(p);
}

void mapper_scale(const struct mapper *m, int64_t n, float *scale)
{
	const struct feature_plan plan = {.config = &m->config, .n = n};
	feature_scale(&plan, 0, n, scale);
}
