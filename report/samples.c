/* samples.c: see samples.h. */
#include "report/samples.h"

#include "report/summary.h"
#include "report/text.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int sample_flags(const struct sample *s, const struct sample *reference)
{
	bool both = reference && reference->ok && s->ok;
	double change = both ? s->score - reference->score : 0;
	return (change < -.005 ? ROW_WORSE : 0) | (change > .005 ? ROW_BETTER : 0) | (s->empty ? ROW_EMPTY : 0) |
	       (s->cut ? ROW_CUT : 0) | (s->ok ? 0 : ROW_FAILED);
}

/* Right answers are a JSON array of texts. Anything else is shown as it is. */
const char *sample_gold(struct data *d, const char *gold)
{
	json_t *list = json_loads(gold, 0, NULL), *one;
	struct strbuf b = {0};
	size_t i;
	json_array_foreach(list, i, one) if (json_is_string(one))
		strbuf_printf(&b, "%s%s", b.len ? "\n" : "", json_string_value(one));
	const char *text = json_is_array(list) ? data_keep(d, b.text ? b.text : "") : gold;
	strbuf_free(&b);
	json_decref(list);
	return text;
}

/* ---- texts and items by number ---- */

struct text_slot {
	const char *text; /* NULL = free */
	int number;
};
struct item_slot {
	const char *id, *answer; /* id NULL = free */
	int panel, number;
};

static size_t address_hash(const void *p, size_t more)
{
	return (((uintptr_t)p >> 4) + more * 7919) * 0x9e3779b97f4a7c15u >> 32;
}

static struct text_slot *text_slot(const struct sample_block *b, const char *text)
{
	size_t i = address_hash(text, 0) & (b->cap_texts - 1);
	while (b->texts[i].text && b->texts[i].text != text)
		i = (i + 1) & (b->cap_texts - 1);
	return &b->texts[i];
}

static void grow_texts(struct sample_block *b)
{
	b->cap_texts = b->cap_texts ? 2 * b->cap_texts : 4096;
	free(b->texts);
	b->texts = mem_new(b->cap_texts, sizeof *b->texts);
	for (int i = 0; i < b->n_texts; i++)
		*text_slot(b, b->text[i]) = (struct text_slot){b->text[i], i};
}

static int text_number(struct sample_block *b, const char *text)
{
	if (2 * (size_t)b->n_texts >= b->cap_texts)
		grow_texts(b);
	struct text_slot *s = text_slot(b, text);
	if (s->text)
		return s->number;
	if ((size_t)b->n_texts == b->cap_text) {
		b->cap_text = b->cap_text ? 2 * b->cap_text : 1024;
		b->text = mem_grow(b->text, b->cap_text, sizeof *b->text);
	}
	*s = (struct text_slot){text, b->n_texts};
	b->text[b->n_texts++] = text;
	return s->number;
}

static struct item_slot *item_slot(const struct sample_block *b, int panel, const char *id, const char *answer)
{
	size_t i = address_hash(id, (size_t)panel) & (b->cap_item - 1);
	while (b->item[i].id && (b->item[i].id != id || b->item[i].panel != panel || b->item[i].answer != answer))
		i = (i + 1) & (b->cap_item - 1);
	return &b->item[i];
}

static void grow_items(struct sample_block *b)
{
	struct item_slot *old = b->item;
	size_t cap = b->cap_item;
	b->cap_item = cap ? 2 * cap : 1024;
	b->item = mem_new(b->cap_item, sizeof *b->item);
	for (size_t i = 0; i < cap; i++)
		if (old[i].id)
			*item_slot(b, old[i].panel, old[i].id, old[i].answer) = old[i];
	free(old);
}

static int thousandths(double v)
{
	return fabs(v) < INT_MAX / 1000 ? (int)lround(1000 * v) : -1; /* NAN too: no comparison holds */
}

static const char *words_of(const struct sample *s)
{
	return s->ok ? s->answer : s->message;
}

static int item_number(struct sample_block *b, const struct sample_line *l)
{
	const struct sample *s = l->sample, *f = l->reference;
	if (2 * (size_t)b->n_items >= b->cap_item)
		grow_items(b);
	struct item_slot *k = item_slot(b, l->panel, s->id, f ? words_of(f) : NULL);
	if (!k->id) {
		*k = (struct item_slot){s->id, f ? words_of(f) : NULL, l->panel, b->n_items++};
		int id = text_number(b, s->id), question = text_number(b, s->question),
		    gold = text_number(b, sample_gold(b->d, s->gold));
		strbuf_printf(&b->items, "%s%d,%d,%d,%d,%d,%d", b->items.len ? "," : "", l->panel, id, question, gold,
			f ? text_number(b, words_of(f)) : -1, f ? thousandths(f->score) : -1);
	}
	return k->number;
}

