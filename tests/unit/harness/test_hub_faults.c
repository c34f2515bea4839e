/* test_hub_faults.c: a hub that misbehaves in every way we know: each ends in the right file or in the right error, and the token
 * appears nowhere. Loopback only. */
#include "tests/unit/harness/hub_fixture.h"

#include <signal.h>
#include <sys/resource.h>

static void rule(const char *target, enum hub_fault fault, int times)
{
	hubserver_rule(server, &(struct hub_rule){.target = target, .fault = fault, .times = times});
}

static void refuse(const char *target, int times, int status, const char *headers)
{
	hubserver_rule(server,
		&(struct hub_rule){.target = target, .fault = HUB_STATUS, .times = times, .status = status, .headers = headers});
}

static int blob_requests(void)
{
	return hubserver_count(server, "GET", "/blob/", true, false);
}

static double seconds_of_fetch(void)
{
	int64_t start = clock_ns();
	fetch_tiny();
	check_tiny();
	return (double)(clock_ns() - start) / 1e9;
}

/* The partial file a fetch would leave for the first shard, holding that many of its bytes (or others). */
static char *make_partial(size_t len, int flip)
{
	size_t all;
	const char *content = hubserver_content(server, "model-00001-of-00002.safetensors", &all);
	char sha[SHA_LEN], *blobs = in_cache("models--org--tiny/blobs");
	sha256_hex(content, all, sha);
	char *path = text_format("%s/%s.kvb.incomplete", blobs, sha), *command = text_format("mkdir -p %s", blobs),
	     *data = mem_new(len + 1, 1);
	assert_int_equal(system(command), 0);
	memcpy(data, content, len < all ? len : all);
	data[0] ^= (char)flip;
	write_file(path, data, len);
	free(data);
	free(command);
	free(blobs);
	return path;
}

/* ---- bodies ---- */

static void test_cut_bodies_are_continued(void **state)
{
	(void)state;
	rule("/blob/", HUB_CUT, 7); /* more than the tries in a row: each brings bytes, so patience is renewed */
	fetch_tiny();
	check_tiny();
	assert_int_equal(blob_requests(), 9);
	assert_non_null(strstr(said.text, "try 2 of 5"));
}

static void test_a_partial_file_is_continued(void **state)
{
	(void)state;
	char *part = make_partial(100000, 0);
	hubserver_rule(
		server, &(struct hub_rule){.target = "/blob/", .fault = HUB_STATUS, .status = 500, .ranged = true, .times = 1});
	fetch_tiny();
	check_tiny();
	assert_int_equal(blob_requests(), 3);
	assert_false(file_exists(part));
	free(part);
}

static void test_ignored_range_starts_over(void **state)
{
	(void)state;
	free(make_partial(100000, 0));
	rule("/blob/", HUB_NO_RANGE, 0);
	fetch_tiny();
	check_tiny();
}

static void test_416_starts_over(void **state)
{
	(void)state;
	free(make_partial(100000, 0));
	hubserver_rule(server, &(struct hub_rule){.target = "/blob/", .fault = HUB_STATUS, .status = 416, .ranged = true});
	fetch_tiny();
	check_tiny();
}

static void test_partial_files_of_the_wrong_size(void **state)
{
	(void)state;
	free(make_partial(300007, 0)); /* whole: no request for it */
	fetch_tiny();
	check_tiny();
	assert_int_equal(blob_requests(), 1);
	remove_all(cache);
	free(make_partial(400000, 0));
	fetch_tiny();
	check_tiny();
}

static void test_a_wrong_partial_is_thrown_away(void **state)
{
	(void)state;
	free(make_partial(100000, 1));
	fetch_tiny();
	check_tiny();
	assert_non_null(strstr(said.text, "fetched once more"));
}

static void test_wrong_bytes(void **state)
{
	(void)state;
	rule("/blob/", HUB_WRONG, 1);
	fetch_tiny();
	check_tiny();
	remove_all(cache);
	rule("/blob/", HUB_WRONG, 0);
	fetch_fails("org/tiny", NULL, NULL, "the bytes are not those the hub names");
	char *command = text_format("find %s | grep -q 'incomplete\\|safetensors$'", cache);
	assert_int_not_equal(system(command), 0); /* nothing of it stays */
	free(command);
	hubserver_reset(server);
	rule("config.json", HUB_WRONG, 0); /* a small file: git's SHA-1 */
	remove_all(cache);
	fetch_fails("org/tiny", NULL, NULL, "git SHA-1");
}

static void test_more_bytes_than_the_file_has(void **state)
{
	(void)state;
	rule("/blob/", HUB_LONG, 0);
	fetch_fails("org/tiny", NULL, NULL, "more bytes came");
	hubserver_reset(server);
	rule("/blob/", HUB_LONG, 1);
	fetch_tiny();
	check_tiny();
}

