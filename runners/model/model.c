/* model.c: see model.h. Opening finds every tensor once and checks it; after that a model is a table of places.
 *
 * The same table serves all three sources: a Hugging Face folder, a GGUF file, random weights (places without data). */
#include "runners/model/model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runners/model/config.h"
#include "runners/model/dequant.h"
#include "runners/model/random.h"
#include "runners/model/safetensors.h"

enum dim { D_ONE, D_VOCAB, D_HIDDEN, D_FFN, D_Q, D_KV, D_HEAD };

/* What every supported architecture calls its tensors. Layer tensors stand behind "model.layers.N." and "blk.N.". */
static const struct {
	const char *hf, *gguf;
	enum dim rows, cols;
} roles[T_ROLES] = {
	[T_EMBED] = {"model.embed_tokens.weight", "token_embd.weight", D_VOCAB, D_HIDDEN},
	[T_FINAL_NORM] = {"model.norm.weight", "output_norm.weight", D_ONE, D_HIDDEN},
	[T_LM_HEAD] = {"lm_head.weight", "output.weight", D_VOCAB, D_HIDDEN},
	[T_ATTN_NORM] = {"input_layernorm.weight", "attn_norm.weight", D_ONE, D_HIDDEN},
	[T_Q] = {"self_attn.q_proj.weight", "attn_q.weight", D_Q, D_HIDDEN},
	[T_K] = {"self_attn.k_proj.weight", "attn_k.weight", D_KV, D_HIDDEN},
	[T_V] = {"self_attn.v_proj.weight", "attn_v.weight", D_KV, D_HIDDEN},
	[T_O] = {"self_attn.o_proj.weight", "attn_output.weight", D_HIDDEN, D_Q},
	[T_Q_BIAS] = {"self_attn.q_proj.bias", "attn_q.bias", D_ONE, D_Q},
	[T_K_BIAS] = {"self_attn.k_proj.bias", "attn_k.bias", D_ONE, D_KV},
	[T_V_BIAS] = {"self_attn.v_proj.bias", "attn_v.bias", D_ONE, D_KV},
	[T_Q_NORM] = {"self_attn.q_norm.weight", "attn_q_norm.weight", D_ONE, D_HEAD},
	[T_K_NORM] = {"self_attn.k_norm.weight", "attn_k_norm.weight", D_ONE, D_HEAD},
	[T_FFN_NORM] = {"post_attention_layernorm.weight", "ffn_norm.weight", D_ONE, D_HIDDEN},
	[T_GATE] = {"mlp.gate_proj.weight", "ffn_gate.weight", D_FFN, D_HIDDEN},
	[T_UP] = {"mlp.up_proj.weight", "ffn_up.weight", D_FFN, D_HIDDEN},
	[T_DOWN] = {"mlp.down_proj.weight", "ffn_down.weight", D_HIDDEN, D_FFN},
};
enum { NAME_MAX_LEN = 96 };

/* Where a tensor lies: row-major [rows, cols], a vector is one row. rows = 0: the model has no such tensor. */
struct weight {
	const char *file; /* for messages; borrowed from shard, GGUF or model */
	enum tensor_type type;
	int64_t rows, cols;
	const unsigned char *data; /* NULL in a random model */
	bool permuted;             /* rows (of a vector: elements) lie in adjacent-pair order */
};

struct shard {
	char *path;
	struct st_file *file;
};

struct model {
	char *path;
	struct model_config config;
	struct weight *weights; /* [layers][T_ROLES]; roles without a layer stand in layer 0 */
	struct shard *shards;   /* Hugging Face folder */
	size_t n_shards;
	json_t *weight_map; /* of a sharded folder: tensor name -> file name; NULL once open */
	struct gguf *gguf;
	float *divisors; /* rope_freqs.weight, what config.rope.divisors shows */
	bool random;
	uint64_t seed;
	char sha[SHA_LEN]; /* empty until asked for */
};

/* ---- Names and shapes ---- */

