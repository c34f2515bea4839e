/* test_scorers.c: golden numbers of spec/methods.md sections 2-5 for the arithmetic on plain arrays, and its edge cases. */
#include "tests/unit/methods/methods.h"

/* Selects from scores made by hand: one layer, one KV head. */
static struct selection pick(const char *name, const char *options, float *scores, int64_t n, double r)
{
	struct plan_method m = resolved(name, options);
	struct scoring s = by_hand(&m, 1, 1, n, scores);
	struct selection sel = selected(&m, &s, r);
	method_free(&m);
	return sel;
}

#define assert_pick(name, options, scores, n, r, ...)                                                                            \
	do {                                                                                                                     \
		struct selection sel_ = pick(name, options, scores, n, r);                                                       \
		assert_kept(&sel_, 0, __VA_ARGS__);                                                                              \
		selection_free(&sel_);                                                                                           \
	} while (0)

static const float snap_rows[2][2][8] = {
	{{.30f, .05f, .05f, .20f, .05f, .05f, .30f, 0}, {.10f, .05f, .05f, .40f, .05f, .05f, .10f, .20f}},
	{{.10f, .30f, .05f, .05f, .05f, .05f, .40f, 0}, {.10f, .40f, .05f, .05f, .05f, .05f, .10f, .20f}}};

static void p3_snap_1_golden(void **state)
{
	(void)state;
	static const struct {
		struct pool_rule rule;
		double want[6];
		int kept[2];
	} variants[] = {
		{{'n', 1, false, false, 2}, {.15, .2, .05, .175, .05, .05}, {1, 3}},
		{{'a', 3, false, false, 2}, {.116667, .133333, .141667, .091667, .091667, .033333}, {1, 2}},
		{{'a', 3, false, true, 2}, {.116667, .133333, .141667, .091667, .091667, .033333}, {1, 2}},
		{{'m', 3, false, false, 2}, {.2, .2, .2, .175, .175, .05}, {0, 1}},
		{{'m', 3, false, true, 2}, {.275, .275, .325, .175, .175, .05}, {0, 2}},
		{{'m', 3, true, false, 2}, {.35, .35, .35, .3, .3, .05}, {0, 1}},
		{{'a', 3, true, false, 2}, {.183333, .2, .233333, .133333, .133333, .033333}, {1, 2}},
	};
	float sums[2][8], scores[8] = {0};
	for (int h = 0; h < 2; h++)
		for (int j = 0; j < 8; j++)
			sums[h][j] = snap_rows[h][0][j] + snap_rows[h][1][j];
	for (size_t i = 0; i < sizeof(variants) / sizeof(*variants); i++) {
		pool_scores(sums[0], 2, 8, 6, &variants[i].rule, scores);
		assert_close(scores, variants[i].want, 6, 1e-6);
		assert_pick("snapkv", "{\"window\":2}", scores, 8, .5, variants[i].kept[0], variants[i].kept[1], 6, 7);
	}
}

static void p4_window_scores_do_not_leak(void **state)
{
	(void)state;
	float sums[8] = {1, 1, 1, 1, 1, 1, 1000, 1000}, scores[6];
	pool_scores(sums, 1, 8, 6, &(struct pool_rule){'m', 7, false, false, 1}, scores);
	assert_close(scores, (const double[]){1, 1, 1, 1, 1, 1}, 6, 0);
	pool_scores(sums, 1, 8, 6, &(struct pool_rule){'a', 5, false, false, 1}, scores);
	assert_close(scores, (const double[]){.6, .8, 1, 1, .8, .6}, 6, 1e-6);
}

