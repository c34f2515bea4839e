/* Report and export over synthetic databases: the page is well formed, closed to the network and to hostile text, the same bytes
 * for the same rows; its numbers and sentences are the ones computed by hand here.
 *
 * KVB_PAGE=FILE in the environment: only writes the synthetic page there (for tests/e2e/report_chromium.sh). */
#include "synthetic.h"

static void the_checker_checks(void **state)
{
	(void)state;
	assert_null(malformed("<a b=\"<>\"><br>x &amp; y<g/></a>"));
	assert_non_null(malformed("<a><b></a></b>"));
	assert_non_null(malformed("<a>"));
	assert_non_null(malformed("a & b"));
	assert_non_null(malformed("<a b=c></a>"));
	assert_non_null(malformed("1 < 2"));
}

static void page_of_a_demo(void **state)
{
	(void)state;
	fill_like_the_demo("tiny-pair/target");
	char *html = page("kvbench demo");
	expect_well_formed(html);
	assert_null(strstr(html, "http:"));
	assert_null(strstr(html, "https:"));
	assert_null(strstr(html, "url("));
	assert_null(strstr(html, " src="));
	assert_null(strstr(html, "nan"));
	assert_int_equal(count(html, "default-src 'none'"), 1);
	assert_int_equal(count(html, "<script"), 2);                    /* the script, the samples */
	assert_int_equal(count(html, "Mean score over the share"), 12); /* 2 tasks x 3 lengths x 2 protocols: one chart each */
	assert_non_null(strstr(html, "kvzip 0."));
	assert_true(strlen(html) < 4000000);
	char *again = page("kvbench demo");
	assert_string_equal(html, again);
	print_message("page of 552 cells: %zu bytes\n", strlen(html));
	free(again);
	free(html);
}

/* No table holds two protocols: each table's heading names one, and the rows of a method are its cells. */
static void one_protocol_a_table(void **state)
{
	(void)state;
	fill_like_the_demo("t");
	char *html = page("t");
	int tables = 0;
	for (const char *p = html; (p = strstr(p, "id=\"t-accuracy-")); tables++) {
		const char *end = strstr(p, "</table>"), *sql = strstr(p, "<pre>"), *after = strstr(p, "</pre>");
		char *part = text_format("%.*s%.*s", (int)(sql - p), p, (int)(end - after), after);
		assert_int_equal(count(part, "agnostic") > 0, count(part, "aware") == 0);
		assert_int_equal(count(part, "<tr>"), 1 + 10);
		free(part);
		p = end;
	}
	assert_int_equal(tables, 12);
	free(html);
}

/* One cell of the full cache and of random, with two samples that have a second metric and lost their middle. */
static void put_suite(struct writer *w, const char *mode, const char *variant, int scorer)
{
	static const char *const methods[] = {"full", "random"};
	struct store_task task = {.name = "scbench-many_shot",
		.metric = "loose",
		.version = 1,
		.variant = variant,
		.data_state = "unpinned",
		.binary_metric = true};
	char method_id[SHA_LEN], task_id[SHA_LEN], cell_id[SHA_LEN];
	check(store_put_task(w->s, &task, task_id, err));
	for (int m = 0; m < 2; m++) {
		struct store_method method = {.name = methods[m], .version = 1};
		check(store_put_method(w->s, &method, method_id, err));
		struct store_cell cell = {.target_id = w->target,
			.method_id = method_id,
			.task_id = task_id,
			.mode = mode,
			.retained_ppm = m ? 300000 : 1000000,
			.context_tokens = 4096,
			.protocol = "agnostic",
			.topology = "cpu",
			.precision = "bf16",
			.measure_version = 1,
			.samples_planned = 2};
		check(store_put_cell(w->s, &cell, cell_id, err));
		for (int k = 0; k < 2; k++) {
			struct store_sample s = {.cell_id = cell_id,
				.run_id = w->run,
				.sample_id = k ? "s1" : "s0",
				.context_id = "c0",
				.status = "ok",
				.answer = "A",
				.question = "?",
				.metric = "loose",
				.also_metric = "strict",
				.score = 1,
				.also_score = k,
				.scorer_version = scorer,
				.finish = "stop",
				.depth = NAN,
				.truncation = "ids",
				.cut_tokens = 9};
			check(store_put_sample(w->s, &s, err));
		}
	}
}

