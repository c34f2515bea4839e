/* page_scores.c: methods x tasks at each ratio: every task and the mean. The best of a column is marked only where it is
 * better than the next on the same samples beyond error, all columns of a table tested together (Holm). */
#include "report/averages.h"
#include "report/page.h"
#include "report/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The cell of a variant in a table for one ratio: the full cache stands in all of them. */
static const struct cell *cell_at(const struct data *d, int panel, int variant, int ppm)
{
	return data_cell(d, panel, variant, d->variants[variant].full ? 1000000 : ppm);
}

/* p of "a is not better than b" on the samples both have; NAN = no samples. */
static double paired_p(const struct cell *a, const struct cell *b)
{
	double *x = mem_new((size_t)a->n_samples, sizeof *x), *y = mem_new((size_t)a->n_samples, sizeof *y);
	int *context = cell_contexts(a), n = 0;
	for (int i = 0; i < a->n_samples; i++) {
		const struct sample *s = cell_sample(b, a->samples[i].id);
		if (!a->samples[i].ok || !s || !s->ok)
			continue;
		x[n] = s->score;
		y[n] = a->samples[i].score;
		context[n++] = context[i];
	}
	double p = n ? stats_paired(x, y, context, n, 1).p : NAN;
	free(x);
	free(y);
	free(context);
	return p;
}

/* The panel's best method (no control) at a ratio, and p of it against the next. -1 = fewer than two. */
static int best_of(const struct data *d, int panel, int ppm, double *p)
{
	int best = -1, next = -1;
	for (int v = 0; v < d->n_variants; v++) {
		const struct cell *c = d->variants[v].colour < 0 ? NULL : data_cell(d, panel, v, ppm);
		if (!c || c->score.n == 0)
			continue;
		if (best < 0 || c->score.mean > data_cell(d, panel, best, ppm)->score.mean) {
			next = best;
			best = v;
		} else if (next < 0 || c->score.mean > data_cell(d, panel, next, ppm)->score.mean) {
			next = v;
		}
	}
	*p = NAN;
	if (next < 0 || data_cell(d, panel, best, ppm)->score.mean <= data_cell(d, panel, next, ppm)->score.mean)
		return -1;
	*p = paired_p(data_cell(d, panel, best, ppm), data_cell(d, panel, next, ppm));
	return best;
}

/* The marked variant of each of the n panels from `first`; -1 = none. Caller frees. */
static int *significant_best(const struct data *d, int first, int n, int ppm)
{
	int *best = mem_new((size_t)n, sizeof *best);
	double *p = mem_new((size_t)n, sizeof *p), *adjusted = mem_new((size_t)n, sizeof *adjusted);
	for (int i = 0; i < n; i++)
		best[i] = best_of(d, first + i, ppm, &p[i]);
	stats_holm(p, n, adjusted);
	for (int i = 0; i < n; i++)
		best[i] = adjusted[i] < .05 ? best[i] : -1;
	free(p);
	free(adjusted);
	return best;
}

static void score_cell(struct table *t, const struct data *d, const struct cell *c, bool best)
{
	char text[64];
	if (!c || c->score.n == 0) {
		table_text(t, c ? "–" : "");
		return;
	}
	const struct cell *full = data_full(d, c->panel), *random = data_random(d, c->panel, c->row.retained_ppm);
	struct table_cell *x = table_number(t, c->score.mean, format_score(text, c->score.mean));
	bool control = d->variants[c->variant].colour < 0;
	bool low = !control && random && random->score.n > 0 &&
		   !(stats_disjoint(c->score, random->score) && c->score.mean > random->score.mean) &&
		   !(full && full->score.n > 0 && !stats_disjoint(c->score, full->score));
	x->class = best ? "best" : low ? "low" : "";
	x->link = samples_link(d, c);
	if (!isnan(c->score.lo))
		x->small = text_format("%.2f–%.2f", c->score.lo, c->score.hi);
	if (c->row.ok < c->row.planned) {
		free(x->small);
		x->small = text_format("%d of %d samples", c->row.ok, c->row.planned);
	}
	x->title = text_format("%s: %d of %d samples, kept %.3f", d->variants[c->variant].label, c->row.ok, c->row.planned,
		c->row.retained_mean);
}

/* The mean stands only where every panel is there with every sample: a part is never shown as the whole. */
static void mean_cell(struct table *t, const struct data *d, int first, int n, int variant, int ppm)
{
	double sum = 0;
	char text[64];
	bool whole = true;
	for (int p = first; p < first + n; p++) {
		const struct cell *c = cell_at(d, p, variant, ppm);
		whole = whole && c && c->row.ok == c->row.planned && c->row.ok > 0;
		sum += c ? c->score.mean : 0;
	}
	table_number(t, whole ? sum / n : NAN, whole ? format_score(text, sum / n) : "–");
}

