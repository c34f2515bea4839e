/* page_pareto.c: accuracy against time to first token, of the same pruning run: a chart for each task and length that was
 * timed. A point is on the frontier when no other is both as fast and better; the others are faint. */
#include "report/charts.h"
#include "report/page.h"
#include "report/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point {
	const struct cell *cell;
	double x, y; /* time over the full cache's, score */
	bool front;
};

static int by_time(const void *a, const void *b)
{
	const struct point *p = a, *q = b;
	if (p->x != q->x)
		return p->x < q->x ? -1 : 1;
	return (p->y < q->y) - (p->y > q->y);
}

/* The panel's timed and scored cells, fastest first, the frontier marked. Caller frees. */
static struct point *collect(const struct data *d, int panel, int *n)
{
	struct point *list = mem_new((size_t)d->n_variants * d->n_ppm, sizeof *list);
	double best = -INFINITY;
	*n = 0;
	for (int v = 0; v < d->n_variants; v++)
		for (int k = 0; k < d->n_ppm; k++) {
			const struct cell *c = data_cell(d, panel, v, d->ppm[k]);
			double ratio = c ? data_ttft_ratio(d, c) : NAN;
			if (c && c->score.n > 0 && ratio > 0)
				list[(*n)++] = (struct point){c, ratio, c->score.mean, false};
		}
	qsort(list, (size_t)*n, sizeof *list, by_time);
	for (int i = 0; i < *n; i++) {
		if (d->variants[list[i].cell->variant].control)
			continue; /* the controls are no choice */
		list[i].front = list[i].y > best;
		best = fmax(best, list[i].y);
	}
	return list;
}

static const char *times_text(char *buf, double v)
{
	snprintf(buf, 64, "%g×", v);
	return buf;
}

static void frontier(struct svg_plot *p, const struct point *list, int n)
{
	bool begun = false;
	strbuf_puts(p->out, "<path class=\"front\" d=\"");
	for (int i = 0; i < n; i++) {
		if (!list[i].front)
			continue;
		double x = svg_at(&p->x, list[i].x), y = svg_at(&p->y, list[i].y);
		strbuf_printf(p->out, begun ? "H%.1fV%.1f" : "M%.1f %.1f", x, y); /* a stair: faster, then better */
		begun = true;
	}
	strbuf_printf(p->out, "H%.1f\"/>", p->x.p1);
}

static void one_point(struct svg_plot *p, const struct data *d, const struct point *q)
{
	const struct variant *v = &d->variants[q->cell->variant];
	char class[32], title[320], score[64], time[64];
	double x = svg_at(&p->x, q->x), y = svg_at(&p->y, q->y);
	strbuf_printf(
		p->out, "<g class=\"s %s%s\">", chart_series(class, d, q->cell->variant), q->front || v->full ? "" : " faint");
	chart_mark_begin(p->out);
	svg_whisker(p, q->x, q->cell->score.lo, q->cell->score.hi);
	if (v->full)
		strbuf_printf(p->out, "<path class=\"x\" d=\"M%.1f %.1fh10m-5 -5v10\"/>", x - 5, y);
	else
		chart_marker(p->out, v, x, y, 4.2);
	snprintf(title, sizeof title, "%.150s, r = %g: %s, first token %s = %.2f× full", v->label,
		q->cell->row.retained_ppm / 1e6, format_interval(score, q->cell->score),
		format_time(time, q->cell->time[TTFT].median), q->x);
	chart_mark_end(p->out, title);
	strbuf_puts(p->out, "</g>");
}

/* ---- labels: each frontier point's name where it hits neither another label nor a point ---- */

struct box {
	double x0, y0, x1, y1;
};

static bool overlap(const struct box *a, const struct box *b)
{
	return a->x0 < b->x1 && b->x0 < a->x1 && a->y0 < b->y1 && b->y0 < a->y1;
}

static bool is_free(const struct svg_plot *p, const struct box *b, const struct box *taken, int n)
{
	if (b->x0 < p->x.p0 || b->x1 > p->x.p1 + 8 || b->y0 < p->y.p1 - 4 || b->y1 > p->y.p0)
		return false;
	for (int i = 0; i < n; i++)
		if (overlap(b, &taken[i]))
			return false;
	return true;
}

static void label(struct svg_plot *p, const char *text, double x, double y, struct box *taken, int *n)
{
	static const struct {
		double dx, dy;
		const char *anchor;
	} place[] = {{8, 4, "start"}, {-8, 4, "end"}, {6, -9, "start"}, {6, 17, "start"}, {-6, -9, "end"}, {-6, 17, "end"}};
	int characters = 0;
	for (const char *s = text; *s; s++)
		characters += (*s & 0xc0) != 0x80;
	double w = 6.3 * characters;
	for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
		double left = x + place[i].dx - (place[i].anchor[0] == 'e' ? w : 0), base = y + place[i].dy;
		struct box b = {left, base - 10, left + w, base + 3};
		if (!is_free(p, &b, taken, *n))
			continue;
		svg_text(p->out, "n", x + place[i].dx, base, place[i].anchor, text);
		taken[(*n)++] = b;
		return;
	}
}

