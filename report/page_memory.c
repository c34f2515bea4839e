/* page_memory.c: memory: the peak of the timed pruning and the cache before and after, against length; where the peak lies. */
#include "report/charts.h"
#include "report/page.h"
#include "report/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double peak_of(const struct cell *c)
{
	return c->peak_bytes > 0 ? (double)c->peak_bytes : NAN;
}
static double cache_of(const struct cell *c)
{
	return c->kv_after > 0 ? (double)c->kv_after : NAN;
}
static const char *bytes_text(char *buf, double v)
{
	return format_bytes(buf, (int64_t)v);
}

static const struct chart_measure measures[] = {
	{"Peak: ", "Peak memory of one pruning and its first token over context length",
		"context tokens (log); peak memory (log)", peak_of, NULL, NULL, bytes_text, false},
	{"Cache left: ", "Bytes of the key-value cache after pruning over context length",
		"context tokens (log); cache after pruning (log)", cache_of, NULL, NULL, bytes_text, false},
};

static void length_charts(struct report *r)
{
	struct strbuf charts = {0};
	bool any = false;
	for (int f = 0; f < r->d->n_figures; f++)
		for (size_t m = 0; m < sizeof measures / sizeof *measures; m++)
			any |= chart_lengths(&charts, r->d, f, &measures[m]);
	if (any) {
		strbuf_puts(r->out, "<h3>Against length</h3>\n");
		chart_legend(r->out, r->d);
		strbuf_printf(r->out, "<div class=\"row wide\">\n%s</div>\n", charts.text);
	}
	strbuf_free(&charts);
}

/* ---- where the peak lies ---- */

static const struct chart_part parts[] = {
	{"weights", 0}, {"kv", 4}, {"activations", 2}, {"scores", 1}, {"proxy", 5}, {"compaction", 3}};
enum { PARTS = sizeof parts / sizeof *parts };

static double part_bytes(const struct cell *c, const char *part)
{
	double sum = 0;
	for (int i = 0; i < c->n_memory; i++)
		if (strcmp(c->memory[i].part, part) == 0)
			sum += (double)c->memory[i].peak_bytes;
	return sum;
}

static void parts_chart(struct strbuf *out, const struct data *d, int panel)
{
	int n, used = 0;
	const struct cell **list = page_timed_cells(d, panel, &n);
	struct chart_bar *bars = mem_new((size_t)n + 1, sizeof *bars);
	char text[64];
	for (int i = 0; i < n; i++) {
		if (!list[i]->n_memory)
			continue;
		struct chart_bar *b = &bars[used++];
		double total = part_bytes(list[i], "total"), sum = 0;
		for (int k = 0; k < PARTS; k++)
			sum += b->part[k] = part_bytes(list[i], parts[k].label);
		b->label = d->variants[list[i]->variant].label;
		b->whole = total > 0 ? total : sum;
		snprintf(b->note, sizeof b->note, "%s", bytes_text(text, b->whole));
	}
	char *title = text_format(
		"%s, %s, r = %g", d->panels[panel].title, d->panels[panel].row->protocol, data_timed_ppm(d, panel) / 1e6);
	if (used > 0)
		chart_bars(out, title, "Largest bytes of each part; parts need not peak together", "MB", 1e6, bars, used, parts,
			PARTS, bytes_text);
	free(title);
	free(bars);
	free(list);
}

static bool parts_known(const struct report *r)
{
	for (int i = 0; i < r->d->n_cells; i++)
		if (r->d->cells[i].n_memory)
			return true;
	return false;
}

static void parts_section(struct report *r)
{
	if (!parts_known(r))
		return;
	strbuf_puts(r->out, "<h3>Where it lies</h3><p class=\"sub\">The largest each part became on any device; parts need not "
			    "peak at the same moment, so a bar may be longer than the total behind it.</p>\n");
	chart_parts_legend(r->out, parts, PARTS);
	strbuf_puts(r->out, "<div class=\"row wide\">\n");
	for (int p = 0; p < r->d->n_panels; p++)
		parts_chart(r->out, r->d, p);
	strbuf_puts(r->out, "</div>\n");
	struct table t;
	char text[64];
	table_begin(&t, "memory-parts", "Peak bytes by part", query_memory(report_scope(r, NULL, false, false)));
	static const char *const head[] = {"method", "task", "r", "device", "part", "peak_bytes"};
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i], "%s", i == 5 ? "peak" : head[i]);
	t.n_text = 2;
	for (int i = 0; i < r->d->n_cells; i++)
		for (int k = 0; k < r->d->cells[i].n_memory; k++) {
			const struct cell *c = &r->d->cells[i];
			table_text(&t, r->d->variants[c->variant].label);
			table_text(&t, r->d->panels[c->panel].title);
			table_number(&t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
			snprintf(text, sizeof text, "%d", c->memory[k].device);
			table_number(&t, c->memory[k].device, text);
			table_text(&t, c->memory[k].part);
			table_number(&t, (double)c->memory[k].peak_bytes, format_bytes(text, c->memory[k].peak_bytes));
		}
	report_table(r, &t);
}

/* ---- all figures ---- */

static void bytes_cell(struct table *t, int64_t bytes)
{
	char text[64];
	table_number(t, bytes > 0 ? (double)bytes : NAN, format_bytes(text, bytes));
}

static void percent(struct table *t, double v)
{
	char text[64];
	snprintf(text, sizeof text, "%.0f %%", v);
	table_number(t, v, isnan(v) ? "–" : text);
}

static void memory_row(struct table *t, const struct data *d, const struct cell *c)
{
	char text[64], *where = text_format("%s, %s", d->panels[c->panel].title, c->row.protocol);
	const struct cell *full = data_full(d, c->panel);
	table_text(t, d->variants[c->variant].label);
	table_text(t, where);
	free(where);
	table_number(t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
	bytes_cell(t, c->peak_bytes);
	percent(t, full && full->peak_bytes > 0 && c->peak_bytes > 0 ? 100.0 * c->peak_bytes / full->peak_bytes : NAN);
	bytes_cell(t, c->kv_before);
	bytes_cell(t, c->kv_after);
	percent(t, c->kv_before > 0 ? 100.0 * c->kv_after / c->kv_before : NAN);
}

static void write_memory(struct report *r)
{
	static const char *const head[][2] = {{"method", "method"}, {"task", "task"}, {"retained", "r"}, {"peak_bytes", "peak"},
		{"peak_percent_of_full", "of full's peak"}, {"kv_bytes_before", "cache before"},
		{"kv_bytes_after", "cache after"}, {"kv_percent", "left"}};
	struct table t;
	page_lead(r->out, "Peak memory of one pruning and its first token, and the cache it leaves. Most methods see the whole "
			  "cache before they prune it, so that only what they leave gets smaller; a method that evicts layer by "
			  "layer during prefill lowers the peak as well.");
	length_charts(r);
	parts_section(r);
	table_begin(&t, "memory", "Peak and cache", query_times(report_scope(r, NULL, false, false)));
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.n_text = 2;
	for (int p = 0; p < r->d->n_panels; p++)
		for (int i = 0; i < r->d->n_cells; i++)
			if (r->d->cells[i].panel == p && cell_timed(&r->d->cells[i]))
				memory_row(&t, r->d, &r->d->cells[i]);
	report_table(r, &t);
}

const struct page page_memory = {"memory", "Memory", page_timed, write_memory};
