/* test_primitives.c: counts, order, pooling, shares: the arithmetic every method stands on (spec/methods.md section 1). */
#include "tests/unit/methods/methods.h"

static void p4_pooling_edges(void **state)
{
	(void)state;
	const float impulse[8] = {1}, negative[5] = {-5, -3, -4, -2, -9};
	float out[8];
	pool_avg(impulse, 8, 5, out);
	assert_close(out, (const double[]){.2, .2, .2, 0, 0, 0, 0, 0}, 8, 1e-7); /* not .333 .25 .2: the divisor stays 5 */
	pool_max(negative, 5, 3, out);
	assert_close(out, (const double[]){-3, -3, -2, -2, -2}, 5, 0); /* outside counts as -inf, not 0 */
	pool_max(negative, 5, 7, out);
	assert_close(out, (const double[]){-2, -2, -2, -2, -2}, 5, 0);
	pool_avg(negative, 5, 1, out);
	assert_close(out, (const double[]){-5, -3, -4, -2, -9}, 5, 0);
}

static void p7_counts(void **state)
{
	(void)state;
	static const struct {
		int64_t n;
		double c;
		int64_t kvpress;
	} table[] = {{10, .9, 1}, {100, .9, 9}, {1000, .9, 99}, {4000, .9, 399}, {10, .8, 1}, {100, .8, 19}, {10, .7, 3},
		{30, .7, 9}, {4096, .25, 3072}, {4096, .5, 2048}, {4096, .75, 1024}, {4096, .875, 512}, {4096, .9, 409}};
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		assert_int_equal(keep_count(table[i].n, 1 - table[i].c, "kvpress"), table[i].kvpress);
	assert_int_equal(keep_count(10, .1, "kvpress"), 1); /* r = .1 is c = .9: trunc gives 0, and 1 is the least it keeps */
	assert_int_equal(keep_count(10, .3, "kvzip"), 3);
	assert_int_equal(keep_count(2048, .3, "kvzip"), 614);
	assert_int_equal(keep_count(4096, .3, "kvzip"), 1228);
	assert_int_equal(keep_count(10, .1, "none"), 1);
	assert_int_equal(keep_count(100, 1 - .9, "none"), 10);
	assert_int_equal(keep_count(4000, .1, "none"), 400);
	assert_int_equal(keep_count(3, .1, "none"), 1);
	assert_int_equal(keep_count(1, .01, "none"), 1);
	assert_int_equal(keep_count(5, .5, "factory"), 2); /* 2.5: halves to even */
	assert_int_equal(keep_count(7, .5, "factory"), 4); /* 3.5 */
	for (int64_t n = 0; n < 300; n += 7)
		for (const char *const *c = (const char *const[]){"none", "kvpress", "kvzip", "factory", NULL}; *c; c++)
			assert_int_equal(keep_count(n, 1, *c), n);
}

/* kvpress 0.5.5 on short contexts, for every ratio in hundredths: c as its user writes it, of which ours is what remains. */
static void kvpress_counts_of_short_contexts(void **state)
{
	(void)state;
	for (int64_t n = 1; n <= 40; n++)
		for (int percent = 1; percent < 100; percent++) {
			double c = percent / 100.0, retained = (100 - percent) / 100.0;
			int64_t want = (int64_t)((double)n * (1 - c));
			assert_int_equal(keep_count(n, retained, "kvpress"), want > 1 ? want : 1);
			assert_true(evicted_share(retained) == c);
			assert_true(evicted_share(1 - c) == c);
		}
	assert_true(evicted_share(1. / 3) == 1 - 1. / 3); /* no decimal: as it is */
}

static void order_of_equal_scores(void **state)
{
	(void)state;
	int32_t out[8];
	const float equal[6] = {1, 1, 1, 1, 1, 1}, zeros[4] = {-0.0f, 0.0f, -0.0f, 0.0f},
		    mixed[8] = {3, NAN, -INFINITY, 7, 3, INFINITY, 3, -1};
	assert_int_equal(top_k(equal, 6, 2, out), 0);
	assert_int_equal(out[0], 0);
	assert_int_equal(out[1], 1);
	top_k(zeros, 4, 1, out); /* -0 and 0 are equal */
	assert_int_equal(out[0], 0);
	assert_int_equal(top_k(mixed, 8, 4, out), 1);
	assert_memory_equal(out, ((const int32_t[]){0, 3, 4, 5}), 4 * sizeof(*out));
	assert_int_equal(top_k(mixed, 8, 7, out), 1); /* NaN comes last, after -inf */
	assert_memory_equal(out, ((const int32_t[]){0, 2, 3, 4, 5, 6, 7}), 7 * sizeof(*out));
	assert_int_equal(top_k(mixed, 8, 0, out), 1);
	assert_int_equal(top_k(mixed, 8, 9, out), 1);
	assert_int_equal(out[7], 7);
	assert_int_equal(top_k(mixed, 0, 3, out), 0);
}

