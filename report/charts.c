/* charts.c: see charts.h. A series is <g class="s cN vM">: cN its colour, vM the variant that the legend's boxes switch. */
#include "report/charts.h"

#include "report/summary.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 8 };

const char *chart_series(char buf[32], const struct data *d, int variant)
{
	const struct variant *v = &d->variants[variant];
	if (v->colour < 0)
		snprintf(buf, 32, "%s v%d", v->full ? "cf" : "cr", variant);
	else
		snprintf(buf, 32, "c%d v%d", v->colour % COLOURS, variant);
	return buf;
}

void chart_marker(struct strbuf *out, const struct variant *v, double x, double y, double r)
{
	if (v->colour >= 0)
		svg_marker(out, v->colour, x, y, r);
	else if (v->random)
		svg_marker(out, 0, x, y, r * .7);
}

const char *chart_line(const struct variant *v)
{
	return v->full ? "ln dash" : v->random ? "ln dots" : "ln";
}

void chart_legend(struct strbuf *out, const struct data *d)
{
	char class[32];
	strbuf_puts(out, "<div class=\"leg\" role=\"group\" aria-label=\"Methods shown\">");
	for (int v = 0; v < d->n_variants; v++) {
		strbuf_printf(out,
			"<label><input type=\"checkbox\" checked data-v=\"v%d\"><svg class=\"k %s\" viewBox=\"0 0 26 14\" "
			"aria-hidden=\"true\"><path class=\"%s\" d=\"M1 7H25\"/>",
			v, chart_series(class, d, v), chart_line(&d->variants[v]));
		chart_marker(out, &d->variants[v], 13, 7, 4);
		strbuf_puts(out, "</svg>");
		html_text(out, d->variants[v].label);
		strbuf_puts(out, "</label>");
	}
	strbuf_puts(out, "<button data-all=\"1\">all</button><button data-all=\"\">none</button></div>\n");
}

void chart_mark_begin(struct strbuf *out)
{
	strbuf_puts(out, "<g class=\"pt\">");
}

void chart_mark_end(struct strbuf *out, const char *title)
{
	strbuf_puts(out, "<title>");
	html_text(out, title);
	strbuf_puts(out, "</title></g>\n");
}

/* ---- accuracy over retained ---- */

/* The full cache holds at every ratio: a dashed line with its band across the chart. */
static void full_line(struct svg_plot *p, const struct data *d, const struct cell *full)
{
	double x[] = {p->x.lo, p->x.hi}, mean[2], lo[2], hi[2];
	char class[32], title[128], text[64];
	for (int i = 0; i < 2; i++) {
		mean[i] = full->score.mean;
		lo[i] = full->score.lo;
		hi[i] = full->score.hi;
	}
	strbuf_printf(p->out, "<g class=\"s %s\">", chart_series(class, d, full->variant));
	svg_band(p, x, lo, hi, 2);
	svg_line(p, "ln dash", x, mean, 2);
	snprintf(title, sizeof title, "full cache: %s, n = %d", format_interval(text, full->score), full->score.n);
	chart_mark_end(p->out, title);
}

static void accuracy_series(struct svg_plot *p, const struct data *d, int panel, int variant)
{
	const struct variant *v = &d->variants[variant];
	char class[32], title[256], text[64];
	double *x = mem_new((size_t)d->n_ppm * 4, sizeof *x), *mean = x + d->n_ppm, *lo = mean + d->n_ppm, *hi = lo + d->n_ppm;
	int n = 0;
	strbuf_printf(p->out, "<g class=\"s %s\">", chart_series(class, d, variant));
	for (int k = 0; k < d->n_ppm; k++) {
		const struct cell *c = data_cell(d, panel, variant, d->ppm[k]);
		if (!c || c->score.n == 0)
			continue;
		x[n] = d->ppm[k] / 1e6;
		mean[n] = c->score.mean;
		lo[n] = c->score.lo;
		hi[n++] = c->score.hi;
	}
	svg_band(p, x, lo, hi, n);
	svg_line(p, chart_line(v), x, mean, n);
	for (int k = 0; k < d->n_ppm; k++) {
		const struct cell *c = data_cell(d, panel, variant, d->ppm[k]);
		if (!c || c->score.n == 0)
			continue;
		chart_mark_begin(p->out);
		chart_marker(p->out, v, svg_at(&p->x, d->ppm[k] / 1e6), svg_at(&p->y, c->score.mean), 3.4);
		snprintf(title, sizeof title, "%s, r = %g: %s, n = %d, kept %.3f", v->label, d->ppm[k] / 1e6,
			format_interval(text, c->score), c->score.n, c->row.retained_mean);
		chart_mark_end(p->out, title);
	}
	strbuf_puts(p->out, "</g>");
	free(x);
}

/* Ticks at the measured ratios; a label is left out where it would touch the one before. */
static void ratio_ticks(struct svg_plot *p, const struct data *d)
{
	double last = -100;
	char text[64];
	for (int k = 0; k < d->n_ppm; k++) {
		double at = svg_at(&p->x, d->ppm[k] / 1e6);
		bool room = at - last >= 26;
		svg_x_tick(p, d->ppm[k] / 1e6, room ? format_ratio(text, d->ppm[k]) : NULL);
		last = room ? at : last;
	}
}

