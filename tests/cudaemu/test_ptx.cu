// test_ptx.cu: the twins of mma.sync, ldmatrix and cp.async against plain loops, with the fragment layout written out once more
// from the PTX manual.
#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>

#include "tests/cudaemu/test.h"

// Fragment tables of m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"): element i of a lane ->
// (row, column).
static __host__ __device__ void a_at(int lane, int i, int *r, int *c)
{
	*r = lane / 4 + ((i / 2) % 2) * 8;
	*c = (lane % 4) * 2 + i % 2 + (i >= 4 ? 8 : 0);
}
static __host__ __device__ void b_at(int lane, int i, int *r, int *c)
{
	*r = (lane % 4) * 2 + i % 2 + (i >= 2 ? 8 : 0);
	*c = lane / 4;
}
static __host__ __device__ void d_at(int lane, int i, int *r, int *c)
{
	*r = lane / 4 + (i >= 2 ? 8 : 0);
	*c = (lane % 4) * 2 + i % 2;
}

__global__ void product(float *d, const unsigned short *a, const unsigned short *b)
{ // 16x16 by 16x8, d += a b
	int l = (int)threadIdx.x, r, c;
	unsigned short fa[8], fb[4];
	float fd[4];
	for (int i = 0; i < 8; i++)
		a_at(l, i, &r, &c), fa[i] = a[r * 16 + c];
	for (int i = 0; i < 4; i++)
		b_at(l, i, &r, &c), fb[i] = b[r * 8 + c];
	for (int i = 0; i < 4; i++)
		d_at(l, i, &r, &c), fd[i] = d[r * 8 + c];
	uint32_t wa[4], wb[2];
	memcpy(wa, fa, 16);
	memcpy(wb, fb, 8);
	cuemu::mma_m16n8k16(fd, wa, wb);
	for (int i = 0; i < 4; i++)
		d_at(l, i, &r, &c), d[r * 8 + c] = fd[i];
}
static float of(unsigned short u)
{
	uint32_t w = (uint32_t)u << 16;
	float f;
	memcpy(&f, &w, 4);
	return f;
}
static void test_mma(void **)
{
	unsigned short a[256], b[128];
	float d[128], got[128];
	unsigned short *da = device_array<unsigned short>(256), *db = device_array<unsigned short>(128);
	float *dd = device_array<float>(128);
	uint32_t seed = 1;
	for (int round = 0; round < 20; round++) {
		for (auto &x : a)
			x = __bfloat16_as_ushort(__float2bfloat16_rn(next_float(&seed)));
		for (auto &x : b)
			x = __bfloat16_as_ushort(__float2bfloat16_rn(next_float(&seed)));
		for (auto &x : d)
			x = next_float(&seed);
		to_device(da, a, 256);
		to_device(db, b, 128);
		to_device(dd, d, 128);
		ok(start(product, 1, 32, 0, 0, dd, da, db));
		to_host(got, dd, 128);
		for (int r = 0; r < 16; r++)
			for (int c = 0; c < 8; c++) {
				double want = d[r * 8 + c];
				for (int k = 0; k < 16; k++)
					want += (double)of(a[r * 16 + k]) * of(b[k * 8 + c]);
				assert_true(fabs(want - got[r * 8 + c]) < 4e-6); // 17 fp32 additions of values below 8
			}
	}
	ok(cudaFree(da));
	ok(cudaFree(db));
	ok(cudaFree(dd));
}

