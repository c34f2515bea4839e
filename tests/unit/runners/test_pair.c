/* test_pair.c: a target with its proxy through runner.h: who is a pair, what proxykv and selfkv answer, what is refused, what
 * stays in memory, where the time goes. The trained files are the embedded ones. */
#include "runners/runner_impl.h"
#include "tests/unit/test.h"

#include <unistd.h>

static struct runner *pair_open(const char *proxy, int threads, int proxy_threads, const char *weights, char err[ERR_LEN])
{
	struct runner *r = NULL;
	struct runner_options o = {.target = "tiny-pair/target",
		.proxy = proxy,
		.precision = "fp32",
		.threads = threads,
		.proxy_threads = proxy_threads,
		.models_dir = "runners/model",
		.weights_dir = weights ? weights : "/nowhere"};
	return runner_open(&r, &o, err) ? NULL : r;
}

static struct runner *the_pair(int threads, int proxy_threads)
{
	char err[ERR_LEN] = "";
	struct runner *r = pair_open("tiny-pair/proxy", threads, proxy_threads, NULL, err);
	if (!r)
		fail_msg("%s", err);
	return r;
}

enum { VARIANTS = 7 };
static const struct runner_variant variants[VARIANTS] = {{"full", 1, NULL}, {"proxykv", .2, NULL},
	{"proxykv", .2, "{\"mapper\":\"linear\"}"}, {"selfkv", .2, NULL}, {"head-prior", .2, NULL},
	{"snapkv@head-prior", .2, NULL}, {"kvzip+iam", .2, NULL}};

struct answers {
	enum runner_status status[VARIANTS];
	int32_t ids[VARIANTS][32];
	int n[VARIANTS];
	int64_t kept[VARIANTS];
	int context;
	char message[VARIANTS][ERR_LEN];
};

static void take(void *user, const struct runner_answer *a)
{
	struct answers *x = user;
	int v = a->variant;
	x->status[v] = a->status;
	x->n[v] = a->n_ids < 32 ? a->n_ids : 32;
	if (x->n[v]) /* a failed answer has no ids */
		memcpy(x->ids[v], a->ids, (size_t)x->n[v] * sizeof(int32_t));
	x->kept[v] = a->kept_total;
	x->context = a->context_tokens;
	snprintf(x->message[v], ERR_LEN, "%s", a->message);
}

/* Sentences of the dialect with one needle; number tells contexts apart. */
static char *story(int number)
{
	struct strbuf b = {0};
	for (int i = 0; i < 60; i++)
		strbuf_puts(&b, i == 20 + number ? "Code amber 123 456. "
				: i % 3          ? "The old man saw the lake. "
						 : "The small doctor pulled the clerk. ");
	return strbuf_take(&b);
}

static struct runner_question question = {.text = "\nRecall amber.", .max_new_tokens = 12};

static struct runner_job job_of(const char *context)
{
	return (struct runner_job){.context = context,
		.chat = true,
		.questions = &question,
		.n_questions = 1,
		.variants = variants,
		.n_variants = VARIANTS};
}

static struct answers ask(struct runner *r, int number)
{
	struct answers x = {0};
	char *context = story(number), err[ERR_LEN] = "";
	struct runner_job job = job_of(context);
	job.user = &x;
	job.done = take;
	if (runner_answer(r, &job, err))
		fail_msg("%s", err);
	free(context);
	return x;
}

/* Tokenizers are compared by content. */
static void tokenizers_make_a_pair(void **state)
{
	(void)state;
	char folder[] = "/tmp/kvbench-proxy-XXXXXX", err[ERR_LEN] = "", *text, *where;
	size_t len;
	assert_non_null(mkdtemp(folder));
	char *command = text_format("cp runners/model/tiny-pair/proxy/* %s/", folder),
	     *file = text_format("%s/tokenizer.json", folder);
	assert_int_equal(system(command), 0);
	struct runner *r = pair_open(folder, 1, 0, NULL, err); /* the same content elsewhere: fine */
	assert_non_null(r);
	assert_int_equal(runner_info(r)->proxy_layers, 3);
	assert_int_equal(strlen(runner_info(r)->proxy_sha256), 64);
	assert_string_not_equal(runner_info(r)->proxy_sha256, runner_info(r)->model_sha256);
	runner_close(r);
	assert_int_equal(file_read(file, &text, &len, err), 0);
	assert_non_null(where = strstr(text, "lake\""));
	where[1] = 'e'; /* one piece of the vocabulary is another text */
	FILE *f = fopen(file, "w");
	assert_int_equal(fwrite(text, 1, len, f), len);
	fclose(f);
	assert_null(pair_open(folder, 1, 0, NULL, err));
	assert_non_null(strstr(err, "no pair: their tokenizers differ"));
	assert_null(pair_open("tiny-pair/proxy", 2, 2, NULL, err));
	assert_non_null(strstr(err, "the target needs one at least"));
	free(text);
	free(command);
	free(file);
	command = text_format("rm -r %s", folder);
	assert_int_equal(system(command), 0);
	free(command);
}

