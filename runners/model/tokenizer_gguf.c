/* tokenizer_gguf.c: a tokenizer out of GGUF metadata. A GGUF names its pre-tokenizer instead of giving the pattern; what the name
 * stands for is in one table here, after the model's own tokenizer.json, and any other name is refused. */
#include <string.h>

#include "runners/model/gguf.h"
#include "runners/model/tokenizer.h"
#include "runners/model/tokenizer_parts.h"

#define KEY(name) "tokenizer.ggml." name

struct pre {
	const char *name;
	const char *first, *second; /* patterns, in order */
	bool ignore_merges;
	bool nfc;
	bool bos; /* put in front of plain text unless add_bos_token says otherwise */
};
static const struct pre pres[] = {
	{"gpt-2", PATTERN_GPT2},
	{"llama-bpe", PATTERN_LLAMA3, .ignore_merges = true, .bos = true},
	{"llama3", PATTERN_LLAMA3, .ignore_merges = true, .bos = true}, /* other spellings of llama-bpe */
	{"llama-v3", PATTERN_LLAMA3, .ignore_merges = true, .bos = true},
	{"qwen2", PATTERN_QWEN2, .nfc = true},
	{"smollm", PATTERN_DIGIT, PATTERN_GPT2},
};
enum { N_PRES = sizeof pres / sizeof *pres };

/* Values of tokenizer.ggml.token_type. */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED };

static int read_pre(struct tokenizer *t, const struct gguf *g, char err[ERR_LEN])
{
	struct gguf_text name = {"", 0};
	const struct pre *p = NULL;
	gguf_str(g, KEY("pre"), &name);
	for (size_t i = 0; i < N_PRES; i++)
		if (strlen(pres[i].name) == name.len && memcmp(pres[i].name, name.s, name.len) == 0)
			p = &pres[i];
	if (!p)
		return err_set(err, KEY("pre") " is '%.*s'; known: gpt-2, llama-bpe (llama3, llama-v3), qwen2, smollm",
			name.len < 60 ? (int)name.len : 60, name.s);
	t->bpe.ignore_merges = p->ignore_merges;
	t->nfc = p->nfc;
	bool bos = p->bos;
	int64_t id = -1;
	gguf_bool(g, KEY("add_bos_token"), &bos);
	gguf_int(g, KEY("bos_token_id"), &id);
	t->bos = bos && id >= 0 && id < TOKENIZER_ID_MAX ? (int32_t)id : -1;
	if (pretoken_add(t->pretoken, p->first, true, err))
		return -1;
	return p->second ? pretoken_add(t->pretoken, p->second, true, err) : 0;
}

static int add_token(struct tokenizer *t, int64_t id, struct gguf_text text, int64_t type, char err[ERR_LEN])
{
	if (type == TYPE_NORMAL || type == TYPE_UNUSED)
		return tokenizer_add_piece(t, id, text.s, text.len, type == TYPE_NORMAL ? TOKEN_PIECE : TOKEN_UNUSED, err);
	if (type != TYPE_UNKNOWN && type != TYPE_CONTROL && type != TYPE_USER_DEFINED)
		return err_set(err, KEY("token_type") "[%lld] is %lld, which no byte-level vocabulary has", (long long)id,
			(long long)type);
	struct strbuf copy = {0};
	strbuf_add(&copy, text.s, text.len);
	const struct added a = {
		.text = copy.text, .len = strlen(copy.text), .id = (int32_t)id, .special = type != TYPE_USER_DEFINED};
	int rc = tokenizer_add_added(t, &a, err);
	strbuf_free(&copy);
	return rc;
}

static int read_tokens(struct tokenizer *t, const struct gguf *g, char err[ERR_LEN])
{
	size_t n, n_types = 0;
	if (!gguf_array(g, KEY("tokens"), &n))
		return err_set(err, "no array " KEY("tokens"));
	bool typed = gguf_array(g, KEY("token_type"), &n_types);
	if (typed && n_types != n)
		return err_set(err, "%zu " KEY("tokens") " but %zu " KEY("token_type"), n, n_types);
	if (n > TOKENIZER_ID_MAX)
		return err_set(err, "%zu " KEY("tokens") ", at most %d are supported", n, TOKENIZER_ID_MAX);
	for (size_t i = 0; i < n; i++) {
		struct gguf_text text;
		int64_t type = TYPE_NORMAL;
		if (!gguf_array_text(g, KEY("tokens"), i, &text) || (typed && !gguf_array_int(g, KEY("token_type"), i, &type)))
			return err_set(err, KEY("tokens") "[%zu] is no text, or its " KEY("token_type") " no integer", i);
		if (add_token(t, (int64_t)i, text, type, err))
			return -1;
	}
	return 0;
}

static int read_merges(struct tokenizer *t, const struct gguf *g, char err[ERR_LEN])
{
	size_t n;
	if (!gguf_array(g, KEY("merges"), &n))
		return err_set(err, "no array " KEY("merges"));
	for (size_t i = 0; i < n; i++) {
		struct gguf_text line;
		if (!gguf_array_text(g, KEY("merges"), i, &line))
			return err_set(err, KEY("merges") "[%zu] is no text", i);
		if (tokenizer_add_merge_line(t, line.s, line.len, err))
			return -1;
	}
	return 0;
}

static int read_all(struct tokenizer *t, const struct gguf *g, char err[ERR_LEN])
{
	struct gguf_text model = {"", 0};
	bool space = false;
	gguf_str(g, KEY("model"), &model);
	gguf_bool(g, KEY("add_space_prefix"), &space);
	if (model.len != 4 || memcmp(model.s, "gpt2", 4) != 0)
		return err_set(err, KEY("model") " is '%.*s'; known: gpt2 (byte-level BPE)", model.len < 60 ? (int)model.len : 60,
			model.s);
	if (space)
		return err_set(err, KEY("add_space_prefix") " is not supported");
	if (read_pre(t, g, err) || read_tokens(t, g, err) || read_merges(t, g, err))
		return -1;
	return tokenizer_finish(t, err);
}

int tokenizer_open_gguf(struct tokenizer **out, const struct gguf *g, char err[ERR_LEN])
{
	char why[ERR_LEN] = "";
	struct tokenizer *t = tokenizer_new();
	int rc = read_all(t, g, why);
	if (rc) {
		err_set(err, "%.200s: %.300s", gguf_name(g), why);
		tokenizer_close(t);
		t = NULL;
	}
	*out = t;
	return rc;
}
