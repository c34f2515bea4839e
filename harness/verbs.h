/* verbs.h: what the program can do: one struct a verb, each in the file of its name. */
#ifndef KVB_VERBS_H
#define KVB_VERBS_H

#include "harness/options.h"

extern const struct verb verb_run, verb_list, verb_status, verb_report, verb_export, verb_doctor, verb_ask, verb_bench,
	verb_calibrate, verb_collect, verb_train, verb_scores, verb_continue, verb_fetch, verb_score;
extern const struct verb verb_merge, verb_paper, verb_verify;

extern const struct verb verb_compare, verb_gate, verb_baseline;

extern const char kvbench_version[]; /* git describe, compiled in */
extern const char kvbench_build_flags[];

#endif
