/* axial.c: the paper's HybridAxialMapper. Spec 1.3.
 *
 * A *sequence* is one (group, head): the rows of one proxy layer (and its neighbours) for one proxy head; a group is what a
 * target layer reads. C channels; q runs over the target's KV heads, h over ATTN_HEADS heads of C/ATTN_HEADS channels. stage 1  x
 * = GELU(norm(conv)) twice                                   each sequence, shared weights stage 2  x += attention(LN x); x += f2
 * GELU(f1 LN x)                  each sequence, shared weights; config.encoder, config.window stage 3  t = LN(x + head
 * embedding); y[q] = query[q] + o(attention of query[q] over the tokens t of all heads); y += m2 GELU(m1 LN y); score = a (out LN
 * y) + b              each target layer, at each position Stage 3 needs no keys and values of its own: query and key weights are
 * folded into one vector u[q,h] = W_k[h]^T query[q,h] / sqrt d (the key's bias shifts all logits alike), and the tokens are mixed
 * before the value weights are applied (softmax weights sum to 1).
 *
 * Training keeps every activation of the crop and runs in phases over sequences or target layers, since batch norm needs sums
 * over all sequences between its convolution and what follows. Inference runs the same phases on one strip and one group at a
 * time. Each item adds its weight gradients to a vector of its own; they are added up in item order, whatever thread ran them. */
#include "runners/mapper/net.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct sequence {                     /* [rows][ld]; [C] where not said */
	real *x1, *h1;                /* stage 1: normalised, after GELU */
	real *x2, *x;                 /* normalised; the running value. backward: x holds the gradient of `token` and on */
	real *xa, *qkv, *mixed;       /* attention: normalised; [3C]; heads' outputs side by side */
	real *xf, *f;                 /* feed forward: normalised; [2C] before GELU */
	real *x3, *token;             /* stage 3's norm: normalised, and its result, contiguous over the heads of a group */
	real *r1, *r2, *ra, *rf, *r3; /* [1] */
};
struct target {              /* of one target layer; Q = Hl * ATTN_HEADS rows (q, h) */
	real *weight;        /* [Hs][Q] attention over tokens */
	real *mixed;         /* [Q][C] tokens mixed */
	real *value;         /* [Hl][C] */
	real *x4, *m, *x5;   /* [Hl][C] normalised, [Hl][2C] before GELU, [Hl][C] normalised */
	real *r4, *r5, *out; /* [Hl] */
};
struct work {
	const struct net *net;
	struct strip strip;
	int width, groups, heads, layers, kv_heads, sequences;
	real *block;
	struct sequence *seq;    /* [groups*heads] */
	struct target *target;   /* [layers] */
	real *dtoken;            /* [layers][heads][C][ld]: gradient of the tokens by target layer */
	real *grad_seq;          /* [sequences][layout.sequence + C]: of weights; of the head embedding */
	real *grad_target;       /* [layers][trained - sequence] */
	double *sums;            /* [sequences][2C] batch norm: sums of a phase */
	real *mean[2], *rstd[2]; /* [C] batch norm's statistics: of the crop, or the running ones */
	real *sum_d, *sum_dx;    /* [C] */
	struct blocks *scratch;
	double count;       /* columns batch norm counts: sequences * positions */
	atomic_bool failed; /* an item found no scratch memory */
	/* of the pass at work */
	const real *params, *d_score; /* gradient of the score */
	struct input in;
	real *score;
};

static const real *param(const struct work *w, enum param_id id)
{
	return w->params + w->net->layout->at[id];
}

static bool has_attention(const struct work *w)
{
	return w->net->config->encoder && w->net->config->window;
}

static bool is_batch(const struct work *w)
{
	return w->net->config->norm == MAPPER_NORM_BATCH;
}

static int64_t window_of(const struct work *w)
{
	return w->net->config->window == MAPPER_ALL ? w->strip.n : w->net->config->window;
}

static struct work axial_shape(const struct net *n, const struct strip *s)
{
	const struct mapper_config *c = n->config;
	struct work w = {.net = n,
		.strip = *s,
		.width = mapper_width(c),
		.groups = mapper_groups(c),
		.heads = c->proxy_heads,
		.layers = c->layers,
		.kv_heads = c->kv_heads};
	w.sequences = w.groups * w.heads;
	return w;
}

static void sequence_carve(const struct work *w, struct carve *c, struct sequence *s)
{
	const struct mapper_config *config = w->net->config;
	const int64_t C = w->width, ld = w->strip.ld, encoder = config->encoder ? C : 0, attention = has_attention(w) ? C : 0;
	*s = (struct sequence){.x1 = carve(c, C, ld),
		.h1 = carve(c, C, ld),
		.x2 = carve(c, C, ld),
		.x = carve(c, C, ld),
		.xa = carve(c, attention, ld),
		.qkv = carve(c, 3 * attention, ld),
		.mixed = carve(c, attention, ld),
		.xf = carve(c, encoder, ld),
		.f = carve(c, 2 * encoder, ld),
		.x3 = carve(c, C, ld),
		.r1 = carve(c, 1, ld),
		.r2 = carve(c, 1, ld),
		.ra = carve(c, 1, ld),
		.rf = carve(c, 1, ld),
		.r3 = carve(c, 1, ld)};
}

static void target_carve(const struct work *w, struct carve *c, struct target *t)
{
	const int64_t C = w->width, ld = w->strip.ld, q = w->kv_heads, rows = q * ATTN_HEADS;
	*t = (struct target){.weight = carve(c, w->heads * rows, ld),
		.mixed = carve(c, rows * C, ld),
		.value = carve(c, q * C, ld),
		.x4 = carve(c, q * C, ld),
		.m = carve(c, 2 * q * C, ld),
		.x5 = carve(c, q * C, ld),
		.r4 = carve(c, q, ld),
		.r5 = carve(c, q, ld),
		.out = carve(c, q, ld)};
}