static int64_t dim_size(const struct model_config *c, enum dim d)
{
	switch (d) {
	case D_VOCAB:
		return c->vocab;
	case D_HIDDEN:
		return c->hidden;
	case D_FFN:
		return c->ffn;
	case D_Q:
		return (int64_t)c->heads * c->head_dim;
	case D_KV:
		return (int64_t)c->kv_heads * c->head_dim;
	case D_HEAD:
		return c->head_dim;
	default:
		return 1;
	}
}

static bool has_role(const struct model_config *c, enum tensor_role role)
{
	switch (role) {
	case T_LM_HEAD:
		return !c->tied;
	case T_Q_BIAS:
	case T_K_BIAS:
	case T_V_BIAS:
		return c->qkv_bias;
	case T_Q_NORM:
	case T_K_NORM:
		return c->qk_norm;
	default:
		return true;
	}
}

static bool per_layer(enum tensor_role role)
{
	return role > T_LM_HEAD;
}

static void tensor_name(const struct model *m, enum tensor_role role, int layer, char name[NAME_MAX_LEN])
{
	const char *own = m->gguf ? roles[role].gguf : roles[role].hf;
	if (per_layer(role))
		snprintf(name, NAME_MAX_LEN, "%s.%d.%s", m->gguf ? "blk" : "model.layers", layer, own);
	else
		snprintf(name, NAME_MAX_LEN, "%s", own);
}

static struct weight *weight_at(const struct model *m, enum tensor_role role, int layer)
{
	if (role == T_LM_HEAD && m->config.tied)
		role = T_EMBED;
	return &m->weights[(per_layer(role) ? (size_t)layer : 0) * T_ROLES + role];
}

/* ---- Finding the tensors ---- */

static const char *file_name(const struct shard *s)
{
	return strrchr(s->path, '/') + 1;
}

/* The file that should hold a tensor: the only one, or the one the index names (NULL when it names none). */
static const struct shard *shard_of(const struct model *m, const char *name)
{
	if (!m->weight_map)
		return m->shards;
	const char *file = json_string_value(json_object_get(m->weight_map, name));
	for (size_t i = 0; file && i < m->n_shards; i++)
		if (!strcmp(file_name(&m->shards[i]), file))
			return &m->shards[i];
	return NULL;
}

static int find_in_folder(const struct model *m, const char *name, struct weight *w, char err[ERR_LEN])
{
	const struct shard *s = shard_of(m, name);
	const struct st_tensor *t = s ? st_find(s->file, name) : NULL;
	if (!t)
		return err_set(err, "%s: tensor %s is missing", s ? s->path : m->path, name);
	if (t->type != ST_F32 && t->type != ST_F16 && t->type != ST_BF16)
		return err_set(err, "%s: tensor %s is neither F32, F16 nor BF16", s->path, name);
	w->file = s->path;
	w->type = t->type == ST_F32 ? TT_F32 : t->type == ST_F16 ? TT_F16 : TT_BF16;
	w->data = t->data;
	const int64_t rows = t->n_dims == 2 ? t->dims[0] : 1, cols = t->n_dims ? t->dims[t->n_dims - 1] : 1;
	if (t->n_dims != (w->rows == 1 ? 1 : 2) || rows != w->rows || cols != w->cols)
		return err_set(err, "%s: tensor %s is %lld x %lld (%d dimensions), config.json asks for %lld x %lld", s->path,
			name, (long long)rows, (long long)cols, t->n_dims, (long long)w->rows, (long long)w->cols);
	return 0;
}