/* ---- the block ---- */

void sample_block_panel(struct sample_block *b, const char *title, const char *protocol)
{
	strbuf_puts(&b->panels, b->panels.len ? ",[" : "[");
	json_text(&b->panels, title, SIZE_MAX);
	strbuf_puts(&b->panels, ",");
	json_text(&b->panels, protocol, SIZE_MAX);
	strbuf_puts(&b->panels, "]");
}

void sample_block_method(struct sample_block *b, const char *label)
{
	strbuf_puts(&b->methods, b->methods.len ? "," : "");
	json_text(&b->methods, label, SIZE_MAX);
}

int sample_block_cell(struct sample_block *b, int panel, int method, int ppm)
{
	strbuf_printf(&b->cells, "%s%d,%d,%d", b->n_cells ? "," : "", panel, method, ppm);
	return b->n_cells++;
}

void sample_block_row(struct sample_block *b, const struct sample_line *l)
{
	int item = item_number(b, l), answer = text_number(b, words_of(l->sample));
	strbuf_printf(&b->rows, "%s%d,%d,%d,%d,%d,%d", b->n_rows++ ? "," : "", item, l->cell, answer,
		thousandths(l->sample->score), l->flags, thousandths(l->sample->retained));
}

void sample_block_end(struct sample_block *b, struct strbuf *out, size_t most_text, const char *const names[2])
{
	const struct {
		const char *name;
		struct strbuf *list;
	} lists[] = {{"p", &b->panels}, {"v", &b->methods}, {"i", &b->items}, {"c", &b->cells}, {"r", &b->rows}};
	strbuf_puts(out, "<script type=\"application/json\" id=\"sample-data\">{");
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		strbuf_printf(out, "\"%s\":[", lists[i].name);
		strbuf_puts(out, lists[i].list->text ? lists[i].list->text : "");
		strbuf_puts(out, "],\n");
		strbuf_free(lists[i].list);
	}
	for (int i = 0; names && i < 2; i++) {
		strbuf_puts(out, i ? "," : "\"names\":[");
		json_text(out, names[i], SIZE_MAX);
		strbuf_puts(out, i ? "],\n" : "");
	}
	strbuf_puts(out, "\"t\":[");
	for (int i = 0; i < b->n_texts; i++) {
		strbuf_puts(out, i ? ",\n" : "");
		json_text(out, b->text[i], most_text);
	}
	strbuf_puts(out, "]}</script>\n");
	free(b->text);
	free(b->texts);
	free(b->item);
	*b = (struct sample_block){0};
}

/* ---- the frame ---- */

static void option(struct strbuf *out, int value, const char *label, const char *more)
{
	strbuf_printf(out, "<option value=\"%d\">", value);
	html_text(out, label);
	strbuf_puts(out, more ? ", " : "");
	html_text(out, more);
	strbuf_puts(out, "</option>");
}

void samples_frame(struct strbuf *out, const struct data *d, const char *const *methods, int n_methods)
{
	char text[64];
	strbuf_puts(out, "<form id=\"filter\" hidden=\"\"><label>task <select name=\"p\"><option value=\"\">all</option>");
	for (int p = 0; p < d->n_panels; p++)
		option(out, p, d->panels[p].title, d->panels[p].row->protocol);
	strbuf_puts(out, "</select></label><label>method <select name=\"v\"><option value=\"\">all</option>");
	for (int v = 0; v < n_methods; v++)
		if (methods[v])
			option(out, v, methods[v], NULL);
	strbuf_puts(out, "</select></label><label>r <select name=\"r\"><option value=\"\">all</option>");
	for (int k = 0; k < d->n_ppm; k++)
		option(out, d->ppm[k], format_ratio(text, d->ppm[k]), NULL);
	strbuf_puts(out,
		"</select></label><span class=\"boxes\" role=\"group\" aria-label=\"Only samples that are\"><label><input "
		"type=\"checkbox\" value=\"1\"> worse</label><label><input type=\"checkbox\" value=\"2\"> "
		"better</label><label><input type=\"checkbox\" value=\"4\"> empty</label><label><input type=\"checkbox\" "
		"value=\"8\"> cut</label><label><input type=\"checkbox\" value=\"16\"> failed</label></span><label>text <input "
		"type=\"search\" name=\"q\"></label><button type=\"button\" id=\"save\">CSV of these</button><span id=\"shown\" "
		"role=\"status\"></span></form>\n"
		"<div class=\"viewer\" hidden=\"\"><div id=\"list\" tabindex=\"0\" role=\"listbox\" aria-label=\"Samples\"><div "
		"id=\"rows\"></div></div><article id=\"one\" aria-live=\"polite\"></article></div>\n");
}
