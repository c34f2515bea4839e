/* continuation.c: `kvbench continue PLAN`: how the plan's texts go on from a cache that each method pruned, against the full
 * cache: the KL divergence of the next token's distribution over the text's own last tokens. For texts, where no question is
 * asked.
 *
 * A mean of every (method, ratio) over texts with its interval, and the paired difference to one method: stdout. --format csv
 * gives a row a text instead. Nothing goes to a database: a divergence is no score of an answer. */
#include "harness/models.h"
#include "harness/run.h"
#include "harness/sweep.h"
#include "harness/training.h"
#include "harness/verbs.h"
#include "results/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GIVEN = 64 };

/* What was measured: [variant][text]. */
struct measured {
	double *kl, *nll, *agree; /* [texts] NAN = failed */
	int n, failed;
	char why[ERR_LEN]; /* of the first that failed */
};
struct continuing {
	struct sweep sweep;
	struct plan plan;
	struct progress progress;
	struct measured *v; /* [plan.n_variants] */
	const char *text;   /* the id in hand */
	int tokens;
	bool rows; /* csv: told at once */
};

static bool on_stop(void *user)
{
	(void)user;
	return run_stopped();
}

static const char *method_name(const struct plan *p, int variant)
{
	return p->methods[p->variants[variant].method].name;
}

static void on_done(void *user, const struct runner_continuation *c)
{
	struct continuing *k = user;
	struct measured *m = &k->v[c->variant];
	if (c->status != ANSWER_OK && !m->failed++)
		snprintf(m->why, sizeof m->why, "%s", c->message);
	double **to[] = {&m->kl, &m->nll, &m->agree};
	const double value[] = {c->kl, c->nll, c->agree};
	for (int i = 0; i < 3; i++) {
		*to[i] = mem_grow(*to[i], (size_t)m->n + 1, sizeof **to[i]);
		(*to[i])[m->n] = value[i];
	}
	m->n++;
	if (k->rows)
		printf("%s,%s,%s,%g,%d,%d,%.9g,%.9g,%.9g\n", k->text, method_name(&k->plan, c->variant),
			c->status == ANSWER_OK ? "ok" : "failed", k->plan.variants[c->variant].retained, c->context_tokens,
			c->tokens, c->kl, c->nll, c->agree);
}

static int read_group(struct continuing *k, const struct sweep_group *g, char err[ERR_LEN])
{
	struct task *task = NULL;
	char name[128];
	int rc = sweep_task_open(&k->sweep, g, &task, err);
	sweep_group_name(g, name, sizeof name);
	progress_where(&k->progress, name);
	for (int i = 0; !rc && i < task_count(task); i++) {
		struct task_context c;
		struct sweep_job j;
		if ((rc = run_stopped() ? 1 : task_context_make(task, i, &c, err)))
			break;
		sweep_job_make(&j, &k->sweep, g, &c);
		j.job.user = k;
		j.job.stop = on_stop;
		j.job.progress = NULL;
		k->text = c.id;
		rc = runner_continue(k->sweep.runner, &j.job, k->tokens, on_done, err);
		progress_add(&k->progress, sweep_context_tokens(g, &c));
		sweep_job_free(&j);
		task_context_free(&c);
	}
	task_close(task);
	return rc;
}

static int read_all(struct continuing *k, char err[ERR_LEN])
{
	const struct plan *p = &k->plan;
	int rc = 0;
	for (int t = 0; t < p->n_tasks && !rc; t++)
		for (int l = 0; l < p->tasks[t].lengths.n && !rc; l++) {
			struct sweep_group g = {
				.task = &p->tasks[t], .length_tokens = (int64_t)p->tasks[t].lengths.v[l], .protocol = "agnostic"};
			rc = read_group(k, &g, err);
		}
	return rc;
}

/* ---- the table ---- */

/* Values of the texts on which both (b may be a itself) were measured. Returns how many. */
static int both(const struct measured *a, const double *x, const struct measured *b, double *left, double *right)
{
	int n = 0;
	for (int i = 0; i < a->n && i < b->n; i++)
		if (!isnan(x[i]) && !isnan(b->kl[i])) {
			left[n] = x[i];
			right[n++] = b->kl[i];
		}
	return n;
}

/* The variant of that method at the same ratio, or NULL. */
static const struct measured *rival_of(const struct continuing *k, int variant, const char *rival)
{
	for (int v = 0; v < k->plan.n_variants; v++)
		if (v != variant && !strcmp(method_name(&k->plan, v), rival) &&
			k->plan.variants[v].retained_ppm == k->plan.variants[variant].retained_ppm)
			return &k->v[v];
	return NULL;
}

/* One text alone has no interval. */
static const char *bounds_text(const struct interval *i, bool sign, char out[40])
{
	if (isnan(i->lo))
		snprintf(out, 40, "[-, -]");
	else
		snprintf(out, 40, sign ? "[%+.4f, %+.4f]" : "[%.4f, %.4f]", i->lo, i->hi);
	return out;
}

