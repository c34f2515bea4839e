/* ridge.c: the linear mapper's closed form, in double: normal equations gathered context by context, solved by Cholesky.
 * Spec 1.3.
 *
 * A column a is `taps` neighbouring columns of x under each other, a[c taps + k](t) = x[c](t + k - taps/2), zero beyond the
 * context. Gathered: G = sum a a^T (its upper half, by rows), R = sum z a^T, sums of a and of z. The bias is not penalised: both
 * sides are centred before the solution, and bias = mean z - W mean a. Each row of G belongs to one item, so threads do not
 * change a bit of it. */
#define KVB_REAL double
#define KVB_REAL_NAME f64
#include "runners/mapper/impl.h"
#include "runners/mapper/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256, ROWS = 12 }; /* columns at a time; rows of G an item */

struct ridge {
	int inputs, outputs, taps;
	int64_t size, positions; /* size = inputs * taps */
	double *gram, *right;    /* [size][size], rows from the block on their diagonal to the end; [outputs][size] */
	double *sum, *z_sum;     /* [size], [outputs] */
	double *a, *z;           /* of a chunk: [size][CHUNK + PAD], [outputs][CHUNK + PAD] */
};

struct ridge *ridge_new(int inputs, int outputs, int taps)
{
	struct ridge *r = mem_new(1, sizeof *r);
	const int64_t ld = CHUNK + PAD, size = (int64_t)inputs * taps;
	*r = (struct ridge){.inputs = inputs, .outputs = outputs, .taps = taps, .size = size};
	r->gram = calloc((size_t)(size * size), sizeof *r->gram);
	r->right = calloc((size_t)(outputs * size), sizeof *r->right);
	r->sum = calloc((size_t)size, sizeof *r->sum);
	r->z_sum = calloc((size_t)outputs, sizeof *r->z_sum);
	r->a = block_new_f64((size_t)((size + outputs) * ld));
	if (!r->gram || !r->right || !r->sum || !r->z_sum || !r->a) {
		ridge_free(r);
		return NULL;
	}
	r->z = r->a + size * ld;
	return r;
}

void ridge_free(struct ridge *r)
{
	if (!r)
		return;
	free(r->gram);
	free(r->right);
	free(r->sum);
	free(r->z_sum);
	block_free_f64(r->a);
	free(r);
}

/* ---- gathering ---- */
/* Columns [first, first + n) of a context of `length` into the chunk's buffers, zeros behind them. */
static void load_chunk(struct ridge *r, const double *x, const double *z, int64_t first, int64_t n, int64_t length)
{
	const int64_t ld = CHUNK + PAD, half = r->taps / 2;
	for (int64_t c = 0; c < r->inputs; c++)
		for (int k = 0; k < r->taps; k++)
			for (int64_t t = 0; t < CHUNK; t++) {
				int64_t at = first + t + k - half;
				r->a[(c * r->taps + k) * ld + t] = t < n && at >= 0 && at < length ? x[c * length + at] : 0;
			}
	for (int64_t o = 0; o < r->outputs; o++)
		for (int64_t t = 0; t < CHUNK; t++)
			r->z[o * ld + t] = t < n ? z[o * length + first + t] : 0;
}

static void gram_rows(void *arg, int64_t item)
{
	struct ridge *r = arg;
	const int64_t ld = CHUNK + PAD, row = item * ROWS, rows = r->size - row < ROWS ? r->size - row : ROWS;
	const struct conv_grad g = {.d = r->a + row * ld,
		.in = r->a + row * ld,
		.dw = r->gram + row * r->size + row,
		.db = r->sum + row,
		.d_ld = ld,
		.in_ld = ld,
		.dw_ld = r->size,
		.cols = CHUNK,
		.rows = (int)rows,
		.channels = (int)(r->size - row),
		.taps = 1};
	const struct conv_grad right = {.d = r->z,
		.in = r->a + row * ld,
		.dw = r->right + row,
		.d_ld = ld,
		.in_ld = ld,
		.dw_ld = r->size,
		.cols = CHUNK,
		.rows = r->outputs,
		.channels = (int)rows,
		.taps = 1};
	kernels_at_f64(0)->conv_grad(&g);
	kernels_at_f64(0)->conv_grad(&right);
}

void ridge_add(struct ridge *r, const double *x, const double *z, int64_t n, const struct mapper_pool *pool)
{
	for (int64_t first = 0; first < n; first += CHUNK) {
		load_chunk(r, x, z, first, n - first < CHUNK ? n - first : CHUNK, n);
		pool_run_f64(pool, (r->size + ROWS - 1) / ROWS, gram_rows, r);
	}
	for (int64_t o = 0; o < r->outputs; o++)
		for (int64_t t = 0; t < n; t++)
			r->z_sum[o] += z[o * n + t];
	r->positions += n;
}

/* ---- solving ---- */
static double dot(const double *a, const double *b, int64_t n)
{
	double s[4] = {0};
	int64_t i = 0;
	for (; i + 4 <= n; i += 4)
		for (int j = 0; j < 4; j++)
			s[j] += a[i + j] * b[i + j];
	for (; i < n; i++)
		s[0] += a[i] * b[i];
	return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Centres both sides, adds the penalty, and mirrors G's upper half into the lower one. */
static void centre(struct ridge *r, double lambda)
{
	const double n = (double)r->positions;
	for (int64_t i = 0; i < r->size; i++)
		for (int64_t j = i; j < r->size; j++) {
			double v = r->gram[i * r->size + j] - r->sum[i] * r->sum[j] / n + (i == j ? lambda * n : 0);
			r->gram[i * r->size + j] = r->gram[j * r->size + i] = v;
		}
	for (int64_t o = 0; o < r->outputs; o++)
		for (int64_t i = 0; i < r->size; i++)
			r->right[o * r->size + i] -= r->z_sum[o] * r->sum[i] / n;
}

/* G = L L^T in the lower half, row by row. -1: not positive definite. */
static int factor(double *g, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		double *row = g + i * n;
		for (int64_t j = 0; j < i; j++)
			row[j] = (row[j] - dot(row, g + j * n, j)) / g[j * n + j];
		double d = row[i] - dot(row, row, i);
		if (!(d > 0))
			return -1;
		row[i] = sqrt(d);
	}
	return 0;
}

/* v = G^-1 v */
static void substitute(const double *g, int64_t n, double *v)
{
	for (int64_t i = 0; i < n; i++)
		v[i] = (v[i] - dot(g + i * n, v, i)) / g[i * n + i];
	for (int64_t i = n - 1; i >= 0; i--) {
		v[i] /= g[i * n + i];
		for (int64_t j = 0; j < i; j++)
			v[j] -= g[i * n + j] * v[i];
	}
}

int ridge_solve(struct ridge *r, double lambda, double *weight, double *bias, char err[ERR_LEN])
{
	const double n = (double)r->positions;
	centre(r, lambda);
	if (factor(r->gram, r->size))
		return err_set(err, "the ridge regression has no unique solution (lambda %g, %lld positions); raise lambda",
			lambda, (long long)r->positions);
	for (int64_t o = 0; o < r->outputs; o++) {
		double *w = weight + o * r->size;
		memcpy(w, r->right + o * r->size, (size_t)r->size * sizeof *w);
		substitute(r->gram, r->size, w);
		bias[o] = (r->z_sum[o] - dot(w, r->sum, r->size)) / n;
	}
	return 0;
}
