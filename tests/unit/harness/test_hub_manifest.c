/* test_hub_manifest.c: the pinned benchmark data: the table, records of what is not pinned, prompts out of upstream's files. */
#include "tests/unit/harness/hub_fixture.h"

#include "harness/hub_impl.h"
#include "harness/hub_manifest.h"

#define GITHUB "/raw.githubusercontent.com/"

static const struct manifest_set *set_of(const char *name)
{
	for (size_t i = 0; i < manifest_set_count(); i++) {
		if (!strcmp(manifest_set_at(i)->name, name))
			return manifest_set_at(i);
	}
	fail_msg("no set %s", name);
	return NULL;
}

static const struct manifest_file *row_of(const char *name)
{
	for (size_t i = 0; i < manifest_count(); i++) {
		if (!strcmp(manifest_at(i)->name, name))
			return manifest_at(i);
	}
	fail_msg("no file %s", name);
	return NULL;
}

/* Data in CACHE/data, plain addresses at the server under /HOST/... */
static int setup(void **state)
{
	int rc = hub_setup(state);
	char *data = in_cache("data"), *mirror = text_format("http://127.0.0.1:%d", hubserver_port(server));
	setenv("KVBENCH_DATA", data, 1);
	setenv("KVBENCH_MIRROR", mirror, 1);
	free(data);
	free(mirror);
	return rc;
}

static int fetch_set(const char *name, bool offline, char err[ERR_LEN])
{
	struct hub *h = NULL;
	struct hub_options o = {.offline = offline, .retry_ms = 2, .tell = hear};
	err[0] = 0;
	int rc = hub_open(&h, &o, err) || manifest_fetch(h, set_of(name), offline, hear, NULL, err) ? -1 : 0;
	hub_close(h);
	return rc;
}

static int fetch_row(const struct manifest_file *f, char err[ERR_LEN])
{
	struct hub *h = NULL;
	struct hub_options o = {.retry_ms = 2, .tell = hear};
	err[0] = 0;
	int rc = hub_open(&h, &o, err) || manifest_fetch_file(h, f, err) ? -1 : 0;
	hub_close(h);
	return rc;
}

static void test_the_table_is_sound(void **state)
{
	(void)state;
	for (size_t i = 0; i < manifest_count(); i++) {
		const struct manifest_file *f = manifest_at(i);
		bool web = !strncmp(f->source, "https://", 8);
		set_of(f->set);
		assert_true(hub_path_ok(f->name));
		assert_true(f->sha256 ? hub_is_hex(f->sha256, 64) && f->bytes > 0 : !web);
		assert_true(web ? !f->revision && !f->path : hub_is_hex(f->revision, 40) && hub_path_ok(f->path));
		for (size_t k = 0; k + 1 < i; k++)
			assert_string_not_equal(
				manifest_at(k)->name, f->name); /* a second address stands right behind the first */
	}
}

/* The pins are those of the real files, where they are at hand. */
static void test_pins_are_upstreams_files(void **state)
{
	(void)state;
	static const char *const pairs[][2] = {{"ruler/constants.py", "ruler/upstream/data-synthetic-constants.py"},
		{"ruler/template.py", "ruler/upstream/data-template.py"},
		{"ruler/metrics.py", "ruler/upstream/eval-synthetic-constants.py"},
		{"ruler/synthetic.yaml", "ruler/source/synthetic.yaml"},
		{"ruler/nounlist.txt", "ruler/source/wonderwords/nounlist.txt"},
		{"ruler/adjectivelist.txt", "ruler/source/wonderwords/adjectivelist.txt"},
		{"ruler/verblist.txt", "ruler/source/wonderwords/verblist.txt"},
		{"ruler/PaulGrahamEssays.json", "ruler/source/PaulGrahamEssays.json"},
		{"scbench/eval_utils.py", "scbench/upstream/eval_utils.py"},
		{"longbench/dataset2prompt.json", "longbench/config/dataset2prompt.json"},
		{"longbench/dataset2maxlen.json", "longbench/config/dataset2maxlen.json"},
		{"longbench-v2/0shot.txt", "longbench-v2/prompts/0shot.txt"},
		{"longbench-v2/0shot_cot.txt", "longbench-v2/prompts/0shot_cot.txt"},
		{"longbench-v2/0shot_cot_ans.txt", "longbench-v2/prompts/0shot_cot_ans.txt"},
		{"longbench-v2/0shot_no_context.txt", "longbench-v2/prompts/0shot_no_context.txt"}};
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		char *path = text_format("%s/data/%s", shared_dir(), pairs[i][1]), sha[SHA_LEN], err[ERR_LEN];
		skip_without(path);
		struct stat st;
		assert_int_equal(sha256_file(path, sha, err), 0);
		assert_string_equal(sha, row_of(pairs[i][0])->sha256);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_size, row_of(pairs[i][0])->bytes);
		free(path);
	}
}

