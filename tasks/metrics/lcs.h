/* lcs.h: the longest common subsequence of two lists of numbers, in bits: 64 cells of the usual table in one step, and of the
 * table never more than about 2 sqrt(rows) rows held, so that whole books can be compared. */
#ifndef KVB_LCS_H
#define KVB_LCS_H

struct lcs;
/* Scratch for lists of numbers in [0, n_numbers), the second of at most `most`. */
struct lcs *lcs_new(int n_numbers, int most);
void lcs_free(struct lcs *s);

int lcs_length(struct lcs *s, const int *x, int n, const int *y, int m);
/* Sets taken[j] where the way back through the table takes y[j]: from the end, equal numbers are taken; else one row up where the
 * number there is the larger one, else one place to the left. What is set already stays. */
void lcs_mark(struct lcs *s, const int *x, int n, const int *y, int m, char *taken);

#endif
