/* page_summary.c: the first page: which method at which ratio, what ran, what went wrong, what the numbers say in sentences. */
#include "report/page.h"
#include "report/summary.h"
#include "report/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the headline ---- */

/* "−0.2 points [−1.0, +0.4]". */
static const char *points(char buf[96], struct interval i)
{
	char mean[32], lo[32], hi[32];
	format_points(mean, i.mean);
	if (isnan(i.lo))
		snprintf(buf, 96, "%s points", mean);
	else
		snprintf(buf, 96, "%s points [%s, %s]", mean, format_points(lo, i.lo), format_points(hi, i.hi));
	return buf;
}

static void method_at(struct strbuf *out, const struct data *d, const struct pick *p)
{
	char r[64];
	strbuf_puts(out, "<b>");
	html_text(out, d->variants[p->variant].label);
	strbuf_printf(out, "</b> at <b>r = %s</b>", format_ratio(r, d->ppm[p->ratio]));
}

/* "−0.2 points [...] against the full cache, 30 % of its entries, first token 1.1× the full cache's". */
static void facts(struct strbuf *out, const struct data *d, const struct pick *p)
{
	char text[96];
	const struct loss *v = p->loss;
	strbuf_printf(out, "%s against the full cache on %d answers; %.0f %% of the entries kept", points(text, v->change),
		v->samples, 100 * v->kept);
	if (isnan(v->ttft))
		strbuf_puts(out, "; its time was not measured");
	else
		strbuf_printf(out, "; first token %.2f× the full cache's", v->ttft);
	if (!isnan(v->ttft) && v->ttft_ppm != d->ppm[p->ratio])
		strbuf_printf(out, " (timed at r = %g)", v->ttft_ppm / 1e6);
}

static void second_choice(struct strbuf *out, const struct report *r, int setting, const struct pick *first)
{
	struct pick fast;
	bool found = loss_pick(&r->losses, r->d, setting, true, &fast);
	if (isnan(first->loss->ttft) || (found && fast.variant == first->variant && fast.ratio == first->ratio))
		return;
	strbuf_puts(out, "<p>");
	if (found) {
		strbuf_printf(out, "With a first token within %.1f× the full cache's: ", LOSS_SLOW / 100.0);
		method_at(out, r->d, &fast);
		strbuf_puts(out, ": ");
		facts(out, r->d, &fast);
		strbuf_puts(out, ".");
	} else {
		strbuf_printf(
			out, "No method that holds has a measured first token within %.1f× the full cache's.", LOSS_SLOW / 100.0);
	}
	strbuf_puts(out, "</p>\n");
}

static void verdict_words(struct strbuf *out, const struct report *r, int setting)
{
	struct pick p;
	if (r->losses.panels[setting] == 0) {
		strbuf_puts(out, "<p class=\"big\">No full cache was measured: nothing can be judged.</p>\n");
	} else if (loss_pick(&r->losses, r->d, setting, false, &p)) {
		strbuf_puts(out, "<p class=\"big\">");
		method_at(out, r->d, &p);
		strbuf_printf(out, "</p><p>The smallest cache that holds the full score within %d points: ", LOSS_MARGIN);
		facts(out, r->d, &p);
		strbuf_puts(out, ".</p>\n");
		second_choice(out, r, setting, &p);
	} else if (loss_nearest(&r->losses, r->d, setting, &p)) {
		strbuf_printf(out,
			"<p class=\"big\">None yet</p><p>At no ratio below 1 does a method surely hold the full score within %d "
			"points. Nearest: ",
			LOSS_MARGIN);
		method_at(out, r->d, &p);
		strbuf_puts(out, ": ");
		facts(out, r->d, &p);
		strbuf_puts(out, ".</p>\n");
	} else {
		strbuf_puts(out, "<p class=\"big\">Nothing can be said yet</p><p>No method was measured in full on every task.</p>\n");
	}
}

static void headline(struct report *r)
{
	struct strbuf *out = r->out;
	strbuf_puts(out, "<div class=\"cards\">\n");
	for (int s = 0; s < r->d->n_settings; s++) {
		const struct cell_row *w = r->d->panels[r->d->setting_of[s]].row;
		bool aware = strcmp(w->protocol, "aware") == 0;
		strbuf_printf(out,
			"<article class=\"card\"><h3>Question %s before pruning <span class=\"tag\">%s</span></h3><p "
			"class=\"sub\">",
			aware ? "seen" : "not seen", aware ? "aware" : "agnostic");
		html_text(out, w->target);
		strbuf_printf(out, " · ");
		html_text(out, w->precision);
		strbuf_printf(out, " · %d task%s</p>\n", r->losses.panels[s], r->losses.panels[s] == 1 ? "" : "s by length");
		verdict_words(out, r, s);
		strbuf_puts(out, "</article>\n");
	}
	strbuf_puts(out, "</div>\n");
}

/* ---- the night ---- */

