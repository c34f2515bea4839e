/* test_hub.c: the hub client against a hub that behaves: layout, look-up, offline, environment, listings from the enemy. The hub
 * that misbehaves is in test_hub_faults.c. Loopback only. */
#include "tests/unit/harness/hub_fixture.h"

#include "harness/hub_impl.h"

static const struct hub_request tiny = {HUB_MODEL, "org/tiny", NULL, NULL, 0},
				data_set = {HUB_DATASET, "org/data", NULL, NULL, 0};

static void fetch(const struct hub_request *rq)
{
	char err[ERR_LEN], *snapshot;
	if (fetch_request(rq, false, &snapshot, err))
		fail_msg("%s", err);
	free(snapshot);
}

/* ---- the layout ---- */

static json_t *found;

static int note_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)ftw;
	char what[1024] = "-> ", sha[SHA_LEN], *text = NULL;
	size_t len;
	const char *where = path + strlen(cache) + 1;
	if (type == FTW_D)
		return 0;
	if (type == FTW_SL || type == FTW_SLN) {
		assert_true(readlink(path, what + 3, sizeof what - 4) > 0);
	} else if (!strcmp(where, "CACHEDIR.TAG")) {
		assert_int_equal(file_read(path, &text, &len, NULL), 0);
		snprintf(what, sizeof what, "%.*s", (int)strcspn(text, "\n"), text);
	} else {
		assert_int_equal(sha256_file(path, sha, NULL), 0);
		strcpy(what, sha);
	}
	free(text);
	json_object_set_new(found, where, json_string(what));
	return 0;
}

static void test_layout_is_huggingface_hubs(void **state)
{
	(void)state;
	fetch(&tiny);
	fetch(&data_set);
	json_t *want = json_file("tests/fixtures/hub/layout.json");
	found = json_object();
	nftw(cache, note_file, 16, FTW_PHYS);
	const char *name;
	json_t *v;
	json_object_foreach(want, name, v)
	{
		if (!json_equal(v, json_object_get(found, name)))
			fail_msg(
				"%s: %s, wanted %s", name, json_string_value(json_object_get(found, name)), json_string_value(v));
	}
	json_object_foreach(found, name, v)
	{
		if (!json_object_get(want, name))
			fail_msg("%s is one too many", name);
	}
	json_decref(want);
	json_decref(found);
}

static void test_contents_and_modes(void **state)
{
	(void)state;
	fetch(&tiny);
	check_tiny();
	struct stat st;
	mode_t mask = umask(022);
	umask(mask);
	char *path = in_cache(SNAPSHOT "/config.json"), *bin = in_cache(SNAPSHOT "/pytorch_model.bin");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
	assert_false(file_exists(bin)); /* only what a model needs */
	free(path);
	free(bin);
}

static void test_files_by_pattern(void **state)
{
	(void)state;
	fetch(&(struct hub_request){HUB_MODEL, "org/tiny", HUB_COMMIT, (const char *[]){"extra/*", "README.md"}, 2});
	check_file("extra/deep/notes.txt");
	check_file("README.md");
	fetch_fails("org/tiny", NULL, "*.gguf", "has no *.gguf");
	assert_int_equal(hubserver_count(server, "GET", "/resolve/", false, false), 2);
}

/* ---- look-up ---- */

static void test_what_is_there_is_not_fetched_again(void **state)
{
	(void)state;
	fetch(&tiny);
	hubserver_reset(server);
	fetch(&tiny);
	assert_int_equal(hubserver_count(server, NULL, "resolve", false, false), 0);
	hubserver_reset(server);
	fetch(&(struct hub_request){HUB_MODEL, "org/tiny", HUB_COMMIT, NULL, 0});
	assert_int_equal(hubserver_requests(server), 0); /* a commit never changes */
}

