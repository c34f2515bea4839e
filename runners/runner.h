/* runner.h: the border the harness sees: a target (and a proxy) that answers and is timed. No tensor in it.
 *
 * A runner owns its models, device, thread pool and scratch memory. It knows nothing of tasks, scores of answers, databases.
 * One caller at a time an instance. Errors: 0 or -1 + err; a failure of one variant is a row (status, message), not an error. */
#ifndef KVB_RUNNER_H
#define KVB_RUNNER_H

#include "harness/base/base.h"

struct runner;

struct runner_options {
	const char *target;      /* folder, .gguf, "random:CONFIG.json[:SEED]", or a name under models_dir (tiny-pair/target) */
	const char *proxy;       /* NULL = none */
	const char *models_dir;  /* where names are looked up; NULL = runners/model beside the executable */
	const char *device;      /* "auto" (a GPU if one is usable, else the CPU), "cpu", "cuda", "cuda:N" */
	const char *precision;   /* "fp32" | "bf16"; NULL = bf16 */
	const char *isa;         /* NULL = the best this CPU has; "amx", "avx512bf16", "avx512", "avx2", "reference" */
	int threads;             /* 0 = all cores */
	int64_t memory_bytes;    /* 0 = min(MemAvailable, cgroup limit) */
	bool allow_long;         /* contexts beyond the model's max positions: allowed, flagged in the row */
	const char *chat_template; /* NULL = by the model's own template; "raw" */
	int proxy_threads;       /* CPU: the proxy runs beside the target's prefill on so many of the threads; 0 = in turn, on all of them */
	const char *proxy_device; /* NULL = the target's: on a GPU the proxy's work then gives way to the target's */
	const char *attention;   /* NULL, "own": our kernels; "cudnn": a GPU's prefill attention by cuDNN where it takes it, never on a CPU */
	bool kv_offload;         /* GPU: caches live in the host's memory and are streamed by layer */
	bool names_if_lost;      /* see runner_open */
	const char *weights_dir; /* where trained files are looked for first; NULL = KVBENCH_CALIBRATION, or the user's cache */
};

/* Whether a runner could be opened on this device; what: its hardware, or one sentence why not. Needs no runner. */
enum { DEVICE_NAME_LEN = 128 };
bool runner_device_usable(const char *device, char what[DEVICE_NAME_LEN]);
/* What a device is called in results: "auto" is the one that would be opened ("cuda:0", "cpu"); an emulated one says so. */
void runner_device_name(const char *device, char name[DEVICE_NAME_LEN]);

/* Whether the options name what there is somewhere: devices, precision, instruction set, attention, chat template; models are not looked
 * for. Needs no runner. */
int runner_names_check(const struct runner_options *o, char err[ERR_LEN]);

/* -1 + err. With names_if_lost, where a device was lost while weights went there (a GPU's sticky error), *out is then a runner that knows
 * what everything is called, counts tokens and answers runner_lost, and can do nothing else; the caller closes it. */
int runner_open(struct runner **out, const struct runner_options *o, char err[ERR_LEN]);
void runner_close(struct runner *r); /* NULL is fine */
/* The error that lost a device of the runner to this process (a GPU's sticky error): nothing will work here any more, a new process may.
 * NULL = none is lost. */
const char *runner_lost(const struct runner *r);

struct runner_info {
	char name[128];          /* last part of the path */
	const char *path, *arch, *dtype, *chat_template, *device, *isa;
	/* Where target and proxy run, and what of it can change bits or times: "cpu"; "gpu" (no proxy); both on one GPU "shared", on two "dual";
	 * one of them on the CPU "proxy-cpu", "proxy-gpu". "+offload": caches on the host (kv_offload). "+cudnn": attention by cuDNN. "emulated-":
	 * no GPU at all. */
	char topology[48];
	char isa_why[128];       /* why this kernel path was chosen */
	const char *model_sha256, *tokenizer_sha256, *template_sha256;
	int64_t params, weight_bytes, kv_bytes_per_token, max_positions, memory_limit_bytes;
	int layers, heads, kv_heads, head_dim, hidden, vocab, threads;
	const char *proxy_path;  /* NULL = none */
	char proxy_name[128];
	const char *proxy_sha256, *proxy_arch; /* "" = none */
	int64_t proxy_params, proxy_weight_bytes, proxy_kv_bytes_per_token;
	int proxy_layers, proxy_heads, proxy_kv_heads, proxy_head_dim, proxy_threads;
	const char *trained_folder; /* where trained files are looked for, the embedded ones after them */
};
const struct runner_info *runner_info(const struct runner *r);

