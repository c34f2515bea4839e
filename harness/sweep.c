/* sweep.c: see sweep.h. Reads bottom up: sweep_run, a load, a group, a context, one answer. */
#include "harness/sweep.h"

#include "harness/timing.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- small words ---- */

const char *sweep_status_name(enum runner_status status)
{
	static const char *const names[] = {[ANSWER_OK] = "ok", [ANSWER_FAILED] = "failed", [ANSWER_OOM] = "oom",
		[ANSWER_NOT_APPLICABLE] = "not-applicable"};
	return names[status];
}

void sweep_group_name(const struct sweep_group *g, char *out, size_t size)
{
	if (g->length_tokens)
		snprintf(out, size, "%s %lld %s", g->task->name, (long long)g->length_tokens, g->protocol);
	else
		snprintf(out, size, "%s %s", g->task->name, g->protocol);
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
	return sum->failed || sum->oom || sum->loads_failed || sum->contexts_failed || sum->timings_failed || sum->not_equal_to_full;
}

/* Most groups a load can have. */
static int sweep_group_limit(const struct plan *p)
{
	int n = 0;
	for (int t = 0; t < p->n_tasks; t++)
		n += p->tasks[t].lengths.n * p->protocols.n;
	return n;
}

static bool is_full(const struct plan *p, int variant)
{
	return !strcmp(p->methods[p->variants[variant].method].name, "full");
}

/* ---- tasks and jobs ---- */

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
	struct task_request rq = {
		.name = t->name, .path = t->path, .wording = wording(s, t), .length_tokens = g->length_tokens,
		.contexts = t->contexts, .questions = t->questions, .needles = t->needles, .values = t->values, .queries = t->queries,
		.depth = t->depth, .seed = (uint64_t)s->plan->seed,
		.max_new_tokens = t->max_new_tokens ? t->max_new_tokens : s->plan->max_new_tokens,
		.count_tokens = count_tokens, .cut_tokens = cut_tokens, .user = s->runner,
	};
	return task_open(out, &rq, err);
}

/* What the plan asked of the task and could change an answer: part of the cell's identity. The path is not: the data's hash is. */
static char *task_params(const struct sweep *s, const struct plan_task *t)
{
	json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "contexts", t->contexts, "questions", t->questions, "needles", t->needles,
		"values", t->values, "queries", t->queries, "max_new_tokens",
		t->max_new_tokens ? t->max_new_tokens : s->plan->max_new_tokens);
	if (wording(s, t))
		json_object_set_new(o, "wording", json_string(wording(s, t)));
	if (!isnan(t->depth))
		json_object_set_new(o, "depth", json_real(t->depth));
	char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(o);
	return text;
}

void sweep_job_make(struct sweep_job *j, const struct sweep *s, const struct sweep_group *g, const struct task_context *c)
{
	const struct plan *p = s->plan;
	j->questions = mem_new((size_t)c->n_questions, sizeof *j->questions);
	for (int i = 0; i < c->n_questions; i++) {
		const struct task_question *q = &c->questions[i];
		j->questions[i] = (struct runner_question){q->text, q->answer_prefix, q->max_new_tokens, (const char *const *)q->stops, q->n_stops};
	}
	j->variants = mem_new((size_t)p->n_variants, sizeof *j->variants);
	for (int v = 0; v < p->n_variants; v++) {
		const struct plan_method *m = &p->methods[p->variants[v].method];
		j->variants[v] = (struct runner_variant){m->name, p->variants[v].retained, m->options};
	}
	j->job = (struct runner_job){
		.system = c->system, .context = c->text, .chat = c->chat,
		.questions = j->questions, .n_questions = c->n_questions, .variants = j->variants, .n_variants = p->n_variants,
		.protocol = !strcmp(g->protocol, "aware") ? PROTOCOL_AWARE : PROTOCOL_AGNOSTIC,
	};
}

void sweep_job_free(struct sweep_job *j)
{
	free(j->questions);
	free(j->variants);
}

/* ---- one context: a job; each answer becomes a scored row ---- */

struct asking { /* what the runner's callbacks need */
	struct sweep *s;
	const struct sweep_group *g;
	const struct task_context *c;
	bool *wanted; /* [n_questions * n_variants]: still to be answered */
	bool in_batch; /* rows are put but not committed */
};

static bool *wanted_at(const struct asking *k, int question, int variant)
{
	return &k->wanted[question * k->s->plan->n_variants + variant];
}

