/* test_mapper.c: configuration, forward pass over whole contexts (spec 1.9), the same as a list of steps, files, recall and its floors, shards. */
#include "runners/mapper/net.h"
#include "runners/mapper/program.h"
#include "runners/model/safetensors.h"
#include "tests/unit/device/steps_plain.h"
#include "tests/unit/mapper/forms.h"

/* The whole context as one strip, at inference's statistics. */
static float *one_strip(const struct mapper *m, const float *x, int64_t n)
{
	const struct net net = {.config = &m->config, .layout = &m->layout, .kernels = kernels_at_f32(0)};
	const struct net_kind *kind = net_kind_f32(m->config.kind);
	const struct feature_plan plan = {.config = &m->config, .n = n, .mean = m->feature_mean, .dev = m->feature_dev};
	struct strip s = {.n = n, .cols = (n + PAD - 1) / PAD * PAD};
	s.ld = s.cols + PAD;
	float *in = block_new_f32((size_t)(LS * HS * s.ld)), *out = block_new_f32((size_t)(LL * HL * s.ld));
	float *scratch = block_new_f32(kind->infer_scratch(&net, &s)), *scale = mem_new((size_t)s.cols, sizeof *scale);
	float *y = mem_new((size_t)(LL * HL * n), sizeof *y);
	feature_scale(&plan, 0, s.cols, scale);
	for (int r = 0; r < LS * HS; r++) {
		memcpy(in + r * s.ld, x + r * n, (size_t)n * sizeof *in);
		feature_row(&plan, r, in + r * s.ld, scale, s.cols, in + r * s.ld);
	}
	strip_mask_f32(&s, in, LS * HS);
	for (int g = 0; g < mapper_groups(&m->config); g++)
		kind->infer(&net, m->params, g, &s, (struct input){.x = in}, scratch, out);
	for (int r = 0; r < LL * HL; r++)
		memcpy(y + r * n, out + r * s.ld, (size_t)n * sizeof *y);
	block_free_f32(in);
	block_free_f32(out);
	block_free_f32(scratch);
	free(scale);
	return y;
}

/* N = 1, N < 3, odd, around the strip's width: strips and threads never change a bit; attention's blocks start elsewhere, which
 * may change the last bits of a sum over its window. */
static void test_strips(void **state)
{
	static const int64_t lengths[] = {1, 2, 3, 7, 16, 17, 251, 252, 253, 256, 700, 1021};
	struct mapper_pool pool = threads_new(3);
	(void)state;
	for (int f = 0; f < FORMS; f++) {
		struct mapper *m = form(forms[f]);
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
			const int64_t n = lengths[i], count = LL * HL * n;
			float *x = random_sums(n, 3), *y = scores(m, x, n, NULL), *y3 = scores(m, x, n, &pool),
			      *whole = one_strip(m, x, n);
			assert_memory_equal(y, y3, (size_t)count * sizeof *y);
			double gap = largest_gap(y, whole, count);
			if (!(gap <= (m->config.window ? 2e-5 : 0)))
				fail_msg("%s, %lld positions: strips differ from the whole by %g", forms[f], (long long)n, gap);
			double low = (double)y[0], high = low;
			for (int64_t k = 0; k < count; k++) {
				assert_true(isfinite(y[k]));
				low = fmin(low, (double)y[k]);
				high = fmax(high, (double)y[k]);
			}
			assert_true(high > low + .01);
			free(x);
			free(y);
			free(y3);
			free(whole);
		}
		mapper_free(m);
	}
	threads_free(&pool);
}

/* Spec 1.9: the heads of the proxy are a set to the axial mapper, told apart by their embeddings alone. */
static void test_permuted_heads(void **state)
{
	static const int order[HS] = {3, 0, 4, 1, 2};
	const int64_t n = 300;
	(void)state;
	for (int f = 2; f < FORMS; f++) {
		struct mapper *m = form(forms[f]), *p = form(forms[f]);
		const int width = mapper_width(&m->config);
		float *x = random_sums(n, 4), *px = random_sums(n, 4);
		for (int l = 0; l < LS; l++)
			for (int h = 0; h < HS; h++) {
				int to = l * HS + h, from = l * HS + order[h];
				memcpy(px + to * n, x + from * n, (size_t)n * sizeof *x);
				p->feature_mean[to] = m->feature_mean[from];
				p->feature_dev[to] = m->feature_dev[from];
			}
		const int groups = m->config.embeddings == MAPPER_EMB_FULL ? mapper_groups(&m->config) : 1;
		for (int g = 0; g < groups; g++)
			for (int h = 0; h < HS; h++)
				memcpy(p->params + p->layout.at[P_HE] + (g * HS + h) * width,
					m->params + m->layout.at[P_HE] + (g * HS + order[h]) * width,
					(size_t)width * sizeof *p->params);
		float *y = scores(m, x, n, NULL), *same = scores(p, px, n, NULL), *other = scores(m, px, n, NULL);
		assert_true(largest_gap(y, same, LL * HL * n) < 2e-5);
		assert_true(largest_gap(y, other, LL * HL * n) > .05); /* without the embeddings it is another input */
		free(x);
		free(px);
		free(y);
		free(same);
		free(other);
		mapper_free(m);
		mapper_free(p);
	}
}

