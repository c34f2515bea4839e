/* run.c: `kvbench run PLAN`: reads the plan, opens the store, sweeps, reports. The same command again continues where it stopped.
 */
#include "harness/database.h"
#include "harness/dryrun.h"
#include "harness/environment.h"
#include "harness/json_bytes.h"
#include "harness/run.h"
#include "harness/verbs.h"
#include "report/report.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- signals: finish what is in flight, then stop with 75 ---- */

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
	signalled = number;
}

static bool stop_asked(void)
{
	return signalled;
}

/* A second signal of the same kind ends the process at once: nothing committed is lost by that. */
static void catch_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
	for (int i = 0; i < 3; i++)
		sigaction((int[]){SIGTERM, SIGINT, SIGUSR1}[i], &act, NULL);
}

void run_catch_signals(void)
{
	catch_signals();
}

bool run_stopped(void)
{
	return stop_asked();
}

/* ---- options ---- */

static const struct option_def run_options[] = {
	{"dry-run", NULL, "print cells, samples, tokens, KV bytes, what exists and a time estimate; measure nothing"},
	{"set", "KEY=VALUE", "override a key, dotted for inner ones: timing.repetitions=20, tasks.contexts=3"},
	{"template", "NAME", "the same as --chat-template"},
	{"quiet", NULL, "no progress lines (-q)"},
};

char **run_overrides(const struct options *o, int *n)
{
	char **list = mem_new((size_t)o->n_given, sizeof *list);
	*n = 0;
	for (int i = 0; i < o->n_given; i++) {
		const struct option_given *g = &o->given[i];
		if (!strcmp(g->name, "set"))
			list[(*n)++] = text_copy(g->value);
		else if (!strcmp(g->name, "template"))
			list[(*n)++] = text_format("chat_template=%s", g->value);
		else if (plan_key_option(g->name).name)
			list[(*n)++] = text_format("%s=%s", g->name, g->value);
	}
	return list;
}

int run_read_plan(struct plan *p, const struct options *o, const char *path, char err[ERR_LEN])
{
	int n;
	char **overrides = run_overrides(o, &n);
	int rc = plan_read(p, path, (const char *const *)overrides, n, err);
	for (int i = 0; i < n; i++)
		free(overrides[i]);
	free(overrides);
	return rc || !verb_uses_key(o->verb, "methods") ? rc : plan_check_methods(p, err);
}

/* ---- dry run ---- */

int run_dry(const struct plan *p, bool quiet)
{
	char err[ERR_LEN] = "", scratch[] = "/tmp/kvbench-dry-XXXXXX";
	struct progress progress = progress_open(quiet, STDERR_FILENO);
	struct sweep s = {.plan = p, .progress = &progress, .stop = stop_asked};
	catch_signals();
	if (!mkdtemp(scratch))
		return fprintf(stderr, "kvbench: no scratch folder under /tmp\n"), EXIT_CELLS_FAILED;
	char *db = text_format("%s/ids.db", scratch);
	int rc = store_open(&s.store, db, err);
	if (!rc && file_exists(p->db))
		rc = store_open_read(&s.present, p->db, err);
	rc = rc ? rc : dryrun_print(&s, err);
	progress_end(&progress);
	fprintf(stderr, "%s%s%s", s.sum.notes.len ? s.sum.notes.text : "", err, *err ? "\n" : "");
	store_close(s.present);
	store_close(s.store);
	unlink(db);
	rmdir(scratch);
	free(db);
	int code = rc == SWEEP_STOPPED ? EXIT_TRY_AGAIN : rc || sweep_failed(&s.sum) ? EXIT_CELLS_FAILED : EXIT_DONE;
	if (rc == SWEEP_STOPPED)
		fprintf(stderr, "stopped by signal %d\n", (int)signalled);
	sweep_free(&s);
	return code;
}

/* ---- the run ---- */

enum { RESTART = -1 }; /* no exit code: the device is lost to this process */

static char *argv_json(const struct options *o)
{
	json_t *list = json_pack("[s, s]", "kvbench", o->verb->name);
	for (int i = 0; i < o->n_args; i++)
		json_array_append_new(list, json_bytes(o->args[i]));
	for (int i = 0; i < o->n_given; i++) {
		char *word = text_format("--%s=%s", o->given[i].name, o->given[i].value);
		json_array_append_new(list, json_bytes(word));
		free(word);
	}
	char *text = json_dumps(list, JSON_COMPACT);
	json_decref(list);
	return text;
}

static int is_run(void *user, const struct run_row *r)
{
	return !strcmp(r->run_id, user);
}

/* A run that goes on in this process after the device was lost keeps its id. */
static int begin_run(struct store *store, const struct plan *p, const struct options *o, struct lost *lost, char run_id[33], char err[ERR_LEN])
{
	if (*lost->run_id && store_runs(store, is_run, lost->run_id, err) == 1) {
		memcpy(run_id, lost->run_id, sizeof lost->run_id);
		return 0;
	}
	struct environment e;
	char env_id[SHA_LEN];
	environment_read(&e, p->device, p->threads, p->isa);
	environment_add_attention(&e, p->attention);
	if ((!p->device || !strcmp(p->device, "auto")) && !e.machine.gpu && !option_has(o, "quiet"))
		fprintf(stderr, "device cpu: %s\n", e.machine.gpu_why);
	if (store_put_env(store, &e.row, env_id, err))
		return -1;
	char *argv = argv_json(o);
	int rc = store_run_begin(store, env_id, argv, p->json, run_id, err);
	free(argv);
	return rc;
}

