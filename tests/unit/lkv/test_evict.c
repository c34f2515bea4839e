/* test_evict.c: LKV at run time on the embedded target with its shipped files: eviction inside the prefill gives bit for bit the
 * cache that compaction makes, with a lower peak; r = 1 is the full cache; budgets stay within R; another model's files and
 * training contexts are refused. */
#include "runners/lkv/shard.h"
#include "runners/runner_impl.h"
#include "tests/unit/test.h"

#include <unistd.h>

static const char *context_text(void) /* a few sentences of the tiny model's dialect, repeated with needles between */
{
	static struct strbuf b;
	if (!b.len)
		for (int i = 0; i < 80; i++)
			strbuf_printf(&b, "%sThe old man saw the lake. Code amber %03d %03d.", i ? " " : "", i * 11 % 1000,
				i * 37 % 1000);
	return b.text;
}

static struct runner *open_tiny(void)
{
	struct runner *r = NULL;
	char err[ERR_LEN] = "";
	const struct runner_options o = {.target = "runners/model/tiny-pair/target", .threads = 2, .weights_dir = "/nonexistent"};
	if (runner_open(&r, &o, err))
		fail_msg("%s", err);
	return r;
}

static const struct runner_question question = {.text = "\nRecall amber.", .max_new_tokens = 4};

static struct runner_job job_of(const struct runner_variant *v)
{
	return (struct runner_job){.context = context_text(),
		.chat = true,
		.questions = &question,
		.n_questions = 1,
		.variants = v,
		.n_variants = 1};
}

/* What compaction makes of a view. */
static struct kv *gathered(struct runner *r, const struct session *s, const struct view *view)
{
	int kv_heads = r->info.kv_heads;
	int64_t cap[64];
	assert_true(r->info.layers * kv_heads <= 64);
	for (int i = 0; i < r->info.layers * kv_heads; i++)
		cap[i] = kept_len(view->kept, i / kv_heads, i % kv_heads);
	struct kv *kv = kv_new(r->device, r->info.layers, kv_heads, r->info.head_dim, cap);
	assert_non_null(kv);
	for (int l = 0; l < r->info.layers; l++)
		assert_int_equal(kv_gather(forward_queue(r->forward), kv, s->kv, view->kept, l), 0);
	return kv;
}

static void assert_same_cache(struct runner *r, const struct kv *a, const struct kv *b)
{
	for (int i = 0; i < r->info.layers * r->info.kv_heads; i++) {
		int l = i / r->info.kv_heads, h = i % r->info.kv_heads;
		int64_t n = kv_len(a, l, h), floats = n * r->info.head_dim;
		assert_int_equal(n, kv_len(b, l, h));
		float *x = mem_new((size_t)(4 * floats) + 1, sizeof *x);
		assert_int_equal(kv_read(forward_queue(r->forward), a, l, h, 0, n, x, x + floats), 0);
		assert_int_equal(kv_read(forward_queue(r->forward), b, l, h, 0, n, x + 2 * floats, x + 3 * floats), 0);
		assert_memory_equal(x, x + 2 * floats, (size_t)(2 * floats) * sizeof *x);
		free(x);
	}
}

static void test_same_cache(void **state)
{
	static const struct runner_variant variants[] = {
		{"lkv", .15, NULL}, {"lkv", .3, "{\"window\":16}"}, {"lkv-t@uniform", .1, NULL}, {"lkv-global@lkv-h", .05, NULL}};
	struct runner *r = open_tiny();
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
		struct runner_job job = job_of(&variants[i]);
		struct prompt p = {0};
		struct prompt_question pq = {0};
		struct session s = {0};
		struct view view = {0};
		struct evicted early;
		char err[ERR_LEN] = "";
		int flags = 0, heads = r->info.layers * r->info.kv_heads;
		assert_true(evict_applies(&job));
		if (prompt_make(r, &job, 0, &p, &pq, err) || evict_prefill(&early, r, &job, &p, err) ||
			session_open(&s, r, &job, &p, NULL, err) ||
			view_make(&view, &s, 0, variants[i].retained, &flags, err))
			fail_msg("%s", err);
		assert_int_equal(early.kept_total, view.kept_total);
		assert_true((double)view.kept_total <= variants[i].retained * heads * p.context + 1e-6);
		assert_true((double)view.kept_total >
			    variants[i].retained * heads * p.context - heads); /* floors lose less than one a head */
		struct kv *compacted = gathered(r, &s, &view);
		assert_same_cache(r, early.kv, compacted);
		kv_free(compacted);
		view_free(&view);
		session_close(&s);
		evict_free(&early);
		prompt_question_free(&pq);
		prompt_free(&p);
	}
	runner_close(r);
	(void)state;
}

