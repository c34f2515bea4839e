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

void snapkv_scores(
	const float *sums, int g, int64_t stride, int64_t n, int64_t window, const struct snapkv_rule *rule, float *out)
{
	float *row = mem_new((size_t)n + 1, sizeof(*row)), *pooled = mem_new((size_t)n + 1, sizeof(*pooled)),
	      *joined = mem_new((size_t)n + 1, sizeof(*joined));
	void (*pool)(const float *, int64_t, int, float *) = rule->pool == 'a' ? pool_avg : rule->pool == 'm' ? pool_max : NULL;
	for (int h = 0; h < g; h++) {
		for (int64_t j = 0; j < n; j++)
			row[j] = sums[h * stride + j] / (float)window;
		float *from = row;
		if (pool && rule->pool_first)
			pool(row, n, rule->pool_size, from = pooled);
		for (int64_t j = 0; j < n; j++)
			if (rule->gqa_max)
				joined[j] = h == 0 || from[j] > joined[j] || from[j] != from[j] ? from[j] : joined[j];
			else
				joined[j] += from[j] / (float)g;
	}
	if (pool && !rule->pool_first)
		pool(joined, n, rule->pool_size, out);
	else
		memcpy(out, joined, (size_t)n * sizeof(*out));
	free(row);
	free(pooled);
	free(joined);
}

struct state {
	struct columns *columns;
	struct snapkv_rule rule;
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
	t->rule = (struct snapkv_rule){.pool = param_text(s->params, "pool")[0],
		.pool_size = (int)param_int(s->params, "pool_size"),
		.gqa_max = strcmp(param_text(s->params, "gqa"), "max") == 0,
		.pool_first = strcmp(param_text(s->params, "order"), "pool_then_gqa") == 0};
	t->grouped = !t->rule.gqa_max && !(t->rule.pool_first && t->rule.pool == 'm'); /* a mean commutes with a mean */
	t->columns = columns_new(s, t->grouped ? s->kv_heads : forward_config(s->forward)->heads, err);
	return t->columns ? 0 : -1;
}

static int observe(struct scoring *s, const struct layer_rows *r, char err[ERR_LEN])
{
	struct state *t = s->state;
	return columns_add(t->columns, s, r, first_pos(s), t->grouped ? GROUP_MEAN : GROUP_NONE, err);
}

struct head_task {
	const struct scoring *s;
	int layer, g;
	const float *sums;
};

static void score_head(void *arg, int64_t head)
{
	const struct head_task *t = arg;
	const struct state *state = t->s->state;
	int64_t n = t->s->shape.count, scored = n - protect(t->s, 0).last;
	snapkv_scores(
		t->sums + head * t->g * n, t->g, n, scored, window(t->s), &state->rule, scores_at(t->s, t->layer, (int)head));
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	struct state *t = s->state;
	int g = t->grouped ? 1 : forward_config(s->forward)->heads / s->kv_heads, rc = 0;
	float *sums = malloc((size_t)(s->kv_heads * g) * (size_t)s->shape.count * sizeof(*sums) + 1);
	if (!sums)
		return err_set(err, "out of memory: column sums of one layer");
	for (int l = 0; l < s->layers && rc == 0; l++) {
		struct head_task task = {s, l, g, sums};
		rc = columns_take(t->columns, s, l, sums, err);
		if (rc == 0)
			each(s, s->kv_heads, score_head, &task);
	}
	free(sums);
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
		.origin = "SnapKV's LongBench runs, AdaKV"},
	{.name = "gqa", .kind = PARAM_TEXT, .text = "mean", .choices = "mean|max", .origin = "AdaKV, kvpress"},
	{.name = "order",
		.kind = PARAM_TEXT,
		.text = "gqa_then_pool",
		.choices = "gqa_then_pool|pool_then_gqa",
		.origin = "AdaKV"},
	{NULL}};
static const struct compat_mode modes[] = {
	{"kvpress", "{\"window\":64,\"pool\":\"avg\",\"pool_size\":5,\"order\":\"pool_then_gqa\"}"},
	{"factory", "{\"window\":8,\"pool\":\"max\",\"pool_size\":7}"}, {NULL, NULL}};

const struct scorer scorer_snapkv = {.name = "snapkv",
	.title = "attention of the last tokens, pooled",
	.origin = "SnapKV, arXiv 2404.14469; methods.md 2.1",
	.params = defs,
	.compat = modes,
	.observes = OBSERVE_Q | OBSERVE_LSE,
	.first_pos = first_pos,
	.begin = begin,
	.observe = observe,
	.finish = finish,
	.end = end,
	.protect = protect};
