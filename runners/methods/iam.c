/* iam.c: the rigid head map ProxyKV is compared with: "KVzip + IAM". spec/methods.md 7.1. A RECONSTRUCTION: of IAM (arXiv
 * 2507.11953) the idea is known (map each head of a large model to the head of a small one whose attention is most alike, by
 * cosine similarity), of the combination with KVzip only the name.
 *
 * Ours: the map is calibrated beforehand (`kvbench calibrate iam`: attention of the last 32 rows of seeded contexts, averaged
 * over a KV head's group, flattened over the causal part; argmax of the cosine similarity). At run time the proxy alone is scored
 * by KVzip, and each (layer, KV head) of the target takes the scores of the proxy head it is mapped to. When proxy and target are
 * the same model the map is the identity and the scores are the target's own. */
#include "runners/methods/parts.h"
#include "runners/proxykv/proxy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct iam {
	const struct scoring *target;
	const int32_t *map; /* [layers*kv_heads] -> the proxy's layer * kv_heads + head; of the store */
	float *scores;      /* the proxy's [layers][kv_heads][count] */
};

static void file_of(const struct params *p, struct trained_request *q)
{
	snprintf(q->kind, sizeof q->kind, "iam");
	q->option = "map";
	q->weights = param_text(p, q->option);
	q->make = "kvbench calibrate iam --target MODEL --proxy MODEL";
}

static int read_map(void **out, const char *path, void *user, char err[ERR_LEN])
{
	const struct scoring *s = user;
	const struct model_config *c = proxy_pass_config(s->proxy);
	int64_t heads = (int64_t)s->layers * s->kv_heads, theirs = (int64_t)c->layers * c->kv_heads;
	struct st_file *f = NULL;
	int32_t *map = mem_new((size_t)heads, sizeof *map);
	int rc = st_open(&f, path, err);
	const struct st_tensor *t = rc ? NULL : st_find(f, "map");
	if (!rc && (!t || t->type != ST_I32 || t->count != heads))
		rc = err_set(err, "%s: has no int32 tensor \"map\" of %lld heads", path, (long long)heads);
	if (!rc)
		memcpy(map, t->data, (size_t)heads * sizeof *map);
	for (int64_t i = 0; i < heads && !rc; i++)
		if (map[i] < 0 || map[i] >= theirs)
			rc = err_set(err, "%s: head %lld is mapped to %d of %lld", path, (long long)i, map[i], (long long)theirs);
	st_close(f);
	if (rc)
		free(map);
	else
		*out = map;
	return rc;
}

/* On the proxy's thread, when its cache is full: its own KVzip pass. */
static int look(void *user, const struct proxy_view *v, char err[ERR_LEN])
{
	struct iam *a = user;
	const struct model_config *c = forward_config(v->proxy->forward);
	size_t floats = (size_t)c->layers * (size_t)c->kv_heads * (size_t)v->count;
	if (!(a->scores = calloc(floats + 1, sizeof *a->scores)))
		return err_set(err, "out of memory: %zu scores of the proxy", floats);
	struct scoring s = {.forward = v->proxy->forward,
		.kv = v->kv,
		.shape = {.prefix = v->first, .context = v->count, .first = v->first, .count = v->count},
		.ids = v->ids,
		.repeat = a->target->repeat,
		.params = a->target->params,
		.scores = a->scores,
		.stop = v->stop,
		.stop_user = v->stop_user,
		.layers = c->layers,
		.kv_heads = c->kv_heads};
	return scorer_kvzip.finish(&s, err);
}

static int begin(struct scoring *s, char err[ERR_LEN])
{
	if (!s->proxy)
		return err_set(err, "kvzip+iam needs a proxy: a pair in the plan, or --proxy MODEL");
	char *path = s->repeat ? scoring_file(s, file_of, err) : NULL;
	const int32_t *map = path ? trained_store_get(s->weights, path, read_map, s, free, err) : NULL;
	free(path);
	if (!s->repeat)
		err_set(err, "kvzip+iam needs a repeat prompt for the model's template, and this run has none");
	if (!map)
		return -1;
	struct iam *a = s->state = mem_new(1, sizeof *a);
	*a = (struct iam){.target = s, .map = map};
	return proxy_pass_look(s->proxy, look, a, err);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	const struct iam *a = s->state;
	int64_t n = s->shape.count;
	int rc = proxy_pass_finish(s->proxy, s->stop, s->stop_user, err);
	for (int i = 0; i < s->layers * s->kv_heads && !rc; i++)
		memcpy(s->scores + i * n, a->scores + a->map[i] * n, (size_t)n * sizeof(float));
	return rc;
}

static void end(struct scoring *s)
{
	struct iam *a = s->state;
	if (a)
		free(a->scores);
	free(a);
	s->state = NULL;
}

static const struct param_def defs[] = {
	{.name = "chunk", .kind = PARAM_INT, .number = 2000, .min = 1, .max = 1e9, .origin = "KVzip's own code"},
	{.name = "map", .kind = PARAM_TEXT, .text = "", .origin = "\"\" = the pair's calibrated map, by its name"}, {NULL}};

const struct scorer scorer_iam = {.name = "iam",
	.title = "a proxy's KVzip scores through a rigid head map (reconstruction)",
	.origin = "our reconstruction of KVzip+IAM",
	.params = defs,
	.file = file_of,
	.needs_proxy = true,
	.context_alone = true,
	.begin = begin,
	.finish = finish,
	.end = end};
