/* store.h: the database of results. store.c is the only file that knows SQL.
 *
 * Everything measured is a row; nothing is averaged before it is stored. The unit that counts is (cell, sample): one commit
 * each (or one small batch, store_begin), so that kill -9 loses at most the sample in flight. One writer a file (a second one
 * gets a clear error); readers may look while it writes. Identity keys are SHA-256 of canonical JSON, so that files of two
 * hosts merge. Strings given may be NULL where nothing is known: they are stored as "". */
#ifndef KVB_STORE_H
#define KVB_STORE_H

#include "harness/base/base.h"

struct store;
/* Creates or opens for writing; takes the writer's lock (PATH.lock); migrates older versions after a copy to PATH.vN; refuses
 * newer ones by number. Disk full, read-only folder, not a database, second writer: one clear error each, nothing lost. */
int store_open(struct store **out, const char *path, char err[ERR_LEN]);
/* report, status, export: takes no lock, checks the file's integrity. What a killed writer left half done is rolled back first; an
 * older version is migrated as store_open would, where the file can be written. */
int store_open_read(struct store **out, const char *path, char err[ERR_LEN]);
void store_close(struct store *s); /* NULL is fine; an open batch is given up */

/* All puts between the two are one commit: group the samples of one batch of answers, no more. After a failed put the others of
 * the batch stay, unless the disk was full or broke: then store_commit fails too, and says so. */
int store_begin(struct store *s, char err[ERR_LEN]);
int store_commit(struct store *s, char err[ERR_LEN]);

/* ---- dimensions: put is idempotent and returns the id (content-addressed) ---- */
struct store_env { /* where it ran and what was built */
	const char *host, *os, *cpu, *isa, *device, *version, *build_flags, *libraries; /* libraries: "sqlite 3.40.1, jansson 2.14, ..." */
	const char *commit;
	bool dirty;
	int threads;
	int64_t ram_bytes;
};
struct store_model {
	const char *role, *name, *path, *arch, *dtype, *sha256, *tokenizer_sha256, *chat_template, *template_sha256;
	int64_t params, kv_bytes_per_token;
	int layers, kv_heads, head_dim;
};
struct store_method {
	const char *name, *params;  /* params: canonical JSON of the effective parameters */
	int version;
	const char *origin;         /* where the defaults come from, for the report; not part of the identity */
};
struct store_task {
	const char *name, *metric, *data_sha256, *template_sha256, *params; /* params: canonical JSON of the request */
	const char *variant;        /* how the texts were made, where there are several ways */
	const char *data_state;     /* "pinned" | "recorded" | "unpinned"; "" = generated. Not part of the identity: the newest is kept */
	int version;
	bool binary_metric;
};
int store_put_env(struct store *s, const struct store_env *e, char id[SHA_LEN], char err[ERR_LEN]);
int store_put_model(struct store *s, const struct store_model *m, char id[SHA_LEN], char err[ERR_LEN]);
int store_put_method(struct store *s, const struct store_method *m, char id[SHA_LEN], char err[ERR_LEN]);
int store_put_task(struct store *s, const struct store_task *t, char id[SHA_LEN], char err[ERR_LEN]);

/* cell = pair x task x length x protocol x mode x variant */
struct store_cell {
	const char *target_id, *proxy_id; /* proxy_id NULL = none */
	const char *method_id, *task_id;
	int retained_ppm;
	int64_t context_tokens;           /* requested length; 0 = the data's own */
	const char *protocol;             /* "agnostic" | "aware" */
	const char *mode;                 /* "single" | "multi-turn" | "multi-request" */
	const char *topology;             /* runner_info: "cpu", "gpu", "shared", "dual", ... */
	const char *precision;
	uint64_t seed;
	int measure_version;              /* version of the measuring procedure */
	int samples_planned;              /* not part of the identity */
};
int store_put_cell(struct store *s, const struct store_cell *c, char id[SHA_LEN], char err[ERR_LEN]);

/* ---- a run = one process ---- */
int store_run_begin(struct store *s, const char *env_id, const char *argv_json, const char *plan_json, char run_id[33], char err[ERR_LEN]);
int store_run_end(struct store *s, const char *run_id, int exit_code, char err[ERR_LEN]);

