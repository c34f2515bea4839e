/* pretoken.h: cuts text into the pieces that BPE works on, by the model's own regular expressions.
 *
 * Every pre-tokenizer we know (Split, Digits, ByteLevel's regex) is one pattern whose matches, and the text between them,
 * become pieces; a Sequence is a list of them, each cutting the pieces of the one before. Owns the compiled patterns. */
#ifndef KVB_PRETOKEN_H
#define KVB_PRETOKEN_H

#include "harness/base/base.h"

extern const char PATTERN_GPT2[]; /* ByteLevel with use_regex */
extern const char PATTERN_LLAMA3[];
extern const char PATTERN_QWEN2[];
extern const char PATTERN_DIGIT[];  /* Digits, individual */
extern const char PATTERN_DIGITS[]; /* Digits, runs */

struct pretoken;
struct pretoken *pretoken_new(void);
/* Adds a step. The pattern is in the reference's dialect (Oniguruma, Ruby syntax); syntax outside a tested list is refused.
 * keep_gaps = false: only matches become pieces (Split "Removed" with invert). */
int pretoken_add(struct pretoken *p, const char *pattern, bool keep_gaps, char err[ERR_LEN]);
/* Appends one line a step: equal text, equal cuts. */
void pretoken_describe(const struct pretoken *p, struct strbuf *out);

/* Calls fn for each piece of valid UTF-8, in order; text of no length has none. Stops at the first fn that returns non-zero. */
typedef int (*piece_fn)(void *to, const char *piece, size_t len, char err[ERR_LEN]);
int pretoken_split(struct pretoken *p, const char *text, size_t len, piece_fn fn, void *to, char err[ERR_LEN]);
void pretoken_free(struct pretoken *p); /* NULL is fine */

/* The same pattern in PCRE2's dialect, appended to out. Used by pretoken_add; here for tests. */
int pattern_rewrite(const char *pattern, struct strbuf *out, char err[ERR_LEN]);

#endif
