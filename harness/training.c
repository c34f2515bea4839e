/* training.c: see training.h. */
#include "harness/training.h"

#include "harness/models.h"
#include "harness/run.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what can be trained: one line each ---- */

static const struct training_kind kinds[] = {
	{"proxykv", "mappers from a proxy's attention to KVzip's scores", true, true, "mapper", runner_collect_proxykv,
		runner_train_proxykv, "[{\"mapper\":\"linear\"},{\"mapper\":\"flat\"},{\"mapper\":\"axial\"}]"},
	{"selfkv", "mappers from the target's own attention to KVzip's scores", false, true, "mapper", runner_collect_selfkv,
		runner_train_selfkv, "[{\"mapper\":\"linear\"},{\"mapper\":\"flat\"}]"},
	{"head-prior", "the static level of each head, the control of trained methods", false, false, "mapper",
		runner_collect_head_prior, runner_train_head_prior, "[{}]"},
	{"lkv", "LKV: budgets of heads and utilities of entries, end to end", false, false, "lkv", runner_collect_lkv, runner_train_lkv,
		"[{}]"},
	{"lkv-global", "LKV's utilities under one threshold, end to end", false, false, "lkv", runner_collect_lkv,
		runner_train_lkv_global, "[{}]"},
	{"kv-mlp", "LKV's network regressed on KVzip's scores", false, false, "lkv", runner_collect_lkv, runner_train_kv_mlp, "[{}]"},
};

size_t training_kind_count(void)
{
	return sizeof kinds / sizeof *kinds;
}

const struct training_kind *training_kind_at(size_t i)
{
	return &kinds[i];
}

const struct training_kind *training_kind_find(const char *name, char err[ERR_LEN])
{
	struct strbuf list = {0};
	for (size_t i = 0; i < training_kind_count(); i++) {
		if (!strcmp(kinds[i].name, name)) {
			strbuf_free(&list);
			return &kinds[i];
		}
		strbuf_printf(&list, "%s%s", i ? ", " : "", kinds[i].name);
	}
	err_set(err, "there is nothing called \"%s\" to be trained; there are %s", name, list.text);
	strbuf_free(&list);
	return NULL;
}

/* ---- the plan's training object ---- */

static const char *const training_keys[] = {"seed", "contexts", "eval", "shards", "out", "features", "runs"};
enum { TRAINING_KEYS = sizeof training_keys / sizeof *training_keys };
enum { SEED_APART = 1000000 }; /* between the plan's seed and training's, unless the plan says */
enum { COUNT_MAX = 1000000000 };

static int check_keys(json_t *o, char err[ERR_LEN])
{
	const char *key;
	json_t *value;
	json_object_foreach(o, key, value)
	{
		bool known = false;
		for (int i = 0; i < TRAINING_KEYS; i++)
			known = known || !strcmp(key, training_keys[i]);
		const char *near = known ? NULL : name_nearest(key, training_keys, TRAINING_KEYS);
		if (!known)
			return err_set(err,
				"training: unknown key \"%s\"%s%s; there are seed, contexts, eval, shards, out, features, runs",
				key, near ? "; did you mean " : "", near ? near : "");
	}
	return 0;
}

static int take_runs(struct training *t, json_t *list, char err[ERR_LEN])
{
	json_t *one;
	size_t i;
	if (!json_is_array(list) || !json_array_size(list))
		return err_set(err, "training: runs wants a list of option objects, one for each file to train");
	json_array_foreach(list, i, one)
	{
		if (!json_is_object(one))
			return err_set(err, "training: runs: item %zu is no object of options", i);
		t->runs = mem_grow(t->runs, (size_t)t->n_runs + 1, sizeof *t->runs);
		t->runs[t->n_runs++] = json_dumps(one, JSON_COMPACT | JSON_SORT_KEYS);
	}
	return 0;
}

static int count_of(json_t *o, const char *key, int otherwise, int *out, char err[ERR_LEN])
{
	json_t *v = json_object_get(o, key);
	*out = v ? (int)json_integer_value(v) : otherwise;
	return v && (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > COUNT_MAX)
		       ? err_set(err, "training: %s wants a whole number from 0 to %d", key, COUNT_MAX)
		       : 0;
}

/* "results/shards-PLAN" */
static char *shards_default(const char *plan_path)
{
	const char *slash = strrchr(plan_path, '/'), *base = slash ? slash + 1 : plan_path, *dot = strrchr(base, '.');
	return text_format("results/shards-%.*s", (int)(dot ? dot - base : (long)strlen(base)), base);
}

