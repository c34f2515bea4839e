/* The metrics on long and degenerate texts: the right score, in time and memory that a book allows. */
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/function_find.h"
#include "tasks/metrics/lcs.h"
#include "tasks/metrics/metrics.h"
#include "tests/unit/tasks/helpers.h"

/* The score, in at most so many seconds of CPU time (much more than it takes, much less than it took before). */
static double score_within(double seconds, const char *metric, const char *answer, const char *gold)
{
	int64_t start = cpu_ns();
	double s = metric_find(metric)->score(answer, (char *[]){(char *)gold}, 1);
	double took = (double)(cpu_ns() - start) / 1e9;
	if (took > seconds && !getenv("KVB_SANITIZED"))
		fail_msg("%s took %.1f s", metric, took);
	return s;
}

static char *repeated(const char *text, int n)
{
	struct strbuf b = {0};
	while (n--)
		strbuf_puts(&b, text);
	return strbuf_take(&b);
}

/* "0 step 2step .." up to n */
static char *numbers_to(int n, int step, const char *between)
{
	struct strbuf b = {0};
	for (int i = 0; i < n; i += step)
		strbuf_printf(&b, "%d%s", i, between);
	return strbuf_take(&b);
}

/* ---- the longest common subsequence against its definition ---- */

/* The usual table and the way back which lcs.h states. */
static void mark_by_table(const int *x, int n, const int *y, int m, char *taken, int *length)
{
	int *table = mem_new((size_t)(n + 1) * (size_t)(m + 1), sizeof(*table)), width = m + 1;
	for (int i = 1; i <= n; i++)
		for (int j = 1; j <= m; j++) {
			int above = table[(i - 1) * width + j], left = table[i * width + j - 1];
			table[i * width + j] = x[i - 1] == y[j - 1] ? table[(i - 1) * width + j - 1] + 1
					       : above > left       ? above
								    : left;
		}
	*length = table[n * width + m];
	for (int i = n, j = m; i && j;) {
		if (x[i - 1] == y[j - 1]) {
			taken[--j] = 1;
			i--;
		} else if (table[(i - 1) * width + j] > table[i * width + j - 1]) {
			i--;
		} else {
			j--;
		}
	}
	free(table);
}

static void test_lcs(void **state)
{
	(void)state;
	enum { MOST = 300, CASES = 400 };
	uint32_t random = 1;
	int x[MOST], y[MOST];
	struct lcs *s = lcs_new(60, MOST);
	for (int k = 0; k < CASES; k++) {
		char want[MOST] = {0}, got[MOST] = {0};
		int n = (int)((random = random * 1664525 + 1013904223) >> 8) % (MOST + 1), length;
		int m = k % 8 == 0 ? 64 * (k / 8 % 5) : (int)((random = random * 1664525 + 1013904223) >> 8) % (MOST + 1);
		int kinds = 1 + k % 60;
		for (int i = 0; i < MOST; i++) {
			x[i] = (int)((random = random * 1664525 + 1013904223) >> 8) % kinds;
			y[i] = (int)((random = random * 1664525 + 1013904223) >> 8) % kinds;
		}
		mark_by_table(x, n, y, m, want, &length);
		assert_int_equal(lcs_length(s, x, n, y, m), length);
		lcs_mark(s, x, n, y, m, got);
		assert_memory_equal(got, want, MOST);
	}
	lcs_free(s);
}

/* ---- ROUGE ---- */

/* The whole table of these sentences would have 5e9 cells and more. */
static void test_rouge_long(void **state)
{
	(void)state;
	char *all = numbers_to(100000, 1, " "), *even = numbers_to(100000, 2, " "), *same = repeated("x ", 100000);
	assert_near(score_within(10, "rouge_l", all, even), 2 * (.5 / (1.5 + 1e-8)));
	assert_near(score_within(10, "rouge_l", even, all), 2 * (.5 / (1.5 + 1e-8)));
	assert_near(score_within(10, "rouge_lsum", all, even), 2 * .5 / 1.5);
	assert_near(score_within(10, "rouge_l", same, same), 2 * (1 / (2 + 1e-8)));
	assert_near(score_within(10, "rouge_lsum", same, even), 0);
	free(all);
	free(even);
	free(same);
	char *lines = numbers_to(5000, 1, "\n"), *some = numbers_to(5000, 4, "\n"); /* many sentences of one word */
	assert_near(score_within(10, "rouge_lsum", lines, some), 2 * .25 / 1.25);
	free(lines);
	free(some);
}

