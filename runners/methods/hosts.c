/* hosts.c: host loops of the scorers: over heads on the device's threads, with the rows of the cache as fp32; and the small
 * questions about a prompt's shape. Positions are sequence positions: sinks and windows that lie in the prefix or the question
 * cost nothing (spec/methods.md 12, decision 1). */
#include "runners/methods/parts.h"

#include <stdlib.h>

enum { BLOCK_BYTES = 256 << 20 }; /* rows of so many heads are held at once; one head always fits */

void each(const struct scoring *s, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
	if (s->forward && n > 1)
		device_parallel(forward_device(s->forward), n, fn, arg);
	else
		for (int64_t i = 0; i < n; i++)
			fn(arg, i);
}

float *scores_at(const struct scoring *s, int layer, int head)
{
	return s->scores + ((int64_t)layer * s->kv_heads + head) * s->shape.count;
}

/* Where the device's memory is not the host's and somebody will rank there. */
static bool ranks_there(const struct scoring *s)
{
	return s->rank_there && device_free_bytes(forward_device(s->forward)) >= 0;
}

static void resident_new(struct scoring *s)
{
	scores_drop(s);
	if (ranks_there(s))
		s->resident = tensor_new(forward_device(s->forward), (int64_t)s->layers * s->kv_heads, s->shape.count);
}

/* Kept on the device: 4 bytes an entry against the cache's 4 head_dim. Without room for them the host ranks. */
int scores_take(struct scoring *s, int layer, const struct tensor *t, char err[ERR_LEN])
{
	struct device *d = forward_device(s->forward);
	struct queue *q = forward_queue(s->forward);
	int64_t n = s->shape.count;
	if (layer == 0)
		resident_new(s);
	if ((s->resident && op_copy(q, s->resident, (int64_t)layer * s->kv_heads, 0, t, 0, 0, s->kv_heads, n)) ||
		tensor_read(q, t, 0, s->kv_heads, scores_at(s, layer, 0)))
		return err_set(err, "reading scores, layer %d: %s", layer, device_error(d));
	s->resident_layers += s->resident != NULL;
	return 0;
}

int scores_keep(struct scoring *s, struct tensor *t, char err[ERR_LEN])
{
	scores_drop(s);
	int rc = tensor_read(forward_queue(s->forward), t, 0, tensor_rows(t), s->scores);
	if (rc || !ranks_there(s)) {
		tensor_free(t);
		return rc ? err_set(err, "reading scores: %s", device_error(forward_device(s->forward))) : 0;
	}
	s->resident = t;
	s->resident_layers = s->layers;
	return 0;
}

int scores_place(struct scoring *s, char err[ERR_LEN])
{
	resident_new(s);
	if (!s->resident)
		return 0;
	if (tensor_write(forward_queue(s->forward), s->resident, 0, tensor_rows(s->resident), s->scores))
		return err_set(err, "writing scores: %s", device_error(forward_device(s->forward)));
	s->resident_layers = s->layers;
	return 0;
}

int scores_move(struct scoring *s, struct tensor *t, char err[ERR_LEN])
{
	struct queue *q = forward_queue(s->forward);
	resident_new(s);
	int rc = s->resident && (tensor_move(q, s->resident, t) || queue_sync(q)); /* t may go */
	tensor_free(t);
	s->resident_layers = s->resident && !rc ? s->layers : 0;
	return rc ? err_set(err, "moving scores: %s", device_error(queue_device(q))) : 0;
}

const struct tensor *scores_resident(const struct scoring *s)
{
	return s->resident && s->resident_layers == s->layers ? s->resident : NULL;
}

void scores_drop(struct scoring *s)
{
	tensor_free(s->resident);
	s->resident = NULL;
	s->resident_layers = 0;
}

int64_t rows_total(const struct scoring *s)
{
	return s->shape.prefix + s->shape.context + s->shape.after;
}

static int64_t clamp(int64_t x, int64_t high)
{
	return x < 0 ? 0 : x < high ? x : high;
}

int64_t sinks_left(const struct scoring *s, int64_t sinks)
{
	return clamp(sinks - s->shape.first, s->shape.count);
}

int64_t window_left(const struct scoring *s, int64_t window)
{
	return clamp(window - (rows_total(s) - s->shape.first - s->shape.count), s->shape.count);
}

char *scoring_file_for(const struct scoring *s, const struct params *params,
	void (*file)(const struct params *p, struct trained_request *q), char err[ERR_LEN])
{
	struct trained_request q = {.target_sha256 = s->model_sha256, .proxy_sha256 = s->proxy_sha256, .folder = s->calibration_folder};
	file(params, &q);
	return trained_store_find(s->weights, &q, NULL, err);
}

char *scoring_file(const struct scoring *s, void (*file)(const struct params *p, struct trained_request *q), char err[ERR_LEN])
{
	return scoring_file_for(s, s->params, file, err);
}

struct head_task {
	struct head_rows *heads;
	void (*fn)(const struct head_rows *h);
};

static void run_head(void *arg, int64_t i)
{
	struct head_task *t = arg;
	t->fn(&t->heads[i]);
}

int each_head(struct scoring *s, int64_t first, int64_t n, bool want_v, void (*fn)(const struct head_rows *h), void *user,
	char err[ERR_LEN])
{
	int d = forward_config(s->forward)->head_dim, all = s->layers * s->kv_heads, rc = -1;
	struct queue *q = forward_queue(s->forward);
	size_t each_bytes = (size_t)n * (size_t)d * sizeof(float);
	int64_t block = BLOCK_BYTES / (int64_t)(each_bytes * 2 + 1) + 1, threads = device_threads(forward_device(s->forward)) * 4;
	block = block > threads ? threads : block;
	block = block > all ? all : block;
	float *k = malloc(each_bytes * (size_t)block + 1), *v = want_v ? malloc(each_bytes * (size_t)block + 1) : NULL;
	struct head_rows *heads = mem_new((size_t)block, sizeof(*heads));
	struct head_task task = {heads, fn};
	if (!k || (want_v && !v)) {
		err_set(err, "out of memory: rows of the cache for scoring, %zu bytes", each_bytes * (size_t)block);
		goto cleanup;
	}
	for (int at = 0; at < all; at += (int)block) {
		int m = all - at < block ? all - at : (int)block;
		for (int i = 0; i < m; i++) {
			int layer = (at + i) / s->kv_heads, head = (at + i) % s->kv_heads;
			float *rows_k = k + (size_t)i * n * d, *rows_v = want_v ? v + (size_t)i * n * d : NULL;
			if (kv_read(q, s->kv, layer, head, first, n, rows_k, rows_v)) {
				err_set(err, "reading the cache, layer %d: %s", layer, device_error(forward_device(s->forward)));
				goto cleanup;
			}
			heads[i] =
				(struct head_rows){s, layer, head, d, first, n, rows_k, rows_v, scores_at(s, layer, head), user};
		}
		each(s, m, run_head, &task);
	}
	rc = 0;
cleanup:
	free(k);
	free(v);
	free(heads);
	return rc;
}