static void streaming_golden(void **state)
{
	(void)state;
	float scores[12];
	const char *kvpress = "{\"compat\":\"kvpress\"}";
	streaming_scores(12, 4, false, scores);
	assert_pick("streaming-llm", kvpress, scores, 12, .5, 0, 1, 2, 3, 10, 11);
	streaming_scores(10, 4, false, scores);
	assert_pick("streaming-llm", kvpress, scores, 10, 1 - .7, 0, 1, 2);
	assert_pick("streaming-llm", kvpress, scores, 10, 1 - .9, 0); /* 0.5.5 keeps one */
	streaming_scores(10, 4, true, scores); /* ours, P10: at least one recent entry */
	assert_pick("streaming-llm", NULL, scores, 10, .1, 9);
	assert_pick("streaming-llm", NULL, scores, 10, .3, 0, 1, 9);
	assert_pick("streaming-llm", NULL, scores, 10, .4, 0, 1, 2, 9);
	assert_pick("streaming-llm", NULL, scores, 10, .5, 0, 1, 2, 3, 9);
	assert_pick("streaming-llm", NULL, scores, 10, .7, 0, 1, 2, 3, 7, 8, 9);
	streaming_scores(3, 4, true, scores);
	assert_pick("streaming-llm", NULL, scores, 3, .4, 2);
	for (int theirs = 0; theirs < 2; theirs++) { /* which of the two: the scorer's own choice */
		char err[ERR_LEN];
		struct plan_method m = resolved("streaming-llm", theirs ? kvpress : NULL);
		struct scoring s = by_hand(&m, 1, 1, 10, scores);
		assert_int_equal(m.scorer->finish(&s, err), 0);
		struct selection sel = selected(&m, &s, 1 - .7);
		assert_kept(&sel, 0, 0, 1, theirs ? 2 : 9);
		selection_free(&sel);
		method_free(&m);
	}
}

/* Sinks are sequence positions: a prefix of two leaves two to pay for, one of four or more none. */
static void sinks_in_the_prefix_are_free(void **state)
{
	(void)state;
	for (int64_t prefix = 0; prefix <= 6; prefix += 2) {
		float scores[20];
		char err[ERR_LEN];
		struct plan_method m = resolved("streaming-llm", NULL);
		struct scoring s = by_hand(&m, 1, 1, 20, scores);
		prompt_shape_for(&m, prefix, 20, 0, &s.shape);
		assert_int_equal(m.scorer->finish(&s, err), 0);
		struct selection sel = selected(&m, &s, .3);
		int sinks = prefix == 0 ? 4 : prefix == 2 ? 2 : 0;
		for (int i = 0; i < 6; i++)
			assert_int_equal(sel.index[0][i], prefix + (i < sinks ? i : 14 + i));
		selection_free(&sel);
		method_free(&m);
	}
}

static void p42_knorm_golden(void **state)
{
	(void)state;
	const float k[4][2] = {{3, 0}, {1, 0}, {0, 2}, {1, 1}};
	float scores[4];
	knorm_scores(k[0], 4, 2, scores);
	assert_close(scores, (const double[]){-3, -1, -2, -sqrt(2)}, 4, 1e-6);
	assert_pick("knorm", NULL, scores, 4, .5, 1, 3);
}

static void p42_keydiff_golden(void **state)
{
	(void)state;
	const float k[4][2] = {{3, 0}, {1, 0}, {0, 2}, {1, 1}};
	float scores[4];
	keydiff_scores(k[0], 4, 2, scores);
	/* an anchor of raw keys would give -.857493 -.857493 -.514496 -.970143 */
	assert_close(scores, (const double[]){-.845862, -.845862, -.533402, -.975287}, 4, 1e-6);
	assert_pick("keydiff", NULL, scores, 4, .5, 0, 2);
}

