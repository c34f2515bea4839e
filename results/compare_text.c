/* compare_text.c: a comparison as text, json, md, latex, csv. See compare.h.
 *
 * A table shows the columns in which its cells differ, and no other; what is equal everywhere says nothing. Numbers that are not
 * there are empty. json holds everything, csv one table with a number a column. */
#include "results/compare.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a table of texts ---- */

struct grid {
	char **v; /* [rows * columns], row 0 is the head */
	int columns, n;
};

static void put(struct grid *g, char *text)
{
	g->v = mem_grow(g->v, (size_t)g->n + 1, sizeof *g->v);
	g->v[g->n++] = text;
}

static void put_number(struct grid *g, const char *format, double x)
{
	char text[64] = "";
	if (!isnan(x))
		snprintf(text, sizeof text, format, x);
	put(g, text_copy(text));
}

static void grid_free(struct grid *g)
{
	for (int i = 0; i < g->n; i++)
		free(g->v[i]);
	free(g->v);
}

enum style { TEXT, MARKDOWN, LATEX, CSV };

/* Characters of a UTF-8 text: what a terminal's column counts. */
static int width(const char *s)
{
	int n = 0;
	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

static void plain_text(struct strbuf *out, const char *s)
{
	for (; *s; s++)
		strbuf_puts(out, (unsigned char)*s < 0x20 || *s == 0x7f ? " " : (char[]){*s, 0});
}

static void (*const escape[])(struct strbuf *out, const char *s) = {
	plain_text, markdown_text, latex_text, csv_text}; /* of a style */

static void print_row(struct strbuf *out, const struct grid *g, int row, enum style style, const int *widths)
{
	strbuf_puts(out, style == MARKDOWN ? "|" : "");
	for (int k = 0; k < g->columns; k++) {
		const char *text = g->v[row * g->columns + k];
		strbuf_puts(out, style == MARKDOWN ? " " : style == LATEX && k ? " & " : style == CSV && k ? "," : "");
		escape[style](out, text);
		if (style == MARKDOWN)
			strbuf_puts(out, " |");
		if (style == TEXT && k + 1 < g->columns)
			strbuf_printf(out, "%*s", widths[k] + 2 - width(text), "");
	}
	strbuf_puts(out, style == LATEX ? " \\\\\n" : "\n");
}

static void print_grid(struct strbuf *out, const struct grid *g, enum style style)
{
	int rows = g->n / g->columns, *widths = mem_new((size_t)g->columns, sizeof *widths);
	for (int i = 0; i < g->n; i++) {
		int w = width(g->v[i]);
		widths[i % g->columns] = w > widths[i % g->columns] ? w : widths[i % g->columns];
	}
	if (style == LATEX) {
		strbuf_puts(out, "\\begin{tabular}{");
		for (int k = 0; k < g->columns; k++)
			strbuf_puts(out, "l");
		strbuf_puts(out, "}\n\\hline\n");
	}
	for (int row = 0; row < rows; row++) {
		print_row(out, g, row, style, widths);
		for (int k = 0; row == 0 && style == MARKDOWN && k < g->columns; k++)
			strbuf_puts(out, k + 1 < g->columns ? "|---" : "|---|\n");
		if (row == 0 && style == LATEX)
			strbuf_puts(out, "\\hline\n");
	}
	if (style == LATEX)
		strbuf_puts(out, "\\hline\n\\end{tabular}\n");
	free(widths);
}

/* ---- what a table says of a figure: for people one text, for programs a number a column ---- */

static char *change_text(struct interval x, const char *format)
{
	char text[3][32] = {"", "", ""};
	double numbers[] = {x.mean, x.lo, x.hi};
	if (isnan(x.mean))
		return text_copy("");
	for (int i = 0; i < 3; i++) {
		if (isnan(numbers[i]))
			snprintf(text[i], sizeof text[i], "?");
		else
			snprintf(text[i], sizeof text[i], format, numbers[i]);
	}
	return text_format("%s [%s, %s]", text[0], text[1], text[2]);
}

static void put_interval(struct grid *g, struct interval x, double p)
{
	double numbers[] = {x.mean, x.lo, x.hi, p};
	for (int i = 0; i < 4; i++)
		put_number(g, "%.9g", numbers[i]);
}

struct shown { /* what the comparison has at all */
	bool ratio, time;
};

static struct shown shown_of(const struct comparison *c)
{
	struct shown s = {false, false};
	for (int i = 0; i < c->n_cells; i++) {
		s.ratio = s.ratio || c->cells[i].ratio_known;
		s.time = s.time || c->cells[i].time_known;
	}
	return s;
}

static void put_heads(struct grid *g, const char *const *heads)
{
	for (; *heads; heads++)
		put(g, text_copy(*heads));
}

static void put_head(struct grid *g, const struct comparison *c, bool human, struct shown s)
{
	static const char *const score[2][12] = {
		{"n", "score_a", "score_b", "change", "lo", "hi", "p_holm", "verdict", "detectable", "raised", "lowered", NULL},
		{"n", "A", "B", "change [95 %]", "verdict", "would see", "flipped", NULL}};
	static const char *const ratio[2][8] = {{"ttft_of_full_a", "ttft_of_full_b", "ttft_of_full_change", "ttft_of_full_lo",
							"ttft_of_full_hi", "ttft_of_full_p_holm", "ttft_of_full_verdict", NULL},
		{"TTFT/full", "change [95 %]", "speed", NULL}};
	static const char *const time[2][8] = {
		{"ttft_a_ns", "ttft_b_ns", "ttft_change", "ttft_lo", "ttft_hi", "ttft_p_holm", "ttft_verdict", NULL},
		{"TTFT ms", "change [95 %]", "time", NULL}};
	for (int k = 0; k < COMPARE_COLUMNS; k++) {
		if (c->varies[k])
			put(g, text_copy(column_name(k)));
	}
	put_heads(g, score[human]);
	if (s.ratio)
		put_heads(g, ratio[human]);
	if (s.time)
		put_heads(g, time[human]);
	g->columns = g->n;
}

static void put_score(struct grid *g, const struct compared *x, bool human)
{
	put(g, text_format("%d", x->score.n));
	put_number(g, human ? "%.3f" : "%.9g", x->score_a);
	put_number(g, human ? "%.3f" : "%.9g", x->score_b);
	if (human)
		put(g, change_text(x->score.change, "%+.3f"));
	else
		put_interval(g, x->score.change, x->score_p);
	put(g, text_copy(verdict_name[x->score_verdict]));
	put_number(g, human ? "%.3f" : "%.9g", x->detectable);
	if (human) {
		put(g, text_format("+%d -%d", x->score.higher, x->score.lower));
		return;
	}
	put(g, text_format("%d", x->score.higher));
	put(g, text_format("%d", x->score.lower));
}

static void put_speed(struct grid *g, bool known, const struct speed *s, double p, enum verdict v, double unit, bool human)
{
	static const char *const words[] = {[SAME] = "same", [BETTER] = "faster", [WORSE] = "slower", [UNKNOWN] = "unknown"};
	if (!known) {
		for (int i = 0; i < (human ? 3 : 7); i++)
			put(g, text_copy(""));
		return;
	}
	struct interval percent = {100 * s->change.mean, 100 * s->change.lo, 100 * s->change.hi, s->change.n};
	if (human) {
		put(g, text_format("%.3g, %.3g", s->before / unit, s->now / unit));
		put(g, change_text(percent, "%+.1f %%"));
	} else {
		put_number(g, "%.9g", s->before);
		put_number(g, "%.9g", s->now);
		put_interval(g, s->change, p);
	}
	put(g, text_copy(words[v]));
}

static struct grid cells_grid(const struct comparison *c, bool human)
{
	struct grid g = {0};
	struct shown s = shown_of(c);
	char text[COLUMN_TEXT];
	put_head(&g, c, human, s);
	for (int i = 0; i < c->n_cells; i++) {
		const struct compared *x = &c->cells[i];
		for (int k = 0; k < COMPARE_COLUMNS; k++) {
			if (c->varies[k])
				put(&g, text_copy(human && !strcmp(column_name(k), "method parameters")
							  ? x->a->params
							  : column_text(x->a, k, text)));
		}
		put_score(&g, x, human);
		if (s.ratio)
			put_speed(&g, x->ratio_known, &x->ratio, x->ratio_p, x->ratio_verdict, 1, human);
		if (s.time)
			put_speed(&g, x->time_known, &x->time, x->time_p, x->time_verdict, 1e6, human);
	}
	return g;
}

static struct grid pools_grid(const struct comparison *c)
{
	struct grid g = {0};
	put_heads(&g, (const char *const[]){"pooled", "n", "A", "B", "change [95 %]", "verdict", "would see", NULL});
	g.columns = g.n;
	for (int i = 0; i < c->n_pools; i++) {
		const struct pooled *p = &c->pools[i];
		put(&g, text_copy(p->label));
		put(&g, text_format("%d", p->score.n));
		put_number(&g, "%.3f", p->score_a);
		put_number(&g, "%.3f", p->score_b);
		put(&g, change_text(p->score.change, "%+.3f"));
		put(&g, text_copy(verdict_name[p->verdict]));
		put_number(&g, "%.3f", p->detectable);
	}
	return g;
}

/* An answer for a line: at most 48 characters of it. */
static char *brief(const char *s)
{
	size_t n = 0;
	for (int i = 0; i < 48 && s[n]; i++) {
		do
			n++;
		while ((s[n] & 0xc0) == 0x80);
	}
	return text_format("%.*s%s", (int)n, s, s[n] ? "…" : "");
}

static struct grid flips_grid(const struct comparison *c, int most, bool human)
{
	struct grid g = {0};
	put_heads(&g, (const char *const[]){"cell", "sample", "score_a", "score_b", "answer_a", "answer_b", "gold", NULL});
	g.columns = g.n;
	for (int i = 0; i < c->n_flips && i < most; i++) {
		const struct flip *f = &c->flips[i];
		put(&g, text_copy(f->cell->a->label));
		put(&g, text_copy(f->a->id));
		put_number(&g, human ? "%.3g" : "%.9g", f->a->score);
		put_number(&g, human ? "%.3g" : "%.9g", f->b->score);
		put(&g, human ? brief(f->a->answer) : text_copy(f->a->answer));
		put(&g, human ? brief(f->b->answer) : text_copy(f->b->answer));
		put(&g, human ? brief(f->a->gold) : text_copy(f->a->gold));
	}
	return g;
}

/* ---- for people ---- */

static void print_line(struct strbuf *out, enum style style, const char *text)
{
	strbuf_puts(out, style == LATEX ? "% " : style == MARKDOWN ? "- " : "");
	escape[style == LATEX ? TEXT : style](out, text);
	strbuf_puts(out, "\n");
}

static char *side_text(const char *name, const struct side *s)
{
	const struct side_run *r = side_newest_run(s);
	return text_format("%s %s%s%.8s: %d cells, commit %s%s, %s", name, s->path, *s->run_id ? " run " : "", s->run_id,
		s->n_cells, r ? r->row.commit : "unknown", r && r->row.dirty ? " (with changes)" : "",
		r ? r->row.machine : "no run");
}

static void print_owned(struct strbuf *out, enum style style, char *text)
{
	print_line(out, style, text);
	free(text);
}

static void print_heading(struct strbuf *out, const struct comparison *c, enum style style)
{
	for (int i = 0; i < c->n_refusals; i++)
		print_owned(out, style, text_format("FORCED, not comparable: %s", c->refusals[i]));
	print_owned(out, style, side_text("A", c->a));
	print_owned(out, style, side_text("B", c->b));
	for (int i = 0; i < c->n_unlike; i++)
		print_owned(out, style, compare_unlike_text(c, &c->unlike[i], "A", "B"));
	if (!c->same_machine)
		print_line(out, style, "other machines: times are compared as ratios to the full cache only");
	strbuf_puts(out, "\n");
}

static void print_only(struct strbuf *out, enum style style, const char *name, const struct side_cell *const *cells, int n)
{
	struct strbuf b = {0};
	for (int i = 0; i < n && i < 8; i++)
		strbuf_printf(&b, "%s%s", i ? "; " : "", cells[i]->label);
	if (n > 0)
		print_owned(out, style, text_format("only in %s: %d cells: %s%s", name, n, b.text, n > 8 ? "; ..." : ""));
	strbuf_free(&b);
}

/* Wild rounds are kept: medians hardly feel them. How many there are says how quiet the machine was. */
static void print_outliers(struct strbuf *out, const struct comparison *c, enum style style)
{
	const struct side *sides[] = {c->a, c->b};
	int rounds[2] = {0}, wild[2] = {0};
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < sides[k]->n_cells; i++) {
			rounds[k] += sides[k]->cells[i].n_ttft;
			wild[k] += sides[k]->cells[i].outliers;
		}
	}
	if (rounds[0] && rounds[1])
		print_owned(out, style,
			text_format("timings: %d of %d rounds of A and %d of %d of B are outliers (modified z > %.1f; kept)",
				wild[0], rounds[0], wild[1], rounds[1], STATS_OUTLIER_TENTHS / 10.0));
}

