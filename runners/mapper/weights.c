/* weights.c: the file of a mapper: safetensors, one tensor a parameter plus the statistics, JSON texts in the metadata.
 *
 *   format    "kvbench-mapper 1"
 *   config    every option (config.c), loss weights included
 *   pair      SHA-256 of target, proxy and tokenizer, and their names
 *   record    recall with its floors, steps, contexts, time
 *   contexts  SHA-256 of every training context
 * Tensors: parameters by name (layout.c), "feature.mean" and "feature.deviation" [Ls, Hs], "target.moments" [2] (mean and
 * deviation of the oracle on the scale of option target), "prior.level" and "prior.spread" [Ll, Hl], "prior.share" [5, Ll, Hl]. */
#include "runners/mapper/impl.h"
#include "runners/model/safetensors.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char FORMAT[] = "kvbench-mapper 1";
enum { STATISTICS = 6 };

/* The statistics as tensors, data pointing into m. */
static void statistics_tensors(const struct mapper *m, const double moments[2], struct st_tensor t[STATISTICS])
{
	const struct mapper_config *c = &m->config;
	const struct st_tensor list[STATISTICS] = {
		{.name = "feature.mean",
			.type = ST_F32,
			.n_dims = 2,
			.dims = {c->proxy_layers, c->proxy_heads},
			.data = m->feature_mean},
		{.name = "feature.deviation",
			.type = ST_F32,
			.n_dims = 2,
			.dims = {c->proxy_layers, c->proxy_heads},
			.data = m->feature_dev},
		{.name = "target.moments", .type = ST_F64, .n_dims = 1, .dims = {2}, .data = moments},
		{.name = "prior.level", .type = ST_F32, .n_dims = 2, .dims = {c->layers, c->kv_heads}, .data = m->level},
		{.name = "prior.spread", .type = ST_F32, .n_dims = 2, .dims = {c->layers, c->kv_heads}, .data = m->spread},
		{.name = "prior.share",
			.type = ST_F32,
			.n_dims = 3,
			.dims = {MAPPER_RATIOS, c->layers, c->kv_heads},
			.data = m->share},
	};
	memcpy(t, list, sizeof list);
}

static struct st_tensor param_tensor(const struct mapper *m, const struct param *p)
{
	struct st_tensor t = {.name = p->name, .type = ST_F32, .n_dims = p->n_dims, .data = m->params + p->at};
	memcpy(t.dims, p->dims, sizeof p->dims);
	return t;
}

/* ---- writing ---- */
static json_t *ratios_json(const double *v)
{
	json_t *a = json_array();
	for (int i = 0; i < MAPPER_RATIOS; i++)
		json_array_append_new(a, json_real(v[i]));
	return a;
}

static char *dump(json_t *j)
{
	char *text = json_dumps(j, JSON_COMPACT), *copy = text_copy(text ? text : "");
	free(text);
	json_decref(j);
	return copy;
}

static char *pair_json(const struct mapper_pair *p)
{
	return dump(json_pack("{s:s, s:s, s:s, s:s, s:s}", "target_sha256", p->target_sha256, "proxy_sha256", p->proxy_sha256,
		"tokenizer_sha256", p->tokenizer_sha256, "target", p->target, "proxy", p->proxy));
}

/* Without train_ns: the same training gives the same bytes. */
static char *record_json(const struct mapper_record *r)
{
	return dump(json_pack("{s:i, s:i, s:i, s:i, s:I, s:o, s:o, s:o}", "contexts", r->contexts, "valid_contexts",
		r->valid_contexts, "steps", r->steps, "best_step", r->best_step, "positions", (json_int_t)r->positions, "recall",
		ratios_json(r->recall), "prior_recall", ratios_json(r->prior_recall), "head_recall",
		ratios_json(r->head_recall)));
}

static char *contexts_json(const struct mapper *m)
{
	json_t *a = json_array();
	for (int i = 0; i < m->n_contexts; i++)
		json_array_append_new(a, json_string(m->contexts[i]));
	return dump(a);
}

