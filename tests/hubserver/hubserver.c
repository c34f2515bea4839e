/* hubserver.c: see hubserver.h. */
#include "tests/hubserver/hubserver.h"

#include "harness/base/base.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct file {
	char *path; /* in the repository, or a whole address (repo NULL) */
	const char *repo;
	char *data;
	size_t len;
	bool lfs;
	char sha256[SHA_LEN], sha1[41];
};
struct request {
	char method[8], target[1024];
	bool cdn, token, has_range;
	long long range;
};
struct hubserver {
	pthread_mutex_t mutex;
	int sockets[2], ports[2], active; /* hub, cdn; connections being answered */
	pthread_t threads[2];
	bool stopping;
	struct file *files;
	size_t n_files;
	struct hub_rule rules[64];
	int n_rules;
	struct request *seen;
	int n_seen;
};
struct connection {
	struct hubserver *s;
	int fd;
	bool cdn;
};

/* ---- contents ---- */

static void add_file(struct hubserver *s, const char *repo, const char *path, const void *data, size_t len, bool lfs)
{
	s->files = mem_grow(s->files, s->n_files + 1, sizeof *s->files);
	struct file *f = &s->files[s->n_files++];
	*f = (struct file){.path = text_copy(path), .repo = repo, .data = mem_new(len + 1, 1), .len = len, .lfs = lfs};
	memcpy(f->data, data, len);
	sha256_hex(data, len, f->sha256);
	char *blob = mem_new(len + 64, 1);
	int head = sprintf(blob, "blob %zu", len) + 1;
	memcpy(blob + head, data, len);
	unsigned char md[20];
	SHA1((unsigned char *)blob, (size_t)head + len, md);
	for (int i = 0; i < 20; i++)
		sprintf(f->sha1 + 2 * i, "%02x", md[i]);
	free(blob);
}

static void add_text(struct hubserver *s, const char *repo, const char *path, const char *text)
{
	add_file(s, repo, path, text, strlen(text), false);
}

static void add_large(struct hubserver *s, const char *repo, const char *path, size_t len)
{
	unsigned char *data = mem_new(len, 1);
	struct rng r = rng_seed(len, 1);
	for (size_t i = 0; i < len; i++)
		data[i] = (unsigned char)rng_next(&r);
	add_file(s, repo, path, data, len, true);
	free(data);
}

static void add_repositories(struct hubserver *s)
{
	static const char model[] = "models/org/tiny", data[] = "datasets/org/data";
	add_text(s, model, ".gitattributes", "*.safetensors filter=lfs\n");
	add_text(s, model, "README.md", "# tiny\n");
	add_text(s, model, "config.json", "{\"model_type\": \"llama\"}\n");
	add_text(s, model, "extra/deep/notes.txt", "notes\n");
	add_text(s, model, "tokenizer.json", "{\"model\": {}}\n");
	add_text(s, model, "tokenizer_config.json", "{}\n");
	add_text(s, model, "model.safetensors.index.json",
		"{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", \"b\": \"model-00002-of-00002.safetensors\", "
		"\"c\": \"model-00001-of-00002.safetensors\"}}\n");
	add_large(s, model, "model-00001-of-00002.safetensors", 300007);
	add_large(s, model, "model-00002-of-00002.safetensors", 70001);
	add_large(s, model, "pytorch_model.bin", 90001);
	add_large(s, data, "data.zip", 200003);
	add_text(s, data, "data/a.jsonl", "{\"a\": 1}\n");
	add_text(s, data, "data/b c+%.jsonl", "{\"b\": 1}\n");
	add_text(s, data, "empty.txt", "");
}

/* ---- answers ---- */

static void send_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
		if (n <= 0)
			return;
		data += n;
		len -= (size_t)n;
	}
}

static void answer(int fd, int status, const char *headers, const char *body, size_t len, bool head)
{
	char *text =
		text_format("HTTP/1.1 %d Whatever\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n", status, headers, len);
	send_all(fd, text, strlen(text));
	if (!head)
		send_all(fd, body, len);
	free(text);
}

