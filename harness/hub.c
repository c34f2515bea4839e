/* hub.c: what is wanted, what is there, and how the rest comes in. See hub.h.
 *
 * Order of look-up: a commit whose files are all in the cache (no network) -> offline: the cached reference -> the hub: one
 * request for the commit, one listing, one download a missing file -> the hub out of reach: the cached reference, and that is
 * said. */
#include "harness/hub_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct hub {
	struct hub_env env;
	struct hub_options o;
	struct http *http; /* made at the first request: offline never starts curl */
};

/* What a model needs to run. Weights are chosen by what the repository has: one file, or the shards its index names. */
static const struct {
	const char *name;
	bool optional;
} model_files[] = {{"config.json", false}, {"generation_config.json", true}, {"tokenizer.json", false},
	{"tokenizer_config.json", true}, {"chat_template.jinja", true}, {"special_tokens_map.json", true}};
enum { MODEL_FILES = sizeof model_files / sizeof *model_files, SPARE_BYTES = 16 << 20, PAGES = 1000 };
static const char weights_name[] = "model.safetensors", index_name[] = "model.safetensors.index.json";

int hub_open(struct hub **out, const struct hub_options *o, char err[ERR_LEN])
{
	struct hub *h = mem_new(1, sizeof *h);
	h->o = *o;
	if (hub_env_read(&h->env, err)) {
		free(h);
		return -1;
	}
	h->env.offline |= o->offline;
	*out = h;
	return 0;
}

void hub_close(struct hub *h)
{
	if (!h)
		return;
	http_close(h->http);
	hub_env_free(&h->env);
	free(h);
}

static int online(struct hub *h, char err[ERR_LEN])
{
	return h->http ? 0 : http_open(&h->http, &h->env, &h->o, err);
}

/* ---- one request's place ---- */

struct job {
	struct hub *h;
	const struct hub_request *rq;
	const char *revision;
	char *folder, *snapshot; /* snapshot: once the commit is known */
	char commit[41];
	struct tree tree;
	char **names; /* paths wanted */
	size_t n;
};

static const char *kind_name(enum hub_kind k)
{
	return k == HUB_DATASET ? "dataset" : "model";
}

static void choice_clear(struct job *j)
{
	for (size_t i = 0; i < j->n; i++)
		free(j->names[i]);
	free(j->names);
	j->names = NULL;
	j->n = 0;
}

static void choice_add(struct job *j, const char *path)
{
	for (size_t i = 0; i < j->n; i++) {
		if (!strcmp(j->names[i], path))
			return;
	}
	j->names = mem_grow(j->names, j->n + 1, sizeof *j->names);
	j->names[j->n++] = text_copy(path);
}

static void at_commit(struct job *j, const char commit[41])
{
	memcpy(j->commit, commit, 41);
	free(j->snapshot);
	j->snapshot = cache_snapshot(j->folder, commit, "");
}

static void job_end(struct job *j)
{
	choice_clear(j);
	tree_free(&j->tree);
	free(j->folder);
	free(j->snapshot);
}

/* "kvbench fetch model ORG/NAME --revision R --files ..." */
static char *command_of(const struct job *j)
{
	struct strbuf b = {0};
	strbuf_printf(&b, "kvbench fetch %s %s", kind_name(j->rq->kind), j->rq->repo);
	if (j->rq->revision && strcmp(j->rq->revision, "main"))
		strbuf_printf(&b, " --revision %s", j->rq->revision);
	for (size_t i = 0; i < j->rq->n_files; i++)
		strbuf_printf(&b, "%s%s", i ? "," : " --files '", j->rq->files[i]);
	strbuf_puts(&b, j->rq->n_files ? "'" : "");
	return strbuf_take(&b);
}

/* ---- which files ---- */

