/* bench.c: what the CUDA backend does on a GPU, each figure beside what the hardware allows (spec of speeds: 790 TFLOP/s in bf16, 4.3 TB/s, the H200's; and the
 * 8192^3 product measured in the same run). Random weights of real shapes. Made by tests/gpu.sh; also runs, at a tiny scale (--tiny), over the emulation.
 *
 * Times are the host's, from the first call to the end of the last kernel, after one warm-up; weights are loaded outside. Once TIME_LIMIT has passed the
 * rest is left out, and said to be. */
#include "runners/device/device.h"
#include "runners/forward/forward.h"
#include "runners/mapper/impl.h"
#include "runners/proxykv/mapping.h"
#include "tests/gpu/shapes.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double PEAK = 790e12, BANDWIDTH = 4.3e12, FP32 = 67e12 /* plain cores */;
enum { TIME_LIMIT = 330 /* s */, CHUNK = 2048, REQUEST = 20, VARIANTS = 32, DECODE = 24 };

static int64_t begin_ns;
static bool tiny;
static int failures;

static double seconds(int64_t from)
{
	return (double)(clock_ns() - from) * 1e-9;
}
static bool too_late(const char *what)
{
	bool late = seconds(begin_ns) > TIME_LIMIT;
	if (late)
		printf("%-44s left out: the time is up\n", what);
	return late;
}
static void line(const char *what, double value, const char *unit, double floor, const char *of, double goal)
{
	double ratio = floor > 0 ? value / floor : 0;
	printf("%-44s %10.4g %-8s %10.4g %7.2f x %-22s", what, value, unit, floor, ratio, of);
	if (goal > 0)
		printf(" goal %.2f%s", goal, tiny ? "" : ratio <= goal ? " reached" : " MISSED");
	printf("\n");
	fflush(stdout);
}
static void fraction(const char *what, double value, double of, double goal)
{
	printf("%-44s %10.4g TFLOP/s  %9.4g %7.2f of the product", what, value * 1e-12, of * 1e-12, of > 0 ? value / of : 0);
	if (goal > 0)
		printf("         goal %.2f%s", goal, tiny ? "" : value >= goal * of ? " reached" : " MISSED");
	printf("\n");
	fflush(stdout);
}
static bool failed(const char *what, const char *err)
{
	printf("%-44s FAILED: %s\n", what, err);
	failures++;
	return true;
}

/* ---- a model on a device ---- */

struct engine {
	struct model *m;
	struct device *d;
	struct forward *f;
	const struct model_config *c;
};

static bool engine_open(struct engine *e, const char *shape, bool proxy)
{
	char err[ERR_LEN] = "";
	*e = (struct engine){.m = shape_open(shape)};
	int64_t start = clock_ns();
	if (device_open(&e->d, &(struct device_options){.name = "cuda", .precision = "bf16", .low_priority = proxy}, err) ||
		forward_open(&e->f, e->m, e->d, device_pass_rows(e->d), err))
		return !failed(shape, err);
	e->c = model_config(e->m);
	printf("# %s: %.1f GB of weights in %.1f s, %.1f GB free\n", shape, (double)forward_weight_bytes(e->c, e->d) * 1e-9, seconds(start),
		(double)device_free_bytes(e->d) * 1e-9);
	return true;
}
static void engine_close(struct engine *e)
{
	forward_close(e->f);
	device_close(e->d);
	shape_close(e->m);
}

static struct kv *cache(const struct engine *e, int64_t rows)
{
	int n = e->c->layers * e->c->kv_heads;
	int64_t *cap = mem_new((size_t)n, sizeof *cap);
	for (int i = 0; i < n; i++)
		cap[i] = rows;
	struct kv *kv = kv_new(e->d, e->c->layers, e->c->kv_heads, e->c->head_dim, cap);
	free(cap);
	return kv;
}
static int32_t *some_ids(const struct engine *e, int64_t n)
{
	int32_t *ids = mem_new((size_t)n, sizeof *ids);
	struct rng r = rng_seed(1, 0);
	for (int64_t i = 0; i < n; i++)
		ids[i] = (int32_t)(rng_next(&r) % (uint64_t)e->c->vocab);
	return ids;
}

