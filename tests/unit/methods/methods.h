/* methods.h: what the tests of runners/methods share: scorings with hand-made scores, whole runs on a tiny model, sets by hand.
 */
#ifndef KVB_TEST_METHODS_H
#define KVB_TEST_METHODS_H

#include "runners/methods/parts.h"
#include "runners/proxykv/proxy.h"
#include "tests/unit/forward/engine.h"

static inline struct plan_method resolved(const char *name, const char *options)
{
	struct plan_method m;
	char err[ERR_LEN] = "";
	if (method_resolve(&m, name, options, err))
		fail_msg("%s %s: %s", name, options ? options : "", err);
	return m;
}

/* A context of n evictable rows with nothing before and after it, and scores made by hand (not copied). */
static inline struct scoring by_hand(const struct plan_method *m, int layers, int kv_heads, int64_t n, float *scores)
{
	struct scoring s = {.layers = layers, .kv_heads = kv_heads, .scores = scores, .params = m->params};
	prompt_shape_for(m, 0, n, 0, &s.shape);
	return s;
}

static inline struct selection selected(const struct plan_method *m, const struct scoring *s, double retained)
{
	struct selection sel;
	char err[ERR_LEN] = "";
	if (method_select(&sel, m, s, retained, err))
		fail_msg("%s at %g: %s", m->name, retained, err);
	return sel;
}

/* One list equals the numbers given; n = -1 ends them. */
#define assert_kept(sel, i, ...)                                                                                                 \
	do {                                                                                                                     \
		const int want_[] = {__VA_ARGS__, -1};                                                                           \
		int n_ = 0;                                                                                                      \
		for (; want_[n_] >= 0; n_++)                                                                                     \
			if (n_ >= (sel)->len[i] || (sel)->index[i][n_] != want_[n_])                                             \
				fail_msg("list %d, place %d: not %d (length %d)", i, n_, want_[n_], (sel)->len[i]);              \
		assert_int_equal((sel)->len[i], n_);                                                                             \
	} while (0)

static inline void assert_close(const float *got, const double *want, int64_t n, double tolerance)
{
	for (int64_t j = 0; j < n; j++)
		if (!(fabs(got[j] - want[j]) <= tolerance))
			fail_msg("number %lld is %.8f, not %.8f", (long long)j, got[j], want[j]);
}

/* ---- a whole run: prefill with the scorer's observer, finish ---- */
struct run {
	const struct engine *engine;
	struct plan_method m;
	struct scoring s;
	struct kv *kv;
	struct repeat_prompt repeat;
	char err[ERR_LEN];
	int rc;
};

static inline int run_observe(void *user, const struct layer_rows *r, char err[ERR_LEN])
{
	struct run *run = user;
	return run->m.scorer->observe(&run->s, r, err);
}

/* What methods with a trained file need beside a model: the file's folder and whom it is for, a proxy. */
struct run_trained {
	const char *folder, *model_sha256, *proxy_sha256;
	struct trained_store *weights;
	struct proxy *proxy;
};

static const int32_t run_first[] = {31, 32, 33}, run_later[] = {41, 42}, run_tail[] = {21, 22};

/* ids: prefix, context, after. rc and err say how it ended; close it in any case. trained: or NULL. */
static inline void run_open_trained(struct run *r, const struct engine *e, const char *name, const char *options,
	const int32_t *ids, int64_t prefix, int64_t context, int64_t after, const struct repeat_prompt *repeat,
	const struct run_trained *trained)
{
	const struct model_config *c = model_config(e->model);
	int64_t n = prefix + context + after;
	*r = (struct run){.engine = e, .m = resolved(name, options), .kv = engine_cache(e, n)};
	r->repeat = repeat ? *repeat : (struct repeat_prompt){run_first, run_later, run_tail, 3, 2, 2, true};
	r->s = (struct scoring){.forward = e->forward,
		.kv = r->kv,
		.ids = ids,
		.repeat = &r->repeat,
		.params = r->m.params,
		.seed = 5,
		.rank_there = true,
		.layers = c->layers,
		.kv_heads = c->kv_heads};
	if (trained) {
		r->s.calibration_folder = trained->folder;
		r->s.model_sha256 = trained->model_sha256;
		r->s.proxy_sha256 = trained->proxy_sha256;
		r->s.context_sha256 = "";
		r->s.weights = trained->weights;
		r->s.proxy = proxy_pass_new(trained->proxy, ids, prefix + context, prefix, context);
	}
	prompt_shape_for(&r->m, prefix, context, after, &r->s.shape);
	r->s.scores = mem_new((size_t)(c->layers * c->kv_heads * r->s.shape.count) + 1, sizeof(float));
	const struct scorer *sc = r->m.scorer;
	r->rc = sc->begin ? sc->begin(&r->s, r->err) : 0;
	if (r->rc)
		return;
	struct observer obs = {
		sc->observes, sc->first_pos ? sc->first_pos(&r->s) : 0, run_observe, r, sc->layers ? sc->layers(&r->s) : 0};
	r->rc = forward_prefill(e->forward, ids, n, r->kv, &obs, sc->observe ? 1 : 0, NULL, NULL, NULL, NULL, r->err);
	if (r->rc == 0)
		r->rc = sc->finish(&r->s, r->err);
}

static inline void run_open(struct run *r, const struct engine *e, const char *name, const char *options, const int32_t *ids,
	int64_t prefix, int64_t context, int64_t after, const struct repeat_prompt *repeat)
{
	run_open_trained(r, e, name, options, ids, prefix, context, after, repeat, NULL);
}

static inline void run_close(struct run *r)
{
	proxy_pass_free(r->s.proxy);
	if (r->m.scorer->end)
		r->m.scorer->end(&r->s);
	scores_drop(&r->s);
	free(r->s.scores);
	kv_free(r->kv);
	method_free(&r->m);
}

static inline void run_ok(struct run *r, const struct engine *e, const char *name, const char *options, const int32_t *ids,
	int64_t prefix, int64_t context, int64_t after)
{
	run_open(r, e, name, options, ids, prefix, context, after, NULL);
	if (r->rc)
		fail_msg("%s: %s", name, r->err);
}

static inline int32_t *some_ids(int64_t n, uint64_t seed)
{
	int32_t *ids = mem_new((size_t)n + 1, sizeof(*ids));
	struct rng g = rng_seed(seed, 0);
	for (int64_t i = 0; i < n; i++)
		ids[i] = 3 + (int32_t)rng_below(&g, 290);
	return ids;
}

#endif
