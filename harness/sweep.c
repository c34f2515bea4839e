/* sweep.c: see sweep.h. Reads bottom up: sweep_run, a load, its planning, a group. One context is in context.c. */
#include "harness/sweep.h"

#include "harness/models.h"
#include "harness/task_data.h"
#include "harness/timing.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- small words ---- */

const char *sweep_status_name(enum runner_status status)
{
	static const char *const names[] = {
		[ANSWER_OK] = "ok", [ANSWER_FAILED] = "failed", [ANSWER_OOM] = "oom", [ANSWER_NOT_APPLICABLE] = "not-applicable"};
	return names[status];
}

void sweep_group_name(const struct sweep_group *g, char *out, size_t size)
{
	char length[32] = "";
	if (g->length_tokens)
		snprintf(length, sizeof length, " %lld", (long long)g->length_tokens);
	snprintf(out, size, "%s%s%s%s %s", g->task->name, length, g->task->mode ? " " : "", g->task->mode ? g->task->mode : "",
		g->protocol);
}

void sweep_note(struct sweep *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char line[ERR_LEN + 256];
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	strbuf_printf(&s->sum.notes, "%s\n", line);
}

bool sweep_failed(const struct sweep_summary *sum)
{
	return sum->failed || sum->oom || sum->loads_failed || sum->contexts_failed || sum->timings_failed ||
	       sum->not_equal_to_full;
}

/* Most groups a load can have. */
static int sweep_group_limit(const struct plan *p)
{
	int n = 0;
	for (int t = 0; t < p->n_tasks; t++)
		n += p->tasks[t].lengths.n * p->protocols.n;
	return n;
}

/* ---- tasks ---- */

static int64_t count_tokens(void *runner, const char *text, size_t len)
{
	return runner_count_tokens(runner, text, len);
}

static size_t cut_tokens(void *runner, const char *text, size_t len, int64_t n)
{
	return runner_cut_tokens(runner, text, len, n);
}

static bool has_wordings(const char *task)
{
	for (size_t i = 0; i < task_def_count(); i++) {
		if (!strcmp(task_def_at(i)->name, task))
			return strstr(task_def_at(i)->parameters, "wording") != NULL;
	}
	return false;
}

/* As the plan says, else where `kvbench fetch` puts the task's data. NULL = no data. Caller frees. */
static char *data_path(const struct plan_task *t)
{
	return t->path ? text_copy(t->path) : task_data_path(t->name, t->generator);
}

/* 0: the task's own, which is what RULER's upstream rows are known by. */
static uint64_t seed(const struct sweep *s, const struct plan_task *t)
{
	bool upstream = t->generator ? !strcmp(t->generator, "upstream") : !strncmp(t->name, "ruler-", 6) && t->path;
	return s->plan->seed_given || !upstream ? (uint64_t)s->plan->seed : 0;
}

/* The wording the model understands, unless the plan says: the tiny pair speaks one dialect only. */
static const char *wording(const struct sweep *s, const struct plan_task *t)
{
	if (t->wording || !has_wordings(t->name))
		return t->wording;
	return !strcmp(runner_info(s->runner)->chat_template, "tiny-pair") ? "tiny" : "plain";
}

int sweep_task_open(struct sweep *s, const struct sweep_group *g, struct task **out, char err[ERR_LEN])
{
	const struct plan_task *t = g->task;
	bool raw = !strcmp(runner_info(s->runner)->chat_template, "raw");
	struct runner_overhead around = runner_overhead(s->runner, !raw, NULL);
	char *path = data_path(t);
	struct task_request rq = {
		.name = t->name,
		.path = path,
		.templates = t->templates,
		.truncate = t->truncate,
		.drops_ids = true,
		.special_tokens = around.special,
		.generator = t->generator,
		.release = t->release,
		.mode = t->mode,
		.raw_prompt = raw,
		.head_tokens = around.head,
		.tail_tokens = around.tail,
		.wording = wording(s, t),
		.length_tokens = g->length_tokens,
		.contexts = t->contexts,
		.questions = t->questions,
		.needles = t->needles,
		.values = t->values,
		.queries = t->queries,
		.depth = t->depth,
		.seed = seed(s, t),
		.max_new_tokens = t->max_new_tokens ? t->max_new_tokens : s->plan->max_new_tokens,
		.count_tokens = count_tokens,
		.cut_tokens = cut_tokens,
		.user = s->runner,
	};
	int rc = task_open(out, &rq, err);
	if (rc && !t->path && path)
		task_data_hint(t->name, err);
	free(path);
	return rc;
}

