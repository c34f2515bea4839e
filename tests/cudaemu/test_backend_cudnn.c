/* Attention by cuDNN (--attention cudnn) against our kernels and the CPU's reference: every group size, odd lengths, keys before
 * the queries, log-sum-exp, queries in lots; what does not go to it. Over the emulation and on a GPU; skipped where the library
 * is not there. */
#include "runners/device/cuda/cuda.h"
#include "tests/cudaemu/backend.h"

/* The rows of one sequence behind `tail` others. kinds of caches: all heads the same capacity, or not; split: its first keys are
 * a context of their own. */
struct lengths {
	int64_t tail, rows;
};
struct setup {
	int heads, kv_heads, d;
	struct lengths l;
	bool uneven, split, lse;
	int64_t pack_bytes; /* 0 = as always */
};
enum { LAYERS = 2, LAYER = 1, EXTRA = 3 /* columns of qkv, of lse, that are nobody's */ };
struct result {
	float *out, *lse; /* [rows][heads*d], [rows][heads + EXTRA] */
};

static struct device *opened(const char *device, const char *attention)
{
	struct device *d;
	char err[ERR_LEN];
	if (device_open(&d,
		    &(struct device_options){.name = device,
			    .isa = strcmp(device, "cpu") ? NULL : "reference",
			    .precision = "bf16",
			    .threads = 2,
			    .attention = attention},
		    err))
		fail_msg("%s", err);
	return d;
}

static struct kv *filled_kv(struct queue *q, const struct setup *s, int64_t rows, int64_t cap, uint64_t seed)
{
	int64_t caps[LAYERS * 32];
	for (int i = 0; i < LAYERS * s->kv_heads; i++)
		caps[i] = cap + (s->uneven ? i % 3 : 0);
	struct kv *kv = kv_new(queue_device(q), LAYERS, s->kv_heads, s->d, caps);
	assert_non_null(kv);
	for (int h = 0; h < s->kv_heads && rows > 0; h++) {
		float *k = values(seed * 100 + (uint64_t)h, rows * s->d, 2),
		      *v = values(seed * 100 + 50 + (uint64_t)h, rows * s->d, 2);
		assert_int_equal(kv_write(q, kv, LAYER, h, rows, k, v), 0);
		free(k), free(v);
	}
	return kv;
}

/* The operand's rows: through a linear layer that leaves them as they are. */
static float *operand_of(struct queue *q, const struct tensor *operand, int64_t rows, int64_t wide)
{
	float *one = mem_new((size_t)(wide * wide), sizeof *one);
	for (int64_t i = 0; i < wide; i++)
		one[i * wide + i] = 1;
	struct weight *w = weight_of(queue_device(q), one, wide, wide);
	struct tensor *y = tensor_of(q, NULL, rows, wide);
	assert_int_equal(op_linear(q, y, operand, w, NULL, 0, wide, false, rows), 0);
	float *out = host_of(q, y);
	free(one);
	weight_free(w);
	tensor_free(y);
	return out;
}

static struct result run(struct queue *q, const struct setup *s)
{
	struct device *d = queue_device(q);
	if (strcmp(device_name(d), "cpu"))
		cuda_queue(q)->pack_bytes = s->pack_bytes ? s->pack_bytes : PACK_BYTES;
	int64_t rows = s->l.rows, wide = s->heads * s->d, cols = wide + 2 * s->kv_heads * s->d + EXTRA, row0 = 2;
	float *x = values(3, (row0 + rows) * cols, 2);
	struct kv *tail = filled_kv(q, s, s->l.tail, s->l.tail + rows + 5, 1),
		  *context = s->split ? filled_kv(q, s, 9, 9, 2) : NULL;
	struct attn_seq seq = {row0, rows, context, NULL, tail, s->l.tail};
	struct tensor *xt = tensor_of(q, x, row0 + rows, cols), *out = operand_new(d, row0 + rows, wide),
		      *lse = s->lse ? tensor_of(q, NULL, row0 + rows, s->heads + EXTRA) : NULL;
	assert_non_null(out);
	if (lse)
		assert_int_equal(tensor_fill(q, lse, -7), 0);
	if (op_kv_append(q, LAYER, &seq, 1, xt, wide, wide + s->kv_heads * s->d) ||
		op_attention(q, LAYER, &seq, 1, out, xt, 0, s->heads, lse))
		fail_msg("%s", device_error(d));
	struct result r = {operand_of(q, out, row0 + rows, wide), lse ? host_of(q, lse) : NULL};
	free(x);
	tensor_free(xt), tensor_free(out), tensor_free(lse);
	kv_free(tail), kv_free(context);
	return r;
}
static void free_result(struct result *r)
{
	free(r->out), free(r->lse);
}

