/* fuzz_tokenizer.c: a hostile tokenizer.json must be refused or work; what opens then encodes and decodes a few texts. */
#include <stdlib.h>
#include <string.h>

#include "runners/model/tokenizer.h"

/* Letters, spaces, digits, a combining mark, an added token of the seeds, bytes that are no UTF-8. */
static const char *const texts[] = {
	"Hello  World 123\n\n", "e\xCC\x81\xCC\x96 \xE4\xB8\xAD", " <s> <s>>\t", "a\xFF\xE2\x82z", "aaaaaaaaaaaaaaaaaaaaaaaaaaa"};

static void use(struct tokenizer *t)
{
	char err[ERR_LEN];
	struct ids ids = {0};
	struct strbuf decoded = {0}, streamed = {0};
	struct decode_stream s = {{0}, 0};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (tokenizer_encode(t, texts[i], strlen(texts[i]), i % 2 == 0, &ids, err))
			ids.n = 0;
	for (size_t i = 0; i < ids.n; i++)
		if (ids.v[i] < 0 || ids.v[i] >= tokenizer_vocab(t))
			abort();
	tokenizer_decode(t, ids.v, ids.n, true, &decoded);
	for (size_t i = 0; i < ids.n; i++)
		tokenizer_stream(t, &s, ids.v[i], true, &streamed);
	tokenizer_stream_end(&s, &streamed);
	ids_free(&ids);
	strbuf_free(&decoded);
	strbuf_free(&streamed);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len)
{
	char err[ERR_LEN] = "";
	struct tokenizer *t;
	if (tokenizer_open_memory(&t, "fuzz.json", (const char *)data, len, err) == 0) {
		use(t);
		tokenizer_close(t);
	} else if (!*err) {
		abort(); /* a refusal says why */
	}
	return 0;
}
