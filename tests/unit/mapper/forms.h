/* forms.h: a mapper of each form and option that changes its arithmetic, with parameters and statistics that are not neutral, and
 * column sums for it. */
#ifndef KVB_TEST_FORMS_H
#define KVB_TEST_FORMS_H

#include "runners/mapper/impl.h"
#include "tests/unit/mapper/planted.h"

static const char *const forms[] = {
	"mapper=flat channels=24",
	"mapper=linear",
	"mapper=axial channels=16",
	"mapper=axial channels=16 norm=batch neighbours=1 embeddings=shared",
	"mapper=axial channels=16 neighbours=all encoder=off taps=5",
	"mapper=axial channels=16 window=20",
	"mapper=axial channels=16 window=full",
};
enum { FORMS = sizeof forms / sizeof *forms, LS = 3, HS = 5, LL = 4, HL = 2 };

/* A mapper with statistics and running moments that are not neutral. */
static inline struct mapper *form(const char *options)
{
	char err[ERR_LEN];
	struct mapper_config c = plant_config(options);
	c.proxy_layers = LS;
	c.proxy_heads = HS;
	c.layers = LL;
	c.kv_heads = HL;
	struct mapper *m = mapper_new(&c, err);
	if (!m)
		fail_msg("%s", err);
	struct rng r = rng_seed(5, 5);
	for (int i = 0; i < LS * HS; i++) {
		m->feature_mean[i] = (float)(-6 + rng_unit(&r));
		m->feature_dev[i] = (float)(.5 + rng_unit(&r));
	}
	for (size_t i = 0; i < m->layout.count; i++)
		m->params[i] += (float)(.2 * rng_unit(&r));
	return m;
}

static inline float *random_sums(int64_t n, uint64_t seed)
{
	struct rng r = rng_seed(seed, 9);
	float *x = mem_new((size_t)(LS * HS * n), sizeof *x);
	for (int64_t i = 0; i < LS * HS * n; i++)
		x[i] = (float)(exp(plant_normal(&r)) * (double)(n - i % n) / (double)n);
	return x;
}

static inline float *scores(const struct mapper *m, const float *x, int64_t n, const struct mapper_pool *pool)
{
	char err[ERR_LEN];
	float *y = mem_new((size_t)(m->config.layers * m->config.kv_heads * n), sizeof *y);
	if (mapper_forward(m, x, n, y, pool, err))
		fail_msg("%s", err);
	return y;
}

static inline double largest_gap(const float *a, const float *b, int64_t n)
{
	double most = 0;
	for (int64_t i = 0; i < n; i++) {
		double gap = fabs((double)a[i] - (double)b[i]);
		if (!(gap <= most))
			most = gap;
	}
	return most;
}

#endif
