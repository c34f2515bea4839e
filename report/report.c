/* report.c: see report.h. Reads what the pages need, runs the table of pages, puts them into one file.
 *
 * The file is closed in itself: style and script inside, charts as SVG, samples as JSON, nothing fetched; a content security
 * policy forbids all else, the script is allowed by its hash. Without a script all pages stand below each other; with it one
 * is shown at a time. Nothing depends on the moment of writing: the same database gives the same bytes. */
#include "report/report.h"

#include "report/compare.h"
#include "report/summary.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The report of one database, and a comparison of several. */
static const struct page *const single_pages[] = {&page_summary, &page_scores, &page_accuracy, &page_pareto, &page_time,
	&page_cost, &page_memory, &page_needles, &page_budgets, &page_mapper, &page_samples, &page_history, &page_settings};
static const struct page *const comparison_pages[] = {
	&page_differences, &page_curves, &page_two_times, &page_flips, &page_two_settings};
enum { NIGHTS = 180 }; /* of a history */

struct pages {
	const struct page *const *v;
	int n;
};

static struct pages pages_of(const struct report *r)
{
	if (r->n_sources > 1)
		return (struct pages){comparison_pages, sizeof comparison_pages / sizeof *comparison_pages};
	return (struct pages){single_pages, sizeof single_pages / sizeof *single_pages};
}

/* ---- reading ---- */

struct reading {
	struct source *source;
};

static int add_setting(void *user, const char *group, const char *name, const char *value)
{
	struct source *s = ((struct reading *)user)->source;
	s->settings = mem_grow(s->settings, (size_t)s->n_settings + 1, sizeof *s->settings);
	s->settings[s->n_settings++] =
		(struct setting){data_keep(&s->data, group), data_keep(&s->data, name), data_keep(&s->data, value)};
	return 0;
}

static int add_run(void *user, const struct run_row *run)
{
	struct source *s = ((struct reading *)user)->source;
	if (s->run && strcmp(s->run, run->run_id) != 0)
		return 0;
	s->n_runs++;
	s->n_open += run->ended_unix_ms == 0;
	s->took_ms += run->ended_unix_ms ? run->ended_unix_ms - run->started_unix_ms : 0;
	return 0;
}

const char *source_setting(const struct source *s, const char *group, const char *name)
{
	for (int i = 0; i < s->n_settings; i++)
		if (strcmp(s->settings[i].group, group) == 0 && strcmp(s->settings[i].name, name) == 0)
			return s->settings[i].value;
	return "";
}

static const char *scrub(struct data *d, const char *text, const char *host)
{
	char *clean = text ? text_public(text, host) : NULL;
	const char *kept = data_keep(d, clean);
	free(clean);
	return kept;
}

/* Answers and questions stay as they are: they are the model's and the task's words, not this machine's. */
static void scrub_data(struct data *d, const char *host)
{
	for (int i = 0; i < d->n_cells; i++) {
		struct cell *c = &d->cells[i];
		const char **texts[] = {&c->row.target, &c->row.proxy, &c->row.method_params, &c->row.task_params,
			&c->row.task_variant, &c->row.method_origin, &c->message};
		for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
			*texts[k] = scrub(d, *texts[k], host);
		for (int k = 0; k < c->n_samples; k++)
			c->samples[k].message = scrub(d, c->samples[k].message, host);
	}
	for (int i = 0; i < d->n_variants; i++) {
		struct variant *v = &d->variants[i];
		v->params = scrub(d, v->params, host);
		v->proxy = scrub(d, v->proxy, host);
		snprintf(v->label, sizeof v->label, "%s", scrub(d, v->label, host));
	}
	for (int i = 0; i < d->n_panels; i++)
		snprintf(d->panels[i].title, sizeof d->panels[i].title, "%s", scrub(d, d->panels[i].title, host));
}

static void scrub_owned(char **text, const char *host)
{
	char *clean = text_public(*text, host);
	free(*text);
	*text = clean;
}

