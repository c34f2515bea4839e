/* averages.c: see averages.h. */
#include "report/averages.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/longbench/longbench.h"

enum { MOST_TASKS = 32, MOST_MEANS = LONGBENCH_AVERAGES };

struct mean {
	const char *label;
	double score; /* NAN = a task is missing */
};

static int longbench_means(const double *scores, int n, struct mean out[MOST_MEANS])
{
	struct longbench_average a[LONGBENCH_AVERAGES];
	longbench_averages(scores, a);
	for (int i = 0; i < LONGBENCH_AVERAGES; i++)
		out[i] = (struct mean){a[i].label, a[i].score};
	(void)n;
	return LONGBENCH_AVERAGES;
}

static int plain_mean(const double *scores, int n, struct mean out[MOST_MEANS])
{
	out[0] = (struct mean){"", 0};
	for (int i = 0; i < n; i++)
		out[0].score += scores[i] / n;
	return 1;
}

/* The first whose prefix a task has. A suite's tasks: those of the table with that prefix, in its order. */
static const struct suite {
	const char *name, *prefix;
	int (*means)(const double *scores, int n, struct mean out[MOST_MEANS]);
} suites[] = {
	{"LongBench-E", "longbench-e-", plain_mean},
	{"LongBench v2", "longbench-v2", NULL}, /* one task */
	{"LongBench", "longbench-", longbench_means},
	{"SCBench", "scbench-", plain_mean},
	{"RULER", "ruler-", plain_mean},
};

static const struct suite *suite_of(const char *task)
{
	for (size_t i = 0; i < sizeof suites / sizeof *suites; i++)
		if (!strncmp(task, suites[i].prefix, strlen(suites[i].prefix)))
			return suites[i].means ? &suites[i] : NULL;
	return NULL;
}

static int suite_tasks(const struct suite *s, const char *names[MOST_TASKS])
{
	int n = 0;
	for (size_t i = 0; i < task_def_count() && n < MOST_TASKS; i++)
		if (suite_of(task_def_at(i)->name) == s)
			names[n++] = task_def_at(i)->name;
	return n;
}

/* Do two panels differ in the task alone? What stands behind a comma of the variant is a remark on one task. */
static bool together(const struct cell_row *a, const struct cell_row *b)
{
	size_t n = strcspn(a->task_variant, ",");
	return suite_of(a->task) == suite_of(b->task) && a->context_tokens == b->context_tokens && data_same_setting(a, b) &&
	       !strcmp(a->task_params, b->task_params) && n == strcspn(b->task_variant, ",") &&
	       !strncmp(a->task_variant, b->task_variant, n);
}

/* The task's score beside panel p; NAN = not there, or not whole. Two such panels: none of them (neither is the one meant). */
static double task_score(const struct data *d, int p, const char *task, int variant, int ppm)
{
	double score = NAN;
	int found = 0;
	for (int i = 0; i < d->n_panels; i++) {
		if (strcmp(d->panels[i].row->task, task) || !together(d->panels[p].row, d->panels[i].row))
			continue;
		const struct cell *c = data_cell(d, i, variant, ppm);
		if (!c)
			continue;
		found++;
		score = c->row.ok && c->row.ok >= c->row.planned ? c->score.mean : NAN;
	}
	return found == 1 ? score : NAN;
}

static void title(struct average *a, const struct suite *s, const char *label, int n)
{
	const struct cell_row *r = a->row;
	char mean[64], length[48] = "";
	snprintf(mean, sizeof mean, "mean of %d tasks", n);
	if (r->context_tokens)
		snprintf(length, sizeof length, " · %lld tokens", (long long)r->context_tokens);
	snprintf(a->title, sizeof a->title, "%s: %s%s%s%.20s%s%.*s", s->name, *label ? label : mean, length,
		strcmp(r->mode, "single") ? " · " : "", strcmp(r->mode, "single") ? r->mode : "", *r->task_variant ? " · " : "",
		(int)strcspn(r->task_variant, ","), r->task_variant);
}

static void add(struct averages *out, struct average *a, const struct data *d)
{
	bool any = false;
	for (int i = 0; i < d->n_variants * d->n_ppm; i++)
		any = any || !isnan(a->score[i]);
	if (!any) {
		free(a->score);
		return;
	}
	out->v = mem_grow(out->v, (size_t)out->n + 1, sizeof *out->v);
	out->v[out->n++] = *a;
}

/* All averages of the suite whose panels stand together with p. */
static void make_suite(struct averages *out, const struct data *d, int p)
{
	const struct suite *s = suite_of(d->panels[p].row->task);
	const char *names[MOST_TASKS];
	struct mean means[MOST_MEANS];
	struct average a[MOST_MEANS];
	int n = suite_tasks(s, names), n_means = 0;
	double scores[MOST_TASKS];
	for (int k = 0; k < d->n_variants * d->n_ppm; k++) {
		for (int t = 0; t < n; t++)
			scores[t] = task_score(d, p, names[t], k / d->n_ppm, d->ppm[k % d->n_ppm]);
		n_means = s->means(scores, n, means);
		for (int i = 0; i < n_means; i++) {
			if (!k)
				a[i] = (struct average){.row = d->panels[p].row,
					.score = mem_new((size_t)(d->n_variants * d->n_ppm), sizeof(double))};
			if (!k)
				title(&a[i], s, means[i].label, n);
			a[i].score[k] = means[i].score;
		}
	}
	for (int i = 0; i < n_means; i++)
		add(out, &a[i], d);
}

void averages_make(struct averages *a, const struct data *d)
{
	*a = (struct averages){0};
	for (int p = 0; p < d->n_panels; p++) {
		bool done = !suite_of(d->panels[p].row->task);
		for (int i = 0; i < p && !done; i++)
			done = together(d->panels[i].row, d->panels[p].row);
		if (!done)
			make_suite(a, d, p);
	}
}

void averages_free(struct averages *a)
{
	for (int i = 0; i < a->n; i++)
		free(a->v[i].score);
	free(a->v);
	*a = (struct averages){0};
}
