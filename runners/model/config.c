/* config.c: see config.h. Both kinds of source go through the same table of fields and the same checks. */
#include "runners/model/config.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct arch archs[] = {
	{"llama", "LlamaForCausalLM", .gguf_permuted = true},
	{"qwen2", "Qwen2ForCausalLM", .qkv_bias = true},
	{"qwen3", "Qwen3ForCausalLM", .qk_norm = true, .head_dim = 128},
};
enum { N_ARCHS = sizeof archs / sizeof *archs };

const struct arch *arch_find(const char *name)
{
	for (size_t i = 0; name && i < N_ARCHS; i++)
		if (!strcmp(archs[i].name, name) || !strcmp(archs[i].hf_class, name))
			return &archs[i];
	return NULL;
}

size_t model_arch_count(void)
{
	return N_ARCHS;
}

const char *model_arch_at(size_t i)
{
	return archs[i].name;
}

static int refuse_arch(const char *file, const char *name, char err[ERR_LEN])
{
	struct strbuf known = {0};
	for (size_t i = 0; i < N_ARCHS; i++)
		strbuf_printf(&known, "%s%s (%s)", i ? ", " : "", archs[i].name, archs[i].hf_class);
	err_set(err, "%s: architecture %.100s is not supported; known: %s", file, name ? name : "(none named)", known.text);
	strbuf_free(&known);
	return -1;
}

/* ---- One way to ask for a number, whatever the source. Answers: FOUND, ABSENT (or null), BAD (of another kind). ---- */

struct source {
	const char *file;        /* for messages */
	const json_t *json;      /* an object of config.json, or NULL */
	const struct gguf *gguf; /* else */
	const char *arch;        /* prefix of the GGUF keys */
};
enum answer { BAD = -1, ABSENT, FOUND };

static char *gguf_key(const struct source *s, const char *key)
{
	return text_format("%s.%s", s->arch, key);
}

static enum answer source_int(const struct source *s, const char *json_key, const char *key, int64_t *v)
{
	if (s->json) {
		const json_t *x = json_key ? json_object_get(s->json, json_key) : NULL;
		if (json_is_integer(x))
			*v = json_integer_value(x);
		return !x || json_is_null(x) ? ABSENT : json_is_integer(x) ? FOUND : BAD;
	}
	if (!key)
		return ABSENT;
	size_t count;
	char *full = gguf_key(s, key);
	enum answer a = gguf_int(s->gguf, full, v) ? FOUND : gguf_array(s->gguf, full, &count) ? BAD : ABSENT;
	free(full);
	return a;
}

static enum answer source_float(const struct source *s, const char *json_key, const char *key, double *v)
{
	if (s->json) {
		const json_t *x = json_key ? json_object_get(s->json, json_key) : NULL;
		if (json_is_number(x))
			*v = json_number_value(x);
		return !x || json_is_null(x) ? ABSENT : json_is_number(x) ? FOUND : BAD;
	}
	if (!key)
		return ABSENT;
	char *full = gguf_key(s, key);
	enum answer a = gguf_float(s->gguf, full, v) ? FOUND : ABSENT;
	free(full);
	return a;
}

/* A positive number, or `otherwise` where the source has none. The bounds are far outside any use; they keep fp32 finite. */
static int positive(const struct source *s, const char *json_key, const char *key, double otherwise, double *v, char err[ERR_LEN])
{
	*v = otherwise;
	if (source_float(s, json_key, key, v) == BAD || !(*v >= 1e-12 && *v <= 1e12))
		return err_set(err, "%s: %s is missing or not a positive number", s->file, s->json ? json_key : key);
	return 0;
}

/* ---- Sizes ---- */

static const struct field {
	const char *json, *gguf;
	size_t at; /* offset of the int in struct model_config */
	int max;
	bool optional;
} fields[] = {
	{"num_hidden_layers", "block_count", offsetof(struct model_config, layers), 1024, false},
	{"num_attention_heads", "attention.head_count", offsetof(struct model_config, heads), 4096, false},
	{"num_key_value_heads", "attention.head_count_kv", offsetof(struct model_config, kv_heads), 4096, true},
	{"head_dim", "attention.key_length", offsetof(struct model_config, head_dim), 4096, true},
	{"hidden_size", "embedding_length", offsetof(struct model_config, hidden), 1 << 20, false},
	{"intermediate_size", "feed_forward_length", offsetof(struct model_config, ffn), 1 << 22, false},
	{"vocab_size", NULL, offsetof(struct model_config, vocab), 1 << 24, true}, /* GGUF: rows of the embedding */
};

