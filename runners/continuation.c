/* continuation.c: how a text goes on, read from a pruned cache and from the full one (spec/proxykv-lkv.md 2.6, issue 7): the
 * text's last tokens are fed as they stand, one step for all variants at once, and at each the variant's next-token distribution
 * is set against the full cache's.
 *
 * No question, no greedy answer: what differs is the cache alone, token by token. The first of the given tokens is predicted by
 * the prefill, the same for all, so that n given tokens make n - 1 comparisons. The context keeps the name (SHA-256) of the whole
 * text: a trained method refuses a text it was trained on, whatever was cut off then. */
#include "runners/runner_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reading { /* one variant */
	struct view view;
	struct kv *tail;
	char why[ERR_LEN]; /* "" = fine */
	int flags, agree;
	double kl, nll; /* sums over tokens, nats */
};
struct continuing {
	struct runner *r;
	const struct runner_job *job;
	struct prompt prompt;
	struct session session;
	struct ids given;
	struct reading full, *variant; /* [n_variants] */
};

/* The context's last n ids move from the prompt to what is given. */
static int cut(struct continuing *k, int n, char err[ERR_LEN])
{
	struct prompt *p = &k->prompt;
	if (p->context <= n)
		return err_set(err, "a text of %d tokens is too short for a continuation of %d", p->context, n);
	prompt_context_sha256(p, p->named);
	ids_append(&k->given, p->ids.v + p->prefix + p->context - n, (size_t)n);
	p->context -= n;
	p->ids.n -= (size_t)n;
	return 0;
}

static void reading_open(struct continuing *k, struct reading *v, int variant)
{
	struct runner *r = k->r;
	if (variant >= 0 && view_make(&v->view, &k->session, variant, k->job->variants[variant].retained, &v->flags, v->why)) {
		if (!*v->why)
			err_set(v->why, "selection failed");
		return;
	}
	if (!(v->tail = cache_new(r, (int64_t)k->given.n)))
		err_set(v->why, "the continuation's own cache: %s", device_error(r->device));
}

/* log sum exp and the place of the largest; NaN stays. */
static double log_sum(const float *x, int n, int *best)
{
	double sum = 0;
	*best = 0;
	for (int i = 1; i < n; i++)
		if (x[i] > x[*best])
			*best = i;
	for (int i = 0; i < n; i++)
		sum += (double)expf(x[i] - x[*best]);
	return (double)x[*best] + log(sum);
}

/* Adds one token: of the full cache's logits a and the variant's b. p[n]: the full cache's probabilities. */
static void compare(struct reading *v, const float *p, const float *a, const float *b, int n, int32_t given)
{
	int best_a, best_b;
	double sum_a = log_sum(a, n, &best_a), sum_b = log_sum(b, n, &best_b), kl = 0;
	for (int i = 0; i < n; i++)
		kl += (double)p[i] * ((double)a[i] - (double)b[i]);
	v->kl += kl - sum_a + sum_b;
	v->nll += sum_b - (double)b[given];
	v->agree += best_a == best_b;
}

/* Feeds given token t to the full cache and to every variant that is still fine. */
static int step(struct continuing *k, int t, char err[ERR_LEN])
{
	int nv = k->job->n_variants, n = 0, vocab = k->r->info.vocab, best, rc = -1;
	struct forward_seq *seq = mem_new((size_t)nv + 1, sizeof *seq);
	struct reading **who = mem_new((size_t)nv + 1, sizeof *who);
	float *logits = malloc(((size_t)nv + 1) * (size_t)vocab * sizeof *logits), *p = malloc((size_t)vocab * sizeof *p);
	for (int v = -1; v < nv; v++) {
		struct reading *one = v < 0 ? &k->full : &k->variant[v];
		if (*one->why)
			continue;
		seq[n] = (struct forward_seq){
			&k->given.v[t], 1, (int64_t)k->prompt.ids.n + t, k->session.kv, one->view.kept, one->tail};
		who[n++] = one;
	}
	if (!logits || !p) {
		err_set(err, "out of memory: logits of %d variants", n);
		goto done;
	}
	if (forward_run(k->r->forward, seq, n, NULL, 0, NULL, logits, err))
		goto done;
	const double sum = log_sum(logits, vocab, &best);
	for (int i = 0; i < vocab; i++)
		p[i] = (float)exp((double)logits[i] - sum);
	for (int i = 0; i < n; i++)
		compare(who[i], p, logits, logits + (size_t)i * (size_t)vocab, vocab, k->given.v[t + 1]);
	rc = 0;
done:
	free(seq);
	free(who);
	free(logits);
	free(p);
	return rc;
}

static void tell(const struct continuing *k, void (*done)(void *user, const struct runner_continuation *c))
{
	const int tokens = (int)k->given.n - 1;
	for (int v = 0; v < k->job->n_variants; v++) {
		const struct reading *x = &k->variant[v];
		const bool ok = !*x->why && isfinite(x->kl);
		struct runner_continuation c = {.variant = v,
			.status = ok ? ANSWER_OK : ANSWER_FAILED,
			.message = *x->why ? x->why
				   : ok    ? ""
					   : "the logits are not a number",
			.context_tokens = k->prompt.context,
			.tokens = tokens,
			.kept_total = x->view.kept_total,
			.kl = ok ? x->kl / tokens : NAN,
			.nll = ok ? x->nll / tokens : NAN,
			.agree = ok ? (double)x->agree / tokens : NAN};
		done(k->job->user, &c);
	}
}

static void continuing_free(struct continuing *k)
{
	for (int v = -1; v < k->job->n_variants; v++) {
		struct reading *one = v < 0 ? &k->full : &k->variant[v];
		kv_free(one->tail);
		view_free(&one->view);
	}
	free(k->variant);
	session_close(&k->session);
	ids_free(&k->given);
	prompt_free(&k->prompt);
}

int runner_continue(struct runner *r, const struct runner_job *job, int tokens,
	void (*done)(void *user, const struct runner_continuation *c), char err[ERR_LEN])
{
	const struct runner_question none = {.text = "", .max_new_tokens = 1};
	struct runner_job one = *job;
	struct prompt_question pq = {0};
	struct continuing k = {.r = r, .job = &one};
	int rc = -1;
	one.questions = &none;
	one.n_questions = 1;
	one.protocol = PROTOCOL_AGNOSTIC;
	one.wanted = NULL;
	k.variant = mem_new((size_t)job->n_variants + 1, sizeof *k.variant);
	if (tokens < 2)
		err_set(err, "a continuation needs at least 2 tokens");
	else if (!prompt_make(r, &one, 0, &k.prompt, &pq, err) && !cut(&k, tokens, err))
		rc = session_open(&k.session, r, &one, &k.prompt, NULL, err);
	for (int v = -1; v < job->n_variants && !rc; v++)
		reading_open(&k, v < 0 ? &k.full : &k.variant[v], v);
	if (!rc && *k.full.why)
		rc = err_set(err, "%s", k.full.why);
	for (int t = 0; t + 1 < tokens && !rc; t++)
		rc = job->stop && job->stop(job->user) ? 1 : step(&k, t, err);
	if (!rc)
		tell(&k, done);
	prompt_question_free(&pq);
	continuing_free(&k);
	return rc == 1 ? 1 : rc ? -1 : 0;
}
