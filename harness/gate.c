/* gate.c: `kvbench gate DB --baseline NAME`: judges a night and says so by its exit code. results/gate.c has the judgement; here
 * the baseline is found, each alert gets the commits between, the flipped samples and the command that reproduces it, and the
 * night is recorded where that is asked for. */
#include "harness/database.h"
#include "harness/history.h"
#include "harness/json_bytes.h"
#include "harness/verbs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- the command that reproduces an alert ---- */

/* 'text' for a shell. */
static void quote(struct strbuf *out, const char *text)
{
	if (*text && !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,@%+-")]) {
		strbuf_puts(out, text);
		return;
	}
	strbuf_puts(out, "'");
	for (; *text; text++)
		strbuf_puts(out, *text == '\'' ? "'\\''" : (char[]){*text, 0});
	strbuf_puts(out, "'");
}

/* The entries of the plan's list under `key` that are called `name` (a text, or an object with `inner`), as JSON; each as an
 * object with `lengths` set where a length is given. */
static json_t *entries_named(const json_t *plan, const char *key, const char *inner, const char *name, int64_t length)
{
	json_t *found = json_array(), *entry;
	const json_t *list = json_object_get(plan, key);
	size_t i;
	json_array_foreach(list, i, entry)
	{
		const char *is =
			json_is_string(entry) ? json_string_value(entry) : json_string_value(json_object_get(entry, inner));
		if (!is || strcmp(is, name) != 0)
			continue;
		json_t *one = json_is_string(entry) ? json_pack("{s:s}", inner, name) : json_deep_copy(entry);
		if (length > 0)
			json_object_set_new(one, "lengths", json_integer(length));
		json_array_append_new(found, one);
	}
	return found;
}

static void set_option(struct strbuf *out, const char *key, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)),
	     *word = text_format("%s=%s", key, text ? text : "null");
	strbuf_puts(out, " --set ");
	quote(out, word);
	free(word);
	free(text);
	json_decref(value);
}

/* The words of the run's own command but for where it wrote. */
static void original_command(struct strbuf *out, const json_t *argv)
{
	static const char *const left_out[] = {"--db=", "--report=", "--quiet="};
	size_t i;
	json_t *word;
	json_array_foreach(argv, i, word)
	{
		const char *text = json_string_value(word);
		bool skip = !text;
		for (size_t k = 0; k < sizeof left_out / sizeof *left_out && !skip; k++)
			skip = !strncmp(text, left_out[k], strlen(left_out[k]));
		if (skip)
			continue;
		strbuf_puts(out, i ? " " : "");
		quote(out, text);
	}
}

/* One task at one length, or as many as the plan had. */
static void of_one_cell(struct strbuf *out, const json_t *plan, const struct cell_row *cell)
{
	json_t *tasks = entries_named(plan, "tasks", "name", cell->task, cell->context_tokens);
	if (json_array_size(tasks) > 0)
		set_option(out, "tasks", json_incref(tasks));
	json_decref(tasks);
	set_option(out, "retained", json_real(cell->retained_ppm / 1e6));
	set_option(out, "protocols", json_pack("[s]", cell->protocol));
	set_option(out, "timing.tasks", json_pack("[s]", cell->task));
	set_option(out, "timing.lengths", json_pack("[I]", (json_int_t)cell->context_tokens));
	set_option(out, "timing.retained", json_pack("[f]", cell->retained_ppm / 1e6));
	set_option(out, "timing.protocols", json_pack("[s]", cell->protocol));
}

/* `kvbench run` of this cell alone (of a pool: of its method), then its comparison with the baseline. Fresh; NULL when the run
 * was none of `kvbench run`. */
static char *reproduce(const struct side *night, const struct cell_row *cell, bool pool, const char *baseline)
{
	const struct side_run *run = side_newest_run(night);
	json_t *argv = run ? json_loads(run->row.argv, 0, NULL) : NULL, *plan = run ? json_loads(run->row.plan, 0, NULL) : NULL;
	struct strbuf out = {0};
	if (json_array_size(argv) >= 3 && plan) {
		original_command(&out, argv);
		set_option(&out, "methods", entries_named(plan, "methods", "method", cell->method, 0)); /* none: a control */
		if (!pool)
			of_one_cell(&out, plan, cell);
		strbuf_puts(&out, " --db reproduce.db && kvbench compare ");
		quote(&out, baseline);
		strbuf_puts(&out, " reproduce.db");
	}
	json_decref(argv);
	json_decref(plan);
	return out.len ? strbuf_take(&out) : NULL;
}

