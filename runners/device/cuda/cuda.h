/* cuda.h: what the host files of the CUDA backend share: a device, its queues (streams) and what stands behind tensors and weights.
 *
 * Every call into CUDA is checked (cuda_check); a failure that the device does not recover from is marked sticky. Nothing here allocates while
 * work is queued, except scratch that grows to its largest use. One host thread at a time uses a queue. */
#ifndef KVB_CUDA_H
#define KVB_CUDA_H

#include "runners/device/arena.h"
#include "runners/device/backend.h"
#include "runners/device/cuda/kernels.h"

#include <cublas_v2.h>

/* cuBLAS, found when the first device is opened, so that the program starts where there is none. */
struct cublas {
	cublasStatus_t (*create)(cublasHandle_t *h);
	cublasStatus_t (*destroy)(cublasHandle_t h);
	cublasStatus_t (*set_stream)(cublasHandle_t h, cudaStream_t s);
	cublasStatus_t (*set_workspace)(cublasHandle_t h, void *workspace, size_t bytes);
	cublasStatus_t (*set_math_mode)(cublasHandle_t h, cublasMath_t mode);
	cublasStatus_t (*gemm)(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void *alpha,
		const void *a, cudaDataType at, int lda, const void *b, cudaDataType bt, int ldb, const void *beta, void *c,
		cudaDataType ct, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo);
};
/* NULL = not found (why). Lives as long as the process. */
const struct cublas *cublas_load(char why[DEVICE_WHAT]);
/* Of an open library that messages call `called`; NULL = it has none of that name: the first one missing is told in why, which begins empty. */
void *library_symbol(void *library, const char *called, const char *name, char why[DEVICE_WHAT]);

/* The driver's function that makes tensor maps; NULL = there is none. */
typedef __typeof__(cuTensorMapEncodeTiled) *map_encoder;
map_encoder cuda_map_encoder(void);

enum {
	LINEAR_FEW = 64,        /* up to so many rows a linear layer always has the shape of this many: bits do not depend on the batch */
	LINEAR_ROWS = 4096,     /* rows of one product: bounds the rounded copy of X */
	SWIGLU_ROWS = 1024,     /* rows of gate and up at a time: bounds their buffer */
	LINEAR_COLS = 32768,    /* columns of one product of few rows: bounds their buffer */
	ITEMS = 4096,           /* attention items of one launch */
	MAPS = 4096,            /* and tensor maps of their segments */
	WEIGHT_ROWS = 32        /* rows of W that a host thread fetches at a time */
};
static const int64_t RING_HALF = 2 << 20;        /* bytes of argument lists uploaded before the host waits for the older half */
static const int64_t WORKSPACE_BYTES = 32 << 20; /* of cuBLAS, a queue */
static const int64_t DNN_BYTES = 32 << 20;       /* workspace of cuDNN's attention, a queue: engines that ask for more are passed over */
static const int64_t PARTS_FLOATS = 16 << 20;    /* results of parts of attention at a time */
static const int64_t PACK_BYTES = 32 << 20;      /* packed queries at a time, at most */
static const int64_t RESULT_BYTES = 16 << 20;    /* tokens, moments on their way to the host: more than any model here needs */
static const int64_t STAGE_BYTES = 32 << 20;     /* pinned memory through which weights pass */
static const int64_t OFFLOAD_BYTES = 64 << 20;   /* K or V of a cache from which on --kv-offload applies, */
static const int64_t OFFLOAD_SHARE = 1024;       /* or one in so many bytes of the device's memory where that is less */

struct cuda_device {
	struct device head;
	int index;
	char isa[16];     /* "sm_90", "sm_90a" with kernels of wgmma */
	bool wgmma;       /* attention of many rows by attend_wgmma.cu where the heads fit, */
	map_encoder encode_map; /* with tensor maps; NULL = without */
	const struct cublas *blas;
	void *stage;      /* pinned, STAGE_BYTES; made by the first weight */
	struct arena arena; /* blocks of cuda_reserve; what does not fit there is a piece of its own */
	struct cuda_queue *queues; /* all of the device */
	int host_pieces;  /* K's and V's of caches in the host's memory */
};
static inline struct cuda_device *cuda_device(struct device *d)
{
	return (struct cuda_device *)d;
}

/* Argument lists on their way to the device: pinned host memory and its twin, used in two halves; a half is written again only when the uploads from
 * it are done. */
