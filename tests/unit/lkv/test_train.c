/* test_train.c: training on tiny models: gradients of a whole step, planted heads, same seed = same weights, resume, refusals.
 * spec/proxykv-lkv.md 2.4, 2.6. */
#include "runners/lkv/entries.h"
#include "runners/lkv/file.h"
#include "runners/lkv/soft_topk.h"
#include "runners/lkv/train.h"
#include "tests/unit/forward/engine.h"
#include "tests/unit/lkv/lkv_fixture.h"

#include <unistd.h>

enum { PREFIX = 2, CONTEXT = 45, SAMPLES = 3, TAILS = 2 };

struct world {
	struct engine e;
	struct frozen *f;
	struct lkv_sample s[SAMPLES];
	int32_t ids[SAMPLES][TAILS][9];
	struct lkv_tail tail[SAMPLES][TAILS];
	float *scores[SAMPLES];
};

static void world_open(struct world *w, const char *model, int threads)
{
	char err[ERR_LEN] = "";
	*w = (struct world){.e = engine_open(model, "fp32", NULL, threads, 64)};
	const struct model_config *c = model_config(w->e.model);
	if (frozen_open(&w->f, w->e.model, w->e.device, 64, err))
		fail_msg("%s", err);
	for (int i = 0; i < SAMPLES; i++) {
		struct rng r = rng_seed(21, (uint64_t)i);
		int32_t context[PREFIX + CONTEXT];
		struct kv *kv = engine_cache(&w->e, PREFIX + CONTEXT);
		for (int j = 0; j < PREFIX + CONTEXT; j++)
			context[j] = 3 + (int32_t)rng_below(&r, (uint64_t)c->vocab - 3);
		engine_prefill(&w->e, kv, context, PREFIX + CONTEXT, NULL);
		for (int t = 0; t < TAILS; t++) {
			for (int j = 0; j < 9; j++)
				w->ids[i][t][j] = 3 + (int32_t)rng_below(&r, (uint64_t)c->vocab - 3);
			w->tail[i][t] = (struct lkv_tail){w->ids[i][t], 9 - t, 4};
		}
		int heads = c->layers * c->kv_heads;
		w->scores[i] = mem_new((size_t)(heads * CONTEXT), sizeof(float));
		for (int j = 0; j < heads * CONTEXT; j++)
			w->scores[i][j] = (float)rng_unit(&r);
		w->s[i] = (struct lkv_sample){.prefix = PREFIX,
			.context = CONTEXT,
			.tail = w->tail[i],
			.n_tails = TAILS,
			.kv = kv,
			.kvzip = w->scores[i]};
		if (lkv_teach(w->f, &w->s[i], err))
			fail_msg("%s", err);
	}
}

static void world_close(struct world *w)
{
	for (int i = 0; i < SAMPLES; i++) {
		kv_free((struct kv *)w->s[i].kv);
		free(w->s[i].teacher);
		free(w->scores[i]);
	}
	frozen_close(w->f);
	engine_close(&w->e);
}

static struct lkv_recipe recipe_for(const struct world *w, enum lkv_kind kind)
{
	const struct model_config *c = model_config(w->e.model);
	struct lkv_recipe r = lkv_recipe_default(kind);
	r.shape.layers = c->layers;
	r.shape.kv_heads = c->kv_heads;
	r.shape.d = c->head_dim;
	r.shape.hid = 8;
	r.shape.emb = 4;
	r.seed = 5;
	return r;
}

/* The full cache is its own teacher: no divergence with open gates; and every gate shut but its own costs something. */
static void test_teacher(void **state)
{
	struct world w;
	world_open(&w, "tests/fixtures/models/qwen3-tiny", 2);
	const struct model_config *c = model_config(w.e.model);
	int64_t n = (int64_t)c->layers * c->kv_heads * (PREFIX + CONTEXT);
	float *logm = mem_new((size_t)n, sizeof *logm);
	double loss;
	char err[ERR_LEN] = "";
	assert_int_equal(lkv_loss(w.f, &w.s[0], logm, &loss, err), 0);
	assert_true(fabs(loss) < 1e-6);
	for (int64_t i = 0; i < n; i++)
		logm[i] = i % (PREFIX + CONTEXT) < PREFIX ? 0 : -INFINITY;
	assert_int_equal(lkv_loss(w.f, &w.s[0], logm, &loss, err), 0);
	assert_true(loss > 1e-2);
	free(logm);
	world_close(&w);
	(void)state;
}

