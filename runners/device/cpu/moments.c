/* moments.c: sums and outer products of query rows, in double: their differences (covariances) cancel. */
#include "runners/device/cpu/cpu.h"

struct moments_job {
	const struct tensor *x;
	int64_t row0, rows, col0;
	int d;
	double *sum, *outer;
};

static void moments_head(void *arg, int64_t h, int thread)
{
	struct moments_job *j = arg;
	int d = j->d;
	double *sum = j->sum + h * d, *outer = j->outer + h * d * d, row[HEAD_DIM_MAX];
	(void)thread;
	for (int64_t r = 0; r < j->rows; r++) {
		const float *x = j->x->x + (j->row0 + r) * j->x->cols + j->col0 + h * d;
		for (int i = 0; i < d; i++)
			sum[i] += row[i] = x[i];
		for (int i = 0; i < d; i++)
			for (int k = 0; k <= i; k++)
				outer[i * d + k] += row[i] * row[k];
	}
	for (int i = 0; i < d; i++) /* products commute: both triangles would have the same bits */
		for (int k = 0; k < i; k++)
			outer[k * d + i] = outer[i * d + k];
}

int cpu_moments(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int heads, int d, double *sum,
	double *outer)
{
	pool_run(q->d->pool, heads, moments_head, &(struct moments_job){x, row0, rows, col0, d, sum, outer});
	return 0;
}