/* Ids the template puts before and after a user turn, and ids the tokenizer itself puts before plain text (BOS): what length-fitting
 * tasks take off their budget. chat = false: a raw prompt. */
struct runner_overhead {
	int head, tail, special;
};
struct runner_overhead runner_overhead(struct runner *r, bool chat, const char *system);

/* Tokens of plain text (no specials added): the unit tasks measure length in. Negative on error. */
int64_t runner_count_tokens(struct runner *r, const char *text, size_t len);
/* Bytes of text that its first n tokens stand for; they may end inside a character. Where tokens do not spell the text (NFC changes
 * it, bytes have no token), the longest prefix cut at a character that a search finds to have at most n tokens by itself. */
size_t runner_cut_tokens(struct runner *r, const char *text, size_t len, int64_t n);

/* ---- methods ---- */

/* A method by name: "snapkv", "kvzip", "snapkv@pyramid" (scorer@allocator), with overriding options as a JSON object text. */
struct runner_variant {
	const char *method;
	double retained;         /* r: share of context entries kept, 0 < r <= 1 */
	const char *options;     /* NULL = defaults */
};
/* Effective parameters of a method, all defaults filled in, as canonical JSON (sorted keys, no spaces): what the store keeps.
 * An unknown method, allocator or option is an error that suggests the nearest name. Needs no runner. */
int runner_method_resolve(const char *method, const char *options, char **canonical, char err[ERR_LEN]);
/* Whether what it needs whatever the target is there: a proxy, and files that its options name. -1 + err: it is not. Needs no runner. */
int runner_method_check(const char *method, const char *options, bool proxy, char err[ERR_LEN]);
/* One line of `kvbench list methods`. kind: "method", "scorer", "allocator". origin: where the defaults come from. */
struct runner_method_info {
	const char *kind, *name, *title, *origin, *parameters; /* parameters: "window=32 (SnapKV LongBench runs), ..." */
};
size_t runner_method_count(void);
struct runner_method_info runner_method_at(size_t i);
size_t runner_arch_count(void);
const char *runner_arch_at(size_t i);
size_t runner_template_count(void);
const char *runner_template_at(size_t i);

/* ---- answering: one prefill, every variant ---- */

enum runner_protocol { PROTOCOL_AGNOSTIC, PROTOCOL_AWARE };
enum runner_status { ANSWER_OK, ANSWER_FAILED, ANSWER_OOM, ANSWER_NOT_APPLICABLE };
enum runner_finish { FINISH_STOP, FINISH_LENGTH };
enum { /* flags of an answer */
	FLAG_ALL_KEPT = 1,        /* the context is not longer than what must be kept: nothing was pruned */
	FLAG_WINDOW_CUT = 2,      /* budget below the protected part: only its last entries were kept */
	FLAG_BEYOND_TRAINED = 4,  /* longer than the model's max positions (allow_long) */
	FLAG_EMPTY = 8,           /* the answer has no text */
	FLAG_NAN = 16             /* scores had NaN: the row is failed, never compared */
};

struct runner_turn { /* an earlier turn of a multi-turn session, as the data has it */
	const char *question, *golden; /* golden: what stands for the answer */
};
struct runner_question {
	const char *text;          /* follows the context inside the user turn; brings its own leading separator */
	const struct runner_turn *history; /* earlier turns, fed (never generated) before this question; NULL = none */
	int n_history;
	const char *answer_prefix; /* starts the answer ("Answer:"); NULL or "" = none; not part of the returned text */
	int max_new_tokens, min_new_tokens; /* before min_new_tokens neither an end token nor a stop may come; 0 = at once */
	const char *const *stops;  /* the answer ends before the first of these strings; n_stops may be 0 */
	int n_stops;
};

struct runner_answer { /* everything is borrowed for the time of the callback */
	int question, variant;
	enum runner_status status;
	const char *message;       /* why, when not OK; "" else */
	const char *text;          /* special tokens left out */
	const int32_t *ids;        /* new tokens, the end token included when it came */
	int n_ids;
	enum runner_finish finish;
	int flags;
	int prefix_tokens, context_tokens, question_tokens;
	const int32_t *prompt_ids; /* prefix, context, question in order */
	char prompt_sha256[SHA_LEN]; /* over the prompt's ids */
	const int32_t *kept;       /* [layers*kv_heads] context entries kept, counted in the cache itself */
	int64_t kept_total;        /* sum of kept; context_tokens*layers*kv_heads = all */
	int64_t kv_bytes_full, kv_bytes_kept;
	int64_t oom_bytes, oom_free_bytes; /* with ANSWER_OOM: what was asked for, and what was free there then, on a device or on the host (message); negative = not known */
};

