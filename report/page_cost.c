/* page_cost.c: what scoring costs: the time to first token with the scorer's own parts apart (a second pass, a proxy's wait,
 * a mapper), and each method's speed beside KVzip's, which itself stands beside the least its second pass can take: the pass's
 * arithmetic at the peak that the timing run measured on its machine. */
#include "report/charts.h"
#include "report/page.h"
#include "report/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order of time; parts that the page of times has too keep their colours. */
enum { PARTS = 9 };
static const struct chart_part parts[PARTS] = {{"prefill", 0}, {"second pass", 1}, {"wait for the proxy", 6}, {"mapper", 7},
	{"other scoring", 8}, {"select", 2}, {"compact", 3}, {"question", 4}, {"first token", 5}};

static double known(double v)
{
	return v > 0 ? v : 0;
}

/* What of the score is none of its details. */
static double rest_of_score(const struct cell *c)
{
	double rest = known(c->time[SCORE].median);
	for (int p = SECOND_PASS; p <= WAIT; p++)
		rest -= p == PROXY_PREFILL ? 0 : known(c->time[p].median);
	return known(rest);
}

static void fill_bar(struct chart_bar *b, const struct cell *c)
{
	const struct spread *t = c->time;
	const double value[PARTS] = {t[PREFILL].median, t[SECOND_PASS].median, t[WAIT].median, t[MAPPER].median, rest_of_score(c),
		t[SELECT].median, t[COMPACT].median, t[QUESTION].median, t[FIRST_TOKEN].median};
	memcpy(b->part, value, sizeof value);
}

static const struct cell *kvzip_of(const struct data *d, const struct cell **list, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(d->variants[list[i]->variant].name, "kvzip") == 0)
			return list[i];
	return NULL;
}

static void cost_chart(struct strbuf *out, const struct data *d, int panel)
{
	int n;
	const struct cell **list = page_timed_cells(d, panel, &n), *kvzip = kvzip_of(d, list, n);
	struct chart_bar *bars = mem_new((size_t)n + 1, sizeof *bars);
	char text[64];
	for (int i = 0; i < n; i++) {
		double ratio = data_ttft_ratio(d, list[i]);
		bars[i] = (struct chart_bar){.label = d->variants[list[i]->variant].label, .whole = list[i]->time[TTFT].median};
		fill_bar(&bars[i], list[i]);
		format_time(text, bars[i].whole);
		if (kvzip && kvzip != list[i] && !d->variants[list[i]->variant].full)
			snprintf(bars[i].note, sizeof bars[i].note, "%.2f× · kvzip ÷ %.2f", ratio,
				kvzip->time[TTFT].median / bars[i].whole);
		else
			snprintf(bars[i].note, sizeof bars[i].note, isnan(ratio) ? "%s" : "%s · %.2f×", text, ratio);
	}
	char *title = text_format(
		"%s, %s, r = %g", d->panels[panel].title, d->panels[panel].row->protocol, data_timed_ppm(d, panel) / 1e6);
	if (n > 0)
		chart_bars(out, title, "Median time to first token with the parts of scoring", "ms (medians)", 1e6, bars, n,
			parts, PARTS, format_time);
	free(title);
	free(bars);
	free(list);
}

static void number(struct table *t, double v, const char *format)
{
	char text[64];
	snprintf(text, sizeof text, format, v);
	table_number(t, v, isnan(v) ? "–" : text);
}

/* Columns of the table: scoring and its details; a detail that nothing has gets none. */
static const int shown[] = {SCORE, SECOND_PASS, PROXY_PREFILL, MAPPER, WAIT, ALLOCATE, GATHER};

static bool any_time(const struct data *d, int phase)
{
	for (int i = 0; i < d->n_cells; i++)
		if (phase == SCORE || d->cells[i].time[phase].median > 0)
			return true;
	return false;
}

static bool any_floor(const struct data *d)
{
	for (int i = 0; i < d->n_cells; i++)
		if (!isnan(d->cells[i].prefill_floor))
			return true;
	return false;
}

