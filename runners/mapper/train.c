/* train.c: trains a mapper: linear by ridge regression, flat and axial by gradient steps. Spec 1.5.
 *
 * A step is one crop of one context, all target layers: features and oracle of the crop, forward, the five terms, backward, clip,
 * AdamW. What a step draws (context, place, pairs) comes from a stream numbered by the step, so a training resumed from a
 * checkpoint goes the same way. Every eval_every steps the validation contexts are mapped whole; the weights with the best mean
 * recall are the result. */
#include "runners/mapper/impl.h"
#include "runners/mapper/net.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct trainer {
	struct train_state state;
	const struct mapper_config *config;
	const struct mapper_set *train, *valid;
	const struct mapper_events *events;
	const struct mapper_pool *pool;
	struct net net;
	const struct net_kind *kind;
	struct work *work;
	struct strip strip;
	float *block, *x, *score, *d;       /* [Ls*Hs][ld], [Ll*Hl][ld] */
	float *flat_block, *s, *y, *z, *ds; /* [Ll*Hl][crop], packed */
	float *grad;
	float *cuts; /* [contexts][MAPPER_RATIOS][units] */
	int64_t units, unit_rows, crop;
	int64_t *fine, *anywhere; /* [2][pairs] */
	int64_t *positive, *unit_begin,
		*eligible; /* indices of positives of the crop by unit; [units + 1]; units with two or more */
	double value[MAPPER_TERMS], total, norm, lr;
	char sets[2 * SHA_LEN + 8];
};

static void tell(const struct mapper_events *e, int step, const char *name, double value)
{
	if (e && e->value)
		e->value(e->user, step, name, value);
}

static void tell_progress(const struct mapper_events *e, int64_t done, int64_t total)
{
	if (e && e->progress)
		e->progress(e->user, done, total);
}

/* ---- one step's data ---- */
struct crop {
	const struct trainer *t;
	int context;
	int64_t first, n, length; /* positions [first, first + n) of a context of length */
	float *scale;
};

static void load_row(void *arg, int64_t row)
{
	const struct crop *c = arg;
	const struct trainer *t = c->t;
	const struct mapper *m = t->state.m;
	const int inputs = set_inputs(t->train);
	if (row < inputs) {
		const struct feature_plan plan = {
			.config = t->config, .n = c->length, .mean = m->feature_mean, .dev = m->feature_dev};
		float *x = t->x + row * t->strip.ld;
		set_feature(t->train, c->context, (int)row, c->first, c->n, x);
		feature_row(&plan, (int)row, x, c->scale, t->strip.cols, x);
		for (int64_t i = c->n; i < t->strip.cols; i++)
			x[i] = 0;
		return;
	}
	float *y = t->y + (row - inputs) * c->n, *z = t->z + (row - inputs) * c->n;
	set_oracle(t->train, c->context, (int)row - inputs, c->first, c->n, y);
	for (int64_t i = 0; i < c->n; i++)
		z[i] = (float)(((double)oracle_value(t->config, y[i]) - m->z_mean) / m->z_dev);
}

static void load_crop(struct trainer *t, struct rng *r, struct crop *c)
{
	*c = (struct crop){.t = t, .context = (int)rng_below(r, (uint64_t)mapper_set_count(t->train)), .scale = t->score};
	c->length = set_length(t->train, c->context);
	c->n = c->length < t->crop ? c->length : t->crop;
	c->first = (int64_t)rng_below(r, (uint64_t)(c->length - c->n + 1));
	const struct feature_plan plan = {.config = t->config, .n = c->length};
	feature_scale(&plan, c->first, t->strip.cols, c->scale); /* the scores' buffer is free until the forward pass */
	t->strip.n = c->n;
	t->kind->set_length(t->work, c->n);
	pool_run_f32(t->pool, set_inputs(t->train) + set_outputs(t->train), load_row, c);
}

