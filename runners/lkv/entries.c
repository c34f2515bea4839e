/* entries.c: see entries.h. */
#include "runners/lkv/entries.h"

#include "runners/lkv/dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	TURN_ROWS = 256, /* positions an item of the table has */
	BLOCK_ROWS = 96  /* entries read at once: K and V of them stay in L1 or L2 */
};

/* ---- the rotation's table ---- */

struct turn_job {
	const double *inv_freq;
	double mscale;
	int d;
	int64_t first, n;
	float *cs;
};

static void turn_item(void *arg, int64_t item)
{
	const struct turn_job *j = arg;
	int half = j->d / 2;
	int64_t end = (item + 1) * TURN_ROWS < j->n ? (item + 1) * TURN_ROWS : j->n;
	float scale = (float)(1 / j->mscale);
	for (int64_t r = item * TURN_ROWS; r < end; r++)
		for (int t = 0; t < half; t++) {
			float angle = (float)(j->first + r) * (float)j->inv_freq[t], s, c;
			sincosf(angle, &s, &c);
			j->cs[r * j->d + t] = c * scale;
			j->cs[r * j->d + half + t] = s * scale;
		}
}

float *lkv_turns(struct device *d, const double *inv_freq, double mscale, int head_dim, int64_t first, int64_t n)
{
	float *cs = malloc((size_t)(n * head_dim) * sizeof *cs + 1);
	struct turn_job j = {inv_freq, mscale, head_dim, first, n, cs};
	if (cs)
		device_parallel(d, (n + TURN_ROWS - 1) / TURN_ROWS, turn_item, &j);
	return cs;
}

/* ---- inputs of training ---- */

int lkv_entries(struct queue *q, const struct kv *kv, int layer, int head, int64_t first, int64_t n, const struct lkv_shape *s,
	const float *turns, float *x)
{
	int d = s->d, half = d / 2, in = lkv_inputs(s), rc = -1;
	float *k = malloc((size_t)(2 * n * d) * sizeof *k + 1), *v = k ? k + n * d : NULL;
	if (!k || kv_read(q, kv, layer, head, first, n, k, v))
		goto cleanup;
	for (int64_t i = 0; i < n; i++) {
		float *row = x + i * in;
		const float *key = k + i * d, *c = turns + i * d;
		for (int t = 0; s->key && t < half; t++) {
			float a = key[t], b = key[t + half];
			row[t] = s->pre ? a * c[t] + b * c[half + t] : a;
			row[t + half] = s->pre ? b * c[t] - a * c[half + t] : b;
		}
		if (s->value)
			memcpy(row + in - d, v + i * d, (size_t)d * sizeof *row);
	}
	rc = 0;
cleanup:
	free(k);
	return rc;
}

/* ---- utilities at run time ---- */

enum { MEAN, W1, B1, W2, B2, PLACED };
struct lkv_ready {
	struct lkv_shape shape;
	struct tensor *placed[PLACED];           /* the same on a device that does not read caches in place */
	int hid;                                 /* padded to 32 */
	float *block, *mean, *w1, *b1, *w2, *b2; /* [G][in], [G][in][hid], [G][hid], [G][hid], [G] */
	uint16_t *tiles;                         /* [G][hid * in padded to 32], dense.h */
};

