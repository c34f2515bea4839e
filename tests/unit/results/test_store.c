/* The database of results: what goes in comes out, and every way to lose something fails loudly. */
#include "results/store.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

extern const char results_schema_sql[];

static char folder[64], path[128];
static char err[ERR_LEN];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/kvb_store.XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/r.db", folder);
	*err = 0;
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	char *command = text_format("chmod -R u+w %s; rm -rf %s", folder, folder);
	int rc = system(command);
	free(command);
	return rc;
}

/* A store with one run and one cell. */
struct fixture {
	struct store *s;
	char env[SHA_LEN], model[SHA_LEN], method[SHA_LEN], task[SHA_LEN], cell[SHA_LEN], run[33];
};

static const struct store_model target = {.role = "target",
	.name = "tiny",
	.path = "/a/tiny",
	.arch = "qwen3",
	.dtype = "bf16",
	.sha256 = "ab",
	.layers = 2,
	.kv_heads = 3,
	.head_dim = 16,
	.kv_bytes_per_token = 384};

static struct store_cell a_cell(const struct fixture *f)
{
	return (struct store_cell){.target_id = f->model,
		.method_id = f->method,
		.task_id = f->task,
		.retained_ppm = 300000,
		.context_tokens = 512,
		.protocol = "agnostic",
		.mode = "single",
		.topology = "cpu",
		.precision = "bf16",
		.measure_version = 1,
		.samples_planned = 4};
}

static int fill(struct fixture *f)
{
	struct store_env env = {.host = "h", .cpu = "c", .threads = 2, .libraries = "sqlite 3"};
	struct store_method method = {.name = "snapkv", .params = "{\"window\":32}", .version = 1};
	struct store_task task = {.name = "niah-single",
		.metric = "all",
		.version = 1,
		.variant = "own",
		.data_state = "recorded",
		.binary_metric = true};
	struct store_cell cell;
	if (store_put_env(f->s, &env, f->env, err) || store_put_model(f->s, &target, f->model, err) ||
		store_put_method(f->s, &method, f->method, err) || store_put_task(f->s, &task, f->task, err) ||
		store_run_begin(f->s, f->env, "[\"kvbench\"]", "{\"target\":\"tiny\",\"retained\":[0.3]}", f->run, err))
		return -1;
	cell = a_cell(f);
	return store_put_cell(f->s, &cell, f->cell, err);
}

static void open_filled(struct fixture *f)
{
	if (store_open(&f->s, path, err) != 0 || fill(f) != 0)
		fail_msg("%s", err);
}

static struct store_sample a_sample(const struct fixture *f, const char *id)
{
	static const int32_t kept[] = {10, 20, 30, 40, 50, 60};
	return (struct store_sample){.cell_id = f->cell,
		.run_id = f->run,
		.sample_id = id,
		.context_id = "c0",
		.status = "ok",
		.message = "",
		.prompt_sha256 = "cd",
		.answer = "blue",
		.answer_ids = "[5,6]",
		.gold = "[\"blue\"]",
		.question = "which?",
		.metric = "all",
		.score = 1,
		.scorer_version = 2,
		.finish = "stop",
		.context_tokens = 100,
		.question_tokens = 7,
		.answer_tokens = 2,
		.depth = NAN,
		.needle_token = -1,
		.needle_char = -1,
		.kept = kept,
		.n_kept = 6,
		.kept_total = 210,
		.kv_bytes_full = 1000,
		.kv_bytes_kept = 350};
}

static void put_ok(struct fixture *f, const char *id)
{
	struct store_sample p = a_sample(f, id);
	if (store_put_sample(f->s, &p, err) != 0)
		fail_msg("%s", err);
}

static int take_cell(void *user, const struct cell_row *c)
{
	struct cell_row *out = user;
	*out = *c; /* numbers only: strings end with the callback */
	return 0;
}

static struct cell_row only_cell(struct store *s)
{
	struct cell_row c = {0};
	assert_int_equal(store_cells(s, take_cell, &c, err), 0);
	return c;
}

/* ---- contents ---- */

static int check_sample(void *user, const struct score_row *r)
{
	int *seen = user;
	++*seen;
	assert_string_equal(r->sample_id, "s1");
	assert_string_equal(r->context_id, "c0");
	assert_string_equal(r->answer, "blue");
	assert_string_equal(r->gold, "[\"blue\"]");
	assert_string_equal(r->status, "ok");
	assert_true(r->score == 1 && isnan(r->depth));
	assert_true(fabs(r->retained - .35) < 1e-12); /* 210 of 100 x 2 x 3 */
	assert_int_equal(r->n_kept, 6);
	assert_int_equal(r->kept[0], 10);
	assert_int_equal(r->kept[5], 60);
	return 0;
}

