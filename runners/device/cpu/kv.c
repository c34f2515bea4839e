/* kv.c: rows of keys and values in plain memory: in, out, appended, and the copy that makes a view a cache of its own. */
#include "runners/device/cpu/cpu.h"

static void rows_out(float *dst, const void *src, int64_t n, bool bf16)
{
	const uint16_t *from = src;
	int64_t i = 0;
	if (!bf16) {
		memcpy(dst, src, (size_t)n * 4);
		return;
	}
	for (; i + 8 <= n; i += 8) { /* bf16 is the upper half of an fp32 */
		typedef uint16_t halves __attribute__((vector_size(16)));
		const halves low = {0, 8, 1, 9, 2, 10, 3, 11}, high = {4, 12, 5, 13, 6, 14, 7, 15}, zero = {0};
		halves x, wide[2];
		memcpy(&x, from + i, sizeof x);
		wide[0] = __builtin_shuffle(zero, x, low);
		wide[1] = __builtin_shuffle(zero, x, high);
		memcpy(dst + i, wide, sizeof wide);
	}
	for (; i < n; i++)
		dst[i] = bf16_to(from[i]);
}
static void rows_in(void *dst, const float *src, int64_t n, bool bf16)
{
	if (!bf16)
		memcpy(dst, src, (size_t)n * 4);
	else
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)dst)[i] = bf16_from(src[i]);
}

int cpu_kv_read(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, float *k, float *v)
{
	(void)q;
	if (k)
		rows_out(k, kv_row(kv, kv->k, layer, head, first), n * kv->head_dim, kv->d->bf16);
	if (v)
		rows_out(v, kv_row(kv, kv->v, layer, head, first), n * kv->head_dim, kv->d->bf16);
	return 0;
}

int cpu_kv_write(struct queue *q, struct kv *kv, int layer, int head, int64_t n, const float *k, const float *v)
{
	int i = layer * kv->heads + head;
	(void)q;
	rows_in(kv_row(kv, kv->k, layer, head, kv->len[i]), k, n * kv->head_dim, kv->d->bf16);
	rows_in(kv_row(kv, kv->v, layer, head, kv->len[i]), v, n * kv->head_dim, kv->d->bf16);
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
}

int cpu_kv_append(
	struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol)
{
	int heads = seqs[0].tail->heads;
	struct append_job j = {seqs, x, kcol, vcol, layer, heads};
	int64_t rows = 0;
	for (int i = 0; i < n; i++)
		rows += seqs[i].rows;
	if (rows < 32) /* decoding: not worth waking a thread */
		for (int64_t i = 0; i < (int64_t)n * heads; i++)
			append_item(&j, i, 0);
	else
		pool_run(q->d->pool, (int64_t)n * heads, append_item, &j);
	return 0;
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
}

int cpu_kv_gather(struct queue *q, struct kv *dst, const struct kv *src, const struct kept *k, int layer)
{
	pool_run(q->d->pool, k->heads, gather_head, &(struct gather_job){dst, src, k, layer});
	return 0;
}
