/* weights.c: packs a model's tensors onto a device, fusing q|k|v and gate|up. See weights.h. */
#include "runners/forward/weights.h"

#include <stdlib.h>
#include <string.h>

/* Tensors stacked row upon row into one matrix. turn > 0: the rows of both tensors by turns of so many, each tensor filled up with
 * rows of zeros to a whole number of turns. */
struct stack {
	const struct model *model;
	int layer, n;
	enum tensor_role role[3];
	int turn;
};

static int64_t stack_rows(const struct stack *s, int64_t *cols)
{
	int64_t total = 0;
	for (int i = 0; i < s->n; i++) {
		int64_t rows;
		model_shape(s->model, s->role[i], s->layer, &rows, cols);
		total += s->turn ? (rows + s->turn - 1) / s->turn * s->turn : rows;
	}
	return total;
}

/* Rows [row0, row0+n) of the stack that belong to its tensor i from the tensor's row `from` on; zeros behind the last. */
static int tensor_part(const struct stack *s, int i, int64_t from, int64_t n, float *out, char err[ERR_LEN])
{
	int64_t rows, cols;
	model_shape(s->model, s->role[i], s->layer, &rows, &cols);
	int64_t there = from >= rows ? 0 : rows - from < n ? rows - from : n;
	memset(out + there * cols, 0, (size_t)((n - there) * cols) * sizeof *out);
	return there ? model_rows(s->model, s->role[i], s->layer, from, there, out, err) : 0;
}

/* weight_rows_fn: rows of two tensors by turns. */
static int turns_read(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	const struct stack *s = user;
	int64_t cols, rows;
	model_shape(s->model, s->role[0], s->layer, &rows, &cols);
	for (int64_t r = row0; r < row0 + n;) {
		int64_t pair = r / (2 * s->turn), in = r % (2 * s->turn), take = s->turn - in % s->turn;
		take = take < row0 + n - r ? take : row0 + n - r;
		if (tensor_part(s, (int)(in / s->turn), pair * s->turn + in % s->turn, take, out, err))
			return -1;
		out += take * cols;
		r += take;
	}
	return 0;
}

/* weight_rows_fn: rows [row0, row0+n) of the stack. */
static int stack_read(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	const struct stack *s = user;
	for (int i = 0; i < s->n && n > 0; i++) {
		int64_t rows, cols;
		model_shape(s->model, s->role[i], s->layer, &rows, &cols);
		if (row0 >= rows) {
			row0 -= rows;
			continue;
		}
		int64_t take = rows - row0 < n ? rows - row0 : n;
		if (model_rows(s->model, s->role[i], s->layer, row0, take, out, err))
			return -1;
		out += take * cols;
		n -= take;
		row0 = 0;
	}
	return 0;
}

static int matrix_load(struct weight **out, struct device *d, struct stack s, char err[ERR_LEN])
{
	int64_t cols = 0, rows = stack_rows(&s, &cols);
	*out = weight_new(d, rows, cols, s.turn ? turns_read : stack_read, &s, err);
	model_unread(s.model); /* or the file would stand in memory beside the weights */
	return *out ? 0 : -1;
}

/* Vectors (norm weights, biases) laid side by side: [1, sum of lengths]. */
static int vector_load(struct tensor **out, struct queue *q, const struct stack *s, char err[ERR_LEN])
{
	int64_t length[3], total = 0, rows;
	for (int i = 0; i < s->n; i++) {
		model_shape(s->model, s->role[i], s->layer, &rows, &length[i]);
		total += length[i];
	}
	float *host = mem_new((size_t)total, sizeof *host);
	int64_t at = 0;
	int rc = 0;
	for (int i = 0; i < s->n && !rc; i++) {
		rc = model_rows(s->model, s->role[i], s->layer, 0, 1, host + at, err);
		at += length[i];
	}
	if (!rc && (!(*out = tensor_new(queue_device(q), 1, total)) || tensor_write(q, *out, 0, 1, host)))
		rc = err_set(err, "%s: %s", model_path(s->model), device_error(queue_device(q)));
	free(host);
	return rc;
}

