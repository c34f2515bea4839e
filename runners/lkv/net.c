/* net.c: the parameters of LKV: shapes, names, initial values. See net.h; the networks are lkv_t.c and lkv_h.c. */
#include "runners/lkv/net.h"

#include <math.h>
#include <stdlib.h>

static const char *const kinds[LKV_KINDS] = {"lkv", "lkv-global", "kv-mlp"};
static const char *const names[LKV_TENSORS] = {
	"t.w1", "t.b1", "t.w2", "t.b2", "h.e", "h.w1", "h.b1", "h.w2", "h.b2", "mean", "deviation"};

const char *lkv_kind_name(enum lkv_kind kind)
{
	return kinds[kind];
}

const char *lkv_tensor_name(enum lkv_tensor t)
{
	return names[t];
}

int lkv_inputs(const struct lkv_shape *s)
{
	return s->d * (s->key + s->value);
}

int64_t lkv_tensor_dims(const struct lkv_shape *s, enum lkv_tensor t, int64_t dims[3], int *n_dims)
{
	const int64_t G = (int64_t)s->layers * s->kv_heads, in = lkv_inputs(s);
	const int64_t shapes[LKV_TENSORS][3] = {{G, in, s->hid}, {G, s->hid}, {G, s->hid}, {G}, {G, s->emb}, {s->emb, LKV_H_HID},
		{LKV_H_HID}, {LKV_H_HID}, {1}, {G, in}, {G, in}};
	int64_t count = 1;
	*n_dims = 0;
	for (int i = 0; i < 3 && shapes[t][i]; i++) {
		dims[(*n_dims)++] = shapes[t][i];
		count *= shapes[t][i];
	}
	return count;
}

/* A normal number: two units by Box and Muller, the first of the pair. */
static float normal(struct rng *r)
{
	double a = 1 - rng_unit(r), b = rng_unit(r);
	return (float)(sqrt(-2 * log(a)) * cos(6.283185307179586 * b));
}

/* Scales of the initial weights: 1/sqrt(fan in); H's last layer starts near zero, so that all ratios start near R. */
static void fill(struct lkv_net *n, uint64_t seed)
{
	const struct lkv_shape *s = &n->shape;
	const double scale[LKV_TENSORS] = {[LKV_W1] = 1 / sqrt(lkv_inputs(s)),
		[LKV_W2] = 1 / sqrt(s->hid),
		[LKV_E] = .5,
		[LKV_H1] = 1 / sqrt(s->emb),
		[LKV_H2] = .1 / sqrt(LKV_H_HID)};
	for (int t = 0; t < LKV_TENSORS; t++) {
		struct rng r = rng_seed(seed, (uint64_t)t);
		for (int64_t i = 0; i < n->count[t]; i++)
			n->p[t][i] = t == LKV_DEVIATION ? 1 : scale[t] > 0 ? (float)scale[t] * normal(&r) : 0;
	}
}

struct lkv_net *lkv_net_new(const struct lkv_shape *s, uint64_t seed)
{
	struct lkv_net *n = mem_new(1, sizeof *n);
	int64_t dims[3], all = 0;
	int n_dims;
	n->shape = *s;
	for (int t = 0; t < LKV_TENSORS; t++) {
		n->count[t] = lkv_tensor_dims(s, t, dims, &n_dims);
		n->trained += t < LKV_TRAINED ? n->count[t] : 0;
		all += n->count[t];
	}
	float *block = malloc((size_t)all * sizeof *block);
	if (!block) {
		free(n);
		return NULL;
	}
	for (int t = 0; t < LKV_TENSORS; t++) {
		n->p[t] = block;
		block += n->count[t];
	}
	fill(n, seed);
	return n;
}

void lkv_net_free(struct lkv_net *n)
{
	if (n)
		free(n->p[0]);
	free(n);
}
