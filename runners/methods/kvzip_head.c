/* kvzip_head.c: KVzip's static head scores (arXiv 2505.23416, "head"): one number for each KV head of a model, made once by
 * `kvbench calibrate kvzip-head` (the largest KVzip score of the head over the calibration contexts) and spread over its
 * positions. spec/methods.md 3.1 step 4, 6.3. No second pass at run time. The authors calibrate on one QA sample and one of code;
 * ours on seeded NIAH contexts, because no table of theirs fits our models. */
#include "runners/methods/parts.h"

#include <stdlib.h>

static int finish(struct scoring *s, char err[ERR_LEN])
{
	int heads = s->layers * s->kv_heads;
	float *table = mem_new((size_t)heads, sizeof(*table));
	int rc = head_table_read(s->calibration_folder, s->model_sha256, s->layers, s->kv_heads, table, err);
	for (int i = 0; i < heads && rc == 0; i++)
		for (int64_t j = 0; j < s->shape.count; j++)
			s->scores[i * s->shape.count + j] = table[i];
	free(table);
	return rc;
}

static const struct compat_mode modes[] = {{"kvzip", NULL}, {NULL, NULL}};

const struct scorer scorer_kvzip_head = {.name = "kvzip-head",
	.title = "KVzip's static score of each head (calibrated once)",
	.origin = "KVzip, arXiv 2505.23416",
	.compat = modes,
	.mass = MASS_ALIKE,
	.finish = finish};