static void scrub_rest(struct report *r, const char *host)
{
	for (int i = 0; i < r->history.n_nights; i++)
		scrub_owned(&r->history.nights[i].machine, host);
	for (int i = 0; i < r->history.n_alerts; i++)
		scrub_owned(&r->history.alerts[i].message, host);
	for (int i = 0; i < r->trainings.n; i++) {
		scrub_owned(&r->trainings.v[i].config, host);
		scrub_owned(&r->trainings.v[i].weights_path, host);
		scrub_owned(&r->trainings.v[i].name, host);
	}
}

static void scrub_source(struct source *s, const char *host)
{
	scrub_data(&s->data, host);
	for (int i = 0; i < s->n_settings; i++)
		s->settings[i].value = scrub(&s->data, s->settings[i].value, host);
}

static int read_source(struct source *out, const struct report_source *in, char err[ERR_LEN])
{
	struct reading reading = {out};
	*out = (struct source){.run = in->run};
	if (data_load(&out->data, in->store, in->run, err) != 0 || store_settings(in->store, add_setting, &reading, err) != 0 ||
		store_runs(in->store, add_run, &reading, err) != 0)
		return -1;
	out->label = data_keep(&out->data, in->label ? in->label : "");
	return 0;
}

int report_open(struct report *r, const struct report_request *q, char err[ERR_LEN])
{
	int rc = 0;
	*r = (struct report){.request = q, .n_sources = q->n_sources};
	r->sources = mem_new((size_t)q->n_sources, sizeof *r->sources);
	for (int i = 0; i < q->n_sources && rc == 0; i++)
		rc = read_source(&r->sources[i], &q->sources[i], err);
	if (rc == 0)
		rc = trainings_load(&r->trainings, q->sources[0].store, err);
	if (rc == 0 && q->history)
		rc = history_load(&r->history, q->history, NIGHTS, err);
	if (rc != 0)
		return rc;
	for (int i = 0; i < q->n_sources && q->public_; i++) {
		char *host = text_copy(source_setting(&r->sources[i], "environment", "host"));
		scrub_source(&r->sources[i], host);
		scrub_rest(r, host);
		free(host);
	}
	r->d = &r->sources[0].data;
	losses_make(&r->losses, r->d);
	if (r->n_sources > 1) {
		r->matches = mem_new(1, sizeof *r->matches);
		return matches_make(r->matches, r, err);
	}
	return 0;
}

void report_close(struct report *r)
{
	for (int i = 0; i < r->n_sources; i++) {
		data_free(&r->sources[i].data);
		free(r->sources[i].settings);
	}
	free(r->sources);
	free(r->samples_file);
	losses_free(&r->losses);
	if (r->matches)
		matches_free(r->matches);
	free(r->matches);
	history_free(&r->history);
	trainings_free(&r->trainings);
	strbuf_free(&r->table_ids);
	strbuf_free(&r->table_list);
}

/* ---- what pages share ---- */

void report_table(struct report *r, struct table *t)
{
	if (r->wanted) {
		strbuf_printf(&r->table_ids, "%s%s", r->table_ids.len ? ", " : "", t->id);
		strbuf_printf(&r->table_list, "%-16s %s\n", t->id, t->caption);
		if (strcmp(r->wanted, t->id) == 0 && !r->wanted_found)
			r->wanted_found = table_export(r->wanted_out, t, r->format) == 0;
	} else {
		table_html(r->out, t);
	}
	table_free(t);
}

struct query_scope report_scope(const struct report *r, const struct cell_row *row, bool panel, bool figure)
{
	return (struct query_scope){row, panel, figure, r->sources[0].run};
}

void page_lead(struct strbuf *out, const char *html)
{
	strbuf_printf(out, "<p class=\"lead\">%s</p>\n", html);
}

