/* verify_checks.c: the checks of `kvbench verify`, one function each. A fault is something that makes a figure wrong or not
 * comparable; a notice is something its reader has to know. What each was made for is said above it: most have happened
 * elsewhere. */
#include "harness/verify.h"

#include "harness/paper.h"
#include "results/stats.h"
#include "runners/runner.h"
#include "tasks/task.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- small words ---- */

static bool is_control(const struct audit_cell *c)
{
	return !strcmp(c->row.method, "full") || !strcmp(c->row.method, "random");
}

static bool is_full(const struct audit_cell *c)
{
	return !strcmp(c->row.method, "full");
}

/* Is it the first cell of its group? To say something once a group. */
static bool leads_group(const struct audit *a, int i)
{
	return a->cells[i].group == i;
}

/* "niah-multikey 512 agnostic" of "niah-multikey 512 agnostic, snapkv r 0.3". */
static void group_name(const struct audit_cell *c, char out[256])
{
	snprintf(out, 256, "%.*s", (int)strcspn(c->label, ","), c->label);
}

static int count(const struct audit_cell *c, bool (*is)(const struct audit_sample *s))
{
	int n = 0;
	for (int i = 0; i < c->n; i++)
		n += c->samples[i].ok && is(&c->samples[i]);
	return n;
}

/* ---- pruning ---- */

static bool nothing_gone(const struct audit_sample *s)
{
	return s->retained >= 1 - 1e-9 && s->context_tokens > 1;
}

static bool unasked(const struct audit_sample *s)
{
	return nothing_gone(s) && !(s->flags & FLAG_ALL_KEPT);
}

/* A counter that was never reset let only the first sample be pruned; others ran on the full cache. Contexts shorter than a
 * method's window are not pruned at all. */
static void check_pruned(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		if (c->row.retained_ppm == 1000000 || !c->row.ok)
			continue;
		int whole = count(c, nothing_gone), wrong = count(c, unasked);
		if (wrong)
			audit_find(a, true, c->label, "every entry is still there in %d of %d samples", wrong, c->row.ok);
		else if (whole == c->row.ok)
			audit_find(a, true, c->label,
				"no context is longer than what must stay: nothing was pruned, the scores are the full "
				"cache's");
		else if (whole)
			audit_find(a, false, c->label, "nothing was pruned in %d of %d samples: too short", whole, c->row.ok);
	}
}

/* Two notions of a ratio met, or a budget's rounding went astray: what was kept is not what the row is called by. */
static void check_retained(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		double asked = c->row.retained_ppm / 1e6, most = 0, least = 1;
		for (int k = 0; k < c->n; k++) {
			const struct audit_sample *s = &c->samples[k];
			if (!s->ok || s->context_tokens < 1 || s->flags & (FLAG_ALL_KEPT | FLAG_WINDOW_CUT))
				continue;
			most = fmax(most, s->retained - 2.0 / s->context_tokens);
			least = fmin(least, s->retained + 2.0 / s->context_tokens);
		}
		if (most > asked + 1e-9)
			audit_find(a, true, c->label, "up to %.3f of the entries were kept", most);
		else if (least < asked * .8)
			audit_find(a, false, c->label, "down to %.3f of the entries were kept", least);
	}
}

static bool counts_wrong(const struct audit_sample *s)
{
	return s->counts_wrong;
}

/* Pruned tensors were printed, attention still got the whole ones: count what the cache itself holds, and its bytes. */
static void check_kept(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		int wrong = count(c, counts_wrong);
		if (wrong)
			audit_find(a, true, c->label, "the heads' counts do not add up in %d samples", wrong);
		if (c->row.ok && c->row.retained_mean < .999 && c->row.kv_bytes_kept >= c->row.kv_bytes_full)
			audit_find(a, true, c->label, "%.3f of the entries are kept, yet the cache takes %lld of %lld bytes",
				c->row.retained_mean, (long long)c->row.kv_bytes_kept, (long long)c->row.kv_bytes_full);
	}
}

