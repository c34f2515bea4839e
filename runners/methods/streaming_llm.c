/* streaming_llm.c: StreamingLLM (arXiv 2309.17453): attention sinks and the most recent entries. spec/methods.md 4.1.
 *
 * sinks 4: the paper and all implementations; sequence positions 0..3, so a template head of four tokens has them already.
 * Budget B: min(sinks, B - 1) sinks and the rest recent: at least one recent entry (kvpress keeps {0,1,2} at B = 3:
 * compat=kvpress). Written as scores: the last entry, then the sinks, then by recency; any budget's top-k is the rule above, and
 * allocators apply. Difference: the authors re-rotate keys to positions inside the cache; here keys keep their original positions
 * (as in kvpress). */
#include "runners/methods/parts.h"

#include <string.h>

void streaming_scores(int64_t n, int64_t sinks, bool last_first, float *out)
{
	for (int64_t j = 0; j < n; j++)
		out[j] = (float)(j < sinks ? 2 * n - j : j);
	if (last_first && n > 0)
		out[n - 1] = (float)(2 * n + 1);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	(void)err;
	int64_t n = s->shape.count;
	bool last_first = strcmp(param_compat(s->params), "kvpress") != 0;
	for (int i = 0; i < s->layers * s->kv_heads; i++)
		streaming_scores(n, sinks_left(s, param_int(s->params, "sinks")), last_first, s->scores + i * n);
	return 0;
}

static const struct param_def defs[] = {
	{.name = "sinks", .kind = PARAM_INT, .number = 4, .max = 1e6, .origin = "StreamingLLM paper, all implementations"},
	{NULL}};

const struct scorer scorer_streaming_llm = {.name = "streaming-llm",
	.title = "attention sinks and recency",
	.origin = "StreamingLLM, arXiv 2309.17453",
	.params = defs,
	.mass = MASS_ALIKE,
	.heads_alike = true,
	.finish = finish};
