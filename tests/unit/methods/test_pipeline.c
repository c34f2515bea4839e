/* test_pipeline.c: every scorer through a real prefill of tiny models: against dense attention worked out in double, and the
 * pitfalls that only show in a whole run (spec/methods.md section 11). */
#include "tests/unit/methods/methods.h"

static const char *const llama = "tests/fixtures/models/llama-tiny", *const qwen2 = "tests/fixtures/models/qwen2-tiny",
			 *const qwen3 = "tests/fixtures/models/qwen3-tiny";

static struct engine tiny(const char *model, int threads, int max_rows)
{
	return engine_open(model, "fp32", NULL, threads, max_rows);
}

/* The methods that need a prefill, i.e. all but full and the one with a table. */
static bool scored(const struct method *m)
{
	if (!m->scorer || strcmp(m->scorer, "kvzip-head") == 0)
		return false;
	for (size_t i = 0; i < scorer_count(); i++)
		if (strcmp(scorer_at(i)->name, m->scorer) == 0)
			return !scorer_at(i)->file; /* those that read trained files have tests of their own */
	return false;
}

/* ---- dense reference ---- */

struct dense { /* queries of every layer, as attention used them */
	const struct engine *e;
	int64_t n;
	float *q, *pre; /* [layers][n][heads*d] */
};

static int capture(void *user, const struct layer_rows *r, char err[ERR_LEN])
{
	struct dense *t = user;
	const struct model_config *c = model_config(t->e->model);
	int64_t width = tensor_cols(r->qkv), hd = (int64_t)c->heads * c->head_dim, pre = tensor_cols(r->q_pre);
	float *rows = mem_new((size_t)(r->rows * (width > pre ? width : pre)), sizeof(*rows));
	(void)err;
	tensor_read(forward_queue(t->e->forward), r->qkv, 0, r->rows, rows);
	for (int64_t i = 0; i < r->rows; i++)
		memcpy(t->q + (r->layer * t->n + r->pos0 + i) * hd, rows + i * width, (size_t)hd * sizeof(float));
	tensor_read(forward_queue(t->e->forward), r->q_pre, 0, r->rows, rows);
	for (int64_t i = 0; i < r->rows; i++)
		memcpy(t->pre + (r->layer * t->n + r->pos0 + i) * hd, rows + i * pre, (size_t)hd * sizeof(float));
	free(rows);
	return 0;
}

static struct dense dense_open(const struct engine *e, const int32_t *ids, int64_t n, struct kv *kv)
{
	const struct model_config *c = model_config(e->model);
	size_t size = (size_t)(c->layers * n * c->heads * c->head_dim);
	struct dense t = {e, n, mem_new(size, sizeof(float)), mem_new(size, sizeof(float))};
	struct observer obs = {OBSERVE_Q | OBSERVE_Q_PRE, 0, capture, &t};
	char err[ERR_LEN];
	assert_int_equal(forward_prefill(e->forward, ids, n, kv, &obs, 1, NULL, NULL, NULL, NULL, err), 0);
	return t;
}

static void dense_close(struct dense *t)
{
	free(t->q);
	free(t->pre);
}

/* Adds row i of head h's attention to sum[n]. */
static void dense_row(const struct dense *t, const float *k, int layer, int h, int64_t i, double *sum)
{
	const struct model_config *c = model_config(t->e->model);
	int d = c->head_dim;
	const float *q = t->q + ((layer * t->n + i) * c->heads + h) * d;
	double *p = mem_new((size_t)i + 1, sizeof(*p)), most = -INFINITY, all = 0;
	for (int64_t j = 0; j <= i; j++) {
		for (int x = 0; x < d; x++)
			p[j] += (double)q[x] * k[j * d + x];
		p[j] /= sqrt(d);
		most = fmax(most, p[j]);
	}
	for (int64_t j = 0; j <= i; j++)
		all += p[j] = exp(p[j] - most);
	for (int64_t j = 0; j <= i; j++)
		sum[j] += p[j] / all;
	free(p);
}

