/* test_gguf.c: metadata, tensor directory and dequantisation of GGUF, against files written by the gguf package
 * (tests/oracle/gguf_quants.py); hostile files end in one clear message. */
#include <math.h>

#include "runners/model/gguf.h"
#include "runners/model/safetensors.h"
#include "tests/unit/model/inputs.h"

#define QUANTS "tests/fixtures/gguf/quants"

static struct gguf *open_quants(void)
{
	struct gguf *g;
	char err[ERR_LEN];
	if (gguf_open(&g, QUANTS ".gguf", err))
		fail_msg("%s", err);
	return g;
}

/* ---- The package's files ---- */

static void reads_every_kind_of_value(void **state)
{
	(void)state;
	static const struct {
		const char *key;
		int64_t value;
	} ints[] = {
		{"test.uint8", 200},
		{"test.int8", -100},
		{"test.uint16", 60000},
		{"test.int16", -30000},
		{"test.uint32", 4000000000},
		{"test.int32", -2000000000},
		{"test.int64", -((int64_t)1 << 62)},
	};
	struct gguf *g = open_quants();
	int64_t v;
	double x;
	bool b;
	size_t n;
	struct gguf_text t;
	for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
		assert_true(gguf_int(g, ints[i].key, &v));
		assert_int_equal(v, ints[i].value);
	}
	assert_false(gguf_int(g, "test.uint64", &v)); /* 2^63 + 1 is no int64 */
	assert_false(gguf_int(g, "test.string", &v));
	assert_false(gguf_int(g, "test.nothing", &v));
	assert_true(gguf_float(g, "test.float32", &x) && x == 0.15625);
	assert_true(gguf_float(g, "test.float64", &x) && x == 1e-300);
	assert_false(gguf_float(g, "test.int8", &x));
	assert_true(gguf_bool(g, "test.bool", &b) && b);
	assert_true(gguf_str(g, "test.string", &t));
	assert_int_equal(t.len, strlen("Größe 東京"));
	assert_memory_equal(t.s, "Größe 東京", t.len);
	assert_true(gguf_array(g, "test.strings", &n) && n == 3);
	assert_true(gguf_array_text(g, "test.strings", 1, &t) && t.len == 0);
	assert_true(gguf_array_text(g, "test.strings", 2, &t) && t.len == 3 && !memcmp(t.s, "ccc", 3));
	assert_false(gguf_array_text(g, "test.strings", 3, &t));
	assert_true(gguf_array_int(g, "test.ints", 1, &v) && v == -2);
	assert_false(gguf_array_int(g, "test.floats", 0, &v));
	assert_false(gguf_array(g, "test.int8", &n));
	gguf_close(g);
}

/* Bit-equal to the package for each of the eleven types, whole and in single blocks. */
static void dequantises_as_the_package(void **state)
{
	(void)state;
	static const char *const names[] = {
		"t.f32", "t.f16", "t.bf16", "t.q8_0", "t.q4_0", "t.q4_1", "t.q5_0", "t.q5_1", "t.q4_k", "t.q5_k", "t.q6_k"};
	enum { COUNT = 3 * 256 };
	char err[ERR_LEN];
	struct gguf *g = open_quants();
	struct st_file *want;
	assert_int_equal(st_open(&want, QUANTS ".safetensors", err), 0);
	assert_int_equal(gguf_tensors(g), sizeof names / sizeof *names);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const struct gguf_tensor *t = gguf_find(g, names[i]);
		const struct st_tensor *w = st_find(want, names[i]);
		float out[COUNT], block[256];
		assert_true(t && w && t->n_dims == 2 && t->dims[0] == 256 && t->dims[1] == 3);
		assert_int_equal(t->bytes, tensor_type_bytes(t->type, COUNT));
		dequantise(t->type, t->data, COUNT, out);
		assert_memory_equal(out, w->data, sizeof out);
		const int size = tensor_type_block(t->type);
		dequantise(t->type, (const char *)t->data + tensor_type_bytes(t->type, COUNT - size), size, block);
		assert_memory_equal(block, out + COUNT - size, (size_t)size * sizeof *block);
	}
	st_close(want);
	gguf_close(g);
}

/* ---- Hostile files ---- */

/* A small good file: two pairs, a text array, two tensors. */
static struct gguf_draft good_draft(void)
{
	static const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct gguf_draft d = {0};
	draft_str(&d, "general.architecture", "llama");
	draft_u32(&d, "a.number", 7);
	draft_key(&d, "a.list", GGUF_ARRAY);
	put_u32(&d.pairs, GGUF_STRING);
	put_u64(&d.pairs, 2);
	put_text(&d.pairs, "one");
	put_text(&d.pairs, "two");
	draft_tensor(&d, "w", 0, 2, 4, x, sizeof x);
	draft_tensor(&d, "v", 0, 0, 8, x, sizeof x);
	return d;
}

static void opens_what_it_should(void **state)
{
	(void)state;
	struct gguf_draft d = good_draft();
	struct strbuf b = draft_finish(&d);
	struct gguf *g;
	struct gguf_text t;
	char err[ERR_LEN];
	if (gguf_open_memory(&g, "good.gguf", b.text, b.len, err))
		fail_msg("%s", err);
	assert_true(gguf_array_text(g, "a.list", 1, &t) && !memcmp(t.s, "two", 3));
	assert_int_equal(gguf_find(g, "w")->dims[1], 2);
	assert_int_equal(gguf_find(g, "v")->bytes, 32);
	gguf_close(g);
	strbuf_free(&b);
}

