/* charts.h: the charts of the page, each one <svg>. Inside report/ only. */
#ifndef KVB_REPORT_CHARTS_H
#define KVB_REPORT_CHARTS_H

#include "report/data.h"

/* Check boxes that show and hide the variants' series; controls included. id tells several legends of a page apart. */
void chart_legend(struct strbuf *out, const struct data *d);
void chart_parts_legend(struct strbuf *out);

void chart_accuracy(struct strbuf *out, const struct data *d, int panel); /* score over retained, 95 % bands */
bool chart_parts(
	struct strbuf *out, const struct data *d, int panel); /* stacked parts of TTFT; false: nothing timed, nothing written */
bool chart_lengths(
	struct strbuf *out, const struct data *d, int figure); /* TTFT over length; false: fewer than two lengths timed */
bool chart_kept(struct strbuf *out, const struct data *d,
	const struct cell *c); /* kept share of each head; false: uniform or not known */

#endif
