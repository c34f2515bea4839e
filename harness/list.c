/* list.c: `kvbench list KIND`: what exists, read from the same tables that run it. */
#include "harness/models.h"
#include "harness/verbs.h"
#include "tasks/task.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void list_methods_of(const char *kind)
{
	for (size_t i = 0; i < runner_method_count(); i++) {
		struct runner_method_info m = runner_method_at(i);
		if (strcmp(m.kind, kind))
			continue;
		printf("%-20s %s\n", m.name, m.title);
		if (m.parameters && *m.parameters)
			printf("%-20s   parameters: %s\n", "", m.parameters);
		if (m.origin && *m.origin)
			printf("%-20s   defaults: %s\n", "", m.origin);
	}
}

static void list_methods(const struct options *o)
{
	(void)o;
	list_methods_of("method");
	printf("\nAny scorer combines with any allocator by name: snapkv@pyramid (see `kvbench list scorers`, `kvbench list "
	       "allocators`).\n");
}

static void list_allocators(const struct options *o)
{
	(void)o;
	list_methods_of("allocator");
}

static void list_scorers(const struct options *o)
{
	(void)o;
	list_methods_of("scorer");
}

static void list_tasks(const struct options *o)
{
	(void)o;
	for (size_t i = 0; i < task_def_count(); i++) {
		const struct task_def *t = task_def_at(i);
		printf("%-30s %s\n%-30s   parameters: %s\n", t->name, t->title, "", t->parameters);
	}
}

static void list_metrics(const struct options *o)
{
	(void)o;
	for (size_t i = 0; i < metric_count(); i++) {
		const struct metric_def *m = metric_at(i);
		printf("%-20s %s (%s)\n", m->name, m->title, m->source);
	}
}

static void list_templates(const struct options *o)
{
	(void)o;
	for (size_t i = 0; i < runner_template_count(); i++)
		printf("%s\n", runner_template_at(i));
}

/* Prints FOLDER/NAME for every folder with a config.json, at most `depth` folders down; name grows on the way. */
static void list_folder(const char *folder, const char *name, int depth)
{
	DIR *d = opendir(folder);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		char *path = text_format("%s/%s", folder, e->d_name), *config = text_format("%s/config.json", path);
		char *longer = text_format("%s%s%s", name, *name ? "/" : "", e->d_name);
		if (file_exists(config))
			printf("%s\n", longer);
		else if (depth > 1)
			list_folder(path, longer, depth - 1);
		free(path);
		free(config);
		free(longer);
	}
	if (d)
		closedir(d);
}

static void list_models(const struct options *o)
{
	char *folder = option_has(o, "models") ? text_copy(option_text(o, "models", NULL)) : models_folder();
	list_folder(folder, "", 2);
	free(folder);
	printf("\nAlso any Hugging Face folder or .gguf file of these architectures, and random:CONFIG.json:\n");
	for (size_t i = 0; i < runner_arch_count(); i++)
		printf("  %s\n", runner_arch_at(i));
}

static void list_trained(void *user, const struct runner_trained_file *t)
{
	++*(int *)user;
	printf("%-26s target %.16s  proxy %-16.16s  %3d contexts%s\n  %s%s%s\n", t->kind, t->target_sha256, *t->proxy_sha256 ? t->proxy_sha256 : "-",
		t->contexts, t->embedded ? "  embedded" : "", t->path, *t->made_by ? "\n  made by: " : "", t->made_by);
}

static void list_pairs(const struct options *o)
{
	int n = 0;
	(void)o;
	runner_trained_each(list_trained, &n);
	printf("%s%d trained files. A pair is two models with the same tokenizer: {\"target\": ..., \"proxy\": ...} in a plan; `kvbench train proxykv "
	       "PLAN` makes its mappers.\n",
		n ? "\n" : "", n);
}

static const struct {
	const char *name;
	void (*print)(const struct options *o);
} kinds[] = {{"methods", list_methods}, {"scorers", list_scorers}, {"allocators", list_allocators}, {"tasks", list_tasks},
	{"metrics", list_metrics}, {"models", list_models}, {"templates", list_templates}, {"pairs", list_pairs}};

static int run_list(const struct options *o)
{
	const char *names[sizeof kinds / sizeof *kinds];
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (!strcmp(names[i] = kinds[i].name, o->args[0])) {
			kinds[i].print(o);
			return EXIT_DONE;
		}
	}
	const char *near = name_nearest(o->args[0], names, sizeof kinds / sizeof *kinds);
	die(EXIT_USAGE, "list: there are methods, scorers, allocators, tasks, metrics, models, templates and pairs, not \"%s\"%s%s%s",
		o->args[0], near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static const struct option_def list_options[] = {
	{"models", "DIR", "where model names are looked up (default: runners/model beside the executable)"},
};
const struct verb verb_list = {
	.name = "list",
	.args = "KIND",
	.title = "methods, scorers, allocators, tasks, metrics, models, templates or pairs (trained files)",
	.options = list_options,
	.n_options = 1,
	.min_args = 1,
	.max_args = 1,
	.run = run_list,
};
