/* mapper_train.c: trains the mappers of proxykv and selfkv and the head prior from a folder of shards, and writes the files their
 * methods look for. The arithmetic is runners/mapper's; here is what lies around it: which shards, which name, whose models, what
 * is told to the caller. */
#include "runners/mapper/mapper.h"
#include "runners/methods/prior.h"
#include "runners/runner_impl.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder's shards, by name: the order of training does not depend on the file system. */
struct shards {
	char **path;
	size_t n;
};

static int is_shard_name(const struct dirent *e)
{
	size_t n = strlen(e->d_name), tail = strlen(".safetensors");
	return n > tail && !strcmp(e->d_name + n - tail, ".safetensors");
}

static int shards_list(struct shards *s, const char *folder, char err[ERR_LEN])
{
	struct dirent **names = NULL;
	int n = scandir(folder, &names, is_shard_name, alphasort);
	*s = (struct shards){0};
	for (int i = 0; i < n; i++) {
		s->path = mem_grow(s->path, s->n + 1, sizeof *s->path);
		s->path[s->n++] = text_format("%s/%s", folder, names[i]->d_name);
		free(names[i]);
	}
	free(names);
	return s->n ? 0 : err_set(err, "no shards in %s: kvbench collect makes them", folder);
}

static void shards_free(struct shards *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->path[i]);
	free(s->path);
}

void runner_trained_free(struct runner_trained *t)
{
	free(t->path);
	free(t->kind);
	*t = (struct runner_trained){0};
}

static void result_begin(struct runner_trained *out)
{
	*out = (struct runner_trained){0};
	for (int i = 0; i < TRAINED_RATIOS; i++)
		out->recall[i] = out->floor[i] = out->ceiling[i] = out->head_recall[i] = NAN;
}

/* ---- mappers ---- */

/* One training run: configuration, the two sets, what is told. */
struct training {
	struct runner *r;
	const struct runner_train *t;
	bool self;
	struct mapper_config config;
	struct shards shards;
	struct mapper_set *train, *valid;
	struct mapper *mapper;
	char kind[64];
};

/* The names curves have in the store, whatever is trained: "loss", "L_bin", "recall@0.1", "prior@0.1", "oracle@0.1",
 * "perhead@0.1". */
static void term_name(const char *name, char out[32])
{
	static const struct {
		const char *head, *becomes;
	} heads[] = {{"head_recall.", "perhead@0."}, {"prior_recall.", "prior@0."}, {"recall.", "recall@0."},
		{"ceiling.", "oracle@0."}};
	bool term = false;
	for (int i = 0; i < MAPPER_TERMS; i++)
		term = term || !strcmp(name, mapper_terms[i]);
	snprintf(out, 32, "%s%s", term ? "L_" : "", strcmp(name, "total") ? name : "loss");
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		size_t n = strlen(heads[i].head);
		if (!strncmp(name, heads[i].head, n)) {
			snprintf(out, 32, "%s%s", heads[i].becomes, name + n);
			return;
		}
	}
}

static void on_value(void *user, int step, const char *name, double value)
{
	const struct runner_train *t = ((struct training *)user)->t;
	char term[32];
	term_name(name, term);
	if (t->value)
		t->value(t->user, step, term, value);
}

static void on_progress(void *user, int64_t done, int64_t total)
{
	const struct training *k = user;
	if (k->t->progress)
		k->t->progress(k->t->user, k->kind, done, total);
}

static bool on_stop(void *user)
{
	const struct runner_train *t = ((struct training *)user)->t;
	return t->stop && t->stop(t->user);
}

/* Options as JSON scalars, each set by its name. */
static int options_take(struct mapper_config *c, const char *options, char err[ERR_LEN])
{
	const char *key;
	json_t *value, *o = options ? json_loads(options, JSON_REJECT_DUPLICATES, NULL) : json_object();
	int rc = json_is_object(o) ? 0 : err_set(err, "training options must be a JSON object");
	json_object_foreach(o, key, value)
	{
		char *text = json_is_string(value) ? text_copy(json_string_value(value))
						   : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
		rc = rc ? rc : mapper_option(c, key, text, err);
		free(text);
	}
	json_decref(o);
	return rc;
}

