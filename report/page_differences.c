/* page_differences.c: the first page of a comparison: what changed, in one sentence a source, then every cell side by side. */
#include "report/compare.h"
#include "report/summary.h"
#include "report/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct counts {
	int outcome[5], flipped, other_answers, n;
	struct { /* of time_change, where it is known */
		double *v;
		int n;
	} times;
};

static struct counts count(const struct matches *c, int source)
{
	struct counts k = {.times = {mem_new((size_t)c->n + 1, sizeof(double)), 0}};
	for (int i = 0; i < c->n; i++) {
		const struct change *x = &c->v[i].change[source];
		if (!x->cell)
			continue;
		k.outcome[x->outcome]++;
		k.flipped += change_flipped(x);
		k.other_answers += x->compared->answers_changed;
		k.n += x->compared->score.n;
		if (!isnan(x->time))
			k.times.v[k.times.n++] = x->time;
	}
	return k;
}

/* "kvzip agnostic −26.1 points; ...": what changed beyond error over all cells of a method. Returns how many. */
static int pooled_words(struct strbuf *out, const struct comparison *c)
{
	char mean[32];
	int n = 0;
	for (int i = 0; i < c->n_pools; i++) {
		const struct pooled *p = &c->pools[i];
		if (p->verdict != BETTER && p->verdict != WORSE)
			continue;
		strbuf_puts(out, n++ ? "; " : "");
		html_text(out, p->label);
		strbuf_printf(out, " <b>%s points</b>", format_points(mean, p->score.change.mean));
	}
	return n;
}

static void headline(struct report *r, int source)
{
	const struct matches *c = r->matches;
	struct counts k = count(c, source);
	struct strbuf *out = r->out;
	strbuf_puts(out, "<article class=\"card\"><h3>");
	html_text(out, r->sources[source].label);
	strbuf_puts(out, " <span class=\"tag\">against ");
	html_text(out, r->sources[0].label);
	strbuf_puts(out, "</span></h3><p class=\"big\">");
	int pooled = pooled_words(out, &c->against[source]);
	if (pooled)
		;
	else if (k.n == 0)
		strbuf_puts(out, "Nothing to compare");
	else if (k.outcome[RISES] + k.outcome[FALLS] == 0)
		strbuf_puts(out, "No accuracy changed beyond error");
	else
		strbuf_printf(
			out, "%d cell%s worse, %d better", k.outcome[FALLS], k.outcome[FALLS] == 1 ? "" : "s", k.outcome[RISES]);
	strbuf_printf(out,
		"</p><p>%d cells without any changed score, %d with changes inside the error. Of %d shared answers %d scored "
		"differently, %d read differently.",
		k.outcome[SAME_SCORES], k.outcome[OPEN], k.n, k.flipped, k.other_answers);
	double median = stats_quantile(k.times.v, k.times.n, .5);
	if (k.times.n)
		strbuf_printf(out, " First token: %+.1f %% in the median of %d timed cells.", 100 * median, k.times.n);
	strbuf_puts(out, "</p>\n");
	const struct comparison *x = &c->against[source];
	for (int i = 0; i < x->n_refusals; i++) {
		strbuf_puts(out, "<p class=\"warn\">Not comparable: ");
		html_text(out, x->refusals[i]);
		strbuf_puts(out, ".</p>\n");
	}
	if (x->n_only_a + x->n_only_b)
		strbuf_printf(out, "<p class=\"warn\">%d cells have no partner there, %d there have none here.</p>\n",
			x->n_only_a, x->n_only_b);
	strbuf_puts(out, "</article>\n");
	free(k.times.v);
}

static void change_cell(struct table *t, const struct change *x)
{
	char mean[32], lo[32], hi[32];
	if (!x->cell || x->outcome == NO_PAIR) {
		table_text(t, x->cell ? "no pairs" : "");
		return;
	}
	const struct paired *p = &x->compared->score;
	bool any = change_flipped(x) > 0;
	struct table_cell *cell = table_number(t, 100 * p->change.mean, any ? format_points(mean, p->change.mean) : "0.0");
	if (any && !isnan(p->change.lo))
		cell->small = text_format("%s, %s", format_points(lo, p->change.lo), format_points(hi, p->change.hi));
	cell->class = x->outcome == RISES ? "holds" : x->outcome == FALLS ? "loses" : "";
	cell->title = text_format("%s; n = %d, %d scored higher, %d lower, p = %.3g (Holm); %d answers read differently",
		outcome_word[x->outcome], p->n, p->higher, p->lower, x->compared->score_p, x->compared->answers_changed);
}

static void score_cell(struct table *t, const struct cell *c)
{
	char text[64];
	if (!c) {
		table_text(t, "");
		return;
	}
	struct table_cell *x = table_number(t, c->score.mean, format_score(text, c->score.mean));
	if (!isnan(c->score.lo))
		x->small = text_format("%.2f–%.2f", c->score.lo, c->score.hi);
}

