/* report.c: the verbs that turn a database into something to read: `report DB` (HTML) and `export DB` (csv, json, md, latex,
 * text). */
#include "report/report.h"

#include "harness/verbs.h"
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

static int run_report(const struct options *o)
{
	const char *db = o->args[0];
	char err[ERR_LEN] = "", *title = text_copy(option_text(o, "title", NULL)), *out = NULL;
	struct store *s = NULL;
	int rc = store_open_read(&s, db, err);
	if (rc)
		goto cleanup;
	store_settings(s, find_title, &title, NULL);
	out = option_has(o, "out") ? text_copy(option_text(o, "out", NULL)) : html_beside(db);
	rc = report_write(s, title ? title : db, out, err);
	if (!rc)
		printf("%s\n", out);
cleanup:
	store_close(s);
	free(title);
	free(out);
	return rc ? complain("report", err) : EXIT_DONE;
}

static const struct option_def report_options[] = {
	{"out", "FILE", "the HTML file (-o; default: the database's name with .html)"},
	{"title", "TEXT", "heading (default: the plan's title)"},
};
const struct verb verb_report = {
	.name = "report",
	.args = "DB",
	.title = "write a self-contained HTML report; prints its name",
	.options = report_options,
	.n_options = sizeof report_options / sizeof *report_options,
	.min_args = 1,
	.max_args = 1,
	.run = run_report,
};

static void check_format(const char *format)
{
	static const char *const formats[] = {"csv", "json", "md", "latex", "text"};
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
		if (!strcmp(formats[i], format))
			return;
	}
	die(EXIT_USAGE, "export: --format is csv, json, md, latex or text, not \"%s\"", format);
}

static int write_out(const char *path, const struct strbuf *text, char err[ERR_LEN])
{
	FILE *f = path ? fopen(path, "w") : stdout;
	if (!f)
		return err_set(err, "cannot write %s", path);
	bool ok = fwrite(text->text ? text->text : "", 1, text->len, f) == text->len;
	if (path)
		ok = !fclose(f) && ok;
	return ok ? 0 : err_set(err, "writing %s failed", path ? path : "the output");
}

static int run_export(const struct options *o)
{
	const char *format = option_text(o, "format", "csv");
	char err[ERR_LEN] = "";
	struct store *s = NULL;
	struct strbuf text = {0};
	check_format(format);
	int rc = store_open_read(&s, o->args[0], err) || report_export(s, format, &text, err) ||
		 write_out(option_text(o, "out", NULL), &text, err);
	strbuf_free(&text);
	store_close(s);
	return rc ? complain("export", err) : EXIT_DONE;
}

static const struct option_def export_options[] = {
	{"format", "F", "csv (default), json, md, latex or text"},
	{"out", "FILE", "instead of standard output (-o)"},
};
const struct verb verb_export = {
	.name = "export",
	.args = "DB",
	.title = "print the result table as csv, json, md, latex or text",
	.options = export_options,
	.n_options = sizeof export_options / sizeof *export_options,
	.min_args = 1,
	.max_args = 1,
	.run = run_export,
};
