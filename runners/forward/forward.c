/* forward.c: the transformer over device.h. See forward.h.
 *
 * Reads top to bottom: open, one pass through the layers, the cutting of batches into passes, prefill.
 * Letters: L layers, H query heads, Hk KV heads, d head dimension, D hidden, F feed-forward. */
#include "runners/forward/forward.h"

#include "runners/forward/weights.h"

#include <stdlib.h>
#include <string.h>

enum {
	PASS_SEQS = 512,  /* sequences of one pass */
	HEAD_ROWS = 64    /* rows of logits at a time: [64, vocab] is the largest logits buffer there is */
};

struct forward {
	struct model_config config;
	struct device *device;
	struct queue *queue;
	struct weights weights;
	double *inv_freq; /* [d/2] */
	double mscale;
	int max_rows;
	int64_t calls, head_ns;
	struct event *head[2]; /* around the same work, on the device's clock */
	struct event *done[2]; /* ends of a call's passes, by turns; [1] is the latest */
	/* scratch, overwritten by each layer; [max_rows, ...] */
	struct tensor *x;        /* [., D] residual stream */
	struct tensor *h;        /* [., D] normed input; an operand */
	struct tensor *qkv;      /* [., (H + 2 Hk) d + 32] */
	struct tensor *q_pre;    /* [., H d] */
	struct tensor *att;      /* [., H d]; an operand */
	struct tensor *lse;      /* [., H] */
	struct tensor *act;      /* [., F]; an operand */
	struct tensor *cs;       /* [., d] cos | sin of the rows' positions */
	struct tensor *last_x, *last_att; /* [PASS_SEQS, .] the last row of each sequence; last_att an operand */
	struct tensor *logits;   /* [HEAD_ROWS, vocab] */
};

/* One sequence's share of a pass. */
struct piece {
	const struct forward_seq *seq;
	int index;          /* in the caller's batch */
	int offset, rows;   /* of the sequence's new tokens */
	bool last;          /* holds the sequence's last token */
};

static int64_t qkv_cols(const struct model_config *c)
{
	return (int64_t)(c->heads + 2 * c->kv_heads) * c->head_dim;
}

/* The scratch tensors, one table: allocation and the estimate both walk it. */
struct scratch {
	size_t field;
	int64_t rows, cols;
	bool operand; /* only linear layers read it */
};
#define SCRATCH_COUNT 11
static void scratch_table(const struct model_config *c, int max_rows, struct scratch out[SCRATCH_COUNT])
{
	int64_t hd = (int64_t)c->heads * c->head_dim;
#define ROW(f, r, n) {offsetof(struct forward, f), r, n, false}
#define OPERAND(f, r, n) {offsetof(struct forward, f), r, n, true}
	struct scratch t[SCRATCH_COUNT] = {ROW(x, max_rows, c->hidden), OPERAND(h, max_rows, c->hidden), ROW(qkv, max_rows, qkv_cols(c) + 32),
		ROW(q_pre, max_rows, hd), OPERAND(att, max_rows, hd), ROW(lse, max_rows, c->heads), OPERAND(act, max_rows, weights_ffn_rows(c) / 2),
		ROW(cs, max_rows, c->head_dim), ROW(last_x, PASS_SEQS, c->hidden), OPERAND(last_att, PASS_SEQS, hd),
		ROW(logits, HEAD_ROWS, c->vocab)};
#undef OPERAND
#undef ROW
	memcpy(out, t, sizeof t);
}

static struct tensor **scratch_at(struct forward *f, const struct scratch *s)
{
	return (struct tensor **)((char *)f + s->field);
}

int64_t forward_weight_bytes(const struct model_config *c, const struct device *d)
{
	return weights_bytes(c, d);
}

