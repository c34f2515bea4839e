/* bpe.h: byte-pair encoding of one piece of text: bytes -> ids by merges in the order of their rank.
 *
 * Owns: pieces, merges, a cache of short pieces, scratch. Leaves out: how text is cut into pieces (pretoken.h).
 * One caller at a time, since the cache and the scratch are written. */
#ifndef KVB_BPE_H
#define KVB_BPE_H

#include "runners/model/bytemap.h"
#include "runners/model/tokenizer.h"

struct bpe_symbol;
struct bpe_pair;
struct bpe {
	struct bytemap pieces; /* bytes -> id; -1 = a special token, which text never becomes */
	struct bytemap merges; /* {left id, right id} -> rank << 32 | id of both together */
	int32_t byte_id[256];  /* id of each single byte, -1 = none: such a byte is dropped; filled by bpe_ready */
	int32_t unk;           /* stands for bytes without an id of their own; -1 = none */
	bool ignore_merges;    /* a piece that is in the vocabulary is one token, whatever the merges say */

	struct bytemap cache; /* piece -> place of its ids in cached, see bpe.c */
	struct ids cached;
	struct bpe_symbol *symbols;
	struct bpe_pair *heap;
	size_t n_symbols, n_heap; /* allocated */
};

/* Fills byte_id; call once after the pieces are in. */
void bpe_ready(struct bpe *b);
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t merged);
/* Appends the ids of one piece. */
void bpe_encode(struct bpe *b, const char *piece, size_t len, struct ids *out);
void bpe_free(struct bpe *b);

#endif