/* What the plan asked of the task and could change an answer: part of the cell's identity. Paths are not: the hashes of data and
 * prompts are; nor mode, generator and release: the task says itself what they came to. */
static char *task_params(const struct sweep *s, const struct plan_task *t)
{
	json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "contexts", t->contexts, "questions", t->questions, "needles",
		t->needles, "values", t->values, "queries", t->queries, "max_new_tokens",
		t->max_new_tokens ? t->max_new_tokens : s->plan->max_new_tokens);
	if (wording(s, t))
		json_object_set_new(o, "wording", json_string(wording(s, t)));
	if (t->truncate)
		json_object_set_new(o, "truncate", json_string(t->truncate));
	if (!isnan(t->depth))
		json_object_set_new(o, "depth", json_real(t->depth));
	char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(o);
	return text;
}

/* ---- a group: its contexts one after another ---- */

static int group_run(struct sweep *s, struct sweep_group *g)
{
	char name[128], err[ERR_LEN];
	struct task *task = NULL;
	sweep_group_name(g, name, sizeof name);
	progress_where(s->progress, name);
	int rc = 0;
	if (g->missing.answers && sweep_task_open(s, g, &task, err)) {
		sweep_note(s, "%s: %s", name, err);
		s->sum.contexts_failed++;
	}
	for (int i = 0; task && i < g->contexts && !rc; i++) {
		struct task_context c;
		if (task_context_make(task, i, &c, err)) {
			sweep_note(s, "%s: context %d: %s", name, i, err);
			rc = sweep_context_failed(s, g, i, err);
			continue;
		}
		rc = s->stop() ? 1 : sweep_context_run(s, g, &c);
		task_context_free(&c);
	}
	task_close(task);
	if (!rc)
		progress_cells(s->progress, s->plan->n_variants);
	return rc;
}

/* ---- planning a load: every cell is in the store before the first is measured, so that `status` knows what is to come ---- */

static const char *method_origin(const char *name)
{
	for (size_t i = 0; i < runner_method_count(); i++) {
		struct runner_method_info m = runner_method_at(i);
		if (!strcmp(m.name, name))
			return m.origin;
	}
	return "";
}

static int put_group_cells(struct sweep *s, struct sweep_group *g, const char *task_id, const char *mode, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	for (int v = 0; v < p->n_variants; v++) {
		const struct plan_method *m = &p->methods[p->variants[v].method];
		char method_id[SHA_LEN], *params = NULL;
		if (runner_method_params(s->runner, m->name, m->options, &params, err))
			return -1;
		struct store_method method = {
			.name = m->name, .params = params, .origin = method_origin(m->name), .version = 1};
		int rc = store_put_method(s->store, &method, method_id, err);
		free(params);
		if (rc)
			return -1;
		struct store_cell cell = {.target_id = s->target_id,
			.proxy_id = *s->proxy_id ? s->proxy_id : NULL,
			.method_id = method_id,
			.task_id = task_id,
			.retained_ppm = p->variants[v].retained_ppm,
			.context_tokens = g->length_tokens,
			.protocol = g->protocol,
			.mode = mode ? mode : "single",
			.topology = runner_info(s->runner)->topology,
			.precision = s->precision,
			.seed = seed(s, g->task),
			.measure_version = MEASURE_VERSION,
			.samples_planned = g->samples};
		if (store_put_cell(s->store, &cell, g->cell_ids[v], err))
			return -1;
	}
	return 0;
}

static int put_cells(struct sweep *s, struct sweep_group *g, struct task *task, char err[ERR_LEN])
{
	struct task_identity id;
	task_identity(task, &id);
	const struct metric_def *m = metric_find(id.metric);
	char *params = task_params(s, g->task), *path = data_path(g->task), task_id[SHA_LEN];
	struct store_task row = {.name = id.name,
		.metric = id.metric,
		.data_sha256 = id.data_sha256,
		.template_sha256 = id.template_sha256,
		.params = params,
		.variant = id.variant,
		.data_state = task_data_state(id.name, path),
		.version = id.version,
		.binary_metric = m && m->binary};
	g->cell_ids = mem_new((size_t)s->plan->n_variants, sizeof *g->cell_ids);
	int rc = store_begin(s->store, err);
	if (!rc) {
		rc = store_put_task(s->store, &row, task_id, err);
		rc = rc ? rc : put_group_cells(s, g, task_id, id.mode, err);
		rc = store_commit(s->store, rc ? NULL : err) ? -1 : rc;
	}
	free(params);
	free(path);
	return rc;
}

