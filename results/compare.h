/* compare.h: two databases (or two runs) against each other, cell by cell, on the samples both have.
 *
 * A side is loaded whole; a comparison pairs its cells by everything they are made of, leaving out the columns in which the two
 * sides as a whole differ (the precision, say): those are what is compared. What may not stand beside each other (other prompts,
 * another protocol, scorer, metric or measuring procedure) is collected as refusals, in words; the caller refuses or marks. The gate is
 * the same comparison with margins. side.c loads, compare.c compares, compare_text.c prints, gate.c judges a night. */
#ifndef KVB_COMPARE_H
#define KVB_COMPARE_H

#include "results/stats.h"
#include "results/store.h"

/* ---- one side ---- */

struct side_sample {
	const char *id, *context, *status, *message, *question, *gold, *answer, *answer_ids, *prompt_sha256;
	double score; /* NAN unless status is "ok" */
	int scorer_version;
	bool ok;
};
struct side_cell {
	const char *label;           /* "niah-multikey 1024 agnostic snapkv r = 0.3": tells the side's cells apart */
	const char *params;          /* "window=8": the parameters in which the side's cells of this method differ; "" = in none */
	struct cell_row row;         /* counts and means are of the whole database, also where one run was chosen */
	struct side_sample *samples; /* by id */
	int n_samples;
	const char *timed_by;        /* the run; NULL = not timed */
	double *ttft;                /* [n_ttft] ns, after warm-up, by repetition */
	int n_ttft, outliers;        /* of them, by the modified z-score */
	double waited;               /* threads' time without a core, all together, over the time measured; NAN = not known */
	const struct side_cell *full; /* the full cache timed in the same process; NULL = none */
};
struct side_run {
	struct run_row row;
};
struct side {
	char *path;
	char run_id[33];             /* the one chosen; "" = all */
	struct side_run *runs;       /* oldest first; of a chosen run only this */
	struct side_cell *cells;     /* in plan order */
	int n_runs, n_cells;
	char **strings;              /* owner of every text */
	size_t n_strings, cap_strings;
};
/* Of a chosen run only the cells it worked on are there. "PATH" or "PATH:RUN", RUN the first hexadecimal digits of a run's id. An empty database is no error: n_cells is 0. */
int side_load(struct side *s, const char *spec, char err[ERR_LEN]);
void side_free(struct side *s);
const struct side_run *side_newest_run(const struct side *s); /* NULL = none */

/* ---- columns: what a cell is made of, as text ---- */

enum { COMPARE_COLUMNS = 19, COLUMN_TEXT = 512 };
const char *column_name(int column);
const char *column_text(const struct side_cell *c, int column, char buf[COLUMN_TEXT]);
/* Calls each() for every key in which two JSON objects differ, with both values as text; "" = it has none. */
void params_differences(const char *a, const char *b, void (*each)(void *, const char *key, const char *a, const char *b), void *user);

/* ---- the comparison ---- */

struct compare_rules {
	double alpha;       /* of the Holm-adjusted p-values; accuracy and speed are a family each */
	double score;       /* changes of less are "same"; 0 = no margin */
	double ratio, time; /* the same of TTFT over full and of TTFT, as shares: .05 = 5 % */
	double busy;        /* gate: where rounds deviate by more (a share of their median), TTFT itself is not judged */
	double waited;      /* where threads waited longer for a core (a share of the time): nor there, and the ratio by time's margin */
};
enum verdict { SAME, BETTER, WORSE, UNKNOWN }; /* UNKNOWN: nothing shared, or not a number */
extern const char *const verdict_name[];

