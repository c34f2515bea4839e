/* prompts.c: SCBench's prompt texts (prompts.h). */
#include "tasks/scbench/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "tasks/pyliteral.h"

/* The constants' names, upstream's spelling included. */
static const char *const constants[] = {
	"multiturn_templates",
	"multiturn_templates_scdq",
	"multiturn_follow_up_templates",
	"multiturn_follow_up_templates_in_chat_tempate",
};
enum { FIRST, SCDQ, NEXT_RAW, NEXT_CHAT, N_CONSTANTS };

/* ---- reading ---- */

static json_t *from_json(const char *path, const char *text, size_t len, char err[ERR_LEN])
{
	json_error_t why;
	json_t *all = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!all)
		err_set(err, "%s:%d: %s", path, why.line, why.text);
	return all;
}

static json_t *from_python(const char *path, const char *text, size_t len, char err[ERR_LEN])
{
	char *json = NULL, why[ERR_LEN];
	json_t *all = NULL;
	if (pyliteral_read(text, len, constants, N_CONSTANTS, &json, why))
		err_set(err, "%s: %s", path, why);
	else
		all = from_json(path, json, strlen(json), err);
	free(json);
	return all;
}

/* The constants of a folder. NULL and *there false: it holds neither file. */
static json_t *from_folder(const char *folder, bool *there, char err[ERR_LEN])
{
	json_t *all = NULL;
	char *json = text_format("%s/prompts.json", folder), *python = text_format("%s/eval_utils.py", folder), *text = NULL;
	const char *path = file_exists(json) ? json : python;
	size_t len;
	*there = file_exists(path);
	if (*there && !file_read(path, &text, &len, err))
		all = path == json ? from_json(path, text, len, err) : from_python(path, text, len, err);
	free(text);
	free(json);
	free(python);
	return all;
}

/* ---- the five texts of a task ---- */

static const json_t *entry(const struct prompts *p, int constant, const char *task)
{
	return json_object_get(json_object_get(p->all, constants[constant]), task);
}

static int choose(struct prompts *p, const char *task, char err[ERR_LEN])
{
	static const char before[] = "{pre_ans}";
	const json_t *scdq = entry(p, SCDQ, task);
	const char *raw = json_string_value(entry(p, NEXT_RAW, task));
	bool pair = json_is_array(scdq);
	p->first = json_string_value(entry(p, FIRST, task));
	p->next_chat = json_string_value(entry(p, NEXT_CHAT, task));
	p->next_raw = raw && !strncmp(raw, before, sizeof(before) - 1) ? raw + sizeof(before) - 1 : NULL;
	p->request_context = json_string_value(pair ? json_array_get(scdq, 0) : scdq);
	p->request_question = pair ? json_string_value(json_array_get(scdq, 1)) : p->next_chat;
	if (!p->first || !strstr(p->first, "{context}") || !p->next_chat || !p->next_raw || !p->request_context ||
		!p->request_question)
		return err_set(err, "the prompts of %s are not as upstream's eval_utils.py has them", task);
	return 0;
}

static void hash_texts(const struct prompts *p, char sha256[SHA_LEN])
{
	const char *const texts[] = {p->first, p->next_chat, p->next_raw, p->request_context, p->request_question};
	struct sha256 *hash = sha256_new();
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		sha256_add(hash, texts[i], strlen(texts[i]) + 1);
	sha256_end(hash, sha256);
}

int prompts_open(
	struct prompts *out, const char *folder, const char *other, const char *task, char sha256[SHA_LEN], char err[ERR_LEN])
{
	bool there;
	*out = (struct prompts){.all = from_folder(folder, &there, err)};
	if (!there && other)
		out->all = from_folder(other, &there, err);
	if (!there)
		return err_set(err, "SCBench's prompts (prompts.json, or upstream's eval_utils.py) are not in %s%s%s", folder,
			other ? " or " : "", other ? other : "");
	if (!out->all || choose(out, task, err)) {
		prompts_close(out);
		return -1;
	}
	hash_texts(out, sha256);
	return 0;
}

void prompts_close(struct prompts *p)
{
	json_decref(p->all);
	*p = (struct prompts){0};
}

/* ---- filling in ---- */

static const char *field(const char *name, size_t n, const struct prompt_fields *f)
{
	const struct {
		const char *name, *value;
	} fields[] = {{"context", f->context}, {"input", f->input}, {"question", f->input}, {"prefix", f->prefix},
		{"OPTION_A", f->options[0]}, {"OPTION_B", f->options[1]}, {"OPTION_C", f->options[2]},
		{"OPTION_D", f->options[3]}};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strlen(fields[i].name) == n && !memcmp(fields[i].name, name, n))
			return fields[i].value;
	return NULL;
}

int prompt_fill(struct strbuf *b, const char *template, size_t len, const struct prompt_fields *f, char err[ERR_LEN])
{
	const char *end = template + len, *open, *close;
	for (const char *p = template; p < end; p = close + 1) {
		open = memchr(p, '{', (size_t)(end - p));
		close = open ? memchr(open, '}', (size_t)(end - open)) : NULL;
		strbuf_add(b, p, (size_t)((close ? open : end) - p));
		if (!close)
			return 0;
		const char *value = field(open + 1, (size_t)(close - open - 1), f);
		if (!value)
			return err_set(
				err, "the prompt asks for %.*s, which the row does not have", (int)(close - open + 1), open);
		strbuf_puts(b, value);
	}
	return 0;
}
