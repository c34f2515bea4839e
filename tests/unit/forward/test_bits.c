/* test_bits.c: what must be equal bit for bit: block against token by token, chunks, threads, batches, views, r = 1, order. */
#include "tests/unit/forward/engine.h"

enum { N = 300, Q = 9 };

/* What is asked of the device: the best path for either precision, and each unit of bf16 products by name. */
struct path {
	const char *precision, *isa;
};
static const struct path paths[] = {{"fp32", NULL}, {"bf16", NULL}, {"bf16", "avx512bf16"}, {"bf16", "amx"}};
enum { FP32, BF16, PATHS = sizeof paths / sizeof *paths };

struct setup {
	struct engine e;
	int32_t ids[N + Q];
	int vocab;
};

static struct setup setup_open(const char *model, const struct path *path, int threads, int max_rows)
{
	char *dir = text_format("tests/fixtures/models/%s", model);
	struct setup s = {.e = engine_open(dir, path->precision, path->isa, threads, max_rows)};
	s.vocab = model_config(s.e.model)->vocab;
	struct rng r = rng_seed(11, 0);
	for (int i = 0; i < N + Q; i++)
		s.ids[i] = (int32_t)rng_below(&r, (uint64_t)s.vocab);
	free(dir);
	return s;
}

static float *logits_new(const struct setup *s)
{
	return mem_new((size_t)s->vocab, sizeof(float));
}

static void assert_same(const struct setup *s, const float *a, const float *b)
{
	assert_memory_equal(a, b, (size_t)s->vocab * sizeof *a);
	assert_false(isnan(a[0]));
}

/* Prefill of N ids, then the question as one block; optionally pruned. */
static void answer(const struct setup *s, const struct kept *kept, float *out)
{
	struct kv *kv = engine_cache(&s->e, N), *tail = engine_cache(&s->e, Q);
	engine_prefill(&s->e, kv, s->ids, N, NULL);
	engine_feed(&s->e, kv, kept, tail, s->ids + N, Q, N, out);
	kv_free(kv);
	kv_free(tail);
}

/* P19: bottom-right causal mask: a question fed as one block equals the same fed token by token. */
static void block_equals_token_by_token(void **state)
{
	(void)state;
	for (int p = 0; p < PATHS; p++) {
		if (!engine_has(paths[p].isa))
			continue;
		struct setup s = setup_open("qwen3-tiny", &paths[p], 2, 64);
		int32_t **lists, *lens;
		struct kept *k = engine_kept(&s.e, N, .4, &lists, &lens);
		float *block = logits_new(&s), *single = logits_new(&s);
		struct kv *kv = engine_cache(&s.e, N), *tail = engine_cache(&s.e, Q);
		answer(&s, k, block);
		engine_prefill(&s.e, kv, s.ids, N, NULL);
		for (int i = 0; i < Q; i++)
			engine_feed(&s.e, kv, k, tail, s.ids + N + i, 1, N + i, single);
		assert_same(&s, block, single);
		kv_free(kv), kv_free(tail);
		engine_kept_free(&s.e, k, lists, lens);
		free(block), free(single);
		engine_close(&s.e);
	}
}

/* P33: a prefill in chunks of 32 equals one shot, and so does any number of threads. */
static void chunks_and_threads_do_not_matter(void **state)
{
	(void)state;
	static const struct {
		int threads, rows;
	} how[] = {{1, 512}, {2, 512}, {4, 512}, {1, 32}, {3, 37}};
	for (int p = 0; p < PATHS; p++) {
		if (!engine_has(paths[p].isa))
			continue;
		float *first = NULL;
		for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
			struct setup s = setup_open("smollm2-tiny", &paths[p], how[i].threads, how[i].rows);
			float *x = logits_new(&s);
			answer(&s, NULL, x);
			if (first)
				assert_same(&s, first, x);
			else
				first = x;
			if (x != first)
				free(x);
			engine_close(&s.e);
		}
		free(first);
	}
}