/* Scratch of an item: a few buffers of [C], small matrices, the attention's. */
struct scratch {
	real *a, *b, *wide, *wide2; /* [C] [C] [3C] [3C] rows */
	real *logits;               /* [Hs][Q] rows: gradient of the logits */
	real *dmixed;               /* [Q][C] rows */
	real *u, *du, *turned;      /* [Q][C] numbers; a turned weight matrix */
	real *band;
};

static size_t scratch_carve(const struct work *w, real *block, bool training, struct scratch *s)
{
	struct carve c = {.block = block};
	const int64_t C = w->width, ld = w->strip.ld, rows = (int64_t)w->kv_heads * ATTN_HEADS;
	const int64_t taps = w->net->config->taps, turned = 3 * C * C > C * C * taps ? 3 * C * C : C * C * taps;
	*s = (struct scratch){.a = carve(&c, C, ld),
		.b = carve(&c, C, ld),
		.wide = carve(&c, 3 * C, ld),
		.wide2 = carve(&c, training ? 3 * C : 0, ld),
		.logits = carve(&c, training ? w->heads * rows : 0, ld),
		.dmixed = carve(&c, training ? rows * C : 0, ld),
		.u = carve(&c, rows, C),
		.du = carve(&c, rows, C),
		.turned = carve(&c, 1, turned > rows * C ? turned : rows * C)};
	s->band = carve(&c, 1, has_attention(w) ? (int64_t)band_scratch(&w->strip, window_of(w)) : 0);
	return c.used;
}

/* ---- small helpers: one layer on the strip ---- */
static void linear(
	const struct work *w, const real *weight, const real *bias, int rows, int channels, const real *in, real *out, bool add)
{
	const struct conv c = {.w = weight,
		.bias = bias,
		.in = in,
		.out = out,
		.w_ld = channels,
		.in_ld = w->strip.ld,
		.out_ld = w->strip.ld,
		.cols = w->strip.cols,
		.rows = rows,
		.channels = channels,
		.taps = 1,
		.add = add};
	w->net->kernels->conv(&c);
}

/* Gradients of a linear layer's weight, bias and (din not NULL: written or added to) input. */
static void linear_back(const struct work *w, const struct scratch *s, const real *weight, int rows, int channels, const real *in,
	const real *d, real *dw, real *db, real *din, bool add)
{
	const struct conv_grad g = {.d = d,
		.in = in,
		.dw = dw,
		.db = db,
		.d_ld = w->strip.ld,
		.in_ld = w->strip.ld,
		.dw_ld = channels,
		.cols = w->strip.cols,
		.rows = rows,
		.channels = channels,
		.taps = 1};
	w->net->kernels->conv_grad(&g);
	if (din) {
		REAL(conv_transpose)(weight, rows, channels, 1, s->turned);
		linear(w, s->turned, NULL, channels, rows, d, din, add);
	}
}

static struct norm layer_norm(const struct work *w, enum param_id gain, const real *in, real *xhat, real *rstd, real *out)
{
	return (struct norm){.in = in,
		.xhat = xhat,
		.out = out,
		.rstd = rstd,
		.gain = param(w, gain),
		.bias = param(w, gain + 1),
		.cols = w->strip.cols,
		.ld = w->strip.ld,
		.channels = w->width};
}

/* Stage 1's norm: layer norm, or batch norm by the statistics of the crop (training) or the running ones. */
static struct norm stage1_norm(const struct work *w, int stage, struct sequence *s)
{
	static const enum param_id gain[2] = {P_N1_W, P_N2_W};
	real *x = stage ? s->x2 : s->x1;
	struct norm n = layer_norm(w, gain[stage], x, x, stage ? s->r2 : s->r1, stage ? s->x : s->h1);
	n.gelu = true;
	if (is_batch(w)) {
		n.mean = w->mean[stage];
		n.rstd = w->rstd[stage];
	}
	return n;
}

/* gain xhat + bias again, for the weight gradient of the layer behind a norm. */
static void norm_result(const struct work *w, enum param_id gain, const real *xhat, real *out)
{
	const real *g = param(w, gain), *b = param(w, gain + 1);
	for (int64_t c = 0; c < w->width; c++)
		for (int64_t t = 0; t < w->strip.cols; t++)
			out[c * w->strip.ld + t] = g[c] * xhat[c * w->strip.ld + t] + b[c];
}

static void add_rows(const struct work *w, const real *from, real *to)
{
	for (int64_t i = 0; i < w->width * w->strip.ld; i++)
		to[i] += from[i];
}

/* ---- stage 1 ---- */
/* Channels of the first convolution that lie inside the proxy: neighbours beyond its first and last layer count as zero. */
struct channels {
	int first, count; /* in the weights */
	const real *in;
	int64_t ld;
};

static struct channels conv1_channels(const struct work *w, int group, int head)
{
	const struct mapper_config *c = w->net->config;
	int lowest = c->neighbours == MAPPER_ALL ? 0 : group - c->neighbours, n = mapper_group_inputs(c);
	int first = lowest < 0 ? -lowest : 0, last = lowest + n > c->proxy_layers ? c->proxy_layers - lowest : n;
	int64_t row = (int64_t)(lowest + first - w->in.first_layer) * c->proxy_heads + head;
	return (struct channels){
		.first = first, .count = last - first, .in = w->in.x + row * w->strip.ld, .ld = c->proxy_heads * w->strip.ld};
}