static void answer_error(int fd, int status, const char *code, bool head)
{
	char *headers = text_format("X-Error-Code: %s\r\nX-Error-Message: no, says the test\r\n", code);
	answer(fd, status, headers, "{\"error\":\"no\"}", 14, head);
	free(headers);
}

/* Bytes with a range, or as the fault wants them. */
static void answer_bytes(const struct connection *c, const struct request *q, const struct file *f, const char *headers,
	const struct hub_rule *rule)
{
	int fault = rule ? (int)rule->fault : -1;
	bool head = !strcmp(q->method, "HEAD"), ranged = q->has_range && fault != HUB_NO_RANGE;
	size_t from = ranged ? (size_t)q->range : 0, n = from < f->len ? f->len - from : 0;
	char range[96] = "";
	if (ranged && from >= f->len) {
		answer(c->fd, 416, "", "", 0, head);
		return;
	}
	if (ranged)
		snprintf(range, sizeof range, "Content-Range: bytes %zu-%zu/%zu\r\n", from, f->len - 1, f->len);
	char *top = fault == HUB_LONG ? text_format("HTTP/1.1 200 OK\r\nConnection: close\r\n%s\r\n", headers)
				      : text_format("HTTP/1.1 %d OK\r\nConnection: close\r\nContent-Length: %zu\r\n%s%s\r\n",
						ranged ? 206 : 200, n, range, headers);
	send_all(c->fd, top, strlen(top));
	free(top);
	char *data = mem_new(n + 1, 1);
	memcpy(data, f->data + from, n);
	if (fault == HUB_WRONG && n)
		data[n / 2] ^= 1;
	if (fault == HUB_STALL)
		sleep(4);
	for (size_t at = 0; fault == HUB_SLOW && !head && at < n; at += 20000) {
		send_all(c->fd, data + at, n - at < 20000 ? n - at : 20000);
		usleep(120000);
	}
	if (!head && fault != HUB_STALL && fault != HUB_SLOW)
		send_all(c->fd, data, fault == HUB_CUT ? n / 2 : n);
	for (int i = 0; fault == HUB_LONG && i < 64 && !head; i++)
		send_all(c->fd, data, n);
	free(data);
}

static void answer_resolve(const struct connection *c, const struct request *q, const struct file *f, const struct hub_rule *rule)
{
	char *headers;
	if (f->lfs && !c->cdn) {
		headers = text_format("X-Repo-Commit: " HUB_COMMIT
				      "\r\nX-Linked-Etag: \"%s\"\r\nX-Linked-Size: %zu\r\nETag: W/\"other\"\r\n"
				      "Location: http://127.0.0.1:%d/blob/%s?Signature=signed-secret\r\n",
			f->sha256, f->len, c->s->ports[1], f->sha256);
		answer(c->fd, 302, headers, "", 0, false);
	} else {
		headers = text_format("X-Repo-Commit: " HUB_COMMIT "\r\nETag: \"%s\"\r\nAccept-Ranges: bytes\r\n",
			f->lfs ? f->sha256 : f->sha1);
		answer_bytes(c, q, f, headers, rule);
	}
	free(headers);
}

static void put_file_row(struct strbuf *b, const struct file *f)
{
	strbuf_printf(b, "%s{\"type\":\"file\",\"path\":\"%s\",\"size\":%zu,\"oid\":\"%s\"", b->len > 1 ? "," : "", f->path,
		f->len, f->sha1);
	if (f->lfs)
		strbuf_printf(b, ",\"lfs\":{\"oid\":\"%s\",\"size\":%zu,\"pointerSize\":130}", f->sha256, f->len);
	strbuf_puts(b, "}");
}

