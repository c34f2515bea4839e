/* timing.c: see timing.h. */
#include "harness/timing.h"

#include "harness/environment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	size_t at;
} phases[] = {
	{"prefill", offsetof(struct runner_timing, prefill_ns)},
	{"score", offsetof(struct runner_timing, score_ns)},
	{"select", offsetof(struct runner_timing, select_ns)},
	{"compact", offsetof(struct runner_timing, compact_ns)},
	{"question", offsetof(struct runner_timing, question_ns)},
	{"first_token", offsetof(struct runner_timing, first_token_ns)},
	{"ttft", offsetof(struct runner_timing, ttft_ns)},
	{"second_ttft", offsetof(struct runner_timing, second_ttft_ns)},
	{"decode", offsetof(struct runner_timing, decode_ns)},
	{"second_pass", offsetof(struct runner_timing, second_pass_ns)},
	{"proxy_prefill", offsetof(struct runner_timing, proxy_prefill_ns)},
	{"mapper", offsetof(struct runner_timing, mapper_ns)},
	{"wait", offsetof(struct runner_timing, wait_ns)},
	{"allocate", offsetof(struct runner_timing, allocate_ns)},
	{"gather", offsetof(struct runner_timing, gather_ns)},
};
/* The parts and the whole by the device's own clock. */
static const struct {
	const char *name;
	size_t at;
} device_phases[] = {
	{"prefill", offsetof(struct runner_device_time, prefill_ns)},
	{"score", offsetof(struct runner_device_time, score_ns)},
	{"select", offsetof(struct runner_device_time, select_ns)},
	{"compact", offsetof(struct runner_device_time, compact_ns)},
	{"question", offsetof(struct runner_device_time, question_ns)},
	{"first_token", offsetof(struct runner_device_time, first_token_ns)},
	{"ttft", offsetof(struct runner_device_time, ttft_ns)},
};
enum { DEVICE_PHASES = sizeof device_phases / sizeof *device_phases };
enum { PHASES = sizeof phases / sizeof *phases, DETAILS = 9 }; /* from DETAILS on: stored only where the method has them */

static bool text_among(const char *text, const struct texts *list)
{
	for (int i = 0; i < list->n; i++) {
		if (!strcmp(list->v[i], text))
			return true;
	}
	return false;
}

static bool number_among(double x, const struct numbers *list)
{
	for (int i = 0; i < list->n; i++) {
		if (fabs(list->v[i] - x) < 5e-7)
			return true;
	}
	return false;
}

static double longest(const struct numbers *lengths)
{
	double max = 0;
	for (int i = 0; i < lengths->n; i++)
		max = fmax(max, lengths->v[i]);
	return max;
}

bool timing_takes_group(const struct plan *p, const struct sweep_group *g)
{
	const struct plan_timing *t = &p->timing;
	if (!t->enabled || (t->protocols.n && !text_among(g->protocol, &t->protocols)))
		return false;
	if (t->tasks.n ? !text_among(g->task->name, &t->tasks) : g->task != &p->tasks[0])
		return false;
	double length = (double)g->length_tokens;
	return t->lengths.n ? number_among(length, &t->lengths) : length == longest(&g->task->lengths);
}

bool timing_takes_variant(const struct plan *p, int variant)
{
	const struct plan_variant *v = &p->variants[variant];
	return !strcmp(p->methods[v->method].name, "full") || !p->timing.retained.n ||
	       number_among(v->retained, &p->timing.retained);
}

/* The group's variants that take part, and what was measured of them. */
struct rounds {
	struct sweep *s;
	const struct sweep_group *g;
	int *variants, n;
	bool *dropped; /* [n]: failed, takes no further part */
	struct store_timing *rows;
	size_t n_rows;
	struct store_memory *memory;
	size_t n_memory;
	struct beside { /* [n] what is known of a variant's repetitions beside their times */
		double prefill_flops, second_pass_flops; /* arithmetic of one; 0 = none */
		int64_t waited_ns, wall_ns; /* all but warm-up; threads without a core (negative = not known), the clock */
	} *beside;
};

static void add_row(struct rounds *r, int variant, const struct runner_timing *t, int round, const char *phase, const char *clock,
	int64_t duration_ns)
{
	int warmup = r->s->plan->timing.warmup;
	r->rows = mem_grow(r->rows, r->n_rows + 1, sizeof *r->rows);
	r->rows[r->n_rows++] = (struct store_timing){
		.cell_id = r->g->cell_ids[variant],
		.run_id = r->s->run_id,
		.phase = phase,
		.repetition = round < warmup ? round : round - warmup,
		.warmup = round < warmup,
		.clock = clock,
		.duration_ns = duration_ns,
		.tokens = strcmp(phase, "decode") ? t->context_tokens : t->decode_tokens,
		.peak_bytes = t->peak_bytes,
		.kv_bytes_before = t->kv_bytes_before,
		.kv_bytes_after = t->kv_bytes_after,
	};
}

