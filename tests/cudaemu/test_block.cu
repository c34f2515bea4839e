// test_block.cu: a block and a grid: built-in indices, barriers, atomics, what unwritten memory reads as, launch limits, and the
// reports of deadlocks, divergent barriers and overflowing stacks.
#include "tests/cudaemu/test.h"

struct Indices {
	uint3 t, b;
	unsigned dims[6];
};
__global__ void indices(Indices *o)
{
	unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
	unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	o[block * blockDim.x * blockDim.y * blockDim.z + thread] = {
		threadIdx, blockIdx, {blockDim.x, blockDim.y, blockDim.z, gridDim.x, gridDim.y, gridDim.z}};
}
static void test_indices(void **)
{
	static Indices h[2 * 3 * 4 * 5 * 3 * 2];
	Indices *d = device_array<Indices>(720);
	for (const char *order : ORDERS) {
		cuemu_set_order(order);
		ok(start(indices, dim3(2, 3, 4), dim3(5, 3, 2), 0, 0, d));
		to_host(h, d, 720);
		for (unsigned i = 0; i < 720; i++) {
			unsigned t = i % 30, b = i / 30;
			const unsigned want[12] = {t % 5, t / 5 % 3, t / 15, b % 2, b / 2 % 3, b / 6, 5, 3, 2, 2, 3, 4};
			assert_memory_equal(&h[i], want, sizeof want);
		}
		ok(cudaMemset(d, 0, sizeof h));
	}
	cuemu_set_order("fwd");
	ok(cudaFree(d));
}

__global__ void reverse(int *o)
{ // through shared memory, twice: the barrier has to hold both ways
	__shared__ int s[200];
	int t = (int)threadIdx.x, n = (int)blockDim.x, v = t;
	for (int i = 0; i < 3; i++) {
		__syncthreads();
		s[t] = v + 1;
		__syncthreads();
		v = s[n - 1 - t];
	}
	o[blockIdx.x * n + t] = v;
}
__global__ void counts(int *o)
{
	int t = (int)threadIdx.x;
	int a = __syncthreads_count(t < 37), b = __syncthreads_or(t == 5), c = __syncthreads_and(t < 64),
	    d = __syncthreads_and(t < 63), e = __syncthreads_or(t < 0);
	o[t] = a + 1000 * (b != 0) + 10000 * (c != 0) + 100000 * (d != 0) + 1000000 * (e != 0);
}
__global__ void named(int *o)
{ // the two halves of a block have barriers of their own; one half does one round more
	__shared__ int s[128];
	int t = (int)threadIdx.x, half = t / 64, v = t;
	for (int i = 0; i < 3 + half; i++) {
		s[t] = v;
		cuemu::bar_sync(1 + half, 64);
		v = s[half * 64 + (t + 1) % 64];
		cuemu::bar_sync(1 + half, 64);
	}
	o[t] = v;
}
__global__ void leavers(int *o)
{ // threads that have left count as arrived
	if (threadIdx.x >= 40)
		return;
	__shared__ int s[64];
	s[threadIdx.x] = (int)threadIdx.x;
	__syncthreads();
	o[threadIdx.x] = s[39 - threadIdx.x];
}
static void test_barriers(void **)
{
	int h[400], *d = device_array<int>(400);
	for (const char *order : ORDERS) {
		cuemu_set_order(order);
		ok(start(reverse, 2, 200, 0, 0, d));
		to_host(h, d, 400);
		for (int i = 0; i < 400; i++)
			assert_int_equal(h[i], 199 - i % 200 + 3);
		ok(start(counts, 1, 64, 0, 0, d));
		to_host(h, d, 64);
		for (int i = 0; i < 64; i++)
			assert_int_equal(h[i], 11037);
		ok(start(named, 1, 128, 0, 0, d));
		to_host(h, d, 128);
		for (int i = 0; i < 128; i++)
			assert_int_equal(h[i], i / 64 * 64 + (i + 3 + i / 64) % 64);
		ok(start(leavers, 1, 64, 0, 0, d));
		to_host(h, d, 40);
		for (int i = 0; i < 40; i++)
			assert_int_equal(h[i], 39 - i);
	}
	cuemu_set_order("fwd");
	ok(cudaFree(d));
}