static void conv1(const struct work *w, int group, int head, struct sequence *s)
{
	const struct channels in = conv1_channels(w, group, head);
	const int taps = w->net->config->taps;
	const struct conv c = {.w = param(w, P_C1_W) + in.first * taps,
		.bias = param(w, P_C1_B),
		.in = in.in,
		.out = s->x1,
		.w_ld = (int64_t)mapper_group_inputs(w->net->config) * taps,
		.in_ld = in.ld,
		.out_ld = w->strip.ld,
		.cols = w->strip.cols,
		.rows = w->width,
		.channels = in.count,
		.taps = taps};
	w->net->kernels->conv(&c);
}

static void conv2(const struct work *w, struct sequence *s)
{
	const int taps = w->net->config->taps;
	const struct conv c = {.w = param(w, P_C2_W),
		.bias = param(w, P_C2_B),
		.in = s->h1,
		.out = s->x2,
		.w_ld = (int64_t)w->width * taps,
		.in_ld = w->strip.ld,
		.out_ld = w->strip.ld,
		.cols = w->strip.cols,
		.rows = w->width,
		.channels = w->width,
		.taps = taps};
	struct norm n = stage1_norm(w, 0, s);
	w->net->kernels->norm(&n);
	REAL(strip_mask)(&w->strip, s->h1, w->width);
	w->net->kernels->conv(&c);
}

/* ---- stages 2 and 3's norm, one sequence ---- */
static struct band band_of(const struct work *w, const struct scratch *s, const struct sequence *q, int head)
{
	const int d = w->width / ATTN_HEADS, half = mapper_bias_half(w->net->config);
	const int64_t at = (int64_t)head * d * w->strip.ld, C = w->width * w->strip.ld;
	return (struct band){.q = q->qkv + at,
		.k = q->qkv + C + at,
		.v = q->qkv + 2 * C + at,
		.out = q->mixed + at,
		.rb = param(w, P_RB) + (int64_t)head * (2 * half + 1),
		.scratch = s->band,
		.window = window_of(w),
		.half = half,
		.strip = w->strip,
		.d = d};
}

static void encoder(const struct work *w, const struct scratch *s, struct sequence *q)
{
	const struct kernels *k = w->net->kernels;
	if (has_attention(w)) {
		struct norm n = layer_norm(w, P_L1_W, q->x, q->xa, q->ra, s->a);
		k->norm(&n);
		linear(w, param(w, P_QKV_W), param(w, P_QKV_B), 3 * w->width, w->width, s->a, q->qkv, false);
		for (int h = 0; h < ATTN_HEADS; h++) {
			struct band b = band_of(w, s, q, h);
			k->band(&b);
		}
		linear(w, param(w, P_AO_W), param(w, P_AO_B), w->width, w->width, q->mixed, q->x, true);
	}
	struct norm n = layer_norm(w, P_L2_W, q->x, q->xf, q->rf, s->a);
	k->norm(&n);
	linear(w, param(w, P_F1_W), param(w, P_F1_B), 2 * w->width, w->width, s->a, q->f, false);
	k->gelu(q->f, s->wide, 2 * w->width * w->strip.ld);
	linear(w, param(w, P_F2_W), param(w, P_F2_B), w->width, 2 * w->width, s->wide, q->x, true);
}

static struct norm token_norm(const struct work *w, int group, int head, struct sequence *q)
{
	struct norm n = layer_norm(w, P_L3_W, q->x, q->x3, q->r3, q->token);
	int64_t of = w->net->config->embeddings == MAPPER_EMB_FULL ? group : 0;
	n.shift = param(w, P_HE) + (of * w->heads + head) * w->width;
	return n;
}

static void stage2(const struct work *w, const struct scratch *s, int group, int head, struct sequence *q)
{
	struct norm n2 = stage1_norm(w, 1, q), n3 = token_norm(w, group, head, q);
	w->net->kernels->norm(&n2);
	if (w->net->config->encoder)
		encoder(w, s, q);
	w->net->kernels->norm(&n3);
}

/* ---- stage 3, one target layer ---- */
static const real *query_of(const struct work *w, int layer)
{
	return param(w, P_Q) + (w->net->config->embeddings == MAPPER_EMB_FULL ? (int64_t)layer * w->kv_heads * w->width : 0);
}

/* u[q,h] = W_k[h]^T query[q,h] / sqrt d */
static void fold_queries(const struct work *w, int layer, real *u)
{
	const int C = w->width, d = C / ATTN_HEADS;
	const real *query = query_of(w, layer), *key = param(w, P_KV_W), scale = (real)(1 / sqrt((double)d));
	for (int r = 0; r < w->kv_heads * ATTN_HEADS; r++)
		for (int c = 0; c < C; c++) {
			real sum = 0;
			for (int i = 0; i < d; i++)
				sum += query[r * d + i] * key[(r % ATTN_HEADS * d + i) * C + c];
			u[r * C + c] = sum * scale;
		}
}

static void fold_queries_back(const struct work *w, int layer, const real *du, real *dquery, real *dkey)
{
	const int C = w->width, d = C / ATTN_HEADS;
	const real *query = query_of(w, layer), *key = param(w, P_KV_W), scale = (real)(1 / sqrt((double)d));
	for (int r = 0; r < w->kv_heads * ATTN_HEADS; r++)
		for (int i = 0; i < d; i++) {
			int64_t row = (int64_t)(r % ATTN_HEADS * d + i) * C;
			real sum = 0;
			for (int c = 0; c < C; c++) {
				sum += du[r * C + c] * key[row + c];
				dkey[row + c] += du[r * C + c] * query[r * d + i] * scale;
			}
			dquery[r * d + i] += sum * scale;
		}
}

/* Head h of KV head q: rows of W_v, and what they make of the mixed tokens. */
struct value_head {
	const real *weight, *bias, *in;
	real *out;
	int64_t at; /* first row of the head inside W_v, then its element in the gradient */
};

