/* test_tail.c: the frozen decoder's forward and backward on tails, in double against PyTorch and finite differences for every
 * architecture, in fp32 against the same numbers. */
#include "runners/lkv/tail.h"
#include "tests/unit/lkv/lkv_fixture.h"

/* All weights of a model as doubles, and one fixture's context. */
struct plain {
	struct model *model;
	const struct model_config *config;
	double *inv_freq, mscale, *final_norm, *head;
	double **w[4]; /* [layers], by enum tail_linear */
	double **bias; /* [layers] of q|k|v; NULL */
	struct tail_norms_d *norms;
	double *K, *V; /* [L][Hk][n][d] */
	int64_t n, rows_of[4], cols_of[4];
};

static int64_t append(struct plain *p, enum tensor_role role, int layer, double *out)
{
	int64_t rows, cols;
	char err[ERR_LEN] = "";
	model_shape(p->model, role, layer, &rows, &cols);
	float *f = mem_new((size_t)(rows * cols), sizeof *f);
	if (model_rows(p->model, role, layer, 0, rows, f, err))
		fail_msg("%s", err);
	for (int64_t i = 0; i < rows * cols; i++)
		out[i] = f[i];
	free(f);
	return rows * cols;
}

static double *vector(struct plain *p, enum tensor_role role, int layer)
{
	double *v = mem_new(4096, sizeof *v);
	append(p, role, layer, v);
	return v;
}

static void plain_open(struct plain *p, const char *path)
{
	static const struct {
		int n;
		enum tensor_role role[3];
	} parts[4] = {{3, {T_Q, T_K, T_V}}, {1, {T_O}}, {2, {T_GATE, T_UP}}, {1, {T_DOWN}}};
	char err[ERR_LEN] = "";
	*p = (struct plain){0};
	if (model_open(&p->model, path, err))
		fail_msg("%s", err);
	const struct model_config *c = p->config = model_config(p->model);
	int64_t hd = c->heads * c->head_dim, width = hd + 2 * c->kv_heads * c->head_dim;
	const int64_t rows[4] = {width, c->hidden, 2 * (int64_t)c->ffn, c->hidden}, cols[4] = {c->hidden, hd, c->hidden, c->ffn};
	memcpy(p->rows_of, rows, sizeof rows);
	memcpy(p->cols_of, cols, sizeof cols);
	p->inv_freq = mem_new((size_t)c->head_dim, sizeof(double));
	model_rope(c, p->inv_freq, &p->mscale);
	p->final_norm = vector(p, T_FINAL_NORM, 0);
	p->norms = mem_new((size_t)c->layers, sizeof *p->norms);
	p->bias = mem_new((size_t)c->layers, sizeof *p->bias);
	for (int k = 0; k < 4; k++) {
		p->w[k] = mem_new((size_t)c->layers, sizeof **p->w);
		for (int l = 0; l < c->layers; l++) {
			double *out = p->w[k][l] = mem_new((size_t)(rows[k] * cols[k]), sizeof *out);
			for (int i = 0; i < parts[k].n; i++)
				out += append(p, parts[k].role[i], l, out);
		}
	}
	for (int l = 0; l < c->layers; l++) {
		p->norms[l] = (struct tail_norms_d){vector(p, T_ATTN_NORM, l), vector(p, T_FFN_NORM, l),
			c->qk_norm ? vector(p, T_Q_NORM, l) : NULL, c->qk_norm ? vector(p, T_K_NORM, l) : NULL};
		if (!c->qkv_bias)
			continue;
		double *b = p->bias[l] = mem_new((size_t)width, sizeof *b);
		b += append(p, T_Q_BIAS, l, b);
		b += append(p, T_K_BIAS, l, b);
		append(p, T_V_BIAS, l, b);
	}
	p->head = mem_new((size_t)c->vocab * (size_t)c->hidden, sizeof *p->head);
	append(p, c->tied ? T_EMBED : T_LM_HEAD, 0, p->head);
}

