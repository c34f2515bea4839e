/* The emulated instructions themselves: against a second writing of their definition in scalar C, against the CPU's own where it
 * has them, and what the tiles refuse. */
#include "runners/device/cpu/cpu.h"
#include "tests/tiles/instructions.h"
#include "tests/tiles/tiles.h"
#include "tests/unit/test.h"

#include <float.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

enum { ROUNDS = 3000 };

/* ---- values ---- */

/* Exponents, as stored, from `lowest` on; one value of `special` is another one (0 = none): zeros, denormals, infinities, NaN,
 * the ends of the range. */
struct spread {
	uint32_t lowest, powers, special;
};
/* By turns: few powers of two, so that roundings differ with the order of a sum; with specials; products near the smallest normal
 * number; everything. */
static const struct spread of_operands[] = {{124, 6, 0}, {124, 6, 64}, {61, 6, 0}, {1, 254, 8}},
			   of_sums[] = {{124, 6, 0}, {124, 6, 64}, {1, 6, 0}, {1, 254, 8}};

static uint32_t any_bits(struct rng *r, const struct spread *s)
{
	static const uint32_t specials[] = {
		0, 0x00010000, 0x007f0000, 0x00800000, 0x00ff0000, 0x7f7f0000, 0x7f800000, 0x7fc10000, 0x7f810000, 0x3f800000};
	uint32_t sign = (uint32_t)rng_below(r, 2) << 31, mantissa = (uint32_t)rng_below(r, 1 << 23);
	if (s->special && rng_below(r, s->special) == 0)
		return sign | specials[rng_below(r, sizeof specials / sizeof *specials)];
	return sign | (s->lowest + (uint32_t)rng_below(r, s->powers)) << 23 | mantissa;
}

static void fill(struct rng *r, int round, float *x, int n)
{
	for (int i = 0; i < n; i++)
		memcpy(&x[i], &(uint32_t){any_bits(r, &of_sums[round % 4])}, sizeof *x);
}
static void fill_bf16(struct rng *r, int round, uint16_t *x, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = (uint16_t)(any_bits(r, &of_operands[round % 4]) >> 16);
}

/* Which NaN comes out is nothing a kernel relies on. */
static void assert_same(const char *what, int round, const float *got, const float *want, int n)
{
	for (int i = 0; i < n; i++)
		if (!(isnan(got[i]) && isnan(want[i])) && memcmp(&got[i], &want[i], sizeof *got))
			fail_msg("%s, round %d: element %d is %a, not %a", what, round, i, (double)got[i], (double)want[i]);
}

static struct tile_product some_tiles(struct rng *r, int round)
{
	struct tile_product p = {
		.rows = 1 + (int)rng_below(r, 16), .columns = 1 + (int)rng_below(r, 16), .pairs = 1 + (int)rng_below(r, 16)};
	fill(r, round, p.sum, 16 * 16);
	fill_bf16(r, round, p.left, 16 * 32);
	fill_bf16(r, round, p.right, 16 * 32);
	return p;
}

static struct dot_product some_dots(struct rng *r, int round)
{
	struct dot_product p;
	fill(r, round, p.sum, 16);
	fill_bf16(r, round, p.left, 32);
	fill_bf16(r, round, p.right, 32);
	return p;
}

static struct narrowing some_floats(struct rng *r, int round)
{
	struct narrowing p;
	fill(r, round, p.low, 16);
	fill(r, round, p.high, 16);
	p.low[0] = FLT_MIN / 3, p.high[0] = -FLT_MIN / 3, p.low[1] = FLT_MAX;
	return p;
}

static struct bytes some_bytes(struct rng *r)
{
	struct bytes p;
	for (int i = 0; i < 128; i++)
		p.table[i] = (uint8_t)rng_below(r, 256);
	for (int i = 0; i < 64; i++)
		p.index[i] = (uint8_t)rng_below(r, 256);
	return p;
}

/* ---- the definitions, in scalar C ---- */

static float flushed(float x)
{
	return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}
static float multiply_add(uint16_t a, uint16_t b, float c)
{
	return flushed(fmaf(flushed(bf16_to(a)), flushed(bf16_to(b)), flushed(c)));
}

