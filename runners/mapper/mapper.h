/* mapper.h: ProxyKV's mapper: from attention column sums of a proxy (or of the target itself) to the importance of the target's
 * KV entries. Its three forms, their training, their files, and the shards they are trained on (spec proxykv-lkv.md, section 1).
 *
 * Plain C on the host: no model, no device, no tensor of one. Whoever calls collects the features X and the oracle Y. For a GPU it
 * only writes down the steps (program.h), which others run there.
 * Letters: Ls, Hs layers and heads of X; Ll, Hl layers and KV heads of the target; n positions of the context (prefix left out).
 * All arrays are row-major, X [Ls][Hs][n], Y and scores [Ll][Hl][n].
 *
 * Determinism: results depend on inputs, configuration and seed, never on the threads of the pool. */
#ifndef KVB_MAPPER_H
#define KVB_MAPPER_H

#include "harness/base/base.h"

enum { MAPPER_RATIOS = 5, MAPPER_TERMS = 5 };
extern const double mapper_ratios[MAPPER_RATIOS];    /* .1 .2 .3 .5 .7: of the binary term and of every recall */
extern const char *const mapper_terms[MAPPER_TERMS]; /* "bin" "mse" "fine" "global" "cos" */

/* ---- threads: the caller's. run() calls fn(arg, i) for i in [0, n), in any order on any thread, and returns when all are done.
 * A NULL pool means: on the calling thread. device_parallel() fits run() but for the type of its first parameter. ---- */
struct mapper_pool {
	void *user;
	void (*run)(void *user, int64_t n, void (*fn)(void *arg, int64_t item), void *arg);
};

/* ---- configuration: one struct, one table of options (names below), stored whole with the weights ---- */
enum mapper_kind { MAPPER_FLAT, MAPPER_LINEAR, MAPPER_AXIAL };
enum mapper_norm { MAPPER_NORM_LAYER, MAPPER_NORM_BATCH };
enum mapper_embeddings { MAPPER_EMB_FULL, MAPPER_EMB_SHARED }; /* of each (layer, head) | of each head */
enum mapper_source { MAPPER_SOURCE_MODEL, MAPPER_SOURCE_SELF };
enum mapper_heads { MAPPER_HEADS_QUERY, MAPPER_HEADS_KV }; /* kv: mean over the query heads of a KV head */
enum mapper_queries { MAPPER_QUERIES_ALL, MAPPER_QUERIES_STRIDE, MAPPER_QUERIES_LAST };
enum mapper_normalize { MAPPER_VISIBLE, MAPPER_SUM }; /* divided by the number of queries that see the key | raw */
enum mapper_compress { MAPPER_LOG, MAPPER_LOG1P, MAPPER_NONE };
enum mapper_target { MAPPER_TARGET_LOG, MAPPER_TARGET_LOGIT };
enum mapper_scope { MAPPER_SCOPE_GLOBAL, MAPPER_SCOPE_LAYER, MAPPER_SCOPE_HEAD, MAPPER_SCOPES };
enum { MAPPER_ALL = -1 }; /* neighbours = all; window = full */

