/* inputs.h: what the tests of runners/model share: GGUF files put together in memory, scratch folders, the shared folder. */
#ifndef KVB_TEST_MODEL_INPUTS_H
#define KVB_TEST_MODEL_INPUTS_H

#include <unistd.h>

#include "tests/unit/test.h"

/* ---- A GGUF file in the making: metadata pairs, tensor directory, data; numbers are the format's own. ---- */

enum { GGUF_UINT32 = 4, GGUF_FLOAT32 = 6, GGUF_STRING = 8, GGUF_ARRAY = 9, GGUF_INT32 = 5 };

struct gguf_draft {
	struct strbuf pairs, directory, data;
	uint64_t n_pairs, n_tensors;
};

static inline void put_u32(struct strbuf *b, uint32_t v)
{
	strbuf_add(b, (const char *)&v, sizeof v);
}

static inline void put_u64(struct strbuf *b, uint64_t v)
{
	strbuf_add(b, (const char *)&v, sizeof v);
}

static inline void put_text(struct strbuf *b, const char *s)
{
	put_u64(b, strlen(s));
	strbuf_puts(b, s);
}

static inline void draft_key(struct gguf_draft *d, const char *key, uint32_t kind)
{
	put_text(&d->pairs, key);
	put_u32(&d->pairs, kind);
	d->n_pairs++;
}

static inline void draft_u32(struct gguf_draft *d, const char *key, uint32_t v)
{
	draft_key(d, key, GGUF_UINT32);
	put_u32(&d->pairs, v);
}

static inline void draft_f32(struct gguf_draft *d, const char *key, float v)
{
	draft_key(d, key, GGUF_FLOAT32);
	strbuf_add(&d->pairs, (const char *)&v, sizeof v);
}

static inline void draft_str(struct gguf_draft *d, const char *key, const char *v)
{
	draft_key(d, key, GGUF_STRING);
	put_text(&d->pairs, v);
}

/* rows = 0: a vector. The data goes to the next multiple of 32. */
static inline void draft_tensor(
	struct gguf_draft *d, const char *name, uint32_t type, uint64_t rows, uint64_t cols, const void *data, size_t bytes)
{
	while (d->data.len % 32)
		strbuf_add(&d->data, "", 1);
	put_text(&d->directory, name);
	put_u32(&d->directory, rows ? 2 : 1);
	put_u64(&d->directory, cols);
	if (rows)
		put_u64(&d->directory, rows);
	put_u32(&d->directory, type);
	put_u64(&d->directory, d->data.len);
	strbuf_add(&d->data, data, bytes);
	d->n_tensors++;
}

/* The whole file; the draft is used up. */
static inline struct strbuf draft_finish(struct gguf_draft *d)
{
	struct strbuf file = {0};
	strbuf_puts(&file, "GGUF");
	put_u32(&file, 3);
	put_u64(&file, d->n_tensors);
	put_u64(&file, d->n_pairs);
	strbuf_add(&file, d->pairs.text, d->pairs.len);
	strbuf_add(&file, d->directory.text, d->directory.len);
	while (file.len % 32)
		strbuf_add(&file, "", 1);
	strbuf_add(&file, d->data.text, d->data.len);
	strbuf_free(&d->pairs);
	strbuf_free(&d->directory);
	strbuf_free(&d->data);
	return file;
}

/* ---- Files ---- */

static inline void write_file(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text));
}

/* A new empty folder under $TMPDIR; the caller frees the name and removes the folder with remove_folder. */
static inline char *scratch_folder(void)
{
	const char *tmp = getenv("TMPDIR");
	char *name = text_format("%s/kvbench-test-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(name));
	return name;
}

/* Files of these names, then the folder. */
static inline void remove_folder(char *folder, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *path = text_format("%s/%s", folder, names[i]);
		unlink(path);
		free(path);
	}
	assert_int_equal(rmdir(folder), 0);
	free(folder);
}

/* A file of the shared folder ($KVB_SHARED, else ../shared); skips the test with a message when it is not there. */
static inline char *shared_file(const char *name)
{
	char *path = text_format("%s/%s", shared_dir(), name);
	if (!file_exists(path)) {
		print_message("skip: %s is not there\n", path);
		free(path);
		skip();
	}
	return path;
}

#define assert_contains(text, part)                                                                                              \
	do {                                                                                                                     \
		if (!strstr(text, part))                                                                                         \
			fail_msg("\"%s\" does not say \"%s\"", text, part);                                                      \
	} while (0)

#endif
