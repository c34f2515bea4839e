/* SCBench's scorers against upstream's own functions and rouge_score (fixture), and InfiniteBench's published GPT-4 scores. */
#include "tests/unit/tasks/helpers.h"

#include <jansson.h>

#include "tasks/score.h"

static char err[ERR_LEN];

/* The texts of a list (numbers as text), or of one value; ended by NULL. */
static char **texts_of(const json_t *v, int *n)
{
	*n = json_is_array(v) ? (int)json_array_size(v) : 1;
	char **out = mem_new((size_t)*n + 1, sizeof(*out));
	for (int i = 0; i < *n; i++) {
		const json_t *one = json_is_array(v) ? json_array_get(v, (size_t)i) : v;
		char *dumped = json_dumps(one, JSON_ENCODE_ANY);
		out[i] = text_copy(json_is_string(one) ? json_string_value(one) : dumped);
		free(dumped);
	}
	return out;
}

static void texts_free(char **texts)
{
	for (char **p = texts; *p; p++)
		free(*p);
	free(texts);
}

static void test_fixture(void **state)
{
	(void)state;
	json_error_t why;
	json_t *all = json_load_file("tests/fixtures/scbench/metrics.json", 0, &why), *row;
	if (!all)
		fail_msg("metrics.json:%d: %s", why.line, why.text);
	size_t i;
	json_array_foreach(json_object_get(all, "scores"), i, row)
	{
		int n;
		const char *name = json_string_value(json_object_get(row, "metric"));
		const char *answer = json_string_value(json_object_get(row, "answer"));
		char **gold = texts_of(json_object_get(row, "gold"), &n);
		double got = metric_find(name)->score(answer, gold, n), want = json_number_value(json_object_get(row, "score"));
		if (!(fabs(got - want) < 1e-12))
			fail_msg("%s of \"%s\" (gold \"%s\"): %.17g, not %.17g", name, answer, gold[0], got, want);
		texts_free(gold);
	}
	assert_true(i >= 190);
	json_decref(all);
}

/* Upstream's readings which cannot mean what they should, beside the sane ones. */
static void test_faults(void **state)
{
	(void)state;
	char *a[] = {"A"}, *city[] = {"\xe5\x8c\x97\xe4\xba\xac"}, *key[] = {"ab-12"};
	const char *wrong = "(B) because of this";
	assert_true(metric_find("many_shot_upstream")->score(wrong, a, 1) == 1);
	assert_true(metric_find("many_shot_strict")->score(wrong, a, 1) == 0);
	assert_true(metric_find("many_shot_strict")->score(" the answer is ( A ).", a, 1) == 1);
	assert_true(metric_find("many_shot_strict")->score("A. yes", a, 1) == 1);
	assert_true(metric_find("many_shot_strict")->score("An apple", a, 1) == 0);
	assert_true(metric_find("many_shot_strict")->score("", a, 1) == 0);
	assert_near(metric_find("qa_chn_upstream")->score(city[0], city, 1), 2.0 / 3);
	assert_near(metric_find("qa_chn")->score(city[0], city, 1), 1);
	assert_true(metric_find("kv_record")->score("ab-12", key, 1) == 0);
	assert_true(metric_find("substring")->score("ab-12", key, 1) == 1);
}

/* Without a gold text no score, whatever the metric. */
static void test_no_gold(void **state)
{
	(void)state;
	static const char *const names[] = {"substring", "kv_record", "contains_any", "many_shot_upstream", "many_shot_strict",
		"vt_match", "qa_chn_upstream", "qa_chn", "choice_abcd", "first_number", "first_integer", "rouge_lsum", "repoqa"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_true(isnan(metric_find(names[i])->score("answer A 1", NULL, 0)));
}

static void test_infinitebench(void **state)
{
	(void)state;
	static const struct {
		const char *task, *metric, *published;
		int n;
	} sets[] = {
		{"kv_retrieval", "substring", "89.00", 500},
		{"math_find", "first_number", "60.00", 350},
		{"longbook_qa_eng", "qa_f1", "22.44", 351},
		{"longbook_qa_chn", "qa_chn", "25.96", 189},
	};
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		struct score_result r;
		char score[16], *below = text_format("data/infinitebench/results/gpt4/preds_%s.jsonl", sets[i].task);
		const char *path = shared_path(below);
		free(below);
		need_shared(path);
		assert_ok(score_predictions(path, sets[i].task, NULL, &r, err));
		snprintf(score, sizeof(score), "%.2f", r.score);
		assert_string_equal(r.metric, sets[i].metric);
		assert_int_equal(r.n, sets[i].n);
		assert_string_equal(score, sets[i].published);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fixture),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_no_gold),
		cmocka_unit_test(test_infinitebench),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