/* ---- what every regression carries ---- */

/* Of a cell the samples that lost, of a pool their number: its cells' samples are too many for a line. */
static void add_flipped(struct strbuf *out, const struct comparison *c, const struct gate_alert *a)
{
	enum { LISTED = 12 };
	int n = 0;
	for (int i = 0; i < c->n_flips; i++) {
		const struct flip *f = &c->flips[i];
		bool of_it = a->pool ? compare_in_pool(a->pool, f->cell) : f->cell == a->cell;
		if (!of_it || f->b->score >= f->a->score)
			continue;
		if (++n <= LISTED && a->cell)
			strbuf_printf(out, "%s%s", n > 1 ? ", " : "\nflipped: ", f->a->id);
	}
	if (a->pool && n > 0)
		strbuf_printf(out, "\nflipped: %d samples (`kvbench compare` lists them)", n);
	else if (n > LISTED)
		strbuf_printf(out, " and %d more (`kvbench compare` lists all)", n - LISTED);
}

static const char *commit_of(const struct side *s)
{
	const struct side_run *r = side_newest_run(s);
	return r ? r->row.commit : "";
}

static void explain(struct gate *g, const struct comparison *c, const char *baseline)
{
	char *commits = commits_between(commit_of(c->a), commit_of(c->b));
	for (int i = 0; i < g->n_alerts; i++) {
		struct gate_alert *a = &g->alerts[i];
		struct strbuf text = {0};
		if (strcmp(a->row.level, "regression") != 0)
			continue;
		strbuf_printf(&text, "%s\ncommits between: %s", a->row.message, commits);
		if (!strncmp(a->row.kind, "accuracy", 8))
			add_flipped(&text, c, a);
		const struct cell_row *of = a->cell ? &a->cell->b->row : &a->pool->first->row;
		char *command = reproduce(c->b, of, a->pool != NULL, baseline);
		if (command)
			strbuf_printf(&text, "\nreproduce: %s", command);
		free(command);
		free((char *)a->row.message);
		a->row.message = strbuf_take(&text);
	}
	free(commits);
}

/* ---- output ---- */

static void print_alert(const struct alert_row *a)
{
	static const char *const shout[] = {"regression", "REGRESSION", "incomplete", "INCOMPLETE"};
	const char *level = a->level;
	for (int i = 0; i < 4; i += 2)
		level = !strcmp(a->level, shout[i]) ? shout[i + 1] : level;
	printf("%s %s%s%s\n", level, a->kind, *a->label ? ": " : "", a->label);
	for (const char *line = a->message, *end; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		printf("    %.*s\n", (int)(end - line), line);
	}
}

/* Of a kind of alert that comes by the hundred, the first ones. */
static void print_alerts(const struct gate *g, int most)
{
	for (int i = 0, run = 0; i < g->n_alerts; i++) {
		const struct alert_row *a = &g->alerts[i].row, *before = i ? &g->alerts[i - 1].row : NULL;
		bool same = before && !strcmp(a->kind, before->kind) && !strcmp(a->level, before->level);
		run = same ? run + 1 : 0;
		if (run < most)
			print_alert(a);
		else if (run == most)
			printf("    ... and more of this kind; --alerts N lists them\n");
	}
}

static const char *verdict_of(int exit)
{
	static const char *const words[] = {[GATE_PASS] = "pass: all measured and within bounds",
		[GATE_ERROR] = "error",
		[GATE_USAGE] = "not comparable: the night and the baseline are not of one plan",
		[GATE_REGRESSION] = "regression",
		[GATE_INCOMPLETE] = "incomplete"};
	return words[exit];
}

static int count_level(const struct gate *g, const char *level)
{
	int n = 0;
	for (int i = 0; i < g->n_alerts; i++)
		n += !strcmp(g->alerts[i].row.level, level);
	return n;
}

static json_t *json_number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static json_t *json_alert(const struct alert_row *a)
{
	return json_pack("{s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:i, s:o}", "level", a->level, "kind", a->kind, "cell",
		json_bytes(a->label), "cell_id", a->cell_id, "old", json_number(a->old), "new", json_number(a->new_), "lo",
		json_number(a->lo), "hi", json_number(a->hi), "n", a->n, "message", json_bytes(a->message));
}

