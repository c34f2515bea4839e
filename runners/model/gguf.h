/* gguf.h: reads GGUF v3 (and v2): metadata and the tensor directory. The file is mapped; everything points into the map.
 * Hostile input: counts, lengths, offsets, alignment and type ids are checked against the file's size before use. */
#ifndef KVB_GGUF_H
#define KVB_GGUF_H

#include "harness/base/base.h"
#include "runners/model/model.h"

struct gguf_text { /* not NUL-terminated */
	const char *s;
	size_t len;
};
struct gguf_tensor {
	struct gguf_text name;
	enum tensor_type type;
	int n_dims;
	int64_t dims[4];      /* dims[0] is the fastest (columns) */
	const void *data;
	size_t bytes;
};

struct gguf;
int gguf_open(struct gguf **out, const char *path, char err[ERR_LEN]);
int gguf_open_memory(struct gguf **out, const char *name, const void *data, size_t len, char err[ERR_LEN]); /* tests, fuzzing */
void gguf_unread(const struct gguf *g); /* map_unread */
void gguf_close(struct gguf *g);
const char *gguf_name(const struct gguf *g);  /* the path, for messages */
size_t gguf_bytes(const struct gguf *g);      /* of the whole file */

/* Metadata by key; false when absent or of another kind. Integers of any width widen to int64. */
bool gguf_int(const struct gguf *g, const char *key, int64_t *v);
bool gguf_float(const struct gguf *g, const char *key, double *v);
bool gguf_bool(const struct gguf *g, const char *key, bool *v);
bool gguf_str(const struct gguf *g, const char *key, struct gguf_text *v);
/* Arrays: count, then element i. */
bool gguf_array(const struct gguf *g, const char *key, size_t *count);
bool gguf_array_text(const struct gguf *g, const char *key, size_t i, struct gguf_text *v);
bool gguf_array_int(const struct gguf *g, const char *key, size_t i, int64_t *v);
/* random access to string arrays is O(1): an offset table is built when the file is opened */

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name); /* NULL when absent */
size_t gguf_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i); /* in the order of names */

/* One row-block of any of the eleven types to fp32; n elements, a multiple of the type's block. */
void dequantise(enum tensor_type type, const void *src, int64_t n, float *out);
size_t tensor_type_bytes(enum tensor_type type, int64_t n); /* bytes of n elements */
int tensor_type_block(enum tensor_type type);               /* elements a block */

#endif
