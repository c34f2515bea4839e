/* longbench.h: the parts of the LongBench tasks, and what they add up to.
 *
 * LongBench v1 (21 tasks), LongBench-E (13 of them, rows binned by length) and v2 (one task of 503 rows). Upstream:
 * THUDM/LongBench 2e00731. Rows, prompt texts and answer lengths are upstream's files as fetched; none of their text is here.
 * Files: table.c (what is known of each task), data.c (rows out of a folder or data.zip), prompt.c (templates and the cut),
 * longbench.c (v1 and E), v2.c, aggregate.c. */
#ifndef KVB_LONGBENCH_H
#define KVB_LONGBENCH_H

#include "tasks/task_impl.h"

enum longbench_group {
	GROUP_SINGLE_DOC,
	GROUP_MULTI_DOC,
	GROUP_SUMMARY,
	GROUP_FEW_SHOT,
	GROUP_SYNTHETIC,
	GROUP_CODE,
	LONGBENCH_GROUPS
};

struct longbench_info {
	const char *name; /* upstream's: "qasper" */
	enum longbench_group group;
	const char *languages; /* "en", "zh"; code counts in both averages: "en zh" */
	const char *metric;    /* with upstream's clean-up of the answer in it */
	bool chat;             /* upstream puts few-shot and code tasks into no chat template */
	bool line_stop;        /* samsum: a line end after the first token ends the answer */
};
enum { LONGBENCH_V1_TASKS = 21 };
extern const struct longbench_info longbench_infos[LONGBENCH_V1_TASKS];
/* By upstream's name or ours ("longbench-qasper", "longbench-e-qasper", "qasper_e"); NULL = none such. *e = is it of LongBench-E?
 */
const struct longbench_info *longbench_find(const char *name, bool *e);

/* LongBench-E's bins: "0-4k", "4-8k", "8k+" (exactly below 4000 and 8000). Static. */
enum { LONGBENCH_BINS = 3 };
extern const char *const longbench_bins[LONGBENCH_BINS];
int longbench_bin(int64_t length);

/* ---- data.c ---- */

/* A task's lines in memory, blank ones left out. */
struct longbench_rows {
	char *text;
	struct {
		const char *at;
		size_t len;
	} * v;
	int n;
};
/* Reads FILE ("qasper_e.jsonl") from path: a folder which holds it, or data/FILE, or data.zip; a .zip; or the .jsonl itself. */
int longbench_rows_read(struct longbench_rows *rows, const char *path, const char *file, char sha[SHA_LEN], char err[ERR_LEN]);
void longbench_rows_free(struct longbench_rows *rows);
/* The path of one of upstream's own files, from the request's templates folder or else from around its path; NULL = error set.
 * The caller frees it. */
char *longbench_file(const struct task_request *rq, const char *name, char err[ERR_LEN]);

/* ---- prompt.c ---- */

/* A whole prompt; text[0, split) is the context, the rest the question. */
struct longbench_prompt {
	char *text;
	size_t split;
	bool joined; /* v2: an over-long prompt's two ends are decoded as one, and of an odd length the last one is the longer by
			one */
};
/* Puts the values into {context} and {input}: once, left to right, never into what was put in. */
int longbench_prompt_make(
	struct longbench_prompt *p, const char *template, const char *context, const char *input, char err[ERR_LEN]);
/* Keeps the prompt to the request's length_tokens. "official": tokens (special ones counted) beyond it leave the middle of the
 * prompt, as text; a character cut apart leaves U+FFFD's. "ids": nothing of the text changes, c says which tokens of the context
 * the caller is to leave out. Records the cut in c. */
int longbench_cut(struct longbench_prompt *p, const struct task_request *rq, struct task_context *c, char err[ERR_LEN]);
/* Gives the prompt's two sides to c and a new question of it; p is empty after. */
struct task_question *longbench_prompt_give(struct longbench_prompt *p, struct task_context *c);
/* Is the request's truncate one of the two, and can the caller do it? */
int longbench_truncate_check(const struct task_request *rq, char err[ERR_LEN]);

/* ---- v2.c ---- */

int longbench_v2_open(struct task *t, char err[ERR_LEN]);
int longbench_v2_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN]);
void longbench_v2_close(struct task *t);

/* ---- aggregate.c ---- */

struct longbench_average {
	const char *label;
	double score; /* NAN while a task of it is missing: a part is never shown as the whole */
	int n, of;    /* tasks there, tasks needed */
};
enum { LONGBENCH_AVERAGES = 2 * LONGBENCH_GROUPS + 3 };
/* From the 21 scores in the order of longbench_infos (NAN = missing): six group means and their mean for English, the same for
 * Chinese (code counts in both: upstream's averages), then the plain mean of the 16 English and code tasks (the KV papers'). */
void longbench_averages(const double scores[LONGBENCH_V1_TASKS], struct longbench_average out[LONGBENCH_AVERAGES]);

#endif
