/* Attention, log-sum-exp and reduced probabilities: fast paths against the reference, the reference against double arithmetic;
 * the same bits for any number of threads, any batch, a view or its compacted copy, a block of tokens or one at a time. */
#include "tests/unit/device/fixture.h"

/* One sequence: `context` keys seen through every keep-th index (0 = no context), `tail` rows before `rows` new ones. */
struct sequence {
	int64_t context, tail, rows;
	int keep; /* 0 = all of the context, else every keep-th row of it */
};

struct setup {
	int heads, kv_heads, d;
	const struct sequence *seqs;
	int n;
};

enum { LAYERS = 2, LAYER = 1, MAX_SEQS = 4 };

struct result {
	float *out, *lse; /* [rows][heads*d], [rows][heads] */
	int64_t rows;
};

/* Everything of one run, so that tests can vary how tokens are fed. Values depend on the seed, sequence and row only. */
struct bench {
	struct device *d;
	struct queue *q;
	struct kv *context[MAX_SEQS], *compact[MAX_SEQS], *tail[MAX_SEQS];
	struct kept *kept[MAX_SEQS];
};

static void fill_kv(struct queue *q, struct kv *kv, int heads, int d, int64_t n, uint64_t seed)
{
	for (int h = 0; h < heads; h++) {
		float *k = values(seed * 100 + (uint64_t)h, n * d, 2), *v = values(seed * 100 + 50 + (uint64_t)h, n * d, 2);
		assert_int_equal(kv_write(q, kv, LAYER, h, n, k, v), 0);
		free(k), free(v);
	}
}

static struct kv *new_kv(struct device *d, const struct setup *s, int64_t rows)
{
	int64_t cap[LAYERS * 16];
	for (int i = 0; i < LAYERS * s->kv_heads; i++)
		cap[i] = rows;
	struct kv *kv = kv_new(d, LAYERS, s->kv_heads, s->d, cap);
	assert_non_null(kv);
	return kv;
}

static struct bench bench_open(struct device *d, const struct setup *s)
{
	struct bench b = {.d = d, .q = queue_new(d)};
	for (int i = 0; i < s->n; i++) {
		const struct sequence *q = &s->seqs[i];
		b.tail[i] = new_kv(d, s, q->tail + q->rows);
		fill_kv(b.q, b.tail[i], s->kv_heads, s->d, q->tail, 10 + (uint64_t)i);
		if (q->context < 0)
			continue;
		b.context[i] = new_kv(d, s, q->context);
		fill_kv(b.q, b.context[i], s->kv_heads, s->d, q->context, 20 + (uint64_t)i);
		if (!q->keep)
			continue;
		int32_t len[LAYERS * 16], *list[LAYERS * 16];
		int64_t cap[LAYERS * 16];
		for (int j = 0; j < LAYERS * s->kv_heads; j++) { /* heads keep different numbers */
			len[j] = 0;
			list[j] = mem_new((size_t)q->context + 1, sizeof *list[j]);
			for (int64_t r = j % s->kv_heads; r < q->context; r += q->keep)
				list[j][len[j]++] = (int32_t)r;
			cap[j] = len[j];
		}
		b.kept[i] = kept_new(d, LAYERS, s->kv_heads, len, (const int32_t *const *)list);
		b.compact[i] = kv_new(d, LAYERS, s->kv_heads, s->d, cap);
		assert_int_equal(kv_gather(b.q, b.compact[i], b.context[i], b.kept[i], LAYER), 0);
		for (int j = 0; j < LAYERS * s->kv_heads; j++)
			free(list[j]);
	}
	return b;
}

static void bench_close(struct bench *b)
{
	for (int i = 0; i < MAX_SEQS; i++) {
		kv_free(b->context[i]);
		kv_free(b->compact[i]);
		kv_free(b->tail[i]);
		kept_free(b->kept[i]);
	}
	queue_free(b->q);
}

