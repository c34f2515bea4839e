/* kvzip.c: KVzip (arXiv 2505.23416): an entry matters if it is attended to while the model repeats the context.
 * spec/methods.md 3.1, 3.2.
 *
 * After the prefill, for each chunk b of `chunk` context tokens: X_b = a request to repeat, the end of the user turn, the
 * answer's header and the chunk itself, forced through the model on top of the full cache (positions behind it). In each layer
 * the queries of X_b meet the keys [prefix | chunk b | X_b itself, causal]; softmax over those only; a context key's score is the
 * largest probability over the queries and the query heads of its group. X_b's entries live in a scratch cache and are dropped:
 * the context cache is never written. Scored once, for all ratios. The prefix is never evicted. chunk 2000: the authors (kvpress
 * 2048). The last 8 ids of chunk b-1 (all of a shorter one) close a later request: the authors, kvpress. Differences: softmax in
 * fp32 (theirs: the model's type, saturating to ties). compat=kvpress: the first min(4, start) keys stand for the prefix, whose
 * other entries score 0 and go first, positions 0..3 get the largest score + 1 (kvpress 0.5.5). */
#include "runners/methods/parts.h"

#include <stdlib.h>
#include <string.h>

enum { TAIL_IDS = 8, KVPRESS_SINKS = 4 };

bool kvzip_chunk(int64_t n, int64_t chunk, int64_t b, int64_t *start, int64_t *size)
{
	*start = b * chunk;
	*size = n - *start < chunk ? n - *start : chunk;
	return *size > 0;
}

static int64_t put(const int32_t *ids, int64_t n, int32_t *out, int64_t at)
{
	if (out && n > 0)
		memcpy(out + at, ids, (size_t)n * sizeof(*ids));
	return at + n;
}

int64_t kvzip_repeat_ids(
	const struct repeat_prompt *p, const int32_t *context, int64_t chunk, int64_t start, int64_t size, int32_t *out)
{
	int64_t at = start == 0 ? put(p->first, p->n_first, out, 0) : put(p->later, p->n_later, out, 0);
	if (start > 0 && p->later_takes_ids) {
		int64_t n = chunk < TAIL_IDS ? chunk : TAIL_IDS; /* of chunk b-1 alone, which is a whole one */
		at = put(context + start - n, n, out, at);
	}
	at = put(p->tail, p->n_tail, out, at);
	return put(context + start, size, out, at);
}

struct pass { /* one run over the context; lives inside finish() */
	struct scoring *s;
	struct columns *columns;
	struct kv *tail;
	struct tensor *lse;
	int64_t sinks, start, size; /* keys of the prefix; rows of chunk b in the cache */
};

static int observe_layer(void *user, const struct layer_rows *r, char err[ERR_LEN])
{
	struct pass *p = user;
	struct scoring *s = p->s;
	struct queue *q = forward_queue(s->forward);
	int heads = forward_config(s->forward)->heads;
	struct key_set keys = {.n = 0, .causal = true};
	if (p->sinks > 0)
		keys.range[keys.n++] = (struct key_range){s->kv, 0, p->sinks};
	int chunk = keys.n;
	keys.range[keys.n++] = (struct key_range){s->kv, p->start, p->size};
	keys.range[keys.n++] = (struct key_range){r->kv, 0, r->pos0 + r->rows - rows_total(s)};
	if (op_attn_lse(q, r->layer, &keys, r->qkv, 0, r->rows, 0, heads, p->lse) ||
		op_attn_reduce(q, r->layer, &keys, chunk, 0, p->size, r->qkv, 0, r->rows, 0, heads, p->lse, 0, REDUCE_MAX,
			GROUP_MAX, columns_tensor(p->columns, r->layer), p->start - s->shape.first))
		return err_set(err, "kvzip scores, layer %d: %s", r->layer, device_error(forward_device(s->forward)));
	return 0;
}

/* Forces X_b through the model in pieces the scratch tensors hold. */
static int repeat_chunk(struct pass *p, const int32_t *ids, int64_t n, char err[ERR_LEN])
{
	struct scoring *s = p->s;
	const struct observer observer = {.needs = OBSERVE_Q, .layer = observe_layer, .user = p};
	int64_t most = forward_max_rows(s->forward);
	kv_truncate(p->tail, 0);
	for (int64_t at = 0; at < n; at += most) {
		if (s->stop && s->stop(s->stop_user))
			return 1;
		struct forward_seq seq = {.ids = ids + at,
			.n = (int)(n - at < most ? n - at : most),
			.pos0 = rows_total(s) + at,
			.context = s->kv,
			.tail = p->tail};
		if (forward_run(s->forward, &seq, 1, &observer, 1, NULL, NULL, err))
			return -1;
	}
	return 0;
}

