/* test_stories.c: a real Llama checkpoint of 260K parameters (stories260K, tests only) must give its golden text, byte for byte. */
#include "tests/unit/forward/engine.h"
#include "tests/unit/stories.h"

#include <unistd.h>

/* llama2.c's vocabulary: int32 longest piece, then float score, int32 length, bytes of each id. "<0x0A>" is the byte. */
static char **pieces_read(const char *path, int n)
{
	char *data, err[ERR_LEN] = "";
	size_t len, at = 4;
	if (file_read(path, &data, &len, err))
		fail_msg("%s", err);
	char **piece = mem_new((size_t)n, sizeof *piece);
	for (int i = 0; i < n; i++) {
		int32_t size;
		memcpy(&size, data + at + 4, 4);
		piece[i] = text_format("%.*s", (int)size, data + at + 8);
		at += 8 + (size_t)size;
	}
	free(data);
	return piece;
}

static void piece_print(struct strbuf *out, const char *piece, bool after_bos)
{
	unsigned int byte;
	if (after_bos && piece[0] == ' ')
		piece++;
	if (sscanf(piece, "<0x%02X>", &byte) == 1 && strlen(piece) == 6)
		strbuf_add(out, &(char){(char)byte}, 1);
	else
		strbuf_puts(out, piece);
}

/* The golden text stands in the model's own description, between the lines of a fence; it starts with "Once upon a time". */
static char *golden_read(const char *path)
{
	char *data, err[ERR_LEN] = "";
	size_t len;
	if (file_read(path, &data, &len, err))
		fail_msg("%s", err);
	char *start = strstr(data, "Once upon a time"), *end = start ? strstr(start, "\n```") : NULL;
	assert_non_null(end);
	char *text = text_format("%.*s", (int)(end - start), start);
	free(data);
	return text;
}

static void golden_text_byte_for_byte(void **state)
{
	(void)state;
	char *bin = text_format("%s/models/stories260K/stories260K.bin", shared_dir()), *tok = text_format("%s/models/stories260K/tok512.bin", shared_dir());
	char *md = text_format("%s/models/stories260K/stories260K.md", shared_dir()), folder[] = "/tmp/kvb-stories-XXXXXX", err[ERR_LEN] = "";
	skip_without(bin);
	assert_non_null(mkdtemp(folder));
	if (stories_to_hf(bin, folder, err))
		fail_msg("%s", err);
	char *golden = golden_read(md), **piece = pieces_read(tok, 512);
	struct engine e = engine_open(folder, "fp32", NULL, 2, 64);
	struct kv *kv = engine_cache(&e, 512);
	struct strbuf out = {0};
	int32_t id = 1, before = 1; /* BOS */
	for (int pos = 0; pos < 510 && out.len < strlen(golden); pos++) {
		before = id;
		id = engine_feed(&e, NULL, NULL, kv, &before, 1, pos, NULL);
		if (id == 1)
			break;
		piece_print(&out, piece[id], before == 1);
	}
	assert_true(strlen(golden) > 400);
	assert_int_equal(strncmp(out.text, golden, strlen(golden)), 0);
	for (int i = 0; i < 512; i++)
		free(piece[i]);
	free(piece), free(golden), free(bin), free(tok), free(md);
	strbuf_free(&out);
	kv_free(kv);
	engine_close(&e);
	char *rm = text_format("rm -rf %s", folder);
	assert_int_equal(system(rm), 0);
	free(rm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(golden_text_byte_for_byte)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