static struct value_head value_head(const struct work *w, const struct target *t, int q, int h)
{
	const int64_t C = w->width, d = C / ATTN_HEADS, ld = w->strip.ld;
	return (struct value_head){.weight = param(w, P_KV_W) + (C + h * d) * C,
		.bias = param(w, P_KV_B) + C + h * d,
		.in = t->mixed + (q * ATTN_HEADS + h) * C * ld,
		.out = t->value + (q * C + h * d) * ld,
		.at = C + h * d};
}

static void target_row(const struct work *w, const struct scratch *s, int layer, int q, struct target *t, real *score)
{
	const struct kernels *k = w->net->kernels;
	const int64_t C = w->width, ld = w->strip.ld, row = (int64_t)layer * w->kv_heads + q;
	const real *query = query_of(w, layer) + q * C, a = param(w, P_A)[row], b = param(w, P_B)[row];
	real *y = s->b;
	for (int h = 0; h < ATTN_HEADS; h++) {
		const struct value_head v = value_head(w, t, q, h);
		linear(w, v.weight, v.bias, (int)C / ATTN_HEADS, (int)C, v.in, v.out, false);
	}
	linear(w, param(w, P_O_W), param(w, P_O_B), (int)C, (int)C, t->value + q * C * ld, y, false);
	for (int64_t c = 0; c < C; c++)
		for (int64_t i = 0; i < w->strip.cols; i++)
			y[c * ld + i] += query[c];
	struct norm n4 = layer_norm(w, P_L4_W, y, t->x4 + q * C * ld, t->r4 + q * ld, s->a);
	struct norm n5 = layer_norm(w, P_L5_W, y, t->x5 + q * C * ld, t->r5 + q * ld, s->a);
	k->norm(&n4);
	linear(w, param(w, P_M1_W), param(w, P_M1_B), 2 * (int)C, (int)C, s->a, t->m + 2 * q * C * ld, false);
	k->gelu(t->m + 2 * q * C * ld, s->wide, 2 * C * ld);
	linear(w, param(w, P_M2_W), param(w, P_M2_B), (int)C, 2 * (int)C, s->wide, y, true);
	k->norm(&n5);
	linear(w, param(w, P_OUT_W), param(w, P_OUT_B), 1, (int)C, s->a, t->out + q * ld, false);
	for (int64_t i = 0; i < w->strip.cols; i++)
		score[row * ld + i] = t->out[q * ld + i] * a + b;
}

/* tokens [Hs][C][ld] of the layer's group */
static void stage3(const struct work *w, const struct scratch *s, int layer, const real *tokens, struct target *t, real *score)
{
	const int rows = w->kv_heads * ATTN_HEADS;
	const int64_t ld = w->strip.ld;
	fold_queries(w, layer, s->u);
	for (int64_t p = 0; p < w->heads; p++)
		linear(w, s->u, NULL, rows, w->width, tokens + p * w->width * ld, t->weight + p * rows * ld, false);
	w->net->kernels->mix(t->weight, tokens, t->mixed, w->heads, rows, w->width, w->strip.cols, ld);
	for (int q = 0; q < w->kv_heads; q++)
		target_row(w, s, layer, q, t, score);
}

/* ---- training: forward phases ---- */
static void with_scratch(struct work *w, int64_t item, void (*fn)(struct work *, const struct scratch *, int64_t))
{
	struct scratch s;
	real *block = blocks_take(w->scratch);
	if (!block) {
		w->failed = true;
		return;
	}
	scratch_carve(w, block + PAD, true, &s);
	fn(w, &s, item);
	blocks_give(w->scratch, block);
}

/* Sums of the columns inside the sequence of one channel, and of squares (y = x) or products. */
static void channel_sums(const struct work *w, const real *x, const real *y, double *sum)
{
	int64_t begin = w->strip.first < 0 ? -w->strip.first : 0;
	for (int64_t c = 0; c < w->width; c++) {
		double s = 0, p = 0;
		for (int64_t t = begin; t < begin + w->strip.n; t++) {
			double v = (double)x[c * w->strip.ld + t];
			s += v;
			p += v * (double)y[c * w->strip.ld + t];
		}
		sum[c] = s;
		sum[w->width + c] = p;
	}
}

static void phase_conv1(void *arg, int64_t item)
{
	struct work *w = arg;
	conv1(w, (int)(item / w->heads), (int)(item % w->heads), &w->seq[item]);
	if (is_batch(w))
		channel_sums(w, w->seq[item].x1, w->seq[item].x1, w->sums + item * 2 * w->width);
}

static void phase_conv2(void *arg, int64_t item)
{
	struct work *w = arg;
	conv2(w, &w->seq[item]);
	if (is_batch(w))
		channel_sums(w, w->seq[item].x2, w->seq[item].x2, w->sums + item * 2 * w->width);
}

static void stage2_item(struct work *w, const struct scratch *s, int64_t item)
{
	stage2(w, s, (int)(item / w->heads), (int)(item % w->heads), &w->seq[item]);
}
static void phase_stage2(void *arg, int64_t item)
{
	with_scratch(arg, item, stage2_item);
}

static void stage3_item(struct work *w, const struct scratch *s, int64_t layer)
{
	int group = mapper_group_of(w->net->config, (int)layer);
	stage3(w, s, (int)layer, w->seq[(int64_t)group * w->heads].token, &w->target[layer], w->score);
}
static void phase_stage3(void *arg, int64_t layer)
{
	with_scratch(arg, layer, stage3_item);
}

