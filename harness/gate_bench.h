/* gate_bench.h: false alarms and power of the gate, on simulated nights (`kvbench bench --gate`). */
#ifndef KVB_GATE_BENCH_H
#define KVB_GATE_BENCH_H

#include "harness/base/base.h"

/* Prints the table; `nights` for the false alarms, half as many for each planted loss. */
int gate_bench(int nights, char err[ERR_LEN]);

#endif