static int read_sizes(struct model_config *c, const struct source *s, char err[ERR_LEN])
{
	for (const struct field *f = fields; f < fields + sizeof fields / sizeof *fields; f++) {
		const char *key = s->json ? f->json : f->gguf;
		int64_t v = 0;
		enum answer a = source_int(s, f->json, f->gguf, &v);
		if (a == ABSENT && f->optional)
			continue;
		if (a != FOUND || v < 1 || v > f->max)
			return err_set(err, "%s: %s is %s, expected 1 to %d", s->file, key,
				a == ABSENT ? "missing" : "out of range", f->max);
		*(int *)((char *)c + f->at) = (int)v;
	}
	return 0;
}

static int finish_sizes(struct model_config *c, const struct arch *arch, const char *file, char err[ERR_LEN])
{
	if (!c->kv_heads)
		c->kv_heads = c->heads;
	if (!c->head_dim && c->hidden % c->heads == 0)
		c->head_dim = c->hidden / c->heads;
	if (c->heads % c->kv_heads)
		return err_set(err, "%s: %d attention heads are no multiple of %d KV heads", file, c->heads, c->kv_heads);
	if (!c->head_dim || c->head_dim % 2)
		return err_set(err, "%s: head_dim %d; it must be even, or hidden %d a multiple of heads %d", file, c->head_dim,
			c->hidden, c->heads);
	if (!c->vocab)
		return err_set(err, "%s: vocab_size is missing", file);
	c->arch = arch->name;
	c->qkv_bias |= arch->qkv_bias;
	c->qk_norm = arch->qk_norm;
	return 0;
}

static int read_positions(struct model_config *c, const struct source *s, char err[ERR_LEN])
{
	if (source_int(s, "max_position_embeddings", "context_length", &c->max_positions) != FOUND || c->max_positions < 1)
		return err_set(err, "%s: max_position_embeddings is missing or out of range", s->file);
	double eps;
	if (positive(s, "rms_norm_eps", "attention.layer_norm_rms_epsilon", s->json ? 1e-6 : 0, &eps, err))
		return -1;
	c->norm_eps = (float)eps;
	return 0;
}

/* ---- Rotary embedding ---- */

static const struct {
	const char *name;
	enum rope_kind kind;
} rope_kinds[] = {
	{"default", ROPE_PLAIN}, {"none", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN}};

static int find_rope_kind(struct rope_config *r, const char *file, const char *name, char err[ERR_LEN])
{
	for (size_t i = 0; i < sizeof rope_kinds / sizeof *rope_kinds; i++)
		if (!strcmp(rope_kinds[i].name, name)) {
			r->kind = rope_kinds[i].kind;
			return 0;
		}
	return err_set(err, "%s: rope type %.60s is not supported; known: default, linear, llama3, yarn", file, name);
}

/* The length that the scaling starts from. transformers: a value outside of the rope object goes before the one in it. */
static int read_original_length(
	struct rope_config *r, const struct source *top, const struct source *s, int64_t max_positions, char err[ERR_LEN])
{
	const struct source *const places[] = {s, top};
	r->original_max_positions = max_positions;
	for (int i = 0; i < 2; i++)
		if (source_int(places[i], "original_max_position_embeddings", "rope.scaling.original_context_length",
			    &r->original_max_positions) == BAD ||
			r->original_max_positions < 1)
			return err_set(err, "%s: the rope scaling's original length is out of range", s->file);
	return 0;
}

/* What the kind needs of the scaling's numbers; s->json is the rope object, top->json what it stands in. r->kind and r->theta are
 * set. */
static int read_scaling(
	struct rope_config *r, const struct source *top, const struct source *s, int64_t max_positions, char err[ERR_LEN])
{
	if (r->kind == ROPE_PLAIN)
		return 0;
	if (read_original_length(r, top, s, max_positions, err))
		return -1;
	/* transformers: YaRN without a factor takes the ratio of the lengths */
	const double ratio = r->kind == ROPE_YARN ? (double)max_positions / (double)r->original_max_positions : 0;
	if (positive(s, "factor", "rope.scaling.factor", ratio, &r->factor, err))
		return -1;
	if (r->kind == ROPE_LLAMA3 && (positive(s, "low_freq_factor", NULL, 0, &r->low_freq_factor, err) ||
					      positive(s, "high_freq_factor", NULL, 0, &r->high_freq_factor, err)))
		return -1;
	if (r->kind == ROPE_YARN && (positive(s, "beta_fast", "rope.scaling.yarn_beta_fast", 32, &r->beta_fast, err) ||
					    positive(s, "beta_slow", "rope.scaling.yarn_beta_slow", 1, &r->beta_slow, err)))
		return -1;
	return 0;
}