/* If even random entries change no answer, attention may not have seen the pruned cache. */
static void check_effect(struct audit *a)
{
	enum { ENOUGH = 10 };
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i], *full = audit_full(a, c->group);
		int same = 0, n = 0;
		if (strcmp(c->row.method, "random") || c->row.retained_ppm > 300000 || !full)
			continue;
		for (int k = 0; k < c->n; k++) {
			const struct audit_sample *s = &c->samples[k], *f = audit_sample(full, s->id);
			bool both = s->ok && f && f->ok;
			n += both;
			same += both && !strcmp(s->answer, f->answer);
		}
		if (n >= ENOUGH && same == n)
			audit_find(a, true, c->label, "all %d answers are the full cache's, token for token", n);
	}
}

/* ---- the full cache ---- */

static int differing(const struct audit_cell *a, const struct audit_cell *b, bool same_prompt)
{
	int n = 0;
	for (int k = 0; k < a->n; k++) {
		const struct audit_sample *x = &a->samples[k], *y = audit_sample(b, x->id);
		if (x->ok && y && y->ok && (!same_prompt || !strcmp(x->prompt, y->prompt)))
			n += strcmp(x->answer, y->answer) || x->score != y->score;
	}
	return n;
}

/* The pruned path at r = 1 is the full path; on the CPU to the bit. Seen: 13.8 at ratio 1 and 35.2 at .2. */
static void check_r1(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i], *full = audit_full(a, c->group);
		if (c->row.retained_ppm != 1000000 || is_full(c) || !full)
			continue;
		int n = differing(c, full, false);
		if (n)
			audit_find(a, !strcmp(c->row.topology, "cpu"), c->label, "%d of %d answers differ from the full cache's",
				n, c->row.ok);
	}
}

/* Without pruning it does not matter when the question comes: the full cache answers alike under both protocols. */
static void check_full_protocols(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		for (int k = 0; k < i && is_full(c); k++) {
			const struct audit_cell *o = &a->cells[k];
			if (!is_full(o) || o->comparable != c->comparable || o->group == c->group)
				continue;
			int n = differing(c, o, true);
			if (n)
				audit_find(a, !strcmp(c->row.topology, "cpu"), c->label,
					"%d answers differ from those under the other protocol", n);
		}
	}
}

/* A missing template or one of two end tokens halved many a baseline, and every method was judged against it. */
static void check_baseline(struct audit *a)
{
	enum { ENOUGH = 10 };
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		if (!is_full(c) || !c->row.ok)
			continue;
		if (c->row.score_mean <= 0)
			audit_find(a, c->row.ok >= ENOUGH, c->label,
				"scores 0 in all %d samples: template, end tokens, prompt or metric", c->row.ok);
		else if (2 * c->row.length_finish > c->row.ok)
			audit_find(a, false, c->label, "%d of %d answers ran to the limit of tokens: an end token may be missing",
				c->row.length_finish, c->row.ok);
	}
}

/* "org/Name" and "Name.Q4_1.gguf" are the model Name. */
static bool is_model(const char *ours, const char *name)
{
	const char *slash = strrchr(ours, '/'), *last = slash ? slash + 1 : ours;
	size_t n = strlen(name);
	return !strncasecmp(last, name, n) && (!last[n] || last[n] == '.');
}

/* Before any pruned score counts, the full cache has to be where others found it: same model, task and length. A range of five
 * points is usual between code bases. */
static void check_published(struct audit *a)
{
	enum { ENOUGH = 10 };
	json_t *published = json_loads(paper_published, 0, NULL), *record;
	size_t r;
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		json_array_foreach(json_object_get(published, "records"), r, record)
		{
			const json_t *value = json_object_get(json_object_get(record, "values"), c->row.task);
			int64_t length = json_integer_value(json_object_get(record, "length"));
			if (!is_full(c) || c->row.ok < ENOUGH || !value || (length && length != c->row.context_tokens) ||
				strcmp(json_string_value(json_object_get(record, "method")), "full") ||
				!is_model(c->row.target, json_string_value(json_object_get(record, "model"))))
				continue;
			double there = json_number_value(value) / 100, away = fabs(c->row.score_mean - there);
			double error = 2 * sqrt(fmax(there * (1 - there), .01) / c->row.ok);
			if (away > .05 + error)
				audit_find(a, away > .2 + error, c->label, "scores %.1f, published: %.1f (%s)",
					100 * c->row.score_mean, 100 * there,
					json_string_value(json_object_get(record, "source")));
		}
	}
	json_decref(published);
}

static bool is_empty(const struct audit_sample *s)
{
	return s->empty;
}

