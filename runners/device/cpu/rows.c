/* rows.c: the operations that work on each row alone: norms and the table of rotations. Threads take blocks of rows. */
#include "runners/device/cpu/cpu.h"

enum { BLOCK_ELEMENTS = 16384 }; /* of an item: some microseconds; less is not worth waking a thread */

struct rows_job {
	void (*row)(const struct rows_job *j, int64_t r);
	int64_t rows, block;
	const struct cpu_kernels *kernels;
	float *out;
	struct tensor *operand; /* instead of out, where operands are blocks */
	char *scratch;          /* of this thread */
	const float *x, *w;
	int64_t out_ld, x_ld, n;
	float eps;
};

static void rows_block(void *arg, int64_t item, int thread)
{
	struct rows_job j = *(const struct rows_job *)arg;
	j.scratch += (int64_t)thread * SCRATCH_BYTES;
	for (int64_t r = item * j.block; r < j.rows && r < (item + 1) * j.block; r++)
		j.row(&j, r);
}

static int run_rows(struct queue *q, struct rows_job j, int64_t cols)
{
	j.kernels = cpu_device(q->d)->kernels;
	j.scratch = cpu_scratch(q->d, 0);
	j.block = cols < BLOCK_ELEMENTS ? BLOCK_ELEMENTS / cols : 1;
	pool_run_near(q->d->pool, (j.rows + j.block - 1) / j.block, rows_block, &j);
	return 0;
}

static void norm_row(const struct rows_job *j, int64_t r)
{
	j->kernels->rmsnorm(j->out + r * j->out_ld, j->x + r * j->x_ld, j->w, j->n, j->eps);
}

static void norm_operand_row(const struct rows_job *j, int64_t r)
{
	float *row = (float *)j->scratch;
	j->kernels->rmsnorm(row, j->x + r * j->x_ld, j->w, j->n, j->eps);
	j->kernels->pack_rows(operand_row(j->operand, r), row, j->n, 1, j->n, true);
}

int cpu_rmsnorm(struct queue *q, struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, int64_t rows)
{
	bool blocks = out->operand && cpu_has_blocks(q->d);
	return run_rows(q,
		(struct rows_job){.row = blocks ? norm_operand_row : norm_row,
			.operand = out,
			.rows = rows,
			.out = out->x,
			.x = x->x,
			.w = w->x,
			.out_ld = out->cols,
			.x_ld = x->cols,
			.n = w->cols,
			.eps = eps},
		w->cols);
}

int cpu_rope_table(
	struct queue *q, struct tensor *cs, const int64_t *positions, const double *inv_freq, double mscale, int d, int64_t rows)
{
	(void)q;
	for (int64_t r = 0; r < rows; r++)
		for (int t = 0; t < d / 2; t++) {
			float angle = (float)positions[r] * (float)inv_freq[t];
			cs->x[r * cs->cols + t] = cosf(angle) * (float)mscale;
			cs->x[r * cs->cols + d / 2 + t] = sinf(angle) * (float)mscale;
		}
	return 0;
}
