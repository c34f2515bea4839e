/* The operations on rows, copies, argmax, moments, and the memory of caches and views. */
#include "tests/unit/device/fixture.h"

static const int64_t ROWS[] = {1, 2, 5, 13};
static const char *const ALL[] = {"reference", "avx2", "avx512", "avx512bf16", "amx"};
enum { N_ALL = 5 };

static void test_rmsnorm_and_head_norm(void **state)
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
				int64_t n = widths[w], rows = ROWS[r],
					cols = 3 * n + 7; /* heads 1 and 2 of three from column 3 */
				float *x = values(1, rows * cols, 3), *g = values(2, n, 2);
				struct tensor *xt = tensor_of(q, x, rows, cols), *gt = tensor_of(q, g, 1, n),
					      *out = tensor_of(q, x, rows, cols);
				assert_int_equal(op_rmsnorm(q, out, xt, gt, 1e-5f, rows), 0);
				assert_int_equal(op_head_norm(q, xt, 3 + n, 2, (int)n, gt, 1e-5f, rows), 0);
				float *a = host_of(q, out), *b = host_of(q, xt);
				for (int64_t j = 0; j < rows; j++)
					for (int64_t c = 0; c < cols; c++) {
						int64_t first = c < 3 + n ? 0 : c < 3 + 2 * n ? 3 + n : 3 + 2 * n;
						double sum = 0, head = 0;
						for (int64_t k = 0; k < n; k++) {
							sum += (double)x[j * cols + k] * x[j * cols + k];
							head += (double)x[j * cols + first + k] * x[j * cols + first + k];
						}
						float v = x[j * cols + c];
						float want = c < n ? (float)(v / sqrt(sum / (double)n + 1e-5) * g[c])
								   : v; /* columns behind w stay */
						bool in_heads = c >= 3 + n && c < 3 + 3 * n;
						float want_head =
							in_heads ? (float)(v / sqrt(head / (double)n + 1e-5) * g[c - first]) : v;
						assert_close("rmsnorm", &a[j * cols + c], &want, 1, 1e-6); /* observed 3e-7 */
						assert_close("head norm", &b[j * cols + c], &want_head, 1, 1e-6);
					}
				free(x), free(g), free(a), free(b);
				tensor_free(xt), tensor_free(gt), tensor_free(out);
			}
		queue_free(q);
		device_close(d);
	}
}

static void test_rope(void **state)
{
	(void)state;
	static const int dims[] = {16, 32, 64, 80, 128, 20};
	static const int64_t positions[] = {0, 1, 7, 1000, 170001};
	enum { N = 5, HEADS = 3, COL0 = 2 };
	for (int i = 0; i < N_ALL; i++) {
		struct device *d = open_device(ALL[i], "fp32", 2);
		if (!d)
			continue;
		struct queue *q = queue_new(d);
		for (int m = 0; m < 6; m++) {
			int dim = dims[m];
			double inv_freq[64], mscale = 1.25;
			for (int t = 0; t < dim / 2; t++)
				inv_freq[t] = pow(10000, -2.0 * t / dim);
			int64_t cols = COL0 + HEADS * dim + 1;
			float *x = values(3, N * cols, 2);
			struct tensor *xt = tensor_of(q, x, N, cols), *cs = tensor_of(q, NULL, N, dim);
			assert_int_equal(op_rope_table(q, cs, positions, inv_freq, mscale, dim, N), 0);
			assert_int_equal(op_rope(q, xt, COL0, HEADS, dim, cs, N), 0);
			float *got = host_of(q, xt), *want = mem_new((size_t)(N * cols), sizeof *want);
			memcpy(want, x, (size_t)(N * cols) * sizeof *x);
			for (int r = 0; r < N; r++)
				for (int h = 0; h < HEADS; h++)
					for (int t = 0; t < dim / 2; t++) {
						float angle = (float)positions[r] * (float)inv_freq[t];
						int64_t a = r * cols + COL0 + h * dim + t, b = a + dim / 2;
						double c = cos(angle) * mscale, s = sin(angle) * mscale;
						want[a] = (float)(x[a] * c - x[b] * s);
						want[b] = (float)(x[b] * c + x[a] * s);
					}
			assert_close("rope", got, want, N * cols, 1e-6); /* observed 3e-7 */
			free(x), free(got), free(want);
			tensor_free(xt), tensor_free(cs);
		}
		queue_free(q);
		device_close(d);
	}
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
		cmocka_unit_test(test_rmsnorm_and_head_norm),
		cmocka_unit_test(test_rope),
		cmocka_unit_test(test_linear_swiglu),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_argmax),
		cmocka_unit_test(test_argmax_long),
		cmocka_unit_test(test_moments),
		cmocka_unit_test(test_kv_and_views),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
