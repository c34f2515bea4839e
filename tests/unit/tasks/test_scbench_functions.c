/* RepoQA's parts: the function finder against tree-sitter's answers, code blocks, BLEU-4 against NLTK's. */
#include "tests/unit/tasks/helpers.h"

#include <jansson.h>

#include "tasks/metrics/function_find.h"
#include "tasks/metrics/metrics.h"

static json_t *fixture(const char *name)
{
	char *path = text_format("tests/fixtures/scbench/%s", name);
	json_error_t why;
	json_t *all = json_load_file(path, 0, &why);
	if (!all)
		fail_msg("%s:%d: %s", path, why.line, why.text);
	free(path);
	return all;
}

/* Pieces where the finder and tree-sitter differ, by number in the fixture. All are functions whose body was cut off: the finder
 * finds none there, tree-sitter mends a Java method (30) and takes a Go signature alone (105), but also finds none in the other
 * languages. */
static const int known_differences[] = {30, 105};

static bool is_known(size_t i)
{
	for (size_t k = 0; k < sizeof(known_differences) / sizeof(known_differences[0]); k++)
		if (known_differences[k] == (int)i)
			return true;
	return false;
}

static void test_finder(void **state)
{
	(void)state;
	json_t *all = fixture("functions.json"), *piece;
	size_t i, differ = 0, functions = 0;
	json_array_foreach(all, i, piece)
	{
		const char *lang = json_string_value(json_object_get(piece, "lang"));
		const char *code = json_string_value(json_object_get(piece, "code"));
		int want = (int)json_integer_value(json_object_get(piece, "start"));
		int want_end = (int)json_integer_value(json_object_get(piece, "end"));
		size_t start, len;
		bool found = function_find(lang, code, &start, &len);
		int got = found ? (int)start : -1, got_end = found ? (int)(start + len) : -1;
		bool same = got == want && got_end == want_end;
		functions += want >= 0;
		differ += !same;
		if (same == is_known(i)) {
			print_message("piece %zu (%s): [%d, %d), tree-sitter has [%d, %d)\n%.*s\n--\n%.*s\n", i, lang, got,
				got_end, want, want_end, got_end - got, code + (got < 0 ? 0 : got), want_end - want,
				code + (want < 0 ? 0 : want));
			fail();
		}
	}
	print_message("%zu pieces, %zu with a function, %zu differ from tree-sitter\n", json_array_size(all), functions, differ);
	assert_true(functions >= 60);
	json_decref(all);
}

/* Code that ends anywhere: nothing is read or found beyond its end. */
static void test_cut_off(void **state)
{
	(void)state;
	json_t *all = fixture("functions.json"), *piece;
	size_t i, start, len;
	json_array_foreach(all, i, piece)
	{
		const char *lang = json_string_value(json_object_get(piece, "lang"));
		const char *code = json_string_value(json_object_get(piece, "code"));
		for (size_t n = 0; n < strlen(code); n++) {
			char *cut = mem_new(n + 1, 1);
			memcpy(cut, code, n);
			assert_true(!function_find(lang, cut, &start, &len) || (len && start + len <= n));
			free(cut);
		}
	}
	assert_false(function_find("cobol", "int f() { }", &start, &len));
	json_decref(all);
}

static void test_blocks(void **state)
{
	(void)state;
	json_t *all = fixture("metrics.json"), *c;
	size_t i;
	json_array_foreach(json_object_get(all, "blocks"), i, c)
	{
		char *got = repoqa_function(
			json_string_value(json_object_get(c, "answer")), json_string_value(json_object_get(c, "lang")));
		if (strcmp(got, json_string_value(json_object_get(c, "function"))))
			fail_msg("answer %zu: \"%s\"", i, got);
		free(got);
	}
	assert_true(i >= 19);
	json_decref(all);
}

static void test_bleu(void **state)
{
	(void)state;
	json_t *all = fixture("metrics.json"), *c;
	size_t i;
	json_array_foreach(json_object_get(all, "bleu"), i, c)
	{
		double got = bleu4(
			json_string_value(json_object_get(c, "candidate")), json_string_value(json_object_get(c, "reference")));
		double want = json_number_value(json_object_get(c, "bleu"));
		if (!(fabs(got - want) < 1e-12))
			fail_msg("pair %zu: %.17g, NLTK has %.17g", i, got, want);
	}
	assert_true(i >= 90);
	json_decref(all);
}

#define BODY "    total = 0\n    for x in xs:\n        total += x * x\n    return total / len(xs)\n"
#define TWIN "    best = 0\n    for x in xs:\n        best = max(best, x)\n    return best\n"

/* The best needle must be the one asked for, and by 0.8; what stands around the function does not matter. */
static void test_repoqa(void **state)
{
	(void)state;
	char *gold[] = {"python", "mean", "peak", "def peak(xs):\n" TWIN, "mean", "def mean(xs):\n" BODY};
	char *other[] = {"python", "peak", gold[2], gold[3], gold[4], gold[5]};
	const char *whole = "Sure:\n```python\nimport os\n\ndef mean(xs):\n" BODY "```\nIt sums.";
	const struct metric_def *m = metric_find("repoqa");
	assert_true(m->score(whole, gold, 6) == 1);
	assert_true(m->score(whole, other, 6) == 0);
	assert_true(m->score("def mean(xs):\n" BODY, gold, 6) == 1);
	assert_true(m->score("def mean(xs):\n    return sum(xs)\n", gold, 6) == 0);
	assert_true(m->score("", gold, 6) == 0);
	assert_true(isnan(m->score(whole, gold, 2)));
	/* equal texts: the first in the file is the best */
	char *twins[] = {"python", "b", "a", gold[5], "b", gold[5]};
	assert_true(m->score(whole, twins, 6) == 0);
	twins[1] = "a";
	assert_true(m->score(whole, twins, 6) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finder),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_bleu),
		cmocka_unit_test(test_repoqa),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