/* P6, P40: window sums, column sums and last rows of the tiled passes equal dense attention; agnostic and aware, chunks of 24
 * rows. */
static void p6_p40_columns_equal_dense_attention(void **state)
{
	(void)state;
	enum { PREFIX = 5, CONTEXT = 70, AFTER = 9, N = PREFIX + CONTEXT + AFTER, W = 16 };
	struct engine e = tiny(qwen2, 2, 24);
	const struct model_config *c = model_config(e.model);
	int32_t *ids = some_ids(N, 1);
	for (int kind = 0; kind < 3; kind++) { /* without template, agnostic, aware */
		int64_t prefix = kind ? PREFIX : 0, after = kind == 2 ? AFTER : 0, n = prefix + CONTEXT + after;
		static const char *const names[3] = {"snapkv", "h2o", "tova"}, *const options[3] = {
										       "{\"window\":16,\"pool\":\"none\"}", NULL,
										       NULL};
		struct kv *kv = engine_cache(&e, n);
		struct dense t = dense_open(&e, ids, n, kv);
		float *k = mem_new((size_t)(n * c->head_dim), sizeof(*k));
		for (int which = 0; which < 3; which++) {
			struct run r;
			int64_t rows = which == 0 ? W : which == 1 ? n : 1;
			run_ok(&r, &e, names[which], options[which], ids, prefix, CONTEXT, after);
			int64_t compared = CONTEXT - (r.m.scorer->protect(&r.s, 0).last);
			for (int l = 0; l < c->layers; l++) {
				double whole[N] = {0};
				for (int head = 0; head < c->kv_heads; head++) {
					double sum[N] = {0};
					int g = c->heads / c->kv_heads;
					kv_read(forward_queue(e.forward), kv, l, head, 0, n, k, NULL);
					for (int h = head * g; h < head * g + g; h++)
						for (int64_t i = n - rows; i < n; i++)
							dense_row(&t, k, l, h, i, sum);
					for (int64_t j = 0; j < n; j++) {
						sum[j] /= which == 0 ? g * W : g;
						whole[j] += sum[j] / c->kv_heads;
					}
					if (which < 2)
						assert_close(scores_at(&r.s, l, head), sum + prefix, compared, 1e-5);
				}
				for (int head = 0; head < c->kv_heads && which == 2; head++)
					assert_close(scores_at(&r.s, l, head), whole + prefix, compared, 1e-5);
			}
			run_close(&r);
		}
		free(k);
		dense_close(&t);
		kv_free(kv);
	}
	free(ids);
	engine_close(&e);
}

/* P20: queries before RoPE, turned by hand, are the queries attention used: bias (Qwen2) and q-norm (Qwen3) are in them. */
static void p20_queries_before_rope(void **state)
{
	(void)state;
	enum { N = 40 };
	const char *const models[3] = {qwen3, qwen2, llama};
	for (int m = 0; m < 3; m++) {
		struct engine e = tiny(models[m], 1, 16);
		const struct model_config *c = model_config(e.model);
		int32_t *ids = some_ids(N, 2);
		struct kv *kv = engine_cache(&e, N);
		struct dense t = dense_open(&e, ids, N, kv);
		double mscale;
		const double *freq = forward_inv_freq(e.forward, &mscale);
		int d = c->head_dim;
		for (int64_t row = 0; row < (int64_t)c->layers * N * c->heads; row++)
			for (int x = 0; x < d / 2; x++) {
				int64_t pos = row / c->heads % N;
				double co = cos((double)pos * freq[x]) * mscale, si = sin((double)pos * freq[x]) * mscale,
				       a = t.pre[row * d + x], b = t.pre[row * d + x + d / 2];
				assert_true(fabs(t.q[row * d + x] - (co * a - si * b)) < 1e-4);
				assert_true(fabs(t.q[row * d + x + d / 2] - (si * a + co * b)) < 1e-4);
			}
		dense_close(&t);
		kv_free(kv);
		free(ids);
		engine_close(&e);
	}
}