/* Pairs inside the oracle's top .3 (indices drawn among the positives of a unit that has two) and anywhere in a unit. */
static int64_t draw_pairs(struct trainer *t, const struct crop *c, struct rng *r)
{
	const int64_t size = t->unit_rows * c->n, pairs = t->config->pairs;
	const float *cut = t->cuts + ((int64_t)c->context * MAPPER_RATIOS + 2) * t->units; /* of ratio .3 */
	int64_t n = 0, usable = 0;
	for (int64_t u = 0; u < t->units; u++) {
		t->unit_begin[u] = n;
		for (int64_t i = u * size; i < (u + 1) * size; i++)
			if (t->y[i] > cut[u])
				t->positive[n++] = i;
		if (n - t->unit_begin[u] >= 2)
			t->eligible[usable++] = u;
	}
	t->unit_begin[t->units] = n;
	for (int64_t p = 0; p < pairs; p++) {
		int64_t u = (int64_t)rng_below(r, (uint64_t)t->units);
		for (int side = 0; side < 2; side++)
			t->anywhere[side * pairs + p] = u * size + (int64_t)rng_below(r, (uint64_t)size);
	}
	for (int64_t p = 0; usable && p < pairs; p++) {
		int64_t u = t->eligible[rng_below(r, (uint64_t)usable)], from = t->unit_begin[u];
		for (int side = 0; side < 2; side++)
			t->fine[side * pairs + p] =
				t->positive[from + (int64_t)rng_below(r, (uint64_t)(t->unit_begin[u + 1] - from))];
	}
	return usable ? pairs : 0;
}

/* ---- the optimiser ---- */
enum { ADAM_BLOCK = 4096 };
struct adam_job {
	struct trainer *t;
	double lr, decay, correct1, correct2, scale;
};

static void adam_block(void *arg, int64_t item)
{
	const struct adam_job *j = arg;
	const struct train_state *s = &j->t->state;
	const size_t trained = s->m->layout.trained, begin = (size_t)item * ADAM_BLOCK;
	const size_t end = begin + ADAM_BLOCK < trained ? begin + ADAM_BLOCK : trained;
	const float b1 = 0.9f, b2 = 0.999f, scale = (float)j->scale, decay = (float)(1 - j->lr * j->decay);
	const float rate = (float)(j->lr / j->correct1), root = (float)(1 / sqrt(j->correct2));
	for (size_t i = begin; i < end; i++) {
		const float g = j->t->grad[i] * scale;
		s->moment1[i] = b1 * s->moment1[i] + (1 - b1) * g;
		s->moment2[i] = b2 * s->moment2[i] + (1 - b2) * g * g;
		s->m->params[i] = s->m->params[i] * decay - rate * s->moment1[i] / (sqrtf(s->moment2[i]) * root + 1e-8f);
	}
}

static void optimise(struct trainer *t)
{
	const struct mapper_config *c = t->config;
	const size_t trained = t->state.m->layout.trained;
	const int step = t->state.step; /* 0-based */
	double squares = 0, warm = c->warmup * c->steps;
	for (size_t i = 0; i < trained; i++)
		squares += (double)t->grad[i] * (double)t->grad[i];
	t->norm = sqrt(squares);
	t->lr = c->lr * fmin(1, (step + 1) / fmax(warm, 1)) * .5 * (1 + cos(3.14159265358979323846 * step / c->steps));
	struct adam_job j = {.t = t,
		.lr = t->lr,
		.decay = c->weight_decay,
		.correct1 = 1 - pow(.9, step + 1),
		.correct2 = 1 - pow(.999, step + 1),
		.scale = c->clip > 0 && t->norm > c->clip ? c->clip / (t->norm + 1e-6) : 1};
	pool_run_f32(t->pool, (int64_t)(trained + ADAM_BLOCK - 1) / ADAM_BLOCK, adam_block, &j);
}

