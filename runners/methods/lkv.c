/* lkv.c: LKV at run time (arXiv 2605.06676): utilities of entries from their keys and values alone, static budgets of heads.
 * spec/proxykv-lkv.md 2.1, 2.3.
 *
 * Scorers: one network, trained in three ways: lkv-t (the paper's, under LKV-H's budgets), lkv-global (ours, under one threshold
 * over the whole model), kvmlp (distilled from KVzip's scores: the cheap rival). Each reads the target's file of its kind, and
 * refuses a context that it was trained on. Allocator: lkv-h, budget = floor(ratio n), for every R by solving for lambda again;
 * no minimum, no recent window. The paper's form looks at no other layer, so it can evict layer by layer during prefill
 * (evict.c). window: entries at the end that always stay; 0 = the paper. */
#include "runners/lkv/entries.h"
#include "runners/lkv/file.h"
#include "runners/methods/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weights { /* a file, opened once (runners/trained.h) */
	struct lkv_net *net;
	struct lkv_ready *ready;
	char *trained_on;
};

static void close_weights(void *p)
{
	struct weights *w = p;
	if (!w)
		return;
	lkv_net_free(w->net);
	lkv_ready_free(w->ready);
	free(w->trained_on);
	free(w);
}

/* What read_weights needs beside the path: whom the file must be for. */
struct wanted {
	const struct scoring *s;
	struct trained_request *q;
};

static int read_weights(void **out, const char *path, void *user, char err[ERR_LEN])
{
	const struct wanted *want = user;
	const struct scoring *s = want->s;
	struct trained_request q = *want->q;
	struct weights *w = mem_new(1, sizeof *w);
	struct st_file *f = NULL;
	q.weights = path;
	q.target_sha256 = s->model_sha256;
	int rc = trained_open(&f, &q, err) ||
		 lkv_file_read(&w->net, f, path, s->layers, s->kv_heads, forward_config(s->forward)->head_dim, err);
	if (!rc && !(w->ready = lkv_ready_new(w->net)))
		rc = err_set(err, "%s: out of memory", path);
	if (!rc)
		w->trained_on = text_copy(st_metadata(f, "trained_on"));
	st_close(f);
	if (rc)
		close_weights(w);
	else
		*out = w;
	return rc ? -1 : 0;
}

/* The file that `file` names for this scoring, unless it was trained on the scoring's context. */
static const struct weights *weights_for(
	const struct scoring *s, void (*file)(const struct params *p, struct trained_request *q), char err[ERR_LEN])
{
	struct trained_request q = {0};
	char *path = scoring_file(s, file, err);
	struct wanted want = {s, &q};
	file(s->params, &q);
	const struct weights *w = path ? trained_store_get(s->weights, path, read_weights, &want, close_weights, err) : NULL;
	if (w && strcmp(lkv_kind_name(w->net->shape.kind), q.kind)) { /* opened before, for another method */
		err_set(err, "%s: is of the kind %s, not %s", path, lkv_kind_name(w->net->shape.kind), q.kind);
		w = NULL;
	}
	if (w && trained_on_refuses(w->trained_on, q.kind, s->context_sha256, err))
		w = NULL;
	free(path);
	return w;
}

/* ---- files ---- */

static void ask(struct trained_request *q, enum lkv_kind kind, const struct params *p, const char *option)
{
	static const char *const make[LKV_KINDS] = {
		"kvbench train lkv PLAN", "kvbench train lkv-global PLAN", "kvbench train kv-mlp PLAN"};
	snprintf(q->kind, sizeof q->kind, "%s", lkv_kind_name(kind));
	q->weights = param_text(p, option);
	q->option = option;
	q->proxy_sha256 = NULL;
	q->make = make[kind];
}

static void file_head(const struct params *p, struct trained_request *q)
{
	ask(q, LKV_HEAD, p, "weights");
}

static void file_global(const struct params *p, struct trained_request *q)
{
	ask(q, LKV_GLOBAL, p, "weights");
}

static void file_distilled(const struct params *p, struct trained_request *q)
{
	ask(q, LKV_DISTILLED, p, "weights");
}

static void file_ratios(const struct params *p, struct trained_request *q)
{
	ask(q, LKV_HEAD, p, "ratios");
}

/* ---- scorers ---- */

/* Between the layers of one context: the file, and the rotations of its positions. */
struct state {
	const struct weights *w;
	struct lkv_positions at;
};

static void end(struct scoring *s)
{
	struct state *t = s->state;
	if (t)
		lkv_positions_free(&t->at);
	free(t);
	s->state = NULL;
}