static void test_silence_ends(void **state)
{
	(void)state;
	setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1", 1);
	rule("/blob/", HUB_STALL, 1);
	rule("/blob/", HUB_CLOSE, 2);
	double sec = seconds_of_fetch();
	assert_true(sec > 0.9 && sec < 4);
	rule("/resolve/", HUB_CLOSE, 0);
	remove_all(cache);
	fetch_fails("org/tiny", NULL, NULL, "given up after 5 tries");
}

/* ---- redirects ---- */

static void test_the_token_goes_to_the_hub_alone(void **state)
{
	(void)state;
	rule("/blob/", HUB_CUT, 2);
	fetch_tiny();
	assert_true(blob_requests() > 0);
	assert_int_equal(hubserver_count(server, NULL, "", true, true), 0);
	assert_int_equal(hubserver_count(server, NULL, "", false, true), hubserver_count(server, NULL, "", false, false));
	assert_null(strstr(said.text, "signed-secret"));
}

static void test_bad_redirects(void **state)
{
	(void)state;
	rule("/blob/", HUB_LOOP, 0);
	fetch_fails("org/tiny", NULL, NULL, "redirects");
	hubserver_reset(server);
	refuse("/resolve/", 0, 302, "Location: file:///etc/passwd\r\n");
	remove_all(cache);
	fetch_fails("org/tiny", NULL, NULL, "nsupported protocol");
}

/* ---- statuses ---- */

static void test_refusals_say_what_to_do(void **state)
{
	(void)state;
	fetch_fails("gated/model", NULL, NULL, "accept the licence at http://127.0.0.1");
	fetch_fails("gated/model", NULL, NULL, "HF_TOKEN has no access");
	fetch_fails("org/none", NULL, NULL, "HF_TOKEN has no access");
	fetch_fails("org/tiny", "v9", NULL, "has no revision v9");
	fetch_fails("org/tiny", NULL, "none.txt", "has no none.txt");
	unsetenv("HF_TOKEN");
	fetch_fails("gated/model", NULL, NULL, "set HF_TOKEN");
	fetch_fails("org/none", NULL, NULL, "set HF_TOKEN");
	refuse("/resolve/", 0, 404, "X-Error-Code: EntryNotFound\r\n");
	fetch_fails("org/tiny", NULL, NULL, "HTTP 404 EntryNotFound");
	hubserver_reset(server);
	refuse("/resolve/", 0, 403, "X-Error-Code: GatedRepo\r\n"); /* the listing is public, the files are not */
	fetch_fails("org/tiny", NULL, NULL, "accept the licence");
	assert_int_equal(hubserver_count(server, NULL, "/resolve/", false, false), 1); /* no retries */
}

static void test_5xx_and_408_are_tried_again(void **state)
{
	(void)state;
	refuse("/revision/", 2, 503, NULL);
	refuse("/tree/", 1, 500, NULL);
	refuse("config.json", 4, 502, NULL);
	refuse("/blob/", 2, 408, NULL);
	fetch_tiny();
	check_tiny();
	remove_all(cache);
	hubserver_reset(server);
	refuse("/resolve/", 0, 500, NULL);
	fetch_fails("org/tiny", NULL, NULL, "HTTP 500 (given up after 5 tries; the same command continues)");
	assert_int_equal(hubserver_count(server, NULL, "/resolve/", false, false), 5);
	remove_all(cache);
	hubserver_reset(server);
	refuse("/revision/", 0, 503, NULL);
	fetch_fails("org/tiny", NULL, NULL, "HTTP 503");
	assert_int_equal(hubserver_requests(server), 5);
}

static void test_429_waits_as_asked(void **state)
{
	(void)state;
	refuse("/revision/", 1, 429, "Retry-After: 1\r\n");
	double sec = seconds_of_fetch();
	assert_true(sec > 0.95 && sec < 3);
	remove_all(cache);
	refuse("/blob/", 1, 429, "RateLimit: \"resolvers\";r=0;t=1\r\n");
	assert_true((sec = seconds_of_fetch()) > 0.95 && sec < 3);
	remove_all(cache);
	refuse("/tree/", 1, 429, "RateLimit: \"api\";r=5;t=40\r\n"); /* not used up: no reason to wait */
	assert_true(seconds_of_fetch() < 1);
	remove_all(cache);
	refuse("/revision/", 0, 429, "Retry-After: 86400\r\n");
	int64_t start = clock_ns();
	fetch_fails("org/tiny", NULL, NULL, "HTTP 429");
	assert_true(clock_ns() - start < 1000000000);
}

static void test_what_the_server_says_is_cleaned(void **state)
{
	(void)state;
	refuse("/revision/", 0, 400, "X-Error-Message: your token " TOKEN " \x1b[31m is bad\r\n");
	fetch_fails("org/tiny", NULL, NULL, "your token ********************* ?[31m is bad");
}

/* ---- the disk ---- */