static int64_t columns(const struct setup *s)
{
	return (s->heads + 2 * s->kv_heads) * s->d + 3; /* 3 of somebody else's */
}

/* qkv rows of sequence i: the same however they are fed */
static float *new_rows(const struct setup *s, int i)
{
	return values(30 + (uint64_t)i, s->seqs[i].rows * columns(s), 2);
}

enum feed { FEED_BATCH, FEED_EACH_SEQUENCE, FEED_TOKEN_BY_TOKEN };

static struct result run(struct device *d, const struct setup *s, enum feed feed, bool compacted)
{
	struct bench b = bench_open(d, s);
	struct result r = {0};
	int64_t first[MAX_SEQS + 1] = {0}, cols = columns(s), wide = s->heads * s->d;
	for (int i = 0; i < s->n; i++)
		first[i + 1] = first[i] + s->seqs[i].rows;
	r.rows = first[s->n];
	float *rows = mem_new((size_t)(r.rows * cols), sizeof *rows);
	struct attn_seq seqs[MAX_SEQS];
	for (int i = 0; i < s->n; i++) {
		float *x = new_rows(s, i);
		memcpy(rows + first[i] * cols, x, (size_t)(s->seqs[i].rows * cols) * sizeof *x);
		free(x);
		seqs[i] = (struct attn_seq){first[i], s->seqs[i].rows, compacted && b.compact[i] ? b.compact[i] : b.context[i],
			compacted ? NULL : b.kept[i], b.tail[i], s->seqs[i].tail};
	}
	struct tensor *x = tensor_of(b.q, rows, r.rows, cols), *out = tensor_of(b.q, NULL, r.rows, wide),
		      *lse = tensor_of(b.q, NULL, r.rows, s->heads);
	free(rows);
	int64_t kcol = wide, vcol = wide + s->kv_heads * s->d;
	if (feed == FEED_BATCH) {
		assert_int_equal(op_kv_append(b.q, LAYER, seqs, s->n, x, kcol, vcol), 0);
		assert_int_equal(op_attention(b.q, LAYER, seqs, s->n, out, x, 0, s->heads, lse), 0);
	} else
		for (int i = 0; i < s->n; i++) {
			int64_t step = feed == FEED_TOKEN_BY_TOKEN ? 1 : seqs[i].rows;
			for (int64_t t = 0; t < seqs[i].rows; t += step) {
				struct attn_seq one = seqs[i];
				one.row0 += t, one.rows = step, one.tail_len += t;
				assert_int_equal(op_kv_append(b.q, LAYER, &one, 1, x, kcol, vcol), 0);
				assert_int_equal(op_attention(b.q, LAYER, &one, 1, out, x, 0, s->heads, lse), 0);
			}
		}
	for (int i = 0; i < s->n; i++)
		assert_int_equal(kv_len(b.tail[i], LAYER, 0), s->seqs[i].tail + s->seqs[i].rows);
	r.out = host_of(b.q, out);
	r.lse = host_of(b.q, lse);
	tensor_free(x), tensor_free(out), tensor_free(lse);
	bench_close(&b);
	return r;
}

static void free_result(struct result *r)
{
	free(r->out), free(r->lse);
}

static const struct sequence ONE[][1] = {{{700, 510, 5, 0}}, {{-1, 1020, 9, 0}}, {{-1, 0, 1, 0}}, {{-1, 0, 129, 0}},
	{{-1, 127, 2, 0}}, {{0, 0, 5, 0}}, {{1, 0, 13, 0}}, {{127, 3, 1, 0}}, {{128, 0, 5, 3}}, {{129, 100, 40, 2}},
	{{1000, 0, 1, 0}}, {{1000, 130, 13, 7}}, {{-1, 0, 300, 0}}};
enum { N_ONE = sizeof ONE / sizeof *ONE };
static const int HEADS[][2] = {{1, 1}, {2, 2}, {4, 2}, {9, 3}, {8, 2}, {6, 1}, {14, 2}, {8, 1}}; /* g = 1 1 2 3 4 6 7 8 */
static const int DIMS[] = {16, 32, 64, 80, 128, 20, 256};

