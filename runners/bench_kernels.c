/* bench_kernels.c: single operations on the shapes of the target: GEMM and gemv, attention, column sums, reading through a view.
 *
 * Inside the window: the operation alone, its inputs packed and in memory before. */
#include "runners/bench_impl.h"

#include <math.h>
#include <stdlib.h>

/* Seconds of the fastest of many runs. NAN = a run failed. */
static double best_of(const struct bench *b, int (*run)(void *arg), void *arg)
{
	double best = INFINITY;
	int64_t begin = clock_ns();
	for (int i = 0; bench_again(i, BENCH_KERNELS, begin, b->options->seconds / 5); i++) {
		int64_t t = clock_ns();
		if (run(arg))
			return NAN;
		best = fmin(best, (double)(clock_ns() - t) * 1e-9);
	}
	return best;
}

/* ---- linear layers ---- */

static int noise_rows(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	int64_t cols = *(int64_t *)user;
	struct rng r = rng_seed(1, (uint64_t)row0);
	for (int64_t i = 0; i < n * cols; i++)
		out[i] = (float)(rng_unit(&r) - .5) * .1f;
	(void)err;
	return 0;
}

/* As the forward pass uses them: into plain rows, onto the residual stream, through SwiGLU into the next operand. */
enum gemm_form { GEMM_PLAIN, GEMM_ADD, GEMM_SWIGLU };
struct gemm {
	struct queue *queue;
	struct tensor *x, *y;
	struct weight *w;
	enum gemm_form form;
	int64_t m, n;
};

static int gemm_run(void *arg)
{
	struct gemm *g = arg;
	int rc = g->form == GEMM_SWIGLU ? op_linear_swiglu(g->queue, g->y, g->x, g->w, g->m)
					: op_linear(g->queue, g->y, g->x, g->w, NULL, 0, g->n, g->form == GEMM_ADD, g->m);
	return rc || queue_sync(g->queue);
}

/* One row is bound by reading W, several by arithmetic. */
static int gemm_bench(struct bench *b, const char *what, enum gemm_form form, int64_t m, int64_t k, int64_t n, char err[ERR_LEN])
{
	char name[64], why[ERR_LEN] = "";
	struct gemm g = {b->queue, operand_new(b->device, m, k), form == GEMM_SWIGLU ? operand_new(b->device, m, n / 2) : tensor_new(b->device, m, n),
		weight_new(b->device, n, k, noise_rows, &k, why), form, m, n};
	struct tensor *noise = tensor_new(b->device, m, k), *ones = tensor_new(b->device, 1, k);
	float *host = bench_values(3, m * k, 1);
	double s = NAN;
	if (g.x && g.y && g.w && noise && ones && !tensor_write(b->queue, noise, 0, m, host) && !tensor_fill(b->queue, ones, 1) &&
		!op_rmsnorm(b->queue, g.x, noise, ones, 1e-5f, m))
		s = best_of(b, gemm_run, &g);
	free(host);
	tensor_free(noise);
	tensor_free(ones);
	snprintf(name, sizeof name, "gemm %s %lldx%lldx%lld", what, (long long)m, (long long)k, (long long)n);
	double flops = 2.0 * (double)m * (double)k * (double)n, bytes = (double)weight_bytes(b->device, n, k);
	if (m == 1)
		bench_row(b, name, bytes / s * 1e-9, "GB/s", bytes / s / b->peaks.read_bytes, NAN);
	else
		bench_row(b, name, flops / s * 1e-9, "GFLOP/s", flops / s / b->peak_flops, NAN);
	tensor_free(g.x);
	tensor_free(g.y);
	weight_free(g.w);
	return isnan(s) ? bench_failed(b, name, err) : 0;
}

/* ---- attention of a whole prompt, and its column sums ---- */

struct attention {
	struct bench *b;
	struct tensor *qkv, *out, *lse, *sums;
	struct kv *kv;
	int64_t t;
};

static int attention_run(void *arg)
{
	struct attention *a = arg;
	struct attn_seq s = {0, a->t, NULL, NULL, a->kv, 0};
	return op_attention(a->b->queue, 0, &s, 1, a->out, a->qkv, 0, a->b->config->heads, a->lse) || queue_sync(a->b->queue);
}

static int sums_run(void *arg)
{
	struct attention *a = arg;
	struct key_set keys = {{{a->kv, 0, a->t}}, 1, true};
	return op_attn_reduce(a->b->queue, 0, &keys, 0, 0, a->t, a->qkv, 0, a->t, 0, a->b->config->heads, a->lse, 0, REDUCE_SUM, GROUP_NONE,
		       a->sums, 0) ||
	       queue_sync(a->b->queue);
}

