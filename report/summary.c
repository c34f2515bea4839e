/* summary.c: see summary.h. "Above" and "below" always mean disjoint 95 % intervals. */
#include "report/summary.h"

#include "results/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct notes *n, char *text)
{
	n->text = mem_grow(n->text, (size_t)n->n + 1, sizeof *n->text);
	n->text[n->n++] = text;
}

void notes_free(struct notes *n)
{
	for (int i = 0; i < n->n; i++)
		free(n->text[i]);
	free(n->text);
	*n = (struct notes){0};
}

/* ---- numbers in words ---- */

const char *format_ratio(char *buf, int ppm)
{
	snprintf(buf, 64, "%g", ppm / 1e6);
	return buf;
}

const char *format_score(char *buf, double v)
{
	if (isnan(v))
		return "–";
	snprintf(buf, 64, "%.2f", v);
	return buf;
}

const char *format_interval(char *buf, struct interval i)
{
	if (isnan(i.lo))
		return format_score(buf, i.mean);
	snprintf(buf, 64, "%.2f [%.2f, %.2f]", i.mean, i.lo, i.hi);
	return buf;
}

const char *format_points(char *buf, double v)
{
	if (isnan(v))
		return "–";
	double tenths = round(1000 * v);
	snprintf(buf, 32, "%s%.1f", tenths > 0 ? "+" : tenths < 0 ? "−" : "", fabs(tenths) / 10);
	return buf;
}

const char *format_duration(char *buf, double seconds)
{
	long s = lround(seconds);
	if (s < 60)
		snprintf(buf, 64, "%ld s", s);
	else if (s < 3600)
		snprintf(buf, 64, "%ld min %02ld s", s / 60, s % 60);
	else
		snprintf(buf, 64, "%ld h %02ld min", s / 3600, s % 3600 / 60);
	return buf;
}

const char *format_time(char *buf, double ns)
{
	if (isnan(ns) || ns == 0)
		return ns == 0 ? "0" : "–";
	double v = ns < 1e6 ? ns / 1e3 : ns < 1e9 ? ns / 1e6 : ns / 1e9;
	snprintf(buf, 64, "%.*f %s", v < 10 ? 2 : v < 100 ? 1 : 0, v, ns < 1e6 ? "µs" : ns < 1e9 ? "ms" : "s");
	return buf;
}

const char *format_bytes(char *buf, int64_t bytes)
{
	static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
	double v = (double)bytes;
	int u = 0;
	if (bytes == 0)
		return "–";
	for (; v >= 1000 && u < 4; u++)
		v /= 1000;
	snprintf(buf, 64, "%.*f %s", u == 0 || v >= 100 ? 0 : v >= 10 ? 1 : 2, v, unit[u]);
	return buf;
}

struct totals summary_totals(const struct data *d)
{
	struct totals t = {.cells = d->n_cells};
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell_row *r = &d->cells[i].row;
		int missing = r->planned - r->ok - r->failed - r->oom - r->not_applicable;
		t.complete += r->ok + r->not_applicable >= r->planned;
		t.planned += r->planned;
		t.ok += r->ok;
		t.failed += r->failed;
		t.oom += r->oom;
		t.not_applicable += r->not_applicable;
		t.missing += missing > 0 ? missing : 0;
		t.empty += r->empty;
		t.length_finish += r->length_finish;
	}
	return t;
}

/* ---- findings ---- */

/* Cells of a panel at one ratio that are no controls and have a score, best first. Caller frees. */
static const struct cell **methods_at(const struct data *d, int panel, int ppm, int *n)
{
	const struct cell **list = mem_new((size_t)d->n_variants, sizeof(struct cell *));
	*n = 0;
	for (int v = 0; v < d->n_variants; v++) {
		const struct cell *c = data_cell(d, panel, v, ppm);
		if (!c || d->variants[v].colour < 0 || c->score.n == 0)
			continue;
		int at = (*n)++;
		for (; at > 0 && list[at - 1]->score.mean < c->score.mean; at--)
			list[at] = list[at - 1];
		list[at] = c;
	}
	return list;
}

enum standing { ABOVE, NEAR, BELOW };