void chart_accuracy(struct strbuf *out, const struct data *d, int panel)
{
	const struct cell *full = data_full(d, panel);
	struct svg_plot p = svg_begin(
		out, 330, 240, d->panels[panel].title, "Mean score over the share of the context kept, with 95 % bands");
	p.x.log = d->n_ppm > 0 && d->ppm[0] < 50000;
	p.x.lo = p.x.log ? d->ppm[0] / 1e6 * .9 : 0;
	p.x.hi = p.x.log ? 1.1 : 1.03;
	for (int i = 0; i < d->n_cells; i++) /* a metric may pass 1 */
		if (d->cells[i].panel == panel && d->cells[i].score.mean > p.y.hi)
			p.y.hi = d->cells[i].score.mean * 1.05;
	ratio_ticks(&p, d);
	svg_y_ticks(&p, 5);
	svg_labels(&p, p.x.log ? "share kept, r (log)" : "share kept, r", "mean score");
	if (full && full->score.n > 0)
		full_line(&p, d, full);
	for (int v = 0; v < d->n_variants; v++)
		if (!d->variants[v].full)
			accuracy_series(&p, d, panel, v);
	svg_end(&p);
}

/* ---- stacked bars ---- */

void chart_parts_legend(struct strbuf *out, const struct chart_part *parts, int n_parts)
{
	strbuf_puts(out, "<div class=\"leg\">");
	for (int i = 0; i < n_parts; i++)
		strbuf_printf(out,
			"<span><svg class=\"k\" viewBox=\"0 0 26 14\" aria-hidden=\"true\"><rect class=\"p%d\" x=\"4\" y=\"1\" "
			"width=\"18\" height=\"12\"/></svg>%s</span>",
			parts[i].colour, parts[i].label);
	strbuf_puts(out, "</div>\n");
}

enum { BAR_LEFT = 134, BAR_STEP = 20, BAR_NOTE = 115, BAR_NAME = 20 }; /* BAR_NAME: characters, in BAR_LEFT */

static void one_bar(struct svg_plot *p, const struct chart_bar *b, double y, const struct chart_part *parts, int n_parts,
	const char *(*format)(char *buf, double v))
{
	double at = 0;
	char title[320], part[64], whole[64], class[16];
	svg_label(p->out, "n", p->x.p0 - 8, y + 11, "end", b->label, BAR_NAME);
	for (int i = 0; i < n_parts; i++) {
		if (!(b->part[i] > 0))
			continue;
		double x = svg_at(&p->x, at), w = svg_at(&p->x, at + b->part[i]) - x;
		snprintf(class, sizeof class, "p%d", parts[i].colour);
		snprintf(title, sizeof title, "%.150s, %s: %s (%.1f %% of %s)", b->label, parts[i].label,
			format(part, b->part[i]), 100 * b->part[i] / b->whole, format(whole, b->whole));
		svg_rect(p->out, class, x, y, w, 15, title);
		at += b->part[i];
	}
	svg_text(p->out, "n", svg_at(&p->x, fmax(at, isnan(b->whole) ? 0 : b->whole)) + 6, y + 11, "start", b->note);
}

void chart_bars(struct strbuf *out, const char *title, const char *desc, const char *axis, double unit,
	const struct chart_bar *bars, int n, const struct chart_part *parts, int n_parts,
	const char *(*format)(char *buf, double v))
{
	double most = 0;
	for (int i = 0; i < n; i++) {
		double sum = 0;
		for (int k = 0; k < n_parts; k++)
			sum += bars[i].part[k] > 0 ? bars[i].part[k] : 0;
		most = fmax(most, fmax(sum, isnan(bars[i].whole) ? 0 : bars[i].whole));
	}
	if (!(most > 0))
		return;
	struct svg_plot p = svg_begin(out, SVG_WIDE, 64 + BAR_STEP * n, title, desc);
	p.x = (struct svg_scale){0, most / unit, BAR_LEFT, SVG_WIDE - BAR_NOTE, false};
	svg_x_ticks(&p, 4);
	p.x.hi = most;
	for (int i = 0; i < n; i++)
		one_bar(&p, &bars[i], p.y.p1 - 4 + BAR_STEP * i, parts, n_parts, format);
	svg_text(out, "l", (p.x.p0 + p.x.p1) / 2, p.y.p0 + 32, "middle", axis);
	svg_end(&p);
}

/* ---- over length ---- */

/* A row of the chart: a variant's timed cells of the figure at one ratio (full: its own). */
static int length_cells(
	const struct data *d, int figure, int variant, int ppm, const struct chart_measure *m, const struct cell **list)
{
	int n = 0;
	for (int p = 0; p < d->n_panels; p++) {
		const struct cell *c = data_cell(d, p, variant, d->variants[variant].full ? 1000000 : ppm);
		if (d->panels[p].figure == figure && c && cell_timed(c) && m->value(c) > 0)
			list[n++] = c;
	}
	return n;
}

