/* ruler_rows.c: rows made elsewhere: RULER's own JSON lines, and the data set kvpress reads (JSON lines, or the answer of the
 * hub's /rows, one JSON object with "rows").
 *
 *   RULER    {"input", "outputs", and in new files "answer_prefix"}: one task a file, prepared with the template `base`
 *   kvpress  {"context", "question", "answer_prefix", "answer" or "answers", "task", "max_new_tokens"}: other tasks are skipped
 *
 * An `input` is cut where its question begins: behind the last line end, for qa behind the last blank line but one. That is where
 * kvpress cuts by patterns of upstream's wording. Lines are read when asked for; a /rows answer is held in memory. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tasks/ruler/ruler.h"

struct ruler_rows {
	FILE *f;
	off_t *at;     /* [n]: where row i's line begins */
	json_t *page;  /* the hub's answer, or NULL */
	json_t **held; /* [n]: rows of the page, borrowed */
	int n;
};

void ruler_rows_close(struct ruler_rows *rows)
{
	if (!rows)
		return;
	if (rows->f)
		fclose(rows->f);
	json_decref(rows->page);
	free(rows->at);
	free(rows->held);
	free(rows);
}

/* ---- the file ---- */

static bool is_asked(const json_t *row, const struct ruler_config *c)
{
	const char *task = json_string_value(json_object_get(row, "task"));
	return !task || !strcmp(task, c->name);
}

static int page_index(struct ruler_rows *rows, const struct task *t, const struct ruler_config *c, char err[ERR_LEN])
{
	size_t i;
	json_t *o;
	const json_t *list = json_object_get(rows->page, "rows");
	long long total = json_integer_value(json_object_get(rows->page, "num_rows_total")),
		  here = (long long)json_array_size(list);
	if (total > here && !t->rq.contexts)
		return err_set(err, "%s holds %lld of %lld rows: join all pages in one list, or say how many contexts",
			t->rq.path, here, total);
	json_array_foreach(list, i, o)
	{
		json_t *row = json_object_get(o, "row");
		if (!is_asked(row, c))
			continue;
		if (json_array_size(json_object_get(o, "truncated_cells")))
			return err_set(err, "%s: row %zu has truncated cells: take /rows, not /first-rows", t->rq.path, i);
		rows->held = mem_grow(rows->held, (size_t)rows->n + 1, sizeof(*rows->held));
		rows->held[rows->n++] = row;
	}
	return 0;
}

static int lines_index(struct ruler_rows *rows, const struct task *t, const struct ruler_config *c, char err[ERR_LEN])
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t len;
	int number = 1, failed = 0;
	off_t offset = 0;
	rewind(rows->f);
	for (; !failed && (len = getline(&line, &cap, rows->f)) > 0; number++, offset += len) {
		json_error_t why;
		if (strspn(line, " \t\r\n") == (size_t)len)
			continue;
		json_t *row = json_loadb(line, (size_t)len, 0, &why);
		if (!row)
			failed = err_set(err, "%s:%d: not a JSON object on one line: %s", t->rq.path, number, why.text);
		else if (is_asked(row, c)) {
			rows->at = mem_grow(rows->at, (size_t)rows->n + 1, sizeof(*rows->at));
			rows->at[rows->n++] = offset;
		}
		json_decref(row);
	}
	free(line);
	return failed;
}

static int file_index(struct ruler_rows *rows, struct task *t, const struct ruler_config *c, char err[ERR_LEN])
{
	const char *path = t->rq.path;
	char magic[4] = "";
	json_error_t why;
	rows->f = fopen(path, "rb");
	if (!rows->f)
		return err_set(err, "%s: cannot open: %s", path, strerror(errno));
	if (fread(magic, 1, 4, rows->f) == 4 && !memcmp(magic, "PAR1", 4))
		return err_set(err,
			"%s is parquet, which is not read: take the same rows as JSON lines, or from the hub's /rows "
			"(`kvbench fetch dataset`)",
			path);
	rewind(rows->f);
	rows->page = json_loadf(rows->f, 0, &why); /* more than one line of JSON is no page */
	if (rows->page && json_is_array(json_object_get(rows->page, "rows")))
		return page_index(rows, t, c, err);
	json_decref(rows->page);
	rows->page = NULL;
	return lines_index(rows, t, c, err);
}

/* A new reference; NULL = error set. */
static json_t *row_load(const struct ruler_rows *rows, int i, const char *path, char err[ERR_LEN])
{
	char *line = NULL;
	size_t cap = 0;
	if (rows->page)
		return json_incref(rows->held[i]);
	ssize_t len = fseeko(rows->f, rows->at[i], SEEK_SET) ? -1 : getline(&line, &cap, rows->f);
	json_t *row = len > 0 ? json_loadb(line, (size_t)len, 0, NULL) : NULL;
	free(line);
	if (!row)
		err_set(err, "%s: row %d cannot be read again", path, i);
	return row;
}

/* ---- one row ---- */

