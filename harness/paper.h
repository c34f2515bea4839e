/* paper.h: between the files of `kvbench paper`: the papers that ship, a paper's plan at a scale, its estimate.
 *
 * A paper is one JSON file of harness/papers, inside the program: what it states and leaves open, which published records are its
 * own, a plan for all scales with a part for each. published.json holds the figures, suites.json the sizes of tasks and models.
 */
#ifndef KVB_PAPER_H
#define KVB_PAPER_H

#include "harness/plan.h"

struct paper_def {
	const char *name, *json;
};
size_t paper_count(void);
const struct paper_def *paper_at(size_t i);
extern const char *const paper_published, *const paper_suites; /* JSON text */

struct paper_choice { /* what the command line chose */
	const struct paper_def *def;
	const char *scale;         /* "tiny", "small", "full" */
	const char *model, *proxy; /* in place of the paper's pairs; NULL = the paper's */
	bool have_data;            /* leave out tasks whose data are not here */
};
/* The plan's JSON text, and on left_out one line for each method this build does not have and each task whose data are missing.
 * Caller frees the text. -1 + err. */
int paper_plan(const struct paper_choice *c, char **json, struct strbuf *left_out, char err[ERR_LEN]);

struct paper_speed {           /* of the machine an estimate is for */
	double tflops, gbytes; /* sustained, a second */
};
/* Prints cells, samples, tokens, memory and time of the plan from the shapes of its models and the sizes of its suites: nothing
 * is loaded or fetched. -1 + err. */
int paper_estimate(const struct plan *p, const struct paper_speed *speed, char err[ERR_LEN]);

#endif
