/* loss.c: the five terms of the hybrid loss and their gradients. Spec 1.5.
 *
 * A unit is what competes in the selection: everything (global), a layer, or a head. Labels, thresholds and pairs stay inside
 * units. bin     mean over the ratios of BCE-with-logits(s - threshold, label); the threshold is the quantile of the unit's
 * scores that matches its number of positive labels, a constant to the gradient mse     sum of w (s - z)^2 / sum of w, w = 1 + y
 * / mean y fine    mean over pairs inside the oracle's top .3 of log(1 + e^(-(s_i - s_j) sign(y_i - y_j))) global  the same over
 * pairs anywhere, weighted by |y_i - y_j| cos     1 - cosine of s and z, both centred, mean over (layer, head) */
#include "runners/mapper/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void swap(real *a, real *b)
{
	real t = *a;
	*a = *b;
	*b = t;
}

real REAL(kth_smallest)(real *v, int64_t n, int64_t k)
{
	int64_t lo = 0, hi = n - 1, want = k - 1;
	while (lo < hi) {
		real pivot = v[lo + (hi - lo) / 2];
		int64_t i = lo, j = hi;
		while (i <= j) {
			while (v[i] < pivot)
				i++;
			while (v[j] > pivot)
				j--;
			if (i <= j)
				swap(&v[i++], &v[j--]);
		}
		if (want <= j)
			hi = j;
		else if (want >= i)
			lo = i;
		else
			break;
	}
	return v[want];
}

/* One unit, all ratios. The thresholds are looked for in one copy of the scores, largest ratio first: what lies below one
 * threshold lies below the next. */
static double binary_unit(const struct loss *a, const struct kernels *k, int64_t unit, double factor, real *copy, real *d)
{
	const int64_t size = a->unit_rows * a->m, units = a->rows / a->unit_rows;
	const real *s = a->score + unit * size, *y = a->y + unit * size;
	int64_t below = 0;
	double total = 0;
	memcpy(copy, s, (size_t)size * sizeof *copy);
	for (int r = MAPPER_RATIOS - 1; r >= 0; r--) {
		const real cut = a->cut[r * units + unit];
		int64_t rank = size;
		for (int64_t i = 0; i < size; i++)
			rank -= y[i] > cut;
		rank = rank < 1 ? 1 : rank;
		real threshold = REAL(kth_smallest)(copy + below, size - below, rank - below);
		below = rank - 1;
		total += k->binary(s, y, threshold, cut, (real)factor, size, d + unit * size);
	}
	return total;
}

static double term_binary(const struct loss *a, const struct kernels *k, real *copy, real *d)
{
	const double share = 1 / ((double)MAPPER_RATIOS * (double)(a->rows * a->m));
	double total = 0;
	for (int64_t u = 0; u < a->rows / a->unit_rows; u++)
		total += binary_unit(a, k, u, a->weight[0] * share, copy, d);
	return total * share;
}

static double term_mse(const struct loss *a, real *d)
{
	const int64_t all = a->rows * a->m;
	double mean = 0, weights = 0, total = 0;
	for (int64_t i = 0; i < all; i++)
		mean += (double)a->y[i];
	mean /= (double)all;
	const double share = mean > 0 ? 1 / mean : 0;
	for (int64_t i = 0; i < all; i++) {
		double w = 1 + (double)a->y[i] * share, e = (double)a->score[i] - (double)a->z[i];
		weights += w;
		total += w * e * e;
	}
	const double factor = 2 * a->weight[1] / weights;
	for (int64_t i = 0; i < all; i++)
		d[i] += (real)(factor * (1 + (double)a->y[i] * share) * ((double)a->score[i] - (double)a->z[i]));
	return total / weights;
}

/* log(1 + e^x) and its slope */
static double softplus(double x, double *slope)
{
	double e = exp(-fabs(x));
	*slope = x > 0 ? 1 / (1 + e) : e / (1 + e);
	return (x > 0 ? x : 0) + log1p(e);
}

static double sign(double x)
{
	return x > 0 ? 1 : x < 0 ? -1 : 0;
}

/* Pairs' logistic loss; weighted: by |y_i - y_j| over the sum of all pairs', else each 1/n. */
static double term_pairs(const struct loss *a, const int64_t *const pair[2], int64_t n, bool weighted, double weight, real *d)
{
	double sum = 0, total = 0;
	for (int64_t p = 0; weighted && p < n; p++)
		sum += fabs((double)a->y[pair[0][p]] - (double)a->y[pair[1][p]]);
	sum = sum > 1e-9 ? sum : 1e-9;
	for (int64_t p = 0; p < n; p++) {
		int64_t i = pair[0][p], j = pair[1][p];
		double diff = (double)a->y[i] - (double)a->y[j], slope, toward = -sign(diff);
		double w = weighted ? fabs(diff) / sum : 1 / (double)n;
		total += w * softplus(toward * ((double)a->score[i] - (double)a->score[j]), &slope);
		d[i] += (real)(weight * w * slope * toward);
		d[j] -= (real)(weight * w * slope * toward);
	}
	return total;
}

static double term_cosine(const struct loss *a, real *d)
{
	const int64_t m = a->m;
	const double least = 1e-6; /* norms are not taken below this */
	double total = 0;
	for (int64_t r = 0; r < a->rows; r++) {
		const real *s = a->score + r * m, *z = a->z + r * m;
		double mean_s = 0, mean_z = 0, ss = 0, zz = 0, sz = 0;
		for (int64_t i = 0; i < m; i++) {
			mean_s += (double)s[i];
			mean_z += (double)z[i];
		}
		mean_s /= (double)m;
		mean_z /= (double)m;
		for (int64_t i = 0; i < m; i++) {
			double x = (double)s[i] - mean_s, y = (double)z[i] - mean_z;
			ss += x * x;
			zz += y * y;
			sz += x * y;
		}
		bool tiny = sqrt(ss) < least;
		double ns = tiny ? least : sqrt(ss), nz = sqrt(zz) < least ? least : sqrt(zz), cosine = sz / (ns * nz);
		total += 1 - cosine;
		/* centred vectors: the gradient has mean zero already */
		for (int64_t i = 0; i < m; i++) {
			double x = (double)s[i] - mean_s, y = (double)z[i] - mean_z;
			double g = y / (ns * nz) - (tiny ? 0 : cosine * x / ss);
			d[r * m + i] -= (real)(a->weight[4] * g / (double)a->rows);
		}
	}
	return total / (double)a->rows;
}

int REAL(loss)(const struct loss *a, const struct kernels *k, double term[MAPPER_TERMS], real *d)
{
	real *copy = malloc((size_t)(a->unit_rows * a->m) * sizeof *copy);
	if (!copy)
		return -1;
	memset(d, 0, (size_t)(a->rows * a->m) * sizeof *d);
	term[0] = term_binary(a, k, copy, d);
	term[1] = term_mse(a, d);
	term[2] = a->pairs_fine ? term_pairs(a, a->fine, a->pairs_fine, false, a->weight[2], d) : 0;
	term[3] = a->pairs_global ? term_pairs(a, a->global, a->pairs_global, true, a->weight[3], d) : 0;
	term[4] = term_cosine(a, d);
	free(copy);
	return 0;
}
