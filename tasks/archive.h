/* archive.h: one file out of a zip archive. */
#ifndef KVB_ARCHIVE_H
#define KVB_ARCHIVE_H

#include "harness/base/base.h"

/* The whole file `name` of the archive, a NUL behind it; without one, the file `other` (NULL = none). The caller frees it. */
int archive_read(const char *path, const char *name, const char *other, char **data, size_t *len, char err[ERR_LEN]);

#endif
