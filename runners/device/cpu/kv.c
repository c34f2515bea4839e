/* kv.c: caches of keys and values, index lists over them (views), and the copy that makes a view a cache of its own. */
#include "runners/device/cpu/cpu.h"

#include <stdlib.h>

/* ---- kv ---- */

int64_t kv_bytes_for(const struct device *d, int head_dim, int64_t total_rows)
{
	return 2 * total_rows * head_dim * kv_element(d);
}

struct kv *kv_new(struct device *d, int layers, int heads, int head_dim, const int64_t *cap)
{
	int n = layers * heads;
	struct kv *kv = mem_new(1, sizeof *kv);
	*kv = (struct kv){.d = d,
		.layers = layers,
		.heads = heads,
		.head_dim = head_dim,
		.cap = mem_new((size_t)n, 8),
		.len = mem_new((size_t)n, 8),
		.first = mem_new((size_t)n, 8)};
	int64_t total = 0;
	for (int i = 0; i < n; i++) {
		kv->cap[i] = cap[i];
		kv->first[i] = total;
		total += cap[i];
	}
	kv->bytes = kv_bytes_for(d, head_dim, total) / 2;
	kv->k = device_alloc(d, kv->bytes);
	if (kv->k)
		kv->v = device_alloc(d, kv->bytes);
	if (!kv->k || !kv->v) {
		kv_free(kv);
		return NULL;
	}
	return kv;
}

void kv_free(struct kv *kv)
{
	if (!kv)
		return;
	device_free(kv->d, kv->k, kv->bytes);
	device_free(kv->d, kv->v, kv->bytes);
	free(kv->cap);
	free(kv->len);
	free(kv->first);
	free(kv);
}

int64_t kv_bytes(const struct kv *kv)
{
	int64_t rows = 0;
	for (int i = 0; i < kv->layers * kv->heads; i++)
		rows += kv->len[i];
	return kv_bytes_for(kv->d, kv->head_dim, rows);
}

int64_t kv_len(const struct kv *kv, int layer, int head)
{
	return kv->len[layer * kv->heads + head];
}

void kv_truncate(struct kv *kv, int64_t len)
{
	for (int i = 0; i < kv->layers * kv->heads; i++)
		if (kv->len[i] > len)
			kv->len[i] = len;
}

static void rows_out(float *dst, const void *src, int64_t n, bool bf16)
{
	if (!bf16)
		memcpy(dst, src, (size_t)n * 4);
	else
		for (int64_t i = 0; i < n; i++)
			dst[i] = bf16_to(((const uint16_t *)src)[i]);
}
static void rows_in(void *dst, const float *src, int64_t n, bool bf16)
{
	if (!bf16)
		memcpy(dst, src, (size_t)n * 4);
	else
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)dst)[i] = bf16_from(src[i]);
}

int kv_read(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, float *k, float *v)
{
	if (first < 0 || n < 0 || first > kv_len(kv, layer, head) - n)
		return device_fail(q->d, "kv_read: rows [%lld, +%lld) of %lld", (long long)first, (long long)n,
			(long long)kv_len(kv, layer, head));
	if (k)
		rows_out(k, kv_row(kv, kv->k, layer, head, first), n * kv->head_dim, kv->d->bf16);
	if (v)
		rows_out(v, kv_row(kv, kv->v, layer, head, first), n * kv->head_dim, kv->d->bf16);
	return 0;
}

int kv_write(struct queue *q, struct kv *kv, int layer, int head, int64_t n, const float *k, const float *v)
{
	int i = layer * kv->heads + head;
	if (n < 0 || n > kv->cap[i] - kv->len[i])
		return device_fail(q->d, "kv_write: %lld rows after %lld, capacity %lld", (long long)n, (long long)kv->len[i],
			(long long)kv->cap[i]);
	rows_in(kv_row(kv, kv->k, layer, head, kv->len[i]), k, n * kv->head_dim, kv->d->bf16);
	rows_in(kv_row(kv, kv->v, layer, head, kv->len[i]), v, n * kv->head_dim, kv->d->bf16);
	kv->len[i] += n;
	return 0;
}

struct append_job {
	const struct attn_seq *seqs;
	const struct tensor *x;
	int64_t kcol, vcol;
	int layer, heads;
};

