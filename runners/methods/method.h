/* method.h: a method is a scorer plus an allocator (plus protections). Two tables, combined by name.
 *
 * Scorer: importance for each (layer, KV head, evictable position), fp32, larger = keep. Allocator: integer budgets for each
 * (layer, KV head) from scores and ratio. select.c turns both into index lists: the one top-k of the program (higher score first, equal
 * score: lower index; NaN is counted and fails the row), protected entries taken out of the ranking first.
 * Plain C over device.h. Source of all arithmetic: spec sections named in each file. */
#ifndef KVB_METHOD_H
#define KVB_METHOD_H

#include "runners/device/scores.h"
#include "runners/forward/forward.h"
#include <jansson.h>

struct proxy_pass; /* runners/proxykv/proxy.h */
struct trained_store; /* runners/trained.h */
struct trained_request;

/* ---- parameters: typed, with the origin of each default; overridden by a plan's options object ---- */
enum param_kind { PARAM_INT, PARAM_REAL, PARAM_TEXT, PARAM_BOOL };
struct plan_method;
struct param_def {
	const char *name;
	enum param_kind kind;
	double number;           /* default of INT, REAL, BOOL */
	const char *text;        /* default of TEXT */
	const char *choices;     /* TEXT: "a|b|c"; NULL = free */
	bool (*legal)(const char *text); /* TEXT that has a form of its own, which choices then tell people; NULL = none */
	const char *origin;      /* where the default comes from */
	double min, max;         /* INT, REAL: legal range; both 0 = any */
	bool odd;                /* INT: even values are refused */
	/* Why a value other than the usual one does not go with the method's other options ("changes nothing with pool=none"); NULL = it goes.
	 * The function NULL = it always does. */
	const char *(*unfit)(const struct plan_method *m);
};
/* A reference whose own arithmetic can be asked for, and the defaults that go with it. A list of them ends with a NULL mode. */
struct compat_mode {
	const char *mode;        /* "kvpress" (every method has it, listed or not, but for `context_alone`), "factory", "adakv", "kvzip" */
	const char *options;     /* JSON object laid over the defaults, under the user's own options; NULL = none */
};
struct params; /* effective values of one method: the scorer's and the allocator's */
int64_t param_int(const struct params *p, const char *name);
double param_real(const struct params *p, const char *name);
const char *param_text(const struct params *p, const char *name);
bool param_bool(const struct params *p, const char *name);
/* "none" | "kvpress" | "factory" | "adakv" | "kvzip": every method has the parameter `compat`, with the values that apply to it */
const char *param_compat(const struct params *p);

/* ---- what a scorer works on: one context ---- */
struct prompt_shape {
	int64_t prefix, context, after; /* tokens in the cache: template head, context, question (aware protocol; else 0) */
	int64_t first, count;           /* evictable rows of the cache: [prefix, prefix+context); compat=kvpress: all rows from 0 */
};
struct repeat_prompt { /* KVzip's second pass (methods.md 3.1), as ids: tokenised by the runner for the model's template */
	const int32_t *first, *later, *tail; /* "repeat ..." for chunk 0; for later chunks; end of turn + assistant header */
	int n_first, n_later, n_tail;
	bool later_takes_ids;           /* later is followed by the last 8 ids of the previous chunk */
};
struct scoring {
	struct forward *forward;
	const struct kv *kv;            /* the full cache; all rows valid from finish() on */
	struct prompt_shape shape;
	const int32_t *ids;             /* prefix, context, after */
	const struct repeat_prompt *repeat;
	const struct params *params;
	uint64_t seed;                  /* of the sample: random scores */
	const char *model_sha256, *calibration_folder; /* whom and where trained files and tables are for */
	const char *proxy_sha256;       /* "" = no proxy */
	const char *context_sha256;     /* over the context's ids (int32), without prefix and question */
	struct trained_store *weights;  /* trained files opened so far; the runner's */
	struct proxy_pass *proxy;       /* the proxy's run beside this one; NULL = the runner has no proxy */
	float *scores;                  /* [layers][kv_heads][shape.count], owned by the caller, zeroed before begin() */
	bool (*stop)(void *user);       /* polled between the forward calls of finish() (KVzip), which then returns 1; NULL = never */
	void *stop_user;
	/* The same scores on the device, [layers*kv_heads, shape.count], while resident_layers == layers: where the device's memory is not the
	 * host's, what is scored there is ranked there. NULL = on the host alone. Only for who asks (rank_there), and then calls scores_drop. */
	bool rank_there;
	struct tensor *resident;
	int resident_layers;
	void *state;                    /* the scorer's own between begin and end */
	int layers, kv_heads;           /* of the model, set by the caller: position-only scorers run without a forward */
	int64_t mapper_ns;              /* out: time in a trained mapper: a part of finish(), or of the proxy's run (proxy_pass_maps) */
};
void scores_drop(struct scoring *s); /* of the device: the host's scores change, or nobody ranks any more */
/* The path of the file a scorer reads; caller frees. NULL + err: where it was looked for. An allocator gives its own parameters: its
 * scoring may be shared with methods that have others. */
