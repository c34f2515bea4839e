/* test_soft_topk.c: Soft-TopK against its definition, bisection, finite differences and the PyTorch fixture.
 * spec/proxykv-lkv.md 2.6. */
#include "runners/lkv/soft_topk.h"
#include "tests/unit/lkv/lkv_fixture.h"

#include "runners/methods/method.h"

static double normal(struct rng *r)
{
	return sqrt(-2 * log(1 - rng_unit(r))) * cos(6.283185307179586 * rng_unit(r));
}

static double gate_sum(const double *x, int64_t n, double k, double tau, double *gates)
{
	double sum = 0;
	soft_topk_gates(x, n, soft_topk_solve(x, n, k, tau), tau, gates);
	for (int64_t i = 0; i < n; i++)
		sum += exp(gates[i]);
	return sum;
}

static void test_sum(void **state)
{
	static const int64_t lengths[] = {1, 2, 3, 17, 500, 4097};
	static const double taus[] = {1, .3, .05, .005}, spreads[] = {0, .1, 1, 10, 1000};
	double *x = mem_new(4097, sizeof *x), *g = mem_new(4097, sizeof *g);
	for (int trial = 0; trial < 600; trial++) {
		struct rng r = rng_seed(3, (uint64_t)trial);
		int64_t n = lengths[trial % 6];
		double tau = taus[trial / 6 % 4], k = (.01 + .98 * rng_unit(&r)) * (double)n;
		for (int64_t i = 0; i < n; i++)
			x[i] = normal(&r) * spreads[trial % 5];
		if (trial % 7 == 0)
			for (int64_t i = 0; i < n; i++)
				x[i] = rint(2 * x[i]) / 2; /* ties */
		if (trial % 3 == 0)
			k = rint(k);
		double sum = gate_sum(x, n, k, tau, g);
		if (!(fabs(sum - k) < 1e-6))
			fail_msg("trial %d: n %lld, k %.6f, tau %g: the gates sum to %.9f", trial, (long long)n, k, tau, sum);
	}
	free(x);
	free(g);
	(void)state;
}

static void test_bisection(void **state)
{
	double x[200], a[200], b[200];
	for (int trial = 0; trial < 200; trial++) {
		struct rng r = rng_seed(4, (uint64_t)trial);
		int64_t n = 2 + (int64_t)rng_below(&r, 199);
		double tau = trial % 2 ? .3 : .05, k = (.02 + .96 * rng_unit(&r)) * (double)n;
		for (int64_t i = 0; i < n; i++)
			x[i] = normal(&r);
		soft_topk_gates(x, n, soft_topk_solve(x, n, k, tau), tau, a);
		soft_topk_gates(x, n, soft_topk_bisect(x, n, k, tau), tau, b);
		for (int64_t i = 0; i < n; i++)
			if (!(fabs(exp(a[i]) - exp(b[i])) < 1e-9))
				fail_msg("trial %d, gate %lld: %.12f, by bisection %.12f", trial, (long long)i, exp(a[i]),
					exp(b[i]));
	}
	(void)state;
}

static void test_ends(void **state)
{
	const double x[5] = {3, -1, 2, 2, 0};
	double g[5];
	soft_topk_gates(x, 5, soft_topk_solve(x, 5, 5, .3), .3, g); /* k = n: every gate is open */
	for (int i = 0; i < 5; i++)
		assert_true(g[i] == 0);
	soft_topk_gates(x, 5, soft_topk_solve(x, 5, 0, .3), .3, g);
	for (int i = 0; i < 5; i++)
		assert_true(g[i] == -INFINITY);
	(void)state;
}

