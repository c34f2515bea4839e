/* parts.h: what the files of this folder share: the entries of the two tables, and the arithmetic on plain arrays (so that
 * tests can feed it numbers worked out by hand). Private to runners/methods and its tests. */
#ifndef KVB_METHODS_PARTS_H
#define KVB_METHODS_PARTS_H

#include "runners/methods/method.h"
#include "runners/trained.h"

extern const struct scorer scorer_random, scorer_streaming_llm, scorer_knorm, scorer_snapkv, scorer_h2o, scorer_tova,
	scorer_keydiff, scorer_lagkv, scorer_expected_attention, scorer_kvzip, scorer_kvzip_head,
	scorer_proxykv, scorer_selfkv, scorer_head_prior, scorer_scores, scorer_iam, scorer_lkv_t, scorer_lkv_global, scorer_kvmlp;
extern const struct allocator allocator_uniform, allocator_pyramid, allocator_ada, allocator_global, allocator_layer,
	allocator_head, allocator_head_prior, allocator_lkv_h;

/* ---- params.c ---- */
struct params *params_new(const struct param_def *scorer, const struct param_def *allocator); /* defaults */
void params_free(struct params *p);
/* Lays a JSON object over p. Unknown names (the nearest is suggested), wrong types and values out of range are errors naming
 * `what`. compats: the legal values of "compat", "a|b|c". */
int params_set(struct params *p, const char *options_json, const char *compats, const char *what, char err[ERR_LEN]);
/* Refuses a value that is not the one of `usual` and does not go with the method's others (param_def.unfit). */
int params_check_fit(const struct plan_method *m, const struct params *usual, char err[ERR_LEN]);
bool params_equal(const struct params *a, const struct params *b, const struct param_def *of); /* these, and compat */
json_t *params_json(const struct params *p);

/* ---- select.c ---- */
/* kvpress' compression ratio: 1 - retained as a user of it would write it in decimals, where 1 - .9 is .1. */
double evicted_share(double retained);

/* ---- budget.c ---- */
/* Integers with sum `total` nearest to raw[] >= 0 (whose sum is total): floors, then the largest remainders, ties to the lower
 * index. */
void share_out(const double *raw, int n, int64_t total, int64_t *out);
/* The scores that compete: heads [first, first+count) without their protected entries. */
struct slices candidates(const struct allocation *a, int first, int count);
/* Whether the device holds the scores too; and then top_counts of those candidates, there. */
bool candidates_resident(const struct allocation *a);
int resident_counts(const struct allocation *a, int first, int count, int64_t k, int64_t *counts, char err[ERR_LEN]);
/* Entries to keep among `heads` heads together: heads * keep, or by kvpress' rule for a flattened ranking. */
int64_t pooled_keep(const struct allocation *a, int64_t heads);

/* Multiplies raw[] >= 0 by one factor so that its sum is `total` with nothing above `most`: what a full entry cannot take goes to the
 * others; n * most >= total. */
void shares_to_total(double *raw, int n, double most, double total);

/* Layer budgets of PyramidKV, protected window included. */
void pyramid_exact(int layers, int64_t n, int64_t window, int64_t keep, double beta, int64_t *budget);
void pyramid_kvpress(int layers, int64_t n, int64_t window, double retained, double beta, int64_t *budget);
void pyramid_factory(int layers, int64_t n, int64_t window, int64_t capacity, int64_t beta, int64_t *budget);

/* ---- hosts.c: host loops ---- */
/* fn(arg, i) for i in [0, n) on the threads of the scoring's device; on the caller's thread when it has no forward pass. */
void each(const struct scoring *s, int64_t n, void (*fn)(void *arg, int64_t i), void *arg);
/* One head's rows [first, first+n) of the cache as fp32, and where its scores go. */
struct head_rows {
	const struct scoring *scoring;
	int layer, head, d;
	int64_t first, n;
	const float *k, *v; /* [n][d]; v NULL unless asked for */
	float *scores;      /* [shape.count] */
	void *user;
};
/* fn for every (layer, KV head), several at once; their rows are read beforehand, in blocks of bounded memory. */
int each_head(struct scoring *s, int64_t first, int64_t n, bool want_v, void (*fn)(const struct head_rows *h), void *user,
	char err[ERR_LEN]);
