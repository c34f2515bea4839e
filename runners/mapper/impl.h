/* impl.h: what the files of runners/mapper share beyond the arithmetic (net.h): the handle, features, sets, ridge regression. */
#ifndef KVB_MAPPER_IMPL_H
#define KVB_MAPPER_IMPL_H

#include "runners/mapper/layout.h"

struct mapper {
	struct mapper_config config;
	struct layout layout;
	float *params;                     /* [layout.count] */
	float *feature_mean, *feature_dev; /* [Ls*Hs] of the compressed feature */
	double z_mean, z_dev;              /* z = (oracle_value(y) - z_mean) / z_dev */
	float *level, *spread;             /* [Ll*Hl] mean and deviation of z: the head prior; also how scores start */
	float *share;                      /* [MAPPER_RATIOS][Ll*Hl] */
	struct mapper_pair pair;
	struct mapper_record record;
	char (*contexts)[SHA_LEN]; /* [n_contexts] of training, sorted */
	int n_contexts;
};
/* Shapes set, values legal together. */
int config_check(const struct mapper_config *c, char err[ERR_LEN]);
void mapper_init_params(struct mapper *m); /* from the seed, and from level and spread */
void mapper_set_contexts(struct mapper *m, const struct mapper_set *s);

/* ---- features of one strip of positions (features.c, positions.c) ---- */
struct feature_plan {
	const struct mapper_config *config;
	int64_t n;               /* positions of the whole context */
	const float *mean, *dev; /* NULL = not standardised */
};
/* 1 / queries that see the key (visible), or 1, of `cols` positions from `first` on; 1 outside the context. */
void feature_scale(const struct feature_plan *p, int64_t first, int64_t cols, float *scale);
/* raw [cols] of row `row` -> standardised feature; cols a multiple of 16. */
void feature_row(const struct feature_plan *p, int row, const float *raw, const float *scale, int64_t cols, float *out);

/* ---- sets (set.c) ---- */
int set_inputs(const struct mapper_set *s);  /* Ls*Hs */
int set_outputs(const struct mapper_set *s); /* Ll*Hl */
int64_t set_length(const struct mapper_set *s, int context);
/* Positions [first, first + n) of feature row `row` (early exit and KV-head means done), or of oracle row `row`, raw, as fp32. */
void set_feature(const struct mapper_set *s, int context, int row, int64_t first, int64_t n, float *out);
void set_oracle(const struct mapper_set *s, int context, int row, int64_t first, int64_t n, float *out);
void set_digest(const struct mapper_set *s, char out[SHA_LEN]); /* of its contexts' hashes, in order */
/* Fills feature_mean, feature_dev, z_mean, z_dev, level, spread and share of m. */
int set_statistics(const struct mapper_set *s, struct mapper *m, const struct mapper_pool *pool, char err[ERR_LEN]);
/* The oracle on the scale z is a standardisation of: log y, or log of the odds, which tells apart what lies near 1 (to fp16's
 * step there). */
static inline float oracle_value(const struct mapper_config *c, float y)
{
	float v = __builtin_logf(y + 1e-6f);
	return c->target == MAPPER_TARGET_LOGIT ? v - __builtin_logf((y < 1 ? 1 - y : 0) + 1e-3f) : v;
}
/* cut[MAPPER_RATIOS][units] of one context's whole oracle [rows][n]: y > cut is in the top floor(r size) of its unit. -1 = no
 * memory. */
int oracle_cuts(const float *y, int64_t rows, int64_t n, int64_t unit_rows, float *cut);
int64_t scope_rows(const struct mapper_config *c); /* rows of a unit */
int64_t top_count(double ratio, int64_t size);     /* floor(ratio size), not below 1 */

/* ---- linear (ridge.c) ---- */
struct ridge; /* min over W, b of sum |W x + b - z|^2 + lambda positions |W|^2; x = `taps` neighbouring columns, zeros beyond the
		 ends */
struct ridge *ridge_new(int inputs, int outputs, int taps); /* NULL = no memory */
void ridge_free(struct ridge *r);
/* x [inputs][n], z [outputs][n] of one context. */
void ridge_add(struct ridge *r, const double *x, const double *z, int64_t n, const struct mapper_pool *pool);
int ridge_solve(
	struct ridge *r, double lambda, double *weight, double *bias, char err[ERR_LEN]); /* [outputs][inputs][taps], [outputs] */

/* ---- training (train.c, checkpoint.c) ---- */
struct train_state {
	struct mapper *m;
	float *moment1, *moment2, *best; /* [layout.count] each */
	int step, best_step, misses;     /* steps done; of the best weights; validations since */
	double best_recall;              /* mean of the five, configuration's scope; < 0 = none yet */
	int64_t ns;                      /* time spent in earlier runs */
};
/* 1 = read, 0 = there is none, -1 = of another training, or broken. */
int checkpoint_read(struct train_state *s, const char *path, const char *sets, char err[ERR_LEN]);
int checkpoint_write(const struct train_state *s, const char *path, const char *sets, char err[ERR_LEN]);

#endif
