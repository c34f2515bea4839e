/* test_net.c: the two networks: values and gradients of the whole chain against PyTorch, the run-time form against the training
 * form, budgets, files. spec/proxykv-lkv.md 2.3, 2.6. */
#include "runners/lkv/dense.h"
#include "runners/lkv/entries.h"
#include "runners/lkv/file.h"
#include "runners/lkv/net.h"
#include "runners/lkv/soft_topk.h"
#include "runners/lkv/tail.h"
#include "tests/unit/lkv/lkv_fixture.h"

#include <unistd.h>

enum { LAYERS = 2, B = 2, HK = 2, GROUP = 3, TT = 4, D = 8, N = 19, G = LAYERS * HK };

/* The fixture's networks: 5 hidden units, embeddings of 4. */
static struct lkv_net *chain_net(struct st_file *f)
{
	static const char *const names[LKV_TENSORS] = {"chain.w1", "chain.b1", "chain.w2", "chain.b2", "chain.e", "chain.h1",
		"chain.c1", "chain.h2", "chain.c2", "chain.fm", "chain.fs"};
	const struct lkv_shape s = {
		.kind = LKV_HEAD, .layers = LAYERS, .kv_heads = HK, .d = D, .hid = 5, .emb = 4, .key = true, .value = true};
	struct lkv_net *net = lkv_net_new(&s, 1);
	assert_non_null(net);
	for (int t = 0; t < LKV_TENSORS; t++) {
		int64_t n;
		double *v = fixture_get(f, names[t], &n);
		assert_int_equal(n, net->count[t]);
		for (int64_t i = 0; i < n; i++)
			net->p[t][i] = (float)v[i];
		free(v);
	}
	return net;
}

/* Gated attention of all sequences of layer l in double: loss += up . out, dlogm [HK][N] written. */
static double attend(struct st_file *f, int l, const double *up, const double *logm, double *dlogm)
{
	char name[32];
#define GET(what) (snprintf(name, sizeof name, "chain.%d." what, l), fixture_get(f, name, NULL))
	double *q = GET("q"), *K = GET("K"), *V = GET("V"), *k = GET("k"), *v = GET("v"), loss = 0;
#undef GET
	memset(dlogm, 0, HK * N * sizeof *dlogm);
	for (int h = 0; h < HK; h++)
		for (int b = 0; b < B; b++) {
			double out[GROUP * TT * D], lse[GROUP * TT], gq[GROUP * TT * D], gk[TT * D], gv[TT * D], gl[N];
			const double *u = up + ((l * HK + h) * B + b) * GROUP * TT * D, *x = q + (b * HK + h) * GROUP * TT * D,
				     *m = logm + (l * HK + h) * N;
			const double *kk = k + (b * HK + h) * TT * D, *vv = v + (b * HK + h) * TT * D;
			assert_int_equal(tail_attend_d(N, TT, GROUP, D, x, K + h * N * D, V + h * N * D, kk, vv, m, out, lse), 0);
			for (int i = 0; i < GROUP * TT * D; i++)
				loss += out[i] * u[i];
			assert_int_equal(tail_attend_back_d(N, TT, GROUP, D, x, K + h * N * D, V + h * N * D, kk, vv, m, out, lse,
						 u, gq, gk, gv, gl),
				0);
			for (int j = 0; j < N; j++)
				dlogm[h * N + j] += gl[j];
		}
	free(q), free(K), free(V), free(k), free(v);
	return loss;
}

static void compare(const char *what, const float *got, struct st_file *f, const char *name, double tolerance)
{
	int64_t n;
	double *want = fixture_get(f, name, &n), *wide = mem_new((size_t)n, sizeof *wide);
	for (int64_t i = 0; i < n; i++)
		wide[i] = got[i];
	assert_near(what, wide, want, n, tolerance);
	free(want);
	free(wide);
}

