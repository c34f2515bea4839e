/* mapper.c: the handle of a mapper, its first weights, and its forward pass over a whole context.
 *
 * A context is cut into strips of positions; an item of the pool is one strip for one group of target layers (net.h), small
 * enough that everything between features and scores stays in a core's cache. Strips overlap by what convolutions and attention
 * reach, so their number and width never change a score. */
#include "runners/mapper/impl.h"
#include "runners/mapper/net.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

int config_check(const struct mapper_config *c, char err[ERR_LEN])
{
	if (c->proxy_layers < 1 || c->proxy_heads < 1 || c->layers < 1 || c->kv_heads < 1)
		return err_set(err, "a mapper needs its shapes: %d proxy layers x %d heads -> %d layers x %d KV heads",
			c->proxy_layers, c->proxy_heads, c->layers, c->kv_heads);
	if (c->taps % 2 == 0)
		return err_set(err, "mapper option taps must be odd, not %d", c->taps);
	if (c->kind == MAPPER_AXIAL && mapper_width(c) % ATTN_HEADS)
		return err_set(err, "mapper option channels must be a multiple of %d for axial, not %d", ATTN_HEADS, c->channels);
	if (c->queries != MAPPER_QUERIES_ALL && c->query_n < 1)
		return err_set(err, "mapper option queries needs a number above 0");
	return 0;
}

/* ---- the handle ---- */
struct mapper *mapper_new(const struct mapper_config *c, char err[ERR_LEN])
{
	if (config_check(c, err))
		return NULL;
	struct mapper *m = mem_new(1, sizeof *m);
	const size_t inputs = (size_t)c->proxy_layers * (size_t)c->proxy_heads, outputs = (size_t)c->layers * (size_t)c->kv_heads;
	m->config = *c;
	layout_make(&m->layout, &m->config);
	m->params = mem_new(m->layout.count, sizeof *m->params);
	m->feature_mean = mem_new(inputs, sizeof *m->feature_mean);
	m->feature_dev = mem_new(inputs, sizeof *m->feature_dev);
	m->level = mem_new(outputs, sizeof *m->level);
	m->spread = mem_new(outputs, sizeof *m->spread);
	m->share = mem_new(MAPPER_RATIOS * outputs, sizeof *m->share);
	m->z_dev = 1;
	for (size_t i = 0; i < inputs; i++)
		m->feature_dev[i] = 1;
	for (size_t i = 0; i < outputs; i++)
		m->spread[i] = 1;
	for (size_t i = 0; i < MAPPER_RATIOS * outputs; i++)
		m->share[i] = (float)mapper_ratios[i / outputs];
	mapper_init_params(m);
	return m;
}

void mapper_free(struct mapper *m)
{
	if (!m)
		return;
	free(m->params);
	free(m->feature_mean);
	free(m->feature_dev);
	free(m->level);
	free(m->spread);
	free(m->share);
	free(m->contexts);
	free(m);
}