static int find_in_gguf(const struct model *m, const char *name, struct weight *w, char err[ERR_LEN])
{
	const struct gguf_tensor *t = gguf_find(m->gguf, name);
	w->file = gguf_name(m->gguf);
	if (!t)
		return err_set(err, "%s: tensor %s is missing", w->file, name);
	w->type = t->type;
	w->data = t->data;
	if (t->dims[0] != w->cols || t->dims[1] != w->rows || t->dims[2] != 1 || t->dims[3] != 1)
		return err_set(err, "%s: tensor %s is %lld x %lld, its metadata ask for %lld x %lld", w->file, name,
			(long long)t->dims[1], (long long)t->dims[0], (long long)w->rows, (long long)w->cols);
	if (w->rows == 1 && tensor_type_block(w->type) != 1)
		return err_set(err, "%s: tensor %s is a vector of type %s", w->file, name, tensor_type_name(w->type));
	return 0;
}

static int find_weight(struct model *m, enum tensor_role role, int layer, char err[ERR_LEN])
{
	struct weight *w = weight_at(m, role, layer);
	char name[NAME_MAX_LEN];
	w->file = m->path;
	w->rows = dim_size(&m->config, roles[role].rows);
	w->cols = dim_size(&m->config, roles[role].cols);
	w->permuted = m->gguf && arch_find(m->config.arch)->gguf_permuted &&
		      (role == T_Q || role == T_K || role == T_Q_BIAS || role == T_K_BIAS);
	tensor_name(m, role, layer, name);
	return m->random ? 0 : m->gguf ? find_in_gguf(m, name, w, err) : find_in_folder(m, name, w, err);
}

static int find_weights(struct model *m, char err[ERR_LEN])
{
	m->weights = mem_new((size_t)m->config.layers, T_ROLES * sizeof *m->weights);
	for (int layer = 0; layer < m->config.layers; layer++)
		for (enum tensor_role role = 0; role < T_ROLES; role++)
			if (has_role(&m->config, role) && (per_layer(role) || layer == 0) && find_weight(m, role, layer, err))
				return -1;
	return 0;
}

/* ---- Hugging Face folders ---- */

static int read_config(struct model *m, const char *file, char err[ERR_LEN])
{
	char *text;
	size_t len;
	if (file_read(file, &text, &len, err))
		return -1;
	int rc = config_from_json(&m->config, file, text, len, err);
	free(text);
	return rc;
}

static int read_generation(struct model *m, const char *file, char err[ERR_LEN])
{
	char *text;
	size_t len;
	if (!file_exists(file))
		return 0;
	if (file_read(file, &text, &len, err))
		return -1;
	int rc = config_join_generation(&m->config, file, text, len, err);
	free(text);
	return rc;
}

static int add_shard(struct model *m, const char *file, char err[ERR_LEN])
{
	for (size_t i = 0; i < m->n_shards; i++)
		if (!strcmp(file_name(&m->shards[i]), file))
			return 0;
	if (strchr(file, '/'))
		return err_set(err, "%s: the index names a file outside the folder: %.200s", m->path, file);
	m->shards = mem_grow(m->shards, m->n_shards + 1, sizeof *m->shards);
	struct shard *s = &m->shards[m->n_shards++];
	*s = (struct shard){.path = text_format("%s/%s", m->path, file)};
	return st_open(&s->file, s->path, err);
}

static int read_index(struct model *m, const char *index, char err[ERR_LEN])
{
	json_error_t e;
	json_t *root = json_load_file(index, 0, &e), *map = json_object_get(root, "weight_map"), *file;
	const char *name;
	int rc = 0;
	if (!json_object_size(map))
		rc = err_set(err, "%s: no weight_map: %s", index, root ? "not an index of shards" : e.text);
	json_object_foreach(map, name, file)
	{
		if (rc == 0 && !json_is_string(file))
			rc = err_set(err, "%s: the file of tensor %s is not a text", index, name);
		if (rc == 0)
			rc = add_shard(m, json_string_value(file), err);
	}
	m->weight_map = json_incref(map);
	json_decref(root);
	return rc;
}

