/* test_device.c: golden numbers that need attention, through the device's own operations: keys are one-hot, so that a query of
 * sqrt(d) * log p has exactly the probabilities p. */
#include "tests/unit/methods/methods.h"

struct bench {
	struct device *d;
	struct queue *q;
	struct kv *kv;
	struct tensor *x, *lse;
	int heads;
};

static struct bench bench_open(int heads, int kv_heads, int64_t rows, int64_t queries, int d)
{
	struct bench b = {.heads = heads};
	char err[ERR_LEN];
	struct device_options o = {.name = "cpu", .precision = "fp32", .threads = 1};
	if (device_open(&b.d, &o, err))
		fail_msg("%s", err);
	int64_t cap[4] = {rows, rows, rows, rows};
	b.q = queue_new(b.d);
	b.kv = kv_new(b.d, 1, kv_heads, d, cap);
	b.x = tensor_new(b.d, queries, heads * d);
	b.lse = tensor_new(b.d, queries, heads);
	return b;
}

static void bench_close(struct bench *b)
{
	tensor_free(b->x);
	tensor_free(b->lse);
	kv_free(b->kv);
	queue_free(b->q);
	device_close(b->d);
}

static void one_hot_keys(struct bench *b, int head, int n)
{
	float k[8 * 8] = {0};
	for (int j = 0; j < n; j++)
		k[j * n + j] = 1;
	assert_int_equal(kv_write(b->q, b->kv, 0, head, n, k, k), 0);
}

/* Probabilities of query rows [rows][heads][n] -> x. */
static void queries_of(struct bench *b, const float *p, int rows, int n)
{
	float x[8 * 16];
	for (int i = 0; i < rows * b->heads * n; i++)
		x[i] = (float)(sqrt(n) * (p[i] > 0 ? log(p[i]) : -60));
	assert_int_equal(tensor_write(b->q, b->x, 0, rows, x), 0);
}

static void reduce(struct bench *b, const struct key_set *keys, int which, int64_t cols, int rows, enum attn_reduce how,
	enum attn_group group, int out_rows, float *out)
{
	struct tensor *t = tensor_new(b->d, out_rows, cols);
	assert_int_equal(tensor_fill(b->q, t, 0), 0);
	assert_int_equal(op_attn_lse(b->q, 0, keys, b->x, 0, rows, 0, b->heads, b->lse), 0);
	assert_int_equal(
		op_attn_reduce(b->q, 0, keys, which, 0, cols, b->x, 0, rows, 0, b->heads, b->lse, 0, how, group, t, 0), 0);
	assert_int_equal(tensor_read(b->q, t, 0, out_rows, out), 0);
	tensor_free(t);
}

static void h2o_1_column_sums(void **state)
{
	(void)state;
	const float rows[4][4] = {{1}, {.6f, .4f}, {.5f, .2f, .3f}, {.4f, .1f, .1f, .4f}};
	float out[4];
	struct bench b = bench_open(1, 1, 4, 4, 4);
	one_hot_keys(&b, 0, 4);
	queries_of(&b, rows[0], 4, 4);
	reduce(&b, &(struct key_set){{{b.kv, 0, 4}}, 1, true}, 0, 4, 4, REDUCE_SUM, GROUP_MEAN, 1, out);
	assert_close(out, (const double[]){2.5, .7, .4, .4}, 4, 1e-5);
	bench_close(&b);
}

static void tova_1_last_row(void **state)
{
	(void)state;
	const float rows[2][4] = {{.4f, .1f, .1f, .4f}, {.1f, .3f, .2f, .4f}};
	float out[4];
	struct bench b = bench_open(2, 1, 4, 1, 4);
	one_hot_keys(&b, 0, 4);
	queries_of(&b, rows[0], 1, 4);
	reduce(&b, &(struct key_set){{{b.kv, 0, 4}}, 1, true}, 0, 4, 1, REDUCE_SUM, GROUP_MEAN, 1, out);
	assert_close(out, (const double[]){.25, .2, .15, .4}, 4, 1e-5);
	bench_close(&b);
}

