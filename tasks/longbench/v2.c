/* v2.c: LongBench v2 as a task: 503 rows in one JSON array (about 465 MB), never held whole.
 *
 * Opening reads the file once, block by block: finds where each row begins and ends and hashes the bytes. A row is read and
 * parsed when it is asked for. The prompt is upstream's 0shot.txt, values stripped and put in in upstream's order; upstream
 * samples at temperature 0.1, we decode greedily. The two calls of its chain-of-thought variant are not here. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/longbench/longbench.h"
#include "tasks/metrics/metrics.h"

enum { V2_VERSION = 2, V2_NEW_TOKENS = 128, BLOCK_BYTES = 1 << 20, ROW_BYTES_MAX = 1 << 30 };

struct v2_row {
	off_t from;
	size_t len;
};

struct v2 {
	FILE *f;
	struct v2_row *rows;
	int n_rows;
	char *template;
};

/* ---- where the rows are ---- */

/* What the scanner knows between two blocks. */
struct scan {
	off_t at, from; /* from: where the present row began */
	int depth;
	bool in_text, escaped;
};

static void row_found(struct v2 *s, const struct scan *c)
{
	if (s->n_rows % 64 == 0)
		s->rows = mem_grow(s->rows, (size_t)s->n_rows + 64, sizeof(*s->rows));
	s->rows[s->n_rows++] = (struct v2_row){c->from, (size_t)(c->at + 1 - c->from)};
}

/* Rows are what is between braces at depth 1, inside the outer list. */
static void scan_block(struct v2 *s, struct scan *c, const char *block, size_t len)
{
	for (size_t i = 0; i < len; i++, c->at++) {
		char ch = block[i];
		if (c->in_text) {
			c->in_text = c->escaped || ch != '"';
			c->escaped = !c->escaped && ch == '\\';
		} else if (ch == '"') {
			c->in_text = true;
		} else if (ch == '{' || ch == '[') {
			if (c->depth++ == 1)
				c->from = c->at;
		} else if (ch == '}' || ch == ']') {
			if (--c->depth == 1)
				row_found(s, c);
		}
	}
}

static int index_rows(struct v2 *s, const char *path, char sha[SHA_LEN], char err[ERR_LEN])
{
	char *block = malloc(BLOCK_BYTES);
	struct scan c = {0};
	struct sha256 *hash = sha256_new();
	size_t n;
	while (block && (n = fread(block, 1, BLOCK_BYTES, s->f)) > 0) {
		sha256_add(hash, block, n);
		scan_block(s, &c, block, n);
	}
	sha256_end(hash, sha);
	bool read = block && !ferror(s->f);
	free(block);
	if (!read)
		return err_set(err, "%s: cannot read: %s", path, strerror(errno));
	if (c.depth || c.in_text || !s->n_rows)
		return err_set(err, "%s: not one whole JSON list of rows", path);
	return 0;
}

static json_t *row_load(const struct task *t, int i, char err[ERR_LEN])
{
	const struct v2 *s = t->state;
	const struct v2_row *r = &s->rows[i];
	char *text = r->len < ROW_BYTES_MAX ? malloc(r->len) : NULL;
	json_error_t why;
	json_t *row = NULL;
	if (!text)
		err_set(err, "%s: row %d: no memory for %zu bytes", t->rq.path, i, r->len);
	else if (fseeko(s->f, r->from, SEEK_SET) || fread(text, 1, r->len, s->f) != r->len)
		err_set(err, "%s: row %d: cannot read: %s", t->rq.path, i, strerror(errno));
	else if (!(row = json_loadb(text, r->len, JSON_REJECT_DUPLICATES, &why)))
		err_set(err, "%s: row %d: %s", t->rq.path, i, why.text);
	free(text);
	return row;
}

/* ---- the prompt ---- */

static const struct {
	const char *mark, *field;
} marks[] = {{"$Q$", "question"}, {"$C_A$", "choice_A"}, {"$C_B$", "choice_B"}, {"$C_C$", "choice_C"}, {"$C_D$", "choice_D"}};

/* str.replace: every mark gives way to the stripped value. Takes text over. */
static char *replaced(char *text, const char *mark, const char *value)
{
	size_t n = text_strip(&value);
	struct strbuf b = {0};
	const char *rest = text;
	if (!strstr(text, mark))
		return text;
	for (const char *p; (p = strstr(rest, mark)); rest = p + strlen(mark)) {
		strbuf_add(&b, rest, (size_t)(p - rest));
		strbuf_add(&b, value, n);
	}
	strbuf_puts(&b, rest);
	free(text);
	return strbuf_take(&b);
}

