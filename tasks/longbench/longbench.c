/* longbench.c: LongBench v1 and LongBench-E as tasks: a row of the task's JSON lines becomes a context with one question.
 *
 * The prompt is upstream's template with the row in it; the context ends where {context} ends, the question is all that follows,
 * with the words that ask for the answer ("Answer:"): inside the user's turn, as upstream has them, so answer_prefix stays empty.
 * Rows stay in memory (at most some tens of MB). Identity: SHA-256 of the rows and of length and template. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/longbench/longbench.h"
#include "tasks/metrics/metrics.h"

enum { LONGBENCH_VERSION = 1 };

struct longbench {
	const struct longbench_info *info;
	bool e;
	struct longbench_rows rows;
	char *template;
	int max_new_tokens;
};

/* ---- upstream's settings ---- */

/* The task's value in one of upstream's JSON objects (kept in *file for the caller to release). */
static const json_t *setting(const struct task *t, const char *name, json_t **file, char err[ERR_LEN])
{
	const struct longbench *s = t->state;
	json_error_t why;
	char *path = longbench_file(&t->rq, name, err);
	if (!path)
		return NULL;
	*file = json_load_file(path, 0, &why);
	const json_t *v = json_object_get(*file, s->info->name);
	if (!*file)
		err_set(err, "%s: %s (line %d)", path, why.text, why.line);
	else if (!v)
		err_set(err, "%s: nothing about %s", path, s->info->name);
	free(path);
	return v;
}

static int settings_read(struct task *t, char err[ERR_LEN])
{
	struct longbench *s = t->state;
	json_t *prompts = NULL, *lengths = NULL;
	const json_t *prompt = setting(t, "dataset2prompt.json", &prompts, err);
	const json_t *length = prompt ? setting(t, "dataset2maxlen.json", &lengths, err) : NULL;
	s->template = text_copy(json_string_value(prompt));
	int failed = !length ||
		     (s->template && task_new_tokens(length, &s->max_new_tokens)
				     ? 0
				     : err_set(err, "%s: the prompt is not a text or the length not a number", s->info->name));
	json_decref(prompts);
	json_decref(lengths);
	return failed ? -1 : 0;
}

/* ---- a row ---- */

static int row_error(const struct task *t, int i, const char *what, char err[ERR_LEN])
{
	return err_set(err, "%s: row %d: %s", t->def->name, i, what);
}

/* A copy, NULL = no text. passage_retrieval_zh has NULs in four contexts. */
static char *text_of(const json_t *v)
{
	return json_is_string(v) ? text_without_nul(json_string_value(v), json_string_length(v)) : NULL;
}

static int answers_add(const json_t *list, struct task_question *q)
{
	const json_t *v;
	size_t i;
	json_array_foreach(list, i, v)
	{
		char *text = text_of(v);
		if (!text)
			return -1;
		task_answer_add(q, text);
		free(text);
	}
	return i ? 0 : -1;
}

/* The right answers; for classification the right class and then all classes, as the metric wants them. */
static int row_answers(const json_t *row, const struct longbench_info *info, struct task_question *q)
{
	const json_t *answers = json_object_get(row, "answers");
	if (strcmp(info->metric, "classification"))
		return answers_add(answers, q);
	return json_array_size(answers) == 1 && !answers_add(answers, q) ? answers_add(json_object_get(row, "all_classes"), q)
									 : -1;
}

static int row_prompt(const json_t *row, const struct task *t, int i, struct longbench_prompt *p, char err[ERR_LEN])
{
	const struct longbench *s = t->state;
	char *context = text_of(json_object_get(row, "context")), *input = text_of(json_object_get(row, "input"));
	int failed = context && input ? longbench_prompt_make(p, s->template, context, input, err)
				      : row_error(t, i, "'context' or 'input' is no text", err);
	free(context);
	free(input);
	return failed;
}