static void check_empty(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		int n = count(&a->cells[i], is_empty);
		if (n)
			audit_find(
				a, is_full(&a->cells[i]), a->cells[i].label, "%d of %d answers are empty", n, a->cells[i].row.ok);
	}
}

/* ---- methods against the controls: paired over the samples both have, Holm over all comparisons ---- */

struct contest {
	int cell;
	struct paired result;
};

/* -1: fewer than ten samples in common. */
static int contest_of(const struct audit_cell *from, const struct audit_cell *to, struct paired *out)
{
	enum { ENOUGH = 10 };
	double *x = mem_new((size_t)to->n, sizeof *x), *y = mem_new((size_t)to->n, sizeof *y);
	int *cluster = mem_new((size_t)to->n, sizeof *cluster), n = 0;
	const char *last = NULL;
	for (int k = 0; k < to->n; k++) {
		const struct audit_sample *s = &to->samples[k], *f = audit_sample(from, s->id);
		if (!s->ok || !f || !f->ok || isnan(s->score) || isnan(f->score))
			continue;
		cluster[n] = n ? cluster[n - 1] + (strcmp(last, s->context) != 0) : 0;
		last = s->context;
		x[n] = f->score;
		y[n++] = s->score;
	}
	if (n >= ENOUGH)
		*out = stats_paired(x, y, cluster, n, 1);
	free(x);
	free(y);
	free(cluster);
	return n >= ENOUGH ? 0 : -1;
}

/* Every pruned cell against its control; on the way out p is Holm's. Caller frees. */
static struct contest *contests(const struct audit *a, bool full, int *n)
{
	struct contest *list = mem_new((size_t)a->n_cells, sizeof *list);
	*n = 0;
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		const struct audit_cell *other = full ? audit_full(a, c->group) : audit_random(a, c->group, c->row.retained_ppm);
		if (!is_control(c) && other && c->row.retained_ppm < 1000000 && !contest_of(other, c, &list[*n].result))
			list[(*n)++].cell = i;
	}
	double *p = mem_new((size_t)*n, sizeof *p), *holm = mem_new((size_t)*n, sizeof *holm);
	for (int i = 0; i < *n; i++)
		p[i] = list[i].result.p;
	stats_holm(p, *n, holm);
	for (int i = 0; i < *n; i++)
		list[i].result.p = holm[i];
	free(p);
	free(holm);
	return list;
}

/* The full cache is the ceiling. A method above it beyond error means that one of the two is not what it is called. */
static void check_ceiling(struct audit *a)
{
	int n;
	struct contest *list = contests(a, true, &n);
	for (int i = 0; i < n; i++) {
		const struct paired *r = &list[i].result;
		if (r->p < .01 && r->change.lo > 0)
			audit_find(a, r->change.mean > .1, a->cells[list[i].cell].label,
				"scores %.2f above the full cache [%.2f, %.2f]", r->change.mean, r->change.lo, r->change.hi);
	}
	free(list);
}

/* A scorer that lost its cache still ran: only a control far above it told. Some methods really are this weak: a notice. */
static void check_random(struct audit *a)
{
	int n;
	struct contest *list = contests(a, false, &n);
	for (int i = 0; i < n; i++) {
		const struct paired *r = &list[i].result;
		if (r->p < .01 && r->change.hi < 0)
			audit_find(a, false, a->cells[list[i].cell].label, "scores %.2f below random pruning [%.2f, %.2f]",
				-r->change.mean, -r->change.hi, -r->change.lo);
	}
	free(list);
}

/* ---- what must stand beside a figure ---- */

static void check_controls(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i], *full = audit_full(a, c->group);
		char name[256];
		group_name(c, name);
		if (leads_group(a, i) && (!full || !full->row.ok))
			audit_find(a, true, name, "the full cache was not measured");
		const struct audit_cell *random = audit_random(a, c->group, c->row.retained_ppm);
		if (!is_control(c) && c->row.retained_ppm < 1000000 && (!random || !random->row.ok))
			audit_find(a, true, c->label, "random pruning was not measured at this ratio");
	}
}

/* Static levels of the heads carry needles by themselves: without that control a trained method proves nothing. */
static void check_trained(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		if (!runner_method_trained(c->row.method) || !strcmp(c->row.method, "head-prior"))
			continue;
		bool beside = false;
		for (int k = 0; k < a->n_cells; k++)
			beside =
				beside || (a->cells[k].group == c->group && a->cells[k].row.retained_ppm == c->row.retained_ppm &&
						  !strcmp(a->cells[k].row.method, "head-prior"));
		if (!beside)
			audit_find(a, true, c->label, "a trained method without head-prior beside it");
	}
}

