/* test_safetensors.c: reading and writing .safetensors; hostile headers end in one clear message. */
#include <math.h>
#include <sys/stat.h>

#include "runners/model/dequant.h"
#include "runners/model/safetensors.h"
#include "tests/unit/model/inputs.h"

/* ---- Round trip ---- */

static void writes_and_reads_every_type(void **state)
{
	(void)state;
	const float f32[6] = {0, -1, 1.5f, 1e-40f, 3e38f, 2};
	const double f64[2] = {0.1, -1e300};
	const uint16_t f16[2] = {0x3c00, 0x0001}, bf16[2] = {0x3f80, 0xc040};
	const int64_t i64[1] = {-1234567890123};
	const int32_t i32[2] = {7, -7};
	const uint8_t u8[3] = {1, 2, 255}, flag[1] = {1};
	const struct st_tensor t[] = {
		{"z.f32", ST_F32, 2, {2, 3}, .data = f32},
		{"u8", ST_U8, 1, {3}, .data = u8},
		{"f64", ST_F64, 1, {2}, .data = f64},
		{"f16", ST_F16, 1, {2}, .data = f16},
		{"bf16", ST_BF16, 3, {1, 2, 1}, .data = bf16},
		{"scalar", ST_I64, 0, {0}, .data = i64},
		{"i32", ST_I32, 1, {2}, .data = i32},
		{"flag", ST_BOOL, 1, {1}, .data = flag},
		{"empty", ST_F32, 2, {0, 4}, .data = NULL},
	};
	const struct st_meta meta[] = {{"format", "pt"}, {"who", "na\xc3\xafve \"quoted\"\n"}};
	const size_t n = sizeof t / sizeof *t;
	char err[ERR_LEN] = "", *folder = scratch_folder(), *path = text_format("%s/x.safetensors", folder);
	assert_int_equal(st_write(path, t, n, meta, 2, err), 0);
	struct st_file *f;
	assert_int_equal(st_open(&f, path, err), 0);
	assert_int_equal(st_count(f), n);
	for (size_t i = 0; i < n; i++) {
		const struct st_tensor *r = st_find(f, t[i].name);
		assert_non_null(r);
		assert_int_equal(r->type, t[i].type);
		assert_int_equal(r->n_dims, t[i].n_dims);
		for (int d = 0; d < r->n_dims; d++)
			assert_int_equal(r->dims[d], t[i].dims[d]);
		if (r->bytes)
			assert_memory_equal(r->data, t[i].data, r->bytes);
	}
	assert_int_equal(st_find(f, "z.f32")->count, 6);
	assert_int_equal(st_find(f, "scalar")->count, 1);
	assert_int_equal(st_find(f, "empty")->count, 0);
	assert_null(st_find(f, "z.f3"));
	assert_string_equal(st_metadata(f, "who"), meta[1].value);
	assert_null(st_metadata(f, "nobody"));
	float out[2];
	st_to_f32(st_find(f, "f64"), 0, 1, out);
	assert_true(out[0] == 0.1f);
	st_to_f32(st_find(f, "z.f32"), 2, 2, out);
	assert_memory_equal(out, f32 + 2, sizeof out);
	st_to_f32(st_find(f, "bf16"), 1, 1, out);
	assert_true(out[0] == -3.0f);
	st_to_f32(st_find(f, "f16"), 0, 2, out);
	assert_true(out[0] == 1.0f && out[1] == 0x1p-24f);
	st_close(f);
	free(path);
	remove_folder(folder, (const char *const[]){"x.safetensors"}, 1);
}

/* All 65,536 halves against the definition of the format. */
static void widens_every_half(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h++) {
		const int exponent = h >> 10 & 31, fraction = h & 1023;
		const double sign = h & 0x8000 ? -1 : 1;
		const float got = float_from_half((uint16_t)h);
		if (exponent == 31 && fraction)
			assert_true(isnan(got));
		else if (exponent == 31)
			assert_true(isinf(got) && !!signbit(got) == (h >= 0x8000));
		else {
			double want = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
			assert_true(got == (float)(sign * want) && !!signbit(got) == (h >= 0x8000));
		}
	}
}

static void write_reports_failures(void **state)
{
	(void)state;
	const float x[1] = {1};
	const struct st_tensor twice[] = {{"a", ST_F32, 1, {1}, .data = x}, {"a", ST_F32, 1, {1}, .data = x}};
	const struct st_tensor other = {"a", ST_OTHER, 1, {1}, .data = x};
	char err[ERR_LEN];
	assert_int_equal(st_write("/nonexistent/folder/x", twice, 1, NULL, 0, err), -1);
	assert_contains(err, "/nonexistent/folder/x");
	assert_int_equal(st_write("/nonexistent/x", twice, 2, NULL, 0, err), -1);
	assert_contains(err, "given twice");
	assert_int_equal(st_write("/nonexistent/x", &other, 1, NULL, 0, err), -1);
	assert_contains(err, "no type");
	char *folder = scratch_folder(), *path = text_format("%s/pipe", folder);
	struct stat s;
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(st_write(path, twice, 1, NULL, 0, err), -1);
	assert_contains(err, "no plain file");
	assert_int_equal(stat(path, &s), 0);
	assert_true(S_ISFIFO(s.st_mode)); /* still */
	free(path);
	remove_folder(folder, (const char *const[]){"pipe"}, 1);
}

/* ---- Hostile files ---- */

static struct strbuf file_of(const char *header, size_t data_len)
{
	struct strbuf b = {0};
	const uint64_t len = strlen(header);
	char *data = mem_new(data_len, 1);
	strbuf_add(&b, (const char *)&len, sizeof len);
	strbuf_puts(&b, header);
	strbuf_add(&b, data, data_len);
	free(data);
	return b;
}

