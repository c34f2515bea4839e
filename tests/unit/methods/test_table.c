/* test_table.c: names, parameters, compat modes, canonical text, the head table's file. */
#include "tests/unit/methods/methods.h"

#include <sys/stat.h>
#include <unistd.h>

static void every_name_resolves(void **state)
{
	(void)state;
	static const char *const first_wave[] = {"full", "random", "streaming-llm", "knorm", "snapkv", "pyramidkv", "ada-snapkv",
		"h2o", "tova", "keydiff", "lagkv", "expected-attention", "kvzip", "kvzip@uniform", "kvzip@head",
		"kvzip+iam", "proxykv", "selfkv", "lkv", "lkv-global", "kvmlp", "head-prior"};
	assert_int_equal(method_count(), sizeof(first_wave) / sizeof(*first_wave));
	for (size_t i = 0; i < method_count(); i++) {
		struct plan_method m = resolved(first_wave[i], NULL);
		assert_string_equal(method_at(i)->name, first_wave[i]);
		assert_true(method_at(i)->title && method_at(i)->origin && *method_at(i)->title);
		assert_int_equal(m.scorer != NULL, i != 0);
		method_free(&m);
	}
	for (size_t a = 0; a < scorer_count(); a++)
		for (size_t b = 0; b < allocator_count(); b++) {
			char name[64];
			snprintf(name, sizeof(name), "%s@%s", scorer_at(a)->name, allocator_at(b)->name);
			struct plan_method m = resolved(name, NULL);
			assert_ptr_equal(m.allocator, allocator_at(b));
			method_free(&m);
		}
}

static void every_default_has_an_origin(void **state)
{
	(void)state;
	for (size_t a = 0; a < scorer_count(); a++)
		for (const struct param_def *d = scorer_at(a)->params; d && d->name; d++)
			assert_true(d->origin && *d->origin);
	for (size_t b = 0; b < allocator_count(); b++)
		for (const struct param_def *d = allocator_at(b)->params; d && d->name; d++)
			assert_true(d->origin && *d->origin);
	char *text = params_describe(scorer_at(3)->params, allocator_at(1)->params);
	assert_non_null(strstr(text, "window=32 (SnapKV's LongBench runs, AdaKV), pool=max ("));
	assert_non_null(strstr(text, "beta=20 (KVCache-Factory's runner, kvpress)"));
	free(text);
	text = params_describe(NULL, NULL);
	assert_string_equal(text, "");
	free(text);
}

static void canonical_text(void **state)
{
	(void)state;
	struct plan_method m = resolved("pyramidkv", "{\"window\":16,\"beta\":5}");
	char *text = method_canonical(&m);
	assert_string_equal(text, "{\"allocator\":\"pyramid\",\"beta\":5.0,\"compat\":\"none\",\"gqa\":\"mean\",\"order\":\"gqa_"
				  "then_pool\",\"pool\":\"max\","
				  "\"pool_size\":7,\"scorer\":\"snapkv\",\"window\":16}");
	free(text);
	method_free(&m);
	m = resolved("ada-snapkv", NULL);
	struct plan_method same = resolved("snapkv@ada", "{\"alpha\":0.2}");
	char *other = method_canonical(&same);
	text = method_canonical(&m);
	assert_string_equal(text, other);
	free(text);
	free(other);
	method_free(&m);
	method_free(&same);
	m = resolved("full", NULL);
	text = method_canonical(&m);
	assert_string_equal(text, "{\"compat\":\"none\",\"scorer\":\"full\"}");
	free(text);
	method_free(&m);
}

