/* mapped.c: ProxyKV (arXiv 2605.16360) and its form without a proxy: attention column sums, mapped to the importance that a pass
 * of KVzip would find. spec/proxykv-lkv.md 1.
 *
 * A GPU maps its own sums (proxykv/mapping.h): of selfkv in finish(), of proxykv inside the proxy's run. Sums that a CPU made are
 * mapped in finish(), by the threads of the target's device.
 *
 * proxykv: the sums are the proxy's, from its run beside the target's prefill or after it. selfkv: ours, reported under its own
 * name; the target's own sums, taken inside its prefill, no second model. The mapper (runners/mapper) is a trained file of the
 * pair; which features it wants stands in it, and options that say otherwise are refused. Allocator: global, KVzip's rule [O: the
 * paper gives Top-K at a fixed ratio, its scope is not published]. mapper=axial is the paper's own network; flat is the default
 * because it is better at equal cost [O]. Contexts that a mapper was trained on are refused. */
#include "runners/mapper/mapper.h"
#include "runners/methods/parts.h"
#include "runners/proxykv/mapping.h"
#include "runners/proxykv/proxy.h"
#include "runners/trained.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mapped {
	const struct mapper *mapper; /* of the store */
	struct feature_spec spec;
	int want, map;        /* proxykv: numbers in the proxy's run; map -1: it does not map */
	struct features *own; /* selfkv: during the prefill */
};

/* The features that the options name. */
static int spec_of(struct feature_spec *out, const struct params *p, char err[ERR_LEN])
{
	return feature_spec_parse(out, param_text(p, "queries"), (int)param_int(p, "layers"), param_text(p, "heads"), err);
}

static void file_of(const char *method, const struct params *p, struct trained_request *q)
{
	struct feature_spec spec = {0};
	char tag[32] = "", err[ERR_LEN];
	if (!spec_of(&spec, p, err))
		feature_spec_tag(&spec, tag);
	snprintf(q->kind, sizeof q->kind, "%s-%s%s", method, param_text(p, "mapper"), tag);
	q->weights = param_text(p, "weights");
}

static void proxykv_file(const struct params *p, struct trained_request *q)
{
	file_of("proxykv", p, q);
	q->make = "kvbench train proxykv PLAN";
}

static void selfkv_file(const struct params *p, struct trained_request *q)
{
	file_of("selfkv", p, q);
	q->proxy_sha256 = NULL;
	q->make = "kvbench train selfkv PLAN";
}

static int read_mapper(void **out, const char *path, void *user, char err[ERR_LEN])
{
	(void)user;
	return mapper_read((struct mapper **)out, path, NULL, err);
}

static void close_mapper(void *m)
{
	mapper_free(m);
}

/* Is it of this form, for these features? all_layers: of the model whose attention it maps; 0 = not known yet, then "all" is any number. */
static int check_features(
	const struct params *p, const struct mapper *m, const char *path, bool self, int all_layers, char err[ERR_LEN])
{
	static const char *const kinds[] = {[MAPPER_FLAT] = "flat", [MAPPER_LINEAR] = "linear", [MAPPER_AXIAL] = "axial"};
	const struct mapper_config *c = mapper_config_of(m);
	struct feature_spec has = feature_spec_of(c), wanted;
	if (spec_of(&wanted, p, err))
		return -1;
	wanted.layers = wanted.layers ? wanted.layers : all_layers ? all_layers : has.layers;
	if (strcmp(kinds[c->kind], param_text(p, "mapper")) || !feature_spec_equal(&has, &wanted) ||
		(c->source == MAPPER_SOURCE_SELF) != self)
		return err_set(err,
			"%s: is a %s mapper of %s, trained on other features than the options say (mapper, queries, layers, "
			"heads)",
			path, kinds[c->kind], c->source == MAPPER_SOURCE_SELF ? "the target's own attention" : "a proxy");
	return 0;
}

