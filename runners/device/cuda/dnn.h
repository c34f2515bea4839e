/* dnn.h: between the files that speak to cuDNN: its functions, the shape of one call and the plan for it. Included only where the
 * build found cuDNN's header. */
#ifndef KVB_CUDA_DNN_H
#define KVB_CUDA_DNN_H

#include "runners/device/cuda/cuda.h"

#include <cudnn_graph.h>

struct cudnn { /* its functions, found when they are first asked for */
	size_t (*version)(void);
	const char *(*error_string)(cudnnStatus_t status);
	void (*last_error)(char *message, size_t size);
	cudnnStatus_t (*create)(cudnnHandle_t *handle);
	cudnnStatus_t (*destroy)(cudnnHandle_t handle);
	cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
	cudnnStatus_t (*descriptor_new)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d);
	cudnnStatus_t (*descriptor_free)(cudnnBackendDescriptor_t d);
	cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t d);
	cudnnStatus_t (*set)(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
		int64_t n, const void *values);
	cudnnStatus_t (*get)(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
		int64_t room, int64_t *n, void *values);
	cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);
};
/* NULL = not found (why). Lives as long as the process. */
const struct cudnn *cudnn_load(char why[DEVICE_WHAT]);

/* One call: query i of every head sees keys [0, keys - rows + i]. Compared as bytes. */
struct dnn_shape {
	int64_t heads, kv_heads, d; /* query head h reads KV head h / (heads / kv_heads) */
	int64_t rows, keys;
	int64_t q_ld;      /* queries [heads][rows][q_ld], bf16 */
	int64_t head_rows; /* rows from one KV head's first key (value) to the next one's */
	int64_t out_ld;    /* out [rows][out_ld], bf16, head h at h*d */
	int64_t lse_ld;    /* lse [rows][lse_ld], fp32; 0 = none */
};
/* What a plan's tensors are called when it runs; the last four are values of the host. */
enum dnn_uid {
	DNN_Q = 1,
	DNN_K,
	DNN_V,
	DNN_OUT,
	DNN_LSE,
	DNN_SCALE,
	DNN_UNSEEN,
	DNN_ROWS,
	DNN_KEYS,
	DNN_INSIDE /* and what follows: in no memory */
};

enum { DNN_OWN = 112 };
struct dnn_plan {
	struct dnn_shape shape;
	cudnnBackendDescriptor_t plan;
	int64_t workspace;                     /* bytes */
	int64_t used;                          /* when last; counted by its owner */
	cudnnBackendDescriptor_t own[DNN_OWN]; /* the plan and all it was made from: lives as long as it */
	int n_own;
};
/* Makes p, zeroed before, for p->shape. device: a descriptor of the GPU's properties. kernels: the cache of compiled kernels of
 * this many heads, this d, with or without lse; made when it is NULL, and the caller's. 0, or -1 + err, and then p holds nothing.
 */
int dnn_plan_make(struct dnn_plan *p, const struct cudnn *f, cudnnBackendDescriptor_t device, cudnnBackendDescriptor_t *kernels,
	char err[ERR_LEN]);
void dnn_plan_free(struct dnn_plan *p, const struct cudnn *f);
/* "what: the status in words (what the library says about it)" */
int dnn_error(const struct cudnn *f, cudnnStatus_t status, const char *what, char err[ERR_LEN]);

#endif