struct runner_job {
	const char *system;        /* NULL = the template's default */
	const char *context;
	int drop_from, drop_tokens; /* context ids [drop_from, +drop_tokens) are left out: a middle cut on ids; 0, 0 = whole */
	bool chat;                 /* false: no template around it (raw), whatever the model has */
	const char *user_turn;     /* not NULL: a whole user turn, context/questions' text unused, full cache only */
	const struct runner_question *questions;
	int n_questions;
	enum runner_protocol protocol;
	const struct runner_variant *variants;
	int n_variants;
	void *user;
	bool (*wanted)(void *user, int question, int variant);        /* NULL = all; false = already in the store */
	void (*done)(void *user, const struct runner_answer *a);      /* once for each wanted pair, any order */
	void (*progress)(void *user, const char *phase, int64_t done, int64_t total); /* tokens; may be NULL */
	bool (*stop)(void *user);  /* polled between forward calls; true = give up, runner_answer returns 1. May be NULL */
};
/* Agnostic: prefill prefix+context once, score once per scorer, then all (variant, question) pairs decode in batches against the
 * shared cache. Aware: one prefill for each question; context entries alone are evicted, the question always stays. Questions with a
 * history belong to one session: aware then prunes once, with the session's first question in sight.
 * Returns 0, 1 when stopped, -1 when nothing could be done at all (context does not fit, tokeniser error). */
int runner_answer(struct runner *r, const struct runner_job *job, char err[ERR_LEN]);

/* Counters since the runner was opened: for tests and what `ask` and `run` print at their end. */
enum { RUNNER_SCORERS = 40 }; /* more than there are */
struct runner_counters {
	int64_t prefills, prefill_tokens, scorer_passes, forward_calls, decode_tokens, proxy_passes;
	int64_t prefill_ns, score_ns, decode_ns; /* of answering; what scorers do inside a prefill counts as scoring */
	struct {
		const char *name; /* NULL = no further one; "proxy": waiting for the proxy's run */
		int64_t ns;
	} scorer[RUNNER_SCORERS]; /* parts of score_ns, in the order of first use */
};
struct runner_counters runner_counters(const struct runner *r);

/* ---- timing: the true pipeline of one variant from an empty cache; shares nothing with runner_answer ---- */

struct runner_device_time { /* the same seven by the device's own clock, from marks in the target's queue */
	int64_t prefill_ns, score_ns, select_ns, compact_ns, question_ns, first_token_ns, ttft_ns;
};
struct runner_timing { /* ns on the monotonic clock; ttft = sum of the six parts within 2 % (measured on its own) */
	int64_t prefill_ns, score_ns, select_ns, compact_ns, question_ns, first_token_ns, ttft_ns;
	int64_t second_ttft_ns;    /* a second question on the pruned cache: its prefill + first token */
	int64_t decode_ns;         /* decode_tokens further tokens, end tokens ignored */
	/* details, in no sum; 0 = the method has none: second_pass, mapper, wait lie in score, allocate in select, gather in compact;
	 * proxy_prefill in score, or beside the target's prefill where it ran at the same time; the mapper too, where the proxy's GPU maps */
	int64_t second_pass_ns, proxy_prefill_ns, mapper_ns, wait_ns, allocate_ns, gather_ns;
	int decode_tokens;
	int64_t peak_bytes, kv_bytes_before, kv_bytes_after; /* peak: the proxy's too, where the method has one */
	int64_t proxy_peak_bytes, proxy_after_bytes; /* on the proxy's device, weights included; after: when it has scored. 0 = none */
	int context_tokens;
	int64_t kept_total;
	double prefill_flops, second_pass_flops; /* arithmetic they need: model_prefill_flops; of a second pass over the model, 0 = none */
	struct runner_device_time device; /* ttft 0 = the device has no clock of its own (the CPU) */
};
/* One repetition for job->questions[0] and variant v (compact() is physical here). status as in an answer. */
int runner_time(struct runner *r, const struct runner_job *job, int v, int decode_tokens, struct runner_timing *out, char err[ERR_LEN]);
/* FLOP/s of the target's device in its precision, the best of some rounds (CPU: about a second): what the arithmetic above is set
 * against. 0 = not known (an emulated device). */
double runner_peak_flops(struct runner *r);