static void kind_make(struct training *k)
{
	static const char *const kinds[] = {[MAPPER_FLAT] = "flat", [MAPPER_LINEAR] = "linear", [MAPPER_AXIAL] = "axial"};
	const struct runner_info *i = &k->r->info;
	struct feature_spec spec = feature_spec_of(&k->config);
	char tag[32];
	spec.layers = spec.layers == (k->self ? i->layers : i->proxy_layers) ? 0 : spec.layers;
	feature_spec_tag(&spec, tag);
	snprintf(k->kind, sizeof k->kind, "%s-%s%s", k->self ? "selfkv" : "proxykv", kinds[k->config.kind], tag);
}

static int sets_open(struct training *k, char err[ERR_LEN])
{
	const char *const *paths = (const char *const *)k->shards.path;
	if (mapper_set_open(&k->train, &k->config, paths, k->shards.n, "train", err))
		return -1;
	const char *target = mapper_set_shard(k->train, 0)->pair.target_sha256;
	if (strcmp(target, k->r->info.model_sha256))
		return err_set(err, "the shards are of another target (%.16s...)", target);
	char none[ERR_LEN]; /* without shards of split eval the last weights are kept */
	if (mapper_set_open(&k->valid, &k->config, paths, k->shards.n, "eval", none))
		k->valid = NULL;
	return 0;
}

static char *contexts_json(const struct mapper_set *s)
{
	struct strbuf b = {0};
	strbuf_puts(&b, "[");
	for (int i = 0; i < mapper_set_count(s); i++)
		strbuf_printf(&b, "%s\"%s\"", i ? "," : "", mapper_set_shard(s, i)->context_sha256);
	strbuf_puts(&b, "]");
	return strbuf_take(&b);
}

static void tell_begin(const struct training *k)
{
	const struct mapper_pair *pair = &mapper_set_shard(k->train, 0)->pair;
	char *config = mapper_config_json(&k->config), *contexts = contexts_json(k->train);
	if (k->t->begin)
		k->t->begin(k->t->user, &(struct runner_training){.name = k->kind,
						.config = config,
						.contexts = contexts,
						.seed = k->config.seed,
						.target_sha256 = pair->target_sha256,
						.proxy_sha256 = k->self ? "" : pair->proxy_sha256});
	free(config);
	free(contexts);
}

/* Whose it is: a mapper of the target's own features has the target for its proxy, whatever pair the shards were collected for.
 */
static void set_pair(struct training *k)
{
	struct mapper_pair p = *mapper_pair_of(k->mapper);
	if (!k->self)
		return;
	memcpy(p.proxy_sha256, p.target_sha256, SHA_LEN);
	memcpy(p.proxy, p.target, sizeof p.proxy);
	mapper_set_pair(k->mapper, &p);
}

static void run_parallel(void *device, int64_t n, void (*fn)(void *arg, int64_t item), void *arg)
{
	device_parallel(device, n, fn, arg);
}

static int result_take(const struct training *k, const char *path, struct runner_trained *out, char err[ERR_LEN])
{
	const struct mapper_record *rec = mapper_record_of(k->mapper);
	out->path = text_copy(path);
	out->kind = text_copy(k->kind);
	out->contexts = rec->contexts;
	out->eval_contexts = rec->valid_contexts;
	out->steps = rec->steps;
	out->train_ns = rec->train_ns;
	out->parameters = mapper_parameters(k->mapper);
	for (int i = 0; i < TRAINED_RATIOS && rec->valid_contexts; i++) {
		out->recall[i] = rec->recall[i];
		out->floor[i] = rec->prior_recall[i];
		out->head_recall[i] = rec->head_recall[i];
	}
	if (k->valid && mapper_set_ceiling(k->valid, MAPPER_SCOPE_GLOBAL, out->ceiling) < 0)
		return err_set(err, "out of memory for two oracles of a context");
	return sha256_file(path, out->sha256, err);
}