/* NULL = not said. */
static int text_of(json_t *o, const char *key, const char **out, char err[ERR_LEN])
{
	json_t *v = json_object_get(o, key);
	*out = json_string_value(v);
	return v && !*out ? err_set(err, "training: %s wants text", key) : 0;
}

/* A list is every kind's; an object has one by kind. *own: this kind's, NULL = none. */
static int runs_of(const struct training_kind *kind, json_t *runs, json_t **own, char err[ERR_LEN])
{
	const char *name;
	json_t *value;
	*own = runs;
	if (!json_is_object(runs))
		return 0;
	*own = json_object_get(runs, kind->name);
	json_object_foreach(runs, name, value)
	{
		char why[ERR_LEN];
		if (!training_kind_find(name, why))
			return err_set(err, "training: runs: %.400s", why);
	}
	return 0;
}

static int take_training(struct training *t, json_t *o, const char *plan_path, const char *shards, char err[ERR_LEN])
{
	int seed;
	const char *own, *out, *features;
	json_t *chosen;
	if (check_keys(o, err) || text_of(o, "shards", &own, err) || text_of(o, "out", &out, err) ||
		text_of(o, "features", &features, err) || runs_of(t->kind, json_object_get(o, "runs"), &chosen, err) ||
		count_of(o, "contexts", 24, &t->contexts, err) || count_of(o, "eval", 6, &t->eval, err) ||
		count_of(o, "seed", t->plan.seed + (t->plan.seed > INT_MAX - SEED_APART ? -SEED_APART : SEED_APART), &seed, err))
		return -1;
	if (seed == t->plan.seed)
		return err_set(err, "training: seed %d is the plan's own: what is trained on would be evaluated on", seed);
	t->plan.seed = seed;
	t->plan.seed_given = true;
	char *folder = shards ? text_copy(shards) : own ? text_copy(own) : shards_default(plan_path);
	t->shards = text_format("%s/%s", folder, t->kind->family);
	free(folder);
	t->out = text_copy(out);
	t->features = text_copy(features);
	json_t *fallback = chosen ? NULL : json_loads(t->kind->runs, 0, NULL);
	int rc = take_runs(t, chosen ? chosen : fallback, err);
	json_decref(fallback);
	return rc;
}

static bool is_set(const struct options *o, const char *key)
{
	size_t n = strlen(key);
	for (int i = 0; i < o->n_given; i++)
		if (!strcmp(o->given[i].name, "set") && !strncmp(o->given[i].value, key, n) && o->given[i].value[n] == '=')
			return true;
	return false;
}

/* What a plan has for other kinds may stand there; said for this command alone it must be of use to one of those in args[0]. */
static int check_options(const struct options *o, char err[ERR_LEN])
{
	const char *proxy = option_has(o, "proxy_device")    ? "proxy-device"
			    : option_has(o, "proxy_threads") ? "proxy-threads"
							     : NULL;
	bool proxy_used = false, features_used = false;
	char *names = text_copy(o->args[0]), *rest = names, *name;
	while ((name = strsep(&rest, ",")))
		for (size_t i = 0; i < training_kind_count(); i++) {
			bool named = !strcmp(kinds[i].name, name);
			proxy_used = proxy_used || (named && kinds[i].needs_proxy);
			features_used = features_used || (named && kinds[i].features);
		}
	free(names);
	if (proxy && !proxy_used)
		return err_set(err, "--%s: %s needs no proxy", proxy, o->args[0]);
	if (is_set(o, "training.features") && !features_used)
		return err_set(err, "the plan's key training.features changes nothing here: no features for %s", o->args[0]);
	return 0;
}

int training_read(
	struct training *t, const struct training_kind *kind, const char *plan_path, const struct options *o, char err[ERR_LEN])
{
	int rc;
	*t = (struct training){.kind = kind, .progress = progress_open(option_has(o, "quiet"), STDERR_FILENO)};
	rc = check_options(o, err) || run_read_plan(&t->plan, o, plan_path, err) || plan_check_single(&t->plan, true, err)
		     ? -1
		     : 0;
	json_t *own = t->plan.training ? json_loads(t->plan.training, 0, NULL) : json_object();
	rc = rc ? rc : take_training(t, own, plan_path, option_text(o, "shards", NULL), err);
	json_decref(own);
	t->sweep = (struct sweep){.plan = &t->plan, .progress = &t->progress, .stop = run_stopped};
	return rc;
}

void training_free(struct training *t)
{
	training_close(t);
	for (int i = 0; i < t->n_runs; i++)
		free(t->runs[i]);
	free(t->runs);
	free(t->shards);
	free(t->out);
	free(t->features);
	sweep_free(&t->sweep);
	plan_free(&t->plan);
}

/* ---- the pair in hand ---- */

