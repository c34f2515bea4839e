/* history.c: see history.h. */
#include "report/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int add_night(void *user, const struct night_row *r)
{
	struct history *h = user;
	h->nights = mem_grow(h->nights, (size_t)h->n_nights + 1, sizeof *h->nights);
	h->nights[h->n_nights++] = (struct night){.id = text_copy(r->night_id),
		.commit = text_copy(r->commit),
		.machine = text_copy(r->machine),
		.baseline = text_copy(r->baseline),
		.baseline_version = r->baseline_version,
		.exit_code = r->exit_code,
		.started_unix_ms = r->started_unix_ms};
	return 0;
}

static void night_free(struct night *n)
{
	free(n->id);
	free(n->commit);
	free(n->machine);
	free(n->baseline);
}

static void keep_newest(struct history *h, int most)
{
	int drop = h->n_nights > most ? h->n_nights - most : 0;
	if (!drop)
		return; /* perhaps there is none: a baseline was set and no night gated */
	for (int i = 0; i < drop; i++)
		night_free(&h->nights[i]);
	h->n_nights -= drop;
	memmove(h->nights, h->nights + drop, (size_t)h->n_nights * sizeof *h->nights);
}

struct reading {
	struct history *h;
	int night;
};

static int add_alert(void *user, const struct alert_row *a)
{
	struct reading *r = user;
	struct history *h = r->h;
	h->alerts = mem_grow(h->alerts, (size_t)h->n_alerts + 1, sizeof *h->alerts);
	h->alerts[h->n_alerts++] = (struct night_alert){.night = r->night,
		.level = text_copy(a->level),
		.kind = text_copy(a->kind),
		.label = text_copy(a->label),
		.message = text_copy(a->message),
		.old = a->old,
		.new_ = a->new_,
		.lo = a->lo,
		.hi = a->hi,
		.n = a->n};
	bool notice = strcmp(a->level, "notice") == 0;
	h->nights[r->night].notices += notice;
	h->nights[r->night].regressions += !notice;
	return 0;
}

static int find_night(const struct history *h, const char *id)
{
	for (int i = h->n_nights - 1; i >= 0; i--)
		if (strcmp(h->nights[i].id, id) == 0)
			return i;
	return -1;
}

/* Rows of one series follow each other. */
static int add_figure(void *user, const struct night_row *n, const struct figure_row *f)
{
	struct history *h = user;
	int night = find_night(h, n->night_id);
	if (night < 0)
		return 0;
	bool time = strcmp(f->figure, "ttft_ns") == 0;
	if (time && strcmp(n->machine, h->nights[h->n_nights - 1].machine) != 0)
		return 0;
	struct series *s = h->n_series ? &h->series[h->n_series - 1] : NULL;
	if (!s || strcmp(s->cell_id, f->cell_id) != 0 || strcmp(s->figure, f->figure) != 0) {
		h->series = mem_grow(h->series, (size_t)h->n_series + 1, sizeof *h->series);
		s = &h->series[h->n_series++];
		*s = (struct series){
			.cell_id = text_copy(f->cell_id), .figure = text_copy(f->figure), .label = text_copy(f->label)};
	}
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 16;
		s->night = mem_grow(s->night, (size_t)s->cap, sizeof *s->night);
		s->value = mem_grow(s->value, (size_t)s->cap, sizeof *s->value);
	}
	s->night[s->n] = night;
	s->value[s->n++] = f->value;
	return 0;
}

/* A score that falls is worse, a time that grows is. */
static void find_steps(struct series *s)
{
	s->steps = mem_new((size_t)s->n + 1, sizeof *s->steps);
	s->n_steps = stats_steps(s->value, s->n, s->steps);
	if (s->n_steps < 2)
		return;
	double from = s->steps[s->n_steps - 2].level, to = s->steps[s->n_steps - 1].level;
	bool score = strcmp(s->figure, "score") == 0;
	s->change = score ? to - from : to / from - 1;
	s->worse = score ? to < from : to > from;
}

int history_load(struct history *h, struct store *s, int most, char err[ERR_LEN])
{
	int rc = store_nights(s, add_night, h, err);
	keep_newest(h, most);
	for (int i = 0; i < h->n_nights && rc == 0; i++) {
		struct reading r = {h, i};
		rc = store_alerts(s, h->nights[i].id, add_alert, &r, err);
	}
	if (rc == 0 && h->n_nights > 0)
		rc = store_night_figures(s, add_figure, h, err);
	for (int i = 0; i < h->n_series; i++)
		find_steps(&h->series[i]);
	return rc;
}

void history_free(struct history *h)
{
	for (int i = 0; i < h->n_nights; i++)
		night_free(&h->nights[i]);
	for (int i = 0; i < h->n_alerts; i++) {
		free(h->alerts[i].level);
		free(h->alerts[i].kind);
		free(h->alerts[i].label);
		free(h->alerts[i].message);
	}
	for (int i = 0; i < h->n_series; i++) {
		free(h->series[i].cell_id);
		free(h->series[i].figure);
		free(h->series[i].label);
		free(h->series[i].night);
		free(h->series[i].value);
		free(h->series[i].steps);
	}
	free(h->nights);
	free(h->alerts);
	free(h->series);
	*h = (struct history){0};
}

const char *night_date(char buf[64], int64_t unix_ms)
{
	time_t t = (time_t)(unix_ms / 1000);
	struct tm tm;
	gmtime_r(&t, &tm);
	strftime(buf, 64, "%Y-%m-%d %H:%M", &tm);
	return buf;
}

const char *night_outcome(const struct night *n)
{
	return n->exit_code == 0   ? "within bounds"
	       : n->exit_code == 3 ? "regression"
	       : n->exit_code == 4 ? "incomplete"
				   : "failed";
}