static enum standing compare(const struct cell *c, const struct cell *with)
{
	if (!stats_disjoint(c->score, with->score))
		return NEAR;
	return c->score.mean > with->score.mean ? ABOVE : BELOW;
}

/* "kvzip 0.98 [0.90, 1.00], tova 0.91 [...]": those of the list on one side of the control. Returns how many. */
static int list_side(
	struct strbuf *b, const struct data *d, const struct cell **list, int n, const struct cell *control, enum standing side)
{
	char text[64];
	int found = 0;
	for (int i = 0; i < n; i++) {
		if (compare(list[i], control) != side)
			continue;
		strbuf_printf(b, "%s%s %s", found++ ? ", " : "", d->variants[list[i]->variant].label,
			side == NEAR ? format_score(text, list[i]->score.mean) : format_interval(text, list[i]->score));
	}
	return found;
}

static void sentence_begin(struct strbuf *b, const struct data *d, int panel, int ppm)
{
	char r[64];
	const struct panel *p = &d->panels[panel];
	strbuf_printf(b, "%s at r = %s, %s: ", p->title, format_ratio(r, ppm), p->row->protocol);
}

/* Methods against random, and the full cache's own score. NULL when there is nothing to say. */
static char *accuracy_sentence(const struct data *d, int panel, int ppm)
{
	int n;
	const struct cell **list = methods_at(d, panel, ppm, &n);
	const struct cell *random = data_random(d, panel, ppm), *full = data_full(d, panel);
	struct strbuf b = {0}, part = {0};
	char text[64];
	if (n == 0 || !random || random->score.n == 0)
		goto cleanup;
	sentence_begin(&b, d, panel, ppm);
	int above = list_side(&part, d, list, n, random, ABOVE);
	strbuf_printf(&b, "%s %s above random %s", above ? part.text : "no method", above > 1 ? "stand" : "stands",
		format_interval(text, random->score));
	strbuf_puts(&b, above ? ", intervals disjoint" : "");
	strbuf_free(&part);
	if (list_side(&part, d, list, n, random, NEAR) > 0)
		strbuf_printf(&b, "; %s cannot be told from random", part.text);
	strbuf_free(&part);
	if (list_side(&part, d, list, n, random, BELOW) > 0)
		strbuf_printf(&b, "; below random: %s", part.text);
	if (full && full->score.n > 0)
		strbuf_printf(&b, ". Full cache: %s", format_interval(text, full->score));
	strbuf_puts(&b, ".");
cleanup:
	strbuf_free(&part);
	free(list);
	return b.text;
}

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The panel that differs from this agnostic one only in the protocol, or -1. */
static int aware_twin(const struct data *d, int panel)
{
	const struct cell_row *a = d->panels[panel].row;
	for (int i = 0; i < d->n_panels && strcmp(a->protocol, "agnostic") == 0; i++) {
		const struct cell_row *b = d->panels[i].row;
		if (strcmp(b->protocol, "aware") == 0 && same(a->target, b->target) && same(a->task, b->task) &&
			same(a->metric, b->metric) && same(a->task_params, b->task_params) && same(a->mode, b->mode) &&
			same(a->topology, b->topology) && same(a->precision, b->precision) && same(a->dtype, b->dtype) &&
			a->context_tokens == b->context_tokens && a->seed == b->seed)
			return i;
	}
	return -1;
}

/* What seeing the question before pruning changes. */
static char *protocol_sentence(const struct data *d, int panel, int ppm)
{
	int n, twin = aware_twin(d, panel), differ = 0, alike = 0;
	if (twin < 0)
		return NULL;
	const struct cell **list = methods_at(d, twin, ppm, &n);
	struct strbuf b = {0};
	char r[64], aware[64], agnostic[64];
	strbuf_printf(&b, "%s at r = %s, question seen before pruning or not: ", d->panels[panel].title, format_ratio(r, ppm));
	for (int i = 0; i < n; i++) {
		const struct cell *blind = data_cell(d, panel, list[i]->variant, ppm);
		if (!blind || blind->score.n == 0)
			continue;
		if (!stats_disjoint(blind->score, list[i]->score)) {
			alike++;
			continue;
		}
		strbuf_printf(&b, "%s%s: aware %s against agnostic %s", differ++ ? "; " : "", d->variants[list[i]->variant].label,
			format_interval(aware, list[i]->score), format_interval(agnostic, blind->score));
	}
	if (alike && differ)
		strbuf_printf(&b, "; no difference beyond error for the other %d", alike);
	else if (alike)
		strbuf_printf(&b, "no difference beyond error for any of %d methods", alike);
	strbuf_puts(&b, ".");
	free(list);
	if (differ + alike == 0)
		strbuf_free(&b);
	return b.text;
}

