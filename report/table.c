/* table.c: see table.h. */
#include "report/table.h"

#include "report/text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_begin(struct table *t, const char *id, const char *caption, char *sql)
{
	*t = (struct table){.id = text_copy(id), .caption = text_copy(caption), .sql = sql, .n_text = 1};
}

void table_column(struct table *t, const char *name, const char *head, ...)
{
	char buf[256];
	va_list args;
	va_start(args, head);
	vsnprintf(buf, sizeof buf, head, args);
	va_end(args);
	t->columns = mem_grow(t->columns, (size_t)t->n_columns + 1, sizeof *t->columns);
	t->columns[t->n_columns++] = (struct table_column){text_copy(name), text_copy(buf)};
}

struct table_cell *table_number(struct table *t, double number, const char *shown)
{
	if ((t->n_cells & (t->n_cells - 1)) == 0) /* grows by doubling */
		t->cells = mem_grow(t->cells, t->n_cells ? 2 * (size_t)t->n_cells : 1, sizeof *t->cells);
	struct table_cell *c = &t->cells[t->n_cells++];
	*c = (struct table_cell){.text = text_copy(shown ? shown : ""), .number = number, .class = ""};
	return c;
}

struct table_cell *table_text(struct table *t, const char *text)
{
	return table_number(t, NAN, text);
}

int table_rows(const struct table *t)
{
	return t->n_columns ? t->n_cells / t->n_columns : 0;
}

void table_free(struct table *t)
{
	for (int i = 0; i < t->n_columns; i++) {
		free(t->columns[i].name);
		free(t->columns[i].head);
	}
	for (int i = 0; i < t->n_cells; i++) {
		free(t->cells[i].text);
		free(t->cells[i].small);
		free(t->cells[i].link);
		free(t->cells[i].title);
	}
	free(t->columns);
	free(t->cells);
	free(t->id);
	free(t->caption);
	free(t->sql);
	*t = (struct table){0};
}

/* ---- HTML ---- */

static void attribute(struct strbuf *out, const char *name, const char *value)
{
	strbuf_printf(out, " %s=\"", name);
	html_text(out, value);
	strbuf_puts(out, "\"");
}

static void html_cell(struct strbuf *out, const struct table *t, int column, const struct table_cell *c)
{
	const char *tag = column == 0 && !t->plain ? "th" : "td";
	strbuf_printf(out, column == 0 && !t->plain ? "<th scope=\"row\"" : "<td");
	if (column < t->n_text || *c->class)
		strbuf_printf(out, " class=\"%s%s%s\"", column < t->n_text ? "l" : "", column < t->n_text && *c->class ? " " : "",
			c->class);
	if (!isnan(c->number))
		strbuf_printf(out, " data-s=\"%.9g\"", c->number);
	if (c->title)
		attribute(out, "title", c->title);
	strbuf_puts(out, ">");
	if (c->link) {
		strbuf_puts(out, "<a");
		attribute(out, "href", c->link);
		strbuf_puts(out, ">");
	}
	html_text(out, c->text);
	strbuf_puts(out, c->link ? "</a>" : "");
	if (c->small) {
		strbuf_puts(out, "<small>");
		html_text(out, c->small);
		strbuf_puts(out, "</small>");
	}
	strbuf_printf(out, "</%s>", tag);
}

static void html_tools(struct strbuf *out, const struct table *t)
{
	strbuf_puts(out, "<div class=\"tools\"><span class=\"cap\">");
	html_text(out, t->caption);
	strbuf_puts(out, "</span><span class=\"acts\"><button data-x=\"csv\">CSV</button><button data-x=\"tex\">LaTeX</button>");
	if (t->sql) {
		strbuf_puts(out, "<details><summary>SQL</summary><pre>");
		html_text(out, t->sql);
		strbuf_puts(out, "</pre></details>");
	}
	strbuf_puts(out, "</span></div>");
}