static void print_counts(struct strbuf *out, const struct comparison *c, enum style style)
{
	int n[4] = {0}, changed = 0, alone = 0, shared = 0;
	for (int i = 0; i < c->n_cells; i++) {
		n[c->cells[i].score_verdict]++;
		changed += c->cells[i].answers_changed;
		alone += c->cells[i].answers_changed_alone;
		shared += c->cells[i].score.n;
	}
	print_owned(out, style,
		text_format("accuracy: %d cells better, %d same, %d worse, %d unknown (95 %% intervals of paired samples by "
			    "context; p with "
			    "Holm's correction <= %g)",
			n[BETTER], n[SAME], n[WORSE], n[UNKNOWN], c->rules.alpha));
	print_owned(out, style,
		text_format("answers: %d of %d shared samples differ, %d of them with an equal score", changed, shared, alone));
	print_outliers(out, c, style);
	print_only(out, style, "A", c->only_a, c->n_only_a);
	print_only(out, style, "B", c->only_b, c->n_only_b);
	strbuf_puts(out, "\n");
}

static void print_flips(struct strbuf *out, const struct comparison *c, enum style style, int most)
{
	int shown = c->n_flips < most ? c->n_flips : most;
	print_owned(out, style,
		shown < c->n_flips ? text_format("%d samples changed their score; the %d largest changes:", c->n_flips, shown)
				   : text_format("%d samples changed their score", c->n_flips));
	if (shown == 0)
		return;
	struct grid flips = flips_grid(c, most, true);
	strbuf_puts(out, "\n");
	print_grid(out, &flips, style);
	grid_free(&flips);
}

