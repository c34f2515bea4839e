// blas.cpp: the part of cuBLAS in include/cublas_v2.h. Each element of the product is one fp32 sum over k in ascending order with
// one accumulator, so its bits depend neither on threads nor on the other elements. Checks leading dimensions, extents and
// ownership of all operands.
#include <stdio.h>
#include <stdlib.h>

#include "include/cublas_v2.h"
#include "state.h"

struct cublasContext {
	int device;
	cudaStream_t stream;
};

namespace cuemu
{
constexpr int MR = 16, NR = 6; // a tile of C: 16 rows in a vector, 6 columns
typedef float v16 __attribute__((vector_size(64)));

struct Matrix { // column-major; op: transposed
	const void *p;
	cudaDataType type;
	bool op;
	int ld;
};
static size_t bytes_of(cudaDataType t)
{
	return t == CUDA_R_32F ? 4 : t == CUDA_R_16BF ? 2 : 0;
}
static inline float load(const void *p, cudaDataType t, size_t i)
{
	if (t == CUDA_R_32F)
		return ((const float *)p)[i];
	uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
	float f;
	__builtin_memcpy(&f, &u, 4);
	return f;
}
static inline uint16_t bf16(float f)
{
	uint32_t u;
	__builtin_memcpy(&u, &f, 4);
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return 0x7fff;
	return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
// out[k][w]: `w` rows from row0 of op(M) [rows, k] (by_row), or as many columns of op(M) [k, cols]; beyond the edge zeros.
static void pack(float *out, const Matrix &m, bool by_row, int row0, int rows, int k, int w)
{
	bool contiguous = by_row != m.op; // the w elements of one k lie beside each other
	for (int i = 0; i < w; i++) {
		if (row0 + i >= rows) {
			for (int j = 0; j < k; j++)
				out[(size_t)j * w + i] = 0;
			continue;
		}
		size_t at = contiguous ? (size_t)(row0 + i) : (size_t)(row0 + i) * (size_t)m.ld,
		       step = contiguous ? (size_t)m.ld : 1;
		if (m.type == CUDA_R_32F)
			for (int j = 0; j < k; j++)
				out[(size_t)j * w + i] = ((const float *)m.p)[at + (size_t)j * step];
		else
			for (int j = 0; j < k; j++)
				out[(size_t)j * w + i] = load(m.p, m.type, at + (size_t)j * step);
	}
}
struct Product {
	int m, n, k;
	float alpha, beta;
	Matrix a, b;
	void *c;
	cudaDataType ct;
	int ldc;
};
static void store(const Product &g, int i, int j, float sum)
{
	size_t at = (size_t)j * (size_t)g.ldc + (size_t)i;
	float v = g.alpha * sum;
	if (g.beta != 0)
		v += g.beta * load(g.c, g.ct, at); // beta 0: C is not read, it may hold NaN
	if (g.ct == CUDA_R_32F)
		((float *)g.c)[at] = v;
	else
		((uint16_t *)g.c)[at] = bf16(v);
}
static void tile_row(const Product &g, const float *b, int i0, float *a)
{ // rows i0..i0+15 of C; b: columns packed by NR
	pack(a, g.a, true, i0, g.m, g.k, MR);
	for (int j0 = 0; j0 < g.n; j0 += NR, b += (size_t)g.k * NR) {
		v16 acc[NR] = {};
		for (int k = 0; k < g.k; k++) {
			v16 x;
			__builtin_memcpy(&x, a + (size_t)k * MR, sizeof x);
			for (int j = 0; j < NR; j++)
				acc[j] += x * b[(size_t)k * NR + j];
		}
		for (int j = 0; j < NR && j0 + j < g.n; j++)
			for (int i = 0; i < MR && i0 + i < g.m; i++)
				store(g, i0 + i, j0 + j, acc[j][i]);
	}
}
static void multiply(const Product &g)
{
	if (!g.m || !g.n)
		return;
	int panels = (g.n + NR - 1) / NR;
	std::vector<float> b((size_t)panels * NR * (size_t)g.k + 1);
	for (int p = 0; p < panels; p++)
		pack(b.data() + (size_t)p * NR * (size_t)g.k, g.b, false, p * NR, g.n, g.k, NR);
	size_t rows = (size_t)(g.m + MR - 1) / MR, chunk = 8, chunks = (rows + chunk - 1) / chunk;
	auto task = [&](size_t c) {
		std::vector<float> a((size_t)MR * (size_t)g.k + 1);
		for (size_t r = c * chunk; r < std::min(rows, (c + 1) * chunk); r++)
			tile_row(g, b.data(), (int)r * MR, a.data());
	};
#ifdef CUEMU_TSAN
	for (size_t c = 0; c < chunks; c++)
		task(c); // helpers would order streams that nothing orders
#else
	if ((double)g.m * g.n * g.k < 1e6)
		for (size_t c = 0; c < chunks; c++)
			task(c);
	else
		pool_for(pool_shared(), chunks, task);
#endif
}

// Bytes from the first to the last element of a column-major matrix.
static size_t extent(int rows, int cols, int ld, cudaDataType t)
{
	return rows && cols ? ((size_t)(cols - 1) * (size_t)ld + (size_t)rows) * bytes_of(t) : 0;
}
static void tell_tsan(const Product &g)
{ // the shim is not instrumented: say what the product reads and writes
#ifdef CUEMU_TSAN
	auto columns = [](const void *p, int rows, int cols, int ld, cudaDataType t, bool write) {
		for (int j = 0; j < cols; j++) {
			char *c = (char *)p + (size_t)j * (size_t)ld * bytes_of(t);
			if (write)
				__tsan_write_range(c, (size_t)rows * bytes_of(t));
			else
				__tsan_read_range(c, (size_t)rows * bytes_of(t));
		}
	};
	columns(g.a.p, g.a.op ? g.k : g.m, g.a.op ? g.m : g.k, g.a.ld, g.a.type, false);
	columns(g.b.p, g.b.op ? g.n : g.k, g.b.op ? g.k : g.n, g.b.ld, g.b.type, false);
	columns(g.c, g.m, g.n, g.ldc, g.ct, true);
#else
	(void)g;
#endif
}
static cublasStatus_t check(const Product &g, int batch)
{
	int ar = g.a.op ? g.k : g.m, br = g.b.op ? g.n : g.k;
	if (g.m < 0 || g.n < 0 || g.k < 0 || batch < 0 || g.a.ld < std::max(1, ar) || g.b.ld < std::max(1, br) ||
		g.ldc < std::max(1, g.m)) {
		say("cublas: m %d n %d k %d batch %d lda %d ldb %d ldc %d", g.m, g.n, g.k, batch, g.a.ld, g.b.ld, g.ldc);
		return CUBLAS_STATUS_INVALID_VALUE;
	}
	bool types = g.a.type == g.b.type && bytes_of(g.a.type) && bytes_of(g.ct) && (g.ct == CUDA_R_32F || g.ct == g.a.type);
	return types ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
// Real cuBLAS would fault or read what lies beside; this says which operand it is.
static void check_extents(const Product &g, int device)
{
	const struct {
		const char *name;
		const void *p;
		size_t n;
	} operand[] = {
		{"A", g.a.p, extent(g.a.op ? g.k : g.m, g.a.op ? g.m : g.k, g.a.ld, g.a.type)},
		{"B", g.b.p, extent(g.b.op ? g.n : g.k, g.b.op ? g.k : g.n, g.b.ld, g.b.type)},
		{"C", g.c, extent(g.m, g.n, g.ldc, g.ct)},
	};
	for (auto &o : operand)
		if (o.n && !memory_covers(o.p, o.n, device)) {
			char b[256];
			snprintf(b, sizeof b,
				"cublas on device %d: %s (%p, %zu bytes; m %d n %d k %d) does not lie inside one allocation that "
				"the device may touch",
				device, o.name, o.p, o.n, g.m, g.n, g.k);
			die(b);
		}
}
static cublasStatus_t submit(Call &call, cublasHandle_t h, std::vector<Product> list)
{
	auto q = queue_of(h->stream);
	if (!q || q->device != h->device)
		return CUBLAS_STATUS_INVALID_VALUE;
	for (Product &g : list)
		check_extents(g, q->device);
	queue_submit(
		q,
		[list](Queue &self) {
			for (const Product &g : list) {
				multiply(g);
				as_copier(self, [&] { tell_tsan(g); });
			}
		},
		call.poison);
	return sticky() ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t strided(Call &call, cublasHandle_t h, Product g, long long sa, long long sb, long long sc, int batch)
{
	cublasStatus_t s = check(g, batch);
	if (s)
		return s;
	std::vector<Product> list;
	for (long long i = 0; i < batch; i++) {
		Product p = g;
		p.a.p = (const char *)g.a.p + i * sa * (long long)bytes_of(g.a.type);
		p.b.p = (const char *)g.b.p + i * sb * (long long)bytes_of(g.b.type);
		p.c = (char *)g.c + i * sc * (long long)bytes_of(g.ct);
		list.push_back(p);
	}
	return submit(call, h, list);
}
static bool fp32(cublasComputeType_t c)
{
	return c == CUBLAS_COMPUTE_32F || c == CUBLAS_COMPUTE_32F_PEDANTIC || c == CUBLAS_COMPUTE_32F_FAST_TF32 ||
	       c == CUBLAS_COMPUTE_32F_FAST_16BF;
}
} // namespace cuemu

using namespace cuemu;
#define CALL(name)                                                                                                               \
	if (!h)                                                                                                                  \
		return CUBLAS_STATUS_NOT_INITIALIZED;                                                                            \
	Call call(name);                                                                                                         \
	if (call.err)                                                                                                            \
	return sticky() ? CUBLAS_STATUS_EXECUTION_FAILED : (cublasStatus_t)call.err

extern "C" {
cublasStatus_t cublasCreate(cublasHandle_t *h)
{
	CALL("cublasCreate");
	*h = new cublasContext{current_device(), nullptr};
	count_handle(1);
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t h)
{
	if (!h)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	delete h;
	count_handle(-1);
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion(cublasHandle_t, int *version)
{
	*version = 130000;
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s)
{
	CALL("cublasSetStream");
	h->stream = s;
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream(cublasHandle_t h, cudaStream_t *s)
{
	CALL("cublasGetStream");
	*s = h->stream;
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t)
{
	CALL("cublasSetMathMode");
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void *workspace, size_t bytes)
{
	CALL("cublasSetWorkspace");
	return !bytes || memory_covers(workspace, bytes, h->device) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetPointerMode(cublasHandle_t h, cublasPointerMode_t mode)
{
	CALL("cublasSetPointerMode");
	return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
static const struct {
	cublasStatus_t s;
	const char *name, *text;
} names[] = {
	{CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
	{CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
	{CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
	{CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
		"an unsupported value or parameter was passed to the function"},
	{CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
	{CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
	{CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality requested is not supported"},
};
const char *cublasGetStatusName(cublasStatus_t s)
{
	for (auto &n : names)
		if (n.s == s)
			return n.name;
	return "unknown status";
}
const char *cublasGetStatusString(cublasStatus_t s)
{
	for (auto &n : names)
		if (n.s == s)
			return n.text;
	return "unknown status";
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void *alpha,
	const void *A, cudaDataType at, int lda, const void *B, cudaDataType bt, int ldb, const void *beta, void *C,
	cudaDataType ct, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t)
{
	CALL("cublasGemmEx");
	if (!fp32(compute))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	Product g = {m, n, k, *(const float *)alpha, *(const float *)beta, {A, at, ta != CUBLAS_OP_N, lda},
		{B, bt, tb != CUBLAS_OP_N, ldb}, C, ct, ldc};
	return strided(call, h, g, 0, 0, 0, 1);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
	const void *alpha, const void *A, cudaDataType at, int lda, long long stride_a, const void *B, cudaDataType bt, int ldb,
	long long stride_b, const void *beta, void *C, cudaDataType ct, int ldc, long long stride_c, int batch,
	cublasComputeType_t compute, cublasGemmAlgo_t)
{
	CALL("cublasGemmStridedBatchedEx");
	if (!fp32(compute))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	Product g = {m, n, k, *(const float *)alpha, *(const float *)beta, {A, at, ta != CUBLAS_OP_N, lda},
		{B, bt, tb != CUBLAS_OP_N, ldb}, C, ct, ldc};
	return strided(call, h, g, stride_a, stride_b, stride_c, batch);
}
// The pointers are read when the work runs, as on a GPU; their extents are checked then.
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
	const void *alpha, const void *const A[], cudaDataType at, int lda, const void *const B[], cudaDataType bt, int ldb,
	const void *beta, void *const C[], cudaDataType ct, int ldc, int batch, cublasComputeType_t compute, cublasGemmAlgo_t)
{
	CALL("cublasGemmBatchedEx");
	if (!fp32(compute))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	Product g = {m, n, k, *(const float *)alpha, *(const float *)beta, {A, at, ta != CUBLAS_OP_N, lda},
		{B, bt, tb != CUBLAS_OP_N, ldb}, nullptr, ct, ldc};
	cublasStatus_t s = check(g, batch);
	auto q = queue_of(h->stream);
	size_t bytes = (size_t)std::max(batch, 0) * sizeof(void *);
	if (s || !batch)
		return s;
	if (!q || q->device != h->device || !memory_covers(A, bytes, q->device) || !memory_covers(B, bytes, q->device) ||
		!memory_covers(C, bytes, q->device))
		return CUBLAS_STATUS_INVALID_VALUE;
	queue_submit(
		q,
		[=](Queue &self) {
			for (int i = 0; i < batch; i++) {
				Product p = g;
				p.a.p = A[i];
				p.b.p = B[i];
				p.c = C[i];
				check_extents(p, self.device);
				multiply(p);
				as_copier(self, [&] { tell_tsan(p); });
			}
		},
		call.poison);
	return sticky() ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float *alpha,
	const float *A, int lda, const float *B, int ldb, const float *beta, float *C, int ldc)
{
	CALL("cublasSgemm");
	Product g = {m, n, k, *alpha, *beta, {A, CUDA_R_32F, ta != CUBLAS_OP_N, lda}, {B, CUDA_R_32F, tb != CUBLAS_OP_N, ldb}, C,
		CUDA_R_32F, ldc};
	return strided(call, h, g, 0, 0, 0, 1);
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
	const float *alpha, const float *A, int lda, long long stride_a, const float *B, int ldb, long long stride_b,
	const float *beta, float *C, int ldc, long long stride_c, int batch)
{
	CALL("cublasSgemmStridedBatched");
	Product g = {m, n, k, *alpha, *beta, {A, CUDA_R_32F, ta != CUBLAS_OP_N, lda}, {B, CUDA_R_32F, tb != CUBLAS_OP_N, ldb}, C,
		CUDA_R_32F, ldc};
	return strided(call, h, g, stride_a, stride_b, stride_c, batch);
}
// y = alpha op(A) x + beta y with A [m, n]; contiguous vectors only.
cublasStatus_t cublasSgemv(cublasHandle_t h, cublasOperation_t t, int m, int n, const float *alpha, const float *A, int lda,
	const float *x, int incx, const float *beta, float *y, int incy)
{
	CALL("cublasSgemv");
	if (incx != 1 || incy != 1)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	bool op = t != CUBLAS_OP_N;
	int rows = op ? n : m, k = op ? m : n;
	Product g = {rows, 1, k, *alpha, *beta, {A, CUDA_R_32F, op, lda}, {x, CUDA_R_32F, false, std::max(1, k)}, y, CUDA_R_32F,
		std::max(1, rows)};
	return strided(call, h, g, 0, 0, 0, 1);
}
}
