/* test_features.c: feature sums against probabilities worked out plainly: every query, every head, every layer, in double. */
#include "runners/proxykv/proxy.h"
#include "tests/unit/forward/engine.h"

enum { PREFIX = 5, CONTEXT = 58, AFTER = 4, N = PREFIX + CONTEXT + AFTER };

/* Every probability of one prefill: p[layer][head][query][key], by the plain formula from the q and k the model itself used. */
struct plain {
	const struct engine *engine;
	int layers, heads, kv_heads, d;
	double *p;
};

static double *at(const struct plain *x, int l, int h, int64_t q)
{
	return x->p + (((int64_t)l * x->heads + h) * N + q) * N;
}

static int plain_layer(void *user, const struct layer_rows *r, char err[ERR_LEN])
{
	struct plain *x = user;
	struct queue *q = forward_queue(x->engine->forward);
	int64_t cols = tensor_cols(r->qkv), seen = r->pos0 + r->rows;
	float *rows = mem_new((size_t)(r->rows * cols), sizeof *rows), *k = mem_new((size_t)(seen * x->d), sizeof *k);
	(void)err;
	assert_int_equal(tensor_read(q, r->qkv, 0, r->rows, rows), 0);
	for (int h = 0; h < x->heads; h++) {
		assert_int_equal(
			kv_read(q, r->kv, r->layer, h / (x->heads / x->kv_heads), 0, seen, k, NULL), 0); /* repeat, not tile */
		for (int64_t i = 0; i < r->rows; i++) {
			double *p = at(x, r->layer, h, r->pos0 + i), sum = 0, most = -INFINITY;
			for (int64_t j = 0; j <= r->pos0 + i; j++) {
				p[j] = 0;
				for (int t = 0; t < x->d; t++)
					p[j] += (double)rows[i * cols + h * x->d + t] * k[j * x->d + t];
				p[j] /= sqrt(x->d);
				most = p[j] > most ? p[j] : most;
			}
			for (int64_t j = 0; j <= r->pos0 + i; j++)
				sum += p[j] = exp(p[j] - most);
			for (int64_t j = 0; j <= r->pos0 + i; j++)
				p[j] /= sum;
		}
	}
	free(rows);
	free(k);
	return 0;
}

static struct plain plain_read(const struct engine *e, const int32_t *ids)
{
	const struct model_config *c = model_config(e->model);
	struct plain x = {e, c->layers, c->heads, c->kv_heads, c->head_dim, NULL};
	struct observer obs = {.needs = OBSERVE_Q, .layer = plain_layer, .user = &x};
	struct kv *kv = engine_cache(e, N);
	char err[ERR_LEN];
	x.p = mem_new((size_t)x.layers * (size_t)x.heads * N * N, sizeof *x.p);
	assert_int_equal(forward_prefill(e->forward, ids, N, kv, &obs, 1, NULL, NULL, NULL, NULL, err), 0);
	kv_free(kv);
	return x;
}

/* The sums of a specification from the plain probabilities; which queries count is said in words here, not taken from the code.
 */
static double plain_sum(const struct plain *x, const struct feature_spec *s, int l, int h, int64_t key)
{
	double sum = 0;
	for (int64_t q = key; q < CONTEXT; q++) {
		bool counts = s->queries == MAPPER_QUERIES_ALL || (s->queries == MAPPER_QUERIES_LAST && q >= CONTEXT - s->step) ||
			      (s->queries == MAPPER_QUERIES_STRIDE && (CONTEXT - 1 - q) % s->step == 0);
		sum += counts ? at(x, l, h, PREFIX + q)[PREFIX + key] : 0;
	}
	return sum;
}

static void compare(const struct plain *x, const struct feature_spec *s, const float *got, const char *what)
{
	int layers = s->layers ? s->layers : x->layers, heads = s->kv_heads ? x->kv_heads : x->heads, g = x->heads / x->kv_heads;
	double most = 0;
	for (int l = 0; l < layers; l++)
		for (int h = 0; h < heads; h++)
			for (int64_t j = 0; j < CONTEXT; j++) {
				double want = 0, diff;
				for (int k = 0; k < (s->kv_heads ? g : 1); k++)
					want += plain_sum(x, s, l, s->kv_heads ? h * g + k : h, j) / (s->kv_heads ? g : 1);
				diff = fabs(want - got[((int64_t)l * heads + h) * CONTEXT + j]);
				if (!(diff < 2e-5 * (1 + want))) /* observed: 1.3e-6 */
					fail_msg("%s: layer %d head %d key %lld: %g, not %g", what, l, h, (long long)j,
						got[((int64_t)l * heads + h) * CONTEXT + j], want);
				most = diff > most ? diff : most;
			}
	print_message("%s: largest difference %.1e\n", what, most);
}

static int32_t *some_ids(int64_t n)
{
	int32_t *ids = mem_new((size_t)n, sizeof *ids);
	struct rng g = rng_seed(17, 3);
	for (int64_t i = 0; i < n; i++)
		ids[i] = 3 + (int32_t)rng_below(&g, 290);
	return ids;
}

