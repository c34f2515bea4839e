/* layout.h: where each parameter of a mapper lies in its one vector of numbers. Private to runners/mapper.
 *
 * Parameters, gradients and the optimiser's moments are vectors of the same layout, so that the optimiser, the file and the
 * checkpoint are loops. The trained ones come first; running statistics (batch norm) lie behind them. Names are the file's. */
#ifndef KVB_MAPPER_LAYOUT_H
#define KVB_MAPPER_LAYOUT_H

#include "runners/mapper/mapper.h"

enum { ATTN_HEADS = 4 }; /* attention heads of the axial mapper, stages 2 and 3 */
enum { FULL_BIAS = 64 }; /* window = full: relative biases up to this distance, the last one beyond */

enum param_init { INIT_UNIFORM, INIT_NORMAL, INIT_VALUE, INIT_SPREAD, INIT_MEAN };
struct param {
	const char *name;
	int n_dims;
	int64_t dims[3];
	size_t at, count; /* first element in the vector, number of elements */
	enum param_init init;
	double init_value; /* half width of UNIFORM, deviation of NORMAL, VALUE; SPREAD and MEAN: of z, from the training set */
};

/* Parameters of the three forms; P(X) of layout.at[] is -1 where the configuration has no such parameter. */
enum param_id {
	P_C1_W,
	P_C1_B,
	P_N1_W,
	P_N1_B,
	P_C2_W,
	P_C2_B,
	P_N2_W,
	P_N2_B, /* flat and axial stage 1; linear has C1 alone */
	P_L1_W,
	P_L1_B,
	P_QKV_W,
	P_QKV_B,
	P_AO_W,
	P_AO_B,
	P_RB, /* axial stage 2: attention */
	P_L2_W,
	P_L2_B,
	P_F1_W,
	P_F1_B,
	P_F2_W,
	P_F2_B, /* axial stage 2: feed forward */
	P_L3_W,
	P_L3_B,
	P_HE,
	P_Q,
	P_KV_W,
	P_KV_B,
	P_O_W,
	P_O_B, /* axial stage 3 */
	P_L4_W,
	P_L4_B,
	P_M1_W,
	P_M1_B,
	P_M2_W,
	P_M2_B,
	P_L5_W,
	P_L5_B,
	P_OUT_W,
	P_OUT_B,
	P_A,
	P_B, /* flat and axial: to scores, their scale and bias */
	P_N1_MEAN,
	P_N1_VAR,
	P_N2_MEAN,
	P_N2_VAR, /* batch norm's running statistics: not trained */
	PARAMS
};
struct layout {
	int n;
	struct param p[PARAMS];
	int64_t at[PARAMS];    /* offset by enum param_id, -1 = absent */
	size_t count, trained; /* all elements; the first `trained` of them have gradients */
	size_t sequence; /* axial: the first `sequence` belong to stages 1 and 2 and stage 3's norm: one gradient each (layer,
			    head) */
};
void layout_make(struct layout *out, const struct mapper_config *c);

/* What the configuration means in numbers. */
int mapper_width(const struct mapper_config *c);  /* channels, default filled in */
int mapper_groups(const struct mapper_config *c); /* distinct inputs of stage 1: axial Ls, or 1 with neighbours = all; else 1 */
int mapper_group_of(const struct mapper_config *c, int layer); /* whose output target layer `layer` reads */
int mapper_group_inputs(const struct mapper_config *c);        /* axial: channels of its first convolution */
int mapper_bias_half(const struct mapper_config *c); /* distances the attention's relative bias tells apart, to each side */

#endif