static double attention_flops(const struct model_config *c, double queries, double keys) /* each query sees so many keys */
{
	return 4.0 * c->layers * c->heads * c->head_dim * queries * keys;
}
static double prefill_flops(const struct model_config *c, double t)
{
	return 2 * shape_linear_params(c) * t + attention_flops(c, t, t / 2);
}

/* One prefill of n ids; NULL observer = none. Seconds, or -1. */
static double prefill(const struct engine *e, const int32_t *ids, int64_t n, struct kv *kv, const struct observer *obs, const char *what)
{
	char err[ERR_LEN] = "";
	int32_t next;
	kv_truncate(kv, 0);
	int64_t start = clock_ns();
	if (forward_prefill(e->f, ids, n, kv, obs, obs != NULL, &next, NULL, NULL, NULL, err) || queue_sync(forward_queue(e->f)))
		return failed(what, err) ? -1 : 0;
	return seconds(start);
}

/* ---- rates of the kernels, from the profile of a prefill (each operation waited for) ---- */

static double product_rate;

static void profile_line(void *user, const struct device_profile_row *r)
{
	char what[64];
	if (r->ns <= 0)
		return;
	snprintf(what, sizeof what, "  %s: %s", (const char *)user, r->name);
	if (!strcmp(r->name, "linear, many rows"))
		fraction(what, r->flops / (double)r->ns * 1e9, product_rate, .85);
	else if (r->flops > 0)
		fraction(what, r->flops / (double)r->ns * 1e9, product_rate, 0);
	else
		printf("%-44s %10.4g GB/s     %9.4g %7.2f of the copy\n", what, r->bytes / (double)r->ns, BANDWIDTH * 1e-9,
			r->bytes / (double)r->ns * 1e9 / BANDWIDTH);
}

/* ---- column sums and the KVzip pass ---- */

struct sums { /* out: [heads] or [kv_heads][columns] of each layer */
	const struct engine *e;
	struct tensor **out, *lse;
	const struct kv *context;
	int64_t start, size; /* KVzip: the chunk */
	bool kvzip;
};

static int observe(void *user, const struct layer_rows *r, char err[ERR_LEN])
{
	struct sums *s = user;
	const struct model_config *c = s->e->c;
	struct queue *q = forward_queue(s->e->f);
	int64_t seen = r->pos0 + r->rows;
	int rc;
	if (s->kvzip) {
		struct key_set keys = {.range = {{s->context, s->start, s->size}, {r->kv, 0, kv_len(r->kv, r->layer, 0)}}, .n = 2, .causal = true};
		rc = op_attn_lse(q, r->layer, &keys, r->qkv, 0, r->rows, 0, c->heads, s->lse) ||
		     op_attn_reduce(q, r->layer, &keys, 0, 0, s->size, r->qkv, 0, r->rows, 0, c->heads, s->lse, 0, REDUCE_MAX, GROUP_MAX,
			     s->out[r->layer], s->start);
	} else {
		struct key_set keys = {.range = {{r->kv, 0, seen}}, .n = 1, .causal = true};
		rc = op_attn_reduce(q, r->layer, &keys, 0, 0, seen, r->qkv, 0, r->rows, 0, c->heads, r->lse, 0, REDUCE_SUM, GROUP_NONE,
			s->out[r->layer], 0);
	}
	return rc ? err_set(err, "layer %d: %s", r->layer, device_error(s->e->d)) : 0;
}

static bool sums_open(struct sums *s, const struct engine *e, int64_t columns, bool kvzip)
{
	*s = (struct sums){.e = e, .kvzip = kvzip, .out = mem_new((size_t)e->c->layers, sizeof *s->out)};
	s->lse = tensor_new(e->d, forward_max_rows(e->f), e->c->heads);
	bool there = s->lse != NULL;
	for (int l = 0; l < e->c->layers && there; l++) {
		s->out[l] = tensor_new(e->d, kvzip ? e->c->kv_heads : e->c->heads, columns);
		there = s->out[l] && !tensor_fill(forward_queue(e->f), s->out[l], 0);
	}
	return there || !failed("memory of the sums", device_error(e->d));
}
static void sums_close(struct sums *s)
{
	for (int l = 0; l < s->e->c->layers; l++)
		tensor_free(s->out[l]);
	tensor_free(s->lse);
	free(s->out);
}

