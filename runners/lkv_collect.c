/* lkv_collect.c: what LKV is trained on: a context and its questions with the answers that the model itself gives on the full
 * cache; of a context without questions (a text) its last tokens. spec/proxykv-lkv.md 2.4. One prefill; the answers are decoded
 * as one batch. */
#include "runners/lkv/shard.h"
#include "runners/runner_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_TAIL = 64 }; /* tokens of a text that are predicted */

struct collecting {
	const struct runner_job *job;
	struct lkv_shard shard;
	char *err;
	bool failed;
};

static void collect_answer(void *user, const struct runner_answer *a)
{
	struct collecting *c = user;
	int fixed = a->prefix_tokens + a->context_tokens;
	if (a->status != ANSWER_OK) {
		if (a->message != c->err) /* a forward call that failed says so in the caller's own buffer */
			err_set(c->err, "%s", a->message);
		c->failed = true;
		return;
	}
	lkv_shard_tail(&c->shard, a->prompt_ids + fixed, a->question_tokens, a->ids, a->n_ids);
}

static bool collect_stop(void *user)
{
	const struct collecting *c = user;
	return c->job->stop && c->job->stop(c->job->user);
}

static int collect_questions(struct runner *r, struct collecting *c, char err[ERR_LEN])
{
	const struct runner_variant full = {"full", 1, NULL};
	struct runner_job one = *c->job;
	one.variants = &full;
	one.n_variants = 1;
	one.protocol = PROTOCOL_AGNOSTIC;
	one.user = c;
	one.wanted = NULL;
	one.progress = NULL;
	one.done = collect_answer;
	one.stop = collect_stop;
	c->err = err;
	int rc = runner_answer(r, &one, err);
	return rc ? rc : c->failed ? -1 : 0;
}

static int collect_text(struct lkv_shard *s, char err[ERR_LEN])
{
	int n = s->n - TEXT_TAIL;
	if (n - s->prefix <= TEXT_TAIL)
		return err_set(err, "a text of %d tokens is too short to predict its last %d", s->n - s->prefix, TEXT_TAIL);
	lkv_shard_tail(s, s->ids + n, 1, s->ids + n + 1, TEXT_TAIL - 1);
	s->n = n;
	return 0;
}

/* A question that is white space is none: what a file of texts has. */
static bool has_questions(const struct runner_job *job)
{
	for (int i = 0; i < job->n_questions; i++)
		if (job->questions[i].text[strspn(job->questions[i].text, " \n\t")])
			return true;
	return false;
}

/* A shard of this context for this model and split, under the same chat template. */
static bool is_present(const struct runner *r, const struct prompt *p, const char *path, const char *split)
{
	struct lkv_shard s;
	char err[ERR_LEN];
	if (!file_exists(path) || lkv_shard_read(&s, path, r->info.vocab, err))
		return false;
	bool same = !strcmp(s.target_sha256, r->info.model_sha256) && !strcmp(s.split, split) && s.prefix == p->prefix &&
		    !memcmp(s.ids, p->ids.v, (size_t)p->prefix * sizeof *s.ids);
	lkv_shard_free(&s);
	return same;
}

int runner_collect_lkv(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN])
{
	const struct runner_question none = {.text = ""};
	struct collecting k = {.job = c->job};
	struct lkv_shard *s = &k.shard;
	struct runner_job job = *c->job;
	struct prompt p = {0};
	struct prompt_question pq = {0};
	job.questions = &none;
	job.n_questions = 1;
	job.protocol = PROTOCOL_AGNOSTIC;
	*present = false;
	if (prompt_make(r, &job, 0, &p, &pq, err))
		return -1;
	s->prefix = p.prefix;
	s->n = p.prefix + p.context;
	s->ids = mem_new((size_t)s->n, sizeof *s->ids);
	memcpy(s->ids, p.ids.v, (size_t)s->n * sizeof *s->ids);
	prompt_context_sha256(&p, s->context_sha256);
	snprintf(s->id, sizeof s->id, "%s", c->id);
	snprintf(s->split, sizeof s->split, "%s", c->split);
	snprintf(s->target_sha256, SHA_LEN, "%s", r->info.model_sha256);
	snprintf(s->tokenizer_sha256, SHA_LEN, "%s", r->info.tokenizer_sha256 ? r->info.tokenizer_sha256 : "");
	char *path = text_format("%s/%.16s.safetensors", c->folder, s->context_sha256);
	int rc = 0;
	if (!(*present = is_present(r, &p, path, c->split))) {
		rc = has_questions(c->job) ? collect_questions(r, &k, err) : collect_text(s, err);
		rc = rc ? rc : lkv_shard_write(s, path, err);
	}
	free(path);
	lkv_shard_free(s);
	prompt_free(&p);
	prompt_question_free(&pq);
	return rc;
}
