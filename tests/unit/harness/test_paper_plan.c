/* The papers that ship: each is a plan at each scale, of tasks, methods, models and figures that exist. */
#include "tests/unit/test.h"

#include "harness/models.h"
#include "harness/paper.h"
#include "runners/runner.h"
#include "tasks/task.h"

static json_t *parse(const char *text)
{
	json_error_t why;
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &why);
	if (!j)
		fail_msg("line %d: %s", why.line, why.text);
	return j;
}

static bool is_task(const char *name)
{
	for (size_t i = 0; i < task_def_count(); i++) {
		if (!strcmp(task_def_at(i)->name, name))
			return true;
	}
	return false;
}

static struct plan read_plan(const struct paper_def *def, const char *scale, struct strbuf *left_out)
{
	char err[ERR_LEN], *text;
	bool small = !strcmp(scale, "small");
	struct paper_choice c = {.def = def, .scale = scale, .model = small ? "m" : NULL, .proxy = small ? "p" : NULL};
	struct plan p;
	if (paper_plan(&c, &text, left_out, err) || plan_read_text(&p, text, "paper", NULL, 0, err))
		fail_msg("%s at %s: %s", def->name, scale, err);
	free(text);
	return p;
}

static void every_paper_is_a_plan_at_every_scale(void **state)
{
	(void)state;
	static const char *const scales[] = {"tiny", "small", "full"};
	for (size_t i = 0; i < paper_count(); i++) {
		for (int k = 0; k < 3; k++) {
			struct strbuf left_out = {0};
			struct plan p = read_plan(paper_at(i), scales[k], &left_out);
			assert_true(p.n_tasks > 0 && p.n_pairs > 0 && p.n_variants > 8);
			char *db = text_format("results/paper-%s-%s.db", paper_at(i)->name, scales[k]);
			assert_string_equal(p.db, db);
			free(db);
			plan_free(&p);
			strbuf_free(&left_out);
		}
	}
}

/* At full scale every pair has a shape that lies here, every task its sizes. */
static void full_scale_can_be_estimated(void **state)
{
	(void)state;
	json_t *suites = parse(paper_suites);
	for (size_t i = 0; i < paper_count(); i++) {
		struct strbuf left_out = {0};
		struct plan p = read_plan(paper_at(i), "full", &left_out);
		for (int k = 0; k < p.n_tasks; k++) {
			if (!json_object_get(json_object_get(suites, "tasks"), p.tasks[k].name))
				fail_msg("%s: no sizes of %s", paper_at(i)->name, p.tasks[k].name);
		}
		for (int k = 0; k < 2 * p.n_pairs; k++) {
			const char *name = k % 2 ? p.pairs[k / 2].proxy : p.pairs[k / 2].target;
			const char *file =
				name ? json_string_value(json_object_get(json_object_get(suites, "models"), name)) : NULL;
			char *path = text_format("runners/model/configs/%s.json", file ? file : "");
			if (name && (!file || !file_exists(path)))
				fail_msg("%s: no shape of %s", paper_at(i)->name, name);
			free(path);
		}
		plan_free(&p);
		strbuf_free(&left_out);
	}
	json_decref(suites);
}

static void figures_have_sources_and_sets_have_tasks(void **state)
{
	(void)state;
	json_t *published = parse(paper_published), *sources = json_object_get(published, "sources"), *record, *members, *value,
	       *one;
	size_t i, k, figures = 0;
	const char *name;
	json_array_foreach(json_object_get(published, "records"), i, record)
	{
		const json_t *retained = json_object_get(record, "retained");
		assert_non_null(json_object_get(sources, json_string_value(json_object_get(record, "source"))));
		assert_true(json_is_null(retained) || (json_number_value(retained) > 0 && json_number_value(retained) <= 1));
		assert_true(
			json_is_string(json_object_get(record, "model")) && json_is_integer(json_object_get(record, "length")));
		json_object_foreach(json_object_get(record, "values"), name, value)
		{
			assert_true(json_is_number(value));
			figures++;
		}
	}
	assert_int_equal(figures, 2212);
	json_object_foreach(json_object_get(published, "sets"), name, members)
	{
		json_array_foreach(members, k, one)
		{
			if (!is_task(json_string_value(one)))
				fail_msg("%s: no task %s", name, json_string_value(one));
		}
	}
	json_decref(published);
}

/* What a paper compares with exists; what stands in for a suite is a task. */
static void papers_name_what_is_there(void **state)
{
	(void)state;
	json_t *published = parse(paper_published);
	for (size_t i = 0; i < paper_count(); i++) {
		json_t *about = parse(paper_at(i)->json), *one, *list;
		size_t k, n;
		const char *name;
		json_array_foreach(json_object_get(about, "records"), k, one)
		{
			const char *source = json_string_value(json_is_array(one) ? json_array_get(one, 0) : one);
			assert_non_null(json_object_get(json_object_get(published, "sources"), source));
		}
		json_object_foreach(json_object_get(about, "stand_ins"), name, list)
		{
			json_array_foreach(list, n, one) assert_true(is_task(json_string_value(one)));
		}
		assert_true(json_array_size(json_object_get(about, "states")) > 0 &&
			    json_array_size(json_object_get(about, "not_stated")) > 0);
		json_decref(about);
	}
	json_decref(published);
}

static void a_small_paper_needs_its_models(void **state)
{
	(void)state;
	char err[ERR_LEN], *text = NULL;
	struct strbuf left_out = {0};
	struct paper_choice c = {.def = paper_at(0), .scale = "small", .model = "m"}; /* proxykv */
	assert_int_equal(paper_plan(&c, &text, &left_out, err), -1);
	assert_non_null(strstr(err, "--model MODEL and --proxy MODEL"));
	strbuf_free(&left_out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_paper_is_a_plan_at_every_scale),
		cmocka_unit_test(full_scale_can_be_estimated), cmocka_unit_test(figures_have_sources_and_sets_have_tasks),
		cmocka_unit_test(papers_name_what_is_there), cmocka_unit_test(a_small_paper_needs_its_models)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