/* The listing, four files a page. */
static void answer_tree(const struct connection *c, const struct request *q, const char *repo)
{
	enum { A_PAGE = 4 };
	const char *cursor = strstr(q->target, "cursor=");
	int from = cursor ? atoi(cursor + 7) : 0, at = 0;
	struct strbuf b = {0};
	strbuf_puts(&b, "[");
	if (!from)
		strbuf_puts(&b, "{\"type\":\"directory\",\"path\":\"extra\",\"oid\":\"" HUB_COMMIT "\",\"size\":0}");
	for (size_t i = 0; i < c->s->n_files; i++) {
		const struct file *f = &c->s->files[i];
		if (!f->repo || strcmp(f->repo, repo))
			continue;
		if (at >= from && at < from + A_PAGE)
			put_file_row(&b, f);
		at++;
	}
	strbuf_puts(&b, "]");
	char *link = at > from + A_PAGE ? text_format("Link: <http://127.0.0.1:%d/api/%s/tree/" HUB_COMMIT
						      "?recursive=true&cursor=%d>; rel=\"next\"\r\n",
						  c->s->ports[0], repo, from + A_PAGE)
					: text_copy("");
	answer(c->fd, 200, link, b.text, b.len, false);
	free(link);
	strbuf_free(&b);
}

static void answer_revision(const struct connection *c, const char *repo)
{
	struct strbuf b = {0};
	strbuf_printf(&b,
		"{\"_id\":\"1\",\"id\":\"%s\",\"modelId\":\"x\",\"private\":false,\"gated\":false,\"disabled\":false,"
		"\"downloads\":0,\"likes\":0,"
		"\"tags\":[],\"sha\":\"" HUB_COMMIT "\",\"siblings\":[]}",
		strchr(repo, '/') + 1);
	answer(c->fd, 200, "", b.text, b.len, false);
	strbuf_free(&b);
}

/* ---- requests ---- */

