/* Attention, log-sum-exp and reduced probabilities of the CUDA backend against the CPU's reference: every group size, odd lengths and widths, views, batches,
 * decoding in parts; and what must have the same bits: a view and its compacted copy, a sequence alone and in a batch. */
#include "tests/cudaemu/sequences.h"

static const struct sequence ONE[][1] = {{{700, 510, 5, 0}}, {{-1, 1020, 9, 0}}, {{-1, 0, 1, 0}}, {{-1, 0, 129, 0}},
	{{-1, 127, 2, 0}}, {{0, 0, 5, 0}}, {{1, 0, 13, 0}}, {{127, 3, 1, 0}}, {{128, 0, 5, 3}}, {{129, 100, 40, 2}},
	{{1000, 0, 1, 0}}, {{1000, 130, 13, 7}}, {{-1, 0, 200, 0}}, {{90, 0, 1, 1}}, {{600, 513, 3, 2}}};
enum { N_ONE = sizeof ONE / sizeof *ONE };
static const int HEADS[][2] = {{1, 1}, {2, 2}, {4, 2}, {9, 3}, {8, 2}, {6, 1}, {14, 2}, {8, 1}, {20, 1}}; /* g = 1 1 2 3 4 6 7 8 20 */
static const int DIMS[] = {16, 32, 64, 80, 128, 20, 256, 7};
enum { N_HEADS = 9, N_DIMS = 8 };
/* Channels of case i. In bf16 every width has a kernel of its own; fp32's are one warp a row (one lane a key) that loops over any number: there a sanitizer, to
 * which each access is dear, sees less than a warp, a warp, and two and a half. */
static int dim_of(int i, bool bf16)
{
	static const int narrow[] = {16, 32, 80, 20, 7};
	return bf16 || every(2) == 1 ? DIMS[i % N_DIMS] : narrow[i % 5];
}

static void test_attention(void **state)
{
	(void)state;
	for (int p = 2; p-- > first_precision();) {
		struct both b = open_both(PRECISIONS[p]);
		double out = 0, lse = 0;
		for (int i = 0; i < N_ONE; i++)
			for (int j = i % every(4); j < N_HEADS; j += every(4)) {
				struct setup s = {HEADS[j][0], HEADS[j][1], dim_of(i + j, p), ONE[i], 1};
				struct result want = run(b.q[CPU], &s, -1, false), got = run(b.q[CUDA], &s, -1, false);
				out = fmax(out, difference(got.out, want.out, got.rows * s.heads * s.d));
				lse = fmax(lse, difference(got.lse, want.lse, got.rows * s.heads));
				free_result(&want), free_result(&got);
			}
		print_message("largest difference, %s: out %.2g lse %.2g\n", PRECISIONS[p], out, lse);
		/* bf16: probabilities are rounded to bf16, 2^-9 each: observed 2.6e-3; a lost key would be about 0.1 */
		assert_true(out < (p ? 8e-3 : 1e-5) && lse < 1e-5);
		close_both(&b);
	}
}

static const struct sequence MANY[MOST] = {{129, 3, 1, 2}, {-1, 0, 70, 0}, {700, 0, 3, 5}, {64, 127, 5, 0}, {1300, 30, 1, 2}};