/* Gradients of a whole step, end to end in fp32, against central differences along random directions of each tensor. */
static void test_gradient(void **state)
{
	static const char *const models[] = {"qwen3-tiny", "qwen2-yarn-tiny", "llama-tiny", "smollm2-tiny"};
	for (int m = 0; m < 4; m++)
		for (int kind = LKV_HEAD; kind <= LKV_GLOBAL; kind++) {
			struct world w;
			char path[128], err[ERR_LEN] = "";
			snprintf(path, sizeof path, "tests/fixtures/models/%s", models[m]);
			world_open(&w, path, 2);
			struct lkv_recipe r = recipe_for(&w, kind);
			struct lkv_net *net = lkv_net_new(&r.shape, 3);
			assert_int_equal(lkv_statistics(net, w.f, w.s, SAMPLES, err), 0);
			float *grad = mem_new((size_t)net->trained, sizeof *grad),
			      *unused = mem_new((size_t)net->trained, sizeof *unused);
			double loss, high, low;
			if (lkv_gradient(net, w.f, &w.s[1], .3, .3, &loss, grad, err))
				fail_msg("%s", err);
			for (int t = 0; t < (kind == LKV_HEAD ? LKV_TRAINED : LKV_OF_T); t++) {
				int64_t at = net->p[t] - net->p[0];
				double slope = 0, length = 0, e;
				for (int64_t i = 0; i < net->count[t]; i++)
					length += (double)grad[at + i] * grad[at + i];
				length = sqrt(length);
				if (length < 1e-5) /* biases that move all utilities alike */
					continue;
				e = 2e-3 / fmax(length, .05);
				float *keep = mem_new((size_t)net->count[t], sizeof *keep);
				memcpy(keep, net->p[t], (size_t)net->count[t] * sizeof *keep);
				for (int side = 0; side < 2; side++) {
					for (int64_t i = 0; i < net->count[t]; i++)
						net->p[t][i] = keep[i] + (float)((side ? -e : e) * grad[at + i] / length);
					assert_int_equal(
						lkv_gradient(net, w.f, &w.s[1], .3, .3, side ? &low : &high, unused, err), 0);
				}
				memcpy(net->p[t], keep, (size_t)net->count[t] * sizeof *keep);
				slope = (high - low) / (2 * e);
				if (!(fabs(slope - length) < 2e-2 * length + 2e-4)) /* fp32 losses: differences of 1e-7 over 2e */
					fail_msg("%s, kind %d, %s: slope %g by differences, %g", models[m], kind,
						lkv_tensor_name(t), slope, length);
				free(keep);
			}
			free(grad);
			free(unused);
			lkv_net_free(net);
			world_close(&w);
		}
	(void)state;
}

struct count {
	int steps, stop_at;
	double first, last;
};
static void count_step(void *user, const struct lkv_progress *p)
{
	struct count *c = user;
	c->first = c->steps++ ? c->first : p->loss;
	c->last = p->loss;
}
static bool count_stop(void *user)
{
	struct count *c = user;
	return c->stop_at && c->steps >= c->stop_at;
}

static struct lkv_net *trained(struct world *w, const struct lkv_recipe *r, const char *checkpoint, struct count *c, int want_rc)
{
	struct lkv_net *net = NULL;
	char err[ERR_LEN] = "";
	const struct lkv_hooks hooks = {c, count_step, count_stop, checkpoint, 3};
	int rc = lkv_train(&net, w->f, w->s, SAMPLES, r, &hooks, err);
	if (rc != want_rc)
		fail_msg("training returned %d: %s", rc, err);
	return net;
}

static void assert_same(const struct lkv_net *a, const struct lkv_net *b)
{
	for (int t = 0; t < LKV_TENSORS; t++)
		assert_memory_equal(a->p[t], b->p[t], (size_t)a->count[t] * sizeof(float));
}

/* Same seed: same weights on one thread and on two, and when stopped and resumed in either phase; another seed: others. */
static void test_same(void **state)
{
	for (int kind = 0; kind < LKV_KINDS; kind++) {
		struct world one, two;
		struct count c = {0};
		char path[64];
		snprintf(path, sizeof path, "/tmp/kvbench-lkv-%d.part", (int)getpid());
		unlink(path);
		world_open(&one, "tests/fixtures/models/qwen3-tiny", 1);
		world_open(&two, "tests/fixtures/models/qwen3-tiny", 2);
		struct lkv_recipe r = recipe_for(&one, kind);
		r.distil_steps = 6;
		r.steps = kind == LKV_DISTILLED ? 0 : 8;
		struct lkv_net *a = trained(&one, &r, NULL, &c, 0), *b = trained(&two, &r, NULL, &c, 0);
		assert_same(a, b);
		lkv_net_free(b);
		int stops[2] = {4, 11};
		for (int i = 0; i < (kind == LKV_DISTILLED ? 1 : 2); i++) {
			c = (struct count){.stop_at = stops[i]};
			assert_null(trained(&two, &r, path, &c, 1));
			c = (struct count){0};
			b = trained(&two, &r, path, &c, 0);
			assert_int_equal(c.steps, r.distil_steps + r.steps - stops[i]);
			assert_same(a, b);
			lkv_net_free(b);
			unlink(path);
		}
		r.seed = 6;
		b = trained(&two, &r, NULL, &c, 0);
		assert_true(memcmp(a->p[LKV_W1], b->p[LKV_W1], (size_t)a->count[LKV_W1] * sizeof(float)));
		lkv_net_free(a);
		lkv_net_free(b);
		world_close(&one);
		world_close(&two);
	}
	(void)state;
}

