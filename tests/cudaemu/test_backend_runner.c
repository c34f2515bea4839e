/* Whole contexts through runner.h on the embedded pair: on the CUDA device every method's answers and kept counts are the CPU's; the proxy beside its target on
 * one GPU and on a second one; the timed pipeline; caches on the host. */
#include "runners/runner.h"
#include "tests/unit/test.h"

enum { MOST = 64, IDS = 12 };
struct collected {
	int n, lists;
	int64_t tokens; /* of the prompt that was pruned */
	enum runner_status status[MOST];
	int32_t ids[MOST][IDS];
	int n_ids[MOST];
	int64_t kept[MOST];
	int32_t *list[MOST]; /* kept entries of each (layer, head) */
	char message[MOST][ERR_LEN];
};

static void collect(void *user, const struct runner_answer *a)
{
	struct collected *c = user;
	int i = a->variant;
	c->n++;
	c->tokens = a->prefix_tokens + a->context_tokens;
	c->status[i] = a->status;
	c->n_ids[i] = a->n_ids < IDS ? a->n_ids : IDS;
	if (a->n_ids)
		memcpy(c->ids[i], a->ids, (size_t)c->n_ids[i] * sizeof *a->ids);
	c->kept[i] = a->kept_total;
	if (a->kept) {
		c->list[i] = mem_new((size_t)c->lists, sizeof(int32_t));
		memcpy(c->list[i], a->kept, (size_t)c->lists * sizeof(int32_t));
	}
	snprintf(c->message[i], ERR_LEN, "%s", a->message);
}

static struct runner *runner_on(const char *device, const char *proxy_device, const char *precision, bool offload)
{
	char err[ERR_LEN] = "";
	struct runner *r = NULL;
	struct runner_options o = {.target = "tiny-pair/target", .proxy = "tiny-pair/proxy", .precision = precision, .threads = 2, .device = device,
		.proxy_device = proxy_device, .proxy_threads = proxy_device ? 1 : 0, .kv_offload = offload, .models_dir = "runners/model"};
	if (runner_open(&r, &o, err))
		fail_msg("%s", err);
	return r;
}

static const char CONTEXT[] = "The old man saw the lake. Code amber 411 355. The small doctor pulled the clerk. The old man saw the lake. Code otter 548 626. "
			      "The small doctor pulled the clerk. The old man saw the lake. The old man saw the lake. Code tulip 148 897. The small doctor "
			      "pulled the clerk. The old man saw the lake. The small doctor pulled the clerk. The old man saw the lake.";

static struct collected *answered_on(const char *context, struct runner *r, const struct runner_variant *v, int n, enum runner_protocol protocol)
{
	char err[ERR_LEN] = "";
	struct collected *c = mem_new(1, sizeof *c);
	c->lists = runner_info(r)->layers * runner_info(r)->kv_heads;
	struct runner_question q = {.text = "\nRecall otter.", .max_new_tokens = IDS};
	struct runner_job job = {.context = context, .chat = true, .questions = &q, .n_questions = 1, .variants = v, .n_variants = n, .protocol = protocol,
		.user = c, .done = collect};
	if (runner_answer(r, &job, err))
		fail_msg("%s", err);
	assert_int_equal(c->n, n);
	return c;
}

static struct collected *answered(struct runner *r, const struct runner_variant *v, int n, enum runner_protocol protocol)
{
	return answered_on(CONTEXT, r, v, n, protocol);
}

static void free_collected(struct collected *c)
{
	for (int i = 0; i < MOST; i++)
		free(c->list[i]);
	free(c);
}

/* Every method there is; the CPU says which can run here (tables and trained files may be missing). */
static int all_variants(struct runner *cpu, struct runner_variant *v)
{
	int n = 0;
	(void)cpu;
	for (size_t i = 0; i < runner_method_count() && n < MOST; i++) {
		struct runner_method_info m = runner_method_at(i);
		if (!strcmp(m.kind, "method"))
			v[n++] = (struct runner_variant){m.name, n % 2 ? .3 : .5, NULL};
	}
	return n;
}

static void compare(const char *what, const struct runner_variant *v, const struct collected *a, const struct collected *b, int n)
{
	int ok = 0;
	for (int i = 0; i < n; i++) {
		if (a->status[i] != b->status[i])
			fail_msg("%s, %s: status %d (%s), not %d (%s)", what, v[i].method, a->status[i], a->message[i], b->status[i], b->message[i]);
		if (b->status[i] != ANSWER_OK)
			continue;
		ok++;
		assert_int_equal(a->kept[i], b->kept[i]);
		assert_memory_equal(a->list[i], b->list[i], (size_t)a->lists * sizeof(int32_t));
		if (a->n_ids[i] != b->n_ids[i] || memcmp(a->ids[i], b->ids[i], (size_t)a->n_ids[i] * sizeof(int32_t)))
			fail_msg("%s, %s: another answer", what, v[i].method);
	}
	print_message("%s: %d of %d methods ran, all alike\n", what, ok, n);
	assert_true(ok * 4 >= n * 3); /* most of them do run here */
}