static void modes_variants_and_second_metrics(void **state)
{
	(void)state;
	struct writer w;
	writer_open(&w, "t");
	put_suite(&w, "multi-turn", NULL, 1);
	put_suite(&w, "multi-request", NULL, 1);
	put_suite(&w, "single", "upstream oct2024", 2);
	store_close(w.s);
	char *html = page("t"), *csv = export_as("csv"), *text = export_as("text");
	expect_well_formed(html);
	assert_int_equal(count(html, "id=\"t-accuracy-"), 3); /* a table for each mode and each way to make the texts */
	assert_int_equal(count(html, "<span class=\"cap\">scbench-many_shot · 4096 tokens · multi-turn, agnostic<"), 1);
	assert_int_equal(count(html, "<span class=\"cap\">scbench-many_shot · 4096 tokens · multi-request, agnostic<"), 1);
	assert_int_equal(count(html, "<span class=\"cap\">scbench-many_shot · 4096 tokens · upstream oct2024, agnostic<"), 1);
	assert_int_equal(count(html, "strict 0.50</small>"), 6);
	assert_non_null(strstr(csv, ",task_variant,data_state,metric,"));
	assert_non_null(strstr(csv, ",also_metric,also_score,also_n,"));
	assert_non_null(strstr(csv, ",strict,0.5,2,"));
	assert_non_null(strstr(text, "loose / strict"));
	assert_non_null(strstr(text, "] / 0.50"));
	assert_non_null(strstr(text, "Contexts that lost their middle to keep to the length in 3 cells"));
	assert_non_null(strstr(text, "Data without a known SHA-256 (unpinned) in 3 cells"));
	assert_non_null(strstr(text, "Answers were scored by versions 1 to 2 of the scorers"));
	free(html);
	free(csv);
	free(text);
}

/* The full cache's score on each task of a suite: a tenth more from task to task, n_ok of two samples each. */
static void put_suite_tasks(struct writer *w, const char *const *names, int n, const char *variant, int n_ok)
{
	char method_id[SHA_LEN], task_id[SHA_LEN], cell_id[SHA_LEN];
	struct store_method method = {.name = "full", .version = 1};
	check(store_put_method(w->s, &method, method_id, err));
	for (int i = 0; i < n; i++) {
		struct store_task task = {.name = names[i], .metric = "all", .version = 1, .variant = variant};
		check(store_put_task(w->s, &task, task_id, err));
		struct store_cell cell = {.target_id = w->target,
			.method_id = method_id,
			.task_id = task_id,
			.mode = "single",
			.retained_ppm = 1000000,
			.context_tokens = 4096,
			.protocol = "agnostic",
			.topology = "cpu",
			.precision = "bf16",
			.measure_version = 1,
			.samples_planned = 2};
		check(store_put_cell(w->s, &cell, cell_id, err));
		for (int k = 0; k < n_ok; k++) {
			struct store_sample s = {.cell_id = cell_id,
				.run_id = w->run,
				.sample_id = k ? "s1" : "s0",
				.context_id = "c0",
				.status = "ok",
				.answer = "A",
				.metric = "all",
				.score = i / 20.,
				.scorer_version = 1,
				.finish = "stop",
				.depth = NAN};
			check(store_put_sample(w->s, &s, err));
		}
	}
}

static void averages_of_whole_suites(void **state)
{
	(void)state;
	static const char *const ruler[] = {"ruler-niah_single_1", "ruler-niah_single_2", "ruler-niah_single_3",
		"ruler-niah_multikey_1", "ruler-niah_multikey_2", "ruler-niah_multikey_3", "ruler-niah_multivalue",
		"ruler-niah_multiquery", "ruler-vt", "ruler-cwe", "ruler-fwe", "ruler-qa_1", "ruler-qa_2"};
	static const char *const code[] = {"longbench-lcc", "longbench-repobench-p"};
	struct writer w;
	writer_open(&w, "t");
	put_suite_tasks(&w, ruler, 8, "upstream current, sentence ends approximated", 2); /* a remark parts nothing */
	put_suite_tasks(&w, ruler + 8, 4, "upstream current", 2);
	store_close(w.s);
	char *text = export_as("text");
	assert_null(strstr(text, "RULER: mean")); /* twelve of thirteen are none */
	free(text);
	writer_open(&w, "t");
	put_suite_tasks(&w, ruler + 12, 1, "upstream current", 1);
	store_close(w.s);
	text = export_as("text");
	assert_null(strstr(text, "RULER: mean")); /* a sample is missing */
	free(text);
	writer_open(&w, "t");
	put_suite_tasks(&w, ruler + 12, 1, "upstream current", 2);
	put_suite_tasks(&w, code, 2, NULL, 2);
	store_close(w.s);
	text = export_as("text");
	char *html = page("t");
	expect_well_formed(html);
	/* tasks 0..7 of the first call, 0..3 of the second, 0: (28 + 6) / 20 / 13 */
	assert_non_null(strstr(text, "RULER: mean of 13 tasks · 4096 tokens · upstream current, agnostic, t, bf16\n"
				     "method  r = 1\nfull    0.13\n"));
	assert_int_equal(
		count(html, "<span class=\"cap\">RULER: mean of 13 tasks · 4096 tokens · upstream current, agnostic"), 1);
	/* code counts in both languages; the other means are not whole */
	assert_non_null(strstr(text, "LongBench: EN code · 4096 tokens, agnostic"));
	assert_non_null(strstr(text, "LongBench: ZH code · 4096 tokens, agnostic"));
	assert_int_equal(count(text, "LongBench: "), 2);
	free(text);
	free(html);
}

