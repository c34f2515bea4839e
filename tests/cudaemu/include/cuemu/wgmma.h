// cuemu/wgmma.h: CPU twin of Hopper's wgmma.mma_async (bf16, fp32 sums, m64nNk16) with operands of 128-byte swizzle in shared memory. Descriptors are decoded
// bit by bit as the PTX manual lays them out, and the swizzle is applied to address bits, so that layouts, strides and offsets are really tested.
// Each thread makes its own elements of D, at once; between wgmma_begin (wgmma.fence) and wgmma_end (commit and wait) its accumulators read as NaN.
#pragma once
namespace cuemu {
uint32_t shared_address(const void *p);                            // of the shared state space: where dynamic shared memory begins is not aligned to 1024
const unsigned char *shared_at(uint32_t address, size_t bytes);
float *product_open(const float *d);
float *product_of(const float *d, bool close);

inline void wgmma_begin(float *d, int n) {
	memcpy(product_open(d), d, (size_t)n * sizeof *d);
	memset(d, 0xff, (size_t)n * sizeof *d);
}
inline void wgmma_end(float *d, int n) { memcpy(d, product_of(d, true), (size_t)n * sizeof *d); }

// Element (row, k) of an operand; over_k: the rows in memory run along k (a "transposed" B), else along m or n.
inline float wgmma_element(uint64_t operand, int row, int k, bool over_k) {
	uint32_t start = (uint32_t)(operand & 0x3fff) << 4, lead = (uint32_t)(operand >> 16 & 0x3fff) << 4, stride = (uint32_t)(operand >> 32 & 0x3fff) << 4;
	if (operand >> 62 != 1 || (operand >> 46 & 0xffff) || (start & 15)) trap("wgmma: an operand that is not of 128-byte swizzle, base offset 0");
	uint32_t at = over_k ? start + (uint32_t)(row / 64) * lead + (uint32_t)(row % 64) * 2 + (uint32_t)(k / 8) * stride + (uint32_t)(k % 8) * 128
			     : start + (uint32_t)(row / 8) * stride + (uint32_t)(row % 8) * 128 + (uint32_t)k * 2;
	at ^= (at >> 7 & 7) << 4;
	uint16_t half;
	memcpy(&half, shared_at(at, 2), 2);
	uint32_t bits = (uint32_t)half << 16;
	float x;
	memcpy(&x, &bits, 4);
	return x;
}

// d (+)= a b, N = n columns. a: registers as in mma.m16n8k16, or NULL and rows in shared memory. b_over_k: imm-trans-b.
inline void wgmma(float *d, int n, const uint32_t *a, uint64_t a_rows, uint64_t b, bool add, bool b_over_k, CUEMU_HERE) {
	unsigned l = lane(), g = l >> 2, t = l & 3, warp = threadIdx.x >> 5 & 3;
	uint32_t mine[4] = {0, 0, 0, 0};
	if (a) memcpy(mine, a, 16);
	Round round = meet(0xffffffffu, mine, 16, "wgmma", CUEMU_WHERE, false, nullptr); // the warp is whole; registers of the quad
	float A[2][16], *sum = product_of(d, false);
	for (int r = 0; r < 2; r++)
		for (int k = 0; k < 16; k++)
			if (a) { // register 0: row g, columns 2t, 2t + 1; 1: row g + 8; 2, 3: columns + 8
				uint32_t word;
				memcpy(&word, round.buf + (4 * g + (unsigned)k % 8 / 2) * SLOT + 4 * (r + k / 8 * 2), 4);
				word = k & 1 ? word & 0xffff0000u : word << 16;
				memcpy(&A[r][k], &word, 4);
			} else
				A[r][k] = wgmma_element(a_rows, (int)(warp * 16 + g) + 8 * r, k, false);
	for (int j = 0; j < n / 8; j++)
		for (int e = 0; e < 2; e++) {
			float *to[2] = {&sum[4 * j + e], &sum[4 * j + 2 + e]};
			for (int r = 0; r < 2 && !add; r++) *to[r] = 0;
			for (int k = 0; k < 16; k++) {
				float x = wgmma_element(b, 8 * j + (int)(2 * t) + e, k, b_over_k);
				*to[0] += A[0][k] * x;
				*to[1] += A[1][k] * x;
			}
		}
}
} // namespace cuemu
