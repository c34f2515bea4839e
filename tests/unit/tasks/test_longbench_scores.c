/* LongBench's metrics: values worked out by hand, jieba against the Python package, and published results of real predictions. */
#include "tests/unit/tasks/helpers.h"

#include <jansson.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tasks/longbench/longbench.h"
#include "tasks/metrics/jieba.h"
#include "tasks/metrics/metrics.h"
#include "tasks/score.h"

static char err[ERR_LEN];

static double score(const char *metric, const char *answer, const char *gold1, const char *gold2)
{
	char *gold[] = {(char *)gold1, (char *)gold2};
	return metric_find(metric)->score(answer, gold, !!gold1 + !!gold2);
}

#define need_jieba()                                                                                                             \
	do {                                                                                                                     \
		if (jieba_load(err)) {                                                                                           \
			print_message("skip: %s\n", err);                                                                        \
			skip();                                                                                                  \
		}                                                                                                                \
	} while (0)

/* What loading a dictionary of this line says; the process's own load comes later, so in a child. */
static void refuse_dictionary(const char *line)
{
	char folder[] = "/tmp/kvb_jieba_XXXXXX";
	assert_non_null(mkdtemp(folder));
	char *path = text_format("%s/dict.txt", folder);
	FILE *f = fopen(path, "wb");
	fputs(line, f);
	fclose(f);
	pid_t child = fork();
	if (!child) {
		setenv("KVB_JIEBA", folder, 1);
		_exit(jieba_load(err) && strstr(err, "not jieba's dictionary") ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	unlink(path);
	rmdir(folder);
	free(path);
}

/* A frequency is the logarithm's: cut to 32 bits, 4294967300 would be 4. Must come before what loads the dictionary here. */
static void test_frequencies(void **state)
{
	(void)state;
	refuse_dictionary("\u8bcd 4294967300 n\n");
	refuse_dictionary("\u8bcd 3 n\n\u5b57 -1 n\n");
	refuse_dictionary("\u8bcd n\n");
}

/* ---- by hand ---- */

static void test_rouge_l(void **state)
{
	(void)state;
	/* F of p and r has 1e-8 below the line */
	assert_near(score("rouge_l", "a b c", "a b c", NULL), 2 / (2 + 1e-8));
	assert_near(score("rouge_l", "a a a a", "a b", NULL), 2 * .5 / (1.5 + 1e-8)); /* words are sets: p = 1/1, r = 1/2 */
	assert_near(score("rouge_l", "", "a b", NULL), 0.);
	assert_near(score("rouge_l", "...", "a b", NULL), 0.); /* no sentence */
	/* "a. b" has a second sentence " b"; blanks alone are a sentence with one empty word, which is a word of the set */
	assert_near(score("rouge_l", "a. b", "b.a", NULL), 2 / (2 + 1e-8));
	assert_near(score("rouge_l", "a. ", "a", NULL), 2 * .5 / (1.5 + 1e-8));
	assert_near(score("rouge_l", "a. .", "a.  .b", NULL), 2 * (2. / 3) / (1 + 2. / 3 + 1e-8)); /* the empty words are equal */
	/* the way back through x y | y x: both entries beside the corner are 1: a tie goes left (the answer's end is dropped), so
	 * x it is */
	assert_near(score("rouge_l", "y x", "x y", NULL), 2 * .5 * .5 / (1 + 1e-8));
	/* then the second reference sentence adds y, or nothing new */
	assert_near(score("rouge_l", "y x", "x y.y", NULL), score("rouge_l", "y x", "x y.x y", NULL));
	assert_near(score("rouge_l", "p", "q", "p"), 2 / (2 + 1e-8));
	assert_near(score("rouge_l", "\xc2\xa0x\xe3\x80\x80y", "x y", NULL), 2 / (2 + 1e-8)); /* Unicode white space */
	assert_near(score("rouge_l_line", "\n\nx y\nmore and more", "x y", NULL), 2 / (2 + 1e-8));
	char *gold = "x";
	struct strbuf b = {0};
	for (int i = 0; i < 998; i++)
		strbuf_puts(&b, "w ");
	assert_int_equal(rouge_deep_pairs(b.text, &gold, 1), 0);
	strbuf_puts(&b, "w");
	assert_int_equal(rouge_deep_pairs(b.text, &gold, 1), 1);
	strbuf_free(&b);
}

static double classify(const char *answer, const char *right, const char *a, const char *b, const char *c, const char *d)
{
	char *gold[] = {(char *)right, (char *)a, (char *)b, (char *)c, (char *)d};
	return metric_find("classification")->score(answer, gold, 5);
}

static void test_classification(void **state)
{
	(void)state;
	assert_near(classify("Food\nDate", "Food", "Food", "Date", "City", "Other"), 1.); /* the first line only */
	assert_near(classify("\n\nFood and Date", "Food", "Food", "Date", "City", "Other"), .5);
	assert_near(classify("food", "Food", "Food", "Date", "City", "Other"), 0.);
	assert_near(classify("Other city", "Other city", "Other city", "city", "City", "Date"),
		1.); /* "city" is part of the right name */
	/* dropped while walked over: behind a dropped one the next is not looked at */
	assert_near(classify("abc", "abc", "a", "b", "c", "abc"), .5); /* a goes, b stays, c goes, abc stays */
	assert_near(classify("abc", "abc", "abc", "a", "b", "c"), .5); /* a goes, b stays, c goes */
	assert_near(classify("Date", "Food", "Food", "Date", "City", "Other"), 0.);
}

static void test_numbers(void **state)
{
	(void)state;
	assert_near(score("count", "7", "7", NULL), 1.);
	assert_near(score("count", "There are 7, no 17, maybe 7.", "7", NULL), 2. / 3);
	assert_near(score("count", "07", "7", NULL), 0.); /* as text */
	assert_near(score("count", "none", "7", NULL), 0.);
	assert_near(score("count", "\xef\xbc\x97 7", "7", NULL), .5); /* a full-width seven is a number too */
	assert_near(score("retrieval", "Paragraph 12, or 13", "Paragraph 12", NULL), .5);
	assert_near(score("retrieval", "12", "see Paragraph x, Paragraph 12", NULL), 1.);
	assert_near(score("retrieval_zh", "段落12", "段落12", NULL), 1.);
	assert_true(isnan(score("retrieval", "12", "12", NULL)));
}

static void test_code_sim(void **state)
{
	(void)state;
	assert_near(score("code_sim", "\n\nabcd\nx", "abcd", NULL), 1.);
	assert_near(score("code_sim", "```python\n# note\nx // y\nabcd", "abcd", NULL), 1.);
	assert_near(score("code_sim", "`a`\n#b", "abcd", NULL), 0.);
	assert_near(score("code_sim", "abcd", "", NULL), 0.);
	assert_near(score("code_sim", "  \nabcd", "abcd", NULL), 0.); /* a line of blanks counts ... */
	assert_near(score("code_sim_skip_blank", "  \nabcd", "abcd", NULL), 1.);
	/* difflib: the longest block first: "abxcd" against "abcd": ab, cd: 8/9; "qabxcd" against "abycdf": ab, cd: 8/12 */
	assert_near(score("code_sim", "abxcd", "abcd", NULL), .89);
	assert_near(score("code_sim", "qabxcd", "abycdf", NULL), .67);
	/* blocks may not cross: "bcda" against "abcd": bcd = 6/8; "abcbdab" against "bdcaba": ab, no c: 2*3/13 by blocks, 8/13 by
	 * indel */
	assert_near(score("code_sim", "bcda", "abcd", NULL), .75);
	assert_near(score("code_sim_indel", "abcbdab", "bdcaba", NULL), .62);
	assert_near(score("code_sim", "\xc3\xa9", "\xc3\xa8", NULL), 0.); /* code points, not bytes */
	/* half to even: 2*1/16 = .125 -> 12 %, 2*3/16 = .375 -> 38 % */
	assert_near(score("code_sim", "aqqqqqqq", "azzzzzzz", NULL), .12);
	assert_near(score("code_sim", "aaaqqqqq", "aaazzzzz", NULL), .38);
}

/* Of 200 or more characters those of more than 1 % begin no match: nothing is left of a text of one letter. */
static void test_code_sim_junk(void **state)
{
	(void)state;
	char a[202], b[202];
	memset(a, 'x', 199);
	memset(b, 'x', 199);
	strcpy(a + 199, "y");
	strcpy(b + 199, "");
	assert_near(score("code_sim", a, b, NULL), 1.); /* 199: 398/399 */
	a[0] = 'y';
	a[199] = 'x';
	b[0] = 'z';
	assert_near(score("code_sim", a, b, NULL), .99); /* 199 */
	strcpy(b + 199, "x");
	assert_near(score("code_sim", a, b, NULL), 0.); /* 200 */
	strcpy(a, "qx");
	memset(b, 'x', 200);
	b[100] = 'q';
	b[200] = 0;
	assert_near(
		score("code_sim", a, b, NULL), .02); /* q begins a match, and the popular x behind it is taken with it: 4/202 */
}

static void test_v2_letter(void **state)
{
	(void)state;
	assert_near(score("longbench_v2", "The correct answer is (B).", "B", NULL), 1.);
	assert_near(score("longbench_v2", "**The correct answer is B**", "B", NULL), 1.);
	assert_near(score("longbench_v2", "The correct answer is A. No: The correct answer is (B)", "B", NULL),
		1.); /* parentheses first */
	assert_near(score("longbench_v2", "The correct answer is (B", "B", NULL), 0.);
	assert_near(score("longbench_v2", "the correct answer is (B)", "B", NULL), 0.);
	assert_near(score("longbench_v2", "B", "B", NULL), 0.);
	assert_near(score("longbench_v2", "The correct answer is E", "B", NULL), 0.);
}

/* ---- jieba ---- */

static void token_bar(void *user, const char *token, size_t len)
{
	struct strbuf *b = user;
	if (b->len)
		strbuf_puts(b, "|");
	strbuf_add(b, token, len);
}

static void expect_tokens(const char *text, const char *tokens)
{
	struct strbuf b = {0};
	jieba_cut(text, token_bar, &b);
	assert_string_equal(b.text ? b.text : "", tokens);
	strbuf_free(&b);
}

static void test_jieba(void **state)
{
	(void)state;
	need_jieba();
	expect_tokens("他来到了网易杭研大厦", "他|来到|了|网易|杭研|大厦");
	expect_tokens("Llama-3.1 在 2024 年7月发布，准确率95.5%。", "Llama|-|3.1| |在| |2024| |年|7|月|发布|，|准确率|95.5%|。");
	expect_tokens("", "");
	expect_tokens("\r\n\n\t!!", "\r\n|\n|\t|!|!");
	expect_tokens("a\xff", "a|\xff"); /* bytes which are not UTF-8 */
}

static void test_zh_metrics(void **state)
{
	(void)state;
	need_jieba();
	/* 来到 了 网易 / 来到 网易: of 3 and 2 words 2 */
	assert_near(score("qa_f1_zh", "来到了网易。", "来到，网易", NULL), 2 * (2. / 3) / (5. / 3));
	assert_near(score("qa_f1_zh", "《书》", "书", NULL), 2 * .5 / 1.5); /* 《 is not in upstream's list, 》 is */
	assert_near(score("qa_f1_zh", "。", "书", NULL), 0.);
	assert_near(score("rouge_zh", "来到了网易", "来到网易", NULL), 2 * (2. / 3) / (5. / 3 + 1e-8));
	assert_near(score("rouge_zh", "", "书", NULL), 0.);
}

static void token_hash(void *user, const char *token, size_t len)
{
	sha256_add(user, token, len);
	sha256_add(user, "", 1);
}

static void text_hash(const json_t *v, struct sha256 *h)
{
	char *text = text_without_nul(json_string_value(v), json_string_length(v));
	jieba_cut(text, token_hash, h);
	free(text);
}

/* As tests/oracle/jieba_hashes.py. */
static void row_hash(const json_t *row, char sha[SHA_LEN])
{
	static const char *const keys[] = {
		"context", "input", "answers", "pred", "prediction", "ground_truth", "gold", "origin_prompt"};
	struct sha256 *h = sha256_new();
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
		const json_t *v = json_object_get(row, keys[k]), *item;
		size_t i;
		if (json_is_string(v))
			text_hash(v, h);
		json_array_foreach(json_is_array(v) ? v : NULL, i, item) text_hash(item, h);
	}
	sha256_end(h, sha);
}

/* The file's rows as one list, of JSON lines or of the values of one object. */
static json_t *rows_of(const char *path)
{
	json_t *rows = json_array(), *file, *row;
	const char *key;
	size_t len = strlen(path);
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	if (!strcmp(path + len - 6, ".jsonl")) {
		while ((row = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)))
			json_array_append_new(rows, row);
	} else {
		file = json_loadf(f, JSON_ALLOW_NUL, NULL);
		json_object_foreach(file, key, row) json_array_append(rows, row);
		json_decref(file);
	}
	fclose(f);
	return rows;
}

