/* lost.h: what a run does when the device is lost to its process (a GPU's sticky error: after it every call fails; a new process may work).
 *
 * The rule. A job that lost the device while several methods ran in it is charged to none of them: the next process runs that context again,
 * one method after another, the controls first. A method that lost the device alone gets failed rows for what was still open of that
 * context; after two such losses without an answer of its own in between it is set aside: its other cells of this run are failed rows that
 * say so, nothing of it is run. So a method that always fails costs four processes and no cell of another method. Two *different* methods
 * in a row, by the same error and with no answer in between: it is the device that fails, and the sweep ends with that reason; what is
 * missing stays missing, and the same command tries it again. A model that lost the device while it was loaded gets failed rows in all its
 * cells and is not loaded again by this run; it counts as a method does: a second model, or a method, that loses the device next by the same
 * error ends the sweep. Out of memory is not a loss: it is a row, and the device goes on. On the CPU nothing is ever lost.
 *
 * What one process hands to the next stands in the environment (KVBENCH_LOST), read and removed when a run begins. The run keeps its id: it
 * is the same process to the system. Its rows are not asked for again, failed ones included. */
#ifndef KVB_LOST_H
#define KVB_LOST_H

#include "harness/plan.h"
#include "results/store.h"

struct sweep_summary;

struct lost {
	char run_id[33];         /* of the run that goes on; "" = a fresh one */
	char device[16];         /* what was lost ("cuda:0"); "" = nothing yet */
	char kind[64];           /* the error of the last loss that was charged to a method or a load; "" = none yet */
	char by[192];            /* that method; "loading TARGET (PRECISION)" */
	bool unanswered;         /* nothing was answered since */
	int *of_method;          /* [n_methods] losses of each since its last answer */
	int n_methods;
	char *apart;             /* the context to be run method by method: "cell id of variant 0, context id"; NULL = none */
	char (*untimed)[SHA_LEN]; /* cells that lost the device while they were timed */
	int n_untimed;
	struct lost_load {
		int load, cells, samples; /* of the plan's; what it has */
	} *unloaded;             /* loads that lost the device while weights went there: their cells have failed rows */
	int n_unloaded;
	char why[ERR_LEN];       /* not "": the sweep is given up */
};
/* From the environment, or fresh. lost_free also on a zeroed one. */
void lost_open(struct lost *l, const struct plan *p, struct sweep_summary *sum);
void lost_free(struct lost *l);

/* ---- what is so ---- */
bool lost_set_aside(const struct lost *l, int method);
bool lost_apart(const struct lost *l, const char *cell_id, const char *context_id);
bool lost_untimed(const struct lost *l, const char *cell_id);
bool lost_unloaded(const struct lost *l, int load);

/* ---- what happened ---- */
void lost_answered(struct lost *l, int method);
void lost_together(struct lost *l, const char *cell_id, const char *context_id); /* several methods in one job */
/* One method alone; timed_cell: while this cell was timed (NULL = answering). Sets why when the sweep is to end. */
void lost_alone(struct lost *l, const struct plan *p, int method, const char *kind, const char *timed_cell);
/* While a model was loaded, whose cells have their rows: name is for the reason. Sets why when the sweep is to end. */
void lost_loading(struct lost *l, const struct lost_load *load, const char *name, const char *kind);

/* Executes this program anew with the same arguments; the store must be closed. Returns only if that failed (err). */
int lost_restart(const struct lost *l, const char *run_id, const struct sweep_summary *sum, char err[ERR_LEN]);
/* What lost_restart hands over, as it stands in the environment then. */
void lost_hand_over(const struct lost *l, const char *run_id, const struct sweep_summary *sum);

#endif