static void rows_come_back(void **state)
{
	(void)state;
	struct fixture f;
	int seen = 0;
	open_filled(&f);
	put_ok(&f, "s1");
	store_close(f.s);
	assert_int_equal(store_open_read(&f.s, path, err), 0);
	assert_int_equal(store_samples(f.s, f.cell, check_sample, &seen, err), 0);
	assert_int_equal(seen, 1);
	struct cell_row c = only_cell(f.s);
	assert_int_equal(c.ok, 1);
	assert_int_equal(c.planned, 4);
	assert_int_equal(c.retained_ppm, 300000);
	assert_true(c.score_mean == 1 && fabs(c.retained_mean - .35) < 1e-12);
	assert_int_equal(c.kv_bytes_kept, 350);
	assert_int_equal(c.scorer_version, 2);
	store_close(f.s);
}

static void run_sql(const char *sql)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

static int count_kept(void *user, const struct score_row *r)
{
	int *got = user; /* how many, the last of them, the context */
	got[0] = r->n_kept;
	got[1] = r->n_kept ? r->kept[r->n_kept - 1] : -1;
	got[2] = r->context_tokens;
	return 0;
}

/* Counts that kvbench did not write are read as far as they are whole numbers, and nothing behind them is touched. */
static void foreign_counts(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	put_ok(&f, "s1");
	store_close(f.s);
	static const struct {
		const char *json;
		int n, last;
	} kept[] = {{"[1,2]", 2, 2}, {"[]", 0, -1}, {"[1.5]", 1, 1}, {"[1 ]", 1, 1}, {"[1,2.5,3]", 2, 2}, {"[1e3,4]", 1, 1},
		{"[\"x\",2]", 0, -1}, {"[[1],2]", 0, -1}, {"{\"1\":2}", 0, -1}, {"7", 0, -1}, {"null", 0, -1},
		{"[4294967297]", 1, INT_MAX}, {"[-4294967297]", 1, INT_MIN}};
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
		int got[3];
		char *sql = text_format("UPDATE sample SET kept = '%s', context_tokens = 4294967396", kept[i].json);
		run_sql(sql);
		free(sql);
		assert_int_equal(store_open_read(&f.s, path, err), 0);
		assert_int_equal(store_samples(f.s, f.cell, count_kept, got, err), 0);
		assert_int_equal(got[0], kept[i].n);
		assert_int_equal(got[1], kept[i].last);
		assert_int_equal(got[2], INT_MAX); /* not the 100 of its low bits */
		store_close(f.s);
	}
}

/* ---- what the suites store beside a score ---- */

static int check_suite_sample(void *user, const struct score_row *r)
{
	const double *scores = user; /* score, also_score, scorer */
	assert_string_equal(r->metric, "loose");
	assert_string_equal(r->also_metric, "strict");
	assert_string_equal(r->group, "4-8k");
	assert_string_equal(r->truncation, "ids");
	assert_int_equal(r->cut_tokens, 77);
	assert_int_equal(r->needle_token, 12);
	assert_int_equal(r->needle_char, 0);
	assert_true(r->score == scores[0] && r->also_score == scores[1] && r->scorer_version == scores[2]);
	return 0;
}

static void the_suites_columns(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	put_ok(&f, "s0"); /* one metric only */
	struct store_sample p = a_sample(&f, "s1");
	p.metric = "loose", p.also_metric = "strict", p.also_score = .5, p.group = "4-8k", p.truncation = "ids",
	p.cut_tokens = 77;
	p.needle_token = 12, p.needle_char = 0;
	assert_int_equal(store_put_sample(f.s, &p, err), 0);
	struct cell_row c = only_cell(f.s);
	assert_non_null(c.also_metric);
	assert_int_equal(c.also_n, 1);
	assert_int_equal(c.cut, 1);
	assert_true(c.also_mean == .5);
	p.sample_id = "s2", p.truncation = NULL; /* a cut that is none is refused */
	assert_int_equal(store_put_sample(f.s, &p, err), -1);
	store_close(f.s);
}

/* Scores change, nothing else; what was not answered keeps no score. */
static void scores_alone_change(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	struct store_sample p = a_sample(&f, "s1");
	p.metric = "loose", p.also_metric = "strict", p.also_score = .5, p.group = "4-8k", p.truncation = "ids",
	p.cut_tokens = 77;
	p.needle_token = 12, p.needle_char = 0;
	assert_int_equal(store_put_sample(f.s, &p, err), 0);
	assert_int_equal(store_samples(f.s, f.cell, check_suite_sample, (double[]){1, .5, 2}, err), 0);
	assert_int_equal(store_put_score(f.s, f.cell, "s1", .25, .75, 3, err), 0);
	assert_int_equal(store_samples(f.s, f.cell, check_suite_sample, (double[]){.25, .75, 3}, err), 0);
	assert_int_equal(store_put_score(f.s, f.cell, "s1", NAN, NAN, 3, err), -1); /* an ok answer has a score */
	p.sample_id = "s2", p.status = "failed", p.score = p.also_score = NAN;
	assert_int_equal(store_put_sample(f.s, &p, err), 0);
	assert_int_equal(store_put_score(f.s, f.cell, "s2", 1, 1, 3, err), 0);
	assert_int_equal(only_cell(f.s).failed, 1);
	struct cell_row c = only_cell(f.s);
	assert_int_equal(c.scorer_oldest, 2);
	assert_int_equal(c.scorer_version, 3);
	store_close(f.s);
}

