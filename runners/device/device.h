/* device.h: the one border between the forward pass and the machine: opaque tensors and about thirty operations.
 *
 * The CPU (cpu/) and CUDA (cuda/) implement it, one operation a file; which one is chosen when a device is opened. Written for both:
 * - work is put on a queue and runs in the order it was put there; queue_sync waits. A CPU queue runs at once.
 * - memory behind a tensor, weight, kv or kept belongs to the device; the host reads and writes it by tensor_read/_write only.
 * - operations never allocate what outlives them and never block on the host, unless their comment says "synchronises".
 * - an operation returns 0, or -1 when it could not be started; device_error() then says why (sticky on a GPU).
 *
 * Precision: fp32 keeps everything in fp32. bf16 rounds (nearest even) the inputs of linear layers, K, V and Q in attention to
 * bf16; sums, softmax, norms, RoPE, the residual stream and every score stay fp32.
 *
 * Determinism: each output element is one sum over k in ascending order with one accumulator, for any number of rows, threads
 * and sequences a call; attention visits the keys of a sequence in blocks of ATTN_BLOCK and merges its results every ATTN_PART keys, both
 * counted from each segment's start, whoever computes the parts. So a row's bits depend on that row's inputs alone. Blocking may
 * differ in rows and columns only. */
#ifndef KVB_DEVICE_H
#define KVB_DEVICE_H

#include "harness/base/base.h"
#include "runners/device/steps.h"

enum {
	ATTN_BLOCK = 128, /* keys a block of online softmax */
	ATTN_PART = 1024  /* keys whose softmax is computed on its own; parts are merged in ascending order */
};

struct device;
struct queue;
struct event;
struct tensor;  /* [rows, cols] of the device's activation type (fp32 on the CPU) */
struct weight;  /* [n, k] packed for y = x W^T */
struct kv;      /* K and V of all layers: rows of head_dim for each (layer, KV head), each with its own capacity and length */
struct kept;    /* index lists for each (layer, KV head): a view of a kv */

/* ---- device ---- */
struct device_options {
	const char *name;       /* "auto" (a GPU if one is usable, else the CPU), "cpu", "cuda" (= "cuda:0"), "cuda:N" */
	const char *precision;  /* "fp32" | "bf16" */
	const char *isa;        /* NULL = best; see runner.h */
	int threads;            /* 0 = all cores */
	int64_t memory_bytes;   /* allocations beyond this fail with out of memory; 0 = no limit */
	const char *attention;  /* NULL, "own": our kernels. "cudnn": a GPU's prefill attention by cuDNN where it takes it (cuda/dnn.c), bf16 alone;
	                         * a row's bits may then depend on the pass it came in */
	bool kv_offload;        /* caches live in pinned host memory and are streamed by layer; the CPU: no meaning */
	bool low_priority;      /* all its queues give way to others of the same GPU (a proxy beside its target) */
};
enum { DEVICE_WHAT = 128 }; /* size of a line about a device */
/* Whether the device of this name could be opened here; what: its hardware, or one sentence why not. */
bool device_usable(const char *name, char what[DEVICE_WHAT]);
/* Whether attention of this name could be chosen on a GPU here; what: the library's version, or one sentence why not. */
bool device_attention_usable(const char *attention, char what[DEVICE_WHAT]);
/* device_name() of the device this name stands for, without opening it: "auto" is decided, an emulated GPU is called so. */
void device_resolve(const char *name, char out[DEVICE_WHAT]);
/* Whether the options name what there is somewhere: device, precision, instruction set, attention; not whether it is here. */
int device_names_check(const struct device_options *o, char err[ERR_LEN]);
int device_open(struct device **out, const struct device_options *o, char err[ERR_LEN]);
void device_close(struct device *d);
const char *device_name(const struct device *d);     /* "cpu", "cuda:0" */
const char *device_isa(const struct device *d);      /* kernel path: "avx512", "sm_90" */
const char *device_isa_why(const struct device *d);
const char *device_attention(const struct device *d); /* "own", "cudnn" */
bool device_attention_fits(const struct device *d, int head_dim); /* whether heads of so many channels can go where device_attention says */
int device_threads(const struct device *d);
void device_use_threads(struct device *d, int n); /* from the next operation on only so many take part; 0 = all */
bool device_is_bf16(const struct device *d);
bool device_offloads(const struct device *d); /* kv_offload, where it has a meaning */
int64_t device_bytes(const struct device *d);        /* allocated now; without caches that live on the host (kv_offload) */
int64_t device_peak_bytes(const struct device *d);
void device_peak_reset(struct device *d);            /* peak = now */
/* So many bytes will be allocated soon: they are taken in one block, in which they then lie side by side, at offsets that depend on the
 * requests alone. A block stays until nothing in it is used and another is reserved. A wish: what it does not hold is asked for piece by
 * piece. device_bytes counts what is allocated, not what is reserved. */
