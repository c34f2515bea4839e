/* training.c: see training.h. */
#include "report/training.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int count_contexts(const char *json)
{
	json_t *list = json_loads(json, 0, NULL);
	int n = (int)json_array_size(list);
	json_decref(list);
	return n;
}

static int add_training(void *user, const struct training_row *r)
{
	struct trainings *t = user;
	t->v = mem_grow(t->v, (size_t)t->n + 1, sizeof *t->v);
	t->v[t->n++] = (struct training){.kind = text_copy(r->kind),
		.name = text_copy(r->name),
		.config = text_copy(r->config),
		.weights_path = text_copy(r->weights_path),
		.weights_sha256 = text_copy(r->weights_sha256),
		.id = text_copy(r->training_id),
		.seed = r->seed,
		.started_unix_ms = r->started_unix_ms,
		.ended_unix_ms = r->ended_unix_ms,
		.steps = r->steps,
		.n_contexts = count_contexts(r->contexts)};
	return 0;
}

/* Rows come by term, then step. */
static int add_step(void *user, const char *term, int64_t step, double value)
{
	struct training *t = user;
	struct curve *c = t->n_curves ? &t->curves[t->n_curves - 1] : NULL;
	if (!c || strcmp(c->term, term) != 0) {
		t->curves = mem_grow(t->curves, (size_t)t->n_curves + 1, sizeof *t->curves);
		c = &t->curves[t->n_curves++];
		*c = (struct curve){.term = text_copy(term)};
	}
	if (c->n == c->cap) {
		c->cap = c->cap ? 2 * c->cap : 64;
		c->step = mem_grow(c->step, (size_t)c->cap, sizeof *c->step);
		c->value = mem_grow(c->value, (size_t)c->cap, sizeof *c->value);
	}
	c->step[c->n] = step;
	c->value[c->n++] = value;
	return 0;
}

int trainings_load(struct trainings *t, struct store *s, char err[ERR_LEN])
{
	int rc = store_trainings(s, add_training, t, err);
	for (int i = 0; i < t->n && rc == 0; i++)
		rc = store_training_steps(s, t->v[i].id, add_step, &t->v[i], err);
	return rc;
}

void trainings_free(struct trainings *t)
{
	for (int i = 0; i < t->n; i++) {
		struct training *v = &t->v[i];
		char *texts[] = {v->kind, v->name, v->config, v->weights_path, v->weights_sha256, v->id};
		for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
			free(texts[k]);
		for (int k = 0; k < v->n_curves; k++) {
			free(v->curves[k].term);
			free(v->curves[k].step);
			free(v->curves[k].value);
		}
		free(v->curves);
	}
	free(t->v);
	*t = (struct trainings){0};
}

const struct curve *training_curve(const struct training *t, const char *term)
{
	for (int i = 0; i < t->n_curves; i++)
		if (strcmp(t->curves[i].term, term) == 0)
			return &t->curves[i];
	return NULL;
}

double curve_last(const struct curve *c)
{
	for (int i = c ? c->n : 0; i > 0; i--)
		if (!isnan(c->value[i - 1]))
			return c->value[i - 1];
	return NAN;
}

double term_ratio(const char *term, const char *name)
{
	size_t n = strlen(name);
	if (strncmp(term, name, n) != 0 || term[n] != '@')
		return NAN;
	char *end;
	double r = strtod(term + n + 1, &end);
	return *end || end == term + n + 1 ? NAN : r;
}
