/* scores.c: selection and pooling of scores where they were made. */
#include "runners/device/cuda/cuda.h"

#include <stdlib.h>

/* Scratch of a selection. */
struct topk_memory {
	struct topk_job job;
	int64_t *first; /* [rows] where a row's list begins; device */
	int32_t *list;  /* device */
};

static int64_t chunks_of(int64_t cols)
{
	return (cols + TOPK_CHUNK - 1) / TOPK_CHUNK;
}

/* Cuts of {k[g], 0, 0} and lists of `listed` entries in all. */
static int topk_open(struct topk_memory *m, struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
	int64_t groups, const int64_t *k, int64_t listed)
{
	int64_t bins = groups * TOPK_BINS * 4, parts = rows * chunks_of(cols) * (int64_t)sizeof(struct topk_part);
	int64_t bytes = round_up(bins, 64) + round_up(parts, 64) + round_up(rows * 8, 64) + listed * 4;
	char *at = cuda_use(q->d) ? NULL : cuda_scratch(q, SCRATCH_RESULT, bytes);
	if (!at)
		return -1;
	struct topk_cut *cut = mem_new((size_t)groups, sizeof *cut);
	for (int64_t g = 0; g < groups; g++)
		cut[g].left = k[g];
	m->job = (struct topk_job){.x = x->x + row0 * x->cols + col0, .ld = x->cols, .cols = cols, .rows = rows, .groups = groups, .bins = (uint32_t *)at};
	m->job.part = (struct topk_part *)(at += round_up(bins, 64));
	m->job.count = (int64_t *)(at += round_up(parts, 64));
	m->list = (int32_t *)(at + round_up(rows * 8, 64));
	m->job.cut = (struct topk_cut *)cuda_upload_list(q, cut, groups * (int64_t)sizeof *cut); /* the ring's copy is the kernels' to change */
	free(cut);
	return m->job.cut && !cuda_check(q->d, cudaMemsetAsync(m->job.bins, 0, (size_t)bins, cuda_queue(q)->stream), "selection") ? 0 : -1;
}

int cuda_topk(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const int64_t *k, int32_t *const *out,
	int64_t *nan)
{
	cudaStream_t s = cuda_queue(q)->stream;
	struct topk_memory m;
	int64_t total = 0, *first = mem_new((size_t)rows, sizeof *first);
	struct topk_cut *cut = mem_new((size_t)rows, sizeof *cut);
	const int64_t *first_there;
	int rc = -1;
	for (int64_t r = 0; r < rows; r++) {
		first[r] = total;
		total += k[r];
	}
	if (topk_open(&m, q, x, row0, rows, col0, cols, rows, k, total) || !(first_there = cuda_upload_list(q, first, rows * 8)) ||
		cuda_check(q->d, kernel_topk(s, m.job), "op_topk") || cuda_check(q->d, kernel_topk_list(s, m.job, m.list, first_there), "op_topk") ||
		cuda_check(q->d, cudaMemcpyAsync(cut, m.job.cut, (size_t)rows * sizeof *cut, cudaMemcpyDeviceToHost, s), "op_topk"))
		goto done;
	for (int64_t r = 0; r < rows; r++)
		if (k[r] &&
			cuda_check(q->d, cudaMemcpyAsync(out[r], m.list + first[r], (size_t)k[r] * 4, cudaMemcpyDeviceToHost, s), "op_topk"))
			goto done;
	rc = cuda_queue_sync(q);
	for (int64_t r = 0; r < rows; r++)
		nan[r] = cut[r].nan;
done: /* a call that failed has waited for the device (cuda_check): nothing is on its way into cut or out any more */
	free(first);
	free(cut);
	return rc;
}

int cuda_top_counts(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int64_t k, int64_t *counts)
{
	cudaStream_t s = cuda_queue(q)->stream;
	struct topk_memory m;
	if (topk_open(&m, q, x, row0, rows, col0, cols, 1, &k, 0) || cuda_check(q->d, kernel_topk(s, m.job), "op_top_counts") ||
		cuda_check(q->d, cudaMemcpyAsync(counts, m.job.count, (size_t)rows * 8, cudaMemcpyDeviceToHost, s), "op_top_counts"))
		return -1;
	return cuda_queue_sync(q);
}

int cuda_pool(struct queue *q, struct tensor *out, const struct tensor *x, int g, int64_t cols, const struct pool_rule *rule)
{
	struct pool_job j = {.x = x->x,
		.out = out->x,
		.ld = x->cols,
		.out_ld = out->cols,
		.cols = cols,
		.groups = x->rows / g,
		.g = g,
		.size = rule->kind == 'n' ? 1 : rule->size,
		.average = rule->kind == 'a',
		.group_max = rule->group_max,
		.pool_first = rule->pool_first,
		.divisor = rule->divisor};
	return cuda_use(q->d) ? -1 : cuda_check(q->d, kernel_pool(cuda_queue(q)->stream, j), "op_pool");
}
