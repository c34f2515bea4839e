/* test_allocators.c: budgets: golden tables of spec/methods.md 2.2, 2.3, 3.1, exact sums, and the invariants I2-I6 over every
 * scorer and allocator with scores made by hand. */
#include "tests/unit/methods/methods.h"

static int64_t sum_of(const int64_t *v, int n)
{
	int64_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += v[i];
	return sum;
}

static void pyramid_ours(void **state)
{
	(void)state;
	static const int64_t want[32] = {234, 227, 219, 212, 205, 197, 190, 183, 175, 168, 160, 153, 146, 138, 131, 124, 116, 109,
		102, 94, 87, 80, 72, 65, 57, 50, 43, 35, 28, 21, 13, 6};
	int64_t got[32];
	pyramid_exact(32, 4096, 8, 128, 20, got);
	for (int l = 0; l < 32; l++)
		assert_int_equal(got[l] - 8, want[l]);
	assert_int_equal(sum_of(got, 32), 32 * 128);
	pyramid_exact(3, 1000, 4, 14, 20, got); /* 10 / 20 is lifted to 1 */
	assert_int_equal(got[0], 23);
	assert_int_equal(got[1], 14);
	assert_int_equal(got[2], 5);
	pyramid_exact(4, 30, 10, 25, 20, got); /* no layer above n: 20, and the last ones what is left */
	assert_int_equal(got[0], 30);
	assert_int_equal(sum_of(got, 4), 100);
}

static void assert_ends(const int64_t *got, int n, int64_t first, int64_t last, int64_t sum)
{
	assert_int_equal(got[0], first);
	assert_int_equal(got[n - 1], last);
	assert_int_equal(sum_of(got, n), sum);
}

static void pyramid_factory_table(void **state)
{
	(void)state;
	int64_t got[32];
	pyramid_factory(32, 4096, 8, 128, 20, got);
	assert_ends(got, 32, 242, 25, 4272);
	pyramid_factory(32, 4096, 8, 2048, 20, got);
	assert_ends(got, 32, 3986, 111, 65552);
	pyramid_factory(28, 4096, 8, 512, 20, got);
	assert_ends(got, 28, 991, 46, 14518);
	pyramid_factory(32, 4096, 32, 128, 20, got);
	assert_ends(got, 32, 220, 65, 4560);
	pyramid_factory(16, 1000, 8, 64, 20, got);
	assert_ends(got, 16, 118, 13, 1048);
	pyramid_factory(5, 100, 4, 24, 5, got);
	for (int l = 0; l < 5; l++)
		assert_int_equal(got[l], ((const int64_t[]){40, 32, 24, 16, 8})[l]);
	pyramid_factory(5, 20, 4, 24, 5, got); /* n < C: everything */
	assert_ends(got, 5, 20, 20, 100);
	pyramid_factory(5, 30, 4, 24, 5, got); /* n < 2B: SnapKV */
	assert_ends(got, 5, 24, 24, 120);
}

static void pyramid_kvpress_table(void **state)
{
	(void)state;
	int64_t got[32];
	pyramid_kvpress(32, 4096, 64, 1 - .25, 20, got);
	assert_ends(got, 32, 4032, 2112, 98304);
	pyramid_kvpress(32, 4096, 64, .5, 20, got);
	assert_ends(got, 32, 3994, 102, 65536);
	assert_int_equal(got[1], 3868);
	assert_int_equal(got[2], 3743);
	pyramid_kvpress(32, 4096, 64, 1 - .6875, 20, got);
	assert_int_equal(got[31], 64);
	assert_true(got[0] > 64);
	pyramid_kvpress(32, 4096, 64, 1 - .875, 20, got);
	assert_ends(got, 32, 512, 512, 32 * 512);
	pyramid_kvpress(32, 8192, 64, 1 - .75, 20, got);
	assert_ends(got, 32, 3994, 102, 65536);
	pyramid_kvpress(32, 16384, 64, 1 - .875, 20, got);
	assert_ends(got, 32, 3994, 102, 65536);
	pyramid_kvpress(16, 1000, 64, .5, 20, got);
	assert_ends(got, 16, 936, 64, 8000);
	pyramid_kvpress(5, 100, 4, .5, 5, got);
	for (int l = 0; l < 5; l++)
		assert_int_equal(got[l], ((const int64_t[]){90, 70, 50, 30, 10})[l]);
}

