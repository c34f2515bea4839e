/* tail_body.h: the source of tail.h, included once by tail_f32.c and once by tail_f64.c with KVB_REAL, T(name) and the inner
 * loops `product`, `exp_sum`, `silu_row` in that precision. Reads top to bottom: attention of one head, the small layers, the
 * decoder forward, the decoder backward. */
#include "runners/lkv/tail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef KVB_REAL real;

enum { LANES = 16 }; /* rows of keys are padded to whole vectors */

static int64_t padded(int64_t n)
{
	return (n + LANES - 1) / LANES * LANES;
}

static real *reals(int64_t n)
{
	return calloc((size_t)(n > 0 ? n : 1), sizeof(real));
}

/* [rows][d] -> [d][ld], zeros behind. */
static void transpose(const real *x, int64_t rows, int d, real *out, int64_t ld)
{
	for (int c = 0; c < d; c++) {
		for (int64_t r = 0; r < rows; r++)
			out[c * ld + r] = x[r * d + c];
		for (int64_t r = rows; r < ld; r++)
			out[c * ld + r] = 0;
	}
}

/* ---- gated attention of one sequence and one KV head ---- */

struct head { /* M = g T query rows; keys: the context's n (padded to np), then the sequence's own T (padded to tp) */
	int64_t n, np, T, tp, M;
	int g, d;
	const real *q;               /* [M][d], scaled */
	const real *K, *V, *KT, *VT; /* [n][d] and [d][np] */
	const real *k, *v;           /* [T][d] */
	const real *logm;            /* [n] or NULL */
};

/* z [M][np + tp]: logits plus log m; -inf where a query does not see. kt: [d][tp] scratch. */
static void head_logits(const struct head *a, real *kt, real *z)
{
	int64_t ld = a->np + a->tp;
	transpose(a->k, a->T, a->d, kt, a->tp);
	product(a->M, a->np, a->d, a->q, a->d, 1, a->KT, a->np, z, ld, false);
	product(a->M, a->tp, a->d, a->q, a->d, 1, kt, a->tp, z + a->np, ld, false);
	for (int64_t i = 0; i < a->M; i++) {
		real *row = z + i * ld;
		for (int64_t j = 0; a->logm && j < a->n; j++)
			row[j] += a->logm[j];
		for (int64_t j = a->n; j < a->np; j++)
			row[j] = -(real)INFINITY;
		for (int64_t j = i % a->T + 1; j < a->tp; j++)
			row[a->np + j] = -(real)INFINITY;
	}
}

static int head_forward(const struct head *a, real *out, real *lse)
{
	int64_t ld = a->np + a->tp;
	real *z = reals(a->M * ld), *kt = reals(a->d * a->tp);
	int rc = z && kt ? 0 : -1;
	if (rc)
		goto cleanup;
	head_logits(a, kt, z);
	for (int64_t i = 0; i < a->M; i++) {
		real top = z[i * ld];
		for (int64_t j = 1; j < ld; j++)
			top = z[i * ld + j] > top ? z[i * ld + j] : top;
		lse[i] = exp_sum(z + i * ld, ld, top);
		real scale = 1 / lse[i];
		for (int64_t j = 0; j < ld; j++)
			z[i * ld + j] *= scale;
		lse[i] = top + (real)log((double)lse[i]);
	}
	product(a->M, a->d, a->n, z, ld, 1, a->V, a->d, out, a->d, false);
	product(a->M, a->d, a->T, z + a->np, ld, 1, a->v, a->d, out, a->d, true);
cleanup:
	free(z);
	free(kt);
	return rc;
}

