/* pack.c: rows of plain fp32 or of a bf16 cache to blocks and right tiles. */
#include "runners/device/cpu/blocks/attention.h"

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

/* 16 x 16 transpose: four rounds of interleaving row i with row i + 8. */
INLINE void transpose(vf r[VL])
{
	vi low, high;
	for (int i = 0; i < VL; i++) {
		low[i] = i / 2 + i % 2 * VL;
		high[i] = low[i] + VL / 2;
	}
#pragma GCC unroll 4
	for (int round = 1; round < VL; round *= 2) {
		vf t[VL];
#pragma GCC unroll 8
		for (int i = 0; i < VL / 2; i++) {
			t[2 * i] = __builtin_shuffle(r[i], r[i + VL / 2], low);
			t[2 * i + 1] = __builtin_shuffle(r[i], r[i + VL / 2], high);
		}
#pragma GCC unroll 16
		for (int i = 0; i < VL; i++)
			r[i] = t[i];
	}
}

/* 16 columns of W (rows of src) to one right tile of each 32 k; those behind n are zeros. */
INLINE void panel_16(uint16_t *dst, const float *src, int64_t n, int64_t k)
{
	for (int64_t t = 0; t < k; t += BLOCK, dst += BLOCK_VALUES) {
		__mmask32 have = channels_left((int)k, (int)t);
		vf r[16];
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			__mmask32 here = i < n ? have : 0;
			const float *x = src + (i < n ? i : 0) * k + t;
			r[i] = (vf)bf16_pair((vf)_mm512_maskz_loadu_ps((__mmask16)here, x), (vf)_mm512_maskz_loadu_ps((__mmask16)(here >> 16), x + 16));
		}
		transpose(r);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
			vf_store((float *)dst + i * 16, r[i]);
	}
}

void ISA(pack_panel)(void *dst, const float *src, int64_t n, int64_t k)
{
	panel_16(dst, src, n, k);
	panel_16((uint16_t *)dst + RIGHT_VALUES, src + (n < 16 ? 0 : 16) * k, n - 16, k);
}

/* Column `col` of a panel: a pair of k from each row of its tiles. */
void ISA(panel_column)(float *out, const void *panel, int64_t col, int64_t k)
{
	const int *pair = (const int *)((const uint16_t *)panel + col / 16 * RIGHT_VALUES) + col % 16;
	const __m512i rows = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(16));
	const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
	for (int64_t t = 0; t < k; t += BLOCK, pair += BLOCK_VALUES / 2) {
		__m512i x = _mm512_i32gather_epi32(rows, pair, 4), even = _mm512_slli_epi32(x, 16), odd = _mm512_and_si512(x, _mm512_set1_epi32(-65536));
		__mmask32 have = channels_left((int)k, (int)t);
		_mm512_mask_storeu_epi32(out + t, (__mmask16)have, _mm512_permutex2var_epi32(even, first, odd));
		_mm512_mask_storeu_epi32(out + t + 16, (__mmask16)(have >> 16),
			_mm512_permutex2var_epi32(even, _mm512_add_epi32(first, _mm512_set1_epi32(8)), odd));
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

void ISA(query_pack)(uint16_t *dst, int64_t i, const float *x, int d)
{
	pack_query(dst, i, x, d, true);
}

float ISA(queries_pack)(uint16_t *dst, const float *q, int64_t q_ld, int64_t rows, int g, int d)
{
	__m512i most = _mm512_setzero_si512();
	for (int64_t r = 0; r < blocks_of(rows) * BLOCK; r++)
		most = larger(most, pack_query(dst + r / BLOCK * blocks_of(d) * BLOCK_VALUES, r, q + r / g * q_ld + r % g * d, d, r < rows));
	return magnitude(most);
}

/* A key or value that is not there: read like any other, since a masked load of no address costs some CPUs hundreds of cycles. */
static const uint16_t nothing[HEAD_DIM_MAX + BLOCK] __attribute__((aligned(64)));

INLINE const uint16_t *row_or_nothing(const void *base, const struct segment *s, int64_t key, int64_t end, int d)
{
	return key >= end ? nothing : cache_row(base, s, key, d);
}

/* Rows come from memory, one by one through an index: what is packed AHEAD rows later is asked for now. */
enum { AHEAD = 48 };
INLINE void prefetch_ahead(const void *base, const struct segment *s, int64_t key, int64_t end, int d)
{
	if (key + AHEAD < end)
		prefetch_row(base, s, key + AHEAD, d);
}

/* Channels [t, t + 32) of a row; whole: d is a multiple of 32. */
INLINE __m512i channels_of(bool whole, const uint16_t *row, int d, int64_t t)
{
	return whole ? _mm512_loadu_si512(row + t) : _mm512_maskz_loadu_epi16(channels_left(d, (int)t), row + t);
}

/* 16 keys from key j on, those before `there`, to one right tile of each block of channels; returns the largest magnitudes with
 * `most`. Keys before `end` come next. */
INLINE __m512i keys_16(bool whole, uint16_t *dst, const struct segment *s, int64_t j, int64_t there, int64_t end, int d, __m512i most)
{
	const uint16_t *row[16];
	for (int i = 0; i < 16; i++) {
		row[i] = row_or_nothing(s->k, s, j + i, there, d);
		prefetch_ahead(s->k, s, j + i, end, d);
	}
	for (int64_t t = 0; t < d; t += BLOCK, dst += BLOCK_VALUES) {
		vf r[16];
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			__m512i v = channels_of(whole, row[i], d, t);
			most = larger(most, v);
			r[i] = (vf)v;
		}
		transpose(r);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
			vf_store((float *)dst + i * 16, r[i]);
	}
	return most;
}

