/* gradients.h: forward, losses and backward of the trained mappers against PyTorch's float64 fixtures and finite differences.
 *
 * Included by test_gradients_f64.c and test_gradients_f32.c, which say for which element type, and how near is near enough:
 * TOLERANCE is relative to the largest entry of the tensor compared, or to ZERO for tensors of smaller entries (those that
 * cancel). Every set of kernels this CPU can run is tested. */
#include "runners/mapper/net.h"
#include "runners/model/safetensors.h"
#include "tests/unit/test.h"

static const char *const cases[] = {"flat", "flat_taps5", "axial", "axial_batch", "axial_full", "axial_bare"};
enum { CASES = sizeof cases / sizeof *cases };

struct fixture {
	struct st_file *file;
	struct mapper_config config;
	struct layout layout;
	struct net net;
	struct strip strip;
	const struct net_kind *kind;
	struct work *work;
	real *params, *x, *score, *d, *grad; /* x, score, d: [rows][ld] */
	int64_t rows, m, units;
	real *y, *z, *cut;               /* [rows][m], [ratios][units] */
	int64_t *fine, *anywhere, pairs; /* [2][pairs] */
};

/* A tensor of the file as reals; caller frees. */
static real *numbers(const struct fixture *f, const char *name, int64_t *count)
{
	const struct st_tensor *t = st_find(f->file, name);
	if (!t || t->type != ST_F64)
		fail_msg("the fixture has no float64 tensor %s", name);
	real *out = mem_new((size_t)t->count, sizeof *out);
	for (int64_t i = 0; i < t->count; i++) {
		double v;
		memcpy(&v, (const char *)t->data + i * 8, sizeof v);
		out[i] = (real)v;
	}
	if (count)
		*count = t->count;
	return out;
}

static int64_t *indices(const struct fixture *f, const char *name, int64_t *count)
{
	const struct st_tensor *t = st_find(f->file, name);
	int64_t *out = mem_new((size_t)t->count, sizeof *out);
	memcpy(out, t->data, (size_t)t->count * sizeof *out);
	*count = t->count;
	return out;
}

/* [rows][m] into the middle of a strip's rows, or back. */
static void to_strip(const struct fixture *f, const real *from, int64_t rows, real *to)
{
	memset(to, 0, (size_t)(rows * f->strip.ld) * sizeof *to);
	for (int64_t r = 0; r < rows; r++)
		memcpy(to + r * f->strip.ld - f->strip.first, from + r * f->m, (size_t)f->m * sizeof *to);
}
static void from_strip(const struct fixture *f, const real *from, int64_t rows, real *to)
{
	for (int64_t r = 0; r < rows; r++)
		memcpy(to + r * f->m, from + r * f->strip.ld - f->strip.first, (size_t)f->m * sizeof *to);
}

static void read_params(struct fixture *f)
{
	f->params = mem_new(f->layout.count, sizeof *f->params);
	for (int i = 0; i < f->layout.n; i++) {
		const struct param *p = &f->layout.p[i];
		if (p->at >= f->layout.trained) { /* running statistics start at mean 0, variance 1 */
			for (size_t j = 0; j < p->count; j++)
				f->params[p->at + j] = (real)p->init_value;
			continue;
		}
		char *name = text_format("param.%s", p->name);
		int64_t count;
		real *v = numbers(f, name, &count);
		assert_int_equal(count, p->count);
		memcpy(f->params + p->at, v, p->count * sizeof *v);
		free(v);
		free(name);
	}
}

static void fixture_open(struct fixture *f, const char *name, const struct kernels *kernels)
{
	char err[ERR_LEN], *path = text_format("tests/fixtures/mapper/%s.safetensors", name);
	memset(f, 0, sizeof *f);
	if (st_open(&f->file, path, err) || mapper_config_parse(&f->config, st_metadata(f->file, "options"), err))
		fail_msg("%s", err);
	free(path);
	layout_make(&f->layout, &f->config);
	f->net = (struct net){.config = &f->config, .layout = &f->layout, .kernels = kernels};
	f->kind = REAL(net_kind)(f->config.kind);
	f->rows = f->config.layers * f->config.kv_heads;
	f->m = st_find(f->file, "y")->count / f->rows;
	f->strip = (struct strip){.first = -3, .n = f->m, .cols = 32, .ld = 32 + PAD};
	f->work = f->kind->work_new(&f->net, &f->strip);
	assert_non_null(f->work);
	int64_t inputs = f->config.proxy_layers * f->config.proxy_heads;
	real *x = numbers(f, "X", NULL);
	f->x = REAL(block_new)((size_t)(inputs * f->strip.ld));
	to_strip(f, x, inputs, f->x);
	free(x);
	f->score = REAL(block_new)((size_t)(f->rows * f->strip.ld));
	f->d = REAL(block_new)((size_t)(f->rows * f->strip.ld));
	f->grad = mem_new(f->layout.count, sizeof *f->grad);
	f->y = numbers(f, "y", NULL);
	f->z = numbers(f, "z", NULL);
	f->cut = numbers(f, "cut", &f->units);
	f->units /= MAPPER_RATIOS;
	f->fine = indices(f, "fine", &f->pairs);
	f->anywhere = indices(f, "anywhere", &f->pairs);
	f->pairs /= 2;
	read_params(f);
}

