/* attention.c: tiled attention with online softmax, and probabilities reduced over queries.
 *
 * Key blocks of ATTN_BLOCK are packed once an item: K transposed into panels [TILE_COLS keys] of [d][TILE_COLS], V into panels of
 * [keys][TILE_COLS channels], both fp32. Where there are few rows (decoding), packing would cost more than it saves: they
 * read the cache itself. Rows (query x head of the group) go through in register tiles of at most TILE_ROWS:
 * logits = Q K^T (sum over channels, ascending), softmax of the tile, out += P V (sum over keys, ascending).
 * After ATTN_PART keys the result is merged into the row's total and the next part starts from nothing: parts can be computed by
 * different threads and merged afterwards, by the same code in the same order.
 * Keys a row does not see have p = 0 exactly, so a row's bits are the same whichever rows share its tile and however many keys
 * behind its own stand in the block. Logits are scaled inside 2^x: p = 2^(s c - m c), c = scale log2 e. */
#include "runners/device/cpu/kernels/simd.h"

enum {
	Q_LD = HEAD_DIM_MAX + 16, /* a constant row length lets the tile address its rows by displacement */
	D_MAX = HEAD_DIM_MAX,
	ROWS_MAX = 192, /* of an item */
};

/* ---- packing ---- */

INLINE int64_t row_of(const struct segment *s, int64_t key)
{
	return s->index ? s->index[key] : key;
}

INLINE vf load_channels(const void *base, int64_t at, bool bf16)
{
	return bf16 ? vf_from_bf16((const uint16_t *)base + at) : vf_load((const float *)base + at);
}
INLINE float load_channel(const void *base, int64_t at, bool bf16)
{
	return bf16 ? bf16_to(((const uint16_t *)base)[at]) : ((const float *)base)[at];
}

/* Where VL keys stand, from `key` on; those behind `end` repeat the last. */
INLINE void locate_keys(const char *row[VL], const struct segment *s, int64_t key, int64_t end, int d, bool bf16)
{
	for (int i = 0; i < VL; i++)
		row[i] = (const char *)s->k + row_of(s, key + i < end ? key + i : end - 1) * d * (bf16 ? 2 : 4);
}

/* Channels of VL keys, a vector a channel, from `t` on: so many as four words of the cache hold. */
#define CHANNELS(bf16) ((bf16) ? 2 * WORDS : WORDS)
INLINE void load_keys(vf *r, const char *const row[VL], int t, bool bf16)
{
	vf words[WORDS];
	columns_load(words, row, (int64_t)t * (bf16 ? 2 : 4));
#pragma GCC unroll 4
	for (int i = 0; i < WORDS; i++)
		if (bf16) {
			r[2 * i] = vf_even((vu)words[i]);
			r[2 * i + 1] = vf_odd((vu)words[i]);
		} else
			r[i] = words[i];
}
/* The last ones, where four words do not come out even. */
INLINE vf load_keys_channel(const char *const row[VL], int t, bool bf16)
{
	float x[VL];
	for (int i = 0; i < VL; i++)
		x[i] = load_channel(row[i], t, bf16);
	return vf_load(x);
}

/* Keys [first, first+n) to kp[key / TILE_COLS][d][TILE_COLS]. Columns behind n in the last group of VL repeat the last key: they
 * are masked. */
INLINE void pack_keys_as(bool bf16, float *kp, const struct segment *s, int64_t first, int64_t n, int d)
{
	for (int64_t j = 0; j < n; j += VL) {
		float *dst = kp + j / TILE_COLS * TILE_COLS * d + j % TILE_COLS;
		const char *row[VL];
		int t = 0, channels = CHANNELS(bf16);
		locate_keys(row, s, first + j, first + n, d, bf16);
		for (; t + channels <= d; t += channels) {
			vf r[CHANNELS(true)];
			load_keys(r, row, t, bf16);
#pragma GCC unroll 8
			for (int i = 0; i < channels; i++)
				vf_store(dst + (t + i) * TILE_COLS, r[i]);
		}
		for (; t < d; t++)
			vf_store(dst + t * TILE_COLS, load_keys_channel(row, t, bf16));
		if (j + VL >= n && j % TILE_COLS == 0) /* the tile reads both halves of the panel */
			for (t = 0; t < d; t++)
				vf_store(dst + t * TILE_COLS + VL, vf_set(0));
	}
}
static void pack_keys(float *kp, const struct segment *s, int64_t first, int64_t n, int d, bool bf16)
{
	if (bf16)
		pack_keys_as(true, kp, s, first, n, d);
	else
		pack_keys_as(false, kp, s, first, n, d);
}

