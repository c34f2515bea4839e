/* engine.h: a model on a device, for tests: opened in one call, closed in one call. */
#ifndef KVB_TEST_ENGINE_H
#define KVB_TEST_ENGINE_H

#include "runners/forward/forward.h"
#include "tests/unit/test.h"

struct engine {
	struct model *model;
	struct device *device;
	struct forward *forward;
};

static inline struct engine engine_open(const char *path, const char *precision, const char *isa, int threads, int max_rows)
{
	struct engine e = {0};
	char err[ERR_LEN] = "";
	struct device_options o = {.name = "cpu", .precision = precision, .isa = isa, .threads = threads};
	if (model_open(&e.model, path, err) || device_open(&e.device, &o, err) || forward_open(&e.forward, e.model, e.device, max_rows, err))
		fail_msg("%s: %s", path, err);
	return e;
}

/* Whether this machine has an instruction set that works on bf16; says so where not. NULL = the best there is. */
static inline bool engine_has(const char *isa)
{
	struct device *d;
	char err[ERR_LEN];
	if (device_open(&d, &(struct device_options){.name = "cpu", .isa = isa, .threads = 1}, err)) {
		print_message("[ SKIPPED  ] path %s: %s\n", isa, err);
		return false;
	}
	device_close(d);
	return true;
}

static inline void engine_close(struct engine *e)
{
	forward_close(e->forward);
	device_close(e->device);
	model_close(e->model);
}

/* A cache of the same capacity for every (layer, KV head). */
static inline struct kv *engine_cache(const struct engine *e, int64_t tokens)
{
	const struct model_config *c = model_config(e->model);
	int64_t cap[256];
	assert_true(c->layers * c->kv_heads <= 256);
	for (int i = 0; i < c->layers * c->kv_heads; i++)
		cap[i] = tokens;
	struct kv *kv = kv_new(e->device, c->layers, c->kv_heads, c->head_dim, cap);
	assert_non_null(kv);
	return kv;
}

static inline void engine_prefill(const struct engine *e, struct kv *kv, const int32_t *ids, int64_t n, float *logits)
{
	char err[ERR_LEN] = "";
	if (forward_prefill(e->forward, ids, n, kv, NULL, 0, NULL, logits, NULL, NULL, err))
		fail_msg("prefill: %s", err);
}

/* One sequence of n ids at pos0 on a context (NULL = none); logits [vocab] or NULL; returns the greedy token. */
static inline int32_t engine_feed(const struct engine *e, const struct kv *context, const struct kept *kept, struct kv *tail, const int32_t *ids, int n,
	int64_t pos0, float *logits)
{
	char err[ERR_LEN] = "";
	int32_t next = -1;
	struct forward_seq s = {ids, n, pos0, context, kept, tail};
	if (forward_run(e->forward, &s, 1, NULL, 0, &next, logits, err))
		fail_msg("forward: %s", err);
	return next;
}

/* A pseudo-random subset of [0,n) of about n*r entries for each (layer, head), position `always` included. */
static inline struct kept *engine_kept(const struct engine *e, int64_t n, double r, int32_t ***lists, int32_t **lens)
{
	const struct model_config *c = model_config(e->model);
	int heads = c->layers * c->kv_heads;
	*lists = mem_new((size_t)heads, sizeof **lists);
	*lens = mem_new((size_t)heads, sizeof **lens);
	for (int i = 0; i < heads; i++) {
		struct rng g = rng_seed(7, (uint64_t)i);
		(*lists)[i] = mem_new((size_t)n, sizeof(int32_t));
		for (int64_t j = 0; j < n; j++)
			if (rng_unit(&g) < r)
				(*lists)[i][(*lens)[i]++] = (int32_t)j;
	}
	struct kept *k = kept_new(e->device, c->layers, c->kv_heads, *lens, (const int32_t *const *)*lists);
	assert_non_null(k);
	return k;
}

static inline void engine_kept_free(const struct engine *e, struct kept *k, int32_t **lists, int32_t *lens)
{
	const struct model_config *c = model_config(e->model);
	for (int i = 0; i < c->layers * c->kv_heads; i++)
		free(lists[i]);
	free(lists);
	free(lens);
	kept_free(k);
}

#endif
