/* hub_impl.h: what the hub*.c files share: environment, cache layout, listing, HTTP. Only they include it. */
#ifndef KVB_HUB_IMPL_H
#define KVB_HUB_IMPL_H

#include "harness/hub.h"

/* ---- hub_env.c ---- */
struct hub_env {
	char *endpoint; /* without a slash at the end */
	char *cache;
	char *token; /* NULL = none */
	bool offline;
	long meta_sec, idle_sec; /* time-outs: to connect and for listings; without a byte during a download */
};
int hub_env_read(struct hub_env *e, char err[ERR_LEN]);
void hub_env_free(struct hub_env *e);

/* ---- hub_http.c: the only file that knows curl ---- */
struct http;
struct http_reply {
	long status; /* 0 = no answer */
	char *body;  /* of http_text */
	size_t len;
	char *commit, *etag, *location,
		*link; /* headers of the last answer, NULL = absent; etag without W/ and quotes, the linked one first */
	char *error_code, *error_text;
	int64_t size; /* X-Linked-Size, else Content-Length; -1 = not said */
};
void http_reply_free(struct http_reply *r);
int http_open(struct http **out, const struct hub_env *env, const struct hub_options *o, char err[ERR_LEN]);
void http_close(struct http *x);
/* GET into memory, at most 64 MiB, following redirects. -1 also for every status but 200; r is filled either way; caller frees
 * it. */
int http_text(struct http *x, const char *url, struct http_reply *r, char err[ERR_LEN]);
/* HEAD, following only redirects on the same host. 0 for 200 and for redirects to elsewhere. */
int http_head(struct http *x, const char *url, struct http_reply *r, char err[ERR_LEN]);
/* GET to the end of the open file fd, continued from what it holds, until it has `bytes` (-1 = whatever comes). The file may be
 * cut to nothing where the server cannot continue. name: for messages and progress. */
int http_file(struct http *x, const char *url, int fd, const char *name, int64_t bytes, struct http_reply *r, char err[ERR_LEN]);
/* The next http_file calls together bring that many bytes: for the time left. */
void http_expect(struct http *x, int64_t bytes);
void http_tell(const struct http *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- hub_tree.c: the files of a commit ---- */
struct tree_file {
	char *path;
	int64_t size;             /* -1 = not known */
	char *etag;               /* 64 hex: SHA-256; 40 hex: git's SHA-1; else only a name; NULL = not known */
	char *blob_id, *xet_hash; /* as the listing has them; NULL = absent */
	bool lfs;
};
struct tree {
	struct tree_file *v;
	size_t n;
	bool partial; /* holds only what was asked for one by one */
};
void tree_free(struct tree *t);
const struct tree_file *tree_find(const struct tree *t, const char *path);
struct tree_file *tree_add(struct tree *t, const char *path); /* size -1, the rest NULL */
/* Adds one page of the hub's answer. A path which would leave the folder is an error. */
int tree_parse(struct tree *t, const char *json, size_t len, char err[ERR_LEN]);
void tree_sort(struct tree *t);
/* The listing as huggingface_hub stores it in trees/COMMIT.json; best effort. */
void tree_write(const struct tree *t, const char *folder, const char *commit);
bool tree_read(struct tree *t, const char *folder, const char *commit);
/* No stored listing: what the snapshot holds. */
void tree_walk(struct tree *t, const char *snapshot);

/* ---- hub_cache.c: the layout ---- */
bool hub_path_ok(const char *path);       /* relative, no "..", ".", "//", backslash or control character */
bool hub_is_hex(const char *s, size_t n); /* exactly n lower-case hex digits */
/* CACHE/models--ORG--NAME; caller frees. -1 for a name that is none. */
int cache_folder(const struct hub_env *e, enum hub_kind kind, const char *repo, char **folder, char err[ERR_LEN]);
char *cache_snapshot(const char *folder, const char *commit, const char *path); /* path "" = the folder; caller frees */
bool cache_commit(const char *folder, const char *revision, char commit[41]);   /* through refs/, or the revision itself */
bool cache_has(const char *snapshot, const struct tree_file *f);
int cache_ref_write(const char *folder, const char *revision, const char *commit, char err[ERR_LEN]);
void cache_no_exist(const char *folder, const char *commit, const char *path);
void cache_tag(const char *cache); /* CACHEDIR.TAG: backups skip the folder */
int cache_link(const char *folder, const char *commit, const char *path, const char *etag, char err[ERR_LEN]);
int make_folders(const char *file, char err[ERR_LEN]);                               /* all folders above file */
int file_replace(const char *path, const char *data, size_t len, char err[ERR_LEN]); /* temporary file + rename */
int64_t space_free(const char *path); /* of the nearest folder that exists; -1 = not known */
/* Waits for the lock; gives the descriptor to close. shared = the file system has no locks: others may write at the same time. */
int cache_lock(const char *path, int *fd, bool *unsafe, void (*waiting)(void *), void *user, char err[ERR_LEN]);
/* Hash of the file as the etag's kind of hash; true also where the etag is no hash. */
bool hash_matches(const char *path, const char *etag, char err[ERR_LEN]);

#endif
