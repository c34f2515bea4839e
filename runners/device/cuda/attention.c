/* attention.c: cuts attention of a batch into items, one a (sequence, KV head), and hands them to the kernel that suits: sequences of few rows (decoding) in
 * parts of keys, others in tiles of rows; fp32 caches plainly; with --attention cudnn what cuDNN takes goes there (dnn.c). Which kernel and how many parts depends on the sequence alone.
 *
 * Against the CPU, bf16: Q, K, V rounded alike; probabilities are rounded to bf16 before they meet V (the CPU keeps fp32), sums are in another order. */
#include "runners/device/cuda/cuda.h"

#include <math.h>
#include <stdlib.h>

/* Items that go to one kernel. */
struct batch {
	struct attend_item *item; /* [ITEMS] */
	CUtensorMap *map;         /* [MAPS] of their segments; NULL = none are made */
	int n, n_maps, most_parts;
	int64_t most_rows, floats; /* of parts */
	bool few, wgmma;
	struct queue *q;
	struct attend_shape shape;
};

/* The maps to the device, and the segments' pointers with them. */
static int maps_upload(struct batch *b)
{
	const CUtensorMap *there = cuda_upload_list(b->q, b->map, b->n_maps * (int64_t)sizeof *b->map);
	for (int i = 0; i < b->n && there; i++)
		for (int s = 0; s < b->item[i].n_seg; s++) {
			struct key_segment *g = &b->item[i].seg[s];
			g->maps = g->maps ? there + (g->maps - b->map) : NULL;
		}
	return there ? 0 : -1;
}

static int batch_run(struct batch *b)
{
	struct device *d = b->q->d;
	cudaStream_t s = cuda_queue(b->q)->stream;
	if (b->n == 0)
		return 0;
	if (b->floats) {
		float *at = cuda_scratch(b->q, SCRATCH_PARTS, b->floats * 4);
		if (!at)
			return -1;
		for (int i = 0; i < b->n; i++)
			if (b->item[i].n_parts > 1) {
				b->item[i].parts = at;
				at += b->item[i].n_parts * b->item[i].queries * b->shape.g * (b->shape.d + 2);
			}
	}
	if (b->n_maps && maps_upload(b))
		return -1;
	const struct attend_item *list = cuda_upload_list(b->q, b->item, b->n * (int64_t)sizeof *b->item);
	if (!list)
		return -1;
	cudaError_t e = b->few	    ? kernel_attend_few(s, list, b->n, b->most_parts, b->shape)
			: !d->bf16 ? kernel_attend_plain(s, list, b->n, b->most_rows, b->shape)
			: b->wgmma  ? kernel_attend_wgmma(s, list, b->n, b->most_rows, b->shape)
				    : kernel_attend(s, list, b->n, b->most_rows, b->shape);
	b->n = b->n_maps = b->most_parts = 0;
	b->most_rows = b->floats = 0;
	return cuda_check(d, e, "attention");
}

/* Keys of segment s that some query of the item sees. */
static int64_t segment_keys(const struct attend_item *a, int s)
{
	int64_t n = a->seg[s].n, seen = a->seen + (a->causal ? a->queries - 1 : 0);
	return s < a->n_seg - 1 || seen > n ? n : seen < 0 ? 0 : seen;
}

/* Parts of ATTN_PART keys; longer ones when there would be more than ATTEND_PARTS. Each segment begins a new part. */
static void choose_parts(struct attend_item *a)
{
	int64_t keys = 0, parts = 0, size;
	for (int s = 0; s < a->n_seg; s++)
		keys += segment_keys(a, s);
	size = round_up(keys / (ATTEND_PARTS - SEGMENTS) + 1, 64);
	a->part_keys = (int)(size < ATTN_PART ? ATTN_PART : size);
	for (int s = 0; s < a->n_seg; s++)
		parts += (segment_keys(a, s) + a->part_keys - 1) / a->part_keys;
	a->n_parts = parts > 1 ? (int)parts : 1;
}

/* Maps of the segments whose rows stand one after another and fill at least one box. */
static int segments_map(struct batch *b, struct attend_item *a)
{
	for (int s = 0; s < a->n_seg; s++) {
		struct key_segment *g = &a->seg[s];
		CUtensorMap *map = &b->map[b->n_maps];
		if (g->index || segment_keys(a, s) < BOX_ROWS)
			continue;
		if (cuda_map_rows(b->q->d, &map[0], g->k, g->n, b->shape.d) || cuda_map_rows(b->q->d, &map[1], g->v, g->n, b->shape.d))
			return -1;
		g->maps = map;
		b->n_maps += 2;
	}
	return 0;
}