/* KVzip's second pass: each chunk of the context again, behind a short request, over the whole cache. Seconds, or -1. */
static double kvzip_pass(const struct engine *e, const int32_t *ids, int64_t n, const struct kv *kv)
{
	struct sums s;
	char err[ERR_LEN] = "";
	struct kv *tail = cache(e, CHUNK + REQUEST);
	int32_t *fed = mem_new(CHUNK + REQUEST, sizeof *fed);
	struct observer obs = {.needs = OBSERVE_Q, .layer = observe, .user = &s};
	int rc = tail && sums_open(&s, e, n, true) ? 0 : -1;
	int64_t start = clock_ns();
	s.context = kv;
	for (s.start = 0; s.start < n && !rc; s.start += CHUNK) {
		s.size = n - s.start < CHUNK ? n - s.start : CHUNK;
		memcpy(fed, ids, REQUEST * sizeof *fed);
		memcpy(fed + REQUEST, ids + s.start, (size_t)s.size * sizeof *fed);
		kv_truncate(tail, 0);
		struct forward_seq seq = {.ids = fed, .n = (int)(s.size + REQUEST), .pos0 = n, .context = kv, .tail = tail};
		rc = forward_run(e->f, &seq, 1, &obs, 1, NULL, NULL, err);
	}
	double time = seconds(start);
	if (rc)
		failed("KVzip's pass", err);
	sums_close(&s);
	kv_free(tail);
	free(fed);
	return rc ? -1 : time;
}
static double kvzip_floor(const struct model_config *c, double t)
{
	double tq = t + t / CHUNK * REQUEST;
	return (2 * shape_linear_params(c) * tq + attention_flops(c, tq, t + CHUNK / 2.0) + attention_flops(c, tq, CHUNK)) / PEAK;
}

/* ---- decoding of variants that keep 30 % of one context ---- */

static struct kept *variant(const struct engine *e, int64_t n, int v)
{
	int heads = e->c->layers * e->c->kv_heads;
	int32_t *len = mem_new((size_t)heads, sizeof *len), **list = mem_new((size_t)heads, sizeof *list);
	for (int i = 0; i < heads; i++) {
		list[i] = mem_new((size_t)n, sizeof **list);
		for (int64_t r = (i + v) % 3; r < n; r += 3 + (r % 10 == 0))
			list[i][len[i]++] = (int32_t)r;
	}
	struct kept *k = kept_new(e->d, e->c->layers, e->c->kv_heads, len, (const int32_t *const *)list);
	for (int i = 0; i < heads; i++)
		free(list[i]);
	free(list), free(len);
	return k;
}

static void bench_decode(const struct engine *e, const struct kv *context, int64_t n, int variants)
{
	struct forward_seq seq[VARIANTS];
	struct kept *kept[VARIANTS] = {0};
	struct kv *tail[VARIANTS] = {0};
	int32_t next[VARIANTS];
	char err[ERR_LEN] = "", what[64];
	double rows = 0;
	int rc = 0;
	for (int v = 0; v < variants; v++) {
		kept[v] = variant(e, n, v);
		tail[v] = cache(e, DECODE + 1);
		next[v] = v + 3;
		rc = rc || !kept[v] || !tail[v];
		for (int i = 0; i < e->c->layers * e->c->kv_heads && !rc; i++)
			rows += kept_len(kept[v], i / e->c->kv_heads, i % e->c->kv_heads);
	}
	int64_t start = 0;
	for (int t = 0; t <= DECODE && !rc; t++) { /* the first is the warm-up */
		start = t == 1 ? clock_ns() : start;
		for (int v = 0; v < variants; v++)
			seq[v] = (struct forward_seq){&next[v], 1, n + t, context, kept[v], tail[v]};
		rc = forward_run(e->f, seq, variants, NULL, 0, next, NULL, err);
	}
	snprintf(what, sizeof what, "decode, %d variants at %lldk, 30 %%", variants, (long long)n / 1024);
	double bytes = (double)forward_weight_bytes(e->c, e->d) - (double)weight_bytes(e->d, e->c->vocab, e->c->hidden) * !e->c->tied +
		       2.0 * e->c->head_dim * 2 * rows;
	if (rc)
		failed(what, err[0] ? err : device_error(e->d));
	else
		line(what, seconds(start) / DECODE * 1e3, "ms/step", bytes / BANDWIDTH * 1e3, "reading it all", 0);
	for (int v = 0; v < variants; v++)
		kept_free(kept[v]), kv_free(tail[v]);
}

