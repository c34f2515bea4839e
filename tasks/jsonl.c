/* jsonl.c: contexts and questions from a file of JSON lines, one context a line:
 *
 *   {"context": "...", "question": "...", "answers": ["..."], "metric": "qa_f1"}
 *   {"context": "...", "questions": ["...", "..."], "answers": [["..."], ["...", "..."]], "metric": "exact"}
 *
 * and if wanted "id", "system", "answer_prefix" (texts), "max_new_tokens", "chat" (default true), "stops" (list). Other keys are
 * left alone. A question follows its context as it stands; where neither side of the seam is white space a blank line is put
 * between. A context above length_tokens loses its middle (LongBench's rule). The file is read line by line: only the offsets of
 * the lines stay in memory. Identity = SHA-256 of the whole file. */
#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/rows.h"
#include "tasks/task_impl.h"

enum { JSONL_VERSION = 1, DEFAULT_NEW_TOKENS = 64 };

/* ---- one row ---- */

/* Where an error is: every message of a row begins with it. */
struct place {
	const char *path;
	int line;
	char *err;
};

static int row_error(const struct place *at, const char *what)
{
	return err_set(at->err, "%s:%d: %s", at->path, at->line, what);
}

/* Copies an optional text; *out stays as it is when the key is missing or null. */
static int row_text(const json_t *row, const char *key, char **out, const struct place *at)
{
	const json_t *v = json_object_get(row, key);
	if (!v || json_is_null(v))
		return 0;
	if (!json_is_string(v))
		return err_set(at->err, "%s:%d: '%s' must be a text", at->path, at->line, key);
	free(*out);
	*out = text_copy(json_string_value(v));
	return 0;
}

static int row_answers(const json_t *list, struct task_question *q, const struct place *at)
{
	if (!json_is_array(list) || !json_array_size(list))
		return row_error(at, "'answers' must be a list of texts, or with 'questions' one such list for each, none empty");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *answer = json_string_value(json_array_get(list, i));
		if (!answer || !*answer)
			return row_error(at, "an answer in 'answers' is not a text, or empty");
		task_answer_add(q, answer);
	}
	return 0;
}

static int row_stops(const json_t *row, struct task_question *q, const struct place *at)
{
	const json_t *list = json_object_get(row, "stops");
	if (list && !json_is_array(list))
		return row_error(at, "'stops' must be a list of texts");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *stop = json_string_value(json_array_get(list, i));
		if (!stop || !*stop)
			return row_error(at, "a stop in 'stops' is not a text, or empty");
		q->stops = mem_grow(q->stops, i + 1, sizeof(*q->stops));
		q->stops[q->n_stops++] = text_copy(stop);
	}
	return 0;
}

static int row_metric(const json_t *row, const char **out, const struct place *at)
{
	const char *name = json_string_value(json_object_get(row, "metric"));
	const struct metric_def *m = name ? metric_find(name) : NULL;
	if (!name)
		return row_error(at, "'metric' is missing or not a text (`kvbench list metrics`)");
	if (!m)
		return err_set(at->err, "%s:%d: unknown metric '%s' (`kvbench list metrics`)", at->path, at->line, name);
	*out = m->name;
	return 0;
}

/* The user's limit, else the row's, else the default. */
static int row_new_tokens(const json_t *row, int asked, int *out, const struct place *at)
{
	const json_t *v = json_object_get(row, "max_new_tokens");
	*out = DEFAULT_NEW_TOKENS;
	if (v && !task_new_tokens(v, out))
		return row_error(at, "'max_new_tokens' must be a whole number above 0");
	*out = asked ? asked : *out;
	return 0;
}

static bool is_space(char c)
{
	return isspace((unsigned char)c) != 0;
}

static int row_question(const json_t *row, const json_t *text, const json_t *answers, const struct task *t,
	struct task_context *c, const struct place *at)
{
	struct task_question *q = task_question_add(c);
	const char *s = json_string_value(text);
	size_t n = strlen(c->text);
	if (!s)
		return row_error(at, "a question is not a text");
	bool seam = (n && is_space(c->text[n - 1])) || is_space(s[0]);
	q->text = text_format("%s%s", seam ? "" : "\n\n", s);
	if (row_answers(answers, q, at) || row_stops(row, q, at) || row_metric(row, &q->metric, at) ||
		row_text(row, "answer_prefix", &q->answer_prefix, at))
		return -1;
	return row_new_tokens(row, t->rq.max_new_tokens, &q->max_new_tokens, at);
}