char *scoring_file(const struct scoring *s, void (*file)(const struct params *p, struct trained_request *q), char err[ERR_LEN]);
char *scoring_file_for(const struct scoring *s, const struct params *params,
	void (*file)(const struct params *p, struct trained_request *q), char err[ERR_LEN]);
/* Fills the shape for a method: evictable is the context alone; compat=kvpress evicts from every row the press sees. */
void prompt_shape_for(const struct plan_method *m, int64_t prefix, int64_t context, int64_t after, struct prompt_shape *out);
/* Entries every budget must hold: the first `first` and the last `last` of the evictable rows. */
struct protection {
	int64_t first, last;
};
/* What a head's best scores hold of the sum of its scores: a share of each head's own; the same in every head; no share, since scores
 * can be negative. */
enum scorer_mass { MASS_OF_EACH, MASS_ALIKE, MASS_NONE };
struct scorer {
	const char *name, *title, *origin; /* origin: paper and spec section */
	const struct param_def *params;    /* ends with a NULL name; NULL = none */
	const struct compat_mode *compat;  /* NULL = kvpress, without other defaults */
	unsigned observes;                 /* OBSERVE_* of the prefill */
	/* The file a method with these parameters reads: kind, weights and the command that makes it (the models and folders are filled in).
	 * Its hash is part of what is recorded. NULL = it reads none. */
	void (*file)(const struct params *p, struct trained_request *q);
	/* A file that an option names, looked at before any model is there: 0, or -1 and err when it cannot be what these parameters ask for. NULL =
	 * its kind says enough. */
	int (*named)(const struct params *p, const char *path, char err[ERR_LEN]);
	bool trained;                      /* a plan that names it is given the controls of trained methods */
	bool needs_proxy;
	bool context_alone;                /* it has no scores of a template's or a question's rows, which compat=kvpress evicts too */
	enum scorer_mass mass;
	bool heads_alike;                  /* all KV heads of a layer have the same scores */
	int (*layers)(const struct scoring *s); /* the first so many are shown to observe; NULL = all */
	int64_t (*first_pos)(const struct scoring *s);  /* first position whose rows it must see; NULL = 0 */
	/* What its work takes of the device at most, before begin(); NULL = sums of the scores' size. */
	int64_t (*device_bytes)(const struct scoring *s);
	int (*begin)(struct scoring *s, char err[ERR_LEN]);                             /* NULL = nothing */
	int (*observe)(struct scoring *s, const struct layer_rows *r, char err[ERR_LEN]); /* during prefill */
	int (*finish)(struct scoring *s, char err[ERR_LEN]);                            /* after prefill; fills scores */
	void (*end)(struct scoring *s);
	/* Scores of one layer [kv_heads][shape.count] from that layer's K and V alone: with budgets that depend on no score a layer can be
	 * evicted before the next is computed (evict.c). kv holds that layer only, under its own number. NULL = it needs more. */
	int (*by_layer)(struct scoring *s, int layer, const struct kv *kv, float *scores, char err[ERR_LEN]);
	/* Arithmetic (FLOP) of finish() where that runs the model once more: what its time is judged by. NULL = it runs nothing. */
	double (*flops)(const struct scoring *s);
	/* May depend on the budget (H2O's recent half). NULL = nothing protected. */
	struct protection (*protect)(const struct scoring *s, int64_t n_keep);
};