/* "niah-single · 512 tokens" as a head of two lines. */
static void task_column(struct table *t, const char *title)
{
	struct strbuf head = {0};
	for (const char *s = title; *s; s++) {
		if (strncmp(s, " · ", 4) == 0) {
			strbuf_puts(&head, "\n");
			s += 3;
		} else if (strncmp(s, " tokens", 7) == 0) {
			s += 6;
		} else {
			strbuf_add(&head, s, 1);
		}
	}
	table_column(t, title, "%s", head.text ? head.text : "");
	strbuf_free(&head);
}

static void task_table(struct report *r, int setting, int first, int n, int ppm)
{
	const struct data *d = r->d;
	const struct cell_row *w = d->panels[first].row, **rows = mem_new((size_t)n, sizeof *rows);
	int *best = significant_best(d, first, n, ppm);
	struct table t;
	for (int p = 0; p < n; p++)
		rows[p] = d->panels[first + p].row;
	char *id = text_format("tasks-%d-%d", setting, ppm / 1000),
	     *caption = text_format("Mean scores, %s, r = %g", w->protocol, ppm / 1e6);
	table_begin(&t, id, caption, query_tasks(report_scope(r, w, false, false), ppm, rows, n));
	table_column(&t, "method", "method");
	for (int p = 0; p < n; p++)
		task_column(&t, d->panels[first + p].title);
	table_column(&t, "mean", "mean");
	for (int v = 0; v < d->n_variants; v++) {
		bool any = false;
		for (int p = first; p < first + n; p++)
			any |= cell_at(d, p, v, ppm) != NULL;
		if (!any)
			continue;
		table_text(&t, d->variants[v].label);
		for (int p = 0; p < n; p++)
			score_cell(&t, d, cell_at(d, first + p, v, ppm), best[p] == v);
		mean_cell(&t, d, first, n, v, ppm);
	}
	report_table(r, &t);
	free(id);
	free(caption);
	free(best);
	free(rows);
}

static void average_table(struct report *r, const struct average *a, int number)
{
	const struct data *d = r->d;
	struct table t;
	char text[64];
	char *id = text_format("suite-%d", number);
	char *caption = text_format("%s, %s, %s, %s", a->title, a->row->protocol, a->row->target, a->row->precision);
	table_begin(&t, id, caption, NULL);
	table_column(&t, "method", "method");
	for (int k = 0; k < d->n_ppm; k++) {
		char *name = text_format("mean_%g", d->ppm[k] / 1e6);
		table_column(&t, name, "r = %s", format_ratio(text, d->ppm[k]));
		free(name);
	}
	for (int v = 0; v < d->n_variants; v++) {
		const double *score = &a->score[v * d->n_ppm];
		bool any = false;
		for (int k = 0; k < d->n_ppm; k++)
			any = any || !isnan(score[k]);
		if (!any)
			continue;
		table_text(&t, d->variants[v].label);
		for (int k = 0; k < d->n_ppm; k++)
			table_number(&t, score[k], isnan(score[k]) ? "" : format_score(text, score[k]));
	}
	report_table(r, &t);
	free(id);
	free(caption);
}

static void suites(struct report *r)
{
	struct averages a;
	averages_make(&a, r->d);
	if (a.n)
		strbuf_puts(r->out, "<h3>Averages of suites</h3><p class=\"sub\">Means of task means, under the names their "
				    "authors use; only where every task is there with every sample.</p>\n");
	for (int i = 0; i < a.n; i++)
		average_table(r, &a.v[i], i);
	averages_free(&a);
}

static void write_scores(struct report *r)
{
	const struct data *d = r->d;
	page_lead(r->out,
		"Every task at every ratio, with 95 % intervals. <b>Bold</b>: better than the next method on the same samples "
		"beyond error. <span class=\"low\">Grey</span>: not above random beyond error. A number leads to its samples.");
	for (int s = 0; s < d->n_settings; s++) {
		int first = d->setting_of[s], n = (s + 1 < d->n_settings ? d->setting_of[s + 1] : d->n_panels) - first;
		page_setting_head(r->out, r, s);
		for (int k = 0; k < d->n_ppm; k++) {
			page_ratio_open(r->out, d->ppm[k], d->ppm[k] == d->reference_ppm);
			task_table(r, s, first, n, d->ppm[k]);
			page_ratio_close(r->out);
		}
	}
	suites(r);
	if (d->n_settings == 0)
		strbuf_puts(r->out, "<p>No cells.</p>\n");
}

const struct page page_scores = {"scores", "Scores", NULL, write_scores};