/* Cells of a panel at one ratio that have a ratio to full, fastest first; controls but full included. Caller frees. */
static const struct cell **timed_at(const struct data *d, int panel, int ppm, int *n)
{
	const struct cell **list = mem_new((size_t)d->n_variants, sizeof(struct cell *));
	*n = 0;
	for (int v = 0; v < d->n_variants; v++) {
		const struct cell *c = data_cell(d, panel, v, ppm);
		if (!c || d->variants[v].full || isnan(data_ttft_ratio(d, c)))
			continue;
		int at = (*n)++;
		for (; at > 0 && list[at - 1]->time[TTFT].median > c->time[TTFT].median; at--)
			list[at] = list[at - 1];
		list[at] = c;
	}
	return list;
}

/* The full cache's time to first token and the methods' as multiples of it. */
static char *time_sentence(const struct data *d, int panel)
{
	int ppm = data_timed_ppm(d, panel), n;
	const struct cell *full = data_full(d, panel);
	const struct cell **list = timed_at(d, panel, ppm, &n);
	struct strbuf b = {0};
	char text[64];
	for (int i = 0; i < n; i++) {
		const struct spread *t = list[i]->time;
		if (i == 0) {
			sentence_begin(&b, d, panel, ppm);
			strbuf_printf(&b, "time to first token %s with the full cache (median of %d); ",
				format_time(text, full->time[TTFT].median), full->time[TTFT].n);
		}
		strbuf_printf(&b, "%s%s %.2f×", i ? ", " : "", d->variants[list[i]->variant].label, data_ttft_ratio(d, list[i]));
		if (t[SCORE].median > .2 * t[TTFT].median)
			strbuf_printf(&b, " (%.0f %% of it scoring)", 100 * t[SCORE].median / t[TTFT].median);
	}
	if (n > 0)
		strbuf_puts(&b, ".");
	free(list);
	return b.text;
}

/* r = 1 must be the full cache, answer for answer. Counts cells compared and answers that differ. */
struct identity {
	int cells, answers, differ;
};

static struct identity compare_with_full(const struct data *d, const struct cell *c)
{
	struct identity id = {1, 0, 0};
	const struct cell *full = data_full(d, c->panel);
	for (int i = 0; i < c->n_samples; i++) {
		const struct sample *f = cell_sample(full, c->samples[i].id);
		if (!f || !f->ok || !c->samples[i].ok)
			continue;
		id.answers++;
		id.differ += strcmp(f->answer, c->samples[i].answer) != 0;
	}
	return id;
}

static bool should_equal_full(const struct data *d, const struct cell *c)
{
	return c->row.retained_ppm == 1000000 && !d->variants[c->variant].full && data_full(d, c->panel);
}

static void identity_sentence(const struct data *d, struct notes *out)
{
	struct identity sum = {0};
	for (int i = 0; i < d->n_cells; i++) {
		if (!should_equal_full(d, &d->cells[i]))
			continue;
		struct identity id = compare_with_full(d, &d->cells[i]);
		sum.cells += id.cells;
		sum.answers += id.answers;
		sum.differ += id.differ;
	}
	if (sum.answers > 0 && sum.differ == 0)
		add(out, text_format("At r = 1 all %d answers (%d cells) equal the full cache's.", sum.answers, sum.cells));
}

static void add_if(struct notes *out, char *text)
{
	if (text)
		add(out, text);
}