/* And for these models, for this context? */
static int check(const struct scoring *s, const struct mapper *m, const char *path, bool self, char err[ERR_LEN])
{
	const struct mapper_config *c = mapper_config_of(m);
	const struct mapper_pair *pair = mapper_pair_of(m);
	if (strcmp(pair->target_sha256, s->model_sha256) || strcmp(pair->proxy_sha256, self ? s->model_sha256 : s->proxy_sha256))
		return err_set(err, "%s: was trained for %s -> %s, not for these models", path, pair->proxy, pair->target);
	if (check_features(s->params, m, path, self, self ? s->layers : proxy_pass_config(s->proxy)->layers, err))
		return -1;
	if (c->layers != s->layers || c->kv_heads != s->kv_heads)
		return err_set(err, "%s: scores %d x %d heads, the model has %d x %d", path, c->layers, c->kv_heads, s->layers,
			s->kv_heads);
	if (mapper_trained_on(m, s->context_sha256))
		return err_set(
			err, "%s was trained on this context (%.16s...): it is not evaluated on it", path, s->context_sha256);
	return 0;
}

static int check_named(const struct params *p, const char *path, bool self, char err[ERR_LEN])
{
	struct mapper *m = NULL;
	int rc = mapper_read(&m, path, NULL, err) || check_features(p, m, path, self, 0, err) ? -1 : 0;
	mapper_free(m);
	return rc;
}

static int proxykv_named(const struct params *p, const char *path, char err[ERR_LEN])
{
	return check_named(p, path, false, err);
}

static int selfkv_named(const struct params *p, const char *path, char err[ERR_LEN])
{
	return check_named(p, path, true, err);
}

/* As long as the store lives. */
static const struct mapper *mapper_at(const struct scoring *s, const char *path, char err[ERR_LEN])
{
	return trained_store_get(s->weights, path, read_mapper, NULL, close_mapper, err);
}

static struct mapped *open_mapper(struct scoring *s, bool self, char err[ERR_LEN])
{
	struct mapped *a = NULL;
	char *path = NULL;
	if ((path = scoring_file(s, self ? selfkv_file : proxykv_file, err))) {
		const struct mapper *m = mapper_at(s, path, err);
		if (m && !check(s, m, path, self, err)) {
			a = mem_new(1, sizeof *a);
			*a = (struct mapped){.mapper = m, .spec = feature_spec_of(mapper_config_of(m))};
		}
	}
	free(path);
	return a;
}

static void run_parallel(void *device, int64_t n, void (*fn)(void *arg, int64_t item), void *arg)
{
	device_parallel(device, n, fn, arg);
}

/* sums [layers][heads][n] -> the scores of every (layer, KV head). */
static int map(struct scoring *s, const struct mapped *a, const float *sums, char err[ERR_LEN])
{
	const struct mapper_pool pool = {forward_device(s->forward), run_parallel};
	int64_t start = clock_ns();
	int rc = mapper_forward(a->mapper, sums, s->shape.count, s->scores, &pool, err);
	s->mapper_ns += clock_ns() - start;
	return rc ? rc : scores_place(s, err);
}

static void end(struct scoring *s)
{
	struct mapped *a = s->state;
	if (a)
		features_free(a->own);
	free(a);
	s->state = NULL;
}

/* ---- proxykv ---- */

static int proxykv_begin(struct scoring *s, char err[ERR_LEN])
{
	if (!s->proxy)
		return err_set(err, "proxykv needs a proxy: a pair in the plan, or --proxy MODEL");
	struct mapped *a = s->state = open_mapper(s, false, err);
	if (!a || (a->want = proxy_pass_want(s->proxy, &a->spec, err)) < 0)
		return -1;
	a->map = -1;
	if (proxy_pass_maps(s->proxy))
		a->map = proxy_pass_map(s->proxy, a->want, a->mapper, s->scores);
	return 0;
}

static int proxykv_finish(struct scoring *s, char err[ERR_LEN])
{
	const struct mapped *a = s->state;
	int rc = proxy_pass_finish(s->proxy, s->stop, s->stop_user, err);
	int64_t ns = 0;
	if (rc)
		return rc;
	if (a->map < 0)
		return map(s, a, proxy_pass_sums(s->proxy, a->want), err);
	struct tensor *scores = NULL;
	rc = proxy_pass_mapped(s->proxy, a->map, &scores, &ns, err);
	s->mapper_ns += ns;
	return rc ? rc : scores_move(s, scores, err);
}

/* ---- selfkv ---- */

