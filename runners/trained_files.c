/* trained_files.c: which trained files a runner's methods read, by name and hash; and every one there is. */
#include "runners/runner_impl.h"

#include <stdlib.h>
#include <string.h>

/* "kind": first digits of the file's hash. */
static void add_file(const struct runner *r, const struct plan_method *m,
	void (*file)(const struct params *p, struct trained_request *q), json_t *files)
{
	struct trained_request q = {
		.target_sha256 = r->info.model_sha256, .proxy_sha256 = r->info.proxy_sha256, .folder = r->calibration_folder};
	char err[ERR_LEN], sha[SHA_LEN];
	file(m->params, &q);
	char *path = trained_store_find(r->weights, &q, sha, err);
	sha[16] = 0;
	json_object_set_new(files, q.kind, json_string(sha));
	free(path);
}

int runner_method_params(const struct runner *r, const char *method, const char *options, char **canonical, char err[ERR_LEN])
{
	struct plan_method m;
	if (method_resolve(&m, method, options, err))
		return -1;
	*canonical = method_canonical(&m);
	json_t *files = json_object(), *all = json_loads(*canonical, 0, NULL);
	if (m.scorer && m.scorer->file)
		add_file(r, &m, m.scorer->file, files);
	if (m.allocator && m.allocator->file)
		add_file(r, &m, m.allocator->file, files);
	if (all && json_object_size(files)) {
		json_object_set(all, "files", files);
		char *json = json_dumps(all, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(15));
		free(*canonical);
		*canonical = text_copy(json);
		free(json);
	}
	json_decref(files);
	json_decref(all);
	method_free(&m);
	return 0;
}

struct each_file {
	void (*found)(void *user, const struct runner_trained_file *t);
	void *user;
};

static void pass_on(void *user, const struct trained_file *t)
{
	const struct each_file *e = user;
	struct runner_trained_file f = {
		t->path, t->kind, t->target_sha256, t->proxy_sha256, t->made_by, t->contexts, t->embedded};
	e->found(e->user, &f);
}

void runner_trained_each(void (*found)(void *user, const struct runner_trained_file *t), void *user)
{
	char *folder = calibration_default();
	struct each_file e = {found, user};
	trained_each(folder, pass_on, &e);
	free(folder);
}
