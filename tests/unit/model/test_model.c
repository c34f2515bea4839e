/* test_model.c: models on disk: the three sources, permuted rows, and what is wrong with a model said in one message that
 * names file and tensor. */
#include <math.h>

#include "runners/model/gguf.h"
#include "runners/model/model.h"
#include "runners/model/safetensors.h"
#include "tests/unit/model/inputs.h"
#include "tests/unit/stories.h"

#define FIXTURES "tests/fixtures/"

static struct model *open_model(const char *path)
{
	struct model *m;
	char err[ERR_LEN];
	if (model_open(&m, path, err))
		fail_msg("%s", err);
	return m;
}

static void expect_refusal(const char *path, const char *says, const char *also)
{
	struct model *m;
	char err[ERR_LEN] = "";
	if (model_open(&m, path, err) == 0)
		fail_msg("%s was opened", path);
	assert_contains(err, says);
	assert_contains(err, also);
}

/* A whole tensor; caller frees. */
static float *whole(const struct model *m, enum tensor_role role, int layer, int64_t *count)
{
	char err[ERR_LEN];
	int64_t rows, cols;
	model_shape(m, role, layer, &rows, &cols);
	float *out = mem_new((size_t)(*count = rows * cols), sizeof *out);
	if (rows && model_rows(m, role, layer, 0, rows, out, err))
		fail_msg("%s", err);
	return out;
}

/* Every tensor of two models, bit by bit. */
static void assert_same_weights(const struct model *a, const struct model *b)
{
	for (int layer = 0; layer < model_config(a)->layers; layer++)
		for (enum tensor_role role = 0; role < T_ROLES; role++) {
			int64_t n, m;
			float *x = whole(a, role, layer, &n), *y = whole(b, role, layer, &m);
			assert_int_equal(n, m);
			assert_memory_equal(x, y, (size_t)n * sizeof *x);
			free(x);
			free(y);
		}
}

/* ---- The three sources ---- */

static void reads_hugging_face_folders(void **state)
{
	(void)state;
	static const struct {
		const char *path, *arch;
		int layers, heads, kv_heads, head_dim, hidden, vocab;
		bool tied, qkv_bias, qk_norm;
		enum rope_kind rope;
		double theta;
		int n_eos;
		int64_t params;
	} cases[] = {
		{"runners/model/tiny-pair/target", "qwen3", 4, 8, 4, 32, 128, 1824, true, false, true, ROPE_PLAIN, 5e5, 1,
			1021312},
		{FIXTURES "models/llama-tiny", "llama", 3, 4, 2, 16, 64, 300, false, false, false, ROPE_LLAMA3, 1e4, 2, 140224},
		{FIXTURES "models/qwen2-tiny", "qwen2", 3, 6, 2, 16, 96, 300, true, true, false, ROPE_PLAIN, 1e6, 1, 200448},
		{FIXTURES "models/qwen2-yarn-tiny", "qwen2", 2, 6, 2, 16, 96, 300, false, true, false, ROPE_YARN, 1e4, 1, 172064},
		{FIXTURES "models/qwen3-tiny", "qwen3", 3, 4, 2, 32, 64, 300, false, false, true, ROPE_PLAIN, 5e5, 1, 177280},
		{FIXTURES "models/smollm2-tiny", "llama", 3, 9, 3, 8, 72, 300, true, false, false, ROPE_PLAIN, 1e5, 1, 136152},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model *m = open_model(cases[i].path);
		const struct model_config *c = model_config(m);
		assert_string_equal(c->arch, cases[i].arch);
		assert_int_equal(c->layers, cases[i].layers);
		assert_int_equal(c->heads, cases[i].heads);
		assert_int_equal(c->kv_heads, cases[i].kv_heads);
		assert_int_equal(c->head_dim, cases[i].head_dim);
		assert_int_equal(c->hidden, cases[i].hidden);
		assert_int_equal(c->vocab, cases[i].vocab);
		assert_int_equal(c->tied, cases[i].tied);
		assert_int_equal(c->qkv_bias, cases[i].qkv_bias);
		assert_int_equal(c->qk_norm, cases[i].qk_norm);
		assert_int_equal(c->rope.kind, cases[i].rope);
		assert_true(c->rope.theta == cases[i].theta);
		assert_int_equal(c->bos, 1);
		assert_int_equal(c->n_eos, cases[i].n_eos);
		assert_int_equal(c->eos[0], 2);
		assert_int_equal(model_params(m), cases[i].params);
		assert_null(model_gguf(m));
		model_close(m);
	}
}