static void append_item(void *arg, int64_t item, int thread) /* one (sequence, head) */
{
	struct append_job *j = arg;
	const struct attn_seq *s = &j->seqs[item / j->heads];
	int head = (int)(item % j->heads), d = s->tail->head_dim;
	bool bf16 = s->tail->d->bf16;
	(void)thread;
	for (int64_t r = 0; r < s->rows; r++) {
		const float *row = j->x->x + (s->row0 + r) * j->x->cols + head * d;
		rows_in(kv_row(s->tail, s->tail->k, j->layer, head, s->tail_len + r), row + j->kcol, d, bf16);
		rows_in(kv_row(s->tail, s->tail->v, j->layer, head, s->tail_len + r), row + j->vcol, d, bf16);
	}
	s->tail->len[j->layer * j->heads + head] = s->tail_len + s->rows;
}

int op_kv_append(
	struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol)
{
	if (n == 0)
		return 0;
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
	struct append_job j = {seqs, x, kcol, vcol, layer, heads};
	int64_t rows = 0, begin = profile_begin(q->d);
	for (int i = 0; i < n; i++)
		rows += seqs[i].rows;
	if (rows < 32) /* decoding: not worth waking a thread */
		for (int64_t i = 0; i < (int64_t)n * heads; i++)
			append_item(&j, i, 0);
	else
		pool_run(q->d->pool, (int64_t)n * heads, append_item, &j);
	profile_end(q->d, PROFILE_KV_APPEND, begin, 0,
		2.0 * (double)(rows * heads * seqs[0].tail->head_dim * (4 + kv_element(q->d))));
	return 0;
}

/* ---- kept ---- */

struct kept *kept_new(struct device *d, int layers, int heads, const int32_t *len, const int32_t *const *index)
{
	int n = layers * heads;
	struct kept *k = mem_new(1, sizeof *k);
	*k = (struct kept){
		.d = d, .layers = layers, .heads = heads, .len = mem_new((size_t)n, 4), .first = mem_new((size_t)n, 8)};
	int64_t total = 0;
	for (int i = 0; i < n; i++) {
		k->len[i] = len[i];
		k->first[i] = total;
		total += len[i];
	}
	k->bytes = total * 4;
	if (!(k->index = device_alloc(d, k->bytes))) {
		kept_free(k);
		return NULL;
	}
	for (int i = 0; i < n; i++)
		if (len[i])
			memcpy(k->index + k->first[i], index[i], (size_t)len[i] * 4);
	return k;
}

void kept_free(struct kept *k)
{
	if (!k)
		return;
	device_free(k->d, k->index, k->bytes);
	free(k->len);
	free(k->first);
	free(k);
}

int32_t kept_len(const struct kept *k, int layer, int head)
{
	return k->len[layer * k->heads + head];
}

struct gather_job {
	struct kv *dst;
	const struct kv *src;
	const struct kept *kept;
	int layer;
};

static void gather_head(void *arg, int64_t head, int thread)
{
	struct gather_job *j = arg;
	int h = (int)head, i = j->layer * j->dst->heads + h;
	size_t row = (size_t)(j->dst->head_dim * kv_element(j->dst->d));
	const int32_t *index = j->kept->index + j->kept->first[i];
	(void)thread;
	for (int32_t r = 0; r < j->kept->len[i]; r++) {
		memcpy(kv_row(j->dst, j->dst->k, j->layer, h, r), kv_row(j->src, j->src->k, j->layer, h, index[r]), row);
		memcpy(kv_row(j->dst, j->dst->v, j->layer, h, r), kv_row(j->src, j->src->v, j->layer, h, index[r]), row);
	}
	j->dst->len[i] = j->kept->len[i];
}

int kv_gather(struct queue *q, struct kv *dst, const struct kv *src, const struct kept *k, int layer)
{
	if (dst->heads != src->heads || k->heads != src->heads || dst->head_dim != src->head_dim || layer < 0 ||
		layer >= dst->layers || layer >= src->layers || layer >= k->layers)
		return device_fail(q->d, "kv_gather: the caches do not have the same shape");
	for (int h = 0; h < k->heads; h++) {
		int i = layer * k->heads + h;
		if (k->len[i] > dst->cap[i] || (k->len[i] && k->index[k->first[i] + k->len[i] - 1] >= src->len[i]))
			return device_fail(q->d, "kv_gather: layer %d head %d: %d rows, capacity %lld, of %lld", layer, h,
				k->len[i], (long long)dst->cap[i], (long long)src->len[i]);
	}
	int64_t begin = profile_begin(q->d), rows = 0;
	for (int h = 0; h < k->heads; h++)
		rows += k->len[layer * k->heads + h];
	pool_run(q->d->pool, k->heads, gather_head, &(struct gather_job){dst, src, k, layer});
	profile_end(q->d, PROFILE_KV_GATHER, begin, 0, 2.0 * (double)kv_bytes_for(q->d, dst->head_dim, rows));
	return 0;
}
