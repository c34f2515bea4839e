/* train.c: `kvbench train KIND PLAN`: collects what is missing, trains every file of the plan's training object, prints how good
 * each is beside its floor. Curves go to the plan's database, one row a step and term. */
#include "harness/database.h"
#include "harness/environment.h"
#include "harness/run.h"
#include "harness/training.h"
#include "harness/verbs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMIT_NS = 1000000000 }; /* steps wait for each other so long */

/* What the runner's callbacks need. */
struct curves {
	struct store *store;
	struct training *training;
	char env_id[SHA_LEN], id[33], fault[ERR_LEN];
	double ceiling; /* printed last; 0 = none yet */
	bool begun, in_batch;
	int64_t since;
};

static void on_begin(void *user, const struct runner_training *t)
{
	struct curves *c = user;
	struct store_training row = {.kind = c->training->kind->name,
		.name = t->name,
		.config = t->config,
		.seed = t->seed,
		.env_id = c->env_id,
		.target_sha256 = t->target_sha256,
		.proxy_sha256 = *t->proxy_sha256 ? t->proxy_sha256 : NULL,
		.contexts = t->contexts};
	c->begun = !*c->fault && !store_training_begin(c->store, &row, c->id, c->fault);
	progress_where(&c->training->progress, t->name);
}

static void commit(struct curves *c)
{
	if (c->in_batch && store_commit(c->store, *c->fault ? NULL : c->fault))
		c->begun = false;
	c->in_batch = false;
}

static void on_value(void *user, int64_t step, const char *term, double value)
{
	struct curves *c = user;
	if (!c->begun || *c->fault)
		return;
	if (!c->in_batch) {
		if (store_begin(c->store, c->fault))
			return;
		c->in_batch = true;
		c->since = clock_ns();
	}
	store_training_step(c->store, c->id, step, term, value, c->fault);
	if (clock_ns() - c->since >= COMMIT_NS)
		commit(c);
}

static void on_progress(void *user, const char *phase, int64_t done, int64_t total)
{
	struct progress *p = &((struct curves *)user)->training->progress;
	p->total_tokens = total; /* time left comes from steps here */
	p->done_tokens = done;
	progress_phase(p, phase, done, total);
}

static bool on_stop(void *user)
{
	return run_stopped() || *((struct curves *)user)->fault;
}

static int open_store(struct curves *c, const struct plan *p, char err[ERR_LEN])
{
	struct environment e;
	int code = database_open(&c->store, p->db, err);
	environment_read(&e, p->device, p->threads, p->isa);
	return code ? code : store_put_env(c->store, &e.row, c->env_id, err) ? EXIT_CELLS_FAILED : 0;
}

static void print_header(void)
{
	printf("%-28s %9s %6s %6s  recall of the best r, all heads together (floor: head prior)     inside each head\n%-28s %9s "
	       "%6s %6s ",
		"file", "weights", "train", "eval", "", "", "", "");
	for (int i = 0; i < TRAINED_RATIOS; i++)
		printf(" %11s", (const char *[]){"r .1", ".2", ".3", ".5", ".7"}[i]);
	printf("  %5s %5s\n", ".1", ".3");
}

/* The ceiling of what was just printed, once for all files judged on the same contexts. */
static void print_ceiling(struct curves *c, const struct runner_trained *t)
{
	if (isnan(t->ceiling[0]) || t->ceiling[0] == c->ceiling)
		return;
	c->ceiling = t->ceiling[0];
	printf("%-28s %24s", "  the oracle, other chunks", "");
	for (int i = 0; i < TRAINED_RATIOS; i++)
		printf("  %.3f      ", t->ceiling[i]);
	printf("\n");
}

static void print_trained(struct curves *c, const struct runner_trained *t)
{
	printf("%-28s %9lld %6d %6d ", t->kind, (long long)t->parameters, t->contexts, t->eval_contexts);
	for (int i = 0; i < TRAINED_RATIOS; i++) {
		if (isnan(t->recall[i]))
			printf(" %11s", "-");
		else
			printf("  %.3f(%.2f)", t->recall[i], t->floor[i]);
	}
	printf(isnan(t->head_recall[0]) ? "      -     -\n" : "  %.3f %.3f\n", t->head_recall[0], t->head_recall[2]);
	printf("  %s  sha256 %.16s  %.1f s, %d steps\n", t->path, t->sha256, (double)t->train_ns / 1e9, t->steps);
	print_ceiling(c, t);
	fflush(stdout);
}

