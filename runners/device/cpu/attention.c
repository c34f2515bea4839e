/* attention.c: attention of a batch of sequences, and the row log-sum-exp over any key set: both are items of `attend`.
 *
 * An item is one (sequence, KV head, block of queries) with all query heads of the group, so that each key block is packed once
 * for all its rows. Few items are handed out in parts of ATTN_PART keys. A row's bits
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
	j->kernels->attend(&j->items[i], cpu_scratch(j->d, thread));
}

/* (query, key) pairs of one head. */
static int64_t pairs(const struct attend_item *a)
{
	int64_t keys = a->seen;
	for (int s = 0; s < a->n_seg - 1; s++)
		keys += a->seg[s].n;
	return keys * a->queries + (a->causal ? a->queries * (a->queries - 1) / 2 : 0);
}

/* By the place of their queries, so that threads begin with rows they made themselves; of one place longest first. */
static int by_rows(const void *a, const void *b)
{
	const struct attend_item *x = a, *y = b;
	int64_t px = pairs(x), py = pairs(y);
	return x->row0 != y->row0 ? (x->row0 > y->row0) - (x->row0 < y->row0) : (px < py) - (px > py);
}

/* A token of each sequence: those of the same keys (variants of one context) side by side, while the keys are in the cache. */
static int by_keys(const void *a, const void *b)
{
	const char *x = ((const struct attend_item *)a)->seg[0].k, *y = ((const struct attend_item *)b)->seg[0].k;
	return (x > y) - (x < y);
}

/* Queries of an item: of `queries` in equal blocks. */
static int64_t query_block(const struct device *d, int g, int64_t queries)
{
	int rows = ((const struct cpu_device *)d)->kernels->attend_rows;
	int64_t most = rows > g ? rows / g : 1, blocks = (queries + most - 1) / most;
	return blocks > 1 ? (queries + blocks - 1) / blocks : most;
}

static int64_t query_blocks(const struct device *d, int g, int64_t queries)
{
	int64_t block = query_block(d, g, queries);
	return (queries + block - 1) / block;
}

/* Cuts one (sequence, head) into items, query_blocks() of them; returns their number. */
static int64_t add_items(const struct device *d, struct attend_item *items, const struct attend_item *whole)
{
	int64_t n = 0, block = query_block(d, whole->g, whole->queries);
	for (int64_t i = 0; i < whole->queries; i += block, n++) {
		items[n] = *whole;
		items[n].queries = whole->queries - i < block ? whole->queries - i : block;
		items[n].seen = whole->seen + (whole->causal ? i : 0);
		items[n].q += i * whole->q_ld;
		items[n].row0 += i;
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
	j->kernels->attend_part(s->item, s->part, s->result, cpu_scratch(j->d, thread));
}

static void merge_one(void *arg, int64_t i, int thread)
{
	struct attend_job *j = arg;
	const struct attend_share *s = &j->shares[i];
	if (s->part == 0)
		j->kernels->attend_merge(s->item, s->result, cpu_scratch(j->d, thread));
}

/* Few items (decoding of one sequence) would leave threads idle: their parts become the items. */
static int run_shares(struct device *d, struct attend_item *items, int64_t n, int64_t shares, int64_t floats)
{
	const struct cpu_kernels *kernels = cpu_device(d)->kernels;
	float *results = device_alloc(d, floats * 4), *at = results;
	if (!results)
		return -1;
	struct attend_share *share = mem_new((size_t)shares, sizeof *share);
	struct attend_job j = {kernels, d, items, share};
	int64_t used = 0;
	for (int64_t i = 0; i < n; i++)
		for (int64_t p = 0, parts = attend_parts(&items[i]); p < parts; p++, at += kernels->part_floats(&items[i]))
			share[used++] = (struct attend_share){&items[i], p, at};
	pool_run(d->pool, shares, share_one, &j);
	if (floats < SMALL_MERGE) /* not worth waking a thread */
		for (int64_t i = 0; i < shares; i++)
			merge_one(&j, i, 0);
	else
		pool_run(d->pool, shares, merge_one, &j);
	free(share);
	device_free(d, results, floats * 4);
	return 0;
}

static int run_items(struct device *d, struct attend_item *items, int64_t n)
{
	const struct cpu_kernels *kernels = cpu_device(d)->kernels;
	int64_t shares = 0, floats = 0, most = 0;
	bool whole = !kernels->attend_part || n >= 4 * pool_threads(d->pool) || pool_threads(d->pool) == 1;
	for (int64_t i = 0; i < n && !whole; i++) {
		int64_t parts = attend_parts(&items[i]);
		whole = parts == 0;
		shares += parts;
		floats += whole ? 0 : parts * kernels->part_floats(&items[i]);
	}
	if (!whole && shares > n && floats <= SHARED_FLOATS) {
		return run_shares(d, items, n, shares, floats);
	}
	for (int64_t i = 0; i < n; i++)
		most = items[i].queries > most ? items[i].queries : most;
	qsort(items, (size_t)n, sizeof *items, most == 1 ? by_keys : by_rows);
	pool_run_near(d->pool, n, attend_one, &(struct attend_job){kernels, d, items, NULL});
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

int cpu_attention(struct queue *q, int layer, const struct attn_seq *seqs, int n, struct tensor *out, const struct tensor *x,
	int64_t qcol, int heads, struct tensor *lse)
{
	struct device *d = q->d;
	int kv_heads = seqs[0].tail->heads, head_dim = seqs[0].tail->head_dim, g = heads / kv_heads;
	int64_t total = 0;
	for (int i = 0; i < n; i++)
		total += query_blocks(d, g, seqs[i].rows) * kv_heads;
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
				.lse = lse ? lse->x + s->row0 * lse->cols + h * g : NULL,
				.lse_ld = lse ? lse->cols : 0};
			if (out->operand && cpu_has_blocks(d)) {
				a.operand = (uint16_t *)out->x;
				a.operand_blocks = operand_blocks(out);
				a.row0 = s->row0;
				a.col0 = h * g * head_dim;
			} else {
				a.out = out->x + s->row0 * out->cols + h * g * head_dim;
				a.out_ld = out->cols;
			}
			sequence_segments(&a, s, layer, h);
			used += add_items(d, items + used, &a);
		}
	int rc = run_items(d, items, used);
	free(items);
	return rc;
}

