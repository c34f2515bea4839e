/* attention.c: attention with online softmax on AMX, in the items and parts of kernels/attention.c.
 *
 * A part's keys and values (at most ATTN_PART) are packed once an item into right tiles and stay in L2; blocks of 32 rows (query x
 * head of the group) pass over them, KEYS keys at a time: logits, softmax, out += P V, all in L1. Where products run beside vector
 * instructions the three stages work on three blocks of keys at once, some rows of softmax after every product.
 *
 * Logits are brought to units of 1/128 in log2, so that the exponent of 2^x is a whole number with 7 fraction bits: its upper part is
 * the exponent of a bf16, its lower seven bits choose the mantissa from a table. A row's maximum may be out of date by 2^8, which fp32 sums do not
 * mind, so that rescaling is rare; when it rises depends on the row alone. The whole numbers saturate: a masked key gives exactly
 * 0. A logit that is not a number, or too large for them, would be lost that way: where one is possible the rows are looked at,
 * and the sum of such a row becomes NaN.
 *
 * Two vectors of 16 keys leave the saturating pack interleaved by fours; V is packed in that order (pair_key). */
#include "runners/device/cpu/blocks/attention.h"

enum {
	FRACTION = 128,       /* units of a logit: 1/128 in log2 */
	ONE = 127 * FRACTION, /* 2^0 as a whole number */
	LATE = 8 * FRACTION   /* how far a maximum may be behind */
};
static const float NO_MAX = -1e9f;   /* below every logit, and in the range of int32 */
static const float MASKED = -1e30f;
static const float TOO_LARGE = 1e9f; /* a logit the whole numbers do not hold */

/* round(128 (2^(i/128) - 1)), at most 127 */
static const uint8_t mantissa[128] __attribute__((aligned(64))) = {0, 1, 1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12, 12, 13, 14,
	15, 15, 16, 17, 18, 19, 19, 20, 21, 22, 23, 23, 24, 25, 26, 27, 28, 28, 29, 30, 31, 32, 33, 34, 34, 35, 36, 37, 38, 39, 40,
	41, 42, 43, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70,
	72, 73, 74, 75, 76, 77, 78, 79, 80, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 96, 97, 98, 99, 100, 102, 103, 104, 105,
	107, 108, 109, 111, 112, 113, 115, 116, 117, 118, 120, 121, 123, 124, 125, 127};

/* Result of some keys, for all rows of an item: out [row blocks][d_blocks][4 tiles]; of each row */
struct online {
	float *out;
	float *max; /* near the largest logit so far, in units, minus ONE */
	float *sum; /* of 2^(logit - max); 0 = the row has seen no key */
};

struct work {
	uint16_t *keys, *values, *queries;
	float *logits; /* [2][32][KEYS]: of the keys at work and of those before or after */
	uint16_t *p;   /* [2][KEYS/32][32][32] */
	__m512 *sums;  /* [32] of the row block at work, 16 partial ones a row */
	struct online part, total;
	float most_query;
	float units; /* of a plain logit: scale log2 e FRACTION */
};

INLINE bool wants(const struct attend_item *a) /* more than the log-sum-exp */
{
	return a->out || a->operand;
}

static int64_t item_blocks(const struct attend_item *a)
{
	return blocks_of(a->queries * a->g);
}

static struct online online_at(float *at, const struct attend_item *a)
{
	int64_t rows = item_blocks(a) * BLOCK, d = blocks_of(a->d) * BLOCK;
	return (struct online){at, at + rows * d, at + rows * (d + 1)};
}

/* Of one part's result; a multiple of 16, so that every result is aligned. */
int64_t ISA(part_floats)(const struct attend_item *a)
{
	return item_blocks(a) * BLOCK * (blocks_of(a->d) * BLOCK + 2);
}

static struct work work_in(void *scratch, const struct attend_item *a)
{
	int64_t d = blocks_of(a->d) * BLOCK, rows = item_blocks(a) * BLOCK;
	struct work w = {.logits = scratch, .units = a->scale * LOG2E * FRACTION};
	w.p = (uint16_t *)(w.logits + 2 * BLOCK * KEYS);
	w.sums = (__m512 *)(w.p + 2 * BLOCK * KEYS);
	w.keys = (uint16_t *)(w.sums + BLOCK);
	w.values = w.keys + ATTN_PART * d;
	w.queries = w.values + ATTN_PART * d;
	float *results = (float *)(w.queries + rows * d);
	w.part = online_at(results, a);
	w.total = online_at(results + ISA(part_floats)(a), a);
	return w;
}

