/* lkv_train.c: `kvbench train lkv | lkv-global | kv-mlp`: from a folder of shards to the file its method looks for. The
 * arithmetic is runners/lkv's; here is what lies around it: the recipe's options, prefills and teachers, the log, the file. */
#include "runners/lkv/file.h"
#include "runners/lkv/shard.h"
#include "runners/runner_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	TRAIN_ROWS = 512, /* tail rows of one linear call */
	CHECKPOINT_STEPS = 25
};

/* ---- the recipe ---- */

static int number_set(struct lkv_recipe *r, const char *key, const json_t *value)
{
	const struct {
		const char *name;
		double *real;
		int *whole;
		double min, max;
	} fields[] = {{"steps", NULL, &r->steps, 0, 1e6}, {"tails", NULL, &r->tails, 1, 64},
		{"distil_steps", NULL, &r->distil_steps, 0, 1e6}, {"hidden", NULL, &r->shape.hid, 1, 512},
		{"embedding", NULL, &r->shape.emb, 1, 512}, {"lr_t", &r->lr_t, NULL, 0, 1}, {"lr_h", &r->lr_h, NULL, 0, 1},
		{"distil_lr", &r->distil_lr, NULL, 0, 1}, {"tau0", &r->tau0, NULL, 1e-4, 10}, {"tau1", &r->tau1, NULL, 1e-4, 10},
		{"gumbel", &r->gumbel, NULL, 0, 10}, {"warm", &r->warm, NULL, 1e-6, 1}, {"clip", &r->clip, NULL, 0, 1e6}};
	double x = json_number_value(value);
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		if (strcmp(fields[i].name, key))
			continue;
		if (!(fields[i].whole ? json_is_integer(value) : json_is_number(value)) ||
			!(x >= fields[i].min && x <= fields[i].max))
			return -1;
		if (fields[i].whole)
			*fields[i].whole = (int)x;
		else
			*fields[i].real = x;
		return 0;
	}
	return -1;
}

static int rates_set(struct lkv_recipe *r, const json_t *list)
{
	size_t n = json_array_size(list);
	memset(r->rates, 0, sizeof r->rates);
	for (size_t i = 0; i < n && i < LKV_RATES; i++) {
		r->rates[i] = json_number_value(json_array_get(list, i));
		if (!(r->rates[i] > 0 && r->rates[i] < 1))
			return -1;
	}
	return n > 0 && n <= LKV_RATES ? 0 : -1;
}

static int option_set(struct lkv_recipe *r, const char *key, const json_t *value)
{
	const char *text = json_string_value(value);
	if (!strcmp(key, "seed") && json_is_integer(value) && json_integer_value(value) >= 0) {
		r->seed = (uint64_t)json_integer_value(value);
		return 0;
	}
	if (!strcmp(key, "inputs") && text && (!strcmp(text, "kv") || !strcmp(text, "k") || !strcmp(text, "v"))) {
		r->shape.key = text[0] == 'k';
		r->shape.value = strchr(text, 'v') != NULL;
		return 0;
	}
	if (!strcmp(key, "rope") && text && (!strcmp(text, "pre") || !strcmp(text, "post"))) {
		r->shape.pre = text[1] == 'r';
		return 0;
	}
	return !strcmp(key, "rates") ? rates_set(r, value) : number_set(r, key, value);
}

static int recipe_make(
	struct lkv_recipe *r, const struct runner_info *info, enum lkv_kind kind, const char *options, char err[ERR_LEN])
{
	int rc = 0;
	const char *key;
	json_t *o = options && *options ? json_loads(options, JSON_REJECT_DUPLICATES, NULL) : json_object(), *value;
	*r = lkv_recipe_default(kind);
	r->shape.layers = info->layers;
	r->shape.kv_heads = info->kv_heads;
	r->shape.d = info->head_dim;
	if (!json_is_object(o))
		rc = err_set(err, "train %s: options are not a JSON object", lkv_kind_name(kind));
	else
		json_object_foreach(o, key, value) if (!rc && option_set(r, key, value)) rc =
			err_set(err, "train %s: option %s is unknown or has a value it cannot have", lkv_kind_name(kind), key);
	json_decref(o);
	return rc;
}