int64_t forward_scratch_bytes(const struct model_config *c, const struct device *d, int max_rows)
{
	struct scratch t[SCRATCH_COUNT];
	scratch_table(c, max_rows, t);
	int64_t widest = (int64_t)c->heads * c->head_dim, bytes;
	widest = c->hidden > widest ? c->hidden : widest;
	widest = c->ffn > widest ? c->ffn : widest;
	bytes = device_scratch_bytes(d, widest);
	for (int i = 0; i < SCRATCH_COUNT; i++)
		bytes += t[i].operand ? operand_bytes(d, t[i].rows, t[i].cols) : t[i].rows * t[i].cols * 4;
	return bytes;
}

static int device_failed(const struct forward *f, const char *what, char err[ERR_LEN])
{
	return err_set(err, "%s: %s", what, device_error(f->device));
}

int forward_open(struct forward **out, struct model *m, struct device *d, int max_rows, char err[ERR_LEN])
{
	struct forward *f = mem_new(1, sizeof *f);
	struct scratch t[SCRATCH_COUNT];
	f->config = *model_config(m);
	f->device = d;
	f->max_rows = max_rows;
	if (!device_attention_fits(d, f->config.head_dim)) {
		err_set(err, "attention \"%s\" does not take heads of %d channels: leave it out for this model", device_attention(d), f->config.head_dim);
		goto fail;
	}
	f->queue = queue_new(d);
	f->inv_freq = mem_new((size_t)f->config.head_dim / 2, sizeof *f->inv_freq);
	model_rope(&f->config, f->inv_freq, &f->mscale);
	scratch_table(&f->config, max_rows, t);
	for (int i = 0; i < 2; i++)
		if (!f->queue || !(f->head[i] = event_new(d)) || !(f->done[i] = event_new(d))) {
			device_failed(f, "forward: a queue", err);
			goto fail;
		}
	if (weights_load(&f->weights, m, f->queue, err))
		goto fail;
	for (int i = 0; i < SCRATCH_COUNT; i++)
		if (!(*scratch_at(f, &t[i]) = (t[i].operand ? operand_new : tensor_new)(d, t[i].rows, t[i].cols))) {
			device_failed(f, "forward: scratch memory", err);
			goto fail;
		}
	*out = f;
	return 0;
fail:
	forward_close(f);
	return -1;
}

void forward_close(struct forward *f)
{
	if (!f)
		return;
	struct scratch t[SCRATCH_COUNT];
	scratch_table(&f->config, f->max_rows, t);
	for (int i = 0; i < SCRATCH_COUNT; i++)
		tensor_free(*scratch_at(f, &t[i]));
	weights_free(&f->weights);
	for (int i = 0; i < 2; i++) {
		event_free(f->head[i]);
		event_free(f->done[i]);
	}
	queue_free(f->queue);
	free(f->inv_freq);
	free(f);
}

const struct model_config *forward_config(const struct forward *f)
{
	return &f->config;
}

struct device *forward_device(const struct forward *f)
{
	return f->device;
}

struct queue *forward_queue(const struct forward *f)
{
	return f->queue;
}

const double *forward_inv_freq(const struct forward *f, double *mscale)
{
	*mscale = f->mscale;
	return f->inv_freq;
}

int forward_max_rows(const struct forward *f)
{
	return f->max_rows;
}

int64_t forward_calls(const struct forward *f)
{
	return f->calls;
}

int64_t forward_head_ns(const struct forward *f)
{
	return f->head_ns;
}

int64_t forward_head_device_ns(const struct forward *f)
{
	int64_t ns = 0;
	return event_elapsed(f->head[0], f->head[1], &ns) ? 0 : ns;
}

/* ---- one pass: every layer for the rows of some pieces ---- */

/* Shared by the steps of a pass. */
struct pass {
	struct forward *f;
	const struct piece *piece;
	int n;
	int64_t rows;
	unsigned observed; /* what observers want of the layer in hand */
	const struct observer *obs;
	int n_obs;
	int layers;        /* the first so many are run */
	bool wants;        /* some piece's next token or logits are wanted */
	bool more;         /* another pass of the same call follows */
	struct attn_seq seq[PASS_SEQS];
};

