/* Caches in the host's memory (--kv-offload) under the emulation's memory limit: a prefill in chunks and single tokens over twelve layers, as a forward pass puts
 * them on the queue, give the bits of a cache on the device, whatever the order in which queue and copier run. Over the emulation alone (control.h). */
#include "tests/cudaemu/backend.h"
#include "tests/cudaemu/control.h"

enum { LAYERS = 12, KV = 2, D = 32, HEADS = 4, COLS = (HEADS + 2 * KV) * D, CHUNK = 24, CHUNKS = 3, STEPS = 3, ROWS = CHUNK * CHUNKS + STEPS };
enum { BIG = 44000 };                          /* rows of capacity: K takes 64.5 MB */
static const size_t SMALL_MEMORY = 112 << 20; /* K and V together take 129 MB */

static struct device *emulated_device(bool offload)
{
	struct device *d;
	char err[ERR_LEN];
	if (device_open(&d, &(struct device_options){.name = "cuda", .precision = "bf16", .threads = 1, .kv_offload = offload}, err))
		fail_msg("%s", err);
	return d;
}

static struct kv *cache(struct device *d, int64_t rows)
{
	int64_t cap[LAYERS * KV];
	for (int i = 0; i < LAYERS * KV; i++)
		cap[i] = rows;
	return kv_new(d, LAYERS, KV, D, cap);
}

/* All layers over rows [at, at + n): new rows are appended, attention looks at all; layer l's input is that of the layer before it plus what it attended to. */
static int pass(struct queue *q, struct kv *kv, struct tensor *x, struct tensor *out, int64_t at, int64_t n)
{
	for (int l = 0; l < LAYERS; l++) {
		struct attn_seq s = {0, n, NULL, NULL, kv, at};
		if (op_kv_append(q, l, &s, 1, x, HEADS * D, (HEADS + KV) * D) || op_attention(q, l, &s, 1, out, x, 0, HEADS, NULL) ||
			op_copy(q, x, 0, 0, out, 0, 0, n, HEADS * D))
			return -1;
	}
	return 0;
}

/* [ROWS][HEADS * D]: what the last layer gave for every row. Then the last chunk again over a cache that was cut back. Caller frees. */
static float *run(bool offload, int64_t capacity)
{
	struct device *d = emulated_device(offload);
	struct queue *q = queue_new(d);
	struct kv *kv = cache(d, capacity);
	if (!q || !kv)
		fail_msg("%s", device_error(d));
	float *x = values(3, (ROWS + CHUNK) * COLS, 1), *got = mem_new((ROWS + CHUNK) * HEADS * D, sizeof *got);
	struct tensor *xt = tensor_new(d, CHUNK, COLS), *out = tensor_new(d, CHUNK, HEADS * D);
	for (int64_t done = 0, at = 0; done < ROWS + CHUNK;) {
		int64_t n = at < CHUNK * CHUNKS && done < CHUNK * CHUNKS ? CHUNK : done < ROWS ? 1 : CHUNK;
		if (done == ROWS)
			kv_truncate(kv, at = 7); /* the rows behind it are written anew while copies of the old ones may be on their way */
		int rc = tensor_write(q, xt, 0, n, x + done * COLS) || pass(q, kv, xt, out, at, n) ||
			 tensor_read(q, out, 0, n, got + done * HEADS * D);
		if (rc)
			fail_msg("%s", device_error(d));
		at += n;
		done += n;
	}
	free(x);
	tensor_free(xt), tensor_free(out);
	kv_free(kv);
	queue_free(q);
	assert_int_equal(device_bytes(d), 0);
	device_close(d);
	return got;
}