/* ---- ProxyKV on one GPU: the proxy's prefill with column sums beside the target's prefill ---- */

struct proxy_run {
	const struct engine *e;
	int64_t n;
	int32_t *ids;
	double time;
};
static void *proxy_thread(void *arg)
{
	struct proxy_run *p = arg;
	struct sums s;
	struct kv *kv = cache(p->e, p->n);
	p->time = -1;
	if (kv && sums_open(&s, p->e, p->n, false)) {
		struct observer obs = {.needs = OBSERVE_Q | OBSERVE_LSE, .layer = observe, .user = &s};
		p->time = prefill(p->e, p->ids, p->n, kv, &obs, "the proxy");
		sums_close(&s);
	}
	kv_free(kv);
	return NULL;
}

static void bench_proxy(const struct engine *target, const char *proxy, const int32_t *ids, int64_t n, struct kv *kv, double kvzip_total)
{
	struct engine e;
	char what[64];
	if (too_late("ProxyKV on one GPU") || !engine_open(&e, proxy, true))
		return;
	struct proxy_run run = {&e, n, some_ids(&e, n), 0};
	pthread_t thread;
	proxy_thread(&run); /* warm-up, and its time alone */
	double alone = run.time, floor = prefill_flops(e.c, (double)n) / PEAK + attention_flops(e.c, (double)n, (double)n / 4) / PEAK;
	snprintf(what, sizeof what, "%s at %lldk: prefill and column sums alone", proxy, (long long)n / 1024);
	if (alone > 0)
		line(what, alone, "s", floor, "floor", 0);
	int64_t start = clock_ns();
	if (alone > 0 && !pthread_create(&thread, NULL, proxy_thread, &run)) {
		double t = prefill(target, ids, n, kv, NULL, "the target beside its proxy");
		pthread_join(thread, NULL);
		double both = seconds(start), gain = both > 0 ? kvzip_total / both : 0;
		if (t > 0 && run.time > 0)
			printf("%-44s %10.4g s         KVzip %.4g s: %.2f x faster          goal 1.80%s\n", "ProxyKV shared: both prefills", both,
				kvzip_total, gain, tiny ? "" : gain >= 1.8 ? " reached" : " MISSED");
	}
	free(run.ids);
	engine_close(&e);
}

/* ---- one target ---- */

struct length {
	int64_t tokens;
	double goal[2], kvzip_goal[2]; /* x floor: of the portable kernels, with attention by wgmma; 0 = not run */
};
static bool by_wgmma(const struct engine *e)
{
	return !strcmp(device_isa(e->d), "sm_90a");
}

