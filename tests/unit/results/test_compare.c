/* Two databases side by side: who meets whom, what is refused, what changed, in five formats. */
#include "tests/unit/results/night.h"

static struct side a, b;
static struct comparison c;

static void make(struct night_plan x, struct night_plan y)
{
	static const struct compare_rules rules = {.alpha = .05};
	static int made;
	char name[32];
	snprintf(name, sizeof name, "a%d", made);
	char *p = night_make(name, x);
	snprintf(name, sizeof name, "b%d", made++);
	char *q = night_make(name, y);
	MUST(side_load(&a, p, err));
	MUST(side_load(&b, q, err));
	compare_make(&c, &a, &b, &rules);
	free(p);
	free(q);
}

static void end(void)
{
	compare_free(&c);
	side_free(&a);
	side_free(&b);
}

static const struct compared *of(const char *method)
{
	for (int i = 0; i < c.n_cells; i++) {
		if (!strcmp(c.cells[i].a->row.method, method))
			return &c.cells[i];
	}
	fail_msg("no pair of %s", method);
	return NULL;
}

static char *print(const char *format, const char *table, int flips)
{
	struct strbuf out = {0};
	MUST(compare_print(&c, &(struct compare_output){format, table, flips}, &out, err));
	return strbuf_take(&out);
}

static void wants(const char *format, const char *const *pieces)
{
	char *text = print(format, "cells", 3);
	for (; *pieces; pieces++) {
		if (!strstr(text, *pieces))
			fail_msg("%s has no \"%s\":\n%s", format, *pieces, text);
	}
	free(text);
}

/* ---- what changed ---- */

static void a_run_equals_itself(void **state)
{
	(void)state;
	make((struct night_plan){0}, (struct night_plan){0});
	assert_int_equal(c.n_cells, 3);
	assert_int_equal(c.n_refusals + c.n_only_a + c.n_only_b + c.n_flips, 0);
	assert_true(c.same_machine);
	for (int i = 0; i < 3; i++) {
		const struct compared *x = &c.cells[i];
		assert_int_equal(x->score_verdict, SAME);
		assert_true(x->score.change.lo == 0 && x->score.change.hi == 0 && x->score_p == 1 && x->score.n == 400 &&
			    x->score.clusters == 40);
		assert_true(x->time_known && x->time.change.mean == 0);
		assert_int_equal(x->answers_changed, 0);
		assert_true(
			x->detectable >= 6.0 / 400 && x->detectable < .05); /* samples of 6 contexts must change for p < .05 */
	}
	assert_false(of("full")->ratio_known);
	assert_true(of("snapkv")->ratio_known);
	end();
}

static void a_loss_is_worse_and_its_samples_are_listed(void **state)
{
	(void)state;
	make((struct night_plan){0}, (struct night_plan){.lost = .1, .seed = 3});
	const struct compared *x = of("snapkv");
	assert_int_equal(x->score_verdict, WORSE);
	assert_int_equal(of("kvzip")->score_verdict, SAME);
	assert_true(x->score.lower > 10 && x->score.higher == 0 && x->score.lower == c.n_flips);
	assert_true(fabs(x->score_b - x->score_a - x->score.change.mean) < 1e-12);
	assert_true(x->score.change.hi < 0 && x->score_p < .01);
	for (int i = 0; i < c.n_flips; i++)
		assert_true(c.flips[i].cell == x && c.flips[i].a->score == 1 && c.flips[i].b->score == 0);
	end();
	make((struct night_plan){.lost = .1, .seed = 3}, (struct night_plan){0});
	assert_int_equal(of("snapkv")->score_verdict, BETTER);
	end();
}

static void other_answers_with_the_same_score(void **state)
{
	(void)state;
	make((struct night_plan){0}, (struct night_plan){.other_answers = 5});
	assert_int_equal(of("kvzip")->answers_changed, 5);
	assert_int_equal(of("kvzip")->answers_changed_alone, 5);
	assert_int_equal(c.n_flips, 0);
	end();
}