/* The memory row: the peak of lkv's own run lies below the full cache's and KVzip's. */
static void test_peak(void **state)
{
	static const struct runner_variant variants[] = {
		{"full", 1, NULL}, {"kvzip", .15, NULL}, {"lkv", .15, NULL}, {"lkv-global", .15, NULL}};
	struct runner *r = open_tiny();
	struct runner_timing t[4];
	char err[ERR_LEN] = "";
	struct runner_job job = job_of(variants);
	job.n_variants = 4;
	for (int v = 0; v < 4; v++)
		if (runner_time(r, &job, v, 2, &t[v], err))
			fail_msg("%s: %s", variants[v].method, err);
	int64_t full = t[0].kv_bytes_before, layer = full / r->info.layers,
		stream = (int64_t)(t[0].context_tokens + 64) * (r->info.hidden + r->info.head_dim) * 4;
	assert_int_equal(t[2].kv_bytes_before, full);
	assert_true(t[2].kv_bytes_after < full * .18); /* .15, and the prefix */
	/* one full layer, what was kept, the residual stream; the page lists of the layer at work are 4 bytes a row */
	int64_t bound = t[0].peak_bytes - full + layer + t[2].kv_bytes_after + stream + layer / 4;
	if (!(t[2].peak_bytes <= bound))
		fail_msg("peak of lkv %lld, expected at most %lld (full %lld)", (long long)t[2].peak_bytes, (long long)bound,
			(long long)t[0].peak_bytes);
	assert_true(t[2].peak_bytes < t[0].peak_bytes && t[2].peak_bytes < t[1].peak_bytes && t[2].peak_bytes < t[3].peak_bytes);
	for (int v = 0; v < 4; v++) { /* parts add up */
		int64_t sum = t[v].prefill_ns + t[v].score_ns + t[v].select_ns + t[v].compact_ns + t[v].question_ns +
			      t[v].first_token_ns;
		assert_true(llabs((long long)(sum - t[v].ttft_ns)) <= t[v].ttft_ns / 50);
	}
	runner_close(r);
	(void)state;
}

struct answers {
	int32_t ids[8][8];
	int n[8];
	int64_t kept[8];
	enum runner_status status[8];
	char message[8][ERR_LEN];
};
static void take(void *user, const struct runner_answer *a)
{
	struct answers *t = user;
	t->n[a->variant] = a->n_ids < 8 ? a->n_ids : 8;
	if (t->n[a->variant])
		memcpy(t->ids[a->variant], a->ids, (size_t)t->n[a->variant] * sizeof(int32_t));
	t->kept[a->variant] = a->kept_total;
	t->status[a->variant] = a->status;
	snprintf(t->message[a->variant], ERR_LEN, "%s", a->message);
}

/* r = 1 keeps every entry, and the logits behind the pruned view are those behind the full cache, bit for bit. */
static void test_all(void **state)
{
	static const struct runner_variant variants[] = {
		{"lkv", 1, NULL}, {"lkv-global", 1, NULL}, {"kvmlp", 1, NULL}, {"random@lkv-h", 1, NULL}};
	struct runner *r = open_tiny();
	for (int v = 0; v < 4; v++) {
		struct runner_job job = job_of(&variants[v]);
		struct prompt p = {0};
		struct prompt_question pq = {0};
		struct session s = {0};
		struct view view = {0};
		char err[ERR_LEN] = "";
		int flags = 0, vocab = r->info.vocab;
		float *logits = mem_new((size_t)(2 * vocab), sizeof *logits);
		if (prompt_make(r, &job, 0, &p, &pq, err) || session_open(&s, r, &job, &p, NULL, err) ||
			view_make(&view, &s, 0, 1, &flags, err))
			fail_msg("%s", err);
		assert_int_equal(view.kept_total, (int64_t)p.context * r->info.layers * r->info.kv_heads);
		for (int i = 0; i < 2; i++) {
			struct kv *tail = cache_new(r, (int64_t)pq.fed.n);
			struct forward_seq seq = {pq.fed.v, (int)pq.fed.n, (int64_t)p.ids.n, s.kv, i ? view.kept : NULL, tail};
			if (forward_run(r->forward, &seq, 1, NULL, 0, NULL, logits + i * vocab, err))
				fail_msg("%s", err);
			kv_free(tail);
		}
		assert_memory_equal(logits, logits + vocab, (size_t)vocab * sizeof *logits);
		free(logits);
		view_free(&view);
		session_close(&s);
		prompt_question_free(&pq);
		prompt_free(&p);
	}
	runner_close(r);
	(void)state;
}

