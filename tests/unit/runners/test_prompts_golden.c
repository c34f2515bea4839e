/* test_prompts_golden.c: the token ids which the first two samples of every task become, for two real tokenizers with their chat
 * templates: how many, and their SHA-256 (tests/fixtures/prompts_golden.json; never the ids or the texts). A change of a prompt,
 * a cut, a template or a tokenizer shows here, whether it was meant or not.
 *
 * KVB_WRITE_PROMPTS=FILE writes what comes out now instead of comparing. */
#include "tests/unit/tasks/ruler_shared.h"

#include <jansson.h>

#include "runners/runner_impl.h"

static char err[ERR_LEN];

struct family {
	const char *name;
	struct runner runner; /* tokenizer and template alone */
};
static struct family families[] = {{"llama3.1"}, {"qwen3"}};
enum { FAMILIES = sizeof(families) / sizeof(families[0]), SAMPLES = 2 };

static char *ruler, v2[] = "/tmp/kvb-golden-XXXXXX";
static json_t *golden, *now;

/* ---- the runner's side ---- */

static int64_t count(void *user, const char *text, size_t len)
{
	return runner_count_tokens(user, text, len);
}

static size_t cut(void *user, const char *text, size_t len, int64_t n)
{
	return runner_cut_tokens(user, text, len, n);
}

/* "tokens sha256" of a question's whole prompt, as the sweep asks it. Caller frees. */
static char *prompt_of(struct runner *r, const struct task_context *c, int q)
{
	struct runner_turn *turns = mem_new((size_t)c->n_questions, sizeof(*turns));
	for (int i = 0; i < c->n_questions; i++)
		turns[i] = (struct runner_turn){c->questions[i].text, c->questions[i].golden};
	struct runner_question question = {.text = c->questions[q].text,
		.answer_prefix = c->questions[q].answer_prefix,
		.history = c->multi_turn && q ? turns : NULL,
		.n_history = c->multi_turn ? q : 0};
	struct runner_job job = {.system = c->system,
		.context = c->text,
		.drop_from = (int)c->drop_from,
		.drop_tokens = (int)c->drop_tokens,
		.chat = c->chat,
		.questions = &question,
		.n_questions = 1};
	struct prompt p;
	struct prompt_question fed;
	char sha[SHA_LEN];
	assert_ok(prompt_make(r, &job, 0, &p, &fed, err));
	ids_append(&p.ids, fed.fed.v, fed.fed.n);
	sha256_hex(p.ids.v, p.ids.n * sizeof(*p.ids.v), sha);
	char *text = text_format("%zu %s", (size_t)p.ids.n, sha);
	prompt_free(&p);
	prompt_question_free(&fed);
	free(turns);
	return text;
}

/* The first samples of a task: questions of its first contexts. how: what tells this request from others of the task. */
static void take(struct family *f, struct task_request rq, const char *how)
{
	struct runner_overhead around = runner_overhead(&f->runner, true, NULL);
	struct task *t = NULL;
	char *key = text_format("%s %s%s%s", f->name, rq.name, *how ? " " : "", how);
	json_t *list = json_array();
	rq.depth = NAN;
	rq.count_tokens = count;
	rq.cut_tokens = cut;
	rq.user = &f->runner;
	rq.drops_ids = true;
	rq.special_tokens = around.special;
	rq.head_tokens = around.head;
	rq.tail_tokens = around.tail;
	assert_ok(task_open(&t, &rq, err));
	for (int i = 0; i < task_count(t) && json_array_size(list) < SAMPLES; i++) {
		struct task_context c;
		assert_ok(task_context_make(t, i, &c, err));
		for (int q = 0; q < c.n_questions && json_array_size(list) < SAMPLES; q++) {
			char *text = prompt_of(&f->runner, &c, q);
			json_array_append_new(list, json_string(text));
			free(text);
		}
		task_context_free(&c);
	}
	task_close(t);
	assert_true(json_array_size(list) > 0);
	json_t *want = json_object_get(golden, key);
	if (golden && !json_equal(want, list)) {
		char *was = json_dumps(want, JSON_ENCODE_ANY), *is = json_dumps(list, 0);
		fail_msg("%s: %s, recorded %s", key, is, was ? was : "nothing");
	}
	json_object_set_new(now, key, list);
	free(key);
}

/* ---- the suites ---- */

static void test_ruler(void **state)
{
	(void)state;
	static const char *const names[] = {"niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1",
		"niah_multikey_2", "niah_multikey_3", "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2"};
	need_shared(families[0].runner.tokenizer);
	for (int f = 0; f < FAMILIES; f++)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			char name[64];
			snprintf(name, sizeof(name), "ruler-%s", names[i]);
			take(&families[f], (struct task_request){.name = name, .length_tokens = 4096, .seed = 1}, "own 4096");
			if (ruler)
				take(&families[f], (struct task_request){.name = name, .path = ruler, .length_tokens = 4096},
					"upstream 4096");
		}
}

