/* The metrics: values worked out by hand, then published scores of real predictions. */
#include "tests/unit/tasks/ruler_shared.h"

#include <jansson.h>

static double score(const char *metric, const char *answer, const char *gold1, const char *gold2)
{
	char *gold[] = {(char *)gold1, (char *)gold2};
	return metric_find(metric)->score(answer, gold, !!gold1 + !!gold2);
}

static void test_table(void **state)
{
	(void)state;
	assert_null(metric_find("rouge"));
	for (size_t i = 0; i < metric_count(); i++) {
		const struct metric_def *m = metric_at(i);
		assert_ptr_equal(metric_find(m->name), m);
		assert_true(isnan(m->score("answer", NULL, 0)));
		assert_false(score(m->name, "", "gold", NULL) > 0); /* 0, or NAN where a gold text must have a form of its own */
		assert_true(strlen(m->title) && strlen(m->source));
	}
	static const char *const plain[] = {"string_match_all", "string_match_part", "qa_f1", "exact"};
	for (size_t i = 0; i < 4; i++)
		assert_near(score(plain[i], "gold", "gold", NULL), 1.);
}

static void test_string_match(void **state)
{
	(void)state;
	assert_near(score("string_match_all", " amber 482 137.", "482 137", NULL), 1.);
	assert_near(score("string_match_all", "amber 482, 137.", "482 137", NULL), 0.);
	assert_near(score("string_match_all", "482 137 and 031 555", "031 555", "482 137"), 1.);
	assert_near(score("string_match_all", "482 137 and 031 556", "031 555", "482 137"), .5);
	assert_near(score("string_match_part", "482 137 and 031 556", "031 555", "482 137"), 1.);
	assert_near(score("string_match_part", "nothing", "031 555", "482 137"), 0.);
	assert_near(score("string_match_all", "It is ABCD-ef.", "abcd-EF", NULL), 1.);
	assert_near(score("string_match_all", "\xc3\x84RGER", "\xc3\xa4rger", NULL), 1.); /* Unicode lower case */
	assert_near(score("string_match_all", "one\ttwo", "one two", NULL), 0.);
	assert_near(score("string_match_all", "one\ttwo", "one\ntwo", NULL), 1.); /* control characters become line ends */
	assert_near(score("string_match_all", "\xff\xfe 77", "77", NULL), 1.);    /* bytes which are not UTF-8 */
	assert_near(score("string_match_all", "one \x1f", "one", "one "), .5); /* the answer is stripped, a control is no more */
}

static void test_exact(void **state)
{
	(void)state;
	assert_near(score("exact", " yes\n", "yes", NULL), 1.);
	assert_near(score("exact", "yes.", "yes", NULL), 0.);
	assert_near(score("exact", "Yes", "yes", NULL), 0.);
	assert_near(score("exact", "b", "a", " b "), 1.);
	assert_near(score("exact", "\xc2\xa0yes\xe3\x80\x80", "yes", NULL), 1.); /* no-break and ideographic space */
	assert_near(score("exact", " \n", "x", NULL), 0.);
}

static void test_qa_f1(void **state)
{
	(void)state;
	assert_near(score("qa_f1", "The U.S. Army", "us army", NULL), 1.);
	/* {cat, sat} against {cat, sat, on, mat}: p = 1, r = 1/2 */
	assert_near(score("qa_f1", "A cat sat", "the cat sat on the mat", NULL), 2 * 1 * .5 / 1.5);
	/* multisets: {no, no, yes} and {no, yes, yes}: 2 in common, p = r = 2/3 */
	assert_near(score("qa_f1", "no no yes", "no yes yes", NULL), 2. / 3);
	assert_near(score("qa_f1", "Paris", "Rome", "paris, France"), 2 * 1 * .5 / 1.5); /* the best gold counts */
	assert_near(score("qa_f1", "the a an", "the", NULL), 0.);                        /* nothing left on either side */
	assert_near(
		score("qa_f1", "theory another b", "theory", NULL), 2 * (1. / 3) / (4. / 3)); /* only whole words are articles */
	assert_near(score("qa_f1", "a.b", "ab", NULL), 1.);
	assert_near(score("qa_f1", "a-b", "b", NULL), 0.); /* ab */
	assert_near(score("qa_f1", "\xe2\x80\x9cthe\xe2\x80\x9d fox", "\xe2\x80\x9c \xe2\x80\x9d fox", NULL),
		1.); /* curly quotes stay */
	assert_near(score("qa_f1", "\xc3\x89LAN", "\xc3\xa9lan", NULL), 1.);
	assert_near(score("qa_f1", "one\xc2\xa0two\xe2\x80\x83three", "one two three", NULL), 1.); /* Unicode white space */
	assert_near(score("qa_f1", "a\xcc\x81 b", "\xcc\x81 b", NULL), 1.); /* a combining mark is no word character */
}

/* ---- published scores ---- */

