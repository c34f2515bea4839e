/* gate.c: judges a night by its baseline (ecosystem.md section 7). See compare.h.
 *
 * A regression is a change for the worse whose interval excludes 0, whose Holm-adjusted p is below alpha and whose size passes
 * the margin. What the baseline has and tonight has not is incomplete, also a value that is not a number. A refusal (other
 * prompts, another scorer) is a matter of configuration. All else worth knowing is a notice. Does not: know where baselines are
 * kept, run git, print. */
#include "results/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct compare_rules gate_rules = {.alpha = .01, .score = .01, .ratio = .06, .time = .30, .busy = .15, .waited = .10};

static struct gate_alert *add(
	struct gate *g, const char *level, const char *kind, const char *cell_id, const char *label, char *message)
{
	if (g->n_alerts == g->cap_alerts) {
		g->cap_alerts = g->cap_alerts ? 2 * g->cap_alerts : 16;
		g->alerts = mem_grow(g->alerts, (size_t)g->cap_alerts, sizeof *g->alerts);
	}
	struct gate_alert *a = &g->alerts[g->n_alerts++];
	*a = (struct gate_alert){.row = {.level = level,
					 .kind = text_copy(kind),
					 .cell_id = text_copy(cell_id),
					 .label = text_copy(label),
					 .message = message,
					 .old = NAN,
					 .new_ = NAN,
					 .lo = NAN,
					 .hi = NAN}};
	return a;
}

void gate_add(struct gate *g, const char *level, const char *kind, const char *cell_id, const char *label, const char *message)
{
	add(g, level, kind, cell_id, label, text_copy(message));
}

static struct gate_alert *add_cell(struct gate *g, const char *level, const char *kind, const struct compared *x, char *message)
{
	struct gate_alert *a = add(g, level, kind, x->b->row.cell_id, x->b->label, message);
	a->cell = x;
	return a;
}

static void set_figures(struct gate_alert *a, double old, double new_, struct interval change, int n)
{
	a->row.old = old;
	a->row.new_ = new_;
	a->row.lo = change.lo;
	a->row.hi = change.hi;
	a->row.n = n;
}

/* ---- accuracy ---- */

static char *score_text(double a, double b, const struct paired *p, double p_holm)
{
	return text_format(
		"score %.4f -> %.4f, change %+.4f [%+.4f, %+.4f], n = %d in %d contexts, %d raised, %d lowered, p = %.2g", a, b,
		p->change.mean, p->change.lo, p->change.hi, p->n, p->clusters, p->higher, p->lower, p_holm);
}

static void judge_score(struct gate *g, const struct compared *x)
{
	if (x->score_verdict == SAME || (x->score_verdict == UNKNOWN && x->score.n == 0))
		return; /* nothing shared: judge_samples has said so */
	if (x->score_verdict == UNKNOWN) {
		add_cell(g, "incomplete", "accuracy", x, text_copy("a score is not a number: cannot be compared"));
		return;
	}
	struct gate_alert *a = add_cell(g, x->score_verdict == WORSE ? "regression" : "notice", "accuracy", x,
		score_text(x->score_a, x->score_b, &x->score, x->score_p));
	set_figures(a, x->score_a, x->score_b, x->score.change, x->score.n);
}

static void judge_pool(struct gate *g, const struct pooled *p)
{
	if (p->verdict != WORSE && p->verdict != BETTER)
		return; /* what cannot be told of a pool was said of its cells */
	struct gate_alert *a = add(g, p->verdict == WORSE ? "regression" : "notice", "accuracy pooled", "", p->label,
		score_text(p->score_a, p->score_b, &p->score, p->score_p));
	a->pool = p;
	set_figures(a, p->score_a, p->score_b, p->score.change, p->score.n);
}

/* ---- speed ---- */

static void judge_time(struct gate *g, const struct compared *x, const char *kind, const struct speed *s, double p,
	enum verdict v, double unit, const char *unit_name)
{
	if (v == UNKNOWN) {
		add_cell(g, "incomplete", kind, x,
			text_copy("too few rounds, or a time that is not a number: cannot be compared"));
		return;
	}
	if (v == SAME)
		return;
	struct gate_alert *a = add_cell(g, v == WORSE ? "regression" : "notice", kind, x,
		text_format("%.4g -> %.4g%s, change %+.1f %% [%+.1f, %+.1f], medians of %d and %d rounds, p = %.2g",
			s->before / unit, s->now / unit, unit_name, 100 * s->change.mean, 100 * s->change.lo, 100 * s->change.hi,
			x->a->n_ttft, x->b->n_ttft, p));
	set_figures(a, s->before, s->now, s->change, s->change.n);
}

