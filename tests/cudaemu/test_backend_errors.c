/* Every call into CUDA may fail: each is made to fail in turn, and then the operation says so, later ones work, and nothing is left behind. A sticky error is called
 * one; out of memory says what was asked for and what was free. Over the emulation alone (control.h). */
#include "tests/cudaemu/backend.h"
#include "tests/cudaemu/control.h"

static const char *const CALLS[] = {"cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithPriority", "cudaDeviceGetStreamPriorityRange",
	"cudaEventCreateWithFlags", "cudaEventCreate", "cudaEventRecord", "cudaEventSynchronize", "cudaEventElapsedTime", "cudaStreamWaitEvent", "cudaMemcpy",
	"cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaMemcpyPeerAsync", "cudaMemset", "cudaMemsetAsync", "cudaStreamSynchronize", "cublasCreate",
	"cublasSetWorkspace", "cublasSetMathMode", "cublasSetStream", "cublasGemmEx", "cudaFuncSetAttribute", "launch"};
enum { N_CALLS = sizeof CALLS / sizeof *CALLS, D = 16, HEADS = 4, KV = 2, ROWS = 66, COLS = (HEADS + 2 * KV) * D };

/* The operations on scores and small networks, over sums [HEADS, ROWS], a cache and the rows t. */
static int scores_and_networks(struct queue *q, const struct tensor *sums, const struct kv *kv, const struct tensor *t)
{
	enum { KEEP = 5, HID = 32 };
	struct device *d = queue_device(q);
	int32_t list[HEADS][KEEP], *const lists[HEADS] = {list[0], list[1], list[2], list[3]};
	int64_t k[HEADS] = {KEEP, 0, 1, KEEP}, nan[HEADS], counts[HEADS];
	float u[KV * ROWS];
	struct tensor *pooled = tensor_new(d, HEADS / 2, ROWS), *moved = tensor_new(d, ROWS, COLS), *mean = tensor_new(d, KV, D),
		      *w1 = tensor_new(d, KV * D, HID), *wide = tensor_new(d, KV, HID), *one = tensor_new(d, KV, 1), *params = tensor_new(d, 1, 2 * ROWS);
	const struct pool_rule rule = {'m', 3, false, false, 2};
	const struct entry_net net = {true, false, HID, mean, w1, wide, wide, one};
	const struct step norm = {.kind = STEP_NORM, .batch = 1, .bias = {-1}, .shift = {-1}, .channels = ROWS};
	int rc = !pooled || !moved || !mean || !w1 || !wide || !one || !params;
	rc = rc || tensor_fill(q, mean, 0) || tensor_fill(q, w1, .1f) || tensor_fill(q, wide, .1f) || tensor_fill(q, one, 0) || tensor_fill(q, params, 1) ||
	     op_topk(q, sums, 0, HEADS, 0, ROWS, k, lists, nan) || op_top_counts(q, sums, 0, HEADS, 0, ROWS, 2 * ROWS, counts) ||
	     op_pool(q, pooled, sums, 2, ROWS, &rule) || op_utilities(q, kv, 0, &net, 0, 0, ROWS, NULL, u) || tensor_move(q, moved, t) ||
	     op_steps(q, moved, COLS, params, &norm, 1) || queue_sync(q);
	tensor_free(pooled), tensor_free(moved), tensor_free(mean), tensor_free(w1), tensor_free(wide), tensor_free(one), tensor_free(params);
	return rc;
}

/* q, k of a linear layer turned; rows picked; a cache written by the host; attention of heads so wide that a kernel asks for shared memory; a time. */
static int rows_and_times(struct queue *q, const struct tensor *t, const struct weight *w, struct event *from)
{
	enum { WIDE = 128 };
	struct device *d = queue_device(q);
	int64_t pos[ROWS] = {0}, cap[1] = {2 * ROWS}, ns;
	int32_t picked[2] = {3, 1};
	double inv_freq[D / 2] = {1};
	float *x = values(4, 2 * ROWS * WIDE, 1);
	struct event *to = event_new(d);
	struct kv *kv = kv_new(d, 1, 1, WIDE, cap);
	struct tensor *cs = tensor_new(d, ROWS, D), *out = tensor_new(d, ROWS, COLS), *wide = tensor_new(d, ROWS, 3 * WIDE), *att = tensor_new(d, ROWS, WIDE);
	struct attn_seq s = {0, ROWS, NULL, NULL, kv, ROWS};
	struct head_epilogue heads = {.q_heads = 2, .k_heads = 1, .d = D, .cs = cs};
	int rc = !to || !kv || !cs || !out || !wide || !att;
	rc = rc || op_rope_table(q, cs, pos, inv_freq, 1, D, ROWS) || op_linear_qkv(q, out, t, w, NULL, 0, 64, &heads, ROWS) ||
	     op_gather_rows(q, out, t, picked, 2) || tensor_fill(q, wide, .5f) || kv_write(q, kv, 0, 0, ROWS, x, x) ||
	     op_kv_append(q, 0, &s, 1, wide, WIDE, 2 * WIDE) || op_attention(q, 0, &s, 1, att, wide, 0, 1, NULL) || queue_event_record(q, to) ||
	     event_elapsed(from, to, &ns);
	if (to)
		event_free(to);
	kv_free(kv);
	tensor_free(cs), tensor_free(out), tensor_free(wide), tensor_free(att);
	free(x);
	return rc;
}

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
	     queue_event_wait(q, e) || queue_sync(q) || tensor_read(q, out, 0, ROWS, y) || scores_and_networks(q, sums, kv, t) ||
	     rows_and_times(q, t, w, e);
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