/* First lines of what was no notice; the history page has the whole. */
static void night_alerts(struct strbuf *out, const struct history *h, int night)
{
	enum { LISTED = 4 };
	int n = 0;
	for (int i = 0; i < h->n_alerts; i++) {
		const struct night_alert *a = &h->alerts[i];
		if (a->night != night || strcmp(a->level, "notice") == 0 || ++n > LISTED)
			continue;
		strbuf_puts(out, n == 1 ? "<ul class=\"alerts\"><li>" : "<li>");
		char *line = text_format("%s%s%s: %.*s", a->kind, *a->label ? ": " : "", a->label, (int)strcspn(a->message, "\n"), a->message);
		html_text(out, line);
		strbuf_puts(out, "</li>\n");
		free(line);
	}
	strbuf_puts(out, n ? "</ul>\n" : "");
	if (n > LISTED)
		strbuf_printf(out, "<p class=\"sub\">and %d more</p>\n", n - LISTED);
}

/* What is asked first in the morning: did anything break? Of the newest night that was gated. */
static void night_card(struct report *r)
{
	const struct history *h = &r->history;
	char when[64];
	if (h->n_nights == 0)
		return;
	const struct night *n = &h->nights[h->n_nights - 1];
	strbuf_printf(r->out, "<article class=\"card night%s\"><h3>Night of %s: %s</h3><p class=\"sub\">", n->exit_code ? " bad" : "",
		night_date(when, n->started_unix_ms), night_outcome(n));
	if (n->baseline_version > 0) {
		strbuf_puts(r->out, "against baseline ");
		html_text(r->out, n->baseline);
		strbuf_printf(r->out, ", version %d; ", n->baseline_version);
	}
	strbuf_printf(r->out, "%d alert%s, %d notice%s; <a href=\"#history\">all of them, and the nights before</a></p>\n", n->regressions,
		n->regressions == 1 ? "" : "s", n->notices, n->notices == 1 ? "" : "s");
	night_alerts(r->out, h, h->n_nights - 1);
	strbuf_puts(r->out, "</article>\n");
}

/* ---- loss by method and ratio ---- */

static void loss_cell(struct table *t, const struct report *r, const struct loss *v)
{
	static const char *const class[] = {"", "holds", "open", "loses"};
	char mean[32], lo[32], hi[32];
	if (v->panels == 0) {
		table_text(t, "");
		return;
	}
	struct table_cell *c = table_number(t, 100 * v->change.mean, format_points(mean, v->change.mean));
	c->class = class[v->whole ? v->class : UNDECIDED];
	if (!isnan(v->change.lo))
		c->small = text_format("%s, %s", format_points(lo, v->change.lo), format_points(hi, v->change.hi));
	c->title = text_format(
		"mean score %.3f on %d of %d tasks and lengths; of %d answers %d better, %d worse than the full cache's",
		v->score, v->panels, r->d->n_panels, v->samples, v->better, v->worse);
	if (!v->whole) {
		free(c->small);
		c->small = text_format("a part: %d tasks, %d answers", v->panels, v->samples);
	}
}

/* At the reference ratio, or the nearest that was timed. */
static double time_of(const struct report *r, int setting, int variant)
{
	int k = 0;
	while (k + 1 < r->d->n_ppm && r->d->ppm[k] != r->d->reference_ppm)
		k++;
	return loss_at(&r->losses, setting, variant, k)->ttft;
}

/* Ratios at which any method was measured (the full cache alone has 1); their places in d->ppm into place. */
static int ratios_with_losses(const struct report *r, int setting, int *ppm, int *place)
{
	const struct data *d = r->d;
	int n = 0;
	for (int k = 0; k < d->n_ppm; k++) {
		bool any = false;
		for (int v = 0; v < d->n_variants; v++)
			any |= !d->variants[v].full && loss_at(&r->losses, setting, v, k)->panels > 0;
		if (any) {
			place[n] = k;
			ppm[n++] = d->ppm[k];
		}
	}
	return n;
}

static void loss_table(struct report *r, int setting)
{
	const struct data *d = r->d;
	int *ppm = mem_new((size_t)d->n_ppm + 1, sizeof *ppm), *place = mem_new((size_t)d->n_ppm + 1, sizeof *place);
	int n = ratios_with_losses(r, setting, ppm, place);
	const struct cell_row *w = d->panels[d->setting_of[setting]].row;
	struct table t;
	char text[64];
	char *id = text_format("loss-%d", setting), *caption = text_format("Points lost to the full cache, %s", w->protocol);
	table_begin(&t, id, caption, query_losses(report_scope(r, w, false, false), ppm, n));
	table_column(&t, "method", "method");
	for (int k = 0; k < n; k++) {
		char *name = text_format("loss_points_%g", ppm[k] / 1e6);
		table_column(&t, name, "r = %s", format_ratio(text, ppm[k]));
		free(name);
	}
	table_column(&t, "ttft_of_full", "first token");
	for (int v = 0; v < d->n_variants; v++) {
		bool any = false;
		for (int k = 0; k < n; k++)
			any |= loss_at(&r->losses, setting, v, place[k])->panels > 0;
		if (!any || d->variants[v].full)
			continue;
		table_text(&t, d->variants[v].label);
		for (int k = 0; k < n; k++)
			loss_cell(&t, r, loss_at(&r->losses, setting, v, place[k]));
		double ratio = time_of(r, setting, v);
		snprintf(text, sizeof text, "%.2f×", ratio);
		table_number(&t, ratio, isnan(ratio) ? "–" : text);
	}
	report_table(r, &t);
	free(id);
	free(caption);
	free(ppm);
	free(place);
}