/* One file. 0, 1 stopped, -1 + err. */
static int train_one(struct curves *c, const char *options, const char *made_by, char err[ERR_LEN])
{
	struct training *t = c->training;
	struct runner_train rt = {.folder = t->shards,
		.options = options,
		.out_folder = t->out,
		.made_by = made_by,
		.user = c,
		.begin = on_begin,
		.value = on_value,
		.progress = on_progress,
		.stop = on_stop};
	struct runner_trained out = {0};
	c->begun = false;
	progress_begin(&t->progress, 0, 1);
	int rc = t->kind->train(t->sweep.runner, &rt, &out, err);
	progress_end(&t->progress);
	commit(c);
	if (!rc && *c->fault)
		rc = err_set(err, "%s", c->fault);
	if (!rc && c->begun)
		rc = store_training_end(c->store, c->id, out.path, out.sha256, err);
	if (!rc)
		print_trained(c, &out);
	runner_trained_free(&out);
	return rc;
}

/* Collects and trains for one pair of the plan. */
static int train_pair(struct curves *c, int pair, const char *made_by, char err[ERR_LEN])
{
	struct training *t = c->training;
	int rc = training_open(t, pair, err);
	rc = rc ? rc : training_collect(t, err);
	for (int i = 0; i < t->n_runs && !rc; i++)
		rc = train_one(c, t->runs[i], made_by, err);
	training_close(t);
	return rc;
}

/* Everything of one kind; the table's head stands over the first one's rows. An exit code. */
static int train_kind(const char *name, bool first, const struct options *o)
{
	char err[ERR_LEN] = "", *made_by = text_format("kvbench train %s %s", name, o->args[1]);
	struct training t = {0};
	struct curves c = {.training = &t};
	const struct training_kind *kind = training_kind_find(name, err);
	int code = kind && !training_read(&t, kind, o->args[1], o, err) ? 0 : EXIT_USAGE;
	if (!code && option_has(o, "out")) {
		free(t.out);
		t.out = text_copy(option_text(o, "out", NULL));
	}
	code = code ? code : open_store(&c, &t.plan, err);
	if (!code && first)
		print_header();
	for (int i = 0; !code && i < t.plan.n_pairs; i++) {
		int rc = train_pair(&c, i, made_by, err);
		code = rc == 1 ? EXIT_TRY_AGAIN : rc ? EXIT_CELLS_FAILED : 0;
	}
	progress_end(&t.progress);
	if (code && *err)
		fprintf(stderr, "kvbench train: %s\n", err);
	store_close(c.store);
	training_free(&t);
	free(made_by);
	return code;
}

static int train(const struct options *o)
{
	char *names = text_copy(o->args[0]), *rest = names, *name;
	int code = EXIT_DONE;
	run_catch_signals();
	while (!code && (name = strsep(&rest, ",")))
		code = train_kind(name, name == names, o);
	free(names);
	return code;
}

static const struct option_def train_options[] = {
	OPTIONS_TRAINING,
	{"out", "DIR", "where trained files are written (default: training.out, or where methods look for them)"},
};
/* What is measured, and a report of it: nothing is. Contexts are counted by training.contexts and training.eval. */
static const char *const unused_keys[] = {
	"title", "methods", "retained", "protocols", "timing", "report", "tasks.contexts", NULL};
const struct verb verb_train = {
	.name = "train",
	.args = "KIND[,KIND] PLAN",
	.title = "train a method's weights for the plan's models (proxykv, selfkv, head-prior, ...)",
	.help = "Shards that are missing are collected first. The plan's \"training\" object: seed, contexts and eval (of each "
		"task and length),\n"
		"shards, out, features (\"all,stride:4,last:64\"), runs (a list of option objects, one file each: {\"mapper\": "
		"\"flat\", \"layers\": 6};\n"
		"with several kinds an object of such lists by kind).\n",
	.options = train_options,
	.n_options = sizeof train_options / sizeof *train_options,
	.plan_keys = true,
	.unused_keys = unused_keys,
	.min_args = 2,
	.max_args = 2,
	.run = train,
};