void summary_findings(const struct data *d, struct notes *main, struct notes *more)
{
	int ppm = d->reference_ppm;
	for (int kind = 0; kind < 3; kind++) {
		for (int p = 0; p < d->n_panels; p++) {
			bool longest = p + 1 == d->n_panels || d->panels[p + 1].figure != d->panels[p].figure;
			struct notes *to = longest ? main : more;
			add_if(to, kind == 0   ? accuracy_sentence(d, p, ppm)
				   : kind == 1 ? protocol_sentence(d, p, ppm)
					       : time_sentence(d, p));
		}
	}
	identity_sentence(d, main);
}

/* ---- flags ---- */

enum { PLACES = 3 }; /* named in full; further ones are counted */

/* One kind of trouble over many cells. */
struct tally {
	int n;
	bool one_method; /* named before the places already */
	bool one_reason; /* a detail that several places share stands behind the last of them */
	char shared[256];
	struct strbuf places;
};

/* Adds "TITLE, PROTOCOL, METHOD r = R: DETAIL". */
static void tally_add(struct tally *t, const struct data *d, const struct cell *c, const char *detail)
{
	char r[64];
	if (t->n++ >= PLACES)
		return;
	if (t->one_reason && t->n > 1 && strcmp(t->shared, detail) != 0)
		strbuf_printf(&t->places, ": %s", t->shared);
	snprintf(t->shared, sizeof t->shared, "%s", detail);
	detail = t->one_reason ? "" : detail;
	strbuf_printf(&t->places, "%s%s, %s, ", t->n > 1 ? "; " : "", d->panels[c->panel].title, c->row.protocol);
	if (!t->one_method)
		strbuf_printf(&t->places, "%s ", d->variants[c->variant].label);
	strbuf_printf(&t->places, "r = %s%s%s", format_ratio(r, c->row.retained_ppm), *detail ? ": " : "", detail);
}

/* "WHAT in N cells: places ...". Nothing when nothing was counted. Empties t. */
static void tally_end(struct tally *t, struct notes *flags, const char *what)
{
	if (t->n > 0 && t->one_reason)
		strbuf_printf(&t->places, ": %s", t->shared);
	if (t->n > PLACES)
		strbuf_printf(&t->places, "; and %d more", t->n - PLACES);
	if (t->n > 0)
		add(flags, text_format("%s in %d cell%s: %s.", what, t->n, t->n > 1 ? "s" : "", t->places.text));
	strbuf_free(&t->places);
	t->n = 0;
}

static void flag_failures(const struct data *d, struct notes *flags)
{
	struct tally failed = {.one_reason = true}, oom = failed, not_applicable = failed, incomplete = {0};
	char detail[256];
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		const struct cell_row *r = &c->row;
		int stored = r->ok + r->failed + r->oom + r->not_applicable;
		snprintf(detail, sizeof detail, "%d of %d, %.150s", r->failed + r->oom + r->not_applicable, r->planned,
			c->message);
		if (r->failed)
			tally_add(&failed, d, c, detail);
		if (r->oom)
			tally_add(&oom, d, c, detail);
		if (r->not_applicable)
			tally_add(&not_applicable, d, c, detail);
		snprintf(detail, sizeof detail, "%d of %d samples", stored, r->planned);
		if (stored < r->planned)
			tally_add(&incomplete, d, c, detail);
	}
	tally_end(&failed, flags, "Failed samples");
	tally_end(&oom, flags, "Out of memory");
	tally_end(&not_applicable, flags, "Method not applicable");
	tally_end(&incomplete, flags, "Incomplete: a part stands for the whole");
}

static void flag_controls(const struct data *d, struct notes *flags)
{
	for (int p = 0; p < d->n_panels; p++) {
		bool random = false;
		for (int k = 0; k < d->n_ppm; k++)
			random = random || data_random(d, p, d->ppm[k]);
		const char *missing = !data_full(d, p) && !random ? "full and random"
				      : !data_full(d, p)          ? "full"
				      : !random                   ? "random"
								  : NULL;
		if (missing)
			add(flags, text_format("No control (%s) for %s, %s: its methods are judged by nothing.", missing,
					   d->panels[p].title, d->panels[p].row->protocol));
	}
}