static void add_rows(struct rounds *r, int variant, const struct runner_timing *t, int round)
{
	for (int i = 0; i < PHASES; i++) {
		int64_t duration_ns = *(const int64_t *)((const char *)t + phases[i].at);
		if (i < DETAILS || duration_ns)
			add_row(r, variant, t, round, phases[i].name, "host", duration_ns);
	}
	for (int i = 0; i < DEVICE_PHASES && t->device.ttft_ns; i++)
		add_row(r, variant, t, round, device_phases[i].name, "cuda_event", *(const int64_t *)((const char *)&t->device + device_phases[i].at));
}

static void add_memory(struct rounds *r, int variant, const char *part, int device, int64_t bytes)
{
	if (bytes <= 0)
		return;
	r->memory = mem_grow(r->memory, r->n_memory + 1, sizeof *r->memory);
	r->memory[r->n_memory++] = (struct store_memory){r->g->cell_ids[variant], r->s->run_id, part, device, bytes};
}

/* start, waited: clocks before the repetition (clock_ns, environment_waited_ns; waited negative = not known). */
static void add_beside(struct rounds *r, int i, const struct runner_timing *t, int64_t start, int64_t waited, int round)
{
	struct beside *b = &r->beside[i];
	b->prefill_flops = t->prefill_flops;
	b->second_pass_flops = t->second_pass_flops;
	if (round < r->s->plan->timing.warmup)
		return;
	b->wall_ns += clock_ns() - start;
	b->waited_ns = waited < 0 || b->waited_ns < 0 ? -1 : b->waited_ns + environment_waited_ns() - waited;
}

/* What must never pass quietly: a cache that was not empty, parts that are not the whole. */
static int check_window(const struct runner_timing *t, int64_t prefilled_tokens, char err[ERR_LEN])
{
	int64_t parts = t->prefill_ns + t->score_ns + t->select_ns + t->compact_ns + t->question_ns + t->first_token_ns;
	if (prefilled_tokens < t->context_tokens)
		return err_set(err, "a cache was reused: %lld of %d context tokens were prefilled", (long long)prefilled_tokens,
			t->context_tokens);
	if (llabs(parts - t->ttft_ns) > t->ttft_ns / 50)
		return err_set(err, "the parts sum to %lld ns, the whole is %lld ns", (long long)parts, (long long)t->ttft_ns);
	return 0;
}

/* A variant that lost the device was alone with it: charged at once, and not timed again by this run. */
static int timing_lost(struct rounds *r, int variant, const char *kind)
{
	struct lost *l = &r->s->lost;
	snprintf(l->device, sizeof l->device, "%s", runner_info(r->s->runner)->device);
	lost_alone(l, r->s->plan, r->s->plan->variants[variant].method, kind, r->g->cell_ids[variant]);
	return *l->why ? SWEEP_GIVEN_UP : SWEEP_LOST;
}

/* One repetition of one variant. A variant that cannot be timed is noted once and left out of the later rounds. SWEEP_*. */
static int time_one(struct rounds *r, const struct runner_job *job, int i, int round)
{
	struct sweep *s = r->s;
	struct runner_timing t = {0};
	char err[ERR_LEN] = "", name[128];
	int64_t before = runner_counters(s->runner).prefill_tokens, waited = environment_waited_ns(), start = clock_ns();
	if (!runner_time(s->runner, job, r->variants[i], s->plan->timing.decode_tokens, &t, err) &&
		!check_window(&t, runner_counters(s->runner).prefill_tokens - before, err)) {
		add_rows(r, r->variants[i], &t, round);
		add_beside(r, i, &t, start, waited, round);
		add_memory(r, r->variants[i], "total", 0, t.peak_bytes - t.proxy_peak_bytes);
		add_memory(r, r->variants[i], "proxy", 1, t.proxy_peak_bytes);
		add_memory(r, r->variants[i], "proxy after scoring", 1, t.proxy_after_bytes);
		lost_answered(&s->lost, s->plan->variants[r->variants[i]].method);
		return SWEEP_DONE;
	}
	r->dropped[i] = true;
	sweep_group_name(r->g, name, sizeof name);
	sweep_note(s, "timing %s: %s at r = %g: %s", name, job->variants[r->variants[i]].method,
		job->variants[r->variants[i]].retained, err);
	s->sum.timings_failed++;
	const char *lost = runner_lost(s->runner);
	return lost ? timing_lost(r, r->variants[i], lost) : SWEEP_DONE;
}

/* Rounds over all variants; the order is rotated by one each round. SWEEP_*: anything but SWEEP_DONE ends the group without a row. */
static int run_rounds(struct rounds *r, const struct runner_job *job)
{
	struct sweep *s = r->s;
	int n_rounds = s->plan->timing.warmup + s->plan->timing.repetitions;
	for (int round = 0; round < n_rounds; round++) {
		for (int k = 0; k < r->n; k++) {
			int i = (round + k) % r->n;
			if (s->stop())
				return SWEEP_STOPPED;
			progress_phase(s->progress, "timing", round * r->n + k, n_rounds * r->n);
			int rc = r->dropped[i] ? SWEEP_DONE : time_one(r, job, i, round);
			if (rc)
				return rc;
			progress_add(s->progress, r->g->longest_tokens);
		}
	}
	return SWEEP_DONE;
}

