/* positions.c: what a configuration says of a context of n positions: whether the mapper takes it, which of its queries a feature
 * sums and what that feature is called, how many queries see a key. */
#include "runners/mapper/impl.h"

#include <stdio.h>

int mapper_refuses(const struct mapper *m, int64_t n, char err[ERR_LEN])
{
	const struct mapper_config *c = &m->config;
	if (n < 1)
		return err_set(err, "a mapper needs at least one position");
	if (c->kind == MAPPER_AXIAL && c->encoder && c->window == MAPPER_ALL && n > MAPPER_FULL_MAX)
		return err_set(err,
			"the mapper attends over its whole context (window = full), which it does up to %d positions, not %lld",
			MAPPER_FULL_MAX, (long long)n);
	return 0;
}

bool mapper_query_used(const struct mapper_config *c, int64_t n, int64_t q)
{
	switch (c->queries) {
	case MAPPER_QUERIES_STRIDE:
		return (n - 1 - q) % c->query_n == 0;
	case MAPPER_QUERIES_LAST:
		return q >= n - c->query_n;
	default:
		return true;
	}
}

int64_t mapper_query_seen(const struct mapper_config *c, int64_t n, int64_t j)
{
	switch (c->queries) {
	case MAPPER_QUERIES_STRIDE:
		return (n - 1 - j) / c->query_n + 1;
	case MAPPER_QUERIES_LAST:
		return n - j < c->query_n ? n - j : c->query_n;
	default:
		return n - j;
	}
}

void mapper_feature_name(const struct mapper_config *c, char out[32])
{
	static const char *const sources[] = {"model", "self"}, *const queries[] = {"all", "stride", "last"};
	if (c->queries == MAPPER_QUERIES_ALL)
		snprintf(out, 32, "%s:all", sources[c->source]);
	else
		snprintf(out, 32, "%s:%s:%d", sources[c->source], queries[c->queries], c->query_n);
}

void feature_scale(const struct feature_plan *p, int64_t first, int64_t cols, float *scale)
{
	for (int64_t t = 0; t < cols; t++) {
		int64_t at = first + t;
		bool counts = p->config->normalize == MAPPER_VISIBLE && at >= 0 && at < p->n;
		scale[t] = counts ? 1.0f / (float)mapper_query_seen(p->config, p->n, at) : 1.0f;
	}
}
