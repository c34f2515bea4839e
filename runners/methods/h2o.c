/* h2o.c: H2O (arXiv 2306.14048), the prefill form most papers compare with: attention summed over all queries of the prompt.
 * spec/methods.md 4.2 (c), decisions 5 and 6.
 *
 * recent 0 = half of the budget: the paper's split 1:1 (KVCache-Factory: the last 8; compat=factory). Query heads of a group are
 * averaged. The sums run over every query, the protected ones and a question too; later columns are seen by fewer rows (the
 * method's own bias). Difference: the paper evicts at every step of decoding; this form prunes once, after the prompt. Two-pass:
 * the prefill leaves the log-sum-exp of each row, the columns are then summed chunk by chunk. No n x n buffer. */
#include "runners/methods/parts.h"

static struct protection protect(const struct scoring *s, int64_t n_keep)
{
	int64_t recent = param_int(s->params, "recent");
	return (struct protection){0, recent ? window_left(s, recent) : n_keep / 2};
}

static int begin(struct scoring *s, char err[ERR_LEN])
{
	s->state = columns_new(s, s->kv_heads, err);
	return s->state ? 0 : -1;
}

static int observe(struct scoring *s, const struct layer_rows *r, char err[ERR_LEN])
{
	return columns_add(s->state, s, r, 0, GROUP_MEAN, err);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	for (int l = 0; l < s->layers; l++)
		if (columns_score(s->state, s, l, err))
			return -1;
	return 0;
}

static void end(struct scoring *s)
{
	columns_free(s->state);
	s->state = NULL;
}

static const struct param_def defs[] = {
	{.name = "recent", .kind = PARAM_INT, .number = 0, .max = 1e6, .origin = "0 = half of the budget: the paper's split"},
	{NULL}};
static const struct compat_mode modes[] = {{"factory", "{\"recent\":8}"}, {NULL, NULL}};

const struct scorer scorer_h2o = {.name = "h2o",
	.title = "attention summed over all queries of the prompt",
	.origin = "H2O, arXiv 2306.14048",
	.params = defs,
	.compat = modes,
	.observes = OBSERVE_Q | OBSERVE_LSE,
	.begin = begin,
	.observe = observe,
	.finish = finish,
	.end = end,
	.protect = protect};
