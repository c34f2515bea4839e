/* test_sweep.c: a plan becomes rows: counted, resumed, failed, checked, timed. The runner is a stub that can be told to
 * misbehave. */
#include "harness/environment.h"
#include "tests/unit/harness/sweep_bench.h"

#include "harness/dryrun.h"

/* 2 contexts x 3 questions; full + (random, snapkv) x (.3, 1): 5 variants, 2 protocols: 10 cells, 60 samples. */
static const char plan_text[] =
	"{\"targets\": [\"m\"], \"tasks\": [{\"name\": \"niah-multikey\", \"lengths\": [200], \"contexts\": 2, \"questions\": "
	"3}],"
	" \"methods\": [\"snapkv\"], \"retained\": [0.3, 1], \"protocols\": [\"agnostic\", \"aware\"],"
	" \"timing\": {\"enabled\": false, \"warmup\": 2, \"retained\": [0.3], \"protocols\": [\"agnostic\"]}}";
enum { CELLS = 10, SAMPLES = 60 };

static void run_once(struct bench *b, const char *name, const char *const *set, int n)
{
	bench_run(b, plan_text, name, set, n);
}

static int sum_counts(void *user, const struct cell_row *c)
{
	int *sums = user; /* cells, planned, ok, failed, oom */
	const int parts[] = {1, c->planned, c->ok, c->failed, c->oom};
	for (int i = 0; i < 5; i++)
		sums[i] += parts[i];
	return 0;
}

static void check_counts(const struct bench *b, int cells, int planned, int ok, int failed, int oom)
{
	int sums[5] = {0};
	char err[ERR_LEN];
	assert_int_equal(store_cells(b->store, sum_counts, sums, err), 0);
	assert_int_equal(sums[0], cells);
	assert_int_equal(sums[1], planned);
	assert_int_equal(sums[2], ok);
	assert_int_equal(sums[3], failed);
	assert_int_equal(sums[4], oom);
}

static void test_every_cell_and_sample_is_a_row(void **state)
{
	(void)state;
	struct bench b;
	run_once(&b, "whole", NULL, 0);
	assert_int_equal(b.rc, 0);
	assert_int_equal(b.sweep.sum.cells, CELLS);
	assert_int_equal(b.sweep.sum.samples, SAMPLES);
	assert_int_equal(b.sweep.sum.missing, SAMPLES);
	assert_int_equal(b.sweep.sum.ok, SAMPLES);
	assert_false(sweep_failed(&b.sweep.sum));
	check_counts(&b, CELLS, SAMPLES, SAMPLES, 0, 0);
	assert_int_equal(stub.jobs, 4); /* one job for each context and protocol, whatever the number of variants */
	assert_int_equal(stub.opens, 1);
	end(&b);
}

static int full_scores_one(void *user, const struct cell_row *c)
{
	bool random = !strcmp(c->method, "random") && c->retained_ppm < 1000000;
	*(bool *)user = *(bool *)user && (random ? c->score_mean < 1 && c->empty > 0 : c->score_mean == 1);
	return 0;
}

static void test_answers_are_scored_and_empty_ones_counted(void **state)
{
	(void)state;
	struct bench b;
	char err[ERR_LEN];
	bool right = true;
	run_once(&b, "scored", NULL, 0);
	assert_int_equal(store_cells(b.store, full_scores_one, &right, err), 0);
	assert_true(right);
	assert_true(b.sweep.sum.empty > 0);
	end(&b);
}

static void test_the_same_command_asks_nothing_twice(void **state)
{
	(void)state;
	struct bench b;
	run_once(&b, "twice", NULL, 0);
	end(&b);
	run_once(&b, "twice", NULL, 0);
	assert_int_equal(stub.answers, SAMPLES);
	assert_int_equal(stub.jobs, 4);
	assert_int_equal(b.sweep.sum.missing, 0);
	end(&b);
	run_once(
		&b, "twice", (const char *[]){"methods=snapkv,kvzip"}, 1); /* a method more: only its own answers are asked for */
	assert_int_equal(stub.answers, SAMPLES + 2 * 2 * 6);
	end(&b);
}

