/* export.c: the result table as text. csv and json: one row a cell with everything measured, for other programs. md, latex:
 * methods x ratios for each task, length and protocol. text: the same with the findings and flags, for a terminal. */
#include "report/report.h"

#include "report/averages.h"
#include "report/page.h"
#include "report/summary.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one row a cell ---- */

struct value {
	const char *name;
	const char *text; /* NULL: a number */
	double number;    /* NAN: none */
	bool whole;       /* printed without a fraction */
};
enum { MAX_VALUES = 72 };

struct row {
	struct value v[MAX_VALUES];
	int n;
};

static void put_text(struct row *r, const char *name, const char *text)
{
	r->v[r->n++] = (struct value){name, text ? text : "", NAN, false};
}

static void put_number(struct row *r, const char *name, double number)
{
	r->v[r->n++] = (struct value){name, NULL, number, false};
}

static void put_whole(struct row *r, const char *name, int64_t number)
{
	r->v[r->n++] = (struct value){name, NULL, (double)number, true};
}

static void put_times(struct row *r, const struct data *d, const struct cell *c)
{
	static const char *const part[N_PHASES] = {"prefill_ns", "score_ns", "select_ns", "compact_ns", "question_ns",
		"first_token_ns", "ttft_ns", "second_ttft_ns", "decode_ns", "second_pass_ns", "proxy_prefill_ns", "mapper_ns", "wait_ns",
		"allocate_ns", "gather_ns"};
	static const char *const device_part[TTFT + 1] = {"prefill_device_ns", "score_device_ns", "select_device_ns", "compact_device_ns",
		"question_device_ns", "first_token_device_ns", "ttft_device_ns"};
	put_whole(r, "timed_repetitions", c->time[TTFT].n);
	for (int p = 0; p < N_PHASES; p++)
		put_number(r, part[p], c->time[p].median);
	for (int p = 0; p <= TTFT; p++)
		put_number(r, device_part[p], c->device_time[p]);
	put_number(r, "ttft_p10_ns", c->time[TTFT].p10);
	put_number(r, "ttft_p90_ns", c->time[TTFT].p90);
	put_number(r, "ttft_of_full", data_ttft_ratio(d, c));
	put_whole(r, "decode_tokens", c->decode_tokens);
	put_whole(r, "peak_bytes", c->peak_bytes);
}

static struct row cell_values(const struct data *d, const struct cell *c)
{
	struct row r = {.n = 0};
	const struct cell_row *w = &c->row;
	put_text(&r, "target", w->target);
	put_text(&r, "proxy", w->proxy);
	put_text(&r, "dtype", w->dtype);
	put_text(&r, "precision", w->precision);
	put_text(&r, "topology", w->topology);
	put_text(&r, "task", w->task);
	put_text(&r, "task_variant", w->task_variant);
	put_text(&r, "data_state", w->data_state);
	put_text(&r, "metric", w->metric);
	put_whole(&r, "scorer_version", w->scorer_version);
	put_whole(&r, "measure_version", w->measure_version);
	put_whole(&r, "context_tokens", w->context_tokens);
	put_text(&r, "protocol", w->protocol);
	put_text(&r, "mode", w->mode);
	put_text(&r, "method", w->method);
	put_text(&r, "method_params", w->method_params);
	put_number(&r, "retained", w->retained_ppm / 1e6);
	put_number(&r, "retained_realised", w->retained_mean);
	put_number(&r, "score", c->score.mean);
	put_number(&r, "score_lo", c->score.lo);
	put_number(&r, "score_hi", c->score.hi);
	put_text(&r, "also_metric", w->also_metric);
	put_number(&r, "also_score", w->also_mean);
	put_whole(&r, "also_n", w->also_n);
	put_whole(&r, "ok", w->ok);
	put_whole(&r, "planned", w->planned);
	put_whole(&r, "failed", w->failed);
	put_whole(&r, "oom", w->oom);
	put_whole(&r, "not_applicable", w->not_applicable);
	put_whole(&r, "empty", w->empty);
	put_whole(&r, "ended_by_length", w->length_finish);
	put_whole(&r, "cut", w->cut);
	put_whole(&r, "kv_bytes_full", w->kv_bytes_full);
	put_whole(&r, "kv_bytes_kept", w->kv_bytes_kept);
	put_times(&r, d, c);
	put_text(&r, "cell_id", w->cell_id);
	return r;
}

