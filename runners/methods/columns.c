/* columns.c: column sums (or maxima) of attention probabilities during a prefill, chunk by chunk, with the row log-sum-exp the
 * attention itself left behind: no rows x keys buffer (spec/methods.md 12, decision 6). One device tensor a layer, as large as
 * its scores. */
#include "runners/methods/parts.h"

#include <stdlib.h>

struct columns {
	int layers;
	struct tensor **sum; /* [layers]: [rows, shape.count] */
};

struct columns *columns_new(const struct scoring *s, int rows, char err[ERR_LEN])
{
	struct columns *c = mem_new(1, sizeof(*c));
	struct device *d = forward_device(s->forward);
	c->layers = s->layers;
	c->sum = mem_new((size_t)s->layers, sizeof(*c->sum));
	for (int l = 0; l < s->layers; l++) {
		c->sum[l] = tensor_new(d, rows, s->shape.count);
		if (!c->sum[l] || tensor_fill(forward_queue(s->forward), c->sum[l], 0)) {
			err_set(err, "column sums of layer %d (%d x %lld): %s", l, rows, (long long)s->shape.count,
				device_error(d));
			columns_free(c);
			return NULL;
		}
	}
	return c;
}

void columns_free(struct columns *c)
{
	for (int l = 0; c && l < c->layers; l++)
		tensor_free(c->sum[l]);
	if (c)
		free(c->sum);
	free(c);
}

struct tensor *columns_tensor(struct columns *c, int layer)
{
	return c->sum[layer];
}

int columns_add(struct columns *c, const struct scoring *s, const struct layer_rows *r, int64_t from, enum attn_group group,
	char err[ERR_LEN])
{
	int64_t row0 = from > r->pos0 ? from - r->pos0 : 0, rows = r->rows - row0, seen = r->pos0 + r->rows;
	int64_t cols = (seen < s->shape.first + s->shape.count ? seen : s->shape.first + s->shape.count) - s->shape.first;
	struct key_set keys = {
		.range = {{r->kv, 0, seen}}, .n = 1, .causal = true}; /* the rows are the last of the chunk: bottom-right */
	if (rows <= 0 || cols <= 0)
		return 0;
	if (op_attn_reduce(forward_queue(s->forward), r->layer, &keys, 0, s->shape.first, cols, r->qkv, row0, rows, 0,
		    forward_config(s->forward)->heads, r->lse, row0, REDUCE_SUM, group, c->sum[r->layer], 0))
		return err_set(err, "attention columns, layer %d: %s", r->layer, device_error(forward_device(s->forward)));
	return 0;
}

void columns_drop(struct columns *c, int layer)
{
	tensor_free(c->sum[layer]);
	c->sum[layer] = NULL;
}

int columns_take(struct columns *c, const struct scoring *s, int layer, float *out, char err[ERR_LEN])
{
	struct tensor *t = c->sum[layer];
	if (tensor_read(forward_queue(s->forward), t, 0, tensor_rows(t), out))
		return err_set(err, "reading column sums, layer %d: %s", layer, device_error(forward_device(s->forward)));
	columns_drop(c, layer);
	return 0;
}

int columns_score(struct columns *c, struct scoring *s, int layer, char err[ERR_LEN])
{
	if (scores_take(s, layer, c->sum[layer], err))
		return -1;
	columns_drop(c, layer);
	return 0;
}
