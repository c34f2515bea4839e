/* calibrate_iam.c: the head map of kvzip+iam (spec/methods.md 7.1, a reconstruction): for each (layer, KV head) of the target the
 * (layer, KV head) of the proxy whose attention is most alike: cosine similarity of the probabilities of a context's last WINDOW
 * rows, averaged over a KV head's group, flattened over the causal part, all contexts as one long vector. */
#include "runners/runner_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 32 };

/* One model's window rows over one context. */
struct window {
	struct forward *forward;
	int layers, kv_heads;
	int64_t first, count; /* of the context in the prompt */
	struct tensor *row;   /* [kv_heads, count] */
	float *p;             /* [layers*kv_heads][WINDOW][count], zero where a row does not see */
};

static int window_layer(void *user, const struct layer_rows *r, char err[ERR_LEN])
{
	struct window *w = user;
	struct queue *q = forward_queue(w->forward);
	int64_t rows = w->count < WINDOW ? w->count : WINDOW, head = WINDOW * w->count;
	for (int64_t k = 0; k < rows; k++) {
		int64_t pos = w->first + w->count - rows + k, at = pos - r->pos0;
		if (at < 0 || at >= r->rows)
			continue;
		struct key_set keys = {.range = {{r->kv, 0, pos + 1}}, .n = 1, .causal = true};
		if (tensor_fill(q, w->row, 0) ||
			op_attn_reduce(q, r->layer, &keys, 0, w->first, pos + 1 - w->first, r->qkv, at, 1, 0,
				forward_config(w->forward)->heads, r->lse, at, REDUCE_SUM, GROUP_MEAN, w->row, 0))
			return err_set(err, "attention rows, layer %d: %s", r->layer, device_error(forward_device(w->forward)));
		float *block = mem_new((size_t)(w->kv_heads * w->count), sizeof *block);
		int rc = tensor_read(q, w->row, 0, w->kv_heads, block);
		for (int h = 0; h < w->kv_heads && !rc; h++)
			memcpy(w->p + (r->layer * w->kv_heads + h) * head + k * w->count, block + h * w->count,
				(size_t)w->count * sizeof *block);
		free(block);
		if (rc)
			return err_set(err, "reading attention rows, layer %d", r->layer);
	}
	return 0;
}

static int window_read(struct window *w, const struct prompt *prompt, char err[ERR_LEN])
{
	const struct model_config *c = forward_config(w->forward);
	struct device *d = forward_device(w->forward);
	*w = (struct window){.forward = w->forward,
		.layers = c->layers,
		.kv_heads = c->kv_heads,
		.first = prompt->prefix,
		.count = prompt->context};
	struct kv *kv = cache_uniform(d, c->layers, c->kv_heads, c->head_dim, (int64_t)prompt->ids.n);
	w->row = tensor_new(d, c->kv_heads, w->count);
	w->p = calloc((size_t)(c->layers * c->kv_heads) * WINDOW * (size_t)w->count + 1, sizeof *w->p);
	int64_t from = w->first + (w->count > WINDOW ? w->count - WINDOW : 0);
	struct observer obs = {OBSERVE_Q | OBSERVE_LSE, from, window_layer, w, 0};
	int rc = kv && w->row && w->p ? 0 : err_set(err, "attention of %zu tokens: out of memory", prompt->ids.n);
	rc = rc ? rc
		: forward_prefill(w->forward, prompt->ids.v, (int64_t)prompt->ids.n, kv, &obs, 1, NULL, NULL, NULL, NULL, err);
	kv_free(kv);
	tensor_free(w->row);
	return rc;
}

static double dot(const float *a, const float *b, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)a[i] * b[i];
	return sum;
}

/* Sums over the contexts so far. */
struct alike {
	int n_target, n_proxy;
	double *both, *target, *proxy; /* a.b [n_target][n_proxy]; a.a; b.b */
};

struct alike_task {
	struct alike *sums;
	const struct window *target, *proxy;
	int64_t n;
};