static void compat_brings_its_defaults(void **state)
{
	(void)state;
	struct plan_method m = resolved("snapkv", "{\"compat\":\"kvpress\"}");
	assert_int_equal(param_int(m.params, "window"), 64);
	assert_int_equal(param_int(m.params, "pool_size"), 5);
	assert_string_equal(param_text(m.params, "pool"), "avg");
	assert_string_equal(param_text(m.params, "order"), "pool_then_gqa");
	method_free(&m);
	m = resolved("snapkv", "{\"window\":10,\"compat\":\"kvpress\"}"); /* the user's own options lie above them */
	assert_int_equal(param_int(m.params, "window"), 10);
	assert_string_equal(param_text(m.params, "pool"), "avg");
	method_free(&m);
	m = resolved("pyramidkv", "{\"compat\":\"factory\"}");
	assert_int_equal(param_int(m.params, "window"), 8);
	method_free(&m);
	m = resolved("kvzip", "{\"compat\":\"kvpress\"}");
	assert_int_equal(param_int(m.params, "chunk"), 2048);
	method_free(&m);
	for (size_t i = 0; i < method_count(); i++) {
		m = resolved(method_at(i)->name, NULL);
		bool has = m.scorer && !m.scorer->context_alone;
		method_free(&m);
		if (!has)
			continue;
		m = resolved(method_at(i)->name, "{\"compat\":\"kvpress\"}");
		method_free(&m);
	}
	for (const char *const *name = (const char *const[]){"snapkv", "pyramidkv", "h2o", NULL}; *name; name++) {
		m = resolved(*name, "{\"compat\":\"factory\"}");
		method_free(&m);
	}
	m = resolved("ada-snapkv", "{\"compat\":\"adakv\"}");
	method_free(&m);
	for (const char *const *name = (const char *const[]){"kvzip", "kvzip@uniform", "kvzip@head", NULL}; *name; name++) {
		m = resolved(*name, "{\"compat\":\"kvzip\"}");
		method_free(&m);
	}
}

static void assert_refused(const char *name, const char *options, const char *says)
{
	struct plan_method m;
	char err[ERR_LEN] = "";
	assert_int_equal(method_resolve(&m, name, options, err), -1);
	if (!strstr(err, says))
		fail_msg("%s %s: \"%s\" does not say \"%s\"", name, options ? options : "", err, says);
}

static void mistakes_are_named(void **state)
{
	(void)state;
	assert_refused("snapkw", NULL, "did you mean snapkv?");
	assert_refused("kvzip@unifrom", NULL, "did you mean uniform?");
	assert_refused("kvzop@uniform", NULL, "did you mean kvzip?");
	assert_refused("", NULL, "unknown method");
	assert_refused("snapkv@", NULL, "unknown allocator");
	assert_refused("@uniform", NULL, "unknown scorer");
	assert_refused("full@uniform", NULL, "unknown scorer");
	assert_refused("snapkv", "{\"windw\":3}", "did you mean window?");
	assert_refused("snapkv", "{\"window\":0}", "outside 1");
	assert_refused("snapkv", "{\"window\":2.5}", "must be an integer");
	assert_refused("snapkv", "{\"window\":\"a\"}", "must be an integer");
	assert_refused("snapkv", "{\"pool_size\":4}", "must be odd");
	assert_refused("snapkv", "{\"pool\":\"min\"}", "avg|max|none");
	assert_refused("snapkv", "{\"pool\":\"\"}", "avg|max|none");
	assert_refused("snapkv", "{\"pool\":\"avg|max\"}", "\"avg|max\" is not one of avg|max|none"); /* one of them, not two */
	assert_refused("snapkv", "{\"compat\":\"none|kvpress\"}", "none|kvpress|factory");
	assert_refused("snapkv", "{\"compat\":\"kvzip\"}", "none|kvpress|factory");
	static const char *const queries[] = {"", "some", "all|stride:K", "stride", "stride:0", "stride:x", "stride:4x", "last:-3"};
	for (size_t i = 0; i < sizeof(queries) / sizeof(*queries); i++) {
		char options[64];
		snprintf(options, sizeof(options), "{\"queries\":\"%s\"}", queries[i]);
		assert_refused("proxykv", options, "all|stride:K|last:W");
		assert_refused("selfkv@uniform", options, "all|stride:K|last:W");
	}
	assert_refused("knorm", "{\"compat\":\"factory\"}", "none|kvpress");
	for (const char *const *name = (const char *const[]){"proxykv", "selfkv", "kvzip+iam", "scores:x", NULL}; *name; name++)
		assert_refused(*name, "{\"compat\":\"kvpress\"}", "is not one of none|kvzip"); /* they score the context alone */
	assert_refused("proxykv@uniform", "{\"compat\":\"kvzip\"}", "is not one of none");
	assert_refused("full", "{\"compat\":\"kvpress\"}", "is not one of none");
	assert_refused("tova", "{\"keep_last\":1}", "true or false");
	assert_refused("ada-snapkv", "{\"alpha\":1.5}", "outside 0 .. 1");
	assert_refused("snapkv", "[1]", "must be a JSON object");
	assert_refused("snapkv", "{", "not JSON");
	assert_refused("full", "{\"window\":3}", "unknown option window");
	char name[200];
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_refused(name, NULL, "too long");
}