/* T and H -> Soft-TopK -> attention of two layers -> loss, and back to every parameter. fp32 networks: 1e-5 (measured 1e-6). */
static void test_chain(void **state)
{
	struct st_file *f = fixture_open("tests/fixtures/lkv/parts.safetensors");
	struct lkv_net *net = chain_net(f);
	const double R = .3, tau = .3;
	float z[G][N * 2 * D], h[G][N * 5], s[G][N * 5], u[G][N], du[N], *grad = mem_new((size_t)net->trained, sizeof *grad);
	double x[G][N], mu[G], logm[G * N], dlogm[G * N], ratio[G], dratio[G], *up = fixture_get(f, "chain.up", NULL), loss = 0;
	lkv_h_ratios(net, R, ratio);
	for (int g = 0; g < G; g++) {
		char name[2][32];
		snprintf(name[0], 32, "chain.%d.K", g / HK);
		snprintf(name[1], 32, "chain.%d.V", g / HK);
		double *K = fixture_get(f, name[0], NULL), *V = fixture_get(f, name[1], NULL);
		for (int i = 0; i < N * D; i++) {
			z[g][i / D * 2 * D + i % D] = (float)K[g % HK * N * D + i];
			z[g][i / D * 2 * D + D + i % D] = (float)V[g % HK * N * D + i];
		}
		free(K), free(V);
		lkv_standardise(net, g, N, z[g]);
		lkv_t_forward(net, g, N, z[g], h[g], s[g], u[g]);
		for (int i = 0; i < N; i++)
			x[g][i] = u[g][i];
		mu[g] = soft_topk_solve(x[g], N, ratio[g] * N, tau);
		soft_topk_gates(x[g], N, mu[g], tau, logm + g * N);
	}
	compare("utilities", u[0], f, "chain.util", 1e-5);
	double *want = fixture_get(f, "chain.logm", NULL), *want_ratio = fixture_get(f, "chain.ratio", NULL),
	       *want_loss = fixture_get(f, "chain.loss", NULL);
	assert_near("log m", logm, want, G * N, 1e-5);
	assert_near("ratios", ratio, want_ratio, G, 1e-5);
	for (int l = 0; l < LAYERS; l++)
		loss += attend(f, l, up, logm, dlogm + l * HK * N);
	assert_near("loss", &loss, want_loss, 1, 1e-5);
	for (int g = 0; g < G; g++) {
		double dx[N] = {0};
		dratio[g] = N * soft_topk_back(x[g], N, mu[g], tau, dlogm + g * N, dx);
		for (int i = 0; i < N; i++)
			du[i] = (float)dx[i];
		lkv_t_backward(net, g, N, z[g], h[g], s[g], du, grad);
	}
	lkv_h_backward(net, R, dratio, grad);
	static const char *const names[LKV_TRAINED] = {"chain.d.w1", "chain.d.b1", "chain.d.w2", "chain.d.b2", "chain.d.e",
		"chain.d.h1", "chain.d.c1", "chain.d.h2", "chain.d.c2"};
	for (int t = 0; t < LKV_TRAINED; t++)
		if (t != LKV_B2 && t != LKV_C2) /* a shift of all utilities changes no gate: both gradients are 0 */
			compare(names[t], grad + (net->p[t] - net->p[0]), f, names[t], 1e-5);
		else
			for (int64_t i = 0; i < net->count[t]; i++)
				if (!(fabs(grad[net->p[t] - net->p[0] + i]) <
					    2e-5)) /* sums of terms near 1 in fp32: measured 3e-6 */
					fail_msg("%s: %g, not 0", names[t], grad[net->p[t] - net->p[0] + i]);
	free(up), free(want), free(want_ratio), free(want_loss), free(grad);
	lkv_net_free(net);
	st_close(f);
	(void)state;
}

static struct lkv_net *some_net(enum lkv_kind kind, int layers, int kv_heads, int d, int hid, uint64_t seed)
{
	const struct lkv_shape s = {.kind = kind,
		.layers = layers,
		.kv_heads = kv_heads,
		.d = d,
		.hid = hid,
		.emb = 16,
		.key = true,
		.value = true,
		.pre = true};
	struct lkv_net *net = lkv_net_new(&s, seed);
	assert_non_null(net);
	struct rng r = rng_seed(seed, 99);
	for (int t = LKV_B1; t < LKV_TENSORS; t++) /* no tensor left at its first value */
		for (int64_t i = 0; i < net->count[t]; i++)
			net->p[t][i] = t == LKV_DEVIATION ? (float)(.5 + rng_unit(&r))
							  : (float)(rng_unit(&r) - .5) * (t >= LKV_E && t < LKV_MEAN ? 4 : 1);
	return net;
}