static void check_against_double(const struct setup *s, const struct result *r, struct device *d)
{
	struct bench b = bench_open(d, s);
	int g = s->heads / s->kv_heads, dim = s->d;
	int64_t cols = columns(s);
	float *x = new_rows(s, 0);
	for (int64_t i = 0; i < s->seqs[0].rows; i += 5)
		for (int h = 0; h < s->heads; h++) {
			int kvh = h / g;
			int64_t nc = s->seqs[0].context < 0 ? 0 : s->seqs[0].context, nt = s->seqs[0].tail, n = nc + nt + i + 1;
			float *k = mem_new((size_t)(n * dim), 4), *v = mem_new((size_t)(n * dim), 4);
			if (nc)
				kv_read(b.q, b.context[0], LAYER, kvh, 0, nc, k, v);
			kv_read(b.q, b.tail[0], LAYER, kvh, 0, nt, k + nc * dim, v + nc * dim);
			for (int64_t t = 0; t <= i; t++)
				for (int c = 0; c < dim; c++) {
					k[(nc + nt + t) * dim + c] = x[t * cols + s->heads * dim + kvh * dim + c];
					v[(nc + nt + t) * dim + c] = x[t * cols + (s->heads + s->kv_heads) * dim + kvh * dim + c];
				}
			double sum = 0, *out = mem_new((size_t)dim, sizeof *out);
			for (int64_t t = 0; t < n; t++) {
				int keep = s->seqs[0].keep;
				if (t < nc && keep && (t % keep != kvh % keep || t < kvh))
					continue;
				double dot = 0;
				for (int c = 0; c < dim; c++)
					dot += (double)x[i * cols + h * dim + c] * k[t * dim + c];
				double p = exp(dot / sqrt(dim));
				sum += p;
				for (int c = 0; c < dim; c++)
					out[c] += p * v[t * dim + c];
			}
			for (int c = 0; c < dim; c++) /* observed 3e-6 */
				assert_true(fabs(out[c] / sum - r->out[(i * s->heads + h) * dim + c]) < 2e-5);
			assert_true(fabs(log(sum) - r->lse[i * s->heads + h]) < 2e-5);
			free(k), free(v), free(out);
		}
	free(x);
	bench_close(&b);
}

/* Devices of all fast paths this machine has; NULL for the others. */
static void open_fast(struct device *d[N_FAST], const char *precision)
{
	for (int f = 0; f < N_FAST; f++)
		d[f] = open_device(FAST[f], precision, 2);
}
static void close_fast(struct device *d[N_FAST])
{
	for (int f = 0; f < N_FAST; f++)
		device_close(d[f]);
}

static void test_paths_agree(void **state)
{
	(void)state;
	for (int p = 0; p < 2; p++) {
		struct device *ref = open_device("reference", PRECISIONS[p], 2), *fast[N_FAST];
		open_fast(fast, PRECISIONS[p]);
		double out = 0, lse = 0, bf16_out = 0, bf16_lse = 0;
		for (int i = 0; i < N_ONE; i++)
			for (int j = i % every(5); j < 8; j += every(5)) {
				struct setup s = {HEADS[j][0], HEADS[j][1], DIMS[(i + j) % 7], ONE[i], 1};
				struct result want = run(ref, &s, FEED_BATCH, false);
				if (p == 0)
					check_against_double(&s, &want, ref);
				for (int f = 0; f < N_FAST; f++) {
					if (!fast[f])
						continue;
					struct result got = run(fast[f], &s, FEED_BATCH, false);
					double *o = f >= PRODUCTS ? &bf16_out : &out, *l = f >= PRODUCTS ? &bf16_lse : &lse;
					*o = fmax(*o, difference(got.out, want.out, got.rows * s.heads * s.d));
					*l = fmax(*l, difference(got.lse, want.lse, got.rows * s.heads));
					free_result(&got);
				}
				free_result(&want);
			}
		close_fast(fast);
		device_close(ref);
		print_message("largest difference from the reference, %s: out %.2g lse %.2g, bf16 products %.2g %.2g\n", PRECISIONS[p], out, lse,
			bf16_out, bf16_lse);
		assert_true(out < 5e-6 && lse < 2e-6);           /* observed 1e-6, 3e-7 */
		assert_true(bf16_out < 8e-3 && bf16_lse < 5e-3); /* observed 4e-3, 2e-3; each p is off by at most 0.66 % */
	}
}

