/* paper_estimate.c: what a plan would cost, from shapes and sizes alone. See paper.h.
 *
 * Model of the cost, one context of T tokens (L layers, H heads of d, P weights in the layers):
 *   prefill       2 P T + 2 L H d T^2 FLOP (causal: half of the square, q k^T and p v)
 *   column sums   L H d T^2 more
 *   second pass   2 P T + 4 L H d T^2: KVzip repeats T tokens, each against the whole cache
 *   a proxy       its own prefill and column sums
 *   decoding      memory-bound: each step reads the weights once for all variants and questions, and each variant's kept entries
 * Each scorer is counted once a context, as the sweep runs it; the timing pass shares nothing. Left out: what a machine does not
 * reach of the rates given, tokenising, loading. An order of size. */
#include "harness/paper.h"

#include "harness/models.h"
#include "harness/progress.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- models ---- */

struct shape {
	double layers, heads, kv_heads, head_dim, weights, total_weights; /* weights: in the layers; total: with the embeddings */
	int64_t max_positions;
};

static double number(const json_t *o, const char *key, double otherwise)
{
	const json_t *v = json_object_get(o, key);
	return json_is_number(v) ? json_number_value(v) : otherwise;
}

static struct shape shape_of(const json_t *config)
{
	struct shape s = {.layers = number(config, "num_hidden_layers", 0), .heads = number(config, "num_attention_heads", 0)};
	double hidden = number(config, "hidden_size", 0), vocab = number(config, "vocab_size", 0);
	s.kv_heads = number(config, "num_key_value_heads", s.heads);
	s.head_dim = number(config, "head_dim", hidden / s.heads);
	s.max_positions = (int64_t)number(config, "max_position_embeddings", 0);
	double attention = hidden * s.head_dim * (2 * s.heads + 2 * s.kv_heads);
	s.weights = s.layers * (attention + 3 * hidden * number(config, "intermediate_size", 0));
	s.total_weights = s.weights + hidden * vocab * (json_is_true(json_object_get(config, "tie_word_embeddings")) ? 1 : 2);
	return s;
}

/* By the name the paper's plan uses. */
static int read_shape(const json_t *suites, const char *name, const char *models_dir, struct shape *out, char err[ERR_LEN])
{
	const char *file = json_string_value(json_object_get(json_object_get(suites, "models"), name));
	if (!file)
		return err_set(err, "the shape of %s is not known here: no estimate without loading it", name);
	char *folder = models_dir ? text_copy(models_dir) : models_folder(),
	     *path = text_format("%s/configs/%s.json", folder, file);
	json_error_t why;
	json_t *config = json_load_file(path, 0, &why);
	int rc = config ? 0 : err_set(err, "%s: %s", path, why.text);
	if (!rc)
		*out = shape_of(config);
	json_decref(config);
	free(folder);
	free(path);
	return rc;
}

static double kv_bytes_per_token(const struct shape *s)
{
	return 2 * s->layers * s->kv_heads * s->head_dim * 2;
}

static double attention_flop(const struct shape *s, double tokens)
{
	return s->layers * s->heads * s->head_dim * tokens * tokens;
}

static double prefill_flop(const struct shape *s, double tokens)
{
	return 2 * s->weights * tokens + 2 * attention_flop(s, tokens);
}

/* ---- methods ---- */

enum scoring { SCORES_FREE, SCORES_SUMS, SCORES_PASS, SCORES_PROXY, SCORES_PROXY_PASS };

/* By scorer: the name up to '@'. What is not here reads keys, values or one window: next to nothing. */
static const struct {
	const char *scorer;
	enum scoring scoring;
} scorings[] = {
	{"h2o", SCORES_SUMS},
	{"selfkv", SCORES_SUMS},
	{"kvzip", SCORES_PASS},
	{"proxykv", SCORES_PROXY},
	{"kvzip+iam", SCORES_PROXY_PASS},
};

static enum scoring scoring_of(const char *method)
{
	size_t n = strcspn(method, "@");
	for (size_t i = 0; i < sizeof scorings / sizeof *scorings; i++) {
		if (strlen(scorings[i].scorer) == n && !strncmp(method, scorings[i].scorer, n))
			return scorings[i].scoring;
	}
	return SCORES_FREE;
}

static double scoring_flop(enum scoring how, const struct shape *target, const struct shape *proxy, double tokens)
{
	const struct shape *s = how == SCORES_PROXY || how == SCORES_PROXY_PASS ? proxy : target;
	double pass = 2 * s->weights * tokens + 4 * attention_flop(s, tokens);
	switch (how) {
	case SCORES_FREE:
		return 0;
	case SCORES_SUMS:
		return attention_flop(s, tokens);
	case SCORES_PASS:
		return pass;
	case SCORES_PROXY:
		return prefill_flop(s, tokens) + attention_flop(s, tokens);
	case SCORES_PROXY_PASS:
		return prefill_flop(s, tokens) + pass;
	}
	return 0;
}

/* ---- a task at a length ---- */

struct load {
	const struct plan *plan;
	struct shape target, proxy;
};