static void bench_length(const struct engine *e, const char *name, struct length l, const char *proxy)
{
	char what[64];
	double t = (double)l.tokens, flops = prefill_flops(e->c, t);
	snprintf(what, sizeof what, "%s: prefill of %lldk", name, (long long)l.tokens / 1024);
	if (too_late(what))
		return;
	struct kv *kv = cache(e, l.tokens);
	int32_t *ids = some_ids(e, l.tokens);
	if (!kv) {
		failed(what, device_error(e->d));
		free(ids);
		return;
	}
	prefill(e, ids, l.tokens < 8192 ? l.tokens : 8192, kv, NULL, "warm-up");
	double time = prefill(e, ids, l.tokens, kv, NULL, what);
	if (time > 0)
		line(what, time, "s", flops / PEAK, "floor", l.goal[by_wgmma(e)]);
	if (time > 0 && l.kvzip_goal[0] > 0 && !too_late("KVzip's pass")) {
		double pass = kvzip_pass(e, ids, l.tokens, kv);
		snprintf(what, sizeof what, "%s: KVzip pass over %lldk", name, (long long)l.tokens / 1024);
		if (pass > 0)
			line(what, pass, "s", kvzip_floor(e->c, t), "floor", l.kvzip_goal[by_wgmma(e)]);
		if (!too_late("decoding")) {
			bench_decode(e, kv, l.tokens, 1);
			bench_decode(e, kv, l.tokens, VARIANTS);
		}
		if (pass > 0 && proxy)
			bench_proxy(e, proxy, ids, l.tokens, kv, time + pass);
	}
	free(ids);
	kv_free(kv);
}

static void bench_rates(const struct engine *e, const char *name)
{
	int64_t n = tiny ? 200 : 8192;
	struct kv *kv = cache(e, n);
	int32_t *ids = some_ids(e, n);
	struct sums s;
	if (kv && sums_open(&s, e, n, false)) {
		struct observer obs = {.needs = OBSERVE_Q | OBSERVE_LSE, .layer = observe, .user = &s};
		prefill(e, ids, n, kv, &obs, "warm-up");
		device_profile_start(e->d);
		prefill(e, ids, n, kv, &obs, "profile");
		device_profile_stop(e->d);
		device_profile(e->d, profile_line, (void *)name);
		sums_close(&s);
	}
	free(ids);
	kv_free(kv);
}

/* ---- selection of 30 % of one context's scores, and pooling ---- */

static void bench_scores(const struct engine *e)
{
	enum { LAYERS = 32, HEADS = 8 };
	int64_t n = tiny ? 5000 : 131072, rows = LAYERS * HEADS, k[HEADS], nan[HEADS];
	struct queue *q = forward_queue(e->f);
	struct tensor *x = tensor_new(e->d, rows, n), *pooled = tensor_new(e->d, rows, n);
	float *host = mem_new((size_t)n, sizeof *host);
	int32_t *list[HEADS];
	int64_t *counts = mem_new((size_t)rows, sizeof *counts);
	struct rng r = rng_seed(2, 0);
	for (int h = 0; h < HEADS; h++) {
		list[h] = mem_new((size_t)n, 4);
		k[h] = n * 3 / 10;
	}
	int rc = !x || !pooled;
	for (int64_t i = 0; i < rows && !rc; i++) {
		for (int64_t j = 0; j < n; j++)
			host[j] = (float)rng_unit(&r);
		rc = tensor_write(q, x, i, 1, host);
	}
	double bytes = 4.0 * (double)(rows * n);
	for (int time = 0; time < 2 && !rc; time++) { /* the first is the warm-up */
		int64_t start = clock_ns();
		rc = op_pool(q, pooled, x, 1, n, &(struct pool_rule){'m', 7, false, false, 32}) || queue_sync(q);
		double t_pool = seconds(start);
		start = clock_ns();
		rc = rc || op_top_counts(q, x, 0, rows, 0, n, rows * n * 3 / 10, counts);
		double t_counts = seconds(start);
		start = clock_ns();
		for (int l = 0; l < LAYERS && !rc; l++)
			rc = op_topk(q, x, l * HEADS, HEADS, 0, n, k, list, nan);
		if (time && !rc) {
			line("pooling, 256 heads of 128k", t_pool * 1e3, "ms", 2 * bytes / BANDWIDTH * 1e3, "one pass", 0);
			line("one ranking over 256 heads of 128k", t_counts * 1e3, "ms", 4 * bytes / BANDWIDTH * 1e3, "four passes", 0);
			line("lists of 30 %, layer by layer, to the host", seconds(start) * 1e3, "ms", 5 * bytes / BANDWIDTH * 1e3, "five passes", 0);
		}
	}
	if (rc)
		failed("selection", device_error(e->d));
	for (int h = 0; h < HEADS; h++)
		free(list[h]);
	free(host), free(counts);
	tensor_free(x), tensor_free(pooled);
}