/* Embedding and the rotation table of all rows. */
static int pass_begin(struct pass *p)
{
	struct forward *f = p->f;
	int32_t *ids = mem_new((size_t)p->rows, sizeof *ids);
	int64_t *pos = mem_new((size_t)p->rows, sizeof *pos), r = 0;
	for (int i = 0; i < p->n; i++) {
		const struct piece *b = &p->piece[i];
		for (int t = 0; t < b->rows; t++, r++) {
			ids[r] = b->seq->ids[b->offset + t];
			pos[r] = b->seq->pos0 + b->offset + t;
		}
	}
	int rc = op_embed(f->queue, f->x, f->weights.embed, ids, p->rows) ||
		 op_rope_table(f->queue, f->cs, pos, f->inv_freq, f->mscale, f->config.head_dim, p->rows);
	free(ids);
	free(pos);
	return rc;
}

/* q, k, v of one layer: norm, projection with what follows it for heads, append. kcol: where k starts in f->qkv; without q it is left out. */
static int pass_project(struct pass *p, int l, bool with_q, int64_t *kcol)
{
	struct forward *f = p->f;
	const struct model_config *c = &f->config;
	const struct layer_weights *w = &f->weights.layer[l];
	struct queue *q = f->queue;
	int d = c->head_dim;
	int64_t hd = (int64_t)c->heads * d, col0 = with_q ? 0 : hd / 32 * 32; /* panels are 32 wide */
	*kcol = hd - col0;
	struct head_epilogue heads = {.col = with_q ? 0 : *kcol, .q_heads = with_q ? c->heads : 0, .k_heads = c->kv_heads, .d = d, .q_norm = w->q_norm,
		.k_norm = w->k_norm, .eps = c->norm_eps, .cs = f->cs, .q_pre = p->observed & OBSERVE_Q_PRE ? f->q_pre : NULL};
	if (op_rmsnorm(q, f->h, f->x, w->attn_norm, c->norm_eps, p->rows) ||
		op_linear_qkv(q, f->qkv, f->h, w->qkv, w->qkv_bias, col0, qkv_cols(c) - col0, &heads, p->rows))
		return -1;
	return op_kv_append(q, l, p->seq, p->n, f->qkv, *kcol, *kcol + (int64_t)c->kv_heads * d);
}

/* Does this observer see layer l of rows that end before position `end`? */
static bool observer_sees(const struct observer *o, int l, int64_t end)
{
	return end > o->first_pos && (!o->layers || l < o->layers);
}

static unsigned pass_needs(const struct pass *p, int l)
{
	int64_t end = p->piece[0].seq->pos0 + p->piece[0].offset + p->rows;
	unsigned needs = 0;
	for (int i = 0; i < p->n_obs; i++)
		needs |= observer_sees(&p->obs[i], l, end) ? p->obs[i].needs : 0;
	return needs;
}

static int pass_observe(struct pass *p, int l, char err[ERR_LEN])
{
	struct forward *f = p->f;
	const struct forward_seq *s = p->piece[0].seq;
	struct layer_rows rows = {.layer = l, .pos0 = s->pos0 + p->piece[0].offset, .rows = p->rows, .qkv = f->qkv,
		.q_pre = p->observed & OBSERVE_Q_PRE ? f->q_pre : NULL, .lse = p->observed & OBSERVE_LSE ? f->lse : NULL, .kv = s->tail};
	for (int i = 0; i < p->n_obs; i++)
		if (observer_sees(&p->obs[i], l, rows.pos0 + rows.rows) && p->obs[i].layer(p->obs[i].user, &rows, err))
			return -1;
	return 0;
}

/* Output projection and feed-forward of `rows` rows of x. */
static int pass_mlp(struct forward *f, const struct layer_weights *w, struct tensor *x, const struct tensor *att, int64_t rows)
{
	const struct model_config *c = &f->config;
	struct queue *q = f->queue;
	return op_linear(q, x, att, w->o, NULL, 0, c->hidden, true, rows) || op_rmsnorm(q, f->h, x, w->ffn_norm, c->norm_eps, rows) ||
	       op_linear_swiglu(q, f->act, f->h, w->gate_up, rows) || op_linear(q, x, f->act, w->down, NULL, 0, c->hidden, true, rows);
}

