/* ptx.cuh: the only file with inline PTX (but for what Hopper alone has: wgmma.cuh, tma.cuh), and the few device functions every kernel shares. Each piece of PTX has a twin for the emulation. */
#ifndef KVB_PTX_CUH
#define KVB_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;

static const unsigned ALL_LANES = 0xffffffffu;

/* d[16x8] += a[16x16] b[16x8], bf16 in, fp32 sums; registers as in the PTX manual, mma.m16n8k16. */
static __device__ __forceinline__ void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#ifdef CUEMU
	cuemu::mma_m16n8k16(d, a, b);
#else
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* Four 8x8 matrices of 16-bit values from shared memory; lane 8i+r names row r of matrix i. */
static __device__ __forceinline__ void ldmatrix4(uint32_t r[4], const void *row)
{
#ifdef CUEMU
	cuemu::ldmatrix_x4(r, row, false);
#else
	uint32_t p = (uint32_t)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(p) : "memory");
#endif
}
static __device__ __forceinline__ void ldmatrix4_transposed(uint32_t r[4], const void *row)
{
#ifdef CUEMU
	cuemu::ldmatrix_x4(r, row, true);
#else
	uint32_t p = (uint32_t)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(p) : "memory");
#endif
}

/* 16 bytes from global to shared memory, done at the wait; valid = false writes zeros and reads nothing. */
static __device__ __forceinline__ void copy16_async(void *shared, const void *global, bool valid)
{
#ifdef CUEMU
	cuemu::cp_async(shared, global, 16, valid ? 0 : 16);
#else
	uint32_t p = (uint32_t)__cvta_generic_to_shared(shared);
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(p), "l"(global), "r"(valid ? 16 : 0) : "memory");
#endif
}
static __device__ __forceinline__ void copies_commit(void)
{
#ifdef CUEMU
	cuemu::cp_async_commit();
#else
	asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}
/* Waits until at most KEEP of this thread's latest groups are under way. */
template <int KEEP> static __device__ __forceinline__ void copies_wait(void)
{
#ifdef CUEMU
	cuemu::cp_async_wait(KEEP);
#else
	asm volatile("cp.async.wait_group %0;\n" ::"n"(KEEP) : "memory");
#endif
}

static __device__ __forceinline__ uint32_t pack_bf16(float low, float high)
{
	__nv_bfloat162 v = __floats2bfloat162_rn(low, high);
	return *(uint32_t *)&v;
}

/* Sums and maxima over a warp: every lane gets the result, added in one fixed order. */
static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		v += __shfl_xor_sync(ALL_LANES, v, o);
	return v;
}
static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, o));
	return v;
}
/* Of the four lanes that hold one row of an mma's result. */
static __device__ __forceinline__ float quad_sum(float v)
{
	v += __shfl_xor_sync(ALL_LANES, v, 1);
	return v + __shfl_xor_sync(ALL_LANES, v, 2);
}
static __device__ __forceinline__ float quad_max(float v)
{
	v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, 1));
	return fmaxf(v, __shfl_xor_sync(ALL_LANES, v, 2));
}

#endif
