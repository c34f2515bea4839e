/* weight.c: packing of W into panels, and the embedding, which reads rows of W back out of them. */
#include "runners/device/cpu/cpu.h"

#include <pthread.h>
#include <stdlib.h>

static int64_t element(const struct device *d)
{
	return d->bf16 ? 2 : 4;
}

int64_t weight_bytes(const struct device *d, int64_t n, int64_t k)
{
	return round_up(n, PANEL) * round_up(k, 2) * element(d);
}

struct pack_job {
	struct weight *w;
	weight_rows_fn rows;
	void *user;
	float *buf; /* [threads][PANEL][k] */
	pthread_mutex_t lock;
	bool failed; /* under lock, as err */
	char *err;
};

static void pack_panel(void *arg, int64_t panel, int thread)
{
	struct pack_job *j = arg;
	const struct weight *w = j->w;
	float *src = j->buf + (int64_t)thread * PANEL * w->k;
	int64_t n = w->n - panel * PANEL < PANEL ? w->n - panel * PANEL : PANEL;
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
	if (n < PANEL || w->k < w->k_pad)
		memset(dst, 0, (size_t)w->panel_bytes);
	if (w->d->bf16) {
		uint16_t *p = (uint16_t *)dst;
		for (int64_t k = 0; k < w->k; k++)
			for (int64_t c = 0; c < n; c++)
				p[(k / 2 * PANEL + c) * 2 + k % 2] = bf16_from(src[c * w->k + k]);
	} else {
		float *p = (float *)dst;
		for (int64_t k = 0; k < w->k; k++)
			for (int64_t c = 0; c < n; c++)
				p[k * PANEL + c] = src[c * w->k + k];
	}
}

struct weight *weight_new(struct device *d, int64_t n, int64_t k, weight_rows_fn rows, void *user, char err[ERR_LEN])
{
	struct weight *w = mem_new(1, sizeof *w);
	*w = (struct weight){.d = d, .n = n, .k = k, .k_pad = round_up(k, 2)};
	w->panel_bytes = PANEL * w->k_pad * element(d);
	w->w = device_alloc(d, weight_bytes(d, n, k));
	int64_t buf_bytes = (int64_t)pool_threads(d->pool) * PANEL * k * 4;
	struct pack_job j = {.w = w, .rows = rows, .user = user, .err = err};
	if (!w->w || !(j.buf = device_alloc(d, buf_bytes))) {
		err_set(err, "%s", d->error);
		weight_free(w);
		return NULL;
	}
	pthread_mutex_init(&j.lock, NULL);
	pool_run(d->pool, (n + PANEL - 1) / PANEL, pack_panel, &j);
	pthread_mutex_destroy(&j.lock);
	device_free(d, j.buf, buf_bytes);
	if (j.failed) {
		weight_free(w);
		return NULL;
	}
	return w;
}

void weight_free(struct weight *w)
{
	if (!w)
		return;
	device_free(w->d, w->w, weight_bytes(w->d, w->n, w->k));
	free(w);
}

struct embed_job {
	const struct weight *table;
	const int32_t *ids;
	struct tensor *out;
};

static void embed_row(void *arg, int64_t r, int thread)
{
	struct embed_job *j = arg;
	const struct weight *w = j->table;
	(void)thread;
	float *out = j->out->x + r * j->out->cols;
	const char *panel = (const char *)w->w + j->ids[r] / PANEL * w->panel_bytes;
	int c = j->ids[r] % PANEL;
	if (w->d->bf16)
		for (int64_t k = 0; k < w->k; k++)
			out[k] = bf16_to(((const uint16_t *)panel)[(k / 2 * PANEL + c) * 2 + k % 2]);
	else
		for (int64_t k = 0; k < w->k; k++)
			out[k] = ((const float *)panel)[k * PANEL + c];
}

int op_embed(struct queue *q, struct tensor *out, const struct weight *table, const int32_t *ids, int64_t rows)
{
	if (rows > out->rows || out->cols < table->k)
		return device_fail(q->d, "op_embed: %lld rows of %lld do not fit", (long long)rows, (long long)table->k);
	for (int64_t r = 0; r < rows; r++)
		if (ids[r] < 0 || ids[r] >= table->n)
			return device_fail(q->d, "op_embed: token %d of %lld", ids[r], (long long)table->n);
	int64_t begin = profile_begin(q->d);
	pool_run(q->d->pool, rows, embed_row, &(struct embed_job){table, ids, out});
	profile_end(q->d, PROFILE_EMBED, begin, 0, (double)(rows * table->k * (element(q->d) + 4)));
	return 0;
}
