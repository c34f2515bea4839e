/* numbering.h: words to small numbers, the same word to the same number: what the scorers compare. */
#ifndef KVB_NUMBERING_H
#define KVB_NUMBERING_H

#include "harness/base/base.h"

struct numbering {    /* zero-initialised is empty */
	char **words; /* [n], in order of first sight */
	int *slots;   /* hash table: number + 1, 0 = free */
	int n, n_slots;
};
int numbering_of(struct numbering *s, const char *word, size_t len);
int numbering_find(const struct numbering *s, const char *word, size_t len); /* -1 = not there */
void numbering_free(struct numbering *s);

struct numbers { /* zero-initialised is empty */
	int *v;
	int n, cap;
};
void numbers_add(struct numbers *s, int number);

#endif