static int head_backward(
	const struct head *a, const real *out, const real *lse, const real *dout, real *dq, real *dk, real *dv, real *dlogm)
{
	int64_t ld = a->np + a->tp;
	real *z = reals(a->M * ld), *dz = reals(a->M * ld), *kt = reals(a->d * a->tp);
	int rc = z && dz && kt ? 0 : -1;
	if (rc)
		goto cleanup;
	head_logits(a, kt, z);
	for (int64_t i = 0; i < a->M; i++)
		exp_sum(z + i * ld, ld, lse[i]); /* p */
	transpose(a->v, a->T, a->d, kt, a->tp);
	product(a->M, a->np, a->d, dout, a->d, 1, a->VT, a->np, dz, ld, false);
	product(a->M, a->tp, a->d, dout, a->d, 1, kt, a->tp, dz + a->np, ld, false);
	product(a->T, a->d, a->M, z + a->np, 1, ld, dout, a->d, dv, a->d, false);
	memset(dlogm, 0, (size_t)a->n * sizeof *dlogm);
	for (int64_t i = 0; i < a->M; i++) {
		real delta = 0, *row = dz + i * ld;
		for (int c = 0; c < a->d; c++)
			delta += dout[i * a->d + c] * out[i * a->d + c];
		for (int64_t j = 0; j < ld; j++)
			row[j] = z[i * ld + j] * (row[j] - delta);
		for (int64_t j = 0; j < a->n; j++)
			dlogm[j] += row[j];
	}
	product(a->M, a->d, a->n, dz, ld, 1, a->K, a->d, dq, a->d, false);
	product(a->M, a->d, a->T, dz + a->np, ld, 1, a->k, a->d, dq, a->d, true);
	product(a->T, a->d, a->M, dz + a->np, 1, ld, a->q, a->d, dk, a->d, false);
cleanup:
	free(z);
	free(dz);
	free(kt);
	return rc;
}

static struct head head_of(int64_t n, int64_t rows, int g, int d, const real *q, const real *K, const real *V, const real *KT,
	const real *VT, const real *k, const real *v, const real *logm)
{
	return (struct head){n, padded(n), rows, padded(rows), g * rows, g, d, q, K, V, KT, VT, k, v, logm};
}

int T(tail_attend)(int64_t n, int64_t rows, int g, int d, const real *q, const real *K, const real *V, const real *k,
	const real *v, const real *logm, real *out, real *lse)
{
	real *KT = reals(d * padded(n));
	int rc = -1;
	if (KT) {
		transpose(K, n, d, KT, padded(n));
		struct head a = head_of(n, rows, g, d, q, K, V, KT, NULL, k, v, logm);
		rc = head_forward(&a, out, lse);
	}
	free(KT);
	return rc;
}

int T(tail_attend_back)(int64_t n, int64_t rows, int g, int d, const real *q, const real *K, const real *V, const real *k,
	const real *v, const real *logm, const real *out, const real *lse, const real *dout, real *dq, real *dk, real *dv,
	real *dlogm)
{
	real *KT = reals(2 * d * padded(n)), *VT = KT ? KT + d * padded(n) : NULL;
	int rc = -1;
	if (KT) {
		transpose(K, n, d, KT, padded(n));
		transpose(V, n, d, VT, padded(n));
		struct head a = head_of(n, rows, g, d, q, K, V, KT, VT, k, v, logm);
		rc = head_backward(&a, out, lse, dout, dq, dk, dv, dlogm);
	}
	free(KT);
	return rc;
}

/* ---- norms, rotation ---- */

static void norm_forward(const real *x, const real *w, int64_t n, real eps, real *y)
{
	real square = 0;
	for (int64_t i = 0; i < n; i++)
		square += x[i] * x[i];
	real r = 1 / (real)sqrt((double)(square / (real)n + eps));
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] * r * w[i];
}

/* dx (+)= r w dy - x r^3 / n sum(dy w x) */
static void norm_backward(const real *x, const real *w, const real *dy, int64_t n, real eps, real *dx, bool add)
{
	real square = 0, dot = 0;
	for (int64_t i = 0; i < n; i++) {
		square += x[i] * x[i];
		dot += dy[i] * w[i] * x[i];
	}
	real r = 1 / (real)sqrt((double)(square / (real)n + eps)), s = r * r * r * dot / (real)n;
	for (int64_t i = 0; i < n; i++)
		dx[i] = (add ? dx[i] : 0) + r * w[i] * dy[i] - x[i] * s;
}

