/* data.h: the whole database in memory, arranged as the report needs it. Inside report/ only.
 *
 * A *panel* is what may stand in one chart or table: same pair's target, task, length, protocol, mode, topology, precision, seed
 * and versions; so two protocols never meet. A *figure* is the run of panels that differ in length only. A *variant* is a method
 * with its parameters and its proxy, without the ratio; a panel's cells are variants x ratios. */
#ifndef KVB_REPORT_DATA_H
#define KVB_REPORT_DATA_H

#include "results/stats.h"
#include "results/store.h"

/* Flags of a sample as the runner sets them (schema.sql). */
enum { SAMPLE_ALL_KEPT = 1, SAMPLE_WINDOW_CUT = 2, SAMPLE_BEYOND_TRAINED = 4, SAMPLE_FLAGS = 5 /* bits */ };

/* The six parts of time to first token in their order, then what is measured beside them. */
enum phase { PREFILL, SCORE, SELECT, COMPACT, QUESTION, FIRST_TOKEN, TTFT, SECOND_TTFT, DECODE, N_PHASES };
enum { N_PARTS = FIRST_TOKEN + 1 };
extern const char *const phase_name[N_PHASES]; /* as in the database */

struct spread {
	double median, p10, p90; /* ns; NAN = not measured */
	int n;
};

struct sample {
	const char *id, *context, *answer, *gold, *question, *status, *message;
	double score, retained;
	int flags;
	bool ok, empty;
};

struct cell {
	struct cell_row row;
	int panel, variant;
	struct interval score;  /* Wilson for 0/1 metrics, else bootstrap by context */
	struct sample *samples; /* ordered by id */
	int n_samples;
	int flag_count[SAMPLE_FLAGS];
	double *kept; /* [layers * kv_heads] mean share of the context kept in each head; NULL = not known */
	double kept_least, kept_most;
	struct spread time[N_PHASES];
	double parts_of_whole;         /* parts of all repetitions over their times to first token; 1 = nothing is missing */
	const char *timed_by; /* the run */
	int64_t decode_tokens, peak_bytes, kv_before, kv_after;
	const char *message; /* of the first sample that was not ok; "" */
};

struct variant {
	const char *name, *params, *origin, *proxy;
	char label[160]; /* the name, with what tells it from others of the same name */
	bool full, random;
	int colour; /* counts variants that are not controls; -1 for controls */
};

struct panel {
	const struct cell_row *row; /* any of its cells: everything but method and ratio */
	int figure;
	char title[208]; /* "niah-multikey · 2048 tokens"; unique within the protocol */
};

struct data {
	struct cell *cells;
	int n_cells;
	struct variant *variants;
	int n_variants;
	struct panel *panels; /* ordered: target, protocol, ..., task, length */
	int n_panels, n_figures;
	int *ppm, n_ppm;   /* all ratios, ascending */
	int reference_ppm; /* the ratio below 1 that most cells have; the nearest to .3 among equals; 0 = none */
	char **strings;    /* owner of every text above */
	size_t n_strings, cap_strings;
};

int data_load(struct data *d, struct store *s, char err[ERR_LEN]);
void data_free(struct data *d);

/* Equal in everything but the task and the length. */
bool data_same_setting(const struct cell_row *a, const struct cell_row *b);
/* NULL = no such cell. */
const struct cell *data_cell(const struct data *d, int panel, int variant, int ppm);
/* The panel's control: "full" (at any ratio: 1) or "random" at ppm. NULL = not measured. */
const struct cell *data_full(const struct data *d, int panel);
const struct cell *data_random(const struct data *d, int panel, int ppm);
/* The sample of that id, or NULL. */
const struct sample *cell_sample(const struct cell *c, const char *id);
bool cell_timed(const struct cell *c);
/* TTFT over the full cache's in the same process; NAN when they were not timed together. */
double data_ttft_ratio(const struct data *d, const struct cell *c);
/* The second metric of the panel's answers; NULL = they have one only. */
const char *data_also_metric(const struct data *d, int panel);
/* The ratio below 1 that most timed cells of the panel have (nearest to .3 among equals); 0 = none. */
int data_timed_ppm(const struct data *d, int panel);

#endif