static void online_clear(const struct attend_item *a, struct online *o)
{
	int64_t rows = item_blocks(a) * BLOCK;
	memset(o->out, 0, (size_t)(rows * blocks_of(a->d) * BLOCK) * sizeof *o->out);
	for (int64_t r = 0; r < rows; r++) {
		o->max[r] = NO_MAX;
		o->sum[r] = 0;
	}
}

/* ---- one row block against KEYS keys ---- */

/* Logits in units minus max, as whole numbers: negative ones, masked keys too, saturate to 0 = +0.0. */
INLINE __m512i whole(const float *logits, __m512 units, __m512 max)
{
	return _mm512_packus_epi32(_mm512_cvtps_epi32(_mm512_fmsub_ps(_mm512_load_ps(logits), units, max)),
		_mm512_cvtps_epi32(_mm512_fmsub_ps(_mm512_load_ps(logits + 16), units, max)));
}

/* 2^x of one row to p and into its sums. false: its maximum must rise first. */
INLINE bool softmax_row(const float *logits, uint16_t *p, float units, float max, __m512 *sum)
{
	const __m512i t0 = _mm512_load_si512(mantissa), t1 = _mm512_load_si512(mantissa + 64), low = _mm512_set1_epi16(127);
	__m512i x[KEYS / BLOCK], most = _mm512_setzero_si512();
	__m512 m = _mm512_set1_ps(max), u = _mm512_set1_ps(units);
#pragma GCC unroll 2
	for (int j = 0; j < KEYS / BLOCK; j++) {
		x[j] = whole(logits + j * BLOCK, u, m);
		most = _mm512_max_epu16(most, x[j]);
	}
	if (__builtin_expect(_mm512_cmpgt_epu16_mask(most, _mm512_set1_epi16(ONE + LATE)) != 0, 0))
		return false;
#pragma GCC unroll 2
	for (int j = 0; j < KEYS / BLOCK; j++) {
		__m512i e = _mm512_ternarylogic_epi64(low, _mm512_permutex2var_epi8(t0, x[j], t1), x[j], 0xca); /* low ? mantissa : x */
		*sum = _mm512_dpbf16_ps(*sum, (__m512bh)e, (__m512bh)_mm512_set1_epi16(0x3f80));
		_mm512_store_si512(p + j * BLOCK_VALUES, e);
	}
	return true;
}

/* Brings row i of a block to the maximum of these logits. */
static __attribute__((noinline)) void raise_row(const float *logits, float units, int64_t i, int64_t d_blocks, float *out, float *max, __m512 *sum)
{
	__m512 most = _mm512_load_ps(logits);
	for (int j = 16; j < KEYS; j += 16)
		most = _mm512_max_ps(most, _mm512_load_ps(logits + j));
	float risen = _mm512_reduce_max_ps(most) * units - ONE;
	if (*max != NO_MAX) {
		__m512 f = (__m512)vf_exp2(vf_set((*max - risen) / FRACTION));
		*sum = _mm512_mul_ps(*sum, f);
		for (int64_t b = 0; b < d_blocks; b++)
			for (int h = 0; h < 2; h++) {
				float *o = out + b * BLOCK_VALUES + sums_row(i) + h * TILE_VALUES;
				_mm512_store_ps(o, _mm512_mul_ps(_mm512_load_ps(o), f));
			}
	}
	*max = risen;
}

/* Keys of segment s that row r sees. */
INLINE int64_t row_sees(const struct attend_item *a, int s, int64_t r)
{
	if (s < a->n_seg - 1)
		return a->seg[s].n;
	int64_t n = a->seen + (a->causal ? r / a->g : 0);
	return n < 0 ? 0 : n > a->seg[s].n ? a->seg[s].n : n;
}

INLINE void mask_row(float *logits, int64_t seen) /* without branches: no two rows see the same */
{
	uint64_t masked = seen <= 0 ? ~0ull : seen >= 64 ? 0 : ~0ull << seen;
	for (int64_t j = 0; j < KEYS; j += 16, masked >>= 16)
		_mm512_mask_storeu_ps(logits + j, (__mmask16)masked, _mm512_set1_ps(MASKED));
}