/* One run of the proxy for all that need it; overlapped or in turn the same bits; nothing stays on either device. */
static void overlapped_and_in_turn_answer_alike(void **state)
{
	(void)state;
	struct answers x[2];
	for (int overlapped = 0; overlapped < 2; overlapped++) {
		struct runner *r = the_pair(2, overlapped);
		ask(r, 1); /* the devices' own scratch */
		int64_t held = runner_bytes(r);
		struct runner_counters before = runner_counters(r);
		x[overlapped] = ask(r, 0);
		struct runner_counters after = runner_counters(r);
		assert_int_equal(after.prefills - before.prefills, 1);
		assert_int_equal(after.proxy_passes - before.proxy_passes, 1);
		assert_int_equal(runner_bytes(r), held);
		assert_int_equal(device_bytes(r->proxy->device) <= r->proxy->resident, 1);
		runner_close(r);
	}
	int heads = 16;
	for (int v = 0; v < VARIANTS; v++) {
		if (x[0].status[v] != ANSWER_OK)
			fail_msg("%s: %s", variants[v].method, x[0].message[v]);
		assert_int_equal(x[0].n[v], x[1].n[v]);
		assert_memory_equal(x[0].ids[v], x[1].ids[v], (size_t)x[0].n[v] * sizeof(int32_t));
		assert_int_equal(x[0].kept[v], v ? heads * (int)(x[0].context * .2 + 1e-9) : heads * x[0].context);
		assert_int_equal(x[0].kept[v], x[1].kept[v]);
	}
	for (int v = 1; v <= 3; v += 2) { /* the needle is found */
		assert_int_equal(x[0].n[v], x[0].n[0]);
		assert_memory_equal(x[0].ids[v], x[0].ids[0], (size_t)x[0].n[0] * sizeof(int32_t));
	}
}

/* Without a proxy, without a file, with other features than the file's: one failed row each, the others answer. */
static void what_cannot_be_scored_is_a_row(void **state)
{
	(void)state;
	static const struct runner_variant odd[] = {{"full", 1, NULL}, {"proxykv", .2, NULL}, {"selfkv", .2, NULL},
		{"selfkv", .2, "{\"layers\":2}"}, {"selfkv", .2, "{\"weights\":\"/nowhere\"}"}, {"scores:/nowhere", .2, NULL}};
	static const char *const says[] = {"", "proxykv needs a proxy", "", "kvbench train selfkv", "there is no file", "/nowhere"};
	struct answers x = {0};
	char *context = story(0), err[ERR_LEN] = "";
	struct runner *r = pair_open(NULL, 1, 0, NULL, err);
	struct runner_job job = job_of(context);
	job.variants = odd;
	job.n_variants = 6;
	job.user = &x;
	job.done = take;
	assert_int_equal(runner_answer(r, &job, err), 0);
	for (int v = 0; v < 6; v++) {
		assert_int_equal(x.status[v], *says[v] ? ANSWER_FAILED : ANSWER_OK);
		if (!strstr(x.message[v], says[v]))
			fail_msg("%s: \"%s\" does not say \"%s\"", odd[v].method, x.message[v], says[v]);
	}
	free(context);
	runner_close(r);
}

/* Where the time goes: the wait and the mapper lie in the score; the parts are the whole. */
static void parts_of_the_time(void **state)
{
	(void)state;
	char *context = story(0), err[ERR_LEN] = "";
	for (int overlapped = 0; overlapped < 2; overlapped++) {
		struct runner *r = the_pair(2, overlapped);
		struct runner_job job = job_of(context);
		struct runner_timing t;
		for (int v = 0; v < VARIANTS; v++) {
			for (int k = 0; k < 2; k++) /* the first one reads the weights */
				if (runner_time(r, &job, v, 2, &t, err))
					fail_msg("%s: %s", variants[v].method, err);
			int64_t sum = t.prefill_ns + t.score_ns + t.select_ns + t.compact_ns + t.question_ns + t.first_token_ns;
			bool proxy = v == 1 || v == 2 || v == 6, mapper = v >= 1 && v <= 3;
			assert_true(llabs(sum - t.ttft_ns) <= t.ttft_ns / 50);
			assert_true((t.proxy_prefill_ns > 0) == proxy && (t.mapper_ns > 0) == mapper);
			assert_true(t.wait_ns + t.mapper_ns <= t.score_ns);
			assert_true((t.proxy_peak_bytes > 0) == proxy);
			assert_true(t.proxy_after_bytes < t.proxy_peak_bytes || !proxy); /* cache and sums are given back */
			if (proxy && !overlapped)
				assert_true(t.wait_ns >= t.proxy_prefill_ns);
		}
		runner_close(r);
	}
	free(context);
}