/* The shards of the index in the snapshot, where it is there already. */
static int choose_shards(struct job *j, char err[ERR_LEN])
{
	char *path = text_format("%s/%s", j->snapshot, index_name);
	json_t *index = file_exists(path) ? json_load_file(path, 0, NULL) : NULL, *file;
	const char *tensor;
	int rc = index || !file_exists(path) ? 0 : err_set(err, "%s is no JSON", path);
	json_object_foreach(json_object_get(index, "weight_map"), tensor, file)
	{
		const char *name = json_string_value(file);
		if (!rc && (!name || !hub_path_ok(name)))
			rc = err_set(
				err, "%s: tensor %s lies in a file whose name would leave the folder: refused", path, tensor);
		else if (!rc)
			choice_add(j, name);
	}
	json_decref(index);
	free(path);
	return rc;
}

static int choose_model(struct job *j, char err[ERR_LEN])
{
	for (int i = 0; i < MODEL_FILES; i++) {
		if (!model_files[i].optional || tree_find(&j->tree, model_files[i].name))
			choice_add(j, model_files[i].name);
	}
	bool single = tree_find(&j->tree, weights_name), sharded = tree_find(&j->tree, index_name);
	if (single || !sharded) {
		choice_add(j, weights_name);
		return 0;
	}
	choice_add(j, index_name);
	return choose_shards(j, err);
}

static bool is_pattern(const char *s)
{
	return strpbrk(s, "*?[") != NULL;
}

static void choose_matching(struct job *j, const char *pattern)
{
	size_t before = j->n;
	for (size_t i = 0; i < j->tree.n; i++) {
		if (!fnmatch(pattern, j->tree.v[i].path, 0))
			choice_add(j, j->tree.v[i].path);
	}
	if (j->n == before)
		choice_add(j, pattern); /* nothing fits: it shows up as missing, under the name that was asked for */
}

static int choose(struct job *j, char err[ERR_LEN])
{
	choice_clear(j);
	for (size_t i = 0; i < j->rq->n_files; i++)
		choose_matching(j, j->rq->files[i]);
	if (!j->rq->n_files && j->rq->kind == HUB_MODEL)
		return choose_model(j, err);
	if (!j->rq->n_files)
		choose_matching(j, "*");
	return 0;
}

/* ---- what the cache has ---- */

static bool present(const struct job *j, const char *path)
{
	const struct tree_file *f = tree_find(&j->tree, path), named = {.path = (char *)path, .size = -1};
	return cache_has(j->snapshot, f ? f : &named);
}

static void list_missing(const struct job *j, struct strbuf *b)
{
	int n = 0;
	for (size_t i = 0; i < j->n; i++) {
		if (present(j, j->names[i]))
			continue;
		if (++n <= 4)
			strbuf_printf(b, "%s%s", n > 1 ? ", " : "", j->names[i]);
	}
	if (n > 4)
		strbuf_printf(b, " and %d more", n - 4);
}

/* Is everything wanted in the cache, as the stored listing says or, without one, as the snapshot looks? missing names the rest.
 */
static bool cached(struct job *j, struct strbuf *missing)
{
	char commit[41], err[ERR_LEN];
	if (!cache_commit(j->folder, j->revision, commit)) {
		strbuf_printf(missing, "revision %s", j->revision);
		return false;
	}
	at_commit(j, commit);
	tree_free(&j->tree);
	if (!tree_read(&j->tree, j->folder, commit))
		tree_walk(&j->tree, j->snapshot);
	if (choose(j, err))
		strbuf_puts(missing, err);
	else
		list_missing(j, missing);
	return !missing->len && j->n;
}

static int say_missing(const struct job *j, const char *why, const char *missing, char err[ERR_LEN])
{
	char *command = command_of(j);
	err_set(err, "%s: %s %s at %s lacks %s in %s; `%s` gets it", why, kind_name(j->rq->kind), j->rq->repo, j->revision,
		*missing ? missing : "every file", j->h->env.cache, command);
	free(command);
	return -1;
}

/* ---- what the hub has ---- */

/* A path or a revision as part of an address; the slash stays where it separates. */
static void put_escaped(struct strbuf *b, const char *s, bool slash)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
	for (; *s; s++) {
		if (strchr(plain, *s) || (slash && *s == '/'))
			strbuf_add(b, s, 1);
		else
			strbuf_printf(b, "%%%02X", (unsigned char)*s);
	}
}