static int open_folder(struct model *m, char err[ERR_LEN])
{
	char *config = text_format("%s/config.json", m->path), *generation = text_format("%s/generation_config.json", m->path);
	char *single = text_format("%s/model.safetensors", m->path),
	     *index = text_format("%s/model.safetensors.index.json", m->path);
	int rc = -1;
	if (read_config(m, config, err) || read_generation(m, generation, err))
		goto cleanup;
	if (file_exists(single))
		rc = add_shard(m, "model.safetensors", err);
	else if (file_exists(index))
		rc = read_index(m, index, err);
	else
		err_set(err, "%s has neither model.safetensors nor model.safetensors.index.json", m->path);
cleanup:
	free(config);
	free(generation);
	free(single);
	free(index);
	return rc;
}

/* ---- GGUF ---- */

/* Llama-3 files carry their RoPE scaling as one divisor a frequency instead of the formula's numbers. */
static int read_divisors(struct model *m, char err[ERR_LEN])
{
	const struct gguf_tensor *t = gguf_find(m->gguf, "rope_freqs.weight");
	const int n = m->config.head_dim / 2;
	if (!t)
		return 0;
	if (t->dims[0] != n || t->bytes != tensor_type_bytes(TT_F32, n) || t->type != TT_F32)
		return err_set(err, "%s: tensor rope_freqs.weight is not %d fp32 values", m->path, n);
	m->divisors = mem_new((size_t)n, sizeof *m->divisors);
	dequantise(TT_F32, t->data, n, m->divisors);
	for (int i = 0; i < n; i++)
		if (!(m->divisors[i] >= 1e-12f && m->divisors[i] <= 1e12f))
			return err_set(
				err, "%s: tensor rope_freqs.weight holds %g at index %d", m->path, (double)m->divisors[i], i);
	m->config.rope.kind = ROPE_TABLE;
	m->config.rope.divisors = m->divisors;
	return 0;
}

static int open_gguf(struct model *m, char err[ERR_LEN])
{
	if (gguf_open(&m->gguf, m->path, err) || config_from_gguf(&m->config, m->gguf, err))
		return -1;
	return read_divisors(m, err);
}

/* ---- Random weights ---- */

/* "random:FILE.json[:SEED]" */
static int open_random(struct model *m, char err[ERR_LEN])
{
	char *file = text_copy(strchr(m->path, ':') + 1), *colon = strrchr(file, ':');
	if (colon && colon[1] && colon[1 + strspn(colon + 1, "0123456789")] == 0) {
		m->seed = strtoull(colon + 1, NULL, 10);
		*colon = 0;
	}
	m->random = true;
	int rc = read_config(m, file, err);
	free(file);
	return rc;
}

/* Keeps a forward pass finite and its attention uneven: a linear map of unit-sized input gives unit-sized output. */
static float random_std(enum tensor_role role, int64_t cols)
{
	const bool map = role != T_EMBED && role != T_LM_HEAD && role != T_Q_BIAS && role != T_K_BIAS && role != T_V_BIAS;
	return map ? 1 / sqrtf((float)cols) : 0.02f;
}

static bool is_norm(enum tensor_role role)
{
	return role == T_ATTN_NORM || role == T_FFN_NORM || role == T_FINAL_NORM || role == T_Q_NORM || role == T_K_NORM;
}

static void random_rows(
	const struct model *m, enum tensor_role role, int layer, int64_t row0, int64_t n, int64_t cols, float *out)
{
	if (role == T_LM_HEAD && m->config.tied)
		role = T_EMBED;
	const uint64_t tensor = (per_layer(role) ? (uint64_t)layer : 0) * T_ROLES + role;
	if (is_norm(role))
		for (int64_t i = 0; i < n * cols; i++)
			out[i] = 1;
	else
		for (int64_t r = 0; r < n; r++)
			random_row(m->seed, tensor, row0 + r, cols, random_std(role, cols), out + r * cols);
}

/* ---- Opening and closing ---- */

