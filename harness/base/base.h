/* base.h: the few things every folder needs and no folder owns: errors, memory, text, files, clock, hash, random.
 *
 * A leaf: includes nothing of the project, so that tasks/, results/, report/ and runners/ may all include it.
 * Error school of the whole program: a function returns 0, or -1 with one clear sentence in the caller's err
 * buffer (what was being done, to which object, the reason). Only main() ends the process. */
#ifndef KVB_BASE_H
#define KVB_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ERR_LEN = 512 }; /* size every err buffer has */

/* Writes the message and returns -1, so that callers say `return err_set(err, "...")`. err may be NULL. */
int err_set(char err[ERR_LEN], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The process's own words for a wrong end: only main() and option parsing call it. Prints "kvbench: ..." and exits. */
void die(int exit_code, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

/* Plain memory for small things (names, lists, rows): these abort the process when a few bytes cannot be had.
 * Large buffers (weights, caches, scores) go through malloc/device and report an error instead. */
void *mem_new(size_t count, size_t size); /* zeroed; checks count*size for overflow */
void *mem_grow(void *p, size_t count, size_t size);
char *text_copy(const char *s);           /* NULL stays NULL */
char *text_format(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* caller frees */

/* A growing byte string; zero-initialised is empty. text is NUL-terminated after every call (NULL while empty). */
struct strbuf {
	char *text;
	size_t len, cap;
};
void strbuf_add(struct strbuf *b, const char *s, size_t len);
void strbuf_puts(struct strbuf *b, const char *s);
void strbuf_printf(struct strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *strbuf_take(struct strbuf *b); /* hands the text over (never NULL) and empties b */
void strbuf_free(struct strbuf *b);

/* ---- fields.c: text as a field of a table; NULL writes nothing ---- */

/* CSV (RFC 4180): quoted where needed, quotes doubled. A text that a spreadsheet would run as a formula gets a quote mark before it. */
void csv_text(struct strbuf *out, const char *s);
/* Controls become spaces. */
void latex_text(struct strbuf *out, const char *s);
void markdown_text(struct strbuf *out, const char *s);

/* Whole file into fresh memory (NUL added after len bytes); caller frees *data. */
int file_read(const char *path, char **data, size_t *len, char err[ERR_LEN]);
/* path NULL = stdout. A plain file is written beside its place and renamed: a reader sees the old one or the new one, a failure leaves
 * the old one. Pipes and devices are written into; a link stays, its file is the one that changes. */
int file_write(const char *path, const struct strbuf *text, char err[ERR_LEN]);
bool file_exists(const char *path);
/* Whether a finished file may be renamed onto `path`: nothing is there, or a plain file. Else the rename would put the file in the
 * place of a pipe or, for root, of a device. */
int file_check_place(const char *path, char err[ERR_LEN]);

int64_t clock_ns(void);      /* CLOCK_MONOTONIC, the one clock of every duration */
int64_t unix_ms(void);       /* wall time, for records only */

/* Memory of this machine, bytes: all of it; *available: what the system could hand out; *cgroup: what the process's group has left, -1 = no limit. */
int64_t machine_memory(int64_t *available, int64_t *cgroup);
int64_t machine_memory_free(void); /* the lesser of the two */

/* SHA-256 as 64 lower-case hex digits + NUL. */
enum { SHA_LEN = 65 };
void sha256_hex(const void *data, size_t len, char out[SHA_LEN]);
int sha256_file(const char *path, char out[SHA_LEN], char err[ERR_LEN]);
struct sha256; /* incremental */
struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_end(struct sha256 *s, char out[SHA_LEN]); /* frees s */

/* Counter-based random numbers: the k-th number of a stream depends on (seed, stream) alone, never on threads or order. */
struct rng {
	uint64_t state;
};
struct rng rng_seed(uint64_t seed, uint64_t stream);
uint64_t rng_next(struct rng *r);
double rng_unit(struct rng *r);               /* [0,1) */
uint64_t rng_below(struct rng *r, uint64_t n); /* [0,n), unbiased; n > 0 */

/* The nearest of n names to a mistyped one (edit distance), or NULL when none is close: for "did you mean". */
const char *name_nearest(const char *typed, const char *const *names, size_t n);

#endif