/* LongBench's rule for its few-shot tasks: leading line ends off, then the first line. */
static void first_line(char *answer)
{
	size_t lead = strspn(answer, "\n");
	memmove(answer, answer + lead, strlen(answer + lead) + 1);
	answer[strcspn(answer, "\n")] = '\0';
}

static double longbench_row(const json_t *row, bool few_shot)
{
	char *gold[1024];
	const json_t *answers = json_object_get(row, "answers");
	int n = (int)json_array_size(answers);
	assert_in_range(n, 1, 1024);
	for (int i = 0; i < n; i++)
		gold[i] = (char *)json_string_value(json_array_get(answers, (size_t)i));
	char *answer = text_copy(json_string_value(json_object_get(row, "pred")));
	if (few_shot)
		first_line(answer);
	double s = metric_find("qa_f1")->score(answer, gold, n);
	free(answer);
	return s;
}

static double longbench_score(const char *task)
{
	char below[128], *line = NULL;
	size_t cap = 0;
	snprintf(below, sizeof(below), "data/longbench/pred/llama2-7b-chat-4k/%s.jsonl", task);
	FILE *f = fopen(shared_path(below), "rb");
	assert_non_null(f);
	double sum = 0;
	int n = 0;
	for (; getline(&line, &cap, f) > 0; n++) {
		json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
		assert_non_null(row);
		sum += longbench_row(row, !strcmp(task, "triviaqa"));
		json_decref(row);
	}
	free(line);
	fclose(f);
	return 100 * sum / n;
}

static void test_longbench_published(void **state)
{
	(void)state;
	static const char *const tasks[] = {
		"narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa"};
	const char *path = shared_path("data/longbench/pred/llama2-7b-chat-4k/result.json");
	need_shared(path);
	json_t *published = json_load_file(path, 0, NULL);
	for (size_t i = 0; i < 7; i++) {
		char ours[16], theirs[16];
		snprintf(ours, sizeof(ours), "%.2f", longbench_score(tasks[i]));
		snprintf(theirs, sizeof(theirs), "%.2f", json_number_value(json_object_get(published, tasks[i])));
		if (strcmp(ours, theirs))
			fail_msg("%s: %s, published %s", tasks[i], ours, theirs);
	}
	json_decref(published);
}

struct ruler_task {
	char name[32];
	double sum;
	int n;
};

static struct ruler_task *ruler_task(struct ruler_task *tasks, const char *name)
{
	while (*tasks->name && strcmp(tasks->name, name))
		tasks++;
	snprintf(tasks->name, sizeof(tasks->name), "%s", name);
	return tasks;
}

static void ruler_read(const char *path, struct ruler_task *tasks)
{
	enum { TASK = 1, ANSWER = 3, PREDICTED = 4, COLUMNS = 7 };
	FILE *f = fopen(path, "rb");
	struct strbuf field[COLUMNS] = {{0}};
	assert_non_null(f);
	for (int rows = 0, end = '\n'; end != EOF; rows++) {
		int n = 0;
		do
			end = csv_field(f, &field[n++]);
		while (end == ',' && n < COLUMNS);
		if (!rows || n < COLUMNS)
			continue;
		struct ruler_task *t = ruler_task(tasks, field[TASK].text);
		char *gold[64];
		int n_gold = numpy_strings(field[ANSWER].text, gold);
		const char *metric = !strncmp(t->name, "qa_", 3) ? "string_match_part" : "string_match_all";
		t->sum += metric_find(metric)->score(field[PREDICTED].text, gold, n_gold);
		t->n++;
		while (n_gold)
			free(gold[--n_gold]);
	}
	for (int i = 0; i < COLUMNS; i++)
		strbuf_free(&field[i]);
	fclose(f);
}

static void test_ruler_published(void **state)
{
	(void)state;
	struct ruler_task tasks[16] = {{{0}, 0, 0}};
	const char *path = shared_path("data/ruler/results/kvpress_llama31_8b_4096_centrality_0.25/predictions.csv");
	need_shared(path);
	ruler_read(path, tasks);
	json_t *published =
		json_load_file(shared_path("data/ruler/results/kvpress_llama31_8b_4096_centrality_0.25/metrics.json"), 0, NULL);
	assert_int_equal(json_object_size(published), 13);
	for (int i = 0; i < 13; i++) {
		char ours[16], theirs[16];
		assert_int_equal(tasks[i].n, 500);
		snprintf(ours, sizeof(ours), "%.2f", 100 * tasks[i].sum / tasks[i].n);
		snprintf(theirs, sizeof(theirs), "%.2f",
			json_number_value(json_object_get(json_object_get(published, tasks[i].name), "string_match")));
		if (strcmp(ours, theirs))
			fail_msg("%s: %s, published %s", tasks[i].name, ours, theirs);
	}
	json_decref(published);
}

int main(void)
{

	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_string_match),
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_qa_f1),
		cmocka_unit_test(test_longbench_published),
		cmocka_unit_test(test_ruler_published),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
