/* attend_wgmma.cu: attention of many rows over bf16 caches for Hopper (sm_90a), heads of 64 or 128 channels: the same function as attend.cu, which is its
 * reference and serves everything else.
 *
 * Three warpgroups a block. One loads: K and V tiles of BN keys, STAGES deep, into the swizzled form that wgmma reads. A whole tile of rows that stand one
 * after another is a box of the segment's tensor map, which one thread asks for; what an index names, a segment's last keys and segments without maps are
 * copied by the whole group with cp.async. Two compute, 64 rows each: S = Q K^T with both operands in shared memory, the online softmax in registers,
 * O += P V with P as a register operand. An mbarrier says that a tile is full, a named barrier that both have done with it, so that one group's softmax
 * runs beside the other's products. Nobody arrives at a named barrier for which nobody waits: the number of tiles is known at the start. */
#include "runners/device/cuda/attend.cuh"
#include "runners/device/cuda/klaunch.cuh"
#include "runners/device/cuda/tma.cuh"

enum { GROUP = 128, COMPUTE = 2, THREADS = (1 + COMPUTE) * GROUP, BM = COMPUTE * 64, BN = BOX_ROWS, STAGES = 2, KEYS = 0, VALUES = 1, TILES = STAGES * 2 };

template <int D> struct hopper_tile {
	static const uint32_t Q = BM * D * 2, KV = BN * D * 2; /* bytes */
	static const size_t BYTES = ATOM_BYTES + Q + TILES * KV;
};

#if defined(CUEMU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* Named barriers: a computing group's queries are there; both are done with a tile. */
static __device__ __forceinline__ int bar_queries(int group)
{
	return 1 + group;
}
static __device__ __forceinline__ int bar_empty(int tile)
{
	return 1 + COMPUTE + tile;
}
/* Which of the TILES in shared memory the i-th keys or values of a block take, and the parity of their phase there. */
static __device__ __forceinline__ int tile_of(int i, int what)
{
	return i % STAGES * 2 + what;
}
static __device__ __forceinline__ uint32_t parity_of(int i)
{
	return (uint32_t)(i / STAGES & 1);
}

/* Tiles of BN keys over all segments, as tile_settle walks. */
static __device__ __forceinline__ int tile_count(const struct attend_item *a, int64_t last_query)
{
	int n = 0;
	for (int s = 0; s < a->n_seg; s++)
		n += (int)((segment_end(a, s, last_query) + BN - 1) / BN);
	return n;
}

template <int D>
static __device__ __forceinline__ void load_swizzled(unsigned char *to, const bf16 *base, const int32_t *index, struct key_tile t, int thread)
{
	const int PIECES = D / 8;
#pragma unroll 4
	for (int i = thread; i < BN * PIECES; i += GROUP) {
		int r = i / PIECES, c = i % PIECES * 8;
		int64_t key = t.pos + r;
		bool valid = key < t.end;
		int64_t row = !valid ? 0 : index ? index[key] : key;
		copy16_async(to + swizzled(BN, r, c), base + row * D + c, valid);
	}
}

/* One thread asks; the barrier tells when all bytes are there. */
template <int D>
static __device__ __forceinline__ void load_boxes(unsigned char *to, const CUtensorMap *map, struct key_tile t, uint64_t *full, int thread)
{
	if (thread > 0) {
		mbar_arrive(full);
		return;
	}
	if (t.pos == 0) /* the segment's first tile is the first of its boxes */
		map_acquire(map);
	mbar_arrive_expect(full, hopper_tile<D>::KV);
#pragma unroll
	for (int c = 0; c < D; c += BOX_COLS)
		box_copy(to + swizzled(BN, 0, c), map, c, (int32_t)t.pos, full);
}

/* What was copied before the newest group is there: says so to the computing groups. */
template <int KEEP> static __device__ __forceinline__ void hand_over(uint64_t *full)
{
	copies_wait<KEEP>();
	fence_for_products();
	mbar_arrive(full);
}

/* The loading group. A tile that it copies itself is handed over when the next one is under way. */
template <int D>
static __device__ __forceinline__ void load_tiles(
	unsigned char *kv, uint64_t *full, const struct attend_item *a, int64_t last_query, bool values, int thread)
{
	struct key_tile t = {0, 0, segment_end(a, 0, last_query)};
	int i = 0, owed = -1; /* such a tile */
	for (tile_settle(a, &t, last_query); tile_there(a, &t); i++) {
		const struct key_segment *g = &a->seg[t.seg];
		bool boxes = g->maps && t.pos + BN <= t.end;
		for (int what = KEYS; what <= (values ? VALUES : KEYS); what++) {
			int tile = tile_of(i, what);
			unsigned char *to = kv + tile * hopper_tile<D>::KV;
			if (i >= STAGES)
				bar_sync(bar_empty(tile), THREADS);
			if (boxes)
				load_boxes<D>(to, &g->maps[what], t, &full[tile], thread);
			else
				load_swizzled<D>(to, (const bf16 *)(what == KEYS ? g->k : g->v), g->index, t, thread);
			copies_commit(); /* of no copy where there are boxes */
			if (owed >= 0)
				hand_over<1>(&full[owed]);
			owed = boxes ? -1 : tile;
		}
		t.pos += BN;
		tile_settle(a, &t, last_query);
	}
	if (owed >= 0)
		hand_over<0>(&full[owed]);
}

