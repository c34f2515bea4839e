/* Attention for Hopper by tensor maps (attend_wgmma.cu, maps.c) on an emulated sm_90: the same bits with maps and without, and the CPU's values; where
 * copies must take over; how many maps are made; what happens where there are none or the driver refuses. */
#include "tests/cudaemu/control.h"
#include "tests/cudaemu/sequences.h"

#include "runners/device/cuda/cuda.h"

/* Contiguous segments of many boxes, of one exactly, of less than one; an index beside them. Maps: 1 + 2 + 1 + 1 + 1 segments. */
static const struct sequence SEQS[MOST] = {{-1, 0, 300, 0}, {513, 131, 40, 0}, {900, 257, 21, 3}, {128, 0, 33, 0}, {127, 130, 20, 0}};
enum { MAPPED = 6, COMPACT_MAPPED = MAPPED + 1 };
static const int SHAPES[][3] = {{4, 2, 64}, {2, 1, 128}};

/* maps: whether the driver makes them. */
static struct both open_hopper(bool maps)
{
	cuemu_set_capability(90);
	cuemu_set_tma(maps);
	struct both b = open_both("bf16");
	assert_string_equal(device_isa(b.d[CUDA]), "sm_90a");
	print_message("attention by %s\n", device_isa(b.d[CUDA]));
	return b;
}
static int maps_made(void)
{
	return (int)cuemu_calls("cuTensorMapEncodeTiled");
}

static void test_boxes(void **state)
{
	(void)state;
	static const char *const orders[] = {"fwd", "rev", "random"};
	for (int c = 0; c < 2; c++) {
		struct setup s = {SHAPES[c][0], SHAPES[c][1], SHAPES[c][2], SEQS, MOST};
		struct both without = open_hopper(false);
		assert_int_equal(cuemu_fail(NULL), 0);
		struct result cpu = run(without.q[CPU], &s, -1, false), want = run(without.q[CUDA], &s, -1, false);
		assert_int_equal(maps_made(), 0);
		close_both(&without);
		int64_t wide = s.heads * s.d;
		assert_close("copied by the group", want.out, cpu.out, want.rows * wide, 8e-3);
		struct both b = open_hopper(true);
		for (int i = c; i < 3; i += every(3)) {
			cuemu_set_order(orders[i]);
			cuemu_fail(NULL);
			struct result got = run(b.q[CUDA], &s, -1, false);
			assert_int_equal(maps_made(), 2 * MAPPED * s.kv_heads);
			assert_same_bits("by boxes", got.out, want.out, got.rows * wide);
			assert_same_bits("lse by boxes", got.lse, want.lse, got.rows * s.heads);
			free_result(&got);
		}
		cuemu_set_order("fwd");
		cuemu_fail(NULL);
		struct result compact = run(b.q[CUDA], &s, -1, true);
		assert_int_equal(maps_made(), 2 * COMPACT_MAPPED * s.kv_heads);
		assert_same_bits("compacted, by boxes", compact.out, want.out, compact.rows * wide);
		close_both(&b);
		free_result(&cpu), free_result(&want), free_result(&compact);
	}
}

/* Lists of maps that are full after one item, on memory that the host may not touch. */
static void test_few_maps_at_a_time(void **state)
{
	(void)state;
	struct setup s = {4, 2, 64, SEQS + 1, MOST - 1};
	struct both b = open_hopper(true);
	struct result want = run(b.q[CUDA], &s, -1, false);
	cuda_queue(b.q[CUDA])->most_maps = 2 * SEGMENTS;
	cuemu_set_protect(true);
	struct result got = run(b.q[CUDA], &s, -1, false);
	cuemu_set_protect(false);
	assert_same_bits("few maps at a time", got.out, want.out, got.rows * s.heads * s.d);
	free_result(&want), free_result(&got);
	close_both(&b);
}

/* The value of one new row is NaN. A block of queries before it reads none of it, though it stands in the last of their tiles and inside the segment: a
 * probability of 0 would not hide it. */
static void test_keys_behind_a_blocks_last(void **state)
{
	(void)state;
	enum { D = 64, TAIL = 40, ROWS = 256, BLOCK = 128, BAD = 160 };
	struct both b = open_hopper(true);
	float *x = values(3, ROWS * 3 * D, 2);
	x[BAD * 3 * D + 2 * D + 5] = NAN;
	struct kv *kv = new_kv(b.d[CUDA], 1, D, TAIL + ROWS);
	fill_kv(b.q[CUDA], kv, 1, D, TAIL, 8);
	struct tensor *xt = tensor_of(b.q[CUDA], x, ROWS, 3 * D), *out = tensor_of(b.q[CUDA], NULL, ROWS, D);
	struct attn_seq seq = {0, ROWS, NULL, NULL, kv, TAIL};
	must(&b, CUDA, op_kv_append(b.q[CUDA], LAYER, &seq, 1, xt, D, 2 * D));
	must(&b, CUDA, op_attention(b.q[CUDA], LAYER, &seq, 1, out, xt, 0, 1, NULL));
	float *o = host_of(b.q[CUDA], out);
	for (int r = 0; r < ROWS; r++)
		if (r < BLOCK || r >= BAD) /* those between stand in the block that reads it */
			assert_int_equal(isnan(o[r * D + 5]) != 0, r >= BAD);
	free(x), free(o);
	tensor_free(xt), tensor_free(out);
	kv_free(kv);
	close_both(&b);
}

