// test_blas.cu: the cuBLAS subset against a plain product in double: all transpositions, odd sizes, padding, both types, batches;
// equal bits for a row whatever stands beside it.
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include "tests/cudaemu/test.h"

static cublasHandle_t handle;
struct Case {
	int m, n, k;
	bool ta, tb, bf16_in, bf16_out;
	float alpha, beta;
};

static float rounded(float f, bool bf16)
{
	return bf16 ? __bfloat162float(__float2bfloat16_rn(f)) : f;
}
static void *upload(const float *x, size_t n, bool bf16)
{
	void *d = device_array<float>(n + 1);
	unsigned short *h = (unsigned short *)malloc(n * 2 + 2);
	for (size_t i = 0; i < n; i++)
		h[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
	ok(cudaMemcpy(d, bf16 ? (const void *)h : x, n * (bf16 ? 2 : 4), cudaMemcpyHostToDevice));
	free(h);
	return d;
}
static void download(float *x, const void *d, size_t n, bool bf16)
{
	unsigned short *h = (unsigned short *)malloc(n * 4 + 4);
	ok(cudaMemcpy(h, d, n * (bf16 ? 2 : 4), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < n; i++)
		x[i] = bf16 ? __bfloat162float(__ushort_as_bfloat16(h[i])) : ((float *)h)[i];
	free(h);
}
static float *random_matrix(size_t n, bool bf16, uint32_t *seed)
{
	float *x = (float *)malloc(n * 4 + 4);
	for (size_t i = 0; i < n; i++)
		x[i] = rounded(next_float(seed), bf16);
	return x;
}
static void check(const Case &c, uint32_t *seed)
{
	int ar = c.ta ? c.k : c.m, ac = c.ta ? c.m : c.k, br = c.tb ? c.n : c.k, bc = c.tb ? c.k : c.n, lda = ar + 3,
	    ldb = br + 1, ldc = c.m + 2;
	float *a = random_matrix((size_t)lda * ac, c.bf16_in, seed), *b = random_matrix((size_t)ldb * bc, c.bf16_in, seed);
	float *before = random_matrix((size_t)ldc * c.n, c.bf16_out, seed), *after = (float *)malloc((size_t)ldc * c.n * 4);
	if (c.beta == 0) // not read then: may hold NaN
		for (int j = 0; j < c.n; j++)
			for (int i = 0; i < c.m; i++)
				before[j * ldc + i] = NAN;
	void *da = upload(a, (size_t)lda * ac, c.bf16_in), *db = upload(b, (size_t)ldb * bc, c.bf16_in),
	     *dc = upload(before, (size_t)ldc * c.n, c.bf16_out);
	cudaDataType in = c.bf16_in ? CUDA_R_16BF : CUDA_R_32F, out = c.bf16_out ? CUDA_R_16BF : CUDA_R_32F;
	ok(cublasGemmEx(handle, c.ta ? CUBLAS_OP_T : CUBLAS_OP_N, c.tb ? CUBLAS_OP_T : CUBLAS_OP_N, c.m, c.n, c.k, &c.alpha, da,
		in, lda, db, in, ldb, &c.beta, dc, out, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
	download(after, dc, (size_t)ldc * c.n, c.bf16_out);
	for (int j = 0; j < c.n; j++)
		for (int i = 0; i < ldc; i++) {
			float got = after[j * ldc + i], old = before[j * ldc + i];
			if (i >= c.m) { // padding stays
				assert_true(got == old);
				continue;
			}
			double want = 0, size = 0;
			for (int k = 0; k < c.k; k++) {
				double p = (double)a[c.ta ? i * lda + k : k * lda + i] * b[c.tb ? k * ldb + j : j * ldb + k];
				want += p;
				size += fabs(p);
			}
			want = c.alpha * want + (c.beta != 0 ? c.beta * old : 0);
			assert_true(fabs(got - want) <= 1e-6 * (size + fabs(want) + 1) + (c.bf16_out ? fabs(want) / 256 : 0));
		}
	free(a), free(b), free(before), free(after);
	ok(cudaFree(da));
	ok(cudaFree(db));
	ok(cudaFree(dc));
}
static void test_products(void **)
{
	const int sizes[][3] = {{1, 1, 1}, {17, 7, 5}, {64, 33, 31}, {1, 50, 130}, {200, 1, 64}, {40, 12, 0}};
	uint32_t seed = 1;
	for (auto &s : sizes)
		for (int ops = 0; ops < 4; ops++)
			for (int types = 0; types < 3; types++)
				check({s[0], s[1], s[2], (ops & 1) != 0, ops > 1, types > 0, types > 1, 1.f, 0.f}, &seed);
	check({33, 20, 18, true, false, true, false, 0.5f, 2.f}, &seed);
	check({33, 20, 18, false, true, false, false, -1.f, 1.f}, &seed);
	check({300, 200, 100, true, false, true, false, 1.f, 0.f}, &seed); // over several OS threads
}

static void test_batches(void **)
{
	const int m = 9, n = 5, k = 12, batch = 3;
	uint32_t seed = 2;
	float *a = random_matrix(m * k * batch, false, &seed), *b = random_matrix(n * k * batch, false, &seed), one = 1, zero = 0,
	      c[2][m * n * batch], y[m], x[k];
	float *da = (float *)upload(a, m * k * batch, false), *db = (float *)upload(b, n * k * batch, false),
	      *dc = device_array<float>(m * n * batch);
	ok(cublasSgemmStridedBatched(
		handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, da, k, m * k, db, k, n * k, &zero, dc, m, m * n, batch));
	to_host(c[0], dc, m * n * batch);
	const void *pa[batch], *pb[batch];
	void *pc[batch];
	for (int i = 0; i < batch; i++)
		pa[i] = da + i * m * k, pb[i] = db + i * n * k, pc[i] = dc + i * m * n;
	const void **dpa = device_array<const void *>(batch), **dpb = device_array<const void *>(batch);
	void **dpc = device_array<void *>(batch);
	to_device(dpa, pa, batch);
	to_device(dpb, pb, batch);
	to_device(dpc, pc, batch);
	ok(cudaMemset(dc, 0xff, sizeof c[0]));
	ok(cublasGemmBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, dpa, CUDA_R_32F, k, dpb, CUDA_R_32F, k, &zero,
		dpc, CUDA_R_32F, m, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
	to_host(c[1], dc, m * n * batch);
	assert_memory_equal(c[0], c[1], sizeof c[0]);
	for (int i = 0; i < batch; i++) { // each product on its own gives the same bits, as does one column of it
		ok(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, 1, k, &one, da + i * m * k, k, db + (i * n + 2) * k, k, &zero,
			dc, m));
		to_host(y, dc, m);
		assert_memory_equal(y, c[0] + (i * n + 2) * m, sizeof y);
	}
	ok(cublasSgemv(handle, CUBLAS_OP_T, k, m, &one, da, k, db, 1, &zero, dc, 1));
	to_host(y, dc, m);
	assert_memory_equal(y, c[0], sizeof y);
	(void)x;
	free(a), free(b);
	for (void *p : {(void *)da, (void *)db, (void *)dc, (void *)dpa, (void *)dpb, (void *)dpc})
		ok(cudaFree(p));
}

static void beyond_the_end()
{
	float one = 1, *d;
	cublasHandle_t h;
	cublasCreate(&h);
	cudaMalloc(&d, 400);
	cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 10, 11, 1, &one, d, 10, d, 1, &one, d, 10);
}
static void test_wrong_arguments(void **)
{
	float one = 1, *d = device_array<float>(100);
	assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, d, 7, d, 8, &one, d, 8),
		CUBLAS_STATUS_INVALID_VALUE);
	assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, -1, 8, 8, &one, d, 8, d, 8, &one, d, 8),
		CUBLAS_STATUS_INVALID_VALUE);
	assert_int_equal(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, d, CUDA_R_32F, 2, d, CUDA_R_16BF, 2, &one,
				 d, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
		CUBLAS_STATUS_NOT_SUPPORTED);
	assert_int_equal(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, d, CUDA_R_16F, 2, d, CUDA_R_16F, 2, &one,
				 d, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
		CUBLAS_STATUS_NOT_SUPPORTED);
	assert_int_equal(cublasSetStream(nullptr, nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
	assert_int_equal(cublasSetWorkspace(handle, d, 401), CUBLAS_STATUS_INVALID_VALUE);
	ok(cublasSetWorkspace(handle, d, 400));
	ok(cuemu_fail("cublasSgemm:1"));
	assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &one, d, 1),
		CUBLAS_STATUS_EXECUTION_FAILED);
	ok(cuemu_fail(nullptr));
	ok(cudaFree(d));
	assert_dies(beyond_the_end, "does not lie inside one allocation");
}
static int make(void **)
{
	return cublasCreate(&handle);
}
static int drop(void **)
{
	return cublasDestroy(handle);
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_products), cmocka_unit_test(test_batches), cmocka_unit_test(test_wrong_arguments)};
	return cmocka_run_group_tests(tests, make, drop);
}