static int one_step(struct trainer *t, char err[ERR_LEN])
{
	struct rng r = rng_seed(t->config->seed, UINT64_C(0x57e9) << 40 | (uint64_t)t->state.step);
	struct crop c;
	load_crop(t, &r, &c);
	const int64_t rows = set_outputs(t->train), pairs = t->config->pairs;
	const struct loss l = {.score = t->s,
		.y = t->y,
		.z = t->z,
		.rows = rows,
		.m = c.n,
		.unit_rows = t->unit_rows,
		.cut = t->cuts + (int64_t)c.context * MAPPER_RATIOS * t->units,
		.pairs_fine = draw_pairs(t, &c, &r),
		.pairs_global = pairs,
		.fine = {t->fine, t->fine + pairs},
		.global = {t->anywhere, t->anywhere + pairs},
		.weight = t->config->weight};
	if (t->kind->forward(t->work, t->state.m->params, t->x, t->score, true, t->pool))
		return err_set(err, "out of memory in the mapper's forward pass");
	for (int64_t i = 0; i < rows; i++)
		memcpy(t->s + i * c.n, t->score + i * t->strip.ld, (size_t)c.n * sizeof *t->s);
	if (loss_f32(&l, t->net.kernels, t->value, t->ds))
		return err_set(err, "out of memory in the mapper's loss");
	memset(t->d, 0, (size_t)(rows * t->strip.ld) * sizeof *t->d);
	for (int64_t i = 0; i < rows; i++)
		memcpy(t->d + i * t->strip.ld, t->ds + i * c.n, (size_t)c.n * sizeof *t->d);
	memset(t->grad, 0, t->state.m->layout.count * sizeof *t->grad);
	if (t->kind->backward(t->work, t->state.m->params, t->x, t->d, t->grad, t->pool))
		return err_set(err, "out of memory in the mapper's backward pass");
	t->total = 0;
	for (int i = 0; i < MAPPER_TERMS; i++)
		t->total += t->config->weight[i] * t->value[i];
	optimise(t);
	t->state.step++;
	if (!isfinite(t->total) || !isfinite(t->norm))
		return err_set(err, "training failed at step %d: loss %g, gradient norm %g; a smaller lr may help", t->state.step,
			t->total, t->norm);
	return 0;
}

/* ---- validation ---- */
static const char *const ratio_names[MAPPER_RATIOS] = {".1", ".2", ".3", ".5", ".7"};

static void tell_ratios(const struct mapper_events *e, int step, const char *what, const double v[MAPPER_RATIOS])
{
	for (int r = 0; r < MAPPER_RATIOS; r++) {
		char name[48];
		snprintf(name, sizeof name, "%s%s", what, ratio_names[r]);
		tell(e, step, name, v[r]);
	}
}

static void tell_recall(const struct mapper_events *e, int step, int scope, double recall[MAPPER_SCOPES][MAPPER_RATIOS])
{
	tell_ratios(e, step, "recall", recall[scope]);
	tell_ratios(e, step, "head_recall", recall[MAPPER_SCOPE_HEAD]);
}

/* Recall of the weights at work, told and compared with the best so far; the record takes what belongs to the best. */
static int validate(struct trainer *t, char err[ERR_LEN])
{
	struct train_state *s = &t->state;
	double recall[MAPPER_SCOPES][MAPPER_RATIOS], prior[MAPPER_SCOPES][MAPPER_RATIOS], mean = 0;
	if (!t->valid)
		return 0;
	if (mapper_evaluate(s->m, t->valid, t->pool, recall, prior, err))
		return -1;
	tell_recall(t->events, s->step, t->config->scope, recall);
	for (int r = 0; r < MAPPER_RATIOS; r++)
		mean += recall[t->config->scope][r] / MAPPER_RATIOS;
	s->misses++;
	if (mean > s->best_recall) {
		s->best_recall = mean;
		s->best_step = s->step;
		s->misses = 0;
		memcpy(s->best, s->m->params, s->m->layout.count * sizeof *s->best);
	}
	return 0;
}

/* The record of the weights as they are now. tell: who hears its recall (NULL = nobody). */
static int final_record(struct mapper *m, const struct mapper_set *train, const struct mapper_set *valid,
	const struct mapper_events *tell, const struct mapper_pool *pool, char err[ERR_LEN])
{
	double recall[MAPPER_SCOPES][MAPPER_RATIOS], prior[MAPPER_SCOPES][MAPPER_RATIOS];
	struct mapper_record *r = &m->record;
	r->contexts = mapper_set_count(train);
	r->positions = mapper_set_positions(train);
	if (!valid)
		return 0;
	if (mapper_evaluate(m, valid, pool, recall, prior, err))
		return -1;
	tell_recall(tell, r->steps, m->config.scope, recall);
	r->valid_contexts = mapper_set_count(valid);
	memcpy(r->recall, recall[MAPPER_SCOPE_GLOBAL], sizeof r->recall);
	memcpy(r->head_recall, recall[MAPPER_SCOPE_HEAD], sizeof r->head_recall);
	memcpy(r->prior_recall, prior[MAPPER_SCOPE_GLOBAL], sizeof r->prior_recall);
	return 0;
}