static const struct {
	const char *queries;
	int layers;
	const char *heads;
} specs[] = {{"all", 0, "query"}, {"all", 0, "kv"}, {"all", 1, "query"}, {"stride:3", 0, "query"}, {"stride:7", 2, "kv"},
	{"stride:100", 0, "query"}, {"last:9", 0, "query"}, {"last:1", 1, "kv"}, {"last:1000", 0, "query"}};
enum { SPECS = sizeof specs / sizeof *specs };

static struct feature_spec spec_at(int i)
{
	struct feature_spec s;
	char err[ERR_LEN];
	assert_int_equal(feature_spec_parse(&s, specs[i].queries, specs[i].layers, specs[i].heads, err), 0);
	return s;
}

/* In one prefill, all kinds at once; in chunks of 8 and of 64 rows. */
static void sums_equal_plain_attention(void **state)
{
	(void)state;
	static const char *const models[] = {"tests/fixtures/models/qwen2-tiny", "tests/fixtures/models/qwen3-tiny"};
	for (int m = 0; m < 4; m++) {
		struct engine e = engine_open(models[m / 2], "fp32", NULL, 2, m % 2 ? 8 : 64);
		int32_t *ids = some_ids(N);
		struct plain x = plain_read(&e, ids);
		struct features *f[SPECS];
		struct observer obs[SPECS];
		struct feature_spec s[SPECS];
		char err[ERR_LEN] = "";
		assert_true(x.heads > x.kv_heads);
		for (int i = 0; i < SPECS; i++) {
			s[i] = spec_at(i);
			assert_non_null(f[i] = features_new(e.forward, &s[i], PREFIX, CONTEXT, err));
			obs[i] = features_observer(f[i]);
		}
		struct kv *kv = engine_cache(&e, N);
		assert_int_equal(forward_prefill(e.forward, ids, N, kv, obs, SPECS, NULL, NULL, NULL, NULL, err), 0);
		for (int i = 0; i < SPECS; i++) {
			float *got = mem_new((size_t)features_floats(f[i]), sizeof *got);
			assert_int_equal(features_take(f[i], got, err), 0);
			compare(&x, &s[i], got, specs[i].queries);
			free(got);
			features_free(f[i]);
		}
		kv_free(kv);
		free(x.p);
		free(ids);
		engine_close(&e);
	}
}

/* ---- the proxy's run ---- */

static struct proxy *proxy_of(const char *path, bool overlapped)
{
	struct model *m;
	struct proxy *p;
	char err[ERR_LEN] = "";
	struct device_options d = {.name = "cpu", .precision = "fp32", .threads = 1};
	if (model_open(&m, path, err) || proxy_open(&p, m, &d, overlapped, 16, err))
		fail_msg("%s", err);
	return p;
}

/* A first run: the device's own scratch is there afterwards. */
static void warm(struct proxy *p, const int32_t *ids)
{
	struct feature_spec s = {.step = 1};
	char err[ERR_LEN] = "";
	struct proxy_pass *r = proxy_pass_new(p, ids, PREFIX + CONTEXT, PREFIX, CONTEXT);
	assert_int_equal(proxy_pass_want(r, &s, err), 0);
	if (proxy_pass_finish(r, NULL, NULL, err))
		fail_msg("%s", err);
	proxy_pass_free(r);
}

/* Early exit gives the same bits as the whole model does, runs no later layer, and leaves nothing on the device. */
static void early_exit_and_release(void **state)
{
	(void)state;
	int32_t *ids = some_ids(N);
	char err[ERR_LEN] = "";
	for (int overlapped = 0; overlapped < 2; overlapped++) {
		struct proxy *p = proxy_of("tests/fixtures/models/qwen2-tiny", overlapped);
		int layers = model_config(p->model)->layers, heads = model_config(p->model)->heads;
		warm(p, ids);
		int64_t held = device_bytes(p->device), peak[2], calls[2];
		float *sums[2];
		assert_true(layers >= 2);
		for (int k = 0; k < 2; k++) {
			struct feature_spec s = {.step = 1, .layers = k ? 1 : layers};
			struct proxy_pass *r = proxy_pass_new(p, ids, PREFIX + CONTEXT, PREFIX, CONTEXT);
			device_peak_reset(p->device);
			calls[k] = forward_calls(p->forward);
			assert_int_equal(proxy_pass_want(r, &s, err), 0);
			assert_int_equal(proxy_pass_want(r, &s, err), 0); /* the same is made once */
			assert_int_equal(proxy_pass_start(r, err), 0);
			if (proxy_pass_finish(r, NULL, NULL, err))
				fail_msg("%s", err);
			if (proxy_pass_finish(r, NULL, NULL, err))
				fail_msg("%s", err);
			calls[k] = forward_calls(p->forward) - calls[k];
			peak[k] = device_peak_bytes(p->device);
			assert_int_equal(device_bytes(p->device), held);
			assert_true(proxy_pass_ns(r) > 0);
			size_t n = (size_t)(heads * CONTEXT);
			sums[k] = mem_new(n, sizeof(float));
			memcpy(sums[k], proxy_pass_sums(r, 0), n * sizeof(float)); /* layer 0 */
			proxy_pass_free(r);
		}
		assert_memory_equal(sums[0], sums[1], (size_t)(heads * CONTEXT) * sizeof(float));
		assert_int_equal(calls[0], calls[1]);
		assert_true(peak[1] - held < (peak[0] - held) * 2 / layers + 4096); /* cache and sums of one layer only */
		free(sums[0]);
		free(sums[1]);
		proxy_close(p);
	}
	free(ids);
}

