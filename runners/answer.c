/* answer.c: the questions of a context answered by every variant, as batches against one shared cache.
 *
 * A pair is (question, variant): its view of the cache, its own short tail, its answer. All pairs of a batch take one step in
 * one forward call; a batch ends with its longest answer. The batch shrinks to what memory allows; a pair that does not fit alone
 * is an `oom` answer with the bytes asked for and those that were free, on the device or on the host. Greedy decoding; every end token of the model stops an answer. */
#include "runners/runner_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_PAIRS = 512 };

struct pair {
	int question, variant;
	const struct view *view;
	const struct prompt_question *pq;
	struct kv *tail;
	struct ids out;
	struct strbuf text;
	enum runner_finish finish;
	bool done, told; /* told: its answer was handed over, its memory given back */
};

/* Everything of one runner_answer call on one prompt. */
struct answering {
	struct runner *r;
	const struct runner_job *job;
	const struct prompt *prompt;
	struct session *session;
	struct view *view;        /* [n_variants] */
	char (*view_error)[ERR_LEN];
	int *view_flags;
	struct shortage *view_oom;
};

static bool wanted(const struct runner_job *job, int q, int v)
{
	return !job->wanted || job->wanted(job->user, q, v);
}

static void prompt_hash(const struct prompt *p, const struct prompt_question *pq, struct ids *all, char out[SHA_LEN])
{
	ids_append(all, p->ids.v, p->ids.n);
	ids_append(all, pq->fed.v, pq->fed.n);
	sha256_hex(all->v, all->n * sizeof *all->v, out);
}

/* Fills what every answer of (q, v) has and hands it over. */
static void answer_emit(const struct answering *a, int q, int v, const struct prompt_question *pq, struct runner_answer *out)
{
	const struct runner_info *info = &a->r->info;
	struct ids all = {0};
	out->question = q;
	out->variant = v;
	out->prefix_tokens = a->prompt->prefix;
	out->context_tokens = a->prompt->context;
	out->question_tokens = (int)(pq->text.n + pq->fed.n);
	out->message = out->message ? out->message : "";
	out->text = out->text ? out->text : "";
	if (info->max_positions && (int64_t)a->prompt->ids.n > info->max_positions)
		out->flags |= FLAG_BEYOND_TRAINED;
	out->kv_bytes_full = kv_bytes_for(a->r->device, info->head_dim, (int64_t)a->prompt->ids.n * info->layers * info->kv_heads);
	prompt_hash(a->prompt, pq, &all, out->prompt_sha256);
	out->prompt_ids = all.v;
	a->job->done(a->job->user, out);
	ids_free(&all);
}

static void answer_failed(const struct answering *a, int q, int v, const struct prompt_question *pq, int flags, struct shortage oom, const char *message)
{
	struct runner_answer out = {.status = oom.bytes ? ANSWER_OOM : ANSWER_FAILED, .message = message, .flags = flags, .oom_bytes = oom.bytes,
		.oom_free_bytes = oom.free_bytes};
	answer_emit(a, q, v, pq, &out);
}

static void answer_done(const struct answering *a, const struct pair *p)
{
	const struct view *w = p->view;
	bool empty = true;
	for (size_t i = 0; i < p->text.len && empty; i++)
		empty = p->text.text[i] == ' ' || p->text.text[i] == '\n';
	struct runner_answer out = {.status = ANSWER_OK, .text = p->text.text, .ids = p->out.v, .n_ids = (int)p->out.n, .finish = p->finish,
		.flags = a->view_flags[p->variant] | (empty ? FLAG_EMPTY : 0), .kept = w->kept_context, .kept_total = w->kept_total,
		.kv_bytes_kept = kv_bytes_for(a->r->device, a->r->info.head_dim, w->rows)};
	answer_emit(a, p->question, p->variant, p->pq, &out);
}

static bool is_eos(const struct model_config *c, int32_t id)
{
	for (int i = 0; i < c->n_eos; i++)
		if (c->eos[i] == id)
			return true;
	return false;
}

