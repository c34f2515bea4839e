/* emulated.c: tiles.h, with the numbers of emulated.h. */
#include "tests/tiles/emulated.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, ROW_PAIRS = ROW_BYTES / 4 };

/* What ldtilecfg reads */
struct config {
	uint8_t palette, start, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

static _Thread_local struct {
	bool loaded;
	struct config config;
	uint8_t tile[TILES][ROWS][ROW_BYTES] __attribute__((aligned(64))); /* zeros behind a tile's rows and bytes */
} state;
static atomic_bool granted, used;
static pthread_key_t leaving;

static _Noreturn void refuse(const char *what)
{
	fprintf(stderr, "emulated tiles: %s\n", what);
	abort();
}

/* ---- threads must not end with a configuration ---- */

static void thread_ends(void *loaded)
{
	(void)loaded;
	refuse("a thread ended without releasing its configuration");
}
__attribute__((constructor)) static void begin(void)
{
	if (pthread_key_create(&leaving, thread_ends))
		refuse("no key for threads");
}
__attribute__((destructor)) static void process_ends(void)
{
	if (state.loaded)
		refuse("the process ended without releasing its configuration");
}

static void set_loaded(bool loaded)
{
	state.loaded = loaded;
	if (pthread_setspecific(leaving, loaded ? &state : NULL))
		refuse("no memory for a thread's value");
}

/* ---- configuration ---- */

void tiles_grant(void)
{
	granted = true;
}

static void check_config(const struct config *c)
{
	static const uint8_t nothing[sizeof c->reserved];
	if (c->palette != 1 || c->start || memcmp(c->reserved, nothing, sizeof nothing))
		refuse("the configuration is not one of palette 1 from row 0");
	for (int t = 0; t < 16; t++)
		if (t < TILES ? c->rows[t] > ROWS || c->row_bytes[t] > ROW_BYTES || !c->rows[t] != !c->row_bytes[t]
			      : c->rows[t] || c->row_bytes[t])
			refuse("the configuration has a tile that does not exist");
}

void tiles_loadconfig(const void *config)
{
	if (!granted)
		refuse("the system was not asked for permission");
	if (state.loaded)
		refuse("a configuration was loaded over one that was not released");
	memcpy(&state.config, config, sizeof state.config);
	check_config(&state.config);
	memset(state.tile, 0, sizeof state.tile);
	set_loaded(true);
}

void tiles_release(void)
{
	set_loaded(false);
}

static void check_tile(int t)
{
	if (!state.loaded)
		refuse("a tile was used without a configuration");
	if (t < 0 || t >= TILES || !state.config.rows[t])
		refuse("a tile was used that is not configured");
}

/* ---- moving tiles ---- */

void tiles_zero(int t)
{
	check_tile(t);
	memset(state.tile[t], 0, sizeof state.tile[t]);
}

void tiles_load(int t, const void *base, long stride)
{
	tiles_zero(t);
	for (int r = 0; r < state.config.rows[t]; r++)
		memcpy(state.tile[t][r], (const char *)base + r * stride, state.config.row_bytes[t]);
}

void tiles_store(int t, void *base, long stride)
{
	check_tile(t);
	for (int r = 0; r < state.config.rows[t]; r++)
		memcpy((char *)base + r * stride, state.tile[t][r], state.config.row_bytes[t]);
}

/* ---- products ---- */

/* As the CPU checks them: sum [rows of left][columns of right], left [..][pairs of k], right [pairs of k][columns]. */
static void check_shapes(int sum, int left, int right)
{
	const struct config *c = &state.config;
	check_tile(sum);
	check_tile(left);
	check_tile(right);
	if (sum == left || sum == right || left == right)
		refuse("a product of a tile with itself");
	if (c->row_bytes[sum] % 4 || c->row_bytes[left] % 4 || c->row_bytes[right] % 4)
		refuse("a product of rows that are not whole pairs");
	if (c->rows[sum] != c->rows[left] || c->row_bytes[sum] != c->row_bytes[right] || c->row_bytes[left] / 4 != c->rows[right])
		refuse("a product of shapes that do not fit");
}

/* tdpbf16ps of a whole tile: even and odd elements of the pairs in a sum each, ascending from zero; then their sum is added. What
 * lies behind the shapes is zeros and stays so, whatever the other operand holds there. MXCSR flushes. */
static __attribute__((noinline)) void product(float (*sum)[ROW_PAIRS], const uint32_t (*left)[ROW_PAIRS],
	const uint32_t (*right)[ROW_PAIRS], int rows, int pairs, __mmask16 columns)
{
	__m512 even[ROWS], odd[ROWS];
	for (int k = 0; k < pairs; k++) {
		even[k] = emulated_even(_mm512_load_si512(right[k]));
		odd[k] = emulated_odd(_mm512_load_si512(right[k]));
	}
	for (int r = 0; r < rows; r++) {
		__m512 e = _mm512_setzero_ps(), o = _mm512_setzero_ps();
		for (int k = 0; k < pairs; k++) {
			__m512i x = _mm512_set1_epi32((int)left[r][k]);
			e = _mm512_fmadd_ps(emulated_even(x), even[k], e);
			o = _mm512_fmadd_ps(emulated_odd(x), odd[k], o);
		}
		_mm512_store_ps(sum[r], _mm512_maskz_add_ps(columns, _mm512_load_ps(sum[r]), _mm512_add_ps(e, o)));
	}
}

void tiles_dpbf16ps(int sum, int left, int right)
{
	unsigned saved, flush = EMULATED_MXCSR;
	check_shapes(sum, left, right);
	if (!used)
		used = true;
	__mmask16 columns = (__mmask16)((1u << state.config.row_bytes[sum] / 4) - 1);
	__asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(saved) : "m"(flush) : "memory");
	product((void *)state.tile[sum], (const void *)state.tile[left], (const void *)state.tile[right], state.config.rows[sum],
		state.config.rows[right], columns);
	__asm__ volatile("ldmxcsr %0" : : "m"(saved) : "memory");
}

bool tiles_were_used(void)
{
	return used;
}

/* ---- vdpbf16ps ---- */

/* Changing MXCSR takes longer than everything else, so it is left to vectors that come near denormals. */
__m512 emulated_dpbf16_ps(__m512 sum, __m512bh left, __m512bh right)
{
	__m512i a = (__m512i)left, b = (__m512i)right;
	__m512 a0 = emulated_even(a), a1 = emulated_odd(a), b0 = emulated_even(b), b1 = emulated_odd(b);
	__m512 half = _mm512_fmadd_ps(a1, b1, sum), all = _mm512_fmadd_ps(a0, b0, half);
	bool plain = !((emulated_denormals(a) | emulated_denormals(b)) |
		       (emulated_tiny(sum) | emulated_tiny(half) | emulated_tiny(all)));
	__m512 exact = sum;
	unsigned saved, flush = EMULATED_MXCSR;
	if (__builtin_expect(!plain, 0)) {
		__asm__("stmxcsr %1\n\tldmxcsr %2\n\tvfmadd231ps %4, %3, %0\n\tvfmadd231ps %6, %5, %0\n\tldmxcsr %1"
			: "+v"(exact), "=m"(saved)
			: "m"(flush), "v"(a1), "v"(b1), "v"(a0), "v"(b0));
		return exact;
	}
	return all;
}
