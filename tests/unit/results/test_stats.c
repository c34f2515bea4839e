/* Statistics against hand-checked and published numbers. */
#include "results/stats.h"

#include <math.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

#define NEAR(a, b, tolerance) assert_true(fabs((a) - (b)) < (tolerance))

/* 10 of 50: by hand, z = 1.95996: centre (.2 + .0384146) / 1.0768292 = .2214040, half width .1089604. */
static void wilson_by_hand(void **state)
{
	(void)state;
	struct interval w = stats_wilson(10, 50);
	NEAR(w.mean, .2, 1e-12);
	NEAR(w.lo, .1124375, 1e-6);
	NEAR(w.hi, .3303711, 1e-6);
	assert_int_equal(w.n, 50);
}

static void wilson_at_the_ends(void **state)
{
	(void)state;
	struct interval none = stats_wilson(0, 10), all = stats_wilson(10, 10);
	assert_true(none.lo == 0 && all.hi == 1);
	NEAR(none.hi, 3.8414588 / 13.8414588, 1e-7); /* z^2 / (n + z^2) */
	NEAR(all.lo, 10 / 13.8414588, 1e-7);
	struct interval nothing = stats_wilson(0, 0);
	assert_true(isnan(nothing.mean) && isnan(nothing.lo) && isnan(nothing.hi));
}

/* numpy.quantile([4, 1, 3, 2], [0, .25, .5, .9, 1]) = 1, 1.75, 2.5, 3.7, 4 */
static void quantiles_interpolate(void **state)
{
	(void)state;
	const double x[] = {4, 1, 3, 2};
	NEAR(stats_quantile(x, 4, 0), 1, 1e-12);
	NEAR(stats_quantile(x, 4, .25), 1.75, 1e-12);
	NEAR(stats_quantile(x, 4, .5), 2.5, 1e-12);
	NEAR(stats_quantile(x, 4, .9), 3.7, 1e-12);
	NEAR(stats_quantile(x, 4, 1), 4, 1e-12);
	assert_true(x[0] == 4); /* sorts a copy */
	assert_true(isnan(stats_quantile(x, 0, .5)));
	NEAR(stats_quantile(x, 1, .3), 4, 1e-12);
}

/* Wherever it stands: the order in which a sort meets it must not decide. */
static void nan_has_no_place_in_an_order(void **state)
{
	(void)state;
	for (int at = 0; at < 5; at++) {
		double x[] = {1, 7, 2, 1, 90}, z[5];
		x[at] = NAN;
		assert_true(isnan(stats_quantile(x, 5, 0)) && isnan(stats_quantile(x, 5, .5)) && isnan(stats_quantile(x, 5, 1)));
		stats_modified_z(x, 5, z);
		for (int i = 0; i < 5; i++)
			assert_true(isnan(z[i]));
		assert_int_equal(stats_outliers(x, 5), 0);
		struct rounds night = {x, NULL, 5}, other = {(const double[]){3, 4, 5}, NULL, 3};
		struct speed s = stats_speed(other, night, 1);
		assert_true(s.before == 4 && isnan(s.now) && isnan(s.change.mean) && isnan(s.change.lo) && isnan(s.change.hi) &&
			    isnan(s.p));
	}
}

/* The mean of n draws is near normal: mean +- 1.96 s / sqrt(n), s with 1/n. x = 0 .. 99: s = 28.866, half width 5.658.
 * 10,000 resamples place a 2.5 % quantile within about .13 (3 standard errors); observed .02 and .01. */
static void bootstrap_near_normal(void **state)
{
	(void)state;
	double x[100];
	for (int i = 0; i < 100; i++)
		x[i] = i;
	struct interval b = stats_bootstrap(x, 100, 7);
	NEAR(b.mean, 49.5, 1e-12);
	NEAR(b.lo, 49.5 - 5.658, .15);
	NEAR(b.hi, 49.5 + 5.658, .15);
}

static void bootstrap_is_seeded(void **state)
{
	(void)state;
	const double x[] = {.1, .9, .4, .4, .7, 0, 1, .25};
	struct interval a = stats_bootstrap(x, 8, 1), b = stats_bootstrap(x, 8, 1), c = stats_bootstrap(x, 8, 2);
	assert_true(a.lo == b.lo && a.hi == b.hi);
	assert_true(a.lo != c.lo || a.hi != c.hi);
}

/* Two rows, 0 and 1: a resampled mean is 0, .5 or 1 with 1/4, 1/2, 1/4: the 95 % interval is 0 .. 1. */
static void bootstrap_of_two(void **state)
{
	(void)state;
	const double x[] = {0, 1};
	struct interval b = stats_bootstrap(x, 2, 3);
	assert_true(b.lo == 0 && b.hi == 1 && b.mean == .5);
	struct interval one = stats_bootstrap(x, 1, 3), none = stats_bootstrap(x, 0, 3);
	assert_true(one.mean == 0 && isnan(one.lo) && isnan(one.hi));
	assert_true(isnan(none.mean));
}

/* 4 contexts of 25 equal answers hold no more than 4 answers: the interval by clusters equals that of 4 rows in shape (0 .. 1),
 * while pretending independence gives about .5 +- .098. */
static void clusters_widen_the_interval(void **state)
{
	(void)state;
	double x[100];
	int cluster[100];
	for (int i = 0; i < 100; i++) {
		cluster[i] = 40 - i % 4; /* names need no order */
		x[i] = i % 4 < 2;
	}
	struct interval by_cluster = stats_bootstrap_clusters(x, cluster, 100, 5), by_row = stats_bootstrap(x, 100, 5);
	NEAR(by_cluster.mean, .5, 1e-12);
	assert_true(by_cluster.lo == 0 && by_cluster.hi == 1); /* P(all four draws equal in kind) = 1/16 > 2.5 % at each end */
	NEAR(by_row.lo, .402, .02);
	NEAR(by_row.hi, .598, .02);
}

/* Unequal clusters: the mean is that of the rows, 3 x 1 and 1 x 0, not that of the contexts. */
static void clusters_weigh_rows(void **state)
{
	(void)state;
	const double x[] = {1, 1, 1, 0};
	const int cluster[] = {0, 0, 0, 1}, same[] = {9, 9, 9, 9};
	struct interval b = stats_bootstrap_clusters(x, cluster, 4, 5);
	NEAR(b.mean, .75, 1e-12);
	assert_true(b.lo == 0 && b.hi == 1);
	assert_true(isnan(stats_bootstrap_clusters(x, same, 4, 5).lo)); /* one context: no interval */
}

static void disjoint_intervals(void **state)
{
	(void)state;
	struct interval low = {.1, 0, .2, 5}, high = {.6, .5, .7, 5}, touching = {.3, .2, .4, 5}, unknown = {.9, NAN, NAN, 1};
	assert_true(stats_disjoint(low, high) && stats_disjoint(high, low));
	assert_false(stats_disjoint(low, touching));
	assert_false(stats_disjoint(low, unknown));
	assert_false(stats_disjoint(unknown, low));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(wilson_by_hand), cmocka_unit_test(wilson_at_the_ends),
		cmocka_unit_test(quantiles_interpolate), cmocka_unit_test(nan_has_no_place_in_an_order),
		cmocka_unit_test(bootstrap_near_normal), cmocka_unit_test(bootstrap_is_seeded),
		cmocka_unit_test(bootstrap_of_two), cmocka_unit_test(clusters_widen_the_interval),
		cmocka_unit_test(clusters_weigh_rows), cmocka_unit_test(disjoint_intervals)};
	return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
