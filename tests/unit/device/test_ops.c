/* The operations on rows, copies, argmax, moments, and the memory of caches and views. */
#include "tests/unit/device/fixture.h"

static const int64_t ROWS[] = {1, 2, 5, 13};
static const char *const ALL[] = {"reference", "avx2", "avx512", "avx512bf16", "amx"};
enum { N_ALL = 5 };

static void test_rmsnorm(void **state)
{
	(void)state;
	static const int64_t widths[] = {16, 64, 80, 100, 896};
	for (int i = 0; i < N_ALL; i++) {
		struct device *d = open_device(ALL[i], "fp32", 2);
		if (!d)
			continue;
		struct queue *q = queue_new(d);
		for (int w = 0; w < 5; w++)
			for (int r = 0; r < 4; r++) {
				int64_t n = widths[w], rows = ROWS[r], cols = n + 7;
				float *x = values(1, rows * cols, 3), *g = values(2, n, 2), *want = mem_new((size_t)(rows * cols), sizeof *want);
				struct tensor *xt = tensor_of(q, x, rows, cols), *gt = tensor_of(q, g, 1, n), *out = tensor_of(q, x, rows, cols);
				assert_int_equal(op_rmsnorm(q, out, xt, gt, 1e-5f, rows), 0);
				float *got = host_of(q, out);
				for (int64_t j = 0; j < rows; j++) {
					double sum = 0;
					for (int64_t c = 0; c < n; c++)
						sum += (double)x[j * cols + c] * x[j * cols + c];
					for (int64_t c = 0; c < cols; c++) { /* columns behind w stay */
						float v = x[j * cols + c];
						want[j * cols + c] = c < n ? (float)(v / sqrt(sum / (double)n + 1e-5) * g[c]) : v;
					}
				}
				assert_close("rmsnorm", got, want, rows * cols, 1e-6); /* observed 3e-7 */
				free(x), free(g), free(got), free(want);
				tensor_free(xt), tensor_free(gt), tensor_free(out);
			}
		queue_free(q);
		device_close(d);
	}
}

/* ---- heads of q and k behind their projection ---- */

enum { Q_HEADS = 6, K_HEADS = 2 };
static const double MSCALE = 1.25;
struct heads_case {
	int d, q_heads; /* q_heads 0: k alone, with the rest of q's last panel before it */
	bool norm, bias, pre;
	int64_t rows;
};

/* y [rows][cols]: the plain layer's result; becomes what op_linear_qkv promises, in double. pre takes q. */
static void heads_by_hand(const struct heads_case *c, int64_t cols, int64_t col, const float *norm[2], const double *inv_freq, const int64_t *pos, float *y,
	float *pre)
{
	int half = c->d / 2;
	for (int64_t r = 0; r < c->rows; r++)
		for (int h = 0; h < c->q_heads + K_HEADS; h++) {
			float *x = y + r * cols + col + h * c->d;
			const float *w = norm[h >= c->q_heads];
			double sum = 0, v[256];
			for (int t = 0; t < c->d; t++)
				sum += (double)x[t] * x[t];
			for (int t = 0; t < c->d; t++) {
				v[t] = c->norm ? x[t] / sqrt(sum / c->d + 1e-5) * w[t] : x[t];
				if (h < c->q_heads)
					pre[(r * c->q_heads + h) * c->d + t] = (float)v[t];
			}
			for (int t = 0; t < half; t++) {
				float angle = (float)pos[r] * (float)inv_freq[t];
				double cosine = cos(angle) * MSCALE, sine = sin(angle) * MSCALE;
				x[t] = (float)(v[t] * cosine - v[half + t] * sine);
				x[half + t] = (float)(v[half + t] * cosine + v[t] * sine);
			}
		}
}

