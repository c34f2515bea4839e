/* head_table.c: the file of kvzip@head: one fp32 tensor "heads" [layers, kv_heads], named and checked by the model's hash. */
#include "runners/methods/method.h"
#include "runners/model/safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *table_path(const char *folder, const char *model_sha256)
{
	return text_format("%s/kvzip-head-%.16s.safetensors", folder, model_sha256);
}

int head_table_read(const char *folder, const char *model_sha256, int layers, int kv_heads, float *out, char err[ERR_LEN])
{
	char *path = folder && model_sha256 ? table_path(folder, model_sha256) : NULL;
	struct st_file *file = NULL;
	int rc = -1;
	if (!path || !file_exists(path)) {
		err_set(err, "kvzip@head needs this model's head table%s%s; make it with: kvbench calibrate kvzip-head",
			path ? ", no file " : "", path ? path : "");
		goto cleanup;
	}
	if (st_open(&file, path, err))
		goto cleanup;
	const struct st_tensor *t = st_find(file, "heads");
	const char *made_for = st_metadata(file, "model_sha256");
	if (!made_for || strcmp(made_for, model_sha256) != 0) {
		err_set(err, "%s: was made for another model; make it again with: kvbench calibrate kvzip-head", path);
		goto cleanup;
	}
	if (!t || t->type != ST_F32 || t->n_dims != 2 || t->dims[0] != layers || t->dims[1] != kv_heads) {
		err_set(err, "%s: has no fp32 tensor \"heads\" of %d x %d", path, layers, kv_heads);
		goto cleanup;
	}
	st_to_f32(t, 0, t->count, out);
	for (int64_t i = 0; i < t->count; i++)
		if (!isfinite(out[i])) {
			err_set(err, "%s: head %lld is not a finite number", path, (long long)i);
			goto cleanup;
		}
	rc = 0;
cleanup:
	st_close(file);
	free(path);
	return rc;
}

int head_table_write(const char *folder, const char *model_sha256, int layers, int kv_heads, const float *heads, int contexts,
	char **path, char err[ERR_LEN])
{
	char number[16];
	snprintf(number, sizeof(number), "%d", contexts);
	const struct st_tensor t = {.name = "heads", .type = ST_F32, .n_dims = 2, .dims = {layers, kv_heads}, .data = heads};
	const struct st_meta meta[] = {
		{"model_sha256", model_sha256}, {"contexts", number}, {"made_by", "kvbench calibrate kvzip-head"}};
	*path = NULL;
	if (mkdir(folder, 0777) && errno != EEXIST)
		return err_set(err, "cannot make the folder %s: %s", folder, strerror(errno));
	*path = table_path(folder, model_sha256);
	if (st_write(*path, &t, 1, meta, 3, err) == 0)
		return 0;
	free(*path);
	*path = NULL;
	return -1;
}