static void test_batches(void **state)
{
	(void)state;
	static const int heads[][3] = {{9, 3, 20}, {14, 2, 64}, {4, 4, 128}};
	for (int p = 2; p-- > first_precision();) {
		struct both b = open_both(PRECISIONS[p]);
		print_message("attention by %s\n", device_isa(b.d[CUDA]));
		for (int c = 0; c < (p ? 3 : 3 / every(3)); c++) {
			struct setup s = {heads[c][0], heads[c][1], heads[c][2], MANY, MOST};
			struct result cpu = run(b.q[CPU], &s, -1, false), all = run(b.q[CUDA], &s, -1, false),
				      compact = run(b.q[CUDA], &s, -1, true);
			int64_t wide = s.heads * s.d, first = 0;
			assert_close("batch", all.out, cpu.out, all.rows * wide, p ? 8e-3 : 1e-5);
			assert_close("lse of a batch", all.lse, cpu.lse, all.rows * s.heads, 1e-5);
			assert_same_bits("compacted", compact.out, all.out, all.rows * wide);
			assert_same_bits("compacted lse", compact.lse, all.lse, all.rows * s.heads);
			for (int i = 0; i < MOST; i++) {
				struct result one = run(b.q[CUDA], &s, i, false);
				int64_t n = MANY[i].rows;
				assert_same_bits("alone", one.out + first * wide, all.out + first * wide, n * wide);
				assert_same_bits("alone lse", one.lse + first * s.heads, all.lse + first * s.heads, n * s.heads);
				free_result(&one);
				first += n;
			}
			free_result(&cpu), free_result(&all), free_result(&compact);
		}
		close_both(&b);
	}
}

/* Into an operand: what a linear layer makes of it. */
static void test_attention_to_operand(void **state)
{
	(void)state;
	enum { HEADS_ = 4, KV = 2, D = 20, ROWS = 70, WIDE = HEADS_ * D };
	for (int p = 2; p-- > first_precision();) {
		struct both b = open_both(PRECISIONS[p]);
		float *x = values(41, ROWS * (WIDE + 2 * KV * D), 2), *w = values(42, 33 * WIDE, 1), *y[2];
		for (int i = 0; i < 2; i++) {
			struct kv *kv = new_kv(b.d[i], KV, D, ROWS);
			struct tensor *xt = tensor_of(b.q[i], x, ROWS, WIDE + 2 * KV * D), *att = operand_new(b.d[i], ROWS, WIDE),
				      *out = tensor_of(b.q[i], NULL, ROWS, 33);
			struct weight *wt = weight_of(b.d[i], w, 33, WIDE);
			struct attn_seq s[2] = {{0, ROWS - 1, NULL, NULL, kv, 0}, {ROWS - 1, 1, NULL, NULL, kv, ROWS - 1}};
			for (int t = 0; t < 2; t++) {
				must(&b, i, op_kv_append(b.q[i], LAYER, s + t, 1, xt, WIDE, WIDE + KV * D));
				must(&b, i, op_attention(b.q[i], LAYER, s + t, 1, att, xt, 0, HEADS_, NULL));
			}
			must(&b, i, op_linear(b.q[i], out, att, wt, NULL, 0, 33, false, ROWS));
			y[i] = host_of(b.q[i], out);
			tensor_free(xt), tensor_free(att), tensor_free(out);
			weight_free(wt);
			kv_free(kv);
		}
		assert_close("attention through an operand", y[CUDA], y[CPU], ROWS * 33, p ? 2e-2 : 2e-5); /* observed 5e-3, 3e-6 */
		free(x), free(w), free(y[0]), free(y[1]);
		close_both(&b);
	}
}

/* ---- key sets ---- */

struct keys_case {
	int n, which;
	int64_t len[4], rows, col0, cols;
	bool causal;
};

/* lse and reduced probabilities, `chunk` query rows a call; out has 2 columns before its own. */
static struct result run_keys(
	struct queue *q, const struct keys_case *c, int heads, int kv_heads, int dim, enum attn_reduce reduce, enum attn_group group, int64_t chunk)
{
	struct kv *kv[4];
	struct key_set keys = {.n = c->n, .causal = c->causal};
	for (int i = 0; i < c->n; i++) {
		kv[i] = new_kv(queue_device(q), kv_heads, dim, c->len[i] + 3);
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
		if (cols > 0 && op_attn_reduce(q, LAYER, &part, c->which, c->col0, cols, xt, 1 + r, rows, 5, heads, lse, r, reduce, group, out, 2))
			fail_msg("%s", device_error(queue_device(q)));
	}
	struct result res = {host_of(q, out), host_of(q, lse), c->rows};
	free(x);
	tensor_free(xt), tensor_free(lse), tensor_free(out);
	for (int i = 0; i < c->n; i++)
		kv_free(kv[i]);
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
	{4, 2, {3, 70, 130, 20}, 20, 0, 130, true},
	{1, 0, {3}, 5, 0, 3, true}, /* the first rows see none */
	{1, 0, {30}, 300, 0, 30, true}, /* nor do whole blocks of them */
};
enum { N_KEYS = sizeof KEYS / sizeof *KEYS };

