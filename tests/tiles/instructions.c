/* instructions.c: one use of each instruction (instructions.h), compiled twice: as the CPU's own, and with emulated.h in front.
 * KVB_WHOSE, real or emulated, begins every name. */
#include "tests/tiles/instructions.h"

#include <immintrin.h>

#define NAME2(whose, f) whose##_##f
#define NAME1(whose, f) NAME2(whose, f)
#define NAME(f) NAME1(KVB_WHOSE, f)

static void configure(const struct tile_product *p)
{
	struct {
		uint8_t palette, start, reserved[14];
		uint16_t row_bytes[16];
		uint8_t rows[16];
	} c __attribute__((aligned(64))) = {.palette = 1,
		.row_bytes = {(uint16_t)(p->columns * 4), (uint16_t)(p->pairs * 4), (uint16_t)(p->columns * 4)},
		.rows = {(uint8_t)p->rows, (uint8_t)p->rows, (uint8_t)p->pairs}};
	__asm__ volatile("" : : "r"(&c) : "memory");
	_tile_loadconfig(&c);
}

void NAME(tile_product)(struct tile_product *p)
{
	configure(p);
	_tile_loadd(0, p->sum, p->columns * 4);
	_tile_loadd(1, p->left, p->pairs * 4);
	_tile_loadd(2, p->right, p->columns * 4);
	_tile_dpbf16ps(0, 1, 2);
	_tile_stored(0, p->sum, p->columns * 4);
	_tile_release();
}

void NAME(dot_product)(struct dot_product *p)
{
	__m512bh a = (__m512bh)_mm512_loadu_si512(p->left), b = (__m512bh)_mm512_loadu_si512(p->right);
	_mm512_storeu_ps(p->sum, _mm512_dpbf16_ps(_mm512_loadu_ps(p->sum), a, b));
}

void NAME(narrowing)(struct narrowing *p)
{
	__m512 low = _mm512_loadu_ps(p->low), high = _mm512_loadu_ps(p->high);
	_mm512_storeu_si512(p->both, (__m512i)_mm512_cvtne2ps_pbh(high, low));
	_mm256_storeu_si256((__m256i *)p->one, (__m256i)_mm512_cvtneps_pbh(low));
}

void NAME(bytes)(struct bytes *p)
{
	__m512i low = _mm512_loadu_si512(p->table), high = _mm512_loadu_si512(p->table + 64);
	_mm512_storeu_si512(p->out, _mm512_permutex2var_epi8(low, _mm512_loadu_si512(p->index), high));
}
