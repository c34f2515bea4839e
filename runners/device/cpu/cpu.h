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

#include "runners/device/arena.h"
#include "runners/device/backend.h"

#include <math.h>

enum {
	PANEL = 32,         /* columns of packed W that stand side by side */
	OPERAND_BLOCK = 32, /* rows and columns of a block of a bf16 operand */
	LINEAR_ROWS = 192,  /* rows of X an item of a linear layer has at most */
	LINEAR_GROUP = 384, /* rows of X packed at once: bounds the packed copy; W is read once a group */
	LINEAR_PANELS = 16, /* panels an item of a deep layer has at most: its partial sums stay in L2 */
	LINEAR_FEW = FEW_ROWS, /* up to so many rows W streams from memory once, widened on the way: no K blocks */
	SCRATCH_BYTES = 9 << 18 /* 2.25 MB of each thread: an attention item of 256 channels takes 2.2 MB */
};

struct segment {           /* a run of keys in order: row i of it is row index[i] (or i) of k and v */
	const void *k, *v; /* [..][d], fp32 or bf16 */
	const int32_t *index;
	int64_t n;
};

struct linear_item {
	const void *x;   /* packed by pack_rows */
	int64_t rows, k; /* k padded as W's */
	const char *w;   /* first panel */
	int64_t panel_bytes;
	const float *bias;    /* of the first column; NULL = none */
	float *out;           /* first row, first column */
	int64_t out_ld, cols; /* cols may end inside the last panel */
	bool bf16, add;
	/* Panels hold SWIGLU_TURN gate and as many up columns, half as many come out: to out (of the first such column), or to an
	 * operand of blocks: [rows/32 from the first row on][operand_blocks][32][32]. panel0: of the item, in the whole matrix. */
	bool swiglu;
	uint16_t *operand;
	int64_t operand_blocks, panel0;
};