static void test_key_sets(void **state)
{
	(void)state;
	for (int p = 2; p-- > first_precision();) {
		struct both b = open_both(PRECISIONS[p]);
		double out = 0, lse = 0;
		for (int k = 0; k < N_KEYS; k++)
			for (int mode = k % every(3); mode < 6; mode += every(3)) {
				enum attn_reduce reduce = mode & 1 ? REDUCE_MAX : REDUCE_SUM;
				enum attn_group group = (enum attn_group)(mode / 2);
				if (group == GROUP_MEAN && reduce == REDUCE_MAX)
					continue;
				int heads = HEADS[(k + mode) % N_HEADS][0], kv_heads = HEADS[(k + mode) % N_HEADS][1],
				    dim = dim_of(k + 2 * mode, p);
				int64_t n = (group == GROUP_NONE ? heads : kv_heads) * (KEYS[k].cols + 3);
				struct result want = run_keys(b.q[CPU], &KEYS[k], heads, kv_heads, dim, reduce, group, 1 << 20);
				for (int64_t chunk = 11; chunk < 2000; chunk *= 100) {
					struct result got = run_keys(b.q[CUDA], &KEYS[k], heads, kv_heads, dim, reduce, group, chunk);
					float highest = 0;
					for (int64_t i = 0; i < n; i++)
						highest = fmaxf(highest, got.out[i]);
					assert_true(highest > 1e-3f); /* not a comparison of nothing */
					out = fmax(out, difference(got.out, want.out, n));
					lse = fmax(lse, difference(got.lse, want.lse, KEYS[k].rows * heads));
					free_result(&got);
				}
				free_result(&want);
			}
		print_message("largest difference, %s: reduced %.2g lse %.2g\n", PRECISIONS[p], out, lse);
		assert_true(out < 1e-5 && lse < 1e-5); /* observed 6e-7 */
		close_both(&b);
	}
}

static void test_not_a_number_comes_through(void **state)
{
	(void)state;
	for (int p = 2; p-- > first_precision();)
		for (int64_t rows = 3; rows < 700; rows += 60) {
			struct both b = open_both(PRECISIONS[p]);
			struct kv *kv = new_kv(b.d[CUDA], 1, 32, rows);
			float *x = values(90, rows * 96, 1);
			x[2 * 96 + 32] = NAN; /* key 2 */
			struct tensor *xt = tensor_of(b.q[CUDA], x, rows, 96), *out = tensor_of(b.q[CUDA], NULL, rows, 32),
				      *lse = tensor_of(b.q[CUDA], NULL, rows, 1);
			struct attn_seq s = {0, rows, NULL, NULL, kv, 0};
			must(&b, CUDA, op_kv_append(b.q[CUDA], LAYER, &s, 1, xt, 32, 64));
			must(&b, CUDA, op_attention(b.q[CUDA], LAYER, &s, 1, out, xt, 0, 1, lse));
			float *o = host_of(b.q[CUDA], out), *l = host_of(b.q[CUDA], lse);
			for (int r = 0; r < rows; r++)
				assert_true(isnan(o[r * 32]) == (r >= 2) && isnan(l[r]) == (r >= 2));
			free(x), free(o), free(l);
			tensor_free(xt), tensor_free(out), tensor_free(lse);
			kv_free(kv);
			close_both(&b);
			if (rows > 100)
				rows += 200;
		}
}

