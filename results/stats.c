/* stats.c: see stats.h.
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

static struct interval bootstrap_groups(const struct groups *g, double mean, int n, uint64_t seed)
{
	struct interval r = {mean, NAN, NAN, n};
	if (g->n < 2) /* one draw only is possible: no interval, rather than one of no width */
		return r;
	double *means = mem_new(RESAMPLES, sizeof *means);
	struct rng rng = rng_seed(seed, 0);
	for (int k = 0; k < RESAMPLES; k++) {
		double sum = 0;
		int64_t size = 0;
		for (int i = 0; i < g->n; i++) {
			uint64_t at = rng_below(&rng, (uint64_t)g->n);
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

struct interval stats_bootstrap(const double *x, int n, uint64_t seed)
{
	if (n <= 0)
		return (struct interval){NAN, NAN, NAN, 0};
	struct groups g = {mem_new((size_t)n, sizeof(double)), mem_new((size_t)n, sizeof(int)), n};
	for (int i = 0; i < n; i++) {
		g.sum[i] = x[i];
		g.size[i] = 1;
	}
	struct interval r = bootstrap_groups(&g, total_mean(x, n), n, seed);
	free(g.sum);
	free(g.size);
	return r;
}

/* Where the cluster `name` stands in names[0..n), or n. */
static int find_name(const int *names, int n, int name)
{
	int i = 0;
	while (i < n && names[i] != name)
		i++;
	return i;
}

struct interval stats_bootstrap_clusters(const double *x, const int *cluster, int n, uint64_t seed)
{
	if (n <= 0)
		return (struct interval){NAN, NAN, NAN, 0};
	struct groups g = {mem_new((size_t)n, sizeof(double)), mem_new((size_t)n, sizeof(int)), 0};
	int *names = mem_new((size_t)n, sizeof *names);
	for (int i = 0; i < n; i++) {
		int at = find_name(names, g.n, cluster[i]);
		if (at == g.n)
			names[g.n++] = cluster[i];
		g.sum[at] += x[i];
		g.size[at]++;
	}
	struct interval r = bootstrap_groups(&g, total_mean(x, n), n, seed);
	free(names);
	free(g.sum);
	free(g.size);
	return r;
}

bool stats_disjoint(struct interval a, struct interval b)
{
	return a.lo > b.hi || b.lo > a.hi; /* false with a NAN */
}
