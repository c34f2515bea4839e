/* bench.c: what this machine can do and what we get: peaks first, then each figure as a share of its peak.
 *
 * Everything is the best of at least three repetitions, wall clock, and peaks are measured in the same run, since machines differ from
 * day to day. GEMM, attention and prefill count the arithmetic a perfect kernel needs (attention: the causal half). Decoding counts the
 * bytes of weights and cache that one token must read, against the measured read bandwidth. Leaves out: pruning itself (timing.c). */
#include "runners/bench_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void bench_row(struct bench *b, const char *name, double value, const char *unit, double of_peak, double peer)
{
	struct runner_bench_row r = {.value = value, .of_peak = of_peak, .peer = peer, .ratio = value / peer};
	snprintf(r.name, sizeof r.name, "%s", name);
	snprintf(r.unit, sizeof r.unit, "%s", unit);
	b->options->row(b->options->user, &r);
}

int32_t *bench_ids(const struct bench *b, int64_t n)
{
	int32_t *ids = mem_new((size_t)n, sizeof *ids);
	struct rng r = rng_seed(3, 0);
	for (int64_t i = 0; i < n; i++)
		ids[i] = (int32_t)rng_below(&r, (uint64_t)b->config->vocab);
	return ids;
}

float *bench_values(uint64_t seed, int64_t n, float scale)
{
	float *x = mem_new((size_t)n, sizeof *x);
	struct rng r = rng_seed(seed, 0);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)(2 * rng_unit(&r) - 1) * scale;
	return x;
}

struct kv *bench_cache(struct bench *b, int layers, int64_t tokens)
{
	return cache_uniform(b->device, layers, b->config->kv_heads, b->config->head_dim, tokens);
}

/* Which rows: of those left, each is kept with the chance that gives exactly n in the end. */
static void choose_rows(int32_t *out, int32_t n, int64_t depth, struct rng *r)
{
	for (int64_t i = 0, kept = 0; i < depth && kept < n; i++)
		if (rng_below(r, (uint64_t)(depth - i)) < (uint64_t)(n - kept))
			out[kept++] = (int32_t)i;
}

struct kept *bench_view(struct bench *b, int layers, int64_t depth, double r, uint64_t seed)
{
	int n = layers * b->config->kv_heads;
	int32_t each = (int32_t)((double)depth * r), *rows = mem_new((size_t)n * (size_t)each, sizeof *rows), *len = mem_new((size_t)n, sizeof *len);
	const int32_t **index = mem_new((size_t)n, sizeof *index);
	for (int i = 0; i < n; i++) {
		struct rng g = rng_seed(seed, (uint64_t)i);
		choose_rows(rows + (int64_t)i * each, each, depth, &g);
		index[i] = rows + (int64_t)i * each;
		len[i] = each;
	}
	struct kept *k = kept_new(b->device, layers, b->config->kv_heads, len, index);
	free(rows);
	free(len);
	free(index);
	return k;
}

int bench_failed(const struct bench *b, const char *what, char err[ERR_LEN])
{
	return err_set(err, "bench: %s: %s", what, device_error(b->device));
}

static void bench_peaks(struct bench *b)
{
	b->peaks = peaks_best(b->device);
	b->peak_flops = peak_flops(b->device, &b->peaks);
	bench_row(b, "peak fp32 FMA", b->peaks.fma_f32 * 1e-9, "GFLOP/s", NAN, NAN);
	if (b->peaks.dot_bf16 > 0)
		bench_row(b, "peak bf16 dot", b->peaks.dot_bf16 * 1e-9, "GFLOP/s", NAN, NAN);
	bench_row(b, "peak read", b->peaks.read_bytes * 1e-9, "GB/s", NAN, NAN);
}

int runner_bench(const struct runner_options *o, const struct runner_bench_options *options, char err[ERR_LEN])
{
	struct runner *r = NULL;
	struct runner_options opt = *o;
	opt.target = o->target ? o->target : RUNNER_BENCH_TARGET;
	opt.chat_template = "raw";
	if (runner_open(&r, &opt, err))
		return -1;
	struct bench b = {.device = r->device, .queue = forward_queue(r->forward), .forward = r->forward,
		.config = forward_config(r->forward), .options = options};
	int rc = peers_open(&b, r->path, err);
	if (!rc) {
		bench_peaks(&b);
		rc = bench_kernels(&b, err) || bench_model(&b, err) ? -1 : 0;
	}
	peers_close(&b);
	runner_close(r);
	return rc;
}
