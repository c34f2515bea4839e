/* prior.c: see prior.h. The logarithm's floor and the ratios are the mapper's (spec 1.4, 1.5); the level is in units of one mean
 * and one deviation for the whole model, so that heads compare. */
#include "runners/methods/prior.h"
#include "runners/methods/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const double prior_ratios[PRIOR_RATIOS] = {.1, .2, .3, .5, .7};
static const double FLOOR = 1e-6;

struct prior *prior_new(int layers, int kv_heads)
{
	struct prior *p = mem_new(1, sizeof *p);
	size_t heads = (size_t)layers * (size_t)kv_heads;
	*p = (struct prior){.layers = layers, .kv_heads = kv_heads};
	p->level = mem_new(heads, sizeof *p->level);
	p->share = mem_new(heads * PRIOR_RATIOS, sizeof *p->share);
	p->trained_on = text_copy("");
	return p;
}

void prior_free(struct prior *p)
{
	if (!p)
		return;
	free(p->level);
	free(p->share);
	free(p->trained_on);
	free(p);
}

void prior_add(struct prior *p, const float *scores, int64_t n, const char *context_sha256)
{
	int heads = p->layers * p->kv_heads;
	int64_t *counts = mem_new((size_t)heads, sizeof *counts);
	for (int h = 0; h < heads; h++) {
		double sum = 0;
		for (int64_t j = 0; j < n; j++)
			sum += log((double)scores[h * n + j] + FLOOR);
		p->level[h] += sum / (double)n;
	}
	for (int k = 0; k < PRIOR_RATIOS; k++) {
		int64_t keep = keep_count(n, prior_ratios[k], "none") * heads;
		top_counts(NULL, (struct slices){scores, heads, n, n}, keep, counts);
		for (int h = 0; h < heads; h++)
			p->share[k * heads + h] += (double)counts[h] / (double)n;
	}
	struct strbuf list = {0};
	strbuf_puts(&list, p->trained_on);
	trained_on_add(&list, context_sha256);
	free(p->trained_on);
	p->trained_on = strbuf_take(&list);
	p->contexts++;
	free(counts);
}

void prior_end(struct prior *p)
{
	int heads = p->layers * p->kv_heads;
	double mean = 0, spread = 0;
	for (int i = 0; i < heads * PRIOR_RATIOS && p->contexts; i++)
		p->share[i] /= p->contexts;
	for (int h = 0; h < heads; h++)
		mean += (p->level[h] /= p->contexts ? p->contexts : 1) / heads;
	for (int h = 0; h < heads; h++)
		spread += (p->level[h] - mean) * (p->level[h] - mean) / heads;
	for (int h = 0; h < heads; h++)
		p->level[h] = (p->level[h] - mean) / (spread > 0 ? sqrt(spread) : 1);
}

void prior_at(const struct prior *p, double retained, double *out)
{
	int heads = p->layers * p->kv_heads, k = 0;
	while (k < PRIOR_RATIOS && prior_ratios[k] < retained)
		k++;
	double low = k ? prior_ratios[k - 1] : 0, high = k < PRIOR_RATIOS ? prior_ratios[k] : 1,
	       t = (retained - low) / (high - low);
	for (int h = 0; h < heads; h++) {
		double a = k ? p->share[(k - 1) * heads + h] : 0, b = k < PRIOR_RATIOS ? p->share[k * heads + h] : 1;
		out[h] = a + (b - a) * t;
	}
}

int prior_write(const struct prior *p, const char *path, const char *target_sha256, const char *made_by, char err[ERR_LEN])
{
	size_t heads = (size_t)p->layers * (size_t)p->kv_heads;
	float *level = mem_new(heads, sizeof *level), *share = mem_new(heads * PRIOR_RATIOS, sizeof *share);
	for (size_t i = 0; i < heads; i++)
		level[i] = (float)p->level[i];
	for (size_t i = 0; i < heads * PRIOR_RATIOS; i++)
		share[i] = (float)p->share[i];
	const struct st_tensor t[] = {
		{.name = "level", .type = ST_F32, .n_dims = 2, .dims = {p->layers, p->kv_heads}, .data = level},
		{.name = "share", .type = ST_F32, .n_dims = 3, .dims = {PRIOR_RATIOS, p->layers, p->kv_heads}, .data = share}};
	const struct st_meta meta[] = {{"kind", "head-prior"}, {"target_sha256", target_sha256}, {"proxy_sha256", ""},
		{"trained_on", p->trained_on}, {"made_by", made_by}};
	int rc = st_write(path, t, 2, meta, 5, err);
	free(level);
	free(share);
	return rc;
}

static int read_tensor(const struct st_file *f, const char *path, const char *name, int64_t count, double *out, char err[ERR_LEN])
{
	const struct st_tensor *t = st_find(f, name);
	if (!t || t->type != ST_F32 || t->count != count)
		return err_set(err, "%s: has no fp32 tensor \"%s\" of %lld numbers", path, name, (long long)count);
	for (int64_t i = 0; i < count; i++) {
		float x;
		st_to_f32(t, i, 1, &x);
		if (!isfinite(x))
			return err_set(err, "%s: %s[%lld] is not a finite number", path, name, (long long)i);
		out[i] = x;
	}
	return 0;
}

/* Shares become budgets: outside of [0, 1] (fp32's rounding aside) they would be entries that no head has. */
static int check_shares(const struct prior *p, const char *path, char err[ERR_LEN])
{
	for (int i = 0; i < p->layers * p->kv_heads * PRIOR_RATIOS; i++)
		if (!(p->share[i] >= 0 && p->share[i] <= 1 + 1e-6))
			return err_set(err, "%s: share[%d] is %g, not between 0 and 1", path, i, p->share[i]);
	return 0;
}

int prior_read(struct prior **out, const char *path, int layers, int kv_heads, char err[ERR_LEN])
{
	struct st_file *f = NULL;
	struct prior *p = prior_new(layers, kv_heads);
	int heads = layers * kv_heads;
	int rc = st_open(&f, path, err) || read_tensor(f, path, "level", heads, p->level, err) ||
		 read_tensor(f, path, "share", (int64_t)heads * PRIOR_RATIOS, p->share, err) || check_shares(p, path, err);
	if (!rc && st_metadata(f, "trained_on")) {
		free(p->trained_on);
		p->trained_on = text_copy(st_metadata(f, "trained_on"));
	}
	st_close(f);
	if (rc)
		prior_free(p);
	else
		*out = p;
	return rc ? -1 : 0;
}