/* generation_config.json of llama-tiny adds 299 to config.json's 2. */
static void joins_eos_ids(void **state)
{
	(void)state;
	struct model *m = open_model(FIXTURES "models/llama-tiny");
	assert_int_equal(model_config(m)->n_eos, 2);
	assert_int_equal(model_config(m)->eos[1], 299);
	model_close(m);
}

/* The same weights sharded in a folder and in a GGUF, whose Q and K rows are permuted. */
static void gguf_equals_its_folder(void **state)
{
	(void)state;
	struct model *a = open_model(FIXTURES "models/smollm2-tiny"), *b = open_model(FIXTURES "gguf/smollm2-tiny.gguf");
	const struct model_config *c = model_config(b);
	float rows[2 * 72], all[72 * 72];
	char err[ERR_LEN];
	assert_same_weights(a, b);
	assert_int_equal(c->head_dim, 8);
	assert_true(c->tied && c->rope.theta == 1e5 && c->norm_eps == 1e-5f && c->max_positions == 512);
	assert_int_equal(c->n_eos, 2); /* 2 named as eos; 0 is a control token <|endoftext|> */
	assert_int_equal(c->eos[0], 2);
	assert_int_equal(c->eos[1], 0);
	assert_non_null(model_gguf(b));
	assert_int_equal(model_rows(b, T_Q, 1, 0, 72, all, err), 0);
	assert_int_equal(model_rows(b, T_Q, 1, 7, 2, rows, err), 0); /* two rows across a head's border */
	assert_memory_equal(rows, all + 7 * 72, sizeof rows);
	assert_int_equal(model_rows(b, T_Q, 1, 71, 2, rows, err), -1);
	assert_contains(err, "blk.1.attn_q.weight");
	assert_int_equal(model_rows(b, T_Q_BIAS, 1, 0, 1, rows, err), -1);
	model_close(a);
	model_close(b);
}

static void hash_names_the_weights(void **state)
{
	(void)state;
	const char *const files[] = {"config.json", "model.safetensors"};
	char err[ERR_LEN], *folder = scratch_folder(), *text;
	char *config = text_format("%s/%s", folder, files[0]), *weights = text_format("%s/%s", folder, files[1]);
	struct st_file *f[2];
	struct st_tensor t[64];
	size_t n = 0, len;
	float changed[72];
	/* the shards of smollm2-tiny in one file, then with one value changed */
	for (int i = 0; i < 2; i++) {
		char *shard = text_format(FIXTURES "models/smollm2-tiny/model-0000%d-of-00002.safetensors", i + 1);
		assert_int_equal(st_open(&f[i], shard, err), 0);
		for (size_t k = 0; k < st_count(f[i]); k++)
			t[n++] = *st_at(f[i], k);
		free(shard);
	}
	assert_int_equal(file_read(FIXTURES "models/smollm2-tiny/config.json", &text, &len, err), 0);
	write_text(config, text);
	assert_int_equal(st_write(weights, t, n, NULL, 0, err), 0);
	struct model *a = open_model(FIXTURES "models/smollm2-tiny"), *b = open_model(folder);
	assert_same_weights(a, b);
	assert_string_equal(model_sha256(a), model_sha256(b));
	model_close(b);
	for (size_t k = 0; k < n; k++)
		if (!strcmp(t[k].name, "model.norm.weight")) {
			memcpy(changed, t[k].data, sizeof changed);
			changed[71] += 1;
			t[k].data = changed;
		}
	assert_int_equal(st_write(weights, t, n, NULL, 0, err), 0);
	b = open_model(folder);
	assert_string_not_equal(model_sha256(a), model_sha256(b));
	model_close(a);
	model_close(b);
	st_close(f[0]);
	st_close(f[1]);
	free(text);
	free(config);
	free(weights);
	remove_folder(folder, files, 2);
}