struct ring {
	char *host, *device;
	int64_t at, half_bytes; /* the latter RING_HALF; tests take less */
	int half;               /* the one at stands in, or behind when it is full */
	cudaEvent_t done[2];
	bool used[2];
};
/* Device buffers of a queue that grow to their largest use. */
enum scratch { SCRATCH_IN, SCRATCH_OUT, SCRATCH_PARTS, SCRATCH_PACK, SCRATCH_RESULT, SCRATCH_DNN, SCRATCHES };
/* Device buffers that hold one layer of a cache of the host's memory (offload.c). */
enum { STAGED = 4 };
struct staged {
	const struct kv *kv; /* NULL = nothing */
	int64_t serial, used; /* of the kv; when it was looked at last (cuda_queue.uses) */
	int layer;
	bool awaited;        /* the queue has waited for `filled`, */
	bool looked;         /* and looked at it since `read` was recorded */
	int64_t *rows;       /* [heads] rows it has (or that are on their way) */
	void *buffer;        /* keys of all the layer's rows, then values */
	int64_t bytes;
	cudaEvent_t filled, read;
};
struct cuda_queue {
	struct queue head;
	struct cuda_queue *next; /* of cuda_device.queues */
	cudaStream_t stream;
	cublasHandle_t blas;
	struct dnn *dnn; /* NULL = attention by our kernels alone */
	void *workspace;
	struct ring ring;
	void *scratch[SCRATCHES];
	int64_t scratch_bytes[SCRATCHES];
	int64_t pack_bytes; /* PACK_BYTES; tests take less */
	struct attend_item *items[2]; /* [ITEMS] lists in the making: many rows, few rows */
	CUtensorMap *maps;    /* the same, of the segments of many rows; NULL = the device has none */
	int most_maps;        /* MAPS; tests take less */
	struct staged staged[STAGED];
	int64_t uses;         /* counts them */
	cudaStream_t copier;  /* copies whole layers; NULL until one is staged */
	cudaEvent_t wrote;    /* the last write to a cache of the host's memory */
};
static inline struct cuda_queue *cuda_queue(struct queue *q)
{
	return (struct cuda_queue *)q;
}

struct cuda_weight {
	struct weight head;
	int64_t ld; /* k rounded up to 8 */
	void *w;    /* [n][ld] bf16 or fp32 */
};
static inline const struct cuda_weight *cuda_weight(const struct weight *w)
{
	return (const struct cuda_weight *)w;
}

/* 0, or -1 after device_fail: "what: the error's name". Finds out whether the device is lost. */
int cuda_check(struct device *d, cudaError_t e, const char *what);
/* The calling thread's current device. */
int cuda_use(struct device *d);
/* A copy of `bytes` host bytes on the device, for kernels put on the queue before the next 2 MB of uploads; NULL = failed. At most RING_HALF. */
const void *cuda_upload_list(struct queue *q, const void *host, int64_t bytes);
/* At least `bytes` of scratch; NULL = out of memory. What was in it is lost when it grows. */
void *cuda_scratch(struct queue *q, enum scratch which, int64_t bytes);
static inline int64_t padded_cols(int64_t cols)
{
	return round_up(cols, 8);
}
/* Rows of a tensor from row0 on. */
static inline struct rows tensor_rows_from(const struct tensor *t, int64_t row0)
{
	bool bf16 = t->operand && t->d->bf16;
	int64_t ld = t->operand ? padded_cols(t->cols) : t->cols;
	return (struct rows){(char *)t->x + row0 * ld * (bf16 ? 2 : 4), ld, bf16};
}

/* ---- queue.c ---- */
struct queue *cuda_queue_new(struct device *d, bool low_priority);
void cuda_queue_free(struct queue *q);
int cuda_queue_sync(struct queue *q);
struct event *cuda_event_new(struct device *d);
void cuda_event_free(struct event *e);
int cuda_event_record(struct queue *q, struct event *e);
int cuda_event_wait(struct queue *q, struct event *e);
int cuda_event_sync(struct event *e);
int cuda_event_elapsed(struct event *from, struct event *to, int64_t *ns);

/* ---- memory.c ---- */
int cuda_tensor_write(struct queue *q, struct tensor *t, int64_t row0, int64_t rows, const float *host);
int cuda_tensor_read(struct queue *q, const struct tensor *t, int64_t row0, int64_t rows, float *host);
int cuda_tensor_fill(struct queue *q, struct tensor *t, float value);
int cuda_tensor_move(struct queue *q, struct tensor *out, const struct tensor *x);
int64_t cuda_operand_bytes(const struct device *d, int64_t rows, int64_t cols);
int cuda_operand_clear(struct tensor *t);
struct weight *cuda_weight_new(struct device *d, int64_t n, int64_t k, weight_rows_fn rows, void *user, char err[ERR_LEN]);
void cuda_weight_free(struct weight *w);
int64_t cuda_weight_bytes(const struct device *d, int64_t n, int64_t k);
int cuda_kv_read(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, float *k, float *v);
int cuda_kv_write(struct queue *q, struct kv *kv, int layer, int head, int64_t n, const float *k, const float *v);
int cuda_kv_append(struct queue *q, int layer, const struct attn_seq *seqs, int n, const struct tensor *x, int64_t kcol, int64_t vcol);
int cuda_kv_gather(struct queue *q, struct kv *dst, const struct kv *src, const struct kept *k, int layer);

/* ---- offload.c ---- */
/* One layer of a cache as kernels read it: row r of head h at k (v) + (kv->first[layer*heads + h] - first + r) rows. Good until the queue has looked at
 * STAGED - 1 other layers. */
