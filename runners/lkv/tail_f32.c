/* tail_f32.c: tail.h in fp32, over the loops of dense.h: what training runs. */
#include "runners/lkv/dense.h"

#define KVB_REAL float
#define T(name) name##_f

static void product(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b, int64_t ldb,
	float *c, int64_t ldc, bool add)
{
	dense_kernels()->product(m, n, k, a, a_row, a_col, b, ldb, c, ldc, add);
}
static float exp_sum(float *x, int64_t n, float top)
{
	return dense_kernels()->exp_sum(x, n, top);
}
static void silu_row(const float *h, int64_t n, float *s, float *ds)
{
	dense_kernels()->silu(h, n, s, ds);
}

#include "runners/lkv/tail_body.h"
