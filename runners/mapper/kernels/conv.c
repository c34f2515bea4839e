/* conv.c: convolution over positions (a linear layer is one with a single tap) and the gradient of its weights.
 *
 * Forward: a tile of TILE_ROWS output rows x TILE_VECS vectors of positions stays in registers while channels and taps go by.
 * Gradient: a tile of TILE_ROWS x TILE_ROWS weights, each a vector of partial sums over positions that is added up at the end. */
#include "runners/mapper/kernels/vec.h"

INLINE void conv_tile(const struct conv *a, int rows, int vecs, int taps, int64_t row, int64_t col)
{
	const real *w = a->w + row * a->w_ld, *in = a->in + col - taps / 2;
	real *out = a->out + row * a->out_ld + col;
	vr sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 4
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int j = 0; j < vecs; j++) {
			sum[i][j] = vr_set(a->bias ? a->bias[row + i] : 0);
			if (a->add)
				sum[i][j] += vr_load(out + i * a->out_ld + j * VL);
		}
	for (int c = 0; c < a->channels; c++, in += a->in_ld)
#pragma GCC unroll 3
		for (int k = 0; k < taps; k++, w++) {
			vr x[TILE_VECS];
#pragma GCC unroll 4
			for (int j = 0; j < vecs; j++)
				x[j] = vr_load(in + k + j * VL);
#pragma GCC unroll 4
			for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
				for (int j = 0; j < vecs; j++)
					sum[i][j] += w[i * a->w_ld] * x[j];
		}
#pragma GCC unroll 4
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int j = 0; j < vecs; j++)
			vr_store(out + i * a->out_ld + j * VL, sum[i][j]);
}

INLINE void conv_columns(const struct conv *a, int rows, int taps, int64_t row)
{
	int64_t t = 0;
	for (; t + TILE_VECS * VL <= a->cols; t += TILE_VECS * VL)
		conv_tile(a, rows, TILE_VECS, taps, row, t);
	for (; t < a->cols; t += VL)
		conv_tile(a, rows, 1, taps, row, t);
}

INLINE void conv_rows(const struct conv *a, int taps)
{
	int row = 0;
	for (; row + TILE_ROWS <= a->rows; row += TILE_ROWS)
		conv_columns(a, TILE_ROWS, taps, row);
	for (; row < a->rows; row++)
		conv_columns(a, 1, taps, row);
}

void KERNEL(conv)(const struct conv *a)
{
	if (a->taps == 1)
		conv_rows(a, 1);
	else if (a->taps == 3)
		conv_rows(a, 3);
	else
		conv_rows(a, a->taps);
}

/* Weights (row + i, weight + j): in rows are given by pointer, since channel and tap both move. */
INLINE void grad_tile(const struct conv_grad *a, int rows, int weights, int64_t row, int64_t weight)
{
	const real *d = a->d + row * a->d_ld, *in[TILE_ROWS];
	vr sum[TILE_ROWS][TILE_ROWS];
#pragma GCC unroll 4
	for (int j = 0; j < weights; j++) {
		in[j] = a->in + (weight + j) / a->taps * a->in_ld + (weight + j) % a->taps - a->taps / 2;
#pragma GCC unroll 4
		for (int i = 0; i < rows; i++)
			sum[i][j] = vr_set(0);
	}
	for (int64_t t = 0; t < a->cols; t += VL) {
		vr x[TILE_ROWS];
#pragma GCC unroll 4
		for (int j = 0; j < weights; j++)
			x[j] = vr_load(in[j] + t);
#pragma GCC unroll 4
		for (int i = 0; i < rows; i++) {
			vr g = vr_load(d + i * a->d_ld + t);
#pragma GCC unroll 4
			for (int j = 0; j < weights; j++)
				sum[i][j] += g * x[j];
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
		for (int j = 0; j < weights; j++)
			a->dw[(row + i) * a->dw_ld + weight + j] += vr_sum(sum[i][j]);
}

INLINE void grad_weights(const struct conv_grad *a, int rows, int64_t row)
{
	int64_t n = (int64_t)a->channels * a->taps, j = 0;
	for (; j + TILE_ROWS <= n; j += TILE_ROWS)
		grad_tile(a, rows, TILE_ROWS, row, j);
	for (; j < n; j++)
		grad_tile(a, rows, 1, row, j);
}

void KERNEL(conv_grad)(const struct conv_grad *a)
{
	int row = 0;
	for (; row + TILE_ROWS <= a->rows; row += TILE_ROWS)
		grad_weights(a, TILE_ROWS, row);
	for (; row < a->rows; row++)
		grad_weights(a, 1, row);
	for (row = 0; a->db && row < a->rows; row++) {
		vr sum = vr_set(0);
		for (int64_t t = 0; t < a->cols; t += VL)
			sum += vr_load(a->d + row * a->d_ld + t);
		a->db[row] += vr_sum(sum);
	}
}
