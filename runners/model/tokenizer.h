/* tokenizer.h: byte-level BPE from tokenizer.json or GGUF metadata: text to ids and back.
 *
 * Owns: vocabulary, merges, compiled pre-tokenizer patterns, a cache of pieces. Leaves out: chat templates (chat.h); it never
 * adds BOS or any special token by itself. Thread-safe for encode with one caller at a time an instance. */
#ifndef KVB_TOKENIZER_H
#define KVB_TOKENIZER_H

#include "harness/base/base.h"

struct ids { /* a growing list of token ids; zero-initialised is empty */
	int32_t *v;
	size_t n, cap;
};
void ids_add(struct ids *a, int32_t id);
void ids_append(struct ids *a, const int32_t *v, size_t n);
void ids_free(struct ids *a);

struct tokenizer;
struct gguf;
int tokenizer_open_json(struct tokenizer **out, const char *path, char err[ERR_LEN]);
/* The same from memory; name stands for the path in messages. */
int tokenizer_open_memory(struct tokenizer **out, const char *name, const char *json, size_t len, char err[ERR_LEN]);
int tokenizer_open_gguf(struct tokenizer **out, const struct gguf *g, char err[ERR_LEN]);
void tokenizer_close(struct tokenizer *t);

int tokenizer_vocab(const struct tokenizer *t); /* highest id + 1 */
/* SHA-256 over the content that decides ids (vocabulary, merges, patterns, added tokens): equal for two models of a family. */
const char *tokenizer_sha256(const struct tokenizer *t);
int32_t tokenizer_id(const struct tokenizer *t, const char *piece); /* id of a special/added token's text, -1 when none */
/* The id that the reference puts in front of plain text (post_processor, tokenizer.ggml.add_bos_token), -1 when it puts none.
 * Encoding never does: chat templates spell their BOS, and only the raw template asks for this one. */
int32_t tokenizer_bos(const struct tokenizer *t);

/* Appends the ids of text (valid UTF-8; invalid bytes become U+FFFD first, as the reference does). With specials = true, added
 * tokens met in the text become their ids (as Hugging Face encodes by default); with false they are plain text. */
int tokenizer_encode(struct tokenizer *t, const char *text, size_t len, bool specials, struct ids *out, char err[ERR_LEN]);
/* Appends the bytes of ids; special tokens are left out when skip_special. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *v, size_t n, bool skip_special, struct strbuf *out);
/* Streaming: feed one id, get the longest run of complete UTF-8 so far; incomplete bytes wait in the stream. */
struct decode_stream {
	unsigned char held[8];
	int n_held;
};
void tokenizer_stream(const struct tokenizer *t, struct decode_stream *s, int32_t id, bool skip_special, struct strbuf *out);
void tokenizer_stream_end(struct decode_stream *s, struct strbuf *out); /* what is left becomes U+FFFD */

#endif
