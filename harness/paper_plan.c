/* paper_plan.c: the papers that ship, and how one of them becomes a plan at a scale. See paper.h. */
#include "harness/paper.h"

#include "harness/task_data.h"
#include "runners/runner.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

extern const char harness_papers_proxykv_json[], harness_papers_lkv_json[], harness_papers_kvzip_json[],
	harness_papers_snapkv_longbench_json[], harness_papers_ruler_kvpress_json[], harness_papers_published_json[],
	harness_papers_suites_json[];

static const struct paper_def papers[] = {
	{"proxykv", harness_papers_proxykv_json},
	{"lkv", harness_papers_lkv_json},
	{"kvzip", harness_papers_kvzip_json},
	{"snapkv-longbench", harness_papers_snapkv_longbench_json},
	{"ruler-kvpress", harness_papers_ruler_kvpress_json},
};
const char *const paper_published = harness_papers_published_json, *const paper_suites = harness_papers_suites_json;

size_t paper_count(void)
{
	return sizeof papers / sizeof *papers;
}

const struct paper_def *paper_at(size_t i)
{
	return &papers[i];
}

/* ---- tasks ---- */

/* {"set": NAME, ...} becomes one task object for each member. */
static int expand_sets(json_t *plan, const json_t *sets, char err[ERR_LEN])
{
	json_t *expanded = json_array(), *item, *member;
	size_t i, k;
	int rc = 0;
	json_array_foreach(json_object_get(plan, "tasks"), i, item)
	{
		const char *set = json_string_value(json_object_get(item, "set"));
		const json_t *members = set ? json_object_get(sets, set) : NULL;
		if (!set)
			json_array_append(expanded, item);
		else if (!members)
			rc = err_set(err, "the paper's tasks: no set \"%s\"", set);
		json_array_foreach(members, k, member)
		{
			json_t *one = json_copy(item);
			json_object_del(one, "set");
			json_object_set(one, "name", member);
			json_array_append_new(expanded, one);
		}
	}
	json_object_set_new(plan, "tasks", expanded);
	return rc;
}

static bool data_missing(const json_t *task, char why[ERR_LEN])
{
	const char *name = json_string_value(json_object_get(task, "name"));
	char *path = task_data_path(name, json_string_value(json_object_get(task, "generator")));
	*why = 0;
	if (path && !json_object_get(task, "path")) {
		err_set(why, "task %s", name);
		size_t before = strlen(why);
		task_data_hint(name, why);
		if (strlen(why) == before)
			*why = 0;
	}
	free(path);
	return *why;
}

static void drop_tasks(json_t *plan, struct strbuf *left_out)
{
	json_t *tasks = json_object_get(plan, "tasks");
	for (size_t i = 0; i < json_array_size(tasks);) {
		char why[ERR_LEN];
		if (!data_missing(json_array_get(tasks, i), why)) {
			i++;
			continue;
		}
		strbuf_printf(left_out, "%s\n", why);
		json_array_remove(tasks, i);
	}
}

static bool has_task(const json_t *tasks, const char *name)
{
	size_t i;
	json_t *task;
	json_array_foreach(tasks, i, task)
	{
		if (!strcmp(json_string_value(json_object_get(task, "name")), name))
			return true;
	}
	return false;
}

/* The timing pass keeps to the tasks that are left; without any it is switched off. */
static void trim_timing(json_t *plan)
{
	json_t *timing = json_object_get(plan, "timing"), *names = json_object_get(timing, "tasks");
	for (size_t i = json_array_size(names); i-- > 0;) {
		if (!has_task(json_object_get(plan, "tasks"), json_string_value(json_array_get(names, i))))
			json_array_remove(names, i);
	}
	if (names && !json_array_size(names)) {
		json_object_del(timing, "tasks");
		json_object_set_new(timing, "enabled", json_false());
	}
}

/* ---- methods ---- */

/* A name this build does not have; wrong options of one it has are an error of the plan. */
static void drop_methods(json_t *plan, struct strbuf *left_out)
{
	json_t *methods = json_object_get(plan, "methods");
	for (size_t i = 0; i < json_array_size(methods);) {
		const json_t *one = json_array_get(methods, i);
		const char *name = json_string_value(json_is_string(one) ? one : json_object_get(one, "method"));
		char *params = NULL, why[ERR_LEN];
		if (runner_method_resolve(name, NULL, &params, why)) {
			strbuf_printf(left_out, "method %s: not in this build\n", name);
			json_array_remove(methods, i);
		} else
			i++;
		free(params);
	}
}

/* ---- the plan ---- */

static json_t *copy_of_text(const char *text)
{
	return json_loads(text, 0, NULL);
}

static int set_pair(json_t *plan, const json_t *about, const struct paper_choice *c, char err[ERR_LEN])
{
	const json_t *needs = json_object_get(json_object_get(about, "needs"), c->scale);
	bool needs_model = json_array_size(needs) > 0, needs_proxy = json_array_size(needs) > 1;
	if ((needs_model && !c->model) || (needs_proxy && !c->proxy))
		return err_set(err, "paper %s --scale %s needs --model MODEL%s", c->def->name, c->scale,
			needs_proxy ? " and --proxy MODEL, of one family" : "");
	if (!c->model)
		return c->proxy ? err_set(err, "--proxy goes with --model") : 0;
	json_t *pair = json_pack("{s:s}", "target", c->model);
	if (c->proxy)
		json_object_set_new(pair, "proxy", json_string(c->proxy));
	json_object_set_new(plan, "pairs", json_pack("[o]", pair));
	return 0;
}

int paper_plan(const struct paper_choice *c, char **json, struct strbuf *left_out, char err[ERR_LEN])
{
	json_t *about = copy_of_text(c->def->json), *published = copy_of_text(paper_published);
	json_t *plan = json_deep_copy(json_object_get(about, "plan"));
	char *title = text_format("%s, scale %s", json_string_value(json_object_get(about, "title")), c->scale);
	char *db = text_format("results/paper-%s-%s.db", c->def->name, c->scale);
	json_object_update(plan, json_object_get(about, c->scale));
	json_object_set_new(plan, "title", json_string(title));
	json_object_set_new(plan, "db", json_string(db));
	int rc = set_pair(plan, about, c, err) || expand_sets(plan, json_object_get(published, "sets"), err) ? -1 : 0;
	if (!rc) {
		drop_methods(plan, left_out);
		if (c->have_data)
			drop_tasks(plan, left_out);
		trim_timing(plan);
		if (!json_array_size(json_object_get(plan, "tasks")))
			rc = err_set(err, "none of the paper's tasks has its data here:\n%.300s", left_out->text);
	}
	*json = rc ? NULL : json_dumps(plan, JSON_INDENT(1));
	free(title);
	free(db);
	json_decref(plan);
	json_decref(about);
	json_decref(published);
	return rc;
}
