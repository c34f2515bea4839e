/* attention.c: attention of a batch of sequences, and the row log-sum-exp over any key set: both are items of `attend`.
 *
 * An item is one (sequence, KV head, block of queries) with all query heads of the group, so that each key block is packed once
 * for ATTN_ROWS rows. Items are handed out longest first; few items are handed out in parts of ATTN_PART keys. A row's bits
 * depend on its own query and keys alone. */
#include "runners/device/cpu/cpu.h"

#include <stdlib.h>

enum {
	SMALL_MERGE = 1 << 15,  /* floats: some microseconds */
	SHARED_FLOATS = 1 << 20 /* results of parts held at most: 4 MB */
};

/* One part of an item whose parts are computed by several threads. */
struct attend_share {
	const struct attend_item *item;
	int64_t part;
	float *result; /* of part 0 the first of all the item's results */
};

struct attend_job {
	const struct cpu_kernels *kernels;
	struct device *d;
	struct attend_item *items;
	struct attend_share *shares;
};

static void attend_one(void *arg, int64_t i, int thread)
{
	struct attend_job *j = arg;
	j->kernels->attend(&j->items[i], device_scratch(j->d, thread));
}

/* (query, key) pairs of one head. */
static int64_t pairs(const struct attend_item *a)
{
	int64_t keys = a->seen;
	for (int s = 0; s < a->n_seg - 1; s++)
		keys += a->seg[s].n;
	return keys * a->queries + (a->causal ? a->queries * (a->queries - 1) / 2 : 0);
}

static int longest_first(const void *a, const void *b)
{
	int64_t x = pairs(a), y = pairs(b);
	return (x < y) - (x > y);
}

/* What one (sequence, head) costs, for the profile: K and V of all its keys are read once. */
static void count_cost(const struct attend_item *a, double *flops, double *bytes)
{
	int64_t keys = 0;
	for (int s = 0; s < a->n_seg; s++)
		keys += a->seg[s].n;
	*flops += (a->out ? 4.0 : 2.0) * a->g * a->d * (double)pairs(a);
	*bytes += (a->out ? 2.0 : 1.0) * a->d * (double)keys * (a->bf16 ? 2 : 4);
}

static int64_t query_block(int g)
{
	return ATTN_ROWS / g;
}

/* Cuts one (sequence, head) into items of query blocks; returns how many were written (counted when items is NULL). */
static int64_t add_items(struct attend_item *items, const struct attend_item *whole)
{
	int64_t n = 0, block = query_block(whole->g);
	for (int64_t i = 0; i < whole->queries; i += block, n++) {
		if (!items)
			continue;
		items[n] = *whole;
		items[n].queries = whole->queries - i < block ? whole->queries - i : block;
		items[n].seen = whole->seen + (whole->causal ? i : 0);
		items[n].q += i * whole->q_ld;
		if (whole->out)
			items[n].out += i * whole->out_ld;
		if (whole->lse)
			items[n].lse += i * whole->lse_ld;
	}
	return n;
}

static void share_one(void *arg, int64_t i, int thread)
{
	struct attend_job *j = arg;
	const struct attend_share *s = &j->shares[i];
	j->kernels->attend_part(s->item, s->part, s->result, device_scratch(j->d, thread));
}

static void merge_one(void *arg, int64_t i, int thread)
{
	struct attend_job *j = arg;
	const struct attend_share *s = &j->shares[i];
	if (s->part == 0)
		j->kernels->attend_merge(s->item, s->result, device_scratch(j->d, thread));
}

/* Few items (decoding of one sequence) would leave threads idle: their parts become the items. */
static void run_shares(struct device *d, struct attend_item *items, int64_t n, int64_t shares, int64_t floats)
{
	float *results = mem_new((size_t)floats, sizeof *results), *at = results;
	struct attend_share *share = mem_new((size_t)shares, sizeof *share);
	struct attend_job j = {d->kernels, d, items, share};
	int64_t used = 0;
	for (int64_t i = 0; i < n; i++)
		for (int64_t p = 0, parts = attend_parts(&items[i]); p < parts; p++, at += attend_part_floats(&items[i]))
			share[used++] = (struct attend_share){&items[i], p, at};
	pool_run(d->pool, shares, share_one, &j);
	if (floats < SMALL_MERGE) /* not worth waking a thread */
		for (int64_t i = 0; i < shares; i++)
			merge_one(&j, i, 0);
	else
		pool_run(d->pool, shares, merge_one, &j);
	free(share);
	free(results);
}

