/* test_runner.c: whole contexts through runner.h on the embedded pair: answers, protocols, sharing, bits, memory, timing. */
#include "runners/runner.h"
#include "runners/methods/method.h"
#include "runners/model/tokenizer.h"
#include "tests/unit/test.h"

/* ---- collecting answers ---- */
enum { MAX_ANSWERS = 512 };
struct collected {
	int n, n_variants;
	enum runner_status status[MAX_ANSWERS];
	int32_t ids[MAX_ANSWERS][80];
	int n_ids[MAX_ANSWERS], flags[MAX_ANSWERS], context[MAX_ANSWERS];
	int64_t kept[MAX_ANSWERS], oom[MAX_ANSWERS], oom_free[MAX_ANSWERS];
	char message[MAX_ANSWERS][ERR_LEN], sha[MAX_ANSWERS][SHA_LEN];
};

static void collect(void *user, const struct runner_answer *a)
{
	struct collected *c = user;
	int i = a->question * c->n_variants + a->variant;
	assert_in_range(i, 0, MAX_ANSWERS - 1);
	c->n++;
	c->status[i] = a->status;
	c->n_ids[i] = a->n_ids;
	if (a->n_ids)
		memcpy(c->ids[i], a->ids, (size_t)(a->n_ids < 80 ? a->n_ids : 80) * sizeof *a->ids);
	c->flags[i] = a->flags;
	c->kept[i] = a->kept_total;
	c->oom[i] = a->oom_bytes;
	c->oom_free[i] = a->oom_free_bytes;
	c->context[i] = a->context_tokens;
	snprintf(c->message[i], ERR_LEN, "%s", a->message);
	memcpy(c->sha[i], a->prompt_sha256, SHA_LEN);
}

static struct runner *open_with(const char *target, const char *precision, int threads, int64_t memory)
{
	char err[ERR_LEN] = "";
	struct runner *r = NULL;
	struct runner_options o = {.target = target, .precision = precision, .threads = threads, .memory_bytes = memory,
		.models_dir = "runners/model"};
	if (runner_open(&r, &o, err))
		fail_msg("%s", err);
	return r;
}

static struct collected *run(struct runner *r, struct runner_job job)
{
	char err[ERR_LEN] = "";
	struct collected *c = mem_new(1, sizeof *c);
	c->n_variants = job.n_variants;
	job.user = c;
	job.done = collect;
	job.chat = true;
	int rc = runner_answer(r, &job, err);
	if (rc)
		fail_msg("%s", err);
	return c;
}

/* ---- a context of the dialect with asked needles ---- */
static const char *const keys[] = {"amber", "tulip", "otter", "falcon", "cumin", "panda", "walrus", "magpie", "rhino", "chive", "orchid", "berry"};
enum { N_KEYS = sizeof keys / sizeof *keys };

static char *dialect_context(int sentences)
{
	struct strbuf b = {0};
	for (int i = 0; i < sentences; i++) {
		if (i % (sentences / N_KEYS) == 3 && i / (sentences / N_KEYS) < N_KEYS) {
			int k = i / (sentences / N_KEYS);
			strbuf_printf(&b, "%sCode %s %03d %03d.", i ? " " : "", keys[k], (137 * (k + 3)) % 1000, (271 * (k + 5)) % 1000);
		} else
			strbuf_printf(&b, "%s%s", i ? " " : "", i % 3 ? "The old man saw the lake." : "The small doctor pulled the clerk.");
	}
	return strbuf_take(&b);
}

static struct runner_question ask(const char *key, char text[64])
{
	snprintf(text, 64, "\nRecall %s.", key);
	return (struct runner_question){.text = text, .max_new_tokens = 16};
}

