/* runner.c: opens a target with its tokenizer, template, device and packed weights; describes it. See runner.h. */
#include "runners/runner_impl.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* <folder of the executable>/runners/model: where the embedded models lie. Caller frees. */
static char *models_beside_executable(void)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	if (n < 0)
		return text_copy("runners/model");
	exe[n] = 0;
	return text_format("%s/runners/model", dirname(exe));
}

/* A file as it is, or a name under the models folder, beside the executable or below the working folder. Caller frees. */
static char *file_find(const char *name, const char *models_dir)
{
	if (file_exists(name))
		return text_copy(name);
	char *folder[2] = {models_dir ? text_copy(models_dir) : models_beside_executable(), text_copy("runners/model")}, *found = NULL;
	for (int i = 0; i < 2; i++) {
		char *path = text_format("%s/%s", folder[i], name);
		if (!found && file_exists(path))
			found = text_copy(path);
		free(path);
		free(folder[i]);
	}
	return found ? found : text_copy(name);
}

/* The same for "random:CONFIG.json[:SEED]", whose CONFIG may be a name ("configs/SmolLM2-135M.json"). Caller frees. */
static char *model_find(const char *name, const char *models_dir)
{
	if (strncmp(name, "random:", 7))
		return file_find(name, models_dir);
	const char *seed = strstr(name, ".json:");
	char *config = seed ? text_format("%.*s", (int)(seed + 5 - name - 7), name + 7) : text_copy(name + 7);
	char *file = file_find(config, models_dir), *path = text_format("random:%s%s", file, seed ? seed + 5 : "");
	free(config);
	free(file);
	return path;
}

/* The tokenizer of a model: tokenizer.json beside it, or GGUF metadata. NULL and 0 for random: weights. */
static int tokenizer_open_for(struct tokenizer **out, const char *path, const struct model *m, char err[ERR_LEN])
{
	*out = NULL;
	if (!strncmp(path, "random:", 7))
		return 0;
	if (model_gguf(m))
		return tokenizer_open_gguf(out, model_gguf(m), err);
	char *file = text_format("%s/tokenizer.json", path);
	int rc = tokenizer_open_json(out, file, err);
	free(file);
	return rc;
}

/* The template asked for by name, else the one whose hash the model's own text has. */
static int chat_choose(struct runner *r, const char *name, char err[ERR_LEN])
{
	char *text = NULL;
	int rc = 0;
	if (r->tokenizer && chat_read(r->path, model_gguf(r->model), &text, err))
		return -1;
	if (text)
		sha256_hex(text, strlen(text), r->template_sha256);
	r->chat = name ? chat_named(name) : text ? chat_find(text) : chat_named("raw");
	if (!r->chat)
		rc = err_set(err, "%s: its chat template (sha256 %.16s...) is not known; choose one with --template NAME (kvbench list templates), or raw",
			r->path, r->template_sha256);
	free(text);
	return rc;
}

/* A pair is one only when both read text as the same ids: compared by content, not by the rows of the embedding. */
static int pair_check(const struct runner *r, const struct tokenizer *t, char err[ERR_LEN])
{
	if (t && r->tokenizer && !strcmp(tokenizer_sha256(t), tokenizer_sha256(r->tokenizer)))
		return 0;
	return err_set(err, "%s and %s are no pair: their tokenizers differ", r->path, r->proxy_path);
}

/* After the target and its device. In turn the proxy has as many threads as the target; overlapped, some of the target's. */
static int proxy_start(struct runner *r, const struct runner_options *o, char err[ERR_LEN])
{
	struct model *m = NULL;
	struct tokenizer *t = NULL;
	int threads = device_threads(r->device), own = o->proxy_threads;
	r->proxy_path = model_find(o->proxy, o->models_dir);
	if (own < 0 || own >= threads)
		return err_set(err, "%d of %d threads for the proxy: the target needs one at least", own, threads);
	const char *device = o->proxy_device ? o->proxy_device : o->device ? o->device : "auto";
	r->proxy_place = strcmp(device, o->device ? o->device : "auto") ? device : NULL;
	struct device_options d = {.name = device, .precision = o->precision ? o->precision : "bf16", .isa = o->isa, .threads = own ? own : threads,
		.memory_bytes = r->info.memory_limit_bytes, .attention = strcmp(device, "cpu") ? o->attention : NULL, .kv_offload = o->kv_offload,
		.low_priority = true};
	int rc = model_open(&m, r->proxy_path, err) || tokenizer_open_for(&t, r->proxy_path, m, err) || pair_check(r, t, err) ? -1 : 0;
	tokenizer_close(t);
	if (rc)
		model_close(m);
	if (rc || proxy_open(&r->proxy, m, &d, own > 0, device_pass_rows(r->device), err))
		return -1;
	r->proxy->max_tokens = o->allow_long ? 0 : model_config(m)->max_positions;
	return 0;
}