static void labels(struct svg_plot *p, const struct data *d, const struct point *list, int n, bool ratios)
{
	struct box *taken = mem_new((size_t)n * 2, sizeof *taken);
	int n_taken = 0;
	for (int i = 0; i < n; i++) {
		double x = svg_at(&p->x, list[i].x), y = svg_at(&p->y, list[i].y);
		taken[n_taken++] = (struct box){x - 5, y - 5, x + 5, y + 5};
	}
	for (int pass = 0; pass < 2; pass++) /* the frontier's names first, then what still fits */
		for (int i = 0; i < n; i++) {
			const struct variant *v = &d->variants[list[i].cell->variant];
			if (list[i].front != (pass == 0) || (pass == 1 && n > 14))
				continue;
			char *text = ratios && !v->full ? text_format("%.18s %g", v->label, list[i].cell->row.retained_ppm / 1e6)
							: text_format("%.22s", v->label);
			label(p, text, svg_at(&p->x, list[i].x), svg_at(&p->y, list[i].y), taken, &n_taken);
			free(text);
		}
	free(taken);
}

static bool several_ratios(const struct data *d, const struct point *list, int n)
{
	int ppm = 0;
	for (int i = 0; i < n; i++) {
		if (d->variants[list[i].cell->variant].full)
			continue;
		if (ppm && list[i].cell->row.retained_ppm != ppm)
			return true;
		ppm = list[i].cell->row.retained_ppm;
	}
	return false;
}

static void chart(struct strbuf *out, const struct data *d, int panel, const struct point *list, int n)
{
	bool ratios = several_ratios(d, list, n);
	char *title = ratios ? text_format("%s, %s", d->panels[panel].title, d->panels[panel].row->protocol)
			     : text_format("%s, %s, r = %g", d->panels[panel].title, d->panels[panel].row->protocol,
				       data_timed_ppm(d, panel) / 1e6);
	struct svg_plot p = svg_begin(out, SVG_WIDE, 300, title,
		"Mean score over time to first token as a multiple of the full cache's; the line is the frontier");
	p.x = (struct svg_scale){fmin(list[0].x, 1) / 1.12, fmax(list[n - 1].x, 1) * 1.25, 48, SVG_WIDE - 12, true};
	for (int i = 0; i < n; i++)
		p.y.hi = fmax(p.y.hi, list[i].y * 1.02);
	p.y.hi *= 1.03; /* room for the labels of what is right always */
	svg_log_ticks(&p, false, times_text);
	svg_y_ticks(&p, 5);
	svg_labels(&p, "time to first token, full cache = 1 (log)", "mean score");
	strbuf_printf(out, "<path class=\"g one\" d=\"M%.1f %.1fV%.1f\"/>", svg_at(&p.x, 1), p.y.p0, p.y.p1);
	frontier(&p, list, n);
	for (int i = 0; i < n; i++)
		one_point(&p, d, &list[i]);
	labels(&p, d, list, n, ratios);
	svg_end(&p);
	free(title);
}

static void point_row(struct table *t, const struct data *d, int panel, const struct point *q)
{
	char text[64];
	struct table_cell *c;
	table_text(t, d->variants[q->cell->variant].label);
	char *where = text_format("%s, %s", d->panels[panel].title, d->panels[panel].row->protocol);
	table_text(t, where);
	free(where);
	table_number(t, q->cell->row.retained_ppm / 1e6, format_ratio(text, q->cell->row.retained_ppm));
	c = table_number(t, q->y, format_score(text, q->y));
	if (!isnan(q->cell->score.lo))
		c->small = text_format("%.2f–%.2f", q->cell->score.lo, q->cell->score.hi);
	c->link = samples_link(d, q->cell);
	table_number(t, q->cell->time[TTFT].median, format_time(text, q->cell->time[TTFT].median));
	snprintf(text, sizeof text, "%.2f×", q->x);
	table_number(t, q->x, text);
	table_text(t, q->front ? "frontier" : "");
}

static bool there(const struct report *r)
{
	for (int i = 0; i < r->d->n_cells; i++)
		if (data_ttft_ratio(r->d, &r->d->cells[i]) > 0)
			return true;
	return false;
}

static void write_pareto(struct report *r)
{
	const struct data *d = r->d;
	struct table t;
	page_lead(r->out, "Accuracy and time to first token of the same pruning. Up and left is better; the stair joins the "
			  "methods that no other beats in both, all others are faint. Bars are 95 % intervals of the score.");
	chart_legend(r->out, d);
	strbuf_puts(r->out, "<div class=\"row wide\">\n");
	table_begin(&t, "pareto", "Points of the charts", query_times(report_scope(r, NULL, false, false)));
	static const char *const head[][2] = {{"method", "method"}, {"task", "task"}, {"retained", "r"}, {"score", "score"},
		{"ttft_ns", "first token"}, {"ttft_of_full", "of full"}, {"frontier", "frontier"}};
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.n_text = 2;
	for (int p = 0; p < d->n_panels; p++) {
		int n;
		struct point *list = collect(d, p, &n);
		if (n > 1)
			chart(r->out, d, p, list, n);
		for (int i = 0; i < n; i++)
			point_row(&t, d, p, &list[i]);
		free(list);
	}
	strbuf_puts(r->out, "</div>\n");
	report_table(r, &t);
}

const struct page page_pareto = {"pareto", "Accuracy × time", there, write_pareto};