/* ---- contexts: one prefill each, before the first step ---- */

struct training {
	struct runner *r;
	const struct runner_train *t;
	struct lkv_recipe recipe;
	struct frozen *frozen;
	struct lkv_shard *shard;
	int n_shards;
	struct lkv_sample *sample; /* of split train, then of split eval */
	int n_train, n_eval;
	int64_t steps_told, start_ns;
};

static bool told_to_stop(void *user)
{
	const struct runner_train *t = ((struct training *)user)->t;
	return t->stop && t->stop(t->user);
}

static void tell_progress(const struct training *k, const char *phase, int64_t done, int64_t total)
{
	if (k->t->progress)
		k->t->progress(k->t->user, phase, done, total);
}

static void tell_value(const struct training *k, int64_t step, const char *term, double value)
{
	if (k->t->value)
		k->t->value(k->t->user, step, term, value);
}

/* KVzip's scores of one sample: the scorer itself, on the sample's cache. */
static int score_kvzip(struct training *k, const struct lkv_shard *e, struct lkv_sample *s, const struct repeat_prompt *repeat,
	char err[ERR_LEN])
{
	const struct runner_info *info = &k->r->info;
	struct plan_method m;
	if (method_resolve(&m, "kvzip", NULL, err))
		return -1;
	float *scores = calloc((size_t)(info->layers * info->kv_heads) * (size_t)s->context, sizeof *scores);
	struct scoring g = {.forward = k->r->forward,
		.kv = s->kv,
		.ids = e->ids,
		.repeat = repeat,
		.params = m.params,
		.scores = scores,
		.stop = k->t->stop,
		.stop_user = k->t->user,
		.layers = info->layers,
		.kv_heads = info->kv_heads};
	prompt_shape_for(&m, s->prefix, s->context, 0, &g.shape);
	int rc = scores ? m.scorer->finish(&g, err) : err_set(err, "training: out of memory for KVzip scores");
	s->kvzip = scores;
	method_free(&m);
	return rc;
}

static int sample_make(struct training *k, const struct lkv_shard *e, struct lkv_sample *s, const struct repeat_prompt *repeat,
	char err[ERR_LEN])
{
	struct kv *kv = cache_new(k->r, e->n);
	*s = (struct lkv_sample){
		.prefix = e->prefix, .context = e->n - e->prefix, .tail = e->tail, .n_tails = e->n_tails, .kv = kv};
	if (!kv)
		return err_set(err, "training: no memory for context %s: %s", e->id, device_error(k->r->device));
	int rc = forward_prefill(k->r->forward, e->ids, e->n, kv, NULL, 0, NULL, NULL, told_to_stop, k, err);
	if (!rc && k->recipe.distil_steps)
		rc = score_kvzip(k, e, s, repeat, err);
	return rc ? rc : lkv_teach(k->frozen, s, err);
}

static int samples_make(struct training *k, char err[ERR_LEN])
{
	struct repeat_ids store = {0};
	struct repeat_prompt repeat;
	int rc = prompt_repeat(k->r, true, &store, &repeat, err), n = 0;
	k->sample = mem_new((size_t)k->n_shards + 1, sizeof *k->sample);
	for (int pass = 0; pass < 2 && !rc; pass++)
		for (int i = 0; i < k->n_shards && !rc; i++) {
			bool train = strcmp(k->shard[i].split, "eval") != 0;
			if (train != (pass == 0))
				continue;
			k->n_train += train;
			k->n_eval += !train;
			tell_progress(k, "prefill", n, k->n_shards);
			rc = sample_make(k, &k->shard[i], &k->sample[n++], &repeat, err);
		}
	repeat_ids_free(&store);
	return !rc && !k->n_train ? err_set(err, "no shards to train on in %s: kvbench collect makes them", k->t->folder) : rc;
}

/* ---- the log ---- */

