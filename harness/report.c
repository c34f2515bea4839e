/* report.c: the verbs that turn databases into something to read: `report DB...` (HTML) and `export DB` (csv, json, md, latex,
 * text; the result table, or any table of the report). */
#include "report/report.h"

#include "harness/history.h"
#include "harness/verbs.h"
#include "results/compare.h"
#include "results/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int complain(const char *verb, const char *err)
{
	fprintf(stderr, "kvbench %s: %s\n", verb, err);
	return EXIT_CELLS_FAILED;
}

static int find_title(void *user, const char *group, const char *name, const char *value)
{
	char **title = user;
	if (!*title && !strcmp(group, "plan") && !strcmp(name, "title"))
		*title = text_copy(value);
	return 0;
}

/* results/demo.db -> results/demo.html; caller frees. */
static char *html_beside(const char *db)
{
	size_t n = strlen(db);
	return n > 3 && !strcmp(db + n - 3, ".db") ? text_format("%.*s.html", (int)n - 3, db) : text_format("%s.html", db);
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* ---- what is to be reported ---- */

struct inputs {
	struct report_source source[8];
	char *path[8], *run[8], *label[8];
	int n;
	struct store *history;
	char *title;
};

static void inputs_close(struct inputs *in)
{
	for (int i = 0; i < in->n; i++) {
		store_close(in->source[i].store);
		free(in->path[i]);
		free(in->run[i]);
		free(in->label[i]);
	}
	store_close(in->history);
	free(in->title);
}

struct wanted_run {
	const char *prefix;
	char *id;
	int found;
};

static int match_run(void *user, const struct run_row *r)
{
	struct wanted_run *w = user;
	if (strncmp(r->run_id, w->prefix, strlen(w->prefix)) == 0 && w->found++ == 0)
		w->id = text_copy(r->run_id);
	return 0;
}

/* "PATH", or "PATH:RUN" with the first digits of a run's id. */
static int open_source(struct inputs *in, const char *spec, char err[ERR_LEN])
{
	int i = in->n++;
	const char *colon = file_exists(spec) ? NULL : strrchr(spec, ':');
	in->path[i] = colon ? text_format("%.*s", (int)(colon - spec), spec) : text_copy(spec);
	in->label[i] = text_copy(last_part(spec));
	if (store_open_read(&in->source[i].store, in->path[i], err))
		return -1;
	struct wanted_run w = {colon ? colon + 1 : ""};
	if (colon && store_runs(in->source[i].store, match_run, &w, err))
		return -1;
	in->run[i] = w.id;
	if (colon && w.found != 1)
		return err_set(
			err, "%s: %s run's id begins with \"%s\"", in->path[i], w.found ? "more than one" : "no", w.prefix);
	in->source[i].spec = spec;
	in->source[i].run = in->run[i];
	return 0;
}

/* Files of one name in several folders are told apart by their paths. */
static void label_sources(struct inputs *in, const struct options *o)
{
	for (int i = 0; i < in->n; i++) {
		bool twice = false;
		for (int k = 0; k < in->n; k++)
			twice |= k != i && strcmp(last_part(o->args[k]), last_part(o->args[i])) == 0;
		if (twice) {
			free(in->label[i]);
			in->label[i] = option_has(o, "public") ? text_format("%d: %s", i + 1, last_part(o->args[i]))
							       : text_copy(o->args[i]);
		}
		in->source[i].label = in->label[i];
	}
}

/* The one named, or history.db beside a single database, where there is one. */
static int open_history(struct inputs *in, const struct options *o, char err[ERR_LEN])
{
	char *beside = history_beside(o->args[0]);
	const char *path = option_text(o, "history", in->n == 1 && file_exists(beside) ? beside : NULL);
	int rc = path && strcmp(path, "none") ? store_open_read(&in->history, path, err) : 0;
	free(beside);
	return rc;
}

static int inputs_open(struct inputs *in, const struct options *o, char err[ERR_LEN])
{
	for (int i = 0; i < o->n_args; i++)
		if (open_source(in, o->args[i], err))
			return -1;
	label_sources(in, o);
	if (option_has(o, "title"))
		in->title = text_copy(option_text(o, "title", ""));
	else if (in->n == 1)
		store_settings(in->source[0].store, find_title, &in->title, NULL);
	if (!in->title && in->n == 1)
		in->title = text_copy(in->label[0]);
	struct strbuf names = {0};
	for (int i = 0; i < in->n && !in->title; i++)
		strbuf_printf(&names, "%s%s", i ? " · " : "", in->label[i]);
	if (!in->title)
		in->title = strbuf_take(&names);
	strbuf_free(&names);
	return open_history(in, o, err);
}

static struct report_request request_of(const struct inputs *in, const struct options *o)
{
	return (struct report_request){in->title, in->source, in->n, in->history, option_has(o, "public")};
}

/* ---- report ---- */

static int run_report(const struct options *o)
{
	char err[ERR_LEN] = "", *out = option_has(o, "out") ? text_copy(option_text(o, "out", NULL)) : html_beside(o->args[0]);
	struct inputs in = {0};
	bool second = false;
	options_check_out(o);
	int rc = inputs_open(&in, o, err);
	struct report_request q = request_of(&in, o);
	if (!rc)
		rc = report_make(&q, out, &second, err);
	if (!rc)
		printf("%s\n", out);
	if (!rc && second)
		fprintf(stderr,
			"the page would be too large with all samples: the rest is in a second file beside it, *.samples.html\n");
	inputs_close(&in);
	free(out);
	return rc ? complain("report", err) : EXIT_DONE;
}

#define OPTIONS_REPORT                                                                                                           \
	{"title", "TEXT", "heading (default: the plan's title)"},                                                                \
		{"history", "FILE", "draw these nights as well (default: history.db beside the database; none: no)"},            \
	{                                                                                                                        \
		"public", NULL, "leave out host names and folders"                                                               \
	}

static const struct option_def report_options[] = {
	{"out", "FILE", "the HTML file (-o; default: the first database's name with .html)"},
	OPTIONS_REPORT,
};
const struct verb verb_report = {
	.name = "report",
	.args = "DB[:RUN]...",
	.title = "write a self-contained HTML report, or several databases or runs side by side; prints its name",
	.help = "One database: all pages. Several: what changed in each against the first. RUN: the first digits of a run's id.\n"
		"Samples that do not fit into the page are in a second file beside it.",
	.options = report_options,
	.n_options = sizeof report_options / sizeof *report_options,
	.min_args = 1,
	.max_args = 8,
	.run = run_report,
};

/* ---- export ---- */

static void check_format(const char *format, bool table)
{
	static const char *const formats[] = {"csv", "json", "md", "latex", "text"};
	for (size_t i = 0; i < sizeof formats / sizeof *formats - table; i++) {
		if (!strcmp(formats[i], format))
			return;
	}
	die(EXIT_USAGE, "export: --format is csv, json, md, latex%s, not \"%s\"", table ? "" : " or text", format);
}

static int run_export(const struct options *o)
{
	const char *format = option_text(o, "format", "csv"), *table = option_text(o, "table", NULL);
	char err[ERR_LEN] = "";
	struct inputs in = {0};
	struct strbuf text = {0};
	check_format(format, table != NULL);
	options_check_out(o);
	if (o->n_args > 1 && !table)
		die(EXIT_USAGE, "export: several databases have a --table, such as differences, but no result table in common");
	int rc = inputs_open(&in, o, err);
	struct report_request q = request_of(&in, o);
	if (!rc)
		rc = table ? report_export_table(&q, table, format, &text, err) : report_export_results(&q, format, &text, err);
	if (!rc)
		rc = file_write(option_text(o, "out", NULL), &text, err);
	strbuf_free(&text);
	inputs_close(&in);
	return rc ? complain("export", err) : EXIT_DONE;
}

static const struct option_def export_options[] = {
	{"format", "F", "csv (default), json, md, latex or text"},
	{"table", "NAME", "a table of the report instead of the result table; `--table help` lists them"},
	{"out", "FILE", "instead of standard output (-o)"},
	OPTIONS_REPORT,
};
const struct verb verb_export = {
	.name = "export",
	.args = "DB[:RUN]...",
	.title = "print the result table, or any table of the report, as csv, json, md, latex or text",
	.options = export_options,
	.n_options = sizeof export_options / sizeof *export_options,
	.min_args = 1,
	.max_args = 8,
	.run = run_export,
};
