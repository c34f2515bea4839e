/* cpu.h: how the CPU lays things out, and the table of kernels chosen once when the device is opened.
 *
 * A kernel is the work of one thread on one item: no threads, no allocation, no errors. The operations (cpu/X.c, one a file)
 * check, cut the work into items and hand them to the pool. `reference.c` is the table in plain C; kernels/ is compiled once for
 * each instruction set and gives one table each. Whatever needs no speed has no entry here: it is plain C in its operation's
 * file.
 *
 * bf16 values are held as uint16_t in weights and caches; inside kernels they are widened, which is exact. */
#ifndef KVB_CPU_H
#define KVB_CPU_H

#include "runners/device/device.h"
#include "runners/device/pool.h"

#include <math.h>
#include <string.h>

enum {
	PANEL = 32,         /* columns of packed W that stand side by side */
	LINEAR_ROWS = 96,   /* rows of X an item of a linear layer has at most: a K block of them stays in L2 */
	LINEAR_GROUP = 384, /* rows of X packed at once: bounds the packed copy; W is read once a group */
	LINEAR_PANELS = 16, /* panels an item has at most: its partial sums (192 KB) stay in L2 */
	LINEAR_K = 192,     /* K block: a widened panel (24 KB) is read from L1 */
	LINEAR_FEW = 24,    /* up to so many rows W streams from memory once, widened on the way: no K blocks */
	ATTN_ROWS = 192,    /* queries x heads of the group an item of attention has at most; they share each packed key block */
	HEAD_DIM_MAX = 256,
	ATTN_SEGMENTS = 4,
	SCRATCH_BYTES = 1 << 20 /* of each thread: the most an attention item takes is 0.9 MB */
};

struct segment {           /* a run of keys in order: row i of it is row index[i] (or i) of k and v */
	const void *k, *v; /* [..][d], fp32 or bf16 */
	const int32_t *index;
	int64_t n;
};

struct linear_item {
	const void *x;   /* packed by pack_rows: tiles of tile_rows rows, [tile][k][rows of the tile] */
	int64_t rows, k; /* k padded to even */
	const char *w;   /* first panel */
	int64_t panel_bytes;
	const float *bias;    /* of the first column; NULL = none */
	float *out;           /* first row, first column */
	int64_t out_ld, cols; /* cols may end inside the last panel */
	bool bf16, add;
};

/* One (sequence, KV head, block of queries). Query i sees all segments but the last whole, of the last seen + i*causal keys. */
struct attend_item {
	struct segment seg[ATTN_SEGMENTS];
	int n_seg, g, d;
	bool bf16, causal;
	int64_t seen, queries;
	float scale;
	const float *q; /* [queries][q_ld]: head j of the group at + j*d */
	float *out;     /* the same shape, or NULL: only lse is wanted */
	float *lse;     /* [queries][lse_ld]: head j of the group at + j; or NULL */
	int64_t q_ld, out_ld, lse_ld;
};

/* Keys of segment s that some query of the item sees; and its runs of ATTN_PART keys, over all segments. */
static inline int64_t attend_end(const struct attend_item *a, int s)
{
	int64_t n = a->seg[s].n, seen = a->seen + (a->causal ? a->queries - 1 : 0);
	return s < a->n_seg - 1 || seen > n ? n : seen < 0 ? 0 : seen;
}
static inline int64_t attend_parts(const struct attend_item *a)
{
	int64_t parts = 0;
	for (int s = 0; s < a->n_seg; s++)
		parts += (attend_end(a, s) + ATTN_PART - 1) / ATTN_PART;
	return parts;
}
/* Floats of one part's result: for each row (query x head) d padded to 32 sums, then all maxima, then all sums of p. */
static inline int64_t attend_part_floats(const struct attend_item *a)
{
	return a->queries * a->g * ((a->d + 31) / 32 * 32 + 2);
}

/* One (KV head, block of at most ATTN_BLOCK keys): probabilities of all queries, reduced. */
struct reduce_item {
	struct segment keys; /* n <= ATTN_BLOCK; index NULL */
	int g, d;
	bool bf16, causal;
	int64_t seen, queries; /* query i sees the first seen + i*causal of these keys; seen may be negative */
	float scale;
	const float *q, *lse;
	int64_t q_ld, lse_ld;
	enum attn_reduce reduce;
	enum attn_group group;
	float *out; /* GROUP_NONE: [g][out_ld], else [1][..]; holds the sums or maxima so far */
	int64_t out_ld;
};

