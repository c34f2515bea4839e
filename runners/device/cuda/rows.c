/* rows.c: the operations on rows: each is one launch. */
#include "runners/device/cuda/cuda.h"

#include <stdlib.h>

int cuda_embed(struct queue *q, struct tensor *out, const struct weight *table, const int32_t *ids, int64_t rows)
{
	const struct cuda_weight *w = cuda_weight(table);
	if (cuda_use(q->d))
		return -1;
	for (int64_t at = 0, most = RING_HALF / 4; at < rows; at += most) {
		int64_t n = rows - at < most ? rows - at : most;
		const int32_t *list = cuda_upload_list(q, ids + at, n * 4);
		if (!list || cuda_check(q->d,
				     kernel_embed(cuda_queue(q)->stream, out->x + at * out->cols, out->cols,
					     (struct rows){w->w, w->ld, q->d->bf16}, list, table->k, n),
				     "op_embed"))
			return -1;
	}
	return 0;
}

int cuda_rmsnorm(struct queue *q, struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, int64_t rows)
{
	if (cuda_use(q->d))
		return -1;
	return cuda_check(q->d,
		kernel_rmsnorm(cuda_queue(q)->stream, tensor_rows_from(out, 0), x->x, x->cols, w->x, w->cols, eps, rows), "op_rmsnorm");
}

/* Positions and frequencies are rounded to fp32 on the host: the angles have the CPU's bits. */
int cuda_rope_table(struct queue *q, struct tensor *cs, const int64_t *positions, const double *inv_freq, double mscale, int d, int64_t rows)
{
	float *list = mem_new((size_t)(rows + d / 2), sizeof *list);
	for (int t = 0; t < d / 2; t++)
		list[t] = (float)inv_freq[t];
	for (int64_t r = 0; r < rows; r++)
		list[d / 2 + r] = (float)positions[r];
	const float *args = cuda_use(q->d) ? NULL : cuda_upload_list(q, list, (rows + d / 2) * 4);
	free(list);
	return args ? cuda_check(q->d,
			      kernel_rope_table(cuda_queue(q)->stream, cs->x, cs->cols, args + d / 2, args, (float)mscale, d, rows),
			      "op_rope_table")
		    : -1;
}

int cuda_copy(struct queue *q, struct tensor *out, int64_t out_row, int64_t out_col, const struct tensor *x, int64_t row, int64_t col, int64_t rows,
	int64_t cols)
{
	if (cuda_use(q->d))
		return -1;
	return cuda_check(q->d,
		cudaMemcpy2DAsync(out->x + out_row * out->cols + out_col, (size_t)out->cols * 4, x->x + row * x->cols + col, (size_t)x->cols * 4,
			(size_t)cols * 4, (size_t)rows, cudaMemcpyDeviceToDevice, cuda_queue(q)->stream),
		"op_copy");
}

int cuda_gather_rows(struct queue *q, struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n)
{
	struct rows to = tensor_rows_from(out, 0), from = tensor_rows_from(x, 0);
	int64_t size = from.bf16 ? 2 : 4, cols = x->operand ? padded_cols(x->cols) : x->cols;
	const int32_t *list = cuda_use(q->d) ? NULL : cuda_upload_list(q, rows, n * 4);
	return list ? cuda_check(q->d,
			      kernel_gather_rows(cuda_queue(q)->stream, to.x, to.ld * size, from.x, from.ld * size, list, n, cols * size),
			      "op_gather_rows")
		    : -1;
}

int cuda_argmax(struct queue *q, const struct tensor *x, int64_t cols, int64_t rows, int32_t *out)
{
	cudaStream_t s = cuda_queue(q)->stream;
	int32_t *result = cuda_use(q->d) ? NULL : cuda_scratch(q, SCRATCH_RESULT, rows * 4);
	if (!result || cuda_check(q->d, kernel_argmax(s, result, x->x, x->cols, cols, rows), "op_argmax") ||
		cuda_check(q->d, cudaMemcpyAsync(out, result, (size_t)rows * 4, cudaMemcpyDeviceToHost, s), "op_argmax"))
		return -1;
	return cuda_queue_sync(q);
}

