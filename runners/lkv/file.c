/* file.c: see file.h. */
#include "runners/lkv/file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct st_tensor tensor_of(const struct lkv_net *net, enum lkv_tensor t)
{
	struct st_tensor out = {.name = lkv_tensor_name(t), .type = ST_F32, .data = net->p[t]};
	lkv_tensor_dims(&net->shape, t, out.dims, &out.n_dims);
	return out;
}

/* Tensors of H are written for the paper's form alone. */
static bool has(const struct lkv_shape *s, int t)
{
	return s->kind == LKV_HEAD || t < LKV_OF_T || t >= LKV_TRAINED;
}

static char *shape_json(const struct lkv_shape *s)
{
	json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:b}", "kind", lkv_kind_name(s->kind), "layers",
		s->layers, "kv_heads", s->kv_heads, "head_dim", s->d, "hidden", s->hid, "embedding", s->emb, "key", s->key,
		"value", s->value, "pre", s->pre);
	char *text = json_dumps(o, JSON_SORT_KEYS | JSON_COMPACT);
	json_decref(o);
	return text;
}

int lkv_file_write(const char *path, const struct lkv_net *net, const struct lkv_origin *o, char err[ERR_LEN])
{
	struct st_tensor t[LKV_TENSORS];
	size_t n = 0;
	char *shape = shape_json(&net->shape);
	for (int i = 0; i < LKV_TENSORS; i++)
		if (has(&net->shape, i))
			t[n++] = tensor_of(net, i);
	const struct st_meta meta[] = {{"kind", lkv_kind_name(net->shape.kind)}, {"target_sha256", o->target_sha256},
		{"proxy_sha256", ""}, {"tokenizer_sha256", o->tokenizer_sha256}, {"trained_on", o->trained_on}, {"shape", shape},
		{"record", o->record}, {"made_by", o->made_by}};
	int rc = st_write(path, t, n, meta, sizeof meta / sizeof *meta, err);
	free(shape);
	return rc;
}

static int shape_read(struct lkv_shape *s, const char *text, const char *name, char err[ERR_LEN])
{
	json_error_t bad;
	json_t *o = json_loads(text ? text : "", 0, &bad);
	const char *kind = NULL;
	int key, value, pre;
	*s = (struct lkv_shape){.kind = LKV_KINDS};
	if (!o || json_unpack_ex(o, &bad, 0, "{s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:b}", "kind", &kind, "layers", &s->layers,
			  "kv_heads", &s->kv_heads, "head_dim", &s->d, "hidden", &s->hid, "embedding", &s->emb, "key", &key,
			  "value", &value, "pre", &pre)) {
		json_decref(o);
		return err_set(err, "%s: its shape cannot be read: %s", name, bad.text);
	}
	for (int i = 0; i < LKV_KINDS; i++)
		if (!strcmp(kind, lkv_kind_name(i)))
			s->kind = i;
	s->key = key;
	s->value = value;
	s->pre = pre;
	json_decref(o);
	if (s->kind == LKV_KINDS || s->hid < 1 || s->hid > 512 || s->emb < 1 || s->emb > 512 || !(s->key || s->value))
		return err_set(err, "%s: has a shape that does not exist", name);
	return 0;
}

static int tensor_read_into(float *out, const struct st_file *f, const char *tensor, const int64_t *dims, int n_dims,
	const char *name, char err[ERR_LEN])
{
	const struct st_tensor *t = st_find(f, tensor);
	bool fits = t && t->type == ST_F32 && t->n_dims == n_dims;
	for (int i = 0; i < n_dims && fits; i++)
		fits = t->dims[i] == dims[i];
	if (!fits)
		return err_set(err, "%s: has no fp32 tensor \"%s\" of the right shape", name, tensor);
	st_to_f32(t, 0, t->count, out);
	for (int64_t i = 0; i < t->count; i++)
		if (!isfinite(out[i]))
			return err_set(err, "%s: number %lld of \"%s\" is not finite", name, (long long)i, tensor);
	return 0;
}

static int net_fill(struct lkv_net *net, const struct st_file *f, const char *name, char err[ERR_LEN])
{
	for (int i = 0; i < LKV_TENSORS; i++) {
		int64_t dims[3];
		int n_dims;
		lkv_tensor_dims(&net->shape, i, dims, &n_dims);
		if (has(&net->shape, i) && tensor_read_into(net->p[i], f, lkv_tensor_name(i), dims, n_dims, name, err))
			return -1;
	}
	return 0;
}