struct cpu_kernels {
	const char *name;
	int tile_rows;
	bool pairs; /* X of a bf16 linear layer is packed as pairs of bf16 (vdpbf16ps), else as rounded fp32 */
	/* one tile: rows <= tile_rows rows of x (leading dimension ld, k columns) into [k padded to even][rows] */
	void (*pack_rows)(void *dst, const float *x, int64_t ld, int64_t rows, int64_t k, bool bf16);
	void (*linear)(const struct linear_item *a, void *scratch);
	void (*attend)(const struct attend_item *a, void *scratch);
	/* The same in two steps for several threads, bit for bit: each part's result, then all parts [n][attend_part_floats]
	 * merged. NULL = attend alone. */
	void (*attend_part)(const struct attend_item *a, int64_t part, float *result, void *scratch);
	void (*attend_merge)(const struct attend_item *a, const float *parts, void *scratch);
	void (*reduce)(const struct reduce_item *a, void *scratch);
	void (*rmsnorm)(float *out, const float *x, const float *w, int64_t n, float eps); /* out may be x */
	void (*rope)(float *x, const float *cos, const float *sin, int d);                 /* one head, in place */
	void (*swiglu)(float *out, const float *gate, const float *up, int64_t n);
	double (*peak_fma)(int64_t n);            /* runs n rounds on registers; FLOPs of it */
	double (*peak_dot)(int64_t n);            /* the same by vdpbf16ps; NULL = not there */
	float (*read)(const float *x, int64_t n); /* reads all of x, n a multiple of 256 */
};
extern const struct cpu_kernels kernels_reference, kernels_avx2, kernels_avx512, kernels_avx512bf16;

enum profile_op { /* names: profile.c */
	PROFILE_EMBED,
	PROFILE_NORM,
	PROFILE_LINEAR,
	PROFILE_LINEAR_FEW,
	PROFILE_HEAD_NORM,
	PROFILE_ROPE_TABLE,
	PROFILE_ROPE,
	PROFILE_SWIGLU,
	PROFILE_COPY,
	PROFILE_ARGMAX,
	PROFILE_KV_APPEND,
	PROFILE_KV_GATHER,
	PROFILE_ATTENTION,
	PROFILE_ATTENTION_ONE,
	PROFILE_ATTN_LSE,
	PROFILE_ATTN_REDUCE,
	PROFILE_MOMENTS,
	PROFILE_OPS
};
struct profile_count {
	int64_t calls, ns;
	double flops, bytes;
};

struct device {
	const struct cpu_kernels *kernels;
	struct pool *pool;
	bool bf16;
	char why[128];
	int64_t limit, bytes, peak_bytes; /* limit 0 = none */
	void *scratch;                    /* [threads][SCRATCH_BYTES] */
	void *shared;                     /* packed rows of X of the linear layer at work; grows to the widest */
	int64_t shared_bytes;
	char error[ERR_LEN];
	bool oom;
	int64_t oom_bytes;
	bool profiling;
	struct profile_count profile[PROFILE_OPS];
};
struct queue {
	struct device *d;
};
struct tensor {
	struct device *d;
	int64_t rows, cols;
	float *x; /* [rows][cols] */
};
/* Panels of PANEL rows of W (columns of y), zeros behind n and k:
 * fp32 [panel][k][32]; bf16 [panel][k/2][32][2], so that a pair of k is one 32-bit lane. */
struct weight {
	struct device *d;
	int64_t n, k, k_pad, panel_bytes;
	void *w;
};
struct kv { /* row r of (l, h): k + (first[l*heads + h] + r) * head_dim elements, v the same */
	struct device *d;
	int layers, heads, head_dim;
	int64_t *cap, *len, *first; /* [layers*heads] */
	void *k, *v;
	int64_t bytes; /* of k and v each */
};
struct kept {
	struct device *d;
	int layers, heads;
	int32_t *len;   /* [layers*heads] */
	int64_t *first; /* into index */
	int32_t *index;
	int64_t bytes;
};

/* Counted memory, 64-byte aligned, huge pages for large blocks; NULL = refused (device_oom says so). Free with the same size. */
void *device_alloc(struct device *d, int64_t bytes);
void device_free(struct device *d, void *p, int64_t bytes);
int device_fail(struct device *d, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* sets the error, returns -1 */
void *device_scratch(struct device *d, int thread);
/* Around the work of an operation: 0 while nobody profiles, and then profile_end does nothing. */
static inline int64_t profile_begin(const struct device *d)
{
	return d->profiling ? clock_ns() : 0;
}
void profile_end(struct device *d, enum profile_op op, int64_t begin, double flops, double bytes);

static inline int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}
static inline int64_t kv_element(const struct device *d)
{
	return d->bf16 ? 2 : 4;
}
static inline void *kv_row(const struct kv *kv, void *base, int layer, int head, int64_t row)
{
	return (char *)base + (kv->first[layer * kv->heads + head] + row) * kv->head_dim * kv_element(kv->d);
}

static inline uint16_t bf16_from(float x) /* nearest even; NaN stays NaN */
{
	uint32_t u;
	memcpy(&u, &x, 4);
	if (x != x)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static inline float bf16_to(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float x;
	memcpy(&x, &u, 4);
	return x;
}
static inline float bf16_round(float x)
{
	return bf16_to(bf16_from(x));
}

#endif
