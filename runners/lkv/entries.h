/* entries.h: cached entries as the networks see them, and their utilities at run time: one pass over K and V, no attention
 * matrix.
 *
 * Keys are cached after RoPE; the rotation is undone while an entry is read (3 operations a channel beside 2 * hid for the
 * network), so that nothing else need be kept during prefill. Training and scoring read the same bf16 cache. */
#ifndef KVB_LKV_ENTRIES_H
#define KVB_LKV_ENTRIES_H

#include "runners/device/device.h"
#include "runners/lkv/net.h"

/* cos | sin of positions [first, first+n), [n][d], divided by mscale: what turns a cached key back. Caller frees; NULL = no
 * memory. */
float *lkv_turns(struct device *d, const double *inv_freq, double mscale, int head_dim, int64_t first, int64_t n);
/* Raw inputs x [n][in] of rows [first, first+n) of one head; turns as above for these rows (unused unless the shape says `pre`).
 */
int lkv_entries(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, const struct lkv_shape *s,
	const float *turns, float *x);

/* A network made ready for scoring: deviations folded into W1, hidden units padded for the vector loops. Its first use on a device whose
 * caches are not read in place puts it there; it must be freed before that device is closed. */
struct lkv_ready;
struct lkv_ready *lkv_ready_new(const struct lkv_net *net); /* NULL = out of memory */
void lkv_ready_free(struct lkv_ready *r);
/* lkv_turns of the rows that are scored, where the utilities of this device are made. */
struct lkv_positions {
	float *turns;          /* [n][d] */
	struct tensor *placed; /* NULL = the host reads the cache itself */
};
int lkv_positions_make(struct lkv_positions *p, struct queue *q, const double *inv_freq, double mscale, int head_dim, int64_t first,
	int64_t n); /* -1 = out of memory */
void lkv_positions_free(struct lkv_positions *p);
/* Utilities of rows [first, first+n) of every KV head of layer `of` (of the network), which lies in layer `in` of kv: out
 * [kv_heads][n]. p: of these rows. 0, or -1 with the device's error. */
int lkv_utilities(struct lkv_ready *r, struct queue *q, const struct kv *kv, int in, int of, int64_t first, int64_t n,
	const struct lkv_positions *p, float *out);

#endif
