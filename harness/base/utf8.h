/* utf8.h: characters of UTF-8: stepping, repair of invalid bytes, white space. Leaves out what needs tables (runners/model/nfc.h, tasks/metrics). */
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

#endif