static void check_heads(struct device *dev, const struct heads_case *c)
{
	enum { K = 40 };
	struct queue *q = queue_new(dev);
	int64_t hd = (int64_t)Q_HEADS * c->d, n = hd + 2 * K_HEADS * c->d, col0 = c->q_heads ? 0 : hd / 32 * 32, cols = n - col0;
	float *x = values(1, c->rows * K, 1), *w = values(2, n * K, .5f), *bias = values(3, n, 1), *qn = values(4, c->d, 2), *kn = values(5, c->d, 2);
	int64_t *pos = mem_new((size_t)c->rows, sizeof *pos);
	double inv_freq[128];
	for (int t = 0; t < c->d / 2; t++)
		inv_freq[t] = pow(10000, -2.0 * t / c->d);
	for (int64_t r = 0; r < c->rows; r++)
		pos[r] = r % 5 == 4 ? 170001 - r : 7 * r;
	struct weight *weight = weight_of(dev, w, n, K);
	struct tensor *xt = tensor_of(q, x, c->rows, K), *bt = tensor_of(q, bias, 1, n), *plain = tensor_of(q, NULL, c->rows, cols),
		      *out = tensor_of(q, NULL, c->rows, cols), *cs = tensor_of(q, NULL, c->rows, c->d), *qt = tensor_of(q, qn, 1, c->d),
		      *kt = tensor_of(q, kn, 1, c->d), *pre = c->pre && c->q_heads ? tensor_of(q, NULL, c->rows, c->q_heads * c->d) : NULL;
	struct head_epilogue e = {.col = c->q_heads ? 0 : hd - col0, .q_heads = c->q_heads, .k_heads = K_HEADS, .d = c->d, .q_norm = c->norm ? qt : NULL,
		.k_norm = c->norm ? kt : NULL, .eps = 1e-5f, .cs = cs, .q_pre = pre};
	assert_int_equal(op_rope_table(q, cs, pos, inv_freq, MSCALE, c->d, c->rows), 0);
	assert_int_equal(op_linear(q, plain, xt, weight, c->bias ? bt : NULL, col0, cols, false, c->rows), 0);
	assert_int_equal(op_linear_qkv(q, out, xt, weight, c->bias ? bt : NULL, col0, cols, &e, c->rows), 0);
	float *want = host_of(q, plain), *got = host_of(q, out), *want_pre = mem_new((size_t)(c->rows * hd), sizeof *want_pre);
	heads_by_hand(c, cols, e.col, (const float *[]){qn, kn}, inv_freq, pos, want, want_pre);
	assert_close("heads", got, want, c->rows * cols, 2e-6); /* observed 6e-7 */
	if (pre) {
		float *got_pre = host_of(q, pre);
		assert_close("q before it is turned", got_pre, want_pre, c->rows * c->q_heads * c->d, 2e-6);
		free(got_pre);
	}
	free(x), free(w), free(bias), free(qn), free(kn), free(pos), free(want), free(got), free(want_pre);
	tensor_free(xt), tensor_free(bt), tensor_free(plain), tensor_free(out), tensor_free(cs), tensor_free(qt), tensor_free(kt), tensor_free(pre);
	weight_free(weight);
	queue_free(q);
}

static void test_heads(void **state)
{
	(void)state;
	static const int dims[] = {16, 32, 64, 96, 128, 20, 80, 256};
	static const int64_t rows[] = {1, 5, 33, 200, 500};
	for (int i = 0; i < N_ALL; i++)
		for (int p = 0; p < 2; p++) {
			struct device *d = open_device(ALL[i], PRECISIONS[p], 2);
			for (int n = 0; d && n < 8 * 5; n += every(3))
				check_heads(d, &(struct heads_case){.d = dims[n / 5], .q_heads = n % 3 == 1 ? 0 : Q_HEADS, .norm = n % 2, .bias = n % 4 < 2,
						       .pre = n % 7 < 4, .rows = rows[n % 5]});
			device_close(d);
		}
}