/* Stopped after every 7th answer and started again until done: the same rows as in one go. */
static void test_stopped_and_resumed_equals_one_go(void **state)
{
	(void)state;
	struct bench b;
	run_once(&b, "one-go", NULL, 0);
	char *whole = dump(b.store);
	end(&b);
	stub.answers = 0;
	int runs = 0;
	do {
		stub.stop_after = stub.answers + 7;
		run_once(&b, "pieces", NULL, 0);
		runs++;
		char *text = dump(b.store);
		if (!b.rc)
			assert_string_equal(text, whole);
		free(text);
		end(&b);
	} while (b.rc == 1);
	assert_int_equal(runs, SAMPLES / 7 + 1);
	assert_int_equal(stub.answers, SAMPLES); /* what was answered before the stop was kept */
	free(whole);
}

static void test_a_failed_sample_is_a_row_and_is_tried_again(void **state)
{
	(void)state;
	struct bench b;
	stub.failing = "snapkv";
	run_once(&b, "failing", NULL, 0);
	assert_int_equal(b.rc, 0);
	assert_true(sweep_failed(&b.sweep.sum));
	check_counts(&b, CELLS, SAMPLES, 36, 24, 0);
	char *text = dump(b.store);
	assert_non_null(strstr(text, "as the test asked"));
	free(text);
	end(&b);
	stub.failing = NULL;
	run_once(&b, "failing", NULL, 0);
	assert_int_equal(b.sweep.sum.ok, 24);
	assert_false(sweep_failed(&b.sweep.sum));
	check_counts(&b, CELLS, SAMPLES, SAMPLES, 0, 0);
	end(&b);
}

/* Runs until no process is wanted any more, as exec would; returns how many there were. The last one is left open. */
static int run_processes(struct bench *b, const char *name, const char *const *set, int n)
{
	int processes = 0;
	do {
		if (processes)
			end(b);
		run_once(b, name, set, n);
		processes++;
		assert_true(processes < 20);
		if (b->rc == SWEEP_LOST)
			lost_hand_over(&b->sweep.lost, b->run_id, &b->sweep.sum);
	} while (b->rc == SWEEP_LOST);
	return processes;
}

/* One method loses the device wherever it runs: it is set aside after two contexts, and every cell of the others is answered. */
static void test_a_method_that_loses_the_device_stops_no_other(void **state)
{
	(void)state;
	struct bench b;
	stub.losing = "snapkv";
	int processes = run_processes(&b, "losing", NULL, 0);
	assert_int_equal(b.rc, SWEEP_DONE);
	assert_int_equal(processes, 5); /* two contexts: all methods, then it alone */
	check_counts(&b, CELLS, SAMPLES, 36, 24, 0);
	assert_int_equal(b.sweep.sum.ok, 36); /* counted over all processes */
	assert_int_equal(b.sweep.sum.failed, 24);
	assert_int_equal(b.sweep.sum.missing, SAMPLES);
	assert_true(sweep_failed(&b.sweep.sum));
	char *text = dump(b.store);
	assert_non_null(strstr(text, "the device is lost"));
	assert_non_null(strstr(text, "not run: snapkv lost the device twice in a row (cudaErrorTest)"));
	free(text);
	end(&b);
	stub.losing = NULL; /* the same command tries what failed again */
	run_once(&b, "losing", NULL, 0);
	check_counts(&b, CELLS, SAMPLES, SAMPLES, 0, 0);
	end(&b);
}

/* Lost once, in the middle of a job: what was answered stays, the rest is answered by the next process, nothing fails. */
static void test_a_device_lost_once_costs_nothing(void **state)
{
	(void)state;
	struct bench b;
	run_once(&b, "undisturbed", NULL, 0);
	char *whole = dump(b.store);
	end(&b);
	stub.losing = "random";
	stub.lose_after = 8;
	run_once(&b, "once", NULL, 0);
	assert_int_equal(b.rc, SWEEP_LOST);
	assert_int_equal(b.sweep.sum.failed, 0); /* several methods ran: charged to none */
	stub.losing = NULL;
	lost_hand_over(&b.sweep.lost, b.run_id, &b.sweep.sum);
	end(&b);
	run_once(&b, "once", NULL, 0);
	assert_int_equal(b.rc, SWEEP_DONE);
	assert_false(sweep_failed(&b.sweep.sum));
	char *text = dump(b.store);
	assert_string_equal(text, whole);
	free(text), free(whole);
	end(&b);
}

/* Whatever runs loses it: two methods in a row, and the sweep ends with the reason. */
static void test_a_device_that_is_always_lost_ends_the_sweep(void **state)
{
	(void)state;
	struct bench b;
	stub.losing = "*";
	assert_int_equal(run_processes(&b, "gone", NULL, 0), 3); /* all together, full, random */
	assert_int_equal(b.rc, SWEEP_GIVEN_UP);
	assert_non_null(strstr(b.sweep.lost.why, "twice in a row by the same error (cudaErrorTest): by full, then by random"));
	check_counts(&b, CELLS, SAMPLES, 0, 9, 0); /* one context of full and of random at two ratios */
	end(&b);
}

