/* scores_file.c: importance made elsewhere: a safetensors file with one tensor for each context, so that a method written in
 * Python is judged on this bench without a line of C.
 *
 * The tensor "<context sha256>.scores" (or the hash alone) is [layers, kv_heads, context tokens], any float type, larger = keep;
 * NaN fails the row. The hash is over the context's token ids (int32, little-endian, without template and question): `kvbench
 * scores` writes such a file, with the ids beside the scores. Method text: scores:FILE[@ALLOCATOR], global by default. */
#include "runners/methods/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void file_of(const struct params *p, struct trained_request *q)
{
	snprintf(q->kind, sizeof q->kind, "scores");
	q->option = "file";
	q->weights = param_text(p, q->option);
	q->make = "kvbench scores PLAN, or a program of your own";
	q->must_name = true;
}

static int read_file(void **out, const char *path, void *user, char err[ERR_LEN])
{
	(void)user;
	return st_open((struct st_file **)out, path, err);
}

static void close_file(void *f)
{
	st_close(f);
}

static int finish(struct scoring *s, char err[ERR_LEN])
{
	const char *path = param_text(s->params, "file");
	char name[SHA_LEN + 8];
	const struct st_file *f = trained_store_get(s->weights, path, read_file, NULL, close_file, err);
	if (!f)
		return -1;
	snprintf(name, sizeof name, "%s.scores", s->context_sha256);
	const struct st_tensor *t = st_find(f, name);
	t = t ? t : st_find(f, s->context_sha256);
	if (!t)
		return err_set(err, "%s: has no scores of this context (%s)", path, name);
	if (t->n_dims != 3 || t->dims[0] != s->layers || t->dims[1] != s->kv_heads || t->dims[2] != s->shape.count ||
		(t->type != ST_F64 && t->type != ST_F32 && t->type != ST_F16 && t->type != ST_BF16))
		return err_set(err, "%s: %s is no float tensor of %d layers x %d KV heads x %lld tokens", path, t->name,
			s->layers, s->kv_heads, (long long)s->shape.count);
	st_to_f32(t, 0, t->count, s->scores);
	return 0;
}

static const struct param_def defs[] = {
	{.name = "file", .kind = PARAM_TEXT, .text = "", .origin = "a safetensors file, keyed by the context's hash"}, {NULL}};

const struct scorer scorer_scores = {.name = "scores",
	.title = "importance read from a file (scores:FILE)",
	.origin = "ours",
	.params = defs,
	.file = file_of,
	.context_alone = true,
	.mass = MASS_NONE,
	.finish = finish};