__global__ void load(uint32_t *o, const unsigned short *in, int matrices, int trans, int stride)
{
	extern __shared__ __align__(16) unsigned char smem_raw[];
	unsigned short *s = (unsigned short *)smem_raw;
	int l = (int)threadIdx.x;
	for (int i = l; i < 32 * stride; i += 32)
		s[i] = in[i];
	__syncwarp();
	const unsigned short *row = s + (size_t)(31 - l) * stride; // lane l names row 31 - l
	if (l >= 8 * matrices)
		row = nullptr; // the addresses of the other lanes are ignored
	uint32_t r[4] = {0, 0, 0, 0};
	if (matrices == 1)
		cuemu::ldmatrix_x1(r, row, trans);
	if (matrices == 2)
		cuemu::ldmatrix_x2(r, row, trans);
	if (matrices == 4)
		cuemu::ldmatrix_x4(r, row, trans);
	for (int i = 0; i < 4; i++)
		o[l * 4 + i] = r[i];
}
static void test_ldmatrix(void **)
{
	const int stride = 24;
	unsigned short in[32 * stride];
	uint32_t *o = device_array<uint32_t>(128), h[128];
	unsigned short *di = device_array<unsigned short>(32 * stride);
	for (int i = 0; i < 32 * stride; i++)
		in[i] = (unsigned short)(i * 7 + 1);
	to_device(di, in, 32 * stride);
	for (int matrices = 1; matrices <= 4; matrices *= 2)
		for (int trans = 0; trans < 2; trans++) {
			ok(start(load, 1, 32, sizeof in, 0, o, di, matrices, trans, stride));
			to_host(h, o, 128);
			for (int l = 0; l < 32; l++)
				for (int m = 0; m < 4; m++) {
					uint32_t want = 0;
					for (int e = 0; m < matrices && e < 2; e++) { // lane l holds row l/4, columns 2(l%4), +1
										      // of each 8x8 matrix, or of its transpose
						int r = l / 4, c = 2 * (l % 4) + e, rr = trans ? c : r, cc = trans ? r : c;
						want |= (uint32_t)in[(31 - (8 * m + rr)) * stride + cc] << 16 * e;
					}
					assert_int_equal(h[l * 4 + m], want);
				}
		}
	ok(cudaFree(o));
	ok(cudaFree(di));
}

__global__ void copies(float *o, const float *in)
{ // o[stage][4]: what lies in shared memory at each stage
	__shared__ __align__(16) float s[8][4];
	float *at = o;
	auto look = [&](int group) {
		for (int i = 0; i < 4; i++)
			*at++ = s[group][i];
	};
	for (int g = 0; g < 3; g++) {
		cuemu::cp_async(s[g], in + 4 * g, 16);
		cuemu::cp_async_commit();
	}
	look(0), look(2);
	cuemu::cp_async_wait(1);
	look(1), look(2);
	cuemu::cp_async_wait(0);
	look(2);
	__pipeline_memcpy_async(s[3], in, 16, 8); // the last 8 bytes become zero
	__pipeline_memcpy_async(s[4], in + 1, 4);
	__pipeline_commit();
	cuemu::cp_async_commit(); // an empty group counts
	__pipeline_wait_prior(1);
	look(3), look(4);
}
static void test_cp_async(void **)
{
	float in[12], h[28], *di = device_array<float>(12), *o = device_array<float>(28);
	for (int i = 0; i < 12; i++)
		in[i] = (float)i;
	to_device(di, in, 12);
	ok(start(copies, 1, 1, 0, 0, o, di));
	to_host(h, o, 28);
	for (int i = 0; i < 8; i++)
		assert_true(isnan(h[i])); // nothing has arrived
	for (int i = 0; i < 4; i++) {
		assert_true(h[8 + i] == 4 + i);
		assert_true(isnan(h[12 + i]));
		assert_true(h[16 + i] == 8 + i);
		assert_true(h[20 + i] == (i < 2 ? i : 0));
	}
	assert_true(h[24] == 1 && isnan(h[25]));
	ok(cudaFree(di));
	ok(cudaFree(o));
}
__global__ void misaligned(float *o)
{
	__shared__ __align__(16) float s[8];
	cuemu::cp_async(s + 1, o, 16);
}
static void run_misaligned()
{
	float *d;
	cudaMalloc(&d, 256);
	start(misaligned, 1, 1, 0, 0, d);
	cudaDeviceSynchronize();
}
static void test_reports(void **)
{
	assert_dies(run_misaligned, "cp.async: size must be 4, 8 or 16");
}

int main()
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_mma), cmocka_unit_test(test_ldmatrix),
		cmocka_unit_test(test_cp_async), cmocka_unit_test(test_reports)};
	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