/* A checkpoint of another recipe is refused, and one whose steps are not the recipe's. */
static void test_other_checkpoint(void **state)
{
	struct world w;
	struct count c = {.stop_at = 2};
	struct lkv_net *net = NULL;
	char path[64], err[ERR_LEN] = "";
	snprintf(path, sizeof path, "/tmp/kvbench-lkv-other-%d.part", (int)getpid());
	unlink(path);
	world_open(&w, "tests/fixtures/models/llama-tiny", 1);
	struct lkv_recipe r = recipe_for(&w, LKV_GLOBAL);
	r.steps = 5;
	assert_null(trained(&w, &r, path, &c, 1));
	const struct lkv_hooks hooks = {&c, count_step, NULL, path, 0};
	file_damage(path, "\"done\":\"", '6');
	assert_int_equal(lkv_train(&net, w.f, w.s, SAMPLES, &r, &hooks, err), -1);
	assert_non_null(strstr(err, "steps cannot be read"));
	r.lr_t = 1e-3;
	assert_int_equal(lkv_train(&net, w.f, w.s, SAMPLES, &r, &hooks, err), -1);
	assert_non_null(strstr(err, "another training"));
	unlink(path);
	world_close(&w);
	(void)state;
}

/* Planted: V of every head but one is zero in all contexts and that head's is large, so that it alone holds what answers depend
 * on (other heads' gates still thin out a tail's own entries, little beside it). LKV-H must give it the budget. */
static void test_planted(void **state)
{
	struct world w;
	struct count c = {0};
	char err[ERR_LEN] = "";
	world_open(&w, "tests/fixtures/models/qwen3-tiny", 2);
	const struct model_config *m = model_config(w.e.model);
	struct queue *q = frozen_queue(w.f);
	int heads = m->layers * m->kv_heads, planted = 3;
	for (int i = 0; i < SAMPLES; i++) {
		struct kv *kv = engine_cache(&w.e, PREFIX + CONTEXT);
		int64_t n = PREFIX + CONTEXT;
		float *k = mem_new((size_t)(n * m->head_dim), sizeof *k), *v = mem_new((size_t)(n * m->head_dim), sizeof *v);
		for (int h = 0; h < heads; h++) {
			assert_int_equal(kv_read(q, w.s[i].kv, h / m->kv_heads, h % m->kv_heads, 0, n, k, v), 0);
			for (int64_t j = 0; j < n * m->head_dim; j++)
				v[j] = h == planted ? 20 * v[j] : 0;
			for (int64_t j = 0; j < n * m->head_dim && h != planted; j++)
				k[j] = 0;
			assert_int_equal(kv_write(q, kv, h / m->kv_heads, h % m->kv_heads, n, k, v), 0);
		}
		kv_free((struct kv *)w.s[i].kv);
		w.s[i].kv = kv;
		free(w.s[i].teacher);
		assert_int_equal(lkv_teach(w.f, &w.s[i], err), 0);
		free(k);
		free(v);
	}
	struct lkv_recipe r = recipe_for(&w, LKV_HEAD);
	r.steps = 150;
	r.lr_h = 3e-2;
	struct lkv_net *net = trained(&w, &r, NULL, &c, 0);
	double ratio[64], start[64];
	struct lkv_net *fresh = lkv_net_new(&r.shape, r.seed);
	lkv_h_ratios(fresh, .15, start);
	lkv_h_ratios(net, .15, ratio);
	for (int h = 0; h < heads; h++) {
		if (!(start[h] < .3))
			fail_msg("head %d starts at %g", h, start[h]);
		if (h != planted && !(ratio[h] < ratio[planted] / 2))
			fail_msg("head %d has the ratio %.3f beside the planted head's %.3f", h, ratio[h], ratio[planted]);
	}
	if (!(ratio[planted] > .5)) /* of .15 on the average of 6 heads: .9 in all */
		fail_msg("the planted head has the ratio %.3f", ratio[planted]);
	lkv_net_free(fresh);
	lkv_net_free(net);
	world_close(&w);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_teacher), cmocka_unit_test(test_gradient),
		cmocka_unit_test(test_same), cmocka_unit_test(test_other_checkpoint), cmocka_unit_test(test_planted)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
