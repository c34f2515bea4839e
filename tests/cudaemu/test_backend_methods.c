/* End to end on the four families of tiny models: the CUDA backend against the CPU. Logits within a tolerance; for every method the scores, the kept sets, and the
 * greedy answers through a view and through its compacted copy. Trained ones read files of made-up weights, their proxy is the model itself; the same over the whole
 * program's border (runner.h), with files that were trained, is tests/cudaemu/test_backend_runner.c. */
#include "runners/lkv/file.h"
#include "runners/mapper/impl.h"
#include "runners/methods/prior.h"
#include "tests/unit/mapper/planted.h"
#include "tests/unit/methods/methods.h"

static const char *const models[] = {"llama-tiny", "qwen2-tiny", "qwen3-tiny", "smollm2-tiny", "qwen2-yarn-tiny"};
enum { N_MODELS = 5, CPU = 0, CUDA = 1 };

static struct engine engine_on(const char *device, const char *model, const char *precision, int max_rows)
{
	struct engine e = {0};
	char err[ERR_LEN] = "", *path = text_format("tests/fixtures/models/%s", model);
	struct device_options o = {.name = device, .precision = precision, .threads = 2};
	if (model_open(&e.model, path, err) || device_open(&e.device, &o, err) || forward_open(&e.forward, e.model, e.device, max_rows, err))
		fail_msg("%s: %s", path, err);
	free(path);
	return e;
}
static void both_open(struct engine e[2], const char *model, const char *precision, int max_rows)
{
	e[CPU] = engine_on("cpu", model, precision, max_rows);
	e[CUDA] = engine_on("cuda", model, precision, max_rows);
}
static void both_close(struct engine e[2])
{
	engine_close(&e[CPU]);
	engine_close(&e[CUDA]);
}

enum { LOGIT_TOKENS = 90, STEPS = 12 };

/* Logits of the last of a prefill in chunks, then of single tokens: [STEPS + 1][vocab]; caller frees. */
static float *logits_on(const char *device, const char *model, const char *precision)
{
	struct engine e = engine_on(device, model, precision, 40);
	int vocab = model_config(e.model)->vocab;
	int32_t *ids = some_ids(LOGIT_TOKENS + STEPS, 3);
	float *logits = mem_new((size_t)(vocab * (STEPS + 1)), sizeof *logits);
	struct kv *kv = engine_cache(&e, LOGIT_TOKENS + STEPS);
	engine_prefill(&e, kv, ids, LOGIT_TOKENS, logits);
	for (int t = 0; t < STEPS; t++)
		engine_feed(&e, NULL, NULL, kv, ids + LOGIT_TOKENS + t, 1, LOGIT_TOKENS + t, logits + (t + 1) * vocab);
	kv_free(kv);
	free(ids);
	engine_close(&e);
	return logits;
}

static int vocab_of(const char *model)
{
	struct engine e = engine_on("cpu", model, "fp32", 1);
	int vocab = model_config(e.model)->vocab;
	engine_close(&e);
	return vocab;
}

static double rms(const float *a, const float *b, int n) /* a NaN stays one */
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
	return sqrt(sum / n);
}

/* fp32: close to the CPU's. bf16: as close to fp32 as the CPU's bf16 is. */
static void test_logits(void **state)
{
	(void)state;
	for (int m = 0; m < N_MODELS; m++) {
		int n = vocab_of(models[m]) * (STEPS + 1);
		float *exact = logits_on("cpu", models[m], "fp32"), *cpu = logits_on("cpu", models[m], "bf16"),
		      *cuda = logits_on("cuda", models[m], "bf16"), *cuda32 = logits_on("cuda", models[m], "fp32");
		double e32 = rms(cuda32, exact, n), e_cpu = rms(cpu, exact, n), e_cuda = rms(cuda, exact, n);
		print_message("%s: fp32 %.2g; bf16 %.2g, the CPU's %.2g\n", models[m], e32, e_cuda, e_cpu);
		assert_true(e32 < 5e-5 && e_cuda < 1.3 * e_cpu); /* observed 5e-6, 0.9 to 1.1 */
		free(exact), free(cpu), free(cuda), free(cuda32);
	}
}

/* ---- files of trained methods ---- */