/* The pruned path at r = 1 is the full path bit for bit (I1), view and compacted cache agree bit for bit, rows are copied bit for bit (I8). */
static void views_compacted_caches_and_r1(void **state)
{
	(void)state;
	for (int p = 0; p < PATHS; p++) {
		if (!engine_has(paths[p].isa))
			continue;
		struct setup s = setup_open("llama-tiny", &paths[p], 2, 128);
		const struct model_config *c = model_config(s.e.model);
		float *a = logits_new(&s), *b = logits_new(&s);
		for (int all = 0; all < 2; all++) {
			int32_t **lists, *lens;
			struct kept *k = engine_kept(&s.e, N, all ? 2 : .3, &lists, &lens);
			struct kv *kv = engine_cache(&s.e, N), *tail = engine_cache(&s.e, Q);
			int64_t cap[64];
			for (int i = 0; i < c->layers * c->kv_heads; i++)
				cap[i] = lens[i];
			struct kv *small = kv_new(s.e.device, c->layers, c->kv_heads, c->head_dim, cap);
			engine_prefill(&s.e, kv, s.ids, N, NULL);
			engine_feed(&s.e, kv, k, tail, s.ids + N, Q, N, a);
			for (int l = 0; l < c->layers; l++)
				assert_int_equal(kv_gather(forward_queue(s.e.forward), small, kv, k, l), 0);
			float *row = mem_new((size_t)c->head_dim, 2 * sizeof *row);
			for (int h = 0; h < c->kv_heads; h++)
				for (int j = 0; j < lens[h]; j++) {
					kv_read(forward_queue(s.e.forward), kv, 0, h, lists[h][j], 1, NULL, row);
					kv_read(forward_queue(s.e.forward), small, 0, h, j, 1, NULL, row + c->head_dim);
					assert_memory_equal(row, row + c->head_dim, (size_t)c->head_dim * sizeof *row);
				}
			free(row);
			kv_truncate(tail, 0);
			engine_feed(&s.e, small, NULL, tail, s.ids + N, Q, N, b);
			assert_same(&s, a, b);
			if (all) { /* r = 1 */
				kv_truncate(tail, 0);
				engine_feed(&s.e, kv, NULL, tail, s.ids + N, Q, N, b);
				assert_same(&s, a, b);
			} else
				assert_true(kv_bytes(small) < kv_bytes(kv) / 2); /* I9, P2: memory is really smaller */
			kv_free(kv), kv_free(tail), kv_free(small);
			engine_kept_free(&s.e, k, lists, lens);
		}
		free(a), free(b);
		engine_close(&s.e);
	}
}

/* P17: sequences decoded together are what they are alone, in any company. */
static void batches_do_not_mix(void **state)
{
	(void)state;
	enum { B = 5, STEPS = 6 };
	for (int p = 0; p < PATHS; p++) {
		if (!engine_has(paths[p].isa))
			continue;
		struct setup s = setup_open("qwen2-tiny", &paths[p], 2, 64);
		struct kv *kv = engine_cache(&s.e, N), *tail[B], *alone;
		struct kept *k[B];
		int32_t **lists[B], *lens[B], next[B];
		char err[ERR_LEN] = "";
		float *together = mem_new((size_t)s.vocab * B, sizeof *together), *single = logits_new(&s);
		engine_prefill(&s.e, kv, s.ids, N, NULL);
		struct forward_seq seq[B];
		for (int i = 0; i < B; i++) {
			k[i] = engine_kept(&s.e, N, .1 + .2 * i, &lists[i], &lens[i]);
			tail[i] = engine_cache(&s.e, Q + STEPS);
			seq[i] = (struct forward_seq){s.ids + N, 3 + i, N, kv, i == 2 ? NULL : k[i], tail[i]};
		}
		assert_int_equal(forward_run(s.e.forward, seq, B, NULL, 0, next, together, err), 0);
		for (int step = 0; step < STEPS; step++) {
			for (int i = 0; i < B; i++)
				seq[i] = (struct forward_seq){&s.ids[step], 1, N + 3 + i + step, kv, i == 2 ? NULL : k[i], tail[i]};
			assert_int_equal(forward_run(s.e.forward, seq, B, NULL, 0, next, together, err), 0);
		}
		for (int i = B - 1; i >= 0; i--) {
			alone = engine_cache(&s.e, Q + STEPS);
			engine_feed(&s.e, kv, i == 2 ? NULL : k[i], alone, s.ids + N, 3 + i, N, single);
			for (int step = 0; step < STEPS; step++)
				engine_feed(&s.e, kv, i == 2 ? NULL : k[i], alone, &s.ids[step], 1, N + 3 + i + step, single);
			assert_same(&s, together + (size_t)i * s.vocab, single);
			kv_free(alone);
		}
		for (int i = 0; i < B; i++) {
			kv_free(tail[i]);
			engine_kept_free(&s.e, k[i], lists[i], lens[i]);
		}
		kv_free(kv);
		free(together), free(single);
		engine_close(&s.e);
	}
}

