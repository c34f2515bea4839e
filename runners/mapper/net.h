/* net.h: the mapper's arithmetic, written once and compiled for two element types. Private to runners/mapper.
 *
 * KVB_REAL is float (the program) or double (ridge regression, and the tests that check gradients); KVB_REAL_NAME, f32 or f64,
 * ends every external name: REAL(name). Kernels are further compiled for each instruction set, as the device's are.
 *
 * Layout: a buffer is rows (channels) of positions, row r at r * ld. Positions lie in the vector lanes, so convolutions, norms
 * over channels and activations are all loops over whole vectors. A *strip* is a window of positions: buffers hold `cols`
 * columns, of which column t is position first + t; columns outside [0, n) count as zero padding wherever a convolution reads.
 * Behind each row lie PAD columns that stay zero, so a convolution may read past either end of a row. */
#ifndef KVB_MAPPER_NET_H
#define KVB_MAPPER_NET_H

#include "runners/mapper/layout.h"

#ifndef KVB_REAL
#define KVB_REAL float
#define KVB_REAL_NAME f32
#endif
#define REAL_CAT2(name, type) name##_##type
#define REAL_CAT(name, type) REAL_CAT2(name, type)
#define REAL(name) REAL_CAT(name, KVB_REAL_NAME)
typedef KVB_REAL real;

enum { PAD = 16 }; /* zero columns behind a row; cols and ld are multiples of it */

struct strip {
	int64_t first; /* position of column 0; may be negative */
	int64_t n;     /* positions of the sequence */
	int64_t cols, ld;
};

/* ---- kernels ---- */
struct conv { /* out[r][t] = (add ? out[r][t] : 0) + bias[r] + sum over c, k of w[r][c][k] in[c][t + k - taps/2] */
	const real *w, *bias; /* w row r at r * w_ld; bias NULL = 0 */
	const real *in;
	real *out;
	int64_t w_ld, in_ld, out_ld, cols;
	int rows, channels, taps;
	bool add;
};
struct conv_grad { /* dw[r][c][k] += sum over t of d[r][t] in[c][t + k - taps/2]; db[r] += sum of d[r][t] */
	const real *d, *in;
	real *dw, *db; /* db NULL = not wanted */
	int64_t d_ld, in_ld, dw_ld, cols;
	int rows, channels, taps;
};
struct norm {              /* xhat = (in + shift - mean) rstd; out = act(gain xhat + bias) */
	const real *in;    /* may be xhat */
	const real *shift; /* [channels] or NULL */
	const real *mean;  /* batch norm: [channels] statistics; NULL = layer norm: over the channels of each column */
	real *rstd;        /* batch norm: [channels], given; layer norm: [cols], written */
	const real *gain, *bias;
	real *xhat, *out;
	int64_t cols, ld;
	int channels;
	bool gelu;
};
struct band { /* attention of one head inside a strip: column t sees columns s with |t - s| <= window and position in [0, n) */
	const real *q, *k, *v; /* rows of d channels, ld apart */
	const real *rb;        /* relative bias [2 half + 1] by s - t, clamped to half */
	real *out;             /* rows of d channels */
	/* backward: gradients of out, and of q, k, v, rb (added to) */
	const real *dout;
	real *dq, *dk, *dv, *drb;
	real *scratch;        /* band_scratch() numbers */
	int64_t window, half; /* window >= n: full */
	struct strip strip;
	int d;
};
struct kernels {
	const char *name;
	void (*conv)(const struct conv *a);
	void (*conv_grad)(const struct conv_grad *a);
	void (*norm)(const struct norm *a);
	/* d, the gradient of out, becomes that of gain xhat + bias (a->gelu) ; dgain and dbias are added to. */
	void (*norm_grad)(const struct norm *a, real *d, real *dgain, real *dbias);
	/* d, the gradient of gain xhat + bias, becomes that of in: layer norm; batch norm with the sums over all columns of all
	 * sequences, sum_d of d and sum_dx of d xhat (that is dbias, dgain), over `count` columns. */
	void (*norm_back_layer)(const struct norm *a, real *d);
	void (*norm_back_batch)(const struct norm *a, real *d, const real *sum_d, const real *sum_dx, double count);
	void (*gelu)(const real *in, real *out, int64_t n);
	void (*gelu_back)(const real *in, real *d, int64_t n); /* d *= gelu'(in) */
	void (*band)(const struct band *a);
	void (*band_back)(const struct band *a);
	/* Stage 3, per column: z [tokens][rows][ld] becomes its softmax over tokens; mixed [rows][channels][ld] = sum over tokens
	 * of z[p][r] x[p][c], x [tokens][channels][ld]. */
	void (*mix)(real *z, const real *x, real *mixed, int tokens, int rows, int channels, int64_t cols, int64_t ld);
	/* dmixed -> dz [tokens][rows] (gradient before the softmax, written) and dx [tokens][channels] (added to); a: the
	 * softmax. */
	void (*mix_back)(const real *a, const real *x, const real *dmixed, real *dz, real *dx, int tokens, int rows, int channels,
		int64_t cols, int64_t ld);
	/* The feature of one row: out = (f(x * scale) - mean) * factor, f by enum mapper_compress. */
	void (*feature)(const float *x, const float *scale, real mean, real factor, int compress, int64_t n, real *out);
	/* Binary cross entropy of s - threshold against y > cut, n entries: returns the sum, adds factor * derivative to d. */
	double (*binary)(const real *s, const real *y, real threshold, real cut, real factor, int64_t n, real *d);
};
enum { BAND_BLOCK = 64 };
static inline size_t band_scratch(const struct strip *s, int64_t window) /* two tables of distances, two blocks of logits */
{
	int64_t reach = (window < s->cols ? window : s->cols) + BAND_BLOCK, keys = 2 * reach < s->cols ? 2 * reach : s->cols;
	return (size_t)(4 * reach + 2 * keys * BAND_BLOCK);
}
const struct kernels *REAL(kernels_at)(int i); /* those this CPU can run, best first; NULL past the end */