static void print_json(const struct gate *g, const char *db, const struct baseline *b)
{
	json_t *alerts = json_array();
	for (int i = 0; i < g->n_alerts; i++)
		json_array_append_new(alerts, json_alert(&g->alerts[i].row));
	json_t *all = json_pack("{s:i, s:s, s:o, s:o, s:i, s:o, s:o}", "exit", (int)g->exit, "verdict", verdict_of(g->exit),
		"database", json_bytes(db), "baseline", json_bytes(b->name ? b->name : ""), "baseline_version", b->version,
		"baseline_database", json_bytes(b->database ? b->database : ""), "alerts", alerts);
	json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	printf("\n");
	json_decref(all);
}

static void print_text(const struct gate *g, const char *db, const struct baseline *b, int most)
{
	char day[16] = "";
	time_t t = (time_t)(b->set_unix_ms / 1000);
	struct tm tm;
	gmtime_r(&t, &tm);
	strftime(day, sizeof day, "%Y-%m-%d", &tm);
	if (b->version)
		printf("%s against baseline %s: version %d, set %s%s%s: %s, commit %s\n", db, b->name, b->version, day,
			*b->why ? ", " : "", b->why, b->database, b->commit);
	print_alerts(g, most);
	printf("%s (exit code %d); regressions: %d, incomplete: %d, notices: %d\n", verdict_of(g->exit), (int)g->exit,
		count_level(g, "regression"), count_level(g, "incomplete"), count_level(g, "notice"));
}

/* ---- the night ---- */

struct night {
	const struct options *o;
	char *history;
	struct side now, before;
	struct baseline baseline;
	struct comparison comparison;
	struct gate gate;
};

/* 0, or -1 with err: what cannot be judged at all. A baseline that is not there is an alert, not an error. */
static int find_baseline(struct night *n, const char *name, char err[ERR_LEN])
{
	char digest[SHA_LEN] = "", text[ERR_LEN + 100];
	struct store *s = NULL;
	if (history_baseline(&n->baseline, n->history, name, err))
		return -1;
	const struct baseline *b = &n->baseline;
	*text = 0;
	if (!b->version)
		snprintf(text, sizeof text, "there is no baseline %s in %s: if this night is good, `kvbench baseline set %s %s --history %s --why TEXT` makes one",
			name, n->history, name, n->o->args[0], n->history);
	else if (!file_exists(b->database))
		snprintf(text, sizeof text, "its database %s is not there any more", b->database);
	else if (store_open_read(&s, b->database, err) || store_digest(s, digest, err))
		snprintf(text, sizeof text, "its database cannot be read: %s", err);
	else if (strcmp(digest, b->digest) != 0)
		snprintf(text, sizeof text,
			"its database %s holds other results than when it was set: `kvbench baseline move` says why",
			b->database);
	store_close(s);
	if (*text)
		gate_add(&n->gate, "incomplete", "baseline", "", "", text);
	*err = 0;
	return 0;
}

static bool is_empty(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
}

static int judge(struct night *n, char err[ERR_LEN])
{
	const struct options *o = n->o;
	const struct compare_rules rules = {option_alpha(o, gate_rules.alpha),
		option_number(o, "score-margin", gate_rules.score), option_number(o, "ratio-margin", gate_rules.ratio),
		option_number(o, "time-margin", gate_rules.time), option_number(o, "busy", gate_rules.busy),
		option_number(o, "waited", gate_rules.waited)};
	if (is_empty(o->args[0]))
		gate_add(&n->gate, "incomplete", "nothing", "", "", "nothing was measured: the database is an empty file");
	else if (side_load(&n->now, o->args[0], err))
		return -1;
	if (find_baseline(n, option_text(o, "baseline", ""), err))
		return -1;
	if (n->gate.n_alerts > 0) {
		gate_sort(&n->gate);
		return 0;
	}
	char *spec = text_format("%s%s%s", n->baseline.database, *n->baseline.run_id ? ":" : "", n->baseline.run_id);
	int rc = side_load(&n->before, spec, err);
	if (rc == 0) {
		compare_make(&n->comparison, &n->before, &n->now, &rules);
		gate_judge(&n->gate, &n->comparison);
		explain(&n->gate, &n->comparison, spec);
	}
	free(spec);
	return rc;
}

/* ---- the history ---- */