/* tau -> 0 is the hard top-k of the program. */
static void test_hard(void **state)
{
	double x[300], g[300];
	float f[300];
	int32_t kept[300];
	for (int trial = 0; trial < 50; trial++) {
		struct rng r = rng_seed(5, (uint64_t)trial);
		int64_t n = 20 + (int64_t)rng_below(&r, 281), k = 1 + (int64_t)rng_below(&r, (uint64_t)n - 1), at = 0;
		for (int64_t i = 0; i < n; i++)
			x[i] = f[i] = (float)normal(&r);
		assert_int_equal(top_k(f, n, k, kept), 0);
		soft_topk_gates(x, n, soft_topk_solve(x, n, (double)k, 1e-9), 1e-9, g);
		for (int64_t i = 0; i < n; i++) {
			bool in = at < k && kept[at] == i;
			at += in;
			if (!(fabs(exp(g[i]) - in) < 1e-6))
				fail_msg("trial %d: entry %lld has the gate %g, hard top-k says %d", trial, (long long)i,
					exp(g[i]), in);
		}
	}
	(void)state;
}

static double loss(const double *x, int64_t n, double k, double tau, const double *up)
{
	double g[40], sum = 0;
	soft_topk_gates(x, n, soft_topk_solve(x, n, k, tau), tau, g);
	for (int64_t i = 0; i < n; i++)
		sum += up[i] * g[i];
	return sum;
}

static void test_differences(void **state)
{
	double x[40], up[40], worst = 0;
	for (int trial = 0; trial < 40; trial++) {
		struct rng r = rng_seed(6, (uint64_t)trial);
		int64_t n = 2 + (int64_t)rng_below(&r, 39);
		double tau = trial % 2 ? 1 : .3, k = (.1 + .8 * rng_unit(&r)) * (double)n, dx[40] = {0}, e = 1e-6, scale = 0;
		for (int64_t i = 0; i < n; i++) {
			x[i] = normal(&r);
			up[i] = normal(&r);
		}
		double dk = soft_topk_back(x, n, soft_topk_solve(x, n, k, tau), tau, up, dx);
		for (int64_t i = 0; i < n; i++)
			scale = fmax(scale, fabs(dx[i]));
		for (int64_t i = 0; i < n; i++) {
			double keep = x[i];
			x[i] = keep + e;
			double high = loss(x, n, k, tau, up);
			x[i] = keep - e;
			worst = fmax(worst, fabs((high - loss(x, n, k, tau, up)) / (2 * e) - dx[i]) / fmax(scale, 1));
			x[i] = keep;
		}
		double numeric = (loss(x, n, k + e, tau, up) - loss(x, n, k - e, tau, up)) / (2 * e);
		worst = fmax(worst, fabs(numeric - dk) / fmax(fabs(dk), 1));
	}
	if (!(worst < 1e-6)) /* measured: 2e-8 */
		fail_msg("gradients differ from finite differences by %g", worst);
	(void)state;
}

static void test_fixture(void **state)
{
	struct st_file *f = fixture_open("tests/fixtures/lkv/parts.safetensors");
	for (int c = 0; c < 8; c++) {
		char name[32];
		int64_t n;
#define GET(what, count) (snprintf(name, sizeof name, "topk.%d." what, c), fixture_get(f, name, count))
		double *x = GET("x", &n), *k = GET("k", NULL), *tau = GET("tau", NULL), *up = GET("up", NULL),
		       *want = GET("logm", NULL), *dx = GET("d.x", NULL), *dk = GET("d.k", NULL),
		       *got = mem_new((size_t)n, sizeof *got), *back = mem_new((size_t)n, sizeof *back);
#undef GET
		double mu = soft_topk_solve(x, n, *k, *tau);
		soft_topk_gates(x, n, mu, *tau, got);
		assert_near(name, got, want, n, 1e-9);
		double back_k = soft_topk_back(x, n, mu, *tau, up, back);
		if (c != 4) { /* lambda is not unique there: the gates are compared alone */
			assert_near("d.k", &back_k, dk, 1, 1e-9);
			if (n > 1)
				assert_near("d.x", back, dx, n, 1e-9);
			else
				assert_true(fabs(back[0]) < 1e-9); /* one entry: k alone decides */
		}
		free(x), free(k), free(tau), free(up), free(want), free(dx), free(dk), free(got), free(back);
	}
	st_close(f);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sum), cmocka_unit_test(test_bisection),
		cmocka_unit_test(test_ends), cmocka_unit_test(test_hard), cmocka_unit_test(test_differences),
		cmocka_unit_test(test_fixture)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