static void add_sums(const struct work *w, double *total)
{
	memset(total, 0, (size_t)(2 * w->width) * sizeof *total);
	for (int64_t i = 0; i < w->sequences; i++)
		for (int c = 0; c < 2 * w->width; c++)
			total[c] += w->sums[i * 2 * w->width + c];
}

/* Mean and 1/deviation of each channel of this crop (biased); the running ones follow with momentum .1 (unbiased variance), as
 * torch's. */
static void batch_statistics(struct work *w, int stage, real *params)
{
	static const enum param_id running[2] = {P_N1_MEAN, P_N2_MEAN};
	double *total = w->sums + (int64_t)w->sequences * 2 * w->width;
	add_sums(w, total);
	for (int c = 0; c < w->width; c++) {
		double mean = total[c] / w->count, var = total[w->width + c] / w->count - mean * mean;
		var = var > 0 ? var : 0;
		w->mean[stage][c] = (real)mean;
		w->rstd[stage][c] = (real)(1 / sqrt(var + 1e-5));
		if (params) {
			real *m = param_at(w->net, params, running[stage]) + c,
			     *v = param_at(w->net, params, running[stage] + 1) + c;
			*m = (real)(0.9 * (double)*m + 0.1 * mean);
			*v = (real)(0.9 * (double)*v + 0.1 * var * w->count / (w->count > 1 ? w->count - 1 : 1));
		}
	}
}

static int axial_forward(struct work *w, real *params, const real *x, real *score, bool update, const struct mapper_pool *pool)
{
	w->params = params;
	w->in = (struct input){.x = x};
	w->score = score;
	REAL(pool_run)(pool, w->sequences, phase_conv1, w);
	if (is_batch(w))
		batch_statistics(w, 0, update ? params : NULL);
	REAL(pool_run)(pool, w->sequences, phase_conv2, w);
	if (is_batch(w))
		batch_statistics(w, 1, update ? params : NULL);
	REAL(pool_run)(pool, w->sequences, phase_stage2, w);
	REAL(pool_run)(pool, w->layers, phase_stage3, w);
	return w->failed ? -1 : 0;
}

/* ---- training: backward phases ---- */
static real *seq_grad(const struct work *w, int64_t item, enum param_id id)
{
	return w->grad_seq + item * (int64_t)(w->net->layout->sequence + (size_t)w->width) + w->net->layout->at[id];
}

static real *target_grad(const struct work *w, int64_t layer, enum param_id id)
{
	const struct layout *l = w->net->layout;
	return w->grad_target + layer * (int64_t)(l->trained - l->sequence) + l->at[id] - (int64_t)l->sequence;
}

/* Back through a norm without GELU: d, the gradient of its result, becomes that of its input. */
static void layer_norm_back(const struct work *w, const struct norm *n, real *d, real *dgain, real *dbias)
{
	w->net->kernels->norm_grad(n, d, dgain, dbias);
	w->net->kernels->norm_back_layer(n, d);
}

/* One KV head of a target layer, down to the gradient of its mixed tokens. dy = s->b. */
static void target_row_back(const struct work *w, const struct scratch *s, int layer, int q, const struct target *t)
{
	const struct kernels *k = w->net->kernels;
	const int64_t C = w->width, ld = w->strip.ld, row = (int64_t)layer * w->kv_heads + q;
	const real a = param(w, P_A)[row], *d = w->d_score + row * ld;
	real *dy = s->b, *dout = s->wide2, *dquery = target_grad(w, layer, P_Q) + (query_of(w, layer) - param(w, P_Q)) + q * C;
	double sum = 0, sum_out = 0;
	for (int64_t i = 0; i < w->strip.cols; i++) {
		sum += (double)d[i];
		sum_out += (double)d[i] * (double)t->out[q * ld + i];
		dout[i] = d[i] * a;
	}
	target_grad(w, layer, P_A)[row] += (real)sum_out;
	target_grad(w, layer, P_B)[row] += (real)sum;
	struct norm n5 = layer_norm(w, P_L5_W, NULL, t->x5 + q * C * ld, t->r5 + q * ld, NULL);
	norm_result(w, P_L5_W, n5.xhat, s->a);
	linear_back(w, s, param(w, P_OUT_W), 1, (int)C, s->a, dout, target_grad(w, layer, P_OUT_W),
		target_grad(w, layer, P_OUT_B), dy, false);
	layer_norm_back(w, &n5, dy, target_grad(w, layer, P_L5_W), target_grad(w, layer, P_L5_B));
	struct norm n4 = layer_norm(w, P_L4_W, NULL, t->x4 + q * C * ld, t->r4 + q * ld, NULL);
	k->gelu(t->m + 2 * q * C * ld, s->wide, 2 * C * ld);
	linear_back(w, s, param(w, P_M2_W), (int)C, 2 * (int)C, s->wide, dy, target_grad(w, layer, P_M2_W),
		target_grad(w, layer, P_M2_B), s->wide2, false);
	k->gelu_back(t->m + 2 * q * C * ld, s->wide2, 2 * C * ld);
	norm_result(w, P_L4_W, n4.xhat, s->a);
	linear_back(w, s, param(w, P_M1_W), 2 * (int)C, (int)C, s->a, s->wide2, target_grad(w, layer, P_M1_W),
		target_grad(w, layer, P_M1_B), s->wide, false);
	layer_norm_back(w, &n4, s->wide, target_grad(w, layer, P_L4_W), target_grad(w, layer, P_L4_B));
	add_rows(w, s->wide, dy);
	for (int64_t c = 0; c < C; c++) {
		double total = 0;
		for (int64_t i = 0; i < w->strip.cols; i++)
			total += (double)dy[c * ld + i];
		dquery[c] += (real)total;
	}
	linear_back(w, s, param(w, P_O_W), (int)C, (int)C, t->value + q * C * ld, dy, target_grad(w, layer, P_O_W),
		target_grad(w, layer, P_O_B), s->a, false);
	for (int h = 0; h < ATTN_HEADS; h++) {
		const struct value_head v = value_head(w, t, q, h);
		linear_back(w, s, v.weight, (int)C / ATTN_HEADS, (int)C, v.in, s->a + h * (C / ATTN_HEADS) * ld,
			target_grad(w, layer, P_KV_W) + v.at * C, target_grad(w, layer, P_KV_B) + v.at,
			s->dmixed + (q * ATTN_HEADS + h) * C * ld, false);
	}
}

