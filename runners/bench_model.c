/* bench_model.c: prefill and decoding of the whole model, alone or by turns with the peers; the growth of prefill with length; a batch
 * of variants against one; where the time goes.
 *
 * Inside a prefill's window: token ids on the host to the first new token id. Inside a decoding's: BENCH_DECODE steps, each from an id
 * on the host to the next. */
#include "runners/bench_impl.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { DEPTH = 4096, VARIANTS = 32, VARIANT_DEPTH = 2048, VARIANT_STEPS = 8 };
static const double VARIANT_SHARE = .3;

struct model_run {
	struct bench *b;
	struct kv *kv;      /* rows for the longest prefill and some tokens more */
	int32_t *ids;       /* [tokens] */
	int64_t tokens;     /* the longest prefill */
	double token_bytes; /* weights one token reads */
	double kv_token;    /* bytes of K and V of one token */
};

/* FLOPs of a prefill of t tokens: linear layers, causal attention, LM head of one row. */
static double prefill_flops(const struct model_config *c, double t)
{
	return model_prefill_flops(c, t) + 2.0 * c->hidden * c->vocab;
}

/* One repetition of a figure. The cache must hold `depth` rows before a decoding. */
static int figure_run(struct model_run *m, const struct figure *f, double *seconds, char err[ERR_LEN])
{
	int32_t id = 1;
	kv_truncate(m->kv, f->depth);
	int64_t start = clock_ns();
	if (f->prompt) {
		if (forward_prefill(m->b->forward, m->ids, f->prompt, m->kv, NULL, 0, &id, NULL, NULL, NULL, err))
			return -1;
	} else
		for (int t = 0; t < BENCH_DECODE; t++) {
			struct forward_seq s = {&id, 1, f->depth + t, NULL, NULL, m->kv};
			if (forward_run(m->b->forward, &s, 1, NULL, 0, &id, NULL, err))
				return -1;
		}
	*seconds = (double)(clock_ns() - start) * 1e-9;
	return 0;
}

