/* page_flips.c: of a comparison: the samples whose score changed, the first source's answer beside the other's. */
#include "report/compare.h"
#include "report/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 3000, MOST_ROWS = 20000 };

/* The same sample in both with the same prompt, and it changed. */
static const struct sample *changed_partner(const struct sample *s, const struct cell *other)
{
	const struct sample *t = other ? cell_sample(other, s->id) : NULL;
	if (!t || strcmp(s->prompt, t->prompt) != 0)
		return NULL;
	bool differs = s->ok != t->ok || (s->ok && fabs(s->score - t->score) > .005);
	return differs ? t : NULL;
}

/* The other source's texts, owned by the first's data like all of the block's. */
static struct sample adopt(struct data *d, const struct sample *t)
{
	struct sample s = *t;
	s.answer = data_keep(d, t->answer);
	s.message = data_keep(d, t->message);
	return s;
}

/* Methods of the block: source by source, so that a method can be chosen in one of them. */
static char **method_names(const struct report *r, int *n)
{
	char **names = mem_new((size_t)r->n_sources * r->d->n_variants + 1, sizeof *names);
	*n = 0;
	for (int s = 1; s < r->n_sources; s++)
		for (int v = 0; v < r->d->n_variants; v++)
			names[(*n)++] = r->n_sources > 2 ? text_format("%s · %s", r->d->variants[v].label, r->sources[s].label)
							 : text_copy(r->d->variants[v].label);
	return names;
}

static int fill(struct sample_block *b, struct report *r)
{
	struct data *d = &r->sources[0].data;
	int n = 0;
	for (int s = 1; s < r->n_sources; s++)
		for (int i = 0; i < r->matches->n; i++) {
			const struct match *m = &r->matches->v[i];
			const struct cell *c = m->first;
			int cell = sample_block_cell(b, c->panel, (s - 1) * d->n_variants + c->variant, c->row.retained_ppm);
			for (int k = 0; k < c->n_samples; k++) {
				const struct sample *t = changed_partner(&c->samples[k], m->change[s].cell);
				if (!t || n++ >= MOST_ROWS)
					continue;
				struct sample own = adopt(d, t);
				own.id = c->samples[k].id;
				own.question = c->samples[k].question;
				own.gold = c->samples[k].gold;
				sample_block_row(b, &(struct sample_line){c->panel, cell, &own, &c->samples[k],
							    sample_flags(&own, &c->samples[k])});
			}
		}
	return n;
}

static void write_flips(struct report *r)
{
	const struct data *d = r->d;
	struct sample_block b = {.d = &r->sources[0].data};
	int n_methods;
	char **methods = method_names(r, &n_methods);
	for (int p = 0; p < d->n_panels; p++)
		sample_block_panel(&b, d->panels[p].title, d->panels[p].row->protocol);
	for (int i = 0; i < n_methods; i++)
		sample_block_method(&b, methods[i]);
	int n = fill(&b, r);
	const char *const names[2] = {r->sources[0].label, r->n_sources == 2 ? r->sources[1].label : "the other"};
	strbuf_printf(r->out,
		"<p class=\"lead\">%d samples whose score changed%s. <b>worse</b> and <b>better</b> are against the first "
		"source.</p>\n",
		n, n > MOST_ROWS ? ", the first 20,000 of them here" : "");
	samples_frame(r->out, d, (const char *const *)methods, n_methods);
	sample_block_end(&b, r->out, MOST_TEXT, names);
	for (int i = 0; i < n_methods; i++)
		free(methods[i]);
	free(methods);
}

const struct page page_flips = {"flips", "Flipped samples", NULL, write_flips};