/* The last layer goes on with the last row of each sequence alone. */
static int pass_last_layer(struct pass *p, int l)
{
	struct forward *f = p->f;
	const struct model_config *c = &f->config;
	int32_t rows[PASS_SEQS];
	for (int i = 0; i < p->n; i++)
		rows[i] = (int32_t)(p->seq[i].row0 + p->seq[i].rows - 1);
	if (!(p->observed & OBSERVE_LSE)) {
		struct attn_seq only[PASS_SEQS];
		for (int i = 0; i < p->n; i++) {
			only[i] = p->seq[i];
			only[i].row0 = rows[i];
			only[i].tail_len += only[i].rows - 1;
			only[i].rows = 1;
		}
		if (op_attention(f->queue, l, only, p->n, f->att, f->qkv, 0, c->heads, NULL))
			return -1;
	}
	return op_gather_rows(f->queue, f->last_x, f->x, rows, p->n) || op_gather_rows(f->queue, f->last_att, f->att, rows, p->n) ||
	       pass_mlp(f, &f->weights.layer[l], f->last_x, f->last_att, p->n);
}

/* Final norm and LM head of the last rows, HEAD_ROWS at a time, only for pieces that end their sequence. */
static int pass_head(struct pass *p, int32_t *next, float *logits)
{
	struct forward *f = p->f;
	const struct model_config *c = &f->config;
	struct queue *q = f->queue;
	int64_t start = clock_ns();
	if (queue_event_record(q, f->head[0]))
		return -1;
	for (int i0 = 0; i0 < p->n; i0 += HEAD_ROWS) {
		int n = p->n - i0 < HEAD_ROWS ? p->n - i0 : HEAD_ROWS;
		int32_t best[HEAD_ROWS];
		if (op_copy(q, f->x, 0, 0, f->last_x, i0, 0, n, c->hidden) ||
			op_rmsnorm(q, f->h, f->x, f->weights.final_norm, c->norm_eps, n) ||
			op_linear(q, f->logits, f->h, f->weights.head, NULL, 0, c->vocab, false, n) || op_argmax(q, f->logits, c->vocab, n, best))
			return -1;
		for (int i = 0; i < n; i++) {
			const struct piece *b = &p->piece[i0 + i];
			if (b->last && next)
				next[b->index] = best[i];
			if (b->last && logits && tensor_read(q, f->logits, i, 1, logits + (int64_t)b->index * c->vocab))
				return -1;
		}
	}
	f->head_ns = clock_ns() - start;
	return queue_event_record(q, f->head[1]);
}

/* Waits for the whole call, or, where another pass follows, for the pass before this one: the device has work while the host puts the
 * next on the queue, a stop is heard within two passes, and an error is told a pass late at most. */
static int pass_end(struct pass *p)
{
	struct forward *f = p->f;
	if (!p->more)
		return queue_sync(f->queue);
	struct event *mine = f->done[0];
	f->done[0] = f->done[1];
	f->done[1] = mine;
	return queue_event_record(f->queue, mine) || event_sync(f->done[0]);
}

static int pass_run(struct pass *p, int32_t *next, float *logits, char err[ERR_LEN])
{
	struct forward *f = p->f;
	const struct model_config *c = &f->config;
	if (pass_begin(p))
		return device_failed(f, "forward", err);
	for (int l = 0; l < p->layers; l++) {
		bool last = l == p->layers - 1;
		p->observed = pass_needs(p, l);
		bool attends = !last || p->observed & OBSERVE_LSE;
		int64_t kcol, row = 0;
		for (int i = 0; i < p->n; i++) {
			const struct forward_seq *s = p->piece[i].seq;
			p->seq[i] = (struct attn_seq){row, p->piece[i].rows, s->context, s->kept, s->tail, kv_len(s->tail, l, 0)};
			row += p->piece[i].rows;
		}
		if (pass_project(p, l, attends || p->wants || p->observed, &kcol))
			return device_failed(f, "forward: projection", err);
		if (attends && op_attention(f->queue, l, p->seq, p->n, f->att, f->qkv, 0, c->heads, p->observed & OBSERVE_LSE ? f->lse : NULL))
			return device_failed(f, "forward: attention", err);
		if (p->n_obs && pass_observe(p, l, err))
			return -1;
		if (!last && pass_mlp(f, &f->weights.layer[l], f->x, f->att, p->rows))
			return device_failed(f, "forward: feed-forward", err);
		if (last && p->wants && (pass_last_layer(p, l) || pass_head(p, next, logits)))
			return device_failed(f, "forward: last layer", err);
	}
	return pass_end(p) ? device_failed(f, "forward", err) : 0;
}