static void plain_close(struct plain *p)
{
	for (int l = 0; l < p->config->layers; l++) {
		for (int k = 0; k < 4; k++)
			free(p->w[k][l]);
		free((void *)p->norms[l].attn), free((void *)p->norms[l].ffn), free((void *)p->norms[l].q),
			free((void *)p->norms[l].k);
		free(p->bias[l]);
	}
	for (int k = 0; k < 4; k++)
		free(p->w[k]);
	free(p->norms), free(p->bias), free(p->inv_freq), free(p->final_norm), free(p->head);
	model_close(p->model);
}

static int linear_d(void *user, int layer, enum tail_linear which, bool back, const double *x, int64_t rows, double *out)
{
	struct plain *p = user;
	int64_t n = p->rows_of[which], k = p->cols_of[which];
	const double *w = p->w[which][layer], *b = which == TAIL_QKV ? p->bias[layer] : NULL;
	for (int64_t r = 0; r < rows; r++)
		if (!back)
			for (int64_t i = 0; i < n; i++) {
				double s = b ? b[i] : 0;
				for (int64_t j = 0; j < k; j++)
					s += w[i * k + j] * x[r * k + j];
				out[r * n + i] = s;
			}
		else {
			memset(out + r * k, 0, (size_t)k * sizeof *out);
			for (int64_t i = 0; i < n; i++)
				for (int64_t j = 0; j < k; j++)
					out[r * k + j] += w[i * k + j] * x[r * n + i];
		}
	return 0;
}

static int context_d(void *user, int layer, int kv_head, int64_t n, double *k, double *v)
{
	struct plain *p = user;
	int64_t d = p->config->head_dim, at = (int64_t)(layer * p->config->kv_heads + kv_head) * n * d;
	memcpy(k, p->K + at, (size_t)(n * d) * sizeof *k);
	memcpy(v, p->V + at, (size_t)(n * d) * sizeof *v);
	return 0;
}

/* The fp32 build over the same doubles. */
static int linear_f(void *user, int layer, enum tail_linear which, bool back, const float *x, int64_t rows, float *out)
{
	struct plain *p = user;
	int64_t in = back ? p->rows_of[which] : p->cols_of[which], to = back ? p->cols_of[which] : p->rows_of[which];
	double *a = mem_new((size_t)(rows * in), sizeof *a), *b = mem_new((size_t)(rows * to), sizeof *b);
	for (int64_t i = 0; i < rows * in; i++)
		a[i] = x[i];
	linear_d(user, layer, which, back, a, rows, b);
	for (int64_t i = 0; i < rows * to; i++)
		out[i] = (float)b[i];
	free(a);
	free(b);
	return 0;
}

static int context_f(void *user, int layer, int kv_head, int64_t n, float *k, float *v)
{
	struct plain *p = user;
	int64_t d = p->config->head_dim, at = (int64_t)(layer * p->config->kv_heads + kv_head) * n * d;
	for (int64_t i = 0; i < n * d; i++) {
		k[i] = (float)p->K[at + i];
		v[i] = (float)p->V[at + i];
	}
	return 0;
}

struct set { /* one fixture */
	struct plain p;
	struct st_file *file;
	int32_t *ids, *lens, *rows;
	int64_t n_ids, n_lens, n_rows, gates;
	double *x0, *logm, *hidden, *teacher, *loss, *d_logm, *d_x0, *d_hidden;
};

