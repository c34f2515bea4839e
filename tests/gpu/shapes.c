/* shapes.c: see shapes.h. Stands in the place of runners/model. Values are uniform, of a width that keeps activations finite. */
#include "tests/gpu/shapes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct model {
	struct model_config c;
	const char *name;
};

#define LLAMA3 {.kind = ROPE_LLAMA3, .theta = 500000, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_positions = 8192}
#define QWEN {.kind = ROPE_PLAIN, .theta = 1000000}
static const struct model shapes[] = {
	{{.arch = "llama", .layers = 32, .heads = 32, .kv_heads = 8, .head_dim = 128, .hidden = 4096, .ffn = 14336, .vocab = 128256, .rope = LLAMA3},
		"llama-8b"},
	{{.arch = "llama", .layers = 16, .heads = 32, .kv_heads = 8, .head_dim = 64, .hidden = 2048, .ffn = 8192, .vocab = 128256, .tied = true,
		 .rope = LLAMA3},
		"llama-1b"},
	{{.arch = "qwen2", .layers = 28, .heads = 28, .kv_heads = 4, .head_dim = 128, .hidden = 3584, .ffn = 18944, .vocab = 152064, .qkv_bias = true,
		 .rope = QWEN},
		"qwen-7b"},
	{{.arch = "qwen2", .layers = 24, .heads = 14, .kv_heads = 2, .head_dim = 64, .hidden = 896, .ffn = 4864, .vocab = 151936, .tied = true,
		 .qkv_bias = true, .rope = QWEN},
		"qwen-0.5b"},
	{{.arch = "llama", .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 32, .hidden = 64, .ffn = 96, .vocab = 320, .rope = LLAMA3}, "tiny"},
	{{.arch = "llama", .layers = 2, .heads = 2, .kv_heads = 1, .head_dim = 16, .hidden = 32, .ffn = 64, .vocab = 320, .tied = true, .rope = LLAMA3},
		"tiny-proxy"},
};

struct model *shape_open(const char *name)
{
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		if (!strcmp(shapes[i].name, name)) {
			struct model *m = mem_new(1, sizeof *m);
			*m = shapes[i];
			m->c.norm_eps = 1e-5f;
			m->c.max_positions = 1 << 18;
			return m;
		}
	return NULL;
}

void shape_close(struct model *m)
{
	free(m);
}

double shape_linear_params(const struct model_config *c)
{
	double hd = (double)c->heads * c->head_dim, kd = (double)c->kv_heads * c->head_dim;
	return c->layers * (double)c->hidden * (2 * hd + 2 * kd + 3.0 * c->ffn);
}

const struct model_config *model_config(const struct model *m)
{
	return &m->c;
}
const char *model_path(const struct model *m)
{
	return m->name;
}
void model_unread(const struct model *m) /* there is no file */
{
	(void)m;
}

void model_shape(const struct model *m, enum tensor_role role, int layer, int64_t *rows, int64_t *cols)
{
	const struct model_config *c = &m->c;
	int64_t q = (int64_t)c->heads * c->head_dim, k = (int64_t)c->kv_heads * c->head_dim, d = c->hidden, f = c->ffn;
	const int64_t shape[T_ROLES][2] = {[T_EMBED] = {c->vocab, d},
		[T_FINAL_NORM] = {1, d},
		[T_LM_HEAD] = {c->vocab, d},
		[T_ATTN_NORM] = {1, d},
		[T_Q] = {q, d},
		[T_K] = {k, d},
		[T_V] = {k, d},
		[T_O] = {d, q},
		[T_Q_BIAS] = {c->qkv_bias, q},
		[T_K_BIAS] = {c->qkv_bias, k},
		[T_V_BIAS] = {c->qkv_bias, k},
		[T_Q_NORM] = {c->qk_norm, c->head_dim},
		[T_K_NORM] = {c->qk_norm, c->head_dim},
		[T_FFN_NORM] = {1, d},
		[T_GATE] = {f, d},
		[T_UP] = {f, d},
		[T_DOWN] = {d, f}};
	(void)layer;
	*rows = shape[role][0];
	*cols = shape[role][1];
}

int model_rows(const struct model *m, enum tensor_role role, int layer, int64_t row0, int64_t n, float *out, char err[ERR_LEN])
{
	int64_t rows, cols;
	bool norm = role == T_FINAL_NORM || role == T_ATTN_NORM || role == T_FFN_NORM || role == T_Q_NORM || role == T_K_NORM;
	(void)err;
	model_shape(m, role, layer, &rows, &cols);
	float width = sqrtf(3.0f / (float)cols), base = norm ? 1 : 0;
	for (int64_t r = 0; r < n; r++) {
		uint64_t x = (uint64_t)(row0 + r + 1) * 0x9e3779b97f4a7c15u ^ ((uint64_t)role << 32 | (uint64_t)layer << 40);
		for (int64_t i = 0; i < cols; i++) { /* xorshift: cheap, eight thousand million of them are wanted */
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			float u = (float)(int32_t)(x >> 32) * 0x1p-31f;
			out[r * cols + i] = norm ? base + 0.1f * u : width * u;
		}
	}
	return 0;
}