void page_setting_head(struct strbuf *out, const struct report *r, int setting)
{
	const struct cell_row *w = r->d->panels[r->d->setting_of[setting]].row;
	char seed[48];
	snprintf(seed, sizeof seed, "seed %llu", (unsigned long long)w->seed);
	strbuf_printf(out, "<h3>Question %s before pruning <span class=\"tag\">%s</span></h3><p class=\"sub\">",
		strcmp(w->protocol, "aware") == 0 ? "seen" : "not seen",
		strcmp(w->protocol, "aware") == 0 ? "aware" : "agnostic");
	const char *words[] = {w->target, w->mode, w->topology, w->precision, seed};
	for (int i = 0; i < 5; i++) {
		strbuf_puts(out, i ? " · " : "");
		html_text(out, words[i]);
	}
	strbuf_puts(out, "</p>\n");
}

char *samples_link(const struct data *d, const struct cell *c)
{
	return d->variants[c->variant].full ? NULL : text_format("#s-%d.%d.%d", c->panel, c->variant, c->row.retained_ppm);
}

void page_ratio_open(struct strbuf *out, int ppm, bool open)
{
	char text[64];
	strbuf_printf(
		out, "<details class=\"fold\"%s><summary>r = %s</summary>\n", open ? " open=\"\"" : "", format_ratio(text, ppm));
}

void page_ratio_close(struct strbuf *out)
{
	strbuf_puts(out, "</details>\n");
}

/* ---- head and frame ---- */

/* The digest as base64, as the policy wants it: 32 bytes are ten groups of three and one of two. */
static void script_hash(char out[45])
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char hex[SHA_LEN];
	unsigned bytes[33] = {0};
	sha256_hex(report_page_js, strlen(report_page_js), hex);
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

/* "a1b2c3d (changed) · AMD EPYC · 2026-11-29 20:00:00 UTC". */
static void where_from(struct strbuf *out, const struct source *s)
{
	char *commit = text_format("%.12s%s", source_setting(s, "environment", "commit"),
		strcmp(source_setting(s, "environment", "dirty"), "1") == 0 ? " (changed)" : "");
	const char *words[] = {source_setting(s, "environment", "version"), commit, source_setting(s, "environment", "cpu"),
		source_setting(s, "environment", "device"), source_setting(s, "environment", "host"),
		source_setting(s, "run", "started")};
	int n = 0;
	for (int i = 0; i < 6; i++) {
		if (!*words[i] || (i == 1 && strstr(words[0], source_setting(s, "environment", "commit")) && *words[0]))
			continue;
		strbuf_puts(out, n++ ? " · " : "");
		html_text(out, words[i]);
	}
	free(commit);
}

static void frame_begin(struct report *r, const char *title)
{
	char hash[45];
	struct strbuf *out = r->out;
	script_hash(hash);
	strbuf_printf(out,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
		"content=\"width=device-width,initial-scale=1\"><meta http-equiv=\"Content-Security-Policy\" "
		"content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action "
		"'none'\"><meta name=\"generator\" content=\"kvbench\"><title>",
		hash);
	html_text(out, title);
	strbuf_printf(out,
		"</title><style>%s</style></head><body>\n<a class=\"skip\" href=\"#content\">Skip to the content</a>\n"
		"<header class=\"top\"><h1>",
		report_page_css);
	html_text(out, title);
	strbuf_puts(out, "</h1><p>");
	for (int i = 0; i < r->n_sources; i++) {
		if (r->n_sources > 1) {
			strbuf_puts(out, i ? "<br><b>" : "<b>");
			html_text(out, r->sources[i].label);
			strbuf_puts(out, "</b> ");
		}
		where_from(out, &r->sources[i]);
	}
	strbuf_puts(out, "</p></header>\n");
}

static bool there(const struct report *r, const struct page *p)
{
	return !p->there || p->there(r);
}

static void navigation(struct report *r, struct pages pages)
{
	strbuf_puts(r->out, "<nav id=\"nav\" aria-label=\"Pages\"><ul>");
	for (int i = 0; i < pages.n; i++)
		if (there(r, pages.v[i]))
			strbuf_printf(r->out, "<li><a href=\"#%s\">%s</a></li>", pages.v[i]->id, pages.v[i]->title);
	strbuf_puts(r->out, "</ul><p class=\"keys\"><kbd>[</kbd> <kbd>]</kbd> pages, <kbd>/</kbd> samples</p></nav>\n");
}

