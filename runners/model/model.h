/* model.h: a model on disk: hyper-parameters, where each tensor lies, generation settings. No arithmetic, no device.
 *
 * Owns: the mapped files. Leaves out: packing weights (runners/device), the tokenizer (tokenizer.h), chat (chat.h).
 * Sources: a Hugging Face folder (config.json, generation_config.json, model.safetensors or the sharded index), a GGUF v3
 * file, or `random:CONFIG.json` (seeded weights of any config's shape). All three fill the same struct. */
#ifndef KVB_MODEL_H
#define KVB_MODEL_H

#include "harness/base/base.h"

enum { MODEL_EOS_MAX = 8 };

/* How the rotary frequencies are scaled. Filled from rope_scaling (HF, any of its spellings) or GGUF metadata. */
enum rope_kind { ROPE_PLAIN, ROPE_LLAMA3, ROPE_YARN, ROPE_LINEAR, ROPE_TABLE };
struct rope_config {
	enum rope_kind kind;
	double theta;
	double factor;                       /* LLAMA3, YARN, LINEAR */
	double low_freq_factor, high_freq_factor; /* LLAMA3 */
	int64_t original_max_positions;      /* LLAMA3, YARN */
	double beta_fast, beta_slow, attention_factor; /* YARN; attention_factor 0 = the formula's 0.1 ln(factor) + 1 */
	bool exact_range;                    /* YARN: the corrected dimensions are not rounded to whole ones (truncate = false) */
	const float *divisors;               /* TABLE: head_dim/2 divisors (rope_freqs.weight of a GGUF), owned by the model */
};

struct model_config {
	const char *arch;          /* "llama", "qwen2", "qwen3": a name of the architecture table */
	int layers, heads, kv_heads, head_dim;   /* heads % kv_heads == 0 is checked */
	int hidden, ffn, vocab;    /* vocab = rows of the embedding */
	float norm_eps;
	bool tied;                 /* LM head = embedding */
	bool qkv_bias;             /* Qwen2/2.5 */
	bool qk_norm;              /* Qwen3: RMSNorm over head_dim with one weight for all heads of a layer */
	int64_t max_positions;     /* max_position_embeddings (before any YaRN factor is applied by the user) */
	struct rope_config rope;
	int32_t bos;               /* -1 = none */
	int32_t eos[MODEL_EOS_MAX]; /* all of them: config.json and generation_config.json joined; of a GGUF: the metadata's eos,
	                             * eot and eom ids and every control token known to end a turn (config.c) */
	int n_eos;
};

/* Element types a tensor may have on disk. */
enum tensor_type { TT_F32, TT_F16, TT_BF16, TT_Q8_0, TT_Q4_0, TT_Q4_1, TT_Q5_0, TT_Q5_1, TT_Q4_K, TT_Q5_K, TT_Q6_K };

/* The tensors of the forward pass by role; layer is ignored for the first three. */
enum tensor_role {
	T_EMBED, T_FINAL_NORM, T_LM_HEAD,          /* [vocab, hidden], [hidden], [vocab, hidden] (tied: the embedding again) */
	T_ATTN_NORM, T_Q, T_K, T_V, T_O,           /* [hidden], [heads*d, hidden], [kv*d, hidden] x2, [hidden, heads*d] */
	T_Q_BIAS, T_K_BIAS, T_V_BIAS,              /* Qwen2 */
	T_Q_NORM, T_K_NORM,                        /* Qwen3, [head_dim] */
	T_FFN_NORM, T_GATE, T_UP, T_DOWN,          /* [hidden], [ffn, hidden] x2, [hidden, ffn] */
	T_ROLES
};

/* The table of architectures, by the name config.json gives as model_type: "llama". */
size_t model_arch_count(void);
const char *model_arch_at(size_t i);

struct model; /* opaque */

/* Opens a model by what the path is. Checks every tensor the architecture needs: present, shape as the config says, type
 * known, inside the file. Refuses other architectures by name with the list of known ones. `path` may be a folder, a .gguf
 * file, or "random:FILE.json[:SEED]". Errors name the file and the tensor. */
int model_open(struct model **out, const char *path, char err[ERR_LEN]);
void model_close(struct model *m); /* NULL is fine */

const struct model_config *model_config(const struct model *m);
/* Weights of all layers' linear maps, and the arithmetic (FLOP) that a causal prefill of n tokens from an empty cache needs, LM head
 * left out: what a perfect kernel computes, the causal half of attention. */
double model_linear_weights(const struct model_config *c);
double model_prefill_flops(const struct model_config *c, double n);
const char *model_path(const struct model *m);
int64_t model_params(const struct model *m);      /* number of weights (tied head counted once) */
int64_t model_file_bytes(const struct model *m);
/* SHA-256 that names these weights: over hyper-parameters and tensor bytes, whatever files they lie in; of a random model over
 * its config and seed (first call reads every tensor; cached in the struct). */
const char *model_sha256(struct model *m);

/* Gives back the memory of what was read of the files so far; it is read again when needed. */
void model_unread(const struct model *m);

/* Rows of a tensor as fp32, row-major, exactly what the file holds (bf16/f16 widened, quants dequantised; GGUF's permuted
 * Q/K rows of llama-arch files put back to the half-split order of Hugging Face). rows [row0, row0+n) into out[n][cols].
 * A vector has 1 row. NaN or Inf in the data is an error that names file, tensor and index. Thread-safe. */
int model_rows(const struct model *m, enum tensor_role role, int layer, int64_t row0, int64_t n, float *out, char err[ERR_LEN]);
/* 0 x 0 for a tensor this architecture does not have. */
void model_shape(const struct model *m, enum tensor_role role, int layer, int64_t *rows, int64_t *cols);
/* A tokenizer with more ids than the embedding has rows does not belong to these weights: -1 with the two numbers. */
int model_check_vocab(const struct model *m, int tokenizer_vocab, char err[ERR_LEN]);

/* Inverse frequencies of the rotary embedding, head_dim/2 values in double, with all scaling applied, and the factor that
 * multiplies cos and sin (YaRN's attention factor; 1 otherwise). As transformers computes them: rounded to fp32 step by step
 * (at position 100,000 that rounding is some 0.005 rad, so a more exact table would be another model's). */
void model_rope(const struct model_config *c, double *inv_freq, double *mscale);

/* GGUF metadata for the tokenizer and chat template (NULL when the model is not GGUF). */
struct gguf;
const struct gguf *model_gguf(const struct model *m);

#endif