float *scores_at(const struct scoring *s, int layer, int head);
/* One layer's scores from t [kv_heads, shape.count]: to the host and, on a device with memory of its own, to s->resident. */
int scores_take(struct scoring *s, int layer, const struct tensor *t, char err[ERR_LEN]);
/* All of them, [layers*kv_heads, shape.count], which it takes: to the host, and kept there. */
int scores_keep(struct scoring *s, struct tensor *t, char err[ERR_LEN]);
/* The host's scores to the device that will rank them; without room for them the host ranks. */
int scores_place(struct scoring *s, char err[ERR_LEN]);
/* The same from where they were made, t on any GPU, which it takes; the host has its own already. */
int scores_move(struct scoring *s, struct tensor *t, char err[ERR_LEN]);
/* The device's copy of all scores; NULL = the host ranks. */
const struct tensor *scores_resident(const struct scoring *s);
int64_t rows_total(const struct scoring *s);                  /* prefix + context + after */
int64_t sinks_left(const struct scoring *s, int64_t sinks);   /* evictable rows below sequence position `sinks` */
int64_t window_left(const struct scoring *s, int64_t window); /* evictable rows among the last `window` of the sequence */

/* ---- columns.c: column sums or maxima of attention probabilities over the evictable rows, on the device ---- */
struct columns;
/* rows: one for each query head, or for each KV head with GROUP_MEAN or GROUP_MAX. NULL: out of memory, err is set. */
struct columns *columns_new(const struct scoring *s, int rows, char err[ERR_LEN]);
void columns_free(struct columns *c);
/* Adds the query rows from sequence position `from` on that `r` shows, seen over all rows cached so far. */
int columns_add(struct columns *c, const struct scoring *s, const struct layer_rows *r, int64_t from, enum attn_group group,
	char err[ERR_LEN]);
struct tensor *columns_tensor(struct columns *c, int layer);
/* One layer's [rows][shape.count]; its device memory is given back. */
int columns_take(struct columns *c, const struct scoring *s, int layer, float *out, char err[ERR_LEN]);
/* The same where the sums of the KV heads are the layer's scores. */
int columns_score(struct columns *c, struct scoring *s, int layer, char err[ERR_LEN]);
void columns_drop(struct columns *c, int layer); /* gives its device memory back */

/* ---- arithmetic of the scorers ---- */
void streaming_scores(int64_t n, int64_t sinks, bool last_first, float *out);
void tova_scores(const float *probabilities, int rows, int64_t n, float *out); /* [rows][n] -> mean over rows */
void knorm_scores(const float *k, int64_t n, int d, float *out);
void keydiff_scores(const float *k, int64_t n, int d, float *out);
/* Softmax over the lag tokens of x [lag][d] of their spread, normalised by the next partition x + lag*d. */
void lagkv_partition(const float *x, int64_t lag, int d, double *out);
void lagkv_scores(const float *k, const float *v, int64_t n, int d, int64_t sinks, int64_t lag, float *out);
/* mean cos and sin of p*inv_freq over p in [first, first+count), times mscale: the averaged rotation, d/2 each. */
void average_rotation(const double *inv_freq, int d, double mscale, int64_t first, int64_t count, double *c, double *s);
void rotate_mean(const double *c, const double *s, int d, double *mu);
void rotate_covariance(const double *c, const double *s, int d, double *sigma);
struct expected_rule {
	bool covariance, vnorm;
	double epsilon;
};
/* mu [g][d], sigma [g][d][d] (rotated), k and v [n][d] -> out[n] for those n rows. */
void expected_scores(const double *mu, const double *sigma, int g, const float *k, const float *v, int64_t n, int d,
	const struct expected_rule *rule, float *out);
/* Chunk b of n context tokens: its start and size; false behind the last. */
bool kvzip_chunk(int64_t n, int64_t chunk, int64_t b, int64_t *start, int64_t *size);
/* X_b: ids of the repeat prompt for the context ids[start, start+size), cut in chunks of `chunk`. Returns their number; out may be NULL
 * to count. */
int64_t kvzip_repeat_ids(
	const struct repeat_prompt *p, const int32_t *context, int64_t chunk, int64_t start, int64_t size, int32_t *out);

#endif
