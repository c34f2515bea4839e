/* checkpoint.c: the state of a training between two steps, so that one that was cut off ends with the same weights. */
#include "runners/mapper/impl.h"
#include "runners/model/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FORMAT[] = "kvbench-mapper-checkpoint 1";

static void vectors(const struct train_state *s, struct st_tensor t[4])
{
	static const char *const names[4] = {"params", "moment1", "moment2", "best"};
	float *const data[4] = {s->m->params, s->moment1, s->moment2, s->best};
	for (int i = 0; i < 4; i++)
		t[i] = (struct st_tensor){
			.name = names[i], .type = ST_F32, .n_dims = 1, .dims = {(int64_t)s->m->layout.count}, .data = data[i]};
}

int checkpoint_write(const struct train_state *s, const char *path, const char *sets, char err[ERR_LEN])
{
	struct st_tensor t[4];
	char state[256], *config = mapper_config_json(&s->m->config);
	snprintf(state, sizeof state, "{\"step\":%d,\"best_step\":%d,\"misses\":%d,\"best_recall\":%.17g,\"ns\":%lld}", s->step,
		s->best_step, s->misses, s->best_recall, (long long)s->ns);
	const struct st_meta meta[] = {{"format", FORMAT}, {"config", config}, {"sets", sets}, {"state", state}};
	vectors(s, t);
	int rc = st_write(path, t, 4, meta, 4, err);
	free(config);
	return rc;
}

static int take_state(struct train_state *s, const struct st_file *f)
{
	const char *text = st_metadata(f, "state");
	json_t *j = text ? json_loads(text, 0, NULL) : NULL, *ns = json_object_get(j, "ns");
	int rc = json_is_integer(ns) ? 0 : -1;
	s->step = (int)json_integer_value(json_object_get(j, "step"));
	s->best_step = (int)json_integer_value(json_object_get(j, "best_step"));
	s->misses = (int)json_integer_value(json_object_get(j, "misses"));
	s->best_recall = json_number_value(json_object_get(j, "best_recall"));
	s->ns = json_integer_value(ns);
	json_decref(j);
	if (s->step < 0 || s->step > s->m->config.steps || s->best_step < 0 || s->best_step > s->step || s->misses < 0)
		return -1;
	return rc;
}

static int same(const struct st_file *f, const char *key, const char *value)
{
	const char *have = st_metadata(f, key);
	return have && strcmp(have, value) == 0;
}

int checkpoint_read(struct train_state *s, const char *path, const char *sets, char err[ERR_LEN])
{
	struct st_file *f = NULL;
	struct st_tensor want[4];
	int rc = -1;
	if (!file_exists(path))
		return 0;
	if (st_open(&f, path, err))
		return -1;
	char *config = mapper_config_json(&s->m->config);
	if (!same(f, "format", FORMAT) || !same(f, "config", config) || !same(f, "sets", sets)) {
		err_set(err, "%s: is the checkpoint of another training (options or contexts differ); remove it to begin anew",
			path);
		goto cleanup;
	}
	vectors(s, want);
	for (int i = 0; i < 4; i++) {
		const struct st_tensor *t = st_find(f, want[i].name);
		if (!t || t->type != ST_F32 || t->count != want[i].dims[0]) {
			err_set(err, "%s: tensor %s is missing or of another size; remove the file to begin anew", path,
				want[i].name);
			goto cleanup;
		}
		st_to_f32(t, 0, t->count, (float *)want[i].data);
	}
	rc = take_state(s, f) ? err_set(err, "%s: its state cannot be read; remove the file to begin anew", path) : 1;
cleanup:
	free(config);
	st_close(f);
	return rc;
}
