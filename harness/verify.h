/* verify.h: between verify.c (the verb: loads a database, prints what was found) and verify_checks.c (the checks).
 *
 * An audit is the whole database in memory, small: of texts only what tells rows apart. Cells that may be compared with each
 * other share a group: everything equal but method and ratio. Every text is owned by the audit. */
#ifndef KVB_VERIFY_H
#define KVB_VERIFY_H

#include "results/store.h"

struct audit_sample {                            /* ordered by id within its cell */
	const char *id, *context, *prompt, *run; /* prompt: SHA-256 of its ids */
	char answer[SHA_LEN];                    /* SHA-256 of answer ids and text */
	bool ok, empty, by_length;               /* by_length: ended by the limit of tokens */
	bool counts_wrong;                       /* entries kept: their sum, their number of heads or one of them cannot be */
	double score, also, retained;
	int flags, context_tokens, scorer;
	int64_t cut_tokens;
};

enum { AUDIT_REPETITIONS = 256 };
struct audit_timing {    /* ns, repetitions that are not warm-up, of the run with most of them */
	const char *run; /* NULL = not timed */
	int n;
	double prefill[AUDIT_REPETITIONS], parts[AUDIT_REPETITIONS], ttft[AUDIT_REPETITIONS];
	int64_t tokens[AUDIT_REPETITIONS];
};

struct audit_cell {
	struct cell_row row;
	int group, comparable; /* index of the first cell of its group; of the first that is equal but for the protocol */
	char label[256];       /* "niah-multikey 512 agnostic, snapkv r 0.3" */
	struct audit_sample *samples;
	int n;
	struct audit_timing *timing; /* NULL = not timed */
	const char *message;         /* of the first sample that is not ok; "" */
};

struct audit_run {
	const char *id, *machine, *version;
	bool ended, dirty;
};

struct finding {
	const struct check *check;
	bool fault; /* else a notice */
	char *where, *what;
};

struct audit {
	struct store *store;
	struct audit_cell *cells;
	int n_cells;
	struct audit_run *runs;
	int n_runs;
	char **texts; /* owns them */
	size_t n_texts, cap_texts;
	struct finding *found;
	int n_found;
	const struct check *running;
	char err[ERR_LEN]; /* of a check that had to read again */
};

struct check {
	const char *name, *title; /* title: what is so when nothing is found */
	void (*run)(struct audit *a);
};
extern const struct check checks[];
extern const int n_checks;

/* Reads the database; -1 + err. audit_close in any case. */
int audit_open(struct audit *a, const char *path, char err[ERR_LEN]);
void audit_close(struct audit *a);
/* Runs every check; findings are in a->found, in the checks' order. -1 + err when one could not be made. */
int audit_check(struct audit *a, char err[ERR_LEN]);
int audit_faults(const struct audit *a);

/* ---- for the checks ---- */
void audit_find(struct audit *a, bool fault, const char *where, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
const struct audit_cell *audit_full(const struct audit *a, int group); /* NULL = not there */
const struct audit_cell *audit_random(const struct audit *a, int group, int ppm);
const struct audit_sample *audit_sample(const struct audit_cell *c, const char *id);

#endif
