/* attention.c: the two attentions of the axial mapper.
 *
 * Stage 2, band: along positions, one head of one sequence. Blocks of BAND_BLOCK queries against the keys within the window; a
 * query is a lane. Bias and mask of a pair depend on its distance alone, so both come from one table indexed by query minus key,
 * whose entries beyond the window are NEVER. Stage 3, mix: at each position, a few queries over the tokens of the proxy's heads.
 */
#include "runners/mapper/kernels/vec.h"

static const real NEVER = (real)-1e30;

/* The block of queries [t0, t0 + n) and the keys [lo, hi) any of them may see. */
struct band_block {
	int64_t t0, n, lo, hi;
};

static struct band_block band_at(const struct band *a, int64_t t0)
{
	const struct strip *s = &a->strip;
	struct band_block b = {.t0 = t0, .n = s->cols - t0 < BAND_BLOCK ? s->cols - t0 : BAND_BLOCK};
	int64_t begin = s->first < 0 ? -s->first : 0, end = s->n - s->first < s->cols ? s->n - s->first : s->cols;
	int64_t reach = a->window < s->cols ? a->window : s->cols;
	b.lo = t0 - reach > begin ? t0 - reach : begin;
	b.hi = t0 + b.n + reach < end ? t0 + b.n + reach : end;
	return b;
}

static int64_t table_reach(const struct band *a) /* the table holds query minus key in [-reach, reach) */
{
	return (a->window < a->strip.cols ? a->window : a->strip.cols) + BAND_BLOCK;
}

static int64_t bias_index(const struct band *a, int64_t query_minus_key)
{
	int64_t i = -query_minus_key;
	return a->half + (i < -a->half ? -a->half : i > a->half ? a->half : i);
}

static void fill_table(const struct band *a, real *table, int64_t reach)
{
	for (int64_t i = -reach; i < reach; i++)
		table[reach + i] = i < -a->window || i > a->window ? NEVER : a->rb[bias_index(a, i)];
}

/* p [keys][BAND_BLOCK] = the softmax over keys of each query of the block. */
static void band_softmax(const struct band *a, const struct band_block *b, const real *table, int64_t reach, real *p)
{
	const real scale = (real)(1 / sqrt((double)a->d));
	for (int64_t t = b->t0; t < b->t0 + b->n; t += VL) {
		real *z = p + t - b->t0;
		vr high = vr_set(NEVER), sum = vr_set(0);
		for (int64_t s = b->lo; s < b->hi; s++, z += BAND_BLOCK) {
			vr dot = vr_set(0);
			for (int i = 0; i < a->d; i++)
				dot += vr_load(a->q + i * a->strip.ld + t) * a->k[i * a->strip.ld + s];
			dot = dot * scale + vr_load(table + reach + t - s);
			vr_store(z, dot);
			high = vr_max(high, dot);
		}
		z = p + t - b->t0;
		for (int64_t s = b->lo; s < b->hi; s++, z += BAND_BLOCK) {
			vr e = vr_exp(vr_load(z) - high);
			vr_store(z, e);
			sum += e;
		}
		z = p + t - b->t0;
		for (int64_t s = b->lo; s < b->hi; s++, z += BAND_BLOCK)
			vr_store(z, vr_load(z) / sum);
	}
}

void KERNEL(band)(const struct band *a)
{
	int64_t reach = table_reach(a), ld = a->strip.ld;
	real *table = a->scratch, *p = table + 2 * reach;
	fill_table(a, table, reach);
	for (int64_t t0 = 0; t0 < a->strip.cols; t0 += BAND_BLOCK) {
		struct band_block b = band_at(a, t0);
		band_softmax(a, &b, table, reach, p);
		for (int i = 0; i < a->d; i++)
			for (int64_t t = 0; t < b.n; t += VL) {
				vr sum = vr_set(0);
				for (int64_t s = b.lo; s < b.hi; s++)
					sum += vr_load(p + (s - b.lo) * BAND_BLOCK + t) * a->v[i * ld + s];
				vr_store(a->out + i * ld + t0 + t, sum);
			}
	}
}

