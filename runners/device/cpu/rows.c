/* rows.c: the operations that work on each row alone: norms, RoPE, SwiGLU. Threads take blocks of rows. */
#include "runners/device/cpu/cpu.h"

enum { BLOCK_ELEMENTS = 16384 }; /* of an item: some microseconds; less is not worth waking a thread */

struct rows_job {
	void (*row)(const struct rows_job *j, int64_t r);
	int64_t rows, block;
	const struct cpu_kernels *kernels;
	float *out;
	const float *x, *w;
	int64_t out_ld, x_ld, n;
	int heads, d;
	float eps;
};

static void rows_block(void *arg, int64_t item, int thread)
{
	const struct rows_job *j = arg;
	(void)thread;
	for (int64_t r = item * j->block; r < j->rows && r < (item + 1) * j->block; r++)
		j->row(j, r);
}

/* streams: how many matrices [rows, cols] are read or written. */
static int run_rows(struct queue *q, enum profile_op op, struct rows_job j, int64_t cols, int streams)
{
	int64_t begin = profile_begin(q->d);
	j.kernels = q->d->kernels;
	j.block = cols < BLOCK_ELEMENTS ? BLOCK_ELEMENTS / cols : 1;
	pool_run(q->d->pool, (j.rows + j.block - 1) / j.block, rows_block, &j);
	profile_end(q->d, op, begin, 0, 4.0 * streams * (double)j.rows * (double)cols);
	return 0;
}

static void norm_row(const struct rows_job *j, int64_t r)
{
	j->kernels->rmsnorm(j->out + r * j->out_ld, j->x + r * j->x_ld, j->w, j->n, j->eps);
}

int op_rmsnorm(struct queue *q, struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, int64_t rows)
{
	if (rows > x->rows || rows > out->rows || out->cols < w->cols || x->cols < w->cols)
		return device_fail(q->d, "op_rmsnorm: %lld rows of %lld do not fit", (long long)rows, (long long)w->cols);
	return run_rows(q, PROFILE_NORM,
		(struct rows_job){.row = norm_row,
			.rows = rows,
			.out = out->x,
			.x = x->x,
			.w = w->x,
			.out_ld = out->cols,
			.x_ld = x->cols,
			.n = w->cols,
			.eps = eps},
		w->cols, 2);
}

static void head_norm_row(const struct rows_job *j, int64_t r)
{
	for (int h = 0; h < j->heads; h++) {
		float *x = j->out + r * j->out_ld + h * j->d;
		j->kernels->rmsnorm(x, x, j->w, j->d, j->eps);
	}
}

int op_head_norm(
	struct queue *q, struct tensor *x, int64_t col0, int heads, int d, const struct tensor *w, float eps, int64_t rows)
{
	if (rows > x->rows || col0 < 0 || col0 + (int64_t)heads * d > x->cols || w->cols < d)
		return device_fail(q->d, "op_head_norm: %d heads of %d from column %lld of %lld", heads, d, (long long)col0,
			(long long)x->cols);
	return run_rows(q, PROFILE_HEAD_NORM,
		(struct rows_job){.row = head_norm_row,
			.rows = rows,
			.out = x->x + col0,
			.w = w->x,
			.out_ld = x->cols,
			.heads = heads,
			.d = d,
			.eps = eps},
		(int64_t)heads * d, 2);
}

int op_rope_table(
	struct queue *q, struct tensor *cs, const int64_t *positions, const double *inv_freq, double mscale, int d, int64_t rows)
{
	if (rows > cs->rows || d % 2 || cs->cols < d)
		return device_fail(q->d, "op_rope_table: %lld rows of %d do not fit", (long long)rows, d);
	int64_t begin = profile_begin(q->d);
	for (int64_t r = 0; r < rows; r++)
		for (int t = 0; t < d / 2; t++) {
			float angle = (float)positions[r] * (float)inv_freq[t];
			cs->x[r * cs->cols + t] = cosf(angle) * (float)mscale;
			cs->x[r * cs->cols + d / 2 + t] = sinf(angle) * (float)mscale;
		}
	profile_end(q->d, PROFILE_ROPE_TABLE, begin, 0, 4.0 * (double)rows * d);
	return 0;
}

static void rope_row(const struct rows_job *j, int64_t r)
{
	const float *cs = j->x + r * j->x_ld;
	for (int h = 0; h < j->heads; h++)
		j->kernels->rope(j->out + r * j->out_ld + h * j->d, cs, cs + j->d / 2, j->d);
}

int op_rope(struct queue *q, struct tensor *x, int64_t col0, int heads, int d, const struct tensor *cs, int64_t rows)
{
	if (rows > x->rows || rows > cs->rows || d % 2 || cs->cols < d || col0 < 0 || col0 + (int64_t)heads * d > x->cols)
		return device_fail(
			q->d, "op_rope: %d heads of %d from column %lld of %lld", heads, d, (long long)col0, (long long)x->cols);
	return run_rows(q, PROFILE_ROPE,
		(struct rows_job){.row = rope_row,
			.rows = rows,
			.out = x->x + col0,
			.x = cs->x,
			.out_ld = x->cols,
			.x_ld = cs->cols,
			.heads = heads,
			.d = d},
		(int64_t)heads * d, 2);
}

static void swiglu_row(const struct rows_job *j, int64_t r)
{
	const float *gate = j->x + r * j->x_ld;
	j->kernels->swiglu(j->out + r * j->out_ld, gate, gate + j->n, j->n);
}

int op_swiglu(struct queue *q, struct tensor *out, const struct tensor *gate_up, int64_t f, int64_t rows)
{
	if (rows > out->rows || rows > gate_up->rows || out->cols < f || gate_up->cols < 2 * f)
		return device_fail(q->d, "op_swiglu: %lld rows of %lld do not fit", (long long)rows, (long long)f);
	return run_rows(q, PROFILE_SWIGLU,
		(struct rows_job){.row = swiglu_row,
			.rows = rows,
			.out = out->x,
			.x = gate_up->x,
			.out_ld = out->cols,
			.x_ld = gate_up->cols,
			.n = f},
		f, 3);
}
