/* prompts.h: SCBench's prompt texts, as upstream keeps them: four constants of its eval_utils.py, one text a task.
 *
 * Read from prompts.json (an object with these four constants) or from upstream's eval_utils.py itself; never part of the
 * program. A template is Python's: "{context}\n\n{input}". */
#ifndef KVB_SCBENCH_PROMPTS_H
#define KVB_SCBENCH_PROMPTS_H

#include <jansson.h>

#include "harness/base/base.h"

/* Templates of one task. Borrowed from `all`. */
struct prompts {
	json_t *all;
	const char *first;            /* multi-turn: the whole first turn, {context} in it */
	const char *next_chat;        /* a later turn inside a chat template */
	const char *next_raw;         /* a later turn without one, {pre_ans} left off */
	const char *request_context;  /* multi-request: what is cached, ends with {context} */
	const char *request_question; /* multi-request: each question */
};

/* Looks in `folder`, then `other` (NULL = nowhere else). sha256: of the five texts. */
int prompts_open(
	struct prompts *out, const char *folder, const char *other, const char *task, char sha256[SHA_LEN], char err[ERR_LEN]);
void prompts_close(struct prompts *p);

/* What the fields of a template stand for; NULL = the template may not name it. */
struct prompt_fields {
	const char *context, *input, *prefix;
	const char *options[4];
};
/* The first len bytes of a template, filled in; appended to b. Unknown or missing fields are errors. */
int prompt_fill(struct strbuf *b, const char *template, size_t len, const struct prompt_fields *f, char err[ERR_LEN]);

#endif
