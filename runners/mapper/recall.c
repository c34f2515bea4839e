/* recall.c: how much of the oracle's choice a score makes too, and what the static head prior alone would reach. */
#include "runners/mapper/impl.h"
#include "runners/mapper/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t top_count(double ratio, int64_t size)
{
	int64_t k = (int64_t)floor((double)size * ratio + 1e-9);
	return k < 1 ? 1 : k > size ? size : k;
}

static int64_t unit_rows_of(int scope, int layers, int kv_heads)
{
	return scope == MAPPER_SCOPE_GLOBAL ? (int64_t)layers * kv_heads : scope == MAPPER_SCOPE_LAYER ? kv_heads : 1;
}

int64_t scope_rows(const struct mapper_config *c)
{
	return unit_rows_of(c->scope, c->layers, c->kv_heads);
}

int oracle_cuts(const float *y, int64_t rows, int64_t n, int64_t unit_rows, float *cut)
{
	const int64_t units = rows / unit_rows, size = unit_rows * n;
	float *copy = malloc((size_t)size * sizeof *copy);
	if (!copy)
		return -1;
	for (int64_t u = 0; u < units; u++)
		for (int r = 0; r < MAPPER_RATIOS; r++) {
			int64_t below = size - (int64_t)floor((double)size * mapper_ratios[r] + 1e-9);
			memcpy(copy, y + u * size, (size_t)size * sizeof *copy);
			cut[r * units + u] = kth_smallest_f32(copy, size, below < 1 ? 1 : below);
		}
	free(copy);
	return 0;
}

/* member[i] = is i among the k largest of v? Equal values: lower index first. NaN counts as the smallest. copy: n numbers. */
static void top_members(const float *v, int64_t n, int64_t k, float *copy, uint8_t *member)
{
	int64_t left = k;
	for (int64_t i = 0; i < n; i++)
		copy[i] = isnan(v[i]) ? -INFINITY : v[i];
	const float least = kth_smallest_f32(copy, n, n - k + 1);
	for (int64_t i = 0; i < n; i++) {
		member[i] = v[i] > least;
		left -= member[i];
	}
	for (int64_t i = 0; i < n && left; i++)
		if (v[i] == least || (least == -INFINITY && isnan(v[i]))) {
			member[i] = 1;
			left--;
		}
}

void mapper_recall(
	const float *score, const float *oracle, int layers, int kv_heads, int64_t n, int scope, double out[MAPPER_RATIOS])
{
	const int64_t unit = unit_rows_of(scope, layers, kv_heads), size = unit * n, units = (int64_t)layers * kv_heads / unit;
	float *copy = mem_new((size_t)size, sizeof *copy);
	uint8_t *mine = mem_new((size_t)size, 1), *theirs = mem_new((size_t)size, 1);
	for (int r = 0; r < MAPPER_RATIOS; r++) {
		const int64_t k = top_count(mapper_ratios[r], size);
		int64_t both = 0;
		for (int64_t u = 0; u < units; u++) {
			top_members(score + u * size, size, k, copy, mine);
			top_members(oracle + u * size, size, k, copy, theirs);
			for (int64_t i = 0; i < size; i++)
				both += mine[i] & theirs[i];
		}
		out[r] = (double)both / (double)(k * units);
	}
	free(copy);
	free(mine);
	free(theirs);
}

struct ranked {
	float level;
	int64_t top; /* members of the oracle's set in this head */
};

static int by_level(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	return x->level < y->level ? 1 : x->level > y->level ? -1 : 0;
}

/* Heads are taken whole, highest level first; the last one in part, at random: it gives its own share of the oracle's set. Heads
 * of one level share what is left alike. */
static double prior_hits(struct ranked *heads, int64_t n_heads, int64_t n, int64_t k)
{
	double hits = 0;
	qsort(heads, (size_t)n_heads, sizeof *heads, by_level);
	for (int64_t i = 0, end; i < n_heads && k > 0; i = end) {
		int64_t top = 0;
		for (end = i; end < n_heads && heads[end].level == heads[i].level; end++)
			top += heads[end].top;
		int64_t size = (end - i) * n, take = size < k ? size : k;
		hits += (double)top * (double)take / (double)size;
		k -= take;
	}
	return hits;
}

