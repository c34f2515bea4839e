/* calibrate.c: `kvbench calibrate kvzip-head|iam`: the static head table that kvzip@head reads, the head map of kvzip+iam; from seeded NIAH
 * contexts. */
#include "harness/models.h"
#include "harness/verbs.h"
#include "tasks/task.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t count_tokens(void *runner, const char *text, size_t len)
{
	return runner_count_tokens(runner, text, len);
}

static size_t cut_tokens(void *runner, const char *text, size_t len, int64_t n)
{
	return runner_cut_tokens(runner, text, len, n);
}

/* n texts of the multi-key task in the wording the model understands; the caller frees them. */
static int make_texts(struct runner *r, const struct options *o, char **texts, int n, char err[ERR_LEN])
{
	struct task_request rq = {.name = "niah-multikey",
		.contexts = n,
		.depth = NAN,
		.seed = (uint64_t)option_count(o, "seed", 1),
		.length_tokens = option_int(o, "length", 1, 1024),
		.count_tokens = count_tokens,
		.cut_tokens = cut_tokens,
		.user = r,
		.wording = !strcmp(runner_info(r)->chat_template, "tiny-pair") ? "tiny" : "plain"};
	struct task *task = NULL;
	int rc = task_open(&task, &rq, err);
	for (int i = 0; i < n && !rc; i++) {
		struct task_context c;
		rc = task_context_make(task, i, &c, err);
		if (rc)
			break;
		texts[i] = text_copy(c.text);
		task_context_free(&c);
	}
	task_close(task);
	return rc;
}

/* What can be calibrated: one line each. */
static const struct {
	const char *name;
	bool needs_proxy;
	int (*run)(struct runner *r, const char *const *contexts, int n, const char *folder, char **path, char err[ERR_LEN]);
} kinds[] = {{"kvzip-head", false, runner_calibrate_heads}, {"iam", true, runner_calibrate_iam}};

static int run_calibrate(const struct options *o)
{
	struct runner_options ro;
	struct runner *r = NULL;
	char err[ERR_LEN], *path = NULL;
	size_t kind = 0;
	while (kind < sizeof kinds / sizeof *kinds && strcmp(o->args[0], kinds[kind].name))
		kind++;
	if (kind == sizeof kinds / sizeof *kinds)
		die(EXIT_USAGE, "calibrate: there are kvzip-head and iam, not \"%s\"", o->args[0]);
	if (option_has(o, "proxy") != kinds[kind].needs_proxy)
		die(EXIT_USAGE, "calibrate: %s needs %s", kinds[kind].name,
			option_has(o, "proxy") ? "no proxy" : "--proxy MODEL");
	int n = option_int(o, "contexts", 1, 8);
	char **texts = mem_new((size_t)n, sizeof *texts);
	options_runner(o, &ro);
	int rc = models_open_told(&r, &ro, false, err) || make_texts(r, o, texts, n, err) ||
		 kinds[kind].run(r, (const char *const *)texts, n, option_text(o, "folder", NULL), &path, err);
	if (rc)
		fprintf(stderr, "kvbench calibrate: %s\n", err);
	else
		printf("%s\n", path);
	for (int i = 0; i < n; i++)
		free(texts[i]);
	free(texts);
	free(path);
	runner_close(r);
	return rc ? EXIT_CELLS_FAILED : EXIT_DONE;
}

static const struct option_def calibrate_options[] = {
	OPTIONS_MODEL,
	{"contexts", "N", "how many (default 8)"},
	{"length", "N", "tokens a context (default 1024)"},
	{"seed", "N", "of the texts (default 1)"},
	{"folder", "DIR", "where the table is written (default: where kvzip@head looks for it)"},
};
const struct verb verb_calibrate = {
	.name = "calibrate",
	.args = "KIND",
	.title = "make what kvzip@head (kvzip-head) or kvzip+iam (iam) needs; prints its path",
	.options = calibrate_options,
	.n_options = sizeof calibrate_options / sizeof *calibrate_options,
	.min_args = 1,
	.max_args = 1,
	.run = run_calibrate,
};
