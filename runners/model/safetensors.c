/* safetensors.c: see safetensors.h. A file is: header length (uint64), header (JSON), data. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runners/model/dequant.h"
#include "runners/model/mapped.h"
#include "runners/model/safetensors.h"

/* The format's own limit on the header: more is an absurd length, not a big model. */
enum { HEADER_MAX = 100 << 20 };

static const struct {
	const char *name;
	enum st_type type;
	size_t bytes;
} types[] = {{"F32", ST_F32, 4}, {"F16", ST_F16, 2}, {"BF16", ST_BF16, 2}, {"F64", ST_F64, 8}, {"I64", ST_I64, 8},
	{"I32", ST_I32, 4}, {"U8", ST_U8, 1}, {"BOOL", ST_BOOL, 1}, {"I16", ST_OTHER, 2}, {"I8", ST_OTHER, 1},
	{"U16", ST_OTHER, 2}, {"U32", ST_OTHER, 4}, {"U64", ST_OTHER, 8}, {"F8_E4M3", ST_OTHER, 1}, {"F8_E5M2", ST_OTHER, 1}};
enum { N_TYPES = sizeof types / sizeof *types };

struct st_file {
	struct mapped map;
	json_t *header;            /* owns every name and metadata string */
	struct st_tensor *tensors; /* by name */
	size_t n;
};

/* ---- Reading ---- */

static int parse_header(struct st_file *f, size_t *data_at, char err[ERR_LEN])
{
	uint64_t len;
	if (f->map.len < sizeof len)
		return err_set(err, "%s: %zu bytes are too few for a safetensors file", f->map.name, f->map.len);
	memcpy(&len, f->map.data, sizeof len);
	if (len > f->map.len - sizeof len || len > HEADER_MAX)
		return err_set(err, "%s: header length %llu, but the file has %zu bytes (truncated, or not a safetensors file)",
			f->map.name, (unsigned long long)len, f->map.len);
	json_error_t e;
	f->header = json_loadb((const char *)f->map.data + sizeof len, len, JSON_REJECT_DUPLICATES, &e);
	if (!json_is_object(f->header))
		return err_set(err, "%s: the header is not a JSON object: %s", f->map.name, f->header ? "another value" : e.text);
	*data_at = sizeof len + len;
	return 0;
}

static int parse_type(struct st_tensor *t, const json_t *spec, size_t *element, const char *file, char err[ERR_LEN])
{
	const char *name = json_string_value(json_object_get(spec, "dtype"));
	for (size_t i = 0; name && i < N_TYPES; i++)
		if (!strcmp(types[i].name, name)) {
			t->type = types[i].type;
			*element = types[i].bytes;
			return 0;
		}
	return err_set(err, "%s: tensor %s has dtype %s, which is not known", file, t->name, name ? name : "(none)");
}

static int parse_shape(struct st_tensor *t, const json_t *spec, const char *file, char err[ERR_LEN])
{
	const json_t *shape = json_object_get(spec, "shape");
	const size_t n = json_array_size(shape);
	if (!json_is_array(shape) || n > ST_DIMS)
		return err_set(err, "%s: tensor %s has no shape of at most %d dimensions", file, t->name, ST_DIMS);
	t->n_dims = (int)n;
	t->count = 1;
	for (size_t i = 0; i < n; i++) {
		const json_t *d = json_array_get(shape, i);
		t->dims[i] = json_integer_value(d);
		if (!json_is_integer(d) || t->dims[i] < 0 || __builtin_mul_overflow(t->count, t->dims[i], &t->count))
			return err_set(err, "%s: tensor %s has an impossible shape", file, t->name);
	}
	return 0;
}