static void test_jieba_rows(void **state)
{
	(void)state;
	need_jieba();
	need_shared(shared_path("data/longbench/data/multifieldqa_zh.jsonl"));
	json_t *fixture = json_load_file("tests/fixtures/longbench/jieba_hashes.json", 0, NULL), *hashes, *hash;
	const char *name;
	int n = 0;
	json_object_foreach(fixture, name, hashes)
	{
		char below[256], sha[SHA_LEN];
		size_t i;
		snprintf(below, sizeof(below), "data/%s", name);
		json_t *rows = rows_of(shared_path(below));
		assert_int_equal(json_array_size(rows), json_array_size(hashes));
		json_array_foreach(hashes, i, hash)
		{
			row_hash(json_array_get(rows, i), sha);
			if (strncmp(sha, json_string_value(hash), 16))
				fail_msg("%s: row %zu has other tokens", name, i);
			n++;
		}
		json_decref(rows);
	}
	json_decref(fixture);
	assert_int_equal(n, 1639);
}

/* ---- published scores ---- */

static struct score_result score_file(const char *below, const char *task, const char *metric)
{
	struct score_result r;
	assert_ok(score_predictions(shared_path(below), task, metric, &r, err));
	return r;
}

static void expect_score(const struct score_result *r, double theirs)
{
	char a[32], b[32];
	snprintf(a, sizeof(a), "%.*f", r->decimals, r->score);
	snprintf(b, sizeof(b), "%.*f", r->decimals, theirs);
	if (strcmp(a, b))
		fail_msg("%s: %s, published %s", r->task, a, b);
}

