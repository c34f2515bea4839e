/* score.h: scores files of predictions as upstream's own programs write them, without a model: LongBench's and RULER's JSON
 * lines, kvpress's predictions.csv, LongBench v2's results, InfiniteBench's predictions. Which formats there are: the table in
 * score.c. Pure: a file in, numbers out. */
#ifndef KVB_SCORE_H
#define KVB_SCORE_H

#include "tasks/task.h"

enum { SCORE_PARTS = 8 };

struct score_result {
	char task[64];
	const char *format, *metric; /* names from the tables; static */
	double score;                /* on upstream's scale, 0..100, not rounded */
	int decimals;                /* as many as upstream prints */
	int n;                       /* rows scored */
	int empty;                   /* predictions without a visible character among them (RULER's Nulls) */
	int skipped;                 /* rows of the task without a prediction: an error is noted in its place */
	int deep_pairs; /* rouge: texts on which upstream would overflow its stack and score 0 (rouge_l.c); we score them */
	struct {
		const char *name; /* LongBench-E: the bins; v2: Easy, Hard, Short, Medium, Long, Compensated */
		double score;     /* NAN = no rows */
		int n;
	} parts[SCORE_PARTS];
	int n_parts;
};

/* task: our name ("longbench-qasper") or upstream's ("qasper", "qasper_e", "niah_single_1",
 * "longbook_qa_eng"). A .csv may hold several tasks: rows
 * of others are passed over. metric: in place of the task's own ("code_sim_indel"); NULL = the task's own. -1: no such task in a
 * file of this kind, a row which is not of the format (the message has its number), no row of the task. */
int score_predictions(const char *path, const char *task, const char *metric, struct score_result *out, char err[ERR_LEN]);

#endif