/* P21: the averaged rotation with Llama-3's scaled frequencies, against the average of explicit rotations. */
static void p21_averaged_rotation_uses_scaled_frequencies(void **state)
{
	(void)state;
	struct engine e = tiny(llama, 1, 16);
	const struct model_config *c = model_config(e.model);
	int d = c->head_dim;
	double mscale, co[64], si[64], mu[128], want[128] = {0};
	const double *freq = forward_inv_freq(e.forward, &mscale);
	bool scaled = false;
	for (int x = 0; x < d / 2; x++)
		scaled = scaled || fabs(freq[x] - pow(c->rope.theta, -2. * x / d)) > 1e-9;
	assert_true(scaled);
	for (int x = 0; x < d; x++)
		mu[x] = x - 3;
	for (int64_t p = 200; p < 264; p++)
		for (int x = 0; x < d / 2; x++) {
			want[x] += (mu[x] * cos(p * freq[x]) - mu[x + d / 2] * sin(p * freq[x])) / 64;
			want[x + d / 2] += (mu[x] * sin(p * freq[x]) + mu[x + d / 2] * cos(p * freq[x])) / 64;
		}
	average_rotation(freq, d, mscale, 200, 64, co, si);
	rotate_mean(co, si, d, mu);
	for (int x = 0; x < d; x++)
		assert_true(fabs(mu[x] - want[x]) < 1e-9);
	engine_close(&e);
}

/* ---- whole runs ---- */

static size_t score_bytes(const struct run *r)
{
	return (size_t)(r->s.layers * r->s.kv_heads) * (size_t)r->s.shape.count * sizeof(float);
}

/* P12: A, B, A: nothing of B is left in the second A. */
static void p12_no_state_between_requests(void **state)
{
	(void)state;
	struct engine e = tiny(qwen3, 2, 32);
	int32_t *a = some_ids(90, 3), *b = some_ids(140, 4);
	for (size_t i = 0; i < method_count(); i++) {
		if (!scored(method_at(i)))
			continue;
		struct run first, between, second;
		run_ok(&first, &e, method_at(i)->name, NULL, a, 6, 84, 0);
		run_ok(&between, &e, method_at(i)->name, NULL, b, 3, 130, 7);
		run_ok(&second, &e, method_at(i)->name, NULL, a, 6, 84, 0);
		assert_memory_equal(first.s.scores, second.s.scores, score_bytes(&first));
		run_close(&first);
		run_close(&between);
		run_close(&second);
	}
	free(a);
	free(b);
	engine_close(&e);
}

/* P33 and P50: chunks of 17 rows on 1 thread against one shot on 8: equal index sets, for every method; so is a second pass
 * (KVzip) in pieces. */
static void p33_p50_chunks_and_threads_do_not_matter(void **state)
{
	(void)state;
	struct engine small = tiny(qwen3, 1, 17), large = tiny(qwen3, 8, 512);
	int32_t *ids = some_ids(150, 5);
	for (size_t i = 0; i < method_count(); i++) {
		if (!scored(method_at(i)))
			continue;
		struct run x, y;
		run_ok(&x, &small, method_at(i)->name, NULL, ids, 4, 140, 6);
		run_ok(&y, &large, method_at(i)->name, NULL, ids, 4, 140, 6);
		for (double r = .2; r < 1; r += .3) {
			struct selection a = selected(&x.m, &x.s, r), b = selected(&y.m, &y.s, r);
			assert_int_equal(a.total, b.total);
			for (int h = 0; h < x.s.layers * x.s.kv_heads; h++) {
				assert_int_equal(a.len[h], b.len[h]);
				assert_memory_equal(a.index[h], b.index[h], (size_t)a.len[h] * sizeof(int32_t));
			}
			selection_free(&a);
			selection_free(&b);
		}
		run_close(&x);
		run_close(&y);
	}
	free(ids);
	engine_close(&small);
	engine_close(&large);
}

