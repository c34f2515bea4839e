/* significance.c: the tests behind better, same, worse, and behind an alert: Holm, the smallest difference that could be seen,
 * ranks of timings, outliers, the change of a time. See stats.h. */
#include "results/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- many cells at once ---- */

struct ranked {
	double value;
	int at;
};

static int by_value(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	return (x->value > y->value) - (x->value < y->value);
}

void stats_holm(const double *p, int n, double *adjusted)
{
	struct ranked *order = mem_new((size_t)(n > 0 ? n : 1), sizeof *order);
	int known = 0;
	for (int i = 0; i < n; i++) {
		adjusted[i] = NAN;
		if (!isnan(p[i]))
			order[known++] = (struct ranked){p[i], i};
	}
	qsort(order, (size_t)known, sizeof *order, by_value);
	double least = 0;
	for (int k = 0; k < known; k++) {
		least = fmax(least, (n - k) * order[k].value);
		adjusted[order[k].at] = fmin(least, 1);
	}
	free(order);
}

/* x with P(Z < x) = p, by bisection on erfc: to the last digits, and not where time is spent. */
static double normal_quantile(double p)
{
	double lo = -40, hi = 40;
	for (int i = 0; i < 100; i++) {
		double middle = (lo + hi) / 2;
		if (.5 * erfc(-middle / sqrt(2)) < p)
			lo = middle;
		else
			hi = middle;
	}
	return (lo + hi) / 2;
}

double stats_detectable(double standard_error, double alpha, double power)
{
	return (normal_quantile(1 - alpha / 2) + normal_quantile(power)) * standard_error;
}

int stats_least_differing(double alpha)
{
	int n = 1;
	while (ldexp(1, 1 - n) > alpha)
		n++;
	return n;
}

/* ---- ranks ---- */

enum { EXACT_VALUES = 50 };

/* Ways to reach each u: the coefficients of the Gaussian binomial, by multiplying with 1 - q^(ny+i) and dividing by 1 - q^i. All
 * numbers are whole and below 2^53 for EXACT_VALUES. */
static double *rank_counts(int nx, int ny)
{
	int top = nx * ny;
	double *ways = mem_new((size_t)top + 1, sizeof *ways);
	ways[0] = 1;
	for (int i = 1; i <= nx; i++) {
		for (int u = top; u >= ny + i; u--)
			ways[u] -= ways[u - ny - i];
		for (int u = i; u <= top; u++)
			ways[u] += ways[u - i];
	}
	return ways;
}

static double exact_rank_p(double u, int nx, int ny)
{
	double *ways = rank_counts(nx, ny), all = 0, tail = 0, extreme = fmax(u, nx * ny - u);
	for (int k = 0; k <= nx * ny; k++) {
		all += ways[k];
		tail += k >= extreme ? ways[k] : 0;
	}
	free(ways);
	return fmin(2 * tail / all, 1);
}

/* ties: sum of t^3 - t over groups of equal values. */
static double normal_rank_p(double u, int nx, int ny, double ties)
{
	double n = nx + ny, spread = sqrt(nx * (double)ny / 12 * (n + 1 - ties / (n * (n - 1))));
	double z = (fmax(u, nx * (double)ny - u) - nx * (double)ny / 2 - .5) / spread;
	return spread > 0 ? fmin(erfc(z / sqrt(2)), 1) : 1;
}

struct rank_test stats_mann_whitney(const double *x, int nx, const double *y, int ny)
{
	struct rank_test r = {NAN, NAN, false};
	int n = nx + ny;
	if (nx < 1 || ny < 1)
		return r;
	struct ranked *all = mem_new((size_t)n, sizeof *all);
	double ranks = 0, ties = 0;
	bool known = true;
	for (int i = 0; i < n; i++) {
		all[i] = (struct ranked){i < nx ? x[i] : y[i - nx], i};
		known = known && !isnan(all[i].value);
	}
	qsort(all, (size_t)n, sizeof *all, by_value);
	for (int i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && all[end].value == all[i].value; end++)
			;
		double t = end - i;
		ties += t * t * t - t;
		for (int k = i; k < end; k++)
			ranks += all[k].at < nx ? (i + 1 + end) / 2.0 : 0;
	}
	free(all);
	if (!known)
		return r;
	r.u = ranks - nx * (nx + 1) / 2.0;
	r.exact = ties == 0 && n <= EXACT_VALUES;
	r.p = r.exact ? exact_rank_p(r.u, nx, ny) : normal_rank_p(r.u, nx, ny, ties);
	return r;
}