static void judge_speed(struct gate *g, const struct comparison *c, const struct compared *x)
{
	if (x->a->n_ttft > 0 && x->b->n_ttft == 0)
		add_cell(g, "incomplete", "timing", x, text_copy("timed in the baseline, not tonight"));
	else if (x->a->n_ttft > 0 && x->a->full && !x->b->full)
		add_cell(g, "incomplete", "timing", x, text_copy("the full cache was not timed in the same process tonight"));
	if (x->ratio_known)
		judge_time(g, x, "ttft ratio", &x->ratio, x->ratio_p, x->ratio_verdict, 1, " x full");
	if (x->time_known && !(x->deviation > c->rules.busy) && !(x->waited > c->rules.waited))
		judge_time(g, x, "ttft", &x->time, x->time_p, x->time_verdict, 1e6, " ms");
}

/* ---- what is not there ---- */

static const struct side_sample *sample_of(const struct side_cell *c, const char *id)
{
	int lo = 0, hi = c->n_samples;
	while (lo < hi) {
		int middle = (lo + hi) / 2, order = strcmp(c->samples[middle].id, id);
		if (order == 0)
			return &c->samples[middle];
		if (order < 0)
			lo = middle + 1;
		else
			hi = middle;
	}
	return NULL;
}

/* Samples the baseline answered and tonight did not; and what tonight itself planned and did not answer. */
static void judge_samples(struct gate *g, const struct compared *x)
{
	int missing = 0, failed = 0, answered = 0;
	const char *why = "";
	for (int i = 0; i < x->a->n_samples; i++) {
		if (!x->a->samples[i].ok)
			continue;
		const struct side_sample *b = sample_of(x->b, x->a->samples[i].id);
		answered++;
		missing += !b;
		failed += b && !b->ok;
		if (b && !b->ok && !*why)
			why = *b->message ? b->message : b->status;
	}
	int unanswered = x->b->row.planned - x->b->row.ok - x->b->row.not_applicable;
	if (missing + failed > 0)
		add_cell(g, "incomplete", "samples", x,
			text_format("of %d samples the baseline answered, tonight %d are missing and %d failed%s%.200s", answered,
				missing, failed, *why ? ": " : "", why))
			->row.n = missing + failed;
	else if (unanswered > 0)
		add_cell(g, "incomplete", "samples", x,
			text_format("%d of %d planned samples are not answered", unanswered, x->b->row.planned))
			->row.n = unanswered;
	if (x->answers_changed_alone > 0)
		add_cell(g, "notice", "answers", x,
			text_format("%d of %d answers differ from the baseline's, with an equal score", x->answers_changed_alone,
				x->score.n))
			->row.n = x->answers_changed_alone;
}

static void judge_unpaired(struct gate *g, const struct comparison *c)
{
	for (int i = 0; i < c->n_only_a; i++)
		add(g, "incomplete", "cell", c->only_a[i]->row.cell_id, c->only_a[i]->label,
			text_copy("in the baseline, not measured tonight"));
	for (int i = 0; i < c->n_only_b; i++)
		add(g, "notice", "cell", c->only_b[i]->row.cell_id, c->only_b[i]->label,
			text_copy("new tonight: the baseline has no such cell"));
}

static void judge_run(struct gate *g, const struct side *night)
{
	const struct side_run *r = side_newest_run(night);
	if (r && r->row.ended_unix_ms == 0)
		gate_add(g, "incomplete", "run", "", "", "the newest run did not end: it was killed, or still works");
	else if (r && r->row.exit_code != 0) {
		char text[80];
		snprintf(text, sizeof text, "the newest run ended with exit code %d", r->row.exit_code);
		gate_add(g, "incomplete", "run", "", "", text);
	}
}

/* ---- what the gate cannot see, or did not look at ---- */