/* ---- batches ---- */

static bool pass_fits(const struct pass *p, int rows, int max_rows)
{
	return p->n < PASS_SEQS && (p->n == 0 || p->rows + rows <= max_rows);
}

/* The first `layers` layers of a batch; with fewer than all of them next and logits are NULL. more: the caller goes on with the next rows. */
static int run_layers(struct forward *f, int layers, const struct forward_seq *seqs, int n, const struct observer *obs, int n_obs, int32_t *next,
	float *logits, bool more, char err[ERR_LEN])
{
	struct piece *pieces = mem_new(PASS_SEQS, sizeof *pieces);
	struct pass *p = mem_new(1, sizeof *p);
	int rc = 0, i = 0, offset = 0;
	f->calls++;
	while (i < n && !rc) {
		*p = (struct pass){.f = f, .piece = pieces, .obs = obs, .n_obs = n_obs, .layers = layers};
		while (i < n && pass_fits(p, seqs[i].n - offset, f->max_rows)) {
			int left = seqs[i].n - offset, rows = left < f->max_rows ? left : f->max_rows;
			bool last = rows == left;
			pieces[p->n++] = (struct piece){&seqs[i], i, offset, rows, last};
			p->rows += rows;
			p->wants |= last && (next || logits);
			offset = last ? 0 : offset + rows;
			i += last;
			if (!last)
				break; /* the rest of this sequence needs these rows first */
		}
		p->more = more || i < n;
		rc = pass_run(p, next, logits, err);
	}
	if (rc)
		queue_sync(f->queue); /* what is under way ends before the caller frees what it reads */
	free(p);
	free(pieces);
	return rc;
}

int forward_run(struct forward *f, const struct forward_seq *seqs, int n, const struct observer *obs, int n_obs, int32_t *next, float *logits,
	char err[ERR_LEN])
{
	return run_layers(f, f->config.layers, seqs, n, obs, n_obs, next, logits, false, err);
}

static int prefill(struct forward *f, int layers, const int32_t *ids, int64_t n, struct kv *kv, const struct observer *obs, int n_obs, int32_t *next,
	float *logits, bool (*stop)(void *user), void *user, char err[ERR_LEN])
{
	int64_t pos0 = kv_len(kv, 0, 0);
	for (int64_t at = 0; at < n; at += f->max_rows) {
		if (stop && stop(user))
			return queue_sync(f->queue) ? device_failed(f, "forward", err) : 1;
		bool last = at + f->max_rows >= n;
		struct forward_seq s = {ids + at, (int)(last ? n - at : f->max_rows), pos0 + at, NULL, NULL, kv};
		if (run_layers(f, layers, &s, 1, obs, n_obs, last ? next : NULL, last ? logits : NULL, !last, err))
			return -1;
	}
	return 0;
}

int forward_prefill(struct forward *f, const int32_t *ids, int64_t n, struct kv *kv, const struct observer *obs, int n_obs, int32_t *next,
	float *logits, bool (*stop)(void *user), void *user, char err[ERR_LEN])
{
	return prefill(f, f->config.layers, ids, n, kv, obs, n_obs, next, logits, stop, user, err);
}

int forward_prefill_layers(struct forward *f, int layers, const int32_t *ids, int64_t n, struct kv *kv, const struct observer *obs, int n_obs,
	bool (*stop)(void *user), void *user, char err[ERR_LEN])
{
	return prefill(f, layers, ids, n, kv, obs, n_obs, NULL, NULL, stop, user, err);
}

