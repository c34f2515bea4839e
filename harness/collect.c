/* collect.c: `kvbench collect KIND PLAN`: runs the models over a plan's training contexts and writes what training needs of each.
 * The same command again writes only what is missing. */
#include "harness/run.h"
#include "harness/training.h"
#include "harness/verbs.h"

#include <stdio.h>
#include <string.h>

static int check_counts(const struct training *t, char err[ERR_LEN])
{
	return t->contexts + t->eval ? 0 : err_set(err, "training: contexts and eval are both 0: there is nothing to collect");
}

static int collect(const struct options *o)
{
	char err[ERR_LEN] = "";
	struct training t = {0};
	const struct training_kind *kind = training_kind_find(o->args[0], err);
	int rc = kind && !training_read(&t, kind, o->args[1], o, err) && !check_counts(&t, err) ? 0 : EXIT_USAGE;
	run_catch_signals();
	for (int i = 0; !rc && i < t.plan.n_pairs; i++) {
		int status = training_open(&t, i, err);
		status = status ? status : training_collect(&t, err);
		rc = status == 1 ? EXIT_TRY_AGAIN : status ? EXIT_CELLS_FAILED : 0;
		training_close(&t);
	}
	progress_end(&t.progress);
	if (t.shards && rc != EXIT_USAGE)
		fprintf(stderr, "%d shards written, %d were there, in %s\n", t.collected, t.present, t.shards);
	if (rc && *err)
		fprintf(stderr, "kvbench collect: %s\n", err);
	if (!rc)
		printf("%s\n", t.shards);
	training_free(&t);
	return rc;
}

static const struct option_def collect_options[] = {OPTIONS_TRAINING};
/* What is measured, and where rows go: nothing is. Contexts are counted by training.contexts and training.eval. */
static const char *const unused_keys[] = {"title", "methods", "retained", "protocols", "timing", "db", "report", "tasks.contexts",
	"training.out", "training.runs", NULL};
const struct verb verb_collect = {
	.name = "collect",
	.args = "KIND PLAN",
	.title = "write the shards that training needs (proxykv, selfkv, head-prior, ...); prints their folder",
	.options = collect_options,
	.n_options = sizeof collect_options / sizeof *collect_options,
	.plan_keys = true,
	.unused_keys = unused_keys,
	.min_args = 2,
	.max_args = 2,
	.run = collect,
};