static char *json_of_ids(const int32_t *ids, int n)
{
	struct strbuf b = {0};
	strbuf_puts(&b, "[");
	for (int i = 0; i < n; i++)
		strbuf_printf(&b, i ? ",%d" : "%d", ids[i]);
	strbuf_puts(&b, "]");
	return strbuf_take(&b);
}

static char *json_of_texts(char *const *texts, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_string(texts[i]));
	char *text = json_dumps(list, JSON_COMPACT);
	json_decref(list);
	return text;
}

/* The answer's score; what must never pass quietly turns the row into a failed one (NAN and a message). */
static double judge(const struct asking *k, const struct runner_answer *a, char message[ERR_LEN])
{
	const struct task_question *q = &k->c->questions[a->question];
	const struct plan_variant *v = &k->s->plan->variants[a->variant];
	int heads = runner_info(k->s->runner)->layers * runner_info(k->s->runner)->kv_heads;
	bool all_there = a->kept_total >= (int64_t)a->context_tokens * heads;
	if (v->retained < 1 && all_there && a->context_tokens > 1 && !(a->flags & FLAG_ALL_KEPT))
		return err_set(message, "pruning did not take place: r = %g, yet all %d context tokens are there", v->retained, a->context_tokens), NAN;
	if (a->flags & FLAG_NAN)
		return err_set(message, "the method's scores have NaN"), NAN;
	const struct metric_def *m = q->metric ? metric_find(q->metric) : NULL;
	if (!m)
		return err_set(message, "there is no metric \"%s\"", q->metric ? q->metric : ""), NAN;
	double score = m->score(a->text, q->answers, q->n_answers);
	if (isnan(score))
		err_set(message, "metric %s does not apply: no right answer is known", m->name);
	return score;
}

static void count_answer(struct sweep_summary *sum, enum runner_status status, bool empty)
{
	int *counter[] = {[ANSWER_OK] = &sum->ok, [ANSWER_FAILED] = &sum->failed, [ANSWER_OOM] = &sum->oom,
		[ANSWER_NOT_APPLICABLE] = &sum->not_applicable};
	++*counter[status];
	sum->empty += status == ANSWER_OK && empty;
}

/* Rows of one batch of answers are one commit: begun by the first, ended when the runner goes on to its next forward call. */
static void put_row(struct asking *k, const struct store_sample *row)
{
	struct sweep *s = k->s;
	if (*s->fault)
		return;
	if (!k->in_batch && store_begin(s->store, s->fault))
		return;
	k->in_batch = true;
	store_put_sample(s->store, row, s->fault);
}

static void commit_rows(struct asking *k)
{
	if (!k->in_batch)
		return;
	k->in_batch = false;
	char err[ERR_LEN];
	if (store_commit(k->s->store, err) && !*k->s->fault)
		err_set(k->s->fault, "%s", err);
}

static void answer_done(void *user, const struct runner_answer *a)
{
	struct asking *k = user;
	struct sweep *s = k->s;
	const struct task_question *q = &k->c->questions[a->question];
	const struct runner_info *info = runner_info(s->runner);
	char message[ERR_LEN] = "";
	snprintf(message, sizeof message, "%s", a->message ? a->message : "");
	enum runner_status status = a->status;
	double score = status == ANSWER_OK ? judge(k, a, message) : NAN;
	if (status == ANSWER_OK && isnan(score))
		status = ANSWER_FAILED;
	char *ids = json_of_ids(a->ids, a->n_ids), *gold = json_of_texts(q->answers, q->n_answers);
	put_row(k, &(struct store_sample){
		.cell_id = k->g->cell_ids[a->variant], .run_id = s->run_id, .sample_id = q->id, .context_id = k->c->id,
		.status = sweep_status_name(status), .message = message,
		.prompt_sha256 = a->prompt_sha256, .answer = a->text ? a->text : "", .answer_ids = ids, .gold = gold, .question = q->text,
		.score = score, .finish = a->status != ANSWER_OK ? "none" : a->finish == FINISH_STOP ? "stop" : "length",
		.flags = a->flags, .prefix_tokens = a->prefix_tokens, .context_tokens = a->context_tokens,
		.question_tokens = a->question_tokens, .answer_tokens = a->n_ids, .depth = q->depth,
		.kept = a->kept, .n_kept = a->kept ? info->layers * info->kv_heads : 0, .kept_total = a->kept_total,
		.kv_bytes_full = a->kv_bytes_full, .kv_bytes_kept = a->kv_bytes_kept, .oom_bytes = a->oom_bytes,
	});
	free(ids);
	free(gold);
	count_answer(&s->sum, status, a->flags & FLAG_EMPTY);
	*wanted_at(k, a->question, a->variant) = false;
}

