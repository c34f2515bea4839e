/* training.h: trainings and their curves, as the mapper page needs them. Inside report/ only. */
#ifndef KVB_REPORT_TRAINING_H
#define KVB_REPORT_TRAINING_H

#include "results/store.h"

struct curve {
	char *term;
	int64_t *step; /* [n] ascending */
	double *value; /* [n] NAN = was not a number */
	int n, cap;
};
struct training {
	char *kind, *name, *config, *weights_path, *weights_sha256, *id;
	uint64_t seed;
	int64_t started_unix_ms, ended_unix_ms, steps;
	int n_contexts;
	struct curve *curves; /* by term */
	int n_curves;
};
struct trainings {
	struct training *v;
	int n;
};
int trainings_load(struct trainings *t, struct store *s, char err[ERR_LEN]);
void trainings_free(struct trainings *t);

const struct curve *training_curve(const struct training *t, const char *term); /* NULL = none */
/* The last value that is a number; NAN = none. */
double curve_last(const struct curve *c);
/* "recall@0.1" -> .1, "prior@0.1" with name "prior" -> .1; NAN = the term is not of that name. */
double term_ratio(const char *term, const char *name);

#endif