struct kv_view {
	char *k, *v;
	int64_t first;
};
int cuda_kv_view(struct queue *q, const struct kv *kv, int layer, struct kv_view *out);
/* Whether cuda_kv_view would leave alone what was looked at after `since` (a value of cuda_queue.uses). */
bool cuda_kv_room(struct queue *q, const struct kv *kv, int layer, int64_t since);
/* After the operation that looked at this layer was put on the queue: the next one's rows are copied while it runs. */
int cuda_kv_ahead(struct queue *q, const struct kv *kv, int layer);
/* Around the operation that writes rows [from, ...) of a head. */
int cuda_kv_write_begin(struct queue *q, const struct kv *kv, int layer, int head, int64_t from);
int cuda_kv_write_end(struct queue *q, const struct kv *kv);
/* Gives the buffers back, once the device has done all that was asked of it and no cache is left that they could hold. */
void cuda_offload_drop(struct queue *q);
void cuda_offload_close(struct queue *q);
static inline char *view_row(const struct kv_view *view, char *base, const struct kv *kv, int layer, int head, int64_t row)
{
	return base + (kv->first[layer * kv->heads + head] - view->first + row) * kv->head_dim * kv_element(kv->d);
}

/* ---- rows.c ---- */
int cuda_embed(struct queue *q, struct tensor *out, const struct weight *table, const int32_t *ids, int64_t rows);
int cuda_rmsnorm(struct queue *q, struct tensor *out, const struct tensor *x, const struct tensor *w, float eps, int64_t rows);
int cuda_rope_table(struct queue *q, struct tensor *cs, const int64_t *positions, const double *inv_freq, double mscale, int d, int64_t rows);
int cuda_copy(struct queue *q, struct tensor *out, int64_t out_row, int64_t out_col, const struct tensor *x, int64_t row, int64_t col, int64_t rows,
	int64_t cols);
int cuda_gather_rows(struct queue *q, struct tensor *out, const struct tensor *x, const int32_t *rows, int64_t n);
int cuda_argmax(struct queue *q, const struct tensor *x, int64_t cols, int64_t rows, int32_t *out);
int cuda_moments(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int heads, int d, double *sum, double *outer);

int cuda_utilities(struct queue *q, const struct kv *kv, int layer, const struct entry_net *net, int net_layer, int64_t first, int64_t n,
	const struct tensor *turns, float *out);
int cuda_steps(struct queue *q, struct tensor *x, int64_t cols, const struct tensor *params, const struct step *steps, int n);

/* ---- scores.c ---- */
int cuda_topk(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, const int64_t *k, int32_t *const *out,
	int64_t *nan);
int cuda_top_counts(struct queue *q, const struct tensor *x, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int64_t k, int64_t *counts);
int cuda_pool(struct queue *q, struct tensor *out, const struct tensor *x, int g, int64_t cols, const struct pool_rule *rule);

/* ---- matmul.c ---- */
int cuda_linear(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, const struct tensor *bias, int64_t col0,
	int64_t cols, bool add, const struct head_epilogue *heads, int64_t rows);
int cuda_linear_swiglu(struct queue *q, struct tensor *out, const struct tensor *x, const struct weight *w, int64_t rows);
void cuda_peaks(struct device *d, struct device_peaks *p);

/* ---- maps.c ---- */
/* The map of n bf16 rows of dim channels, at a multiple of 16 bytes. */
int cuda_map_rows(struct device *d, CUtensorMap *map, const void *rows, int64_t n, int dim);

/* ---- attention.c ---- */
int cuda_attention(struct queue *q, int layer, const struct attn_seq *seqs, int n, struct tensor *out, const struct tensor *x, int64_t qcol,
	int heads, struct tensor *lse);
int cuda_attn_lse(struct queue *q, int layer, const struct key_set *keys, const struct tensor *x, int64_t row0, int64_t rows, int64_t qcol,
	int heads, struct tensor *lse);
int cuda_attn_reduce(struct queue *q, int layer, const struct key_set *keys, int which, int64_t col0, int64_t cols, const struct tensor *x,
	int64_t row0, int64_t rows, int64_t qcol, int heads, const struct tensor *lse, int64_t lse_row0, enum attn_reduce reduce,
	enum attn_group group, struct tensor *out, int64_t out_col);

/* ---- cuDNN's attention: dnn.c, or dnn_absent.c in a build without cuDNN ---- */
/* Whether the library is there; what: its version, or why not. */
bool cuda_dnn_usable(char what[DEVICE_WHAT]);
struct dnn *cuda_dnn_new(struct queue *q); /* what a queue needs for it; NULL after device_fail */
void cuda_dnn_free(struct dnn *n);         /* after the queue's work is done; NULL is fine */
/* Whether this sequence is one for it: the rule is in dnn.c. */
bool cuda_dnn_takes(const struct queue *q, int layer, const struct attn_seq *s, int heads, const struct tensor *out);
/* op_attention of one sequence that it takes; view: of its tail's layer. */
int cuda_dnn_attention(struct queue *q, int layer, const struct attn_seq *s, const struct kv_view *view, struct tensor *out, const struct tensor *x,
	int64_t qcol, int heads, struct tensor *lse);

#endif
