/* report.c: see report.h. Puts the page together, top to bottom; the parts are in charts.c, tables.c and samples.c, the sentences
 * in summary.c, the numbers in data.c.
 *
 * The page is one file: style and script inside, charts as SVG, nothing fetched; a content security policy forbids all else, the
 * script is allowed by its hash. Nothing in it depends on the moment of writing: the same database gives the same bytes. */
#include "report/report.h"

#include "report/charts.h"
#include "report/page.h"
#include "report/summary.h"
#include "report/svg.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- head ---- */

/* The digest as base64, as the policy wants it: 32 bytes are ten groups of three and one of two. */
static void script_hash(char out[45])
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char hex[SHA_LEN];
	unsigned bytes[33] = {0};
	sha256_hex(page_js, strlen(page_js), hex);
	for (int i = 0; i < 32; i++)
		sscanf(hex + 2 * i, "%2x", &bytes[i]);
	for (int i = 0; i < 11; i++) {
		unsigned group = bytes[3 * i] << 16 | bytes[3 * i + 1] << 8 | bytes[3 * i + 2];
		for (int k = 0; k < 4; k++)
			out[4 * i + k] = digit[group >> (18 - 6 * k) & 63];
	}
	out[43] = '=';
	out[44] = 0;
}

static void page_head(struct strbuf *out, const char *title)
{
	char hash[45];
	script_hash(hash);
	strbuf_printf(out,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
		"content=\"width=device-width,initial-scale=1\">"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
		"script-src 'sha256-%s'; "
		"base-uri 'none'; form-action 'none'\"><title>",
		hash);
	html_text(out, title);
	strbuf_printf(out, "</title><style>%s</style></head><body>\n<h1>", page_css);
	html_text(out, title);
	strbuf_puts(out, "</h1>\n");
}

static void tile(struct strbuf *out, bool bad, int a, const char *between, int b, const char *label)
{
	strbuf_printf(out, "<div%s><b>%d%s%d</b><span>%s</span></div>", bad ? " class=\"bad\"" : "", a, between, b, label);
}

static void page_tiles(struct strbuf *out, const struct data *d)
{
	struct totals t = summary_totals(d);
	strbuf_puts(out, "<div class=\"tiles\">");
	tile(out, t.complete < t.cells, t.complete, " / ", t.cells, "cells complete");
	tile(out, t.ok < t.planned, t.ok, " / ", t.planned, "samples answered");
	tile(out, t.failed + t.oom > 0, t.failed, ", ", t.oom, "failed, out of memory");
	tile(out, t.missing > 0, t.missing, ", ", t.not_applicable, "not yet run, not applicable");
	tile(out, t.empty > 0, t.empty, ", ", t.length_finish, "answers empty, ended by length");
	strbuf_puts(out, "</div>\n");
}

/* ---- summary ---- */

static void list(struct strbuf *out, const struct notes *n, const char *class)
{
	strbuf_printf(out, "<ul class=\"%s\">", class);
	for (int i = 0; i < n->n; i++) {
		strbuf_puts(out, "<li>");
		html_text(out, n->text[i]);
		strbuf_puts(out, "</li>\n");
	}
	strbuf_puts(out, "</ul>\n");
}

static void page_summary(struct strbuf *out, const struct data *d)
{
	struct notes main = {0}, more = {0}, flags = {0};
	summary_findings(d, &main, &more);
	summary_flags(d, &flags);
	strbuf_puts(out, "<h2 id=\"sec-summary\">Summary</h2>\n");
	page_tiles(out, d);
	list(out, &main, "findings");
	if (main.n == 0)
		strbuf_puts(out, "<p>Nothing can be said yet: no ratio has methods and the control <i>random</i> both.</p>");
	if (more.n > 0) {
		strbuf_printf(out, "<details><summary>The same for the other lengths (%d)</summary>", more.n);
		list(out, &more, "findings");
		strbuf_puts(out, "</details>\n");
	}
	strbuf_printf(out, "<h2 id=\"sec-flags\">Flags (%d)</h2>\n", flags.n);
	if (flags.n > 0)
		list(out, &flags, "flags");
	else
		strbuf_puts(
			out, "<p class=\"good\">None: no failed or missing samples, no empty answers, controls in order.</p>\n");
	notes_free(&main);
	notes_free(&more);
	notes_free(&flags);
}

