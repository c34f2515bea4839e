/* bench.c: what this machine can do and what we get: peaks first, then each figure as a share of its peak.
 *
 * Best of several repetitions, wall clock; peaks are measured in the same run, since machines differ from day to day. GEMM and attention
 * count the arithmetic a perfect kernel needs (attention: the causal half). Decoding counts the bytes of weights and cache that
 * one token must read, against the measured read bandwidth. Leaves out: peers (the next issue). */
#include "runners/runner_impl.h"

#include <math.h>
#include <stdlib.h>

struct bench {
	struct device *device;
	struct queue *queue;
	struct forward *forward;
	const struct model_config *config;
	struct device_peaks peaks;
	double peak_flops; /* of the precision in use */
	void (*row)(void *user, const struct runner_bench_row *);
	void *user;
};

static void report(struct bench *b, const char *name, double value, const char *unit, double of_peak)
{
	struct runner_bench_row r = {.value = value, .of_peak = of_peak};
	snprintf(r.name, sizeof r.name, "%s", name);
	snprintf(r.unit, sizeof r.unit, "%s", unit);
	b->row(b->user, &r);
}

/* Seconds of the fastest of several runs: at least three, about half a second in all. */
static double best_of(int (*run)(void *arg), void *arg)
{
	double best = INFINITY;
	int64_t begin = clock_ns();
	for (int i = 0; i < 50 && (i < 3 || clock_ns() - begin < 500000000); i++) {
		int64_t t = clock_ns();
		if (run(arg))
			return NAN;
		double s = (double)(clock_ns() - t) * 1e-9;
		best = s < best ? s : best;
	}
	return best;
}

static int noise_rows(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	int64_t cols = *(int64_t *)user;
	struct rng r = rng_seed(1, (uint64_t)row0);
	for (int64_t i = 0; i < n * cols; i++)
		out[i] = (float)(rng_unit(&r) - .5) * .1f;
	(void)err;
	return 0;
}

struct gemm {
	struct queue *queue;
	struct tensor *x, *y;
	struct weight *w;
	int64_t m, n;
};

static int gemm_run(void *arg)
{
	struct gemm *g = arg;
	return op_linear(g->queue, g->y, g->x, g->w, NULL, 0, g->n, false, g->m) || queue_sync(g->queue);
}

static void gemm_bench(struct bench *b, const char *what, int64_t m, int64_t k, int64_t n)
{
	char err[ERR_LEN], name[64];
	struct gemm g = {b->queue, tensor_new(b->device, m, k), tensor_new(b->device, m, n), weight_new(b->device, n, k, noise_rows, &k, err), m, n};
	if (g.x && g.y && g.w && !tensor_fill(b->queue, g.x, .5f)) {
		double s = best_of(gemm_run, &g), flops = 2.0 * (double)m * (double)k * (double)n;
		snprintf(name, sizeof name, "gemm %s %lldx%lldx%lld", what, (long long)m, (long long)k, (long long)n);
		report(b, name, flops / s * 1e-9, "GFLOP/s", flops / s / b->peak_flops);
	}
	tensor_free(g.x);
	tensor_free(g.y);
	weight_free(g.w);
}

struct attention {
	struct bench *b;
	struct tensor *qkv, *out;
	struct kv *kv;
	int64_t t;
};

static int attention_run(void *arg)
{
	struct attention *a = arg;
	struct attn_seq s = {0, a->t, NULL, NULL, a->kv, 0};
	return op_attention(a->b->queue, 0, &s, 1, a->out, a->qkv, 0, a->b->config->heads, NULL) || queue_sync(a->b->queue);
}

static void attention_bench(struct bench *b, int64_t t)
{
	const struct model_config *c = b->config;
	int64_t hd = (int64_t)c->heads * c->head_dim, kd = (int64_t)c->kv_heads * c->head_dim;
	int64_t *cap = mem_new((size_t)c->kv_heads, sizeof *cap);
	for (int h = 0; h < c->kv_heads; h++)
		cap[h] = t;
	struct attention a = {b, tensor_new(b->device, t, hd + 2 * kd), tensor_new(b->device, t, hd), kv_new(b->device, 1, c->kv_heads, c->head_dim, cap), t};
	float *host = mem_new((size_t)(hd + 2 * kd) * (size_t)t, sizeof *host);
	struct rng r = rng_seed(2, 0);
	for (int64_t i = 0; i < (hd + 2 * kd) * t; i++)
		host[i] = (float)(rng_unit(&r) * 4 - 2);
	struct attn_seq s = {0, t, NULL, NULL, a.kv, 0};
	if (a.qkv && a.out && a.kv && !tensor_write(b->queue, a.qkv, 0, t, host) && !op_kv_append(b->queue, 0, &s, 1, a.qkv, hd, hd + kd)) {
		double sec = best_of(attention_run, &a), flops = 2.0 * (double)hd * (double)t * (double)(t + 1);
		char name[64];
		snprintf(name, sizeof name, "attention %d/%d x %d, T %lld", c->heads, c->kv_heads, c->head_dim, (long long)t);
		report(b, name, flops / sec * 1e-9, "GFLOP/s", flops / sec / b->peak_flops);
	}
	free(host);
	free(cap);
	tensor_free(a.qkv);
	tensor_free(a.out);
	kv_free(a.kv);
}

static struct kv *bench_cache(struct bench *b, int64_t tokens)
{
	int n = b->config->layers * b->config->kv_heads;
	int64_t *cap = mem_new((size_t)n, sizeof *cap);
	for (int i = 0; i < n; i++)
		cap[i] = tokens;
	struct kv *kv = kv_new(b->device, b->config->layers, b->config->kv_heads, b->config->head_dim, cap);
	free(cap);
	return kv;
}