/* A window of 64 to each side and full attention have the same parameters, and agree while nothing is farther apart than 64. */
static void test_window_and_full(void **state)
{
	struct mapper *w = form("mapper=axial channels=16 window=64"), *f = form("mapper=axial channels=16 window=full");
	(void)state;
	assert_int_equal(w->layout.count, f->layout.count);
	for (int64_t n = 1; n <= 130; n += 13) {
		float *x = random_sums(n, 6), *a = scores(w, x, n, NULL), *b = scores(f, x, n, NULL);
		double gap = largest_gap(a, b, LL * HL * n);
		if (n <= 65)
			assert_true(gap < 2e-5);
		if (n >= 118)
			assert_true(gap > 1e-4);
		free(x);
		free(a);
		free(b);
	}
	char err[ERR_LEN];
	float one;
	assert_int_equal(mapper_forward(f, &one, MAPPER_FULL_MAX + 1, &one, NULL, err), -1);
	assert_non_null(strstr(err, "window = full"));
	mapper_free(w);
	mapper_free(f);
}

/* ---- the same as a list of steps ---- */

/* The whole context as one strip, the steps in double. */
static float *by_steps(const struct mapper *m, const float *x, int64_t n)
{
	struct mapper_program *p = mapper_program_new(m);
	struct plain_matrix matrix = {mem_new((size_t)(p->rows * n), sizeof(double)), n, p->params};
	float *scale = mem_new((size_t)n, sizeof *scale), *y = mem_new((size_t)(LL * HL * n), sizeof *y);
	mapper_scale(m, n, scale);
	for (int64_t i = 0; i < p->rows * n; i++)
		matrix.x[i] = NAN; /* nothing is read that was not written */
	for (int64_t i = 0; i < LS * HS * n; i++)
		matrix.x[p->x * n + i] = (double)x[i];
	for (int64_t i = 0; i < n; i++)
		matrix.x[p->scale * n + i] = (double)scale[i];
	plain_steps(&matrix, p->step, p->steps);
	for (int64_t i = 0; i < LL * HL * n; i++)
		y[i] = (float)matrix.x[p->score * n + i];
	free(matrix.x);
	free(scale);
	mapper_program_free(p);
	return y;
}

static const char *const more_forms[] = {
	"mapper=flat channels=24 queries=stride:3 compress=log1p",
	"mapper=linear queries=last:9 compress=none normalize=sum taps=1",
	"mapper=axial channels=16 norm=batch neighbours=all window=3",
	"mapper=axial channels=16 embeddings=shared encoder=off norm=batch",
};
enum { MORE_FORMS = sizeof more_forms / sizeof *more_forms };

/* Every form and option, at lengths below and above the taps and the window: what was folded is the same function. */
static void test_steps(void **state)
{
	static const int64_t lengths[] = {1, 2, 3, 5, 37};
	double worst = 0;
	(void)state;
	for (int f = 0; f < FORMS + MORE_FORMS; f++)
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
			const char *options = f < FORMS ? forms[f] : more_forms[f - FORMS];
			struct mapper *m = form(options);
			float *x = random_sums(lengths[i], 7), *want = scores(m, x, lengths[i], NULL), *got = by_steps(m, x, lengths[i]);
			double gap = largest_gap(got, want, LL * HL * lengths[i]);
			worst = gap > worst ? gap : worst;
			if (!(gap < 2e-5)) /* of scores of order 1; observed 7e-6 */
				fail_msg("%s, %lld positions: the steps differ by %g", options, (long long)lengths[i], gap);
			free(x);
			free(want);
			free(got);
			mapper_free(m);
		}
	print_message("steps against the host's forward pass: largest difference %.2g\n", worst);
}

