/* test_ruler_golden.c: RULER's upstream generator with the Llama-3.1 tokenizer against published rows, and its speed.
 *
 * The only test that needs tasks/ and a real tokenizer together. Golden files: kvpress's predictions.csv (question, answer and
 * answer prefix of all 13 x 500 rows of simonjegou/ruler at 4096) and one of RULER's own files. */
#include "tests/unit/tasks/ruler_shared.h"

#include <jansson.h>

#include "runners/model/tokenizer.h"
#include "tasks/ruler/ruler.h"

static char err[ERR_LEN];
static char *folder;
static struct tokenizer *tokenizer;

static int setup(void **state)
{
	(void)state;
	const char *path = shared_path(RULER_PREDICTIONS) ? shared_path("models/llama3.1-tokenizer/tokenizer.json") : NULL;
	if (!path)
		return 0;
	if (tokenizer_open_json(&tokenizer, path, err))
		fail_msg("%s", err);
	folder = ruler_folder_make();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ruler_folder_free(folder);
	tokenizer_close(tokenizer);
	return 0;
}

static int64_t count(void *user, const char *text, size_t len)
{
	char why[ERR_LEN];
	struct ids ids = {0};
	int64_t n = tokenizer_encode(user, text, len, false, &ids, why) ? -1 : (int64_t)ids.n;
	ids_free(&ids);
	return n;
}

static struct task *open_task(const char *name, const char *release, int64_t length)
{
	struct task_request rq = {.name = name,
		.path = folder,
		.release = release,
		.length_tokens = length,
		.depth = NAN,
		.count_tokens = count,
		.user = tokenizer};
	struct task *t = NULL;
	if (task_open(&t, &rq, err))
		fail_msg("%s", err);
	return t;
}

/* ---- published answers ---- */

/* size: what upstream's fitting finds at 4096, in units of the family. rows: as many as the data here allow: half of SQuAD's
 * articles, of which the first 293 questions are those of the whole file, and 100 questions of HotpotQA. */
static const struct {
	const char *name;
	int size, rows;
} tasks[] = {{"niah_single_1", 150, 500}, {"niah_single_2", 3000, 500}, {"niah_single_3", 3000, 500},
	{"niah_multikey_1", 3000, 500}, {"niah_multikey_2", 200, 500}, {"niah_multikey_3", 50, 500},
	{"niah_multivalue", 3000, 500}, {"niah_multiquery", 3000, 500}, {"vt", 140, 500}, {"cwe", 120, 500}, {"fwe", 0, 500},
	{"qa_1", 0, 293}, {"qa_2", 0, 100}};
enum { TASKS = sizeof(tasks) / sizeof(tasks[0]) };

static bool equal(const struct task_question *q, const struct prediction *p)
{
	if (q->n_answers != p->n_gold || strcmp(q->text, p->question) || strcmp(q->answer_prefix, p->answer_prefix))
		return false;
	for (int i = 0; i < p->n_gold; i++)
		if (strcmp(q->answers[i], p->gold[i]))
			return false;
	return true;
}

/* Under a sanitizer a few rows and shorter ones are enough, and no time is judged. */
static bool sanitized(void)
{
	return getenv("KVB_SANITIZED") != NULL;
}

/* Compares the first `rows` rows, makes all of them; returns the seconds for opening and all rows. */
static double check_published(const char *task, int size, int rows)
{
	char name[64];
	int n;
	struct prediction *p = predictions_read(task, &n);
	snprintf(name, sizeof(name), "ruler-%s", task);
	int64_t start = cpu_ns();
	struct task *t = open_task(name, "oct2024", 4096);
	assert_int_equal(n, 500);
	assert_true(task_count(t) >= rows);
	if (size)
		assert_int_equal(((const struct ruler *)t->state)->size, size);
	for (int i = 0, n_rows = sanitized() ? 20 : task_count(t); i < n_rows; i++) {
		struct task_context c;
		if (task_context_make(t, i, &c, err))
			fail_msg("%s", err);
		if (i < rows && !equal(&c.questions[0], &p[i]))
			fail_msg("%s, row %d: '%s' '%s', published '%s' '%s'", task, i, c.questions[0].text,
				c.questions[0].answers[0], p[i].question, p[i].gold[0]);
		task_context_free(&c);
	}
	double seconds = (double)(cpu_ns() - start) / 1e9;
	print_message("%-16s %d rows, %d compared with the published ones, %.2f s\n", task, task_count(t), rows, seconds);
	task_close(t);
	predictions_free(p, n);
	return seconds;
}

static void test_published(void **state)
{
	(void)state;
	need_shared(folder);
	double sum = 0;
	for (int k = 0; k < TASKS; k++)
		sum += check_published(tasks[k].name, tasks[k].size, tasks[k].rows);
	print_message("13 tasks: %.1f s\n", sum);
	assert_true(sanitized() || sum < 60);
}

/* ---- whole texts ---- */

static void test_multikey_3_bytes(void **state)
{
	(void)state;
	need_shared(folder);
	FILE *f = fopen(shared_path("data/ruler/data/niah_multikey_3.4096.jsonl"), "rb");
	struct task *t = open_task("ruler-niah_multikey_3", "oct2024", 4096);
	char *line = NULL;
	size_t cap = 0;
	assert_int_equal(task_count(t), 500);
	for (int i = 0; i < 500; i++) {
		struct task_context c;
		assert_true(getline(&line, &cap, f) > 0);
		json_t *row = json_loads(line, 0, NULL);
		assert_ok(task_context_make(t, i, &c, err));
		char *ours = text_format("%s%s%s", c.text, c.questions[0].text, c.questions[0].answer_prefix);
		assert_string_equal(ours, json_string_value(json_object_get(row, "input")));
		assert_string_equal(
			c.questions[0].answers[0], json_string_value(json_array_get(json_object_get(row, "outputs"), 0)));
		free(ours);
		task_context_free(&c);
		json_decref(row);
	}
	free(line);
	fclose(f);
	task_close(t);
}

/* ---- long rows ---- */

static void test_long(void **state)
{
	(void)state;
	need_shared(folder);
	for (int k = 0; k < TASKS; k++) {
		char name[64];
		struct task_context c;
		int64_t length = sanitized()                    ? 20000
				 : strcmp(tasks[k].name, "cwe") ? 170000
								: 120000; /* cwe's long list is not here */
		int64_t start = cpu_ns();
		snprintf(name, sizeof(name), "ruler-%s", tasks[k].name);
		struct task *t = open_task(name, NULL, length);
		if (task_context_make(t, 0, &c, err))
			fail_msg("%s", err);
		double seconds = (double)(cpu_ns() - start) / 1e9;
		const struct task_question *q = &c.questions[0];
		char *all = text_format("%s%s%s", c.text, q->text, q->answer_prefix);
		int64_t tokens = count(tokenizer, all, strlen(all)) + q->max_new_tokens;
		print_message("%-16s %lld tokens in %.2f s\n", tasks[k].name, (long long)tokens, seconds);
		/* fwe is fitted on one vocabulary and steps back: another one's words may take a sixth fewer tokens (140,709
		 * here) */
		assert_true(tokens <= length && tokens > length * (sanitized() || !strcmp(tasks[k].name, "fwe") ? 80 : 98) / 100);
		assert_true(sanitized() || seconds < 10);
		free(all);
		task_context_free(&c);
		task_close(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_multikey_3_bytes),
		cmocka_unit_test(test_long),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
