/* page_samples.c: the sample viewer: the full cache's answer beside the pruned one's, to be filtered and walked through.
 *
 * Samples travel as JSON, texts once each; the script draws only the rows in sight, so that 50,000 of them scroll freely.
 * What is worth a look comes first: failed, empty, worse than the full cache, better, then the rest. A page may carry
 * PAGE_BYTES of them: beyond that each cell shows its first ones, what is left out is counted, and a second file beside the
 * page has all. A few also stand as a plain table, for print and for readers without a script. */
#include "report/page.h"
#include "report/samples.h"
#include "report/summary.h"
#include "report/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 2500000, PAGE_TEXT = 3000, FILE_TEXT = 1000000, ROW_BYTES = 26, FEW = 24, FEW_TEXT = 300 };
/* 0 = look here first. */
enum { LEVELS = 5 };
static int level_of(int flags)
{
	return flags & ROW_FAILED ? 0 : flags & ROW_EMPTY ? 1 : flags & ROW_WORSE ? 2 : flags & ROW_BETTER ? 3 : 4;
}

static bool has_rows(const struct data *d, const struct cell *c)
{
	return !d->variants[c->variant].full || c->row.ok < c->n_samples;
}

/* ---- which samples the page carries ---- */

struct pick_list {
	struct row {
		int cell, sample, flags;
	} * v; /* by level, then cell, then sample */
	int n, all;
};

static int by_level(const void *a, const void *b)
{
	const struct row *p = a, *q = b;
	int x = level_of(p->flags), y = level_of(q->flags);
	return x != y ? x - y : p->cell != q->cell ? p->cell - q->cell : p->sample - q->sample;
}

/* At most `cap` of each cell, the first by level. */
static struct pick_list pick(const struct data *d, int cap)
{
	struct pick_list list = {0};
	int room = 0;
	for (int i = 0; i < d->n_cells; i++)
		room += d->cells[i].n_samples;
	list.v = mem_new((size_t)room + 1, sizeof *list.v);
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i], *full = data_full(d, c->panel);
		if (!has_rows(d, c))
			continue;
		struct row *own = list.v + list.n;
		for (int k = 0; k < c->n_samples; k++)
			own[k] = (struct row){i, k, sample_flags(&c->samples[k], cell_sample(full, c->samples[k].id))};
		qsort(own, (size_t)c->n_samples, sizeof *own, by_level);
		list.n += c->n_samples < cap ? c->n_samples : cap;
		list.all += c->n_samples;
	}
	qsort(list.v, (size_t)list.n, sizeof *list.v, by_level);
	return list;
}

/* Bytes of a cell's first rows, roughly: answers repeat seldom, questions and right answers in every cell. */
static size_t row_size(const struct sample *s)
{
	size_t answer = strlen(s->ok ? s->answer : s->message);
	return ROW_BYTES + (answer < PAGE_TEXT ? answer : PAGE_TEXT);
}

static bool panel_has_rows(const struct data *d, int panel)
{
	for (int v = 0; v < d->n_variants; v++)
		if (!d->variants[v].full && data_in_panel(d, panel, v))
			return true;
	return false;
}

static size_t shared_size(const struct data *d)
{
	size_t sum = 0;
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		bool shared = d->variants[c->variant].full && panel_has_rows(d, c->panel);
		for (int k = 0; shared && k < c->n_samples; k++)
			sum += 60 + strlen(c->samples[k].question) + strlen(c->samples[k].gold) + strlen(c->samples[k].answer);
	}
	return sum;
}

static size_t size_at(const struct data *d, int cap)
{
	size_t sum = 0;
	for (int i = 0; i < d->n_cells; i++)
		for (int k = 0; has_rows(d, &d->cells[i]) && k < d->cells[i].n_samples && k < cap; k++)
			sum += row_size(&d->cells[i].samples[k]);
	return sum;
}

/* Samples of a cell that the page has room for. */
static int page_cap(const struct data *d)
{
	size_t shared = shared_size(d), room = shared < PAGE_BYTES / 2 ? PAGE_BYTES - shared : PAGE_BYTES / 2;
	int most = 1;
	for (int i = 0; i < d->n_cells; i++)
		most = d->cells[i].n_samples > most ? d->cells[i].n_samples : most;
	if (size_at(d, most) <= room)
		return most;
	int lo = 1, hi = most; /* lo may be too much as well: one of each cell is the least */
	while (hi - lo > 1) {
		int middle = (lo + hi) / 2;
		*(size_at(d, middle) <= room ? &lo : &hi) = middle;
	}
	return lo;
}

bool samples_fit(const struct report *r)
{
	for (int s = 0; s < r->n_sources; s++)
		for (int i = 0; i < r->sources[s].data.n_cells; i++) {
			const struct cell *c = &r->sources[s].data.cells[i];
			for (int k = 0; k < c->n_samples; k++)
				if (strlen(c->samples[k].answer) > PAGE_TEXT)
					return false;
		}
	if (r->n_sources > 1) /* a comparison carries what changed */
		return true;
	int cap = page_cap(r->d);
	for (int i = 0; i < r->d->n_cells; i++)
		if (r->d->cells[i].n_samples > cap)
			return false;
	return true;
}

