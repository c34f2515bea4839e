/* test_options.c: the command line's words, sizes, durations and time left. What ends the process is in tests/e2e/exit_codes.sh.
 */
#include "tests/unit/test.h"
#include "tests/unit/harness/stub_runner.h"

#include "harness/environment.h"
#include "harness/json_bytes.h"
#include "harness/progress.h"
#include "harness/verbs.h"

static void test_words_become_options(void **state)
{
	(void)state;
	struct options o;
	options_parse(&o, &verb_run, 8,
		(char *[]){"run", "p.json", "--set", "seed=3", "--retained=.1,.3", "--allow-long", "-q", "--dry-run"});
	assert_int_equal(o.n_args, 1);
	assert_string_equal(o.args[0], "p.json");
	assert_string_equal(option_text(&o, "set", ""), "seed=3");
	assert_string_equal(option_text(&o, "retained", ""), ".1,.3");
	assert_string_equal(option_text(&o, "allow_long", ""), "true");
	assert_true(option_has(&o, "quiet") && option_has(&o, "dry-run"));
	assert_false(option_has(&o, "title"));
	options_free(&o);
	options_parse(&o, &verb_report, 4, (char *[]){"report", "x.db", "-o", "y.html"});
	assert_string_equal(option_text(&o, "out", ""), "y.html");
	options_free(&o);
}

static void test_the_last_of_two_counts(void **state)
{
	(void)state;
	struct options o;
	options_parse(&o, &verb_ask, 5, (char *[]){"ask", "--max-new", "5", "--max-new", "7"});
	assert_int_equal(option_count(&o, "max-new", 1), 7);
	assert_int_equal(option_count(&o, "threads", 4), 4);
	options_free(&o);
}

static void test_sizes(void **state)
{
	(void)state;
	assert_int_equal(bytes_parse("4096"), 4096);
	assert_int_equal(bytes_parse("1.5K"), 1536);
	assert_int_equal(bytes_parse("8G"), 8LL << 30);
	assert_int_equal(bytes_parse("1T"), 1LL << 40);
	static const char *const bad[] = {"", "G", "8X", "8GB", "-1", "1e30", "nan"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(bytes_parse(bad[i]), -1);
}

static void test_durations(void **state)
{
	(void)state;
	char text[48];
	static const struct {
		double sec;
		const char *text;
	} cases[] = {{-1, "0 s"}, {.4, "0 s"}, {59.4, "59 s"}, {59.6, "1 min 00 s"}, {200, "3 min 20 s"}, {7500, "2 h 05 min"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		duration_text(cases[i].sec, text, sizeof text);
		assert_string_equal(text, cases[i].text);
	}
}

static void test_time_left_comes_from_tokens(void **state)
{
	(void)state;
	struct progress p = progress_open(true, 2);
	progress_begin(&p, 10, 1000);
	assert_true(progress_left_sec(&p, p.started_ns + 1000000000) < 0); /* nothing known yet */
	progress_add(&p, 250);
	assert_true(fabs(progress_left_sec(&p, p.started_ns + 2000000000) - 6) < 1e-9);
	progress_add(&p, 750);
	assert_true(progress_left_sec(&p, p.started_ns + 2000000000) == 0);
}

static void test_environment_says_what_ran(void **state)
{
	(void)state;
	struct environment e;
	environment_read(&e, "auto", 0, NULL);
	assert_string_equal(e.row.device, "cpu");
	assert_int_equal(e.row.threads, 1);
	assert_non_null(strstr(e.row.libraries, "jansson"));
	assert_true(e.row.dirty == (strstr(kvbench_version, "-dirty") != NULL));
	assert_null(strstr(e.row.commit, "-dirty"));
	snprintf(e.machine.cudnn_why, sizeof e.machine.cudnn_why, "cuDNN 9.19.0");
	environment_add_attention(&e, NULL);
	environment_add_attention(&e, "own");
	assert_null(strstr(e.row.libraries, "cuDNN"));
	environment_add_attention(&e, "cudnn");
	assert_non_null(strstr(e.row.libraries, ", cuDNN 9.19.0"));
}

/* A name in Latin-1, a message cut inside a character: the row that holds it must not be lost. */
static void test_any_bytes_become_json(void **state)
{
	(void)state;
	static const struct {
		const char *bytes, *text;
	} cases[] = {{"", ""}, {"na\xC3\xAFve", "na\xC3\xAFve"}, {"caf\xE9.db", "caf\xEF\xBF\xBD.db"},
		{"cut \xE4\xB8", "cut \xEF\xBF\xBD"}, {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
		{"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		json_t *j = json_bytes(cases[i].bytes);
		assert_string_equal(json_string_value(j), cases[i].text);
		json_decref(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_become_options),
		cmocka_unit_test(test_the_last_of_two_counts),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_durations),
		cmocka_unit_test(test_time_left_comes_from_tokens),
		cmocka_unit_test(test_environment_says_what_ran),
		cmocka_unit_test(test_any_bytes_become_json),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
