/* page_budgets.c: what each head kept: maps layer x head beside the share asked for, from the counts in the cache. */
#include "report/page.h"
#include "report/summary.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 48, TOP = 40, GAP = 12, PROFILE = 66 };

static void head_squares(struct strbuf *out, const struct cell *c, double w, double h)
{
	char text[64];
	for (int l = 0; l < c->row.layers; l++) {
		for (int k = 0; k < c->row.kv_heads; k++) {
			double share = c->kept[l * c->row.kv_heads + k];
			snprintf(text, sizeof text, "layer %d, head %d: %.3f", l, k, share);
			svg_square(out, share, LEFT + w * k, TOP + h * l, w - 1, h - 1, text);
		}
		snprintf(text, sizeof text, "%d", l);
		if (c->row.layers <= 12 || l % 4 == 0)
			svg_text(out, "t", LEFT - 6, TOP + h * (l + .5) + 4, "end", text);
	}
}

/* Mean share of each layer as a bar, with the share asked for as a line across. */
static void layer_profile(struct strbuf *out, const struct cell *c, double x, double h, double bottom)
{
	char text[96];
	double asked = c->row.retained_ppm / 1e6, most = asked;
	for (int l = 0; l < c->row.layers; l++) {
		double mean = 0;
		for (int k = 0; k < c->row.kv_heads; k++)
			mean += c->kept[l * c->row.kv_heads + k] / c->row.kv_heads;
		most = fmax(most, mean);
	}
	double scale = PROFILE / (most * 1.05);
	for (int l = 0; l < c->row.layers; l++) {
		double mean = 0;
		for (int k = 0; k < c->row.kv_heads; k++)
			mean += c->kept[l * c->row.kv_heads + k] / c->row.kv_heads;
		snprintf(text, sizeof text, "layer %d: kept %.3f, asked %.3f", l, mean, asked);
		svg_rect(out, "lay", x, TOP + h * l, fmax(mean * scale, .5), fmax(h - 1.5, .8), text);
	}
	strbuf_printf(out, "<path class=\"ask\" d=\"M%.1f %dV%.1f\"/>", x + asked * scale, TOP - 3, bottom + 1);
}

static void kept_map(struct strbuf *out, const struct data *d, const struct cell *c)
{
	double w = fmin(22, 112.0 / c->row.kv_heads), h = fmin(14, 224.0 / c->row.layers), bottom = TOP + h * c->row.layers;
	double right = LEFT + w * c->row.kv_heads + GAP;
	char text[256];
	snprintf(text, sizeof text, "%.150s", d->variants[c->variant].label);
	struct svg_plot p = svg_begin(out, 250, (int)bottom + 50, text,
		"Kept share of each layer and head, and of each layer beside the share asked for");
	snprintf(text, sizeof text, "asked %g, kept %.3f (%.2f to %.2f)", c->row.retained_ppm / 1e6, c->row.retained_mean,
		c->kept_least, c->kept_most);
	svg_text(out, "t", LEFT, 31, "start", text);
	head_squares(out, c, w, h);
	layer_profile(out, c, right, h, bottom);
	svg_text(out, "l", LEFT, bottom + 14, "start", "head →");
	svg_text(out, "l", right, bottom + 14, "start", "layer's mean");
	svg_colours(out, LEFT, bottom + 22, 70, "0", "1", "share kept");
	strbuf_printf(out, "<text class=\"l\" transform=\"translate(12 %.1f) rotate(-90)\" text-anchor=\"middle\">layer</text>",
		(TOP + bottom) / 2);
	svg_end(&p);
}

static bool uneven(const struct cell *c)
{
	return c && c->kept && c->kept_most - c->kept_least >= .005;
}

static bool longest(const struct data *d, int panel)
{
	return panel + 1 == d->n_panels || d->panels[panel + 1].figure != d->panels[panel].figure;
}

static void maps(struct report *r, int panel)
{
	const struct data *d = r->d;
	struct strbuf maps = {0}, even = {0};
	for (int v = 0; v < d->n_variants; v++) {
		const struct cell *c = data_cell(d, panel, v, d->reference_ppm);
		if (uneven(c)) {
			kept_map(&maps, d, c);
		} else if (c && c->kept) {
			strbuf_puts(&even, even.len ? ", " : "");
			html_text(&even, d->variants[v].label);
		}
	}
	if (maps.len || even.len) {
		char text[64];
		strbuf_puts(r->out, "<h3>");
		html_text(r->out, d->panels[panel].title);
		strbuf_printf(
			r->out, ", %s, r = %s</h3>\n", d->panels[panel].row->protocol, format_ratio(text, d->reference_ppm));
		if (maps.len)
			strbuf_printf(r->out, "<div class=\"row small\">\n%s</div>\n", maps.text);
		if (even.len)
			strbuf_printf(r->out, "<p class=\"sub\">The same share in every head: %s.</p>\n", even.text);
	}
	strbuf_free(&maps);
	strbuf_free(&even);
}

static void kept_row(struct table *t, const struct data *d, const struct cell *c)
{
	char text[64], *where = text_format("%s, %s", d->panels[c->panel].title, c->row.protocol);
	table_text(t, d->variants[c->variant].label);
	table_text(t, where);
	free(where);
	table_number(t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
	const double shares[] = {c->row.retained_mean, c->kept_least, c->kept_most};
	for (int i = 0; i < 3; i++) {
		snprintf(text, sizeof text, "%.4f", shares[i]);
		table_number(t, shares[i], isnan(shares[i]) ? "–" : text);
	}
	table_number(t, (double)c->row.kv_bytes_full, format_bytes(text, c->row.kv_bytes_full));
	table_number(t, (double)c->row.kv_bytes_kept, format_bytes(text, c->row.kv_bytes_kept));
	struct table_cell *x = table_text(t, fabs(c->row.retained_mean - c->row.retained_ppm / 1e6) > .02 ? "not as asked" : "");
	x->class = "warn";
}

static bool there(const struct report *r)
{
	for (int i = 0; i < r->d->n_cells; i++)
		if (r->d->cells[i].kept)
			return true;
	return false;
}

static void write_budgets(struct report *r)
{
	static const char *const head[][2] = {{"method", "method"}, {"task", "task"}, {"retained", "asked"},
		{"retained_realised", "kept"}, {"least_head", "least head"}, {"most_head", "most head"},
		{"kv_bytes_full", "cache full"}, {"kv_bytes_kept", "cache kept"}, {"remark", ""}};
	const struct data *d = r->d;
	struct table t;
	page_lead(r->out, "Mean share of the context's entries kept, counted in the cache after pruning. Left: each layer and "
			  "head. Right: each layer's mean; the line is the share asked for. Longest context of each task.");
	for (int p = 0; p < d->n_panels; p++)
		if (longest(d, p))
			maps(r, p);
	strbuf_puts(r->out, "<details><summary>Asked and kept, all cells</summary>\n");
	table_begin(&t, "kept", "Asked and kept", query_kept(report_scope(r, NULL, false, false)));
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.n_text = 2;
	for (int i = 0; i < d->n_cells; i++)
		if (d->cells[i].kept && !d->variants[d->cells[i].variant].full)
			kept_row(&t, d, &d->cells[i]);
	report_table(r, &t);
	strbuf_puts(r->out, "</details>\n");
}

const struct page page_budgets = {"budgets", "Kept by head", there, write_budgets};
