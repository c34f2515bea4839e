/* history.h: the nights of a history file as series with their steps. Inside report/ only. */
#ifndef KVB_REPORT_HISTORY_H
#define KVB_REPORT_HISTORY_H

#include "results/stats.h"
#include "results/store.h"

struct night {
	char *id, *commit, *machine, *baseline;
	int baseline_version, exit_code;
	int64_t started_unix_ms;
	int regressions, notices; /* alerts by level; incomplete ones count as regressions */
};
struct night_alert {
	int night; /* index */
	char *level, *kind, *label, *message;
	double old, new_, lo, hi;
	int n;
};
/* One figure of one cell over the nights that have it. A step is a change of level that is not the first. */
struct series {
	char *cell_id, *figure, *label;
	int *night;    /* [n] index into nights */
	double *value; /* [n] */
	int n, cap;
	struct step *steps; /* [n_steps] levels */
	int n_steps;
	double change; /* of the last step, relative for times, absolute for scores; 0 = no step */
	bool worse;    /* the last step goes the wrong way */
};
struct history {
	struct night *nights; /* oldest first */
	int n_nights;
	struct night_alert *alerts;
	int n_alerts;
	struct series *series;
	int n_series;
};
/* The newest `most` nights. Times of other machines than the newest night's are left out of their series. */
int history_load(struct history *h, struct store *s, int most, char err[ERR_LEN]);
void history_free(struct history *h);
const char *night_date(char buf[64], int64_t unix_ms); /* "2026-11-30 01:45" */
const char *night_outcome(const struct night *n);      /* "within bounds", "regression", "incomplete", "failed" */

#endif