/* Arguments that do not fit are refused, and nothing is written. */
static void test_heads_refused(void **state)
{
	(void)state;
	enum { D = 32, N = 3 * D, K = 8, R = 4 };
	struct device *dev = open_device("reference", "fp32", 1);
	struct queue *q = queue_new(dev);
	float *w = values(1, N * K, 1);
	struct weight *weight = weight_of(dev, w, N, K);
	struct tensor *x = tensor_of(q, w, R, K), *out = tensor_of(q, NULL, R, N), *cs = tensor_of(q, NULL, R, D), *few = tensor_of(q, NULL, R - 1, D),
		      *narrow = tensor_of(q, NULL, R, D - 1);
	const struct head_epilogue good = {.q_heads = 1, .k_heads = 1, .d = D, .cs = cs, .eps = 1e-5f};
	struct head_epilogue bad[8];
	for (int i = 0; i < 8; i++)
		bad[i] = good;
	bad[0].col = D + 1, bad[1].d = D + 2, bad[2].cs = few, bad[3].q_pre = narrow, bad[4].q_norm = narrow, bad[5].k_norm = narrow;
	bad[6].q_heads = -1, bad[7].col = -1;
	assert_int_equal(tensor_fill(q, cs, 1), 0);
	assert_int_equal(tensor_fill(q, out, 5), 0);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(op_linear_qkv(q, out, x, weight, NULL, 0, N, &bad[i], R), -1);
		assert_non_null(strstr(device_error(dev), "op_linear_qkv"));
	}
	float *y = host_of(q, out);
	for (int i = 0; i < R * N; i++)
		assert_true(y[i] == 5);
	assert_int_equal(op_linear_qkv(q, out, x, weight, NULL, 0, N, &good, R), 0);
	free(w), free(y);
	tensor_free(x), tensor_free(out), tensor_free(cs), tensor_free(few), tensor_free(narrow);
	weight_free(weight);
	queue_free(q);
	device_close(dev);
}

/* silu(gate) up of one layer, from plain rows and as operands, against double; then through a second layer. */
static void test_linear_swiglu(void **state)
{
	(void)state;
	enum { K = 70, F = 48, D = 40 };
	static const int64_t rows[] = {1, 16, 17, 45, 200};
	float *w = values(4, 2 * F * K, 0.2f), *down = values(5, D * F, 1), *one = values(6, K, 1);
	for (int k = 0; k < K; k++)
		one[k] = 1;
	for (int n = 0; n < 5; n++)
		for (int p = 0; p < 2; p++)
			for (int i = 0; i < N_ALL; i++) {
				struct device *d = open_device(ALL[i], PRECISIONS[p], 2);
				if (!d)
					continue;
				struct queue *q = queue_new(d);
				int64_t r = rows[n];
				float *x = values(7, r * K, 1);
				struct tensor *xt = tensor_of(q, x, r, K), *ones = tensor_of(q, one, 1, K), *operand = operand_new(d, r, K);
				struct tensor *act = operand_new(d, r, F), *out = tensor_of(q, NULL, r, D);
				struct weight *gate_up = weight_of(d, w, 2 * F, K), *w_down = weight_of(d, down, D, F);
				assert_int_equal(op_rmsnorm(q, operand, xt, ones, 1e-6f, r), 0);
				assert_int_equal(op_linear_swiglu(q, act, operand, gate_up, r), 0);
				assert_int_equal(op_linear(q, out, act, w_down, NULL, 0, D, false, r), 0);
				float *got = host_of(q, out), *exact = mem_new((size_t)(r * D), 4);
				for (int64_t j = 0; j < r; j++) {
					double square = 0, y[2 * F] = {0}, a[F];
					for (int k = 0; k < K; k++)
						square += (double)x[j * K + k] * x[j * K + k];
					for (int f = 0; f < 2 * F; f++)
						for (int k = 0; k < K; k++)
							y[f] += x[j * K + k] / sqrt(square / K + 1e-6) * w[f * K + k];
					for (int f = 0; f < F; f++) {
						double g = y[f / 16 * 32 + f % 16];
						a[f] = g / (1 + exp(-g)) * y[f / 16 * 32 + f % 16 + 16];
					}
					for (int c = 0; c < D; c++) {
						double sum = 0;
						for (int f = 0; f < F; f++)
							sum += a[f] * down[c * F + f];
						exact[j * D + c] = (float)sum;
					}
				}
				assert_close(ALL[i], got, exact, r * D, p ? 0.06 : 1e-5); /* observed 0.03, 4e-7; bf16: two layers of terms rounded by 2^-9 */
				free(x), free(got), free(exact);
				tensor_free(xt), tensor_free(ones), tensor_free(operand), tensor_free(act), tensor_free(out);
				weight_free(gate_up), weight_free(w_down);
				queue_free(q);
				device_close(d);
			}
	free(w), free(down), free(one);
}

