/* prompt.c: text to token ids in the three parts that pruning needs: prefix | context | question side.
 *
 * Each side is tokenised on its own, so that the full cache and every variant see the same ids. With the aware protocol the
 * question's own text goes into the prompt and the turn's tail is fed after pruning; without a tail (raw prompts) the last id
 * of the question is held back, since a pruned cache can answer only when something is fed to it. */
#include "runners/runner_impl.h"

#include <stdlib.h>
#include <string.h>

static int prompt_encode(struct runner *r, const struct runner_job *job, const char *context, const char *question, const char *answer_prefix,
	struct chat_ids *out, char err[ERR_LEN])
{
	const struct chat_template *t = job->chat || job->user_turn ? r->chat : chat_named("raw");
	if (!r->tokenizer)
		return err_set(err, "%s has no tokenizer: it can be timed, not asked", r->path);
	return chat_encode(t, r->tokenizer, job->system, context, question, answer_prefix, out, err);
}

static void take(struct ids *to, const struct ids *from, size_t first, size_t n)
{
	ids_append(to, from->v + first, n);
}

int prompt_make(struct runner *r, const struct runner_job *job, int q, struct prompt *p, struct prompt_question *pq, char err[ERR_LEN])
{
	const struct runner_question *question = &job->questions[q];
	const char *context = job->user_turn ? job->user_turn : job->context;
	struct chat_ids c = {0};
	*p = (struct prompt){0};
	*pq = (struct prompt_question){0};
	if (prompt_encode(r, job, context, job->user_turn ? "" : question->text, question->answer_prefix, &c, err)) {
		chat_ids_free(&c);
		return -1;
	}
	take(&p->ids, &c.prefix, 0, c.prefix.n);
	take(&p->ids, &c.context, 0, c.context.n);
	size_t inside = job->protocol == PROTOCOL_AWARE ? c.question_text : 0;
	if (inside && inside == c.question.n)
		inside--;
	take(&p->ids, &c.question, 0, inside);
	take(&pq->text, &c.question, 0, inside);
	take(&pq->fed, &c.question, inside, c.question.n - inside);
	p->prefix = (int)c.prefix.n;
	p->context = (int)c.context.n;
	p->after = (int)inside;
	chat_ids_free(&c);
	if (!p->context)
		return err_set(err, "the context is empty");
	if (!pq->fed.n) { /* nothing follows the context: its last token is fed instead */
		ids_add(&pq->fed, p->ids.v[--p->ids.n]);
		p->context--;
	}
	return 0;
}

void prompt_free(struct prompt *p)
{
	ids_free(&p->ids);
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
