/* evict.c: pruning inside the prefill, layer by layer: the whole prompt through one layer, that layer scored and cut, then the
 * next. Peak memory is one full layer, what was kept of the others, and the residual stream of the prompt, instead of the full
 * cache. spec/proxykv-lkv.md 2.1. The cache is bit for bit the one that compaction makes after an ordinary prefill (a test). */
#include "runners/runner_impl.h"

#include <stdlib.h>
#include <string.h>

static int resolve(struct plan_method *m, const struct runner_job *one, char err[ERR_LEN])
{
	return method_resolve(m, one->variants->method, one->variants->options, err);
}

bool evict_applies(const struct runner_job *one)
{
	struct plan_method m;
	char err[ERR_LEN];
	if (resolve(&m, one, err))
		return false;
	bool can = m.scorer && m.scorer->by_layer && m.allocator->fixed && one->variants->retained < 1;
	method_free(&m);
	return can;
}

struct evicting {
	struct runner *r;
	struct plan_method m;
	struct scoring s;
	struct protection protect;
	int64_t *budget; /* [layers*kv_heads] */
	int64_t rows;    /* of the prompt */
	float *scores;   /* [kv_heads][count] */
	struct evicted *out;
};

/* Rows of one head: all before the evictable part, the chosen ones, all after. */
static int32_t *rows_of(const struct evicting *e, const int32_t *chosen, int32_t n, int32_t *len)
{
	int64_t first = e->s.shape.first, behind = first + e->s.shape.count, at = 0;
	int32_t *rows = mem_new((size_t)(first + n + e->rows - behind) + 1, sizeof *rows);
	for (int64_t i = 0; i < first; i++)
		rows[at++] = (int32_t)i;
	memcpy(rows + at, chosen, (size_t)n * sizeof *rows);
	at += n;
	for (int64_t i = behind; i < e->rows; i++)
		rows[at++] = (int32_t)i;
	*len = (int32_t)at;
	return rows;
}

static int layer_keep(struct evicting *e, int layer, const struct kv *kv, const struct selection *sel, char err[ERR_LEN])
{
	int heads = e->s.kv_heads, all = e->s.layers * heads, rc = -1;
	int32_t *len = mem_new((size_t)all, sizeof *len), **rows = mem_new((size_t)all, sizeof *rows);
	for (int h = 0; h < heads; h++) {
		rows[layer * heads + h] = rows_of(e, sel->index[h], sel->len[h], &len[layer * heads + h]);
		for (int32_t j = 0; j < sel->len[h]; j++)
			e->out->kept_total += sel->index[h][j] >= e->s.shape.prefix &&
					      sel->index[h][j] < e->s.shape.prefix + e->s.shape.context;
	}
	struct kept *kept = kept_new(e->r->device, e->s.layers, heads, len, (const int32_t *const *)rows);
	if (!kept || kv_gather(forward_queue(e->r->forward), e->out->kv, kv, kept, layer))
		err_set(err, "layer %d: %s", layer, device_error(e->r->device));
	else
		rc = 0;
	kept_free(kept);
	for (int i = 0; i < all; i++)
		free(rows[i]);
	free(rows);
	free(len);
	return rc;
}

static int layer_done(void *user, int layer, const struct kv *kv, char err[ERR_LEN])
{
	struct evicting *e = user;
	struct scoring one = e->s;
	struct selection sel = {0};
	int64_t start = clock_ns();
	one.layers = 1;
	one.scores = e->scores;
	int span = span_begin(e->r, PART_SCORE);
	if (e->m.scorer->by_layer(&e->s, layer, kv, e->scores, err))
		return -1;
	span_end(e->r, span);
	span = span_begin(e->r, PART_SELECT);
	int64_t scored = clock_ns();
	e->out->score_ns += scored - start;
	int rc = selection_make(&sel, &one, e->budget + layer * e->s.kv_heads, e->protect, err);
	if (!rc && sel.nan_scores)
		rc = err_set(err, "%s: %lld scores of layer %d are not a number", e->m.name, (long long)sel.nan_scores, layer);
	span_end(e->r, span);
	span = span_begin(e->r, PART_COMPACT);
	int64_t selected = clock_ns();
	e->out->select_ns += selected - scored;
	rc = rc ? rc : layer_keep(e, layer, kv, &sel, err);
	span_end(e->r, span);
	e->out->compact_ns += clock_ns() - selected;
	selection_free(&sel);
	return rc;
}

/* Budgets and the cache for exactly what they keep. */
static int evicting_begin(struct evicting *e, double retained, char err[ERR_LEN])
{
	int all = e->s.layers * e->s.kv_heads, flags;
	int64_t *cap = mem_new((size_t)all, sizeof *cap), start = clock_ns();
	e->budget = mem_new((size_t)all, sizeof *e->budget);
	int span = span_begin(e->r, PART_SELECT);
	int rc = method_budgets(e->budget, &e->m, &e->s, retained, &e->protect, &flags, err);
	span_end(e->r, span);
	e->out->select_ns = clock_ns() - start;
	for (int i = 0; i < all && !rc; i++)
		cap[i] = e->budget[i] + e->rows - e->s.shape.count;
	if (!rc && !(e->out->kv = kv_new(e->r->device, e->s.layers, e->s.kv_heads, e->r->info.head_dim, cap)))
		rc = err_set(err, "the pruned cache: %s", device_error(e->r->device));
	if (!rc && !(e->scores = malloc(((size_t)e->s.kv_heads * (size_t)e->s.shape.count + 1) * sizeof *e->scores)))
		rc = err_set(err, "out of memory: scores of one layer");
	free(cap);
	return rc;
}

int evict_prefill(struct evicted *out, struct runner *r, const struct runner_job *one, const struct prompt *p, char err[ERR_LEN])
{
	struct evicting e = {.r = r, .rows = (int64_t)p->ids.n, .out = out};
	char context[SHA_LEN];
	*out = (struct evicted){0};
	if (resolve(&e.m, one, err))
		return -1;
	prompt_context_sha256(p, context);
	e.s = (struct scoring){.forward = r->forward,
		.ids = p->ids.v,
		.params = e.m.params,
		.model_sha256 = r->info.model_sha256,
		.proxy_sha256 = r->info.proxy_sha256,
		.context_sha256 = context,
		.calibration_folder = r->calibration_folder,
		.weights = r->weights,
		.layers = r->info.layers,
		.kv_heads = r->info.kv_heads};
	prompt_shape_for(&e.m, p->prefix, p->context, p->after, &e.s.shape);
	struct forward_by_layer w = {layer_done, one->stop, &e, one->user};
	int rc = evicting_begin(&e, one->variants->retained, err);
	rc = rc ? rc : forward_prefill_by_layer(r->forward, p->ids.v, e.rows, &w, err);
	if (!rc) {
		r->counters.prefills++;
		r->counters.prefill_tokens += e.rows;
		r->counters.scorer_passes++;
	}
	if (e.m.scorer->end)
		e.m.scorer->end(&e.s);
	free(e.budget);
	free(e.scores);
	method_free(&e.m);
	return rc;
}

void evict_free(struct evicted *e)
{
	kv_free(e->kv);
	*e = (struct evicted){0};
}
