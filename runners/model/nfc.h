/* nfc.h: the normal form that some tokenizers want their text in. */
#ifndef KVB_NFC_H
#define KVB_NFC_H

#include "harness/base/base.h"

/* NFC of valid UTF-8. *out stays NULL when s is in NFC by a quick check; else it is fresh memory that the caller frees. */
int utf8_nfc(const char *s, size_t n, char **out, size_t *out_len, char err[ERR_LEN]);

#endif
