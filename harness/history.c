/* history.c: see history.h. */
#include "harness/history.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- paths ---- */

static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? text_format("%.*s", (int)(slash - path + (slash == path)), path) : text_copy(".");
}

char *history_beside(const char *db)
{
	char *folder = folder_of(db), *path = text_format("%s/history.db", folder);
	free(folder);
	return path;
}

char *history_path_of(const char *history, const char *database)
{
	char here[PATH_MAX], there[PATH_MAX], *folder = folder_of(history), *path = NULL;
	if (realpath(folder, here) && realpath(database, there)) {
		size_t n = strlen(here);
		bool below = !strncmp(there, here, n) && there[n] == '/';
		path = text_copy(below ? there + n + 1 : there);
	}
	free(folder);
	return path ? path : text_copy(database);
}

static char *path_from(const char *history, const char *stored)
{
	if (*stored == '/')
		return text_copy(stored);
	char *folder = folder_of(history), *path = text_format("%s/%s", folder, stored);
	free(folder);
	return path;
}

/* ---- baselines ---- */

struct finding {
	struct baseline *b;
	const char *history, *name;
};

static int take_baseline(void *user, const struct baseline_row *r)
{
	struct finding *f = user;
	if (strcmp(r->name, f->name) != 0)
		return 0;
	baseline_free(f->b); /* versions come in order: the last one holds */
	*f->b = (struct baseline){text_copy(r->name), path_from(f->history, r->database), text_copy(r->run_id),
		text_copy(r->digest), text_copy(r->commit), text_copy(r->why), r->version, r->set_unix_ms};
	return 0;
}

int history_baseline(struct baseline *b, const char *history, const char *name, char err[ERR_LEN])
{
	struct store *s = NULL;
	struct finding f = {b, history, name};
	*b = (struct baseline){0};
	if (!file_exists(history))
		return 0;
	int rc = store_open_read(&s, history, err) || store_baselines(s, take_baseline, &f, err) ? -1 : 0;
	store_close(s);
	return rc;
}

void baseline_free(struct baseline *b)
{
	free(b->name);
	free(b->database);
	free(b->run_id);
	free(b->digest);
	free(b->commit);
	free(b->why);
	*b = (struct baseline){0};
}

/* ---- steps ---- */

struct series {
	struct gate *g;
	const char *machine;
	int recent;
	char cell[SHA_LEN], figure[32], label[512];
	double *x;
	struct { /* of each value */
		int64_t unix_ms;
		char commit[64];
	} * night;
	int n;
};

static void day_text(char buf[16], int64_t ms)
{
	time_t t = (time_t)(ms / 1000);
	struct tm tm;
	gmtime_r(&t, &tm);
	strftime(buf, 16, "%Y-%m-%d", &tm);
}

/* A series has ended: says its last step, if that is recent. */
static void end_series(struct series *s)
{
	struct step *steps = mem_new((size_t)s->n + 1, sizeof *steps);
	int levels = stats_steps(s->x, s->n, steps);
	if (levels > 1 && steps[levels - 1].start >= s->n - s->recent) {
		int at = steps[levels - 1].start;
		char day[16], text[320];
		day_text(day, s->night[at].unix_ms);
		snprintf(text, sizeof text, "%s: a step of the history on %s: %.4g -> %.4g (commit %s before, %s since)",
			s->figure, day, steps[levels - 2].level, steps[levels - 1].level, s->night[at - 1].commit,
			s->night[at].commit);
		gate_add(s->g, "notice", "step", s->cell, s->label, text);
	}
	free(steps);
	s->n = 0;
}

static int take_figure(void *user, const struct night_row *n, const struct figure_row *f)
{
	struct series *s = user;
	if (s->n > 0 && (strcmp(s->cell, f->cell_id) != 0 || strcmp(s->figure, f->figure) != 0))
		end_series(s);
	if (!strcmp(f->figure, "ttft_ns") && strcmp(n->machine, s->machine) != 0)
		return 0;
	snprintf(s->cell, sizeof s->cell, "%s", f->cell_id);
	snprintf(s->figure, sizeof s->figure, "%s", f->figure);
	snprintf(s->label, sizeof s->label, "%s", f->label);
	s->x = mem_grow(s->x, (size_t)s->n + 1, sizeof *s->x);
	s->night = mem_grow(s->night, (size_t)s->n + 1, sizeof *s->night);
	s->night[s->n].unix_ms = n->started_unix_ms;
	snprintf(s->night[s->n].commit, sizeof s->night[s->n].commit, "%s", n->commit);
	s->x[s->n++] = f->value;
	return 0;
}

int history_steps(struct gate *g, struct store *history, const char *machine, int recent, char err[ERR_LEN])
{
	struct series s = {.g = g, .machine = machine, .recent = recent};
	int rc = store_night_figures(history, take_figure, &s, err);
	if (rc == 0 && s.n > 0)
		end_series(&s);
	free(s.x);
	free(s.night);
	return rc;
}

/* ---- commits ---- */

/* The revision in what `git describe` said: "v1-3-gc0ffee" is c0ffee. Fresh; NULL when it is no plain name. */
static char *revision_of(const char *commit)
{
	const char *g = strstr(commit, "-g"), *start = g ? g + 2 : commit;
	if (!*start || *start == '-' || start[strspn(start, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-")])
		return NULL;
	return text_copy(start);
}

static void list_commits(struct strbuf *out, const char *old, const char *new)
{
	enum { LISTED = 10 };
	char line[256];
	char *command = text_format("git log --oneline --no-decorate %s..%s 2>/dev/null", old, new);
	FILE *git = popen(command, "r");
	int n = 0;
	while (git && fgets(line, sizeof line, git)) {
		line[strcspn(line, "\n")] = 0;
		if (n++ < LISTED)
			strbuf_printf(out, "%s%s", n > 1 ? "; " : ": ", line);
	}
	if (n > LISTED)
		strbuf_printf(out, "; and %d more", n - LISTED);
	if (git)
		pclose(git);
	free(command);
}

char *commits_between(const char *old, const char *new)
{
	struct strbuf out = {0};
	if (!strcmp(old, new)) {
		strbuf_printf(&out, "none (%s both times)", *old ? old : "unknown");
		return strbuf_take(&out);
	}
	char *from = revision_of(old), *to = revision_of(new);
	strbuf_printf(&out, "%s..%s", *old ? old : "unknown", *new ? new : "unknown");
	if (from && to)
		list_commits(&out, from, to);
	free(from);
	free(to);
	return strbuf_take(&out);
}