static void speed_by_ratio_and_by_time(void **state)
{
	(void)state;
	make((struct night_plan){0}, (struct night_plan){.slower = .15, .seed = 4});
	assert_int_equal(of("snapkv")->ratio_verdict, WORSE);
	assert_true(fabs(of("snapkv")->ratio.change.mean - .15) < .03);
	assert_int_equal(of("kvzip")->ratio_verdict, SAME);
	end();
	make((struct night_plan){0}, (struct night_plan){.all_slower = .6, .seed = 4});
	assert_int_equal(of("snapkv")->ratio_verdict, SAME);
	assert_int_equal(of("full")->time_verdict, WORSE);
	end();
	make((struct night_plan){0}, (struct night_plan){.all_slower = .6, .host = "elsewhere", .seed = 4});
	assert_false(c.same_machine || of("full")->time_known);
	end();
}

/* ---- who meets whom ---- */

static void another_precision_is_what_is_compared(void **state)
{
	(void)state;
	static const char *const text[] = {"precision: A fp32, B bf16", "snapkv", "worse", NULL};
	make((struct night_plan){0}, (struct night_plan){.precision = "bf16", .lost = .1});
	assert_int_equal(c.n_cells, 3);
	assert_int_equal(c.n_refusals, 0);
	wants("text", text);
	end();
}

static void other_parameters_of_one_method_meet_by_name(void **state)
{
	(void)state;
	make((struct night_plan){0}, (struct night_plan){.params = "{\"window\":16}"});
	assert_int_equal(c.n_cells, 3);
	assert_int_equal(c.n_only_a + c.n_only_b, 0);
	wants("text",
		(const char *const[]){
			"method parameters, window: A 32, B 16 (1 of 3 cells; the first: niah 1024 agnostic snapkv r = 0.3)",
			NULL});
	wants("json", (const char *const[]){"\"key\": \"window\"", NULL});
	end();
	make((struct night_plan){0}, (struct night_plan){.params = "{\"window\":32,\"pool\":\"max\"}"});
	wants("text", (const char *const[]){"method parameters, pool: A none, B max (1 of 3", NULL});
	end();
	make((struct night_plan){.precision = "bf16"}, (struct night_plan){0}); /* in all cells: none is named */
	wants("md", (const char *const[]){"- precision: A bf16, B fp32\n", NULL});
	assert_int_equal(c.n_unlike, 1);
	end();
}

/* Labels, columns and pools of one method tell by its parameters apart, by those alone that differ. */
static void two_settings_of_one_method_are_told_apart(void **state)
{
	(void)state;
	static const char *const long_ones[] = {"{\"allocator\":\"uniform\",\"order\":\"gqa_then_pool\",\"window\":8}",
		"{\"allocator\":\"uniform\",\"order\":\"gqa_then_pool\",\"window\":32}"};
	char *a_path = night_make("one", (struct night_plan){.params = long_ones[0], .omit = "kvzip"});
	char *b_path = night_make("two", (struct night_plan){.params = long_ones[1]});
	struct store *s;
	MUST(store_open(&s, a_path, err));
	MUST(store_merge_from(s, b_path, &(struct store_merge){0}, NULL, NULL, err));
	store_close(s);
	MUST(side_load(&a, a_path, err));
	MUST(side_load(&b, a_path, err));
	compare_make(&c, &a, &b, &(struct compare_rules){.alpha = .05});
	int named = 0;
	for (int i = 0; i < a.n_cells; i++) {
		bool snapkv = !strcmp(a.cells[i].row.method, "snapkv");
		assert_int_equal(snapkv, *a.cells[i].params != 0);
		named += !strcmp(a.cells[i].label, "niah 1024 agnostic snapkv window=8 r = 0.3") ||
			 !strcmp(a.cells[i].label, "niah 1024 agnostic snapkv window=32 r = 0.3");
	}
	assert_int_equal(named, 2);
	wants("md", (const char *const[]){"| snapkv | window=8 |", "| snapkv | window=32 |", "| full |  |", NULL});
	char *csv = print("csv", "cells", 0);
	assert_non_null(strstr(csv, "gqa_then_pool")); /* for programs: all of them */
	free(csv);
	end();
	free(a_path);
	free(b_path);
}