static void set_open(struct set *s, const char *name)
{
	char path[128], model[128];
	snprintf(path, sizeof path, "tests/fixtures/lkv/tail-%s.safetensors", name);
	snprintf(model, sizeof model, "tests/fixtures/models/%s", name);
	plain_open(&s->p, model);
	s->file = fixture_open(path);
	s->ids = fixture_ints(s->file, "ids", &s->n_ids);
	s->lens = fixture_ints(s->file, "lens", &s->n_lens);
	s->rows = fixture_ints(s->file, "rows", &s->n_rows);
	s->logm = fixture_get(s->file, "logm", &s->gates);
	s->hidden = fixture_get(s->file, "hidden", NULL);
	s->teacher = fixture_get(s->file, "teacher", NULL);
	s->loss = fixture_get(s->file, "loss", NULL);
	s->d_logm = fixture_get(s->file, "d_logm", NULL);
	s->d_x0 = fixture_get(s->file, "d_x0", NULL);
	s->d_hidden = fixture_get(s->file, "d_hidden", NULL);
	s->p.K = fixture_get(s->file, "K", NULL);
	s->p.V = fixture_get(s->file, "V", NULL);
	const struct model_config *c = s->p.config;
	s->p.n = s->gates / (c->layers * c->kv_heads);
	s->x0 = mem_new((size_t)(s->n_ids * c->hidden), sizeof *s->x0);
	double *embed = mem_new((size_t)c->vocab * (size_t)c->hidden, sizeof *embed);
	append(&s->p, T_EMBED, 0, embed);
	for (int64_t i = 0; i < s->n_ids; i++)
		memcpy(s->x0 + i * c->hidden, embed + (int64_t)s->ids[i] * c->hidden, (size_t)c->hidden * sizeof *embed);
	free(embed);
}

static void set_close(struct set *s)
{
	free(s->ids), free(s->lens), free(s->rows), free(s->x0), free(s->logm), free(s->hidden), free(s->teacher), free(s->loss);
	free(s->d_logm), free(s->d_x0), free(s->d_hidden), free(s->p.K), free(s->p.V);
	st_close(s->file);
	plain_close(&s->p);
}

static struct tail_model_d model_d(struct set *s)
{
	return (struct tail_model_d){.config = s->p.config,
		.inv_freq = s->p.inv_freq,
		.mscale = s->p.mscale,
		.norms = s->p.norms,
		.final_norm = s->p.final_norm,
		.linear = linear_d,
		.context = context_d,
		.user = &s->p};
}

/* KL(teacher || softmax(head hidden)) over the set's rows, and its gradient (NULL = not wanted). */
static double kl(const struct set *s, const double *hidden, double *dhidden)
{
	const struct model_config *c = s->p.config;
	double total = 0, *z = mem_new((size_t)c->vocab, sizeof *z);
	for (int64_t i = 0; i < s->n_rows; i++) {
		const double *h = hidden + s->rows[i] * c->hidden, *t = s->teacher + i * c->vocab;
		double sum = 0;
		for (int v = 0; v < c->vocab; v++) {
			z[v] = 0;
			for (int k = 0; k < c->hidden; k++)
				z[v] += s->p.head[(int64_t)v * c->hidden + k] * h[k];
			sum += exp(z[v]);
		}
		for (int v = 0; v < c->vocab; v++) {
			total += exp(t[v]) * (t[v] - z[v] + log(sum)) / (double)s->n_rows;
			for (int k = 0; dhidden && k < c->hidden; k++)
				dhidden[s->rows[i] * c->hidden + k] +=
					(exp(z[v]) / sum - exp(t[v])) / (double)s->n_rows * s->p.head[(int64_t)v * c->hidden + k];
		}
	}
	free(z);
	return total;
}

static const char *const models[] = {"llama-tiny", "qwen2-tiny", "qwen2-yarn-tiny", "qwen3-tiny", "smollm2-tiny"};