/* cs: [cos d/2 | sin d/2] times mscale. back: the transposed rotation, which is the gradient's. */
static void rotate(real *x, int d, const real *cs, bool back)
{
	int half = d / 2;
	for (int t = 0; t < half; t++) {
		real a = x[t], b = x[t + half], c = cs[t], s = back ? -cs[half + t] : cs[half + t];
		x[t] = a * c - b * s;
		x[t + half] = b * c + a * s;
	}
}

/* ---- the tails of one context ---- */

struct saved {           /* of one layer, for backward */
	real *x, *mid;   /* [R][D] input of the layer, and of its feed-forward */
	real *pre;       /* [R][(H + Hk) d] q | k before their norms; NULL without q/k norm */
	real *qkv;       /* [R][(H + 2 Hk) d]: q (rotated, scaled) | k (rotated) | v */
	real *att, *lse; /* [R][H d], [R][H] */
	real *gate_up;   /* [R][2 F] */
};
struct T(tail) {
	const struct T(tail_model) * m;
	int64_t n, rows;
	int seqs;
	int64_t *row0;       /* [seqs + 1] */
	real *cs;            /* [R][d] */
	struct saved *layer; /* [L] */
	real *last;          /* [R][D] before the final norm */
	/* scratch */
	real *h, *wide, *act;  /* [R][max(D, H d)], [R][2 F or qkv], [R][2 F or qkv] */
	real *K, *V, *KT, *VT; /* the layer's context: [Hk][n][d], [Hk][d][np] */
	real *part;            /* [Hk][seqs][n]: each sequence's share of d log m */
	/* of the step at work, for the parallel items */
	int at;
	const real *logm;
	real *dx, *datt; /* [R][D], [R][H d] */
	bool failed;
};

static int64_t qkv_width(const struct model_config *c)
{
	return (int64_t)(c->heads + 2 * c->kv_heads) * c->head_dim;
}

static void rotation_table(struct T(tail) * t)
{
	int d = t->m->config->head_dim;
	for (int s = 0; s < t->seqs; s++)
		for (int64_t r = t->row0[s]; r < t->row0[s + 1]; r++)
			for (int i = 0; i < d / 2; i++) {
				double angle = (double)((float)(t->n + r - t->row0[s]) * (float)t->m->inv_freq[i]);
				t->cs[r * d + i] = (real)(cos(angle) * t->m->mscale);
				t->cs[r * d + d / 2 + i] = (real)(sin(angle) * t->m->mscale);
			}
}

struct T(tail) * T(tail_new)(const struct T(tail_model) * m, int64_t n, int seqs, const int *len)
{
	const struct model_config *c = m->config;
	struct T(tail) *t = mem_new(1, sizeof *t);
	int64_t np = padded(n), d = c->head_dim, hd = c->heads * d,
		wide = qkv_width(c) > 2 * (int64_t)c->ffn ? qkv_width(c) : 2 * (int64_t)c->ffn;
	t->m = m;
	t->n = n;
	t->seqs = seqs;
	t->row0 = mem_new((size_t)seqs + 1, sizeof *t->row0);
	for (int s = 0; s < seqs; s++)
		t->row0[s + 1] = t->row0[s] + len[s];
	int64_t R = t->rows = t->row0[seqs], D = c->hidden, Hk = c->kv_heads;
	t->layer = mem_new((size_t)c->layers, sizeof *t->layer);
	bool ok = (t->cs = reals(R * d)) && (t->last = reals(R * D)) && (t->h = reals(R * (D > hd ? D : hd))) &&
		  (t->wide = reals(R * wide)) && (t->act = reals(R * wide)) && (t->K = reals(Hk * n * d)) &&
		  (t->V = reals(Hk * n * d)) && (t->KT = reals(Hk * d * np)) && (t->VT = reals(Hk * d * np)) &&
		  (t->part = reals(Hk * seqs * n)) && (t->dx = reals(R * D)) && (t->datt = reals(R * hd));
	for (int l = 0; l < c->layers && ok; l++) {
		struct saved *y = &t->layer[l];
		ok = (y->x = reals(R * D)) && (y->mid = reals(R * D)) && (y->qkv = reals(R * qkv_width(c))) &&
		     (y->att = reals(R * hd)) && (y->lse = reals(R * c->heads)) &&
		     (y->gate_up = reals(R * 2 * (int64_t)c->ffn)) && (!c->qk_norm || (y->pre = reals(R * (hd + Hk * d))));
	}
	if (!ok) {
		T(tail_free)(t);
		return NULL;
	}
	rotation_table(t);
	return t;
}

