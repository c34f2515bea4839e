/* context.c: one context of the sweep: a job for the runner; each answer becomes a scored row in the store. */
#include "harness/sweep.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sweep_job_make(struct sweep_job *j, const struct sweep *s, const struct sweep_group *g, const struct task_context *c)
{
	const struct plan *p = s->plan;
	j->questions = mem_new((size_t)c->n_questions, sizeof *j->questions);
	j->turns = c->multi_turn ? mem_new((size_t)c->n_questions, sizeof *j->turns) : NULL;
	for (int i = 0; i < c->n_questions; i++) {
		const struct task_question *q = &c->questions[i];
		j->questions[i] = (struct runner_question){.text = q->text,
			.history = i ? j->turns : NULL,
			.n_history = c->multi_turn ? i : 0,
			.answer_prefix = q->answer_prefix,
			.max_new_tokens = q->max_new_tokens,
			.min_new_tokens = q->min_new_tokens,
			.stops = (const char *const *)q->stops,
			.n_stops = q->n_stops};
		if (c->multi_turn)
			j->turns[i] = (struct runner_turn){q->text, q->golden};
	}
	j->variants = mem_new((size_t)p->n_variants, sizeof *j->variants);
	for (int v = 0; v < p->n_variants; v++) {
		const struct plan_method *m = &p->methods[p->variants[v].method];
		j->variants[v] = (struct runner_variant){m->name, p->variants[v].retained, m->options};
	}
	j->job = (struct runner_job){
		.system = c->system,
		.context = c->text,
		.drop_from = (int)c->drop_from,
		.drop_tokens = (int)c->drop_tokens,
		.chat = c->chat,
		.questions = j->questions,
		.n_questions = c->n_questions,
		.variants = j->variants,
		.n_variants = p->n_variants,
		.protocol = !strcmp(g->protocol, "aware") ? PROTOCOL_AWARE : PROTOCOL_AGNOSTIC,
	};
}

void sweep_job_free(struct sweep_job *j)
{
	free(j->questions);
	free(j->turns);
	free(j->variants);
}

struct asking { /* what the runner's callbacks need */
	struct sweep *s;
	const struct sweep_group *g;
	const struct task_context *c;
	bool *wanted;  /* [n_questions * n_variants]: still to be answered */
	int only;      /* the job asks for this method of the plan alone; -1 = for all */
	bool together; /* several methods run in it, */
	int alone;     /* else this one does */
	bool in_batch; /* rows are put but not committed, */
	int64_t since; /* the first of them at this time, ns */
};

static bool *wanted_at(const struct asking *k, int question, int variant)
{
	return &k->wanted[question * k->s->plan->n_variants + variant];
}

static int method_of(const struct asking *k, int variant)
{
	return k->s->plan->variants[variant].method;
}