/* ---- continuing: a text's last tokens read from the cache that each variant pruned, beside the full cache ---- */
struct runner_continuation { /* one variant; means over the given tokens but the first, nats */
	int variant;
	enum runner_status status;
	const char *message;     /* why, when not OK; "" else */
	int context_tokens, tokens; /* what was pruned; tokens compared */
	int64_t kept_total;
	double kl;               /* KL divergence of the next token's distribution from the full cache's */
	double nll, agree;       /* of the text's own next token; share of tokens whose best one is the full cache's */
};
/* Prunes the job's context without its last `tokens` ids, then feeds those. Questions play no part. done: each variant once, at the end.
 * 0, 1 = stopped, -1 + err. */
int runner_continue(struct runner *r, const struct runner_job *job, int tokens,
	void (*done)(void *user, const struct runner_continuation *c), char err[ERR_LEN]);

/* What a context of n tokens would need, before anything is allocated. */
struct runner_estimate {
	int64_t weights_bytes, kv_bytes, scratch_bytes, scores_bytes, variants_bytes, proxy_bytes, total_bytes, limit_bytes;
};
struct runner_estimate runner_estimate(const struct runner *r, int64_t context_tokens, const struct runner_variant *variants, int n_variants,
	int n_questions, int max_new);
int64_t runner_peak_bytes(const struct runner *r); /* peak of what the runner allocated, weights included */

/* `kvbench calibrate kvzip-head`: the static head table from n seeded contexts (text given by the caller). Writes a
 * safetensors file keyed by the model's hash under the calibration folder; path returned (caller frees). */
int runner_calibrate_heads(struct runner *r, const char *const *contexts, int n, const char *folder, char **path, char err[ERR_LEN]);

/* `kvbench calibrate iam`: which proxy head each head of the target is most like, from n contexts; as above, for the pair. */
int runner_calibrate_iam(struct runner *r, const char *const *contexts, int n, const char *folder, char **path, char err[ERR_LEN]);

/* ---- trained methods: what training needs is collected context by context, then trained on, without the models in sight ---- */
struct runner_collect { /* one context */
	const struct runner_job *job; /* the context and, for kinds that learn from answers, its questions; no variants, no callbacks but
				       * stop, progress and user */
	const char *id, *split;       /* for people: "niah-multikey 1024 c3"; "train" | "eval" */
	const char *folder;           /* of the shards; must exist */
	const char *features;         /* proxykv, selfkv: "all,stride:4,last:64": which sums a shard holds; NULL = "all" */
	const char *made_by;
};
/* Writes the shard of one context: FOLDER/<context sha256, first 16>.safetensors. *present: one with all that is asked for was there,
 * nothing was run. 0, 1 stopped, -1 + err. kind by the function: proxykv (the proxy's sums and the oracle; the target's sums too),
 * selfkv (the target's sums and the oracle), head-prior (the oracle). */
int runner_collect_proxykv(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN]);
int runner_collect_selfkv(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN]);
int runner_collect_head_prior(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN]);
/* The context's ids, its questions and the answers the model gives; without questions its last tokens (all three kinds of LKV). */
int runner_collect_lkv(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN]);

struct runner_training { /* what is known before the first step; strings live until the call returns */
	const char *name;        /* of the file to be written */
	const char *config, *contexts; /* JSON: every setting, defaults filled in; array of the contexts' SHA-256 */
	uint64_t seed;
	const char *target_sha256, *proxy_sha256; /* proxy "" = none */
};
struct runner_train { /* one file to train */
	const char *folder;      /* of the shards */
	const char *options;     /* JSON object; NULL = defaults */
	const char *out_folder;  /* NULL = where methods look for trained files */
	const char *made_by;     /* the command, for the file's record */
	void *user;              /* the callbacks may be NULL */
	void (*begin)(void *user, const struct runner_training *t);
	void (*value)(void *user, int64_t step, const char *term, double value);
	void (*progress)(void *user, const char *phase, int64_t done, int64_t total);
	bool (*stop)(void *user);
};
enum { TRAINED_RATIOS = 5 }; /* .1 .2 .3 .5 .7 */
struct runner_trained {
	char *path, *kind;       /* the caller's: runner_trained_free */
	char sha256[SHA_LEN];
	int contexts, eval_contexts, steps;
	int64_t parameters, train_ns;
	/* NAN = does not apply; floor: the head prior's; ceiling: the oracle's of itself, its second pass in chunks half as long */
	double recall[TRAINED_RATIOS], floor[TRAINED_RATIOS], ceiling[TRAINED_RATIOS], head_recall[TRAINED_RATIOS];
};
void runner_trained_free(struct runner_trained *t);
/* Trains on the folder's shards of split train, judges on those of split eval, writes the file. The same options, shards and seed give
 * the same file. 0, 1 stopped (a checkpoint beside the file lets the same call go on), -1 + err. */