static char *api_url(const struct job *j, const char *what, const char *revision, const char *query)
{
	struct strbuf b = {0};
	strbuf_printf(&b, "%s/api/%ss/%s/%s/", j->h->env.endpoint, kind_name(j->rq->kind), j->rq->repo, what);
	put_escaped(&b, revision, false);
	strbuf_puts(&b, query);
	return strbuf_take(&b);
}

static char *file_url(const struct job *j, const char *revision, const char *path)
{
	struct strbuf b = {0};
	strbuf_printf(&b, "%s/%s%s/resolve/", j->h->env.endpoint, j->rq->kind == HUB_DATASET ? "datasets/" : "", j->rq->repo);
	put_escaped(&b, revision, false);
	strbuf_puts(&b, "/");
	put_escaped(&b, path, true);
	return strbuf_take(&b);
}

/* What the user can do about a refusal; the message of the transport stays in front. */
static int explain(const struct job *j, const struct http_reply *r, char err[ERR_LEN])
{
	char said[ERR_LEN], hint[ERR_LEN] = "";
	const char *code = r->error_code ? r->error_code : "",
		   *token = j->h->env.token ? "HF_TOKEN has no access" : "set HF_TOKEN";
	snprintf(said, sizeof said, "%.300s", err);
	if (r->status == 403 || !strcmp(code, "GatedRepo"))
		snprintf(hint, sizeof hint, ": accept the licence at %.80s/%.100s; %s", j->h->env.endpoint, j->rq->repo, token);
	else if (r->status == 401)
		snprintf(hint, sizeof hint, ": %s is private, or there is no such repository; %s", j->rq->repo, token);
	else if (!strcmp(code, "RevisionNotFound"))
		snprintf(hint, sizeof hint, ": %s has no revision %.80s", j->rq->repo, j->revision);
	else if (!strcmp(code, "RepoNotFound"))
		snprintf(hint, sizeof hint, ": there is no %s %s", kind_name(j->rq->kind), j->rq->repo);
	return err_set(err, "%s%s", said, hint);
}

static bool unreachable(const struct http_reply *r)
{
	return !r->status || r->status == 408 || r->status == 429 || r->status >= 500;
}

/* The hub has no such address at all (a mirror without listings), which is not the same as having no such repository. */
static bool no_api(const struct http_reply *r)
{
	return !r->error_code && (r->status == 404 || r->status == 405);
}

enum answer { ANSWERED, NO_API, OUT_OF_REACH, REFUSED };

static enum answer answer_of(const struct job *j, const struct http_reply *r, char err[ERR_LEN])
{
	if (no_api(r))
		return NO_API;
	if (unreachable(r))
		return OUT_OF_REACH;
	explain(j, r, err);
	return REFUSED;
}

static enum answer ask_commit(struct job *j, char err[ERR_LEN])
{
	if (hub_is_hex(j->revision, 40)) {
		at_commit(j, j->revision);
		return ANSWERED;
	}
	struct http_reply r;
	char *url = api_url(j, "revision", j->revision, "");
	enum answer a = http_text(j->h->http, url, &r, err) ? answer_of(j, &r, err) : ANSWERED;
	json_t *info = a == ANSWERED ? json_loadb(r.body, r.len, 0, NULL) : NULL;
	const char *sha = json_string_value(json_object_get(info, "sha"));
	if (a == ANSWERED && (!sha || !hub_is_hex(sha, 40))) {
		err_set(err, "%s: the answer names no commit", url);
		a = REFUSED;
	} else if (a == ANSWERED) {
		at_commit(j, sha);
	}
	json_decref(info);
	http_reply_free(&r);
	free(url);
	return a;
}

/* The address of Link: <...>; rel="next" when it stays at the endpoint; NULL = last page. */
static char *next_page(const struct job *j, const char *link, char err[ERR_LEN], int *rc)
{
	const char *from = link && strstr(link, "rel=\"next\"") ? strchr(link, '<') : NULL, *to = from ? strchr(from, '>') : NULL;
	if (!to)
		return NULL;
	size_t n = strlen(j->h->env.endpoint);
	char *url = text_format("%.*s", (int)(to - from - 1), from + 1);
	if (strncmp(url, j->h->env.endpoint, n) || url[n] != '/') {
		*rc = err_set(err, "the hub's listing goes on at another host: refused");
		free(url);
		return NULL;
	}
	return url;
}

