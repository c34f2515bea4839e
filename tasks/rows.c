/* rows.c: JSON lines by number (rows.h). */
#include "tasks/rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct rows {
	char *path;
	FILE *f;
	struct row_at {
		off_t offset;
		int line; /* from 1 */
	} * v;
	int n;
};

static int index_lines(struct rows *r, char sha256[SHA_LEN], char err[ERR_LEN])
{
	char *line = NULL;
	size_t cap = 0, cap_rows = 0;
	off_t offset = 0;
	struct sha256 *hash = sha256_new();
	ssize_t n;
	for (int number = 1; (n = getline(&line, &cap, r->f)) > 0; number++, offset += n) {
		sha256_add(hash, line, (size_t)n);
		if (strspn(line, " \t\r\n") == (size_t)n)
			continue;
		if ((size_t)r->n == cap_rows)
			r->v = mem_grow(r->v, cap_rows = cap_rows * 2 + 64, sizeof(*r->v));
		r->v[r->n++] = (struct row_at){offset, number};
	}
	free(line);
	sha256_end(hash, sha256);
	if (ferror(r->f))
		return err_set(err, "%s: cannot read: %s", r->path, strerror(errno));
	return r->n ? 0 : err_set(err, "%s: no rows", r->path);
}

int rows_open(struct rows **out, const char *path, char sha256[SHA_LEN], char err[ERR_LEN])
{
	struct rows *r = mem_new(1, sizeof(*r));
	r->path = text_copy(path);
	r->f = fopen(path, "rb");
	if (!r->f)
		err_set(err, "%s: cannot open: %s", path, strerror(errno));
	if (!r->f || index_lines(r, sha256, err)) {
		rows_close(r);
		return -1;
	}
	*out = r;
	return 0;
}

void rows_close(struct rows *r)
{
	if (!r)
		return;
	if (r->f)
		fclose(r->f);
	free(r->v);
	free(r->path);
	free(r);
}

int rows_count(const struct rows *r)
{
	return r->n;
}

int rows_line(const struct rows *r, int i)
{
	return r->v[i].line;
}

int rows_error(const struct rows *r, int i, char err[ERR_LEN], const char *what)
{
	return err_set(err, "%s:%d: %s", r->path, r->v[i].line, what);
}

json_t *rows_read(struct rows *r, int i, char err[ERR_LEN])
{
	char *line = NULL;
	size_t cap = 0;
	json_error_t why;
	ssize_t n = fseeko(r->f, r->v[i].offset, SEEK_SET) ? -1 : getline(&line, &cap, r->f);
	json_t *row = n > 0 ? json_loadb(line, (size_t)n, JSON_REJECT_DUPLICATES, &why) : NULL;
	free(line);
	if (row && json_is_object(row))
		return row;
	if (n <= 0 || row)
		rows_error(r, i, err, row ? "a row must be a JSON object" : "cannot read the row any more");
	else
		err_set(err, "%s:%d: not a JSON object on one line: %s (column %d)", r->path, r->v[i].line, why.text, why.column);
	json_decref(row);
	return NULL;
}