/* Caches in the host's memory, streamed by layer, give the same bits: as context and tail of more sequences than layers can be staged, in key sets, gathered,
 * written to in between. */
static void test_offloaded(void **state)
{
	(void)state;
	enum { N = 6, KV = 2, D = 64, HEADS_ = 4, LEN = 40, BIG = 1 << 18 /* rows: K takes 64 MB */, COLS = (HEADS_ + 2 * KV) * D };
	float *got[2], *summed[2], *x = values(5, (N + LEN) * COLS, 2);
	for (int offload = 0; offload < 2; offload++) {
		struct device *d;
		char err[ERR_LEN];
		if (device_open(&d, &(struct device_options){.name = "cuda", .precision = "bf16", .threads = 1, .kv_offload = offload}, err))
			fail_msg("%s", err);
		struct queue *q = queue_new(d);
		struct kv *kv[N];
		struct attn_seq seqs[N];
		struct tensor *xt = tensor_of(q, x, N + LEN, COLS), *out = tensor_of(q, NULL, N + LEN, HEADS_ * D),
			      *lse = tensor_of(q, NULL, N + LEN, HEADS_), *sums = tensor_of(q, NULL, KV, LEN);
		int64_t cap[2 * KV] = {8, 8, offload ? BIG : LEN + 8, offload ? BIG : LEN + 8};
		assert_int_equal(tensor_fill(q, sums, 0) || tensor_fill(q, out, 0), 0);
		for (int i = 0; i < N; i++) {
			kv[i] = kv_new(d, 2, KV, D, cap);
			if (!kv[i])
				fail_msg("%s", device_error(d));
			fill_kv(q, kv[i], KV, D, LEN - i, 7 + (uint64_t)i);
			seqs[i] = (struct attn_seq){i, 1, kv[(i + 1) / 2], NULL, kv[i], LEN - i};
		}
		/* every sequence looks at its own cache and at one of another's */
		assert_int_equal(op_kv_append(q, 1, seqs, N, xt, HEADS_ * D, (HEADS_ + KV) * D), 0);
		assert_int_equal(op_attention(q, 1, seqs, N, out, xt, 0, HEADS_, lse), 0);
		struct key_set keys = {.range = {{kv[0], 0, 10}, {kv[1], 2, 20}, {kv[2], 0, 30}}, .n = 3};
		assert_int_equal(op_attn_lse(q, 1, &keys, xt, 0, N, 0, HEADS_, lse), 0);
		assert_int_equal(op_attn_reduce(q, 1, &keys, 1, 0, 20, xt, 0, N, 0, HEADS_, lse, 0, REDUCE_SUM, GROUP_MEAN, sums, 0), 0);
		kv_truncate(kv[5], 0); /* rows of a staged layer are written anew */
		struct attn_seq again = {N, LEN, NULL, NULL, kv[5], 0};
		assert_int_equal(op_kv_append(q, 1, &again, 1, xt, HEADS_ * D, (HEADS_ + KV) * D), 0);
		assert_int_equal(op_attention(q, 1, &again, 1, out, xt, 0, HEADS_, NULL), 0);
		got[offload] = host_of(q, out);
		summed[offload] = host_of(q, sums);
		for (int i = 0; i < N; i++)
			kv_free(kv[i]);
		tensor_free(xt), tensor_free(out), tensor_free(lse), tensor_free(sums);
		queue_free(q);
		assert_int_equal(device_bytes(d), 0);
		device_close(d);
	}
	assert_same_bits("attention over offloaded caches", got[1], got[0], (N + LEN) * HEADS_ * D);
	assert_same_bits("sums over offloaded caches", summed[1], summed[0], KV * LEN);
	for (int i = 0; i < 2; i++)
		free(got[i]), free(summed[i]);
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_batches),
		cmocka_unit_test(test_attention_to_operand), cmocka_unit_test(test_key_sets),
		cmocka_unit_test(test_not_a_number_comes_through), cmocka_unit_test(test_offloaded)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
