/* Every silent failure planted into a small real database of the embedded model, and named by verify; the clean one has none. */
#include "tests/unit/test.h"

#include "harness/verbs.h"
#include "harness/verify.h"

#include <sqlite3.h>
#include <unistd.h>

static char folder[64], *base; /* base: the clean database */

static const char plan[] =
	"{\"targets\": [\"tiny-pair/target\"], \"models\": \"runners/model\", \"methods\": [\"snapkv\", \"kvzip\"], "
	"\"retained\": [0.3, 1],"
	" \"tasks\": [{\"name\": \"niah-multikey\", \"lengths\": [256], \"contexts\": 12, \"questions\": 2}], \"protocols\": "
	"[\"agnostic\", "
	"\"aware\"],"
	" \"timing\": {\"retained\": [0.3], \"protocols\": [\"agnostic\"], \"decode_tokens\": 2}, \"threads\": 2}";
enum { SAMPLES = 24 };

/* The verb as a user calls it; what it prints goes nowhere. */
static int run_verb(const struct verb *v, char **argv, int argc)
{
	struct options o;
	options_parse(&o, v, argc, argv);
	fflush(stdout);
	int out = dup(1);
	assert_non_null(freopen("/dev/null", "w", stdout));
	int code = v->run(&o);
	fflush(stdout);
	dup2(out, 1);
	close(out);
	options_free(&o);
	return code;
}

static int make_base(void **state)
{
	(void)state;
	strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/kvb_verify.XXXXXX" : "/dev/shm/kvb_verify.XXXXXX"); /* many copies */
	if (!mkdtemp(folder))
		return -1;
	char *path = text_format("%s/plan.json", folder);
	base = text_format("%s/base.db", folder);
	FILE *f = fopen(path, "w");
	fputs(plan, f);
	fclose(f);
	char *argv[] = {"run", path, "--db", base, "-q"};
	int code = run_verb(&verb_run, argv, 5);
	free(path);
	return code;
}

static int remove_folder(void **state)
{
	(void)state;
	char *command = text_format("rm -rf %s", folder);
	int rc = system(command);
	free(command);
	free(base);
	return rc;
}

/* ---- planting ---- */

#define CELL(method, ppm, protocol)                                                                                              \
	"(SELECT cell_id FROM cell JOIN method USING (method_id) WHERE name = '" method "' AND retained_ppm = " ppm              \
	" AND protocol = '" protocol "')"
#define SNAPKV CELL("snapkv", "300000", "agnostic")
#define FULL CELL("full", "1000000", "agnostic")
#define RANDOM CELL("random", "300000", "agnostic")
#define ALL_KEPT_SQL "kept_total = context_tokens * 16, kept = NULL" /* 4 layers x 4 KV heads */

static void copy_file(const char *from, const char *to)
{
	char *data, err[ERR_LEN];
	size_t len;
	assert_int_equal(file_read(from, &data, &len, err), 0);
	FILE *f = fopen(to, "wb");
	assert_int_equal(fwrite(data, 1, len, f), len);
	fclose(f);
	free(data);
}

static void change(const char *path, const char *sql)
{
	sqlite3 *db;
	char *why = NULL;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", sql, why);
	if (!sqlite3_total_changes(db))
		fail_msg("nothing changed: %s", sql);
	sqlite3_close(db);
}

/* What stands in the findings: "check|fault or notice|where|what" lines. Caller frees. */
static char *findings(const char *sql)
{
	char *path = text_format("%s/planted.db", folder), err[ERR_LEN];
	struct audit a;
	struct strbuf b = {0};
	copy_file(base, path);
	if (sql)
		change(path, sql);
	if (audit_open(&a, path, err) || audit_check(&a, err))
		fail_msg("%s", err);
	for (int i = 0; i < a.n_found; i++)
		strbuf_printf(&b, "%s|%s|%s|%s\n", a.found[i].check->name, a.found[i].fault ? "fault" : "notice",
			a.found[i].where, a.found[i].what);
	audit_close(&a);
	free(path);
	return strbuf_take(&b);
}

/* A line that begins with check|level and has both texts. */
static bool names(const char *text, const char *check, const char *where, const char *what)
{
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
		char *copy = text_format("%.*s", (int)strcspn(line, "\n"), line);
		bool found = !strncmp(copy, check, strlen(check)) && strstr(copy, where) && strstr(copy, what);
		free(copy);
		if (found)
			return true;
	}
	return false;
}

struct plant {
	const char *sql, *check, *where, *what;
};

