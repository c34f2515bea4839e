// cuemu/wgmma.h: CPU twin of Hopper's wgmma.mma_async (bf16, fp32 sums, m64nNk16) with operands of 128-byte swizzle in shared memory. Descriptors are decoded
// bit by bit as the PTX manual lays them out, and the swizzle is applied to address bits, so that layouts, strides and offsets are really tested.
// The warp's last lane makes the products of all, at once; between wgmma_begin (wgmma.fence) and wgmma_end (commit and wait) accumulators read as NaN.
#pragma once
namespace cuemu {
uint32_t shared_address(const void *p);                            // of the shared state space: where dynamic shared memory begins is not aligned to 1024
const unsigned char *shared_at(uint32_t address, size_t bytes);
float *product_open(const float *d);
float *product_of(const float *d, bool close);
// registers: a is there; else its rows are in shared memory. All lanes of a warp hand in the same descriptors.
void wgmma_(float *d, int n, U4 a, bool registers, uint64_t a_rows, uint64_t b, bool add, bool b_over_k, Where where);

inline void wgmma_begin(float *d, int n) {
	memcpy(product_open(d), d, (size_t)n * sizeof *d);
	memset(d, 0xff, (size_t)n * sizeof *d);
}
inline void wgmma_end(float *d, int n) { memcpy(d, product_of(d, true), (size_t)n * sizeof *d); }

// d (+)= a b, N = n columns. a: registers as in mma.m16n8k16, or NULL and rows in shared memory. b_over_k: imm-trans-b.
inline void wgmma(float *d, int n, const uint32_t *a, uint64_t a_rows, uint64_t b, bool add, bool b_over_k, CUEMU_HERE) {
	wgmma_(d, n, a ? U4{a[0], a[1], a[2], a[3]} : U4{0, 0, 0, 0}, a != NULL, a_rows, b, add, b_over_k, CUEMU_WHERE);
}
} // namespace cuemu