/* "tiny-pair/target" says more than "target". */
static void name_of(const char *path, const struct model *m, char out[128])
{
	char *copy = text_copy(path), *slash = strrchr(copy, '/');
	const char *parent = NULL;
	if (slash) {
		*slash = 0;
		parent = strrchr(copy, '/') ? strrchr(copy, '/') + 1 : copy;
	}
	if (slash && !model_gguf(m) && strncmp(path, "random:", 7))
		snprintf(out, 128, "%s/%s", parent, slash + 1);
	else
		snprintf(out, 128, "%s", slash ? slash + 1 : copy);
	free(copy);
}

static void info_fill_proxy(struct runner *r)
{
	struct runner_info *i = &r->info;
	i->proxy_path = r->proxy_path;
	i->proxy_sha256 = i->proxy_arch = "";
	if (!r->proxy)
		return;
	const struct model_config *c = model_config(r->proxy->model);
	const struct device *d = r->proxy->device ? r->proxy->device : r->device;
	name_of(r->proxy_path, r->proxy->model, i->proxy_name);
	i->proxy_sha256 = model_sha256(r->proxy->model);
	i->proxy_arch = c->arch;
	i->proxy_params = model_params(r->proxy->model);
	i->proxy_weight_bytes = forward_weight_bytes(c, d);
	i->proxy_kv_bytes_per_token = kv_bytes_for(d, c->head_dim, (int64_t)c->layers * c->kv_heads);
	i->proxy_layers = c->layers;
	i->proxy_heads = c->heads;
	i->proxy_kv_heads = c->kv_heads;
	i->proxy_head_dim = c->head_dim;
	i->proxy_threads = r->proxy->threads;
}

/* A proxy whose device was lost before it was opened has the place that was wished for. */
static const char *proxy_place(const struct runner *r)
{
	if (!r->proxy)
		return NULL;
	return r->proxy->device ? device_name(r->proxy->device) : r->proxy_place ? r->proxy_place : device_name(r->device);
}

static void topology_fill(struct runner *r)
{
	const char *target = device_name(r->device), *proxy = proxy_place(r);
	bool on_gpu = strcmp(target, "cpu"), proxy_on_gpu = proxy && strcmp(proxy, "cpu");
	const char *plain = on_gpu && proxy_on_gpu ? strcmp(target, proxy) ? "dual" : "shared"
			    : on_gpu		   ? proxy ? "proxy-cpu" : "gpu"
						   : proxy_on_gpu ? "proxy-gpu" : "cpu";
	bool emulated = !strncmp(target, "emulated", 8) || (proxy && !strncmp(proxy, "emulated", 8));
	bool offloads = device_offloads(r->device) || (r->proxy && r->proxy->device && device_offloads(r->proxy->device));
	snprintf(r->info.topology, sizeof r->info.topology, "%s%s%s%s", emulated ? "emulated-" : "", plain, offloads ? "+offload" : "",
		strcmp(device_attention(r->device), "own") ? "+cudnn" : "");
}

