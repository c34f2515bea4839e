/* topk.cu: exact selection of the best k by radix, with the program's one tie rule (higher, then lower row, then lower column; NaN last).
 *
 * As on the CPU (topk.c): a score becomes a 32-bit key of the same order; three passes of histograms (11, 11, 10 bits) find the key of the k-th entry
 * and how many equal to it are in. Then each chunk of columns counts, the counts become places, and an ordered compaction by ballot writes the
 * columns. Atomics count integers only, so that nothing depends on the order of blocks. */
#include "runners/device/cuda/kernels.h"
#include "runners/device/cuda/klaunch.cuh"
#include "runners/device/cuda/ptx.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, SPAN = TOPK_BINS / THREADS };

static __device__ __forceinline__ uint32_t order_key(float score)
{
	uint32_t bits = __float_as_uint(score);
	if (score != score)
		return 0;
	if (bits == 0x80000000u)
		bits = 0; /* -0 = +0 */
	return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ int64_t group_of(const struct topk_job *j, int64_t row)
{
	return j->groups == 1 ? 0 : row;
}

/* Columns [first, end) of a block's chunk. */
struct chunk {
	const float *x;
	int64_t first, end;
};
static __device__ __forceinline__ struct chunk chunk_of(const struct topk_job *j)
{
	int64_t first = (int64_t)blockIdx.x * TOPK_CHUNK, end = first + TOPK_CHUNK;
	struct chunk c = {j->x + blockIdx.y * j->ld, first, end < j->cols ? end : j->cols};
	return c;
}

/* Counts the `bits` key bits from `shift` on, of entries whose bits above are the cut's. Grid: chunks x rows. */
static __global__ void __launch_bounds__(THREADS) histogram(struct topk_job j, int shift, int bits)
{
	__shared__ uint32_t bins[TOPK_BINS];
	struct chunk c = chunk_of(&j);
	int64_t group = group_of(&j, blockIdx.y);
	uint32_t prefix = j.cut[group].key, mask = (1u << bits) - 1;
	for (int i = threadIdx.x; i < TOPK_BINS; i += THREADS)
		bins[i] = 0;
	__syncthreads();
	for (int64_t i = c.first + threadIdx.x; i < c.end; i += THREADS) {
		uint32_t key = order_key(c.x[i]);
		if ((uint64_t)key >> (shift + bits) == prefix)
			atomicAdd(&bins[(key >> shift) & mask], 1u);
	}
	__syncthreads();
	for (int i = threadIdx.x; i < TOPK_BINS; i += THREADS)
		if (bins[i])
			atomicAdd(&j.bins[group * TOPK_BINS + i], bins[i]);
}

/* The bin in which the entry lies that is `left`-th from above; bins are left zero for the next pass. One block a group. */
static __global__ void __launch_bounds__(THREADS) choose(struct topk_job j, int shift, int bits)
{
	__shared__ uint32_t sum[THREADS];
	uint32_t *bins = j.bins + (int64_t)blockIdx.x * TOPK_BINS;
	struct topk_cut *cut = &j.cut[blockIdx.x];
	uint32_t mine = 0;
	for (int i = 0; i < SPAN; i++)
		mine += bins[threadIdx.x * SPAN + i];
	sum[threadIdx.x] = mine;
	__syncthreads();
	if (threadIdx.x == 0) {
		int64_t left = cut->left;
		int bin = (1 << bits) - 1, span = bin / SPAN;
		for (; span > 0 && sum[span] < left; span--)
			left -= sum[span];
		if (bin > span * SPAN + SPAN - 1)
			bin = span * SPAN + SPAN - 1;
		for (; bin > 0 && bins[bin] < left; bin--)
			left -= bins[bin];
		if (shift + bits == 32) /* keys below -inf: NaN only, all in bin 0 */
			cut->nan = bins[0];
		cut->key = cut->key << bits | (uint32_t)bin;
		cut->left = left;
	}
	__syncthreads();
	for (int i = 0; i < SPAN; i++)
		bins[threadIdx.x * SPAN + i] = 0;
}

/* Entries of a chunk above the cut and equal to it. Grid: chunks x rows. */
static __global__ void __launch_bounds__(THREADS) count(struct topk_job j)
{
	__shared__ int32_t total[2];
	struct chunk c = chunk_of(&j);
	uint32_t cut = j.cut[group_of(&j, blockIdx.y)].key;
	int32_t above = 0, equal = 0;
	if (threadIdx.x < 2)
		total[threadIdx.x] = 0;
	__syncthreads();
	for (int64_t i = c.first + threadIdx.x; i < c.end; i += THREADS) {
		uint32_t key = order_key(c.x[i]);
		above += key > cut;
		equal += key == cut;
	}
	atomicAdd(&total[0], above);
	atomicAdd(&total[1], equal);
	__syncthreads();
	if (threadIdx.x == 0) {
		struct topk_part p = {total[0], total[1]};
		j.part[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = p;
	}
}

/* Counts of chunks become the chunk's first place in its row's list and how many of its equals are in: the first of the group, by row and column.
 * One block a group. */
static __global__ void __launch_bounds__(THREADS) place(struct topk_job j, int chunks)
{
	int64_t row0 = j.groups == 1 ? 0 : blockIdx.x, rows = j.groups == 1 ? j.rows : 1;
	for (int64_t r = row0 + threadIdx.x; r < row0 + rows; r += THREADS) {
		int64_t equal = 0;
		for (int c = 0; c < chunks; c++)
			equal += j.part[r * chunks + c].equal;
		j.count[r] = equal;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		int64_t left = j.cut[blockIdx.x].left;
		for (int64_t r = row0; r < row0 + rows; r++) { /* equals of the row -> those that are in */
			int64_t in = j.count[r] < left ? j.count[r] : left;
			j.count[r] = in;
			left -= in;
		}
	}
	__syncthreads();
	for (int64_t r = row0 + threadIdx.x; r < row0 + rows; r += THREADS) {
		int64_t left = j.count[r];
		int32_t at = 0;
		for (int c = 0; c < chunks; c++) {
			struct topk_part *p = &j.part[r * chunks + c], was = *p;
			p->above = at;
			p->equal = was.equal < left ? was.equal : (int32_t)left;
			at += was.above + p->equal;
			left -= p->equal;
		}
		j.count[r] = at;
	}
}

/* Of the block's threads for which `in` holds: how many stand before this one; *all: how many there are. */
static __device__ __forceinline__ int rank_of(bool in, int *warps, int *all)
{
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, before = 0, total = 0;
	unsigned voted = __ballot_sync(ALL_LANES, in);
	if (lane == 0)
		warps[warp] = __popc(voted);
	__syncthreads();
	for (int w = 0; w < WARPS; w++) {
		before += w < warp ? warps[w] : 0;
		total += warps[w];
	}
	*all = total;
	return before + __popc(voted & ((1u << lane) - 1));
}

/* Grid: chunks x rows. */
static __global__ void __launch_bounds__(THREADS) list(struct topk_job j, int32_t *out, const int64_t *first)
{
	__shared__ int equals[WARPS], chosen[WARPS]; /* by turns: a barrier lies between a reading and the next writing of each */
	struct chunk c = chunk_of(&j);
	struct topk_part p = j.part[(int64_t)blockIdx.y * gridDim.x + blockIdx.x];
	uint32_t cut = j.cut[group_of(&j, blockIdx.y)].key;
	int32_t *to = out + first[blockIdx.y] + p.above;
	int seen = 0, n, all;
	for (int64_t i0 = c.first; i0 < c.end; i0 += THREADS) {
		int64_t i = i0 + threadIdx.x;
		uint32_t key = i < c.end ? order_key(c.x[i]) : 0;
		bool equal = i < c.end && key == cut;
		int rank = rank_of(equal, equals, &all);
		bool in = i < c.end && (key > cut || (equal && seen + rank < p.equal));
		seen += all;
		n = rank_of(in, chosen, &all);
		if (in)
			to[n] = (int32_t)i;
		to += all;
	}
}

extern "C" cudaError_t kernel_topk(cudaStream_t s, struct topk_job j)
{
	static const int bits[3] = {11, 11, 10};
	dim3 grid(blocks_for(j.cols, TOPK_CHUNK), (unsigned)j.rows);
	cudaError_t e = cudaSuccess;
	for (int pass = 0, shift = 32; pass < 3 && e == cudaSuccess; pass++) {
		shift -= bits[pass];
		e = klaunch(histogram, grid, THREADS, 0, s, j, shift, bits[pass]);
		if (e == cudaSuccess)
			e = klaunch(choose, (unsigned)j.groups, THREADS, 0, s, j, shift, bits[pass]);
	}
	if (e == cudaSuccess)
		e = klaunch(count, grid, THREADS, 0, s, j);
	return e == cudaSuccess ? klaunch(place, (unsigned)j.groups, THREADS, 0, s, j, (int)grid.x) : e;
}

extern "C" cudaError_t kernel_topk_list(cudaStream_t s, struct topk_job j, int32_t *out, const int64_t *first)
{
	return klaunch(list, dim3(blocks_for(j.cols, TOPK_CHUNK), (unsigned)j.rows), THREADS, 0, s, j, out, first);
}
