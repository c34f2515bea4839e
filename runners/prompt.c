/* prompt.c: text to token ids in the three parts that pruning needs: prefix | context | question side.
 *
 * Each side is tokenised on its own, so that the full cache and every variant see the same ids. With the aware protocol the
 * question's own text goes into the prompt and the turn's tail is fed after pruning; without a tail (raw prompts) the last id
 * of the question is held back, since a pruned cache can answer only when something is fed to it. */
#include "runners/runner_impl.h"

#include <stdlib.h>
#include <string.h>

static const struct chat_template *template_of(const struct runner *r, const struct runner_job *job)
{
	return job->chat || job->user_turn ? r->chat : chat_named("raw");
}

static void take(struct ids *to, const struct ids *from, size_t first, size_t n)
{
	if (n)
		ids_append(to, from->v + first, n);
}

/* Appends a later turn of a session: its text, the tail, the start of its answer. No context stands before it. */
static int turn_encode(struct runner *r, const struct runner_job *job, const char *text, const char *answer_prefix, struct ids *out, char err[ERR_LEN])
{
	struct chat_ids c = {0};
	int rc = chat_encode(template_of(r, job), r->tokenizer, NULL, "", text, answer_prefix, &c, err);
	take(out, &c.question, 0, c.question.n);
	chat_ids_free(&c);
	return rc;
}

/* Appends what a session says after its first turn's text and tail: each golden answer and next question, up to question q. */
static int history_encode(struct runner *r, const struct runner_job *job, const struct runner_question *q, struct ids *out, char err[ERR_LEN])
{
	for (int k = 0; k < q->n_history; k++) {
		bool last = k == q->n_history - 1;
		if (chat_encode_golden(template_of(r, job), r->tokenizer, q->history[k].golden, out, err) ||
			turn_encode(r, job, last ? q->text : q->history[k + 1].question, last ? q->answer_prefix : "", out, err))
			return -1;
	}
	return 0;
}

/* The context's ids with the middle cut, if the job asks for one. */
static int context_take(const struct runner_job *job, const struct ids *context, struct ids *out, char err[ERR_LEN])
{
	size_t from = (size_t)job->drop_from, n = (size_t)job->drop_tokens;
	if (job->drop_from < 0 || job->drop_tokens < 0 || from + n > context->n)
		return err_set(err, "cannot drop %d ids from number %d of a context of %zu", job->drop_tokens, job->drop_from, context->n);
	take(out, context, 0, from);
	take(out, context, from + n, context->n - from - n);
	return 0;
}

static int length_check(const struct runner *r, const struct prompt *p, char err[ERR_LEN])
{
	int64_t n = (int64_t)p->ids.n, max = r->info.max_positions;
	if (max && n > max && !r->allow_long)
		return err_set(err, "the prompt has %lld tokens, %s was made for %lld: --allow-long runs it all the same, flagged", (long long)n,
			r->info.name, (long long)max);
	return 0;
}

int prompt_make(struct runner *r, const struct runner_job *job, int q, struct prompt *p, struct prompt_question *pq, char err[ERR_LEN])
{
	const struct runner_question *question = &job->questions[q];
	bool session = question->n_history > 0;
	const char *context = job->user_turn ? job->user_turn : job->context;
	const char *first = job->user_turn ? "" : session ? question->history[0].question : question->text;
	struct chat_ids c = {0};
	*p = (struct prompt){0};
	*pq = (struct prompt_question){0};
	int rc = -1;
	if (!r->tokenizer) {
		err_set(err, "%s has no tokenizer: it can be timed, not asked", r->path);
		goto done;
	}
	if (chat_encode(template_of(r, job), r->tokenizer, job->system, context, first, session ? "" : question->answer_prefix, &c, err))
		goto done;
	take(&p->ids, &c.prefix, 0, c.prefix.n);
	if (context_take(job, &c.context, &p->ids, err))
		goto done;
	p->prefix = (int)c.prefix.n;
	p->context = (int)(p->ids.n - c.prefix.n);
	size_t inside = job->protocol == PROTOCOL_AWARE ? c.question_text : 0;
	if (inside && inside == c.question.n)
		inside--;
	take(&p->ids, &c.question, 0, inside);
	take(&pq->text, &c.question, 0, inside);
	take(&pq->fed, &c.question, inside, c.question.n - inside);
	p->after = (int)inside;
	if (history_encode(r, job, question, &pq->fed, err))
		goto done;
	if (!p->context) {
		err_set(err, "the context is empty");
		goto done;
	}
	if (!pq->fed.n) { /* nothing follows the context: its last token is fed instead */
		ids_add(&pq->fed, p->ids.v[--p->ids.n]);
		p->context--;
	}
	rc = length_check(r, p, err);
done:
	chat_ids_free(&c);
	return rc;
}

void prompt_free(struct prompt *p)
{
	ids_free(&p->ids);
}

void prompt_context_sha256(const struct prompt *p, char out[SHA_LEN])
{
	if (*p->named)
		memmove(out, p->named, SHA_LEN);
	else
		sha256_hex(p->ids.v + p->prefix, (size_t)p->context * sizeof *p->ids.v, out);
}

void prompt_question_free(struct prompt_question *pq)
{
	ids_free(&pq->fed);
	ids_free(&pq->text);
}

int prompt_repeat(struct runner *r, bool chat, struct repeat_ids *store, struct repeat_prompt *out, char err[ERR_LEN])
{
	const struct chat_template *t = chat ? r->chat : chat_named("raw");
	const char *first, *later;
	char *head, *tail;
	int later_ids = chat_repeat(t, &first, &later);
	chat_parts(t, NULL, &head, &tail);
	*store = (struct repeat_ids){0};
	int rc = tokenizer_encode(r->tokenizer, first, strlen(first), false, &store->first, err) ||
		 tokenizer_encode(r->tokenizer, later, strlen(later), false, &store->later, err) ||
		 tokenizer_encode(r->tokenizer, tail, strlen(tail), true, &store->tail, err);
	free(head);
	free(tail);
	*out = (struct repeat_prompt){store->first.v, store->later.v, store->tail.v, (int)store->first.n, (int)store->later.n, (int)store->tail.n,
		later_ids > 0};
	return rc ? -1 : 0;
}

void repeat_ids_free(struct repeat_ids *s)
{
	ids_free(&s->first);
	ids_free(&s->later);
	ids_free(&s->tail);
}