static void note_settings(struct gate *g, const struct comparison *c)
{
	for (int i = 0; i < c->n_unlike; i++)
		add(g, "notice", "setting", "", "", compare_unlike_text(c, &c->unlike[i], "baseline", "tonight"));
}

static void note_machines(struct gate *g, const struct comparison *c)
{
	const struct side_run *a = side_newest_run(c->a), *b = side_newest_run(c->b);
	if (c->same_machine || !a || !b)
		return;
	add(g, "notice", "machine", "", "",
		text_format("absolute times are not compared: the baseline ran on %s; tonight on %s", a->row.machine,
			b->row.machine));
}

static void note_busy(struct gate *g, const struct comparison *c)
{
	double most = 0;
	int cells = 0;
	for (int i = 0; i < c->n_cells; i++) {
		bool busy = c->cells[i].time_known && c->cells[i].deviation > c->rules.busy && !(c->cells[i].waited > c->rules.waited);
		cells += busy;
		most = busy ? fmax(most, c->cells[i].deviation) : most;
	}
	if (cells > 0)
		add(g, "notice", "machine", "", "",
			text_format("absolute times of %d cells are not judged: their rounds deviate by up to %.0f %% (more than "
				    "%.0f %%): the "
				    "machine had other work",
				cells, 100 * most, 100 * c->rules.busy));
}

/* Steady other work slows all rounds alike and moves the ratio, too: what waits for a core is not the program. */
static void note_waiting(struct gate *g, const struct comparison *c)
{
	double before = 0, now = 0;
	int cells = 0;
	for (int i = 0; i < c->n_cells; i++) {
		if (!(c->cells[i].waited > c->rules.waited))
			continue;
		cells++;
		before = fmax(before, c->cells[i].a->waited); /* NaN gives way */
		now = fmax(now, c->cells[i].b->waited);
	}
	if (cells > 0)
		add(g, "notice", "machine", "", "",
			text_format("threads of %d timed cells waited for a core, all together, up to %.0f %% of the time in the baseline, %.0f %% "
				    "tonight (more than %.0f %%): the machine had other work. Absolute times are not judged there, "
				    "ratios by the margin %.0f %%",
				cells, 100 * before, 100 * now, 100 * c->rules.waited, 100 * fmax(c->rules.ratio, c->rules.time)));
}

/* Of the cells' least changes that would have been told: the best and the worst. */
struct range {
	double least, most;
};

static void widen(struct range *r, double x)
{
	if (isfinite(x)) {
		r->least = fmin(r->least, x);
		r->most = fmax(r->most, x);
	}
}

static void note_power(struct gate *g, const struct comparison *c)
{
	struct range score = {INFINITY, 0}, ratio = {INFINITY, 0};
	for (int i = 0; i < c->n_cells; i++) {
		widen(&score, c->cells[i].detectable);
		widen(&ratio, c->cells[i].ratio_detectable);
	}
	if (isfinite(score.least))
		add(g, "notice", "power", "", "",
			text_format("the smallest drop of a score that would be told (power .8): %.3f in the best cell, %.3f in "
				    "the worst",
				score.least, score.most));
	if (isfinite(ratio.least))
		add(g, "notice", "power", "", "",
			text_format("the smallest rise of TTFT over full that would be told: %.0f %% in the best cell, %.0f %% "
				    "in the worst",
				100 * ratio.least, 100 * ratio.most));
}

static void note_blind(struct gate *g, const struct comparison *c)
{
	int blind = 0, speeds = 0, rounds = 0;
	for (int i = 0; i < c->n_cells; i++)
		speeds += c->cells[i].ratio_known + c->cells[i].time_known;
	for (int i = 0; i < c->n_cells; i++) {
		const struct compared *x = &c->cells[i];
		double p = stats_mann_whitney_least_p(x->a->n_ttft, x->b->n_ttft);
		if (!(x->ratio_known || x->time_known) || p * speeds <= c->rules.alpha)
			continue;
		blind++;
		rounds = x->b->n_ttft;
	}
	if (blind > 0)
		add(g, "notice", "power", "", "",
			text_format(
				"%d cells have too few rounds (%d) for any change of speed to be told among %d figures: raise "
				"timing.repetitions",
				blind, rounds, speeds));
}

/* ---- the whole ---- */

