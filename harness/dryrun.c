/* dryrun.c: see dryrun.h. The time estimate comes from a probe: each method once through the true pipeline on the first context
 * cut short. It leaves out the quadratic part of attention and what batching saves: an order of size, not a promise. */
#include "harness/dryrun.h"

#include "harness/models.h"
#include "harness/timing.h"

#include <stdlib.h>
#include <string.h>

enum { PROBE_TOKENS = 512, PROBE_DECODE = 8 };

struct probe {                         /* ns for each token */
	double prefill, score, decode; /* score: all methods of the plan together */
	double timed;                  /* one round of the timing pass: all timed variants together, for each context token */
	int tokens;                    /* length of the probe; 0 = there was none */
};

static void probe_variant(struct sweep *s, const struct runner_job *job, int v, bool new_method, struct probe *p)
{
	struct runner_timing t = {0};
	char err[ERR_LEN];
	if (runner_time(s->runner, job, v, PROBE_DECODE, &t, err) || t.context_tokens < 1)
		return;
	if (v == 0) { /* the full cache */
		p->prefill = (double)t.prefill_ns / t.context_tokens;
		p->decode = (double)t.decode_ns / PROBE_DECODE;
		p->tokens = t.context_tokens;
	}
	if (new_method)
		p->score += (double)(t.score_ns + t.select_ns) / t.context_tokens;
	if (timing_takes_variant(s->plan, v))
		p->timed += (double)t.ttft_ns / t.context_tokens;
}

static bool on_stop(void *user)
{
	return ((const struct sweep *)user)->stop();
}

static struct probe probe_machine(struct sweep *s, const struct sweep_group *g)
{
	struct probe p = {0};
	struct task *task = NULL;
	struct task_context c;
	char err[ERR_LEN];
	if (!sweep_task_open(s, g, &task, err) && !task_context_make(task, 0, &c, err)) {
		c.text[runner_cut_tokens(s->runner, c.text, strlen(c.text), PROBE_TOKENS)] = 0;
		c.drop_tokens = 0;
		struct sweep_job j;
		sweep_job_make(&j, s, g, &c);
		j.job.user = s;
		j.job.stop = on_stop;
		for (int v = 0; v < s->plan->n_variants && !s->stop(); v++) {
			bool new_method = v == 0 || s->plan->variants[v].method != s->plan->variants[v - 1].method;
			if (new_method || timing_takes_variant(s->plan, v))
				probe_variant(s, &j.job, v, new_method, &p);
		}
		sweep_job_free(&j);
		task_context_free(&c);
	}
	task_close(task);
	return p;
}

static double group_sec(const struct sweep *s, const struct sweep_group *g, const struct probe *p)
{
	double ns = (double)g->missing.prefill_tokens * (p->prefill + p->score) + (double)g->missing.answer_tokens * p->decode;
	if (timing_takes_group(s->plan, g))
		ns += (s->plan->timing.warmup + s->plan->timing.repetitions) * p->timed * (double)g->longest_tokens;
	return ns / 1e9;
}

static void print_group(const struct sweep *s, const struct sweep_group *g)
{
	char name[128];
	sweep_group_name(g, name, sizeof name);
	int samples = g->samples * s->plan->n_variants;
	printf("  %-36s %6d %8d %8d %12lld %12lld%s\n", name, s->plan->n_variants, samples, samples - g->missing.answers,
		(long long)g->missing.prefill_tokens, (long long)g->missing.answer_tokens,
		timing_takes_group(s->plan, g) ? "  timed" : "");
}

static int print_load(struct sweep *s, char err[ERR_LEN])
{
	(void)err;
	const struct runner_info *i = runner_info(s->runner);
	char *name = models_name(s->pair->target, s->runner);
	if (!s->progress->quiet)
		models_tell_device(s->runner, s->plan->device);
	printf("%s, %s, template %s: %d layers x %d KV heads x %d\n", name, s->precision, i->chat_template, i->layers,
		i->kv_heads, i->head_dim);
	free(name);
	printf("  %-36s %6s %8s %8s %12s %12s\n", "group", "cells", "samples", "present", "to prefill", "to decode");
	for (int g = 0; g < s->n_groups; g++)
		print_group(s, &s->groups[g]);
	sweep_print_memory(s, stdout);
	if (!s->n_groups)
		return 0;
	struct probe p = probe_machine(s, &s->groups[0]);
	if (s->stop()) /* a part of a probe says nothing */
		return SWEEP_STOPPED;
	double sec = 0;
	char text[48];
	for (int g = 0; g < s->n_groups; g++)
		sec += group_sec(s, &s->groups[g], &p);
	duration_text(sec, text, sizeof text);
	if (p.tokens)
		printf("  time about %s (answers at their longest, from a probe of %d tokens)\n", text, p.tokens);
	return 0;
}

int dryrun_print(struct sweep *s, char err[ERR_LEN])
{
	int rc = sweep_each_load(s, print_load, err);
	if (rc == SWEEP_STOPPED)
		return rc;
	printf("%d cells, %d samples, %d of them present, %d to do\n", s->sum.cells, s->sum.samples,
		s->sum.samples - s->sum.missing, s->sum.missing);
	return rc;
}