static const struct sequence MANY[MAX_SEQS] = {{129, 3, 1, 2}, {-1, 0, 140, 0}, {300, 0, 7, 5}, {64, 127, 5, 0}};

/* More keys than ATTN_PART, with rows on both sides of its borders: alone, the parts go to several threads. */
static const struct sequence LONG[MAX_SEQS] = {{1100, 510, 5, 0}, {1300, 0, 3, 2}, {-1, 1022, 4, 0}, {512, 511, 2, 0}};

static void check_bits(const struct sequence *seqs, int step)
{
	static const int heads[][3] = {{14, 2, 64}, {9, 3, 20}, {4, 4, 128}};
	for (int f = 0; f < N_FAST; f++)
		for (int p = 0; p < 2; p++)
			for (int c = f % step; c < 3; c += step) {
				struct setup s = {heads[c][0], heads[c][1], heads[c][2], seqs, MAX_SEQS};
				struct result want = {0};
				for (int threads = 1; threads <= 4; threads *= 2) {
					struct device *d = open_device(FAST[f], PRECISIONS[p], threads);
					if (!d)
						break;
					for (int feed = 0; feed < 3; feed++)
						for (int compacted = 0; compacted < 2; compacted++) {
							struct result got = run(d, &s, (enum feed)feed, compacted);
							if (want.out) {
								assert_same_bits(
									"attention", got.out, want.out, got.rows * s.heads * s.d);
								assert_same_bits("lse", got.lse, want.lse, got.rows * s.heads);
								free_result(&got);
							} else
								want = got;
						}
					device_close(d);
				}
				free_result(&want);
			}
}

static void test_bits(void **state)
{
	(void)state;
	check_bits(MANY, every(3));
}

static void test_bits_of_parts(void **state)
{
	(void)state;
	check_bits(LONG, 3);
}

/* ---- key sets ---- */

struct keys_case {
	int n, which;
	int64_t len[4], rows, col0, cols;
	bool causal;
};

/* lse and reduced probabilities of a key set; out has 2 columns before its own. chunk: query rows a call (bits must not depend on
 * it). */
static struct result run_keys(struct device *d, const struct keys_case *c, int heads, int kv_heads, int dim,
	enum attn_reduce reduce, enum attn_group group, int64_t chunk)
{
	struct setup s = {heads, kv_heads, dim, NULL, 0};
	struct queue *q = queue_new(d);
	struct kv *kv[4];
	struct key_set keys = {.n = c->n, .causal = c->causal};
	for (int i = 0; i < c->n; i++) {
		kv[i] = new_kv(d, &s, c->len[i] + 3);
		fill_kv(q, kv[i], kv_heads, dim, c->len[i] + 3, 60 + (uint64_t)i);
		keys.range[i] = (struct key_range){kv[i], 2, c->len[i]};
	}
	float *x = values(70, (c->rows + 1) * (heads * dim + 5), 2);
	struct tensor *xt = tensor_of(q, x, c->rows + 1, heads * dim + 5), *lse = tensor_of(q, NULL, c->rows, heads);
	struct tensor *out = tensor_of(q, NULL, group == GROUP_NONE ? heads : kv_heads, c->cols + 3);
	assert_int_equal(tensor_fill(q, out, 0), 0);
	assert_int_equal(op_attn_lse(q, LAYER, &keys, xt, 1, c->rows, 5, heads, lse), 0);
	for (int64_t r = 0; r < c->rows; r += chunk) {
		struct key_set part = keys;
		int64_t rows = c->rows - r < chunk ? c->rows - r : chunk;
		if (c->causal) /* rows before the last chunk see fewer keys of the last range */
			part.range[c->n - 1].n -= c->rows - r - rows;
		int64_t most = part.range[c->which].n - c->col0, cols = c->cols < most ? c->cols : most;
		if (cols > 0)
			assert_int_equal(op_attn_reduce(q, LAYER, &part, c->which, c->col0, cols, xt, 1 + r, rows, 5, heads, lse,
						 r, reduce, group, out, 2),
				0);
	}
	struct result res = {host_of(q, out), host_of(q, lse), c->rows};
	free(x);
	tensor_free(xt), tensor_free(lse), tensor_free(out);
	for (int i = 0; i < c->n; i++)
		kv_free(kv[i]);
	queue_free(q);
	return res;
}

