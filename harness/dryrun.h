/* dryrun.h: what a run would do, before it does: cells, samples, what exists, tokens, KV bytes, memory and a time estimate. */
#ifndef KVB_DRYRUN_H
#define KVB_DRYRUN_H

#include "harness/sweep.h"

/* Prints to stdout. s->store must be a scratch database (cell ids are made by putting cells); s->present the real one or NULL.
 * 0, or -1 + err. */
int dryrun_print(struct sweep *s, char err[ERR_LEN]);

#endif