/* Single tokens against a context that nobody writes to any more, nothing waited for: [TOKENS][HEADS * D]; caller frees. */
enum { TOKENS = 6 };
static float *answer(bool offload, int64_t capacity)
{
	struct device *d = emulated_device(offload);
	struct queue *q = queue_new(d);
	struct kv *kv = cache(d, capacity), *tail = cache(d, TOKENS);
	float *x = values(8, CHUNK * COLS, 1);
	struct tensor *xt = tensor_of(q, x, CHUNK, COLS), *out = tensor_new(d, CHUNK, HEADS * D), *all = tensor_new(d, TOKENS, HEADS * D);
	assert_true(kv && tail && out && all);
	int rc = pass(q, kv, xt, out, 0, CHUNK) || queue_sync(q);
	for (int t = 0; t < TOKENS && !rc; t++) {
		for (int l = 0; l < LAYERS && !rc; l++) {
			struct attn_seq s = {0, 1, kv, NULL, tail, t};
			rc = op_kv_append(q, l, &s, 1, xt, HEADS * D, (HEADS + KV) * D) || op_attention(q, l, &s, 1, out, xt, 0, HEADS, NULL) ||
			     op_copy(q, xt, 0, 0, out, 0, 0, 1, HEADS * D);
		}
		rc = rc || op_copy(q, all, t, 0, out, 0, 0, 1, HEADS * D);
	}
	if (rc)
		fail_msg("%s", device_error(d));
	float *got = host_of(q, all);
	free(x);
	kv_free(kv), kv_free(tail);
	tensor_free(xt), tensor_free(out), tensor_free(all);
	queue_free(q);
	device_close(d);
	return got;
}

static void test_a_context_that_stays(void **state)
{
	(void)state;
	float *want = answer(false, CHUNK);
	for (uint64_t seed = 0; seed < (getenv("KVB_SANITIZED") ? 2 : 12); seed++) {
		cuemu_set_seed(seed);
		float *got = answer(true, BIG);
		assert_same_bits("against an offloaded context", got, want, TOKENS * HEADS * D);
		free(got);
	}
	cuemu_set_seed(1);
	free(want);
}

static void test_streamed_by_layer(void **state)
{
	(void)state;
	float *want = run(false, ROWS + CHUNK);
	cuemu_set_memory(0, SMALL_MEMORY);
	for (uint64_t seed = 0; seed < (getenv("KVB_SANITIZED") ? 2 : 12); seed++) {
		cuemu_set_seed(seed);
		float *got = run(true, BIG);
		assert_same_bits("streamed by layer", got, want, (ROWS + CHUNK) * HEADS * D);
		free(got);
	}
	cuemu_set_seed(1);
	cuemu_set_memory(0, (size_t)1 << 30);
	free(want);
}

/* What does not fit without it, and what it takes of the device: the estimate is what is held. */
static void test_memory(void **state)
{
	(void)state;
	cuemu_set_memory(0, SMALL_MEMORY);
	struct device *d = emulated_device(false);
	assert_null(cache(d, BIG));
	assert_true(device_failure(d) == DEVICE_MEMORY);
	device_close(d);
	d = emulated_device(true);
	struct queue *q = queue_new(d);
	int64_t staged = kv_device_bytes_for(d, LAYERS, KV, D, BIG);
	assert_int_equal(staged, kv_bytes_for(d, D, KV * BIG) * 4);
	int64_t asked;
	cuemu_fail("cudaHostAlloc:1:2"); /* where the host's memory is what lacks, the device's is not spoken of */
	assert_null(cache(d, BIG));
	assert_true(device_oom(d, &asked) && asked == kv_bytes_for(d, D, LAYERS * KV * (int64_t)BIG) / 2);
	char told[64];
	snprintf(told, sizeof told, "of pinned memory on the host, %lld free there", (long long)device_oom_free(d));
	assert_true(device_oom_free(d) > (int64_t)SMALL_MEMORY && strstr(device_error(d), told));
	cuemu_fail(NULL);
	struct kv *kv = cache(d, BIG);
	struct tensor *xt = tensor_new(d, CHUNK, COLS), *out = tensor_new(d, CHUNK, HEADS * D);
	assert_true(q && kv && xt && out);
	assert_int_equal(tensor_fill(q, xt, .5f) || pass(q, kv, xt, out, 0, 1), 0);
	int64_t before = device_bytes(d);
	assert_int_equal(kv_device_bytes_for(d, LAYERS, KV, D, BIG), 0); /* the buffers are there and serve another such cache, */
	assert_int_equal(kv_device_bytes_for(d, LAYERS, KV, D, 2 * BIG), staged); /* of a longer one a part */
	assert_int_equal(pass(q, kv, xt, out, 1, 1) || queue_sync(q), 0);
	assert_true(device_bytes(d) - before == 0); /* all that it holds is there after the first pass */
	kv_free(kv);
	assert_int_equal(device_bytes(d), before - staged);
	kv = cache(d, 64);
	assert_int_equal(kv_device_bytes_for(d, LAYERS, KV, D, 64), kv_bytes_for(d, D, LAYERS * KV * 64)); /* too small to be offloaded */
	kv_free(kv);
	tensor_free(xt), tensor_free(out);
	queue_free(q);
	assert_int_equal(device_bytes(d), 0);
	device_close(d);
	cuemu_set_memory(0, (size_t)1 << 30);
}