/* sum floor(r t) <= R G t for every number of heads and length 1..64, several R; and no budget beyond t. */
static void test_budgets(void **state)
{
	static const double rates[] = {.01, .05, .1, .15, .3, .5, .9, .999};
	for (int heads = 1; heads <= 64; heads++) {
		struct lkv_net *net = some_net(LKV_HEAD, 1, heads, 2, 2, (uint64_t)heads);
		int64_t budget[64];
		for (int64_t t = 1; t <= 64; t++)
			for (int k = 0; k < 8; k++) {
				int64_t sum = 0;
				lkv_h_budgets(net, rates[k], t, budget);
				for (int h = 0; h < heads; h++) {
					assert_in_range(budget[h], 0, t);
					sum += budget[h];
				}
				if (!((double)sum <= rates[k] * heads * (double)t + 1e-6))
					fail_msg("%d heads, %lld entries, R = %g: %lld are kept", heads, (long long)t, rates[k],
						(long long)sum);
			}
		lkv_h_budgets(net, 1, 7, budget);
		for (int h = 0; h < heads; h++)
			assert_int_equal(budget[h], 7);
		lkv_net_free(net);
	}
	(void)state;
}

/* Other R by solving for lambda again: the mean is R, the order of heads stays. */
static void test_rates(void **state)
{
	struct lkv_net *net = some_net(LKV_HEAD, 6, 4, 2, 2, 3);
	double low[24], high[24], mean_low = 0, mean_high = 0;
	lkv_h_ratios(net, .07, low);
	lkv_h_ratios(net, .42, high);
	for (int i = 0; i < 24; i++) {
		mean_low += low[i] / 24;
		mean_high += high[i] / 24;
		assert_true(low[i] < high[i]);
		for (int j = 0; j < i; j++)
			assert_true((low[i] < low[j]) == (high[i] < high[j]));
	}
	assert_true(fabs(mean_low - .07) < 1e-9 && fabs(mean_high - .42) < 1e-9);
	lkv_net_free(net);
	(void)state;
}

/* The run-time loops of every instruction set against the training form on the cache's own rows. */
static void test_utilities(void **state)
{
	static const struct {
		int d, hid;
	} shapes[] = {{8, 5}, {64, 32}, {32, 128}};
	static const char *const isas[] = {NULL, "reference", "amx"}; /* the best path, fp32 loops, tiles */
	for (int c = 0; c < 9; c++) {
		enum { ROWS = 203, FIRST = 3 };
		int d = shapes[c % 3].d, hid = shapes[c % 3].hid;
		struct device *dev = NULL;
		const struct device_options o = {.name = "cpu", .precision = "bf16", .isa = isas[c / 3], .threads = 2};
		char err[ERR_LEN];
		if (device_open(&dev, &o, err)) {
			assert_true(c >= 6);
			print_message("[ SKIPPED  ] path %s: %s\n", o.isa, err);
			continue;
		}
		struct queue *q = queue_new(dev);
		const int64_t cap[4] = {ROWS, ROWS, ROWS, ROWS};
		struct kv *kv = kv_new(dev, 2, 2, d, cap);
		struct rng r = rng_seed(8, (uint64_t)c);
		float *rows = mem_new((size_t)(ROWS * d), sizeof *rows), *x = mem_new((size_t)(ROWS * 2 * d), sizeof *x),
		      *h = mem_new((size_t)ROWS * 128, sizeof *h), *s = mem_new((size_t)ROWS * 128, sizeof *s), want[ROWS],
		      got[2 * ROWS];
		for (int l = 0; l < 2; l++)
			for (int g = 0; g < 2; g++) {
				for (int i = 0; i < ROWS * d; i++)
					rows[i] = (float)(rng_unit(&r) * 4 - 2);
				assert_int_equal(kv_write(q, kv, l, g, ROWS, rows, rows), 0);
			}
		double inv_freq[32], scale = 1.13; /* a scale as YaRN has */
		for (int i = 0; i < d / 2; i++)
			inv_freq[i] = pow(1e4, -2.0 * i / d);
		struct lkv_net *net = some_net(LKV_GLOBAL, 2, 2, d, hid, 4);
		float tolerance =
			strcmp(device_isa(dev), "amx") ? 1e-4f : .05f; /* measured: 4e-6; bf16 inputs and weights: .012 */
		struct lkv_ready *ready = lkv_ready_new(net);
		struct lkv_positions at;
		assert_int_equal(lkv_positions_make(&at, q, inv_freq, scale, d, FIRST, ROWS - FIRST), 0);
		for (int l = 0; l < 2; l++) {
			assert_int_equal(lkv_utilities(ready, q, kv, l, l, FIRST, ROWS - FIRST, &at, got), 0);
			for (int g = 0; g < 2; g++) {
				assert_int_equal(lkv_entries(q, kv, l, g, FIRST, ROWS - FIRST, &net->shape, at.turns, x), 0);
				lkv_standardise(net, l * 2 + g, ROWS - FIRST, x);
				lkv_t_forward(net, l * 2 + g, ROWS - FIRST, x, h, s, want);
				for (int i = 0; i < ROWS - FIRST; i++)
					if (!(fabsf(got[g * (ROWS - FIRST) + i] - want[i]) < tolerance))
						fail_msg("d %d, layer %d, head %d, entry %d: %g, not %g", d, l, g, i,
							got[g * (ROWS - FIRST) + i], want[i]);
			}
		}
		lkv_positions_free(&at);
		free(rows), free(x), free(h), free(s);
		lkv_ready_free(ready);
		lkv_net_free(net);
		kv_free(kv);
		queue_free(q);
		device_close(dev);
	}
	(void)state;
}