/* Values to vp[channel / TILE_COLS][ATTN_BLOCK keys][TILE_COLS], zeros behind d. */
INLINE void pack_values_as(bool bf16, float *vp, const struct segment *s, int64_t first, int64_t n, int d)
{
	int64_t d_pad = round_up(d, TILE_COLS);
	for (int64_t key = 0; key < n; key++) {
		int64_t row = row_of(s, first + key) * d;
		int t = 0;
		for (; t + VL <= d; t += VL)
			vf_store(vp + (t / TILE_COLS * ATTN_BLOCK + key) * TILE_COLS + t % TILE_COLS,
				load_channels(s->v, row + t, bf16));
		for (; t < d_pad; t++)
			vp[(t / TILE_COLS * ATTN_BLOCK + key) * TILE_COLS + t % TILE_COLS] =
				t < d ? load_channel(s->v, row + t, bf16) : 0;
	}
}
static void pack_values(float *vp, const struct segment *s, int64_t first, int64_t n, int d, bool bf16)
{
	if (bf16)
		pack_values_as(true, vp, s, first, n, d);
	else
		pack_values_as(false, vp, s, first, n, d);
}

static void pack_query(float *dst, const float *q, int d, bool bf16)
{
	int t = 0;
	for (; t + VL <= d; t += VL)
		vf_store(dst + t, bf16 ? vf_round_bf16(vf_load(q + t)) : vf_load(q + t));
	for (; t < d; t++)
		dst[t] = bf16 ? bf16_round(q[t]) : q[t];
}

/* logits[rows][ATTN_BLOCK] of a row tile against the first n packed keys (whole panels). */
INLINE void logits_tile(int rows, const float *q, const float *kp, int64_t n, int d, float *logits)
{
	for (int64_t j = 0; j < n; j += TILE_COLS)
		tile_f32(rows, 2, q, Q_LD, 1, kp + j * d, TILE_COLS, d, logits + j, ATTN_BLOCK, false);
}
static void logits_of(int64_t rows, const float *q, const float *kp, int64_t n, int d, float *logits)
{
	FOR_ROWS(rows, logits_tile(ROWS, q, kp, n, d, logits));
}

/* out[rows][d_pad] += p[rows][ATTN_BLOCK] over n packed values */
INLINE void values_tile(int rows, const float *p, const float *vp, int64_t n, int64_t d_pad, float *out)
{
	for (int64_t t = 0; t < d_pad; t += TILE_COLS)
		tile_f32(rows, 2, p, ATTN_BLOCK, 1, vp + t * ATTN_BLOCK, TILE_COLS, n, out + t, d_pad, true);
}
static void add_values(int64_t rows, const float *p, const float *vp, int64_t n, int64_t d_pad, float *out)
{
	FOR_ROWS(rows, values_tile(ROWS, p, vp, n, d_pad, out));
}

/* ---- few rows (a token decoded): straight from the cache, in the same order of sums ---- */

enum {
	FEW = 12,      /* rows, of one tile or two */
	AHEAD = 2 * VL /* keys asked for before their turn, one by one through an index */
};
/* Sums wait for each other: of few rows, several times as many side by side. */
#define KEYS_FEW(rows) (2 * (rows) <= TILE_ROWS ? 2 * VL : VL)
#define CHANNELS_FEW(rows) (2 * (rows) <= TILE_ROWS ? 4 * VL : 2 * VL)
INLINE void prefetch_key(const void *base, const struct segment *s, int64_t key, int d, bool bf16)
{
	if (key >= s->n)
		return;
	const char *row = (const char *)base + row_of(s, key) * d * (bf16 ? 2 : 4);
	for (int64_t i = 0; i < d * (bf16 ? 2 : 4); i += 64)
		_mm_prefetch(row + i, _MM_HINT_T0);
}