/* A seen logit that is lost as a whole number. */
static __attribute__((noinline)) bool row_is_lost(const float *logits, float units, int64_t seen)
{
	for (int64_t j = 0; j < KEYS && j < seen; j++)
		if (!(fabsf(logits[j]) * units < TOO_LARGE))
			return true;
	return false;
}

/* Packs keys [first, first + n) of segment s and their values; keys before `end` come next. Returns whether a logit may be lost. */
static bool pack_context(const struct attend_item *a, const struct work *w, int s, int64_t first, int64_t n, int64_t end)
{
	float most = ISA(keys_pack)(w->keys, &a->seg[s], first, n, end, a->d);
	if (wants(a))
		ISA(values_pack)(w->values, &a->seg[s], first, n, end, a->d);
	return !(most * w->most_query * (float)a->d * w->units < TOO_LARGE); /* NaN and infinite too */
}

INLINE int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Keys [key, end) come next: up to `most` of them are asked for now, so that memory does not rest while the block before them is multiplied.
 * Returns the first that is left. */
INLINE int64_t ask_ahead(const struct attend_item *a, const struct segment *s, int64_t key, int64_t end, int64_t most)
{
	for (end = smaller(end, key + most); key < end; key++) {
		prefetch_row(s->k, s, key, a->d);
		if (wants(a))
			prefetch_row(s->v, s, key, a->d);
	}
	return key;
}

/* A row block at work: rows [row0, row0 + rows) of the item over keys up to `end` of segment s. */
struct block {
	const struct attend_item *a;
	const struct work *w;
	const uint16_t *q;
	float *out, *max; /* in w->part */
	int64_t row0, rows, d_blocks, end;
	int s;
	bool lost[BLOCK]; /* a logit of the row is lost */
};

static struct block block_start(const struct attend_item *a, const struct work *w, int s, int64_t first, int64_t end, int64_t rb)
{
	int64_t d_blocks = blocks_of(a->d), left = a->queries * a->g - rb * BLOCK, size = rb * d_blocks * BLOCK_VALUES;
	struct block b = {.a = a, .w = w, .q = w->queries + size, .out = w->part.out + size, .max = w->part.max + rb * BLOCK, .row0 = rb * BLOCK,
		.rows = smaller(left, BLOCK), .d_blocks = d_blocks, .s = s};
	b.end = smaller(end, row_sees(a, s, b.row0 + b.rows - 1)); /* of what its last row sees */
	for (int64_t i = 0; i < BLOCK; i++) {
		w->sums[i] = _mm512_setzero_ps();
		b.max[i] = NO_MAX;
	}
	if (b.end <= first)
		memset(b.out, 0, (size_t)(d_blocks * BLOCK_VALUES) * sizeof *b.out);
	return b;
}

static void block_finish(const struct block *b)
{
	for (int64_t i = 0; i < b->rows; i++)
		b->w->part.sum[b->row0 + i] = b->lost[i] ? NAN : _mm512_reduce_add_ps(b->w->sums[i]);
}

/* Logits of the KEYS keys from `key` on: those that are lost, and those of keys a row does not see. suspect: a logit may be lost. */
INLINE void block_mask(struct block *b, float *logits, int64_t key, int64_t end, bool suspect)
{
	if (!suspect && row_sees(b->a, b->s, b->row0) - key >= KEYS && end - key >= KEYS)
		return;
	for (int64_t i = 0; i < b->rows; i++) {
		int64_t seen = smaller(row_sees(b->a, b->s, b->row0 + i), end) - key;
		if (suspect && row_is_lost(logits + i * KEYS, b->w->units, seen))
			b->lost[i] = true;
		mask_row(logits + i * KEYS, seen);
	}
}

/* Row i after its maximum has risen. */
INLINE void block_raise(struct block *b, const float *logits, uint16_t *p, int64_t i)
{
	const struct work *w = b->w;
	raise_row(logits + i * KEYS, w->units, i, b->d_blocks, b->out, &b->max[i], &w->sums[i]);
	b->lost[i] |= !softmax_row(logits + i * KEYS, p + i * BLOCK, w->units, b->max[i], &w->sums[i]);
}

/* Row block rb over the keys [first, end) of segment s, into w->part. They are packed (suspect: a logit may be lost); or the block
 * is alone, and KEYS at a time are packed on the way, so that they never leave L1. */