static void test_a_pinned_file(void **state)
{
	(void)state;
	char err[ERR_LEN], *path = text_format("%s/data/ruler/source/PaulGrahamEssays.json", shared_dir()), *text;
	skip_without(path);
	size_t len;
	const struct manifest_file *essays = row_of("ruler/PaulGrahamEssays.json");
	char *target = text_format("/%s", essays->source + strlen("https://")), *own = manifest_path(essays);
	assert_string_equal(manifest_state(essays), "missing");
	assert_int_equal(fetch_set("essays", true, err), -1);
	assert_non_null(strstr(err, "lacks ruler/PaulGrahamEssays.json; `kvbench fetch essays` gets it"));
	assert_int_equal(file_read(path, &text, &len, err), 0);
	hubserver_file(server, target, text, len);
	hubserver_rule(server, &(struct hub_rule){.target = target, .fault = HUB_WRONG});
	assert_int_equal(fetch_set("essays", false, err), -1);
	assert_non_null(strstr(err, "wanted d4cd6848"));
	assert_string_equal(manifest_state(essays), "missing");
	hubserver_reset(server);
	hubserver_rule(server, &(struct hub_rule){.target = target, .fault = HUB_CUT, .times = 2});
	assert_int_equal(fetch_set("essays", false, err), 0);
	assert_string_equal(manifest_state(essays), "pinned");
	assert_string_equal(manifest_state_of_path(own), "pinned");
	assert_string_equal(manifest_state_of_path(path), "unpinned");
	hubserver_reset(server);
	assert_int_equal(fetch_set("essays", false, err), 0);
	assert_int_equal(fetch_set("essays", true, err), 0);
	assert_int_equal(hubserver_requests(server), 0);
	free(text);
	free(path);
	free(target);
	free(own);
}

static void test_an_unpinned_file_is_recorded(void **state)
{
	(void)state;
	static const struct manifest_file row = {"x", "x/a.jsonl", "org/data", HUB_COMMIT, "data/a.jsonl", 0, NULL};
	char err[ERR_LEN], sha[SHA_LEN], want[SHA_LEN], *path = manifest_path(&row);
	sha256_hex("{\"a\": 1}\n", 9, want);
	assert_string_equal(manifest_state(&row), "missing");
	assert_false(manifest_sha256(&row, sha));
	if (fetch_row(&row, err))
		fail_msg("%s", err);
	assert_string_equal(manifest_state(&row), "recorded");
	assert_true(manifest_sha256(&row, sha));
	assert_string_equal(sha, want);
	/* a record binds: bytes which are not those are refused */
	want[0] = 'f';
	assert_int_equal(manifest_record(&row, want, err), 0);
	assert_int_equal(fetch_row(&row, err), -1);
	assert_non_null(strstr(err, "the recorded one is f"));
	/* a record of another revision does not count, and a file without one is unpinned */
	struct manifest_file moved = row;
	moved.revision = "76543210"
			 "76543210"
			 "76543210"
			 "76543210"
			 "76543210";
	assert_false(manifest_sha256(&moved, sha));
	assert_string_equal(manifest_state(&moved), "unpinned");
	free(path);
}