/* ---- utilities of the entries of one layer (LKV-T): reading its keys and values is the floor ---- */

static int fill_cache(struct queue *q, struct kv *kv, int heads, int d, int64_t n)
{
	enum { ROWS = 2048 };
	struct tensor *x = tensor_new(queue_device(q), ROWS, 2 * heads * d);
	struct attn_seq s = {.tail = kv};
	int rc = !x || tensor_fill(q, x, .01f);
	for (; s.tail_len < n && !rc; s.tail_len += s.rows) {
		s.rows = n - s.tail_len < ROWS ? n - s.tail_len : ROWS;
		rc = op_kv_append(q, 0, &s, 1, x, 0, heads * d);
	}
	rc = rc || queue_sync(q);
	tensor_free(x);
	return rc;
}

static void bench_utilities(const struct engine *e)
{
	enum { HEADS = 8, D = 128, IN = 2 * D, HID = 32, PARTS = 6 };
	int64_t n = tiny ? 2000 : 131072, cap[HEADS] = {n, n, n, n, n, n, n, n};
	struct queue *q = forward_queue(e->f);
	struct kv *kv = kv_new(e->d, 1, HEADS, D, cap);
	struct tensor *t[PARTS] = {tensor_new(e->d, HEADS, IN), tensor_new(e->d, HEADS * IN, HID), tensor_new(e->d, HEADS, HID),
		tensor_new(e->d, HEADS, HID), tensor_new(e->d, HEADS, 1), tensor_new(e->d, n, D)};
	float *out = mem_new((size_t)(HEADS * n), sizeof *out);
	struct entry_net net = {true, true, HID, t[0], t[1], t[2], t[3], t[4]};
	int rc = !kv || fill_cache(q, kv, HEADS, D, n);
	for (int i = 0; i < PARTS; i++)
		rc = rc || !t[i] || tensor_fill(q, t[i], .01f);
	for (int time = 0; time < 2 && !rc; time++) { /* the first is the warm-up */
		int64_t start = clock_ns();
		rc = op_utilities(q, kv, 0, &net, 0, 0, n, t[PARTS - 1], out);
		if (time && !rc)
			line("LKV-T over one layer, 8 heads of 128k", seconds(start) * 1e3, "ms", 4.0 * HEADS * D * (double)n / BANDWIDTH * 1e3,
				"reading it", 0);
	}
	if (rc)
		failed("utilities", device_error(e->d));
	for (int i = 0; i < PARTS; i++)
		tensor_free(t[i]);
	kv_free(kv);
	free(out);
}

/* ---- a mapper over the column sums of a proxy: scores of every head of the target ---- */

static void steps_flops(void *user, const struct device_profile_row *r)
{
	if (r->flops > 0)
		*(double *)user = r->flops;
}