/* The task tells pruned from full only where random is worse than full beyond error. */
static bool separates(const struct cell *full, const struct cell *random)
{
	return full && random && compare(random, full) == BELOW;
}

/* Whether random pruning at any ratio is told from the full cache; also true where that was not measured. */
static bool panel_separates(const struct data *d, int panel)
{
	bool measured = false;
	const struct cell *full = data_full(d, panel);
	for (int k = 0; k < d->n_ppm && full && full->score.n > 0; k++) {
		const struct cell *random = d->ppm[k] < 1000000 ? data_random(d, panel, d->ppm[k]) : NULL;
		if (!random || random->score.n == 0)
			continue;
		measured = true;
		if (separates(full, random))
			return true;
	}
	return !measured;
}

static void flag_floor(const struct data *d, struct notes *flags)
{
	struct tally t = {0};
	char detail[64];
	for (int p = 0; p < d->n_panels; p++) {
		if (panel_separates(d, p))
			continue;
		const struct cell *full = data_full(d, p);
		snprintf(detail, sizeof detail, "%.2f on %d answers", full->score.mean, full->row.ok);
		tally_add(&t, d, full, detail);
	}
	tally_end(&t, flags,
		"Nothing can be told of methods: random pruning is at no ratio worse than the full cache beyond error (few "
		"samples, or a task "
		"the model cannot do)");
}

static void flag_scores_of(const struct data *d, int variant, struct notes *flags)
{
	struct tally low = {.one_method = true}, high = {.one_method = true};
	char detail[64];
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i], *full = data_full(d, c->panel),
				  *random = data_random(d, c->panel, c->row.retained_ppm);
		if (c->variant != variant || c->score.n == 0 || c->row.retained_ppm == 1000000)
			continue;
		if (separates(full, random) && c->score.mean <= random->score.mean) {
			snprintf(detail, sizeof detail, "%.2f (random %.2f)", c->score.mean, random->score.mean);
			tally_add(&low, d, c, detail);
		}
		if (full && compare(c, full) == ABOVE) {
			snprintf(detail, sizeof detail, "%.2f (full %.2f)", c->score.mean, full->score.mean);
			tally_add(&high, d, c, detail);
		}
	}
	char *what = text_format("%s is not above random", d->variants[variant].label);
	tally_end(&low, flags, what);
	free(what);
	what = text_format("%s is above the full cache beyond error", d->variants[variant].label);
	tally_end(&high, flags, what);
	free(what);
}

static void flag_identity(const struct data *d, struct notes *flags)
{
	struct tally differ = {0};
	char detail[64];
	for (int i = 0; i < d->n_cells; i++) {
		if (!should_equal_full(d, &d->cells[i]))
			continue;
		struct identity id = compare_with_full(d, &d->cells[i]);
		snprintf(detail, sizeof detail, "%d of %d answers", id.differ, id.answers);
		if (id.differ > 0)
			tally_add(&differ, d, &d->cells[i], detail);
	}
	tally_end(&differ, flags, "r = 1 does not equal the full cache");
}

static void flag_samples(const struct data *d, struct notes *flags)
{
	struct tally empty = {0}, kept = {0}, all = {0}, window = {0}, beyond = {0}, cut = {0};
	char detail[64];
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		double requested = c->row.retained_ppm / 1e6;
		snprintf(detail, sizeof detail, "%d of %d", c->row.empty, c->row.ok);
		if (c->row.empty)
			tally_add(&empty, d, c, detail);
		snprintf(detail, sizeof detail, "kept %.3f, asked %g", c->row.retained_mean, requested);
		if (fabs(c->row.retained_mean - requested) > .02)
			tally_add(&kept, d, c, detail);
		if (c->flag_count[0] && requested < 1)
			tally_add(&all, d, c, "");
		if (c->flag_count[1])
			tally_add(&window, d, c, "");
		if (c->flag_count[2])
			tally_add(&beyond, d, c, "");
		snprintf(detail, sizeof detail, "%d of %d", c->row.cut, c->row.ok);
		if (c->row.cut && d->variants[c->variant].full) /* the same contexts for all */
			tally_add(&cut, d, c, detail);
	}
	tally_end(&empty, flags, "Empty answers");
	tally_end(&kept, flags, "Kept share is not the one asked for");
	tally_end(&all, flags, "Nothing was pruned (context not longer than what must be kept)");
	tally_end(&window, flags, "Budget below the protected part: only its last entries were kept");
	tally_end(&beyond, flags, "Context longer than the model was trained for");
	tally_end(&cut, flags, "Contexts that lost their middle to keep to the length");
}

