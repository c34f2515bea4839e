/* argmax.c: the greedy token of each row of logits. A row is cut into chunks (one row must keep all threads busy); the best of
 * the chunks is taken in ascending order, so ties go to the lowest index however the row was cut. */
#include "runners/device/cpu/cpu.h"

#include <stdlib.h>

enum { CHUNK = 8192 }; /* columns of an item: some microseconds */

struct argmax_job {
	const struct tensor *x;
	int64_t cols, chunks;
	int32_t *best; /* [rows][chunks]; -1 = a NaN is among them */
};

static void argmax_chunk(void *arg, int64_t item, int thread)
{
	struct argmax_job *j = arg;
	int64_t first = item % j->chunks * CHUNK, end = first + CHUNK < j->cols ? first + CHUNK : j->cols, best = first;
	const float *x = j->x->x + item / j->chunks * j->x->cols;
	bool nan = false;
	(void)thread;
	for (int64_t i = first; i < end; i++) {
		nan |= x[i] != x[i];
		if (x[i] > x[best])
			best = i;
	}
	j->best[item] = nan ? -1 : (int32_t)best;
}

static int32_t best_of_chunks(const float *x, const int32_t *best, int64_t chunks)
{
	int32_t most = best[0];
	for (int64_t c = 1; c < chunks && most >= 0; c++)
		if (best[c] < 0 || x[best[c]] > x[most])
			most = best[c];
	return most;
}

int cpu_argmax(struct queue *q, const struct tensor *x, int64_t cols, int64_t rows, int32_t *out)
{
	int64_t chunks = (cols + CHUNK - 1) / CHUNK;
	struct argmax_job j = {x, cols, chunks, mem_new((size_t)(rows * chunks), sizeof *j.best)};
	pool_run(q->d->pool, rows * chunks, argmax_chunk, &j);
	for (int64_t r = 0; r < rows; r++)
		out[r] = best_of_chunks(x->x + r * x->cols, j.best + r * chunks, chunks);
	free(j.best);
	return 0;
}