static void test_double(void **state)
{
	for (int i = 0; i < 5; i++) {
		struct set s;
		set_open(&s, models[i]);
		int64_t size = s.n_ids * s.p.config->hidden;
		struct tail_model_d m = model_d(&s);
		struct tail_d *t = tail_new_d(&m, s.p.n, (int)s.n_lens, s.lens);
		double *hidden = mem_new((size_t)size, sizeof *hidden), *dh = mem_new((size_t)size, sizeof *dh),
		       *dx = mem_new((size_t)size, sizeof *dx), *dl = mem_new((size_t)s.gates, sizeof *dl);
		assert_non_null(t);
		assert_int_equal(tail_forward_d(t, s.x0, s.logm, hidden), 0);
		assert_near("hidden", hidden, s.hidden, size, 1e-9);
		double loss = kl(&s, hidden, dh);
		assert_near("loss", &loss, s.loss, 1, 1e-9);
		assert_near("d hidden", dh, s.d_hidden, size, 1e-9);
		assert_int_equal(tail_backward_d(t, s.logm, dh, dl, dx), 0);
		assert_near("d log m", dl, s.d_logm, s.gates, 1e-9);
		assert_near("d x0", dx, s.d_x0, size, 1e-9);
		tail_free_d(t);
		free(hidden), free(dh), free(dx), free(dl);
		set_close(&s);
	}
	(void)state;
}

static void test_differences(void **state)
{
	for (int i = 0; i < 5; i++) {
		struct set s;
		set_open(&s, models[i]);
		int64_t size = s.n_ids * s.p.config->hidden;
		struct tail_model_d m = model_d(&s);
		struct tail_d *t = tail_new_d(&m, s.p.n, (int)s.n_lens, s.lens);
		double *hidden = mem_new((size_t)size, sizeof *hidden), largest = 0, e = 1e-5;
		for (int64_t j = 0; j < s.gates; j++)
			largest = fmax(largest, fabs(s.d_logm[j]));
		for (int64_t j = i; j < s.gates; j += s.gates / 12) {
			double keep = s.logm[j], high, low;
			s.logm[j] = keep + e;
			assert_int_equal(tail_forward_d(t, s.x0, s.logm, hidden), 0);
			high = kl(&s, hidden, NULL);
			s.logm[j] = keep - e;
			assert_int_equal(tail_forward_d(t, s.x0, s.logm, hidden), 0);
			low = kl(&s, hidden, NULL);
			s.logm[j] = keep;
			if (!(fabs((high - low) / (2 * e) - s.d_logm[j]) < 1e-6 * largest))
				fail_msg("%s, gate %lld: %.12g by differences, %.12g", models[i], (long long)j,
					(high - low) / (2 * e), s.d_logm[j]);
		}
		tail_free_d(t);
		free(hidden);
		set_close(&s);
	}
	(void)state;
}

static float *narrow(const double *x, int64_t n)
{
	float *f = mem_new((size_t)n, sizeof *f);
	for (int64_t i = 0; i < n; i++)
		f[i] = (float)x[i];
	return f;
}