static int find_ok(void *user, const struct score_row *r)
{
	*(bool *)user = !strcmp(r->status, "ok");
	return *(bool *)user;
}

/* Only what answered is timed: a method that does not apply here, or never fits, has nothing to time. */
static bool has_answers(struct store *store, const char *cell_id)
{
	bool ok = false;
	char err[ERR_LEN];
	store_samples(store, cell_id, find_ok, &ok, err);
	return ok;
}

/* Fills variants; returns whether any cell lacks its repetitions. */
static bool choose_variants(struct rounds *r)
{
	const struct plan *p = r->s->plan;
	bool missing = false;
	for (int v = 0; v < p->n_variants; v++) {
		if (!timing_takes_variant(p, v) || !has_answers(r->s->store, r->g->cell_ids[v]) ||
			lost_set_aside(&r->s->lost, p->variants[v].method) || lost_untimed(&r->s->lost, r->g->cell_ids[v]))
			continue;
		r->variants[r->n++] = v;
		missing = missing || store_count_timings(r->s->store, r->g->cell_ids[v]) < p->timing.repetitions;
	}
	return missing;
}

static int put_fact(struct rounds *r, int i, const char *name, double value, char err[ERR_LEN])
{
	struct store_fact f = {r->g->cell_ids[r->variants[i]], r->s->run_id, name, (int64_t)value};
	return store_put_fact(r->s->store, &f, err);
}

/* Floors: arithmetic at the peak (FLOP/s) that was measured beside it; 0 = not known. */
static int put_facts(struct rounds *r, double peak, char err[ERR_LEN])
{
	int rc = 0;
	for (int i = 0; i < r->n && !rc; i++) {
		const struct beside *b = &r->beside[i];
		if (peak > 0 && b->prefill_flops > 0)
			rc = put_fact(r, i, "prefill_floor_ns", 1e9 * b->prefill_flops / peak, err);
		if (!rc && peak > 0 && b->second_pass_flops > 0)
			rc = put_fact(r, i, "second_pass_floor_ns", 1e9 * b->second_pass_flops / peak, err);
		if (!rc && b->wall_ns > 0 && b->waited_ns >= 0)
			rc = put_fact(r, i, "waited_ppm", 1e6 * (double)b->waited_ns / (double)b->wall_ns, err);
	}
	return rc;
}

static int time_context(struct rounds *r, const struct task_context *c, char err[ERR_LEN])
{
	struct sweep_job j;
	double peak = runner_peak_flops(r->s->runner);
	sweep_job_make(&j, r->s, r->g, c);
	int rc = run_rounds(r, &j.job);
	sweep_job_free(&j);
	if (!rc && r->n_rows)
		rc = store_put_timings(r->s->store, r->rows, r->n_rows, err);
	for (size_t i = 0; i < r->n_memory && !rc; i++)
		rc = store_put_memory(r->s->store, &r->memory[i], err);
	if (!rc)
		rc = put_facts(r, fmax(peak, runner_peak_flops(r->s->runner)), err);
	return rc;
}

static int time_group(struct sweep *s, const struct sweep_group *g, char err[ERR_LEN])
{
	size_t n = (size_t)s->plan->n_variants;
	struct rounds r = {.s = s, .g = g, .variants = mem_new(n, sizeof(int)), .dropped = mem_new(n, sizeof(bool)),
		.beside = mem_new(n, sizeof *r.beside)};
	struct task *task = NULL;
	struct task_context c;
	char why[ERR_LEN];
	int rc = 0;
	if (!choose_variants(&r))
		goto cleanup;
	if (sweep_task_open(s, g, &task, why) || task_context_make(task, 0, &c, why)) {
		sweep_note(s, "timing %s: %s", g->task->name, why);
		s->sum.timings_failed++;
		goto cleanup;
	}
	rc = time_context(&r, &c, err);
	task_context_free(&c);
cleanup:
	task_close(task);
	free(r.variants);
	free(r.dropped);
	free(r.beside);
	free(r.rows);
	free(r.memory);
	return rc;
}

static int timed_variants(const struct plan *p)
{
	int n = 0;
	for (int v = 0; v < p->n_variants; v++)
		n += timing_takes_variant(p, v);
	return n;
}

int timing_run(struct sweep *s, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	int n = timed_variants(p), cells = 0, rc = 0;
	int64_t tokens = 0;
	for (int g = 0; g < s->n_groups; g++) {
		bool takes = timing_takes_group(p, &s->groups[g]);
		cells += takes ? n : 0;
		tokens += takes ? (p->timing.warmup + p->timing.repetitions) * n * s->groups[g].longest_tokens : 0;
	}
	progress_begin(s->progress, cells, tokens);
	for (int g = 0; g < s->n_groups && !rc; g++) {
		if (!timing_takes_group(p, &s->groups[g]))
			continue;
		char name[128], where[160];
		sweep_group_name(&s->groups[g], name, sizeof name);
		snprintf(where, sizeof where, "timing %s", name);
		progress_where(s->progress, where);
		rc = time_group(s, &s->groups[g], err);
		if (!rc)
			progress_cells(s->progress, n);
	}
	return rc;
}
