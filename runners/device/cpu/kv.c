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
static void rows_in(struct device *d, void *dst, const float *src, int64_t n)
{
	if (d->bf16)
		cpu_device(d)->kernels->round_row(dst, src, n);
	else
		memcpy(dst, src, (size_t)n * 4);
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
	rows_in(kv->d, kv_row(kv, kv->k, layer, head, kv->len[i]), k, n * kv->head_dim);
	rows_in(kv->d, kv_row(kv, kv->v, layer, head, kv->len[i]), v, n * kv->head_dim);
	return 0;
}

enum { APPEND_ROWS = 16 }; /* of an item: less is not worth waking a thread */

struct append_job {
	const struct attn_seq *seq;
	const struct tensor *x;
	int64_t kcol, vcol;
	int layer, heads;
};

/* Rows [row, row + n) of a sequence, all its heads. */
static void append_rows(const struct append_job *j, const struct attn_seq *s, int64_t row, int64_t n)
{
	int d = s->tail->head_dim;
	for (int64_t r = row; r < row + n; r++)
		for (int h = 0; h < j->heads; h++) {
			const float *x = j->x->x + (s->row0 + r) * j->x->cols + h * d;
			rows_in(s->tail->d, kv_row(s->tail, s->tail->k, j->layer, h, s->tail_len + r), x + j->kcol, d);
			rows_in(s->tail->d, kv_row(s->tail, s->tail->v, j->layer, h, s->tail_len + r), x + j->vcol, d);
		}
}

static void append_item(void *arg, int64_t item, int thread)
{
	const struct append_job *j = arg;
	int64_t row = item * APPEND_ROWS, left = j->seq->rows - row;
	(void)thread;
	append_rows(j, j->seq, row, left < APPEND_ROWS ? left : APPEND_ROWS);
}

int cpu_kv_append(
	struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol)
{
	struct append_job j = {.x = x, .kcol = kcol, .vcol = vcol, .layer = layer, .heads = seqs[0].tail->heads};
	for (int i = 0; i < n; i++) {
		j.seq = &seqs[i];
		if (seqs[i].rows <= APPEND_ROWS)
			append_rows(&j, j.seq, 0, seqs[i].rows);
		else
			pool_run_near(q->d->pool, (seqs[i].rows + APPEND_ROWS - 1) / APPEND_ROWS, append_item, &j);
	}
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
