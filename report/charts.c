/* charts.c: see charts.h. A series is <g class="s cN vM">: cN its colour, vM the variant that the legend's boxes switch. */
#include "report/charts.h"

#include "report/summary.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 8 };

/* "c3 v7"; the controls have colours of their own. */
static const char *series_class(char buf[32], const struct data *d, int variant)
{
	const struct variant *v = &d->variants[variant];
	if (v->colour < 0)
		snprintf(buf, 32, "%s v%d", v->full ? "cf" : "cr", variant);
	else
		snprintf(buf, 32, "c%d v%d", v->colour % COLOURS, variant);
	return buf;
}

static void variant_marker(struct strbuf *out, const struct variant *v, double x, double y, double r)
{
	if (v->colour >= 0)
		svg_marker(out, v->colour, x, y, r);
	else if (v->random)
		svg_marker(out, 0, x, y, r * .7);
}

static const char *line_class(const struct variant *v)
{
	return v->full ? "ln dash" : v->random ? "ln dots" : "ln";
}

void chart_legend(struct strbuf *out, const struct data *d)
{
	char class[32];
	strbuf_puts(out, "<div class=\"leg\">");
	for (int v = 0; v < d->n_variants; v++) {
		strbuf_printf(out,
			"<label><input type=\"checkbox\" checked data-v=\"v%d\"><svg class=\"k %s\" viewBox=\"0 0 26 14\" "
			"aria-hidden=\"true\">"
			"<path class=\"%s\" d=\"M1 7H25\"/>",
			v, series_class(class, d, v), line_class(&d->variants[v]));
		variant_marker(out, &d->variants[v], 13, 7, 4);
		strbuf_puts(out, "</svg>");
		html_text(out, d->variants[v].label);
		strbuf_puts(out, "</label>");
	}
	strbuf_puts(out, "</div>\n");
}

static void mark_begin(struct strbuf *out)
{
	strbuf_puts(out, "<g class=\"pt\">");
}

static void mark_end(struct strbuf *out, const char *title)
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
	strbuf_printf(p->out, "<g class=\"s %s\">", series_class(class, d, full->variant));
	svg_band(p, x, lo, hi, 2);
	svg_line(p, "ln dash", x, mean, 2);
	snprintf(title, sizeof title, "full cache: %s, n = %d", format_interval(text, full->score), full->score.n);
	mark_end(p->out, title);
}

