/* Shards joined: the same files in any order give the same tables; what contradicts itself is named; an answer beats a failure.
 */
#include "results/store.h"
#include "tests/unit/test.h"

#include <sqlite3.h>
#include <unistd.h>

static char folder[64], err[ERR_LEN];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/kvb_merge.XXXXXX" : "/dev/shm/kvb_merge.XXXXXX"); /* many commits */
	return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
	(void)state;
	char *command = text_format("rm -rf %s", folder);
	int rc = system(command);
	free(command);
	return rc;
}

static void check(int rc)
{
	if (rc)
		fail_msg("%s", err);
}

static char *file_of(const char *name)
{
	return text_format("%s/%s.db", folder, name);
}

/* ---- shards ---- */

struct shard {
	const char *name, *host, *model_path, *data_state;
	int first, last;    /* samples s<first> .. s<last> */
	int failed;         /* of them this one; -1 = none */
	const char *answer; /* of s5 when it is among them */
	int planned;
};

static void put_sample(struct store *s, const struct shard *k, const char *cell, const char *run, int i)
{
	char id[16];
	snprintf(id, sizeof id, "s%d", i);
	bool fails = i == k->failed;
	struct store_sample p = {.cell_id = cell,
		.run_id = run,
		.sample_id = id,
		.context_id = id,
		.status = fails ? "failed" : "ok",
		.message = fails ? "lost" : "",
		.prompt_sha256 = id,
		.answer = i == 5 ? k->answer : "yes",
		.answer_ids = "[1]",
		.metric = "exact",
		.score = fails ? NAN : 1,
		.also_score = NAN,
		.scorer_version = 1,
		.depth = NAN,
		.needle_token = -1,
		.needle_char = -1,
		.context_tokens = 100,
		.kept_total = 30};
	check(store_put_sample(s, &p, err));
}

/* One process on its host: a cell for each of two ratios, with samples and one timing. */
static void make_shard(const struct shard *k)
{
	char *path = file_of(k->name), env[SHA_LEN], target[SHA_LEN], method[SHA_LEN], task[SHA_LEN], cell[SHA_LEN], run[33];
	struct store *s;
	check(store_open(&s, path, err));
	struct store_env e = {k->host, "o", "c", "i", "cpu", "v", "f", "l", "c", false, 1, 1};
	check(store_put_env(s, &e, env, err));
	check(store_run_begin(s, env, "[]", "{}", run, err));
	check(store_put_model(s,
		&(struct store_model){.role = "target", .name = "m", .path = k->model_path, .layers = 1, .kv_heads = 1}, target,
		err));
	check(store_put_method(s, &(struct store_method){"snapkv", "{}", 1, "o"}, method, err));
	check(store_put_task(s,
		&(struct store_task){.name = "t", .metric = "exact", .params = "{}", .data_state = k->data_state, .version = 1},
		task, err));
	for (int ppm = 300000; ppm <= 600000; ppm += 300000) {
		struct store_cell c = {.target_id = target,
			.method_id = method,
			.task_id = task,
			.retained_ppm = ppm,
			.protocol = "agnostic",
			.mode = "single",
			.topology = "cpu",
			.precision = "bf16",
			.measure_version = 1,
			.samples_planned = k->planned};
		check(store_put_cell(s, &c, cell, err));
		for (int i = k->first; i <= k->last; i++)
			put_sample(s, k, cell, run, i);
		check(store_put_timings(
			s, &(struct store_timing){cell, run, "ttft", 0, false, "host", 1000, 1, 1, 1, 1}, 1, err));
		check(store_put_fact(s, &(struct store_fact){cell, run, "prefill_floor_ns", 100 + k->planned}, err));
	}
	check(store_run_end(s, run, 0, err));
	store_close(s);
	free(path);
}

/* ---- merging ---- */

struct names {
	char text[4096];
	int n;
};

static void take_conflict(void *user, const char *table, const char *row, const char *what)
{
	struct names *k = user;
	size_t at = strlen(k->text);
	snprintf(k->text + at, sizeof k->text - at, "%s: %s: %s\n", table, row, what);
	k->n++;
}

static struct store_merge merge(const char *out, const char *const *from, int n, struct names *conflicts)
{
	char *path = file_of(out);
	struct store *s;
	struct store_merge sum = {0};
	check(store_open(&s, path, err));
	for (int i = 0; i < n; i++) {
		char *source = file_of(from[i]);
		check(store_merge_from(s, source, &sum, take_conflict, conflicts, err));
		free(source);
	}
	store_close(s);
	free(path);
	return sum;
}

