/* device.c: a GPU as a backend: which one, its memory, its errors, its table. */
#include "runners/device/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- errors ---- */

int cuda_check(struct device *d, cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return 0;
	cudaGetLastError();
	cudaError_t stays = cudaDeviceSynchronize(); /* what a context does not recover from comes back from every call */
	device_fail(d, "%s: %s (%s)%s", what, cudaGetErrorName(e), cudaGetErrorString(e),
		stays != cudaSuccess ? "; the device is lost to this process" : "");
	if (stays == cudaSuccess) {
		cudaGetLastError();
		return -1;
	}
	d->failure = DEVICE_STICKY;
	if (!d->lost)
		d->lost = cudaGetErrorName(stays);
	return -1;
}

int cuda_use(struct device *d)
{
	return cuda_check(d, cudaSetDevice(cuda_device(d)->index), "cudaSetDevice");
}

/* ---- which device ---- */

/* Whether NVIDIA's name or the emulation's stands behind the runtime: a result of the emulation must never pass as a GPU's. */
static bool is_emulated(const struct cudaDeviceProp *p)
{
	return !strncmp(p->name, "emulated", 8);
}

static bool cuda_usable(int index, char what[DEVICE_WHAT])
{
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);
	struct cudaDeviceProp p;
	if (e != cudaSuccess) {
		snprintf(what, DEVICE_WHAT, "no CUDA driver here: %s", cudaGetErrorString(e));
		return false;
	}
	if (index >= n) {
		snprintf(what, DEVICE_WHAT, "no CUDA device %d: there are %d", index, n);
		return false;
	}
	if ((e = cudaGetDeviceProperties(&p, index)) != cudaSuccess || (e = cudaSetDevice(index)) != cudaSuccess) {
		snprintf(what, DEVICE_WHAT, "CUDA device %d: %s", index, cudaGetErrorString(e));
		return false;
	}
	if (p.major < 8) {
		snprintf(what, DEVICE_WHAT, "%.60s is sm_%d%d; kvbench needs sm_80", p.name, p.major, p.minor);
		return false;
	}
	if (kernel_there() != cudaSuccess) {
		cudaGetLastError();
		snprintf(what, DEVICE_WHAT, "%.60s: this program was built without sm_%d%d", p.name, p.major, p.minor);
		return false;
	}
	if (!cublas_load(what))
		return false;
	snprintf(what, DEVICE_WHAT, "%.60s, sm_%d%d, %.1f GiB", p.name, p.major, p.minor, (double)p.totalGlobalMem / (1 << 30));
	return true;
}

static void block_free(void *base)
{
	cudaFree(base);
}

static void cuda_close(struct device *head)
{
	struct cuda_device *d = cuda_device(head);
	cudaSetDevice(d->index);
	cudaFreeHost(d->stage);
	arena_drop_unused(&d->arena, block_free);
	free(d);
}

/* K or V of so many bytes goes to the host's memory: the tails of small devices are worth it, too. */
static int64_t offload_from(int64_t memory)
{
	return memory / OFFLOAD_SHARE < OFFLOAD_BYTES ? memory / OFFLOAD_SHARE : OFFLOAD_BYTES;
}