static void on_step(void *user, const struct lkv_progress *p)
{
	struct training *k = user;
	bool distil = !strcmp(p->phase, "distil");
	int64_t at = distil ? p->step : k->recipe.distil_steps + p->step;
	tell_value(k, at, distil ? "mse" : "kl", p->loss);
	tell_value(k, at, "lr", p->lr);
	if (!distil) {
		tell_value(k, at, "tau", p->tau);
		tell_value(k, at, "rate", p->R);
	}
	k->steps_told = at;
	tell_progress(k, p->phase, p->step, p->steps);
}

/* Log gates of hard selection: 0 for what is kept, -inf for the rest; the prefix is kept. */
static void hard_gates(const struct lkv_net *net, const struct lkv_sample *s, double R, const float *u, float *logm)
{
	int G = net->shape.layers * net->shape.kv_heads;
	int64_t n = s->context, all = s->prefix + n, *budget = mem_new((size_t)G, sizeof *budget);
	bool global = net->shape.kind != LKV_HEAD;
	int32_t *kept = mem_new((size_t)(G * n) + 1, sizeof *kept);
	if (global)
		budget[0] = G * keep_count(n, R, "none");
	else
		lkv_h_budgets(net, R, n, budget);
	for (int64_t i = 0; i < G * all; i++)
		logm[i] = i % all < s->prefix ? 0 : -INFINITY;
	for (int g = 0; g < (global ? 1 : G); g++) {
		top_k(u + g * n, global ? G * n : n, budget[g], kept);
		for (int64_t j = 0; j < budget[g]; j++)
			logm[(g + kept[j] / n) * all + s->prefix + kept[j] % n] = 0;
	}
	free(budget);
	free(kept);
}

static int hard_loss(
	struct training *k, const struct lkv_net *net, const struct lkv_sample *s, double R, double *kl, char err[ERR_LEN])
{
	size_t G = (size_t)(net->shape.layers * net->shape.kv_heads);
	float *u = malloc(G * (size_t)s->context * sizeof *u),
	      *logm = malloc(G * (size_t)(s->prefix + s->context) * sizeof *logm);
	int rc = u && logm ? lkv_sample_utilities(net, k->frozen, s, u, err) : err_set(err, "training: out of memory");
	if (!rc) {
		hard_gates(net, s, R, u, logm);
		rc = lkv_loss(k->frozen, s, logm, kl, err);
	}
	free(u);
	free(logm);
	return rc;
}

/* KL of hard selection at each R of the recipe over the eval samples: the figure that is told, beside training's own. */
static int evaluate(struct training *k, const struct lkv_net *net, char err[ERR_LEN])
{
	for (int i = 0; i < LKV_RATES && k->recipe.rates[i] > 0; i++) {
		double sum = 0, kl;
		char term[32];
		for (int c = 0; c < k->n_eval; c++) {
			if (hard_loss(k, net, &k->sample[k->n_train + c], k->recipe.rates[i], &kl, err))
				return -1;
			sum += kl;
		}
		snprintf(term, sizeof term, "eval_kl@%g", k->recipe.rates[i]);
		if (k->n_eval)
			tell_value(k, k->steps_told, term, sum / k->n_eval);
	}
	return 0;
}

static void tell_begin(const struct training *k, const char *name)
{
	struct strbuf list = {0};
	char *config = lkv_recipe_json(&k->recipe);
	for (int i = 0; i < k->n_shards; i++)
		if (strcmp(k->shard[i].split, "eval"))
			strbuf_printf(&list, "%s\"%s\"", list.len ? "," : "[", k->shard[i].context_sha256);
	strbuf_puts(&list, "]");
	struct runner_training t = {.name = name,
		.config = config,
		.contexts = list.text,
		.seed = k->recipe.seed,
		.target_sha256 = k->r->info.model_sha256,
		.proxy_sha256 = ""};
	if (k->t->begin)
		k->t->begin(k->t->user, &t);
	strbuf_free(&list);
	free(config);
}

/* ---- the file ---- */