/* ---- configuration ---- */
static void test_options(void **state)
{
	struct mapper_config c = plant_config(
				     "mapper=axial layers=7 queries=stride:4 window=full neighbours=all norm=batch w_cos=0.5 "
				     "seed=18446744073709551615 lr=1e-3 compress=log1p source=self"),
			     back;
	char err[ERR_LEN], name[32], *json = mapper_config_json(&c);
	(void)state;
	assert_int_equal(mapper_config_parse(&back, json, err), 0);
	assert_memory_equal(&c, &back, sizeof c);
	free(json);
	assert_int_equal(c.window, MAPPER_ALL);
	assert_int_equal(c.neighbours, MAPPER_ALL);
	mapper_feature_name(&c, name);
	assert_string_equal(name, "self:stride:4");
	static const char *const wrong[][2] = {{"windw", "3"}, {"window", "wide"}, {"window", "-1"}, {"mapper", "cubic"},
		{"queries", "last:"}, {"queries", "stride:0"}, {"lr", "fast"}, {"lr", "nan"}, {"steps", "12x"}, {"seed", "-1"},
		{"encoder", ""}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		back = c;
		assert_int_equal(mapper_option(&back, wrong[i][0], wrong[i][1], err), -1);
		assert_memory_equal(&c, &back, sizeof c);
	}
	assert_int_equal(mapper_option(&back, "windw", "3", err), -1);
	assert_non_null(strstr(err, "did you mean \"window\""));
	assert_int_equal(mapper_config_parse(&back, "[1]", err), -1);
	back = plant_config("mapper=axial channels=30 layers=2 proxy_heads=2 target_layers=2 target_kv_heads=2");
	assert_null(mapper_new(&back, err));
	back = plant_config("taps=4 layers=2 proxy_heads=2 target_layers=2 target_kv_heads=2");
	assert_null(mapper_new(&back, err));
	back = plant_config("mapper=flat");
	assert_null(mapper_new(&back, err)); /* no shapes */
}

/* How many queries see a key, counted the slow way. */
static void test_queries(void **state)
{
	static const char *const options[] = {
		"queries=all", "queries=stride:4", "queries=stride:1", "queries=last:3", "queries=last:100"};
	(void)state;
	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		struct mapper_config c = plant_config(options[i]);
		for (int64_t n = 1; n < 30; n++)
			for (int64_t j = 0; j < n; j++) {
				int64_t seen = 0;
				for (int64_t q = j; q < n; q++)
					seen += mapper_query_used(&c, n, q);
				assert_int_equal(mapper_query_seen(&c, n, j), seen);
				assert_true(seen >= 1);
			}
	}
}

/* The rigid map of the paper: target layer l (1-based) reads proxy layer ceil(l Ls / Ll). */
static void test_layer_map(void **state)
{
	struct mapper_config c = plant_config("mapper=axial layers=24 target_layers=28");
	(void)state;
	for (int l = 1; l <= 28; l++)
		assert_int_equal(mapper_group_of(&c, l - 1) + 1, (l * 24 + 27) / 28);
	c.proxy_layers = 28, c.layers = 24;
	assert_int_equal(mapper_group_of(&c, 0), 1);
	assert_int_equal(mapper_group_of(&c, 23), 27);
}

/* What the mapper learns is a rising function of the oracle under both targets; logit tells values near 1 apart. */
static void test_target(void **state)
{
	static const float y[] = {0, 1e-4f, .01f, .5f, .9f, .99f, .999f, 1};
	const struct mapper_config flat = plant_config("target=log"), odds = plant_config("target=logit");
	(void)state;
	for (size_t i = 1; i < sizeof y / sizeof *y; i++) {
		float log_step = oracle_value(&flat, y[i]) - oracle_value(&flat, y[i - 1]);
		float odds_step = oracle_value(&odds, y[i]) - oracle_value(&odds, y[i - 1]);
		assert_true(log_step > 0 && odds_step > log_step);
		if (y[i] > .95f)
			assert_true(log_step < .1f && odds_step > .5f);
	}
}

