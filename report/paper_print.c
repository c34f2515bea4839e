/* paper_print.c: how a paper's comparison looks: one description of its parts, three looks (Markdown, LaTeX, HTML). */
#include "report/paper_impl.h"

#include "report/page.h"
#include "report/svg.h"
#include "report/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Strings around the parts; [0] opens, [1] closes. */
struct look {
	const char *format;
	void (*text)(struct strbuf *out, const char *s);
	const char *title[2], *head[2], *para[2], *list[2], *item[2], *table[2], *top[2], *row[2];
	const char *second_head, *between_heads, *second, *between; /* cells of a row: before the second, before the others */
	const char *end;
};

/* clang-format off */
static const struct look looks[] = {
	{.format = "md", .text = markdown_text,
		.title = {"# ", "\n\n"}, .head = {"\n## ", "\n\n"}, .para = {"", "\n\n"}, .list = {"", "\n"}, .item = {"- ", "\n"},
		.table = {"", "\n"}, .top = {"| ", " |\n|---|---|---:|---:|---:|---:|---:|---:|---|\n"}, .row = {"| ", " |\n"},
		.second_head = " | ", .between_heads = " | ", .second = " | ", .between = " | ", .end = ""},
	{.format = "latex", .text = latex_text,
		.title = {"\\section*{", "}\n"}, .head = {"\\subsection*{", "}\n"}, .para = {"", "\n\n"},
		.list = {"\\begin{itemize}\n", "\\end{itemize}\n"}, .item = {"\\item ", "\n"},
		.table = {"\\begin{tabular}{llrrrrrrl}\n\\hline\n", "\\hline\n\\end{tabular}\n\n"}, .top = {"", " \\\\\n\\hline\n"},
		.row = {"", " \\\\\n"}, .second_head = " & ", .between_heads = " & ", .second = " & ", .between = " & ", .end = ""},
	{.format = "html", .text = html_text,
		.title = {"<h1>", "</h1>\n"}, .head = {"<h2>", "</h2>\n"}, .para = {"<p>", "</p>\n"}, .list = {"<ul>", "</ul>\n"},
		.item = {"<li>", "</li>\n"}, .table = {"<div style=\"overflow-x:auto\"><table>", "</tbody></table></div>\n"},
		.top = {"<thead><tr><th scope=\"col\" class=\"l\">", "</th></tr></thead><tbody>\n"},
		.row = {"<tr><th scope=\"row\" class=\"l\">", "</td></tr>\n"},
		.second_head = "</th><th scope=\"col\" class=\"l\">", .between_heads = "</th><th scope=\"col\">",
		.second = "</th><td class=\"l\">", .between = "</td><td>", .end = "</body></html>\n"},
};
/* clang-format on */

static void part(struct strbuf *out, const struct look *k, const char *const around[2], const char *text)
{
	strbuf_puts(out, around[0]);
	k->text(out, text);
	strbuf_puts(out, around[1]);
}

/* ---- a table ---- */

enum { COLUMNS = 9 };
static const char *const columns[COLUMNS] = {
	"task", "method", "r", "published", "of full", "measured [95 %]", "of full", "n", "difference [95 %]"};

static void ratio_text(char out[64], double value, double full)
{
	*out = 0;
	if (!isnan(value) && !isnan(full) && full > 0)
		snprintf(out, 64, "%.3f", value / full);
}

static void measured_text(char out[64], const struct paper_row *r)
{
	int n = snprintf(out, 64, r->score ? "%.1f" : "%.4g", r->measured);
	if (!isnan(r->lo) && !isnan(r->hi))
		snprintf(out + n, 64 - (size_t)n, " [%.1f, %.1f]", r->lo, r->hi);
}

/* The difference, or that there is none to give; then the letters of all there is to know. */
static void difference_text(char out[160], const struct paper_row *r)
{
	int n;
	if (!r->comparable)
		n = snprintf(out, 160, "not comparable");
	else if (isnan(r->lo) || isnan(r->hi))
		n = snprintf(out, 160, "%+.1f", r->measured - r->published);
	else
		n = snprintf(out, 160, "%+.1f [%+.1f, %+.1f]", r->measured - r->published, r->lo - r->published - r->tolerance,
			r->hi - r->published + r->tolerance);
	for (int i = 0; i < r->n_reasons; i++)
		n += snprintf(out + n, 160 - (size_t)n, "%s%c", i ? "," : ": ", 'a' + r->reasons[i] % 26);
}

static void table_row(struct strbuf *out, const struct look *k, const struct paper_row *r)
{
	char cell[COLUMNS][160] = {""};
	snprintf(cell[0], sizeof cell[0], "%s", r->task);
	snprintf(cell[1], sizeof cell[1], "%s%s", r->method, !strcmp(r->protocol, "aware") ? " (question seen)" : "");
	if (!isnan(r->retained))
		snprintf(cell[2], sizeof cell[2], "%g", r->retained);
	snprintf(cell[3], sizeof cell[3], r->tolerance > 0 ? "%.10g ±%g" : "%.10g", r->published, r->tolerance);
	ratio_text(cell[4], r->published, r->published_full);
	measured_text(cell[5], r);
	ratio_text(cell[6], r->measured, r->measured_full);
	snprintf(cell[7], sizeof cell[7], "%d", r->n);
	difference_text(cell[8], r);
	strbuf_puts(out, k->row[0]);
	for (int c = 0; c < COLUMNS; c++) {
		strbuf_puts(out, c == 0 ? "" : c == 1 ? k->second : k->between);
		k->text(out, cell[c]);
	}
	strbuf_puts(out, k->row[1]);
}

