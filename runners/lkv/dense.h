/* dense.h: the few loops of LKV that need the vector units: small matrix products, rows of exponentials, the utilities of cached
 * entries. kernels/dense.c is compiled once for each instruction set and once without any; the table is chosen at run time.
 *
 * No threads, no allocation, no errors: callers cut the work into items for device_parallel. fp32 here; the double build of
 * tail_body.h has plain loops instead. An element's sum runs over k in ascending order, whatever the blocking. */
#ifndef KVB_LKV_DENSE_H
#define KVB_LKV_DENSE_H

#include <stdbool.h>
#include <stdint.h>

/* n cached entries of one KV head: out[i] = b2 + w2 . silu(b1 + W1 (x_i - mean)), x_i = [key before RoPE | value]. The deviation
 * is already divided out of W1; hid is padded to a multiple of 32 with zeros. */
struct utility_item {
	const float *k, *v; /* [n][d], k as cached (after RoPE); NULL = not an input */
	const float *cs; /* [n][d]: cos | sin of each entry's position, divided by mscale^2; NULL = the key is taken as it is */
	int64_t n;
	int d, hid;
	const float *mean;    /* [inputs], inputs = d for each of k and v that is there */
	const float *w1, *b1; /* [inputs][hid], [hid] */
	const float *w2;      /* [hid] */
	const uint16_t *
		tiles; /* W1 as bf16 for AMX: [hid/32][inputs/32, rounded up][2][16 pairs of inputs][16 units][2], zeros behind */
	float b2;
	float *out; /* [n] */
};

struct dense_kernels {
	const char *name;
	/* c[i ldc + j] = (add ? c : 0) + sum_k a[i a_row + k a_col] b[k ldb + j], i < m, j < n */
	void (*product)(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b,
		int64_t ldb, float *c, int64_t ldc, bool add);
	/* x[i] = e^(x[i] - top); returns their sum. Below -87 the result is 0 or next to it. */
	float (*exp_sum)(float *x, int64_t n, float top);
	/* s = silu(h), ds = d silu / d h; ds may be NULL */
	void (*silu)(const float *h, int64_t n, float *s, float *ds);
	void (*utilities)(const struct utility_item *u);
};
const struct dense_kernels *dense_kernels(void); /* the best this CPU has */
/* The table of a device's instruction set: with "amx", granted to the process when the device was opened, utilities multiply in
 * bf16. */
const struct dense_kernels *dense_kernels_for(const char *isa);
const struct dense_kernels *dense_kernels_at(int i); /* all it can run, NULL behind the last (tests) */

#endif
