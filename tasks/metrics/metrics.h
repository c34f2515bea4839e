/* metrics.h: the scoring functions behind the table of metrics.c, and the text operations they share (text.c).
 *
 * Scores: struct metric_def in task.h. Text operations follow Python's str methods, because the published scorers are Python. */
#ifndef KVB_METRICS_H
#define KVB_METRICS_H

#include "tasks/task.h"

double string_match_all(const char *answer, char *const *gold, int n_gold);
double string_match_part(const char *answer, char *const *gold, int n_gold);
double exact(const char *answer, char *const *gold, int n_gold);
double qa_f1(const char *answer, char *const *gold, int n_gold);
double qa_f1_line(const char *answer, char *const *gold, int n_gold);
double qa_f1_zh(const char *answer, char *const *gold, int n_gold);
double rouge_l(const char *answer, char *const *gold, int n_gold);
double rouge_l_line(const char *answer, char *const *gold, int n_gold);
double rouge_zh(const char *answer, char *const *gold, int n_gold);
double classification(const char *answer, char *const *gold, int n_gold);
double count_number(const char *answer, char *const *gold, int n_gold);
double retrieval(const char *answer, char *const *gold, int n_gold);
double retrieval_zh(const char *answer, char *const *gold, int n_gold);
double code_sim(const char *answer, char *const *gold, int n_gold);
double code_sim_indel(const char *answer, char *const *gold, int n_gold);
double code_sim_skip_blank(const char *answer, char *const *gold, int n_gold);
/* SCBench. What a gold list holds is said in tasks/scbench; repoqa's in repoqa.c. */
double substring(const char *answer, char *const *gold, int n_gold);
double kv_record(const char *answer, char *const *gold, int n_gold);
double contains_any(const char *answer, char *const *gold, int n_gold);
double many_shot_upstream(const char *answer, char *const *gold, int n_gold);
double many_shot_strict(const char *answer, char *const *gold, int n_gold);
double vt_match(const char *answer, char *const *gold, int n_gold);
double qa_chn_upstream(const char *answer, char *const *gold, int n_gold);
double qa_chn(const char *answer, char *const *gold, int n_gold);
double choice_abcd(const char *answer, char *const *gold, int n_gold);
double first_number(const char *answer, char *const *gold, int n_gold);
double first_integer(const char *answer, char *const *gold, int n_gold);
double rouge_lsum(const char *answer, char *const *gold, int n_gold);
double repoqa(const char *answer, char *const *gold, int n_gold);
/* What RepoQA compares of an answer: a function, a code block, or all of it. The caller frees it. */
char *repoqa_function(const char *answer, const char *lang);
/* NLTK's sentence BLEU-4, smoothing method 4, words by white space. */
double bleu4(const char *candidate, const char *reference);
double longbench_v2(const char *answer, char *const *gold, int n_gold);

/* F1 of two multisets of words, both sorted by strcmp. */
double words_f1(char *const *p, int n_p, char *const *g, int n_g);
/* Gold answers for which rouge 1.0.1 would (about) overflow Python's stack and give 0: their and the answer's longest sentences
 * have 1000 words together. */
int rouge_deep_pairs(const char *answer, char *const *gold, int n_gold);
int rouge_zh_deep_pairs(const char *answer, char *const *gold, int n_gold); /* jieba is loaded */

/* Reads one code point at *p and moves *p behind it; a byte which is not UTF-8 counts as U+FFFD. 0 at the end. */
int32_t text_next(const char **p);
void text_put(struct strbuf *b, int32_t code);
bool text_is_space(int32_t code); /* str.isspace */
bool text_is_word(int32_t code);  /* \w of re, less the underscore */
bool text_is_digit(int32_t code); /* \d of re */
/* ASCII's and the Chinese list of LongBench and SCBench (which lacks some that one would expect, the opening mark of a title
 * too). */
bool text_is_punctuation_zh(int32_t code);
void text_lower(struct strbuf *b, const char *s); /* str.lower; appends to b */
void text_upper(struct strbuf *b, const char *s); /* str.upper; appends to b */
/* str.strip: moves *s to the first character that is not white space, returns the bytes up to the last such. */
size_t text_strip(const char **s);
/* A copy of len bytes; NUL, which no text here can hold, becomes U+0001: a control character too, and one token. */
char *text_without_nul(const char *s, size_t len);
/* The next word of str.split, ended in place; NULL = no more. */
char *text_split(char **rest);
/* LongBench's clean-up of few-shot answers: leading line ends off, then the first line. The caller frees it. */
char *text_first_line(const char *s);

/* A text as code points; at[i] is where v[i] begins in bytes, at[n] the text's length. */
struct codes {
	int32_t *v;
	size_t *at;
	int n;
};
struct codes text_codes(const char *s);
void codes_free(struct codes *c);

#endif
