/* hub_http.c: requests with libcurl: time-outs, redirects, retries, resuming. The only file that knows curl.
 *
 * The token goes only to addresses under the endpoint. It is set as a header of ours, which curl drops when a redirect leads to
 * another host or port. Redirected (signed) addresses, and what a server says, are never repeated without removing the token.
 * Retried: no connection, a cut body, 408, 429, 5xx; five tries in a row without a byte, waiting twice as long each time, or as
 * long as the server asks (Retry-After, RateLimit). */
#include "harness/hub_impl.h"

#include <curl/curl.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

extern const char kvbench_version[];

enum { TRIES = 5, REDIRECTS = 5, RESTARTS = 2, MAX_WAIT_SEC = 300, TEXT_MAX = 64 << 20, SHOW_MS = 100 };

struct http {
	CURL *curl;
	const struct hub_env *env;
	const struct hub_options *o;
	struct curl_slist *plain, *with_token;
	int64_t expected, before, started_ns,
		shown_ns; /* bytes of all files; of finished attempts; clock of the first byte, of the last line */
	uint64_t jitter;
};

/* One attempt: where its bytes go and what became of them. */
struct attempt {
	struct http *x;
	struct http_reply *r;
	struct strbuf text;   /* of http_text, and the first bytes of an error page */
	int fd;               /* -1: into text */
	int64_t limit, moved; /* most bytes to take (-1 = any); bytes written in this attempt */
	const char *name;
	long rate_wait_sec; /* RateLimit: r=0;t=SEC; 0 = none */
	int write_errno;
	bool too_long;
};

/* ---- talk ---- */

/* Anything that may repeat the token loses it. */
static void redact(const struct http *x, char *text)
{
	size_t n = x->env->token ? strlen(x->env->token) : 0;
	for (char *at = text; n && (at = strstr(at, x->env->token)); at += n)
		memset(at, '*', n);
}

void http_tell(const struct http *x, const char *fmt, ...)
{
	char line[ERR_LEN];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	redact(x, line);
	if (x->o->tell)
		x->o->tell(x->o->user, line);
}

/* What a server says, as one short printable line. */
static char *printable(const char *s, size_t len)
{
	char *out = mem_new(len + 1, 1);
	for (size_t i = 0; i < len && i < 200; i++)
		out[i] = isprint((unsigned char)s[i]) ? s[i] : '?';
	return out;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
	(void)total, (void)now, (void)up_total, (void)up_now;
	struct attempt *a = user;
	struct http *x = a->x;
	int64_t ns = clock_ns();
	if (a->fd < 0 || !x->o->progress || ns - x->shown_ns < SHOW_MS * (int64_t)1000000)
		return 0;
	x->shown_ns = ns;
	int64_t done = x->before + a->moved;
	double sec = (double)(ns - x->started_ns) / 1e9, rate = sec > 0 ? (double)done / sec : 0;
	struct hub_progress p = {
		a->name, done, x->expected, rate, x->expected && rate > 0 ? (double)(x->expected - done) / rate : -1};
	x->o->progress(x->o->user, &p);
	return 0;
}

void http_expect(struct http *x, int64_t bytes)
{
	x->expected = bytes;
	x->before = 0;
	x->started_ns = clock_ns();
}

/* ---- one attempt ---- */

void http_reply_free(struct http_reply *r)
{
	char *all[] = {r->body, r->commit, r->etag, r->location, r->link, r->error_code, r->error_text};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
	*r = (struct http_reply){.size = -1};
}

static void keep(char **to, const char *value, size_t len)
{
	free(*to);
	*to = text_format("%.*s", (int)len, value);
}

/* W/"abc" -> abc; nothing that could not be a file's name. */
static void keep_etag(char **to, const char *value, size_t len)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	char *all = text_format("%.*s", (int)len, value), *s = strncmp(all, "W/", 2) ? all : all + 2;
	s += *s == '"';
	s[strcspn(s, "\"")] = 0;
	free(*to);
	*to = *s && strlen(s) <= 128 && strspn(s, allowed) == strlen(s) ? text_copy(s) : NULL;
	free(all);
}

