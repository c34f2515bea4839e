/* offload.c: caches in the host's pinned memory (--kv-offload), streamed by layer. Before a kernel reads a layer of such a cache, its rows in use are copied
 * into one of a few device buffers of the queue, which then serves every operation on that layer; rows that are added later follow it there. While an operation
 * on layer i is on its way, layer i + 1 is copied ahead. New rows are written to the host's memory by the kernels themselves. Caches below
 * OFFLOAD_BYTES, or OFFLOAD_SHARE of the device's memory (tails, tiny models), stay on the device. The buffers serve one cache after the other and go with the last.
 *
 * Copies of whole layers run on a stream of their own, the copier; only events order it and the queue:
 * - the copier waits for `wrote` (the queue's last write to any such cache) and for the buffer's `read` (the last operation that looked at what it held);
 * - the queue waits for the buffer's `filled` before it reads it, and before it writes over rows that may still be on their way.
 * Another queue, once this one was synchronised, may read the cache and add to it; rows that a queue wrote it alone may write over, since its copier may be at them. */
#include "runners/device/cuda/cuda.h"

#include <stdlib.h>

static bool on_host(const struct kv *kv)
{
	return cache_on_host(kv->d, round_up(kv->bytes, 64));
}

/* First row and rows of the layer, capacity included: its heads lie one behind the other. */
static int64_t layer_rows(const struct kv *kv, int layer, int64_t *first)
{
	int a = layer * kv->heads, z = a + kv->heads - 1;
	*first = kv->first[a];
	return kv->first[z] + kv->cap[z] - kv->first[a];
}

/* ---- buffers ---- */

static bool is_staged(const struct staged *s, const struct kv *kv, int layer)
{
	return s->kv == kv && s->serial == kv->serial && s->layer == layer;
}

static struct staged *staged_find(struct queue *q, const struct kv *kv, int layer)
{
	for (int i = 0; i < STAGED; i++)
		if (is_staged(&cuda_queue(q)->staged[i], kv, layer))
			return &cuda_queue(q)->staged[i];
	return NULL;
}

/* The copier and the events, when the first layer is staged. */
static int copier_open(struct queue *q)
{
	struct cuda_queue *cq = cuda_queue(q);
	if (cq->copier)
		return 0;
	for (int i = 0; i < STAGED; i++)
		if (cuda_check(q->d, cudaEventCreateWithFlags(&cq->staged[i].filled, cudaEventDisableTiming), "cudaEventCreate") ||
			cuda_check(q->d, cudaEventCreateWithFlags(&cq->staged[i].read, cudaEventDisableTiming), "cudaEventCreate"))
			return -1;
	return cuda_check(q->d, cudaEventCreateWithFlags(&cq->wrote, cudaEventDisableTiming), "cudaEventCreate") ||
			       cuda_check(q->d, cudaStreamCreateWithFlags(&cq->copier, cudaStreamNonBlocking), "cudaStreamCreate")
		       ? -1
		       : 0;
}

static void buffer_free(struct device *d, struct staged *s)
{
	device_free(d, s->buffer, s->bytes);
	d->staged_bytes -= s->bytes;
	s->buffer = NULL;
	s->bytes = 0;
}

void cuda_offload_drop(struct queue *q)
{
	for (int i = 0; i < STAGED; i++) {
		struct staged *s = &cuda_queue(q)->staged[i];
		s->kv = NULL;
		s->looked = false;
		buffer_free(q->d, s);
	}
}

void cuda_offload_close(struct queue *q)
{
	struct cuda_queue *cq = cuda_queue(q);
	if (cq->copier) {
		cudaStreamSynchronize(cq->copier); /* a layer copied ahead that nobody asked for */
		cudaStreamDestroy(cq->copier);
	}
	cuda_offload_drop(q);
	for (int i = 0; i < STAGED; i++) {
		struct staged *s = &cq->staged[i];
		free(s->rows);
		if (s->filled)
			cudaEventDestroy(s->filled);
		if (s->read)
			cudaEventDestroy(s->read);
	}
	if (cq->wrote)
		cudaEventDestroy(cq->wrote);
}

/* Marks where the queue is done with what the buffer holds. */
static int staged_leave(struct queue *q, struct staged *s)
{
	if (!s->looked)
		return 0;
	s->looked = false;
	return cuda_check(q->d, cudaEventRecord(s->read, cuda_queue(q)->stream), "cudaEventRecord");
}

static int staged_await(struct queue *q, struct staged *s)
{
	if (s->awaited)
		return 0;
	s->awaited = true;
	return cuda_check(q->d, cudaStreamWaitEvent(cuda_queue(q)->stream, s->filled, 0), "cudaStreamWaitEvent");
}