/* Must show 1: the tiny pair answers 100 samples as transformers does, target and proxy. */
static void tiny_pair_equals_transformers(void **state)
{
	(void)state;
	json_t *f = json_file("tests/fixtures/tiny_pair_answers.json"), *s;
	static const char *const roles[] = {"target", "proxy"};
	size_t i;
	for (int role = 0; role < 2; role++) {
		char *path = text_format("tiny-pair/%s", roles[role]);
		struct runner *r = open_with(path, "fp32", 0, 0);
		int equal = 0, n = 0;
		json_array_foreach(json_object_get(f, "samples"), i, s) {
			size_t want_n;
			int32_t *want = json_ids(json_object_get(s, roles[role]), &want_n);
			char *question = text_format("\n%s", json_string_value(json_object_get(s, "question_text")));
			struct runner_question q = {.text = question, .max_new_tokens = 64};
			struct runner_variant full = {"full", 1, NULL};
			struct collected *c = run(r, (struct runner_job){.context = json_string_value(json_object_get(s, "context_text")), .questions = &q,
								      .n_questions = 1, .variants = &full, .n_variants = 1});
			bool same = c->n_ids[0] == (int)want_n && !memcmp(c->ids[0], want, want_n * sizeof *want);
			if (!same)
				printf("%s: sample %zu differs\n", path, i);
			equal += same;
			n++;
			free(c), free(want), free(question);
		}
		assert_int_equal(n, 100);
		assert_int_equal(equal, n);
		runner_close(r);
		free(path);
	}
	json_decref(f);
}

/* Five ideas, 1: one prefill, one pass of each scorer, batches as long as the longest answer (must show 5 in small). */
static void one_prefill_one_pass_one_batch(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "bf16", 2, 0);
	char *context = dialect_context(120), text[4][64];
	struct runner_question q[4];
	for (int i = 0; i < 4; i++)
		q[i] = ask(keys[i], text[i]);
	static const char *const methods[] = {"random", "snapkv", "ada-snapkv", "pyramidkv", "kvzip", "kvzip@uniform", "h2o"};
	struct runner_variant v[7 * 9 + 1] = {{"full", 1, NULL}};
	int n = 1;
	for (int m = 0; m < 7; m++)
		for (int k = 1; k <= 9; k++)
			v[n++] = (struct runner_variant){methods[m], k / 10., NULL};
	struct runner_counters before = runner_counters(r);
	struct collected *c = run(r, (struct runner_job){.context = context, .questions = q, .n_questions = 4, .variants = v, .n_variants = n});
	struct runner_counters after = runner_counters(r);
	int longest = 0;
	for (int i = 0; i < 4 * n; i++) {
		assert_int_equal(c->status[i], ANSWER_OK);
		longest = c->n_ids[i] > longest ? c->n_ids[i] : longest;
	}
	assert_int_equal(c->n, 4 * n);
	assert_int_equal(after.prefills - before.prefills, 1);
	assert_int_equal(after.scorer_passes - before.scorer_passes, 4); /* random, snapkv (three methods), kvzip (two), h2o */
	assert_int_equal(after.forward_calls - before.forward_calls, longest);
	static const char *const scorers[] = {"random", "snapkv", "kvzip", "h2o"};
	int64_t parts = 0;
	for (int i = 0; i < 4; i++) {
		assert_string_equal(after.scorer[i].name, scorers[i]);
		assert_true(after.scorer[i].ns > 0);
		parts += after.scorer[i].ns;
	}
	assert_null(after.scorer[4].name);
	assert_int_equal(parts, after.score_ns);
	assert_true(scorer_count() + 1 < RUNNER_SCORERS); /* the proxy besides */
	free(c), free(context);
	runner_close(r);
}

static const char *const all_methods[] = {"full", "random", "streaming-llm", "knorm", "snapkv", "pyramidkv", "ada-snapkv", "h2o", "tova", "keydiff", "lagkv",
	"expected-attention", "kvzip", "kvzip@uniform"};
enum { N_METHODS = sizeof all_methods / sizeof *all_methods };

