/* mapper_collect.c: what a mapper is trained on: one context's feature sums X and its oracle Y, KVzip's scores on the target
 * (spec/proxykv-lkv.md 1.4), as a shard.
 *
 * One prefill of the target, KVzip's second pass and, for pairs, one prefill of the proxy, whatever number of feature kinds is
 * asked for. The oracle is the same scorer that `kvzip` runs, with the same defaults. A context that judges gets a second one, in
 * chunks half as long as itself: no mapper can be expected to agree with the oracle more than the oracle does with itself. */
#include "runners/mapper/mapper.h"
#include "runners/methods/parts.h"
#include "runners/runner_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = SHARD_FEATURES / 2 };

/* One context while it is collected. */
struct collecting {
	struct runner *r;
	const struct runner_collect *c;
	struct prompt prompt;
	char sha256[SHA_LEN];
	bool proxy, self; /* whose features are wanted */
	struct feature_spec spec[KINDS];
	int n_specs;
	struct features *own[KINDS]; /* the target's, during its prefill */
	struct proxy_pass *pass; /* the proxy's run */
	int want[KINDS];         /* its number for each specification */
	struct kv *kv;
	float *oracle, *again;
	struct shard shard;
	float *sums[SHARD_FEATURES]; /* owned; shard.feature[].x point here */
};

static int specs_parse(struct collecting *k, char err[ERR_LEN])
{
	char *list = text_copy(k->c->features ? k->c->features : "all"), *rest = list, *one;
	int rc = 0;
	while (!rc && (k->proxy || k->self) && (one = strsep(&rest, ","))) {
		if (k->n_specs == KINDS)
			rc = err_set(err, "more than %d kinds of features", KINDS);
		else
			rc = feature_spec_parse(&k->spec[k->n_specs++], one, 0, "query", err);
	}
	free(list);
	return rc;
}

static void feature_name(const struct feature_spec *s, bool self, char out[32])
{
	struct mapper_config c;
	mapper_defaults(&c);
	c.source = self ? MAPPER_SOURCE_SELF : MAPPER_SOURCE_MODEL;
	c.queries = (int)s->queries;
	c.query_n = s->step;
	mapper_feature_name(&c, out);
}

static void pair_of(const struct runner *r, bool proxy, struct mapper_pair *p)
{
	const struct runner_info *i = &r->info;
	snprintf(p->target_sha256, SHA_LEN, "%s", i->model_sha256);
	snprintf(p->proxy_sha256, SHA_LEN, "%s", proxy ? i->proxy_sha256 : i->model_sha256);
	snprintf(p->tokenizer_sha256, SHA_LEN, "%s", i->tokenizer_sha256);
	snprintf(p->target, sizeof p->target, "%s", i->name);
	snprintf(p->proxy, sizeof p->proxy, "%s", proxy ? i->proxy_name : i->name);
}

static char *shard_path(const struct collecting *k)
{
	return text_format("%s/%.16s.safetensors", k->c->folder, k->sha256);
}

static bool judges(const struct collecting *k)
{
	return !strcmp(k->c->split, "eval");
}

static void settings_of(const struct runner *r, char out[64])
{
	snprintf(out, 64, "%s, %s", r->info.dtype, r->info.chat_template);
}

/* Is a shard there that has all of it, for these models, settings and this split? One that does not say its settings is taken. */
static bool is_present(const struct collecting *k)
{
	struct shard s;
	struct mapper_pair pair;
	char err[ERR_LEN], name[32], settings[64], *path = shard_path(k);
	bool present = file_exists(path) && !shard_open(&s, path, err);
	free(path);
	if (!present)
		return false;
	pair_of(k->r, k->proxy, &pair);
	settings_of(k->r, settings);
	present = (!*s.settings || !strcmp(s.settings, settings)) && !strcmp(s.pair.target_sha256, pair.target_sha256) && (!judges(k) || shard_has_again(&s)) &&
		  (!k->proxy || !strcmp(s.pair.proxy_sha256, pair.proxy_sha256)) && !strcmp(s.split, k->c->split);
	for (int i = 0; i < 2 * k->n_specs && present; i++) {
		bool self = i % 2, found = false;
		if (self ? !k->self : !k->proxy)
			continue;
		feature_name(&k->spec[i / 2], self, name);
		for (int f = 0; f < s.n_features; f++)
			found = found || !strcmp(s.feature[f].name, name);
		present = found;
	}
	shard_close(&s);
	return present;
}

