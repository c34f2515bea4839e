/* dequant.c: blocks of GGUF's quantised types (and the plain float types) to fp32.
 *
 * Layouts and arithmetic are ggml's: each value takes the same fp32 operations in the same order as gguf-py's dequantiser,
 * so the results are bit-equal to it (a test). Inner loops have constant trip counts and no branches: gcc vectorises them.
 * Sources may lie at any address, so wider fields are read through unaligned types. */
#include "runners/model/dequant.h"

typedef uint16_t u16 __attribute__((aligned(1), may_alias));
typedef uint32_t u32 __attribute__((aligned(1), may_alias));

/* gcc: vector code also where the trip count is known only at run time (f16, bf16). Harmless to lose. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORISE __attribute__((optimize("O3")))
#else
#define VECTORISE
#endif

static void from_f32(const uint8_t *restrict src, int64_t n, float *restrict out)
{
	memcpy(out, src, (size_t)n * sizeof *out);
}

VECTORISE static void from_f16(const uint8_t *restrict src, int64_t n, float *restrict out)
{
	const u16 *h = (const u16 *)src;
	for (int64_t i = 0; i < n; i++)
		out[i] = float_from_half(h[i]);
}

VECTORISE static void from_bf16(const uint8_t *restrict src, int64_t n, float *restrict out)
{
	const u16 *h = (const u16 *)src;
	for (int64_t i = 0; i < n; i++)
		out[i] = float_from_bits((uint32_t)h[i] << 16);
}

static float half_at(const uint8_t *p)
{
	return float_from_half(*(const u16 *)p);
}

/* ---- Blocks of 32: one scale d (half), for the _1 types also an offset m (half). Low nibbles are values 0-15 of the
 * block, high nibbles 16-31; the 5-bit types keep bit 4 of value i in bit i of a 32-bit word. ---- */

/* Block: d, int8[32] */
static void from_q8_0(const uint8_t *restrict b, int64_t n, float *restrict out)
{
	for (; n > 0; n -= 32, b += 34, out += 32) {
		const float d = half_at(b);
		const int8_t *q = (const int8_t *)b + 2;
		for (int i = 0; i < 32; i++)
			out[i] = d * (float)q[i];
	}
}

/* Block: d, nibbles[16] */
static void from_q4_0(const uint8_t *restrict b, int64_t n, float *restrict out)
{
	for (; n > 0; n -= 32, b += 18, out += 32) {
		const float d = half_at(b);
		const uint8_t *q = b + 2;
		for (int i = 0; i < 16; i++) {
			out[i] = d * (float)((q[i] & 15) - 8);
			out[i + 16] = d * (float)((q[i] >> 4) - 8);
		}
	}
}

/* Block: d, m, nibbles[16] */
static void from_q4_1(const uint8_t *restrict b, int64_t n, float *restrict out)
{
	for (; n > 0; n -= 32, b += 20, out += 32) {
		const float d = half_at(b), m = half_at(b + 2);
		const uint8_t *q = b + 4;
		for (int i = 0; i < 16; i++) {
			out[i] = d * (float)(q[i] & 15) + m;
			out[i + 16] = d * (float)(q[i] >> 4) + m;
		}
	}
}

#define FOUR_BITS(i) 1u << (i), 1u << ((i) + 1), 1u << ((i) + 2), 1u << ((i) + 3)
static const uint32_t bit[32] = {
	FOUR_BITS(0), FOUR_BITS(4), FOUR_BITS(8), FOUR_BITS(12), FOUR_BITS(16), FOUR_BITS(20), FOUR_BITS(24), FOUR_BITS(28)};

/* The 32 values 0..31 of a 5-bit block. A table of masks, because shifts that differ by element do not vectorise on SSE2. */
static inline void five_bits(const uint8_t *q, uint32_t high, int v[32])
{
	for (int i = 0; i < 16; i++) {
		v[i] = (q[i] & 15) | (high & bit[i] ? 16 : 0);
		v[i + 16] = q[i] >> 4 | (high & bit[i + 16] ? 16 : 0);
	}
}

/* Block: d, high bits, nibbles[16] */
static void from_q5_0(const uint8_t *restrict b, int64_t n, float *restrict out)
{
	int v[32];
	for (; n > 0; n -= 32, b += 22, out += 32) {
		const float d = half_at(b);
		five_bits(b + 6, *(const u32 *)(b + 2), v);
		for (int i = 0; i < 32; i++)
			out[i] = d * (float)(v[i] - 16);
	}
}