static void block(struct strbuf *out, struct data *d, const struct pick_list *list, size_t most_text)
{
	struct sample_block b = {.d = d};
	for (int p = 0; p < d->n_panels; p++)
		sample_block_panel(&b, d->panels[p].title, d->panels[p].row->protocol);
	for (int v = 0; v < d->n_variants; v++)
		sample_block_method(&b, d->variants[v].label);
	for (int i = 0; i < d->n_cells; i++)
		sample_block_cell(&b, d->cells[i].panel, d->cells[i].variant, d->cells[i].row.retained_ppm);
	for (int i = 0; i < list->n; i++) {
		const struct cell *c = &d->cells[list->v[i].cell];
		const struct sample *s = &c->samples[list->v[i].sample], *full = cell_sample(data_full(d, c->panel), s->id);
		sample_block_row(&b, &(struct sample_line){c->panel, list->v[i].cell, s, full, list->v[i].flags});
	}
	sample_block_end(&b, out, most_text, NULL);
}

/* ---- the page ---- */

static const char *flag_words(char buf[64], int flags)
{
	snprintf(buf, 64, "%s%s%s%s%s", flags & ROW_FAILED ? "failed " : "", flags & ROW_WORSE ? "worse " : "",
		flags & ROW_BETTER ? "better " : "", flags & ROW_EMPTY ? "empty " : "", flags & ROW_CUT ? "cut " : "");
	return buf;
}

static void cut_text(struct table *t, const char *text, size_t most)
{
	size_t n = strlen(text);
	if (n <= most) {
		table_text(t, text);
		return;
	}
	char *cut = text_format("%.*s …", (int)most, text);
	table_text(t, cut);
	free(cut);
}

static void sample_row(struct table *t, struct data *d, const struct row *row, size_t most)
{
	const struct cell *c = &d->cells[row->cell];
	const struct sample *s = &c->samples[row->sample], *full = cell_sample(data_full(d, c->panel), s->id);
	char text[64];
	table_text(t, d->panels[c->panel].title);
	table_text(t, c->row.protocol);
	table_text(t, d->variants[c->variant].label);
	table_number(t, c->row.retained_ppm / 1e6, format_ratio(text, c->row.retained_ppm));
	table_text(t, s->id);
	cut_text(t, s->question, most);
	cut_text(t, sample_gold(d, s->gold), most);
	cut_text(t, full ? full->answer : "", most);
	table_number(t, full ? full->score : NAN, full ? format_score(text, full->score) : "–");
	cut_text(t, s->ok ? s->answer : s->message, most);
	table_number(t, s->score, s->ok ? format_score(text, s->score) : s->status);
	table_text(t, flag_words(text, row->flags));
}

/* On the page: the most interesting of each cell in turn, a few. As an export: all. */
static void look_table(struct report *r, const struct pick_list *list)
{
	static const char *const head[][2] = {{"task", "task"}, {"protocol", "protocol"}, {"method", "method"}, {"retained", "r"},
		{"sample_id", "id"}, {"question", "question"}, {"gold", "expected"}, {"full_answer", "full cache"},
		{"full_score", "score"}, {"answer", "pruned"}, {"score", "score"}, {"flags", "flags"}};
	struct table t;
	int written = 0, last = -1;
	table_begin(&t, "samples", "Samples worth a look", query_samples(report_scope(r, NULL, false, false)));
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.plain = true;
	for (int i = 0; i < list->n && (r->wanted || written < FEW); i++) {
		if (!r->wanted && (list->v[i].cell == last || level_of(list->v[i].flags) == LEVELS - 1))
			continue;
		last = list->v[i].cell;
		sample_row(&t, &r->sources[0].data, &list->v[i], r->wanted ? SIZE_MAX : FEW_TEXT);
		written++;
	}
	strbuf_puts(r->out, "<div id=\"few\">");
	report_table(r, &t);
	strbuf_puts(r->out, "</div>\n");
}

/* The full cache's answers stand beside all others: it is no method to choose. */
static void frame(struct strbuf *out, const struct data *d)
{
	const char **methods = mem_new((size_t)d->n_variants + 1, sizeof *methods);
	for (int v = 0; v < d->n_variants; v++)
		methods[v] = d->variants[v].full ? NULL : d->variants[v].label;
	samples_frame(out, d, methods, d->n_variants);
	free(methods);
}

void samples_write(struct report *r, bool all)
{
	struct data *d = &r->sources[0].data;
	bool whole = all || r->wanted || !r->samples_file;
	struct pick_list list = pick(d, whole ? INT32_MAX : page_cap(d));
	if (whole)
		strbuf_printf(r->out, "<p class=\"lead\">All %d samples, those worth a look first. ", list.all);
	else
		strbuf_printf(r->out,
			"<p class=\"lead\">%d of %d samples, those worth a look first; long texts are cut here. All of them are "
			"in <a href=\"",
			list.n, list.all);
	if (!whole) {
		html_text(r->out, r->samples_file);
		strbuf_puts(r->out, "\">");
		html_text(r->out, r->samples_file);
		strbuf_puts(r->out, "</a> beside this page. ");
	}
	strbuf_puts(r->out,
		"Arrow keys walk through the list; <b>worse</b> and <b>better</b> are against the full cache's answer.</p>\n");
	frame(r->out, d);
	if (!r->wanted)
		block(r->out, d, &list, all ? FILE_TEXT : PAGE_TEXT);
	if (!all)
		look_table(r, &list);
	free(list.v);
}

static void write_samples(struct report *r)
{
	samples_write(r, false);
}

const struct page page_samples = {"samples", "Samples", NULL, write_samples};