int training_open(struct training *t, int pair, char err[ERR_LEN])
{
	const struct plan *p = &t->plan;
	progress_where(&t->progress, p->pairs[pair].target);
	progress_phase(&t->progress, "load", 0, 1);
	struct runner_options o = sweep_runner_options(p, &p->pairs[pair], p->precisions.v[0]);
	if (!t->kind->needs_proxy) {
		o.proxy = o.proxy_device = NULL;
		o.proxy_threads = 0;
	}
	if (t->kind->needs_proxy && !p->pairs[pair].proxy)
		return err_set(err, "%s needs a pair: \"pairs\": [{\"target\": ..., \"proxy\": ...}] in the plan", t->kind->name);
	t->sweep.pair = &p->pairs[pair];
	t->sweep.precision = p->precisions.v[0];
	return models_open_told(&t->sweep.runner, &o, t->progress.quiet, err);
}

void training_close(struct training *t)
{
	runner_close(t->sweep.runner);
	t->sweep.runner = NULL;
}

/* ---- collecting ---- */

/* Every folder of a path. */
static int folders_make(const char *path, char err[ERR_LEN])
{
	char *copy = text_copy(path);
	int rc = 0;
	for (char *c = copy + 1; !rc; c++) {
		if (*c && *c != '/')
			continue;
		char held = *c;
		*c = 0;
		if (mkdir(copy, 0777) && errno != EEXIST)
			rc = err_set(err, "cannot make the folder %s: %s", copy, strerror(errno));
		if (!(*c = held))
			break;
	}
	free(copy);
	return rc;
}

static void on_progress(void *user, const char *phase, int64_t done, int64_t total)
{
	progress_phase(user, phase, done, total);
}

static bool on_stop(void *user)
{
	(void)user;
	return run_stopped();
}

/* Those that judge lie evenly among a task's contexts: half as many of both are a part of the same choice. */
static bool is_eval(const struct training *t, int i)
{
	const int64_t eval = t->eval, all = t->contexts + eval;
	return (i + 1) * eval / all > i * eval / all;
}

static int collect_context(
	struct training *t, const struct sweep_group *g, const struct task_context *c, int i, char err[ERR_LEN])
{
	struct sweep_job j;
	char name[128];
	bool present = false;
	sweep_job_make(&j, &t->sweep, g, c);
	j.job.n_variants = 0;
	j.job.user = &t->progress;
	j.job.progress = on_progress;
	j.job.stop = on_stop;
	sweep_group_name(g, name, sizeof name);
	char *id = text_format("%s %s", name, c->id);
	struct runner_collect rc = {.job = &j.job,
		.id = id,
		.split = is_eval(t, i) ? "eval" : "train",
		.folder = t->shards,
		.features = t->features,
		.made_by = "kvbench collect"};
	int status = t->kind->collect(t->sweep.runner, &rc, &present, err);
	t->present += !status && present;
	t->collected += !status && !present;
	free(id);
	sweep_job_free(&j);
	return status;
}

/* One task at one length. */
static int collect_group(struct training *t, const struct plan_task *task, double length, char err[ERR_LEN])
{
	struct plan_task asked = *task;
	asked.contexts = t->contexts + t->eval;
	struct sweep_group g = {.task = &asked, .length_tokens = (int64_t)length, .protocol = "agnostic"};
	struct task *open = NULL;
	char name[128];
	sweep_group_name(&g, name, sizeof name);
	progress_where(&t->progress, name);
	int rc = sweep_task_open(&t->sweep, &g, &open, err);
	for (int i = 0; !rc && i < task_count(open) && i < asked.contexts; i++) {
		struct task_context c;
		if ((rc = run_stopped() ? 1 : task_context_make(open, i, &c, err)))
			break;
		rc = collect_context(t, &g, &c, i, err);
		progress_add(&t->progress, sweep_context_tokens(&g, &c));
		task_context_free(&c);
	}
	task_close(open);
	return rc;
}

int training_collect(struct training *t, char err[ERR_LEN])
{
	const struct plan *p = &t->plan;
	int64_t tokens = 0;
	for (int i = 0; i < p->n_tasks; i++)
		for (int k = 0; k < p->tasks[i].lengths.n; k++)
			tokens += (int64_t)p->tasks[i].lengths.v[k] * (t->contexts + t->eval);
	if (folders_make(t->shards, err))
		return -1;
	progress_begin(&t->progress, 0, tokens);
	int rc = 0;
	for (int i = 0; i < p->n_tasks && !rc; i++)
		for (int k = 0; k < p->tasks[i].lengths.n && !rc; k++)
			rc = collect_group(t, &p->tasks[i], p->tasks[i].lengths.v[k], err);
	progress_end(&t->progress);
	return rc;
}
