/* page_history.c: the nights as series with their levels: what moved, when, at which commit; the alerts of the newest night. */
#include "report/page.h"
#include "report/summary.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHARTS = 24 }; /* series drawn large; all of them stand in the table with a small line */

static const char *figure_text(char *buf, const struct series *s, double v)
{
	if (strcmp(s->figure, "ttft_ns") == 0)
		return format_time(buf, v);
	snprintf(buf, 64, strcmp(s->figure, "score") == 0 ? "%.3f" : "%.2f×", v);
	return buf;
}

static const char *figure_name(const struct series *s)
{
	return strcmp(s->figure, "ttft_ns") == 0 ? "first token"
	       : strcmp(s->figure, "score") == 0 ? "score"
						 : "first token of full";
}

/* "−0.052" of a score, "+10.4 %" of a time. */
static const char *change_text(char *buf, const struct series *s)
{
	if (s->n_steps < 2)
		return "";
	if (strcmp(s->figure, "score") == 0)
		snprintf(buf, 64, "%+.3f", s->change);
	else
		snprintf(buf, 64, "%+.1f %%", 100 * s->change);
	return buf;
}

/* ---- charts ---- */

static struct svg_scale value_range(const struct series *s)
{
	struct svg_scale y = {INFINITY, -INFINITY, 0, 0, false};
	for (int i = 0; i < s->n; i++) {
		y.lo = fmin(y.lo, s->value[i]);
		y.hi = fmax(y.hi, s->value[i]);
	}
	double room = fmax(.08 * (y.hi - y.lo), .01 * fabs(y.hi));
	if (strcmp(s->figure, "score") == 0)
		room = fmax(room, .02);
	y.lo -= room;
	y.hi += room;
	return y;
}

static void dots(struct svg_plot *p, const struct history *h, const struct series *s)
{
	char when[64], value[64];
	strbuf_puts(p->out, "<g class=\"s c0\">");
	for (int i = 0; i < s->n; i++) {
		const struct night *n = &h->nights[s->night[i]];
		strbuf_printf(p->out, "<g class=\"pt%s\">", n->exit_code == 3 ? " bad" : "");
		svg_marker(p->out, n->exit_code == 3 ? 3 : 0, svg_at(&p->x, s->night[i]), svg_at(&p->y, s->value[i]),
			n->exit_code == 3 ? 3.6 : 2.6);
		strbuf_printf(p->out, "<title>%s, ", night_date(when, n->started_unix_ms));
		html_cut(p->out, n->commit, 12);
		strbuf_printf(p->out, ": %s (%s)</title></g>", figure_text(value, s, s->value[i]), night_outcome(n));
	}
	strbuf_puts(p->out, "</g>\n");
}

static void levels(struct svg_plot *p, const struct series *s)
{
	for (int k = 0; k < s->n_steps; k++) {
		int last = (k + 1 < s->n_steps ? s->steps[k + 1].start : s->n) - 1;
		double from = s->night[s->steps[k].start], to = s->night[last], y = svg_at(&p->y, s->steps[k].level);
		strbuf_printf(p->out, "<path class=\"level%s\" d=\"M%.1f %.1fH%.1f\"/>",
			k > 0 && k + 1 == s->n_steps && s->worse ? " bad" : "", svg_at(&p->x, from - .35), y,
			svg_at(&p->x, to + .35));
		if (k > 0)
			strbuf_printf(p->out, "<path class=\"g step\" d=\"M%.1f %.1fV%.1f\"/>", svg_at(&p->x, from - .5), p->y.p0,
				p->y.p1);
	}
}

