/* json_bytes.h: text of any bytes as a JSON string. */
#ifndef KVB_JSON_BYTES_H
#define KVB_JSON_BYTES_H

#include <jansson.h>

/* jansson makes no string of bytes that are not UTF-8 (a file's name, a message cut inside a character), and what was to hold it
 * is lost: each invalid part becomes U+FFFD (utf8_repair). New reference, never NULL. */
json_t *json_bytes(const char *s);

#endif