static enum answer ask_tree(struct job *j, char err[ERR_LEN])
{
	tree_free(&j->tree);
	char *url = api_url(j, "tree", j->commit, "?recursive=true&expand=false");
	enum answer a = ANSWERED;
	int rc = 0;
	for (int page = 0; url && a == ANSWERED && !rc; page++) {
		struct http_reply r;
		a = http_text(j->h->http, url, &r, err) ? answer_of(j, &r, err) : ANSWERED;
		free(url);
		url = NULL;
		if (a == ANSWERED && !(rc = tree_parse(&j->tree, r.body, r.len, err)))
			url = next_page(j, r.link, err, &rc);
		if (url && page == PAGES)
			rc = err_set(err, "the hub's listing of %s has no end", j->rq->repo);
		http_reply_free(&r);
	}
	free(url);
	tree_sort(&j->tree);
	return rc ? REFUSED : a;
}

/* One file by HEAD, for hubs without listings. A file which is not there is no error. */
static enum answer ask_file(struct job *j, const char *path, char err[ERR_LEN])
{
	struct http_reply r;
	char *url = file_url(j, *j->commit ? j->commit : j->revision, path);
	bool failed = http_head(j->h->http, url, &r, err);
	enum answer a = !failed ? ANSWERED : r.status == 404 ? ANSWERED : unreachable(&r) ? OUT_OF_REACH : REFUSED;
	if (a == REFUSED)
		explain(j, &r, err);
	if (!failed && !*j->commit && r.commit && hub_is_hex(r.commit, 40))
		at_commit(j, r.commit);
	if (!failed && (!r.etag || !*j->commit)) {
		err_set(err, "%s: the answer has no ETag and X-Repo-Commit, so this is no hub; is HF_ENDPOINT right?", url);
		a = REFUSED;
	} else if (!failed) {
		struct tree_file *f = tree_add(&j->tree, path);
		f->etag = text_copy(r.etag);
		f->size = r.location && !r.size ? -1 : r.size; /* 0 would be the redirect's own length */
	}
	http_reply_free(&r);
	free(url);
	return a;
}

/* The names a choice came to which are not known yet: an index's shards. */
static enum answer ask_chosen(struct job *j, char err[ERR_LEN])
{
	enum answer a = ANSWERED;
	for (size_t i = 0; i < j->n && a == ANSWERED; i++) {
		if (!tree_find(&j->tree, j->names[i]))
			a = ask_file(j, j->names[i], err);
	}
	return a;
}

/* Every name that may be wanted, one by one. */
static enum answer ask_files(struct job *j, char err[ERR_LEN])
{
	const char *names[MODEL_FILES + 2] = {weights_name, index_name};
	for (int i = 0; i < MODEL_FILES; i++)
		names[2 + i] = model_files[i].name;
	size_t n = j->rq->n_files ? j->rq->n_files : j->rq->kind == HUB_MODEL ? MODEL_FILES + 2 : 0;
	enum answer a = ANSWERED;
	bool nameless = !n;
	j->tree.partial = true;
	for (size_t i = 0; i < n && a == ANSWERED && !nameless; i++) {
		const char *name = j->rq->n_files ? j->rq->files[i] : names[i];
		nameless = is_pattern(name);
		if (!nameless)
			a = ask_file(j, name, err);
	}
	if (nameless)
		err_set(err, "%s has no listings: name the files, without * and ?", j->h->env.endpoint);
	else if (a == ANSWERED && !*j->commit)
		err_set(err, "there is no %s %s at %s", kind_name(j->rq->kind), j->rq->repo, j->h->env.endpoint);
	return nameless || (a == ANSWERED && !*j->commit) ? REFUSED : a;
}