static void cost_row(struct table *t, const struct data *d, const struct cell *c, const struct cell *kvzip)
{
	char text[64], *where = text_format("%s, %s", d->panels[c->panel].title, c->row.protocol);
	const struct cell *full = data_full(d, c->panel);
	table_text(t, d->variants[c->variant].label);
	table_text(t, where);
	free(where);
	table_number(t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
	table_number(t, c->time[TTFT].median, format_time(text, c->time[TTFT].median));
	for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
		if (any_time(d, shown[i]))
			table_number(t, c->time[shown[i]].median, format_time(text, c->time[shown[i]].median));
	number(t, 100 * c->time[SCORE].median / c->time[PREFILL].median, "%.1f %%");
	number(t, kvzip ? kvzip->time[TTFT].median / c->time[TTFT].median : NAN, "%.2f×");
	double pass = c->time[SECOND_PASS].median;
	number(t, full && cell_timed(full) && pass > 0 ? pass / full->time[PREFILL].median : NAN, "%.2f×");
	if (any_floor(d)) {
		number(t, c->time[PREFILL].median / c->prefill_floor, "%.2f×");
		number(t, pass > 0 ? pass / c->second_pass_floor : NAN, "%.2f×");
	}
}

static void cost_table(struct report *r)
{
	const struct data *d = r->d;
	struct table t;
	table_begin(&t, "cost", "Scoring cost (medians)", query_times(report_scope(r, NULL, false, false)));
	table_column(&t, "method", "method");
	table_column(&t, "task", "task");
	table_column(&t, "retained", "r");
	table_column(&t, "ttft_ns", "first token");
	for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
		char *name = text_format("%s_ns", phase_name[shown[i]]), *space = text_copy(phase_name[shown[i]]);
		for (char *c = space; *c; c++)
			*c = *c == '_' ? ' ' : *c;
		if (any_time(d, shown[i]))
			table_column(&t, name, "%s", space);
		free(name);
		free(space);
	}
	table_column(&t, "score_percent_of_prefill", "score of prefill");
	table_column(&t, "faster_than_kvzip", "faster than kvzip");
	table_column(&t, "second_pass_of_prefill", "second pass of prefill");
	if (any_floor(d)) {
		table_column(&t, "prefill_over_floor", "prefill over its floor");
		table_column(&t, "second_pass_over_floor", "second pass over its floor");
	}
	t.n_text = 2;
	for (int p = 0; p < d->n_panels; p++) {
		int n;
		const struct cell **list = page_timed_cells(d, p, &n), *kvzip = kvzip_of(d, list, n);
		for (int i = 0; i < n; i++)
			cost_row(&t, d, list[i], kvzip);
		free(list);
	}
	report_table(r, &t);
}

static bool there(const struct report *r)
{
	for (int i = 0; i < r->d->n_cells; i++) {
		const struct cell *c = &r->d->cells[i];
		if (!cell_timed(c))
			continue;
		if (strcmp(r->d->variants[c->variant].name, "kvzip") == 0)
			return true;
		for (int p = FIRST_DETAIL; p < N_PHASES; p++)
			if (c->time[p].median > 0)
				return true;
	}
	return false;
}

/* A speed-up over KVzip is worth what KVzip's own pass is: its time over its floor, and what a KVzip at its floor would leave. */
static void floor_note(struct strbuf *out, const struct data *d, int panel)
{
	int n;
	const struct cell **list = page_timed_cells(d, panel, &n), *kvzip = kvzip_of(d, list, n);
	if (kvzip && kvzip->time[SECOND_PASS].median > 0 && kvzip->second_pass_floor > 0) {
		double prefill = kvzip->prefill_floor, pass = kvzip->second_pass_floor;
		char *title = text_format("%s, %s", d->panels[panel].title, d->panels[panel].row->protocol);
		strbuf_puts(out, "<p class=\"note\"><b>");
		html_text(out, title);
		strbuf_printf(out,
			"</b>: KVzip’s second pass took %.1f times its floor, the prefill %.1f times its own (floor: the arithmetic "
			"at the machine’s peak, measured in the same process). With both at their floors, no method could be more "
			"than %.2f times faster than KVzip.</p>\n",
			kvzip->time[SECOND_PASS].median / pass, kvzip->time[PREFILL].median / prefill, (prefill + pass) / prefill);
		free(title);
	}
	free(list);
}

static void write_cost(struct report *r)
{
	struct strbuf *out = r->out;
	page_lead(out, "The time to first token with the parts of scoring apart. Behind each bar: its ratio to the full cache, "
		       "and how many times faster than KVzip it is. KVzip's own second pass takes no less than about one "
		       "prefill where the layers' products decide, two and more where attention does: its measured multiple stands in the table, "
		       "beside its time over its floor, so that a speed-up over a slow KVzip is seen for what it is.");
	for (int p = 0; p < r->d->n_panels; p++)
		floor_note(out, r->d, p);
	chart_parts_legend(out, parts, PARTS);
	strbuf_puts(out, "<div class=\"row wide\">\n");
	for (int p = 0; p < r->d->n_panels; p++)
		cost_chart(out, r->d, p);
	strbuf_puts(out, "</div>\n");
	cost_table(r);
}

const struct page page_cost = {"cost", "Scoring cost", there, write_cost};
