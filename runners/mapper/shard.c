/* shard.c: the file of one training context: features X of one or several kinds and the oracle Y, raw, in fp16.
 *
 * fp16 is enough: what is learned from has a floor of 1e-6 under its logarithm, and fp16's smallest step is 6e-8. Sums of very
 * long contexts that leave its range are clamped. */
#include "runners/mapper/impl.h"
#include "runners/model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FORMAT[] = "kvbench-shard 1", FEATURE[] = "feature.", ORACLE[] = "oracle", AGAIN[] = "oracle.again";
static const float HALF_MAX = 65504;

static void to_half(const float *from, int64_t n, _Float16 *to)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = (_Float16)(from[i] > HALF_MAX ? HALF_MAX : from[i]);
}

static int tensors(const struct shard *s)
{
	return s->n_features + 1 + (s->again != NULL);
}

static int write_tensors(const struct shard *s, const char *path, struct st_tensor *t, char (*names)[48], char err[ERR_LEN])
{
	char numbers[3][32];
	snprintf(numbers[0], sizeof numbers[0], "%d", s->proxy_kv_heads);
	const struct st_meta meta[] = {{"format", FORMAT}, {"context_sha256", s->context_sha256}, {"split", s->split},
		{"id", s->id}, {"proxy_kv_heads", numbers[0]}, {"target_sha256", s->pair.target_sha256},
		{"proxy_sha256", s->pair.proxy_sha256}, {"tokenizer_sha256", s->pair.tokenizer_sha256},
		{"target", s->pair.target}, {"proxy", s->pair.proxy}, {"settings", s->settings}};
	int rc = 0;
	for (int i = 0; i < tensors(s) && rc == 0; i++) {
		const struct shard_feature *f = i < s->n_features ? &s->feature[i] : NULL;
		const bool again = i > s->n_features;
		const float *from = f ? f->x : again ? s->again : s->oracle;
		t[i] = (struct st_tensor){.name = names[i],
			.type = ST_F16,
			.n_dims = 3,
			.dims = {f ? f->layers : s->layers, f ? f->heads : s->kv_heads, s->n}};
		const int64_t count = t[i].dims[0] * t[i].dims[1] * t[i].dims[2];
		_Float16 *half = malloc((size_t)count * sizeof *half);
		if (!half)
			return err_set(err, "cannot write %s: out of memory", path);
		to_half(from, count, half);
		t[i].data = half;
		snprintf(names[i], sizeof names[i], "%s%s", f ? FEATURE : "", f ? f->name : again ? AGAIN : ORACLE);
	}
	return st_write(path, t, (size_t)tensors(s), meta, sizeof meta / sizeof *meta, err);
}

int shard_write(const struct shard *s, const char *path, char err[ERR_LEN])
{
	struct st_tensor t[SHARD_FEATURES + 2] = {0};
	char names[SHARD_FEATURES + 2][48];
	if (s->n_features < 0 || s->n_features > SHARD_FEATURES)
		return err_set(
			err, "cannot write %s: a shard holds up to %d features, not %d", path, SHARD_FEATURES, s->n_features);
	int rc = write_tensors(s, path, t, names, err);
	for (int i = 0; i < tensors(s); i++)
		free((void *)t[i].data);
	return rc;
}

/* ---- reading ---- */
static int copy_text(const struct st_file *f, const char *key, char *out, size_t size, const char *path, char err[ERR_LEN])
{
	const char *v = st_metadata(f, key);
	if (!v || strlen(v) >= size)
		return err_set(err, "%s: is no shard: its header lacks %s", path, key);
	memcpy(out, v, strlen(v) + 1);
	return 0;
}

