/* test_trained.c: methods that read a file: the head prior as scorer and allocator, scores made elsewhere, the rigid head map,
 * who is refused. The mappers' own arithmetic is tested in tests/unit/mapper. */
#include "runners/methods/prior.h"
#include "runners/proxykv/proxy.h"
#include "tests/unit/methods/methods.h"

#include <sys/stat.h>
#include <unistd.h>

static const char target_sha[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const char proxy_sha[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
static const char context_sha[] = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";
static const char other_sha[] = "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd";

/* A folder for trained files, the store of a runner. */
struct place {
	char folder[64];
	struct trained_store *weights;
};

static struct place place_new(void)
{
	struct place p = {.folder = "/tmp/kvbench-trained-XXXXXX", .weights = trained_store_new()};
	assert_non_null(mkdtemp(p.folder));
	return p;
}

static void place_free(struct place *p)
{
	char *command = text_format("rm -rf '%s'", p->folder);
	assert_int_equal(system(command), 0);
	free(command);
	trained_store_free(p->weights);
}

static struct scoring in_place(
	const struct place *p, const struct plan_method *m, int layers, int kv_heads, int64_t n, float *scores)
{
	struct scoring s = by_hand(m, layers, kv_heads, n, scores);
	s.model_sha256 = target_sha;
	s.proxy_sha256 = "";
	s.context_sha256 = other_sha;
	s.calibration_folder = p->folder;
	s.weights = p->weights;
	s.seed = 3;
	return s;
}

/* Heads whose scores are plainly ordered: head h of context c has scores around 10^(h - 6). */
static void fill_levels(float *scores, int heads, int64_t n, int context)
{
	for (int h = 0; h < heads; h++)
		for (int64_t j = 0; j < n; j++)
			scores[h * n + j] = (float)(pow(10, h - 6) * (1 + (double)((j * 7 + context * 3) % n) / (double)n));
}

enum { L = 2, H = 2, HEADS = L * H, TOKENS = 50 };

static char *prior_made(const struct place *p)
{
	char err[ERR_LEN] = "";
	float scores[HEADS * TOKENS];
	struct prior *prior = prior_new(L, H);
	for (int c = 0; c < 3; c++) {
		fill_levels(scores, HEADS, TOKENS, c);
		prior_add(prior, scores, TOKENS, c ? proxy_sha + c : context_sha);
	}
	prior_end(prior);
	char *path = trained_target(p->folder, "head-prior", target_sha, NULL, err);
	assert_non_null(path);
	assert_int_equal(prior_write(prior, path, target_sha, "a test", err), 0);
	prior_free(prior);
	return path;
}

static void prior_counts_heads(void **state)
{
	(void)state;
	struct place p = place_new();
	char *path = prior_made(&p), err[ERR_LEN] = "";
	struct prior *prior;
	double share[HEADS];
	assert_non_null(strstr(path, "/head-prior-aaaaaaaaaaaaaaaa.safetensors"));
	assert_int_equal(prior_read(&prior, path, L, H, err), 0);
	for (int h = 1; h < HEADS; h++)
		assert_true(prior->level[h] > prior->level[h - 1]);
	prior_at(prior, .2, share); /* the best fifth of 4 heads: 4/5 of the best head */
	assert_true(fabs(share[3] - .8) < 1e-6 && share[2] == 0 && share[0] == 0);
	prior_at(prior, .7, share);
	assert_true(share[3] == 1 && share[2] == 1 && fabs(share[1] - .8) < 1e-6);
	prior_at(prior, .25, share); /* half way from .2 to .3 */
	assert_true(fabs(share[3] - .9) < 1e-6 && fabs(share[2] - .1) < 1e-6);
	prior_at(prior, .05, share);
	assert_true(fabs(share[3] - .2) < 1e-6);
	prior_at(prior, 1, share);
	for (int h = 0; h < HEADS; h++)
		assert_true(share[h] == 1);
	prior_free(prior);
	assert_int_equal(prior_read(&prior, path, L + 1, H, err), -1);
	free(path);
	place_free(&p);
}

/* A share that no head can have is refused when the file is read: budgets are made of it. */
static void prior_checks_shares(void **state)
{
	(void)state;
	struct place p = place_new();
	char *path = prior_made(&p), err[ERR_LEN] = "";
	const double wrong[] = {-.5, 1.5};
	for (int i = 0; i < 2; i++) {
		struct prior *prior;
		assert_int_equal(prior_read(&prior, path, L, H, err), 0);
		prior->share[1] = wrong[i];
		assert_int_equal(prior_write(prior, path, target_sha, "a test", err), 0);
		prior_free(prior);
		assert_int_equal(prior_read(&prior, path, L, H, err), -1);
		assert_non_null(strstr(err, "not between 0 and 1"));
		free(path);
		path = prior_made(&p);
	}
	free(path);
	place_free(&p);
}

/* A row's identity names the files it was made with: one that appears or changes while a runner lives is not used by it. */
static void files_stay_as_found(void **state)
{
	(void)state;
	struct place p = place_new(), later = p;
	float scores[HEADS * TOKENS];
	char err[ERR_LEN] = "", sha[SHA_LEN];
	struct plan_method m = resolved("head-prior", NULL);
	struct trained_request q = {.kind = "head-prior", .target_sha256 = target_sha, .proxy_sha256 = "", .folder = p.folder, .make = "train"};
	struct scoring s = in_place(&p, &m, L, H, TOKENS, scores);
	assert_null(trained_store_find(p.weights, &q, sha, err));
	assert_string_equal(sha, "");
	char *path = prior_made(&p), *found;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(m.scorer->finish(&s, err), -1);
		assert_non_null(strstr(err, "no trained file"));
	}
	later.weights = trained_store_new();
	assert_non_null(found = trained_store_find(later.weights, &q, sha, err));
	assert_string_equal(found, path);
	assert_int_equal(strlen(sha), 64);
	FILE *f = fopen(path, "a");
	assert_true(f && fputc(0, f) == 0 && fclose(f) == 0);
	s.weights = later.weights;
	assert_int_equal(m.scorer->finish(&s, err), -1);
	assert_non_null(strstr(err, "has changed"));
	free(found);
	free(path);
	method_free(&m);
	trained_store_free(later.weights);
	place_free(&p);
}

static void prior_scores_fill_heads_in_order(void **state)
{
	(void)state;
	struct place p = place_new();
	free(prior_made(&p));
	float scores[2][HEADS * TOKENS] = {0};
	char err[ERR_LEN] = "";
	struct plan_method m = resolved("head-prior", NULL);
	assert_string_equal(m.allocator->name, "global");
	struct selection sel[2];
	for (int k = 0; k < 2; k++) {
		struct scoring s = in_place(&p, &m, L, H, TOKENS, scores[k]);
		s.seed = (uint64_t)k;
		if (m.scorer->finish(&s, err))
			fail_msg("%s", err);
		sel[k] = selected(&m, &s, .375); /* 72 of 200: the best head and a part of the next */
		assert_int_equal(sel[k].len[3], TOKENS);
		assert_int_equal(sel[k].len[2], 22);
		assert_int_equal(sel[k].len[1] + sel[k].len[0], 0);
	}
	assert_memory_not_equal(sel[0].index[2], sel[1].index[2], 22 * sizeof(int32_t)); /* random, by the sample's seed */
	selection_free(&sel[0]);
	selection_free(&sel[1]);
	method_free(&m);
	place_free(&p);
}

static void prior_budgets_any_scorer(void **state)
{
	(void)state;
	struct place p = place_new();
	free(prior_made(&p));
	float scores[HEADS * TOKENS];
	for (int i = 0; i < HEADS * TOKENS; i++)
		scores[i] = (float)(i * 37 % 101);
	static const char *const names[] = {"knorm@head-prior", "snapkv@head-prior", "h2o@head-prior"};
	for (int k = 0; k < 3; k++)
		for (const double *r = (const double[]){.1, .25, .5, .75, .9, 1, 0}; *r > 0; r++) {
			struct plan_method m = resolved(names[k], k == 1 ? "{\"window\":4}" : NULL);
			struct scoring s = in_place(&p, &m, L, H, TOKENS, scores);
			struct selection sel = selected(&m, &s, *r);
			int64_t total = 0, keep = keep_count(TOKENS, *r, "none");
			for (int h = 0; h < HEADS; h++) {
				total += sel.len[h];
				assert_true(
					h == 0 || sel.len[h] >= sel.len[h - 1] - 1); /* the levels' order, up to a remainder */
				if (k == 1)
					assert_int_equal(
						sel.index[h][sel.len[h] - 1], TOKENS - 1); /* the window stays in every head */
			}
			assert_int_equal(total, keep * HEADS);
			if (*r == .25 && k == 0) { /* shares .9 and .1 of 50, brought to 48 */
				assert_int_equal(sel.len[3], 43);
				assert_int_equal(sel.len[2], 5);
			}
			selection_free(&sel);
			method_free(&m);
		}
	place_free(&p);
}

static void shares_reach_the_total(void **state)
{
	(void)state;
	double a[] = {5, 1, 0, 0}, b[] = {0, 0, 0}, c[] = {10, 10, 0};
	shares_to_total(a, 4, 10, 12); /* the first is full at 10; the second has the rest */
	assert_true(a[0] == 10 && fabs(a[1] - 2) < 1e-12 && a[2] == 0);
	shares_to_total(b, 3, 10, 6);
	assert_true(b[0] == 2 && b[1] == 2 && b[2] == 2);
	shares_to_total(c, 3, 10, 25); /* both full: what is left goes where nothing was */
	assert_true(c[0] == 10 && c[1] == 10 && fabs(c[2] - 5) < 1e-12);
}

/* A context the prior was counted on is refused; so are a missing file (with the command that makes it) and one of other heads.
 */
static void prior_refuses(void **state)
{
	(void)state;
	struct place p = place_new();
	float scores[HEADS * TOKENS] = {0};
	char err[ERR_LEN] = "";
	struct plan_method m = resolved("head-prior", NULL);
	struct scoring s = in_place(&p, &m, L, H, TOKENS, scores);
	assert_int_equal(m.scorer->finish(&s, err), -1);
	assert_non_null(strstr(err, "kvbench train head-prior"));
	free(prior_made(&p));
	trained_store_free(p.weights);
	s.weights = p.weights = trained_store_new(); /* of the next runner: this one looked */
	s.context_sha256 = context_sha;
	assert_int_equal(m.scorer->finish(&s, err), -1);
	assert_non_null(strstr(err, "was trained on this context"));
	s.context_sha256 = other_sha;
	assert_int_equal(m.scorer->finish(&s, err), 0);
	s.kv_heads = 1;
	assert_int_equal(m.scorer->finish(&s, err), -1);
	method_free(&m);
	place_free(&p);
}

/* ---- scores made elsewhere ---- */

static void write_scores(const char *path, const float *values, int64_t n, bool suffix)
{
	char *name = text_format("%s%s", other_sha, suffix ? ".scores" : ""), err[ERR_LEN] = "";
	struct st_tensor t = {.name = name, .type = ST_F32, .n_dims = 3, .dims = {L, H, n}, .data = values};
	if (st_write(path, &t, 1, NULL, 0, err))
		fail_msg("%s", err);
	free(name);
}

static void scores_come_from_a_file(void **state)
{
	(void)state;
	struct place p = place_new();
	float values[HEADS * TOKENS], scores[HEADS * TOKENS];
	char err[ERR_LEN] = "", *path = text_format("%s/with a blank@x.safetensors", p.folder),
	     *name = text_format("scores:%s", path);
	char *layered = text_format("%s@layer", name);
	for (int i = 0; i < HEADS * TOKENS; i++)
		values[i] = (float)(i * 31 % 97);
	for (int suffix = 0; suffix < 2; suffix++) {
		write_scores(path, values, TOKENS, suffix);
		struct plan_method m = resolved(suffix ? layered : name, NULL);
		assert_string_equal(m.allocator->name, suffix ? "layer" : "global");
		assert_string_equal(param_text(m.params, "file"), path);
		struct trained_store *fresh = trained_store_new();
		struct scoring s = in_place(&p, &m, L, H, TOKENS, scores);
		s.weights = fresh;
		memset(scores, 0, sizeof scores);
		if (m.scorer->finish(&s, err))
			fail_msg("%s", err);
		assert_memory_equal(scores, values, sizeof values);
		s.context_sha256 = context_sha;
		assert_int_equal(m.scorer->finish(&s, err), -1);
		assert_non_null(strstr(err, "no scores of this context"));
		s.context_sha256 = other_sha;
		s.shape.count = TOKENS - 1;
		assert_int_equal(m.scorer->finish(&s, err), -1);
		assert_non_null(strstr(err, "no float tensor"));
		trained_store_free(fresh);
		method_free(&m);
	}
	values[7] = NAN; /* counted, never chosen, and the row fails: test_runner's business */
	write_scores(path, values, TOKENS, true);
	struct plan_method m = resolved(name, NULL);
	struct scoring s = in_place(&p, &m, L, H, TOKENS, scores);
	assert_int_equal(m.scorer->finish(&s, err), 0);
	struct selection sel = selected(&m, &s, .5);
	assert_int_equal(sel.nan_scores, 1);
	selection_free(&sel);
	method_free(&m);
	free(layered);
	free(name);
	free(path);
	place_free(&p);
}

/* ---- the rigid head map: with the target for its own proxy and the map that is then right, KVzip's own scores to the bit ----
 */

static void iam_with_itself_is_kvzip(void **state)
{
	(void)state;
	enum { PREFIX = 4, CONTEXT = 90, N = PREFIX + CONTEXT };
	const char *path = "tests/fixtures/models/qwen2-tiny";
	struct place p = place_new();
	struct engine e = engine_open(path, "fp32", NULL, 2, 32);
	const struct model_config *c = model_config(e.model);
	int heads = c->layers * c->kv_heads;
	char err[ERR_LEN] = "";
	int32_t *ids = some_ids(N, 8), map[64];
	struct model *same;
	struct proxy *proxy;
	struct device_options d = {.name = "cpu", .precision = "fp32", .threads = 1};
	if (model_open(&same, path, err) || proxy_open(&proxy, same, &d, true, 32, err))
		fail_msg("%s", err);
	for (int i = 0; i < heads; i++)
		map[i] = i == 0 ? 1 : i; /* but for the first head, to see that the map is used */
	char *file = trained_target(p.folder, "iam", target_sha, proxy_sha, err);
	struct st_tensor t = {.name = "map", .type = ST_I32, .n_dims = 2, .dims = {c->layers, c->kv_heads}, .data = map};
	assert_int_equal(st_write(file, &t, 1, NULL, 0, err), 0);
	struct run kvzip;
	run_ok(&kvzip, &e, "kvzip", NULL, ids, PREFIX, CONTEXT, 0);

	struct plan_method m = resolved("kvzip+iam", NULL);
	float *scores = mem_new((size_t)(heads * CONTEXT), sizeof *scores);
	struct scoring s = in_place(&p, &m, c->layers, c->kv_heads, CONTEXT, scores);
	prompt_shape_for(&m, PREFIX, CONTEXT, 0, &s.shape);
	s.forward = e.forward;
	s.ids = ids;
	s.repeat = &kvzip.repeat;
	s.proxy_sha256 = proxy_sha;
	assert_int_equal(m.scorer->begin(&s, err), -1); /* no proxy */
	s.proxy = proxy_pass_new(proxy, ids, N, PREFIX, CONTEXT);
	if (m.scorer->begin(&s, err) || proxy_pass_start(s.proxy, err) || m.scorer->finish(&s, err))
		fail_msg("%s", err);
	for (int i = 0; i < heads; i++)
		assert_memory_equal(scores + i * CONTEXT, kvzip.s.scores + map[i] * CONTEXT, CONTEXT * sizeof(float));
	assert_memory_not_equal(scores, kvzip.s.scores, CONTEXT * sizeof(float));
	m.scorer->end(&s);
	proxy_pass_free(s.proxy);
	run_close(&kvzip);
	method_free(&m);
	free(scores);
	free(file);
	free(ids);
	proxy_close(proxy);
	engine_close(&e);
	place_free(&p);
}

static void names_and_lists(void **state)
{
	(void)state;
	char *name = trained_name("proxykv-flat-last64-l7", target_sha, proxy_sha);
	assert_string_equal(name, "proxykv-flat-last64-l7-aaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb.safetensors");
	free(name);
	struct strbuf list = {0};
	char err[ERR_LEN] = "";
	trained_on_add(&list, target_sha);
	trained_on_add(&list, context_sha);
	assert_string_equal(list.text, "aaaaaaaaaaaaaaaa cccccccccccccccc");
	assert_int_equal(trained_on_refuses(list.text, "x", context_sha, err), -1);
	assert_int_equal(trained_on_refuses(list.text, "x", other_sha, err), 0);
	assert_int_equal(trained_on_refuses(NULL, "x", other_sha, err), 0);
	strbuf_free(&list);
	struct trained_request q = {
		.kind = "head-prior", .target_sha256 = target_sha, .weights = "/nowhere/at.all", .make = "make it"};
	assert_null(trained_find(&q, err));
	assert_string_equal(err, "there is no file /nowhere/at.all (option weights)");
}

/* Which option to name a file by: each method's own word. */
static void a_missing_file_names_the_option(void **state)
{
	(void)state;
	static const char *const by[][2] = {{"proxykv", "weights"}, {"lkv", "weights"}, {"head-prior", "prior"}, {"kvzip+iam", "map"},
		{"scores:/nowhere/at.all", "file"}};
	for (size_t i = 0; i < sizeof(by) / sizeof(*by); i++) {
		char *options = text_format("{\"%s\":\"/nowhere/at.all\"}", by[i][1]), *says = text_format("option %s)", by[i][1]), err[ERR_LEN];
		struct plan_method m = resolved(by[i][0], options);
		struct trained_request q = {.target_sha256 = target_sha};
		m.scorer->file(m.params, &q);
		assert_null(trained_find(&q, err));
		assert_non_null(strstr(err, says));
		method_free(&m);
		free(options);
		free(says);
	}
	struct plan_method m = resolved("snapkv@lkv-h", NULL);
	struct trained_request q = {.target_sha256 = target_sha};
	char err[ERR_LEN];
	m.allocator->file(m.params, &q);
	assert_null(trained_find(&q, err));
	assert_non_null(strstr(err, "with the option ratios"));
	method_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(prior_counts_heads), cmocka_unit_test(prior_checks_shares),
		cmocka_unit_test(prior_scores_fill_heads_in_order), cmocka_unit_test(prior_budgets_any_scorer),
		cmocka_unit_test(shares_reach_the_total), cmocka_unit_test(prior_refuses),
		cmocka_unit_test(scores_come_from_a_file), cmocka_unit_test(files_stay_as_found), cmocka_unit_test(iam_with_itself_is_kvzip),
		cmocka_unit_test(names_and_lists), cmocka_unit_test(a_missing_file_names_the_option)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