/* ---- accuracy ---- */

static void figure_head(struct strbuf *out, const struct cell_row *r)
{
	strbuf_puts(out, "<h3>");
	html_text(out, r->task);
	strbuf_printf(out, ", %s</h3><p>", r->protocol);
	const char *words[] = {r->target, r->mode, r->topology, r->precision};
	for (int i = 0; i < 4; i++) {
		html_text(out, words[i]);
		strbuf_puts(out, i < 3 ? " · " : "");
	}
	strbuf_puts(out, " · metric ");
	html_text(out, r->metric);
	strbuf_printf(out, " (scorer %d) · measure %d</p>\n", r->scorer_version, r->measure_version);
}

static void page_accuracy(struct strbuf *out, const struct data *d)
{
	strbuf_puts(out, "<h2 id=\"sec-accuracy\">Accuracy against the share kept</h2><p>Mean scores with 95 % bands: Wilson where every score "
			 "of a cell is 0 or 1, else a bootstrap "
			 "of 10,000 over contexts. <i>agnostic</i>: pruned before the question was seen; <i>aware</i>: with the "
			 "question in sight. Dashed: full cache. Dotted: random.</p>\n");
	chart_legend(out, d);
	for (int p = 0; p < d->n_panels;) {
		int first = p, figure = d->panels[p].figure;
		figure_head(out, d->panels[p].row);
		strbuf_puts(out, "<div class=\"row\">\n");
		for (; p < d->n_panels && d->panels[p].figure == figure; p++)
			chart_accuracy(out, d, p);
		strbuf_puts(out, "</div>\n<details><summary>Tables: bold is within error of the full cache, grey is not above "
				 "random beyond error</summary>\n");
		for (int i = first; i < p; i++)
			page_tables(out, d, i);
		strbuf_puts(out, "</details>\n");
	}
}

/* ---- times ---- */

static void page_time_charts(struct strbuf *out, const struct data *d)
{
	struct strbuf parts = {0}, lengths = {0};
	bool any_parts = false, any_lengths = false;
	for (int p = 0; p < d->n_panels; p++)
		any_parts |= chart_parts(&parts, d, p);
	for (int f = 0; f < d->n_figures; f++)
		any_lengths |= chart_lengths(&lengths, d, f);
	if (any_parts) {
		strbuf_puts(out, "<h3>Parts</h3><p>Behind each bar: the median, and its ratio to the full cache of the same "
				 "process.</p>\n");
		chart_parts_legend(out);
		strbuf_printf(out, "<div class=\"row wide\">\n%s</div>\n", parts.text);
	}
	if (any_lengths) {
		strbuf_puts(out, "<h3>Against length</h3>\n");
		chart_legend(out, d);
		strbuf_printf(out, "<div class=\"row wide\">\n%s</div>\n", lengths.text);
	}
	strbuf_free(&parts);
	strbuf_free(&lengths);
}

static void page_time(struct strbuf *out, const struct data *d)
{
	bool timed = false;
	for (int i = 0; i < d->n_cells; i++)
		timed |= cell_timed(&d->cells[i]);
	strbuf_puts(out, "<h2 id=\"sec-time\">Time to first token</h2>\n");
	if (!timed) {
		strbuf_puts(out, "<p>Nothing was timed.</p>\n");
		return;
	}
	strbuf_puts(out, "<p>From the token ids on the host to the first new id on the host: prefill, scoring, selection, "
			 "compaction, the question, the first token; "
			 "loading, tokenising and warm-up outside. Each repetition starts from an empty cache.</p>\n");
	page_time_charts(out, d);
	strbuf_puts(out, "<details><summary>All times</summary>\n");
	page_times(out, d);
	strbuf_puts(out, "</details>\n");
}

/* ---- heads, methods, settings ---- */