static void print_human(struct strbuf *out, const struct comparison *c, enum style style, int most_flips)
{
	print_heading(out, c, style);
	struct grid cells = cells_grid(c, true), pools = pools_grid(c);
	print_grid(out, &cells, style);
	strbuf_puts(out, "\n");
	if (c->n_pools > 0) {
		print_grid(out, &pools, style);
		strbuf_puts(out, "\n");
	}
	print_counts(out, c, style);
	print_flips(out, c, style, most_flips);
	grid_free(&cells);
	grid_free(&pools);
}

/* ---- json ---- */

static json_t *number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static json_t *text(const char *s)
{
	json_t *j = json_string(s ? s : "");
	return j ? j : json_string("(not UTF-8)");
}

static json_t *json_paired(const struct paired *p, double a, double b, double p_holm, double detectable, enum verdict v)
{
	return json_pack("{s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:i, s:i}", "n", p->n, "contexts", p->clusters,
		"a", number(a), "b", number(b), "change", number(p->change.mean), "lo", number(p->change.lo), "hi",
		number(p->change.hi), "p", number(p->p), "p_holm", number(p_holm), "detectable", number(detectable), "verdict",
		verdict_name[v], "raised", p->higher, "lowered", p->lower);
}

static json_t *json_speed(bool known, const struct speed *s, double p_holm, enum verdict v)
{
	if (!known)
		return json_null();
	return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "rounds", s->change.n, "a", number(s->before), "b",
		number(s->now), "change", number(s->change.mean), "lo", number(s->change.lo), "hi", number(s->change.hi),
		"p_holm", number(p_holm), "verdict", verdict_name[v]);
}

