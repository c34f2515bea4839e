/* Speed of the device on this machine: prints GFLOP/s as a share of the peak measured beside it. Asserts nothing about speed:
 * other work on the machine decides that. KVB_SPEED=1 runs it (tests/run.sh does not). Timed: the operation alone, best of the
 * rounds. */
#include "tests/unit/device/fixture.h"

static const double SECONDS = 0.4;

struct linear_run {
	struct queue *q;
	struct tensor *out, *x;
	struct weight *w;
	int64_t rows, n;
};
struct attention_run {
	struct queue *q;
	struct attn_seq *seqs;
	int n, heads;
	struct tensor *out, *x, *lse, *sums;
	struct key_set keys;
	int64_t rows;
};

static double best_seconds(void (*fn)(void *), void *arg)
{
	double best = 1e9;
	int64_t start = clock_ns();
	for (int i = 0; i < 3 || (double)(clock_ns() - start) < SECONDS * 1e9; i++) {
		int64_t t = clock_ns();
		fn(arg);
		double s = (double)(clock_ns() - t) / 1e9;
		best = s < best ? s : best;
	}
	return best;
}

static void linear_once(void *arg)
{
	struct linear_run *r = arg;
	assert_int_equal(op_linear(r->q, r->out, r->x, r->w, NULL, 0, r->n, false, r->rows), 0);
}

static void linear_speed(struct device *d, const struct device_peaks *peak, int64_t rows, int64_t k, int64_t n)
{
	struct queue *q = queue_new(d);
	float *w = values(1, n * k, 1), *x = values(2, rows * k, 1);
	struct linear_run r = {q, tensor_of(q, NULL, rows, n), tensor_of(q, x, rows, k), weight_of(d, w, n, k), rows, n};
	double s = best_seconds(linear_once, &r), flops = 2.0 * (double)rows * (double)k * (double)n / s;
	print_message(
		"  linear %5lld x %5lld -> %6lld: %7.1f GFLOP/s = %.2f of the FMA peak, W at %5.1f GB/s = %.2f of reading\n",
		(long long)rows, (long long)k, (long long)n, flops / 1e9, flops / peak->fma_f32,
		(double)weight_bytes(d, n, k) / s / 1e9, (double)weight_bytes(d, n, k) / s / peak->read_bytes);
	free(w), free(x);
	tensor_free(r.out), tensor_free(r.x);
	weight_free(r.w);
	queue_free(q);
}

static void attention_once(void *arg)
{
	struct attention_run *r = arg;
	assert_int_equal(op_attention(r->q, 0, r->seqs, r->n, r->out, r->x, 0, r->heads, r->lse), 0);
}
static void lse_once(void *arg)
{
	struct attention_run *r = arg;
	assert_int_equal(op_attn_lse(r->q, 0, &r->keys, r->x, 0, r->rows, 0, r->heads, r->lse), 0);
}
static void sums_once(void *arg)
{
	struct attention_run *r = arg;
	assert_int_equal(op_attn_reduce(r->q, 0, &r->keys, 0, 0, r->keys.range[0].n, r->x, 0, r->rows, 0, r->heads, r->lse, 0,
				 REDUCE_SUM, GROUP_NONE, r->sums, 0),
		0);
}

static void attention_speed(struct device *d, const struct device_peaks *peak, int heads, int kv_heads, int dim, int64_t tokens)
{
	struct queue *q = queue_new(d);
	int64_t cols = (heads + 2 * kv_heads) * dim, cap[16];
	for (int i = 0; i < kv_heads; i++)
		cap[i] = tokens;
	float *x = values(3, tokens * cols, 2);
	struct kv *kv = kv_new(d, 1, kv_heads, dim, cap);
	struct attn_seq s = {0, tokens, NULL, NULL, kv, 0};
	struct attention_run r = {q, &s, 1, heads, tensor_of(q, NULL, tokens, heads * dim), tensor_of(q, x, tokens, cols),
		tensor_of(q, NULL, tokens, heads), tensor_of(q, NULL, heads, tokens), {{{kv, 0, tokens}}, 1, true}, tokens};
	tensor_fill(q, r.sums, 0);
	assert_int_equal(op_kv_append(q, 0, &s, 1, r.x, heads * dim, (heads + kv_heads) * dim), 0);
	double pairs = (double)heads * (double)tokens * (double)(tokens + 1) / 2, t = best_seconds(attention_once, &r),
	       l = best_seconds(lse_once, &r), c = best_seconds(sums_once, &r);
	print_message("  attention %2d/%d x %3d, %5lld causal: %7.1f GFLOP/s = %.2f of the FMA peak; log-sum-exp %.2f, column "
		      "sums %.2f of its time\n",
		heads, kv_heads, dim, (long long)tokens, 4 * dim * pairs / t / 1e9, 4 * dim * pairs / t / peak->fma_f32, l / t,
		c / t);
	s = (struct attn_seq){0, 1, NULL, NULL, kv, tokens - 1};
	t = best_seconds(attention_once, &r);
	print_message("  attention %2d/%d x %3d, 1 token on %5lld: %.1f us, K and V at %.1f GB/s\n", heads, kv_heads, dim,
		(long long)tokens, t * 1e6, (double)kv_bytes(kv) / t / 1e9);
	free(x);
	tensor_free(r.out), tensor_free(r.x), tensor_free(r.lse), tensor_free(r.sums);
	kv_free(kv);
	queue_free(q);
}

static void speed(void **state)
{
	(void)state;
	const char *want = getenv("KVB_SPEED");
	if (!want) {
		print_message("set KVB_SPEED=1 (or to an instruction set) to measure\n");
		return;
	}
	for (int p = 0; p < 2; p++) {
		struct device *d = open_device(strcmp(want, "1") ? want : NULL, PRECISIONS[p], 0);
		assert_non_null(d);
		struct device_peaks peak;
		device_peaks(d, &peak);
		print_message("%s %s (%s), %d threads: FMA %.0f GFLOP/s, vdpbf16ps %.0f GFLOP/s, reading %.1f GB/s\n",
			device_isa(d), PRECISIONS[p], device_isa_why(d), device_threads(d), peak.fma_f32 / 1e9,
			peak.dot_bf16 / 1e9, peak.read_bytes / 1e9);
		static const int64_t shapes[][3] = {{512, 896, 1152}, {512, 896, 9728}, {512, 4864, 896}, {2048, 896, 1152},
			{2048, 576, 3072}, {512, 256, 256}, {48, 896, 9728}, {8, 896, 32768}, {1, 896, 151936}, {1, 896, 1152}};
		for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
			linear_speed(d, &peak, shapes[i][0], shapes[i][1], shapes[i][2]);
		attention_speed(d, &peak, 14, 2, 64, 2048);
		attention_speed(d, &peak, 9, 3, 64, 2048);
		attention_speed(d, &peak, 12, 2, 128, 2048);
		attention_speed(d, &peak, 14, 2, 64, 512);
		device_close(d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(speed)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