static const struct keys_case KEYS[] = {
	{1, 0, {129}, 13, 0, 129, true},
	{1, 0, {129}, 129, 0, 129, true},
	{2, 0, {300, 40}, 40, 17, 260, true},
	{2, 1, {300, 40}, 40, 3, 30, true},
	{3, 1, {4, 200, 31}, 9, 0, 200, false},
	{2, 1, {0, 50}, 50, 0, 50, true},
	{1, 0, {1000}, 1, 1, 999, false},
};
enum { N_KEYS = sizeof KEYS / sizeof *KEYS };

static void test_key_sets(void **state)
{
	(void)state;
	double out = 0, lse = 0, bf16_out = 0, bf16_lse = 0;
	for (int p = 0; p < 2; p++) {
		struct device *ref = open_device("reference", PRECISIONS[p], 2), *fast[N_FAST];
		open_fast(fast, PRECISIONS[p]);
		for (int k = 0; k < N_KEYS; k++)
			for (int mode = k % every(4); mode < 6; mode += every(4)) {
				enum attn_reduce reduce = mode & 1 ? REDUCE_MAX : REDUCE_SUM;
				enum attn_group group = (enum attn_group)(mode / 2);
				if (group == GROUP_MEAN && reduce == REDUCE_MAX)
					continue;
				int heads = HEADS[(k + mode) % 8][0], kv_heads = HEADS[(k + mode) % 8][1],
				    dim = DIMS[(k + 2 * mode) % 7];
				int64_t n = (group == GROUP_NONE ? heads : kv_heads) * (KEYS[k].cols + 3);
				struct result want = run_keys(ref, &KEYS[k], heads, kv_heads, dim, reduce, group, 1 << 20);
				float highest = 0;
				for (int64_t i = 0; i < n; i++)
					highest = fmaxf(highest, want.out[i]);
				assert_true(highest > 0.005f); /* not a comparison of nothing */
				for (int f = 0; f < N_FAST; f++) {
					if (!fast[f])
						continue;
					struct result got =
						run_keys(fast[f], &KEYS[k], heads, kv_heads, dim, reduce, group, 1 << 20);
					double *o = f >= PRODUCTS ? &bf16_out : &out, *l = f >= PRODUCTS ? &bf16_lse : &lse;
					*o = fmax(*o, difference(got.out, want.out, n));
					*l = fmax(*l, difference(got.lse, want.lse, KEYS[k].rows * heads));
					free_result(&got);
				}
				free_result(&want);
			}
		close_fast(fast);
		device_close(ref);
	}
	print_message("largest difference of reduced probabilities %.2g, lse %.2g, bf16 products %.2g %.2g\n", out, lse, bf16_out, bf16_lse);
	assert_true(out < 2e-6 && lse < 2e-6); /* observed 4e-7, 4e-7 */
	assert_true(bf16_out < 2e-3 && bf16_lse < 5e-3); /* p itself is exact; its row's log-sum-exp is attention's */
}