static void run_items(struct device *d, struct attend_item *items, int64_t n)
{
	int64_t shares = 0, floats = 0;
	bool whole = !d->kernels->attend_part || n >= 4 * pool_threads(d->pool) || pool_threads(d->pool) == 1;
	for (int64_t i = 0; i < n && !whole; i++) {
		int64_t parts = attend_parts(&items[i]);
		whole = parts == 0;
		shares += parts;
		floats += parts * attend_part_floats(&items[i]);
	}
	if (!whole && shares > n && floats <= SHARED_FLOATS) {
		run_shares(d, items, n, shares, floats);
		return;
	}
	qsort(items, (size_t)n, sizeof *items, longest_first);
	pool_run(d->pool, n, attend_one, &(struct attend_job){d->kernels, d, items, NULL});
}

static int check_heads(struct device *d, const char *op, int heads, int kv_heads, int head_dim)
{
	if (heads <= 0 || kv_heads <= 0 || heads % kv_heads || heads / kv_heads > ATTN_ROWS || head_dim < 1 ||
		head_dim > HEAD_DIM_MAX)
		return device_fail(d, "%s: %d query heads on %d KV heads of %d channels", op, heads, kv_heads, head_dim);
	return 0;
}

/* The keys of (layer, head) one sequence sees: its context (through kept) and its tail, the new rows included. */
static void sequence_segments(struct attend_item *a, const struct attn_seq *s, int layer, int head)
{
	const struct kv *c = s->context, *t = s->tail;
	a->n_seg = 0;
	if (c) {
		struct segment *g = &a->seg[a->n_seg++];
		*g = (struct segment){
			kv_row(c, c->k, layer, head, 0), kv_row(c, c->v, layer, head, 0), NULL, kv_len(c, layer, head)};
		if (s->kept) {
			int i = layer * s->kept->heads + head;
			g->index = s->kept->index + s->kept->first[i];
			g->n = s->kept->len[i];
		}
	}
	a->seg[a->n_seg++] =
		(struct segment){kv_row(t, t->k, layer, head, 0), kv_row(t, t->v, layer, head, 0), NULL, s->tail_len + s->rows};
}

int op_attention(struct queue *q, int layer, const struct attn_seq *seqs, int n, struct tensor *out, const struct tensor *x,
	int64_t qcol, int heads, struct tensor *lse)
{
	struct device *d = q->d;
	if (n == 0)
		return 0;
	int kv_heads = seqs[0].tail->heads, head_dim = seqs[0].tail->head_dim;
	if (check_heads(d, "op_attention", heads, kv_heads, head_dim))
		return -1;
	int64_t total = 0, rows = 0, begin = profile_begin(d);
	int g = heads / kv_heads;
	double flops = 0, bytes = 0;
	for (int i = 0; i < n; i++) {
		const struct attn_seq *s = &seqs[i];
		const struct kv *c = s->context;
		if (s->tail->heads != kv_heads || s->tail->head_dim != head_dim || layer < 0 || layer >= s->tail->layers ||
			(c && (c->heads != kv_heads || c->head_dim != head_dim || layer >= c->layers)) ||
			(s->kept && (!c || s->kept->heads != kv_heads || layer >= s->kept->layers)) || s->row0 < 0 ||
			s->row0 + s->rows > x->rows || s->row0 + s->rows > out->rows ||
			(lse && (s->row0 + s->rows > lse->rows || lse->cols < heads)) || qcol + heads * head_dim > x->cols ||
			heads * head_dim > out->cols || kv_len(s->tail, layer, 0) < s->tail_len + s->rows)
			return device_fail(d, "op_attention: sequence %d does not fit its tensors or its cache", i);
		total += (s->rows + query_block(g) - 1) / query_block(g) * kv_heads;
		rows += s->rows;
	}
	struct attend_item *items = mem_new((size_t)total, sizeof *items);
	int64_t used = 0;
	for (int i = 0; i < n; i++)
		for (int h = 0; h < kv_heads; h++) {
			const struct attn_seq *s = &seqs[i];
			struct attend_item a = {.g = g,
				.d = head_dim,
				.bf16 = d->bf16,
				.causal = true,
				.seen = s->tail_len + 1,
				.queries = s->rows,
				.scale = 1 / sqrtf((float)head_dim),
				.q = x->x + s->row0 * x->cols + qcol + h * g * head_dim,
				.q_ld = x->cols,
				.out = out->x + s->row0 * out->cols + h * g * head_dim,
				.out_ld = out->cols,
				.lse = lse ? lse->x + s->row0 * lse->cols + h * g : NULL,
				.lse_ld = lse ? lse->cols : 0};
			sequence_segments(&a, s, layer, h);
			used += add_items(items + used, &a);
			count_cost(&a, &flops, &bytes);
		}
	run_items(d, items, used);
	free(items);
	profile_end(d, rows == n ? PROFILE_ATTENTION_ONE : PROFILE_ATTENTION, begin, flops, bytes);
	return 0;
}

