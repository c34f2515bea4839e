/* chat.c: one table of templates, each a handful of texts, and one of template hashes. Templates themselves are not stored: a row
 * renders what its template renders for a system text, user turns and answers, and the tests compare with apply_chat_template. */
#include "runners/model/chat.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/utf8.h"
#include "runners/model/gguf.h"

struct chat_template {
	const char *name;
	const char *begin;                      /* before everything: BOS */
	const char *system_open, *system_close; /* around a system text */
	const char *system_default;             /* NULL: no system block unless one is asked for */
	const char *user_open, *user_close;
	const char *answer_open, *answer_close;
	const char *repeat_first, *repeat_later; /* KVzip */
	int repeat_ids;
	bool trims; /* system and user texts and answers lose white space at both ends */
};

#define LLAMA_HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA_TURNS                                                                                                              \
	.begin = "<|begin_of_text|>", .system_close = "<|eot_id|>", .user_open = LLAMA_HEADER("user"),                           \
	.user_close = "<|eot_id|>", .answer_open = LLAMA_HEADER("assistant"), .answer_close = "<|eot_id|>", .trims = true
#define CHATML_TURNS                                                                                                             \
	.begin = "", .system_open = "<|im_start|>system\n", .system_close = "<|im_end|>\n", .user_open = "<|im_start|>user\n",   \
	.user_close = "<|im_end|>\n", .answer_close = "<|im_end|>\n"
#define REPEAT_AS_KVZIP                                                                                                          \
	.repeat_first = "\n\nRepeat the previous context exactly.",                                                              \
	.repeat_later = "\n\nRepeat the part of the previous context exactly, starting with ", .repeat_ids = 8

