// test_tma.cu: Hopper's boxes and mbarriers (runners/device/cuda/tma.cuh) over their twin: what lands where, against the swizzle written out once more and
// plain loops; phases that go round; what the encoder refuses; and what the twin reports.
#include "runners/device/cuda/tma.cuh"
#include "tests/cudaemu/test.h"

typedef __typeof__(cuTensorMapEncodeTiled) *encoder;
enum { ROWS = 100, COLS = 136, DEEP = 4, FLOATS = 12, BOX = 16, BYTES = BOX * 128 };

static encoder find_encoder(void)
{
	void *f = nullptr;
	cudaDriverEntryPointQueryResult found;
	ok(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found));
	assert_true((found == cudaDriverEntryPointSuccess) == (f != nullptr));
	return (encoder)f;
}

// Arguments of an encoding, right unless one is changed.
struct plan {
	CUtensorMapDataType type;
	uint32_t rank;
	void *address;
	uint64_t dims[5], strides[4];
	uint32_t box[5], steps[5];
	CUtensorMapInterleave interleave;
	CUtensorMapSwizzle swizzle;
	CUtensorMapL2promotion l2;
	CUtensorMapFloatOOBfill fill;
};
static CUresult encode(CUtensorMap *map, const plan &p)
{
	return cuTensorMapEncodeTiled(map, p.type, p.rank, p.address, p.dims, p.strides, p.box, p.steps, p.interleave, p.swizzle, p.l2, p.fill);
}
static plan rows_of_bf16(void *x)
{
	return {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x, {COLS, ROWS}, {COLS * 2}, {64, BOX}, {1, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE,
		CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE};
}
static plan cube_of_fp32(void *x)
{
	return {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, x, {FLOATS, 10, DEEP}, {FLOATS * 4, FLOATS * 40}, {8, 3, 2}, {1, 1, 1}, CU_TENSOR_MAP_INTERLEAVE_NONE,
		CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE};
}

static CUtensorMap *map_on_device(const plan &p)
{
	CUtensorMap map, *there = device_array<CUtensorMap>(1);
	ok(encode(&map, p));
	to_device(there, &map, 1);
	return there;
}

static __device__ unsigned char *aligned(unsigned char *p)
{
	return p + (1024 - shared_address(p) % 1024) % 1024;
}

// One box from `at` on, by thread 0; all wait and copy what is there to out.
__global__ void one_box(unsigned char *out, const CUtensorMap *map, int3 at, int rank, unsigned bytes)
{
	extern __shared__ __align__(16) unsigned char smem_raw[];
	__shared__ uint64_t bar;
	unsigned char *box = aligned(smem_raw);
	if (threadIdx.x == 0) {
		mbar_init(&bar, 1);
		mbar_made();
		mbar_wait(&bar, 1); // of the phase before the first
		int32_t x[3] = {at.x, at.y, at.z};
		map_acquire(map);
		mbar_arrive_expect(&bar, bytes);
		cuemu::box_copy(box, map, x, rank, &bar);
		uint32_t u;
		memcpy(&u, box + 12, 4);
		if (u != 0xffffffffu)
			cuemu::trap("a box is there before the wait");
	}
	__syncthreads();
	mbar_wait(&bar, 0);
	for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x)
		out[i] = box[i];
}

static void test_swizzled_box(void **)
{
	static const int at[][2] = {{0, 0}, {64, 16}, {128, 90}, {-8, -3}, {72, 99}, {0, 100}, {200, 0}};
	static unsigned short x[ROWS * COLS], got[BYTES / 2];
	unsigned short *dx = device_array<unsigned short>(ROWS * COLS), *out = device_array<unsigned short>(BYTES / 2);
	for (int i = 0; i < ROWS * COLS; i++)
		x[i] = (unsigned short)(i + 1);
	to_device(dx, x, ROWS * COLS);
	CUtensorMap *map = map_on_device(rows_of_bf16(dx));
	for (auto &a : at) {
		unsigned threads = a[0] ? 64 : 1; // alone, a thread is woken by the box that its own waiting brings
		ok(start(one_box, 1, threads, 1024 + BYTES, 0, (unsigned char *)out, (const CUtensorMap *)map, make_int3(a[0], a[1], 0), 2, (unsigned)BYTES));
		to_host(got, out, BYTES / 2);
		for (int r = 0; r < BOX; r++)
			for (int c = 0; c < 64; c++) { // bits 4 to 6 of an address are combined with bits 7 to 9
				int row = a[1] + r, col = a[0] + c, place = (r * 128 + c * 2) ^ (r % 8 * 16);
				bool there = row >= 0 && row < ROWS && col >= 0 && col < COLS;
				assert_int_equal(got[place / 2], there ? x[row * COLS + col] : 0);
			}
	}
	ok(cudaFree(dx)), ok(cudaFree(out)), ok(cudaFree(map));
}