static int parse_range(struct st_tensor *t, const json_t *spec, size_t element, const unsigned char *data, size_t len,
	const char *file, char err[ERR_LEN])
{
	const json_t *range = json_object_get(spec, "data_offsets");
	const json_t *first = json_array_get(range, 0), *last = json_array_get(range, 1);
	const json_int_t begin = json_integer_value(first), end = json_integer_value(last);
	if (json_array_size(range) != 2 || !json_is_integer(first) || !json_is_integer(last) || begin < 0 || end < begin)
		return err_set(err, "%s: tensor %s has no data_offsets [begin, end]", file, t->name);
	if ((uint64_t)end > len)
		return err_set(err, "%s: tensor %s ends at byte %lld of %zu bytes of data (truncated file?)", file, t->name,
			(long long)end, len);
	size_t want;
	t->bytes = (size_t)(end - begin);
	if (__builtin_mul_overflow((size_t)t->count, element, &want) || want != t->bytes)
		return err_set(err, "%s: tensor %s has %zu bytes of data, but its shape needs %lld x %zu", file, t->name,
			t->bytes, (long long)t->count, element);
	t->data = data + begin;
	return 0;
}

static int parse_tensors(struct st_file *f, size_t data_at, char err[ERR_LEN])
{
	const char *name;
	json_t *spec;
	f->tensors = mem_new(json_object_size(f->header), sizeof *f->tensors);
	json_object_foreach(f->header, name, spec)
	{
		if (!strcmp(name, "__metadata__"))
			continue;
		struct st_tensor *t = &f->tensors[f->n++];
		size_t element = 0;
		t->name = name;
		if (parse_type(t, spec, &element, f->map.name, err) || parse_shape(t, spec, f->map.name, err) ||
			parse_range(t, spec, element, f->map.data + data_at, f->map.len - data_at, f->map.name, err))
			return -1;
	}
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	const uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
	return p != q ? (p > q) - (p < q) : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* The data must be covered once, from its first byte to its last, as the format demands. */
static int check_cover(struct st_file *f, size_t data_at, char err[ERR_LEN])
{
	const unsigned char *at = f->map.data + data_at;
	qsort(f->tensors, f->n, sizeof *f->tensors, by_place);
	for (size_t i = 0; i < f->n; i++) {
		const struct st_tensor *t = &f->tensors[i];
		if ((const unsigned char *)t->data != at)
			return err_set(err, "%s: tensor %s %s", f->map.name, t->name,
				(const unsigned char *)t->data < at ? "overlaps another tensor"
								    : "lies behind a hole in the data");
		at += t->bytes;
	}
	if (at != f->map.data + f->map.len)
		return err_set(err, "%s: %zu bytes after the last tensor", f->map.name, (size_t)(f->map.data + f->map.len - at));
	qsort(f->tensors, f->n, sizeof *f->tensors, by_name);
	return 0;
}

/* Parses what f->map holds; frees everything on failure. */
static int parse(struct st_file **out, struct st_file *f, char err[ERR_LEN])
{
	size_t data_at = 0;
	if (parse_header(f, &data_at, err) || parse_tensors(f, data_at, err) || check_cover(f, data_at, err)) {
		st_close(f);
		return -1;
	}
	*out = f;
	return 0;
}

int st_open(struct st_file **out, const char *path, char err[ERR_LEN])
{
	struct st_file *f = mem_new(1, sizeof *f);
	if (map_file(&f->map, path, err)) {
		st_close(f);
		return -1;
	}
	return parse(out, f, err);
}

int st_open_memory(struct st_file **out, const char *name, const void *data, size_t len, char err[ERR_LEN])
{
	struct st_file *f = mem_new(1, sizeof *f);
	map_memory(&f->map, name, data, len);
	return parse(out, f, err);
}

void st_unread(const struct st_file *f)
{
	map_unread(&f->map);
}

void st_close(struct st_file *f)
{
	if (!f)
		return;
	map_close(&f->map);
	json_decref(f->header);
	free(f->tensors);
	free(f);
}

size_t st_count(const struct st_file *f)
{
	return f->n;
}

size_t st_bytes(const struct st_file *f)
{
	return f->map.len;
}

const struct st_tensor *st_at(const struct st_file *f, size_t i)
{
	return &f->tensors[i];
}

const struct st_tensor *st_find(const struct st_file *f, const char *name)
{
	const struct st_tensor key = {.name = name};
	return bsearch(&key, f->tensors, f->n, sizeof *f->tensors, by_name);
}

const char *st_metadata(const struct st_file *f, const char *key)
{
	return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}

void st_to_f32(const struct st_tensor *t, int64_t first, int64_t n, float *out)
{
	const char *data = t->data;
	switch (t->type) {
	case ST_F32:
		dequantise(TT_F32, data + first * 4, n, out);
		break;
	case ST_F16:
		dequantise(TT_F16, data + first * 2, n, out);
		break;
	case ST_BF16:
		dequantise(TT_BF16, data + first * 2, n, out);
		break;
	case ST_F64:
		for (int64_t i = 0; i < n; i++) {
			double v;
			memcpy(&v, data + (first + i) * 8, sizeof v);
			out[i] = (float)v;
		}
		break;
	default:
		memset(out, 0, (size_t)n * sizeof *out);
	}
}

/* ---- Writing ---- */

static size_t type_index(enum st_type type)
{
	size_t i = 0;
	while (i < N_TYPES && (types[i].type != type || type == ST_OTHER))
		i++;
	return i;
}

/* Bytes of a tensor by its type and dims, not by what its other fields say. */
static size_t tensor_bytes(const struct st_tensor *t)
{
	size_t bytes = types[type_index(t->type)].bytes;
	for (int d = 0; d < t->n_dims; d++)
		bytes *= (size_t)t->dims[d];
	return bytes;
}

static json_t *tensor_spec(const struct st_tensor *t, size_t begin)
{
	json_t *shape = json_array();
	for (int d = 0; d < t->n_dims; d++)
		json_array_append_new(shape, json_integer(t->dims[d]));
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", types[type_index(t->type)].name, "shape", shape, "data_offsets",
		(json_int_t)begin, (json_int_t)(begin + tensor_bytes(t)));
}

