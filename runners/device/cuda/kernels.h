/* kernels.h: the kernels' C interface: each launcher puts one kernel on a stream and returns the launch's error. Pointers are the device's, matrices
 * row-major with a leading dimension in elements (ld). No checks: ops.c made them. */
#ifndef KVB_CUDA_KERNELS_H
#define KVB_CUDA_KERNELS_H

#include "runners/device/steps.h"

#include <cuda.h> /* types alone: the driver is not linked */
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Activations: fp32 rows, or bf16 rows (operands of linear layers in bf16 mode). */
struct rows {
	void *x;
	int64_t ld;
	bool bf16;
};

/* Success if the program holds kernels for the current device. */
cudaError_t kernel_there(void);

/* ---- rows ---- */
cudaError_t kernel_fill(cudaStream_t s, float *x, int64_t n, float value);
/* ids [rows] of table [., ld] (bf16 or fp32), n columns, to out */
cudaError_t kernel_embed(cudaStream_t s, float *out, int64_t out_ld, struct rows table, const int32_t *ids, int64_t n, int64_t rows);
cudaError_t kernel_rmsnorm(cudaStream_t s, struct rows out, const float *x, int64_t x_ld, const float *w, int64_t n, float eps, int64_t rows);
/* positions as fp32 (rounded as on the CPU), inv_freq [d/2] */
cudaError_t kernel_rope_table(cudaStream_t s, float *cs, int64_t ld, const float *positions, const float *inv_freq, float mscale, int d, int64_t rows);
/* rows of `bytes` bytes, a multiple of 4 */
cudaError_t kernel_gather_rows(cudaStream_t s, void *out, int64_t out_bytes, const void *x, int64_t x_bytes, const int32_t *index, int64_t n,
	int64_t bytes);
/* out[r] = index of the largest of x[r][0..cols), the lowest on ties, -1 with a NaN */
cudaError_t kernel_argmax(cudaStream_t s, int32_t *out, const float *x, int64_t ld, int64_t cols, int64_t rows);

/* ---- scores ---- */
/* The best k of rows of scores, each row alone (groups = rows) or all rows together (groups = 1), by the common order. */
enum { TOPK_BINS = 2048, TOPK_CHUNK = 4096 /* columns of a block */ };
struct topk_cut {
	int64_t left; /* entries still to be found among those with this key */
	int64_t nan;
	uint32_t key; /* so many of its upper bits as passes are done */
};
struct topk_part { /* entries of one chunk of a row */
	int32_t above, equal; /* above the cut, equal to it; kernel_topk_place turns them into the chunk's first place and its equals that are in */
};
struct topk_job {
	const float *x; /* [rows][ld] */
	int64_t ld, cols, rows, groups;
	uint32_t *bins;         /* [groups][TOPK_BINS], zero */
	struct topk_cut *cut;   /* [groups], {k, 0, 0} */
	struct topk_part *part; /* [rows][chunks of cols] */
	int64_t *count;         /* [rows] out: entries of the best k in this row */
};
/* Finds the cuts and count. */
cudaError_t kernel_topk(cudaStream_t s, struct topk_job job);
/* After kernel_topk: columns of the best of each row, ascending, to out + first[row]. */
cudaError_t kernel_topk_list(cudaStream_t s, struct topk_job job, int32_t *out, const int64_t *first);
struct pool_job { /* as struct pool_rule */
	const float *x; /* [groups * g][ld] */
	float *out;     /* [groups][out_ld] */
	int64_t ld, out_ld, cols, groups;
	int g, size; /* size 1: no pooling */
	bool average, group_max, pool_first;
	float divisor;
};
cudaError_t kernel_pool(cudaStream_t s, struct pool_job job);

/* ---- around a linear layer ---- */
/* Rows [0, rows) of x, k columns, to out [all_rows][out.ld], zeros elsewhere. */
cudaError_t kernel_linear_in(cudaStream_t s, struct rows out, int64_t all_rows, struct rows x, int64_t k, int64_t rows);
/* out = (add ? out : 0) + (y + bias); y may be out itself (then add must be false). bias NULL = none. */
cudaError_t kernel_linear_out(cudaStream_t s, float *out, int64_t ld, const float *y, int64_t y_ld, const float *bias, bool add, int64_t cols,
	int64_t rows);
/* After the sums of q and k: struct head_epilogue. */
struct heads_job {
	float *x; /* of the first head */
	int64_t ld, cs_ld, pre_ld, rows;
	int heads, q_heads, d;
	float eps;
	const float *q_norm, *k_norm; /* or NULL */
	const float *cs;
	float *pre; /* or NULL */
};
cudaError_t kernel_heads(cudaStream_t s, struct heads_job job);
/* y [rows][y_ld] holds gate and up by turns of 16 columns; out[r][i] = silu(gate_i) * up_i, i < f */
cudaError_t kernel_swiglu(cudaStream_t s, struct rows out, const float *y, int64_t y_ld, int64_t f, int64_t rows);