enum { DIM = 16 };
static int identity_rows(void *user, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	(void)err;
	memcpy(out, (const float *)user + row0 * DIM, (size_t)(n * DIM) * sizeof *out);
	return 0;
}

/* A key turned by the device's own rotation and turned back is the key. */
static void test_turns(void **state)
{
	enum { ROWS = 5, FIRST = 700 };
	struct device *dev = NULL;
	const struct device_options o = {.name = "cpu", .precision = "fp32", .threads = 1};
	char err[ERR_LEN];
	assert_int_equal(device_open(&dev, &o, err), 0);
	struct queue *q = queue_new(dev);
	struct tensor *x = tensor_new(dev, ROWS, DIM), *to = tensor_new(dev, ROWS, DIM), *cs = tensor_new(dev, ROWS, DIM);
	const int64_t cap[1] = {FIRST + ROWS}, pos[ROWS] = {FIRST, FIRST + 1, FIRST + 2, FIRST + 3, FIRST + 4};
	struct kv *kv = kv_new(dev, 1, 1, DIM, cap);
	double inv_freq[DIM / 2], scale = 1.2;
	float key[ROWS * DIM], turned[ROWS * DIM], back[ROWS * DIM], filler[FIRST * DIM];
	struct rng r = rng_seed(2, 2);
	memset(filler, 0, sizeof filler);
	for (int i = 0; i < DIM / 2; i++)
		inv_freq[i] = pow(1e4, -2.0 * i / DIM);
	for (int i = 0; i < ROWS * DIM; i++)
		key[i] = (float)rng_unit(&r);
	assert_int_equal(tensor_write(q, x, 0, ROWS, key), 0);
	assert_int_equal(op_rope_table(q, cs, pos, inv_freq, scale, DIM, ROWS), 0);
	float same[DIM * DIM] = {0};
	for (int i = 0; i < DIM; i++)
		same[i * DIM + i] = 1;
	struct weight *one = weight_new(dev, DIM, DIM, identity_rows, same, err);
	assert_int_equal(op_linear_qkv(q, to, x, one, NULL, 0, DIM, &(struct head_epilogue){.k_heads = 1, .d = DIM, .cs = cs}, ROWS), 0);
	weight_free(one);
	assert_int_equal(tensor_read(q, to, 0, ROWS, turned), 0);
	assert_int_equal(kv_write(q, kv, 0, 0, FIRST, filler, filler), 0);
	assert_int_equal(kv_write(q, kv, 0, 0, ROWS, turned, turned), 0);
	const struct lkv_shape s = {.layers = 1, .kv_heads = 1, .d = DIM, .key = true, .pre = true};
	float *turns = lkv_turns(dev, inv_freq, scale, DIM, FIRST, ROWS);
	assert_int_equal(lkv_entries(q, kv, 0, 0, FIRST, ROWS, &s, turns, back), 0);
	for (int i = 0; i < ROWS * DIM; i++)
		assert_true(fabsf(back[i] - key[i]) < 1e-5f);
	free(turns);
	tensor_free(x);
	tensor_free(to);
	tensor_free(cs);
	kv_free(kv);
	queue_free(q);
	device_close(dev);
	(void)state;
}

