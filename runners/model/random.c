/* random.c: see random.h. One hash of the counter a value; its four bytes are summed (Irwin-Hall), which is as near to a
 * normal distribution as timing and overflow checks need, bounded at 3.5 standard deviations, and free of libm. */
#include "runners/model/random.h"

#include "harness/base/base.h"

/* lowbias32 (Wellons): a bijective 32-bit mixer. */
static inline uint32_t mix32(uint32_t x)
{
	x = (x ^ x >> 16) * 0x7feb352du;
	x = (x ^ x >> 15) * 0x846ca68bu;
	return x ^ x >> 16;
}

void random_row(uint64_t seed, uint64_t tensor, int64_t row, int64_t cols, float std, float *out)
{
	struct rng r = rng_seed(seed ^ tensor << 40, (uint64_t)row);
	const uint32_t key = (uint32_t)rng_next(&r);
	const float scale = std / 147.8f; /* deviation of the sum of four uniform bytes; its mean is 510 */
	for (int64_t c = 0; c < cols; c++) {
		uint32_t x = mix32(key + (uint32_t)c * 0x9e3779b9u);
		int sum = (int)(x & 255) + (int)(x >> 8 & 255) + (int)(x >> 16 & 255) + (int)(x >> 24);
		out[c] = (float)(sum - 510) * scale;
	}
}