static void p43_lag_1_golden(void **state)
{
	(void)state;
	const float k[7][2] = {{0, 0}, {1, 0}, {0, 4}, {1, 1}, {2, 0}, {3, 5}, {4, 1}},
		    v[7][2] = {{0, 0}, {1, 1}, {2, 5}, {1, 0}, {0, 2}, {2, 2}, {3, 1}};
	double w[2];
	float scores[7];
	lagkv_partition(k[1], 2, 2, w);
	assert_true(fabs(w[0] - .028318) < 1e-6 && fabs(w[1] - .971682) < 1e-6);
	lagkv_partition(k[3], 2, 2, w);
	assert_true(fabs(w[0] - .707626) < 1e-6 && fabs(w[1] - .292374) < 1e-6);
	lagkv_partition(v[1], 2, 2, w);
	assert_true(fabs(w[0] - .5) < 1e-6 && fabs(w[1] - .5) < 1e-6);
	lagkv_partition(v[3], 2, 2, w);
	assert_true(fabs(w[0] - .107042) < 1e-6 && fabs(w[1] - .892958) < 1e-6);
	lagkv_scores(k[0], v[0], 7, 2, 1, 2, scores);
	/* sink 1; partition 0 ranks 0 1; partition 1: .407334 < .592666, ranks 0 1; the last partition 1 */
	assert_close(scores, (const double[]){1, 0, .5, 0, .5, 1, 1}, 7, 0);
}

static void p43_lagkv_short_prompt_is_recency(void **state)
{
	(void)state;
	float k[24], v[24], scores[12];
	struct rng g = rng_seed(2, 2);
	for (int i = 0; i < 24; i++) {
		k[i] = (float)rng_unit(&g);
		v[i] = (float)rng_unit(&g);
	}
	lagkv_scores(k, v, 11, 2, 4, 4, scores); /* S + 2 lag - 1 */
	for (int j = 0; j < 11; j++)
		assert_true(fabs(scores[j] - (j < 4 ? 1 : (j - 4) / 7.)) < 1e-6);
	lagkv_scores(k, v, 12, 2, 4, 4, scores); /* S + 2 lag: one scored partition */
	double sum = 0;
	for (int j = 4; j < 8; j++)
		sum += scores[j];
	assert_true(fabs(sum - 1.5) < 1e-6); /* ranks 0 1/4 2/4 3/4 in some order */
	for (int j = 0; j < 12; j++)
		assert_true(j >= 4 && j < 8 ? scores[j] < 1 : scores[j] == 1);
	for (int i = 0; i < 24; i++)
		k[i] = v[i] = 3;
	lagkv_scores(k, v, 12, 2, 4, 4, scores); /* all equal: of equals the lower index is the better one */
	assert_close(scores + 4, (const double[]){.75, .5, .25, 0}, 4, 0);
}

static const double ea_freq[1] = {1};
static const float ea_k[3][2] = {{1, 0}, {0, 1}, {1, 1}}, ea_v[3][2] = {{3, 4}, {1, 0}, {0, 2}};

static void p45_ea_1_golden(void **state)
{
	(void)state;
	double c, s, mu[2] = {2 / 3., 2 / 3.}, sigma[4] = {2 / 9., -1 / 9., -1 / 9., 2 / 9.};
	float scores[3];
	average_rotation(ea_freq, 2, 1, 4, 2, &c, &s);
	assert_true(fabs(c + .184991) < 1e-6 && fabs(s + .857863) < 1e-6);
	rotate_mean(&c, &s, 2, mu);
	assert_true(fabs(mu[0] - .448582) < 1e-6 && fabs(mu[1] + .695236) < 1e-6);
	rotate_covariance(&c, &s, 2, sigma);
	assert_true(fabs(sigma[0] - .206411) < 1e-6 && fabs(sigma[1] - .077968) < 1e-6 && fabs(sigma[2] - .077968) < 1e-6 &&
		    fabs(sigma[3] - .135879) < 1e-6);
	expected_scores(mu, sigma, 1, ea_k[0], ea_v[0], 3, 2, &(struct expected_rule){true, true, 0}, scores);
	assert_close(scores, (const double[]){2.386020, .208828, .627936}, 3, 2e-6);
	expected_scores(mu, sigma, 1, ea_k[0], ea_v[0], 3, 2, &(struct expected_rule){true, false, 0}, scores);
	assert_close(scores, (const double[]){.477204, .208828, .313968}, 3, 1e-6);
	expected_scores(mu, sigma, 1, ea_k[0], ea_v[0], 3, 2, &(struct expected_rule){true, true, .01}, scores);
	assert_close(scores, (const double[]){2.436020, .218828, .647936}, 3, 2e-6);
}