int lkv_file_read(
	struct lkv_net **out, const struct st_file *f, const char *name, int layers, int kv_heads, int d, char err[ERR_LEN])
{
	struct lkv_shape s;
	*out = NULL;
	if (shape_read(&s, st_metadata(f, "shape"), name, err))
		return -1;
	if (s.layers != layers || s.kv_heads != kv_heads || s.d != d)
		return err_set(err, "%s: is for %d layers of %d KV heads of %d, the model has %d of %d of %d", name, s.layers,
			s.kv_heads, s.d, layers, kv_heads, d);
	struct lkv_net *net = lkv_net_new(&s, 0);
	if (!net)
		return err_set(err, "%s: out of memory", name);
	if (net_fill(net, f, name, err)) {
		lkv_net_free(net);
		return -1;
	}
	*out = net;
	return 0;
}

/* ---- checkpoints ---- */

char *lkv_recipe_json(const struct lkv_recipe *r)
{
	json_t *o = json_object(), *rates = json_array();
	char *shape = shape_json(&r->shape), *text;
	for (int i = 0; i < LKV_RATES && r->rates[i] > 0; i++)
		json_array_append_new(rates, json_real(r->rates[i]));
	json_object_set_new(o, "rates", rates);
	json_object_set_new(o, "shape", json_loads(shape, 0, NULL));
	const struct {
		const char *name;
		double value;
	} numbers[] = {{"tau0", r->tau0}, {"tau1", r->tau1}, {"gumbel", r->gumbel}, {"lr_t", r->lr_t}, {"lr_h", r->lr_h},
		{"warm", r->warm}, {"clip", r->clip}, {"distil_lr", r->distil_lr}};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		json_object_set_new(o, numbers[i].name, json_real(numbers[i].value));
	json_object_set_new(o, "steps", json_integer(r->steps));
	json_object_set_new(o, "tails", json_integer(r->tails));
	json_object_set_new(o, "distil_steps", json_integer(r->distil_steps));
	json_object_set_new(o, "seed", json_integer((json_int_t)r->seed));
	text = json_dumps(o, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(15));
	json_decref(o);
	free(shape);
	return text;
}

int lkv_checkpoint_write(const char *path, const struct lkv_checkpoint *c, const struct lkv_recipe *r, char err[ERR_LEN])
{
	struct st_tensor t[LKV_TENSORS + 2];
	size_t n = 0;
	char *recipe = lkv_recipe_json(r), done[16], updates[16];
	for (int i = 0; i < LKV_TENSORS; i++)
		if (has(&c->net->shape, i))
			t[n++] = tensor_of(c->net, i);
	t[n++] = (struct st_tensor){.name = "adam.m", .type = ST_F32, .n_dims = 1, .dims = {c->net->trained}, .data = c->m};
	t[n++] = (struct st_tensor){.name = "adam.v", .type = ST_F32, .n_dims = 1, .dims = {c->net->trained}, .data = c->v};
	snprintf(done, sizeof done, "%d", c->done);
	snprintf(updates, sizeof updates, "%d", c->updates);
	const struct st_meta meta[] = {{"recipe", recipe}, {"phase", c->phase}, {"done", done}, {"updates", updates}};
	int rc = st_write(path, t, n, meta, 4, err);
	free(recipe);
	return rc;
}

int lkv_checkpoint_read(const char *path, struct lkv_checkpoint *c, const struct lkv_recipe *r, char err[ERR_LEN])
{
	struct st_file *f = NULL;
	char *recipe = lkv_recipe_json(r);
	int rc = -1;
	if (st_open(&f, path, err))
		goto cleanup;
	const char *made = st_metadata(f, "recipe"), *phase = st_metadata(f, "phase"), *done = st_metadata(f, "done"),
		   *updates = st_metadata(f, "updates");
	if (!made || !phase || !done || !updates || strcmp(made, recipe)) {
		err_set(err, "%s: is a checkpoint of another training; delete it to start anew", path);
		goto cleanup;
	}
	int64_t dims[1] = {c->net->trained};
	if (net_fill(c->net, f, path, err) || tensor_read_into(c->m, f, "adam.m", dims, 1, path, err) ||
		tensor_read_into(c->v, f, "adam.v", dims, 1, path, err))
		goto cleanup;
	c->phase = !strcmp(phase, "train") ? "train" : "distil";
	c->done = atoi(done);
	c->updates = atoi(updates);
	if (c->done < 0 || c->done > (!strcmp(phase, "train") ? r->steps : r->distil_steps) || c->updates < 0) {
		err_set(err, "%s: its steps cannot be read; delete it to start anew", path);
		goto cleanup;
	}
	rc = 0;
cleanup:
	st_close(f);
	free(recipe);
	return rc;
}
