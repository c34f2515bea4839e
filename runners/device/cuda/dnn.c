/* dnn.c: cuDNN's fused attention (--attention cudnn): which sequences go to it, a queue's handle and plans, and one call. Our
 * kernels are the reference for it and do everything else:
 *
 *     one sequence of a batch goes to cuDNN when all of this holds, and to our kernels else:
 *     - it reads no context beside its own cache (prefill; not questions on a pruned context, second passes over it, views)
 *     - rows x query heads of a KV head > ATTEND_FEW (not decoding)
 *     - its result is an operand in bf16 (as in every forward pass)
 *     - the KV heads of the layer lie at equal distances (as in every cache that nothing was pruned from)
 *     - heads have d channels, d a multiple of 8 up to 128 (the runner refuses other models)
 *
 * Which of them a row went to depends on its own sequence alone. The same call gives the same bits; cut into other passes a row's
 * may differ, as engines choose tiles by length. So results are kept apart from our kernels' (runner.h: topology). Row
 * log-sum-exp of key sets and sums of probabilities stay with our kernels.
 *
 * Memory: packed queries and workspace are scratch of the queue, counted and bounded (PACK_BYTES, DNN_BYTES); what the library
 * takes for itself (its handle, code of kernels) is not counted. A queue's first call compiles a kernel (about a second), the
 * first of every shape makes a plan (milliseconds): warm-up, in a timed run. PLANS shapes are kept, of which the one that was
 * used longest ago makes room. */
#include "runners/device/cuda/dnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	VERSION = 91002, /* before it there are faults in attention of bf16 (9.10.0, 9.10.1), kernels of one length only, masks of
			    multiples of 64 */
	PLANS = 256,
	KERNELS = 8
};

struct dnn_kernels { /* compiled ones; they fit any length */
	int64_t heads, kv_heads, d;
	bool lse;
	cudnnBackendDescriptor_t cache;
};
struct dnn { /* of a queue */
	const struct cudnn *f;
	struct device *d;
	cudaStream_t stream;
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t device; /* its properties */
	struct dnn_kernels kernels[KERNELS];
	int n_kernels;
	struct dnn_plan *plan[PLANS];
	int n_plans;
	int64_t uses;
};

bool cuda_dnn_usable(char what[DEVICE_WHAT])
{
	const struct cudnn *f = cudnn_load(what);
	size_t v = f ? f->version() : 0;
	if (!f)
		return false;
	bool fits = v >= VERSION && v < 100000;
	snprintf(what, DEVICE_WHAT, "cuDNN %zu.%zu.%zu%s", v / 10000, v / 100 % 100, v % 100,
		fits ? "" : "; attention needs 9.10.2 or a later 9");
	return fits;
}

static int dnn_check(struct dnn *n, cudnnStatus_t status, const char *what)
{
	char err[ERR_LEN];
	if (status == CUDNN_STATUS_SUCCESS)
		return 0;
	dnn_error(n->f, status, what, err);
	if (cuda_check(n->d, cudaGetLastError(), what)) /* a lost device says so itself */
		return -1;
	return device_fail(n->d, "%s", err);
}

/* ---- a queue's ---- */

static int device_properties(struct dnn *n)
{
	int32_t index = cuda_device(n->d)->index;
	return dnn_check(n, n->f->descriptor_new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &n->device), "properties of the device") ||
	       dnn_check(n, n->f->set(n->device, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &index),
		       "properties of the device") ||
	       dnn_check(n, n->f->finalize(n->device), "properties of the device");
}

static void plan_drop(struct dnn *n, int i)
{
	dnn_plan_free(n->plan[i], n->f);
	free(n->plan[i]);
	n->plan[i] = n->plan[--n->n_plans];
}

static bool kernels_fit(const struct dnn_kernels *k, const struct dnn_shape *s)
{
	return k->heads == s->heads && k->kv_heads == s->kv_heads && k->d == s->d && k->lse == (s->lse_ld > 0);
}

