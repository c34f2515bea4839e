/* tma.cuh: the inline PTX of Hopper's copies by tensor map (sm_90a), beside wgmma.cuh's: barriers in shared memory that count arrivals and bytes, and boxes
 * of a tensor that one thread asks for and that arrive behind the program. Each piece has a twin for the emulation (tests/cudaemu/include/cuemu/tma.h). */
#ifndef KVB_TMA_CUH
#define KVB_TMA_CUH

#include "runners/device/cuda/wgmma.cuh"

#include <cuda.h> /* CUtensorMap */

#if defined(CUEMU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* ---- barriers in shared memory: a phase ends when `arrivals` threads have arrived and all the bytes they told of are there; parities 0, 1, 0, ... ---- */
static __device__ __forceinline__ void mbar_init(uint64_t *bar, int arrivals)
{
#ifdef CUEMU
	cuemu::mbar_init(bar, arrivals);
#else
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(bar)), "r"(arrivals) : "memory");
#endif
}
/* By the thread that made barriers, before the block meets: others and copies find them made. */
static __device__ __forceinline__ void mbar_made(void)
{
#ifndef CUEMU
	asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
#endif
	fence_for_products();
}
static __device__ __forceinline__ void mbar_arrive(uint64_t *bar)
{
#ifdef CUEMU
	cuemu::mbar_arrive(bar, 0);
#else
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(bar)) : "memory");
#endif
}
/* Arrives, and tells of `bytes` that copies will bring in this phase. */
static __device__ __forceinline__ void mbar_arrive_expect(uint64_t *bar, uint32_t bytes)
{
#ifdef CUEMU
	cuemu::mbar_arrive(bar, bytes);
#else
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
#endif
}
/* Until the phase of this parity has ended; the one before the first has parity 1. */
static __device__ __forceinline__ void mbar_wait(uint64_t *bar, uint32_t parity)
{
#ifdef CUEMU
	cuemu::mbar_wait(bar, parity);
#else
	uint32_t ended;
	do
		asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
			     : "=r"(ended)
			     : "r"(shared_address(bar)), "r"(parity)
			     : "memory");
	while (!ended);
#endif
}

/* ---- copies by tensor map ---- */
/* A map in device memory, written by the host before the launch: once a block, before its first use. */
static __device__ __forceinline__ void map_acquire(const CUtensorMap *map)
{
#ifdef CUEMU
	cuemu::map_acquire(map);
#else
	asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;\n" ::"l"(map) : "memory");
#endif
}
/* The map's box from column c of row r on, to shared memory; its bytes count at the barrier. */
static __device__ __forceinline__ void box_copy(void *shared, const CUtensorMap *map, int32_t c, int32_t r, uint64_t *bar)
{
#ifdef CUEMU
	int32_t at[2] = {c, r};
	cuemu::box_copy(shared, map, at, 2, bar);
#else
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];\n" ::"r"(shared_address(shared)),
		     "l"(map), "r"(shared_address(bar)), "r"(c), "r"(r)
		     : "memory");
#endif
}
#endif

#endif