/* Takes sums [layers][heads][n] into the shard; owns them. */
static void add_feature(struct collecting *k, const struct feature_spec *spec, bool self, int layers, int heads, float *sums)
{
	struct shard_feature *f = &k->shard.feature[k->shard.n_features];
	feature_name(spec, self, f->name);
	f->layers = layers;
	f->heads = heads;
	f->x = k->sums[k->shard.n_features++] = sums;
}

/* ---- the target: prefill with its own features, then the oracle ---- */

static int target_prefill(struct collecting *k, char err[ERR_LEN])
{
	struct runner *r = k->r;
	const struct runner_job *job = k->c->job;
	struct observer obs[KINDS];
	int n = k->self ? k->n_specs : 0;
	if (!(k->kv = cache_new(r, (int64_t)k->prompt.ids.n)))
		return err_set(err, "a context of %zu tokens: %s", k->prompt.ids.n, device_error(r->device));
	for (int i = 0; i < n; i++) {
		if (!(k->own[i] = features_new(r->forward, &k->spec[i], k->prompt.prefix, k->prompt.context, err)))
			return -1;
		obs[i] = features_observer(k->own[i]);
	}
	int rc = forward_prefill(
		r->forward, k->prompt.ids.v, (int64_t)k->prompt.ids.n, k->kv, obs, n, NULL, NULL, job->stop, job->user, err);
	r->counters.prefills++;
	r->counters.prefill_tokens += (int64_t)k->prompt.ids.n;
	for (int i = 0; i < n && !rc; i++) {
		float *sums = malloc(((size_t)features_floats(k->own[i]) + 1) * sizeof *sums);
		if (!sums)
			return err_set(err, "out of memory: feature sums");
		add_feature(k, &k->spec[i], true, r->info.layers, r->info.heads, sums);
		rc = features_take(k->own[i], sums, err);
	}
	return rc;
}

/* Scores [layers][kv_heads][context] into *scores, which collecting_free() frees. options: KVzip's, NULL = defaults. */
static int target_oracle(struct collecting *k, const char *options, float **scores, char err[ERR_LEN])
{
	struct runner *r = k->r;
	struct repeat_ids store = {0};
	struct repeat_prompt repeat;
	struct plan_method kvzip = {0};
	size_t n = (size_t)r->info.layers * (size_t)r->info.kv_heads * (size_t)k->prompt.context;
	int rc = -1;
	if (!(*scores = calloc(n + 1, sizeof **scores)))
		return err_set(err, "out of memory: %zu scores", n);
	if (method_resolve(&kvzip, "kvzip", options, err) || prompt_repeat(r, k->c->job->chat, &store, &repeat, err))
		goto done;
	struct scoring s = {.forward = r->forward,
		.kv = k->kv,
		.ids = k->prompt.ids.v,
		.repeat = &repeat,
		.params = kvzip.params,
		.scores = *scores,
		.stop = k->c->job->stop,
		.stop_user = k->c->job->user,
		.layers = r->info.layers,
		.kv_heads = r->info.kv_heads};
	prompt_shape_for(&kvzip, k->prompt.prefix, k->prompt.context, 0, &s.shape);
	rc = kvzip.scorer->finish(&s, err);
	r->counters.scorer_passes++;
done:
	method_free(&kvzip);
	repeat_ids_free(&store);
	return rc;
}

static int target_oracles(struct collecting *k, char err[ERR_LEN])
{
	char halves[32];
	snprintf(halves, sizeof halves, "{\"chunk\": %lld}", (long long)(k->prompt.context + 1) / 2);
	if (target_oracle(k, NULL, &k->oracle, err))
		return -1;
	return judges(k) ? target_oracle(k, halves, &k->again, err) : 0;
}

/* ---- the proxy: beside the target's prefill on threads of its own (the runner's proxy_threads), or in turn behind it ---- */

static int proxy_begin(struct collecting *k, char err[ERR_LEN])
{
	const struct proxy *p = k->r->proxy;
	k->pass = proxy_pass_new(k->r->proxy, k->prompt.ids.v, (int64_t)k->prompt.ids.n, k->prompt.prefix, k->prompt.context);
	for (int i = 0; i < k->n_specs; i++)
		if ((k->want[i] = proxy_pass_want(k->pass, &k->spec[i], err)) < 0)
			return -1;
	if (p->overlapped)
		device_use_threads(k->r->device, device_threads(k->r->device) - p->threads);
	return proxy_pass_start(k->pass, err);
}