/* What a file was trained on is refused by the context's ids, whatever stands around them. */
static void training_contexts_are_refused(void **state)
{
	(void)state;
	char folder[] = "/tmp/kvbench-weights-XXXXXX", err[ERR_LEN] = "", *shards;
	assert_non_null(mkdtemp(folder));
	shards = text_format("%s/shards", folder);
	char *command = text_format("mkdir %s", shards);
	assert_int_equal(system(command), 0);
	free(command);
	struct runner *r = pair_open("tiny-pair/proxy", 2, 0, folder, err);
	for (int i = 0; i < 4; i++) {
		char *context = story(i);
		struct runner_job job = {.context = context, .chat = true};
		struct runner_collect c = {.job = &job, .id = "a story", .split = i < 3 ? "train" : "eval", .folder = shards};
		for (int again = 0; again < 2; again++) {
			bool present;
			if (runner_collect_proxykv(r, &c, &present, err))
				fail_msg("%s", err);
			assert_int_equal(present, again);
		}
		free(context);
	}
	struct runner_train t = {.folder = shards, .options = "{\"mapper\":\"linear\"}"};
	struct runner_trained out;
	if (runner_train_proxykv(r, &t, &out, err))
		fail_msg("%s", err);
	assert_int_equal(out.contexts, 3);
	assert_int_equal(out.eval_contexts, 1);
	assert_true(out.recall[2] > .3 && out.recall[2] <= 1);
	assert_true(out.ceiling[2] > out.floor[2] && out.ceiling[2] < 1); /* of the one context that judges */
	runner_trained_free(&out);
	for (int i = 0; i < 5; i++) { /* contexts 0..2 were trained on; 3 was for validation only */
		struct answers x = ask(r, i);
		assert_int_equal(x.status[2], i < 3 ? ANSWER_FAILED : ANSWER_OK);
		assert_int_equal(x.status[1], ANSWER_OK); /* the embedded flat mapper was trained on others */
		if (i < 3)
			assert_non_null(strstr(x.message[2], "was trained on this context"));
	}
	runner_close(r);
	command = text_format("rm -r %s", folder);
	assert_int_equal(system(command), 0);
	free(command);
	free(shards);
}

/* Scores written by one runner and read by another give the same choice; ids and kept lists are beside them. */
static void scores_go_out_and_come_back(void **state)
{
	(void)state;
	char path[] = "/tmp/kvbench-scores-XXXXXX", err[ERR_LEN] = "", *context = story(0);
	close(mkstemp(path));
	struct runner *r = the_pair(2, 0);
	struct runner_scores *s = runner_scores_new();
	struct runner_variant two[] = {{"kvzip", .2, NULL}, {"kvzip", .5, NULL}};
	struct runner_job job = job_of(context);
	job.variants = two;
	job.n_variants = 2;
	if (runner_scores_add(s, r, &job, err) || runner_scores_add(s, r, &job, err) ||
		runner_scores_write(s, r, path, "a test", err))
		fail_msg("%s", err);
	runner_scores_free(s);
	struct st_file *f;
	assert_int_equal(st_open(&f, path, err), 0);
	assert_int_equal(st_count(f), 6); /* scores, ids, two ratios with their lengths; once */
	st_close(f);
	char *name = text_format("scores:%s", path);
	struct runner_variant both[] = {{"kvzip", .2, NULL}, {name, .2, NULL}};
	struct answers x = {0};
	job.variants = both;
	job.user = &x;
	job.done = take;
	assert_int_equal(runner_answer(r, &job, err), 0);
	assert_int_equal(x.status[1], ANSWER_OK);
	assert_int_equal(x.kept[0], x.kept[1]);
	assert_int_equal(x.n[0], x.n[1]);
	assert_memory_equal(x.ids[0], x.ids[1], (size_t)x.n[0] * sizeof(int32_t));
	free(name);
	free(context);
	runner_close(r);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(tokenizers_make_a_pair),
		cmocka_unit_test(overlapped_and_in_turn_answer_alike), cmocka_unit_test(what_cannot_be_scored_is_a_row),
		cmocka_unit_test(parts_of_the_time), cmocka_unit_test(training_contexts_are_refused),
		cmocka_unit_test(scores_go_out_and_come_back)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
