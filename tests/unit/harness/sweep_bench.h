/* sweep_bench.h: a plan, a database, a sweep on the stub runner: what the tests of the sweep share. */
#ifndef KVB_SWEEP_BENCH_H
#define KVB_SWEEP_BENCH_H

#include "tests/unit/test.h"
#include "tests/unit/harness/stub_runner.h"

#include "harness/sweep.h"

#include <unistd.h>

static char folder[64]; /* of the test program: made and removed by bench_tests */

struct bench { /* a plan with its database */
	struct plan plan;
	struct store *store;
	struct progress progress;
	struct sweep sweep;
	char run_id[33], *db;
	int rc;
};

static inline void bench_plan(struct bench *b, const char *text, const char *const *set, int n)
{
	char err[ERR_LEN] = "", *path = text_format("%s/plan.json", folder);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	if (plan_read(&b->plan, path, set, n, err))
		fail_msg("%s", err);
	free(path);
}

/* One process: opens the database, sweeps, closes. */
static inline void bench_run(struct bench *b, const char *text, const char *name, const char *const *set, int n)
{
	char err[ERR_LEN] = "", env[SHA_LEN];
	bench_plan(b, text, set, n);
	b->db = text_format("%s/%s.db", folder, name);
	if (store_open(&b->store, b->db, err))
		fail_msg("%s", err);
	struct store_env e = {"h", "o", "c", "i", "cpu", "v", "f", "l", "c", false, 1, 1};
	assert_int_equal(store_put_env(b->store, &e, env, err), 0);
	b->progress = progress_open(true, 2);
	b->sweep = (struct sweep){.plan = &b->plan,
		.store = b->store,
		.present = b->store,
		.run_id = b->run_id,
		.progress = &b->progress,
		.stop = stub_stop};
	lost_open(&b->sweep.lost, &b->plan, &b->sweep.sum);
	if (*b->sweep.lost.run_id)
		memcpy(b->run_id, b->sweep.lost.run_id, sizeof b->run_id);
	else
		assert_int_equal(store_run_begin(b->store, env, "[]", b->plan.json, b->run_id, err), 0);
	b->rc = sweep_run(&b->sweep, err);
	if (b->rc < 0)
		fail_msg("%s", err);
}

static inline void end(struct bench *b)
{
	sweep_free(&b->sweep);
	store_close(b->store);
	plan_free(&b->plan);
	free(b->db);
}

/* Everything the database says of cells and samples, as one text: what two ways of getting there must agree on. */
static inline int dump_sample(void *user, const struct score_row *r)
{
	strbuf_printf(user, "  %s %s %s %.6f %s|%s|%s %d %.4f\n", r->sample_id, r->context_id, r->status, r->score, r->answer,
		r->gold, r->message, r->answer_tokens, r->retained);
	return 0;
}

struct dump {
	struct store *store;
	struct strbuf text;
};

static inline int dump_cell(void *user, const struct cell_row *c)
{
	struct dump *d = user;
	char err[ERR_LEN];
	strbuf_printf(&d->text, "%s %s %s %lld %d %s %d/%d\n", c->cell_id, c->method, c->task, (long long)c->context_tokens,
		c->retained_ppm, c->protocol, c->ok, c->planned);
	return store_samples(d->store, c->cell_id, dump_sample, &d->text, err);
}

static inline char *dump(struct store *s)
{
	struct dump d = {.store = s};
	char err[ERR_LEN];
	assert_int_equal(store_cells(s, dump_cell, &d, err), 0);
	return strbuf_take(&d.text);
}

static inline int reset(void **state)
{
	(void)state;
	stub = (struct stub){0};
	return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

/* Runs the tests in a fresh folder. */
#define bench_tests(tests) (bench_folder() ? 1 : bench_clean(cmocka_run_group_tests(tests, NULL, NULL)))

static inline int bench_folder(void)
{
	snprintf(folder, sizeof folder, "%s/kvbench-sweep-XXXXXX",
		access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"); /* many small commits */
	return !mkdtemp(folder);
}

static inline int bench_clean(int failed)
{
	char *clean = text_format("rm -rf %s", folder);
	if (system(clean))
		fprintf(stderr, "%s stays behind\n", folder);
	free(clean);
	return failed;
}

#endif