static void length_series(
	struct svg_plot *p, const struct data *d, int variant, const struct chart_measure *m, const struct cell **list, int n)
{
	char class[32], title[320], text[64];
	double *x = mem_new((size_t)n * 2 + 1, sizeof *x), *y = x + n;
	strbuf_printf(p->out, "<g class=\"s %s\">", chart_series(class, d, variant));
	for (int i = 0; i < n; i++) {
		x[i] = (double)list[i]->row.context_tokens;
		y[i] = m->value(list[i]);
	}
	svg_line(p, chart_line(&d->variants[variant]), x, y, n);
	for (int i = 0; i < n; i++) {
		double ratio = m->of_full ? data_ttft_ratio(d, list[i]) : NAN;
		chart_mark_begin(p->out);
		if (m->lo)
			svg_whisker(p, x[i], m->lo(list[i]), m->hi(list[i]));
		chart_marker(p->out, &d->variants[variant], svg_at(&p->x, x[i]), svg_at(&p->y, y[i]), 3.4);
		snprintf(title, sizeof title, isnan(ratio) ? "%s, %.0f tokens: %s" : "%s, %.0f tokens: %s, %.2f× full",
			d->variants[variant].label, x[i], m->format(text, y[i]), ratio);
		chart_mark_end(p->out, title);
	}
	strbuf_puts(p->out, "</g>");
	free(x);
}

static void widen(struct svg_scale *s, double v)
{
	if (!isnan(v)) {
		s->lo = fmin(s->lo, v);
		s->hi = fmax(s->hi, v);
	}
}

/* The figure's first panel, the ratio its cells were timed at, and the ranges they span. */
struct length_range {
	int first, ppm;
	struct svg_scale x, y;
};

static struct length_range length_range(const struct data *d, int figure, const struct chart_measure *m, const struct cell **list)
{
	struct length_range r = {-1, 0, {INFINITY, 0}, {INFINITY, 0}};
	for (int p = d->n_panels - 1; p >= 0; p--) {
		if (d->panels[p].figure != figure)
			continue;
		int timed = data_timed_ppm(d, p);
		r.ppm = timed ? timed : r.ppm;
		r.first = p;
	}
	for (int v = 0; v < d->n_variants; v++)
		for (int n = length_cells(d, figure, v, r.ppm, m, list); n > 0; n--) {
			widen(&r.x, (double)list[n - 1]->row.context_tokens);
			widen(&r.y, m->value(list[n - 1]));
			widen(&r.y, m->lo ? m->lo(list[n - 1]) : NAN);
			widen(&r.y, m->hi ? m->hi(list[n - 1]) : NAN);
		}
	return r;
}

static void length_ticks(struct svg_plot *p, const struct data *d, int figure)
{
	char text[64];
	double last = -100;
	for (int i = 0; i < d->n_panels; i++) {
		double tokens = (double)d->panels[i].row->context_tokens;
		if (d->panels[i].figure != figure || tokens < p->x.lo || tokens > p->x.hi)
			continue;
		bool room = svg_at(&p->x, tokens) - last > 40;
		snprintf(text, sizeof text, "%.0f", tokens);
		svg_x_tick(p, tokens, room ? text : NULL);
		last = room ? svg_at(&p->x, tokens) : last;
	}
}

static void draw_lengths(struct strbuf *out, const struct data *d, int figure, const struct chart_measure *m,
	const struct length_range *r, const struct cell **list)
{
	char text[320];
	const struct cell_row *row = d->panels[r->first].row;
	snprintf(text, sizeof text, "%s%.100s, %.20s, r = %g", m->name, row->task, row->protocol, r->ppm / 1e6);
	struct svg_plot p = svg_begin(out, SVG_WIDE, 280, text, m->what);
	p.x = (struct svg_scale){r->x.lo * .9, r->x.hi * 1.1, 66, SVG_WIDE - 12, true};
	p.y = (struct svg_scale){r->y.lo / 1.2, r->y.hi * 1.2, 240, 28, true};
	length_ticks(&p, d, figure);
	svg_log_ticks(&p, true, m->format);
	svg_text(out, "l", (p.x.p0 + p.x.p1) / 2, p.y.p0 + 32, "middle", m->axis);
	for (int v = 0; v < d->n_variants; v++)
		length_series(&p, d, v, m, list, length_cells(d, figure, v, r->ppm, m, list));
	svg_end(&p);
}

bool chart_lengths(struct strbuf *out, const struct data *d, int figure, const struct chart_measure *m)
{
	const struct cell **list = mem_new((size_t)d->n_panels, sizeof(struct cell *));
	struct length_range r = length_range(d, figure, m, list);
	bool several = r.x.lo > 0 && r.x.hi > r.x.lo && r.y.lo > 0;
	if (several)
		draw_lengths(out, d, figure, m, &r, list);
	free(list);
	return several;
}
