/* simulate.c: see simulate.h. */
#include "results/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of 16 processes of 9 rounds each on two busy cores, rounds deviated by 4 to 12 % and processes by no more than their rounds
 * explain. The 2 % and 1 % here are what a machine of its own is taken to do. */
const struct simulation simulation_quiet = {.tasks = 2,
	.methods = 4,
	.ratios = 3,
	.contexts = 40,
	.questions = 10,
	.undecided = .04,
	.rounds = 9,
	.round_noise = .02,
	.process_noise = .01,
	.machine_noise = .10,
	.baselines = 20,
	.seed = 1};

/* ---- random numbers: a stream of its own for every purpose, so that a night repeats its baseline's draws ---- */

enum { OUTCOME = 1, NIGHT, TIMES };

static struct rng stream(const struct simulation *m, int purpose, int world, int cell)
{
	return rng_seed(m->seed * 1000003 + (uint64_t)purpose, (uint64_t)world * 4096 + (uint64_t)cell);
}

/* Sum of 12 uniforms: normal enough to three deviations, which is what margins see. */
static double normal(struct rng *rng)
{
	double sum = -6;
	for (int i = 0; i < 12; i++)
		sum += rng_unit(rng);
	return sum;
}

/* ---- a side ---- */

static const char *keep(struct side *s, char *text)
{
	s->strings = mem_grow(s->strings, s->n_strings + 1, sizeof *s->strings);
	return s->strings[s->n_strings++] = text;
}

static int cells_of(const struct simulation *m)
{
	return m->tasks * (1 + m->methods * m->ratios);
}

/* Cells of a task follow each other: full, then method by method. method 0 = full. */
static void place(const struct simulation *m, int cell, int *task, int *method, int *ratio)
{
	int per_task = 1 + m->methods * m->ratios, within = cell % per_task;
	*task = cell / per_task;
	*method = within == 0 ? 0 : 1 + (within - 1) / m->ratios;
	*ratio = within == 0 ? 0 : (within - 1) % m->ratios;
}

static bool planted(const struct simulation *m, int cell)
{
	int task, method, ratio;
	place(m, cell, &task, &method, &ratio);
	return method == 1 && (!m->one_cell || (task == 0 && ratio == 0));
}

static void make_row(struct side *s, const struct simulation *m, int cell)
{
	int task, method, ratio, samples = m->contexts * m->questions;
	place(m, cell, &task, &method, &ratio);
	struct side_cell *c = &s->cells[cell];
	c->row = (struct cell_row){.cell_id = keep(s, text_format("cell%d", cell)),
		.target = "simulated",
		.method = method == 0 ? "full" : keep(s, text_format("method%d", method)),
		.method_params = "{}",
		.task = keep(s, text_format("task%d", task)),
		.task_params = "{}",
		.task_variant = "",
		.metric = "all",
		.protocol = "agnostic",
		.mode = "single",
		.topology = "cpu",
		.precision = "fp32",
		.dtype = "fp32",
		.target_sha256 = "",
		.data_sha256 = "",
		.retained_ppm = method == 0 ? 1000000 : 100000 + 200000 * ratio,
		.planned = samples,
		.ok = samples};
	c->label = keep(s, text_format("task%d method%d ratio %d", task, method, ratio));
	c->params = "";
	c->waited = NAN;
}

/* How likely a sample is right: by its cell, its context, its question. */
static double chance(const struct simulation *m, int cell, struct rng *rng, double context)
{
	int task, method, ratio;
	place(m, cell, &task, &method, &ratio);
	double level = method == 0 ? .97 : .55 + .1 * method + .08 * ratio - .05 * task;
	return fmin(.99, fmax(.01, level + .1 * context + .35 * (rng_unit(rng) - .5)));
}

/* night 0 is the baseline's own: its outcomes. Any other starts from these. */
static void make_samples(struct side *s, const struct simulation *m, int cell, int world, int night)
{
	struct rng outcome = stream(m, OUTCOME, world, cell), now = stream(m, NIGHT, world * 1000 + night, cell);
	struct side_cell *c = &s->cells[cell];
	c->n_samples = m->contexts * m->questions;
	c->samples = mem_new((size_t)c->n_samples, sizeof *c->samples);
	double context = 0, right = 0;
	for (int i = 0; i < c->n_samples; i++) {
		context = i % m->questions == 0 ? normal(&outcome) : context;
		double p = chance(m, cell, &outcome, context);
		bool score = rng_unit(&outcome) < p;
		right += score;
		if (night > 0 && rng_unit(&now) < m->undecided)
			score = rng_unit(&now) < p;
		c->samples[i] = (struct side_sample){.id = keep(s, text_format("s%05d", i)),
			.context = keep(s, text_format("c%d", i / m->questions)),
			.status = "ok",
			.message = "",
			.answer_ids = score ? "[1]" : "[0]",
			.prompt_sha256 = "same",
			.score = score,
			.scorer_version = 1,
			.ok = true};
	}
	/* a loss: so many of the right answers, wherever they are, become wrong */
	double wrong = night > 0 && planted(m, cell) ? m->lost * c->n_samples / right : 0;
	for (int i = 0; i < c->n_samples && wrong > 0; i++) {
		if (c->samples[i].score > 0 && rng_unit(&now) < wrong)
			c->samples[i].score = 0;
	}
}