/* ---- recall ---- */
static void test_recall(void **state)
{
	/* 2 layers x 1 head x 10: the oracle's top 2 of 20 (r = .1) are entries 0 and 1 of layer 0 */
	float oracle[20], score[20];
	double out[MAPPER_RATIOS];
	(void)state;
	for (int i = 0; i < 20; i++)
		oracle[i] = (float)(100 - i), score[i] = (float)(100 - i);
	mapper_recall(score, oracle, 2, 1, 10, MAPPER_SCOPE_GLOBAL, out);
	for (int r = 0; r < MAPPER_RATIOS; r++)
		assert_true(out[r] == 1);
	score[0] = NAN; /* ranks last */
	mapper_recall(score, oracle, 2, 1, 10, MAPPER_SCOPE_GLOBAL, out);
	assert_true(out[0] == .5);
	assert_true(out[1] == .75);
	for (int i = 0; i < 20; i++)
		score[i] = 1; /* all equal: the lower index is taken, here the oracle's own order */
	mapper_recall(score, oracle, 2, 1, 10, MAPPER_SCOPE_GLOBAL, out);
	assert_true(out[0] == 1 && out[4] == 1);
	for (int i = 0; i < 10; i++)
		score[i] = (float)i, score[10 + i] = (float)(20 - i); /* layer 0 reversed, layer 1 right and above it */
	mapper_recall(score, oracle, 2, 1, 10, MAPPER_SCOPE_GLOBAL, out);
	assert_true(out[0] == 0);
	assert_true(fabs(out[4] - 8 / 14.0) < 1e-12); /* layer 1 and four of layer 0; the oracle: layer 0 and four of layer 1 */
	mapper_recall(score, oracle, 2, 1, 10, MAPPER_SCOPE_HEAD, out);
	assert_true(out[0] == .5);
}

/* The floor in expectation: heads whole by level, the last one in part. */
static void test_prior_recall(void **state)
{
	float oracle[20];
	double out[MAPPER_RATIOS];
	(void)state;
	for (int i = 0; i < 20; i++)
		oracle[i] = (float)(100 - i); /* layer 0 holds the whole top half */
	const float right[2] = {2, 1}, wrong[2] = {1, 2}, equal[2] = {3, 3};
	mapper_prior_recall(right, oracle, 2, 1, 10, MAPPER_SCOPE_GLOBAL, out);
	assert_true(fabs(out[0] - .2) < 1e-12 && fabs(out[3] - 1) < 1e-12);
	assert_true(fabs(out[4] - (10 + 4 * .4) / 14) < 1e-12);
	mapper_prior_recall(wrong, oracle, 2, 1, 10, MAPPER_SCOPE_GLOBAL, out);
	assert_true(out[0] == 0 && out[3] == 0);
	mapper_prior_recall(equal, oracle, 2, 1, 10, MAPPER_SCOPE_GLOBAL, out);
	for (int r = 0; r < MAPPER_RATIOS; r++)
		assert_true(fabs(out[r] - mapper_ratios[r]) < 1e-12);
	mapper_prior_recall(right, oracle, 2, 1, 10, MAPPER_SCOPE_HEAD, out);
	for (int r = 0; r < MAPPER_RATIOS; r++)
		assert_true(fabs(out[r] - mapper_ratios[r]) < 1e-12);
}