/* A value that is not the usual one and changes nothing beside the others, or cannot be with them. The usual one may be said. */
static void options_that_do_not_go_together(void **state)
{
	(void)state;
	assert_refused("snapkv", "{\"pool\":\"none\",\"pool_size\":5}", "snapkv: option pool_size changes nothing with pool=none");
	assert_refused("snapkv@ada", "{\"pool\":\"none\",\"order\":\"pool_then_gqa\"}", "nothing is pooled");
	assert_refused("snapkv", "{\"pool_size\":1,\"order\":\"pool_then_gqa\"}", "nothing is pooled");
	assert_refused("snapkv", "{\"pool\":\"avg\",\"order\":\"pool_then_gqa\"}", "order changes nothing with pool=avg and gqa=mean");
	assert_refused("snapkv", "{\"gqa\":\"max\",\"order\":\"pool_then_gqa\"}", "order changes nothing with pool=max and gqa=max");
	assert_refused("snapkv", "{\"compat\":\"kvpress\",\"order\":\"gqa_then_pool\"}", "order changes nothing");
	assert_refused("expected-attention", "{\"vnorm\":false,\"epsilon\":0.01}", "epsilon changes nothing with vnorm=false");
	assert_refused("pyramidkv", "{\"beta\":2.5,\"compat\":\"factory\"}", "beta must be whole with compat=factory");
	assert_refused("ada-snapkv", "{\"alpha\":1,\"normalise\":true}", "normalise changes nothing with alpha=1");
	assert_refused("knorm@ada", "{\"normalise\":true}", "scores can be negative");
	assert_refused("lagkv@ada", "{\"normalise\":true}", "gives all heads the same share");
	assert_refused("tova@ada", "{\"alpha\":0.5}", "gives all heads of a layer the same scores");
	static const char *const fine[][2] = {{"snapkv", "{\"pool\":\"none\",\"pool_size\":7,\"order\":\"gqa_then_pool\"}"},
		{"snapkv", "{\"compat\":\"kvpress\",\"pool\":\"avg\",\"order\":\"pool_then_gqa\"}"},
		{"snapkv", "{\"pool\":\"avg\",\"gqa\":\"max\",\"order\":\"pool_then_gqa\"}"}, {"pyramidkv", "{\"beta\":2.5}"},
		{"ada-snapkv", "{\"normalise\":true}"}, {"tova@ada", "{\"alpha\":0.2,\"normalise\":false}"},
		{"proxykv", "{\"compat\":\"kvzip\"}"}, {"proxykv@pyramid", "{\"compat\":\"factory\"}"}};
	for (size_t i = 0; i < sizeof(fine) / sizeof(*fine); i++) {
		struct plan_method m = resolved(fine[i][0], fine[i][1]);
		method_free(&m);
	}
}

static void assert_check(const char *name, const char *options, bool proxy, const char *says)
{
	struct plan_method m = resolved(name, options);
	char err[ERR_LEN] = "";
	assert_int_equal(method_check(&m, proxy, err), says ? -1 : 0);
	if (says && !strstr(err, says))
		fail_msg("%s %s: \"%s\" does not say \"%s\"", name, options ? options : "", err, says);
	method_free(&m);
}

