/* gguf.c: see gguf.h. A file is: "GGUF", version, counts, key/value pairs, tensor directory, padding, data. */
#include "runners/model/gguf.h"

#include <stdlib.h>

#include "runners/model/dequant.h"
#include "runners/model/mapped.h"

enum kind { K_U8, K_I8, K_U16, K_I16, K_U32, K_I32, K_F32, K_BOOL, K_TEXT, K_ARRAY, K_U64, K_I64, K_F64, N_KINDS };
static const size_t kind_bytes[N_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* 0: has no fixed size */

/* The smallest bytes a pair and a directory entry can take: they bound the counts of the header. */
enum { PAIR_MIN = 8 + 4 + 1, TENSOR_MIN = 8 + 4 + 8 + 4 + 8, ALIGNMENT = 32 };

struct entry {
	struct gguf_text key;
	enum kind kind; /* of an array: of its elements */
	bool is_array;
	uint64_t count;             /* elements; 1 for a plain value */
	const unsigned char *data;  /* first element */
	const unsigned char **text; /* K_TEXT: where each element's length lies; owned */
};

struct gguf {
	struct mapped map;
	struct entry *entries; /* by key */
	size_t n_entries;
	struct gguf_tensor *tensors; /* by name */
	size_t n_tensors;
};

#define TEXT_ARGS(t) (int)((t).len < 128 ? (t).len : 128), (t).s /* for %.*s */

/* ---- A cursor that never passes the end of the file ---- */

struct cursor {
	const unsigned char *at, *end;
};

static const unsigned char *take(struct cursor *c, uint64_t bytes)
{
	const unsigned char *p = c->at;
	if (bytes > (uint64_t)(c->end - p))
		return NULL;
	c->at += bytes;
	return p;
}

static bool take_u32(struct cursor *c, uint32_t *v)
{
	const unsigned char *p = take(c, sizeof *v);
	if (p)
		memcpy(v, p, sizeof *v);
	return p != NULL;
}

static bool take_u64(struct cursor *c, uint64_t *v)
{
	const unsigned char *p = take(c, sizeof *v);
	if (p)
		memcpy(v, p, sizeof *v);
	return p != NULL;
}

static bool take_text(struct cursor *c, struct gguf_text *t)
{
	uint64_t len;
	if (!take_u64(c, &len) || !(t->s = (const char *)take(c, len)))
		return false;
	t->len = len;
	return true;
}

/* ---- Metadata ---- */

static int by_text(struct gguf_text a, struct gguf_text b)
{
	int d = memcmp(a.s, b.s, a.len < b.len ? a.len : b.len);
	return d ? d : (a.len > b.len) - (a.len < b.len);
}

static int by_key(const void *a, const void *b)
{
	return by_text(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

/* Text elements have no fixed size: one walk notes where each begins. */
static bool take_texts(struct cursor *c, struct entry *e)
{
	struct gguf_text t;
	if (e->count > (uint64_t)(c->end - c->at) / sizeof(uint64_t))
		return false;
	e->text = mem_new(e->count, sizeof *e->text);
	for (uint64_t i = 0; i < e->count; i++) {
		e->text[i] = c->at;
		if (!take_text(c, &t))
			return false;
	}
	return true;
}

static bool take_entry(struct cursor *c, struct entry *e)
{
	uint32_t kind;
	uint64_t bytes;
	if (!take_text(c, &e->key) || !take_u32(c, &kind))
		return false;
	e->count = 1;
	if ((e->is_array = kind == K_ARRAY) && (!take_u32(c, &kind) || !take_u64(c, &e->count)))
		return false;
	if (kind >= N_KINDS || kind == K_ARRAY) /* arrays of arrays: no writer makes them */
		return false;
	e->kind = (enum kind)kind;
	if (e->kind == K_TEXT)
		return take_texts(c, e);
	return !__builtin_mul_overflow(e->count, kind_bytes[kind], &bytes) && (e->data = take(c, bytes));
}

static int parse_entries(struct gguf *g, struct cursor *c, uint64_t n, char err[ERR_LEN])
{
	if (n > (uint64_t)(c->end - c->at) / PAIR_MIN)
		return err_set(
			err, "%s: %llu metadata pairs cannot fit (truncated or not GGUF)", g->map.name, (unsigned long long)n);
	g->entries = mem_new(n, sizeof *g->entries);
	while (g->n_entries < n)
		if (!take_entry(c, &g->entries[g->n_entries++]))
			return err_set(err, "%s: metadata pair %zu of %llu is broken (truncated file?)", g->map.name,
				g->n_entries, (unsigned long long)n);
	qsort(g->entries, n, sizeof *g->entries, by_key);
	for (uint64_t i = 1; i < n; i++)
		if (!by_key(&g->entries[i - 1], &g->entries[i]))
			return err_set(err, "%s: metadata key %.*s is given twice", g->map.name, TEXT_ARGS(g->entries[i].key));
	return 0;
}

/* ---- Tensor directory ---- */

/* ggml's numbers of the types that are read, and of those that are refused by name. */
static const struct {
	uint32_t id;
	enum tensor_type type;
} known_types[] = {{0, TT_F32}, {1, TT_F16}, {30, TT_BF16}, {8, TT_Q8_0}, {2, TT_Q4_0}, {3, TT_Q4_1}, {6, TT_Q5_0}, {7, TT_Q5_1},
	{12, TT_Q4_K}, {13, TT_Q5_K}, {14, TT_Q6_K}};
static const struct {
	uint32_t id;
	const char *name;
} refused_types[] = {{10, "Q2_K"}, {11, "Q3_K"}, {15, "Q8_K"}, {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
	{20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"}, {24, "I8"}, {25, "I16"}, {26, "I32"}, {27, "I64"},
	{28, "F64"}, {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"}, {39, "MXFP4"}};

static int find_type(struct gguf_tensor *t, uint32_t id, const char *file, char err[ERR_LEN])
{
	for (size_t i = 0; i < sizeof known_types / sizeof *known_types; i++)
		if (known_types[i].id == id) {
			t->type = known_types[i].type;
			return 0;
		}
	const char *name = "unknown";
	for (size_t i = 0; i < sizeof refused_types / sizeof *refused_types; i++)
		if (refused_types[i].id == id)
			name = refused_types[i].name;
	return err_set(err, "%s: tensor %.*s has type %u (%s); read are F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K",
		file, TEXT_ARGS(t->name), id, name);
}

/* One directory entry; t->data becomes the offset, which only means something once the directory's end is known. */
static int take_tensor(struct gguf *g, struct cursor *c, struct gguf_tensor *t, char err[ERR_LEN])
{
	uint32_t n_dims, type;
	uint64_t offset;
	int64_t count = 1;
	if (!take_text(c, &t->name) || !take_u32(c, &n_dims))
		return err_set(err, "%s: the tensor directory breaks off (truncated file?)", g->map.name);
	if (n_dims < 1 || n_dims > 4)
		return err_set(err, "%s: tensor %.*s has %u dimensions", g->map.name, TEXT_ARGS(t->name), n_dims);
	t->n_dims = (int)n_dims;
	for (int d = 0; d < 4; d++) {
		uint64_t dim = 1;
		if (d < t->n_dims && !take_u64(c, &dim))
			return err_set(err, "%s: the tensor directory breaks off (truncated file?)", g->map.name);
		t->dims[d] = (int64_t)dim;
		if (t->dims[d] < 1 || __builtin_mul_overflow(count, t->dims[d], &count))
			return err_set(err, "%s: tensor %.*s has an impossible shape", g->map.name, TEXT_ARGS(t->name));
	}
	if (!take_u32(c, &type) || !take_u64(c, &offset))
		return err_set(err, "%s: the tensor directory breaks off (truncated file?)", g->map.name);
	if (find_type(t, type, g->map.name, err))
		return -1;
	if (t->dims[0] % tensor_type_block(t->type) || count > INT64_MAX / 8)
		return err_set(err, "%s: tensor %.*s: rows of %lld elements are no whole %s blocks", g->map.name,
			TEXT_ARGS(t->name), (long long)t->dims[0], tensor_type_name(t->type));
	t->bytes = tensor_type_bytes(t->type, count);
	t->data = (const void *)(uintptr_t)offset;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const uintptr_t p = (uintptr_t)((const struct gguf_tensor *)a)->data,
			q = (uintptr_t)((const struct gguf_tensor *)b)->data;
	return (p > q) - (p < q);
}

static int by_name(const void *a, const void *b)
{
	return by_text(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

/* Turns offsets into addresses: inside the file, aligned, apart from each other, each name once. */
static int place_tensors(struct gguf *g, uint64_t data_at, uint64_t alignment, char err[ERR_LEN])
{
	const uint64_t len = g->map.len > data_at ? g->map.len - data_at : 0;
	uint64_t last_end = 0;
	qsort(g->tensors, g->n_tensors, sizeof *g->tensors, by_place);
	for (size_t i = 0; i < g->n_tensors; i++) {
		struct gguf_tensor *t = &g->tensors[i];
		const uint64_t offset = (uintptr_t)t->data;
		if (offset > len || t->bytes > len - offset)
			return err_set(err, "%s: tensor %.*s ends behind the end of the file (truncated file?)", g->map.name,
				TEXT_ARGS(t->name));
		if (offset % alignment || offset < last_end)
			return err_set(err, "%s: tensor %.*s %s", g->map.name, TEXT_ARGS(t->name),
				offset < last_end ? "overlaps another tensor" : "is not aligned");
		last_end = offset + t->bytes;
		t->data = g->map.data + data_at + offset;
	}
	qsort(g->tensors, g->n_tensors, sizeof *g->tensors, by_name);
	for (size_t i = 1; i < g->n_tensors; i++)
		if (!by_name(&g->tensors[i - 1], &g->tensors[i]))
			return err_set(err, "%s: tensor %.*s is there twice", g->map.name, TEXT_ARGS(g->tensors[i].name));
	return 0;
}

static int parse_tensors(struct gguf *g, struct cursor *c, uint64_t n, char err[ERR_LEN])
{
	int64_t alignment = ALIGNMENT;
	if (n > (uint64_t)(c->end - c->at) / TENSOR_MIN)
		return err_set(err, "%s: %llu tensors cannot fit (truncated file?)", g->map.name, (unsigned long long)n);
	gguf_int(g, "general.alignment", &alignment);
	if (alignment < 1 || alignment > 1 << 20 || (alignment & (alignment - 1)))
		return err_set(err, "%s: general.alignment is %lld", g->map.name, (long long)alignment);
	g->tensors = mem_new(n, sizeof *g->tensors);
	while (g->n_tensors < n)
		if (take_tensor(g, c, &g->tensors[g->n_tensors++], err))
			return -1;
	uint64_t data_at = (uint64_t)(c->at - g->map.data);
	data_at += (uint64_t)(-data_at & (uint64_t)(alignment - 1));
	return place_tensors(g, data_at, (uint64_t)alignment, err);
}

/* ---- Opening ---- */

static int parse_file(struct gguf *g, char err[ERR_LEN])
{
	struct cursor c = {g->map.data, g->map.data + g->map.len};
	const unsigned char *magic = take(&c, 4);
	uint32_t version;
	uint64_t n_tensors, n_entries;
	if (!magic || memcmp(magic, "GGUF", 4))
		return err_set(err, "%s is not a GGUF file", g->map.name);
	if (!take_u32(&c, &version) || !take_u64(&c, &n_tensors) || !take_u64(&c, &n_entries))
		return err_set(err, "%s: truncated header", g->map.name);
	if (version != 2 && version != 3)
		return err_set(err, "%s: GGUF version %u; read are 2 and 3 (little-endian)", g->map.name, version);
	if (parse_entries(g, &c, n_entries, err))
		return -1;
	return parse_tensors(g, &c, n_tensors, err);
}

static int parse(struct gguf **out, struct gguf *g, char err[ERR_LEN])
{
	if (parse_file(g, err)) {
		gguf_close(g);
		return -1;
	}
	*out = g;
	return 0;
}

int gguf_open(struct gguf **out, const char *path, char err[ERR_LEN])
{
	struct gguf *g = mem_new(1, sizeof *g);
	if (map_file(&g->map, path, err)) {
		gguf_close(g);
		return -1;
	}
	return parse(out, g, err);
}

int gguf_open_memory(struct gguf **out, const char *name, const void *data, size_t len, char err[ERR_LEN])
{
	struct gguf *g = mem_new(1, sizeof *g);
	map_memory(&g->map, name, data, len);
	return parse(out, g, err);
}

void gguf_unread(const struct gguf *g)
{
	map_unread(&g->map);
}

void gguf_close(struct gguf *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->n_entries; i++)
		free(g->entries[i].text);
	free(g->entries);
	free(g->tensors);
	map_close(&g->map);
	free(g);
}

const char *gguf_name(const struct gguf *g)
{
	return g->map.name;
}

size_t gguf_bytes(const struct gguf *g)
{
	return g->map.len;
}

/* ---- Looking things up ---- */

static const struct entry *find(const struct gguf *g, const char *key, bool is_array)
{
	const struct entry wanted = {.key = {key, strlen(key)}};
	const struct entry *e = bsearch(&wanted, g->entries, g->n_entries, sizeof *g->entries, by_key);
	return e && e->is_array == is_array ? e : NULL;
}

#define LOAD(type, p)                                                                                                            \
	__extension__({                                                                                                          \
		type v_;                                                                                                         \
		memcpy(&v_, p, sizeof v_);                                                                                       \
		v_;                                                                                                              \
	})

static bool load_int(const struct entry *e, uint64_t i, int64_t *v)
{
	const unsigned char *p = e->kind == K_TEXT ? NULL : e->data + i * kind_bytes[e->kind];
	switch (e->kind) {
	case K_U8:
		*v = *p;
		return true;
	case K_I8:
		*v = (int8_t)*p;
		return true;
	case K_U16:
		*v = LOAD(uint16_t, p);
		return true;
	case K_I16:
		*v = LOAD(int16_t, p);
		return true;
	case K_U32:
		*v = LOAD(uint32_t, p);
		return true;
	case K_I32:
		*v = LOAD(int32_t, p);
		return true;
	case K_U64:
	case K_I64:
		*v = LOAD(int64_t, p);
		return e->kind == K_I64 || *v >= 0;
	default:
		return false;
	}
}

bool gguf_int(const struct gguf *g, const char *key, int64_t *v)
{
	const struct entry *e = find(g, key, false);
	int64_t x;
	if (!e || !load_int(e, 0, &x))
		return false;
	*v = x;
	return true;
}

bool gguf_float(const struct gguf *g, const char *key, double *v)
{
	const struct entry *e = find(g, key, false);
	if (!e || (e->kind != K_F32 && e->kind != K_F64))
		return false;
	*v = e->kind == K_F32 ? (double)LOAD(float, e->data) : LOAD(double, e->data);
	return true;
}

bool gguf_bool(const struct gguf *g, const char *key, bool *v)
{
	const struct entry *e = find(g, key, false);
	if (!e || e->kind != K_BOOL)
		return false;
	*v = *e->data != 0;
	return true;
}

static void load_text(const unsigned char *p, struct gguf_text *v)
{
	*v = (struct gguf_text){(const char *)p + sizeof(uint64_t), LOAD(uint64_t, p)};
}

bool gguf_str(const struct gguf *g, const char *key, struct gguf_text *v)
{
	const struct entry *e = find(g, key, false);
	if (!e || e->kind != K_TEXT)
		return false;
	load_text(e->text[0], v);
	return true;
}

bool gguf_array(const struct gguf *g, const char *key, size_t *count)
{
	const struct entry *e = find(g, key, true);
	if (!e)
		return false;
	*count = e->count;
	return true;
}

bool gguf_array_text(const struct gguf *g, const char *key, size_t i, struct gguf_text *v)
{
	const struct entry *e = find(g, key, true);
	if (!e || e->kind != K_TEXT || i >= e->count)
		return false;
	load_text(e->text[i], v);
	return true;
}

bool gguf_array_int(const struct gguf *g, const char *key, size_t i, int64_t *v)
{
	const struct entry *e = find(g, key, true);
	return e && i < e->count && load_int(e, i, v);
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
	const struct gguf_tensor wanted = {.name = {name, strlen(name)}};
	return bsearch(&wanted, g->tensors, g->n_tensors, sizeof *g->tensors, by_name);
}

size_t gguf_tensors(const struct gguf *g)
{
	return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
	return &g->tensors[i];
}
