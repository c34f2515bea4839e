// test_streams.cu: streams run late and in every order that events allow; the host sees what it waited for and nothing else.
#include <time.h>

#include "tests/cudaemu/test.h"

__global__ void append(int *log, int *n, int id)
{
	log[(*n)++] = id;
} // one thread: the order in which kernels ran
__global__ void set(float *p, float v)
{
	p[threadIdx.x] = v;
}
__global__ void add(float *to, const float *from)
{
	to[threadIdx.x] += from[threadIdx.x];
}

struct Log {
	int *log, *n;
	int host[64];
};
static Log log_new()
{
	Log l;
	l.log = device_array<int>(64);
	l.n = device_array<int>(1);
	ok(cudaMemset(l.n, 0, 4));
	ok(cudaDeviceSynchronize());
	return l;
}
static void log_read(Log *l)
{
	ok(cudaDeviceSynchronize());
	to_host(l->host, l->log, 64);
	ok(cudaFree(l->log));
	ok(cudaFree(l->n));
}
static int at(const Log &l, int id)
{
	for (int i = 0; i < 64; i++)
		if (l.host[i] == id)
			return i;
	return -1;
}
static cudaStream_t stream_new()
{
	cudaStream_t s;
	ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	return s;
}

// Four operations in each of two streams, nothing between them: each stream keeps its order, and over the seeds both get ahead.
static void test_unordered_streams_run_in_any_order(void **)
{
	int first_wins = 0, alternates = 0, whole = 0;
	for (int seed = 1; seed <= 40; seed++) {
		cuemu_set_seed((uint64_t)seed);
		cudaStream_t a = stream_new(), b = stream_new();
		Log l = log_new();
		for (int i = 0; i < 4; i++) {
			ok(start(append, 1, 1, 0, a, l.log, l.n, i));
			ok(start(append, 1, 1, 0, b, l.log, l.n, 10 + i));
		}
		log_read(&l);
		int changes = 0;
		for (int i = 0; i < 3; i++)
			assert_true(at(l, i) < at(l, i + 1) && at(l, 10 + i) < at(l, 11 + i));
		for (int i = 0; i < 7; i++)
			changes += l.host[i] / 10 != l.host[i + 1] / 10;
		first_wins += at(l, 3) < at(l, 13);
		alternates += changes > 2;
		whole += changes == 1;
		ok(cudaStreamDestroy(a));
		ok(cudaStreamDestroy(b));
	}
	assert_in_range(first_wins, 5, 35);
	assert_in_range(alternates, 5, 40);
	assert_in_range(whole, 1, 30);
	cuemu_set_seed(0); // the order of submission
	cudaStream_t a = stream_new(), b = stream_new();
	Log l = log_new();
	for (int i = 0; i < 8; i++)
		ok(start(append, 1, 1, 0, i % 3 ? a : b, l.log, l.n, i));
	log_read(&l);
	for (int i = 0; i < 8; i++)
		assert_int_equal(l.host[i], i);
	ok(cudaStreamDestroy(a));
	ok(cudaStreamDestroy(b));
	cuemu_set_seed(1);
}

static void test_events_order_streams(void **)
{
	for (int seed = 1; seed <= 40; seed++) {
		cuemu_set_seed((uint64_t)seed);
		cudaStream_t a = stream_new(), b = stream_new();
		cudaEvent_t e;
		ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
		ok(cudaStreamWaitEvent(b, e, 0)); // never recorded: waits for nothing
		Log l = log_new();
		ok(start(append, 1, 1, 0, a, l.log, l.n, 1));
		ok(cudaEventRecord(e, a));
		ok(start(append, 1, 1, 0, a, l.log, l.n, 2));
		ok(start(append, 1, 1, 0, b, l.log, l.n, 3));
		ok(cudaStreamWaitEvent(b, e, 0)); // the recording of now: behind 1
		ok(start(append, 1, 1, 0, b, l.log, l.n, 4));
		ok(cudaEventRecord(e, b)); // recorded again: the wait above keeps its own
		ok(cudaStreamWaitEvent(a, e, 0));
		ok(start(append, 1, 1, 0, a, l.log, l.n, 5));
		ok(cudaEventDestroy(e)); // may go at once
		log_read(&l);
		assert_true(at(l, 1) < at(l, 4) && at(l, 4) < at(l, 5) && at(l, 2) < at(l, 5) && at(l, 3) < at(l, 4));
		ok(cudaStreamDestroy(a));
		ok(cudaStreamDestroy(b));
	}
	cuemu_set_seed(1);
}

