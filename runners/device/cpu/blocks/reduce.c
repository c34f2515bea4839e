/* reduce.c: probabilities of one key block reduced over queries: logits by tiles, exponentials and sums in fp32.
 *
 * Unlike attention it keeps p in fp32: scores decide an order, and bf16 would make ties. Rows go in ascending order; each key has
 * one accumulator. */
#include "runners/device/cpu/blocks/attention.h"

/* 2^x on [0, 1): 1 + P1 x + ... + P5 x^5 */
static const float P1 = 0.693151295f, P2 = 0.240164444f, P3 = 0.0557999127f, P4 = 0.00901703071f, P5 = 0.00186713005f;

struct reduction {
	const struct reduce_item *a;
	uint16_t *keys, *queries; /* queries: one row block */
	float *logits;            /* [32][KEYS] of the keys at work */
	float *sums;              /* [outs][width] */
	float *most;              /* [width] of a query over the heads of the group */
	int64_t width;            /* keys, padded to a multiple of KEYS */
};

/* 2^x by the unit that scales: whole part apart, a polynomial of degree 5 on [0, 1) with p(0) = 1. Relative error 2e-7; NaN stays. */
INLINE vf exp2_scaled(vf x)
{
	vf r = (vf)_mm512_reduce_ps((__m512)x, 1); /* minus its floor */
	vf p = vf_set(P5);
	p = vf_fma(p, r, vf_set(P4));
	p = vf_fma(p, r, vf_set(P3));
	p = vf_fma(p, r, vf_set(P2));
	p = vf_fma(p, r, vf_set(P1));
	p = vf_fma(p, r, vf_set(1));
	return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
}

/* p of one row's KEYS logits into target: adds weight p, or takes the larger. Keys from `seen` on are left. */
INLINE void row_into(float *target, const float *logits, int64_t seen, float units, float lse2, bool max, float weight)
{
	vf p[KEYS / VL];
#pragma GCC unroll 4
	for (int j = 0; j < KEYS / VL; j++)
		p[j] = exp2_scaled(vf_fma(vf_load(logits + j * VL), vf_set(units), vf_set(-lse2)));
	if (seen < KEYS)
		for (int j = 0; j < KEYS / VL; j++)
			p[j] = vf_first(p[j], seen - j * VL, 0);
#pragma GCC unroll 4
	for (int j = 0; j < KEYS / VL; j++) {
		vf t = vf_load(target + j * VL);
		vf_store(target + j * VL, max ? vf_max(t, p[j]) : vf_fma(p[j], vf_set(weight), t));
	}
}

static void most_into(const struct reduction *w, int64_t key)
{
	for (int64_t j = key; j < key + KEYS; j += VL) {
		vf t = vf_load(w->sums + j), m = vf_load(w->most + j);
		vf_store(w->sums + j, w->a->reduce == REDUCE_MAX ? vf_max(t, m) : t + m);
	}
}

/* Keys of the item that row r sees; negative: it ends before them. */
INLINE int64_t row_sees(const struct reduce_item *a, int64_t r)
{
	int64_t seen = a->seen + (a->causal ? r / a->g : 0);
	return seen > a->keys.n ? a->keys.n : seen;
}

/* A row (query, head of the group) of the block at work */
struct row {
	int head;
	int64_t seen; /* keys of the item */
	float lse2;   /* log-sum-exp, in log2 */
};

/* Logits of the KEYS keys from `key` on, of which the row sees some. */
static void row_reduce(const struct reduction *w, const struct row *r, const float *logits, int64_t key)
{
	const struct reduce_item *a = w->a;
	float units = a->scale * LOG2E, *sums = w->sums + (a->group == GROUP_NONE ? r->head : 0) * w->width + key, *most = w->most + key;
	if (a->group == GROUP_MAX) {
		if (r->head == 0)
			memset(most, 0, KEYS * sizeof *most);
		row_into(most, logits, r->seen - key, units, r->lse2, true, 1);
		if (r->head == a->g - 1)
			most_into(w, key);
	} else if (a->reduce == REDUCE_MAX)
		row_into(sums, logits, r->seen - key, units, r->lse2, true, 1);
	else
		row_into(sums, logits, r->seen - key, units, r->lse2, false, a->group == GROUP_MEAN ? 1 / (float)a->g : 1);
}

/* Row r of the item, to row i of the block: a block need not start with a query's first head. */
static void row_start(const struct reduction *w, struct row *row, int64_t i, int64_t r)
{
	const struct reduce_item *a = w->a;
	int64_t query = r / a->g;
	int head = (int)(r % a->g);
	*row = (struct row){head, row_sees(a, r), a->lse[query * a->lse_ld + head] * LOG2E};
	ISA(query_pack)(w->queries, i, a->q + query * a->q_ld + head * a->d, a->d);
}

/* 32 rows from r0 on: KEYS keys at a time, as many as the last row sees. */
static void block_reduce(const struct reduction *w, int64_t r0, int64_t n)
{
	int64_t d_blocks = blocks_of(w->a->d);
	struct row rows[BLOCK];
	if (row_sees(w->a, r0 + n - 1) <= 0)
		return;
	for (int64_t i = 0; i < n; i++)
		row_start(w, &rows[i], i, r0 + i);
	for (int64_t key = 0; key < rows[n - 1].seen; key += KEYS) {
		for (int64_t j = 0; j < KEYS; j += BLOCK) {
			const uint16_t *keys = w->keys + (key + j) * d_blocks * BLOCK;
			if (n > 16)
				logits_block(true, n, w->queries, keys, d_blocks, w->logits + j, KEYS);
			else
				logits_block(false, n, w->queries, keys, d_blocks, w->logits + j, KEYS);
		}
		for (int64_t i = 0; i < n; i++)
			if (rows[i].seen > key)
				row_reduce(w, &rows[i], w->logits + i * KEYS, key);
	}
}

void ISA(reduce)(const struct reduce_item *a, void *scratch)
{
	int64_t rows = a->queries * a->g, n = a->keys.n, width = round_up(n, KEYS), d = blocks_of(a->d) * BLOCK;
	int outs = a->group == GROUP_NONE ? a->g : 1;
	struct reduction w = {.a = a, .logits = scratch, .width = width};
	w.keys = (uint16_t *)(w.logits + BLOCK * KEYS);
	w.queries = w.keys + width * d;
	w.most = (float *)(w.queries + BLOCK * d);
	w.sums = w.most + width;
	ISA(keys_pack)(w.keys, &a->keys, 0, n, n, a->d);
	memset(w.queries, 0, (size_t)(BLOCK * d) * sizeof *w.queries);
	for (int h = 0; h < outs; h++)
		memcpy(w.sums + h * width, a->out + h * a->out_ld, (size_t)n * sizeof *w.sums);
	unit_begin();
	for (int64_t r0 = 0; r0 < rows; r0 += BLOCK)
		block_reduce(&w, r0, rows - r0 < BLOCK ? rows - r0 : BLOCK);
	unit_end();
	for (int h = 0; h < outs; h++)
		memcpy(a->out + h * a->out_ld, w.sums + h * width, (size_t)n * sizeof *w.sums);
}
