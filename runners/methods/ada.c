/* ada.c: Ada-KV (arXiv 2407.11550): a layer's budget goes to its KV heads by where the layer's best scores lie.
 * spec/methods.md 2.3.
 *
 * B = budget without the protected entries. count_c = how many of the layer's best (heads * B) candidates lie in head c; every
 * head is given alpha*B and shares the rest: count_c * (1 - alpha) + alpha * B. alpha .2: the authors' command line (their config
 * class says .5), and kvpress. normalise off: the authors' default. Differences: the authors truncate alpha*B and round each head
 * (the sum drifts, mostly below): ours is the largest remainder, exact. compat=adakv is theirs. compat=kvpress instead makes the
 * best trunc(keep * alpha) of each head (protected entries counted in it, at least 1 unless alpha is 0) safe and ranks the rest of the
 * layer together. */
#include "runners/methods/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ada_task {
	struct allocation *a;
	bool counted;        /* budget holds each layer's counts already: the device made them */
	_Atomic bool failed; /* layers run on several threads */
};

/* The layer's candidates, changed: scaled by the share of a head's mass that its best B hold, or with the best `safe` lifted
 * above all. */
static float *changed_scores(struct slices s, int64_t b, bool normalise, int64_t safe)
{
	float *out = malloc((size_t)(s.count * s.len) * sizeof(*out) + 1);
	int64_t most = normalise && b > safe ? b : safe;
	int32_t *best = malloc((size_t)most * sizeof(*best) + 1);
	if (!out || !best) {
		free(out);
		free(best);
		return NULL;
	}
	for (int64_t c = 0; c < s.count; c++) {
		const float *in = s.scores + c * s.stride;
		float *row = out + c * s.len, scale = 1;
		if (normalise) {
			double top = 0, all = 0;
			top_k(in, s.len, b, best);
			for (int64_t j = 0; j < b && j < s.len; j++)
				top += in[best[j]];
			for (int64_t j = 0; j < s.len; j++)
				all += in[j];
			scale = all > 0 ? (float)(top / all) : 1;
		}
		for (int64_t j = 0; j < s.len; j++)
			row[j] = in[j] * scale;
		top_k(in, s.len, safe, best);
		for (int64_t j = 0; j < safe; j++)
			row[best[j]] = INFINITY;
	}
	free(best);
	return out;
}

/* Entries of each head that compat=kvpress lifts above all. */
static int64_t safe_each(const struct allocation *a)
{
	int64_t held = a->protect.first + a->protect.last, b = a->keep - held;
	double alpha = param_real(a->params, "alpha");
	int64_t safe = strcmp(param_compat(a->params), "kvpress") == 0 && alpha > 0
			       ? (int64_t)fmax(1, trunc((double)a->keep * alpha)) - held
			       : 0;
	return safe < 0 ? 0 : safe < b ? safe : b;
}

static void share_layer(void *arg, int64_t l)
{
	struct ada_task *task = arg;
	struct allocation *a = task->a;
	const char *compat = param_compat(a->params);
	double alpha = param_real(a->params, "alpha");
	int64_t held = a->protect.first + a->protect.last, b = a->keep - held, *budget = a->budget + l * a->kv_heads;
	struct slices s = candidates(a, (int)l * a->kv_heads, a->kv_heads);
	bool kvpress = strcmp(compat, "kvpress") == 0, normalise = param_bool(a->params, "normalise");
	int64_t safe = safe_each(a);
	float *own = NULL;
	if (normalise || safe > 0) {
		own = changed_scores(s, b, normalise, safe);
		if (!own) {
			task->failed = true;
			return;
		}
		s.scores = own;
		s.stride = s.len;
	}
	if (!task->counted)
		top_counts(NULL, s, a->kv_heads * b, budget);
	if (strcmp(compat, "adakv") == 0) {
		for (int c = 0; c < a->kv_heads; c++) {
			double cap = rint((double)budget[c] * (1 - alpha) + trunc((double)b * alpha));
			budget[c] = cap < (double)s.len ? (int64_t)cap : s.len;
		}
	} else if (!kvpress) {
		double *raw = mem_new((size_t)a->kv_heads, sizeof(*raw));
		for (int c = 0; c < a->kv_heads; c++)
			raw[c] = (double)budget[c] * (1 - alpha) + (double)b * alpha;
		share_out(raw, a->kv_heads, a->kv_heads * b, budget);
		free(raw);
	}
	for (int c = 0; c < a->kv_heads; c++)
		budget[c] += held;
	free(own);
}

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	struct ada_task task = {
		.a = a, .counted = candidates_resident(a) && !param_bool(a->params, "normalise") && safe_each(a) == 0};
	int64_t b = a->keep - a->protect.first - a->protect.last;
	for (int l = 0; l < a->layers && task.counted; l++)
		if (resident_counts(a, l * a->kv_heads, a->kv_heads, a->kv_heads * b, a->budget + l * a->kv_heads, err))
			return -1;
	if (a->device)
		device_parallel(a->device, a->layers, share_layer, &task);
	else
		for (int l = 0; l < a->layers; l++)
			share_layer(&task, l);
	return task.failed ? err_set(err, "out of memory: scores of one layer, %lld entries", (long long)(a->kv_heads * a->n))
			   : 0;
}

static const char *unfit_alpha(const struct plan_method *m)
{
	return m->scorer->heads_alike ? "changes nothing: this scorer gives all heads of a layer the same scores" : NULL;
}

static const char *unfit_normalise(const struct plan_method *m)
{
	static const char *const by_mass[] = {[MASS_ALIKE] = "changes nothing: this scorer gives all heads the same share",
		[MASS_NONE] = "takes shares of a sum: this scorer's scores can be negative"};
	return param_real(m->params, "alpha") == 1 ? "changes nothing with alpha=1" : by_mass[m->scorer->mass];
}

static const struct param_def defs[] = {
	{.name = "alpha", .kind = PARAM_REAL, .number = .2, .min = 0, .max = 1, .unfit = unfit_alpha, .origin = "Ada-KV's command line, kvpress"},
	{.name = "normalise", .kind = PARAM_BOOL, .number = 0, .unfit = unfit_normalise, .origin = "Ada-KV's default"}, {NULL}};
static const struct compat_mode modes[] = {{"adakv", NULL}, {NULL, NULL}};

const struct allocator allocator_ada = {.name = "ada",
	.title = "a layer's budget, shared among its KV heads by their best scores",
	.origin = "Ada-KV, arXiv 2407.11550",
	.params = defs,
	.compat = modes,
	.allocate = allocate,
	.exact = true};