static void test_longbench_published(void **state)
{
	(void)state;
	need_jieba();
	need_shared(shared_path("data/longbench/pred/llama2-7b-chat-4k/result.json"));
	json_t *published = json_load_file(shared_path("data/longbench/pred/llama2-7b-chat-4k/result.json"), 0, NULL);
	double scores[LONGBENCH_V1_TASKS];
	int rows = 0;
	int64_t start_ns = cpu_ns();
	for (int i = 0; i < LONGBENCH_V1_TASKS; i++) {
		char below[128];
		snprintf(below, sizeof(below), "data/longbench/pred/llama2-7b-chat-4k/%s.jsonl", longbench_infos[i].name);
		struct score_result r = score_file(below, longbench_infos[i].name, NULL);
		expect_score(&r, json_number_value(json_object_get(published, r.task)));
		assert_int_equal(r.deep_pairs, 0);
		scores[i] = r.score;
		rows += r.n;
	}
	double seconds = (double)(cpu_ns() - start_ns) / 1e9;
	print_message("%d rows scored in %.2f s\n", rows, seconds);
	assert_int_equal(rows, 4750);
	assert_true(seconds < 5 || getenv("KVB_SANITIZED"));
	json_decref(published);
	struct longbench_average a[LONGBENCH_AVERAGES];
	longbench_averages(scores, a);
	assert_true(fabs(a[14].score - 33.06) < .01); /* plain mean of the 16 published */
}

