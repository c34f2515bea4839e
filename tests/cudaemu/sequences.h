/* sequences.h: sequences over caches, and attention of them on one device: what the tests of attention of the CUDA backend share. */
#ifndef KVB_TEST_SEQUENCES_H
#define KVB_TEST_SEQUENCES_H

#include "tests/cudaemu/backend.h"

/* One sequence: `context` keys seen through every keep-th index (-1 = no context), `tail` rows before `rows` new ones. */
struct sequence {
	int64_t context, tail, rows;
	int keep; /* 0 = all of the context */
};
enum { LAYERS = 2, LAYER = 1, MOST = 5 };
struct setup {
	int heads, kv_heads, d;
	const struct sequence *seqs;
	int n;
};
struct result {
	float *out, *lse; /* [rows][heads*d], [rows][heads] */
	int64_t rows;
};

static inline void fill_kv(struct queue *q, struct kv *kv, int heads, int d, int64_t n, uint64_t seed)
{
	for (int h = 0; h < heads && n > 0; h++) {
		float *k = values(seed * 100 + (uint64_t)h, n * d, 2), *v = values(seed * 100 + 50 + (uint64_t)h, n * d, 2);
		assert_int_equal(kv_write(q, kv, LAYER, h, n, k, v), 0);
		free(k), free(v);
	}
}

static inline struct kv *new_kv(struct device *d, int kv_heads, int dim, int64_t rows)
{
	int64_t cap[LAYERS * 16];
	for (int i = 0; i < LAYERS * kv_heads; i++)
		cap[i] = rows;
	struct kv *kv = kv_new(d, LAYERS, kv_heads, dim, cap);
	assert_non_null(kv);
	return kv;
}

/* Head h keeps every keep-th row from h % keep on; head 1 of more than two nothing at all. */
static inline struct kept *new_kept(struct device *d, const struct setup *s, const struct sequence *q, int64_t *cap)
{
	int32_t len[LAYERS * 16], *list[LAYERS * 16];
	for (int j = 0; j < LAYERS * s->kv_heads; j++) {
		int h = j % s->kv_heads;
		len[j] = 0;
		list[j] = mem_new((size_t)q->context + 1, sizeof *list[j]);
		for (int64_t r = h % q->keep; r < q->context && !(h == 1 && s->kv_heads > 2); r += q->keep)
			list[j][len[j]++] = (int32_t)r;
		cap[j] = len[j];
	}
	struct kept *k = kept_new(d, LAYERS, s->kv_heads, len, (const int32_t *const *)list);
	for (int j = 0; j < LAYERS * s->kv_heads; j++)
		free(list[j]);
	return k;
}

/* All sequences (only < 0), or one of them alone. */
static inline struct result run(struct queue *q, const struct setup *s, int only, bool compacted)
{
	struct device *d = queue_device(q);
	int64_t first[MOST + 1] = {0}, cols = (s->heads + 2 * s->kv_heads) * s->d + 3, wide = s->heads * s->d;
	struct kv *context[MOST] = {0}, *compact[MOST] = {0}, *tail[MOST] = {0};
	struct kept *kept[MOST] = {0};
	struct attn_seq seqs[MOST];
	for (int i = 0; i < s->n; i++)
		first[i + 1] = first[i] + s->seqs[i].rows;
	float *rows = mem_new((size_t)(first[s->n] * cols), sizeof *rows);
	for (int i = 0; i < s->n; i++) {
		const struct sequence *w = &s->seqs[i];
		float *x = values(30 + (uint64_t)i, w->rows * cols, 2);
		memcpy(rows + first[i] * cols, x, (size_t)(w->rows * cols) * sizeof *x);
		free(x);
		tail[i] = new_kv(d, s->kv_heads, s->d, w->tail + w->rows);
		fill_kv(q, tail[i], s->kv_heads, s->d, w->tail, 10 + (uint64_t)i);
		if (w->context >= 0) {
			context[i] = new_kv(d, s->kv_heads, s->d, w->context);
			fill_kv(q, context[i], s->kv_heads, s->d, w->context, 20 + (uint64_t)i);
		}
		if (w->context >= 0 && w->keep) {
			int64_t cap[LAYERS * 16];
			kept[i] = new_kept(d, s, w, cap);
			compact[i] = kv_new(d, LAYERS, s->kv_heads, s->d, cap);
			assert_int_equal(kv_gather(q, compact[i], context[i], kept[i], LAYER), 0);
		}
		seqs[i] = (struct attn_seq){first[i], w->rows, compacted && compact[i] ? compact[i] : context[i],
			compacted ? NULL : kept[i], tail[i], w->tail};
	}
	struct tensor *x = tensor_of(q, rows, first[s->n], cols), *out = tensor_of(q, NULL, first[s->n], wide),
		      *lse = tensor_of(q, NULL, first[s->n], s->heads);
	assert_int_equal(tensor_fill(q, out, -7) || tensor_fill(q, lse, -7), 0);
	int from = only < 0 ? 0 : only, n = only < 0 ? s->n : 1;
	if (op_kv_append(q, LAYER, seqs + from, n, x, wide, wide + s->kv_heads * s->d) ||
		op_attention(q, LAYER, seqs + from, n, out, x, 0, s->heads, lse))
		fail_msg("%s", device_error(d));
	struct result r = {host_of(q, out), host_of(q, lse), first[s->n]};
	free(rows);
	tensor_free(x), tensor_free(out), tensor_free(lse);
	for (int i = 0; i < s->n; i++) {
		kv_free(context[i]), kv_free(compact[i]), kv_free(tail[i]);
		kept_free(kept[i]);
	}
	return r;
}
static inline void free_result(struct result *r)
{
	free(r->out), free(r->lse);
}

#endif