int mapper_write(const struct mapper *m, const char *path, char err[ERR_LEN])
{
	const double moments[2] = {m->z_mean, m->z_dev};
	struct st_tensor t[PARAMS + STATISTICS];
	char *config = mapper_config_json(&m->config), *pair = pair_json(&m->pair), *record = record_json(&m->record);
	char *contexts = contexts_json(m);
	const struct st_meta meta[] = {
		{"format", FORMAT}, {"config", config}, {"pair", pair}, {"record", record}, {"contexts", contexts}};
	for (int i = 0; i < m->layout.n; i++)
		t[i] = param_tensor(m, &m->layout.p[i]);
	statistics_tensors(m, moments, t + m->layout.n);
	int rc = st_write(path, t, (size_t)m->layout.n + STATISTICS, meta, sizeof meta / sizeof *meta, err);
	free(config);
	free(pair);
	free(record);
	free(contexts);
	return rc;
}

/* ---- reading ---- */
static json_t *read_json(const struct st_file *f, const char *key, const char *name, char err[ERR_LEN])
{
	const char *text = st_metadata(f, key);
	json_t *j = text ? json_loads(text, 0, NULL) : NULL;
	if (!j)
		err_set(err, "%s: its header has no readable %s", name, key);
	return j;
}

static int take_text(const json_t *j, const char *key, char *out, size_t size)
{
	const char *v = json_string_value(json_object_get(j, key));
	if (!v || strlen(v) >= size)
		return -1;
	memcpy(out, v, strlen(v) + 1);
	return 0;
}

static int read_pair(struct mapper *m, const struct st_file *f, const char *name, char err[ERR_LEN])
{
	struct mapper_pair *p = &m->pair;
	json_t *j = read_json(f, "pair", name, err);
	if (!j)
		return -1;
	int rc = take_text(j, "target_sha256", p->target_sha256, SHA_LEN) |
		 take_text(j, "proxy_sha256", p->proxy_sha256, SHA_LEN) |
		 take_text(j, "tokenizer_sha256", p->tokenizer_sha256, SHA_LEN) |
		 take_text(j, "target", p->target, sizeof p->target) | take_text(j, "proxy", p->proxy, sizeof p->proxy);
	json_decref(j);
	return rc ? err_set(err, "%s: its header does not say which pair it is for", name) : 0;
}

static int check_pair(const struct mapper *m, const struct mapper_pair *want, const char *name, char err[ERR_LEN])
{
	const struct mapper_pair *have = &m->pair;
	const struct {
		const char *what, *have, *want;
	} parts[] = {{"target", have->target_sha256, want->target_sha256}, {"proxy", have->proxy_sha256, want->proxy_sha256},
		{"tokenizer", have->tokenizer_sha256, want->tokenizer_sha256}};
	for (int i = 0; i < 3; i++)
		if (strcmp(parts[i].have, parts[i].want) != 0)
			return err_set(err,
				"%s: is a mapper from %s to %s, of another %s (%.12s..., not %.12s...); train one for this pair",
				name, have->proxy, have->target, parts[i].what, parts[i].have, parts[i].want);
	return 0;
}

static void take_ratios(const json_t *j, const char *key, double *out)
{
	for (int i = 0; i < MAPPER_RATIOS; i++)
		out[i] = json_number_value(json_array_get(json_object_get(j, key), (size_t)i));
}

static int read_record(struct mapper *m, const struct st_file *f, const char *name, char err[ERR_LEN])
{
	struct mapper_record *r = &m->record;
	json_t *j = read_json(f, "record", name, err);
	if (!j)
		return -1;
	r->contexts = (int)json_integer_value(json_object_get(j, "contexts"));
	r->valid_contexts = (int)json_integer_value(json_object_get(j, "valid_contexts"));
	r->steps = (int)json_integer_value(json_object_get(j, "steps"));
	r->best_step = (int)json_integer_value(json_object_get(j, "best_step"));
	r->positions = json_integer_value(json_object_get(j, "positions"));
	take_ratios(j, "recall", r->recall);
	take_ratios(j, "prior_recall", r->prior_recall);
	take_ratios(j, "head_recall", r->head_recall);
	json_decref(j);
	return 0;
}

static int read_contexts(struct mapper *m, const struct st_file *f, const char *name, char err[ERR_LEN])
{
	json_t *j = read_json(f, "contexts", name, err);
	if (!j)
		return -1;
	int rc = 0;
	m->n_contexts = (int)json_array_size(j);
	m->contexts = mem_new((size_t)m->n_contexts + 1, SHA_LEN);
	for (int i = 0; i < m->n_contexts && rc == 0; i++) {
		const char *v = json_string_value(json_array_get(j, (size_t)i));
		if (!v || strlen(v) != SHA_LEN - 1 || (i && strcmp(m->contexts[i - 1], v) >= 0))
			rc = err_set(err, "%s: its list of training contexts is broken at %d", name, i);
		else
			memcpy(m->contexts[i], v, SHA_LEN);
	}
	json_decref(j);
	return rc;
}

