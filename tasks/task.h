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
	char *golden;        /* multi-turn: what stands for the answer before later questions (answer_prefix and all); NULL = none */
	char **answers;      /* gold */
	int n_answers;
	const char *metric; /* name in the metric table */
	const char *also;   /* a second metric, stored beside the first; NULL = none */
	int max_new_tokens;
	int min_new_tokens; /* no end token and no stop before so many tokens (LongBench samsum: 1); usually 0 */
	char **stops; /* answer ends before the first of these; usually none */
	int n_stops;
	double depth; /* where the (first) needle lies, 0..1; NAN = not known */
	int64_t needle_token, needle_char; /* tokens and characters of the context before it (RULER); -1 = not counted */
};

struct task_context {
	char *id;     /* "c3" */
	char *system; /* NULL = the template's default */
	char *text;
	bool chat;          /* false: the task wants no chat template */
	bool multi_turn;    /* question k follows questions 0 .. k-1, each with its golden answer, in one conversation */
	int64_t cut_tokens; /* tokens taken out of the middle of the text by length_tokens (data tasks); 0 = whole */
	/* truncate "ids": text is whole, and the caller leaves out drop_tokens of its own tokens from number drop_from on. 0 = none */
	int64_t drop_from, drop_tokens;
	const char *group; /* the part of the task the context belongs to (LongBench-E: "4-8k"; v2: "easy short"); NULL = none */
	struct task_question *questions;
	int n_questions;
};
void task_context_free(struct task_context *c);

/* What a plan asks for. task_open refuses path, questions, needles, values, queries, mode and depth (unless 0 or NAN) when the task
 * has no such parameter; wording is ignored by tasks without one. */
struct task_request {
	const char *name;      /* "niah-multikey", "jsonl" */
	const char *path;      /* data file or folder (jsonl) */
	const char *templates; /* folder of upstream's prompt texts as fetched (longbench); NULL = looked for beside the data */
	const char *truncate;  /* LongBench: "official" (NULL means it) | "ids" */
	bool drops_ids;        /* the caller honours a context's drop_tokens; without it truncate "ids" is refused */
	int special_tokens;    /* tokens which the tokenizer puts before a text by itself (BOS); LongBench's official cut counts them */
	const char *generator; /* RULER: "own" | "upstream" | "rows"; NULL = by the path: none, a folder, a file */
	const char *release;   /* RULER upstream: "current" (NULL means it) | "oct2024", which made the published sets */
	const char *wording;   /* NIAH: "plain" | "tiny"; NULL = chosen by the caller from the model's template */
	int64_t length_tokens; /* target length of the context in tokens (NIAH); cut-off for data tasks (0 = none) */
	int contexts;          /* how many contexts (0 = task's default or all rows) */
	int questions;         /* questions a context (0 = default) */
	int needles;           /* NIAH: distractor + asked needles (0 = one for each 24 tokens of the tiny wording / default) */
	int values, queries;   /* multi-value: values of a key; multi-query: keys asked at once (0 = default) */
	double depth;          /* single needle: 0..1, NAN = spread evenly over contexts */
	const char *mode;      /* SCBench: "multi-turn" | "multi-request"; NULL = multi-turn */
	bool raw_prompt;       /* no chat template will stand around the texts (SCBench words follow-up turns otherwise then) */
	int64_t head_tokens, tail_tokens; /* of the template around a user turn: they count in SCBench's window */
	uint64_t seed; /* RULER upstream: 0 = its own, 42 */
	int max_new_tokens; /* 0 = the task's own */
	int64_t (*count_tokens)(void *user, const char *text, size_t len);
	size_t (*cut_tokens)(void *user, const char *text, size_t len, int64_t n); /* bytes that the first n tokens stand for */
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
	const char *mode;          /* "multi-turn", "multi-request"; NULL = "single" */
	const char *variant;       /* how the texts were made, in words (RULER: "upstream oct2024"); NULL = in one way only */
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
	/* Loads what the metric needs (jieba's dictionary); NULL = nothing. Called before the first score; again is free. Without
	 * it the score is NAN. */
	int (*prepare)(char err[ERR_LEN]);
};
int metric_prepare(const struct metric_def *m, char err[ERR_LEN]);
const struct metric_def *metric_find(const char *name);
size_t metric_count(void);
const struct metric_def *metric_at(size_t i);
enum { SCORER_VERSION = 2 }; /* raised when a metric's arithmetic changes; 2: letter case as Python has it, RULER strips the answer */

#endif