/* The sums of the whole prefill; behind it, where the device maps, the mapper's work beside them. A missing file is begin's to tell. */
static int64_t selfkv_device_bytes(const struct scoring *s)
{
	struct feature_spec spec;
	char err[ERR_LEN], *path = NULL;
	if (spec_of(&spec, s->params, err) || (device_has_steps(forward_device(s->forward)) && !(path = scoring_file(s, selfkv_file, err))))
		return 0;
	const struct mapper *m = path ? mapper_at(s, path, err) : NULL;
	free(path);
	return features_bytes(s->forward, &spec, s->shape.count) + (m ? mapping_bytes(m, s->shape.count) : 0);
}

static int selfkv_begin(struct scoring *s, char err[ERR_LEN])
{
	struct mapped *a = s->state = open_mapper(s, true, err);
	if (!a || !(a->own = features_new(s->forward, &a->spec, s->shape.first, s->shape.count, err)))
		return -1;
	return 0;
}

static int64_t selfkv_first_pos(const struct scoring *s)
{
	const struct mapped *a = s->state;
	return features_observer(a->own).first_pos;
}

static int selfkv_layers(const struct scoring *s)
{
	const struct mapped *a = s->state;
	return features_observer(a->own).layers;
}

static int selfkv_observe(struct scoring *s, const struct layer_rows *r, char err[ERR_LEN])
{
	struct mapped *a = s->state;
	return features_observe(a->own, r, err);
}

static int map_there(struct scoring *s, struct mapped *a, char err[ERR_LEN])
{
	int64_t start = clock_ns();
	struct tensor *t = features_map(a->own, a->mapper, err);
	int rc = t ? scores_keep(s, t, err) : -1;
	s->mapper_ns += clock_ns() - start;
	features_free(a->own);
	a->own = NULL;
	return rc;
}

static int selfkv_finish(struct scoring *s, char err[ERR_LEN])
{
	struct mapped *a = s->state;
	if (device_has_steps(forward_device(s->forward)))
		return map_there(s, a, err);
	size_t n = (size_t)features_floats(a->own);
	float *sums = malloc((n + 1) * sizeof *sums);
	if (!sums)
		return err_set(err, "out of memory: %zu feature sums", n);
	int rc = features_take(a->own, sums, err) || map(s, a, sums, err) ? -1 : 0;
	free(sums);
	return rc;
}

/* ---- the two in the table ---- */

static bool queries_legal(const char *text)
{
	struct feature_spec spec;
	char err[ERR_LEN];
	return !feature_spec_parse(&spec, text, 0, "query", err);
}

/* clang-format off */
static const struct param_def mapper_params[] = {
	{.name = "mapper", .kind = PARAM_TEXT, .text = "flat", .choices = "flat|linear|axial", .origin = "ours: better than the paper's (axial) at equal cost"},
	{.name = "queries", .kind = PARAM_TEXT, .text = "all", .choices = "all|stride:K|last:W", .legal = queries_legal, .origin = "the paper; or stride:K, last:W"},
	{.name = "layers", .kind = PARAM_INT, .number = 0, .max = 1000, .origin = "0 = all, the paper; n = the first n"},
	{.name = "heads", .kind = PARAM_TEXT, .text = "query", .choices = "query|kv", .origin = "ours; kv = mean over a group"},
	{.name = "weights", .kind = PARAM_TEXT, .text = "", .origin = "\"\" = the trained file of these models, by its name"},
	{NULL}};
/* clang-format on */

const struct scorer scorer_proxykv = {.name = "proxykv",
	.title = "a proxy's attention, mapped to KVzip's scores (trained)",
	.origin = "ProxyKV, arXiv 2605.16360",
	.params = mapper_params,
	.file = proxykv_file,
	.named = proxykv_named,
	.trained = true,
	.needs_proxy = true,
	.context_alone = true,
	.mass = MASS_NONE,
	.begin = proxykv_begin,
	.finish = proxykv_finish,
	.end = end};
const struct scorer scorer_selfkv = {.name = "selfkv",
	.title = "the target's own attention, mapped to KVzip's scores (trained)",
	.origin = "ours, after ProxyKV",
	.params = mapper_params,
	.file = selfkv_file,
	.named = selfkv_named,
	.trained = true,
	.context_alone = true,
	.mass = MASS_NONE,
	.observes = OBSERVE_Q | OBSERVE_LSE,
	.layers = selfkv_layers,
	.first_pos = selfkv_first_pos,
	.device_bytes = selfkv_device_bytes,
	.begin = selfkv_begin,
	.observe = selfkv_observe,
	.finish = selfkv_finish,
	.end = end};
