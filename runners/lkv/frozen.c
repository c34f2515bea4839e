/* frozen.c: see frozen.h. */
#include "runners/lkv/frozen.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD = 4, MATRICES = 5, HEAD_ROWS = 64 }; /* the four of enum tail_linear, then the head */

/* Which tensors of a layer are stacked into one matrix [n, k]. */
static const struct {
	int count;
	enum tensor_role role[3];
} stacks[MATRICES] = {{3, {T_Q, T_K, T_V}}, {1, {T_O}}, {2, {T_GATE, T_UP}}, {1, {T_DOWN}}, {1, {T_LM_HEAD}}};

struct frozen {
	struct model *model;
	struct device *device;
	struct queue *queue;
	int max_rows;
	int64_t n[MATRICES], k[MATRICES];
	struct weight **w[MATRICES], **wt[MATRICES]; /* [layers]; the head's [1] */
	struct tensor **bias;                        /* [layers] of q|k|v, or NULL */
	struct tensor *in[MATRICES], *out[MATRICES]; /* [rows, k] and [rows, n] */
	struct tail_norms_f *norms;
	float *final_norm;
	double *inv_freq;
	struct tail_model_f tail;
	const struct kv *kv;
};

/* ---- loading ---- */

/* One matrix on the host, and which way it is packed. */
struct matrix {
	const float *w; /* [n][k] */
	int64_t n, k;
	bool turned;
};

static int matrix_rows(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	const struct matrix *m = user;
	(void)err;
	if (!m->turned)
		memcpy(out, m->w + row0 * m->k, (size_t)(n * m->k) * sizeof *out);
	else
		for (int64_t i = 0; i < m->n; i++)
			for (int64_t r = 0; r < n; r++)
				out[r * m->n + i] = m->w[i * m->k + row0 + r];
	return 0;
}

static int role_rows(const struct frozen *f, enum tensor_role role, int layer, float *out, int64_t *size, char err[ERR_LEN])
{
	int64_t rows, cols;
	model_shape(f->model, role, layer, &rows, &cols);
	*size = rows * cols;
	return *size ? model_rows(f->model, role, layer, 0, rows, out, err) : 0;
}

static int matrix_load(struct frozen *f, int which, int layer, float *host, char err[ERR_LEN])
{
	struct matrix m = {host, f->n[which], f->k[which], false};
	const struct model_config *c = model_config(f->model);
	float *at = host;
	for (int i = 0; i < stacks[which].count; i++) {
		int64_t size;
		enum tensor_role role = which == HEAD && c->tied ? T_EMBED : stacks[which].role[i];
		if (role_rows(f, role, layer, at, &size, err))
			return -1;
		at += size;
	}
	f->w[which][layer] = weight_new(f->device, m.n, m.k, matrix_rows, &m, err);
	m.turned = true;
	f->wt[which][layer] = weight_new(f->device, m.k, m.n, matrix_rows, &m, err);
	return f->w[which][layer] && f->wt[which][layer] ? 0 : -1;
}

static float *vector_load(const struct frozen *f, enum tensor_role role, int layer, char err[ERR_LEN])
{
	int64_t rows, cols, size;
	model_shape(f->model, role, layer, &rows, &cols);
	float *v = mem_new((size_t)(rows * cols) + 1, sizeof *v);
	if (role_rows(f, role, layer, v, &size, err)) {
		free(v);
		return NULL;
	}
	return v;
}

static int bias_load(struct frozen *f, int layer, char err[ERR_LEN])
{
	static const enum tensor_role roles[3] = {T_Q_BIAS, T_K_BIAS, T_V_BIAS};
	float *host = mem_new((size_t)f->n[TAIL_QKV], sizeof *host), *at = host;
	int rc = 0;
	for (int i = 0; i < 3 && !rc; i++) {
		int64_t size;
		rc = role_rows(f, roles[i], layer, at, &size, err);
		at += size;
	}
	if (!rc && (!(f->bias[layer] = tensor_new(f->device, 1, f->n[TAIL_QKV])) ||
			   tensor_write(f->queue, f->bias[layer], 0, 1, host)))
		rc = err_set(err, "bias: %s", device_error(f->device));
	free(host);
	return rc;
}