/* What stands behind a task's numbers: data nobody vouches for, answers scored by different programs. */
static void flag_sources(const struct data *d, struct notes *flags)
{
	struct tally unpinned = {0};
	int oldest = 0, newest = 0;
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		bool own = !strcmp(c->row.task, "jsonl"); /* nobody else's that they could differ from */
		if (!strcmp(c->row.data_state, "unpinned") && !own && d->variants[c->variant].full)
			tally_add(&unpinned, d, c, "");
		if (!c->n_samples)
			continue;
		oldest = !oldest || c->row.scorer_oldest < oldest ? c->row.scorer_oldest : oldest;
		newest = c->row.scorer_version > newest ? c->row.scorer_version : newest;
	}
	tally_end(&unpinned, flags, "Data without a known SHA-256 (unpinned)");
	if (oldest != newest)
		add(flags, text_format(
				   "Answers were scored by versions %d to %d of the scorers: `kvbench score DB` scores all anew.",
				   oldest, newest));
}

/* As the gate does: threads that waited for a core, or rounds that deviate (from p10 to p90 are 2.563 standard deviations). */
static bool was_busy(const struct cell *c, char *detail, size_t size)
{
	const struct spread *t = &c->time[TTFT];
	double deviation = (t->p90 - t->p10) / 2.563 / t->median;
	if (!isnan(c->waited))
		snprintf(detail, size, "threads waited, all together, %.0f %% of the time, rounds deviate by %.0f %%",
			100 * c->waited, 100 * deviation);
	else
		snprintf(detail, size, "rounds deviate by %.0f %%", 100 * deviation);
	return c->waited > gate_rules.waited || deviation > gate_rules.busy;
}

static void flag_times(const struct data *d, struct notes *flags)
{
	struct tally parts = {0}, zero = {0}, few = {0}, alone = {0}, busy = {0};
	char detail[128];
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		bool full = d->variants[c->variant].full;
		if (!cell_timed(c))
			continue;
		snprintf(detail, sizeof detail, "sum of parts %.1f %% of the whole", 100 * c->parts_of_whole);
		if (!(fabs(c->parts_of_whole - 1) <= .02))
			tally_add(&parts, d, c, detail);
		if (!full && c->row.retained_ppm < 1000000 &&
			!(c->time[SCORE].median + c->time[SELECT].median + c->time[COMPACT].median > 0))
			tally_add(&zero, d, c, "");
		snprintf(detail, sizeof detail, "%d", c->time[TTFT].n);
		if (c->time[TTFT].n < 9)
			tally_add(&few, d, c, detail);
		if (!full && isnan(data_ttft_ratio(d, c)))
			tally_add(&alone, d, c, "");
		if (was_busy(c, detail, sizeof detail))
			tally_add(&busy, d, c, detail);
	}
	tally_end(&parts, flags, "Parts of the time to first token do not add up within 2 %");
	tally_end(&zero, flags, "Pruning took no time at all");
	tally_end(&few, flags, "Fewer than 9 timed repetitions");
	tally_end(&busy, flags, "Times taken beside other work of the machine, so that small differences say nothing,");
	tally_end(&alone, flags, "No full cache timed in the same process, so no ratio");
}

void summary_flags(const struct data *d, struct notes *flags)
{
	flag_failures(d, flags);
	flag_controls(d, flags);
	flag_floor(d, flags);
	flag_identity(d, flags);
	for (int v = 0; v < d->n_variants; v++)
		if (d->variants[v].colour >= 0)
			flag_scores_of(d, v, flags);
	flag_samples(d, flags);
	flag_sources(d, flags);
	flag_times(d, flags);
}