/* Still to be answered, and by the job in hand. */
static bool asked(const struct asking *k, int question, int variant)
{
	return *wanted_at(k, question, variant) && (k->only < 0 || k->only == method_of(k, variant));
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

/* NAN and a message when the metric is not to be had or does not apply. */
static double score_by(const char *metric, const struct task_question *q, const char *answer, char message[ERR_LEN])
{
	const struct metric_def *m = metric ? metric_find(metric) : NULL;
	if (!m)
		return err_set(message, "there is no metric \"%s\"", metric ? metric : ""), NAN;
	if (metric_prepare(m, message))
		return NAN;
	double score = m->score(answer, q->answers, q->n_answers);
	if (isnan(score))
		err_set(message, "metric %s does not apply: no right answer is known", m->name);
	return score;
}

/* The answer's score; what must never pass quietly turns the row into a failed one (NAN and a message). */
static double judge(const struct asking *k, const struct runner_answer *a, char message[ERR_LEN])
{
	const struct task_question *q = &k->c->questions[a->question];
	const struct plan_variant *v = &k->s->plan->variants[a->variant];
	int heads = runner_info(k->s->runner)->layers * runner_info(k->s->runner)->kv_heads;
	bool all_there = a->kept_total >= (int64_t)a->context_tokens * heads;
	if (v->retained < 1 && all_there && a->context_tokens > 1 && !(a->flags & FLAG_ALL_KEPT))
		return err_set(message, "pruning did not take place: r = %g, yet all %d context tokens are there", v->retained,
			       a->context_tokens),
		       NAN;
	if (a->flags & FLAG_NAN)
		return err_set(message, "the method's scores have NaN"), NAN;
	return score_by(q->metric, q, a->text, message);
}

static void count_answer(struct sweep_summary *sum, enum runner_status status, bool empty)
{
	int *counter[] = {[ANSWER_OK] = &sum->ok,
		[ANSWER_FAILED] = &sum->failed,
		[ANSWER_OOM] = &sum->oom,
		[ANSWER_NOT_APPLICABLE] = &sum->not_applicable};
	++*counter[status];
	sum->empty += status == ANSWER_OK && empty;
}

/* A commit costs milliseconds, a short answer less: rows wait for each other up to COMMIT_NS, looked at between forward calls. */
enum { COMMIT_NS = 1000000000 };
static void put_row(struct asking *k, const struct store_sample *row)
{
	struct sweep *s = k->s;
	if (*s->fault)
		return;
	if (!k->in_batch && store_begin(s->store, s->fault))
		return;
	if (!k->in_batch)
		k->since = clock_ns();
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
	if (a->status != ANSWER_OK && k->together && runner_lost(s->runner))
		return; /* whose fault it was shows when they run one by one */
	if (a->status == ANSWER_OK)
		lost_answered(&s->lost, method_of(k, a->variant));
	char message[ERR_LEN] = "";
	snprintf(message, sizeof message, "%s", a->message ? a->message : "");
	enum runner_status status = a->status;
	double score = status == ANSWER_OK ? judge(k, a, message) : NAN, also = NAN;
	if (!isnan(score) && q->also)
		also = score_by(q->also, q, a->text, message);
	if (status == ANSWER_OK && (isnan(score) || (q->also && isnan(also)))) {
		status = ANSWER_FAILED;
		score = also = NAN;
	}
	int64_t cut = k->c->drop_tokens ? k->c->drop_tokens : k->c->cut_tokens;
	char *ids = json_of_ids(a->ids, a->n_ids), *gold = json_of_texts(q->answers, q->n_answers);
	put_row(k, &(struct store_sample){
			   .cell_id = k->g->cell_ids[a->variant],
			   .run_id = s->run_id,
			   .sample_id = q->id,
			   .context_id = k->c->id,
			   .status = sweep_status_name(status),
			   .message = message,
			   .prompt_sha256 = a->prompt_sha256,
			   .answer = a->text ? a->text : "",
			   .answer_ids = ids,
			   .gold = gold,
			   .question = q->text,
			   .metric = q->metric,
			   .also_metric = q->also,
			   .score = score,
			   .also_score = also,
			   .scorer_version = SCORER_VERSION,
			   .finish = a->status != ANSWER_OK     ? "none"
				     : a->finish == FINISH_STOP ? "stop"
								: "length",
			   .flags = a->flags,
			   .prefix_tokens = a->prefix_tokens,
			   .context_tokens = a->context_tokens,
			   .question_tokens = a->question_tokens,
			   .answer_tokens = a->n_ids,
			   .group = k->c->group,
			   .truncation = !cut                ? NULL
					 : k->c->drop_tokens ? "ids"
							     : "text",
			   .cut_tokens = cut,
			   .depth = q->depth,
			   .needle_token = q->needle_token,
			   .needle_char = q->needle_char,
			   .kept = a->kept,
			   .n_kept = a->kept ? info->layers * info->kv_heads : 0,
			   .kept_total = a->kept_total,
			   .kv_bytes_full = a->kv_bytes_full,
			   .kv_bytes_kept = a->kv_bytes_kept,
			   .oom_bytes = a->oom_bytes,
			   .oom_free_bytes = a->oom_free_bytes,
		   });
	free(ids);
	free(gold);
	count_answer(&s->sum, status, a->flags & FLAG_EMPTY);
	*wanted_at(k, a->question, a->variant) = false;
}

static bool answer_wanted(void *user, int question, int variant)
{
	return asked(user, question, variant);
}

static void answer_progress(void *user, const char *phase, int64_t done, int64_t total)
{
	progress_phase(((struct asking *)user)->s->progress, phase, done, total);
}

static bool answer_stop(void *user)
{
	struct asking *k = user;
	if (k->in_batch && clock_ns() - k->since >= COMMIT_NS)
		commit_rows(k);
	return *k->s->fault || k->s->stop();
}

/* Every pair that the job was to answer and did not becomes a failed row with this message. */
static void fail_rest(struct asking *k, const char *message)
{
	for (int q = 0; q < k->c->n_questions; q++) {
		for (int v = 0; v < k->s->plan->n_variants; v++) {
			if (asked(k, q, v))
				answer_done(k, &(struct runner_answer){
						       .question = q, .variant = v, .status = ANSWER_FAILED, .message = message});
		}
	}
	commit_rows(k);
}

int64_t sweep_context_tokens(const struct sweep_group *g, const struct task_context *c)
{
	return g->length_tokens ? g->length_tokens : (int64_t)strlen(c->text) / 4;
}

void sweep_find_missing(
	const struct sweep *s, const struct sweep_group *g, const struct task_context *c, bool *wanted, struct sweep_work *work)
{
	int asked = 0;
	for (int q = 0; q < c->n_questions; q++) {
		int missing = 0;
		for (int v = 0; v < s->plan->n_variants; v++) {
			bool w = !s->present ||
				 !store_has_sample(s->present, g->cell_ids[v], c->questions[q].id, s->lost.run_id);
			missing += w;
			if (wanted)
				wanted[q * s->plan->n_variants + v] = w;
		}
		asked += missing > 0;
		work->answers += missing;
		work->answer_tokens += (int64_t)missing * c->questions[q].max_new_tokens;
	}
	bool shared = strcmp(g->protocol, "aware") || c->multi_turn; /* aware: one for each question, or for each session */
	int prefills = shared ? asked > 0 : asked;
	work->prefill_tokens += prefills * sweep_context_tokens(g, c);
}

/* Methods that the job has something to ask of; the last of them in *one. */
static int methods_asked(const struct asking *k, int *one)
{
	const struct plan *p = k->s->plan;
	bool *seen = mem_new((size_t)p->n_methods, sizeof *seen);
	int n = 0;
	for (int q = 0; q < k->c->n_questions; q++)
		for (int v = 0; v < p->n_variants; v++) {
			int m = method_of(k, v);
			if (!asked(k, q, v) || seen[m])
				continue;
			seen[m] = true;
			*one = m;
			n++;
		}
	free(seen);
	return n;
}

/* What a lost device means for the job that it was lost in. */
static int job_lost(struct asking *k, const char *kind, const char *message)
{
	struct sweep *s = k->s;
	snprintf(s->lost.device, sizeof s->lost.device, "%s", runner_info(s->runner)->device);
	if (k->together) {
		lost_together(&s->lost, k->g->cell_ids[0], k->c->id);
		return SWEEP_LOST;
	}
	fail_rest(k, message);
	lost_alone(&s->lost, s->plan, k->alone, kind, NULL);
	return *s->lost.why ? SWEEP_GIVEN_UP : SWEEP_LOST;
}

/* One job: everything wanted, or one method's part of it. */
static int job_run(struct asking *k, int only)
{
	struct sweep *s = k->s;
	struct sweep_job j;
	char err[ERR_LEN] = "";
	k->only = only;
	int methods = methods_asked(k, &k->alone);
	if (!methods)
		return 0;
	k->together = methods > 1;
	sweep_job_make(&j, s, k->g, k->c);
	j.job.user = k;
	j.job.wanted = answer_wanted;
	j.job.done = answer_done;
	j.job.progress = answer_progress;
	j.job.stop = answer_stop;
	int rc = runner_answer(s->runner, &j.job, err);
	commit_rows(k);
	const char *lost = runner_lost(s->runner), *message = rc ? err : "the runner gave no answer";
	rc = rc == 1 ? 1 : *s->fault ? -1 : lost ? job_lost(k, lost, message) : (fail_rest(k, message), 0);
	sweep_job_free(&j);
	return rc;
}

/* Pairs of methods that lost the device too often in this run. */
static void fail_set_aside(struct asking *k)
{
	const struct plan *p = k->s->plan;
	for (int m = 0; m < p->n_methods; m++) {
		if (!lost_set_aside(&k->s->lost, m))
			continue;
		char *message = text_format("not run: %s lost the device twice in a row (%s)", p->methods[m].name, k->s->lost.kind);
		k->only = m;
		fail_rest(k, message);
		free(message);
	}
	k->only = -1;
}

/* The controls first: whether the device works at all shows there. */
static int methods_apart(struct asking *k)
{
	const struct plan *p = k->s->plan;
	int rc = 0;
	for (int pass = 0; pass < 2; pass++)
		for (int m = 0; m < p->n_methods && !rc; m++) {
			bool control = !strcmp(p->methods[m].name, "full") || !strcmp(p->methods[m].name, "random");
			rc = control == !pass ? job_run(k, m) : 0;
		}
	return rc;
}

int sweep_context_run(struct sweep *s, const struct sweep_group *g, const struct task_context *c)
{
	struct asking k = {.s = s,
		.g = g,
		.c = c,
		.wanted = mem_new((size_t)c->n_questions * (size_t)s->plan->n_variants, sizeof(bool)),
		.only = -1};
	struct sweep_work work = {0};
	sweep_find_missing(s, g, c, k.wanted, &work);
	fail_set_aside(&k);
	if (*s->load_fault)
		fail_rest(&k, s->load_fault);
	int rc = lost_apart(&s->lost, g->cell_ids[0], c->id) ? methods_apart(&k) : job_run(&k, -1);
	if (work.answers)
		progress_add(s->progress, work.prefill_tokens + work.answer_tokens);
	free(k.wanted);
	return *s->fault ? -1 : rc;
}

int sweep_context_failed(struct sweep *s, const struct sweep_group *g, int context, const char *message)
{
	char *id = text_format("c%d", context);
	for (int v = 0; v < s->plan->n_variants && !*s->fault; v++) {
		if (s->present && store_has_sample(s->present, g->cell_ids[v], id, s->lost.run_id))
			continue;
		store_put_sample(s->store,
			&(struct store_sample){.cell_id = g->cell_ids[v],
				.run_id = s->run_id,
				.sample_id = id,
				.context_id = id,
				.status = sweep_status_name(ANSWER_FAILED),
				.message = message,
				.score = NAN,
				.scorer_version = SCORER_VERSION,
				.depth = NAN,
				.needle_token = -1,
				.needle_char = -1},
			s->fault);
		count_answer(&s->sum, ANSWER_FAILED, false);
	}
	free(id);
	return *s->fault ? -1 : 0;
}
