/* test_tokenizer.c: the tokenizer against golden ids of real vocabularies, and piece by piece against small ones made here. */
#include <jansson.h>

#include "harness/base/utf8.h"
#include "runners/model/gguf.h"
#include "runners/model/nfc.h"
#include "runners/model/tokenizer.h"
#include "runners/model/tokenizer_parts.h"
#include "tests/unit/model/inputs.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ------------------------------------------------------------ helpers ------------------------------------------------------- */

static char *read_shared(const char *name, size_t *len)
{
	char err[ERR_LEN], *data, *path = shared_file(name);
	if (file_read(path, &data, len, err))
		fail_msg("%s", err);
	free(path);
	return data;
}

static struct tokenizer *open_json(const char *path)
{
	char err[ERR_LEN];
	struct tokenizer *t;
	if (tokenizer_open_json(&t, path, err))
		fail_msg("%s", err);
	return t;
}

static struct tokenizer *open_shared(const char *name)
{
	char *path = shared_file(name);
	struct tokenizer *t = open_json(path);
	free(path);
	return t;
}

static struct tokenizer *open_gguf(const char *path)
{
	char err[ERR_LEN];
	struct tokenizer *t;
	struct gguf *g;
	if (gguf_open(&g, path, err) || tokenizer_open_gguf(&t, g, err))
		fail_msg("%s", err);
	gguf_close(g);
	return t;
}

static struct ids encode(struct tokenizer *t, const char *text, size_t len, bool specials)
{
	char err[ERR_LEN];
	struct ids ids = {0};
	if (tokenizer_encode(t, text, len, specials, &ids, err))
		fail_msg("%s", err);
	return ids;
}

static void check_ids(const struct ids *got, const int32_t *want, size_t n, const char *text)
{
	bool same = got->n == n && (n == 0 || memcmp(got->v, want, n * sizeof *want) == 0);
	if (same)
		return;
	print_message("text '%s'\n got:", text);
	for (size_t i = 0; i < got->n; i++)
		print_message(" %d", got->v[i]);
	print_message("\nwant:");
	for (size_t i = 0; i < n; i++)
		print_message(" %d", want[i]);
	fail_msg("%zu ids, %zu wanted, or not the same", got->n, n);
}

#define CHECK_TEXT(t, specials, text, ...)                                                                                       \
	do {                                                                                                                     \
		const int32_t want_[] = {__VA_ARGS__};                                                                           \
		struct ids got_ = encode(t, text, sizeof(text) - 1, specials);                                                   \
		check_ids(&got_, want_, COUNT(want_), text);                                                                     \
		ids_free(&got_);                                                                                                 \
	} while (0)

static void check_decodes(const struct tokenizer *t, const struct ids *ids, const char *want, size_t len)
{
	struct strbuf whole = {0}, lossy = {0}, streamed = {0};
	struct decode_stream s = {{0}, 0};
	tokenizer_decode(t, ids->v, ids->n, false, &whole);
	utf8_repair(whole.text, whole.len, &lossy);
	for (size_t i = 0; i < ids->n; i++)
		tokenizer_stream(t, &s, ids->v[i], false, &streamed);
	tokenizer_stream_end(&s, &streamed);
	assert_int_equal(lossy.len, len);
	assert_int_equal(streamed.len, len);
	if (len) {
		assert_memory_equal(lossy.text, want, len);
		assert_memory_equal(streamed.text, want, len);
	}
	strbuf_free(&whole);
	strbuf_free(&lossy);
	strbuf_free(&streamed);
}

/* -------------------------------------------------------- golden vectors --------------------------------------------------- */

/* The next line of ids of an .out file. */
static struct ids next_line(char **at)
{
	struct ids ids = {0};
	char *end = strchr(*at, '\n');
	if (end)
		*end = 0;
	for (char *p = *at, *q;; p = q) {
		long id = strtol(p, &q, 10);
		if (q == p)
			break;
		ids_add(&ids, (int32_t)id);
	}
	*at = end ? end + 1 : *at + strlen(*at);
	return ids;
}

/* The strings, each closed by a mark line, against one line of ids each. */
static void check_vectors(struct tokenizer *t, const char *out_name, bool nfc)
{
	static const char mark[] = "\n__ggml_vocab_test__\n";
	size_t len;
	int n = 0;
	char *strings = read_shared("models/tokenizer-vectors/tests.inp", &len), *out = read_shared(out_name, &len), *line = out;
	for (char *s = strings, *end; (end = strstr(s, mark)); s = end + strlen(mark), n++) {
		struct ids want = next_line(&line), got = encode(t, s, (size_t)(end - s), false);
		*end = 0;
		check_ids(&got, want.v, want.n, s);
		if (!nfc) /* NFC may change the text, so that decoding gives another one */
			check_decodes(t, &got, s, (size_t)(end - s));
		ids_free(&want);
		ids_free(&got);
	}
	assert_int_equal(n, 46);
	free(strings);
	free(out);
	tokenizer_close(t);
}

