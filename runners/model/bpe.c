/* bpe.c: a heap of candidate pairs over a linked list of symbols: n log n for any piece, however long.
 *
 * Most pieces of real text are words seen before, so short ones are looked up in a cache first; that is where the speed
 * comes from, and it lets one merge algorithm serve all lengths. */
#include "runners/model/bpe.h"

#include <stdlib.h>

enum { CACHE_PIECE_MAX = 64, CACHE_PIECES_MAX = 1 << 17 };

struct bpe_symbol {
	int32_t id;         /* -1: swallowed by its left neighbour */
	int32_t prev, next; /* -1: none */
};

/* A merge that was possible when it was pushed; stale when either symbol has changed since. */
struct bpe_pair {
	uint32_t rank;
	int32_t at; /* the left symbol */
	int32_t left, right, merged;
};

void bpe_ready(struct bpe *b)
{
	for (int c = 0; c < 256; c++) {
		unsigned char byte = (unsigned char)c;
		const int64_t *id = bytemap_get(&b->pieces, &byte, 1);
		b->byte_id[c] = id ? (int32_t)*id : b->unk;
	}
}

void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t merged)
{
	const int32_t key[2] = {left, right};
	bytemap_put(&b->merges, key, sizeof key, (int64_t)rank << 32 | merged);
}

static bool before(const struct bpe_pair *a, const struct bpe_pair *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct bpe_pair *heap, size_t *n, struct bpe_pair p)
{
	size_t i = (*n)++;
	for (; i > 0 && before(&p, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = p;
}

static struct bpe_pair heap_pop(struct bpe_pair *heap, size_t *n)
{
	struct bpe_pair top = heap[0], last = heap[--*n];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < *n; i = child) {
		if (child + 1 < *n && before(&heap[child + 1], &heap[child]))
			child++;
		if (!before(&heap[child], &last))
			break;
		heap[i] = heap[child];
	}
	heap[i] = last;
	return top;
}

/* Pushes the pair that starts at symbol `at`, if it is one and can merge. */
static void offer(struct bpe *b, size_t *n_heap, int32_t at)
{
	if (at < 0 || b->symbols[at].next < 0)
		return;
	const int32_t key[2] = {b->symbols[at].id, b->symbols[b->symbols[at].next].id};
	const int64_t *merge = bytemap_get(&b->merges, key, sizeof key);
	if (merge)
		heap_push(b->heap, n_heap,
			(struct bpe_pair){(uint32_t)(*merge >> 32), at, key[0], key[1], (int32_t)(*merge & 0xFFFFFFFF)});
}

static bool stale(const struct bpe *b, const struct bpe_pair *p)
{
	const struct bpe_symbol *left = &b->symbols[p->at];
	return left->id != p->left || left->next < 0 || b->symbols[left->next].id != p->right;
}

static void merge_pair(struct bpe *b, const struct bpe_pair *p)
{
	struct bpe_symbol *left = &b->symbols[p->at], *right = &b->symbols[left->next];
	left->id = p->merged;
	left->next = right->next;
	if (right->next >= 0)
		b->symbols[right->next].prev = p->at;
	right->id = -1;
}

/* One symbol a byte. Returns how many. */
static int32_t start_symbols(struct bpe *b, const char *piece, size_t len)
{
	if (len > b->n_symbols) {
		b->n_symbols = len + len / 2;
		b->symbols = mem_grow(b->symbols, b->n_symbols, sizeof *b->symbols);
		b->n_heap = 2 * b->n_symbols; /* a merge takes one pair out and offers at most two, and there are < len merges */
		b->heap = mem_grow(b->heap, b->n_heap, sizeof *b->heap);
	}
	int32_t n = 0;
	for (size_t i = 0; i < len; i++) {
		int32_t id = b->byte_id[(unsigned char)piece[i]];
		if (id >= 0) {
			b->symbols[n] = (struct bpe_symbol){id, n - 1, n + 1};
			n++;
		}
	}
	if (n > 0)
		b->symbols[n - 1].next = -1;
	return n;
}

static void merge_all(struct bpe *b, const char *piece, size_t len, struct ids *out)
{
	int32_t n = start_symbols(b, piece, len);
	size_t n_heap = 0;
	for (int32_t i = 0; i < n; i++)
		offer(b, &n_heap, i);
	while (n_heap > 0) {
		struct bpe_pair p = heap_pop(b->heap, &n_heap);
		if (stale(b, &p))
			continue;
		merge_pair(b, &p);
		offer(b, &n_heap, b->symbols[p.at].prev);
		offer(b, &n_heap, p.at);
	}
	for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = b->symbols[i].next)
		ids_add(out, b->symbols[i].id);
}

/* The ids of a cached piece are cached.v[value >> 8 ..], value & 255 of them. */
static void cache_put(struct bpe *b, const char *piece, size_t len, const int32_t *v, size_t n)
{
	if (b->cache.count >= CACHE_PIECES_MAX) {
		bytemap_clear(&b->cache);
		b->cached.n = 0;
	}
	bytemap_put(&b->cache, piece, len, (int64_t)b->cached.n << 8 | (int64_t)n);
	ids_append(&b->cached, v, n);
}

/* An empty list has no memory to point into. */
static const int32_t *ids_from(const struct ids *a, size_t i)
{
	return a->v ? a->v + i : NULL;
}

void bpe_encode(struct bpe *b, const char *piece, size_t len, struct ids *out)
{
	const int64_t *known = len <= CACHE_PIECE_MAX ? bytemap_get(&b->cache, piece, len) : NULL;
	if (known) {
		ids_append(out, ids_from(&b->cached, (size_t)(*known >> 8)), (size_t)(*known & 255));
		return;
	}
	size_t start = out->n;
	const int64_t *whole = b->ignore_merges ? bytemap_get(&b->pieces, piece, len) : NULL;
	if (whole && *whole >= 0)
		ids_add(out, (int32_t)*whole);
	else
		merge_all(b, piece, len, out);
	if (len <= CACHE_PIECE_MAX)
		cache_put(b, piece, len, ids_from(out, start), out->n - start);
}

void bpe_free(struct bpe *b)
{
	bytemap_free(&b->pieces);
	bytemap_free(&b->merges);
	bytemap_free(&b->cache);
	ids_free(&b->cached);
	free(b->symbols);
	free(b->heap);
}