static void test_code_variants(void **state)
{
	(void)state;
	need_shared(shared_path("data/longbench/pred/llama2-7b-chat-4k/lcc.jsonl"));
	struct score_result r = score_file("data/longbench/pred/llama2-7b-chat-4k/lcc.jsonl", "longbench-lcc", "code_sim_indel");
	expect_score(&r, 60.87);
	assert_string_equal(r.metric, "code_sim_indel");
	r = score_file("data/longbench/pred/llama2-7b-chat-4k/repobench-p.jsonl", "repobench-p", "code_sim_indel");
	expect_score(&r, 54.45);
}

static void test_e_parts(void **state)
{
	(void)state;
	need_shared(shared_path("data/longbench/pred/llama2-7b-chat-4k/qasper.jsonl"));
	/* v1's rows have lengths too */
	struct score_result r = score_file("data/longbench/pred/llama2-7b-chat-4k/qasper.jsonl", "longbench-e-qasper", NULL);
	assert_int_equal(r.n_parts, LONGBENCH_BINS);
	double sum = 0;
	int n = 0;
	for (int i = 0; i < LONGBENCH_BINS; i++) {
		assert_string_equal(r.parts[i].name, longbench_bins[i]);
		n += r.parts[i].n;
		sum += r.parts[i].n ? r.parts[i].score * r.parts[i].n : 0;
		assert_int_equal(isnan(r.parts[i].score), !r.parts[i].n);
	}
	assert_int_equal(n, r.n);
	assert_true(fabs(sum / n - r.score) < 1e-9);
}

