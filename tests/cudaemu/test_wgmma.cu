// test_wgmma.cu: Hopper's products (runners/device/cuda/wgmma.cuh) over their twin: layouts, descriptors and register fragments against plain loops, with
// swizzle and fragments written out once more from the PTX manual; and what the twin reports.
#include "runners/device/cuda/wgmma.cuh"
#include "tests/cudaemu/test.h"

enum { M = 64, K = 64, N = 128, KEYS = 32, D = 128 };

static float of(unsigned short h)
{
	uint32_t u = (uint32_t)h << 16;
	float x;
	memcpy(&x, &u, 4);
	return x;
}

// The 128-byte swizzle of the manual: bits 4 to 6 of an address are combined with bits 7 to 9.
static void test_swizzle(void **)
{
	for (int rows = 8; rows <= 128; rows *= 2)
		for (int r = 0; r < rows; r++)
			for (int c = 0; c < 128; c++) {
				uint32_t at = (uint32_t)(c / 64 * rows * 128 + r * 128 + c % 64 * 2);
				assert_int_equal(swizzled(rows, r, c), at ^ (at >> 7 & 7) << 4);
			}
	assert_true(wgmma_operand(0x12340, 16, 1024) == (0x1234ull | 1ull << 16 | 64ull << 32 | 1ull << 62));
	assert_true(wgmma_operand(0x40010, 0x4000, 1024) == (1ull | 0x400ull << 16 | 64ull << 32 | 1ull << 62));
}

// s[64][128] = a[64][64] b[128][64]^T, and o[64][128] = p[64][32] v[32][128] (half: its first 64 columns alone), by one warpgroup.
__global__ void products(float *s, float *o, const unsigned short *a, const unsigned short *b, const unsigned short *p, const unsigned short *v, int half)
{
	extern __shared__ __align__(16) unsigned char smem_raw[];
	uint32_t start = shared_address(smem_raw), at_a = (start + 1023) / 1024 * 1024, at_b = at_a + M * K * 2, at_v = at_b + N * K * 2;
	unsigned char *mem = smem_raw + (at_a - start);
	int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
	for (int i = t; i < M * K; i += 128)
		*(unsigned short *)(mem + swizzled(M, i / K, i % K)) = a[i];
	for (int i = t; i < N * K; i += 128)
		*(unsigned short *)(mem + (at_b - at_a) + swizzled(N, i / K, i % K)) = b[i];
	for (int i = t; i < KEYS * D; i += 128)
		*(unsigned short *)(mem + (at_v - at_a) + swizzled(KEYS, i / D, i % D)) = v[i];
	fence_for_products();
	bar_sync(1, 128);
	float acc[N / 2], out[D / 2], few[D / 4];
	wgmma_begin(acc);
	for (int c = 0; c < K; c += 16)
		wgmma_rows(acc, wgmma_operand(at_a + c * 2, 16, 1024), wgmma_operand(at_b + c * 2, 16, 1024), c > 0);
	if (t == 5 && acc[3] == acc[3])
		cuemu::trap("accumulators are there before the wait");
	wgmma_end(acc);
	for (int i = 0; i < D / 2; i++)
		out[i] = few[i / 2] = 0;
	wgmma_begin(out);
	for (int k = 0; k < KEYS; k += 16) {
		uint32_t r[4];
		for (int i = 0; i < 4; i++) { // a0: row g, a1: row g + 8, a2, a3: columns + 8
			const unsigned short *x = p + (warp * 16 + lane / 4 + i % 2 * 8) * KEYS + k + i / 2 * 8 + lane % 4 * 2;
			r[i] = (uint32_t)x[1] << 16 | x[0];
		}
		if (!half)
			wgmma_registers(out, r, wgmma_operand(at_v + k * 128, KEYS * 128, 1024));
		else {
			if (k == 0)
				wgmma_end(out), wgmma_begin(few);
			wgmma_registers(few, r, wgmma_operand(at_v + k * 128, KEYS * 128, 1024));
		}
	}
	if (half)
		wgmma_end(few);
	else
		wgmma_end(out);
	for (int i = 0; i < N / 2; i++) { // d[4 n + e]: row g (+ 8 from e = 2 on), column 8 n + 2 t + e % 2
		int row = warp * 16 + lane / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
		s[row * N + col] = acc[i];
		if (!half)
			o[row * D + col] = out[i];
		else if (i < D / 4)
			o[row * D + col] = few[i];
	}
}

static void fill(unsigned short *x, int n, uint32_t *seed)
{
	for (int i = 0; i < n; i++)
		x[i] = __bfloat16_as_ushort(__float2bfloat16_rn(next_float(seed)));
}

