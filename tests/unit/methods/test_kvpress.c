/* test_kvpress.c: compat=kvpress gives the sets kvpress 0.5.5 keeps on two tiny models (Llama with scaled RoPE, Qwen3 with q/k
 * norm), and its scores. Fixtures: tests/fixtures/kvpress, made by tests/oracle/kvpress_sets.py. `tied` names entries whose score
 * equals the threshold within rounding (or whose score is a sentinel): any choice among them is right, all else is fixed. */
#include "tests/unit/methods/methods.h"
#include "runners/model/safetensors.h"

struct fixture {
	json_t *json;
	struct st_file *scores;
	struct engine engine;
	int32_t *ids, *first, *later, *tail, *bare_tail;
	size_t n, n_first, n_later, n_tail, n_bare_tail;
	int heads;
};

static struct fixture fixture_open(const char *model)
{
	struct fixture f = {0};
	char err[ERR_LEN], path[256];
	snprintf(path, sizeof(path), "tests/fixtures/kvpress/%s.json", model);
	f.json = json_file(path);
	snprintf(path, sizeof(path), "tests/fixtures/kvpress/%s.safetensors", model);
	if (st_open(&f.scores, path, err))
		fail_msg("%s", err);
	snprintf(path, sizeof(path), "tests/fixtures/models/%s", model);
	f.engine = engine_open(path, "fp32", NULL, 2, 48); /* the window straddles chunks */
	f.ids = json_ids(json_object_get(f.json, "ids"), &f.n);
	f.first = json_ids(json_object_get(f.json, "kvzip_first"), &f.n_first);
	f.later = json_ids(json_object_get(f.json, "kvzip_next"), &f.n_later);
	f.tail = json_ids(json_object_get(f.json, "kvzip_suffix"), &f.n_tail);
	f.bare_tail = json_ids(json_object_get(f.json, "kvzip_no_template_suffix"), &f.n_bare_tail);
	f.heads = model_config(f.engine.model)->layers * model_config(f.engine.model)->kv_heads;
	return f;
}

static void fixture_close(struct fixture *f)
{
	free(f->ids);
	free(f->first);
	free(f->later);
	free(f->tail);
	free(f->bare_tail);
	engine_close(&f->engine);
	st_close(f->scores);
	json_decref(f->json);
}

static bool starts(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Our name of a press, and its parameters as our options. */
static const char *our_method(const char *press, const json_t *theirs, json_t **options)
{
	static const char *const names[][2] = {{"window_size", "window"}, {"kernel_size", "pool_size"}, {"beta", "beta"},
		{"n_future_positions", "future"}, {"n_sink", "sinks"}, {"use_covariance", "covariance"}, {"use_vnorm", "vnorm"},
		{"epsilon", "epsilon"}, {"lag_size", "lag"}, {"alpha_safeguard", "alpha"}, {"chunk_size", "chunk"}};
	static const char *const presses[][2] = {{"adakv_snapkv", "ada-snapkv"}, {"adakv_expected", "expected-attention@ada"},
		{"snapkv", "snapkv"}, {"pyramidkv", "pyramidkv"}, {"knorm", "knorm"}, {"keydiff", "keydiff"}, {"tova", "tova"},
		{"expected", "expected-attention"}, {"lagkv", "lagkv"}, {"streaming", "streaming-llm"},
		{"kvzip_p10_c64_layerwise", "kvzip@layer"}, {"kvzip", "kvzip"}};
	*options = json_pack("{s:s}", "compat", "kvpress");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		json_t *value = json_object_get(theirs, names[i][0]);
		if (value && !(starts(press, "kvzip") && strcmp(names[i][1], "sinks") == 0))
			json_object_set(*options, names[i][1], value);
	}
	for (size_t i = 0; i < sizeof(presses) / sizeof(*presses); i++)
		if (starts(press, presses[i][0]))
			return presses[i][1];
	fail_msg("press %s has no counterpart here", press);
	return NULL;
}

static void compare_scores(const struct fixture *f, const struct run *r, const char *press, const char *tensor)
{
	const struct st_tensor *t = st_find(f->scores, tensor);
	int64_t n = (int64_t)f->n, first = 0, last = 0;
	if (starts(press, "streaming") || starts(press, "lagkv")) /* 0/1 and ranks: compared as sets */
		return;
	assert_non_null(t);
	assert_int_equal(t->count, f->heads * n);
	float *want = mem_new((size_t)t->count, sizeof(*want));
	st_to_f32(t, 0, t->count, want);
	if (r->m.scorer->protect) {
		struct protection p = r->m.scorer->protect(&r->s, n / 2);
		first = p.first;
		last = p.last;
	}
	double scale = 0, worst = 0;
	for (int i = 0; i < f->heads; i++)
		for (int64_t j = first; j < n - last; j++) {
			scale = fmax(scale, fabs(want[i * n + j]));
			worst = fmax(worst, fabs(want[i * n + j] - r->s.scores[i * n + j]));
		}
	free(want);
	printf("%-28s largest score %.4f, largest difference %.2e of it\n", tensor, scale, worst / scale);
	assert_true(worst <= 2e-5 * scale); /* observed: below 6e-6; a wrong pooling or rotation gives 1e-2 and more */
}

