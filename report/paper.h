/* paper.h: what a paper published beside what was measured here. Rows in, text out: Markdown, LaTeX, or one HTML page.
 *
 * A published figure and a measured one stand in one row; their difference is given only where nothing known tells the two
 * measurements apart, else the reasons. Nothing is filled in: a figure without its counterpart is listed with the reason. */
#ifndef KVB_REPORT_PAPER_H
#define KVB_REPORT_PAPER_H

#include "harness/base/base.h"
struct store;

struct paper_wish {
	const char *paper;     /* JSON text: one of harness/papers */
	const char *published; /* JSON text: harness/papers/published.json */
	const char *scale;     /* "tiny", "small" or "full" */
	const char *suites;    /* JSON text: harness/papers/suites.json, how many rows a task has; NULL = not known */
	const char *left_out;  /* what the plan had to do without, a line each; "" = nothing */
};
/* format: "md", "latex" or "html". Appends to out. -1 + err. */
int paper_write(struct store *s, const struct paper_wish *w, const char *format, struct strbuf *out, char err[ERR_LEN]);

#endif
