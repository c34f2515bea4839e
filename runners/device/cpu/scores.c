/* scores.c: selection and pooling of scores: the loops of topk.c and pooling.c over the device's threads. */
#include "runners/device/cpu/cpu.h"
#include "runners/device/scores.h"

struct topk_job {
	const float *x; /* first row, first column */
	int64_t ld, cols;
	const int64_t *k;
	int32_t *const *out;
	int64_t *nan;
};

static void topk_row(void *arg, int64_t r, int thread)
{
	struct topk_job *j = arg;
	(void)thread;
	j->nan[r] = top_k(j->x + r * j->ld, j->cols, j->k[r], j->out[r]);
}

int cpu_topk(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const int64_t *k, int32_t *const *out,
	int64_t *nan)
{
	struct topk_job j = {x->x + row0 * x->cols + col0, x->cols, cols, k, out, nan};
	pool_run(q->d->pool, rows, topk_row, &j);
	return 0;
}

int cpu_top_counts(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int64_t k, int64_t *counts)
{
	top_counts(q->d, (struct slices){x->x + row0 * x->cols + col0, rows, x->cols, cols}, k, counts);
	return 0;
}

struct pool_job {
	const struct tensor *x;
	struct tensor *out;
	int g;
	int64_t cols;
	const struct pool_rule *rule;
};

static void pool_group(void *arg, int64_t i, int thread)
{
	struct pool_job *j = arg;
	(void)thread;
	pool_scores(j->x->x + i * j->g * j->x->cols, j->g, j->x->cols, j->cols, j->rule, j->out->x + i * j->out->cols);
}

int cpu_pool(struct queue *q, struct tensor *out, const struct tensor *x, int g, int64_t cols, const struct pool_rule *rule)
{
	struct pool_job j = {x, out, g, cols, rule};
	pool_run(q->d->pool, x->rows / g, pool_group, &j);
	return 0;
}