/* I1: at r = 1 every method gives the full cache's answer, id for id, in both protocols; P8: realised share within 1/n. */
static void r1_is_full_and_retained_is_as_asked(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "bf16", 2, 0);
	char *context = dialect_context(100), text[2][64];
	struct runner_question q[2] = {ask("otter", text[0]), ask("rhino", text[1])};
	struct runner_variant v[N_METHODS * 4];
	static const double ratio[] = {1, .25, .5, .75};
	for (int i = 0; i < N_METHODS * 4; i++)
		v[i] = (struct runner_variant){all_methods[i / 4], ratio[i % 4], NULL};
	for (int p = 0; p < 2; p++) {
		struct collected *c = run(r, (struct runner_job){.context = context, .questions = q, .n_questions = 2, .protocol = (enum runner_protocol)p,
								  .variants = v, .n_variants = N_METHODS * 4});
		const struct runner_info *info = runner_info(r);
		for (int i = 0; i < 2 * N_METHODS * 4; i++) {
			int variant = i % (N_METHODS * 4), base = i - variant;
			if (c->status[i] != ANSWER_OK)
				fail_msg("%s: %s", v[variant].method, c->message[i]);
			assert_string_equal(c->sha[i], c->sha[base]);
			if (v[variant].retained == 1) {
				assert_int_equal(c->n_ids[i], c->n_ids[base]);
				assert_memory_equal(c->ids[i], c->ids[base], (size_t)c->n_ids[i] * sizeof(int32_t));
			}
			double all = (double)c->context[i] * info->layers * info->kv_heads, want = variant < 4 ? 1 : v[variant].retained;
			if (fabs((double)c->kept[i] / all - want) > 1. / c->context[i])
				fail_msg("%s: kept %.4f of the context, asked %.4f", v[variant].method, (double)c->kept[i] / all, want);
		}
		free(c);
	}
	free(context);
	runner_close(r);
}

/* P12, P37, I-order: samples in another order, questions in other company, other thread counts: the same ids. */
static void answers_do_not_depend_on_company(void **state)
{
	(void)state;
	char *context = dialect_context(80), *other = dialect_context(60), text[3][64];
	struct runner_question q[3] = {ask("amber", text[0]), ask("panda", text[1]), ask("berry", text[2])};
	struct runner_variant v[3] = {{"snapkv", .4, NULL}, {"h2o", .4, NULL}, {"kvzip", .3, NULL}};
	struct collected *first = NULL;
	for (int threads = 1; threads <= 4; threads *= 2) {
		struct runner *r = open_with("tiny-pair/target", "bf16", threads, 0);
		struct collected *c = run(r, (struct runner_job){.context = context, .questions = q, .n_questions = 3, .variants = v, .n_variants = 3});
		free(run(r, (struct runner_job){.context = other, .questions = q, .n_questions = 1, .variants = v, .n_variants = 3}));
		struct collected *again = run(r, (struct runner_job){.context = context, .questions = q, .n_questions = 3, .variants = v, .n_variants = 3});
		struct collected *alone = run(r, (struct runner_job){.context = context, .questions = q + 1, .n_questions = 1, .variants = v + 1, .n_variants = 1});
		assert_memory_equal(c->ids, again->ids, sizeof c->ids);
		assert_int_equal(alone->n_ids[0], c->n_ids[4]);
		assert_memory_equal(alone->ids[0], c->ids[4], sizeof alone->ids[0]);
		if (first)
			assert_memory_equal(first->ids, c->ids, sizeof c->ids);
		else
			first = c;
		free(again), free(alone);
		if (first != c)
			free(c);
		runner_close(r);
	}
	free(first), free(context), free(other);
}

static bool third_only(void *user, int question, int variant)
{
	(void)user;
	return question == 0 && variant == 2;
}

/* Resume: pairs that are not wanted are not answered, and what is wanted comes out as before. */
static void wanted_pairs_alone_are_answered(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "bf16", 2, 0);
	char *context = dialect_context(60), text[64];
	struct runner_question q = ask("otter", text);
	struct runner_variant v[3] = {{"full", 1, NULL}, {"random", .5, NULL}, {"snapkv", .5, NULL}};
	struct runner_job job = {.context = context, .questions = &q, .n_questions = 1, .variants = v, .n_variants = 3};
	struct collected *all = run(r, job);
	job.wanted = third_only;
	struct collected *one = run(r, job);
	assert_int_equal(one->n, 1);
	assert_memory_equal(one->ids[2], all->ids[2], sizeof one->ids[2]);
	free(all), free(one), free(context);
	runner_close(r);
}