struct work {
	double contexts, questions, tokens, answer; /* questions and tokens of each context */
};

static struct work work_of(const json_t *suites, const struct plan_task *t, double length)
{
	const json_t *facts = json_object_get(json_object_get(suites, "tasks"), t->name);
	struct work w = {.contexts = number(facts, "contexts", 10),
		.questions = number(facts, "questions", 1),
		.tokens = number(facts, "tokens", 0),
		.answer = number(facts, "answer", 64)};
	if (t->contexts && (!facts || t->contexts < w.contexts))
		w.contexts = t->contexts;
	if (t->questions)
		w.questions = t->questions;
	if (t->max_new_tokens)
		w.answer = t->max_new_tokens;
	if (w.tokens == 0 || (length > 0 && length < w.tokens))
		w.tokens = length;
	return w;
}

struct cost {
	double cells, samples, prefill_tokens, answer_tokens, flop, bytes, longest;
};

static void cost_add(struct cost *to, const struct cost *c)
{
	to->cells += c->cells;
	to->samples += c->samples;
	to->prefill_tokens += c->prefill_tokens;
	to->answer_tokens += c->answer_tokens;
	to->flop += c->flop;
	to->bytes += c->bytes;
	to->longest = fmax(to->longest, c->longest);
}

/* A scorer that an earlier method of the plan has already run on the context. */
static bool scored_before(const struct plan *p, int m)
{
	size_t n = strcspn(p->methods[m].name, "@");
	for (int i = 0; i < m; i++) {
		if (strcspn(p->methods[i].name, "@") == n && !strncmp(p->methods[i].name, p->methods[m].name, n))
			return true;
	}
	return false;
}

static double context_flop(const struct load *l, double tokens)
{
	double flop = prefill_flop(&l->target, tokens);
	for (int m = 0; m < l->plan->n_methods; m++) {
		if (!scored_before(l->plan, m))
			flop += scoring_flop(scoring_of(l->plan->methods[m].name), &l->target, &l->proxy, tokens);
	}
	return flop;
}

/* Bytes one decoding step of all variants and questions reads. */
static double step_bytes(const struct load *l, const struct work *w)
{
	double kept = 0;
	for (int v = 0; v < l->plan->n_variants; v++)
		kept += l->plan->variants[v].retained;
	return 2 * l->target.total_weights + kept * w->questions * w->tokens * kv_bytes_per_token(&l->target);
}

static bool timed_number(const struct numbers *list, double x)
{
	for (int i = 0; i < list->n; i++) {
		if (fabs(list->v[i] - x) < 5e-7)
			return true;
	}
	return !list->n;
}

static bool is_timed(const struct plan *p, const struct plan_task *t, double length, const char *protocol)
{
	bool task = false, named = !p->timing.protocols.n;
	for (int i = 0; i < p->timing.tasks.n; i++)
		task = task || !strcmp(p->timing.tasks.v[i], t->name);
	for (int i = 0; i < p->timing.protocols.n; i++)
		named = named || !strcmp(p->timing.protocols.v[i], protocol);
	return p->timing.enabled && task && named && timed_number(&p->timing.lengths, length);
}

/* The timing pass: each timed variant alone, from an empty cache, in every round. */
static double timing_flop(const struct load *l, double tokens)
{
	const struct plan *p = l->plan;
	double round = 0;
	for (int v = 0; v < p->n_variants; v++) {
		if (v == 0 || timed_number(&p->timing.retained, p->variants[v].retained))
			round += prefill_flop(&l->target, tokens) +
				 scoring_flop(scoring_of(p->methods[p->variants[v].method].name), &l->target, &l->proxy, tokens);
	}
	return round * (p->timing.warmup + p->timing.repetitions);
}

static struct cost cost_of(
	const struct load *l, const struct plan_task *t, const struct work *w, double length, const char *protocol)
{
	bool aware = !strcmp(protocol, "aware");
	double prefills = w->contexts * (aware ? w->questions : 1);
	struct cost c = {.cells = l->plan->n_variants,
		.samples = w->contexts * w->questions * l->plan->n_variants,
		.longest = fmax(w->tokens, length)};
	c.prefill_tokens = prefills * w->tokens;
	c.answer_tokens = c.samples * w->answer;
	c.flop = prefills * context_flop(l, w->tokens) + 2 * l->target.total_weights * c.answer_tokens;
	c.bytes = w->contexts * w->answer * step_bytes(l, w);
	if (is_timed(l->plan, t, length, protocol))
		c.flop += timing_flop(l, w->tokens);
	return c;
}

/* ---- printing ---- */

static double cost_sec(const struct cost *c, const struct paper_speed *speed)
{
	return c->flop / (speed->tflops * 1e12) + c->bytes / (speed->gbytes * 1e9);
}

/* "longbench", or the name itself. */
static void suite_of(const char *task, char out[64])
{
	size_t n = strcspn(task, "-");
	bool suite = !strncmp(task, "longbench", n) || !strncmp(task, "ruler", n) || !strncmp(task, "scbench", n);
	snprintf(out, 64, "%.*s", suite ? (int)n : 63, task);
}