static enum answer ask(struct job *j, char err[ERR_LEN])
{
	enum answer a = ask_commit(j, err);
	if (a == ANSWERED)
		a = ask_tree(j, err);
	return a == NO_API ? ask_files(j, err) : a;
}

/* ---- bringing files in ---- */

static char *blob_path(const struct job *j, const char *etag, const char *ending)
{
	return text_format("%s/blobs/%s%s", j->folder, etag, ending);
}

static int64_t size_on_disk(const char *path)
{
	struct stat st;
	return stat(path, &st) ? -1 : (int64_t)st.st_size;
}

/* A blob cut short by a crash counts as absent. */
static bool blob_whole(const struct job *j, const struct tree_file *f)
{
	char *blob = blob_path(j, f->etag, "");
	int64_t have = size_on_disk(blob);
	free(blob);
	return have >= 0 && (f->size < 0 || have == f->size);
}

/* Bytes still to come for a file: none when the blob is there, the rest of a partial one. */
static int64_t bytes_missing(const struct job *j, const struct tree_file *f)
{
	if (f->size <= 0 || blob_whole(j, f))
		return 0;
	char *part = blob_path(j, f->etag, ".kvb.incomplete");
	int64_t some = size_on_disk(part);
	free(part);
	return some > 0 && some < f->size ? f->size - some : f->size;
}

static int check_space(const char *where, int64_t bytes, char err[ERR_LEN])
{
	int64_t have = space_free(where);
	if (!bytes || have < 0 || bytes + SPARE_BYTES <= have)
		return 0;
	return err_set(err, "%.1f MB are to come and %.1f MB are free at %s", (double)bytes / 1e6, (double)have / 1e6, where);
}

/* The partial file into place: whole, synced, right, readable as the umask says. 1 = wrong bytes, thrown away. */
static int finish_part(int fd, const char *part, const char *path, const char *etag, char err[ERR_LEN])
{
	if (!hash_matches(part, etag, err)) {
		unlink(part);
		return 1;
	}
	mode_t mask = umask(0);
	umask(mask);
	if (fsync(fd) || fchmod(fd, 0666 & ~mask) || rename(part, path))
		return err_set(err, "cannot put %s in place: %s", path, strerror(errno));
	return 0;
}

/* Downloads to part and renames; wrong bytes are fetched once more from the start. resume = go on from what part holds. */
static int bring(struct hub *h, const char *url, const char *name, const char *part, const char *path, const char *etag,
	int64_t bytes, bool resume, struct http_reply *r, char err[ERR_LEN])
{
	int rc = 1;
	for (int try = 0; rc == 1 && try < 2; try++) {
		int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | (resume && !try ? 0 : O_TRUNC), 0600);
		if (fd < 0)
			return err_set(err, "cannot write %s: %s", part, strerror(errno));
		http_reply_free(r);
		rc = http_file(h->http, url, fd, name, bytes, r, err);
		if (!rc)
			rc = finish_part(fd, part, path, etag, err);
		if (rc == 1)
			http_tell(h->http, "%s: %s%s", name, err, try ? "" : "; fetched once more");
		close(fd);
	}
	if (rc == 1) {
		char said[ERR_LEN];
		snprintf(said, sizeof said, "%.400s", err);
		err_set(err, "%s: %s, twice", name, said);
	}
	return rc ? -1 : 0;
}

struct waiting {
	struct hub *h;
	const char *name;
};

static void tell_waiting(void *user)
{
	const struct waiting *w = user;
	http_tell(w->h->http, "%s: another process is fetching it; waiting", w->name);
}

/* Under the file's lock: the blob, if it is not there by now. */
static int bring_blob(struct job *j, const struct tree_file *f, bool unsafe, char err[ERR_LEN])
{
	if (blob_whole(j, f))
		return 0;
	char *blob = blob_path(j, f->etag, ""), *url = file_url(j, j->commit, f->path);
	char *part =
		unsafe ? text_format("%s.%ld.kvb.incomplete", blob, (long)getpid()) : blob_path(j, f->etag, ".kvb.incomplete");
	struct http_reply r = {.size = -1};
	int rc = make_folders(blob, err) || bring(j->h, url, f->path, part, blob, f->etag, f->size, !unsafe, &r, err) ? -1 : 0;
	if (rc && r.status >= 400)
		explain(j, &r, err);
	http_reply_free(&r);
	free(part);
	free(blob);
	free(url);
	return rc;
}

