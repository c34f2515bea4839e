/* bytemap.h: a hash table from byte strings to 64-bit values. Vocabulary, merges and the piece cache are all one of these.
 * Zero-initialised is empty. Keys are copied; nothing is ever removed but all at once. */
#ifndef KVB_BYTEMAP_H
#define KVB_BYTEMAP_H

#include "harness/base/base.h"

struct bytemap_slot {
	size_t at; /* of the key in keys */
	uint32_t len;
	uint32_t hash; /* never 0 in a used slot */
	int64_t value;
};
struct bytemap {
	struct bytemap_slot *slots;
	size_t n_slots; /* a power of two, at least twice count */
	size_t count;
	struct strbuf keys;
};

/* The value of a key, NULL when there is none; good until the next put. */
const int64_t *bytemap_get(const struct bytemap *m, const void *key, size_t len);
/* Sets the value, over an old one if there is one. */
void bytemap_put(struct bytemap *m, const void *key, size_t len, int64_t value);
void bytemap_clear(struct bytemap *m); /* empties it, keeps the memory */
void bytemap_free(struct bytemap *m);

#endif
