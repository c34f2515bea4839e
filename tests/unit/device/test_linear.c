/* Linear layers and the embedding: fast paths against the reference and against double; bits for any number of rows and threads.
 */
#include "tests/unit/device/fixture.h"

struct layer {
	int64_t rows, k, n, col0, cols;
	const float *x, *w, *bias, *before; /* before: out [rows, cols] when adding, or NULL */
};

/* One layer on one device; caller frees. */
static float *run_layer(struct device *d, const struct layer *l)
{
	struct queue *q = queue_new(d);
	struct weight *w = weight_of(d, l->w, l->n, l->k);
	struct tensor *x = tensor_of(q, l->x, l->rows, l->k), *bias = l->bias ? tensor_of(q, l->bias, 1, l->n) : NULL;
	struct tensor *out = tensor_of(q, l->before, l->rows, l->cols);
	assert_int_equal(op_linear(q, out, x, w, bias, l->col0, l->cols, l->before != NULL, l->rows), 0);
	float *y = host_of(q, out);
	tensor_free(out);
	tensor_free(x);
	tensor_free(bias);
	weight_free(w);
	queue_free(q);
	return y;
}

static float *run_on(const char *isa, const char *precision, int threads, const struct layer *l)
{
	struct device *d = open_device(isa, precision, threads);
	if (!d)
		return NULL;
	float *y = run_layer(d, l);
	device_close(d);
	return y;
}

static void test_paths_agree(void **state)
{
	(void)state;
	static const int64_t shapes[][5] = {/* rows, k, n, col0, cols */
		{1, 64, 32, 0, 32}, {1, 63, 37, 0, 37}, {2, 257, 96, 32, 64}, {5, 896, 100, 64, 36}, {13, 33, 33, 0, 33},
		{24, 576, 64, 0, 64}, {25, 520, 64, 0, 50}, {193, 300, 290, 32, 258}, {400, 1030, 70, 0, 70}};
	for (unsigned s = 0; s < sizeof shapes / sizeof *shapes; s++)
		for (int extras = (int)s % every(4); extras < 4; extras += every(4)) { /* bit 0: bias, bit 1: add */
			struct layer l = {shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], shapes[s][4]};
			float *x = values(1, l.rows * l.k, 1), *w = values(2, l.n * l.k, 1), *bias = values(3, l.n, 1),
			      *before = values(4, l.rows * l.cols, 1);
			l.x = x, l.w = w, l.bias = extras & 1 ? bias : NULL, l.before = extras & 2 ? before : NULL;
			for (int p = 0; p < 2; p++) {
				float *want = run_on("reference", PRECISIONS[p], 1, &l);
				for (int i = 0; i < N_FAST; i++) {
					float *got = run_on(FAST[i], PRECISIONS[p], 2, &l);
					/* observed: 2e-6 (different rounding of each step of a sum of 1030) */
					if (got)
						assert_close(FAST[i], got, want, l.rows * l.cols, 1e-5);
					free(got);
				}
				if (p == 0) /* the reference itself, against double */
					for (int64_t r = 0; r < l.rows; r += 7)
						for (int64_t c = 0; c < l.cols; c++) {
							double sum = (l.bias ? bias[l.col0 + c] : 0) +
								     (l.before ? before[r * l.cols + c] : 0);
							for (int64_t k = 0; k < l.k; k++)
								sum += (double)x[r * l.k + k] * w[(l.col0 + c) * l.k + k];
							float exact =
								(float)sum; /* observed 7e-6; a lost term would be about 0.3 */
							assert_close("reference", &want[r * l.cols + c], &exact, 1, 3e-5);
						}
				free(want);
			}
			free(x), free(w), free(bias), free(before);
		}
}

static void test_bits_of_a_row(void **state) /* one row alone = the same row among n, for any number of threads */
{
	(void)state;
	enum { ROWS = 512, K = 611, N = 130 };
	float *x = values(5, ROWS * K, 1), *w = values(6, N * K, 1);
	struct layer all = {ROWS, K, N, 0, N, x, w, NULL, NULL};
	for (int i = 0; i < N_FAST; i++)
		for (int p = 0; p < 2; p++) {
			float *want = run_on(FAST[i], PRECISIONS[p], 1, &all);
			if (!want)
				continue;
			static const int threads[] = {1, 2, 4};
			for (int t = 0; t < 3; t++) {
				struct device *d = open_device(FAST[i], PRECISIONS[p], threads[t]);
				for (int64_t rows = 1; rows <= 40; rows += every(6)) {
					struct layer some = all;
					some.rows = rows;
					some.x = x + (rows % 7) * K;
					float *got = run_layer(d, &some);
					assert_same_bits(FAST[i], got, want + (rows % 7) * N, rows * N);
					free(got);
				}
				float *got = run_layer(d, &all);
				assert_same_bits(FAST[i], got, want, ROWS * N);
				free(got);
				device_close(d);
			}
			free(want);
		}
	/* what the device holds for itself by now is what it announced */
	struct device *d = open_device("reference", "fp32", 2);
	free(run_layer(d, &all));
	assert_int_equal(device_bytes(d), device_scratch_bytes(d, K));
	device_close(d);
	free(x), free(w);
}