static void all_pages(struct report *r)
{
	struct pages pages = pages_of(r);
	for (int i = 0; i < pages.n; i++) {
		const struct page *p = pages.v[i];
		if (!there(r, p))
			continue;
		strbuf_printf(r->out,
			"<section class=\"page\" id=\"%s\" aria-labelledby=\"h-%s\"><h2 id=\"h-%s\" tabindex=\"-1\">%s</h2>\n",
			p->id, p->id, p->id, p->title);
		p->write(r);
		strbuf_puts(r->out, "</section>\n");
	}
}

static void build(struct report *r, const char *title)
{
	frame_begin(r, title);
	strbuf_puts(r->out, "<div class=\"body\">\n");
	navigation(r, pages_of(r));
	strbuf_puts(r->out, "<main id=\"content\">\n");
	all_pages(r);
	strbuf_printf(r->out, "</main></div>\n<script>%s</script></body></html>\n", report_page_js);
}

/* ---- files ---- */

static int write_file(const char *path, const struct strbuf *b, char err[ERR_LEN])
{
	return file_check_place(path, err) || file_write(path, b, err) ? -1 : 0;
}

/* "out/demo.html" -> "out/demo.samples.html"; caller frees. */
static char *samples_path(const char *html_path)
{
	size_t n = strlen(html_path);
	bool html = n > 5 && strcmp(html_path + n - 5, ".html") == 0;
	return text_format("%.*s.samples.html", (int)(html ? n - 5 : n), html_path);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* The same viewer, with every sample. */
static int write_samples(struct report *r, const char *title, const char *path, char err[ERR_LEN])
{
	struct strbuf page = {0};
	r->out = &page;
	frame_begin(r, title);
	strbuf_puts(&page, "<div class=\"body\"><nav id=\"nav\" aria-label=\"Pages\"><ul><li><a "
			   "href=\"#samples\">Samples</a></li></ul></nav><main id=\"content\"><section class=\"page\" "
			   "id=\"samples\"><h2>All samples</h2>\n");
	samples_write(r, true);
	strbuf_printf(&page, "</section></main></div>\n<script>%s</script></body></html>\n", report_page_js);
	int rc = write_file(path, &page, err);
	strbuf_free(&page);
	return rc;
}

int report_make(const struct report_request *q, const char *html_path, bool *wrote_samples, char err[ERR_LEN])
{
	struct report r;
	struct strbuf page = {0};
	char *second = samples_path(html_path);
	int rc = report_open(&r, q, err);
	bool split = rc == 0 && !samples_fit(&r);
	if (split)
		r.samples_file = text_copy(base_name(second));
	if (rc == 0) {
		r.out = &page;
		build(&r, q->title);
		rc = write_file(html_path, &page, err);
	}
	if (rc == 0 && split)
		rc = write_samples(&r, q->title, second, err);
	if (wrote_samples)
		*wrote_samples = split;
	strbuf_free(&page);
	report_close(&r);
	free(second);
	return rc;
}

int report_write(struct store *s, const char *title, const char *html_path, char err[ERR_LEN])
{
	const struct report_source source = {.store = s};
	const struct report_request q = {.title = title, .sources = &source, .n_sources = 1};
	return report_make(&q, html_path, NULL, err);
}

int report_export_table(
	const struct report_request *q, const char *table, const char *format, struct strbuf *out, char err[ERR_LEN])
{
	struct report r;
	struct strbuf page = {0}; /* written and thrown away: tables are made where they are shown */
	int rc = report_open(&r, q, err);
	if (rc == 0) {
		r.out = &page;
		r.wanted = table;
		r.format = format;
		r.wanted_out = out;
		all_pages(&r);
		if (!strcmp(table, "help"))
			strbuf_puts(out, r.table_list.text ? r.table_list.text : "");
		else if (!r.wanted_found)
			rc = err_set(err, "no table \"%s\" that can be written as \"%s\"; tables: %s", table, format,
				r.table_ids.text ? r.table_ids.text : "none");
	}
	strbuf_free(&page);
	report_close(&r);
	return rc;
}