/* ---- files ---- */
static void test_file(void **state)
{
	struct plant p;
	char err[ERR_LEN], *path;
	struct mapper *back;
	const int64_t n = 150;
	(void)state;
	plant_new(&p, 4, 1);
	path = text_format("%s/mapper.safetensors", p.folder);
	static const char *const options[] = {"mapper=linear target=logit", "mapper=flat channels=8 steps=5 w_mse=2",
		"mapper=axial channels=8 steps=3 norm=batch window=3"};
	for (int i = 0; i < 3; i++) {
		struct mapper *m = plant_train(&p, options[i], NULL);
		struct shard s;
		assert_int_equal(shard_open(&s, p.path[0], err), 0);
		assert_int_equal(mapper_write(m, path, err), 0);
		assert_int_equal(mapper_read(&back, path, &s.pair, err), 0);
		assert_memory_equal(m->params, back->params, m->layout.count * sizeof *m->params);
		assert_memory_equal(&m->config, &back->config, sizeof m->config);
		back->record.train_ns = m->record.train_ns; /* not in the file: the same training gives the same bytes */
		assert_memory_equal(&m->record, &back->record, sizeof m->record);
		assert_memory_equal(m->share, back->share, MAPPER_RATIOS * PLANT_LAYERS * PLANT_KV * sizeof *m->share);
		assert_true(m->z_mean == back->z_mean && m->z_dev == back->z_dev);
		assert_string_equal(back->pair.target, "planted-target");
		assert_int_equal(mapper_context_count(back), 4);
		assert_true(mapper_trained_on(back, s.context_sha256));
		char other[SHA_LEN];
		sha256_hex("never seen", 10, other);
		assert_false(mapper_trained_on(back, other));
		float *x = mem_new((size_t)(PLANT_LAYERS * PLANT_HEADS * n), sizeof *x);
		assert_int_equal(s.n, n);
		assert_int_equal(shard_read_feature(&s, "model:all", x, err), 0);
		float *a = scores(m, x, n, NULL), *b = scores(back, x, n, NULL);
		assert_memory_equal(a, b, (size_t)(PLANT_LAYERS * PLANT_KV * n) * sizeof *a);
		mapper_free(back);
		/* another pair is refused, by what differs */
		struct mapper_pair pair = s.pair;
		pair.proxy_sha256[3] ^= 1;
		assert_int_equal(mapper_read(&back, path, &pair, err), -1);
		assert_non_null(strstr(err, "another proxy"));
		pair = s.pair;
		pair.tokenizer_sha256[0] ^= 1;
		assert_int_equal(mapper_read(&back, path, &pair, err), -1);
		assert_non_null(strstr(err, "another tokenizer"));
		assert_int_equal(mapper_read(&back, p.path[0], NULL, err), -1); /* a shard is no mapper */
		shard_close(&s);
		assert_int_equal(shard_open(&s, path, err), -1); /* nor a mapper a shard */
		free(x);
		free(a);
		free(b);
		mapper_free(m);
	}
	char *data;
	size_t len;
	assert_int_equal(file_read(path, &data, &len, err), 0);
	assert_int_equal(mapper_read_memory(&back, "memory", data, len, NULL, err), 0);
	mapper_free(back);
	assert_int_equal(mapper_read_memory(&back, "memory", data, len - 4, NULL, err), -1);
	memset(data + len - 8, 0xff, 4); /* NaN */
	assert_int_equal(mapper_read_memory(&back, "memory", data, len, NULL, err), -1);
	free(data);
	unlink(path);
	free(path);
	plant_free(&p);
}

/* Cut anywhere, a file is refused; with any byte of its header changed it is refused or read, by what it then says. */
static void test_damage(void **state)
{
	struct plant p;
	char err[ERR_LEN], *path, *data;
	struct mapper *back;
	size_t len;
	uint64_t header;
	(void)state;
	plant_new(&p, 2, 1);
	path = text_format("%s/mapper.safetensors", p.folder);
	struct mapper *m = plant_train(&p, "mapper=flat channels=8 steps=1", NULL);
	assert_int_equal(mapper_write(m, path, err), 0);
	assert_int_equal(file_read(path, &data, &len, err), 0);
	memcpy(&header, data, sizeof header);
	for (size_t cut = 0; cut < len; cut += 17) {
		char *part = mem_new(cut, 1); /* a block of its own, so that ASan sees a step too far */
		memcpy(part, data, cut);
		assert_int_equal(mapper_read_memory(&back, "cut", part, cut, NULL, err), -1);
		free(part);
	}
	for (size_t i = 8; i < 8 + header; i++)
		for (const char *c = "9-\"[{"; *c; c++) {
			const char before = data[i];
			data[i] = *c;
			if (mapper_read_memory(&back, "changed", data, len, NULL, err) == 0)
				mapper_free(back);
			data[i] = before;
		}
	free(data);
	unlink(path);
	free(path);
	mapper_free(m);
	plant_free(&p);
}

/* A configuration that asks for gigabytes is refused by the size of the file, before they are allocated. */
static void test_absurd_shapes(void **state)
{
	struct mapper_config c = plant_config("mapper=flat layers=1024 proxy_heads=1024 target_layers=1024 target_kv_heads=1024");
	char err[ERR_LEN], path[] = "/tmp/kvb-mapper-XXXXXX", *config = mapper_config_json(&c);
	const struct st_meta meta[] = {{"format", "kvbench-mapper 1"}, {"config", config}};
	struct mapper *back;
	(void)state;
	close(mkstemp(path));
	assert_int_equal(st_write(path, NULL, 0, meta, 2, err), 0);
	assert_int_equal(mapper_read(&back, path, NULL, err), -1);
	assert_non_null(strstr(err, path));
	assert_non_null(strstr(err, "more than the file can hold"));
	unlink(path);
	free(config);
}