static void test_every_method(void **state)
{
	(void)state;
	struct runner *cpu = runner_on("cpu", NULL, "fp32", false), *cuda = runner_on("cuda", NULL, "fp32", false);
	struct runner_variant v[MOST];
	int n = all_variants(cpu, v);
	assert_true(strstr(runner_info(cuda)->device, "cpu") == NULL);
	struct collected *a = answered(cuda, v, n, PROTOCOL_AGNOSTIC), *b = answered(cpu, v, n, PROTOCOL_AGNOSTIC);
	compare("agnostic, fp32", v, a, b, n);
	free_collected(a), free_collected(b);
	static const struct runner_variant aware[] = {{"full", 1, NULL}, {"snapkv", .3, NULL}, {"kvzip", .3, NULL}};
	a = answered(cuda, aware, 3, PROTOCOL_AWARE), b = answered(cpu, aware, 3, PROTOCOL_AWARE);
	compare("aware, fp32", aware, a, b, 3);
	free_collected(a), free_collected(b);
	runner_close(cpu), runner_close(cuda);
}

/* Peak and estimate of one variant. */
static int64_t peak_of(const char *device, struct runner_variant v, int64_t *estimate)
{
	struct runner *r = runner_on(device, NULL, "fp32", false);
	char *context = text_format("%s %s", CONTEXT, CONTEXT);
	struct collected *c = answered_on(context, r, &v, 1, PROTOCOL_AGNOSTIC);
	free(context);
	if (c->status[0] != ANSWER_OK)
		fail_msg("%s: %s", v.method, c->message[0]);
	*estimate = runner_estimate(r, c->tokens, &v, 1, 1, IDS).total_bytes;
	int64_t peak = runner_peak_bytes(r);
	free_collected(c);
	runner_close(r);
	return peak;
}

/* Sums of all query heads and a mapper's work are in the estimate, scratch that is estimated but not used (the same for both) left out. */
static void test_selfkv_is_estimated(void **state)
{
	(void)state;
	static const char *const devices[] = {"cpu", "cuda"}, *const options[] = {NULL, "{\"mapper\":\"linear\"}"};
	for (int d = 0; d < 2; d++) {
		int64_t estimate[2], full = peak_of(devices[d], (struct runner_variant){"full", 1, NULL}, &estimate[0]);
		for (int o = 0; o < 2; o++) {
			int64_t more = peak_of(devices[d], (struct runner_variant){"selfkv", .3, options[o]}, &estimate[1]) - full;
			print_message("%s: selfkv took %lld bytes more than full, %lld estimated\n", devices[d], (long long)more,
				(long long)(estimate[1] - estimate[0]));
			assert_true(more > 0 && more <= estimate[1] - estimate[0]);
			assert_true(full + more <= estimate[1]);
		}
	}
}

/* The proxy's cache, its sums and a mapper's work are in the estimate: what a second run takes of the proxy's device, its scratch being there already. */
static void test_proxykv_is_estimated(void **state)
{
	(void)state;
	static const char *const devices[] = {"cpu", "cuda"}, *const options[] = {NULL, "{\"mapper\":\"linear\"}", "{\"mapper\":\"axial\"}"};
	struct runner_variant v[4] = {{"full", 1, NULL}};
	struct runner_question q = {.text = "\nRecall otter.", .max_new_tokens = IDS};
	for (int i = 0; i < 3; i++)
		v[1 + i] = (struct runner_variant){"proxykv", .3, options[i]};
	struct runner_job job = {.context = CONTEXT, .chat = true, .questions = &q, .n_questions = 1, .variants = v, .n_variants = 4};
	for (int d = 0; d < 2; d++) {
		struct runner *r = runner_on(devices[d], NULL, "fp32", false);
		struct collected *c = answered(r, v, 1, PROTOCOL_AGNOSTIC);
		int64_t tokens = c->tokens, none = runner_estimate(r, tokens, v, 1, 1, IDS).proxy_bytes;
		free_collected(c);
		for (int i = 1; i < 4; i++) {
			struct runner_timing t;
			char err[ERR_LEN] = "";
			if (runner_time(r, &job, i, 1, &t, err) || runner_time(r, &job, i, 1, &t, err))
				fail_msg("%s", err);
			int64_t took = t.proxy_peak_bytes - t.proxy_after_bytes, estimate = runner_estimate(r, tokens, &v[i], 1, 1, IDS).proxy_bytes - none;
			print_message("%s, mapper %d: a run took %lld bytes of the proxy's device, %lld estimated\n", devices[d], i, (long long)took,
				(long long)estimate);
			assert_true(took > 0 && took <= estimate && estimate < 2 * took);
		}
		runner_close(r);
	}
}