void device_reserve(struct device *d, int64_t bytes);
int64_t device_free_bytes(struct device *d);         /* what the device itself still has; -1 = its memory is the host's */
void device_limit(struct device *d, int64_t bytes);  /* sets memory_bytes anew */
int device_pass_rows(const struct device *d);        /* rows of one pass through a model that suit it */
const char *device_error(const struct device *d);    /* last failure; "" = none */
/* What the device itself holds once a linear layer of max_k columns has run: scratch of the threads, packed rows. For estimates. */
int64_t device_scratch_bytes(const struct device *d, int64_t max_k);
bool device_oom(const struct device *d, int64_t *asked); /* the last failure was memory; bytes asked for */
int64_t device_oom_free(const struct device *d);         /* bytes that were free then where it was asked for, on the device within its limit or on the host (device_error); -1 = not known */
enum device_failure {
	DEVICE_FINE,
	DEVICE_REFUSED, /* wrong arguments, or one call failed: the next may work */
	DEVICE_MEMORY,  /* out of memory: free something, ask for less */
	DEVICE_STICKY   /* the device is lost to this process: every later call fails the same way */
};
enum device_failure device_failure(const struct device *d); /* of the last failure */
const char *device_lost(const struct device *d); /* name of the error that made it sticky ("cudaErrorIllegalAddress"); NULL = not lost */
/* Host loops (scorers): runs fn(arg, i) for i in [0,n) on the device's thread pool; returns when all are done. */
void device_parallel(struct device *d, int64_t n, void (*fn)(void *arg, int64_t i), void *arg);

struct queue *queue_new(struct device *d);              /* NULL = refused (device_error) */
struct queue *queue_new_low(struct device *d);          /* the same, giving way to the others (a proxy beside its target) */
void queue_free(struct queue *q);
int queue_sync(struct queue *q);
struct device *queue_device(struct queue *q);

/* A mark in a queue. A queue that waits for it does nothing more until all that was put before the mark is done; the host goes on.
 * On the CPU a queue is never behind, so that only the times are left. Events and queues may belong to different devices. */
struct event *event_new(struct device *d); /* NULL = refused */
void event_free(struct event *e);
int queue_event_record(struct queue *q, struct event *e);
int queue_event_wait(struct queue *q, struct event *e);
int event_sync(struct event *e); /* the host waits until all that was put before the mark is done; never recorded = at once */
int event_elapsed(struct event *from, struct event *to, int64_t *ns); /* device time between two marks. Synchronises on `to` */

/* ---- memory ---- */
struct tensor *tensor_new(struct device *d, int64_t rows, int64_t cols); /* NULL = out of memory. Not zeroed */
void tensor_free(struct tensor *t);
int64_t tensor_bytes(int64_t rows, int64_t cols); /* what tensor_new will take */
/* What only linear layers read, in the form the device multiplies best. Written by op_rmsnorm, op_attention, op_linear_swiglu and
 * op_gather_rows (from another operand of as many columns); read by op_linear, op_linear_swiglu and op_gather_rows. Freed by
 * tensor_free. */
