/* plan.h: what a run is asked to do: a JSON file with overrides from the command line, checked as a whole before anything is
 * loaded.
 *
 * Lists expand to a grid: pairs x precisions (a model load each, outermost), then tasks x lengths, protocols, methods x retained.
 * The keys are one table (plan.c): parsing, --help and "did you mean" read it. `full` and `random` are always added. */
#ifndef KVB_PLAN_H
#define KVB_PLAN_H

#include "harness/base/base.h"
#include "harness/options.h"

#include <stdio.h>

struct texts {
	char **v;
	int n;
};
struct numbers {
	double *v;
	int n;
};

struct plan_pair {
	char *target, *proxy; /* proxy NULL = none */
};

struct plan_task {
	char *name, *path, *templates, *wording, *mode, *truncate, *generator, *release; /* but for the name: NULL = none given */
	struct numbers lengths;                                            /* target tokens; 0 = the data's own length */
	int contexts, questions, needles, values, queries, max_new_tokens; /* 0 = the task's default */
	double depth;                                                      /* NAN = spread evenly */
};

struct plan_method {
	char *name, *options; /* options: JSON text as the plan gave it; NULL = none */
	char *params;         /* effective parameters, canonical JSON */
};

struct plan_variant { /* a method at a ratio */
	int method;   /* index into methods */
	double retained;
	int retained_ppm;
};

struct plan_timing {
	bool enabled;
	int repetitions, warmup, decode_tokens;
	struct texts tasks, protocols;    /* empty: the first task; all protocols */
	struct numbers lengths, retained; /* empty: the longest length of the task; all ratios */
};

struct plan {
	char *title, *db, *report, *chat_template, *device, *proxy_device, *attention, *isa, *models;
	struct texts targets, precisions, protocols;
	struct plan_pair *pairs;
	struct plan_task *tasks;
	struct plan_method *methods;
	struct plan_variant *variants; /* full first, then methods x retained in plan order */
	int n_pairs, n_tasks, n_methods, n_variants;
	struct numbers retained;
	struct plan_timing timing;
	int64_t memory_bytes;
	int seed, max_new_tokens, threads, proxy_threads;
	bool allow_long, seed_given, kv_offload;
	char *training; /* what `train` does, JSON object (harness/training.c); NULL = not said */
	char *json; /* the plan as it ran: file + overrides, canonical JSON */
};

/* overrides: "key=value" (key may be dotted, timing.repetitions=9; through a list it reaches every item, tasks.contexts=3; value
 * is JSON, a comma list or plain text). One error names what is wrong and the nearest right name. plan_free also after an error.
 */
int plan_read(struct plan *p, const char *path, const char *const *overrides, int n_overrides, char err[ERR_LEN]);
/* The same of a plan's text; path gives it its names (title, database) where it has none. */
int plan_read_text(
	struct plan *p, const char *text, const char *path, const char *const *overrides, int n_overrides, char err[ERR_LEN]);
void plan_free(struct plan *p);
/* For what opens a plan's models once: more than one precision, or pair where `pairs` is false, is an error that says how to choose. */
int plan_check_single(const struct plan *p, bool pairs, char err[ERR_LEN]);

/* For what runs a plan's methods: each has the proxy and the files that it names. */
int plan_check_methods(const struct plan *p, char err[ERR_LEN]);

void plan_print_keys(FILE *to, const struct verb *v); /* those that the verb does something with; NULL = all */
/* The plan key behind a command-line option of that name (dashes for underscores); .name is NULL when there is none. */
struct option_def plan_key_option(const char *option);
size_t plan_key_names(const char **names, size_t max, const struct verb *v);

#endif