static void test_single(void **state)
{
	for (int i = 0; i < 5; i++) {
		struct set s;
		set_open(&s, models[i]);
		const struct model_config *c = s.p.config;
		int64_t size = s.n_ids * c->hidden;
		struct tail_norms_f *norms = mem_new((size_t)c->layers, sizeof *norms);
		for (int l = 0; l < c->layers; l++)
			norms[l] = (struct tail_norms_f){narrow(s.p.norms[l].attn, c->hidden),
				narrow(s.p.norms[l].ffn, c->hidden), c->qk_norm ? narrow(s.p.norms[l].q, c->head_dim) : NULL,
				c->qk_norm ? narrow(s.p.norms[l].k, c->head_dim) : NULL};
		float *last = narrow(s.p.final_norm, c->hidden), *x0 = narrow(s.x0, size), *logm = narrow(s.logm, s.gates),
		      *dh = narrow(s.d_hidden, size), *hidden = mem_new((size_t)size, sizeof *hidden),
		      *dl = mem_new((size_t)s.gates, sizeof *dl);
		double *wide = mem_new((size_t)(size + s.gates), sizeof *wide);
		struct tail_model_f m = {.config = c,
			.inv_freq = s.p.inv_freq,
			.mscale = s.p.mscale,
			.norms = norms,
			.final_norm = last,
			.linear = linear_f,
			.context = context_f,
			.user = &s.p};
		struct tail_f *t = tail_new_f(&m, s.p.n, (int)s.n_lens, s.lens);
		assert_int_equal(tail_forward_f(t, x0, logm, hidden), 0);
		for (int64_t j = 0; j < size; j++)
			wide[j] = hidden[j];
		assert_near("hidden", wide, s.hidden, size, 1e-4); /* measured: 9e-6 */
		assert_int_equal(tail_backward_f(t, logm, dh, dl, NULL), 0);
		for (int64_t j = 0; j < s.gates; j++)
			wide[j] = dl[j];
		assert_near("d log m", wide, s.d_logm, s.gates, 1e-4);
		tail_free_f(t);
		for (int l = 0; l < c->layers; l++)
			free((void *)norms[l].attn), free((void *)norms[l].ffn), free((void *)norms[l].q),
				free((void *)norms[l].k);
		free(norms), free(last), free(x0), free(logm), free(dh), free(hidden), free(dl), free(wide);
		set_close(&s);
	}
	(void)state;
}

/* Gated attention alone: layout [B][Hk][g][T][d] in the fixture, one (sequence, KV head) at a time here. */
static void test_gate(void **state)
{
	enum { B = 2, HK = 2, G = 3, TT = 4, D = 8, N = 19 };
	struct st_file *f = fixture_open("tests/fixtures/lkv/parts.safetensors");
	int64_t count;
	double *q = fixture_get(f, "gate.q", &count), *K = fixture_get(f, "gate.K", NULL), *V = fixture_get(f, "gate.V", NULL),
	       *k = fixture_get(f, "gate.k", NULL), *v = fixture_get(f, "gate.v", NULL),
	       *logm = fixture_get(f, "gate.logm", NULL), *o = fixture_get(f, "gate.o", NULL),
	       *up = fixture_get(f, "gate.up", NULL), *dq = fixture_get(f, "gate.d.q", NULL),
	       *dk = fixture_get(f, "gate.d.k", NULL), *dv = fixture_get(f, "gate.d.v", NULL),
	       *dl = fixture_get(f, "gate.d.logm", NULL);
	double sum[HK * N] = {0};
	for (int h = 0; h < HK; h++)
		for (int b = 0; b < B; b++) {
			double out[G * TT * D], lse[G * TT], gq[G * TT * D], gk[TT * D], gv[TT * D], gl[N];
			int64_t own = (b * HK + h) * TT * D, at = (b * HK + h) * G * TT * D, to = (h * B + b) * G * TT * D;
			assert_int_equal(tail_attend_d(N, TT, G, D, q + at, K + h * N * D, V + h * N * D, k + own, v + own,
						 logm + h * N, out, lse),
				0);
			assert_near("o", out, o + to, G * TT * D, 1e-9);
			assert_int_equal(tail_attend_back_d(N, TT, G, D, q + at, K + h * N * D, V + h * N * D, k + own, v + own,
						 logm + h * N, out, lse, up + to, gq, gk, gv, gl),
				0);
			assert_near("d q", gq, dq + at, G * TT * D, 1e-9);
			assert_near("d k", gk, dk + own, TT * D, 1e-9);
			assert_near("d v", gv, dv + own, TT * D, 1e-9);
			for (int j = 0; j < N; j++)
				sum[h * N + j] += gl[j];
		}
	assert_near("d log m", sum, dl, HK * N, 1e-9);
	free(q), free(K), free(V), free(k), free(v), free(logm), free(o), free(up), free(dq), free(dk), free(dv), free(dl);
	st_close(f);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_double), cmocka_unit_test(test_differences),
		cmocka_unit_test(test_single), cmocka_unit_test(test_gate)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