static int proxy_features(struct collecting *k, char err[ERR_LEN])
{
	struct runner *r = k->r;
	const struct model_config *c = model_config(r->proxy->model);
	int rc = proxy_pass_finish(k->pass, k->c->job->stop, k->c->job->user, err);
	device_use_threads(r->device, 0);
	r->counters.proxy_passes++;
	for (int i = 0; i < k->n_specs && !rc; i++) {
		size_t n = (size_t)c->layers * (size_t)c->heads * (size_t)k->prompt.context;
		float *sums = malloc((n + 1) * sizeof *sums);
		if (!sums) {
			rc = err_set(err, "out of memory: feature sums");
			break;
		}
		memcpy(sums, proxy_pass_sums(k->pass, k->want[i]), n * sizeof *sums);
		add_feature(k, &k->spec[i], false, c->layers, c->heads, sums);
	}
	return rc;
}

static int write_shard(struct collecting *k, char err[ERR_LEN])
{
	struct shard *s = &k->shard;
	char *path = shard_path(k);
	memcpy(s->context_sha256, k->sha256, SHA_LEN);
	snprintf(s->split, sizeof s->split, "%s", k->c->split);
	snprintf(s->id, sizeof s->id, "%s", k->c->id);
	settings_of(k->r, s->settings);
	pair_of(k->r, k->proxy, &s->pair);
	s->n = k->prompt.context;
	s->layers = k->r->info.layers;
	s->kv_heads = k->r->info.kv_heads;
	s->proxy_kv_heads = k->proxy ? k->r->info.proxy_kv_heads : k->r->info.kv_heads;
	s->oracle = k->oracle;
	s->again = k->again;
	int rc = shard_write(s, path, err);
	free(path);
	return rc;
}

static void collecting_free(struct collecting *k)
{
	proxy_pass_free(k->pass);
	if (k->pass)
		device_use_threads(k->r->device, 0);
	for (int i = 0; i < KINDS; i++)
		features_free(k->own[i]);
	for (int i = 0; i < SHARD_FEATURES; i++)
		free(k->sums[i]);
	kv_free(k->kv);
	free(k->oracle);
	free(k->again);
	prompt_free(&k->prompt);
	free(k);
}

static int shard_make(struct collecting *k, char err[ERR_LEN])
{
	int rc = k->proxy ? proxy_begin(k, err) : 0;
	rc = rc ? rc : target_prefill(k, err);
	if (!rc && k->proxy)
		rc = proxy_features(k, err);
	rc = rc ? rc : target_oracles(k, err);
	return rc ? rc : write_shard(k, err);
}

static int collect(struct runner *r, const struct runner_collect *c, bool proxy, bool self, bool *present, char err[ERR_LEN])
{
	struct collecting *k = mem_new(1, sizeof *k);
	struct prompt_question pq = {0};
	struct runner_job job = *c->job;
	struct runner_question none = {.text = "", .max_new_tokens = 1};
	*k = (struct collecting){.r = r, .c = c, .proxy = proxy, .self = self};
	job.questions = &none;
	job.n_questions = 1;
	job.protocol = PROTOCOL_AGNOSTIC;
	int rc = -1;
	*present = false;
	if (proxy && !r->proxy)
		err_set(err, "collecting for proxykv needs a proxy: a pair in the plan, or --proxy MODEL");
	else if (!specs_parse(k, err) && !prompt_make(r, &job, 0, &k->prompt, &pq, err)) {
		prompt_context_sha256(&k->prompt, k->sha256);
		*present = is_present(k);
		rc = *present ? 0 : shard_make(k, err);
	}
	prompt_question_free(&pq);
	collecting_free(k);
	return rc;
}

int runner_collect_proxykv(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN])
{
	return collect(r, c, true, true, present, err);
}

int runner_collect_selfkv(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN])
{
	return collect(r, c, false, true, present, err);
}

int runner_collect_head_prior(struct runner *r, const struct runner_collect *c, bool *present, char err[ERR_LEN])
{
	return collect(r, c, false, false, present, err);
}
