/* arena.h: ranges of a few large blocks of memory, wherever that is; see arena.c. */
#ifndef KVB_ARENA_H
#define KVB_ARENA_H

#include <stdbool.h>
#include <stdint.h>

enum {
	ARENA_ALIGN = 256,        /* of a range, as cudaMalloc's */
	ARENA_RANGES = 256 << 10  /* of a block beyond the sum of what is asked for, so that up to a thousand ranges fit with their padding */
};
struct arena_range {
	int64_t at, bytes;
};
struct arena_block {
	char *base;
	int64_t bytes;
	struct arena_range *hole; /* [n] what is free, ascending, no two side by side */
	int n;
};
struct arena { /* zeroed: empty */
	struct arena_block *block;
	int n;
};
/* The base is a multiple of ARENA_ALIGN; the arena never frees it. */
void arena_add(struct arena *a, void *base, int64_t bytes);
/* Forgets the blocks of which nothing is in use and hands each one's base to `drop`. With the last one the arena's own lists are freed: nothing else ends it. */
void arena_drop_unused(struct arena *a, void (*drop)(void *base));
void *arena_take(struct arena *a, int64_t bytes); /* NULL = no hole is large enough */
bool arena_holds(const struct arena *a, const void *p);
void arena_give(struct arena *a, void *p, int64_t bytes); /* of arena_take, with the same bytes */
int64_t arena_largest(const struct arena *a);
int64_t arena_free_bytes(const struct arena *a);

#endif