static void series_chart(struct strbuf *out, const struct history *h, const struct series *s)
{
	char text[64];
	char *title = text_format("%s: %s", figure_name(s), s->label);
	struct svg_plot p = svg_begin(out, SVG_WIDE, 210, title, "Value over nights; horizontal lines are the levels found");
	struct svg_scale y = value_range(s);
	p.x = (struct svg_scale){-.5, fmax(h->n_nights - .5, 1), 62, SVG_WIDE - 12, false};
	p.y.lo = y.lo;
	p.y.hi = y.hi;
	double v[SVG_ROUNDS];
	int found = svg_rounds(&p.y, 4, v);
	for (int i = 0; i < found; i++)
		svg_y_tick(&p, v[i], figure_text(text, s, v[i]));
	int every = h->n_nights > 8 ? (h->n_nights + 5) / 6 : 1;
	for (int i = 0; i < h->n_nights; i += every) {
		char before[64] = "";
		night_date(text, h->nights[i].started_unix_ms);
		if (i >= every)
			night_date(before, h->nights[i - every].started_unix_ms);
		bool same_day = strncmp(text, before, 10) == 0; /* then the hour tells them apart */
		text[10] = 0;
		svg_text(out, "t", svg_at(&p.x, i), p.y.p0 + 15, "middle", same_day ? text + 11 : text + 5);
	}
	strbuf_printf(out, "<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/>", p.x.p0, p.y.p0, p.x.p1);
	levels(&p, s);
	dots(&p, h, s);
	if (s->n_steps > 1) {
		const struct night *n = &h->nights[s->night[s->steps[s->n_steps - 1].start]];
		char change[64], when[64];
		char *note = text_format(
			"%s since %s, commit %.10s", change_text(change, s), night_date(when, n->started_unix_ms), n->commit);
		svg_label(out, s->worse ? "n warn" : "n", 62, 204, "start", note, 56);
		free(note);
	}
	svg_end(&p);
	free(title);
}

/* Series with a step, the worse ones first, then the largest change. */
static int by_weight(const void *a, const void *b)
{
	const struct series *p = *(const struct series *const *)a, *q = *(const struct series *const *)b;
	if (p->worse != q->worse)
		return q->worse - p->worse;
	if ((p->n_steps > 1) != (q->n_steps > 1))
		return (q->n_steps > 1) - (p->n_steps > 1);
	double x = fabs(p->change), y = fabs(q->change);
	return x != y ? (x < y) - (x > y) : strcmp(p->label, q->label);
}

static const struct series **by_interest(const struct history *h)
{
	const struct series **list = mem_new((size_t)h->n_series, sizeof *list);
	for (int i = 0; i < h->n_series; i++)
		list[i] = &h->series[i];
	qsort(list, (size_t)h->n_series, sizeof *list, by_weight);
	return list;
}

/* ---- tables ---- */

static void night_table(struct report *r)
{
	static const char *const head[][2] = {{"night", "night (UTC)"}, {"commit", "commit"}, {"outcome", "outcome"},
		{"exit_code", "exit"}, {"regressions", "alerts"}, {"notices", "notices"}, {"baseline", "baseline"},
		{"machine", "machine"}};
	const struct history *h = &r->history;
	struct table t;
	char text[64];
	table_begin(&t, "nights", "Nights, newest first", query_nights());
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.n_text = 3;
	for (int i = h->n_nights - 1; i >= 0; i--) {
		const struct night *n = &h->nights[i];
		table_text(&t, night_date(text, n->started_unix_ms));
		snprintf(text, sizeof text, "%.12s", n->commit);
		table_text(&t, text);
		table_text(&t, night_outcome(n))->class = n->exit_code ? "warn" : "";
		const int counts[] = {n->exit_code, n->regressions, n->notices};
		for (int k = 0; k < 3; k++) {
			snprintf(text, sizeof text, "%d", counts[k]);
			table_number(&t, counts[k], text);
		}
		char *baseline = *n->baseline ? text_format("%s %d", n->baseline, n->baseline_version) : text_copy("none");
		table_text(&t, baseline);
		free(baseline);
		table_text(&t, n->machine);
	}
	report_table(r, &t);
}

/* The first line; what follows (commits, flipped samples, the command that reproduces it) folded. */
static void alert_message(struct strbuf *out, const char *message)
{
	size_t first = strcspn(message, "\n");
	char *line = text_format("%.*s", (int)first, message);
	html_text(out, line);
	if (message[first]) {
		strbuf_puts(out, "<details><summary>commits, samples, how to reproduce</summary><pre>");
		html_text(out, message + first + 1);
		strbuf_puts(out, "</pre></details>");
	}
	free(line);
}