/* Appends the new token; decides whether the answer has ended. */
static void pair_step(struct runner *r, struct pair *p, const struct runner_question *q, int32_t id)
{
	ids_add(&p->out, id);
	bool may_end = (int)p->out.n > q->min_new_tokens;
	if (may_end && is_eos(forward_config(r->forward), id)) {
		p->done = true;
		p->finish = FINISH_STOP;
	} else if ((int)p->out.n >= q->max_new_tokens) {
		p->done = true;
		p->finish = FINISH_LENGTH;
	}
	if (!p->done && (!q->n_stops || !may_end))
		return;
	p->text.len = 0;
	strbuf_puts(&p->text, "");
	tokenizer_decode(r->tokenizer, p->out.v, p->out.n, true, &p->text);
	for (int i = 0; i < q->n_stops && may_end; i++) {
		char *hit = strstr(p->text.text, q->stops[i]);
		if (!hit)
			continue;
		p->text.len = (size_t)(hit - p->text.text);
		*hit = 0;
		p->done = true;
		p->finish = FINISH_STOP;
	}
}

/* Whether id would end an answer: an end token, or the last id of one of the question's stops. */
static bool ends_answer(struct runner *r, const struct runner_question *q, int32_t id)
{
	bool ends = is_eos(forward_config(r->forward), id);
	for (int i = 0; i < q->n_stops && !ends; i++) {
		struct ids stop = {0};
		char err[ERR_LEN];
		ends = !tokenizer_encode(r->tokenizer, q->stops[i], strlen(q->stops[i]), false, &stop, err) && stop.n && stop.v[stop.n - 1] == id;
		ids_free(&stop);
	}
	return ends;
}

/* The best token that does not end the answer. */
static int32_t best_going_on(struct runner *r, const struct runner_question *q, float *logits)
{
	int vocab = forward_config(r->forward)->vocab;
	for (;;) {
		int32_t best = 0;
		for (int32_t i = 1; i < vocab; i++)
			if (logits[i] > logits[best])
				best = i;
		if (!ends_answer(r, q, best) || logits[best] == -INFINITY)
			return best;
		logits[best] = -INFINITY;
	}
}

/* Too young to end: its question wants more tokens first. */
static bool too_young(const struct pair *p, const struct runner_question *q)
{
	return (int)p->out.n < q->min_new_tokens;
}

static int64_t tail_tokens(const struct pair *p, const struct runner_job *job)
{
	return (int64_t)p->pq->fed.n + job->questions[p->question].max_new_tokens;
}

/* One step of the batch: every pair that goes on gets its ids fed. first = the question, else the latest token. */
static int batch_step(const struct answering *a, struct pair *p, int n, bool first, char err[ERR_LEN])
{
	struct runner *r = a->r;
	struct forward_seq *seq = mem_new((size_t)n, sizeof *seq);
	int32_t *next = mem_new((size_t)n, sizeof *next);
	int *who = mem_new((size_t)n, sizeof *who), active = 0, vocab = forward_config(r->forward)->vocab;
	float *logits = NULL; /* only while some answer may not end yet */
	int64_t seen = (int64_t)a->prompt->ids.n;
	for (int i = 0; i < n; i++) {
		if (p[i].done)
			continue;
		const int32_t *ids = first ? p[i].pq->fed.v : &p[i].out.v[p[i].out.n - 1];
		int64_t pos0 = first ? seen : seen + (int64_t)p[i].pq->fed.n + (int64_t)p[i].out.n - 1;
		seq[active] = (struct forward_seq){ids, first ? (int)p[i].pq->fed.n : 1, pos0, a->session->kv, p[i].view->kept, p[i].tail};
		who[active++] = i;
		if (!logits && too_young(&p[i], &a->job->questions[p[i].question]))
			logits = mem_new((size_t)n * (size_t)vocab, sizeof *logits);
	}
	int64_t start = clock_ns();
	int rc = active ? forward_run(r->forward, seq, active, NULL, 0, next, logits, err) : 0;
	r->counters.decode_ns += clock_ns() - start;
	r->counters.forward_calls += active > 0;
	r->counters.decode_tokens += first ? 0 : active;
	for (int i = 0; i < active && !rc; i++) {
		const struct runner_question *q = &a->job->questions[p[who[i]].question];
		if (next[i] < 0)
			rc = err_set(err, "the logits are not a number");
		else
			pair_step(r, &p[who[i]], q, too_young(&p[who[i]], q) ? best_going_on(r, q, logits + (size_t)i * (size_t)vocab) : next[i]);
	}
	free(logits);
	free(seq);
	free(next);
	free(who);
	return rc ? -1 : active;
}

