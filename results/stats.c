/* stats.c: intervals and standard errors. See stats.h.
 *
 * Wilson: the interval of a share by inverting the score test; right at 0 and 1 of few samples, where mean +- error is not.
 * Bootstrap: 10,000 samples are drawn with replacement from the rows (or from whole contexts, since questions about one
 * context are not independent), each gives a mean, and the interval is the 2.5 % and 97.5 % quantile of those means. */
#include "results/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESAMPLES = 10000 };
static const double z95 = 1.959963984540054; /* normal quantile of .975 */

struct interval stats_wilson(int successes, int n)
{
	if (n <= 0)
		return (struct interval){NAN, NAN, NAN, 0};
	double p = (double)successes / n, z2 = z95 * z95;
	double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
	double half = z95 / (1 + z2 / n) * sqrt(p * (1 - p) / n + z2 / (4.0 * n * n));
	/* at the ends the bound is the end itself, which rounding would miss */
	return (struct interval){p, successes == 0 ? 0 : centre - half, successes == n ? 1 : centre + half, n};
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double quantile_sorted(const double *x, int n, double p)
{
	double at = p * (n - 1);
	int below = (int)floor(at);
	return below + 1 < n ? x[below] + (at - below) * (x[below + 1] - x[below]) : x[n - 1];
}

double stats_quantile(const double *x, int n, double p)
{
	for (int i = 0; i < n; i++)
		if (isnan(x[i]))
			return NAN; /* has no place in an order */
	if (n <= 0)
		return NAN;
	double *sorted = mem_new((size_t)n, sizeof *sorted);
	memcpy(sorted, x, (size_t)n * sizeof *sorted);
	qsort(sorted, (size_t)n, sizeof *sorted, ascending);
	double q = quantile_sorted(sorted, n, p);
	free(sorted);
	return q;
}

/* Groups of rows that are drawn together: their sums and sizes. */
struct groups {
	double *sum;
	int *size, n;
};

static double total_mean(const double *x, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += x[i];
	return sum / n;
}

/* Where the cluster `name` stands in names[0..n), or n. The last one first: samples of a context follow each other. */
static int find_name(const int *names, int n, int name)
{
	for (int i = n; i-- > 0;) {
		if (names[i] == name)
			return i;
	}
	return n;
}

/* cluster NULL: each row is its own. groups_free ends it. */
static struct groups groups_of(const double *x, const int *cluster, int n)
{
	struct groups g = {mem_new((size_t)n, sizeof(double)), mem_new((size_t)n, sizeof(int)), 0};
	int *names = mem_new((size_t)n, sizeof *names);
	for (int i = 0; i < n; i++) {
		int at = cluster ? find_name(names, g.n, cluster[i]) : i;
		if (at == g.n)
			names[g.n++] = cluster ? cluster[i] : i;
		g.sum[at] += x[i];
		g.size[at]++;
	}
	free(names);
	return g;
}

static void groups_free(struct groups *g)
{
	free(g->sum);
	free(g->size);
}

static bool all_equal_zero(const struct groups *g)
{
	for (int i = 0; i < g->n; i++) {
		if (g->sum[i] != 0)
			return false;
	}
	return true;
}

static struct interval bootstrap_groups(const struct groups *g, double mean, int n, uint64_t seed)
{
	struct interval r = {mean, NAN, NAN, n};
	if (g->n < 2 || !isfinite(mean)) /* one draw only is possible: no interval, rather than one of no width */
		return r;
	if (all_equal_zero(g)) /* every resample would give 0 */
		return (struct interval){mean, 0, 0, n};
	double *means = mem_new(RESAMPLES, sizeof *means);
	struct rng rng = rng_seed(seed, 0);
	uint64_t groups = (uint64_t)g->n, limit = UINT64_MAX - UINT64_MAX % groups; /* rng_below, its limit found once */
	for (int k = 0; k < RESAMPLES; k++) {
		double sum = 0;
		int64_t size = 0;
		for (int i = 0; i < g->n; i++) {
			uint64_t at;
			do
				at = rng_next(&rng);
			while (at >= limit);
			at %= groups;
			sum += g->sum[at];
			size += g->size[at];
		}
		means[k] = sum / (double)size;
	}
	qsort(means, RESAMPLES, sizeof *means, ascending);
	r.lo = quantile_sorted(means, RESAMPLES, .025);
	r.hi = quantile_sorted(means, RESAMPLES, .975);
	free(means);
	return r;
}

struct interval stats_bootstrap_clusters(const double *x, const int *cluster, int n, uint64_t seed)
{
	if (n <= 0)
		return (struct interval){NAN, NAN, NAN, 0};
	struct groups g = groups_of(x, cluster, n);
	struct interval r = bootstrap_groups(&g, total_mean(x, n), n, seed);
	groups_free(&g);
	return r;
}

struct interval stats_bootstrap(const double *x, int n, uint64_t seed)
{
	return stats_bootstrap_clusters(x, NULL, n, seed);
}

bool stats_disjoint(struct interval a, struct interval b)
{
	return a.lo > b.hi || b.lo > a.hi; /* false with a NAN */
}

/* ---- standard errors ---- */

double stats_standard_error(const double *x, int n)
{
	if (n < 2)
		return NAN;
	double mean = total_mean(x, n), squares = 0;
	for (int i = 0; i < n; i++)
		squares += (x[i] - mean) * (x[i] - mean);
	return sqrt(squares / (n - 1) / n);
}

double stats_standard_error_clusters(const double *x, const int *cluster, int n)
{
	if (n < 2)
		return NAN;
	struct groups g = groups_of(x, cluster, n);
	double mean = total_mean(x, n), squares = 0;
	for (int i = 0; i < g.n; i++) {
		double residual = g.sum[i] - mean * g.size[i];
		squares += residual * residual;
	}
	double error = g.n < 2 ? NAN : sqrt(squares) / n;
	groups_free(&g);
	return error;
}

/* ---- paired samples ---- */

/* Two-sided p of the sum under flips of whole clusters, in whole units: the distribution of sum(+-d) is added up exactly, one
 * cluster after another. Differences that are no integers (an F1) are rounded to a grid of 1e-4 or total / 200,000, the coarser. NAN
 * where they are beyond any total. */
static double sign_flip_p(const struct groups *g)
{
	double total = 0;
	bool whole = true;
	for (int i = 0; i < g->n; i++) {
		total += fabs(g->sum[i]);
		whole = whole && fabs(g->sum[i] - round(g->sum[i])) < 1e-9;
	}
	if (!isfinite(total))
		return NAN;
	double unit = whole && total <= 200000 ? 1 : fmax(1e-4, total / 200000);
	int64_t observed = 0, reach = 0;
	size_t span = (size_t)(total / unit) + (size_t)g->n + 1;
	double *from = mem_new(2 * span + 1, sizeof *from), *to = mem_new(2 * span + 1, sizeof *to), p = 0;
	from[span] = 1;
	for (int i = 0; i < g->n; i++) {
		int64_t d = llabs(llround(g->sum[i] / unit));
		observed += llround(g->sum[i] / unit);
		if (d == 0)
			continue;
		memset(to + (int64_t)span - reach - d, 0, (size_t)(2 * (reach + d) + 1) * sizeof *to);
		for (int64_t k = (int64_t)span - reach; k <= (int64_t)span + reach; k++) {
			to[k - d] += from[k] / 2;
			to[k + d] += from[k] / 2;
		}
		reach += d;
		double *swap = from;
		from = to;
		to = swap;
	}
	for (int64_t k = -reach; k <= reach; k++)
		p += llabs(k) >= llabs(observed) ? from[(int64_t)span + k] : 0;
	free(from);
	free(to);
	return fmin(p, 1);
}

struct paired stats_paired(const double *a, const double *b, const int *cluster, int n, uint64_t seed)
{
	struct paired r = {{NAN, NAN, NAN, n}, NAN, NAN, n, 0, 0, 0};
	if (n <= 0)
		return r;
	double *d = mem_new((size_t)n, sizeof *d);
	for (int i = 0; i < n; i++) {
		d[i] = b[i] - a[i];
		r.higher += d[i] > 0;
		r.lower += d[i] < 0;
	}
	struct groups g = groups_of(d, cluster, n);
	double mean = total_mean(d, n);
	r.clusters = g.n;
	r.change = bootstrap_groups(&g, mean, n, seed);
	if (isfinite(mean)) {
		r.p = sign_flip_p(&g);
		r.standard_error = stats_standard_error_clusters(d, cluster, n);
	}
	groups_free(&g);
	free(d);
	return r;
}
