/* set.c: the contexts a mapper is trained or judged on. The shards' files stay mapped; rows are converted when they are asked
 * for, so a set of any size takes no memory of its own. */
#include "runners/mapper/impl.h"
#include "runners/mapper/net.h"
#include "runners/model/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member {
	struct shard shard;
	const struct st_tensor *x, *y; /* of shard.file */
};
struct mapper_set {
	struct mapper_config config;
	struct member *member;
	int n;
	int64_t positions;
	int group; /* query heads averaged to one row */
};

/* ---- opening ---- */
static int same_pair(const struct mapper_pair *a, const struct mapper_pair *b)
{
	return strcmp(a->target_sha256, b->target_sha256) == 0 && strcmp(a->proxy_sha256, b->proxy_sha256) == 0 &&
	       strcmp(a->tokenizer_sha256, b->tokenizer_sha256) == 0;
}

/* Takes an open shard in when its split is asked for; 1 = left out. */
static int add_shard(struct mapper_set *s, struct shard *shard, const char *path, const char *split, char err[ERR_LEN])
{
	char name[32], full[48];
	if (split && strcmp(shard->split, split) != 0)
		return 1;
	if (s->n && !same_pair(&shard->pair, &s->member[0].shard.pair))
		return err_set(err, "%s: is of another pair (%s, %s) than the shards before it", path, shard->pair.proxy,
			shard->pair.target);
	for (int i = 0; i < s->n; i++)
		if (strcmp(shard->context_sha256, s->member[i].shard.context_sha256) == 0)
			return err_set(err, "%s: is the same context as the shard of %s", path, s->member[i].shard.id);
	mapper_feature_name(&s->config, name);
	struct member m = {.shard = *shard};
	snprintf(full, sizeof full, "feature.%s", name);
	m.x = st_find(shard->file, full);
	m.y = st_find(shard->file, "oracle");
	if (!m.x)
		return err_set(err, "%s: has no feature %s; collect it first", path, name);
	s->member = mem_grow(s->member, (size_t)s->n + 1, sizeof *s->member);
	s->member[s->n++] = m;
	s->positions += shard->n;
	return 0;
}

static int take_shape(int *field, int64_t have, const char *what, char err[ERR_LEN])
{
	if (*field == 0)
		*field = (int)have;
	return *field == have ? 0
			      : err_set(err, "the mapper is to have %d %s, the shards have %lld", *field, what, (long long)have);
}

/* Fills in shapes that are 0 and compares the others with each member. */
static int fit_shapes(struct mapper_set *s, char err[ERR_LEN])
{
	struct mapper_config *c = &s->config;
	for (int i = 0; i < s->n; i++) {
		const struct member *m = &s->member[i];
		const int kv = c->source == MAPPER_SOURCE_SELF ? m->shard.kv_heads : m->shard.proxy_kv_heads;
		const bool mean = c->heads == MAPPER_HEADS_KV;
		if (mean && (kv < 1 || m->x->dims[1] % kv))
			return err_set(
				err, "%s: %lld heads do not fall into %d groups", m->shard.id, (long long)m->x->dims[1], kv);
		s->group = mean ? (int)(m->x->dims[1] / kv) : 1;
		if (take_shape(&c->layers, m->y->dims[0], "target layers", err) ||
			take_shape(&c->kv_heads, m->y->dims[1], "KV heads", err) ||
			take_shape(&c->proxy_heads, m->x->dims[1] / s->group, "proxy heads", err))
			return -1;
		if (c->proxy_layers == 0)
			c->proxy_layers = (int)m->x->dims[0];
		if (c->proxy_layers > m->x->dims[0])
			return err_set(err, "the mapper is to read %d proxy layers, the shards have %lld", c->proxy_layers,
				(long long)m->x->dims[0]);
	}
	return 0;
}

