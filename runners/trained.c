/* trained.c: see trained.h. */
#include "runners/trained.h"

#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EMBEDDED "runners/model/tiny-pair/trained"
enum { SHA_PART = 16 }; /* digits of a hash in names and lists */

static const char *text_or_empty(const char *s)
{
	return s ? s : "";
}

char *trained_name(const char *kind, const char *target_sha256, const char *proxy_sha256)
{
	const char *proxy = text_or_empty(proxy_sha256), *target = text_or_empty(target_sha256);
	return text_format("%s-%.*s%s%.*s.safetensors", kind, SHA_PART, target, *proxy ? "-" : "", SHA_PART, proxy);
}

/* The embedded files, beside the executable or below the working folder. Caller frees. */
static char *embedded_folder(void)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	exe[n > 0 ? n : 0] = 0;
	char *beside = text_format("%s/" EMBEDDED, n > 0 ? dirname(exe) : ".");
	if (file_exists(beside))
		return beside;
	free(beside);
	return text_copy(EMBEDDED);
}

char *trained_find(const struct trained_request *q, char err[ERR_LEN])
{
	const char *option = q->option ? q->option : "weights";
	if (q->weights && *q->weights) {
		if (file_exists(q->weights))
			return text_copy(q->weights);
		err_set(err, "there is no file %s (option %s)", q->weights, option);
		return NULL;
	}
	char *name = trained_name(q->kind, q->target_sha256, q->proxy_sha256), *found = NULL, *own = embedded_folder();
	const char *folders[2] = {q->folder, own};
	for (int i = 0; i < 2 && !found; i++) {
		char *path = folders[i] ? text_format("%s/%s", folders[i], name) : NULL;
		if (path && file_exists(path))
			found = text_copy(path);
		free(path);
	}
	if (!found)
		err_set(err,
			"no trained file %s in %s or among the embedded ones; make it with: %s, or name it with the option %s", name,
			text_or_empty(q->folder), q->make, option);
	free(own);
	free(name);
	return found;
}

static int is_for(const struct st_file *f, const char *path, const char *key, const char *wanted, char err[ERR_LEN])
{
	const char *has = text_or_empty(st_metadata(f, key));
	if (!strcmp(has, text_or_empty(wanted)))
		return 0;
	return err_set(err, "%s: its %s is %.24s, not %.24s", path, key, *has ? has : "missing",
		*text_or_empty(wanted) ? wanted : "none");
}

int trained_check_named(const struct trained_request *q, char err[ERR_LEN])
{
	struct st_file *f = NULL;
	const char *option = q->option ? q->option : "weights";
	if (!q->weights || !*q->weights)
		return q->must_name ? err_set(err, "names no file (option %s); one is made with: %s", option, q->make) : 0;
	char *path = trained_find(q, err);
	int rc = !path || st_open(&f, path, err) ? -1 : 0;
	if (!rc && !q->must_name && st_metadata(f, "kind"))
		rc = is_for(f, path, "kind", q->kind, err);
	st_close(f);
	free(path);
	return rc;
}

int trained_open(struct st_file **out, const struct trained_request *q, char err[ERR_LEN])
{
	char *path = trained_find(q, err);
	*out = NULL;
	int rc = !path || st_open(out, path, err) || is_for(*out, path, "kind", q->kind, err) ||
		 is_for(*out, path, "target_sha256", q->target_sha256, err) ||
		 is_for(*out, path, "proxy_sha256", q->proxy_sha256, err);
	if (rc) {
		st_close(*out);
		*out = NULL;
	}
	free(path);
	return rc ? -1 : 0;
}

char *trained_target(const char *folder, const char *kind, const char *target_sha256, const char *proxy_sha256, char err[ERR_LEN])
{
	if (mkdir(folder, 0777) && errno != EEXIST) {
		err_set(err, "cannot make the folder %s: %s", folder, strerror(errno));
		return NULL;
	}
	char *name = trained_name(kind, target_sha256, proxy_sha256), *path = text_format("%s/%s", folder, name);
	free(name);
	return path;
}

/* ---- contexts seen in training ---- */

void trained_on_add(struct strbuf *list, const char *context_sha256)
{
	strbuf_printf(list, "%s%.*s", list->len ? " " : "", SHA_PART, context_sha256);
}

int trained_on_refuses(const char *list, const char *what, const char *context_sha256, char err[ERR_LEN])
{
	char part[SHA_PART + 1];
	snprintf(part, sizeof part, "%s", context_sha256);
	if (!list || !*part || !strstr(list, part))
		return 0;
	return err_set(err, "%s was trained on this context (%s...): it is not evaluated on it", what, part);
}

int trained_refuses(const struct st_file *f, const char *context_sha256, char err[ERR_LEN])
{
	return trained_on_refuses(st_metadata(f, "trained_on"), text_or_empty(st_metadata(f, "kind")), context_sha256, err);
}

/* ---- opened once ---- */

struct trained_store {
	struct looked_up {
		char *name; /* what was asked for */
		char *path; /* NULL = it was not there */
		char sha256[SHA_LEN], err[ERR_LEN];
	} * found;
	size_t n_found;
	struct opened {
		char *path;
		trained_reader open;
		void *what;
		void (*close)(void *);
	} * v;
	size_t n;
};

struct trained_store *trained_store_new(void)
{
	return mem_new(1, sizeof(struct trained_store));
}

void trained_store_free(struct trained_store *s)
{
	for (size_t i = 0; s && i < s->n; i++) {
		s->v[i].close(s->v[i].what);
		free(s->v[i].path);
	}
	for (size_t i = 0; s && i < s->n_found; i++) {
		free(s->found[i].name);
		free(s->found[i].path);
	}
	if (s) {
		free(s->v);
		free(s->found);
	}
	free(s);
}