static const struct chat_template templates[] = {
	{"llama-3", LLAMA_TURNS, .system_open = LLAMA_HEADER("system"), REPEAT_AS_KVZIP},
	/* and 3.2, 3.3 */
	{"llama-3.1", LLAMA_TURNS, .system_default = "", REPEAT_AS_KVZIP,
		.system_open = LLAMA_HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"},
	{"qwen2.5", CHATML_TURNS, .answer_open = "<|im_start|>assistant\n", REPEAT_AS_KVZIP,
		.system_default = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
	/* thinking off */
	{"qwen3", CHATML_TURNS, .answer_open = "<|im_start|>assistant\n<think>\n\n</think>\n\n", REPEAT_AS_KVZIP},
	{"smollm2", CHATML_TURNS, .answer_open = "<|im_start|>assistant\n", REPEAT_AS_KVZIP,
		.system_default = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
	{"chatml", CHATML_TURNS, .answer_open = "<|im_start|>assistant\n", REPEAT_AS_KVZIP},
	{"tiny-pair", .begin = "<|begin|>", .system_open = "<|system|>", .system_close = "<|end|>", .user_open = "<|user|>",
		.user_close = "<|end|>", .answer_open = "<|assistant|>", .answer_close = "<|end|>",
		.repeat_first = "\nRepeat the text.", .repeat_later = "\nRepeat the text."},
	{"raw", .begin = "", .system_open = "", .system_close = "\n\n", .user_open = "", .user_close = "", .answer_open = "",
		.answer_close = "", REPEAT_AS_KVZIP},
};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

/* SHA-256 of template texts as models carry them, less one newline at the end. */
static const struct {
	const char *sha, *name;
} known[] = {
	{"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", "llama-3"},   /* the short one of many copies */
	{"93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", "llama-3.1"}, /* Llama-3.1-8B, 3.3-70B-Instruct */
	{"d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f", "llama-3.1"}, /* Llama-3.2-1B, 3B-Instruct */
	{"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", "qwen2.5"},   /* and Qwen2.5-Coder */
	{"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", "qwen3"},
	{"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", "smollm2"},
	{"f60f226f74ee4f42a189acedc9f8a9f3a54aff66903a8b67cff309e50a4cb3ea", "tiny-pair"},
};

/* ------------------------------------------------------- which template ---------------------------------------------------- */

const struct chat_template *chat_named(const char *name)
{
	for (size_t i = 0; i < N_TEMPLATES; i++)
		if (strcmp(templates[i].name, name) == 0)
			return &templates[i];
	return NULL;
}

const struct chat_template *chat_find(const char *template_text)
{
	if (!template_text)
		return NULL;
	char sha[SHA_LEN];
	size_t len = strlen(template_text);
	sha256_hex(template_text, len - (len > 0 && template_text[len - 1] == '\n'), sha);
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(known[i].sha, sha) == 0)
			return chat_named(known[i].name);
	return NULL;
}

const char *chat_name(const struct chat_template *t)
{
	return t->name;
}

size_t chat_count(void)
{
	return N_TEMPLATES;
}

const struct chat_template *chat_at(size_t i)
{
	return &templates[i];
}

/* chat_template is one text, or a list of {"name", "template"}. */
static const char *config_template(const json_t *config)
{
	const json_t *value = json_object_get(config, "chat_template"), *entry;
	size_t i;
	json_array_foreach(value, i, entry)
	{
		const char *name = json_string_value(json_object_get(entry, "name"));
		if (name && strcmp(name, "default") == 0)
			return json_string_value(json_object_get(entry, "template"));
	}
	return json_string_value(value);
}

static int read_config(const char *path, char **text, char err[ERR_LEN])
{
	json_error_t where;
	json_t *config = json_load_file(path, JSON_DECODE_INT_AS_REAL, &where); /* model_max_length may be 10^30, "no limit" */
	if (!config)
		return err_set(err, "%.200s, line %d: %.200s", path, where.line, where.text);
	const json_t *value = json_object_get(config, "chat_template");
	int rc = 0;
	if (!json_is_object(config))
		rc = err_set(err, "%.200s: not a JSON object", path);
	else if (value && !json_is_string(value) && !json_is_array(value) && !json_is_null(value))
		rc = err_set(err, "%.200s: chat_template is not a text or a list", path);
	else
		*text = text_copy(config_template(config));
	json_decref(config);
	return rc;
}

static int read_folder(const char *folder, char **text, char err[ERR_LEN])
{
	char *jinja = text_format("%s/chat_template.jinja", folder), *config = text_format("%s/tokenizer_config.json", folder);
	size_t len;
	int rc = 0;
	if (file_exists(jinja))
		rc = file_read(jinja, text, &len, err);
	else if (file_exists(config))
		rc = read_config(config, text, err);
	free(jinja);
	free(config);
	return rc;
}

int chat_read(const char *model_path, const struct gguf *g, char **text, char err[ERR_LEN])
{
	struct gguf_text t;
	struct strbuf copy = {0};
	*text = NULL;
	if (!g)
		return read_folder(model_path, text, err);
	if (!gguf_str(g, "tokenizer.chat_template", &t))
		return 0;
	strbuf_add(&copy, t.s, t.len);
	*text = strbuf_take(&copy);
	return 0;
}

/* ------------------------------------------------------------ texts --------------------------------------------------------- */

/* What Jinja's trim takes away: Python's white space, which holds U+001C to U+001F, too. */
static bool trimmed(uint32_t code)
{
	return utf8_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

/* The length of white space at the start of s / what is left of s without it at the end. */
static size_t space_at_start(const char *s, size_t len)
{
	size_t at = 0;
	while (at < len) {
		int step = utf8_step((const unsigned char *)s + at, len - at);
		if (step <= 0 || !trimmed(utf8_code((const unsigned char *)s + at, step)))
			break;
		at += (size_t)step;
	}
	return at;
}

static size_t without_end_space(const char *s, size_t len)
{
	size_t kept = 0; /* forwards, since UTF-8 from the back is no easier when bytes may be invalid */
	for (size_t at = 0; at < len;) {
		size_t space = space_at_start(s + at, len - at);
		at += space;
		if (at < len)
			kept = ++at;
	}
	return kept;
}

static void add_system(const struct chat_template *t, const char *system, struct strbuf *head)
{
	size_t len = strlen(system), skip = t->trims ? space_at_start(system, len) : 0;
	system += skip;
	len = t->trims ? without_end_space(system, len - skip) : len;
	strbuf_puts(head, t->system_open);
	strbuf_add(head, system, len);
	strbuf_puts(head, t->system_close);
}

void chat_parts(const struct chat_template *t, const char *system, char **head, char **tail)
{
	struct strbuf b = {0};
	strbuf_puts(&b, t->begin);
	if (system || t->system_default)
		add_system(t, system ? system : t->system_default, &b);
	strbuf_puts(&b, t->user_open);
	*head = strbuf_take(&b);
	*tail = text_format("%s%s", t->user_close, t->answer_open);
}

void chat_next(const struct chat_template *t, char **text)
{
	*text = text_format("%s%s", t->answer_close, t->user_open);
}

int chat_repeat(const struct chat_template *t, const char **first, const char **later)
{
	*first = t->repeat_first;
	*later = t->repeat_later;
	return t->repeat_ids;
}

/* ------------------------------------------------------------- ids ---------------------------------------------------------- */

/* Every <|...|> of a template's text must be a token: spelled out in pieces it would be a prompt the model never saw. */
static int check_marks(const struct chat_template *t, const struct tokenizer *tok, const char *text, char err[ERR_LEN])
{
	for (const char *open = strstr(text, "<|"), *close; open; open = strstr(close, "<|")) {
		close = strstr(open, "|>") + 2;
		char *mark = text_format("%.*s", (int)(close - open), open);
		bool lacks = tokenizer_id(tok, mark) < 0;
		if (lacks)
			err_set(err, "the chat template %s needs the token %s, which the tokenizer lacks", t->name, mark);
		free(mark);
		if (lacks)
			return -1;
	}
	return 0;
}

static int check_template(const struct chat_template *t, const struct tokenizer *tok, bool system, char err[ERR_LEN])
{
	const char *texts[] = {
		t->begin, t->user_open, t->user_close, t->answer_open, t->answer_close, system ? t->system_open : ""};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (check_marks(t, tok, texts[i], err))
			return -1;
	return 0;
}

struct span {
	const char *s;
	size_t len;
};

static struct span span_of(const char *text)
{
	return text ? (struct span){text, strlen(text)} : (struct span){"", 0};
}

/* As the template trims the whole user text: the question's start only when nothing is left of the context, and the context's end
 * only when nothing is left of the question. */
static void trim(struct span *context, struct span *question)
{
	struct span *const sides[2] = {context, question};
	for (int i = 0; i < 2; i++) {
		size_t skip = space_at_start(sides[i]->s, sides[i]->len);
		sides[i]->s += skip;
		sides[i]->len -= skip;
		if (sides[i]->len)
			break;
	}
	question->len = without_end_space(question->s, question->len);
	if (question->len == 0)
		context->len = without_end_space(context->s, context->len);
}

static int encode_user(struct tokenizer *tok, struct span text, struct ids *out, char err[ERR_LEN])
{
	return tokenizer_encode(tok, text.s, text.len, false, out, err);
}

static int encode_own(struct tokenizer *tok, const char *text, struct ids *out, char err[ERR_LEN])
{
	return tokenizer_encode(tok, text, strlen(text), true, out, err);
}

int chat_encode(const struct chat_template *t, struct tokenizer *tok, const char *system, const char *context,
	const char *question, const char *answer_prefix, struct chat_ids *out, char err[ERR_LEN])
{
	struct span c = span_of(context), q = span_of(question);
	char *head, *tail;
	*out = (struct chat_ids){0};
	if (check_template(t, tok, system || t->system_default, err))
		return -1;
	if (t->trims)
		trim(&c, &q);
	if (!*t->begin && !*t->user_open && tokenizer_bos(tok) >= 0) /* raw: the text as the tokenizer alone would begin it */
		ids_add(&out->prefix, tokenizer_bos(tok));
	chat_parts(t, system, &head, &tail);
	bool failed = encode_own(tok, head, &out->prefix, err) || encode_user(tok, c, &out->context, err) ||
		      encode_user(tok, q, &out->question, err);
	out->question_text = out->question.n;
	failed = failed || encode_own(tok, tail, &out->question, err) || encode_user(tok, span_of(answer_prefix), &out->question, err);
	free(head);
	free(tail);
	return failed ? -1 : 0;
}

int chat_encode_golden(const struct chat_template *t, struct tokenizer *tok, const char *golden, struct ids *out, char err[ERR_LEN])
{
	struct span g = span_of(golden), none = {"", 0};
	char *next;
	if (t->trims)
		trim(&none, &g);
	chat_next(t, &next);
	int rc = encode_user(tok, g, out, err) || encode_own(tok, next, out, err) ? -1 : 0;
	free(next);
	return rc;
}

void chat_ids_free(struct chat_ids *c)
{
	ids_free(&c->prefix);
	ids_free(&c->context);
	ids_free(&c->question);
}