static void random_weights_do_not_depend_on_the_range(void **state)
{
	(void)state;
	struct model *m = open_model("random:" FIXTURES "models/qwen2-tiny/config.json:7");
	struct model *other = open_model("random:" FIXTURES "models/qwen2-tiny/config.json:8");
	int64_t n, k;
	float *gate = whole(m, T_GATE, 2, &n), row[96], *norm = whole(m, T_FINAL_NORM, 0, &k);
	float *embed = whole(m, T_EMBED, 0, &k), *head = whole(m, T_LM_HEAD, 0, &k);
	char err[ERR_LEN];
	double sum = 0, square = 0;
	for (int64_t i = 0; i < n; i++)
		sum += gate[i], square += (double)gate[i] * gate[i];
	/* 10,752 values: the mean's deviation is .001, the deviation's own is .7 % */
	assert_true(fabs(sum / (double)n) < 0.005 && fabs(sqrt(square / (double)n) * sqrt(96) - 1) < 0.03);
	assert_int_equal(model_rows(m, T_GATE, 2, 41, 1, row, err), 0);
	assert_memory_equal(row, gate + 41 * 96, sizeof row);
	assert_int_equal(model_rows(other, T_GATE, 2, 41, 1, row, err), 0);
	assert_memory_not_equal(row, gate + 41 * 96, sizeof row);
	assert_int_equal(model_rows(m, T_UP, 2, 41, 1, row, err), 0);
	assert_memory_not_equal(row, gate + 41 * 96, sizeof row);
	assert_int_equal(model_rows(m, T_GATE, 1, 41, 1, row, err), 0);
	assert_memory_not_equal(row, gate + 41 * 96, sizeof row);
	for (int i = 0; i < 96; i++)
		assert_true(norm[i] == 1);
	assert_memory_equal(embed, head, (size_t)k * sizeof *embed); /* tied */
	assert_string_not_equal(model_sha256(m), model_sha256(other));
	free(gate);
	free(norm);
	free(embed);
	free(head);
	model_close(m);
	model_close(other);
}

/* A real checkpoint with the other rotary order: each converted Q row is its file's row, moved within the head. */
static void converts_stories(void **state)
{
	(void)state;
	const char *const files[] = {"config.json", "model.safetensors"};
	char *bin = shared_file("models/stories260K/stories260K.bin"), *folder = scratch_folder(), *data, err[ERR_LEN];
	float row[64];
	size_t len;
	if (stories_to_hf(bin, folder, err))
		fail_msg("%s", err);
	struct model *m = open_model(folder);
	assert_int_equal(model_params(m), 260032);
	assert_int_equal(file_read(bin, &data, &len, err), 0);
	const float *wq = (const float *)(const void *)(data + 28) + 512 * 64 + 5 * 64; /* behind embedding and norms */
	const int64_t theirs[8] = {0, 2, 4, 6, 1, 3, 5, 7};                             /* heads of 8 */
	for (int64_t r = 0; r < 64; r++) {
		assert_int_equal(model_rows(m, T_Q, 0, r, 1, row, err), 0);
		assert_memory_equal(row, wq + (r / 8 * 8 + theirs[r % 8]) * 64, sizeof row);
	}
	model_close(m);
	free(data);
	free(bin);
	remove_folder(folder, files, 2);
}

/* ---- Damaged folders ---- */

enum damage { NONE, DROPPED, SHORTER, NOT_A_NUMBER, INTEGERS };

/* llama-tiny in a folder of its own, with one thing wrong with one tensor. */
static void write_damaged(const char *folder, const char *name, enum damage damage)
{
	char err[ERR_LEN], *text, *config = text_format("%s/config.json", folder),
				  *weights = text_format("%s/model.safetensors", folder);
	struct st_file *f;
	struct st_tensor t[64];
	float *copy = NULL;
	size_t n = 0, len;
	assert_int_equal(file_read(FIXTURES "models/llama-tiny/config.json", &text, &len, err), 0);
	write_text(config, text);
	assert_int_equal(st_open(&f, FIXTURES "models/llama-tiny/model.safetensors", err), 0);
	for (size_t i = 0; i < st_count(f); i++) {
		t[n] = *st_at(f, i);
		if (!strcmp(t[n].name, name)) {
			if (damage == DROPPED)
				continue;
			copy = mem_new((size_t)t[n].count, sizeof *copy);
			st_to_f32(&t[n], 0, t[n].count, copy);
			t[n].data = copy;
			if (damage == NOT_A_NUMBER)
				copy[2 * 64 + 5] = NAN;
			t[n].dims[0] -= damage == SHORTER;
			t[n].type = damage == INTEGERS ? ST_I32 : ST_F32;
		}
		n++;
	}
	assert_int_equal(st_write(weights, t, n, NULL, 0, err), 0);
	st_close(f);
	free(copy);
	free(text);
	free(config);
	free(weights);
}

