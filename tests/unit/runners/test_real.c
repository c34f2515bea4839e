/* test_real.c: two real models straight from their GGUF files, when they are there: folder KVB_MODELS (default ../models).
 *
 * Answers against transformers on the same files; then what sharing costs: one prefill and one pass of each scorer for 90 variants. */
#include "runners/model/safetensors.h"
#include "runners/runner.h"
#include "tests/unit/test.h"

static char *model_file(const char *name)
{
	const char *dir = getenv("KVB_MODELS");
	return text_format("%s/%s", dir ? dir : "../models", name);
}

static struct runner *open_model(const char *path, const char *precision)
{
	char err[ERR_LEN] = "";
	struct runner *r = NULL;
	struct runner_options o = {.target = path, .precision = precision};
	if (runner_open(&r, &o, err))
		fail_msg("%s", err);
	return r;
}

struct got {
	int32_t prompt[4096], ids[64];
	int n_prompt, n;
};

static void keep_answer(void *user, const struct runner_answer *a)
{
	struct got *g = user;
	if (a->status != ANSWER_OK)
		fail_msg("%s", a->message);
	g->n_prompt = a->prefix_tokens + a->context_tokens + a->question_tokens;
	g->n = a->n_ids;
	memcpy(g->prompt, a->prompt_ids, (size_t)g->n_prompt * sizeof *g->prompt);
	memcpy(g->ids, a->ids, (size_t)a->n_ids * sizeof *g->ids);
}

/* Where the reference's own two best logits are closer than 1e-3 another order of sums may choose the other one: reported, not failed; the
 * rest of that answer then differs by right. */
static void answers_equal_transformers(const char *fixture)
{
	char *path = text_format("tests/fixtures/real/%s.json", fixture), err[ERR_LEN] = "";
	json_t *f = json_file(path), *p;
	char *model = model_file(json_string_value(json_object_get(f, "file")));
	size_t i;
	free(path);
	if (!file_exists(model)) {
		printf("skipped: %s is not there (KVB_MODELS names the folder)\n", json_string_value(json_object_get(f, "file")));
		free(model);
		json_decref(f);
		skip();
	}
	struct runner *r = open_model(model, "fp32");
	json_array_foreach(json_object_get(f, "prompts"), i, p) {
		size_t n_ids, n_answer;
		int32_t *ids = json_ids(json_object_get(p, "ids"), &n_ids), *answer = json_ids(json_object_get(p, "answer"), &n_answer);
		struct got g = {0};
		struct runner_question q = {.text = "", .max_new_tokens = 32};
		struct runner_variant full = {"full", 1, NULL};
		struct runner_job job = {.user_turn = json_string_value(json_object_get(p, "prompt")), .chat = true, .questions = &q, .n_questions = 1,
			.variants = &full, .n_variants = 1, .user = &g, .done = keep_answer};
		if (runner_answer(r, &job, err))
			fail_msg("%s", err);
		assert_int_equal(g.n_prompt, n_ids);
		assert_memory_equal(g.prompt, ids, n_ids * sizeof *ids);
		for (size_t k = 0; k < n_answer && k < (size_t)g.n; k++) {
			if (g.ids[k] == answer[k])
				continue;
			double margin = json_real_value(json_array_get(json_object_get(p, "margin"), k));
			printf("prompt %zu, token %zu: %d instead of %d, the reference's margin is %.2e\n", i, k, g.ids[k], answer[k], margin);
			assert_true(margin < 1e-3);
			break;
		}
		free(ids), free(answer);
	}
	runner_close(r);
	free(model);
	json_decref(f);
}

static void smollm2_answers_equal_transformers(void **state)
{
	(void)state;
	answers_equal_transformers("smollm2-135m-instruct");
}

static void qwen_coder_answers_equal_transformers(void **state)
{
	(void)state;
	answers_equal_transformers("qwen2.5-coder-0.5b-instruct");
}

static void ignore_answer(void *user, const struct runner_answer *a)
{
	*(int *)user += a->status == ANSWER_OK;
}

/* Must show 5. */
static void ninety_variants_cost_a_few_prefills(void **state)
{
	(void)state;
	static const char *const methods[] = {"random", "streaming-llm", "knorm", "snapkv", "pyramidkv", "ada-snapkv", "h2o", "tova", "keydiff", "kvzip"};
	char *model = model_file("SmolLM2-135M-Instruct.Q4_1.gguf"), err[ERR_LEN] = "";
	if (!file_exists(model)) {
		printf("skipped: SmolLM2-135M-Instruct.Q4_1.gguf is not there (KVB_MODELS names the folder)\n");
		free(model);
		skip();
	}
	struct runner *r = open_model(model, "bf16");
	struct strbuf text = {0};
	while (runner_count_tokens(r, text.text ? text.text : "", text.len) < 2000)
		strbuf_printf(&text, "The keeper of room %zu wrote down the weather and the visitors of the day. ", text.len);
	struct runner_question q = {.text = "\n\nWhat did the keeper write down?", .max_new_tokens = 32};
	struct runner_variant v[90];
	for (int i = 0; i < 90; i++)
		v[i] = (struct runner_variant){methods[i / 9], (1 + i % 9) / 10., NULL};
	int ok = 0;
	struct runner_job job = {.context = text.text, .chat = true, .questions = &q, .n_questions = 1, .variants = v, .n_variants = 90, .user = &ok,
		.done = ignore_answer};
	struct runner_timing t;
	struct runner_variant full = {"full", 1, NULL};
	struct runner_job one = job;
	one.variants = &full;
	one.n_variants = 1;
	if (runner_time(r, &one, 0, 0, &t, err) || runner_time(r, &one, 0, 0, &t, err))
		fail_msg("%s", err);
	struct runner_counters before = runner_counters(r);
	int64_t start = clock_ns();
	if (runner_answer(r, &job, err))
		fail_msg("%s", err);
	double seconds = (double)(clock_ns() - start) * 1e-9, prefill = (double)t.prefill_ns * 1e-9;
	struct runner_counters after = runner_counters(r);
	printf("10 methods x 9 ratios on %d tokens, 32 answer tokens each: %.1f s = %.1f prefills of %.2f s (apart they would take 90 and more)\n",
		t.context_tokens, seconds, seconds / prefill, prefill);
	assert_int_equal(ok, 90);
	assert_int_equal(after.prefills - before.prefills, 1);
	assert_true(after.scorer_passes - before.scorer_passes <= 9); /* snapkv, pyramidkv and ada-snapkv share one */
	assert_true(after.forward_calls - before.forward_calls <= 32);
	assert_true(seconds / prefill < 90);
	strbuf_free(&text);
	runner_close(r);
	free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(smollm2_answers_equal_transformers),
		cmocka_unit_test(qwen_coder_answers_equal_transformers),
		cmocka_unit_test(ninety_variants_cost_a_few_prefills),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