static void alert_list(struct report *r)
{
	const struct history *h = &r->history;
	int newest = h->n_nights - 1, n = 0;
	for (int i = 0; i < h->n_alerts; i++)
		n += h->alerts[i].night == newest;
	strbuf_printf(r->out, "<h3>The newest night: %s</h3>\n", night_outcome(&h->nights[newest]));
	if (n == 0) {
		strbuf_puts(r->out, "<p class=\"good\">Nothing to report.</p>\n");
		return;
	}
	strbuf_puts(r->out, "<ul class=\"alerts\">");
	for (int i = 0; i < h->n_alerts; i++) {
		const struct night_alert *a = &h->alerts[i];
		if (a->night != newest)
			continue;
		strbuf_printf(r->out, "<li class=\"%s\"><b>", strcmp(a->level, "notice") == 0 ? "notice" : "warn");
		html_text(r->out, a->level);
		strbuf_puts(r->out, "</b> ");
		html_text(r->out, a->label);
		strbuf_puts(r->out, *a->label ? ": " : "");
		alert_message(r->out, a->message);
		strbuf_puts(r->out, "</li>\n");
	}
	strbuf_puts(r->out, "</ul>\n");
}

static void series_table(struct report *r, const struct series **list)
{
	const struct history *h = &r->history;
	struct table t;
	char text[64];
	table_begin(&t, "series", "All series", h->n_series ? query_series(list[0]->cell_id, list[0]->figure) : NULL);
	static const char *const head[][2] = {{"cell", "cell"}, {"figure", "figure"}, {"nights", "nights"}, {"levels", "levels"},
		{"newest", "newest"}, {"level", "level now"}, {"change", "last step"}, {"since", "since"}};
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.n_text = 2;
	for (int i = 0; i < h->n_series; i++) {
		const struct series *s = list[i];
		double level = s->n_steps ? s->steps[s->n_steps - 1].level : NAN;
		table_text(&t, s->label);
		table_text(&t, figure_name(s));
		snprintf(text, sizeof text, "%d", s->n);
		table_number(&t, s->n, text);
		snprintf(text, sizeof text, "%d", s->n_steps);
		table_number(&t, s->n_steps, text);
		table_number(&t, s->value[s->n - 1], figure_text(text, s, s->value[s->n - 1]));
		table_number(&t, level, isnan(level) ? "–" : figure_text(text, s, level));
		struct table_cell *c = table_number(&t, s->n_steps > 1 ? s->change : NAN, change_text(text, s));
		c->class = s->worse ? "warn" : "";
		table_text(&t, s->n_steps > 1
				       ? night_date(text, h->nights[s->night[s->steps[s->n_steps - 1].start]].started_unix_ms)
				       : "");
	}
	report_table(r, &t);
}

static bool there(const struct report *r)
{
	return r->history.n_nights > 0;
}

static void write_history(struct report *r)
{
	const struct history *h = &r->history;
	const struct series **list = by_interest(h);
	int stepped = 0;
	page_lead(r->out, "Every figure of every cell over the nights, with the levels of the piecewise constant series that "
			  "fits best (a level has at least three nights, so one bad night is no step). Scores fall, times rise: "
			  "orange. Diamonds: nights the gate refused. Times of other machines are left out.");
	alert_list(r);
	for (int i = 0; i < h->n_series; i++)
		stepped += list[i]->n_steps > 1;
	strbuf_printf(r->out, "<h3>Series (%d of %d with a step)</h3><div class=\"row wide\">\n", stepped, h->n_series);
	for (int i = 0; i < h->n_series && i < CHARTS && (i < 6 || list[i]->n_steps > 1); i++)
		series_chart(r->out, h, list[i]);
	strbuf_puts(r->out, "</div>\n");
	series_table(r, list);
	night_table(r);
	free(list);
}

const struct page page_history = {"history", "History", there, write_history};