/* ---- budgets ---- */
struct allocation {
	int layers, kv_heads;
	int64_t n;                     /* evictable rows */
	int64_t keep;                  /* keep_count(n, retained, compat) < n (kvpress keeps 1 of 1, too); not below first + last but for `any_keep` */
	const float *scores;           /* [layers][kv_heads][n] */
	struct protection protect;     /* first + last < n: every head holds these; the rest is what is shared out */
	const struct params *params;
	double retained;
	struct device *device;         /* host loops run on its threads; NULL = on the caller's */
	const struct scoring *scoring; /* where the scores come from: whom trained budgets are for */
	int64_t *budget;               /* out: [layers*kv_heads], protected entries included */
};
struct allocator {
	const char *name, *title, *origin;
	const struct param_def *params;
	const struct compat_mode *compat;
	int (*allocate)(struct allocation *a, char err[ERR_LEN]);
	void (*file)(const struct params *p, struct trained_request *q); /* as a scorer's */
	bool trained;
	bool fixed;                    /* budgets depend on no score */
	bool any_keep;                 /* asked even where keep is less than what is protected; else every head then keeps that many */
	bool exact;                    /* sum(budget) == layers*kv_heads*keep_count(n, r): asserted for every row */
};

/* ---- methods: names people use ---- */
struct method {
	const char *name, *title, *origin;
	const char *scorer, *allocator;   /* names in the tables */
	const char *options;              /* JSON object of defaults that differ from the scorer's, or NULL */
};
size_t method_count(void);
const struct method *method_at(size_t i);
size_t scorer_count(void);
const struct scorer *scorer_at(size_t i);
size_t allocator_count(void);
const struct allocator *allocator_at(size_t i);

/* A resolved variant family: "snapkv", "kvzip@pyramid", "snapkv" + {"window":64}. */
struct plan_method {
	char name[64];
	const struct scorer *scorer;       /* NULL = full cache */
	const struct allocator *allocator;
	struct params *params;
};
int method_resolve(struct plan_method *out, const char *name, const char *options_json, char err[ERR_LEN]);
char *method_canonical(const struct plan_method *m); /* effective parameters, canonical JSON; caller frees */
/* "window=32 (origin), pool=max (origin)": the parameters of up to two lists (either may be NULL) for people; caller frees. */
char *params_describe(const struct param_def *a, const struct param_def *b);
/* What must be there whatever the model: a proxy, and the files that options name. -1 + err: it is not. */
int method_check(const struct plan_method *m, bool proxy, char err[ERR_LEN]);
/* Two families may share one scorer pass when scorer and its parameters are equal. */
bool method_same_scores(const struct plan_method *a, const struct plan_method *b);
void method_free(struct plan_method *m);

/* Entries to keep of n at ratio r: min(n, max(1, floor(n r + 1e-9))); compat kvpress (0.5.5): max(1, trunc(n (1 - c))) as doubles, c what
 * goes away; compat kvzip: trunc(n r), may be 0; compat factory: round-half-even(n r). r >= 1 keeps all in every mode. */
int64_t keep_count(int64_t n, double retained, const char *compat);

/* ---- selection ---- */
struct selection {                 /* index lists in cache rows, ascending, evictable entries only; one block of memory */
	int layers, kv_heads;
	int32_t *len;              /* [layers*kv_heads] */
	int32_t **index;
	int64_t total, nan_scores;
	int flags;                 /* SELECT_* */
};
enum { /* flags */
	SELECT_ALL_KEPT = 1,   /* r < 1, but the rows are not more than what must be kept: nothing was pruned */
	SELECT_WINDOW_CUT = 2  /* budget below the protected entries: the last ones were kept */
};
int method_select(struct selection *out, const struct plan_method *m, const struct scoring *s, double retained, char err[ERR_LEN]);
/* Its two halves: budgets of every head (protected entries included; *flags: SELECT_ALL_KEPT) and, given those, the lists. */
int method_budgets(int64_t *budget, const struct plan_method *m, const struct scoring *s, double retained, struct protection *protect, int *flags,
	char err[ERR_LEN]);
int selection_make(struct selection *out, const struct scoring *s, const int64_t *budget, struct protection protect, char err[ERR_LEN]);
void selection_free(struct selection *s);

/* The static head table of kvzip@head (calibrate.c): <folder>/kvzip-head-<model sha256 first 16>.safetensors, tensor "heads" [layers, kv_heads]. */
int head_table_read(const char *folder, const char *model_sha256, int layers, int kv_heads, float *out, char err[ERR_LEN]);
int head_table_write(const char *folder, const char *model_sha256, int layers, int kv_heads, const float *heads, int contexts, char **path,
	char err[ERR_LEN]);

#endif