/* The proxy beside the target: on the same GPU, on a second one; and with room for caches on the host. */
static void test_topologies(void **state)
{
	(void)state;
	static const struct runner_variant v[] = {{"full", 1, NULL}, {"kvzip", .4, NULL}, {"proxykv", .4, NULL}};
	struct runner *cpu = runner_on("cpu", NULL, "fp32", false);
	struct collected *want = answered(cpu, v, 3, PROTOCOL_AGNOSTIC);
	static const char *const proxy_on[] = {"cuda:0", "cuda:1", "cpu"}, *const topology[] = {"shared", "dual+offload", "proxy-cpu"};
	assert_string_equal(runner_info(cpu)->topology, "cpu");
	char what[DEVICE_NAME_LEN];
	for (int i = 0; i < 3; i++) {
		if (!runner_device_usable(proxy_on[i], what)) {
			print_message("left out: %s: %s\n", proxy_on[i], what);
			continue;
		}
		struct runner *r = runner_on("cuda:0", proxy_on[i], "fp32", i == 1);
		const char *says = runner_info(r)->topology;
		assert_string_equal(says + (strncmp(says, "emulated-", 9) ? 0 : 9), topology[i]);
		assert_int_equal(!strncmp(says, "emulated-", 9), !strncmp(runner_info(r)->device, "emulated", 8));
		struct collected *got = answered(r, v, 3, PROTOCOL_AGNOSTIC);
		compare(proxy_on[i], v, got, want, 3);
		free_collected(got);
		runner_close(r);
	}
	free_collected(want);
	runner_close(cpu);
}

static bool stop_at_once(void *user)
{
	(void)user;
	return true;
}

static void nothing_told(void *user, const struct runner_answer *a)
{
	(void)user;
	fail_msg("variant %d was answered", a->variant);
}

/* Given up while the proxy is at work on its own thread: nothing of it is left behind, and the next job finds all as it was. */
static void test_stopped(void **state)
{
	(void)state;
	static const struct runner_variant v[] = {{"proxykv", .4, NULL}};
	struct runner *r = runner_on("cuda:0", "cuda:0", "bf16", false);
	struct runner_question q = {.text = "\nRecall otter.", .max_new_tokens = IDS};
	struct runner_job job = {.context = CONTEXT, .chat = true, .questions = &q, .n_questions = 1, .variants = v, .n_variants = 1,
		.done = nothing_told, .stop = stop_at_once};
	char err[ERR_LEN] = "";
	for (int i = 0; i < 3; i++)
		assert_int_equal(runner_answer(r, &job, err), 1);
	struct collected *c = answered(r, v, 1, PROTOCOL_AGNOSTIC);
	assert_int_equal(c->status[0], ANSWER_OK);
	free_collected(c);
	runner_close(r);
}

static void test_timing(void **state)
{
	(void)state;
	struct runner *r = runner_on("cuda", "cuda", "bf16", false);
	static const struct runner_variant v[] = {{"full", 1, NULL}, {"kvzip", .3, NULL}, {"proxykv", .3, NULL}};
	struct runner_question q = {.text = "\nRecall otter.", .max_new_tokens = IDS};
	struct runner_job job = {.context = CONTEXT, .chat = true, .questions = &q, .n_questions = 1, .variants = v, .n_variants = 3};
	for (int i = 0; i < 3; i++) {
		struct runner_timing t;
		char err[ERR_LEN] = "";
		if (runner_time(r, &job, i, 3, &t, err))
			fail_msg("%s: %s", v[i].method, err);
		int64_t sum = t.prefill_ns + t.score_ns + t.select_ns + t.compact_ns + t.question_ns + t.first_token_ns;
		assert_true(t.ttft_ns > 0 && llabs(sum - t.ttft_ns) <= t.ttft_ns / 20);
		assert_true(t.peak_bytes > 0 && t.kv_bytes_after <= t.kv_bytes_before);
		const struct runner_device_time *e = &t.device; /* the same by events */
		sum = e->prefill_ns + e->score_ns + e->select_ns + e->compact_ns + e->question_ns + e->first_token_ns;
		assert_true(e->ttft_ns > 0 && llabs(sum - e->ttft_ns) <= e->ttft_ns / 20);
		assert_true(e->prefill_ns > 0 && e->question_ns > 0 && e->first_token_ns > 0 && (i == 0) == (e->compact_ns == 0));
		assert_true(e->ttft_ns <= t.ttft_ns + t.ttft_ns / 10);
	}
	runner_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_method), cmocka_unit_test(test_selfkv_is_estimated), cmocka_unit_test(test_proxykv_is_estimated), cmocka_unit_test(test_topologies), cmocka_unit_test(test_timing),
		cmocka_unit_test(test_stopped)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