/* The host's sums go there and come back: rows are added to them one after another, as the CPU does. */
int cuda_moments(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int heads, int d, double *sum, double *outer)
{
	cudaStream_t s = cuda_queue(q)->stream;
	size_t n_sum = (size_t)heads * (size_t)d, n_outer = n_sum * (size_t)d;
	double *result = cuda_use(q->d) ? NULL : cuda_scratch(q, SCRATCH_RESULT, (int64_t)((n_sum + n_outer) * sizeof *result));
	if (!result || cuda_check(q->d, cudaMemcpyAsync(result, sum, n_sum * sizeof *sum, cudaMemcpyHostToDevice, s), "op_moments") ||
		cuda_check(q->d, cudaMemcpyAsync(result + n_sum, outer, n_outer * sizeof *outer, cudaMemcpyHostToDevice, s), "op_moments") ||
		cuda_check(q->d, kernel_moments(s, result, result + n_sum, x->x + row0 * x->cols + col0, x->cols, heads, d, rows), "op_moments") ||
		cuda_check(q->d, cudaMemcpyAsync(sum, result, n_sum * sizeof *sum, cudaMemcpyDeviceToHost, s), "op_moments") ||
		cuda_check(q->d, cudaMemcpyAsync(outer, result + n_sum, n_outer * sizeof *outer, cudaMemcpyDeviceToHost, s), "op_moments"))
		return -1;
	return cuda_queue_sync(q);
}

/* Heads of a cache lie apart: the kernel is given where each one's keys and values begin. */
int cuda_utilities(struct queue *q, const struct kv *kv, int layer, const struct entry_net *net, int net_layer, int64_t first, int64_t n,
	const struct tensor *turns, float *out)
{
	cudaStream_t s = cuda_queue(q)->stream;
	const void **at = mem_new(2 * (size_t)kv->heads, sizeof *at);
	struct kv_view view;
	int rc = cuda_use(q->d) || cuda_kv_view(q, kv, layer, &view);
	for (int h = 0; h < kv->heads && !rc; h++) {
		at[h] = view_row(&view, view.k, kv, layer, h, first);
		at[kv->heads + h] = view_row(&view, view.v, kv, layer, h, first);
	}
	float *result = rc ? NULL : cuda_scratch(q, SCRATCH_RESULT, kv->heads * n * 4);
	const void *const *list = result ? cuda_upload_list(q, at, 2 * kv->heads * (int64_t)sizeof *at) : NULL;
	free(at);
	if (!list)
		return -1;
	struct utility_job job = {
		.k = list,
		.heads = kv->heads,
		.d = kv->head_dim,
		.hid = net->hid,
		.net0 = net_layer * kv->heads,
		.key = net->key,
		.value = net->value,
		.bf16 = q->d->bf16,
		.n = n,
		.turns = turns ? turns->x : NULL,
		.mean = net->mean->x,
		.w1 = net->w1->x,
		.b1 = net->b1->x,
		.w2 = net->w2->x,
		.b2 = net->b2->x,
		.out = result,
	};
	if (cuda_check(q->d, kernel_utilities(s, job), "op_utilities") || cuda_kv_ahead(q, kv, layer) ||
		cuda_check(q->d, cudaMemcpyAsync(out, result, (size_t)(kv->heads * n) * 4, cudaMemcpyDeviceToHost, s), "op_utilities"))
		return -1;
	return cuda_queue_sync(q);
}

int cuda_steps(struct queue *q, struct tensor *x, int64_t cols, const struct tensor *params, const struct step *steps, int n)
{
	int rc = cuda_use(q->d);
	for (int i = 0; i < n && !rc; i++) {
		struct step_job job = {.x = x->x, .ld = x->cols, .cols = cols, .params = params->x, .step = steps[i]};
		rc = cuda_check(q->d, kernel_step(cuda_queue(q)->stream, job), "op_steps");
	}
	return rc;
}
