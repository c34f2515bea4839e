/* tables.c: the tables of the page: scores of a panel, averages of suites, times of all. */
#include "report/averages.h"
#include "report/page.h"
#include "report/summary.h"
#include "report/svg.h"

#include <math.h>

/* near: within error of full. low: not above random beyond error. Controls themselves are neither. */
static const char *score_class(const struct data *d, const struct cell *c)
{
	const struct cell *full = data_full(d, c->panel), *random = data_random(d, c->panel, c->row.retained_ppm);
	if (d->variants[c->variant].colour < 0)
		return "";
	if (full && full->score.n > 0 && !stats_disjoint(c->score, full->score))
		return "near";
	return random && random->score.n > 0 && !(stats_disjoint(c->score, random->score) && c->score.mean > random->score.mean)
		       ? "low"
		       : "";
}

static void score_cell(struct strbuf *out, const struct data *d, const struct cell *c)
{
	char text[64];
	if (!c) {
		strbuf_puts(out, "<td></td>");
		return;
	}
	const struct cell_row *r = &c->row;
	strbuf_printf(out, "<td class=\"%s\" title=\"%d of %d samples, kept %s\">", score_class(d, c), r->ok, r->planned,
		format_score(text, r->retained_mean));
	strbuf_puts(out, format_score(text, c->score.mean));
	if (!isnan(c->score.lo))
		strbuf_printf(out, "<small>%.2f–%.2f</small>", c->score.lo, c->score.hi);
	if (r->also_metric && !isnan(r->also_mean)) {
		strbuf_puts(out, "<small>");
		html_text(out, r->also_metric);
		strbuf_printf(out, " %s</small>", format_score(text, r->also_mean));
	}
	if (r->ok < r->planned)
		strbuf_printf(out, "<small class=\"bad\">%d of %d%s%s</small>", r->ok, r->planned, r->oom ? ", oom" : "",
			r->failed ? ", failed" : "");
	if (r->empty)
		strbuf_printf(out, "<small class=\"bad\">%d empty</small>", r->empty);
	strbuf_puts(out, "</td>");
}

static bool in_panel(const struct data *d, int panel, int variant)
{
	for (int i = 0; i < d->n_cells; i++)
		if (d->cells[i].panel == panel && d->cells[i].variant == variant)
			return true;
	return false;
}

static void ratios_head(struct strbuf *out, const struct data *d)
{
	char r[64];
	strbuf_puts(out, "<div class=\"tw\"><table class=\"sort\"><thead><tr><th scope=\"col\"><button>method</button></th>");
	for (int k = 0; k < d->n_ppm; k++)
		strbuf_printf(out, "<th scope=\"col\"><button>r = %s</button></th>", format_ratio(r, d->ppm[k]));
	strbuf_puts(out, "</tr></thead><tbody>\n");
}

static void row_head(struct strbuf *out, const struct data *d, int variant)
{
	strbuf_puts(out, "<tr><td>");
	html_text(out, d->variants[variant].label);
	strbuf_puts(out, "</td>");
}

void page_tables(struct strbuf *out, const struct data *d, int panel)
{
	strbuf_puts(out, "<h4>");
	html_text(out, d->panels[panel].title);
	strbuf_puts(out, ", ");
	html_text(out, d->panels[panel].row->protocol);
	strbuf_puts(out, "</h4>");
	ratios_head(out, d);
	for (int v = 0; v < d->n_variants; v++) {
		if (!in_panel(d, panel, v))
			continue;
		row_head(out, d, v);
		for (int k = 0; k < d->n_ppm; k++)
			score_cell(out, d, data_cell(d, panel, v, d->ppm[k]));
		strbuf_puts(out, "</tr>\n");
	}
	strbuf_puts(out, "</tbody></table></div>\n");
}