static void plant_all(const struct plant *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *text = findings(p[i].sql);
		if (!names(text, p[i].check, p[i].where, p[i].what)) {
			fprintf(stderr, "found:\n%s", text);
			fail_msg("planted: %s\nwanted: %s ... %s ... %s", p[i].sql, p[i].check, p[i].where, p[i].what);
		}
		free(text);
	}
}
#define PLANT(...)                                                                                                               \
	do {                                                                                                                     \
		const struct plant p[] = {__VA_ARGS__};                                                                          \
		plant_all(p, sizeof p / sizeof *p);                                                                              \
	} while (0)

/* ---- the tests ---- */

static void clean_has_no_fault(void **state)
{
	(void)state;
	char *text = findings(NULL);
	if (strstr(text, "|fault|"))
		fail_msg("%s", text);
	free(text);
}

static void pruning_that_did_not_take_place(void **state)
{
	(void)state;
	PLANT({"UPDATE sample SET " ALL_KEPT_SQL " WHERE cell_id = " SNAPKV " AND sample_id <> 'c0.q0'", "pruned|fault",
		      "snapkv r 0.3", "still there in 23 of 24"},
		{"UPDATE sample SET " ALL_KEPT_SQL ", flags = flags | 1 WHERE cell_id = " SNAPKV, "pruned|fault", "snapkv r 0.3",
			"nothing was pruned"},
		{"UPDATE sample SET kept_total = kept_total * 3 / 2, kept = NULL WHERE cell_id = " SNAPKV, "retained|fault",
			"snapkv r 0.3", "of the entries were kept"},
		{"UPDATE sample SET kept_total = kept_total / 2, kept = NULL WHERE cell_id = " SNAPKV, "retained|notice",
			"snapkv r 0.3", "down to"},
		{"UPDATE sample SET kept_total = kept_total - 5 WHERE cell_id = " SNAPKV, "kept|fault", "snapkv r 0.3",
			"24 samples"},
		{"UPDATE sample SET kv_bytes_kept = kv_bytes_full WHERE cell_id = " SNAPKV, "kept|fault", "snapkv r 0.3",
			"yet the cache"},
		{"UPDATE sample SET (answer, answer_ids) = (SELECT f.answer, f.answer_ids FROM sample f WHERE f.cell_id = " FULL
		 " AND f.sample_id = sample.sample_id) WHERE cell_id = " RANDOM,
			"effect|fault", "random r 0.3", "all 24 answers"});
}

static void full_cache_and_r1(void **state)
{
	(void)state;
	PLANT({"UPDATE sample SET answer_ids = '[1,2]' WHERE cell_id = " CELL(
		       "kvzip", "1000000", "agnostic") " AND sample_id = 'c1.q0'",
		      "r1|fault", "agnostic, kvzip r 1", "1 of 24"},
		{"UPDATE sample SET score = 0.5 WHERE cell_id = " CELL("kvzip", "1000000", "aware"), "r1|fault",
			"aware, kvzip r 1", "differ"},
		{"UPDATE sample SET answer = answer || '!' WHERE cell_id = " FULL, "full|fault", "full r 1", "other protocol"},
		{"UPDATE sample SET score = 0 WHERE cell_id = " FULL, "baseline|fault", "agnostic, full", "scores 0 in all 24"},
		{"UPDATE sample SET finish = 'length' WHERE cell_id = " FULL, "baseline|notice", "full",
			"24 of 24 answers ran to the limit"},
		{"UPDATE model SET name = 'meta-llama/Llama-3.1-8B-Instruct'; UPDATE task SET name = 'ruler-vt'; UPDATE cell SET "
		 "context_tokens = "
		 "4096; UPDATE sample SET score = 0.5 WHERE cell_id = " FULL,
			"published|fault", "full r 1", "scores 50.0, published: 99.9"},
		{"UPDATE sample SET answer = ' ' WHERE cell_id = " FULL " AND sample_id IN ('c0.q0', 'c1.q1')", "empty|fault",
			"full", "2 of 24"},
		{"UPDATE sample SET answer = '' WHERE cell_id = " SNAPKV, "empty|notice", "snapkv", "24 of 24"});
}

