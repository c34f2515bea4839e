/* emulated.h: the instructions of AMX, AVX512-BF16 and AVX512-VBMI that the kernels use, for CPUs that have AVX-512 F, BW, DQ and
 * VL alone. The kernels' own sources are compiled with it (-include), without the flags of those sets: what is missing here does
 * not compile.
 *
 * Numbers are Intel's (SDM: TDPBF16PS, VDPBF16PS, VCVTNEPS2BF16): denormals count as zeros and come out as zeros, to nearest
 * even, one rounding for each multiply and add; MXCSR plays no part. */
#ifndef KVB_TESTS_TILES_EMULATED_H
#define KVB_TESTS_TILES_EMULATED_H

#include "tests/tiles/tiles.h"

#include <immintrin.h>

#define EMULATED static inline __attribute__((always_inline))

/* ---- AMX ---- */

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig tiles_loadconfig
#define _tile_release tiles_release
#define _tile_loadd(tile, base, stride) tiles_load(tile, base, (long)(stride))
#define _tile_stream_loadd(tile, base, stride) tiles_load(tile, base, (long)(stride))
#define _tile_stored(tile, base, stride) tiles_store(tile, base, (long)(stride))
#define _tile_zero(tile) tiles_zero(tile)
#define _tile_dpbf16ps(sum, left, right) tiles_dpbf16ps(sum, left, right)
#ifdef EMULATED_TILES /* the sources ask for the flags of the sets */
#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#endif

/* ---- AVX512-BF16 ---- */

/* MXCSR with DAZ, FTZ, to nearest even and all exceptions masked */
#define EMULATED_MXCSR 0x9fc0u

EMULATED __m512 emulated_even(__m512i pairs)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
EMULATED __m512 emulated_odd(__m512i pairs)
{
	return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

/* Lanes that are not zero and have an exponent of zero: denormals. */
EMULATED __mmask32 emulated_denormals(__m512i bf16)
{
	return _mm512_testn_epi16_mask(bf16, _mm512_set1_epi16(0x7f80)) & _mm512_test_epi16_mask(bf16, _mm512_set1_epi16(0x7f));
}
/* Lanes that are a denormal or the smallest normal number, which a flushed result may have been rounded up to. */
EMULATED __mmask16 emulated_tiny(__m512 x)
{
	__m512i magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
	return _mm512_cmplt_epu32_mask(_mm512_sub_epi32(magnitude, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x00800000));
}

/* vdpbf16ps: the odd elements of the pairs first. A multiplier that is NaN goes before an addend that is, as in its table 5-1. A call:
 * inlined a dozen times a tile it takes the compiler most of a minute. */
__m512 emulated_dpbf16_ps(__m512 sum, __m512bh left, __m512bh right);

/* fp32 to bf16, 32-bit lanes */
EMULATED __m512i emulated_rounded(__m512 x)
{
	__m512i u = _mm512_castps_si512(x), cut = _mm512_srli_epi32(u, 16);
	__m512i bias = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_si512(cut, _mm512_set1_epi32(1)));
	__m512i y = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
	y = _mm512_mask_and_epi32(y, _mm512_testn_epi32_mask(u, _mm512_set1_epi32(0x7f800000)), cut, _mm512_set1_epi32(0x8000));
	return _mm512_mask_or_epi32(y, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), cut, _mm512_set1_epi32(0x40));
}
EMULATED __m256bh emulated_cvtneps_pbh(__m512 x)
{
	return (__m256bh)_mm512_cvtepi32_epi16(emulated_rounded(x));
}
EMULATED __m512bh emulated_cvtne2ps_pbh(__m512 high, __m512 low)
{
	__m512i x = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(emulated_rounded(low)));
	return (__m512bh)_mm512_inserti64x4(x, _mm512_cvtepi32_epi16(emulated_rounded(high)), 1);
}
#define _mm512_dpbf16_ps emulated_dpbf16_ps
#define _mm512_cvtneps_pbh emulated_cvtneps_pbh
#define _mm512_cvtne2ps_pbh emulated_cvtne2ps_pbh

/* ---- AVX512-VBMI ---- */

/* For each 16-bit lane, byte `index` (0 to 127) of low and high. */
EMULATED __m512i emulated_byte_of(__m512i low, __m512i index, __m512i high)
{
	__m512i pair = _mm512_permutex2var_epi16(low, _mm512_srli_epi16(index, 1), high);
	__m512i shift = _mm512_slli_epi16(_mm512_and_si512(index, _mm512_set1_epi16(1)), 3);
	return _mm512_and_si512(_mm512_srlv_epi16(pair, shift), _mm512_set1_epi16(0xff));
}
EMULATED __m512i emulated_permutex2var_epi8(__m512i low, __m512i index, __m512i high)
{
	const __m512i seven = _mm512_set1_epi16(0x7f);
	__m512i even = emulated_byte_of(low, _mm512_and_si512(index, seven), high);
	__m512i odd = emulated_byte_of(low, _mm512_and_si512(_mm512_srli_epi16(index, 8), seven), high);
	return _mm512_or_si512(even, _mm512_slli_epi16(odd, 8));
}
#define _mm512_permutex2var_epi8 emulated_permutex2var_epi8

#endif