void mapper_prior_recall(
	const float *level, const float *oracle, int layers, int kv_heads, int64_t n, int scope, double out[MAPPER_RATIOS])
{
	const int64_t unit = unit_rows_of(scope, layers, kv_heads), size = unit * n, units = (int64_t)layers * kv_heads / unit;
	float *copy = mem_new((size_t)size, sizeof *copy);
	uint8_t *member = mem_new((size_t)size, 1);
	struct ranked *heads = mem_new((size_t)unit, sizeof *heads);
	for (int r = 0; r < MAPPER_RATIOS; r++) {
		const int64_t k = top_count(mapper_ratios[r], size);
		double hits = 0;
		for (int64_t u = 0; u < units; u++) {
			top_members(oracle + u * size, size, k, copy, member);
			for (int64_t h = 0; h < unit; h++) {
				heads[h] = (struct ranked){.level = level[u * unit + h]};
				for (int64_t i = 0; i < n; i++)
					heads[h].top += member[h * n + i];
			}
			hits += prior_hits(heads, unit, n, k);
		}
		out[r] = hits / (double)(k * units);
	}
	free(copy);
	free(member);
	free(heads);
}

int mapper_set_floor(const struct mapper *m, const struct mapper_set *set, int scope, double out[MAPPER_RATIOS])
{
	const int contexts = mapper_set_count(set);
	double one[MAPPER_RATIOS];
	memset(out, 0, MAPPER_RATIOS * sizeof *out);
	for (int i = 0; i < contexts; i++) {
		const struct shard *s = mapper_set_shard(set, i);
		float *y = malloc((size_t)((int64_t)s->layers * s->kv_heads * s->n) * sizeof *y);
		if (!y)
			return -1;
		shard_read_oracle(s, y);
		mapper_prior_recall(m->level, y, s->layers, s->kv_heads, s->n, scope, one);
		for (int r = 0; r < MAPPER_RATIOS; r++)
			out[r] += one[r] / contexts;
		free(y);
	}
	return 0;
}

int mapper_set_ceiling(const struct mapper_set *set, int scope, double out[MAPPER_RATIOS])
{
	double sum[MAPPER_RATIOS] = {0}, one[MAPPER_RATIOS];
	int contexts = 0;
	for (int i = 0; i < mapper_set_count(set); i++) {
		const struct shard *s = mapper_set_shard(set, i);
		if (!shard_has_again(s))
			continue;
		const int64_t count = (int64_t)s->layers * s->kv_heads * s->n;
		float *y = malloc((size_t)(2 * count) * sizeof *y);
		if (!y)
			return -1;
		shard_read_oracle(s, y);
		shard_read_again(s, y + count);
		mapper_recall(y + count, y, s->layers, s->kv_heads, s->n, scope, one);
		for (int r = 0; r < MAPPER_RATIOS; r++)
			sum[r] += one[r];
		free(y);
		contexts++;
	}
	for (int r = 0; r < MAPPER_RATIOS && contexts; r++)
		out[r] = sum[r] / contexts;
	return contexts;
}

/* One context: score [outputs][n] against its oracle, all scopes, added to the sums as a share of `contexts`. */
static void add_recalls(const struct mapper *m, const float *score, const float *y, int64_t n, int contexts,
	double recall[MAPPER_SCOPES][MAPPER_RATIOS], double prior[MAPPER_SCOPES][MAPPER_RATIOS])
{
	const struct mapper_config *c = &m->config;
	for (int s = 0; s < MAPPER_SCOPES; s++) {
		double one[MAPPER_RATIOS], least[MAPPER_RATIOS];
		mapper_recall(score, y, c->layers, c->kv_heads, n, s, one);
		mapper_prior_recall(m->level, y, c->layers, c->kv_heads, n, s, least);
		for (int r = 0; r < MAPPER_RATIOS; r++) {
			recall[s][r] += one[r] / contexts;
			prior[s][r] += least[r] / contexts;
		}
	}
}

int mapper_evaluate(const struct mapper *m, const struct mapper_set *set, const struct mapper_pool *pool,
	double recall[MAPPER_SCOPES][MAPPER_RATIOS], double prior[MAPPER_SCOPES][MAPPER_RATIOS], char err[ERR_LEN])
{
	const int contexts = mapper_set_count(set), outputs = set_outputs(set), inputs = set_inputs(set);
	memset(recall, 0, MAPPER_SCOPES * sizeof *recall);
	memset(prior, 0, MAPPER_SCOPES * sizeof *prior);
	for (int i = 0, rc = 0; i < contexts; i++) {
		const int64_t n = set_length(set, i);
		float *x = malloc((size_t)(inputs * n) * sizeof *x), *y = malloc((size_t)(2 * outputs * n) * sizeof *y);
		if (!x || !y)
			rc = err_set(err, "out of memory for a context of %lld positions", (long long)n);
		for (int r = 0; !rc && r < inputs; r++)
			set_feature(set, i, r, 0, n, x + r * n);
		for (int r = 0; !rc && r < outputs; r++)
			set_oracle(set, i, r, 0, n, y + r * n);
		if (!rc)
			rc = mapper_forward(m, x, n, y + outputs * n, pool, err);
		if (!rc)
			add_recalls(m, y + outputs * n, y, n, contexts, recall, prior);
		free(x);
		free(y);
		if (rc)
			return rc;
	}
	return 0;
}