/* Out of memory is a row with the bytes asked, never the end. */
static void too_long_for_memory_is_an_oom_row(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "fp32", 1, 0);
	int64_t fixed = runner_estimate(r, 0, NULL, 0, 0, 0).total_bytes;
	runner_close(r);
	r = open_with("tiny-pair/target", "fp32", 1, fixed + (2 << 20));
	char *context = dialect_context(400), text[64];
	struct runner_question q = ask("otter", text);
	struct runner_variant v = {"snapkv", .5, NULL};
	struct collected *c = run(r, (struct runner_job){.context = context, .questions = &q, .n_questions = 1, .variants = &v, .n_variants = 1});
	assert_int_equal(c->n, 1);
	assert_int_equal(c->status[0], ANSWER_OOM);
	assert_true(c->oom[0] > 2 << 20);
	assert_true(c->oom_free[0] >= 0 && c->oom_free[0] < c->oom[0]);
	free(c), free(context);
	runner_close(r);
}

/* Column sums of all query heads are counted before anything is scored: whatever the memory, none is lacking in the middle of it. */
static void selfkv_is_refused_before_it_is_scored(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "fp32", 1, 0);
	struct runner_variant v = {"selfkv", .5, NULL};
	char *context = dialect_context(100), text[64];
	struct runner_question q = ask("otter", text);
	int64_t fixed = runner_estimate(r, 0, NULL, 0, 0, 0).total_bytes;
	int refused = 0, answered = 0;
	runner_close(r);
	for (int64_t more = 2 << 20; more <= 4 << 20; more += 128 << 10) {
		r = open_with("tiny-pair/target", "fp32", 1, fixed + more);
		struct collected *c = run(r, (struct runner_job){.context = context, .questions = &q, .n_questions = 1, .variants = &v, .n_variants = 1});
		answered += c->status[0] == ANSWER_OK;
		refused += c->status[0] == ANSWER_OOM;
		if (strstr(c->message[0], "features"))
			fail_msg("with %lld bytes more: %s", (long long)more, c->message[0]);
		free(c);
		runner_close(r);
	}
	assert_true(refused > 2 && answered > 2);
	free(context);
}

static void beyond_max_positions_is_refused_without_allow_long(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/proxy", "bf16", 2, 0);
	char *context = dialect_context(1500), text[64], err[ERR_LEN] = "";
	struct runner_question q = ask("otter", text);
	struct runner_variant v = {"full", 1, NULL};
	struct collected c = {.n_variants = 1};
	struct runner_job job = {.context = context, .chat = true, .questions = &q, .n_questions = 1, .variants = &v, .n_variants = 1, .user = &c, .done = collect};
	assert_int_equal(runner_answer(r, &job, err), -1);
	assert_non_null(strstr(err, "--allow-long"));
	free(context);
	runner_close(r);
}

