/* matmul.c: linear layers by cuBLAS: bf16 operands (fp32 in that precision), fp32 sums.
 *
 * Up to LINEAR_FEW rows every product has the shape of LINEAR_FEW rows, so that a token's bits do not depend on how many decode beside it. More
 * rows: cuBLAS chooses its kernel by shape, and a row's bits may depend on how many rows were run together. Against the CPU: the same rounded
 * operands, another order of the sum. */
#include "runners/device/cuda/cuda.h"

#include <stdio.h>

/* y [rows][y_ld] = beta y + x W[col0 .. col0 + cols)^T; x in the precision's form. */
static int product(struct queue *q, float *y, int64_t y_ld, const void *x, int64_t x_ld, const struct cuda_weight *w, int64_t col0, int64_t cols,
	float beta, int64_t rows)
{
	struct cuda_queue *cq = cuda_queue(q);
	struct device *d = q->d;
	cudaDataType type = d->bf16 ? CUDA_R_16BF : CUDA_R_32F;
	const char *from = (const char *)w->w + col0 * w->ld * kv_element(d);
	float alpha = 1;
	cublasStatus_t s = cuda_device(d)->blas->gemm(cq->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)cols, (int)rows, (int)w->head.k, &alpha, from, type,
		(int)w->ld, x, type, (int)x_ld, &beta, y, CUDA_R_32F, (int)y_ld, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
	if (s == CUBLAS_STATUS_SUCCESS)
		return 0;
	if (cuda_check(d, cudaGetLastError(), "cublasGemmEx"))
		return -1;
	return device_fail(d, "cublasGemmEx of [%lld, %lld] by [%lld, %lld]: status %d", (long long)rows, (long long)w->head.k, (long long)w->head.k,
		(long long)cols, (int)s);
}

/* Rows of x as cuBLAS takes them: in place when x is an operand, else rounded into scratch, with zeros up to all_rows. */
static const void *operand_rows(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t all_rows, int64_t k, int64_t *ld)
{
	struct rows from = tensor_rows_from(x, row0);
	if (x->operand && all_rows == rows) {
		*ld = from.ld;
		return from.x;
	}
	struct rows to = {NULL, padded_cols(k), q->d->bf16};
	*ld = to.ld;
	to.x = cuda_scratch(q, SCRATCH_IN, all_rows * to.ld * kv_element(q->d));
	if (!to.x || cuda_check(q->d, kernel_linear_in(cuda_queue(q)->stream, to, all_rows, from, k, rows), "op_linear"))
		return NULL;
	return to.x;
}

/* Up to LINEAR_FEW rows: padded to that many, into scratch, and from there to where they belong. */
static int linear_few(struct queue *q, struct tensor *out, const struct tensor *x, const struct cuda_weight *w, const float *bias, int64_t col0,
	int64_t cols, bool add, int64_t rows)
{
	int64_t ld, block = cols < LINEAR_COLS ? cols : LINEAR_COLS;
	const void *in = operand_rows(q, x, 0, rows, LINEAR_FEW, w->head.k, &ld);
	float *y = in ? cuda_scratch(q, SCRATCH_OUT, LINEAR_FEW * block * 4) : NULL;
	if (!y)
		return -1;
	for (int64_t c = 0; c < cols; c += block) {
		int64_t n = cols - c < block ? cols - c : block;
		if (product(q, y, block, in, ld, w, col0 + c, n, 0, LINEAR_FEW) ||
			cuda_check(q->d,
				kernel_linear_out(cuda_queue(q)->stream, out->x + c, out->cols, y, block, bias ? bias + col0 + c : NULL, add, n, rows),
				"op_linear"))
			return -1;
	}
	return 0;
}

static int linear_many(struct queue *q, struct tensor *out, const struct tensor *x, const struct cuda_weight *w, const float *bias, int64_t col0,
	int64_t cols, bool add, int64_t rows)
{
	for (int64_t r = 0; r < rows; r += LINEAR_ROWS) {
		int64_t n = rows - r < LINEAR_ROWS ? rows - r : LINEAR_ROWS, ld;
		const void *in = operand_rows(q, x, r, n, n, w->head.k, &ld);
		float *y = out->x + r * out->cols;
		if (!in || product(q, y, out->cols, in, ld, w, col0, cols, add ? 1 : 0, n) ||
			(bias && cuda_check(q->d,
					 kernel_linear_out(cuda_queue(q)->stream, y, out->cols, y, out->cols, bias + col0, false, cols, n), "op_linear")))
			return -1;
	}
	return 0;
}