static void number_text(struct strbuf *out, const struct value *v)
{
	if (!isnan(v->number))
		strbuf_printf(out, v->whole ? "%.0f" : "%.9g", v->number);
}

static void export_csv(struct strbuf *out, const struct data *d)
{
	for (int i = 0; i < d->n_cells; i++) {
		struct row r = cell_values(d, &d->cells[i]);
		for (int k = 0; k < r.n && i == 0; k++)
			strbuf_printf(out, "%s%s", r.v[k].name, k + 1 < r.n ? "," : "\n");
		for (int k = 0; k < r.n; k++) {
			if (r.v[k].text)
				csv_text(out, r.v[k].text);
			else
				number_text(out, &r.v[k]);
			strbuf_puts(out, k + 1 < r.n ? "," : "\n");
		}
	}
}

static json_t *json_value(const struct value *v)
{
	if (v->text) {
		json_t *text = json_string(v->text);
		return text ? text : json_string("(not UTF-8)");
	}
	return isnan(v->number) ? json_null() : v->whole ? json_integer((json_int_t)v->number) : json_real(v->number);
}

static void export_json(struct strbuf *out, const struct data *d)
{
	json_t *all = json_array();
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		struct row r = cell_values(d, c);
		json_t *one = json_object();
		for (int k = 0; k < r.n; k++)
			json_object_set_new(one, r.v[k].name, json_value(&r.v[k]));
		json_t *kept = c->kept ? json_array() : json_null(); /* mean share for each head,
									[layer * kv_heads + head] */
		for (int k = 0; c->kept && k < c->row.layers * c->row.kv_heads; k++)
			json_array_append_new(kept, json_real(c->kept[k]));
		json_object_set_new(one, "kept_share_of_heads", kept);
		json_array_append_new(all, one);
	}
	char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	strbuf_puts(out, text ? text : "[]");
	strbuf_puts(out, "\n");
	free(text);
	json_decref(all);
}

/* ---- methods x ratios ---- */

enum grid { MARKDOWN, LATEX, TERMINAL };

static void grid_text(struct strbuf *out, enum grid g, const char *s)
{
	if (g == LATEX)
		latex_text(out, s);
	else if (g == MARKDOWN)
		markdown_text(out, s);
	else
		for (; *s; s++)
			strbuf_puts(out, (unsigned char)*s < 0x20 ? " " : (char[]){*s, 0});
}

