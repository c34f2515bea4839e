/* stats.h: the numbers under every table, band, comparison and alert. Seeded: the same rows give the same interval.
 *
 * What is compared are samples, grouped in clusters: questions about one context are not independent, so that whole contexts are
 * resampled or flipped. NaN never passes: a figure computed from one is NaN, and every question asked of it is answered no.
 * stats.c has intervals, significance.c tests, steps.c the steps of a series. */
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
/* p in 0..1, linear interpolation between order statistics (numpy's default); sorts a copy. NAN for n = 0 and with a NAN among x. */
double stats_quantile(const double *x, int n, double p);
bool stats_disjoint(struct interval a, struct interval b);          /* false when either has a NAN */

/* Of the mean: s / sqrt(n), s with n - 1; NAN for n < 2. With clusters: sqrt(sum over clusters of (sum of x - mean)^2) / n, the
 * clustered form of Miller 2024 without small-sample factor; fewer than two clusters: NAN. */
double stats_standard_error(const double *x, int n);
double stats_standard_error_clusters(const double *x, const int *cluster, int n);

/* What changed from a to b on the n samples both have: a[i] and b[i] are scores of one sample. */
struct paired {
	struct interval change;  /* mean of b - a, bootstrap over clusters */
	double p;                /* two-sided, sign flips of whole clusters, exact; of 0/1 scores of single samples: McNemar's exact test */
	double standard_error;   /* of the mean change, by clusters */
	int n, clusters, higher, lower; /* samples whose score rose, fell */
};
struct paired stats_paired(const double *a, const double *b, const int *cluster, int n, uint64_t seed);

/* Holm: adjusted[i] of n p-values tested together. A NAN counts among the n and stays NAN. */
void stats_holm(const double *p, int n, double *adjusted);
/* The smallest true difference that a two-sided test at alpha finds with this power, given the standard error of the difference. */
double stats_detectable(double standard_error, double alpha, double power);
/* The least p that sign flips of so many differing clusters can give: 2^(1 - clusters); so a change in fewer cannot be told. */
int stats_least_differing(double alpha);

/* Do two groups of timings differ in place? u counts the pairs with x > y (ties half). Exact without ties up to 50 values in all, else
 * the normal approximation with ties and continuity corrected. An empty group, a NAN: p = NAN. */
struct rank_test {
	double u, p; /* two-sided */
	bool exact;
};
struct rank_test stats_mann_whitney(const double *x, int nx, const double *y, int ny);
double stats_mann_whitney_least_p(int nx, int ny); /* of two groups that do not overlap at all */
/* Modified z-scores z[n]: .6745 (x - median) / MAD; where the MAD is 0, (x - median) / (1.2533 mean absolute deviation). Beyond 3.5 is
 * called an outlier: to be shown, never dropped. A NAN among x: all NAN, no outlier. */
enum { STATS_OUTLIER_TENTHS = 35 };
void stats_modified_z(const double *x, int n, double *z);
int stats_outliers(const double *x, int n);

/* How the time of a method over that of the full cache changed between two nights: median of m1/f1 over median of m0/f0, less 1. m[i]
 * and f[i] were timed in one round, one after the other, so that what slows the machine down for a while slows both: on a busy
 * machine this median moved by 1.5 to 5 % from process to process, the ratio of the two medians by 5 to 14 %. p: Mann-Whitney over
 * the rounds' ratios. change: rounds resampled. Fewer than two rounds a side: lo = hi = NAN. */
struct rounds {
	const double *method, *full; /* [n] ns; full NULL: the method's own times are compared */
	int n;
};
struct speed {
	double before, now;          /* the two medians */
	struct interval change;      /* .n = the smaller number of rounds */
	double p;
};
struct speed stats_speed(struct rounds before, struct rounds now, uint64_t seed);

/* ---- steps of a series of nights (steps.c) ---- */

struct step {
	int start;    /* the first value of the level; the first step starts at 0 */
	double level; /* the median of its values */
};
/* The piecewise constant series that fits best: least absolute deviation with a price for each step that grows with the noise
 * (estimated from neighbours' differences) and log n. A level has at least STEP_MIN values, so that one bad night is no step. out[n];
 * returns the number of levels, 0 for n = 0 or a NAN among the values. */
enum { STEP_MIN = 3 };
int stats_steps(const double *x, int n, struct step *out);

#endif