static void vectors_gpt2_from_gguf(void **state)
{
	(void)state;
	char *path = shared_file("models/gpt2-tokenizer/ggml-vocab-gpt-2.gguf");
	struct tokenizer *t = open_gguf(path);
	free(path);
	assert_int_equal(tokenizer_vocab(t), 50257);
	assert_int_equal(tokenizer_id(t, "<|endoftext|>"), 50256);
	assert_int_equal(tokenizer_bos(t), -1);
	check_vectors(t, "models/tokenizer-vectors/gpt-2.out", false);
}

static void vectors_llama3(void **state)
{
	(void)state;
	struct tokenizer *t = open_shared("models/llama3.1-tokenizer/tokenizer.json");
	assert_int_equal(tokenizer_vocab(t), 128256);
	assert_int_equal(tokenizer_id(t, "<|eot_id|>"), 128009);
	assert_int_equal(tokenizer_id(t, "<|no such token|>"), -1);
	assert_int_equal(tokenizer_bos(t), 128000);
	check_vectors(t, "models/tokenizer-vectors/llama-bpe.out", false);
}

static void vectors_qwen2(void **state)
{
	(void)state;
	struct tokenizer *t = open_shared("models/qwen3-tokenizer/tokenizer.json");
	assert_int_equal(tokenizer_vocab(t), 151669);
	assert_int_equal(tokenizer_bos(t), -1);
	check_vectors(t, "models/tokenizer-vectors/qwen2.out", true);
}

/* Our own strings, encoded by Hugging Face's tokenizers with special tokens spelled in them. `name`_decoded where decoding
 * gives another text. */
static void check_fixture(struct tokenizer *t, const char *name)
{
	json_error_t where;
	json_t *root = json_load_file("tests/fixtures/tokenizer_extra.json", JSON_ALLOW_NUL, &where), *row, *id;
	size_t i, k;
	assert_non_null(root);
	char *decoded = text_format("%s_decoded", name);
	json_array_foreach(json_object_get(root, "strings"), i, row)
	{
		const json_t *text = json_object_get(row, "text"), *back = json_object_get(row, decoded);
		struct ids want = {0};
		json_array_foreach(json_object_get(row, name), k, id)
		{
			ids_add(&want, (int32_t)json_integer_value(id));
		}
		struct ids got = encode(t, json_string_value(text), json_string_length(text), true);
		check_ids(&got, want.v, want.n, json_string_value(text));
		back = back ? back : text;
		check_decodes(t, &got, json_string_value(back), json_string_length(back));
		ids_free(&want);
		ids_free(&got);
	}
	assert_true(i > 40);
	free(decoded);
	json_decref(root);
	tokenizer_close(t);
}

static void fixture_tiny_pair(void **state)
{
	(void)state;
	check_fixture(open_json("runners/model/tiny-pair/target/tokenizer.json"), "tiny-pair");
}

static void fixture_llama3(void **state)
{
	(void)state;
	check_fixture(open_shared("models/llama3.1-tokenizer/tokenizer.json"), "llama3");
}

static void fixture_qwen3(void **state)
{
	(void)state;
	check_fixture(open_shared("models/qwen3-tokenizer/tokenizer.json"), "qwen3");
}

/* Real GGUF files are fetched, not committed: KVB_MODELS names their folder. */
static char *fetched(const char *name)
{
	const char *folder = getenv("KVB_MODELS");
	char *path = text_format("%s/%s", folder ? folder : "models", name);
	if (!file_exists(path)) {
		print_message("skip: %s is not there (set KVB_MODELS)\n", path);
		free(path);
		skip();
	}
	return path;
}

static void fixture_smollm2_from_gguf(void **state)
{
	(void)state;
	char *path = fetched("SmolLM2-135M-Instruct.Q4_1.gguf");
	struct tokenizer *t = open_gguf(path);
	free(path);
	check_fixture(t, "smollm2");
}