INLINE void attend_block(bool many, bool alone, const struct attend_item *a, const struct work *w, int s, int64_t first, int64_t end,
	int64_t rb, bool suspect)
{
	struct block b = block_start(a, w, s, first, end, rb);
	for (int64_t key = first; key < b.end; key += KEYS) {
		int64_t packed = alone ? 0 : (key - first) * b.d_blocks * BLOCK;
		const uint16_t *keys = w->keys + packed;
		int64_t here = smaller(end, key + KEYS), next = here, after = alone ? smaller(end, next + KEYS) : next,
			share = KEYS / (b.rows + KEYS / BLOCK) + 1;
		if (alone) /* only the first keys were asked for by nobody */
			suspect = pack_context(a, w, s, key, here - key, key == first ? here : key);
#pragma GCC unroll 2
		for (int k = 0; k < KEYS / BLOCK; k++) {
			next = ask_ahead(a, &a->seg[s], next, after, share);
			logits_block(many, b.rows, b.q, keys + k * b.d_blocks * BLOCK_VALUES, b.d_blocks, w->logits + k * BLOCK, KEYS);
		}
		block_mask(&b, w->logits, key, end, suspect);
		for (int64_t i = 0; i < b.rows; i++) {
			next = ask_ahead(a, &a->seg[s], next, after, share);
			if (!softmax_row(w->logits + i * KEYS, w->p + i * BLOCK, w->units, b.max[i], &w->sums[i]))
				block_raise(&b, w->logits, w->p, i);
		}
		if (wants(a))
			values_block(many, b.rows, key == first, b.out, w->p, w->values + packed, b.d_blocks);
	}
	block_finish(&b);
}

#ifdef UNIT_OVERLAPS
/* What the three stages of attend_overlapped work on. */
struct stages {
	const uint16_t *keys; /* whose logits are made, to `next`; NULL = no more */
	float *next, *logits; /* logits: softmax's, to p */
	uint16_t *p;
	const uint16_t *values, *before; /* values of the keys before, and their probabilities; NULL = none, or not wanted */
	bool fresh;
};

/* Softmax of the rows of a product, marking those whose maximum must rise: values of the keys before may still be on their way to `out`. */
INLINE uint32_t softmax_rows(const struct block *b, const struct stages *s, int64_t row, int64_t until)
{
	uint32_t late = 0;
	for (until = smaller(until, b->rows); row < until; row++)
		late |= (uint32_t)!softmax_row(s->logits + row * KEYS, s->p + row * BLOCK, b->w->units, b->max[row], &b->w->sums[row]) << row;
	return late;
}

INLINE uint32_t stages_run(const struct block *b, const struct stages *s, int64_t d_blocks)
{
	int64_t groups = product_groups(d_blocks), row = 0;
	uint32_t late = 0;
#define ROWS_OF(i)                                                                                                               \
	do {                                                                                                                     \
		int64_t next = (4 * g + i + 1) * BLOCK / (8 * groups);                                                           \
		late |= softmax_rows(b, s, row, next);                                                                           \
		row = next;                                                                                                      \
	} while (0)
	for (int64_t g = 0; g < groups; g++)
		if (s->keys)
			LOGITS_GROUP(ROWS_OF, g, b->q, s->keys, d_blocks, s->next);
	for (int64_t g = groups; g < 2 * groups; g++)
		if (s->values)
			VALUES_GROUP(ROWS_OF, g - groups, s->fresh, b->out, s->before, s->values, d_blocks);
#undef ROWS_OF
	return late | softmax_rows(b, s, row, BLOCK);
}

/* As attend_block over packed keys, bit for bit; a block of more than 16 rows. Logits of the next keys, softmax of these and values of
 * those before run side by side. */
INLINE void overlapped(int64_t d_blocks, const struct attend_item *a, const struct work *w, int s, int64_t first, int64_t end, int64_t rb,
	bool suspect)
{
	struct block b = block_start(a, w, s, first, end, rb);
	int64_t groups = product_groups(d_blocks), step = d_blocks * BLOCK * KEYS;
	const uint16_t *keys = w->keys, *values = w->values;
	for (int64_t g = 0; g < groups && first < b.end; g++)
		LOGITS_GROUP(NOTHING, g, b.q, keys, d_blocks, w->logits);
	for (int64_t key = first, turn = 0; key < b.end; key += KEYS, turn ^= 1, keys += step, values += step) {
		float *logits = w->logits + turn * BLOCK * KEYS;
		uint16_t *p = w->p + turn * BLOCK * KEYS;
		bool last = key + KEYS >= b.end;
		block_mask(&b, logits, key, end, suspect);
		for (int64_t i = 0; i < b.rows && key == first; i++) /* the maximum of a row that sees any rises: not worth the try */
			if (row_sees(a, s, b.row0 + i) > first)
				raise_row(logits + i * KEYS, w->units, i, b.d_blocks, b.out, &b.max[i], &w->sums[i]);
		uint32_t late = stages_run(&b, &(struct stages){last ? NULL : keys + step, w->logits + (turn ^ 1) * BLOCK * KEYS, logits, p,
			key > first && wants(a) ? values - step : NULL, w->p + (turn ^ 1) * BLOCK * KEYS, key == first + KEYS}, d_blocks);
		for (; late; late &= late - 1)
			block_raise(&b, logits, p, __builtin_ctz(late));
		for (int64_t g = 0; g < groups && last && wants(a); g++)
			VALUES_GROUP(NOTHING, g, key == first, b.out, p, values, d_blocks);
	}
	block_finish(&b);
}

