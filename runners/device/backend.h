/* backend.h: what stands behind device.h: the function table of a backend, and the common head of every object.
 *
 * device.c opens devices by name and counts memory; ops.c checks the arguments of every operation, profiles it and hands it to
 * the table; memory.c holds what tensors, caches and views are on any device. A backend (cpu/, cuda/) starts its own structs with
 * the heads below, so that shapes and lengths need no call through the table. A backend's functions get checked arguments. */
#ifndef KVB_BACKEND_H
#define KVB_BACKEND_H

#include "runners/device/device.h"
#include "runners/device/pool.h"

#include <string.h>

enum {
	HEAD_DIM_MAX = 256,
	GROUP_HEADS_MAX = 192, /* query heads of one KV head */
	ATTN_SEGMENTS = 4,     /* ranges of a key set */
	CUDNN_HEAD_DIM_STEP = 8, CUDNN_HEAD_DIM_MAX = 128, /* heads that cuDNN's engines take on every GPU here */
	FEW_ROWS = 24          /* a linear layer of so many rows is bound by its weights: profiled on its own */
};

enum profile_op { /* names: profile.c */
	PROFILE_EMBED,
	PROFILE_NORM,
	PROFILE_LINEAR,
	PROFILE_LINEAR_FEW,
	PROFILE_ROPE_TABLE,
	PROFILE_COPY,
	PROFILE_ARGMAX,
	PROFILE_TOPK,
	PROFILE_POOL,
	PROFILE_KV_APPEND,
	PROFILE_KV_GATHER,
	PROFILE_ATTENTION,
	PROFILE_ATTENTION_ONE,
	PROFILE_ATTN_LSE,
	PROFILE_ATTN_REDUCE,
	PROFILE_MOMENTS,
	PROFILE_UTILITIES,
	PROFILE_STEPS,
	PROFILE_OPS
};
struct profile_count {
	int64_t calls, ns;
	double flops, bytes;
};

struct backend;

/* ---- heads ---- */

struct device {
	const struct backend *backend;
	char name[16];   /* "cpu", "cuda:0" */
	const char *isa; /* kernel path; lives as long as the device */
	char why[128];   /* of the isa */
	int pass_rows;     /* rows of one pass through a model that suit it */
	bool low_priority; /* of its queues */
	int64_t host_cache_from; /* K or V of so many bytes lives in the host's memory and is not counted; 0 = never */
	int staged_layers;       /* of such a cache, held on the device at a time */
	int64_t staged_bytes;    /* of the buffers that hold them, now: they go with the last such cache */
	int64_t caches;          /* made so far */
	bool bf16;
	bool cudnn;                       /* device_options.attention "cudnn" */
	struct pool *pool;                /* host loops; the CPU's operations too */
	int64_t limit, bytes, peak_bytes; /* limit 0 = none */
	char error[ERR_LEN];
	enum device_failure failure;
	const char *lost; /* the error that lost the device to this process; NULL = it is not. Lives as long as the program */
	int64_t oom_bytes, oom_free; /* of the last failure, when memory was what failed */
	bool profiling;
	struct profile_count profile[PROFILE_OPS];
};
struct queue {
	struct device *d;
};
struct event {
	struct device *d;
};
struct tensor {
	struct device *d;
	int64_t rows, cols;
	float *x;     /* [rows][cols], the device's memory */
	bool operand; /* x is what the backend makes of it: operand_bytes */
};
struct weight {
	struct device *d;
	int64_t n, k;
};
struct kv { /* row r of (l, h): k + (first[l*heads + h] + r) * head_dim elements, v the same */
	struct device *d;
	int layers, heads, head_dim;
	int64_t serial;             /* no other cache of the device has or had it */
	int64_t *cap, *len, *first; /* [layers*heads] */
	void *k, *v;                /* fp32 or bf16; the device's memory */
	int64_t bytes;              /* of k and v each */
};
struct kept {
	struct device *d;
	int layers, heads;
	int32_t *len;   /* [layers*heads] */
	int32_t *last;  /* [layers*heads] largest index; -1 = none */
	int64_t *first; /* into index */
	int32_t *index; /* the device's memory */
	int64_t bytes;
};

/* ---- the table ----
 * Operations as in device.h; arguments are checked before. Those that return int return -1 after device_fail. */
struct backend {
	const char *name;
	bool (*isa_named)(const char *name); /* whether it has a kernel path of that name, on some machine; NULL = it has no names for them */
	/* Whether device `index` could be opened here; `what` names it, or says in one sentence why not. */
	bool (*usable)(int index, char what[DEVICE_WHAT]);
	/* Whether attention "cudnn" may be chosen; what: the library's version, or why not. NULL = never. */
	bool (*cudnn_usable)(char what[DEVICE_WHAT]);
	/* The options are checked; starts with device_head(), fills name, isa and why. NULL = failed (err), and then the pool is
	 * the caller's. */
	struct device *(*open)(const struct device_options *o, int index, struct pool *pool, char err[ERR_LEN]);
	void (*close)(struct device *d); /* frees d, not its pool */
	int64_t (*scratch_bytes)(const struct device *d, int64_t max_k);
	void (*peaks)(struct device *d, struct device_peaks *p);

	/* Raw memory, 64-byte aligned; NULL = refused. device.c counts it. cache: K and V, which may live elsewhere. free waits for what was
	 * queued before. */
	void *(*alloc)(struct device *d, int64_t bytes, bool cache);
	void (*free)(struct device *d, void *p, int64_t bytes, bool cache);
	void (*reserve)(struct device *d, int64_t bytes);                            /* device_reserve */
	int64_t (*free_bytes)(struct device *d);                                     /* -1 = not known */
	int (*upload)(struct device *d, void *dst, const void *host, int64_t bytes); /* done when it returns */

