/* jieba.h: jieba's word segmentation (accurate mode, HMM on), token for token that of the Python package 0.42.1.
 *
 * The dictionary and the HMM's tables are read from Debian's package python3-jieba (or from the folder KVB_JIEBA names) at the
 * first load, once for the process; nothing of them is here. */
#ifndef KVB_JIEBA_H
#define KVB_JIEBA_H

#include "harness/base/base.h"

/* 0, or -1 with an error that names the package. Any thread, any number of times; err may be NULL. */
int jieba_load(char err[ERR_LEN]);
/* Calls token for each token of the text in order, with a piece of text itself: together they are the text. Not without load. */
void jieba_cut(const char *text, void (*token)(void *user, const char *token, size_t len), void *user);

#endif