/* FLOPs of a prefill of t tokens: linear layers, causal attention, LM head of one row. */
static double prefill_flops(const struct model_config *c, double t)
{
	double d = c->head_dim, p = c->layers * (2.0 * c->hidden * c->heads * d + 2.0 * c->hidden * c->kv_heads * d + 3.0 * c->hidden * c->ffn);
	return 2 * p * t + 2.0 * c->layers * c->heads * d * t * t + 2.0 * c->hidden * c->vocab;
}

static double prefill_seconds(struct bench *b, struct kv *kv, const int32_t *ids, int64_t t, int repetitions, char err[ERR_LEN])
{
	double best = INFINITY;
	for (int i = 0; i < repetitions; i++) {
		int32_t next;
		kv_truncate(kv, 0);
		int64_t start = clock_ns();
		if (forward_prefill(b->forward, ids, t, kv, NULL, 0, &next, NULL, NULL, NULL, err))
			return NAN;
		double s = (double)(clock_ns() - start) * 1e-9;
		best = s < best ? s : best;
	}
	return best;
}

static double decode_seconds(struct bench *b, struct kv *kv, int64_t depth, int tokens, char err[ERR_LEN])
{
	double best = INFINITY;
	for (int i = 0; i < 3; i++) {
		int32_t id = 1;
		kv_truncate(kv, depth);
		int64_t start = clock_ns();
		for (int t = 0; t < tokens; t++) {
			struct forward_seq s = {&id, 1, depth + t, NULL, NULL, kv};
			if (forward_run(b->forward, &s, 1, NULL, 0, &id, NULL, err))
				return NAN;
		}
		double s = (double)(clock_ns() - start) * 1e-9 / tokens;
		best = s < best ? s : best;
	}
	return best;
}

static int model_bench(struct bench *b, char err[ERR_LEN])
{
	static const int64_t lengths[] = {512, 2048, 4096};
	const struct model_config *c = b->config;
	enum { DECODE = 32 };
	int64_t longest = lengths[2];
	struct kv *kv = bench_cache(b, longest + DECODE);
	int32_t *ids = mem_new((size_t)longest, sizeof *ids);
	struct rng r = rng_seed(3, 0);
	char name[64];
	for (int64_t i = 0; i < longest; i++)
		ids[i] = (int32_t)rng_below(&r, (uint64_t)c->vocab);
	if (!kv) {
		free(ids);
		return err_set(err, "bench: %s", device_error(b->device));
	}
	double token_bytes = (double)forward_weight_bytes(c, b->device) - (c->tied ? 0.0 : (double)weight_bytes(b->device, c->vocab, c->hidden));
	double kv_token = (double)kv_bytes_for(b->device, c->head_dim, (int64_t)c->layers * c->kv_heads);
	double sec = decode_seconds(b, kv, 0, DECODE, err);
	report(b, "decode, depth 0", 1 / sec, "tokens/s", token_bytes / sec / b->peaks.read_bytes);
	for (int i = 0; i < 3; i++) {
		int64_t t = lengths[i];
		sec = prefill_seconds(b, kv, ids, t, 3, err);
		snprintf(name, sizeof name, "prefill %lld", (long long)t);
		report(b, name, (double)t / sec, "tokens/s", prefill_flops(c, (double)t) / sec / b->peak_flops);
	}
	sec = decode_seconds(b, kv, longest, DECODE, err);
	report(b, "decode, depth 4096", 1 / sec, "tokens/s", (token_bytes + kv_token * (double)longest) / sec / b->peaks.read_bytes);
	report(b, "peak memory", (double)device_peak_bytes(b->device) / (1 << 20), "MiB", NAN);
	kv_free(kv);
	free(ids);
	return 0;
}

int runner_bench(const char *target, const struct runner_options *o, void (*row)(void *user, const struct runner_bench_row *), void *user,
	char err[ERR_LEN])
{
	struct runner *r = NULL;
	struct runner_options opt = *o;
	opt.target = target;
	opt.chat_template = "raw";
	if (runner_open(&r, &opt, err))
		return -1;
	struct bench b = {.device = r->device, .queue = forward_queue(r->forward), .forward = r->forward, .config = forward_config(r->forward),
		.row = row, .user = user};
	const struct model_config *c = b.config;
	int64_t hd = (int64_t)c->heads * c->head_dim, kd = (int64_t)c->kv_heads * c->head_dim;
	device_peaks(b.device, &b.peaks);
	b.peak_flops = device_is_bf16(b.device) && b.peaks.dot_bf16 > b.peaks.fma_f32 ? b.peaks.dot_bf16 : b.peaks.fma_f32;
	report(&b, "peak fp32 FMA", b.peaks.fma_f32 * 1e-9, "GFLOP/s", NAN);
	if (b.peaks.dot_bf16 > 0)
		report(&b, "peak bf16 dot", b.peaks.dot_bf16 * 1e-9, "GFLOP/s", NAN);
	report(&b, "peak read", b.peaks.read_bytes * 1e-9, "GB/s", NAN);
	gemm_bench(&b, "qkv", 512, c->hidden, hd + 2 * kd);
	gemm_bench(&b, "gate-up", 512, c->hidden, 2 * (int64_t)c->ffn);
	gemm_bench(&b, "down", 512, c->ffn, c->hidden);
	attention_bench(&b, 2048);
	int rc = model_bench(&b, err);
	runner_close(r);
	return rc;
}