static int dump_row(void *user, int n, char **values, char **names)
{
	for (int i = 0; i < n; i++)
		strbuf_printf(user, "%s=%s;", names[i], values[i] ? values[i] : "NULL");
	strbuf_puts(user, "\n");
	return 0;
}

/* Every table, row by row as it is stored. Caller frees. */
static char *dump(const char *name)
{
	char *path = file_of(name);
	sqlite3 *db;
	struct strbuf tables = {0}, all = {0};
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_exec(db, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name", dump_row, &tables, NULL),
		SQLITE_OK);
	for (char *line = strtok(tables.text, "\n"); line; line = strtok(NULL, "\n")) {
		char *table = text_format("%.*s", (int)strcspn(line + 5, ";"), line + 5),
		     *sql = text_format("SELECT * FROM \"%s\"", table);
		strbuf_printf(&all, "--- %s\n", table);
		assert_int_equal(sqlite3_exec(db, sql, dump_row, &all, NULL), SQLITE_OK);
		free(table);
		free(sql);
	}
	sqlite3_close(db);
	strbuf_free(&tables);
	free(path);
	return strbuf_take(&all);
}

static int64_t number(const char *name, const char *sql)
{
	char *path = file_of(name);
	sqlite3 *db;
	sqlite3_stmt *st;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	int64_t n = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	free(path);
	return n;
}

/* Three hosts: overlapping samples, one failed where another answered, other paths, other planned counts. */
static void any_order_gives_the_same(void **state)
{
	(void)state;
	static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	static const char *const names[] = {"a", "b", "c"};
	make_shard(&(struct shard){"a", "h1", "/x/m", "pinned", 0, 5, 3, "yes", 6});
	make_shard(&(struct shard){"b", "h2", "/a/m", "unpinned", 3, 8, -1, "yes", 9});
	make_shard(&(struct shard){"c", "h3", "/z/m", "recorded", 8, 11, -1, "yes", 12});
	char *first = NULL;
	for (int i = 0; i < 6; i++) {
		const char *from[] = {names[orders[i][0]], names[orders[i][1]], names[orders[i][2]]};
		struct names conflicts = {{0}};
		char *out = text_format("out%d", i);
		merge(out, from, 3, &conflicts);
		if (conflicts.n)
			fail_msg("%s", conflicts.text);
		char *text = dump(out);
		first = first ? first : text_copy(text);
		assert_string_equal(text, first);
		free(text);
		free(out);
	}
	assert_int_equal(number("out0", "SELECT count(*) FROM sample"), 24);
	assert_int_equal(
		number("out0", "SELECT count(*) FROM sample WHERE status = 'ok'"), 24); /* s3 by the host that answered it */
	assert_int_equal(number("out0", "SELECT count(*) FROM timing"), 6);
	assert_int_equal(number("out0", "SELECT count(*) FROM timing_fact"), 6);
	assert_int_equal(number("out0", "SELECT count(*) FROM run"), 3);
	assert_int_equal(number("out0", "SELECT count(*) FROM cell WHERE samples_planned = 12"), 2);
	assert_int_equal(number("out0", "SELECT path = '/a/m' FROM model"), 1);
	assert_int_equal(number("out0", "SELECT data_state = 'unpinned' FROM task"), 1);
	assert_int_equal(number("out0", "SELECT count(*) FROM pragma_foreign_key_check"), 0);
	free(first);
}

static void the_same_again_changes_nothing(void **state)
{
	(void)state;
	struct names conflicts = {{0}};
	struct store_merge sum = merge("once", (const char *[]){"a", "b"}, 2, &conflicts);
	char *once = dump("once");
	assert_int_equal(sum.samples, 18);
	assert_int_equal(sum.timings, 4);
	sum = merge("once", (const char *[]){"b", "a", "b"}, 3, &conflicts);
	char *again = dump("once");
	assert_string_equal(once, again);
	assert_int_equal(sum.samples + sum.timings + sum.replaced + sum.conflicts, 0);
	free(once);
	free(again);
}