/* P46: scoring, selection and compaction are in the time to first token, are not zero, and the parts sum to the whole within 2 %. */
static void timing_parts_sum_to_the_whole(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "bf16", 2, 0);
	char *context = dialect_context(250), text[64], err[ERR_LEN] = "";
	struct runner_question q = ask("otter", text);
	struct runner_variant v[3] = {{"full", 1, NULL}, {"snapkv", .3, NULL}, {"kvzip", .3, NULL}};
	struct runner_job job = {.context = context, .chat = true, .questions = &q, .n_questions = 1, .variants = v, .n_variants = 3};
	for (int i = 0; i < 3; i++) {
		struct runner_timing t;
		int64_t best = INT64_MAX;
		for (int rep = 0; rep < 3; rep++) {
			if (runner_time(r, &job, i, 4, &t, err))
				fail_msg("%s", err);
			int64_t sum = t.prefill_ns + t.score_ns + t.select_ns + t.compact_ns + t.question_ns + t.first_token_ns;
			int64_t off = llabs(sum - t.ttft_ns) * 1000 / t.ttft_ns;
			best = off < best ? off : best;
		}
		assert_true(best <= 20);
		assert_true(t.prefill_ns > 0 && t.question_ns > 0 && t.first_token_ns > 0 && t.decode_ns > 0 && t.second_ttft_ns > 0);
		assert_true(t.peak_bytes > t.kv_bytes_before);
		double each = t.prefill_flops / t.context_tokens / (double)runner_info(r)->params, pass = t.second_pass_flops / t.prefill_flops;
		assert_true(each > 1 && each < 8); /* about 2 for each weight and token, attention on top */
		assert_true(i == 2 ? pass > 1 && pass < 5 : pass == 0); /* the repeated context attends to all of the cache, and is scored */
		assert_true(i == 2 ? t.second_pass_ns > 0 && t.second_pass_ns <= t.score_ns : t.second_pass_ns == 0);
		if (i) {
			assert_true(t.score_ns > 0 && t.select_ns > 0 && t.compact_ns > 0);
			assert_true(t.kv_bytes_after < t.kv_bytes_before * 2 / 5);
		} else
			assert_true(t.score_ns + t.compact_ns == 0 && t.kv_bytes_after == t.kv_bytes_before);
	}
	double peak = runner_peak_flops(r), again = runner_peak_flops(r);
	assert_true(peak > 1e9 && again < 20 * peak && peak < 20 * again); /* a busy machine's spells are no 20 x */
	free(context);
	runner_close(r);
}

/* A session: earlier turns are fed as golden history; the second question is answered as if the first answer had been right; aware prunes
 * once, with the first question in sight. */
static void sessions_feed_their_history(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "bf16", 2, 0);
	char *context = dialect_context(100), text[3][64];
	struct runner_turn history = {NULL, "otter 685 897."};
	struct runner_question q[2] = {ask("otter", text[0]), {.text = "Recall rhino.", .max_new_tokens = 16, .history = &history, .n_history = 1}};
	struct runner_question alone = ask("rhino", text[1]);
	struct runner_variant v[2] = {{"full", 1, NULL}, {"kvzip", .5, NULL}};
	history.question = q[0].text;
	struct collected *want = run(r, (struct runner_job){.context = context, .questions = &alone, .n_questions = 1, .variants = v, .n_variants = 2});
	for (int p = 0; p < 2; p++) {
		struct runner_counters before = runner_counters(r);
		struct collected *c = run(r, (struct runner_job){.context = context, .questions = q, .n_questions = 2, .protocol = (enum runner_protocol)p,
								  .variants = v, .n_variants = 2});
		assert_int_equal(runner_counters(r).prefills - before.prefills, 1);
		for (int i = 2; i < 4; i++) {
			assert_int_equal(c->status[i], ANSWER_OK);
			assert_int_equal(c->n_ids[i], want->n_ids[i - 2]);
			assert_memory_equal(c->ids[i], want->ids[i - 2], sizeof c->ids[i]);
		}
		free(c);
	}
	free(want), free(context);
	runner_close(r);
}

/* Cutting n tokens off is cutting the ids: also inside white space and characters, and where a word's beginning has more tokens than
 * the word. */
static void texts_are_cut_between_ids(void **state)
{
	(void)state;
	static const char text[] = "The old man   saw  the\n\n\nlake; doctor Code amber 482 137. \U0001F642\U0001F642 Größe  pleased clerk.";
	struct runner *r = open_with("tiny-pair/target", "bf16", 1, 0);
	char err[ERR_LEN];
	struct tokenizer *t;
	struct ids ids = {0};
	struct strbuf b = {0};
	assert_int_equal(tokenizer_open_json(&t, "runners/model/tiny-pair/target/tokenizer.json", err), 0);
	assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, false, &ids, err), 0);
	assert_true(ids.n > 40);
	for (size_t n = 0; n <= ids.n; n++) {
		assert_int_equal(runner_cut_tokens(r, text, sizeof text - 1, (int64_t)n), b.len);
		if (n < ids.n)
			tokenizer_decode(t, ids.v + n, 1, false, &b);
	}
	assert_int_equal(runner_cut_tokens(r, text, sizeof text - 1, 1000), sizeof text - 1);
	strbuf_free(&b);
	ids_free(&ids);
	tokenizer_close(t);
	runner_close(r);
}