static void accuracy_series(struct svg_plot *p, const struct data *d, int panel, int variant)
{
	const struct variant *v = &d->variants[variant];
	char class[32], title[256], text[64];
	double *x = mem_new((size_t)d->n_ppm * 4, sizeof *x), *mean = x + d->n_ppm, *lo = mean + d->n_ppm, *hi = lo + d->n_ppm;
	int n = 0;
	strbuf_printf(p->out, "<g class=\"s %s\">", series_class(class, d, variant));
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
	svg_line(p, line_class(v), x, mean, n);
	for (int k = 0; k < d->n_ppm; k++) {
		const struct cell *c = data_cell(d, panel, variant, d->ppm[k]);
		if (!c || c->score.n == 0)
			continue;
		mark_begin(p->out);
		variant_marker(p->out, v, svg_at(&p->x, d->ppm[k] / 1e6), svg_at(&p->y, c->score.mean), 3.4);
		snprintf(title, sizeof title, "%s, r = %g: %s, n = %d, kept %.3f", v->label, d->ppm[k] / 1e6,
			format_interval(text, c->score), c->score.n, c->row.retained_mean);
		mark_end(p->out, title);
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

/* ---- time to first token ---- */

static const char *const part_label[N_PARTS] = {"prefill", "score", "select", "compact", "question", "first token"};

void chart_parts_legend(struct strbuf *out)
{
	strbuf_puts(out, "<div class=\"leg\">");
	for (int i = 0; i < N_PARTS; i++)
		strbuf_printf(out,
			"<span><svg class=\"k\" viewBox=\"0 0 26 14\" aria-hidden=\"true\"><rect class=\"p%d\" x=\"4\" y=\"1\" "
			"width=\"18\" height=\"12\"/></svg>%s</span>",
			i, part_label[i]);
	strbuf_puts(out, "</div>\n");
}

static void parts_bar(struct svg_plot *p, const struct data *d, const struct cell *c, double y, double h)
{
	double at = 0;
	char title[256], time[64], total[64];
	svg_text(p->out, "n", p->x.p0 - 8, y + h * .75, "end", d->variants[c->variant].label);
	for (int i = 0; i < N_PARTS; i++) {
		double part = c->time[i].median;
		if (isnan(part))
			continue;
		char class[16];
		snprintf(class, sizeof class, "p%d", i);
		double x = svg_at(&p->x, at), w = svg_at(&p->x, at + part) - x;
		snprintf(title, sizeof title, "%s, %s: %s (%.1f %% of %s)", d->variants[c->variant].label, part_label[i],
			format_time(time, part), 100 * part / c->time[TTFT].median, format_time(total, c->time[TTFT].median));
		svg_rect(p->out, class, x, y, w, h, title);
		at += part;
	}
	double ratio = data_ttft_ratio(d, c), ttft = c->time[TTFT].median;
	snprintf(title, sizeof title, isnan(ratio) ? "%s" : "%s · %.2f×", format_time(time, ttft), ratio);
	svg_text(p->out, "n", svg_at(&p->x, ttft) + 6, y + h * .75, "start", title);
}

bool chart_parts(struct strbuf *out, const struct data *d, int panel)
{
	int ppm = data_timed_ppm(d, panel), n = 0;
	const struct cell **bars = mem_new((size_t)d->n_variants + 1, sizeof *bars), *full = data_full(d, panel);
	char title[256];
	double most = 0;
	if (full && cell_timed(full))
		bars[n++] = full;
	for (int v = 0; v < d->n_variants; v++) {
		const struct cell *c = ppm && !d->variants[v].full ? data_cell(d, panel, v, ppm) : NULL;
		if (c && cell_timed(c))
			bars[n++] = c;
	}
	for (int i = 0; i < n; i++)
		most = fmax(most, bars[i]->time[TTFT].median);
	if (n > 0) {
		snprintf(title, sizeof title, "%s, r = %g", d->panels[panel].title, ppm / 1e6);
		struct svg_plot p = svg_begin(out, 500, 60 + 20 * n, title, "Median time to first token, stacked by part");
		p.x = (struct svg_scale){0, most / 1e6, 150, 385, false};
		svg_x_ticks(&p, 4);
		p.x.hi = most;
		for (int i = 0; i < n; i++)
			parts_bar(&p, d, bars[i], p.y.p1 + 2 + 20 * i - 6, 15);
		svg_text(out, "l", (p.x.p0 + p.x.p1) / 2, p.y.p0 + 32, "middle", "ms (medians)");
		svg_end(&p);
	}
	free(bars);
	return n > 0;
}

/* ---- time over length ---- */

/* A row of the chart: a variant's timed cells of the figure at one ratio (full: its own). */
static int length_cells(const struct data *d, int figure, int variant, int ppm, const struct cell **list)
{
	int n = 0;
	for (int p = 0; p < d->n_panels; p++) {
		const struct cell *c = data_cell(d, p, variant, d->variants[variant].full ? 1000000 : ppm);
		if (d->panels[p].figure == figure && c && cell_timed(c))
			list[n++] = c;
	}
	return n;
}

static void length_series(struct svg_plot *p, const struct data *d, int variant, const struct cell **list, int n)
{
	char class[32], title[256], time[64];
	double *x = mem_new((size_t)n * 2 + 1, sizeof *x), *y = x + n;
	strbuf_printf(p->out, "<g class=\"s %s\">", series_class(class, d, variant));
	for (int i = 0; i < n; i++) {
		x[i] = (double)list[i]->row.context_tokens;
		y[i] = list[i]->time[TTFT].median;
	}
	svg_line(p, line_class(&d->variants[variant]), x, y, n);
	for (int i = 0; i < n; i++) {
		double ratio = data_ttft_ratio(d, list[i]);
		mark_begin(p->out);
		svg_whisker(p, x[i], list[i]->time[TTFT].p10, list[i]->time[TTFT].p90);
		variant_marker(p->out, &d->variants[variant], svg_at(&p->x, x[i]), svg_at(&p->y, y[i]), 3.4);
		snprintf(title, sizeof title, isnan(ratio) ? "%s, %.0f tokens: %s" : "%s, %.0f tokens: %s, %.2f× full",
			d->variants[variant].label, x[i], format_time(time, y[i]), ratio);
		mark_end(p->out, title);
	}
	strbuf_puts(p->out, "</g>");
	free(x);
}

static void widen(struct svg_scale *s, double v)
{
	s->lo = fmin(s->lo, v);
	s->hi = fmax(s->hi, v);
}

/* Ticks 1, 2, 5 times each power of ten, labelled as times. */
static void time_ticks(struct svg_plot *p)
{
	char text[64];
	for (double decade = pow(10, floor(log10(p->y.lo))); decade <= p->y.hi; decade *= 10)
		for (int k = 1; k <= 5; k += k == 2 ? 3 : 1) {
			double v = decade * k;
			snprintf(text, sizeof text, v < 1e9 ? "%g ms" : "%g s", v < 1e9 ? v / 1e6 : v / 1e9);
			if (v >= p->y.lo && v <= p->y.hi)
				svg_y_tick(p, v, text);
		}
}

/* The figure's first panel, the ratio its cells were timed at, and the ranges they span. */
struct length_range {
	int first, ppm;
	struct svg_scale x, y;
};

static struct length_range length_range(const struct data *d, int figure, const struct cell **list)
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
		for (int n = length_cells(d, figure, v, r.ppm, list); n > 0; n--) {
			widen(&r.x, (double)list[n - 1]->row.context_tokens);
			widen(&r.y, list[n - 1]->time[TTFT].p10);
			widen(&r.y, list[n - 1]->time[TTFT].p90);
		}
	return r;
}

static void draw_lengths(
	struct strbuf *out, const struct data *d, int figure, const struct length_range *r, const struct cell **list)
{
	char text[256];
	const struct cell_row *row = d->panels[r->first].row;
	snprintf(text, sizeof text, "%s, %s, r = %g", row->task, row->protocol, r->ppm / 1e6);
	struct svg_plot p = svg_begin(
		out, 500, 300, text, "Median time to first token over context length; bars are the 10th and 90th percentiles");
	p.x = (struct svg_scale){r->x.lo * .9, r->x.hi * 1.1, 64, 488, true};
	p.y = (struct svg_scale){r->y.lo / 1.2, r->y.hi * 1.2, 260, 28, true};
	for (int i = 0; i < d->n_panels; i++)
		if (d->panels[i].figure == figure) {
			snprintf(text, sizeof text, "%lld", (long long)d->panels[i].row->context_tokens);
			svg_x_tick(&p, (double)d->panels[i].row->context_tokens, text);
		}
	time_ticks(&p);
	svg_text(out, "l", 276, 292, "middle", "context tokens (log); time to first token (log)");
	for (int v = 0; v < d->n_variants; v++)
		length_series(&p, d, v, list, length_cells(d, figure, v, r->ppm, list));
	svg_end(&p);
}

bool chart_lengths(struct strbuf *out, const struct data *d, int figure)
{
	const struct cell **list = mem_new((size_t)d->n_panels, sizeof(struct cell *));
	struct length_range r = length_range(d, figure, list);
	bool several = r.x.lo > 0 && r.x.hi > r.x.lo && r.y.lo > 0;
	if (several)
		draw_lengths(out, d, figure, &r, list);
	free(list);
	return several;
}

/* ---- kept share of each head ---- */

enum { MAP_LEFT = 48, MAP_TOP = 40 };

static void head_squares(struct strbuf *out, const struct cell *c, double w, double h)
{
	char text[64];
	for (int l = 0; l < c->row.layers; l++) {
		for (int k = 0; k < c->row.kv_heads; k++) {
			double share = c->kept[l * c->row.kv_heads + k];
			snprintf(text, sizeof text, "layer %d, head %d: %.3f", l, k, share);
			svg_square(out, share, MAP_LEFT + w * k, MAP_TOP + h * l, w - 1, h - 1, text);
		}
		snprintf(text, sizeof text, "%d", l);
		if (c->row.layers <= 12 || l % 4 == 0)
			svg_text(out, "t", MAP_LEFT - 6, MAP_TOP + h * (l + .5) + 4, "end", text);
	}
}

bool chart_kept(struct strbuf *out, const struct data *d, const struct cell *c)
{
	if (!c->kept || c->kept_most - c->kept_least < .005)
		return false;
	double w = fmin(24, 160.0 / c->row.kv_heads), h = fmin(14, 224.0 / c->row.layers), bottom = MAP_TOP + h * c->row.layers;
	char text[256];
	snprintf(text, sizeof text, "%s, r = %g", d->variants[c->variant].label, c->row.retained_ppm / 1e6);
	struct svg_plot p = svg_begin(out, 280, (int)bottom + 28, text, "Kept share of each layer and head");
	snprintf(text, sizeof text, "%s, %s", d->panels[c->panel].title, c->row.protocol);
	svg_text(out, "t", MAP_LEFT, 31, "start", text);
	head_squares(out, c, w, h);
	snprintf(text, sizeof text, "head → (kept %.2f to %.2f)", c->kept_least, c->kept_most);
	svg_text(out, "l", MAP_LEFT, bottom + 16, "start", text);
	strbuf_printf(out, "<text class=\"l\" transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\">layer</text>",
		(MAP_TOP + bottom) / 2);
	svg_end(&p);
	return true;
}
