// cuemu/tma.h: CPU twins of Hopper's mbarriers and of cp.async.bulk.tensor. A barrier counts arrivals and bytes as the PTX manual says; a box is decoded from
// its map (tma.cpp) and reads as NaN from the instruction on until it arrives: when threads wait for its barrier and nobody can run, in seeded order.
#pragma once
namespace cuemu {
void mbar_init(uint64_t *bar, unsigned arrivals);
void mbar_arrive(uint64_t *bar, unsigned bytes); // mbarrier.arrive[.expect_tx]
void mbar_wait_(uint64_t *bar, unsigned parity, Where where);
inline void mbar_wait(uint64_t *bar, unsigned parity, CUEMU_HERE) { mbar_wait_(bar, parity, CUEMU_WHERE); } // mbarrier.try_wait.parity until it is so
void map_acquire(const void *map); // fence.proxy.tensormap::generic.acquire of 128 bytes
void box_copy(void *shared, const void *map, const int32_t *at, int rank, uint64_t *bar); // cp.async.bulk.tensor into this block's shared memory
} // namespace cuemu
