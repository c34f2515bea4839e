/* tokenizer.c: text -> added tokens | NFC -> pieces -> BPE, and ids -> bytes. Built by tokenizer_json.c or tokenizer_gguf.c.
 *
 * The order is the reference's: added tokens that want the raw text are cut out first, what lies between them is
 * normalised, then added tokens that want normalised text are cut out, and the rest goes through pre-tokenizer and BPE. */
#include "runners/model/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/utf8.h"
#include "runners/model/nfc.h"
#include "runners/model/tokenizer_parts.h"

/* ------------------------------------------------------- lists of ids ------------------------------------------------------- */

static void ids_reserve(struct ids *a, size_t more)
{
	if (a->n + more > a->cap) {
		a->cap = 2 * (a->n + more) + 16;
		a->v = mem_grow(a->v, a->cap, sizeof *a->v);
	}
}

void ids_add(struct ids *a, int32_t id)
{
	ids_reserve(a, 1);
	a->v[a->n++] = id;
}

void ids_append(struct ids *a, const int32_t *v, size_t n)
{
	if (n == 0)
		return;
	ids_reserve(a, n);
	memcpy(a->v + a->n, v, n * sizeof *v);
	a->n += n;
}

void ids_free(struct ids *a)
{
	free(a->v);
	*a = (struct ids){0};
}

/* ------------------------------------------------- the byte alphabet of GPT-2 ---------------------------------------------- */

/* Bytes that print as themselves in Latin-1 keep their code point; the other 68 (0-32, 127-160, 173) follow from U+0100 on.
 * Returns the byte that a character of the alphabet stands for, -1 for any other character. */
static int alphabet_byte(uint32_t code)
{
	if (code < 256)
		return (code > 32 && code < 127) || (code > 160 && code != 173) ? (int)code : -1;
	int nth = code < 256 + 68 ? (int)code - 256 : -1;
	return nth < 33 ? nth : nth < 67 ? 127 + nth - 33 : 173;
}

/* Appends the bytes of text; false, and nothing appended, when a character is outside the alphabet. */
static bool alphabet_decode(const char *text, size_t len, struct strbuf *out)
{
	size_t start = out->len;
	for (size_t i = 0; i < len;) {
		const unsigned char *s = (const unsigned char *)text + i;
		int step = utf8_step(s, len - i);
		int byte = step > 0 ? alphabet_byte(utf8_code(s, step)) : -1;
		if (byte < 0) {
			out->len = start;
			return false;
		}
		strbuf_add(out, &(char){(char)byte}, 1);
		i += (size_t)step;
	}
	return true;
}

/* --------------------------------------------------------- building -------------------------------------------------------- */

struct tokenizer *tokenizer_new(void)
{
	struct tokenizer *t = mem_new(1, sizeof *t);
	t->pretoken = pretoken_new();
	t->bos = t->bpe.unk = -1;
	t->merges_sha = sha256_new();
	strbuf_puts(&t->bytes, ""); /* an empty token before all others points into it, too */
	return t;
}

void tokenizer_close(struct tokenizer *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_added; i++)
		free(t->added[i].text);
	char unused[SHA_LEN];
	if (t->merges_sha)
		sha256_end(t->merges_sha, unused);
	free(t->added);
	free(t->tokens);
	strbuf_free(&t->bytes);
	bytemap_free(&t->added_ids);
	bpe_free(&t->bpe);
	pretoken_free(t->pretoken);
	free(t);
}

static int token_slot(struct tokenizer *t, int64_t id, const char *text, size_t len, struct token **slot, char err[ERR_LEN])
{
	int shown = len < 60 ? (int)len : 60;
	if (id < 0 || id >= TOKENIZER_ID_MAX)
		return err_set(err, "token '%.*s' has the id %" PRId64 ", outside 0..%d", shown, text, id, TOKENIZER_ID_MAX - 1);
	if ((size_t)id >= t->cap_tokens) {
		size_t cap = 2 * (size_t)id + 256;
		t->tokens = mem_grow(t->tokens, cap, sizeof *t->tokens);
		memset(t->tokens + t->cap_tokens, 0, (cap - t->cap_tokens) * sizeof *t->tokens);
		t->cap_tokens = cap;
	}
	if ((size_t)id >= t->n_tokens)
		t->n_tokens = (size_t)id + 1;
	*slot = &t->tokens[id];
	return 0;
}