static void test_a_blob_cut_short_is_replaced(void **state)
{
	(void)state;
	fetch(&tiny);
	char *path = in_cache(SNAPSHOT "/model-00001-of-00002.safetensors");
	assert_int_equal(truncate(path, 1000), 0);
	fetch(&tiny);
	check_tiny();
	free(path);
}

/* In a process which may not write (the tests may run as root, whom no mode stops). */
static void test_read_only_cache(void **state)
{
	(void)state;
	fetch(&tiny);
	char *command = text_format("chmod -R a-w,a+rX %s", cache);
	assert_int_equal(system(command), 0);
	pid_t child = fork();
	if (!child) {
		char err[ERR_LEN], *snapshot;
		_exit((!getuid() && setuid(65534)) || fetch_request(&tiny, false, &snapshot, err) || !access(cache, W_OK));
	}
	int status;
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	memcpy(strstr(command, "a-w,a+rX"), "u+w     ", 8);
	assert_int_equal(system(command), 0);
	free(command);
}

static void test_offline(void **state)
{
	(void)state;
	char err[ERR_LEN], *snapshot;
	setenv("HF_HUB_OFFLINE", "yes", 1);
	assert_int_equal(fetch_request(&tiny, false, &snapshot, err), -1);
	assert_non_null(strstr(err, "kvbench fetch model org/tiny`"));
	assert_non_null(strstr(err, cache));
	unsetenv("HF_HUB_OFFLINE");
	assert_int_equal(hubserver_requests(server), 0);
	fetch(&tiny);
	hubserver_reset(server);
	assert_int_equal(fetch_request(&tiny, true, &snapshot, err), 0);
	free(snapshot);
	char *gone = in_cache(SNAPSHOT "/model-00002-of-00002.safetensors");
	unlink(gone);
	assert_int_equal(fetch_request(&tiny, true, &snapshot, err), -1);
	assert_non_null(strstr(err, "lacks model-00002-of-00002.safetensors"));
	assert_int_equal(fetch_request(&(struct hub_request){HUB_DATASET, "org/data", "v1", (const char *[]){"a", "b"}, 2}, true,
				 &snapshot, err),
		-1);
	assert_non_null(strstr(err, "`kvbench fetch dataset org/data --revision v1 --files 'a,b'`"));
	assert_int_equal(hubserver_requests(server), 0);
	free(gone);
}

static void test_hub_out_of_reach(void **state)
{
	(void)state;
	fetch_fails("org/nothere", NULL, NULL, "private, or there is no such");
	fetch(&tiny);
	set_endpoint(1); /* nobody listens there */
	size_t before = said.len;
	fetch(&tiny);
	assert_non_null(strstr(said.text + before, "taken from the cache, commit " HUB_COMMIT));
	fetch_fails("org/other", NULL, NULL, "kvbench fetch model org/other");
}

static void test_model_path(void **state)
{
	(void)state;
	char err[ERR_LEN], *path = NULL, *want = in_cache(SNAPSHOT);
	assert_int_equal(hub_model_path("org/tiny", &path, err), -1);
	assert_non_null(strstr(err, "`kvbench fetch model org/tiny`"));
	fetch(&tiny);
	hubserver_reset(server);
	static const char *const names[] = {"org/tiny", "org/tiny@main", "org/tiny@" HUB_COMMIT};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (hub_model_path(names[i], &path, err))
			fail_msg("%s: %s", names[i], err);
		assert_string_equal(path, want);
		free(path);
	}
	assert_int_equal(hub_model_path("org/tiny/config.json", &path, err), 0);
	assert_true(file_exists(path));
	free(path);
	static const char *const bad[] = {
		"org/tiny/none.gguf", "org/tiny@v9", "../x", "a/b/../c", "org/ti--ny", "", "/etc", "org/tiny@../../x"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(hub_model_path(bad[i], &path, err), -1);
	assert_int_equal(hubserver_requests(server), 0);
	free(want);
}

