/* metrics.c: the table of metrics. A metric is one function (metrics.h) and one line here. */
#include <string.h>

#include "tasks/metrics/metrics.h"

static const struct metric_def table[] = {
	{"string_match_all", "share of the gold texts found in the answer", "RULER scripts/eval/synthetic/constants.py", false,
		string_match_all},
	{"string_match_part", "is any gold text found in the answer", "RULER scripts/eval/synthetic/constants.py", true,
		string_match_part},
	{"qa_f1", "F1 over words, best of the gold answers", "LongBench metrics.py qa_f1_score", false, qa_f1},
	{"exact", "answer equal to a gold text, white space around it aside", "ours", true, exact},
};

size_t metric_count(void)
{
	return sizeof(table) / sizeof(table[0]);
}

const struct metric_def *metric_at(size_t i)
{
	return &table[i];
}

const struct metric_def *metric_find(const char *name)
{
	for (size_t i = 0; i < metric_count(); i++)
		if (!strcmp(name, table[i].name))
			return &table[i];
	return NULL;
}
