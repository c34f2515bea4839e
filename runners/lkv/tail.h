/* tail.h: the frozen decoder on the short tails of one context: forward with gates, and backward to the gates.
 * spec/proxykv-lkv.md 2.4.
 *
 * A tail is a question and its answer behind a context whose K and V are constants: attention weights are m_j e^(s_j) over
 * context entries and 1 e^(s_j) over the tail's own. Of the model's weights nothing gets a gradient, so a linear layer needs its
 * input gradient alone. The source (tail_body.h) is compiled twice: names ending in _f are fp32 (training), in _d double (the
 * tests' proof of the arithmetic). Letters: L layers, H query heads, Hk KV heads, g = H / Hk, d head size, D hidden, F
 * feed-forward, n cached rows, R tail rows of all sequences. */
#ifndef KVB_LKV_TAIL_H
#define KVB_LKV_TAIL_H

#include "runners/model/model.h"

enum tail_linear { TAIL_QKV, TAIL_O, TAIL_GATE_UP, TAIL_DOWN };

#define TAIL_DECLARE(REAL, S)                                                                                                    \
	struct tail_norms_##S {                                                                                                  \
		const REAL *attn, *ffn; /* [D] */                                                                                \
		const REAL *q, *k;      /* [d]; NULL without q/k norm */                                                         \
	};                                                                                                                       \
	struct tail_model_##S {                                                                                                  \
		const struct model_config *config;                                                                               \
		const double *inv_freq; /* [d/2] */                                                                              \
		double mscale;                                                                                                   \
		const struct tail_norms_##S *norms; /* [L] */                                                                    \
		const REAL *final_norm;             /* [D] */                                                                    \
		/* out = W x (+ bias), or out = W^T x with `back` (no bias). x and out are [rows][..] without padding. 0 or -1.  \
		 */                                                                                                              \
		int (*linear)(void *user, int layer, enum tail_linear which, bool back, const REAL *x, int64_t rows, REAL *out); \
		/* K (after RoPE) and V of all n rows of one head: [n][d]. 0 or -1. */                                           \
		int (*context)(void *user, int layer, int kv_head, int64_t n, REAL *k, REAL *v);                                 \
		void (*parallel)(void *user, int64_t n, void (*fn)(void *arg, int64_t i), void *arg); /* NULL = one thread */    \
		void *user;                                                                                                      \
	};                                                                                                                       \
	struct tail_##S; /* the tails of one context and what backward needs of their forward pass */                            \
	/* seqs sequences of len[] rows each at positions n, n+1, ..; NULL = out of memory. */                                   \
	struct tail_##S *tail_new_##S(const struct tail_model_##S *m, int64_t n, int seqs, const int *len);                      \
	void tail_free_##S(struct tail_##S *t);                                                                                  \
	int64_t tail_rows_##S(const struct tail_##S *t);                                                                         \
	/* x0 [R][D] embeddings; logm [L*Hk][n], NULL = the full cache -> hidden [R][D] after the final norm. */                 \
	int tail_forward_##S(struct tail_##S *t, const REAL *x0, const REAL *logm, REAL *hidden);                                \
	/* After a forward pass with the same logm: dhidden [R][D] -> dlogm [L*Hk][n] (written) and, unless NULL, dx0 [R][D]. */ \
	int tail_backward_##S(struct tail_##S *t, const REAL *logm, const REAL *dhidden, REAL *dlogm, REAL *dx0);                \
	/* Gated attention of one sequence and one KV head alone: q [g*T][d] (scaled), own k, v [T][d], context K, V [n][d],     \
	 * logm [n] or NULL -> out [g*T][d], lse [g*T]. Row j*T + i is query head j, token i. */                                 \
	int tail_attend_##S(int64_t n, int64_t T, int g, int d, const REAL *q, const REAL *K, const REAL *V, const REAL *k,      \
		const REAL *v, const REAL *logm, REAL *out, REAL *lse);                                                          \
	/* Its gradients, all written: dq [g*T][d] of the scaled q, dk, dv [T][d], dlogm [n]. */                                 \
	int tail_attend_back_##S(int64_t n, int64_t T, int g, int d, const REAL *q, const REAL *K, const REAL *V, const REAL *k, \
		const REAL *v, const REAL *logm, const REAL *out, const REAL *lse, const REAL *dout, REAL *dq, REAL *dk,         \
		REAL *dv, REAL *dlogm);

TAIL_DECLARE(float, f)
TAIL_DECLARE(double, d)
#undef TAIL_DECLARE

#endif
