/* What version 2 added: trainings and their curves, memory parts, details of times, baselines, nights. */
#include "results/store.h"

#include "tests/unit/test.h"

#include <unistd.h>

static char folder[64], path[128], err[ERR_LEN];
static struct store *s;
static char env[SHA_LEN], model[SHA_LEN], method[SHA_LEN], task[SHA_LEN], cell[SHA_LEN], run[33];

static int make_store(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/kvb_more.XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/r.db", folder);
	struct store_model m = {.role = "target", .name = "tiny", .sha256 = "ab", .layers = 2, .kv_heads = 1};
	struct store_cell c = {
		.retained_ppm = 300000, .protocol = "agnostic", .mode = "single", .topology = "cpu", .precision = "bf16"};
	if (store_open(&s, path, err) || store_put_env(s, &(struct store_env){.host = "h", .ram_bytes = 1 << 30}, env, err) ||
		store_put_model(s, &m, model, err) ||
		store_put_method(s, &(struct store_method){.name = "snapkv"}, method, err) ||
		store_put_task(
			s, &(struct store_task){.name = "t", .metric = "all", .data_sha256 = "dd", .version = 4}, task, err) ||
		store_run_begin(s, env, "[\"kvbench\"]", "{}", run, err))
		fail_msg("%s", err);
	c.target_id = model;
	c.task_id = task;
	c.method_id = method;
	return store_put_cell(s, &c, cell, err);
}

static int remove_store(void **state)
{
	(void)state;
	store_close(s);
	char *command = text_format("rm -rf %s", folder);
	int rc = system(command);
	free(command);
	return rc;
}

/* ---- trainings ---- */

struct seen {
	int rows, nan;
	double sum;
	char text[512];
};

static int see_training(void *user, const struct training_row *t)
{
	struct seen *x = user;
	x->rows++;
	snprintf(x->text, sizeof x->text, "%s %s %s %llu %s|%s %s %s|%s %lld %d", t->kind, t->name, t->config,
		(unsigned long long)t->seed, t->target_sha256, t->proxy_sha256, t->contexts, t->weights_path, t->weights_sha256,
		(long long)t->steps, t->ended_unix_ms > 0);
	return 0;
}

static int see_step(void *user, const char *term, int64_t step, double value)
{
	struct seen *x = user;
	x->rows++;
	if (isnan(value))
		x->nan++;
	else
		x->sum += value * (double)(step + 1);
	size_t n = strlen(x->text);
	snprintf(x->text + n, sizeof x->text - n, "%s%lld ", term, (long long)step);
	return 0;
}

static void a_training_with_its_curves(void **state)
{
	(void)state;
	char id[33], other[33];
	struct store_training t = {.kind = "proxykv",
		.name = "flat",
		.config = "{\"steps\":3}",
		.seed = UINT64_MAX,
		.env_id = env,
		.target_sha256 = "tt",
		.contexts = "[\"c1\",\"c2\"]"};
	assert_int_equal(store_training_begin(s, &t, id, err), 0);
	struct seen before = {0}, after = {0}, steps = {0};
	assert_int_equal(store_trainings(s, see_training, &before, err), 0);
	assert_string_equal(before.text, "proxykv flat {\"steps\":3} 18446744073709551615 tt| [\"c1\",\"c2\"] | -1 0");
	assert_int_equal(store_begin(s, err), 0);
	for (int step = 0; step < 3; step++) {
		assert_int_equal(store_training_step(s, id, step, "loss", 10 - step, err), 0);
		assert_int_equal(store_training_step(s, id, step, "L_bin", step == 1 ? NAN : 1, err), 0);
	}
	assert_int_equal(store_training_step(s, id, 2, "loss", 100, err), 0); /* resumed from step 2 */
	assert_int_equal(store_commit(s, err), 0);
	assert_int_equal(store_training_end(s, id, "w.safetensors", "ww", err), 0);
	assert_int_equal(store_trainings(s, see_training, &after, err), 0);
	assert_string_equal(
		after.text, "proxykv flat {\"steps\":3} 18446744073709551615 tt| [\"c1\",\"c2\"] w.safetensors|ww 2 1");
	assert_int_equal(store_training_steps(s, id, see_step, &steps, err), 0);
	assert_string_equal(steps.text, "L_bin0 L_bin1 L_bin2 loss0 loss1 loss2 ");
	assert_int_equal(steps.nan, 1);
	assert_true(steps.sum == 1 + 3 + 10 + 9 * 2 + 100 * 3);
	memset(other, '0', 32);
	other[32] = 0;
	assert_int_equal(store_training_end(s, other, "w", "ww", err), -1);
	assert_int_equal(store_training_step(s, other, 0, "loss", 1, err), -1); /* no such training */
	t.config = "not json";
	assert_int_equal(store_training_begin(s, &t, other, err), -1);
}