void T(tail_free)(struct T(tail) * t)
{
	if (!t)
		return;
	for (int l = 0; l < t->m->config->layers; l++) {
		struct saved *y = &t->layer[l];
		free(y->x), free(y->mid), free(y->pre), free(y->qkv), free(y->att), free(y->lse), free(y->gate_up);
	}
	free(t->layer);
	free(t->cs), free(t->last), free(t->h), free(t->wide), free(t->act), free(t->K), free(t->V), free(t->KT), free(t->VT);
	free(t->part), free(t->dx), free(t->datt), free(t->row0);
	free(t);
}

int64_t T(tail_rows)(const struct T(tail) * t)
{
	return t->rows;
}

static void each_item(const struct T(tail) * t, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
	if (t->m->parallel)
		t->m->parallel(t->m->user, n, fn, arg);
	else
		for (int64_t i = 0; i < n; i++)
			fn(arg, i);
}

/* ---- context of a layer ---- */

static void context_turn(void *arg, int64_t head)
{
	struct T(tail) *t = arg;
	int d = t->m->config->head_dim;
	int64_t np = padded(t->n);
	transpose(t->K + head * t->n * d, t->n, d, t->KT + head * d * np, np);
	transpose(t->V + head * t->n * d, t->n, d, t->VT + head * d * np, np);
}

static int context_load(struct T(tail) * t, int l)
{
	int d = t->m->config->head_dim;
	for (int h = 0; h < t->m->config->kv_heads; h++)
		if (t->m->context(t->m->user, l, h, t->n, t->K + h * t->n * d, t->V + h * t->n * d))
			return -1;
	each_item(t, t->m->config->kv_heads, context_turn, t);
	return 0;
}

/* One (KV head, sequence): its rows gathered side by side. M rows of q, then of out, then T rows of k and v each. */
struct gathered {
	int64_t T, M, row0;
	real *q, *out, *lse, *k, *v;
};

static int gather(const struct T(tail) * t, int l, int head, int s, struct gathered *g)
{
	const struct model_config *c = t->m->config;
	const struct saved *y = &t->layer[l];
	int64_t d = c->head_dim, width = qkv_width(c), hd = c->heads * d;
	int group = c->heads / c->kv_heads;
	g->row0 = t->row0[s];
	g->T = t->row0[s + 1] - g->row0;
	g->M = group * g->T;
	if (!(g->q = reals(2 * g->M * d + g->M + 2 * g->T * d)))
		return -1;
	g->out = g->q + g->M * d;
	g->lse = g->out + g->M * d;
	g->k = g->lse + g->M;
	g->v = g->k + g->T * d;
	for (int64_t i = 0; i < g->T; i++) {
		const real *row = y->qkv + (g->row0 + i) * width;
		for (int j = 0; j < group; j++)
			memcpy(g->q + (j * g->T + i) * d, row + (head * group + j) * d, (size_t)d * sizeof(real));
		memcpy(g->k + i * d, row + hd + head * d, (size_t)d * sizeof(real));
		memcpy(g->v + i * d, row + hd + (c->kv_heads + head) * d, (size_t)d * sizeof(real));
	}
	return 0;
}

static struct head head_at(const struct T(tail) * t, int head, const struct gathered *g)
{
	int d = t->m->config->head_dim;
	int64_t np = padded(t->n);
	const real *logm = t->logm ? t->logm + ((int64_t)t->at * t->m->config->kv_heads + head) * t->n : NULL;
	return head_of(t->n, g->T, t->m->config->heads / t->m->config->kv_heads, d, g->q, t->K + head * t->n * d,
		t->V + head * t->n * d, t->KT + head * d * np, t->VT + head * d * np, g->k, g->v, logm);
}