int mapper_set_open(struct mapper_set **out, struct mapper_config *c, const char *const *paths, size_t n_paths, const char *split,
	char err[ERR_LEN])
{
	struct mapper_set *s = mem_new(1, sizeof *s);
	s->config = *c;
	for (size_t i = 0; i < n_paths; i++) {
		struct shard shard;
		int rc = shard_open(&shard, paths[i], err);
		if (rc == 0)
			rc = add_shard(s, &shard, paths[i], split, err);
		if (rc)
			shard_close(&shard);
		if (rc < 0)
			goto fail;
	}
	if (s->n == 0) {
		err_set(err, "none of %zu shards is of the split %s", n_paths, split ? split : "asked for");
		goto fail;
	}
	if (fit_shapes(s, err) || config_check(&s->config, err))
		goto fail;
	*c = s->config;
	*out = s;
	return 0;
fail:
	mapper_set_close(s);
	return -1;
}

void mapper_set_close(struct mapper_set *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->n; i++)
		shard_close(&s->member[i].shard);
	free(s->member);
	free(s);
}

int mapper_set_count(const struct mapper_set *s)
{
	return s->n;
}
int64_t mapper_set_positions(const struct mapper_set *s)
{
	return s->positions;
}
const struct shard *mapper_set_shard(const struct mapper_set *s, int i)
{
	return &s->member[i].shard;
}
int set_inputs(const struct mapper_set *s)
{
	return s->config.proxy_layers * s->config.proxy_heads;
}
int set_outputs(const struct mapper_set *s)
{
	return s->config.layers * s->config.kv_heads;
}
int64_t set_length(const struct mapper_set *s, int context)
{
	return s->member[context].shard.n;
}

void set_digest(const struct mapper_set *s, char out[SHA_LEN])
{
	struct sha256 *h = sha256_new();
	for (int i = 0; i < s->n; i++)
		sha256_add(h, s->member[i].shard.context_sha256, SHA_LEN);
	sha256_end(h, out);
}

/* ---- reading ---- */
void set_oracle(const struct mapper_set *s, int context, int row, int64_t first, int64_t n, float *out)
{
	const struct st_tensor *t = s->member[context].y;
	st_to_f32(t, row * t->dims[2] + first, n, out);
}

void set_feature(const struct mapper_set *s, int context, int row, int64_t first, int64_t n, float *out)
{
	const struct st_tensor *t = s->member[context].x;
	st_to_f32(t, (int64_t)row * s->group * t->dims[2] + first, n, out);
	if (s->group == 1)
		return;
	float *more = mem_new((size_t)n, sizeof *more);
	for (int g = 1; g < s->group; g++) {
		st_to_f32(t, ((int64_t)row * s->group + g) * t->dims[2] + first, n, more);
		for (int64_t i = 0; i < n; i++)
			out[i] += more[i];
	}
	for (int64_t i = 0; i < n; i++)
		out[i] /= (float)s->group;
	free(more);
}

/* ---- statistics of a training set ---- */
struct moments {
	double sum, squares;
};
struct statistics_job {
	const struct mapper_set *s;
	struct mapper *m;
	struct moments *moments; /* of features, then of log y, by row */
	double *top;             /* [MAPPER_RATIOS][outputs] sums of shares over contexts */
	int failed;
};

static struct moments moments_of(const float *v, int64_t n)
{
	struct moments m = {0, 0};
	for (int64_t i = 0; i < n; i++) {
		m.sum += (double)v[i];
		m.squares += (double)v[i] * (double)v[i];
	}
	return m;
}

static void add_moments(struct moments *to, struct moments m)
{
	to->sum += m.sum;
	to->squares += m.squares;
}

