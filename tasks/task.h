/* task.h: what every task gives: contexts with questions, and a score for an answer. Pure: text in, score out.
 *
 * Tasks never see a model: length in the model's own tokens comes through a counting callback. The three suites (longbench/,
 * scbench/, ruler/) and the NIAH family and JSONL reader fit the same table. Same seed = same text, whatever ran before. */
#ifndef KVB_TASK_H
#define KVB_TASK_H

#include "harness/base/base.h"

struct task_question {
	char *id;            /* stable within the task: "c3.q7" */
	char *text;          /* follows the context; brings its own leading separator ("\n", "\n\n") */
	char *answer_prefix; /* "" = none */
	char **answers;      /* gold */
	int n_answers;
	const char *metric; /* name in the metric table */
	int max_new_tokens;
	char **stops; /* answer ends before the first of these; usually none */
	int n_stops;
	double depth; /* where the (first) needle lies, 0..1; NAN = not known */
};

struct task_context {
	char *id;     /* "c3" */
	char *system; /* NULL = the template's default */
	char *text;
	bool chat;          /* false: the task wants no chat template */
	int64_t cut_tokens; /* tokens taken out of the middle of the text by length_tokens (data tasks); 0 = whole */
	struct task_question *questions;
	int n_questions;
};
void task_context_free(struct task_context *c);

/* What a plan asks for. task_open refuses path, questions, needles, values, queries and depth (unless 0 or NAN) when the task has
 * no such parameter; wording is ignored by tasks without one. */
struct task_request {
	const char *name;      /* "niah-multikey", "jsonl" */
	const char *path;      /* data file or folder (jsonl) */
	const char *wording;   /* NIAH: "plain" | "tiny"; NULL = chosen by the caller from the model's template */
	int64_t length_tokens; /* target length of the context in tokens (NIAH); cut-off for data tasks (0 = none) */
	int contexts;          /* how many contexts (0 = task's default or all rows) */
	int questions;         /* questions a context (0 = default) */
	int needles;           /* NIAH: distractor + asked needles (0 = one for each 24 tokens of the tiny wording / default) */
	int values, queries;   /* multi-value: values of a key; multi-query: keys asked at once (0 = default) */
	double depth;          /* single needle: 0..1, NAN = spread evenly over contexts */
	uint64_t seed;
	int max_new_tokens; /* 0 = the task's own */
	int64_t (*count_tokens)(void *user, const char *text, size_t len);
	size_t (*cut_tokens)(void *user, const char *text, size_t len, int64_t n); /* bytes of the longest prefix of n tokens */
	void *user;
};

struct task;
/* Opens by name through the table; unknown = error with the nearest name. */
int task_open(struct task **out, const struct task_request *rq, char err[ERR_LEN]);
void task_close(struct task *t);
int task_count(const struct task *t);                                                      /* contexts */
int task_context_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN]); /* deterministic in (request, i) */
/* Identity for the store: version of the generator/loader, SHA-256 of the data used, SHA-256 of wording/templates. */
struct task_identity {
	const char *name, *metric; /* main metric */
	int version;
	char data_sha256[SHA_LEN], template_sha256[SHA_LEN];
};
void task_identity(const struct task *t, struct task_identity *out);

/* The table, for `kvbench list tasks` and "did you mean". */
struct task_def {
	const char *name, *title;
	const char *parameters; /* the request's fields it takes, separated by blanks */
	int (*open)(struct task *t, char err[ERR_LEN]);
	int (*make)(struct task *t, int i, struct task_context *out, char err[ERR_LEN]);
	void (*close)(struct task *t);
};
size_t task_def_count(void);
const struct task_def *task_def_at(size_t i);

/* ---- metrics (tasks/metrics/): one table ---- */
/* Score in [0,1] of an answer against gold answers; NAN only when the metric cannot apply (no gold), which the caller records
 * as a failed sample. higher is better. binary: score is 0 or 1 (Wilson interval); else bootstrap. */
struct metric_def {
	const char *name, *title, *source;
	bool binary;
	double (*score)(const char *answer, char *const *gold, int n_gold);
};
const struct metric_def *metric_find(const char *name);
size_t metric_count(void);
const struct metric_def *metric_at(size_t i);
enum { SCORER_VERSION = 1 }; /* raised when a metric's arithmetic changes */

#endif