void table_html(struct strbuf *out, const struct table *t)
{
	strbuf_printf(out, "<div class=\"tab\" id=\"t-%s\">", t->id);
	html_tools(out, t);
	strbuf_puts(out, "<div class=\"tw\" tabindex=\"0\" role=\"region\"");
	attribute(out, "aria-label", t->caption);
	strbuf_printf(out, "><table class=\"%s\"><thead><tr>", t->plain ? "plain" : "sort");
	for (int i = 0; i < t->n_columns; i++) {
		strbuf_printf(out, "<th scope=\"col\"%s data-n=\"", i < t->n_text || t->plain ? " class=\"l\"" : "");
		html_text(out, t->columns[i].name);
		strbuf_puts(out, t->plain ? "\">" : "\"><button>");
		html_text(out, t->columns[i].head);
		strbuf_puts(out, t->plain ? "</th>" : "</button></th>");
	}
	strbuf_puts(out, "</tr></thead><tbody>\n");
	for (int i = 0; i < t->n_cells; i++) {
		int column = i % t->n_columns;
		strbuf_puts(out, column == 0 ? "<tr>" : "");
		html_cell(out, t, column, &t->cells[i]);
		strbuf_puts(out, column + 1 == t->n_columns ? "</tr>\n" : "");
	}
	strbuf_puts(out, "</tbody></table></div></div>\n");
}

/* ---- exports ---- */

static void export_csv(struct strbuf *out, const struct table *t)
{
	for (int i = 0; i < t->n_columns; i++) {
		csv_text(out, t->columns[i].name);
		strbuf_puts(out, i + 1 < t->n_columns ? "," : "\n");
	}
	for (int i = 0; i < t->n_cells; i++) {
		if (isnan(t->cells[i].number))
			csv_text(out, t->cells[i].text);
		else
			strbuf_printf(out, "%.9g", t->cells[i].number);
		strbuf_puts(out, (i + 1) % t->n_columns ? "," : "\n");
	}
}

static json_t *json_of(const struct table_cell *c)
{
	if (!isnan(c->number))
		return json_real(c->number);
	json_t *text = json_string(c->text);
	return text ? text : json_string("(not UTF-8)");
}

static void export_json(struct strbuf *out, const struct table *t)
{
	json_t *rows = json_array();
	for (int i = 0; i < table_rows(t); i++) {
		json_t *row = json_object();
		for (int k = 0; k < t->n_columns; k++)
			json_object_set_new(row, t->columns[k].name, json_of(&t->cells[i * t->n_columns + k]));
		json_array_append_new(rows, row);
	}
	char *text = json_dumps(rows, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	strbuf_puts(out, text ? text : "[]");
	strbuf_puts(out, "\n");
	free(text);
	json_decref(rows);
}

static void cell_words(struct strbuf *out, const struct table_cell *c, void (*write)(struct strbuf *, const char *))
{
	write(out, c->text);
	if (c->small) { /* nothing else keeps an interval apart from its mean */
		strbuf_puts(out, " [");
		write(out, c->small);
		strbuf_puts(out, "]");
	}
}

static void export_markdown(struct strbuf *out, const struct table *t)
{
	for (int i = 0; i < t->n_columns; i++) {
		strbuf_puts(out, i ? " " : "| ");
		markdown_text(out, t->columns[i].head);
		strbuf_puts(out, " |");
	}
	strbuf_puts(out, "\n|");
	for (int i = 0; i < t->n_columns; i++)
		strbuf_puts(out, i < t->n_text ? "---|" : "---:|");
	for (int i = 0; i < t->n_cells; i++) {
		strbuf_puts(out, i % t->n_columns ? " " : "\n| ");
		cell_words(out, &t->cells[i], markdown_text);
		strbuf_puts(out, " |");
	}
	strbuf_puts(out, "\n");
}

static void export_latex(struct strbuf *out, const struct table *t)
{
	strbuf_puts(out, "% ");
	latex_text(out, t->caption);
	strbuf_puts(out, "\n\\begin{tabular}{");
	for (int i = 0; i < t->n_columns; i++)
		strbuf_puts(out, i < t->n_text ? "l" : "r");
	strbuf_puts(out, "}\n\\hline\n");
	for (int i = 0; i < t->n_columns; i++) {
		latex_text(out, t->columns[i].head);
		strbuf_puts(out, i + 1 < t->n_columns ? " & " : " \\\\\n\\hline\n");
	}
	for (int i = 0; i < t->n_cells; i++) {
		cell_words(out, &t->cells[i], latex_text);
		strbuf_puts(out, (i + 1) % t->n_columns ? " & " : " \\\\\n");
	}
	strbuf_puts(out, "\\hline\n\\end{tabular}\n");
}

int table_export(struct strbuf *out, const struct table *t, const char *format)
{
	static const struct {
		const char *name;
		void (*write)(struct strbuf *, const struct table *);
	} formats[] = {{"csv", export_csv}, {"json", export_json}, {"md", export_markdown}, {"latex", export_latex}};
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (strcmp(formats[i].name, format) == 0) {
			formats[i].write(out, t);
			return 0;
		}
	return -1;
}