/* How the texts were made is part of a task, how sure its data are is not. */
static void identity_of_a_task(void **state)
{
	(void)state;
	struct fixture f;
	char own[SHA_LEN], other[SHA_LEN];
	struct store_task task = {.name = "ruler-vt", .metric = "all", .version = 1, .variant = "upstream current"};
	open_filled(&f);
	assert_int_equal(store_put_task(f.s, &task, own, err), 0);
	task.data_state = "pinned";
	assert_int_equal(store_put_task(f.s, &task, other, err), 0);
	assert_string_equal(own, other);
	task.variant = "upstream oct2024";
	assert_int_equal(store_put_task(f.s, &task, other, err), 0);
	assert_string_not_equal(own, other);
	task.data_state = "hearsay";
	assert_int_equal(store_put_task(f.s, &task, other, err), -1);
	store_close(f.s);
}

static int check_names(void *user, const struct cell_row *c)
{
	(void)user;
	assert_string_equal(c->target, "tiny");
	assert_null(c->proxy);
	assert_string_equal(c->method, "snapkv");
	assert_string_equal(c->method_params, "{\"window\":32}");
	assert_string_equal(c->task, "niah-single");
	assert_string_equal(c->protocol, "agnostic");
	assert_string_equal(c->dtype, "bf16");
	assert_int_equal(c->layers, 2);
	return 17; /* ends the reading */
}

static void names_and_early_end(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	assert_int_equal(store_cells(f.s, check_names, NULL, err), 17);
	store_close(f.s);
}

static int count_row(void *user, const struct score_row *r)
{
	(void)r;
	++*(int *)user;
	return 0;
}

/* A failure is a row, replaced by a later success; a success is never replaced. */
static void only_failures_are_replaced(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	struct store_sample p = a_sample(&f, "s1");
	p.status = "oom", p.message = "asked for 5 bytes", p.score = NAN, p.oom_bytes = 5, p.answer = NULL;
	assert_int_equal(store_put_sample(f.s, &p, err), 0);
	assert_false(store_has_sample(f.s, f.cell, "s1", NULL));
	assert_int_equal(only_cell(f.s).oom, 1);
	put_ok(&f, "s1");
	assert_true(store_has_sample(f.s, f.cell, "s1", NULL));
	p = a_sample(&f, "s1");
	p.score = 0, p.answer = "red";
	assert_int_equal(store_put_sample(f.s, &p, err), 0);
	struct cell_row c = only_cell(f.s);
	assert_true(c.ok == 1 && c.oom == 0 && c.score_mean == 1);
	store_close(f.s);
}

static void counters(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	static const struct {
		const char *status, *answer, *finish;
	} rows[] = {{"ok", "x", "stop"}, {"ok", " \n\t", "stop"}, {"ok", "", "length"}, {"failed", "", "none"},
		{"not-applicable", "", "none"}};
	for (int i = 0; i < 5; i++) {
		char id[8];
		snprintf(id, sizeof id, "s%d", i);
		struct store_sample p = a_sample(&f, id);
		p.status = rows[i].status, p.answer = rows[i].answer, p.finish = rows[i].finish;
		p.score = strcmp(p.status, "ok") == 0 ? i == 0 : NAN;
		assert_int_equal(store_put_sample(f.s, &p, err), 0);
	}
	struct cell_row c = only_cell(f.s);
	assert_true(c.ok == 3 && c.empty == 2 && c.length_finish == 1 && c.failed == 1 && c.not_applicable == 1);
	assert_true(fabs(c.score_mean - 1.0 / 3) < 1e-12); /* failures are counted apart, not as 0 */
	assert_true(store_has_sample(f.s, f.cell, "s4", NULL));
	assert_false(store_has_sample(f.s, f.cell, "s3", NULL));
	store_close(f.s);
}

/* An "ok" without a score, an unknown protocol, a reference to nothing: refused, not ignored. */
static void constraints_hold(void **state)
{
	(void)state;
	struct fixture f;
	char id[SHA_LEN];
	open_filled(&f);
	struct store_sample p = a_sample(&f, "s1");
	p.score = NAN;
	assert_int_equal(store_put_sample(f.s, &p, err), -1);
	assert_non_null(strstr(err, "CHECK"));
	p = a_sample(&f, "s1"), p.run_id = "nobody";
	assert_int_equal(store_put_sample(f.s, &p, err), -1);
	assert_non_null(strstr(err, "FOREIGN KEY"));
	struct store_cell c = a_cell(&f);
	c.protocol = "both";
	assert_int_equal(store_put_cell(f.s, &c, id, err), -1);
	c.protocol = "aware", c.retained_ppm = 0;
	assert_int_equal(store_put_cell(f.s, &c, id, err), -1);
	put_ok(&f, "s1"); /* and the store goes on */
	store_close(f.s);
}

