/* net.h: the two networks of LKV and their parameters. spec/proxykv-lkv.md 2.1, 2.3.
 *
 * LKV-T: for each (layer, KV head) u = b2 + w2 . silu(b1 + W1 z), z = the entry's [key | value], standardised channel by channel
 * with the training set's statistics (keys of some models carry biases of several hundred). LKV-H: an embedding for each head,
 * one small network for all, r = Soft-TopK over the heads with k = R L Hk and temperature 1, so that the mean ratio is R. Owns
 * its parameters. Leaves out: where entries come from (score.c, train.c), files (file.c). G = layers * kv_heads. */
#ifndef KVB_LKV_NET_H
#define KVB_LKV_NET_H

#include "harness/base/base.h"

enum lkv_kind { LKV_HEAD, LKV_GLOBAL, LKV_DISTILLED, LKV_KINDS };
struct lkv_shape {
	enum lkv_kind kind;
	int layers, kv_heads, d;
	int hid, emb;    /* hidden units of T (at most 512), width of H's embeddings */
	bool key, value; /* inputs */
	bool pre;        /* keys before RoPE */
};
/* "lkv", "lkv-global", "kv-mlp": the names of the three kinds in files and commands. */
const char *lkv_kind_name(enum lkv_kind kind);

enum lkv_tensor { LKV_W1, LKV_B1, LKV_W2, LKV_B2, LKV_E, LKV_H1, LKV_C1, LKV_H2, LKV_C2, LKV_MEAN, LKV_DEVIATION, LKV_TENSORS };
enum { LKV_TRAINED = LKV_MEAN, LKV_OF_T = LKV_E, LKV_H_HID = 32 }; /* trained: the first nine; T's own: the first four */
struct lkv_net {
	struct lkv_shape shape;
	float *p[LKV_TENSORS]; /* W1 [G][in][hid], B1 [G][hid], W2 [G][hid], B2 [G]; E [G][emb], H1 [emb][32], C1 [32], H2 [32],
				* C2 [1]; MEAN, DEVIATION [G][in]. One block, in this order */
	int64_t count[LKV_TENSORS];
	int64_t trained; /* numbers of the first nine together */
};
int lkv_inputs(const struct lkv_shape *s);
int64_t lkv_tensor_dims(const struct lkv_shape *s, enum lkv_tensor t, int64_t dims[3], int *n_dims); /* returns the count */
const char *lkv_tensor_name(enum lkv_tensor t);
/* Seeded initial weights; mean 0, deviation 1. NULL = out of memory. */
struct lkv_net *lkv_net_new(const struct lkv_shape *s, uint64_t seed);
void lkv_net_free(struct lkv_net *n);

/* ---- LKV-T, one head at a time (thread-safe) ---- */
/* x [n][in] raw inputs -> standardised in place. */
void lkv_standardise(const struct lkv_net *net, int g, int64_t n, float *x);
/* z [n][in] standardised -> u [n]; h, s [n][hid]: before and after SiLU, for the way back. */
void lkv_t_forward(const struct lkv_net *net, int g, int64_t n, const float *z, float *h, float *s, float *u);
/* du [n] -> adds to the gradient `grad` (laid out as the trained block); h is overwritten. */
void lkv_t_backward(
	const struct lkv_net *net, int g, int64_t n, const float *z, float *h, const float *s, const float *du, float *grad);

/* ---- LKV-H ---- */
/* Ratios [G] whose mean is R, 0 < R <= 1; R = 1 gives ones. */
void lkv_h_ratios(const struct lkv_net *net, double R, double *ratio);
/* d loss / d ratio [G] -> adds to grad. */
void lkv_h_backward(const struct lkv_net *net, double R, const double *dratio, float *grad);
/* Budgets of n entries for each head: floor(ratio n); their sum is at most R G n. */
void lkv_h_budgets(const struct lkv_net *net, double R, int64_t n, int64_t *budget);

#endif