static int bring_file(struct job *j, const struct tree_file *f, char err[ERR_LEN])
{
	if (!f->etag)
		return err_set(err, "%s: the hub names no hash for it", f->path);
	const char *base = strrchr(j->folder, '/') + 1;
	char *lock = text_format("%s/.locks/%s/%s.lock", j->h->env.cache, base, f->etag);
	struct waiting w = {j->h, f->path};
	int fd = -1;
	bool unsafe = false;
	int rc = cache_lock(lock, &fd, &unsafe, tell_waiting, &w, err);
	if (!rc)
		rc = bring_blob(j, f, unsafe, err);
	if (!rc)
		rc = cache_link(j->folder, j->commit, f->path, f->etag, err);
	if (fd >= 0)
		close(fd); /* the lock goes with it */
	free(lock);
	return rc;
}

/* Everything chosen which is not there yet. changed: something was written. */
static int bring_all(struct job *j, bool *changed, char err[ERR_LEN])
{
	int64_t bytes = 0;
	struct strbuf absent = {0};
	for (size_t i = 0; i < j->n; i++) {
		const struct tree_file *f = tree_find(&j->tree, j->names[i]);
		if (!f)
			strbuf_printf(&absent, "%s%s", absent.len ? ", " : "", j->names[i]);
		else if (f->etag && !present(j, f->path))
			bytes += bytes_missing(j, f);
	}
	int rc = 0;
	if (absent.len)
		rc = err_set(err, "%s %s at %s has no %s%s", kind_name(j->rq->kind), j->rq->repo, j->revision, absent.text,
			j->rq->n_files ? "" : "; --files names what is wanted instead");
	strbuf_free(&absent);
	if (rc || check_space(j->h->env.cache, bytes, err))
		return -1;
	http_expect(j->h->http, bytes);
	for (size_t i = 0; i < j->n && !rc; i++) {
		if (present(j, j->names[i]))
			continue;
		*changed = true;
		rc = bring_file(j, tree_find(&j->tree, j->names[i]), err);
	}
	return rc;
}

/* What else the cache keeps of a commit; failing here loses nothing but speed. */
static int leave_notes(struct job *j, char err[ERR_LEN])
{
	cache_tag(j->h->env.cache);
	tree_write(&j->tree, j->folder, j->commit);
	for (int i = 0; i < MODEL_FILES && j->rq->kind == HUB_MODEL && !j->rq->n_files; i++) {
		if (model_files[i].optional && !tree_find(&j->tree, model_files[i].name))
			cache_no_exist(j->folder, j->commit, model_files[i].name);
	}
	return hub_is_hex(j->revision, 40) ? 0 : cache_ref_write(j->folder, j->revision, j->commit, err);
}

/* An index is fetched first; only then its shards are known. */
static int bring_chosen(struct job *j, char err[ERR_LEN])
{
	bool changed = false;
	for (size_t known = 0;;) {
		if (choose(j, err))
			return -1;
		if (j->n == known)
			break;
		known = j->n;
		if (j->tree.partial && ask_chosen(j, err) != ANSWERED)
			return -1;
		if (bring_all(j, &changed, err))
			return -1;
	}
	if (changed)
		return leave_notes(j, err);
	if (!hub_is_hex(j->revision, 40))
		cache_ref_write(j->folder, j->revision, j->commit, NULL); /* the cache may be read-only */
	return 0;
}

static int fetch_online(struct job *j, char err[ERR_LEN])
{
	char why[ERR_LEN];
	enum answer a = online(j->h, err) ? REFUSED : ask(j, err);
	if (a == ANSWERED)
		return bring_chosen(j, err);
	if (a != OUT_OF_REACH)
		return -1;
	snprintf(why, sizeof why, "%.250s", err);
	struct strbuf missing = {0};
	int rc = cached(j, &missing) ? 0 : say_missing(j, why, missing.text ? missing.text : "", err);
	if (!rc)
		http_tell(j->h->http, "%s; %s %s is taken from the cache, commit %s", why, kind_name(j->rq->kind), j->rq->repo,
			j->commit);
	strbuf_free(&missing);
	return rc;
}