struct Sums {
	int add, sub, max, min, all, any, xored, inc, dec, exch, cas;
	unsigned long long wide;
	float real;
	double real64;
};
__global__ void atomics(Sums *s)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	atomicAdd(&s->add, i);
	atomicSub(&s->sub, 2);
	atomicMax(&s->max, i);
	atomicMin(&s->min, -i);
	atomicAnd(&s->all, ~(1 << i % 31));
	atomicOr(&s->any, 1 << i % 31);
	atomicXor(&s->xored, i);
	atomicInc((unsigned *)&s->inc, 9u);
	atomicDec((unsigned *)&s->dec, 9u);
	atomicExch(&s->exch, 5);
	for (int o = s->cas, n; (n = atomicCAS(&s->cas, o, o + 3)) != o;)
		o = n;
	atomicAdd(&s->wide, 1ull << 32);
	atomicAdd(&s->real, 0.5f);
	atomicAdd(&s->real64, 0.25);
}
__global__ void tickets(unsigned *count, float *part, float *sum)
{ // the block that comes last adds up what all have left
	__shared__ bool last;
	if (threadIdx.x == 0) {
		part[blockIdx.x] = (float)blockIdx.x;
		__threadfence();
		last = atomicAdd(count, 1u) == gridDim.x - 1;
		__threadfence();
	}
	__syncthreads();
	if (last && threadIdx.x == 0) {
		float s = 0;
		for (unsigned i = 0; i < gridDim.x; i++)
			s += part[i];
		*sum = s;
	}
}
static void test_atomics(void **)
{
	Sums *d = device_array<Sums>(1), h;
	ok(cudaMemset(d, 0, sizeof h));
	h = {};
	h.all = -1;
	to_device(d, &h, 1);
	const int n = 37 * 64;
	ok(start(atomics, 37, 64, 0, 0, d));
	to_host(&h, d, 1);
	int x = 0, inc = 0, dec = 0;
	for (int i = 0; i < n; i++) {
		x ^= i;
		inc = inc >= 9 ? 0 : inc + 1;
		dec = dec == 0 || dec > 9 ? 9 : dec - 1;
	}
	assert_int_equal(h.add, n * (n - 1) / 2);
	assert_int_equal(h.sub, -2 * n);
	assert_int_equal(h.max, n - 1);
	assert_int_equal(h.min, 1 - n);
	assert_int_equal(h.all, (int)0x80000000);
	assert_int_equal(h.any, 0x7fffffff);
	assert_int_equal(h.xored, x);
	assert_int_equal(h.inc, inc);
	assert_int_equal(h.dec, dec);
	assert_int_equal(h.exch, 5);
	assert_int_equal(h.cas, 3 * n);
	assert_true(h.wide == (unsigned long long)n << 32 && h.real == n * 0.5f && h.real64 == n * 0.25);
	float *part = device_array<float>(101), sum = 0;
	ok(cudaMemset(part, 0, 101 * 4));
	unsigned *count = device_array<unsigned>(1);
	ok(cudaMemset(count, 0, 4));
	ok(start(tickets, 100, 32, 0, 0, count, part, part + 100));
	to_host(&sum, part + 100, 1);
	assert_true(sum == 4950);
	ok(cudaFree(d));
	ok(cudaFree(part));
	ok(cudaFree(count));
}

