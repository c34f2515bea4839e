/* compare.h: several databases (or runs) side by side, each against the first: the judgements of results/compare.h by cell of the
 * report's own data. Inside report/ only. */
#ifndef KVB_REPORT_COMPARE_H
#define KVB_REPORT_COMPARE_H

#include "report/page.h"
#include "results/compare.h"

enum outcome { NO_PAIR, SAME_SCORES, OPEN, RISES, FALLS };

struct change { /* of one cell in one source against the first */
	const struct cell *cell; /* NULL = not measured there */
	const struct compared *compared;
	enum outcome outcome;    /* SAME_SCORES: no score differs. OPEN: some do, not beyond error */
	double time;             /* change of the TTFT ratio to full, or of the TTFT where only that is known: .1 = 10 % slower; NAN = none */
	bool absolute, time_told; /* told: beyond error */
};
struct match { /* a cell of the first source and its kin */
	const struct cell *first;
	struct change *change;   /* [n_sources]; [0] is empty */
};
struct matches {
	struct side *side;           /* [n_sources] */
	struct comparison *against;  /* [n_sources] of the first and source i; [0] is empty */
	struct match *v;
	int n, n_sources;
};
int matches_make(struct matches *out, const struct report *r, char err[ERR_LEN]);
void matches_free(struct matches *m);
int change_flipped(const struct change *x); /* samples whose score changed */
extern const char *const outcome_word[];

#endif