/* ---- memory ---- */
struct carve { /* hands out rows of one block; with block NULL it only counts */
	real *block;
	size_t used;
};
static inline real *carve(struct carve *c, int64_t rows, int64_t ld)
{
	real *at = c->block ? c->block + c->used : NULL;
	c->used += (size_t)rows * (size_t)ld;
	return at;
}
real *REAL(block_new)(size_t count); /* zeroed, aligned, with PAD zeros before and behind; NULL = no memory */
void REAL(block_free)(real *block);

/* Blocks of one size for the items of a job: an item takes one and gives it back, so there are as many as threads at work. */
struct blocks;
struct blocks *blocks_new(size_t bytes);
void blocks_free(struct blocks *b);
void *blocks_take(struct blocks *b); /* NULL = no memory */
void blocks_give(struct blocks *b, void *block);

/* ---- one network ---- */
struct net {
	const struct mapper_config *config;
	const struct layout *layout;
	const struct kernels *kernels;
};
static inline real *param_at(const struct net *n, real *params, enum param_id id)
{
	return params + n->layout->at[id];
}
struct input { /* features, standardised: row of (layer, head) at x + ((layer - first_layer) Hs + head) ld */
	const real *x;
	int first_layer;
};

void REAL(pool_run)(const struct mapper_pool *pool, int64_t n, void (*fn)(void *arg, int64_t item), void *arg);
void REAL(strip_mask)(const struct strip *s, real *rows, int64_t n); /* columns outside the sequence become 0 */
/* w [rows][channels][taps] as the weights of the convolution that takes gradients back: out [channels][rows][taps], taps
 * reversed. */
void REAL(conv_transpose)(const real *w, int rows, int channels, int taps, real *out);

/* Training: one strip holds a whole crop with a zero column at each end. forward and backward: -1 = no memory. */
struct work;
struct net_kind {
	int halo_convs; /* convolutions on the way: a strip loses taps/2 columns at each end for each */
	struct work *(*work_new)(const struct net *n, const struct strip *s); /* NULL = no memory */
	void (*work_free)(struct work *w);
	void (*set_length)(struct work *w, int64_t n); /* of the sequence in the strip, from now on */
	/* score [Ll*Hl][ld]. Batch norm: statistics of this crop, which also go into params' running ones (momentum .1) if
	 * `update`. */
	int (*forward)(struct work *w, real *params, const real *x, real *score, bool update, const struct mapper_pool *pool);
	/* d [Ll*Hl][ld], gradient of score, zero outside the sequence; grad [layout.trained] is added to. After forward. */
	int (*backward)(
		struct work *w, const real *params, const real *x, const real *d, real *grad, const struct mapper_pool *pool);
	/* Inference of one group of target layers on one strip: score rows of those layers only. scratch: infer_scratch() zeroed
	 * numbers. */
	size_t (*infer_scratch)(const struct net *n, const struct strip *s);
	void (*infer)(const struct net *n, const real *params, int group, const struct strip *s, struct input in, real *scratch,
		real *score);
};
extern const struct net_kind REAL(net_flat), REAL(net_linear), REAL(net_axial);
const struct net_kind *REAL(net_kind)(int kind);

/* ---- the loss ---- */
struct loss { /* score, y, z: [rows][m], rows = Ll*Hl; a unit is `unit_rows` consecutive rows (the scope of the selection) */
	const real *score, *y, *z;
	int64_t rows, m, unit_rows;
	const real *cut; /* [MAPPER_RATIOS][units]: y > cut is in the oracle's top set; falls as the ratio rises */
	int64_t pairs_fine, pairs_global;
	const int64_t *fine[2], *global[2]; /* indices into the flattened arrays */
	const double *weight;               /* [MAPPER_TERMS] */
};
/* Terms unweighted; d [rows][m] = gradient of the weighted sum. -1 = no memory. */
int REAL(loss)(const struct loss *a, const struct kernels *k, double term[MAPPER_TERMS], real *d);
real REAL(kth_smallest)(real *v, int64_t n, int64_t k); /* 1-based; reorders v */

#endif
