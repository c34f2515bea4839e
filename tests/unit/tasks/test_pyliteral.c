/* test_pyliteral.c: Python's literals as Python reads them, on small sources and on upstream's real files. */
#include "tests/unit/test.h"

#include "tasks/pyliteral.h"

/* The value of A in the source; fails the test when it is not read. Caller drops it. */
static json_t *value_of(const char *source)
{
	char err[ERR_LEN] = "", *json = NULL;
	const char *name = "A";
	if (pyliteral_read(source, strlen(source), &name, 1, &json, err))
		fail_msg("%s: %s", source, err);
	json_t *all = json_loads(json, JSON_ALLOW_NUL, NULL), *a = json_incref(json_object_get(all, "A"));
	json_decref(all);
	free(json);
	return a;
}

static void check_text(const char *source, const char *text, size_t len)
{
	json_t *a = value_of(source);
	if (!json_is_string(a) || json_string_length(a) != len || memcmp(json_string_value(a), text, len))
		fail_msg("%s: got %s", source, json_dumps(a, JSON_ENCODE_ANY));
	json_decref(a);
}

static void check_json(const char *source, const char *json)
{
	json_t *a = value_of(source), *want = json_loads(json, JSON_DECODE_ANY, NULL);
	assert_non_null(want);
	if (!json_equal(a, want))
		fail_msg("%s: got %s", source, json_dumps(a, JSON_ENCODE_ANY));
	json_decref(a);
	json_decref(want);
}

static void check_refused(const char *source, const char *says)
{
	char err[ERR_LEN] = "", *json = NULL;
	const char *name = "A";
	if (!pyliteral_read(source, strlen(source), &name, 1, &json, err))
		fail_msg("%s: read as %s", source, json);
	if (!strstr(err, says))
		fail_msg("%s: \"%s\" does not say \"%s\"", source, err, says);
}

