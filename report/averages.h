/* averages.h: what a suite's tasks add up to, under the names their authors use. Inside report/ only.
 *
 * LongBench: six group means and their mean, for English and Chinese (official), and the plain mean of 16 tasks (the KV papers'),
 * see tasks/longbench. RULER, SCBench, LongBench-E: the plain mean of all tasks. Only of panels that differ in nothing but the
 * task, and only where every task of it is there with every sample: a part is never shown as the whole. */
#ifndef KVB_REPORT_AVERAGES_H
#define KVB_REPORT_AVERAGES_H

#include "report/data.h"

struct average {
	char title[160];            /* "RULER: mean of 13 tasks · 4096 tokens" */
	const struct cell_row *row; /* of one of its panels: target, protocol, precision */
	double *score;              /* [n_variants * n_ppm]; NAN = not whole */
};
struct averages {
	struct average *v;
	int n;
};
void averages_make(struct averages *a, const struct data *d);
void averages_free(struct averages *a);

#endif
