/* table.c: what is known of each LongBench task: one line a task. Their entries in the table of tasks are in
 * longbench.c. */
#include <string.h>

#include "tasks/longbench/longbench.h"

const struct longbench_info longbench_infos[LONGBENCH_V1_TASKS] = {
	{"narrativeqa", GROUP_SINGLE_DOC, "en", "qa_f1", .chat = true},
	{"qasper", GROUP_SINGLE_DOC, "en", "qa_f1", .chat = true},
	{"multifieldqa_en", GROUP_SINGLE_DOC, "en", "qa_f1", .chat = true},
	{"multifieldqa_zh", GROUP_SINGLE_DOC, "zh", "qa_f1_zh", .chat = true},
	{"hotpotqa", GROUP_MULTI_DOC, "en", "qa_f1", .chat = true},
	{"2wikimqa", GROUP_MULTI_DOC, "en", "qa_f1", .chat = true},
	{"musique", GROUP_MULTI_DOC, "en", "qa_f1", .chat = true},
	{"dureader", GROUP_MULTI_DOC, "zh", "rouge_zh", .chat = true},
	{"gov_report", GROUP_SUMMARY, "en", "rouge_l", .chat = true},
	{"qmsum", GROUP_SUMMARY, "en", "rouge_l", .chat = true},
	{"multi_news", GROUP_SUMMARY, "en", "rouge_l", .chat = true},
	{"vcsum", GROUP_SUMMARY, "zh", "rouge_zh", .chat = true},
	{"trec", GROUP_FEW_SHOT, "en", "classification"},
	{"triviaqa", GROUP_FEW_SHOT, "en", "qa_f1_line"},
	{"samsum", GROUP_FEW_SHOT, "en", "rouge_l_line", .line_stop = true},
	{"lsht", GROUP_FEW_SHOT, "zh", "classification"},
	{"passage_count", GROUP_SYNTHETIC, "en", "count", .chat = true},
	{"passage_retrieval_en", GROUP_SYNTHETIC, "en", "retrieval", .chat = true},
	{"passage_retrieval_zh", GROUP_SYNTHETIC, "zh", "retrieval_zh", .chat = true},
	{"lcc", GROUP_CODE, "en zh", "code_sim"},
	{"repobench-p", GROUP_CODE, "en zh", "code_sim"},
};

static const char *name_skip(const char *name, const char *prefix)
{
	size_t n = strlen(prefix);
	return strncmp(name, prefix, n) ? name : name + n;
}

const struct longbench_info *longbench_find(const char *name, bool *e)
{
	const char *plain = name_skip(name, "longbench-"), *of_e = name_skip(plain, "e-");
	size_t n = strlen(of_e);
	bool suffix = n > 2 && !strcmp(of_e + n - 2, "_e");
	*e = of_e != plain || suffix;
	n -= suffix ? 2 : 0;
	for (int i = 0; i < LONGBENCH_V1_TASKS; i++)
		if (strlen(longbench_infos[i].name) == n && !strncmp(longbench_infos[i].name, of_e, n))
			return &longbench_infos[i];
	return NULL;
}

const char *const longbench_bins[LONGBENCH_BINS] = {"0-4k", "4-8k", "8k+"};

int longbench_bin(int64_t length)
{
	return length < 4000 ? 0 : length < 8000 ? 1 : 2;
}
