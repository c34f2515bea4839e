/* frozen.h: a model as training sees it: weights packed for both directions, contexts that are constants. Gives tail.h its linear
 * layers and its K and V from the device, and the language model head both ways.
 *
 * Owns: the packed weights (two copies of each matrix: W and its transpose) and a few tensors. Leaves out: the tails' arithmetic
 * (tail_body.h), prefilling a context (runners/forward). One thread at a time. */
#ifndef KVB_LKV_FROZEN_H
#define KVB_LKV_FROZEN_H

#include "runners/device/device.h"
#include "runners/lkv/tail.h"

struct frozen;
/* m must stay open. max_rows: rows of one linear call (longer ones are cut). */
int frozen_open(struct frozen **out, struct model *m, struct device *d, int max_rows, char err[ERR_LEN]);
void frozen_close(struct frozen *f);
struct device *frozen_device(const struct frozen *f);
struct queue *frozen_queue(const struct frozen *f);
/* The model for tail_new_f; its context is the cache of the latest frozen_context (borrowed). */
const struct tail_model_f *frozen_tail(const struct frozen *f);
void frozen_context(struct frozen *f, const struct kv *kv);
int frozen_embed(const struct frozen *f, const int32_t *ids, int64_t n, float *x, char err[ERR_LEN]); /* x [n][hidden] */
/* hidden [rows][D] (after the final norm) -> logits [rows][vocab], and back. -1: device_error. */
int frozen_logits(struct frozen *f, const float *hidden, int64_t rows, float *logits);
int frozen_logits_back(struct frozen *f, const float *dlogits, int64_t rows, float *dhidden);

#endif