static int check_keys(struct device *d, const char *op, const struct key_set *keys, int layer)
{
	if (keys->n < 1 || keys->n > ATTN_SEGMENTS)
		return device_fail(d, "%s: %d key ranges", op, keys->n);
	for (int r = 0; r < keys->n; r++) {
		const struct key_range *g = &keys->range[r];
		for (int h = 0; h < g->kv->heads; h++)
			if (g->first < 0 || g->n < 0 || g->kv->heads != keys->range[0].kv->heads ||
				g->first + g->n > kv_len(g->kv, layer, h))
				return device_fail(d, "%s: rows [%lld, +%lld) of layer %d head %d with %lld", op,
					(long long)g->first, (long long)g->n, layer, h, (long long)kv_len(g->kv, layer, h));
	}
	return 0;
}

static struct segment range_segment(const struct key_range *r, int layer, int head)
{
	return (struct segment){
		kv_row(r->kv, r->kv->k, layer, head, r->first), kv_row(r->kv, r->kv->v, layer, head, r->first), NULL, r->n};
}

int op_attn_lse(struct queue *q, int layer, const struct key_set *keys, const struct tensor *x, int64_t row0, int64_t rows,
	int64_t qcol, int heads, struct tensor *lse)
{
	struct device *d = q->d;
	if (check_keys(d, "op_attn_lse", keys, layer))
		return -1;
	const struct key_range *last = &keys->range[keys->n - 1];
	int kv_heads = last->kv->heads, head_dim = last->kv->head_dim, g = heads / kv_heads;
	if (check_heads(d, "op_attn_lse", heads, kv_heads, head_dim))
		return -1;
	if (row0 < 0 || row0 + rows > x->rows || qcol + heads * head_dim > x->cols || rows > lse->rows || heads > lse->cols)
		return device_fail(
			d, "op_attn_lse: rows [%lld, +%lld) do not fit their tensors", (long long)row0, (long long)rows);
	struct attend_item *items = mem_new((size_t)((rows + query_block(g) - 1) / query_block(g) * kv_heads), sizeof *items);
	int64_t used = 0, begin = profile_begin(d);
	double flops = 0, bytes = 0;
	for (int h = 0; h < kv_heads; h++) {
		struct attend_item a = {.n_seg = keys->n,
			.g = g,
			.d = head_dim,
			.bf16 = d->bf16,
			.causal = keys->causal,
			.seen = keys->causal ? last->n - rows + 1 : last->n,
			.queries = rows,
			.scale = 1 / sqrtf((float)head_dim),
			.q = x->x + row0 * x->cols + qcol + h * g * head_dim,
			.q_ld = x->cols,
			.lse = lse->x + h * g,
			.lse_ld = lse->cols};
		for (int r = 0; r < keys->n; r++)
			a.seg[r] = range_segment(&keys->range[r], layer, h);
		used += add_items(items + used, &a);
		count_cost(&a, &flops, &bytes);
	}
	run_items(d, items, used);
	free(items);
	profile_end(d, PROFILE_ATTN_LSE, begin, flops, bytes);
	return 0;
}

/* ---- probabilities reduced over queries ---- */

struct reduce_job {
	struct device *d;
	struct reduce_item whole; /* of head 0, pointers at column 0 of the range */
	const struct key_range *range;
	int layer, kv_heads;
	int64_t col0, cols, seen; /* seen: keys of the range that query 0 sees */
	struct tensor *out;
	int64_t out_col;
};