/* Rounds over the first task's cells: what slows a round down slows all its cells. */
static void make_times(struct side *s, const struct simulation *m, int world, int night)
{
	int timed = 1 + m->methods * m->ratios;
	struct rng rng = stream(m, TIMES, world * 1000 + night, 0);
	double *slow = mem_new((size_t)m->rounds, sizeof *slow);
	for (int k = 0; k < m->rounds; k++)
		slow[k] = m->machine_noise * normal(&rng);
	for (int i = 0; i < timed; i++) {
		struct side_cell *c = &s->cells[i];
		double level = i == 0 ? 1 : 1.1 + .05 * i, process = i == 0 ? 0 : m->process_noise * normal(&rng);
		if (night > 0 && planted(m, i))
			level *= 1 + m->slower;
		c->ttft = mem_new((size_t)m->rounds, sizeof *c->ttft);
		c->n_ttft = m->rounds;
		c->timed_by = "run";
		c->full = &s->cells[0];
		for (int k = 0; k < m->rounds; k++)
			c->ttft[k] = 5e7 * level * exp(slow[k] + process + m->round_noise / sqrt(2) * normal(&rng));
	}
	free(slow);
}

static void make_side(struct side *s, const struct simulation *m, int world, int night)
{
	*s = (struct side){.path = text_copy("simulated"), .n_cells = cells_of(m), .n_runs = 1};
	s->cells = mem_new((size_t)s->n_cells, sizeof *s->cells);
	s->runs = mem_new(1, sizeof *s->runs);
	s->runs[0].row = (struct run_row){"run", "", "", "", "", "machine", false, 1, 2, 0};
	for (int i = 0; i < s->n_cells; i++) {
		make_row(s, m, i);
		make_samples(s, m, i, world, night);
	}
	make_times(s, m, world, night);
}

/* ---- nights ---- */

static bool alarm_of(const struct gate *g, const char *kind)
{
	for (int i = 0; i < g->n_alerts; i++) {
		if (!strcmp(g->alerts[i].row.level, "regression") && !strncmp(g->alerts[i].row.kind, kind, strlen(kind)) &&
			(strcmp(kind, "ttft") != 0 || !strcmp(g->alerts[i].row.kind, "ttft")))
			return true;
	}
	return false;
}

static int judge_one(const struct side *before, const struct side *now, const struct compare_rules *rules, struct simulated *out,
	char err[ERR_LEN])
{
	struct comparison c;
	struct gate g = {0};
	compare_make(&c, before, now, rules);
	gate_judge(&g, &c);
	int exit = (int)g.exit, rc = 0;
	out->nights++;
	out->alarms += exit == GATE_REGRESSION;
	out->accuracy += alarm_of(&g, "accuracy");
	out->ratio += alarm_of(&g, "ttft ratio");
	out->time += alarm_of(&g, "ttft");
	if (exit != GATE_PASS && exit != GATE_REGRESSION)
		rc = err_set(err, "a simulated night ended with %d: %.300s", exit, g.n_alerts ? g.alerts[0].row.message : "");
	gate_free(&g);
	compare_free(&c);
	return rc;
}

int simulate_nights(
	const struct simulation *m, int nights, const struct compare_rules *rules, struct simulated *out, char err[ERR_LEN])
{
	int rc = 0, worlds = m->baselines < nights ? m->baselines : nights;
	*out = (struct simulated){0};
	for (int w = 0; w < worlds && rc == 0; w++) {
		struct side before, now;
		make_side(&before, m, w, 0);
		for (int i = w; i < nights && rc == 0; i += worlds) {
			make_side(&now, m, w, 1 + i / worlds);
			rc = judge_one(&before, &now, rules, out, err);
			side_free(&now);
		}
		side_free(&before);
	}
	return rc;
}
