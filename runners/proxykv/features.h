/* features.h: the feature X of ProxyKV (spec/proxykv-lkv.md 1.2): for each layer and head, attention probability summed over the
 * queries of the context, a causal column sum; over all queries, every k-th, or the last w; all layers or the first n.
 *
 * Works on any forward pass: the proxy's, or the target's own ("self"). No queries x keys buffer: the attention leaves the
 * log-sum-exp of its rows, and the columns are summed chunk by chunk. Owns the sums on the device until they are taken. Leaves
 * out: what is made of X (the mapper), which statistics standardise it (the mapper's file). */
#ifndef KVB_PROXYKV_FEATURES_H
#define KVB_PROXYKV_FEATURES_H

#include "runners/forward/forward.h"
#include "runners/mapper/mapper.h"

/* What is summed; what is made of the sums is the mapper's affair (its configuration has the same words). */
struct feature_spec {
	enum mapper_queries queries;
	int step;      /* k of stride, w of last */
	int layers;    /* the first so many; 0 = all */
	bool kv_heads; /* mean over a KV head's group instead of every query head */
};
/* queries: "all", "stride:K", "last:W". heads: "query" | "kv". */
int feature_spec_parse(struct feature_spec *out, const char *queries, int layers, const char *heads, char err[ERR_LEN]);
/* The features a mapper was trained on. */
struct feature_spec feature_spec_of(const struct mapper_config *c);
bool feature_spec_equal(const struct feature_spec *a, const struct feature_spec *b);
/* Names trained files: "" for all queries, heads and layers, else "-last64", "-stride4", "-kv", "-l7" joined. out[32]. */
void feature_spec_tag(const struct feature_spec *s, char out[32]);
int feature_layers(const struct feature_spec *s, const struct model_config *c);
int feature_heads(const struct feature_spec *s, const struct model_config *c);

struct features;
/* For the keys and queries [first, first + count) of a prompt; ready to be shown its prefill. NULL + err: out of memory. */
struct features *features_new(struct forward *f, const struct feature_spec *s, int64_t first, int64_t count, char err[ERR_LEN]);
int64_t features_bytes(const struct forward *f, const struct feature_spec *s, int64_t count); /* what it takes of the device */
void features_free(struct features *x); /* NULL is fine */
/* What the prefill must show (user = the features). */
struct observer features_observer(struct features *x);
int features_observe(void *user, const struct layer_rows *r, char err[ERR_LEN]);
/* Raw sums [layers][heads][count] into out; the memory on the device is given back. */
int features_take(struct features *x, float *out, char err[ERR_LEN]);
int64_t features_floats(const struct features *x); /* layers * heads * count */
/* The mapper's scores of these sums, made where they lie (mapping.h): the caller's. The sums stay. NULL + err. */
struct tensor *features_map(struct features *x, const struct mapper *m, char err[ERR_LEN]);

#endif