/* Two answers to one prompt: named with cell and sample; the older stays, in either order. */
static void contradictions_are_named(void **state)
{
	(void)state;
	make_shard(&(struct shard){"old", "h1", "/m", "", 4, 5, -1, "yes", 2});
	usleep(3000); /* another millisecond */
	make_shard(&(struct shard){"new", "h2", "/m", "", 5, 6, -1, "no", 2});
	struct names one = {{0}}, two = {{0}};
	struct store_merge sum = merge("on", (const char *[]){"old", "new"}, 2, &one);
	merge("no", (const char *[]){"new", "old"}, 2, &two);
	assert_int_equal(sum.conflicts, 2);
	assert_int_equal(one.n, 2);
	assert_string_equal(one.text, two.text);
	assert_non_null(strstr(one.text, "sample: t 0 agnostic, snapkv r 0.3, sample s5: answer"));
	assert_non_null(strstr(one.text, "sample: t 0 agnostic, snapkv r 0.6, sample s5: answer"));
	assert_int_equal(number("on", "SELECT count(*) FROM sample WHERE answer = 'no'"), 0);
	char *x = dump("on"), *y = dump("no");
	assert_string_equal(x, y);
	free(x);
	free(y);
}

/* A shard that was scored anew by a later scorer is not another answer. */
static void a_later_score_is_no_contradiction(void **state)
{
	(void)state;
	make_shard(&(struct shard){"plain", "h1", "/m", "", 0, 1, -1, "yes", 2});
	char *from = file_of("plain"), *to = file_of("scored"), *command = text_format("cp %s %s", from, to);
	assert_int_equal(system(command), 0);
	sqlite3 *db;
	assert_int_equal(sqlite3_open(to, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "UPDATE sample SET score = .5, scorer_version = 2", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	struct names conflicts = {{0}};
	merge("ps", (const char *[]){"plain", "scored"}, 2, &conflicts);
	merge("sp", (const char *[]){"scored", "plain"}, 2, &conflicts);
	assert_int_equal(conflicts.n, 0);
	assert_int_equal(number("ps", "SELECT count(*) FROM sample WHERE scorer_version = 2"), 4);
	assert_int_equal(number("sp", "SELECT count(*) FROM sample WHERE scorer_version = 2"), 4);
	free(from);
	free(to);
	free(command);
}

static int count_bad(void *user, const char *table, const char *id)
{
	(void)table;
	assert_int_equal(strlen(id), 64);
	++*(int *)user;
	return 0;
}

static void identities_are_checked(void **state)
{
	(void)state;
	char *path = file_of("a");
	struct store *s;
	int bad = 0;
	check(store_open(&s, path, err));
	assert_int_equal(store_check_identities(s, count_bad, &bad, err), 0);
	assert_int_equal(bad, 0);
	store_close(s);
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_exec(db,
			"UPDATE cell SET retained_ppm = 1 WHERE retained_ppm = 300000; UPDATE method SET origin = 'other'", NULL,
			NULL, NULL),
		SQLITE_OK);
	sqlite3_close(db);
	check(store_open(&s, path, err));
	assert_int_equal(store_check_identities(s, count_bad, &bad, err), 0);
	assert_int_equal(bad, 1); /* the cell; an origin is no part of a method's name */
	store_close(s);
	free(path);
}

static void what_is_no_database_is_refused(void **state)
{
	(void)state;
	char *path = file_of("target"), *text = text_format("%s/text", folder);
	struct store *s;
	struct store_merge sum = {0};
	struct names conflicts = {{0}};
	FILE *f = fopen(text, "w");
	fputs("not a database at all, but long enough to be read as one, perhaps, by somebody who does not look at the first "
	      "bytes",
		f);
	fclose(f);
	check(store_open(&s, path, err));
	assert_int_equal(store_merge_from(s, text, &sum, take_conflict, &conflicts, err), -1);
	assert_non_null(strstr(err, "not a database"));
	assert_int_equal(store_merge_from(s, "/nowhere/x.db", &sum, take_conflict, &conflicts, err), -1);
	assert_non_null(strstr(err, "no such database"));
	store_close(s);
	free(path);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(any_order_gives_the_same),
		cmocka_unit_test(the_same_again_changes_nothing), cmocka_unit_test(contradictions_are_named),
		cmocka_unit_test(a_later_score_is_no_contradiction), cmocka_unit_test(identities_are_checked),
		cmocka_unit_test(what_is_no_database_is_refused)};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
