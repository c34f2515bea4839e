/* data.h: the whole database in memory, arranged as the report needs it. Inside report/ only.
 *
 * A *panel* is what may stand in one chart or table: same pair's target, task, length, protocol, mode, topology, precision, seed
 * and versions; so two protocols never meet. A *figure* is the run of panels that differ in length only. A *setting* is the run of
 * panels that differ in task and length only. A *variant* is a method with its parameters and its proxy, without the ratio; a
 * panel's cells are variants x ratios. */
#ifndef KVB_REPORT_DATA_H
#define KVB_REPORT_DATA_H

#include "results/stats.h"
#include "results/store.h"

/* Flags of a sample as the runner sets them (schema.sql). */
enum { SAMPLE_ALL_KEPT = 1, SAMPLE_WINDOW_CUT = 2, SAMPLE_BEYOND_TRAINED = 4, SAMPLE_FLAGS = 5 /* bits */ };

/* The six parts of time to first token in their order, what is measured beside them, then details that are in no sum. */
enum phase {
	PREFILL,
	SCORE,
	SELECT,
	COMPACT,
	QUESTION,
	FIRST_TOKEN,
	TTFT,
	SECOND_TTFT,
	DECODE,
	SECOND_PASS,
	PROXY_PREFILL,
	MAPPER,
	WAIT,
	ALLOCATE,
	GATHER,
	N_PHASES
};
enum { N_PARTS = FIRST_TOKEN + 1, FIRST_DETAIL = SECOND_PASS };
extern const char *const phase_name[N_PHASES]; /* as in the database */

struct spread {
	double median, p10, p90; /* ns; NAN = not measured */
	int n;
};

struct sample {
	const char *id, *context, *answer, *gold, *question, *status, *message, *prompt, *group;
	double score, retained, depth; /* depth: of the needle, 0..1; NAN = none */
	int flags;
	bool ok, empty, cut; /* cut: the context lost its middle, or the answer ended by length */
};

struct memory_part {
	const char *part;
	int device; /* 0 = the target's */
	int64_t peak_bytes;
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
	double device_time[TTFT + 1]; /* medians of the parts and the whole by the device's own clock; NAN = it has none */
	double parts_of_whole; /* parts of all repetitions over their times to first token; 1 = nothing is missing */
	const char *timed_by;  /* the run */
	int64_t decode_tokens, peak_bytes, kv_before, kv_after;
	double prefill_floor, second_pass_floor; /* ns: their arithmetic at the machine's measured peak; NAN = not known */
	double waited; /* threads' time without a core, all together, over the time measured; NAN = not known */
	struct memory_part *memory; /* where the peak lies; NULL = not recorded */
	int n_memory;
	const char *message; /* of the first sample that was not ok; "" */
};

struct variant {
	const char *name, *params, *origin, *proxy;
	char label[160]; /* the name, with what tells it from others of the same name */
	bool full, random, control; /* control: these two, and the static head prior, which knows nothing of a context */
	int colour; /* counts variants that are not controls; -1 for controls */
};

struct panel {
	const struct cell_row *row; /* any of its cells: everything but method and ratio */
	int figure, setting;
	char title[208]; /* "niah-multikey · 2048 tokens"; unique within the protocol */
};

struct strings; /* owner of every text of a struct data; equal texts are one */

struct data {
	struct cell *cells;
	int n_cells;
	struct variant *variants;
	int n_variants;
	struct panel *panels; /* ordered: target, protocol, ..., task, length */
	int n_panels, n_figures, n_settings;
	int *ppm, n_ppm;   /* all ratios, ascending */
	int reference_ppm; /* the ratio below 1 that most cells have; the nearest to .3 among equals; 0 = none */
	int *index;        /* [panel][variant][ratio]: cell or -1 */
	int *setting_of;   /* first panel of each setting */
	struct strings *strings;
};

/* run: only this process's samples and times; NULL = all. */
int data_load(struct data *d, struct store *s, const char *run, char err[ERR_LEN]);
void data_free(struct data *d);
/* The text, owned by d; equal texts give equal pointers. */
const char *data_keep(struct data *d, const char *s);

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
/* The variant has a cell in the panel. */
bool data_in_panel(const struct data *d, int panel, int variant);
/* Small integers for the contexts of a cell's samples, as the bootstrap wants them: [n_samples], caller frees. */
int *cell_contexts(const struct cell *c);

#endif
