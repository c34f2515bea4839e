/* hub_manifest.h: the benchmark data kvbench knows how to get: address, revision and SHA-256 of every file, and the folder it
 * lands in.
 *
 * Folder: $KVBENCH_DATA, else ${XDG_CACHE_HOME:-~/.cache}/kvbench. Files from a hub data set are links into the hub cache. A file
 * whose SHA-256 is not published is recorded at its first fetch (manifest.json in that folder) and held to that from then on. */
#ifndef KVB_HUB_MANIFEST_H
#define KVB_HUB_MANIFEST_H

#include "harness/hub.h"

struct manifest_file {
	const char *set;             /* what the command line calls it: "squad" */
	const char *name;            /* below the data folder: "ruler/squad.json" */
	const char *source;          /* "https://..." or the hub's data set "ORG/NAME" */
	const char *revision, *path; /* hub only */
	int64_t bytes;               /* 0 = not known */
	const char *sha256;          /* NULL = none published */
};
size_t manifest_count(void);
const struct manifest_file *manifest_at(size_t i);

/* The sets by name, what each holds, and whether a file belongs to one ("ruler" takes squad, hotpotqa and essays along). */
struct manifest_set {
	const char *name, *title, *also; /* also: other sets, between blanks */
};
size_t manifest_set_count(void);
const struct manifest_set *manifest_set_at(size_t i);
bool manifest_in_set(const struct manifest_file *f, const struct manifest_set *s);

char *manifest_folder(void);                        /* caller frees */
char *manifest_path(const struct manifest_file *f); /* caller frees */
/* The SHA-256 a file must have: pinned or recorded. False = none yet: rows made from it say "unpinned". */
bool manifest_sha256(const struct manifest_file *f, char sha[SHA_LEN]);
/* "pinned" (SHA-256 is compiled in), "recorded" (at the first fetch), "unpinned" (no SHA-256 yet), "missing". Does not read the
 * file. */
const char *manifest_state(const struct manifest_file *f);
/* The same for any path a task read: of a path not in the data folder "unpinned". */
const char *manifest_state_of_path(const char *path);
int manifest_record(const struct manifest_file *f, const char *sha, char err[ERR_LEN]);

/* One file, checked; recorded where no SHA-256 was known. Nothing is fetched when the right file is there. */
int manifest_fetch_file(struct hub *h, const struct manifest_file *f, char err[ERR_LEN]);
/* Reads upstream's prompts out of its Python files, which must be there: ruler/templates.json, scbench/prompts.json. */
int manifest_prompts(const struct manifest_set *s, char err[ERR_LEN]);
/* Brings every file of the set in, then its prompts. offline: only says what is missing. tell gets a line a file. */
int manifest_fetch(struct hub *h, const struct manifest_set *s, bool offline, void (*tell)(void *user, const char *line),
	void *user, char err[ERR_LEN]);

#endif
