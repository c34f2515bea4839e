/* train.h: training of LKV end to end by self-distillation of a frozen model, and its cheap rival, the same network regressed on
 * KVzip scores. spec/proxykv-lkv.md 2.3, 2.4.
 *
 * A step: one context, up to `tails` of its questions, one R of the list; utilities -> Soft-TopK gates -> student pass over the
 * tails; loss = KL(full cache || gated) on answer positions; the gradient reaches the gates through tail.h and the networks from
 * there. The context itself is prefilled once, before the first step. Same seed, same samples: same weights, for any number of
 * threads. Owns nothing of its caller's; leaves out where contexts come from (runners/lkv_train.c) and the file (file.h). */
#ifndef KVB_LKV_TRAIN_H
#define KVB_LKV_TRAIN_H

#include "runners/lkv/frozen.h"
#include "runners/lkv/net.h"

/* A question with its answer (or a stretch of text): ids[answer .. n) are predicted; answer >= 1. */
struct lkv_tail {
	int32_t *ids;
	int n, answer;
};
struct lkv_sample {
	int64_t prefix, context; /* rows of kv: [prefix | context]; only the context's are gated */
	struct lkv_tail *tail;
	int n_tails;
	const struct kv *kv;
	float *teacher;     /* [answer positions of all tails][hidden], filled by lkv_teach */
	const float *kvzip; /* [G][context] scores: distillation and its start; else NULL */
};
enum { LKV_RATES = 8 };
struct lkv_recipe {
	struct lkv_shape shape;
	double rates[LKV_RATES]; /* R of a step: one drawn; 0 ends the list */
	double tau0, tau1;       /* of the gates, geometric */
	double gumbel;           /* noise on the utilities, in units of tau */
	int steps, tails;
	double lr_t, lr_h, warm, clip; /* warm: share of the steps */
	int distil_steps;              /* of the distillation alone (kind kv-mlp, or the start of another when > 0) */
	double distil_lr;
	uint64_t seed;
};
/* The defaults of a kind. The shape's model sizes are the caller's. */
struct lkv_recipe lkv_recipe_default(enum lkv_kind kind);

struct lkv_progress {
	const char *phase; /* "distil" | "train" */
	int step, steps;   /* step from 1 */
	double loss, lr, tau, R, seconds;
};
struct lkv_hooks {
	void *user;
	void (*step)(void *user, const struct lkv_progress *p); /* after every step; may be NULL */
	bool (*stop)(void *user);                               /* before every step; may be NULL */
	const char *checkpoint; /* written every `every` steps and when stopped, read at the start; NULL = none */
	int every;
};

/* The teacher's hidden states of one sample's answer positions. */
int lkv_teach(struct frozen *f, struct lkv_sample *s, char err[ERR_LEN]);
/* Input statistics over the first samples, as many as 16. */
int lkv_statistics(struct lkv_net *net, struct frozen *f, const struct lkv_sample *s, int n, char err[ERR_LEN]);
/* Trains a new network by the recipe: statistics, distillation if asked for, then end to end (not for kv-mlp). 0, 1 = stopped
 * (the checkpoint holds what was done), -1. */
int lkv_train(struct lkv_net **out, struct frozen *f, const struct lkv_sample *s, int n, const struct lkv_recipe *r,
	const struct lkv_hooks *hooks, char err[ERR_LEN]);
/* KL(full || gated) of one sample for given log gates [G][prefix + context], over all its tails: evaluation and tests. */
int lkv_loss(struct frozen *f, const struct lkv_sample *s, const float *logm, double *loss, char err[ERR_LEN]);
/* Utilities of a sample's context entries: u [G][context]. */
int lkv_sample_utilities(const struct lkv_net *net, struct frozen *f, const struct lkv_sample *s, float *u, char err[ERR_LEN]);
/* One step's loss and gradient (added to grad [net->trained]) without noise: what the tests check by finite differences. */
int lkv_gradient(const struct lkv_net *net, struct frozen *f, const struct lkv_sample *s, double R, double tau, double *loss,
	float *grad, char err[ERR_LEN]);

#endif