static void test_plain_box(void **)
{
	static const int at[][3] = {{0, 0, 0}, {4, 8, 3}, {-4, -1, -1}, {8, 2, 1}};
	static float x[FLOATS * 10 * DEEP], got[48];
	float *dx = device_array<float>(FLOATS * 10 * DEEP), *out = device_array<float>(48);
	for (int i = 0; i < FLOATS * 10 * DEEP; i++)
		x[i] = (float)(i + 1);
	to_device(dx, x, FLOATS * 10 * DEEP);
	CUtensorMap *map = map_on_device(cube_of_fp32(dx));
	for (auto &a : at) {
		ok(start(one_box, 1, 32, 1024 + sizeof got, 0, (unsigned char *)out, (const CUtensorMap *)map, make_int3(a[0], a[1], a[2]), 3, (unsigned)sizeof got));
		to_host(got, out, 48);
		for (int i = 0; i < 48; i++) {
			int c = a[0] + i % 8, r = a[1] + i / 8 % 3, d = a[2] + i / 24;
			bool there = c >= 0 && c < FLOATS && r >= 0 && r < 10 && d >= 0 && d < DEEP;
			assert_true(got[i] == (there ? x[(d * 10 + r) * FLOATS + c] : 0));
		}
	}
	ok(cudaFree(dx)), ok(cudaFree(out)), ok(cudaFree(map));
}

// A thread keeps STAGES boxes under way, 64 threads use them: phases go round. maps in device memory. Every box brings BOX rows in two halves.
enum { STAGES_ = 3, TURNS = 11 };
__global__ void ring(unsigned short *out, const CUtensorMap *map)
{
	extern __shared__ __align__(16) unsigned char smem_raw[];
	__shared__ uint64_t full[STAGES_], empty[STAGES_];
	unsigned char *box = aligned(smem_raw);
	int t = (int)threadIdx.x;
	if (t == 0) {
		for (int i = 0; i < STAGES_; i++) {
			mbar_init(&full[i], 1);
			mbar_init(&empty[i], 64);
		}
		mbar_made();
		map_acquire(map);
	}
	__syncthreads();
	for (int i = 0; i < TURNS; i++) {
		int s = i % STAGES_, phase = i / STAGES_ & 1;
		if (t == 64) {
			mbar_wait(&empty[s], !phase);
			mbar_arrive_expect(&full[s], 2 * BYTES);
			for (int half = 0; half < 2; half++)
				box_copy(box + (2 * s + half) * BYTES, map, 64 * half, 8 * i, &full[s]);
		} else if (t < 64) {
			mbar_wait(&full[s], phase);
			for (int half = 0; half < 2; half++)
				for (int r = 0; r < BOX; r++)
					out[(i * BOX + r) * 128 + half * 64 + t] = *(unsigned short *)(box + (2 * s + half) * BYTES + swizzled(BOX, r, t));
			mbar_arrive(&empty[s]);
		}
	}
}
static void test_phases(void **)
{
	static unsigned short x[ROWS * COLS], got[TURNS * BOX * 128];
	unsigned short *dx = device_array<unsigned short>(ROWS * COLS), *out = device_array<unsigned short>(TURNS * BOX * 128);
	for (int i = 0; i < ROWS * COLS; i++)
		x[i] = (unsigned short)(i + 1);
	to_device(dx, x, ROWS * COLS);
	CUtensorMap *map = map_on_device(rows_of_bf16(dx));
	for (const char *order : ORDERS) {
		cuemu_set_order(order);
		ok(start(ring, 1, 96, 1024 + 2 * STAGES_ * BYTES, 0, out, (const CUtensorMap *)map));
		to_host(got, out, TURNS * BOX * 128);
		for (int i = 0; i < TURNS * BOX * 128; i++) {
			int row = i / 128 / BOX * 8 + i / 128 % BOX;
			assert_int_equal(got[i], row < ROWS ? x[row * COLS + i % 128] : 0);
		}
	}
	cuemu_set_order("fwd");
	ok(cudaFree(dx)), ok(cudaFree(out)), ok(cudaFree(map));
}

