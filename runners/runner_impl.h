/* runner_impl.h: what the files of runner.h share. Private to runners/.
 *
 * runner.c opens and describes; prompt.c makes token ids; session.c prefills and scores one context; answer.c decodes variants in
 * batches; timing.c runs one variant's true pipeline; catalogue.c lists; machine.c looks at the machine; bench.c measures it. */
#ifndef KVB_RUNNER_IMPL_H
#define KVB_RUNNER_IMPL_H

#include "runners/methods/method.h"
#include "runners/model/chat.h"
#include "runners/proxykv/proxy.h"
#include "runners/runner.h"
#include "runners/trained.h"

enum { RUNNER_ROWS = 512 }; /* rows of one pass through the layers */

struct runner {
	struct model *model;
	struct tokenizer *tokenizer;      /* NULL for random: models */
	const struct chat_template *chat; /* the model's or the one asked for */
	struct device *device;
	struct forward *forward;
	struct proxy *proxy;              /* NULL = none */
	const char *proxy_place;          /* what its device is called, were it to be opened there; NULL = as the target's */
	struct trained_store *weights;
	struct spans *spans;              /* NULL until something is timed on a device with a clock */
	struct runner_info info;
	struct runner_counters counters;
	char *path, *proxy_path, *calibration_folder;
	char template_sha256[SHA_LEN];
	bool allow_long;
	int64_t peak_bytes;               /* before the device's peak was last reset (a timing starts its own) */
};

/* Where trained files and calibrated tables live unless a runner is told otherwise: beside the user's other caches. Caller frees. */
char *calibration_default(void);
/* Of linear layers: bf16 products where weights are bf16 and the machine is quicker so. */
struct device_peaks peaks_best(struct device *d); /* each the best of three measurements */
double peak_flops(const struct device *d, const struct device_peaks *p);

/* ---- prompt.c ---- */
/* The ids of one context and of each of its questions. aware questions go into the prompt; what is fed after pruning is the rest. */
struct prompt {
	struct ids ids;              /* prefix, context (, question text with the aware protocol) */
	int prefix, context, after;
	char named[SHA_LEN];         /* the context's name where it is not its own ids' (a cut text's: the whole text's); "" else */
};
struct prompt_question {
	struct ids fed;              /* ids fed on the pruned cache */
	struct ids text;             /* aware: the part that was put into the prompt; else empty */
};
/* `prompt` for all questions (agnostic) or for question q alone (aware). */
int prompt_make(struct runner *r, const struct runner_job *job, int q, struct prompt *p, struct prompt_question *pq, char err[ERR_LEN]);
void prompt_free(struct prompt *p);
/* Names a context wherever one is looked up or refused: SHA-256 over its ids alone, whatever stands before and after them. */
void prompt_context_sha256(const struct prompt *p, char out[SHA_LEN]);
void prompt_question_free(struct prompt_question *pq);
/* KVzip's repeat prompt for the job's template; ids owned by *store. */
struct repeat_ids {
	struct ids first, later, tail;
};
int prompt_repeat(struct runner *r, bool chat, struct repeat_ids *store, struct repeat_prompt *out, char err[ERR_LEN]);
void repeat_ids_free(struct repeat_ids *s);

/* ---- spans.c ---- */
/* Parts of a timed pipeline by the device's own clock; WHOLE is all of them. Spans may lie in one another. */
enum part { PART_PREFILL, PART_SCORE, PART_SELECT, PART_COMPACT, PART_QUESTION, PART_WHOLE };
struct spans;
void spans_start(struct runner *r); /* a repetition begins; nothing where the device has no clock */
void spans_stop(struct runner *r);
int span_begin(struct runner *r, enum part part); /* between the two; else nothing */
void span_end(struct runner *r, int span); /* of span_begin; -1 is fine */
int64_t spans_ns(struct runner *r, enum part part); /* sum of the part's spans, 0 = none. Synchronises */
void spans_free(struct runner *r);