static int layer_load(struct frozen *f, int l, float *host, char err[ERR_LEN])
{
	const struct model_config *c = model_config(f->model);
	struct tail_norms_f *w = &f->norms[l];
	for (int which = 0; which < HEAD; which++)
		if (matrix_load(f, which, l, host, err))
			return -1;
	if (!(w->attn = vector_load(f, T_ATTN_NORM, l, err)) || !(w->ffn = vector_load(f, T_FFN_NORM, l, err)))
		return -1;
	if (c->qk_norm && (!(w->q = vector_load(f, T_Q_NORM, l, err)) || !(w->k = vector_load(f, T_K_NORM, l, err))))
		return -1;
	return c->qkv_bias ? bias_load(f, l, err) : 0;
}

/* ---- what the tails call ---- */

/* Rows through one packed matrix. */
static int through(struct frozen *f, struct tensor *in, struct tensor *out, const struct weight *w, const struct tensor *bias,
	const float *x, int64_t rows, int64_t most, int64_t k, int64_t n, float *y)
{
	for (int64_t at = 0; at < rows; at += most) {
		int64_t m = rows - at < most ? rows - at : most;
		if (tensor_write(f->queue, in, 0, m, x + at * k) || op_linear(f->queue, out, in, w, bias, 0, n, false, m) ||
			tensor_read(f->queue, out, 0, m, y + at * n))
			return -1;
	}
	return 0;
}

static int linear(void *user, int layer, enum tail_linear which, bool back, const float *x, int64_t rows, float *out)
{
	struct frozen *f = user;
	int64_t n = f->n[which], k = f->k[which];
	return back ? through(f, f->out[which], f->in[which], f->wt[which][layer], NULL, x, rows, f->max_rows, n, k, out)
		    : through(f, f->in[which], f->out[which], f->w[which][layer], which == TAIL_QKV ? f->bias[layer] : NULL, x,
			      rows, f->max_rows, k, n, out);
}

static int context(void *user, int layer, int kv_head, int64_t n, float *k, float *v)
{
	struct frozen *f = user;
	return kv_read(f->queue, f->kv, layer, kv_head, 0, n, k, v);
}

static void parallel(void *user, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
	struct frozen *f = user;
	device_parallel(f->device, n, fn, arg);
}

int frozen_logits(struct frozen *f, const float *hidden, int64_t rows, float *logits)
{
	return through(
		f, f->in[HEAD], f->out[HEAD], f->w[HEAD][0], NULL, hidden, rows, HEAD_ROWS, f->k[HEAD], f->n[HEAD], logits);
}

int frozen_logits_back(struct frozen *f, const float *dlogits, int64_t rows, float *dhidden)
{
	return through(
		f, f->out[HEAD], f->in[HEAD], f->wt[HEAD][0], NULL, dlogits, rows, HEAD_ROWS, f->n[HEAD], f->k[HEAD], dhidden);
}

int frozen_embed(const struct frozen *f, const int32_t *ids, int64_t n, float *x, char err[ERR_LEN])
{
	const struct model_config *c = model_config(f->model);
	for (int64_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= c->vocab)
			return err_set(err, "token %d of %d", ids[i], c->vocab);
		else if (model_rows(f->model, T_EMBED, 0, ids[i], 1, x + i * c->hidden, err))
			return -1;
	return 0;
}

/* ---- open, close ---- */