static const struct lengths LENGTHS[] = {{0, 17}, {0, 129}, {100, 33}, {513, 65}, {1, 200}, {1000, 18}, {63, 64}};
enum { N_LENGTHS = sizeof LENGTHS / sizeof *LENGTHS };
static const int HEADS[][3] = {
	{2, 2, 64}, {4, 2, 128}, {9, 3, 16}, {8, 2, 128}, {7, 1, 64}, {14, 2, 32}, {5, 5, 96}}; /* g = 1 2 3 4 7 7 1 */
enum { N_HEADS = sizeof HEADS / sizeof *HEADS };

/* Largest differences of cuDNN's from the CPU's and from our kernel's, so far; too large ones end the test. */
struct seen {
	double cpu, own, lse;
	bool other_bits; /* than our kernel's: it was another one */
};
/* The CPU, our kernels, cuDNN: each with a queue, which keeps cuDNN's compiled kernels. */
struct three {
	struct device *d[3];
	struct queue *q[3];
};
static void compare(const struct three *t, const struct setup *s, struct seen *e)
{
	struct result r[3];
	int64_t n = (2 + s->l.rows) * s->heads * s->d, m = s->l.rows * (s->heads + EXTRA), skip = 2 * (s->heads + EXTRA);
	for (int i = 0; i < 3; i++)
		r[i] = run(t->q[i], s);
	e->cpu = fmax(e->cpu, difference(r[2].out, r[0].out, n));
	e->own = fmax(e->own, difference(r[2].out, r[1].out, n));
	e->other_bits = e->other_bits || memcmp(r[2].out, r[1].out, (size_t)n * sizeof *r[2].out);
	if (s->lse) { /* columns behind the heads stay as they were */
		e->lse = fmax(e->lse, difference(r[2].lse + skip, r[0].lse + skip, m));
		e->lse = fmax(e->lse, difference(r[2].lse + skip, r[1].lse + skip, m));
	}
	/* probabilities and results are rounded to bf16, 2^-9 each: observed 5e-3; one key more or less is 0.1 of the shortest */
	if (!(e->cpu < 1.2e-2 && e->own < 1.2e-2 && e->lse < 1e-5))
		fail_msg("%d/%d heads of %d, %lld rows behind %lld: from the CPU %.2g, from our kernel %.2g, lse %.2g", s->heads,
			s->kv_heads, s->d, (long long)s->l.rows, (long long)s->l.tail, e->cpu, e->own, e->lse);
	for (int i = 0; i < 3; i++)
		free_result(&r[i]);
}
static struct three open_three(void)
{
	struct three t = {.d = {opened("cpu", NULL), opened("cuda", "own"), opened("cuda", "cudnn")}};
	assert_string_equal(device_attention(t.d[2]), "cudnn");
	assert_string_equal(device_attention(t.d[1]), "own");
	for (int i = 0; i < 3; i++)
		if (!(t.q[i] = queue_new(t.d[i])))
			fail_msg("%s", device_error(t.d[i]));
	return t;
}
static void close_three(struct three *t)
{
	for (int i = 0; i < 3; i++) {
		queue_free(t->q[i]);
		assert_true(i == 0 || device_bytes(t->d[i]) == 0);
		device_close(t->d[i]);
	}
}
static void print_seen(const char *what, const struct seen *e)
{
	print_message(
		"largest difference, %s: from the CPU %.2g, from our kernel %.2g, lse %.2g\n", what, e->cpu, e->own, e->lse);
}

static void test_values(void **state)
{
	(void)state;
	struct three t = open_three();
	struct seen e = {0};
	for (int j = 0; j < N_HEADS; j++)
		for (int i = j % every(3); i < N_LENGTHS; i += every(3)) {
			struct setup s = {.heads = HEADS[j][0],
				.kv_heads = HEADS[j][1],
				.d = HEADS[j][2],
				.l = LENGTHS[i],
				.lse = (i + j) % 2};
			if (s.l.rows * (s.heads / s.kv_heads) > ATTEND_FEW)
				compare(&t, &s, &e);
		}
	print_seen("every group size", &e);
	assert_true(e.other_bits);
	close_three(&t);
}

/* One row of a large group; queries packed in lots, of which each sees more keys than the last. */
static void test_one_row_and_lots(void **state)
{
	(void)state;
	struct three t = open_three();
	struct seen e = {0};
	for (int lse = 0; lse < 2; lse++) {
		compare(&t, &(struct setup){.heads = 20, .kv_heads = 1, .d = 64, .l = {77, 1}, .lse = lse}, &e);
		compare(&t, &(struct setup){.heads = 20, .kv_heads = 1, .d = 40, .l = {0, 1}, .lse = lse}, &e);
		compare(&t,
			&(struct setup){
				.heads = 4, .kv_heads = 2, .d = 64, .l = {30, 100}, .lse = lse, .pack_bytes = 4 * 64 * 2 * 37},
			&e);
	}
	print_seen("one row, lots of rows", &e);
	assert_true(e.other_bits);
	close_three(&t);
}