/* 64 rows from m0 on, rounded to bf16, to rows row0.. of the tile; zeros outside. */
template <int D>
static __device__ __forceinline__ void load_queries(unsigned char *to, const struct attend_item *a, struct attend_shape shape, int64_t m0,
	int64_t rows, int row0, int thread)
{
	for (int i = thread; i < 64 * (D / 2); i += GROUP) {
		int r = i / (D / 2), c = i % (D / 2) * 2;
		int64_t m = m0 + r;
		const float *q = a->q + m / shape.g * shape.q_ld + m % shape.g * D;
		*(uint32_t *)(to + swizzled(BM, row0 + r, c)) = m < rows ? pack_bf16(q[c], q[c + 1]) : 0;
	}
}

/* S of 64 rows by BN keys. */
template <int D> static __device__ __forceinline__ void multiply_keys(float (&s)[BN / 2], uint32_t q, uint32_t k)
{
	wgmma_begin(s);
#pragma unroll
	for (int c = 0; c < D; c += 16) {
		uint32_t in_panel = c % 64 * 2;
		wgmma_rows(s, wgmma_operand(q + c / 64 * BM * ROW_BYTES + in_panel, 16, ATOM_BYTES),
			wgmma_operand(k + c / 64 * BN * ROW_BYTES + in_panel, 16, ATOM_BYTES), c > 0);
	}
	wgmma_end(s);
}

/* O += P V, P rounded to bf16. */
template <int D> static __device__ __forceinline__ void multiply_values(float (&o)[D / 2], const float (&p)[BN / 2], uint32_t v)
{
	uint32_t a[BN / 16][4];
#pragma unroll
	for (int k = 0; k < BN / 16; k++)
#pragma unroll
		for (int i = 0; i < 4; i++) /* rows g, g + 8 of the first 8 keys, then of the other 8 */
			a[k][i] = pack_bf16(p[8 * k + 2 * i], p[8 * k + 2 * i + 1]);
	wgmma_hold(a);
	wgmma_begin(o);
#pragma unroll
	for (int k = 0; k < BN / 16; k++)
		wgmma_registers(o, a[k], wgmma_operand(v + k * 16 * ROW_BYTES, BN * ROW_BYTES, ATOM_BYTES));
	wgmma_end(o);
}

/* S becomes P; maxima, sums and O follow. limit: keys of the tile that rows g and g + 8 see; edge: some row sees not all BN. */
template <int D>
static __device__ __forceinline__ void softmax_step(
	float (&s)[BN / 2], float (&o)[D / 2], float most[2], float sum[2], const int limit[2], bool edge, float scale2, int lane)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float top = most[r], add = 0;
#pragma unroll
		for (int n = 0; n < BN / 8; n++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				float *x = &s[4 * n + 2 * r + e];
				if (edge && n * 8 + 2 * (lane & 3) + e >= limit[r])
					*x = -INFINITY;
				top = fmaxf(top, *x);
			}
		top = quad_max(top);
		float base = top == -INFINITY ? 0 : top * scale2, shrink = exp2f(most[r] * scale2 - base);
		most[r] = top;
#pragma unroll
		for (int n = 0; n < BN / 8; n++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				float p = exp2f(s[4 * n + 2 * r + e] * scale2 - base);
				s[4 * n + 2 * r + e] = p;
				add += p;
			}
		sum[r] = sum[r] * shrink + add;
#pragma unroll
		for (int n = 0; n < D / 8; n++) {
			o[4 * n + 2 * r] *= shrink;
			o[4 * n + 2 * r + 1] *= shrink;
		}
	}
}