/* Is there a cell of that method, parameters and ratio under the other protocol? */
static bool has_twin(const struct audit *a, const struct audit_cell *c, int group)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *o = &a->cells[i];
		if (o->group == group && o->row.retained_ppm == c->row.retained_ppm && !strcmp(o->row.method, c->row.method) &&
			!strcmp(o->row.method_params, c->row.method_params))
			return true;
	}
	return false;
}

/* Some methods under one protocol and their rivals under the other: whoever takes one figure of each compares two things. */
static void check_protocols(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		for (int k = 0; k < a->n_cells; k++) {
			const struct audit_cell *o = &a->cells[k];
			if (o->comparable != c->comparable || o->group == c->group || !leads_group(a, k))
				continue;
			if (!has_twin(a, c, o->group))
				audit_find(a, true, c->label, "has no counterpart under %s, where others were measured",
					o->row.protocol);
		}
	}
}

/* ---- prompts ---- */

/* Prompts of one question that are not equal: something cut them, or a template differs between methods. */
static void check_prompts(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i], *full = audit_full(a, c->group);
		int prompts = 0, cuts = 0;
		for (int k = 0; k < c->n && full && full != c; k++) {
			const struct audit_sample *s = &c->samples[k], *f = audit_sample(full, s->id);
			if (!s->ok || !f || !f->ok)
				continue;
			prompts += strcmp(s->prompt, f->prompt) != 0;
			cuts += s->cut_tokens != f->cut_tokens;
		}
		if (prompts)
			audit_find(a, true, c->label, "%d prompts differ from the full cache's for the same questions", prompts);
		if (cuts)
			audit_find(a, true, c->label, "%d contexts were cut otherwise than for the full cache", cuts);
	}
}

static bool is_cut(const struct audit_sample *s)
{
	return s->cut_tokens > 0;
}

static void check_cut(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		int n = is_full(c) ? count(c, is_cut) : 0;
		char name[256];
		group_name(c, name);
		if (n)
			audit_find(a, false, name, "the middle of %d of %d contexts was left out", n, c->row.ok);
	}
}

static int by_prompt(const void *x, const void *y)
{
	const struct audit_sample *a = *(const struct audit_sample *const *)x, *b = *(const struct audit_sample *const *)y;
	int order = strcmp(a->prompt, b->prompt);
	return order ? order : strcmp(a->answer, b->answer);
}

/* One prompt asked twice of one variant must be answered alike: what differs came from the samples before. */
static void check_state(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		const struct audit_sample **s = mem_new((size_t)c->n, sizeof *s);
		int n = 0, leaks = 0;
		for (int k = 0; k < c->n; k++) {
			if (c->samples[k].ok)
				s[n++] = &c->samples[k];
		}
		if (n)
			qsort(s, (size_t)n, sizeof *s, by_prompt);
		for (int k = 1; k < n; k++)
			leaks += !strcmp(s[k]->prompt, s[k - 1]->prompt) && strcmp(s[k]->answer, s[k - 1]->answer) &&
				 s[k]->by_length == s[k - 1]->by_length;
		if (leaks)
			audit_find(
				a, true, c->label, "%d prompts were answered in two ways: state passes between samples", leaks);
		free(s);
	}
}

/* ---- scores ---- */

static bool is_score(double x)
{
	return isfinite(x) && x >= -1e-9 && x <= 1 + 1e-9;
}

static bool no_score(const struct audit_sample *s)
{
	return s->flags & FLAG_NAN || !is_score(s->score) || (!isnan(s->also) && !is_score(s->also));
}

static void check_scores(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		int n = count(&a->cells[i], no_score);
		if (n)
			audit_find(a, true, a->cells[i].label,
				"%d samples stand as answered with NaN in the method's scores, or a score that is none", n);
	}
}

/* ---- completeness ---- */

static void check_complete(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		const struct cell_row *r = &c->row;
		int there = r->ok + r->failed + r->oom + r->not_applicable;
		if (there < r->planned)
			audit_find(a, true, c->label, "%d of %d samples are missing", r->planned - there, r->planned);
		if (r->failed + r->oom)
			audit_find(a, true, c->label, "%d failed, %d out of memory: %.200s", r->failed, r->oom, c->message);
		if (r->not_applicable)
			audit_find(a, false, c->label, "not applicable in %d of %d samples: %.200s", r->not_applicable,
				r->planned, c->message);
	}
}