static void tova_1_golden(void **state)
{
	(void)state;
	const float rows[2][4] = {{.4f, .1f, .1f, .4f}, {.1f, .3f, .2f, .4f}};
	float scores[4];
	tova_scores(rows[0], 2, 4, scores);
	assert_close(scores, (const double[]){.25, .2, .15, .4}, 4, 1e-6);
	assert_pick("tova", NULL, scores, 4, .5, 0, 3);
	assert_pick("tova", "{\"keep_last\":true}", scores, 4, .5, 0, 3);
	scores[3] = .1f; /* the newest token may go, unless it is forced */
	assert_pick("tova", NULL, scores, 4, .5, 0, 1);
	assert_pick("tova", "{\"compat\":\"kvpress\"}", scores, 4, .5, 0, 3);
}

static void h2o_1_golden(void **state)
{
	(void)state;
	float sums[4] = {2.5f, .7f, .4f, .4f}; /* the sums themselves: test_device.c */
	assert_pick("h2o", NULL, sums, 4, .5, 0, 3);
	assert_pick("h2o", NULL, sums, 4, .75, 0, 1, 3);
	assert_pick("h2o", "{\"recent\":2}", sums, 4, .75, 0, 2, 3);
	float longer[20] = {0, 9, 8, 7};
	assert_pick("h2o", "{\"compat\":\"factory\"}", longer, 20, .5, 1, 2, 12, 13, 14, 15, 16, 17, 18, 19);
	assert_pick("h2o", NULL, longer, 20, .3, 1, 2, 3, 17, 18, 19);
}

static void p28_kvz_2_chunks(void **state)
{
	(void)state;
	int64_t start, size;
	const int64_t want[3][2] = {{3, 4}, {7, 4}, {11, 3}};
	for (int b = 0; b < 3; b++) {
		assert_true(kvzip_chunk(11, 4, b, &start, &size));
		assert_int_equal(3 + start, want[b][0]);
		assert_int_equal(size, want[b][1]);
	}
	assert_false(kvzip_chunk(11, 4, 3, &start, &size));
	for (const int64_t *n = (const int64_t[]){2000, 2001, 1999, 1, 0}; *n; n++) {
		int64_t at = 0, b = 0;
		for (; kvzip_chunk(*n, 2000, b, &start, &size); b++) {
			assert_int_equal(start, at);
			assert_true(size >= 1 && size <= 2000);
			at += size;
		}
		assert_int_equal(at, *n);
		assert_int_equal(b, *n > 2000 ? 2 : 1);
	}
}

