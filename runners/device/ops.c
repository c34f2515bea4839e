/* ops.c: every operation of device.h: checks its arguments, counts it for the profile, hands it to the device's backend. */
#include "runners/device/backend.h"

/* Plain rows: an operand has none that could be copied. */
static bool has_rows(const struct tensor *t, int64_t row0, int64_t rows)
{
	return !t->operand && row0 >= 0 && rows >= 0 && row0 <= t->rows - rows;
}
static bool has_cols(const struct tensor *t, int64_t col0, int64_t cols)
{
	return col0 >= 0 && cols >= 0 && col0 <= t->cols - cols;
}

/* Around an operation: 0 while nobody profiles, and then profile_end does nothing. Queues that run behind the host are waited
 * for. */
static int64_t profile_begin(struct queue *q)
{
	if (!q->d->profiling || queue_sync(q))
		return 0;
	return clock_ns();
}
static int profile_end(struct queue *q, enum profile_op op, int64_t begin, double flops, double bytes, int rc)
{
	struct profile_count *c = &q->d->profile[op];
	if (rc || !begin)
		return rc;
	if (queue_sync(q))
		return -1;
	c->calls++;
	c->ns += clock_ns() - begin;
	c->flops += flops;
	c->bytes += bytes;
	return 0;
}

/* ---- memory ---- */

int tensor_write(struct queue *q, struct tensor *t, int64_t row0, int64_t rows, const float *host)
{
	if (!has_rows(t, row0, rows))
		return device_fail(
			q->d, "tensor_write: rows [%lld, +%lld) of %lld", (long long)row0, (long long)rows, (long long)t->rows);
	return rows ? q->d->backend->tensor_write(q, t, row0, rows, host) : 0;
}

int tensor_read(struct queue *q, const struct tensor *t, int64_t row0, int64_t rows, float *host)
{
	if (!has_rows(t, row0, rows))
		return device_fail(
			q->d, "tensor_read: rows [%lld, +%lld) of %lld", (long long)row0, (long long)rows, (long long)t->rows);
	return rows ? q->d->backend->tensor_read(q, t, row0, rows, host) : 0;
}

int tensor_fill(struct queue *q, struct tensor *t, float value)
{
	if (t->operand)
		return device_fail(q->d, "tensor_fill: an operand");
	return t->rows > 0 && t->cols > 0 ? q->d->backend->tensor_fill(q, t, value) : 0;
}

int tensor_move(struct queue *q, struct tensor *out, const struct tensor *x)
{
	if (out->rows != x->rows || out->cols != x->cols || out->operand || x->operand || !q->d->backend->tensor_move || x->d->backend != q->d->backend)
		return device_fail(q->d, "tensor_move: [%lld, %lld] of %s to [%lld, %lld] of %s", (long long)x->rows, (long long)x->cols, x->d->name,
			(long long)out->rows, (long long)out->cols, q->d->name);
	return x->rows > 0 && x->cols > 0 ? q->d->backend->tensor_move(q, out, x) : 0;
}

int kv_read(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, float *k, float *v)
{
	if (first < 0 || n < 0 || first > kv_len(kv, layer, head) - n)
		return device_fail(q->d, "kv_read: rows [%lld, +%lld) of %lld", (long long)first, (long long)n,
			(long long)kv_len(kv, layer, head));
	return n ? q->d->backend->kv_read(q, kv, layer, head, first, n, k, v) : 0;
}

int kv_write(struct queue *q, struct kv *kv, int layer, int head, int64_t n, const float *k, const float *v)
{
	int i = layer * kv->heads + head;
	if (n < 0 || n > kv->cap[i] - kv->len[i])
		return device_fail(q->d, "kv_write: %lld rows after %lld, capacity %lld", (long long)n, (long long)kv->len[i],
			(long long)kv->cap[i]);
	if (n && q->d->backend->kv_write(q, kv, layer, head, n, k, v))
		return -1;
	kv->len[i] += n;
	return 0;
}