/* A part of a suite must never be shown as the whole. */
static void check_subset(struct audit *a)
{
	json_t *suites = json_loads(paper_suites, 0, NULL);
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		const json_t *facts = json_object_get(json_object_get(suites, "tasks"), c->row.task);
		int whole = (int)json_integer_value(json_object_get(facts, "contexts"));
		char name[256];
		group_name(c, name);
		if (facts && leads_group(a, i) && c->row.planned < whole)
			audit_find(a, false, name, "%d of the suite's %d rows", c->row.planned, whole);
	}
	json_decref(suites);
}

static void check_runs(struct audit *a)
{
	for (int i = 0; i < a->n_runs; i++) {
		if (!a->runs[i].ended)
			audit_find(a, false, "run", "%s has no end: killed, or still running", a->runs[i].id);
		if (a->runs[i].dirty)
			audit_find(a, false, "run", "%s was built from changed sources (%s)", a->runs[i].id, a->runs[i].version);
	}
}

static const struct audit_run *run_of(const struct audit *a, const char *id)
{
	for (int i = 0; i < a->n_runs; i++) {
		if (!strcmp(a->runs[i].id, id))
			return &a->runs[i];
	}
	return NULL;
}

/* The machine of each cell's first sample against that of its full cache's. */
static void check_machines(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i], *full = audit_full(a, c->group);
		const struct audit_run *x = c->n ? run_of(a, c->samples[0].run) : NULL;
		const struct audit_run *y = full && full->n ? run_of(a, full->samples[0].run) : NULL;
		if (x && y && strcmp(x->machine, y->machine))
			audit_find(a, false, c->label, "answered on another machine than the full cache (%.80s; %.80s)",
				x->machine, y->machine);
	}
}

/* ---- identity and versions ---- */

static int bad_identity(void *user, const char *table, const char *id)
{
	audit_find(user, true, table, "row %.16s says something else than its name: changed by hand", id);
	return 0;
}

/* Rows are named by the hash of what they say, so that a ratio or a protocol changed afterwards shows. */
static void check_identity(struct audit *a)
{
	store_check_identities(a->store, bad_identity, a, a->err);
}

static void check_versions(struct audit *a)
{
	int scorer = 0, measure = 0;
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i], *full = audit_full(a, c->group);
		if (c->row.ok && c->row.scorer_oldest != c->row.scorer_version)
			audit_find(a, true, c->label, "scored by versions %d and %d: `kvbench score` makes them one",
				c->row.scorer_oldest, c->row.scorer_version);
		else if (c->row.ok && scorer && c->row.scorer_version != scorer)
			audit_find(a, true, c->label, "scored by version %d, others by %d: `kvbench score` makes them one",
				c->row.scorer_version, scorer);
		scorer = scorer || !c->row.ok ? scorer : c->row.scorer_version;
		if (measure && c->row.measure_version != measure)
			audit_find(a, true, c->label, "measured by procedure %d, others by %d", c->row.measure_version, measure);
		measure = measure ? measure : c->row.measure_version;
		if (full && strcmp(full->row.template_sha256, c->row.template_sha256))
			audit_find(a, true, c->label, "other prompt texts than the full cache's");
	}
}

static void check_data(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		char name[256];
		group_name(&a->cells[i], name);
		bool own = !strcmp(a->cells[i].row.task, "jsonl");
		if (leads_group(a, i) && !own && !strcmp(a->cells[i].row.data_state, "unpinned"))
			audit_find(a, false, name, "nobody knows whether the data are upstream's (unpinned)");
	}
}

static bool beyond(const struct audit_sample *s)
{
	return s->flags & FLAG_BEYOND_TRAINED;
}

static bool window_cut(const struct audit_sample *s)
{
	return s->flags & FLAG_WINDOW_CUT;
}

static void check_flags(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		int far = count(c, beyond), cut = count(c, window_cut);
		if (far)
			audit_find(a, false, c->label, "%d contexts are longer than the model's trained positions", far);
		if (cut)
			audit_find(
				a, false, c->label, "budget below what the method protects in %d of %d samples", cut, c->row.ok);
	}
}