/* A second cache with larger layers takes the buffers over while the first one's copies are on their way. */
static void test_a_larger_cache_takes_over(void **state)
{
	(void)state;
	float *got[2];
	for (int offload = 0; offload < 2; offload++) {
		struct device *d = emulated_device(offload);
		struct queue *q = queue_new(d);
		struct kv *kv[2] = {cache(d, offload ? BIG : ROWS), cache(d, offload ? BIG * 3 / 2 : ROWS)};
		float *x = values(4, 2 * CHUNK * COLS, 1);
		struct tensor *xt = tensor_new(d, CHUNK, COLS), *out = tensor_new(d, CHUNK, HEADS * D), *all = tensor_new(d, 4 * CHUNK, HEADS * D);
		assert_true(kv[0] && kv[1] && xt && out && all);
		for (int i = 0; i < 4; i++) {
			int rc = tensor_write(q, xt, 0, CHUNK, x + i / 2 * CHUNK * COLS) || pass(q, kv[i % 2], xt, out, i / 2 * CHUNK, CHUNK) ||
				 op_copy(q, all, i * CHUNK, 0, out, 0, 0, CHUNK, HEADS * D);
			if (rc)
				fail_msg("%s", device_error(d));
		}
		got[offload] = host_of(q, all);
		free(x);
		tensor_free(xt), tensor_free(out), tensor_free(all);
		kv_free(kv[0]), kv_free(kv[1]);
		queue_free(q);
		assert_int_equal(device_bytes(d), 0);
		device_close(d);
	}
	assert_same_bits("two caches", got[1], got[0], 4 * CHUNK * HEADS * D);
	free(got[0]), free(got[1]);
}

static size_t allocated(void)
{
	struct cuemu_live l;
	cuemu_live(&l);
	return l.device_bytes;
}

/* A chunk by each of two queues, one behind the other in the cache (what a queue wrote it alone may write over), in rows of `all` of their own. */
static void both_queues(struct queue *const q[2], struct kv *kv, struct tensor *const xt[2], struct tensor *const out[2], struct tensor *all, int64_t *row)
{
	for (int i = 0; i < 2; i++, *row += CHUNK)
		if (pass(q[i], kv, xt[i], out[i], i * CHUNK, CHUNK) || op_copy(q[i], all, *row, 0, out[i], 0, 0, CHUNK, HEADS * D) || queue_sync(q[i]))
			fail_msg("%s", device_error(queue_device(q[i])));
}

/* Caches come and go on a device with two queues, piece by piece or in a reserved block; with the last one the buffers of both queues go, and the next cache
 * gets new ones. [4 * 2 * CHUNK][HEADS * D]; caller frees. */
static float *come_and_go(bool offload, bool reserved)
{
	struct device *d = emulated_device(offload);
	if (reserved)
		device_reserve(d, 900 << 20);
	struct queue *q[2] = {queue_new(d), queue_new(d)};
	struct tensor *xt[2], *out[2], *all = tensor_new(d, 4 * 2 * CHUNK, HEADS * D);
	float *x = values(6, CHUNK * COLS, 1);
	int64_t row = 0;
	for (int i = 0; i < 2; i++) {
		xt[i] = tensor_of(q[i], x, CHUNK, COLS);
		out[i] = tensor_new(d, CHUNK, HEADS * D);
	}
	struct kv *kv = cache(d, 2 * CHUNK), *other;
	both_queues(q, kv, xt, out, all, &row); /* scratch has its size */
	kv_free(kv);
	int64_t before = device_bytes(d);
	size_t taken = allocated();
	kv = cache(d, offload ? BIG : 2 * CHUNK);
	other = cache(d, offload ? BIG / 2 * 3 : 2 * CHUNK);
	both_queues(q, kv, xt, out, all, &row);
	kv_free(kv); /* the buffers are the other one's now */
	assert_int_equal(device_bytes(d) - before, offload ? 2 * 4 * kv_bytes_for(d, D, KV * (int64_t)BIG) : kv_bytes_for(d, D, LAYERS * KV * 2 * CHUNK));
	both_queues(q, other, xt, out, all, &row);
	kv_free(other);
	assert_int_equal(device_bytes(d), before);
	assert_int_equal(allocated(), taken);
	kv = cache(d, offload ? BIG : 2 * CHUNK);
	both_queues(q, kv, xt, out, all, &row);
	kv_free(kv);
	assert_int_equal(device_bytes(d), before);
	float *got = host_of(q[0], all);
	for (int i = 0; i < 2; i++) {
		tensor_free(xt[i]), tensor_free(out[i]);
		queue_free(q[i]);
	}
	tensor_free(all);
	free(x);
	assert_int_equal(device_bytes(d), 0);
	device_close(d);
	return got;
}