/* Sums of Ls layers of Hs heads (a 1B proxy's) to Ll x Hl (an 8B target's), all numbers alike: the time does not depend on them. */
static void bench_mapper(const struct engine *e, const char *what, struct mapper_config c)
{
	int64_t n = tiny ? 300 : 131072;
	c.proxy_layers = tiny ? 2 : 16, c.proxy_heads = tiny ? 4 : 32, c.layers = tiny ? 2 : 32, c.kv_heads = tiny ? 2 : 8, c.taps = 3;
	struct mapper m = {.config = c};
	layout_make(&m.layout, &m.config);
	int inputs = c.proxy_layers * c.proxy_heads;
	m.params = mem_new(m.layout.count, sizeof *m.params);
	m.feature_mean = mem_new((size_t)inputs, sizeof *m.feature_mean);
	m.feature_dev = mem_new((size_t)inputs, sizeof *m.feature_dev);
	for (int i = 0; i < inputs; i++)
		m.feature_dev[i] = 1;
	struct queue *q = forward_queue(e->f);
	struct tensor *sums[16] = {NULL}, *scores;
	char err[ERR_LEN] = "";
	double flops = 0;
	int rc = 0;
	for (int l = 0; l < c.proxy_layers; l++)
		rc = rc || !(sums[l] = tensor_new(e->d, c.proxy_heads, n)) || tensor_fill(q, sums[l], .01f);
	for (int time = 0; time < 2 && !rc; time++) { /* the first is the warm-up, and counts */
		if (!time)
			device_profile_start(e->d);
		int64_t start = clock_ns();
		rc = !(scores = mapping_scores(q, &m, sums, n, MAPPING_WORK, err)) || queue_sync(q);
		double took = seconds(start);
		device_profile_stop(e->d);
		if (!time)
			device_profile(e->d, steps_flops, &flops);
		else if (!rc)
			line(what, took * 1e3, "ms", flops / FP32 * 1e3, "its arithmetic in fp32", 0);
		tensor_free(scores);
	}
	if (rc)
		failed(what, *err ? err : device_error(e->d));
	for (int l = 0; l < c.proxy_layers; l++)
		tensor_free(sums[l]);
	free(m.params), free(m.feature_mean), free(m.feature_dev);
}

static void bench_mappers(const struct engine *e)
{
	bench_mapper(e, "mapper flat, 512 rows of 128k to 256", (struct mapper_config){.kind = MAPPER_FLAT});
	bench_mapper(e, "mapper axial, the same", (struct mapper_config){.kind = MAPPER_AXIAL, .encoder = 1});
	bench_mapper(e, "mapper axial, all neighbours", (struct mapper_config){.kind = MAPPER_AXIAL, .encoder = 1, .neighbours = MAPPER_ALL});
}

/* ---- attention of one layer: a pass of queries at the end of a cache, by our kernels and by cuDNN where it is there ---- */

struct attention_case {
	int heads, kv_heads, d;
	int64_t keys, rows; /* keys is a multiple of rows */
};

/* Seconds of one call, or -1. The cache is filled first; a call before the timed ones makes plans and scratch. */
static double attention_calls(struct queue *q, const struct attention_case *a)
{
	enum { CALLS = 5 };
	struct device *d = queue_device(q);
	int64_t wide = a->heads * a->d, cols = wide + 2 * a->kv_heads * a->d, *cap = mem_new((size_t)a->kv_heads, sizeof *cap);
	for (int h = 0; h < a->kv_heads; h++)
		cap[h] = a->keys;
	struct kv *kv = kv_new(d, 1, a->kv_heads, a->d, cap);
	struct tensor *x = tensor_new(d, a->rows, cols), *out = operand_new(d, a->rows, wide);
	struct attn_seq s = {0, a->rows, NULL, NULL, kv, 0};
	int rc = !kv || !x || !out || tensor_fill(q, x, .01f);
	for (; s.tail_len < a->keys && !rc; s.tail_len += a->rows)
		rc = op_kv_append(q, 0, &s, 1, x, wide, wide + a->kv_heads * a->d);
	s.tail_len = a->keys - a->rows;
	rc = rc || op_attention(q, 0, &s, 1, out, x, 0, a->heads, NULL) || queue_sync(q);
	int64_t start = clock_ns();
	for (int i = 0; i < CALLS && !rc; i++)
		rc = op_attention(q, 0, &s, 1, out, x, 0, a->heads, NULL);
	rc = rc || queue_sync(q);
	double time = seconds(start) / CALLS;
	tensor_free(x), tensor_free(out);
	kv_free(kv);
	free(cap);
	return rc ? -1 : time;
}

static double attention_time(const char *attention, const struct attention_case *a, const char *what)
{
	struct device *d;
	char err[ERR_LEN] = "";
	if (device_open(&d, &(struct device_options){.name = "cuda", .precision = "bf16", .attention = attention}, err))
		return failed(what, err) ? -1 : 0;
	struct queue *q = queue_new(d);
	double time = q ? attention_calls(q, a) : -1;
	if (time < 0)
		failed(what, device_error(d));
	if (q)
		queue_free(q);
	device_close(d);
	return time;
}