static struct segment range_segment(const struct key_range *r, int layer, int head)
{
	return (struct segment){
		kv_row(r->kv, r->kv->k, layer, head, r->first), kv_row(r->kv, r->kv->v, layer, head, r->first), NULL, r->n};
}

int cpu_attn_lse(struct queue *q, int layer, const struct key_set *keys, const struct tensor *x, int64_t row0, int64_t rows,
	int64_t qcol, int heads, struct tensor *lse)
{
	struct device *d = q->d;
	const struct key_range *last = &keys->range[keys->n - 1];
	int kv_heads = last->kv->heads, head_dim = last->kv->head_dim, g = heads / kv_heads;
	struct attend_item *items = mem_new((size_t)(query_blocks(d, g, rows) * kv_heads), sizeof *items);
	int64_t used = 0;
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
		used += add_items(d, items + used, &a);
	}
	int rc = run_items(d, items, used);
	free(items);
	return rc;
}

/* ---- probabilities reduced over queries ---- */

struct reduce_job {
	struct device *d;
	struct reduce_item whole; /* of head 0, pointers at column 0 of the range */
	const struct key_range *range;
	int layer, kv_heads;
	int64_t col0, cols, block, seen; /* block: keys of an item; seen: keys of the range that query 0 sees */
	struct tensor *out;
	int64_t out_col;
};

/* Keys of an item, of so many (key, head) pairs in all: every item reads all queries, so few items, but enough for every thread. */
static int64_t reduce_block(const struct device *d, int64_t pairs)
{
	const struct cpu_kernels *kernels = ((const struct cpu_device *)d)->kernels;
	int64_t share = pairs / (4 * pool_threads(d->pool)) / ATTN_BLOCK * ATTN_BLOCK;
	return share < kernels->reduce_keys ? kernels->reduce_keys : share > kernels->reduce_most ? kernels->reduce_most : share;
}

static void reduce_one(void *arg, int64_t item, int thread)
{
	struct reduce_job *j = arg;
	int h = (int)(item % j->kv_heads);
	const struct cpu_kernels *kernels = cpu_device(j->d)->kernels;
	int64_t c = item / j->kv_heads * j->block, first = j->col0 + c;
	struct reduce_item a = j->whole;
	a.keys = range_segment(j->range, j->layer, h);
	a.keys.k = (const char *)a.keys.k + first * a.d * kv_element(j->d);
	a.keys.n = j->cols - c < j->block ? j->cols - c : j->block;
	a.seen = j->seen - first;
	a.q += h * a.g * a.d;
	a.lse += h * a.g;
	a.out = j->out->x + (a.group == GROUP_NONE ? h * a.g : h) * j->out->cols + j->out_col + c;
	kernels->reduce(&a, cpu_scratch(j->d, thread));
}

int cpu_attn_reduce(struct queue *q, int layer, const struct key_set *keys, int which, int64_t col0, int64_t cols,
	const struct tensor *x, int64_t row0, int64_t rows, int64_t qcol, int heads, const struct tensor *lse, int64_t lse_row0,
	enum attn_reduce reduce, enum attn_group group, struct tensor *out, int64_t out_col)
{
	struct device *d = q->d;
	const struct key_range *range = &keys->range[which];
	int kv_heads = range->kv->heads, head_dim = range->kv->head_dim, g = heads / kv_heads;
	bool causal = keys->causal && which == keys->n - 1;
	struct reduce_job j = {.d = d,
		.range = range,
		.layer = layer,
		.kv_heads = kv_heads,
		.col0 = col0,
		.cols = cols,
		.block = reduce_block(d, cols * kv_heads),
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
	pool_run(d->pool, (cols + j.block - 1) / j.block * kv_heads, reduce_one, &j);
	return 0;
}
