/* page.h: what the pages of a report share: what was read for them, where they write, and the table of pages itself. Inside report/
 * only. A page is one file report/page_NAME.c and one line in report.c. */
#ifndef KVB_REPORT_PAGE_H
#define KVB_REPORT_PAGE_H

#include "report/data.h"
#include "report/history.h"
#include "report/report.h"
#include "report/table.h"
#include "report/training.h"
#include "report/loss.h"
#include "results/queries.h"

struct setting { /* one name and value of the newest run */
	const char *group, *name, *value;
};

struct source { /* one database, or one run of it */
	struct data data;
	const char *label; /* how the page names it: unique among the sources */
	const char *run;   /* NULL = all */
	struct setting *settings;
	int n_settings;
	int64_t took_ms; /* of all processes that ended */
	int n_runs, n_open; /* open: not ended, or killed */
};

struct report {
	const struct report_request *request;
	struct source *sources;
	int n_sources;
	const struct data *d; /* of the first source: what the pages of a single report are about */
	struct losses losses;
	struct matches *matches; /* of a comparison; NULL = one source */
	struct history history;     /* empty where no history was given */
	struct trainings trainings;
	char *samples_file; /* name of the second file that holds all samples; NULL = this page does */

	struct strbuf *out; /* the page so far */
	/* One table is wanted as text: pages run for it alone. */
	const char *wanted, *format;
	struct strbuf *wanted_out;
	bool wanted_found;
	struct strbuf table_ids;  /* of every table */
	struct strbuf table_list; /* "loss-0           Points lost ...", one a line */
};

struct page {
	const char *id, *title;
	bool (*there)(const struct report *r); /* NULL = always */
	void (*write)(struct report *r);
};

extern const struct page page_summary, page_scores, page_accuracy, page_pareto, page_time, page_cost, page_memory, page_needles,
	page_budgets, page_mapper, page_samples, page_history, page_settings;
extern const struct page page_differences, page_curves, page_flips, page_two_times, page_two_settings; /* of a comparison */

extern const char report_page_css[], report_page_js[]; /* report/page.css, report/page.js */

/* Reads all that pages need, public where that is asked for. Close it also after a failure. */
int report_open(struct report *r, const struct report_request *q, char err[ERR_LEN]);
void report_close(struct report *r);
/* Writes the table (or exports it, when it is the wanted one) and frees it. */
void report_table(struct report *r, struct table *t);
/* The value of a setting of a source's newest run, or "". */
const char *source_setting(const struct source *s, const char *group, const char *name);
struct query_scope report_scope(const struct report *r, const struct cell_row *row, bool panel, bool figure);

/* Do all samples, whole, fit into the page? If not, a second file gets them (samples_write with all). */
bool samples_fit(const struct report *r);
/* The viewer and its data: at most what a page may carry, or all. */
void samples_write(struct report *r, bool all);

/* Small pieces of HTML. */
void page_lead(struct strbuf *out, const char *html); /* the sentence below the heading: how to read this page */
void page_setting_head(struct strbuf *out, const struct report *r, int setting); /* <h3> naming target, protocol, ... */
/* Where a cell's samples are shown: "#s-PANEL.VARIANT.PPM"; NULL for the full cache, which stands beside all others. Caller frees. */
char *samples_link(const struct data *d, const struct cell *c);
bool page_timed(const struct report *r); /* something was timed */
/* The panel's timed cells: the full cache, then all at the ratio most were timed at. Caller frees. */
const struct cell **page_timed_cells(const struct data *d, int panel, int *n);
/* Sections of the page for each r, the reference ratio open. */
void page_ratio_open(struct strbuf *out, int ppm, bool open);
void page_ratio_close(struct strbuf *out);

#endif