static void unescape(char *s)
{
	char *to = s;
	unsigned v;
	for (; *s; s++) {
		if (*s == '%' && sscanf(s + 1, "%2x", &v) == 1) {
			*to++ = (char)v;
			s += 2;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
}

static const struct file *find_file(const struct hubserver *s, const char *repo, const char *path)
{
	for (size_t i = 0; i < s->n_files; i++) {
		const struct file *f = &s->files[i];
		if (!strcmp(f->path, path) && (repo ? f->repo && !strcmp(f->repo, repo) : !f->repo))
			return f;
	}
	return NULL;
}

static void answer_cdn(const struct connection *c, const struct request *q, const struct hub_rule *rule)
{
	for (size_t i = 0; i < c->s->n_files; i++) {
		if (strstr(q->target, c->s->files[i].sha256)) {
			answer_resolve(c, q, &c->s->files[i], rule);
			return;
		}
	}
	answer_error(c->fd, 404, "NoSuchBlob", false);
}

/* "models/org/tiny" of an address, and what follows the repository. */
static const char *repository(const char *path, char repo[256])
{
	bool data = !strncmp(path, "datasets/", 9);
	const char *name = path + (data                                  ? 9
					  : !strncmp(path, "models/", 7) ? 7
									 : 0),
		   *slash = strchr(name, '/'), *end = slash ? strchr(slash + 1, '/') : NULL;
	if (!end)
		return NULL;
	snprintf(repo, 256, "%s/%.*s", data ? "datasets" : "models", (int)(end - name), name);
	return end + 1;
}

static bool known_repo(const char *repo)
{
	return !strcmp(repo, "models/org/tiny") || !strcmp(repo, "datasets/org/data");
}

static bool known_revision(const char *path)
{
	return !strncmp(path, "main", 4) || !strncmp(path, HUB_COMMIT, 40) || !strncmp(path, "v1", 2);
}

static void answer_hub(const struct connection *c, const struct request *q, const struct hub_rule *rule)
{
	char repo[256], path[1024];
	bool head = !strcmp(q->method, "HEAD"), api = !strncmp(q->target, "/api/", 5);
	snprintf(path, sizeof path, "%s", q->target + (api ? 5 : 1));
	const struct file *plain = find_file(c->s, NULL, q->target);
	const char *rest = repository(path, repo);
	if (plain) {
		answer_bytes(c, q, plain, "", rule);
	} else if (rest && !strcmp(repo, "models/old/tiny")) {
		char *moved = text_format("Location: %s/org/tiny/%s\r\n", api ? "/api/models" : "", rest);
		answer(c->fd, 307, moved, "", 0, head);
		free(moved);
	} else if (rest && !strcmp(repo, "models/gated/model")) {
		answer_error(c->fd, 403, "GatedRepo", head);
	} else if (!rest || !known_repo(repo)) {
		answer_error(c->fd, 401, "RepoNotFound", head);
	} else if (api && !strncmp(rest, "revision/", 9)) {
		if (known_revision(rest + 9))
			answer_revision(c, repo);
		else
			answer_error(c->fd, 404, "RevisionNotFound", head);
	} else if (api && !strncmp(rest, "tree/", 5)) {
		answer_tree(c, q, repo);
	} else if (!strncmp(rest, "resolve/", 8) && known_revision(rest + 8) && strchr(rest + 8, '/')) {
		char *name = text_copy(strchr(rest + 8, '/') + 1);
		name[strcspn(name, "?")] = 0;
		unescape(name);
		const struct file *f = find_file(c->s, repo, name);
		free(name);
		if (f)
			answer_resolve(c, q, f, rule);
		else
			answer(c->fd, 404, "X-Error-Code: EntryNotFound\r\nX-Repo-Commit: " HUB_COMMIT "\r\n", "", 0, head);
	} else {
		answer_error(c->fd, 404, "EntryNotFound", head);
	}
}

static bool parse_request(const char *text, struct request *q)
{
	if (sscanf(text, "%7s %1023s", q->method, q->target) != 2)
		return false;
	const char *range = strcasestr(text, "\r\nRange: bytes=");
	q->has_range = range;
	q->range = range ? atoll(range + 15) : 0;
	q->token = strcasestr(text, "\r\nAuthorization:") != NULL;
	return true;
}

/* The first rule that fits, used up by one. false = none. */
static bool take_rule(struct hubserver *s, const struct request *q, struct hub_rule *out)
{
	bool found = false;
	pthread_mutex_lock(&s->mutex);
	s->seen = mem_grow(s->seen, (size_t)s->n_seen + 1, sizeof *s->seen);
	s->seen[s->n_seen++] = *q;
	for (int i = 0; i < s->n_rules && !found; i++) {
		struct hub_rule *r = &s->rules[i];
		found = r->times >= 0 && strstr(q->target, r->target) && (!r->method || !strcmp(r->method, q->method)) &&
			(!r->ranged || q->has_range);
		if (found)
			*out = *r;
		if (found && r->times && !--r->times)
			r->times = -1;
	}
	pthread_mutex_unlock(&s->mutex);
	return found;
}

static void serve(const struct connection *c, const char *text)
{
	struct request q = {.cdn = c->cdn};
	struct hub_rule rule;
	if (!parse_request(text, &q))
		return;
	bool ruled = take_rule(c->s, &q, &rule);
	bool head = !strcmp(q.method, "HEAD");
	if (ruled && rule.fault == HUB_CLOSE)
		return;
	if (ruled && rule.fault == HUB_STATUS) {
		const char *body = rule.body ? rule.body : "an error page";
		answer(c->fd, rule.status, rule.headers ? rule.headers : "", body, strlen(body), head);
	} else if (ruled && rule.fault == HUB_LOOP) {
		char *self = text_format("Location: http://127.0.0.1:%d%s\r\n", c->s->ports[c->cdn], q.target);
		answer(c->fd, 302, self, "", 0, head);
		free(self);
	} else if (c->cdn) {
		answer_cdn(c, &q, ruled ? &rule : NULL);
	} else {
		answer_hub(c, &q, ruled ? &rule : NULL);
	}
}

static void *connection_main(void *user)
{
	struct connection *c = user;
	char text[8192];
	size_t n = 0;
	ssize_t k;
	while (n + 1 < sizeof text && (k = recv(c->fd, text + n, sizeof text - 1 - n, 0)) > 0) {
		n += (size_t)k;
		text[n] = 0;
		if (strstr(text, "\r\n\r\n")) {
			serve(c, text);
			break;
		}
	}
	shutdown(c->fd, SHUT_RDWR);
	close(c->fd);
	pthread_mutex_lock(&c->s->mutex);
	c->s->active--;
	pthread_mutex_unlock(&c->s->mutex);
	free(c);
	return NULL;
}

struct listener {
	struct hubserver *s;
	bool cdn;
};

static void *listener_main(void *user)
{
	struct listener l = *(struct listener *)user;
	free(user);
	for (int fd; (fd = accept(l.s->sockets[l.cdn], NULL, NULL)) >= 0 && !l.s->stopping;) {
		struct connection *c = mem_new(1, sizeof *c);
		*c = (struct connection){l.s, fd, l.cdn};
		pthread_mutex_lock(&l.s->mutex);
		l.s->active++;
		pthread_mutex_unlock(&l.s->mutex);
		pthread_t t;
		pthread_create(&t, NULL, connection_main, c);
		pthread_detach(t);
	}
	return NULL;
}

/* ---- life ---- */

static int open_socket(int *port)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)&a, &len))
		return -1;
	*port = ntohs(a.sin_port);
	return fd;
}