static int attention_bench(struct bench *b, int64_t t, char err[ERR_LEN])
{
	const struct model_config *c = b->config;
	int64_t hd = (int64_t)c->heads * c->head_dim, kd = (int64_t)c->kv_heads * c->head_dim;
	struct attention a = {b, tensor_new(b->device, t, hd + 2 * kd), operand_new(b->device, t, hd), tensor_new(b->device, t, c->heads),
		tensor_new(b->device, c->heads, t), bench_cache(b, 1, t), t};
	float *host = bench_values(2, (hd + 2 * kd) * t, 2);
	struct attn_seq s = {0, t, NULL, NULL, a.kv, 0};
	double sec = NAN, extra = NAN, flops = 2.0 * (double)hd * (double)t * (double)(t + 1);
	char name[64];
	if (a.qkv && a.out && a.lse && a.sums && a.kv && !tensor_write(b->queue, a.qkv, 0, t, host) && !tensor_fill(b->queue, a.sums, 0) &&
		!op_kv_append(b->queue, 0, &s, 1, a.qkv, hd, hd + kd)) {
		sec = best_of(b, attention_run, &a);
		extra = best_of(b, sums_run, &a);
	}
	snprintf(name, sizeof name, "attention %d/%d x %d, T %lld", c->heads, c->kv_heads, c->head_dim, (long long)t);
	bench_row(b, name, flops / sec * 1e-9, "GFLOP/s", flops / sec / b->peak_flops, NAN);
	snprintf(name, sizeof name, "column sums on top of attention, T %lld", (long long)t);
	bench_row(b, name, 1e3 * extra, "ms", flops / 2 / extra / b->peak_flops, 1e3 * sec);
	free(host);
	tensor_free(a.qkv);
	tensor_free(a.out);
	tensor_free(a.lse);
	tensor_free(a.sums);
	kv_free(a.kv);
	return isnan(sec) || isnan(extra) ? bench_failed(b, name, err) : 0;
}

/* ---- one token's attention: through a view against the same rows in a cache of their own ---- */

struct reading {
	struct bench *b;
	struct kv *full, *compact, *tail;
	struct kept *kept;
	struct tensor *qkv, *out;
	bool view;
};

static int reading_run(void *arg) /* all layers: a cache of one layer would sit in the CPU's own */
{
	struct reading *r = arg;
	struct attn_seq s = {0, 1, r->view ? r->full : r->compact, r->view ? r->kept : NULL, r->tail, 0};
	for (int l = 0; l < r->b->config->layers; l++)
		if (op_attention(r->b->queue, l, &s, 1, r->out, r->qkv, 0, r->b->config->heads, NULL))
			return -1;
	return queue_sync(r->b->queue);
}

static int fill_cache(struct bench *b, struct kv *kv, int64_t tokens)
{
	float *x = bench_values(4, tokens * b->config->head_dim, 2);
	int rc = 0;
	for (int i = 0; i < b->config->layers * b->config->kv_heads && !rc; i++)
		rc = kv_write(b->queue, kv, i / b->config->kv_heads, i % b->config->kv_heads, tokens, x, x);
	free(x);
	return rc;
}

static int reading_bench(struct bench *b, int64_t depth, double share, char err[ERR_LEN])
{
	const struct model_config *c = b->config;
	int64_t cols = (int64_t)(c->heads + 2 * c->kv_heads) * c->head_dim;
	struct reading r = {.b = b, .full = bench_cache(b, c->layers, depth), .compact = bench_cache(b, c->layers, (int64_t)((double)depth * share)),
		.tail = bench_cache(b, c->layers, 1), .kept = bench_view(b, c->layers, depth, share, 5), .qkv = tensor_new(b->device, 1, cols),
		.out = tensor_new(b->device, 1, (int64_t)c->heads * c->head_dim)};
	double compact = NAN, view = NAN;
	char name[64];
	bool ready = r.full && r.compact && r.tail && r.kept && r.qkv && r.out && !fill_cache(b, r.full, depth) && !fill_cache(b, r.tail, 1) &&
		     !tensor_fill(b->queue, r.qkv, .5f);
	for (int l = 0; ready && l < c->layers; l++)
		ready = !kv_gather(b->queue, r.compact, r.full, r.kept, l);
	if (ready) {
		compact = view = INFINITY;
		for (int turn = 0; turn < 4; turn++) { /* by turns: what else the machine does then meets both */
			double *best = turn % 2 ? &view : &compact;
			r.view = turn % 2;
			*best = fmin(*best, best_of(b, reading_run, &r));
		}
		snprintf(name, sizeof name, "attention of a token, compact r %.1f of %lld", share, (long long)depth);
		bench_row(b, name, 1e6 * compact, "us", (double)kv_bytes(r.compact) / compact / b->peaks.read_bytes, NAN);
		snprintf(name, sizeof name, "attention of a token, view r %.1f of %lld", share, (long long)depth);
		bench_row(b, name, 1e6 * view, "us", (double)kv_bytes(r.compact) / view / b->peaks.read_bytes, 1e6 * compact);
	}
	kv_free(r.full);
	kv_free(r.compact);
	kv_free(r.tail);
	kept_free(r.kept);
	tensor_free(r.qkv);
	tensor_free(r.out);
	return isnan(view) || isnan(compact) ? bench_failed(b, "reading through a view", err) : 0;
}

int bench_kernels(struct bench *b, char err[ERR_LEN])
{
	const struct model_config *c = b->config;
	int64_t hd = (int64_t)c->heads * c->head_dim, kd = (int64_t)c->kv_heads * c->head_dim;
	int64_t f = ((int64_t)c->ffn + SWIGLU_TURN - 1) / SWIGLU_TURN * SWIGLU_TURN;
	return gemm_bench(b, "qkv", GEMM_PLAIN, 512, c->hidden, hd + 2 * kd, err) || gemm_bench(b, "o", GEMM_ADD, 512, hd, c->hidden, err) ||
	       gemm_bench(b, "gate-up", GEMM_SWIGLU, 512, c->hidden, 2 * f, err) ||
	       gemm_bench(b, "down", GEMM_ADD, 512, c->ffn, c->hidden, err) ||
	       gemm_bench(b, "head", GEMM_PLAIN, 1, c->hidden, c->vocab, err) || attention_bench(b, 512, err) || attention_bench(b, 2048, err) ||
	       reading_bench(b, 2048, .3, err)
		       ? -1
		       : 0;
}