static struct kv *scratch_cache(const struct scoring *s, int64_t rows)
{
	int64_t *cap = mem_new((size_t)(s->layers * s->kv_heads), sizeof(*cap));
	for (int i = 0; i < s->layers * s->kv_heads; i++)
		cap[i] = rows;
	struct kv *kv = kv_new(forward_device(s->forward), s->layers, s->kv_heads, forward_config(s->forward)->head_dim, cap);
	free(cap);
	return kv;
}

/* kvpress: the first four positions stay by the largest score of all, plus 1. */
static void lift_sinks(struct scoring *s)
{
	float most = s->scores[0];
	int64_t n = s->shape.count, all = (int64_t)s->layers * s->kv_heads * n;
	scores_drop(s);
	for (int64_t i = 1; i < all; i++)
		most = s->scores[i] > most ? s->scores[i] : most;
	for (int64_t i = 0; i < all; i += n)
		for (int64_t j = 0; j < n && j < KVPRESS_SINKS; j++)
			s->scores[i + j] = most + 1;
}

static int begin(struct scoring *s, char err[ERR_LEN])
{
	return s->repeat ? 0 : err_set(err, "kvzip needs a repeat prompt for the model's template, and this run has none");
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	bool kvpress = strcmp(param_compat(s->params), "kvpress") == 0;
	int64_t prefix = s->shape.prefix, n = s->shape.first + s->shape.count - prefix, chunk = param_int(s->params, "chunk"),
		longest = 0, start, size;
	const int32_t *context = s->ids + prefix;
	struct device *d = forward_device(s->forward);
	struct pass p = {.s = s};
	int32_t *ids = NULL;
	int rc = -1;
	for (int64_t b = 0; kvzip_chunk(n, chunk, b, &start, &size); b++) {
		int64_t length = kvzip_repeat_ids(s->repeat, context, chunk, start, size, NULL);
		longest = length > longest ? length : longest;
	}
	p.columns = columns_new(s, s->kv_heads, err);
	if (!p.columns)
		goto cleanup;
	p.tail = scratch_cache(s, longest);
	p.lse = tensor_new(d, forward_max_rows(s->forward), forward_config(s->forward)->heads);
	ids = malloc((size_t)longest * sizeof(*ids) + 1);
	if (!p.tail || !p.lse || !ids) {
		err_set(err, "kvzip's second pass, %lld rows: %s", (long long)longest, device_error(d));
		goto cleanup;
	}
	for (int64_t b = 0; kvzip_chunk(n, chunk, b, &start, &size); b++) {
		p.start = prefix + start;
		p.size = size;
		p.sinks = !kvpress ? prefix : p.start < KVPRESS_SINKS ? p.start : KVPRESS_SINKS;
		int64_t length = kvzip_repeat_ids(s->repeat, context, chunk, start, size, ids);
		rc = repeat_chunk(&p, ids, length, err);
		if (rc)
			goto cleanup;
	}
	rc = 0;
	for (int l = 0; l < s->layers && rc == 0; l++)
		rc = columns_score(p.columns, s, l, err);
	if (rc == 0 && kvpress)
		lift_sinks(s);
cleanup:
	columns_free(p.columns);
	kv_free(p.tail);
	tensor_free(p.lse);
	free(ids);
	return rc;
}

/* Of all chunks: the layers' products over X_b, its attention over the whole cache and itself (causal), and once more its queries
 * against the keys that are scored. */
static double flops(const struct scoring *s)
{
	const struct model_config *c = forward_config(s->forward);
	int64_t prefix = s->shape.prefix, n = s->shape.first + s->shape.count - prefix, chunk = param_int(s->params, "chunk"),
		start, size;
	double queries = 0, attended = 0, scored = 0;
	for (int64_t b = 0; kvzip_chunk(n, chunk, b, &start, &size); b++) {
		double q = (double)kvzip_repeat_ids(s->repeat, s->ids + prefix, chunk, start, size, NULL);
		queries += q;
		attended += q * ((double)rows_total(s) + q / 2);
		scored += q * ((double)(prefix + size) + q / 2);
	}
	return 2 * model_linear_weights(c) * queries + c->layers * (double)c->heads * c->head_dim * (4 * attended + 2 * scored);
}

static const struct param_def defs[] = {
	{.name = "chunk", .kind = PARAM_INT, .number = 2000, .min = 1, .max = 1e9, .origin = "KVzip's own code"}, {NULL}};
static const struct compat_mode modes[] = {{"kvpress", "{\"chunk\":2048}"}, {"kvzip", NULL}, {NULL, NULL}};

const struct scorer scorer_kvzip = {.name = "kvzip",
	.title = "attention while the model repeats the context (a second pass)",
	.origin = "KVzip, arXiv 2505.23416",
	.params = defs,
	.compat = modes,
	.begin = begin,
	.finish = finish,
	.flops = flops};
