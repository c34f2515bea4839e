/* dequant.h: the element types of weights on disk, as fp32. Private to runners/model (gguf.h shows the public part). */
#ifndef KVB_DEQUANT_H
#define KVB_DEQUANT_H

#include <string.h>

#include "runners/model/gguf.h"

const char *tensor_type_name(enum tensor_type type); /* "Q4_K" */

static inline float float_from_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* IEEE half to float without a branch, so that loops over it vectorise. A normal half needs its exponent moved by 112; a
 * subnormal one is m / 2^24, made exactly as (1/2 + m / 2^24) - 1/2, so that no fp32 subnormal (slow, or flushed to zero in
 * some threads) is ever touched; infinities and NaN get the highest exponent. */
static inline float float_from_half(uint16_t h)
{
	const uint32_t exponent = h & 0x7c00, magnitude = h & 0x7fff;
	const uint32_t is_small = -(uint32_t)(exponent == 0), is_special = -(uint32_t)(exponent == 0x7c00);
	const uint32_t normal = (magnitude << 13) + (112u << 23) + (112u << 23 & is_special);
	const float small = float_from_bits(126u << 23 | magnitude) - 0.5f;
	uint32_t bits;
	memcpy(&bits, &small, sizeof bits);
	return float_from_bits((normal & ~is_small) | (bits & is_small) | (uint32_t)(h & 0x8000) << 16);
}

#endif
