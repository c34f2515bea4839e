/* memory.c: what passes between host and device: tensors, weights, rows of caches. */
#include "runners/device/cuda/cuda.h"

#include <pthread.h>
#include <stdlib.h>

static uint16_t bf16_from(float x) /* nearest even; NaN stays NaN */
{
	uint32_t u;
	memcpy(&u, &x, 4);
	if (x != x)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static float bf16_to(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float x;
	memcpy(&x, &u, 4);
	return x;
}
static void to_device_form(void *dst, const float *src, int64_t n, bool bf16)
{
	if (!bf16)
		memcpy(dst, src, (size_t)n * 4);
	else
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)dst)[i] = bf16_from(src[i]);
}

/* ---- tensors ---- */

int cuda_tensor_write(struct queue *q, struct tensor *t, int64_t row0, int64_t rows, const float *host)
{
	size_t bytes = (size_t)(rows * t->cols) * 4;
	if (cuda_use(q->d))
		return -1;
	if (cuda_check(q->d, cudaMemcpyAsync(t->x + row0 * t->cols, host, bytes, cudaMemcpyHostToDevice, cuda_queue(q)->stream), "tensor_write"))
		return -1;
	return cuda_queue_sync(q); /* the caller's memory is free again */
}

int cuda_tensor_read(struct queue *q, const struct tensor *t, int64_t row0, int64_t rows, float *host)
{
	size_t bytes = (size_t)(rows * t->cols) * 4;
	if (cuda_use(q->d))
		return -1;
	if (cuda_check(q->d, cudaMemcpyAsync(host, t->x + row0 * t->cols, bytes, cudaMemcpyDeviceToHost, cuda_queue(q)->stream), "tensor_read"))
		return -1;
	return cuda_queue_sync(q);
}

int cuda_tensor_fill(struct queue *q, struct tensor *t, float value)
{
	if (cuda_use(q->d))
		return -1;
	return cuda_check(q->d, kernel_fill(cuda_queue(q)->stream, t->x, t->rows * t->cols, value), "tensor_fill");
}

/* Peers or not, one device or two: the runtime takes the way there is. */
int cuda_tensor_move(struct queue *q, struct tensor *out, const struct tensor *x)
{
	if (cuda_use(q->d))
		return -1;
	return cuda_check(q->d,
		cudaMemcpyPeerAsync(out->x, cuda_device(out->d)->index, x->x, cuda_device(x->d)->index, (size_t)(x->rows * x->cols) * 4,
			cuda_queue(q)->stream),
		"tensor_move");
}

/* Operands: rows of bf16 (fp32 in that precision), padded to whole 16 bytes. */
int64_t cuda_operand_bytes(const struct device *d, int64_t rows, int64_t cols)
{
	return rows * padded_cols(cols) * kv_element(d);
}

int cuda_operand_clear(struct tensor *t)
{
	if (cuda_use(t->d))
		return -1;
	return cuda_check(t->d, cudaMemset(t->x, 0, (size_t)cuda_operand_bytes(t->d, t->rows, t->cols)), "operand_new") ||
			       cuda_check(t->d, cudaDeviceSynchronize(), "operand_new")
		       ? -1
		       : 0;
}

/* ---- weights ---- */

int64_t cuda_weight_bytes(const struct device *d, int64_t n, int64_t k)
{
	return n * padded_cols(k) * kv_element(d);
}

/* Some rows of W on their way into the pinned stage. */
struct stage_job {
	const struct cuda_weight *w;
	weight_rows_fn rows;
	void *user;
	int64_t row0, n; /* rows in the stage */
	char *stage;
	float *buf; /* [threads][WEIGHT_ROWS][k] */
	pthread_mutex_t lock;
	bool failed; /* under lock, as err */
	char *err;
};

static void stage_rows(void *arg, int64_t item, int thread)
{
	struct stage_job *j = arg;
	int64_t k = j->w->head.k, first = item * WEIGHT_ROWS, n = j->n - first < WEIGHT_ROWS ? j->n - first : WEIGHT_ROWS;
	bool bf16 = j->w->head.d->bf16;
	int64_t row_bytes = j->w->ld * kv_element(j->w->head.d);
	float *buf = j->buf + (int64_t)thread * WEIGHT_ROWS * k;
	char err[ERR_LEN] = "";
	if (j->rows(j->user, j->row0 + first, n, buf, err)) {
		pthread_mutex_lock(&j->lock);
		if (!j->failed)
			err_set(j->err, "%s", err);
		j->failed = true;
		pthread_mutex_unlock(&j->lock);
		return;
	}
	for (int64_t r = 0; r < n; r++) {
		char *to = j->stage + (first + r) * row_bytes;
		memset(to, 0, (size_t)row_bytes);
		to_device_form(to, buf + r * k, k, bf16);
	}
}