float ISA(keys_pack)(uint16_t *dst, const struct segment *s, int64_t first, int64_t n, int64_t end, int d)
{
	__m512i most = _mm512_setzero_si512();
	for (int64_t j = 0; j < round_up(n, KEYS); j += 16) {
		uint16_t *tile = dst + j / BLOCK * blocks_of(d) * BLOCK_VALUES + j % BLOCK / 16 * RIGHT_VALUES;
		if (d % BLOCK == 0)
			most = keys_16(true, tile, s, first + j, first + n, end, d, most);
		else
			most = keys_16(false, tile, s, first + j, first + n, end, d, most);
	}
	return magnitude(most);
}

/* Keys key and key + 1, to a row of the right tiles of each block of channels. */
INLINE void values_pair(bool whole, uint16_t *dst, const struct segment *s, int64_t key, int64_t there, int64_t end, int d, __m512i low_of,
	__m512i high_of)
{
	const uint16_t *a = row_or_nothing(s->v, s, key, there, d), *b = row_or_nothing(s->v, s, key + 1, there, d);
	prefetch_ahead(s->v, s, key, end, d);
	prefetch_ahead(s->v, s, key + 1, end, d);
	for (int64_t t = 0; t < d; t += BLOCK, dst += BLOCK_VALUES) {
		__m512i x = channels_of(whole, a, d, t), y = channels_of(whole, b, d, t);
		_mm512_store_si512(dst, _mm512_permutex2var_epi16(x, low_of, y));
		_mm512_store_si512(dst + RIGHT_VALUES, _mm512_permutex2var_epi16(x, high_of, y));
	}
}

void ISA(values_pack)(uint16_t *dst, const struct segment *s, int64_t first, int64_t n, int64_t end, int d)
{
	uint16_t low[32], high[32];
	for (int i = 0; i < 32; i++) { /* channel i / 2 of row i % 2, then channel 16 + i / 2 */
		low[i] = (uint16_t)(i / 2 + i % 2 * 32);
		high[i] = (uint16_t)(low[i] + 16);
	}
	__m512i low_of = _mm512_loadu_si512(low), high_of = _mm512_loadu_si512(high);
	for (int64_t j = 0; j < round_up(n, KEYS); j += BLOCK)
		for (int p = 0; p < 16; p++) {
			uint16_t *row = dst + j / BLOCK * blocks_of(d) * BLOCK_VALUES + p * 32;
			int64_t key = first + j + pair_key(p);
			if (d % BLOCK == 0)
				values_pair(true, row, s, key, first + n, end, d, low_of, high_of);
			else
				values_pair(false, row, s, key, first + n, end, d, low_of, high_of);
		}
}
