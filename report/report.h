/* report.h: rows in, one self-contained HTML file out: the report of one database, or several databases or runs side by side. Reads
 * through store.h; knows no SQL, no model. */
#ifndef KVB_REPORT_H
#define KVB_REPORT_H

#include "harness/base/base.h"
struct store;

struct report_source {
	struct store *store;
	const char *spec;  /* PATH or PATH:RUN as side_load (results/compare.h) takes it; only comparisons need it */
	const char *label; /* how the page names it */
	const char *run;   /* only this process's rows; NULL = all */
};
struct report_request {
	const char *title;
	const struct report_source *sources; /* one: its report. More: a comparison, each against the first */
	int n_sources;
	struct store *history;               /* nights to draw; NULL = none */
	bool public_;                        /* host names and folders are left out */
};
/* Writes the page, and beside it NAME.samples.html when not all samples fit into the page. wrote_samples may be NULL. */
int report_make(const struct report_request *q, const char *html_path, bool *wrote_samples, char err[ERR_LEN]);
/* The page of one database. */
int report_write(struct store *s, const char *title, const char *html_path, char err[ERR_LEN]);
/* The result table of the first source as text: "csv", "json", "md", "latex", or "text" (the summary a terminal shows). Appends to
 * out. */
int report_export_results(const struct report_request *q, const char *format, struct strbuf *out, char err[ERR_LEN]);
int report_export(struct store *s, const char *format, struct strbuf *out, char err[ERR_LEN]);
/* One table of the page, as csv, json, md or latex. An unknown name: the error lists all. */
int report_export_table(
	const struct report_request *q, const char *table, const char *format, struct strbuf *out, char err[ERR_LEN]);

#endif
