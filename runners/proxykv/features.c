/* features.c: see features.h.
 *
 * Contiguous queries are one reduction a chunk, aligned at its bottom right. Every k-th query: counted from the context's last
 * one, so that each key is seen by at least one; the chosen rows of a chunk are gathered and see all keys before the chunk
 * together, then each of them, on its own, the keys of the chunk up to itself. */
#include "runners/proxykv/features.h"

#include "runners/proxykv/mapping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct features {
	struct forward *f;
	struct feature_spec spec;
	int64_t first, count;
	int layers, heads;
	struct tensor **sum;            /* [layers]: [heads, count] */
	struct tensor *rows, *rows_lse; /* stride: the chosen rows of a chunk */
};

/* ---- what is asked for ---- */

int feature_spec_parse(struct feature_spec *out, const char *queries, int layers, const char *heads, char err[ERR_LEN])
{
	struct mapper_config c;
	mapper_defaults(&c);
	if (mapper_option(&c, "queries", queries, err) || mapper_option(&c, "heads", heads, err))
		return -1;
	*out = feature_spec_of(&c);
	out->layers = layers;
	return 0;
}

struct feature_spec feature_spec_of(const struct mapper_config *c)
{
	return (struct feature_spec){.queries = (enum mapper_queries)c->queries,
		.step = c->queries == MAPPER_QUERIES_ALL ? 1 : c->query_n,
		.layers = c->proxy_layers,
		.kv_heads = c->heads == MAPPER_HEADS_KV};
}

bool feature_spec_equal(const struct feature_spec *a, const struct feature_spec *b)
{
	return a->queries == b->queries && a->step == b->step && a->layers == b->layers && a->kv_heads == b->kv_heads;
}

void feature_spec_tag(const struct feature_spec *s, char out[32])
{
	static const char *const names[] = {[MAPPER_QUERIES_STRIDE] = "-stride", [MAPPER_QUERIES_LAST] = "-last"};
	int n = 0;
	*out = 0;
	if (s->queries != MAPPER_QUERIES_ALL)
		n += snprintf(out, 32, "%s%d", names[s->queries], s->step);
	n += snprintf(out + n, 32 - (size_t)n, "%s", s->kv_heads ? "-kv" : "");
	if (s->layers)
		snprintf(out + n, 32 - (size_t)n, "-l%d", s->layers);
}

int feature_layers(const struct feature_spec *s, const struct model_config *c)
{
	return s->layers ? s->layers : c->layers;
}

int feature_heads(const struct feature_spec *s, const struct model_config *c)
{
	return s->kv_heads ? c->kv_heads : c->heads;
}

/* ---- on the device ---- */

void features_free(struct features *x)
{
	if (!x)
		return;
	for (int l = 0; x->sum && l < x->layers; l++)
		tensor_free(x->sum[l]);
	tensor_free(x->rows);
	tensor_free(x->rows_lse);
	free(x->sum);
	free(x);
}

/* Of stride: rows of a chunk that are chosen at most, and their columns. */
static int64_t stride_most(const struct forward *f, const struct feature_spec *s)
{
	return forward_max_rows(f) / s->step + 1;
}
static int64_t stride_cols(const struct model_config *c)
{
	return (int64_t)(c->heads + 2 * c->kv_heads) * c->head_dim + 32;
}

static int stride_rows(struct features *x)
{
	const struct model_config *c = forward_config(x->f);
	struct device *d = forward_device(x->f);
	int64_t most = stride_most(x->f, &x->spec);
	x->rows = tensor_new(d, most, stride_cols(c));
	x->rows_lse = tensor_new(d, most, c->heads);
	return x->rows && x->rows_lse ? 0 : -1;
}

int64_t features_bytes(const struct forward *f, const struct feature_spec *s, int64_t count)
{
	const struct model_config *c = forward_config(f);
	int64_t bytes = feature_layers(s, c) * tensor_bytes(feature_heads(s, c), count);
	if (s->queries == MAPPER_QUERIES_STRIDE)
		bytes += tensor_bytes(stride_most(f, s), stride_cols(c)) + tensor_bytes(stride_most(f, s), c->heads);
	return bytes;
}

