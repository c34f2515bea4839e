/* history.h: the history file beside the nights' databases: baselines by name, nights, their figures and alerts. What the verbs
 * `baseline` and `gate` share. */
#ifndef KVB_HISTORY_H
#define KVB_HISTORY_H

#include "results/compare.h"

/* "history.db" in the folder of database `db` (a spec PATH[:RUN]); fresh. */
char *history_beside(const char *db);

struct baseline { /* the newest version of a name; texts are owned here */
	char *name, *database, *run_id, *digest, *commit, *why; /* database: as it can be opened from here */
	int version;            /* 0 = there is none of that name */
	int64_t set_unix_ms;
};
/* 0 also where the file or the name is not there (version 0). */
int history_baseline(struct baseline *b, const char *history, const char *name, char err[ERR_LEN]);
void baseline_free(struct baseline *b);
/* The path as a history keeps it: relative to its folder where the database lies below it, else absolute. Fresh. */
char *history_path_of(const char *history, const char *database);

/* Notices of steps that began within the last `recent` nights, as the figures of the history tell (absolute times: of this machine
 * only). */
int history_steps(struct gate *g, struct store *history, const char *machine, int recent, char err[ERR_LEN]);

/* "c0ffee..beef: 3 commits: ..." as git in the current folder tells, or without a list where it cannot. Fresh. */
char *commits_between(const char *old, const char *new);

#endif
