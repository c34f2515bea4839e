/* sweep.h: the sweep: a plan becomes cells, contexts, jobs for the runner, scored rows in the store.
 *
 * Order: model loads outermost (pair x precision), then groups (task x length x protocol), then contexts. One job a context
 * answers all variants of the group from one prefill. Pairs (question, variant) that the store already has are not asked again:
 * the same command resumes. A failed sample is a row and the sweep goes on; only the store's own failure, a stop or a lost device (lost.h)
 * ends it. */
#ifndef KVB_SWEEP_H
#define KVB_SWEEP_H

#include "harness/lost.h"
#include "harness/plan.h"
#include "harness/progress.h"
#include "results/store.h"
#include "runners/runner.h"
#include "tasks/task.h"

/* How a sweep, a load, a group or a context ended; -1: the store failed. */
enum {
	SWEEP_DONE,
	SWEEP_STOPPED,
	SWEEP_LOST,    /* the device is lost to this process: another goes on (lost_restart) */
	SWEEP_GIVEN_UP /* lost.why */
};
enum { MEASURE_VERSION = 1 }; /* of the measuring procedure, part of a cell's identity: raised when a number could change */

struct sweep_work {
	int answers;                           /* (sample, variant) pairs */
	int64_t prefill_tokens, answer_tokens; /* the work they need; answers at their longest */
};

/* task x length x protocol: the cells that share contexts. */
struct sweep_group {
	const struct plan_task *task;
	int64_t length_tokens; /* 0 = the data's own */
	const char *protocol;
	char (*cell_ids)[SHA_LEN]; /* [plan->n_variants] */
	int contexts, samples;     /* planned, samples for each cell */
	struct sweep_work missing; /* what the store does not have yet */
	int64_t longest_tokens;    /* of its contexts, estimated where the task does not fix it */
};

struct sweep_summary {
	int cells, samples, missing; /* of the whole plan; samples: in all cells; missing: not in the store when the load began */
	int ok, failed, oom, not_applicable, empty; /* of this run */
	int loads_failed, contexts_failed, timings_failed;
	int not_equal_to_full; /* answers at r = 1 that differ from the full cache's */
	struct strbuf notes;   /* one line each, for the end of the run */
};

struct sweep {
	const struct plan *plan;
	struct store *store;   /* written */
	struct store *present; /* asked what exists: the same store, or the real one during a dry run; NULL = nothing exists */
	const char *run_id;    /* NULL = dry run */
	struct progress *progress;
	bool (*stop)(void); /* true = give up soon */
	struct sweep_summary sum;
	char fault[ERR_LEN]; /* the store's first failure; ends the sweep */
	struct lost lost;    /* zeroed: a fresh run that will not be gone on with */

	/* the load in hand */
	struct runner *runner;
	int load;                /* its number in the plan, */
	char load_fault[ERR_LEN]; /* and why it cannot be run: the device was lost while it was loaded; "" = it can */
	const char *precision;
	const struct plan_pair *pair;
	char target_id[SHA_LEN], proxy_id[SHA_LEN]; /* proxy_id "" = none */
	struct sweep_group *groups;
	int n_groups;
};

/* Runs the plan. Returns SWEEP_* (done: look into sum), -1 + err when the store failed. */
int sweep_run(struct sweep *s, char err[ERR_LEN]);
/* Opens and plans every load of the plan in turn and hands it to work (returns as sweep_run does); for the dry run. */
int sweep_each_load(struct sweep *s, int (*work)(struct sweep *s, char err[ERR_LEN]), char err[ERR_LEN]);
/* One line: what the longest context of the load needs, all variants of the plan together, before any of it is allocated. */
void sweep_print_memory(const struct sweep *s, FILE *to);
void sweep_free(struct sweep *s);
bool sweep_failed(const struct sweep_summary *sum); /* exit code 1 */

/* ---- between the files of the sweep ---- */

/* How the plan opens that pair. Points into the plan. */
struct runner_options sweep_runner_options(const struct plan *p, const struct plan_pair *pair, const char *precision);
/* Marks in wanted (may be NULL) the (question, variant) pairs the store does not have, and adds their work. */
void sweep_find_missing(
	const struct sweep *s, const struct sweep_group *g, const struct task_context *c, bool *wanted, struct sweep_work *work);
int64_t sweep_context_tokens(
	const struct sweep_group *g, const struct task_context *c); /* a quarter of its bytes where the task fixes none */
/* Answers what is missing of one context. SWEEP_*, -1 the store failed (s->fault). */
int sweep_context_run(struct sweep *s, const struct sweep_group *g, const struct task_context *c);
/* A context that cannot be made: one failed row in every cell, in place of its questions. 0, or -1 (s->fault). */
int sweep_context_failed(struct sweep *s, const struct sweep_group *g, int context, const char *message);
/* Counts and notes answers at r = 1 that differ from the full cache's. -1 + err when the store failed. */
int sweep_check_full(struct sweep *s, const struct sweep_group *g, char err[ERR_LEN]);
/* The group's task with the load's tokenizer; a job over one of its contexts. */
int sweep_task_open(struct sweep *s, const struct sweep_group *g, struct task **out, char err[ERR_LEN]);
struct sweep_job { /* a job over one context: owns the questions, turns and variants a runner_job points to */
	struct runner_job job;
	struct runner_question *questions;
	struct runner_turn *turns; /* of a multi-turn context: question k's history are the first k; NULL else */
	struct runner_variant *variants;
};
void sweep_job_make(struct sweep_job *j, const struct sweep *s, const struct sweep_group *g, const struct task_context *c);
void sweep_job_free(struct sweep_job *j);
void sweep_note(struct sweep *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *sweep_status_name(enum runner_status status);
void sweep_group_name(const struct sweep_group *g, char *out, size_t size); /* "niah-multikey 1024 agnostic" */

#endif