static void fixture_close(struct fixture *f)
{
	f->kind->work_free(f->work);
	REAL(block_free)(f->x);
	REAL(block_free)(f->score);
	REAL(block_free)(f->d);
	free(f->grad);
	free(f->params);
	free(f->y);
	free(f->z);
	free(f->cut);
	free(f->fine);
	free(f->anywhere);
	st_close(f->file);
}

/* got[i] near want[i], relative to want's largest entry (or to `scale` where that is larger). */
static void near(const real *got, const real *want, int64_t n, double scale, double tolerance, const char *what)
{
	for (int64_t i = 0; i < n; i++)
		scale = fabs((double)want[i]) > scale ? fabs((double)want[i]) : scale;
	for (int64_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * scale))
			fail_msg("%s[%lld] is %.17g, not %.17g (largest %.3g)", what, (long long)i, (double)got[i],
				(double)want[i], scale);
}

static void near_file(const struct fixture *f, const char *name, const real *got, double scale)
{
	int64_t n;
	real *want = numbers(f, name, &n);
	near(got, want, n, scale, TOLERANCE, name);
	free(want);
}

static void run_forward(struct fixture *f, real *score, bool update)
{
	assert_int_equal(f->kind->forward(f->work, f->params, f->x, f->score, update, NULL), 0);
	from_strip(f, f->score, f->rows, score);
}

static struct loss loss_of(const struct fixture *f, const real *score, const double *weight)
{
	return (struct loss){.score = score,
		.y = f->y,
		.z = f->z,
		.rows = f->rows,
		.m = f->m,
		.unit_rows = f->rows / f->units,
		.cut = f->cut,
		.pairs_fine = f->pairs,
		.pairs_global = f->pairs,
		.fine = {f->fine, f->fine + f->pairs},
		.global = {f->anywhere, f->anywhere + f->pairs},
		.weight = weight};
}

static void run_backward(struct fixture *f, const real *d)
{
	to_strip(f, d, f->rows, f->d);
	memset(f->grad, 0, f->layout.count * sizeof *f->grad);
	assert_int_equal(f->kind->backward(f->work, f->params, f->x, f->d, f->grad, NULL), 0);
}

/* ---- against PyTorch ---- */
static void compare_term(struct fixture *f, const real *score, int term)
{
	double weight[MAPPER_TERMS] = {0}, value[MAPPER_TERMS];
	real *d = mem_new((size_t)(f->rows * f->m), sizeof *d), got;
	weight[term] = 1;
	const struct loss l = loss_of(f, score, weight);
	assert_int_equal(REAL(loss)(&l, f->net.kernels, value, d), 0);
	char *name = text_format("loss.%s", mapper_terms[term]);
	got = (real)value[term];
	near_file(f, name, &got, 0);
	free(name);
	name = text_format("dscore.%s", mapper_terms[term]);
	near_file(f, name, d, 0);
	free(name);
	real *scratch = mem_new((size_t)(f->rows * f->m), sizeof *scratch);
	run_forward(f, scratch, false); /* backward passes use activations up */
	run_backward(f, d);
	for (int i = 0; i < f->layout.n; i++) {
		const struct param *p = &f->layout.p[i];
		if (p->at >= f->layout.trained)
			continue;
		name = text_format("grad.%s.%s", mapper_terms[term], p->name);
		/* where the loss does not depend on a parameter (a bias that only shifts all scores), PyTorch's gradient is
		 * rounding */
		near_file(f, name, f->grad + p->at, ZERO);
		free(name);
	}
	free(scratch);
	free(d);
}

static void compare_batch(struct fixture *f, real *score)
{
	static const enum param_id ids[] = {P_N1_MEAN, P_N1_VAR, P_N2_MEAN, P_N2_VAR};
	if (f->layout.at[P_N1_MEAN] < 0)
		return;
	run_forward(f, score, true);
	for (int i = 0; i < f->layout.n; i++)
		for (int j = 0; j < 4; j++)
			if ((int64_t)f->layout.p[i].at == f->layout.at[ids[j]]) {
				char *name = text_format("after.%s", f->layout.p[i].name);
				near_file(f, name, f->params + f->layout.p[i].at, 0);
				free(name);
			}
	/* inference takes the running statistics */
	real *block = REAL(block_new)(f->kind->infer_scratch(&f->net, &f->strip));
	for (int g = 0; g < mapper_groups(&f->config); g++)
		f->kind->infer(&f->net, f->params, g, &f->strip, (struct input){.x = f->x}, block, f->score);
	from_strip(f, f->score, f->rows, score);
	near_file(f, "score_eval", score, 0);
	REAL(block_free)(block);
}

static void test_pytorch(void **state)
{
	(void)state;
	const struct kernels *k;
	for (int i = 0; (k = REAL(kernels_at)(i)); i++)
		for (int c = 0; c < CASES; c++) {
			struct fixture f;
			fixture_open(&f, cases[c], k);
			print_message("%s, %s\n", cases[c], k->name);
			real *score = mem_new((size_t)(f.rows * f.m), sizeof *score);
			run_forward(&f, score, false);
			near_file(&f, "score", score, 0);
			for (int term = 0; term < MAPPER_TERMS; term++)
				compare_term(&f, score, term);
			compare_batch(&f, score);
			free(score);
			fixture_close(&f);
		}
}