static void test_reduce_bits(void **state)
{
	(void)state;
	for (int f = 0; f < N_FAST; f++)
		for (int p = 0; p < 2; p++)
			for (int k = f % every(4); k < N_KEYS; k += every(4))
				for (int group = 0; group < 3; group++) {
					struct result want = {0};
					int64_t n = (group == GROUP_NONE ? 14 : 2) * (KEYS[k].cols + 3);
					for (int threads = 1; threads <= 4; threads *= 2) {
						struct device *d = open_device(FAST[f], PRECISIONS[p], threads);
						if (!d)
							break;
						for (int64_t chunk = 5; chunk < 1000; chunk *= 13) {
							struct result got = run_keys(d, &KEYS[k], 14, 2, 64, REDUCE_SUM,
								(enum attn_group)group, chunk);
							if (want.out) {
								assert_same_bits("reduced", got.out, want.out, n);
								assert_same_bits("lse", got.lse, want.lse, KEYS[k].rows * 14);
								free_result(&got);
							} else
								want = got;
						}
						device_close(d);
					}
					free_result(&want);
				}
}

/* The probabilities are attention's own: with V = unit vectors the output shows them. */
static void test_probabilities_are_attentions(void **state)
{
	(void)state;
	enum { D = 64, N = 64, G = 3 };
	float worst = 0, bf16_worst = 0;
	for (int f = -1; f < N_FAST; f++)
		for (int p = 0; p < 2; p++) {
			struct device *d = open_device(f < 0 ? "reference" : FAST[f], PRECISIONS[p], 2);
			if (!d)
				continue;
			struct queue *q = queue_new(d);
			int64_t cap = N;
			struct kv *kv = kv_new(d, 1, 1, D, &cap);
			float *x = values(80, N * (G + 2) * D, 2);
			for (int r = 0; r < N; r++)
				for (int c = 0; c < D; c++)
					x[(r * (G + 2) + G + 1) * D + c] = r == c;
			struct tensor *xt = tensor_of(q, x, N, (G + 2) * D), *out = tensor_of(q, NULL, N, G * D),
				      *lse = tensor_of(q, NULL, N, G), *lse2 = tensor_of(q, NULL, N, G),
				      *sums = tensor_of(q, NULL, G, N);
			struct attn_seq s = {0, N, NULL, NULL, kv, 0};
			struct key_set keys = {.range = {{kv, 0, N}}, .n = 1, .causal = true};
			tensor_fill(q, sums, 0);
			assert_int_equal(op_kv_append(q, 0, &s, 1, xt, G * D, (G + 1) * D), 0);
			assert_int_equal(op_attention(q, 0, &s, 1, out, xt, 0, G, lse), 0);
			assert_int_equal(op_attn_lse(q, 0, &keys, xt, 0, N, 0, G, lse2), 0);
			float *o = host_of(q, out), *a = host_of(q, lse), *b = host_of(q, lse2);
			assert_same_bits("lse of attention and of op_attn_lse", b, a, N * G);
			for (int r = 0; r < N; r++) { /* one row at a time: sums are the probabilities */
				struct key_set seen = keys;
				seen.range[0].n = r + 1;
				tensor_fill(q, sums, 0);
				assert_int_equal(op_attn_reduce(q, 0, &seen, 0, 0, r + 1, xt, r, 1, 0, G, lse, r, REDUCE_SUM,
							 GROUP_NONE, sums, 0),
					0);
				float *got = host_of(q, sums);
				for (int h = 0; h < G; h++)
					for (int c = 0; c < N; c++)
					{
						float *w = f >= PRODUCTS ? &bf16_worst : &worst;
						*w = fmaxf(*w, fabsf(got[h * N + c] - o[(r * G + h) * D + c]));
					}
				free(got);
			}
			free(x), free(o), free(a), free(b);
			tensor_free(xt), tensor_free(out), tensor_free(lse), tensor_free(lse2), tensor_free(sums);
			kv_free(kv);
			queue_free(q);
			device_close(d);
		}
	print_message("largest difference from attention's own probabilities %.2g, bf16 products %.2g\n", (double)worst, (double)bf16_worst);
	assert_true(worst < 1e-6f); /* observed 4e-7 */
	assert_true(bf16_worst < 4e-3f); /* there p is rounded to bf16 */
}