struct hubserver *hubserver_start(void)
{
	struct hubserver *s = mem_new(1, sizeof *s);
	pthread_mutex_init(&s->mutex, NULL);
	add_repositories(s);
	for (int i = 0; i < 2; i++) {
		if ((s->sockets[i] = open_socket(&s->ports[i])) < 0)
			return NULL;
	}
	for (int i = 0; i < 2; i++) {
		struct listener *l = mem_new(1, sizeof *l);
		*l = (struct listener){s, i == 1};
		pthread_create(&s->threads[i], NULL, listener_main, l);
	}
	return s;
}

void hubserver_stop(struct hubserver *s)
{
	s->stopping = true;
	for (int i = 0; i < 2; i++) {
		shutdown(s->sockets[i], SHUT_RDWR);
		pthread_join(s->threads[i], NULL);
		close(s->sockets[i]);
	}
	for (bool busy = true; busy; usleep(1000)) {
		pthread_mutex_lock(&s->mutex);
		busy = s->active;
		pthread_mutex_unlock(&s->mutex);
	}
	for (size_t i = 0; i < s->n_files; i++) {
		free(s->files[i].path);
		free(s->files[i].data);
	}
	free(s->files);
	free(s->seen);
	free(s);
}

int hubserver_port(const struct hubserver *s)
{
	return s->ports[0];
}

int hubserver_cdn_port(const struct hubserver *s)
{
	return s->ports[1];
}

void hubserver_rule(struct hubserver *s, const struct hub_rule *r)
{
	pthread_mutex_lock(&s->mutex);
	s->rules[s->n_rules++] = *r;
	pthread_mutex_unlock(&s->mutex);
}

void hubserver_reset(struct hubserver *s)
{
	pthread_mutex_lock(&s->mutex);
	s->n_rules = s->n_seen = 0;
	pthread_mutex_unlock(&s->mutex);
}

void hubserver_file(struct hubserver *s, const char *target, const void *data, size_t len)
{
	add_file(s, NULL, target, data, len, false);
}

const char *hubserver_content(struct hubserver *s, const char *path, size_t *len)
{
	for (size_t i = 0; i < s->n_files; i++) {
		if (!strcmp(s->files[i].path, path)) {
			*len = s->files[i].len;
			return s->files[i].data;
		}
	}
	return NULL;
}

int hubserver_count(struct hubserver *s, const char *method, const char *part, bool cdn, bool token)
{
	int n = 0;
	pthread_mutex_lock(&s->mutex);
	for (int i = 0; i < s->n_seen; i++) {
		const struct request *q = &s->seen[i];
		n += (!method || !strcmp(method, q->method)) && strstr(q->target, part) && q->cdn == cdn && (!token || q->token);
	}
	pthread_mutex_unlock(&s->mutex);
	return n;
}

int hubserver_requests(struct hubserver *s)
{
	pthread_mutex_lock(&s->mutex);
	int n = s->n_seen;
	pthread_mutex_unlock(&s->mutex);
	return n;
}
