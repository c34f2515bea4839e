/* compare.c: pairs the cells of two sides and says what changed. See compare.h.
 *
 * A column in which each side has one value, and not the same, is what is compared; all others must be equal for two cells to
 * meet. Cells that find no partner so try once more by their names alone (a method's new parameters, a task's new data), where
 * that is unambiguous; then what may not differ becomes a refusal. */
#include "results/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 1 }; /* of every resampling: the same rows give the same intervals */

const char *const verdict_name[] = {[SAME] = "same", [BETTER] = "better", [WORSE] = "worse", [UNKNOWN] = "unknown"};

/* ---- columns ---- */

static int column_named(const char *name)
{
	int k = 0;
	while (strcmp(column_name(k), name) != 0)
		k++;
	return k;
}

/* Whether all cells of a side have one value in column k; then it is in buf. */
static bool one_value(const struct side *s, int k, char buf[COLUMN_TEXT])
{
	char other[COLUMN_TEXT];
	column_text(&s->cells[0], k, buf);
	for (int i = 1; i < s->n_cells; i++) {
		if (strcmp(column_text(&s->cells[i], k, other), buf) != 0)
			return false;
	}
	return true;
}

/* Whether column k follows from column `parent`: cells equal in the one are equal in the other. */
static bool follows(const struct side *s, int k, int parent)
{
	char value[COLUMN_TEXT], other[COLUMN_TEXT], mine[COLUMN_TEXT], theirs[COLUMN_TEXT];
	for (int i = 1; i < s->n_cells; i++) {
		int first = 0; /* the first cell of this parent stands for all of them */
		column_text(&s->cells[i], parent, mine);
		while (strcmp(column_text(&s->cells[first], parent, theirs), mine) != 0)
			first++;
		if (strcmp(column_text(&s->cells[first], k, other), column_text(&s->cells[i], k, value)) != 0)
			return false;
	}
	return true;
}

static void drop_details(struct comparison *c)
{
	static const struct {
		const char *column, *parent;
	} details[] = {{"task parameters", "task"}, {"data", "task"}, {"texts", "task"}, {"metric", "task"}, {"mode", "task"},
		{"seed", "task"}, {"method parameters", "method"}, {"target file", "target"}, {"weights", "target"}};
	for (size_t i = 0; i < sizeof details / sizeof *details; i++) {
		int k = column_named(details[i].column), parent = column_named(details[i].parent);
		c->varies[k] = c->varies[k] && !(follows(c->a, k, parent) && follows(c->b, k, parent));
	}
}

static void classify_columns(struct comparison *c)
{
	char a[COLUMN_TEXT], b[COLUMN_TEXT];
	for (int k = 0; k < COMPARE_COLUMNS && c->a->n_cells > 0 && c->b->n_cells > 0; k++) {
		bool one_a = one_value(c->a, k, a), one_b = one_value(c->b, k, b);
		c->differs[k] = one_a && one_b && strcmp(a, b) != 0;
		c->varies[k] = !one_a || !one_b;
	}
	drop_details(c);
}

/* ---- pairing ---- */

/* What must be equal for two cells to meet: every column that is not left out. Fresh. */
static char *key_of(const struct side_cell *c, const bool left_out[COMPARE_COLUMNS])
{
	struct strbuf b = {0};
	char text[COLUMN_TEXT];
	for (int k = 0; k < COMPARE_COLUMNS; k++)
		strbuf_printf(&b, "%s\n", left_out[k] ? "" : column_text(c, k, text));
	return strbuf_take(&b);
}

static char **keys_of(const struct side *s, const bool left_out[COMPARE_COLUMNS])
{
	char **keys = mem_new((size_t)s->n_cells + 1, sizeof *keys);
	for (int i = 0; i < s->n_cells; i++)
		keys[i] = key_of(&s->cells[i], left_out);
	return keys;
}

static void keys_free(char **keys, int n)
{
	for (int i = 0; i < n; i++)
		free(keys[i]);
	free(keys);
}