/* Its cells say so, it is not loaded again by this run, and the others are answered; the same command tries it again. */
static void test_a_device_lost_while_loading(void **state)
{
	(void)state;
	struct bench b;
	const char *const set[] = {"targets=a,b,c"};
	stub.losing_target = "b";
	assert_int_equal(run_processes(&b, "loading", set, 1), 2);
	assert_int_equal(b.rc, SWEEP_DONE);
	assert_int_equal(stub.opens, 4); /* a b, a c */
	check_counts(&b, 3 * CELLS, 3 * SAMPLES, 2 * SAMPLES, SAMPLES, 0);
	const struct sweep_summary *sum = &b.sweep.sum;
	assert_int_equal(sum->cells, 3 * CELLS); /* counted over both processes */
	assert_int_equal(sum->samples, 3 * SAMPLES);
	assert_int_equal(sum->missing, 3 * SAMPLES);
	assert_int_equal(sum->ok, 2 * SAMPLES);
	assert_int_equal(sum->failed, SAMPLES);
	assert_int_equal(sum->loads_failed, 1);
	char *text = dump(b.store);
	assert_non_null(strstr(text, "not run: the device was lost while the model was loaded: the device is lost"));
	free(text);
	end(&b);
	stub.losing_target = NULL;
	run_once(&b, "loading", set, 1);
	assert_int_equal(b.sweep.sum.ok, SAMPLES);
	assert_false(sweep_failed(&b.sweep.sum));
	end(&b);
}

/* Two models in a row: the sweep ends with the reason; the third is not tried. */
static void test_a_device_lost_while_loading_two_models(void **state)
{
	(void)state;
	struct bench b;
	stub.losing_target = "*";
	assert_int_equal(run_processes(&b, "loading-two", (const char *[]){"targets=a,b,c"}, 1), 2);
	assert_int_equal(b.rc, SWEEP_GIVEN_UP);
	assert_int_equal(stub.opens, 2);
	assert_non_null(strstr(b.sweep.lost.why,
		"twice in a row by the same error (cudaErrorTest): by loading a (bf16), then by loading b (bf16)"));
	check_counts(&b, 2 * CELLS, 2 * SAMPLES, 0, 2 * SAMPLES, 0);
	end(&b);
}

/* The new process does not find the device: no other takes its place. */
static void test_a_lost_device_must_come_back(void **state)
{
	(void)state;
	struct bench b;
	stub.losing = "*";
	run_once(&b, "away", NULL, 0);
	assert_int_equal(b.rc, SWEEP_LOST);
	strcpy(b.sweep.lost.device, "cuda:0"); /* what the stub calls auto is the CPU */
	lost_hand_over(&b.sweep.lost, b.run_id, &b.sweep.sum);
	end(&b);
	stub.losing = NULL;
	run_once(&b, "away", NULL, 0);
	assert_int_equal(b.rc, SWEEP_GIVEN_UP);
	assert_non_null(strstr(b.sweep.lost.why, "cuda:0 was lost and cannot be opened again: cpu is"));
	check_counts(&b, CELLS, SAMPLES, 0, 0, 0);
	end(&b);
}

static void test_out_of_memory_is_a_row(void **state)
{
	(void)state;
	struct bench b;
	stub.oom = "snapkv";
	run_once(&b, "oom", NULL, 0);
	check_counts(&b, CELLS, SAMPLES, 36, 0, 24);
	assert_int_equal(b.sweep.sum.oom, 24);
	end(&b);
}

static void test_a_context_that_cannot_be_had_fails_its_samples(void **state)
{
	(void)state;
	struct bench b;
	stub.job_fails = true;
	run_once(&b, "job", NULL, 0);
	check_counts(&b, CELLS, SAMPLES, 0, SAMPLES, 0);
	char *text = dump(b.store);
	assert_non_null(strstr(text, "the context does not fit"));
	free(text);
	end(&b);
}

static void test_pruning_that_did_not_take_place_fails(void **state)
{
	(void)state;
	struct bench b;
	stub.unpruned = "snapkv";
	run_once(&b, "unpruned", NULL, 0);
	check_counts(&b, CELLS, SAMPLES, 48, 12, 0); /* snapkv at .3; at 1 all entries are right */
	char *text = dump(b.store);
	assert_non_null(strstr(text, "pruning did not take place"));
	free(text);
	end(&b);
}