static void cells_of_one_side_only(void **state)
{
	(void)state;
	static const char *const text[] = {"only in A: 1 cells: niah 1024 agnostic kvzip r = 0.3", NULL};
	make((struct night_plan){0}, (struct night_plan){.omit = "kvzip"});
	assert_int_equal(c.n_cells, 2);
	assert_int_equal(c.n_only_a, 1);
	assert_string_equal(c.only_a[0]->row.method, "kvzip");
	wants("text", text);
	end();
}

/* ---- one run of a database ---- */

static void a_run_by_its_id(void **state)
{
	(void)state;
	char *path = night_make("two", (struct night_plan){.omit = "kvzip"}),
	     *again = night_make("two", (struct night_plan){.host = "later"});
	struct side all, one;
	MUST(side_load(&all, path, err));
	assert_int_equal(all.n_runs, 2);
	assert_int_equal(all.n_cells, 3);
	char *spec = text_format("%s:%.8s", path, all.runs[1].row.run_id);
	MUST(side_load(&one, spec, err));
	assert_int_equal(one.n_runs, 1);
	assert_string_equal(one.run_id, all.runs[1].row.run_id);
	for (int i = 0; i < one.n_cells;
		i++) /* the second run found full and snapkv answered: it worked on kvzip, and timed all */
		assert_int_equal(one.cells[i].n_samples, strcmp(one.cells[i].row.method, "kvzip") ? 0 : 400);
	side_free(&one);
	free(spec);
	spec = text_format("%s:zz", path);
	assert_int_equal(side_load(&one, spec, err), -1);
	assert_non_null(strstr(err, "no run's id begins with \"zz\" (of 2 runs)"));
	side_free(&one);
	side_free(&all);
	free(spec);
	free(path);
	free(again);
}

/* ---- refusals ---- */