static int row_questions(const json_t *row, const struct task *t, struct task_context *c, const struct place *at)
{
	const json_t *one = json_object_get(row, "question"), *many = json_object_get(row, "questions");
	const json_t *answers = json_object_get(row, "answers");
	if (!one == !many)
		return row_error(at, "a row has either 'question' or 'questions'");
	if (one)
		return row_question(row, one, answers, t, c, at);
	size_t n = json_array_size(many);
	if (!n || json_array_size(answers) != n)
		return row_error(at, "'questions' and 'answers' must be lists of the same length, not empty");
	if (t->rq.questions && (size_t)t->rq.questions < n)
		n = (size_t)t->rq.questions;
	for (size_t i = 0; i < n; i++)
		if (row_question(row, json_array_get(many, i), json_array_get(answers, i), t, c, at))
			return -1;
	return 0;
}

static int row_parse(const json_t *row, const struct task *t, struct task_context *c, const struct place *at)
{
	const json_t *chat = json_object_get(row, "chat");
	if (chat && !json_is_boolean(chat))
		return row_error(at, "'chat' must be true or false");
	c->chat = !json_is_false(chat);
	if (row_text(row, "id", &c->id, at) || row_text(row, "system", &c->system, at) || row_text(row, "context", &c->text, at))
		return -1;
	if (!c->text || !*c->text)
		return row_error(at, "'context' is missing or empty");
	return row_questions(row, t, c, at);
}

/* ---- length ---- */

/* LongBench's rule: half of the tokens from each end, the middle goes. Cuts fall between characters. */
static int cut_middle(struct task_context *c, const struct task_request *rq, char err[ERR_LEN])
{
	if (!rq->length_tokens)
		return 0;
	if (!rq->count_tokens || !rq->cut_tokens)
		return err_set(err, "task jsonl needs a tokenizer to keep to a length");
	int64_t tokens = rq->count_tokens(rq->user, c->text, strlen(c->text)), half = rq->length_tokens / 2;
	if (tokens < 0)
		return err_set(err, "context %s: counting tokens failed", c->id);
	if (tokens > rq->length_tokens)
		task_context_cut(c, rq, half, tokens - 2 * half);
	return 0;
}

/* ---- the file ---- */

static int jsonl_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN])
{
	struct rows *rows = t->state;
	struct place at = {t->rq.path, rows_line(rows, i), err};
	json_t *row = rows_read(rows, i, err);
	int failed = !row || row_parse(row, t, out, &at) || cut_middle(out, &t->rq, err);
	json_decref(row);
	return failed ? -1 : 0;
}

static int jsonl_open(struct task *t, char err[ERR_LEN])
{
	struct rows *rows = NULL;
	if (!t->rq.path)
		return err_set(err, "task jsonl needs the path of a file");
	if (rows_open(&rows, t->rq.path, t->identity.data_sha256, err))
		return -1;
	t->state = rows;
	/* the first row tells the main metric, and a file of the wrong kind shows at once */
	struct task_context first = {.id = text_copy("c0")};
	struct place at = {t->rq.path, rows_line(rows, 0), err};
	json_t *row = rows_read(rows, 0, err);
	int failed = !row || row_parse(row, t, &first, &at);
	if (!failed)
		t->identity.metric = first.questions[0].metric;
	json_decref(row);
	task_context_free(&first);
	t->contexts = t->rq.contexts && t->rq.contexts < rows_count(rows) ? t->rq.contexts : rows_count(rows);
	t->identity.version = JSONL_VERSION;
	sha256_hex("", 0, t->identity.template_sha256);
	return failed ? -1 : 0;
}

static void jsonl_close(struct task *t)
{
	rows_close(t->state);
}

const struct task_def task_jsonl = {
	.name = "jsonl",
	.title = "your own contexts and questions, from JSON lines",
	.parameters = "path length contexts questions max_new_tokens",
	.open = jsonl_open,
	.make = jsonl_make,
	.close = jsonl_close,
};