static int count_look(void *user, const struct proxy_view *v, char err[ERR_LEN])
{
	(void)err;
	assert_int_equal(kv_len(v->kv, model_config(v->proxy->model)->layers - 1, 0), PREFIX + CONTEXT);
	++*(int *)user;
	return 0;
}

static int bad_look(void *user, const struct proxy_view *v, char err[ERR_LEN])
{
	(void)user, (void)v;
	return err_set(err, "it cannot be");
}

/* A look sees the whole cache; what it says went wrong reaches the caller, and nothing stays on the device. A run that was given
 * up ends by itself. */
static void looks_and_failures(void **state)
{
	(void)state;
	struct proxy *p = proxy_of("tests/fixtures/models/qwen2-tiny", true);
	int32_t *ids = some_ids(N);
	warm(p, ids);
	int64_t held = device_bytes(p->device);
	struct feature_spec one = {.step = 1, .layers = 1}, many = {.step = 1, .layers = 99};
	char err[ERR_LEN] = "";
	int looks = 0;
	for (int bad = 0; bad < 2; bad++) {
		struct proxy_pass *r = proxy_pass_new(p, ids, PREFIX + CONTEXT, PREFIX, CONTEXT);
		assert_int_equal(proxy_pass_want(r, &one, err), 0);
		assert_int_equal(proxy_pass_want(r, &many, err), -1);
		assert_int_equal(proxy_pass_look(r, bad ? bad_look : count_look, &looks, err), 0);
		assert_int_equal(proxy_pass_start(r, err), 0);
		assert_int_equal(proxy_pass_finish(r, NULL, NULL, err), bad ? -1 : 0);
		assert_int_equal(device_bytes(p->device), held);
		proxy_pass_free(r);
	}
	assert_int_equal(looks, 1);
	assert_string_equal(err, "proxy: it cannot be");
	struct proxy_pass *much = proxy_pass_new(p, ids, PREFIX + CONTEXT, PREFIX, CONTEXT); /* as many as a plan has variants */
	for (int i = 0; i < 40; i++) {
		struct feature_spec s = {.queries = MAPPER_QUERIES_STRIDE, .step = 1 + i, .layers = 1};
		assert_int_equal(proxy_pass_want(much, &s, err), i);
		assert_int_equal(proxy_pass_look(much, count_look, &looks, err), 0);
	}
	assert_int_equal(proxy_pass_finish(much, NULL, NULL, err), 0);
	assert_int_equal(looks, 41);
	assert_non_null(proxy_pass_sums(much, 39));
	proxy_pass_free(much);
	struct proxy_pass *given_up = proxy_pass_new(p, ids, PREFIX + CONTEXT, PREFIX, CONTEXT);
	assert_int_equal(proxy_pass_want(given_up, &one, err), 0);
	assert_int_equal(proxy_pass_start(given_up, err), 0);
	proxy_pass_free(given_up);
	assert_int_equal(device_bytes(p->device), held);
	free(ids);
	proxy_close(p);
}

static void specs_are_read_and_named(void **state)
{
	(void)state;
	static const struct {
		const char *queries;
		int layers;
		const char *heads, *tag;
	} good[] = {{"all", 0, "query", ""}, {"last:64", 7, "query", "-last64-l7"}, {"stride:4", 0, "kv", "-stride4-kv"}};
	static const char *const bad[] = {"", "some", "stride", "stride:", "stride:0", "stride:-1", "last:x", "last:1x", "all:3"};
	struct feature_spec s;
	char tag[32], err[ERR_LEN];
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(feature_spec_parse(&s, good[i].queries, good[i].layers, good[i].heads, err), 0);
		feature_spec_tag(&s, tag);
		assert_string_equal(tag, good[i].tag);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (!feature_spec_parse(&s, bad[i], 0, "query", err))
			fail_msg("\"%s\" was taken", bad[i]);
	assert_int_equal(feature_spec_parse(&s, "all", 0, "both", err), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sums_equal_plain_attention), cmocka_unit_test(early_exit_and_release),
		cmocka_unit_test(looks_and_failures), cmocka_unit_test(specs_are_read_and_named)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