static void p11_pyramid_budgets_are_sound(void **state)
{
	(void)state;
	struct rng g = rng_seed(4, 1);
	for (int round = 0; round < 3000; round++) {
		int64_t got[40], n = 1 + (int64_t)rng_below(&g, 5000), window = (int64_t)rng_below(&g, 64);
		int layers = 1 + (int)rng_below(&g, 40);
		if (window >= n)
			continue;
		int64_t keep = window + (int64_t)rng_below(&g, (uint64_t)(n - window) + 1);
		pyramid_exact(layers, n, window, keep, 1 + 30 * rng_unit(&g), got);
		assert_int_equal(sum_of(got, layers), layers * keep);
		for (int l = 0; l < layers; l++) {
			assert_in_range(got[l], window, n);
			assert_true(l == 0 || got[l] <= got[l - 1]);
		}
		if (layers == 1)
			assert_int_equal(got[0], keep);
	}
}

/* kvpress rounds a layer's equal budget (halves to even, never 0) where every other press truncates: below its window too. Numbers
 * of its 0.5.5, window 64. */
static void pyramid_kvpress_below_the_window(void **state)
{
	(void)state;
	static const struct {
		int64_t n;
		double retained;
		int32_t want;
	} cases[] = {{203, .25, 51}, {202, .25, 50}, {206, .25, 52}, {200, .001, 1}, {200, 1 - .9, 20}};
	float scores[3 * 2 * 206] = {0};
	struct plan_method m = resolved("pyramidkv", "{\"compat\":\"kvpress\"}");
	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		struct scoring s = by_hand(&m, 3, 2, cases[c].n, scores);
		struct selection sel = selected(&m, &s, cases[c].retained);
		for (int i = 0; i < 6; i++)
			assert_int_equal(sel.len[i], cases[c].want);
		assert_int_equal(sel.flags, SELECT_WINDOW_CUT);
		selection_free(&sel);
	}
	method_free(&m);
}

static void p13_pyramid_is_not_silently_snapkv(void **state)
{
	(void)state;
	int64_t theirs[32], ours[32];
	pyramid_kvpress(32, 4096, 64, .25, 20, theirs);
	assert_ends(theirs, 32, 1024, 1024, 32 * 1024);
	pyramid_exact(32, 4096, 64, 1024, 20, ours);
	assert_int_equal(sum_of(ours, 32), 32 * 1024);
	assert_true(ours[0] > 1900 && ours[31] < 150);
}

static float ada_1[12] = {9, 8, 7, 6, 5, 4, 3.9f, .2f, .1f, .05f, .04f, .03f};
static float three_heads[15] = {.9f, .8f, .7f, .6f, .5f, .55f, .45f, .1f, .05f, .01f, .65f, .3f, .2f, .1f, .05f};

static void assert_lens(
	const char *name, const char *options, int heads, int64_t n, float *scores, double retained, const int *want)
{
	struct plan_method m = resolved(name, options);
	struct scoring s = by_hand(&m, 1, heads, n, scores);
	struct selection sel = selected(&m, &s, retained);
	for (int i = 0; i < heads; i++)
		if (sel.len[i] != want[i])
			fail_msg("%s %s at %g: head %d keeps %d, not %d", name, options, retained, i, sel.len[i], want[i]);
	selection_free(&sel);
	method_free(&m);
}