/* Everything that changes the answer is in the identity; the path and the number planned are not. */
static void identity_of_a_cell(void **state)
{
	(void)state;
	struct fixture f;
	char id[SHA_LEN], model[SHA_LEN];
	open_filled(&f);
	struct store_cell c = a_cell(&f);
	c.samples_planned = 50;
	assert_int_equal(store_put_cell(f.s, &c, id, err), 0);
	assert_string_equal(id, f.cell);
	assert_int_equal(only_cell(f.s).planned, 50);
	c.samples_planned = 10; /* a subset later does not shrink what was planned */
	assert_int_equal(store_put_cell(f.s, &c, id, err), 0);
	assert_int_equal(only_cell(f.s).planned, 50);
	struct store_model moved = target;
	moved.path = "/b/tiny";
	assert_int_equal(store_put_model(f.s, &moved, model, err), 0);
	assert_string_equal(model, f.model);
	struct store_cell others[8];
	for (int i = 0; i < 8; i++)
		others[i] = a_cell(&f);
	others[0].protocol = "aware", others[1].mode = "multi-turn", others[2].topology = "gpu", others[3].precision = "fp32";
	others[4].seed = UINT64_MAX, others[5].measure_version = 2, others[6].retained_ppm = 300001, others[7].proxy_id = f.model;
	for (int i = 0; i < 8; i++) {
		assert_int_equal(store_put_cell(f.s, &others[i], id, err), 0);
		assert_string_not_equal(id, f.cell);
	}
	store_close(f.s);
}

/* Another program can recompute an identity: SHA-256 of sorted, compact JSON. */
static void identity_is_canonical_json(void **state)
{
	(void)state;
	struct fixture f;
	char expected[SHA_LEN];
	open_filled(&f);
	const char *json = "{\"name\":\"snapkv\",\"params\":\"{\\\"window\\\":32}\",\"version\":1}";
	sha256_hex(json, strlen(json), expected);
	assert_string_equal(f.method, expected);
	store_close(f.s);
}

struct timing_seen {
	int n, warmups;
	int64_t sum;
};

static int take_timing(void *user, const struct timing_row *t)
{
	struct timing_seen *seen = user;
	seen->n++;
	seen->warmups += t->warmup;
	seen->sum += t->duration_ns;
	return 0;
}

static void put_timings(struct fixture *f, int repetitions, int64_t ns)
{
	struct store_timing t[2];
	for (int i = 0; i < repetitions; i++) {
		for (int k = 0; k < 2; k++)
			t[k] = (struct store_timing){
				f->cell, f->run, k ? "prefill" : "ttft", i, i == 0, "host", ns, 100, 1, 2, 3};
		assert_int_equal(store_put_timings(f->s, t, 2, err), 0);
	}
}

/* Two processes timed the cell, 2 and 3 repetitions after warm-up: the second counts, they are never mixed. */
static void timings_of_one_run(void **state)
{
	(void)state;
	struct fixture f;
	struct timing_seen seen = {0};
	open_filled(&f);
	assert_int_equal(store_count_timings(f.s, f.cell), 0);
	put_timings(&f, 3, 1000);
	assert_int_equal(store_count_timings(f.s, f.cell), 2);
	assert_int_equal(store_run_end(f.s, f.run, 0, err), 0);
	assert_int_equal(store_run_begin(f.s, f.env, "[]", "{}", f.run, err), 0);
	put_timings(&f, 4, 1);
	assert_int_equal(store_count_timings(f.s, f.cell), 3);
	assert_int_equal(only_cell(f.s).timing_repetitions, 3);
	assert_int_equal(store_timings(f.s, f.cell, take_timing, &seen, err), 0);
	assert_int_equal(seen.n, 8);
	assert_int_equal(seen.warmups, 2);
	assert_int_equal(seen.sum, 8);
	struct store_timing bad[2] = {
		{f.cell, f.run, "ttft", 77, false, "host", 1}, {f.cell, f.run, "brew", 0, false, "host", 1}};
	assert_int_equal(store_put_timings(f.s, bad, 2, err), -1); /* one commit: all or nothing */
	assert_int_equal(store_count_timings(f.s, f.cell), 3);
	store_close(f.s);
}

static int take_setting(void *user, const char *group, const char *name, const char *value)
{
	strbuf_printf(user, "%s/%s=%s\n", group, name, value);
	return 0;
}

static void settings_of_the_newest_run(void **state)
{
	(void)state;
	struct fixture f;
	struct strbuf b = {0};
	open_filled(&f);
	assert_int_equal(store_run_end(f.s, f.run, 1, err), 0);
	assert_int_equal(store_settings(f.s, take_setting, &b, err), 0);
	assert_non_null(strstr(b.text, "environment/threads=2\n"));
	assert_non_null(strstr(b.text, "target/name=tiny\n"));
	assert_non_null(strstr(b.text, "plan/retained=[0.3]\n"));
	assert_non_null(strstr(b.text, "run/exit_code=1\n"));
	strbuf_free(&b);
	store_close(f.s);
}