/* Block: d, m, high bits, nibbles[16] */
static void from_q5_1(const uint8_t *restrict b, int64_t n, float *restrict out)
{
	int v[32];
	for (; n > 0; n -= 32, b += 24, out += 32) {
		const float d = half_at(b), m = half_at(b + 2);
		five_bits(b + 8, *(const u32 *)(b + 4), v);
		for (int i = 0; i < 32; i++)
			out[i] = d * (float)v[i] + m;
	}
}

/* ---- Super-blocks of 256 = 8 sub-blocks of 32 (K types; Q6_K has 16 of 16), each with its own small scale. ---- */

/* Scale and minimum of sub-block j, six bits each, out of Q4_K's and Q5_K's 12 packed bytes. */
static inline void scale_min(const uint8_t s[12], int j, float d, float dmin, float *scale, float *min)
{
	const int sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
	const int mn = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
	*scale = d * (float)sc;
	*min = dmin * (float)mn;
}

/* Block: d, dmin, scales[12], nibbles[128] */
static void from_q4_k(const uint8_t *restrict b, int64_t n, float *restrict out)
{
	for (; n > 0; n -= 256, b += 144, out += 256) {
		const float d = half_at(b), dmin = half_at(b + 2);
		for (int j = 0; j < 8; j++) {
			const uint8_t *q = b + 16 + j / 2 * 32;
			const int shift = j % 2 * 4;
			float scale, min;
			scale_min(b + 4, j, d, dmin, &scale, &min);
			for (int i = 0; i < 32; i++)
				out[j * 32 + i] = scale * (float)(q[i] >> shift & 15) - min;
		}
	}
}

/* Block: d, dmin, scales[12], high bits[32], nibbles[128] */
static void from_q5_k(const uint8_t *restrict b, int64_t n, float *restrict out)
{
	for (; n > 0; n -= 256, b += 176, out += 256) {
		const float d = half_at(b), dmin = half_at(b + 2);
		for (int j = 0; j < 8; j++) {
			const uint8_t *high = b + 16, *q = b + 48 + j / 2 * 32;
			const int shift = j % 2 * 4;
			float scale, min;
			scale_min(b + 4, j, d, dmin, &scale, &min);
			for (int i = 0; i < 32; i++)
				out[j * 32 + i] = scale * (float)((q[i] >> shift & 15) | (high[i] >> j & 1) << 4) - min;
		}
	}
}

/* Block: low nibbles[128], high pairs[64], int8 scales[16], d */
static void from_q6_k(const uint8_t *restrict b, int64_t n, float *restrict out)
{
	for (; n > 0; n -= 256, b += 210, out += 256) {
		const float d = half_at(b + 208);
		const int8_t *scales = (const int8_t *)b + 192;
		for (int j = 0; j < 16; j++) { /* 16 values: half j/8 of the block, quarter j/2%4 of that half */
			const uint8_t *low = b + j / 8 * 64 + j % 4 * 16, *high = b + 128 + j / 8 * 32 + j % 2 * 16;
			const int low_shift = j % 8 / 4 * 4, high_shift = j / 2 % 4 * 2;
			const float scale = d * (float)scales[j];
			for (int i = 0; i < 16; i++)
				out[j * 16 + i] =
					scale * (float)(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
		}
	}
}

static const struct {
	const char *name;
	int block, bytes; /* elements and bytes a block */
	void (*to_f32)(const uint8_t *src, int64_t n, float *out);
} types[] = {
	[TT_F32] = {"F32", 1, 4, from_f32},
	[TT_F16] = {"F16", 1, 2, from_f16},
	[TT_BF16] = {"BF16", 1, 2, from_bf16},
	[TT_Q8_0] = {"Q8_0", 32, 34, from_q8_0},
	[TT_Q4_0] = {"Q4_0", 32, 18, from_q4_0},
	[TT_Q4_1] = {"Q4_1", 32, 20, from_q4_1},
	[TT_Q5_0] = {"Q5_0", 32, 22, from_q5_0},
	[TT_Q5_1] = {"Q5_1", 32, 24, from_q5_1},
	[TT_Q4_K] = {"Q4_K", 256, 144, from_q4_k},
	[TT_Q5_K] = {"Q5_K", 256, 176, from_q5_k},
	[TT_Q6_K] = {"Q6_K", 256, 210, from_q6_k},
};

void dequantise(enum tensor_type type, const void *src, int64_t n, float *out)
{
	types[type].to_f32(src, n, out);
}

size_t tensor_type_bytes(enum tensor_type type, int64_t n)
{
	return (size_t)(n / types[type].block) * (size_t)types[type].bytes;
}

int tensor_type_block(enum tensor_type type)
{
	return types[type].block;
}

const char *tensor_type_name(enum tensor_type type)
{
	return types[type].name;
}