static void ada_1_golden(void **state)
{
	(void)state;
	assert_lens("knorm@ada", "{\"compat\":\"kvpress\",\"alpha\":0.34}", 2, 6, ada_1, .5, (const int[]){5, 1});
	assert_lens("knorm@ada", "{\"compat\":\"kvpress\",\"alpha\":0.2}", 2, 6, ada_1, .5, (const int[]){5, 1}); /* 0.5.5: one is safe */
	assert_lens("knorm@ada", "{\"compat\":\"kvpress\",\"alpha\":0}", 2, 6, ada_1, .5, (const int[]){6, 0});
	assert_lens("knorm@ada", "{\"compat\":\"kvpress\"}", 2, 6, ada_1, .01, (const int[]){1, 1});
	assert_lens("knorm@ada", "{\"compat\":\"kvpress\",\"alpha\":1}", 2, 6, ada_1, .5, (const int[]){3, 3});
	assert_lens("knorm@ada", "{\"compat\":\"adakv\",\"alpha\":0.5}", 2, 6, ada_1, .5, (const int[]){4, 1});
	assert_lens("knorm@ada", "{\"compat\":\"adakv\",\"alpha\":0.2}", 2, 6, ada_1, .5, (const int[]){5, 0});
	assert_lens("knorm@ada", "{\"alpha\":0.2}", 2, 6, ada_1, .5, (const int[]){5, 1});
	assert_lens("knorm@ada", "{\"alpha\":1}", 2, 6, ada_1, .5, (const int[]){3, 3});
	assert_lens("knorm@ada", "{\"alpha\":0}", 2, 6, ada_1, .5, (const int[]){6, 0});
	assert_lens("knorm@ada", "{\"compat\":\"adakv\",\"alpha\":0.5}", 3, 5, three_heads, .6, (const int[]){4, 2, 2});
	assert_lens("knorm@ada", "{\"compat\":\"adakv\",\"alpha\":0.2}", 3, 5, three_heads, .8, (const int[]){4, 2, 3});
	assert_lens("knorm@ada", "{\"alpha\":0.5}", 3, 5, three_heads, .6, (const int[]){4, 3, 2});
	assert_lens("knorm@ada", "{\"alpha\":0.2}", 3, 5, three_heads, .8, (const int[]){5, 3, 4});
	struct plan_method m = resolved("knorm@ada", "{\"compat\":\"kvpress\",\"alpha\":0.34}");
	struct scoring s = by_hand(&m, 1, 2, 6, ada_1);
	struct selection sel = selected(&m, &s, .5);
	assert_kept(&sel, 0, 0, 1, 2, 3, 4);
	assert_kept(&sel, 1, 0);
	selection_free(&sel);
	method_free(&m);
}

static void ada_normalise(void **state)
{
	(void)state;
	/* head 0 is large and flat (its best 2 hold half of its mass), head 1 small and sharp (.99): scaled .495 against .99 */
	float scores[8] = {.6f, .6f, .6f, .6f, .48f, .47f, .005f, .005f};
	assert_lens("random@ada", "{\"alpha\":0}", 2, 4, scores, .5, (const int[]){4, 0});
	assert_lens("random@ada", "{\"alpha\":0,\"normalise\":true}", 2, 4, scores, .5, (const int[]){2, 2});
}

static void p26_kvzip_threshold(void **state)
{
	(void)state;
	float plain[10] = {.9f, .8f, .7f, .6f, .5f, .4f, .3f, .2f, .1f, .05f},
	      three[10] = {.9f, .7f, .7f, .7f, .5f, .4f, .3f, .2f, .1f, .05f};
	float ones[10] = {1, 1, 1, 1, .5f, .4f, .3f, .2f, .1f, .05f};
	const char *theirs = "{\"compat\":\"kvzip\"}";
	assert_lens("kvzip", theirs, 1, 10, plain, .3, (const int[]){2});
	assert_lens("kvzip", theirs, 1, 10, three, .3, (const int[]){1});
	assert_lens("kvzip", theirs, 1, 10, ones, .3, (const int[]){0});
	assert_lens("kvzip", theirs, 1, 10, plain, .1, (const int[]){0});
	assert_lens("kvzip", theirs, 1, 10, plain, 1, (const int[]){10});
	assert_lens("kvzip", "{}", 1, 10, plain, .3, (const int[]){3});
	assert_lens("kvzip", "{}", 1, 10, three, .3, (const int[]){3});
	assert_lens("kvzip", "{}", 1, 10, ones, .3, (const int[]){3});
	assert_lens("kvzip", "{}", 1, 10, plain, .1, (const int[]){1});
	assert_lens("kvzip@uniform", theirs, 2, 5, plain, .3, (const int[]){1, 1});
}

/* kvpress' KVzip evicts trunc(all * c), c as written: .1 of 40 is 4, where 1 - .9 of them would be 3. Also of a single row. */
static void kvpress_evicts_of_all_heads(void **state)
{
	(void)state;
	float scores[40];
	for (int i = 0; i < 40; i++)
		scores[i] = (float)i;
	assert_lens("kvzip", "{\"compat\":\"kvpress\"}", 4, 10, scores, .9, (const int[]){6, 10, 10, 10});
	assert_lens("kvzip@layer", "{\"compat\":\"kvpress\"}", 4, 10, scores, .9, (const int[]){6, 10, 10, 10});
	assert_lens("kvzip", "{\"compat\":\"kvpress\"}", 4, 10, scores, .01, (const int[]){0, 0, 0, 1});
	assert_lens("kvzip", "{\"compat\":\"kvpress\"}", 4, 1, scores, .5, (const int[]){0, 0, 1, 1});
	assert_lens("knorm", "{\"compat\":\"kvpress\"}", 4, 1, scores, .5, (const int[]){1, 1, 1, 1});
	assert_lens("pyramidkv", "{\"compat\":\"kvpress\",\"window\":1}", 4, 2, scores, .01, (const int[]){1, 1, 1, 1});
}