/* P14: the prefill's own output is the dense model's, whoever watches. */
static void p14_prefill_output_is_dense(void **state)
{
	(void)state;
	enum { N = 80 };
	struct engine e = tiny(llama, 2, 32);
	int32_t *ids = some_ids(N, 6);
	int vocab = model_config(e.model)->vocab;
	float *dense = mem_new((size_t)vocab, sizeof(*dense)), *watched = mem_new((size_t)vocab, sizeof(*watched));
	struct kv *kv = engine_cache(&e, N);
	engine_prefill(&e, kv, ids, N, dense);
	kv_free(kv);
	for (size_t i = 0; i < method_count(); i++) {
		if (!scored(method_at(i)))
			continue;
		struct run r = {.engine = &e, .m = resolved(method_at(i)->name, NULL), .kv = engine_cache(&e, N)};
		if (r.m.scorer->observe) {
			r.s = (struct scoring){.forward = e.forward,
				.kv = r.kv,
				.ids = ids,
				.repeat = &r.repeat,
				.params = r.m.params,
				.layers = model_config(e.model)->layers,
				.kv_heads = model_config(e.model)->kv_heads};
			prompt_shape_for(&r.m, 0, N, 0, &r.s.shape);
			assert_int_equal(r.m.scorer->begin(&r.s, r.err), 0);
			struct observer obs = {
				r.m.scorer->observes, r.m.scorer->first_pos ? r.m.scorer->first_pos(&r.s) : 0, run_observe, &r};
			assert_int_equal(forward_prefill(e.forward, ids, N, r.kv, &obs, 1, NULL, watched, NULL, NULL, r.err), 0);
			assert_memory_equal(dense, watched, (size_t)vocab * sizeof(*dense));
		}
		run_close(&r);
	}
	free(dense);
	free(watched);
	free(ids);
	engine_close(&e);
}

static struct kept *view_of(const struct engine *e, const struct selection *sel)
{
	struct kept *k = kept_new(e->device, sel->layers, sel->kv_heads, sel->len, (const int32_t *const *)sel->index);
	assert_non_null(k);
	return k;
}

/* I1: r = 1 is bit-equal to the dense model for every method. P19: a question in one block or token by token on a pruned cache.
 * P25: finite with empty heads. I8, P2: gathered rows are the source's bits, and no more bytes than that. P15: the question
 * starts at the original length, in the view and in the gathered cache alike; at the pruned length it is another question. */