static int put_night(struct night *n, struct store *s, char err[ERR_LEN])
{
	const struct side_run *run = side_newest_run(&n->now);
	int n_figures, n_alerts = n->gate.n_alerts;
	struct figure_row *figures = gate_figures(&n->now, &n_figures);
	struct alert_row *alerts = mem_new((size_t)n_alerts + 1, sizeof *alerts);
	char *path = history_path_of(n->history, n->now.path);
	for (int i = 0; i < n_alerts; i++)
		alerts[i] = n->gate.alerts[i].row;
	struct night_row row = {run->row.run_id, path, run->row.commit, run->row.machine,
		n->baseline.name ? n->baseline.name : "", n->baseline.version, (int)n->gate.exit, run->row.started_unix_ms};
	int rc = store_put_night(s, &row, figures, n_figures, alerts, n_alerts, err);
	free(figures);
	free(alerts);
	free(path);
	return rc;
}

/* First the figures, so that tonight is part of the series whose steps are looked for; then the night again with what they
 * showed. */
static int record(struct night *n, char err[ERR_LEN])
{
	const struct side_run *run = side_newest_run(&n->now);
	struct store *s = NULL;
	if (!run)
		return fprintf(stderr, "kvbench gate: no run in %s: no night to record\n", n->o->args[0]), 0;
	int rc = database_open(&s, n->history, err) || put_night(n, s, err) ||
		 history_steps(&n->gate, s, run->row.machine, option_int(n->o, "recent", 0, 7), err) || put_night(n, s, err);
	store_close(s);
	return rc ? -1 : 0;
}

static int run_gate(const struct options *o)
{
	char err[ERR_LEN] = "";
	const char *format = option_text(o, "format", "text");
	if (!option_has(o, "baseline"))
		die(EXIT_USAGE, "gate: --baseline NAME is needed; `kvbench baseline list` says which there are");
	if (strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
		die(EXIT_USAGE, "gate: --format is text or json, not \"%s\"", format);
	option_only(o, "recent", option_has(o, "record"), "--record");
	option_only(o, "alerts", strcmp(format, "json") != 0, "--format text");
	int most = option_int(o, "alerts", 0, 10);
	struct night n = {.o = o};
	n.history = option_has(o, "history") ? text_copy(option_text(o, "history", NULL)) : history_beside(o->args[0]);
	int code = GATE_ERROR, rc = judge(&n, err);
	if (!rc && option_has(o, "record"))
		rc = record(&n, err);
	if (rc)
		fprintf(stderr, "kvbench gate: %s\n", err);
	else {
		code = (int)n.gate.exit;
		if (!strcmp(format, "json"))
			print_json(&n.gate, o->args[0], &n.baseline);
		else
			print_text(&n.gate, o->args[0], &n.baseline, most);
	}
	gate_free(&n.gate);
	compare_free(&n.comparison);
	baseline_free(&n.baseline);
	side_free(&n.before);
	side_free(&n.now);
	free(n.history);
	return code;
}

static const struct option_def gate_options[] = {
	{"baseline", "NAME", "what the night is judged against (`kvbench baseline`)"},
	{"history", "FILE", "where baselines and nights are kept (default: history.db in the database's folder)"},
	{"record", NULL, "add the night, its figures and alerts to the history; looks for steps in its series"},
	{"recent", "N", "with --record: steps of the last N nights are noticed (default 7)"},
	{"score-margin", "X", "a drop of a score must be larger (default .01: one point of a hundred)"},
	{"ratio-margin", "X", "a rise of TTFT over full, in one process, must be larger (default .06)"},
	{"time-margin", "X", "a rise of TTFT on the same machine must be larger (default .30)"},
	{"busy", "X", "TTFT itself is not judged where rounds deviate by more than this share of it (default .15)"},
	{"waited", "X", "nor where threads waited longer for a core (a share of the time; default .10): the ratio then by --time-margin"},
	{"alpha", "P", "and its p, by Holm over all cells, at most this (default .01)"},
	{"format", "F", "text (default) or json"},
	{"alerts", "N", "text: at most so many of a kind (default 10)"},
};
const struct verb verb_gate = {
	.name = "gate",
	.args = "DB",
	.title = "judge a night by a baseline: exit 0 pass, 3 regression, 4 incomplete",
	.help = "Exit codes: 0 all measured and within bounds, 1 an error, 2 usage, or night and baseline are not of one plan,\n"
		"3 regression, 4 incomplete or nothing measured, also when there is no baseline. An alert needs all three: the "
		"interval\n"
		"leaves 0 out, p by Holm is small, the change passes the margin. Other answers with an equal score are a notice.",
	.options = gate_options,
	.n_options = sizeof gate_options / sizeof *gate_options,
	.min_args = 1,
	.max_args = 1,
	.run = run_gate,
};