static int state_make(struct scoring *s, void (*file)(const struct params *p, struct trained_request *q), char err[ERR_LEN])
{
	if (s->state)
		return 0;
	struct state *t = s->state = mem_new(1, sizeof *t);
	double mscale;
	const double *inv_freq = forward_inv_freq(s->forward, &mscale);
	if (!(t->w = weights_for(s, file, err)))
		return -1;
	if (lkv_positions_make(&t->at, forward_queue(s->forward), inv_freq, mscale, forward_config(s->forward)->head_dim,
		    s->shape.first, s->shape.count))
		return err_set(err, "out of memory: rotations of %lld positions", (long long)s->shape.count);
	return 0;
}

static int score_layer(struct scoring *s, int layer, const struct kv *kv, float *scores,
	void (*file)(const struct params *p, struct trained_request *q), char err[ERR_LEN])
{
	if (state_make(s, file, err))
		return -1;
	const struct state *t = s->state;
	if (lkv_utilities(
		    t->w->ready, forward_queue(s->forward), kv, layer, layer, s->shape.first, s->shape.count, &t->at, scores))
		return err_set(err, "utilities of layer %d: %s", layer, device_error(forward_device(s->forward)));
	return 0;
}

static int finish(struct scoring *s, void (*file)(const struct params *p, struct trained_request *q), char err[ERR_LEN])
{
	int rc = 0;
	for (int l = 0; l < s->layers && !rc; l++)
		rc = score_layer(s, l, s->kv, scores_at(s, l, 0), file, err);
	return rc;
}

#define FORM(form)                                                                                                               \
	static int finish_##form(struct scoring *s, char err[ERR_LEN])                                                           \
	{                                                                                                                        \
		return finish(s, file_##form, err);                                                                              \
	}                                                                                                                        \
	static int layer_##form(struct scoring *s, int layer, const struct kv *kv, float *scores, char err[ERR_LEN])             \
	{                                                                                                                        \
		return score_layer(s, layer, kv, scores, file_##form, err);                                                      \
	}
FORM(head)
FORM(global)
FORM(distilled)
#undef FORM

static struct protection protect(const struct scoring *s, int64_t n_keep)
{
	(void)n_keep;
	return (struct protection){0, window_left(s, param_int(s->params, "window"))};
}

/* ---- allocator ---- */

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	struct scoring own = *a->scoring; /* variants that share a scorer pass have parameters of their own */
	own.params = a->params;
	const struct weights *w = weights_for(&own, file_ratios, err);
	int64_t held = a->protect.first + a->protect.last, n = a->n - held;
	if (!w)
		return -1;
	lkv_h_budgets(w->net, held ? (double)(a->keep - held) / (double)n : a->retained, n, a->budget);
	for (int i = 0; i < a->layers * a->kv_heads; i++)
		a->budget[i] += held;
	return 0;
}

static const struct param_def defs[] = {{.name = "weights", .kind = PARAM_TEXT, .text = "", .origin = "\"\" = the target's file"},
	{.name = "window", .kind = PARAM_INT, .number = 0, .max = 1e6, .origin = "0 = the paper: no recent window"}, {NULL}};
static const struct param_def ratio_defs[] = {
	{.name = "ratios", .kind = PARAM_TEXT, .text = "", .origin = "\"\" = the target's lkv file"}, {NULL}};

const struct scorer scorer_lkv_t = {.name = "lkv-t",
	.title = "utility of an entry from its key and value (trained end to end with lkv-h)",
	.origin = "LKV, arXiv 2605.06676",
	.params = defs,
	.file = file_head,
	.trained = true,
	.mass = MASS_NONE,
	.finish = finish_head,
	.by_layer = layer_head,
	.end = end,
	.protect = protect};
const struct scorer scorer_lkv_global = {.name = "lkv-global",
	.title = "the same, trained under one threshold for the whole model",
	.origin = "ours",
	.params = defs,
	.file = file_global,
	.trained = true,
	.mass = MASS_NONE,
	.finish = finish_global,
	.by_layer = layer_global,
	.end = end,
	.protect = protect};
const struct scorer scorer_kvmlp = {.name = "kvmlp",
	.title = "the same network, distilled from KVzip's scores",
	.origin = "ours",
	.params = defs,
	.file = file_distilled,
	.trained = true,
	.mass = MASS_NONE,
	.finish = finish_distilled,
	.by_layer = layer_distilled,
	.end = end,
	.protect = protect};
const struct allocator allocator_lkv_h = {.name = "lkv-h",
	.title = "learned ratio of each head, static (trained end to end with lkv-t)",
	.origin = "LKV, arXiv 2605.06676",
	.params = ratio_defs,
	.file = file_ratios,
	.trained = true,
	.allocate = allocate,
	.fixed = true,
	.exact = false};