static void i1_i8_p2_p15_p19_p25_pruned_caches(void **state)
{
	(void)state;
	enum { N = 100, Q = 6 };
	struct engine e = tiny(qwen3, 2, 64);
	const struct model_config *c = model_config(e.model);
	int heads = c->layers * c->kv_heads, d = c->head_dim;
	int32_t *ids = some_ids(N + Q, 7);
	float *dense = mem_new((size_t)c->vocab, sizeof(float)), *block = mem_new((size_t)c->vocab, sizeof(float)),
	      *steps = mem_new((size_t)c->vocab, sizeof(float));
	float *rows = mem_new((size_t)(4 * N * d), sizeof(float));
	for (size_t i = 0; i < method_count(); i++) {
		if (!scored(method_at(i)))
			continue;
		struct run r;
		run_ok(&r, &e, method_at(i)->name, NULL, ids, 0, N, 0);
		struct kv *tail = engine_cache(&e, Q), *other = engine_cache(&e, Q);
		engine_feed(&e, r.kv, NULL, tail, ids + N, Q, N, dense);
		struct selection all = selected(&r.m, &r.s, 1);
		struct kept *view = view_of(&e, &all);
		kv_truncate(tail, 0);
		engine_feed(&e, r.kv, view, tail, ids + N, Q, N, block);
		assert_memory_equal(dense, block, (size_t)c->vocab * sizeof(float));
		kept_free(view);
		selection_free(&all);

		struct selection some = selected(&r.m, &r.s, .2);
		if (i == 1) /* one head without a single entry */
			some.len[1] = 0;
		view = view_of(&e, &some);
		kv_truncate(tail, 0);
		engine_feed(&e, r.kv, view, tail, ids + N, Q, N, block);
		for (int t = 0; t < Q; t++)
			engine_feed(&e, r.kv, view, other, ids + N + t, 1, N + t, steps);
		bool differs = false;
		for (int v = 0; v < c->vocab; v++) {
			assert_true(isfinite(block[v]) && fabs(block[v] - steps[v]) < 1e-4);
			differs = differs || fabs(block[v] - dense[v]) > 1e-4;
		}
		assert_true(differs); /* pruning did take place */
		int64_t cap[64], total = 0;
		for (int h = 0; h < heads; h++)
			total += cap[h] = some.len[h];
		struct kv *small = kv_new(e.device, c->layers, c->kv_heads, d, cap);
		for (int l = 0; l < c->layers; l++)
			assert_int_equal(kv_gather(forward_queue(e.forward), small, r.kv, view, l), 0);
		assert_int_equal(kv_bytes(small), 2 * total * d * (int64_t)sizeof(float));
		for (int h = 0; h < heads; h++) {
			float *k = rows, *v = rows + N * d, *k0 = rows + 2 * N * d, *v0 = rows + 3 * N * d;
			kv_read(forward_queue(e.forward), small, h / c->kv_heads, h % c->kv_heads, 0, some.len[h], k, v);
			kv_read(forward_queue(e.forward), r.kv, h / c->kv_heads, h % c->kv_heads, 0, N, k0, v0);
			for (int32_t j = 0; j < some.len[h]; j++) {
				assert_memory_equal(k + j * d, k0 + some.index[h][j] * d, (size_t)d * sizeof(float));
				assert_memory_equal(v + j * d, v0 + some.index[h][j] * d, (size_t)d * sizeof(float));
			}
		}
		kv_truncate(tail, 0);
		engine_feed(&e, small, NULL, tail, ids + N, Q, N, steps);
		assert_memory_equal(block, steps, (size_t)c->vocab * sizeof(float));
		kv_truncate(tail, 0);
		engine_feed(&e, small, NULL, tail, ids + N, Q, N / 5, steps);
		differs = false;
		for (int v = 0; v < c->vocab; v++)
			differs = differs || fabs(block[v] - steps[v]) > 1e-4;
		assert_true(differs);
		kv_free(small);
		kept_free(view);
		selection_free(&some);
		kv_free(tail);
		kv_free(other);
		run_close(&r);
	}
	free(rows);
	free(dense);
	free(block);
	free(steps);
	free(ids);
	engine_close(&e);
}

/* P40: one set for all KV heads of a layer, different ones for different layers. */
static void p40_tova_shares_one_set(void **state)
{
	(void)state;
	struct engine e = tiny(qwen3, 1, 64);
	int32_t *ids = some_ids(60, 8);
	struct run r;
	run_ok(&r, &e, "tova", NULL, ids, 0, 60, 0);
	struct selection sel = selected(&r.m, &r.s, .3);
	bool layers_differ = false;
	for (int l = 0; l < sel.layers; l++) {
		for (int h = 1; h < sel.kv_heads; h++)
			assert_memory_equal(sel.index[l * sel.kv_heads], sel.index[l * sel.kv_heads + h],
				(size_t)sel.len[0] * sizeof(int32_t));
		layers_differ =
			layers_differ || memcmp(sel.index[0], sel.index[l * sel.kv_heads], (size_t)sel.len[0] * sizeof(int32_t));
	}
	assert_true(layers_differ);
	selection_free(&sel);
	run_close(&r);
	free(ids);
	engine_close(&e);
}

/* ---- KVzip ---- */

