/* test_plan.c: what a plan may say, what overrides change, and which mistake gets which sentence. */
#include "tests/unit/test.h"
#include "tests/unit/harness/stub_runner.h"

#include "harness/plan.h"

#include <unistd.h>

static const char small[] =
	"{\"targets\": \"m\", \"tasks\": [\"niah-single\"], \"methods\": [\"snapkv\"], \"retained\": [0.1, 0.5],"
	" \"timing\": {\"enabled\": false}}";

static char plan_path[] = "/tmp/kvbench-plan-XXXXXX.json";

static int read_text(struct plan *p, const char *json, const char *const *overrides, int n, char err[ERR_LEN])
{
	FILE *f = fopen(plan_path, "w");
	assert_non_null(f);
	fputs(json, f);
	fclose(f);
	*err = 0;
	return plan_read(p, plan_path, overrides, n, err);
}

static void must_read(struct plan *p, const char *json, const char *const *overrides, int n)
{
	char err[ERR_LEN];
	if (read_text(p, json, overrides, n, err))
		fail_msg("%s", err);
}

/* The plan is refused and the message has all the parts. */
static void refused(const char *json, const char *override, const char *part, const char *other)
{
	char err[ERR_LEN];
	struct plan p;
	assert_int_equal(read_text(&p, json, &override, override != NULL, err), -1);
	if (!strstr(err, part) || !strstr(err, other))
		fail_msg("\"%s\" has not \"%s\" and \"%s\"", err, part, other);
	plan_free(&p);
}

static void test_defaults(void **state)
{
	(void)state;
	struct plan p;
	must_read(&p, "{\"targets\": [\"m\"], \"tasks\": [\"niah-single\"]}", NULL, 0);
	assert_int_equal(p.n_pairs, 1);
	assert_string_equal(p.pairs[0].target, "m");
	assert_null(p.pairs[0].proxy);
	assert_int_equal(p.seed, 1);
	assert_false(p.seed_given);
	assert_null(p.tasks[0].mode);
	assert_string_equal(p.precisions.v[0], "bf16");
	assert_string_equal(p.protocols.v[0], "agnostic");
	assert_int_equal(p.retained.n, 4);
	assert_int_equal(p.timing.repetitions, 9);
	assert_true(isnan(p.tasks[0].depth));
	assert_true(!strncmp(p.db, "results/kvbench-plan-", 21) && strstr(p.db, ".db"));
	plan_free(&p);
}

/* The head prior stands beside every trained method by itself, as full and random do; once, and only then. */
static void test_trained_methods_bring_the_head_prior(void **state)
{
	(void)state;
	static const struct {
		const char *methods;
		int with, without; /* methods in the plan, head-prior among them or not */
	} cases[] = {{"methods=snapkv", 0, 3}, {"methods=proxykv", 4, 0}, {"methods=head-prior,proxykv", 4, 0}, {"methods=head-prior", 3, 0}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct plan p;
		int found = 0;
		must_read(&p, small, &cases[i].methods, 1);
		for (int m = 0; m < p.n_methods; m++)
			found += !strcmp(p.methods[m].name, "head-prior");
		assert_int_equal(found, cases[i].with ? 1 : 0);
		assert_int_equal(p.n_methods, cases[i].with + cases[i].without);
		plan_free(&p);
	}
}

static void test_full_and_random_are_always_there_and_full_only_at_one(void **state)
{
	(void)state;
	struct plan p;
	must_read(&p, small, NULL, 0);
	assert_int_equal(p.n_methods, 3);
	assert_int_equal(p.n_variants, 1 + 2 * 2);
	assert_string_equal(p.methods[p.variants[0].method].name, "full");
	assert_int_equal(p.variants[0].retained_ppm, 1000000);
	for (int v = 1; v < p.n_variants; v++)
		assert_string_not_equal(p.methods[p.variants[v].method].name, "full");
	assert_int_equal(p.variants[1].retained_ppm, 100000);
	plan_free(&p);
	must_read(&p, small, (const char *[]){"methods=random,full,snapkv"}, 1); /* named: not added twice */
	assert_int_equal(p.n_methods, 3);
	plan_free(&p);
}

