/* status.c: `kvbench status DB`: how far the groups of a database are; reads only, also while a run writes. */
#include "harness/verbs.h"
#include "results/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line { /* one group: target x precision x task and its variant x length x mode x protocol */
	char name[256];
	long long cells, cells_done, planned, answered, failed, oom, empty, timed;
};
struct lines {
	struct line *v;
	int n;
};

static struct line *line_of(struct lines *l, const struct cell_row *c)
{
	char name[256], length[32] = "";
	if (c->context_tokens)
		snprintf(length, sizeof length, " %lld", (long long)c->context_tokens);
	bool single = !strcmp(c->mode, "single");
	snprintf(name, sizeof name, "%s %s %s%s%s%s%s%s %s", c->target, c->precision, c->task, *c->task_variant ? " " : "",
		c->task_variant, length, single ? "" : " ", single ? "" : c->mode, c->protocol);
	for (int i = l->n; i-- > 0;) {
		if (!strcmp(l->v[i].name, name))
			return &l->v[i];
	}
	l->v = mem_grow(l->v, (size_t)l->n + 1, sizeof *l->v);
	struct line *new = &l->v[l->n++];
	*new = (struct line){0};
	memcpy(new->name, name, sizeof name);
	return new;
}

static void line_add(struct line *x, const struct cell_row *c)
{
	int answered = c->ok + c->not_applicable;
	x->cells++;
	x->cells_done += answered >= c->planned;
	x->planned += c->planned;
	x->answered += answered;
	x->failed += c->failed;
	x->oom += c->oom;
	x->empty += c->empty;
	x->timed += c->timing_repetitions > 0;
}

static int add_cell(void *user, const struct cell_row *c)
{
	line_add(line_of(user, c), c);
	return 0;
}

static int print_run(void *user, const char *group, const char *name, const char *value)
{
	(void)user;
	if (!strcmp(group, "run"))
		printf("%s %s\n", name, value);
	return 0;
}

static void print_line(const struct line *x)
{
	printf("%-52s %5lld/%-5lld %7lld/%-7lld %6lld %6lld %6lld %6lld\n", x->name, x->cells_done, x->cells, x->answered, x->planned,
		x->failed, x->oom, x->empty, x->timed);
}

static void print_lines(const struct lines *l)
{
	struct line all = {.name = "all"};
	printf("%-52s %11s %15s %6s %6s %6s %6s\n", "group", "cells done", "samples", "failed", "oom", "empty", "timed");
	for (int i = 0; i < l->n; i++) {
		const struct line *x = &l->v[i];
		print_line(x);
		long long *sums[] = {
			&all.cells, &all.cells_done, &all.planned, &all.answered, &all.failed, &all.oom, &all.empty, &all.timed};
		const long long parts[] = {x->cells, x->cells_done, x->planned, x->answered, x->failed, x->oom, x->empty, x->timed};
		for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
			*sums[k] += parts[k];
	}
	print_line(&all);
}

static int run_status(const struct options *o)
{
	char err[ERR_LEN];
	struct store *s = NULL;
	struct lines l = {0};
	int rc = store_open_read(&s, o->args[0], err) || store_settings(s, print_run, NULL, err) ||
		 store_cells(s, add_cell, &l, err);
	if (rc)
		fprintf(stderr, "kvbench status: %s\n", err);
	else
		print_lines(&l);
	free(l.v);
	store_close(s);
	return rc ? EXIT_CELLS_FAILED : EXIT_DONE;
}

const struct verb verb_status = {
	.name = "status",
	.args = "DB",
	.title = "how far a database is, also while a run writes to it",
	.min_args = 1,
	.max_args = 1,
	.run = run_status,
};