static json_t *json_cell(const struct comparison *c, const struct compared *x)
{
	json_t *o = json_object();
	char buf[COLUMN_TEXT];
	json_object_set_new(o, "cell", text(x->a->label));
	for (int k = 0; k < COMPARE_COLUMNS; k++) {
		if (c->varies[k])
			json_object_set_new(o, column_name(k), text(column_text(x->a, k, buf)));
	}
	json_object_set_new(o, "cell_id_a", text(x->a->row.cell_id));
	json_object_set_new(o, "cell_id_b", text(x->b->row.cell_id));
	json_object_set_new(
		o, "score", json_paired(&x->score, x->score_a, x->score_b, x->score_p, x->detectable, x->score_verdict));
	json_object_set_new(o, "answers_changed", json_integer(x->answers_changed));
	json_object_set_new(o, "answers_changed_with_equal_score", json_integer(x->answers_changed_alone));
	json_object_set_new(o, "ttft_of_full", json_speed(x->ratio_known, &x->ratio, x->ratio_p, x->ratio_verdict));
	json_object_set_new(o, "ttft_ns", json_speed(x->time_known, &x->time, x->time_p, x->time_verdict));
	return o;
}

static json_t *json_side(const struct side *s)
{
	const struct side_run *r = side_newest_run(s);
	return json_pack("{s:o, s:s, s:i, s:o, s:o, s:o}", "database", text(s->path), "run", s->run_id, "cells", s->n_cells,
		"commit", text(r ? r->row.commit : ""), "version", text(r ? r->row.version : ""), "machine",
		text(r ? r->row.machine : ""));
}

