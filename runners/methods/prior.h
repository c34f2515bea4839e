/* prior.h: the static head prior: what KVzip's scores of the training contexts say of each (layer, KV head) whatever the context:
 * the mean of its standardised log scores (its level) and its mean share of the best r of all entries at a few ratios. The floor
 * of every trained method (spec/proxykv-lkv.md 1.9). One file a target: head-prior-<target>.safetensors, fp32 "level" [layers,
 * kv_heads] and "share" [ratios, layers, kv_heads]. */
#ifndef KVB_METHODS_PRIOR_H
#define KVB_METHODS_PRIOR_H

#include "runners/trained.h"

enum { PRIOR_RATIOS = 5 };
extern const double prior_ratios[PRIOR_RATIOS]; /* .1 .2 .3 .5 .7 */
struct prior {
	int layers, kv_heads, contexts;
	double *level; /* [layers*kv_heads] */
	double *share; /* [PRIOR_RATIOS][layers*kv_heads] */
	char *trained_on;
};
struct prior *prior_new(int layers, int kv_heads);
void prior_free(struct prior *p); /* NULL is fine */
/* Adds one context's raw scores [layers][kv_heads][n]; prior_end turns sums into means. */
void prior_add(struct prior *p, const float *scores, int64_t n, const char *context_sha256);
void prior_end(struct prior *p);
/* Mean share of each head at r in (0, 1]: linear between the ratios, 0 at 0 and 1 at 1. out[layers*kv_heads]. */
void prior_at(const struct prior *p, double retained, double *out);
int prior_write(const struct prior *p, const char *path, const char *target_sha256, const char *made_by, char err[ERR_LEN]);
int prior_read(struct prior **out, const char *path, int layers, int kv_heads, char err[ERR_LEN]);

#endif
