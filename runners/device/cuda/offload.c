/* offload.c: caches in the host's pinned memory (--kv-offload), streamed by layer: before a kernel reads a layer of such a cache, its rows in use are copied
 * into one of a few device buffers of the queue, which then serve every operation on that layer until somebody writes to it. New rows are written to the host's
 * memory by the kernels themselves. Caches below OFFLOAD_BYTES (tails, tiny models) stay on the device. The copy runs on the queue itself: it does not overlap
 * with the layer before. */
#include "runners/device/cuda/cuda.h"

/* First row and rows of the layer, capacity included: its heads lie one behind the other. */
static int64_t layer_rows(const struct kv *kv, int layer, int64_t *first)
{
	int a = layer * kv->heads, z = a + kv->heads - 1;
	*first = kv->first[a];
	return kv->first[z] + kv->cap[z] - kv->first[a];
}

void cuda_kv_changed(struct queue *q, const struct kv *kv, int layer)
{
	struct cuda_queue *cq = cuda_queue(q);
	for (int i = 0; i < STAGED; i++)
		if (cq->staged[i].kv == kv && cq->staged[i].layer == layer)
			cq->staged[i].kv = NULL;
}

static int copy_layer(struct queue *q, const struct staged *s, const struct kv *kv, int64_t first, int64_t all_rows)
{
	int64_t row = kv->head_dim * kv_element(q->d);
	for (int h = 0; h < kv->heads; h++) {
		int i = s->layer * kv->heads + h;
		int64_t from = kv->first[i] * row, to = (kv->first[i] - first) * row, n = kv->len[i] * row;
		if (n == 0)
			continue;
		if (cuda_check(q->d,
			    cudaMemcpyAsync((char *)s->buffer + to, (char *)kv->k + from, (size_t)n, cudaMemcpyHostToDevice, cuda_queue(q)->stream),
			    "streaming keys") ||
			cuda_check(q->d,
				cudaMemcpyAsync((char *)s->buffer + all_rows * row + to, (char *)kv->v + from, (size_t)n, cudaMemcpyHostToDevice,
					cuda_queue(q)->stream),
				"streaming values"))
			return -1;
	}
	return 0;
}

static bool is_staged(struct queue *q, const struct staged *s, const struct kv *kv, int layer)
{
	return s->kv == kv && s->layer == layer && s->generation == cuda_device(q->d)->freed_caches;
}

bool cuda_kv_room(struct queue *q, const struct kv *kv, int layer, int64_t since)
{
	bool room = !cache_on_host(q->d, round_up(kv->bytes, 64));
	for (int i = 0; i < STAGED; i++) {
		const struct staged *s = &cuda_queue(q)->staged[i];
		room = room || s->used <= since || is_staged(q, s, kv, layer);
	}
	return room;
}

int cuda_kv_view(struct queue *q, const struct kv *kv, int layer, struct kv_view *out)
{
	struct cuda_queue *cq = cuda_queue(q);
	struct staged *s = &cq->staged[0];
	int64_t row = kv->head_dim * kv_element(q->d), first, rows = layer_rows(kv, layer, &first);
	if (!cache_on_host(q->d, round_up(kv->bytes, 64))) {
		*out = (struct kv_view){(char *)kv->k + first * row, (char *)kv->v + first * row, first};
		return 0;
	}
	for (int i = 0; i < STAGED; i++) {
		struct staged *c = &cq->staged[i];
		if (is_staged(q, c, kv, layer)) {
			c->used = ++cq->uses;
			*out = (struct kv_view){c->buffer, (char *)c->buffer + rows * row, first};
			return 0;
		}
		s = c->used < s->used ? c : s; /* the one unused for longest */
	}
	s->kv = NULL;
	if (2 * rows * row > s->bytes) {
		if (cuda_queue_sync(q))
			return -1;
		device_free(q->d, s->buffer, s->bytes);
		s->buffer = device_alloc(q->d, 2 * rows * row);
		s->bytes = s->buffer ? 2 * rows * row : 0;
		if (!s->buffer)
			return -1;
	}
	s->layer = layer;
	if (copy_layer(q, s, kv, first, rows))
		return -1;
	*s = (struct staged){kv, layer, cuda_device(q->d)->freed_caches, ++cq->uses, s->buffer, s->bytes};
	*out = (struct kv_view){s->buffer, (char *)s->buffer + rows * row, first};
	return 0;
}