struct tensor *operand_new(struct device *d, int64_t rows, int64_t cols);
int64_t operand_bytes(const struct device *d, int64_t rows, int64_t cols); /* what operand_new will take */
int64_t tensor_rows(const struct tensor *t);
int64_t tensor_cols(const struct tensor *t);
int tensor_write(struct queue *q, struct tensor *t, int64_t row0, int64_t rows, const float *host); /* host is copied */
int tensor_read(struct queue *q, const struct tensor *t, int64_t row0, int64_t rows, float *host);  /* synchronises */
int tensor_fill(struct queue *q, struct tensor *t, float value);
/* out = x, of the same shape, which is complete (its queue was synchronised) and may lie on another GPU: from one to the other, not through the
 * host's memory where they are peers. For devices with device_has_steps. */
int tensor_move(struct queue *q, struct tensor *out, const struct tensor *x);

/* Packs W from rows handed over in blocks (any thread, any order of blocks): rows(user, row0, n, out[n][k]). */
typedef int (*weight_rows_fn)(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN]);
struct weight *weight_new(struct device *d, int64_t n, int64_t k, weight_rows_fn rows, void *user, char err[ERR_LEN]);
void weight_free(struct weight *w);
int64_t weight_bytes(const struct device *d, int64_t n, int64_t k); /* what weight_new will take */

/* ---- linear algebra and the small operations ----
 * rows: only the first `rows` rows of the tensors take part. */
int op_embed(struct queue *q, struct tensor *out, const struct weight *table, const int32_t *ids, int64_t rows); /* ids: host */
int op_rmsnorm(struct queue *q, struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, int64_t rows);
/* out[r, c] = (add ? out[r, c] : 0) + bias[col0 + c] + sum_k x[r, k] W[col0 + c, k], c < cols. bias [1, n] or NULL.
 * col0 is a multiple of 32; rows of `out` longer than cols keep the rest. */
int op_linear(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias, int64_t col0,
	int64_t cols, bool add, int64_t rows);
/* cos | sin of row's position, [rows, d]: angle = (float)position * (float)inv_freq[t], as transformers; times mscale. positions, inv_freq: host. */
int op_rope_table(struct queue *q, struct tensor *cs, const int64_t *positions, const double *inv_freq, double mscale, int d, int64_t rows);
/* op_linear for q, k, v; heads of q and k are finished as soon as their columns are summed: RMSNorm over each head's d channels (Qwen3), then the
 * rotation of halves (t with t + d/2). */
struct head_epilogue {
	int64_t col;                          /* of the first head in out; k stands behind q */
	int q_heads, k_heads, d;              /* q_heads 0: k alone */
	const struct tensor *q_norm, *k_norm; /* [1, d]; NULL = none */
	float eps;
	const struct tensor *cs; /* [rows, d], of op_rope_table */
	struct tensor *q_pre;    /* [rows, q_heads d]: takes q before it is turned; NULL = not wanted */
};
int op_linear_qkv(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias, int64_t col0,
	int64_t cols, const struct head_epilogue *heads, int64_t rows);
/* Rows of gate and up stand in W by turns of SWIGLU_TURN: out[r, i] = silu(y[r, g]) * y[r, g + SWIGLU_TURN] with y = x W^T and
 * g = i / SWIGLU_TURN * 2 SWIGLU_TURN + i % SWIGLU_TURN, i < n / 2. n is a multiple of 2 SWIGLU_TURN. */
enum { SWIGLU_TURN = 16 };
int op_linear_swiglu(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, int64_t rows);
int op_copy(struct queue *q, struct tensor *out, int64_t out_row, int64_t out_col, const struct tensor *x, int64_t row, int64_t col, int64_t rows,
	int64_t cols);
int op_gather_rows(struct queue *q, struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n); /* rows: host */
/* Largest element of each row, lowest index on ties; NaN anywhere gives -1. Synchronises. */
int op_argmax(struct queue *q, const struct tensor *x, int64_t cols, int64_t rows, int32_t *out);

/* ---- scores: rows of importances, one a head ----
 * The common order: higher first, then the lower row, then the lower column; -0 = +0, NaN last. Bits do not depend on the device. */
/* For each of rows [row0, row0+rows) the best k[r] of columns [col0, col0+cols), 0 <= k[r] <= cols: counted from col0, ascending, to
 * out[r][0..k[r]). nan[r]: NaN among the columns. k, out, nan: host. Synchronises. */
