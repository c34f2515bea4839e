/* run.h: a plan swept into its database: what `run` does, and `paper` with another ending. */
#ifndef KVB_RUN_H
#define KVB_RUN_H

#include "harness/options.h"
#include "harness/sweep.h"

struct run_wish {
	const struct plan *plan;
	const struct options *options; /* of the verb: recorded with the run */
	bool quiet;                    /* no progress lines */
	/* Once the sweep is through, whatever failed in it: prints what there is to see. -1 + err. */
	int (*finish)(struct sweep *s, int64_t took_ns, void *user, char err[ERR_LEN]);
	void *user;
};
/* Opens the database, sweeps, finishes; signals stop it at the next sample. Errors go to stderr. An exit code. */
int run_plan(const struct run_wish *w);
/* "key=value" of every --set and every plan key given as an option, in the order given. Caller frees both levels. */
char **run_overrides(const struct options *o, int *n);
/* plan_read of `path` under them. */
int run_read_plan(struct plan *p, const struct options *o, const char *path, char err[ERR_LEN]);
/* TERM, INT, USR1 ask a verb to stop soon; a second one of the same kind ends the process. */
void run_catch_signals(void);
bool run_stopped(void);
/* Prints what the plan would do (dryrun.h). An exit code. */
int run_dry(const struct plan *p, bool quiet);

#endif