/* A row that is not a number stays alone: nothing of it gets into the padding of its neighbours' columns. */
static void test_rows_do_not_touch(void **state)
{
	(void)state;
	enum { ROWS = 35, K = 45, N = 40, LOST = 7 };
	float *x = values(9, ROWS * K, 1), *w = values(10, N * K, 1);
	for (int k = 0; k < K; k++)
		x[LOST * K + k] = NAN;
	for (int64_t rows = LOST + 3; rows <= ROWS; rows += ROWS - LOST - 3) { /* few and many */
		struct layer l = {rows, K, N, 0, N, x, w, NULL, NULL};
		for (int i = -1; i < N_FAST; i++)
			for (int p = 0; p < 2; p++) {
				float *y = run_on(i < 0 ? "reference" : FAST[i], PRECISIONS[p], 2, &l);
				for (int64_t j = 0; y && j < rows * N; j++)
					assert_true(isnan(y[j]) == (j / N == LOST));
				free(y);
			}
	}
	free(x), free(w);
}

static void test_embed(void **state)
{
	(void)state;
	enum { V = 77, K = 45 };
	float *w = values(7, V * K, 1);
	static const int32_t ids[] = {0, 76, 31, 32, 33, 76};
	for (int i = -1; i < N_FAST; i++)
		for (int p = 0; p < 2; p++) {
			struct device *d = open_device(i < 0 ? "reference" : FAST[i], PRECISIONS[p], 2);
			if (!d)
				continue;
			struct queue *q = queue_new(d);
			struct weight *t = weight_of(d, w, V, K);
			struct tensor *out = tensor_of(q, NULL, 6, K);
			assert_int_equal(op_embed(q, out, t, ids, 6), 0);
			float *y = host_of(q, out);
			for (int r = 0; r < 6; r++) /* bf16 has 8 bits of mantissa */
				assert_close("embedding", y + r * K, w + ids[r] * K, K, p ? 1.0 / 256 : 0);
			assert_int_equal(op_embed(q, out, t, &(int32_t){V}, 1), -1);
			free(y);
			tensor_free(out);
			weight_free(t);
			queue_free(q);
			device_close(d);
		}
	free(w);
}

static int bad_rows(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	(void)user, (void)n, (void)out;
	memset(out, 0, 4);
	return row0 == 64 ? err_set(err, "tensor is cut short") : 0;
}

static void test_failures(void **state)
{
	(void)state;
	char err[ERR_LEN];
	struct device *d = open_device("reference", "fp32", 2);
	int64_t before = device_bytes(d);
	assert_null(weight_new(d, 100, 4, bad_rows, NULL, err));
	assert_string_equal(err, "tensor is cut short");
	assert_int_equal(device_bytes(d), before);
	struct queue *q = queue_new(d);
	float *w = values(8, 64 * 4, 1);
	struct weight *t = weight_of(d, w, 64, 4);
	assert_int_equal(device_bytes(d) - before, weight_bytes(d, 64, 4));
	struct tensor *x = tensor_of(q, NULL, 2, 4), *out = tensor_of(q, NULL, 2, 64);
	assert_int_equal(op_linear(q, out, x, t, NULL, 0, 65, false, 2), -1);
	assert_int_equal(op_linear(q, out, x, t, NULL, 16, 32, false, 2), -1);
	assert_int_equal(op_linear(q, out, x, t, NULL, 0, 64, false, 3), -1);
	assert_true(strstr(device_error(d), "op_linear") != NULL);
	free(w);
	tensor_free(x);
	tensor_free(out);
	weight_free(t);
	queue_free(q);
	device_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths_agree),
		cmocka_unit_test(test_bits_of_a_row),
		cmocka_unit_test(test_rows_do_not_touch),
		cmocka_unit_test(test_embed),
		cmocka_unit_test(test_failures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