/* One (sequence, KV head, block of queries). Query i sees all segments but the last whole, of the last seen + i*causal keys. */
struct attend_item {
	struct segment seg[ATTN_SEGMENTS];
	int n_seg, g, d;
	bool bf16, causal;
	int64_t seen, queries;
	float scale;
	const float *q; /* [queries][q_ld]: head j of the group at + j*d */
	float *out;     /* the same shape, or NULL: to the operand, or only lse is wanted */
	uint16_t *operand; /* blocks [rows/32][operand_blocks][32][32] or NULL; query 0 is row row0, head 0 of the group from col0 on */
	int64_t operand_blocks, row0, col0;
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

/* One (KV head, block of at most reduce_most keys): probabilities of all queries, reduced. */
struct reduce_item {
	struct segment keys; /* n <= reduce_most; index NULL */
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
	int tile_rows;   /* of a packed tile of X */
	/* The instruction its products are made of: bf16 alone, operands are blocks [rows/32][columns/32][32][32] of bf16, padding of
	 * columns zero. NULL = fp32 FMA, bf16 is widened, operands are plain rows. */
	const char *dot;
	/* One tile: rows <= tile_rows rows of x (leading dimension ld, k columns) into [k padded to even][rows], or the blocks of one
	 * row of blocks. */
	void (*pack_rows)(void *dst, const float *x, int64_t ld, int64_t rows, int64_t k, bool bf16);
	/* A panel of W: src [n][k], n <= PANEL, to bf16 pairs; k padded to OPERAND_BLOCK; and one of its columns back to out [k]. NULL = plain C
	 * (weight.c). */
	void (*pack_panel)(void *dst, const float *src, int64_t n, int64_t k);
	void (*panel_column)(float *out, const void *panel, int64_t col, int64_t k);
	/* Rows from which on a thread is worth rows of its own, with all of W, instead of some columns of all rows: where products are fast, rows that another
	 * core wrote cost more than W read twice. 0 = never. */
	int own_rows;
	/* What fits an item's caches: the most rows and panels; and the least panels worth an item of their own. */
	void (*linear_limits)(int64_t k, int64_t *rows, int64_t *least, int64_t *most);
	void (*linear)(const struct linear_item *a, void *scratch);
	int attend_rows; /* queries x heads of the group an item of attention has at most; they share each packed key block */
	void (*attend)(const struct attend_item *a, void *scratch);
	/* The same in two steps for several threads, bit for bit: each part's result, then all parts [n][part_floats] merged.
	 * NULL = attend alone. */
	int64_t (*part_floats)(const struct attend_item *a);
	void (*attend_part)(const struct attend_item *a, int64_t part, float *result, void *scratch);
	void (*attend_merge)(const struct attend_item *a, const float *parts, void *scratch);
	int reduce_keys, reduce_most; /* keys of an item of reduce, at least and at most */
	void (*reduce)(const struct reduce_item *a, void *scratch);
	void (*rmsnorm)(float *out, const float *x, const float *w, int64_t n, float eps); /* out may be x */
	void (*rope)(float *x, const float *cos, const float *sin, int d);                 /* one head, in place */
	void (*round_row)(uint16_t *out, const float *x, int64_t n);                       /* bf16_from of each */
	double (*peak_fma)(int64_t n);            /* runs n rounds on registers; FLOPs of it */
	double (*peak_dot)(int64_t n);            /* the same by `dot` */
	float (*read)(const float *x, int64_t n, int streams); /* reads all of x, that many parts of it side by side; n a multiple of 64 a stream */
};
extern const struct cpu_kernels kernels_reference, kernels_avx2, kernels_avx512, kernels_avx512bf16, kernels_amx;

/* What the CPU has (features.c); AMX needs the system's permission besides. */
bool cpu_has_avx2(void);
bool cpu_has_avx512(void);
bool cpu_has_avx512bf16(void);
bool cpu_has_amx(void);

/* heads.c: heads [head0, head0 + heads) of e, rows [row0, row0 + rows) of out. */
void cpu_heads_finish(const struct cpu_kernels *k, const struct head_epilogue *e, struct tensor *out, int64_t row0, int64_t rows, int64_t head0,
	int64_t heads);

struct cpu_device {
	struct device head;
	const struct cpu_kernels *kernels;
	struct arena arena; /* blocks of cpu_reserve; what does not fit there is a piece of its own */
	void *scratch; /* [threads][SCRATCH_BYTES] */
	void *shared;  /* packed rows of X of the linear layer at work; grows to the widest */
	int64_t shared_bytes;
};
static inline struct cpu_device *cpu_device(struct device *d)
{
	return (struct cpu_device *)d;
}
/* Panels of PANEL rows of W (columns of y), zeros behind n and k: fp32 [panel][k][32]; bf16 [panel][k/2][32][2], so that a pair of k is one
 * 32-bit lane; for products of bf16 [panel][k/32][2][16][16][2], each 16 pairs x 16 columns a tile of AMX. */
struct cpu_weight {
	struct weight head;
	int64_t k_pad, panel_bytes;
	void *w;
};
static inline const struct cpu_weight *cpu_weight(const struct weight *w)
{
	return (const struct cpu_weight *)w;
}
/* Operands as blocks: their number side by side, and row r of the first one of its row of blocks (the next is 32 x 32 further). */
static inline bool cpu_has_blocks(const struct device *d)
{
	return ((const struct cpu_device *)d)->kernels->dot;
}
static inline int64_t operand_blocks(const struct tensor *t)
{
	return (t->cols + OPERAND_BLOCK - 1) / OPERAND_BLOCK;
}
static inline uint16_t *operand_row(const struct tensor *t, int64_t r)
{
	int64_t row_of_blocks = operand_blocks(t) * OPERAND_BLOCK * OPERAND_BLOCK;
	return (uint16_t *)t->x + r / OPERAND_BLOCK * row_of_blocks + r % OPERAND_BLOCK * OPERAND_BLOCK;
}
static inline void *cpu_scratch(struct device *d, int thread)
{
	return (char *)cpu_device(d)->scratch + (int64_t)thread * SCRATCH_BYTES;
}

/* ---- the operations, one a file; as in device.h ---- */
int cpu_tensor_write(struct queue *q, struct tensor *t, int64_t row0, int64_t rows, const float *host);
int cpu_tensor_read(struct queue *q, const struct tensor *t, int64_t row0, int64_t rows, float *host);
int64_t cpu_operand_bytes(const struct device *d, int64_t rows, int64_t cols);
int cpu_operand_clear(struct tensor *t);
int cpu_tensor_fill(struct queue *q, struct tensor *t, float value);
struct weight *cpu_weight_new(struct device *d, int64_t n, int64_t k, weight_rows_fn rows, void *user, char err[ERR_LEN]);
void cpu_weight_free(struct weight *w);
int64_t cpu_weight_bytes(const struct device *d, int64_t n, int64_t k);
int cpu_kv_read(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, float *k, float *v);
int cpu_kv_write(struct queue *q, struct kv *kv, int layer, int head, int64_t n, const float *k, const float *v);
int cpu_kv_append(struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol);
int cpu_kv_gather(struct queue *q, struct kv *dst, const struct kv *src, const struct kept *k, int layer);
int cpu_embed(struct queue *q, struct tensor *out, const struct weight *table, const int32_t *ids, int64_t rows);
int cpu_rmsnorm(struct queue *q, struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, int64_t rows);
int cpu_linear(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias, int64_t col0,
	int64_t cols, bool add, const struct head_epilogue *heads, int64_t rows);
int cpu_rope_table(struct queue *q, struct tensor *cs, const int64_t *positions, const double *inv_freq, double mscale, int d, int64_t rows);
int cpu_linear_swiglu(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, int64_t rows);
int cpu_copy(struct queue *q, struct tensor *out, int64_t out_row, int64_t out_col, const struct tensor *x, int64_t row, int64_t col, int64_t rows,
	int64_t cols);
int cpu_gather_rows(struct queue *q, struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n);
int cpu_argmax(struct queue *q, const struct tensor *x, int64_t cols, int64_t rows, int32_t *out);
int cpu_topk(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const int64_t *k, int32_t *const *out,
	int64_t *nan);
int cpu_top_counts(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int64_t k, int64_t *counts);
int cpu_pool(struct queue *q, struct tensor *out, const struct tensor *x, int g, int64_t cols, const struct pool_rule *rule);
int cpu_attention(struct queue *q, int layer, const struct attn_seq *seqs, int n, struct tensor *out, const struct tensor *x, int64_t qcol, int heads,
	struct tensor *lse);
int cpu_attn_lse(struct queue *q, int layer, const struct key_set *keys, const struct tensor *x, int64_t row0, int64_t rows, int64_t qcol, int heads,
	struct tensor *lse);
int cpu_attn_reduce(struct queue *q, int layer, const struct key_set *keys, int which, int64_t col0, int64_t cols, const struct tensor *x,
	int64_t row0, int64_t rows, int64_t qcol, int heads, const struct tensor *lse, int64_t lse_row0, enum attn_reduce reduce,
	enum attn_group group, struct tensor *out, int64_t out_col);
int cpu_moments(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int heads, int d, double *sum, double *outer);
void cpu_peaks(struct device *d, struct device_peaks *p);

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
