/* dense.h: the transformer written a second time, as plainly as possible: double sums, one sequence, an explicit mask for each
 * (layer, KV head, key). The reference for pruned caches: a pruned entry is a masked one; positions are the original ones. */
#ifndef KVB_TEST_DENSE_H
#define KVB_TEST_DENSE_H

#include "runners/model/model.h"

struct dense;
struct dense *dense_open(const struct model *m);
void dense_close(struct dense *d);
/* Logits of the last of n tokens. mask[l*kv_heads + h][j] != 0: key j (j < n_masked) is hidden from every query at or after row
 * `from`; queries before `from` see everything causal. mask NULL = plain causal attention. out [vocab]. */
void dense_logits(struct dense *d, const int32_t *ids, int n, const unsigned char *const *mask, int n_masked, int from, float *out);

#endif
