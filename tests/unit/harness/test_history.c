/* The history file: baselines by name, paths that survive a move of the folder, steps of series, commits between. */
#include "harness/history.h"

#include "tests/unit/test.h"

#include <unistd.h>

static char folder[64], history[128], err[ERR_LEN];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/kvb_history.XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(history, sizeof history, "%s/history.db", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	char *command = text_format("rm -rf %s", folder);
	int rc = system(command);
	free(command);
	return rc;
}

static struct store *open_history(void)
{
	struct store *s;
	if (store_open(&s, history, err) != 0)
		fail_msg("%s", err);
	return s;
}

static void the_newest_version_holds(void **state)
{
	(void)state;
	struct baseline b;
	assert_int_equal(history_baseline(&b, history, "main", err), 0); /* no file yet: no baseline, no error, no file */
	assert_int_equal(b.version, 0);
	assert_false(file_exists(history));
	struct store *s = open_history();
	struct baseline_row rows[] = {{"main", "a.db", "", "d1", "c1", "", 1, 0},
		{"main", "/far/b.db", "r", "d2", "c2", "why", 2, 0}, {"other", "c.db", "", "d3", "c3", "", 1, 0}};
	for (int i = 0; i < 3; i++)
		assert_int_equal(store_put_baseline(s, &rows[i], err), 0);
	store_close(s);
	assert_int_equal(history_baseline(&b, history, "main", err), 0);
	assert_int_equal(b.version, 2);
	assert_string_equal(b.database, "/far/b.db");
	assert_string_equal(b.run_id, "r");
	baseline_free(&b);
	assert_int_equal(history_baseline(&b, history, "other", err), 0);
	char *path = text_format("%s/c.db", folder);
	assert_string_equal(b.database, path); /* relative to the history's folder */
	free(path);
	baseline_free(&b);
	assert_int_equal(history_baseline(&b, history, "none", err), 0);
	assert_int_equal(b.version, 0);
}

static void paths(void **state)
{
	(void)state;
	char *inside = text_format("%s/x.db", folder), *beside = history_beside(inside);
	assert_string_equal(beside, history);
	free(beside);
	beside = history_beside("x.db");
	assert_string_equal(beside, "./history.db");
	FILE *f = fopen(inside, "w");
	assert_non_null(f);
	fclose(f);
	char *kept = history_path_of(history, inside), *outside = history_path_of(history, "/dev/null");
	assert_string_equal(kept, "x.db");
	assert_string_equal(outside, "/dev/null");
	free(kept);
	free(outside);
	free(beside);
	free(inside);
}

/* 24 nights; from night `at` on, cell A scores less; times of another machine lie in between. */
static void put_nights(struct store *s, int at)
{
	for (int i = 0; i < 24; i++) {
		char id[24], commit[16];
		snprintf(id, sizeof id, "night%02d", i);
		snprintf(commit, sizeof commit, "c%02d", i);
		struct night_row n = {
			id, "x.db", commit, i % 6 == 5 ? "other" : "this", "", 0, 0, 1764547200000 + i * 86400000LL};
		struct figure_row f[] = {{"A", "score", "cell A", i < at ? .84 : .80, 400},
			{"A", "ttft_ns", "cell A", i % 6 == 5 ? 9e7 : 5e7, 9},
			{"B", "score", "cell B", .5 + .001 * (i * 7 % 5), 400}};
		assert_int_equal(store_put_night(s, &n, f, 3, NULL, 0, err), 0);
	}
}

static void steps_of_the_last_nights(void **state)
{
	(void)state;
	struct store *s = open_history();
	struct gate g = {0};
	put_nights(s, 20);
	assert_int_equal(history_steps(&g, s, "this", 7, err), 0);
	assert_int_equal(g.n_alerts, 1);
	assert_string_equal(g.alerts[0].row.kind, "step");
	assert_string_equal(g.alerts[0].row.level, "notice");
	assert_string_equal(g.alerts[0].row.label, "cell A");
	assert_string_equal(g.alerts[0].row.message,
		"score: a step of the history on 2025-12-21: 0.84 -> 0.8 (commit c19 before, c20 since)");
	gate_free(&g);
	assert_int_equal(history_steps(&g, s, "this", 3, err), 0); /* it began four nights ago */
	assert_int_equal(g.n_alerts, 0);
	store_close(s);
}

static void commits(void **state)
{
	(void)state;
	char *same = commits_between("c0ffee", "c0ffee"), *unknown = commits_between("0000000", "v1-2-g1111111"),
	     *hostile = commits_between("a;touch /tmp/x", "--output=/tmp/y");
	assert_string_equal(same, "none (c0ffee both times)");
	assert_string_equal(unknown, "0000000..v1-2-g1111111");
	assert_string_equal(hostile, "a;touch /tmp/x..--output=/tmp/y"); /* and git was not asked */
	assert_false(file_exists("/tmp/y"));
	free(same);
	free(unknown);
	free(hostile);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_newest_version_holds), TEST(paths), TEST(steps_of_the_last_nights), TEST(commits)};
	return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