static double normal(struct rng *r) /* Box-Muller */
{
	double u = 1 - rng_unit(r), v = rng_unit(r);
	return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

static double first_value(const struct mapper *m, const struct param *p, size_t i, struct rng *r)
{
	switch (p->init) {
	case INIT_UNIFORM:
		return p->init_value * (2 * rng_unit(r) - 1);
	case INIT_NORMAL:
		return p->init_value * normal(r);
	case INIT_SPREAD:
		return (double)m->spread[i];
	case INIT_MEAN:
		return (double)m->level[i];
	default:
		return p->init_value;
	}
}

void mapper_init_params(struct mapper *m)
{
	for (int i = 0; i < m->layout.n; i++) {
		const struct param *p = &m->layout.p[i];
		struct rng r = rng_seed(m->config.seed, UINT64_C(0x9a3e) << 32 | (uint64_t)i);
		for (size_t j = 0; j < p->count; j++)
			m->params[p->at + j] = (float)first_value(m, p, j, &r);
	}
}

const struct mapper_config *mapper_config_of(const struct mapper *m)
{
	return &m->config;
}
const struct mapper_pair *mapper_pair_of(const struct mapper *m)
{
	return &m->pair;
}
const struct mapper_record *mapper_record_of(const struct mapper *m)
{
	return &m->record;
}
void mapper_set_pair(struct mapper *m, const struct mapper_pair *pair)
{
	m->pair = *pair;
}
int mapper_context_count(const struct mapper *m)
{
	return m->n_contexts;
}
const char *mapper_context_at(const struct mapper *m, int i)
{
	return m->contexts[i];
}
int64_t mapper_parameters(const struct mapper *m)
{
	return (int64_t)m->layout.count;
}
const float *mapper_prior_level(const struct mapper *m)
{
	return m->level;
}
const float *mapper_prior_share(const struct mapper *m)
{
	return m->share;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

bool mapper_trained_on(const struct mapper *m, const char *context_sha256)
{
	return m->n_contexts && bsearch(context_sha256, m->contexts, (size_t)m->n_contexts, SHA_LEN, by_text) != NULL;
}

void mapper_set_contexts(struct mapper *m, const struct mapper_set *s)
{
	free(m->contexts);
	m->n_contexts = mapper_set_count(s);
	m->contexts = mem_new((size_t)m->n_contexts, SHA_LEN);
	for (int i = 0; i < m->n_contexts; i++)
		memcpy(m->contexts[i], mapper_set_shard(s, i)->context_sha256, SHA_LEN);
	qsort(m->contexts, (size_t)m->n_contexts, SHA_LEN, by_text);
}

void mapper_prior_at(const struct mapper *m, double retained, float *share)
{
	const size_t n = (size_t)m->config.layers * (size_t)m->config.kv_heads;
	int above = 0;
	while (above < MAPPER_RATIOS && mapper_ratios[above] < retained)
		above++;
	double low = above ? mapper_ratios[above - 1] : 0, high = above < MAPPER_RATIOS ? mapper_ratios[above] : 1;
	double part = (retained - low) / (high - low);
	for (size_t i = 0; i < n; i++) {
		double a = above ? (double)m->share[(size_t)(above - 1) * n + i] : 0;
		double b = above < MAPPER_RATIOS ? (double)m->share[(size_t)above * n + i] : 1;
		share[i] = (float)(a + (b - a) * part);
	}
}

/* ---- forward ---- */
struct forward_job {
	struct net net;
	const struct net_kind *kind;
	const struct mapper *m;
	const float *x;
	float *y;
	int64_t n, halo, take; /* positions; columns lost at each end of a strip; columns a strip gives */
	int64_t cols, ld;
	int groups;
	struct blocks *blocks; /* of item_carve() numbers */
	atomic_bool failed;
};
enum { STRIP_COLS = 256 };

static int64_t round_up(int64_t n)
{
	return (n + PAD - 1) / PAD * PAD;
}

static void plan_strips(struct forward_job *j)
{
	const struct mapper_config *c = &j->m->config;
	const bool attention = c->kind == MAPPER_AXIAL && c->encoder && c->window, full = attention && c->window == MAPPER_ALL;
	j->halo = j->kind->halo_convs * (c->taps / 2) + (attention && !full ? c->window : 0);
	j->cols = full ? round_up(j->n + 2 * j->halo) : round_up(2 * j->halo) + (attention ? 2 : 1) * STRIP_COLS;
	if (!full && j->halo <= STRIP_COLS / 16)
		j->cols = STRIP_COLS;
	if (j->cols > round_up(j->n + 2 * j->halo))
		j->cols = round_up(j->n + 2 * j->halo);
	j->take = j->cols - 2 * j->halo;
	j->ld = j->cols + PAD;
	j->groups = mapper_groups(c);
}

/* An item's memory. */
struct item {
	float *scale, *raw; /* [cols] */
	float *x, *score;   /* rows of the proxy layers the group reads; [Ll*Hl] */
	float *scratch;
};

/* Proxy layers group `group` reads. */
static void group_layers(const struct mapper_config *c, int group, int *first, int *end)
{
	bool all = c->kind != MAPPER_AXIAL || c->neighbours == MAPPER_ALL;
	*first = all || group < c->neighbours ? 0 : group - c->neighbours;
	*end = all || group + c->neighbours + 1 > c->proxy_layers ? c->proxy_layers : group + c->neighbours + 1;
}

static size_t item_carve(const struct forward_job *j, float *block, struct item *item)
{
	const struct mapper_config *c = &j->m->config;
	const struct strip s = {.n = j->n, .cols = j->cols, .ld = j->ld};
	const int64_t most = c->kind != MAPPER_AXIAL || c->neighbours == MAPPER_ALL || 2 * c->neighbours + 1 > c->proxy_layers
				     ? c->proxy_layers
				     : 2 * c->neighbours + 1;
	struct carve at = {.block = block};
	item->scale = carve(&at, 1, j->ld);
	item->raw = carve(&at, 1, j->ld);
	item->x = carve(&at, most * c->proxy_heads, j->ld);
	item->score = carve(&at, (int64_t)c->layers * c->kv_heads, j->ld);
	item->scratch = carve(&at, 1, (int64_t)j->kind->infer_scratch(&j->net, &s));
	return at.used;
}

static void fill_features(
	const struct forward_job *j, const struct strip *s, int first_layer, int end_layer, const struct item *item)
{
	const struct mapper_config *c = &j->m->config;
	const struct feature_plan plan = {.config = c, .n = j->n, .mean = j->m->feature_mean, .dev = j->m->feature_dev};
	const int64_t begin = s->first < 0 ? -s->first : 0, end = s->n - s->first < s->cols ? s->n - s->first : s->cols;
	const int rows = (end_layer - first_layer) * c->proxy_heads;
	feature_scale(&plan, s->first, s->cols, item->scale);
	memset(item->raw, 0, (size_t)s->cols * sizeof *item->raw);
	for (int r = 0; r < rows; r++) {
		const int row = first_layer * c->proxy_heads + r;
		memcpy(item->raw + begin, j->x + row * j->n + s->first + begin, (size_t)(end - begin) * sizeof *item->raw);
		feature_row(&plan, row, item->raw, item->scale, s->cols, item->x + r * s->ld);
	}
	strip_mask_f32(s, item->x, rows);
}

static void copy_scores(const struct forward_job *j, const struct strip *s, int group, const float *score)
{
	const struct mapper_config *c = &j->m->config;
	const int64_t at = s->first + j->halo, n = j->n - at < j->take ? j->n - at : j->take;
	for (int l = 0; l < c->layers; l++)
		if (mapper_group_of(c, l) == group)
			for (int64_t r = (int64_t)l * c->kv_heads; r < (int64_t)(l + 1) * c->kv_heads; r++)
				memcpy(j->y + r * j->n + at, score + r * s->ld + j->halo, (size_t)n * sizeof *score);
}

static void forward_item(void *arg, int64_t number)
{
	struct forward_job *j = arg;
	const int group = (int)(number % j->groups);
	const struct strip s = {.first = number / j->groups * j->take - j->halo, .n = j->n, .cols = j->cols, .ld = j->ld};
	struct item item;
	int first, end;
	float *block = blocks_take(j->blocks);
	if (!block) {
		j->failed = true;
		return;
	}
	item_carve(j, block + PAD, &item);
	group_layers(&j->m->config, group, &first, &end);
	fill_features(j, &s, first, end, &item);
	j->kind->infer(
		&j->net, j->m->params, group, &s, (struct input){.x = item.x, .first_layer = first}, item.scratch, item.score);
	copy_scores(j, &s, group, item.score);
	blocks_give(j->blocks, block);
}

static struct forward_job job_of(const struct mapper *m, int64_t n)
{
	struct forward_job j = {.m = m,
		.kind = net_kind_f32(m->config.kind),
		.n = n,
		.net = {.config = &m->config, .layout = &m->layout, .kernels = kernels_at_f32(0)}};
	plan_strips(&j);
	return j;
}

int64_t mapper_bytes(const struct mapper *m, int64_t n)
{
	struct forward_job j = job_of(m, n);
	struct item item;
	return (int64_t)((item_carve(&j, NULL, &item) + 2 * PAD) * sizeof(float));
}

int mapper_forward(const struct mapper *m, const float *x, int64_t n, float *y, const struct mapper_pool *pool, char err[ERR_LEN])
{
	struct forward_job j = job_of(m, n);
	if (mapper_refuses(m, n, err))
		return -1;
	j.x = x;
	j.y = y;
	j.blocks = blocks_new((size_t)mapper_bytes(m, n));
	pool_run_f32(pool, (n + j.take - 1) / j.take * j.groups, forward_item, &j);
	blocks_free(j.blocks);
	return j.failed ? err_set(err, "out of memory: the mapper needs %lld bytes a thread", (long long)mapper_bytes(m, n)) : 0;
}
