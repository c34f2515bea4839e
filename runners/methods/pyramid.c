/* pyramid.c: PyramidKV (arXiv 2406.02069): lower layers keep more, the budget falls linearly with the layer. spec/methods.md 2.2.
 *
 * beta 20: KVCache-Factory's runner, and kvpress. The shared part is what lies above the protected window.
 * Differences: both references round each layer on its own (Factory's floored step leaves the sum above layers * capacity;
 * kvpress falls back to equal budgets without a word wherever the smallest layer would be below the window, which at 4k tokens is
 * any r < .31). Ours rounds by largest remainder, so the sum is exact, and never falls back. compat=factory and compat=kvpress
 * are those two, as they are. */
#include "runners/methods/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void pyramid_exact(int layers, int64_t n, int64_t window, int64_t keep, double beta, int64_t *budget)
{
	double b = (double)(keep - window), low = b / beta, room = (double)(n - window);
	if (low < 1)
		low = 1;
	if (low > b)
		low = b;
	double high = 2 * b - low;
	if (high >= room) {
		high = room;
		low = 2 * b - high;
	}
	double *raw = mem_new((size_t)layers, sizeof(*raw));
	for (int l = 0; l < layers; l++)
		raw[l] = layers == 1 ? b : high - l * (high - low) / (layers - 1);
	share_out(raw, layers, layers * (keep - window), budget);
	for (int l = 0; l < layers; l++)
		budget[l] += window;
	free(raw);
}

void pyramid_kvpress(int layers, int64_t n, int64_t window, double retained, double beta, int64_t *budget)
{
	double kept = (double)n * (1 - evicted_share(retained)), capacity = (double)window + kept;
	double low = (capacity - (double)window) / beta, high = (capacity - (double)window) * 2 - low;
	if (high >= (double)(n - window)) {
		high = (double)(n - window);
		low = (capacity - (double)window) * 2 - high;
	}
	bool flat = !((double)n >= high && high >= low && low >= (double)window);
	double step = layers > 1 ? (high - low) / (layers - 1) : 0;
	for (int l = 0; l < layers; l++) /* rint: Python's round */
		budget[l] = flat ? (int64_t)fmax(1, rint(kept)) : (int64_t)rint(high - l * step);
}

void pyramid_factory(int layers, int64_t n, int64_t window, int64_t capacity, int64_t beta, int64_t *budget)
{
	int64_t b = capacity - window, low = b / beta, high = 2 * b - low;
	if (high >= n - window) {
		high = n - window;
		low = 2 * b - high;
	}
	int64_t step = layers > 1 ? (high - low) / (layers - 1) : 0;
	for (int l = 0; l < layers; l++) {
		if (n < capacity)
			budget[l] = n;
		else if (n < 2 * b || layers == 1)
			budget[l] = capacity;
		else
			budget[l] = high - l * step + window;
	}
}

static int allocate(struct allocation *a, char err[ERR_LEN])
{
	(void)err;
	int64_t *layer = mem_new((size_t)a->layers, sizeof(*layer)), window = a->protect.first + a->protect.last;
	double beta = param_real(a->params, "beta");
	const char *compat = param_compat(a->params);
	if (strcmp(compat, "kvpress") == 0)
		pyramid_kvpress(a->layers, a->n, window, a->retained, beta, layer); /* rounds even below the window */
	else if (a->keep < window)
		for (int l = 0; l < a->layers; l++)
			layer[l] = a->keep;
	else if (strcmp(compat, "factory") == 0)
		pyramid_factory(a->layers, a->n, window, a->keep, (int64_t)beta, layer);
	else
		pyramid_exact(a->layers, a->n, window, a->keep, beta, layer);
	for (int i = 0; i < a->layers * a->kv_heads; i++)
		a->budget[i] = layer[i / a->kv_heads];
	free(layer);
	return 0;
}

static const char *unfit_beta(const struct plan_method *m)
{
	double beta = param_real(m->params, "beta");
	return strcmp(param_compat(m->params), "factory") == 0 && beta != floor(beta) ? "must be whole with compat=factory" : NULL;
}

static const struct param_def defs[] = {
	{.name = "beta", .kind = PARAM_REAL, .number = 20, .min = 1, .max = 1e6, .unfit = unfit_beta, .origin = "KVCache-Factory's runner, kvpress"},
	{NULL}};
static const struct compat_mode modes[] = {{"factory", NULL}, {NULL, NULL}};

const struct allocator allocator_pyramid = {.name = "pyramid",
	.title = "falling linearly from the first layer to the last",
	.origin = "PyramidKV, arXiv 2406.02069",
	.params = defs,
	.compat = modes,
	.allocate = allocate,
	.any_keep = true,
	.exact = true};