/* P27: with a prefix of 20 ours leaves it alone; kvpress' rule keeps its first 4 and evicts the rest first. */
static void p27_kvzip_prefix(void **state)
{
	(void)state;
	struct engine e = tiny(qwen3, 1, 64);
	int32_t *ids = some_ids(120, 9);
	struct run ours, theirs;
	run_ok(&ours, &e, "kvzip", NULL, ids, 20, 100, 0);
	struct selection sel = selected(&ours.m, &ours.s, .1);
	for (int i = 0; i < sel.layers * sel.kv_heads; i++)
		for (int32_t j = 0; j < sel.len[i]; j++)
			assert_true(sel.index[i][j] >= 20);
	assert_int_equal(sel.total, sel.layers * sel.kv_heads * 10);
	selection_free(&sel);
	run_ok(&theirs, &e, "kvzip", "{\"compat\":\"kvpress\"}", ids, 20, 100, 0);
	sel = selected(&theirs.m, &theirs.s, .5);
	for (int i = 0; i < sel.layers * sel.kv_heads; i++)
		for (int32_t j = 0; j < sel.len[i]; j++)
			assert_true(j < 4 ? sel.index[i][j] == j : sel.index[i][j] >= 20);
	selection_free(&sel);
	run_close(&ours);
	run_close(&theirs);
	/* prefix and sinks are the same three keys in one chunk: then both scores are the same numbers */
	run_ok(&ours, &e, "kvzip", NULL, ids, 3, 117, 0);
	run_ok(&theirs, &e, "kvzip", "{\"compat\":\"kvpress\"}", ids, 3, 117, 0);
	for (int i = 0; i < ours.s.layers * ours.s.kv_heads; i++)
		assert_memory_equal(ours.s.scores + i * 117 + 1, theirs.s.scores + i * 120 + 4, 116 * sizeof(float));
	run_close(&ours);
	run_close(&theirs);
	free(ids);
	engine_close(&e);
}

static bool stop_later(void *user)
{
	int *left = user;
	return (*left)-- <= 0;
}

/* P28: every context entry is scored; P29: nothing of X_b stays in the cache, and a pass given up half-way harms nothing. */
static void p28_p29_kvzip_scores_all_and_leaves_nothing(void **state)
{
	(void)state;
	struct engine e = tiny(llama, 2, 20);
	const struct model_config *c = model_config(e.model);
	int32_t *ids = some_ids(130, 10);
	float *before = mem_new((size_t)c->vocab, sizeof(float)), *after = mem_new((size_t)c->vocab, sizeof(float));
	struct kv *plain = engine_cache(&e, 110), *tail = engine_cache(&e, 8);
	engine_prefill(&e, plain, ids, 110, NULL);
	engine_feed(&e, plain, NULL, tail, ids + 110, 8, 110, before);
	for (int chunk = 1; chunk <= 200; chunk += chunk < 3 ? 1 : 33) {
		char options[32];
		struct run r;
		snprintf(options, sizeof(options), "{\"chunk\":%d}", chunk);
		run_ok(&r, &e, "kvzip", options, ids, 10, 100, 0);
		for (int64_t i = 0; i < c->layers * c->kv_heads * 100; i++)
			assert_true(r.s.scores[i] > 0 && r.s.scores[i] <= 1.00001);
		for (int l = 0; l < c->layers; l++)
			for (int h = 0; h < c->kv_heads; h++)
				assert_int_equal(kv_len(r.kv, l, h), 110);
		kv_truncate(tail, 0);
		engine_feed(&e, r.kv, NULL, tail, ids + 110, 8, 110, after);
		assert_memory_equal(before, after, (size_t)c->vocab * sizeof(float));
		if (chunk == 36) {
			int calls = 4;
			r.s.stop = stop_later;
			r.s.stop_user = &calls;
			assert_int_equal(r.m.scorer->finish(&r.s, r.err), 1);
			kv_truncate(tail, 0);
			engine_feed(&e, r.kv, NULL, tail, ids + 110, 8, 110, after);
			assert_memory_equal(before, after, (size_t)c->vocab * sizeof(float));
		}
		run_close(&r);
	}
	struct run none; /* no repeat prompt: one sentence */
	run_open(&none, &e, "kvzip", NULL, ids, 10, 20, 0, NULL);
	none.s.repeat = NULL;
	assert_int_equal(none.m.scorer->begin(&none.s, none.err), -1);
	assert_non_null(strstr(none.err, "repeat prompt"));
	run_close(&none);
	kv_free(plain);
	kv_free(tail);
	free(before);
	free(after);
	free(ids);
	engine_close(&e);
}

