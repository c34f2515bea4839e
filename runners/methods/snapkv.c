/* snapkv.c: SnapKV (arXiv 2404.14469): attention of the last `window` tokens on everything before them, pooled along the keys.
 * spec/methods.md 2.1. The scorer of SnapKV, PyramidKV and Ada-SnapKV.
 *
 * window 32, pool max of 7: the authors' LongBench runs and AdaKV's SnapKV (their class defaults, and kvpress: 64, avg of 5;
 * KVCache-Factory: 8, max of 7). gqa mean, then pool: AdaKV; kvpress pools each query head first.
 * The window is causal inside itself and the softmax runs over prefix and window columns; then only the columns before it are
 * scored. Its own entries are kept always. It is the end of the whole sequence: with the question in the cache it holds the
 * question, and only its part in the context costs budget. Differences: the authors select for each query head (a cache g times
 * larger); ours for each KV head. Pooling runs over evictable columns only: neither the template head nor a question lends its
 * mass. A budget below the window keeps its last entries. */
#include "runners/methods/parts.h"

#include <stdlib.h>
#include <string.h>

struct state {
	struct columns *columns;
	struct pool_rule rule;
	bool grouped; /* the device can take the group mean at once */
};

static int64_t window(const struct scoring *s)
{
	int64_t w = param_int(s->params, "window"), n = rows_total(s);
	return w < n ? w : n;
}

static int64_t first_pos(const struct scoring *s)
{
	return rows_total(s) - window(s);
}

static struct protection protect(const struct scoring *s, int64_t n_keep)
{
	(void)n_keep;
	return (struct protection){0, window_left(s, param_int(s->params, "window"))};
}

static int begin(struct scoring *s, char err[ERR_LEN])
{
	struct state *t = s->state = mem_new(1, sizeof(*t));
	t->rule = (struct pool_rule){.kind = param_text(s->params, "pool")[0],
		.size = (int)param_int(s->params, "pool_size"),
		.group_max = strcmp(param_text(s->params, "gqa"), "max") == 0,
		.pool_first = strcmp(param_text(s->params, "order"), "pool_then_gqa") == 0,
		.divisor = (float)window(s)};
	t->grouped = !t->rule.group_max && !(t->rule.pool_first && t->rule.kind == 'm'); /* a mean commutes with a mean */
	t->columns = columns_new(s, t->grouped ? s->kv_heads : forward_config(s->forward)->heads, err);
	return t->columns ? 0 : -1;
}

static int observe(struct scoring *s, const struct layer_rows *r, char err[ERR_LEN])
{
	struct state *t = s->state;
	return columns_add(t->columns, s, r, first_pos(s), t->grouped ? GROUP_MEAN : GROUP_NONE, err);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	struct state *t = s->state;
	struct device *d = forward_device(s->forward);
	struct queue *q = forward_queue(s->forward);
	int g = t->grouped ? 1 : forward_config(s->forward)->heads / s->kv_heads, rc = 0;
	int64_t n = s->shape.count, scored = n - protect(s, 0).last;
	struct tensor *out = tensor_new(d, s->kv_heads, n);
	if (!out || tensor_fill(q, out, 0)) /* what is protected scores 0 */
		rc = err_set(err, "scores of one layer: %s", device_error(d));
	for (int l = 0; l < s->layers && rc == 0; l++) {
		rc = op_pool(q, out, columns_tensor(t->columns, l), g, scored, &t->rule)
			     ? err_set(err, "pooling, layer %d: %s", l, device_error(d))
			     : scores_take(s, l, out, err);
		columns_drop(t->columns, l);
	}
	tensor_free(out);
	return rc;
}

static void end(struct scoring *s)
{
	struct state *t = s->state;
	if (t)
		columns_free(t->columns);
	free(t);
	s->state = NULL;
}

static bool is(const struct plan_method *m, const char *option, const char *value)
{
	return strcmp(param_text(m->params, option), value) == 0;
}

static const char *unfit_size(const struct plan_method *m)
{
	return is(m, "pool", "none") ? "changes nothing with pool=none" : NULL;
}

/* Means commute, and so do maxima. */
static const char *unfit_order(const struct plan_method *m)
{
	if (is(m, "pool", "none") || param_int(m->params, "pool_size") == 1)
		return "changes nothing where nothing is pooled";
	bool means = is(m, "pool", "avg") && is(m, "gqa", "mean"), maxima = is(m, "pool", "max") && is(m, "gqa", "max");
	return means ? "changes nothing with pool=avg and gqa=mean" : maxima ? "changes nothing with pool=max and gqa=max" : NULL;
}

static const struct param_def defs[] = {
	{.name = "window", .kind = PARAM_INT, .number = 32, .min = 1, .max = 1e6, .origin = "SnapKV's LongBench runs, AdaKV"},
	{.name = "pool",
		.kind = PARAM_TEXT,
		.text = "max",
		.choices = "avg|max|none",
		.origin = "SnapKV's LongBench runs, AdaKV"},
	{.name = "pool_size",
		.kind = PARAM_INT,
		.number = 7,
		.min = 1,
		.max = 1023,
		.odd = true,
		.unfit = unfit_size,
		.origin = "SnapKV's LongBench runs, AdaKV"},
	{.name = "gqa", .kind = PARAM_TEXT, .text = "mean", .choices = "mean|max", .origin = "AdaKV, kvpress"},
	{.name = "order",
		.kind = PARAM_TEXT,
		.text = "gqa_then_pool",
		.choices = "gqa_then_pool|pool_then_gqa",
		.unfit = unfit_order,
		.origin = "AdaKV"},
	{NULL}};
static const struct compat_mode modes[] = {
	{"kvpress", "{\"window\":64,\"pool\":\"avg\",\"pool_size\":5,\"order\":\"pool_then_gqa\"}"},
	{"factory", "{\"window\":8,\"pool\":\"max\",\"pool_size\":7}"}, {NULL, NULL}};

const struct scorer scorer_snapkv = {.name = "snapkv",
	.title = "attention of the last tokens, pooled",
	.origin = "SnapKV, arXiv 2404.14469",
	.params = defs,
	.compat = modes,
	.observes = OBSERVE_Q | OBSERVE_LSE,
	.first_pos = first_pos,
	.begin = begin,
	.observe = observe,
	.finish = finish,
	.end = end,
	.protect = protect};