static int check_append(
	struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol)
{
	int heads = seqs[0].tail->heads;
	for (int i = 0; i < n; i++) {
		const struct kv *t = seqs[i].tail;
		if (t->heads != heads || layer < 0 || layer >= t->layers || seqs[i].row0 < 0 ||
			seqs[i].row0 + seqs[i].rows > x->rows || kcol + t->heads * t->head_dim > x->cols ||
			vcol + t->heads * t->head_dim > x->cols)
			return device_fail(q->d, "op_kv_append: sequence %d does not fit its tensor or cache", i);
		for (int h = 0; h < heads; h++)
			if (seqs[i].tail_len + seqs[i].rows > t->cap[layer * heads + h])
				return device_fail(q->d, "op_kv_append: %lld rows after %lld, capacity %lld",
					(long long)seqs[i].rows, (long long)seqs[i].tail_len,
					(long long)t->cap[layer * heads + h]);
	}
	return 0;
}

int op_kv_append(
	struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol)
{
	if (n == 0)
		return 0;
	if (check_append(q, layer, seqs, n, x, kcol, vcol))
		return -1;
	int heads = seqs[0].tail->heads;
	int64_t rows = 0, begin = profile_begin(q);
	int rc = q->d->backend->kv_append(q, layer, seqs, n, x, kcol, vcol);
	for (int i = 0; i < n; i++) {
		rows += seqs[i].rows;
		for (int h = 0; h < heads && !rc; h++)
			seqs[i].tail->len[layer * heads + h] = seqs[i].tail_len + seqs[i].rows;
	}
	return profile_end(q, PROFILE_KV_APPEND, begin, 0,
		2.0 * (double)(rows * heads * seqs[0].tail->head_dim * (4 + kv_element(q->d))), rc);
}

int kv_gather(struct queue *q, struct kv *dst, const struct kv *src, const struct kept *k, int layer)
{
	if (dst->heads != src->heads || k->heads != src->heads || dst->head_dim != src->head_dim || layer < 0 ||
		layer >= dst->layers || layer >= src->layers || layer >= k->layers)
		return device_fail(q->d, "kv_gather: the caches do not have the same shape");
	for (int h = 0; h < k->heads; h++) {
		int i = layer * k->heads + h;
		if (k->len[i] > dst->cap[i] || k->last[i] >= src->len[i])
			return device_fail(q->d, "kv_gather: layer %d head %d: %d rows, capacity %lld, of %lld", layer, h,
				k->len[i], (long long)dst->cap[i], (long long)src->len[i]);
	}
	int64_t begin = profile_begin(q), rows = 0;
	int rc = q->d->backend->kv_gather(q, dst, src, k, layer);
	for (int h = 0; h < k->heads; h++) {
		rows += k->len[layer * k->heads + h];
		if (!rc)
			dst->len[layer * k->heads + h] = k->len[layer * k->heads + h];
	}
	return profile_end(q, PROFILE_KV_GATHER, begin, 0, 2.0 * (double)kv_bytes_for(q->d, dst->head_dim, rows), rc);
}

/* ---- linear algebra and the small operations ---- */