static int layer_load(struct layer_weights *w, struct model *m, int l, struct queue *q, char err[ERR_LEN])
{
	const struct model_config *c = model_config(m);
	struct device *d = queue_device(q);
#define MATRIX(field, count, ...) matrix_load(&w->field, d, (struct stack){m, l, count, {__VA_ARGS__}, 0}, err)
#define TURNS(field, ...) matrix_load(&w->field, d, (struct stack){m, l, 2, {__VA_ARGS__}, SWIGLU_TURN}, err)
#define VECTOR(field, count, ...) vector_load(&w->field, q, &(struct stack){m, l, count, {__VA_ARGS__}, 0}, err)
	return MATRIX(qkv, 3, T_Q, T_K, T_V) || MATRIX(o, 1, T_O) || TURNS(gate_up, T_GATE, T_UP) || MATRIX(down, 1, T_DOWN) ||
			       VECTOR(attn_norm, 1, T_ATTN_NORM) || VECTOR(ffn_norm, 1, T_FFN_NORM) ||
			       (c->qkv_bias && VECTOR(qkv_bias, 3, T_Q_BIAS, T_K_BIAS, T_V_BIAS)) ||
			       (c->qk_norm && (VECTOR(q_norm, 1, T_Q_NORM) || VECTOR(k_norm, 1, T_K_NORM)))
		       ? -1
		       : 0;
#undef MATRIX
#undef TURNS
#undef VECTOR
}

int weights_load(struct weights *w, struct model *m, struct queue *q, char err[ERR_LEN])
{
	const struct model_config *c = model_config(m);
	struct device *d = queue_device(q);
	*w = (struct weights){.n_layers = c->layers};
	w->layer = mem_new((size_t)c->layers, sizeof *w->layer);
	if (matrix_load(&w->embed, d, (struct stack){m, 0, 1, {T_EMBED}, 0}, err))
		return -1;
	w->head = w->embed;
	if (!c->tied && matrix_load(&w->head, d, (struct stack){m, 0, 1, {T_LM_HEAD}, 0}, err)) {
		w->head = NULL;
		return -1;
	}
	if (vector_load(&w->final_norm, q, &(struct stack){m, 0, 1, {T_FINAL_NORM}, 0}, err))
		return -1;
	for (int l = 0; l < c->layers; l++)
		if (layer_load(&w->layer[l], m, l, q, err))
			return -1;
	return 0;
}

void weights_free(struct weights *w)
{
	for (int l = 0; w->layer && l < w->n_layers; l++) {
		struct layer_weights *lw = &w->layer[l];
		weight_free(lw->qkv), weight_free(lw->o), weight_free(lw->gate_up), weight_free(lw->down);
		tensor_free(lw->attn_norm), tensor_free(lw->ffn_norm), tensor_free(lw->qkv_bias);
		tensor_free(lw->q_norm), tensor_free(lw->k_norm);
	}
	free(w->layer);
	if (w->head != w->embed)
		weight_free(w->head);
	weight_free(w->embed);
	tensor_free(w->final_norm);
	*w = (struct weights){0};
}

int64_t weights_ffn_rows(const struct model_config *c)
{
	return 2 * (((int64_t)c->ffn + SWIGLU_TURN - 1) / SWIGLU_TURN * SWIGLU_TURN);
}

int64_t weights_bytes(const struct model_config *c, const struct device *d)
{
	int64_t hd = (int64_t)c->heads * c->head_dim, kd = (int64_t)c->kv_heads * c->head_dim;
	int64_t layer = weight_bytes(d, hd + 2 * kd, c->hidden) + weight_bytes(d, c->hidden, hd) + weight_bytes(d, weights_ffn_rows(c), c->hidden) +
			weight_bytes(d, c->hidden, c->ffn) + 4 * (2 * (int64_t)c->hidden + hd + 2 * kd + 2 * c->head_dim);
	return c->layers * layer + (c->tied ? 1 : 2) * weight_bytes(d, c->vocab, c->hidden) + 4 * (int64_t)c->hidden;
}
