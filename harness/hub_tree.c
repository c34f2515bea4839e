/* hub_tree.c: the files of one commit, from the hub's listing, from trees/COMMIT.json or from the snapshot's folder.
 *
 * A listing comes from outside: every path is checked before it becomes part of a tree. */
#include "harness/hub_impl.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void file_free(struct tree_file *f)
{
	free(f->path);
	free(f->etag);
	free(f->blob_id);
	free(f->xet_hash);
}

void tree_free(struct tree *t)
{
	for (size_t i = 0; i < t->n; i++)
		file_free(&t->v[i]);
	free(t->v);
	*t = (struct tree){0};
}

const struct tree_file *tree_find(const struct tree *t, const char *path)
{
	for (size_t i = 0; i < t->n; i++) {
		if (!strcmp(t->v[i].path, path))
			return &t->v[i];
	}
	return NULL;
}

struct tree_file *tree_add(struct tree *t, const char *path)
{
	t->v = mem_grow(t->v, t->n + 1, sizeof *t->v);
	t->v[t->n] = (struct tree_file){.path = text_copy(path), .size = -1};
	return &t->v[t->n++];
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct tree_file *)a)->path, ((const struct tree_file *)b)->path);
}

void tree_sort(struct tree *t)
{
	if (t->n)
		qsort(t->v, t->n, sizeof *t->v, by_path);
}

/* An etag becomes a file name: hex of the known lengths only. */
static char *hex_copy(const char *s, size_t n)
{
	return s && hub_is_hex(s, n) ? text_copy(s) : NULL;
}

static int parse_file(struct tree *t, json_t *row, char err[ERR_LEN])
{
	const char *path = json_string_value(json_object_get(row, "path")),
		   *type = json_string_value(json_object_get(row, "type"));
	if (!path || !type)
		return err_set(err, "the hub's listing has a row without path or type");
	if (!hub_path_ok(path))
		return err_set(err, "the hub's listing holds a path which would leave the folder: refused");
	if (strcmp(type, "file"))
		return 0;
	json_t *size = json_object_get(row, "size"), *lfs = json_object_get(row, "lfs");
	struct tree_file *f = tree_add(t, path);
	f->lfs = json_is_object(lfs);
	f->size = json_is_integer(size) && json_integer_value(size) >= 0 ? json_integer_value(size) : -1;
	f->blob_id = hex_copy(json_string_value(json_object_get(row, "oid")), 40);
	f->xet_hash = hex_copy(json_string_value(json_object_get(row, "xetHash")), 64);
	f->etag = f->lfs ? hex_copy(json_string_value(json_object_get(lfs, "oid")), 64) : text_copy(f->blob_id);
	return 0;
}

int tree_parse(struct tree *t, const char *json, size_t len, char err[ERR_LEN])
{
	json_error_t e;
	json_t *rows = json_loadb(json, len, 0, &e), *row;
	int rc = json_is_array(rows) ? 0
				     : err_set(err, "the hub's listing is not the JSON array it should be (%s)",
					       rows ? "another type" : e.text);
	size_t i;
	json_array_foreach(rows, i, row)
	{
		if (!rc)
			rc = parse_file(t, row, err);
	}
	json_decref(rows);
	return rc;
}

/* ---- trees/COMMIT.json ---- */

static char *tree_path(const char *folder, const char *commit)
{
	return text_format("%s/trees/%s.json", folder, commit);
}

void tree_write(const struct tree *t, const char *folder, const char *commit)
{
	json_t *files = json_object(), *whole = json_pack("{s:i, s:o}", "format_version", 1, "files", files);
	bool complete = !t->partial;
	for (size_t i = 0; i < t->n; i++) {
		const struct tree_file *f = &t->v[i];
		json_t *row = json_object();
		complete = complete && f->blob_id && f->size >= 0 && f->etag;
		json_object_set_new(row, "size", json_integer(f->size));
		json_object_set_new(row, "blob_id", f->blob_id ? json_string(f->blob_id) : json_null());
		if (f->lfs) {
			json_object_set_new(row, "lfs_sha256", f->etag ? json_string(f->etag) : json_null());
			json_object_set_new(row, "lfs_size", json_integer(f->size));
		}
		if (f->xet_hash)
			json_object_set_new(row, "xet_hash", json_string(f->xet_hash));
		json_object_set_new(files, f->path, row);
	}
	char *text = complete ? json_dumps(whole, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL, *path = tree_path(folder, commit);
	if (text && !file_exists(path))
		file_replace(path, text, strlen(text), NULL);
	free(text);
	free(path);
	json_decref(whole);
}

bool tree_read(struct tree *t, const char *folder, const char *commit)
{
	char *path = tree_path(folder, commit);
	json_t *whole = json_load_file(path, 0, NULL), *row;
	const char *name;
	bool ok = json_integer_value(json_object_get(whole, "format_version")) == 1;
	json_object_foreach(json_object_get(whole, "files"), name, row)
	{
		ok = ok && hub_path_ok(name);
		struct tree_file *f = tree_add(t, name);
		json_t *size = json_object_get(row, "size");
		const char *sha = json_string_value(json_object_get(row, "lfs_sha256"));
		f->size = json_is_integer(size) ? json_integer_value(size) : -1;
		f->lfs = sha != NULL;
		f->blob_id = hex_copy(json_string_value(json_object_get(row, "blob_id")), 40);
		f->etag = sha ? hex_copy(sha, 64) : text_copy(f->blob_id);
	}
	ok = ok && t->n;
	if (!ok)
		tree_free(t);
	json_decref(whole);
	free(path);
	return ok;
}

/* ---- a snapshot's folder ---- */

enum { WALK_DEPTH = 16 };

static void walk(struct tree *t, const char *snapshot, const char *below, int depth)
{
	char *folder = text_format("%s/%s", snapshot, below);
	DIR *d = depth < WALK_DEPTH ? opendir(folder) : NULL;
	struct dirent *e;
	while (d && (e = readdir(d))) {
		struct stat st;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		char *path = text_format("%s%s%s", below, *below ? "/" : "", e->d_name),
		     *full = text_format("%s/%s", snapshot, path);
		if (!stat(full, &st) && S_ISDIR(st.st_mode))
			walk(t, snapshot, path, depth + 1);
		else if (!stat(full, &st) && S_ISREG(st.st_mode))
			tree_add(t, path);
		free(path);
		free(full);
	}
	if (d)
		closedir(d);
	free(folder);
}

void tree_walk(struct tree *t, const char *snapshot)
{
	walk(t, snapshot, "", 0);
	t->partial = true;
}