static void stage3_back_item(struct work *w, const struct scratch *s, int64_t layer)
{
	const int rows = w->kv_heads * ATTN_HEADS, C = w->width;
	const int64_t ld = w->strip.ld;
	const struct target *t = &w->target[layer];
	const real *tokens = w->seq[(int64_t)mapper_group_of(w->net->config, (int)layer) * w->heads].token;
	real *dtoken = w->dtoken + layer * w->heads * C * ld;
	for (int q = 0; q < w->kv_heads; q++)
		target_row_back(w, s, (int)layer, q, t);
	memset(dtoken, 0, (size_t)(w->heads * C * ld) * sizeof *dtoken);
	w->net->kernels->mix_back(t->weight, tokens, s->dmixed, s->logits, dtoken, w->heads, rows, C, w->strip.cols, ld);
	fold_queries(w, (int)layer, s->u);
	memset(s->du, 0, (size_t)rows * (size_t)C * sizeof *s->du);
	for (int64_t p = 0; p < w->heads; p++)
		linear_back(w, s, s->u, rows, C, tokens + p * C * ld, s->logits + p * rows * ld, s->du, NULL, dtoken + p * C * ld,
			true);
	fold_queries_back(w, (int)layer, s->du, target_grad(w, layer, P_Q) + (query_of(w, (int)layer) - param(w, P_Q)),
		target_grad(w, layer, P_KV_W));
}
static void phase_stage3_back(void *arg, int64_t layer)
{
	with_scratch(arg, layer, stage3_back_item);
}

static void attention_back(const struct work *w, const struct scratch *s, int64_t item)
{
	struct sequence *q = &w->seq[item];
	const int64_t C = w->width, ld = w->strip.ld, half = mapper_bias_half(w->net->config);
	const struct norm n = layer_norm(w, P_L1_W, NULL, q->xa, q->ra, NULL);
	linear_back(w, s, param(w, P_AO_W), (int)C, (int)C, q->mixed, q->x, seq_grad(w, item, P_AO_W), seq_grad(w, item, P_AO_B),
		s->b, false);
	memset(s->wide, 0, (size_t)(3 * C * ld) * sizeof(real));
	for (int h = 0; h < ATTN_HEADS; h++) {
		struct band b = band_of(w, s, q, h);
		const int64_t at = h * (C / ATTN_HEADS) * ld;
		b.dout = s->b + at;
		b.dq = s->wide + at;
		b.dk = s->wide + C * ld + at;
		b.dv = s->wide + 2 * C * ld + at;
		b.drb = seq_grad(w, item, P_RB) + h * (2 * half + 1);
		w->net->kernels->band_back(&b);
	}
	norm_result(w, P_L1_W, q->xa, s->a);
	linear_back(w, s, param(w, P_QKV_W), 3 * (int)C, (int)C, s->a, s->wide, seq_grad(w, item, P_QKV_W),
		seq_grad(w, item, P_QKV_B), s->b, false);
	layer_norm_back(w, &n, s->b, seq_grad(w, item, P_L1_W), seq_grad(w, item, P_L1_B));
	add_rows(w, s->b, q->x);
}

static void feed_forward_back(const struct work *w, const struct scratch *s, int64_t item)
{
	struct sequence *q = &w->seq[item];
	const int64_t C = w->width, wide = 2 * C * w->strip.ld;
	const struct norm n = layer_norm(w, P_L2_W, NULL, q->xf, q->rf, NULL);
	w->net->kernels->gelu(q->f, s->wide, wide);
	linear_back(w, s, param(w, P_F2_W), (int)C, 2 * (int)C, s->wide, q->x, seq_grad(w, item, P_F2_W),
		seq_grad(w, item, P_F2_B), s->wide2, false);
	w->net->kernels->gelu_back(q->f, s->wide2, wide);
	norm_result(w, P_L2_W, q->xf, s->a);
	linear_back(w, s, param(w, P_F1_W), 2 * (int)C, (int)C, s->a, s->wide2, seq_grad(w, item, P_F1_W),
		seq_grad(w, item, P_F1_B), s->b, false);
	layer_norm_back(w, &n, s->b, seq_grad(w, item, P_L2_W), seq_grad(w, item, P_L2_B));
	add_rows(w, s->b, q->x);
}

/* Gradient of a sequence's tokens, over the target layers that read them, back to before stage 1's second GELU. */
static void stage2_back_item(struct work *w, const struct scratch *s, int64_t item)
{
	struct sequence *q = &w->seq[item];
	const int64_t C = w->width, ld = w->strip.ld;
	const int group = (int)(item / w->heads), head = (int)(item % w->heads);
	real *embedding = w->grad_seq + (item + 1) * (int64_t)(w->net->layout->sequence + (size_t)C) - C;
	memset(q->x, 0, (size_t)(C * ld) * sizeof(real));
	for (int64_t l = 0; l < w->layers; l++)
		if (mapper_group_of(w->net->config, (int)l) == group)
			add_rows(w, w->dtoken + (l * w->heads + head) * C * ld, q->x);
	struct norm n3 = token_norm(w, group, head, q), n2 = stage1_norm(w, 1, q);
	layer_norm_back(w, &n3, q->x, seq_grad(w, item, P_L3_W), seq_grad(w, item, P_L3_B));
	for (int64_t c = 0; c < C; c++) {
		double sum = 0;
		for (int64_t t = 0; t < w->strip.cols; t++)
			sum += (double)q->x[c * ld + t];
		embedding[c] = (real)sum;
	}
	if (w->net->config->encoder)
		feed_forward_back(w, s, item);
	if (has_attention(w))
		attention_back(w, s, item);
	w->net->kernels->norm_grad(&n2, q->x, seq_grad(w, item, P_N2_W), seq_grad(w, item, P_N2_B));
}
static void phase_stage2_back(void *arg, int64_t item)
{
	with_scratch(arg, item, stage2_back_item);
}