static void print_reasons(struct strbuf *out, const struct look *k, const struct paper_group *g)
{
	if (!g->n_reasons)
		return;
	strbuf_puts(out, k->list[0]);
	for (int i = 0; i < g->n_reasons; i++) {
		char *line = text_format(
			"%c: %s%s", 'a' + i % 26, g->reasons[i], g->blocking[i] ? "" : " (a difference is given all the same)");
		part(out, k, k->item, line);
		free(line);
	}
	strbuf_puts(out, k->list[1]);
}

static void print_group(struct strbuf *out, const struct look *k, const struct paper_group *g)
{
	char *head = text_format("%s, %s; measured on %s", g->model, g->source, g->target);
	char *how = text_format("Published figures: %s.", g->how);
	part(out, k, k->head, head);
	part(out, k, k->para, how);
	free(head);
	free(how);
	strbuf_puts(out, k->table[0]);
	strbuf_puts(out, k->top[0]);
	for (int c = 0; c < COLUMNS; c++) {
		strbuf_puts(out, c == 0 ? "" : c == 1 ? k->second_head : k->between_heads);
		k->text(out, columns[c]);
	}
	strbuf_puts(out, k->top[1]);
	for (int i = 0; i < g->n_rows; i++)
		table_row(out, k, &g->rows[i]);
	strbuf_puts(out, k->table[1]);
	print_reasons(out, k, g);
}

/* ---- lists ---- */

static void print_states(struct strbuf *out, const struct look *k, const struct paper *p)
{
	size_t i;
	json_t *one;
	part(out, k, k->head, "What the paper states");
	strbuf_puts(out, k->list[0]);
	json_array_foreach(json_object_get(p->about, "states"), i, one) part(out, k, k->item, json_string_value(one));
	strbuf_puts(out, k->list[1]);
	part(out, k, k->head, "What it does not state, and what stands here");
	strbuf_puts(out, k->list[0]);
	json_array_foreach(json_object_get(p->about, "not_stated"), i, one)
	{
		char *line = text_format(
			"%s: %s", json_string_value(json_array_get(one, 0)), json_string_value(json_array_get(one, 1)));
		part(out, k, k->item, line);
		free(line);
	}
	strbuf_puts(out, k->list[1]);
}

static void print_left_out(struct strbuf *out, const struct look *k, const char *lines)
{
	if (!lines || !*lines)
		return;
	part(out, k, k->head, "Left out of the plan");
	strbuf_puts(out, k->list[0]);
	for (const char *p = lines; *p;) {
		size_t n = strcspn(p, "\n");
		char *line = text_format("%.*s", (int)n, p);
		part(out, k, k->item, line);
		free(line);
		p += n + (p[n] == '\n');
	}
	strbuf_puts(out, k->list[1]);
}

static void print_lacks(struct strbuf *out, const struct look *k, const struct paper *p)
{
	if (p->n_lacks) {
		part(out, k, k->head, "Published, and not measured here");
		strbuf_puts(out, k->list[0]);
		for (int i = 0; i < p->n_lacks; i++) {
			char *line =
				text_format("%s (%d figure%s)", p->lacks[i].text, p->lacks[i].n, p->lacks[i].n == 1 ? "" : "s");
			part(out, k, k->item, line);
			free(line);
		}
		strbuf_puts(out, k->list[1]);
	}
	if (p->cells_alone) {
		char *line =
			text_format("%d cells were measured of which nothing is published; kvbench export and report show them.",
				p->cells_alone);
		part(out, k, k->para, line);
		free(line);
	}
}

/* ---- the whole ---- */

static const char reading[] = "Scores in points of 100; of full: over the full cache of the same source, the figure to compare "
			      "between code bases. The interval "
			      "is of our samples, and of how far a figure can be read; a source's own error is not known. No "
			      "difference is given where model, "
			      "weights, task, length, protocol, machine, template or rows differ: the letters say which.";

static void html_head(struct strbuf *out, const char *title)
{
	strbuf_puts(out,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
		"content=\"width=device-width,initial-scale=1\">"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri "
		"'none'; form-action 'none'\"><title>");
	html_text(out, title);
	strbuf_printf(out, "</title><style>%s</style></head><body>\n", report_page_css);
}

void paper_print(const struct paper *p, const char *format, struct strbuf *out)
{
	const struct look *k = looks;
	while (strcmp(k->format, format) && k + 1 < looks + sizeof looks / sizeof *looks)
		k++;
	char *title = text_format("%s: published and measured, scale %s", p->title, p->scale);
	if (k->text == html_text)
		html_head(out, title);
	part(out, k, k->title, title);
	if (!strcmp(p->scale, "tiny"))
		part(out, k, k->para,
			"The embedded models on tasks that stand in for the paper's: this shows that the plan runs from end to "
			"end and how "
			"the comparison reads, not whether the paper holds.");
	part(out, k, k->para, reading);
	for (int i = 0; i < p->n_groups; i++)
		print_group(out, k, &p->groups[i]);
	print_lacks(out, k, p);
	print_left_out(out, k, p->left_out);
	print_states(out, k, p);
	strbuf_puts(out, k->end);
	free(title);
}
