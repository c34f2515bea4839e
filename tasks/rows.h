/* rows.h: a file of JSON lines by row number; only where each line begins stays in memory (a row of qa_chn is 10 MB). */
#ifndef KVB_ROWS_H
#define KVB_ROWS_H

#include <jansson.h>

#include "harness/base/base.h"

struct rows;
/* Opens and reads the file once: counts the lines that are not blank and hashes all bytes. */
int rows_open(struct rows **out, const char *path, char sha256[SHA_LEN], char err[ERR_LEN]);
void rows_close(struct rows *r); /* NULL is fine */
int rows_count(const struct rows *r);
int rows_line(const struct rows *r, int i); /* of the file, from 1 as editors count */
/* Row i, read from the file: an object, the caller's to free. NULL = error set, with file and line. */
json_t *rows_read(struct rows *r, int i, char err[ERR_LEN]);
/* Error about row i: file, line, then what. Returns -1. */
int rows_error(const struct rows *r, int i, char err[ERR_LEN], const char *what);

#endif