static void info_fill(struct runner *r)
{
	const struct model_config *c = model_config(r->model);
	struct runner_info *i = &r->info;
	name_of(r->path, r->model, i->name);
	i->path = r->path;
	i->arch = c->arch;
	i->dtype = device_is_bf16(r->device) ? "bf16" : "fp32";
	i->chat_template = chat_name(r->chat);
	i->device = device_name(r->device);
	i->isa = device_isa(r->device);
	snprintf(i->isa_why, sizeof i->isa_why, "%s", device_isa_why(r->device));
	i->model_sha256 = model_sha256(r->model);
	i->tokenizer_sha256 = r->tokenizer ? tokenizer_sha256(r->tokenizer) : "";
	i->template_sha256 = r->template_sha256;
	i->params = model_params(r->model);
	i->weight_bytes = forward_weight_bytes(c, r->device);
	i->kv_bytes_per_token = kv_bytes_for(r->device, c->head_dim, (int64_t)c->layers * c->kv_heads);
	i->max_positions = c->max_positions;
	i->layers = c->layers;
	i->heads = c->heads;
	i->kv_heads = c->kv_heads;
	i->head_dim = c->head_dim;
	i->hidden = c->hidden;
	i->vocab = c->vocab;
	i->threads = device_threads(r->device);
	i->trained_folder = r->calibration_folder;
	info_fill_proxy(r);
	topology_fill(r);
}