static void test_buffers_go_with_the_last_cache(void **state)
{
	(void)state;
	float *want = come_and_go(false, false);
	for (uint64_t seed = 1; seed < (getenv("KVB_SANITIZED") ? 3 : 7); seed++) {
		cuemu_set_seed(seed);
		float *got = come_and_go(true, seed % 2);
		assert_same_bits("caches that come and go", got, want, 4 * 2 * CHUNK * HEADS * D);
		free(got);
	}
	cuemu_set_seed(1);
	free(want);
}

/* A queue is freed while a layer is copied ahead that nobody asked for: its buffers are not given out before that is done. */
static void test_queue_freed_while_copying(void **state)
{
	(void)state;
	int pending = 0;
	for (uint64_t seed = 1; seed < (getenv("KVB_SANITIZED") ? 3 : 13); seed++) {
		cuemu_set_seed(seed);
		struct device *d = emulated_device(true);
		device_reserve(d, 400 << 20); /* all that the test takes: a piece of its own would be freed by cudaFree, which waits */
		struct queue *q = queue_new(d), *other = queue_new(d);
		struct kv *kv = cache(d, BIG);
		struct tensor *xt = tensor_new(d, CHUNK, COLS), *out = tensor_new(d, CHUNK, HEADS * D);
		assert_true(kv && xt && out);
		assert_int_equal(tensor_fill(q, xt, .5f) || pass(q, kv, xt, out, 0, CHUNK) || queue_sync(q), 0); /* layer 0 is on its way again */
		pending += cuemu_pending() > 0;
		queue_free(q);
		struct tensor *over = tensor_new(d, 1, 10 << 20); /* where the buffers were */
		assert_int_equal(tensor_fill(other, over, 7) || queue_sync(other), 0);
		for (int i = 0; i < 16; i++) /* whatever is still on its way gets its turn */
			assert_int_equal(tensor_fill(other, out, 0) || queue_sync(other), 0);
		float *got = host_of(other, over);
		for (int64_t i = 0; i < 10 << 20; i += 61)
			assert_true(got[i] == 7);
		free(got);
		kv_free(kv);
		tensor_free(xt), tensor_free(out), tensor_free(over);
		queue_free(other);
		assert_int_equal(device_bytes(d), 0);
		device_close(d);
	}
	assert_true(pending > 0);
	cuemu_set_seed(1);
}

/* A cache is freed while a layer of it is copied ahead: its memory stays until that is done. */
static void test_cache_freed_while_copying(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < (getenv("KVB_SANITIZED") ? 3 : 7); seed++) {
		cuemu_set_seed(seed);
		struct device *d = emulated_device(true);
		struct queue *q = queue_new(d);
		struct kv *kv = cache(d, BIG);
		struct tensor *xt = tensor_new(d, CHUNK, COLS), *out = tensor_new(d, CHUNK, HEADS * D);
		assert_true(kv && xt && out);
		assert_int_equal(tensor_fill(q, xt, .5f) || pass(q, kv, xt, out, 0, CHUNK), 0);
		kv_free(kv);
		assert_int_equal(queue_sync(q), 0);
		tensor_free(xt), tensor_free(out);
		queue_free(q);
		assert_int_equal(device_bytes(d), 0);
		device_close(d);
	}
	cuemu_set_seed(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_streamed_by_layer), cmocka_unit_test(test_a_context_that_stays), cmocka_unit_test(test_memory), cmocka_unit_test(test_a_larger_cache_takes_over),
		cmocka_unit_test(test_buffers_go_with_the_last_cache),
		cmocka_unit_test(test_queue_freed_while_copying), cmocka_unit_test(test_cache_freed_while_copying)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