static int rope_from_json(struct model_config *c, const char *file, const json_t *root, char err[ERR_LEN])
{
	struct rope_config *r = &c->rope;
	const json_t *scaling = json_object_get(root, "rope_scaling"), *parameters = json_object_get(root, "rope_parameters");
	const json_t *rope = json_object_size(scaling) ? scaling : json_object_size(parameters) ? parameters : NULL;
	const struct source top = {file, .json = root}, s = {file, .json = rope ? rope : root};
	double theta, partial, mscale = 0, mscale_all = 0;
	if (positive(&top, "rope_theta", NULL, 10000, &theta, err) || positive(&s, "rope_theta", NULL, theta, &r->theta, err) ||
		positive(&top, "partial_rotary_factor", NULL, 1, &partial, err) ||
		positive(&s, "partial_rotary_factor", NULL, partial, &partial, err))
		return -1;
	if (r->theta <= 1 || partial != 1)
		return err_set(err, "%s: rope_theta %g with partial_rotary_factor %g is not supported", file, r->theta, partial);
	if (!rope)
		return 0;
	const char *type = json_string_value(json_object_get(rope, "rope_type"));
	type = type ? type : json_string_value(json_object_get(rope, "type"));
	if (find_rope_kind(r, file, type ? type : "default", err) || read_scaling(r, &top, &s, c->max_positions, err))
		return -1;
	if (r->kind == ROPE_LLAMA3 && r->low_freq_factor >= r->high_freq_factor)
		return err_set(err, "%s: llama3 rope scaling with low_freq_factor >= high_freq_factor", file);
	/* YaRN's attention factor: named, or from two mscale values, or (0) the formula's default */
	r->exact_range = json_is_false(json_object_get(rope, "truncate"));
	source_float(&s, "mscale", NULL, &mscale);
	source_float(&s, "mscale_all_dim", NULL, &mscale_all);
	if (mscale > 0 && mscale_all > 0)
		r->attention_factor = yarn_mscale(r->factor, mscale) / yarn_mscale(r->factor, mscale_all);
	source_float(&s, "attention_factor", NULL, &r->attention_factor);
	return 0;
}

static int rope_from_gguf(struct model_config *c, const struct source *s, char err[ERR_LEN])
{
	struct rope_config *r = &c->rope;
	int64_t rotary = c->head_dim;
	struct gguf_text type = {"none", 4};
	char *key = gguf_key(s, "rope.scaling.type");
	gguf_str(s->gguf, key, &type);
	free(key);
	source_int(s, NULL, "rope.dimension_count", &rotary);
	if (rotary != c->head_dim)
		return err_set(err, "%s: rope.dimension_count %lld is not head_dim %d: partial rotation is not supported",
			s->file, (long long)rotary, c->head_dim);
	if (positive(s, NULL, "rope.freq_base", 10000, &r->theta, err))
		return -1;
	if (r->theta <= 1)
		return err_set(err, "%s: rope.freq_base %g", s->file, r->theta);
	char *name = text_format("%.*s", (int)(type.len < 60 ? type.len : 60), type.s);
	int rc = find_rope_kind(r, s->file, name, err) || read_scaling(r, s, s, c->max_positions, err);
	free(name);
	/* GGUF's attn_factor multiplies the formula, where config.json's attention_factor replaces it */
	double scale = 1;
	source_float(s, NULL, "rope.scaling.attn_factor", &scale);
	source_float(s, NULL, "rope.scaling.yarn_attn_factor", &scale);
	if (rc == 0 && r->kind == ROPE_YARN)
		r->attention_factor = scale * yarn_mscale(r->factor, 1);
	return rc ? -1 : 0;
}

/* ---- Ids ---- */

static int add_eos(struct model_config *c, int64_t id, const char *file, char err[ERR_LEN])
{
	for (int i = 0; i < c->n_eos; i++)
		if (c->eos[i] == id)
			return 0;
	if (id < 0 || id >= c->vocab)
		return err_set(err, "%s: EOS id %lld is outside the vocabulary of %d", file, (long long)id, c->vocab);
	if (c->n_eos == MODEL_EOS_MAX)
		return err_set(err, "%s: more than %d EOS ids", file, MODEL_EOS_MAX);
	c->eos[c->n_eos++] = (int32_t)id;
	return 0;
}

