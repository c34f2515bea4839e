// races.cu: the TSan build as a race checker: each case is one small program, right or with one thing left out. test_races.sh
// runs all of them and looks whether a race is reported exactly where one is. races CASE runs one, races lists them: "clean NAME"
// or "race NAME".
#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>

#include "runners/device/cuda/tma.cuh"
#include "tests/cudaemu/control.h"

template <class... P, class... A> static void start(void (*k)(P...), dim3 grid, dim3 block, cudaStream_t s, A &&...a)
{
	cudaLaunchConfig_t c = {};
	c.gridDim = grid;
	c.blockDim = block;
	c.dynamicSmemBytes = 4096;
	c.stream = s;
	if (cudaLaunchKernelEx(&c, k, std::forward<A>(a)...))
		abort();
}
template <class T> static T *device_array(size_t n)
{
	T *p;
	if (cudaMalloc((void **)&p, n * sizeof(T)) || cudaMemset(p, 0, n * sizeof(T)))
		abort();
	cudaDeviceSynchronize();
	return p;
}
enum { N = 64 };

__global__ void turn(float *o, bool first, bool second)
{ // write, read of another's, write again
	__shared__ float s[N];
	int t = (int)threadIdx.x;
	s[t] = (float)t;
	if (first)
		__syncthreads();
	o[t] = s[N - 1 - t];
	if (second)
		__syncthreads();
	s[t] = 1;
}
static void block(bool first, bool second)
{
	start(turn, 1, N, 0, device_array<float>(N), first, second);
}

__global__ void neighbours(float *o, bool fence)
{ // inside a warp
	__shared__ float s[32];
	int t = (int)threadIdx.x;
	s[t] = (float)t;
	if (fence)
		__syncwarp();
	else
		__shfl_sync(~0u, 1, 0); // lanes meet, but a shuffle orders no memory
	o[t] = s[t ^ 1];
}
static void warp(bool fence)
{
	start(neighbours, 1, 32, 0, device_array<float>(32), fence);
}

__global__ void histogram(int *o, bool atomic)
{
	__shared__ int h[4];
	int t = (int)threadIdx.x;
	if (t < 4)
		h[t] = 0;
	__syncthreads();
	if (atomic)
		atomicAdd(&h[t & 3], 1);
	else
		h[t & 3]++;
	__syncthreads();
	if (t < 4)
		atomicAdd(&o[t], h[t]);
}
static void shared_counts(bool atomic)
{
	start(histogram, 2, N, 0, device_array<int>(4), atomic);
}

__global__ void total(int *o, bool atomic)
{ // between blocks
	if (threadIdx.x)
		return;
	if (atomic)
		atomicAdd(o, 1);
	else
		*o += 1;
}
static void global_counts(bool atomic)
{
	start(total, 8, 32, 0, device_array<int>(1), atomic);
}

__global__ void last_block(unsigned *count, float *part, float *sum)
{
	__shared__ bool last;
	if (threadIdx.x == 0) {
		part[blockIdx.x] = 1;
		__threadfence();
		last = atomicAdd(count, 1u) == gridDim.x - 1;
		__threadfence();
	}
	__syncthreads();
	if (last && threadIdx.x < gridDim.x)
		atomicAdd(sum, part[threadIdx.x]);
}
static void ticket(bool)
{
	start(last_block, 8, 32, 0, device_array<unsigned>(1), device_array<float>(8), device_array<float>(1));
}

__global__ void staged(float *o, const float *in, bool barrier)
{ // each thread copies for its neighbour
	__shared__ __align__(16) float s[N * 4];
	int t = (int)threadIdx.x;
	cuemu::cp_async(s + 4 * t, in + 4 * t, 16);
	cuemu::cp_async_commit();
	cuemu::cp_async_wait(0);
	if (barrier)
		__syncthreads();
	o[t] = s[(4 * t + 4) % (4 * N)];
}
static void async_copy(bool barrier)
{
	start(staged, 1, N, 0, device_array<float>(N), (const float *)device_array<float>(4 * N), barrier);
}

