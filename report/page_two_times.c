/* page_two_times.c: of a comparison: times and memory of every timed cell, a column for each source. */
#include "report/compare.h"
#include "report/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct cell *cell_in(const struct match *m, int source)
{
	return source ? m->change[source].cell : m->first;
}

static bool timed(const struct report *r, const struct match *m)
{
	for (int s = 0; s < r->n_sources; s++)
		if (cell_in(m, s) && cell_timed(cell_in(m, s)))
			return true;
	return false;
}

static void source_cells(struct table *t, const struct source *s, const struct cell *c)
{
	char text[64];
	double ratio = c ? data_ttft_ratio(&s->data, c) : NAN, ttft = c ? c->time[TTFT].median : NAN;
	table_number(t, ttft, format_time(text, ttft));
	snprintf(text, sizeof text, "%.2f×", ratio);
	table_number(t, ratio, isnan(ratio) ? "–" : text);
	table_number(t, c && c->peak_bytes ? (double)c->peak_bytes : NAN, format_bytes(text, c ? c->peak_bytes : 0));
}

static void match_row(struct table *t, const struct report *r, const struct match *m)
{
	char text[64], *where = text_format("%s, %s", r->d->panels[m->first->panel].title, m->first->row.protocol);
	table_text(t, r->d->variants[m->first->variant].label);
	table_text(t, where);
	free(where);
	table_number(t, m->first->row.retained_ppm / 1e6, format_ratio(text, m->first->row.retained_ppm));
	for (int s = 0; s < r->n_sources; s++) {
		const struct change *x = &m->change[s];
		source_cells(t, &r->sources[s], cell_in(m, s));
		if (s == 0)
			continue;
		snprintf(text, sizeof text, "%+.1f %%", 100 * x->time);
		struct table_cell *cell = table_number(t, 100 * x->time, isnan(x->time) ? "–" : text);
		cell->class = !x->time_told ? "" : x->time < 0 ? "holds" : "loses";
		if (x->absolute && !isnan(x->time))
			cell->small = text_copy("absolute");
	}
}

static bool there(const struct report *r)
{
	for (int i = 0; i < r->matches->n; i++)
		if (timed(r, &r->matches->v[i]))
			return true;
	return false;
}

static void write_times(struct report *r)
{
	struct table t;
	page_lead(r->out, "Medians. The change is of the ratio to the full cache of the same process, or, where only that is "
			  "known, of the time itself; a sign: it holds beyond error with all cells tested together.");
	table_begin(&t, "two-times", "Times side by side", query_times(report_scope(r, NULL, false, false)));
	table_column(&t, "method", "method");
	table_column(&t, "task", "task");
	table_column(&t, "retained", "r");
	for (int s = 0; s < r->n_sources; s++) {
		static const char *const names[] = {"ttft_ns", "ttft_of_full", "peak_bytes", "change_percent"};
		for (int k = 0; k < (s ? 4 : 3); k++) {
			char *name = text_format("%s_%d", names[k], s + 1);
			table_column(&t, name, "%.40s",
				k == 0   ? r->sources[s].label
				: k == 1 ? "of full"
				: k == 2 ? "peak"
					 : "change");
			free(name);
		}
	}
	t.n_text = 2;
	for (int i = 0; i < r->matches->n; i++)
		if (timed(r, &r->matches->v[i]))
			match_row(&t, r, &r->matches->v[i]);
	report_table(r, &t);
}

const struct page page_two_times = {"times", "First token", there, write_times};
