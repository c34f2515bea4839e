/* tail_f64.c: tail.h in double, over plain loops: the proof of the arithmetic that tests compare with PyTorch. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define KVB_REAL double
#define T(name) name##_d

static void product(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_col, const double *b, int64_t ldb,
	double *c, int64_t ldc, bool add)
{
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++) {
			double s = add ? c[i * ldc + j] : 0;
			for (int64_t t = 0; t < k; t++)
				s += a[i * a_row + t * a_col] * b[t * ldb + j];
			c[i * ldc + j] = s;
		}
}
static double exp_sum(double *x, int64_t n, double top)
{
	double s = 0;
	for (int64_t i = 0; i < n; i++)
		s += x[i] = exp(x[i] - top);
	return s;
}
static void silu_row(const double *h, int64_t n, double *s, double *ds)
{
	for (int64_t i = 0; i < n; i++) {
		double x = h[i], g = 1 / (1 + exp(-x));
		s[i] = x * g;
		if (ds)
			ds[i] = g * (1 + x * (1 - g));
	}
}

#include "runners/lkv/tail_body.h"