static void test_encoder(void **)
{
	alignas(128) static unsigned char room[256];
	CUtensorMap map;
	void *x = device_array<float>(ROWS * COLS);
	assert_true(find_encoder() == cuTensorMapEncodeTiled);
	cuemu_set_tma(false);
	assert_null(find_encoder());
	cuemu_set_tma(true);
	ok(encode(&map, rows_of_bf16(x)));
	ok(encode(&map, cube_of_fp32(x)));
	assert_int_equal(encode((CUtensorMap *)(room + 16), rows_of_bf16(x)), CUDA_ERROR_INVALID_VALUE);
#define REFUSED(plan, change)                                                    \
	{                                                                        \
		auto p = plan(x);                                                \
		change;                                                          \
		assert_int_equal(encode(&map, p), CUDA_ERROR_INVALID_VALUE);     \
	}
	REFUSED(rows_of_bf16, p.rank = 0)
	REFUSED(rows_of_bf16, p.rank = 6)
	REFUSED(rows_of_bf16, p.type = (CUtensorMapDataType)99)
	REFUSED(rows_of_bf16, p.address = (char *)x + 8)
	REFUSED(rows_of_bf16, p.address = nullptr)
	REFUSED(rows_of_bf16, p.dims[1] = 0)
	REFUSED(rows_of_bf16, p.dims[1] = (1ull << 32) + 1)
	REFUSED(rows_of_bf16, p.strides[0] = COLS * 2 + 8)
	REFUSED(rows_of_bf16, p.strides[0] = COLS)
	REFUSED(rows_of_bf16, p.strides[0] = 1ull << 40)
	REFUSED(rows_of_bf16, p.box[1] = 257)
	REFUSED(rows_of_bf16, p.box[1] = 0)
	REFUSED(rows_of_bf16, p.box[0] = 72)
	REFUSED(rows_of_bf16, p.steps[1] = 9)
	REFUSED(rows_of_bf16, p.steps[0] = 0)
	REFUSED(rows_of_bf16, p.swizzle = CU_TENSOR_MAP_SWIZZLE_64B)
	REFUSED(rows_of_bf16, p.interleave = CU_TENSOR_MAP_INTERLEAVE_16B)
	REFUSED(rows_of_bf16, p.l2 = (CUtensorMapL2promotion)9)
	REFUSED(rows_of_bf16, p.fill = (CUtensorMapFloatOOBfill)2)
	REFUSED(cube_of_fp32, p.box[0] = 7)
	REFUSED(cube_of_fp32, p.interleave = CU_TENSOR_MAP_INTERLEAVE_32B)
	cuemu_fail("cuTensorMapEncodeTiled:1:201");
	assert_int_equal(encode(&map, rows_of_bf16(x)), 201);
	assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
	cuemu_fail(nullptr);
	ok(cudaFree(x));
}

enum { NO_INIT, TWICE, OVERWRITTEN, NO_WAIT, FEW_BYTES, MANY_BYTES, FEW_ARRIVALS, MANY_ARRIVALS, ALIGNMENT, OUTSIDE, NO_FENCE, GARBAGE, RANK, BEYOND };
__global__ void wrong(int how, const CUtensorMap *good)
{
	extern __shared__ __align__(16) unsigned char smem_raw[];
	__shared__ uint64_t bar;
	unsigned char *box = aligned(smem_raw);
	const CUtensorMap *map = how == GARBAGE ? (const CUtensorMap *)smem_raw : good;
	if (how != NO_FENCE)
		map_acquire(map);
	if (how != NO_INIT)
		mbar_init(&bar, how == FEW_ARRIVALS ? 2 : 1);
	if (how == TWICE)
		mbar_init(&bar, 1);
	if (how == OVERWRITTEN)
		bar = 5;
	mbar_arrive_expect(&bar, how == FEW_BYTES ? BYTES - 16 : how == MANY_BYTES ? BYTES + 16 : BYTES);
	if (how == MANY_ARRIVALS)
		mbar_arrive(&bar);
	if (how == RANK) {
		int32_t at[3] = {0, 0, 0};
		cuemu::box_copy(box, map, at, 3, &bar);
	}
	box_copy(how == ALIGNMENT ? box + 128 : how == OUTSIDE ? box + 1024 : box, map, 0, 0, &bar);
	if (how != NO_WAIT)
		mbar_wait(&bar, 0);
}
template <int HOW> static void run_wrong()
{
	plan p = rows_of_bf16(device_array<unsigned short>(ROWS * COLS));
	if (HOW == BEYOND)
		p.dims[1]++;
	start(wrong, 1, 1, 1024 + BYTES, 0, HOW, (const CUtensorMap *)map_on_device(p));
	cudaDeviceSynchronize();
}
static void test_reports(void **)
{
	assert_dies(run_wrong<NO_INIT>, "an mbarrier that was not initialised");
	assert_dies(run_wrong<TWICE>, "an mbarrier that is in use");
	assert_dies(run_wrong<OVERWRITTEN>, "an mbarrier was overwritten");
	assert_dies(run_wrong<NO_WAIT>, "a block ended while cp.async.bulk.tensor copies");
	assert_dies(run_wrong<FEW_BYTES>, "more bytes than its mbarrier was told to expect");
	assert_dies(run_wrong<MANY_BYTES>, "0 arrivals and 16 bytes are missing");
	assert_dies(run_wrong<FEW_ARRIVALS>, "1 arrivals and 0 bytes are missing");
	assert_dies(run_wrong<MANY_ARRIVALS>, "more arrivals in a phase than the mbarrier was made for");
	assert_dies(run_wrong<ALIGNMENT>, "not aligned for the swizzle");
	assert_dies(run_wrong<OUTSIDE>, "outside the block's dynamic shared memory");
	assert_dies(run_wrong<NO_FENCE>, "without fence.proxy.tensormap in this block");
	assert_dies(run_wrong<GARBAGE>, "this is no tensor map");
	assert_dies(run_wrong<RANK>, "another number of dimensions");
	assert_dies(run_wrong<BEYOND>, "does not lie inside one allocation");
}

int main()
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_swizzled_box), cmocka_unit_test(test_plain_box), cmocka_unit_test(test_phases),
		cmocka_unit_test(test_encoder), cmocka_unit_test(test_reports)};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