static const char *text_of(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

static const char *last_of(const char *text, const char *end, const char *what)
{
	size_t n = strlen(what);
	for (const char *p = end - n; p >= text; p--)
		if (!memcmp(p, what, n))
			return p;
	return NULL;
}

/* Where the question begins in an `input`, or NULL. */
static const char *question_in(const char *input, bool qa)
{
	const char *end = input + strlen(input), *at;
	while (end > input && end[-1] == '\n')
		end--;
	at = last_of(input, end, qa ? "\n\n" : "\n");
	if (qa && at)
		at = last_of(input, at, "\n\n");
	return at ? at + (qa ? 2 : 1) : NULL;
}

/* Where old files' answer prefix begins behind the question mark of niah, and for others at `Answer:`. */
static const char *prefix_in(const char *question, const struct ruler_config *c)
{
	bool niah = c->family == &ruler_niah;
	const char *at = strstr(question, niah ? "? " : "Answer:");
	return !at ? question + strlen(question) : niah ? at + 2 : at;
}

static void prefix_add(struct ruler_draft *d, const char *prefix)
{
	d->prefix_at = d->text.len + (*prefix == ' ');
	strbuf_puts(&d->text, prefix);
}

static int input_cut(
	const struct ruler_config *c, struct ruler_draft *d, const char *input, const char *prefix, char err[ERR_LEN])
{
	const char *question = question_in(input, c->family == &ruler_qa);
	if (!question || strstr(input, "<|") || strstr(input, "[INST]"))
		return err_set(err, "the input is not one of %s prepared with RULER's template 'base' (without a chat template)",
			c->name);
	strbuf_puts(&d->text, input);
	d->question_at = (size_t)(question - input);
	if (prefix && *prefix)
		prefix_add(d, prefix);
	else
		d->prefix_at = (size_t)(prefix_in(question, c) - input);
	return 0;
}

static int row_text(const struct ruler_config *c, struct ruler_draft *d, const json_t *row, char err[ERR_LEN])
{
	const char *input = text_of(row, "input"), *context = text_of(row, "context"), *question = text_of(row, "question");
	const char *prefix = text_of(row, "answer_prefix");
	if (input)
		return input_cut(c, d, input, prefix, err);
	if (!context || !question)
		return err_set(err, "the row has neither 'input' (RULER) nor 'context' and 'question' (kvpress)");
	strbuf_puts(&d->text, context);
	d->question_at = d->text.len;
	strbuf_puts(&d->text, question);
	prefix_add(d, prefix ? prefix : "");
	return 0;
}

static int row_answers(struct ruler_draft *d, const json_t *row, char err[ERR_LEN])
{
	static const char *const keys[] = {"outputs", "answer", "answers"};
	const json_t *list = NULL;
	for (size_t i = 0; i < 3 && !list; i++)
		list = json_object_get(row, keys[i]);
	if (json_is_string(list))
		ruler_draft_answer(d, json_string_value(list));
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *answer = json_string_value(json_array_get(list, i));
		if (!answer)
			return err_set(err, "an answer is not a text");
		ruler_draft_answer(d, answer);
	}
	return d->n_answers ? 0 : err_set(err, "the row has no answers ('outputs', 'answer' or 'answers')");
}

/* A row longer than the wanted length is refused, never cut: RULER's answer may lie anywhere in it. */
static int row_length(const struct ruler *r, const struct ruler_draft *d, char err[ERR_LEN])
{
	if (!r->budget)
		return 0;
	int64_t tokens = ruler_draft_tokens(r, d, err);
	if (tokens < 0)
		return -1;
	if (tokens + d->new_tokens > r->budget)
		return err_set(err, "%lld tokens with its answer are more than the length of %lld",
			(long long)tokens + d->new_tokens, (long long)r->budget);
	return 0;
}

/* The user's limit, else the row's, else the family's. */
static int row_new_tokens(const struct ruler *r, struct ruler_draft *d, const json_t *row, char err[ERR_LEN])
{
	const json_t *room = json_object_get(row, "max_new_tokens");
	d->new_tokens = r->config->family->new_tokens;
	if (room && !json_is_null(room) && !task_new_tokens(room, &d->new_tokens))
		return err_set(err, "'max_new_tokens' is no number of tokens");
	if (r->rq->max_new_tokens)
		d->new_tokens = r->rq->max_new_tokens;
	return 0;
}

static int rows_row(struct ruler *r, struct ruler_draft *d, int index, char err[ERR_LEN])
{
	char why[ERR_LEN];
	json_t *row = row_load(r->rows, index, r->rq->path, err);
	if (!row)
		return -1;
	int failed = row_new_tokens(r, d, row, why) || row_text(r->config, d, row, why) || row_answers(d, row, why) ||
		     row_length(r, d, why);
	json_decref(row);
	return failed ? err_set(err, "%s: row %d: %.400s", r->rq->path, index, why) : 0;
}

static int rows_open(struct task *t, struct ruler *r, char err[ERR_LEN])
{
	struct ruler_rows *rows = r->rows = mem_new(1, sizeof(*rows));
	if (t->rq.release || !t->rq.path)
		return err_set(err, "%s: generator 'rows' takes the path of a file, and no release", r->config->name);
	if (file_index(rows, t, r->config, err) || sha256_file(t->rq.path, t->identity.data_sha256, err))
		return -1;
	if (!rows->n)
		return err_set(err, "%s: no rows of %s", t->rq.path, r->config->name);
	sha256_hex("", 0, t->identity.template_sha256);
	t->identity.variant = "rows";
	t->contexts = t->rq.contexts && t->rq.contexts < rows->n ? t->rq.contexts : rows->n;
	return 0;
}

const struct ruler_generator ruler_generator_rows = {"rows", "rows made elsewhere, from a file", rows_open, rows_row};