static void attend_item(void *arg, int64_t item)
{
	struct T(tail) *t = arg;
	const struct model_config *c = t->m->config;
	int head = (int)(item / t->seqs), s = (int)(item % t->seqs), group = c->heads / c->kv_heads;
	int64_t d = c->head_dim, hd = c->heads * d;
	struct gathered g = {0};
	struct head a;
	if (gather(t, t->at, head, s, &g) || (a = head_at(t, head, &g), head_forward(&a, g.out, g.lse)))
		__atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
	else
		for (int64_t i = 0; i < g.T; i++)
			for (int j = 0; j < group; j++) {
				memcpy(t->layer[t->at].att + (g.row0 + i) * hd + (head * group + j) * d,
					g.out + (j * g.T + i) * d, (size_t)d * sizeof(real));
				t->layer[t->at].lse[(g.row0 + i) * c->heads + head * group + j] = g.lse[j * g.T + i];
			}
	free(g.q);
}

/* ---- forward ---- */

static void norm_row(void *arg, int64_t r) /* h = norm(x) before the projections */
{
	struct T(tail) *t = arg;
	const struct model_config *c = t->m->config;
	norm_forward(
		t->layer[t->at].x + r * c->hidden, t->m->norms[t->at].attn, c->hidden, (real)c->norm_eps, t->h + r * c->hidden);
}

static void turn_row(void *arg, int64_t r) /* head norms, rotation, scale, in place */
{
	struct T(tail) *t = arg;
	const struct model_config *c = t->m->config;
	const struct T(tail_norms) *w = &t->m->norms[t->at];
	struct saved *y = &t->layer[t->at];
	int d = c->head_dim, heads = c->heads + c->kv_heads;
	real *row = y->qkv + r * qkv_width(c), scale = 1 / (real)sqrt((double)d);
	if (c->qk_norm)
		memcpy(y->pre + r * heads * d, row, (size_t)(heads * d) * sizeof(real));
	for (int h = 0; h < heads; h++) {
		real *x = row + h * d;
		if (c->qk_norm)
			norm_forward(y->pre + (r * heads + h) * d, h < c->heads ? w->q : w->k, d, (real)c->norm_eps, x);
		rotate(x, d, t->cs + r * d, false);
		for (int i = 0; h < c->heads && i < d; i++)
			x[i] *= scale;
	}
}

static void mid_row(void *arg, int64_t r) /* mid = x + o; h = norm(mid) */
{
	struct T(tail) *t = arg;
	const struct model_config *c = t->m->config;
	struct saved *y = &t->layer[t->at];
	int64_t D = c->hidden;
	for (int64_t i = 0; i < D; i++)
		y->mid[r * D + i] = y->x[r * D + i] + t->h[r * D + i];
	norm_forward(y->mid + r * D, t->m->norms[t->at].ffn, D, (real)c->norm_eps, t->h + r * D);
}

static void act_row(void *arg, int64_t r)
{
	struct T(tail) *t = arg;
	int64_t F = t->m->config->ffn;
	const real *gate = t->layer[t->at].gate_up + r * 2 * F;
	silu_row(gate, F, t->act + r * F, NULL);
	for (int64_t i = 0; i < F; i++)
		t->act[r * F + i] *= gate[F + i];
}

