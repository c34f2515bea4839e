/* simulate.h: nights that never were, for measuring the gate itself: how often it cries wolf, how often it sees a planted loss.
 *
 * A baseline and a night are made as struct side, without a database, and go through the very comparison and judgement that real ones
 * do. Seeded: equal settings give equal counts. */
#ifndef KVB_SIMULATE_H
#define KVB_SIMULATE_H

#include "results/compare.h"

struct simulation {
	int tasks, methods, ratios;   /* cells: a full cache for each task, and methods x ratios */
	int contexts, questions;      /* samples of a cell */
	double undecided;             /* share of samples that answer anew, by their own chance, every night: other kernels, another GPU */
	int rounds;                   /* of the timed cells: those of the first task */
	double round_noise;           /* deviation of log(method / full) from round to round */
	double process_noise;         /* the same from process to process */
	double machine_noise;         /* of what slows all of a round down */
	int baselines;                /* nights are shared out among so many baselines: an unlucky one is not all there is */
	uint64_t seed;
	/* planted, in the cells of the first method: */
	bool one_cell;                /* in its first cell only */
	double lost;                  /* points of score, as a share */
	double slower;                /* of its TTFT, as a share */
};
extern const struct simulation simulation_quiet; /* 26 cells of 400 samples, 13 timed by 9 rounds; nothing planted */

struct simulated {
	int nights, alarms;           /* nights that ended with GATE_REGRESSION */
	int accuracy, ratio, time;    /* of them, with an alert of that kind */
};
/* Any exit code other than 0 and 3 is an error: a simulated night lacks nothing. */
int simulate_nights(const struct simulation *m, int nights, const struct compare_rules *rules, struct simulated *out, char err[ERR_LEN]);

#endif