static int batch_add(struct batch *b, struct attend_item *a)
{
	int64_t rows = a->queries * b->shape.g, floats = 0;
	if (b->few) {
		choose_parts(a);
		floats = a->n_parts > 1 ? a->n_parts * rows * (b->shape.d + 2) : 0;
	}
	if ((b->n == ITEMS || b->n_maps + 2 * SEGMENTS > cuda_queue(b->q)->most_maps || b->floats + floats > PARTS_FLOATS) && batch_run(b))
		return -1;
	if (b->map && segments_map(b, a))
		return -1;
	b->item[b->n++] = *a;
	b->floats += floats;
	b->most_parts = a->n_parts > b->most_parts ? a->n_parts : b->most_parts;
	b->most_rows = rows > b->most_rows ? rows : b->most_rows;
	return 0;
}

/* Many rows and few rows. */
struct batches {
	struct batch many, few;
	int64_t since; /* uses of staged layers when these batches were empty */
};
static struct batches batches_open(struct queue *q, struct attend_shape shape)
{
	struct cuda_queue *c = cuda_queue(q);
	bool wgmma = q->d->bf16 && cuda_device(q->d)->wgmma && (shape.d == 64 || shape.d == 128);
	return (struct batches){{.item = c->items[0], .map = wgmma ? c->maps : NULL, .q = q, .shape = shape, .wgmma = wgmma},
		{.item = c->items[1], .q = q, .shape = shape, .few = true}, c->uses};
}
static int batches_add(struct batches *b, struct attend_item *a)
{
	bool few = b->few.q->d->bf16 && a->queries * b->few.shape.g <= ATTEND_FEW;
	return batch_add(few ? &b->few : &b->many, a);
}
static int batches_close(struct batches *b, int rc)
{
	return rc || batch_run(&b->many) || batch_run(&b->few) ? -1 : 0;
}

static struct key_segment segment_of(const struct kv_view *w, const struct kv *kv, int layer, int head, int64_t first, int64_t n)
{
	return (struct key_segment){view_row(w, w->k, kv, layer, head, first), view_row(w, w->v, kv, layer, head, first), NULL, NULL, n};
}

/* The keys of (layer, head) one sequence sees: its context (through kept) and its tail, the new rows included. */
static void sequence_segments(
	struct attend_item *a, const struct attn_seq *s, const struct kv_view *context, const struct kv_view *tail, int layer, int head)
{
	const struct kv *c = s->context;
	a->n_seg = 0;
	if (c) {
		struct key_segment *g = &a->seg[a->n_seg++];
		*g = segment_of(context, c, layer, head, 0, kv_len(c, layer, head));
		if (s->kept) {
			int i = layer * s->kept->heads + head;
			g->index = s->kept->index + s->kept->first[i];
			g->n = s->kept->len[i];
		}
	}
	a->seg[a->n_seg++] = segment_of(tail, s->tail, layer, head, 0, s->tail_len + s->rows);
}

/* A layer of a cache; what waits in the batches is run before its keys would be overwritten. */
static int batches_view(struct batches *b, const struct kv *kv, int layer, struct kv_view *out)
{
	struct queue *q = b->few.q;
	if (!cuda_kv_room(q, kv, layer, b->since)) {
		if (batch_run(&b->many) || batch_run(&b->few))
			return -1;
		b->since = cuda_queue(q)->uses;
	}
	return cuda_kv_view(q, kv, layer, out);
}

int cuda_attention(struct queue *q, int layer, const struct attn_seq *seqs, int n, struct tensor *out, const struct tensor *x, int64_t qcol,
	int heads, struct tensor *lse)
{
	int kv_heads = seqs[0].tail->heads, d = seqs[0].tail->head_dim, g = heads / kv_heads, rc = cuda_use(q->d);
	struct rows to = tensor_rows_from(out, 0);
	int64_t size = to.bf16 ? 2 : 4;
	struct batches b = batches_open(q, (struct attend_shape){.g = g,
						   .d = d,
						   .q_ld = x->cols,
						   .out_ld = to.ld,
						   .lse_ld = lse ? lse->cols : 0,
						   .scale = 1 / sqrtf((float)d),
						   .out_bf16 = to.bf16});
	for (int i = 0; i < n && !rc; i++) {
		const struct attn_seq *s = &seqs[i];
		struct kv_view context, tail;
		rc = (s->context && batches_view(&b, s->context, layer, &context)) || batches_view(&b, s->tail, layer, &tail) ? -1 : 0;
		if (!rc && cuda_dnn_takes(q, layer, s, heads, out)) {
			rc = cuda_dnn_attention(q, layer, s, &tail, out, x, qcol, heads, lse);
			continue;
		}
		for (int h = 0; h < kv_heads && !rc; h++) {
			struct attend_item a = {.causal = true,
				.seen = s->tail_len + 1,
				.queries = s->rows,
				.q = x->x + s->row0 * x->cols + qcol + h * g * d,
				.out = (char *)to.x + (s->row0 * to.ld + h * g * d) * size,
				.lse = lse ? lse->x + s->row0 * lse->cols + h * g : NULL};
			sequence_segments(&a, s, &context, &tail, layer, h);
			rc = s->rows ? batches_add(&b, &a) : 0;
		}
	}
	return batches_close(&b, rc) || cuda_kv_ahead(q, seqs[0].context ? seqs[0].context : seqs[0].tail, layer) ? -1 : 0;
}

