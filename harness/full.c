/* full.c: at r = 1 every method must answer as the full cache does: read back from the rows, so that a resumed run is checked
 * whole. */
#include "harness/sweep.h"

#include <stdlib.h>
#include <string.h>

struct answers {
	struct {
		char *sample, *answer;
		int tokens;
	} * v;
	int n, at, differ;
};

static int remember_answer(void *user, const struct score_row *r)
{
	struct answers *a = user;
	if (strcmp(r->status, "ok"))
		return 0;
	a->v = mem_grow(a->v, (size_t)a->n + 1, sizeof *a->v);
	a->v[a->n].sample = text_copy(r->sample_id);
	a->v[a->n].answer = text_copy(r->answer);
	a->v[a->n++].tokens = r->answer_tokens;
	return 0;
}

/* Both come ordered by sample id. */
static int compare_answer(void *user, const struct score_row *r)
{
	struct answers *a = user;
	while (a->at < a->n && strcmp(a->v[a->at].sample, r->sample_id) < 0)
		a->at++;
	if (!strcmp(r->status, "ok") && a->at < a->n && !strcmp(a->v[a->at].sample, r->sample_id))
		a->differ += strcmp(a->v[a->at].answer, r->answer) || a->v[a->at].tokens != r->answer_tokens;
	return 0;
}

int sweep_check_full(struct sweep *s, const struct sweep_group *g, char err[ERR_LEN])
{
	const struct plan *p = s->plan;
	struct answers full = {0}; /* of variant 0 */
	int rc = store_samples(s->store, g->cell_ids[0], remember_answer, &full, err);
	for (int v = 1; v < p->n_variants && !rc; v++) {
		if (p->variants[v].retained_ppm != 1000000)
			continue;
		full.at = full.differ = 0;
		rc = store_samples(s->store, g->cell_ids[v], compare_answer, &full, err);
		s->sum.not_equal_to_full += full.differ;
		if (full.differ) {
			char name[128];
			sweep_group_name(g, name, sizeof name);
			sweep_note(s, "%s: %s at r = 1 gives %d answers that differ from the full cache's", name,
				p->methods[p->variants[v].method].name, full.differ);
		}
	}
	for (int i = 0; i < full.n; i++) {
		free(full.v[i].sample);
		free(full.v[i].answer);
	}
	free(full.v);
	return rc;
}