int runner_train_proxykv(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN]);
int runner_train_selfkv(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN]);
int runner_train_head_prior(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN]);
int runner_train_lkv(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN]);
int runner_train_lkv_global(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN]);
int runner_train_kv_mlp(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN]);

/* Every trained file there is, for `kvbench list pairs`. */
struct runner_trained_file {
	const char *path, *kind, *target_sha256, *proxy_sha256; /* hashes: at least their first 16 digits; proxy "" = none */
	const char *made_by;     /* "" = not known */
	int contexts;            /* trained on */
	bool embedded;
};
void runner_trained_each(void (*found)(void *user, const struct runner_trained_file *t), void *user);
/* A method's effective parameters as runner_method_resolve gives them, and under "files" the SHA-256 (first 16) of each trained file that
 * it reads with this runner's models: what a cell is known by. A missing file is "". */
int runner_method_params(const struct runner *r, const char *method, const char *options, char **canonical, char err[ERR_LEN]);
bool runner_method_trained(const char *method); /* a trained method: head-prior and random stand beside it in every table */

/* `kvbench scores`: the scores of one method for many contexts and what it keeps of each, in a file that "scores:FILE" reads:
 * "<context sha256>.scores" fp32 [layers, kv_heads, n], ".ids" int32 [n], and for each ratio ".kept@R" int32 rows of the context, all
 * heads one behind the other, with ".kept_len@R" int32 [layers, kv_heads]. */
struct runner_scores;
struct runner_scores *runner_scores_new(void);
void runner_scores_free(struct runner_scores *s);
/* Whether a method has scores that such a file can hold: of the context's entries, and no others. -1 + err: it has not. Needs no runner. */
int runner_scores_check(const char *method, const char *options, char err[ERR_LEN]);
/* variants: one method at one or more ratios. 0, 1 stopped, -1 + err. */
int runner_scores_add(struct runner_scores *s, struct runner *r, const struct runner_job *job, char err[ERR_LEN]);
int runner_scores_write(const struct runner_scores *s, const struct runner *r, const char *path, const char *made_by, char err[ERR_LEN]);

/* ---- bench: each figure with the machine's own measured peak beside it ---- */
#define RUNNER_BENCH_TARGET "random:configs/SmolLM2-135M.json" /* a real shape that needs no download */
struct runner_bench_row {
	char name[64], unit[16];
	double value, of_peak;     /* of_peak: share of the measured peak, NAN where it means nothing */
	double peer, ratio;        /* another program's (or another form's) figure in the same unit; value / peer. NAN = none */
};
struct runner_profile_row {    /* an operation of one phase; the last one of a phase is what lies between operations */
	const char *phase, *operation, *bound; /* bound: "arithmetic", "memory" or "" */
	int64_t calls, ns;
	double share, of_peak;     /* of the phase's time; of the peak that bounds it (NAN = none) */
};
struct runner_bench_options {
	int64_t tokens;            /* the longest prefill */
	double seconds;            /* for repeating a figure of the model beyond its three times; an operation alone has a fifth of it */
	const char *peer_llama, *peer_torch; /* llama-bench; a Python with torch and transformers. NULL = not run */
	void *user;
	void (*row)(void *user, const struct runner_bench_row *);
	void (*profile)(void *user, const struct runner_profile_row *); /* NULL = not wanted */
};
/* Peaks first (FMA, bf16, read bandwidth), GEMM and attention, then prefill and decoding of o->target. Rows are handed over as they
 * are measured. */
int runner_bench(const struct runner_options *o, const struct runner_bench_options *b, char err[ERR_LEN]);

/* What the machine offers, for `doctor` and the environment row. */
struct runner_machine {
	char cpu[128], os[128], host[64];
	int cores;
	int64_t ram_bytes, available_bytes, cgroup_limit_bytes; /* -1 = no cgroup limit */
	bool avx2, avx512, avx512bf16, amx;
	char isa[32], isa_why[128];
	bool gpu;                  /* usable: --device auto takes it */
	char gpu_why[128];         /* its name, or one sentence why none is used */
	bool cudnn;                /* --attention cudnn may be chosen on a GPU */
	char cudnn_why[128];       /* the library's version, or one sentence why not */
};
void runner_machine(struct runner_machine *m);

#endif
