/* fixture.h: what the device tests share: a device for each instruction set of this CPU, seeded values, comparison. */
#ifndef KVB_TEST_DEVICE_FIXTURE_H
#define KVB_TEST_DEVICE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runners/device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const FAST[] = {"avx2", "avx512", "avx512bf16", "amx"};
enum { N_FAST = 4, PRODUCTS = 2 }; /* from here on products of bf16: probabilities of attention are rounded to it, nothing for fp32 */
static const char *const PRECISIONS[] = {"fp32", "bf16"};

/* Sanitizers cost 10 to 30 times: every n-th case is enough for them. */
static inline int every(int n)
{
	return getenv("KVB_SANITIZED") ? n : 1;
}

/* NULL = this machine lacks the instruction set, or it has nothing for this precision (printed once a test). */
static inline struct device *open_device(const char *isa, const char *precision, int threads)
{
	struct device *d;
	char err[ERR_LEN];
	if (device_open(&d, &(struct device_options){.isa = isa, .precision = precision, .threads = threads}, err)) {
		print_message("[ SKIPPED  ] path %s: %s\n", isa, err);
		return NULL;
	}
	return d;
}

/* n values in (-scale, scale), the same for the same seed. */
static inline float *values(uint64_t seed, int64_t n, float scale)
{
	float *x = mem_new((size_t)(n ? n : 1), sizeof *x);
	struct rng r = rng_seed(seed, 0);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)(2 * rng_unit(&r) - 1) * scale;
	return x;
}

static inline struct tensor *tensor_of(struct queue *q, const float *x, int64_t rows, int64_t cols)
{
	struct tensor *t = tensor_new(queue_device(q), rows, cols);
	assert_non_null(t);
	if (x)
		assert_int_equal(tensor_write(q, t, 0, rows, x), 0);
	return t;
}
static inline float *host_of(struct queue *q, const struct tensor *t)
{
	float *x = mem_new((size_t)(tensor_rows(t) * tensor_cols(t)), sizeof *x);
	assert_int_equal(tensor_read(q, t, 0, tensor_rows(t), x), 0);
	return x;
}

struct matrix {
	const float *x;
	int64_t cols;
};
static inline int matrix_rows(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	const struct matrix *m = user;
	(void)err;
	memcpy(out, m->x + row0 * m->cols, (size_t)(n * m->cols) * sizeof *out);
	return 0;
}
static inline struct weight *weight_of(struct device *d, const float *x, int64_t n, int64_t k)
{
	char err[ERR_LEN] = "";
	struct weight *w = weight_new(d, n, k, matrix_rows, &(struct matrix){x, k}, err);
	if (!w)
		fail_msg("%s", err);
	return w;
}

/* Largest |a - b| / (1 + |b|); a NaN in either alone is infinite. */
static inline double difference(const float *a, const float *b, int64_t n)
{
	double worst = 0;
	for (int64_t i = 0; i < n; i++) {
		double e = isnan(a[i]) != isnan(b[i]) ? INFINITY
			   : a[i] == b[i]             ? 0
						      : fabs((double)a[i] - b[i]) / (1 + fabs((double)b[i]));
		if (e > worst)
			worst = e;
	}
	return worst;
}
static inline void assert_close(const char *what, const float *a, const float *b, int64_t n, double tolerance)
{
	double e = difference(a, b, n);
	if (!(e <= tolerance))
		fail_msg("%s: differs by %.3g, allowed %.3g", what, e, tolerance);
}
static inline void assert_same_bits(const char *what, const float *a, const float *b, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (memcmp(&a[i], &b[i], sizeof *a))
			fail_msg("%s: element %lld is %a, should be %a", what, (long long)i, (double)a[i], (double)b[i]);
}

#endif