static void refusals_name_the_difference(void **state)
{
	(void)state;
	static const struct {
		struct night_plan plan;
		const char *says;
	} cases[] = {
		{{.prompt = "q"}, "prompts differ: 1200 shared samples of 3 cells"},
		{{.protocol = "aware"}, "protocols differ in 3 cells: agnostic against aware"},
		{{.scorer = 3}, "scorer versions differ: 2 to 2 against 3 to 3"},
		{{.measure = 2}, "measuring procedures differ in 3 cells: 1 against 2"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		make((struct night_plan){0}, cases[i].plan);
		if (c.n_refusals != 1 || !strstr(c.refusals[0], cases[i].says))
			fail_msg("%d refusals, the first: %s", c.n_refusals, c.n_refusals ? c.refusals[0] : "");
		const char *const mark[] = {"FORCED, not comparable: ", c.refusals[0], NULL};
		wants("text", mark);
		wants("csv", mark);
		wants("json", (const char *const[]){"\"forced\": true", NULL});
		end();
	}
}

static void nothing_in_common(void **state)
{
	(void)state;
	make((struct night_plan){.omit = "kvzip", .contexts = 1}, (struct night_plan){0});
	assert_int_equal(of("snapkv")->score.n, 10);
	assert_true(isnan(of("snapkv")->score.change.lo)); /* one context: no interval, and so no verdict but "same" */
	assert_int_equal(of("snapkv")->score_verdict, SAME);
	end();
}

static void not_a_number_is_unknown(void **state)
{
	(void)state;
	make((struct night_plan){0}, (struct night_plan){.infinite = true, .failed = 3});
	const struct compared *x = of("kvzip");
	assert_int_equal(x->score_verdict, UNKNOWN);
	assert_int_equal(x->score.n, 397);
	assert_true(isnan(x->score_p));
	assert_int_equal(of("snapkv")->score_verdict, SAME);
	wants("json", (const char *const[]){"\"verdict\": \"unknown\"", "\"change\": null", NULL});
	end();
}

/* ---- formats ---- */

static int lines(const char *text)
{
	int n = 0;
	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void five_formats(void **state)
{
	(void)state;
	make((struct night_plan){0}, (struct night_plan){.lost = .1, .slower = .2, .seed = 3});
	static const char *const text[] = {"method", "retained", "change [95 %]", "worse", "slower", "TTFT/full", "1 worse",
		"of 27 rounds of A and ", "the 3 largest changes", "s0", NULL};
	static const char *const md[] = {"| method | retained | n |", "|---|", "| worse |", "- accuracy:", NULL};
	static const char *const latex[] = {
		"\\begin{tabular}{", "worse", "\\hline\n\\end{tabular}", "method & retained & n", " \\\\\n", NULL};
	static const char *const csv[] = {"method,retained,n,score_a,score_b,change,lo,hi,p_holm,verdict,", "\nfull,1,400,",
		"\nsnapkv,0.3,400,", ",worse,", NULL};
	static const char *const json[] = {
		"\"forced\": false", "\"verdict\": \"worse\"", "\"ttft_of_full\": null", "\"answer_b\": \"red\"", NULL};
	wants("text", text);
	wants("md", md);
	wants("latex", latex);
	wants("csv", csv);
	wants("json", json);
	char *cells = print("csv", "cells", 3), *flips = print("csv", "flips", 1000), *all = print("json", "cells", 1000);
	assert_int_equal(lines(cells), 4);
	assert_int_equal(lines(flips), 1 + c.n_flips);
	json_t *j = json_loads(all, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(j, "flips")), c.n_flips);
	assert_int_equal(json_array_size(json_object_get(j, "cells")), 3);
	assert_null(strstr(cells, "task")); /* columns that are equal everywhere are left out */
	assert_null(strstr(cells, "protocol"));
	json_decref(j);
	free(cells);
	free(flips);
	free(all);
	struct strbuf out = {0};
	assert_int_equal(compare_print(&c, &(struct compare_output){"xls", "cells", 3}, &out, err), -1);
	assert_int_equal(compare_print(&c, &(struct compare_output){"csv", "rows", 3}, &out, err), -1);
	strbuf_free(&out);
	end();
}

/* An answer is any text: it must not run in a spreadsheet, nor be read as a mark of the format. */
static void answers_are_escaped(void **state)
{
	(void)state;
	make((struct night_plan){0}, (struct night_plan){.lost = .1, .seed = 3});
	struct side_sample *s = (struct side_sample *)c.flips[0].b;
	const char *kept = s->answer;
	s->answer = "=1|<~&\"\\";
	wants("md", (const char *const[]){" =1\\|\\<\\~\\&\"\\\\ |", NULL});
	wants("latex",
		(const char *const[]){"=1\\textbar{}\\textless{}\\textasciitilde{}\\&\\symbol{34}\\textbackslash{}", NULL});
	char *flips = print("csv", "flips", 1);
	assert_non_null(strstr(flips, ",\"'=1|<~&\"\"\\\""));
	free(flips);
	s->answer = "[*]";
	wants("latex", (const char *const[]){"{}[*]", NULL});
	s->answer = kept;
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {NIGHT_TEST(a_run_equals_itself),
		NIGHT_TEST(a_loss_is_worse_and_its_samples_are_listed), NIGHT_TEST(other_answers_with_the_same_score),
		NIGHT_TEST(speed_by_ratio_and_by_time), NIGHT_TEST(another_precision_is_what_is_compared),
		NIGHT_TEST(other_parameters_of_one_method_meet_by_name), NIGHT_TEST(two_settings_of_one_method_are_told_apart),
		NIGHT_TEST(cells_of_one_side_only), NIGHT_TEST(a_run_by_its_id), NIGHT_TEST(refusals_name_the_difference),
		NIGHT_TEST(nothing_in_common), NIGHT_TEST(not_a_number_is_unknown), NIGHT_TEST(five_formats),
		NIGHT_TEST(answers_are_escaped)};
	return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
