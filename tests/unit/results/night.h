/* night.h: databases of nights, made row by row: what a run of three methods on 40 contexts x 10 questions would leave, with
 * planted changes. */
#ifndef KVB_TEST_NIGHT_H
#define KVB_TEST_NIGHT_H

#include "results/compare.h"

#include "tests/unit/test.h"

#include <unistd.h>

enum { NIGHT_CONTEXTS = 40, NIGHT_QUESTIONS = 10, NIGHT_ROUNDS = 9 };

struct night_plan {                                                                /* all zero: the plain night */
	const char *host, *precision, *protocol, *prompt, *params, *omit, *commit; /* omit: a method that was not run */
	int scorer, measure, contexts, rounds, seed; /* contexts, rounds: 0 = as above, negative = none */
	double lost;                                 /* share of snapkv's right answers that became wrong */
	double slower, all_slower;                   /* snapkv's TTFT, everybody's: 0.1 = 10 % more */
	double waited;                               /* share of the time threads had no core; 0 = not known */
	double busy;                                 /* how far other work slows rounds down; 0 = up to .2 of the time */
	int failed, other_answers;                   /* of kvzip's samples: not a number; other words, same score */
	bool infinite;                               /* one score of kvzip */
	bool unended;                                /* the run was killed */
	int exit_code;
};

static char night_folder[64], err[ERR_LEN];

static int night_setup(void **state)
{
	(void)state;
	strcpy(night_folder, "/tmp/kvb_night.XXXXXX");
	*err = 0;
	return mkdtemp(night_folder) ? 0 : -1;
}

static int night_teardown(void **state)
{
	(void)state;
	char *command = text_format("rm -rf %s", night_folder);
	int rc = system(command);
	free(command);
	return rc;
}

#define MUST(call)                                                                                                               \
	do {                                                                                                                     \
		if ((call) != 0)                                                                                                 \
			fail_msg("%s", err);                                                                                     \
	} while (0)

static const char *or_else(const char *text, const char *otherwise)
{
	return text ? text : otherwise;
}

static void night_samples(struct store *s, const struct night_plan *n, const char *method, const char *cell, const char *run)
{
	bool snapkv = !strcmp(method, "snapkv"), kvzip = !strcmp(method, "kvzip");
	struct rng rng = rng_seed(1, (uint64_t)method[0]), loss = rng_seed(2, (uint64_t)n->seed);
	int contexts = n->contexts ? n->contexts : NIGHT_CONTEXTS;
	for (int i = 0; i < contexts * NIGHT_QUESTIONS; i++) {
		char id[16], context[16], prompt[32];
		bool right = rng_unit(&rng) < (snapkv ? .6 : .95), lost = rng_unit(&loss) < n->lost;
		snprintf(id, sizeof id, "s%04d", i);
		snprintf(context, sizeof context, "c%02d", i / NIGHT_QUESTIONS);
		snprintf(prompt, sizeof prompt, "%s%d", or_else(n->prompt, "p"), i);
		right = right && !(snapkv && lost);
		bool failed = kvzip && i < n->failed, other = kvzip && i >= n->failed && i < n->failed + n->other_answers;
		struct store_sample p = {.cell_id = cell,
			.run_id = run,
			.sample_id = id,
			.context_id = context,
			.status = failed ? "failed" : "ok",
			.message = failed ? "the scores are not a number" : "",
			.prompt_sha256 = prompt,
			.answer = right ? "blue" : "red",
			.answer_ids = other   ? "[9]"
				      : right ? "[5]"
					      : "[6]",
			.gold = "[\"blue\"]",
			.question = "which?",
			.metric = "all",
			.score = failed ? NAN : right,
			.also_score = NAN,
			.scorer_version = n->scorer ? n->scorer : 2,
			.context_tokens = 100,
			.depth = NAN,
			.needle_token = -1,
			.needle_char = -1};
		if (kvzip && n->infinite && i == 7)
			p.score = INFINITY;
		MUST(store_put_sample(s, &p, err));
	}
}

