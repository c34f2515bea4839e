/* Opening, choice of instruction set, memory limits, the thread pool. */
#include "tests/unit/device/fixture.h"

#include "runners/device/backend.h"
#include "runners/device/pool.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void test_open(void **state)
{
	(void)state;
	struct device *d;
	char err[ERR_LEN];
	assert_int_equal(device_open(&d, &(struct device_options){.name = "auto"}, err), 0);
	print_message("%s, %s (%s), %d threads\n", device_name(d), device_isa(d), device_isa_why(d), device_threads(d));
	assert_string_equal(device_name(d), "cpu");
	assert_true(device_is_bf16(d) && device_threads(d) >= 1 && device_isa_why(d)[0]);
	assert_string_equal(device_error(d), "");
	assert_false(device_oom(d, NULL));
	device_close(d);
	device_close(NULL);
	static const struct {
		struct device_options o;
		const char *says;
	} wrong[] = {{{.name = "tpu"}, "tpu"}, {{.precision = "fp8"}, "fp8"}, {{.isa = "sse9"}, "sse9"},
		{{.isa = "amx", .precision = "fp32"}, "bf16 alone"}, {{.memory_bytes = 100}, "out of memory"}};
	for (int i = 0; i < 5; i++) {
		assert_int_equal(device_open(&d, &wrong[i].o, err), -1);
		assert_null(d);
		assert_non_null(strstr(err, wrong[i].says));
	}
}

/* In a child that the system refuses the tiles (and where it does not, it must not matter). Exit code: 0 = as it should be. */
static int open_without_tiles(void)
{
	static struct sock_filter refuse[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof refuse / sizeof *refuse, .filter = refuse};
	struct device *d;
	char err[ERR_LEN];
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 2;
	if (device_open(&d, &(struct device_options){.name = "cpu", .threads = 1}, err))
		return 3;
	int wrong = !strcmp(device_isa(d), "amx");
	device_close(d);
	return wrong || !device_open(&d, &(struct device_options){.name = "cpu", .isa = "amx"}, err) || !strstr(err, "does not grant");
}