static json_t *json_labels(const struct side_cell *const *cells, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list, text(cells[i]->label));
	return list;
}

static json_t *json_differs(const struct comparison *c)
{
	json_t *o = json_object();
	char a[COLUMN_TEXT], b[COLUMN_TEXT];
	for (int k = 0; k < COMPARE_COLUMNS; k++) {
		if (c->differs[k])
			json_object_set_new(o, column_name(k),
				json_pack("[o, o]", text(column_text(&c->a->cells[0], k, a)),
					text(column_text(&c->b->cells[0], k, b))));
	}
	return o;
}

static json_t *json_unlike(const struct comparison *c)
{
	json_t *list = json_array();
	for (int i = 0; i < c->n_unlike; i++) {
		const struct unlike *x = &c->unlike[i];
		json_array_append_new(
			list, json_pack("{s:o, s:o, s:o, s:o, s:i, s:o}", "column", text(x->column), "key", text(x->key), "a",
				      text(x->a), "b", text(x->b), "cells", x->cells, "first", text(x->first)));
	}
	return list;
}

static json_t *json_flip(const struct flip *f)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "cell", text(f->cell->a->label), "sample",
		text(f->a->id), "context", text(f->a->context), "score_a", number(f->a->score), "score_b", number(f->b->score),
		"question", text(f->a->question), "answer_a", text(f->a->answer), "answer_b", text(f->b->answer), "gold",
		text(f->a->gold));
}

static void print_json(struct strbuf *out, const struct comparison *c, int most_flips)
{
	json_t *refusals = json_array(), *cells = json_array(), *pools = json_array(), *flips = json_array();
	for (int i = 0; i < c->n_refusals; i++)
		json_array_append_new(refusals, text(c->refusals[i]));
	for (int i = 0; i < c->n_cells; i++)
		json_array_append_new(cells, json_cell(c, &c->cells[i]));
	for (int i = 0; i < c->n_pools; i++) {
		const struct pooled *p = &c->pools[i];
		json_t *one = json_paired(&p->score, p->score_a, p->score_b, p->score_p, p->detectable, p->verdict);
		json_object_set_new(one, "pool", text(p->label));
		json_array_append_new(pools, one);
	}
	for (int i = 0; i < c->n_flips && i < most_flips; i++)
		json_array_append_new(flips, json_flip(&c->flips[i]));
	json_t *all = json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:i, s:o}", "forced", c->n_refusals > 0,
		"refusals", refusals, "a", json_side(c->a), "b", json_side(c->b), "differs", json_differs(c), "unlike",
		json_unlike(c), "same_machine", c->same_machine, "cells", cells, "pooled", pools, "only_in_a",
		json_labels(c->only_a, c->n_only_a), "only_in_b", json_labels(c->only_b, c->n_only_b), "flipped", c->n_flips,
		"flips", flips);
	char *dump = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	strbuf_puts(out, dump ? dump : "{}");
	strbuf_puts(out, "\n");
	free(dump);
	json_decref(all);
}

/* ---- csv ---- */

static int print_csv(struct strbuf *out, const struct comparison *c, const struct compare_output *o, char err[ERR_LEN])
{
	bool cells = !strcmp(o->table, "cells");
	if (!cells && strcmp(o->table, "flips") != 0)
		return err_set(err, "unknown table \"%s\": cells or flips", o->table);
	struct grid g = cells ? cells_grid(c, false) : flips_grid(c, o->most_flips, false);
	for (int i = 0; i < c->n_refusals; i++) {
		char *line = text_format("# FORCED, not comparable: %s", c->refusals[i]);
		plain_text(out, line);
		strbuf_puts(out, "\n");
		free(line);
	}
	print_grid(out, &g, CSV);
	grid_free(&g);
	return 0;
}

int compare_print(const struct comparison *c, const struct compare_output *o, struct strbuf *out, char err[ERR_LEN])
{
	if (!strcmp(o->format, "csv"))
		return print_csv(out, c, o, err);
	if (!strcmp(o->format, "json"))
		print_json(out, c, o->most_flips);
	else if (!strcmp(o->format, "md"))
		print_human(out, c, MARKDOWN, o->most_flips);
	else if (!strcmp(o->format, "latex"))
		print_human(out, c, LATEX, o->most_flips);
	else if (!strcmp(o->format, "text"))
		print_human(out, c, TEXT, o->most_flips);
	else
		return err_set(err, "unknown format \"%s\": text, json, md, latex or csv", o->format);
	return 0;
}
