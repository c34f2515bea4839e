/* queue.c: queues are streams: work runs in the order it was put there, the host goes on; events order queues. Argument lists travel through a ring of
 * pinned memory, scratch belongs to the queue. */
#include "runners/device/cuda/cuda.h"

#include <stdlib.h>

/* ---- argument lists and scratch ---- */

const void *cuda_upload_list(struct queue *head, const void *host, int64_t bytes)
{
	struct cuda_queue *q = cuda_queue(head);
	struct ring *r = &q->ring;
	struct device *d = head->d;
	size_t listed = (size_t)bytes;
	bytes = round_up(bytes > 0 ? bytes : 1, (int64_t)_Alignof(CUtensorMap)); /* what asks for most */
	if (bytes > r->half_bytes) {
		device_fail(d, "an argument list of %lld bytes", (long long)bytes);
		return NULL;
	}
	if (r->at + bytes > (r->half + 1) * r->half_bytes) { /* the other half: what was uploaded from it must have left */
		if (cuda_check(d, cudaEventRecord(r->done[r->half], q->stream), "cudaEventRecord"))
			return NULL;
		r->used[r->half] = true;
		r->half = 1 - r->half;
		r->at = r->half * r->half_bytes;
		if (r->used[r->half] && cuda_check(d, cudaEventSynchronize(r->done[r->half]), "cudaEventSynchronize"))
			return NULL;
	}
	char *from = r->host + r->at, *to = r->device + r->at;
	memcpy(from, host, listed);
	r->at += bytes;
	return cuda_check(d, cudaMemcpyAsync(to, from, listed, cudaMemcpyHostToDevice, q->stream), "upload") ? NULL : to;
}

void *cuda_scratch(struct queue *head, enum scratch which, int64_t bytes)
{
	struct cuda_queue *q = cuda_queue(head);
	if (bytes <= q->scratch_bytes[which])
		return q->scratch[which];
	device_free(head->d, q->scratch[which], q->scratch_bytes[which]); /* waits for what still uses it */
	q->scratch[which] = device_alloc(head->d, bytes);
	q->scratch_bytes[which] = q->scratch[which] ? bytes : 0;
	return q->scratch[which];
}

/* ---- queues ---- */

static int ring_open(struct device *d, struct ring *r)
{
	r->half_bytes = RING_HALF;
	if (cuda_check(d, cudaHostAlloc((void **)&r->host, (size_t)(2 * RING_HALF), cudaHostAllocDefault), "pinned memory") ||
		!(r->device = device_alloc(d, 2 * RING_HALF)))
		return -1;
	for (int i = 0; i < 2; i++)
		if (cuda_check(d, cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming), "cudaEventCreate"))
			return -1;
	return 0;
}

static int blas_check(struct device *d, cublasStatus_t s, const char *what)
{
	return s == CUBLAS_STATUS_SUCCESS ? 0 : device_fail(d, "%s: cuBLAS status %d", what, (int)s);
}