/* A cache of an older huggingface_hub has no listing. */
static void test_cache_without_listing(void **state)
{
	(void)state;
	char err[ERR_LEN], *path = NULL, *trees = in_cache("models--org--tiny/trees");
	fetch(&tiny);
	remove_all(trees);
	assert_int_equal(hub_model_path("org/tiny", &path, err), 0);
	free(path);
	char *shard = in_cache(SNAPSHOT "/model-00001-of-00002.safetensors");
	unlink(shard);
	assert_int_equal(hub_model_path("org/tiny", &path, err), -1);
	assert_non_null(strstr(err, "model-00001-of-00002.safetensors"));
	free(shard);
	free(trees);
}

static void test_moved_repository(void **state)
{
	(void)state;
	char err[ERR_LEN], *snapshot;
	if (fetch_request(&(struct hub_request){HUB_MODEL, "old/tiny", NULL, NULL, 0}, false, &snapshot, err))
		fail_msg("%s", err);
	assert_non_null(strstr(snapshot, "models--old--tiny/snapshots/" HUB_COMMIT));
	free(snapshot);
}

/* A mirror which serves files but no listings: names and hashes come from one HEAD each. */
static void test_mirror_without_api(void **state)
{
	(void)state;
	hubserver_rule(server, &(struct hub_rule){.target = "/api/", .fault = HUB_STATUS, .status = 404});
	fetch(&tiny);
	check_tiny();
	assert_true(hubserver_count(server, "HEAD", "/resolve/", false, false) >= 8);
	assert_int_equal(hubserver_count(server, NULL, "/blob/", true, true), 0);
	fetch(&(struct hub_request){HUB_MODEL, "old/tiny", NULL, NULL, 0}); /* relative redirects are followed */
	fetch_fails("org/tiny", NULL, "*", "has no listings");
	fetch_fails("org/nothere", NULL, NULL, "private, or there is no such");
}

/* ---- environment ---- */

static void check_env(const char *cache_wanted, const char *token_wanted)
{
	struct hub_env e;
	char err[ERR_LEN];
	assert_int_equal(hub_env_read(&e, err), 0);
	assert_string_equal(e.cache, cache_wanted);
	assert_true(token_wanted ? e.token && !strcmp(e.token, token_wanted) : !e.token);
	hub_env_free(&e);
}

static void test_environment(void **state)
{
	(void)state;
	struct hub_env e;
	char err[ERR_LEN], *home = text_copy(getenv("HOME"));
	setenv("HOME", cache, 1);
	setenv("ANY", "any", 1);
	setenv("HF_HUB_CACHE", "~/x/$ANY/${ANY}y/$NONE", 1);
	char *want = in_cache("x/any/anyy/$NONE");
	check_env(want, TOKEN);
	free(want);
	unsetenv("HF_HUB_CACHE");
	setenv("HUGGINGFACE_HUB_CACHE", "/older", 1);
	check_env("/older", TOKEN);
	unsetenv("HUGGINGFACE_HUB_CACHE");
	check_env((want = in_cache(".cache/huggingface/hub")), TOKEN);
	free(want);
	setenv("XDG_CACHE_HOME", "/xdg", 1);
	check_env("/xdg/huggingface/hub", TOKEN);
	setenv("HF_HOME", cache, 1);
	unsetenv("HF_TOKEN");
	check_env((want = in_cache("hub")), NULL);
	char *file = in_cache("token");
	write_file(file, "\n hf_file\r\n", 11);
	check_env(want, "hf_file");
	setenv("HUGGING_FACE_HUB_TOKEN", "hf_old", 1);
	check_env(want, "hf_old");
	setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
	check_env(want, NULL);
	unsetenv("HF_HUB_DISABLE_IMPLICIT_TOKEN");
	setenv("HF_TOKEN", "hf a", 1);
	assert_int_equal(hub_env_read(&e, err), -1);
	assert_null(strstr(err, "hf a"));
	setenv("HF_TOKEN", "x", 1);
	setenv("HF_ENDPOINT", "ftp://x", 1);
	assert_int_equal(hub_env_read(&e, err), -1);
	setenv("HOME", home, 1);
	free(home);
	free(want);
	free(file);
}