static void a_plan_without_keys_has_an_empty_name(void **state)
{
	(void)state;
	struct fixture f;
	struct strbuf b = {0};
	open_filled(&f);
	assert_int_equal(store_run_begin(f.s, f.env, "[]", "7", f.run, err), 0);
	assert_int_equal(store_settings(f.s, take_setting, &b, err), 0);
	assert_non_null(strstr(b.text, "plan/=7\n"));
	strbuf_free(&b);
	store_close(f.s);
}

/* ---- batches ---- */

static void a_batch_is_one_commit(void **state)
{
	(void)state;
	struct fixture f, again;
	open_filled(&f);
	assert_int_equal(store_begin(f.s, err), 0);
	put_ok(&f, "s1");
	assert_int_equal(store_commit(f.s, err), 0);
	assert_int_equal(store_begin(f.s, err), 0);
	put_ok(&f, "s2");
	assert_true(store_has_sample(f.s, f.cell, "s2", NULL));
	store_close(f.s); /* never committed: gone, the first batch stays */
	open_filled(&again);
	assert_true(store_has_sample(again.s, again.cell, "s1", NULL));
	assert_false(store_has_sample(again.s, again.cell, "s2", NULL));
	store_close(again.s);
}

/* Thousands of samples in batches of 50 are seconds at most; the figure is printed. */
static void batches_are_quick(void **state)
{
	(void)state;
	struct fixture f;
	char id[16];
	open_filled(&f);
	int64_t start = clock_ns();
	for (int batch = 0; batch < 60; batch++) {
		assert_int_equal(store_begin(f.s, err), 0);
		for (int i = 0; i < 50; i++) {
			snprintf(id, sizeof id, "s%d", batch * 50 + i);
			put_ok(&f, id);
		}
		assert_int_equal(store_commit(f.s, err), 0);
	}
	double batched = (double)(clock_ns() - start) * 1e-9;
	start = clock_ns();
	for (int i = 0; i < 50; i++) {
		snprintf(id, sizeof id, "t%d", i);
		put_ok(&f, id);
	}
	print_message("3000 samples in 60 batches: %.2f s; 50 samples with a commit each: %.2f s\n", batched,
		(double)(clock_ns() - start) * 1e-9);
	assert_int_equal(only_cell(f.s).ok, 3050);
	assert_true(batched < 60);
	store_close(f.s);
}

/* ---- what must fail loudly ---- */

static void second_writer(void **state)
{
	(void)state;
	struct fixture f;
	struct store *second = NULL, *reader = NULL;
	char pid[32];
	open_filled(&f);
	assert_int_equal(store_open(&second, path, err), -1);
	assert_null(second);
	snprintf(pid, sizeof pid, "pid %ld on ", (long)getpid());
	assert_non_null(strstr(err, path));
	assert_non_null(strstr(err, pid));
	assert_int_equal(store_open_read(&reader, path, err), 0); /* status while it runs */
	put_ok(&f, "s1");
	assert_int_equal(only_cell(reader).ok, 1);
	store_close(reader);
	store_close(f.s);
	open_filled(&f); /* and the lock goes with its holder */
	store_close(f.s);
}