static const char hostile[] = "</script>\"'&<img onerror>";

/* Hostile text as title, model, task, method, parameters, message, question, answer, gold: never markup. */
static void hostile_text(void **state)
{
	(void)state;
	struct writer w;
	char cell[SHA_LEN];
	writer_open(&w, hostile);
	struct cell_plan p = {hostile, hostile, "{\"a\":\"</script><img onerror>\"}", "agnostic", true, 512, 300000, 3};
	struct cell_plan full = {hostile, "full", "{}", "agnostic", true, 512, 1000000, 3};
	put_cell(&w, &full, cell);
	put_sample(&w, &full, cell, 0, "ok", 1, hostile);
	put_cell(&w, &p, cell);
	struct store_sample s = {.cell_id = cell,
		.run_id = w.run,
		.sample_id = hostile,
		.context_id = hostile,
		.status = "ok",
		.message = hostile,
		.answer = hostile,
		.gold = "[\"</script><img onerror>\"]",
		.question = hostile,
		.score = 0,
		.finish = "stop",
		.depth = NAN};
	check(store_put_sample(w.s, &s, err));
	s.sample_id = "bad bytes \xff\x01", s.answer = "\xe4\xb8 \x1b[31m";
	check(store_put_sample(w.s, &s, err));
	s.sample_id = "failed", s.status = "failed", s.score = NAN;
	check(store_put_sample(w.s, &s, err));
	store_close(w.s);
	char *html = page(hostile);
	expect_well_formed(html);
	assert_null(strstr(html, "<img"));
	assert_int_equal(count(html, "</script>"), 2);
	assert_null(strchr(html, '\x1b'));
	free(html);
	static const char *const formats[] = {"csv", "json", "md", "latex", "text"};
	for (int i = 0; i < 5; i++) {
		char *text = export_as(formats[i]);
		assert_null(strchr(text, '\x1b'));
		if (i == 1) {
			json_t *json = json_loads(text, 0, NULL);
			assert_string_equal(json_string_value(json_object_get(json_array_get(json, 0), "target")), hostile);
			json_decref(json);
		}
		free(text);
	}
}

/* ---- numbers by hand ---- */

/* One task of 50 samples: full 50 right, random 10, kvzip 49, snapkv 14 at r = .3; aware: snapkv 50. */
static void fill_by_hand(void)
{
	static const struct {
		const char *method, *protocol;
		int ppm, right;
	} cells[] = {{"full", "agnostic", 1000000, 50}, {"random", "agnostic", 300000, 10}, {"kvzip", "agnostic", 300000, 49},
		{"snapkv", "agnostic", 300000, 14}, {"full", "aware", 1000000, 50}, {"random", "aware", 300000, 9},
		{"snapkv", "aware", 300000, 50}};
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny");
	check(store_begin(w.s, err));
	for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
		struct cell_plan p = {"niah-multikey", cells[i].method, "{}", cells[i].protocol, true, 1000, cells[i].ppm, 50};
		put_cell(&w, &p, id);
		for (int k = 0; k < 50; k++)
			put_sample(&w, &p, id, k, "ok", k < cells[i].right, k < cells[i].right ? "48291" : "no");
		if (strcmp(p.protocol, "agnostic") == 0)
			put_times(&w, id, i == 0 ? 100 : 150, i == 0 ? 0 : .3, 9);
	}
	check(store_commit(w.s, err));
	store_close(w.s);
}