/* sum[sides][rows] += the rows' channel x the same of VL keys a side */
INLINE void add_channel(int rows, int sides, vf (*sum)[TILE_ROWS], const float *q, const vf *keys)
{
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		vf x = vf_set(q[i * Q_LD]);
#pragma GCC unroll 2
		for (int side = 0; side < sides; side++)
			sum[side][i] = vf_fma(x, keys[side], sum[side][i]);
	}
}

/* logits[rows][ATTN_BLOCK] of KEYS_FEW(rows) keys from `key` on, VL a side; those behind `end` repeat the last. */
INLINE void logits_few(int rows, bool bf16, const float *q, const struct segment *s, int64_t key, int64_t end, int d, float *logits)
{
	enum { SIDES = 2 };
	const char *row[SIDES][VL];
	vf sum[SIDES][TILE_ROWS];
	int sides = KEYS_FEW(rows) / VL, channels = CHANNELS(bf16), t = 0;
#pragma GCC unroll 2
	for (int side = 0; side < sides; side++) {
		locate_keys(row[side], s, key + side * VL, end, d, bf16);
		for (int i = 0; i < VL; i++)
			prefetch_key(s->k, s, key + side * VL + i + AHEAD, d, bf16);
#pragma GCC unroll 12
		for (int i = 0; i < rows; i++)
			sum[side][i] = vf_set(0);
	}
	for (; t + channels <= d; t += channels) {
		vf r[SIDES][CHANNELS(true)];
#pragma GCC unroll 2
		for (int side = 0; side < sides; side++)
			load_keys(r[side], row[side], t, bf16);
#pragma GCC unroll 8
		for (int c = 0; c < channels; c++)
			add_channel(rows, sides, sum, q + t + c, (const vf[SIDES]){r[0][c], r[sides - 1][c]});
	}
	for (; t < d; t++)
		add_channel(rows, sides, sum, q + t,
			(const vf[SIDES]){load_keys_channel(row[0], t, bf16), load_keys_channel(row[sides - 1], t, bf16)});
#pragma GCC unroll 2
	for (int side = 0; side < sides; side++)
#pragma GCC unroll 12
		for (int i = 0; i < rows; i++)
			vf_store(logits + i * ATTN_BLOCK + side * VL, sum[side][i]);
}

/* VL channels of a value from channel t on, zeros behind d; `whole`: d is not met. */
INLINE vf value_channels(const void *base, int64_t row, int t, int d, bool whole, bool bf16)
{
	if (whole || t + VL <= d)
		return load_channels(base, row + t, bf16);
	float x[VL] = {0};
	for (int i = 0; t + i < d; i++)
		x[i] = load_channel(base, row + t + i, bf16);
	return vf_load(x);
}

/* out[rows][d_pad] += p[rows][ATTN_BLOCK] over n values from `key` on, channels [t, t + width) */
INLINE void values_few(int rows, int width, bool whole, bool bf16, const float *p, const struct segment *s, int64_t key, int64_t n, int d,
	int64_t d_pad, int t, float *out)
{
	vf sum[TILE_ROWS][ACROSS];
	int across = width / VL;
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int c = 0; c < across; c++)
			sum[i][c] = vf_load(out + i * d_pad + t + c * VL);
	for (int64_t j = 0; j < n; j++) {
		int64_t row = row_of(s, key + j) * d;
		if (t == 0)
			prefetch_key(s->v, s, key + j + AHEAD, d, bf16);
#pragma GCC unroll 4
		for (int c = 0; c < across; c++) {
			vf v = value_channels(s->v, row, t + c * VL, d, whole, bf16);
#pragma GCC unroll 12
			for (int i = 0; i < rows; i++)
				sum[i][c] = vf_fma(vf_set(p[i * ATTN_BLOCK + j]), v, sum[i][c]);
		}
	}
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int c = 0; c < across; c++)
			vf_store(out + i * d_pad + t + c * VL, sum[i][c]);
}

