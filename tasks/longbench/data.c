/* data.c: rows of LongBench from where they lie: a folder, upstream's data.zip, or one file; and upstream's settings files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tasks/archive.h"
#include "tasks/longbench/longbench.h"

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);
	return n >= m && !strcmp(s + n - m, end);
}

static bool is_folder(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* ---- the places a file may be at ---- */

/* Upstream's archive has its files under data/. */
static int zip_read(const char *path, const char *file, char **data, size_t *len, char err[ERR_LEN])
{
	char name[128];
	snprintf(name, sizeof(name), "data/%s", file);
	return archive_read(path, name, file, data, len, err);
}

/* Reads the file when it is there: 0, -1 failed, 1 not there. */
static int try_load(const char *folder, const char *name, const char *file, char **data, size_t *len, char err[ERR_LEN])
{
	char *path = text_format("%s/%s", folder, name);
	int rc = 1;
	if (file_exists(path))
		rc = ends_with(path, ".zip") ? zip_read(path, file, data, len, err) : file_read(path, data, len, err);
	free(path);
	return rc;
}

static int rows_load(const char *path, const char *file, char **data, size_t *len, char err[ERR_LEN])
{
	char below[128];
	snprintf(below, sizeof(below), "data/%s", file);
	const char *const names[] = {file, below, "data.zip"};
	if (!is_folder(path))
		return ends_with(path, ".zip") ? zip_read(path, file, data, len, err) : file_read(path, data, len, err);
	int rc = 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && rc > 0; i++)
		rc = try_load(path, names[i], file, data, len, err);
	return rc > 0 ? err_set(err, "%s: neither %s nor data.zip in it", path, file) : rc;
}

int longbench_rows_read(struct longbench_rows *rows, const char *path, const char *file, char sha[SHA_LEN], char err[ERR_LEN])
{
	size_t len = 0, cap = 0;
	if (rows_load(path, file, &rows->text, &len, err))
		return -1;
	sha256_hex(rows->text, len, sha);
	for (size_t at = 0; at < len;) {
		const char *line = rows->text + at, *end = memchr(line, '\n', len - at);
		size_t n = end ? (size_t)(end - line) : len - at;
		at += n + 1;
		if (strspn(line, " \t\r") >= n)
			continue;
		if ((size_t)rows->n == cap)
			rows->v = mem_grow(rows->v, cap = cap * 2 + 64, sizeof(*rows->v));
		rows->v[rows->n].at = line;
		rows->v[rows->n++].len = n;
	}
	return rows->n ? 0 : err_set(err, "%s: %s has no rows", path, file);
}

void longbench_rows_free(struct longbench_rows *rows)
{
	free(rows->text);
	free(rows->v);
}

char *longbench_file(const struct task_request *rq, const char *name, char err[ERR_LEN])
{
	static const char *const around[] = {"", "/config", "/prompts", "/../config", "/../prompts"};
	char *folder = text_copy(rq->templates ? rq->templates : rq->path);
	if (!rq->templates && !is_folder(folder)) { /* a file: look around the folder it is in */
		char *slash = strrchr(folder, '/');
		strcpy(slash ? slash : folder, slash ? "" : ".");
	}
	char *path = NULL;
	size_t places = rq->templates ? 1 : sizeof(around) / sizeof(around[0]);
	for (size_t i = 0; i < places && !path; i++) {
		path = text_format("%s%s/%s", folder, around[i], name);
		if (!file_exists(path)) {
			free(path);
			path = NULL;
		}
	}
	if (!path)
		err_set(err, "upstream's %s is not in %s; fetch LongBench's settings and name their folder ('templates')", name,
			folder);
	free(folder);
	return path;
}
