/* The JSON lines task: rows, errors which name file and line, the cut of the middle; and the converters of tests/convert. */
#include "tests/unit/tasks/helpers.h"

#define CONVERT_NO_MAIN
#include "tests/convert/convert.c"

static char err[ERR_LEN], path[64];

static void write_file(const char *text)
{
	snprintf(path, sizeof(path), "/tmp/kvb_jsonl_XXXXXX");
	FILE *f = fdopen(mkstemp(path), "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static struct task_request request(void)
{
	return (struct task_request){
		.name = "jsonl", .path = path, .depth = NAN, .count_tokens = count_words, .cut_tokens = cut_words};
}

static struct task *open_text(const char *text)
{
	struct task *t = NULL;
	write_file(text);
	struct task_request rq = request();
	assert_ok(task_open(&t, &rq, err));
	return t;
}

static void close_file(struct task *t)
{
	task_close(t);
	unlink(path);
}

static void test_rows(void **state)
{
	(void)state;
	struct task *t = open_text(
		"{\"context\": \"One two.\", \"question\": \"Who?\", \"answers\": [\"me\", \"I\"], \"metric\": \"qa_f1\"}\n"
		"\n"
		"{\"id\": \"x7\", \"context\": \"Three\", \"questions\": [\" a\", \"b\"], \"answers\": [[\"1\"], [\"2\", "
		"\"3\"]],\n");
	/* the second row is broken by its line end: found when it is made, by its line in the file */
	struct task_context c;
	assert_int_equal(task_count(t), 2);
	assert_ok(task_context_make(t, 0, &c, err));
	assert_string_equal(c.id, "c0");
	assert_string_equal(c.text, "One two.");
	assert_true(c.chat && !c.system && !c.cut_tokens);
	assert_string_equal(c.questions[0].text, "\n\nWho?");
	assert_int_equal(c.questions[0].n_answers, 2);
	assert_string_equal(c.questions[0].answers[1], "I");
	assert_int_equal(c.questions[0].max_new_tokens, 64);
	assert_true(isnan(c.questions[0].depth));
	task_context_free(&c);
	assert_int_equal(task_context_make(t, 1, &c, err), -1);
	assert_non_null(strstr(err, path));
	assert_non_null(strstr(err, ":3: not a JSON object on one line"));
	close_file(t);

	t = open_text("{\"id\": \"x7\", \"context\": \"Three\", \"questions\": [\" a\", \"b\"], \"answers\": [[\"1\"], [\"2\", "
		      "\"3\"]], "
		      "\"metric\": \"exact\", \"system\": \"Be kind.\", \"chat\": false, \"stops\": [\"\\n\"], "
		      "\"answer_prefix\": \"So\", "
		      "\"max_new_tokens\": 5, \"length\": 12}");
	struct task_identity id;
	task_identity(t, &id);
	assert_string_equal(id.metric, "exact");
	assert_ok(task_context_make(t, 0, &c, err));
	assert_string_equal(c.id, "x7");
	assert_string_equal(c.system, "Be kind.");
	assert_false(c.chat);
	assert_int_equal(c.n_questions, 2);
	assert_string_equal(c.questions[0].text, " a");
	assert_string_equal(c.questions[1].text, "\n\nb");
	assert_string_equal(c.questions[1].id, "x7.q1");
	assert_string_equal(c.questions[1].answers[1], "3");
	assert_string_equal(c.questions[1].stops[0], "\n");
	assert_string_equal(c.questions[1].answer_prefix, "So");
	assert_int_equal(c.questions[1].max_new_tokens, 5);
	task_context_free(&c);
	close_file(t);
}

static void test_limits(void **state)
{
	(void)state;
	write_file(
		"{\"context\": \"A\", \"questions\": [\"a\", \"b\"], \"answers\": [[\"1\"], [\"2\"]], \"metric\": \"exact\"}\n"
		"{\"context\": \"B\", \"questions\": [\"a\", \"b\"], \"answers\": [[\"1\"], [\"2\"]], \"metric\": \"exact\"}\n");
	struct task_request rq = request();
	struct task *t = NULL;
	struct task_context c;
	rq.contexts = rq.questions = 1;
	rq.max_new_tokens = 9;
	assert_ok(task_open(&t, &rq, err));
	assert_int_equal(task_count(t), 1);
	assert_ok(task_context_make(t, 0, &c, err));
	assert_int_equal(c.n_questions, 1);
	assert_int_equal(c.questions[0].max_new_tokens, 9);
	task_context_free(&c);
	close_file(t);
}

static void test_bad_rows(void **state)
{
	(void)state;
	static const struct {
		const char *row, *why;
	} bad[] = {
		{"[1]", ":2: a row must be a JSON object"},
		{"{\"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"exact\"}", ":2: 'context' is missing"},
		{"{\"context\": 5, \"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"exact\"}",
			":2: 'context' must be a text"},
		{"{\"context\": \"c\", \"answers\": [\"a\"], \"metric\": \"exact\"}", ":2: a row has either"},
		{"{\"context\": \"c\", \"question\": \"q\", \"metric\": \"exact\"}", ":2: 'answers' must be"},
		{"{\"context\": \"c\", \"question\": \"q\", \"answers\": [], \"metric\": \"exact\"}", ":2: 'answers' must be"},
		{"{\"context\": \"c\", \"question\": \"q\", \"answers\": [3], \"metric\": \"exact\"}", ":2: an answer in"},
		{"{\"context\": \"c\", \"question\": \"q\", \"answers\": [\"a\"]}", ":2: 'metric' is missing"},
		{"{\"context\": \"c\", \"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"f2\"}",
			":2: unknown metric 'f2' (`kvbench list metrics`)"},
		{"{\"context\": \"c\", \"questions\": [\"q\", \"r\"], \"answers\": [[\"a\"]], \"metric\": \"exact\"}",
			":2: 'questions' and"},
		{"{\"context\": \"c\", \"questions\": [\"q\", 1], \"answers\": [[\"a\"], [\"b\"]], \"metric\": \"exact\"}",
			":2: a question is"},
		{"{\"context\": \"c\", \"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"exact\", \"stops\": [\"\"]}",
			":2: a stop"},
		{"{\"context\": \"c\", \"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"exact\", \"max_new_tokens\": 0}",
			":2: 'max_new"},
		{"{\"context\": \"c\", \"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"exact\", \"chat\": 1}",
			":2: 'chat' must"},
		{"{\"context\": \"c\\u0000d\", \"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"exact\"}",
			":2: not a JSON object"},
		{"{\"context\": \"\xff\", \"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"exact\"}",
			":2: not a JSON object"},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct strbuf file = {0};
		strbuf_printf(&file, "\n%s\n", bad[i].row); /* line 2 */
		write_file(file.text);
		struct task_request rq = request();
		struct task *t = NULL;
		assert_int_equal(task_open(&t, &rq, err), -1);
		if (!strstr(err, bad[i].why) || !strstr(err, path))
			fail_msg("'%s' does not say '%s'", err, bad[i].why);
		unlink(path);
		strbuf_free(&file);
	}
	struct task *t = NULL;
	struct task_request rq = request();
	assert_int_equal(task_open(&t, &rq, err), -1);
	assert_non_null(strstr(err, "cannot open"));
	write_file(" \n");
	assert_int_equal(task_open(&t, &rq, err), -1);
	assert_non_null(strstr(err, "no rows"));
	unlink(path);
	rq.path = NULL;
	assert_int_equal(task_open(&t, &rq, err), -1);
	assert_non_null(strstr(err, "needs the path"));
}

static void test_middle_cut(void **state)
{
	(void)state;
	static const char *const row =
		"{\"context\": \"a b c d e f g h i j\", \"question\": \"q\", \"answers\": [\"a\"], \"metric\": \"exact\"}";
	static const struct {
		int64_t length, cut;
		const char *text;
	} want[] = {{10, 0, "a b c d e f g h i j"}, {6, 4, "a b c h i j"}, {7, 4, "a b c h i j"}, {2, 8, "a j"}};
	write_file(row);
	for (size_t i = 0; i < 4; i++) {
		struct task_request rq = request();
		struct task *t = NULL;
		struct task_context c;
		rq.length_tokens = want[i].length;
		assert_ok(task_open(&t, &rq, err));
		assert_ok(task_context_make(t, 0, &c, err));
		assert_string_equal(c.text, want[i].text);
		assert_int_equal(c.cut_tokens, want[i].cut);
		task_context_free(&c);
		task_close(t);
	}
	unlink(path);
}

/* Tokens of one byte: the cut must not fall inside a character. */
static void test_cut_between_characters(void **state)
{
	(void)state;
	write_file("{\"context\": \"\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f\", \"question\": \"q\", \"answers\": [\"a\"], \"metric\": "
		   "\"exact\"}");
	struct task_request rq = request();
	struct task *t = NULL;
	struct task_context c;
	rq.count_tokens = count_bytes;
	rq.cut_tokens = cut_bytes;
	rq.length_tokens = 6;
	assert_ok(task_open(&t, &rq, err));
	assert_ok(task_context_make(t, 0, &c, err));
	assert_string_equal(c.text, "\xc3\xa4\xc3\x9f"); /* 3 bytes from each end, less the halves of characters */
	task_context_free(&c);
	close_file(t);
}

/* ---- converters ---- */

static struct task *open_converted(int (*convert)(const char *, FILE *, char *), const char *from, int *rows)
{
	struct task *t = NULL;
	write_file("");
	FILE *f = fopen(path, "w");
	*rows = convert(from, f, err);
	fclose(f);
	if (*rows < 0)
		fail_msg("%s", err);
	struct task_request rq = request();
	assert_ok(task_open(&t, &rq, err));
	assert_int_equal(task_count(t), *rows);
	return t;
}

/* Context and question together are the prompt again, for each row of the file. */
static void check_prompts(struct task *t, const char *from)
{
	json_t *file = json_load_file(from, 0, NULL), *in;
	const char *key;
	int i = 0;
	json_object_foreach(file, key, in)
	{
		struct task_context c;
		assert_ok(task_context_make(t, i++, &c, err));
		char *prompt = text_format("%s%s", c.text, c.questions[0].text);
		assert_string_equal(prompt, json_string_value(json_object_get(in, "origin_prompt")));
		free(prompt);
		size_t tail = strlen(c.id) - strlen(key); /* TASK-KEY */
		assert_true(tail > 1 && c.id[tail - 1] == '-');
		assert_string_equal(c.id + tail, key);
		assert_non_null(strstr(c.questions[0].text, "Question: "));
		/* the instruction went with the question, and the question is short */
		assert_true(!strncmp(c.questions[0].text, "\n\nAnswer the", 12) ||
			    !strncmp(c.questions[0].text, "\n\nNow, answer", 13));
		assert_true(strlen(c.questions[0].text) < 1200);
		assert_int_equal(c.questions[0].n_answers, json_array_size(json_object_get(in, "gold")));
		assert_string_equal(c.questions[0].metric, "qa_f1");
		task_context_free(&c);
	}
	json_decref(file);
}

static void test_convert_longbench(void **state)
{
	(void)state;
	need_shared(shared_path("data/longbench/mini/MiniLongBench_hotpotqa.json"));
	int all = 0;
	for (size_t i = 0; i < sizeof(longbench_qa) / sizeof(longbench_qa[0]); i++) {
		char below[128];
		int rows;
		snprintf(below, sizeof(below), "data/longbench/mini/MiniLongBench_%s.json", longbench_qa[i].task);
		struct task *t = open_converted(convert_longbench_mini, shared_path(below), &rows);
		check_prompts(t, shared_path(below));
		all += rows;
		close_file(t);
	}
	assert_int_equal(all, 6 + 9 + 7 + 13 + 13 + 7); /* as many as README.md of the data says */
	assert_int_equal(convert_longbench_mini(shared_path("data/longbench/mini/MiniLongBench_lcc.json"), stdout, err), -1);
}

/* A prompt as a text: all of it is context, and nothing is asked. */
static void test_convert_longbench_text(void **state)
{
	(void)state;
	const char *from = shared_path("data/longbench/mini/MiniLongBench_lcc.json");
	need_shared(from);
	json_t *file = json_load_file(from, 0, NULL), *in;
	const char *key;
	int rows, i = 0;
	struct task *t = open_converted(convert_longbench_text, from, &rows);
	assert_int_equal(rows, json_object_size(file));
	json_object_foreach(file, key, in)
	{
		struct task_context c;
		assert_ok(task_context_make(t, i++, &c, err));
		assert_string_equal(c.text, json_string_value(json_object_get(in, "origin_prompt")));
		assert_string_equal(c.questions[0].text, " ");
		task_context_free(&c);
	}
	json_decref(file);
	close_file(t);
}

static void test_convert_ruler(void **state)
{
	(void)state;
	const char *from = shared_path("data/ruler/data/niah_multikey_3.4096.jsonl");
	need_shared(from);
	int rows;
	struct task *t = open_converted(convert_ruler, from, &rows);
	assert_int_equal(rows, 500);
	struct task_context c;
	assert_ok(task_context_make(t, 0, &c, err));
	assert_string_equal(c.questions[0].text,
		"\nWhat is the special magic uuid for 455ac762-7428-4656-b3ee-4d3b5a104129 mentioned in the provided text?");
	assert_string_equal(c.questions[0].answer_prefix,
		"The special magic uuid for 455ac762-7428-4656-b3ee-4d3b5a104129 mentioned in the provided text is");
	assert_string_equal(c.questions[0].answers[0], "1ee34dc4-3b04-4a8b-805b-fdc94e7ed827");
	assert_non_null(strstr(c.text, c.questions[0].answers[0]));
	assert_null(strstr(c.text, "What is"));
	task_context_free(&c);
	close_file(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_bad_rows),
		cmocka_unit_test(test_middle_cut),
		cmocka_unit_test(test_cut_between_characters),
		cmocka_unit_test(test_convert_longbench),
		cmocka_unit_test(test_convert_longbench_text),
		cmocka_unit_test(test_convert_ruler),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
