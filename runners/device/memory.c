/* memory.c: tensors, caches of keys and values, and index lists over them (views), on any device: shapes, lengths and index
 * offsets are the host's, what they describe is the device's. */
#include "runners/device/backend.h"

#include <stdlib.h>

/* ---- tensors ---- */

struct tensor *tensor_new(struct device *d, int64_t rows, int64_t cols)
{
	float *x = device_alloc(d, rows * cols * 4);
	if (!x)
		return NULL;
	struct tensor *t = mem_new(1, sizeof *t);
	*t = (struct tensor){d, rows, cols, x, false};
	return t;
}

int64_t tensor_bytes(int64_t rows, int64_t cols)
{
	return counted(rows * cols * 4);
}

int64_t operand_bytes(const struct device *d, int64_t rows, int64_t cols)
{
	return d->backend->operand_bytes(d, rows, cols);
}

struct tensor *operand_new(struct device *d, int64_t rows, int64_t cols)
{
	float *x = device_alloc(d, operand_bytes(d, rows, cols));
	if (!x)
		return NULL;
	struct tensor *t = mem_new(1, sizeof *t);
	*t = (struct tensor){d, rows, cols, x, true};
	if (d->backend->operand_clear(t)) {
		tensor_free(t);
		return NULL;
	}
	return t;
}

void tensor_free(struct tensor *t)
{
	if (!t)
		return;
	device_free(t->d, t->x, t->operand ? operand_bytes(t->d, t->rows, t->cols) : t->rows * t->cols * 4);
	free(t);
}

int64_t tensor_rows(const struct tensor *t)
{
	return t->rows;
}
int64_t tensor_cols(const struct tensor *t)
{
	return t->cols;
}

/* ---- weights ---- */

struct weight *weight_new(struct device *d, int64_t n, int64_t k, weight_rows_fn rows, void *user, char err[ERR_LEN])
{
	return d->backend->weight_new(d, n, k, rows, user, err);
}

void weight_free(struct weight *w)
{
	if (w)
		w->d->backend->weight_free(w);
}

int64_t weight_bytes(const struct device *d, int64_t n, int64_t k)
{
	return d->backend->weight_bytes(d, n, k);
}

/* ---- kv ---- */

int64_t kv_bytes_for(const struct device *d, int head_dim, int64_t total_rows)
{
	return 2 * total_rows * head_dim * kv_element(d);
}

int64_t kv_device_bytes_for(const struct device *d, int layers, int heads, int head_dim, int64_t tokens)
{
	int64_t layer = kv_bytes_for(d, head_dim, tokens * heads), all = layer * layers;
	if (!cache_on_host(d, round_up(all / 2, 64)))
		return all;
	int64_t lacks = layer * d->staged_layers - d->staged_bytes;
	return lacks > 0 ? lacks : 0;
}

struct kv *kv_new(struct device *d, int layers, int heads, int head_dim, const int64_t *cap)
{
	int n = layers * heads;
	struct kv *kv = mem_new(1, sizeof *kv);
	*kv = (struct kv){.d = d,
		.layers = layers,
		.heads = heads,
		.head_dim = head_dim,
		.serial = ++d->caches,
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
	kv->k = device_alloc_cache(d, kv->bytes);
	if (kv->k)
		kv->v = device_alloc_cache(d, kv->bytes);
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
	device_free_cache(kv->d, kv->k, kv->bytes);
	device_free_cache(kv->d, kv->v, kv->bytes);
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

/* ---- kept ---- */

struct kept *kept_new(struct device *d, int layers, int heads, const int32_t *len, const int32_t *const *index)
{
	int n = layers * heads;
	struct kept *k = mem_new(1, sizeof *k);
	*k = (struct kept){.d = d,
		.layers = layers,
		.heads = heads,
		.len = mem_new((size_t)n, 4),
		.last = mem_new((size_t)n, 4),
		.first = mem_new((size_t)n, 8)};
	int64_t total = 0;
	for (int i = 0; i < n; i++) {
		k->len[i] = len[i];
		k->last[i] = len[i] ? index[i][len[i] - 1] : -1;
		k->first[i] = total;
		total += len[i];
	}
	k->bytes = total * 4;
	int32_t *lists = mem_new((size_t)(total ? total : 1), 4);
	for (int i = 0; i < n; i++)
		if (len[i])
			memcpy(lists + k->first[i], index[i], (size_t)len[i] * 4);
	k->index = device_alloc(d, k->bytes);
	bool failed = !k->index || d->backend->upload(d, k->index, lists, k->bytes);
	free(lists);
	if (failed) {
		kept_free(k);
		return NULL;
	}
	return k;
}

void kept_free(struct kept *k)
{
	if (!k)
		return;
	device_free(k->d, k->index, k->bytes);
	free(k->len);
	free(k->last);
	free(k->first);
	free(k);
}

int32_t kept_len(const struct kept *k, int layer, int head)
{
	return k->len[layer * k->heads + head];
}