int cuda_attn_lse(struct queue *q, int layer, const struct key_set *keys, const struct tensor *x, int64_t row0, int64_t rows, int64_t qcol,
	int heads, struct tensor *lse)
{
	const struct key_range *last = &keys->range[keys->n - 1];
	int kv_heads = last->kv->heads, d = last->kv->head_dim, g = heads / kv_heads, rc = cuda_use(q->d);
	struct batches b = batches_open(
		q, (struct attend_shape){.g = g, .d = d, .q_ld = x->cols, .lse_ld = lse->cols, .scale = 1 / sqrtf((float)d)});
	struct kv_view view[SEGMENTS];
	for (int r = 0; r < keys->n && !rc; r++)
		rc = cuda_kv_view(q, keys->range[r].kv, layer, &view[r]);
	for (int h = 0; h < kv_heads && !rc; h++) {
		struct attend_item a = {.n_seg = keys->n,
			.causal = keys->causal,
			.seen = keys->causal ? last->n - rows + 1 : last->n,
			.queries = rows,
			.q = x->x + row0 * x->cols + qcol + h * g * d,
			.lse = lse->x + h * g};
		for (int r = 0; r < keys->n; r++)
			a.seg[r] = segment_of(&view[r], keys->range[r].kv, layer, h, keys->range[r].first, keys->range[r].n);
		rc = batches_add(&b, &a);
	}
	return batches_close(&b, rc);
}

/* ---- probabilities reduced over queries ---- */

/* The job's rows, packed in bf16 a bounded number at a time (in ascending order: sums go on where the last ones ended). */
static int reduce_packed(struct queue *q, struct reduce_job *j, const float *x, int64_t ld)
{
	cudaStream_t s = cuda_queue(q)->stream;
	int heads = j->kv_heads * j->g, d_pad = attend_d_pad(j->d);
	int64_t most = cuda_queue(q)->pack_bytes / ((int64_t)heads * d_pad * 2), rows = j->rows, seen = j->seen;
	const float *lse = j->lse;
	most = most < 1 ? 1 : most > rows ? rows : most;
	void *packed = cuda_scratch(q, SCRATCH_PACK, most * heads * d_pad * 2);
	for (int64_t r = 0; r < rows && packed; r += most) {
		j->rows = rows - r < most ? rows - r : most;
		j->seen = seen + (j->causal ? r : 0);
		j->lse = lse + r * j->lse_ld;
		j->q = packed;
		if (cuda_check(q->d, kernel_pack_queries(s, packed, d_pad, x + r * ld, ld, heads, j->d, j->rows), "op_attn_reduce") ||
			cuda_check(q->d, kernel_reduce(s, *j), "op_attn_reduce"))
			return -1;
	}
	return packed ? 0 : -1;
}

int cuda_attn_reduce(struct queue *q, int layer, const struct key_set *keys, int which, int64_t col0, int64_t cols, const struct tensor *x,
	int64_t row0, int64_t rows, int64_t qcol, int heads, const struct tensor *lse, int64_t lse_row0, enum attn_reduce reduce,
	enum attn_group group, struct tensor *out, int64_t out_col)
{
	const struct key_range *range = &keys->range[which];
	int kv_heads = range->kv->heads, d = range->kv->head_dim;
	bool causal = keys->causal && which == keys->n - 1;
	struct kv_view view;
	if (cuda_use(q->d) || cuda_kv_view(q, range->kv, layer, &view))
		return -1;
	const void **first = mem_new((size_t)kv_heads, sizeof *first);
	for (int h = 0; h < kv_heads; h++)
		first[h] = view_row(&view, view.k, range->kv, layer, h, range->first + col0);
	const void *list = cuda_upload_list(q, first, kv_heads * (int64_t)sizeof *first);
	free(first);
	if (!list)
		return -1;
	const float *rows_of_q = x->x + row0 * x->cols + qcol;
	struct reduce_job j = {.k = (const void *const *)list,
		.kv_heads = kv_heads,
		.g = heads / kv_heads,
		.d = d,
		.causal = causal,
		.max = reduce == REDUCE_MAX,
		.group = group,
		.cols = cols,
		.seen = (causal ? range->n - rows + 1 : range->n) - col0,
		.rows = rows,
		.scale = 1 / sqrtf((float)d),
		.q = rows_of_q,
		.q_ld = x->cols,
		.lse = lse->x + lse_row0 * lse->cols,
		.lse_ld = lse->cols,
		.out = out->x + out_col,
		.out_ld = out->cols};
	return q->d->bf16 ? reduce_packed(q, &j, rows_of_q, x->cols)
			  : cuda_check(q->d, kernel_reduce_plain(cuda_queue(q)->stream, j), "op_attn_reduce");
}