/* P6: causal inside the window, normalised over prefix and window: the sums are those of the rows as written. */
static void p6_snap_1_window_rows(void **state)
{
	(void)state;
	const float rows[2][2][8] = {
		{{.30f, .05f, .05f, .20f, .05f, .05f, .30f, 0}, {.10f, .30f, .05f, .05f, .05f, .05f, .40f, 0}},
		{{.10f, .05f, .05f, .40f, .05f, .05f, .10f, .20f}, {.10f, .40f, .05f, .05f, .05f, .05f, .10f, .20f}}};
	float out[16];
	struct bench b = bench_open(2, 1, 8, 2, 8);
	one_hot_keys(&b, 0, 8);
	queries_of(&b, rows[0][0], 2, 8);
	struct key_set keys = {{{b.kv, 0, 8}}, 1, true};
	reduce(&b, &keys, 0, 6, 2, REDUCE_SUM, GROUP_MEAN, 1, out);
	assert_close(out, (const double[]){.3, .4, .1, .35, .1, .1}, 6, 1e-5);
	reduce(&b, &keys, 0, 6, 2, REDUCE_SUM, GROUP_NONE, 2, out);
	assert_close(out, (const double[]){.4, .1, .1, .6, .1, .1, .2, .7, .1, .1, .1, .1}, 12, 1e-5);
	bench_close(&b);
}

static void p1_query_heads_read_their_own_kv_head(void **state)
{
	(void)state;
	enum { HEADS = 6, KV = 2, N = 4 };
	float k[N * N], p[HEADS * N], out[HEADS * N];
	struct bench b = bench_open(HEADS, KV, N, 1, N);
	for (int c = 0; c < KV; c++) { /* KV head c: key j is the unit vector (j + c) mod N */
		memset(k, 0, sizeof(k));
		for (int j = 0; j < N; j++)
			k[j * N + (j + c) % N] = 1;
		assert_int_equal(kv_write(b.q, b.kv, 0, c, N, k, k), 0);
	}
	for (int h = 0; h < HEADS; h++)
		for (int j = 0; j < N; j++)
			p[h * N + j] = j == 0 ? .97f : .01f; /* every head asks for channel 0 */
	queries_of(&b, p, 1, N);
	reduce(&b, &(struct key_set){{{b.kv, 0, N}}, 1, false}, 0, N, 1, REDUCE_SUM, GROUP_NONE, HEADS, out);
	for (int h = 0; h < HEADS; h++)
		for (int j = 0; j < N; j++)
			assert_true(fabs(out[h * N + j] - (j == (N - h / 3) % N ? .97 : .01)) < 1e-5);
	bench_close(&b);
}

/* KVZ-1; P30: the keys of another chunk lie between prefix and chunk in the cache, and X_b in its own; neither changes the
 * scores. */
static void p30_kvz_1_golden(void **state)
{
	(void)state;
	const float context[5][2] = {{1, 0}, {9, 9}, {9, -9}, {0, 1}, {1, 1}}, own[2][2] = {{0, 0}, {1, -1}};
	const float q[2][2][2] = {{{0, 2}, {1, 1}}, {{2, 0}, {-1, 0}}}; /* [t][head][d] */
	float out[4];
	struct bench b = bench_open(2, 1, 5, 2, 2);
	int64_t cap[1] = {2};
	struct kv *tail = kv_new(b.d, 1, 1, 2, cap);
	assert_int_equal(kv_write(b.q, b.kv, 0, 0, 5, context[0], context[0]), 0);
	assert_int_equal(kv_write(b.q, tail, 0, 0, 2, own[0], own[0]), 0);
	assert_int_equal(tensor_write(b.q, b.x, 0, 2, q[0][0]), 0);
	struct key_set keys = {{{b.kv, 0, 1}, {b.kv, 3, 2}, {tail, 0, 2}}, 3, true};
	reduce(&b, &keys, 1, 2, 2, REDUCE_MAX, GROUP_MAX, 1, out);
	assert_close(out, (const double[]){.402215, .448581}, 2, 1e-6);
	reduce(&b, &keys, 1, 2, 2, REDUCE_MAX, GROUP_NONE, 2, out);
	assert_close(out, (const double[]){.402215, .402215, .287422, .448581}, 4, 1e-6);
	reduce(&b, &keys, 0, 1, 2, REDUCE_MAX, GROUP_MAX, 1, out);
	assert_close(out, (const double[]){.286843}, 1, 1e-6);
	kv_free(tail);
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(h2o_1_column_sums), cmocka_unit_test(tova_1_last_row),
		cmocka_unit_test(p6_snap_1_window_rows), cmocka_unit_test(p1_query_heads_read_their_own_kv_head),
		cmocka_unit_test(p30_kvz_1_golden)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
