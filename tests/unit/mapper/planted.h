/* planted.h: a pool of threads, and training contexts whose oracle is a known function of their features. */
#ifndef KVB_TEST_PLANTED_H
#define KVB_TEST_PLANTED_H

#include "runners/device/pool.h"
#include "runners/mapper/mapper.h"
#include "tests/unit/test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- threads ---- */
struct pool_call {
	void (*fn)(void *arg, int64_t item);
	void *arg;
};
static inline void pool_item(void *arg, int64_t item, int thread)
{
	const struct pool_call *c = arg;
	(void)thread;
	c->fn(c->arg, item);
}
static inline void pool_adapter(void *user, int64_t n, void (*fn)(void *arg, int64_t item), void *arg)
{
	struct pool_call c = {fn, arg};
	pool_run(user, n, pool_item, &c);
}
static inline struct mapper_pool threads_new(int n)
{
	struct pool *p = pool_new(n);
	assert_non_null(p);
	return (struct mapper_pool){.user = p, .run = pool_adapter};
}
static inline void threads_free(struct mapper_pool *p)
{
	pool_free(p->user);
}

/* ---- contexts: a folder of its own for each test program, emptied at the end ---- */
enum { PLANT_LAYERS = 3, PLANT_HEADS = 4, PLANT_KV = 2, PLANT_MAX = 40 };
struct plant {
	char folder[64], *path[PLANT_MAX];
	int n;
};

static inline double plant_normal(struct rng *r)
{
	double s = 0;
	for (int i = 0; i < 12; i++)
		s += rng_unit(r);
	return s - 6;
}

/* Raw column sums of a context of n, times the queries that see the key: a mean probability around 1/n that follows two qualities
 * of the position, as much as the head cares for each, and a little noise. The heads are the same in every context. */
static inline void plant_features(struct rng *r, int64_t n, float *x)
{
	struct rng heads = rng_seed(1, 1);
	double *quality = mem_new((size_t)(2 * n), sizeof *quality);
	for (int64_t i = 0; i < 2 * n; i++)
		quality[i] = plant_normal(r);
	for (int row = 0; row < PLANT_LAYERS * PLANT_HEADS; row++) {
		double level = plant_normal(&heads) / 2, a = plant_normal(&heads), b = plant_normal(&heads);
		for (int64_t j = 0; j < n; j++)
			x[row * n + j] = (float)((double)(n - j) / (double)n *
						 exp(level + .7 * (a * quality[j] + b * quality[n + j]) + .1 * plant_normal(r)));
	}
	free(quality);
}

/* The oracle that a mapper can reach: y[l,h] is a product of powers of the mean probability of a head of the same layer at this
 * position and, by .4, at the one before; its heads have levels of their own. */
static inline void plant_oracle(const float *x, int64_t n, float *y)
{
	for (int l = 0; l < PLANT_LAYERS; l++)
		for (int h = 0; h < PLANT_KV; h++)
			for (int64_t j = 0; j < n; j++) {
				const float *a = x + (l * PLANT_HEADS + 2 * h) * n;
				double left = j ? log((double)a[j - 1] / (double)(n - j + 1))
						: -log((double)n); /* about what zero padding means */
				double v = log((double)a[j] / (double)(n - j)) + .4 * left;
				y[(l * PLANT_KV + h) * n + j] = (float)exp(v / 1.4 + .3 * (l - h)); /* well above 1e-6, below 1 */
			}
}