/* A computing group: rows [wm, wm + 64). */
template <int D>
static __device__ __forceinline__ void compute_rows(uint32_t q, uint32_t kv, uint64_t *full, const struct attend_item *a, struct attend_shape shape,
	int64_t wm, int64_t rows, int64_t last_query, int thread)
{
	const uint32_t KV = hopper_tile<D>::KV;
	int lane = thread & 31;
	int64_t row0 = wm + (thread >> 5) * 16 + (lane >> 2), first_query = wm / shape.g;
	int64_t group_last = (wm + 63 < rows ? wm + 63 : rows - 1) / shape.g;
	int tiles = tile_count(a, last_query);
	bool values = a->out != NULL;
	float s[BN / 2], o[D / 2], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
	for (int i = 0; i < D / 2; i++)
		o[i] = 0;
	struct key_tile t = {0, 0, segment_end(a, 0, last_query)};
	tile_settle(a, &t, last_query);
	for (int i = 0; i < tiles; i++) {
		int k = tile_of(i, KEYS), v = tile_of(i, VALUES);
		bool last = t.seg == a->n_seg - 1 && a->causal, again = i + STAGES < tiles;
		int64_t whole = last ? a->seen + first_query : t.end; /* keys that all rows of the group see */
		bool works = wm < rows && t.pos < (last ? a->seen + group_last : t.end);
		mbar_wait(&full[k], parity_of(i));
		if (works)
			multiply_keys<D>(s, q, kv + k * KV);
		if (again)
			bar_arrive(bar_empty(k), THREADS);
		if (works) {
			int limit[2];
#pragma unroll
			for (int r = 0; r < 2; r++) {
				int64_t seen = last ? a->seen + (row0 + 8 * r) / shape.g : t.end;
				seen = (seen < t.end ? seen : t.end) - t.pos;
				limit[r] = seen < 0 ? 0 : seen < BN ? (int)seen : BN;
			}
			bool edge = whole < t.pos + BN || t.end < t.pos + BN;
			softmax_step<D>(s, o, most, sum, limit, edge, shape.scale * LOG2E, lane);
		}
		if (values) {
			mbar_wait(&full[v], parity_of(i));
			if (works)
				multiply_values<D>(o, s, kv + v * KV);
			if (again)
				bar_arrive(bar_empty(v), THREADS);
		}
		t.pos += BN;
		tile_settle(a, &t, last_query);
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		int64_t row = row0 + 8 * r, query = row / shape.g, head = row % shape.g;
		float total = quad_sum(sum[r]);
		if (row >= rows)
			continue;
		if (values)
#pragma unroll
			for (int n = 0; n < D / 8; n++)
				store_pair(a->out, shape.out_bf16, query * shape.out_ld + head * D, o[4 * n + 2 * r] / total, o[4 * n + 2 * r + 1] / total,
					n * 8 + 2 * (lane & 3), D);
		if (a->lse && (lane & 3) == 0)
			a->lse[query * shape.lse_ld + head] = (most[r] == -INFINITY ? 0 : most[r] * shape.scale) + logf(total);
	}
}
#endif

/* Grid: tiles of rows (those with the most keys first) x items. */
template <int D> static __global__ void __launch_bounds__(THREADS, 1) attend_wgmma(const struct attend_item *items, struct attend_shape shape)
{
#if defined(CUEMU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ __align__(16) unsigned char smem_raw[];
	__shared__ uint64_t full[TILES];
	const struct attend_item *a = &items[blockIdx.y];
	int64_t rows = a->queries * shape.g, tiles = (rows + BM - 1) / BM, m0 = (tiles - 1 - blockIdx.x) * BM;
	if (m0 < 0)
		return;
	uint32_t start = shared_address(smem_raw), q = (start + ATOM_BYTES - 1) / ATOM_BYTES * ATOM_BYTES, kv = q + hopper_tile<D>::Q;
	unsigned char *qs = smem_raw + (q - start), *kvs = smem_raw + (kv - start);
	int64_t last_query = (m0 + BM - 1 < rows ? m0 + BM - 1 : rows - 1) / shape.g;
	int group = (int)threadIdx.x / GROUP - 1, thread = (int)threadIdx.x % GROUP;
	if (threadIdx.x == 0) {
		for (int i = 0; i < TILES; i++)
			mbar_init(&full[i], GROUP); /* every loading thread arrives once a tile */
		mbar_made();
	}
	__syncthreads();
	if (group < 0) {
		registers_give<72>();
		load_tiles<D>(kvs, full, a, last_query, a->out != NULL, thread);
	} else {
		registers_take<216>(); /* 72 + 2 x 216 = 3 x 168, what the launch gives */
		load_queries<D>(qs, a, shape, m0 + group * 64, rows, group * 64, thread);
		fence_for_products();
		bar_sync(bar_queries(group), GROUP);
		compute_rows<D>(q + group * 64 * ROW_BYTES, kv, full, a, shape, m0 + group * 64, rows, last_query, thread);
	}
#else
	(void)items;
	(void)shape;
	__trap(); /* never chosen: kernel_attend_wgmma_there */
#endif
}

template <int D>
static cudaError_t run(cudaStream_t s, const struct attend_item *items, int n, int64_t most_rows, struct attend_shape shape)
{
	return klaunch(attend_wgmma<D>, dim3(blocks_for(most_rows, BM), (unsigned)n), THREADS, hopper_tile<D>::BYTES, s, items, shape);
}

extern "C" bool kernel_attend_wgmma_there(int major, int minor)
{
#if defined(CUEMU) || defined(KVB_SM90A) /* the build names sm_90a among its architectures */
	return major == 9 && minor == 0;
#else
	(void)major;
	(void)minor;
	return false;
#endif
}

extern "C" cudaError_t kernel_attend_wgmma(cudaStream_t s, const struct attend_item *items, int n, int64_t most_rows, struct attend_shape shape)
{
	return shape.d == 64 ? run<64>(s, items, n, most_rows, shape) : run<128>(s, items, n, most_rows, shape);
}