static int ids_from_json(struct model_config *c, const char *file, const json_t *root, char err[ERR_LEN])
{
	const json_t *eos = json_object_get(root, "eos_token_id"), *bos = json_object_get(root, "bos_token_id");
	if (json_is_integer(bos) && c->bos < 0 && json_integer_value(bos) >= 0 && json_integer_value(bos) < c->vocab)
		c->bos = (int32_t)json_integer_value(bos);
	if (json_is_integer(eos))
		return add_eos(c, json_integer_value(eos), file, err);
	for (size_t i = 0; i < json_array_size(eos); i++) {
		const json_t *id = json_array_get(eos, i);
		if (add_eos(c, json_is_integer(id) ? json_integer_value(id) : -1, file, err))
			return -1;
	}
	return 0;
}

/* Many files name only one of a chat model's ends, and generation would run past the other. So, as llama.cpp does: besides
 * the ids the metadata names, each *control* token with one of these texts ends an answer. */
static const char *const turn_ends[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>"};
enum { TOKEN_CONTROL = 3 };

static bool ends_turn(struct gguf_text t)
{
	for (size_t i = 0; i < sizeof turn_ends / sizeof *turn_ends; i++)
		if (strlen(turn_ends[i]) == t.len && !memcmp(turn_ends[i], t.s, t.len))
			return true;
	return false;
}

static int ids_from_gguf(struct model_config *c, const struct gguf *g, char err[ERR_LEN])
{
	static const char *const keys[] = {
		"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
	const char *tokens = "tokenizer.ggml.tokens", *types = "tokenizer.ggml.token_type", *file = gguf_name(g);
	struct gguf_text text;
	int64_t id, type;
	size_t n = 0;
	gguf_array(g, tokens, &n);
	if (n > (size_t)c->vocab)
		return err_set(err, "%s: %zu tokens in the vocabulary, but token_embd.weight has %d rows", file, n, c->vocab);
	if (gguf_int(g, "tokenizer.ggml.bos_token_id", &id) && id >= 0 && id < c->vocab)
		c->bos = (int32_t)id;
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (gguf_int(g, keys[i], &id) && add_eos(c, id, file, err))
			return -1;
	for (size_t i = 0; i < n; i++)
		if (gguf_array_int(g, types, i, &type) && type == TOKEN_CONTROL && gguf_array_text(g, tokens, i, &text) &&
			ends_turn(text) && add_eos(c, (int64_t)i, file, err))
			return -1;
	return 0;
}

/* ---- config.json ---- */

/* What is read only where it is of its kind: of another kind it would count as absent, and the answers would be of another model. */
static int check_kinds(const char *file, const json_t *root, char err[ERR_LEN])
{
	static const struct {
		const char *key;
		json_type kind, other;
		const char *wants;
	} known[] = {{"hidden_act", JSON_STRING, JSON_STRING, "text"}, {"layer_types", JSON_ARRAY, JSON_ARRAY, "a list"},
		{"rope_scaling", JSON_OBJECT, JSON_OBJECT, "an object"}, {"rope_parameters", JSON_OBJECT, JSON_OBJECT, "an object"},
		{"tie_word_embeddings", JSON_TRUE, JSON_FALSE, "true or false"}, {"bos_token_id", JSON_INTEGER, JSON_INTEGER, "an id"},
		{"eos_token_id", JSON_INTEGER, JSON_ARRAY, "an id or a list of ids"}};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		const json_t *x = json_object_get(root, known[i].key);
		if (x && !json_is_null(x) && json_typeof(x) != known[i].kind && json_typeof(x) != known[i].other)
			return err_set(err, "%s: %s is not %s", file, known[i].key, known[i].wants);
	}
	return 0;
}

static int load_json(json_t **out, const char *file, const char *text, size_t len, char err[ERR_LEN])
{
	json_error_t e;
	json_t *root = json_loadb(text, len, 0, &e);
	int rc = 0;
	if (!json_is_object(root))
		rc = err_set(err, "%s, line %d: %s", file, root ? 1 : e.line, root ? "not a JSON object" : e.text);
	else
		rc = check_kinds(file, root, err);
	if (rc)
		json_decref(root);
	else
		*out = root;
	return rc;
}

/* Settings that would change the arithmetic and are not implemented: refused when they are set. */
static int refuse_settings(const struct arch *arch, const char *file, const json_t *root, char err[ERR_LEN])
{
	static const char *const off[] = {"use_sliding_window", "mlp_bias", "attention_bias", "quantization_config"};
	for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
		const json_t *x = json_object_get(root, off[i]);
		if (!strcmp(off[i], "attention_bias") && arch->qkv_bias) /* Qwen2 has its biases whatever this says */
			continue;
		if (x && !json_is_null(x) && !json_is_false(x))
			return err_set(err, "%s: %s is set, which is not supported", file, off[i]);
	}
	const char *act = json_string_value(json_object_get(root, "hidden_act"));
	if (act && strcmp(act, "silu"))
		return err_set(err, "%s: hidden_act %.60s is not supported, only silu", file, act);
	const json_t *layers = json_object_get(root, "layer_types");
	for (size_t i = 0; i < json_array_size(layers); i++) {
		const char *type = json_string_value(json_array_get(layers, i));
		if (!type || strcmp(type, "full_attention"))
			return err_set(err, "%s: layer %zu has %.60s, only full_attention is supported", file, i,
				type ? type : "no type");
	}
	return 0;
}