static void stage1_norm_back(const struct work *w, const struct norm *n, real *d)
{
	if (!is_batch(w)) {
		w->net->kernels->norm_back_layer(n, d);
		return;
	}
	w->net->kernels->norm_back_batch(n, d, w->sum_d, w->sum_dx, w->count);
	REAL(strip_mask)(&w->strip, d, w->width);
}

/* From the second norm to before the first GELU; h1 becomes the gradient. */
static void conv2_back_item(struct work *w, const struct scratch *s, int64_t item)
{
	struct sequence *q = &w->seq[item];
	const int taps = w->net->config->taps, C = w->width;
	const int64_t ld = w->strip.ld;
	const struct norm n1 = stage1_norm(w, 0, q), n2 = stage1_norm(w, 1, q);
	stage1_norm_back(w, &n2, q->x);
	const struct conv_grad g = {.d = q->x,
		.in = q->h1,
		.dw = seq_grad(w, item, P_C2_W),
		.db = seq_grad(w, item, P_C2_B),
		.d_ld = ld,
		.in_ld = ld,
		.dw_ld = (int64_t)C * taps,
		.cols = w->strip.cols,
		.rows = C,
		.channels = C,
		.taps = taps};
	w->net->kernels->conv_grad(&g);
	REAL(conv_transpose)(param(w, P_C2_W), C, C, taps, s->turned);
	const struct conv c = {.w = s->turned,
		.in = q->x,
		.out = q->h1,
		.w_ld = (int64_t)C * taps,
		.in_ld = ld,
		.out_ld = ld,
		.cols = w->strip.cols,
		.rows = C,
		.channels = C,
		.taps = taps};
	w->net->kernels->conv(&c);
	REAL(strip_mask)(&w->strip, q->h1, C);
	w->net->kernels->norm_grad(&n1, q->h1, seq_grad(w, item, P_N1_W), seq_grad(w, item, P_N1_B));
}
static void phase_conv2_back(void *arg, int64_t item)
{
	with_scratch(arg, item, conv2_back_item);
}

static void phase_conv1_back(void *arg, int64_t item)
{
	struct work *w = arg;
	struct sequence *q = &w->seq[item];
	const struct norm n1 = stage1_norm(w, 0, q);
	const struct channels in = conv1_channels(w, (int)(item / w->heads), (int)(item % w->heads));
	const int taps = w->net->config->taps;
	stage1_norm_back(w, &n1, q->h1);
	const struct conv_grad g = {.d = q->h1,
		.in = in.in,
		.dw = seq_grad(w, item, P_C1_W) + in.first * taps,
		.db = seq_grad(w, item, P_C1_B),
		.d_ld = w->strip.ld,
		.in_ld = in.ld,
		.dw_ld = (int64_t)mapper_group_inputs(w->net->config) * taps,
		.cols = w->strip.cols,
		.rows = w->width,
		.channels = in.count,
		.taps = taps};
	w->net->kernels->conv_grad(&g);
}

/* Batch norm's sums over all sequences are the gradients of its gain and bias, which the sequences' own vectors hold by now. */
static void batch_sums(struct work *w, enum param_id gain)
{
	for (int c = 0; c < w->width; c++) {
		double d = 0, dx = 0;
		for (int64_t i = 0; i < w->sequences; i++) {
			dx += (double)seq_grad(w, i, gain)[c];
			d += (double)seq_grad(w, i, gain + 1)[c];
		}
		w->sum_d[c] = (real)d;
		w->sum_dx[c] = (real)dx;
	}
}

static void gather_gradients(const struct work *w, real *grad)
{
	const struct layout *l = w->net->layout;
	const size_t C = (size_t)w->width;
	const bool full = w->net->config->embeddings == MAPPER_EMB_FULL;
	for (size_t i = 0; i < (size_t)w->sequences; i++) {
		const real *from = w->grad_seq + i * (l->sequence + C);
		for (size_t p = 0; p < l->sequence; p++)
			grad[p] += from[p];
		real *embedding = grad + l->at[P_HE] + (full ? i : i % (size_t)w->heads) * C;
		for (size_t c = 0; c < C; c++)
			embedding[c] += from[l->sequence + c];
	}
	for (int64_t layer = 0; layer < w->layers; layer++)
		for (size_t p = (size_t)l->at[P_Q]; p < l->trained; p++)
			grad[p] += w->grad_target[layer * (int64_t)(l->trained - l->sequence) + (int64_t)(p - l->sequence)];
}