double stats_mann_whitney_least_p(int nx, int ny)
{
	if (nx < 1 || ny < 1)
		return NAN;
	return nx + ny <= EXACT_VALUES ? exact_rank_p(0, nx, ny) : normal_rank_p(0, nx, ny, 0);
}

/* ---- outliers ---- */

void stats_modified_z(const double *x, int n, double *z)
{
	double median = stats_quantile(x, n, .5), mean = 0;
	for (int i = 0; i < n; i++) {
		z[i] = fabs(x[i] - median);
		mean += z[i] / n;
	}
	double spread = stats_quantile(z, n, .5) / .6745;
	spread = spread > 0 ? spread : 1.253314 * mean;
	for (int i = 0; i < n; i++)
		z[i] = isnan(spread) ? NAN : spread > 0 ? (x[i] - median) / spread : 0;
}

int stats_outliers(const double *x, int n)
{
	double *z = mem_new((size_t)(n > 0 ? n : 1), sizeof *z);
	int found = 0;
	stats_modified_z(x, n, z);
	for (int i = 0; i < n; i++)
		found += fabs(z[i]) > STATS_OUTLIER_TENTHS / 10.0;
	free(z);
	return found;
}

/* ---- the change of a time, or of a ratio of two, between nights ---- */

enum { SPEED_RESAMPLES = 2000 };

/* Median of x[which[i]]; work[n]. By insertion: n is the repetitions of one timing. */
static double median_of(const double *x, const int *which, int n, double *work)
{
	for (int i = 0; i < n; i++) {
		int k = i;
		for (; k > 0 && work[k - 1] > x[which[i]]; k--)
			work[k] = work[k - 1];
		work[k] = x[which[i]];
	}
	return n % 2 ? work[n / 2] : (work[n / 2 - 1] + work[n / 2]) / 2;
}

static double resampled_median(const double *x, int n, struct rng *rng, int *which, double *work)
{
	for (int i = 0; i < n; i++)
		which[i] = (int)rng_below(rng, (uint64_t)n);
	return median_of(x, which, n, work);
}

/* Fresh: the ratio of each round. */
static double *ratios_of(struct rounds r)
{
	double *x = mem_new((size_t)(r.n > 0 ? r.n : 1), sizeof *x);
	for (int i = 0; i < r.n; i++)
		x[i] = r.full ? r.method[i] / r.full[i] : r.method[i];
	return x;
}

static void resample_change(struct interval *change, const double *x0, int n0, const double *x1, int n1, uint64_t seed)
{
	int most = n0 > n1 ? n0 : n1, *which = mem_new((size_t)most, sizeof *which);
	double *work = mem_new((size_t)most, sizeof *work), *changes = mem_new(SPEED_RESAMPLES, sizeof *changes);
	struct rng rng = rng_seed(seed, 0);
	for (int k = 0; k < SPEED_RESAMPLES; k++) {
		double now = resampled_median(x1, n1, &rng, which, work);
		changes[k] = now / resampled_median(x0, n0, &rng, which, work) - 1;
	}
	change->lo = stats_quantile(changes, SPEED_RESAMPLES, .025);
	change->hi = stats_quantile(changes, SPEED_RESAMPLES, .975);
	free(which);
	free(work);
	free(changes);
}

struct speed stats_speed(struct rounds before, struct rounds now, uint64_t seed)
{
	double *x0 = ratios_of(before), *x1 = ratios_of(now);
	struct speed s = {stats_quantile(x0, before.n, .5), stats_quantile(x1, now.n, .5),
		{NAN, NAN, NAN, before.n < now.n ? before.n : now.n}, NAN};
	s.change.mean = s.now / s.before - 1;
	if (isfinite(s.change.mean)) {
		s.p = stats_mann_whitney(x0, before.n, x1, now.n).p;
		if (before.n > 1 && now.n > 1)
			resample_change(&s.change, x0, before.n, x1, now.n, seed);
	}
	free(x0);
	free(x1);
	return s;
}