static void reduce_one(void *arg, int64_t item, int thread)
{
	struct reduce_job *j = arg;
	int h = (int)(item % j->kv_heads);
	int64_t c = item / j->kv_heads * ATTN_BLOCK, first = j->col0 + c;
	struct reduce_item a = j->whole;
	a.keys = range_segment(j->range, j->layer, h);
	a.keys.k = (const char *)a.keys.k + first * a.d * kv_element(j->d);
	a.keys.n = j->cols - c < ATTN_BLOCK ? j->cols - c : ATTN_BLOCK;
	a.seen = j->seen - first;
	a.q += h * a.g * a.d;
	a.lse += h * a.g;
	a.out = j->out->x + (a.group == GROUP_NONE ? h * a.g : h) * j->out->cols + j->out_col + c;
	j->d->kernels->reduce(&a, device_scratch(j->d, thread));
}

/* (query, key) pairs of one head: the rows that see a column, over all columns. */
static int64_t reduce_pairs(const struct reduce_job *j, int64_t rows)
{
	int64_t n = 0;
	for (int64_t i = 0; i < (j->whole.causal ? rows : 1); i++) {
		int64_t seen = j->seen + i - j->col0;
		n += seen < 0 ? 0 : seen > j->cols ? j->cols : seen;
	}
	return j->whole.causal ? n : n * rows;
}

int op_attn_reduce(struct queue *q, int layer, const struct key_set *keys, int which, int64_t col0, int64_t cols,
	const struct tensor *x, int64_t row0, int64_t rows, int64_t qcol, int heads, const struct tensor *lse, int64_t lse_row0,
	enum attn_reduce reduce, enum attn_group group, struct tensor *out, int64_t out_col)
{
	struct device *d = q->d;
	if (check_keys(d, "op_attn_reduce", keys, layer))
		return -1;
	if (which < 0 || which >= keys->n || col0 < 0 || cols < 0 || col0 + cols > keys->range[which].n)
		return device_fail(
			d, "op_attn_reduce: columns [%lld, +%lld) of range %d", (long long)col0, (long long)cols, which);
	const struct key_range *range = &keys->range[which];
	int kv_heads = range->kv->heads, head_dim = range->kv->head_dim, g = heads / kv_heads;
	if (check_heads(d, "op_attn_reduce", heads, kv_heads, head_dim))
		return -1;
	if (row0 < 0 || row0 + rows > x->rows || qcol + heads * head_dim > x->cols || lse_row0 < 0 ||
		lse_row0 + rows > lse->rows || heads > lse->cols || out_col < 0 || out_col + cols > out->cols ||
		out->rows < (group == GROUP_NONE ? heads : kv_heads))
		return device_fail(
			d, "op_attn_reduce: rows [%lld, +%lld) do not fit their tensors", (long long)row0, (long long)rows);
	if (group == GROUP_MEAN && reduce == REDUCE_MAX)
		return device_fail(d, "op_attn_reduce: the mean of a group needs sums over queries");
	bool causal = keys->causal && which == keys->n - 1;
	int64_t begin = profile_begin(d);
	struct reduce_job j = {.d = d,
		.range = range,
		.layer = layer,
		.kv_heads = kv_heads,
		.col0 = col0,
		.cols = cols,
		.seen = causal ? range->n - rows + 1 : range->n,
		.out = out,
		.out_col = out_col,
		.whole = {.g = g,
			.d = head_dim,
			.bf16 = d->bf16,
			.causal = causal,
			.queries = rows,
			.scale = 1 / sqrtf((float)head_dim),
			.q = x->x + row0 * x->cols + qcol,
			.q_ld = x->cols,
			.lse = lse->x + lse_row0 * lse->cols,
			.lse_ld = lse->cols,
			.reduce = reduce,
			.group = group,
			.out_ld = out->cols}};
	pool_run(d->pool, (cols + ATTN_BLOCK - 1) / ATTN_BLOCK * kv_heads, reduce_one, &j);
	if (begin)
		profile_end(d, PROFILE_ATTN_REDUCE, begin, 2.0 * heads * head_dim * (double)reduce_pairs(&j, rows),
			(double)(cols * kv_heads * head_dim * kv_element(d)));
	return 0;
}