static void test_nan_scores_fail(void **state)
{
	(void)state;
	struct bench b;
	stub.with_nan = "snapkv";
	run_once(&b, "nan", NULL, 0);
	check_counts(&b, CELLS, SAMPLES, 36, 24, 0);
	end(&b);
}

static void test_r_one_must_equal_the_full_cache(void **state)
{
	(void)state;
	struct bench b;
	stub.unequal = "snapkv";
	run_once(&b, "unequal", NULL, 0);
	assert_int_equal(b.sweep.sum.not_equal_to_full, 12);
	assert_true(sweep_failed(&b.sweep.sum));
	assert_non_null(strstr(b.sweep.sum.notes.text, "snapkv at r = 1 gives 6 answers that differ"));
	end(&b);
	stub.unequal = NULL;
	run_once(&b, "unequal", NULL, 0); /* found again on resume, from the rows alone */
	assert_int_equal(b.sweep.sum.not_equal_to_full, 12);
	end(&b);
}

static void test_a_model_that_cannot_be_loaded_does_not_stop_the_others(void **state)
{
	(void)state;
	struct bench b;
	stub.bad_target = "gone";
	run_once(&b, "load", (const char *[]){"targets=gone,m"}, 1);
	assert_int_equal(b.sweep.sum.loads_failed, 1);
	assert_true(sweep_failed(&b.sweep.sum));
	check_counts(&b, CELLS, SAMPLES, SAMPLES, 0, 0);
	end(&b);
}

static void test_a_task_that_cannot_be_had_does_not_stop_the_others(void **state)
{
	(void)state;
	struct bench b;
	run_once(&b, "task",
		(const char *[]){"tasks=[{\"name\":\"jsonl\",\"path\":\"/"
				 "gone.jsonl\"},{\"name\":\"niah-single\",\"lengths\":100,\"contexts\":2}]"},
		1);
	assert_int_equal(b.sweep.sum.contexts_failed, 2);
	assert_non_null(strstr(b.sweep.sum.notes.text, "/gone.jsonl"));
	check_counts(&b, CELLS, 20, 20, 0, 0);
	end(&b);
}

/* ---- the timing pass ---- */

static int count_rows(void *user, const struct timing_row *r)
{
	int *n = user; /* ttft rows: warm-up, measured */
	n[r->warmup ? 0 : 1] += !strcmp(r->phase, "ttft");
	return 0;
}

/* The stub's arithmetic at the stub's peak: 1e6 and, for kvzip, 2e6 at 1e10 FLOP/s; and how long this process waited for a core. */
static int check_fact(void *user, const char *name, int64_t value)
{
	int *n = user; /* prefill, second pass, waited */
	int which = !strcmp(name, "prefill_floor_ns") ? 0 : !strcmp(name, "second_pass_floor_ns") ? 1 : 2;
	if (which < 2)
		assert_int_equal(value, which ? 200000 : 100000);
	n[which]++;
	return 0;
}

static int check_facts(void *user, const struct cell_row *c)
{
	struct bench *b = user;
	int n[3] = {0};
	char err[ERR_LEN];
	bool timed = !strcmp(c->protocol, "agnostic") && (c->retained_ppm == 300000 || !strcmp(c->method, "full"));
	assert_int_equal(store_facts_of(b->store, c->cell_id, NULL, check_fact, n, err), 0);
	assert_int_equal(n[0], timed);
	assert_int_equal(n[1], timed && !strcmp(c->method, "kvzip"));
	assert_int_equal(n[2], timed && environment_waited_ns() >= 0);
	return 0;
}

static int check_timed(void *user, const struct cell_row *c)
{
	struct bench *b = user;
	int n[2] = {0};
	char err[ERR_LEN];
	bool timed = !strcmp(c->protocol, "agnostic") && (c->retained_ppm == 300000 || !strcmp(c->method, "full"));
	assert_int_equal(store_timings(b->store, c->cell_id, count_rows, n, err), 0);
	assert_int_equal(n[0], timed ? 2 : 0);
	assert_int_equal(n[1], timed ? 9 : 0);
	return 0;
}