/* ---- layer by layer ---- */

struct whole { /* [n, .] of all rows: what a pass of max_rows holds otherwise */
	struct tensor *x, *cs;
};

static int whole_embed(struct forward *f, struct whole *a, const int32_t *ids, int64_t n)
{
	const struct model_config *c = &f->config;
	int64_t *pos = mem_new((size_t)f->max_rows, sizeof *pos);
	int rc = 0;
	for (int64_t at = 0; at < n && !rc; at += f->max_rows) {
		int64_t rows = n - at < f->max_rows ? n - at : f->max_rows;
		for (int64_t i = 0; i < rows; i++)
			pos[i] = at + i;
		rc = op_embed(f->queue, f->x, f->weights.embed, ids + at, rows) ||
		     op_rope_table(f->queue, f->cs, pos, f->inv_freq, f->mscale, c->head_dim, rows) ||
		     op_copy(f->queue, a->x, at, 0, f->x, 0, 0, rows, c->hidden) || op_copy(f->queue, a->cs, at, 0, f->cs, 0, 0, rows, c->head_dim);
	}
	free(pos);
	return rc ? -1 : 0;
}

/* All rows through layer l, a pass at a time; of the last layer K and V alone. */
static int whole_layer(struct forward *f, struct whole *a, int l, int64_t n, struct kv *kv)
{
	const struct model_config *c = &f->config;
	bool last = l == c->layers - 1;
	struct pass *p = mem_new(1, sizeof *p);
	int rc = 0;
	for (int64_t at = 0; at < n && !rc; at += f->max_rows) {
		int64_t rows = n - at < f->max_rows ? n - at : f->max_rows, kcol;
		*p = (struct pass){.f = f, .n = 1, .rows = rows, .layers = c->layers};
		p->seq[0] = (struct attn_seq){0, rows, NULL, NULL, kv, at};
		rc = op_copy(f->queue, f->x, 0, 0, a->x, at, 0, rows, c->hidden) ||
		     op_copy(f->queue, f->cs, 0, 0, a->cs, at, 0, rows, c->head_dim) || pass_project(p, l, !last, &kcol);
		if (!rc && !last)
			rc = op_attention(f->queue, l, p->seq, 1, f->att, f->qkv, 0, c->heads, NULL) ||
			     pass_mlp(f, &f->weights.layer[l], f->x, f->att, rows) || op_copy(f->queue, a->x, at, 0, f->x, 0, 0, rows, c->hidden);
	}
	free(p);
	return rc ? -1 : 0;
}

static struct kv *one_layer_cache(struct forward *f, int l, int64_t n)
{
	const struct model_config *c = &f->config;
	int64_t *cap = mem_new((size_t)c->layers * (size_t)c->kv_heads, sizeof *cap);
	for (int h = 0; h < c->kv_heads; h++)
		cap[l * c->kv_heads + h] = n;
	struct kv *kv = kv_new(f->device, c->layers, c->kv_heads, c->head_dim, cap);
	free(cap);
	return kv;
}

int forward_prefill_by_layer(struct forward *f, const int32_t *ids, int64_t n, const struct forward_by_layer *w, char err[ERR_LEN])
{
	struct whole a = {tensor_new(f->device, n, f->config.hidden), tensor_new(f->device, n, f->config.head_dim)};
	int rc = a.x && a.cs && !whole_embed(f, &a, ids, n) ? 0 : device_failed(f, "prefill by layer", err);
	f->calls++;
	for (int l = 0; l < f->config.layers && !rc; l++) {
		if (w->stop && w->stop(w->stop_user)) {
			rc = 1;
			break;
		}
		struct kv *kv = one_layer_cache(f, l, n);
		if (!kv || whole_layer(f, &a, l, n, kv) || queue_sync(f->queue))
			rc = device_failed(f, "prefill by layer", err);
		else
			rc = w->layer(w->user, l, kv, err);
		kv_free(kv);
	}
	tensor_free(a.x);
	tensor_free(a.cs);
	return rc;
}