static int finish_heads(struct queue *q, struct tensor *out, const struct head_epilogue *e, int64_t rows)
{
	struct heads_job job = {.x = out->x + e->col,
		.ld = out->cols,
		.cs_ld = e->cs->cols,
		.pre_ld = e->q_pre ? e->q_pre->cols : 0,
		.rows = rows,
		.heads = e->q_heads + e->k_heads,
		.q_heads = e->q_heads,
		.d = e->d,
		.eps = e->eps,
		.q_norm = e->q_norm ? e->q_norm->x : NULL,
		.k_norm = e->k_norm ? e->k_norm->x : NULL,
		.cs = e->cs->x,
		.pre = e->q_pre ? e->q_pre->x : NULL};
	return job.heads ? cuda_check(q->d, kernel_heads(cuda_queue(q)->stream, job), "op_linear_qkv") : 0;
}

int cuda_linear(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *weight, const struct tensor *bias_row, int64_t col0,
	int64_t cols, bool add, const struct head_epilogue *heads, int64_t rows)
{
	const struct cuda_weight *w = cuda_weight(weight);
	const float *bias = bias_row ? bias_row->x : NULL;
	if (cuda_use(q->d) || (rows <= LINEAR_FEW ? linear_few : linear_many)(q, out, x, w, bias, col0, cols, add, rows))
		return -1;
	return heads ? finish_heads(q, out, heads, rows) : 0;
}

int cuda_linear_swiglu(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *weight, int64_t rows)
{
	const struct cuda_weight *w = cuda_weight(weight);
	int64_t cols = weight->n, most = rows <= LINEAR_FEW ? LINEAR_FEW : rows < SWIGLU_ROWS ? rows : SWIGLU_ROWS;
	if (cuda_use(q->d))
		return -1;
	float *y = cuda_scratch(q, SCRATCH_OUT, most * cols * 4);
	for (int64_t r = 0; r < rows && y; r += most) {
		int64_t n = rows - r < most ? rows - r : most, ld;
		const void *in = operand_rows(q, x, r, n, rows <= LINEAR_FEW ? LINEAR_FEW : n, weight->k, &ld);
		if (!in || product(q, y, cols, in, ld, w, 0, cols, 0, rows <= LINEAR_FEW ? LINEAR_FEW : n) ||
			cuda_check(q->d, kernel_swiglu(cuda_queue(q)->stream, tensor_rows_from(out, r), y, cols, cols / 2, n), "op_linear_swiglu"))
			return -1;
	}
	return y ? 0 : -1;
}

/* ---- peaks ---- */

enum { PEAK_N = 8192, PEAK_ROUNDS = 4 };

static int64_t best_ns(struct queue *q, struct event *from, struct event *to, int (*run)(void *arg), void *arg)
{
	int64_t best = 0, ns;
	for (int i = 0; i < PEAK_ROUNDS; i++)
		if (queue_event_record(q, from) || run(arg) || queue_event_record(q, to) || event_elapsed(from, to, &ns))
			return 0;
		else if (best == 0 || ns < best)
			best = ns;
	return best;
}

struct peak_job {
	struct queue *q;
	struct cuda_weight w;
	void *x;
	float *y;
};
static int peak_product(void *arg)
{
	struct peak_job *j = arg;
	return product(j->q, j->y, PEAK_N, j->x, PEAK_N, &j->w, 0, PEAK_N, 0, PEAK_N);
}
static int peak_copy(void *arg)
{
	struct peak_job *j = arg;
	return cuda_check(j->q->d,
		cudaMemcpyAsync(j->y, j->w.w, (size_t)PEAK_N * PEAK_N * 2, cudaMemcpyDeviceToDevice, cuda_queue(j->q)->stream), "peak");
}

/* An 8192^3 product of the device's precision and a copy of 128 MB, the best of some rounds: 0 where memory did not suffice. */
void cuda_peaks(struct device *d, struct device_peaks *p)
{
	int64_t square = (int64_t)PEAK_N * PEAK_N, bytes = square * kv_element(d);
	struct peak_job j = {.q = queue_new(d), .w = {.head = {d, PEAK_N, PEAK_N}, .ld = PEAK_N}};
	struct event *from = event_new(d), *to = event_new(d);
	j.w.w = device_alloc(d, bytes);
	j.x = device_alloc(d, bytes);
	j.y = device_alloc(d, square * 4);
	*p = (struct device_peaks){0};
	if (j.q && from && to && j.w.w && j.x && j.y && !cuda_check(d, cudaMemset(j.w.w, 0, (size_t)bytes), "peak") &&
		!cuda_check(d, cudaMemset(j.x, 0, (size_t)bytes), "peak")) {
		int64_t product_ns = best_ns(j.q, from, to, peak_product, &j), copy_ns = best_ns(j.q, from, to, peak_copy, &j);
		double rate = product_ns ? 2.0 * PEAK_N * (double)square / (double)product_ns * 1e9 : 0;
		*(d->bf16 ? &p->dot_bf16 : &p->fma_f32) = rate;
		p->read_bytes = copy_ns ? 4.0 * (double)square / (double)copy_ns * 1e9 : 0;
	}
	device_free(d, j.w.w, bytes);
	device_free(d, j.x, bytes);
	device_free(d, j.y, square * 4);
	event_free(from);
	event_free(to);
	queue_free(j.q);
}