static void test_prior(void **state)
{
	struct plant p;
	(void)state;
	plant_new(&p, 6, 1);
	struct mapper *m = plant_train(&p, "mapper=linear", NULL);
	const int outputs = PLANT_LAYERS * PLANT_KV;
	double level = 0;
	for (int i = 0; i < outputs; i++)
		level += (double)mapper_prior_level(m)[i] / outputs;
	assert_true(fabs(level) < 1e-5); /* z has mean 0 over all heads */
	for (int r = 0; r < MAPPER_RATIOS; r++) {
		double mean = 0;
		for (int i = 0; i < outputs; i++)
			mean += (double)mapper_prior_share(m)[r * outputs + i] / outputs;
		assert_true(fabs(mean - mapper_ratios[r]) < 2e-3);
	}
	static const double at[] = {.05, .1, .2, .4, .7, .9, 1};
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		float share[PLANT_LAYERS * PLANT_KV];
		double mean = 0;
		mapper_prior_at(m, at[i], share);
		for (int k = 0; k < outputs; k++) {
			assert_true(share[k] >= 0 && share[k] <= 1);
			mean += (double)share[k] / outputs;
		}
		assert_true(fabs(mean - at[i]) < 2e-3);
	}
	mapper_free(m);
	plant_free(&p);
}

/* Of the top r of an order and of the reverse order, max(0, 2r - 1) is the same; contexts without a second oracle do not count.
 */
static void test_ceiling(void **state)
{
	struct plant p;
	double seen[MAPPER_RATIOS] = {-1, -1, -1, -1, -1};
	(void)state;
	plant_new(&p, 1, 1);
	struct mapper_config c = plant_config("mapper=linear");
	struct mapper_set *set = plant_set(&p, &c, NULL);
	assert_int_equal(mapper_set_ceiling(set, MAPPER_SCOPE_GLOBAL, seen), 0);
	assert_true(seen[0] == -1);
	mapper_set_close(set);
	plant_shard_again(&p, "eval", 400, 5, 2);
	plant_shard_again(&p, "eval", 300, 6, -1);
	set = plant_set(&p, &c, NULL);
	for (int scope = 0; scope < MAPPER_SCOPES; scope++) {
		assert_int_equal(mapper_set_ceiling(set, scope, seen), 2);
		for (int r = 0; r < MAPPER_RATIOS; r++) {
			double same = mapper_ratios[r] > .5 ? 2 - 1 / mapper_ratios[r] : 0;
			if (!(fabs(seen[r] - (1 + same) / 2) < 4e-3)) /* equal values in fp16 */
				fail_msg("scope %d: %.4f at %g", scope, seen[r], mapper_ratios[r]);
		}
	}
	mapper_set_close(set);
	plant_free(&p);
}

/* heads = kv: rows are means over the query heads of a group; layers = n: the first n only. */
static void test_set_rows(void **state)
{
	struct plant p;
	char err[ERR_LEN];
	struct shard s;
	const int64_t n = 150;
	(void)state;
	plant_new(&p, 1, 0);
	assert_int_equal(shard_open(&s, p.path[0], err), 0);
	float *x = mem_new((size_t)(PLANT_LAYERS * PLANT_HEADS * n), sizeof *x), row[150];
	assert_int_equal(shard_read_feature(&s, "model:all", x, err), 0);
	assert_int_equal(shard_read_feature(&s, "model:last:5", x, err), -1);
	struct mapper_config c = plant_config("heads=kv layers=2");
	struct mapper_set *set = plant_set(&p, &c, NULL);
	assert_int_equal(c.proxy_heads, PLANT_KV);
	assert_int_equal(c.proxy_layers, 2);
	assert_int_equal(set_inputs(set), 2 * PLANT_KV);
	for (int r = 0; r < 2 * PLANT_KV; r++) {
		set_feature(set, 0, r, 10, 100, row);
		for (int i = 0; i < 100; i++)
			assert_true(row[i] == (x[(2 * r) * n + 10 + i] + x[(2 * r + 1) * n + 10 + i]) / 2);
	}
	mapper_set_close(set);
	shard_close(&s);
	free(x);
	plant_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_layer_map),
		cmocka_unit_test(test_strips),
		cmocka_unit_test(test_permuted_heads),
		cmocka_unit_test(test_window_and_full),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_target),
		cmocka_unit_test(test_recall),
		cmocka_unit_test(test_prior_recall),
		cmocka_unit_test(test_ceiling),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_absurd_shapes),
		cmocka_unit_test(test_prior),
		cmocka_unit_test(test_set_rows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
