/* tokenizer_json.c: a tokenizer out of Hugging Face's tokenizer.json. What would change ids and is not known here (another
 * model type, normaliser or pre-tokenizer, dropout, prefixes) is refused by name; truncation, padding and all of the
 * post-processor but its BOS are not ours. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "runners/model/tokenizer.h"
#include "runners/model/tokenizer_parts.h"

/* "" for what is absent or no text. */
static const char *text_at(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));
	return s ? s : "";
}

static bool flag_at(const json_t *object, const char *key, bool absent)
{
	const json_t *v = json_object_get(object, key);
	return v ? json_is_true(v) : absent;
}

static int add_vocabulary(struct tokenizer *t, json_t *model, char err[ERR_LEN])
{
	json_t *vocab = json_object_get(model, "vocab");
	if (!json_is_object(vocab))
		return err_set(err, "model.vocab is not an object");
	const char *text;
	json_t *id;
	json_object_foreach(vocab, text, id)
	{
		if (!json_is_integer(id))
			return err_set(err, "model.vocab: the id of '%.60s' is no integer", text);
		if (tokenizer_add_piece(t, json_integer_value(id), text, strlen(text), TOKEN_PIECE, err))
			return -1;
	}
	return 0;
}

/* Both spellings: "a b" (older files) and ["a", "b"]. */
static int add_merge(struct tokenizer *t, const json_t *merge, char err[ERR_LEN])
{
	const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
	if (json_is_string(merge))
		return tokenizer_add_merge_line(t, json_string_value(merge), json_string_length(merge), err);
	if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
		return err_set(err, "merge %u is neither \"a b\" nor [\"a\", \"b\"]", t->n_merges);
	return tokenizer_add_merge(
		t, json_string_value(left), json_string_length(left), json_string_value(right), json_string_length(right), err);
}

static int add_merges(struct tokenizer *t, json_t *model, char err[ERR_LEN])
{
	json_t *merges = json_object_get(model, "merges"), *merge;
	size_t i;
	if (!json_is_array(merges))
		return err_set(err, "model.merges is not an array");
	json_array_foreach(merges, i, merge)
	{
		if (add_merge(t, merge, err))
			return -1;
	}
	return 0;
}

static int read_unk(struct tokenizer *t, const json_t *model, char err[ERR_LEN])
{
	const char *unk = text_at(model, "unk_token");
	if (!*unk)
		return 0;
	if (json_is_true(json_object_get(model, "fuse_unk")))
		return err_set(err, "model.fuse_unk is not supported");
	const json_t *id = json_object_get(json_object_get(model, "vocab"), unk);
	t->bpe.unk = id ? (int32_t)json_integer_value(id) : -1;
	return id ? 0 : err_set(err, "model.unk_token '%.60s' is not in the vocabulary", unk);
}

static int read_model(struct tokenizer *t, json_t *root, char err[ERR_LEN])
{
	json_t *model = json_object_get(root, "model");
	const char *type = text_at(model, "type");
	if (!json_is_object(model))
		return err_set(err, "there is no object 'model'");
	if (*type && strcmp(type, "BPE") != 0) /* files of before 2021 leave the type out */
		return err_set(err, "model.type is '%.60s'; known: BPE", type);
	if (json_number_value(json_object_get(model, "dropout")) > 0)
		return err_set(err, "model.dropout is not supported");
	if (*text_at(model, "continuing_subword_prefix") || *text_at(model, "end_of_word_suffix"))
		return err_set(err, "model.continuing_subword_prefix and end_of_word_suffix are not supported");
	if (flag_at(model, "byte_fallback", false))
		return err_set(err, "model.byte_fallback is not supported: not a byte-level vocabulary");
	t->bpe.ignore_merges = flag_at(model, "ignore_merges", false);
	return add_vocabulary(t, model, err) || add_merges(t, model, err) ? -1 : read_unk(t, model, err);
}