struct pair {
	float score;
	int32_t at;
};

static int best_first(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	return x->score != y->score ? (x->score < y->score) - (x->score > y->score) : (x->at > y->at) - (x->at < y->at);
}

static int ascending(const void *a, const void *b)
{
	return *(const int32_t *)a - *(const int32_t *)b;
}

/* The selection equals a plain sort, on scores with many equals and on wide ones; P39: indices are those of the slice given. */
static void top_k_equals_a_sort(void **state)
{
	(void)state;
	enum { N = 517 };
	struct rng g = rng_seed(1, 2);
	for (int round = 0; round < 200; round++) {
		float scores[N];
		struct pair sorted[N];
		int32_t got[N], want[N];
		int64_t k = (int64_t)rng_below(&g, N + 1);
		for (int i = 0; i < N; i++) {
			scores[i] = round % 2 ? (float)rng_below(&g, 9) - 4
					      : (float)((rng_unit(&g) - .5) * exp(40 * rng_unit(&g) - 20));
			sorted[i] = (struct pair){scores[i], i};
		}
		qsort(sorted, N, sizeof(*sorted), best_first);
		for (int64_t i = 0; i < k; i++)
			want[i] = sorted[i].at;
		qsort(want, (size_t)k, sizeof(*want), ascending);
		assert_int_equal(top_k(scores, N, k, got), 0);
		assert_memory_equal(got, want, (size_t)k * sizeof(*got));
		if (k > 0) { /* over three slices of a larger block: the counts are those of the sort */
			int64_t counts[3], check[3] = {0};
			top_counts(NULL, (struct slices){scores + 1, 3, 172, 170}, k < 500 ? k : 500, counts);
			int64_t taken = 0;
			for (int i = 0; i < N && taken < (k < 500 ? k : 500); i++) {
				int at = sorted[i].at - 1;
				if (at >= 0 && at % 172 < 170 && at < 3 * 172) {
					check[at / 172]++;
					taken++;
				}
			}
			assert_memory_equal(counts, check, sizeof(counts));
		}
	}
}

static void strictly_above(void **state)
{
	(void)state;
	const float scores[10] = {.9f, .8f, .7f, .6f, .5f, .4f, .3f, .2f, .1f, .05f}, three[10] = {.9f, .7f, .7f, .7f, .5f},
		    ones[4] = {1, 1, 1, 1};
	int64_t n;
	counts_above(NULL, (struct slices){scores, 1, 10, 10}, 2, &n);
	assert_int_equal(n, 2);
	counts_above(NULL, (struct slices){three, 1, 10, 10}, 2, &n);
	assert_int_equal(n, 1);
	counts_above(NULL, (struct slices){ones, 1, 4, 4}, 0, &n);
	assert_int_equal(n, 0);
}

static void shares_add_up(void **state)
{
	(void)state;
	int64_t out[4];
	share_out((const double[]){2.5, 2.5, 4}, 3, 9, out); /* equal remainders: the lower index */
	assert_int_equal(out[0], 3);
	assert_int_equal(out[1], 2);
	assert_int_equal(out[2], 4);
	share_out((const double[]){.6, .2, .2, 0}, 4, 1, out);
	assert_int_equal(out[0], 1);
	assert_int_equal(out[1] + out[2] + out[3], 0);
	share_out((const double[]){2.9999999999, 1.0000000001}, 2, 4, out);
	assert_int_equal(out[0], 3);
	assert_int_equal(out[1], 1);
	struct rng g = rng_seed(3, 3);
	for (int round = 0; round < 1000; round++) {
		double raw[13], sum = 0;
		int64_t got[13], total = (int64_t)rng_below(&g, 500), check = 0;
		for (int i = 0; i < 13; i++)
			sum += raw[i] = rng_unit(&g);
		for (int i = 0; i < 13; i++)
			raw[i] *= (double)total / sum;
		share_out(raw, 13, total, got);
		for (int i = 0; i < 13; i++) {
			check += got[i];
			assert_true(fabs((double)got[i] - raw[i]) < 1 + 1e-6);
		}
		assert_int_equal(check, total);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(p4_pooling_edges), cmocka_unit_test(p7_counts),
		cmocka_unit_test(kvpress_counts_of_short_contexts),
		cmocka_unit_test(order_of_equal_scores), cmocka_unit_test(top_k_equals_a_sort), cmocka_unit_test(strictly_above),
		cmocka_unit_test(shares_add_up)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