static void names_the_damaged_tensor(void **state)
{
	(void)state;
	const char *const files[] = {"config.json", "model.safetensors"};
	char *folder = scratch_folder(), err[ERR_LEN];
	float *out = mem_new(112 * 64, sizeof *out);
	write_damaged(folder, "", NONE);
	model_close(open_model(folder));
	write_damaged(folder, "model.layers.1.mlp.up_proj.weight", DROPPED);
	expect_refusal(folder, "model.safetensors", "tensor model.layers.1.mlp.up_proj.weight is missing");
	write_damaged(folder, "lm_head.weight", DROPPED); /* the config says untied */
	expect_refusal(folder, "model.safetensors", "tensor lm_head.weight is missing");
	write_damaged(folder, "model.embed_tokens.weight", SHORTER); /* fewer rows than the vocabulary */
	expect_refusal(folder, "model.safetensors",
		"tensor model.embed_tokens.weight is 299 x 64 (2 dimensions), config.json asks for 300 x 64");
	write_damaged(folder, "model.norm.weight", SHORTER);
	expect_refusal(folder, "model.safetensors", "tensor model.norm.weight is 1 x 63");
	write_damaged(folder, "model.layers.2.self_attn.v_proj.weight", INTEGERS);
	expect_refusal(folder, "model.safetensors", "tensor model.layers.2.self_attn.v_proj.weight is neither F32, F16 nor BF16");
	write_damaged(folder, "model.layers.0.mlp.gate_proj.weight", NOT_A_NUMBER);
	struct model *m = open_model(folder);
	assert_int_equal(model_rows(m, T_GATE, 0, 1, 100, out, err), -1);
	assert_contains(err, "model.safetensors");
	assert_contains(err, "tensor model.layers.0.mlp.gate_proj.weight holds NaN at row 2, column 5");
	assert_int_equal(model_rows(m, T_GATE, 0, 3, 100, out, err), 0);
	model_close(m);
	free(out);
	remove_folder(folder, files, 2);
}

static void refuses_broken_folders(void **state)
{
	(void)state;
	const char *const files[] = {"config.json", "generation_config.json", "model.safetensors.index.json", "a.safetensors"};
	char *folder = scratch_folder(), *text, err[ERR_LEN];
	char *config = text_format("%s/%s", folder, files[0]), *generation = text_format("%s/%s", folder, files[1]);
	char *index = text_format("%s/%s", folder, files[2]), *shard = text_format("%s/%s", folder, files[3]);
	size_t len;
	expect_refusal("tests/no-such-model", "no model at tests/no-such-model", "Hugging Face folder");
	expect_refusal("README.md", "README.md", "");
	expect_refusal("random:tests/no-such.json", "tests/no-such.json", "");
	expect_refusal(folder, "config.json", "cannot open");
	assert_int_equal(file_read(FIXTURES "models/llama-tiny/config.json", &text, &len, err), 0);
	write_text(config, text);
	expect_refusal(folder, "neither model.safetensors nor", folder);
	write_text(generation, "{\"eos_token_id\": 300}");
	expect_refusal(folder, "generation_config.json", "EOS id 300");
	write_text(generation, "{}");
	write_text(index, "{\"weight_map\": {\"model.norm.weight\": \"../a.safetensors\"}}");
	expect_refusal(folder, "outside the folder", "../a.safetensors");
	write_text(index, "{\"weight_map\": {\"model.norm.weight\": 3}}");
	expect_refusal(folder, "index.json", "model.norm.weight");
	write_text(index, "{\"metadata\": {}}");
	expect_refusal(folder, "index.json", "no weight_map");
	write_text(index, "{\"weight_map\": ");
	expect_refusal(folder, "index.json", "no weight_map");
	write_text(index, "{\"weight_map\": {\"model.norm.weight\": \"a.safetensors\"}}");
	expect_refusal(folder, "a.safetensors", "cannot open");
	const struct st_tensor t = {"model.norm.weight", ST_F32, 1, {64}, .data = text};
	assert_int_equal(st_write(shard, &t, 1, NULL, 0, err), 0);
	expect_refusal(folder, folder, "tensor model.embed_tokens.weight is missing"); /* the index does not name it */
	write_text(index, "{\"weight_map\": {\"model.embed_tokens.weight\": \"a.safetensors\"}}");
	expect_refusal(folder, "a.safetensors", "tensor model.embed_tokens.weight is missing"); /* it does, wrongly */
	free(text);
	free(config);
	free(generation);
	free(index);
	free(shard);
	remove_folder(folder, files, 4);
}

