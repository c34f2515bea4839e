/* wgmma.cuh: the inline PTX that only Hopper has (sm_90a), beside ptx.cuh's: products of a warpgroup (128 threads, 4 warps) with operands in shared memory,
 * and how such operands lie there. Each piece has a twin for the emulation (tests/cudaemu/include/cuemu/wgmma.h), which decodes the same descriptors. */
#ifndef KVB_WGMMA_CUH
#define KVB_WGMMA_CUH

#include "runners/device/cuda/ptx.cuh"

/* Tiles in shared memory: rows of d channels in panels of 64 channels; a panel is rows x 128 bytes and begins at a multiple of 1024. The eight 16-byte
 * pieces of row r stand at places piece ^ (r & 7): the 128-byte swizzle, so that neither rows nor columns of an 8 x 8 block meet in a bank. */
static const uint32_t ROW_BYTES = 128, ATOM_BYTES = 8 * ROW_BYTES;
static __host__ __device__ __forceinline__ uint32_t swizzled(int rows, int r, int c) /* bytes from the tile's start to row r, channel c */
{
	return (uint32_t)(c / 64 * rows + r) * ROW_BYTES + (uint32_t)(((c % 64 / 8) ^ (r & 7)) * 16 + c % 8 * 2);
}

/* A shared-memory operand of 128-byte swizzle from `address` on. Rows of k-contiguous channels (A, or B as it stands): `stride` bytes from 8 rows to the
 * next 8, `lead` unused (one piece). Transposed B (k over rows): `stride` from 8 rows to the next 8, `lead` from 64 channels to the next 64. The
 * address moves inside a panel by 32 bytes for 16 channels, by 16 rows for 16 rows: the swizzle is one of address bits. */
static __host__ __device__ __forceinline__ uint64_t wgmma_operand(uint32_t address, uint32_t lead, uint32_t stride)
{
	return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(lead >> 4 & 0x3fff) << 16 | (uint64_t)(stride >> 4 & 0x3fff) << 32 | (uint64_t)1 << 62;
}

/* The first address in dynamic shared memory that is a multiple of 1024, as the hardware counts. */
static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
#ifdef CUEMU
	return cuemu::shared_address(p);
#else
	return (uint32_t)__cvta_generic_to_shared(p);
#endif
}

/* ---- barriers of some of the block's warps: `threads` take part in all, those that arrive do not wait ---- */
static __device__ __forceinline__ void bar_sync(int id, int threads)
{
#ifdef CUEMU
	cuemu::bar_sync(id, threads);
#else
	asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
#endif
}
static __device__ __forceinline__ void bar_arrive(int id, int threads)
{
#ifdef CUEMU
	cuemu::bar_arrive(id, threads);
#else
	asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
#endif
}

#if defined(CUEMU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* Before a barrier: what this thread wrote to shared memory may be read by products. */
static __device__ __forceinline__ void fence_for_products(void)
{
#ifndef CUEMU
	asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#endif
}
/* Registers from one warpgroup to another: a launch gives all the same number. */
template <int N> static __device__ __forceinline__ void registers_give(void)
{
#ifndef CUEMU
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(N));
#endif
}
template <int N> static __device__ __forceinline__ void registers_take(void)
{
#ifndef CUEMU
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(N));
#endif
}

#define REGS_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
	"%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define REGS_64 REGS_32 "," \
	"%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
	"%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define ACC_8(d, i) "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]), "+f"((d)[(i) + 4]), "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define ACC_32(d) ACC_8(d, 0), ACC_8(d, 8), ACC_8(d, 16), ACC_8(d, 24)
#define ACC_64(d) ACC_32(d), ACC_8(d, 32), ACC_8(d, 40), ACC_8(d, 48), ACC_8(d, 56)

/* Accumulators d of 64 x N: warp w has rows 16 w .. + 15, lane 4 g + t of them rows g (d[4 n], d[4 n + 1]) and g + 8 (d[4 n + 2], d[4 n + 3]), columns
 * 8 n + 2 t and + 1. Between begin and end nobody may touch d, or what else is given to begin: the products run behind the program. */
static __device__ __forceinline__ void wgmma_begin(float (&d)[64])
{
#ifdef CUEMU
	cuemu::wgmma_begin(d, 64);
#else
	asm volatile("wgmma.fence.sync.aligned;\n" : ACC_64(d)::"memory");
#endif
}
static __device__ __forceinline__ void wgmma_begin(float (&d)[32])
{
#ifdef CUEMU
	cuemu::wgmma_begin(d, 32);
#else
	asm volatile("wgmma.fence.sync.aligned;\n" : ACC_32(d)::"memory");
#endif
}
/* Values that products read from registers are final here. */
template <int N> static __device__ __forceinline__ void wgmma_hold(uint32_t (&a)[N][4])
{
#ifndef CUEMU
#pragma unroll
	for (int i = 0; i < N; i++)
		asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
#endif
}
/* Waits for all products. */
static __device__ __forceinline__ void wgmma_end(float (&d)[64])
{
#ifdef CUEMU
	cuemu::wgmma_end(d, 64);
#else
	asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" : ACC_64(d)::"memory");
#endif
}
static __device__ __forceinline__ void wgmma_end(float (&d)[32])
{
#ifdef CUEMU
	cuemu::wgmma_end(d, 32);
#else
	asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" : ACC_32(d)::"memory");
#endif
}

/* d = (add ? d : 0) + a b: a [64][16] and b [128][16] are rows in shared memory. */
static __device__ __forceinline__ void wgmma_rows(float (&d)[64], uint64_t a, uint64_t b, bool add)
{
#ifdef CUEMU
	cuemu::wgmma(d, 128, NULL, a, b, add, false);
#else
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS_64 "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
		     : ACC_64(d)
		     : "l"(a), "l"(b), "r"((int)add));
#endif
}
/* d += a b: a [64][16] in registers as mma.m16n8k16 has it, b [16][N] transposed rows in shared memory; N = 128 or 64. */
static __device__ __forceinline__ void wgmma_registers(float (&d)[64], const uint32_t a[4], uint64_t b)
{
#ifdef CUEMU
	cuemu::wgmma(d, 128, a, 0, b, true, true);
#else
	asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS_64 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}\n"
		     : ACC_64(d)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}
static __device__ __forceinline__ void wgmma_registers(float (&d)[32], const uint32_t a[4], uint64_t b)
{
#ifdef CUEMU
	cuemu::wgmma(d, 64, a, 0, b, true, true);
#else
	asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"
		     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGS_32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}\n"
		     : ACC_32(d)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}
#endif

#endif