/* Another model: no file fits, and one that is named is refused by its hash. */
static void test_other_model(void **state)
{
	static char options[256];
	struct runner *r = open_tiny(), *other = NULL;
	char err[ERR_LEN] = "",
	     *path = text_format("runners/model/tiny-pair/trained/lkv-global-%.16s.safetensors", r->info.model_sha256);
	const struct runner_options o = {.target = "runners/model/tiny-pair/proxy", .threads = 1, .weights_dir = "/nonexistent"};
	if (runner_open(&other, &o, err))
		fail_msg("%s", err);
	snprintf(options, sizeof options, "{\"weights\":\"%s\"}", path);
	const struct runner_variant variants[] = {
		{"lkv-global", .5, NULL}, {"lkv-global", .5, options}, {"random@lkv-h", .5, NULL}};
	struct answers got = {0};
	struct runner_job job = job_of(variants);
	job.n_variants = 3;
	job.user = &got;
	job.done = take;
	if (runner_answer(other, &job, err))
		fail_msg("%s", err);
	for (int v = 0; v < 3; v++)
		assert_int_equal(got.status[v], ANSWER_FAILED);
	assert_non_null(strstr(got.message[0], "kvbench train lkv-global"));
	assert_non_null(strstr(got.message[1], "target_sha256"));
	free(path);
	runner_close(other);
	runner_close(r);
	(void)state;
}

/* One command trains; the file is found, scores its own contexts are refused, others are not; the same again gives the same file.
 */
static void test_train(void **state)
{
	char folder[] = "/tmp/kvbench-lkv-XXXXXX", err[ERR_LEN] = "", sha[SHA_LEN] = "";
	assert_non_null(mkdtemp(folder));
	struct runner *r = NULL;
	const struct runner_options o = {.target = "runners/model/tiny-pair/target", .threads = 2, .weights_dir = folder};
	if (runner_open(&r, &o, err))
		fail_msg("%s", err);
	struct runner_job job = job_of(NULL);
	job.n_variants = 0;
	const struct runner_collect c = {&job, "test", "train", folder, NULL, "a test"};
	bool present;
	for (int i = 0; i < 2; i++) {
		if (runner_collect_lkv(r, &c, &present, err))
			fail_msg("%s", err);
		assert_int_equal(present, i == 1);
	}
	static int (*const train[3])(struct runner *, const struct runner_train *, struct runner_trained *, char *) = {
		runner_train_lkv, runner_train_lkv_global, runner_train_kv_mlp};
	static const struct runner_variant variants[] = {
		{"lkv", .5, NULL}, {"lkv-global", .5, NULL}, {"kvmlp", .5, NULL}, {"snapkv@lkv-h", .5, NULL}};
	char *out = text_format("%s/out", folder), *clean = text_format("rm -r %s", folder);
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < 2; i++) {
			struct runner_trained t;
			const struct runner_train rt = {.folder = folder,
				.out_folder = out,
				.made_by = "a test",
				.options = k == 2 ? "{\"distil_steps\":3}" : "{\"steps\":3,\"distil_steps\":2}"};
			if (train[k](r, &rt, &t, err))
				fail_msg("%s", err);
			assert_true(i == 0 || !strcmp(sha, t.sha256));
			strcpy(sha, t.sha256);
			runner_trained_free(&t);
		}
	runner_close(r);
	const struct runner_options again = {.target = "runners/model/tiny-pair/target", .threads = 2, .weights_dir = out};
	if (runner_open(&r, &again, err))
		fail_msg("%s", err);
	struct answers got = {0};
	job = job_of(variants);
	job.n_variants = 4;
	job.user = &got;
	job.done = take;
	if (runner_answer(r, &job, err))
		fail_msg("%s", err);
	for (int v = 0; v < 4; v++) {
		assert_int_equal(got.status[v], ANSWER_FAILED);
		assert_non_null(strstr(got.message[v], "trained on"));
	}
	job.context = "The young king praised a boat. Code amber 111 222. The old man saw the lake. Every king in the house "
		      "praised a boat.";
	if (runner_answer(r, &job, err))
		fail_msg("%s", err);
	for (int v = 0; v < 4; v++)
		if (got.status[v] != ANSWER_OK)
			fail_msg("%s: %s", variants[v].method, got.message[v]);
	runner_close(r);
	assert_int_equal(system(clean), 0);
	free(out);
	free(clean);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_cache), cmocka_unit_test(test_peak),
		cmocka_unit_test(test_all), cmocka_unit_test(test_other_model), cmocka_unit_test(test_train)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