static int rank(const char *level)
{
	return !strcmp(level, "regression") ? 0 : !strcmp(level, "incomplete") ? 1 : 2;
}

void gate_sort(struct gate *g)
{
	for (int i = 1; i < g->n_alerts; i++) { /* stable: what was said first stays first within its level */
		struct gate_alert a = g->alerts[i];
		int k = i;
		for (; k > 0 && rank(g->alerts[k - 1].row.level) > rank(a.row.level); k--)
			g->alerts[k] = g->alerts[k - 1];
		g->alerts[k] = a;
	}
	int worst = g->n_alerts > 0 ? rank(g->alerts[0].row.level) : 2;
	if (g->exit != GATE_USAGE)
		g->exit = worst == 0 ? GATE_REGRESSION : worst == 1 ? GATE_INCOMPLETE : GATE_PASS;
}

static bool measured_nothing(const struct side *s)
{
	for (int i = 0; i < s->n_cells; i++) {
		for (int k = 0; k < s->cells[i].n_samples; k++) {
			if (s->cells[i].samples[k].ok)
				return false;
		}
	}
	return true;
}

void gate_judge(struct gate *g, const struct comparison *c)
{
	if (measured_nothing(c->b))
		gate_add(g, "incomplete", "nothing", "", "", "nothing was measured: no sample is answered");
	else if (c->n_cells == 0)
		gate_add(g, "incomplete", "nothing", "", "", "nothing of the baseline was measured: no cell has a partner in it");
	for (int i = 0; i < c->n_refusals && c->n_cells > 0; i++) {
		gate_add(g, "incomplete", "not comparable", "", "", c->refusals[i]);
		g->exit = GATE_USAGE;
	}
	judge_run(g, c->b);
	for (int i = 0; i < c->n_cells && g->exit != GATE_USAGE; i++) {
		judge_samples(g, &c->cells[i]);
		judge_score(g, &c->cells[i]);
		judge_speed(g, c, &c->cells[i]);
	}
	for (int i = 0; i < c->n_pools && g->exit != GATE_USAGE; i++)
		judge_pool(g, &c->pools[i]);
	judge_unpaired(g, c);
	note_settings(g, c);
	note_machines(g, c);
	note_busy(g, c);
	note_waiting(g, c);
	note_power(g, c);
	note_blind(g, c);
	gate_sort(g);
}

void gate_free(struct gate *g)
{
	for (int i = 0; i < g->n_alerts; i++) {
		const struct alert_row *r = &g->alerts[i].row;
		const char *const owned[] = {r->kind, r->cell_id, r->label, r->message};
		for (size_t k = 0; k < sizeof owned / sizeof *owned; k++)
			free((char *)owned[k]);
	}
	free(g->alerts);
	*g = (struct gate){0};
}

/* ---- what the history keeps ---- */

static void add_figure(struct figure_row **f, int *n, const struct side_cell *c, const char *figure, double value, int count)
{
	if (!isfinite(value))
		return;
	*f = mem_grow(*f, (size_t)*n + 1, sizeof **f);
	(*f)[(*n)++] = (struct figure_row){c->row.cell_id, figure, c->label, value, count};
}

struct figure_row *gate_figures(const struct side *night, int *n)
{
	struct figure_row *f = NULL;
	*n = 0;
	for (int i = 0; i < night->n_cells; i++) {
		const struct side_cell *c = &night->cells[i];
		double score = 0, *ratio = mem_new((size_t)c->n_ttft + 1, sizeof *ratio);
		int ok = 0;
		for (int k = 0; k < c->n_samples; k++) {
			ok += c->samples[k].ok;
			score += c->samples[k].ok ? c->samples[k].score : 0;
		}
		for (int k = 0; c->full && k < c->n_ttft; k++)
			ratio[k] = c->ttft[k] / c->full->ttft[k];
		add_figure(&f, n, c, "score", ok > 0 ? score / ok : NAN, ok);
		add_figure(&f, n, c, "ttft_ns", stats_quantile(c->ttft, c->n_ttft, .5), c->n_ttft);
		if (c->full && c->full != c)
			add_figure(&f, n, c, "ttft_of_full", stats_quantile(ratio, c->n_ttft, .5), c->n_ttft);
		free(ratio);
	}
	return f;
}
