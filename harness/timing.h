/* timing.h: the timing pass: time to first token of the true pipeline, apart from accuracy.
 *
 * Inside the window: what runner_time says (prefill .. first token, from an empty cache, nothing shared). For each group the plan
 * names: one context; every variant of the group once a round, the full cache among them, the order rotated by one each round;
 * warm-up rounds first. A variant that loses the device ends the group: the next process times it afresh, without that variant. A group's rows are one commit at its end, because a ratio to the full cache counts only within one
 * process: a killed run times the group in hand afresh. */
#ifndef KVB_TIMING_H
#define KVB_TIMING_H

#include "harness/sweep.h"

/* Times the groups of the load in hand. SWEEP_*, -1 + err when the store failed. */
int timing_run(struct sweep *s, char err[ERR_LEN]);
/* Is this group, this variant to be timed? (for the dry run) */
bool timing_takes_group(const struct plan *p, const struct sweep_group *g);
bool timing_takes_variant(const struct plan *p, int variant);

#endif