/* A peer's threads spin some milliseconds after their work (OpenMP's default): not on our time. */
static void peers_rest(const struct bench *b)
{
	if (b->peers)
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* Ours and each peer's by turns; a row of our own, then one with each peer. */
static int figure_bench(struct model_run *m, const struct figure *f, char err[ERR_LEN])
{
	struct bench *b = m->b;
	double best = INFINITY, peer[PEERS_MAX] = {INFINITY, INFINITY}, s, tokens = f->prompt ? (double)f->prompt : BENCH_DECODE, of_peak;
	char name[64], with[64];
	int64_t begin = clock_ns();
	for (int i = 0; bench_again(i, BENCH_FIGURES, begin, b->options->seconds); i++) {
		peers_rest(b);
		if (figure_run(m, f, &s, err))
			return -1;
		best = fmin(best, s);
		for (int p = 0; p < b->peers; p++) {
			if (peer_seconds(b->peer[p], f, &s, err))
				return -1;
			peer[p] = fmin(peer[p], s);
		}
	}
	if (f->prompt) {
		snprintf(name, sizeof name, "prefill %lld", (long long)f->prompt);
		of_peak = prefill_flops(b->config, tokens) / best / b->peak_flops;
	} else {
		snprintf(name, sizeof name, "decode, depth %lld", (long long)f->depth);
		of_peak = (m->token_bytes + m->kv_token * (double)f->depth) * tokens / best / b->peaks.read_bytes;
	}
	bench_row(b, name, tokens / best, "tokens/s", of_peak, NAN);
	for (int p = 0; p < b->peers; p++) {
		snprintf(with, sizeof with, "%.40s / %s", name, peer_name(b->peer[p]));
		bench_row(b, with, tokens / best, "tokens/s", of_peak, tokens / peer[p]);
	}
	return 0;
}

static int figures_bench(struct model_run *m, char err[ERR_LEN])
{
	static const int64_t lengths[] = {512, 2048, 4096, 8192};
	struct figure start = {0, 0}, deep = {0, m->tokens < DEPTH ? m->tokens : DEPTH};
	if (figure_bench(m, &start, err))
		return -1;
	for (int i = 0; i < 4; i++)
		if (lengths[i] <= m->tokens && figure_bench(m, &(struct figure){lengths[i], 0}, err))
			return -1;
	double ignored;
	if (kv_len(m->kv, 0, 0) < deep.depth && figure_run(m, &(struct figure){deep.depth, 0}, &ignored, err))
		return -1;
	return figure_bench(m, &deep, err);
}

/* ---- growth ---- */

/* Least squares of the relative error of t = a n + b n^2 over `points` measured (n, t). */
static void fit(const double *n, const double *t, int points, double *a, double *b)
{
	double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0;
	for (int i = 0; i < points; i++) {
		double x = n[i] / t[i], y = n[i] * n[i] / t[i];
		xx += x * x, xy += x * y, yy += y * y, x1 += x, y1 += y;
	}
	double det = xx * yy - xy * xy;
	*a = (x1 * yy - y1 * xy) / det;
	*b = (y1 * xx - x1 * xy) / det;
}

/* Seconds of each piece of RUNNER_ROWS tokens of one prefill of m->tokens, the best of the repetitions: then a disturbance of some
 * seconds spoils no point. */
static int pieces_time(struct model_run *m, double *seconds, int64_t pieces, char err[ERR_LEN])
{
	for (int64_t i = 0; i < pieces; i++)
		seconds[i] = INFINITY;
	for (int r = 0; r < BENCH_REPEAT; r++) {
		kv_truncate(m->kv, 0);
		for (int64_t i = 0; i < pieces; i++) {
			int64_t start = clock_ns();
			if (forward_prefill(m->b->forward, m->ids + i * RUNNER_ROWS, RUNNER_ROWS, m->kv, NULL, 0, NULL, NULL, NULL, NULL, err))
				return -1;
			seconds[i] = fmin(seconds[i], (double)(clock_ns() - start) * 1e-9);
		}
	}
	return 0;
}

static int growth_bench(struct model_run *m, char err[ERR_LEN])
{
	enum { POINTS_MAX = 16, FIRST = 1024 };
	int64_t pieces = m->tokens / RUNNER_ROWS;
	double *seconds = mem_new((size_t)(pieces ? pieces : 1), sizeof *seconds), n[POINTS_MAX], t[POINTS_MAX], sum = 0, a, b, worst = 0;
	int points = 0, rc = m->tokens < 4 * FIRST ? 0 : pieces_time(m, seconds, pieces, err);
	for (int64_t i = 0; !rc && m->tokens >= 4 * FIRST && i < pieces; i++) {
		int64_t done = (i + 1) * RUNNER_ROWS;
		sum += seconds[i];
		if (done % FIRST == 0 && !(done & (done - 1)) && points < POINTS_MAX) {
			n[points] = (double)done;
			t[points++] = sum;
		}
	}
	if (points >= 3) {
		char name[64];
		fit(n, t, points, &a, &b);
		for (int i = 0; i < points; i++) {
			double fitted = a * n[i] + b * n[i] * n[i];
			worst = fmax(worst, fabs(t[i] / fitted - 1));
			snprintf(name, sizeof name, "prefill time %.0f / fitted aT + bT^2", n[i]);
			bench_row(m->b, name, 1e3 * t[i], "ms", NAN, 1e3 * fitted);
		}
		bench_row(m->b, "fit a: a token's linear layers", 1e6 * a, "us", NAN, NAN);
		bench_row(m->b, "fit b: a pair's attention", 1e9 * b, "ns", NAN, NAN);
		bench_row(m->b, "fit, largest deviation", 100 * worst, "%", NAN, NAN);
	}
	free(seconds);
	return rc;
}

/* ---- a batch of variants ---- */

struct variants {
	struct kept *kept[VARIANTS];
	struct kv *tail[VARIANTS];
};

static int variants_run(struct model_run *m, struct variants *v, int n, double *seconds, char err[ERR_LEN])
{
	int32_t id[VARIANTS] = {0};
	struct forward_seq s[VARIANTS];
	for (int i = 0; i < n; i++)
		kv_truncate(v->tail[i], 0);
	int64_t start = clock_ns();
	for (int t = 0; t < VARIANT_STEPS; t++) {
		for (int i = 0; i < n; i++)
			s[i] = (struct forward_seq){&id[i], 1, VARIANT_DEPTH + t, m->kv, v->kept[i], v->tail[i]};
		if (forward_run(m->b->forward, s, n, NULL, 0, id, NULL, err))
			return -1;
	}
	*seconds = (double)(clock_ns() - start) * 1e-9 / VARIANT_STEPS;
	return 0;
}

static void variants_free(struct variants *v)
{
	for (int i = 0; i < VARIANTS; i++) {
		kept_free(v->kept[i]);
		kv_free(v->tail[i]);
	}
}

/* Views of m->kv, which holds VARIANT_DEPTH rows or more and is cut to so many. What there is must be freed after a failure, too. */
static int variants_new(struct model_run *m, struct variants *v, char err[ERR_LEN])
{
	struct bench *b = m->b;
	bool ready = true;
	*v = (struct variants){0};
	kv_truncate(m->kv, VARIANT_DEPTH);
	for (int i = 0; i < VARIANTS; i++) {
		v->kept[i] = bench_view(b, b->config->layers, VARIANT_DEPTH, VARIANT_SHARE, (uint64_t)i);
		v->tail[i] = bench_cache(b, b->config->layers, BENCH_DECODE);
		ready = ready && v->kept[i] && v->tail[i];
	}
	return ready ? 0 : bench_failed(b, "a batch of variants", err);
}

/* Milliseconds of a step of all variants against those of one. */
static int variants_bench(struct model_run *m, char err[ERR_LEN])
{
	struct bench *b = m->b;
	struct variants v;
	double one = INFINITY, all = INFINITY, s;
	int rc = variants_new(m, &v, err);
	int64_t begin = clock_ns();
	for (int r = 0; bench_again(r, BENCH_FIGURES, begin, b->options->seconds) && !rc; r++) {
		if (!(rc = variants_run(m, &v, 1, &s, err)))
			one = fmin(one, s);
		if (!rc && !(rc = variants_run(m, &v, VARIANTS, &s, err)))
			all = fmin(all, s);
	}
	if (!rc) {
		double cache = m->kv_token * VARIANT_DEPTH * VARIANT_SHARE;
		char name[64];
		bench_row(b, "step of 1 variant, r .3, depth 2048", 1e3 * one, "ms", (m->token_bytes + cache) / one / b->peaks.read_bytes, NAN);
		snprintf(name, sizeof name, "step of %d variants / step of 1", VARIANTS);
		bench_row(b, name, 1e3 * all, "ms", (m->token_bytes + VARIANTS * cache) / all / b->peaks.read_bytes, 1e3 * one);
	}
	variants_free(&v);
	return rc;
}

/* ---- where the time goes ---- */

struct profile_phase {
	struct bench *b;
	const char *name;
	int64_t ns, counted_ns; /* of the phase; of its operations so far */
};

static void profile_row(void *user, const struct device_profile_row *r)
{
	struct profile_phase *p = user;
	double ns = (double)r->ns, compute = r->flops / p->b->peak_flops * 1e9, memory = r->bytes / p->b->peaks.read_bytes * 1e9;
	struct runner_profile_row out = {.phase = p->name, .operation = r->name, .bound = compute > memory ? "arithmetic" : "memory",
		.calls = r->calls, .ns = r->ns, .share = ns / (double)p->ns, .of_peak = fmax(compute, memory) / ns};
	p->counted_ns += r->ns;
	p->b->options->profile(p->b->options->user, &out);
}

/* Rows of what was counted in so many seconds. */
static void profile_report(struct model_run *m, const char *name, double seconds)
{
	struct profile_phase p = {m->b, name, (int64_t)(seconds * 1e9), 0};
	device_profile(m->b->device, profile_row, &p);
	int64_t rest = p.ns - p.counted_ns;
	m->b->options->profile(m->b->options->user,
		&(struct runner_profile_row){name, "between operations", "", 1, rest, (double)rest / (double)p.ns, NAN});
}

static int profile_figure(struct model_run *m, const struct figure *f, char err[ERR_LEN])
{
	char name[64];
	double seconds;
	snprintf(name, sizeof name, f->prompt ? "prefill %lld" : "decode, depth %lld", (long long)(f->prompt ? f->prompt : f->depth));
	device_profile_start(m->b->device);
	int rc = figure_run(m, f, &seconds, err);
	device_profile_stop(m->b->device);
	if (!rc)
		profile_report(m, name, seconds);
	return rc;
}

static int profile_variants(struct model_run *m, char err[ERR_LEN])
{
	struct variants v;
	char name[64];
	double seconds;
	int rc = variants_new(m, &v, err);
	snprintf(name, sizeof name, "%d variants, r .3", VARIANTS);
	device_profile_start(m->b->device);
	rc = rc ? rc : variants_run(m, &v, VARIANTS, &seconds, err);
	device_profile_stop(m->b->device);
	if (!rc)
		profile_report(m, name, seconds * VARIANT_STEPS);
	variants_free(&v);
	return rc;
}

/* All rows of one prompt, decoding behind it, and where there are rows enough a batch of variants. */
static int profile_bench(struct model_run *m, char err[ERR_LEN])
{
	int64_t n = m->tokens < 2048 ? m->tokens : 2048;
	if (profile_figure(m, &(struct figure){n, 0}, err) || profile_figure(m, &(struct figure){0, n}, err))
		return -1;
	return n < VARIANT_DEPTH ? 0 : profile_variants(m, err);
}

int bench_model(struct bench *b, char err[ERR_LEN])
{
	const struct model_config *c = b->config;
	int64_t tokens = b->options->tokens;
	struct model_run m = {.b = b, .kv = bench_cache(b, c->layers, tokens + BENCH_DECODE), .ids = bench_ids(b, tokens), .tokens = tokens,
		.token_bytes = (double)forward_weight_bytes(c, b->device) - (c->tied ? 0.0 : (double)weight_bytes(b->device, c->vocab, c->hidden)),
		.kv_token = (double)kv_bytes_for(b->device, c->head_dim, (int64_t)c->layers * c->kv_heads)};
	int rc = m.kv ? figures_bench(&m, err) : bench_failed(b, "the cache", err);
	if (!rc && tokens >= VARIANT_DEPTH)
		rc = variants_bench(&m, err);
	if (!rc)
		rc = growth_bench(&m, err);
	if (!rc && b->options->profile)
		rc = profile_bench(&m, err);
	if (!rc)
		bench_row(b, "peak memory", (double)device_peak_bytes(b->device) / (1 << 20), "MiB", NAN, NAN);
	kv_free(m.kv);
	free(m.ids);
	return rc;
}