static const char target_sha[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const char proxy_sha[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

static void random_add(float *x, size_t n, float scale, uint64_t seed)
{
	struct rng r = rng_seed(seed, 1);
	for (size_t i = 0; i < n; i++)
		x[i] += scale * (float)(rng_unit(&r) - .5);
}

/* Where a file of this kind belongs; caller frees. */
static char *file_for(const char *folder, const char *kind, const char *proxy)
{
	char err[ERR_LEN] = "", *path = trained_target(folder, kind, target_sha, proxy, err);
	if (!path)
		fail_msg("%s", err);
	return path;
}

static void make_mapper(const char *folder, const struct model_config *c, bool self)
{
	char err[ERR_LEN] = "", *path = file_for(folder, self ? "selfkv-flat" : "proxykv-flat", self ? NULL : proxy_sha);
	struct mapper_config config = plant_config("mapper=flat channels=24");
	struct mapper_pair pair = {.target = "t", .proxy = "p"};
	memcpy(pair.target_sha256, target_sha, SHA_LEN);
	memcpy(pair.proxy_sha256, self ? target_sha : proxy_sha, SHA_LEN);
	memcpy(pair.tokenizer_sha256, target_sha, SHA_LEN);
	config.source = self ? MAPPER_SOURCE_SELF : config.source;
	config.proxy_layers = config.layers = c->layers;
	config.proxy_heads = c->heads;
	config.kv_heads = c->kv_heads;
	struct mapper *m = mapper_new(&config, err);
	if (!m)
		fail_msg("%s", err);
	random_add(m->params, m->layout.count, .4f, 7 + self);
	mapper_set_pair(m, &pair);
	if (mapper_write(m, path, err))
		fail_msg("%s", err);
	mapper_free(m);
	free(path);
}

static void make_lkv(const char *folder, const struct model_config *c, enum lkv_kind kind)
{
	const struct lkv_shape shape = {kind, c->layers, c->kv_heads, c->head_dim, 32, 16, true, true, true};
	char err[ERR_LEN] = "", *path = file_for(folder, lkv_kind_name(kind), NULL);
	struct lkv_net *net = lkv_net_new(&shape, 3);
	assert_non_null(net);
	for (int t = LKV_B1; t < LKV_MEAN; t++) /* no tensor left at its first value */
		random_add(net->p[t], (size_t)net->count[t], 1, 20 + (uint64_t)t);
	if (lkv_file_write(path, net, &(struct lkv_origin){target_sha, target_sha, "", "{}", "a test"}, err))
		fail_msg("%s", err);
	lkv_net_free(net);
	free(path);
}

/* Levels of heads: the prior, KVzip's head table, and a map that is not the identity. */
static void make_heads(const char *folder, const struct model_config *c)
{
	enum { N = 40, MOST = 64 };
	int heads = c->layers * c->kv_heads;
	float scores[MOST * N] = {0}, table[MOST] = {0};
	int32_t map[MOST];
	char err[ERR_LEN] = "", *made = NULL, *prior_path = file_for(folder, "head-prior", NULL), *map_path = file_for(folder, "iam", proxy_sha);
	struct prior *prior = prior_new(c->layers, c->kv_heads);
	assert_true(heads <= MOST);
	random_add(table, (size_t)heads, 1, 30);
	for (int i = 0; i < heads * N; i++)
		scores[i] = (float)exp((double)table[i / N] + i * 37 % N * .1);
	for (int i = 0; i < heads; i++)
		map[i] = (i + 1) % heads;
	prior_add(prior, scores, N, proxy_sha);
	prior_end(prior);
	struct st_tensor t = {.name = "map", .type = ST_I32, .n_dims = 2, .dims = {c->layers, c->kv_heads}, .data = map};
	if (prior_write(prior, prior_path, target_sha, "a test", err) || st_write(map_path, &t, 1, NULL, 0, err) ||
		head_table_write(folder, target_sha, c->layers, c->kv_heads, table, 1, &made, err))
		fail_msg("%s", err);
	prior_free(prior);
	free(made), free(prior_path), free(map_path);
}

/* A proxy of the same model on the same kind of device. */
static struct run_trained trained_on(const char *folder, const char *device, const char *model)
{
	struct run_trained t = {folder, target_sha, proxy_sha, trained_store_new(), NULL};
	struct device_options o = {.name = device, .precision = "fp32", .threads = 2};
	char err[ERR_LEN] = "", *path = text_format("tests/fixtures/models/%s", model);
	struct model *m;
	if (model_open(&m, path, err) || proxy_open(&t.proxy, m, &o, false, 40, err))
		fail_msg("%s: %s", path, err);
	free(path);
	return t;
}

static void trained_close(struct run_trained *t)
{
	proxy_close(t->proxy);
	trained_store_free(t->weights);
}

/* ---- methods ---- */

enum { PREFIX = 5, CONTEXT = 85, CONTEXT_END = PREFIX + CONTEXT, QUESTION = 6, NEW = 8 };

/* What the cache keeps of one run: prefix and the chosen entries. */
static struct kept *kept_of(const struct engine *e, const struct selection *s, int64_t *cap)
{
	const struct model_config *c = model_config(e->model);
	int n = c->layers * c->kv_heads;
	int32_t *len = mem_new((size_t)n, 4), **list = mem_new((size_t)n, sizeof *list);
	for (int i = 0; i < n; i++) {
		list[i] = mem_new((size_t)(PREFIX + s->len[i]), 4);
		for (int r = 0; r < PREFIX; r++)
			list[i][len[i]++] = r;
		for (int r = 0; r < s->len[i]; r++)
			if (s->index[i][r] >= PREFIX)
				list[i][len[i]++] = s->index[i][r];
		cap[i] = len[i];
	}
	struct kept *k = kept_new(e->device, c->layers, c->kv_heads, len, (const int32_t *const *)list);
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list), free(len);
	return k;
}

static void decode(const struct engine *e, const struct kv *context, const struct kept *kept, const int32_t *question, int32_t *answer)
{
	struct kv *tail = engine_cache(e, QUESTION + NEW);
	answer[0] = engine_feed(e, context, kept, tail, question, QUESTION, CONTEXT_END, NULL);
	for (int t = 1; t < NEW; t++)
		answer[t] = engine_feed(e, context, kept, tail, &answer[t - 1], 1, CONTEXT_END + QUESTION + t - 1, NULL);
	kv_free(tail);
}

/* View and compacted copy answer alike. */
static void answers(struct run *r, const struct selection *s, const int32_t *question, int32_t *answer)
{
	const struct engine *e = r->engine;
	const struct model_config *c = model_config(e->model);
	int64_t cap[256];
	int32_t again[NEW];
	char err[ERR_LEN] = "";
	struct kept *kept = kept_of(e, s, cap);
	struct kv *compact = kv_new(e->device, c->layers, c->kv_heads, c->head_dim, cap);
	(void)err;
	decode(e, r->kv, kept, question, answer);
	for (int l = 0; l < c->layers; l++)
		assert_int_equal(kv_gather(forward_queue(e->forward), compact, r->kv, kept, l), 0);
	decode(e, compact, NULL, question, again);
	assert_memory_equal(again, answer, sizeof again);
	kv_free(compact);
	kept_free(kept);
}

static void same_sets(const char *method, const struct selection *a, const struct selection *b)
{
	for (int i = 0; i < a->layers * a->kv_heads; i++)
		if (a->len[i] != b->len[i] || memcmp(a->index[i], b->index[i], (size_t)a->len[i] * 4))
			fail_msg("%s: list %d is not the CPU's", method, i);
}

static void check_method(struct engine e[2], const struct run_trained t[2], const char *name, const int32_t *ids, double *worst)
{
	struct run r[2];
	for (int i = 0; i < 2; i++) {
		run_open_trained(&r[i], &e[i], name, NULL, ids, PREFIX, CONTEXT, 0, NULL, &t[i]);
		if (r[i].rc)
			fail_msg("%s: %s", name, r[i].err);
	}
	const struct scorer *scorer = r[0].m.scorer; /* what is scored on the GPU is ranked there; the CPU has one memory */
	bool there = scorer == &scorer_snapkv || scorer == &scorer_h2o || scorer == &scorer_kvzip || scorer == &scorer_proxykv || scorer == &scorer_selfkv;
	assert_true((scores_resident(&r[CUDA].s) != NULL) == there && !scores_resident(&r[CPU].s));
	int64_t n = (int64_t)r[0].s.layers * r[0].s.kv_heads * r[0].s.shape.count;
	for (int64_t j = 0; j < n; j++) {
		double d = fabs((double)r[CUDA].s.scores[j] - r[CPU].s.scores[j]) / (1 + fabs((double)r[CPU].s.scores[j]));
		*worst = d <= *worst ? *worst : d;
	}
	for (int k = 0; k < 2; k++) {
		struct selection s[2];
		int32_t answer[2][NEW];
		for (int i = 0; i < 2; i++) {
			s[i] = selected(&r[i].m, &r[i].s, k ? .6 : .3);
			answers(&r[i], &s[i], ids + CONTEXT_END, answer[i]);
		}
		same_sets(name, &s[CUDA], &s[CPU]);
		for (int t = 0; t < NEW; t++)
			if (answer[CUDA][t] != answer[CPU][t])
				fail_msg("%s: token %d of the answer is %d, not %d", name, t, answer[CUDA][t], answer[CPU][t]);
		selection_free(&s[0]), selection_free(&s[1]);
	}
	run_close(&r[0]), run_close(&r[1]);
}

static void test_methods(void **state)
{
	(void)state;
	double worst = 0;
	char folder[] = "/tmp/kvbench-methods-XXXXXX";
	assert_non_null(mkdtemp(folder));
	for (int m = 0; m < 4; m++) {
		struct engine e[2];
		struct run_trained t[2] = {trained_on(folder, "cpu", models[m]), trained_on(folder, "cuda", models[m])};
		both_open(e, models[m], "fp32", 40);
		const struct model_config *c = model_config(e[CPU].model);
		make_mapper(folder, c, false), make_mapper(folder, c, true);
		for (int kind = 0; kind < LKV_KINDS; kind++)
			make_lkv(folder, c, (enum lkv_kind)kind);
		make_heads(folder, c);
		int32_t *ids = some_ids(CONTEXT_END + QUESTION, 4);
		for (size_t i = 0; i < method_count(); i++)
			if (method_at(i)->scorer) /* all but full */
				check_method(e, t, method_at(i)->name, ids, &worst);
		free(ids);
		trained_close(&t[CPU]), trained_close(&t[CUDA]); /* before the devices: what lies there of files goes with the store */
		both_close(e);
	}
	char *clean = text_format("rm -rf '%s'", folder);
	assert_int_equal(system(clean), 0);
	free(clean);
	print_message("%zu methods on 4 models: largest difference of a score %.2g\n", method_count() - 1, worst);
	assert_true(worst < 1e-4); /* observed 2e-6 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits), cmocka_unit_test(test_methods)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