/* ---- session.c ---- */
/* Memory that was asked for in vain: 0 bytes = memory was not what failed. Whether a device's or the host's says the message that goes with it. */
struct shortage {
	int64_t bytes, free_bytes; /* free there at that time; negative = not known */
};
/* One context, prefilled once and scored once by each distinct scorer of the variants. */
struct session {
	struct runner *r;
	const struct prompt *prompt;
	struct kv *kv;               /* full cache, immutable after session_open */
	int n_methods;
	struct plan_method *method;  /* [n_methods], one a variant */
	int *scoring_of;             /* [n_methods] index into scoring; -1 = full cache */
	struct scoring *scoring;
	int64_t *scoring_ns;         /* [n_scoring] its part of score_ns */
	char (*scoring_error)[ERR_LEN]; /* [n_scoring] "" = fine */
	struct shortage *scoring_oom; /* [n_scoring] */
	const struct scorer **scorer;
	int n_scoring;
	struct repeat_ids repeat_store;
	struct repeat_prompt repeat;
	int64_t prefill_ns, score_ns, proxy_ns; /* scoring inside the prefill counts as score; proxy_ns: of score_ns, waiting for the proxy */
	int64_t second_pass_ns;      /* of score_ns: finish() of scorers that run the model once more */
	struct proxy_pass *pass;     /* the proxy's run, if a scorer needs one */
	char context_sha256[SHA_LEN];
	int64_t need, left;          /* bytes of the whole on all devices, and what was free for it */
	struct shortage oom;         /* what session_open lacked */
};
/* 0, 1 = stopped, -1 = failed (err, s->oom). To be closed in any case. */
int session_open(struct session *s, struct runner *r, const struct runner_job *job, const struct prompt *p, const bool *needed, char err[ERR_LEN]);
void session_close(struct session *s);
/* An empty cache of `tokens` rows for every (layer, KV head); NULL = out of memory. */
struct kv *cache_new(const struct runner *r, int64_t tokens);
struct kv *cache_uniform(struct device *d, int layers, int kv_heads, int head_dim, int64_t tokens); /* the same for any shape */

/* What one variant keeps of a session's cache. */
struct view {
	struct kept *kept;           /* NULL = everything (full) */
	int32_t *kept_context;       /* [layers*kv_heads] context entries, counted from the lists the cache uses */
	int64_t kept_total, rows;    /* rows: all kept rows, prefix and question included */
	int flags;
};
int view_make(struct view *out, const struct session *s, int variant, double retained, int *flags, char err[ERR_LEN]);
void view_free(struct view *v);

/* What the runner's devices hold now, the proxy's too; what is left of the limit, or of the device where that is less. */
int64_t runner_bytes(const struct runner *r);
int64_t runner_free_bytes(const struct runner *r);
/* What was asked for, when this message holds the words of a device that had no memory. */
struct shortage failure_oom(const struct runner *r, const char *message);
/* Scores of a context on the host and what their scorer takes of the target's device meanwhile; NULL = as most do. */
int64_t scorer_bytes(const struct scorer *sc, const struct scoring *s);

/* ---- evict.c ---- */
/* A context pruned while it is prefilled: a layer is cut before the next is computed, so that no more than one full layer is ever held. */
struct evicted {
	struct kv *kv;               /* the pruned cache: prefix, what was kept, what follows the context */
	int64_t kept_total;          /* context entries */
	int64_t score_ns, select_ns, compact_ns; /* inside the prefill */
};
/* Whether the job's only variant can be pruned so: a scorer that looks at one layer's K and V alone, and budgets that depend on no score. */
bool evict_applies(const struct runner_job *one);
/* 0, 1 = stopped, -1 = failed. Free with evict_free in any case. */
int evict_prefill(struct evicted *out, struct runner *r, const struct runner_job *one, const struct prompt *p, char err[ERR_LEN]);
void evict_free(struct evicted *e);

#endif
