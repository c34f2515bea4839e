/* calibrate.c: the static head table of kvzip@head (methods.md 3.1, step 4 "head"): for each (layer, KV head) the largest KVzip score
 * over the positions of a context, maximised over calibration contexts. Written as safetensors keyed by the model's hash. */
#include "runners/runner_impl.h"

#include <stdlib.h>

/* Raises heads[] to the maxima of one context's scores. */
static void heads_raise(float *heads, const struct scoring *g, int n_heads)
{
	for (int i = 0; i < n_heads; i++)
		for (int64_t j = 0; j < g->shape.count; j++) {
			float x = g->scores[i * g->shape.count + j];
			heads[i] = x > heads[i] ? x : heads[i];
		}
}

int runner_calibrate_heads(struct runner *r, const char *const *contexts, int n, const char *folder, char **path, char err[ERR_LEN])
{
	int n_heads = r->info.layers * r->info.kv_heads, rc = 0;
	float *heads = mem_new((size_t)n_heads, sizeof *heads);
	struct runner_variant kvzip = {"kvzip", 1.0, NULL};
	struct runner_question none = {.text = "", .max_new_tokens = 1};
	for (int i = 0; i < n && !rc; i++) {
		struct runner_job job = {.context = contexts[i], .chat = true, .questions = &none, .n_questions = 1, .variants = &kvzip, .n_variants = 1};
		struct prompt prompt;
		struct prompt_question pq;
		struct session s = {0};
		rc = prompt_make(r, &job, 0, &prompt, &pq, err) || session_open(&s, r, &job, &prompt, NULL, err);
		if (!rc && s.scoring_error[0][0])
			rc = err_set(err, "%s", s.scoring_error[0]);
		if (!rc)
			heads_raise(heads, &s.scoring[0], n_heads);
		session_close(&s);
		prompt_free(&prompt);
		prompt_question_free(&pq);
	}
	if (!rc)
		rc = head_table_write(folder ? folder : r->calibration_folder, r->info.model_sha256, r->info.layers, r->info.kv_heads, heads, n, path, err);
	free(heads);
	return rc ? -1 : 0;
}