/* What the validation contexts alone say: the floor and the ceiling of every recall. */
static int tell_bounds(
	const struct mapper *m, const struct mapper_set *valid, const struct mapper_events *events, char err[ERR_LEN])
{
	double bound[MAPPER_RATIOS];
	const int scope = m->config.scope;
	if (!valid)
		return 0;
	if (mapper_set_floor(m, valid, scope, bound))
		return err_set(err, "out of memory for the oracle of a context");
	tell_ratios(events, 0, "prior_recall", bound);
	int contexts = mapper_set_ceiling(valid, scope, bound);
	if (contexts < 0)
		return err_set(err, "out of memory for two oracles of a context");
	if (contexts)
		tell_ratios(events, 0, "ceiling", bound);
	return 0;
}

/* ---- setting up ---- */
static void trainer_close(struct trainer *t)
{
	if (t->work)
		t->kind->work_free(t->work);
	block_free_f32(t->block);
	block_free_f32(t->flat_block);
	free(t->state.moment1);
	free(t->state.moment2);
	free(t->state.best);
	free(t->grad);
	free(t->cuts);
	free(t->fine);
	free(t->anywhere);
	free(t->positive);
	free(t->unit_begin);
	free(t->eligible);
}

static int take_memory(struct trainer *t)
{
	const size_t count = t->state.m->layout.count;
	const int64_t inputs = set_inputs(t->train), rows = set_outputs(t->train), pairs = t->config->pairs + 1;
	struct carve c = {.block = t->block = block_new_f32((size_t)((inputs + 2 * rows) * t->strip.ld))};
	struct carve packed = {.block = t->flat_block = block_new_f32((size_t)(4 * rows * t->strip.cols))};
	t->work = t->kind->work_new(&t->net, &t->strip);
	if (!t->block || !t->flat_block || !t->work)
		return -1;
	t->x = carve(&c, inputs, t->strip.ld);
	t->score = carve(&c, rows, t->strip.ld);
	t->d = carve(&c, rows, t->strip.ld);
	t->s = carve(&packed, rows, t->strip.cols);
	t->y = carve(&packed, rows, t->strip.cols);
	t->z = carve(&packed, rows, t->strip.cols);
	t->ds = carve(&packed, rows, t->strip.cols);
	t->state.moment1 = mem_new(count, sizeof(float));
	t->state.moment2 = mem_new(count, sizeof(float));
	t->state.best = mem_new(count, sizeof(float));
	t->grad = mem_new(count, sizeof *t->grad);
	t->fine = mem_new((size_t)(2 * pairs), sizeof *t->fine);
	t->anywhere = mem_new((size_t)(2 * pairs), sizeof *t->anywhere);
	t->positive = mem_new((size_t)(rows * t->strip.cols), sizeof *t->positive);
	t->unit_begin = mem_new((size_t)t->units + 1, sizeof *t->unit_begin);
	t->eligible = mem_new((size_t)t->units, sizeof *t->eligible);
	return 0;
}

/* Thresholds of the labels: of each whole context, as the selection sees it. */
static int take_cuts(struct trainer *t)
{
	const int64_t rows = set_outputs(t->train);
	const int contexts = mapper_set_count(t->train);
	t->cuts = mem_new((size_t)(contexts * MAPPER_RATIOS * t->units), sizeof *t->cuts);
	for (int i = 0; i < contexts; i++) {
		const int64_t n = set_length(t->train, i);
		float *y = malloc((size_t)(rows * n) * sizeof *y);
		for (int64_t r = 0; y && r < rows; r++)
			set_oracle(t->train, i, (int)r, 0, n, y + r * n);
		int rc = y ? oracle_cuts(y, rows, n, t->unit_rows, t->cuts + (int64_t)i * MAPPER_RATIOS * t->units) : -1;
		free(y);
		if (rc)
			return -1;
	}
	return 0;
}

