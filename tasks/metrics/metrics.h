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

/* Reads one code point at *p and moves *p behind it; a byte which is not UTF-8 counts as U+FFFD. 0 at the end. */
int32_t text_next(const char **p);
void text_put(struct strbuf *b, int32_t code);
bool text_is_space(int32_t code); /* str.isspace */
bool text_is_word(int32_t code);  /* \w of re, less the underscore */
/* str.lower, but for the final sigma. Appends to b. */
void text_lower(struct strbuf *b, const char *s);
/* str.strip: moves *s to the first character that is not white space, returns the bytes up to the last such. */
size_t text_strip(const char **s);

#endif
