/* tensor.c: fp32 matrices of activations, and the copies between them. */
#include "runners/device/cpu/cpu.h"

#include <stdlib.h>

struct tensor *tensor_new(struct device *d, int64_t rows, int64_t cols)
{
	float *x = device_alloc(d, rows * cols * 4);
	if (!x)
		return NULL;
	struct tensor *t = mem_new(1, sizeof *t);
	*t = (struct tensor){d, rows, cols, x};
	return t;
}

void tensor_free(struct tensor *t)
{
	if (!t)
		return;
	device_free(t->d, t->x, t->rows * t->cols * 4);
	free(t);
}

int64_t tensor_rows(const struct tensor *t)
{
	return t->rows;
}
int64_t tensor_cols(const struct tensor *t)
{
	return t->cols;
}

static bool has_rows(const struct tensor *t, int64_t row0, int64_t rows)
{
	return row0 >= 0 && rows >= 0 && row0 <= t->rows - rows;
}
static bool has_cols(const struct tensor *t, int64_t col0, int64_t cols)
{
	return col0 >= 0 && cols >= 0 && col0 <= t->cols - cols;
}

int tensor_write(struct queue *q, struct tensor *t, int64_t row0, int64_t rows, const float *host)
{
	if (!has_rows(t, row0, rows))
		return device_fail(
			q->d, "tensor_write: rows [%lld, +%lld) of %lld", (long long)row0, (long long)rows, (long long)t->rows);
	memcpy(t->x + row0 * t->cols, host, (size_t)(rows * t->cols) * 4);
	return 0;
}

int tensor_read(struct queue *q, const struct tensor *t, int64_t row0, int64_t rows, float *host)
{
	if (!has_rows(t, row0, rows))
		return device_fail(
			q->d, "tensor_read: rows [%lld, +%lld) of %lld", (long long)row0, (long long)rows, (long long)t->rows);
	memcpy(host, t->x + row0 * t->cols, (size_t)(rows * t->cols) * 4);
	return 0;
}

int tensor_fill(struct queue *q, struct tensor *t, float value)
{
	(void)q;
	for (int64_t i = 0; i < t->rows * t->cols; i++)
		t->x[i] = value;
	return 0;
}

int op_copy(struct queue *q, struct tensor *out, int64_t out_row, int64_t out_col, const struct tensor *x, int64_t row,
	int64_t col, int64_t rows, int64_t cols)
{
	if (!has_rows(out, out_row, rows) || !has_rows(x, row, rows) || !has_cols(out, out_col, cols) || !has_cols(x, col, cols))
		return device_fail(q->d, "op_copy: %lld x %lld elements do not fit", (long long)rows, (long long)cols);
	int64_t begin = profile_begin(q->d);
	for (int64_t r = 0; r < rows; r++)
		memmove(out->x + (out_row + r) * out->cols + out_col, x->x + (row + r) * x->cols + col, (size_t)cols * 4);
	profile_end(q->d, PROFILE_COPY, begin, 0, 8.0 * (double)rows * (double)cols);
	return 0;
}

int op_gather_rows(struct queue *q, struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n)
{
	if (!has_rows(out, 0, n) || out->cols < x->cols)
		return device_fail(q->d, "op_gather_rows: %lld rows of %lld do not fit", (long long)n, (long long)x->cols);
	int64_t begin = profile_begin(q->d);
	for (int64_t i = 0; i < n; i++) {
		if (!has_rows(x, rows[i], 1))
			return device_fail(q->d, "op_gather_rows: row %d of %lld", rows[i], (long long)x->rows);
		memcpy(out->x + i * out->cols, x->x + rows[i] * x->cols, (size_t)x->cols * 4);
	}
	profile_end(q->d, PROFILE_COPY, begin, 0, 8.0 * (double)n * (double)x->cols);
	return 0;
}
