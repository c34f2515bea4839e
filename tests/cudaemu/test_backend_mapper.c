/* Mappers on the CUDA device (runners/proxykv/mapping.c) against the host's forward pass: every form and option, contexts shorter than the taps, strips; and
 * proxykv and selfkv on the embedded pair with its shipped files: scores, kept sets, where they are ranked. */
#include "tests/cudaemu/backend.h"
#include "tests/cudaemu/control.h"

#include "runners/methods/parts.h"
#include "runners/proxykv/mapping.h"
#include "runners/proxykv/proxy.h"
#include "tests/unit/mapper/forms.h"

/* ---- forms ---- */

struct laid { /* column sums on the device, a tensor a layer */
	struct tensor *sums[LS];
};

static struct laid laid(struct both *b, const float *x, int64_t n)
{
	struct laid a;
	for (int l = 0; l < LS; l++)
		a.sums[l] = tensor_of(b->q[CUDA], x + l * HS * n, HS, n);
	return a;
}
static void laid_free(struct laid *a)
{
	for (int l = 0; l < LS; l++)
		tensor_free(a->sums[l]);
}

static float *mapped(struct both *b, const struct mapper *m, const float *x, int64_t n, int64_t work)
{
	char err[ERR_LEN] = "";
	struct laid a = laid(b, x, n);
	struct tensor *t = mapping_scores(b->q[CUDA], m, a.sums, n, work, err);
	if (!t)
		fail_msg("%s", err);
	assert_true(tensor_rows(t) == LL * HL && tensor_cols(t) == n);
	float *y = host_of(b->q[CUDA], t);
	tensor_free(t);
	laid_free(&a);
	return y;
}

/* Lengths below the taps, around a line and a block. */
static void test_forms(void **state)
{
	(void)state;
	static const int64_t lengths[] = {1, 2, 3, 33, 128, 131};
	struct both b = open_both("bf16"); /* mappers stay in fp32 */
	double worst = 0;
	for (int f = 0; f < FORMS; f++) {
		struct mapper *m = form(forms[f]);
		for (int i = 0; i < 6; i++) {
			float *x = random_sums(lengths[i], 3), *want = scores(m, x, lengths[i], NULL), *got = mapped(&b, m, x, lengths[i], MAPPING_WORK);
			double gap = largest_gap(got, want, LL * HL * lengths[i]);
			if (!(gap < 3e-5)) /* of scores of order 1; observed 5e-6 */
				fail_msg("%s, %lld positions: %g from the host's", forms[f], (long long)lengths[i], gap);
			worst = gap > worst ? gap : worst;
			free(x), free(want), free(got);
		}
		mapper_free(m);
	}
	print_message("%d forms against the host's: largest difference %.2g\n", FORMS, worst);
	close_both(&b);
}

/* Strips of the smallest width change no bit; a context that must be one strip is one. */
static void test_strips(void **state)
{
	(void)state;
	struct both b = open_both("fp32");
	for (int f = 0; f < FORMS; f++) {
		struct mapper *m = form(forms[f]);
		const int64_t n = m->config.window == MAPPER_ALL ? 270 : 601; /* two and three strips of 256 and more */
		float *x = random_sums(n, 4), *want = scores(m, x, n, NULL), *whole = mapped(&b, m, x, n, MAPPING_WORK), *strips = mapped(&b, m, x, n, 1);
		assert_true(largest_gap(whole, want, LL * HL * n) < 3e-5);
		assert_memory_equal(strips, whole, (size_t)(LL * HL * n) * sizeof *whole);
		free(x), free(want), free(whole), free(strips);
		mapper_free(m);
	}
	close_both(&b);
}

