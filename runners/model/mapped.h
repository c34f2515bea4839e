/* mapped.h: a whole file, read-only in memory. Private to runners/model. */
#ifndef KVB_MAPPED_H
#define KVB_MAPPED_H

#include "harness/base/base.h"

struct mapped {
	char *name;                /* the path, for messages; owned */
	const unsigned char *data; /* len bytes */
	size_t len;
	bool owned; /* data is a mapping of ours; false: the caller's memory */
};

/* Maps a file; an empty one, a folder or one that cannot be read is an error. *m is filled only on success. */
int map_file(struct mapped *m, const char *path, char err[ERR_LEN]);
/* The same over the caller's memory, which must outlive m. */
void map_memory(struct mapped *m, const char *name, const void *data, size_t len);
/* Gives the pages read so far back to the system; they are read again when needed. Nothing for the caller's memory. */
void map_unread(const struct mapped *m);
void map_close(struct mapped *m); /* zeroed is fine */

#endif