static int trainer_open(struct trainer *t, struct mapper *m, char err[ERR_LEN])
{
	char digest[SHA_LEN];
	int64_t longest = 0;
	for (int i = 0; i < mapper_set_count(t->train); i++)
		longest = set_length(t->train, i) > longest ? set_length(t->train, i) : longest;
	t->state = (struct train_state){.m = m, .best_recall = -1};
	t->config = &m->config;
	t->kind = net_kind_f32(m->config.kind);
	t->net = (struct net){.config = &m->config, .layout = &m->layout, .kernels = kernels_at_f32(0)};
	t->crop = m->config.crop < longest ? m->config.crop : longest;
	t->strip = (struct strip){.n = t->crop, .cols = (t->crop + PAD - 1) / PAD * PAD};
	t->strip.ld = t->strip.cols + PAD;
	t->unit_rows = scope_rows(t->config);
	t->units = set_outputs(t->train) / t->unit_rows;
	set_digest(t->train, digest);
	snprintf(t->sets, sizeof t->sets, "%s", digest);
	if (t->valid) {
		set_digest(t->valid, digest);
		snprintf(t->sets + SHA_LEN - 1, sizeof t->sets - SHA_LEN, " %s", digest);
	}
	return take_memory(t) || take_cuts(t) ? err_set(err, "out of memory for the training of a mapper") : 0;
}

static bool told_to_stop(const struct mapper_events *e)
{
	return e && e->stop && e->stop(e->user);
}

/* Steps from where the state stands until they are over, or the patience is, or it is told to stop (1). */
static int run_steps(struct trainer *t, const char *checkpoint, int64_t began, char err[ERR_LEN])
{
	struct train_state *s = &t->state;
	const struct mapper_config *c = t->config;
	const int64_t before = s->ns;
	while (s->step < c->steps && (!c->patience || s->misses < c->patience)) {
		bool stop = told_to_stop(t->events);
		if (!stop) {
			if (one_step(t, err))
				return -1;
			tell(t->events, s->step, "total", t->total);
			for (int i = 0; i < MAPPER_TERMS; i++)
				tell(t->events, s->step, mapper_terms[i], t->value[i]);
			tell(t->events, s->step, "lr", t->lr);
			tell(t->events, s->step, "grad_norm", t->norm);
			tell_progress(t->events, s->step, c->steps);
		}
		bool due = s->step % c->eval_every == 0 || s->step == c->steps;
		if (!stop && due && validate(t, err))
			return -1;
		s->ns = before + clock_ns() - began;
		if ((stop || due) && checkpoint && checkpoint_write(s, checkpoint, t->sets, err))
			return -1;
		if (stop)
			return 1;
	}
	return 0;
}

static int train_steps(struct mapper *m, const struct mapper_set *train, const struct mapper_set *valid, const char *checkpoint,
	const struct mapper_events *events, const struct mapper_pool *pool, char err[ERR_LEN])
{
	struct trainer t = {.train = train, .valid = valid, .events = events, .pool = pool};
	const int64_t began = clock_ns();
	int rc = trainer_open(&t, m, err);
	if (rc == 0 && checkpoint)
		rc = checkpoint_read(&t.state, checkpoint, t.sets, err);
	if (rc == 0)
		rc = tell_bounds(m, valid, events, err);
	if (rc >= 0)
		rc = run_steps(&t, checkpoint, began, err);
	if (rc < 0)
		goto cleanup;
	if (rc == 0 && checkpoint && unlink(checkpoint) && errno != ENOENT) {
		rc = err_set(err, "cannot remove %s: %s", checkpoint, strerror(errno));
		goto cleanup;
	}
	m->record.steps = t.state.step;
	m->record.best_step = t.state.best_recall >= 0 ? t.state.best_step : t.state.step;
	m->record.train_ns = t.state.ns;
	if (t.state.best_recall >= 0)
		memcpy(m->params, t.state.best, m->layout.count * sizeof *m->params);
	rc = 0;
cleanup:
	trainer_close(&t);
	return rc;
}