/* ---- similarity of code ---- */

/* Characters of their own with `between` after each: as many blocks of one character as there are. */
static char *apart(int n, char between)
{
	struct strbuf b = {0};
	for (int i = 0; i < n; i++) {
		text_put(&b, 0x4e00 + i);
		strbuf_add(&b, &between, 1);
	}
	return strbuf_take(&b);
}

static void test_code_sim_long(void **state)
{
	(void)state;
	char *q = apart(3000, 'x'), *g = apart(3000, 'y');
	assert_near(score_within(10, "code_sim", q, g), .5);
	assert_near(score_within(10, "code_sim_indel", q, g), .5);
	free(q);
	free(g);
	q = repeated("a", 1000000);
	g = repeated("a", 500000);
	assert_near(score_within(5, "code_sim", q, g), .67); /* popular: the block is found by growing only */
	free(q);
	free(g);
}

/* ---- what the others make of one sign, or none ---- */

static void test_degenerate(void **state)
{
	(void)state;
	static const char *const signs[] = {"a", "a ", ".", ". ", "\n", " ", "7", "\x01", "\xe4\xb8\xad", "(", "{", "\"", "/* ",
		"```\n", "*", "\xef\xbf\xbd", "\xff", "Paragraph 3 "};
	for (size_t k = 0; k < sizeof(signs) / sizeof(signs[0]); k++) {
		char *text = repeated(signs[k], 10000);
		for (size_t i = 0; i < metric_count(); i++) {
			const struct metric_def *m = metric_at(i);
			char *gold[] = {text, "f", "f", text};
			int64_t start = cpu_ns();
			bool functions = !strcmp(m->name, "repoqa");
			gold[0] = functions ? "python" : text;
			double s = m->score(text, gold, functions ? 4 : 1);
			assert_true(isnan(s) || (s >= 0 && s <= 1));
			if (cpu_ns() - start > 5000000000 && !getenv("KVB_SANITIZED"))
				fail_msg("%s: more than 5 s for '%s'", m->name, signs[k]);
		}
		free(text);
	}
}

/* Functions that never end inside each other: no bracket is looked for twice. */
static void test_functions_nested(void **state)
{
	(void)state;
	static const char *const open[][2] = {{"cpp", "int f(){"}, {"java", "int f(){"}, {"rust", "fn f(){"}, {"typescript", "function f(){"},
		{"go", "func f(){"}, {"python", "def f(a=("}};
	for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
		char *text = repeated(open[i][1], 100000);
		size_t start, len;
		int64_t begin = cpu_ns();
		assert_false(function_find(open[i][0], text, &start, &len));
		if (cpu_ns() - begin > 2000000000 && !getenv("KVB_SANITIZED"))
			fail_msg("%s: more than 2 s", open[i][0]);
		free(text);
	}
}

/* ---- letters ---- */

static void same_case(const char *text, const char *low, const char *up)
{
	struct strbuf b = {0}, c = {0};
	text_lower(&b, text);
	text_upper(&c, text);
	assert_string_equal(b.text, low);
	assert_string_equal(c.text, up);
	strbuf_free(&b);
	strbuf_free(&c);
}

/* As Python's str.lower and str.upper. */
static void test_case(void **state)
{
	(void)state;
	same_case("ΟΔΟΣ ΣΑΣ", "οδος σας", "ΟΔΟΣ ΣΑΣ");
	same_case("Σ ΑΣ. Α.Σ! ΑΣ'Α ΑΣ1", "σ ας. α.ς! ασ'α ας1", "Σ ΑΣ. Α.Σ! ΑΣ'Α ΑΣ1");
	same_case("ΑΣ\u0301Α ΑΣ\u0301", "ασ\u0301α ας\u0301", "ΑΣ\u0301Α ΑΣ\u0301");
	same_case("ﬁn ﬀ ß ẞ ŉ ΐ ᾳ İ ǆ ǅ", "ﬁn ﬀ ß ß ŉ ΐ ᾳ i\u0307 ǆ ǆ", "FIN FF SS ẞ ʼN Ι\u0308\u0301 ΑΙ İ Ǆ Ǆ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lcs),
		cmocka_unit_test(test_rouge_long),
		cmocka_unit_test(test_code_sim_long),
		cmocka_unit_test(test_degenerate),
		cmocka_unit_test(test_functions_nested),
		cmocka_unit_test(test_case),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