/* ---- caches ---- */
struct append_item { /* one (sequence, KV head) */
	const float *k, *v; /* first new row, first channel */
	void *to_k, *to_v;
	int64_t rows;
};
cudaError_t kernel_append(cudaStream_t s, const struct append_item *items, int n, int64_t most_rows, int64_t ld, int d, bool bf16);
struct gather_item { /* one KV head */
	const int32_t *index;
	int64_t rows;
	const void *k, *v;
	void *to_k, *to_v;
};
cudaError_t kernel_gather(cudaStream_t s, const struct gather_item *items, int n, int64_t most_rows, int64_t row_bytes);

/* ---- attention ---- */
enum { SEGMENTS = 4 };
enum { BOX_COLS = 64, BOX_ROWS = 128 }; /* of the tensor maps that kernel_attend_wgmma follows, copied with the 128-byte swizzle */
struct key_segment { /* row i of it is row index[i] (or i) of k and v, rows of d */
	const void *k, *v;
	const int32_t *index;
	const CUtensorMap *maps; /* [2] of k and v, where there is no index; NULL = none */
	int64_t n;
};
/* One (sequence, KV head). Query i sees all segments but the last whole, of the last its first seen + i (seen when not causal). */
struct attend_item {
	struct key_segment seg[SEGMENTS];
	int n_seg;
	bool causal;
	int64_t seen, queries;
	const float *q; /* head j of the group at + j*d */
	void *out;      /* fp32 or bf16 rows (shape.out_bf16); NULL = only lse */
	float *lse;     /* NULL = none */
	float *parts;   /* few rows: results of the parts, [parts][queries*g][d + 2] */
	int n_parts;    /* few rows: 1 = written to out at once */
	int part_keys;  /* few rows: a multiple of 64 */
};
struct attend_shape {
	int g, d;
	int64_t q_ld, out_ld, lse_ld;
	float scale;
	bool out_bf16;
};
/* Many rows of a sequence: tiles of rows, each over all its keys. bf16 caches. */
cudaError_t kernel_attend(cudaStream_t s, const struct attend_item *items, int n, int64_t most_rows, struct attend_shape shape);
/* The same on sm_90a for heads of 64 or 128 channels, where the program holds it for such a device. */
bool kernel_attend_wgmma_there(int major, int minor);
cudaError_t kernel_attend_wgmma(cudaStream_t s, const struct attend_item *items, int n, int64_t most_rows, struct attend_shape shape);
/* The same for fp32 caches, any number of rows. */
cudaError_t kernel_attend_plain(cudaStream_t s, const struct attend_item *items, int n, int64_t most_rows, struct attend_shape shape);
/* At most ATTEND_FEW rows (queries x heads of the group) of each item, keys in parts; then the parts are merged in ascending order. bf16 caches. */
enum { ATTEND_FEW = 16, ATTEND_PARTS = 64 };
cudaError_t kernel_attend_few(cudaStream_t s, const struct attend_item *items, int n, int most_parts, struct attend_shape shape);
/* Probabilities of one range's columns, reduced over queries. */
struct reduce_job {
	const void *const *k; /* [kv_heads] first column of each KV head; rows of d */
	int kv_heads, g, d;
	bool causal, max;        /* max: largest over queries, else sums */
	int group;               /* enum attn_group */
	int64_t cols, seen, rows; /* query i sees columns < seen + i (seen when not causal) */
	float scale;
	const void *q; /* bf16: packed [heads][rows][d_pad]; fp32: rows of q_ld, head h at + h*d */
	int64_t q_ld;
	const float *lse; /* [rows][lse_ld] */
	int64_t lse_ld;
	float *out; /* [heads or kv_heads][out_ld] */
	int64_t out_ld;
};
cudaError_t kernel_reduce(cudaStream_t s, struct reduce_job job);       /* bf16 caches */
cudaError_t kernel_reduce_plain(cudaStream_t s, struct reduce_job job); /* fp32 caches; sums in the CPU's order */
/* x [rows][heads*d] to out [heads][rows][d_pad] in bf16, zeros behind d */
cudaError_t kernel_pack_queries(cudaStream_t s, void *out, int d_pad, const float *x, int64_t ld, int heads, int d, int64_t rows);
int attend_d_pad(int d); /* the width kernels take d as: 32, 64, 128, 256 */

/* sum [heads][d] += rows, outer [heads][d][d] += x x^T, rows in ascending order */
cudaError_t kernel_moments(cudaStream_t s, double *sum, double *outer, const float *x, int64_t ld, int heads, int d, int64_t rows);

/* A network over cached entries; tensors as struct entry_net of device.h, rows of head h's network at net0 + h. */
struct utility_job {
	const void *const *k; /* [2][heads]: first entry of each head's keys, then of its values */
	int heads, d, hid, net0;
	bool key, value, bf16; /* inputs; the cache's element */
	int64_t n;
	const float *turns; /* [n][d]; NULL = keys as they are */
	const float *mean, *w1, *b1, *w2, *b2;
	float *out; /* [heads][n] */
};
cudaError_t kernel_utilities(cudaStream_t s, struct utility_job job);

/* One step of a network over positions. */
struct step_job {
	float *x; /* [rows][ld] */
	int64_t ld, cols;
	const float *params;
	struct step step;
};
cudaError_t kernel_step(cudaStream_t s, struct step_job job);
#ifdef __cplusplus
}
#endif

#endif