/* ---- linear ---- */
/* Features and z of one context, in double. */
static int add_context(
	struct ridge *r, const struct mapper *m, const struct mapper_set *s, int context, const struct mapper_pool *pool)
{
	const int inputs = set_inputs(s), outputs = set_outputs(s);
	const int64_t n = set_length(s, context), cols = (n + PAD - 1) / PAD * PAD;
	const struct feature_plan plan = {.config = &m->config, .n = n, .mean = m->feature_mean, .dev = m->feature_dev};
	double *x = malloc((size_t)(inputs * n) * sizeof *x), *z = malloc((size_t)(outputs * n) * sizeof *z);
	float *row = mem_new((size_t)cols, sizeof *row), *scale = mem_new((size_t)cols, sizeof *scale);
	int rc = x && z ? 0 : -1;
	feature_scale(&plan, 0, cols, scale);
	for (int i = 0; rc == 0 && i < inputs; i++) {
		set_feature(s, context, i, 0, n, row);
		feature_row(&plan, i, row, scale, cols, row);
		for (int64_t t = 0; t < n; t++)
			x[i * n + t] = (double)row[t];
	}
	for (int i = 0; rc == 0 && i < outputs; i++) {
		set_oracle(s, context, i, 0, n, row);
		for (int64_t t = 0; t < n; t++)
			z[i * n + t] = ((double)oracle_value(&m->config, row[t]) - m->z_mean) / m->z_dev;
	}
	if (rc == 0)
		ridge_add(r, x, z, n, pool);
	free(x);
	free(z);
	free(row);
	free(scale);
	return rc;
}

static int train_linear(struct mapper *m, const struct mapper_set *train, const struct mapper_events *events,
	const struct mapper_pool *pool, char err[ERR_LEN])
{
	const int inputs = set_inputs(train), outputs = set_outputs(train), contexts = mapper_set_count(train);
	const size_t weights = (size_t)outputs * (size_t)inputs * (size_t)m->config.taps;
	const int64_t began = clock_ns();
	struct ridge *r = ridge_new(inputs, outputs, m->config.taps);
	double *solution = malloc((weights + (size_t)outputs) * sizeof *solution);
	int rc = r && solution ? 0 : -1;
	for (int i = 0; rc == 0 && i < contexts; i++) {
		rc = add_context(r, m, train, i, pool);
		tell_progress(events, i + 1, contexts);
	}
	if (rc)
		err_set(err, "out of memory for a ridge regression of %d x %d", inputs * m->config.taps, outputs);
	else
		rc = ridge_solve(r, m->config.lambda, solution, solution + weights, err);
	for (size_t i = 0; rc == 0 && i < weights; i++)
		m->params[m->layout.at[P_C1_W] + (int64_t)i] = (float)solution[i];
	for (size_t i = 0; rc == 0 && i < (size_t)outputs; i++)
		m->params[m->layout.at[P_C1_B] + (int64_t)i] = (float)solution[weights + i];
	m->record.train_ns = clock_ns() - began;
	ridge_free(r);
	free(solution);
	return rc;
}

/* Contexts that are trained on and validated on at once would make the recall a lie. */
static int check_apart(const struct mapper_set *train, const struct mapper_set *valid, char err[ERR_LEN])
{
	for (int i = 0; valid && i < mapper_set_count(valid); i++)
		for (int j = 0; j < mapper_set_count(train); j++)
			if (strcmp(mapper_set_shard(valid, i)->context_sha256, mapper_set_shard(train, j)->context_sha256) == 0)
				return err_set(err, "context %s is in the training and in the validation set",
					mapper_set_shard(valid, i)->id);
	return 0;
}

int mapper_train(struct mapper **out, const struct mapper_config *c, const struct mapper_set *train,
	const struct mapper_set *valid, const char *checkpoint, const struct mapper_events *events,
	const struct mapper_pool *pool, char err[ERR_LEN])
{
	if (check_apart(train, valid, err))
		return -1;
	const bool solved = c->kind == MAPPER_LINEAR; /* in one step, without validations on the way */
	struct mapper *m = mapper_new(c, err);
	if (!m)
		return -1;
	mapper_set_pair(m, &mapper_set_shard(train, 0)->pair);
	mapper_set_contexts(m, train);
	if (set_statistics(train, m, pool, err))
		goto fail;
	mapper_init_params(m);
	if (solved ? tell_bounds(m, valid, events, err) || train_linear(m, train, events, pool, err)
		   : train_steps(m, train, valid, checkpoint, events, pool, err))
		goto fail;
	if (final_record(m, train, valid, solved ? events : NULL, pool, err))
		goto fail;
	*out = m;
	return 0;
fail:
	mapper_free(m);
	return -1;
}