static int job_begin(struct job *j, struct hub *h, const struct hub_request *rq, char err[ERR_LEN])
{
	*j = (struct job){.h = h, .rq = rq, .revision = rq->revision ? rq->revision : "main"};
	if (!hub_path_ok(j->revision))
		return err_set(err, "\"%s\" is no revision: a branch, tag or commit is wanted", j->revision);
	return cache_folder(&h->env, rq->kind, rq->repo, &j->folder, err);
}

int hub_fetch(struct hub *h, const struct hub_request *rq, char **snapshot, char err[ERR_LEN])
{
	struct job j;
	struct strbuf missing = {0};
	int rc = job_begin(&j, h, rq, err);
	bool fixed = !rc && hub_is_hex(j.revision, 40);
	if (!rc && !((fixed || h->env.offline) && cached(&j, &missing)))
		rc = h->env.offline ? say_missing(&j, "offline", missing.text ? missing.text : "", err) : fetch_online(&j, err);
	if (!rc)
		*snapshot = text_copy(j.snapshot);
	strbuf_free(&missing);
	job_end(&j);
	return rc;
}

/* ---- plain web addresses ---- */

int hub_download(
	struct hub *h, const char *url, const char *path, const char *sha256, int64_t bytes, char got[SHA_LEN], char err[ERR_LEN])
{
	if (file_exists(path) && sha256 && !sha256_file(path, got, NULL) && !strcmp(got, sha256))
		return 0;
	if (h->env.offline)
		return err_set(err, "offline: %s is not there, and it comes from %s", path, url);
	if (online(h, err) || make_folders(path, err) || check_space(path, bytes, err))
		return -1;
	http_expect(h->http, bytes);
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char *part = text_format("%s.kvb.incomplete", path), *lock = text_format("%.*s.%s.lock", (int)(name - path), path, name);
	struct waiting w = {h, path};
	struct http_reply r = {.size = -1};
	int fd = -1;
	bool unsafe = false;
	int rc = cache_lock(lock, &fd, &unsafe, tell_waiting, &w, err);
	if (!rc) /* without a hash a half-file of yesterday and today's other half would pass for one */
		rc = bring(h, url, name, part, path, sha256 ? sha256 : "", bytes ? bytes : -1, sha256 && !unsafe, &r, err);
	if (!rc)
		rc = sha256_file(path, got, err);
	if (fd >= 0)
		close(fd);
	http_reply_free(&r);
	free(part);
	free(lock);
	return rc;
}

/* ---- models by name ---- */

/* "ORG/NAME[@REVISION]" or "ORG/NAME/FILE": cuts spec in place. */
static void split_name(char *spec, const char **revision, const char **file)
{
	char *slash = strchr(spec, '/'), *second = slash ? strchr(slash + 1, '/') : NULL, *at = strchr(spec, '@');
	*revision = *file = NULL;
	if (at && (!second || at < second)) {
		*at = 0;
		*revision = at + 1;
	} else if (second) {
		*second = 0;
		*file = second + 1;
	}
}

int hub_model_path(const char *repo, char **path, char err[ERR_LEN])
{
	struct hub *h = NULL;
	char *spec = text_copy(repo), *snapshot = NULL;
	struct hub_request rq = {.kind = HUB_MODEL, .repo = spec};
	const char *file;
	split_name(spec, &rq.revision, &file);
	if (file) {
		rq.files = &file;
		rq.n_files = 1;
	}
	int rc = hub_open(&h, &(struct hub_options){.offline = true}, err) || hub_fetch(h, &rq, &snapshot, err) ? -1 : 0;
	if (!rc)
		*path = file ? text_format("%s/%s", snapshot, file) : text_copy(snapshot);
	free(snapshot);
	free(spec);
	hub_close(h);
	return rc;
}
