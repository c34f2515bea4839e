/* head_prior.c: the control of every trained method: what is known of a model's heads without looking at the context.
 * spec/proxykv-lkv.md 1.9.
 *
 * Scorer: heads in the order of their trained level, random positions inside a head: with the global budget whole heads are kept,
 * the last one in part. Allocator: the trained mean share of each head in KVzip's best r, so that any scorer can choose the
 * positions (snapkv@head-prior, h2o@head-prior: rivals with the same knowledge of heads); brought to the exact budget by one
 * factor, with a full head's surplus shared among the others, then the largest remainder. Both read the target's head-prior file,
 * and refuse a context it was counted on. */
#include "runners/methods/parts.h"
#include "runners/methods/prior.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void file_of(const struct params *p, struct trained_request *q)
{
	snprintf(q->kind, sizeof q->kind, "head-prior");
	q->option = "prior";
	q->weights = param_text(p, q->option);
	q->proxy_sha256 = NULL;
	q->make = "kvbench train head-prior PLAN";
}

static int read_prior(void **out, const char *path, void *user, char err[ERR_LEN])
{
	const struct scoring *s = user;
	return prior_read((struct prior **)out, path, s->layers, s->kv_heads, err);
}

static void close_prior(void *p)
{
	prior_free(p);
}

static const struct prior *prior_for(const struct scoring *s, const struct params *params, char err[ERR_LEN])
{
	char *path = scoring_file_for(s, params, file_of, err);
	const struct prior *p = path ? trained_store_get(s->weights, path, read_prior, (void *)s, close_prior, err) : NULL;
	if (p && (p->layers != s->layers || p->kv_heads != s->kv_heads)) {
		err_set(err, "%s: knows %d x %d heads, the model has %d x %d", path, p->layers, p->kv_heads, s->layers,
			s->kv_heads);
		p = NULL;
	}
	if (p && trained_on_refuses(p->trained_on, "head-prior", s->context_sha256, err))
		p = NULL;
	free(path);
	return p;
}

/* ---- scorer ---- */

struct ranked {
	struct scoring *s;
	const double *level;
};

/* The head's place from below, plus a random number below 1 for each position. */
static void fill(void *arg, int64_t i)
{
	const struct ranked *t = arg;
	const struct scoring *s = t->s;
	struct rng r = rng_seed(s->seed, (uint64_t)(i / s->kv_heads) << 32 | (uint64_t)(i % s->kv_heads));
	float *out = s->scores + i * s->shape.count;
	int below = 0;
	for (int64_t k = 0; k < s->layers * s->kv_heads; k++)
		below += t->level[k] < t->level[i] || (t->level[k] == t->level[i] && k > i);
	for (int64_t j = 0; j < s->shape.count; j++)
		out[j] = (float)(below + rng_unit(&r));
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	const struct prior *p = prior_for(s, s->params, err);
	if (!p)
		return -1;
	struct ranked t = {s, p->level};
	each(s, s->layers * s->kv_heads, fill, &t);
	return 0;
}

/* ---- allocator ---- */

void shares_to_total(double *raw, int n, double most, double total)
{
	double left = total, open = 0;
	bool *full = mem_new((size_t)n, sizeof *full);
	for (int i = 0; i < n; i++)
		open += raw[i];
	for (bool again = true; again && open > 0;) {
		double factor = left / open;
		again = false;
		for (int i = 0; i < n; i++) {
			if (full[i] || raw[i] * factor <= most)
				continue;
			full[i] = again = true;
			open -= raw[i];
			left -= most;
			raw[i] = most;
		}
		for (int i = 0; i < n && !again; i++)
			raw[i] *= full[i] ? 1 : factor;
	}
	int rest = 0;
	for (int i = 0; i < n; i++)
		rest += !full[i];
	for (int i = 0; i < n && open <= 0; i++) /* only heads without any share are left: equal parts */
		raw[i] = full[i] ? raw[i] : left / rest;
	free(full);
}

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	const struct prior *p = prior_for(a->scoring, a->params, err);
	if (!p)
		return -1;
	int heads = a->layers * a->kv_heads;
	int64_t held = a->protect.first + a->protect.last;
	double *raw = mem_new((size_t)heads, sizeof *raw);
	prior_at(p, a->retained, raw);
	for (int h = 0; h < heads; h++)
		raw[h] *= (double)a->n;
	shares_to_total(raw, heads, (double)(a->n - held), (double)(heads * (a->keep - held)));
	share_out(raw, heads, heads * (a->keep - held), a->budget);
	for (int h = 0; h < heads; h++)
		a->budget[h] += held;
	free(raw);
	return 0;
}

static const struct param_def defs[] = {
	{.name = "prior", .kind = PARAM_TEXT, .text = "", .origin = "\"\" = the target's head-prior file"}, {NULL}};

const struct scorer scorer_head_prior = {.name = "head-prior",
	.title = "trained level of each head, random positions: the control of trained methods",
	.origin = "ours",
	.params = defs,
	.file = file_of,
	.trained = true,
	.finish = finish};
const struct allocator allocator_head_prior = {.name = "head-prior",
	.title = "trained mean share of each head in KVzip's best r",
	.origin = "ours",
	.params = defs,
	.file = file_of,
	.trained = true,
	.allocate = allocate,
	.exact = true};