/* Wilson: 10 of 50 = .1124 .. .3304, 49 of 50 = .8950 .. .9965, 14 of 50 = .1747 .. .4167. TTFT: repetitions 100 .. 108 ms. */
static void sentences_are_computed(void **state)
{
	(void)state;
	fill_by_hand();
	char *text = export_as("text");
	assert_non_null(
		strstr(text, "* niah-multikey · 1000 tokens at r = 0.3, agnostic: kvzip 0.98 [0.90, 1.00] stands above random "
			     "0.20 [0.11, 0.33], "
			     "intervals disjoint; snapkv 0.28 cannot be told from random. Full cache: 1.00 [0.93, 1.00]."));
	assert_non_null(strstr(text,
		"question seen before pruning or not: snapkv: aware 1.00 [0.93, 1.00] against agnostic 0.28 [0.17, 0.42]."));
	assert_non_null(strstr(text, "time to first token 104 ms with the full cache (median of 9); "));
	assert_non_null(strstr(text, "kvzip 1.48× (30 % of it scoring)")); /* 154 / 104 */
	assert_non_null(strstr(text, "7 of 7 cells complete; samples: 350 of 350 answered"));
	assert_null(strstr(text, "\n! ")); /* nothing to flag */
	char *html = page("t");
	assert_non_null(strstr(html, "stands above random 0.20 [0.11, 0.33], intervals disjoint"));
	free(html);
	free(text);
}

