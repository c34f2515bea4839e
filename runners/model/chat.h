/* chat.h: chat templates as token ids, split where pruning needs it: prefix | context | question side.
 *
 * A template is chosen by the SHA-256 of the model's own template text in one table; an unknown one is refused with a hint
 * (`--template NAME`). The text of a user turn is CONTEXT, then the question text: what separates the two ("\n\n", for the
 * tiny pair "\n") belongs to the question text and is the caller's; nothing is put between them here.
 * What a template writes today's date into has a fixed one (26 Jul 2024, its own fallback), or results would change daily. */
#ifndef KVB_CHAT_H
#define KVB_CHAT_H

#include "harness/base/base.h"
#include "runners/model/tokenizer.h"

struct chat_template; /* one row of the table; static storage */

/* By the model's own template text (one newline at its end does not count, as in Jinja). NULL: text is NULL or unknown. */
const struct chat_template *chat_find(const char *template_text);
const struct chat_template *chat_named(const char *name);
const char *chat_name(const struct chat_template *t);
size_t chat_count(void);
const struct chat_template *chat_at(size_t i);
/* The model's own template: GGUF metadata when g is given, else the folder's chat_template.jinja, or its tokenizer_config.json's
 * chat_template (the one named "default" of several). *text is NULL when there is none. Caller frees. */
int chat_read(const char *model_path, const struct gguf *g, char **text, char err[ERR_LEN]);

/* The pieces around one user turn, as text with special tokens spelled out:
 *   head = everything before the user's text (BOS, default or given system block, user header)
 *   tail = everything after it up to where the answer starts (end of turn, assistant header, Qwen3's empty think block)
 * system = NULL: the template's own default; "" is a system text of no length. Caller frees both. */
void chat_parts(const struct chat_template *t, const char *system, char **head, char **tail);
/* Between an answer (without its end-of-turn token) and the next user text of a multi-turn session: closes the answer and opens
 * a user turn. Caller frees. */
void chat_next(const struct chat_template *t, char **text);
/* KVzip's repeat prompt for this template (methods.md 3.1; the tiny pair's from its README), without head and tail: the text that
 * asks for the first chunk, and the one for a later chunk. Returns how many of the last ids of the previous chunk follow `later`:
 * 8, or 0. */
int chat_repeat(const struct chat_template *t, const char **first, const char **later);

/* Ids of one user turn. Each side is tokenised on its own (so the same ids serve full and pruned):
 * prefix = head, context = context text alone, question = question text + tail (+ answer prefix).
 * So the ids may differ from those of the whole text where a token would reach across a side's edge: ".\n\n" is one token of
 * Qwen and Llama, and SmolLM2 joins the user header's newline with spaces that a context begins with. */
struct chat_ids {
	struct ids prefix, context, question;
	size_t question_text; /* the first so many ids of `question` are the question's own text; then tail and answer prefix */
};
/* Special tokens spelled in context, question or answer prefix are plain text: only the template makes special tokens. Where the
 * model's template trims the user's text (Llama-3), white space before the context and after the question goes. The raw
 * template's prefix is the tokenizer's BOS, if it has one. Refuses a template whose special tokens the tokenizer lacks. Any text
 * may be NULL (= ""). out is overwritten; free it after success and after failure. */
int chat_encode(const struct chat_template *t, struct tokenizer *tok, const char *system, const char *context,
	const char *question, const char *answer_prefix, struct chat_ids *out, char err[ERR_LEN]);
void chat_ids_free(struct chat_ids *c);
/* Appends what follows a turn's tail in a multi-turn session: the golden answer as plain text (trimmed where the template trims),
 * the end of that turn and the opening of the next user turn (chat_next). */
int chat_encode_golden(const struct chat_template *t, struct tokenizer *tok, const char *golden, struct ids *out, char err[ERR_LEN]);

#endif
