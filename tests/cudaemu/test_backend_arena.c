/* A device's memory in blocks that were reserved: one call into the driver, the same offsets every time, nothing overlaps, nothing is written while work that was
 * queued before still reads it; what was not reserved is there piece by piece, up to the device's limit. Over the emulation alone (control.h). */
#include "runners/device/backend.h"
#include "runners/device/arena.h"
#include "tests/cudaemu/backend.h"
#include "tests/cudaemu/control.h"

static struct device *opened(void)
{
	struct device *d;
	char err[ERR_LEN];
	if (device_open(&d, &(struct device_options){.name = "cuda", .precision = "fp32", .threads = 1}, err))
		fail_msg("%s", err);
	return d;
}

/* ---- ranges alone: against a map of bytes ---- */

enum { UNITS = 64, UNIT = 256, STEPS = 4000 };
static struct {
	void *base[2];
	int n;
} dropped;

static void dropped_add(void *base)
{
	assert_true(dropped.n < 2);
	dropped.base[dropped.n++] = base;
}

static void test_ranges(void **state)
{
	(void)state;
	static char memory[2][UNITS * UNIT] __attribute__((aligned(256)));
	struct arena a = {0};
	int owner[2][UNITS] = {0};
	struct {
		char *p;
		int64_t bytes;
	} held[STEPS] = {0};
	struct rng r = rng_seed(1, 0);
	int64_t in_use = 0, refused = 0;
	arena_add(&a, memory[0], sizeof memory[0]);
	arena_add(&a, memory[1], sizeof memory[1]);
	for (int i = 1; i < STEPS; i++) {
		int old = (int)(rng_unit(&r) * i);
		if (rng_unit(&r) < .48 && held[old].p) { /* back: by ranges of any neighbourhood */
			arena_give(&a, held[old].p, held[old].bytes);
			for (int k = 0; k < 2; k++)
				for (int u = 0; u < UNITS; u++)
					owner[k][u] = owner[k][u] == old ? 0 : owner[k][u];
			in_use -= (held[old].bytes + UNIT - 1) / UNIT * UNIT;
			held[old].p = NULL;
			continue;
		}
		int64_t bytes = 1 + (int64_t)(rng_unit(&r) * 9 * UNIT), units = (bytes + UNIT - 1) / UNIT;
		int want_k = -1, want_u = 0; /* the lowest place of the first block that has one */
		for (int k = 0; k < 2 && want_k < 0; k++)
			for (int u = 0, run = 0; u < UNITS && want_k < 0; u++) {
				run = owner[k][u] ? 0 : run + 1;
				if (run == units)
					want_k = k, want_u = u - (int)units + 1;
			}
		held[i].p = arena_take(&a, bytes);
		held[i].bytes = bytes;
		assert_ptr_equal(held[i].p, want_k < 0 ? NULL : &memory[want_k][want_u * UNIT]);
		refused += want_k < 0;
		for (int u = want_u; want_k >= 0 && u < want_u + units; u++)
			owner[want_k][u] = i;
		in_use += want_k < 0 ? 0 : units * UNIT;
		assert_int_equal(arena_free_bytes(&a), (int64_t)sizeof memory - in_use);
	}
	assert_true(refused > 100);
	for (int i = 1; i < STEPS; i++)
		if (held[i].p)
			arena_give(&a, held[i].p, held[i].bytes);
	assert_int_equal(arena_largest(&a), sizeof memory[0]);
	void *first = arena_take(&a, 1);
	arena_drop_unused(&a, dropped_add);
	assert_true(dropped.n == 1 && dropped.base[0] == memory[1]); /* the other one is in use */
	arena_give(&a, first, 1);
	arena_drop_unused(&a, dropped_add);
	assert_true(dropped.n == 2 && dropped.base[1] == memory[0]);
	arena_drop_unused(&a, dropped_add);
	assert_true(dropped.n == 2 && !a.block && a.n == 0);
}

/* ---- on the device ---- */

enum { N = 8, ROWS = 32, COLS = 64 };

static int64_t tensors(struct device *d, struct tensor *t[N], int64_t offset[N])
{
	for (int i = 0; i < N; i++) {
		t[i] = tensor_new(d, ROWS + i, COLS);
		assert_non_null(t[i]);
		offset[i] = (char *)t[i]->x - (char *)t[0]->x;
	}
	return device_bytes(d);
}