static void p25_empty_heads(void **state)
{
	(void)state;
	assert_lens("knorm@global", "{}", 2, 6, ada_1, .5, (const int[]){6, 0});
	assert_lens("knorm@layer", "{}", 2, 6, ada_1, .5, (const int[]){6, 0});
	assert_lens("snapkv@global", "{\"window\":1}", 2, 6, ada_1, .5, (const int[]){5, 1}); /* the window stays in every head */
}

static void whole_heads(void **state)
{
	(void)state;
	float scores[20]; /* heads with maxima 2, 5, 3, 4 */
	for (int i = 0; i < 20; i++)
		scores[i] = i % 5 == 2 ? ((const float[]){2, 5, 3, 4})[i / 5] : 1;
	assert_lens("knorm@head", "{}", 4, 5, scores, .6, (const int[]){0, 5, 0, 5}); /* 12 entries: two heads of 5 fit */
	assert_lens("knorm@head", "{}", 4, 5, scores, .8, (const int[]){0, 5, 5, 5});
	assert_lens("knorm@head", "{}", 4, 5, scores, .2, (const int[]){0, 0, 0, 0});
	assert_lens("knorm@head", "{}", 4, 5, scores, 1, (const int[]){5, 5, 5, 5});
	assert_lens("snapkv@head", "{\"window\":1}", 4, 5, scores, .6, (const int[]){1, 5, 1, 5}); /* 4 * (3 - 1) = two times 4 */
	for (int i = 0; i < 20; i++)
		scores[i] = ((const float[]){2, 5, 3, 4})[i / 5]; /* spread over positions, the authors' strict threshold */
	assert_lens("kvzip@head", "{\"compat\":\"kvzip\"}", 4, 5, scores, .6,
		(const int[]){0, 5, 0, 5}); /* place 11: head 2's score; above it two */
	assert_lens("kvzip@head", "{\"compat\":\"kvzip\"}", 4, 5, scores, .25, (const int[]){0, 0, 0, 0});
}

static void p5_window_is_not_lost_to_ties(void **state)
{
	(void)state;
	float scores[8];
	for (int high = 0; high < 2; high++) {
		for (int j = 0; j < 8; j++)
			scores[j] = high ? 65504 : .125f; /* uniform; and all at the largest fp16 */
		struct plan_method m = resolved("snapkv", "{\"window\":2}");
		struct scoring s = by_hand(&m, 1, 1, 8, scores);
		struct selection sel = selected(&m, &s, 3 / 8.);
		assert_kept(&sel, 0, 0, 6, 7);
		selection_free(&sel);
		method_free(&m);
	}
}

static void p10_budget_below_the_protected(void **state)
{
	(void)state;
	float scores[200] = {0};
	struct plan_method m = resolved("snapkv", "{\"window\":8}");
	struct scoring s = by_hand(&m, 1, 1, 30, scores);
	struct selection sel = selected(&m, &s, .1);
	assert_kept(&sel, 0, 27, 28, 29);
	assert_int_equal(sel.flags, SELECT_WINDOW_CUT);
	selection_free(&sel);
	for (size_t a = 0; a < allocator_count(); a++) { /* whatever the allocator */
		char name[64];
		if (allocator_at(a)->file)
			continue; /* test_trained.c */
		snprintf(name, sizeof(name), "snapkv@%s", allocator_at(a)->name);
		struct plan_method own = resolved(name, NULL);
		s = by_hand(&own, 2, 2, 50, scores);
		sel = selected(&own, &s, .1);
		for (int i = 0; i < 4; i++)
			assert_kept(&sel, i, 45, 46, 47, 48, 49);
		assert_int_equal(sel.flags, SELECT_WINDOW_CUT);
		selection_free(&sel);
		method_free(&own);
	}
	method_free(&m);
	m = resolved("expected-attention", NULL); /* sinks alone: the first ones */
	s = by_hand(&m, 1, 1, 20, scores);
	sel = selected(&m, &s, .1);
	assert_kept(&sel, 0, 0, 1);
	selection_free(&sel);
	method_free(&m);
}

