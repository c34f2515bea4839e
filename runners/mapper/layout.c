/* layout.c: see layout.h. The order here is the order in memory: what stages 1 and 2 use lies before what stage 3 uses. */
#include "runners/mapper/layout.h"

#include <math.h>
#include <string.h>

int mapper_width(const struct mapper_config *c)
{
	return c->channels ? c->channels : c->kind == MAPPER_AXIAL ? 32 : 128;
}

int mapper_groups(const struct mapper_config *c)
{
	return c->kind == MAPPER_AXIAL && c->neighbours != MAPPER_ALL ? c->proxy_layers : 1;
}

/* The paper's map l_s = ceil(l_l Ls / Ll), 1-based; here 0-based. */
int mapper_group_of(const struct mapper_config *c, int layer)
{
	if (mapper_groups(c) == 1)
		return 0;
	return (int)(((int64_t)(layer + 1) * c->proxy_layers + c->layers - 1) / c->layers) - 1;
}

int mapper_group_inputs(const struct mapper_config *c)
{
	return c->neighbours == MAPPER_ALL ? c->proxy_layers : 2 * c->neighbours + 1;
}

int mapper_bias_half(const struct mapper_config *c)
{
	return c->window == MAPPER_ALL ? FULL_BIAS : c->window;
}

static void add(struct layout *l, enum param_id id, const char *name, enum param_init init, double value, int n_dims, int64_t d0,
	int64_t d1, int64_t d2)
{
	struct param *p = &l->p[l->n++];
	*p = (struct param){
		.name = name, .n_dims = n_dims, .dims = {d0, d1, d2}, .at = l->count, .init = init, .init_value = value};
	p->count = (size_t)d0 * (size_t)(n_dims > 1 ? d1 : 1) * (size_t)(n_dims > 2 ? d2 : 1);
	l->at[id] = (int64_t)p->at;
	l->count += p->count;
}

/* Weight [out, in] or [out, in, taps] and bias, both uniform in +-1/sqrt(fan in): torch's defaults of these layers. */
static void add_linear(
	struct layout *l, enum param_id id, const char *weight, const char *bias, int64_t out, int64_t in, int taps)
{
	double half = 1 / sqrt((double)(in * (taps ? taps : 1)));
	add(l, id, weight, INIT_UNIFORM, half, taps ? 3 : 2, out, in, taps);
	add(l, id + 1, bias, INIT_UNIFORM, half, 1, out, 0, 0);
}

static void add_norm(struct layout *l, enum param_id id, const char *weight, const char *bias, int64_t n)
{
	add(l, id, weight, INIT_VALUE, 1, 1, n, 0, 0);
	add(l, id + 1, bias, INIT_VALUE, 0, 1, n, 0, 0);
}

static void add_scale(struct layout *l, const struct mapper_config *c)
{
	add(l, P_A, "a", INIT_SPREAD, 1, 2, c->layers, c->kv_heads, 0);
	add(l, P_B, "b", INIT_MEAN, 0, 2, c->layers, c->kv_heads, 0);
}

static void layout_flat(struct layout *l, const struct mapper_config *c)
{
	int64_t width = mapper_width(c);
	add_linear(l, P_C1_W, "c1.weight", "c1.bias", width, (int64_t)c->proxy_layers * c->proxy_heads, c->taps);
	add_norm(l, P_N1_W, "n1.weight", "n1.bias", width);
	add_linear(l, P_C2_W, "c2.weight", "c2.bias", width, width, c->taps);
	add_norm(l, P_N2_W, "n2.weight", "n2.bias", width);
	add_linear(l, P_OUT_W, "out.weight", "out.bias", (int64_t)c->layers * c->kv_heads, width, 0);
	add_scale(l, c);
	l->trained = l->count;
}

static void layout_linear(struct layout *l, const struct mapper_config *c)
{
	add_linear(l, P_C1_W, "c1.weight", "c1.bias", (int64_t)c->layers * c->kv_heads, (int64_t)c->proxy_layers * c->proxy_heads,
		c->taps);
	l->trained = l->count;
}

static void layout_axial_encoder(struct layout *l, const struct mapper_config *c)
{
	int64_t width = mapper_width(c);
	if (c->window) {
		add_norm(l, P_L1_W, "l1.weight", "l1.bias", width);
		add_linear(l, P_QKV_W, "qkv.weight", "qkv.bias", 3 * width, width, 0);
		add_linear(l, P_AO_W, "ao.weight", "ao.bias", width, width, 0);
		add(l, P_RB, "rb", INIT_VALUE, 0, 2, ATTN_HEADS, 2 * mapper_bias_half(c) + 1, 0);
	}
	add_norm(l, P_L2_W, "l2.weight", "l2.bias", width);
	add_linear(l, P_F1_W, "f1.weight", "f1.bias", 2 * width, width, 0);
	add_linear(l, P_F2_W, "f2.weight", "f2.bias", width, 2 * width, 0);
}

static void layout_axial(struct layout *l, const struct mapper_config *c)
{
	int64_t width = mapper_width(c);
	bool full = c->embeddings == MAPPER_EMB_FULL;
	add_linear(l, P_C1_W, "c1.weight", "c1.bias", width, mapper_group_inputs(c), c->taps);
	add_norm(l, P_N1_W, "n1.weight", "n1.bias", width);
	add_linear(l, P_C2_W, "c2.weight", "c2.bias", width, width, c->taps);
	add_norm(l, P_N2_W, "n2.weight", "n2.bias", width);
	if (c->encoder)
		layout_axial_encoder(l, c);
	add_norm(l, P_L3_W, "l3.weight", "l3.bias", width);
	l->sequence = l->count;
	add(l, P_HE, "he", INIT_NORMAL, 0.1, 3, full ? mapper_groups(c) : 1, c->proxy_heads, width);
	add(l, P_Q, "q", INIT_NORMAL, 0.5, 3, full ? c->layers : 1, c->kv_heads, width);
	add_linear(l, P_KV_W, "kv.weight", "kv.bias", 2 * width, width, 0);
	add_linear(l, P_O_W, "o.weight", "o.bias", width, width, 0);
	add_norm(l, P_L4_W, "l4.weight", "l4.bias", width);
	add_linear(l, P_M1_W, "m1.weight", "m1.bias", 2 * width, width, 0);
	add_linear(l, P_M2_W, "m2.weight", "m2.bias", width, 2 * width, 0);
	add_norm(l, P_L5_W, "l5.weight", "l5.bias", width);
	add_linear(l, P_OUT_W, "out.weight", "out.bias", 1, width, 0);
	add_scale(l, c);
	l->trained = l->count;
	if (c->norm == MAPPER_NORM_BATCH) {
		add(l, P_N1_MEAN, "n1.running_mean", INIT_VALUE, 0, 1, width, 0, 0);
		add(l, P_N1_VAR, "n1.running_var", INIT_VALUE, 1, 1, width, 0, 0);
		add(l, P_N2_MEAN, "n2.running_mean", INIT_VALUE, 0, 1, width, 0, 0);
		add(l, P_N2_VAR, "n2.running_var", INIT_VALUE, 1, 1, width, 0, 0);
	}
}

void layout_make(struct layout *out, const struct mapper_config *c)
{
	static void (*const make[])(struct layout *, const struct mapper_config *) = {
		[MAPPER_FLAT] = layout_flat, [MAPPER_LINEAR] = layout_linear, [MAPPER_AXIAL] = layout_axial};
	memset(out, 0, sizeof *out);
	for (int i = 0; i < PARAMS; i++)
		out->at[i] = -1;
	make[c->kind](out, c);
}