/* A refusal says why and leaves nothing behind. */
static void test_refusals(void **state)
{
	(void)state;
	struct both b = open_both("fp32");
	struct mapper *full = form("mapper=axial channels=16 window=full"), *flat = form("mapper=flat channels=24");
	char err[ERR_LEN] = "";
	float *x = random_sums(300, 5);
	struct laid a = laid(&b, x, 300);
	int64_t held = device_bytes(b.d[CUDA]);
	assert_null(mapping_scores(b.q[CUDA], full, a.sums, MAPPER_FULL_MAX + 1, MAPPING_WORK, err));
	assert_non_null(strstr(err, "window = full"));
	device_limit(b.d[CUDA], held + 40000);
	assert_true(mapping_bytes(flat, 300) > 40000);
	assert_null(mapping_scores(b.q[CUDA], flat, a.sums, 300, MAPPING_WORK, err));
	assert_non_null(strstr(err, "out of memory"));
	assert_int_equal(device_bytes(b.d[CUDA]), held);
	device_limit(b.d[CUDA], held + mapping_bytes(flat, 300)); /* what was said is enough */
	struct tensor *t = mapping_scores(b.q[CUDA], flat, a.sums, 300, MAPPING_WORK, err);
	assert_non_null(t);
	tensor_free(t);
	laid_free(&a);
	mapper_free(full), mapper_free(flat);
	free(x);
	close_both(&b);
}

/* ---- proxykv and selfkv on the embedded pair ---- */

#define PAIR "runners/model/tiny-pair/"
enum { PREFIX = 4, CONTEXT_N = 90, TOKENS = PREFIX + CONTEXT_N };

/* One device's target, proxy and trained files. */
struct pair {
	struct model *target;
	struct device *device;
	struct forward *forward;
	struct proxy *proxy;
	struct trained_store *weights;
};

static struct pair pair_on(const char *target, const char *proxy)
{
	struct pair p = {.weights = trained_store_new()};
	struct device_options o = {.name = target, .precision = "fp32", .threads = 2}, small = o;
	struct model *m;
	char err[ERR_LEN] = "";
	small.name = proxy;
	if (model_open(&p.target, PAIR "target", err) || device_open(&p.device, &o, err) || forward_open(&p.forward, p.target, p.device, 64, err) ||
		model_open(&m, PAIR "proxy", err) || proxy_open(&p.proxy, m, &small, false, 64, err))
		fail_msg("%s", err);
	return p;
}
static void pair_close(struct pair *p)
{
	proxy_close(p->proxy);
	forward_close(p->forward);
	device_close(p->device);
	model_close(p->target);
	trained_store_free(p->weights);
}

/* One context scored as a session does it. */
struct scored {
	struct plan_method m;
	struct scoring s;
	struct kv *kv;
	bool mapped[2]; /* on the target's device, on the proxy's: by its operation */
};

static void find_steps(void *user, const struct device_profile_row *r)
{
	if (!strcmp(r->name, "steps of a mapper"))
		*(bool *)user = true;
}

static int observe(void *user, const struct layer_rows *r, char err[ERR_LEN])
{
	return scorer_selfkv.observe(user, r, err);
}

static void score(struct scored *out, struct pair *p, const char *name, const char *options, const struct mapper_pair *whom, const int32_t *ids)
{
	const struct model_config *c = model_config(p->target);
	int64_t cap[64];
	char err[ERR_LEN] = "";
	struct scoring *s = &out->s;
	assert_true(c->layers * c->kv_heads <= 64);
	for (int i = 0; i < c->layers * c->kv_heads; i++)
		cap[i] = TOKENS;
	assert_int_equal(method_resolve(&out->m, name, options, err), 0);
	out->kv = kv_new(p->device, c->layers, c->kv_heads, c->head_dim, cap);
	bool self = out->m.scorer == &scorer_selfkv;
	*s = (struct scoring){.forward = p->forward, .kv = out->kv, .ids = ids, .params = out->m.params, .rank_there = true, .layers = c->layers,
		.kv_heads = c->kv_heads, .model_sha256 = whom->target_sha256, .proxy_sha256 = whom->proxy_sha256, .context_sha256 = "", .weights = p->weights};
	prompt_shape_for(&out->m, PREFIX, CONTEXT_N, 0, &s->shape);
	s->scores = mem_new((size_t)(c->layers * c->kv_heads * CONTEXT_N), sizeof(float));
	s->proxy = self ? NULL : proxy_pass_new(p->proxy, ids, TOKENS, PREFIX, CONTEXT_N);
	struct observer obs = {scorer_selfkv.observes, 0, observe, s};
	struct device *devices[2] = {p->device, p->proxy->device};
	for (int i = 0; i < 2; i++)
		device_profile_start(devices[i]);
	if (out->m.scorer->begin(s, err) || forward_prefill(p->forward, ids, TOKENS, out->kv, &obs, self, NULL, NULL, NULL, NULL, err) ||
		out->m.scorer->finish(s, err))
		fail_msg("%s %s: %s", name, options, err);
	for (int i = 0; i < 2; i++) {
		out->mapped[i] = false;
		device_profile(devices[i], find_steps, &out->mapped[i]);
		device_profile_stop(devices[i]);
	}
	assert_true(s->mapper_ns > 0);
}