static void plain_tile_product(struct tile_product *p)
{
	for (int r = 0; r < p->rows; r++)
		for (int c = 0; c < p->columns; c++) {
			float even = 0, odd = 0, *sum = &p->sum[r * p->columns + c];
			for (int k = 0; k < p->pairs; k++) {
				const uint16_t *x = p->left + (r * p->pairs + k) * 2, *y = p->right + (k * p->columns + c) * 2;
				even = multiply_add(x[0], y[0], even);
				odd = multiply_add(x[1], y[1], odd);
			}
			*sum = flushed(flushed(*sum) + flushed(even + odd));
		}
}

static void plain_dot_product(struct dot_product *p)
{
	for (int i = 0; i < 16; i++) {
		p->sum[i] = multiply_add(p->left[2 * i + 1], p->right[2 * i + 1], p->sum[i]);
		p->sum[i] = multiply_add(p->left[2 * i], p->right[2 * i], p->sum[i]);
	}
}

static uint16_t plain_bf16(float x)
{
	return bf16_from(flushed(x));
}

static void products_follow_their_definition(void **state)
{
	(void)state;
	struct rng r = rng_seed(21, 0);
	tiles_grant();
	for (int i = 0; i < ROUNDS; i++) {
		struct tile_product got = some_tiles(&r, i), want = got;
		emulated_tile_product(&got);
		plain_tile_product(&want);
		assert_same("tdpbf16ps", i, got.sum, want.sum, 16 * 16); /* what lies behind rows and columns is as before */
		struct dot_product dot = some_dots(&r, i), dots = dot;
		emulated_dot_product(&dot);
		plain_dot_product(&dots);
		assert_same("vdpbf16ps", i, dot.sum, dots.sum, 16);
	}
}

static void conversions_follow_their_definition(void **state)
{
	(void)state;
	struct rng r = rng_seed(22, 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct narrowing p = some_floats(&r, i);
		emulated_narrowing(&p);
		for (int j = 0; j < 16; j++) {
			assert_int_equal(p.both[j], plain_bf16(p.low[j]));
			assert_int_equal(p.both[16 + j], plain_bf16(p.high[j]));
			assert_int_equal(p.one[j], p.both[j]);
		}
		struct bytes b = some_bytes(&r);
		emulated_bytes(&b);
		for (int j = 0; j < 64; j++)
			assert_int_equal(b.out[j], b.table[b.index[j] % 128]);
	}
}

/* Other instructions do not flush. Rounded to 24 bits of any exponent, 2^-126 (1 - 2^-24) stays below the normal numbers and
 * is flushed; 2^-126 (1 - 2^-25) does not. */
static void flushing_looks_at_the_rounded_result(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct dot_product p = {
			.sum = {FLT_MIN}, .left = {bf16_from(-0x1p-75f)}, .right = {bf16_from(i ? 0x1p-76f : 0x1p-75f)}};
		emulated_dot_product(&p);
		assert_true(p.sum[0] == (i ? FLT_MIN : 0));
		struct tile_product t = {.rows = 1,
			.columns = 1,
			.pairs = 2,
			.left = {bf16_from(0x1p-63f), 0, p.left[0]},
			.right = {bf16_from(0x1p-63f), 0, p.right[0]}};
		emulated_tile_product(&t);
		assert_true(t.sum[0] == (i ? FLT_MIN : 0));
	}
	assert_int_equal(_MM_GET_FLUSH_ZERO_MODE(), _MM_FLUSH_ZERO_OFF);
}

/* ---- the CPU's own ---- */

static void tiles_equal_the_real_ones(void **state)
{
	(void)state;
	enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
	struct rng r = rng_seed(23, 0);
	if (!cpu_has_amx() || syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA)) {
		printf("skipped: no AMX here to compare the emulated tiles with\n");
		skip();
	}
	for (int i = 0; i < ROUNDS; i++) {
		struct tile_product got = some_tiles(&r, i), want = got;
		emulated_tile_product(&got);
		real_tile_product(&want);
		assert_same("tdpbf16ps", i, got.sum, want.sum, 16 * 16);
	}
}

static void dots_equal_the_real_ones(void **state)
{
	(void)state;
	struct rng r = rng_seed(24, 0);
	if (!cpu_has_avx512bf16()) {
		printf("skipped: no AVX512-BF16 here to compare the emulated one with\n");
		skip();
	}
	for (int i = 0; i < ROUNDS; i++) {
		struct dot_product got = some_dots(&r, i), want = got;
		emulated_dot_product(&got);
		real_dot_product(&want);
		assert_same("vdpbf16ps", i, got.sum, want.sum, 16);
		struct narrowing mine = some_floats(&r, i), theirs = mine;
		emulated_narrowing(&mine);
		real_narrowing(&theirs);
		assert_memory_equal(&mine, &theirs, sizeof mine);
	}
}