static int status_of_child(pid_t child)
{
	int status;
	waitpid(child, &status, 0);
	return status;
}

static void test_a_full_disk(void **state)
{
	(void)state;
	pid_t child = fork();
	if (!child) { /* no file may be longer than 200,000 bytes */
		char err[ERR_LEN], *snapshot;
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &(struct rlimit){200000, 200000});
		int rc = fetch_request(&(struct hub_request){HUB_MODEL, "org/tiny", NULL, NULL, 0}, false, &snapshot, err);
		_exit(rc != -1 || !strstr(err, "model-00001-of-00002.safetensors: cannot write: File too large"));
	}
	assert_int_equal(status_of_child(child), 0);
	hubserver_reset(server);
	fetch_tiny(); /* with room again it goes on where it stopped */
	check_tiny();
	hubserver_reset(server);
}

static void test_a_killed_fetch_is_continued(void **state)
{
	(void)state;
	rule("/blob/", HUB_SLOW, 0);
	pid_t child = fork();
	if (!child) {
		fetch_tiny();
		_exit(0);
	}
	for (int i = 0; i < 500 && !blob_requests(); i++)
		usleep(10000);
	usleep(500000);
	kill(child, SIGKILL);
	assert_int_equal(status_of_child(child), SIGKILL);
	hubserver_reset(server);
	hubserver_rule(
		server, &(struct hub_rule){.target = "/blob/", .fault = HUB_STATUS, .status = 500, .ranged = true, .times = 1});
	fetch_tiny();
	check_tiny();
	assert_int_equal(blob_requests(), 3); /* the second went on with a range: it met the rule */
}

static void test_two_processes_fetch_once(void **state)
{
	(void)state;
	rule("/blob/", HUB_SLOW, 0);
	pid_t child = fork();
	if (!child) {
		fetch_tiny();
		_exit(0);
	}
	fetch_tiny();
	assert_int_equal(status_of_child(child), 0);
	check_tiny();
	assert_int_equal(blob_requests(), 2);
}

/* ---- plain addresses ---- */

static int download(const char *target, const char *sha256, int64_t bytes, char got[SHA_LEN], char err[ERR_LEN])
{
	struct hub *h = NULL;
	struct hub_options o = {.retry_ms = 2, .tell = hear};
	char *url = text_format("http://127.0.0.1:%d%s", hubserver_port(server), target), *path = in_cache("web/file");
	int rc = hub_open(&h, &o, err) || hub_download(h, url, path, sha256, bytes, got, err) ? -1 : 0;
	hub_close(h);
	free(url);
	free(path);
	return rc;
}

static void test_plain_addresses(void **state)
{
	(void)state;
	char got[SHA_LEN], want[SHA_LEN], err[ERR_LEN], *path = in_cache("web/file");
	sha256_hex("hello", 5, want);
	hubserver_file(server, "/raw/hello", "hello", 5);
	set_endpoint(2); /* another host than the hub: no token */
	rule("/raw/hello", HUB_CUT, 1);
	assert_int_equal(download("/raw/hello", NULL, 0, got, err), 0);
	assert_string_equal(got, want);
	assert_int_equal(hubserver_count(server, NULL, "/raw/hello", false, true), 0);
	hubserver_reset(server);
	assert_int_equal(download("/raw/hello", want, 5, got, err), 0);
	assert_int_equal(hubserver_requests(server), 0); /* the right file is there */
	want[0] = want[0] == 'f' ? '0' : 'f';
	assert_int_equal(download("/raw/hello", want, 5, got, err), -1);
	assert_non_null(strstr(err, "twice"));
	assert_true(file_exists(path)); /* what was there before stays */
	assert_int_equal(download("/raw/none", NULL, 0, got, err), -1);
	free(path);
}

/* ---- last: all that was said ---- */

static void test_the_token_was_never_said(void **state)
{
	(void)state;
	assert_true(said.len > 1000);
	assert_null(strstr(said.text, TOKEN));
	assert_true(shown > 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, hub_setup, hub_teardown)
	const struct CMUnitTest tests[] = {
		T(test_cut_bodies_are_continued),
		T(test_a_partial_file_is_continued),
		T(test_ignored_range_starts_over),
		T(test_416_starts_over),
		T(test_partial_files_of_the_wrong_size),
		T(test_a_wrong_partial_is_thrown_away),
		T(test_wrong_bytes),
		T(test_more_bytes_than_the_file_has),
		T(test_silence_ends),
		T(test_the_token_goes_to_the_hub_alone),
		T(test_bad_redirects),
		T(test_refusals_say_what_to_do),
		T(test_5xx_and_408_are_tried_again),
		T(test_429_waits_as_asked),
		T(test_what_the_server_says_is_cleaned),
		T(test_a_full_disk),
		T(test_a_killed_fetch_is_continued),
		T(test_two_processes_fetch_once),
		T(test_plain_addresses),
		T(test_the_token_was_never_said),
	};
	return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