static void test_products(void **)
{
	static unsigned short a[M * K], b[N * K], p[M * KEYS], v[KEYS * D];
	static float s[M * N], o[M * D];
	uint32_t seed = 3;
	fill(a, M * K, &seed), fill(b, N * K, &seed), fill(p, M * KEYS, &seed), fill(v, KEYS * D, &seed);
	unsigned short *da = device_array<unsigned short>(M * K), *db = device_array<unsigned short>(N * K), *dp = device_array<unsigned short>(M * KEYS),
		       *dv = device_array<unsigned short>(KEYS * D);
	float *ds = device_array<float>(M * N), *dout = device_array<float>(M * D);
	to_device(da, a, M * K), to_device(db, b, N * K), to_device(dp, p, M * KEYS), to_device(dv, v, KEYS * D);
	for (int half = 0; half < 2; half++)
		for (const char *order : ORDERS) {
			cuemu_set_order(order);
			ok(start(products, 1, 128, 1024 + 2 * (M * K + N * K + KEYS * D), 0, ds, dout, da, db, dp, dv, half));
			to_host(s, ds, M * N), to_host(o, dout, M * D);
			for (int r = 0; r < M; r++)
				for (int c = 0; c < N; c++) {
					double want = 0, want_o = 0;
					for (int k = 0; k < K; k++)
						want += (double)of(a[r * K + k]) * of(b[c * K + k]);
					for (int k = 0; k < KEYS; k++)
						want_o += (double)of(p[r * KEYS + k]) * of(v[k * D + c]);
					assert_true(fabs(want - s[r * N + c]) < 2e-5); // 64 fp32 additions of values below 16
					if (c < (half ? D / 2 : D))
						assert_true(fabs(want_o - o[r * D + c]) < 2e-5);
				}
		}
	cuemu_set_order("fwd");
	ok(cudaFree(da)), ok(cudaFree(db)), ok(cudaFree(dp)), ok(cudaFree(dv)), ok(cudaFree(ds)), ok(cudaFree(dout));
}

// One group makes, the other waits; arriving does not wait.
__global__ void relay(int *o)
{
	__shared__ int box[2][32];
	int t = (int)threadIdx.x, lane = t % 32;
	for (int i = 0; i < 6; i++) {
		if (t < 32) {
			if (i >= 2)
				bar_sync(3 + i % 2, 64);
			box[i % 2][lane] = i * 100 + lane;
			bar_arrive(1 + i % 2, 64);
		} else {
			bar_sync(1 + i % 2, 64);
			o[i * 32 + lane] = box[i % 2][31 - lane];
			if (i + 2 < 6)
				bar_arrive(3 + i % 2, 64);
		}
	}
}
static void test_barriers(void **)
{
	int h[192], *o = device_array<int>(192);
	for (const char *order : ORDERS) {
		cuemu_set_order(order);
		ok(start(relay, 1, 64, 0, 0, o));
		to_host(h, o, 192);
		for (int i = 0; i < 192; i++)
			assert_int_equal(h[i], i / 32 * 100 + 31 - i % 32);
	}
	cuemu_set_order("fwd");
	ok(cudaFree(o));
}

__global__ void wrong(int how)
{
	extern __shared__ __align__(16) unsigned char smem_raw[];
	float d[64] = {0};
	uint32_t at = (shared_address(smem_raw) + 1023) / 1024 * 1024;
	uint64_t good = wgmma_operand(at, 16, 1024);
	if (how == 3)
		bar_arrive(2, threadIdx.x < 32 ? 64 : 96);
	if (how > 0)
		wgmma_begin(d);
	wgmma_rows(d, good, how == 1 ? wgmma_operand(at + 60 * 1024, 16, 1024) : good, false);
	if (how == 2)
		wgmma_begin(d);
	wgmma_end(d);
}
template <int HOW> static void run_wrong()
{
	start(wrong, 1, 128, 40 * 1024, 0, HOW);
	cudaDeviceSynchronize();
}
static void test_reports(void **)
{
	assert_dies(run_wrong<0>, "accumulators without a wgmma.fence before");
	assert_dies(run_wrong<1>, "outside the block's dynamic shared memory");
	assert_dies(run_wrong<2>, "products are under way that nobody waited for");
	assert_dies(run_wrong<3>, "expect different numbers of them");
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_swizzle), cmocka_unit_test(test_products), cmocka_unit_test(test_barriers), cmocka_unit_test(test_reports)};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