/* All channels. */
INLINE void values_across(int rows, bool bf16, const float *p, const struct segment *s, int64_t key, int64_t n, int d, int64_t d_pad, float *out)
{
	int t = 0;
	for (; t + CHANNELS_FEW(rows) <= d; t += CHANNELS_FEW(rows))
		values_few(rows, CHANNELS_FEW(rows), true, bf16, p, s, key, n, d, d_pad, t, out);
	for (; t < d_pad; t += TILE_COLS)
		values_few(rows, TILE_COLS, false, bf16, p, s, key, n, d, d_pad, t, out);
}

static void logits_of_few(int64_t rows, bool bf16, const float *q, const struct segment *s, int64_t first, int64_t n, int d, float *logits)
{
	for (int64_t j = 0; j < n; j += KEYS_FEW(rows))
		if (bf16)
			FOR_ROWS(rows, logits_few(ROWS, true, q, s, first + j, first + n, d, logits + j))
		else
			FOR_ROWS(rows, logits_few(ROWS, false, q, s, first + j, first + n, d, logits + j))
}
static void add_few_values(int64_t rows, bool bf16, const float *p, const struct segment *s, int64_t first, int64_t n, int d, int64_t d_pad, float *out)
{
	if (bf16)
		FOR_ROWS(rows, values_across(ROWS, true, p, s, first, n, d, d_pad, out))
	else
		FOR_ROWS(rows, values_across(ROWS, false, p, s, first, n, d, d_pad, out))
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
	return x < low ? low : x > high ? high : x;
}

/* ---- attention ---- */

/* Result of some keys: out[rows][d_pad] and of each row */
struct online {
	float *out;
	float *max; /* the largest logit so far, unscaled */
	float *sum; /* of p relative to max; 0 = the row has seen no key */
};

/* The scratch of an item: packed keys and values of one block, packed queries, logits of one tile, the part at work, the total.
 */
struct work {
	float *kp, *vp, *q, *tile;
	struct online part, total;
};

/* For each row (query x head) d padded to 32 sums, then all maxima, then all sums of p. */
int64_t ISA(part_floats)(const struct attend_item *a)
{
	return a->queries * a->g * (round_up(a->d, 32) + 2);
}

static struct online online_at(float *at, int64_t rows, int64_t d_pad)
{
	return (struct online){at, at + rows * d_pad, at + rows * (d_pad + 1)};
}

static struct work work_in(void *scratch, const struct attend_item *a)
{
	enum { ONLINE = ROWS_MAX * (D_MAX + 2) };
	int64_t rows = a->queries * a->g, d_pad = round_up(a->d, TILE_COLS);
	float *kp = scratch, *vp = kp + ATTN_BLOCK * D_MAX, *q = vp + ATTN_BLOCK * D_MAX, *tile = q + ROWS_MAX * Q_LD,
	      *part = tile + TILE_ROWS * ATTN_BLOCK;
	return (struct work){kp, vp, q, tile, online_at(part, rows, d_pad), online_at(part + ONLINE, rows, d_pad)};
}

static void online_clear(struct online *o, int64_t rows, int64_t d_pad)
{
	memset(o->out, 0, (size_t)(rows * d_pad) * sizeof *o->out);
	for (int64_t r = 0; r < rows; r++) {
		o->max[r] = -INFINITY;
		o->sum[r] = 0;
	}
}