struct features *features_new(struct forward *f, const struct feature_spec *s, int64_t first, int64_t count, char err[ERR_LEN])
{
	const struct model_config *c = forward_config(f);
	struct device *d = forward_device(f);
	if (s->layers > c->layers) {
		err_set(err, "features of the first %d layers: the model has %d", s->layers, c->layers);
		return NULL;
	}
	struct features *x = mem_new(1, sizeof *x);
	*x = (struct features){
		.f = f, .spec = *s, .first = first, .count = count, .layers = feature_layers(s, c), .heads = feature_heads(s, c)};
	x->sum = mem_new((size_t)x->layers, sizeof *x->sum);
	bool fine = s->queries != MAPPER_QUERIES_STRIDE || !stride_rows(x);
	for (int l = 0; l < x->layers && fine; l++) {
		x->sum[l] = tensor_new(d, x->heads, count);
		fine = x->sum[l] && !tensor_fill(forward_queue(f), x->sum[l], 0);
	}
	if (fine)
		return x;
	err_set(err, "features of %d layers (%d x %lld): %s", x->layers, x->heads, (long long)count, device_error(d));
	features_free(x);
	return NULL;
}

struct observer features_observer(struct features *x)
{
	int64_t width = x->spec.queries == MAPPER_QUERIES_LAST ? x->spec.step : x->count;
	return (struct observer){.needs = OBSERVE_Q | OBSERVE_LSE,
		.first_pos = x->first + (width < x->count ? x->count - width : 0),
		.layer = features_observe,
		.user = x,
		.layers = x->layers};
}

/* Rows [row, row + rows) of q (log-sum-exp beside them) over the first `seen` rows of the cache, columns from `from` on. */
static int reduce(struct features *x, const struct layer_rows *r, const struct tensor *q, const struct tensor *lse, int64_t row,
	int64_t rows, int64_t from, int64_t seen, bool causal)
{
	struct key_set keys = {.range = {{r->kv, 0, seen}}, .n = 1, .causal = causal};
	if (rows <= 0 || seen <= from)
		return 0;
	return op_attn_reduce(forward_queue(x->f), r->layer, &keys, 0, from, seen - from, q, row, rows, 0,
		forward_config(x->f)->heads, lse, row, REDUCE_SUM, x->spec.kv_heads ? GROUP_MEAN : GROUP_NONE, x->sum[r->layer],
		from - x->first);
}

/* The chosen ones of the chunk's rows [row0, row1). */
static int reduce_stride(struct features *x, const struct layer_rows *r, int64_t row0, int64_t row1)
{
	int64_t step = x->spec.step, last = x->first + x->count - 1, n = 0;
	int64_t row = row0 + (last - (r->pos0 + row0)) % step;
	int32_t *chosen = mem_new((size_t)((row1 - row0) / step + 1), sizeof *chosen);
	for (int64_t i = row; i < row1; i += step)
		chosen[n++] = (int32_t)i;
	int64_t begin = r->pos0 > x->first ? r->pos0 : x->first;
	struct queue *q = forward_queue(x->f);
	int rc = n && r->pos0 > x->first &&
		 (op_gather_rows(q, x->rows, r->qkv, chosen, n) || op_gather_rows(q, x->rows_lse, r->lse, chosen, n) ||
			 reduce(x, r, x->rows, x->rows_lse, 0, n, x->first, r->pos0, false));
	for (int64_t i = 0; i < n && !rc; i++)
		rc = reduce(x, r, r->qkv, r->lse, chosen[i], 1, begin, r->pos0 + chosen[i] + 1, true);
	free(chosen);
	return rc ? -1 : 0;
}

int features_observe(void *user, const struct layer_rows *r, char err[ERR_LEN])
{
	struct features *x = user;
	int64_t from = features_observer(x).first_pos, to = x->first + x->count; /* queries */
	int64_t row0 = from > r->pos0 ? from - r->pos0 : 0, row1 = to < r->pos0 + r->rows ? to - r->pos0 : r->rows;
	if (row1 <= row0)
		return 0;
	int rc = x->spec.queries == MAPPER_QUERIES_STRIDE
			 ? reduce_stride(x, r, row0, row1)
			 : reduce(x, r, r->qkv, r->lse, row0, row1 - row0, x->first, r->pos0 + row1, true);
	return rc ? err_set(err, "features, layer %d: %s", r->layer, device_error(forward_device(x->f))) : 0;
}

int64_t features_floats(const struct features *x)
{
	return (int64_t)x->layers * x->heads * x->count;
}

int features_take(struct features *x, float *out, char err[ERR_LEN])
{
	int64_t layer = x->heads * x->count;
	for (int l = 0; l < x->layers; l++) {
		if (tensor_read(forward_queue(x->f), x->sum[l], 0, x->heads, out + l * layer))
			return err_set(err, "reading features, layer %d: %s", l, device_error(forward_device(x->f)));
		tensor_free(x->sum[l]);
		x->sum[l] = NULL;
	}
	return 0;
}

struct tensor *features_map(struct features *x, const struct mapper *m, char err[ERR_LEN])
{
	return mapping_scores(forward_queue(x->f), m, x->sum, x->count, MAPPING_WORK, err);
}
