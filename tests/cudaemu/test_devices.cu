// test_devices.cu: two devices with memory of their own, the limit of that memory, checked pointers and copies, injected and
// sticky errors, and the name that keeps an emulated result from passing as a GPU's.
#include "tests/cudaemu/test.h"

__global__ void set(float *p, float v)
{
	p[threadIdx.x] = v;
}
__global__ void add(float *to, const float *from)
{
	to[threadIdx.x] += from[threadIdx.x];
}
struct Pair {
	float *to;
	const float *from;
};
__global__ void add_pair(Pair p)
{
	p.to[threadIdx.x] += p.from[threadIdx.x];
}

static float *array_on(int device)
{
	ok(cudaSetDevice(device));
	return device_array<float>(32);
}
static void test_names_and_limits(void **)
{
	int n = 0, v = 0;
	struct cudaDeviceProp p;
	ok(cudaGetDeviceCount(&n));
	assert_int_equal(n, 2);
	for (int d = 0; d < 2; d++) {
		ok(cudaGetDeviceProperties(&p, d));
		assert_int_equal(strncmp(p.name, "emulated", 8), 0);
		assert_int_equal(p.major, 8);
		ok(cudaDeviceGetAttribute(&v, cudaDevAttrMaxSharedMemoryPerBlockOptin, d));
		assert_int_equal((size_t)v, p.sharedMemPerBlockOptin);
	}
	assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
	assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
	ok(cudaSetDevice(0));
}

static void test_memory_limit(void **)
{
	size_t before, total, now;
	void *a, *b = &a;
	cuemu_set_memory(1, 1 << 20);
	ok(cudaSetDevice(1));
	ok(cudaMemGetInfo(&before, &total));
	assert_int_equal(total, 1 << 20);
	ok(cudaMalloc(&a, 700000));
	assert_int_equal(cudaMalloc(&b, 700000), cudaErrorMemoryAllocation);
	assert_null(b);
	assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaSuccess); // not sticky
	ok(cudaMemGetInfo(&now, &total));
	assert_int_equal(before - now, 700000);
	ok(cudaSetDevice(0)); // the other device has its own
	ok(cudaMalloc(&b, 2 << 20));
	ok(cudaFree(b));
	ok(cudaFree(a));
	assert_int_equal(cudaFree(a), cudaErrorInvalidValue);
	cudaGetLastError();
	cuemu_set_memory(1, 1 << 30);
}

