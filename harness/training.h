/* training.h: what `collect` and `train` share: a plan's contexts handed over for training, and the table of what can be trained.
 *
 * Contexts come from the plan's tasks, made with the training's own seed; the plan's "training" object says how many, where
 * shards and trained files go and what is trained. Of each task's contexts + eval contexts, the `eval` that lie evenly among them are
 * split eval, the others train.
 */
#ifndef KVB_TRAINING_H
#define KVB_TRAINING_H

#include "harness/sweep.h"

/* One kind: a line in the table (training.c); `kvbench collect`, `train`, their --help and errors read it. */
struct training_kind {
	const char *name, *title;
	bool needs_proxy;
	bool features;      /* the plan's training.features say what its shards hold */
	const char *family; /* kinds of one family learn from the same shards */
	int (*collect)(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN]);
	int (*train)(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN]);
	const char *runs; /* JSON list of options objects: the files trained when the plan names none */
};
size_t training_kind_count(void);
const struct training_kind *training_kind_at(size_t i);
const struct training_kind *training_kind_find(const char *name, char err[ERR_LEN]); /* NULL + err: the known ones */

struct training {
	const struct training_kind *kind;
	struct plan plan;              /* seed and contexts are training's */
	int contexts, eval;            /* of each task and length */
	char *shards, *out, *features; /* folders; out NULL = where methods look */
	char **runs;                   /* options of each file, JSON */
	int n_runs;
	struct progress progress;
	struct sweep sweep;     /* the load in hand; no store */
	int collected, present; /* shards written; there before */
};
/* Reads the plan and its training object. Free it in any case. */
int training_read(
	struct training *t, const struct training_kind *kind, const char *plan_path, const struct options *o, char err[ERR_LEN]);
void training_free(struct training *t);
/* Opens pair number i of the plan. */
int training_open(struct training *t, int pair, char err[ERR_LEN]);
void training_close(struct training *t);
/* Writes the shards that are missing. 0, 1 stopped, -1 + err. */
int training_collect(struct training *t, char err[ERR_LEN]);
/* The options of both verbs. */
#define OPTIONS_TRAINING                                                                                                         \
	{"set", "KEY=VALUE", "override a key, dotted for inner ones: training.contexts=48, tasks.lengths=1024"},                 \
		{"shards", "DIR", "where shards are (default: training.shards, or results/shards-PLAN/)"},                       \
	{                                                                                                                        \
		"quiet", NULL, "no progress lines (-q)"                                                                          \
	}

#endif