static void test_v2_published(void **state)
{
	(void)state;
	need_shared(shared_path("data/longbench-v2/results/oneshot.jsonl"));
	struct score_result r = score_file("data/longbench-v2/results/oneshot.jsonl", "longbench-v2", NULL);
	assert_int_equal(r.n, 312);
	assert_int_equal(r.skipped, 191);
	expect_score(&r, 28.2);
	static const struct {
		const char *name;
		double score;
	} parts[] = {{"Easy", 28.3}, {"Hard", 28.1}, {"Short", 30.9}, {"Medium", 24.6}};
	for (int i = 0; i < 4; i++) {
		assert_string_equal(r.parts[i].name, parts[i].name);
		assert_true(fabs(r.parts[i].score - parts[i].score) < .05);
	}
	assert_true(isnan(r.parts[4].score)); /* no long row was scored: none, not 0 */
}

static void test_ruler_published(void **state)
{
	(void)state;
	need_shared(shared_path("data/ruler/results/kvpress_llama31_8b_4096_centrality_0.25/predictions.csv"));
	json_t *published = json_load_file(
		       shared_path("data/ruler/results/kvpress_llama31_8b_4096_centrality_0.25/metrics.json"), 0, NULL),
	       *v;
	const char *task;
	json_object_foreach(published, task, v)
	{
		struct score_result r =
			score_file("data/ruler/results/kvpress_llama31_8b_4096_centrality_0.25/predictions.csv", task, NULL);
		expect_score(&r, json_number_value(json_object_get(v, "string_match")));
		assert_int_equal(r.n, 500);
	}
	assert_int_equal(json_object_size(published), 13);
	json_decref(published);
}

/* ---- files of our own ---- */

static char path[64];