static void write_text(const char *file, const char *text)
{
	FILE *f = fopen(file, "wb");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void not_a_database(void **state)
{
	(void)state;
	struct store *s;
	char *text;
	size_t len;
	write_text(path, "this is a text file, long enough to be looked at as a page of a database, and then some more of it\n");
	assert_int_equal(store_open(&s, path, err), -1);
	assert_non_null(strstr(err, "not a database"));
	assert_int_equal(store_open_read(&s, path, err), -1);
	assert_non_null(strstr(err, "not a database"));
	assert_int_equal(file_read(path, &text, &len, err), 0); /* untouched */
	assert_memory_equal(text, "this is a text file", 19);
	free(text);
	assert_int_equal(store_open(&s, folder, err), -1); /* a folder */
	assert_non_null(strstr(err, folder));
}

static int64_t ask_sql(const char *file, const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *st;
	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	int64_t value = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	return value;
}

static void a_database_of_somebody_else(void **state)
{
	(void)state;
	struct store *s;
	run_sql("CREATE TABLE theirs (x)");
	assert_int_equal(store_open(&s, path, err), -1);
	assert_non_null(strstr(err, "not one of kvbench"));
	assert_int_equal(ask_sql(path, "SELECT count(*) FROM sqlite_master"), 1);
}

static void a_newer_version(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	store_close(f.s);
	run_sql("PRAGMA user_version = 99");
	assert_int_equal(store_open(&f.s, path, err), -1);
	assert_non_null(strstr(err, "version 99"));
	assert_int_equal(store_open_read(&f.s, path, err), -1);
	assert_non_null(strstr(err, "version 99"));
}

static void reading_nothing(void **state)
{
	(void)state;
	struct store *s;
	assert_int_equal(store_open_read(&s, path, err), -1);
	assert_non_null(strstr(err, "no such database"));
	assert_false(file_exists(path)); /* a look creates nothing */
	write_text(path, "");
	assert_int_equal(store_open_read(&s, path, err), -1);
	assert_non_null(strstr(err, "holds no results"));
}

static void a_missing_folder(void **state)
{
	(void)state;
	struct store *s;
	char missing[160];
	snprintf(missing, sizeof missing, "%s/none/r.db", folder);
	assert_int_equal(store_open(&s, missing, err), -1);
	assert_non_null(strstr(err, "No such file or directory"));
}

/* Runs `body` in a process of its own and returns its exit status: for limits that cannot be taken back. */
static int in_child(int (*body)(void))
{
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(body());
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* root may write anywhere, so the child becomes nobody. */
static int write_in_read_only_folder(void)
{
	struct store *s = NULL;
	if (geteuid() == 0 && setuid(65534) != 0)
		return 2;
	if (store_open(&s, path, err) == 0 || !strstr(err, "Permission denied") || !strstr(err, path))
		return 3;
	if (store_open_read(&s, path, err) != 0) /* reading needs no write */
		return 4;
	store_close(s);
	return 0;
}

static void read_only_folder(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	store_close(f.s);
	assert_int_equal(chmod(folder, 0555), 0);
	assert_int_equal(in_child(write_in_read_only_folder), 0);
}

/* The file itself: the lock can be had, the write cannot. */
static int write_read_only_file(void)
{
	struct store *s = NULL;
	if (geteuid() == 0 && setuid(65534) != 0)
		return 2;
	return store_open(&s, path, err) == -1 && strstr(err, "read-only") ? 0 : 3;
}

static void read_only_file(void **state)
{
	(void)state;
	struct fixture f;
	open_filled(&f);
	store_close(f.s);
	assert_int_equal(chmod(path, 0444), 0);
	assert_int_equal(chmod(folder, 0777), 0);
	assert_int_equal(in_child(write_read_only_file), 0);
}

/* Writes until there is no room, then looks at what is left: all rows that were said to be stored, no other. */
static int fill_up(const char *expected_error)
{
	struct fixture f;
	char id[16], first[ERR_LEN];
	int done = 0, seen = 0;
	if (store_open(&f.s, path, err) != 0 || fill(&f) != 0)
		return 2;
	char *longest = mem_new(50001, 1), *long_answer = longest + 45000;
	memset(longest, 'x', 50000);
	for (;; done++) {
		snprintf(id, sizeof id, "s%04d", done);
		struct store_sample p = a_sample(&f, id);
		p.answer = long_answer;
		if (store_put_sample(f.s, &p, err) != 0)
			break;
	}
	strcpy(first, err);
	struct store_sample p = a_sample(&f, "batch"); /* a batch says so as well */
	p.answer = longest; /* more than what one row may have left free */
	bool batch_said = store_begin(f.s, err) == 0 && (store_put_sample(f.s, &p, err) | store_commit(f.s, err)) != 0;
	store_close(f.s);
	free(longest);
	if (!strstr(first, expected_error) || !strstr(first, path))
		return 3;
	if (!batch_said)
		return 4;
	if (store_open_read(&f.s, path, err) != 0)
		return 5;
	int rc = store_samples(f.s, f.cell, count_row, &seen, err);
	store_close(f.s);
	return rc == 0 && seen == done && done > 10 ? 0 : 6;
}

enum { CANNOT_MOUNT = 77 };

/* A file system of 300 kB of its own, in a mount name space of its own. */
static int fill_small_disk(void)
{
	if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", folder, "tmpfs", 0, "size=300k") != 0)
		return CANNOT_MOUNT;
	return fill_up("disk full");
}

static void disk_full(void **state)
{
	(void)state;
	int rc = in_child(fill_small_disk);
	if (rc == CANNOT_MOUNT) {
		print_message("skip: this machine lets us mount no small disk\n");
		skip();
	}
	assert_int_equal(rc, 0);
}

static int fill_up_to_limit(void)
{
	struct rlimit limit = {300 * 1024, 300 * 1024};
	signal(SIGXFSZ, SIG_IGN);
	return setrlimit(RLIMIT_FSIZE, &limit) == 0 ? fill_up("a write was refused") : 1;
}

static void file_size_limit(void **state)
{
	(void)state;
	struct fixture f;
	assert_int_equal(in_child(fill_up_to_limit), 0);
	open_filled(&f); /* room again: the same command goes on */
	put_ok(&f, "more");
	store_close(f.s);
}

/* ---- kill -9 ---- */

/* Writes samples for ever and says each committed one on the pipe; a batch of three now and then, said after its commit. */
static void write_for_ever(int round, int say)
{
	struct fixture f;
	if (store_open(&f.s, path, err) != 0 || fill(&f) != 0)
		_exit(2);
	for (int i = 0;; i++) {
		char id[32];
		bool batch = i % 4 == 3;
		if (batch && store_begin(f.s, err) != 0)
			_exit(3);
		for (int k = 0; k < (batch ? 3 : 1); k++) {
			snprintf(id, sizeof id, "r%02d-%06d-%d", round, i, k);
			struct store_sample p = a_sample(&f, id);
			if (store_put_sample(f.s, &p, err) != 0)
				_exit(4);
		}
		if (batch && store_commit(f.s, err) != 0)
			_exit(5);
		if (write(say, batch ? "3" : "1", 1) != 1)
			_exit(6);
	}
}

/* Kills the writer `ms` after its first row; returns how many rows it had said. */
static int kill_a_writer(int round, int ms)
{
	int ends[2], said = 0;
	char c;
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(ends[0]);
		write_for_ever(round, ends[1]);
	}
	close(ends[1]);
	for (bool killed = false; read(ends[0], &c, 1) == 1;) {
		said += c - '0';
		if (!killed) {
			usleep((useconds_t)ms * 1000);
			kill(pid, SIGKILL);
			killed = true;
		}
	}
	close(ends[0]);
	int status;
	waitpid(pid, &status, 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return said;
}

/* Each killed writer may have committed up to one batch (3) that it could not say any more; nothing said may be missing. */
static void kill_9_loses_nothing_committed(void **state)
{
	(void)state;
	enum { KILLS = 30 };
	int said = 0;
	struct rng rng = rng_seed(11, 0);
	for (int i = 0; i < KILLS; i++) {
		said += kill_a_writer(i, (int)rng_below(&rng, 60));
		if (i % 3 == 0) { /* a reader right after the kill: rolls the journal back by itself */
			struct store *s;
			if (store_open_read(&s, path, err) != 0)
				fail_msg("after kill %d: %s", i, err);
			store_close(s);
		}
	}
	int64_t rows = ask_sql(path, "SELECT count(*) FROM sample");
	print_message("%d kills: %d rows said, %lld stored\n", KILLS, said, (long long)rows);
	assert_true(rows >= said && rows <= said + 3 * KILLS);
	assert_int_equal(ask_sql(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
	assert_int_equal(ask_sql(path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
	/* batches are whole: i % 4 = 3 has three rows or none */
	assert_int_equal(ask_sql(path, "SELECT count(*) FROM (SELECT count(*) AS n, substr(sample_id, 5, 6) % 4 AS k FROM sample"
				       " GROUP BY substr(sample_id, 1, 10), run_id) WHERE n <> iif(k = 3, 3, 1)"),
		0);
}

/* ---- migration ---- */

/* The file as a program of that version left it. */
static void make_version(int version)
{
	char *sql, fixture[64];
	size_t len;
	snprintf(fixture, sizeof fixture, "tests/fixtures/store/v%d.sql", version);
	assert_int_equal(file_read(fixture, &sql, &len, err), 0);
	run_sql(sql);
	free(sql);
}

static int sum_timing(void *user, const struct timing_row *t)
{
	*(int64_t *)user += t->duration_ns;
	return 0;
}

static void check_old_rows(struct store *s)
{
	int64_t sum = 0;
	struct cell_row c = only_cell(s);
	char cell[SHA_LEN];
	memset(cell, 'e', SHA_LEN - 1);
	cell[SHA_LEN - 1] = 0;
	assert_true(c.ok == 1 && c.score_mean == 1 && c.timing_repetitions == 1);
	assert_int_equal(store_timings(s, cell, sum_timing, &sum, err), 0);
	assert_int_equal(sum, 1900);
}

/* Tables and columns are those of a new file, whichever way they came about. */
static void check_tables_as_new(void)
{
	static const char shape[] = "SELECT group_concat(x, ';') FROM (SELECT m.name || '.' || c.name || ' ' || c.type || ' ' ||"
				    " c.\"notnull\" || ' ' || c.pk AS x FROM sqlite_master m, pragma_table_info(m.name) c"
				    " WHERE m.type = 'table' ORDER BY m.name, c.cid)";
	char other[160], sql[512];
	struct store *s;
	snprintf(other, sizeof other, "%s/new.db", folder);
	assert_int_equal(store_open(&s, other, err), 0);
	store_close(s);
	sqlite3 *db;
	sqlite3_stmt *st;
	char *texts[2];
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sqlite3_open(i ? other : path, &db), SQLITE_OK);
		assert_int_equal(sqlite3_prepare_v2(db, shape, -1, &st, NULL), SQLITE_OK);
		assert_int_equal(sqlite3_step(st), SQLITE_ROW);
		texts[i] = text_copy((const char *)sqlite3_column_text(st, 0));
		sqlite3_finalize(st);
		sqlite3_close(db);
	}
	assert_string_equal(texts[0], texts[1]);
	assert_true(strlen(texts[0]) > 2000);
	snprintf(sql, sizeof sql, "SELECT count(*) FROM pragma_foreign_key_check");
	assert_int_equal(ask_sql(path, sql), 0);
	free(texts[0]);
	free(texts[1]);
}

/* Opened for writing or for reading: brought to today's version in place, a copy beside it, nothing lost. */
static void old_versions_are_upgraded(void **state)
{
	(void)state;
	struct store *s;
	char copy[160];
	for (int i = 0; i < 2 * (STORE_VERSION - 1); i++) {
		int version = 1 + i / 2;
		make_version(version);
		if ((i % 2 ? store_open_read : store_open)(&s, path, err) != 0)
			fail_msg("%s", err);
		check_old_rows(s);
		store_close(s);
		assert_int_equal(ask_sql(path, "PRAGMA user_version"), STORE_VERSION);
		check_tables_as_new();
		run_sql("UPDATE cell SET topology = 'emulated-shared+offload+cudnn'"); /* allowed since version 4 */
		assert_int_equal(ask_sql(path, "SELECT count(*) FROM cell WHERE topology = 'emulated-shared+offload+cudnn'"), 1);
		snprintf(copy, sizeof copy, "%s.v%d", path, version);
		assert_int_equal(ask_sql(copy, "PRAGMA user_version"), version);
		assert_int_equal(ask_sql(copy, "SELECT count(*) FROM timing"), 2);
		unlink(path);
	}
}

/* While its writer is at work, a reader of an old file says why it cannot. */
static void a_locked_version_1(void **state)
{
	(void)state;
	struct store *s;
	char lock[160];
	make_version(1);
	snprintf(lock, sizeof lock, "%s.lock", path);
	int fd = open(lock, O_RDWR | O_CREAT, 0666);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(store_open_read(&s, path, err), -1);
	assert_non_null(strstr(err, "schema version 1"));
	assert_non_null(strstr(err, "another kvbench is writing"));
	close(fd);
	assert_int_equal(ask_sql(path, "PRAGMA user_version"), 1);
}

/* A step that adds a column: rows stay, the copy holds the old file, a new file gets the newest tables at once. */
static void migration_keeps_rows(void **state)
{
	(void)state;
	struct fixture f;
	char copy[160];
	static const char *const steps[] = {[STORE_VERSION - 1] = "ALTER TABLE sample ADD COLUMN note TEXT NOT NULL DEFAULT 'old'"};
	struct store_schema next = {STORE_VERSION + 1, results_schema_sql, steps};
	open_filled(&f);
	put_ok(&f, "s1");
	store_close(f.s);
	assert_int_equal(store_open_schema(&f.s, path, &next, err), 0);
	assert_true(store_has_sample(f.s, f.cell, "s1", NULL));
	store_close(f.s);
	assert_int_equal(ask_sql(path, "PRAGMA user_version"), STORE_VERSION + 1);
	assert_int_equal(ask_sql(path, "SELECT count(*) FROM sample WHERE note = 'old'"), 1);
	snprintf(copy, sizeof copy, "%s.v%d", path, STORE_VERSION);
	assert_int_equal(ask_sql(copy, "PRAGMA user_version"), STORE_VERSION);
	assert_int_equal(ask_sql(copy, "PRAGMA application_id"), 0x4B56424E);
	assert_int_equal(ask_sql(copy, "SELECT count(*) FROM sample"), 1);
	assert_int_equal(store_open(&f.s, path, err), -1); /* and the older program refuses it */
	snprintf(copy, sizeof copy, "schema version %d, ", STORE_VERSION + 1);
	assert_non_null(strstr(err, copy));
}

/* The second of two steps fails: the first is undone with it, the version stays, the old program still reads the file. */
static void a_failed_migration_changes_nothing(void **state)
{
	(void)state;
	struct fixture f;
	static const char *const steps[] = {
		[STORE_VERSION - 1] = "ALTER TABLE sample ADD COLUMN note TEXT", [STORE_VERSION] = "UPDATE nowhere SET x = 1"};
	char from[48];
	struct store_schema next = {STORE_VERSION + 2, results_schema_sql, steps};
	open_filled(&f);
	put_ok(&f, "s1");
	store_close(f.s);
	assert_int_equal(store_open_schema(&f.s, path, &next, err), -1);
	snprintf(from, sizeof from, "from version %d to %d", STORE_VERSION + 1, STORE_VERSION + 2);
	assert_non_null(strstr(err, from));
	assert_non_null(strstr(err, "nowhere"));
	assert_int_equal(store_open(&f.s, path, err), 0);
	assert_true(store_has_sample(f.s, f.cell, "s1", NULL));
	store_close(f.s);
	assert_int_equal(ask_sql(path, "SELECT count(*) FROM pragma_table_info('sample') WHERE name = 'note'"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(rows_come_back), TEST(foreign_counts), TEST(the_suites_columns), TEST(scores_alone_change),
		TEST(identity_of_a_task), TEST(names_and_early_end), TEST(only_failures_are_replaced), TEST(counters),
		TEST(constraints_hold), TEST(identity_of_a_cell), TEST(identity_is_canonical_json), TEST(timings_of_one_run),
		TEST(settings_of_the_newest_run),
		TEST(a_plan_without_keys_has_an_empty_name), TEST(a_batch_is_one_commit), TEST(batches_are_quick), TEST(second_writer),
		TEST(not_a_database), TEST(a_database_of_somebody_else), TEST(a_newer_version), TEST(reading_nothing),
		TEST(a_missing_folder), TEST(read_only_folder), TEST(read_only_file), TEST(disk_full), TEST(file_size_limit),
		TEST(kill_9_loses_nothing_committed), TEST(old_versions_are_upgraded),
		TEST(a_locked_version_1), TEST(migration_keeps_rows), TEST(a_failed_migration_changes_nothing)};
	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