/* dz [keys][BAND_BLOCK] = gradient of the logits. */
static void band_logit_grad(const struct band *a, const struct band_block *b, const real *p, real *dz)
{
	const int64_t ld = a->strip.ld;
	for (int64_t t = 0; t < b->n; t += VL) {
		vr mean = vr_set(0);
		for (int64_t s = b->lo; s < b->hi; s++) {
			vr g = vr_set(0);
			for (int i = 0; i < a->d; i++)
				g += vr_load(a->dout + i * ld + b->t0 + t) * a->v[i * ld + s];
			vr_store(dz + (s - b->lo) * BAND_BLOCK + t, g);
			mean += g * vr_load(p + (s - b->lo) * BAND_BLOCK + t);
		}
		for (int64_t s = b->lo; s < b->hi; s++) {
			int64_t at = (s - b->lo) * BAND_BLOCK + t;
			vr_store(dz + at, vr_load(p + at) * (vr_load(dz + at) - mean));
		}
	}
}

static void band_input_grad(const struct band *a, const struct band_block *b, const real *p, const real *dz)
{
	const real scale = (real)(1 / sqrt((double)a->d));
	const int64_t ld = a->strip.ld;
	for (int i = 0; i < a->d; i++) {
		const real *q = a->q + i * ld + b->t0, *k = a->k + i * ld, *dout = a->dout + i * ld + b->t0;
		real *dq = a->dq + i * ld + b->t0;
		for (int64_t s = b->lo; s < b->hi; s++) {
			vr key = vr_set(0), value = vr_set(0);
			for (int64_t t = 0; t < b->n; t += VL) {
				vr g = vr_load(dz + (s - b->lo) * BAND_BLOCK + t) * scale;
				key += g * vr_load(q + t);
				value += vr_load(p + (s - b->lo) * BAND_BLOCK + t) * vr_load(dout + t);
				vr_store(dq + t, vr_load(dq + t) + g * k[s]);
			}
			a->dk[i * ld + s] += vr_sum(key);
			a->dv[i * ld + s] += vr_sum(value);
		}
	}
}

void KERNEL(band_back)(const struct band *a)
{
	int64_t reach = table_reach(a);
	real *table = a->scratch, *dtable = table + 2 * reach, *p = dtable + 2 * reach;
	fill_table(a, table, reach);
	for (int64_t i = 0; i < 2 * reach; i++)
		dtable[i] = 0;
	for (int64_t t0 = 0; t0 < a->strip.cols; t0 += BAND_BLOCK) {
		struct band_block b = band_at(a, t0);
		real *dz = p + (b.hi > b.lo ? b.hi - b.lo : 0) * BAND_BLOCK;
		band_softmax(a, &b, table, reach, p);
		band_logit_grad(a, &b, p, dz);
		band_input_grad(a, &b, p, dz);
		for (int64_t s = b.lo; s < b.hi; s++)
			for (int64_t t = 0; t < b.n; t += VL) {
				real *at = dtable + reach + t0 + t - s;
				vr_store(at, vr_load(at) + vr_load(dz + (s - b.lo) * BAND_BLOCK + t));
			}
	}
	for (int64_t i = -reach; i < reach; i++)
		if (i >= -a->window && i <= a->window)
			a->drb[bias_index(a, i)] += dtable[reach + i];
}

/* Softmax over tokens of one row: token p's value at z + p * step. */
INLINE void mix_softmax(real *z, int tokens, int64_t step)
{
	vr high = vr_load(z), sum = vr_set(0);
	for (int p = 1; p < tokens; p++)
		high = vr_max(high, vr_load(z + p * step));
	for (int p = 0; p < tokens; p++) {
		vr e = vr_exp(vr_load(z + p * step) - high);
		vr_store(z + p * step, e);
		sum += e;
	}
	sum = (real)1 / sum;
	for (int p = 0; p < tokens; p++)
		vr_store(z + p * step, vr_load(z + p * step) * sum);
}