static void write_file(const char *ending, const char *text)
{
	snprintf(path, sizeof(path), "/tmp/kvb_score_XXXXXX%s", ending);
	FILE *f = fdopen(mkstemps(path, (int)strlen(ending)), "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void expect_error(const char *ending, const char *text, const char *task, const char *part)
{
	struct score_result r;
	write_file(ending, text);
	assert_int_equal(score_predictions(path, task, NULL, &r, err), -1);
	if (!strstr(err, part))
		fail_msg("'%s' is not in: %s", part, err);
	unlink(path);
}

static void test_own_files(void **state)
{
	(void)state;
	struct score_result r;
	write_file(".jsonl", "{\"index\": 0, \"outputs\": [\"a1\", \"b2\"], \"pred\": \"A1 is it\"}\n\n"
			     "{\"outputs\": [\"c\"], \"pred\": \" \\u0000\\n\"}\n{\"outputs\": [\"c\"], \"pred\": \" \"}\n");
	assert_ok(score_predictions(path, "ruler-niah_multiquery", NULL, &r, err));
	assert_near(r.score, 100 * .5 / 3);
	assert_string_equal(r.format, "ruler");
	assert_string_equal(r.metric, "string_match_all");
	assert_int_equal(r.n, 3);
	assert_int_equal(r.empty, 1);
	assert_ok(score_predictions(path, "qa_1", NULL, &r, err));
	assert_near(r.score, 100 / 3.);
	unlink(path);
	write_file(".jsonl", "{\"response\": \"The correct answer is (C)\", \"answer\": \"C\", \"difficulty\": \"easy\", "
			     "\"length\": \"long\"}\n"
			     "{\"pred\": null, \"judge\": false, \"difficulty\": \"hard\", \"length\": \"short\"}\n");
	assert_ok(score_predictions(path, "longbench-v2", NULL, &r, err));
	assert_near(r.score, 50.);
	assert_string_equal(r.parts[5].name, "Compensated");
	assert_near(r.parts[5].score, 62.5);
	unlink(path);
	write_file(".csv", "task,answer,predicted_answer\r\nvt,\"['A' \"\"B's\"\"\n 'it\\'s']\",\"A, b's\nit's\"\nfwe,['x'],y\n");
	assert_ok(score_predictions(path, "vt", NULL, &r, err));
	assert_near(r.score, 100.);
	assert_int_equal(r.n, 1);
	unlink(path);
}

static void test_bad_files(void **state)
{
	(void)state;
	expect_error(".jsonl", "{\"pred\": \"x\", \"answers\": [\"x\"]}\n{\"answers\": [\"x\"]}\n", "qasper",
		"row 2: not a row of longbench's format (pred, answers (a list of texts), for classes all_classes)");
	expect_error(".jsonl", "{\"pred\": \"x\", \"answers\": []}\n", "qasper", "row 1");
	expect_error(".jsonl", "{\"pred\": \"x\", \"answers\": [\"x\"]\n", "qasper", "row 1");
	expect_error(".jsonl", "{\"pred\": \"x\", \"answers\": [\"x\"], \"all_classes\": null}\n", "trec", "row 1");
	expect_error(".jsonl", "{\"pred\": \"x\", \"answers\": [\"x\"]}\n", "qasper_e", "row 1"); /* -E needs the length */
	expect_error(".jsonl", "", "qasper", "no row");
	expect_error(".jsonl", "{}", "qaspar", "qaspar");
	expect_error(".csv", "task,answer,predicted_answer\nvt,['x'],y\n", "fwe", "no row of the task");
	expect_error(".csv", "task,answer\nvt,['x'],y\n", "vt", "row 1: a record of 3 fields");
	expect_error(".txt", "", "vt", "end in .jsonl (RULER's by kvpress: .csv)");
	expect_error(".jsonl", "", "jsonl", "no format of predictions is known for task 'jsonl'");
	struct score_result r;
	assert_int_equal(score_predictions("/nowhere.jsonl", "qasper", NULL, &r, err), -1);
	assert_int_equal(score_predictions("/nowhere.jsonl", "qasper", "rouge_2", &r, err), -1);
	assert_non_null(strstr(err, "rouge_2"));
}

/* 23 of 160: 14.375. In double precision 23 / 160 * 100 is less than that, 100 * 23 / 160 is not: RULER prints 14.37. */
static void test_half_of_the_last_digit(void **state)
{
	(void)state;
	struct strbuf b = {0};
	struct score_result r;
	for (int i = 0; i < 160; i++)
		strbuf_printf(&b, "{\"index\": %d, \"outputs\": [\"a1\"], \"pred\": \"%s\"}\n", i, i < 23 ? "a1" : "b2");
	write_file(".jsonl", b.text);
	assert_ok(score_predictions(path, "niah_single_1", NULL, &r, err));
	expect_score(&r, 14.37);
	unlink(path);
	strbuf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frequencies),
		cmocka_unit_test(test_rouge_l),
		cmocka_unit_test(test_classification),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_code_sim),
		cmocka_unit_test(test_code_sim_junk),
		cmocka_unit_test(test_v2_letter),
		cmocka_unit_test(test_jieba),
		cmocka_unit_test(test_zh_metrics),
		cmocka_unit_test(test_jieba_rows),
		cmocka_unit_test(test_longbench_published),
		cmocka_unit_test(test_code_variants),
		cmocka_unit_test(test_e_parts),
		cmocka_unit_test(test_half_of_the_last_digit),
		cmocka_unit_test(test_v2_published),
		cmocka_unit_test(test_ruler_published),
		cmocka_unit_test(test_own_files),
		cmocka_unit_test(test_bad_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
