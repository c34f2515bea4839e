/* repoqa.c: RepoQA's score (SCBench repo_qa_utils.py, pass@1 at 0.8).
 *
 * Gold: {language, name of the function asked for, then name and text of each function of the repository}. From the answer: the
 * first fenced block which holds a function gives that function, else the first block, else (no block) all of it. The function
 * most similar by BLEU-4 (the first of equals) must be the one asked for, and the similarity at least 0.8. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/function_find.h"
#include "tasks/metrics/metrics.h"

static const double threshold = 0.8;

/* The next ``` at the beginning of a line, from p on, which begins one if `line`. NULL = none. */
static const char *fence_find(const char *p, bool line)
{
	if (line && !strncmp(p, "```", 3))
		return p;
	p = strstr(p, "\n```");
	return p ? p + 1 : NULL;
}

/* Behind an opening fence's ```, word, blanks and line ends; NULL = no block opens there. */
static const char *fence_body(const char *fence)
{
	const char *p = fence + 3, *body = NULL;
	for (int32_t c; (c = text_next(&(const char *){p})) && (c == '_' || text_is_word(c)); text_next(&p))
		;
	for (int32_t c; text_is_space(c = text_next(&p));)
		if (c == '\n')
			body = p;
	return body;
}

/* The next block from *p on: a copy of its text, *p moved behind it. NULL = no more. Caller frees. */
static char *block_next(const char **p, const char *begin)
{
	const char *fence = *p;
	while ((fence = fence_find(fence, fence == begin || fence[-1] == '\n'))) {
		const char *body = fence_body(fence), *end = body ? fence_find(body, true) : NULL;
		if (end) {
			*p = end + 3;
			return text_format("%.*s", (int)(end - body), body);
		}
		fence += 3;
	}
	return NULL;
}

char *repoqa_function(const char *answer, const char *lang)
{
	size_t n = text_strip(&answer), start, len;
	char *text = text_format("%.*s", (int)n, answer), *first = NULL, *found = NULL, *block;
	for (const char *p = text; !found && (block = block_next(&p, text));) {
		if (function_find(lang, block, &start, &len))
			found = text_format("%.*s", (int)len, block + start);
		if (first)
			free(block);
		else
			first = block;
	}
	char *out = found ? found : first ? first : text;
	if (out != first)
		free(first);
	if (out != text)
		free(text);
	return out;
}

double repoqa(const char *answer, char *const *gold, int n_gold)
{
	if (n_gold < 4)
		return NAN;
	const char *best_name = "";
	double best = 0;
	char *function = repoqa_function(answer, gold[0]);
	for (int i = 2; i + 1 < n_gold; i += 2) {
		double similarity = bleu4(function, gold[i + 1]);
		if (similarity > best) {
			best = similarity;
			best_name = gold[i];
		}
	}
	free(function);
	return best >= threshold && !strcmp(best_name, gold[1]);
}
