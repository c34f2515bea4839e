/* page_accuracy.c: accuracy against the share kept: a chart for each task and length, its table below. */
#include "report/charts.h"
#include "report/page.h"
#include "report/summary.h"
#include "report/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void figure_head(struct strbuf *out, const struct cell_row *r)
{
	strbuf_puts(out, "<h4>");
	html_text(out, r->task);
	strbuf_printf(out, ", %s</h4><p class=\"sub\">metric ", r->protocol);
	html_text(out, r->metric);
	strbuf_printf(out, " (scorer %d) · measure %d</p>\n", r->scorer_version, r->measure_version);
}

/* near: within error of full. low: not above random beyond error. Controls themselves are neither. */
static const char *score_class(const struct data *d, const struct cell *c)
{
	const struct cell *full = data_full(d, c->panel), *random = data_random(d, c->panel, c->row.retained_ppm);
	if (d->variants[c->variant].colour < 0)
		return "";
	if (full && full->score.n > 0 && !stats_disjoint(c->score, full->score))
		return "near";
	bool above = random && stats_disjoint(c->score, random->score) && c->score.mean > random->score.mean;
	return random && random->score.n > 0 && !above ? "low" : "";
}

/* What stands below a score: its interval, the second metric, what is missing. Caller frees. */
static char *small_print(const struct cell *c)
{
	const struct cell_row *r = &c->row;
	struct strbuf b = {0};
	if (!isnan(c->score.lo))
		strbuf_printf(&b, "%.2f–%.2f", c->score.lo, c->score.hi);
	if (r->also_metric && !isnan(r->also_mean))
		strbuf_printf(&b, "%s%s %.2f", b.len ? " · " : "", r->also_metric, r->also_mean);
	if (r->ok < r->planned)
		strbuf_printf(&b, "%s%d of %d%s%s", b.len ? " · " : "", r->ok, r->planned, r->oom ? ", oom" : "",
			r->failed ? ", failed" : "");
	if (r->empty)
		strbuf_printf(&b, "%s%d empty", b.len ? " · " : "", r->empty);
	return b.len ? strbuf_take(&b) : NULL;
}

static void score_cell(struct table *t, const struct data *d, const struct cell *c)
{
	char text[64];
	if (!c) {
		table_text(t, "");
		return;
	}
	struct table_cell *x = table_number(t, c->score.mean, format_score(text, c->score.mean));
	x->class = score_class(d, c);
	x->link = samples_link(d, c);
	x->small = small_print(c);
	x->title = text_format("%d of %d samples, kept %s", c->row.ok, c->row.planned, format_score(text, c->row.retained_mean));
}

static void panel_table(struct report *r, int panel)
{
	const struct data *d = r->d;
	const struct cell_row *w = d->panels[panel].row;
	struct table t;
	char text[64], *id = text_format("accuracy-%d", panel),
		       *caption = text_format("%s, %s", d->panels[panel].title, w->protocol);
	table_begin(&t, id, caption, query_scores(report_scope(r, w, true, false), d->ppm, d->n_ppm));
	table_column(&t, "method", "method");
	for (int k = 0; k < d->n_ppm; k++) {
		char *name = text_format("score_%g", d->ppm[k] / 1e6);
		table_column(&t, name, "r = %s", format_ratio(text, d->ppm[k]));
		free(name);
	}
	for (int v = 0; v < d->n_variants; v++) {
		if (!data_in_panel(d, panel, v))
			continue;
		table_text(&t, d->variants[v].label);
		for (int k = 0; k < d->n_ppm; k++)
			score_cell(&t, d, data_cell(d, panel, v, d->ppm[k]));
	}
	report_table(r, &t);
	free(id);
	free(caption);
}

static void write_accuracy(struct report *r)
{
	const struct data *d = r->d;
	struct strbuf *out = r->out;
	page_lead(out, "Mean scores with 95 % bands: Wilson where every score of a cell is 0 or 1, else a bootstrap of 10,000 "
		       "over contexts. Dashed: full cache. Dotted: random.");
	chart_legend(out, d);
	for (int p = 0; p < d->n_panels;) {
		int first = p, figure = d->panels[p].figure;
		if (p == d->setting_of[d->panels[p].setting])
			page_setting_head(out, r, d->panels[p].setting);
		figure_head(out, d->panels[p].row);
		strbuf_puts(out, "<div class=\"row\">\n");
		for (; p < d->n_panels && d->panels[p].figure == figure; p++)
			chart_accuracy(out, d, p);
		strbuf_puts(out, "</div>\n<details><summary>Tables: bold is within error of the full cache, grey is not above "
				 "random beyond error</summary>\n");
		for (int i = first; i < p; i++)
			panel_table(r, i);
		strbuf_puts(out, "</details>\n");
	}
	if (d->n_panels == 0)
		strbuf_puts(out, "<p>No cells.</p>\n");
}

const struct page page_accuracy = {"accuracy", "Accuracy", NULL, write_accuracy};
