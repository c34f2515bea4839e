/* scores_write.c: the file that `kvbench scores` writes and the scorer `scores` reads (methods/scores_file.c): a method's
 * importance of each context's entries, the ids they belong to, and what it keeps at each ratio. */
#include "runners/runner_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct runner_scores {
	struct st_tensor *v; /* names and data owned */
	size_t n;
	int contexts;
};

struct runner_scores *runner_scores_new(void)
{
	return mem_new(1, sizeof(struct runner_scores));
}

void runner_scores_free(struct runner_scores *s)
{
	for (size_t i = 0; s && i < s->n; i++) {
		free((void *)s->v[i].name);
		free((void *)s->v[i].data);
	}
	if (s)
		free(s->v);
	free(s);
}

int runner_scores_check(const char *method, const char *options, char err[ERR_LEN])
{
	struct plan_method m;
	if (method_resolve(&m, method, options, err))
		return -1;
	int rc = 0;
	if (!m.scorer)
		rc = err_set(err, "%s has no scores: it keeps everything", method);
	else if (!strcmp(param_compat(m.params), "kvpress"))
		rc = err_set(err, "%s with compat=kvpress scores the whole prompt; a file holds scores of the context alone", method);
	method_free(&m);
	return rc;
}

/* Takes name and data. */
static void add(struct runner_scores *s, char *name, struct st_tensor t, void *data)
{
	s->v = mem_grow(s->v, s->n + 1, sizeof *s->v);
	t.name = name;
	t.data = data;
	s->v[s->n++] = t;
}

static void *copied(const void *data, size_t bytes)
{
	void *out = mem_new(bytes + 1, 1);
	memcpy(out, data, bytes);
	return out;
}

/* The rows of the context that one variant keeps, counted from the context's first. */
static int add_kept(struct runner_scores *s, const struct session *e, int v, double retained, char err[ERR_LEN])
{
	const struct scoring *g = &e->scoring[e->scoring_of[v]];
	struct selection sel;
	if (method_select(&sel, &e->method[v], g, retained, err))
		return -1;
	int heads = sel.layers * sel.kv_heads;
	int32_t *all = mem_new((size_t)sel.total + 1, sizeof *all), n = 0;
	for (int h = 0; h < heads; h++)
		for (int32_t j = 0; j < sel.len[h]; j++)
			all[n++] = (int32_t)(sel.index[h][j] - g->shape.first);
	add(s, text_format("%s.kept@%g", e->context_sha256, retained),
		(struct st_tensor){.type = ST_I32, .n_dims = 1, .dims = {n}}, all);
	add(s, text_format("%s.kept_len@%g", e->context_sha256, retained),
		(struct st_tensor){.type = ST_I32, .n_dims = 2, .dims = {sel.layers, sel.kv_heads}},
		copied(sel.len, (size_t)heads * sizeof *sel.len));
	selection_free(&sel);
	return 0;
}

static int add_context(struct runner_scores *s, const struct session *e, const struct runner_job *job, char err[ERR_LEN])
{
	const struct scoring *g = &e->scoring[0];
	size_t floats = (size_t)g->layers * (size_t)g->kv_heads * (size_t)g->shape.count;
	if (e->scoring_error[0][0])
		return err_set(err, "%s", e->scoring_error[0]);
	char *name = text_format("%s.scores", e->context_sha256);
	bool twice = false;
	for (size_t i = 0; i < s->n; i++)
		twice = twice || !strcmp(s->v[i].name, name);
	if (twice) { /* the same text under another name */
		free(name);
		return 0;
	}
	add(s, name, (struct st_tensor){.type = ST_F32, .n_dims = 3, .dims = {g->layers, g->kv_heads, g->shape.count}},
		copied(g->scores, floats * sizeof(float)));
	add(s, text_format("%s.ids", e->context_sha256),
		(struct st_tensor){.type = ST_I32, .n_dims = 1, .dims = {e->prompt->context}},
		copied(e->prompt->ids.v + e->prompt->prefix, (size_t)e->prompt->context * sizeof(int32_t)));
	int rc = 0;
	for (int v = 0; v < job->n_variants && !rc; v++)
		rc = add_kept(s, e, v, job->variants[v].retained, err);
	s->contexts += !rc;
	return rc;
}

int runner_scores_add(struct runner_scores *s, struct runner *r, const struct runner_job *job, char err[ERR_LEN])
{
	struct prompt prompt = {0};
	struct prompt_question pq = {0};
	struct session session = {0};
	for (int v = 0; v < job->n_variants; v++)
		if (runner_scores_check(job->variants[v].method, job->variants[v].options, err))
			return -1;
	int rc = prompt_make(r, job, 0, &prompt, &pq, err) ? -1 : session_open(&session, r, job, &prompt, NULL, err);
	rc = rc ? (rc == 1 ? 1 : -1) : add_context(s, &session, job, err);
	session_close(&session);
	prompt_question_free(&pq);
	prompt_free(&prompt);
	return rc;
}

int runner_scores_write(
	const struct runner_scores *s, const struct runner *r, const char *path, const char *made_by, char err[ERR_LEN])
{
	const struct st_meta meta[] = {{"kind", "scores"}, {"target_sha256", r->info.model_sha256},
		{"proxy_sha256", r->info.proxy_sha256}, {"tokenizer_sha256", r->info.tokenizer_sha256}, {"made_by", made_by}};
	if (!s->n)
		return err_set(err, "no context was scored");
	return st_write(path, s->v, s->n, meta, 5, err);
}