static void attend_overlapped(const struct attend_item *a, const struct work *w, int s, int64_t first, int64_t end, int64_t rb, bool suspect)
{
	if (a->d == 64)
		overlapped(2, a, w, s, first, end, rb, suspect);
	else if (a->d == 128)
		overlapped(4, a, w, s, first, end, rb, suspect);
	else
		overlapped(blocks_of(a->d), a, w, s, first, end, rb, suspect);
}
#else
INLINE void attend_overlapped(const struct attend_item *a, const struct work *w, int s, int64_t first, int64_t end, int64_t rb, bool suspect)
{
	attend_block(true, false, a, w, s, first, end, rb, suspect);
}
#endif

/* All rows over keys [first, end) of segment s. */
static void attend_keys(const struct attend_item *a, const struct work *w, int s, int64_t first, int64_t end)
{
	int64_t rows = a->queries * a->g;
	if (rows <= 16) {
		attend_block(false, true, a, w, s, first, end, 0, false);
		return;
	}
	bool suspect = pack_context(a, w, s, first, end - first, end);
	for (int64_t rb = 0; rb < item_blocks(a); rb++)
		if (rows - rb * BLOCK > 16)
			attend_overlapped(a, w, s, first, end, rb, suspect);
		else
			attend_block(false, false, a, w, s, first, end, rb, suspect);
}

/* ---- parts to the whole ---- */

static int64_t out_row(int64_t r, int64_t d_blocks)
{
	return r / BLOCK * d_blocks * BLOCK_VALUES + sums_row(r % BLOCK);
}

/* Row r of a total that has seen no key yet: the part itself. */
static void take_row(struct online *total, const struct online *part, int64_t r, int64_t d_blocks)
{
	int64_t at = out_row(r, d_blocks);
	for (int64_t b = 0; b < d_blocks; b++, at += BLOCK_VALUES)
		for (int h = 0; h < 2; h++)
			vf_store(total->out + at + h * TILE_VALUES, vf_load(part->out + at + h * TILE_VALUES));
	total->sum[r] = part->sum[r];
	total->max[r] = part->max[r];
}

/* Row r of total += part, both brought to the larger maximum: total * keep + part * add. */
static void merge_row(struct online *total, const struct online *part, int64_t r, int64_t d_blocks, float keep, float add)
{
	int64_t at = out_row(r, d_blocks);
	for (int64_t b = 0; b < d_blocks; b++, at += BLOCK_VALUES)
		for (int h = 0; h < 2; h++) {
			float *out = total->out + at + h * TILE_VALUES;
			vf_store(out, vf_fma(vf_load(part->out + at + h * TILE_VALUES), vf_set(add), vf_load(out) * vf_set(keep)));
		}
	total->sum[r] = total->sum[r] * keep + part->sum[r] * add;
	total->max[r] = part->max[r] <= total->max[r] ? total->max[r] : part->max[r];
}

/* Parts come in ascending order, so the bits do not depend on who made them. */
static void merge(const struct attend_item *a, struct online *total, const struct online *part)
{
	int64_t rows = a->queries * a->g;
	for (int64_t r0 = 0; r0 < rows; r0 += VL) {
		vf old = vf_load(total->max + r0), new = vf_load(part->max + r0), m = vf_max(old, new);
		vf keep = vf_exp2((old - m) * (1.0f / FRACTION)), add = vf_exp2((new - m) * (1.0f / FRACTION));
		for (int64_t i = 0; i < VL && r0 + i < rows; i++)
			if (part->sum[r0 + i] == 0)
				continue; /* the row sees none of these keys */
			else if (total->sum[r0 + i] == 0)
				take_row(total, part, r0 + i, blocks_of(a->d));
			else
				merge_row(total, part, r0 + i, blocks_of(a->d), keep[i], add[i]);
	}
}