static void test_texts(void **state)
{
	(void)state;
	static const struct {
		const char *source, *text;
	} cases[] = {
		{"A = 'x'", "x"},
		{"A = \"it's\"", "it's"},
		{"A = ''", ""},
		{"A = ''''a'b'''", "'a'b"},
		{"A = \"\"\"two\nlines\"\"\"", "two\nlines"},
		{"A = 'a' 'b' \"c\"", "abc"},
		{"A = ('a'\n  'b'  # why\n  \"c\")\n", "abc"},
		{"A = 'a' + 'b' 'c' + (\"d\")", "abcd"},
		{"A = 'a' \\\n 'b'", "ab"},
		{"A = r'\\n\\''", "\\n\\'"},
		{"A = R\"\\\"", NULL},
		{"A = u'x'", "x"},
		{"A: str = 'x'", "x"},
		{"A = '\\\\ \\' \\\" \\a\\b\\f\\n\\r\\t\\v'", "\\ ' \" \a\b\f\n\r\t\v"},
		{"A = '\\x41\\101\\u00e9\\U0001F600'", "AA\303\251\360\237\230\200"},
		{"A = '\\d\\%'", "\\d\\%"},
		{"A = 'a\\\nb'", "ab"},
		{"A = '''a\r\nb'''", "a\nb"},
		{"A = '#no comment'  # one", "#no comment"},
		{"A = '\\xff'", "\303\277"},
		{"A = \"\"\"\"q\\\"\"\"\"", "\"q\""},
		{"A = '阅读'", "阅读"},
		{"A = 'x'; B = 'y'", "x"},
		{"A = '1'\nA = '2'\n", "2"},
		{"\xef\xbb\xbf"
		 "A = 'x'",
			"x"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (cases[i].text)
			check_text(cases[i].source, cases[i].text, strlen(cases[i].text));
		else
			check_refused(cases[i].source, "does not end");
	}
	check_text("A = 'a\\0b'", "a\0b", 3);
}

static void test_values(void **state)
{
	(void)state;
	check_json("A = {}", "{}");
	check_json("A = {'a': 'x', \"b\": {'c': 1, },}", "{\"a\":\"x\",\"b\":{\"c\":1}}");
	check_json("A = {\n  'a' : 'x'\n       'y',  # noqa\n\n  'b': ('p', 'q'),\n  'c': ('p'),\n  'd': ('p',), 'e': ()}",
		"{\"a\":\"xy\",\"b\":[\"p\",\"q\"],\"c\":\"p\",\"d\":[\"p\"],\"e\":[]}");
	check_json("A = [1, -2, 1_000, 0x1F, 0o17, 0b101, 1.5, -2e3, True, False, None]",
		"[1,-2,1000,31,15,5,1.5,-2000.0,true,false,null]");
	check_json("A = {'m': fn, 'k': [x]}", "{\"m\":{\"name\":\"fn\"},\"k\":[{\"name\":\"x\"}]}");
	check_json("A = {'a', 'b'}", "[\"a\",\"b\"]");
	check_json("A = {'a': 1, 'a': 2}", "{\"a\":2}");
	check_json("A = ((('x')))", "\"x\"");
}

static void test_the_rest_is_skipped(void **state)
{
	(void)state;
	check_text(
		"\"\"\"doc\nA = 'no'\n\"\"\"\nimport x\ndef f(a={'b': (1,\n2)}):\n    A = 'no'\n    return f\"\"\"{\nA}\"\"\"\n"
		"# A = 'no'\nB = [\n1,\nA ]\nA = 'yes'\nclass C:\n  A = 'no'\n",
		"yes", 3);
	check_text("x = '\\\nA = \"no\"'\nA = 'yes'", "yes", 3);
	check_text("s = rb'\\'\nA = 'no'\nA = 'yes'", "yes", 3);
}

static void test_refusals_name_the_line(void **state)
{
	(void)state;
	check_refused("B = 1", "no such assignment");
	check_refused("\nA = f'x{y}'", "line 2: an f-string");
	check_refused("A = b'x'", "bytes");
	check_refused("A = dict(a=1)", "more than a literal");
	check_refused("A = 'x'.strip()", "more than a literal");
	check_refused("A = [x for x in y]", "comma");
	check_refused("A = {1: 2}", "key is no string");
	check_refused("A = {'a': 1, 'b'}", "colon");
	check_refused("A = {'a', 'b': 1}", "comma");
	check_refused("A = {**B}", "literal is wanted");
	check_refused("A = '\\N{DASH}'", "escape");
	check_refused("A = '\\ud800'", "escape");
	check_refused("A = '\\x4'", "escape");
	check_refused("A = 'x", "does not end");
	check_refused("A = '''x", "does not end");
	check_refused("A = ('x'", "comma or the closing");
	check_refused("A = 'x' + 1", "joins strings");
	check_refused("A = {'a': 1}\nA['b'] = 2\n", "line 2: it is changed in place");
	check_refused("A = 'x'\nA += 'y'\n", "changed in place");
	check_refused("A = '\xff'", "UTF-8");
	check_refused("A = 1\nA = f()\n", "more than a literal");
	check_refused("A = B = 'x'", "more than a literal");
}

/* Nesting must cost neither the stack nor the night. */
static void test_deep_brackets_end(void **state)
{
	(void)state;
	static const char brackets[] = "[{(";
	for (const char *c = brackets; *c; c++) {
		char *source = mem_new(100004, 1);
		memcpy(source, "A = ", 4);
		memset(source + 4, *c, 100000 - 1);
		check_refused(source, "nested too deep");
		free(source);
	}
}

static void test_inner_values(void **state)
{
	(void)state;
	static const char source[] =
		"if a:\n    h = re.sub('x', 'y')\nelif b:\n    h = \"noise\"\nelse:\n    h = other\n\nh == 1\n";
	char err[ERR_LEN], *json = NULL;
	assert_int_equal(pyliteral_inner(source, sizeof source - 1, "h", &json, err), 0);
	json_t *list = json_loads(json, 0, NULL);
	assert_int_equal(json_array_size(list), 2);
	assert_string_equal(json_string_value(json_array_get(list, 0)), "noise");
	json_decref(list);
	free(json);
	assert_int_equal(pyliteral_inner(source, sizeof source - 1, "g", &json, err), -1);
}

/* ---- upstream's files ---- */

static json_t *read_real(const char *file, const char *const *names, size_t n)
{
	char *path = text_format("%s/data/%s", shared_dir(), file), *text = NULL, *json = NULL, err[ERR_LEN];
	skip_without(path);
	size_t len;
	if (file_read(path, &text, &len, err) || pyliteral_read(text, len, names, n, &json, err))
		fail_msg("%s: %s", path, err);
	json_t *all = json_loads(json, 0, NULL);
	free(path);
	free(text);
	free(json);
	return all;
}

static json_t *read_templates(const char *file)
{
	char *path = text_format("%s/data/%s", shared_dir(), file);
	skip_without(path);
	json_t *j = json_file(path);
	free(path);
	return j;
}

static void same(const json_t *got, const json_t *want)
{
	assert_non_null(want);
	assert_true(json_equal(got, want));
}

static void test_ruler_constants(void **state)
{
	(void)state;
	json_t *all = read_real("ruler/upstream/data-synthetic-constants.py", (const char *[]){"TASKS"}, 1),
	       *tasks = json_object_get(all, "TASKS");
	json_t *want = read_templates("ruler/templates.upstream.json"), *task;
	const char *name;
	assert_int_equal(json_object_size(tasks), 5);
	json_object_foreach(tasks, name, task)
	{
		json_t *w = json_object_get(want, name);
		same(json_object_get(task, "template"), json_object_get(w, "template"));
		same(json_object_get(task, "answer_prefix"), json_object_get(w, "answer_prefix"));
		same(json_object_get(task, "tokens_to_generate"), json_object_get(w, "tokens_to_generate"));
	}
	json_decref(all);
	json_decref(want);
}

static void test_ruler_templates_and_metrics(void **state)
{
	(void)state;
	json_t *all = read_real("ruler/upstream/data-template.py", NULL, 0), *t = json_object_get(all, "Templates");
	assert_int_equal(json_object_size(all), 1);
	assert_int_equal(json_object_size(t), 11);
	assert_string_equal(
		json_string_value(json_object_get(t, "chatglm-chat")), "[gMASK]sop<|user|> \n {task_template}<|assistant|> \n ");
	json_decref(all);
	all = read_real("ruler/upstream/eval-synthetic-constants.py", NULL, 0);
	t = json_object_get(all, "TASKS");
	assert_int_equal(json_object_size(t), 5);
	json_t *qa = json_object_get(json_object_get(t, "qa"), "metric_fn");
	assert_string_equal(json_string_value(json_object_get(qa, "name")), "string_match_part");
	json_decref(all);
}

static void test_scbench_templates(void **state)
{
	(void)state;
	static const char *const names[] = {"DATA_NAME_TO_PATH", "DATA_NAME_TO_MAX_NEW_TOKENS", "multiturn_templates",
		"multiturn_templates_scdq", "multiturn_follow_up_templates", "multiturn_follow_up_templates_in_chat_tempate"};
	json_t *all = read_real("scbench/upstream/eval_utils.py", names, 6),
	       *want = read_templates("scbench/templates.upstream.json"), *text;
	const char *name;
	for (int i = 0; i < 6; i++)
		assert_int_equal(json_object_size(json_object_get(all, names[i])), 16);
	json_t *first = json_object_get(all, "multiturn_templates"), *w = json_object_get(want, "first_turn");
	json_object_foreach(w, name, text)
	{
		if (strcmp(name, "default"))
			same(json_object_get(first, name), text);
	}
	json_t *pair = json_object_get(json_object_get(all, "multiturn_templates_scdq"), "scbench_qa_chn");
	assert_int_equal(json_array_size(pair), 2);
	assert_string_equal(json_string_value(json_array_get(pair, 1)), "问题：{question}\n答案：");
	json_t *mixed = json_object_get(json_object_get(all, "DATA_NAME_TO_MAX_NEW_TOKENS"), "scbench_repoqa_and_kv");
	assert_int_equal(json_integer_value(json_object_get(mixed, "scbench_kv")), 80);
	json_decref(all);
	json_decref(want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_the_rest_is_skipped),
		cmocka_unit_test(test_refusals_name_the_line),
		cmocka_unit_test(test_deep_brackets_end),
		cmocka_unit_test(test_inner_values),
		cmocka_unit_test(test_ruler_constants),
		cmocka_unit_test(test_ruler_templates_and_metrics),
		cmocka_unit_test(test_scbench_templates),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