static bool answer_wanted(void *user, int question, int variant)
{
	return *wanted_at(user, question, variant);
}

static void answer_progress(void *user, const char *phase, int64_t done, int64_t total)
{
	progress_phase(((struct asking *)user)->s->progress, phase, done, total);
}

static bool answer_stop(void *user)
{
	struct asking *k = user;
	commit_rows(k);
	return *k->s->fault || k->s->stop();
}

/* Every pair that is still wanted becomes a failed row with this message. */
static void fail_rest(struct asking *k, const char *message)
{
	for (int q = 0; q < k->c->n_questions; q++) {
		for (int v = 0; v < k->s->plan->n_variants; v++) {
			if (*wanted_at(k, q, v))
				answer_done(k, &(struct runner_answer){.question = q, .variant = v, .status = ANSWER_FAILED, .message = message});
		}
	}
	commit_rows(k);
}

static int64_t context_tokens(const struct sweep_group *g, const struct task_context *c)
{
	return g->length_tokens ? g->length_tokens : (int64_t)strlen(c->text) / 4;
}

/* Marks in wanted (may be NULL) what the store does not have, and adds the work that is. */
static void find_missing(const struct sweep *s, const struct sweep_group *g, const struct task_context *c, bool *wanted, struct sweep_work *work)
{
	int asked = 0;
	for (int q = 0; q < c->n_questions; q++) {
		int missing = 0;
		for (int v = 0; v < s->plan->n_variants; v++) {
			bool w = !s->present || !store_has_sample(s->present, g->cell_ids[v], c->questions[q].id);
			missing += w;
			if (wanted)
				wanted[q * s->plan->n_variants + v] = w;
		}
		asked += missing > 0;
		work->answers += missing;
		work->answer_tokens += (int64_t)missing * c->questions[q].max_new_tokens;
	}
	int prefills = strcmp(g->protocol, "aware") ? asked > 0 : asked; /* aware: one for each question */
	work->prefill_tokens += prefills * context_tokens(g, c);
}

/* 0 done, 1 stopped, -1 the store failed (s->fault). */
static int context_run(struct sweep *s, const struct sweep_group *g, const struct task_context *c)
{
	struct asking k = {.s = s, .g = g, .c = c, .wanted = mem_new((size_t)c->n_questions * (size_t)s->plan->n_variants, sizeof(bool))};
	char err[ERR_LEN] = "";
	int rc = 0;
	struct sweep_work work = {0};
	find_missing(s, g, c, k.wanted, &work);
	if (work.answers) {
		struct sweep_job j;
		sweep_job_make(&j, s, g, c);
		j.job.user = &k;
		j.job.wanted = answer_wanted;
		j.job.done = answer_done;
		j.job.progress = answer_progress;
		j.job.stop = answer_stop;
		rc = runner_answer(s->runner, &j.job, err);
		commit_rows(&k);
		if (rc != 1 && !*s->fault)
			fail_rest(&k, rc ? err : "the runner gave no answer");
		sweep_job_free(&j);
		progress_add(s->progress, work.prefill_tokens + work.answer_tokens);
	}
	free(k.wanted);
	return *s->fault ? -1 : rc == 1;
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
			s->sum.contexts_failed++;
			continue;
		}
		rc = s->stop() ? 1 : context_run(s, g, &c);
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