/* Marks in the document itself are replaced too: upstream replaces one after another in the whole prompt. */
static int prompt_make(struct longbench_prompt *p, const char *template, const json_t *row, char err[ERR_LEN])
{
	const char *at = strstr(template, "$DOC$"), *doc = json_string_value(json_object_get(row, "context"));
	if (!at || !doc)
		return err_set(err, at ? "'context' is no text" : "the template has no $DOC$");
	size_t n = text_strip(&doc);
	struct strbuf b = {0};
	strbuf_add(&b, template, (size_t)(at - template));
	strbuf_add(&b, doc, n);
	char *context = strbuf_take(&b), *question = text_copy(at + strlen("$DOC$"));
	const char *missing = NULL;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *value = json_string_value(json_object_get(row, marks[i].field));
		missing = value ? missing : marks[i].field;
		context = replaced(context, marks[i].mark, value ? value : "");
		question = replaced(question, marks[i].mark, value ? value : "");
	}
	p->split = strlen(context);
	strbuf_puts(&b, context);
	free(context);
	strbuf_puts(&b, question);
	free(question);
	p->text = strbuf_take(&b);
	return missing ? err_set(err, "'%s' is no text", missing) : 0;
}

/* "easy short" and so on; NULL = not one of them. */
static const char *group_of(const json_t *row)
{
	static const char *const groups[] = {"easy short", "easy medium", "easy long", "hard short", "hard medium", "hard long"};
	const char *difficulty = json_string_value(json_object_get(row, "difficulty"));
	const char *length = json_string_value(json_object_get(row, "length"));
	for (size_t i = 0; difficulty && length && i < sizeof(groups) / sizeof(groups[0]); i++)
		if (!strncmp(groups[i], difficulty, 4) && !strcmp(groups[i] + 5, length))
			return groups[i];
	return NULL;
}

static int row_context(const json_t *row, const struct task *t, struct task_context *c, char err[ERR_LEN])
{
	const struct v2 *s = t->state;
	const char *answer = json_string_value(json_object_get(row, "answer"));
	struct longbench_prompt p = {.joined = true};
	if (!answer || !*answer)
		return err_set(err, "'answer' is no letter");
	if (prompt_make(&p, s->template, row, err) || longbench_cut(&p, &t->rq, c, err)) {
		free(p.text);
		return -1;
	}
	struct task_question *q = longbench_prompt_give(&p, c);
	task_answer_add(q, answer);
	q->metric = t->identity.metric;
	q->max_new_tokens = t->rq.max_new_tokens ? t->rq.max_new_tokens : V2_NEW_TOKENS;
	c->chat = true;
	c->group = group_of(row);
	return 0;
}

int longbench_v2_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN])
{
	char why[ERR_LEN];
	json_t *row = row_load(t, i, err);
	if (!row)
		return -1;
	int failed = row_context(row, t, out, why);
	json_decref(row);
	return failed ? err_set(err, "%s: row %d: %.300s", t->rq.path, i, why) : 0;
}

/* ---- opening ---- */

static int template_read(struct task *t, char err[ERR_LEN])
{
	struct v2 *s = t->state;
	size_t len;
	char *path = longbench_file(&t->rq, "0shot.txt", err);
	int failed = !path || file_read(path, &s->template, &len, err);
	if (!failed)
		sha256_hex(s->template, len, t->identity.template_sha256);
	free(path);
	return failed ? -1 : 0;
}

int longbench_v2_open(struct task *t, char err[ERR_LEN])
{
	struct v2 *s = t->state = mem_new(1, sizeof(*s));
	if (!t->rq.path)
		return err_set(err, "task longbench-v2 needs the path of data.json or of its folder");
	if (longbench_truncate_check(&t->rq, err) || template_read(t, err))
		return -1;
	char *inside = text_format("%s/data.json", t->rq.path);
	const char *path = file_exists(inside) ? inside : t->rq.path;
	s->f = fopen(path, "rb");
	int failed = s->f ? index_rows(s, path, t->identity.data_sha256, err)
			  : err_set(err, "%s: cannot open: %s", path, strerror(errno));
	free(inside);
	t->contexts = t->rq.contexts && t->rq.contexts < s->n_rows ? t->rq.contexts : s->n_rows;
	t->identity.metric = "longbench_v2";
	t->identity.version = V2_VERSION;
	return failed;
}

void longbench_v2_close(struct task *t)
{
	struct v2 *s = t->state;
	if (!s)
		return;
	if (s->f)
		fclose(s->f);
	free(s->rows);
	free(s->template);
	free(s);
}