static int axial_backward(
	struct work *w, const real *params, const real *x, const real *d, real *grad, const struct mapper_pool *pool)
{
	const struct layout *l = w->net->layout;
	w->params = params;
	w->in = (struct input){.x = x};
	w->d_score = d;
	memset(w->grad_seq, 0, (size_t)w->sequences * (l->sequence + (size_t)w->width) * sizeof(real));
	memset(w->grad_target, 0, (size_t)w->layers * (l->trained - l->sequence) * sizeof(real));
	REAL(pool_run)(pool, w->layers, phase_stage3_back, w);
	REAL(pool_run)(pool, w->sequences, phase_stage2_back, w);
	batch_sums(w, P_N2_W);
	REAL(pool_run)(pool, w->sequences, phase_conv2_back, w);
	batch_sums(w, P_N1_W);
	REAL(pool_run)(pool, w->sequences, phase_conv1_back, w);
	gather_gradients(w, grad);
	return w->failed ? -1 : 0;
}

/* ---- training: memory ---- */
static size_t axial_carve(struct work *w, real *block)
{
	struct carve c = {.block = block};
	const struct layout *l = w->net->layout;
	const int64_t C = w->width, ld = w->strip.ld;
	real *tokens = carve(&c, w->sequences * C, ld);
	for (int64_t i = 0; i < w->sequences; i++) {
		sequence_carve(w, &c, &w->seq[i]);
		w->seq[i].token = block ? tokens + i * C * ld : NULL;
	}
	for (int i = 0; i < w->layers; i++)
		target_carve(w, &c, &w->target[i]);
	w->dtoken = carve(&c, (int64_t)w->layers * w->heads * C, ld);
	for (int i = 0; i < 2; i++) {
		w->mean[i] = carve(&c, 1, C);
		w->rstd[i] = carve(&c, 1, C);
	}
	w->sum_d = carve(&c, 1, C);
	w->sum_dx = carve(&c, 1, C);
	w->grad_seq = carve(&c, w->sequences, (int64_t)l->sequence + C);
	w->grad_target = carve(&c, w->layers, (int64_t)(l->trained - l->sequence));
	return c.used;
}

static void axial_work_free(struct work *w)
{
	if (!w)
		return;
	REAL(block_free)(w->block);
	blocks_free(w->scratch);
	free(w->seq);
	free(w->target);
	free(w->sums);
	free(w);
}

static void axial_set_length(struct work *w, int64_t n)
{
	w->strip.n = n;
	w->count = (double)w->sequences * (double)n;
}

static struct work *axial_work_new(const struct net *n, const struct strip *s)
{
	struct work *w = mem_new(1, sizeof *w);
	struct scratch scratch;
	*w = axial_shape(n, s);
	axial_set_length(w, s->n);
	w->seq = mem_new((size_t)w->sequences, sizeof *w->seq);
	w->target = mem_new((size_t)w->layers, sizeof *w->target);
	w->sums = mem_new((size_t)(w->sequences + 1) * 2 * (size_t)w->width, sizeof *w->sums);
	w->scratch = blocks_new((scratch_carve(w, NULL, true, &scratch) + 2 * PAD) * sizeof(real));
	w->block = REAL(block_new)(axial_carve(w, NULL));
	if (!w->block) {
		axial_work_free(w);
		return NULL;
	}
	axial_carve(w, w->block);
	return w;
}

/* ---- inference: one strip, one group ---- */
struct infer_scratch {
	struct scratch scratch;
	struct sequence seq;
	struct target target;
	real *tokens; /* [Hs][C] rows */
	real *mean[2], *rstd[2];
};

static size_t infer_carve(const struct work *w, real *block, struct infer_scratch *s)
{
	size_t used = scratch_carve(w, block, false, &s->scratch);
	struct carve c = {.block = block, .used = (used + PAD - 1) / PAD * PAD};
	sequence_carve(w, &c, &s->seq);
	target_carve(w, &c, &s->target);
	s->tokens = carve(&c, w->heads * w->width, w->strip.ld);
	for (int i = 0; i < 2; i++) {
		s->mean[i] = carve(&c, 1, w->width);
		s->rstd[i] = carve(&c, 1, w->width);
	}
	return c.used;
}

static size_t axial_scratch(const struct net *n, const struct strip *s)
{
	const struct work w = axial_shape(n, s);
	struct infer_scratch scratch;
	return infer_carve(&w, NULL, &scratch);
}

static void running_statistics(struct work *w, struct infer_scratch *s)
{
	static const enum param_id running[2] = {P_N1_MEAN, P_N2_MEAN};
	for (int i = 0; i < 2; i++) {
		w->mean[i] = s->mean[i];
		w->rstd[i] = s->rstd[i];
		memcpy(w->mean[i], param(w, running[i]), (size_t)w->width * sizeof(real));
		for (int c = 0; c < w->width; c++)
			s->rstd[i][c] = (real)(1 / sqrt((double)param(w, running[i] + 1)[c] + 1e-5));
	}
}

static void axial_infer(
	const struct net *n, const real *params, int group, const struct strip *s, struct input in, real *block, real *score)
{
	struct work w = axial_shape(n, s);
	struct infer_scratch scratch;
	infer_carve(&w, block, &scratch);
	w.params = params;
	w.in = in;
	if (is_batch(&w))
		running_statistics(&w, &scratch);
	for (int h = 0; h < w.heads; h++) {
		scratch.seq.token = scratch.tokens + (int64_t)h * w.width * s->ld;
		conv1(&w, group, h, &scratch.seq);
		conv2(&w, &scratch.seq);
		stage2(&w, &scratch.scratch, group, h, &scratch.seq);
	}
	for (int l = 0; l < w.layers; l++)
		if (mapper_group_of(n->config, l) == group)
			stage3(&w, &scratch.scratch, l, scratch.tokens, &scratch.target, score);
}

const struct net_kind REAL(net_axial) = {
	.halo_convs = 2,
	.work_new = axial_work_new,
	.work_free = axial_work_free,
	.set_length = axial_set_length,
	.forward = axial_forward,
	.backward = axial_backward,
	.infer_scratch = axial_scratch,
	.infer = axial_infer,
};