static void test_copies(void **state)
{
	(void)state;
	struct device *d = open_device("reference", "fp32", 1);
	struct queue *q = queue_new(d);
	float *x = values(5, 6 * 7, 1);
	struct tensor *xt = tensor_of(q, x, 6, 7), *out = tensor_of(q, NULL, 5, 9);
	assert_int_equal(tensor_fill(q, out, -3), 0);
	assert_int_equal(op_copy(q, out, 1, 2, xt, 3, 1, 2, 5), 0);
	float *y = host_of(q, out);
	for (int r = 0; r < 5; r++)
		for (int c = 0; c < 9; c++) {
			bool in = r >= 1 && r < 3 && c >= 2 && c < 7;
			assert_true(y[r * 9 + c] == (in ? x[(r + 2) * 7 + c - 1] : -3));
		}
	free(y);
	assert_int_equal(op_gather_rows(q, out, xt, (int32_t[]){5, 0, 5}, 3), 0);
	y = host_of(q, out);
	assert_same_bits("gather", y, x + 35, 7);
	assert_same_bits("gather", y + 9, x, 7);
	assert_same_bits("gather", y + 18, x + 35, 7);
	assert_int_equal(op_gather_rows(q, out, xt, (int32_t[]){6}, 1), -1);
	assert_int_equal(op_copy(q, out, 4, 0, xt, 0, 0, 2, 1), -1);
	assert_int_equal(op_copy(q, out, 0, 5, xt, 0, 0, 1, 5), -1);
	free(x), free(y);
	tensor_free(xt), tensor_free(out);
	queue_free(q);
	device_close(d);
}

static void test_argmax(void **state)
{
	(void)state;
	enum { COLS = 300, N = 6 };
	struct device *d = open_device("reference", "fp32", 2);
	struct queue *q = queue_new(d);
	float *x = values(6, N * (COLS + 1), 1);
	for (int r = 0; r < N; r++)
		x[r * (COLS + 1) + COLS] = 9;                     /* not among the columns asked about */
	x[0 * (COLS + 1) + 299] = 2;                              /* last */
	x[1 * (COLS + 1) + 40] = x[1 * (COLS + 1) + 41] = 2;      /* a tie: the lowest */
	x[2 * (COLS + 1) + 0] = 5, x[2 * (COLS + 1) + 250] = NAN; /* NaN anywhere */
	x[3 * (COLS + 1) + 0] = NAN;
	for (int c = 0; c < COLS; c++)
		x[4 * (COLS + 1) + c] = -INFINITY; /* all equal */
	x[5 * (COLS + 1) + 7] = INFINITY;
	struct tensor *t = tensor_of(q, x, N, COLS + 1);
	int32_t got[N], want[N] = {299, 40, -1, -1, 0, 7};
	assert_int_equal(op_argmax(q, t, COLS, N, got), 0);
	assert_memory_equal(got, want, sizeof want);
	free(x);
	tensor_free(t);
	queue_free(q);
	device_close(d);
}

/* Rows longer than the chunks they are cut into: ties across chunks, NaN in any chunk, for any number of threads. */
static void test_argmax_long(void **state)
{
	(void)state;
	enum { COLS = 50000, N = 5 };
	float *x = values(8, (int64_t)N * COLS, 1);
	int32_t got[N], want[N] = {49999, 8191, 100, -1, -1};
	x[0 * COLS + 49999] = 2;
	x[1 * COLS + 8191] = x[1 * COLS + 8192] = x[1 * COLS + 40000] = 2;
	x[2 * COLS + 100] = x[2 * COLS + 20000] = 2;
	x[3 * COLS + 0] = 5, x[3 * COLS + 49999] = NAN;
	x[4 * COLS + 0] = NAN, x[4 * COLS + 30000] = 5;
	for (int threads = 1; threads <= 3; threads++) {
		struct device *d = open_device("reference", "fp32", threads);
		struct queue *q = queue_new(d);
		struct tensor *t = tensor_of(q, x, N, COLS);
		assert_int_equal(op_argmax(q, t, COLS, N, got), 0);
		assert_memory_equal(got, want, sizeof want);
		tensor_free(t);
		queue_free(q);
		device_close(d);
	}
	free(x);
}