static void p31_repeat_ids(void **state)
{
	(void)state;
	const int32_t first[] = {1, 2}, later[] = {3}, tail[] = {4, 5}, context[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
	struct repeat_prompt p = {first, later, tail, 2, 1, 2, true};
	int32_t out[32];
	assert_int_equal(kvzip_repeat_ids(&p, context, 3, 0, 3, out), 7);
	assert_memory_equal(out, ((const int32_t[]){1, 2, 4, 5, 10, 11, 12}), 7 * sizeof(*out));
	assert_int_equal(kvzip_repeat_ids(&p, context, 9, 9, 2, out), 13); /* the last 8 of the chunk before */
	assert_memory_equal(out, ((const int32_t[]){3, 11, 12, 13, 14, 15, 16, 17, 18, 4, 5, 19, 20}), 13 * sizeof(*out));
	assert_int_equal(kvzip_repeat_ids(&p, context, 3, 3, 2, out), 8); /* fewer than 8 before it */
	assert_memory_equal(out, ((const int32_t[]){3, 10, 11, 12, 4, 5, 13, 14}), 8 * sizeof(*out));
	assert_int_equal(kvzip_repeat_ids(&p, context, 3, 9, 2, out), 8); /* and never from the chunk before that one */
	assert_memory_equal(out, ((const int32_t[]){3, 16, 17, 18, 4, 5, 19, 20}), 8 * sizeof(*out));
	p.later_takes_ids = false;
	assert_int_equal(kvzip_repeat_ids(&p, context, 9, 9, 2, out), 5);
}

static void random_fill(float *x, int n, uint64_t stream, float scale)
{
	struct rng g = rng_seed(77, stream);
	for (int i = 0; i < n; i++)
		x[i] = (float)(rng_unit(&g) - .5) * scale;
}

static void p22_scores_rarely_tie(void **state)
{
	(void)state;
	enum { N = 4000, D = 32 };
	float *k = mem_new(N * D, sizeof(*k)), *scores = mem_new(N, sizeof(*scores));
	random_fill(k, N * D, 1, 2);
	for (int method = 0; method < 2; method++) {
		int equal = 0;
		(method ? keydiff_scores : knorm_scores)(k, N, D, scores);
		for (int j = 1; j < N; j++)
			equal += scores[j] == scores[j - 1];
		assert_true(equal < N / 100);
	}
	free(k);
	free(scores);
}

/* P23: values times 1e4; P24: constant and zero keys. All scores finite. */
static void p23_p24_extreme_inputs_stay_finite(void **state)
{
	(void)state;
	enum { N = 64, D = 8 };
	float k[N * D], v[N * D], scores[N];
	for (int kind = 0; kind < 3; kind++) {
		random_fill(k, N * D, 1, 2e4f);
		random_fill(v, N * D, 2, 2e4f);
		for (int i = 0; i < N * D && kind; i++)
			k[i] = v[i] = kind == 1 ? 3.25f : 0;
		double mu[D] = {1}, sigma[D * D] = {.5};
		for (int method = 0; method < 4; method++) {
			if (method == 0)
				knorm_scores(k, N, D, scores);
			else if (method == 1)
				keydiff_scores(k, N, D, scores);
			else if (method == 2)
				lagkv_scores(k, v, N, D, 4, 8, scores);
			else
				expected_scores(mu, sigma, 1, k, v, N, D, &(struct expected_rule){true, true, 0}, scores);
			for (int j = 0; j < N; j++)
				assert_true(isfinite(scores[j]));
		}
	}
}

static void p50_random_depends_on_seed_layer_and_head_alone(void **state)
{
	(void)state;
	float wide[4 * 3 * 50], narrow[2 * 3 * 50], again[2 * 3 * 50];
	char err[ERR_LEN];
	struct plan_method m = resolved("random", NULL);
	struct scoring a = by_hand(&m, 4, 3, 50, wide), b = by_hand(&m, 2, 3, 50, narrow), c = by_hand(&m, 2, 3, 50, again);
	a.seed = b.seed = 9;
	c.seed = 10;
	assert_int_equal(m.scorer->finish(&a, err) | m.scorer->finish(&b, err) | m.scorer->finish(&c, err), 0);
	assert_memory_equal(wide, narrow, sizeof(narrow));
	assert_true(memcmp(narrow, again, sizeof(narrow)) != 0);
	assert_true(memcmp(narrow, narrow + 50, 50 * sizeof(float)) != 0);
	assert_true(memcmp(narrow, narrow + 150, 50 * sizeof(float)) != 0);
	for (int i = 0; i < 300; i++)
		assert_true(narrow[i] >= 0 && narrow[i] <= 1);
	method_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(p3_snap_1_golden), cmocka_unit_test(p4_window_scores_do_not_leak),
		cmocka_unit_test(streaming_golden), cmocka_unit_test(sinks_in_the_prefix_are_free),
		cmocka_unit_test(p42_knorm_golden), cmocka_unit_test(p42_keydiff_golden), cmocka_unit_test(p43_lag_1_golden),
		cmocka_unit_test(p43_lagkv_short_prompt_is_recency), cmocka_unit_test(p45_ea_1_golden),
		cmocka_unit_test(tova_1_golden), cmocka_unit_test(h2o_1_golden), cmocka_unit_test(p28_kvz_2_chunks),
		cmocka_unit_test(p31_repeat_ids), cmocka_unit_test(p22_scores_rarely_tie),
		cmocka_unit_test(p23_p24_extreme_inputs_stay_finite),
		cmocka_unit_test(p50_random_depends_on_seed_layer_and_head_alone)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
