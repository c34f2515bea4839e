/* page_needles.c: heat maps of needle tasks: the mean score by the needle's depth and the context's length, a map for each
 * method. */
#include "report/page.h"
#include "report/summary.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTHS = 10 };

struct bin {
	double sum;
	int n;
};

static int depth_bin(double depth)
{
	int i = (int)(depth * DEPTHS);
	return i < 0 ? 0 : i >= DEPTHS ? DEPTHS - 1 : i;
}

/* Scores of a cell by depth; returns how many samples have one. */
static int fill_bins(const struct cell *c, struct bin bins[DEPTHS])
{
	int n = 0;
	for (int i = 0; i < c->n_samples; i++) {
		const struct sample *s = &c->samples[i];
		if (!s->ok || isnan(s->depth))
			continue;
		bins[depth_bin(s->depth)].sum += s->score;
		bins[depth_bin(s->depth)].n++;
		n++;
	}
	return n;
}

enum { LEFT = 48, TOP = 40, HEIGHT = 150 };

static void column(struct strbuf *out, const struct cell *c, double x, double w)
{
	struct bin bins[DEPTHS] = {{0}};
	char text[128], score[64];
	double h = HEIGHT / (double)DEPTHS;
	fill_bins(c, bins);
	for (int i = 0; i < DEPTHS; i++) {
		double mean = bins[i].n ? bins[i].sum / bins[i].n : NAN;
		if (bins[i].n == 0) {
			svg_rect(out, "none", x, TOP + h * i, w - 1, h - 1, "no needle at this depth");
			continue;
		}
		snprintf(text, sizeof text, "%lld tokens, depth %d–%d %%: %s (n = %d)", (long long)c->row.context_tokens, 10 * i,
			10 * (i + 1), format_score(score, mean), bins[i].n);
		svg_square(out, mean, x, TOP + h * i, w - 1, h - 1, text);
		if (w >= 26)
			svg_text(out, mean > .55 ? "v dark" : "v pale", x + w / 2 - .5, TOP + h * (i + .5) + 3.5, "middle",
				format_score(score, mean));
	}
	snprintf(text, sizeof text, "%lld%s", (long long)c->row.context_tokens, c->flag_count[2] ? "*" : "");
	svg_text(out, "t", x + w / 2, TOP + HEIGHT + 14, "middle", text);
}

static void map(struct strbuf *out, const struct data *d, int figure, int variant, int ppm, const char *metric)
{
	char title[256], text[64];
	int n = 0;
	const struct cell **list = mem_new((size_t)d->n_panels, sizeof *list);
	for (int p = 0; p < d->n_panels; p++) {
		const struct cell *c = data_cell(d, p, variant, d->variants[variant].full ? 1000000 : ppm);
		struct bin bins[DEPTHS] = {{0}};
		if (d->panels[p].figure == figure && c && fill_bins(c, bins) > 0)
			list[n++] = c;
	}
	if (n > 0) {
		double w = fmin(60, 190.0 / n);
		snprintf(title, sizeof title, "%.150s", d->variants[variant].label);
		struct svg_plot p =
			svg_begin(out, 250, TOP + HEIGHT + 62, title, "Mean score by depth of the needle and context length");
		snprintf(text, sizeof text, "r = %g", d->variants[variant].full ? 1 : ppm / 1e6);
		svg_text(out, "t", LEFT, 31, "start", text);
		for (int i = 0; i < n; i++)
			column(out, list[i], LEFT + w * i, w);
		for (int i = 0; i <= DEPTHS; i += 5) {
			snprintf(text, sizeof text, "%d %%", 10 * i);
			svg_text(out, "t", LEFT - 5, TOP + HEIGHT * i / (double)DEPTHS + (i ? 2 : 8), "end", text);
		}
		svg_text(out, "l", LEFT, TOP + HEIGHT + 28, "start", "context tokens");
		svg_colours(out, LEFT, TOP + HEIGHT + 36, 70, "0", "1", metric);
		svg_end(&p);
	}
	free(list);
}

static bool figure_has_depths(const struct data *d, int figure)
{
	struct bin bins[DEPTHS] = {{0}};
	for (int i = 0; i < d->n_cells; i++)
		if (d->panels[d->cells[i].panel].figure == figure && fill_bins(&d->cells[i], bins) > 0)
			return true;
	return false;
}

static bool there(const struct report *r)
{
	for (int f = 0; f < r->d->n_figures; f++)
		if (figure_has_depths(r->d, f))
			return true;
	return false;
}

static int first_panel(const struct data *d, int figure)
{
	int p = 0;
	while (d->panels[p].figure != figure)
		p++;
	return p;
}

static void depth_table(struct report *r, int figure)
{
	const struct data *d = r->d;
	const struct cell_row *w = d->panels[first_panel(d, figure)].row;
	struct table t;
	char text[64], *id = text_format("needles-%d", figure),
		       *caption = text_format("Mean score by depth, %s, %s", w->task, w->protocol);
	table_begin(&t, id, caption, query_depths(report_scope(r, w, false, true)));
	table_column(&t, "method", "method");
	table_column(&t, "retained", "r");
	table_column(&t, "context_tokens", "tokens");
	for (int i = 0; i < DEPTHS; i++) {
		char *name = text_format("depth_%d", 10 * i);
		table_column(&t, name, "%d–%d %%", 10 * i, 10 * (i + 1));
		free(name);
	}
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		struct bin bins[DEPTHS] = {{0}};
		bool shown = d->variants[c->variant].full || c->row.retained_ppm == d->reference_ppm;
		if (d->panels[c->panel].figure != figure || !shown || fill_bins(c, bins) == 0)
			continue;
		table_text(&t, d->variants[c->variant].label);
		table_number(&t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
		snprintf(text, sizeof text, "%lld", (long long)c->row.context_tokens);
		table_number(&t, (double)c->row.context_tokens, text);
		for (int k = 0; k < DEPTHS; k++) {
			double mean = bins[k].n ? bins[k].sum / bins[k].n : NAN;
			table_number(&t, mean, bins[k].n ? format_score(text, mean) : "");
		}
	}
	report_table(r, &t);
	free(id);
	free(caption);
}

static void write_needles(struct report *r)
{
	const struct data *d = r->d;
	char text[64];
	page_lead(r->out, "Mean score by the depth of the needle (0 %: the beginning of the context) and the length of the "
			  "context. A star: longer than the model was trained for.");
	for (int f = 0; f < d->n_figures; f++) {
		if (!figure_has_depths(d, f))
			continue;
		const struct cell_row *w = d->panels[first_panel(d, f)].row;
		strbuf_puts(r->out, "<h3>");
		html_text(r->out, w->task);
		strbuf_printf(r->out, ", %s, r = %s</h3>\n<div class=\"row small\">\n", w->protocol,
			format_ratio(text, d->reference_ppm));
		for (int v = 0; v < d->n_variants; v++)
			map(r->out, d, f, v, d->reference_ppm, w->metric);
		strbuf_puts(r->out, "</div>\n<details><summary>As a table</summary>\n");
		depth_table(r, f);
		strbuf_puts(r->out, "</details>\n");
	}
}

const struct page page_needles = {"needles", "Needles", there, write_needles};