/* One row over all contexts. */
static void row_moments(void *arg, int64_t row)
{
	struct statistics_job *j = arg;
	const int inputs = set_inputs(j->s);
	const bool feature = row < inputs;
	for (int c = 0; c < j->s->n; c++) {
		const int64_t n = set_length(j->s, c), cols = (n + PAD - 1) / PAD * PAD;
		float *raw = mem_new((size_t)cols, sizeof *raw), *v = mem_new((size_t)cols, sizeof *v),
		      *scale = mem_new((size_t)cols, sizeof *scale);
		if (feature) {
			const struct feature_plan plan = {.config = &j->m->config, .n = n};
			set_feature(j->s, c, (int)row, 0, n, raw);
			feature_scale(&plan, 0, cols, scale);
			feature_row(&plan, (int)row, raw, scale, cols, v);
		} else {
			set_oracle(j->s, c, (int)row - inputs, 0, n, raw);
			for (int64_t i = 0; i < n; i++)
				v[i] = oracle_value(&j->m->config, raw[i]);
		}
		add_moments(&j->moments[row], moments_of(v, n));
		free(raw);
		free(v);
		free(scale);
	}
}

/* Shares of each head in the oracle's global top sets, added to j->top. */
static int add_shares(struct statistics_job *j, int context)
{
	const int outputs = set_outputs(j->s);
	const int64_t n = set_length(j->s, context);
	float cut[MAPPER_RATIOS], *y = malloc((size_t)(outputs * n) * sizeof *y);
	if (!y)
		return -1;
	for (int r = 0; r < outputs; r++)
		set_oracle(j->s, context, r, 0, n, y + r * n);
	int rc = oracle_cuts(y, outputs, n, outputs, cut);
	for (int r = 0; rc == 0 && r < MAPPER_RATIOS; r++)
		for (int64_t i = 0; i < outputs * n; i++)
			j->top[r * outputs + i / n] += y[i] > cut[r] ? 1 / (double)n : 0;
	free(y);
	return rc;
}

static double deviation(struct moments m, double n) /* unbiased */
{
	double mean = m.sum / n, var = (m.squares / n - mean * mean) * n / (n > 1 ? n - 1 : 1);
	return var > 0 ? sqrt(var) : 0;
}

static void take_statistics(const struct statistics_job *j)
{
	const double n = (double)j->s->positions;
	const int inputs = set_inputs(j->s), outputs = set_outputs(j->s);
	struct mapper *m = j->m;
	struct moments all = {0, 0};
	for (int i = 0; i < inputs; i++) {
		m->feature_mean[i] = (float)(j->moments[i].sum / n);
		m->feature_dev[i] = (float)(deviation(j->moments[i], n) + 1e-4);
	}
	for (int i = 0; i < outputs; i++)
		add_moments(&all, j->moments[inputs + i]);
	m->z_mean = all.sum / (n * outputs);
	m->z_dev = deviation(all, n * outputs);
	m->z_dev = m->z_dev > 0 ? m->z_dev : 1;
	for (int i = 0; i < outputs; i++) {
		m->level[i] = (float)((j->moments[inputs + i].sum / n - m->z_mean) / m->z_dev);
		m->spread[i] = (float)(deviation(j->moments[inputs + i], n) / m->z_dev);
	}
	for (int i = 0; i < MAPPER_RATIOS * outputs; i++)
		m->share[i] = (float)(j->top[i] / j->s->n);
}

int set_statistics(const struct mapper_set *s, struct mapper *m, const struct mapper_pool *pool, char err[ERR_LEN])
{
	const int rows = set_inputs(s) + set_outputs(s);
	struct statistics_job j = {.s = s,
		.m = m,
		.moments = mem_new((size_t)rows, sizeof *j.moments),
		.top = mem_new((size_t)(MAPPER_RATIOS * set_outputs(s)), sizeof *j.top)};
	int rc = 0;
	pool_run_f32(pool, rows, row_moments, &j);
	for (int c = 0; c < s->n && rc == 0; c++)
		rc = add_shares(&j, c);
	if (rc)
		err_set(err, "out of memory for the oracle of a training context");
	else
		take_statistics(&j);
	free(j.moments);
	free(j.top);
	return rc;
}