struct mapper_config {
	int kind; /* enum mapper_kind;       option "mapper":     flat|linear|axial */
	/* shapes; 0 = taken from the first shard. proxy_layers below the shard's: early exit, the first layers only */
	int proxy_layers;     /* Ls;                            "layers" */
	int proxy_heads;      /* Hs, after "heads" */
	int layers, kv_heads; /* Ll, Hl */
	/* the feature */
	int source;           /* enum mapper_source             "source":     model|self */
	int heads;            /* enum mapper_heads              "heads":      query|kv */
	int queries, query_n; /* enum mapper_queries, k or w    "queries":    all|stride:k|last:w */
	int normalize;        /* enum mapper_normalize          "normalize":  visible|sum */
	int compress;         /* enum mapper_compress           "compress":   log|log1p|none */
	/* the network */
	int channels;   /* 0 = 128 (flat), 32 (axial)     "channels":   a multiple of 4 */
	int taps;       /* convolution width, odd         "taps" */
	int norm;       /* axial: enum mapper_norm        "norm":       layer|batch */
	int encoder;    /* axial: stage 2 on or off       "encoder":    on|off */
	int window;     /* axial: half window of stage 2's attention, 0 = no attention   "window": w|full */
	int neighbours; /* axial: k proxy layers to each side                            "neighbours": k|all */
	int embeddings; /* axial: enum mapper_embeddings  "embeddings": full|shared */
	/* training */
	int target; /* enum mapper_target: z standardises log y, or log(y / (1 - y)), for oracles many of whose values are near 1   "target": log|logit */
	int scope; /* enum mapper_scope: of labels, thresholds, pairs and of the recall that stops   "scope": global|layer|head */
	double weight[MAPPER_TERMS]; /* of the loss terms         "w_bin" "w_mse" "w_fine" "w_global" "w_cos" */
	double lambda;               /* linear: ridge per position     "lambda" */
	double lr, weight_decay;     /*                           "lr" "weight_decay" */
	double warmup, clip;         /* share of the steps; gradient norm, 0 = none   "warmup" "clip" */
	int steps, crop;             /* crop: positions of a step "steps" "crop" */
	int pairs;                   /* of each rank term and step     "pairs" */
	int eval_every, patience; /* steps between validations; validations without a better recall before it stops, 0 = never */
	uint64_t seed;            /*                                "seed" */
};
void mapper_defaults(struct mapper_config *c); /* flat, the spec's defaults */
/* Sets one option by name ("window", "full"); an unknown name or value is refused with the legal ones. */
int mapper_option(struct mapper_config *c, const char *name, const char *value, char err[ERR_LEN]);
char *mapper_config_json(const struct mapper_config *c); /* all of it, canonical; caller frees */
int mapper_config_parse(
	struct mapper_config *c, const char *json, char err[ERR_LEN]); /* over the defaults; unknown keys are refused */

/* ---- features: which queries are summed, who sees whom ---- */
/* Context query q of n (0-based) is one of those summed: all; stride k: n-1, n-1-k, ...; last w: the last w. */
bool mapper_query_used(const struct mapper_config *c, int64_t n, int64_t q);
int64_t mapper_query_seen(const struct mapper_config *c, int64_t n, int64_t j); /* how many of them see key j (q >= j); >= 1 */
/* The name a feature has in a shard: "model:all", "self:last:64", "model:stride:4". */
void mapper_feature_name(const struct mapper_config *c, char out[32]);

/* ---- the mapper ---- */
struct mapper_pair { /* whose mapper it is; source self: proxy = target */
	char target_sha256[SHA_LEN], proxy_sha256[SHA_LEN], tokenizer_sha256[SHA_LEN];
	char target[128], proxy[128]; /* names for people */
};
struct mapper_record {                  /* how the weights came to be */
	int contexts, steps, best_step; /* training contexts, steps run, the step whose weights were kept */
	int64_t positions, train_ns;
	/* validation, global scope: recall of the oracle's top-r set, mean over contexts; zeros without validation contexts */
	double recall[MAPPER_RATIOS], prior_recall[MAPPER_RATIOS]; /* the mapper; its floor, the static head prior */
	double head_recall[MAPPER_RATIOS];                         /* top r inside each head; its floor is r itself */
	int valid_contexts;
};
struct mapper;
/* Untrained, from the configuration's seed; statistics neutral (mean 0, deviation 1). Shapes must be set. NULL = bad
 * configuration. */
struct mapper *mapper_new(const struct mapper_config *c, char err[ERR_LEN]);
void mapper_free(struct mapper *m);
const struct mapper_config *mapper_config_of(const struct mapper *m);
const struct mapper_pair *mapper_pair_of(const struct mapper *m);
const struct mapper_record *mapper_record_of(const struct mapper *m);
void mapper_set_pair(struct mapper *m, const struct mapper_pair *pair);
bool mapper_trained_on(const struct mapper *m, const char *context_sha256); /* the context must not be evaluated */
int mapper_context_count(const struct mapper *m);
const char *mapper_context_at(const struct mapper *m, int i); /* SHA-256 of a training context */
int64_t mapper_parameters(const struct mapper *m);
int64_t mapper_bytes(
	const struct mapper *m, int64_t n); /* peak host memory of a forward over n positions on one thread, results left out */