static void bytes_equal_the_real_ones(void **state)
{
	(void)state;
	struct rng r = rng_seed(25, 0);
	if (!__builtin_cpu_supports("avx512vbmi")) {
		printf("skipped: no AVX512-VBMI here to compare the emulated one with\n");
		skip();
	}
	for (int i = 0; i < ROUNDS; i++) {
		struct bytes got = some_bytes(&r), want = got;
		emulated_bytes(&got);
		real_bytes(&want);
		assert_memory_equal(&got, &want, sizeof got);
	}
}

/* ---- what tiles refuse: each in a child that must end by SIGABRT and say why ---- */

struct config {
	uint8_t palette, start, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};
static const struct config three = {.palette = 1, .row_bytes = {64, 64, 64, 32}, .rows = {16, 16, 16, 16}},
			   other = {.palette = 2}, long_row = {.palette = 1, .row_bytes = {65}, .rows = {1}},
			   ninth = {.palette = 1, .row_bytes[8] = 64, .rows[8] = 1};

static void configured(void)
{
	tiles_grant();
	tiles_loadconfig(&three);
}

static void no_permission(void)
{
	tiles_loadconfig(&three);
}
static void other_palette(void)
{
	tiles_grant();
	tiles_loadconfig(&other);
}
static void row_too_long(void)
{
	tiles_grant();
	tiles_loadconfig(&long_row);
}
static void ninth_tile(void)
{
	tiles_grant();
	tiles_loadconfig(&ninth);
}
static void never_configured(void)
{
	tiles_zero(0);
}
static void after_release(void)
{
	configured();
	tiles_release();
	tiles_dpbf16ps(0, 1, 2);
}
static void tile_not_configured(void)
{
	static const char memory[64];
	configured();
	tiles_load(5, memory, 0);
}
static void shapes_differ(void)
{
	configured();
	tiles_dpbf16ps(0, 1, 3);
}
static void same_tile(void)
{
	configured();
	tiles_dpbf16ps(0, 1, 1);
}
static void not_released(void)
{
	configured();
	tiles_loadconfig(&three);
}
static void process_ends(void)
{
	configured();
	exit(0);
}
static void *configure_here(void *unused)
{
	configured();
	return unused;
}
static void thread_ends(void)
{
	pthread_t t;
	pthread_create(&t, NULL, configure_here, NULL);
	pthread_join(t, NULL);
}

static const struct fault {
	void (*make)(void);
	const char *says;
} faults[] = {{no_permission, "permission"}, {other_palette, "palette 1"}, {row_too_long, "does not exist"},
	{ninth_tile, "does not exist"}, {never_configured, "without a configuration"}, {after_release, "without a configuration"},
	{tile_not_configured, "not configured"}, {shapes_differ, "shapes"}, {same_tile, "with itself"},
	{not_released, "was not released"}, {process_ends, "process ended"}, {thread_ends, "thread ended"}};

/* What a child writes to stderr before it ends; the status is wait()'s. */
static void run_child(void (*make)(void), char *said, size_t size, int *status)
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(ends[1], STDERR_FILENO);
		make();
		_exit(0);
	}
	close(ends[1]);
	ssize_t n = read(ends[0], said, size - 1);
	close(ends[0]);
	assert_int_equal(waitpid(child, status, 0), child);
	said[n > 0 ? n : 0] = 0;
}

static void faults_end_the_process(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		char said[512];
		int status;
		run_child(faults[i].make, said, sizeof said, &status);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(said, faults[i].says))
			fail_msg("fault %zu (%s): status %x, \"%s\"", i, faults[i].says, (unsigned)status, said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults_end_the_process), /* first: the others have permission */
		cmocka_unit_test(products_follow_their_definition),
		cmocka_unit_test(conversions_follow_their_definition),
		cmocka_unit_test(flushing_looks_at_the_rounded_result),
		cmocka_unit_test(tiles_equal_the_real_ones),
		cmocka_unit_test(dots_equal_the_real_ones),
		cmocka_unit_test(bytes_equal_the_real_ones),
	};
	if (!cpu_has_avx512()) {
		printf("skip - emulated tiles need a CPU with AVX-512\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
