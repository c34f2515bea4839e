/* safetensors.h: reads and writes .safetensors files (the format of weights, score files, head tables, fixtures).
 *
 * Reading maps the file; the tensors point into the map. The header is hostile input: every offset, shape and size is checked
 * (overlap, overflow, holes, file end) before anything is believed. Leaves out: sharded indexes (model.c). */
#ifndef KVB_SAFETENSORS_H
#define KVB_SAFETENSORS_H

#include "harness/base/base.h"

enum { ST_DIMS = 8 };
enum st_type { ST_F64, ST_F32, ST_F16, ST_BF16, ST_I64, ST_I32, ST_U8, ST_BOOL, ST_OTHER };

struct st_tensor {
	const char *name;
	enum st_type type;
	int n_dims;
	int64_t dims[ST_DIMS];
	int64_t count;      /* product of dims */
	const void *data;   /* borrowed from the file; may be unaligned */
	size_t bytes;
};

struct st_file;
int st_open(struct st_file **out, const char *path, char err[ERR_LEN]);
/* The same over a block of memory the caller keeps (tests, fuzzing). `name` is used in messages. */
int st_open_memory(struct st_file **out, const char *name, const void *data, size_t len, char err[ERR_LEN]);
void st_unread(const struct st_file *f); /* map_unread */
void st_close(struct st_file *f);
size_t st_count(const struct st_file *f);
size_t st_bytes(const struct st_file *f); /* of the whole file */
const struct st_tensor *st_at(const struct st_file *f, size_t i);
const struct st_tensor *st_find(const struct st_file *f, const char *name); /* NULL when absent */
const char *st_metadata(const struct st_file *f, const char *key);          /* __metadata__ string or NULL */
/* n elements from element `first` on, any float type, as fp32 (zeros for a type that is not a float). */
void st_to_f32(const struct st_tensor *t, int64_t first, int64_t n, float *out);

/* Writes tensors (host memory, little-endian) and string metadata; temporary name, fsync, rename. Of a tensor it reads name,
 * type (not ST_OTHER), n_dims, dims and data; count and bytes need not be filled. */
struct st_meta {
	const char *key, *value;
};
int st_write(const char *path, const struct st_tensor *t, size_t n, const struct st_meta *meta, size_t n_meta, char err[ERR_LEN]);

#endif
