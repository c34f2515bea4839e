/* store_impl.h: what the files of the store share: the connection, a row as named fields, reading a SELECT's columns. Inside
 * results/store*.c only: the one place that sees SQLite. */
#ifndef KVB_STORE_IMPL_H
#define KVB_STORE_IMPL_H

#include "results/store.h"

#include <limits.h>
#include <math.h>
#include <sqlite3.h>

enum table {
	ENV,
	MODEL,
	METHOD,
	TASK,
	CELL,
	RUN,
	SAMPLE,
	TIMING,
	MEMORY,
	TIMING_FACT,
	TRAINING,
	TRAINING_STEP,
	BASELINE,
	NIGHT,
	NIGHT_FIGURE,
	ALERT,
	N_TABLES
};

struct store {
	sqlite3 *db;
	char *path, *lock_path;
	int lock_fd;                    /* -1 = none */
	bool batch;                     /* between store_begin and store_commit */
	sqlite3_stmt *insert[N_TABLES]; /* made at first use */
	sqlite3_stmt *has_sample, *count_timings, *put_score;
};

/* Fills err with the path, what was being done and the reason; -1. */
int store_fail(struct store *s, const char *doing, char err[ERR_LEN]);
int store_execute(struct store *s, const char *sql, const char *doing, char err[ERR_LEN]);
/* The single number a query gives; `none` when it gives none or fails. */
int64_t store_query_int(struct store *s, const char *sql, int64_t none);

/* One column of a row. type: 't' text (NULL = ""), 'n' text or NULL, 'i' integer, 'c' integer (negative = NULL), 'd' real (NAN =
 * NULL). */
struct field {
	const char *name;
	char type;
	const char *text;
	int64_t integer;
	double real;
};
#define TEXT(column, value)                                                                                                      \
	{                                                                                                                        \
		column, 't', .text = (value)                                                                                     \
	}
#define TEXT_OR_NULL(column, value)                                                                                              \
	{                                                                                                                        \
		column, 'n', .text = (value)                                                                                     \
	}
#define INTEGER(column, value)                                                                                                   \
	{                                                                                                                        \
		column, 'i', .integer = (int64_t)(value)                                                                         \
	}
#define COUNT_OR_NULL(column, value)                                                                                             \
	{                                                                                                                        \
		column, 'c', .integer = (int64_t)(value)                                                                         \
	}
#define REAL(column, value)                                                                                                      \
	{                                                                                                                        \
		column, 'd', .real = (value)                                                                                     \
	}
#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* The SHA-256 of {"column":value,...}, columns sorted: a row's identity. */
void store_identify(const struct field *f, int n, char id[SHA_LEN]);
/* Inserts a row; what a collision does is in store.c's table of tables. */
int store_put_row(struct store *s, enum table t, const struct field *f, int n, char err[ERR_LEN]);
/* 128 random bits as 32 hex digits. */
int store_random_id(char id[33], char err[ERR_LEN]);
/* Runs a query (one text parameter, or NULL) and hands each row to `each`, until that answers non-zero. */
int store_read_rows(struct store *s, const char *sql, const char *parameter, int (*each)(sqlite3_stmt *, void *), void *with,
	char err[ERR_LEN]);

/* Columns in the order of the SELECT: each call takes the next one. */
struct columns {
	sqlite3_stmt *st;
	int at;
};
static inline const char *next_text(struct columns *c)
{
	return (const char *)sqlite3_column_text(c->st, c->at++);
}
static inline int64_t next_int64(struct columns *c)
{
	return sqlite3_column_int64(c->st, c->at++);
}
/* A number that nothing of ours writes stays out of every range: cut to 32 bits it would be another one, perhaps a likely one. */
static inline int int_nearest(int64_t x)
{
	return x < INT_MIN ? INT_MIN : x > INT_MAX ? INT_MAX : (int)x;
}
static inline int next_int(struct columns *c)
{
	return int_nearest(next_int64(c));
}
static inline double next_real(struct columns *c)
{
	int i = c->at++;
	return sqlite3_column_type(c->st, i) == SQLITE_NULL ? NAN : sqlite3_column_double(c->st, i);
}

#endif