static void bench_attention(void)
{
	static const struct attention_case cases[] = {{32, 8, 128, 8192, 4096}, {32, 8, 128, 131072, 4096}, {28, 4, 128, 32768, 4096}, {14, 2, 64, 32768, 4096}},
					   small[] = {{4, 2, 32, 200, 100}};
	char library[DEVICE_WHAT], what[64];
	bool there = device_attention_usable("cudnn", library);
	printf("# attention of 4096 queries, our kernels and cuDNN: %s\n", library);
	for (size_t i = 0; i < (tiny ? 1 : sizeof cases / sizeof *cases); i++) {
		const struct attention_case *a = tiny ? &small[i] : &cases[i];
		double keys = (double)(a->keys - a->rows) + (double)a->rows / 2, flops = 4.0 * a->heads * a->d * (double)a->rows * keys;
		for (int cudnn = 0; cudnn <= there; cudnn++) {
			snprintf(what, sizeof what, "  %d/%d heads of %d at %lldk, %s", a->heads, a->kv_heads, a->d, (long long)a->keys / 1024,
				cudnn ? "cuDNN" : "ours");
			double time = attention_time(cudnn ? "cudnn" : "own", a, what);
			if (time > 0)
				fraction(what, flops / time, product_rate, 0);
		}
	}
}

static void bench_target(const char *shape, const char *proxy, bool rates, const struct length *lengths, int n)
{
	struct engine e;
	if (too_late(shape) || !engine_open(&e, shape, false))
		return;
	if (rates)
		bench_rates(&e, shape);
	if (rates && n)
		bench_scores(&e), bench_utilities(&e), bench_mappers(&e);
	for (int i = 0; i < n; i++)
		bench_length(&e, shape, lengths[i], proxy);
	engine_close(&e);
}

int main(int argc, char **argv)
{
	struct device *d;
	struct device_peaks peaks = {0};
	char err[ERR_LEN] = "", why[DEVICE_WHAT];
	bool rates = argc > 1 && !strcmp(argv[1], "--rates"); /* of the kernels alone */
	tiny = argc > 1 && !strcmp(argv[1], "--tiny");
	begin_ns = clock_ns();
	if (device_open(&d, &(struct device_options){.name = "cuda", .precision = "bf16"}, err)) {
		printf("%s\n", err);
		return 1;
	}
	device_usable("cuda", why);
	printf("# %s: %s; kernels for %s\n", device_name(d), why, device_isa(d));
	if (!tiny) {
		device_peaks(d, &peaks);
		printf("# product of 8192^3: %.4g TFLOP/s; copy: %.4g TB/s; floors: %.4g TFLOP/s, %.4g TB/s\n", peaks.dot_bf16 * 1e-12,
			peaks.read_bytes * 1e-12, PEAK * 1e-12, BANDWIDTH * 1e-12);
	}
	device_close(d);
	product_rate = peaks.dot_bf16;
	printf("%-44s %10s %-8s %10s\n", "what", "measured", "", "floor");
	if (tiny || rates)
		bench_attention();
	if (tiny)
		bench_target("tiny", "tiny-proxy", true, (struct length[]){{300, {9, 9}, {9, 9}}}, 1);
	else if (rates)
		bench_target("llama-1b", NULL, true, NULL, 0);
	else {
		bench_target("llama-8b", "llama-1b", true,
			(struct length[]){{8192, {0}, {0}}, {32768, {1.6, 1.35}, {2.2, 1.6}}, {131072, {2.0, 1.5}, {0}}}, 3);
		bench_target("qwen-7b", "qwen-0.5b", false, (struct length[]){{174080, {2.0, 1.5}, {0}}}, 1);
	}
	printf("# %.0f s, %d failed\n", seconds(begin_ns), failures);
	return failures > 0;
}