static int add_added(struct tokenizer *t, json_t *entry, char err[ERR_LEN])
{
	const json_t *id = json_object_get(entry, "id"), *content = json_object_get(entry, "content");
	if (!json_is_integer(id) || !json_is_string(content))
		return err_set(err, "an added token has no integer 'id' or no text 'content'");
	json_int_t n = json_integer_value(id);
	if (n < 0 || n >= TOKENIZER_ID_MAX)
		return err_set(err, "the added token '%.60s' has the id %lld, outside 0..%d", json_string_value(content),
			(long long)n, TOKENIZER_ID_MAX - 1);
	if (flag_at(entry, "single_word", false))
		return err_set(err, "the added token '%.60s' is single_word, which is not supported", json_string_value(content));
	const struct added a = {
		.text = (char *)json_string_value(content),
		.len = json_string_length(content),
		.id = (int32_t)n,
		.special = flag_at(entry, "special", false),
		.lstrip = flag_at(entry, "lstrip", false),
		.rstrip = flag_at(entry, "rstrip", false),
		.normalized = flag_at(entry, "normalized", !flag_at(entry, "special", false)),
	};
	return tokenizer_add_added(t, &a, err);
}

static int read_added(struct tokenizer *t, json_t *root, char err[ERR_LEN])
{
	json_t *list = json_object_get(root, "added_tokens"), *entry;
	size_t i;
	if (list && !json_is_null(list) && !json_is_array(list))
		return err_set(err, "'added_tokens' is not an array");
	json_array_foreach(list, i, entry)
	{
		if (add_added(t, entry, err))
			return -1;
	}
	return 0;
}

static int read_normalizer(struct tokenizer *t, json_t *node, char err[ERR_LEN])
{
	const char *type = text_at(node, "type");
	if (!node || json_is_null(node))
		return 0;
	if (strcmp(type, "NFC") == 0) {
		t->nfc = true;
		return 0;
	}
	if (strcmp(type, "Sequence") != 0)
		return err_set(err, "the normalizer '%.60s' is not supported; known: NFC, Sequence", type);
	size_t i;
	json_t *child;
	json_array_foreach(json_object_get(node, "normalizers"), i, child)
	{
		if (read_normalizer(t, child, err))
			return -1;
	}
	return 0;
}

/* Isolated cuts at both ends of a match; Removed with invert drops what lies between matches. With the patterns of real models,
 * which match everything, the two are one. */
static int add_split(struct tokenizer *t, const json_t *node, char err[ERR_LEN])
{
	const json_t *regex = json_object_get(json_object_get(node, "pattern"), "Regex");
	const char *behavior = text_at(node, "behavior");
	bool removed = strcmp(behavior, "Removed") == 0 && flag_at(node, "invert", false);
	if (!json_is_string(regex))
		return err_set(err, "a Split pre-tokenizer has no pattern.Regex");
	if (!removed && strcmp(behavior, "Isolated") != 0)
		return err_set(
			err, "the Split behavior '%.60s' is not supported; known: Isolated, Removed with invert", behavior);
	return pretoken_add(t->pretoken, json_string_value(regex), !removed, err);
}

static int add_byte_level(struct tokenizer *t, const json_t *node, bool *byte_level, char err[ERR_LEN])
{
	*byte_level = true;
	if (flag_at(node, "add_prefix_space", true))
		return err_set(err, "a ByteLevel pre-tokenizer with add_prefix_space is not supported");
	return flag_at(node, "use_regex", true) ? pretoken_add(t->pretoken, PATTERN_GPT2, true, err) : 0;
}

static int add_digits(struct tokenizer *t, const json_t *node, char err[ERR_LEN])
{
	bool individual = flag_at(node, "individual_digits", false);
	return pretoken_add(t->pretoken, individual ? PATTERN_DIGIT : PATTERN_DIGITS, true, err);
}

