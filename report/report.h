/* report.h: rows in, one self-contained HTML file out. Reads the database through store.h; knows no SQL, no model. */
#ifndef KVB_REPORT_H
#define KVB_REPORT_H

#include "harness/base/base.h"
struct store;

int report_write(struct store *s, const char *title, const char *html_path, char err[ERR_LEN]);
/* The result table as text: "csv", "json", "md", "latex", or "text" (the summary a terminal shows). Appends to out. */
int report_export(struct store *s, const char *format, struct strbuf *out, char err[ERR_LEN]);

#endif