static struct looked_up *look_up(struct trained_store *s, const struct trained_request *q)
{
	char *made = q->weights && *q->weights ? text_copy(q->weights) : trained_name(q->kind, q->target_sha256, q->proxy_sha256);
	for (size_t i = 0; i < s->n_found; i++)
		if (!strcmp(s->found[i].name, made)) {
			free(made);
			return &s->found[i];
		}
	s->found = mem_grow(s->found, s->n_found + 1, sizeof *s->found);
	struct looked_up *l = &s->found[s->n_found++];
	*l = (struct looked_up){.name = made};
	l->path = trained_find(q, l->err);
	if (l->path && sha256_file(l->path, l->sha256, l->err)) {
		free(l->path);
		l->path = NULL;
	}
	return l;
}

char *trained_store_find(struct trained_store *s, const struct trained_request *q, char sha256[SHA_LEN], char err[ERR_LEN])
{
	const struct looked_up *l = look_up(s, q);
	if (sha256)
		memcpy(sha256, l->sha256, SHA_LEN);
	if (l->path)
		return text_copy(l->path);
	err_set(err, "%s", l->err);
	return NULL;
}

/* Whether a file found by name is still the one that was found. */
static int is_unchanged(const struct trained_store *s, const char *path, char err[ERR_LEN])
{
	char now[SHA_LEN];
	for (size_t i = 0; i < s->n_found; i++)
		if (s->found[i].path && !strcmp(s->found[i].path, path)) {
			if (sha256_file(path, now, err))
				return -1;
			return strcmp(now, s->found[i].sha256) ? err_set(err, "%s has changed since this run looked at it first", path) : 0;
		}
	return 0;
}

void *trained_store_get(
	struct trained_store *s, const char *path, trained_reader open, void *user, void (*close)(void *), char err[ERR_LEN])
{
	void *what = NULL;
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i].open == open && !strcmp(s->v[i].path, path))
			return s->v[i].what;
	if (is_unchanged(s, path, err) || open(&what, path, user, err))
		return NULL;
	s->v = mem_grow(s->v, s->n + 1, sizeof *s->v);
	s->v[s->n++] = (struct opened){text_copy(path), open, what, close};
	return what;
}

/* ---- what there is ---- */

static int count_words(const char *list)
{
	int n = 0;
	for (const char *c = list; *c; c++)
		n += *c != ' ' && (c == list || c[-1] == ' ');
	return n;
}

/* Items of a JSON list of texts without quotes in them. */
static int count_quoted(const char *list)
{
	int n = 0;
	for (; *list; list++)
		n += *list == '"';
	return n / 2;
}

/* What a name says, for files whose metadata have another form (mappers). */
struct name_parts {
	char kind[64], target[SHA_PART + 1], proxy[SHA_PART + 1];
};

static bool is_hash(const char *s)
{
	return strspn(s, "0123456789abcdef") == SHA_PART && (s[SHA_PART] == '-' || s[SHA_PART] == '.');
}

/* KIND-HASH[-HASH].safetensors */
static bool name_read(const char *path, struct name_parts *out)
{
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *at = strchr(base, '-');
	*out = (struct name_parts){0};
	while (at && !is_hash(at + 1))
		at = strchr(at + 1, '-');
	if (!at || at - base >= (long)sizeof out->kind)
		return false;
	memcpy(out->kind, base, (size_t)(at - base));
	memcpy(out->target, at + 1, SHA_PART);
	if (at[1 + SHA_PART] == '-' && is_hash(at + 2 + SHA_PART))
		memcpy(out->proxy, at + 2 + SHA_PART, SHA_PART);
	return true;
}

static void show(const char *path, bool embedded, void (*found)(void *user, const struct trained_file *t), void *user)
{
	struct st_file *f = NULL;
	char err[ERR_LEN];
	if (st_open(&f, path, err))
		return;
	struct name_parts name;
	bool named = name_read(path, &name);
	const char *kind = st_metadata(f, "kind") ? st_metadata(f, "kind") : named ? name.kind : NULL;
	struct trained_file t = {.path = path,
		.kind = text_or_empty(kind),
		.target_sha256 = st_metadata(f, "target_sha256") ? st_metadata(f, "target_sha256") : name.target,
		.proxy_sha256 = st_metadata(f, "proxy_sha256") ? st_metadata(f, "proxy_sha256") : name.proxy,
		.made_by = text_or_empty(st_metadata(f, "made_by")),
		.contexts = st_metadata(f, "trained_on") ? count_words(st_metadata(f, "trained_on"))
							 : count_quoted(text_or_empty(st_metadata(f, "contexts"))),
		.embedded = embedded};
	if (kind)
		found(user, &t);
	st_close(f);
}

static int is_trained_name(const struct dirent *e)
{
	size_t n = strlen(e->d_name), tail = strlen(".safetensors");
	return n > tail && !strcmp(e->d_name + n - tail, ".safetensors");
}

void trained_each(const char *folder, void (*found)(void *user, const struct trained_file *t), void *user)
{
	char *own = embedded_folder();
	const char *folders[2] = {folder, own};
	for (int i = 0; i < 2; i++) {
		struct dirent **names = NULL;
		int n = folders[i] ? scandir(folders[i], &names, is_trained_name, alphasort) : 0;
		for (int k = 0; k < n; k++) {
			char *path = text_format("%s/%s", folders[i], names[k]->d_name);
			show(path, i == 1, found, user);
			free(path);
			free(names[k]);
		}
		free(names);
	}
	free(own);
}