static int train_mapper(struct training *k, struct runner_trained *out, char err[ERR_LEN])
{
	const struct mapper_pool pool = {k->r->device, run_parallel};
	const struct mapper_events events = {k, on_value, on_progress, on_stop};
	const char *target = k->r->info.model_sha256;
	char *path = NULL, *checkpoint = NULL;
	int rc = -1;
	mapper_defaults(&k->config);
	k->config.source = k->self ? MAPPER_SOURCE_SELF : MAPPER_SOURCE_MODEL;
	if (options_take(&k->config, k->t->options, err) || shards_list(&k->shards, k->t->folder, err) || sets_open(k, err))
		return -1;
	kind_make(k);
	tell_begin(k);
	if (!(path = trained_target(k->t->out_folder ? k->t->out_folder : k->r->calibration_folder, k->kind, target,
		      k->self ? NULL : mapper_set_shard(k->train, 0)->pair.proxy_sha256, err)))
		return -1;
	checkpoint = text_format("%s.checkpoint", path);
	if (mapper_train(&k->mapper, &k->config, k->train, k->valid, checkpoint, &events, &pool, err))
		goto done;
	if (on_stop(k)) {
		rc = 1;
		goto done;
	}
	set_pair(k);
	rc = mapper_write(k->mapper, path, err) || result_take(k, path, out, err) ? -1 : 0;
done:
	free(path);
	free(checkpoint);
	return rc;
}

static int train(struct runner *r, const struct runner_train *t, bool self, struct runner_trained *out, char err[ERR_LEN])
{
	struct training k = {.r = r, .t = t, .self = self};
	result_begin(out);
	int rc = train_mapper(&k, out, err);
	mapper_free(k.mapper);
	mapper_set_close(k.train);
	mapper_set_close(k.valid);
	shards_free(&k.shards);
	return rc;
}

int runner_train_proxykv(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN])
{
	return train(r, t, false, out, err);
}

int runner_train_selfkv(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN])
{
	return train(r, t, true, out, err);
}

/* ---- the head prior: counted, not trained ---- */

/* Expected recall of the prior on one context, added to out->floor. */
static void prior_judge(const struct prior *p, const float *oracle, int64_t n, struct runner_trained *out)
{
	int heads = p->layers * p->kv_heads;
	float *level = mem_new((size_t)heads, sizeof *level);
	double recall[MAPPER_RATIOS];
	for (int h = 0; h < heads; h++)
		level[h] = (float)p->level[h];
	mapper_prior_recall(level, oracle, p->layers, p->kv_heads, n, MAPPER_SCOPE_GLOBAL, recall);
	for (int i = 0; i < TRAINED_RATIOS; i++)
		out->floor[i] = (isnan(out->floor[i]) ? 0 : out->floor[i]) + recall[i];
	out->eval_contexts++;
	free(level);
}

/* The shards of one split, `limit` of them at most: counted into the prior, or judged by it. */
static int prior_pass(struct runner *r, const struct shards *list, const char *split, int limit, struct prior *p,
	struct runner_trained *judged, char err[ERR_LEN])
{
	int used = 0;
	for (size_t i = 0; i < list->n && used < limit; i++) {
		struct shard s;
		if (shard_open(&s, list->path[i], err))
			return -1;
		bool ours =
			!strcmp(s.pair.target_sha256, r->info.model_sha256) && s.layers == p->layers && s.kv_heads == p->kv_heads;
		float *oracle = ours ? malloc((size_t)s.layers * (size_t)s.kv_heads * (size_t)s.n * sizeof *oracle) : NULL;
		if (oracle && !strcmp(s.split, split)) {
			shard_read_oracle(&s, oracle);
			if (judged)
				prior_judge(p, oracle, s.n, judged);
			else
				prior_add(p, oracle, s.n, s.context_sha256);
			used++;
		}
		free(oracle);
		shard_close(&s);
		if (!oracle)
			return err_set(
				err, ours ? "%s: out of memory for its scores" : "%s: a shard of another target", list->path[i]);
	}
	return 0;
}

