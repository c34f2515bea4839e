/* page_time.c: time to first token: its parts, its growth with the length, all figures. */
#include "report/charts.h"
#include "report/page.h"
#include "report/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct chart_part parts[N_PARTS] = {
	{"prefill", 0}, {"score", 1}, {"select", 2}, {"compact", 3}, {"question", 4}, {"first token", 5}};

bool page_timed(const struct report *r)
{
	for (int i = 0; i < r->d->n_cells; i++)
		if (cell_timed(&r->d->cells[i]))
			return true;
	return false;
}

const struct cell **page_timed_cells(const struct data *d, int panel, int *n)
{
	int ppm = data_timed_ppm(d, panel);
	const struct cell **list = mem_new((size_t)d->n_variants + 1, sizeof *list), *full = data_full(d, panel);
	*n = 0;
	if (full && cell_timed(full))
		list[(*n)++] = full;
	for (int v = 0; v < d->n_variants; v++) {
		const struct cell *c = ppm && !d->variants[v].full ? data_cell(d, panel, v, ppm) : NULL;
		if (c && cell_timed(c))
			list[(*n)++] = c;
	}
	return list;
}

static void parts_chart(struct strbuf *out, const struct data *d, int panel)
{
	int n;
	const struct cell **list = page_timed_cells(d, panel, &n);
	struct chart_bar *bars = mem_new((size_t)n + 1, sizeof *bars);
	char text[64];
	for (int i = 0; i < n; i++) {
		double ratio = data_ttft_ratio(d, list[i]);
		bars[i] = (struct chart_bar){.label = d->variants[list[i]->variant].label, .whole = list[i]->time[TTFT].median};
		for (int k = 0; k < N_PARTS; k++)
			bars[i].part[k] = list[i]->time[k].median;
		snprintf(bars[i].note, sizeof bars[i].note, isnan(ratio) ? "%s" : "%s · %.2f×", format_time(text, bars[i].whole),
			ratio);
	}
	char *title = text_format(
		"%s, %s, r = %g", d->panels[panel].title, d->panels[panel].row->protocol, data_timed_ppm(d, panel) / 1e6);
	if (n > 0)
		chart_bars(out, title, "Median time to first token, stacked by part", "ms (medians)", 1e6, bars, n, parts,
			N_PARTS, format_time);
	free(title);
	free(bars);
	free(list);
}

static double ttft_median(const struct cell *c)
{
	return c->time[TTFT].median;
}
static double ttft_p10(const struct cell *c)
{
	return c->time[TTFT].p10;
}
static double ttft_p90(const struct cell *c)
{
	return c->time[TTFT].p90;
}

static void length_charts(struct report *r)
{
	static const struct chart_measure ttft = {"",
		"Median time to first token over context length; bars are the 10th and 90th percentiles",
		"context tokens (log); time to first token (log)", ttft_median, ttft_p10, ttft_p90, format_time, true};
	struct strbuf charts = {0};
	bool any = false;
	for (int f = 0; f < r->d->n_figures; f++)
		any |= chart_lengths(&charts, r->d, f, &ttft);
	if (any) {
		strbuf_puts(r->out, "<h3>Against length</h3>\n");
		chart_legend(r->out, r->d);
		strbuf_printf(r->out, "<div class=\"row wide\">\n%s</div>\n", charts.text);
	}
	strbuf_free(&charts);
}

static void time_cell(struct table *t, double ns)
{
	char text[64];
	table_number(t, ns, format_time(text, ns));
}