	struct queue *(*queue_new)(struct device *d, bool low_priority);
	void (*queue_free)(struct queue *q);
	int (*queue_sync)(struct queue *q);
	struct event *(*event_new)(struct device *d);
	void (*event_free)(struct event *e);
	int (*event_record)(struct queue *q, struct event *e);
	int (*event_wait)(struct queue *q, struct event *e);
	int (*event_sync)(struct event *e); /* the host waits */
	int (*event_elapsed)(struct event *from, struct event *to, int64_t *ns);

	int (*tensor_write)(struct queue *q, struct tensor *t, int64_t row0, int64_t rows, const float *host);
	int (*tensor_read)(struct queue *q, const struct tensor *t, int64_t row0, int64_t rows, float *host);
	int (*tensor_fill)(struct queue *q, struct tensor *t, float value);
	int (*tensor_move)(struct queue *q, struct tensor *out, const struct tensor *x); /* NULL = the host's own memory: nobody asks */

	int64_t (*operand_bytes)(const struct device *d, int64_t rows, int64_t cols);
	int (*operand_clear)(struct tensor *t); /* zeros, padding included; done when it returns */

	struct weight *(*weight_new)(struct device *d, int64_t n, int64_t k, weight_rows_fn rows, void *user, char err[ERR_LEN]);
	void (*weight_free)(struct weight *w);
	int64_t (*weight_bytes)(const struct device *d, int64_t n, int64_t k);

	int (*kv_read)(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, float *k, float *v);
	int (*kv_write)(struct queue *q, struct kv *kv, int layer, int head, int64_t n, const float *k,
		const float *v); /* lengths: memory.c */
	int (*kv_append)(struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol,
		int64_t vcol);
	int (*kv_gather)(struct queue *q, struct kv *dst, const struct kv *src, const struct kept *k, int layer);

	int (*embed)(struct queue *q, struct tensor *out, const struct weight *table, const int32_t *ids, int64_t rows);
	int (*rmsnorm)(
		struct queue *q, struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, int64_t rows);
	int (*linear)(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w,
		const struct tensor *bias, int64_t col0, int64_t cols, bool add, const struct head_epilogue *heads, int64_t rows); /* heads: or NULL */
	int (*rope_table)(struct queue *q, struct tensor *cs, const int64_t *positions, const double *inv_freq, double mscale,
		int d, int64_t rows);
	int (*linear_swiglu)(
		struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, int64_t rows);
	int (*copy)(struct queue *q, struct tensor *out, int64_t out_row, int64_t out_col, const struct tensor *x, int64_t row,
		int64_t col, int64_t rows, int64_t cols);
	int (*gather_rows)(struct queue *q, struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n);
	int (*argmax)(struct queue *q, const struct tensor *x, int64_t cols, int64_t rows, int32_t *out);
	int (*topk)(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const int64_t *k,
		int32_t *const *out, int64_t *nan);
	int (*top_counts)(
		struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int64_t k, int64_t *counts);
	int (*pool)(struct queue *q, struct tensor *out, const struct tensor *x, int g, int64_t cols, const struct pool_rule *rule);
	int (*attention)(struct queue *q, int layer, const struct attn_seq *seqs, int n, struct tensor *out,
		const struct tensor *x, int64_t qcol, int heads, struct tensor *lse);
	int (*attn_lse)(struct queue *q, int layer, const struct key_set *keys, const struct tensor *x, int64_t row0,
		int64_t rows, int64_t qcol, int heads, struct tensor *lse);
	int (*attn_reduce)(struct queue *q, int layer, const struct key_set *keys, int which, int64_t col0, int64_t cols,
		const struct tensor *x, int64_t row0, int64_t rows, int64_t qcol, int heads, const struct tensor *lse,
		int64_t lse_row0, enum attn_reduce reduce, enum attn_group group, struct tensor *out, int64_t out_col);
	int (*moments)(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int heads, int d,
		double *sum, double *outer);
	/* NULL = caches are the host's own memory, which reads them itself (device_reads_caches) */
	int (*utilities)(struct queue *q, const struct kv *kv, int layer, const struct entry_net *net, int net_layer, int64_t first,
		int64_t n, const struct tensor *turns, float *out);
	/* NULL = the host does it (device_has_steps) */
	int (*steps)(struct queue *q, struct tensor *x, int64_t cols, const struct tensor *params, const struct step *steps, int n);
};
extern const struct backend backend_cpu, backend_cuda; /* without nvcc backend_cuda is cuda_absent.c: never usable */

/* ---- what backends take from device.c ---- */

/* Counted memory; NULL = refused (device_oom says so). Free with the same size. */
void *device_alloc(struct device *d, int64_t bytes);
void device_free(struct device *d, void *p, int64_t bytes);
void *device_alloc_cache(struct device *d, int64_t bytes); /* K and V */
void device_free_cache(struct device *d, void *p, int64_t bytes);
void device_head(struct device *d, const struct backend *b, const struct device_options *o, struct pool *pool);
int device_fail(struct device *d, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* sets the error, returns -1 */

static inline int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}
/* Bytes of a piece of memory as device.c counts them. */
static inline int64_t counted(int64_t bytes)
{
	return round_up(bytes > 0 ? bytes : 1, 64);
}
static inline bool cache_on_host(const struct device *d, int64_t bytes)
{
	return d->host_cache_from && bytes >= d->host_cache_from;
}
static inline int64_t kv_element(const struct device *d)
{
	return d->bf16 ? 2 : 4;
}
static inline void *kv_row(const struct kv *kv, void *base, int layer, int head, int64_t row)
{
	return (char *)base + (kv->first[layer * kv->heads + head] + row) * kv->head_dim * kv_element(kv->d);
}

#endif
