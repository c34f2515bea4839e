/* shard.c: see shard.h. */
#include "runners/lkv/shard.h"

#include "runners/model/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lkv_shard_free(struct lkv_shard *s)
{
	for (int i = 0; i < s->n_tails; i++)
		free(s->tail[i].ids);
	free(s->tail);
	free(s->ids);
	*s = (struct lkv_shard){0};
}

void lkv_shard_tail(struct lkv_shard *s, const int32_t *a, int n_a, const int32_t *b, int n_b)
{
	s->tail = mem_grow(s->tail, (size_t)s->n_tails + 1, sizeof *s->tail);
	struct lkv_tail *t = &s->tail[s->n_tails++];
	*t = (struct lkv_tail){mem_new((size_t)(n_a + n_b), sizeof(int32_t)), n_a + n_b, n_a};
	memcpy(t->ids, a, (size_t)n_a * sizeof *a);
	memcpy(t->ids + n_a, b, (size_t)n_b * sizeof *b);
}

static struct st_tensor ints(const char *name, const int32_t *v, int64_t n)
{
	return (struct st_tensor){.name = name, .type = ST_I32, .n_dims = 1, .dims = {n}, .data = v};
}

int lkv_shard_write(const struct lkv_shard *s, const char *path, char err[ERR_LEN])
{
	int all = 0, at = 0;
	char prefix[16];
	for (int i = 0; i < s->n_tails; i++)
		all += s->tail[i].n;
	int32_t *block = mem_new((size_t)(all + 2 * s->n_tails), sizeof *block), *len = block + all, *answer = len + s->n_tails;
	for (int i = 0; i < s->n_tails; i++) {
		memcpy(block + at, s->tail[i].ids, (size_t)s->tail[i].n * sizeof *block);
		at += len[i] = s->tail[i].n;
		answer[i] = s->tail[i].answer;
	}
	snprintf(prefix, sizeof prefix, "%d", s->prefix);
	const struct st_tensor t[] = {ints("ids", s->ids, s->n), ints("tails", block, all), ints("tail_len", len, s->n_tails),
		ints("tail_answer", answer, s->n_tails)};
	const struct st_meta meta[] = {{"kind", "lkv-shard"}, {"prefix", prefix}, {"id", s->id}, {"split", s->split},
		{"target_sha256", s->target_sha256}, {"tokenizer_sha256", s->tokenizer_sha256},
		{"context_sha256", s->context_sha256}};
	int rc = st_write(path, t, 4, meta, sizeof meta / sizeof *meta, err);
	free(block);
	return rc;
}

/* A tensor of int32 in [0, below); NULL = wrong. Caller frees. */
static int32_t *ints_read(const struct st_file *f, const char *name, int below, int *n)
{
	const struct st_tensor *t = st_find(f, name);
	if (!t || t->type != ST_I32 || t->n_dims != 1 || t->count < 1 || t->count > 1 << 28)
		return NULL;
	int32_t *v = mem_new((size_t)t->count, sizeof *v);
	memcpy(v, t->data, (size_t)t->count * sizeof *v);
	*n = (int)t->count;
	for (int i = 0; i < *n; i++)
		if (v[i] < 0 || v[i] >= below) {
			free(v);
			return NULL;
		}
	return v;
}

static int tails_read(struct lkv_shard *s, const struct st_file *f, int vocab)
{
	int all = 0, n = 0, n_answer = 0, at = 0, rc = 0;
	int32_t *ids = ints_read(f, "tails", vocab, &all), *len = ints_read(f, "tail_len", 1 << 28, &n),
		*answer = ints_read(f, "tail_answer", 1 << 28, &n_answer);
	if (!ids || !len || !answer || n != n_answer)
		rc = -1;
	for (int i = 0; i < n && !rc; i++) {
		if (answer[i] < 1 || answer[i] >= len[i] || len[i] > all - at)
			rc = -1;
		else
			lkv_shard_tail(s, ids + at, answer[i], ids + at + answer[i], len[i] - answer[i]);
		at += len[i];
	}
	free(ids);
	free(len);
	free(answer);
	return rc;
}

static void text_of(const struct st_file *f, const char *key, char *out, size_t size)
{
	const char *v = st_metadata(f, key);
	snprintf(out, size, "%s", v ? v : "");
}

int lkv_shard_read(struct lkv_shard *out, const char *path, int vocab, char err[ERR_LEN])
{
	struct st_file *f = NULL;
	*out = (struct lkv_shard){0};
	if (st_open(&f, path, err))
		return -1;
	const char *kind = st_metadata(f, "kind"), *prefix = st_metadata(f, "prefix");
	out->prefix = prefix ? atoi(prefix) : -1;
	text_of(f, "id", out->id, sizeof out->id);
	text_of(f, "split", out->split, sizeof out->split);
	text_of(f, "target_sha256", out->target_sha256, SHA_LEN);
	text_of(f, "tokenizer_sha256", out->tokenizer_sha256, SHA_LEN);
	text_of(f, "context_sha256", out->context_sha256, SHA_LEN);
	int rc = 0;
	if (!kind || strcmp(kind, "lkv-shard"))
		rc = err_set(err, "%s: is no shard of LKV", path);
	else if (!(out->ids = ints_read(f, "ids", vocab, &out->n)) || out->prefix < 0 || out->prefix >= out->n ||
		 tails_read(out, f, vocab))
		rc = err_set(err, "%s: ids or tails are wrong for this model", path);
	st_close(f);
	if (rc)
		lkv_shard_free(out);
	return rc;
}

static int is_shard(const struct dirent *e)
{
	size_t n = strlen(e->d_name);
	return n > 12 && e->d_name[0] != '.' && !strcmp(e->d_name + n - 12, ".safetensors");
}

int lkv_shards_read(struct lkv_shard **out, int *n, const char *folder, const char *target_sha256, int vocab, char err[ERR_LEN])
{
	struct dirent **name;
	int found = scandir(folder, &name, is_shard, alphasort), rc = 0;
	*n = 0;
	*out = NULL;
	if (found < 0)
		return err_set(err, "the folder of shards %s: %s", folder, strerror(errno));
	*out = mem_new((size_t)found + 1, sizeof **out);
	for (int i = 0; i < found; i++) {
		char *path = text_format("%s/%s", folder, name[i]->d_name);
		if (!rc && !(rc = lkv_shard_read(&(*out)[*n], path, vocab, err)) &&
			strcmp((*out)[(*n)++].target_sha256, target_sha256))
			rc = err_set(err, "%s: was collected from another model", path);
		free(path);
		free(name[i]);
	}
	free(name);
	for (int i = 0; rc && i < *n; i++)
		lkv_shard_free(&(*out)[i]);
	return rc;
}