/* Every instruction set's loops against plain sums. */
static void test_dense(void **state)
{
	enum { M = 29, NN = 53, K = 37 };
	static float a[M * K], b[K * NN], c[M * NN], e[NN], s[NN], ds[NN];
	const struct dense_kernels *kernels;
	struct rng r = rng_seed(5, 5);
	for (int i = 0; i < M * K; i++)
		a[i] = (float)(rng_unit(&r) - .5);
	for (int i = 0; i < K * NN; i++)
		b[i] = (float)(rng_unit(&r) - .5);
	for (int k = 0; (kernels = dense_kernels_at(k)); k++) {
		for (int i = 0; i < M * NN; i++)
			c[i] = 1;
		kernels->product(M, NN, K, a, K, 1, b, NN, c, NN, true);
		kernels->product(
			M, NN, M, a, 1, K, b, NN, c, NN, true); /* the same numbers read as [K][M] turned: rows of a as columns */
		for (int i = 0; i < M; i++)
			for (int j = 0; j < NN; j++) {
				double want = 1;
				for (int t = 0; t < K; t++)
					want += (double)a[i * K + t] * b[t * NN + j];
				for (int t = 0; t < M; t++)
					want += (double)a[t * K + i] * b[t * NN + j];
				if (!(fabs(c[i * NN + j] - want) < 1e-5))
					fail_msg("%s: product [%d][%d] is %g, not %g", kernels->name, i, j, c[i * NN + j], want);
			}
		for (int j = 0; j < NN; j++)
			e[j] = (float)j - 60;
		e[7] = -INFINITY;
		double sum = 0, got = kernels->exp_sum(e, NN, -8);
		for (int j = 0; j < NN; j++) {
			double want = j == 7 ? 0 : exp(j - 52.0);
			sum += want;
			if (!(fabs(e[j] - want) <= 3e-7 * want + 1e-37))
				fail_msg("%s: exp [%d] is %g, not %g", kernels->name, j, e[j], want);
		}
		assert_true(fabs(got - sum) < 1e-6 * sum);
		for (int j = 0; j < NN; j++)
			e[j] = (float)j * .7f - 18;
		kernels->silu(e, NN, s, ds);
		for (int j = 0; j < NN; j++) {
			double q = 1 / (1 + exp(-(double)e[j]));
			if (!(fabs(s[j] - e[j] * q) < 1e-5 && fabs(ds[j] - q * (1 + e[j] * (1 - q))) < 1e-6))
				fail_msg("%s: silu(%g) is %g, slope %g", kernels->name, e[j], s[j], ds[j]);
		}
	}
	(void)state;
}

static void test_file(void **state)
{
	char path[] = "/tmp/kvbench-lkv-XXXXXX", err[ERR_LEN] = "";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	struct lkv_net *net = some_net(LKV_HEAD, 3, 2, 8, 7, 11), *back = NULL;
	const struct lkv_origin o = {"aaaa", "bbbb", "0011", "{}", "a test"};
	assert_int_equal(lkv_file_write(path, net, &o, err), 0);
	struct st_file *f = fixture_open(path);
	assert_int_equal(lkv_file_read(&back, f, path, 3, 2, 8, err), 0);
	for (int t = 0; t < LKV_TENSORS; t++)
		assert_memory_equal(back->p[t], net->p[t], (size_t)net->count[t] * sizeof(float));
	assert_int_equal(back->shape.kind, LKV_HEAD);
	assert_true(back->shape.pre && back->shape.key && back->shape.value);
	lkv_net_free(back);
	assert_int_equal(lkv_file_read(&back, f, path, 3, 4, 8, err), -1); /* another model's sizes */
	assert_non_null(strstr(err, "KV heads"));
	st_close(f);
	net->p[LKV_W2][3] = NAN;
	assert_int_equal(lkv_file_write(path, net, &o, err), 0);
	f = fixture_open(path);
	assert_int_equal(lkv_file_read(&back, f, path, 3, 2, 8, err), -1);
	assert_non_null(strstr(err, "not finite"));
	st_close(f);
	lkv_net_free(net);
	unlink(path);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_chain), cmocka_unit_test(test_budgets),
		cmocka_unit_test(test_rates), cmocka_unit_test(test_utilities), cmocka_unit_test(test_turns),
		cmocka_unit_test(test_dense), cmocka_unit_test(test_file)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