/* ---- memory parts, details of times ---- */

static int see_memory(void *user, int device, const char *part, int64_t bytes)
{
	char *text = user;
	size_t n = strlen(text);
	snprintf(text + n, 200 - n, "%d %s %lld;", device, part, (long long)bytes);
	return 0;
}

static int see_fact(void *user, const char *name, int64_t value)
{
	char *text = user;
	size_t n = strlen(text);
	snprintf(text + n, 200 - n, "%s %lld;", name, (long long)value);
	return 0;
}

static int see_phase(void *user, const struct timing_row *t)
{
	char *text = user;
	size_t n = strlen(text);
	snprintf(text + n, 400 - n, "%s %lld;", t->phase, (long long)t->duration_ns);
	return 0;
}

static void parts_of_time_and_memory(void **state)
{
	(void)state;
	static const char *const phases[] = {"ttft", "second_pass", "proxy_prefill", "mapper", "wait", "allocate", "gather"};
	char text[400] = "", bytes[200] = "", second[33];
	for (int i = 0; i < 7; i++) {
		struct store_timing t = {.cell_id = cell, .run_id = run, .phase = phases[i], .duration_ns = 10 + i};
		assert_int_equal(store_put_timings(s, &t, 1, err), 0);
	}
	struct store_timing by_event = {.cell_id = cell, .run_id = run, .phase = "ttft", .clock = "cuda_event", .duration_ns = 9};
	assert_int_equal(store_put_timings(s, &by_event, 1, err), 0);
	assert_int_equal(store_count_timings(s, cell), 1); /* one repetition, by two clocks */
	assert_int_equal(store_device_timings_of(s, cell, NULL, see_phase, text, err), 0);
	assert_string_equal(text, "ttft 9;");
	*text = 0;
	assert_int_equal(store_timings(s, cell, see_phase, text, err), 0);
	assert_string_equal(text, "allocate 15;gather 16;mapper 13;proxy_prefill 12;second_pass 11;ttft 10;wait 14;");
	struct store_memory m[] = {{cell, run, "kv", 0, 100}, {cell, run, "kv", 0, 90}, {cell, run, "total", 1, 7}};
	for (int i = 0; i < 3; i++)
		assert_int_equal(store_put_memory(s, &m[i], err), 0);
	assert_int_equal(store_memory(s, cell, see_memory, bytes, err), 0);
	assert_string_equal(bytes, "0 kv 100;1 total 7;"); /* the largest stays */
	struct store_fact f[] = {{cell, run, "waited_ppm", 70}, {cell, run, "prefill_floor_ns", 40}, {cell, run, "prefill_floor_ns", 30}};
	for (int i = 0; i < 3; i++)
		assert_int_equal(store_put_fact(s, &f[i], err), 0);
	*bytes = 0;
	assert_int_equal(store_facts_of(s, cell, NULL, see_fact, bytes, err), 0);
	assert_string_equal(bytes, "prefill_floor_ns 30;waited_ppm 70;"); /* the least stays */
	assert_int_equal(store_put_fact(s, &(struct store_fact){cell, run, "decode_ns", 1}, err), -1);
	assert_int_equal(store_run_begin(s, env, NULL, NULL, second, err), 0);
	struct store_timing later[] = {{.cell_id = cell, .run_id = second, .phase = "ttft", .duration_ns = 77}};
	assert_int_equal(store_put_timings(s, later, 1, err), 0);
	*text = 0;
	assert_int_equal(store_timings_of(s, cell, second, see_phase, text, err), 0);
	assert_string_equal(text, "ttft 77;");
}

/* ---- history ---- */

static int see_baseline(void *user, const struct baseline_row *b)
{
	char *text = user;
	size_t n = strlen(text);
	snprintf(text + n, 200 - n, "%s%d %s %s;", b->name, b->version, b->database, b->why);
	return b->set_unix_ms > 0 ? 0 : -1;
}

static void baselines_keep_their_past(void **state)
{
	(void)state;
	char text[200] = "";
	struct baseline_row b[] = {{"main", "a.db", "", "d", "c", "first", 1, 0}, {"main", "b.db", run, "d", "c", "faster", 2, 0},
		{"main", "x.db", run, "d", "c", "again", 2, 0}};
	for (int i = 0; i < 3; i++)
		assert_int_equal(store_put_baseline(s, &b[i], err), 0); /* the third changes nothing */
	assert_int_equal(store_baselines(s, see_baseline, text, err), 0);
	assert_string_equal(text, "main1 a.db first;main2 b.db faster;");
}