/* The names of a group's samples, to see that they differ: a second one of the same name would never be stored. */
struct sample_names {
	char **v;
	size_t n;
};

static void names_add(struct sample_names *a, const struct task_context *c)
{
	a->v = mem_grow(a->v, a->n + (size_t)c->n_questions, sizeof *a->v);
	for (int q = 0; q < c->n_questions; q++)
		a->v[a->n++] = text_copy(c->questions[q].id);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Frees the names; -1 when two are equal. */
static int names_check(struct sample_names *a, char err[ERR_LEN])
{
	int rc = 0;
	if (a->n)
		qsort(a->v, a->n, sizeof *a->v, by_name);
	for (size_t i = 1; i < a->n && !rc; i++)
		if (!strcmp(a->v[i - 1], a->v[i]))
			rc = err_set(err, "two samples are called %s: give the rows ids of their own", a->v[i]);
	for (size_t i = 0; i < a->n; i++)
		free(a->v[i]);
	free(a->v);
	return rc;
}

enum { LEFT_OUT = -2 }; /* beside SWEEP_*: what cannot be had is noted, and the next is tried */

/* Makes every context once: first to count samples, which the cells record, then to see which of them the store lacks. One that
 * cannot be made counts as one sample. SWEEP_DONE, SWEEP_STOPPED, LEFT_OUT + err: none can, or two samples have one name. */
static int group_count(struct sweep *s, struct sweep_group *g, struct task *task, bool samples, char err[ERR_LEN])
{
	int failed = 0;
	struct sample_names names = {0};
	bool stopped = false;
	for (int i = 0; i < g->contexts && !(stopped = s->stop()); i++) {
		struct task_context c;
		char why[ERR_LEN];
		progress_phase(s->progress, "plan", i, g->contexts);
		if (task_context_make(task, i, &c, why)) {
			g->samples += samples;
			g->missing.answers += samples ? 0 : s->plan->n_variants;
			failed++;
			if (failed == g->contexts)
				return err_set(err, "%s", why), LEFT_OUT;
			continue;
		}
		if (samples) {
			g->samples += c.n_questions;
			names_add(&names, &c);
		} else
			sweep_find_missing(s, g, &c, NULL, &g->missing);
		int64_t tokens = sweep_context_tokens(g, &c);
		g->longest_tokens = tokens > g->longest_tokens ? tokens : g->longest_tokens;
		task_context_free(&c);
	}
	int rc = names_check(&names, err) ? LEFT_OUT : SWEEP_DONE;
	return stopped ? SWEEP_STOPPED : rc;
}

/* SWEEP_DONE, SWEEP_STOPPED, LEFT_OUT, -1 the store failed. */
static int group_plan(struct sweep *s, struct sweep_group *g, char err[ERR_LEN])
{
	char name[128], why[ERR_LEN] = "";
	struct task *task = NULL;
	sweep_group_name(g, name, sizeof name);
	progress_where(s->progress, name);
	int rc = sweep_task_open(s, g, &task, why) ? LEFT_OUT : SWEEP_DONE;
	g->contexts = rc ? 0 : task_count(task);
	rc = rc ? rc : group_count(s, g, task, true, why);
	rc = rc ? rc : put_cells(s, g, task, err);
	rc = rc ? rc : group_count(s, g, task, false, why);
	task_close(task);
	if (rc == LEFT_OUT) {
		sweep_note(s, "%s: %s", name, why);
		s->sum.contexts_failed++;
	}
	if (rc)
		free(g->cell_ids);
	return rc;
}

/* All groups of the load, in plan order. */
static int load_plan(struct sweep *s, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	s->groups = mem_new((size_t)sweep_group_limit(p), sizeof *s->groups);
	for (int t = 0; t < p->n_tasks; t++) {
		for (int k = 0; k < p->tasks[t].lengths.n * p->protocols.n; k++) {
			struct sweep_group *g = &s->groups[s->n_groups];
			*g = (struct sweep_group){.task = &p->tasks[t],
				.length_tokens = (int64_t)p->tasks[t].lengths.v[k / p->protocols.n],
				.protocol = p->protocols.v[k % p->protocols.n]};
			int rc = group_plan(s, g, err);
			if (rc && rc != LEFT_OUT)
				return rc;
			s->n_groups += !rc;
			s->sum.cells += rc ? 0 : p->n_variants;
			s->sum.samples += rc ? 0 : g->samples * p->n_variants;
			s->sum.missing += rc ? 0 : g->missing.answers;
		}
	}
	return 0;
}

/* ---- a load: one pair at one precision ---- */

static int put_model(struct sweep *s, const char *role, char id[SHA_LEN], char err[ERR_LEN])
{
	const struct runner_info *i = runner_info(s->runner);
	if (!strcmp(role, "target")) {
		char *name = models_name(s->pair->target, s->runner);
		int rc = store_put_model(s->store,
			&(struct store_model){role, name, i->path, i->arch, i->dtype, i->model_sha256, i->tokenizer_sha256,
				i->chat_template, i->template_sha256, i->params, i->kv_bytes_per_token, i->layers, i->kv_heads,
				i->head_dim},
			id, err);
		free(name);
		return rc;
	}
	return store_put_model(s->store,
		&(struct store_model){.role = role,
			.name = i->proxy_name,
			.path = i->proxy_path,
			.arch = i->proxy_arch,
			.dtype = i->dtype,
			.sha256 = i->proxy_sha256,
			.tokenizer_sha256 = i->tokenizer_sha256,
			.chat_template = "",
			.template_sha256 = "",
			.params = i->proxy_params,
			.kv_bytes_per_token = i->proxy_kv_bytes_per_token,
			.layers = i->proxy_layers,
			.kv_heads = i->proxy_kv_heads,
			.head_dim = i->proxy_head_dim},
		id, err);
}

struct runner_options sweep_runner_options(const struct plan *p, const struct plan_pair *pair, const char *precision)
{
	return (struct runner_options){.target = pair->target,
		.proxy = pair->proxy,
		.models_dir = p->models,
		.device = p->device ? p->device : "auto",
		.proxy_device = pair->proxy ? p->proxy_device : NULL,
		.proxy_threads = pair->proxy ? p->proxy_threads : 0,
		.kv_offload = p->kv_offload,
		.precision = precision,
		.attention = p->attention,
		.isa = p->isa,
		.threads = p->threads,
		.memory_bytes = p->memory_bytes,
		.allow_long = p->allow_long,
		.chat_template = p->chat_template};
}

static int load_open(struct sweep *s, const struct plan_pair *pair, const char *precision, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	s->precision = precision;
	s->pair = pair;
	progress_where(s->progress, pair->target);
	progress_phase(s->progress, "load", 0, 1);
	struct runner_options o = sweep_runner_options(p, pair, precision);
	o.names_if_lost = true;
	return models_open(&s->runner, &o, err);
}

static void load_close(struct sweep *s)
{
	for (int g = 0; g < s->n_groups; g++)
		free(s->groups[g].cell_ids);
	free(s->groups);
	s->groups = NULL;
	s->n_groups = 0;
	runner_close(s->runner);
	s->runner = NULL;
	*s->target_id = *s->proxy_id = *s->load_fault = 0;
}

/* ---- the whole ---- */

void sweep_print_memory(const struct sweep *s, FILE *to)
{
	const struct plan *p = s->plan;
	struct runner_variant *v = mem_new((size_t)p->n_variants, sizeof *v);
	int64_t longest = 0;
	for (int g = 0; g < s->n_groups; g++)
		longest = s->groups[g].longest_tokens > longest ? s->groups[g].longest_tokens : longest;
	for (int i = 0; i < p->n_variants; i++) {
		const struct plan_method *m = &p->methods[p->variants[i].method];
		v[i] = (struct runner_variant){m->name, p->variants[i].retained, m->options};
	}
	struct runner_estimate e = runner_estimate(s->runner, longest, v, p->n_variants, 1, 32);
	fprintf(to, "  longest context %lld tokens: KV cache %.1f MB, in all about %.1f MB of %.1f MB allowed\n", (long long)longest,
		(double)e.kv_bytes / 1e6, (double)e.total_bytes / 1e6, (double)e.limit_bytes / 1e6);
	if (e.total_bytes > e.limit_bytes)
		fprintf(to, "  ! more than is allowed: contexts that do not fit become rows \"out of memory\"\n");
	int64_t trained = runner_info(s->runner)->max_positions;
	if (trained && longest > trained && !p->allow_long)
		fprintf(to, "  ! the model was made for %lld tokens: longer prompts become failed rows; --allow-long runs them all the same, flagged\n",
			(long long)trained);
	free(v);
}

/* The device was lost while the model was loaded: what its cells lack becomes failed rows; another process goes on. */
static int load_fail(struct sweep *s, char err[ERR_LEN])
{
	struct lost_load load = {.load = s->load};
	progress_begin(s->progress, s->n_groups * s->plan->n_variants, 0);
	for (int g = 0; g < s->n_groups; g++) {
		int rc = group_run(s, &s->groups[g]);
		if (rc)
			return rc < 0 ? err_set(err, "%s", s->fault) : rc;
		load.cells += s->plan->n_variants;
		load.samples += s->groups[g].samples * s->plan->n_variants;
	}
	progress_end(s->progress);
	char *name = text_format("loading %s (%s)", s->pair->target, s->precision);
	snprintf(s->lost.device, sizeof s->lost.device, "%s", runner_info(s->runner)->device);
	lost_loading(&s->lost, &load, name, runner_lost(s->runner));
	free(name);
	return *s->lost.why ? SWEEP_GIVEN_UP : SWEEP_LOST;
}

static int load_run(struct sweep *s, char err[ERR_LEN])
{
	if (*s->load_fault)
		return load_fail(s, err);
	int64_t tokens = 0;
	for (int g = 0; g < s->n_groups; g++)
		tokens += s->groups[g].missing.prefill_tokens + s->groups[g].missing.answer_tokens;
	if (tokens && !s->progress->quiet)
		sweep_print_memory(s, stderr);
	progress_begin(s->progress, s->n_groups * s->plan->n_variants, tokens);
	int rc = 0;
	for (int g = 0; g < s->n_groups && !rc; g++)
		rc = group_run(s, &s->groups[g]);
	if (rc < 0)
		return err_set(err, "%s", s->fault);
	for (int g = 0; g < s->n_groups && !rc; g++)
		rc = sweep_check_full(s, &s->groups[g], err);
	if (!rc && s->plan->timing.enabled)
		rc = timing_run(s, err);
	progress_end(s->progress);
	struct runner_counters spent = runner_counters(s->runner);
	if (tokens && !s->progress->quiet) {
		spent_print(&spent);
		fprintf(stderr, "  peak memory %.1f MB\n", (double)runner_peak_bytes(s->runner) / 1e6);
	}
	return rc;
}

/* Once a device was lost, the new process must find it again: neither nothing, nor another one that "auto" falls back to. */
static bool device_back(struct sweep *s)
{
	const char *wish = s->plan->device ? s->plan->device : "auto";
	char name[DEVICE_NAME_LEN], what[DEVICE_NAME_LEN];
	if (!*s->lost.device)
		return true;
	runner_device_name(wish, name);
	if (runner_device_usable(wish, what) && !strcmp(name, s->lost.device))
		return true;
	err_set(s->lost.why, "%s was lost and cannot be opened again: %s is %s", s->lost.device, name, what);
	return false;
}

/* Opens and plans a load. SWEEP_*, LEFT_OUT when the model cannot be had, -1 when the store failed. */
static int load_begin(struct sweep *s, const struct plan_pair *pair, const char *precision, char err[ERR_LEN])
{
	char why[ERR_LEN];
	if (load_open(s, pair, precision, why)) {
		sweep_note(s, "%s (%s): %s", pair->target, precision, why);
		s->sum.loads_failed++;
		if (s->runner)
			err_set(s->load_fault, "not run: the device was lost while the model was loaded: %.400s", why);
	}
	if (!*s->load_fault && !device_back(s))
		return SWEEP_GIVEN_UP;
	if (!s->runner)
		return LEFT_OUT;
	if (put_model(s, "target", s->target_id, err) ||
		(pair->proxy && put_model(s, "proxy", s->proxy_id, err)))
		return -1;
	return load_plan(s, err);
}

int sweep_each_load(struct sweep *s, int (*work)(struct sweep *s, char err[ERR_LEN]), char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	int rc = 0;
	for (int i = 0; i < p->n_pairs * p->precisions.n && !rc; i++) {
		if (lost_unloaded(&s->lost, i))
			continue;
		s->load = i;
		int failed = load_begin(s, &p->pairs[i / p->precisions.n], p->precisions.v[i % p->precisions.n], err);
		rc = failed == LEFT_OUT ? 0 : failed ? failed : work(s, err);
		load_close(s);
	}
	return rc;
}

int sweep_run(struct sweep *s, char err[ERR_LEN])
{
	return sweep_each_load(s, load_run, err);
}

void sweep_free(struct sweep *s)
{
	strbuf_free(&s->sum.notes);
	lost_free(&s->lost);
}