/* ---- what ran ---- */

static void tile(struct strbuf *out, bool bad, const char *value, const char *label)
{
	strbuf_printf(out, "<div%s><dt>%s</dt><dd>", bad ? " class=\"bad\"" : "", label);
	html_text(out, value);
	strbuf_puts(out, "</dd></div>");
}

static void count_tile(struct strbuf *out, bool bad, const char *label, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static void count_tile(struct strbuf *out, bool bad, const char *label, const char *format, ...)
{
	char text[96];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	tile(out, bad, text, label);
}

static void tiles(struct report *r)
{
	struct totals t = summary_totals(r->d);
	struct strbuf *out = r->out;
	char took[64];
	const struct source *s = &r->sources[0];
	strbuf_puts(out, "<dl class=\"tiles\">");
	count_tile(out, t.complete < t.cells, "cells complete", "%d / %d", t.complete, t.cells);
	count_tile(out, t.ok < t.planned, "samples answered", "%d / %lld", t.ok, t.planned);
	count_tile(out, t.failed + t.oom > 0, "failed, out of memory", "%d, %d", t.failed, t.oom);
	count_tile(out, t.missing > 0, "not yet run, not applicable", "%lld, %d", t.missing, t.not_applicable);
	count_tile(out, t.empty > 0, "answers empty, ended by length", "%d, %d", t.empty, t.length_finish);
	count_tile(out, s->n_open > 0, s->n_open ? "not ended, or killed: a run" : s->n_runs == 1 ? "in 1 run" : "in several runs", "%s",
		s->took_ms ? format_duration(took, s->took_ms / 1e3) : "–");
	strbuf_puts(out, "</dl>\n");
}

static void list(struct strbuf *out, const struct notes *n, const char *class)
{
	strbuf_printf(out, "<ul class=\"%s\">", class);
	for (int i = 0; i < n->n; i++) {
		strbuf_puts(out, "<li>");
		html_text(out, n->text[i]);
		strbuf_puts(out, "</li>\n");
	}
	strbuf_puts(out, "</ul>\n");
}

static void flags(struct report *r)
{
	struct notes flags = {0};
	struct strbuf *out = r->out;
	summary_flags(r->d, &flags);
	strbuf_printf(out, "<h3>Flags (%d)</h3>\n", flags.n);
	if (flags.n > 0)
		list(out, &flags, "flags");
	else
		strbuf_puts(
			out, "<p class=\"good\">None: no failed or missing samples, no empty answers, controls in order.</p>\n");
	notes_free(&flags);
}

static void findings(struct report *r)
{
	struct notes main = {0}, more = {0};
	struct strbuf *out = r->out;
	summary_findings(r->d, &main, &more);
	strbuf_puts(out, "<details class=\"fold\"><summary>In words</summary>\n");
	if (main.n == 0)
		strbuf_puts(out, "<p>Nothing can be said yet: no ratio has methods and the control <i>random</i> both.</p>\n");
	else
		list(out, &main, "findings");
	if (more.n > 0) {
		strbuf_printf(out, "<details><summary>The same for the other lengths (%d)</summary>", more.n);
		list(out, &more, "findings");
		strbuf_puts(out, "</details>\n");
	}
	strbuf_puts(out, "</details>\n");
	notes_free(&main);
	notes_free(&more);
}

static void write_summary(struct report *r)
{
	night_card(r);
	headline(r);
	tiles(r);
	if (r->d->n_settings > 0) {
		strbuf_printf(r->out,
			"<h3>What each method loses</h3><p class=\"sub\">Mean over tasks and lengths of the score difference to "
			"the full cache on the same samples, in points of 100, with its 95 %% interval (contexts resampled). "
			"<span class=\"holds\">holds</span>: surely within %d points; <span class=\"loses\">loses</span>: surely "
			"worse; <span class=\"open\">open</span>: too few samples to tell.</p>\n",
			LOSS_MARGIN);
		for (int s = 0; s < r->d->n_settings; s++)
			loss_table(r, s);
	}
	flags(r);
	findings(r);
}

const struct page page_summary = {"summary", "Summary", NULL, write_summary};