static void time_cell(struct table *t, const struct change *x)
{
	char text[64];
	snprintf(text, sizeof text, "%+.1f %%", 100 * x->time);
	struct table_cell *cell = table_number(t, 100 * x->time, isnan(x->time) ? "–" : text);
	cell->class = !x->time_told ? "" : x->time < 0 ? "holds" : "loses";
	if (!isnan(x->time) && x->absolute)
		cell->small = text_copy("absolute");
}

static void match_row(struct table *t, const struct report *r, const struct match *m)
{
	char text[64];
	const struct cell *c = m->first;
	char *where = text_format("%s, %s", r->d->panels[c->panel].title, c->row.protocol);
	table_text(t, r->d->variants[c->variant].label);
	table_text(t, where);
	free(where);
	table_number(t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
	score_cell(t, c);
	for (int s = 1; s < r->n_sources; s++) {
		score_cell(t, m->change[s].cell);
		change_cell(t, &m->change[s]);
		snprintf(text, sizeof text, "%d", change_flipped(&m->change[s]));
		table_number(t, change_flipped(&m->change[s]), text);
		time_cell(t, &m->change[s]);
	}
}

/* Worse first, then better, then open by size, then the rest in plan order. */
static int weight(const struct match *m, int n_sources)
{
	int w = 0;
	for (int s = 1; s < n_sources; s++) {
		enum outcome o = m->change[s].outcome;
		int own = o == FALLS ? 4 : o == RISES ? 3 : o == OPEN ? 2 : 1;
		w = own > w ? own : w;
	}
	return w;
}

static void pool_table(struct report *r)
{
	struct table t;
	char text[64];
	table_begin(&t, "pools", "By method and protocol, all cells together", NULL);
	static const char *const head[][2] = {{"method", "method"}, {"source", "source"}, {"before", "before"},
		{"after", "after"}, {"change_points", "change, points"}, {"p", "p (Holm)"}, {"flipped", "flipped"},
		{"detectable_points", "would see"}};
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.n_text = 2;
	for (int s = 1; s < r->n_sources; s++)
		for (int i = 0; i < r->matches->against[s].n_pools; i++) {
			const struct pooled *p = &r->matches->against[s].pools[i];
			int flipped = p->score.higher + p->score.lower;
			table_text(&t, p->label);
			table_text(&t, r->sources[s].label);
			table_number(&t, p->score_a, format_score(text, p->score_a));
			table_number(&t, p->score_b, format_score(text, p->score_b));
			struct table_cell *c =
				table_number(&t, 100 * p->score.change.mean, format_points(text, p->score.change.mean));
			c->class = p->verdict == BETTER ? "holds" : p->verdict == WORSE ? "loses" : "";
			if (flipped && !isnan(p->score.change.lo)) {
				char hi[32];
				c->small = text_format(
					"%s, %s", format_points(text, p->score.change.lo), format_points(hi, p->score.change.hi));
			}
			snprintf(text, sizeof text, "%.3g", p->score_p);
			table_number(&t, p->score_p, isnan(p->score_p) ? "–" : text);
			snprintf(text, sizeof text, "%d", flipped);
			table_number(&t, flipped, text);
			snprintf(text, sizeof text, "%.1f", 100 * p->detectable);
			table_number(&t, 100 * p->detectable, p->detectable > 0 ? text : "–");
		}
	if (t.n_cells)
		report_table(r, &t);
	else
		table_free(&t);
}

static void cell_table(struct report *r)
{
	const struct matches *c = r->matches;
	struct table t;
	table_begin(&t, "differences", "Every cell side by side",
		query_scores(report_scope(r, NULL, false, false), r->d->ppm, r->d->n_ppm));
	table_column(&t, "method", "method");
	table_column(&t, "task", "task");
	table_column(&t, "retained", "r");
	table_column(&t, "score_1", "%.40s", r->sources[0].label);
	for (int s = 1; s < r->n_sources; s++) {
		static const char *const names[] = {"score", "change_points", "flipped", "first_token_percent"};
		for (int k = 0; k < 4; k++) {
			char *name = text_format("%s_%d", names[k], s + 1);
			table_column(&t, name, "%.40s",
				k == 0   ? r->sources[s].label
				: k == 1 ? "change, points"
				: k == 2 ? "flipped"
					 : "first token");
			free(name);
		}
	}
	t.n_text = 2;
	for (int w = 4; w >= 0; w--)
		for (int i = 0; i < c->n; i++)
			if (weight(&c->v[i], r->n_sources) == w)
				match_row(&t, r, &c->v[i]);
	report_table(r, &t);
}

static void write_differences(struct report *r)
{
	page_lead(r->out, "As <code>kvbench compare</code>: cells meet when all that was asked is equal but for the columns in "
			  "which the sources as a whole differ; samples pair by name. Changes are paired, with 95 % intervals "
			  "over contexts; better and worse hold with the whole table tested together (Holm). Times are of the "
			  "ratio to the full cache of the same process where that is known.");
	strbuf_puts(r->out, "<div class=\"cards\">\n");
	for (int s = 1; s < r->n_sources; s++)
		headline(r, s);
	strbuf_puts(r->out, "</div>\n");
	pool_table(r);
	cell_table(r);
}

const struct page page_differences = {"differences", "Differences", NULL, write_differences};