/* Adds a shard. again: the second oracle is the first one times this (0 = there is none). */
static inline void plant_shard_again(struct plant *p, const char *split, int64_t n, uint64_t seed, float again)
{
	char err[ERR_LEN], text[64];
	struct rng r = rng_seed(seed, 77);
	float *x = mem_new((size_t)(PLANT_LAYERS * PLANT_HEADS * n), sizeof *x),
	      *y = mem_new((size_t)(PLANT_LAYERS * PLANT_KV * n), sizeof *y);
	struct shard s = {
		.n = n, .layers = PLANT_LAYERS, .kv_heads = PLANT_KV, .proxy_kv_heads = PLANT_KV, .oracle = y, .n_features = 1};
	plant_features(&r, n, x);
	plant_oracle(x, n, y);
	float *second = mem_new((size_t)(PLANT_LAYERS * PLANT_KV * n), sizeof *second);
	for (int64_t i = 0; i < PLANT_LAYERS * PLANT_KV * n; i++)
		second[i] = y[i] * again;
	s.again = again != 0 ? second : NULL;
	s.feature[0] = (struct shard_feature){.name = "model:all", .layers = PLANT_LAYERS, .heads = PLANT_HEADS, .x = x};
	snprintf(text, sizeof text, "context %llu", (unsigned long long)seed);
	sha256_hex(text, strlen(text), s.context_sha256);
	sha256_hex("target", 6, s.pair.target_sha256);
	sha256_hex("proxy", 5, s.pair.proxy_sha256);
	sha256_hex("tokenizer", 9, s.pair.tokenizer_sha256);
	snprintf(s.pair.target, sizeof s.pair.target, "planted-target");
	snprintf(s.pair.proxy, sizeof s.pair.proxy, "planted-proxy");
	snprintf(s.split, sizeof s.split, "%s", split);
	snprintf(s.id, sizeof s.id, "planted/%llu", (unsigned long long)seed);
	p->path[p->n] = text_format("%s/%02d.safetensors", p->folder, p->n);
	if (shard_write(&s, p->path[p->n], err))
		fail_msg("%s", err);
	p->n++;
	free(x);
	free(y);
	free(second);
}

static inline void plant_shard(struct plant *p, const char *split, int64_t n, uint64_t seed)
{
	plant_shard_again(p, split, n, seed, 0);
}

static inline void plant_new(struct plant *p, int train, int eval)
{
	memset(p, 0, sizeof *p);
	snprintf(p->folder, sizeof p->folder, "/tmp/kvb-mapper-XXXXXX");
	assert_non_null(mkdtemp(p->folder));
	for (int i = 0; i < train; i++)
		plant_shard(p, "train", 150 + 37 * (i % 5), (uint64_t)i);
	for (int i = 0; i < eval; i++)
		plant_shard(p, "eval", 211 + 50 * i, 1000 + (uint64_t)i);
}

static inline void plant_free(struct plant *p)
{
	for (int i = 0; i < p->n; i++) {
		unlink(p->path[i]);
		free(p->path[i]);
	}
	rmdir(p->folder);
}

static inline struct mapper_set *plant_set(const struct plant *p, struct mapper_config *c, const char *split)
{
	char err[ERR_LEN];
	struct mapper_set *s;
	if (mapper_set_open(&s, c, (const char *const *)p->path, (size_t)p->n, split, err))
		fail_msg("%s", err);
	return s;
}

/* Options as "name=value name=value" over the defaults. */
static inline struct mapper_config plant_config(const char *options)
{
	struct mapper_config c;
	char err[ERR_LEN], *text = text_copy(options), *save = NULL;
	mapper_defaults(&c);
	for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');
		*value++ = 0;
		if (mapper_option(&c, word, value, err))
			fail_msg("%s", err);
	}
	free(text);
	return c;
}

static inline struct mapper *plant_train(const struct plant *p, const char *options, const struct mapper_pool *pool)
{
	struct mapper_config c = plant_config(options);
	struct mapper_set *train = plant_set(p, &c, "train"), *valid = plant_set(p, &c, "eval");
	struct mapper *m;
	char err[ERR_LEN];
	if (mapper_train(&m, &c, train, valid, NULL, NULL, pool, err))
		fail_msg("%s", err);
	mapper_set_close(train);
	mapper_set_close(valid);
	return m;
}

#endif