/* Row i of `rows` sees the first n - rows + i + 1 keys of the last range; the first rows may see none. */
static void test_bottom_right_causal(void **state)
{
	(void)state;
	for (int f = -1; f < N_FAST; f++) {
		struct device *d = open_device(f < 0 ? "reference" : FAST[f], f >= PRODUCTS ? "bf16" : "fp32", 1);
		if (!d)
			continue;
		struct keys_case c = {1, 0, {3}, 5, 0, 3, true};
		struct result r = run_keys(d, &c, 1, 1, 16, REDUCE_SUM, GROUP_NONE, 100);
		assert_true(isinf(r.lse[0]) && r.lse[0] < 0 && isinf(r.lse[1]) && isfinite(r.lse[2]));
		double sum = 0;
		for (int i = 2; i < 5; i++)
			sum += r.out[i];
		assert_true(fabs(sum - 3) < (f >= PRODUCTS ? 1e-2 : 1e-5)); /* rows 2, 3, 4 see 1, 2, 3 keys: three whole distributions */
		assert_true(r.out[2] > r.out[4] && r.out[0] == 0 && r.out[1] == 0 && r.out[5] == 0);
		free_result(&r);
		device_close(d);
	}
}

/* Key 7 is not a number: rows that see it are lost, the others are not, though padding follows their keys where d is no multiple
 * of a block. */
static void check_lost_key(const char *isa, const char *precision, int dim)
{
	enum { N = ATTN_PART + 40, LOST = 7 };
	struct device *d = open_device(isa, precision, 1);
	if (!d)
		return;
	struct queue *q = queue_new(d);
	int64_t cap = N, cols = 3 * dim;
	struct kv *kv = kv_new(d, 1, 1, dim, &cap);
	float *x = values(90, N * cols, 1);
	x[LOST * cols + dim] = NAN;
	struct tensor *xt = tensor_of(q, x, N, cols), *out = tensor_of(q, NULL, N, dim), *lse = tensor_of(q, NULL, N, 1);
	struct attn_seq s = {0, N, NULL, NULL, kv, 0};
	assert_int_equal(op_kv_append(q, 0, &s, 1, xt, dim, 2 * dim), 0);
	assert_int_equal(op_attention(q, 0, &s, 1, out, xt, 0, 1, lse), 0);
	float *o = host_of(q, out), *l = host_of(q, lse);
	for (int r = 0; r < N; r++)
		assert_true(isnan(o[r * dim]) == (r >= LOST) && isnan(l[r]) == (r >= LOST));
	free(x), free(o), free(l);
	tensor_free(xt), tensor_free(out), tensor_free(lse);
	kv_free(kv);
	queue_free(q);
	device_close(d);
}

static void test_not_a_number_comes_through(void **state)
{
	(void)state;
	for (int f = -1; f < N_FAST; f++) {
		check_lost_key(f < 0 ? "reference" : FAST[f], f >= PRODUCTS ? "bf16" : "fp32", 32);
		check_lost_key(f < 0 ? "reference" : FAST[f], f >= PRODUCTS ? "bf16" : "fp32", 20);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths_agree),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_bits_of_parts),
		cmocka_unit_test(test_key_sets),
		cmocka_unit_test(test_reduce_bits),
		cmocka_unit_test(test_probabilities_are_attentions),
		cmocka_unit_test(test_bottom_right_causal),
		cmocka_unit_test(test_not_a_number_comes_through),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