static void scored_close(struct scored *x)
{
	x->m.scorer->end(&x->s);
	scores_drop(&x->s);
	proxy_pass_free(x->s.proxy);
	free(x->s.scores);
	kv_free(x->kv);
	method_free(&x->m);
}

static void same_sets(const char *what, const struct scored *a, const struct scored *b, double retained)
{
	struct selection x, y;
	char err[ERR_LEN] = "";
	if (method_select(&x, &a->m, &a->s, retained, err) || method_select(&y, &b->m, &b->s, retained, err))
		fail_msg("%s at %g: %s", what, retained, err);
	for (int i = 0; i < x.layers * x.kv_heads; i++)
		if (x.len[i] != y.len[i] || memcmp(x.index[i], y.index[i], (size_t)x.len[i] * sizeof(int32_t)))
			fail_msg("%s at %g: list %d is not the CPU's", what, retained, i);
	selection_free(&x), selection_free(&y);
}

static int32_t *some_ids(int64_t n, uint64_t seed)
{
	int32_t *ids = mem_new((size_t)n, sizeof *ids);
	struct rng g = rng_seed(seed, 0);
	for (int64_t i = 0; i < n; i++)
		ids[i] = 3 + (int32_t)rng_below(&g, 290);
	return ids;
}

static struct mapper_pair pair_of(const char *file)
{
	char err[ERR_LEN] = "", *path = text_format(PAIR "trained/%s", file);
	struct mapper *m;
	if (mapper_read(&m, path, NULL, err))
		fail_msg("%s", err);
	struct mapper_pair pair = *mapper_pair_of(m);
	mapper_free(m);
	free(path);
	return pair;
}