/* P9, P32: prompts of 1 and 2 tokens, of less than the window, in both protocols: no crash, a sound selection. */
static void p9_p32_very_short_prompts(void **state)
{
	(void)state;
	struct engine e = tiny(qwen3, 1, 16);
	int32_t *ids = some_ids(60, 11);
	for (size_t i = 0; i < method_count(); i++) {
		if (!scored(method_at(i)))
			continue;
		for (const int *n = (const int[]){1, 2, 5, 31, 32, 33, 0}; *n; n++)
			for (int more = 0; more < 3; more++) {
				struct run r;
				run_ok(&r, &e, method_at(i)->name, NULL, ids, more > 0 ? 2 : 0, *n, more > 1 ? 3 : 0);
				struct selection sel = selected(&r.m, &r.s, .5);
				assert_true(sel.total >= sel.layers * sel.kv_heads * keep_count(*n, .5, "none"));
				assert_int_equal(sel.nan_scores, 0);
				selection_free(&sel);
				run_close(&r);
			}
	}
	free(ids);
	engine_close(&e);
}

/* P38: every parameter is connected: changing it changes what is kept. */
static void p38_every_parameter_matters(void **state)
{
	(void)state;
	static const char *const changes[][3] = {{"streaming-llm", NULL, "{\"sinks\":9}"}, {"snapkv", NULL, "{\"window\":8}"},
		{"snapkv", NULL, "{\"pool\":\"avg\"}"}, {"snapkv", NULL, "{\"pool\":\"none\"}"},
		{"snapkv", NULL, "{\"pool_size\":3}"}, {"snapkv", NULL, "{\"gqa\":\"max\"}"},
		{"snapkv", NULL, "{\"order\":\"pool_then_gqa\"}"}, {"snapkv", NULL, "{\"compat\":\"kvpress\"}"},
		{"snapkv", NULL, "{\"compat\":\"factory\"}"}, {"pyramidkv", NULL, "{\"beta\":2}"},
		{"pyramidkv", "{\"window\":8}", "{\"compat\":\"factory\"}"}, {"pyramidkv", NULL, "{\"compat\":\"kvpress\"}"},
		{"ada-snapkv", NULL, "{\"alpha\":0.9}"}, {"ada-snapkv", NULL, "{\"normalise\":true}"},
		{"ada-snapkv", NULL, "{\"compat\":\"adakv\"}"}, {"h2o", NULL, "{\"recent\":3}"},
		{"h2o", NULL, "{\"compat\":\"factory\"}"}, {"lagkv", "{\"lag\":16}", "{\"lag\":32}"},
		{"lagkv", "{\"lag\":16}", "{\"lag\":16,\"sinks\":9}"}, {"expected-attention", NULL, "{\"sinks\":9}"},
		{"expected-attention", NULL, "{\"future\":8}"}, {"expected-attention", NULL, "{\"covariance\":false}"},
		{"expected-attention", NULL, "{\"vnorm\":false}"}, {"expected-attention", NULL, "{\"epsilon\":0.5}"},
		{"kvzip", NULL, "{\"chunk\":40}"}, {"kvzip", NULL, "{\"compat\":\"kvzip\"}"},
		{"kvzip", NULL, "{\"compat\":\"kvpress\"}"}};
	struct engine e = tiny(qwen3, 2, 64);
	int32_t *ids = some_ids(160, 12);
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		struct run a, b;
		run_ok(&a, &e, changes[i][0], changes[i][1], ids, 0, 160, 0);
		run_ok(&b, &e, changes[i][0], changes[i][2], ids, 0, 160, 0);
		bool differs = false;
		for (double r = .35; r < .8; r += .1) {
			struct selection x = selected(&a.m, &a.s, r), y = selected(&b.m, &b.s, r);
			for (int h = 0; h < x.layers * x.kv_heads; h++)
				differs = differs || x.len[h] != y.len[h] ||
					  memcmp(x.index[h], y.index[h], (size_t)x.len[h] * sizeof(int32_t));
			selection_free(&x);
			selection_free(&y);
		}
		if (!differs)
			fail_msg("%s: %s keeps the same entries as %s", changes[i][0], changes[i][2],
				changes[i][1] ? changes[i][1] : "the defaults");
		run_close(&a);
		run_close(&b);
	}
	struct run plain, last; /* keep_last matters where the newest token is a poor one */
	run_ok(&plain, &e, "tova", NULL, ids, 0, 160, 0);
	run_ok(&last, &e, "tova", "{\"keep_last\":true}", ids, 0, 160, 0);
	for (int i = 0; i < plain.s.layers * plain.s.kv_heads; i++)
		plain.s.scores[i * 160 + 159] = last.s.scores[i * 160 + 159] = 0;
	struct selection x = selected(&plain.m, &plain.s, .3), y = selected(&last.m, &last.s, .3);
	assert_true(x.index[0][x.len[0] - 1] != 159 && y.index[0][y.len[0] - 1] == 159);
	selection_free(&x);
	selection_free(&y);
	run_close(&plain);
	run_close(&last);
	free(ids);
	engine_close(&e);
}

