/* stories.h: karpathy's stories260K.bin (llama2.c "version 0") as a Hugging Face folder, for tests.
 *
 * The file: 7 int32 (dim, hidden_dim, layers, heads, kv_heads, vocabulary, sequence), then fp32 tensors in a fixed order, each
 * kind for all layers in a row; a positive vocabulary means a tied head. llama2.c rotates adjacent pairs (x[2i], x[2i+1]),
 * Hugging Face x[i] with x[i + d/2]: so the rows of wq and wk move within their head. */
#ifndef KVB_TEST_STORIES_H
#define KVB_TEST_STORIES_H

#include <stdlib.h>
#include <string.h>

#include "runners/model/safetensors.h"

struct stories {
	int32_t dim, hidden, layers, heads, kv_heads, vocab, positions;
	const float *at; /* the next value of the file */
	const float *end;
	struct st_tensor *tensors;
	size_t n;
};

/* The next rows x cols values (cols 0: a vector of rows) under a name; false when the file is too short. */
static inline bool stories_take(struct stories *s, char *name, int64_t rows, int64_t cols)
{
	const int64_t count = rows * (cols ? cols : 1);
	if (count > s->end - s->at) {
		free(name);
		return false;
	}
	s->tensors[s->n++] =
		(struct st_tensor){name, ST_F32, cols ? 2 : 1, {rows, cols}, count, s->at, (size_t)count * sizeof(float)};
	s->at += count;
	return true;
}

/* One kind of tensor, for every layer. */
static inline bool stories_take_layers(struct stories *s, const char *kind, int64_t rows, int64_t cols)
{
	bool ok = true;
	for (int layer = 0; layer < s->layers; layer++)
		ok = ok && stories_take(s, text_format("model.layers.%d.%s.weight", layer, kind), rows, cols);
	return ok;
}

static inline bool stories_take_all(struct stories *s)
{
	const int64_t dim = s->dim, kv = dim / s->heads * s->kv_heads;
	return stories_take(s, text_copy("model.embed_tokens.weight"), s->vocab, dim) &&
	       stories_take_layers(s, "input_layernorm", dim, 0) && stories_take_layers(s, "self_attn.q_proj", dim, dim) &&
	       stories_take_layers(s, "self_attn.k_proj", kv, dim) && stories_take_layers(s, "self_attn.v_proj", kv, dim) &&
	       stories_take_layers(s, "self_attn.o_proj", dim, dim) &&
	       stories_take_layers(s, "post_attention_layernorm", dim, 0) &&
	       stories_take_layers(s, "mlp.gate_proj", s->hidden, dim) &&
	       stories_take_layers(s, "mlp.down_proj", dim, s->hidden) && stories_take_layers(s, "mlp.up_proj", s->hidden, dim) &&
	       stories_take(s, text_copy("model.norm.weight"), dim, 0);
}

/* Adjacent pairs to halves: row i + j*d/2 of a head is row 2i + j of the file. Fresh memory, owned by t from here. */
static inline void stories_to_halves(struct st_tensor *t, int64_t head_dim)
{
	const int64_t rows = t->dims[0], cols = t->dims[1];
	const float *from = t->data;
	float *to = mem_new((size_t)t->count, sizeof *to);
	for (int64_t r = 0; r < rows; r++) {
		const int64_t in_head = r % head_dim,
			      source = r - in_head + in_head % (head_dim / 2) * 2 + in_head / (head_dim / 2);
		memcpy(to + r * cols, from + source * cols, (size_t)cols * sizeof *to);
	}
	t->data = to;
}

static inline bool stories_rotated(const struct st_tensor *t)
{
	return strstr(t->name, "q_proj") || strstr(t->name, "k_proj");
}

static inline int stories_write_config(const struct stories *s, const char *path, char err[ERR_LEN])
{
	FILE *f = fopen(path, "w");
	if (!f)
		return err_set(err, "cannot write %s", path);
	fprintf(f,
		"{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": %d, \"intermediate_size\": %d, "
		"\"num_hidden_layers\": %d,\n"
		"\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"vocab_size\": %d, \"max_position_embeddings\": %d,\n"
		"\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\",\n"
		"\"bos_token_id\": 1, \"eos_token_id\": 1}\n",
		s->dim, s->hidden, s->layers, s->heads, s->kv_heads, s->vocab, s->positions);
	return fclose(f) ? err_set(err, "cannot write %s", path) : 0;
}

/* Writes FOLDER/config.json and FOLDER/model.safetensors; the folder exists. llama2.c stops at id 1 (BOS): that is the EOS. */
static inline int stories_to_hf(const char *bin, const char *folder, char err[ERR_LEN])
{
	char *data, *config = text_format("%s/config.json", folder), *weights = text_format("%s/model.safetensors", folder);
	size_t len;
	struct stories s = {0};
	int rc = file_read(bin, &data, &len, err);
	if (rc)
		goto cleanup;
	if (len > 7 * sizeof(int32_t))
		memcpy(&s, data, 7 * sizeof(int32_t));
	s.at = (const float *)(const void *)(data + 7 * sizeof(int32_t));
	s.end = s.at + (len - 7 * sizeof(int32_t)) / sizeof(float);
	s.tensors = mem_new((size_t)s.layers * 9 + 2, sizeof *s.tensors);
	if (s.vocab <= 0 || !stories_take_all(&s)) {
		rc = err_set(err, "%s is not a llama2.c checkpoint with a shared classifier", bin);
		goto cleanup_data;
	}
	for (size_t i = 0; i < s.n; i++)
		if (stories_rotated(&s.tensors[i]))
			stories_to_halves(&s.tensors[i], s.dim / s.heads);
	rc = stories_write_config(&s, config, err) || st_write(weights, s.tensors, s.n, NULL, 0, err) ? -1 : 0;
cleanup_data:
	for (size_t i = 0; i < s.n; i++) {
		if (rc == 0 && stories_rotated(&s.tensors[i]))
			free((void *)s.tensors[i].data);
		free((char *)s.tensors[i].name);
	}
	free(s.tensors);
	free(data);
cleanup:
	free(weights);
	free(config);
	return rc;
}

#endif