static void test_copies_stay_inside(void **)
{
	float h[64] = {0}, *d = array_on(0);
	ok(cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice));
	assert_int_equal(cudaMemcpy(d + 1, h, 128, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	assert_int_equal(cudaMemcpy(h, d, 132, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
	assert_int_equal(cudaMemcpy(h, d, 128, cudaMemcpyHostToDevice), cudaErrorInvalidValue); // the wrong way
	assert_int_equal(cudaMemcpy(d, d, 128, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
	assert_int_equal(cudaMemset(d, 0, 129), cudaErrorInvalidValue);
	for (int i = 0; i < 64; i++)
		h[i] = (float)i;
	ok(cudaMemcpy2D(d, 32, h, 64, 32, 4, cudaMemcpyHostToDevice)); // 4 rows of 8 floats out of rows of 16
	assert_int_equal(cudaMemcpy2D(d, 32, h, 64, 32, 5, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	assert_int_equal(cudaMemcpy2D(d, 16, h, 64, 32, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	ok(cudaMemcpy(h, d, 128, cudaMemcpyDefault));
	for (int i = 0; i < 32; i++)
		assert_true(h[i] == i / 8 * 16 + i % 8);
	cudaGetLastError();
	ok(cudaFree(d));
}

static void test_two_devices(void **)
{
	float *a = array_on(0), *b = array_on(1), h[32];
	cudaStream_t s1;
	cudaEvent_t e1;
	struct cudaPointerAttributes at;
	ok(cudaStreamCreateWithFlags(&s1, cudaStreamNonBlocking)); // of device 1
	ok(cudaEventCreate(&e1));
	ok(cudaPointerGetAttributes(&at, b));
	assert_true(at.type == cudaMemoryTypeDevice && at.device == 1);
	ok(start(set, 1, 32, 0, s1, b, 2.f));
	ok(cudaEventRecord(e1, s1));
	ok(cudaSetDevice(0));
	assert_int_equal(start(set, 1, 32, 0, s1, a, 1.f), cudaErrorInvalidResourceHandle); // a stream of the other device
	assert_int_equal(cudaEventRecord(e1, 0), cudaErrorInvalidResourceHandle);
	assert_int_equal(cudaMemcpy(a, b, 128, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
	cudaGetLastError();
	ok(start(set, 1, 32, 0, 0, a, 1.f));
	ok(cudaStreamWaitEvent(0, e1, 0)); // an event of another device may be waited for
	ok(cudaMemcpyPeerAsync(a, 0, b, 1, 128, 0));
	ok(cudaDeviceSynchronize());
	to_host(h, a, 32);
	assert_true(h[0] == 2 && h[31] == 2);
	assert_int_equal(cudaMemcpyPeer(a, 1, b, 0, 128), cudaErrorInvalidValue); // said to lie on the wrong devices
	int can = 0;
	ok(cudaDeviceCanAccessPeer(&can, 0, 1));
	assert_true(can);
	ok(cudaDeviceEnablePeerAccess(1, 0));
	assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
	ok(start(add, 1, 32, 0, 0, a, (const float *)b)); // now device 0 may read device 1
	ok(cudaMemcpy(h, a, 128, cudaMemcpyDeviceToHost));
	assert_true(h[5] == 4);
	ok(cudaDeviceDisablePeerAccess(1));
	cuemu_set_peer(false);
	ok(cudaDeviceCanAccessPeer(&can, 0, 1));
	assert_false(can);
	assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
	cuemu_set_peer(true);
	cudaGetLastError();
	ok(cudaFree(a));
	ok(cudaFree(b));
	ok(cudaEventDestroy(e1));
	ok(cudaStreamDestroy(s1));
}
static void kernel_takes_other_device()
{
	float *a = array_on(1);
	cudaSetDevice(0);
	start(set, 1, 32, 0, 0, a, 1.f);
}
static void kernel_reaches_other_device()
{ // through a structure, where the arguments do not show it
	float *b = array_on(1), *a = array_on(0);
	start(add_pair, 1, 32, 0, 0, Pair{a, b});
	cudaDeviceSynchronize();
}
static void kernel_takes_host_pointer()
{
	static float h[32];
	start(set, 1, 32, 0, 0, h, 1.f);
}
static void kernel_takes_freed()
{
	float *a = array_on(0);
	cudaFree(a);
	start(set, 1, 32, 0, 0, a, 1.f);
}
static void kernel_runs_over()
{
	float *a;
	cudaMalloc(&a, 4096);
	start(set, 1, 32, 0, 0, a + 1024 - 16, 1.f);
	cudaDeviceSynchronize();
}
static void test_reports(void **)
{
	assert_dies(kernel_takes_other_device, "argument 1");
	assert_dies(kernel_takes_other_device, "memory of another device without peer access");
	assert_dies(kernel_reaches_other_device, "a kernel of device 0 touched memory of device 1 without peer access");
	assert_dies(kernel_takes_host_pointer, "neither device nor pinned memory");
	assert_dies(kernel_takes_freed, "memory that was freed");
	assert_dies(kernel_runs_over, "access 0 bytes behind the end of an allocation of 4096 bytes");
}

static void test_injected_errors(void **)
{
	void *p;
	float *d = array_on(0);
	assert_int_equal(cuemu_fail("nonsense"), -1);
	assert_int_equal(cuemu_fail("cudaMalloc:0"), -1);
	ok(cuemu_fail("cudaMalloc:2,launch:3:719,cudaMemset:1:4"));
	ok(cudaMalloc(&p, 16));
	ok(cudaFree(p));
	assert_int_equal(cudaMalloc(&p, 16), cudaErrorMemoryAllocation);
	ok(cudaMalloc(&p, 16));
	ok(cudaFree(p));
	ok(start(set, 1, 32, 0, 0, d, 1.f));
	ok(start(set, 1, 32, 0, 0, d, 1.f));
	assert_int_equal(start(set, 1, 32, 0, 0, d, 1.f), cudaErrorLaunchFailure);
	ok(start(set, 1, 32, 0, 0, d, 1.f));
	assert_int_equal(cudaMemset(d, 0, 4), 4);
	assert_int_equal(cuemu_calls("launch"), 4);
	assert_int_equal(cuemu_calls("cudaMalloc"), 3);
	cudaGetLastError();
	ok(cuemu_fail("any:3")); // whichever call it is
	ok(cudaSetDevice(0));
	ok(cudaDeviceSynchronize());
	assert_int_equal(cudaSetDevice(0), cudaErrorUnknown);
	ok(cuemu_fail("alloc_bytes:1000"));
	ok(cudaMalloc(&p, 600));
	void *q;
	assert_int_equal(cudaMalloc(&q, 600), cudaErrorMemoryAllocation); // though the device has room
	ok(cudaFree(p));
	cudaGetLastError();
	ok(cuemu_fail(nullptr));
	ok(cudaFree(d));
}
static void test_sticky_errors(void **)
{
	float *d = array_on(0), h[32];
	ok(cuemu_fail("launch:2:sticky"));
	ok(start(set, 1, 32, 0, 0, d, 1.f));
	ok(start(set, 1, 32, 0, 0, d, 2.f)); // accepted: it fails when it runs
	assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	assert_int_equal(cudaMemcpy(h, d, 128, cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
	assert_int_equal(start(set, 1, 32, 0, 0, d, 1.f), cudaErrorIllegalAddress);
	void *p;
	assert_int_equal(cudaMalloc(&p, 4), cudaErrorIllegalAddress);
	assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress); // and stays
	assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
	ok(cuemu_fail(nullptr)); // a test may go on
	ok(cudaFree(d));
	// once=PATH: a program that restarts itself meets the error one time
	char path[] = "/tmp/cuemu-once-XXXXXX", spec[64];
	close(mkstemp(path));
	unlink(path);
	snprintf(spec, sizeof spec, "cudaSetDevice:1,once=%s", path);
	ok(cuemu_fail(spec));
	assert_int_equal(cudaSetDevice(0), cudaErrorUnknown);
	ok(cuemu_fail(spec));
	ok(cudaSetDevice(0));
	unlink(path);
	ok(cuemu_fail(nullptr));
}

int main()
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_and_limits), cmocka_unit_test(test_memory_limit),
		cmocka_unit_test(test_copies_stay_inside), cmocka_unit_test(test_two_devices), cmocka_unit_test(test_reports),
		cmocka_unit_test(test_injected_errors), cmocka_unit_test(test_sticky_errors)};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
