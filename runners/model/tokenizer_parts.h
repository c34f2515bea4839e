/* tokenizer_parts.h: inside the tokenizer: what its sources (tokenizer_json.c, tokenizer_gguf.c) fill and tokenizer.c runs.
 *
 * A source makes an instance, adds pieces, added tokens, merges and pre-tokenizer steps, and finishes it. Every
 * function that can refuse names the offending id, text or index; the source puts the file's name in front. */
#ifndef KVB_TOKENIZER_PARTS_H
#define KVB_TOKENIZER_PARTS_H

#include "runners/model/bpe.h"
#include "runners/model/pretoken.h"

/* An absurd id in a damaged file must not ask for gigabytes; the largest vocabulary we know has 262,144. */
enum { TOKENIZER_ID_MAX = 1 << 20 };

enum token_kind {
	TOKEN_NONE,    /* a hole in the ids */
	TOKEN_PIECE,   /* BPE makes it */
	TOKEN_ADDED,   /* found in the text before BPE */
	TOKEN_SPECIAL, /* the same, and left out when decoding with skip_special */
	TOKEN_UNUSED,  /* a GGUF's padding of the vocabulary */
};

struct token { /* what an id decodes to: bytes [at, at + len) of tokenizer.bytes */
	size_t at;
	uint32_t len;
	enum token_kind kind;
};

struct added {
	char *text;
	size_t len;
	int32_t id;
	bool special;
	bool lstrip, rstrip; /* takes the white space before/after it along */
	bool normalized;     /* looked for after NFC instead of before */
};

struct tokenizer {
	struct token *tokens;
	size_t n_tokens, cap_tokens;
	struct strbuf bytes;
	struct added *added; /* sorted: first byte, then the longest first */
	size_t n_added, cap_added;
	size_t added_first[257]; /* added[added_first[c] .. added_first[c + 1]) start with byte c */
	struct bytemap added_ids;
	struct bpe bpe;
	struct pretoken *pretoken;
	bool nfc;
	int32_t bos; /* see tokenizer_bos */
	uint32_t n_merges;
	struct sha256 *merges_sha; /* running, until tokenizer_finish */
	char sha[SHA_LEN];
};

struct tokenizer *tokenizer_new(void);
/* A vocabulary entry in GPT-2's byte alphabet, where each byte is a printable character. */
int tokenizer_add_piece(struct tokenizer *t, int64_t id, const char *text, size_t len, enum token_kind kind, char err[ERR_LEN]);
/* a.text is copied. The id may be new, or one that the vocabulary has for the same text. */
int tokenizer_add_added(struct tokenizer *t, const struct added *a, char err[ERR_LEN]);
/* The next merge in rank, its parts in the byte alphabet. */
int tokenizer_add_merge(
	struct tokenizer *t, const char *left, size_t left_len, const char *right, size_t right_len, char err[ERR_LEN]);
/* The same from one text "left right". */
int tokenizer_add_merge_line(struct tokenizer *t, const char *line, size_t len, char err[ERR_LEN]);
int tokenizer_finish(struct tokenizer *t, char err[ERR_LEN]);

#endif