__global__ void unwritten(float *o, float *never, int write)
{
	extern __shared__ __align__(16) unsigned char smem_raw[];
	__shared__ float fixed[4];
	__shared__ double one;
	float *dynamic = (float *)smem_raw;
	float *r = o + 4 * blockIdx.x;
	r[0] = never[threadIdx.x];
	r[1] = dynamic[255];
	r[2] = fixed[3];
	r[3] = (float)one;
	if (write)
		dynamic[255] = fixed[3] = 1, one = 1; // must be gone in the next block
}
static void test_unwritten_memory_is_nan(void **)
{
	float *o = device_array<float>(4000), *never = device_array<float>(16), h[4000];
	for (int write = 0; write < 2; write++) {
		ok(start(unwritten, 1000, 1, 1024, 0, o, never, write));
		to_host(h, o, 4000);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
		for (int i = 0; i < 2; i++)
			assert_true(isnan(h[i])); // static shared memory is filled in the plain build alone
#else
		for (int i = 0; i < 4000; i++)
			assert_true(isnan(h[i]));
#endif
	}
	ok(cudaFree(o));
	ok(cudaFree(never));
}

__global__ void nothing(float *)
{
}
static void test_launch_limits(void **)
{
	float *d = device_array<float>(4);
	assert_int_equal(start(nothing, 1, 1025, 0, 0, d), cudaErrorInvalidConfiguration);
	assert_int_equal(start(nothing, 0, 32, 0, 0, d), cudaErrorInvalidConfiguration);
	assert_int_equal(start(nothing, dim3(1, 65536), 32, 0, 0, d), cudaErrorInvalidConfiguration);
	assert_int_equal(start(nothing, 1, dim3(1, 1, 65), 0, 0, d), cudaErrorInvalidConfiguration);
	assert_int_equal(start(nothing, 1, 32, 48 * 1024 + 1, 0, d), cudaErrorInvalidValue);
	assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
	assert_int_equal(cudaGetLastError(), cudaSuccess);
	ok(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024));
	ok(start(nothing, 1, 1024, 100 * 1024, 0, d));
	assert_int_equal(
		cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024), cudaErrorInvalidValue);
	float *p = d;
	void *args[] = {&p};
	ok(cudaLaunchKernel(nothing, dim3(3), dim3(32), args, 0, nullptr));
	ok(cudaDeviceSynchronize());
	cudaGetLastError();
	ok(cudaFree(d));
}

__global__ void one_waits(float *x)
{
	if (threadIdx.x & 1)
		x[threadIdx.x] = __shfl_xor_sync(~0u, 1.f, 1);
	else
		__syncthreads();
}
__global__ void two_barriers(float *x)
{
	if (threadIdx.x < 32)
		__syncthreads();
	else {
		x[0] = 1;
		__syncthreads();
	}
}
__global__ void deep(float *x)
{
	volatile float big[40000];
	for (int i = 0; i < 40000; i++)
		big[i] = x[0];
	x[1] = big[7];
}
__global__ void gives_up(float *)
{
	__trap();
}
template <void (*K)(float *)> static void run_bad()
{
	float *d;
	cudaMalloc(&d, 256);
	start(K, 1, 64, 0, 0, d);
	cudaDeviceSynchronize();
}
static void test_reports(void **)
{
	assert_dies(run_bad<one_waits>, "deadlock in block (0,0,0): nobody can run; 64 of 64 threads");
	assert_dies(run_bad<one_waits>, "waiting in __shfl_xor_sync at tests/cudaemu/test_block.cu:");
	assert_dies(run_bad<one_waits>, "warp 1 lanes aaaaaaaa");
	assert_dies(run_bad<two_barriers>, "threads of one block wait at different barriers");
	assert_dies(run_bad<deep>, "stack overflow");
	assert_dies(run_bad<gives_up>, "__trap()");
}

int main()
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_indices), cmocka_unit_test(test_barriers),
		cmocka_unit_test(test_atomics), cmocka_unit_test(test_unwritten_memory_is_nan),
		cmocka_unit_test(test_launch_limits), cmocka_unit_test(test_reports)};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