__global__ void set(float *p)
{
	p[threadIdx.x] = 3;
}
__global__ void use(float *o, const float *p)
{
	o[threadIdx.x] = p[threadIdx.x];
}
static void stream_pair(cudaStream_t s[2])
{
	for (int i = 0; i < 2; i++)
		cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking);
}
static void order(cudaStream_t first, cudaStream_t second, bool wait)
{
	cudaEvent_t e;
	cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
	cudaEventRecord(e, first);
	if (wait)
		cudaStreamWaitEvent(second, e, 0);
}
static void two_streams(bool wait)
{
	cudaStream_t s[2];
	stream_pair(s);
	float *a = device_array<float>(N), *b = device_array<float>(N);
	start(set, 1, N, s[0], a);
	order(s[0], s[1], wait);
	start(use, 1, N, s[1], b, (const float *)a);
	cudaDeviceSynchronize();
}
static void kernel_then_copy(bool wait)
{
	cudaStream_t s[2];
	stream_pair(s);
	float *a = device_array<float>(N), *b = device_array<float>(N);
	start(set, 1, N, s[0], a);
	order(s[0], s[1], wait);
	cudaMemcpyAsync(b, a, N * 4, cudaMemcpyDeviceToDevice, s[1]);
	cudaDeviceSynchronize();
}
static void product_then_kernel(bool wait)
{
	cudaStream_t s[2];
	stream_pair(s);
	float *a = device_array<float>(64), *c = device_array<float>(N), *o = device_array<float>(N), one = 1, zero = 0;
	cublasHandle_t h;
	cublasCreate(&h);
	cublasSetStream(h, s[0]);
	cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, a, 8, a, 8, &zero, c, 8);
	order(s[0], s[1], wait);
	start(use, 1, N, s[1], o, (const float *)c);
	cudaDeviceSynchronize();
}
static void chain(bool wait)
{ // over a third stream
	cudaStream_t s[2], t[2];
	stream_pair(s);
	stream_pair(t);
	float *a = device_array<float>(N), *b = device_array<float>(N);
	start(set, 1, N, s[0], a);
	order(s[0], t[0], true);
	order(t[0], s[1], wait);
	start(use, 1, N, s[1], b, (const float *)a);
	cudaDeviceSynchronize();
}
static void read_back(bool wait)
{
	cudaStream_t s[2];
	stream_pair(s);
	float *a = device_array<float>(N), *h;
	cudaMallocHost((void **)&h, N * 4);
	start(set, 1, N, s[0], a);
	cudaMemcpyAsync(h, a, N * 4, cudaMemcpyDeviceToHost, s[0]);
	if (wait)
		cudaStreamSynchronize(s[0]);
	volatile float x = h[5];
	(void)x;
	cudaDeviceSynchronize();
}
static void upload_twice(bool wait)
{ // a pinned buffer may be written again only when the copy has read it
	cudaStream_t s[2];
	stream_pair(s);
	float *a = device_array<float>(N), *h;
	cudaMallocHost((void **)&h, N * 4);
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < N; j++)
			h[j] = (float)i;
		cudaMemcpyAsync(a, h, N * 4, cudaMemcpyHostToDevice, s[0]);
		if (wait)
			cudaStreamSynchronize(s[0]);
	}
	cudaDeviceSynchronize();
}