static void test_overrides(void **state)
{
	(void)state;
	static const char *const set[] = {"retained=.3,.7,1", "tasks.contexts=4", "tasks.lengths=512,1024",
		"timing.repetitions=20", "seed=9", "title=1,2 and 3", "protocols=agnostic,aware", "memory=2G", "allow_long=true",
		"precision=fp32"};
	struct plan p;
	must_read(&p, small, set, sizeof set / sizeof *set);
	assert_int_equal(p.retained.n, 3);
	assert_int_equal(p.variants[1].retained_ppm, 300000);
	assert_int_equal(p.tasks[0].contexts, 4);
	assert_int_equal(p.tasks[0].lengths.n, 2);
	assert_true(p.tasks[0].lengths.v[1] == 1024);
	assert_int_equal(p.timing.repetitions, 20);
	assert_false(p.timing.enabled);
	assert_int_equal(p.seed, 9);
	assert_true(p.seed_given);
	assert_string_equal(p.title, "1,2 and 3");
	assert_int_equal(p.protocols.n, 2);
	assert_int_equal(p.memory_bytes, 2147483648);
	assert_true(p.allow_long);
	assert_string_equal(p.precisions.v[0], "fp32");
	assert_non_null(strstr(p.json, "\"seed\":9")); /* the plan as it ran */
	plan_free(&p);
	must_read(&p, "{\"pairs\": [{\"target\": \"a\", \"proxy\": \"b\"}], \"tasks\": [\"niah-single\"]}",
		(const char *[]){"targets=c,d"}, 1);
	assert_int_equal(p.n_pairs, 2);
	assert_string_equal(p.pairs[1].target, "d");
	plan_free(&p);
}

static void test_lists_in_method_options_make_one_method_each(void **state)
{
	(void)state;
	struct plan p;
	must_read(&p,
		"{\"targets\": \"m\", \"tasks\": [\"niah-single\"], \"methods\": [{\"method\": \"snapkv\", \"options\": "
		"{\"window\": [8, 32],"
		" \"pool\": [1, 7], \"kind\": \"max\"}}]}",
		NULL, 0);
	assert_int_equal(p.n_methods, 4 + 2);
	assert_string_equal(p.methods[0].options, "{\"kind\":\"max\",\"pool\":1,\"window\":8}");
	assert_string_equal(p.methods[3].options, "{\"kind\":\"max\",\"pool\":7,\"window\":32}");
	plan_free(&p);
}

static void test_mistakes_name_the_nearest(void **state)
{
	(void)state;
	refused(small, "retaind=.3", "retaind", "did you mean \"retained\"");
	refused(small, "tasks.context=3", "tasks: key \"context\"", "did you mean \"contexts\"");
	refused(small, "timing.repetition=9", "repetition", "did you mean \"repetitions\"");
	refused(small, "methods=snapkw", "snapkw", "did you mean \"snapkv\"");
	refused(small, "tasks=niah-singel", "niah-singel", "did you mean \"niah-single\"");
	refused(small, "protocols=agnotic", "agnotic", "did you mean \"agnostic\"");
	refused(small, "precision=bf61", "bf61", "did you mean \"bf16\"");
	refused(small, "tasks.mode=multi-turns", "multi-turns", "did you mean \"multi-turn\"");
	refused(small, "tasks.truncate=oficial", "oficial", "did you mean \"official\"");
	refused(small, "tasks.generator=upsteam", "upsteam", "did you mean \"upstream\"");
	refused(small, "tasks.release=oct2023", "oct2023", "did you mean \"oct2024\"");
}

/* In the order given: a task named by one override is reached by the next. */
static void test_overrides_reach_each_other(void **state)
{
	(void)state;
	struct plan p;
	must_read(&p, small, (const char *[]){"tasks=niah-multikey", "tasks.lengths=512"}, 2);
	assert_int_equal(p.n_tasks, 1);
	assert_string_equal(p.tasks[0].name, "niah-multikey");
	assert_true(p.tasks[0].lengths.v[0] == 512);
	plan_free(&p);
	must_read(&p, small, (const char *[]){"tasks=niah-multikey,niah-single", "tasks.lengths=512", "methods=snapkv", "methods.options.window=[8,16]"}, 4);
	assert_int_equal(p.n_tasks, 2);
	assert_true(p.tasks[1].lengths.v[0] == 512);
	assert_int_equal(p.n_methods, 4);
	plan_free(&p);
}