static void pair_free(struct pair *p)
{
	kv_free(p->tail);
	p->tail = NULL;
	ids_free(&p->out);
	strbuf_free(&p->text);
}

/* Answers n pairs together; each is handed over at the step that ends it, so that little is lost when the process dies. 0, 1 = stopped,
 * -1 = a forward call failed. */
static int batch_answer(const struct answering *a, struct pair *p, int n, char err[ERR_LEN])
{
	int left = n;
	for (bool first = true; left > 0; first = false) {
		if (a->job->stop && a->job->stop(a->job->user))
			return 1;
		if (batch_step(a, p, n, first, err) < 0)
			return -1;
		left = 0;
		for (int i = 0; i < n; i++) {
			left += !p[i].done;
			if (!p[i].done || p[i].told)
				continue;
			answer_done(a, &p[i]);
			pair_free(&p[i]);
			p[i].told = true;
		}
		if (a->job->progress)
			a->job->progress(a->job->user, "answer", n - left, n);
	}
	return 0;
}

/* The pair's own cache. -1: why and what was asked for. */
static int tail_make(struct runner *r, struct pair *p, int64_t tokens, struct shortage *oom, char err[ERR_LEN])
{
	const struct runner_info *i = &r->info;
	int64_t bytes = kv_device_bytes_for(r->device, i->layers, i->kv_heads, i->head_dim, tokens);
	if (device_bytes(r->device) + bytes > i->memory_limit_bytes) {
		*oom = (struct shortage){bytes, runner_free_bytes(r)};
		return err_set(err, "no memory for the answer's own cache: %lld bytes, %lld are free", (long long)bytes, (long long)oom->free_bytes);
	}
	if ((p->tail = cache_new(r, tokens)))
		return 0;
	err_set(err, "the answer's own cache: %s", device_error(r->device));
	*oom = failure_oom(r, err);
	return -1;
}

/* Takes pairs while their tails fit in memory. Returns how many; 0 = not even one (err, *oom). */
static int batch_fill(const struct answering *a, struct pair *p, int n, struct shortage *oom, char err[ERR_LEN])
{
	int taken = 0;
	while (taken < n && taken < BATCH_PAIRS && !tail_make(a->r, &p[taken], tail_tokens(&p[taken], a->job), oom, err))
		taken++;
	return taken;
}

static int pairs_answer(const struct answering *a, struct pair *p, int n, char err[ERR_LEN])
{
	int rc = 0;
	for (int at = 0; at < n && rc != 1;) {
		struct shortage oom = {0, -1};
		int taken = batch_fill(a, p + at, n - at, &oom, err);
		if (!taken) {
			answer_failed(a, p[at].question, p[at].variant, p[at].pq, 0, oom, err);
			at++;
			continue;
		}
		rc = batch_answer(a, p + at, taken, err);
		for (int i = at; i < at + taken; i++) {
			if (rc < 0 && !p[i].told)
				answer_failed(a, p[i].question, p[i].variant, p[i].pq, 0, failure_oom(a->r, err), err);
			pair_free(&p[i]);
		}
		at += taken;
	}
	return rc == 1 ? 1 : 0;
}