static void test_tiles_refused(void **state)
{
	(void)state;
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(open_without_tiles());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2) {
		print_message("[ SKIPPED  ] this system has no seccomp filters\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_too_many_threads(void **state)
{
	(void)state;
	struct device *d;
	char err[ERR_LEN] = "";
	assert_int_equal(device_open(&d, &(struct device_options){.name = "cpu", .threads = 100000}, err), -1);
	assert_null(d);
	assert_string_equal(err, "100000 threads: at most 4096");
}

static void test_memory_limit(void **state)
{
	(void)state;
	struct device *d;
	char err[ERR_LEN];
	assert_int_equal(
		device_open(&d, &(struct device_options){.threads = 1, .precision = "fp32", .memory_bytes = 4 << 20}, err), 0);
	int64_t open = device_bytes(d), asked = 0;
	assert_true(open > 0);
	struct tensor *a = tensor_new(d, 256, 1024); /* 1 MB */
	assert_non_null(a);
	assert_int_equal(device_bytes(d), open + (1 << 20));
	assert_null(tensor_new(d, 1024, 1024));
	assert_true(device_oom(d, &asked));
	assert_int_equal(asked, 4 << 20);
	assert_int_equal(device_oom_free(d), (3 << 20) - open); /* of the limit: the system does not say what is free */
	assert_non_null(strstr(device_error(d), "out of memory"));
	int64_t cap = 100000;
	assert_null(kv_new(d, 1, 1, 64, &cap));
	assert_null(weight_new(d, 4096, 1024, matrix_rows, NULL, err));
	assert_non_null(strstr(err, "out of memory"));
	assert_int_equal(device_bytes(d), open + (1 << 20)); /* what failed left nothing */
	tensor_free(a);
	assert_int_equal(device_bytes(d), open);
	assert_true(device_peak_bytes(d) >= open + (1 << 20));
	device_peak_reset(d);
	assert_int_equal(device_peak_bytes(d), open);
	struct queue *q = queue_new(d);
	struct tensor *one = tensor_new(d, 1, 1);
	assert_int_equal(tensor_read(q, one, 0, 2, NULL), -1);
	assert_false(device_oom(d, &asked)); /* the last failure was another */
	tensor_free(one);
	queue_free(q);
	device_close(d);
}

struct counts {
	int64_t n;
	int seen[5000];
	int64_t value[5000];
};
static void count(void *arg, int64_t i)
{
	struct counts *c = arg;
	c->seen[i]++;
	c->value[i] = i * c->n;
}
static void count_pool(void *arg, int64_t i, int thread)
{
	assert_in_range(thread, 0, 7);
	count(arg, i);
}

static void count_slowly(void *arg, int64_t i, int thread)
{
	nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL); /* longer than anybody spins */
	count_pool(arg, i, thread);
}

/* Threads that went to sleep between jobs, and a caller that sleeps until the last item is done, are woken. */
static void test_pool_sleeps(void **state)
{
	(void)state;
	static struct counts c;
	struct pool *p = pool_new(4);
	assert_non_null(p);
	for (int64_t job = 0; job < 20; job++) {
		c = (struct counts){.n = 2 + job % 5};
		pool_run(p, c.n, count_slowly, &c);
		for (int64_t i = 0; i < 5000; i++)
			assert_int_equal(c.seen[i], i < c.n);
		if (job % 2)
			nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
	}
	pool_free(p);
}

static void test_pool(void **state)
{
	(void)state;
	static struct counts c;
	for (int threads = 1; threads <= 8; threads *= 2) {
		struct pool *p = pool_new(threads);
		assert_non_null(p);
		assert_int_equal(pool_threads(p), threads);
		for (int64_t job = 0; job < 300; job++) {
			c = (struct counts){.n = job % 7 == 0 ? 5000 : job % 20};
			pool_run(p, c.n, count_pool, &c);
			for (int64_t i = 0; i < 5000; i++) {
				assert_int_equal(c.seen[i], i < c.n);
				assert_int_equal(c.value[i], i < c.n ? i * c.n : 0);
			}
		}
		pool_free(p);
	}
	struct device *d = open_device("reference", "fp32", 3);
	c = (struct counts){.n = 4999};
	device_parallel(d, c.n, count, &c);
	for (int64_t i = 0; i < 5000; i++)
		assert_int_equal(c.seen[i], i < c.n);
	device_close(d);
}

/* What is reserved comes side by side, whatever its size, and again from the same place; more than that comes from elsewhere. */
static void test_reserve(void **state)
{
	(void)state;
	struct device *d = open_device("reference", "fp32", 1);
	device_reserve(d, 8 << 20);
	char *a = device_alloc(d, 100), *b = device_alloc(d, 3 << 20), *c = device_alloc(d, 5 << 20), *more = device_alloc(d, 64 << 20);
	assert_non_null(more);
	memset(c, 1, 5 << 20);
	memset(more, 1, 64 << 20);
#ifndef __SANITIZE_ADDRESS__ /* there every piece stands alone */
	assert_ptr_equal(b, a + 256);
	assert_ptr_equal(c, b + (3 << 20));
	assert_true(more < a || more > c);
	device_free(d, b, 3 << 20);
	b = device_alloc(d, 2 << 20);
	assert_ptr_equal(b, a + 256);
	device_free(d, b, 2 << 20);
#else
	device_free(d, b, 3 << 20);
#endif
	device_free(d, a, 100);
	device_free(d, c, 5 << 20);
	device_free(d, more, 64 << 20);
	device_reserve(d, 80 << 20); /* the empty block makes room */
	assert_non_null(a = device_alloc(d, 80 << 20));
	device_free(d, a, 80 << 20);
	device_close(d);
}

struct lanes {
	_Atomic int ran[64];
	int by[64]; /* thread of each item */
	int slow;   /* the thread that sleeps in each of its items */
	/* So many threads wait in their first item for each other: then each has taken it from its own run. 0 = nobody waits. */
	int together;
	_Atomic int started;
	bool has_started[4];
};
static void lane_item(void *arg, int64_t i, int thread)
{
	struct lanes *l = arg;
	l->ran[i]++;
	l->by[i] = thread;
	if (l->together && !l->has_started[thread]) {
		l->has_started[thread] = true;
		for (l->started++; l->started < l->together;)
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	nanosleep(&(struct timespec){.tv_nsec = thread == l->slow ? 20000000 : 300000}, NULL);
}

/* Every item once, whatever its thread; a thread's first item is the first of its own run, and items of a slow thread are done by others. */
static void test_pool_near(void **state)
{
	(void)state;
	enum { THREADS = 4, ITEMS = 60, RUN = ITEMS / THREADS };
	struct pool *p = pool_new(THREADS);
	assert_non_null(p);
	for (int job = 0; job < 10; job++) {
		struct lanes l = {.slow = job % THREADS, .together = THREADS};
		int of_slow = 0;
		pool_run_near(p, ITEMS, lane_item, &l);
		for (int i = 0; i < ITEMS; i++) {
			assert_int_equal(l.ran[i], 1);
			of_slow += l.by[i] == l.slow;
		}
		assert_true(of_slow < RUN / 2);
		for (int t = 0; t < THREADS; t++)
			assert_int_equal(l.by[t * RUN], t);
	}
	for (int n = 0; n < 20; n++) {
		struct lanes l = {.slow = -1};
		pool_use(p, n % 5);
		pool_run_near(p, n, lane_item, &l);
		for (int i = 0; i < 64; i++)
			assert_int_equal(l.ran[i], i < n);
	}
	pool_use(p, 1);
	struct lanes alone = {.slow = -1};
	pool_run_near(p, ITEMS, lane_item, &alone);
	for (int i = 0; i < ITEMS; i++)
		assert_int_equal(alone.by[i], 0);
	pool_free(p);
}

static void test_peaks(void **state)
{
	(void)state;
	if (getenv("KVB_SANITIZED")) {
		print_message("[ SKIPPED  ] peaks: not under sanitizers\n");
		return;
	}
	struct device *d = open_device(NULL, "bf16", 0);
	struct device_peaks p;
	int64_t before = device_bytes(d);
	device_peaks(d, &p);
	assert_true(p.fma_f32 > 1e9 && p.read_bytes > 1e8 && p.dot_bf16 >= 0);
	assert_int_equal(device_bytes(d), before);
	device_close(d);
}

struct profile_seen {
	int rows;
	struct device_profile_row linear, argmax;
};
static void profile_row(void *user, const struct device_profile_row *r)
{
	struct profile_seen *s = user;
	s->rows++;
	if (strstr(r->name, "linear"))
		s->linear = *r;
	if (!strcmp(r->name, "argmax"))
		s->argmax = *r;
}

/* Counts only between start and stop, from zero each time; the arithmetic and bytes are what the shapes say. */
static void test_profile(void **state)
{
	(void)state;
	enum { ROWS = 3, K = 40, N = 64 };
	struct device *d = open_device("reference", "bf16", 2);
	struct queue *q = queue_new(d);
	float *w = values(1, N * K, 1), *x = values(2, ROWS * K, 1);
	struct weight *wt = weight_of(d, w, N, K);
	struct tensor *xt = tensor_of(q, x, ROWS, K), *y = tensor_of(q, NULL, ROWS, N);
	struct profile_seen none = {0}, seen = {0};
	int32_t best[ROWS];
	assert_int_equal(op_linear(q, y, xt, wt, NULL, 0, N, false, ROWS), 0);
	device_profile(d, profile_row, &none);
	assert_int_equal(none.rows, 0);
	for (int round = 0; round < 2; round++) {
		device_profile_start(d);
		assert_int_equal(op_linear(q, y, xt, wt, NULL, 0, N, false, ROWS), 0);
		assert_int_equal(op_linear(q, y, xt, wt, NULL, 32, 32, false, ROWS), 0);
		assert_int_equal(op_argmax(q, y, N, ROWS, best), 0);
		device_profile_stop(d);
		assert_int_equal(op_argmax(q, y, N, ROWS, best), 0);
	}
	device_profile(d, profile_row, &seen);
	assert_int_equal(seen.rows, 2);
	assert_int_equal(seen.linear.calls, 2);
	assert_true(seen.linear.ns > 0 && seen.linear.flops == 2.0 * ROWS * K * (N + 32));
	assert_true(seen.linear.bytes == 2.0 * K * (N + 32));
	assert_int_equal(seen.argmax.calls, 1);
	assert_true(seen.argmax.bytes == 4.0 * ROWS * N);
	free(w), free(x);
	tensor_free(xt), tensor_free(y);
	weight_free(wt);
	queue_free(q);
	device_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_tiles_refused),
		cmocka_unit_test(test_too_many_threads), cmocka_unit_test(test_memory_limit),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_pool_sleeps),
		cmocka_unit_test(test_pool_near),
		cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_peaks),
		cmocka_unit_test(test_profile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