/* A cut on ids leaves the rest as it was: the same prompt as a context without those words. */
static void dropped_ids_are_left_out(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "bf16", 1, 0);
	char text[64], err[ERR_LEN];
	struct runner_question q = ask("amber", text);
	struct runner_variant v = {"full", 1, NULL};
	struct runner_job job = {.context = "Code amber 482 137. The old man saw the lake. Every cloud pleased the driver.", .questions = &q, .n_questions = 1,
		.variants = &v, .n_variants = 1, .drop_from = 5, .drop_tokens = 7}; /* five tokens, then the seven of the second sentence */
	struct collected *cut = run(r, job);
	job.context = "Code amber 482 137. Every cloud pleased the driver.";
	job.drop_from = job.drop_tokens = 0;
	struct collected *whole = run(r, job);
	assert_string_equal(cut->sha[0], whole->sha[0]);
	job.drop_tokens = 1000;
	struct collected none = {.n_variants = 1};
	job.chat = true, job.user = &none, job.done = collect;
	assert_int_equal(runner_answer(r, &job, err), -1);
	free(cut), free(whole);
	runner_close(r);
}

/* min_new_tokens: neither an end token nor a stop may come first (LongBench's samsum). */
static void answers_have_a_least_length(void **state)
{
	(void)state;
	struct runner *r = open_with("tiny-pair/target", "fp32", 1, 0);
	char *context = dialect_context(60), text[64];
	static const char *const stops[] = {" amber"};
	struct runner_question q = ask("amber", text);
	struct runner_variant v = {"full", 1, NULL};
	struct runner_job job = {.context = context, .questions = &q, .n_questions = 1, .variants = &v, .n_variants = 1};
	q.stops = stops;
	q.n_stops = 1;
	struct collected *stopped = run(r, job);
	assert_int_equal(stopped->n_ids[0], 1);
	assert_true(stopped->flags[0] & FLAG_EMPTY);
	q.min_new_tokens = 1;
	struct collected *later = run(r, job);
	assert_int_not_equal(later->ids[0][0], stopped->ids[0][0]);
	assert_false(later->flags[0] & FLAG_EMPTY);
	free(stopped), free(later), free(context);
	runner_close(r);
}

static void pairs_need_one_tokenizer(void **state)
{
	(void)state;
	char err[ERR_LEN] = "";
	struct runner *r = NULL;
	struct runner_options o = {.target = "tiny-pair/target", .proxy = "tiny-pair/proxy", .models_dir = "runners/model"};
	assert_int_equal(runner_open(&r, &o, err), 0);
	runner_close(r);
	r = NULL;
	o.proxy = "tests/fixtures/gguf/smollm2-tiny.gguf";
	assert_int_equal(runner_open(&r, &o, err), -1);
	assert_null(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tiny_pair_equals_transformers),
		cmocka_unit_test(one_prefill_one_pass_one_batch),
		cmocka_unit_test(r1_is_full_and_retained_is_as_asked),
		cmocka_unit_test(answers_do_not_depend_on_company),
		cmocka_unit_test(wanted_pairs_alone_are_answered),
		cmocka_unit_test(too_long_for_memory_is_an_oom_row), cmocka_unit_test(selfkv_is_refused_before_it_is_scored),
		cmocka_unit_test(beyond_max_positions_is_refused_without_allow_long),
		cmocka_unit_test(timing_parts_sum_to_the_whole),
		cmocka_unit_test(sessions_feed_their_history),
		cmocka_unit_test(texts_are_cut_between_ids),
		cmocka_unit_test(dropped_ids_are_left_out),
		cmocka_unit_test(answers_have_a_least_length),
		cmocka_unit_test(pairs_need_one_tokenizer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