/* The header's text, padded with blanks so that the data starts at a multiple of 8 bytes; NULL on bad names. Caller frees. */
static char *make_header(const struct st_tensor *t, size_t n, const struct st_meta *meta, size_t n_meta)
{
	json_t *root = json_object(), *strings = json_object();
	size_t begin = 0;
	int bad = 0;
	for (size_t i = 0; i < n_meta; i++)
		bad |= json_object_set_new(strings, meta[i].key, json_string(meta[i].value));
	if (n_meta)
		json_object_set(root, "__metadata__", strings);
	for (size_t i = 0; i < n; i++) {
		bad |= json_object_get(root, t[i].name) != NULL;
		bad |= json_object_set_new(root, t[i].name, tensor_spec(&t[i], begin));
		begin += tensor_bytes(&t[i]);
	}
	char *text = bad ? NULL : json_dumps(root, JSON_COMPACT);
	json_decref(strings);
	json_decref(root);
	if (!text)
		return NULL;
	char *padded = text_format("%-*s", (int)((strlen(text) + 7) / 8 * 8), text);
	free(text);
	return padded;
}

static int write_all(FILE *file, const struct st_tensor *t, size_t n, const char *header)
{
	const uint64_t len = strlen(header);
	bool ok = fwrite(&len, sizeof len, 1, file) == 1 && fwrite(header, 1, len, file) == len;
	for (size_t i = 0; ok && i < n; i++) {
		const size_t bytes = tensor_bytes(&t[i]);
		ok = !bytes || fwrite(t[i].data, 1, bytes, file) == bytes;
	}
	return ok && fflush(file) == 0 && fsync(fileno(file)) == 0 ? 0 : -1;
}

int st_write(const char *path, const struct st_tensor *t, size_t n, const struct st_meta *meta, size_t n_meta, char err[ERR_LEN])
{
	for (size_t i = 0; i < n; i++)
		if (type_index(t[i].type) == N_TYPES)
			return err_set(err, "cannot write %s: tensor %s has no type that can be written", path, t[i].name);
	if (file_check_place(path, err))
		return -1;
	char *header = make_header(t, n, meta, n_meta);
	if (!header)
		return err_set(err, "cannot write %s: a name is given twice or is not UTF-8", path);
	char *part = text_format("%s.part%ld", path, (long)getpid());
	FILE *file = fopen(part, "wb");
	int rc = file ? write_all(file, t, n, header) : -1;
	if (file)
		rc |= fclose(file);
	if (rc == 0)
		rc = rename(part, path);
	if (rc != 0) {
		err_set(err, "cannot write %s: %s", path, strerror(errno));
		if (file)
			unlink(part);
	}
	free(part);
	free(header);
	return rc == 0 ? 0 : -1;
}