/* s[0, width) holds logits, the first n of them seen; becomes p. Returns what out and sum of earlier blocks are multiplied by. */
static float softmax_row(float *s, int64_t n, int64_t width, float c, float *max, float *sum)
{
	vf most = vf_set(-INFINITY);
	for (int64_t j = 0; j < width; j += VL) {
		vf x = vf_load(s + j);
		if (j + VL > n) {
			x = vf_first(x, n - j, -INFINITY);
			vf_store(s + j, x);
		}
		most = vf_max(most, x);
	}
	float m = vf_highest(most), old = *max, rescale = 1;
	if (!(m <= old)) {
		rescale = vf_exp2(vf_set((old - m) * c))[0];
		*max = m;
	} else
		m = old;
	vf total = vf_set(0), mc = vf_set(-m * c), cs = vf_set(c);
	for (int64_t j = 0; j < width; j += VL) {
		vf p = vf_exp2(vf_fma(vf_load(s + j), cs, mc));
		vf_store(s + j, p);
		total += p;
	}
	*sum = *sum * rescale + vf_sum(total);
	return rescale;
}

static void pack_queries(const struct attend_item *a, float *q)
{
	for (int64_t r = 0; r < a->queries * a->g; r++)
		pack_query(q + r * Q_LD, a->q + r / a->g * a->q_ld + r % a->g * a->d, a->d, a->bf16);
}

/* Rows of a tile where all are about the same size: one with a row or two would take as long as a whole one. */
static int64_t even_tile(int64_t rows)
{
	int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
	return (rows + tiles - 1) / tiles;
}

/* Attention of all rows over keys [first, end) of segment s into w->part. Query i sees the segment's first seen + i*step keys. */
static void attend_keys(const struct attend_item *a, const struct work *w, int s, int64_t first, int64_t end)
{
	const struct segment *seg = &a->seg[s];
	bool last = s == a->n_seg - 1;
	int d = a->d, g = a->g;
	int64_t d_pad = round_up(d, TILE_COLS), rows = a->queries * g, step = last && a->causal ? 1 : 0,
		seen = last ? a->seen : seg->n;
	struct online o = w->part;
	float c = a->scale * LOG2E, *tile = w->tile;
	bool few = rows <= FEW;
	int64_t even = even_tile(rows);

	online_clear(&o, rows, d_pad);
	for (int64_t b = first; b < end; b += ATTN_BLOCK) {
		int64_t n = end - b < ATTN_BLOCK ? end - b : ATTN_BLOCK;
		if (!few)
			pack_keys(w->kp, seg, b, n, d, a->bf16);
		if (!few && a->out)
			pack_values(w->vp, seg, b, n, d, a->bf16);
		for (int64_t r0 = 0; r0 < rows; r0 += even) {
			int64_t tile_rows = rows - r0 < even ? rows - r0 : even;
			int64_t keys = clamp(seen + (r0 + tile_rows - 1) / g * step - b, 0, n), width = round_up(keys, TILE_COLS);
			if (keys == 0)
				continue;
			if (few)
				logits_of_few(tile_rows, a->bf16, w->q + r0 * Q_LD, seg, b, keys, d, tile);
			else
				logits_of(tile_rows, w->q + r0 * Q_LD, w->kp, keys, d, tile);
			for (int64_t i = 0; i < tile_rows; i++) {
				int64_t r = r0 + i, n_seen = clamp(seen + r / g * step - b, 0, n);
				if (n_seen == 0) { /* before its first key everything stays as it is */
					memset(tile + i * ATTN_BLOCK, 0, (size_t)width * sizeof *tile);
					continue;
				}
				float rescale = softmax_row(tile + i * ATTN_BLOCK, n_seen, width, c, &o.max[r], &o.sum[r]);
				if (rescale != 1 && a->out)
					for (int64_t t = 0; t < d_pad; t += VL)
						vf_store(o.out + r * d_pad + t, vf_load(o.out + r * d_pad + t) * rescale);
			}
			if (a->out && few)
				add_few_values(tile_rows, a->bf16, tile, seg, b, keys, d, d_pad, o.out + r0 * d_pad);
			else if (a->out)
				add_values(tile_rows, tile, w->vp, keys, d_pad, o.out + r0 * d_pad);
		}
	}
}

