/* tensor.c: matrices of activations in plain memory, fp32 or operands: the copies in, out and between them. */
#include "runners/device/cpu/cpu.h"

int cpu_tensor_write(struct queue *q, struct tensor *t, int64_t row0, int64_t rows, const float *host)
{
	(void)q;
	memcpy(t->x + row0 * t->cols, host, (size_t)(rows * t->cols) * 4);
	return 0;
}

int cpu_tensor_read(struct queue *q, const struct tensor *t, int64_t row0, int64_t rows, float *host)
{
	(void)q;
	memcpy(host, t->x + row0 * t->cols, (size_t)(rows * t->cols) * 4);
	return 0;
}

int cpu_tensor_fill(struct queue *q, struct tensor *t, float value)
{
	(void)q;
	for (int64_t i = 0; i < t->rows * t->cols; i++)
		t->x[i] = value;
	return 0;
}

int cpu_copy(struct queue *q, struct tensor *out, int64_t out_row, int64_t out_col, const struct tensor *x, int64_t row,
	int64_t col, int64_t rows, int64_t cols)
{
	(void)q;
	for (int64_t r = 0; r < rows; r++)
		memmove(out->x + (out_row + r) * out->cols + out_col, x->x + (row + r) * x->cols + col, (size_t)cols * 4);
	return 0;
}

int64_t cpu_operand_bytes(const struct device *d, int64_t rows, int64_t cols)
{
	return cpu_has_blocks(d) ? round_up(rows, OPERAND_BLOCK) * round_up(cols, OPERAND_BLOCK) * 2 : rows * cols * 4;
}

int cpu_operand_clear(struct tensor *t)
{
	memset(t->x, 0, (size_t)cpu_operand_bytes(t->d, t->rows, t->cols));
	return 0;
}

static void gather_blocks(struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t *to = operand_row(out, i), *from = operand_row(x, rows[i]);
		for (int64_t b = 0; b < operand_blocks(x); b++)
			memcpy(to + b * OPERAND_BLOCK * OPERAND_BLOCK, from + b * OPERAND_BLOCK * OPERAND_BLOCK, OPERAND_BLOCK * 2);
	}
}

int cpu_gather_rows(struct queue *q, struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n)
{
	if (x->operand && cpu_has_blocks(q->d)) {
		gather_blocks(out, x, rows, n);
		return 0;
	}
	for (int64_t i = 0; i < n; i++)
		memcpy(out->x + i * out->cols, x->x + rows[i] * x->cols, (size_t)x->cols * 4);
	return 0;
}
