/* forward.h: the transformer, written once in plain C over device.h: prefill, and batches of sequences with views.
 *
 * Owns: packed weights and the scratch tensors (allocated once, for max_rows rows). Leaves out: what to prune (methods/),
 * tokens and text (model/), the order of a measurement (runner.c). Serves Llama, Qwen2/2.5 and Qwen3: config flags, no virtual calls. */
#ifndef KVB_FORWARD_H
#define KVB_FORWARD_H

#include "runners/device/device.h"
#include "runners/model/model.h"

struct forward;

/* Packs all weights of m on d. max_rows = rows of one pass through the layers (a chunk of prefill; larger batches are cut by
 * sequence or chunk inside). m must stay open until forward_open returns only. */
int forward_open(struct forward **out, struct model *m, struct device *d, int max_rows, char err[ERR_LEN]);
void forward_close(struct forward *f);
/* Bytes forward_open takes: weights and scratch, before anything is allocated. */
int64_t forward_weight_bytes(const struct model_config *c, const struct device *d);
int64_t forward_scratch_bytes(const struct model_config *c, const struct device *d, int max_rows);

const struct model_config *forward_config(const struct forward *f);
struct device *forward_device(const struct forward *f);
struct queue *forward_queue(const struct forward *f);
const double *forward_inv_freq(const struct forward *f, double *mscale); /* head_dim/2 values */
int forward_max_rows(const struct forward *f);

/* What one layer just computed, shown to an observer between attention and the output projection. Tensors hold `rows` valid
 * rows and are overwritten by the next layer. Row i is the token at sequence position pos0 + i. */
struct layer_rows {
	int layer;
	int64_t pos0, rows;
	const struct tensor *qkv;   /* post-RoPE q | k | v in columns 0, heads*d, heads*d + kv_heads*d */
	const struct tensor *q_pre; /* [rows, heads*d] queries after bias and q-norm, before RoPE; NULL unless observed */
	const struct tensor *lse;   /* [rows, heads]; NULL unless observed */
	const struct kv *kv;        /* the cache these rows were appended to (rows [0, pos0+rows) valid for this layer) */
};
enum { OBSERVE_Q = 1, OBSERVE_Q_PRE = 2, OBSERVE_LSE = 4 };
struct observer {
	unsigned needs;             /* OBSERVE_*: K and V can always be read from the cache */
	int64_t first_pos;          /* rows below this position need not be shown */
	int (*layer)(void *user, const struct layer_rows *r, char err[ERR_LEN]);
	void *user;
	int layers;                 /* the first so many are shown; 0 = all */
};

/* One sequence of a batch: n new tokens at positions pos0, pos0+1, ... (pos0 = tokens *seen*, not cache length). */
struct forward_seq {
	const int32_t *ids;
	int n;
	int64_t pos0;
	const struct kv *context;   /* as attn_seq */
	const struct kept *kept;
	struct kv *tail;
};
/* Feeds every sequence its new tokens in one call. next[i] = greedy token after sequence i's last row (NULL = not wanted);
 * logits [n][vocab] fp32 on the host, or NULL. With neither, the LM head is skipped and the last layer computes only K and V (and
 * what the observer needs). observers (n_obs, may be 0) are for a single sequence only. */
int forward_run(struct forward *f, const struct forward_seq *seqs, int n, const struct observer *obs, int n_obs, int32_t *next, float *logits,
	char err[ERR_LEN]);
/* One sequence in chunks of max_rows; stop() polled between chunks (NULL = never; true = returns 1). */
int forward_prefill(struct forward *f, const int32_t *ids, int64_t n, struct kv *kv, const struct observer *obs, int n_obs, int32_t *next,
	float *logits, bool (*stop)(void *user), void *user, char err[ERR_LEN]);

/* The same through the first `layers` layers alone (early exit): no later layer is run and no LM head; kv needs those layers only. */
int forward_prefill_layers(struct forward *f, int layers, const int32_t *ids, int64_t n, struct kv *kv, const struct observer *obs, int n_obs,
	bool (*stop)(void *user), void *user, char err[ERR_LEN]);

/* A whole prompt through one layer before the next, for methods that evict a layer as soon as it is computed: never more than one layer's
 * full cache is held, and the residual stream of all n rows. layer() is shown each layer's K and V at its own number in a cache whose other
 * layers are empty; the cache is freed when it returns. Same bits as forward_prefill. stop: polled between layers; 1 = stopped. */
struct forward_by_layer {
	int (*layer)(void *user, int layer, const struct kv *kv, char err[ERR_LEN]);
	bool (*stop)(void *user); /* NULL = never */
	void *user, *stop_user;
};
int forward_prefill_by_layer(struct forward *f, const int32_t *ids, int64_t n, const struct forward_by_layer *w, char err[ERR_LEN]);

int64_t forward_calls(const struct forward *f);   /* forward_run calls so far (a prefill counts its chunks) */
int64_t forward_head_device_ns(const struct forward *f); /* the same by the device's clock; 0 = not known. Synchronises */
int64_t forward_head_ns(const struct forward *f); /* final norm + LM head + argmax of the latest call that had them */

#endif
