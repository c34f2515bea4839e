/* metrics.c: the table of metrics. A metric is one function (metrics.h) and one line here. */
#include <string.h>

#include "tasks/metrics/jieba.h"
#include "tasks/metrics/metrics.h"

static const struct metric_def table[] = {
	{"string_match_all", "share of the gold texts found in the answer", "RULER scripts/eval/synthetic/constants.py", false,
		string_match_all},
	{"string_match_part", "is any gold text found in the answer", "RULER scripts/eval/synthetic/constants.py", true,
		string_match_part},
	{"qa_f1", "F1 over words, best of the gold answers", "LongBench metrics.py qa_f1_score", false, qa_f1},
	{"qa_f1_line", "qa_f1 of the answer's first line", "LongBench eval.py, triviaqa", false, qa_f1_line},
	{"qa_f1_zh", "F1 over jieba's words, best of the gold answers", "LongBench metrics.py qa_f1_zh_score", false, qa_f1_zh, jieba_load},
	{"rouge_l", "ROUGE-L of the package rouge 1.0.1", "LongBench metrics.py rouge_score", false, rouge_l},
	{"rouge_l_line", "rouge_l of the answer's first line", "LongBench eval.py, samsum", false, rouge_l_line},
	{"rouge_zh", "rouge_l over jieba's words", "LongBench metrics.py rouge_zh_score", false, rouge_zh, jieba_load},
	{"classification", "the right class among those named in the first line", "LongBench metrics.py classification_score", false,
		classification},
	{"count", "share of the answer's numbers which are right", "LongBench metrics.py count_score", false, count_number},
	{"retrieval", "share of the answer's numbers which are the paragraph's", "LongBench metrics.py retrieval_score", false, retrieval},
	{"retrieval_zh", "as retrieval, Chinese", "LongBench metrics.py retrieval_zh_score", false, retrieval_zh},
	{"code_sim", "similarity of a line of code, difflib", "LongBench metrics.py code_sim_score", false, code_sim},
	{"code_sim_indel", "as code_sim where python-Levenshtein is installed", "LongBench metrics.py code_sim_score", false,
		code_sim_indel},
	{"code_sim_skip_blank", "as code_sim, blank lines left out", "lm-evaluation-harness #3921", false, code_sim_skip_blank},
	{"longbench_v2", "the letter of the right choice", "LongBench v2 pred.py extract_answer", true, longbench_v2},
	{"substring", "is the gold text found in the answer, case and all", "SCBench compute_scores.py get_score_one_kv_retrieval", true,
		substring},
	{"kv_record", "always 0: upstream looks for the gold text among a record's keys", "SCBench compute_scores.py, repoqa_and_kv scdq",
		true, kv_record},
	{"contains_any", "is any gold text found in the answer, whatever the case", "SCBench get_score_one_longdialogue_qa_eng", true,
		contains_any},
	{"many_shot_upstream", "is any character of the gold text found in the answer", "SCBench get_score_one_longdialogue_qa_eng",
		true, many_shot_upstream},
	{"many_shot_strict", "the letter in parentheses is the gold one", "ours, after KVzip", true, many_shot_strict},
	{"vt_match", "string_match_all, each row rounded to 2 decimals", "SCBench string_match_all", false, vt_match},
	{"qa_chn_upstream", "F1 over characters, each character of the gold text a gold answer", "SCBench qa_f1_score_zh", false,
		qa_chn_upstream},
	{"qa_chn", "F1 over characters, best of the gold answers", "InfiniteBench qa_f1_score_zh", false, qa_chn},
	{"choice_abcd", "the option or its letter", "SCBench get_score_one_longbook_choice_eng", true, choice_abcd},
	{"first_number", "the answer's first number, cut to a whole one, is the gold one", "SCBench get_score_one_math_find", true,
		first_number},
	{"first_integer", "the answer's first digits are the gold text", "SCBench get_score_one_passkey", true, first_integer},
	{"rouge_lsum", "ROUGE-Lsum of Google's rouge_score", "SCBench get_score_one_longbook_sum_eng", false, rouge_lsum},
	{"repoqa", "the function asked for, BLEU-4 at least 0.8 and the best of its repository", "SCBench repo_qa_utils.py", true, repoqa},
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

int metric_prepare(const struct metric_def *m, char err[ERR_LEN])
{
	return m->prepare ? m->prepare(err) : 0;
}