/* ---- samples ---- */
struct store_sample {
	const char *cell_id, *run_id, *sample_id, *context_id; /* context_id: the cluster */
	const char *status, *message;     /* "ok" | "failed" | "oom" | "not-applicable"; "" */
	const char *prompt_sha256, *answer, *answer_ids, *gold; /* answer_ids: JSON array; gold: JSON array */
	const char *question;
	const char *metric, *also_metric; /* also_metric: a second one; NULL = none */
	double score, also_score;         /* NAN = none (status not ok) */
	int scorer_version;
	const char *finish;               /* "stop" | "length" | "none" */
	int flags;
	int prefix_tokens, context_tokens, question_tokens, answer_tokens;
	const char *group;                /* part of the task; NULL = none */
	const char *truncation;           /* "text" | "ids"; NULL = nothing was left out */
	int64_t cut_tokens;               /* left out of the context's middle */
	double depth;                     /* NAN = not known */
	int64_t needle_token, needle_char; /* negative = not counted */
	const int32_t *kept;              /* [n_kept = layers*kv_heads], may be NULL */
	int n_kept;
	int64_t kept_total, kv_bytes_full, kv_bytes_kept;
	int64_t oom_bytes, oom_free_bytes; /* asked for, 0 = memory was not what failed; free then where it was asked for (message), negative = not known */
};
int store_put_sample(struct store *s, const struct store_sample *p, char err[ERR_LEN]); /* own commit; same key again = replaced only if the old one was not "ok" */
/* An "ok" or "not-applicable" row exists, or one of any status that this run wrote (run_id NULL or "": none). */
bool store_has_sample(struct store *s, const char *cell_id, const char *sample_id, const char *run_id);
/* New scores of a stored "ok" answer; nothing else of the row changes. also_score NAN = none. */
int store_put_score(struct store *s, const char *cell_id, const char *sample_id, double score, double also_score, int scorer_version,
	char err[ERR_LEN]);

/* ---- timings: raw repetitions ---- */
struct store_timing {
	const char *cell_id, *run_id, *phase; /* prefill score select compact question first_token ttft second_ttft decode; details (in no
					       * sum): second_pass proxy_prefill mapper wait allocate gather */
	int repetition;
	bool warmup;
	const char *clock;                    /* "host" | "cuda_event" */
	int64_t duration_ns;
	int64_t tokens, peak_bytes, kv_bytes_before, kv_bytes_after;
};
int store_put_timings(struct store *s, const struct store_timing *t, size_t n, char err[ERR_LEN]); /* one commit */
/* Peak bytes of one part on one device (0 = the target's); the largest of a run's repetitions stays. */
struct store_memory {
	const char *cell_id, *run_id, *part;  /* total weights kv activations scores proxy compaction */
	int device;
	int64_t peak_bytes;
};
int store_put_memory(struct store *s, const struct store_memory *m, char err[ERR_LEN]);
/* prefill_floor_ns, second_pass_floor_ns, waited_ppm (schema.sql, timing_fact); the least value of a run stays. */
struct store_fact {
	const char *cell_id, *run_id, *name;
	int64_t value;
};
int store_put_fact(struct store *s, const struct store_fact *p, char err[ERR_LEN]);
int store_count_timings(struct store *s, const char *cell_id); /* ttft repetitions that are not warm-up, of the run that has most */

/* ---- reading: plain rows; strings live until the callback returns; a callback's non-zero answer ends the reading and is
 * returned ---- */
struct cell_row { /* one cell with everything it is made of and what was measured */
	const char *cell_id, *target, *proxy, *method, *method_params, *method_origin, *task, *task_params, *task_variant, *data_state, *metric, *protocol, *mode, *topology, *precision, *dtype;
	int retained_ppm;
	int64_t context_tokens;
	bool binary_metric;
	int planned, ok, failed, oom, not_applicable, empty, length_finish;
	double score_mean;          /* over ok samples; NAN = none */
	const char *also_metric;    /* the second metric of its samples; NULL = none */
	double also_mean;           /* over ok samples that have one */
	int also_n;                 /* how many have one */
	int cut;                    /* ok samples whose context lost its middle */
	double retained_mean;       /* realised, over ok samples */
	int64_t kv_bytes_full, kv_bytes_kept; /* mean over ok samples */
	int layers, kv_heads;
	int timing_repetitions;     /* as store_count_timings */
	int measure_version;
	int scorer_oldest, scorer_version; /* of its samples; 0 = none. They differ: `kvbench score DB` makes them one */
	uint64_t seed;
	const char *target_sha256, *proxy_sha256; /* proxy: "" = none */
	int task_version;
	const char *data_sha256, *template_sha256;
};
int store_cells(struct store *s, int (*row)(void *user, const struct cell_row *c), void *user, char err[ERR_LEN]); /* in plan order */
/* All samples of a cell, ordered by sample id; score is NAN unless status is "ok". */
struct score_row {
	const char *sample_id, *context_id, *answer, *gold, *question, *status, *message, *finish;
	const char *metric, *also_metric, *group, *truncation;
	double score, also_score, depth, retained;
	int flags, context_tokens, answer_tokens, scorer_version;
	int64_t cut_tokens, needle_token, needle_char; /* needle: -1 = not counted */
	const int32_t *kept;        /* [n_kept] or NULL */
	int n_kept;
	const char *run_id, *prompt_sha256, *answer_ids;
};
int store_samples(struct store *s, const char *cell_id, int (*row)(void *user, const struct score_row *r), void *user, char err[ERR_LEN]);
/* Raw repetitions by the host's clock of one run, the one with most of them (the newest among equals): figures of two processes never
 * mix, nor do those of two clocks. */