static int stage_open(struct cuda_device *d)
{
	if (d->stage)
		return 0;
	return cuda_check(&d->head, cudaHostAlloc(&d->stage, (size_t)STAGE_BYTES, cudaHostAllocDefault), "pinned memory for weights");
}

static int fill_weight(struct device *d, struct cuda_weight *w, weight_rows_fn rows, void *user, char err[ERR_LEN])
{
	int64_t row_bytes = w->ld * kv_element(d), most = STAGE_BYTES / row_bytes;
	struct stage_job j = {.w = w, .rows = rows, .user = user, .stage = cuda_device(d)->stage, .err = err};
	j.buf = malloc((size_t)(pool_threads(d->pool) * WEIGHT_ROWS * w->head.k) * 4);
	if (!j.buf || most < 1) {
		free(j.buf);
		return err_set(err, "no memory for %d rows of %lld weights on the host", WEIGHT_ROWS, (long long)w->head.k);
	}
	pthread_mutex_init(&j.lock, NULL);
	int rc = 0;
	for (; j.row0 < w->head.n && !rc; j.row0 += j.n) {
		j.n = w->head.n - j.row0 < most ? w->head.n - j.row0 : most;
		pool_run(d->pool, (j.n + WEIGHT_ROWS - 1) / WEIGHT_ROWS, stage_rows, &j);
		if (j.failed)
			rc = -1;
		else if (cuda_check(d,
				 cudaMemcpy((char *)w->w + j.row0 * row_bytes, j.stage, (size_t)(j.n * row_bytes), cudaMemcpyHostToDevice),
				 "uploading weights"))
			rc = err_set(err, "%s", d->error);
	}
	pthread_mutex_destroy(&j.lock);
	free(j.buf);
	return rc;
}

struct weight *cuda_weight_new(struct device *d, int64_t n, int64_t k, weight_rows_fn rows, void *user, char err[ERR_LEN])
{
	struct cuda_weight *w = mem_new(1, sizeof *w);
	*w = (struct cuda_weight){.head = {d, n, k}, .ld = padded_cols(k)};
	if (cuda_use(d) || stage_open(cuda_device(d)) || !(w->w = device_alloc(d, cuda_weight_bytes(d, n, k)))) {
		err_set(err, "%s", d->error);
		free(w);
		return NULL;
	}
	if (fill_weight(d, w, rows, user, err)) {
		cuda_weight_free(&w->head);
		return NULL;
	}
	return &w->head;
}

void cuda_weight_free(struct weight *w)
{
	device_free(w->d, cuda_weight(w)->w, cuda_weight_bytes(w->d, w->n, w->k));
	free(w);
}

/* ---- caches ---- */

/* n elements at `from` of the device to fp32. */
static int read_rows(struct queue *q, const void *from, int64_t n, float *out, void *buf)
{
	bool bf16 = q->d->bf16;
	size_t bytes = (size_t)(n * kv_element(q->d));
	if (cuda_check(q->d, cudaMemcpyAsync(bf16 ? buf : out, from, bytes, cudaMemcpyDefault, cuda_queue(q)->stream), "kv_read") ||
		cuda_queue_sync(q))
		return -1;
	for (int64_t i = 0; bf16 && i < n; i++)
		out[i] = bf16_to(((const uint16_t *)buf)[i]);
	return 0;
}

int cuda_kv_read(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, float *k, float *v)
{
	int64_t values = n * kv->head_dim;
	void *buf = malloc((size_t)values * 2);
	if (!buf)
		return device_fail(q->d, "kv_read: no memory on the host for %lld values", (long long)values);
	int rc = cuda_use(q->d) || (k && read_rows(q, kv_row(kv, kv->k, layer, head, first), values, k, buf)) ||
				 (v && read_rows(q, kv_row(kv, kv->v, layer, head, first), values, v, buf))
			 ? -1
			 : 0;
	free(buf);
	return rc;
}

