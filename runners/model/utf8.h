/* utf8.h: the little Unicode a tokenizer needs: stepping, repair of invalid bytes, white space, NFC. */
#ifndef KVB_UTF8_H
#define KVB_UTF8_H

#include "harness/base/base.h"

/* One step over the n > 0 bytes at s: the length of a whole character; 0 when the bytes begin one and end too early;
 * -k when the first k bytes begin none (Unicode's "maximal subpart": they become one U+FFFD, as in Python and Rust). */
int utf8_step(const unsigned char *s, size_t n);
bool utf8_valid(const char *s, size_t n);
/* Appends s with every invalid part as U+FFFD. */
void utf8_repair(const char *s, size_t n, struct strbuf *out);
/* The whole character at s, whose length utf8_step gave. */
uint32_t utf8_code(const unsigned char *s, int len);
/* The property White_Space. */
bool utf8_is_space(uint32_t code);

/* NFC of valid UTF-8. *out stays NULL when s is in NFC by a quick check; else it is fresh memory that the caller frees. */
int utf8_nfc(const char *s, size_t n, char **out, size_t *out_len, char err[ERR_LEN]);

#endif