static struct device *cuda_open(const struct device_options *o, int index, struct pool *pool, char err[ERR_LEN])
{
	char what[DEVICE_WHAT];
	struct cudaDeviceProp p;
	if (!cuda_usable(index, what)) {
		err_set(err, "device \"cuda:%d\": %s", index, what);
		return NULL;
	}
	if (o->isa) {
		err_set(err, "device \"cuda:%d\" has no choice of instruction sets (\"%s\" was asked for)", index, o->isa);
		return NULL;
	}
	struct cuda_device *d = mem_new(1, sizeof *d);
	device_head(&d->head, &backend_cuda, o, pool);
	d->head.pass_rows = 4096;
	d->index = index;
	d->head.staged_layers = STAGED;
	d->blas = cublas_load(what);
	if (cuda_check(&d->head, cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties") || cuda_use(&d->head)) {
		err_set(err, "device \"cuda:%d\": %s", index, d->head.error);
		cuda_close(&d->head);
		return NULL;
	}
	snprintf(d->head.name, sizeof d->head.name, "%s:%d", is_emulated(&p) ? "emulated" : "cuda", index);
	d->head.host_cache_from = o->kv_offload ? offload_from((int64_t)p.totalGlobalMem) : 0;
	d->wgmma = kernel_attend_wgmma_there(p.major, p.minor);
	d->encode_map = d->wgmma ? cuda_map_encoder() : NULL;
	snprintf(d->isa, sizeof d->isa, "sm_%d%d%s", p.major, p.minor, d->wgmma ? "a" : "");
	snprintf(d->head.why, sizeof d->head.why, "%s", what);
	cuda_usable(index, d->head.why);
	d->head.isa = d->isa;
	return &d->head;
}

/* ---- memory ---- */

static void *cuda_alloc(struct device *d, int64_t bytes, bool cache)
{
	struct cuda_device *cd = cuda_device(d);
	bool host = cache && cache_on_host(d, bytes);
	void *p = host ? NULL : arena_take(&cd->arena, bytes);
	if (p)
		return p;
	if (cuda_use(d))
		return NULL;
	cudaError_t e = host ? cudaHostAlloc(&p, (size_t)bytes, cudaHostAllocPortable) : cudaMalloc(&p, (size_t)bytes);
	if (e == cudaErrorMemoryAllocation && !host && arena_free_bytes(&cd->arena)) { /* blocks that hold nothing may be in its way */
		cudaGetLastError();
		arena_drop_unused(&cd->arena, block_free);
		e = cudaMalloc(&p, (size_t)bytes);
	}
	if (e == cudaSuccess) {
		cd->host_pieces += host;
		return p;
	}
	if (e == cudaErrorMemoryAllocation)
		cudaGetLastError(); /* device.c says how much was asked for */
	else
		cuda_check(d, e, "cudaMalloc");
	return NULL;
}

/* Only this device's own queues: a proxy on the same GPU goes on. */
static void queues_wait(struct device *d)
{
	for (struct cuda_queue *q = cuda_device(d)->queues; q; q = q->next)
		if (q->stream && cuda_check(d, cudaStreamSynchronize(q->stream), "synchronise"))
			return;
}

static void cuda_reserve(struct device *d, int64_t bytes)
{
	struct cuda_device *cd = cuda_device(d);
	void *base = NULL;
	bytes = round_up(bytes + ARENA_RANGES, ARENA_ALIGN);
	if (arena_largest(&cd->arena) >= bytes || cuda_use(d))
		return;
	arena_drop_unused(&cd->arena, block_free);
	if (cudaMalloc(&base, (size_t)bytes) == cudaSuccess)
		arena_add(&cd->arena, base, bytes);
	else
		cudaGetLastError(); /* piece by piece, then; a lost device says so there */
}

/* K or V of a cache; with the last one go the buffers it was streamed through. */
static void host_free(struct device *d, void *p)
{
	cuda_check(d, cudaDeviceSynchronize(), "cudaDeviceSynchronize"); /* a layer may be on its way from there to a buffer */
	cuda_check(d, cudaFreeHost(p), "cudaFreeHost");
	if (--cuda_device(d)->host_pieces > 0)
		return;
	for (struct cuda_queue *q = cuda_device(d)->queues; q; q = q->next)
		cuda_offload_drop(&q->head);
}

static void cuda_free(struct device *d, void *p, int64_t bytes, bool cache)
{
	if (cuda_use(d))
		return;
	if (cache && cache_on_host(d, bytes)) {
		host_free(d, p);
	} else if (arena_holds(&cuda_device(d)->arena, p)) {
		queues_wait(d); /* whoever gets the range next may write to it at once */
		arena_give(&cuda_device(d)->arena, p, bytes);
	} else {
		cuda_check(d, cudaFree(p), "cudaFree");
	}
}

static int64_t cuda_free_bytes(struct device *d)
{
	size_t there, all;
	if (cuda_use(d) || cudaMemGetInfo(&there, &all) != cudaSuccess)
		return -1;
	return (int64_t)there + arena_free_bytes(&cuda_device(d)->arena);
}

static int cuda_upload(struct device *d, void *dst, const void *host, int64_t bytes)
{
	if (cuda_use(d) || bytes == 0)
		return bytes == 0 ? 0 : -1;
	return cuda_check(d, cudaMemcpy(dst, host, (size_t)bytes, cudaMemcpyHostToDevice), "upload");
}

/* The most a queue takes with linear layers of max_k columns; without what --kv-offload stages. */
static int64_t cuda_scratch_bytes(const struct device *d, int64_t max_k)
{
	int64_t few = (int64_t)LINEAR_FEW * LINEAR_COLS * 4, swiglu = SWIGLU_ROWS * 2 * round_up(max_k, 32) * 4;
	return 2 * RING_HALF + WORKSPACE_BYTES + (d->cudnn ? DNN_BYTES : 0) + LINEAR_ROWS * padded_cols(max_k) * kv_element(d) + (few > swiglu ? few : swiglu) + PACK_BYTES +
	       PARTS_FLOATS * 4 + RESULT_BYTES;
}

const struct backend backend_cuda = {
	.name = "cuda",
	.usable = cuda_usable,
	.cudnn_usable = cuda_dnn_usable,
	.open = cuda_open,
	.close = cuda_close,
	.scratch_bytes = cuda_scratch_bytes,
	.peaks = cuda_peaks,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.reserve = cuda_reserve,
	.free_bytes = cuda_free_bytes,
	.upload = cuda_upload,
	.queue_new = cuda_queue_new,
	.queue_free = cuda_queue_free,
	.queue_sync = cuda_queue_sync,
	.event_new = cuda_event_new,
	.event_free = cuda_event_free,
	.event_record = cuda_event_record,
	.event_wait = cuda_event_wait,
	.event_sync = cuda_event_sync,
	.event_elapsed = cuda_event_elapsed,
	.tensor_write = cuda_tensor_write,
	.tensor_read = cuda_tensor_read,
	.tensor_fill = cuda_tensor_fill,
	.tensor_move = cuda_tensor_move,
	.operand_bytes = cuda_operand_bytes,
	.operand_clear = cuda_operand_clear,
	.weight_new = cuda_weight_new,
	.weight_free = cuda_weight_free,
	.weight_bytes = cuda_weight_bytes,
	.kv_read = cuda_kv_read,
	.kv_write = cuda_kv_write,
	.kv_append = cuda_kv_append,
	.kv_gather = cuda_kv_gather,
	.embed = cuda_embed,
	.rmsnorm = cuda_rmsnorm,
	.linear = cuda_linear,
	.linear_swiglu = cuda_linear_swiglu,
	.rope_table = cuda_rope_table,
	.copy = cuda_copy,
	.gather_rows = cuda_gather_rows,
	.argmax = cuda_argmax,
	.topk = cuda_topk,
	.top_counts = cuda_top_counts,
	.pool = cuda_pool,
	.attention = cuda_attention,
	.attn_lse = cuda_attn_lse,
	.attn_reduce = cuda_attn_reduce,
	.moments = cuda_moments,
	.utilities = cuda_utilities,
	.steps = cuda_steps,
};