static uint16_t bf16_of(float x) /* nearest even; x is finite */
{
	uint32_t u;
	memcpy(&u, &x, 4);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* W1 of one head [in][hid] as tiles: pairs of inputs side by side. */
static void tiles_pack(const float *w1, int64_t in, int64_t hid, uint16_t *out)
{
	int64_t steps = (in + 31) / 32;
	for (int64_t i = 0; i < in; i++)
		for (int64_t h = 0; h < hid; h++) {
			int64_t block = h / 32 * steps + i / 32, tile = h % 32 / 16, pair = i % 32 / 2;
			out[(((block * 2 + tile) * 16 + pair) * 16 + h % 16) * 2 + i % 2] = bf16_of(w1[i * hid + h]);
		}
}

struct lkv_ready *lkv_ready_new(const struct lkv_net *net)
{
	struct lkv_ready *r = mem_new(1, sizeof *r);
	int64_t G = (int64_t)net->shape.layers * net->shape.kv_heads, in = lkv_inputs(&net->shape), old = net->shape.hid;
	int64_t hid = (old + 31) / 32 * 32;
	r->shape = net->shape;
	r->hid = (int)hid;
	int64_t tiled = (in + 31) / 32 * 32 * hid;
	r->block = calloc((size_t)(G * (in + in * hid + 2 * hid + 1)), sizeof *r->block);
	r->tiles = calloc((size_t)(G * tiled), sizeof *r->tiles);
	if (!r->block || !r->tiles) {
		lkv_ready_free(r);
		return NULL;
	}
	r->mean = r->block;
	r->w1 = r->mean + G * in;
	r->b1 = r->w1 + G * in * hid;
	r->w2 = r->b1 + G * hid;
	r->b2 = r->w2 + G * hid;
	memcpy(r->mean, net->p[LKV_MEAN], (size_t)(G * in) * sizeof(float));
	memcpy(r->b2, net->p[LKV_B2], (size_t)G * sizeof(float));
	for (int64_t g = 0; g < G; g++) {
		memcpy(r->b1 + g * hid, net->p[LKV_B1] + g * old, (size_t)old * sizeof(float));
		memcpy(r->w2 + g * hid, net->p[LKV_W2] + g * old, (size_t)old * sizeof(float));
		for (int64_t i = 0; i < in; i++)
			for (int64_t h = 0; h < old; h++)
				r->w1[(g * in + i) * hid + h] =
					net->p[LKV_W1][(g * in + i) * old + h] / net->p[LKV_DEVIATION][g * in + i];
		tiles_pack(r->w1 + g * in * hid, in, hid, r->tiles + g * tiled);
	}
	return r;
}

void lkv_ready_free(struct lkv_ready *r)
{
	if (r) {
		free(r->block);
		free(r->tiles);
		for (int i = 0; i < PLACED; i++)
			tensor_free(r->placed[i]);
	}
	free(r);
}

int lkv_positions_make(
	struct lkv_positions *p, struct queue *q, const double *inv_freq, double mscale, int head_dim, int64_t first, int64_t n)
{
	struct device *d = queue_device(q);
	*p = (struct lkv_positions){.turns = lkv_turns(d, inv_freq, mscale, head_dim, first, n)};
	if (!p->turns)
		return -1;
	if (device_reads_caches(d))
		return 0;
	p->placed = tensor_new(d, n, head_dim);
	return p->placed ? tensor_write(q, p->placed, 0, n, p->turns) : -1;
}

void lkv_positions_free(struct lkv_positions *p)
{
	free(p->turns);
	tensor_free(p->placed);
	*p = (struct lkv_positions){0};
}

static int place(struct lkv_ready *r, struct queue *q)
{
	const int64_t G = (int64_t)r->shape.layers * r->shape.kv_heads, in = lkv_inputs(&r->shape);
	const struct {
		const float *host;
		int64_t rows, cols;
	} parts[PLACED] = {[MEAN] = {r->mean, G, in},
		[W1] = {r->w1, G * in, r->hid},
		[B1] = {r->b1, G, r->hid},
		[W2] = {r->w2, G, r->hid},
		[B2] = {r->b2, G, 1}};
	for (int i = 0; i < PLACED; i++) {
		if (r->placed[i])
			continue;
		struct tensor *t = tensor_new(queue_device(q), parts[i].rows, parts[i].cols);
		if (!t || tensor_write(q, t, 0, parts[i].rows, parts[i].host)) {
			tensor_free(t);
			return -1;
		}
		r->placed[i] = t;
	}
	return 0;
}

struct utility_job {
	const struct lkv_ready *r;
	const struct dense_kernels *kernels;
	struct queue *q;
	const struct kv *kv;
	int in, of;
	int64_t first, n, blocks; /* blocks of one head */
	const float *turns;
	float *out;
	bool failed;
};

static void utility_block(void *arg, int64_t item)
{
	struct utility_job *j = arg;
	const struct lkv_shape *s = &j->r->shape;
	int64_t head = item / j->blocks, at = item % j->blocks * BLOCK_ROWS, n = j->n - at < BLOCK_ROWS ? j->n - at : BLOCK_ROWS;
	int64_t g = (int64_t)j->of * s->kv_heads + head, in = lkv_inputs(s), hid = j->r->hid;
	float k[BLOCK_ROWS * 256], v[BLOCK_ROWS * 256];
	if (kv_read(j->q, j->kv, j->in, (int)head, j->first + at, n, s->key ? k : NULL, s->value ? v : NULL)) {
		__atomic_store_n(&j->failed, true, __ATOMIC_RELAXED);
		return;
	}
	struct utility_item u = {.k = s->key ? k : NULL,
		.v = s->value ? v : NULL,
		.cs = s->pre ? j->turns + at * s->d : NULL,
		.n = n,
		.d = s->d,
		.hid = (int)hid,
		.mean = j->r->mean + g * in,
		.w1 = j->r->w1 + g * in * hid,
		.b1 = j->r->b1 + g * hid,
		.w2 = j->r->w2 + g * hid,
		.tiles = j->r->tiles + g * ((in + 31) / 32 * 32 * hid),
		.b2 = j->r->b2[g],
		.out = j->out + head * j->n + at};
	j->kernels->utilities(&u);
}

int lkv_utilities(struct lkv_ready *r, struct queue *q, const struct kv *kv, int in, int of, int64_t first, int64_t n,
	const struct lkv_positions *p, float *out)
{
	struct device *d = queue_device(q);
	const struct lkv_shape *s = &r->shape;
	if (!device_reads_caches(d)) {
		if (place(r, q))
			return -1;
		const struct entry_net net = {
			s->key, s->value, r->hid, r->placed[MEAN], r->placed[W1], r->placed[B1], r->placed[W2], r->placed[B2]};
		return op_utilities(q, kv, in, &net, of, first, n, s->pre ? p->placed : NULL, out);
	}
	struct utility_job j = {r, dense_kernels_for(device_isa(d)), q, kv, in, of, first, n, (n + BLOCK_ROWS - 1) / BLOCK_ROWS,
		p->turns, out, false};
	device_parallel(d, j.blocks * s->kv_heads, utility_block, &j);
	return j.failed ? -1 : 0;
}