static void controls_and_rivals(void **state)
{
	(void)state;
	PLANT({"UPDATE sample SET score = cell_id <> " FULL " WHERE cell_id IN (" FULL ", " SNAPKV ")", "ceiling|fault",
		      "snapkv r 0.3", "1.00 above the full cache"},
		{"UPDATE sample SET score = cell_id = " RANDOM " WHERE cell_id IN (" RANDOM ", " SNAPKV ")", "random|notice",
			"snapkv r 0.3", "1.00 below random"},
		{"DELETE FROM timing WHERE cell_id = " RANDOM "; DELETE FROM sample WHERE cell_id = " RANDOM, "controls|fault",
			"agnostic, snapkv r 0.3", "random pruning was not measured"},
		{"DELETE FROM sample WHERE cell_id = " FULL, "controls|fault", "256 agnostic", "full cache was not measured"},
		{"UPDATE method SET name = 'proxykv' WHERE name = 'snapkv'", "trained|fault", "proxykv r 0.3",
			"without head-prior"},
		{"DELETE FROM sample WHERE cell_id = " CELL(
			 "snapkv", "300000", "aware") "; DELETE FROM cell WHERE cell_id = " CELL("snapkv", "300000", "aware"),
			"protocols|fault", "agnostic, snapkv r 0.3", "no counterpart under aware"});
}

static void prompts_and_state(void **state)
{
	(void)state;
	PLANT({"UPDATE sample SET prompt_sha256 = 'another' WHERE cell_id = " SNAPKV " AND sample_id = 'c2.q0'", "prompts|fault",
		      "snapkv", "1 prompts differ"},
		{"UPDATE sample SET cut_tokens = 7, truncation = 'text' WHERE cell_id = " SNAPKV, "prompts|fault", "snapkv",
			"24 contexts were cut"},
		{"UPDATE sample SET cut_tokens = 7, truncation = 'text'", "cut|notice", "256 agnostic", "24 of 24"},
		{"UPDATE sample SET prompt_sha256 = 'one', answer = sample_id WHERE cell_id = " SNAPKV, "state|fault", "snapkv",
			"23 prompts"});
}

static void scores_and_completeness(void **state)
{
	(void)state;
	PLANT({"UPDATE sample SET flags = flags | 16 WHERE cell_id = " SNAPKV, "scores|fault", "snapkv", "24 samples"},
		{"UPDATE sample SET score = 9e999 WHERE cell_id = " SNAPKV " AND sample_id = 'c0.q0'", "scores|fault", "snapkv",
			"1 samples"},
		{"UPDATE sample SET also_score = -3 WHERE cell_id = " SNAPKV " AND sample_id = 'c0.q0'", "scores|fault", "snapkv",
			"1 samples"},
		{"DELETE FROM sample WHERE cell_id = " SNAPKV " AND sample_id LIKE 'c1.%'", "complete|fault", "snapkv",
			"2 of 24 samples are missing"},
		{"UPDATE sample SET status = 'failed', score = NULL, message = 'sticky error' WHERE cell_id = " SNAPKV,
			"complete|fault", "snapkv", "24 failed, 0 out of memory: sticky error"},
		{"UPDATE sample SET status = 'oom', score = NULL WHERE cell_id = " SNAPKV " AND sample_id = 'c0.q0'",
			"complete|fault", "snapkv", "0 failed, 1 out of memory"},
		{"UPDATE sample SET status = 'not-applicable', score = NULL, message = 'too short' WHERE cell_id = " SNAPKV,
			"complete|notice", "snapkv", "too short"},
		{"UPDATE task SET name = 'ruler-vt'", "subset|notice", "ruler-vt", "24 of the suite's 500 rows"});
}

