/* argmax.c: the greedy token of each row of logits. */
#include "runners/device/cpu/cpu.h"

struct argmax_job {
	const struct tensor *x;
	int64_t cols;
	int32_t *out;
};

static void argmax_row(void *arg, int64_t r, int thread)
{
	struct argmax_job *j = arg;
	const float *x = j->x->x + r * j->x->cols;
	int64_t best = 0;
	bool nan = false;
	(void)thread;
	for (int64_t i = 0; i < j->cols; i++) {
		nan |= x[i] != x[i];
		if (x[i] > x[best])
			best = i;
	}
	j->out[r] = nan ? -1 : (int32_t)best;
}

int op_argmax(struct queue *q, const struct tensor *x, int64_t cols, int64_t rows, int32_t *out)
{
	if (rows > x->rows || cols > x->cols || cols < 1)
		return device_fail(q->d, "op_argmax: %lld columns of %lld", (long long)cols, (long long)x->cols);
	pool_run(q->d->pool, rows, argmax_row, &(struct argmax_job){x, cols, out});
	return 0;
}