/* Characters of a UTF-8 text: what a terminal's column counts. */
static int width(const char *s)
{
	int n = 0;
	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

static void terminal_pad(struct strbuf *out, int used, int columns)
{
	strbuf_printf(out, "%*s", used < columns ? columns - used : 1, "");
}

/* "0.98 [0.90, 1.00]", then the second metric's mean, where there is one, and n/N when a part of the samples is missing. */
static void score_text(char buf[128], const struct cell *c)
{
	char text[64], also[64] = "", part[32] = "";
	*buf = 0;
	if (!c)
		return;
	if (c->row.also_metric)
		snprintf(also, sizeof also, " / %.2f", c->row.also_mean);
	if (c->row.ok < c->row.planned)
		snprintf(part, sizeof part, " (%d/%d)", c->row.ok, c->row.planned);
	snprintf(buf, 128, "%s%s%s", format_interval(text, c->score), also, part);
}

static int label_width(const struct data *d)
{
	int most = 6;
	for (int v = 0; v < d->n_variants; v++)
		most = width(d->variants[v].label) > most ? width(d->variants[v].label) : most;
	return most;
}

/* One cell's text in column k. */
static void grid_cell(struct strbuf *out, const struct data *d, int k, const char *text, enum grid g)
{
	strbuf_printf(out, g == MARKDOWN ? " %s |" : g == LATEX ? " & %s" : "%s", text);
	if (g == TERMINAL && k + 1 < d->n_ppm)
		terminal_pad(out, width(text), 19);
}

static void grid_cells(struct strbuf *out, const struct data *d, int panel, int variant, enum grid g)
{
	char text[128];
	for (int k = 0; k < d->n_ppm; k++) {
		score_text(text, data_cell(d, panel, variant, d->ppm[k]));
		grid_cell(out, d, k, text, g);
	}
	strbuf_puts(out, g == LATEX ? " \\\\\n" : "\n");
}

/* "TITLE, PROTOCOL, TARGET, ...", then the table's head. */
static void grid_head(struct strbuf *out, const struct data *d, const char *const *words, int n_words, enum grid g)
{
	strbuf_puts(out, g == MARKDOWN ? "### " : g == LATEX ? "% " : "");
	for (int i = 0; i < n_words; i++) {
		strbuf_puts(out, i ? ", " : "");
		grid_text(out, g, words[i]);
	}
	strbuf_puts(out, g == MARKDOWN ? "\n\n| method |" : "\n");
	if (g == LATEX) {
		strbuf_puts(out, "\\begin{tabular}{l");
		for (int k = 0; k < d->n_ppm; k++)
			strbuf_puts(out, "r");
		strbuf_puts(out, "}\n\\hline\nmethod");
	}
	if (g == TERMINAL) {
		strbuf_puts(out, "method");
		terminal_pad(out, 6, label_width(d) + 2);
	}
	for (int k = 0; k < d->n_ppm; k++) {
		char r[80], text[64];
		snprintf(r, sizeof r, "r = %s", format_ratio(text, d->ppm[k]));
		strbuf_printf(out, g == MARKDOWN ? " %s |" : g == LATEX ? " & $%s$" : "%s", r);
		if (g == TERMINAL && k + 1 < d->n_ppm)
			terminal_pad(out, width(r), 19);
	}
	strbuf_puts(out, g == LATEX ? " \\\\\n\\hline\n" : "\n");
	if (g == MARKDOWN) {
		strbuf_puts(out, "|---|");
		for (int k = 0; k < d->n_ppm; k++)
			strbuf_puts(out, "---:|");
		strbuf_puts(out, "\n");
	}
}

static void grid_row_head(struct strbuf *out, const struct data *d, int variant, enum grid g)
{
	strbuf_puts(out, g == MARKDOWN ? "| " : "");
	grid_text(out, g, d->variants[variant].label);
	if (g == TERMINAL)
		terminal_pad(out, width(d->variants[variant].label), label_width(d) + 2);
	strbuf_puts(out, g == MARKDOWN ? " |" : "");
}

static void grid_end(struct strbuf *out, enum grid g)
{
	strbuf_puts(out, g == LATEX ? "\\hline\n\\end{tabular}\n\n" : "\n");
}

static void grid_panel(struct strbuf *out, const struct data *d, int p, enum grid g)
{
	const struct cell_row *r = d->panels[p].row;
	const char *also = data_also_metric(d, p);
	char *metric = text_format("%s%s%s", r->metric, also ? " / " : "", also ? also : "");
	grid_head(out, d, (const char *[]){d->panels[p].title, r->protocol, r->target, r->precision, metric}, 5, g);
	free(metric);
	for (int v = 0; v < d->n_variants; v++) {
		if (!data_in_panel(d, p, v))
			continue;
		grid_row_head(out, d, v, g);
		grid_cells(out, d, p, v, g);
	}
	grid_end(out, g);
}

static void grid_average(struct strbuf *out, const struct data *d, const struct average *a, enum grid g)
{
	grid_head(out, d, (const char *[]){a->title, a->row->protocol, a->row->target, a->row->precision}, 4, g);
	for (int v = 0; v < d->n_variants; v++) {
		const double *score = &a->score[v * d->n_ppm];
		struct strbuf cells = {0};
		bool any = false;
		for (int k = 0; k < d->n_ppm; k++) {
			char text[64] = "";
			any = any || !isnan(score[k]);
			if (!isnan(score[k]))
				format_score(text, score[k]);
			grid_cell(&cells, d, k, text, g);
		}
		if (any) {
			grid_row_head(out, d, v, g);
			strbuf_puts(out, cells.text);
			strbuf_puts(out, g == LATEX ? " \\\\\n" : "\n");
		}
		strbuf_free(&cells);
	}
	grid_end(out, g);
}

static void export_grid(struct strbuf *out, const struct data *d, enum grid g)
{
	struct averages a;
	averages_make(&a, d);
	for (int p = 0; p < d->n_panels; p++)
		grid_panel(out, d, p, g);
	for (int i = 0; i < a.n; i++)
		grid_average(out, d, &a.v[i], g);
	averages_free(&a);
}

/* ---- the terminal ---- */

static void text_notes(struct strbuf *out, const char *mark, struct notes *n)
{
	for (int i = 0; i < n->n; i++) {
		strbuf_puts(out, mark);
		grid_text(out, TERMINAL, n->text[i]);
		strbuf_puts(out, "\n");
	}
	notes_free(n);
}

static void text_times(struct strbuf *out, const struct data *d)
{
	char time[64];
	int columns = label_width(d) + 2;
	for (int p = 0; p < d->n_panels; p++) {
		int ppm = data_timed_ppm(d, p);
		bool head = false;
		for (int v = 0; v < d->n_variants; v++) {
			const struct cell *c = data_cell(d, p, v, d->variants[v].full ? 1000000 : ppm);
			if (!c || !cell_timed(c))
				continue;
			if (!head)
				strbuf_printf(out, "Time to first token: %s, %s, r = %g (medians of %d)\n", d->panels[p].title,
					d->panels[p].row->protocol, ppm / 1e6, c->time[TTFT].n);
			head = true;
			grid_text(out, TERMINAL, d->variants[v].label);
			terminal_pad(out, width(d->variants[v].label), columns);
			double ratio = data_ttft_ratio(d, c);
			strbuf_printf(out, isnan(ratio) ? "%s\n" : "%-10s %.2f x full\n", format_time(time, c->time[TTFT].median),
				ratio);
		}
		strbuf_puts(out, head ? "\n" : "");
	}
}

static void export_text(struct strbuf *out, const struct data *d)
{
	struct totals t = summary_totals(d);
	struct notes main = {0}, more = {0}, flags = {0};
	export_grid(out, d, TERMINAL);
	text_times(out, d);
	strbuf_printf(out,
		"%d of %d cells complete; samples: %d of %lld answered, %d failed, %d out of memory, %d not applicable, %lld not yet "
		"run; %d answers empty\n",
		t.complete, t.cells, t.ok, t.planned, t.failed, t.oom, t.not_applicable, t.missing, t.empty);
	summary_findings(d, &main, &more);
	summary_flags(d, &flags);
	text_notes(out, "* ", &main);
	text_notes(out, "! ", &flags);
	notes_free(&more);
}

int report_export_results(const struct report_request *q, const char *format, struct strbuf *out, char err[ERR_LEN])
{
	static const char *const names[] = {"csv", "json", "md", "latex", "text"};
	int which = 0, rc;
	while (which < 5 && strcmp(format, names[which]) != 0)
		which++;
	if (which == 5)
		return err_set(err, "unknown export format \"%s\": csv, json, md, latex or text", format);
	struct report r;
	if ((rc = report_open(&r, q, err)) == 0) {
		if (which == 0)
			export_csv(out, r.d);
		else if (which == 1)
			export_json(out, r.d);
		else if (which == 4)
			export_text(out, r.d);
		else
			export_grid(out, r.d, which == 2 ? MARKDOWN : LATEX);
	}
	report_close(&r);
	return rc;
}

int report_export(struct store *s, const char *format, struct strbuf *out, char err[ERR_LEN])
{
	const struct report_source source = {.store = s};
	return report_export_results(&(struct report_request){.sources = &source, .n_sources = 1}, format, out, err);
}