static int blas_open(struct device *d, struct cuda_queue *q)
{
	const struct cublas *b = cuda_device(d)->blas;
	if (blas_check(d, b->create(&q->blas), "cublasCreate") || blas_check(d, b->set_stream(q->blas, q->stream), "cublasSetStream") ||
		!(q->workspace = device_alloc(d, WORKSPACE_BYTES)))
		return -1;
	/* its own workspace and fp32 sums everywhere: the same bits from run to run */
	return blas_check(d, b->set_workspace(q->blas, q->workspace, (size_t)WORKSPACE_BYTES), "cublasSetWorkspace") ||
			       blas_check(d, b->set_math_mode(q->blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "cublasSetMathMode")
		       ? -1
		       : 0;
}

struct queue *cuda_queue_new(struct device *d, bool low_priority)
{
	struct cuda_queue *q = mem_new(1, sizeof *q);
	int least = 0, greatest = 0;
	q->head.d = d;
	q->pack_bytes = PACK_BYTES;
	q->most_maps = MAPS;
	q->next = cuda_device(d)->queues;
	cuda_device(d)->queues = q;
	for (int i = 0; i < 2; i++)
		q->items[i] = mem_new(ITEMS, sizeof *q->items[i]);
	if (cuda_device(d)->encode_map && !(q->maps = aligned_alloc(_Alignof(CUtensorMap), MAPS * sizeof *q->maps))) {
		device_fail(d, "no memory for %d tensor maps", (int)MAPS);
		cuda_queue_free(&q->head);
		return NULL;
	}
	if (cuda_use(d) || cuda_check(d, cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities") ||
		cuda_check(d, cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking, low_priority ? least : greatest), "cudaStreamCreate") ||
		ring_open(d, &q->ring) || blas_open(d, q) || (d->cudnn && !(q->dnn = cuda_dnn_new(&q->head)))) {
		cuda_queue_free(&q->head);
		return NULL;
	}
	return &q->head;
}

void cuda_queue_free(struct queue *head)
{
	struct cuda_queue *q = cuda_queue(head);
	struct device *d = head->d;
	cuda_use(d);
	if (q->stream)
		cudaStreamSynchronize(q->stream); /* what failed was reported where it was asked for */
	struct cuda_queue **at = &cuda_device(d)->queues;
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	if (q->blas)
		cuda_device(d)->blas->destroy(q->blas);
	cuda_dnn_free(q->dnn);
	for (int i = 0; i < SCRATCHES; i++)
		device_free(d, q->scratch[i], q->scratch_bytes[i]);
	cuda_offload_close(head);
	device_free(d, q->workspace, WORKSPACE_BYTES);
	device_free(d, q->ring.device, 2 * RING_HALF);
	cudaFreeHost(q->ring.host);
	for (int i = 0; i < 2; i++)
		if (q->ring.done[i])
			cudaEventDestroy(q->ring.done[i]);
	if (q->stream)
		cudaStreamDestroy(q->stream);
	free(q->items[0]);
	free(q->items[1]);
	free(q->maps);
	free(q);
}

int cuda_queue_sync(struct queue *q)
{
	return cuda_use(q->d) ? -1 : cuda_check(q->d, cudaStreamSynchronize(cuda_queue(q)->stream), "synchronise");
}

/* ---- events ---- */

struct cuda_event {
	struct event head;
	cudaEvent_t event;
};
static cudaEvent_t event_of(struct event *e)
{
	return ((struct cuda_event *)e)->event;
}

struct event *cuda_event_new(struct device *d)
{
	struct cuda_event *e = mem_new(1, sizeof *e);
	e->head.d = d;
	if (cuda_use(d) || cuda_check(d, cudaEventCreate(&e->event), "cudaEventCreate")) {
		free(e);
		return NULL;
	}
	return &e->head;
}

void cuda_event_free(struct event *e)
{
	cuda_use(e->d);
	cudaEventDestroy(event_of(e));
	free(e);
}

int cuda_event_record(struct queue *q, struct event *e)
{
	return cuda_use(q->d) ? -1 : cuda_check(q->d, cudaEventRecord(event_of(e), cuda_queue(q)->stream), "cudaEventRecord");
}

int cuda_event_wait(struct queue *q, struct event *e)
{
	return cuda_use(q->d) ? -1 : cuda_check(q->d, cudaStreamWaitEvent(cuda_queue(q)->stream, event_of(e), 0), "cudaStreamWaitEvent");
}

int cuda_event_sync(struct event *e)
{
	return cuda_use(e->d) ? -1 : cuda_check(e->d, cudaEventSynchronize(event_of(e)), "cudaEventSynchronize");
}

int cuda_event_elapsed(struct event *from, struct event *to, int64_t *ns)
{
	float ms = 0;
	if (cuda_event_sync(to) || cuda_check(to->d, cudaEventElapsedTime(&ms, event_of(from), event_of(to)), "cudaEventElapsedTime"))
		return -1;
	*ns = (int64_t)((double)ms * 1e6);
	return 0;
}
