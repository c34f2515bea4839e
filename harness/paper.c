/* paper.c: `kvbench paper NAME`: a paper's plan at one of three scales, run, and its published figures beside ours. */
#include "harness/paper.h"

#include "harness/run.h"
#include "harness/verbs.h"
#include "report/paper.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct paper_run {
	const struct options *o;
	const struct paper_def *def;
	const char *scale, *format;
	struct strbuf left_out;
};

static const char *choose(const char *what, const char *given, const char *const *known, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(given, known[i]))
			return given;
	}
	struct strbuf list = {0};
	for (size_t i = 0; i < n; i++)
		strbuf_printf(&list, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", known[i]);
	die(EXIT_USAGE, "paper: %s is %s, not \"%s\"", what, list.text, given);
}

static const struct paper_def *find_paper(const char *name)
{
	const char *names[16];
	for (size_t i = 0; i < paper_count(); i++)
		names[i] = paper_at(i)->name;
	choose("NAME", name, names, paper_count());
	for (size_t i = 0;; i++) {
		if (!strcmp(paper_at(i)->name, name))
			return paper_at(i);
	}
}

/* ---- the plan ---- */

static int read_paper(struct paper_run *r, struct plan *p, char **text, char err[ERR_LEN])
{
	bool only_look = option_has(r->o, "plan") || (option_has(r->o, "dry-run") && !strcmp(r->scale, "full"));
	struct paper_choice c = {.def = r->def,
		.scale = r->scale,
		.model = option_text(r->o, "model", NULL),
		.proxy = option_text(r->o, "proxy", NULL),
		.have_data = !only_look};
	if (paper_plan(&c, text, &r->left_out, err))
		return -1;
	int n;
	char **overrides = run_overrides(r->o, &n), *name = text_format("paper-%s-%s", r->def->name, r->scale);
	int rc = plan_read_text(p, *text, name, (const char *const *)overrides, n, err);
	for (int i = 0; i < n; i++)
		free(overrides[i]);
	free(overrides);
	free(name);
	return rc ? rc : plan_check_methods(p, err);
}

/* ---- the comparison ---- */

/* results/x.db -> results/x.html; caller frees. */
static char *html_beside(const char *db)
{
	size_t n = strlen(db);
	return n > 3 && !strcmp(db + n - 3, ".db") ? text_format("%.*s.html", (int)n - 3, db) : text_format("%s.html", db);
}

/* HTML goes to a file, whose name is printed; the others to stdout unless --out says where. */
static int write_text(const struct paper_run *r, const char *db, const struct strbuf *text, char err[ERR_LEN])
{
	const char *out = option_text(r->o, "out", NULL);
	char *path = out ? text_copy(out) : strcmp(r->format, "html") ? NULL : html_beside(db);
	int rc = file_write(path, text, err);
	if (!rc && path)
		printf("%s\n", path);
	free(path);
	return rc;
}

static int finish(struct sweep *s, int64_t took_ns, void *user, char err[ERR_LEN])
{
	struct paper_run *r = user;
	struct strbuf text = {0};
	char took[48];
	duration_text((double)took_ns / 1e9, took, sizeof took);
	fprintf(stderr, "%d cells, %d samples; now %d answered, %d failed, %d out of memory; %s\n", s->sum.cells, s->sum.samples,
		s->sum.ok, s->sum.failed, s->sum.oom, took);
	fputs(s->sum.notes.len ? s->sum.notes.text : "", stderr);
	struct paper_wish w = {.paper = r->def->json,
		.published = paper_published,
		.suites = paper_suites,
		.scale = r->scale,
		.left_out = r->left_out.len ? r->left_out.text : ""};
	int rc = paper_write(s->store, &w, r->format, &text, err);
	rc = rc ? rc : write_text(r, s->plan->db, &text, err);
	if (!rc && s->plan->report)
		rc = report_write(s->store, s->plan->title, s->plan->report, err);
	strbuf_free(&text);
	return rc;
}