static int read_header(struct shard *s, const struct st_file *f, const char *path, char err[ERR_LEN])
{
	char format[32], heads[32];
	if (copy_text(f, "format", format, sizeof format, path, err) || strcmp(format, FORMAT) != 0)
		return err_set(err, "%s: is no shard of this version (%s)", path, FORMAT);
	if (copy_text(f, "context_sha256", s->context_sha256, SHA_LEN, path, err) ||
		copy_text(f, "split", s->split, sizeof s->split, path, err) ||
		copy_text(f, "id", s->id, sizeof s->id, path, err) ||
		copy_text(f, "proxy_kv_heads", heads, sizeof heads, path, err) ||
		copy_text(f, "target_sha256", s->pair.target_sha256, SHA_LEN, path, err) ||
		copy_text(f, "proxy_sha256", s->pair.proxy_sha256, SHA_LEN, path, err) ||
		copy_text(f, "tokenizer_sha256", s->pair.tokenizer_sha256, SHA_LEN, path, err) ||
		copy_text(f, "target", s->pair.target, sizeof s->pair.target, path, err) ||
		copy_text(f, "proxy", s->pair.proxy, sizeof s->pair.proxy, path, err))
		return -1;
	s->proxy_kv_heads = atoi(heads);
	const char *settings = st_metadata(f, "settings");
	snprintf(s->settings, sizeof s->settings, "%s", settings ? settings : "");
	return 0;
}

static bool shard_tensor(const struct st_tensor *t)
{
	return t->type == ST_F16 && t->n_dims == 3 && t->dims[0] > 0 && t->dims[1] > 0 && t->dims[2] > 0 && t->dims[0] <= 1024 &&
	       t->dims[1] <= 1024;
}

static int read_arrays(struct shard *s, const struct st_file *f, const char *path, char err[ERR_LEN])
{
	const struct st_tensor *y = st_find(f, ORACLE), *again = st_find(f, AGAIN);
	if (!y || !shard_tensor(y))
		return err_set(err, "%s: has no fp16 tensor \"oracle\" of three dimensions", path);
	if (again && (!shard_tensor(again) || memcmp(again->dims, y->dims, 3 * sizeof *y->dims)))
		return err_set(err, "%s: %s does not fit the oracle", path, AGAIN);
	s->layers = (int)y->dims[0];
	s->kv_heads = (int)y->dims[1];
	s->n = y->dims[2];
	for (size_t i = 0; i < st_count(f); i++) {
		const struct st_tensor *t = st_at(f, i);
		if (strncmp(t->name, FEATURE, strlen(FEATURE)) != 0)
			continue;
		struct shard_feature *x = &s->feature[s->n_features];
		if (s->n_features == SHARD_FEATURES || !shard_tensor(t) || t->dims[2] != s->n ||
			strlen(t->name + strlen(FEATURE)) >= sizeof x->name)
			return err_set(err, "%s: feature %s does not fit the oracle", path, t->name);
		*x = (struct shard_feature){.layers = (int)t->dims[0], .heads = (int)t->dims[1]};
		snprintf(x->name, sizeof x->name, "%s", t->name + strlen(FEATURE));
		s->n_features++;
	}
	return 0;
}

int shard_open(struct shard *out, const char *path, char err[ERR_LEN])
{
	struct st_file *f = NULL;
	memset(out, 0, sizeof *out);
	if (st_open(&f, path, err))
		return -1;
	if (read_header(out, f, path, err) || read_arrays(out, f, path, err)) {
		st_close(f);
		memset(out, 0, sizeof *out);
		return -1;
	}
	out->file = f;
	return 0;
}

void shard_close(struct shard *s)
{
	st_close(s->file);
	s->file = NULL;
}

int shard_read_feature(const struct shard *s, const char *name, float *out, char err[ERR_LEN])
{
	char full[48];
	snprintf(full, sizeof full, "%s%s", FEATURE, name);
	const struct st_tensor *t = st_find(s->file, full);
	if (!t)
		return err_set(err, "the shard of %s has no feature %s", s->id, name);
	st_to_f32(t, 0, t->count, out);
	return 0;
}

void shard_read_oracle(const struct shard *s, float *out)
{
	const struct st_tensor *t = st_find(s->file, ORACLE);
	st_to_f32(t, 0, t->count, out);
}

bool shard_has_again(const struct shard *s)
{
	return st_find(s->file, AGAIN) != NULL;
}

void shard_read_again(const struct shard *s, float *out)
{
	const struct st_tensor *t = st_find(s->file, AGAIN);
	st_to_f32(t, 0, t->count, out);
}