static void test_timing_is_interleaved_and_rotated(void **state)
{
	(void)state;
	struct bench b;
	char err[ERR_LEN];
	run_once(&b, "timing", (const char *[]){"timing.enabled=true"}, 1);
	assert_int_equal(store_cells(b.store, check_timed, &b, err), 0);
	/* 11 rounds of full, snapkv, random, each beginning one later */
	assert_int_equal(strncmp(stub.timed, "full snapkv random snapkv random full random full snapkv full ", 61), 0);
	end(&b);
	stub.timed[0] = 0;
	run_once(&b, "timing", (const char *[]){"timing.enabled=true"}, 1);
	assert_string_equal(stub.timed, ""); /* not measured again */
	end(&b);
	run_once(&b, "timing", (const char *[]){"timing.enabled=true", "methods=snapkv,kvzip"}, 2);
	assert_non_null(strstr(stub.timed, "full ")); /* a method more: all of the group again, in one process */
	assert_non_null(strstr(stub.timed, "kvzip "));
	assert_int_equal(store_cells(b.store, check_facts, &b, err), 0);
	end(&b);
}

static int count_timed(void *user, const struct cell_row *c)
{
	void **with = user;
	int *n = with[1]; /* cells with all repetitions: of others, of snapkv */
	n[!strcmp(c->method, "snapkv")] += store_count_timings(with[0], c->cell_id) == 9;
	return 0;
}

static int sum_device_times(void *user, const struct timing_row *t)
{
	*(int64_t *)user += t->warmup ? 0 : t->duration_ns;
	return 0;
}

static int check_device_times(void *user, const struct cell_row *c)
{
	char err[ERR_LEN];
	int64_t sum = 0;
	assert_int_equal(store_device_timings_of(user, c->cell_id, NULL, sum_device_times, &sum, err), 0);
	assert_int_equal(sum, c->timing_repetitions * (9 + 19 + 29 + 39 + 49 + 59 + 204));
	return c->timing_repetitions != 0 && c->timing_repetitions != 9;
}

static void test_both_clocks_are_stored(void **state)
{
	(void)state;
	struct bench b;
	char err[ERR_LEN];
	stub.device_clock = true;
	run_once(&b, "clocks", (const char *[]){"timing.enabled=true"}, 1);
	assert_int_equal(store_cells(b.store, check_device_times, b.store, err), 0);
	end(&b);
}

/* The group is timed afresh by the next process, without the variant that lost the device. */
static void test_a_device_lost_while_timing(void **state)
{
	(void)state;
	struct bench b;
	run_once(&b, "timing-lost", NULL, 0);
	end(&b);
	stub.losing = "snapkv";
	assert_int_equal(run_processes(&b, "timing-lost", (const char *[]){"timing.enabled=true"}, 1), 2);
	assert_int_equal(b.rc, SWEEP_DONE);
	assert_int_equal(b.sweep.sum.timings_failed, 1);
	assert_true(sweep_failed(&b.sweep.sum));
	assert_int_equal(strncmp(stub.timed, "full full random random full full random ", 41), 0);
	int timed[2] = {0};
	char err[ERR_LEN];
	assert_int_equal(store_cells(b.store, count_timed, (void *[]){b.store, timed}, err), 0);
	assert_int_equal(timed[0], 2); /* full, random at .3 */
	assert_int_equal(timed[1], 0);
	end(&b);
}

static void test_what_cannot_be_timed_is_noted_once(void **state)
{
	(void)state;
	struct bench b;
	run_once(&b, "untimed", NULL, 0);
	end(&b);
	stub.failing = "snapkv"; /* answered before, fails now */
	run_once(&b, "untimed", (const char *[]){"timing.enabled=true"}, 1);
	assert_int_equal(b.sweep.sum.timings_failed, 1);
	assert_true(sweep_failed(&b.sweep.sum));
	assert_null(strstr(stub.timed, "snapkv"));
	end(&b);
}

static void test_a_timing_that_cannot_be_true_is_not_stored(void **state)
{
	(void)state;
	struct bench b;
	stub.reuses = true;
	run_once(&b, "reused", (const char *[]){"timing.enabled=true"}, 1);
	assert_int_equal(b.sweep.sum.timings_failed, 3);
	assert_non_null(strstr(b.sweep.sum.notes.text, "a cache was reused"));
	end(&b);
	stub.reuses = false;
	stub.parts_off = true;
	run_once(&b, "parts", (const char *[]){"timing.enabled=true"}, 1);
	assert_int_equal(b.sweep.sum.timings_failed, 3);
	assert_non_null(strstr(b.sweep.sum.notes.text, "the parts sum to 210 ns, the whole is 300 ns"));
	end(&b);
}