/* out[i][j] (=|+=) sum over p of a[p][i] b[p][j]; strides in elements, m x n of at most TILE_ROWS. */
INLINE void mix_tile(const real *a, int64_t a_p, int64_t a_i, const real *b, int64_t b_p, int64_t b_j, int m, int n, int count,
	real *out, int64_t out_i, int64_t out_j, bool add)
{
	vr sum[TILE_ROWS][TILE_ROWS];
#pragma GCC unroll 4
	for (int i = 0; i < m; i++)
#pragma GCC unroll 4
		for (int j = 0; j < n; j++)
			sum[i][j] = add ? vr_load(out + i * out_i + j * out_j) : vr_set(0);
	for (int p = 0; p < count; p++) {
		vr y[TILE_ROWS];
#pragma GCC unroll 4
		for (int j = 0; j < n; j++)
			y[j] = vr_load(b + p * b_p + j * b_j);
#pragma GCC unroll 4
		for (int i = 0; i < m; i++) {
			vr x = vr_load(a + p * a_p + i * a_i);
#pragma GCC unroll 4
			for (int j = 0; j < n; j++)
				sum[i][j] += x * y[j];
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < m; i++)
#pragma GCC unroll 4
		for (int j = 0; j < n; j++)
			vr_store(out + i * out_i + j * out_j, sum[i][j]);
}

/* The same over any number of rows i and j. */
INLINE void mix_product(const real *a, int64_t a_p, int64_t a_i, const real *b, int64_t b_p, int64_t b_j, int m, int n, int count,
	real *out, int64_t out_i, int64_t out_j, bool add)
{
	for (int i = 0; i < m;) {
		int rows = m - i >= TILE_ROWS ? TILE_ROWS : 1;
		for (int j = 0; j < n;) {
			const real *x = a + i * a_i, *y = b + j * b_j;
			real *to = out + i * out_i + j * out_j;
			int columns = n - j >= TILE_ROWS ? TILE_ROWS : 1;
			if (rows == TILE_ROWS && columns == TILE_ROWS)
				mix_tile(x, a_p, a_i, y, b_p, b_j, TILE_ROWS, TILE_ROWS, count, to, out_i, out_j, add);
			else if (rows == TILE_ROWS)
				mix_tile(x, a_p, a_i, y, b_p, b_j, TILE_ROWS, 1, count, to, out_i, out_j, add);
			else if (columns == TILE_ROWS)
				mix_tile(x, a_p, a_i, y, b_p, b_j, 1, TILE_ROWS, count, to, out_i, out_j, add);
			else
				mix_tile(x, a_p, a_i, y, b_p, b_j, 1, 1, count, to, out_i, out_j, add);
			j += columns;
		}
		i += rows;
	}
}

void KERNEL(mix)(real *z, const real *x, real *mixed, int tokens, int rows, int channels, int64_t cols, int64_t ld)
{
	for (int64_t t = 0; t < cols; t += VL) {
		for (int r = 0; r < rows; r++)
			mix_softmax(z + r * ld + t, tokens, rows * ld);
		mix_product(z + t, rows * ld, ld, x + t, channels * ld, ld, rows, channels, tokens, mixed + t, channels * ld, ld,
			false);
	}
}

void KERNEL(mix_back)(const real *a, const real *x, const real *dmixed, real *dz, real *dx, int tokens, int rows, int channels,
	int64_t cols, int64_t ld)
{
	for (int64_t t = 0; t < cols; t += VL) {
		/* dz[p][r] = sum over c of x[p][c] dmixed[r][c]; dx[p][c] += sum over r of a[p][r] dmixed[r][c] */
		mix_product(x + t, ld, channels * ld, dmixed + t, ld, channels * ld, tokens, rows, channels, dz + t, rows * ld,
			ld, false);
		mix_product(a + t, ld, rows * ld, dmixed + t, channels * ld, ld, tokens, channels, rows, dx + t, channels * ld,
			ld, true);
		for (int r = 0; r < rows; r++) {
			const real *w = a + r * ld + t;
			real *d = dz + r * ld + t;
			vr mean = vr_set(0);
			for (int p = 0; p < tokens; p++)
				mean += vr_load(w + p * rows * ld) * vr_load(d + p * rows * ld);
			for (int p = 0; p < tokens; p++)
				vr_store(d + p * rows * ld, vr_load(w + p * rows * ld) * (vr_load(d + p * rows * ld) - mean));
		}
	}
}