static void expect_refusal(struct gguf_draft *d, const char *says)
{
	struct strbuf b = draft_finish(d);
	struct gguf *g;
	char err[ERR_LEN] = "";
	assert_int_equal(gguf_open_memory(&g, "bad.gguf", b.text, b.len, err), -1);
	assert_contains(err, "bad.gguf");
	assert_contains(err, says);
	strbuf_free(&b);
}

static void refuses_bad_directories(void **state)
{
	(void)state;
	static const float x[64];
	static const struct {
		uint32_t type;
		uint64_t rows, cols;
		const char *says;
	} cases[] = {
		{0, 4, 1000, "tensor bad ends behind the end of the file"},
		{0, 1ull << 40, 1ull << 40, "tensor bad has an impossible shape"},
		{0, 1, 1ull << 62, "tensor bad"},
		{0, 1, 0, "tensor bad has an impossible shape"},
		{0, 1, 1ull << 63, "tensor bad has an impossible shape"},
		{8, 1, 33, "tensor bad: rows of 33 elements are no whole Q8_0 blocks"},
		{12, 1, 128, "no whole Q4_K blocks"},
		{10, 1, 256, "tensor bad has type 10 (Q2_K)"},
		{99, 1, 256, "tensor bad has type 99 (unknown)"},
		{UINT32_MAX, 1, 256, "tensor bad has type"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct gguf_draft d = good_draft();
		draft_tensor(&d, "bad", cases[i].type, cases[i].rows, cases[i].cols, x, sizeof x);
		expect_refusal(&d, cases[i].says);
	}
}

static void refuses_overlap_and_repetition(void **state)
{
	(void)state;
	static const float x[64];
	struct gguf_draft d = good_draft();
	draft_tensor(&d, "w", 0, 2, 4, x, 32);
	expect_refusal(&d, "tensor w is there twice");
	d = good_draft();
	draft_u32(&d, "a.number", 8);
	expect_refusal(&d, "key a.number is given twice");
	d = good_draft(); /* the offset of the last tensor is the directory's end */
	memset(d.directory.text + d.directory.len - 8, 0, 8);
	expect_refusal(&d, "overlaps another tensor");
	d = good_draft();
	d.directory.text[d.directory.len - 8] = 16;
	expect_refusal(&d, "overlaps another tensor");
	d = good_draft();
	draft_u32(&d, "general.alignment", 64);
	expect_refusal(&d, "is not aligned");
	d = good_draft();
	draft_u32(&d, "general.alignment", 3);
	expect_refusal(&d, "general.alignment is 3");
}

static void refuses_absurd_counts(void **state)
{
	(void)state;
	struct gguf_draft d = good_draft();
	d.n_pairs = UINT64_MAX / 2;
	expect_refusal(&d, "metadata pairs cannot fit");
	d = good_draft();
	d.n_tensors = UINT64_MAX / 2;
	expect_refusal(&d, "tensors cannot fit");
	d = good_draft();
	draft_key(&d, "long.list", GGUF_ARRAY);
	put_u32(&d.pairs, GGUF_STRING);
	put_u64(&d.pairs, UINT64_MAX);
	expect_refusal(&d, "metadata pair 4 of 4 is broken");
	d = good_draft();
	draft_key(&d, "long.list", GGUF_ARRAY);
	put_u32(&d.pairs, GGUF_UINT32);
	put_u64(&d.pairs, (uint64_t)1 << 62); /* times 4 bytes is 0 in 64 bits */
	expect_refusal(&d, "metadata pair 4 of 4 is broken");
	d = good_draft();
	draft_key(&d, "unknown.kind", 13);
	expect_refusal(&d, "metadata pair 4 of 4 is broken");
}

static void refuses_other_files(void **state)
{
	(void)state;
	struct gguf *g;
	char err[ERR_LEN];
	assert_int_equal(gguf_open_memory(&g, "x", "GGML....", 8, err), -1);
	assert_contains(err, "not a GGUF file");
	assert_int_equal(gguf_open_memory(&g, "x", "GGUF\1\0\0\0----------------", 24, err), -1);
	assert_contains(err, "version 1");
	assert_int_equal(gguf_open_memory(&g, "x", "GGUF\3\0\0\0---", 11, err), -1);
	assert_contains(err, "truncated");
	assert_int_equal(gguf_open(&g, "/nonexistent.gguf", err), -1);
	assert_contains(err, "/nonexistent.gguf");
}

/* Cut at every length: always refused. One byte changed: refused or read, never a crash. */
static void survives_damage(void **state)
{
	(void)state;
	struct gguf_draft d = good_draft();
	struct strbuf b = draft_finish(&d);
	struct gguf *g;
	char err[ERR_LEN];
	for (size_t len = 0; len < b.len; len++) {
		char *cut = mem_new(len, 1); /* a block of its own, so that ASan sees a step too far */
		memcpy(cut, b.text, len);
		assert_int_equal(gguf_open_memory(&g, "cut", cut, len, err), -1);
		free(cut);
	}
	for (size_t i = 0; i < b.len; i++)
		for (int flip = 1; flip < 256; flip *= 2) {
			b.text[i] ^= (char)flip;
			if (gguf_open_memory(&g, "flipped", b.text, b.len, err) == 0)
				gguf_close(g);
			b.text[i] ^= (char)flip;
		}
	strbuf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_kind_of_value),
		cmocka_unit_test(dequantises_as_the_package),
		cmocka_unit_test(opens_what_it_should),
		cmocka_unit_test(refuses_bad_directories),
		cmocka_unit_test(refuses_overlap_and_repetition),
		cmocka_unit_test(refuses_absurd_counts),
		cmocka_unit_test(refuses_other_files),
		cmocka_unit_test(survives_damage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