// A missing wait must show in the values for some seed.
static void test_a_missing_wait_shows(void **)
{
	int wrong = 0;
	for (int seed = 1; seed <= 20; seed++) {
		cuemu_set_seed((uint64_t)seed);
		cudaStream_t a = stream_new(), b = stream_new();
		float *x = device_array<float>(32), *y = device_array<float>(32), h[32];
		ok(cudaMemset(y, 0, 128));
		ok(cudaDeviceSynchronize());
		ok(start(set, 1, 32, 0, a, x, 1.f));
		ok(start(add, 1, 32, 0, b, y, x));
		ok(cudaDeviceSynchronize());
		to_host(h, y, 32);
		wrong += !(h[3] == 1);
		ok(cudaFree(x));
		ok(cudaFree(y));
		ok(cudaStreamDestroy(a));
		ok(cudaStreamDestroy(b));
	}
	assert_in_range(wrong, 3, 17);
}

static void test_default_stream_rules(void **)
{
	for (int seed = 1; seed <= 20; seed++) {
		cuemu_set_seed((uint64_t)seed);
		cudaStream_t a, free_one = stream_new();
		ok(cudaStreamCreate(&a));
		Log l = log_new();
		ok(start(append, 1, 1, 0, a, l.log, l.n, 1));
		ok(start(append, 1, 1, 0, 0, l.log, l.n, 2));
		ok(start(append, 1, 1, 0, a, l.log, l.n, 3));
		log_read(&l);
		assert_true(at(l, 1) < at(l, 2) && at(l, 2) < at(l, 3));
		l = log_new();
		ok(start(append, 1, 1, 0, free_one, l.log, l.n, 1));
		int two = 0;
		ok(cudaMemcpy(&two, l.n, 4, cudaMemcpyDeviceToHost)); // waits for nothing in a non-blocking stream
		ok(cudaStreamSynchronize(free_one));
		log_read(&l);
		ok(cudaStreamDestroy(a));
		ok(cudaStreamDestroy(free_one));
	}
	cuemu_set_seed(1);
}

static void test_the_host_must_wait(void **)
{
	cudaStream_t s = stream_new();
	float *d = device_array<float>(32), *pinned, h[32] = {0};
	ok(cudaMallocHost((void **)&pinned, 128));
	assert_true(isnan(pinned[0]));
	ok(start(set, 1, 32, 0, s, d, 3.f));
	ok(cudaMemcpyAsync(h, d, 128, cudaMemcpyDeviceToHost, s));
	assert_true(h[0] == 0); // late
	assert_int_equal(cuemu_pending(), 2);
	ok(cudaStreamSynchronize(s));
	assert_true(h[0] == 3 && cuemu_pending() == 0);
	// a pageable source may be reused at once, a pinned one only when the copy is done
	for (int i = 0; i < 32; i++)
		h[i] = pinned[i] = 5;
	ok(cudaMemcpyAsync(d, h, 128, cudaMemcpyHostToDevice, s));
	h[0] = 6;
	ok(cudaStreamSynchronize(s));
	to_host(h, d, 32);
	assert_true(h[0] == 5);
	ok(cudaMemcpyAsync(d, pinned, 128, cudaMemcpyHostToDevice, s));
	pinned[0] = 6;
	ok(cudaStreamSynchronize(s));
	to_host(h, d, 32);
	assert_true(h[0] == 6);
	cuemu_set_eager(true); // each operation at once
	ok(start(set, 1, 32, 0, s, d, 4.f));
	assert_int_equal(cuemu_pending(), 0);
	cuemu_set_eager(false);
	ok(cudaFreeHost(pinned));
	ok(cudaFree(d));
	ok(cudaStreamDestroy(s));
}