/* What can be known to be missing before any model is there. */
static void what_must_be_there(void **state)
{
	(void)state;
	char folder[] = "/tmp/kvb-named-XXXXXX", err[ERR_LEN] = "", *options;
	const float x[1] = {1};
	const struct st_tensor t = {"level", ST_F32, 1, {1}, .data = x};
	const struct st_meta meta = {"kind", "lkv"};
	assert_non_null(mkdtemp(folder));
	char *path = text_format("%s/lkv.safetensors", folder);
	assert_int_equal(st_write(path, &t, 1, &meta, 1, err), 0);
	assert_check("proxykv", NULL, false, "proxykv needs a proxy beside every target");
	assert_check("kvzip+iam", NULL, false, "needs a proxy");
	assert_check("proxykv", NULL, true, NULL);
	assert_check("snapkv", NULL, false, NULL);
	assert_check("full", NULL, false, NULL);
	assert_check("selfkv", "{\"weights\":\"/nowhere/x\"}", false, "selfkv: there is no file /nowhere/x (option weights)");
	assert_check("snapkv@head-prior", "{\"prior\":\"/nowhere/x\"}", false, "there is no file /nowhere/x (option prior)");
	assert_check("snapkv@lkv-h", "{\"ratios\":\"/nowhere/x\"}", false, "there is no file /nowhere/x (option ratios)");
	assert_check("kvzip+iam", "{\"map\":\"/nowhere/x\"}", true, "there is no file /nowhere/x (option map)");
	assert_check("scores:/nowhere/x@uniform", NULL, false, "there is no file /nowhere/x (option file)");
	assert_check("scores:/nowhere/x@unifrom", NULL, false, "there is no file /nowhere/x@unifrom");
	assert_check("scores:", NULL, false, "names no file (option file)");
	assert_check("scores@global", NULL, false, "names no file (option file)");
	options = text_format("{\"weights\":\"%s\"}", path);
	assert_check("lkv", options, false, NULL);
	assert_check("lkv-global", options, false, "its kind is lkv, not lkv-global");
	assert_check("proxykv", options, true, "lkv.safetensors");
	free(options);
	options = text_format("{\"file\":\"%s\"}", path); /* of whatever kind */
	assert_check("scores@global", options, false, NULL);
	free(options);
	static const char flat[] = "runners/model/tiny-pair/trained/proxykv-flat-5a1a05f44e70aadd-33fd7bfa4fcb1a32.safetensors";
	options = text_format("{\"weights\":\"%s\"}", flat);
	assert_check("proxykv", options, true, NULL);
	assert_check("selfkv", options, false, "is a flat mapper of a proxy");
	free(options);
	options = text_format("{\"weights\":\"%s\",\"mapper\":\"linear\"}", flat);
	assert_check("proxykv", options, true, "trained on other features than the options say");
	free(options);
	options = text_format("{\"weights\":\"%s\",\"queries\":\"stride:4\"}", flat);
	assert_check("proxykv", options, true, "trained on other features than the options say");
	free(options);
	remove(path);
	rmdir(folder);
	free(path);
}

static void scores_are_shared_where_they_are_equal(void **state)
{
	(void)state;
	struct plan_method snap = resolved("snapkv", NULL), pyramid = resolved("pyramidkv", "{\"beta\":5}"),
			   wide = resolved("snapkv", "{\"window\":64}"), press = resolved("snapkv", "{\"compat\":\"kvpress\"}"),
			   zip = resolved("kvzip", NULL), even = resolved("kvzip@uniform", NULL);
	assert_true(method_same_scores(&snap, &pyramid));
	assert_true(method_same_scores(&zip, &even));
	assert_false(method_same_scores(&snap, &wide));
	assert_false(method_same_scores(&snap, &press));
	assert_false(method_same_scores(&snap, &zip));
	struct plan_method *all[] = {&snap, &pyramid, &wide, &press, &zip, &even};
	for (size_t i = 0; i < 6; i++)
		method_free(all[i]);
}

