/* hubserver.h: a small Hugging Face hub on the loopback, for tests: it answers as the real one does, and misbehaves on demand.
 *
 * Two ports: the hub, and the host its large files are redirected to. Repositories: model org/tiny (sharded weights, nested
 * files), dataset org/data, gated/model (403), old/tiny (moved to org/tiny). Unknown ones answer 401. Everything is made up here;
 * nothing is fetched. A thread a connection; every request is kept for the tests to look at. */
#ifndef KVB_HUBSERVER_H
#define KVB_HUBSERVER_H

#include <stdbool.h>
#include <stddef.h>

#define HUB_COMMIT "0123456789abcdef0123456789abcdef01234567"

enum hub_fault {
	HUB_STATUS,   /* answer with .status and .headers, body .body */
	HUB_CUT,      /* stop in the middle of the body */
	HUB_NO_RANGE, /* send all of it whatever was asked */
	HUB_WRONG,    /* right length, wrong bytes */
	HUB_LONG,     /* more bytes than the file has, no length said */
	HUB_STALL,    /* headers, then silence */
	HUB_LOOP,     /* redirect to itself */
	HUB_CLOSE,    /* close without a word */
	HUB_SLOW,     /* some kB, a pause, some kB ... */
};
struct hub_rule {
	const char *method; /* NULL = any */
	const char *target; /* part of the request's address */
	enum hub_fault fault;
	int times;   /* how often; 0 = always */
	bool ranged; /* only requests with a Range */
	int status;
	const char *headers, *body; /* headers: whole lines, each with \r\n */
};

struct hubserver;
struct hubserver *hubserver_start(void); /* NULL = no socket */
void hubserver_stop(struct hubserver *s);
int hubserver_port(const struct hubserver *s);
int hubserver_cdn_port(const struct hubserver *s);
void hubserver_rule(struct hubserver *s, const struct hub_rule *r);
void hubserver_reset(struct hubserver *s); /* forgets rules and requests */
/* Any other file, under the address it is asked for ("/raw.host/x"). The bytes are copied. */
void hubserver_file(struct hubserver *s, const char *target, const void *data, size_t len);
/* The bytes of a repository's file. */
const char *hubserver_content(struct hubserver *s, const char *path, size_t *len);
/* Requests whose address has that part; cdn: at the second port. token: only those with an Authorization header. */
int hubserver_count(struct hubserver *s, const char *method, const char *part, bool cdn, bool token);
int hubserver_requests(struct hubserver *s);

#endif