static int row_context(const json_t *row, const struct task *t, int i, struct task_context *c, char err[ERR_LEN])
{
	const struct longbench *s = t->state;
	struct longbench_prompt p = {0};
	if (row_prompt(row, t, i, &p, err) || longbench_cut(&p, &t->rq, c, err)) {
		free(p.text);
		return -1;
	}
	struct task_question *q = longbench_prompt_give(&p, c);
	q->metric = s->info->metric;
	q->max_new_tokens = t->rq.max_new_tokens ? t->rq.max_new_tokens : s->max_new_tokens;
	if (s->info->line_stop) {
		q->min_new_tokens = 1;
		q->stops = mem_new(q->n_stops = 1, sizeof(*q->stops));
		q->stops[0] = text_copy("\n");
	}
	c->chat = s->info->chat;
	if (s->e)
		c->group = longbench_bins[longbench_bin(json_integer_value(json_object_get(row, "length")))];
	return row_answers(row, s->info, q) ? row_error(t, i, "'answers' or 'all_classes' is not what the task needs", err) : 0;
}

static int longbench_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN])
{
	const struct longbench *s = t->state;
	json_error_t why;
	json_t *row = json_loadb(s->rows.v[i].at, s->rows.v[i].len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	int failed = row ? row_context(row, t, i, out, err) : row_error(t, i, why.text, err);
	json_decref(row);
	return failed;
}

/* ---- opening ---- */

static void identity_set(struct task *t)
{
	struct longbench *s = t->state;
	char *text = text_format("%d\n%s", s->max_new_tokens, s->template);
	sha256_hex(text, strlen(text), t->identity.template_sha256);
	free(text);
	t->identity.metric = s->info->metric;
	t->identity.version = LONGBENCH_VERSION;
	t->contexts = t->rq.contexts && t->rq.contexts < s->rows.n ? t->rq.contexts : s->rows.n;
}

static int longbench_open(struct task *t, char err[ERR_LEN])
{
	struct longbench *s = t->state = mem_new(1, sizeof(*s));
	char file[64];
	s->info = longbench_find(t->def->name, &s->e);
	snprintf(file, sizeof(file), "%s%s.jsonl", s->info->name, s->e ? "_e" : "");
	if (!t->rq.path)
		return err_set(err, "task %s needs a path: the folder or data.zip of LongBench", t->def->name);
	if (longbench_truncate_check(&t->rq, err) || metric_prepare(metric_find(s->info->metric), err) || settings_read(t, err) ||
		longbench_rows_read(&s->rows, t->rq.path, file, t->identity.data_sha256, err))
		return -1;
	identity_set(t);
	return 0;
}

static void longbench_close(struct task *t)
{
	struct longbench *s = t->state;
	if (!s)
		return;
	longbench_rows_free(&s->rows);
	free(s->template);
	free(s);
}

/* ---- the entries of the table of tasks ---- */

#define PARAMETERS "path templates truncate length contexts max_new_tokens"
#define V1(task)                                                                                                                 \
	{                                                                                                                        \
		"longbench-" task, "LongBench " task, PARAMETERS, longbench_open, longbench_make, longbench_close                \
	}
#define E(task)                                                                                                                  \
	{                                                                                                                        \
		"longbench-e-" task, "LongBench-E " task, PARAMETERS, longbench_open, longbench_make, longbench_close            \
	}

const struct task_def task_longbench[LONGBENCH_TASKS] = {
	V1("narrativeqa"),
	V1("qasper"),
	V1("multifieldqa_en"),
	V1("multifieldqa_zh"),
	V1("hotpotqa"),
	V1("2wikimqa"),
	V1("musique"),
	V1("dureader"),
	V1("gov_report"),
	V1("qmsum"),
	V1("multi_news"),
	V1("vcsum"),
	V1("trec"),
	V1("triviaqa"),
	V1("samsum"),
	V1("lsht"),
	V1("passage_count"),
	V1("passage_retrieval_en"),
	V1("passage_retrieval_zh"),
	V1("lcc"),
	V1("repobench-p"),
	E("qasper"),
	E("multifieldqa_en"),
	E("hotpotqa"),
	E("2wikimqa"),
	E("gov_report"),
	E("multi_news"),
	E("trec"),
	E("triviaqa"),
	E("samsum"),
	E("passage_count"),
	E("passage_retrieval_en"),
	E("lcc"),
	E("repobench-p"),
	{"longbench-v2", "LongBench v2, multiple choice", PARAMETERS, longbench_v2_open, longbench_v2_make, longbench_v2_close},
};