/* P35, P36: where the window lies in each protocol, and what is evictable. */
static void p35_shapes_and_windows(void **state)
{
	(void)state;
	struct plan_method m = resolved("snapkv", NULL);
	struct scoring s = {.params = m.params, .layers = 1, .kv_heads = 1};
	prompt_shape_for(&m, 7, 100, 0, &s.shape); /* agnostic: the window is the context's end */
	assert_int_equal(s.shape.first, 7);
	assert_int_equal(s.shape.count, 100);
	assert_int_equal(m.scorer->protect(&s, 50).last, 32);
	assert_int_equal(m.scorer->first_pos(&s), 75);
	prompt_shape_for(&m, 7, 100, 20, &s.shape); /* aware: the question is in the window, 12 context entries with it */
	assert_int_equal(s.shape.count, 100);
	assert_int_equal(m.scorer->protect(&s, 50).last, 12);
	assert_int_equal(m.scorer->first_pos(&s), 95);
	prompt_shape_for(&m, 7, 100, 40, &s.shape);
	assert_int_equal(m.scorer->protect(&s, 50).last, 0);
	method_free(&m);
	m = resolved("snapkv", "{\"compat\":\"kvpress\"}");
	s.params = m.params;
	prompt_shape_for(&m, 7, 100, 20, &s.shape);
	assert_int_equal(s.shape.first, 0);
	assert_int_equal(s.shape.count, 127);
	assert_int_equal(m.scorer->protect(&s, 50).last, 64);
	method_free(&m);
	m = resolved("full", NULL);
	prompt_shape_for(&m, 7, 100, 20, &s.shape);
	assert_int_equal(s.shape.first, 7);
	method_free(&m);
}

static void head_table_file(void **state)
{
	(void)state;
	char folder[] = "/tmp/kvb-heads-XXXXXX", err[ERR_LEN] = "", *path;
	const char *sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		   *near = "0123456789abcdef0000000000000000";
	const float heads[6] = {1, .5f, .25f, 3, 4, 5};
	float got[6];
	assert_non_null(mkdtemp(folder));
	assert_int_equal(head_table_read(folder, sha, 3, 2, got, err), -1);
	assert_non_null(strstr(err, "kvbench calibrate kvzip-head"));
	assert_int_equal(head_table_read(NULL, sha, 3, 2, got, err), -1);
	assert_non_null(strstr(err, "kvbench calibrate kvzip-head"));
	assert_int_equal(head_table_write(folder, sha, 3, 2, heads, 8, &path, err), 0);
	assert_non_null(strstr(path, "kvzip-head-0123456789abcdef.safetensors"));
	assert_int_equal(head_table_read(folder, sha, 3, 2, got, err), 0);
	assert_memory_equal(got, heads, sizeof(heads));
	assert_int_equal(head_table_read(folder, sha, 2, 3, got, err), -1);
	assert_non_null(strstr(err, "no fp32 tensor \"heads\" of 2 x 3"));
	assert_int_equal(head_table_read(folder, near, 3, 2, got, err), -1);
	assert_non_null(strstr(err, "another model"));
	/* kvzip@head reads it: no second pass, whole heads */
	float scores[6 * 10];
	struct plan_method m = resolved("kvzip@head", NULL);
	struct scoring s = by_hand(&m, 3, 2, 10, scores);
	s.calibration_folder = folder;
	s.model_sha256 = sha;
	assert_int_equal(m.scorer->finish(&s, err), 0);
	struct selection sel = selected(&m, &s, .5);
	for (int i = 0; i < 6; i++)
		assert_int_equal(sel.len[i], i >= 3 ? 10 : 0);
	selection_free(&sel);
	method_free(&m);
	remove(path);
	rmdir(folder);
	free(path);
	assert_int_equal(head_table_write("/nowhere/at/all", sha, 3, 2, heads, 8, &path, err), -1);
	assert_null(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_name_resolves), cmocka_unit_test(every_default_has_an_origin),
		cmocka_unit_test(canonical_text), cmocka_unit_test(compat_brings_its_defaults),
		cmocka_unit_test(mistakes_are_named), cmocka_unit_test(options_that_do_not_go_together),
		cmocka_unit_test(what_must_be_there), cmocka_unit_test(scores_are_shared_where_they_are_equal),
		cmocka_unit_test(p35_shapes_and_windows), cmocka_unit_test(head_table_file)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