/* Appends what the token decodes to: bytes by the alphabet, or the text itself where it is not in it. */
static bool add_bytes(struct tokenizer *t, const char *text, size_t len, struct token *token)
{
	token->at = t->bytes.len;
	bool in_alphabet = alphabet_decode(text, len, &t->bytes);
	if (!in_alphabet)
		strbuf_add(&t->bytes, text, len);
	token->len = (uint32_t)(t->bytes.len - token->at);
	return in_alphabet;
}

int tokenizer_add_piece(struct tokenizer *t, int64_t id, const char *text, size_t len, enum token_kind kind, char err[ERR_LEN])
{
	struct token *token;
	if (token_slot(t, id, text, len, &token, err))
		return -1;
	if (token->kind != TOKEN_NONE)
		return err_set(err, "two tokens have the id %" PRId64, id);
	token->kind = kind;
	if (add_bytes(t, text, len, token) && kind != TOKEN_UNUSED)
		bytemap_put(&t->bpe.pieces, t->bytes.text + token->at, token->len, id);
	return 0;
}

static bool decodes_to(const struct tokenizer *t, const struct token *token, const char *text, size_t len)
{
	struct strbuf want = {0};
	if (!alphabet_decode(text, len, &want))
		strbuf_add(&want, text, len);
	bool same = token->len == want.len && (want.len == 0 || memcmp(t->bytes.text + token->at, want.text, want.len) == 0);
	strbuf_free(&want);
	return same;
}

/* Plain text never becomes a special token, even where the vocabulary holds its text as a piece. */
static void hide_piece(struct tokenizer *t, const struct token *token)
{
	const char *bytes = t->bytes.text + token->at;
	if (bytemap_get(&t->bpe.pieces, bytes, token->len))
		bytemap_put(&t->bpe.pieces, bytes, token->len, -1);
}

int tokenizer_add_added(struct tokenizer *t, const struct added *a, char err[ERR_LEN])
{
	struct token *token;
	if (token_slot(t, a->id, a->text, a->len, &token, err))
		return -1;
	if (a->len == 0)
		return err_set(err, "the added token with the id %d has no text", a->id);
	if (bytemap_get(&t->added_ids, a->text, a->len))
		return err_set(err, "two added tokens are '%.60s'", a->text);
	if (token->kind != TOKEN_NONE && !decodes_to(t, token, a->text, a->len))
		return err_set(err, "the added token '%.60s' has the id %d of another token", a->text, a->id);
	if (token->kind == TOKEN_NONE)
		add_bytes(t, a->text, a->len, token);
	token->kind = a->special ? TOKEN_SPECIAL : TOKEN_ADDED;
	if (a->special)
		hide_piece(t, token);
	bytemap_put(&t->added_ids, a->text, a->len, a->id);
	if (t->n_added == t->cap_added)
		t->added = mem_grow(t->added, t->cap_added = 2 * t->cap_added + 16, sizeof *t->added);
	t->added[t->n_added] = *a;
	t->added[t->n_added++].text = text_copy(a->text);
	return 0;
}

/* The id of a piece's bytes, -1 when there is none. */
static int32_t piece_id(const struct tokenizer *t, const struct strbuf *bytes, size_t from)
{
	const int64_t *id = bytes->len > from ? bytemap_get(&t->bpe.pieces, bytes->text + from, bytes->len - from) : NULL;
	return id ? (int32_t)*id : -1;
}

int tokenizer_add_merge(
	struct tokenizer *t, const char *left, size_t left_len, const char *right, size_t right_len, char err[ERR_LEN])
{
	struct strbuf both = {0};
	int32_t ids[3] = {-1, -1, -1}; /* left, right, both together */
	if (alphabet_decode(left, left_len, &both)) {
		size_t middle = both.len;
		ids[0] = piece_id(t, &both, 0);
		if (alphabet_decode(right, right_len, &both)) {
			ids[1] = piece_id(t, &both, middle);
			ids[2] = piece_id(t, &both, 0);
		}
	}
	strbuf_free(&both);
	if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
		return err_set(err, "merge %u, '%.*s' + '%.*s': the vocabulary lacks a part or the whole", t->n_merges,
			left_len < 60 ? (int)left_len : 60, left, right_len < 60 ? (int)right_len : 60, right);
	sha256_add(t->merges_sha, ids, sizeof ids);
	bpe_add_merge(&t->bpe, ids[0], ids[1], t->n_merges++, ids[2]);
	return 0;
}

