/* scores.c: `kvbench scores PLAN`: writes the scores of one method over the plan's contexts, the ids they belong to and what is
 * kept at each ratio: what the scorer `scores` reads, and what a program of somebody else's starts from. */
#include "harness/models.h"
#include "harness/run.h"
#include "harness/training.h"
#include "harness/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool on_stop(void *user)
{
	(void)user;
	return run_stopped();
}

/* The first method after the controls, or the one that is wanted: a file holds one method's scores. */
static int method_of(const struct plan *p, const char *wanted, char err[ERR_LEN])
{
	for (int m = 0; m < p->n_methods; m++) {
		const char *name = p->methods[m].name;
		if (wanted ? !strcmp(name, wanted) : strcmp(name, "full") && strcmp(name, "random"))
			return runner_scores_check(name, p->methods[m].options, err) ? -1 : m;
	}
	return err_set(err, wanted ? "the plan has no method \"%s\"" : "the plan names no method to score with (%s)",
		wanted ? wanted : "methods");
}

static int score_context(struct sweep *s, const struct sweep_group *g, const struct task_context *c, int method,
	struct runner_scores *out, char err[ERR_LEN])
{
	struct sweep_job j;
	if (!strcmp(g->protocol, "aware") && c->n_questions > 1)
		return err_set(err,
			"%s has %d questions, and with the question in sight scores differ from one to the next: --set "
			"tasks.questions=1, or "
			"--protocols agnostic",
			c->id, c->n_questions);
	sweep_job_make(&j, s, g, c);
	struct runner_variant *chosen = mem_new((size_t)j.job.n_variants + 1, sizeof *chosen);
	int n = 0;
	for (int v = 0; v < j.job.n_variants; v++)
		if (s->plan->variants[v].method == method)
			chosen[n++] = j.variants[v];
	j.job.variants = chosen;
	j.job.n_variants = n;
	j.job.stop = on_stop;
	int rc = runner_scores_add(out, s->runner, &j.job, err);
	free(chosen);
	sweep_job_free(&j);
	return rc;
}

static int score_group(struct sweep *s, const struct sweep_group *g, int method, struct runner_scores *out, char err[ERR_LEN])
{
	struct task *task = NULL;
	int rc = sweep_task_open(s, g, &task, err);
	for (int i = 0; !rc && i < task_count(task); i++) {
		struct task_context c;
		if ((rc = run_stopped() ? 1 : task_context_make(task, i, &c, err)))
			break;
		rc = score_context(s, g, &c, method, out, err);
		progress_add(s->progress, sweep_context_tokens(g, &c));
		task_context_free(&c);
	}
	task_close(task);
	return rc;
}

static int score_all(struct sweep *s, const char *path, int method, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	struct runner_scores *out = runner_scores_new();
	int rc = 0;
	for (int t = 0; t < p->n_tasks && !rc; t++)
		for (int k = 0; k < p->tasks[t].lengths.n && !rc; k++) {
			struct sweep_group g = {.task = &p->tasks[t],
				.length_tokens = (int64_t)p->tasks[t].lengths.v[k],
				.protocol = p->protocols.v[0]};
			char name[128];
			sweep_group_name(&g, name, sizeof name);
			progress_where(s->progress, name);
			rc = score_group(s, &g, method, out, err);
		}
	rc = rc ? rc : runner_scores_write(out, s->runner, path, "kvbench scores", err);
	runner_scores_free(out);
	return rc;
}

/* A file has one set of scores for each context. */
static int check_protocol(const struct plan *p, char err[ERR_LEN])
{
	if (p->protocols.n > 1)
		return err_set(err, "the plan has %d protocols, a file of scores is made under one: --protocols agnostic",
			p->protocols.n);
	return 0;
}

static int scores(const struct options *o)
{
	char err[ERR_LEN] = "";
	struct plan p;
	int method = -1, rc = run_read_plan(&p, o, o->args[0], err) ? EXIT_USAGE : 0;
	struct progress progress = progress_open(option_has(o, "quiet"), 2);
	struct sweep s = {.plan = &p, .progress = &progress, .stop = run_stopped};
	char *path = text_format("%s", option_text(o, "out", "results/scores.safetensors"));
	options_check_out(o);
	run_catch_signals();
	if (!rc && (plan_check_single(&p, false, err) || check_protocol(&p, err) ||
			   (method = method_of(&p, option_text(o, "method", NULL), err)) < 0))
		rc = EXIT_USAGE;
	if (!rc) {
		struct runner_options ro = sweep_runner_options(&p, &p.pairs[0], p.precisions.v[0]);
		s.pair = &p.pairs[0];
		int status = models_open_told(&s.runner, &ro, progress.quiet, err);
		progress_begin(&progress, 0, 1);
		status = status ? status : score_all(&s, path, method, err);
		rc = status == 1 ? EXIT_TRY_AGAIN : status ? EXIT_CELLS_FAILED : 0;
	}
	progress_end(&progress);
	if (rc)
		fprintf(stderr, "kvbench scores: %s\n", *err ? err : "stopped");
	else
		printf("%s\n", path);
	runner_close(s.runner);
	sweep_free(&s);
	free(path);
	plan_free(&p);
	return rc;
}

static const struct option_def scores_options[] = {
	{"method", "NAME", "which of the plan's methods (default: the first that is no control)"},
	{"out", "FILE", "default results/scores.safetensors"},
	{"set", "KEY=VALUE", "override a key, dotted for inner ones"},
	{"quiet", NULL, "no progress lines (-q)"},
};
/* Nothing is answered, timed, trained or stored. */
static const char *const unused_keys[] = {
	"title", "timing", "training", "db", "report", "max_new_tokens", "tasks.max_new_tokens", NULL};
const struct verb verb_scores = {
	.name = "scores",
	.args = "PLAN",
	.title = "write a method's scores and kept lists of the plan's contexts (safetensors, keyed by context)",
	.options = scores_options,
	.n_options = sizeof scores_options / sizeof *scores_options,
	.plan_keys = true,
	.unused_keys = unused_keys,
	.min_args = 1,
	.max_args = 1,
	.run = scores,
};