static void night_times(struct store *s, const struct night_plan *n, const char *method, const char *cell, const char *run)
{
	double level = !strcmp(method, "full") ? 1 : !strcmp(method, "snapkv") ? 1.15 * (1 + n->slower) : 3.5;
	struct rng busy = rng_seed(5, (uint64_t)n->seed), own = rng_seed(6 + (uint64_t)n->seed, (uint64_t)method[0]);
	int rounds = n->rounds ? n->rounds : NIGHT_ROUNDS;
	for (int i = 0; i < rounds; i++) {
		double slow = 1 + (n->busy > 0 ? n->busy : .2) * rng_unit(&busy), noise = 1 + .02 * rng_unit(&own);
		struct store_timing t = {.cell_id = cell,
			.run_id = run,
			.phase = "ttft",
			.repetition = i,
			.duration_ns = (int64_t)(5e7 * level * slow * noise * (1 + n->all_slower)),
			.tokens = 1024};
		MUST(store_put_timings(s, &t, 1, err));
	}
	if (n->waited > 0)
		MUST(store_put_fact(s, &(struct store_fact){cell, run, "waited_ppm", (int64_t)(1e6 * n->waited)}, err));
}

/* Fresh path in the test's folder. */
static char *night_make(const char *name, struct night_plan n)
{
	static const char *const methods[] = {"full", "kvzip", "snapkv"};
	char *path = text_format("%s/%s.db", night_folder, name), env[SHA_LEN], model[SHA_LEN], method[SHA_LEN], task[SHA_LEN],
	     cell[SHA_LEN], run[33];
	struct store *s;
	struct store_env e = {.host = or_else(n.host, "host"), .cpu = "cpu", .threads = 2, .commit = or_else(n.commit, "c0ffee")};
	struct store_model m = {.role = "target", .name = "tiny", .dtype = "fp32", .sha256 = "ab", .layers = 1, .kv_heads = 1};
	struct store_task t = {.name = "niah", .metric = "all", .version = 1, .binary_metric = true};
	MUST(store_open(&s, path, err));
	MUST(store_put_env(s, &e, env, err));
	MUST(store_put_model(s, &m, model, err));
	MUST(store_put_task(s, &t, task, err));
	MUST(store_run_begin(s, env, "[\"kvbench\",\"run\",\"p lan.json\",\"--db=x.db\",\"--threads=2\"]",
		"{\"tasks\":[{\"name\":\"niah\",\"contexts\":40},\"other\"],\"methods\":[\"snapkv\",{\"method\":\"kvzip\","
		"\"options\":{\"chunk\":8}}]}",
		run, err));
	MUST(store_begin(s, err));
	for (int i = 0; i < 3; i++) {
		struct store_method x = {
			.name = methods[i], .params = i == 2 ? or_else(n.params, "{\"window\":32}") : "{}", .version = 1};
		if (n.omit && !strcmp(n.omit, methods[i]))
			continue;
		MUST(store_put_method(s, &x, method, err));
		struct store_cell c = {.target_id = model,
			.task_id = task,
			.method_id = method,
			.retained_ppm = i ? 300000 : 1000000,
			.context_tokens = 1024,
			.protocol = or_else(n.protocol, "agnostic"),
			.mode = "single",
			.topology = "cpu",
			.precision = or_else(n.precision, "fp32"),
			.seed = 1,
			.measure_version = n.measure ? n.measure : 1,
			.samples_planned = NIGHT_CONTEXTS * NIGHT_QUESTIONS};
		MUST(store_put_cell(s, &c, cell, err));
		night_samples(s, &n, methods[i], cell, run);
		night_times(s, &n, methods[i], cell, run);
	}
	MUST(store_commit(s, err));
	if (!n.unended)
		MUST(store_run_end(s, run, n.exit_code, err));
	store_close(s);
	return path;
}

#define NIGHT_TEST(name) cmocka_unit_test_setup_teardown(name, night_setup, night_teardown)

#endif