/* lse alone: no values are loaded; ranges that begin behind the cache's first rows. */
static void test_lse_alone(void **state)
{
	(void)state;
	enum { D = 64, KV = 2, HEADS = 4, ROWS = 40 };
	static const int64_t len[3] = {300, 128, 170};
	float *lse[3]; /* CPU, with maps, without */
	for (int i = 0; i < 3; i++) {
		struct both b = open_hopper(i == 1);
		struct queue *q = b.q[i ? CUDA : CPU];
		struct key_set keys = {.n = 3, .causal = true};
		struct kv *kv[3];
		float *x = values(9, ROWS * HEADS * D, 2);
		for (int r = 0; r < 3; r++) {
			kv[r] = new_kv(queue_device(q), KV, D, len[r] + 3);
			fill_kv(q, kv[r], KV, D, len[r] + 3, 60 + (uint64_t)r);
			keys.range[r] = (struct key_range){kv[r], 2, len[r]};
		}
		struct tensor *xt = tensor_of(q, x, ROWS, HEADS * D), *out = tensor_of(q, NULL, ROWS, HEADS);
		cuemu_fail(NULL);
		must(&b, i ? CUDA : CPU, op_attn_lse(q, LAYER, &keys, xt, 0, ROWS, 0, HEADS, out));
		assert_int_equal(maps_made(), i == 1 ? 2 * 3 * KV : 0);
		lse[i] = host_of(q, out);
		free(x);
		tensor_free(xt), tensor_free(out);
		for (int r = 0; r < 3; r++)
			kv_free(kv[r]);
		close_both(&b);
	}
	assert_same_bits("lse by boxes", lse[1], lse[2], ROWS * HEADS);
	assert_close("lse", lse[1], lse[0], ROWS * HEADS, 1e-5);
	for (int i = 0; i < 3; i++)
		free(lse[i]);
}

static void test_no_encoder(void **state)
{
	(void)state;
	cuemu_set_capability(90);
	cuemu_set_tma(true);
	cuemu_fail("cudaGetDriverEntryPointByVersion:1:500"); /* not found: copies go on without */
	struct both b = open_both("bf16");
	struct setup s = {2, 1, 64, SEQS + 3, 1};
	struct result want = run(b.q[CUDA], &s, -1, false);
	assert_int_equal(maps_made(), 0);
	close_both(&b);
	cuemu_fail(NULL);
	free_result(&want);
}

/* A map that the driver refuses is an error that says so; the next call is whole again. */
static void test_encoder_refuses(void **state)
{
	(void)state;
	enum { D = 64, ROWS = 150 };
	struct both b = open_hopper(true);
	struct kv *kv = new_kv(b.d[CUDA], 1, D, ROWS);
	float *x = values(4, ROWS * 3 * D, 2);
	struct tensor *xt = tensor_of(b.q[CUDA], x, ROWS, 3 * D), *out = tensor_of(b.q[CUDA], NULL, ROWS, D);
	struct attn_seq seq = {0, ROWS, NULL, NULL, kv, 0};
	must(&b, CUDA, op_kv_append(b.q[CUDA], LAYER, &seq, 1, xt, D, 2 * D));
	for (int i = 1; i <= 2; i++) {
		cuemu_fail(i == 1 ? "cuTensorMapEncodeTiled:1:1" : "cuTensorMapEncodeTiled:2:1");
		assert_int_equal(op_attention(b.q[CUDA], LAYER, &seq, 1, out, xt, 0, 1, NULL), -1);
		assert_non_null(strstr(device_error(b.d[CUDA]), "a tensor map of 150 rows: driver error 1"));
	}
	cuemu_fail(NULL);
	must(&b, CUDA, op_attention(b.q[CUDA], LAYER, &seq, 1, out, xt, 0, 1, NULL));
	free(x);
	tensor_free(xt), tensor_free(out);
	kv_free(kv);
	close_both(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_boxes), cmocka_unit_test(test_few_maps_at_a_time),
		cmocka_unit_test(test_keys_behind_a_blocks_last), cmocka_unit_test(test_lse_alone), cmocka_unit_test(test_no_encoder),
		cmocka_unit_test(test_encoder_refuses)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