static void called(void *user)
{
	(*(int *)user)++;
}
static void test_queries_host_functions_times(void **)
{
	cudaStream_t s;
	int least, greatest, p, n = 0, polls = 0;
	ok(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	assert_true(greatest < least);
	ok(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest));
	ok(cudaStreamGetPriority(s, &p));
	assert_int_equal(p, greatest);
	cudaEvent_t a, b, no_time;
	ok(cudaEventCreate(&a));
	ok(cudaEventCreate(&b));
	ok(cudaEventCreateWithFlags(&no_time, cudaEventDisableTiming));
	float *d = device_array<float>(32), ms = -1;
	assert_int_equal(cudaEventElapsedTime(&ms, a, b), cudaErrorInvalidResourceHandle); // never recorded
	ok(cudaEventRecord(a, s));
	for (int i = 0; i < 5; i++)
		ok(start(set, 1, 32, 0, s, d, 3.f));
	ok(cudaLaunchHostFunc(s, called, &n));
	ok(cudaEventRecord(b, s));
	ok(cudaEventRecord(no_time, s));
	assert_int_equal(cudaEventElapsedTime(&ms, a, b), cudaErrorNotReady);
	assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
	assert_int_equal(n, 0);
	while (cudaEventQuery(b) == cudaErrorNotReady)
		polls++;
	assert_in_range(polls, 2, 10);
	assert_int_equal(n, 1);
	ok(cudaEventElapsedTime(&ms, a, b));
	assert_true(ms > 0 && ms < 10000);
	assert_int_equal(cudaEventElapsedTime(&ms, a, no_time), cudaErrorInvalidResourceHandle);
	while (cudaStreamQuery(s) == cudaErrorNotReady) {
	}
	ok(cudaEventSynchronize(no_time));
	cudaGetLastError();
	ok(cudaEventDestroy(a));
	ok(cudaEventDestroy(b));
	ok(cudaEventDestroy(no_time));
	assert_int_equal(cudaEventDestroy(b), cudaErrorInvalidResourceHandle);
	ok(cudaStreamDestroy(s));
	assert_int_equal(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
	cudaGetLastError();
	ok(cudaFree(d));
	struct cuemu_live live;
	cuemu_live(&live);
	assert_int_equal(live.events + live.streams + live.device_allocations + live.pinned_allocations, 0);
}

static void reads_device_memory()
{
	cuemu_set_protect(true);
	float *d;
	cudaMalloc(&d, 256);
	cudaMemset(d, 0, 256);
	cudaDeviceSynchronize();
	_exit(d[3] == 0);
}
static void test_protected_memory(void **)
{
	assert_dies(reads_device_memory, "the host touched memory of device 0");
#ifndef __SANITIZE_ADDRESS__
	cuemu_set_protect(true);
	float *d = device_array<float>(32), h[32];
	ok(start(set, 1, 32, 0, 0, d, 7.f)); // work and copies still reach it
	to_host(h, d, 32);
	assert_true(h[31] == 7);
	ok(cudaFree(d));
	cuemu_set_protect(false);
#endif
}

// A stream that is destroyed goes on with what was put on it; nobody waits.
static void test_destroyed_streams_finish(void **)
{
	cudaStream_t s;
	float *d = device_array<float>(32), h[32];
	ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	ok(start(set, 1, 32, 0, s, d, 5.f));
	ok(cudaStreamDestroy(s));
	assert_int_equal(cuemu_pending(), 1);
	assert_int_equal(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
	cudaGetLastError();
	struct cuemu_live l;
	cuemu_live(&l);
	assert_int_equal(l.streams, 0);
	ok(cudaDeviceSynchronize());
	assert_int_equal(cuemu_pending(), 0);
	to_host(h, d, 32);
	assert_true(h[0] == 5 && h[31] == 5);
	ok(cudaFree(d));
}

int main()
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_unordered_streams_run_in_any_order),
		cmocka_unit_test(test_events_order_streams), cmocka_unit_test(test_a_missing_wait_shows),
		cmocka_unit_test(test_default_stream_rules), cmocka_unit_test(test_the_host_must_wait),
		cmocka_unit_test(test_queries_host_functions_times), cmocka_unit_test(test_protected_memory),
		cmocka_unit_test(test_destroyed_streams_finish)};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