/* The newest compiled kernels, and the plans that run them. */
static void kernels_drop(struct dnn *n)
{
	struct dnn_kernels *k = &n->kernels[--n->n_kernels];
	for (int i = n->n_plans; i-- > 0;)
		if (kernels_fit(k, &n->plan[i]->shape))
			plan_drop(n, i);
	if (k->cache)
		n->f->descriptor_free(k->cache);
}

struct dnn *cuda_dnn_new(struct queue *q)
{
	char what[DEVICE_WHAT];
	struct dnn *n = mem_new(1, sizeof *n);
	n->f = cudnn_load(what); /* the device was opened with it */
	n->d = q->d;
	n->stream = cuda_queue(q)->stream;
	if (dnn_check(n, n->f->create(&n->handle), "cudnnCreate") ||
		dnn_check(n, n->f->set_stream(n->handle, n->stream), "cudnnSetStream") || device_properties(n)) {
		cuda_dnn_free(n);
		return NULL;
	}
	return n;
}

void cuda_dnn_free(struct dnn *n)
{
	if (!n)
		return;
	while (n->n_kernels)
		kernels_drop(n);
	if (n->device)
		n->f->descriptor_free(n->device);
	if (n->handle)
		n->f->destroy(n->handle);
	free(n);
}

/* ---- plans ---- */

static struct dnn_kernels *kernels_for(struct dnn *n, const struct dnn_shape *s)
{
	for (int i = 0; i < n->n_kernels; i++)
		if (kernels_fit(&n->kernels[i], s))
			return &n->kernels[i];
	if (n->n_kernels == KERNELS)
		kernels_drop(n);
	n->kernels[n->n_kernels] = (struct dnn_kernels){s->heads, s->kv_heads, s->d, s->lse_ld > 0, NULL};
	return &n->kernels[n->n_kernels++];
}

static int oldest_plan(const struct dnn *n)
{
	int oldest = 0;
	for (int i = 1; i < n->n_plans; i++)
		if (n->plan[i]->used < n->plan[oldest]->used)
			oldest = i;
	return oldest;
}

/* NULL after device_fail. */
static struct dnn_plan *plan_new(struct dnn *n, const struct dnn_shape *s)
{
	char err[ERR_LEN];
	if ((n->n_plans == PLANS || n->n_kernels == KERNELS) && cuda_check(n->d, cudaStreamSynchronize(n->stream), "synchronise"))
		return NULL; /* what makes room may still be running */
	if (n->n_plans == PLANS)
		plan_drop(n, oldest_plan(n));
	struct dnn_kernels *k = kernels_for(n, s);
	struct dnn_plan *p = mem_new(1, sizeof *p);
	p->shape = *s;
	if (!dnn_plan_make(p, n->f, n->device, &k->cache, err))
		return n->plan[n->n_plans++] = p;
	free(p);
	if (!k->cache)
		n->n_kernels--; /* they were the newest */
	if (!cuda_check(n->d, cudaGetLastError(), "cuDNN"))
		device_fail(n->d, "%s", err);
	return NULL;
}

static struct dnn_plan *plan_for(struct dnn *n, const struct dnn_shape *s)
{
	struct dnn_plan *p = NULL;
	for (int i = 0; i < n->n_plans && !p; i++)
		if (!memcmp(&n->plan[i]->shape, s, sizeof *s))
			p = n->plan[i];
	if (p || (p = plan_new(n, s)))
		p->used = ++n->uses;
	return p;
}

/* ---- one call ---- */

struct dnn_data {
	const void *q, *k, *v; /* the first head's */
	void *out;
	float *lse; /* NULL = none */
};

