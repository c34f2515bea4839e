/* stats.h: the numbers under every table and band. Seeded: the same rows give the same interval. */
#ifndef KVB_STATS_H
#define KVB_STATS_H

#include "harness/base/base.h"

struct interval {
	double mean, lo, hi; /* 95 % */
	int n;
};
struct interval stats_wilson(int successes, int n);                 /* 0/1 scores; n = 0: all NAN */
struct interval stats_bootstrap(const double *x, int n, uint64_t seed); /* percentile, 10,000 resamples of the mean; n < 2: lo = hi = NAN */
/* Resamples whole clusters (contexts): cluster[i] is any small integer, equal = same context. Fewer than two: lo = hi = NAN. */
struct interval stats_bootstrap_clusters(const double *x, const int *cluster, int n, uint64_t seed);
/* p in 0..1, linear interpolation between order statistics (numpy's default); sorts a copy. NAN for n = 0. */
double stats_quantile(const double *x, int n, double p);
bool stats_disjoint(struct interval a, struct interval b);          /* false when either has a NAN */

#endif
