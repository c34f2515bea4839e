/* reduce.c: probabilities of one key block reduced over queries: logits by tiles, exponentials and sums in fp32.
 *
 * Unlike attention it keeps p in fp32: scores decide an order, and bf16 would make ties. Rows go in ascending order; each key has
 * one accumulator. */
#include "runners/device/cpu/amx/attention.h"

/* 2^x on [0, 1): 1 + P1 x + ... + P5 x^5 */
static const float P1 = 0.693151295f, P2 = 0.240164444f, P3 = 0.0557999127f, P4 = 0.00901703071f, P5 = 0.00186713005f;

struct reduction {
	const struct reduce_item *a;
	uint16_t *keys, *queries; /* queries: one row block */
	float *logits;            /* [32][width] */
	float *sums;              /* [outs][width] */
	float *most;              /* [width] of a query over the heads of the group */
	int64_t width;            /* keys, padded to a multiple of 64 */
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

/* p of one row into target: adds weight p, or takes the larger. Keys from `seen` on are left. */
INLINE void row_into(float *target, const float *logits, int64_t seen, float units, float lse2, bool max, float weight)
{
	for (int64_t j = 0; j < seen; j += VL) {
		vf p = exp2_scaled(vf_fma(vf_load(logits + j), vf_set(units), vf_set(-lse2))), t = vf_load(target + j);
		if (j + VL > seen)
			p = vf_first(p, seen - j, 0);
		vf_store(target + j, max ? vf_max(t, p) : vf_fma(p, vf_set(weight), t));
	}
}

static void most_into(const struct reduction *w)
{
	for (int64_t j = 0; j < w->width; j += VL) {
		vf t = vf_load(w->sums + j), m = vf_load(w->most + j);
		vf_store(w->sums + j, w->a->reduce == REDUCE_MAX ? vf_max(t, m) : t + m);
	}
}

static void row_reduce(const struct reduction *w, int64_t r, const float *logits)
{
	const struct reduce_item *a = w->a;
	int64_t query = r / a->g, h = r % a->g, seen = a->seen + (a->causal ? query : 0);
	bool max = a->reduce == REDUCE_MAX;
	float units = a->scale * LOG2E, lse2 = a->lse[query * a->lse_ld + h] * LOG2E;
	seen = seen < 0 ? 0 : seen > a->keys.n ? a->keys.n : seen;
	if (a->group == GROUP_MAX) {
		if (h == 0)
			memset(w->most, 0, (size_t)w->width * sizeof *w->most);
		row_into(w->most, logits, seen, units, lse2, true, 1);
		if (h == a->g - 1)
			most_into(w);
	} else if (max)
		row_into(w->sums + (a->group == GROUP_NONE ? h : 0) * w->width, logits, seen, units, lse2, true, 1);
	else
		row_into(w->sums + (a->group == GROUP_NONE ? h : 0) * w->width, logits, seen, units, lse2, false,
			a->group == GROUP_MEAN ? 1 / (float)a->g : 1);
}

/* Logits of 32 rows against all keys of the item. */
static void block_logits(const struct reduction *w, int64_t r0, int64_t rows)
{
	const struct reduce_item *a = w->a;
	int64_t d_blocks = blocks_of(a->d);
	for (int64_t i = 0; i < rows; i++) { /* a row block need not start with a query's first head */
		int64_t r = r0 + i;
		amx_pack_query(w->queries, i, a->q + r / a->g * a->q_ld + r % a->g * a->d, a->d);
	}
	for (int64_t j = 0; j < w->width; j += BLOCK) {
		const uint16_t *keys = w->keys + j * d_blocks * BLOCK;
		if (rows > 16)
			logits_block(true, w->queries, keys, d_blocks, w->logits + j, w->width);
		else
			logits_block(false, w->queries, keys, d_blocks, w->logits + j, w->width);
	}
}

void ISA(reduce)(const struct reduce_item *a, void *scratch)
{
	int64_t rows = a->queries * a->g, n = a->keys.n, width = round_up(n, 64), d = blocks_of(a->d) * BLOCK;
	int outs = a->group == GROUP_NONE ? a->g : 1;
	struct reduction w = {.a = a, .logits = scratch, .width = width};
	w.keys = (uint16_t *)(w.logits + BLOCK * width);
	w.queries = w.keys + width * d;
	w.most = (float *)(w.queries + BLOCK * d);
	w.sums = w.most + width;
	amx_pack_keys(w.keys, &a->keys, 0, n, a->d);
	memset(w.queries, 0, (size_t)(BLOCK * d) * sizeof *w.queries);
	for (int h = 0; h < outs; h++)
		memcpy(w.sums + h * width, a->out + h * a->out_ld, (size_t)n * sizeof *w.sums);
	tiles_configure(16);
	for (int64_t r0 = 0; r0 < rows; r0 += BLOCK) {
		int64_t in = rows - r0 < BLOCK ? rows - r0 : BLOCK;
		if (a->seen + (a->causal ? (r0 + in - 1) / a->g : 0) <= 0)
			continue;
		block_logits(&w, r0, in);
		for (int64_t i = 0; i < in; i++)
			row_reduce(&w, r0 + i, w.logits + i * width);
	}
	_tile_release();
	for (int h = 0; h < outs; h++)
		memcpy(a->out + h * a->out_ld, w.sums + h * width, (size_t)n * sizeof *w.sums);
}