/* What does not go to cuDNN has the bits of our kernels. */
static void test_the_rest_is_ours(void **state)
{
	(void)state;
	static const struct setup others[] = {
		{.heads = 4, .kv_heads = 2, .d = 64, .l = {40, 50}, .lse = true, .split = true}, /* a context before its own cache
												  */
		{.heads = 4, .kv_heads = 4, .d = 64, .l = {40, 50}, .lse = true, .uneven = true}, /* heads at unequal distances */
		{.heads = 4, .kv_heads = 2, .d = 64, .l = {40, 8}, .lse = true},                  /* few rows */
		{.heads = 4, .kv_heads = 2, .d = 20, .l = {40, 50}, .lse = true},                 /* d */
		{.heads = 2, .kv_heads = 2, .d = 136, .l = {40, 50}, .lse = true},
	};
	struct three t = open_three();
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		struct seen e = {0};
		compare(&t, &others[i], &e);
		assert_true(e.own == 0 && !e.other_bits);
	}
	close_three(&t);
}

/* Sequences of one call: two for cuDNN, and between them one that is ours. */
static void test_mixed_call(void **state)
{
	(void)state;
	enum { H = 4, KV = 2, DIM = 64, WIDE = H * DIM, COLS = WIDE + 2 * KV * DIM, ROWS = 40 + 3 + 70 };
	struct three t = open_three();
	float *got[3], *x = values(8, ROWS * COLS, 2);
	struct setup s = {.heads = H, .kv_heads = KV, .d = DIM};
	for (int i = 0; i < 3; i++) {
		struct queue *q = t.q[i];
		struct kv *a = filled_kv(q, &s, 0, 40, 1), *context = filled_kv(q, &s, 30, 30, 2), *b = filled_kv(q, &s, 0, 3, 3),
			  *c = filled_kv(q, &s, 20, 90, 4);
		struct attn_seq seq[] = {{0, 40, NULL, NULL, a, 0}, {40, 3, context, NULL, b, 0}, {43, 70, NULL, NULL, c, 20}};
		struct tensor *xt = tensor_of(q, x, ROWS, COLS), *out = operand_new(t.d[i], ROWS, WIDE);
		if (op_kv_append(q, LAYER, seq, 3, xt, WIDE, WIDE + KV * DIM) ||
			op_attention(q, LAYER, seq, 3, out, xt, 0, H, NULL))
			fail_msg("%s", device_error(t.d[i]));
		got[i] = operand_of(q, out, ROWS, WIDE);
		tensor_free(xt), tensor_free(out);
		kv_free(a), kv_free(b), kv_free(c), kv_free(context);
	}
	assert_close("a mixed call", got[2], got[0], ROWS * WIDE, 1.2e-2);
	assert_same_bits("ours in a mixed call", got[2] + 40 * WIDE, got[1] + 40 * WIDE, 3 * WIDE);
	assert_true(memcmp(got[2], got[1], 40 * WIDE * sizeof *x) &&
		    memcmp(got[2] + 43 * WIDE, got[1] + 43 * WIDE, 70 * WIDE * sizeof *x));
	for (int i = 0; i < 3; i++)
		free(got[i]);
	free(x);
	close_three(&t);
}

/* The same call twice, the second time by a plan that is there: the same bits. */
static void test_same_bits_again(void **state)
{
	(void)state;
	struct device *d = opened("cuda", "cudnn");
	struct setup s = {.heads = 8, .kv_heads = 2, .d = 128, .l = {77, 91}, .lse = true};
	struct queue *q = queue_new(d);
	assert_non_null(q);
	struct result a = run(q, &s), b = run(q, &s);
	assert_same_bits("again", b.out, a.out, 93 * 8 * 128);
	assert_same_bits("lse again", b.lse, a.lse, 93 * (8 + EXTRA));
	free_result(&a), free_result(&b);
	queue_free(q);
	device_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_one_row_and_lots),
		cmocka_unit_test(test_the_rest_is_ours), cmocka_unit_test(test_mixed_call),
		cmocka_unit_test(test_same_bits_again)};
	char what[DEVICE_WHAT];
	if (!device_attention_usable("cudnn", what)) {
		printf("skip - attention by cuDNN: %s\n", what);
		return 0;
	}
	print_message("attention by %s\n", what);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