static int open_source(struct model *m, char err[ERR_LEN])
{
	struct stat s;
	const size_t len = strlen(m->path);
	if (!strncmp(m->path, "random:", 7))
		return open_random(m, err);
	if (stat(m->path, &s))
		return err_set(
			err, "no model at %s (a Hugging Face folder, a .gguf file, or random:CONFIG.json[:SEED])", m->path);
	if (S_ISDIR(s.st_mode))
		return open_folder(m, err);
	if (len > 5 && !strcmp(m->path + len - 5, ".gguf"))
		return open_gguf(m, err);
	return err_set(err, "%s is neither a folder nor a .gguf file", m->path);
}

int model_open(struct model **out, const char *path, char err[ERR_LEN])
{
	struct model *m = mem_new(1, sizeof *m);
	m->path = text_copy(path);
	int rc = open_source(m, err) || find_weights(m, err) ? -1 : 0;
	json_decref(m->weight_map);
	m->weight_map = NULL;
	if (rc) {
		model_close(m);
		return -1;
	}
	*out = m;
	return 0;
}

void model_close(struct model *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n_shards; i++) {
		st_close(m->shards[i].file);
		free(m->shards[i].path);
	}
	free(m->shards);
	gguf_close(m->gguf);
	free(m->weights);
	free(m->divisors);
	free(m->path);
	free(m);
}

void model_unread(const struct model *m)
{
	for (size_t i = 0; i < m->n_shards; i++)
		st_unread(m->shards[i].file);
	if (m->gguf)
		gguf_unread(m->gguf);
}

/* ---- What is asked of an open model ---- */

const struct model_config *model_config(const struct model *m)
{
	return &m->config;
}

const char *model_path(const struct model *m)
{
	return m->path;
}

const struct gguf *model_gguf(const struct model *m)
{
	return m->gguf;
}

int64_t model_params(const struct model *m)
{
	int64_t n = 0;
	for (int i = 0; i < m->config.layers * T_ROLES; i++)
		n += m->weights[i].rows * m->weights[i].cols;
	return n;
}

int64_t model_file_bytes(const struct model *m)
{
	size_t n = m->gguf ? gguf_bytes(m->gguf) : 0;
	for (size_t i = 0; i < m->n_shards; i++)
		n += st_bytes(m->shards[i].file);
	return (int64_t)n;
}

void model_shape(const struct model *m, enum tensor_role role, int layer, int64_t *rows, int64_t *cols)
{
	const struct weight *w = weight_at(m, role, layer);
	*rows = w->rows;
	*cols = w->cols;
}

int model_check_vocab(const struct model *m, int tokenizer_vocab, char err[ERR_LEN])
{
	if (tokenizer_vocab <= m->config.vocab)
		return 0;
	return err_set(
		err, "%s: the tokenizer has %d ids, but the embedding has %d rows", m->path, tokenizer_vocab, m->config.vocab);
}

/* Everything of the config that decides logits, as text. */
static void hash_config(const struct model *m, struct sha256 *s)
{
	const struct model_config *c = &m->config;
	const struct rope_config *r = &c->rope;
	struct strbuf b = {0};
	strbuf_printf(&b, "%s %d %d %d %d %d %d %d %a %d ", c->arch, c->layers, c->heads, c->kv_heads, c->head_dim, c->hidden,
		c->ffn, c->vocab, (double)c->norm_eps, c->tied);
	strbuf_printf(&b, "rope %d %a %a %a %a %lld %a %a %a %d ", r->kind, r->theta, r->factor, r->low_freq_factor,
		r->high_freq_factor, (long long)r->original_max_positions, r->beta_fast, r->beta_slow, r->attention_factor,
		r->exact_range);
	if (m->random)
		strbuf_printf(&b, "seed %llu", (unsigned long long)m->seed);
	sha256_add(s, b.text, b.len);
	if (m->divisors)
		sha256_add(s, m->divisors, (size_t)c->head_dim / 2 * sizeof *m->divisors);
	strbuf_free(&b);
}

