/* samples.c: the sample viewer: the full cache's answer beside the pruned one's. A page that holds every answer of a night is too
 * large to open, so each cell shows a few; answers that pruning changed, empty and failed ones come first, and what is left out
 * is counted. */
#include "report/page.h"
#include "report/summary.h"
#include "report/svg.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3000, LEAST_PER_CELL = 2, MOST_PER_CELL = 12, TEXT_BYTES = 1200 };

/* What makes a sample worth a look; 0 = nothing. full may be NULL. */
static bool flipped(const struct sample *s, const struct sample *full)
{
	return full && full->ok && s->ok && fabs(s->score - full->score) > .005;
}

static int interest(const struct sample *s, const struct sample *full)
{
	return !s->ok ? 3 : s->empty ? 2 : flipped(s, full) ? 1 : 0;
}

static void score_line(struct strbuf *out, const struct sample *s)
{
	char text[64];
	strbuf_printf(out, "<small>score %s</small>", format_score(text, s->score));
}

/* Gold answers are a JSON array of texts: one a line. Anything else is shown as it is. */
static void gold_text(struct strbuf *out, const char *gold)
{
	json_t *list = json_loads(gold, 0, NULL), *one;
	size_t i;
	json_array_foreach(list, i, one)
	{
		if (json_is_string(one)) {
			strbuf_puts(out, i ? "\n" : "");
			html_cut(out, json_string_value(one), TEXT_BYTES);
		}
	}
	if (!json_is_array(list))
		html_cut(out, gold, TEXT_BYTES);
	json_decref(list);
}

static void answer_cell(struct strbuf *out, const struct sample *s)
{
	strbuf_puts(out, "<td class=\"a\">");
	if (!s) {
		strbuf_puts(out, "<small>not measured</small></td>");
		return;
	}
	if (s->ok)
		score_line(out, s);
	else {
		strbuf_puts(out, "<small class=\"bad\">");
		html_text(out, s->status);
		strbuf_puts(out, "</small>");
	}
	html_cut(out, s->ok ? s->answer : s->message, TEXT_BYTES);
	strbuf_puts(out, s->empty ? "<small class=\"bad\">empty answer</small></td>" : "</td>");
}

static void sample_row(
	struct strbuf *out, const struct data *d, const struct cell *c, const struct sample *s, const struct sample *full)
{
	char text[64];
	strbuf_printf(out, "<tr class=\"%s%s%s\" data-p=\"%d\" data-v=\"%d\" data-r=\"%d\"><td>", flipped(s, full) ? "flip " : "",
		s->empty ? "empty " : "", s->ok ? "" : "fail", c->panel, c->variant, c->row.retained_ppm);
	html_text(out, d->panels[c->panel].title);
	strbuf_puts(out, "<small>");
	html_text(out, c->row.protocol);
	strbuf_puts(out, " · ");
	html_cut(out, s->id, 60);
	strbuf_puts(out, "</small></td><td>");
	html_text(out, d->variants[c->variant].label);
	strbuf_printf(out, "<small>r = %s", format_ratio(text, c->row.retained_ppm));
	strbuf_printf(out, " · kept %s</small></td><td class=\"a\">", format_score(text, s->retained));
	html_cut(out, s->question, TEXT_BYTES);
	strbuf_puts(out, "</td><td class=\"a\">");
	gold_text(out, s->gold);
	strbuf_puts(out, "</td>");
	answer_cell(out, full);
	answer_cell(out, s);
	strbuf_puts(out, "</tr>\n");
}

/* The most interesting `cap` samples of a cell; returns how many were written. */
static int cell_rows(struct strbuf *out, const struct data *d, const struct cell *c, int cap)
{
	const struct cell *full = data_full(d, c->panel);
	int written = 0;
	for (int level = 3; level >= 0; level--)
		for (int i = 0; i < c->n_samples && written < cap; i++) {
			const struct sample *s = &c->samples[i], *f = cell_sample(full, s->id);
			if (interest(s, f) != level)
				continue;
			sample_row(out, d, c, s, f);
			written++;
		}
	return written;
}

static void option(struct strbuf *out, int value, const char *label, const char *more)
{
	strbuf_printf(out, "<option value=\"%d\">", value);
	html_text(out, label);
	strbuf_puts(out, more ? ", " : "");
	html_text(out, more);
	strbuf_puts(out, "</option>");
}

static void filter(struct strbuf *out, const struct data *d)
{
	char text[64];
	strbuf_puts(
		out, "<form id=\"filter\" hidden><select name=\"p\" aria-label=\"task\"><option value=\"\">all tasks</option>");
	for (int p = 0; p < d->n_panels; p++)
		option(out, p, d->panels[p].title, d->panels[p].row->protocol);
	strbuf_puts(out, "</select><select name=\"v\" aria-label=\"method\"><option value=\"\">all methods</option>");
	for (int v = 0; v < d->n_variants; v++)
		if (!d->variants[v].full)
			option(out, v, d->variants[v].label, NULL);
	strbuf_puts(out, "</select><select name=\"r\" aria-label=\"share kept\"><option value=\"\">all r</option>");
	for (int k = 0; k < d->n_ppm; k++)
		option(out, d->ppm[k], format_ratio(text, d->ppm[k]), NULL);
	strbuf_puts(out, "</select><label><input type=\"checkbox\" value=\"flip\"> score changed</label>"
			 "<label><input type=\"checkbox\" value=\"empty\"> empty</label><label><input type=\"checkbox\" "
			 "value=\"fail\"> failed</label>"
			 "<input type=\"search\" placeholder=\"text…\" aria-label=\"text\"><span id=\"shown\"></span></form>\n");
}

void page_samples(struct strbuf *out, const struct data *d)
{
	int cap = d->n_cells ? ROWS / d->n_cells : 0, written = 0, all = 0;
	cap = cap < LEAST_PER_CELL ? LEAST_PER_CELL : cap > MOST_PER_CELL ? MOST_PER_CELL : cap;
	struct strbuf rows = {0};
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		if (d->variants[c->variant].full && c->row.ok == c->n_samples)
			continue;
		written += cell_rows(&rows, d, c, cap);
		all += c->n_samples;
	}
	strbuf_printf(out,
		"<h2 id=\"sec-samples\">Samples</h2><p>The full cache's answer beside the pruned one's. At most %d samples of "
		"each cell are in this page, "
		"failed, empty and changed ones first: %d of %d; the other %d are in the database.</p>\n",
		cap, written, all, all - written);
	filter(out, d);
	strbuf_puts(out, "<div class=\"tw\"><table class=\"text\" "
			 "id=\"samples\"><thead><tr><th>task</th><th>method</th><th>question</th><th>expected</th>"
			 "<th>full cache</th><th>pruned</th></tr></thead><tbody>\n");
	strbuf_puts(out, rows.text ? rows.text : "");
	strbuf_puts(out, "</tbody></table></div>\n");
	strbuf_free(&rows);
}