static void average_table(struct strbuf *out, const struct data *d, const struct average *a)
{
	char text[64];
	const char *words[] = {a->title, a->row->protocol, a->row->target, a->row->precision};
	strbuf_puts(out, "<h3>");
	for (int i = 0; i < 4; i++) {
		strbuf_puts(out, i ? ", " : "");
		html_text(out, words[i]);
	}
	strbuf_puts(out, "</h3>");
	ratios_head(out, d);
	for (int v = 0; v < d->n_variants; v++) {
		const double *score = &a->score[v * d->n_ppm];
		bool any = false;
		for (int k = 0; k < d->n_ppm; k++)
			any = any || !isnan(score[k]);
		if (!any)
			continue;
		row_head(out, d, v);
		for (int k = 0; k < d->n_ppm; k++)
			strbuf_printf(out, "<td>%s</td>", isnan(score[k]) ? "" : format_score(text, score[k]));
		strbuf_puts(out, "</tr>\n");
	}
	strbuf_puts(out, "</tbody></table></div>\n");
}

void page_averages(struct strbuf *out, const struct data *d)
{
	struct averages a;
	averages_make(&a, d);
	if (a.n)
		strbuf_puts(out,
			"<h2 id=\"sec-averages\">Averages of suites</h2><p>Means of task means, only where every task is there "
			"with every sample.</p>\n");
	for (int i = 0; i < a.n; i++)
		average_table(out, d, &a.v[i]);
	averages_free(&a);
}

/* A number to sort by, and what is shown. */
static void time_cell(struct strbuf *out, double ns)
{
	char text[64];
	if (isnan(ns))
		strbuf_puts(out, "<td>–</td>");
	else
		strbuf_printf(out, "<td data-s=\"%.0f\">%s</td>", ns, format_time(text, ns));
}

static void bytes_cell(struct strbuf *out, int64_t bytes)
{
	char text[64];
	strbuf_printf(out, "<td data-s=\"%lld\">%s</td>", (long long)bytes, format_bytes(text, bytes));
}

static void time_row(struct strbuf *out, const struct data *d, const struct cell *c)
{
	double ratio = data_ttft_ratio(d, c);
	strbuf_puts(out, "<tr><td>");
	html_text(out, d->panels[c->panel].title);
	strbuf_puts(out, ", ");
	html_text(out, c->row.protocol);
	strbuf_puts(out, "</td><td>");
	html_text(out, d->variants[c->variant].label);
	strbuf_printf(out, "</td><td>%g</td>", c->row.retained_ppm / 1e6);
	time_cell(out, c->time[TTFT].median);
	time_cell(out, c->time[TTFT].p10);
	time_cell(out, c->time[TTFT].p90);
	strbuf_printf(out, isnan(ratio) ? "<td>–</td>" : "<td>%.2f×</td>", ratio);
	time_cell(out, c->time[SECOND_TTFT].median);
	time_cell(out, c->decode_tokens > 0 ? c->time[DECODE].median / (double)c->decode_tokens : NAN);
	bytes_cell(out, c->peak_bytes);
	bytes_cell(out, c->kv_before);
	bytes_cell(out, c->kv_after);
	strbuf_printf(out, "<td>%d</td></tr>\n", c->time[TTFT].n);
}

void page_times(struct strbuf *out, const struct data *d)
{
	static const char *const head[] = {"task", "method", "r", "TTFT", "p10", "p90", "of full", "2nd TTFT", "decode/token",
		"peak", "KV before", "KV after", "n"};
	strbuf_puts(out, "<div class=\"tw\"><table class=\"sort\"><thead><tr>");
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		strbuf_printf(out, "<th scope=\"col\"><button>%s</button></th>", head[i]);
	strbuf_puts(out, "</tr></thead><tbody>\n");
	for (int p = 0; p < d->n_panels; p++)
		for (int i = 0; i < d->n_cells; i++)
			if (d->cells[i].panel == p && cell_timed(&d->cells[i]))
				time_row(out, d, &d->cells[i]);
	strbuf_puts(out, "</tbody></table></div>\n");
}