/* The only one of n keys that is not taken and equals `key`; -1 = none, or several. */
static int only_partner(const char *key, char *const *keys, const bool *taken, int n)
{
	int found = -1;
	for (int i = 0; i < n; i++) {
		if (taken[i] || strcmp(key, keys[i]) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

/* Finds partners for cells of a that have none yet; partner[i] = -1 stays where there is none. */
static void find_partners(const struct comparison *c, const bool left_out[COMPARE_COLUMNS], int *partner, bool *taken)
{
	char **a = keys_of(c->a, left_out), **b = keys_of(c->b, left_out);
	for (int i = 0; i < c->a->n_cells; i++) {
		if (partner[i] >= 0)
			continue;
		partner[i] = only_partner(a[i], b, taken, c->b->n_cells);
		if (partner[i] >= 0)
			taken[partner[i]] = true;
	}
	keys_free(a, c->a->n_cells);
	keys_free(b, c->b->n_cells);
}

static void pair_cells(struct comparison *c)
{
	static const char *const details[] = {"target file", "task parameters", "data", "metric", "method parameters", "seed",
		"measuring procedure", "weights"};
	bool names_only[COMPARE_COLUMNS];
	bool *taken = mem_new((size_t)c->b->n_cells + 1, sizeof *taken);
	int *partner = mem_new((size_t)c->a->n_cells + 1, sizeof *partner);
	memcpy(names_only, c->differs, sizeof names_only);
	for (size_t i = 0; i < sizeof details / sizeof *details; i++)
		names_only[column_named(details[i])] = true;
	for (int i = 0; i < c->a->n_cells; i++)
		partner[i] = -1;
	find_partners(c, c->differs, partner, taken);
	find_partners(c, names_only, partner, taken);
	c->cells = mem_new((size_t)c->a->n_cells + 1, sizeof *c->cells);
	c->only_a = mem_new((size_t)c->a->n_cells + 1, sizeof *c->only_a);
	c->only_b = mem_new((size_t)c->b->n_cells + 1, sizeof *c->only_b);
	for (int i = 0; i < c->a->n_cells; i++) {
		if (partner[i] >= 0)
			c->cells[c->n_cells++] = (struct compared){.a = &c->a->cells[i], .b = &c->b->cells[partner[i]]};
		else
			c->only_a[c->n_only_a++] = &c->a->cells[i];
	}
	for (int i = 0; i < c->b->n_cells; i++) {
		if (!taken[i])
			c->only_b[c->n_only_b++] = &c->b->cells[i];
	}
	free(taken);
	free(partner);
}

/* ---- what partners are not made of alike ---- */

struct noting {
	struct comparison *c;
	const char *column, *label;
};

static void note_one_unlike(void *user, const char *key, const char *a, const char *b)
{
	const struct noting *n = user;
	struct comparison *c = n->c;
	for (int i = 0; i < c->n_unlike; i++) {
		struct unlike *x = &c->unlike[i];
		if (!strcmp(x->column, n->column) && !strcmp(x->key, key) && !strcmp(x->a, a) && !strcmp(x->b, b)) {
			x->cells++;
			return;
		}
	}
	c->unlike = mem_grow(c->unlike, (size_t)c->n_unlike + 1, sizeof *c->unlike);
	c->unlike[c->n_unlike++] = (struct unlike){n->column, text_copy(key), text_copy(a), text_copy(b), 1, n->label};
}

static void note_unlike(struct comparison *c)
{
	static const char *const parameters[] = {"method parameters", "task parameters"};
	char a[COLUMN_TEXT], b[COLUMN_TEXT];
	for (int i = 0; i < c->n_cells; i++) {
		const struct side_cell *x = c->cells[i].a, *y = c->cells[i].b;
		for (int k = 0; k < COMPARE_COLUMNS; k++) {
			struct noting n = {c, column_name(k), x->label};
			if (!strcmp(n.column, parameters[0]))
				params_differences(x->row.method_params, y->row.method_params, note_one_unlike, &n);
			else if (!strcmp(n.column, parameters[1]))
				params_differences(x->row.task_params, y->row.task_params, note_one_unlike, &n);
			else if (strcmp(column_text(x, k, a), column_text(y, k, b)) != 0)
				note_one_unlike(&n, "", a, b);
		}
	}
}

char *compare_unlike_text(const struct comparison *c, const struct unlike *x, const char *a, const char *b)
{
	char *text = text_format("%s%s%s: %s %s, %s %s", x->column, *x->key ? ", " : "", x->key, a, *x->a ? x->a : "none", b,
		*x->b ? x->b : "none");
	if (x->cells == c->n_cells)
		return text;
	char *some = text_format("%s (%d of %d cells; the first: %s)", text, x->cells, c->n_cells, x->first);
	free(text);
	return some;
}

/* ---- samples both sides have ---- */

/* Both lists are ordered by id. Calls each(user, a, b) for every id on both sides with an ok row. */
static void each_shared(
	const struct compared *x, void (*each)(void *, const struct side_sample *, const struct side_sample *), void *user)
{
	for (int i = 0, k = 0; i < x->a->n_samples && k < x->b->n_samples;) {
		const struct side_sample *a = &x->a->samples[i], *b = &x->b->samples[k];
		int order = strcmp(a->id, b->id);
		if (order == 0 && a->ok && b->ok)
			each(user, a, b);
		i += order <= 0;
		k += order >= 0;
	}
}

/* Scores of shared samples with the number of each one's context; a method's pool goes on in the same arrays. */
struct scores {
	double *a, *b;
	int *cluster, n;
	const char **contexts; /* [n_contexts] names of clusters */
	int n_contexts, first; /* names of other cells lie below first: a context name is one cell's own */
};

static void scores_free(struct scores *s)
{
	free(s->a);
	free(s->b);
	free(s->cluster);
	free(s->contexts);
}

static int context_number(struct scores *s, const char *context)
{
	for (int i = s->n_contexts; i-- > s->first;) {
		if (!strcmp(s->contexts[i], context))
			return i;
	}
	s->contexts = mem_grow(s->contexts, (size_t)s->n_contexts + 1, sizeof *s->contexts);
	s->contexts[s->n_contexts] = context;
	return s->n_contexts++;
}

static void add_scores(void *user, const struct side_sample *a, const struct side_sample *b)
{
	struct scores *s = user;
	s->a = mem_grow(s->a, (size_t)s->n + 1, sizeof *s->a);
	s->b = mem_grow(s->b, (size_t)s->n + 1, sizeof *s->b);
	s->cluster = mem_grow(s->cluster, (size_t)s->n + 1, sizeof *s->cluster);
	s->a[s->n] = a->score;
	s->b[s->n] = b->score;
	s->cluster[s->n++] = context_number(s, a->context);
}

static double mean(const double *x, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += x[i];
	return n > 0 ? sum / n : NAN;
}

/* With power .8, and never less than one sample in each of the contexts that have to differ for any p below alpha. */
static double detectable(const struct paired *p, double alpha)
{
	double by_noise = stats_detectable(p->standard_error, alpha, .8);
	return fmax(by_noise, fmin(1, (double)stats_least_differing(alpha) / p->n));
}

struct counting {
	struct compared *x;
	struct comparison *c;
};

static void count_answer(void *user, const struct side_sample *a, const struct side_sample *b)
{
	struct counting *n = user;
	struct comparison *c = n->c;
	bool changed = strcmp(a->answer_ids, b->answer_ids) != 0;
	n->x->answers_changed += changed;
	n->x->answers_changed_alone += changed && a->score == b->score;
	if (a->score == b->score)
		return;
	c->flips = mem_grow(c->flips, (size_t)c->n_flips + 1, sizeof *c->flips);
	c->flips[c->n_flips++] = (struct flip){n->x, a, b};
}

static void compare_scores(struct comparison *c, struct compared *x)
{
	struct scores s = {0};
	each_shared(x, add_scores, &s);
	each_shared(x, count_answer, &(struct counting){x, c});
	x->score = stats_paired(s.a, s.b, s.cluster, s.n, SEED);
	x->score_a = mean(s.a, s.n);
	x->score_b = mean(s.b, s.n);
	scores_free(&s);
}

/* ---- pools: a method over all its cells of one protocol ---- */

static bool same_pool(const struct side_cell *a, const struct side_cell *b)
{
	return !strcmp(a->row.method, b->row.method) && !strcmp(a->row.method_params, b->row.method_params) &&
	       !strcmp(a->row.protocol, b->row.protocol) && !strcmp(a->row.target, b->row.target) &&
	       !strcmp(a->row.precision, b->row.precision);
}

/* Ratios of one task share contexts, other tasks and lengths have their own, though the names may be equal. */
static bool shares_contexts(const struct side_cell *a, const struct side_cell *b)
{
	return !strcmp(a->row.task, b->row.task) && !strcmp(a->row.task_params, b->row.task_params) &&
	       !strcmp(a->row.task_variant, b->row.task_variant) && a->row.context_tokens == b->row.context_tokens &&
	       !strcmp(a->row.mode, b->row.mode) && a->row.seed == b->row.seed;
}

static void pool_label(const struct comparison *c, struct pooled *p, const struct side_cell *of)
{
	int n = snprintf(p->label, sizeof p->label, "%s%s%.100s, all %d cells, %s", of->row.method, *of->params ? " " : "",
		of->params, p->cells, of->row.protocol);
	char mine[COLUMN_TEXT];
	static const char *const further[] = {"target", "precision"};
	for (int k = 0; k < 2; k++) {
		int column = column_named(further[k]);
		if (c->varies[column] && n < (int)sizeof p->label - 2)
			n += snprintf(p->label + n, sizeof p->label - (size_t)n, ", %.80s", column_text(of, column, mine));
	}
}

static void make_pool(struct comparison *c, int first)
{
	struct scores s = {0};
	const struct side_cell *of = c->cells[first].a;
	struct pooled p = {.first = of};
	bool *done = mem_new((size_t)c->n_cells, sizeof *done);
	for (int i = first; i < c->n_cells; i++) {
		if (done[i] || !same_pool(c->cells[i].a, of))
			continue;
		s.first = s.n_contexts;
		for (int k = i; k < c->n_cells; k++) { /* the ratios of one set of contexts */
			if (done[k] || !same_pool(c->cells[k].a, of) || !shares_contexts(c->cells[k].a, c->cells[i].a))
				continue;
			each_shared(&c->cells[k], add_scores, &s);
			done[k] = true;
			p.cells++;
		}
	}
	if (p.cells > 1) {
		p.score = stats_paired(s.a, s.b, s.cluster, s.n, SEED);
		p.score_a = mean(s.a, s.n);
		p.score_b = mean(s.b, s.n);
		pool_label(c, &p, of);
		c->pools = mem_grow(c->pools, (size_t)c->n_pools + 1, sizeof *c->pools);
		c->pools[c->n_pools++] = p;
	}
	scores_free(&s);
	free(done);
}

bool compare_in_pool(const struct pooled *p, const struct compared *cell)
{
	return same_pool(p->first, cell->a);
}

static void make_pools(struct comparison *c)
{
	for (int i = 0; i < c->n_cells; i++) {
		bool first = true;
		for (int k = 0; k < i && first; k++)
			first = !same_pool(c->cells[k].a, c->cells[i].a);
		if (first)
			make_pool(c, i);
	}
}

/* ---- speed ---- */

static struct rounds rounds_of(const struct side_cell *c, bool over_full)
{
	return (struct rounds){c->ttft, over_full ? c->full->ttft : NULL, c->n_ttft};
}

/* 1.4826 MAD / median: of noise that is normal but for some wild rounds, its deviation as a share. */
static double deviation(const double *x, int n)
{
	double *away = mem_new((size_t)n + 1, sizeof *away), median = stats_quantile(x, n, .5);
	for (int i = 0; i < n; i++)
		away[i] = fabs(x[i] - median);
	double found = n > 0 ? 1.4826 * stats_quantile(away, n, .5) / median : 0;
	free(away);
	return found;
}

/* Standard error of the median of a side's ratios, as a share: 1.2533 deviations / sqrt(n). */
static double ratio_error(const struct side_cell *c)
{
	double *ratio = mem_new((size_t)c->n_ttft, sizeof *ratio);
	for (int i = 0; i < c->n_ttft; i++)
		ratio[i] = c->ttft[i] / c->full->ttft[i];
	double error = 1.2533 * deviation(ratio, c->n_ttft) / sqrt(c->n_ttft);
	free(ratio);
	return error;
}

static void compare_speed(struct comparison *c, struct compared *x)
{
	bool timed = x->a->n_ttft > 0 && x->b->n_ttft > 0;
	x->ratio_known = timed && x->a->full && x->b->full && x->a->full != x->a;
	x->time_known = timed && c->same_machine;
	x->ratio.p = x->time.p = NAN;
	x->waited = fmax(x->a->waited, x->b->waited);
	x->ratio_margin = x->waited > c->rules.waited ? fmax(c->rules.ratio, c->rules.time) : c->rules.ratio;
	x->deviation = fmax(deviation(x->a->ttft, x->a->n_ttft), deviation(x->b->ttft, x->b->n_ttft));
	if (x->ratio_known)
		x->ratio = stats_speed(rounds_of(x->a, true), rounds_of(x->b, true), SEED);
	if (x->time_known)
		x->time = stats_speed(rounds_of(x->a, false), rounds_of(x->b, false), SEED);
}

/* ---- verdicts: Holm over all accuracy figures, and over all speed figures ---- */

static enum verdict judge(struct interval change, double p, const struct compare_rules *r, double margin, bool up_is_better)
{
	if (!isfinite(change.mean) || isnan(p))
		return UNKNOWN;
	bool told = (change.lo > 0 || change.hi < 0) && p <= r->alpha && fabs(change.mean) >= margin;
	return !told ? SAME : (change.mean > 0) == up_is_better ? BETTER : WORSE;
}

static void judge_scores(struct comparison *c)
{
	int n = c->n_cells + c->n_pools;
	double *p = mem_new((size_t)n + 1, sizeof *p), *adjusted = mem_new((size_t)n + 1, sizeof *adjusted);
	for (int i = 0; i < c->n_cells; i++)
		p[i] = c->cells[i].score.p;
	for (int i = 0; i < c->n_pools; i++)
		p[c->n_cells + i] = c->pools[i].score.p;
	stats_holm(p, n, adjusted);
	for (int i = 0; i < c->n_cells; i++) {
		struct compared *x = &c->cells[i];
		x->score_p = adjusted[i];
		x->detectable = detectable(&x->score, c->rules.alpha / n);
		x->score_verdict = judge(x->score.change, x->score_p, &c->rules, c->rules.score, true);
	}
	for (int i = 0; i < c->n_pools; i++) {
		struct pooled *x = &c->pools[i];
		x->score_p = adjusted[c->n_cells + i];
		x->detectable = detectable(&x->score, c->rules.alpha / n);
		x->verdict = judge(x->score.change, x->score_p, &c->rules, c->rules.score, true);
	}
	free(p);
	free(adjusted);
}

static void judge_speeds(struct comparison *c)
{
	int n = 0;
	double *p = mem_new(2 * (size_t)c->n_cells + 1, sizeof *p),
	       *adjusted = mem_new(2 * (size_t)c->n_cells + 1, sizeof *adjusted);
	for (int i = 0; i < c->n_cells; i++) {
		if (c->cells[i].ratio_known)
			p[n++] = c->cells[i].ratio.p;
		if (c->cells[i].time_known)
			p[n++] = c->cells[i].time.p;
	}
	stats_holm(p, n, adjusted);
	int count = n;
	n = 0;
	for (int i = 0; i < c->n_cells; i++) {
		struct compared *x = &c->cells[i];
		x->ratio_p = x->ratio_known ? adjusted[n++] : NAN;
		x->time_p = x->time_known ? adjusted[n++] : NAN;
		x->ratio_detectable = NAN;
		if (x->ratio_known)
			x->ratio_detectable = fmax(x->ratio_margin,
				stats_detectable(hypot(ratio_error(x->a), ratio_error(x->b)), c->rules.alpha / count, .8));
		x->ratio_verdict = judge(x->ratio.change, x->ratio_p, &c->rules, x->ratio_margin, false);
		x->time_verdict = judge(x->time.change, x->time_p, &c->rules, c->rules.time, false);
	}
	free(p);
	free(adjusted);
}

/* ---- refusals ---- */

static void refuse(struct comparison *c, char *text)
{
	c->refusals = mem_grow(c->refusals, (size_t)c->n_refusals + 1, sizeof *c->refusals);
	c->refusals[c->n_refusals++] = text;
}

struct prompts {
	int unequal, unknown;
	const char *first; /* sample id */
};

static void count_prompt(void *user, const struct side_sample *a, const struct side_sample *b)
{
	struct prompts *p = user;
	bool unknown = !*a->prompt_sha256 || !*b->prompt_sha256, unequal = strcmp(a->prompt_sha256, b->prompt_sha256) != 0;
	p->unknown += unknown;
	p->unequal += unequal && !unknown;
	if ((unknown || unequal) && !p->first)
		p->first = a->id;
}

static void refuse_prompts(struct comparison *c)
{
	struct prompts all = {0};
	int cells = 0;
	const char *label = "", *first = "";
	for (int i = 0; i < c->n_cells; i++) {
		struct prompts p = {0};
		each_shared(&c->cells[i], count_prompt, &p);
		all.unequal += p.unequal;
		all.unknown += p.unknown;
		if (!p.first)
			continue;
		if (cells++ == 0) {
			label = c->cells[i].a->label;
			first = p.first;
		}
	}
	if (all.unequal)
		refuse(c, text_format("prompts differ: %d shared samples of %d cells have another prompt hash; the first is "
				      "sample %s of %s",
				  all.unequal, cells, first, label));
	if (all.unknown)
		refuse(c, text_format("%d shared samples have no prompt hash on a side, so that equal prompts cannot be shown",
				  all.unknown));
}

/* Columns that must be equal in every pair. Each is named once, with the first pair that differs in it. */
static void refuse_columns(struct comparison *c)
{
	static const struct {
		const char *column, *words;
	} strict[] = {{"protocol", "protocols"}, {"metric", "metrics"}, {"mode", "modes"},
		{"measuring procedure", "measuring procedures"}};
	char a[COLUMN_TEXT], b[COLUMN_TEXT];
	for (size_t s = 0; s < sizeof strict / sizeof *strict; s++) {
		int k = column_named(strict[s].column), n = 0, first = -1;
		for (int i = 0; i < c->n_cells; i++) {
			if (strcmp(column_text(c->cells[i].a, k, a), column_text(c->cells[i].b, k, b)) == 0)
				continue;
			n++;
			first = first < 0 ? i : first;
		}
		if (n > 0)
			refuse(c, text_format("%s differ in %d cells: %s against %s in %s", strict[s].words, n,
					  column_text(c->cells[first].a, k, a), column_text(c->cells[first].b, k, b),
					  c->cells[first].a->label));
	}
}

static void scorer_range(const struct side_cell *c, int *lo, int *hi)
{
	for (int i = 0; i < c->n_samples; i++) {
		if (!c->samples[i].ok)
			continue;
		int v = c->samples[i].scorer_version;
		*lo = *lo == 0 || v < *lo ? v : *lo;
		*hi = v > *hi ? v : *hi;
	}
}

static void refuse_scorers(struct comparison *c)
{
	for (int i = 0; i < c->n_cells; i++) {
		int a_lo = 0, a_hi = 0, b_lo = 0, b_hi = 0;
		scorer_range(c->cells[i].a, &a_lo, &a_hi);
		scorer_range(c->cells[i].b, &b_lo, &b_hi);
		if (a_hi == 0 || b_hi == 0 || (a_lo == a_hi && b_lo == b_hi && a_lo == b_lo))
			continue;
		refuse(c, text_format("scorer versions differ: %d to %d against %d to %d in %s; `kvbench score DB` brings a "
				      "database to "
				      "today's",
				  a_lo, a_hi, b_lo, b_hi, c->cells[i].a->label));
		return;
	}
}

/* ---- the whole ---- */

static int by_change(const void *x, const void *y)
{
	const struct flip *p = x, *q = y;
	double dp = fabs(p->b->score - p->a->score), dq = fabs(q->b->score - q->a->score);
	if (dp != dq)
		return dp < dq ? 1 : -1;
	if (p->cell != q->cell)
		return p->cell < q->cell ? -1 : 1;
	return strcmp(p->a->id, q->a->id);
}

static bool same_machine(const struct side *a, const struct side *b)
{
	const struct side_run *x = side_newest_run(a), *y = side_newest_run(b);
	return x && y && !strcmp(x->row.machine, y->row.machine);
}

void compare_make(struct comparison *c, const struct side *a, const struct side *b, const struct compare_rules *rules)
{
	*c = (struct comparison){.a = a, .b = b, .rules = *rules, .same_machine = same_machine(a, b)};
	classify_columns(c);
	pair_cells(c);
	note_unlike(c);
	for (int i = 0; i < c->n_cells; i++) {
		compare_scores(c, &c->cells[i]);
		compare_speed(c, &c->cells[i]);
	}
	make_pools(c);
	judge_scores(c);
	judge_speeds(c);
	if (c->n_flips > 0)
		qsort(c->flips, (size_t)c->n_flips, sizeof *c->flips, by_change);
	refuse_columns(c);
	refuse_scorers(c);
	refuse_prompts(c);
	if (c->n_cells == 0)
		refuse(c, text_format("no cell of %s has a partner in %s", a->path, b->path));
}

void compare_free(struct comparison *c)
{
	for (int i = 0; i < c->n_refusals; i++)
		free(c->refusals[i]);
	free(c->refusals);
	for (int i = 0; i < c->n_unlike; i++) {
		free(c->unlike[i].key);
		free(c->unlike[i].a);
		free(c->unlike[i].b);
	}
	free(c->unlike);
	free(c->cells);
	free(c->only_a);
	free(c->only_b);
	free(c->pools);
	free(c->flips);
	*c = (struct comparison){0};
}