static void mark(bool *flags, const json_t *indices)
{
	for (size_t j = 0; j < json_array_size(indices); j++)
		flags[json_integer_value(json_array_get(indices, j))] = true;
}

static void compare_sets(const struct fixture *f, const struct run *r, const json_t *set)
{
	double ratio = json_real_value(json_object_get(set, "ratio"));
	struct selection sel = selected(&r->m, &r->s, 1 - ratio);
	for (int i = 0; i < f->heads; i++) {
		bool *want = mem_new(f->n, 1), *got = mem_new(f->n, 1), *tied = mem_new(f->n, 1);
		mark(want, json_array_get(json_object_get(set, "keep"), (size_t)i));
		mark(tied, json_array_get(json_object_get(set, "tied"), (size_t)i));
		for (int32_t j = 0; j < sel.len[i]; j++)
			got[sel.index[i][j]] = true;
		for (size_t j = 0; j < f->n; j++)
			if (want[j] != got[j] && !tied[j])
				fail_msg("%s at %g, list %d: entry %zu is %s", json_string_value(json_object_get(set, "press")),
					ratio, i, j, got[j] ? "kept here alone" : "kept by kvpress alone");
		if (!json_array_size(json_array_get(json_object_get(set, "tied"), (size_t)i)))
			assert_int_equal(
				sel.len[i], json_integer_value(json_array_get(json_object_get(set, "count"), (size_t)i)));
		free(want);
		free(got);
		free(tied);
	}
	selection_free(&sel);
}

static void compare_model(const char *model)
{
	struct fixture f = fixture_open(model);
	json_t *sets = json_object_get(f.json, "sets"), *set;
	struct run r = {0};
	size_t i, compared = 0;
	json_array_foreach(sets, i, set)
	{
		const char *press = json_string_value(json_object_get(set, "press"));
		const json_t *theirs = json_object_get(set, "parameters");
		if (theirs) { /* the first ratio of a press: score once, prune for all */
			json_t *options;
			const char *name = our_method(press, theirs, &options);
			bool bare = json_is_false(json_object_get(theirs, "template"));
			int64_t prefix = json_integer_value(json_object_get(theirs, "prefix_length"));
			struct repeat_prompt repeat = {f.first, f.later, bare ? f.bare_tail : f.tail, (int)f.n_first,
				(int)f.n_later, (int)(bare ? f.n_bare_tail : f.n_tail), true};
			char *text = json_dumps(options, 0);
			if (r.engine)
				run_close(&r);
			run_open(&r, &f.engine, name, text, f.ids, prefix, (int64_t)f.n - prefix, 0, &repeat);
			if (r.rc)
				fail_msg("%s: %s", press, r.err);
			compare_scores(&f, &r, press, json_string_value(json_object_get(set, "scores")));
			free(text);
			json_decref(options);
		}
		compare_sets(&f, &r, set);
		compared++;
	}
	run_close(&r);
	printf("%s: %zu sets equal\n", model, compared);
	assert_true(compared >= 80);
	fixture_close(&f);
}

static void sets_equal_kvpress_llama(void **state)
{
	(void)state;
	compare_model("llama-tiny");
}

static void sets_equal_kvpress_qwen3(void **state)
{
	(void)state;
	compare_model("qwen3-tiny");
}

/* P31: the ids of every X_b, against those kvpress built. */
static void p31_repeat_inputs_equal_kvpress(void **state)
{
	(void)state;
	struct fixture f = fixture_open("qwen3-tiny");
	json_t *set;
	size_t i, seen = 0;
	json_array_foreach(json_object_get(f.json, "sets"), i, set)
	{
		const json_t *theirs = json_object_get(set, "parameters"), *inputs = json_object_get(theirs, "repeat_inputs");
		if (!inputs)
			continue;
		bool bare = json_is_false(json_object_get(theirs, "template"));
		int64_t prefix = json_integer_value(json_object_get(theirs, "prefix_length")), start, size, b = 0,
			chunk = json_integer_value(json_object_get(theirs, "chunk_size"));
		struct repeat_prompt repeat = {f.first, f.later, bare ? f.bare_tail : f.tail, (int)f.n_first, (int)f.n_later,
			(int)(bare ? f.n_bare_tail : f.n_tail), true};
		for (; kvzip_chunk((int64_t)f.n - prefix, chunk, b, &start, &size); b++) {
			size_t n;
			int32_t *want = json_ids(json_array_get(inputs, (size_t)b), &n), *got = mem_new(n + 1, sizeof(*got));
			assert_int_equal(kvzip_repeat_ids(&repeat, f.ids + prefix, chunk, start, size, NULL), n);
			kvzip_repeat_ids(&repeat, f.ids + prefix, chunk, start, size, got);
			assert_memory_equal(got, want, n * sizeof(*got));
			free(want);
			free(got);
			seen++;
		}
		assert_int_equal(b, json_array_size(inputs));
	}
	assert_true(seen >= 10);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sets_equal_kvpress_llama), cmocka_unit_test(sets_equal_kvpress_qwen3),
		cmocka_unit_test(p31_repeat_inputs_equal_kvpress)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