static int layer_forward(struct T(tail) * t, int l, real *next)
{
	const struct T(tail_model) *m = t->m;
	struct saved *y = &t->layer[l];
	int64_t D = m->config->hidden;
	t->at = l;
	if (context_load(t, l))
		return -1;
	each_item(t, t->rows, norm_row, t);
	if (m->linear(m->user, l, TAIL_QKV, false, t->h, t->rows, y->qkv))
		return -1;
	each_item(t, t->rows, turn_row, t);
	each_item(t, (int64_t)m->config->kv_heads * t->seqs, attend_item, t);
	if (t->failed || m->linear(m->user, l, TAIL_O, false, y->att, t->rows, t->h))
		return -1;
	each_item(t, t->rows, mid_row, t);
	if (m->linear(m->user, l, TAIL_GATE_UP, false, t->h, t->rows, y->gate_up))
		return -1;
	each_item(t, t->rows, act_row, t);
	if (m->linear(m->user, l, TAIL_DOWN, false, t->act, t->rows, next))
		return -1;
	for (int64_t i = 0; i < t->rows * D; i++)
		next[i] += y->mid[i];
	return 0;
}

int T(tail_forward)(struct T(tail) * t, const real *x0, const real *logm, real *hidden)
{
	const struct model_config *c = t->m->config;
	int64_t D = c->hidden;
	t->logm = logm;
	t->failed = false;
	memcpy(t->layer[0].x, x0, (size_t)(t->rows * D) * sizeof(real));
	for (int l = 0; l < c->layers; l++)
		if (layer_forward(t, l, l + 1 < c->layers ? t->layer[l + 1].x : t->last))
			return -1;
	for (int64_t r = 0; r < t->rows; r++)
		norm_forward(t->last + r * D, t->m->final_norm, D, (real)c->norm_eps, hidden + r * D);
	return 0;
}

/* ---- backward: dx is the gradient of the layer's output, and becomes that of its input ---- */

static void act_back_row(void *arg, int64_t r) /* wide [.][2F] = d gate | d up of act = d (silu(gate) up) */
{
	struct T(tail) *t = arg;
	int64_t F = t->m->config->ffn;
	const real *gate = t->layer[t->at].gate_up + r * 2 * F, *dact = t->act + r * F;
	real *out = t->wide + r * 2 * F;
	silu_row(gate, F, out + F, out);
	for (int64_t i = 0; i < F; i++) {
		out[i] *= dact[i] * gate[F + i];
		out[F + i] *= dact[i];
	}
}

static void mid_back_row(void *arg, int64_t r)
{
	struct T(tail) *t = arg;
	const struct model_config *c = t->m->config;
	int64_t at = r * c->hidden;
	norm_backward(
		t->layer[t->at].mid + at, t->m->norms[t->at].ffn, t->h + at, c->hidden, (real)c->norm_eps, t->dx + at, true);
}

static void attend_back_item(void *arg, int64_t item)
{
	struct T(tail) *t = arg;
	const struct model_config *c = t->m->config;
	int head = (int)(item / t->seqs), s = (int)(item % t->seqs), group = c->heads / c->kv_heads;
	int64_t d = c->head_dim, hd = c->heads * d, width = qkv_width(c);
	struct gathered g = {0};
	real *dout = NULL, *dq, *dk, *dv;
	if (gather(t, t->at, head, s, &g) || !(dout = reals(2 * g.M * d + 2 * g.T * d)))
		goto failed;
	dq = dout + g.M * d;
	dk = dq + g.M * d;
	dv = dk + g.T * d;
	for (int64_t i = 0; i < g.T; i++)
		for (int j = 0; j < group; j++) {
			int64_t from = (g.row0 + i) * hd + (head * group + j) * d, to = (j * g.T + i) * d;
			memcpy(dout + to, t->datt + from, (size_t)d * sizeof(real));
			memcpy(g.out + to, t->layer[t->at].att + from, (size_t)d * sizeof(real));
			g.lse[j * g.T + i] = t->layer[t->at].lse[(g.row0 + i) * c->heads + head * group + j];
		}
	struct head a = head_at(t, head, &g);
	if (head_backward(&a, g.out, g.lse, dout, dq, dk, dv, t->part + item * t->n))
		goto failed;
	for (int64_t i = 0; i < g.T; i++) {
		real *row = t->wide + (g.row0 + i) * width;
		for (int j = 0; j < group; j++)
			memcpy(row + (head * group + j) * d, dq + (j * g.T + i) * d, (size_t)d * sizeof(real));
		memcpy(row + hd + head * d, dk + i * d, (size_t)d * sizeof(real));
		memcpy(row + hd + (c->kv_heads + head) * d, dv + i * d, (size_t)d * sizeof(real));
	}
	goto cleanup;
failed:
	__atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
cleanup:
	free(g.q);
	free(dout);
}