static void test_mistakes_of_kind_and_range(void **state)
{
	(void)state;
	refused(small, "retained=0", "retained", "above 0");
	refused(small, "retained=1.5", "retained", "above 0");
	refused(small, "retained=all", "retained", "above 0");
	refused(small, "seed=-1", "seed", "whole number");
	refused(small, "seed=1.5", "seed", "whole number");
	refused(small, "tasks.lengths=1e30", "lengths", "whole number");
	refused(small, "tasks.lengths=[512,134217729]", "lengths", "up to 134217728");
	refused(small, "allow_long=maybe", "allow_long", "true or false");
	refused(small, "memory=lots", "memory", "8G");
	refused(small, "tasks.depth=1.1", "depth", "0 to 1");
	refused(small, "retained=[.3", "retained", "not JSON");
	refused(small, "nothing", "key=value", "nothing");
	refused(small, "methods=snapkv,snapkv", "snapkv", "twice");
	refused(small, "retained=1e-9", "retained", "above 0");
	refused(small, "retained=.3,.5,.3", "retained", "0.3 is there twice");
	refused(small, "retained=.3,.3000001", "retained", "twice");
	refused(small, "protocols=aware,aware", "protocols", "twice");
	refused(small, "precision=bf16,bf16", "precision", "twice");
	refused(small, "targets=a,b,a", "targets", "a is there twice");
	refused(small, "tasks.lengths=[512,512]", "lengths", "512 is there twice");
	refused(small, "tasks=[\"niah-single\",\"niah-single\"]", "tasks", "the same");
	refused(small, "db=", "db", "empty name");
	refused(small, "report=", "report", "empty name");
	refused(small, "targets.a=1", "--set targets.a", "no object");
	refused(small, "methods=[{\"method\": \"snapkv\", \"options\": {\"window\": []}}]", "snapkv: option \"window\"", "empty list");
	refused(small, "methods=[{\"method\": \"snapkv\", \"options\": {\"window\": [[]]}}]", "snapkv: option \"window\"", "list in its list");
	refused("{\"tasks\": [\"niah-single\"]}", NULL, "no targets", "");
	refused("{\"targets\": \"m\"}", NULL, "no tasks", "");
	refused("{\"targets\": \"m\", \"tasks\": [\"niah-single\"], \"db\": \"x.db\", \"report\": \"x.db\"}", NULL, "one file", "x.db");
	refused("{\"targets\": \"m\", \"pairs\": [{\"target\": \"a\"}], \"tasks\": [\"niah-single\"]}", NULL, "targets and pairs",
		"");
	refused("{\"pairs\": [{\"proxy\": \"a\"}], \"tasks\": [\"niah-single\"]}", NULL, "no target", "");
	refused("{\"targets\": \"m\", \"targets\": \"n\"}", NULL, "duplicate", "");
	refused("{\"targets\": ", NULL, plan_path, "line 1");
	refused("[]", NULL, "object", "");
}

static void test_timing_must_lie_within_the_plan(void **state)
{
	(void)state;
	static const char plan[] =
		"{\"targets\": \"m\", \"tasks\": [{\"name\": \"niah-single\", \"lengths\": [512]}], \"retained\": [0.3]}";
	refused(plan, "timing.repetitions=8", "repetitions is 8", "9");
	refused(plan, "timing.retained=.5", "retained 0.5", "not among");
	refused(plan, "timing.lengths=1024", "1024", "not among");
	refused(plan, "timing.tasks=niah-multikey", "niah-multikey", "not among");
	refused(plan, "timing.protocols=aware", "aware", "not known");
}

/* Every key that --help prints is in the example plan, and the example plan is right. */
static void test_example_plan_has_every_key(void **state)
{
	(void)state;
	char *text, *keys = NULL, err[ERR_LEN], word[64];
	size_t len;
	struct plan p;
	if (plan_read(&p, "harness/example-plan.json", NULL, 0, err))
		fail_msg("%s", err);
	plan_free(&p);
	assert_int_equal(file_read("harness/example-plan.json", &text, &len, err), 0);
	FILE *f = open_memstream(&keys, &len);
	plan_print_keys(f, NULL);
	fclose(f);
	int n = 0;
	for (char *line = strtok(keys, "\n"); line; line = strtok(NULL, "\n")) {
		if (sscanf(line, "  %60s", word) != 1 || line[0] != ' ')
			continue;
		char *quoted = text_format("\"%s\":", word);
		if (!strstr(text, quoted) && strcmp(word, "targets")) /* pairs stand in its place */
			fail_msg("the example plan has no %s", quoted);
		free(quoted);
		n++;
	}
	assert_true(n > 40);
	char *readme; /* shows it whole */
	assert_int_equal(file_read("README.md", &readme, &len, err), 0);
	assert_non_null(strstr(readme, text));
	free(readme);
	free(keys);
	free(text);
}

static void test_options_of_plan_keys(void **state)
{
	(void)state;
	assert_string_equal(plan_key_option("max-new-tokens").name, "max_new_tokens");
	assert_null(plan_key_option("allow-long").arg);
	assert_null(plan_key_option("nonsense").name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_full_and_random_are_always_there_and_full_only_at_one),
		cmocka_unit_test(test_trained_methods_bring_the_head_prior),
		cmocka_unit_test(test_overrides),
		cmocka_unit_test(test_lists_in_method_options_make_one_method_each),
		cmocka_unit_test(test_mistakes_name_the_nearest),
		cmocka_unit_test(test_overrides_reach_each_other),
		cmocka_unit_test(test_mistakes_of_kind_and_range),
		cmocka_unit_test(test_timing_must_lie_within_the_plan),
		cmocka_unit_test(test_example_plan_has_every_key),
		cmocka_unit_test(test_options_of_plan_keys),
	};
	close(mkstemps(plan_path, 5));
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(plan_path);
	return failed;
}