char *calibration_default(void)
{
	const char *own = getenv("KVBENCH_CALIBRATION"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	if (own)
		return text_copy(own);
	return cache ? text_format("%s/kvbench", cache) : text_format("%s/.cache/kvbench", home ? home : ".");
}

static int device_start(struct runner *r, const struct runner_options *o, char err[ERR_LEN])
{
	struct device_options d = {.name = o->device ? o->device : "auto", .precision = o->precision ? o->precision : "bf16", .isa = o->isa,
		.threads = o->threads, .memory_bytes = o->memory_bytes, .attention = o->attention, .kv_offload = o->kv_offload};
	if (device_open(&r->device, &d, err))
		return -1;
	int64_t gpu = device_free_bytes(r->device); /* -1 = the device's memory is the host's */
	r->info.memory_limit_bytes = o->memory_bytes ? o->memory_bytes : gpu >= 0 ? gpu : machine_memory_free();
	device_limit(r->device, r->info.memory_limit_bytes);
	const struct model_config *c = model_config(r->model);
	int64_t need = forward_weight_bytes(c, r->device) + forward_scratch_bytes(c, r->device, device_pass_rows(r->device));
	if (need > r->info.memory_limit_bytes)
		return err_set(err, "%s needs %lld bytes for weights and scratch; the limit is %lld (--memory)", r->path, (long long)need,
			(long long)r->info.memory_limit_bytes);
	device_reserve(r->device, need);
	return 0;
}

/* What the pair is called, after one of its devices was lost. -1: that cannot be said. */
static int names_fill(struct runner *r, const struct runner_options *o)
{
	char ignored[ERR_LEN];
	if (o->proxy && !r->proxy)
		proxy_start(r, o, ignored);
	if (o->proxy && !r->proxy)
		return -1;
	info_fill(r);
	return 0;
}

int runner_names_check(const struct runner_options *o, char err[ERR_LEN])
{
	struct device_options target = {.name = o->device, .precision = o->precision, .isa = o->isa, .threads = o->threads, .attention = o->attention},
			      proxy = {.name = o->proxy_device};
	if (device_names_check(&target, err) || device_names_check(&proxy, err))
		return -1;
	return !o->chat_template || chat_named(o->chat_template)
		       ? 0
		       : err_set(err, "no chat template is called '%s' (kvbench list templates)", o->chat_template);
}

int runner_open(struct runner **out, const struct runner_options *o, char err[ERR_LEN])
{
	struct runner *r = mem_new(1, sizeof *r);
	r->path = model_find(o->target, o->models_dir);
	r->allow_long = o->allow_long;
	r->weights = trained_store_new();
	r->calibration_folder = o->weights_dir ? text_copy(o->weights_dir) : calibration_default();
	if (runner_names_check(o, err) || model_open(&r->model, r->path, err) || tokenizer_open_for(&r->tokenizer, r->path, r->model, err) ||
		chat_choose(r, o->chat_template, err))
		goto fail;
	if (r->tokenizer && model_check_vocab(r->model, tokenizer_vocab(r->tokenizer), err))
		goto fail;
	if (device_start(r, o, err) || forward_open(&r->forward, r->model, r->device, device_pass_rows(r->device), err) || (o->proxy && proxy_start(r, o, err)))
		goto fail;
	info_fill(r);
	*out = r;
	return 0;
fail:
	if (o->names_if_lost && runner_lost(r) && !names_fill(r, o)) {
		*out = r;
		return -1;
	}
	runner_close(r);
	return -1;
}

void runner_close(struct runner *r)
{
	if (!r)
		return;
	spans_free(r);
	trained_store_free(r->weights);
	proxy_close(r->proxy);
	forward_close(r->forward);
	device_close(r->device);
	tokenizer_close(r->tokenizer);
	model_close(r->model);
	free(r->path);
	free(r->proxy_path);
	free(r->calibration_folder);
	free(r);
}

const char *runner_lost(const struct runner *r)
{
	const char *lost = r->device ? device_lost(r->device) : NULL;
	return lost || !r->proxy || !r->proxy->device ? lost : device_lost(r->proxy->device);
}

const struct runner_info *runner_info(const struct runner *r)
{
	return &r->info;
}

struct runner_counters runner_counters(const struct runner *r)
{
	return r->counters;
}

struct runner_overhead runner_overhead(struct runner *r, bool chat, const char *system)
{
	struct runner_overhead o = {0};
	struct chat_ids c = {0};
	char err[ERR_LEN];
	const struct chat_template *t = chat ? r->chat : chat_named("raw");
	if (r->tokenizer && !chat_encode(t, r->tokenizer, system, "", "", "", &c, err)) {
		o.head = (int)c.prefix.n;
		o.tail = (int)c.question.n;
		o.special = tokenizer_bos(r->tokenizer) >= 0;
	}
	chat_ids_free(&c);
	return o;
}

int64_t runner_count_tokens(struct runner *r, const char *text, size_t len)
{
	struct ids ids = {0};
	char err[ERR_LEN];
	int rc = r->tokenizer ? tokenizer_encode(r->tokenizer, text, len, false, &ids, err) : -1;
	int64_t n = rc ? -1 : (int64_t)ids.n;
	ids_free(&ids);
	return n;
}

/* Steps back to the start of a character. */
static size_t char_start(const char *text, size_t at)
{
	while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
		at--;
	return at;
}

/* Do the ids spell the text? Then *bytes is what the first n of them do. Not where NFC changed it or bytes have no token. */
static bool bytes_of_ids(const struct tokenizer *t, const struct ids *ids, const char *text, size_t len, int64_t n, size_t *bytes)
{
	struct strbuf b = {0};
	tokenizer_decode(t, ids->v, (size_t)n, false, &b);
	*bytes = b.len;
	tokenizer_decode(t, ids->v + n, ids->n - (size_t)n, false, &b);
	bool spelled = b.len == len && memcmp(b.text, text, len) == 0;
	strbuf_free(&b);
	return spelled;
}

/* The longest prefix, cut at a character, that has n tokens by itself, as a search finds it. */
static size_t cut_by_count(struct runner *r, const char *text, size_t len, int64_t n)
{
	size_t lo = 0, hi = len; /* lo fits, hi does not */
	while (hi - lo > 1) {
		size_t mid = char_start(text, lo + (hi - lo) / 2);
		if (mid <= lo)
			break;
		if (runner_count_tokens(r, text, mid) <= n)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

size_t runner_cut_tokens(struct runner *r, const char *text, size_t len, int64_t n)
{
	struct ids ids = {0};
	char err[ERR_LEN];
	size_t bytes = len;
	n = n > 0 ? n : 0;
	if (r->tokenizer && !tokenizer_encode(r->tokenizer, text, len, false, &ids, err) && (int64_t)ids.n > n &&
		!bytes_of_ids(r->tokenizer, &ids, text, len, n, &bytes))
		bytes = cut_by_count(r, text, len, n);
	ids_free(&ids);
	return bytes;
}

int64_t scorer_bytes(const struct scorer *sc, const struct scoring *s)
{
	int64_t scores = s->shape.count * s->layers * s->kv_heads * (int64_t)sizeof(float);
	return scores + (sc && sc->device_bytes ? sc->device_bytes(s) : scores);
}

/* What a scorer asks of the proxy is asked of `pass`; one that refuses tells it when it is run. */
static int64_t variant_bytes(const struct runner *r, const struct plan_method *m, int64_t tokens, struct proxy_pass *pass)
{
	static const struct repeat_prompt repeat;
	struct scoring s = {.forward = r->forward, .shape = {.context = tokens, .count = tokens}, .params = m->params, .repeat = &repeat,
		.model_sha256 = r->info.model_sha256, .proxy_sha256 = r->info.proxy_sha256, .context_sha256 = "", .proxy = pass,
		.calibration_folder = r->calibration_folder, .weights = r->weights, .layers = r->info.layers, .kv_heads = r->info.kv_heads};
	char err[ERR_LEN];
	if (pass && m->scorer && m->scorer->needs_proxy) {
		m->scorer->begin(&s, err);
		m->scorer->end(&s);
	}
	return scorer_bytes(m->scorer, &s);
}

/* Of all scorers that the variants need: those with equal scorers and parameters share one. Unknown names count as one each. */
static int64_t scorers_bytes(const struct runner *r, int64_t tokens, const struct runner_variant *variants, int n, int64_t *proxy_bytes)
{
	struct plan_method *m = mem_new((size_t)n, sizeof *m);
	struct proxy_pass *pass = r->proxy ? proxy_pass_new(r->proxy, NULL, tokens, 0, tokens) : NULL;
	int64_t bytes = 0;
	char err[ERR_LEN];
	for (int v = 0; v < n; v++) {
		bool shared = method_resolve(&m[v], variants[v].method, variants[v].options, err) == 0 && !m[v].scorer;
		for (int u = 0; u < v && !shared; u++)
			shared = m[v].scorer && m[u].scorer && method_same_scores(&m[u], &m[v]);
		bytes += shared ? 0 : variant_bytes(r, &m[v], tokens, pass);
	}
	*proxy_bytes = pass ? proxy_pass_bytes(pass) : 0;
	proxy_pass_free(pass);
	for (int v = 0; v < n; v++)
		method_free(&m[v]);
	free(m);
	return bytes;
}

struct runner_estimate runner_estimate(const struct runner *r, int64_t tokens, const struct runner_variant *variants, int n_variants, int n_questions,
	int max_new)
{
	const struct runner_info *i = &r->info;
	int64_t heads = (int64_t)i->layers * i->kv_heads, rows = tokens * heads;
	double kept = 0;
	for (int v = 0; v < n_variants; v++)
		kept += variants[v].retained < 1 ? variants[v].retained : 0;
	int64_t proxy_bytes, scores_bytes = scorers_bytes(r, tokens, variants, n_variants, &proxy_bytes);
	struct runner_estimate e = {.weights_bytes = i->weight_bytes,
		.kv_bytes = kv_bytes_for(r->device, i->head_dim, rows),
		.scratch_bytes = forward_scratch_bytes(model_config(r->model), r->device, device_pass_rows(r->device)),
		.scores_bytes = scores_bytes,
		.variants_bytes = (int64_t)((double)rows * (double)sizeof(int32_t) * kept) +
				  kv_bytes_for(r->device, i->head_dim, (max_new + 32) * heads) * n_variants * n_questions,
		.proxy_bytes = r->proxy ? i->proxy_weight_bytes + forward_scratch_bytes(model_config(r->proxy->model), r->proxy->device, device_pass_rows(r->proxy->device)) +
						  proxy_bytes : 0,
		.limit_bytes = i->memory_limit_bytes};
	e.total_bytes = e.weights_bytes + kv_device_bytes_for(r->device, i->layers, i->kv_heads, i->head_dim, tokens) + e.scratch_bytes + e.scores_bytes + e.variants_bytes + e.proxy_bytes;
	return e;
}

int64_t runner_bytes(const struct runner *r)
{
	return device_bytes(r->device) + (r->proxy ? device_bytes(r->proxy->device) : 0);
}

int64_t runner_free_bytes(const struct runner *r)
{
	int64_t left = r->info.memory_limit_bytes - runner_bytes(r), there = device_free_bytes(r->device);
	left = there >= 0 && there < left ? there : left;
	return left > 0 ? left : 0;
}

int64_t runner_peak_bytes(const struct runner *r)
{
	int64_t now = device_peak_bytes(r->device) + (r->proxy ? device_peak_bytes(r->proxy->device) : 0);
	return now > r->peak_bytes ? now : r->peak_bytes;
}
