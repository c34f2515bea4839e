/* blocks.c: scratch memory for the items of a parallel job (net.h): a list of free blocks, as many as threads were ever at work.
 */
#include "runners/mapper/net.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct spare {
	struct spare *next;
};
struct blocks {
	pthread_mutex_t lock;
	struct spare *free; /* under lock; the list runs through the blocks themselves, CARE bytes before what is handed out */
	size_t bytes;
};
enum { CARE = 64 };

struct blocks *blocks_new(size_t bytes)
{
	struct blocks *b = mem_new(1, sizeof *b);
	pthread_mutex_init(&b->lock, NULL);
	b->bytes = bytes;
	return b;
}

void blocks_free(struct blocks *b)
{
	if (!b)
		return;
	while (b->free) {
		struct spare *next = b->free->next;
		free(b->free);
		b->free = next;
	}
	pthread_mutex_destroy(&b->lock);
	free(b);
}

void *blocks_take(struct blocks *b)
{
	pthread_mutex_lock(&b->lock);
	void *block = b->free;
	if (block)
		b->free = b->free->next;
	pthread_mutex_unlock(&b->lock);
	if (!block) {
		if (posix_memalign(&block, CARE, CARE + b->bytes))
			return NULL;
		memset(block, 0, CARE + b->bytes);
	}
	return (char *)block + CARE;
}

void blocks_give(struct blocks *b, void *block)
{
	if (!block)
		return;
	struct spare *s = (struct spare *)((char *)block - CARE);
	pthread_mutex_lock(&b->lock);
	s->next = b->free;
	b->free = s;
	pthread_mutex_unlock(&b->lock);
}
