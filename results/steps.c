/* steps.c: the steps of a series of nights. See stats.h.
 *
 * Optimal partitioning: best[end] = least over start of best[start] + cost(start, end) + price, where cost is the sum of absolute
 * deviations from the median, so that one wild night weighs what it is and no more. */
#include "results/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of normal noise: the median absolute difference of neighbours is .6745 sqrt(2) sigma, and steps are too few to count in it.
 * Where more than half of the neighbours are equal (scores that are the same to the bit every night) the differing ones stand for
 * all, by their share. */
static double noise_of(const double *x, int n)
{
	double *d = mem_new((size_t)n, sizeof *d);
	int differing = 0, equal = 0;
	for (int i = 0; i + 1 < n; i++) {
		double difference = fabs(x[i + 1] - x[i]);
		if (difference > 0)
			d[differing++] = difference;
		else
			equal++;
	}
	double typical = differing > 0 ? stats_quantile(d, differing, .5) * differing / (n - 1) : 0;
	if (differing > equal) {
		memset(d + differing, 0, (size_t)equal * sizeof *d);
		typical = stats_quantile(d, n - 1, .5);
	}
	free(d);
	return typical / (.6745 * sqrt(2));
}

/* A level's values in order; put keeps the sum of absolute deviations from the median. */
struct level {
	double *sorted, cost;
	int n;
};

static void level_put(struct level *l, double x)
{
	/* the cost grows by the distance to the median of what is there: to the middle value, or to the middle pair */
	if (l->n > 0) {
		double lo = l->sorted[(l->n - 1) / 2], hi = l->sorted[l->n / 2];
		l->cost += x < lo ? lo - x : x > hi ? x - hi : 0;
	}
	int k = l->n++;
	for (; k > 0 && l->sorted[k - 1] > x; k--)
		l->sorted[k] = l->sorted[k - 1];
	l->sorted[k] = x;
}

/* from[end] = where the last level of the best partition of x[0..end) starts. */
static void partition(const double *x, int n, double price, int *from)
{
	double *best = mem_new((size_t)n + 1, sizeof *best);
	struct level l = {.sorted = mem_new((size_t)n, sizeof(double))};
	for (int end = 1; end <= n; end++)
		best[end] = INFINITY;
	for (int start = 0; start < n; start++) {
		l.n = 0;
		l.cost = 0;
		for (int end = start + 1; end <= n && isfinite(best[start]); end++) {
			level_put(&l, x[end - 1]);
			bool long_enough = l.n >= STEP_MIN || (start == 0 && end == n);
			double cost = best[start] + l.cost + (start > 0 ? price : 0);
			if (long_enough && cost < best[end]) {
				best[end] = cost;
				from[end] = start;
			}
		}
	}
	free(l.sorted);
	free(best);
}

int stats_steps(const double *x, int n, struct step *out)
{
	for (int i = 0; i < n; i++) {
		if (!isfinite(x[i]))
			return 0;
	}
	if (n <= 0)
		return 0;
	int *from = mem_new((size_t)n + 1, sizeof *from), levels = 0;
	/* 3 sigma log n: fewer than 1 in 100 series of 20 to 200 nights of plain noise show a step
	 * (tests/unit/results/test_steps.c) */
	double price = n > 1 ? fmax(3 * noise_of(x, n) * log(n), 1e-12 * fabs(x[0])) : 0;
	partition(x, n, price, from);
	for (int end = n; end > 0; end = from[end])
		levels++;
	for (int end = n, k = levels; end > 0; end = from[end])
		out[--k] = (struct step){from[end], stats_quantile(x + from[end], end - from[end], .5)};
	free(from);
	return levels;
}
