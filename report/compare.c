/* compare.c: see compare.h. */
#include "report/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const outcome_word[] = {"no pairs", "same", "open", "better", "worse"};

/* As `kvbench compare` without options. */
static const struct compare_rules rules = {.alpha = .05};

static const struct cell *cell_of(const struct data *d, const struct side_cell *c)
{
	for (int i = 0; i < d->n_cells && c; i++)
		if (strcmp(d->cells[i].row.cell_id, c->row.cell_id) == 0)
			return &d->cells[i];
	return NULL;
}

int change_flipped(const struct change *x)
{
	return x->compared ? x->compared->score.higher + x->compared->score.lower : 0;
}

static struct change change_of(const struct source *s, const struct compared *c)
{
	struct change x = {.cell = cell_of(&s->data, c->b), .compared = c, .time = NAN};
	x.outcome = c->score.n == 0              ? NO_PAIR
		    : change_flipped(&x) == 0    ? SAME_SCORES
		    : c->score_verdict == BETTER ? RISES
		    : c->score_verdict == WORSE  ? FALLS
						 : OPEN;
	x.absolute = !c->ratio_known;
	x.time = c->ratio_known ? c->ratio.change.mean : c->time_known ? c->time.change.mean : NAN;
	enum verdict told = c->ratio_known ? c->ratio_verdict : c->time_known ? c->time_verdict : UNKNOWN;
	x.time_told = told == BETTER || told == WORSE;
	return x;
}

static void match_source(struct matches *m, const struct report *r, int source)
{
	const struct comparison *c = &m->against[source];
	for (int i = 0; i < m->n; i++) {
		m->v[i].change[source].time = NAN;
		for (int k = 0; k < c->n_cells; k++)
			if (strcmp(c->cells[k].a->row.cell_id, m->v[i].first->row.cell_id) == 0)
				m->v[i].change[source] = change_of(&r->sources[source], &c->cells[k]);
	}
}

int matches_make(struct matches *out, const struct report *r, char err[ERR_LEN])
{
	*out = (struct matches){.n = r->d->n_cells, .n_sources = r->n_sources};
	out->v = mem_new((size_t)out->n, sizeof *out->v);
	out->side = mem_new((size_t)r->n_sources, sizeof *out->side);
	out->against = mem_new((size_t)r->n_sources, sizeof *out->against);
	for (int i = 0; i < out->n; i++)
		out->v[i] = (struct match){&r->d->cells[i], mem_new((size_t)r->n_sources, sizeof *out->v[i].change)};
	for (int s = 0; s < r->n_sources; s++)
		if (side_load(&out->side[s], r->request->sources[s].spec, err) != 0)
			return -1;
	for (int s = 1; s < r->n_sources; s++) {
		compare_make(&out->against[s], &out->side[0], &out->side[s], &rules);
		match_source(out, r, s);
	}
	return 0;
}

void matches_free(struct matches *m)
{
	for (int s = 0; s < m->n_sources; s++) {
		if (s > 0 && m->against[s].a)
			compare_free(&m->against[s]);
		side_free(&m->side[s]);
	}
	for (int i = 0; i < m->n; i++)
		free(m->v[i].change);
	free(m->v);
	free(m->side);
	free(m->against);
	*m = (struct matches){0};
}