static int count_cell(void *user, const struct cell_row *c)
{
	(void)c;
	++*(int *)user;
	return 0;
}

/* The table on stdout, what is to be known beside it on stderr. */
static int print_summary(const struct sweep *s, int64_t took_ns, char err[ERR_LEN])
{
	struct strbuf table = {0};
	char took[48];
	int all = 0, rc = s->sum.cells ? report_export(s->store, "text", &table, err) || store_cells(s->store, count_cell, &all, err) : 0;
	fwrite(table.text ? table.text : "", 1, table.len, stdout);
	strbuf_free(&table);
	duration_text((double)took_ns / 1e9, took, sizeof took);
	const struct sweep_summary *sum = &s->sum;
	fprintf(stderr,
		"%d cells, %d samples, %d of them present before; now %d answered (%d empty), %d failed, %d out of memory, %d "
		"not applicable; %s\n",
		sum->cells, sum->samples, sum->samples - sum->missing, sum->ok, sum->empty, sum->failed, sum->oom,
		sum->not_applicable, took);
	if (all > sum->cells)
		fprintf(stderr, "%d more cells in %s are not of this plan but of earlier ones; tables and report show them, too (another db keeps plans apart)\n",
			all - sum->cells, s->plan->db);
	fputs(sum->notes.len ? sum->notes.text : "", stderr);
	return rc;
}

static int finish_run(struct sweep *s, int64_t took_ns, void *user, char err[ERR_LEN])
{
	(void)user;
	const struct plan *p = s->plan;
	return print_summary(s, took_ns, err) || (p->report && report_write(s->store, p->title, p->report, err)) ? -1 : 0;
}

static int sweep_and_finish(struct sweep *s, const struct run_wish *w, char err[ERR_LEN])
{
	int64_t start = clock_ns();
	int rc = sweep_run(s, err);
	int code = rc < 0 || rc == SWEEP_GIVEN_UP || sweep_failed(&s->sum) ? EXIT_CELLS_FAILED : EXIT_DONE;
	if (rc == SWEEP_STOPPED)
		return fprintf(stderr, "stopped by signal %d; the same command continues\n", (int)signalled), EXIT_TRY_AGAIN;
	if (rc == SWEEP_LOST)
		return RESTART;
	if (rc == SWEEP_GIVEN_UP) {
		sweep_note(s, "given up: %s; the same command tries what is missing", s->lost.why);
		rc = 0;
	}
	/* the run has ended when the report is written: it says so */
	return rc || store_run_end(s->store, s->run_id, code, err) || w->finish(s, clock_ns() - start, w->user, err) ? EXIT_CELLS_FAILED : code;
}

/* The store is closed and the device lost: on in a new process. Returns only when there is none. */
static int restart(const struct run_wish *w, const struct sweep *s, char err[ERR_LEN])
{
	fprintf(stderr, "%s%s is lost to this process: the run goes on in a new one\n", s->sum.notes.len ? s->sum.notes.text : "", s->lost.device);
	lost_restart(&s->lost, s->run_id, &s->sum, err);
	fprintf(stderr, "kvbench %s: %s\n", w->options->verb->name, err);
	return EXIT_CELLS_FAILED;
}

int run_plan(const struct run_wish *w)
{
	char err[ERR_LEN] = "", run_id[33];
	const struct plan *p = w->plan;
	struct progress progress = progress_open(w->quiet, STDERR_FILENO);
	struct sweep s = {.plan = p, .run_id = run_id, .progress = &progress, .stop = stop_asked};
	catch_signals();
	lost_open(&s.lost, p, &s.sum);
	int code = database_open(&s.store, p->db, err);
	if (!code) {
		s.present = s.store;
		code = begin_run(s.store, p, w->options, &s.lost, run_id, err) ? EXIT_CELLS_FAILED : sweep_and_finish(&s, w, err);
		if (code != RESTART)
			store_run_end(s.store, run_id, code, *err ? NULL : err);
		progress_end(&progress);
	}
	if (*err)
		fprintf(stderr, "kvbench %s: %s\n", w->options->verb->name, err);
	store_close(s.store);
	if (code == RESTART)
		code = restart(w, &s, err);
	sweep_free(&s);
	return code;
}

static int run(const struct options *o)
{
	char err[ERR_LEN] = "";
	struct plan p;
	int code = EXIT_USAGE;
	if (run_read_plan(&p, o, o->args[0], err))
		fprintf(stderr, "kvbench run: %s\n", err);
	else if (option_has(o, "dry-run"))
		code = run_dry(&p, option_has(o, "quiet"));
	else
		code = run_plan(&(struct run_wish){&p, o, option_has(o, "quiet"), finish_run, NULL});
	plan_free(&p);
	return code;
}

static const char *const unused_keys[] = {"training", NULL};
const struct verb verb_run = {
	.name = "run",
	.args = "PLAN",
	.title = "run a plan (JSON); the same command again continues where it stopped",
	.options = run_options,
	.n_options = sizeof run_options / sizeof *run_options,
	.plan_keys = true,
	.unused_keys = unused_keys,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