static void time_row(struct table *t, const struct data *d, const struct cell *c)
{
	char text[64];
	double ratio = data_ttft_ratio(d, c),
	       token = c->decode_tokens > 0 ? c->time[DECODE].median / (double)c->decode_tokens : NAN;
	char *where = text_format("%s, %s", d->panels[c->panel].title, c->row.protocol);
	table_text(t, d->variants[c->variant].label);
	table_text(t, where);
	free(where);
	table_number(t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
	time_cell(t, c->time[TTFT].median);
	time_cell(t, c->time[TTFT].p10);
	time_cell(t, c->time[TTFT].p90);
	snprintf(text, sizeof text, "%.2f×", ratio);
	table_number(t, ratio, isnan(ratio) ? "–" : text);
	for (int p = 0; p < N_PARTS; p++)
		time_cell(t, c->time[p].median);
	time_cell(t, c->time[SECOND_TTFT].median);
	time_cell(t, token);
	snprintf(text, sizeof text, "%d", c->time[TTFT].n);
	table_number(t, c->time[TTFT].n, text);
}

static void time_table(struct report *r)
{
	static const char *const head[][2] = {{"method", "method"}, {"task", "task"}, {"retained", "r"},
		{"ttft_ns", "first token"}, {"p10_ns", "p10"}, {"p90_ns", "p90"}, {"ttft_of_full", "of full"},
		{"prefill_ns", "prefill"}, {"score_ns", "score"}, {"select_ns", "select"}, {"compact_ns", "compact"},
		{"question_ns", "question"}, {"first_token_ns", "first"}, {"second_ttft_ns", "2nd question"},
		{"decode_ns_per_token", "decode/token"}, {"repetitions", "n"}};
	struct table t;
	table_begin(&t, "times", "All times (medians)", query_times(report_scope(r, NULL, false, false)));
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.n_text = 2;
	for (int p = 0; p < r->d->n_panels; p++)
		for (int i = 0; i < r->d->n_cells; i++)
			if (r->d->cells[i].panel == p && cell_timed(&r->d->cells[i]))
				time_row(&t, r->d, &r->d->cells[i]);
	report_table(r, &t);
}

static bool has_device_clock(const struct cell *c)
{
	return cell_timed(c) && !isnan(c->device_time[TTFT]);
}

static void device_row(struct table *t, const struct data *d, const struct cell *c)
{
	char text[64], *where = text_format("%s, %s", d->panels[c->panel].title, c->row.protocol);
	double share = c->device_time[TTFT] / c->time[TTFT].median;
	table_text(t, d->variants[c->variant].label);
	table_text(t, where);
	free(where);
	table_number(t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
	time_cell(t, c->device_time[TTFT]);
	time_cell(t, c->time[TTFT].median);
	snprintf(text, sizeof text, "%.1f %%", 100 * share);
	table_number(t, share, text);
	for (int p = 0; p < N_PARTS; p++)
		time_cell(t, c->device_time[p]);
}

/* Where the device has a clock of its own: what the host saw beside what the device did. */
static void device_table(struct report *r)
{
	static const char *const head[][2] = {{"method", "method"}, {"task", "task"}, {"retained", "r"}, {"device_ns", "device"},
		{"host_ns", "host"}, {"device_of_host", "of host"}, {"prefill_ns", "prefill"}, {"score_ns", "score"},
		{"select_ns", "select"}, {"compact_ns", "compact"}, {"question_ns", "question"}, {"first_token_ns", "first"}};
	struct table t;
	bool any = false;
	for (int i = 0; i < r->d->n_cells; i++)
		any |= has_device_clock(&r->d->cells[i]);
	if (!any)
		return;
	page_lead(r->out,
		"The same times by the device’s own clock, from events in its queue: what is missing to the host’s is time in "
		"which the device had nothing to do, before its first and after its last operation.");
	table_begin(
		&t, "device-times", "By the device’s clock (medians)", query_device_times(report_scope(r, NULL, false, false)));
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.n_text = 2;
	for (int p = 0; p < r->d->n_panels; p++)
		for (int i = 0; i < r->d->n_cells; i++)
			if (r->d->cells[i].panel == p && has_device_clock(&r->d->cells[i]))
				device_row(&t, r->d, &r->d->cells[i]);
	report_table(r, &t);
}

static void write_time(struct report *r)
{
	struct strbuf *out = r->out;
	page_lead(out, "From the token ids on the host to the first new id on the host: prefill, scoring, selection, compaction, "
		       "the question, the first token; loading, tokenising and warm-up outside. Each repetition starts from an "
		       "empty cache. Behind each bar: the median, and its ratio to the full cache of the same process.");
	strbuf_puts(out, "<h3>Parts</h3>\n");
	chart_parts_legend(out, parts, N_PARTS);
	strbuf_puts(out, "<div class=\"row wide\">\n");
	for (int p = 0; p < r->d->n_panels; p++)
		parts_chart(out, r->d, p);
	strbuf_puts(out, "</div>\n");
	length_charts(r);
	time_table(r);
	device_table(r);
}

const struct page page_time = {"time", "First token", page_timed, write_time};