/* A tensor of exactly this shape, finite, as fp32 into `out`. */
static int read_tensor(const struct st_file *f, const struct st_tensor *want, float *out, const char *name, char err[ERR_LEN])
{
	const struct st_tensor *t = st_find(f, want->name);
	bool same = t && t->type == want->type && t->n_dims == want->n_dims;
	for (int d = 0; same && d < want->n_dims; d++)
		same = t->dims[d] == want->dims[d];
	if (!same)
		return err_set(err, "%s: tensor %s is missing or not of the shape its configuration says", name, want->name);
	st_to_f32(t, 0, t->count, out);
	for (int64_t i = 0; i < t->count; i++)
		if (!isfinite(out[i]))
			return err_set(err, "%s: tensor %s holds a value that is not finite", name, want->name);
	return 0;
}

static int read_tensors(struct mapper *m, const struct st_file *f, const char *name, char err[ERR_LEN])
{
	struct st_tensor t[STATISTICS];
	float moments[2];
	float *const into[STATISTICS] = {m->feature_mean, m->feature_dev, moments, m->level, m->spread, m->share};
	for (int i = 0; i < m->layout.n; i++) {
		const struct st_tensor want = param_tensor(m, &m->layout.p[i]);
		if (read_tensor(f, &want, m->params + m->layout.p[i].at, name, err))
			return -1;
	}
	statistics_tensors(m, NULL, t);
	for (int i = 0; i < STATISTICS; i++)
		if (read_tensor(f, &t[i], into[i], name, err))
			return -1;
	const struct st_tensor *exact = st_find(f, "target.moments");
	memcpy(&m->z_mean, exact->data, sizeof m->z_mean);
	memcpy(&m->z_dev, (const char *)exact->data + sizeof m->z_mean, sizeof m->z_dev);
	for (int64_t i = 0; i < (int64_t)m->config.proxy_layers * m->config.proxy_heads; i++)
		if (!(m->feature_dev[i] > 0))
			return err_set(err, "%s: deviation %lld of the features is not above 0", name, (long long)i);
	return 0;
}

/* What the file is for, before anything is allocated by its word: a damaged number must not ask for more than the file can hold. */
static int read_config(struct mapper_config *c, const struct st_file *f, const char *name, const char *text, char err[ERR_LEN])
{
	struct layout layout;
	char why[ERR_LEN];
	if (mapper_config_parse(c, text, why) || config_check(c, why))
		return err_set(err, "%s: %s", name, why);
	layout_make(&layout, c);
	if (layout.count > st_bytes(f) / sizeof(float))
		return err_set(err, "%s: its configuration has %zu weights, more than the file can hold", name, layout.count);
	return 0;
}

/* Owns f. */
static int read_file(struct mapper **out, struct st_file *f, const char *name, const struct mapper_pair *pair, char err[ERR_LEN])
{
	struct mapper_config c;
	struct mapper *m = NULL;
	const char *format = st_metadata(f, "format"), *config = st_metadata(f, "config");
	int rc = -1;
	if (!format || !config || strcmp(format, FORMAT) != 0) {
		err_set(err, "%s: is no mapper of this version (%s)", name, FORMAT);
		goto cleanup;
	}
	if (read_config(&c, f, name, config, err) || !(m = mapper_new(&c, err)))
		goto cleanup;
	if (read_pair(m, f, name, err) || (pair && check_pair(m, pair, name, err)) || read_record(m, f, name, err) ||
		read_contexts(m, f, name, err) || read_tensors(m, f, name, err))
		goto cleanup;
	rc = 0;
	*out = m;
cleanup:
	if (rc)
		mapper_free(m);
	st_close(f);
	return rc;
}

int mapper_read(struct mapper **out, const char *path, const struct mapper_pair *pair, char err[ERR_LEN])
{
	struct st_file *f;
	return st_open(&f, path, err) ? -1 : read_file(out, f, path, pair, err);
}

int mapper_read_memory(
	struct mapper **out, const char *name, const void *data, size_t len, const struct mapper_pair *pair, char err[ERR_LEN])
{
	struct st_file *f;
	return st_open_memory(&f, name, data, len, err) ? -1 : read_file(out, f, name, pair, err);
}
