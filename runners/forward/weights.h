/* weights.h: the packed weights of one model, by layer. Private to forward/. Owned by struct forward. */
#ifndef KVB_FORWARD_WEIGHTS_H
#define KVB_FORWARD_WEIGHTS_H

#include "runners/device/device.h"
#include "runners/model/model.h"

/* q | k | v and gate | up are one matrix each: small K and V would waste the kernel, and x is read once. */
struct layer_weights {
	struct weight *qkv;      /* [(heads + 2 kv_heads) d, hidden] */
	struct weight *o;        /* [hidden, heads d] */
	struct weight *gate_up;  /* [weights_ffn_rows, hidden]: by turns of SWIGLU_TURN */
	struct weight *down;     /* [hidden, ffn] */
	struct tensor *attn_norm, *ffn_norm; /* [1, hidden] */
	struct tensor *qkv_bias;             /* [1, (heads + 2 kv_heads) d] or NULL */
	struct tensor *q_norm, *k_norm;      /* [1, d] or NULL */
};
struct weights {
	struct weight *embed;    /* [vocab, hidden] */
	struct weight *head;     /* the LM head; == embed when tied */
	struct tensor *final_norm;
	struct layer_weights *layer; /* [n_layers] */
	int n_layers;
};

int weights_load(struct weights *w, struct model *m, struct queue *q, char err[ERR_LEN]);
void weights_free(struct weights *w);
int64_t weights_ffn_rows(const struct model_config *c); /* 2 ffn, each filled up to whole turns */
int64_t weights_bytes(const struct model_config *c, const struct device *d);

#endif
