/* page_settings.c: what every number rests on: methods with the origin of their defaults, tasks with their hashes,
 * protocols, environment. */
#include "report/page.h"
#include "report/summary.h"
#include "report/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* {"window":32,"pool":"max"} as "window=32, pool=max"; what is no object stays. Caller frees. */
static char *words_of(const char *json)
{
	json_t *object = json_loads(json, 0, NULL), *value;
	const char *key;
	struct strbuf b = {0};
	json_object_foreach(object, key, value)
	{
		char *text = json_is_string(value) ? text_copy(json_string_value(value))
						   : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12));
		strbuf_printf(&b, "%s%s=%s", b.len ? ", " : "", key, text ? text : "");
		free(text);
	}
	if (!json_is_object(object))
		strbuf_puts(&b, json);
	json_decref(object);
	return strbuf_take(&b);
}

static void words_cell(struct table *t, const char *json)
{
	char *words = words_of(json);
	table_text(t, words);
	free(words);
}

static void method_table(struct report *r)
{
	const struct data *d = r->d;
	struct table t;
	table_begin(&t, "methods", "Methods", query_methods());
	static const char *const head[] = {"method", "parameters", "origin of the defaults", "proxy"};
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i], "%s", head[i]);
	t.plain = true;
	for (int v = 0; v < d->n_variants; v++) {
		table_text(&t, d->variants[v].label);
		words_cell(&t, d->variants[v].params);
		table_text(&t, d->variants[v].origin);
		table_text(&t, d->variants[v].proxy);
	}
	report_table(r, &t);
}

static bool task_before(const struct data *d, int panel)
{
	const struct cell_row *a = d->panels[panel].row;
	for (int i = 0; i < panel; i++) {
		const struct cell_row *b = d->panels[i].row;
		if (!strcmp(a->task, b->task) && !strcmp(a->task_params, b->task_params) &&
			!strcmp(a->task_variant, b->task_variant) && !strcmp(a->metric, b->metric) &&
			a->task_version == b->task_version)
			return true;
	}
	return false;
}

static void task_table(struct report *r)
{
	const struct data *d = r->d;
	struct table t;
	char text[64];
	table_begin(&t, "data", "Tasks and their data", query_task_data());
	static const char *const head[] = {
		"task", "version", "metric", "made", "data", "data SHA-256", "template SHA-256", "request"};
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i], "%s", head[i]);
	t.plain = true;
	for (int p = 0; p < d->n_panels; p++) {
		const struct cell_row *w = d->panels[p].row;
		if (task_before(d, p))
			continue;
		table_text(&t, w->task);
		snprintf(text, sizeof text, "%d", w->task_version);
		table_text(&t, text);
		table_text(&t, w->metric);
		table_text(&t, w->task_variant);
		table_text(&t, *w->data_state ? w->data_state : "generated");
		snprintf(text, sizeof text, "%.16s", w->data_sha256);
		table_text(&t, text);
		snprintf(text, sizeof text, "%.16s", w->template_sha256);
		table_text(&t, text);
		words_cell(&t, w->task_params);
	}
	report_table(r, &t);
}

static void settings_table(struct report *r)
{
	const struct source *s = &r->sources[0];
	struct table t;
	table_begin(&t, "environment", "Settings and environment of the newest run", query_settings());
	static const char *const head[] = {"of", "name", "value"};
	for (int i = 0; i < 3; i++)
		table_column(&t, head[i], "%s", head[i]);
	t.plain = true;
	for (int i = 0; i < s->n_settings; i++) {
		table_text(&t, s->settings[i].group);
		table_text(&t, s->settings[i].name);
		if (strlen(s->settings[i].value) <= 4000) {
			table_text(&t, s->settings[i].value);
			continue;
		}
		char *cut = text_format("%.4000s … (%zu bytes)", s->settings[i].value, strlen(s->settings[i].value));
		table_text(&t, cut);
		free(cut);
	}
	report_table(r, &t);
}

static void write_settings(struct report *r)
{
	page_lead(r->out, "<i>retained</i> r: the share of the context's entries kept; the template's head and the question are "
			  "never evicted. <i>agnostic</i>: pruned before the question is seen. <i>aware</i>: with the question "
			  "in sight. The two never share a table. Positions stay original after pruning; decoding is greedy.");
	method_table(r);
	task_table(r);
	settings_table(r);
}

const struct page page_settings = {"settings", "Settings", NULL, write_settings};