static void test_one_call_and_the_same_offsets(void **state)
{
	(void)state;
	int64_t offset[2][N];
	for (int run = 0; run < 2; run++) {
		struct device *d = opened();
		struct tensor *t[N];
		cuemu_fail(NULL); /* counts calls from here on */
		device_reserve(d, 1 << 20);
		int64_t bytes = tensors(d, t, offset[run]);
		assert_int_equal(cuemu_calls("cudaMalloc"), 1);
		assert_true(bytes >= N * ROWS * COLS * 4 && bytes < 1 << 20); /* what is allocated, not what is reserved */
		for (int i = 0; i < N; i++)
			tensor_free(t[i]);
		device_reserve(d, 1 << 19); /* the block serves again */
		tensors(d, t, offset[run]);
		assert_int_equal(cuemu_calls("cudaMalloc"), 1);
		assert_int_equal(cuemu_calls("cudaFree"), 0);
		for (int i = 0; i < N; i++)
			tensor_free(t[i]);
		device_reserve(d, 4 << 20); /* too small: another takes its place */
		assert_int_equal(cuemu_calls("cudaMalloc"), 2);
		assert_int_equal(cuemu_calls("cudaFree"), 1);
		assert_int_equal(device_bytes(d), 0);
		assert_true(device_peak_bytes(d) == bytes);
		device_close(d);
		struct cuemu_live l;
		cuemu_live(&l);
		assert_int_equal(l.device_allocations, 0);
	}
	assert_memory_equal(offset[0], offset[1], sizeof offset[0]);
	assert_true(offset[0][1] > 0 && offset[0][1] < 2 * ROWS * COLS * 4);
}

/* A queue is freed with work on it: its scratch and its argument lists are not given out before that is done. */
static void queue_freed_while_in_use(struct device *d, struct queue *other)
{
	device_reserve(d, 64 << 20);
	struct queue *q = queue_new(d);
	int32_t index[ROWS];
	float *x = values(2, ROWS * COLS, 1), *junk = values(3, 1 << 20, 1);
	struct tensor *t = tensor_of(other, x, ROWS, COLS), *out = tensor_new(d, ROWS, COLS);
	for (int i = 0; i < ROWS; i++)
		index[i] = ROWS - 1 - i;
	assert_int_equal(op_gather_rows(q, out, t, index, ROWS), 0);
	queue_free(q);
	struct tensor *over = tensor_new(d, 1, 1 << 20); /* where the lists were */
	assert_int_equal(tensor_write(other, over, 0, 1, junk), 0);
	float *got = host_of(other, out);
	for (int i = 0; i < ROWS * COLS; i++)
		assert_true(got[i] == x[(ROWS - 1 - i / COLS) * COLS + i % COLS]);
	free(x), free(junk), free(got);
	tensor_free(t), tensor_free(out), tensor_free(over);
}

/* A tensor is freed while work that reads it is still on the queue, and its range is written by the host at once. */
static void test_freed_while_in_use(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 9; seed++) {
		cuemu_set_seed(seed);
		struct device *d = opened();
		struct queue *q = queue_new(d), *other = queue_new(d);
		device_reserve(d, 1 << 20);
		struct tensor *out = tensor_new(d, ROWS, COLS), *t = tensor_new(d, ROWS, COLS);
		void *was = t->x;
		float *x = values(seed, ROWS * COLS, 1);
		assert_int_equal(tensor_fill(q, t, 3) || op_copy(q, out, 0, 0, t, 0, 0, ROWS, COLS), 0);
		tensor_free(t);
		t = tensor_new(d, ROWS, COLS);
		assert_ptr_equal(t->x, was);
		assert_int_equal(tensor_write(other, t, 0, ROWS, x), 0);
		float *got = host_of(q, out), *now = host_of(other, t);
		for (int i = 0; i < ROWS * COLS; i++)
			assert_true(got[i] == 3);
		assert_memory_equal(now, x, ROWS * COLS * sizeof *x);
		free(x), free(got), free(now);
		tensor_free(out), tensor_free(t);
		queue_freed_while_in_use(d, other);
		queue_free(other), queue_free(q);
		device_close(d);
	}
	cuemu_set_seed(1);
}

/* The limit holds for what is allocated, reserved or not; a block that holds nothing makes room. */
static void test_limits(void **state)
{
	(void)state;
	cuemu_set_memory(0, 8 << 20);
	struct device *d = opened();
	int64_t asked;
	device_reserve(d, 16 << 20); /* more than there is: a wish */
	struct tensor *a = tensor_new(d, 1024, 1024); /* 4 MB, a piece of its own */
	assert_non_null(a);
	device_reserve(d, 3 << 20);
	struct tensor *b = tensor_new(d, 512, 1024); /* 2 MB of the block */
	assert_non_null(b);
	assert_null(tensor_new(d, 1024, 1024));
	assert_true(device_oom(d, &asked) && asked == 4 << 20 && device_oom_free(d) > 1 << 20 && device_oom_free(d) < 4 << 20);
	tensor_free(b);
	b = tensor_new(d, 1000, 1024); /* 3.9 MB: the empty block goes */
	assert_non_null(b);
	tensor_free(a), tensor_free(b);
	device_limit(d, 1 << 20);
	device_reserve(d, 2 << 20);
	assert_null(tensor_new(d, 512, 1024));
	assert_true(device_failure(d) == DEVICE_MEMORY);
	device_close(d);
	struct cuemu_live l;
	cuemu_live(&l);
	assert_int_equal(l.device_allocations, 0);
	cuemu_set_memory(0, (size_t)1 << 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_one_call_and_the_same_offsets),
		cmocka_unit_test(test_freed_while_in_use), cmocka_unit_test(test_limits)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
