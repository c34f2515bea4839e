/* task.c: the table of tasks, opening by name, and the memory of contexts. What a task says is in its own file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/task_impl.h"

/* A suite is an array of tasks. */
static const struct {
	const struct task_def *defs;
	size_t n;
} suites[] = {
	{&task_niah_single, 1},
	{&task_niah_multikey, 1},
	{&task_niah_multivalue, 1},
	{&task_niah_multiquery, 1},
	{&task_jsonl, 1},
	{task_longbench, LONGBENCH_TASKS},
	{task_scbench, SCBENCH_TASKS},
	{task_ruler, RULER_TASKS},
};
enum { SUITES = sizeof(suites) / sizeof(suites[0]) };

size_t task_def_count(void)
{
	size_t n = 0;
	for (size_t s = 0; s < SUITES; s++)
		n += suites[s].n;
	return n;
}

const struct task_def *task_def_at(size_t i)
{
	size_t s = 0;
	while (i >= suites[s].n)
		i -= suites[s++].n;
	return &suites[s].defs[i];
}

bool task_takes(const struct task_def *def, const char *field)
{
	size_t len = strlen(field);
	for (const char *p = def->parameters; (p = strstr(p, field)); p += len)
		if ((p == def->parameters || p[-1] == ' ') && (p[len] == ' ' || !p[len]))
			return true;
	return false;
}

static const struct task_def *def_find(const char *name, char err[ERR_LEN])
{
	size_t n = task_def_count();
	const char **names = mem_new(n, sizeof(*names));
	const struct task_def *found = NULL;
	for (size_t i = 0; i < n; i++) {
		names[i] = task_def_at(i)->name;
		if (!strcmp(name, names[i]))
			found = task_def_at(i);
	}
	const char *near = name_nearest(name, names, n);
	if (!found)
		err_set(err, "unknown task '%s'%s%s%s", name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
	free(names);
	return found;
}

/* A parameter that changes nothing would make two equal cells look different: refused. So are numbers out of all bounds. */
static int request_check(const struct task_def *def, const struct task_request *rq, char err[ERR_LEN])
{
	const struct {
		const char *field;
		bool set;
	} fields[] = {
		{"path", rq->path != NULL},
		{"templates", rq->templates != NULL},
		{"truncate", rq->truncate != NULL},
		{"questions", rq->questions != 0},
		{"needles", rq->needles != 0},
		{"values", rq->values != 0},
		{"queries", rq->queries != 0},
		{"depth", rq->depth > 0},
		{"mode", rq->mode != NULL},
		{"generator", rq->generator != NULL},
		{"release", rq->release != NULL},
	};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (fields[i].set && !task_takes(def, fields[i].field))
			return err_set(
				err, "task %s has no parameter '%s' (it has: %s)", def->name, fields[i].field, def->parameters);
	const int64_t numbers[] = {rq->questions, rq->needles, rq->values, rq->queries, rq->max_new_tokens};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (numbers[i] < 0 || numbers[i] > 10000)
			return err_set(err, "task %s: %lld is not a number of questions, needles, values, queries or new tokens",
				def->name, (long long)numbers[i]);
	if (rq->contexts < 0 || rq->length_tokens < 0)
		return err_set(err, "task %s: the number of contexts or the length is negative", def->name);
	return 0;
}

int task_open(struct task **out, const struct task_request *rq, char err[ERR_LEN])
{
	const struct task_def *def = def_find(rq->name, err);
	if (!def || request_check(def, rq, err))
		return -1;
	struct task *t = mem_new(1, sizeof(*t));
	t->def = def;
	t->rq = *rq;
	t->rq.name = def->name;
	t->rq.path = text_copy(rq->path);
	t->rq.templates = text_copy(rq->templates);
	t->rq.truncate = text_copy(rq->truncate);
	t->rq.wording = text_copy(rq->wording);
	t->rq.mode = text_copy(rq->mode);
	t->rq.generator = text_copy(rq->generator);
	t->rq.release = text_copy(rq->release);
	t->identity.name = def->name;
	if (def->open(t, err)) {
		task_close(t);
		return -1;
	}
	*out = t;
	return 0;
}

void task_close(struct task *t)
{
	if (!t)
		return;
	t->def->close(t);
	free((char *)t->rq.path);
	free((char *)t->rq.templates);
	free((char *)t->rq.truncate);
	free((char *)t->rq.wording);
	free((char *)t->rq.mode);
	free((char *)t->rq.generator);
	free((char *)t->rq.release);
	free(t);
}

int task_count(const struct task *t)
{
	return t->contexts;
}

void task_identity(const struct task *t, struct task_identity *out)
{
	*out = t->identity;
}

int task_context_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN])
{
	memset(out, 0, sizeof(*out));
	if (i < 0 || i >= t->contexts)
		return err_set(err, "task %s has %d contexts: there is no number %d", t->def->name, t->contexts, i);
	out->id = text_format("c%d", i);
	if (t->def->make(t, i, out, err)) {
		task_context_free(out);
		return -1;
	}
	return 0;
}

struct task_question *task_question_add(struct task_context *c)
{
	c->questions = mem_grow(c->questions, (size_t)c->n_questions + 1, sizeof(*c->questions));
	struct task_question *q = &c->questions[c->n_questions];
	*q = (struct task_question){.depth = NAN, .needle_token = -1, .needle_char = -1};
	q->id = text_format("%s.q%d", c->id, c->n_questions++);
	q->answer_prefix = text_copy("");
	return q;
}

static bool inside_character(const char *p)
{
	return ((unsigned char)*p & 0xc0) == 0x80;
}

void task_context_cut(struct task_context *c, const struct task_request *rq, int64_t from, int64_t n)
{
	size_t len = strlen(c->text), head = rq->cut_tokens(rq->user, c->text, len, from);
	size_t tail = rq->cut_tokens(rq->user, c->text, len, from + n);
	while (head > 0 && inside_character(c->text + head))
		head--;
	while (tail < len && inside_character(c->text + tail))
		tail++;
	memmove(c->text + head, c->text + tail, len - tail + 1);
	c->cut_tokens = n;
}

void task_answer_add(struct task_question *q, const char *answer)
{
	q->answers = mem_grow(q->answers, (size_t)q->n_answers + 1, sizeof(*q->answers));
	q->answers[q->n_answers++] = text_copy(answer);
}

bool task_new_tokens(const json_t *v, int *out)
{
	json_int_t n = json_integer_value(v); /* 0 for what is none */
	if (n < 1 || n > 1 << 20)
		return false;
	*out = (int)n;
	return true;
}

static void texts_free(char **texts, int n)
{
	for (int i = 0; i < n; i++)
		free(texts[i]);
	free(texts);
}

void task_context_free(struct task_context *c)
{
	for (int i = 0; i < c->n_questions; i++) {
		struct task_question *q = &c->questions[i];
		texts_free(q->answers, q->n_answers);
		texts_free(q->stops, q->n_stops);
		free(q->id);
		free(q->text);
		free(q->answer_prefix);
		free(q->golden);
	}
	free(c->questions);
	free(c->id);
	free(c->system);
	free(c->text);
	memset(c, 0, sizeof(*c));
}
