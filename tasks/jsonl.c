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
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/types.h>

#include "tasks/task_impl.h"

enum { JSONL_VERSION = 1, DEFAULT_NEW_TOKENS = 64 };

struct row_at {
	off_t offset;
	int line; /* from 1, as editors count */
};

struct jsonl {
	FILE *f;
	struct row_at *rows;
	int n_rows;
};

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
		return row_error(at, "'metric' is missing or not a text");
	if (!m)
		return err_set(at->err, "%s:%d: unknown metric '%s'", at->path, at->line, name);
	*out = m->name;
	return 0;
}

/* The user's limit, else the row's, else the default. */
static int row_new_tokens(const json_t *row, int asked, int *out, const struct place *at)
{
	const json_t *v = json_object_get(row, "max_new_tokens");
	if (v && (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 1 << 20))
		return row_error(at, "'max_new_tokens' must be a whole number above 0");
	*out = asked ? asked : v ? (int)json_integer_value(v) : DEFAULT_NEW_TOKENS;
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
	if (!json_is_object(row))
		return row_error(at, "a row must be a JSON object");
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

static bool inside_character(const char *p)
{
	return ((unsigned char)*p & 0xc0) == 0x80;
}

/* LongBench's rule: half of the tokens from each end, the middle goes. Cuts fall between characters. */
static int cut_middle(struct task_context *c, const struct task_request *rq, char err[ERR_LEN])
{
	if (!rq->length_tokens)
		return 0;
	if (!rq->count_tokens || !rq->cut_tokens)
		return err_set(err, "task jsonl needs a tokenizer to keep to a length");
	size_t len = strlen(c->text);
	int64_t tokens = rq->count_tokens(rq->user, c->text, len), half = rq->length_tokens / 2;
	if (tokens < 0)
		return err_set(err, "context %s: counting tokens failed", c->id);
	if (tokens <= rq->length_tokens)
		return 0;
	size_t head = rq->cut_tokens(rq->user, c->text, len, half), tail = rq->cut_tokens(rq->user, c->text, len, tokens - half);
	while (head > 0 && inside_character(c->text + head))
		head--;
	while (tail < len && inside_character(c->text + tail))
		tail++;
	memmove(c->text + head, c->text + tail, len - tail + 1);
	c->cut_tokens = tokens - 2 * half;
	return 0;
}

/* ---- the file ---- */

/* Reads the row's line anew and parses it. The caller frees the result; NULL = error set. */
static json_t *row_load(const struct jsonl *s, int i, const struct place *at)
{
	char *line = NULL;
	size_t cap = 0;
	json_t *row = NULL;
	json_error_t why;
	errno = 0;
	ssize_t n = fseeko(s->f, s->rows[i].offset, SEEK_SET) ? -1 : getline(&line, &cap, s->f);
	if (n < 0)
		err_set(at->err, "%s:%d: cannot read: %s", at->path, at->line,
			errno ? strerror(errno) : "the file became shorter");
	else if (!(row = json_loadb(line, (size_t)n, JSON_REJECT_DUPLICATES, &why)))
		err_set(at->err, "%s:%d: not a JSON object on one line: %s (column %d)", at->path, at->line, why.text,
			why.column);
	free(line);
	return row;
}

static int jsonl_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN])
{
	struct jsonl *s = t->state;
	struct place at = {t->rq.path, s->rows[i].line, err};
	json_t *row = row_load(s, i, &at);
	int failed = !row || row_parse(row, t, out, &at) || cut_middle(out, &t->rq, err);
	json_decref(row);
	return failed ? -1 : 0;
}

/* Finds the lines which are not blank and hashes the file. */
static int index_lines(struct jsonl *s, const char *path, char sha[SHA_LEN], char err[ERR_LEN])
{
	char *line = NULL;
	size_t cap = 0, cap_rows = 0;
	off_t offset = 0;
	struct sha256 *hash = sha256_new();
	ssize_t n;
	for (int number = 1; (n = getline(&line, &cap, s->f)) > 0; number++, offset += n) {
		sha256_add(hash, line, (size_t)n);
		if (strspn(line, " \t\r\n") == (size_t)n)
			continue;
		if ((size_t)s->n_rows == cap_rows)
			s->rows = mem_grow(s->rows, cap_rows = cap_rows * 2 + 64, sizeof(*s->rows));
		s->rows[s->n_rows++] = (struct row_at){offset, number};
	}
	free(line);
	sha256_end(hash, sha);
	return ferror(s->f) ? err_set(err, "%s: cannot read: %s", path, strerror(errno)) : 0;
}

static int jsonl_open(struct task *t, char err[ERR_LEN])
{
	struct jsonl *s = t->state = mem_new(1, sizeof(*s));
	const char *path = t->rq.path;
	if (!path)
		return err_set(err, "task jsonl needs the path of a file");
	s->f = fopen(path, "rb");
	if (!s->f)
		return err_set(err, "%s: cannot open: %s", path, strerror(errno));
	if (index_lines(s, path, t->identity.data_sha256, err))
		return -1;
	if (!s->n_rows)
		return err_set(err, "%s: no rows", path);
	/* the first row tells the main metric, and a file of the wrong kind shows at once */
	struct task_context first = {.id = text_copy("c0")};
	struct place at = {path, s->rows[0].line, err};
	json_t *row = row_load(s, 0, &at);
	int failed = !row || row_parse(row, t, &first, &at);
	if (!failed)
		t->identity.metric = first.questions[0].metric;
	json_decref(row);
	task_context_free(&first);
	t->contexts = t->rq.contexts && t->rq.contexts < s->n_rows ? t->rq.contexts : s->n_rows;
	t->identity.version = JSONL_VERSION;
	sha256_hex("", 0, t->identity.template_sha256);
	return failed ? -1 : 0;
}

static void jsonl_close(struct task *t)
{
	struct jsonl *s = t->state;
	if (!s)
		return;
	if (s->f)
		fclose(s->f);
	free(s->rows);
	free(s);
}

const struct task_def task_jsonl = {
	.name = "jsonl",
	.title = "your own contexts and questions, from JSON lines",
	.parameters = "path length contexts questions max_new_tokens",
	.open = jsonl_open,
	.make = jsonl_make,
	.close = jsonl_close,
};