struct compared {
	const struct side_cell *a, *b;
	struct paired score;
	double score_a, score_b;       /* means over the shared samples */
	double score_p;                /* Holm-adjusted */
	double detectable;             /* the least change that would have been told with power .8 */
	enum verdict score_verdict;
	int answers_changed, answers_changed_alone; /* other answers; of them with the score of before */
	bool ratio_known, time_known;  /* time: only where both were timed on one machine */
	struct speed ratio, time;
	double deviation;              /* of the rounds' times: 1.4826 MAD / median, of the side where it is larger; 0 = not timed */
	double waited;                 /* of the side where threads waited more; NAN = of neither known */
	double ratio_margin;           /* the one that held here */
	double ratio_p, time_p;        /* Holm-adjusted */
	double ratio_detectable;       /* the least change of the ratio that would have been told, power .8, as a share */
	enum verdict ratio_verdict, time_verdict; /* BETTER = faster */
};
struct pooled { /* a method over all its cells of one protocol */
	char label[256];
	struct paired score;
	double score_a, score_b, score_p, detectable;
	enum verdict verdict;
	const struct side_cell *first; /* of side a */
	int cells;
};
struct flip {
	const struct compared *cell;
	const struct side_sample *a, *b;
};
struct unlike { /* what partners are not made of alike */
	const char *column;
	char *key, *a, *b; /* key: of parameters; "" = the column as a whole */
	int cells;         /* pairs with this change */
	const char *first; /* label of the first of them */
};
struct comparison {
	const struct side *a, *b;
	struct compare_rules rules;
	bool differs[COMPARE_COLUMNS]; /* each side has one value, and not the same */
	bool varies[COMPARE_COLUMNS];  /* cells of a side differ in it, and not only as their task or method does: what a table shows */
	struct compared *cells;
	const struct side_cell **only_a, **only_b;
	struct pooled *pools;
	struct unlike *unlike;
	struct flip *flips;            /* samples whose score changed, the largest change first */
	char **refusals;
	bool same_machine;
	int n_cells, n_only_a, n_only_b, n_pools, n_unlike, n_flips, n_refusals;
};
/* Borrows both sides. Always succeeds; look at n_refusals. */
void compare_make(struct comparison *c, const struct side *a, const struct side *b, const struct compare_rules *rules);
void compare_free(struct comparison *c);
bool compare_in_pool(const struct pooled *p, const struct compared *cell);
/* "method parameters, window: A 32, B 8 (4 of 18 cells; the first: ...)", the sides under these names. Fresh. */
char *compare_unlike_text(const struct comparison *c, const struct unlike *x, const char *a, const char *b);

/* format: "text", "json", "md", "latex", "csv". table: "cells" or "flips" for csv; the other formats print both. most_flips: that many are
 * listed. Refusals, where there are any, stand at the top: the caller has been told to force. */
struct compare_output {
	const char *format, *table;
	int most_flips;
};
int compare_print(const struct comparison *c, const struct compare_output *o, struct strbuf *out, char err[ERR_LEN]);

/* ---- the gate ---- */

/* Its margins where none are given: alpha .01; a point of score; 6 % of TTFT over full; 30 % of TTFT, where rounds deviate by 15 % at most: a
 * machine with other work is no measure of the program. `kvbench bench --gate` measures
 * what they are worth. */
extern const struct compare_rules gate_rules;

enum gate_exit { GATE_PASS = 0, GATE_ERROR = 1, GATE_USAGE = 2, GATE_REGRESSION = 3, GATE_INCOMPLETE = 4 };
struct gate_alert {
	struct alert_row row;    /* texts are owned by the gate, but for the level */
	const struct compared *cell; /* NULL = of the night, of a pool, or of a cell without partner */
	const struct pooled *pool;   /* NULL = not of a pool */
};
struct gate {
	enum gate_exit exit;
	struct gate_alert *alerts;   /* regressions, then what is incomplete, then notices */
	int n_alerts, cap_alerts;
};
/* Judges b (tonight) by a (the baseline). */
void gate_judge(struct gate *g, const struct comparison *c);
void gate_add(struct gate *g, const char *level, const char *kind, const char *cell_id, const char *label, const char *message);
void gate_sort(struct gate *g); /* and sets exit from what there is */
void gate_free(struct gate *g);
/* What the history keeps of a night: score, TTFT and its ratio of every cell that has them. The caller frees the array; its texts are the
 * side's. */
struct figure_row *gate_figures(const struct side *night, int *n);

#endif
