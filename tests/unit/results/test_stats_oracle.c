/* The statistics against scipy, statsmodels and numpy (tests/oracle/make_stats.py), and what must hold of them anyway. */
#include "results/stats.h"

#include "tests/unit/test.h"

#define NEAR(a, b, tolerance)                                                                                                    \
	do {                                                                                                                     \
		double near_a = (a), near_b = (b);                                                                               \
		if (!(fabs(near_a - near_b) <= (tolerance)))                                                                     \
			fail_msg(#a " = %.12g, not %.12g", near_a, near_b);                                                      \
	} while (0)

static json_t *fixture;

static int open_fixture(void **state)
{
	(void)state;
	fixture = json_file("tests/fixtures/stats.json");
	return 0;
}

static int close_fixture(void **state)
{
	(void)state;
	json_decref(fixture);
	return 0;
}

static double number(const json_t *o, const char *name)
{
	const json_t *v = json_object_get(o, name);
	if (!json_is_number(v))
		fail_msg("no number %s", name);
	return json_number_value(v);
}

/* Caller frees; *n = its length. */
static double *numbers(const json_t *o, const char *name, int *n)
{
	const json_t *list = json_object_get(o, name);
	*n = (int)json_array_size(list);
	assert_true(*n > 0);
	double *x = mem_new((size_t)*n, sizeof *x);
	for (int i = 0; i < *n; i++)
		x[i] = json_number_value(json_array_get(list, (size_t)i));
	return x;
}

static int *integers(const json_t *o, const char *name)
{
	int n;
	double *x = numbers(o, name, &n);
	int *k = mem_new((size_t)n, sizeof *k);
	for (int i = 0; i < n; i++)
		k[i] = (int)x[i];
	free(x);
	return k;
}

#define EACH(name)                                                                                                               \
	const json_t *c;                                                                                                         \
	size_t each;                                                                                                             \
	assert_true(json_array_size(json_object_get(fixture, name)) > 0);                                                        \
	json_array_foreach(json_object_get(fixture, name), each, c)

static void wilson(void **state)
{
	(void)state;
	EACH("wilson")
	{
		struct interval w = stats_wilson((int)number(c, "k"), (int)number(c, "n"));
		NEAR(w.lo, number(c, "lo"), 1e-12);
		NEAR(w.hi, number(c, "hi"), 1e-12);
	}
}

static void standard_errors(void **state)
{
	(void)state;
	EACH("errors")
	{
		int n;
		double *x = numbers(c, "x", &n);
		int *cluster = integers(c, "cluster");
		NEAR(stats_standard_error(x, n), number(c, "se"), 1e-12);
		NEAR(stats_standard_error_clusters(x, cluster, n), number(c, "cluster_se"), 1e-12);
		free(x);
		free(cluster);
	}
	assert_true(isnan(stats_standard_error((double[]){1}, 1)));
	assert_true(isnan(stats_standard_error_clusters((double[]){1, 2}, (int[]){4, 4}, 2)));
}

/* Two bootstraps of 10,000 and 400,000 draws: the ends differ by their own error, about .02 of the width (and, of 0/1 scores, by
 * one grid step 1/80 at most). */
static void bootstrap(void **state)
{
	(void)state;
	EACH("bootstrap")
	{
		int n;
		double *x = numbers(c, "x", &n);
		double lo = number(c, "lo"), hi = number(c, "hi"), tolerance = .06 * (hi - lo);
		struct interval b = stats_bootstrap(x, n, 3);
		NEAR(b.lo, lo, tolerance);
		NEAR(b.hi, hi, tolerance);
		free(x);
	}
}

static void paired(void **state)
{
	(void)state;
	EACH("paired")
	{
		int n;
		double *a = numbers(c, "a", &n), *b = numbers(c, "b", &n), lo = number(c, "lo"), hi = number(c, "hi");
		int *cluster = integers(c, "cluster");
		struct paired p = stats_paired(a, b, cluster, n, 7), back = stats_paired(b, a, cluster, n, 7);
		NEAR(p.change.mean, number(c, "mean"), 1e-12);
		NEAR(p.change.lo, lo, .06 * (hi - lo));
		NEAR(p.change.hi, hi, .06 * (hi - lo));
		NEAR(p.p, number(c, "p"), 1e-9);
		NEAR(back.p, p.p, 1e-12);
		NEAR(back.change.mean, -p.change.mean, 1e-12);
		assert_int_equal(back.higher, p.lower);
		assert_true(p.standard_error > 0 && p.clusters > 1 && p.n == n);
		free(a);
		free(b);
		free(cluster);
	}
}

static void holm(void **state)
{
	(void)state;
	EACH("holm")
	{
		int n, m;
		double *p = numbers(c, "p", &n), *wanted = numbers(c, "adjusted", &m), *got = mem_new((size_t)n, sizeof *got);
		stats_holm(p, n, got);
		for (int i = 0; i < n; i++)
			NEAR(got[i], wanted[i], 1e-12);
		free(p);
		free(wanted);
		free(got);
	}
	double p[] = {.01, NAN, .02}, got[3];
	stats_holm(p, 3, got);
	NEAR(got[0], .03, 1e-12); /* what could not be tested still counts */
	NEAR(got[2], .04, 1e-12);
	assert_true(isnan(got[1]));
}

static void detectable(void **state)
{
	(void)state;
	EACH("detectable")
	NEAR(stats_detectable(number(c, "se"), number(c, "alpha"), number(c, "power")), number(c, "difference"),
		2e-4 * number(c, "difference")); /* statsmodels counts the far tail in, and searches to its own tolerance */
	assert_int_equal(stats_least_differing(.05), 6); /* 2^-5 = .031, 2^-4 = .0625 */
	assert_int_equal(stats_least_differing(1), 1);
}

static void ranks(void **state)
{
	(void)state;
	EACH("ranks")
	{
		int nx, ny;
		double *x = numbers(c, "x", &nx), *y = numbers(c, "y", &ny), p = number(c, "p");
		struct rank_test r = stats_mann_whitney(x, nx, y, ny);
		NEAR(r.u, number(c, "u"), 1e-12);
		NEAR(r.p, p, 1e-9 * p + 1e-15);
		assert_int_equal(r.exact, json_is_true(json_object_get(c, "exact")));
		free(x);
		free(y);
	}
	NEAR(stats_mann_whitney_least_p(9, 9), 2 / 48620.0, 1e-15);
	double same[] = {1, 1}, bad[] = {1, NAN};
	NEAR(stats_mann_whitney(same, 2, same, 2).p, 1, 1e-15);
	assert_true(isnan(stats_mann_whitney(same, 2, bad, 2).p));
	assert_true(isnan(stats_mann_whitney(same, 0, same, 2).p));
}

static void modified_z(void **state)
{
	(void)state;
	EACH("modified_z")
	{
		int n, m, far = 0;
		double *x = numbers(c, "x", &n), *wanted = numbers(c, "z", &m), *z = mem_new((size_t)n, sizeof *z);
		stats_modified_z(x, n, z);
		for (int i = 0; i < n; i++) {
			NEAR(z[i], wanted[i], 2e-4 * fabs(wanted[i]) + 1e-12); /* .6745 has four digits */
			far += fabs(wanted[i]) > 3.5;
		}
		assert_int_equal(stats_outliers(x, n), far);
		free(x);
		free(wanted);
		free(z);
	}
}

static void steps(void **state)
{
	(void)state;
	EACH("steps")
	{
		int n, levels;
		double *x = numbers(c, "x", &n), *level = numbers(c, "level", &levels);
		int *start = integers(c, "start");
		struct step *got = mem_new((size_t)n, sizeof *got);
		assert_int_equal(stats_steps(x, n, got), levels);
		for (int i = 0; i < levels; i++) {
			assert_int_equal(got[i].start, start[i]);
			NEAR(got[i].level, level[i], 1e-12);
		}
		free(x);
		free(level);
		free(start);
		free(got);
	}
}

/* ---- without a reference ---- */

static void nan_never_passes(void **state)
{
	(void)state;
	double a[] = {1, 0, NAN, 1}, b[] = {1, 1, 1, 0}, inf[] = {1, 0, INFINITY, 1};
	int cluster[] = {0, 1, 2, 3};
	struct paired p[] = {
		stats_paired(a, b, cluster, 4, 1), stats_paired(b, a, cluster, 4, 1), stats_paired(b, inf, cluster, 4, 1)};
	for (int i = 0; i < 3; i++) {
		assert_true(isnan(p[i].p) && isnan(p[i].change.lo) && isnan(p[i].change.hi) && isnan(p[i].standard_error));
		assert_false(isfinite(p[i].change.mean));
	}
	assert_true(isnan(stats_paired(a, b, cluster, 0, 1).p));
	double zero[] = {0, 0, 0, 0}, huge[] = {1e308, -1e308, 0, 0}; /* a mean of 0, a total that is none */
	assert_true(isnan(stats_paired(zero, huge, cluster, 4, 1).p));
	struct step out[4];
	assert_int_equal(stats_steps(a, 4, out), 0);
	assert_int_equal(stats_steps(a, 0, out), 0);
	struct rounds r = {b, a, 4};
	assert_true(isnan(stats_speed(r, r, 1).p));
}

static void nothing_changed(void **state)
{
	(void)state;
	double a[] = {1, 0, 1, .3};
	int cluster[] = {0, 0, 1, 1};
	struct paired p = stats_paired(a, a, cluster, 4, 1);
	assert_true(p.p == 1 && p.change.mean == 0 && p.change.lo == 0 && p.change.hi == 0);
	assert_int_equal(p.higher + p.lower, 0);
	assert_int_equal(p.clusters, 2);
}

/* 9 rounds each; the full cache's time wanders by a third, the method's with it, and is 10 % more in the second night. */
static void speed_is_paired_by_round(void **state)
{
	(void)state;
	double full[9], before[9], now[9];
	struct rng rng = rng_seed(5, 0);
	for (int i = 0; i < 9; i++) {
		full[i] = 100 * (1 + rng_unit(&rng) / 3);
		before[i] = full[i] * (1.5 + .01 * rng_unit(&rng));
		now[i] = full[i] * 1.1 * (1.5 + .01 * rng_unit(&rng));
	}
	struct speed s = stats_speed((struct rounds){before, full, 9}, (struct rounds){now, full, 9}, 1);
	NEAR(s.before, 1.505, .005);
	NEAR(s.change.mean, .1, .008);
	assert_true(s.change.lo > .08 && s.change.hi < .12 && s.change.n == 9);
	NEAR(s.p, 2 / 48620.0, 1e-12);
	struct speed alone = stats_speed((struct rounds){before, NULL, 9}, (struct rounds){now, NULL, 9}, 1);
	assert_true(alone.p > .001 && alone.change.hi - alone.change.lo > .08); /* what the pairing is for */
	struct speed again = stats_speed((struct rounds){before, full, 9}, (struct rounds){now, full, 9}, 1);
	assert_true(again.change.lo == s.change.lo && again.change.hi == s.change.hi);
	assert_true(isnan(stats_speed((struct rounds){before, full, 1}, (struct rounds){now, full, 9}, 1).change.lo));
}

/* Sum of 12 uniforms: close enough to a normal one. */
static double noise(struct rng *rng)
{
	double sum = -6;
	for (int i = 0; i < 12; i++)
		sum += rng_unit(rng);
	return sum;
}

static int shows_steps(int n, double change, int at, struct rng *rng)
{
	double x[200];
	struct step out[200];
	for (int i = 0; i < n; i++)
		x[i] = 1 + .01 * noise(rng) + (i >= at ? change : 0);
	int levels = stats_steps(x, n, out);
	return change == 0 ? levels > 1 : levels == 2 && abs(out[1].start - at) <= 1;
}

/* Of 400 series of plain noise at most 2 % show a step; a change by 4 sigma is found within seven nights in
 * at least 9 of 10, where more nights lie before it. */
static void steps_of_noise(void **state)
{
	(void)state;
	static const int lengths[] = {10, 20, 60, 200};
	struct rng rng = rng_seed(17, 0);
	for (int k = 0; k < 4; k++) {
		int false_steps = 0, found = 0;
		for (int i = 0; i < 100 * (k < 3 ? 4 : 1); i++)
			false_steps += shows_steps(lengths[k], 0, 0, &rng);
		for (int i = 0; i < 100; i++)
			found += shows_steps(lengths[k], .04, lengths[k] - 7, &rng);
		print_message("%d nights: %d false of %d, %d of 100 found\n", lengths[k], false_steps, k < 3 ? 400 : 100, found);
		assert_true(false_steps <= (k < 3 ? 8 : 2));
		assert_true(found >= (lengths[k] >= 20 ? 90 : 60));
	}
}

/* Scores that repeat to the bit: a change that stays is a step, one odd night is none. */
static void steps_without_noise(void **state)
{
	(void)state;
	double x[30];
	struct step out[30];
	for (int i = 0; i < 30; i++)
		x[i] = i < 20 ? .84 : .80;
	x[7] = .5;
	assert_int_equal(stats_steps(x, 30, out), 2);
	assert_int_equal(out[1].start, 20);
	assert_true(out[0].level == .84 && out[1].level == .80);
	for (int i = 0; i < 30; i++)
		x[i] = .84;
	assert_int_equal(stats_steps(x, 30, out), 1);
	assert_int_equal(stats_steps(x, 2, out), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(wilson), cmocka_unit_test(standard_errors),
		cmocka_unit_test(bootstrap), cmocka_unit_test(paired), cmocka_unit_test(holm), cmocka_unit_test(detectable),
		cmocka_unit_test(ranks), cmocka_unit_test(modified_z), cmocka_unit_test(steps),
		cmocka_unit_test(nan_never_passes), cmocka_unit_test(nothing_changed), cmocka_unit_test(speed_is_paired_by_round),
		cmocka_unit_test(steps_of_noise), cmocka_unit_test(steps_without_noise)};
	return cmocka_run_group_tests_name("stats_oracle", tests, open_fixture, close_fixture);
}
