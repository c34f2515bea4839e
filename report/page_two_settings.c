/* page_two_settings.c: of a comparison: the settings in which the sources differ; what is equal is counted. */
#include "report/compare.h"

#include <stdlib.h>
#include <string.h>

static bool first_of_name(const struct report *r, int source, int setting)
{
	const struct setting *x = &r->sources[source].settings[setting];
	for (int s = 0; s <= source; s++)
		for (int i = 0; i < (s == source ? setting : r->sources[s].n_settings); i++)
			if (strcmp(r->sources[s].settings[i].group, x->group) == 0 &&
				strcmp(r->sources[s].settings[i].name, x->name) == 0)
				return false;
	return true;
}

static bool differs(const struct report *r, const struct setting *x)
{
	for (int s = 0; s < r->n_sources; s++)
		if (strcmp(source_setting(&r->sources[s], x->group, x->name), x->value) != 0)
			return true;
	return false;
}

static void setting_row(struct table *t, const struct report *r, const struct setting *x)
{
	table_text(t, x->group);
	table_text(t, x->name);
	for (int s = 0; s < r->n_sources; s++) {
		const char *value = source_setting(&r->sources[s], x->group, x->name);
		char *cut = text_format("%.2000s", value);
		table_text(t, cut);
		free(cut);
	}
}

static void write_settings(struct report *r)
{
	struct table t;
	int equal = 0;
	page_lead(r->out, "Settings and environment of each source's newest run, where they differ.");
	table_begin(&t, "two-settings", "Settings that differ", query_settings());
	table_column(&t, "of", "of");
	table_column(&t, "name", "name");
	for (int s = 0; s < r->n_sources; s++)
		table_column(&t, r->sources[s].label, "%.60s", r->sources[s].label);
	t.plain = true;
	for (int s = 0; s < r->n_sources; s++)
		for (int i = 0; i < r->sources[s].n_settings; i++) {
			const struct setting *x = &r->sources[s].settings[i];
			if (!first_of_name(r, s, i))
				continue;
			if (differs(r, x))
				setting_row(&t, r, x);
			else
				equal++;
		}
	bool any = t.n_cells > 0;
	if (any)
		report_table(r, &t);
	else
		table_free(&t);
	strbuf_printf(r->out,
		any ? "<p class=\"sub\">The other %d settings are equal.</p>\n" : "<p>All %d settings are equal.</p>\n", equal);
}

const struct page page_two_settings = {"settings", "Settings", NULL, write_settings};