static void vectors_qwen2_from_gguf(void **state)
{
	(void)state;
	char *path = fetched("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
	struct tokenizer *t = open_gguf(path);
	free(path);
	assert_int_equal(tokenizer_vocab(t), 151936); /* padding included */
	assert_int_equal(tokenizer_id(t, "<|im_end|>"), 151645);
	check_vectors(t, "models/tokenizer-vectors/qwen2.out", true);
}

/* ------------------------------------------------- small vocabularies made here ------------------------------------------- */

static void add_alphabet(struct strbuf *b)
{
	int next = 256;
	for (int c = 0; c < 256; c++) {
		bool prints = (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174;
		strbuf_printf(b, "%s\"\\u%04x\":%d", c ? "," : "", prints ? c : next++, c);
	}
}

/* A whole tokenizer.json: byte c has the id c. NULL parts take a plain default. */
struct parts {
	const char *vocab;  /* more entries, with a comma in front */
	const char *merges; /* inside the brackets */
	const char *model;  /* more members of model, with a comma in front */
	const char *added, *normalizer, *pre;
	const char *more; /* more members of the root, with a comma in front */
};
#define BYTE_LEVEL(regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":" regex "}"
#define SPLIT(pattern) "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define MATCHES(pattern) "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Removed\",\"invert\":true}"
#define SEQUENCE(first, last) "{\"type\":\"Sequence\",\"pretokenizers\":[" first "," last "]}"
#define DIGITS "{\"type\":\"Digits\"}"
#define DIGIT "{\"type\":\"Digits\",\"individual_digits\":true}"

static char *make_json(const struct parts *p)
{
	struct strbuf b = {0};
	strbuf_printf(&b,
		"{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s%s,\"model\":{\"type\":\"BPE\",\"merges\":[%s]%s,"
		"\"vocab\":{",
		p->added ? p->added : "", p->normalizer ? p->normalizer : "null", p->pre ? p->pre : BYTE_LEVEL("true"),
		p->more ? p->more : "", p->merges ? p->merges : "", p->model ? p->model : "");
	add_alphabet(&b);
	strbuf_printf(&b, "%s}}}", p->vocab ? p->vocab : "");
	return strbuf_take(&b);
}

static int try_open(const struct parts *p, struct tokenizer **t, char err[ERR_LEN])
{
	char *json = make_json(p);
	int rc = tokenizer_open_memory(t, "made.json", json, strlen(json), err);
	free(json);
	return rc;
}

static struct tokenizer *make(struct parts p)
{
	char err[ERR_LEN];
	struct tokenizer *t;
	if (try_open(&p, &t, err))
		fail_msg("%s", err);
	return t;
}

#define ABC_VOCAB ",\"ab\":256,\"abc\":257,\"bc\":258"

static void merges_in_both_spellings(void **state)
{
	(void)state;
	struct tokenizer *old = make((struct parts){.vocab = ABC_VOCAB, .merges = "\"b c\",\"a b\""});
	struct tokenizer *new = make((struct parts){.vocab = ABC_VOCAB, .merges = "[\"b\",\"c\"],[\"a\",\"b\"]"});
	struct tokenizer *other = make((struct parts){.vocab = ABC_VOCAB, .merges = "[\"a\",\"b\"],[\"b\",\"c\"]"});
	CHECK_TEXT(old, false, "abcab", 'a', 258, 256); /* rank decides, not place */
	CHECK_TEXT(new, false, "abcab", 'a', 258, 256);
	CHECK_TEXT(other, false, "abcab", 256, 'c', 256);
	assert_string_equal(tokenizer_sha256(old), tokenizer_sha256(new));
	assert_string_not_equal(tokenizer_sha256(old), tokenizer_sha256(other));
	tokenizer_close(old);
	tokenizer_close(new);
	tokenizer_close(other);
}

static void ignore_merges_takes_whole_pieces(void **state)
{
	(void)state;
	struct tokenizer *off = make((struct parts){.vocab = ABC_VOCAB, .merges = "\"b c\""});
	struct tokenizer *on = make((struct parts){.vocab = ABC_VOCAB, .merges = "\"b c\"", .model = ",\"ignore_merges\":true"});
	CHECK_TEXT(off, false, "abc", 'a', 258);
	CHECK_TEXT(on, false, "abc", 257);
	CHECK_TEXT(on, false, "abca", 'a', 258, 'a'); /* only a whole piece */
	tokenizer_close(off);
	tokenizer_close(on);
}

static void bytes_without_token(void **state)
{
	(void)state;
	static const char vocab[] =
		"{\"model\":{\"vocab\":{\"a\":0,\"?\":1},\"merges\":[]%s},\"pre_tokenizer\":" BYTE_LEVEL("false") "}";
	char err[ERR_LEN], *dropped = text_format(vocab, ""), *replaced = text_format(vocab, ",\"unk_token\":\"?\"");
	struct tokenizer *t;
	assert_int_equal(tokenizer_open_memory(&t, "made.json", dropped, strlen(dropped), err), 0);
	CHECK_TEXT(t, false, "abca", 0, 0);
	tokenizer_close(t);
	assert_int_equal(tokenizer_open_memory(&t, "made.json", replaced, strlen(replaced), err), 0);
	CHECK_TEXT(t, false, "abca", 0, 1, 1, 0);
	tokenizer_close(t);
	free(dropped);
	free(replaced);
}

static void an_empty_token_comes_first(void **state)
{
	(void)state;
	static const char json[] =
		"{\"model\":{\"vocab\":{\"\":0,\"a\":1},\"merges\":[]},\"pre_tokenizer\":" BYTE_LEVEL("false") "}";
	char err[ERR_LEN];
	struct tokenizer *t;
	assert_int_equal(tokenizer_open_memory(&t, "made.json", json, strlen(json), err), 0);
	CHECK_TEXT(t, false, "aa", 1, 1);
	tokenizer_close(t);
}

#define ADDED(id, text, flags) "{\"id\":" #id ",\"content\":\"" text "\"" flags "}"
#define SPECIAL ",\"special\":true,\"normalized\":false"

static void added_tokens_in_text(void **state)
{
	(void)state;
	static const char added[] = ADDED(300, "<s>", SPECIAL) "," ADDED(301, "<s>>", SPECIAL) "," ADDED(304, "<u>",
		"") "," ADDED(302, "<l>", SPECIAL ",\"lstrip\":true") "," ADDED(303, "<r>", SPECIAL ",\"rstrip\":true");
	struct tokenizer *t = make((struct parts){.added = added});
	assert_int_equal(tokenizer_vocab(t), 305);
	CHECK_TEXT(t, true, "a<s>b", 'a', 300, 'b');
	CHECK_TEXT(t, true, "<s>><s>", 301, 300); /* the longest */
	CHECK_TEXT(t, true, "a \xE3\x80\x80<l> b", 'a', 302, ' ', 'b');
	CHECK_TEXT(t, true, "a <r> \n b", 'a', ' ', 303, 'b');
	CHECK_TEXT(t, true, "<r> <l>", 303, 302); /* the space is taken once */
	CHECK_TEXT(t, true, "<u", '<', 'u');
	CHECK_TEXT(t, true, "<u>", 304);
	CHECK_TEXT(t, false, "<s>", '<', 's', '>'); /* plain text stays plain text */
	tokenizer_close(t);
}

/* A special token that the vocabulary holds as a piece: even as one whole piece of text it stays text. */
static void special_tokens_cannot_be_injected(void **state)
{
	(void)state;
	struct tokenizer *t = make(
		(struct parts){.vocab = ",\"eos\":256", .model = ",\"ignore_merges\":true", .added = ADDED(256, "eos", SPECIAL)});
	CHECK_TEXT(t, true, "eos", 256);
	CHECK_TEXT(t, false, "eos", 'e', 'o', 's');
	tokenizer_close(t);
}

static void skipping_special_tokens(void **state)
{
	(void)state;
	struct tokenizer *t = make((struct parts){.added = ADDED(300, "<s>", SPECIAL) "," ADDED(301, "<u>", "")});
	const int32_t ids[] = {'a', 300, 301, 299, 4000, -1, 'b'}; /* a hole, beyond the end, negative: no bytes */
	struct strbuf kept = {0}, skipped = {0};
	tokenizer_decode(t, ids, COUNT(ids), false, &kept);
	tokenizer_decode(t, ids, COUNT(ids), true, &skipped);
	assert_string_equal(kept.text, "a<s><u>b");
	assert_string_equal(skipped.text, "a<u>b");
	strbuf_free(&kept);
	strbuf_free(&skipped);
	tokenizer_close(t);
}

static void nfc_around_added_tokens(void **state)
{
	(void)state;
	/* "e" + combining acute becomes U+00E9; a token that wants normalised text is found only after that */
	struct tokenizer *t = make((struct parts){.normalizer = "{\"type\":\"NFC\"}",
		.added = ADDED(300, "\\u00e9", ",\"normalized\":true") "," ADDED(301, "e\\u0301x", SPECIAL)});
	CHECK_TEXT(t, true, "e\xCC\x81", 300);
	CHECK_TEXT(t, true, "e\xCC\x81x", 301);
	CHECK_TEXT(t, false, "e\xCC\x81x", 0xC3, 0xA9, 'x');
	tokenizer_close(t);
	t = make((struct parts){.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"});
	CHECK_TEXT(t, false, "e\xCC\x81", 0xC3, 0xA9);
	tokenizer_close(t);
}

/* As tokenizers 0.23 normalises, with tables of Unicode 9: marks of later versions stay where they are and let nothing past. */
static void nfc_of_the_reference(void **state)
{
	(void)state;
	static const struct {
		const char *text, *normal;
	} cases[] = {
		{"a\u0898\u0334", "a\u0898\u0334"},               /* Unicode 14: would go behind U+0334 */
		{"a\u0899\u0301", "a\u0899\u0301"},               /* would let the acute through */
		{"\U00011935\U00011930", "\U00011935\U00011930"}, /* Unicode 13: would compose */
		{"\uC1E0\u11A7\u11A8", "\uC1E0\u11A7\u11A8"},     /* a vowel jamo behind a syllable stays */
		{"a\u0301\u0334\u0898e\u0301", "\u00E1\u0334\u0898\u00E9"},
		{"\u0898\u1112\u1161\u11AB", "\u0898\uD55C"},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		char err[ERR_LEN], *normal;
		size_t len;
		assert_int_equal(utf8_nfc(cases[i].text, strlen(cases[i].text), &normal, &len, err), 0);
		assert_int_equal(len, strlen(cases[i].normal));
		assert_memory_equal(normal, cases[i].normal, len);
		free(normal);
	}
}

/* What the pieces are shows in the ids: under ignore_merges "1", "12", " a" and "a1" are tokens only when they are whole pieces.
 */
static void pretokenizers_cut(void **state)
{
	(void)state;
	struct parts p = {
		.vocab = ",\"12\":256,\"\\u0120a\":257,\"a1\":258,\"1\\u0120\":259", .model = ",\"ignore_merges\":true"};
	struct tokenizer *t = make(p); /* ByteLevel with GPT-2's regex */
	CHECK_TEXT(t, false, "12 a1", 256, 257, '1');
	tokenizer_close(t);
	p.pre = BYTE_LEVEL("false");
	t = make(p);
	CHECK_TEXT(t, false, "a1", 258);
	CHECK_TEXT(t, false, "12 a", '1', '2', ' ', 'a');
	tokenizer_close(t);
	p.pre = SEQUENCE(DIGIT, BYTE_LEVEL("true"));
	t = make(p);
	CHECK_TEXT(t, false, "12 a1", '1', '2', 257, '1');
	tokenizer_close(t);
	p.pre = SEQUENCE(DIGITS, BYTE_LEVEL("false"));
	t = make(p);
	CHECK_TEXT(t, false, "12 a1", 256, 257, '1');
	tokenizer_close(t);
	p.pre = SEQUENCE(SPLIT("[a-z]\\\\d|\\\\s"), BYTE_LEVEL("false"));
	t = make(p);
	CHECK_TEXT(t, false, "12a1 a", 256, 258, ' ', 'a');
	tokenizer_close(t);
	p.pre = SEQUENCE(MATCHES("[0-9]+"), BYTE_LEVEL("false"));
	t = make(p);
	CHECK_TEXT(t, false, "12a1", 256, '1'); /* what does not match is dropped */
	tokenizer_close(t);
}

static void invalid_utf8_becomes_fffd(void **state)
{
	(void)state;
	struct tokenizer *t = make((struct parts){0});
	CHECK_TEXT(t, false, "a\xFF", 'a', 0xEF, 0xBF, 0xBD);
	CHECK_TEXT(t, false, "\xE2\x82z", 0xEF, 0xBF, 0xBD, 'z');                                   /* a cut character: one */
	CHECK_TEXT(t, false, "\xED\xA0\x80", 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD); /* a surrogate: one a byte */
	CHECK_TEXT(t, false, "a\0b", 'a', 0, 'b');
	tokenizer_close(t);
}

static void streaming_waits_for_whole_characters(void **state)
{
	(void)state;
	static const char *const after[] = {"", "", "", "\xF0\x9F\xA6\x99", "\xF0\x9F\xA6\x99", "\xF0\x9F\xA6\x99\xEF\xBF\xBDx"};
	static const int32_t ids[] = {0xF0, 0x9F, 0xA6, 0x99, 0xE2, 'x'};
	struct tokenizer *t = make((struct parts){0});
	struct decode_stream s = {{0}, 0};
	struct strbuf out = {0};
	for (size_t i = 0; i < COUNT(ids); i++) {
		tokenizer_stream(t, &s, ids[i], false, &out);
		assert_string_equal(out.text ? out.text : "", after[i]);
	}
	tokenizer_stream(t, &s, 0xC3, false, &out);
	tokenizer_stream_end(&s, &out);
	assert_string_equal(out.text, "\xF0\x9F\xA6\x99\xEF\xBF\xBDx\xEF\xBF\xBD");
	strbuf_free(&out);
	tokenizer_close(t);
}

/* ------------------------------------------------------ merging, long runs ------------------------------------------------- */

/* The definition: the pair of lowest rank, leftmost, until none is left. */
static void merge_plainly(const struct bpe *b, struct ids *v)
{
	for (;;) {
		int64_t best = INT64_MAX;
		size_t at = 0;
		for (size_t i = 0; i + 1 < v->n; i++) {
			const int64_t *m = bytemap_get(&b->merges, v->v + i, 2 * sizeof *v->v);
			if (m && *m < best) {
				best = *m;
				at = i;
			}
		}
		if (best == INT64_MAX)
			return;
		v->v[at] = (int32_t)(best & 0xFFFFFFFF);
		memmove(v->v + at + 1, v->v + at + 2, (v->n-- - at - 2) * sizeof *v->v);
	}
}

/* Below n, small ones more often, so that merges build on each other. */
static int32_t low_id(struct rng *r, uint64_t n)
{
	return (int32_t)rng_below(r, 1 + rng_below(r, n));
}

static void heap_equals_definition(void **state)
{
	(void)state;
	struct rng r = rng_seed(3, 0);
	for (int round = 0; round < 50; round++) {
		struct bpe b = {.unk = -1};
		for (int c = 0; c < 4; c++)
			bytemap_put(&b.pieces, &(char){(char)('a' + c)}, 1, c);
		for (uint32_t rank = 0; rank < 40; rank++)
			bpe_add_merge(&b, low_id(&r, 4 + rank), low_id(&r, 4 + rank), rank, 4 + (int32_t)rank);
		bpe_ready(&b);
		for (int k = 0; k < 40; k++) {
			char text[201];
			size_t n = 1 + rng_below(&r, 200);
			struct ids want = {0}, got = {0};
			for (size_t i = 0; i < n; i++) {
				text[i] = (char)('a' + rng_below(&r, 4));
				ids_add(&want, text[i] - 'a');
			}
			merge_plainly(&b, &want);
			bpe_encode(&b, text, n, &got);
			text[n] = 0;
			check_ids(&got, want.v, want.n, text);
			ids_free(&want);
			ids_free(&got);
		}
		bpe_free(&b);
	}
}

/* 400 kB of one thing must not cost its square; a quadratic merge or match takes minutes here. */
static void long_runs_are_not_quadratic(void **state)
{
	(void)state;
	static const char *const units[] = {
		"a", " ", "\n", "1", "=", "\xCC\x81", "\xCC\x81\xCC\x96", "\xE0\xBD\xB3", "\xE4\xB8\xAD", "<"};
	enum { BYTES = 400000 };
	struct tokenizer *t = open_shared("models/qwen3-tokenizer/tokenizer.json");
	for (size_t i = 0; i < COUNT(units); i++) {
		struct strbuf run = {0};
		while (run.len < BYTES)
			strbuf_puts(&run, units[i]);
		int64_t start = cpu_ns();
		struct ids ids = encode(t, run.text, run.len, true);
		double s = (double)(cpu_ns() - start) * 1e-9;
		print_message("400 kB of '%s': %zu ids, %.3f s\n", units[i][0] == '\n' ? "\\n" : units[i], ids.n, s);
		assert_true(s < 10);
		ids_free(&ids);
		strbuf_free(&run);
	}
	tokenizer_close(t);
}

static void speed_on_english(void **state)
{
	(void)state;
	static const char *const files[] = {"models/llama3.1-tokenizer/tokenizer.json", "models/qwen3-tokenizer/tokenizer.json"};
	size_t len;
	char *text = read_shared("models/corpora/genesis_kjv.txt", &len);
	for (size_t i = 0; i < COUNT(files); i++) {
		struct tokenizer *t = open_shared(files[i]);
		double best = 0;
		for (int k = 0; k < 5; k++) { /* the first round fills the cache */
			int64_t start = cpu_ns();
			struct ids ids = encode(t, text, len, true);
			double mb_s = (double)len / 1e6 / ((double)(cpu_ns() - start) * 1e-9);
			best = mb_s > best ? mb_s : best;
			if (k == 0)
				print_message("%s: %zu ids, first round %.1f MB/s", files[i], ids.n, mb_s);
			ids_free(&ids);
		}
		print_message(", best %.1f MB/s\n", best);
		assert_true(best > 5 || getenv("KVB_SANITIZED"));
		tokenizer_close(t);
	}
	free(text);
}

/* --------------------------------------------------------- refusals --------------------------------------------------------- */

static void bad_parts_are_refused(void **state)
{
	(void)state;
	static const struct {
		struct parts parts;
		const char *says;
	} cases[] = {
		{{.vocab = ",\"x1\":-1"}, "id -1"},
		{{.vocab = ",\"x1\":99999999999"}, "id 99999999999"},
		{{.vocab = ",\"x1\":1.5"}, "'x1' is no integer"},
		{{.vocab = ",\"x1\":5"}, "two tokens have the id 5"},
		{{.vocab = ",\"!\":700"}, "duplicate"},
		{{.vocab = ABC_VOCAB, .merges = "\"ab\""}, "merge 0, 'ab'"},
		{{.vocab = ABC_VOCAB, .merges = "\"a b c\""}, "merge 0, 'a b c'"},
		{{.vocab = ABC_VOCAB, .merges = "\"a b\",[\"a\"]"}, "merge 1"},
		{{.vocab = ABC_VOCAB, .merges = "[\"a\",1]"}, "merge 0"},
		{{.merges = "\"a z\""}, "'a' + 'z'"},
		{{.merges = "\"a \""}, "'a' + ''"},
		{{.model = ",\"dropout\":0.1"}, "dropout"},
		{{.model = ",\"byte_fallback\":true"}, "byte_fallback"},
		{{.model = ",\"end_of_word_suffix\":\"</w>\""}, "end_of_word_suffix"},
		{{.model = ",\"unk_token\":\"nothing\""}, "unk_token"},
		{{.added = ADDED(-5, "<s>", "")}, "id -5"},
		{{.added = ADDED(1, "<s>", "")}, "id 1 of another token"},
		{{.added = ADDED(300, "", "")}, "no text"},
		{{.added = ADDED(300, "<s>", "") "," ADDED(301, "<s>", "")}, "two added tokens"},
		{{.added = ADDED(300, "<s>", ",\"single_word\":true")}, "single_word"},
		{{.added = "{\"id\":300}"}, "no text 'content'"},
		{{.added = "7"}, "no integer 'id'"},
		{{.normalizer = "{\"type\":\"Lowercase\"}"}, "normalizer 'Lowercase'"},
		{{.pre = "null"}, "pre-tokenizer ''"},
		{{.pre = "{\"type\":\"Whitespace\"}"}, "'Whitespace'"},
		{{.pre = SEQUENCE(DIGIT, DIGITS)}, "no ByteLevel"},
		{{.pre = SEQUENCE(BYTE_LEVEL("true"), DIGITS)}, "after ByteLevel"},
		{{.pre = "{\"type\":\"ByteLevel\"}"}, "add_prefix_space"},
		{{.pre = SPLIT("\\\\bx")}, "this escape"},
		{{.pre = SPLIT("x*")}, "can match nothing"},
		{{.pre = SPLIT("(a")}, "character 2"},
		{{.more = ",\"decoder\":{\"type\":\"Metaspace\"}"}, "decoder 'Metaspace'"},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		char err[ERR_LEN] = "";
		struct tokenizer *t;
		if (try_open(&cases[i].parts, &t, err) != -1 || !strstr(err, cases[i].says) || strncmp(err, "made.json", 9) != 0)
			fail_msg("case %zu: '%s' does not say '%s'", i, err, cases[i].says);
		assert_null(t);
	}
}

static void bad_files_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *json, *says;
	} cases[] = {
		{"", "line 1"},
		{"[]", "does not hold an object"},
		{"{}", "no object 'model'"},
		{"{\"model\":{\"type\":\"Unigram\"}}", "'Unigram'; known: BPE"},
		{"{\"model\":{}}", "model.vocab"},
		{"{\"model\":{\"vocab\":{}}}", "model.merges"},
		{"{\"model\":{\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":" BYTE_LEVEL("true") "}", "vocabulary is empty"},
		{"{\"model\":\"\xFF\"}", "line 1"},
		{"{\"model\":{\"vocab\":{\"a\":0", "line 1"},
	};
	char err[ERR_LEN];
	struct tokenizer *t;
	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(tokenizer_open_memory(&t, "made.json", cases[i].json, strlen(cases[i].json), err), -1);
		if (!strstr(err, cases[i].says) || strncmp(err, "made.json", 9) != 0)
			fail_msg("case %zu: '%s' does not say '%s'", i, err, cases[i].says);
	}
	char deep[20000];
	memset(deep, '[', sizeof deep);
	assert_int_equal(tokenizer_open_memory(&t, "made.json", deep, sizeof deep, err), -1);
	assert_int_equal(tokenizer_open_json(&t, "no/such/tokenizer.json", err), -1);
	assert_contains(err, "no/such/tokenizer.json");
}

static void patterns_are_rewritten_or_refused(void **state)
{
	(void)state;
#define SPACES "\\t-\\r\\x{85}\\p{Z}"
	static const char *const pairs[][2] = {
		{"\\s+(?!\\S)|\\s+", "[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"},
		{" ?[^\\s\\p{L}\\p{N}]+", " ?[^" SPACES "\\p{L}\\p{N}]+"},
		{"\\p{N}{1,3}|(?i:'s)|\\p{Lu}++$", "\\p{N}{1,3}|(?i:'s)|\\p{Lu}++$"},
		{"\\\\s|[\\]\\s]|a\\/", "\\\\s|[\\]" SPACES "]|a\\/"},
	};
	static const char *const refused[] = {"\\p{N}{1,3}+", "[a&&b]", "[a[b]]", "[\\S]", "(?<=a)b", "(?i)a", "a.b", "^a",
		"\\p{Han}", "\\p{^L}", "\\w", "\\1", "a{,3}", "a{x}", "\\", "\\p{L", "[]a]", "(*FAIL)", "\\x41"};
	char err[ERR_LEN];
	for (size_t i = 0; i < COUNT(pairs); i++) {
		struct strbuf out = {0};
		assert_int_equal(pattern_rewrite(pairs[i][0], &out, err), 0);
		assert_string_equal(out.text, pairs[i][1]);
		strbuf_free(&out);
	}
	for (size_t i = 0; i < COUNT(refused); i++) {
		struct strbuf out = {0};
		if (pattern_rewrite(refused[i], &out, err) != -1)
			fail_msg("'%s' was let through as '%s'", refused[i], out.text);
		strbuf_free(&out);
	}
}

/* ---------------------------------------------------------- GGUF ----------------------------------------------------------- */

static void draft_array(struct gguf_draft *d, const char *key, uint32_t kind, size_t n)
{
	draft_key(d, key, GGUF_ARRAY);
	put_u32(&d->pairs, kind);
	put_u64(&d->pairs, n);
}

/* Vocabulary a b ab <x> pad; types as given. */
static int open_small_gguf(
	const char *model, const char *pre, const int32_t types[5], const char *merge, struct tokenizer **t, char err[ERR_LEN])
{
	static const char *const tokens[] = {"a", "b", "ab", "<x>", "[PAD4]"};
	struct gguf_draft d = {0};
	struct gguf *g;
	draft_str(&d, "tokenizer.ggml.model", model);
	draft_str(&d, "tokenizer.ggml.pre", pre);
	draft_array(&d, "tokenizer.ggml.tokens", GGUF_STRING, 5);
	for (int i = 0; i < 5; i++)
		put_text(&d.pairs, tokens[i]);
	draft_array(&d, "tokenizer.ggml.token_type", GGUF_INT32, 5);
	strbuf_add(&d.pairs, (const char *)types, 5 * sizeof *types);
	draft_array(&d, "tokenizer.ggml.merges", GGUF_STRING, 1);
	put_text(&d.pairs, merge);
	struct strbuf file = draft_finish(&d);
	if (gguf_open_memory(&g, "small.gguf", file.text, file.len, err))
		fail_msg("%s", err);
	int rc = tokenizer_open_gguf(t, g, err);
	gguf_close(g);
	strbuf_free(&file);
	return rc;
}

#define QWEN2                                                                                                                    \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "                                        \
	"?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
static void small_gguf(void **state)
{
	(void)state;
	static const int32_t types[5] = {1, 1, 1, 3, 5}, sentencepiece[5] = {1, 1, 1, 3, 6};
	char err[ERR_LEN];
	struct tokenizer *t;
	assert_int_equal(open_small_gguf("gpt2", "qwen2", types, "a b", &t, err), 0);
	assert_int_equal(tokenizer_vocab(t), 5);
	CHECK_TEXT(t, true, "ab<x>ba", 2, 3, 1, 0);
	/* the same model as tokenizer.json: no padding, the pattern spelled out */
	char *json = text_format("{\"model\":{\"vocab\":{\"b\":1,\"a\":0,\"ab\":2},\"merges\":[[\"a\",\"b\"]]},"
				 "\"added_tokens\":[%s],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":%s}",
		ADDED(3, "<x>", SPECIAL), SEQUENCE(SPLIT(QWEN2), BYTE_LEVEL("false")));
	struct tokenizer *twin;
	assert_int_equal(tokenizer_open_memory(&twin, "made.json", json, strlen(json), err), 0);
	free(json);
	assert_string_equal(tokenizer_sha256(t), tokenizer_sha256(twin));
	tokenizer_close(twin);
	tokenizer_close(t);
	assert_int_equal(open_small_gguf("llama", "qwen2", types, "a b", &t, err), -1);
	assert_contains(err, "small.gguf: tokenizer.ggml.model is 'llama'");
	assert_int_equal(open_small_gguf("gpt2", "falcon", types, "a b", &t, err), -1);
	assert_contains(err, "'falcon'; known: gpt-2, llama-bpe");
	assert_int_equal(open_small_gguf("gpt2", "qwen2", types, "b a", &t, err), -1);
	assert_contains(err, "merge 0");
	assert_int_equal(open_small_gguf("gpt2", "qwen2", sentencepiece, "a b", &t, err), -1);
	assert_contains(err, "token_type[4] is 6");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vectors_gpt2_from_gguf),
		cmocka_unit_test(vectors_llama3),
		cmocka_unit_test(vectors_qwen2),
		cmocka_unit_test(vectors_qwen2_from_gguf),
		cmocka_unit_test(fixture_tiny_pair),
		cmocka_unit_test(fixture_llama3),
		cmocka_unit_test(fixture_qwen3),
		cmocka_unit_test(fixture_smollm2_from_gguf),
		cmocka_unit_test(merges_in_both_spellings),
		cmocka_unit_test(ignore_merges_takes_whole_pieces),
		cmocka_unit_test(bytes_without_token),
		cmocka_unit_test(an_empty_token_comes_first),
		cmocka_unit_test(added_tokens_in_text),
		cmocka_unit_test(special_tokens_cannot_be_injected),
		cmocka_unit_test(skipping_special_tokens),
		cmocka_unit_test(nfc_around_added_tokens),
		cmocka_unit_test(nfc_of_the_reference),
		cmocka_unit_test(pretokenizers_cut),
		cmocka_unit_test(invalid_utf8_becomes_fffd),
		cmocka_unit_test(streaming_waits_for_whole_characters),
		cmocka_unit_test(heap_equals_definition),
		cmocka_unit_test(long_runs_are_not_quadratic),
		cmocka_unit_test(speed_on_english),
		cmocka_unit_test(bad_parts_are_refused),
		cmocka_unit_test(bad_files_are_refused),
		cmocka_unit_test(patterns_are_rewritten_or_refused),
		cmocka_unit_test(small_gguf),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
