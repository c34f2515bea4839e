/* synthetic.h: what the tests of the report share: databases of made-up rows, pages made of them, a checker of well-formedness. */
#ifndef KVB_TEST_SYNTHETIC_H
#define KVB_TEST_SYNTHETIC_H

#include "report/report.h"
#include "results/store.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

extern char folder[64], path[128], err[ERR_LEN]; /* of the running test: its folder, its database */
void check(int rc);                              /* aborts with err */
int make_folder(void **state);
int remove_folder(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

enum { LAYERS = 8, HEADS = 4 };

struct writer {
	struct store *s;
	char target[SHA_LEN], run[33];
	struct rng rng;
};
void writer_open(struct writer *w, const char *target); /* opens or goes on with `path`, begins a run */

struct cell_plan {
	const char *task, *method, *params, *protocol;
	bool binary;
	int length, ppm, planned;
	const char *task_params; /* NULL = none */
};
void put_cell(struct writer *w, const struct cell_plan *p, char id[SHA_LEN]);
/* Sample k of a cell with this score; what is not ok has no score. Heads keep unequal shares for kvzip. */
void put_sample(struct writer *w, const struct cell_plan *p, const char *cell, int k, const char *status, double score, const char *answer);
void put_times(struct writer *w, const char *cell, double total_ms, double score_share, int repetitions);
void fill_cell(struct writer *w, const struct cell_plan *p); /* samples by the method's made-up skill, times */
void fill_like_the_demo(const char *target);                 /* 552 cells of ten methods */

char *page(const char *title);          /* of `path`; caller frees */
char *export_as(const char *format);    /* its result table */
int count(const char *text, const char *what);
/* A small checker of well-formedness: every tag closed in order (void elements apart), attributes quoted, entities known, no bare
 * < or &. Style and script are raw text. Returns NULL or what is wrong. */
const char *malformed(const char *p);
void expect_well_formed(const char *html);

#endif
