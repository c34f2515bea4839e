/* charts.h: the charts that several pages draw, each one <svg>. Inside report/ only. */
#ifndef KVB_REPORT_CHARTS_H
#define KVB_REPORT_CHARTS_H

#include "report/data.h"
#include "report/svg.h"

/* Check boxes that show and hide the variants' series; controls included. */
void chart_legend(struct strbuf *out, const struct data *d);
/* "c3 v7": colour and variant of a series; the controls have colours of their own. */
const char *chart_series(char buf[32], const struct data *d, int variant);
/* Its marker at a place in pixels; the full cache has none. */
void chart_marker(struct strbuf *out, const struct variant *v, double x, double y, double r);
const char *chart_line(const struct variant *v); /* its line's class */
/* <g class="pt"> ... with a tooltip. */
void chart_mark_begin(struct strbuf *out);
void chart_mark_end(struct strbuf *out, const char *title);

void chart_accuracy(struct strbuf *out, const struct data *d, int panel); /* score over retained, 95 % bands */

/* One stacked bar a row: a value for each part (NAN or 0 = none), what is written behind the bar. */
struct chart_part {
	const char *label;
	int colour; /* class pN */
};
struct chart_bar {
	const char *label;
	double part[16], whole;
	char note[96];
};
void chart_bars(struct strbuf *out, const char *title, const char *desc, const char *axis, double unit, const struct chart_bar *bars,
	int n, const struct chart_part *parts, int n_parts, const char *(*format)(char *buf, double v));
void chart_parts_legend(struct strbuf *out, const struct chart_part *parts, int n_parts);

/* A figure of the timed cells over context length. */
struct chart_measure {
	const char *name, *what, *axis; /* name: before the chart's title; "" = none */
	double (*value)(const struct cell *c); /* NAN = none */
	double (*lo)(const struct cell *c), (*hi)(const struct cell *c); /* NULL = no bars */
	const char *(*format)(char *buf, double v);
	bool of_full; /* the tooltip gives it as a multiple of the full cache's time */
};
/* false: fewer than two lengths measured, nothing written. */
bool chart_lengths(struct strbuf *out, const struct data *d, int figure, const struct chart_measure *m);

#endif
