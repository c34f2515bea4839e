/* moments.cu: sums and outer products of query rows, in double: their differences (covariances) cancel. Rows are added in ascending order, each product
 * is exact in double, so the results have the CPU's bits. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"

enum { TILE = 16, ROWS = 32 };

/* One block a 16 x 16 tile of one head's outer product; tiles of the first column also add the sums. */
static __global__ void __launch_bounds__(TILE *TILE, 2) moments(
	double *sum, double *outer, const float *x, int64_t ld, int d, int64_t rows)
{
	__shared__ float a[ROWS][TILE], b[ROWS][TILE];
	int head = blockIdx.z, i0 = blockIdx.y * TILE, k0 = blockIdx.x * TILE, ti = threadIdx.x / TILE, tk = threadIdx.x % TILE;
	int i = i0 + ti, k = k0 + tk;
	bool inside = i < d && k < d, sums = blockIdx.x == 0 && tk == 0 && i < d;
	double *to = outer + (int64_t)head * d * d + (int64_t)i * d + k, *to_sum = sum + (int64_t)head * d + i;
	double total = inside ? *to : 0, total_sum = sums ? *to_sum : 0;
	for (int64_t r0 = 0; r0 < rows; r0 += ROWS) {
		for (int e = threadIdx.x; e < ROWS * TILE; e += TILE * TILE) {
			int64_t r = r0 + e / TILE;
			int c = e % TILE;
			const float *row = x + r * ld + (int64_t)head * d;
			a[e / TILE][c] = r < rows && i0 + c < d ? row[i0 + c] : 0;
			b[e / TILE][c] = r < rows && k0 + c < d ? row[k0 + c] : 0;
		}
		__syncthreads();
		for (int r = 0; r < ROWS && r0 + r < rows; r++) {
			total += (double)a[r][ti] * (double)b[r][tk];
			total_sum += (double)a[r][ti];
		}
		__syncthreads();
	}
	if (inside)
		*to = total;
	if (sums)
		*to_sum = total_sum;
}

extern "C" cudaError_t kernel_moments(cudaStream_t s, double *sum, double *outer, const float *x, int64_t ld, int heads, int d, int64_t rows)
{
	unsigned tiles = blocks_for(d, TILE);
	return klaunch(moments, dim3(tiles, tiles, (unsigned)heads), TILE * TILE, 0, s, sum, outer, x, ld, d, rows);
}