/* P37: answers are cut away again; P12: nothing of one context reaches the next (A, B, A). */
static void truncation_and_order(void **state)
{
	(void)state;
	struct setup s = setup_open("llama-tiny", &paths[BF16], 2, 64);
	struct kv *kv = engine_cache(&s.e, N), *tail = engine_cache(&s.e, Q);
	float *a = logits_new(&s), *b = logits_new(&s);
	engine_prefill(&s.e, kv, s.ids, N, NULL);
	engine_feed(&s.e, kv, NULL, tail, s.ids + N, Q, N, a);
	kv_truncate(tail, 0);
	engine_feed(&s.e, kv, NULL, tail, s.ids + 5, Q, N, b); /* another question */
	kv_truncate(tail, 0);
	engine_feed(&s.e, kv, NULL, tail, s.ids + N, Q, N, b);
	assert_same(&s, a, b);
	kv_truncate(kv, 0);
	kv_truncate(tail, 0);
	engine_prefill(&s.e, kv, s.ids + 20, N - 20, NULL); /* another context in the same memory */
	kv_truncate(kv, 0);
	engine_prefill(&s.e, kv, s.ids, N, NULL);
	engine_feed(&s.e, kv, NULL, tail, s.ids + N, Q, N, b);
	assert_same(&s, a, b);
	kv_free(kv), kv_free(tail);
	free(a), free(b);
	engine_close(&s.e);
}

/* The LM head for needed rows only changes nothing; a pass that wants no token still fills the whole cache. */
static void unwanted_rows_are_skipped_without_effect(void **state)
{
	(void)state;
	struct setup s = setup_open("qwen3-tiny", &paths[FP32], 2, 64);
	struct kv *a = engine_cache(&s.e, N), *b = engine_cache(&s.e, N);
	const struct model_config *c = model_config(s.e.model);
	float *ka = mem_new((size_t)N * c->head_dim, sizeof *ka), *kb = mem_new((size_t)N * c->head_dim, sizeof *kb), *x = logits_new(&s);
	engine_prefill(&s.e, a, s.ids, N, NULL);
	engine_prefill(&s.e, b, s.ids, N, x);
	for (int l = 0; l < c->layers; l++)
		for (int h = 0; h < c->kv_heads; h++) {
			assert_int_equal(kv_len(a, l, h), N);
			kv_read(forward_queue(s.e.forward), a, l, h, 0, N, ka, NULL);
			kv_read(forward_queue(s.e.forward), b, l, h, 0, N, kb, NULL);
			assert_memory_equal(ka, kb, (size_t)N * c->head_dim * sizeof *ka);
		}
	free(ka), free(kb), free(x);
	kv_free(a), kv_free(b);
	engine_close(&s.e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(block_equals_token_by_token),
		cmocka_unit_test(chunks_and_threads_do_not_matter),
		cmocka_unit_test(views_compacted_caches_and_r1),
		cmocka_unit_test(batches_do_not_mix),
		cmocka_unit_test(truncation_and_order),
		cmocka_unit_test(unwanted_rows_are_skipped_without_effect),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
