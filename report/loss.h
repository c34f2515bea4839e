/* loss.h: what pruning costs against the full cache over all tasks of a setting, method by method and ratio by ratio: the numbers
 * behind "which method should I ship at which ratio". Inside report/ only.
 *
 * The loss is the mean over panels (tasks and lengths) of the mean score difference on the samples that both answered. Its 95 %
 * interval resamples whole contexts inside each panel. Where few scores differ, or none, or all, a bootstrap claims more than the rows
 * say (a method that lost one answer would be surer than one that lost none): to either side the interval reaches at least as far as n
 * answers without a difference allow, 1 - .025^(1/n). Answers about one context are not independent: n is their number over
 * the design effect that the setting's other cells show (squared ratio of the clustered to the plain standard error), or, where no cell
 * shows a change, the number of contexts.
 */
#ifndef KVB_REPORT_LOSS_H
#define KVB_REPORT_LOSS_H

#include "report/data.h"

/* Points of score (of 100) that a method may lose and still "holds". */
enum { LOSS_MARGIN = 5 };
/* A first token that comes later than this many hundredths of the full cache's is slow. */
enum { LOSS_SLOW = 150 };

enum loss_class { NOT_MEASURED, HOLDS, UNDECIDED, LOSES };

struct loss {
	enum loss_class class;
	struct interval change; /* score - full's: negative = worse; lo, hi NAN where it cannot be told */
	double score;         /* mean of panel means */
	double ttft;          /* of full, median over the panels timed at ttft_ppm; NAN = none */
	int ttft_ppm;         /* this ratio, or the nearest that was timed */
	double kept;          /* realised share, mean over panels */
	int panels;           /* compared; fewer than the setting has = a part */
	int samples, better, worse;
	bool whole;           /* all panels of the setting, all their samples */
};

struct losses {
	struct loss *v;    /* [n_settings][n_variants][n_ppm] */
	int *panels;          /* of each setting: those with a full cache's scores */
	int n_variants, n_ppm;
};
void losses_make(struct losses *out, const struct data *d);
void losses_free(struct losses *v);
const struct loss *loss_at(const struct losses *v, int setting, int variant, int ratio_index);

/* The smallest ratio below 1 at which a method (no control) holds over all panels, the best there; with fast: only those whose time
 * to first token is known and not slow. false: none. */
struct pick {
	int variant, ratio; /* index into ppm */
	const struct loss *loss;
};
bool loss_pick(const struct losses *v, const struct data *d, int setting, bool fast, struct pick *out);
/* The least loss at any ratio below 1, for when nothing holds. */
bool loss_nearest(const struct losses *v, const struct data *d, int setting, struct pick *out);

#endif