static void turn_back_row(
	void *arg, int64_t r) /* wide [.][qkv]: from the gradient of rotated q (scaled), k, v to that of the projections */
{
	struct T(tail) *t = arg;
	const struct model_config *c = t->m->config;
	const struct T(tail_norms) *w = &t->m->norms[t->at];
	int d = c->head_dim, heads = c->heads + c->kv_heads;
	real *row = t->wide + r * qkv_width(c), scale = 1 / (real)sqrt((double)d), dy[512];
	for (int h = 0; h < heads; h++) {
		real *x = row + h * d;
		for (int i = 0; h < c->heads && i < d; i++)
			x[i] *= scale;
		rotate(x, d, t->cs + r * d, true);
		if (c->qk_norm) {
			memcpy(dy, x, (size_t)d * sizeof(real));
			norm_backward(t->layer[t->at].pre + (r * heads + h) * d, h < c->heads ? w->q : w->k, dy, d,
				(real)c->norm_eps, x, false);
		}
	}
}

static void in_back_row(void *arg, int64_t r)
{
	struct T(tail) *t = arg;
	const struct model_config *c = t->m->config;
	int64_t at = r * c->hidden;
	norm_backward(t->layer[t->at].x + at, t->m->norms[t->at].attn, t->h + at, c->hidden, (real)c->norm_eps, t->dx + at, true);
}

/* Shares of the sequences added in their order. */
static void gate_sum(const struct T(tail) * t, int l, real *dlogm)
{
	int kv_heads = t->m->config->kv_heads;
	for (int h = 0; h < kv_heads; h++) {
		real *out = dlogm + ((int64_t)l * kv_heads + h) * t->n;
		memset(out, 0, (size_t)t->n * sizeof *out);
		for (int s = 0; s < t->seqs; s++)
			for (int64_t j = 0; j < t->n; j++)
				out[j] += t->part[((int64_t)h * t->seqs + s) * t->n + j];
	}
}

static int layer_backward(struct T(tail) * t, int l, real *dlogm, bool input)
{
	const struct T(tail_model) *m = t->m;
	t->at = l;
	if (context_load(t, l) || m->linear(m->user, l, TAIL_DOWN, true, t->dx, t->rows, t->act))
		return -1;
	each_item(t, t->rows, act_back_row, t);
	if (m->linear(m->user, l, TAIL_GATE_UP, true, t->wide, t->rows, t->h))
		return -1;
	each_item(t, t->rows, mid_back_row, t);
	if (m->linear(m->user, l, TAIL_O, true, t->dx, t->rows, t->datt))
		return -1;
	each_item(t, (int64_t)m->config->kv_heads * t->seqs, attend_back_item, t);
	if (t->failed)
		return -1;
	gate_sum(t, l, dlogm);
	if (!input)
		return 0;
	each_item(t, t->rows, turn_back_row, t);
	if (m->linear(m->user, l, TAIL_QKV, true, t->wide, t->rows, t->h))
		return -1;
	each_item(t, t->rows, in_back_row, t);
	return 0;
}

int T(tail_backward)(struct T(tail) * t, const real *logm, const real *dhidden, real *dlogm, real *dx0)
{
	const struct model_config *c = t->m->config;
	int64_t D = c->hidden;
	t->logm = logm;
	t->failed = false;
	for (int64_t r = 0; r < t->rows; r++)
		norm_backward(t->last + r * D, t->m->final_norm, dhidden + r * D, D, (real)c->norm_eps, t->dx + r * D, false);
	for (int l = c->layers - 1; l >= 0; l--)
		if (layer_backward(t, l, dlogm, l > 0 || dx0))
			return -1;
	if (dx0)
		memcpy(dx0, t->dx, (size_t)(t->rows * D) * sizeof(real));
	return 0;
}
