/* Every call into CUDA may fail: each is made to fail in turn, and then the operation says so, later ones work, and nothing is left behind. A sticky error is called
 * one; out of memory says what was asked for and what was free. Over the emulation alone (control.h). */
#include "tests/cudaemu/backend.h"
#include "tests/cudaemu/control.h"

static const char *const CALLS[] = {"cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithPriority", "cudaDeviceGetStreamPriorityRange",
	"cudaEventCreateWithFlags", "cudaEventCreate", "cudaEventRecord", "cudaStreamWaitEvent", "cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpy2DAsync",
	"cudaMemset", "cudaStreamSynchronize", "cublasCreate", "cublasSetWorkspace", "cublasSetMathMode", "cublasSetStream", "cublasGemmEx", "launch"};
enum { N_CALLS = sizeof CALLS / sizeof *CALLS, D = 16, HEADS = 4, KV = 2, ROWS = 66, COLS = (HEADS + 2 * KV) * D };

/* Everything once; the first failure ends it. Returns 0, or -1 with the device's own words. */
static int everything(struct device *d, char why[ERR_LEN])
{
	struct queue *q = queue_new(d);
	struct event *e = event_new(d);
	int64_t cap[KV] = {2 * ROWS, 2 * ROWS};
	int32_t list[] = {0, 3, 5}, len[KV] = {3, 2}, best[ROWS], ids[ROWS] = {1};
	const int32_t *const lists[KV] = {list, list};
	float *x = values(1, ROWS * COLS, 1), *y = mem_new(ROWS * COLS, sizeof *y);
	double *sum = mem_new(HEADS * D, sizeof *sum), *outer = mem_new(HEADS * D * D, sizeof *outer);
	struct tensor *t = tensor_new(d, ROWS, COLS), *out = tensor_new(d, ROWS, COLS), *lse = tensor_new(d, ROWS, HEADS), *sums = tensor_new(d, HEADS, ROWS),
		      *h = operand_new(d, ROWS, COLS), *act = operand_new(d, ROWS, 32);
	struct weight *w = weight_new(d, 64, COLS, matrix_rows, &(struct matrix){x, COLS}, why);
	struct kv *kv = kv_new(d, 1, KV, D, cap), *small = kv_new(d, 1, KV, D, cap);
	struct kept *kept = kept_new(d, 1, KV, len, lists);
	struct attn_seq many = {0, ROWS, NULL, NULL, kv, 0}, few = {0, 1, kv, kept, small, 3};
	struct key_set keys = {.range = {{kv, 0, ROWS}}, .n = 1, .causal = true};
	int rc = !q || !e || !t || !out || !lse || !sums || !h || !act || !w || !kv || !small || !kept;
	rc = rc || tensor_write(q, t, 0, ROWS, x) || tensor_fill(q, sums, 0) || op_embed(q, out, w, ids, ROWS) ||
	     op_rmsnorm(q, h, t, t, 1e-5f, ROWS) || op_linear_swiglu(q, act, h, w, ROWS) || op_linear(q, out, t, w, NULL, 0, 64, true, ROWS) ||
	     op_linear(q, out, t, w, NULL, 0, 64, false, 2) || op_kv_append(q, 0, &many, 1, t, HEADS * D, (HEADS + KV) * D) ||
	     op_attention(q, 0, &many, 1, out, t, 0, HEADS, lse) || op_attn_lse(q, 0, &keys, t, 0, ROWS, 0, HEADS, lse) ||
	     op_attn_reduce(q, 0, &keys, 0, 0, ROWS, t, 0, ROWS, 0, HEADS, lse, 0, REDUCE_SUM, GROUP_NONE, sums, 0) ||
	     kv_gather(q, small, kv, kept, 0) || op_kv_append(q, 0, &few, 1, t, HEADS * D, (HEADS + KV) * D) ||
	     op_attention(q, 0, &few, 1, out, t, 0, HEADS, NULL) || op_copy(q, out, 0, 0, t, 0, 0, ROWS, 8) || op_argmax(q, out, 8, ROWS, best) ||
	     op_moments(q, t, 0, ROWS, 0, HEADS, D, sum, outer) || kv_read(q, kv, 0, 1, 0, ROWS, y, NULL) || queue_event_record(q, e) ||
	     queue_event_wait(q, e) || queue_sync(q) || tensor_read(q, out, 0, ROWS, y);
	if (rc)
		snprintf(why, ERR_LEN, "%s", device_error(d));
	kv_free(kv), kv_free(small);
	kept_free(kept);
	weight_free(w);
	tensor_free(t), tensor_free(out), tensor_free(lse), tensor_free(sums), tensor_free(h), tensor_free(act);
	event_free(e);
	queue_free(q);
	free(x), free(y), free(sum), free(outer);
	return rc ? -1 : 0;
}