#define T(name, shape, from, to) "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void refuses_bad_headers(void **state)
{
	(void)state;
	static const struct {
		const char *header;
		size_t data;
		const char *says;
	} cases[] = {
		{"{" T("w", "[2]", "0", "8") "}", 7, "tensor w ends at byte 8"},
		{"{" T("w", "[2]", "0", "8") "}", 9, "1 bytes after the last tensor"},
		{"{" T("w", "[3]", "0", "8") "}", 8, "tensor w has 8 bytes"},
		{"{" T("w", "[2]", "4", "12") "}", 12, "tensor w lies behind a hole"},
		{"{" T("a", "[2]", "0", "8") "," T("b", "[2]", "4", "12") "}", 12, "tensor b overlaps"},
		{"{" T("a", "[1]", "0", "4") "," T("b", "[1]", "8", "12") "}", 12, "tensor b lies behind a hole"},
		{"{" T("w", "[2]", "8", "0") "}", 8, "tensor w has no data_offsets"},
		{"{" T("w", "[-2]", "0", "8") "}", 8, "tensor w has an impossible shape"},
		{"{" T("w", "[4294967296,4294967296,4294967296]", "0", "8") "}", 8, "tensor w has an impossible shape"},
		{"{" T("w", "[4611686018427387904]", "0", "8") "}", 8, "tensor w has 8 bytes"},
		{"{" T("w", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "at most 8 dimensions"},
		{"{" T("w", "[1.5]", "0", "4") "}", 4, "impossible shape"},
		{"{" T("w", "3", "0", "4") "}", 4, "no shape"},
		{"{\"w\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype F31"},
		{"{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype (none)"},
		{"{\"w\":7}", 4, "tensor w has dtype (none)"},
		{"{" T("w", "[1]", "0", "4") "," T("w", "[1]", "4", "8") "}", 8, "duplicate"},
		{"[]", 0, "not a JSON object"},
		{"{", 0, "not a JSON object"},
		{"", 0, "not a JSON object"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char err[ERR_LEN] = "";
		struct st_file *f;
		struct strbuf b = file_of(cases[i].header, cases[i].data);
		assert_int_equal(st_open_memory(&f, "bad.safetensors", b.text, b.len, err), -1);
		assert_contains(err, "bad.safetensors");
		assert_contains(err, cases[i].says);
		strbuf_free(&b);
	}
}

static void refuses_absurd_lengths(void **state)
{
	(void)state;
	char err[ERR_LEN], block[64] = {0};
	struct st_file *f;
	memset(block, 0xff, 8);
	assert_int_equal(st_open_memory(&f, "x", block, sizeof block, err), -1);
	assert_contains(err, "header length");
	assert_int_equal(st_open_memory(&f, "x", block, 7, err), -1);
	assert_int_equal(st_open(&f, "/nonexistent.safetensors", err), -1);
	assert_contains(err, "/nonexistent.safetensors");
	assert_int_equal(st_open(&f, "tests", err), -1);
	assert_contains(err, "not a file");
}

/* Cut at every length: always refused. One byte changed anywhere: refused or read, never a crash (ASan watches). */
static void survives_damage(void **state)
{
	(void)state;
	char err[ERR_LEN];
	struct st_file *f;
	struct strbuf b =
		file_of("{\"__metadata__\":{\"k\":\"v\"}," T("a", "[2,1]", "0", "8") "," T("b", "[1]", "8", "12") "}", 12);
	for (size_t len = 0; len < b.len; len++) {
		char *cut = mem_new(len, 1); /* a block of its own, so that ASan sees a step too far */
		memcpy(cut, b.text, len);
		assert_int_equal(st_open_memory(&f, "cut", cut, len, err), -1);
		free(cut);
	}
	for (size_t i = 0; i < b.len; i++)
		for (int flip = 1; flip < 256; flip *= 2) {
			b.text[i] ^= (char)flip;
			if (st_open_memory(&f, "flipped", b.text, b.len, err) == 0)
				st_close(f);
			b.text[i] ^= (char)flip;
		}
	strbuf_free(&b);
}

/* ---- Memory ---- */

static int64_t resident_bytes(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

/* What was read is given back, and is the same when it is read again; else a model would stand in memory twice while it loads. */
static void gives_back_what_it_read(void **state)
{
	(void)state;
	enum { N = 8 << 20, BYTES = N * 4 };
	float *x = mem_new(N, sizeof *x);
	for (int i = 0; i < N; i++)
		x[i] = (float)i;
	char err[ERR_LEN] = "", *folder = scratch_folder(), *path = text_format("%s/big.safetensors", folder);
	assert_int_equal(st_write(path, &(struct st_tensor){"x", ST_F32, 1, {N}, .data = x}, 1, NULL, 0, err), 0);
	struct st_file *f;
	assert_int_equal(st_open(&f, path, err), 0);
	const void *data = st_find(f, "x")->data;
	int64_t before = resident_bytes();
	assert_memory_equal(data, x, BYTES);
	assert_true(resident_bytes() - before > BYTES / 2);
	st_unread(f);
	assert_true(resident_bytes() - before < BYTES / 8);
	assert_memory_equal(data, x, BYTES);
	st_close(f);
	free(x), free(path);
	remove_folder(folder, (const char *const[]){"big.safetensors"}, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_and_reads_every_type),
		cmocka_unit_test(widens_every_half),
		cmocka_unit_test(write_reports_failures),
		cmocka_unit_test(refuses_bad_headers),
		cmocka_unit_test(refuses_absurd_lengths),
		cmocka_unit_test(survives_damage),
		cmocka_unit_test(gives_back_what_it_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