static int fill_from_json(struct model_config *c, const char *file, const json_t *root, char err[ERR_LEN])
{
	const json_t *first = json_array_get(json_object_get(root, "architectures"), 0);
	const char *name = json_string_value(first ? first : json_object_get(root, "model_type"));
	const struct arch *arch = arch_find(name);
	const struct source s = {file, .json = root};
	if (!arch)
		return refuse_arch(file, name, err);
	if (refuse_settings(arch, file, root, err) || read_sizes(c, &s, err))
		return -1;
	if (!c->head_dim)
		c->head_dim = arch->head_dim;
	c->tied = json_is_true(json_object_get(root, "tie_word_embeddings"));
	if (finish_sizes(c, arch, file, err) || read_positions(c, &s, err) || rope_from_json(c, file, root, err))
		return -1;
	return ids_from_json(c, file, root, err);
}

int config_from_json(struct model_config *c, const char *file, const char *text, size_t len, char err[ERR_LEN])
{
	json_t *root;
	if (load_json(&root, file, text, len, err))
		return -1;
	*c = (struct model_config){.bos = -1};
	int rc = fill_from_json(c, file, root, err);
	json_decref(root);
	return rc;
}

int config_join_generation(struct model_config *c, const char *file, const char *text, size_t len, char err[ERR_LEN])
{
	json_t *root;
	if (load_json(&root, file, text, len, err))
		return -1;
	int rc = ids_from_json(c, file, root, err);
	json_decref(root);
	return rc;
}

/* ---- GGUF ---- */

int config_from_gguf(struct model_config *c, const struct gguf *g, char err[ERR_LEN])
{
	const char *file = gguf_name(g);
	struct gguf_text name = {0};
	gguf_str(g, "general.architecture", &name);
	char *arch_name = text_format("%.*s", (int)(name.len < 60 ? name.len : 60), name.s ? name.s : "");
	const struct arch *arch = arch_find(arch_name);
	if (!arch)
		refuse_arch(file, arch_name, err);
	free(arch_name);
	if (!arch)
		return -1;
	const struct gguf_tensor *embed = gguf_find(g, "token_embd.weight");
	if (!embed || embed->dims[1] > 1 << 24)
		return err_set(err, "%s: tensor token_embd.weight is %s", file, embed ? "too long" : "missing");
	const struct source s = {file, .gguf = g, .arch = arch->name};
	int64_t value_length, window = 0;
	*c = (struct model_config){.vocab = (int)embed->dims[1], .bos = -1};
	c->tied = !gguf_find(g, "output.weight");
	c->qkv_bias = gguf_find(g, "blk.0.attn_q.bias") != NULL; /* some llama files have it */
	if (gguf_find(g, "blk.0.attn_output.bias"))
		return err_set(err, "%s: tensor blk.0.attn_output.bias is not supported", file);
	if (read_sizes(c, &s, err) || finish_sizes(c, arch, file, err) || read_positions(c, &s, err) ||
		rope_from_gguf(c, &s, err))
		return -1;
	if (source_int(&s, NULL, "attention.value_length", &value_length) == FOUND && value_length != c->head_dim)
		return err_set(err, "%s: keys of %d and values of %lld dimensions are not supported", file, c->head_dim,
			(long long)value_length);
	if (source_int(&s, NULL, "attention.sliding_window", &window) == FOUND && window > 0)
		return err_set(err, "%s: sliding-window attention is not supported", file);
	return ids_from_gguf(c, g, err);
}