static void p9_short_prompts(void **state)
{
	(void)state;
	enum { W = 32 };
	float scores[512];
	for (int j = 0; j < 512; j++)
		scores[j] = (float)(j * 37 % 101);
	for (size_t k = 0; k < method_count(); k++) {
		struct plan_method m = resolved(method_at(k)->name, NULL);
		bool trained = m.allocator && m.allocator->file; /* budgets from a file: its own tests */
		for (const int64_t *n = (const int64_t[]){1, 2, W - 1, W, W + 1, 63, 64, 65, 0}; *n && !trained; n++) {
			struct scoring s = by_hand(&m, 2, 2, *n, scores);
			struct selection sel = selected(&m, &s, .5);
			bool window = m.scorer && strcmp(m.scorer->name, "snapkv") == 0 && *n <= W;
			if (!m.scorer || window)
				assert_int_equal(sel.total, 4 * *n);
			else if (m.allocator->exact && !(sel.flags & SELECT_ALL_KEPT))
				assert_int_equal(sel.total, 4 * keep_count(*n, .5, "none"));
			if (window)
				assert_true(sel.flags & SELECT_ALL_KEPT);
			selection_free(&sel);
		}
		method_free(&m);
	}
}

/* I2, I3, P8 (retained share), P39 over every scorer with every allocator; with a prefix in front and a question behind. */
static void every_combination_selects_soundly(void **state)
{
	(void)state;
	enum { L = 3, H = 2, N = 301, PREFIX = 5, AFTER = 9 };
	float *scores = mem_new(L * H * N, sizeof(*scores));
	struct rng g = rng_seed(9, 9);
	for (int i = 0; i < L * H * N; i++)
		scores[i] = (float)(rng_unit(&g) * (1 + i / N));
	for (size_t a = 0; a < scorer_count(); a++)
		for (size_t b = 0; b < allocator_count(); b++)
			for (const double *r = allocator_at(b)->file ? (const double[]){0} : (const double[]){.1, .25, .5, .75, .9, 1, 0}; *r > 0; r++) {
				char name[64];
				snprintf(name, sizeof(name), "%s@%s", scorer_at(a)->name, allocator_at(b)->name);
				struct plan_method m = resolved(name, NULL);
				struct scoring s = by_hand(&m, L, H, N, scores);
				prompt_shape_for(&m, PREFIX, N, AFTER, &s.shape);
				struct selection sel = selected(&m, &s, *r);
				int64_t keep = keep_count(N, *r, "none"), total = 0;
				struct protection p = m.scorer->protect ? m.scorer->protect(&s, keep) : (struct protection){0};
				for (int i = 0; i < L * H; i++) {
					total += sel.len[i];
					for (int32_t j = 0; j < sel.len[i]; j++) {
						assert_in_range(sel.index[i][j], PREFIX, PREFIX + N - 1);
						assert_true(j == 0 || sel.index[i][j] > sel.index[i][j - 1]);
					}
					if (keep >= p.first + p.last) { /* the forced entries are there */
						for (int64_t j = 0; j < p.first; j++)
							assert_int_equal(sel.index[i][j], PREFIX + j);
						for (int64_t j = 0; j < p.last; j++)
							assert_int_equal(sel.index[i][sel.len[i] - 1 - j], PREFIX + N - 1 - j);
					}
				}
				assert_int_equal(total, sel.total);
				assert_int_equal(sel.nan_scores, 0);
				if (m.allocator->exact)
					assert_int_equal(total, L * H * keep);
				else
					assert_true(total <= L * H * keep && total > L * H * keep - N);
				if (m.allocator->exact)
					assert_true(fabs((double)total / (L * H * N) - *r) <= 1. / N);
				if (*r == 1)
					assert_int_equal(total, L * H * N);
				selection_free(&sel);
				method_free(&m);
			}
	free(scores);
}

static bool subset(const struct selection *a, const struct selection *b, int heads)
{
	for (int i = 0; i < heads; i++)
		for (int32_t j = 0, k = 0; j < a->len[i]; j++) {
			while (k < b->len[i] && b->index[i][k] < a->index[i][j])
				k++;
			if (k == b->len[i] || b->index[i][k] != a->index[i][j])
				return false;
		}
	return true;
}

static bool same(const struct selection *a, const struct selection *b, int heads)
{
	return a->total == b->total && subset(a, b, heads);
}