static int put_group_cells(struct sweep *s, struct sweep_group *g, const char *task_id, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	for (int v = 0; v < p->n_variants; v++) {
		const struct plan_method *m = &p->methods[p->variants[v].method];
		struct store_method method = {.name = m->name, .params = m->params, .origin = method_origin(m->name), .version = 1};
		char method_id[SHA_LEN];
		if (store_put_method(s->store, &method, method_id, err))
			return -1;
		struct store_cell cell = {.target_id = s->target_id, .proxy_id = *s->proxy_id ? s->proxy_id : NULL, .method_id = method_id,
			.task_id = task_id, .retained_ppm = p->variants[v].retained_ppm, .context_tokens = g->length_tokens,
			.protocol = g->protocol, .mode = "single", .topology = "cpu", .precision = s->precision, .seed = (uint64_t)p->seed,
			.measure_version = MEASURE_VERSION, .samples_planned = g->samples};
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
	char *params = task_params(s, g->task), task_id[SHA_LEN];
	struct store_task row = {.name = id.name, .metric = id.metric, .data_sha256 = id.data_sha256, .template_sha256 = id.template_sha256,
		.params = params, .version = id.version, .scorer_version = SCORER_VERSION, .binary_metric = m && m->binary};
	g->cell_ids = mem_new((size_t)s->plan->n_variants, sizeof *g->cell_ids);
	int rc = store_begin(s->store, err);
	if (!rc) {
		rc = store_put_task(s->store, &row, task_id, err);
		rc = rc ? rc : put_group_cells(s, g, task_id, err);
		rc = store_commit(s->store, rc ? NULL : err) ? -1 : rc;
	}
	free(params);
	return rc;
}

/* Makes every context once: first to count samples, which the cells record, then to see which of them the store lacks. */
static int group_count(struct sweep *s, struct sweep_group *g, struct task *task, bool samples, char err[ERR_LEN])
{
	for (int i = 0; i < g->contexts; i++) {
		struct task_context c;
		if (task_context_make(task, i, &c, err))
			return -1;
		progress_phase(s->progress, "plan", i, g->contexts);
		if (samples)
			g->samples += c.n_questions;
		else
			find_missing(s, g, &c, NULL, &g->missing);
		int64_t tokens = context_tokens(g, &c);
		g->longest_tokens = tokens > g->longest_tokens ? tokens : g->longest_tokens;
		task_context_free(&c);
	}
	return 0;
}

/* 0 planned, 1 the task cannot be had (noted), -1 the store failed. */
static int group_plan(struct sweep *s, struct sweep_group *g, char err[ERR_LEN])
{
	char name[128], why[ERR_LEN] = "";
	struct task *task = NULL;
	sweep_group_name(g, name, sizeof name);
	progress_where(s->progress, name);
	int rc = 0;
	if (!sweep_task_open(s, g, &task, why)) {
		g->contexts = task_count(task);
		rc = group_count(s, g, task, true, why) ? 0 : put_cells(s, g, task, err);
		if (!rc && !*why)
			group_count(s, g, task, false, why);
	}
	task_close(task);
	if (rc || !*why)
		return rc;
	sweep_note(s, "%s: %s", name, why);
	s->sum.contexts_failed++;
	free(g->cell_ids);
	return 1;
}

/* All groups of the load, in plan order. */
static int load_plan(struct sweep *s, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	s->groups = mem_new((size_t)sweep_group_limit(p), sizeof *s->groups);
	for (int t = 0; t < p->n_tasks; t++) {
		for (int k = 0; k < p->tasks[t].lengths.n * p->protocols.n; k++) {
			struct sweep_group *g = &s->groups[s->n_groups];
			*g = (struct sweep_group){.task = &p->tasks[t], .length_tokens = (int64_t)p->tasks[t].lengths.v[k / p->protocols.n],
				.protocol = p->protocols.v[k % p->protocols.n]};
			int rc = group_plan(s, g, err);
			if (rc < 0)
				return -1;
			s->n_groups += !rc;
			s->sum.cells += rc ? 0 : p->n_variants;
			s->sum.samples += rc ? 0 : g->samples * p->n_variants;
			s->sum.missing += rc ? 0 : g->missing.answers;
		}
	}
	return 0;
}

/* ---- a load: one pair at one precision ---- */

static int put_model(struct sweep *s, const char *role, const char *path, char id[SHA_LEN], char err[ERR_LEN])
{
	const struct runner_info *i = runner_info(s->runner);
	if (!strcmp(role, "target"))
		return store_put_model(s->store, &(struct store_model){role, i->name, i->path, i->arch, i->dtype, i->model_sha256,
			i->tokenizer_sha256, i->chat_template, i->template_sha256, i->params, i->kv_bytes_per_token, i->layers, i->kv_heads,
			i->head_dim}, id, err);
	return store_put_model(s->store, &(struct store_model){.role = role, .name = path, .path = path, .arch = "", .dtype = "", .sha256 = "",
		.tokenizer_sha256 = "", .chat_template = "", .template_sha256 = ""}, id, err);
}

static int load_open(struct sweep *s, const struct plan_pair *pair, const char *precision, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	s->precision = precision;
	progress_where(s->progress, pair->target);
	progress_phase(s->progress, "load", 0, 1);
	struct runner_options o = {.target = pair->target, .proxy = pair->proxy, .models_dir = p->models, .device = p->device ? p->device : "auto",
		.precision = precision, .isa = p->isa, .threads = p->threads, .memory_bytes = p->memory_bytes, .allow_long = p->allow_long,
		.chat_template = p->chat_template};
	return runner_open(&s->runner, &o, err);
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
	*s->target_id = *s->proxy_id = 0;
}

/* ---- r = 1 must be the full cache ---- */

struct answers {
	struct {
		char *sample, *answer;
		int tokens;
	} *v;
	int n, at, differ;
};

static int remember_answer(void *user, const struct score_row *r)
{
	struct answers *a = user;
	if (strcmp(r->status, "ok"))
		return 0;
	a->v = mem_grow(a->v, (size_t)a->n + 1, sizeof *a->v);
	a->v[a->n].sample = text_copy(r->sample_id);
	a->v[a->n].answer = text_copy(r->answer);
	a->v[a->n++].tokens = r->answer_tokens;
	return 0;
}

/* Both come ordered by sample id. */
static int compare_answer(void *user, const struct score_row *r)
{
	struct answers *a = user;
	while (a->at < a->n && strcmp(a->v[a->at].sample, r->sample_id) < 0)
		a->at++;
	if (!strcmp(r->status, "ok") && a->at < a->n && !strcmp(a->v[a->at].sample, r->sample_id))
		a->differ += strcmp(a->v[a->at].answer, r->answer) || a->v[a->at].tokens != r->answer_tokens;
	return 0;
}

static int group_check_identity(struct sweep *s, const struct sweep_group *g, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	struct answers full = {0};
	int rc = store_samples(s->store, g->cell_ids[0], remember_answer, &full, err);
	for (int v = 1; v < p->n_variants && !rc; v++) {
		if (p->variants[v].retained_ppm != 1000000 || is_full(p, v))
			continue;
		full.at = full.differ = 0;
		rc = store_samples(s->store, g->cell_ids[v], compare_answer, &full, err);
		s->sum.not_equal_to_full += full.differ;
		if (full.differ) {
			char name[128];
			sweep_group_name(g, name, sizeof name);
			sweep_note(s, "%s: %s at r = 1 gives %d answers that differ from the full cache's", name,
				p->methods[p->variants[v].method].name, full.differ);
		}
	}
	for (int i = 0; i < full.n; i++) {
		free(full.v[i].sample);
		free(full.v[i].answer);
	}
	free(full.v);
	return rc;
}

/* ---- the whole ---- */

static int load_run(struct sweep *s, char err[ERR_LEN])
{
	int64_t tokens = 0;
	for (int g = 0; g < s->n_groups; g++)
		tokens += s->groups[g].missing.prefill_tokens + s->groups[g].missing.answer_tokens;
	progress_begin(s->progress, s->n_groups * s->plan->n_variants, tokens);
	int rc = 0;
	for (int g = 0; g < s->n_groups && !rc; g++)
		rc = group_run(s, &s->groups[g]);
	if (rc < 0)
		return err_set(err, "%s", s->fault);
	for (int g = 0; g < s->n_groups && !rc; g++)
		rc = group_check_identity(s, &s->groups[g], err);
	if (!rc && s->plan->timing.enabled)
		rc = timing_run(s, err);
	progress_end(s->progress);
	return rc;
}

/* Opens and plans a load. 0, 1 when the model cannot be had (noted: the next load is tried), -1 when the store failed. */
static int load_begin(struct sweep *s, const struct plan_pair *pair, const char *precision, char err[ERR_LEN])
{
	char why[ERR_LEN];
	if (load_open(s, pair, precision, why)) {
		sweep_note(s, "%s (%s): %s", pair->target, precision, why);
		s->sum.loads_failed++;
		return 1;
	}
	if (put_model(s, "target", pair->target, s->target_id, err) || (pair->proxy && put_model(s, "proxy", pair->proxy, s->proxy_id, err)))
		return -1;
	return load_plan(s, err);
}

int sweep_each_load(struct sweep *s, int (*work)(struct sweep *s, char err[ERR_LEN]), char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	int rc = 0;
	for (int i = 0; i < p->n_pairs * p->precisions.n && !rc; i++) {
		int failed = load_begin(s, &p->pairs[i / p->precisions.n], p->precisions.v[i % p->precisions.n], err);
		rc = failed < 0 ? -1 : failed ? 0 : work(s, err);
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
}
