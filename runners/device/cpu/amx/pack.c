/* pack.c: rows of plain fp32 or of a bf16 cache to the operands of AMX. */
#include "runners/device/cpu/amx/attention.h"

/* A tile of a linear layer's operand: up to 32 rows of x to [k_pad/32][32][32]; zeros behind k, rows behind the last are left. */
void ISA(pack_rows)(void *dst, const float *x, int64_t ld, int64_t rows, int64_t k, bool bf16)
{
	uint16_t *p = dst;
	(void)bf16;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t t = 0; t < k; t += BLOCK) {
			__mmask32 have = channels_left((int)k, (int)t);
			vf low = (vf)_mm512_maskz_loadu_ps((__mmask16)have, x + r * ld + t);
			vf high = (vf)_mm512_maskz_loadu_ps((__mmask16)(have >> 16), x + r * ld + t + 16);
			_mm512_store_si512(p + t * BLOCK + r * BLOCK, bf16_pair(low, high));
		}
}

/* The largest of 32 magnitudes of bf16, as whole numbers: their order is that of the numbers, with infinite and NaN on top. */
INLINE float magnitude(__m512i most)
{
	uint16_t a[32], m = 0;
	_mm512_storeu_si512(a, most);
	for (int i = 0; i < 32; i++)
		m = a[i] > m ? a[i] : m;
	return bf16_to(m);
}
INLINE __m512i larger(__m512i most, __m512i x)
{
	return _mm512_max_epu16(most, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
}

INLINE __m512i pack_query(uint16_t *dst, int64_t i, const float *x, int d, bool there)
{
	__m512i most = _mm512_setzero_si512();
	dst += i % BLOCK * BLOCK;
	for (int t = 0; t < d; t += BLOCK, dst += BLOCK_VALUES) {
		__mmask32 have = there ? channels_left(d, t) : 0;
		vf low = (vf)_mm512_maskz_loadu_ps((__mmask16)have, x + t);
		vf high = (vf)_mm512_maskz_loadu_ps((__mmask16)(have >> 16), x + t + 16);
		__m512i v = bf16_pair(low, high);
		most = larger(most, v);
		_mm512_store_si512(dst, v);
	}
	return most;
}

void amx_pack_query(uint16_t *dst, int64_t i, const float *x, int d)
{
	pack_query(dst, i, x, d, true);
}

float amx_pack_queries(uint16_t *dst, const float *q, int64_t q_ld, int64_t rows, int g, int d)
{
	__m512i most = _mm512_setzero_si512();
	for (int64_t r = 0; r < blocks_of(rows) * BLOCK; r++)
		most = larger(most, pack_query(dst + r / BLOCK * blocks_of(d) * BLOCK_VALUES, r, q + r / g * q_ld + r % g * d, d, r < rows));
	return magnitude(most);
}

INLINE const uint16_t *cache_row(const void *base, const struct segment *s, int64_t key, int d)
{
	return (const uint16_t *)base + (s->index ? s->index[key] : key) * d;
}

/* Rows come from memory, one by one through an index: what is packed AHEAD rows later is asked for now. */
enum { AHEAD = 48 };
INLINE void prefetch_row(const void *base, const struct segment *s, int64_t key, int64_t end, int d)
{
	if (key < end)
		for (int t = 0; t < d; t += BLOCK)
			_mm_prefetch(cache_row(base, s, key, d) + t, _MM_HINT_T0);
}

float amx_pack_keys(uint16_t *dst, const struct segment *s, int64_t first, int64_t n, int d)
{
	int64_t d_blocks = blocks_of(d);
	__m512i most = _mm512_setzero_si512();
	for (int64_t j = 0; j < round_up(n, 64); j += 16) {
		const uint16_t *row[16];
		for (int i = 0; i < 16; i++) {
			row[i] = j + i < n ? cache_row(s->k, s, first + j + i, d) : NULL;
			prefetch_row(s->k, s, first + j + i + AHEAD, first + n, d);
		}
		for (int64_t b = 0; b < d_blocks; b++) {
			uint16_t *tile = dst + (j / BLOCK * d_blocks + b) * BLOCK_VALUES + j % BLOCK / 16 * 512;
			__mmask32 have = channels_left(d, (int)b * BLOCK);
			vf r[16];
#pragma GCC unroll 16
			for (int i = 0; i < 16; i++) {
				__m512i v = _mm512_maskz_loadu_epi16(row[i] ? have : 0, row[i] + b * BLOCK);
				most = larger(most, v);
				r[i] = (vf)v;
			}
			transpose(r);
#pragma GCC unroll 16
			for (int i = 0; i < 16; i++)
				vf_store((float *)tile + i * 16, r[i]);
		}
	}
	return magnitude(most);
}

void amx_pack_values(uint16_t *dst, const struct segment *s, int64_t first, int64_t n, int d)
{
	int64_t d_blocks = blocks_of(d);
	uint16_t low[32], high[32];
	for (int i = 0; i < 32; i++) { /* channel i / 2 of row i % 2, then channel 16 + i / 2 */
		low[i] = (uint16_t)(i / 2 + i % 2 * 32);
		high[i] = (uint16_t)(low[i] + 16);
	}
	__m512i low_of = _mm512_loadu_si512(low), high_of = _mm512_loadu_si512(high);
	for (int64_t j = 0; j < round_up(n, 64); j += BLOCK)
		for (int p = 0; p < 16; p++) {
			int64_t key = j + pair_key(p);
			const uint16_t *a = key < n ? cache_row(s->v, s, first + key, d) : NULL;
			const uint16_t *b = key + 1 < n ? cache_row(s->v, s, first + key + 1, d) : NULL;
			prefetch_row(s->v, s, first + key + AHEAD, first + n, d);
			prefetch_row(s->v, s, first + key + 1 + AHEAD, first + n, d);
			for (int64_t t = 0; t < d_blocks; t++) {
				uint16_t *tile = dst + (j / BLOCK * d_blocks + t) * BLOCK_VALUES + p * 32;
				__mmask32 have = channels_left(d, (int)t * BLOCK);
				__m512i x = _mm512_maskz_loadu_epi16(a ? have : 0, a + t * BLOCK);
				__m512i y = _mm512_maskz_loadu_epi16(b ? have : 0, b + t * BLOCK);
				_mm512_store_si512(tile, _mm512_permutex2var_epi16(x, low_of, y));
				_mm512_store_si512(tile + 512, _mm512_permutex2var_epi16(x, high_of, y));
			}
		}
}
