/* aggregate.c: the averages over LongBench tasks, each under its own name (benchmarks.md 1.8). */
#include <math.h>
#include <string.h>

#include "tasks/longbench/longbench.h"

static bool counts(const struct longbench_info *info, enum longbench_group group, const char *language)
{
	return info->group == group && strstr(info->languages, language);
}

static struct longbench_average group_mean(
	const double *scores, enum longbench_group group, const char *language, const char *label)
{
	struct longbench_average a = {.label = label};
	double sum = 0;
	for (int i = 0; i < LONGBENCH_V1_TASKS; i++) {
		if (!counts(&longbench_infos[i], group, language))
			continue;
		a.of++;
		a.n += !isnan(scores[i]);
		sum += scores[i];
	}
	a.score = sum / a.of;
	return a;
}

/* Six group means, then their mean. */
static void language_means(const double *scores, const char *language, const char *const labels[], struct longbench_average *out)
{
	struct longbench_average all = {.label = labels[LONGBENCH_GROUPS]};
	for (int g = 0; g < LONGBENCH_GROUPS; g++) {
		out[g] = group_mean(scores, g, language, labels[g]);
		all.score += out[g].score / LONGBENCH_GROUPS;
		all.n += out[g].n;
		all.of += out[g].of;
	}
	out[LONGBENCH_GROUPS] = all;
}

static struct longbench_average plain_mean(const double *scores)
{
	struct longbench_average a = {.label = "mean of 16 tasks (EN and code)"};
	for (int i = 0; i < LONGBENCH_V1_TASKS; i++) {
		if (!strstr(longbench_infos[i].languages, "en"))
			continue;
		a.of++;
		a.n += !isnan(scores[i]);
		a.score += scores[i];
	}
	a.score /= a.of;
	return a;
}

void longbench_averages(const double scores[LONGBENCH_V1_TASKS], struct longbench_average out[LONGBENCH_AVERAGES])
{
	static const char *const en[] = {"EN single-doc QA", "EN multi-doc QA", "EN summarisation", "EN few-shot", "EN synthetic",
		"EN code", "EN mean of six groups (official)"};
	static const char *const zh[] = {"ZH single-doc QA", "ZH multi-doc QA", "ZH summarisation", "ZH few-shot", "ZH synthetic",
		"ZH code", "ZH mean of six groups (official)"};
	language_means(scores, "en", en, out);
	language_means(scores, "zh", zh, out + LONGBENCH_GROUPS + 1);
	out[2 * LONGBENCH_GROUPS + 2] = plain_mean(scores);
}