static int run_read_paper(struct paper_run *r, const struct plan *p, const char *text, char err[ERR_LEN])
{
	bool quiet = option_has(r->o, "quiet");
	if (option_has(r->o, "plan"))
		return printf("%s\n", text) < 0;
	bool shapes = option_has(r->o, "dry-run") && !strcmp(r->scale, "full");
	option_only(r->o, "tflops", shapes, "--dry-run --scale full");
	option_only(r->o, "gbytes", shapes, "--dry-run --scale full");
	if (!option_has(r->o, "dry-run"))
		return run_plan(&(struct run_wish){p, r->o, quiet, finish, r});
	if (!shapes)
		return run_dry(p, quiet);
	struct paper_speed speed = {option_number(r->o, "tflops", 400), option_number(r->o, "gbytes", 3000)};
	if (!(speed.tflops > 0 && speed.gbytes > 0))
		die(EXIT_USAGE, "paper: --tflops and --gbytes are above 0");
	return paper_estimate(p, &speed, err) ? EXIT_CELLS_FAILED : EXIT_DONE;
}

static int run_paper(const struct options *o)
{
	static const char *const scales[] = {"tiny", "small", "full"}, *const formats[] = {"md", "latex", "html"};
	char err[ERR_LEN] = "", *text = NULL;
	struct plan p = {0};
	struct paper_run r = {.o = o, .def = find_paper(o->args[0])};
	r.scale = choose("--scale", option_text(o, "scale", "tiny"), scales, 3);
	r.format = choose("--format", option_text(o, "format", "md"), formats, 3);
	int code = read_paper(&r, &p, &text, err) ? EXIT_USAGE : EXIT_DONE;
	if (!code && r.left_out.len)
		fprintf(stderr, "left out: %s", r.left_out.text);
	if (!code)
		code = run_read_paper(&r, &p, text, err);
	if (*err)
		fprintf(stderr, "kvbench paper: %s\n", err);
	plan_free(&p);
	free(text);
	strbuf_free(&r.left_out);
	return code;
}

static const struct option_def paper_options[] = {
	{"scale", "S",
		"tiny (default: the embedded models on tasks that stand in, a minute), small (--model, of .5B to 1.5B), full "
		"(the paper's own "
		"models and suites)"},
	{"model", "MODEL", "the target, in place of the paper's"},
	{"proxy", "MODEL", "the proxy, in place of the paper's"},
	{"format", "F", "md (default), latex or html"},
	{"out", "FILE", "where the comparison goes (-o; default: stdout, html: beside the database)"},
	{"plan", NULL, "print the plan and stop; `kvbench run` takes it, too"},
	{"dry-run", NULL, "cells, samples, tokens, memory and time; at full scale from shapes and sizes alone, nothing fetched"},
	{"tflops", "X", "of that estimate's machine: sustained TFLOP/s (default 400, a guess for one data-centre GPU)"},
	{"gbytes", "X", "of that estimate's machine: GB/s read from memory (default 3000)"},
	{"set", "KEY=VALUE", "override a key of the plan, as for run"},
	{"template", "NAME", "the same as --chat-template"},
	{"quiet", NULL, "no progress lines (-q)"},
};
static const char *const unused_keys[] = {"training", NULL};
const struct verb verb_paper = {
	.name = "paper",
	.args = "NAME",
	.title = "run a paper's plan; its published figures beside ours, or why they do not compare",
	.help = "NAME: proxykv, lkv, kvzip, snapkv-longbench or ruler-kvpress. The same command again measures nothing twice: "
		"another\n"
		"--format prints the same comparison anew.",
	.options = paper_options,
	.n_options = sizeof paper_options / sizeof *paper_options,
	.plan_keys = true,
	.unused_keys = unused_keys,
	.min_args = 1,
	.max_args = 1,
	.run = run_paper,
};
