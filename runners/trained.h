/* trained.h: where the files of trained methods lie, and whom they fit: one rule for every kind.
 *
 * A file is called KIND-<target sha256, first 16>[-<proxy sha256, first 16>].safetensors. It is looked for at the method's option
 * (`weights` as a rule: a path, which must exist then), in the calibration folder, then among the embedded ones
 * (runners/model/tiny-pair/trained/). Its metadata have at least
 *   kind, target_sha256, proxy_sha256 ("" = none), trained_on (see trained_on_add)
 * and trained_open refuses a file whose kind or models are others. What else is in it is the kind's own affair.
 *
 * A leaf beside model/: names no method, so that methods/, proxykv/, lkv/ and the runner may all include it. */
#ifndef KVB_TRAINED_H
#define KVB_TRAINED_H

#include "runners/model/safetensors.h"

struct trained_request {
	char kind[64];                            /* "proxykv-flat", "head-prior", "lkv" */
	const char *target_sha256, *proxy_sha256; /* proxy NULL or "" = none */
	const char *weights;                      /* the method's option; NULL or "" = look for it */
	const char *option;                       /* what the method calls it, for the message; NULL = "weights" */
	const char *folder;                       /* the calibration folder; NULL = none */
	bool must_name;                           /* no name of its own: the option must say which, whatever kind the file says it is */
	const char *make;                         /* the command that makes one, for the message: "kvbench train proxykv PLAN" */
};
/* KIND-TARGET[-PROXY].safetensors; caller frees. */
char *trained_name(const char *kind, const char *target_sha256, const char *proxy_sha256);
/* The path of the file that fits, or NULL and err: where it was looked for and the command that makes it. Caller frees. */
char *trained_find(const struct trained_request *q, char err[ERR_LEN]);
/* Of a file that the option names: is it there, can it be read, is it of the kind? 0 where the option names none and need not. */
int trained_check_named(const struct trained_request *q, char err[ERR_LEN]);
/* Finds, opens and checks kind and models. */
int trained_open(struct st_file **out, const struct trained_request *q, char err[ERR_LEN]);
/* The folder (made if it is not there) and name of a file to be written; caller frees. NULL + err: the folder cannot be made. */
char *trained_target(
	const char *folder, const char *kind, const char *target_sha256, const char *proxy_sha256, char err[ERR_LEN]);

/* ---- contexts seen in training ----
 * trained_on: the first 16 digits of each context's SHA-256 (session.c: over the context's ids), separated by blanks. */
void trained_on_add(struct strbuf *list, const char *context_sha256);
/* -1 + err when the file was trained on this context: it may not be evaluated on it. */
int trained_refuses(const struct st_file *f, const char *context_sha256, char err[ERR_LEN]);
/* The same over a list as metadata have it (NULL = empty). what: the file or method, for the message. */
int trained_on_refuses(const char *list, const char *what, const char *context_sha256, char err[ERR_LEN]);

/* ---- opened once ----
 * Weights are read when a method first needs them and kept while their owner (a runner) lives: loading is in no timing. One
 * thread at a time. */
struct trained_store;
/* trained_find, asked once for each file: what was not there stays away and what was there stays the same for the store's life, so that
 * rows are what their identity says. sha256: of the file, or NULL = not wanted. Caller frees. */
char *trained_store_find(struct trained_store *s, const struct trained_request *q, char sha256[SHA_LEN], char err[ERR_LEN]);
struct trained_store *trained_store_new(void);
void trained_store_free(struct trained_store *s); /* NULL is fine */
/* What open() made of the file at `path` the first time it was asked for; NULL + err: it could not. Owned by the store, which
 * calls close(). Two uses of one file that make different things of it differ in open. */
typedef int (*trained_reader)(void **out, const char *path, void *user, char err[ERR_LEN]);
void *trained_store_get(
	struct trained_store *s, const char *path, trained_reader open, void *user, void (*close)(void *), char err[ERR_LEN]);

/* ---- what there is ---- */
struct trained_file {
	const char *path, *kind, *target_sha256, *proxy_sha256, *made_by; /* "" where the file does not say */
	int contexts;                                                     /* trained on */
	bool embedded;
};
/* Every trained file of the folder (NULL = none) and of the embedded ones, by name. Strings live until the callback returns. */
void trained_each(const char *folder, void (*found)(void *user, const struct trained_file *t), void *user);

#endif