/* P22, P23: bf16 caches and weights: fp32 scores, finite, and neighbours that rarely tie. */
static void p22_p23_bf16_scores(void **state)
{
	(void)state;
	struct engine e = engine_open(qwen3, "bf16", NULL, 2, 64);
	int32_t *ids = some_ids(300, 13);
	for (size_t i = 0; i < method_count(); i++) {
		if (!scored(method_at(i)))
			continue;
		struct run r;
		int64_t equal = 0, n = 300 * model_config(e.model)->layers * model_config(e.model)->kv_heads;
		run_ok(&r, &e, method_at(i)->name, "{}", ids, 0, 300, 0);
		for (int64_t j = 0; j < n; j++) {
			assert_true(isfinite(r.s.scores[j]));
			equal += j > 0 && r.s.scores[j] == r.s.scores[j - 1];
		}
		if (strcmp(method_at(i)->name, "knorm") == 0 || strcmp(method_at(i)->name, "keydiff") == 0 ||
			strcmp(method_at(i)->name, "kvzip") == 0)
			assert_true(equal < n / 100);
		run_close(&r);
	}
	free(ids);
	engine_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(p6_p40_columns_equal_dense_attention),
		cmocka_unit_test(p20_queries_before_rope), cmocka_unit_test(p21_averaged_rotation_uses_scaled_frequencies),
		cmocka_unit_test(p12_no_state_between_requests), cmocka_unit_test(p33_p50_chunks_and_threads_do_not_matter),
		cmocka_unit_test(p14_prefill_output_is_dense), cmocka_unit_test(i1_i8_p2_p15_p19_p25_pruned_caches),
		cmocka_unit_test(p40_tova_shares_one_set), cmocka_unit_test(p27_kvzip_prefix),
		cmocka_unit_test(p28_p29_kvzip_scores_all_and_leaves_nothing), cmocka_unit_test(p9_p32_very_short_prompts),
		cmocka_unit_test(p38_every_parameter_matters), cmocka_unit_test(p22_p23_bf16_scores)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
