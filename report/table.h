/* table.h: one table in memory, written as HTML (with its exports and its SQL beside it), CSV, JSON, Markdown or LaTeX: what a page
 * shows and what `kvbench export --table` prints are the same cells. Inside report/ only. */
#ifndef KVB_REPORT_TABLE_H
#define KVB_REPORT_TABLE_H

#include "harness/base/base.h"

struct table_cell {
	char *text;   /* as shown */
	char *small;  /* second line: an interval, a count; NULL = none */
	char *link;   /* "#s-3.1.300000"; NULL = none */
	char *title;  /* tooltip; NULL = none */
	double number; /* to sort and export by; NAN = the text is the value */
	const char *class; /* static text; "" */
};
struct table_column {
	char *name; /* for exports: "ttft_ns" */
	char *head; /* as shown */
};
struct table {
	char *id, *caption, *sql; /* id: unique on the page, [a-z0-9-]; sql NULL = none */
	struct table_column *columns;
	struct table_cell *cells; /* [n_rows][n_columns] */
	int n_columns, n_cells;
	int n_text; /* leading columns that are text, aligned left */
	bool plain; /* long texts: no sorting, all columns left */
};

/* Takes ownership of sql. */
void table_begin(struct table *t, const char *id, const char *caption, char *sql);
void table_column(struct table *t, const char *name, const char *head, ...) __attribute__((format(printf, 3, 4)));
/* The next cell, row by row; the returned cell's further fields may be set until the next call. text NULL = empty. */
struct table_cell *table_text(struct table *t, const char *text);
struct table_cell *table_number(struct table *t, double number, const char *shown); /* NAN: shown alone */
void table_free(struct table *t);
int table_rows(const struct table *t);

void table_html(struct strbuf *out, const struct table *t);
/* "csv", "json", "md", "latex". -1 = no such format. */
int table_export(struct strbuf *out, const struct table *t, const char *format);

#endif