static double number(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

static const json_t *find_row(const json_t *all, const char *method, const char *protocol)
{
	size_t i;
	json_t *row;
	json_array_foreach(all, i, row)
	{
		if (strcmp(json_string_value(json_object_get(row, "method")), method) == 0 &&
			strcmp(json_string_value(json_object_get(row, "protocol")), protocol) == 0)
			return row;
	}
	return NULL;
}

static void golden_numbers_in_exports(void **state)
{
	(void)state;
	fill_by_hand();
	char *text = export_as("json");
	json_t *all = json_loads(text, 0, NULL);
	assert_int_equal(json_array_size(all), 7);
	const json_t *row = find_row(all, "kvzip", "agnostic");
	assert_true(fabs(number(row, "score") - .98) < 1e-9);
	assert_true(fabs(number(row, "score_lo") - .8950) < 5e-4 && fabs(number(row, "score_hi") - .9965) < 5e-4);
	assert_true(number(row, "ttft_ns") == 154e6 && fabs(number(row, "ttft_of_full") - 154.0 / 104) < 1e-6);
	assert_true(fabs(number(row, "retained_realised") - .3) < 1e-3);
	assert_true(json_is_null(json_object_get(find_row(all, "snapkv", "aware"), "ttft_ns")));
	json_decref(all);
	free(text);
	text = export_as("csv");
	assert_int_equal(count(text, "\n"), 8);
	assert_int_equal(strncmp(text, "target,proxy,", 13), 0);
	assert_non_null(strstr(text, ",kvzip,{},0.3,"));
	free(text);
	text = export_as("md");
	assert_non_null(strstr(text, "### niah-multikey · 1000 tokens, agnostic, tiny"));
	assert_non_null(strstr(text, "| kvzip | 0.98 [0.90, 1.00] |  |\n"));
	assert_non_null(strstr(text, "| full |  | 1.00 [0.93, 1.00] |\n"));
	free(text);
	text = export_as("latex");
	assert_non_null(strstr(text, "kvzip & 0.98 [0.90, 1.00] &  \\\\\n"));
	assert_int_equal(count(text, "\\begin{tabular}"), 2);
	free(text);
	struct store *s;
	struct strbuf b = {0};
	check(store_open_read(&s, path, err));
	assert_int_equal(report_export(s, "xls", &b, err), -1);
	assert_non_null(strstr(err, "xls"));
	store_close(s);
	strbuf_free(&b);
}

/* ---- flags ---- */

struct trouble {
	const char *method, *status, *answer;
	int ppm, n, right, planned;
};

static char *flags_of(const struct trouble *t, int n)
{
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny");
	check(store_begin(w.s, err));
	for (int i = 0; i < n; i++) {
		struct cell_plan p = {"niah", t[i].method, "{}", "agnostic", true, 1000, t[i].ppm, t[i].planned};
		put_cell(&w, &p, id);
		for (int k = 0; k < t[i].n; k++)
			put_sample(&w, &p, id, k, t[i].status, k < t[i].right, t[i].answer);
	}
	check(store_commit(w.s, err));
	store_close(w.s);
	char *text = export_as("text"), *html = page("t");
	expect_well_formed(html);
	free(html);
	return text;
}

/* One task asked for in two ways: the second says in what. */
static void titles_name_what_was_asked_otherwise(void **state)
{
	(void)state;
	static const char *const asked[] = {
		"{\"contexts\":30,\"needles\":4}", "{\"contexts\":12,\"needles\":4}", "{\"contexts\":30,\"needles\":9}"};
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny");
	check(store_begin(w.s, err));
	for (int i = 0; i < 3; i++) {
		const struct cell_plan p = {"niah", "full", "{}", "agnostic", true, 1000, 1000000, 1, asked[i]};
		put_cell(&w, &p, id);
		put_sample(&w, &p, id, 0, "ok", 1, "48291");
	}
	check(store_commit(w.s, err));
	store_close(w.s);
	char *text = export_as("text");
	assert_non_null(strstr(text, "niah · 1000 tokens, agnostic"));
	assert_non_null(strstr(text, "niah · 1000 tokens · contexts=12, agnostic"));
	assert_non_null(strstr(text, "niah · 1000 tokens · needles=9, agnostic"));
	assert_null(strstr(text, "#2"));
	free(text);
}

static void bad_methods_are_flagged(void **state)
{
	(void)state;
	const struct trouble t[] = {{"full", "ok", "a", 1000000, 50, 40, 50}, {"random", "ok", "b", 300000, 50, 10, 50},
		{"poor", "ok", "c", 300000, 50, 5, 50}, {"magic", "ok", "d", 300000, 50, 50, 50},
		{"snapkv", "ok", "e", 1000000, 50, 40, 50}};
	char *text = flags_of(t, 5);
	assert_non_null(
		strstr(text, "! poor is not above random in 1 cell: niah · 1000 tokens, agnostic, r = 0.3: 0.10 (random 0.20)."));
	assert_non_null(strstr(text, "! magic is above the full cache beyond error in 1 cell"));
	assert_non_null(strstr(text, "! r = 1 does not equal the full cache in 1 cell: niah · 1000 tokens, agnostic, snapkv r = "
				     "1: 50 of 50 answers."));
	free(text);
}

/* A task on which the full cache is no better than random tells nothing of methods. */
static void a_task_that_tells_nothing_is_flagged(void **state)
{
	(void)state;
	const struct trouble floor[] = {{"full", "ok", "a", 1000000, 50, 4, 50}, {"random", "ok", "b", 300000, 50, 3, 50}};
	char *text = flags_of(floor, 2);
	assert_non_null(strstr(text,
		"! Nothing can be told of methods: random pruning is at no ratio worse than the full cache beyond error (few "
		"samples, "
		"or a task the model cannot do) in 1 cell: niah · 1000 tokens, agnostic, full r = 1: 0.08 on 50 answers."));
	free(text);
}

/* One ratio at which random pruning is worse is enough. */
static void a_task_that_tells_is_not_flagged(void **state)
{
	(void)state;
	const struct trouble tells[] = {{"full", "ok", "a", 1000000, 50, 40, 50}, {"random", "ok", "b", 300000, 50, 3, 50},
		{"random", "ok", "b", 900000, 50, 40, 50}};
	char *text = flags_of(tells, 3);
	assert_null(strstr(text, "Nothing can be told"));
	free(text);
}

static void times_beside_other_work_are_flagged(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny");
	check(store_begin(w.s, err));
	for (int i = 0; i < 3; i++) { /* a quiet one, one whose threads waited, one whose rounds go from 5 to 13 ms */
		static const char *const methods[] = {"full", "h2o", "tova"};
		struct cell_plan p = {"niah", methods[i], "{}", "agnostic", true, 1000, i ? 300000 : 1000000, 1};
		put_cell(&w, &p, id);
		put_sample(&w, &p, id, 0, "ok", 1, "48291");
		put_times(&w, id, i == 2 ? 5 : 500, i ? .05 : 0, 9);
		check(store_put_fact(w.s, &(struct store_fact){id, w.run, "waited_ppm", i == 1 ? 400000 : 10000}, err));
	}
	check(store_commit(w.s, err));
	store_close(w.s);
	char *text = export_as("text");
	assert_non_null(strstr(text, "! Times taken beside other work of the machine, so that small differences say nothing, in "
				     "2 cells: niah · 1000 tokens, agnostic, "
				     "h2o r = 0.3: threads waited, all together, 40 % of the time, rounds deviate by 0 %; niah · "
				     "1000 tokens, agnostic, tova r = 0.3: threads waited, all together, "
				     "1 % of the time, rounds deviate by 28 %."));
	free(text);
}

static void failures_are_flagged(void **state)
{
	(void)state;
	const struct trouble t[] = {{"full", "ok", "a", 1000000, 4, 4, 4}, {"random", "oom", "", 300000, 4, 0, 4},
		{"snapkv", "failed", "", 300000, 4, 0, 4}, {"h2o", "ok", " ", 300000, 4, 0, 4},
		{"tova", "not-applicable", "", 300000, 4, 0, 4}, {"kvzip", "ok", "a", 300000, 3, 3, 10},
		{"lagkv", "failed", "", 300000, 4, 0, 4}, {"knorm", "failed", "", 300000, 3, 0, 3}};
	char *text = flags_of(t, 8);
	assert_non_null(strstr(text,
		"! Out of memory in 1 cell: niah · 1000 tokens, agnostic, random r = 0.3: 4 of 4, asked for 5 GB, limit 2 GB."));
	/* a reason that several share stands once */
	assert_non_null(strstr(text,
		"! Failed samples in 3 cells: niah · 1000 tokens, agnostic, snapkv r = 0.3; niah · 1000 tokens, agnostic, "
		"lagkv r = 0.3: 4 of 4, asked for 5 GB, limit 2 GB; niah · 1000 tokens, agnostic, knorm r = 0.3: 3 of 3, asked"));
	assert_non_null(strstr(text, "! Method not applicable in 1 cell"));
	assert_non_null(strstr(text, "! Incomplete: a part stands for the whole in 1 cell: niah · 1000 tokens, agnostic, kvzip r "
				     "= 0.3: 3 of 10 samples."));
	assert_non_null(strstr(text, "! Empty answers in 1 cell: niah · 1000 tokens, agnostic, h2o r = 0.3: 4 of 4."));
	assert_non_null(strstr(text, "(3/10)")); /* and in the table */
	free(text);
}

static void missing_controls_are_flagged(void **state)
{
	(void)state;
	const struct trouble t[] = {{"snapkv", "ok", "e", 300000, 5, 4, 5}};
	char *text = flags_of(t, 1);
	assert_non_null(strstr(text, "! No control (full and random) for niah · 1000 tokens, agnostic"));
	free(text);
}

/* Full timed by one process, a method by the next: no ratio, and it is said. A time whose parts miss 10 % of it, and 3
 * repetitions. */
static void bad_times_are_flagged(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN];
	struct cell_plan p = {"niah", "full", "{}", "agnostic", true, 1000, 1000000, 0};
	writer_open(&w, "tiny");
	put_cell(&w, &p, id);
	put_times(&w, id, 100, 0, 9);
	store_close(w.s);
	writer_open(&w, "tiny"); /* another run */
	p.method = "kvzip", p.ppm = 300000;
	put_cell(&w, &p, id);
	put_times(&w, id, 150, .3, 3);
	struct store_timing whole[3];
	for (int r = 0; r < 3; r++)
		whole[r] = (struct store_timing){id, w.run, "ttft", r, false, "host", 165000000, 0, 0, 0, 0};
	check(store_put_timings(w.s, whole, 3, err));
	store_close(w.s);
	char *text = export_as("text"), *csv = export_as("csv");
	assert_non_null(strstr(text, "! No full cache timed in the same process, so no ratio in 1 cell: niah · 1000 tokens, "
				     "agnostic, kvzip r = 0.3."));
	assert_non_null(strstr(text, "! Parts of the time to first token do not add up within 2 % in 1 cell"));
	assert_non_null(
		strstr(text, "! Fewer than 9 timed repetitions in 1 cell: niah · 1000 tokens, agnostic, kvzip r = 0.3: 3."));
	assert_null(strstr(text, "×"));
	assert_non_null(strstr(csv, ",165000000,165000000,,")); /* p10, p90, no ratio */
	free(text);
	free(csv);
}

