/* scbench.h: what the files of tasks/scbench share: the table of tasks, a task's open state, a row on its way to a context. */
#ifndef KVB_SCBENCH_H
#define KVB_SCBENCH_H

#include "tasks/scbench/prompts.h"
#include "tasks/rows.h"
#include "tasks/task_impl.h"

/* How the turns of one (sub-)task are asked and scored. */
enum gold_form {
	GOLD_TEXT,    /* {answer} */
	GOLD_LIST,    /* the answer is a list */
	GOLD_OPTIONS, /* {option's text, its letter} */
	GOLD_REPOQA   /* metrics.h: repoqa */
};
struct kind {
	const char *name;
	enum gold_form gold;
	const char *metric, *also; /* upstream's, and the sane one where upstream's is not */
	const char *forced_start;  /* of the answers of later turns, in a chat; NULL = none */
};

struct part { /* a mixed task has two: a turn says which it is */
	const char *kind;
	int new_tokens;
};
struct scbench_task {
	const char *name;
	struct part parts[2];
};

/* A function of a repository, for RepoQA: all that the file's rows ask for. */
struct needle {
	char *repo, *name, *text;
};
struct needles {
	struct needle *v;
	int n;
};
/* Those of one more row's first n_turns turns; the same function again is left out. */
void needles_add(struct needles *s, const json_t *row, int n_turns);
void needles_free(struct needles *s);

struct scbench {
	const struct scbench_task *task;
	bool requests;        /* mode multi-request */
	int most_turns;       /* of a row; 0 = all */
	int64_t window_turns; /* turns the window keeps room for: those of the first row */
	struct prompts prompts;
	struct rows *rows;
	struct needles needles;
};

/* The part a turn belongs to; NULL = its "task" is none of them. */
const struct part *scbench_part(const struct scbench_task *task, const json_t *turn);
const struct kind *scbench_kind(const char *name);
/* How many turns of a row are used. */
int scbench_turns(const struct scbench *s, const json_t *row);
/* Text and questions of a row's context, uncut. what: a message without the row's place. */
int scbench_context(const struct task *t, const json_t *row, struct task_context *c, char what[ERR_LEN]);

#endif