enum { BOX_ALL, BOX_NO_INIT, BOX_NO_WAIT, BOX_NO_EMPTY };
__global__ void two_boxes(float *o, const CUtensorMap *map, int missing)
{ // warp 0 asks for one box after the other, warp 1 reads them; then the first place is used again
	extern __shared__ __align__(16) unsigned char smem_raw[];
	__shared__ uint64_t bar[2];
	uint32_t start = shared_address(smem_raw);
	unsigned char *box = smem_raw + ((start + 1023) / 1024 * 1024 - start);
	int t = (int)threadIdx.x;
	if (t == 0) {
		for (int i = 0; i < 2; i++)
			mbar_init(&bar[i], 1);
		mbar_made();
		map_acquire(map);
	}
	if (missing != BOX_NO_INIT)
		__syncthreads();
	for (int i = 0; i < 3; i++) {
		if (t == 0) {
			if (i == 2)
				mbar_wait(&bar[0], 0);
			mbar_arrive_expect(&bar[i % 2], 1024);
			box_copy(box + i % 2 * 1024, map, 0, 8 * i, &bar[i % 2]);
		}
		if (i == 1)
			for (int j = 0; j < 2 && t >= 32; j++) {
				if (j > 0 || missing != BOX_NO_WAIT)
					mbar_wait(&bar[j], 0);
				o[j * 32 + t - 32] = *(float *)(box + j * 1024 + (t - 32) * 32);
			}
		if (i == 1 && missing != BOX_NO_EMPTY)
			bar_sync(1, 64);
	}
	mbar_wait(&bar[0], 1);
}
static void boxes(int missing)
{
	CUtensorMap map, *there = device_array<CUtensorMap>(1);
	float *x = device_array<float>(24 * 32);
	uint64_t dims[2] = {32, 24}, stride = 128;
	uint32_t extent[2] = {32, 8}, steps[2] = {1, 1};
	if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x, dims, &stride, extent, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
		    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) ||
		cudaMemcpy(there, &map, sizeof map, cudaMemcpyHostToDevice))
		abort();
	start(two_boxes, 1, 64, 0, device_array<float>(64), (const CUtensorMap *)there, missing);
}

static const struct {
	const char *name;
	bool races;
	void (*run)(void);
} cases[] = {
	{"barriers", false, [] { block(true, true); }},
	{"barrier after the write missing", true, [] { block(false, true); }},
	{"barrier before the next write missing", true, [] { block(true, false); }},
	{"__syncwarp", false, [] { warp(true); }},
	{"__syncwarp missing", true, [] { warp(false); }},
	{"shared atomics", false, [] { shared_counts(true); }},
	{"shared atomic missing", true, [] { shared_counts(false); }},
	{"global atomics", false, [] { global_counts(true); }},
	{"global atomic missing", true, [] { global_counts(false); }},
	{"last block adds up", false, [] { ticket(true); }},
	{"cp.async and barrier", false, [] { async_copy(true); }},
	{"cp.async without barrier", true, [] { async_copy(false); }},
	{"boxes and their barriers", false, [] { boxes(BOX_ALL); }},
	{"mbarriers made without a barrier", true, [] { boxes(BOX_NO_INIT); }},
	{"a box without a wait", true, [] { boxes(BOX_NO_WAIT); }},
	{"a box over one that is read", true, [] { boxes(BOX_NO_EMPTY); }},
	{"event between kernels", false, [] { two_streams(true); }},
	{"event wait between kernels missing", true, [] { two_streams(false); }},
	{"event between kernel and copy", false, [] { kernel_then_copy(true); }},
	{"event wait between kernel and copy missing", true, [] { kernel_then_copy(false); }},
	{"event between product and kernel", false, [] { product_then_kernel(true); }},
	{"event wait between product and kernel missing", true, [] { product_then_kernel(false); }},
	{"events over a third stream", false, [] { chain(true); }},
	{"second event wait of a chain missing", true, [] { chain(false); }},
	{"host waits for a result", false, [] { read_back(true); }},
	{"host does not wait for a result", true, [] { read_back(false); }},
	{"pinned buffer reused after the copy", false, [] { upload_twice(true); }},
	{"pinned buffer reused before the copy", true, [] { upload_twice(false); }},
};
int main(int argc, char **argv)
{
	for (auto &c : cases)
		if (argc < 2)
			printf("%s %s\n", c.races ? "race" : "clean", c.name);
		else if (!strcmp(c.name, argv[1])) {
			c.run();
			cudaDeviceSynchronize();
			return 0;
		}
	return argc < 2 ? 0 : 2;
}