/* ---- time ---- */

static const struct audit_timing *full_timing(const struct audit *a, const struct audit_cell *c)
{
	const struct audit_cell *full = audit_full(a, c->group);
	return full && full->timing && c->timing && !strcmp(full->timing->run, c->timing->run) ? full->timing : NULL;
}

/* A ratio of times means something within one process, of enough repetitions. */
static void check_timing(struct audit *a)
{
	enum { LEAST = 9 };
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		if (!c->timing)
			continue;
		if (c->timing->n < LEAST)
			audit_find(a, true, c->label, "%d repetitions; fewer than %d cannot be ranked", c->timing->n, LEAST);
		if (!full_timing(a, c))
			audit_find(a, true, c->label, "timed without the full cache in the same process");
	}
}

/* Cached prompts were replayed and first tokens came 49 times too soon: each repetition prefills everything, whatever the method.
 */
static void check_reuse(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		const struct audit_timing *full = full_timing(a, c);
		if (!full)
			continue;
		double usual = stats_quantile(full->prefill, full->n, 0); /* the quickest: a busy machine is no reuse */
		int fast = 0, other = 0;
		for (int k = 0; k < c->timing->n; k++) {
			fast += c->timing->prefill[k] < .3 * usual;
			other += c->timing->tokens[k] != full->tokens[0];
		}
		if (fast)
			audit_find(a, true, c->label,
				"%d of %d prefills took less than a third of the full cache's quickest, %.3g ms: a cache was "
				"reused",
				fast, c->timing->n, usual / 1e6);
		if (other)
			audit_find(a, true, c->label,
				"%d repetitions prefilled another number of tokens than the full cache's %lld", other,
				(long long)full->tokens[0]);
	}
}

/* The parts are all there is in a time to first token; the median repetition decides, so that a stall of the machine does not. */
static void check_parts(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		const struct audit_cell *c = &a->cells[i];
		double share[AUDIT_REPETITIONS];
		for (int k = 0; c->timing && k < c->timing->n; k++)
			share[k] = c->timing->parts[k] / c->timing->ttft[k];
		double usual = c->timing ? stats_quantile(share, c->timing->n, .5) : 1;
		if (!(fabs(usual - 1) <= .02))
			audit_find(a, true, c->label, "the parts are %.1f %% of the times to first token", 100 * usual);
	}
}

/* ---- the table ---- */

const struct check checks[] = {
	{"complete", "every planned sample was answered; none failed", check_complete},
	{"pruned", "pruning took place in every sample", check_pruned},
	{"retained", "as much was kept as the row says", check_retained},
	{"kept", "entries and bytes counted in the cache agree", check_kept},
	{"effect", "random pruning changes answers", check_effect},
	{"r1", "at r = 1 every method answers as the full cache", check_r1},
	{"full", "the full cache answers alike under both protocols", check_full_protocols},
	{"baseline", "the full cache is a baseline: it scores, its answers end", check_baseline},
	{"published", "the full cache scores what others found it to score", check_published},
	{"empty", "no answer is empty", check_empty},
	{"ceiling", "no method is above the full cache beyond error", check_ceiling},
	{"random", "no method is below random pruning beyond error", check_random},
	{"controls", "full and random stand beside every method", check_controls},
	{"trained", "head-prior stands beside every trained method", check_trained},
	{"protocols", "each method stands under every protocol its rivals stand under", check_protocols},
	{"prompts", "all methods got the same prompts", check_prompts},
	{"cut", "no context was cut", check_cut},
	{"state", "one prompt has one answer", check_state},
	{"scores", "every score is a number from 0 to 1", check_scores},
	{"subset", "suites are whole", check_subset},
	{"identity", "rows are what their names say", check_identity},
	{"versions", "one scorer, one procedure, one set of prompt texts", check_versions},
	{"data", "data are upstream's", check_data},
	{"flags", "contexts within trained positions, budgets above the protected part", check_flags},
	{"runs", "every run ended, from committed sources", check_runs},
	{"machines", "a method and its baseline ran on one machine", check_machines},
	{"timing", "enough repetitions, the full cache in the same process", check_timing},
	{"reuse", "every repetition prefilled everything", check_reuse},
	{"parts", "the parts add up to the time to first token", check_parts},
};
const int n_checks = sizeof checks / sizeof *checks;