struct timing_row {
	const char *run_id, *phase;
	int repetition;
	bool warmup;
	int64_t duration_ns, tokens, peak_bytes, kv_bytes_before, kv_bytes_after;
};
int store_timings(struct store *s, const char *cell_id, int (*row)(void *user, const struct timing_row *r), void *user, char err[ERR_LEN]);
/* The same of a run that is named; NULL = as store_timings. */
int store_timings_of(struct store *s, const char *cell_id, const char *run_id, int (*row)(void *user, const struct timing_row *r),
	void *user, char err[ERR_LEN]);
/* The parts and the whole of the same repetitions by the device's own clock; none where it has none (the CPU). */
int store_device_timings_of(struct store *s, const char *cell_id, const char *run_id,
	int (*row)(void *user, const struct timing_row *r), void *user, char err[ERR_LEN]);
/* Facts of the run that store_timings_of reads. */
int store_facts_of(struct store *s, const char *cell_id, const char *run_id, int (*row)(void *user, const char *name, int64_t value),
	void *user, char err[ERR_LEN]);
/* Peak bytes by device and part, of the run that store_timings reads. */
int store_memory(struct store *s, const char *cell_id, int (*row)(void *user, int device, const char *part, int64_t peak_bytes),
	void *user, char err[ERR_LEN]);
/* Every process that wrote here, oldest first. machine: what must be equal for absolute times to be compared. */
struct run_row {
	const char *run_id, *version, *commit, *argv, *plan, *machine;
	bool dirty;
	int64_t started_unix_ms, ended_unix_ms; /* ended: 0 = not yet, or killed; then exit_code is -1 */
	int exit_code;
};
int store_runs(struct store *s, int (*row)(void *user, const struct run_row *r), void *user, char err[ERR_LEN]);
/* SHA-256 over every answer, score and time to first token: two files with the same digest hold the same results. */
int store_digest(struct store *s, char digest[SHA_LEN], char err[ERR_LEN]);
/* Name/value pairs of the newest run: environment, models, argv, plan, start and end. */
int store_settings(struct store *s, int (*row)(void *user, const char *group, const char *name, const char *value), void *user, char err[ERR_LEN]);

/* ---- training (store_training.c): one row a training, one a step and term; rows are small: group them by store_begin ---- */

struct store_training {
	const char *kind, *name;    /* "proxykv", "lkv", "kvmlp", ...; the name of the weights */
	const char *config;         /* JSON object: every setting of the method, defaults filled in */
	uint64_t seed;
	const char *env_id;         /* of store_put_env; NULL = not known */
	const char *target_sha256, *proxy_sha256; /* of the models' files; proxy NULL = none */
	const char *contexts;       /* JSON array: SHA-256 of each context seen; NULL = [] */
};
/* Gives a fresh id (32 hex digits): keep it in the checkpoint, and go on with it after a resume. Texts are copied. 0, or -1 + err. */
int store_training_begin(struct store *s, const struct store_training *t, char training_id[33], char err[ERR_LEN]);
/* One value of one term ("loss", "L_bin", "recall@0.1", "lr", ...) at one step; the same (term, step) again replaces it, as a resume
 * from an older checkpoint does. NAN is stored as such. */
int store_training_step(struct store *s, const char *training_id, int64_t step, const char *term, double value, char err[ERR_LEN]);
/* Ended well: where the weights lie and the SHA-256 of that file. */
int store_training_end(struct store *s, const char *training_id, const char *weights_path, const char *weights_sha256, char err[ERR_LEN]);