static int read_pretokenizer(struct tokenizer *t, json_t *node, int depth, bool *byte_level, char err[ERR_LEN])
{
	const char *type = text_at(node, "type");
	if (*byte_level)
		return err_set(err, "a pre-tokenizer after ByteLevel is not supported");
	if (strcmp(type, "Split") == 0)
		return add_split(t, node, err);
	if (strcmp(type, "Digits") == 0)
		return add_digits(t, node, err);
	if (strcmp(type, "ByteLevel") == 0)
		return add_byte_level(t, node, byte_level, err);
	if (strcmp(type, "Sequence") != 0 || depth > 2)
		return err_set(
			err, "the pre-tokenizer '%.60s' is not supported; known: Split, Digits, ByteLevel, Sequence", type);
	size_t i;
	json_t *child;
	json_array_foreach(json_object_get(node, "pretokenizers"), i, child)
	{
		if (read_pretokenizer(t, child, depth + 1, byte_level, err))
			return -1;
	}
	return 0;
}

static int read_pretokenizers(struct tokenizer *t, json_t *root, char err[ERR_LEN])
{
	bool byte_level = false;
	if (read_pretokenizer(t, json_object_get(root, "pre_tokenizer"), 0, &byte_level, err))
		return -1;
	return byte_level ? 0 : err_set(err, "the pre_tokenizer has no ByteLevel: not a byte-level vocabulary");
}

static int check_decoder(json_t *root, char err[ERR_LEN])
{
	const char *type = text_at(json_object_get(root, "decoder"), "type");
	if (*type && strcmp(type, "ByteLevel") != 0)
		return err_set(err, "the decoder '%.60s' is not supported; known: ByteLevel", type);
	return 0;
}

/* A TemplateProcessing whose "single" begins with a special token names the BOS; other processors do not. */
static void read_processor(struct tokenizer *t, const json_t *node)
{
	const json_t *first = json_array_get(json_object_get(node, "single"), 0);
	const char *text = text_at(json_object_get(first, "SpecialToken"), "id");
	if (*text)
		t->bos = tokenizer_id(t, text);
}

/* One processor, or a Sequence of them. */
static void read_bos(struct tokenizer *t, const json_t *node)
{
	json_t *child;
	size_t i;
	read_processor(t, node);
	json_array_foreach(json_object_get(node, "processors"), i, child)
	{
		read_processor(t, child);
	}
}

/* Added tokens come after merges, so that a merge may still name a piece which is also a special token. */
static int read_all(struct tokenizer *t, json_t *root, char err[ERR_LEN])
{
	if (!json_is_object(root))
		return err_set(err, "the file does not hold an object");
	if (read_model(t, root, err) || read_added(t, root, err) ||
		read_normalizer(t, json_object_get(root, "normalizer"), err) || read_pretokenizers(t, root, err) ||
		check_decoder(root, err))
		return -1;
	read_bos(t, json_object_get(root, "post_processor"));
	return tokenizer_finish(t, err);
}

int tokenizer_open_memory(struct tokenizer **out, const char *name, const char *json, size_t len, char err[ERR_LEN])
{
	json_error_t where;
	char why[ERR_LEN] = "";
	struct tokenizer *t = NULL;
	*out = NULL;
	json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &where);
	if (!root)
		return err_set(err, "%s, line %d: %s", name, where.line, where.text);
	t = tokenizer_new();
	int rc = read_all(t, root, why);
	if (rc) {
		err_set(err, "%.200s: %.300s", name, why);
		tokenizer_close(t);
		t = NULL;
	}
	json_decref(root);
	*out = t;
	return rc;
}

int tokenizer_open_json(struct tokenizer **out, const char *path, char err[ERR_LEN])
{
	char *json;
	size_t len;
	*out = NULL;
	if (file_read(path, &json, &len, err))
		return -1;
	int rc = tokenizer_open_memory(out, path, json, len, err);
	free(json);
	return rc;
}