int tokenizer_add_merge_line(struct tokenizer *t, const char *line, size_t len, char err[ERR_LEN])
{
	const char *space = memchr(line, ' ', len);
	size_t left = space ? (size_t)(space - line) : len;
	if (!space || memchr(space + 1, ' ', len - left - 1))
		return err_set(err, "merge %u, '%.*s', is not two pieces with one space between", t->n_merges,
			len < 60 ? (int)len : 60, line);
	return tokenizer_add_merge(t, line, left, space + 1, len - left - 1, err);
}

static int by_first_byte_longest(const void *x, const void *y)
{
	const struct added *a = x, *b = y;
	int first = (unsigned char)a->text[0] - (unsigned char)b->text[0];
	return first ? first : a->len != b->len ? (a->len < b->len ? 1 : -1) : a->id - b->id;
}

static void index_added(struct tokenizer *t)
{
	if (t->n_added)
		qsort(t->added, t->n_added, sizeof *t->added, by_first_byte_longest);
	size_t i = 0;
	for (int c = 0; c < 257; c++) {
		while (i < t->n_added && (unsigned char)t->added[i].text[0] < c)
			i++;
		t->added_first[c] = i;
	}
}

/* Over ids and bytes of all tokens in use, flags, added tokens, patterns and merges. The source does not count: a GGUF and a
 * tokenizer.json of one model agree, whatever padding the former has. */
static void hash_content(struct tokenizer *t)
{
	char merges[SHA_LEN];
	sha256_end(t->merges_sha, merges);
	t->merges_sha = NULL;
	struct strbuf about = {0};
	strbuf_printf(&about, "nfc %d ignore_merges %d unk %d merges %s\n", t->nfc, t->bpe.ignore_merges, t->bpe.unk, merges);
	pretoken_describe(t->pretoken, &about);
	for (size_t i = 0; i < t->n_added; i++) {
		const struct added *a = &t->added[i];
		strbuf_printf(&about, "added %d %d%d%d%d\n", a->id, a->special, a->lstrip, a->rstrip, a->normalized);
	}
	struct sha256 *sha = sha256_new();
	sha256_add(sha, about.text, about.len);
	for (size_t id = 0; id < t->n_tokens; id++) {
		const struct token *k = &t->tokens[id];
		const uint32_t head[2] = {(uint32_t)id, k->len};
		if (k->kind == TOKEN_NONE || k->kind == TOKEN_UNUSED)
			continue;
		sha256_add(sha, head, sizeof head);
		sha256_add(sha, t->bytes.text + k->at, k->len);
	}
	sha256_end(sha, t->sha);
	strbuf_free(&about);
}

int tokenizer_finish(struct tokenizer *t, char err[ERR_LEN])
{
	if (t->bpe.pieces.count == 0)
		return err_set(err, "the vocabulary is empty");
	index_added(t);
	bpe_ready(&t->bpe);
	hash_content(t);
	return 0;
}

/* -------------------------------------------------------- questions -------------------------------------------------------- */

int tokenizer_vocab(const struct tokenizer *t)
{
	return (int)t->n_tokens;
}

const char *tokenizer_sha256(const struct tokenizer *t)
{
	return t->sha;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *piece)
{
	const int64_t *id = bytemap_get(&t->added_ids, piece, strlen(piece));
	return id ? (int32_t)*id : -1;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
	return t->bos;
}

/* --------------------------------------------------------- encoding -------------------------------------------------------- */

/* A call under way. */
struct encoding {
	struct tokenizer *t;
	struct ids *out;
	bool specials;
	char *err;
};

static int encode_piece(void *to, const char *piece, size_t len, char err[ERR_LEN])
{
	const struct encoding *e = to;
	if (len >= INT32_MAX)
		return err_set(err, "a piece of %zu bytes is too long to encode", len);
	bpe_encode(&e->t->bpe, piece, len, e->out);
	return 0;
}

static int encode_pieces(struct encoding *e, const char *text, size_t len)
{
	return pretoken_split(e->t->pretoken, text, len, encode_piece, e, e->err);
}

/* The longest added token of the wanted sort at s, or NULL. */
static const struct added *added_at(const struct tokenizer *t, const char *s, size_t len, bool normalized)
{
	unsigned char c = (unsigned char)*s;
	for (size_t i = t->added_first[c]; i < t->added_first[c + 1]; i++) {
		const struct added *a = &t->added[i];
		if (a->normalized == normalized && a->len <= len && memcmp(a->text, s, a->len) == 0)
			return a;
	}
	return NULL;
}