/* Row r of total (+)= part, both brought to the larger maximum: total * keep + part * add. */
static void merge_row(struct online *total, const struct online *part, int64_t r, int64_t d_pad, float keep, float add)
{
	float *out = total->out + r * d_pad;
	const float *more = part->out + r * d_pad;
	for (int64_t t = 0; t < d_pad; t += VL)
		vf_store(out + t, vf_fma(vf_load(more + t), vf_set(add), vf_load(out + t) * vf_set(keep)));
	total->sum[r] = total->sum[r] * keep + part->sum[r] * add;
	total->max[r] = part->max[r] <= total->max[r] ? total->max[r] : part->max[r]; /* takes a NaN too */
}

/* Parts come in ascending order, so the bits do not depend on who made them. */
static void merge(const struct attend_item *a, struct online *total, const struct online *part)
{
	int64_t d_pad = round_up(a->d, TILE_COLS), rows = a->queries * a->g;
	float c = a->scale * LOG2E;
	for (int64_t r0 = 0; r0 < rows; r0 += VL) {
		int64_t n = rows - r0 < VL ? rows - r0 : VL;
		float keep[VL] = {0}, add[VL] = {0};
		for (int64_t i = 0; i < n; i++) {
			float old = total->max[r0 + i], new = part->max[r0 + i], m = new <= old ? old : new;
			keep[i] = (old - m) * c;
			add[i] = (new - m) * c;
		}
		vf_store(keep, vf_exp2(vf_load(keep)));
		vf_store(add, vf_exp2(vf_load(add)));
		for (int64_t i = 0; i < n; i++)
			if (part->sum[r0 + i] != 0) /* 0: the row sees none of these keys */
				merge_row(total, part, r0 + i, d_pad, total->sum[r0 + i] != 0 ? keep[i] : 0, add[i]);
	}
}

static void finish(const struct attend_item *a, const struct online *total)
{
	int64_t d_pad = round_up(a->d, TILE_COLS);
	int d = a->d, g = a->g;
	for (int64_t r = 0; r < a->queries * g; r++) {
		float inverse = 1 / total->sum[r];
		for (int t = 0; a->out && t < d; t++)
			a->out[r / g * a->out_ld + r % g * d + t] = total->out[r * d_pad + t] * inverse;
		if (a->lse)
			a->lse[r / g * a->lse_ld + r % g] = total->max[r] * a->scale + logf(total->sum[r]);
	}
}

void ISA(attend)(const struct attend_item *a, void *scratch)
{
	struct work w = work_in(scratch, a);
	online_clear(&w.total, a->queries * a->g, round_up(a->d, TILE_COLS));
	pack_queries(a, w.q);
	for (int s = 0; s < a->n_seg; s++) {
		int64_t end = attend_end(a, s);
		for (int64_t first = 0; first < end; first += ATTN_PART) {
			attend_keys(a, &w, s, first, end - first < ATTN_PART ? end : first + ATTN_PART);
			merge(a, &w.total, &w.part);
		}
	}
	finish(a, &w.total);
}

void ISA(attend_part)(const struct attend_item *a, int64_t part, float *result, void *scratch)
{
	struct work w = work_in(scratch, a);
	int s = 0;
	int64_t end = attend_end(a, 0);
	for (int64_t parts; part >= (parts = (end + ATTN_PART - 1) / ATTN_PART); end = attend_end(a, ++s))
		part -= parts;
	int64_t first = part * ATTN_PART;
	w.part = online_at(result, a->queries * a->g, round_up(a->d, TILE_COLS));
	pack_queries(a, w.q);
	attend_keys(a, &w, s, first, end - first < ATTN_PART ? end : first + ATTN_PART);
}

void ISA(attend_merge)(const struct attend_item *a, const float *parts, void *scratch)
{
	struct work w = work_in(scratch, a);
	int64_t rows = a->queries * a->g, d_pad = round_up(a->d, TILE_COLS), n = attend_parts(a);
	online_clear(&w.total, rows, d_pad);
	for (int64_t i = 0; i < n; i++) {
		struct online part = online_at((float *)parts + i * ISA(part_floats)(a), rows, d_pad);
		merge(a, &w.total, &part);
	}
	finish(a, &w.total);
}