/* x: RAW column sums [Ls][Hs][n] (not divided, not compressed, not standardised: all that happens inside, from the configuration
 * and the statistics stored with the weights). y [Ll][Hl][n]: scores in units of z, comparable over all layers and heads. n >= 1.
 * Thread-safe: a mapper is not changed by it. Fails on memory, and for window = full beyond MAPPER_FULL_MAX positions. */
enum { MAPPER_FULL_MAX = 4096 };
int mapper_refuses(const struct mapper *m, int64_t n, char err[ERR_LEN]); /* -1: a context of so many positions is not for it */
int mapper_forward(
	const struct mapper *m, const float *x, int64_t n, float *y, const struct mapper_pool *pool, char err[ERR_LEN]);

/* ---- the static head prior, of the training contexts (head-prior, X@head-prior) ---- */
const float *mapper_prior_level(const struct mapper *m); /* [Ll][Hl] mean of z: the control's level, random order inside a head */
/* [MAPPER_RATIOS][Ll][Hl]: mean share of a head's entries that is in the oracle's global top-r set. */
const float *mapper_prior_share(const struct mapper *m);
/* The budgets these shares say: share[Ll][Hl] at retained r in (0, 1]: linear between the five ratios (and 0 at 0, 1 at 1). Their
 * mean is r up to rounding of the labels; whoever turns them into counts scales to the exact sum. */
void mapper_prior_at(const struct mapper *m, double retained, float *share);

/* ---- files: safetensors, the header's metadata holds JSON (format "kvbench-mapper", version 1) ---- */
int mapper_write(const struct mapper *m, const char *path, char err[ERR_LEN]);
/* pair NULL = whatever pair it is for (lists). Otherwise target, proxy and tokenizer hashes must be equal, or it is refused by
 * name. */
int mapper_read(struct mapper **out, const char *path, const struct mapper_pair *pair, char err[ERR_LEN]);
int mapper_read_memory(
	struct mapper **out, const char *name, const void *data, size_t len, const struct mapper_pair *pair, char err[ERR_LEN]);

/* ---- shards: one context's X and Y, fp16 safetensors (shard.c). Raw values; X beyond fp16's largest number is clamped to it
 * ---- */
struct shard_feature {
	char name[32];     /* mapper_feature_name() of the configuration it was collected with: one shard may hold several */
	int layers, heads; /* query heads; the mean over a KV head's group is taken when a mapper asks for heads = kv */
	const float *x;    /* [layers][heads][n]; write only: NULL after shard_open */
};
enum { SHARD_FEATURES = 16 };
struct shard {
	char context_sha256[SHA_LEN];
	char split[8]; /* "train" | "eval" */
	char id[96];   /* where the context came from, for people: "niah_multikey_2/17" */
	char settings[64]; /* what else its values depend on: precision and chat template, "bf16, qwen2.5"; "" = an older file, does not say */
	struct mapper_pair pair;
	int64_t n;
	int layers, kv_heads; /* of the oracle */
	int proxy_kv_heads;   /* groups for heads = kv on features of the proxy; those of the target are kv_heads */
	const float *oracle;  /* [layers][kv_heads][n]; write only: NULL after shard_open */
	const float *again;   /* the same by another chunk size: how far the oracle agrees with itself; NULL = none */
	int n_features;
	struct shard_feature feature[SHARD_FEATURES];
	void *file; /* shard_open's */
};
int shard_write(const struct shard *s, const char *path, char err[ERR_LEN]);
int shard_open(struct shard *out, const char *path, char err[ERR_LEN]); /* maps the file; shard_close() after use */
void shard_close(struct shard *s);
/* Reads all of one array as fp32: feature `name` [layers][heads][n], or the oracle. -1: it has no such feature. */
int shard_read_feature(const struct shard *s, const char *name, float *out, char err[ERR_LEN]);
void shard_read_oracle(const struct shard *s, float *out);
bool shard_has_again(const struct shard *s);
void shard_read_again(const struct shard *s, float *out); /* which must be there */