static int write_file(const struct training *k, const struct lkv_net *net, const char *path, char err[ERR_LEN])
{
	const struct runner_info *info = &k->r->info;
	struct strbuf seen = {0};
	for (int i = 0; i < k->n_shards; i++)
		if (strcmp(k->shard[i].split, "eval"))
			trained_on_add(&seen, k->shard[i].context_sha256);
	char *recipe = lkv_recipe_json(&k->recipe);
	char *record = text_format("{\"contexts\":%d,\"dtype\":\"%s\",\"recipe\":%s}", k->n_train, info->dtype, recipe);
	const struct lkv_origin o = {info->model_sha256, info->tokenizer_sha256 ? info->tokenizer_sha256 : "",
		seen.text ? seen.text : "", record, k->t->made_by ? k->t->made_by : "kvbench train"};
	int rc = lkv_file_write(path, net, &o, err);
	strbuf_free(&seen);
	free(recipe);
	free(record);
	return rc;
}

static void training_close(struct training *k)
{
	for (int i = 0; k->sample && i < k->n_train + k->n_eval; i++) {
		kv_free((struct kv *)k->sample[i].kv);
		free(k->sample[i].teacher);
		free((void *)k->sample[i].kvzip);
	}
	for (int i = 0; i < k->n_shards; i++)
		lkv_shard_free(&k->shard[i]);
	free(k->shard);
	free(k->sample);
	frozen_close(k->frozen);
}

static void result_fill(const struct training *k, const struct lkv_net *net, char *path, struct runner_trained *out)
{
	char err[ERR_LEN];
	const struct lkv_shape *s = &net->shape;
	out->path = text_copy(path);
	out->kind = text_copy(lkv_kind_name(s->kind));
	if (sha256_file(path, out->sha256, err))
		*out->sha256 = 0;
	out->contexts = k->n_train;
	out->eval_contexts = k->n_eval;
	out->steps = k->recipe.distil_steps + k->recipe.steps;
	out->parameters = s->kind == LKV_HEAD ? net->trained : net->p[LKV_OF_T] - net->p[0];
	out->train_ns = clock_ns() - k->start_ns;
	for (int i = 0; i < TRAINED_RATIOS; i++)
		out->recall[i] = out->floor[i] = out->ceiling[i] = out->head_recall[i] = NAN;
}

static int train(
	struct runner *r, const struct runner_train *t, enum lkv_kind kind, struct runner_trained *out, char err[ERR_LEN])
{
	struct training k = {.r = r, .t = t, .start_ns = clock_ns()};
	struct lkv_net *net = NULL;
	const char *folder = t->out_folder ? t->out_folder : r->calibration_folder;
	char *path = NULL, *checkpoint = NULL;
	*out = (struct runner_trained){0};
	int rc = recipe_make(&k.recipe, &r->info, kind, t->options, err) ||
				 !(path = trained_target(folder, lkv_kind_name(kind), r->info.model_sha256, NULL, err)) ||
				 lkv_shards_read(&k.shard, &k.n_shards, t->folder, r->info.model_sha256, r->info.vocab, err)
			 ? -1
			 : 0;
	if (!rc) {
		checkpoint = text_format("%s.part", path);
		tell_begin(&k, strrchr(path, '/') + 1);
		rc = frozen_open(&k.frozen, r->model, r->device, TRAIN_ROWS, err);
	}
	rc = rc ? rc : samples_make(&k, err);
	const struct lkv_hooks hooks = {&k, on_step, told_to_stop, checkpoint, CHECKPOINT_STEPS};
	rc = rc ? rc : lkv_train(&net, k.frozen, k.sample, k.n_train, &k.recipe, &hooks, err);
	rc = rc ? rc : evaluate(&k, net, err);
	rc = rc ? rc : write_file(&k, net, path, err);
	if (!rc) {
		unlink(checkpoint);
		result_fill(&k, net, path, out);
	}
	lkv_net_free(net);
	training_close(&k);
	free(path);
	free(checkpoint);
	return rc;
}

int runner_train_lkv(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN])
{
	return train(r, t, LKV_HEAD, out, err);
}

int runner_train_lkv_global(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN])
{
	return train(r, t, LKV_GLOBAL, out, err);
}

int runner_train_kv_mlp(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN])
{
	return train(r, t, LKV_DISTILLED, out, err);
}
