/* baseline.c: `kvbench baseline set|move|list`: what nights are judged against. A baseline is a row of the history file and moves
 * by command only; its past stays readable. */
#include "harness/database.h"
#include "harness/history.h"
#include "harness/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int complain(const char *err, int code)
{
	fprintf(stderr, "kvbench baseline: %s\n", err);
	return code;
}

/* ---- set, move ---- */

static bool measured(const struct side *s)
{
	for (int i = 0; i < s->n_cells; i++) {
		if (s->cells[i].n_samples > 0)
			return true;
	}
	return false;
}

static int digest_of(const char *path, char digest[SHA_LEN], char err[ERR_LEN])
{
	struct store *s = NULL;
	int rc = store_open_read(&s, path, err) || store_digest(s, digest, err) ? -1 : 0;
	store_close(s);
	return rc;
}

static int store_baseline(const char *history, const struct baseline_row *row, char err[ERR_LEN])
{
	struct store *s = NULL;
	int code = database_open(&s, history, err);
	if (!code && store_put_baseline(s, row, err))
		code = EXIT_CELLS_FAILED;
	store_close(s);
	return code;
}

/* name is new (set) or there (move): version is the one to be written. */
static int write_baseline(const struct options *o, const char *history, int version)
{
	char err[ERR_LEN] = "", digest[SHA_LEN];
	struct side night = {0};
	int code = EXIT_CELLS_FAILED;
	if (side_load(&night, o->args[2], err) || digest_of(night.path, digest, err))
		goto cleanup;
	if (!measured(&night)) {
		err_set(err, "%s: nothing was measured in it: no baseline", o->args[2]);
		goto cleanup;
	}
	char *path = history_path_of(history, night.path);
	const struct side_run *run = side_newest_run(&night);
	struct baseline_row row = {
		o->args[1], path, night.run_id, digest, run ? run->row.commit : "", option_text(o, "why", ""), version, 0};
	code = store_baseline(history, &row, err);
	if (!code)
		printf("baseline %s, version %d: %s%s%s, commit %s\n", row.name, version, path, *night.run_id ? ":" : "",
			night.run_id, row.commit);
	free(path);
cleanup:
	side_free(&night);
	return code ? complain(err, code) : EXIT_DONE;
}

static int set_or_move(const struct options *o, const char *history, bool move)
{
	char err[ERR_LEN] = "";
	struct baseline b;
	if (move && !*option_text(o, "why", ""))
		die(EXIT_USAGE, "baseline move: --why TEXT says what moved it");
	if (history_baseline(&b, history, o->args[1], err))
		return complain(err, EXIT_CELLS_FAILED);
	int version = b.version;
	baseline_free(&b);
	if (!move && version)
		return err_set(err, "there is a baseline %s already (%s): `kvbench baseline move` moves it", o->args[1], history),
		       complain(err, EXIT_USAGE);
	if (move && !version)
		return err_set(err, "there is no baseline %s in %s: `kvbench baseline set` makes one", o->args[1], history),
		       complain(err, EXIT_USAGE);
	return write_baseline(o, history, version + 1);
}

/* ---- list ---- */

struct listing {
	const char *name; /* NULL = all names */
	bool paths;
	int n;
};

static int print_baseline(void *user, const struct baseline_row *b)
{
	struct listing *l = user;
	time_t t = (time_t)(b->set_unix_ms / 1000);
	struct tm tm;
	char when[32];
	if (l->name && strcmp(l->name, b->name) != 0)
		return 0;
	l->n++;
	if (l->paths) {
		printf("%s\n", b->database);
		return 0;
	}
	gmtime_r(&t, &tm);
	strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &tm);
	printf("%-16s version %-3d %s  %s%s%.8s  commit %s  %s\n", b->name, b->version, when, b->database, *b->run_id ? ":" : "",
		b->run_id, b->commit, b->why);
	return 0;
}

static int list(const struct options *o, const char *history)
{
	char err[ERR_LEN] = "";
	struct store *s = NULL;
	struct listing l = {o->n_args > 1 ? o->args[1] : NULL, option_has(o, "paths"), 0};
	if (!file_exists(history))
		return fprintf(stderr, "kvbench baseline: %s: no history yet, so no baseline\n", history), EXIT_DONE;
	int rc = store_open_read(&s, history, err) || store_baselines(s, print_baseline, &l, err) ? -1 : 0;
	store_close(s);
	if (!rc && l.n == 0)
		fprintf(stderr, "kvbench baseline: %s: no baseline%s%s\n", history, l.name ? " " : "", l.name ? l.name : "");
	return rc ? complain(err, EXIT_CELLS_FAILED) : EXIT_DONE;
}

static int run_baseline(const struct options *o)
{
	const char *what = o->args[0];
	bool lists = !strcmp(what, "list"), move = !strcmp(what, "move");
	if (!lists && !move && strcmp(what, "set") != 0)
		die(EXIT_USAGE, "baseline: set, move or list, not \"%s\"", what);
	if (lists ? o->n_args > 2 : o->n_args != 3)
		die(EXIT_USAGE, "usage: kvbench baseline set|move NAME DB[:RUN], or kvbench baseline list [NAME]");
	option_only(o, "paths", lists, "list");
	option_only(o, "why", !lists, "set and move");
	char *history = option_has(o, "history") ? text_copy(option_text(o, "history", NULL))
						 : history_beside(lists ? "results/history.db" : o->args[2]);
	int code = lists ? list(o, history) : set_or_move(o, history, move);
	free(history);
	return code;
}

static const struct option_def baseline_options[] = {
	{"history", "FILE",
		"where baselines are kept (default: history.db in the database's folder; of list: results/history.db)"},
	{"why", "TEXT", "kept beside it; a move must say why"},
	{"paths", NULL, "list: only the databases, one a line, all versions: what must not be deleted"},
};
const struct verb verb_baseline = {
	.name = "baseline",
	.args = "set|move|list",
	.title = "name the run that nights are judged against: set NAME DB[:RUN], move, list",
	.help = "`set` refuses a name that is there, `move` one that is not: a baseline moves by command only, and says when and "
		"why.",
	.options = baseline_options,
	.n_options = sizeof baseline_options / sizeof *baseline_options,
	.min_args = 1,
	.max_args = 3,
	.run = run_baseline,
};
