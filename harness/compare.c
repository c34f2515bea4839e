/* compare.c: `kvbench compare A.db[:RUN] B.db[:RUN]`: what changed from A to B, on the samples both have. */
#include "results/compare.h"

#include "harness/verbs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_choice(const char *option, const char *value, const char *const *choices)
{
	struct strbuf list = {0};
	for (int i = 0; choices[i]; i++) {
		if (!strcmp(choices[i], value)) {
			strbuf_free(&list);
			return;
		}
		strbuf_printf(&list, "%s%s", i ? ", " : "", choices[i]);
	}
	die(EXIT_USAGE, "compare: --%s is one of %s, not \"%s\"", option, list.text, value);
}

static struct compare_output output_of(const struct options *o)
{
	struct compare_output out = {option_text(o, "format", "text"), option_text(o, "table", "cells"), INT_MAX};
	check_choice("format", out.format, (const char *const[]){"text", "json", "md", "latex", "csv", NULL});
	check_choice("table", out.table, (const char *const[]){"cells", "flips", NULL});
	option_only(o, "table", !strcmp(out.format, "csv"), "--format csv");
	bool all = !strcmp(out.format, "json") || !strcmp(out.format, "csv");
	int64_t most = option_count(o, "flips", all ? INT_MAX : 20);
	out.most_flips = most > INT_MAX ? INT_MAX : (int)most;
	return out;
}

/* Refused without --force: what may not stand beside each other, in words. */
static int refused(const struct comparison *c)
{
	for (int i = 0; i < c->n_refusals; i++)
		fprintf(stderr, "kvbench compare: %s\n", c->refusals[i]);
	for (int i = 0; i < c->n_unlike; i++) {
		char *text = compare_unlike_text(c, &c->unlike[i], "A", "B");
		fprintf(stderr, "kvbench compare: %s\n", text);
		free(text);
	}
	fprintf(stderr, "kvbench compare: not comparable; --force compares all the same and marks the output\n");
	return EXIT_USAGE;
}

static int print_comparison(const struct comparison *c, const struct options *o, const struct compare_output *output)
{
	struct strbuf text = {0};
	char err[ERR_LEN] = "";
	int rc = compare_print(c, output, &text, err) || file_write(option_text(o, "out", NULL), &text, err);
	strbuf_free(&text);
	if (rc)
		fprintf(stderr, "kvbench compare: %s\n", err);
	return rc ? EXIT_CELLS_FAILED : EXIT_DONE;
}

static int run_compare(const struct options *o)
{
	char err[ERR_LEN] = "";
	struct side a = {0}, b = {0};
	struct comparison c = {0};
	const struct compare_rules rules = {.alpha = option_alpha(o, .05)};
	struct compare_output output = output_of(o);
	int code = EXIT_CELLS_FAILED;
	options_check_out(o);
	if (side_load(&a, o->args[0], err) || side_load(&b, o->args[1], err)) {
		fprintf(stderr, "kvbench compare: %s\n", err);
		goto cleanup;
	}
	compare_make(&c, &a, &b, &rules);
	code = c.n_refusals && !option_has(o, "force") ? refused(&c) : print_comparison(&c, o, &output);
cleanup:
	compare_free(&c);
	side_free(&a);
	side_free(&b);
	return code;
}

static const struct option_def compare_options[] = {
	{"format", "F", "text (default), json, md, latex or csv"},
	{"table", "T", "of csv: cells (default) or flips, the samples whose score changed"},
	{"flips", "N", "list at most so many of these samples (default 20; json and csv: all)"},
	{"alpha", "P", "a change is told when its p, by Holm over the table, is at most this (default .05)"},
	{"force", NULL, "compare what is not comparable; the output says so"},
	{"out", "FILE", "instead of standard output (-o)"},
};
const struct verb verb_compare = {
	.name = "compare",
	.args = "A.db[:RUN] B.db[:RUN]",
	.title = "what changed from A to B, on the samples both have",
	.help = "RUN: the first digits of a run's id. Refused (exit code 2) where prompts, protocols, metrics, scorer versions "
		"or the\n"
		"measuring procedure differ. Columns in which A and B as a whole differ, such as the precision, are what is "
		"compared;\n"
		"all others must be equal for two cells to meet. Intervals are 95 %, of paired differences, whole contexts "
		"resampled;\n"
		"\"would see\" is the least change that would have been told with power .8.",
	.options = compare_options,
	.n_options = sizeof compare_options / sizeof *compare_options,
	.min_args = 2,
	.max_args = 2,
	.run = run_compare,
};
