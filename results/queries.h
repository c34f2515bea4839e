/* queries.h: the SELECTs that a report prints beside its tables, so that every figure can be had again with the sqlite3 shell, and
 * joined with whatever else one wants to know. The report itself reads rows through store.h; tests hold the two together. Each
 * returns a fresh text; caller frees. Intervals are not in them: results/stats.c computes those from the same rows. */
#ifndef KVB_QUERIES_H
#define KVB_QUERIES_H

#include "results/store.h"

/* What a table stands for: a setting (any cell of it), perhaps one panel of it, perhaps one process. */
struct query_scope {
	const struct cell_row *row; /* target, protocol, mode, topology, precision, seed, versions; NULL = everything */
	bool panel;                 /* only this task and length as well */
	bool figure;                /* only this task, any length */
	const char *run;            /* NULL = all */
};
/* Mean score of each method at each ratio: a row a method, a column a ratio. */
char *query_scores(struct query_scope s, const int *ppm, int n_ppm);
/* Mean score of each method at one ratio (full at 1): a row a method, a column a task and length. */
char *query_tasks(struct query_scope s, int ppm, const struct cell_row *const *panels, int n_panels);
/* Mean over tasks and lengths of the mean difference to the full cache on the same samples: a row a method, a column a ratio. */
char *query_losses(struct query_scope s, const int *ppm, int n_ppm);
/* Medians of every timed part, a row a cell; of the process with most repetitions. */
char *query_times(struct query_scope s);
char *query_device_times(struct query_scope s); /* by the device's own clock, beside the host's */
/* Peak bytes by cell, device and part. */
char *query_memory(struct query_scope s);
/* Mean score by depth (tenths) and length, a row a method and ratio. */
char *query_depths(struct query_scope s);
/* Mean share kept in each layer and head. */
char *query_kept(struct query_scope s);
/* Everything of the samples: rows a viewer filters. */
char *query_samples(struct query_scope s);
/* Of a history file: one series. */
char *query_series(const char *cell_id, const char *figure);
char *query_nights(void);
char *query_trainings(void);
char *query_methods(void);
char *query_task_data(void);
char *query_settings(void);

#endif