static int see_figure(void *user, const struct night_row *n, const struct figure_row *f)
{
	char *text = user;
	size_t len = strlen(text);
	snprintf(text + len, 400 - len, "%s %s %s %g;", n->night_id, f->label, f->figure, f->value);
	return 0;
}

static int see_alert(void *user, const struct alert_row *a)
{
	char *text = user;
	size_t n = strlen(text);
	snprintf(text + n, 400 - n, "%s %s %s %g %d %d;", a->level, a->kind, a->message, a->old, isnan(a->lo), a->n);
	return 0;
}

static void a_night_is_replaced_whole(void **state)
{
	(void)state;
	char text[400] = "";
	struct night_row one = {"n1", "a.db", "c", "m", "main", 1, 3, 2000}, two = {"n0", "b.db", "c", "m", "", 0, 0, 1000};
	struct figure_row f[] = {{"cellA", "score", "A", .5, 10}, {"cellB", "score", "B", .25, 10}};
	struct alert_row a[] = {{"regression", "accuracy", "cellA", "A", "lower", .5, .4, -.2, NAN, 10},
		{"notice", "x", "", "", "y", NAN, NAN, NAN, NAN, 0}};
	a[0].lo = NAN;
	assert_int_equal(store_put_night(s, &one, f, 2, a, 2, err), 0);
	assert_int_equal(store_put_night(s, &two, f, 1, NULL, 0, err), 0);
	assert_int_equal(store_put_night(s, &one, f, 1, a, 1, err), 0);
	assert_int_equal(store_night_figures(s, see_figure, text, err), 0);
	assert_string_equal(text, "n0 A score 0.5;n1 A score 0.5;"); /* the older night first; B is gone */
	*text = 0;
	assert_int_equal(store_alerts(s, "n1", see_alert, text, err), 0);
	assert_string_equal(text, "regression accuracy lower 0.5 1 10;");
	f[0].value = NAN; /* a figure is a number; nothing of the night is lost when one is not */
	assert_int_equal(store_put_night(s, &one, f, 1, NULL, 0, err), -1);
	*text = 0;
	assert_int_equal(store_alerts(s, "n1", see_alert, text, err), 0);
	assert_string_equal(text, "regression accuracy lower 0.5 1 10;");
}

/* ---- runs, digest, identities of a cell ---- */

static int see_run(void *user, const struct run_row *r)
{
	snprintf(user, 200, "%s %s %d %lld", r->argv, r->machine, r->exit_code, (long long)r->ended_unix_ms);
	return 0;
}

static int see_cell(void *user, const struct cell_row *c)
{
	snprintf(user, 200, "%s|%s %d %s", c->target_sha256, c->proxy_sha256, c->task_version, c->data_sha256);
	return 0;
}

static int see_sample(void *user, const struct score_row *r)
{
	snprintf(user, 200, "%d %s %s", !strcmp(r->run_id, run), r->prompt_sha256, r->answer_ids);
	return 0;
}

static void runs_and_digest(void **state)
{
	(void)state;
	char text[200] = "", one[SHA_LEN], two[SHA_LEN], three[SHA_LEN];
	assert_int_equal(store_runs(s, see_run, text, err), 0);
	assert_string_equal(text, "[\"kvbench\"] h, , , , , 0 threads, 1 GiB -1 0");
	assert_int_equal(store_cells(s, see_cell, text, err), 0);
	assert_string_equal(text, "ab| 4 dd");
	assert_int_equal(store_digest(s, one, err), 0);
	struct store_sample p = {.cell_id = cell,
		.run_id = run,
		.sample_id = "s",
		.context_id = "c",
		.status = "ok",
		.score = .5,
		.scorer_version = 1,
		.prompt_sha256 = "pp",
		.answer_ids = "[1]",
		.depth = NAN,
		.needle_char = -1,
		.needle_token = -1,
		.also_score = NAN};
	assert_int_equal(store_put_sample(s, &p, err), 0);
	assert_int_equal(store_samples(s, cell, see_sample, text, err), 0);
	assert_string_equal(text, "1 pp [1]");
	assert_int_equal(store_digest(s, two, err), 0);
	assert_int_equal(store_put_score(s, cell, "s", .5000000001, NAN, 1, err), 0);
	assert_int_equal(store_digest(s, three, err), 0);
	assert_string_not_equal(one, two);
	assert_string_not_equal(two, three);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_store, remove_store)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(a_training_with_its_curves), TEST(parts_of_time_and_memory),
		TEST(baselines_keep_their_past), TEST(a_night_is_replaced_whole), TEST(runs_and_digest)};
	return cmocka_run_group_tests_name("store_more", tests, NULL, NULL);
}