/* HotpotQA's first host is often down: upstream's own second address is tried, and both failures are said. */
static void test_second_address(void **state)
{
	(void)state;
	char err[ERR_LEN];
	size_t before = said.len;
	assert_int_equal(fetch_set("hotpotqa", false, err), -1);
	assert_non_null(strstr(said.text + before, "ruler/hotpotqa.json: hotpotqa.json: HTTP 401"));
	assert_non_null(strstr(err, "namlh2004/hotpotqa"));
}

static void copy_shared(const char *from, const char *to)
{
	char *source = text_format("%s/data/%s", shared_dir(), from), *target = text_format("%s/data/%s", cache, to), *text,
	     err[ERR_LEN];
	skip_without(source);
	size_t len;
	assert_int_equal(file_read(source, &text, &len, err), 0);
	assert_int_equal(make_folders(target, err), 0);
	write_file(target, text, len);
	free(source);
	free(target);
	free(text);
}

static void write_data(const char *name, const char *text)
{
	char *path = text_format("%s/data/%s", cache, name);
	write_file(path, text, strlen(text));
	free(path);
}

static json_t *read_data(const char *name)
{
	char *path = text_format("%s/data/%s", cache, name);
	json_t *j = json_file(path);
	free(path);
	return j;
}

static const char *text_at(json_t *j, const char *a, const char *b)
{
	return json_string_value(json_object_get(json_object_get(j, a), b));
}

static void test_ruler_prompts(void **state)
{
	(void)state;
	char err[ERR_LEN];
	copy_shared("ruler/upstream/data-synthetic-constants.py", "ruler/constants.py");
	copy_shared("ruler/upstream/data-template.py", "ruler/template.py");
	copy_shared("ruler/upstream/eval-synthetic-constants.py", "ruler/metrics.py");
	write_data("ruler/niah.py", "import x\nneedle = \"A {key} is {value}.\"\nif args.h == 'essay':\n    haystack = re.sub(a, "
				    "b)\nelif args.h == 'noise':\n    haystack = \"Grass.\"\nelse:\n    haystack = needle\n");
	write_data("ruler/qa.py", "DOCUMENT_PROMPT = \"Document {i}:\\n{document}\"\n");
	if (manifest_prompts(set_of("ruler"), err))
		fail_msg("%s", err);
	json_t *got = read_data("ruler/templates.json");
	assert_string_equal(text_at(got, "niah", "needle"), "A {key} is {value}.");
	assert_string_equal(text_at(got, "niah", "noise"), "Grass.");
	assert_string_equal(text_at(got, "qa", "document"), "Document {i}:\n{document}");
	assert_string_equal(text_at(got, "qa", "answer_prefix"), " Answer:");
	assert_string_equal(text_at(got, "Templates", "base"), "{task_template}");
	assert_string_equal(text_at(json_object_get(got, "qa"), "metric_fn", "name"), "string_match_part");
	json_decref(got);
	write_data("ruler/niah.py", "needle = f'{x}'\n");
	assert_int_equal(manifest_prompts(set_of("ruler"), err), -1);
	assert_non_null(strstr(err, "niah.py: needle: line 1: an f-string"));
}

static void test_scbench_prompts(void **state)
{
	(void)state;
	char err[ERR_LEN];
	copy_shared("scbench/upstream/eval_utils.py", "scbench/eval_utils.py");
	if (manifest_prompts(set_of("scbench"), err))
		fail_msg("%s", err);
	json_t *got = read_data("scbench/prompts.json");
	assert_int_equal(json_object_size(got), 5);
	assert_string_equal(text_at(got, "multiturn_follow_up_templates", "scbench_vt"), "{pre_ans}\n\n{input}");
	json_decref(got);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, hub_teardown)
	const struct CMUnitTest tests[] = {
		T(test_the_table_is_sound),
		T(test_pins_are_upstreams_files),
		T(test_a_pinned_file),
		T(test_an_unpinned_file_is_recorded),
		T(test_second_address),
		T(test_ruler_prompts),
		T(test_scbench_prompts),
	};
	return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
