/* task_impl.h: what the tasks share behind task.h. Only files of tasks/ include it. */
#ifndef KVB_TASK_IMPL_H
#define KVB_TASK_IMPL_H

#include "tasks/task.h"

#include <jansson.h>

struct task {
	const struct task_def *def;
	struct task_request rq;        /* own copy, strings too */
	int contexts;                  /* set by open */
	struct task_identity identity; /* set by open, but for the name */
	void *state;                   /* the task's own: made by open, freed by close (which may find NULL) */
};

extern const struct task_def task_niah_single, task_niah_multikey, task_niah_multivalue, task_niah_multiquery, task_jsonl;
enum { SCBENCH_TASKS = 12 };
extern const struct task_def task_scbench[SCBENCH_TASKS];
enum { LONGBENCH_TASKS = 21 + 13 + 1 }; /* v1, E, v2 */
extern const struct task_def task_longbench[LONGBENCH_TASKS];
enum { RULER_TASKS = 13 };
extern const struct task_def task_ruler[RULER_TASKS];

/* Is this request field among the task's parameters? */
bool task_takes(const struct task_def *def, const char *field);
/* A new question at the end of the context's list: its id set, answer_prefix "", depth and needle not known, all else zero. Valid until
 * the next call. */
struct task_question *task_question_add(struct task_context *c);
/* Takes the tokens [from, from + n) out of the context's text, at the edges of characters, and notes them in cut_tokens. */
void task_context_cut(struct task_context *c, const struct task_request *rq, int64_t from, int64_t n);
void task_answer_add(struct task_question *q, const char *answer);
/* Room for an answer as a file states it: a whole number from 1 to 2^20. Anything else (cut to an int it might look like one): false. */
bool task_new_tokens(const json_t *v, int *out);

#endif