static void page_heads(struct strbuf *out, const struct data *d)
{
	struct strbuf maps = {0};
	for (int p = 0; p < d->n_panels; p++) {
		bool longest = p + 1 == d->n_panels || d->panels[p + 1].figure != d->panels[p].figure;
		for (int v = 0; longest && v < d->n_variants; v++) {
			const struct cell *c = data_cell(d, p, v, d->reference_ppm);
			if (c)
				chart_kept(&maps, d, c);
		}
	}
	if (maps.text)
		strbuf_printf(out,
			"<h2 id=\"sec-heads\">Kept in each head</h2><p>Mean share of the context kept, for methods whose budget "
			"is not the same everywhere; "
			"dark 0, bright 1. Longest context of each task.</p><div class=\"row small\">\n%s</div>\n",
			maps.text);
	strbuf_free(&maps);
}

static void page_methods(struct strbuf *out, const struct data *d)
{
	strbuf_puts(out, "<h2 id=\"sec-methods\">Methods</h2><div class=\"tw\"><table "
			 "class=\"text\"><thead><tr><th>method</th><th>parameters</th><th>origin of the "
			 "defaults</th><th>proxy</th></tr></thead><tbody>\n");
	for (int v = 0; v < d->n_variants; v++) {
		const char *cells[] = {d->variants[v].label, d->variants[v].params, d->variants[v].origin, d->variants[v].proxy};
		strbuf_puts(out, "<tr>");
		for (int i = 0; i < 4; i++) {
			strbuf_puts(out, "<td>");
			html_text(out, cells[i]);
			strbuf_puts(out, "</td>");
		}
		strbuf_puts(out, "</tr>\n");
	}
	strbuf_puts(out, "</tbody></table></div>\n");
}

static int setting_row(void *user, const char *group, const char *name, const char *value)
{
	struct strbuf *out = user;
	strbuf_puts(out, "<tr><td>");
	html_text(out, group);
	strbuf_puts(out, "</td><td>");
	html_text(out, name);
	strbuf_puts(out, "</td><td>");
	html_cut(out, value, 4000);
	strbuf_puts(out, "</td></tr>\n");
	return 0;
}

static int page_settings(struct strbuf *out, struct store *s, char err[ERR_LEN])
{
	strbuf_puts(out,
		"<h2 id=\"sec-settings\">Settings and environment</h2><p>Of the newest run in this database.</p><div><table "
		"class=\"text\"><thead><tr><th>of</th><th>name</th><th>value</th></tr></thead><tbody>\n");
	int rc = store_settings(s, setting_row, out, err);
	strbuf_puts(out, "</tbody></table></div>\n");
	return rc;
}

/* ---- the page ---- */

static int build(struct strbuf *out, struct store *s, const char *title, char err[ERR_LEN])
{
	struct data d;
	int rc = data_load(&d, s, err);
	if (rc == 0) {
		page_head(out, title);
		page_summary(out, &d);
		page_accuracy(out, &d);
		page_averages(out, &d);
		page_time(out, &d);
		page_heads(out, &d);
		page_samples(out, &d);
		page_methods(out, &d);
		rc = page_settings(out, s, err);
		strbuf_printf(out, "<script>%s</script></body></html>\n", page_js);
	}
	data_free(&d);
	return rc;
}

/* Beside its place first, then renamed: a reader sees the old page or the new one, never half. */
static int write_file(const char *path, const struct strbuf *b, char err[ERR_LEN])
{
	char *part = text_format("%s.part", path);
	FILE *f = fopen(part, "wb");
	int rc = 0;
	if (!f) {
		rc = err_set(err, "cannot write %s: %s", part, strerror(errno));
	} else {
		bool whole = fwrite(b->text, 1, b->len, f) == b->len;
		whole = fclose(f) == 0 && whole;
		if (!whole || rename(part, path) != 0) {
			rc = err_set(err, "cannot write %s: %s", path, strerror(errno));
			unlink(part);
		}
	}
	free(part);
	return rc;
}

int report_write(struct store *s, const char *title, const char *html_path, char err[ERR_LEN])
{
	struct strbuf page = {0};
	int rc = build(&page, s, title, err);
	if (rc == 0)
		rc = write_file(html_path, &page, err);
	strbuf_free(&page);
	return rc;
}
