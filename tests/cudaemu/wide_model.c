/* wide_model.c: writes a model with many heads and little arithmetic, whose cache is as large as a test of --kv-offload wants it after a few hundred tokens. Random
 * weights in a llama's shape; the caller puts a tokenizer beside them.
 *
 *   wide_model FOLDER LAYERS HEADS KV_HEADS HEAD_DIM    an existing folder gets config.json and model.safetensors */
#include "runners/model/random.h"
#include "runners/model/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 16, FFN = 32, VOCAB = 1824 /* the embedded tokenizer's */ };

struct wide_model {
	int layers, heads, kv_heads, head_dim;
	struct st_tensor *tensor; /* [2 + 9 * layers]; names and data are owned */
	size_t n;
};

/* Rows of unit length, as near as random ones come to it; cols 0: a vector of ones (the scale of a norm). */
static void add(struct wide_model *w, char *name, int64_t rows, int64_t cols)
{
	float *x = mem_new((size_t)(rows * (cols ? cols : 1)), sizeof *x);
	for (int64_t r = 0; r < rows; r++)
		if (cols)
			random_row(1, w->n, r, cols, 1 / sqrtf((float)cols), x + r * cols);
		else
			x[r] = 1;
	w->tensor[w->n++] = (struct st_tensor){.name = name, .type = ST_F32, .n_dims = cols ? 2 : 1, .dims = {rows, cols}, .data = x};
}

static void add_layers(struct wide_model *w, const char *kind, int64_t rows, int64_t cols)
{
	for (int l = 0; l < w->layers; l++)
		add(w, text_format("model.layers.%d.%s.weight", l, kind), rows, cols);
}

static int write_config(const struct wide_model *w, const char *path, char err[ERR_LEN])
{
	FILE *f = fopen(path, "w");
	if (!f)
		return err_set(err, "cannot write %s", path);
	fprintf(f,
		"{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d, \"head_dim\": %d,\n"
		"\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 8192, \"hidden_act\": \"silu\",\n"
		"\"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"bos_token_id\": 1, \"eos_token_id\": 2}\n",
		HIDDEN, FFN, w->layers, w->head_dim, w->heads, w->kv_heads, VOCAB);
	return fclose(f) ? err_set(err, "cannot write %s", path) : 0;
}

static void add_all(struct wide_model *w)
{
	int64_t q = w->heads * w->head_dim, kv = w->kv_heads * w->head_dim;
	add(w, text_copy("model.embed_tokens.weight"), VOCAB, HIDDEN);
	add(w, text_copy("model.norm.weight"), HIDDEN, 0);
	add_layers(w, "input_layernorm", HIDDEN, 0);
	add_layers(w, "self_attn.q_proj", q, HIDDEN);
	add_layers(w, "self_attn.k_proj", kv, HIDDEN);
	add_layers(w, "self_attn.v_proj", kv, HIDDEN);
	add_layers(w, "self_attn.o_proj", HIDDEN, q);
	add_layers(w, "post_attention_layernorm", HIDDEN, 0);
	add_layers(w, "mlp.gate_proj", FFN, HIDDEN);
	add_layers(w, "mlp.up_proj", FFN, HIDDEN);
	add_layers(w, "mlp.down_proj", HIDDEN, FFN);
}

int main(int argc, char **argv)
{
	char err[ERR_LEN];
	if (argc != 6)
		return fprintf(stderr, "usage: wide_model FOLDER LAYERS HEADS KV_HEADS HEAD_DIM\n"), 2;
	struct wide_model w = {atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), NULL, 0};
	w.tensor = mem_new(2 + 9 * (size_t)w.layers, sizeof *w.tensor);
	add_all(&w);
	char *config = text_format("%s/config.json", argv[1]), *weights = text_format("%s/model.safetensors", argv[1]);
	int rc = write_config(&w, config, err) || st_write(weights, w.tensor, w.n, NULL, 0, err);
	if (rc)
		fprintf(stderr, "wide_model: %s\n", err);
	for (size_t i = 0; i < w.n; i++) {
		free((char *)w.tensor[i].name);
		free((float *)w.tensor[i].data);
	}
	free(w.tensor);
	free(config);
	free(weights);
	return rc != 0;
}