static void checks_the_vocabulary(void **state)
{
	(void)state;
	struct model *m = open_model(FIXTURES "models/llama-tiny");
	char err[ERR_LEN];
	assert_int_equal(model_check_vocab(m, 300, err), 0);
	assert_int_equal(model_check_vocab(m, 290, err), 0); /* padded embeddings are usual */
	assert_int_equal(model_check_vocab(m, 301, err), -1);
	assert_contains(err, "301 ids");
	assert_contains(err, "llama-tiny");
	model_close(m);
}

/* ---- GGUF models put together by hand: one layer, 2 heads of 4, 1 KV head, hidden 8, ffn 12, vocabulary 10 ---- */

static float counted[10 * 12]; /* 0, 1, 2 ...: every tensor's values */

static void add_vector(struct gguf_draft *d, const char *name, uint64_t n)
{
	draft_tensor(d, name, 0, 0, n, counted, n * sizeof *counted);
}

static void add_matrix(struct gguf_draft *d, const char *name, uint64_t rows, uint64_t cols)
{
	draft_tensor(d, name, 0, rows, cols, counted, rows * cols * sizeof *counted);
}

static struct gguf_draft draft_llama(void)
{
	struct gguf_draft d = {0};
	for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
		counted[i] = (float)i;
	draft_str(&d, "general.architecture", "llama");
	draft_u32(&d, "llama.block_count", 1);
	draft_u32(&d, "llama.attention.head_count", 2);
	draft_u32(&d, "llama.attention.head_count_kv", 1);
	draft_u32(&d, "llama.embedding_length", 8);
	draft_u32(&d, "llama.feed_forward_length", 12);
	draft_u32(&d, "llama.context_length", 64);
	draft_f32(&d, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	add_matrix(&d, "token_embd.weight", 10, 8);
	add_vector(&d, "output_norm.weight", 8);
	add_vector(&d, "blk.0.attn_norm.weight", 8);
	add_matrix(&d, "blk.0.attn_q.weight", 8, 8);
	add_matrix(&d, "blk.0.attn_k.weight", 4, 8);
	add_matrix(&d, "blk.0.attn_v.weight", 4, 8);
	add_matrix(&d, "blk.0.attn_output.weight", 8, 8);
	add_vector(&d, "blk.0.ffn_norm.weight", 8);
	add_matrix(&d, "blk.0.ffn_gate.weight", 12, 8);
	add_matrix(&d, "blk.0.ffn_up.weight", 12, 8);
	return d; /* add_down completes it */
}

static void add_down(struct gguf_draft *d)
{
	add_matrix(d, "blk.0.ffn_down.weight", 8, 12);
}

/* The draft as x.gguf in the folder; the path, which the caller frees. */
static char *write_draft(struct gguf_draft *d, const char *folder)
{
	struct strbuf b = draft_finish(d);
	char *path = text_format("%s/x.gguf", folder);
	write_file(path, b.text, b.len);
	strbuf_free(&b);
	return path;
}

static void finish_draft(char *folder, char *path)
{
	free(path);
	remove_folder(folder, (const char *const[]){"x.gguf"}, 1);
}

static void puts_llama_rows_and_biases_back(void **state)
{
	(void)state;
	struct gguf_draft d = draft_llama();
	add_down(&d);
	add_vector(&d, "blk.0.attn_q.bias", 8);
	add_vector(&d, "blk.0.attn_k.bias", 4);
	add_vector(&d, "blk.0.attn_v.bias", 4);
	char *folder = scratch_folder(), *path = write_draft(&d, folder), err[ERR_LEN];
	struct model *m = open_model(path);
	float q[64], bias[8];
	assert_true(model_config(m)->qkv_bias);
	assert_int_equal(model_rows(m, T_Q, 0, 0, 8, q, err), 0);
	assert_int_equal(model_rows(m, T_Q_BIAS, 0, 0, 1, bias, err), 0);
	const int theirs[8] = {0, 2, 1, 3, 4, 6, 5, 7};
	for (int r = 0; r < 8; r++)
		assert_true(q[r * 8] == (float)(theirs[r] * 8) && bias[r] == (float)theirs[r]);
	assert_int_equal(model_rows(m, T_V, 0, 0, 4, q, err), 0);
	assert_int_equal(model_rows(m, T_V_BIAS, 0, 0, 1, bias, err), 0);
	for (int r = 0; r < 4; r++)
		assert_true(q[r * 8] == (float)(r * 8) && bias[r] == (float)r);
	model_close(m);
	finish_draft(folder, path);
}

static void reads_rope_of_gguf(void **state)
{
	(void)state;
	const float divisors[2] = {1, 8};
	struct gguf_draft d = draft_llama();
	add_down(&d);
	draft_f32(&d, "llama.rope.freq_base", 10000);
	draft_tensor(&d, "rope_freqs.weight", 0, 0, 2, divisors, sizeof divisors);
	char *folder = scratch_folder(), *path = write_draft(&d, folder);
	struct model *m = open_model(path);
	double inv_freq[2], mscale;
	model_rope(model_config(m), inv_freq, &mscale);
	assert_int_equal(model_config(m)->rope.kind, ROPE_TABLE);
	assert_true(inv_freq[0] == 1 && inv_freq[1] == 0.01f / 8 && mscale == 1);
	model_close(m);
	free(path);
	d = draft_llama();
	add_down(&d);
	draft_f32(&d, "llama.rope.freq_base", 10000);
	draft_str(&d, "llama.rope.scaling.type", "yarn");
	draft_f32(&d, "llama.rope.scaling.factor", 4);
	draft_u32(&d, "llama.rope.scaling.original_context_length", 16);
	path = write_draft(&d, folder);
	m = open_model(path);
	const struct rope_config *r = &model_config(m)->rope;
	assert_true(r->kind == ROPE_YARN && r->factor == 4 && r->original_max_positions == 16 && r->beta_fast == 32 &&
		    r->beta_slow == 1);
	model_rope(model_config(m), inv_freq, &mscale);
	assert_true(fabs(mscale - (0.1 * log(4) + 1)) < 1e-15);
	model_close(m);
	finish_draft(folder, path);
}

/* Refuses the draft; uses it up. */
static void expect_draft_refusal(struct gguf_draft *d, const char *says)
{
	char *folder = scratch_folder(), *path = write_draft(d, folder);
	expect_refusal(path, "x.gguf", says);
	finish_draft(folder, path);
}

static void refuses_broken_gguf_models(void **state)
{
	(void)state;
	struct gguf_draft d = draft_llama();
	expect_draft_refusal(&d, "tensor blk.0.ffn_down.weight is missing");
	d = draft_llama();
	add_matrix(&d, "blk.0.ffn_down.weight", 12, 8);
	expect_draft_refusal(&d, "tensor blk.0.ffn_down.weight is 12 x 8, its metadata ask for 8 x 12");
	d = draft_llama();
	add_down(&d);
	draft_key(&d, "tokenizer.ggml.tokens", GGUF_ARRAY);
	put_u32(&d.pairs, GGUF_STRING);
	put_u64(&d.pairs, 11);
	for (int i = 0; i < 11; i++)
		put_text(&d.pairs, "t");
	expect_draft_refusal(&d, "11 tokens in the vocabulary, but token_embd.weight has 10 rows");
	d = draft_llama();
	add_down(&d);
	draft_u32(&d, "tokenizer.ggml.eos_token_id", 10);
	expect_draft_refusal(&d, "EOS id 10");
	d = draft_llama();
	add_down(&d);
	draft_u32(&d, "llama.rope.dimension_count", 2);
	expect_draft_refusal(&d, "partial rotation");
	d = draft_llama();
	add_down(&d);
	add_vector(&d, "rope_freqs.weight", 2); /* holds a zero */
	expect_draft_refusal(&d, "rope_freqs.weight holds 0 at index 0");
	d = draft_llama();
	add_down(&d);
	draft_str(&d, "llama.rope.scaling.type", "longrope");
	expect_draft_refusal(&d, "rope type longrope");
	d = (struct gguf_draft){0};
	draft_str(&d, "general.architecture", "gemma3");
	expect_draft_refusal(&d, "architecture gemma3 is not supported; known: llama");
	d = (struct gguf_draft){0};
	draft_str(&d, "general.architecture", "qwen2");
	expect_draft_refusal(&d, "tensor token_embd.weight is missing");
}

static void finds_nan_in_gguf(void **state)
{
	(void)state;
	struct gguf_draft d = draft_llama();
	counted[2 * 12 + 7] = INFINITY;
	add_down(&d);
	char *folder = scratch_folder(), *path = write_draft(&d, folder), err[ERR_LEN];
	struct model *m = open_model(path);
	float out[8 * 12];
	assert_int_equal(model_rows(m, T_DOWN, 0, 1, 3, out, err), -1);
	assert_contains(err, "x.gguf: tensor blk.0.ffn_down.weight holds Inf at row 2, column 7");
	model_close(m);
	finish_draft(folder, path);
}

/* ---- A real file, when the machine has it: $KVB_MODELS is the folder that holds it ---- */

static void reads_a_real_gguf(void **state)
{
	(void)state;
	const char *models = getenv("KVB_MODELS");
	char *path = text_format("%s/SmolLM2-135M-Instruct.Q4_1.gguf", models ? models : "models"), sha[SHA_LEN];
	if (!file_exists(path)) {
		print_message("skip: %s is not there (set KVB_MODELS)\n", path);
		free(path);
		skip();
	}
	struct model *m = open_model(path);
	const struct model_config *c = model_config(m);
	assert_true(c->layers == 30 && c->heads == 9 && c->kv_heads == 3 && c->head_dim == 64 && c->hidden == 576 && c->tied);
	assert_true(c->n_eos == 2 && c->eos[0] == 2 && c->eos[1] == 0 && c->rope.theta == 1e5 && c->max_positions == 8192);
	assert_int_equal(model_params(m), 134515008);
	int64_t n;
	float *q = whole(m, T_Q, 29, &n); /* the gguf package's values, its rows put back by transformers' rule */
	sha256_hex(q, (size_t)n * sizeof *q, sha);
	assert_string_equal(sha, "2f39f8002e96772faadb7667719e615167fe314589ce699ce97a007e33f2f298");
	free(q);
	model_close(m);
	free(path);
}

/* SmolLM2-135M by hand: 30 layers of 576 x (576 + 192 + 192 + 576) + 3 x 576 x 1536 weights; 2048 x 2048 / 2 pairs of attention. */
static void arithmetic_of_a_prefill(void **state)
{
	(void)state;
	struct model_config c = {.layers = 30, .heads = 9, .kv_heads = 3, .head_dim = 64, .hidden = 576, .ffn = 1536};
	assert_true(model_linear_weights(&c) == 106168320);
	assert_true(model_prefill_flops(&c, 2048) == 2 * 106168320.0 * 2048 + 4 * 64.0 * 9 * 30 * (2048.0 * 2048 / 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic_of_a_prefill), cmocka_unit_test(reads_hugging_face_folders),
		cmocka_unit_test(joins_eos_ids),
		cmocka_unit_test(gguf_equals_its_folder),
		cmocka_unit_test(hash_names_the_weights),
		cmocka_unit_test(random_weights_do_not_depend_on_the_range),
		cmocka_unit_test(converts_stories),
		cmocka_unit_test(names_the_damaged_tensor),
		cmocka_unit_test(refuses_broken_folders),
		cmocka_unit_test(checks_the_vocabulary),
		cmocka_unit_test(puts_llama_rows_and_biases_back),
		cmocka_unit_test(reads_rope_of_gguf),
		cmocka_unit_test(refuses_broken_gguf_models),
		cmocka_unit_test(finds_nan_in_gguf),
		cmocka_unit_test(reads_a_real_gguf),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