/* Where the white space that ends at `end` begins, not before `from`. */
static size_t space_before(const char *text, size_t from, size_t end)
{
	while (end > from) {
		size_t at = end - 1;
		while (at > from && ((unsigned char)text[at] & 0xC0) == 0x80)
			at--;
		if (!utf8_is_space(utf8_code((const unsigned char *)text + at, (int)(end - at))))
			break;
		end = at;
	}
	return end;
}

static size_t space_after(const char *text, size_t at, size_t len)
{
	while (at < len) {
		const unsigned char *s = (const unsigned char *)text + at;
		int step = utf8_step(s, len - at);
		if (!utf8_is_space(utf8_code(s, step)))
			break;
		at += (size_t)step;
	}
	return at;
}

typedef int (*gap_fn)(struct encoding *e, const char *text, size_t len);

/* Cuts out the added tokens of one sort; what lies between goes to gap. */
static int cut_added(struct encoding *e, const char *text, size_t len, bool normalized, gap_fn gap)
{
	size_t done = 0;
	for (size_t at = 0; e->specials && at < len;) {
		const struct added *a = added_at(e->t, text + at, len - at, normalized);
		if (!a) {
			at++;
			continue;
		}
		size_t begin = a->lstrip ? space_before(text, done, at) : at;
		if (begin > done && gap(e, text + done, begin - done))
			return -1;
		ids_add(e->out, a->id);
		done = at = a->rstrip ? space_after(text, at + a->len, len) : at + a->len;
	}
	return done < len ? gap(e, text + done, len - done) : 0;
}

static int encode_normal(struct encoding *e, const char *text, size_t len)
{
	char *nfc = NULL;
	if (e->t->nfc && utf8_nfc(text, len, &nfc, &len, e->err))
		return -1;
	int rc = cut_added(e, nfc ? nfc : text, len, true, encode_pieces);
	free(nfc);
	return rc;
}

int tokenizer_encode(struct tokenizer *t, const char *text, size_t len, bool specials, struct ids *out, char err[ERR_LEN])
{
	struct encoding e = {t, out, specials, err};
	struct strbuf repaired = {0};
	size_t start = out->n;
	if (!utf8_valid(text, len)) {
		utf8_repair(text, len, &repaired);
		text = repaired.text;
		len = repaired.len;
	}
	int rc = cut_added(&e, text, len, false, encode_normal);
	if (rc)
		out->n = start;
	strbuf_free(&repaired);
	return rc;
}

/* --------------------------------------------------------- decoding -------------------------------------------------------- */

/* The bytes of one id; of no length for what is skipped and for ids that are no token. */
static const char *token_bytes(const struct tokenizer *t, int32_t id, bool skip_special, size_t *len)
{
	*len = 0;
	if (id < 0 || (size_t)id >= t->n_tokens)
		return "";
	const struct token *k = &t->tokens[id];
	if (k->kind == TOKEN_NONE || (skip_special && k->kind == TOKEN_SPECIAL))
		return "";
	*len = k->len;
	return t->bytes.text + k->at;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *v, size_t n, bool skip_special, struct strbuf *out)
{
	for (size_t i = 0; i < n; i++) {
		size_t len;
		const char *bytes = token_bytes(t, v[i], skip_special, &len);
		strbuf_add(out, bytes, len);
	}
}

/* Adds a byte to the held ones and lets go of what is decided: a whole character, or a U+FFFD for bytes that begin none. */
static void stream_byte(struct decode_stream *s, unsigned char byte, struct strbuf *out)
{
	s->held[s->n_held++] = byte;
	while (s->n_held > 0) {
		int step = utf8_step(s->held, (size_t)s->n_held);
		if (step == 0)
			return;
		int used = step > 0 ? step : -step;
		utf8_repair((const char *)s->held, (size_t)used, out);
		s->n_held -= used;
		memmove(s->held, s->held + used, (size_t)s->n_held);
	}
}

void tokenizer_stream(const struct tokenizer *t, struct decode_stream *s, int32_t id, bool skip_special, struct strbuf *out)
{
	size_t len;
	const char *bytes = token_bytes(t, id, skip_special, &len);
	for (size_t i = 0; i < len; i++)
		stream_byte(s, (unsigned char)bytes[i], out);
}

void tokenizer_stream_end(struct decode_stream *s, struct strbuf *out)
{
	utf8_repair((const char *)s->held, (size_t)s->n_held, out);
	s->n_held = 0;
}