/* Cells planned and nothing run; and nothing at all. */
static void empty_databases(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny");
	store_close(w.s);
	char *html = page("nothing yet");
	expect_well_formed(html);
	free(html);
	writer_open(&w, "tiny");
	struct cell_plan p = {"niah", "snapkv", "{}", "agnostic", false, 0, 300000, 7};
	put_cell(&w, &p, id);
	store_close(w.s);
	html = page("planned");
	expect_well_formed(html);
	assert_non_null(strstr(html, "0 / 1"));
	assert_null(strstr(html, "nan"));
	free(html);
	char *text = export_as("text");
	assert_non_null(strstr(text, "0 of 1 cells complete; samples: 0 of 7 answered"));
	free(text);
}

/* Two parameter sets of one method, told apart by what differs; each in its own row. */
static void variants_are_told_apart(void **state)
{
	(void)state;
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny");
	struct cell_plan p = {"niah", "snapkv", "{\"kernel\":7,\"window\":32}", "agnostic", true, 512, 300000, 1};
	put_cell(&w, &p, id);
	put_sample(&w, &p, id, 0, "ok", 1, "x");
	p.params = "{\"kernel\":7,\"window\":64}";
	put_cell(&w, &p, id);
	put_sample(&w, &p, id, 0, "ok", 0, "y");
	store_close(w.s);
	char *text = export_as("md");
	assert_non_null(strstr(text, "| snapkv window=32 | 1.00 [0.21, 1.00] |\n| snapkv window=64 | 0.00 [0.00, 0.79] |\n"));
	free(text);
}