static void alike_row(void *arg, int64_t i)
{
	struct alike_task *t = arg;
	const float *a = t->target->p + i * t->n;
	t->sums->target[i] += dot(a, a, t->n);
	for (int k = 0; k < t->sums->n_proxy; k++)
		t->sums->both[i * t->sums->n_proxy + k] += dot(a, t->proxy->p + k * t->n, t->n);
}

static int add_context(struct runner *r, const char *context, struct alike *sums, char err[ERR_LEN])
{
	struct runner_question none = {.text = "", .max_new_tokens = 1};
	struct runner_job job = {.context = context, .chat = true, .questions = &none, .n_questions = 1};
	struct prompt prompt = {0};
	struct prompt_question pq = {0};
	struct window target = {.forward = r->forward}, proxy = {.forward = r->proxy->forward};
	int rc = prompt_make(r, &job, 0, &prompt, &pq, err) || window_read(&target, &prompt, err) ||
				 window_read(&proxy, &prompt, err)
			 ? -1
			 : 0;
	if (!rc) {
		struct alike_task t = {sums, &target, &proxy, WINDOW * target.count};
		device_parallel(r->device, sums->n_target, alike_row, &t);
		for (int k = 0; k < sums->n_proxy; k++)
			sums->proxy[k] += dot(proxy.p + k * t.n, proxy.p + k * t.n, t.n);
	}
	free(target.p);
	free(proxy.p);
	prompt_free(&prompt);
	prompt_question_free(&pq);
	return rc;
}

static int map_write(struct runner *r, const struct alike *sums, const char *folder, int contexts, char **path, char err[ERR_LEN])
{
	const struct runner_info *info = &r->info;
	int32_t *map = mem_new((size_t)sums->n_target, sizeof *map);
	float *similarity = mem_new((size_t)sums->n_target, sizeof *similarity);
	for (int i = 0; i < sums->n_target; i++) {
		double best = -1;
		for (int k = 0; k < sums->n_proxy; k++) {
			double norm = sqrt(sums->target[i] * sums->proxy[k]),
			       cosine = norm > 0 ? sums->both[i * sums->n_proxy + k] / norm : 0;
			if (cosine > best) {
				best = cosine;
				map[i] = k;
			}
		}
		similarity[i] = (float)best;
	}
	char *number = text_format("%d", contexts);
	const struct st_tensor t[] = {
		{.name = "map", .type = ST_I32, .n_dims = 2, .dims = {info->layers, info->kv_heads}, .data = map},
		{.name = "similarity", .type = ST_F32, .n_dims = 2, .dims = {info->layers, info->kv_heads}, .data = similarity}};
	const struct st_meta meta[] = {{"kind", "iam"}, {"target_sha256", info->model_sha256},
		{"proxy_sha256", info->proxy_sha256}, {"trained_on", ""}, {"contexts", number},
		{"made_by", "kvbench calibrate iam"}};
	*path = trained_target(folder, "iam", info->model_sha256, info->proxy_sha256, err);
	int rc = *path ? st_write(*path, t, 2, meta, 6, err) : -1;
	if (rc) {
		free(*path);
		*path = NULL;
	}
	free(number);
	free(map);
	free(similarity);
	return rc;
}

int runner_calibrate_iam(struct runner *r, const char *const *contexts, int n, const char *folder, char **path, char err[ERR_LEN])
{
	*path = NULL;
	if (!r->proxy)
		return err_set(err, "calibrate iam needs a pair: --target MODEL --proxy MODEL");
	struct alike sums = {
		.n_target = r->info.layers * r->info.kv_heads, .n_proxy = r->info.proxy_layers * r->info.proxy_kv_heads};
	sums.both = mem_new((size_t)sums.n_target * (size_t)sums.n_proxy, sizeof(double));
	sums.target = mem_new((size_t)sums.n_target, sizeof(double));
	sums.proxy = mem_new((size_t)sums.n_proxy, sizeof(double));
	int rc = 0;
	for (int i = 0; i < n && !rc; i++)
		rc = add_context(r, contexts[i], &sums, err);
	rc = rc ? rc : map_write(r, &sums, folder ? folder : r->calibration_folder, n, path, err);
	free(sums.both);
	free(sums.target);
	free(sums.proxy);
	return rc;
}