static bool header_is(const char *line, size_t n, const char *name)
{
	return strlen(name) == n && !strncasecmp(line, name, n);
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
	struct attempt *a = user;
	struct http_reply *r = a->r;
	size_t all = size * count, n = all;
	if (n > 5 && !strncmp(line, "HTTP/", 5)) { /* a new answer (after a redirect): nothing of the last one counts */
		http_reply_free(r);
		a->rate_wait_sec = 0;
		return all;
	}
	while (n && isspace((unsigned char)line[n - 1]))
		n--;
	const char *colon = memchr(line, ':', n);
	if (!colon)
		return all;
	const char *value = colon + 1, *end = line + n;
	while (value < end && isspace((unsigned char)*value))
		value++;
	size_t name = (size_t)(colon - line), len = (size_t)(end - value);
	bool linked = header_is(line, name, "X-Linked-Etag");
	if (linked || (header_is(line, name, "ETag") && !r->etag))
		keep_etag(&r->etag, value, len);
	else if (header_is(line, name, "X-Linked-Size") || (header_is(line, name, "Content-Length") && r->size < 0))
		r->size = strtoll(value, NULL, 10);
	else if (header_is(line, name, "X-Repo-Commit"))
		keep(&r->commit, value, len);
	else if (header_is(line, name, "Location"))
		keep(&r->location, value, len);
	else if (header_is(line, name, "Link"))
		keep(&r->link, value, len);
	else if (header_is(line, name, "X-Error-Code"))
		keep(&r->error_code, value, len);
	else if (header_is(line, name, "X-Error-Message"))
		keep(&r->error_text, value, len);
	else if (header_is(line, name, "RateLimit")) {
		char *text = text_format("%.*s", (int)len, value), *t = strstr(text, ";r=0;t=");
		a->rate_wait_sec = t ? strtol(t + 7, NULL, 10) : 0;
		free(text);
	}
	return all;
}

/* Bodies of errors never reach the file. */
static size_t on_body(char *data, size_t size, size_t count, void *user)
{
	struct attempt *a = user;
	size_t n = size * count;
	long status = 0;
	curl_easy_getinfo(a->x->curl, CURLINFO_RESPONSE_CODE, &status);
	if (a->fd < 0 || status >= 300) {
		if (a->text.len + n > TEXT_MAX) {
			a->too_long = true;
			return 0;
		}
		strbuf_add(&a->text, data, n);
		return n;
	}
	if (a->limit >= 0 && a->moved + (int64_t)n > a->limit) {
		a->too_long = true;
		return 0;
	}
	for (size_t done = 0; done < n;) {
		ssize_t k = write(a->fd, data + done, n - done);
		if (k < 0) {
			a->write_errno = errno;
			return 0;
		}
		done += (size_t)k;
		a->moved += k;
	}
	return n;
}

static bool under_endpoint(const struct http *x, const char *url)
{
	size_t n = strlen(x->env->endpoint);
	return !strncmp(url, x->env->endpoint, n) && url[n] == '/';
}

static CURLcode perform(struct attempt *a, const char *url, bool head, int64_t from)
{
	struct http *x = a->x;
	CURL *c = x->curl;
	bool secure = !strncmp(url, "https://", 8);
	curl_easy_reset(c); /* connections and their names stay */
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, head ? 0L : 1L);
	curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS);
	curl_easy_setopt(c, CURLOPT_NOBODY, head ? 1L : 0L);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, under_endpoint(x, url) && x->env->token ? x->with_token : x->plain);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, x->env->meta_sec);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, a->fd < 0 ? x->env->meta_sec : x->env->idle_sec);
	curl_easy_setopt(c, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)from);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, a);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
	curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(c, CURLOPT_XFERINFODATA, a);
	strbuf_free(&a->text);
	a->moved = 0;
	CURLcode code = curl_easy_perform(c);
	long status = 0;
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	a->r->status = status;
	return code;
}

/* ---- retries ---- */