static void i4_smaller_shares_are_subsets(void **state)
{
	(void)state;
	enum { L = 2, H = 2, N = 200 };
	float scores[L * H * N];
	struct rng g = rng_seed(10, 1);
	for (int i = 0; i < L * H * N; i++)
		scores[i] = (float)rng_below(&g, 50); /* many ties */
	for (const char *const *name = (const char *const[]){"random", "snapkv", "knorm", "keydiff", "expected-attention",
		     "kvzip", "kvzip@uniform", "tova", "lagkv", "streaming-llm", "kvzip@layer", NULL};
		*name; name++) {
		struct plan_method m = resolved(*name, strcmp(*name, "snapkv") == 0 ? "{\"window\":4}" : NULL);
		struct scoring s = by_hand(&m, L, H, N, scores);
		struct selection before = selected(&m, &s, .05);
		for (double r = .1; r < 1; r += .05) {
			struct selection now = selected(&m, &s, r);
			if (!subset(&before, &now, L * H))
				fail_msg("%s: what is kept at less than %g is not kept at %g", *name, r, r);
			selection_free(&before);
			before = now;
		}
		selection_free(&before);
		method_free(&m);
	}
}

/* I6: doubling all scores leaves the set. I5: other layers' scores leave a local method's layer alone; a global total stays. */
static void i5_i6_scale_and_locality(void **state)
{
	(void)state;
	enum { L = 3, H = 2, N = 120 };
	float scores[L * H * N], other[L * H * N];
	struct rng g = rng_seed(11, 1);
	for (int i = 0; i < L * H * N; i++) {
		scores[i] = (float)rng_unit(&g);
		other[i] = 2 * scores[i];
	}
	for (size_t b = 0; b < allocator_count(); b++) {
		char name[64];
		if (allocator_at(b)->file)
			continue;
		snprintf(name, sizeof(name), "knorm@%s", allocator_at(b)->name);
		struct plan_method m = resolved(name, NULL);
		struct scoring s = by_hand(&m, L, H, N, scores), t = by_hand(&m, L, H, N, other);
		struct selection x = selected(&m, &s, .3), y = selected(&m, &t, .3);
		assert_true(same(&x, &y, L * H));
		selection_free(&y);
		for (int i = 0; i < H * N; i++) { /* swap layers 1 and 2 */
			other[H * N + i] = scores[2 * H * N + i];
			other[2 * H * N + i] = scores[H * N + i];
		}
		y = selected(&m, &t, .3);
		bool local = strcmp(allocator_at(b)->name, "global") && strcmp(allocator_at(b)->name, "head");
		if (local)
			for (int i = 0; i < H; i++) {
				assert_int_equal(x.len[i], y.len[i]);
				assert_memory_equal(x.index[i], y.index[i], (size_t)x.len[i] * sizeof(int32_t));
			}
		assert_int_equal(x.total, y.total);
		for (int i = 0; i < L * H * N; i++)
			other[i] = 2 * scores[i];
		selection_free(&x);
		selection_free(&y);
		method_free(&m);
	}
}

static void nan_scores_are_counted(void **state)
{
	(void)state;
	float scores[40] = {0};
	scores[3] = scores[17] = NAN;
	for (const char *const *name = (const char *const[]){"knorm", "kvzip", "knorm@ada", "knorm@head", NULL}; *name; name++) {
		struct plan_method m = resolved(*name, NULL);
		struct scoring s = by_hand(&m, 2, 1, 20, scores);
		struct selection sel = selected(&m, &s, .5);
		assert_int_equal(sel.nan_scores, 2);
		selection_free(&sel);
		sel = selected(&m, &s, 1);
		assert_int_equal(sel.nan_scores, 2);
		selection_free(&sel);
		method_free(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(pyramid_ours), cmocka_unit_test(pyramid_factory_table),
		cmocka_unit_test(pyramid_kvpress_table), cmocka_unit_test(p11_pyramid_budgets_are_sound),
		cmocka_unit_test(p13_pyramid_is_not_silently_snapkv), cmocka_unit_test(pyramid_kvpress_below_the_window),
		cmocka_unit_test(ada_1_golden),
		cmocka_unit_test(ada_normalise), cmocka_unit_test(p26_kvzip_threshold), cmocka_unit_test(kvpress_evicts_of_all_heads), cmocka_unit_test(p25_empty_heads),
		cmocka_unit_test(whole_heads), cmocka_unit_test(p5_window_is_not_lost_to_ties),
		cmocka_unit_test(p10_budget_below_the_protected), cmocka_unit_test(p9_short_prompts),
		cmocka_unit_test(every_combination_selects_soundly), cmocka_unit_test(i4_smaller_shares_are_subsets),
		cmocka_unit_test(i5_i6_scale_and_locality), cmocka_unit_test(nan_scores_are_counted)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