int cuda_kv_write(struct queue *q, struct kv *kv, int layer, int head, int64_t n, const float *k, const float *v)
{
	int64_t values = n * kv->head_dim, at = kv->len[layer * kv->heads + head];
	size_t bytes = (size_t)(values * kv_element(q->d));
	char *buf = malloc(2 * bytes);
	cudaStream_t s = cuda_queue(q)->stream;
	if (!buf)
		return device_fail(q->d, "kv_write: no memory on the host for %lld values", (long long)values);
	to_device_form(buf, k, values, q->d->bf16);
	to_device_form(buf + bytes, v, values, q->d->bf16);
	int rc = cuda_use(q->d) || cuda_kv_write_begin(q, kv, layer, head, at) ||
				 cuda_check(q->d, cudaMemcpyAsync(kv_row(kv, kv->k, layer, head, at), buf, bytes, cudaMemcpyDefault, s), "kv_write") ||
				 cuda_check(q->d, cudaMemcpyAsync(kv_row(kv, kv->v, layer, head, at), buf + bytes, bytes, cudaMemcpyDefault, s),
					 "kv_write") ||
				 cuda_kv_write_end(q, kv) || cuda_queue_sync(q)
			 ? -1
			 : 0;
	free(buf);
	return rc;
}

static int append_items(struct queue *q, const struct append_item *items, int n, int64_t most, int64_t ld, int d)
{
	const struct append_item *list = cuda_upload_list(q, items, n * (int64_t)sizeof *items);
	return list ? cuda_check(q->d, kernel_append(cuda_queue(q)->stream, list, n, most, ld, d, q->d->bf16), "op_kv_append") : -1;
}

int cuda_kv_append(struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol)
{
	int heads = seqs[0].tail->heads;
	struct append_item *items = mem_new((size_t)(n < ITEMS / heads ? n * heads : ITEMS), sizeof *items);
	int used = 0, rc = cuda_use(q->d), d = seqs[0].tail->head_dim;
	int64_t most = 0;
	for (int i = 0; i < n && !rc; i++) {
		const struct attn_seq *s = &seqs[i];
		const struct kv *t = s->tail;
		for (int h = 0; h < heads && s->rows > 0 && !rc; h++) {
			rc = cuda_kv_write_begin(q, t, layer, h, s->tail_len);
			const float *row = x->x + s->row0 * x->cols + h * d;
			items[used++] = (struct append_item){row + kcol, row + vcol, kv_row(t, t->k, layer, h, s->tail_len),
				kv_row(t, t->v, layer, h, s->tail_len), s->rows};
			most = s->rows > most ? s->rows : most;
			if (used == ITEMS && !rc) {
				rc = append_items(q, items, used, most, x->cols, d);
				used = 0;
				most = 0;
			}
		}
	}
	if (used && !rc)
		rc = append_items(q, items, used, most, x->cols, d);
	for (int i = 0; i < n && !rc; i++)
		rc = cuda_kv_write_end(q, seqs[i].tail);
	free(items);
	return rc;
}

int cuda_kv_gather(struct queue *q, struct kv *dst, const struct kv *src, const struct kept *k, int layer)
{
	struct kv_view from;
	if (cuda_use(q->d) || cuda_kv_view(q, src, layer, &from))
		return -1;
	struct gather_item *items = mem_new((size_t)k->heads, sizeof *items);
	int64_t most = 0;
	int rc = 0;
	for (int h = 0; h < k->heads; h++) {
		int i = layer * k->heads + h;
		rc = rc || cuda_kv_write_begin(q, dst, layer, h, 0) ? -1 : 0;
		items[h] = (struct gather_item){k->index + k->first[i], k->len[i], view_row(&from, from.k, src, layer, h, 0),
			view_row(&from, from.v, src, layer, h, 0), kv_row(dst, dst->k, layer, h, 0), kv_row(dst, dst->v, layer, h, 0)};
		most = k->len[i] > most ? k->len[i] : most;
	}
	const struct gather_item *list = most && !rc ? cuda_upload_list(q, items, k->heads * (int64_t)sizeof *items) : NULL;
	free(items);
	if (!list)
		return most ? -1 : rc;
	return cuda_check(q->d, kernel_gather(cuda_queue(q)->stream, list, k->heads, most, dst->head_dim * kv_element(q->d)), "kv_gather") ||
			       cuda_kv_write_end(q, dst) || cuda_kv_ahead(q, src, layer)
		       ? -1
		       : 0;
}