static void print_cost(const char *name, int tasks, const struct cost *c, const struct paper_speed *speed)
{
	char took[48];
	duration_text(cost_sec(c, speed), took, sizeof took);
	printf("  %-34s %5d %6.0f %9.0f %14.0f %14.0f  %s\n", name, tasks, c->cells, c->samples, c->prefill_tokens,
		c->answer_tokens, took);
}

static void print_memory(const struct load *l, const struct cost *all, bool has_proxy)
{
	double kv = all->longest * kv_bytes_per_token(&l->target), entries = all->longest * l->target.layers * l->target.kv_heads;
	double weights = 2 * (l->target.total_weights + (has_proxy ? l->proxy.total_weights : 0));
	double lists = 0, scores = 4 * entries * l->plan->n_methods;
	for (int v = 0; v < l->plan->n_variants; v++)
		lists += 4 * entries * l->plan->variants[v].retained;
	printf("  longest context about %.0f tokens: weights %.1f GB, KV cache %.1f GB, scores %.1f GB, index lists of all "
	       "variants %.1f GB; in "
	       "all about %.1f GB\n",
		all->longest, weights / 1e9, kv / 1e9, scores / 1e9, lists / 1e9, (weights + kv + scores + lists) / 1e9);
	if ((int64_t)all->longest > l->target.max_positions)
		printf("  beyond the model's %lld trained positions: such contexts are refused without --allow-long, flagged "
		       "with it\n",
			(long long)l->target.max_positions);
}

/* One line a suite, length and protocol: the tasks that share all three, wherever they stand in the plan. */
static struct cost print_lines(const struct load *l, const json_t *suites, const struct paper_speed *speed)
{
	const struct plan *p = l->plan;
	struct cost all = {0}, line = {0};
	char name[96] = "", suite[64];
	int tasks = 0;
	for (int i = 0; i < p->protocols.n; i++) {
		for (int t = 0; t < p->n_tasks; t++) {
			suite_of(p->tasks[t].name, suite);
			for (int k = 0; k < p->tasks[t].lengths.n; k++) {
				double length = p->tasks[t].lengths.v[k];
				struct work w = work_of(suites, &p->tasks[t], length);
				struct cost c = cost_of(l, &p->tasks[t], &w, length, p->protocols.v[i]);
				cost_add(&line, &c);
				tasks += k == 0;
			}
			char next[64] = "";
			if (t + 1 < p->n_tasks)
				suite_of(p->tasks[t + 1].name, next);
			if (!strcmp(suite, next))
				continue;
			snprintf(name, sizeof name, "%s %s", suite, p->protocols.v[i]);
			print_cost(name, tasks, &line, speed);
			cost_add(&all, &line);
			line = (struct cost){0};
			tasks = 0;
		}
	}
	return all;
}

static int print_pair(const struct plan *p, const struct plan_pair *pair, const json_t *suites, const struct paper_speed *speed,
	struct cost *total, char err[ERR_LEN])
{
	struct load l = {.plan = p};
	if (read_shape(suites, pair->target, p->models, &l.target, err) ||
		(pair->proxy && read_shape(suites, pair->proxy, p->models, &l.proxy, err)))
		return -1;
	printf("%s%s%s, bf16: %.0f layers x %.0f KV heads x %.0f, %.2f G weights, %.0f bytes of KV a token\n", pair->target,
		pair->proxy ? " with " : "", pair->proxy ? pair->proxy : "", l.target.layers, l.target.kv_heads,
		l.target.head_dim, l.target.total_weights / 1e9, kv_bytes_per_token(&l.target));
	printf("  %-34s %5s %6s %9s %14s %14s  %s\n", "suite", "tasks", "cells", "samples", "to prefill", "to decode", "time");
	struct cost all = print_lines(&l, suites, speed);
	print_cost("all", p->n_tasks, &all, speed);
	print_memory(&l, &all, pair->proxy != NULL);
	cost_add(total, &all);
	return 0;
}

int paper_estimate(const struct plan *p, const struct paper_speed *speed, char err[ERR_LEN])
{
	json_t *suites = json_loads(paper_suites, 0, NULL);
	struct cost total = {0};
	char took[48];
	int rc = 0;
	for (int i = 0; i < p->n_pairs && !rc; i++)
		rc = print_pair(p, &p->pairs[i], suites, speed, &total, err);
	json_decref(suites);
	if (rc)
		return -1;
	duration_text(cost_sec(&total, speed), took, sizeof took);
	printf("%.0f cells, %.0f samples, %.0f tokens to prefill, %.0f to decode at the most; %.3g FLOP, %.3g bytes read\n"
	       "time about %s at %g TFLOP/s and %g GB/s (--tflops, --gbytes): an order of size, from the models' shapes and the "
	       "suites' mean "
	       "lengths\n",
		total.cells, total.samples, total.prefill_tokens, total.answer_tokens, total.flop, total.bytes, took,
		speed->tflops, speed->gbytes);
	return 0;
}