static struct device *opened(void)
{
	struct device *d;
	char err[ERR_LEN];
	if (device_open(&d, &(struct device_options){.name = "cuda", .precision = "bf16", .threads = 1}, err))
		fail_msg("%s", err);
	return d;
}

static void nothing_left(const char *after)
{
	struct cuemu_live l;
	cuemu_live(&l);
	if (l.device_allocations || l.pinned_allocations || l.streams || l.events || l.cublas_handles)
		fail_msg("%s left %zu allocations, %zu pinned, %zu streams, %zu events, %zu handles", after, l.device_allocations, l.pinned_allocations,
			l.streams, l.events, l.cublas_handles);
}

static void test_every_call_may_fail(void **state)
{
	(void)state;
	int faults = 0;
	for (int c = 0; c < N_CALLS; c++)
		for (int n = 1;; n += n < 4 ? 1 : 5) {
			char spec[64], why[ERR_LEN] = "";
			struct device *d = opened();
			snprintf(spec, sizeof spec, "%s:%d", CALLS[c], n);
			assert_int_equal(cuemu_fail(spec), 0);
			int rc = everything(d, why);
			bool reached = cuemu_calls(CALLS[c]) >= (uint64_t)n;
			cuemu_fail(NULL);
			if (reached && (rc == 0 || !why[0]))
				fail_msg("%s: nobody noticed (%s)", spec, why);
			assert_true(!reached || device_failure(d) != DEVICE_FINE);
			assert_true(device_failure(d) != DEVICE_STICKY);
			faults += reached;
			if (rc == 0)
				assert_false(reached);
			else if (everything(d, why)) /* the device goes on working */
				fail_msg("after %s: %s", spec, why);
			assert_int_equal(device_bytes(d), 0);
			device_close(d);
			nothing_left(spec);
			if (!reached)
				break;
		}
	print_message("%d calls failed, each was noticed\n", faults);
	assert_true(faults >= 40);
}

static void test_sticky(void **state)
{
	(void)state;
	struct device *d = opened();
	char why[ERR_LEN] = "";
	cuemu_fail("launch:9:700:sticky"); /* an illegal address */
	assert_int_equal(everything(d, why), -1);
	assert_true(device_failure(d) == DEVICE_STICKY);
	assert_non_null(strstr(why, "lost to this process"));
	assert_int_equal(everything(d, why), -1); /* and it stays lost */
	assert_true(device_failure(d) == DEVICE_STICKY);
	cuemu_fail(NULL);
	device_close(d);
}

/* Any of a selection's copies fails, between two others: when op_topk says so, nothing is on its way into the caller's lists any more. */
static void test_selection_that_fails(void **state)
{
	(void)state;
	enum { N = 4, COLUMNS = 300, KEEP = 200 };
	struct device *d = opened();
	struct queue *q = queue_new(d);
	float *x = values(5, N * COLUMNS, 1);
	struct tensor *t = tensor_of(q, x, N, COLUMNS);
	int32_t list[N][KEEP], *const out[N] = {list[0], list[1], list[2], list[3]};
	int64_t k[N] = {KEEP, KEEP, KEEP, KEEP}, nan[N];
	int failed = 0;
	for (int n = 1; n <= 8; n++) {
		char spec[64];
		snprintf(spec, sizeof spec, "cudaMemcpyAsync:%d", n);
		assert_int_equal(cuemu_fail(spec), 0);
		int rc = op_topk(q, t, 0, N, 0, COLUMNS, k, out, nan);
		failed += rc != 0;
		memset(list, 0x55, sizeof list); /* the caller uses them for something else */
		cuemu_fail(NULL);
		assert_int_equal(queue_sync(q), 0);
		for (int i = 0; i < N; i++)
			for (int j = 0; j < KEEP; j++)
				assert_int_equal(list[i][j], 0x55555555);
	}
	assert_int_equal(failed, 7); /* two uploads, the cuts, four lists */
	tensor_free(t);
	free(x);
	queue_free(q);
	device_close(d);
}

static void test_out_of_memory(void **state)
{
	(void)state;
	cuemu_set_memory(0, 64 << 20);
	struct device *d = opened();
	int64_t asked = 0;
	struct tensor *a = tensor_new(d, 1024, 8192); /* 32 MB */
	assert_non_null(a);
	assert_null(tensor_new(d, 1024, 16384));
	assert_true(device_oom(d, &asked) && asked == 64 << 20);
	assert_true(device_oom_free(d) > 0 && device_oom_free(d) <= 32 << 20);
	assert_non_null(strstr(device_error(d), "asked for 67108864 bytes"));
	assert_non_null(strstr(device_error(d), "free on the device"));
	tensor_free(a);
	a = tensor_new(d, 1024, 8192);
	assert_non_null(a);
	tensor_free(a);
	device_close(d);
	cuemu_set_memory(0, (size_t)1 << 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call_may_fail), cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_sticky),
		cmocka_unit_test(test_selection_that_fails)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