static int shapes_set(struct frozen *f, char err[ERR_LEN])
{
	const struct model_config *c = model_config(f->model);
	int64_t hd = (int64_t)c->heads * c->head_dim, width = hd + 2 * (int64_t)c->kv_heads * c->head_dim;
	const int64_t n[MATRICES] = {width, c->hidden, 2 * (int64_t)c->ffn, c->hidden, c->vocab},
		      k[MATRICES] = {c->hidden, hd, c->hidden, c->ffn, c->hidden};
	memcpy(f->n, n, sizeof n);
	memcpy(f->k, k, sizeof k);
	for (int i = 0; i < MATRICES; i++) {
		int64_t rows = i == HEAD ? HEAD_ROWS : f->max_rows;
		f->w[i] = mem_new((size_t)c->layers, sizeof **f->w);
		f->wt[i] = mem_new((size_t)c->layers, sizeof **f->wt);
		if (!(f->in[i] = tensor_new(f->device, rows, k[i])) || !(f->out[i] = tensor_new(f->device, rows, n[i])))
			return err_set(err, "training: scratch memory: %s", device_error(f->device));
	}
	return 0;
}

static int weights_load(struct frozen *f, char err[ERR_LEN])
{
	const struct model_config *c = model_config(f->model);
	int64_t largest = 0;
	for (int i = 0; i < MATRICES; i++)
		largest = f->n[i] * f->k[i] > largest ? f->n[i] * f->k[i] : largest;
	float *host = malloc((size_t)largest * sizeof *host);
	int rc = host ? 0 : err_set(err, "training: out of memory, %lld bytes", (long long)largest * 4);
	for (int l = 0; l < c->layers && !rc; l++)
		rc = layer_load(f, l, host, err);
	if (!rc)
		rc = matrix_load(f, HEAD, 0, host, err);
	free(host);
	return rc;
}

int frozen_open(struct frozen **out, struct model *m, struct device *d, int max_rows, char err[ERR_LEN])
{
	const struct model_config *c = model_config(m);
	struct frozen *f = mem_new(1, sizeof *f);
	*out = NULL;
	f->model = m;
	f->device = d;
	f->max_rows = max_rows;
	f->norms = mem_new((size_t)c->layers, sizeof *f->norms);
	f->bias = mem_new((size_t)c->layers, sizeof *f->bias);
	f->inv_freq = mem_new((size_t)c->head_dim, sizeof *f->inv_freq);
	model_rope(c, f->inv_freq, &f->tail.mscale);
	if (!(f->queue = queue_new(d))) {
		err_set(err, "training: %s", device_error(d));
		goto fail;
	}
	if (shapes_set(f, err) || weights_load(f, err) || !(f->final_norm = vector_load(f, T_FINAL_NORM, 0, err)))
		goto fail;
	f->tail = (struct tail_model_f){.config = c,
		.inv_freq = f->inv_freq,
		.mscale = f->tail.mscale,
		.norms = f->norms,
		.final_norm = f->final_norm,
		.linear = linear,
		.context = context,
		.parallel = parallel,
		.user = f};
	*out = f;
	return 0;
fail:
	frozen_close(f);
	return -1;
}

void frozen_close(struct frozen *f)
{
	if (!f)
		return;
	int layers = model_config(f->model)->layers;
	for (int i = 0; i < MATRICES; i++) {
		for (int l = 0; f->w[i] && l < layers; l++) {
			weight_free(f->w[i][l]);
			weight_free(f->wt[i][l]);
		}
		free(f->w[i]);
		free(f->wt[i]);
		tensor_free(f->in[i]);
		tensor_free(f->out[i]);
	}
	for (int l = 0; l < layers; l++) {
		tensor_free(f->bias[l]);
		free((void *)f->norms[l].attn), free((void *)f->norms[l].ffn), free((void *)f->norms[l].q),
			free((void *)f->norms[l].k);
	}
	free(f->bias);
	free(f->norms);
	free(f->inv_freq);
	free(f->final_norm);
	queue_free(f->queue);
	free(f);
}

struct device *frozen_device(const struct frozen *f)
{
	return f->device;
}

struct queue *frozen_queue(const struct frozen *f)
{
	return f->queue;
}

const struct tail_model_f *frozen_tail(const struct frozen *f)
{
	return &f->tail;
}

void frozen_context(struct frozen *f, const struct kv *kv)
{
	f->kv = kv;
}