/* ---- a set of shards, for one configuration; the files stay mapped, a step reads what it needs ---- */
struct mapper_set;
/* Of the paths, those whose split is `split` (NULL = all). Shapes of *c that are 0 are filled in. Refuses: shards of different
 * pairs, a missing feature, a context twice, no context at all. */
int mapper_set_open(struct mapper_set **out, struct mapper_config *c, const char *const *paths, size_t n_paths, const char *split,
	char err[ERR_LEN]);
void mapper_set_close(struct mapper_set *s);
int mapper_set_count(const struct mapper_set *s);
int64_t mapper_set_positions(const struct mapper_set *s);
const struct shard *mapper_set_shard(const struct mapper_set *s, int i);
/* What the head prior of m reaches on a set: mapper_prior_recall, mean over its contexts. -1 = no memory. */
int mapper_set_floor(const struct mapper *m, const struct mapper_set *s, int scope, double out[MAPPER_RATIOS]);
/* What a mapper could reach at best: recall of the oracle's top-r set by the oracle with another chunk size, mean over the contexts
 * that hold both. Returns their number (0: out is not touched), -1 = no memory. */
int mapper_set_ceiling(const struct mapper_set *s, int scope, double out[MAPPER_RATIOS]);

/* ---- training ---- */
struct mapper_events { /* any may be NULL */
	void *user;
	/* One number of the log. Every step (from 1): "total" (weighted), the five terms (unweighted), "lr", "grad_norm"; at
	 * validations (linear: of the solution) "recall.1" "recall.2" "recall.3" "recall.5" "recall.7" (the configuration's scope)
	 * and "head_recall.1"..; at step 0 the floor "prior_recall.1".. and, where the shards have it, the ceiling "ceiling.1".. */
	void (*value)(void *user, int step, const char *name, double value);
	void (*progress)(void *user, int64_t done, int64_t total); /* steps; linear: contexts */
	bool (*stop)(void *user); /* polled every step: true ends training as if the steps were over; the checkpoint stays, so it
				     can go on */
};
/* Trains on `train`, validates on `valid` (NULL = none: the last weights are kept), writes and resumes `checkpoint` (NULL =
 * none): a checkpoint of the same configuration and sets goes on, another one is refused. The result's pair is the set's. The
 * file is removed at the end. */
int mapper_train(struct mapper **out, const struct mapper_config *c, const struct mapper_set *train,
	const struct mapper_set *valid, const char *checkpoint, const struct mapper_events *events,
	const struct mapper_pool *pool, char err[ERR_LEN]);

/* ---- how good a score is ---- */
/* Share of the oracle's top-r entries that the score's top-r also holds, at the five ratios; ties go to the lower index. scope:
 * one top-r set over all, in each layer, or in each head (the mean over layers or heads). NaN scores rank last. */
void mapper_recall(
	const float *score, const float *oracle, int layers, int kv_heads, int64_t n, int scope, double out[MAPPER_RATIOS]);
/* What the head prior reaches in expectation over the random order inside heads: level [layers][kv_heads]. */
void mapper_prior_recall(
	const float *level, const float *oracle, int layers, int kv_heads, int64_t n, int scope, double out[MAPPER_RATIOS]);
/* The mean of both over the contexts of a set, by enum mapper_scope. */
int mapper_evaluate(const struct mapper *m, const struct mapper_set *set, const struct mapper_pool *pool,
	double recall[MAPPER_SCOPES][MAPPER_RATIOS], double prior[MAPPER_SCOPES][MAPPER_RATIOS], char err[ERR_LEN]);

#endif