/* The buffer unused for longest, with room for the layer. The host waits only where a buffer is replaced by a larger one. */
static struct staged *staged_take(struct queue *q, const struct kv *kv, int64_t bytes)
{
	struct cuda_queue *cq = cuda_queue(q);
	struct staged *s = &cq->staged[0];
	for (int i = 1; i < STAGED; i++)
		s = cq->staged[i].used < s->used ? &cq->staged[i] : s;
	s->kv = NULL;
	if (staged_leave(q, s))
		return NULL;
	s->rows = mem_grow(s->rows, (size_t)kv->heads, sizeof *s->rows);
	if (bytes <= s->bytes)
		return s;
	if (s->buffer && staged_await(q, s)) /* copied ahead and never looked at: the queue's wait is the copier's too */
		return NULL;
	buffer_free(q->d, s); /* waits for what still uses it */
	s->buffer = device_alloc(q->d, bytes);
	s->bytes = s->buffer ? bytes : 0;
	q->d->staged_bytes += s->bytes;
	return s->buffer ? s : NULL;
}

/* ---- copies ---- */

/* Rows of every head that the buffer lacks, on `stream`. */
static int copy_missing(struct queue *q, struct staged *s, const struct kv *kv, cudaStream_t stream)
{
	int64_t row = kv->head_dim * kv_element(q->d), first, all = layer_rows(kv, s->layer, &first) * row;
	for (int h = 0; h < kv->heads; h++) {
		int i = s->layer * kv->heads + h;
		int64_t from = (kv->first[i] + s->rows[h]) * row, to = (kv->first[i] + s->rows[h] - first) * row, n = (kv->len[i] - s->rows[h]) * row;
		if (n <= 0)
			continue;
		if (cuda_check(q->d, cudaMemcpyAsync((char *)s->buffer + to, (char *)kv->k + from, (size_t)n, cudaMemcpyHostToDevice, stream),
			    "streaming keys") ||
			cuda_check(q->d, cudaMemcpyAsync((char *)s->buffer + all + to, (char *)kv->v + from, (size_t)n, cudaMemcpyHostToDevice, stream),
				"streaming values"))
			return -1;
		s->rows[h] = kv->len[i];
	}
	return 0;
}

/* Begins the copy of a layer; NULL = failed. */
static struct staged *staged_fill(struct queue *q, const struct kv *kv, int layer)
{
	struct cuda_queue *cq = cuda_queue(q);
	int64_t first, row = kv->head_dim * kv_element(q->d), rows = layer_rows(kv, layer, &first);
	struct staged *s = copier_open(q) ? NULL : staged_take(q, kv, 2 * rows * row);
	if (!s)
		return NULL;
	s->layer = layer;
	s->serial = kv->serial;
	s->awaited = false;
	memset(s->rows, 0, (size_t)kv->heads * sizeof *s->rows);
	if (cuda_check(q->d, cudaStreamWaitEvent(cq->copier, cq->wrote, 0), "cudaStreamWaitEvent") ||
		cuda_check(q->d, cudaStreamWaitEvent(cq->copier, s->read, 0), "cudaStreamWaitEvent") || copy_missing(q, s, kv, cq->copier) ||
		cuda_check(q->d, cudaEventRecord(s->filled, cq->copier), "cudaEventRecord"))
		return NULL;
	s->kv = kv;
	s->used = ++cq->uses;
	return s;
}

/* ---- what operations call ---- */

bool cuda_kv_room(struct queue *q, const struct kv *kv, int layer, int64_t since)
{
	bool room = !on_host(kv) || staged_find(q, kv, layer);
	for (int i = 0; i < STAGED; i++)
		room = room || cuda_queue(q)->staged[i].used <= since;
	return room;
}

int cuda_kv_view(struct queue *q, const struct kv *kv, int layer, struct kv_view *out)
{
	int64_t row = kv->head_dim * kv_element(q->d), first, rows = layer_rows(kv, layer, &first);
	if (!on_host(kv)) {
		*out = (struct kv_view){(char *)kv->k + first * row, (char *)kv->v + first * row, first};
		return 0;
	}
	struct staged *s = staged_find(q, kv, layer);
	if (!s && !(s = staged_fill(q, kv, layer)))
		return -1;
	if (staged_await(q, s) || copy_missing(q, s, kv, cuda_queue(q)->stream))
		return -1;
	s->looked = true;
	s->used = ++cuda_queue(q)->uses;
	*out = (struct kv_view){s->buffer, (char *)s->buffer + rows * row, first};
	return 0;
}

int cuda_kv_ahead(struct queue *q, const struct kv *kv, int layer)
{
	for (int i = 0; i < STAGED; i++)
		if (staged_leave(q, &cuda_queue(q)->staged[i]))
			return -1;
	int next = (layer + 1) % kv->layers;
	if (!on_host(kv) || staged_find(q, kv, next))
		return 0;
	int64_t rows = 0;
	for (int h = 0; h < kv->heads; h++)
		rows += kv->len[next * kv->heads + h];
	return rows == 0 || staged_fill(q, kv, next) ? 0 : -1;
}

int cuda_kv_write_begin(struct queue *q, const struct kv *kv, int layer, int head, int64_t from)
{
	struct staged *s = on_host(kv) ? staged_find(q, kv, layer) : NULL;
	if (!s || s->rows[head] <= from)
		return 0;
	s->rows[head] = from;
	return staged_await(q, s);
}

int cuda_kv_write_end(struct queue *q, const struct kv *kv)
{
	if (!on_host(kv))
		return 0;
	return copier_open(q) || cuda_check(q->d, cudaEventRecord(cuda_queue(q)->wrote, cuda_queue(q)->stream), "cudaEventRecord") ? -1 : 0;
}
