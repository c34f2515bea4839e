/* tova.c: TOVA (arXiv 2401.06104), prefill form: attention of the last token, averaged over all heads of a layer.
 * spec/methods.md 4.4.
 *
 * keep_last false: the authors may evict even the newest token (kvpress forces it: compat=kvpress). All KV heads of a layer share
 * one set. The last token is the sequence's: the question's when the cache holds one. Difference: the authors evict at every step
 * of decoding; this form prunes once, after the prompt. */
#include "runners/methods/parts.h"

#include <stdlib.h>
#include <string.h>

void tova_scores(const float *probabilities, int rows, int64_t n, float *out)
{
	for (int64_t j = 0; j < n; j++) {
		double sum = 0;
		for (int h = 0; h < rows; h++)
			sum += probabilities[h * n + j];
		out[j] = (float)(sum / rows);
	}
}

static int64_t first_pos(const struct scoring *s)
{
	return rows_total(s) - 1;
}

static struct protection protect(const struct scoring *s, int64_t n_keep)
{
	(void)n_keep;
	return (struct protection){0, param_bool(s->params, "keep_last") ? window_left(s, 1) : 0};
}

static int begin(struct scoring *s, char err[ERR_LEN])
{
	s->state = columns_new(s, s->kv_heads, err);
	return s->state ? 0 : -1;
}

static int observe(struct scoring *s, const struct layer_rows *r, char err[ERR_LEN])
{
	return columns_add(s->state, s, r, first_pos(s), GROUP_MEAN, err);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	int64_t n = s->shape.count;
	float *rows = malloc((size_t)s->kv_heads * (size_t)n * sizeof(*rows) + 1);
	int rc = rows ? 0 : err_set(err, "out of memory: attention of the last token");
	for (int l = 0; l < s->layers && rc == 0; l++) {
		rc = columns_take(
			s->state, s, l, rows, err); /* groups are of equal size: the mean of their means is the mean over heads */
		if (rc)
			break;
		tova_scores(rows, s->kv_heads, n, scores_at(s, l, 0));
		for (int h = 1; h < s->kv_heads; h++)
			memcpy(scores_at(s, l, h), scores_at(s, l, 0), (size_t)n * sizeof(float));
	}
	free(rows);
	return rc;
}

static void end(struct scoring *s)
{
	columns_free(s->state);
	s->state = NULL;
}

static const struct param_def defs[] = {
	{.name = "keep_last", .kind = PARAM_BOOL, .number = 0, .origin = "TOVA's own cache"}, {NULL}};
static const struct compat_mode modes[] = {{"kvpress", "{\"keep_last\":true}"}, {NULL, NULL}};

const struct scorer scorer_tova = {.name = "tova",
	.title = "attention of the last token, one set a layer",
	.origin = "TOVA, arXiv 2401.06104",
	.params = defs,
	.compat = modes,
	.mass = MASS_ALIKE,
	.heads_alike = true,
	.observes = OBSERVE_Q | OBSERVE_LSE,
	.first_pos = first_pos,
	.begin = begin,
	.observe = observe,
	.finish = finish,
	.end = end,
	.protect = protect};
