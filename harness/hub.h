/* hub.h: models and data from the Hugging Face hub (or from plain web addresses) into local folders.
 *
 * The hub cache is the one which the Python package huggingface_hub keeps (blobs, refs, snapshots, .no_exist, .locks, trees):
 * what one of them fetched, the other finds. Environment: HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH,
 * HF_HUB_OFFLINE and their older names, read anew by every call. A file is in place only when it is whole and its hash is right;
 * what an interruption leaves is continued by the next call. The token goes to the endpoint alone and into no message. Leaves
 * out: which files a benchmark needs (hub_manifest.h), what is printed (fetch.c). */
#ifndef KVB_HUB_H
#define KVB_HUB_H

#include "harness/base/base.h"

struct hub;

struct hub_progress {
	const char *file;     /* what is coming in */
	int64_t done, total;  /* bytes of all files of this call; total 0 = not known */
	double bytes_per_sec; /* since this call's first byte */
	double left_sec;      /* negative while not known */
};

struct hub_options {
	bool offline;                                               /* touch no network, as with HF_HUB_OFFLINE=1 */
	int64_t retry_ms;                                           /* wait before the second try, doubled each time; 0 = 1000 */
	void (*tell)(void *user, const char *line);                 /* a sentence for the user; may be NULL */
	void (*progress)(void *user, const struct hub_progress *p); /* about ten times a second; may be NULL */
	void *user;
};
int hub_open(struct hub **out, const struct hub_options *o, char err[ERR_LEN]);
void hub_close(struct hub *h); /* NULL is fine */

enum hub_kind { HUB_MODEL, HUB_DATASET };
struct hub_request {
	enum hub_kind kind;
	const char *repo;     /* "ORG/NAME" */
	const char *revision; /* branch, tag or commit; NULL = main */
	const char *const
		*files; /* names or shell patterns ("data/ *.jsonl"); none = what a model needs to run, every file of a dataset */
	size_t n_files;
};
/* Brings the files into the cache and gives the snapshot's folder; caller frees. Nothing is written when all is there (read-only
 * caches work), and no network is used when the revision is a commit and all is there. Offline, or with the hub out of reach, the
 * cached snapshot is taken if it is complete; else the error says what is missing and the command which gets it. */
int hub_fetch(struct hub *h, const struct hub_request *rq, char **snapshot, char err[ERR_LEN]);

/* One file of a plain web address to path. sha256 NULL = take what comes; bytes 0 = size not known. A file already there with
 * that hash is kept. got: hash of the file now there. On failure nothing is at path but what was there before. */
int hub_download(struct hub *h, const char *url, const char *path, const char *sha256, int64_t bytes, char got[SHA_LEN],
	char err[ERR_LEN]);

/* Where a fetched model lies, from the cache alone: "ORG/NAME", "ORG/NAME@REVISION" -> snapshot folder; "ORG/NAME/FILE.gguf" ->
 * that file. Caller frees. -1 with what is missing and the command which gets it. */
int hub_model_path(const char *repo, char **path, char err[ERR_LEN]);

/* Text with ~ and $NAME replaced as a shell would; caller frees. */
char *hub_expand(const char *text);

#endif