/* ---- listings from the enemy ---- */

static void check_listing(const char *body, const char *headers, const char *says)
{
	hubserver_reset(server);
	hubserver_rule(server,
		&(struct hub_rule){.target = "/tree/", .fault = HUB_STATUS, .status = 200, .body = body, .headers = headers});
	fetch_fails("org/tiny", NULL, "*", says);
	assert_int_equal(hubserver_count(server, NULL, "/resolve/", false, false), 0);
}

#define ROW(path) "[{\"type\":\"file\",\"path\":\"" path "\",\"size\":3,\"oid\":\"" HUB_COMMIT "\"}]"

static void test_hostile_listings(void **state)
{
	(void)state;
	static const char *const paths[] = {ROW("../x"), ROW("/etc/x"), ROW("a/../../x"), ROW("a\\\\b"), ROW("a//b"), ROW(""),
		ROW("."), ROW("a/."), ROW("a\\nb"), ROW("a/")};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		check_listing(paths[i], NULL, "would leave the folder");
	check_listing(ROW("a\\u0000b"), NULL, "JSON array");
	check_listing("{}", NULL, "JSON array");
	check_listing("[", NULL, "JSON array");
	check_listing("[{}]", NULL, "without path");
	check_listing("[{\"type\":\"file\",\"path\":\"x\",\"size\":3,\"oid\":\"../../../x\"}]", NULL, "no hash");
	check_listing("[{\"type\":\"file\",\"path\":\"x\",\"size\":3,\"oid\":\"" HUB_COMMIT "\",\"lfs\":{\"oid\":\"/x\"}}]", NULL,
		"no hash");
	check_listing(ROW("x"), "Link: <http://127.0.0.1:1/api/x>; rel=\"next\"\r\n", "another host");
	check_listing("[{\"type\":\"file\",\"path\":\"x\",\"size\":4000000000000000,\"oid\":\"" HUB_COMMIT "\"}]", NULL,
		"MB are free at");
	assert_int_equal(system("test ! -e /etc/x"), 0);
}

static void test_hostile_commit_and_index(void **state)
{
	(void)state;
	hubserver_rule(server,
		&(struct hub_rule){.target = "/revision/", .fault = HUB_STATUS, .status = 200, .body = "{\"sha\":\"../../x\"}"});
	fetch_fails("org/tiny", NULL, NULL, "names no commit");
	fetch_fails("org/tiny", "../x", NULL, "is no revision");
	fetch_fails("../tiny", NULL, NULL, "no name of a repository");
	fetch_fails("org/tiny/more", NULL, NULL, "no name of a repository");
	hubserver_reset(server);
	fetch(&tiny);
	char *index = in_cache(SNAPSHOT "/model.safetensors.index.json"), *path;
	static const char text[] = "{\"weight_map\": {\"a\": \"../../x\"}}";
	unlink(index);
	write_file(index, text, sizeof text - 1);
	char err[ERR_LEN], *trees = in_cache("models--org--tiny/trees");
	remove_all(trees);
	assert_int_equal(hub_model_path("org/tiny", &path, err), -1);
	assert_non_null(strstr(err, "would leave the folder"));
	free(index);
	free(trees);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, hub_setup, hub_teardown)
	const struct CMUnitTest tests[] = {
		T(test_layout_is_huggingface_hubs),
		T(test_contents_and_modes),
		T(test_files_by_pattern),
		T(test_what_is_there_is_not_fetched_again),
		T(test_a_blob_cut_short_is_replaced),
		T(test_read_only_cache),
		T(test_offline),
		T(test_hub_out_of_reach),
		T(test_model_path),
		T(test_cache_without_listing),
		T(test_moved_repository),
		T(test_mirror_without_api),
		T(test_environment),
		T(test_hostile_listings),
		T(test_hostile_commit_and_index),
	};
	return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