/* rival NULL: the plan has none. */
static void print_row(const struct continuing *k, int variant, const char *rival)
{
	const struct measured *m = &k->v[variant], *other = rival ? rival_of(k, variant, rival) : NULL;
	char bounds[40];
	double *x = mem_new((size_t)m->n + 1, sizeof *x), *y = mem_new((size_t)m->n + 1, sizeof *y);
	int *text = mem_new((size_t)m->n + 1, sizeof *text);
	for (int i = 0; i < m->n; i++)
		text[i] = i;
	int n = both(m, m->kl, m, x, y);
	struct interval kl = stats_bootstrap(x, n, 1);
	both(m, m->agree, m, x, y);
	double agree = stats_bootstrap(x, n, 1).mean;
	both(m, m->nll, m, x, y);
	printf("%-28s %6g %5d  %8.4f %s  %6.3f  %7.4f", method_name(&k->plan, variant), k->plan.variants[variant].retained, n,
		kl.mean, bounds_text(&kl, false, bounds), agree, stats_bootstrap(x, n, 1).mean);
	n = other ? both(m, m->kl, other, x, y) : 0;
	if (n) {
		struct paired d = stats_paired(y, x, text, n, 1);
		printf("  %+8.4f %s", d.change.mean, bounds_text(&d.change, true, bounds));
	}
	printf(m->failed ? "  %d failed: %s\n" : "\n", m->failed, m->why);
	free(x);
	free(y);
	free(text);
}

static void print_table(const struct continuing *k, const char *rival)
{
	printf("%-28s %6s %5s  %-27s  %6s  %7s%s%s\n", "method", "r", "texts", "KL to the full cache, nats", "agree", "nll",
		rival ? "  minus " : "", rival ? rival : "");
	for (int v = 0; v < k->plan.n_variants; v++)
		print_row(k, v, rival);
}

static void continuing_free(struct continuing *k)
{
	for (int v = 0; k->v && v < k->plan.n_variants; v++) {
		free(k->v[v].kl);
		free(k->v[v].nll);
		free(k->v[v].agree);
	}
	free(k->v);
	runner_close(k->sweep.runner);
	sweep_free(&k->sweep);
	plan_free(&k->plan);
}

static int open_first_pair(struct continuing *k, char err[ERR_LEN])
{
	const struct plan *p = &k->plan;
	const struct runner_options ro = sweep_runner_options(p, &p->pairs[0], p->precisions.v[0]);
	k->sweep = (struct sweep){.plan = p, .progress = &k->progress, .stop = run_stopped, .pair = &p->pairs[0]};
	k->v = mem_new((size_t)p->n_variants + 1, sizeof *k->v);
	return models_open_told(&k->sweep.runner, &ro, k->progress.quiet, err);
}

/* Reads the plan and what is asked of it. *rival: the method that the others are set against, NULL = the plan has none. */
static int read_wish(struct continuing *k, const struct options *o, const char **rival, char err[ERR_LEN])
{
	const char *format = option_text(o, "format", "text");
	bool found = false;
	*rival = option_text(o, "against", "kvzip");
	k->rows = !strcmp(format, "csv");
	k->tokens = option_int(o, "tokens", 1, GIVEN);
	if (!k->rows && strcmp(format, "text"))
		return err_set(err, "there is no format \"%s\"; there are text, csv", format);
	if (run_read_plan(&k->plan, o, o->args[0], err) || plan_check_single(&k->plan, false, err))
		return -1;
	for (int m = 0; m < k->plan.n_methods; m++)
		found = found || !strcmp(k->plan.methods[m].name, *rival);
	if (!found && option_has(o, "against"))
		return err_set(err, "--against %s: the plan has no such method", *rival);
	*rival = found ? *rival : NULL;
	return 0;
}

static int continue_run(const struct options *o)
{
	char err[ERR_LEN] = "";
	const char *rival;
	struct continuing k = {0};
	int failed = 0, rc = read_wish(&k, o, &rival, err) ? EXIT_USAGE : 0;
	k.progress = progress_open(option_has(o, "quiet"), 2);
	run_catch_signals();
	if (!rc) {
		int status = open_first_pair(&k, err);
		progress_begin(&k.progress, 0, 1);
		if (!status && k.rows)
			printf("text,method,status,retained,context_tokens,tokens,kl,nll,agree\n");
		status = status ? status : read_all(&k, err);
		rc = status == 1 ? EXIT_TRY_AGAIN : status ? EXIT_CELLS_FAILED : 0;
	}
	progress_end(&k.progress);
	if (!rc && !k.rows)
		print_table(&k, rival);
	for (int v = 0; !rc && v < k.plan.n_variants; v++)
		failed += k.v[v].failed;
	if (rc)
		fprintf(stderr, "kvbench continue: %s\n", *err ? err : "stopped");
	continuing_free(&k);
	return rc ? rc : failed ? EXIT_CELLS_FAILED : 0;
}

static const struct option_def continue_options[] = {
	{"tokens", "N", "how many of a text's last tokens are given (default 64)"},
	{"against", "METHOD", "whose KL the others' differences are to (default kvzip)"},
	{"format", "F", "text (default) or csv: a row for each text and variant"},
	{"set", "KEY=VALUE", "override a key, dotted for inner ones"},
	{"quiet", NULL, "no progress lines (-q)"},
};
/* Nothing is asked (so that no protocol applies), answered, timed, trained or stored. */
static const char *const unused_keys[] = {
	"title", "protocols", "timing", "training", "db", "report", "max_new_tokens", "tasks.max_new_tokens", NULL};
const struct verb verb_continue = {
	.name = "continue",
	.args = "PLAN",
	.title = "how texts go on from pruned caches: KL of the next token to the full cache's",
	.options = continue_options,
	.n_options = sizeof continue_options / sizeof *continue_options,
	.plan_keys = true,
	.unused_keys = unused_keys,
	.min_args = 1,
	.max_args = 1,
	.run = continue_run,
};