static void test_a_stopped_timing_pass_stores_no_half_group(void **state)
{
	(void)state;
	struct bench b;
	run_once(&b, "half", NULL, 0);
	end(&b);
	stub.stop_timing = true;
	run_once(&b, "half", (const char *[]){"timing.enabled=true"}, 1);
	assert_int_equal(b.rc, SWEEP_STOPPED);
	assert_string_equal(stub.timed, "full ");
	end(&b);
	stub.stop_timing = false;
	run_once(&b, "half", (const char *[]){"timing.enabled=true"}, 1);
	char err[ERR_LEN];
	assert_int_equal(store_cells(b.store, check_timed, &b, err), 0);
	end(&b);
}

/* ---- dry run ---- */

static void test_dry_run_measures_nothing(void **state)
{
	(void)state;
	struct bench b, dry = {0};
	char err[ERR_LEN] = "", *ids = text_format("%s/ids.db", folder);
	stub.stop_after = 20;
	run_once(&b, "dry", NULL, 0);
	stub = (struct stub){0};
	bench_plan(&dry, plan_text, NULL, 0);
	struct progress quiet = progress_open(true, 2);
	struct sweep s = {.plan = &dry.plan, .present = b.store, .progress = &quiet, .stop = stub_stop};
	assert_int_equal(store_open(&s.store, ids, err), 0);
	assert_int_equal(dryrun_print(&s, err), 0);
	assert_int_equal(stub.answers, 0);
	assert_int_equal(s.sum.samples, SAMPLES);
	assert_int_equal(s.sum.missing, SAMPLES - 20);
	store_close(s.store);
	sweep_free(&s);
	plan_free(&dry.plan);
	free(ids);
	end(&b);
}

/* A signal is heard while contexts are counted and while the machine is tried; no time is told then. */
static void test_a_dry_run_can_be_stopped(void **state)
{
	(void)state;
	for (int probing = 0; probing < 2; probing++) {
		struct bench dry = {0};
		char err[ERR_LEN] = "", *ids = text_format("%s/stopped%d.db", folder, probing);
		stub = (struct stub){.stop_after = !probing, .answers = !probing, .stop_timing = probing};
		bench_plan(&dry, plan_text, NULL, 0);
		struct progress quiet = progress_open(true, 2);
		struct sweep s = {.plan = &dry.plan, .progress = &quiet, .stop = stub_stop};
		assert_int_equal(store_open(&s.store, ids, err), 0);
		assert_int_equal(dryrun_print(&s, err), SWEEP_STOPPED);
		assert_string_equal(stub.timed, probing ? "full " : "");
		assert_false(stub.timed_unstopped);
		assert_int_equal(s.sum.cells > 0, probing);
		store_close(s.store);
		sweep_free(&s);
		plan_free(&dry.plan);
		free(ids);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_every_cell_and_sample_is_a_row),
		TEST(test_answers_are_scored_and_empty_ones_counted),
		TEST(test_the_same_command_asks_nothing_twice),
		TEST(test_stopped_and_resumed_equals_one_go),
		TEST(test_a_failed_sample_is_a_row_and_is_tried_again),
		TEST(test_a_method_that_loses_the_device_stops_no_other),
		TEST(test_a_device_lost_once_costs_nothing),
		TEST(test_a_device_that_is_always_lost_ends_the_sweep),
		TEST(test_a_lost_device_must_come_back),
		TEST(test_a_device_lost_while_loading),
		TEST(test_a_device_lost_while_loading_two_models),
		TEST(test_a_device_lost_while_timing),
		TEST(test_both_clocks_are_stored),
		TEST(test_out_of_memory_is_a_row),
		TEST(test_a_context_that_cannot_be_had_fails_its_samples),
		TEST(test_pruning_that_did_not_take_place_fails),
		TEST(test_nan_scores_fail),
		TEST(test_r_one_must_equal_the_full_cache),
		TEST(test_a_model_that_cannot_be_loaded_does_not_stop_the_others),
		TEST(test_a_task_that_cannot_be_had_does_not_stop_the_others),
		TEST(test_timing_is_interleaved_and_rotated),
		TEST(test_what_cannot_be_timed_is_noted_once),
		TEST(test_a_timing_that_cannot_be_true_is_not_stored),
		TEST(test_a_stopped_timing_pass_stores_no_half_group),
		TEST(test_dry_run_measures_nothing),
		TEST(test_a_dry_run_can_be_stopped),
	};
	return bench_tests(tests);
}