static bool worth_another_try(CURLcode code, long status)
{
	switch (code) {
	case CURLE_OK:
		return status == 408 || status == 429 || status >= 500;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
	case CURLE_OPERATION_TIMEDOUT:
	case CURLE_PARTIAL_FILE:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
	case CURLE_WEIRD_SERVER_REPLY:
		return true;
	default:
		return false;
	}
}

/* Why an attempt failed, in a few words. */
static char *reason(const struct attempt *a, CURLcode code)
{
	const struct http_reply *r = a->r;
	if (a->too_long)
		return text_copy("more bytes came than the file has");
	if (a->write_errno)
		return text_format("cannot write: %s", strerror(a->write_errno));
	if (code != CURLE_OK)
		return text_copy(curl_easy_strerror(code));
	char *what = printable(r->error_code ? r->error_code : "", r->error_code ? strlen(r->error_code) : 0);
	char *says = printable(r->error_text ? r->error_text : "", r->error_text ? strlen(r->error_text) : 0);
	char *all = text_format("HTTP %ld%s%s%s%s", r->status, *what ? " " : "", what, *says ? ": " : "", says);
	free(what);
	free(says);
	redact(a->x, all);
	return all;
}

static void pause_ms(int64_t ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* Waits before try number n (2..). False when the server asks for more patience than anyone has. */
static bool wait_before(struct attempt *a, int n, const char *name, const char *why)
{
	struct http *x = a->x;
	curl_off_t asked = 0;
	curl_easy_getinfo(x->curl, CURLINFO_RETRY_AFTER, &asked);
	if (a->rate_wait_sec > asked)
		asked = a->rate_wait_sec;
	if (asked > MAX_WAIT_SEC)
		return false;
	struct rng jitter = rng_seed(x->jitter++, 1);
	int64_t base = x->o->retry_ms ? x->o->retry_ms : 1000;
	int64_t ms = (int64_t)((double)(base << (n - 2)) * (1 + .25 * rng_unit(&jitter)));
	if (asked * 1000 > ms)
		ms = asked * 1000;
	http_tell(x, "%s: %s; try %d of %d in %.1f s", name, why, n, TRIES, (double)ms / 1000);
	pause_ms(ms);
	return true;
}

/* Attempts until one is fine, a refusal, or the last. */
static int until_answered(struct attempt *a, const char *url, bool head, char err[ERR_LEN])
{
	for (int n = 1;; n++) {
		CURLcode code = perform(a, url, head, 0);
		if (code == CURLE_OK && a->r->status < 400)
			return 0;
		char *why = reason(a, code);
		bool again = n < TRIES && worth_another_try(code, a->r->status) && wait_before(a, n + 1, url, why);
		if (!again)
			err_set(err, "%s: %s", url, why);
		free(why);
		if (again)
			continue;
		if (code != CURLE_OK)
			a->r->status = 0;
		return -1;
	}
}

int http_text(struct http *x, const char *url, struct http_reply *r, char err[ERR_LEN])
{
	*r = (struct http_reply){.size = -1};
	struct attempt a = {.x = x, .r = r, .fd = -1, .limit = -1};
	int rc = until_answered(&a, url, false, err);
	if (!rc && r->status != 200)
		rc = err_set(err, "%s: HTTP %ld, which is no answer to this", url, r->status);
	r->len = a.text.len;
	r->body = strbuf_take(&a.text);
	return rc;
}

/* "http://host:port" of an address. */
static int origin_len(const char *url)
{
	const char *host = strstr(url, "://");
	return host ? (int)(host + 3 - url + (long)strcspn(host + 3, "/")) : 0;
}

int http_head(struct http *x, const char *url, struct http_reply *r, char err[ERR_LEN])
{
	char *at = text_copy(url);
	struct attempt a = {.x = x, .r = r, .fd = -1, .limit = -1};
	*r = (struct http_reply){.size = -1};
	int rc = -1;
	for (int hops = 0; hops <= REDIRECTS; hops++) {
		rc = until_answered(&a, at, true, err);
		bool relative = !rc && r->location && r->location[0] == '/' && r->location[1] != '/';
		if (!relative || r->status < 300)
			break;
		char *next = text_format("%.*s%s", origin_len(at), at, r->location);
		free(at);
		at = next;
		rc = err_set(err, "%s: more than %d redirects", url, REDIRECTS);
	}
	strbuf_free(&a.text);
	free(at);
	return rc;
}

/* ---- files ---- */

/* The server cannot continue the file (416, or it sends all of it again): from the start. */
static bool cannot_continue(CURLcode code, const struct attempt *a, int64_t from)
{
	return from && (code == CURLE_RANGE_ERROR || (code == CURLE_OK && a->r->status == 416));
}

static int64_t file_end(int fd)
{
	return lseek(fd, 0, SEEK_END);
}

/* One attempt from the file's end on. 0 whole, 1 try again, -1 err. */
static int file_attempt(struct attempt *a, const char *url, int64_t bytes, int *restarts, char **why, char err[ERR_LEN])
{
	int64_t from = file_end(a->fd);
	if (from == bytes)
		return 0;
	a->limit = bytes < 0 ? -1 : bytes - from;
	CURLcode code = perform(a, url, false, from);
	a->x->before += a->moved;
	int64_t now = file_end(a->fd);
	bool fine = code == CURLE_OK && a->r->status < 300;
	if (fine && (bytes < 0 || now == bytes))
		return 0;
	free(*why);
	*why = fine ? text_format("the body ended after %lld of %lld bytes", (long long)now, (long long)bytes) : reason(a, code);
	bool restart = cannot_continue(code, a, from) || a->too_long;
	if (restart && (*restarts)++ < RESTARTS && !ftruncate(a->fd, 0)) {
		a->x->before -= a->moved;
		a->x->expected += from;
		a->too_long = false;
		return 1;
	}
	if (a->write_errno || restart || (!fine && !worth_another_try(code, a->r->status))) {
		a->r->status = code == CURLE_OK ? a->r->status : 0;
		return err_set(err, "%s: %s", a->name, *why);
	}
	return 1;
}

int http_file(struct http *x, const char *url, int fd, const char *name, int64_t bytes, struct http_reply *r, char err[ERR_LEN])
{
	*r = (struct http_reply){.size = -1};
	struct attempt a = {.x = x, .r = r, .fd = fd, .name = name};
	if (bytes >= 0 && file_end(fd) > bytes && ftruncate(fd, 0))
		return err_set(err, "%s: cannot start over: %s", name, strerror(errno));
	char *why = NULL;
	int rc = 1, restarts = 0;
	for (int n = 1; rc == 1;) {
		int known = restarts;
		rc = file_attempt(&a, url, bytes, &restarts, &why, err);
		n = a.moved ? 1 : n; /* a byte came in: patience is renewed */
		if (rc == 1 && restarts == known && (++n > TRIES || !wait_before(&a, n, name, why)))
			rc = err_set(err, "%s: %s (given up after %d tries; the same command continues)", name, why, TRIES);
	}
	free(why);
	strbuf_free(&a.text);
	return rc;
}

/* ---- open, close ---- */

int http_open(struct http **out, const struct hub_env *env, const struct hub_options *o, char err[ERR_LEN])
{
	struct http *x = mem_new(1, sizeof *x);
	x->env = env;
	x->o = o;
	x->jitter = (uint64_t)clock_ns();
	if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(x->curl = curl_easy_init())) {
		free(x);
		return err_set(err, "libcurl cannot start");
	}
	char *agent = text_format("User-Agent: kvbench/%s", kvbench_version);
	const char *const both[] = {agent, "Accept-Encoding: identity"};
	for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
		x->plain = curl_slist_append(x->plain, both[i]);
		x->with_token = curl_slist_append(x->with_token, both[i]);
	}
	free(agent);
	if (env->token) {
		char *line = text_format("Authorization: Bearer %s", env->token);
		x->with_token = curl_slist_append(x->with_token, line);
		free(line);
	}
	*out = x;
	return 0;
}

void http_close(struct http *x)
{
	if (!x)
		return;
	curl_easy_cleanup(x->curl);
	curl_slist_free_all(x->plain);
	curl_slist_free_all(x->with_token);
	curl_global_cleanup();
	free(x);
}