int op_embed(struct queue *q, struct tensor *out, const struct weight *table, const int32_t *ids, int64_t rows)
{
	if (rows > out->rows || out->cols < table->k)
		return device_fail(q->d, "op_embed: %lld rows of %lld do not fit", (long long)rows, (long long)table->k);
	for (int64_t r = 0; r < rows; r++)
		if (ids[r] < 0 || ids[r] >= table->n)
			return device_fail(q->d, "op_embed: token %d of %lld", ids[r], (long long)table->n);
	if (rows == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->embed(q, out, table, ids, rows);
	return profile_end(q, PROFILE_EMBED, begin, 0, (double)(rows * table->k * (kv_element(q->d) + 4)), rc);
}

/* rows x cols elements of `streams` matrices are read or written. */
static double row_bytes(int streams, int64_t rows, int64_t cols)
{
	return 4.0 * streams * (double)rows * (double)cols;
}

int op_rmsnorm(struct queue *q, struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, int64_t rows)
{
	if (rows > x->rows || rows > out->rows || out->cols < w->cols || x->cols < w->cols)
		return device_fail(q->d, "op_rmsnorm: %lld rows of %lld do not fit", (long long)rows, (long long)w->cols);
	if (rows == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->rmsnorm(q, out, x, w, eps, rows);
	return profile_end(q, PROFILE_NORM, begin, 0, row_bytes(2, rows, w->cols), rc);
}

static int linear_checked(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias,
	int64_t col0, int64_t cols, bool add, const struct head_epilogue *heads, int64_t rows)
{
	if (x->cols < w->k || rows > x->rows || rows > out->rows || out->operand || cols > out->cols || col0 % 32 || col0 < 0 ||
		col0 + cols > w->n || (bias && bias->cols < w->n))
		return device_fail(q->d, "op_linear: [%lld, %lld] by columns [%lld, +%lld) of a [%lld, %lld] weight does not fit",
			(long long)rows, (long long)x->cols, (long long)col0, (long long)cols, (long long)w->n, (long long)w->k);
	if (rows == 0 || cols == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->linear(q, out, x, w, bias, col0, cols, add, heads, rows);
	return profile_end(q, rows <= FEW_ROWS ? PROFILE_LINEAR_FEW : PROFILE_LINEAR, begin,
		2.0 * (double)rows * (double)w->k * (double)cols, (double)weight_bytes(q->d, cols, w->k), rc);
}

int op_linear(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias,
	int64_t col0, int64_t cols, bool add, int64_t rows)
{
	return linear_checked(q, out, x, w, bias, col0, cols, add, NULL, rows);
}

int op_linear_qkv(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias,
	int64_t col0, int64_t cols, const struct head_epilogue *h, int64_t rows)
{
	int64_t n = h->q_heads + h->k_heads;
	if (h->col < 0 || h->q_heads < 0 || h->k_heads < 0 || h->col + n * h->d > cols || h->d % 2 || h->d > HEAD_DIM_MAX || rows > h->cs->rows ||
		h->cs->cols < h->d || (h->q_norm && h->q_norm->cols < h->d) || (h->k_norm && h->k_norm->cols < h->d) ||
		(h->q_pre && (h->q_pre->rows < rows || h->q_pre->cols < (int64_t)h->q_heads * h->d)))
		return device_fail(
			q->d, "op_linear_qkv: %lld heads of %d from column %lld of %lld", (long long)n, h->d, (long long)h->col, (long long)cols);
	return linear_checked(q, out, x, w, bias, col0, cols, false, h, rows);
}

int op_linear_swiglu(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, int64_t rows)
{
	if (x->cols < w->k || rows > x->rows || rows > out->rows || w->n % (2 * SWIGLU_TURN) || out->cols < w->n / 2)
		return device_fail(q->d, "op_linear_swiglu: [%lld, %lld] by a [%lld, %lld] weight into %lld columns does not fit",
			(long long)rows, (long long)x->cols, (long long)w->n, (long long)w->k, (long long)out->cols);
	if (rows == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->linear_swiglu(q, out, x, w, rows);
	return profile_end(q, rows <= FEW_ROWS ? PROFILE_LINEAR_FEW : PROFILE_LINEAR, begin,
		2.0 * (double)rows * (double)w->k * (double)w->n, (double)weight_bytes(q->d, w->n, w->k), rc);
}

int op_rope_table(
	struct queue *q, struct tensor *cs, const int64_t *positions, const double *inv_freq, double mscale, int d, int64_t rows)
{
	if (rows > cs->rows || d % 2 || cs->cols < d)
		return device_fail(q->d, "op_rope_table: %lld rows of %d do not fit", (long long)rows, d);
	if (rows == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->rope_table(q, cs, positions, inv_freq, mscale, d, rows);
	return profile_end(q, PROFILE_ROPE_TABLE, begin, 0, row_bytes(1, rows, d), rc);
}

int op_copy(struct queue *q, struct tensor *out, int64_t out_row, int64_t out_col, const struct tensor *x, int64_t row,
	int64_t col, int64_t rows, int64_t cols)
{
	if (!has_rows(out, out_row, rows) || !has_rows(x, row, rows) || !has_cols(out, out_col, cols) || !has_cols(x, col, cols))
		return device_fail(q->d, "op_copy: %lld x %lld elements do not fit", (long long)rows, (long long)cols);
	if (rows == 0 || cols == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->copy(q, out, out_row, out_col, x, row, col, rows, cols);
	return profile_end(q, PROFILE_COPY, begin, 0, row_bytes(2, rows, cols), rc);
}

int op_gather_rows(struct queue *q, struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n)
{
	if (n < 0 || n > out->rows || out->cols < x->cols || out->operand != x->operand || (x->operand && out->cols != x->cols))
		return device_fail(q->d, "op_gather_rows: %lld rows of %lld do not fit", (long long)n, (long long)x->cols);
	for (int64_t i = 0; i < n; i++)
		if (rows[i] < 0 || rows[i] >= x->rows)
			return device_fail(q->d, "op_gather_rows: row %d of %lld", rows[i], (long long)x->rows);
	if (n == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->gather_rows(q, out, x, rows, n);
	return profile_end(q, PROFILE_COPY, begin, 0, row_bytes(2, n, x->cols), rc);
}

int op_argmax(struct queue *q, const struct tensor *x, int64_t cols, int64_t rows, int32_t *out)
{
	if (rows > x->rows || cols > x->cols || cols < 1)
		return device_fail(q->d, "op_argmax: %lld columns of %lld", (long long)cols, (long long)x->cols);
	if (rows == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->argmax(q, x, cols, rows, out);
	return profile_end(q, PROFILE_ARGMAX, begin, 0, row_bytes(1, rows, cols), rc);
}

/* ---- scores ---- */

int op_topk(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const int64_t *k,
	int32_t *const *out, int64_t *nan)
{
	if (!has_rows(x, row0, rows) || !has_cols(x, col0, cols) || cols > INT32_MAX)
		return device_fail(q->d, "op_topk: rows [%lld, +%lld), columns [%lld, +%lld) of %lld x %lld", (long long)row0,
			(long long)rows, (long long)col0, (long long)cols, (long long)x->rows, (long long)x->cols);
	for (int64_t r = 0; r < rows; r++) {
		if (k[r] < 0 || k[r] > cols)
			return device_fail(q->d, "op_topk: the best %lld of %lld", (long long)k[r], (long long)cols);
		nan[r] = 0;
	}
	if (rows == 0 || cols == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->topk(q, x, row0, rows, col0, cols, k, out, nan);
	return profile_end(q, PROFILE_TOPK, begin, 0, row_bytes(1, rows, cols), rc);
}

int op_top_counts(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int64_t k, int64_t *counts)
{
	if (!has_rows(x, row0, rows) || !has_cols(x, col0, cols) || (rows > 0 && cols > INT32_MAX / rows) || k < 0 || k > rows * cols)
		return device_fail(q->d, "op_top_counts: the best %lld of rows [%lld, +%lld), columns [%lld, +%lld) of %lld x %lld",
			(long long)k, (long long)row0, (long long)rows, (long long)col0, (long long)cols, (long long)x->rows,
			(long long)x->cols);
	memset(counts, 0, (size_t)rows * sizeof *counts);
	if (rows == 0 || cols == 0 || k == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->top_counts(q, x, row0, rows, col0, cols, k, counts);
	return profile_end(q, PROFILE_TOPK, begin, 0, row_bytes(1, rows, cols), rc);
}

int op_pool(struct queue *q, struct tensor *out, const struct tensor *x, int g, int64_t cols, const struct pool_rule *rule)
{
	if (out->operand || x->operand || out == x || g < 1 || x->rows % g || out->rows < x->rows / g || !has_cols(out, 0, cols) ||
		!has_cols(x, 0, cols))
		return device_fail(q->d, "op_pool: %lld columns of %lld rows in groups of %d do not fit", (long long)cols,
			(long long)x->rows, g);
	if (!strchr("amn", rule->kind) || rule->size < 1 || rule->size % 2 == 0)
		return device_fail(q->d, "op_pool: no pooling '%c' of %d", rule->kind, rule->size);
	if (x->rows == 0 || cols == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->pool(q, out, x, g, cols, rule);
	return profile_end(q, PROFILE_POOL, begin, 0, row_bytes(1, x->rows + x->rows / g, cols), rc);
}

int op_moments(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int heads, int d, double *sum,
	double *outer)
{
	if (row0 < 0 || row0 + rows > x->rows || col0 < 0 || col0 + (int64_t)heads * d > x->cols || d > HEAD_DIM_MAX)
		return device_fail(q->d, "op_moments: %d heads of %d from column %lld of %lld", heads, d, (long long)col0,
			(long long)x->cols);
	if (rows == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->moments(q, x, row0, rows, col0, heads, d, sum, outer);
	return profile_end(
		q, PROFILE_MOMENTS, begin, (double)rows * heads * d * (d + 2), row_bytes(1, rows, (int64_t)heads * d), rc);
}

bool device_reads_caches(const struct device *d)
{
	return !d->backend->utilities;
}

int op_utilities(struct queue *q, const struct kv *kv, int layer, const struct entry_net *net, int net_layer, int64_t first, int64_t n,
	const struct tensor *turns, float *out)
{
	int64_t in = (int64_t)kv->head_dim * (net->key + net->value), nets = ((int64_t)net_layer + 1) * kv->heads;
	if (!q->d->backend->utilities)
		return device_fail(q->d, "op_utilities: this device's caches are read in place");
	if (net->hid < 1 || net->hid % 32 || net->mean->cols != in || net->mean->rows < nets || net->w1->cols != net->hid ||
		net->w1->rows < nets * in || net->b1->cols != net->hid || net->b1->rows < nets || net->w2->cols != net->hid ||
		net->w2->rows < nets || net->b2->cols != 1 || net->b2->rows < nets || net_layer < 0)
		return device_fail(q->d, "op_utilities: a network of %d units for %lld inputs of layer %d", net->hid, (long long)in, net_layer);
	if (layer < 0 || layer >= kv->layers || first < 0 || (turns && (turns->rows < n || turns->cols != kv->head_dim)))
		return device_fail(q->d, "op_utilities: rows %lld to %lld of layer %d", (long long)first, (long long)(first + n), layer);
	for (int h = 0; h < kv->heads; h++)
		if (first + n > kv_len(kv, layer, h))
			return device_fail(q->d, "op_utilities: %lld rows of %lld", (long long)(first + n), (long long)kv_len(kv, layer, h));
	if (n <= 0)
		return 0;
	int64_t begin = profile_begin(q), entries = (int64_t)kv->heads * n;
	int rc = q->d->backend->utilities(q, kv, layer, net, net_layer, first, n, turns, out);
	return profile_end(q, PROFILE_UTILITIES, begin, 2.0 * (double)entries * (double)in * net->hid, (double)entries * (double)in * kv_element(q->d), rc);
}

/* ---- networks over positions ---- */

bool device_has_steps(const struct device *d)
{
	return d->backend->steps;
}

static bool rows_fit(const struct step *s, struct step_rows r, int64_t n, const struct tensor *x)
{
	return r.row >= 0 && r.each >= 0 && r.row + (s->batch - 1) * r.each + n <= x->rows;
}
static bool params_fit(const struct step *s, struct step_params p, int64_t n, const struct tensor *params)
{
	return p.at < 0 || (p.each >= 0 && p.at + (s->batch - 1) * p.each + n <= params->cols);
}

/* Rows and parameters of a step lie inside. */
static bool step_fits(const struct step *s, const struct tensor *x, const struct tensor *p)
{
	if (s->batch < 1 || s->batch > STEP_BATCH_MAX || s->channels < 0 || s->rows < 0 || s->apart < 0)
		return false;
	switch (s->kind) {
	case STEP_FEATURE:
		return s->rows > 0 && rows_fit(s, s->in, s->rows, x) && rows_fit(s, s->with, 1, x) && rows_fit(s, s->out, s->rows, x) && s->weight.at >= 0 &&
		       params_fit(s, s->weight, s->rows, p) && params_fit(s, s->shift, s->rows, p);
	case STEP_CONV:
		return s->taps % 2 == 1 && s->taps <= STEP_TAPS_MAX && s->rows > 0 && s->channels > 0 && s->weight.at >= 0 &&
		       rows_fit(s, s->in, (s->channels - 1) * s->apart + 1, x) && rows_fit(s, s->out, s->rows, x) &&
		       params_fit(s, s->weight, (s->rows - 1) * s->stride + s->channels * s->taps, p) && params_fit(s, s->bias, s->rows, p);
	case STEP_NORM:
		return s->channels > 0 && s->weight.at >= 0 && rows_fit(s, s->in, s->channels, x) && rows_fit(s, s->out, s->channels, x) &&
		       params_fit(s, s->weight, s->channels, p) && params_fit(s, s->bias, s->channels, p) && params_fit(s, s->shift, s->channels, p);
	case STEP_BAND:
		return s->channels > 0 && s->weight.at >= 0 && s->window >= 0 && s->half >= 0 && rows_fit(s, s->in, 2 * s->apart + s->channels, x) &&
		       rows_fit(s, s->out, s->channels, x) && params_fit(s, s->weight, 2 * s->half + 1, p);
	case STEP_MIX:
		return s->tokens > 0 && s->rows > 0 && s->channels > 0 && rows_fit(s, s->in, (int64_t)s->tokens * s->rows, x) &&
		       rows_fit(s, s->with, (int64_t)s->tokens * s->channels, x) && rows_fit(s, s->out, (int64_t)s->rows * s->channels, x);
	default:
		return false;
	}
}

/* Multiplications and additions of a step at one column; attention as if it saw all of its window. */
static double step_flops(const struct step *s, int64_t cols)
{
	double seen = (double)(2 * s->window + 1 < cols ? 2 * s->window + 1 : cols), channels = s->channels, rows = s->rows;
	double each[STEP_KINDS] = {[STEP_FEATURE] = 3 * rows,
		[STEP_CONV] = 2 * rows * channels * s->taps,
		[STEP_NORM] = 8 * channels,
		[STEP_BAND] = 4 * seen * channels,
		[STEP_MIX] = 2 * s->tokens * rows * channels};
	return each[s->kind] * s->batch;
}

int op_steps(struct queue *q, struct tensor *x, int64_t cols, const struct tensor *params, const struct step *steps, int n)
{
	double flops = 0;
	if (!q->d->backend->steps)
		return device_fail(q->d, "op_steps: the host runs such networks itself");
	if (x->operand || cols < 0 || cols > x->cols || params->operand || params->rows != 1)
		return device_fail(q->d, "op_steps: %lld columns of %lld", (long long)cols, (long long)x->cols);
	for (int i = 0; i < n; i++) {
		if (!step_fits(&steps[i], x, params))
			return device_fail(q->d, "op_steps: step %d of %d does not fit %lld rows or %lld parameters", i, n, (long long)x->rows,
				(long long)params->cols);
		flops += step_flops(&steps[i], cols) * (double)cols;
	}
	if (cols == 0)
		return 0;
	int64_t begin = profile_begin(q);
	int rc = q->d->backend->steps(q, x, cols, params, steps, n);
	return profile_end(q, PROFILE_STEPS, begin, flops, row_bytes(1, x->rows, cols), rc);
}

/* ---- attention ---- */

static int check_heads(struct device *d, const char *op, int heads, int kv_heads, int head_dim)
{
	if (heads <= 0 || kv_heads <= 0 || heads % kv_heads || heads / kv_heads > GROUP_HEADS_MAX || head_dim < 1 ||
		head_dim > HEAD_DIM_MAX)
		return device_fail(d, "%s: %d query heads on %d KV heads of %d channels", op, heads, kv_heads, head_dim);
	return 0;
}

static int check_sequence(const struct attn_seq *s, const struct kv *first, int layer, const struct tensor *out,
	const struct tensor *x, int64_t qcol, int heads, const struct tensor *lse)
{
	const struct kv *c = s->context;
	int kv_heads = first->heads, head_dim = first->head_dim;
	if (s->tail->heads != kv_heads || s->tail->head_dim != head_dim || layer < 0 || layer >= s->tail->layers ||
		(c && (c->heads != kv_heads || c->head_dim != head_dim || layer >= c->layers)) ||
		(s->kept && (!c || s->kept->heads != kv_heads || layer >= s->kept->layers)) || s->row0 < 0 ||
		s->row0 + s->rows > x->rows || s->row0 + s->rows > out->rows ||
		(lse && (s->row0 + s->rows > lse->rows || lse->cols < heads)) || qcol + heads * head_dim > x->cols ||
		heads * head_dim > out->cols || kv_len(s->tail, layer, 0) < s->tail_len + s->rows)
		return -1;
	return 0;
}

/* What attention of one sequence costs, for the profile: K and V of all its keys are read once. */
static void attention_cost(const struct attn_seq *s, int layer, int heads, double *flops, double *bytes)
{
	int kv_heads = s->tail->heads, d = s->tail->head_dim;
	for (int h = 0; h < kv_heads; h++) {
		int64_t context = s->kept ? s->kept->len[layer * kv_heads + h] : s->context ? kv_len(s->context, layer, h) : 0;
		int64_t pairs = s->rows * (context + s->tail_len + 1) + s->rows * (s->rows - 1) / 2;
		*flops += 4.0 * (heads / kv_heads) * d * (double)pairs;
		*bytes += 2.0 * d * (double)(context + s->tail_len + s->rows) * (double)kv_element(s->tail->d);
	}
}

int op_attention(struct queue *q, int layer, const struct attn_seq *seqs, int n, struct tensor *out, const struct tensor *x,
	int64_t qcol, int heads, struct tensor *lse)
{
	struct device *d = q->d;
	if (n == 0)
		return 0;
	const struct kv *first = seqs[0].tail;
	if (check_heads(d, "op_attention", heads, first->heads, first->head_dim))
		return -1;
	for (int i = 0; i < n; i++)
		if (check_sequence(&seqs[i], first, layer, out, x, qcol, heads, lse))
			return device_fail(d, "op_attention: sequence %d does not fit its tensors or its cache", i);
	int64_t rows = 0, begin = profile_begin(q);
	double flops = 0, bytes = 0;
	for (int i = 0; i < n; i++) {
		rows += seqs[i].rows;
		if (begin)
			attention_cost(&seqs[i], layer, heads, &flops, &bytes);
	}
	if (rows == 0)
		return 0;
	int rc = d->backend->attention(q, layer, seqs, n, out, x, qcol, heads, lse);
	return profile_end(q, rows == n ? PROFILE_ATTENTION_ONE : PROFILE_ATTENTION, begin, flops, bytes, rc);
}

static int check_keys(struct device *d, const char *op, const struct key_set *keys, int layer)
{
	if (keys->n < 1 || keys->n > ATTN_SEGMENTS)
		return device_fail(d, "%s: %d key ranges", op, keys->n);
	for (int r = 0; r < keys->n; r++) {
		const struct key_range *g = &keys->range[r];
		for (int h = 0; h < g->kv->heads; h++)
			if (g->first < 0 || g->n < 0 || g->kv->heads != keys->range[0].kv->heads ||
				g->first + g->n > kv_len(g->kv, layer, h))
				return device_fail(d, "%s: rows [%lld, +%lld) of layer %d head %d with %lld", op,
					(long long)g->first, (long long)g->n, layer, h, (long long)kv_len(g->kv, layer, h));
	}
	return 0;
}

/* (query, key) pairs of one head over columns [col0, +cols) of a range of which query i sees the first seen + i keys (all rows
 * `seen` when not causal). */
static double range_pairs(bool causal, int64_t seen, int64_t rows, int64_t col0, int64_t cols)
{
	int64_t n = 0;
	for (int64_t i = 0; i < (causal ? rows : 1); i++) {
		int64_t s = seen + i - col0;
		n += s < 0 ? 0 : s > cols ? cols : s;
	}
	return causal ? (double)n : (double)n * (double)rows;
}

int op_attn_lse(struct queue *q, int layer, const struct key_set *keys, const struct tensor *x, int64_t row0, int64_t rows,
	int64_t qcol, int heads, struct tensor *lse)
{
	struct device *d = q->d;
	if (check_keys(d, "op_attn_lse", keys, layer))
		return -1;
	const struct key_range *last = &keys->range[keys->n - 1];
	int kv_heads = last->kv->heads, head_dim = last->kv->head_dim;
	if (check_heads(d, "op_attn_lse", heads, kv_heads, head_dim))
		return -1;
	if (row0 < 0 || row0 + rows > x->rows || qcol + heads * head_dim > x->cols || rows > lse->rows || heads > lse->cols)
		return device_fail(
			d, "op_attn_lse: rows [%lld, +%lld) do not fit their tensors", (long long)row0, (long long)rows);
	if (rows == 0)
		return 0;
	int64_t begin = profile_begin(q);
	double pairs = 0, n = 0;
	for (int r = 0; begin && r < keys->n; r++) {
		bool causal = keys->causal && r == keys->n - 1;
		int64_t len = keys->range[r].n;
		pairs += range_pairs(causal, causal ? len - rows + 1 : len, rows, 0, len);
		n += (double)len;
	}
	int rc = d->backend->attn_lse(q, layer, keys, x, row0, rows, qcol, heads, lse);
	return profile_end(
		q, PROFILE_ATTN_LSE, begin, 2.0 * heads * head_dim * pairs, kv_heads * head_dim * n * (double)kv_element(d), rc);
}

int op_attn_reduce(struct queue *q, int layer, const struct key_set *keys, int which, int64_t col0, int64_t cols,
	const struct tensor *x, int64_t row0, int64_t rows, int64_t qcol, int heads, const struct tensor *lse, int64_t lse_row0,
	enum attn_reduce reduce, enum attn_group group, struct tensor *out, int64_t out_col)
{
	struct device *d = q->d;
	if (check_keys(d, "op_attn_reduce", keys, layer))
		return -1;
	if (which < 0 || which >= keys->n || col0 < 0 || cols < 0 || col0 + cols > keys->range[which].n)
		return device_fail(
			d, "op_attn_reduce: columns [%lld, +%lld) of range %d", (long long)col0, (long long)cols, which);
	const struct key_range *range = &keys->range[which];
	int kv_heads = range->kv->heads, head_dim = range->kv->head_dim;
	if (check_heads(d, "op_attn_reduce", heads, kv_heads, head_dim))
		return -1;
	if (row0 < 0 || row0 + rows > x->rows || qcol + heads * head_dim > x->cols || lse_row0 < 0 ||
		lse_row0 + rows > lse->rows || heads > lse->cols || out_col < 0 || out_col + cols > out->cols ||
		out->rows < (group == GROUP_NONE ? heads : kv_heads))
		return device_fail(
			d, "op_attn_reduce: rows [%lld, +%lld) do not fit their tensors", (long long)row0, (long long)rows);
	if (group == GROUP_MEAN && reduce == REDUCE_MAX)
		return device_fail(d, "op_attn_reduce: the mean of a group needs sums over queries");
	if (rows == 0 || cols == 0)
		return 0;
	bool causal = keys->causal && which == keys->n - 1;
	int64_t begin = profile_begin(q), seen = causal ? range->n - rows + 1 : range->n;
	int rc = d->backend->attn_reduce(
		q, layer, keys, which, col0, cols, x, row0, rows, qcol, heads, lse, lse_row0, reduce, group, out, out_col);
	return profile_end(q, PROFILE_ATTN_REDUCE, begin,
		begin ? 2.0 * heads * head_dim * range_pairs(causal, seen, rows, col0, cols) : 0,
		(double)(cols * kv_heads * head_dim * kv_element(d)), rc);
}