struct training_row {
	const char *training_id, *kind, *name, *config, *target_sha256, *proxy_sha256, *contexts, *weights_path, *weights_sha256;
	uint64_t seed;
	int64_t started_unix_ms, ended_unix_ms; /* ended: 0 = not yet, or killed */
	int64_t steps;                          /* the highest step stored; -1 = none */
};
int store_trainings(struct store *s, int (*row)(void *user, const struct training_row *t), void *user, char err[ERR_LEN]); /* oldest first */
/* Its curves: by term, then step. value is NAN where it was not a number. */
int store_training_steps(struct store *s, const char *training_id, int (*row)(void *user, const char *term, int64_t step, double value),
	void *user, char err[ERR_LEN]);

/* ---- history (store_history.c): baselines and nights, in a file of their own beside the nights' databases ---- */

struct baseline_row {
	const char *name, *database, *run_id, *digest, *commit, *why; /* database: relative to the history's folder where below it */
	int version;                /* 1 = as set, 2.. = moved; the highest holds */
	int64_t set_unix_ms;
};
int store_put_baseline(struct store *s, const struct baseline_row *b, char err[ERR_LEN]); /* set_unix_ms is filled in; never replaces */
int store_baselines(struct store *s, int (*row)(void *user, const struct baseline_row *b), void *user, char err[ERR_LEN]); /* by name, version */

struct night_row {
	const char *night_id, *database, *commit, *machine, *baseline; /* baseline "" = there was none */
	int baseline_version, exit_code;
	int64_t started_unix_ms;
};
struct figure_row {
	const char *cell_id, *figure, *label; /* "score", "ttft_ns", "ttft_of_full"; label: the cell in words */
	double value;
	int n;                      /* samples, or repetitions */
};
struct alert_row {
	const char *level, *kind;   /* "regression" | "incomplete" | "notice"; "accuracy", "ttft ratio", "ttft", ... */
	const char *cell_id, *label, *message; /* cell_id "" = of the night */
	double old, new_, lo, hi;   /* NAN = none; lo..hi: 95 % interval of the change */
	int n;
};
/* A night with all its rows in one commit; the same night again replaces what was there. */
int store_put_night(struct store *s, const struct night_row *n, const struct figure_row *figures, int n_figures,
	const struct alert_row *alerts, int n_alerts, char err[ERR_LEN]);
int store_nights(struct store *s, int (*row)(void *user, const struct night_row *n), void *user, char err[ERR_LEN]); /* oldest first */
/* By label and figure, oldest night first: a series is a run of rows with equal cell_id and figure. */
int store_night_figures(struct store *s, int (*row)(void *user, const struct night_row *n, const struct figure_row *f), void *user,
	char err[ERR_LEN]);
int store_alerts(struct store *s, const char *night_id, int (*row)(void *user, const struct alert_row *a), void *user, char err[ERR_LEN]);

/* ---- whole files (store_merge.c) ---- */

struct store_merge { /* what came in, over all sources; rows that were there already are not counted */
	int64_t samples, timings, replaced, conflicts; /* replaced: by the same sample of a later source, answered there or older */
};
/* Adds every row of the database at `path` (not the one s writes to). The same set of files gives the same tables in any order. Of
 * two rows with one key an answered one stays, of two equal ones the older. Two that contradict each other are a conflict: handed to
 * `conflict` in words, and the older stays. One commit a source. */
int store_merge_from(struct store *s, const char *path, struct store_merge *sum,
	void (*conflict)(void *user, const char *table, const char *row, const char *what), void *user, char err[ERR_LEN]);
/* Rows whose identity is not the hash of what they say: changed by hand. bad's non-zero answer ends it and is returned. */
int store_check_identities(
	struct store *s, int (*bad)(void *user, const char *table, const char *id), void *user, char err[ERR_LEN]);

/* ---- schema versions ---- */
enum { STORE_VERSION = 4 }; /* user_version of results/schema.sql */
struct store_schema {
	int version;
	const char *create;         /* makes an empty file the newest version */
	const char *const *steps;   /* [version - 1]: steps[i] leads from version i + 1 to i + 2 */
};
/* store_open with another schema: store_open itself uses schema.sql and STORE_VERSION; tests show the migration with a later one. */
int store_open_schema(struct store **out, const char *path, const struct store_schema *schema, char err[ERR_LEN]);

#endif