static void test_scbench(void **state)
{
	(void)state;
	static const char *const names[] = {"kv", "prefix_suffix", "vt", "repoqa", "qa_eng", "qa_chn", "choice_eng", "many_shot",
		"mf", "summary", "summary_with_needles", "repoqa_and_kv"};
	char *templates = text_copy(shared_path("data/scbench/upstream"));
	need_shared(families[0].runner.tokenizer && templates);
	for (int f = 0; f < FAMILIES; f++)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			char name[64];
			snprintf(name, sizeof(name), "scbench-%s", names[i]);
			struct task_request rq = {.name = name, .path = "tests/fixtures/scbench", .templates = templates};
			take(&families[f], rq, "multi-turn");
			rq.mode = "multi-request";
			take(&families[f], rq, rq.mode);
		}
	free(templates);
}

static void test_longbench(void **state)
{
	(void)state;
	static const char *const names[] = {
		"longbench-multi_news", "longbench-multifieldqa_zh", "longbench-passage_retrieval_zh"};
	char *path = text_copy(shared_path("data/longbench"));
	need_shared(families[0].runner.tokenizer && path);
	for (int f = 0; f < FAMILIES; f++)
		for (int i = 0; i < 3; i++) {
			struct task_request rq = {.name = names[i], .path = path};
			take(&families[f], rq, "");
			rq.length_tokens = 2000;
			take(&families[f], rq, "official 2000");
			rq.truncate = "ids";
			take(&families[f], rq, "ids 2000");
		}
	free(path);
}

/* What stands behind `mark` in the sample's page up to `end`. Caller frees. */
static json_t *behind(const char *page, const char *mark, const char *end)
{
	const char *at = strstr(page, mark);
	assert_non_null(at);
	at += strlen(mark);
	const char *to = strstr(at, end);
	return json_stringn(at, to ? (size_t)(to - at) : strlen(at));
}

/* Two real questions with their contexts, as rows of data.json. */
static json_t *v2_row(const char *name)
{
	char *below = text_format("data/longbench-v2/samples/%s.md", name), *page, *context;
	size_t len;
	assert_ok(file_read(shared_path(below), &page, &len, err));
	free(below);
	below = text_format("data/longbench-v2/samples/%s_context.txt", name);
	assert_ok(file_read(shared_path(below), &context, &len, err));
	json_t *row = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "difficulty", "hard", "length", "short",
		"context", context, "question", behind(page, "# Question\n\n", "\n\n# Choices"), "choice_A",
		behind(page, "\n- A: ", "\n- B: "), "choice_B", behind(page, "\n- B: ", "\n- C: "), "choice_C",
		behind(page, "\n- C: ", "\n- D: "), "choice_D", behind(page, "\n- D: ", "\n\n# Answer"), "answer",
		behind(page, "# Answer\n\n", "\n"));
	free(page);
	free(context);
	free(below);
	return row;
}

static void test_longbench_v2(void **state)
{
	(void)state;
	char *templates = text_copy(shared_path("data/longbench-v2/prompts")), *path = text_format("%s/data.json", v2);
	need_shared(families[0].runner.tokenizer && templates);
	json_t *rows = json_pack("[o, o]", v2_row("sample_059_hard_short"), v2_row("sample_112_hard_short"));
	assert_int_equal(json_dump_file(rows, path, 0), 0);
	json_decref(rows);
	for (int f = 0; f < FAMILIES; f++)
		take(&families[f], (struct task_request){.name = "longbench-v2", .path = v2, .templates = templates}, "");
	unlink(path);
	free(path);
	free(templates);
}

/* ---- around them ---- */

static int setup(void **state)
{
	(void)state;
	const char *file = getenv("KVB_WRITE_PROMPTS");
	golden = file ? NULL : json_load_file("tests/fixtures/prompts_golden.json", 0, NULL);
	now = json_object();
	for (int f = 0; f < FAMILIES; f++) {
		struct family *x = &families[f];
		char *folder = text_format("models/%s-tokenizer", x->name), *text = NULL;
		const char *place = shared_path(folder);
		char *json = text_format("%s/tokenizer.json", place ? place : "");
		if (place && (tokenizer_open_json(&x->runner.tokenizer, json, err) || chat_read(place, NULL, &text, err)))
			fail_msg("%s", err);
		x->runner.path = folder;
		x->runner.chat = chat_find(text);
		if (place && !x->runner.chat)
			fail_msg("%s: its template is not known", x->name);
		free(json);
		free(text);
	}
	ruler = shared_path(RULER_PREDICTIONS) ? ruler_folder_make() : NULL;
	return (!file && !golden) || !mkdtemp(v2);
}

static int teardown(void **state)
{
	(void)state;
	const char *file = getenv("KVB_WRITE_PROMPTS");
	int rc = file ? json_dump_file(now, file, JSON_INDENT(0) | JSON_SORT_KEYS) : 0;
	for (int f = 0; f < FAMILIES; f++) {
		tokenizer_close(families[f].runner.tokenizer);
		free(families[f].runner.path);
	}
	ruler_folder_free(ruler);
	rmdir(v2);
	json_decref(golden);
	json_decref(now);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ruler),
		cmocka_unit_test(test_scbench),
		cmocka_unit_test(test_longbench),
		cmocka_unit_test(test_longbench_v2),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