/* ---- probabilities reduced over queries ---- */

INLINE vf reduce_one(vf sum, vf p, bool max, float weight)
{
	return max ? vf_max(sum, p) : vf_fma(p, vf_set(weight), sum);
}

/* acc (+)= p over one key block: the running reduction of one output row */
INLINE void accumulate(float *acc, const float *p, int64_t width, bool max, float weight)
{
	for (int64_t j = 0; j < width; j += VL)
		vf_store(acc + j, reduce_one(vf_load(acc + j), vf_load(p + j), max, weight));
}

/* The same with p made of a row's logits: 2^(s c + lse) of the first n_seen keys, 0 behind. */
INLINE void accumulate_row(float *acc, const float *s, int64_t n_seen, int64_t width, vf c, vf lse, bool max, float weight)
{
	for (int64_t j = 0; j < width; j += VL) {
		vf p = vf_exp2(vf_fma(vf_load(s + j), c, lse));
		vf_store(acc + j, reduce_one(vf_load(acc + j), j + VL > n_seen ? vf_first(p, n_seen - j, 0) : p, max, weight));
	}
}

void ISA(reduce)(const struct reduce_item *a, void *scratch)
{
	int d = a->d, g = a->g;
	int64_t n = a->keys.n, rows = a->queries * g, width = round_up(n, TILE_COLS);
	int outs = a->group == GROUP_NONE ? g : 1;
	float *kp = scratch, *q = kp + ATTN_BLOCK * D_MAX, *tile = q + TILE_ROWS * Q_LD, *most = tile + TILE_ROWS * ATTN_BLOCK,
	      *acc = most + ATTN_BLOCK; /* acc[outs][ATTN_BLOCK], outs <= GROUP_HEADS_MAX */
	vf c = vf_set(a->scale * LOG2E);
	float weight = a->group == GROUP_MEAN ? 1 / (float)g : 1;
	bool max = a->reduce == REDUCE_MAX;

	pack_keys(kp, &a->keys, 0, n, d, a->bf16);
	for (int h = 0; h < outs; h++)
		memcpy(acc + h * ATTN_BLOCK, a->out + h * a->out_ld, (size_t)n * sizeof *acc);
	for (int64_t r0 = 0; r0 < rows; r0 += TILE_ROWS) {
		int64_t tile_rows = rows - r0 < TILE_ROWS ? rows - r0 : TILE_ROWS, step = a->causal ? 1 : 0;
		if (a->seen + (r0 + tile_rows - 1) / g * step <= 0)
			continue;
		for (int64_t i = 0; i < tile_rows; i++)
			pack_query(q + i * Q_LD, a->q + (r0 + i) / g * a->q_ld + (r0 + i) % g * d, d, a->bf16);
		logits_of(tile_rows, q, kp, n, d, tile);
		for (int64_t i = 0; i < tile_rows; i++) {
			int64_t query = (r0 + i) / g, h = (r0 + i) % g, n_seen = clamp(a->seen + query * step, 0, n);
			const float *s = tile + i * ATTN_BLOCK;
			vf lse = vf_set(-a->lse[query * a->lse_ld + h] * LOG2E);
			if (n_seen == 0)
				continue; /* zeros would change nothing */
			if (a->group != GROUP_MAX) {
				accumulate_row(acc + (a->group == GROUP_NONE ? h * ATTN_BLOCK : 0), s, n_seen, width, c, lse, max, weight);
				continue;
			}
			if (h == 0)
				memset(most, 0, ATTN_BLOCK * sizeof *most);
			accumulate_row(most, s, n_seen, width, c, lse, true, 1);
			if (h == g - 1)
				accumulate(acc, most, width, max, 1);
		}
	}
	for (int h = 0; h < outs; h++)
		memcpy(a->out + h * a->out_ld, acc + h * ATTN_BLOCK, (size_t)n * sizeof *acc);
}