int op_topk(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const int64_t *k, int32_t *const *out,
	int64_t *nan);
/* counts[r] = how many of the best k of all those rows together lie in row r; 0 <= k <= rows * cols. Host memory. Synchronises. */
int op_top_counts(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int64_t k, int64_t *counts);
struct pool_rule {
	char kind;      /* 'a' average (zeros outside, the divisor stays size), 'm' maximum, 'n' none; along the columns, stride 1 */
	int size;       /* odd */
	bool group_max; /* largest of a group's rows instead of their mean */
	bool pool_first; /* before the group is made one */
	float divisor;  /* of every element, first of all */
};
/* Columns [0, cols) of x [groups * g rows] / divisor, pooled, g rows made one: out [groups, >= cols], which keeps its other columns. */
int op_pool(struct queue *q, struct tensor *out, const struct tensor *x, int g, int64_t cols, const struct pool_rule *rule);

/* ---- KV memory ---- */
/* cap[layers*heads] rows each; lengths start at 0. */
struct kv *kv_new(struct device *d, int layers, int heads, int head_dim, const int64_t *cap);
void kv_free(struct kv *kv);
int64_t kv_bytes_for(const struct device *d, int head_dim, int64_t total_rows); /* bytes of K and V of so many rows over all (layer, head) */
/* What a cache of `tokens` rows for each (layer, head) takes of the device itself: all of it, or what kv_offload streams it through, less what is there for
 * that already. */
int64_t kv_device_bytes_for(const struct device *d, int layers, int heads, int head_dim, int64_t tokens);
int64_t kv_bytes(const struct kv *kv);                       /* of the rows in use */
int64_t kv_len(const struct kv *kv, int layer, int head);
void kv_truncate(struct kv *kv, int64_t len);                /* every (layer, head) back to at most len rows: answers are cut away again */
/* Rows [first, first+n) of K and V as fp32 (either may be NULL). Synchronises. */
int kv_read(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, float *k, float *v);
int kv_write(struct queue *q, struct kv *kv, int layer, int head, int64_t n, const float *k, const float *v); /* appends n rows (tests) */

/* index[l*heads + h][0..len) ascending rows of the kv it views; copied. */
struct kept *kept_new(struct device *d, int layers, int heads, const int32_t *len, const int32_t *const *index);
void kept_free(struct kept *k);
int32_t kept_len(const struct kept *k, int layer, int head);
/* compact(): the rows a view names, bit for bit, in a cache of their own with capacity for exactly them. */
int kv_gather(struct queue *q, struct kv *dst, const struct kv *src, const struct kept *k, int layer);

/* ---- attention ---- */
/* One sequence of a batch. Its new tokens are rows [row0, row0+rows) of q, k and v. They see, in this order:
 *   all of `context` (through `kept`, or all its rows when NULL), then tail rows [0, tail_len), then themselves causally.
 * Prefill of a context: context = NULL and tail = the context's own cache. */
struct attn_seq {
	int64_t row0, rows;
	const struct kv *context;  /* NULL = none */
	const struct kept *kept;   /* NULL = all rows of context */
	struct kv *tail;
	int64_t tail_len;          /* rows already in tail for this layer */
};
/* Appends the new K (columns [kcol, +heads*d) of x) and V ([vcol, ...)) rows of each sequence to its tail. */
int op_kv_append(struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol);
/* out [rows, heads*d]; q in columns [qcol, +heads*d) of x, unscaled (1/sqrt(d) is applied here). After op_kv_append.
 * lse [rows, heads] (natural log of the sum of exp of scaled logits) or NULL. heads = query heads; KV heads from the kv (repeat layout). */
int op_attention(struct queue *q, int layer, const struct attn_seq *seqs, int n, struct tensor *out, const struct tensor *x, int64_t qcol, int heads,
	struct tensor *lse);

/* A key set of up to four ranges of rows of caches. With causal, row i of `rows` queries sees only the first
 * range[n-1].n - rows + i + 1 keys of the last range (bottom-right aligned). */