static int pack_fill(
	struct dnn *n, cudnnBackendDescriptor_t pack, const struct dnn_shape *s, const struct dnn_data *data, void *workspace)
{
	float scale = 1 / sqrtf((float)s->d), unseen = -INFINITY;
	int32_t rows = (int32_t)s->rows, keys = (int32_t)s->keys;
	const int64_t uid[] = {DNN_Q, DNN_K, DNN_V, DNN_OUT, DNN_SCALE, DNN_UNSEEN, DNN_ROWS, DNN_KEYS, DNN_LSE};
	const void *at[] = {data->q, data->k, data->v, data->out, &scale, &unseen, &rows, &keys, data->lse};
	int64_t tensors = data->lse ? 9 : 8;
	return dnn_check(n, n->f->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, tensors, uid),
		       "tensors of a call") ||
	       dnn_check(n, n->f->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, tensors, at),
		       "tensors of a call") ||
	       dnn_check(n, n->f->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace),
		       "workspace of a call") ||
	       dnn_check(n, n->f->finalize(pack), "tensors of a call");
}

static int call(struct queue *q, const struct dnn_shape *s, const struct dnn_data *data)
{
	struct dnn *n = cuda_queue(q)->dnn;
	struct dnn_plan *p = plan_for(n, s);
	if (!p)
		return -1;
	void *workspace = p->workspace ? cuda_scratch(q, SCRATCH_DNN, p->workspace) : NULL;
	cudnnBackendDescriptor_t pack = NULL;
	if ((p->workspace && !workspace) ||
		dnn_check(n, n->f->descriptor_new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "tensors of a call"))
		return -1;
	int rc = pack_fill(n, pack, s, data, workspace) || dnn_check(n, n->f->execute(n->handle, p->plan, pack), "attention");
	n->f->descriptor_free(pack);
	return rc ? -1 : 0;
}

/* Rows from one KV head of the layer to the next; 0 = not the same everywhere. */
static int64_t head_distance(const struct kv *kv, int layer)
{
	const int64_t *first = &kv->first[layer * kv->heads];
	int64_t rows = kv->heads > 1 ? first[1] - first[0] : kv->cap[layer];
	for (int h = 1; h < kv->heads; h++)
		if (first[h] - first[h - 1] != rows)
			return 0;
	return rows;
}

bool cuda_dnn_takes(const struct queue *q, int layer, const struct attn_seq *s, int heads, const struct tensor *out)
{
	const struct kv *kv = s->tail;
	return cuda_queue((struct queue *)q)->dnn && !s->context && s->rows * (heads / kv->heads) > ATTEND_FEW && out->operand &&
	       device_attention_fits(q->d, kv->head_dim) && s->tail_len + s->rows <= INT32_MAX && head_distance(kv, layer) > 0;
}

/* Queries are packed in bf16 a bounded number of rows at a time; of the keys each lot sees a few more. */
int cuda_dnn_attention(struct queue *q, int layer, const struct attn_seq *s, const struct kv_view *view, struct tensor *out,
	const struct tensor *x, int64_t qcol, int heads, struct tensor *lse)
{
	const struct kv *kv = s->tail;
	int d = kv->head_dim, d_pad = attend_d_pad(d);
	int64_t most = cuda_queue(q)->pack_bytes / ((int64_t)heads * d_pad * 2);
	most = most < 1 ? 1 : most > s->rows ? s->rows : most;
	void *packed = cuda_scratch(q, SCRATCH_PACK, most * heads * d_pad * 2);
	for (int64_t r = 0; r < s->rows && packed; r += most) {
		int64_t rows = s->rows - r < most ? s->rows - r : most, row = s->row0 + r;
		struct rows to = tensor_rows_from(out, row);
		struct dnn_shape shape = {heads, kv->heads, d, rows, s->tail_len + r + rows, d_pad, head_distance(kv, layer),
			to.ld, lse ? lse->cols : 0};
		struct dnn_data data = {packed, view_row(view, view->k, kv, layer, 0, 0),
			view_row(view, view->v, kv, layer, 0, 0), to.x, lse ? lse->x + row * lse->cols : NULL};
		if (cuda_check(q->d,
			    kernel_pack_queries(
				    cuda_queue(q)->stream, packed, d_pad, x->x + row * x->cols + qcol, x->cols, heads, d, rows),
			    "op_attention") ||
			call(q, &shape, &data))
			return -1;
	}
	return packed ? 0 : -1;
}
