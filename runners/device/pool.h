/* pool.h: the threads of a device.
 *
 * A job is n independent items; idle threads take the next one until none is left. Which thread runs an item is left open, so an
 * item must write only what belongs to it: then results do not depend on the number of threads. Jobs do not nest. */
#ifndef KVB_POOL_H
#define KVB_POOL_H

#include <stdint.h>

struct pool;
typedef void (*pool_fn)(void *arg, int64_t item, int thread); /* thread in [0, threads): names the scratch memory to use */

struct pool *pool_new(int threads); /* the caller counts as thread 0; NULL = threads could not be started */
void pool_free(struct pool *p);
int pool_threads(const struct pool *p);
/* From the next job on only the first so many take part (0 = all): the others are left to somebody else. Between jobs only. */
void pool_use(struct pool *p, int threads);
/* Runs all items, smallest number first; returns when all are done. */
void pool_run(struct pool *p, int64_t n, pool_fn fn, void *arg);
/* The same, but each thread begins with a run of neighbouring items of its own, thread 0 with the smallest, and helps the others when it is done: where items are
 * rows, smallest first, what a thread wrote in one operation it reads in the next from its own cache. */
void pool_run_near(struct pool *p, int64_t n, pool_fn fn, void *arg);

#endif