struct key_range {
	const struct kv *kv;
	int64_t first, n;
};
struct key_set {
	struct key_range range[4];
	int n;
	bool causal;
};
/* Row log-sum-exp of scaled logits over a key set: lse [.., heads] rows [0, rows). q from x rows [row0, row0+rows). */
int op_attn_lse(struct queue *q, int layer, const struct key_set *keys, const struct tensor *x, int64_t row0, int64_t rows, int64_t qcol, int heads,
	struct tensor *lse);
enum attn_reduce { REDUCE_SUM, REDUCE_MAX }; /* over queries */
enum attn_group { GROUP_NONE, GROUP_MEAN, GROUP_MAX }; /* over the query heads of a KV head */
/* Probabilities exp(logit - lse) of range `which`'s columns [col0, col0+cols), reduced over the query rows, and accumulated into
 * out [heads or kv_heads, >= out_col + cols] from column out_col (SUM adds, MAX maximises; MEAN needs SUM and adds 1/g of each head).
 * lse row i belongs to query row row0+i. Rows are reduced in ascending order. No rows x keys buffer. */
int op_attn_reduce(struct queue *q, int layer, const struct key_set *keys, int which, int64_t col0, int64_t cols, const struct tensor *x, int64_t row0,
	int64_t rows, int64_t qcol, int heads, const struct tensor *lse, int64_t lse_row0, enum attn_reduce reduce, enum attn_group group,
	struct tensor *out, int64_t out_col);
/* Sums and outer products of rows, for query statistics: for each head, over rows [row0, row0+rows):
 * sum[heads][d] += x, outer[heads][d][d] += x x^T. Host memory, double. Synchronises. */
int op_moments(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int heads, int d, double *sum, double *outer);

/* A small network over the entries of a cache, one of each KV head g of all layers (LKV-T): u = b2 + w2 . silu(b1 + W1 (x - mean)),
 * x = [key | value] (`in` channels; either may be left out), the key turned back by its position's row of `turns`. */
struct entry_net {
	bool key, value;
	int hid; /* a multiple of 32 */
	const struct tensor *mean, *w1, *b1, *w2, *b2; /* [G, in], [G * in, hid], [G, hid], [G, hid], [G, 1] */
};
/* Whether kv_read costs no copy: then the host may as well work on a cache itself, on any thread, and op_utilities is not there. */
bool device_reads_caches(const struct device *d);
/* Utilities of rows [first, first+n) of every KV head of one layer by the networks of layer net_layer; turns [n, d]: cos | sin, or NULL:
 * keys as cached. out [heads][n]: host. Synchronises. */
int op_utilities(struct queue *q, const struct kv *kv, int layer, const struct entry_net *net, int net_layer, int64_t first, int64_t n,
	const struct tensor *turns, float *out);

/* ---- small networks over positions (steps.h): ProxyKV's mapper ---- */
/* Whether op_steps is there: on devices with memory of their own. Elsewhere the host does it better, strip by strip in its caches. */
bool device_has_steps(const struct device *d);
/* Runs the steps in order on columns [0, cols) of x; parameters: params [1, any]. */
int op_steps(struct queue *q, struct tensor *x, int64_t cols, const struct tensor *params, const struct step *steps, int n);

/* ---- peaks of this machine, for the bench: FLOP/s and bytes/s measured over about 0.1 s each, all threads ---- */
struct device_peaks {
	double fma_f32, dot_bf16, read_bytes; /* dot_bf16 0 = not there */
};
void device_peaks(struct device *d, struct device_peaks *p);

/* ---- where time goes: counters of each operation, off until asked for ----
 * flops: what the operation's arithmetic needs. bytes: what must pass through memory at least: weights and caches read or written;
 * for operations on rows the rows themselves (which may sit in a cache). So max(flops / peak, bytes / peak) / time is the share of
 * what the machine could do. */
struct device_profile_row {
	const char *name;
	int64_t calls, ns;
	double flops, bytes;
};
void device_profile_start(struct device *d); /* counts from zero */
void device_profile_stop(struct device *d);
/* Every operation that was called since the start, in a fixed order. */
void device_profile(const struct device *d, void (*row)(void *user, const struct device_profile_row *), void *user);

#endif