/* Selects for every variant that some question still wants. */
static void views_make(struct answering *a, const bool *needed)
{
	for (int v = 0; v < a->job->n_variants; v++) {
		int g = a->session->scoring_of[v];
		if (!needed[v] || !view_make(&a->view[v], a->session, v, a->job->variants[v].retained, &a->view_flags[v], a->view_error[v]))
			continue;
		if (!a->view_error[v][0])
			err_set(a->view_error[v], "selection failed");
		a->view_oom[v] = g >= 0 && a->session->scoring_oom[g].bytes ? a->session->scoring_oom[g] : failure_oom(a->r, a->view_error[v]);
	}
}

/* All wanted pairs of questions [q0, q1) on one prompt. */
static int prompt_answer(struct runner *r, const struct runner_job *job, const struct prompt *prompt, const struct prompt_question *pq, int q0, int q1,
	char err[ERR_LEN])
{
	int nv = job->n_variants, n = 0, rc;
	bool *needed = mem_new((size_t)nv, sizeof *needed);
	struct pair *pairs = mem_new((size_t)nv * (size_t)(q1 - q0), sizeof *pairs);
	struct session session = {0};
	struct answering a = {r, job, prompt, &session, mem_new((size_t)nv, sizeof(struct view)), mem_new((size_t)nv, ERR_LEN),
		mem_new((size_t)nv, sizeof(int)), mem_new((size_t)nv, sizeof(struct shortage))};
	for (int q = q0; q < q1; q++)
		for (int v = 0; v < nv; v++)
			if (wanted(job, q, v)) {
				needed[v] = true;
				pairs[n++] = (struct pair){.question = q, .variant = v, .view = &a.view[v], .pq = &pq[q - q0]};
			}
	rc = n ? session_open(&session, r, job, prompt, needed, err) : 0;
	if (rc == 0)
		views_make(&a, needed);
	int good = 0;
	for (int i = 0; i < n && rc != 1; i++) {
		int v = pairs[i].variant;
		if (rc < 0)
			answer_failed(&a, pairs[i].question, v, pairs[i].pq, 0, session.oom, err);
		else if (a.view_error[v][0])
			answer_failed(&a, pairs[i].question, v, pairs[i].pq, a.view_flags[v], a.view_oom[v], a.view_error[v]);
		else
			pairs[good++] = pairs[i];
	}
	if (rc == 0)
		rc = pairs_answer(&a, pairs, good, err);
	for (int v = 0; v < nv; v++)
		view_free(&a.view[v]);
	session_close(&session);
	free(a.view);
	free(a.view_error);
	free(a.view_flags);
	free(a.view_oom);
	free(pairs);
	free(needed);
	return rc == 1 ? 1 : 0;
}

/* Questions [q0, q1) that share a prompt: all of them, or with the aware protocol a session's, or a single one. */
static int group_end(const struct runner_job *job, int q0)
{
	int q = q0 + 1;
	while (q < job->n_questions && (job->protocol == PROTOCOL_AGNOSTIC || job->questions[q].n_history > 0))
		q++;
	return q;
}

int runner_answer(struct runner *r, const struct runner_job *job, char err[ERR_LEN])
{
	int rc = 0;
	for (int q0 = 0, q1; q0 < job->n_questions && !rc; q0 = q1) {
		q1 = group_end(job, q0);
		struct prompt_question *pq = mem_new((size_t)(q1 - q0), sizeof *pq);
		struct prompt prompt = {0};
		for (int q = q0; q < q1 && !rc; q++) {
			prompt_free(&prompt);
			rc = prompt_make(r, job, q, &prompt, &pq[q - q0], err);
		}
		if (!rc)
			rc = prompt_answer(r, job, &prompt, pq, q0, q1, err);
		for (int q = q0; q < q1; q++)
			prompt_question_free(&pq[q - q0]);
		free(pq);
		prompt_free(&prompt);
	}
	return rc;
}
