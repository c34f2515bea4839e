/* task_data.c: see task_data.h. */
#include "harness/task_data.h"
#include "harness/hub_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The first line whose prefix the task has. Set and folder have one name. */
static const struct {
	const char *prefix, *set;
} homes[] = {{"longbench-v2", "longbench-v2"}, {"longbench-", "longbench"}, {"scbench-", "scbench"}, {"ruler-", "ruler"}};

static const char *set_of(const char *task)
{
	for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
		if (!strncmp(task, homes[i].prefix, strlen(homes[i].prefix)))
			return homes[i].set;
	}
	return NULL;
}

char *task_data_path(const char *task, const char *generator)
{
	const char *set = set_of(task);
	if (!set || (!strcmp(set, "ruler") && (!generator || strcmp(generator, "upstream"))))
		return NULL;
	char *folder = manifest_folder(), *path = text_format("%s/%s", folder, set);
	free(folder);
	return path;
}

/* Does the task read this file? Each task of SCBench has its own; the others of a set share theirs. */
static bool reads(const char *task, const struct manifest_file *f)
{
	char own[96];
	const char *end = strrchr(f->name, '.'), *base = strrchr(f->name, '/');
	snprintf(own, sizeof own, "scbench_%s.jsonl", strncmp(task, "scbench-", 8) ? "" : task + 8);
	return strcmp(f->set, "scbench") || strcmp(end, ".jsonl") || !strcmp(base + 1, own);
}

/* LongBench reads a task's own rows before data.zip: those nobody knows. */
static bool has_own_rows(const char *task, const char *path)
{
	bool e = !strncmp(task, "longbench-e-", 12), v2 = !strcmp(task, "longbench-v2");
	const char *name = task + (e ? 12 : 10);
	if (v2 || strncmp(task, "longbench-", 10))
		return false;
	char *here = text_format("%s/%s%s.jsonl", path, name, e ? "_e" : ""),
	     *below = text_format("%s/data/%s%s.jsonl", path, name, e ? "_e" : "");
	bool has = file_exists(here) || file_exists(below);
	free(here);
	free(below);
	return has;
}

void task_data_hint(const char *task, char err[ERR_LEN])
{
	const char *set = set_of(task);
	char *folder = task_data_path(task, "upstream");
	bool missing = false, own = folder && has_own_rows(task, folder);
	for (size_t i = 0; set && i < manifest_count(); i++) {
		const struct manifest_file *f = manifest_at(i);
		size_t n = strlen(set);
		if (!strncmp(f->name, set, n) && f->name[n] == '/' && reads(task, f))
			missing = missing || (!strcmp(manifest_state(f), "missing") && !(own && strstr(f->name, ".zip")));
	}
	free(folder);
	char hint[64];
	size_t len = strlen(err), n = (size_t)snprintf(hint, sizeof hint, "; `kvbench fetch %s` gets its data", set ? set : "");
	if (!missing)
		return;
	if (len + n >= ERR_LEN)
		len = ERR_LEN - 1 - n;
	memcpy(err + len, hint, n + 1);
}

/* Is the file the path itself, or below it? */
static bool is_below(const char *file, const char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	return !strncmp(file, path, n) && (!file[n] || file[n] == '/');
}

/* A file in the place of another is not the pinned one: seen by its size, without reading it. */
static const char *state_of(const struct manifest_file *f, const char *path)
{
	struct stat st;
	const char *state = manifest_state(f);
	return !strcmp(state, "pinned") && f->bytes && !stat(path, &st) && st.st_size != f->bytes ? "unpinned" : state;
}

const char *task_data_state(const char *task, const char *path)
{
	static const char *const states[] = {"pinned", "recorded", "unpinned"};
	int worst = -1;
	for (size_t i = 0; path && i < manifest_count(); i++) {
		const struct manifest_file *f = manifest_at(i);
		char *own = manifest_path(f);
		const char *state = is_below(own, path) && reads(task, f) ? state_of(f, own) : "missing";
		for (int k = 0; k < 3; k++)
			worst = k > worst && !strcmp(state, states[k]) ? k : worst;
		free(own);
	}
	return !path ? "" : worst < 0 || has_own_rows(task, path) ? "unpinned" : states[worst];
}