/* The proxy on the target's device, on another one, on the CPU: it maps where it is a GPU, the scores are ranked where the target is one. */
static void test_methods(void **state)
{
	(void)state;
	static const struct {
		const char *name, *options;
	} methods[] = {{"selfkv", "{}"}, {"selfkv", "{\"mapper\":\"linear\"}"}, {"proxykv", "{}"}, {"proxykv", "{\"mapper\":\"linear\"}"},
		{"proxykv", "{\"mapper\":\"axial\"}"}};
	static const char *const places[][2] = {{"cuda:0", "cuda:0"}, {"cuda:0", "cuda:1"}, {"cuda:0", "cpu"}};
	struct mapper_pair self = pair_of("selfkv-flat-5a1a05f44e70aadd.safetensors"),
			   pair = pair_of("proxykv-flat-5a1a05f44e70aadd-33fd7bfa4fcb1a32.safetensors");
	struct pair cpu = pair_on("cpu", "cpu");
	int32_t *ids = some_ids(TOKENS, 6);
	double worst = 0;
	for (int p = 0; p < 3; p++) {
		struct pair cuda = pair_on(places[p][0], places[p][1]);
		for (int i = p ? 2 : 0; i < (p ? 3 : 5); i++) { /* elsewhere one will do */
			struct scored want, got;
			bool alone = !strcmp(methods[i].name, "selfkv");
			int64_t moved = (int64_t)cuemu_calls("cudaMemcpyPeerAsync");
			score(&want, &cpu, methods[i].name, methods[i].options, alone ? &self : &pair, ids);
			score(&got, &cuda, methods[i].name, methods[i].options, alone ? &self : &pair, ids);
			double gap = largest_gap(got.s.scores, want.s.scores, (int64_t)got.s.layers * got.s.kv_heads * CONTEXT_N);
			worst = gap > worst ? gap : worst;
			assert_true(gap < 1e-4); /* observed 3e-6: the features are of two devices too */
			assert_true(scores_resident(&got.s) && !scores_resident(&want.s));
			assert_true(got.mapped[0] == alone && got.mapped[1] == (!alone && p < 2) && !want.mapped[0] && !want.mapped[1]);
			assert_true(alone || !proxy_pass_sums(got.s.proxy, 0) == (p < 2)); /* what is mapped there does not travel */
			assert_true(((int64_t)cuemu_calls("cudaMemcpyPeerAsync") > moved) == (!alone && p < 2)); /* from GPU to GPU, not through the host */
			const struct tensor *there = scores_resident(&got.s);
			float *copy = mem_new((size_t)(tensor_rows(there) * tensor_cols(there)), sizeof *copy);
			assert_int_equal(tensor_read(forward_queue(got.s.forward), there, 0, tensor_rows(there), copy), 0);
			assert_memory_equal(copy, got.s.scores, (size_t)(tensor_rows(there) * tensor_cols(there)) * sizeof *copy);
			free(copy);
			same_sets(methods[i].name, &got, &want, .3);
			same_sets(methods[i].name, &got, &want, .6);
			scored_close(&want), scored_close(&got);
		}
		pair_close(&cuda);
	}
	print_message("proxykv and selfkv: largest difference of a score %.2g\n", worst);
	free(ids);
	pair_close(&cpu);
}

/* One of the run's mappers cannot: its own failure. */
static void test_one_fails(void **state)
{
	(void)state;
	struct pair p = pair_on("cpu", "cuda:0");
	const struct model_config *c = model_config(p.proxy->model);
	char err[ERR_LEN] = "";
	enum { N = 40 };
	int32_t *ids = some_ids(N, 7);
	struct proxy_pass *r = proxy_pass_new(p.proxy, ids, N, 0, N);
	struct feature_spec spec = {.queries = MAPPER_QUERIES_LAST, .step = 2, .layers = 1};
	int want = proxy_pass_want(r, &spec, err), map[2];
	struct mapper *m[2];
	float *out[2];
	assert_true(want >= 0 && proxy_pass_maps(r));
	for (int i = 0; i < 2; i++) {
		struct mapper_config config = plant_config("mapper=linear");
		config.proxy_layers = config.layers = config.kv_heads = 1;
		config.proxy_heads = c->heads + (i == 0); /* more than there are */
		assert_non_null(m[i] = mapper_new(&config, err));
		out[i] = mem_new(N, sizeof *out[i]);
		map[i] = proxy_pass_map(r, want, m[i], out[i]);
	}
	if (proxy_pass_finish(r, NULL, NULL, err))
		fail_msg("%s", err);
	int64_t ns = 0;
	struct tensor *scores = NULL;
	assert_int_equal(proxy_pass_mapped(r, map[0], &scores, &ns, err), -1);
	assert_null(scores);
	assert_non_null(strstr(err, "do not fit"));
	assert_int_equal(proxy_pass_mapped(r, map[1], &scores, &ns, err), 0);
	assert_true(tensor_rows(scores) == 1 && tensor_cols(scores) == N);
	tensor_free(scores);
	assert_true(ns > 0 && isfinite(out[1][0]) && out[1][0] != out[1][N - 1]);
	proxy_pass_free(r);
	for (int i = 0; i < 2; i++)
		mapper_free(m[i]), free(out[i]);
	free(ids);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_strips), cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_methods), cmocka_unit_test(test_one_fails)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