static void test_moments(void **state)
{
	(void)state;
	enum { HEADS = 3, D = 20, N = 13, COL0 = 4, COLS = COL0 + HEADS * D + 2 };
	double want_sum[HEADS * D], want_outer[HEADS * D * D], sum[HEADS * D], outer[HEADS * D * D];
	float *x = values(7, (N + 2) * COLS, 2);
	for (int i = 0; i < HEADS * D; i++)
		want_sum[i] = sum[i] = i;
	for (int i = 0; i < HEADS * D * D; i++)
		want_outer[i] = outer[i] = (i / D % D) * (i % D); /* symmetric, as any sum of outer products */
	for (int r = 2; r < N + 2; r++)
		for (int h = 0; h < HEADS; h++)
			for (int i = 0; i < D; i++) {
				const float *row = x + r * COLS + COL0 + h * D;
				want_sum[h * D + i] += row[i];
				for (int j = 0; j < D; j++)
					want_outer[(h * D + i) * D + j] += (double)row[i] * row[j];
			}
	for (int threads = 1; threads <= 2; threads++) {
		double s[HEADS * D], o[HEADS * D * D];
		memcpy(s, sum, sizeof s), memcpy(o, outer, sizeof o);
		struct device *d = open_device("reference", "bf16", threads);
		struct queue *q = queue_new(d);
		struct tensor *t = tensor_of(q, x, N + 2, COLS);
		assert_int_equal(op_moments(q, t, 2, N, COL0, HEADS, D, s, o), 0);
		assert_memory_equal(s, want_sum, sizeof s);
		assert_memory_equal(o, want_outer, sizeof o);
		tensor_free(t);
		queue_free(q);
		device_close(d);
	}
	free(x);
}

static void test_kv_and_views(void **state)
{
	(void)state;
	enum { L = 2, H = 2, D = 16 };
	for (int p = 0; p < 2; p++) {
		struct device *d = open_device("reference", PRECISIONS[p], 2);
		struct queue *q = queue_new(d);
		int64_t start = device_bytes(d);
		int64_t cap[L * H] = {9, 9, 12, 3};
		struct kv *kv = kv_new(d, L, H, D, cap);
		assert_true(device_bytes(d) - start >= kv_bytes_for(d, D, 33) &&
			    device_bytes(d) - start < kv_bytes_for(d, D, 33) + 128);
		float *k = values(8, 9 * D, 1), *v = values(9, 9 * D, 1), a[9 * D], b[9 * D];
		assert_int_equal(kv_write(q, kv, 1, 0, 9, k, v), 0);
		assert_int_equal(kv_write(q, kv, 1, 1, 4, k, v), -1); /* beyond its capacity */
		assert_int_equal(kv_len(kv, 1, 0), 9);
		assert_int_equal(kv_len(kv, 1, 1), 0);
		assert_int_equal(kv_bytes(kv), kv_bytes_for(d, D, 9));
		assert_int_equal(kv_read(q, kv, 1, 0, 2, 7, a, b), 0);
		assert_close("keys", a, k + 2 * D, 7 * D, p ? 1.0 / 256 : 0);
		assert_close("values", b, v + 2 * D, 7 * D, p ? 1.0 / 256 : 0);
		assert_int_equal(kv_read(q, kv, 1, 0, 3, 7, a, NULL), -1);

		const int32_t some[] = {0, 3, 8}, *index[L * H] = {NULL, NULL, some, NULL};
		struct kept *kept = kept_new(d, L, H, (int32_t[]){0, 0, 3, 0}, index);
		assert_int_equal(kept_len(kept, 1, 0), 3);
		struct kv *small = kv_new(d, L, H, D, (int64_t[]){0, 0, 3, 0});
		assert_int_equal(kv_gather(q, small, kv, kept, 1), 0);
		assert_int_equal(kv_len(small, 1, 0), 3);
		float c[3 * D], e[3 * D];
		assert_int_equal(kv_read(q, small, 1, 0, 0, 3, c, e), 0);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(kv_read(q, kv, 1, 0, some[i], 1, a, b), 0);
			assert_same_bits("gathered keys", c + i * D, a, D);
			assert_same_bits("gathered values", e + i * D, b, D);
		}
		kv_truncate(kv, 8); /* the view now names a row that is gone */
		assert_int_equal(kv_len(kv, 1, 0), 8);
		assert_int_equal(kv_gather(q, small, kv, kept, 1), -1);
		free(k), free(v);
		kept_free(kept);
		kv_free(small);
		kv_free(kv);
		assert_int_equal(device_bytes(d), start);
		queue_free(q);
		device_close(d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rmsnorm),
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_heads_refused),
		cmocka_unit_test(test_linear_swiglu),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_argmax),
		cmocka_unit_test(test_argmax_long),
		cmocka_unit_test(test_moments),
		cmocka_unit_test(test_kv_and_views),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
