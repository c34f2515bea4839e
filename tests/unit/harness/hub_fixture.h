/* hub_fixture.h: what the hub client's tests share: a server, an empty cache, every word that was said. */
#ifndef KVB_HUB_FIXTURE_H
#define KVB_HUB_FIXTURE_H

#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/test.h"
#include "tests/hubserver/hubserver.h"

#include "harness/hub.h"

#define TOKEN "hf_secretsecretsecret"
#define SNAPSHOT "models--org--tiny/snapshots/" HUB_COMMIT

static struct hubserver *server;
static char cache[64];     /* the hub cache of this test */
static struct strbuf said; /* every line told and every error, of the whole program */
static int shown;          /* calls of the progress callback */

static inline void hear(void *user, const char *line)
{
	(void)user;
	strbuf_puts(&said, line);
	strbuf_puts(&said, "\n");
}

static inline void see(void *user, const struct hub_progress *p)
{
	(void)user;
	assert_non_null(p->file);
	assert_true(p->done >= 0);
	shown++;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void remove_all(const char *folder)
{
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void set_endpoint(int port)
{
	char *url = text_format("http://127.0.0.1:%d/", port); /* the slash at the end must not matter */
	setenv("HF_ENDPOINT", url, 1);
	free(url);
}

static inline int hub_setup(void **state)
{
	(void)state;
	static const char *const unset[] = {"HF_HOME", "HUGGINGFACE_HUB_CACHE", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
		"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "XDG_CACHE_HOME", "KVBENCH_DATA",
		"KVBENCH_MIRROR", "HF_HUB_DOWNLOAD_TIMEOUT", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"};
	for (size_t i = 0; i < sizeof unset / sizeof *unset; i++)
		unsetenv(unset[i]);
	strcpy(cache, "/tmp/kvbench-hub-XXXXXX");
	if (!mkdtemp(cache))
		return -1;
	setenv("HF_HUB_CACHE", cache, 1);
	setenv("HF_TOKEN", " " TOKEN "\n", 1);
	set_endpoint(hubserver_port(server));
	hubserver_reset(server);
	return 0;
}

static inline int hub_teardown(void **state)
{
	(void)state;
	remove_all(cache);
	return 0;
}

static inline int server_setup(void **state)
{
	(void)state;
	server = hubserver_start();
	return server ? 0 : -1;
}

static inline int server_teardown(void **state)
{
	(void)state;
	hubserver_stop(server);
	strbuf_free(&said);
	return 0;
}

/* hub_fetch with fast retries; err is heard too. Caller frees *snapshot. */
static inline int fetch_request(const struct hub_request *rq, bool offline, char **snapshot, char err[ERR_LEN])
{
	struct hub *h = NULL;
	struct hub_options o = {.offline = offline, .retry_ms = 2, .tell = hear, .progress = see};
	*snapshot = NULL;
	err[0] = 0;
	int rc = hub_open(&h, &o, err) || hub_fetch(h, rq, snapshot, err) ? -1 : 0;
	hear(NULL, err);
	hub_close(h);
	return rc;
}

/* The model org/tiny must come, whole. */
static inline void fetch_tiny(void)
{
	char err[ERR_LEN], *snapshot;
	if (fetch_request(&(struct hub_request){HUB_MODEL, "org/tiny", NULL, NULL, 0}, false, &snapshot, err))
		fail_msg("%s", err);
	free(snapshot);
}

/* Fetching must fail, saying that. */
static inline void fetch_fails(const char *repo, const char *revision, const char *file, const char *says)
{
	char err[ERR_LEN], *snapshot;
	if (!fetch_request(&(struct hub_request){HUB_MODEL, repo, revision, &file, file != NULL}, false, &snapshot, err))
		fail_msg("%s was fetched to %s", repo, snapshot);
	if (!strstr(err, says))
		fail_msg("\"%s\" does not say \"%s\"", err, says);
}

static inline char *in_cache(const char *name)
{
	return text_format("%s/%s", cache, name);
}

/* The file of the model's snapshot holds what the server has. */
static inline void check_file(const char *name)
{
	size_t want_len, len;
	const char *want = hubserver_content(server, name, &want_len);
	char *path = text_format("%s/" SNAPSHOT "/%s", cache, name), *data = NULL, err[ERR_LEN];
	if (file_read(path, &data, &len, err))
		fail_msg("%s", err);
	assert_int_equal(len, want_len);
	assert_memory_equal(data, want, len);
	free(data);
	free(path);
}

static inline void check_tiny(void)
{
	static const char *const names[] = {
		"config.json", "tokenizer.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		check_file(names[i]);
}

static inline void write_file(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	fclose(f);
}

#endif
