/* arena.c: a device's memory in a few large blocks, given out in ranges: the lowest that fits, in the order in which blocks were reserved, so that the same
 * requests get the same offsets in every run. Sizes are known before (device_reserve). On a GPU asking the driver for each tensor would cost a wait of all of it
 * every time one is freed; on the CPU whole blocks are huge pages, and weights stand side by side. Bookkeeping alone: who asks for blocks, and who waits before a
 * range is given back, is the backend's device.c. */
#include "runners/device/arena.h"

#include "harness/base/base.h"

#include <stdlib.h>
#include <string.h>

static int64_t aligned(int64_t bytes)
{
	return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

void arena_add(struct arena *a, void *base, int64_t bytes)
{
	a->block = mem_grow(a->block, (size_t)a->n + 1, sizeof *a->block);
	struct arena_block *b = &a->block[a->n++];
	*b = (struct arena_block){.base = base, .bytes = bytes, .n = 1};
	b->hole = mem_grow(NULL, 1, sizeof *b->hole);
	b->hole[0] = (struct arena_range){0, bytes};
}

static bool unused(const struct arena_block *b)
{
	return b->n == 1 && b->hole[0].bytes == b->bytes;
}

void arena_drop_unused(struct arena *a, void (*drop)(void *base))
{
	int kept = 0;
	for (int i = 0; i < a->n; i++) {
		struct arena_block b = a->block[i];
		if (unused(&b)) {
			free(b.hole);
			drop(b.base);
		} else {
			a->block[kept++] = b;
		}
	}
	a->n = kept;
	if (!kept) {
		free(a->block);
		a->block = NULL;
	}
}

void *arena_take(struct arena *a, int64_t bytes)
{
	bytes = aligned(bytes);
	for (int i = 0; i < a->n; i++) {
		struct arena_block *b = &a->block[i];
		for (int h = 0; h < b->n; h++) {
			struct arena_range *r = &b->hole[h];
			if (r->bytes < bytes)
				continue;
			char *p = b->base + r->at;
			r->at += bytes;
			r->bytes -= bytes;
			if (r->bytes == 0)
				memmove(r, r + 1, (size_t)(--b->n - h) * sizeof *r);
			return p;
		}
	}
	return NULL;
}

/* A hole more, one with its neighbours. */
static void hole_add(struct arena_block *b, struct arena_range r)
{
	int h = 0;
	while (h < b->n && b->hole[h].at < r.at)
		h++;
	bool before = h > 0 && b->hole[h - 1].at + b->hole[h - 1].bytes == r.at, after = h < b->n && r.at + r.bytes == b->hole[h].at;
	if (before && after) {
		b->hole[h - 1].bytes += r.bytes + b->hole[h].bytes;
		memmove(&b->hole[h], &b->hole[h + 1], (size_t)(--b->n - h) * sizeof r);
	} else if (before) {
		b->hole[h - 1].bytes += r.bytes;
	} else if (after) {
		b->hole[h].at = r.at;
		b->hole[h].bytes += r.bytes;
	} else {
		b->hole = mem_grow(b->hole, (size_t)b->n + 1, sizeof r);
		memmove(&b->hole[h + 1], &b->hole[h], (size_t)(b->n++ - h) * sizeof r);
		b->hole[h] = r;
	}
}

static struct arena_block *block_of(const struct arena *a, const void *p)
{
	for (int i = 0; i < a->n; i++)
		if ((const char *)p >= a->block[i].base && (const char *)p < a->block[i].base + a->block[i].bytes)
			return &a->block[i];
	return NULL;
}

bool arena_holds(const struct arena *a, const void *p)
{
	return block_of(a, p) != NULL;
}

void arena_give(struct arena *a, void *p, int64_t bytes)
{
	struct arena_block *b = block_of(a, p);
	hole_add(b, (struct arena_range){(char *)p - b->base, aligned(bytes)});
}

int64_t arena_largest(const struct arena *a)
{
	int64_t most = 0;
	for (int i = 0; i < a->n; i++)
		for (int h = 0; h < a->block[i].n; h++)
			most = a->block[i].hole[h].bytes > most ? a->block[i].hole[h].bytes : most;
	return most;
}

int64_t arena_free_bytes(const struct arena *a)
{
	int64_t sum = 0;
	for (int i = 0; i < a->n; i++)
		for (int h = 0; h < a->block[i].n; h++)
			sum += a->block[i].hole[h].bytes;
	return sum;
}
