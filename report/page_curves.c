/* page_curves.c: of a comparison: accuracy against the share kept, a chart for each panel and method, a line for each
 * source. */
#include "report/compare.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 120 }; /* charts on the page */

static const struct match *match_of(const struct matches *c, const struct cell *cell)
{
	for (int i = 0; i < c->n; i++)
		if (c->v[i].first == cell)
			return &c->v[i];
	return NULL;
}

static void source_line(struct svg_plot *p, const struct report *r, int source, const struct cell *const *list, int n)
{
	double *x = mem_new((size_t)n * 4 + 1, sizeof *x), *y = x + n, *lo = y + n, *hi = lo + n;
	char score[64];
	for (int i = 0; i < n; i++) {
		x[i] = list[i] ? list[i]->row.retained_ppm / 1e6 : NAN;
		y[i] = list[i] ? list[i]->score.mean : NAN;
		lo[i] = list[i] ? list[i]->score.lo : NAN;
		hi[i] = list[i] ? list[i]->score.hi : NAN;
	}
	strbuf_printf(p->out, "<g class=\"s c%d\">", source % 8);
	svg_band(p, x, lo, hi, n);
	svg_line(p, source ? "ln" : "ln dash", x, y, n);
	for (int i = 0; i < n; i++) {
		if (!list[i] || isnan(y[i]))
			continue;
		strbuf_puts(p->out, "<g class=\"pt\">");
		svg_marker(p->out, source, svg_at(&p->x, x[i]), svg_at(&p->y, y[i]), 3.2);
		strbuf_puts(p->out, "<title>");
		html_text(p->out, r->sources[source].label);
		snprintf(score, sizeof score, ", r = %g: %.3f, n = %d", x[i], y[i], list[i]->score.n);
		strbuf_printf(p->out, "%s</title></g>", score);
	}
	strbuf_puts(p->out, "</g>\n");
	free(x);
}

/* The cells of one source at every ratio of the first's panel and variant. */
static int cells_of(const struct report *r, int panel, int variant, int source, const struct cell **list)
{
	int n = 0;
	for (int k = 0; k < r->d->n_ppm; k++) {
		const struct cell *c = data_cell(r->d, panel, variant, r->d->ppm[k]);
		const struct match *m = c ? match_of(r->matches, c) : NULL;
		if (m)
			list[n++] = source ? m->change[source].cell : c;
	}
	return n;
}

static void chart(struct report *r, int panel, int variant)
{
	const struct data *d = r->d;
	const struct cell **list = mem_new((size_t)d->n_ppm + 1, sizeof *list);
	char *title =
		text_format("%.24s, %s, %s", d->variants[variant].label, d->panels[panel].title, d->panels[panel].row->protocol);
	struct svg_plot p = svg_begin(r->out, 400, 230, title, "Mean score over the share kept, a line for each source");
	free(title);
	p.x.hi = 1.03;
	svg_x_ticks(&p, 5);
	svg_y_ticks(&p, 5);
	svg_labels(&p, "share kept, r", "mean score");
	for (int s = 0; s < r->n_sources; s++)
		source_line(&p, r, s, list, cells_of(r, panel, variant, s, list));
	svg_end(&p);
	free(list);
}

static bool changed(const struct report *r, int panel, int variant)
{
	for (int i = 0; i < r->matches->n; i++) {
		const struct match *m = &r->matches->v[i];
		for (int s = 1; s < r->n_sources && m->first->panel == panel && m->first->variant == variant; s++)
			if (change_flipped(&m->change[s]))
				return true;
	}
	return false;
}

static void write_curves(struct report *r)
{
	const struct data *d = r->d;
	int quiet = 0, drawn = 0;
	page_lead(r->out, "Dashed: the first source. A chart for each method with a changed score; those that did not change are "
			  "counted only.");
	strbuf_puts(r->out, "<div class=\"leg\">");
	for (int s = 0; s < r->n_sources; s++) {
		strbuf_printf(r->out,
			"<span><svg class=\"k c%d\" viewBox=\"0 0 26 14\" aria-hidden=\"true\"><path class=\"ln%s\" d=\"M1 "
			"7H25\"/>",
			s % 8, s ? "" : " dash");
		svg_marker(r->out, s, 13, 7, 4);
		strbuf_puts(r->out, "</svg>");
		html_text(r->out, r->sources[s].label);
		strbuf_puts(r->out, "</span>");
	}
	strbuf_puts(r->out, "</div>\n");
	strbuf_puts(r->out, "<div class=\"row\">\n");
	for (int p = 0; p < d->n_panels; p++)
		for (int v = 0; v < d->n_variants; v++) {
			if (!data_in_panel(d, p, v) || d->variants[v].full)
				continue;
			if (changed(r, p, v) && drawn++ < MOST)
				chart(r, p, v);
			quiet += !changed(r, p, v);
		}
	strbuf_puts(r->out, "</div>\n");
	if (drawn > MOST)
		strbuf_printf(r->out, "<p class=\"sub\">The first %d of %d are drawn.</p>\n", MOST, drawn);
	strbuf_printf(r->out, "<p class=\"sub\">%d curves without a changed score.</p>\n", quiet);
}

const struct page page_curves = {"curves", "Curves", NULL, write_curves};