/* Row r's channels, divided by its sum, to plain rows or to the operand. */
static void finish_row(const struct attend_item *a, const struct online *total, int64_t r)
{
	int64_t d_blocks = blocks_of(a->d), query = r / a->g, col = r % a->g * a->d;
	const float *o = total->out + out_row(r, d_blocks);
	vf inverse = vf_set(1 / total->sum[r]);
	for (int t = 0; t < a->d; t += BLOCK, o += BLOCK_VALUES) {
		vf x = vf_load(o) * inverse, y = vf_load(o + TILE_VALUES) * inverse;
		__mmask32 have = channels_left(a->d, t);
		if (a->operand) {
			int64_t row = a->row0 + query, c = a->col0 + col + t;
			uint16_t *to = a->operand + (row / BLOCK * a->operand_blocks + c / BLOCK) * BLOCK_VALUES + row % BLOCK * BLOCK + c % BLOCK;
			__m512i v = bf16_pair(x, y);
			int64_t fits = BLOCK - c % BLOCK; /* of narrow heads a piece may cross into the next block */
			__mmask32 here = fits == BLOCK ? have : have & ((1u << fits) - 1);
			_mm512_mask_storeu_epi16(to, here, v);
			if (have & ~here)
				_mm512_mask_storeu_epi16(to + BLOCK_VALUES - BLOCK, have & ~here, v);
		} else {
			_mm512_mask_storeu_ps(a->out + query * a->out_ld + col + t, (__mmask16)have, (__m512)x);
			_mm512_mask_storeu_ps(a->out + query * a->out_ld + col + t + 16, (__mmask16)(have >> 16), (__m512)y);
		}
	}
}

static void finish(const struct attend_item *a, const struct online *total)
{
	static const float LN2 = 0.69314718056f;
	for (int64_t r = 0; r < a->queries * a->g; r++) {
		if (wants(a))
			finish_row(a, total, r);
		if (a->lse)
			a->lse[r / a->g * a->lse_ld + r % a->g] = (total->max[r] + ONE) * (LN2 / FRACTION) + logf(total->sum[r]);
	}
}

/* ---- the kernels ---- */

static void pack_queries(const struct attend_item *a, struct work *w)
{
	w->most_query = ISA(queries_pack)(w->queries, a->q, a->q_ld, a->queries * a->g, a->g, a->d);
}

void ISA(attend)(const struct attend_item *a, void *scratch)
{
	struct work w = work_in(scratch, a);
	struct online total = w.total, part = w.part;
	int64_t done = 0;
	pack_queries(a, &w);
	unit_begin();
	for (int s = 0; s < a->n_seg; s++) {
		int64_t end = attend_end(a, s);
		for (int64_t first = 0; first < end; first += ATTN_PART, done++) {
			w.part = done ? part : total; /* merged with nothing a part would be itself */
			attend_keys(a, &w, s, first, end - first < ATTN_PART ? end : first + ATTN_PART);
			if (done)
				merge(a, &total, &part);
		}
	}
	if (!done)
		online_clear(a, &total);
	unit_end();
	finish(a, &total);
}

void ISA(attend_part)(const struct attend_item *a, int64_t part, float *result, void *scratch)
{
	struct work w = work_in(scratch, a);
	int s = 0;
	int64_t end = attend_end(a, 0);
	for (int64_t parts; part >= (parts = (end + ATTN_PART - 1) / ATTN_PART); end = attend_end(a, ++s))
		part -= parts;
	int64_t first = part * ATTN_PART;
	w.part = online_at(result, a);
	pack_queries(a, &w);
	unit_begin();
	attend_keys(a, &w, s, first, end - first < ATTN_PART ? end : first + ATTN_PART);
	unit_end();
}

void ISA(attend_merge)(const struct attend_item *a, const float *parts, void *scratch)
{
	struct work w = work_in(scratch, a);
	int64_t n = attend_parts(a);
	online_clear(a, &w.total);
	for (int64_t i = 0; i < n; i++) {
		struct online part = online_at((float *)parts + i * ISA(part_floats)(a), a);
		merge(a, &w.total, &part);
	}
	finish(a, &w.total);
}