/* Trained weights differ by their hash as well as by their kind: the kind is enough to tell them apart; where it is not, the
 * hash. */
static void lists_stay_out_of_labels(void **state)
{
	(void)state;
	static const char *const params[] = {"{\"files\":{\"w\":\"aa\"},\"mapper\":\"flat\"}",
		"{\"files\":{\"w\":\"bb\"},\"mapper\":\"linear\"}", "{\"files\":{\"w\":\"cc\"},\"mapper\":\"linear\"}"};
	struct writer w;
	char id[SHA_LEN];
	writer_open(&w, "tiny");
	for (int i = 0; i < 3; i++) {
		struct cell_plan p = {"niah", "proxykv", params[i], "agnostic", true, 512, 300000, 1};
		put_cell(&w, &p, id);
		put_sample(&w, &p, id, 0, "ok", 1, "x");
	}
	store_close(w.s);
	char *text = export_as("text");
	assert_non_null(strstr(text, "proxykv mapper=flat "));
	assert_null(strstr(text, "mapper=flat files"));
	assert_non_null(strstr(text, "proxykv mapper=linear files={\"w\":\"bb\"}"));
	assert_non_null(strstr(text, "proxykv mapper=linear files={\"w\":\"cc\"}"));
	free(text);
}

static void unwritable_page(void **state)
{
	(void)state;
	struct store *s;
	fill_by_hand();
	check(store_open_read(&s, path, err));
	assert_int_equal(report_write(s, "t", "/nonexistent/page.html", err), -1);
	assert_non_null(strstr(err, "/nonexistent/page.html"));
	store_close(s);
}

static int write_page(const char *file)
{
	struct store *s;
	make_folder(NULL);
	fill_like_the_demo("tiny-pair/target");
	check(store_open_read(&s, path, err));
	check(report_write(s, "kvbench report (synthetic numbers)", file, err));
	store_close(s);
	return remove_folder(NULL);
}

int main(void)
{
	const char *file = getenv("KVB_PAGE");
	if (file)
		return write_page(file);
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_checker_checks), TEST(page_of_a_demo), TEST(one_protocol_a_table),
		TEST(modes_variants_and_second_metrics), TEST(averages_of_whole_suites), TEST(hostile_text),
		TEST(sentences_are_computed), TEST(golden_numbers_in_exports), TEST(titles_name_what_was_asked_otherwise),
		TEST(a_task_that_tells_nothing_is_flagged), TEST(a_task_that_tells_is_not_flagged),
		TEST(times_beside_other_work_are_flagged), TEST(bad_methods_are_flagged), TEST(failures_are_flagged),
		TEST(missing_controls_are_flagged), TEST(bad_times_are_flagged), TEST(empty_databases),
		TEST(variants_are_told_apart), TEST(lists_stay_out_of_labels), TEST(unwritable_page)};
	return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