static void prior_begin(struct runner *r, const struct runner_train *t, const struct prior *p)
{
	json_t *list = json_array();
	char *words = text_copy(p->trained_on), *rest = words, *one;
	while (*words && (one = strsep(&rest, " ")))
		json_array_append_new(list, json_string(one));
	char *contexts = json_dumps(list, JSON_COMPACT);
	if (t->begin)
		t->begin(t->user, &(struct runner_training){.name = "head-prior",
					  .config = "{}",
					  .contexts = contexts,
					  .target_sha256 = r->info.model_sha256,
					  .proxy_sha256 = ""});
	json_decref(list);
	free(contexts);
	free(words);
}

/* Counts the first `contexts` shards of split train (all of them where there are fewer) and judges the count on split eval. NULL
 * + err. */
static struct prior *prior_count(
	struct runner *r, const struct shards *list, int contexts, struct runner_trained *judged, char err[ERR_LEN])
{
	struct prior *p = prior_new(r->info.layers, r->info.kv_heads);
	result_begin(judged);
	int rc = prior_pass(r, list, "train", contexts, p, NULL, err);
	if (!rc && !p->contexts)
		rc = err_set(err, "no shard of split train");
	if (!rc) {
		prior_end(p);
		rc = prior_pass(r, list, "eval", INT_MAX, p, judged, err);
	}
	for (int i = 0; i < TRAINED_RATIOS && judged->eval_contexts; i++)
		judged->floor[i] /= judged->eval_contexts;
	memcpy(judged->recall, judged->floor, sizeof judged->recall);
	if (!rc)
		return p;
	prior_free(p);
	return NULL;
}

static void prior_tell(const struct runner_train *t, int64_t contexts, const struct runner_trained *judged)
{
	for (int i = 0; i < TRAINED_RATIOS && t->value && judged->eval_contexts; i++) {
		char term[32];
		snprintf(term, sizeof term, "recall@%g", mapper_ratios[i]);
		t->value(t->user, contexts, term, judged->recall[i]);
	}
}

/* Its curve: what 1, 2, 4, ... contexts would have counted, up to all of them. */
static int prior_curve(struct runner *r, const struct runner_train *t, const struct shards *list, int contexts, char err[ERR_LEN])
{
	for (int n = 1; n < contexts; n *= 2) {
		struct runner_trained judged;
		struct prior *p = prior_count(r, list, n, &judged, err);
		if (!p)
			return -1;
		prior_tell(t, n, &judged);
		prior_free(p);
	}
	return 0;
}

int runner_train_head_prior(struct runner *r, const struct runner_train *t, struct runner_trained *out, char err[ERR_LEN])
{
	struct shards list = {0};
	struct prior *p = NULL;
	char *path = NULL;
	int64_t start = clock_ns();
	result_begin(out);
	int rc = -1;
	if (shards_list(&list, t->folder, err) || !(p = prior_count(r, &list, INT_MAX, out, err)))
		goto done;
	prior_begin(r, t, p);
	if (prior_curve(r, t, &list, p->contexts, err))
		goto done;
	prior_tell(t, p->contexts, out);
	if (!(path = trained_target(
		      t->out_folder ? t->out_folder : r->calibration_folder, "head-prior", r->info.model_sha256, NULL, err)))
		goto done;
	rc = prior_write(p, path, r->info.model_sha256, t->made_by ? t->made_by : "", err) || sha256_file(path, out->sha256, err)
		     ? -1
		     : 0;
	out->contexts = p->contexts;
	out->parameters = (int64_t)p->layers * p->kv_heads * (1 + PRIOR_RATIOS);
	out->train_ns = clock_ns() - start;
	out->kind = text_copy("head-prior");
	out->path = path;
done:
	prior_free(p);
	shards_free(&list);
	return rc;
}
