/* weight.c: packing of W into panels, and the embedding, which reads rows of W back out of them. */
#include "runners/device/cpu/cpu.h"

#include <pthread.h>
#include <stdlib.h>

static int64_t k_padded(const struct device *d, int64_t k)
{
	return round_up(k, cpu_has_blocks(d) ? OPERAND_BLOCK : 2);
}

int64_t cpu_weight_bytes(const struct device *d, int64_t n, int64_t k)
{
	return round_up(n, PANEL) * k_padded(d, k) * kv_element(d);
}

struct pack_job {
	struct cpu_weight *w;
	weight_rows_fn rows;
	void *user;
	float *buf; /* [threads][PANEL][k] */
	pthread_mutex_t lock;
	bool failed; /* under lock, as err */
	char *err;
};

static void panel_write(const struct cpu_weight *w, char *dst, const float *src, int64_t n)
{
	int64_t cols = w->head.k;
	if (n < PANEL || cols < w->k_pad)
		memset(dst, 0, (size_t)w->panel_bytes);
	if (w->head.d->bf16) {
		uint16_t *p = (uint16_t *)dst;
		for (int64_t k0 = 0; k0 < cols; k0 += 16) /* a line of each row at a time */
			for (int64_t c = 0; c < n; c++)
				for (int64_t k = k0; k < k0 + 16 && k < cols; k++)
					p[(k / 2 * PANEL + c) * 2 + k % 2] = bf16_from(src[c * cols + k]);
	} else {
		float *p = (float *)dst;
		for (int64_t k = 0; k < cols; k++)
			for (int64_t c = 0; c < n; c++)
				p[k * PANEL + c] = src[c * cols + k];
	}
}

static void pack_panel(void *arg, int64_t panel, int thread)
{
	struct pack_job *j = arg;
	const struct cpu_weight *w = j->w;
	int64_t cols = w->head.k, left = w->head.n - panel * PANEL, n = left < PANEL ? left : PANEL;
	float *src = j->buf + (int64_t)thread * PANEL * cols;
	char err[ERR_LEN] = "";
	pthread_mutex_lock(&j->lock);
	bool failed = j->failed;
	pthread_mutex_unlock(&j->lock);
	if (failed)
		return;
	if (j->rows(j->user, panel * PANEL, n, src, err)) {
		pthread_mutex_lock(&j->lock);
		if (!j->failed)
			err_set(j->err, "%s", err);
		j->failed = true;
		pthread_mutex_unlock(&j->lock);
		return;
	}
	char *dst = (char *)w->w + panel * w->panel_bytes;
	void (*pack)(void *, const float *, int64_t, int64_t) = cpu_device(w->head.d)->kernels->pack_panel;
	if (pack)
		pack(dst, src, n, cols);
	else
		panel_write(w, dst, src, n);
}

struct weight *cpu_weight_new(struct device *d, int64_t n, int64_t k, weight_rows_fn rows, void *user, char err[ERR_LEN])
{
	struct cpu_weight *w = mem_new(1, sizeof *w);
	*w = (struct cpu_weight){.head = {d, n, k}, .k_pad = k_padded(d, k)};
	w->panel_bytes = PANEL * w->k_pad * kv_element(d);
	w->w = device_alloc(d, cpu_weight_bytes(d, n, k));
	int64_t buf_bytes = (int64_t)pool_threads(d->pool) * PANEL * k * 4;
	struct pack_job j = {.w = w, .rows = rows, .user = user, .err = err};
	if (!w->w || !(j.buf = device_alloc(d, buf_bytes))) {
		err_set(err, "%s", d->error);
		cpu_weight_free(&w->head);
		return NULL;
	}
	pthread_mutex_init(&j.lock, NULL);
	pool_run(d->pool, (n + PANEL - 1) / PANEL, pack_panel, &j);
	pthread_mutex_destroy(&j.lock);
	device_free(d, j.buf, buf_bytes);
	if (j.failed) {
		cpu_weight_free(&w->head);
		return NULL;
	}
	return &w->head;
}

void cpu_weight_free(struct weight *w)
{
	device_free(w->d, cpu_weight(w)->w, cpu_weight_bytes(w->d, w->n, w->k));
	free(w);
}

struct embed_job {
	const struct cpu_weight *table;
	const int32_t *ids;
	struct tensor *out;
};

static void embed_row(void *arg, int64_t r, int thread)
{
	struct embed_job *j = arg;
	const struct cpu_weight *w = j->table;
	(void)thread;
	float *out = j->out->x + r * j->out->cols;
	const char *panel = (const char *)w->w + j->ids[r] / PANEL * w->panel_bytes;
	int c = j->ids[r] % PANEL;
	void (*column)(float *, const void *, int64_t, int64_t) = cpu_device(w->head.d)->kernels->panel_column;
	if (column)
		column(out, panel, c, w->head.k);
	else if (w->head.d->bf16)
		for (int64_t k = 0; k < w->head.k; k++)
			out[k] = bf16_to(((const uint16_t *)panel)[(k / 2 * PANEL + c) * 2 + k % 2]);
	else
		for (int64_t k = 0; k < w->head.k; k++)
			out[k] = ((const float *)panel)[k * PANEL + c];
}

int cpu_embed(struct queue *q, struct tensor *out, const struct weight *table, const int32_t *ids, int64_t rows)
{
	pool_run_near(q->d->pool, rows, embed_row, &(struct embed_job){cpu_weight(table), ids, out});
	return 0;
}