const char *model_sha256(struct model *m)
{
	if (m->sha[0])
		return m->sha;
	struct sha256 *s = sha256_new();
	hash_config(m, s);
	for (int i = 0; i < m->config.layers * T_ROLES; i++) {
		const struct weight *w = &m->weights[i];
		char *head = text_format("|%d %d %d", i, w->type, w->permuted);
		sha256_add(s, head, strlen(head));
		if (w->data)
			sha256_add(s, w->data, tensor_type_bytes(w->type, w->rows * w->cols));
		free(head);
		model_unread(m);
	}
	sha256_end(s, m->sha);
	return m->sha;
}

/* ---- Rows ---- */

/* llama.cpp keeps each head's rotary pairs side by side: (x0,y0) (x1,y1) ...; Hugging Face keeps x0 x1 ... y0 y1 ...
 * The place in the file of Hugging Face's row. */
static int64_t permuted_row(int64_t row, int head_dim)
{
	const int64_t in_head = row % head_dim, half = head_dim / 2;
	return row - in_head + in_head % half * 2 + in_head / half;
}

static void file_rows(const struct weight *w, int head_dim, int64_t row0, int64_t n, float *out)
{
	if (!w->permuted) {
		dequantise(w->type, w->data + tensor_type_bytes(w->type, row0 * w->cols), n * w->cols, out);
		return;
	}
	const int64_t unit = w->rows == 1 ? 1 : w->cols; /* a bias is permuted by elements */
	const int64_t count = w->rows == 1 ? w->cols : n;
	for (int64_t i = 0; i < count; i++)
		dequantise(w->type, w->data + tensor_type_bytes(w->type, permuted_row(row0 + i, head_dim) * unit), unit,
			out + i * unit);
}

enum { BLOCK = 256 };

/* No infinity, no NaN: no exponent of all ones. A constant trip count and no branch, so that it vectorises. */
static bool block_is_finite(const float x[BLOCK])
{
	uint32_t bad = 0, bits;
	for (int i = 0; i < BLOCK; i++) {
		memcpy(&bits, &x[i], sizeof bits);
		bad |= (bits & 0x7f800000u) == 0x7f800000u;
	}
	return !bad;
}

/* First index that is not finite, or n. */
static int64_t first_bad(const float *x, int64_t n)
{
	int64_t i = 0;
	while (n - i >= BLOCK && block_is_finite(x + i))
		i += BLOCK;
	while (i < n && isfinite(x[i]))
		i++;
	return i;
}

int model_rows(const struct model *m, enum tensor_role role, int layer, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	const struct weight *w = weight_at(m, role, layer);
	char name[NAME_MAX_LEN];
	tensor_name(m, role, layer, name);
	if (row0 < 0 || n < 0 || !w->rows || row0 > w->rows - n)
		return err_set(err, "%s: rows %lld to %lld asked of tensor %s, which has %lld", m->path, (long long)row0,
			(long long)(row0 + n), name, (long long)w->rows);
	if (m->random) {
		random_rows(m, role, layer, row0, n, w->cols, out);
		return 0;
	}
	const int64_t step = 1 + 16384 / w->cols; /* rows checked while they are still in the cache */
	for (int64_t r = 0; r < n; r += step) {
		const int64_t count = n - r < step ? n - r : step;
		float *part = out + r * w->cols;
		file_rows(w, m->config.head_dim, row0 + r, count, part);
		const int64_t bad = first_bad(part, count * w->cols);
		if (bad < count * w->cols)
			return err_set(err, "%s: tensor %s holds %s at row %lld, column %lld", w->file, name,
				isnan(part[bad]) ? "NaN" : "Inf", (long long)(row0 + r + bad / w->cols),
				(long long)(bad % w->cols));
	}
	return 0;
}

double model_linear_weights(const struct model_config *c)
{
	double d = c->head_dim;
	return c->layers * (2.0 * c->hidden * c->heads * d + 2.0 * c->hidden * c->kv_heads * d + 3.0 * c->hidden * c->ffn);
}

double model_prefill_flops(const struct model_config *c, double n)
{
	return 2 * model_linear_weights(c) * n + 2.0 * c->layers * c->heads * c->head_dim * n * n;
}