static void identity_and_versions(void **state)
{
	(void)state;
	PLANT({"UPDATE cell SET protocol = 'aware' WHERE cell_id = " SNAPKV, "identity|fault", "cell", "changed by hand"},
		{"UPDATE cell SET retained_ppm = 200000 WHERE cell_id = " SNAPKV, "identity|fault", "cell", "changed by hand"},
		{"UPDATE method SET params = '{\"window\":9}' WHERE name = 'snapkv'", "identity|fault", "method",
			"changed by hand"},
		{"UPDATE model SET sha256 = 'other'", "identity|fault", "model", "changed by hand"},
		{"UPDATE task SET metric = 'qa_f1'", "identity|fault", "task", "changed by hand"},
		{"UPDATE env SET threads = 64", "identity|fault", "env", "changed by hand"},
		{"UPDATE sample SET scorer_version = 99 WHERE cell_id = " SNAPKV " AND sample_id = 'c0.q0'", "versions|fault",
			"snapkv", "and 99"},
		{"UPDATE sample SET scorer_version = 99 WHERE cell_id = " SNAPKV, "versions|fault", "snapkv", "by version 99"},
		{"UPDATE cell SET measure_version = 99 WHERE cell_id = " SNAPKV, "versions|fault", "snapkv", "procedure 99"},
		{"UPDATE task SET data_state = 'unpinned'", "data|notice", "niah-multikey", "unpinned"},
		{"UPDATE sample SET flags = flags | 4 WHERE cell_id = " SNAPKV, "flags|notice", "snapkv",
			"24 contexts are longer"},
		{"UPDATE sample SET flags = flags | 2 WHERE cell_id = " SNAPKV, "flags|notice", "snapkv", "budget below"},
		{"UPDATE run SET ended_unix_ms = NULL", "runs|notice", "run", "has no end"},
		{"UPDATE env SET dirty = 1", "runs|notice", "run", "changed sources"},
		{"INSERT INTO env SELECT replace(env_id, 'a', 'b'), host || '2', os, cpu, isa, device, threads, ram_bytes, "
		 "version, \"commit\", dirty, "
		 "build_flags, libraries FROM env;"
		 "INSERT INTO run SELECT replace(run_id, substr(run_id, 1, 4), 'zzzz'), (SELECT env_id FROM env WHERE host LIKE "
		 "'%2'), argv, "
		 "plan, started_unix_ms + 1, "
		 "ended_unix_ms, 0 FROM run; UPDATE sample SET run_id = (SELECT run_id FROM run WHERE run_id LIKE 'zzzz%') WHERE "
		 "cell_id = " SNAPKV,
			"machines|notice", "snapkv", "another machine"});
}

static void times_that_cannot_be(void **state)
{
	(void)state;
	PLANT({"DELETE FROM timing WHERE repetition > 4", "timing|fault", "kvzip", "5 repetitions"},
		{"DELETE FROM timing WHERE cell_id = " FULL, "timing|fault", "snapkv", "without the full cache"},
		{"UPDATE timing SET duration_ns = duration_ns / 49 WHERE phase = 'prefill' AND repetition > 2 AND cell_id "
		 "= " SNAPKV,
			"reuse|fault", "snapkv", "6 of 9 prefills"},
		{"UPDATE timing SET tokens = 3 WHERE cell_id = " SNAPKV, "reuse|fault", "snapkv", "another number of tokens"},
		{"UPDATE timing SET duration_ns = 2 * duration_ns WHERE phase = 'ttft' AND cell_id = " SNAPKV, "parts|fault",
			"snapkv", "the parts are"});
}

/* No check is without its plant. */
static void every_check_is_planted(void **state)
{
	(void)state;
	char *source, err[ERR_LEN];
	size_t len;
	assert_int_equal(file_read(__FILE__, &source, &len, err), 0);
	for (int i = 0; i < n_checks; i++) {
		char *fault = text_format("\"%s|fault\"", checks[i].name), *notice = text_format("\"%s|notice\"", checks[i].name);
		if (!strstr(source, fault) && !strstr(source, notice))
			fail_msg("nothing is planted for %s", checks[i].name);
		free(fault);
		free(notice);
	}
	free(source);
}

static int verify(const char *path, const char *option)
{
	char *argv[] = {"verify", (char *)path, (char *)option};
	return run_verb(&verb_verify, argv, option ? 3 : 2);
}

static void exit_codes(void **state)
{
	(void)state;
	char *path = text_format("%s/codes.db", folder);
	assert_int_equal(verify(path, NULL), 1); /* not there */
	assert_int_equal(verify(base, NULL), 0);
	assert_int_equal(verify(base, "--format=json"), 0);
	copy_file(base, path);
	change(path, "UPDATE task SET data_state = 'unpinned'");
	assert_int_equal(verify(path, NULL), 0);
	assert_int_equal(verify(path, "--strict"), 3);
	change(path, "UPDATE sample SET score = 0 WHERE cell_id = " FULL);
	assert_int_equal(verify(path, NULL), 3);
	assert_int_equal(verify(path, "--format=json"), 3);
	change(path, "DELETE FROM timing; DELETE FROM sample");
	assert_int_equal(verify(path, NULL), 4);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(clean_has_no_fault),
		cmocka_unit_test(pruning_that_did_not_take_place), cmocka_unit_test(full_cache_and_r1),
		cmocka_unit_test(controls_and_rivals), cmocka_unit_test(prompts_and_state),
		cmocka_unit_test(scores_and_completeness), cmocka_unit_test(identity_and_versions),
		cmocka_unit_test(times_that_cannot_be), cmocka_unit_test(every_check_is_planted), cmocka_unit_test(exit_codes)};
	return cmocka_run_group_tests(tests, make_base, remove_folder);
}
