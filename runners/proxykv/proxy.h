/* proxy.h: the small model of a pair and its run over one context, beside the target's prefill or after it.
 *
 * A run reads the context once, whatever is asked of it: the feature sums of any number of specifications, what mappers make of
 * them, and functions that look at the whole cache when it is filled (KVzip on the proxy). Layers behind the last one that
 * something asks for are not run, nor is the LM head. When the run ends its cache and sums are given back to the device; what
 * stays is on the host.
 *
 * On the CPU a run is overlapped (a thread of its own, with the proxy's own group of `threads`, while the target keeps the rest)
 * or in turn (on the caller's thread once the target's prefill is done). Two devices, or two queues of one, need nothing else
 * here: they are a proxy whose device is another one, or the same one with a queue of low priority. */
#ifndef KVB_PROXYKV_PROXY_H
#define KVB_PROXYKV_PROXY_H

#include "runners/proxykv/features.h"

struct proxy {
	struct model *model;
	struct device *device; /* its own: its pool is the proxy's group of threads, its counters are the proxy's memory */
	struct forward *forward;
	int threads;        /* while overlapped; the target gives them up */
	int64_t max_tokens; /* longest context it was made for; longer ones are refused. 0 = any */
	int64_t resident;   /* weights and scratch: what may stay on the device between runs */
	bool overlapped;
};
int proxy_open(struct proxy **out, struct model *m, const struct device_options *d, bool overlapped, int max_rows,
	char err[ERR_LEN]);        /* takes m. Failed: *out is what there is of it, for proxy_close; its device may be NULL */
void proxy_close(struct proxy *p); /* NULL is fine */

struct proxy_pass;
/* Over ids [0, n) (borrowed): the keys and queries [first, first + count) are the context. */
struct proxy_pass *proxy_pass_new(struct proxy *p, const int32_t *ids, int64_t n, int64_t first, int64_t count);
void proxy_pass_free(struct proxy_pass *r); /* waits for a run in flight; NULL is fine */

const struct model_config *proxy_pass_config(const struct proxy_pass *r); /* the proxy's */

/* ---- before it starts ---- */
/* Asks for feature sums; equal ones are made once. Returns their number, or -1. */
int proxy_pass_want(struct proxy_pass *r, const struct feature_spec *s, char err[ERR_LEN]);
/* Whether the run maps: where its device does it (mapping.h), the sums do not travel. Elsewhere who wants scores takes the sums. */
bool proxy_pass_maps(const struct proxy_pass *r);
/* Asks for a mapper's scores of sums number `want`: to out [Ll][Hl][count] by the end of the run. Returns their number, or -1. */
int proxy_pass_map(struct proxy_pass *r, int want, const struct mapper *m, float *out);
/* A look at the filled cache of all layers, on whichever thread the run is. Returns 0, 1 = stopped, -1 + err. */
struct proxy_view {
	struct proxy *proxy;
	const struct kv *kv;
	const int32_t *ids;
	int64_t n, first, count;
	bool (*stop)(void *user);
	void *stop_user;
};
typedef int (*proxy_look)(void *user, const struct proxy_view *v, char err[ERR_LEN]);
int proxy_pass_look(struct proxy_pass *r, proxy_look look, void *user, char err[ERR_LEN]);

/* ---- the run ---- */
/* Overlapped: starts the thread. In turn: nothing yet. -1 = no thread. */
int proxy_pass_start(struct proxy_pass *r, char err[ERR_LEN]);
/* Waits for the thread, or runs now; again is free. stop is polled by a run in turn; an overlapped one is told to stop by
 * proxy_pass_free. 0, 1 = stopped, -1 + err. */
int proxy_pass_finish(struct proxy_pass *r, bool (*stop)(void *user), void *user, char err[ERR_LEN]);
/* Raw sums number `want` [layers][heads][count], after the run; NULL where the run mapped them. */
const float *proxy_pass_sums(const struct proxy_pass *r, int want);
/* What became of scores number `map`: besides `out` they lie on the proxy's device and are handed over, once; free them before the proxy.
 * -1 + err: this mapper could not; others may have. */
int proxy_pass_mapped(struct proxy_pass *r, int map, struct tensor **scores, int64_t *ns, char err[ERR_LEN]);
int64_t proxy_pass_ns(const struct proxy_pass *r);      /* from the run's first step to its last, mappers left out */
int64_t proxy_pass_wait_ns(const struct proxy_pass *r); /* how long finish() kept its caller */
bool proxy_pass_wanted(const struct proxy_pass *r);     /* something was asked of it */
/* Device bytes the run takes at most with what was asked of it: cache, sums, mappers' work, a look's own scores. 0 = nothing was asked. */
int64_t proxy_pass_bytes(const struct proxy_pass *r);

#endif
