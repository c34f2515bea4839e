/* LongBench as tasks: rows of our own making in a folder and in a data.zip, prompts, bins, both ways to cut, v2 streamed; then
 * the real rows and prompts which are in the shared data. */
#include "tests/unit/tasks/helpers.h"

#include <jansson.h>
#include <sys/stat.h>
#include <zip.h>

#include "tasks/longbench/longbench.h"

static char err[ERR_LEN], folder[64];

/* ---- a small LongBench of our own ---- */

static void put_file(const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void put_folder(const char *name)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/kvb_longbench_XXXXXX");
	assert_non_null(mkdtemp(folder));
	put_folder("config");
	put_folder("data");
	put_file("config/dataset2prompt.json",
		"{\"qasper\": \"Read this.\\n\\n{context}\\n\\nAsk: {input}\\nSay:\", \"trec\": \"Kinds.\\n{context}\\n{input}\","
		" \"samsum\": \"{context}\\n\\n{input}\", \"lcc\": \"Code. \\n{context}Next:\\n\", \"hotpotqa\": \"{context} "
		"{other} {input}\", \"gov_report\": \"{context}\", \"multi_news\": \"{context}\"}");
	put_file("config/dataset2maxlen.json",
		"{\"qasper\": 128, \"trec\": 64, \"samsum\": 128, \"lcc\": 64, \"hotpotqa\": 32,"
		" \"gov_report\": 4294967297, \"multi_news\": 0}"); /* 4294967297 is 1 in 32 bits */
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static struct task_request request(const char *name)
{
	return (struct task_request){.name = name,
		.path = folder,
		.depth = NAN,
		.count_tokens = count_words,
		.cut_tokens = cut_words,
		.drops_ids = true};
}

static struct task *open_task(const struct task_request *rq)
{
	struct task *t = NULL;
	assert_ok(task_open(&t, rq, err));
	return t;
}

static struct task_context context_of(const struct task_request *rq, int i)
{
	struct task_context c;
	struct task *t = open_task(rq);
	assert_ok(task_context_make(t, i, &c, err));
	task_close(t);
	return c;
}

static void expect_error(const struct task_request *rq, const char *part)
{
	struct task *t = NULL;
	assert_int_equal(task_open(&t, rq, err), -1);
	if (!strstr(err, part))
		fail_msg("'%s' is not in: %s", part, err);
}

#define QASPER_ROW                                                                                                               \
	"{\"input\": \"who {context}?\", \"context\": \"a b {input} c.\", \"answers\": [\"x\", \"y\"], \"length\": 4000,"        \
	" \"dataset\": \"qasper\", \"language\": \"en\", \"all_classes\": null, \"_id\": \"1\"}\n"

static void test_prompt(void **state)
{
	(void)state;
	put_file("data/qasper.jsonl", "\n" QASPER_ROW QASPER_ROW);
	struct task_request rq = request("longbench-qasper");
	struct task *t = open_task(&rq);
	assert_int_equal(task_count(t), 2);
	struct task_identity id;
	task_identity(t, &id);
	assert_string_equal(id.metric, "qa_f1");
	assert_int_equal(strlen(id.data_sha256), 64);
	assert_int_equal(strlen(id.template_sha256), 64);
	task_close(t);
	struct task_context c = context_of(&rq, 1);
	assert_string_equal(c.id, "c1");
	assert_string_equal(c.text, "Read this.\n\na b {input} c."); /* what was put in is not looked at again */
	assert_string_equal(c.questions[0].text, "\n\nAsk: who {context}?\nSay:");
	assert_string_equal(c.questions[0].answer_prefix, "");
	assert_string_equal(c.questions[0].metric, "qa_f1");
	assert_int_equal(c.questions[0].n_answers, 2);
	assert_int_equal(c.questions[0].max_new_tokens, 128);
	assert_int_equal(c.questions[0].n_stops, 0);
	assert_true(c.chat && !c.cut_tokens && !c.drop_tokens && !c.group && !c.system);
	task_context_free(&c);
	rq.max_new_tokens = 7;
	rq.contexts = 1;
	c = context_of(&rq, 0);
	assert_int_equal(c.questions[0].max_new_tokens, 7);
	task_context_free(&c);
}

static void test_few_shot(void **state)
{
	(void)state;
	put_file("trec.jsonl",
		"{\"input\": \"q\", \"context\": \"x\", \"answers\": [\"B\"], \"all_classes\": [\"A\", \"B\"]}\n"
		"{\"input\": \"q\", \"context\": \"x\", \"answers\": [\"B\", \"A\"], \"all_classes\": [\"A\", \"B\"]}\n"
		"{\"input\": \"q\", \"context\": \"x\", \"answers\": [\"B\"], \"all_classes\": null}\n");
	put_file("samsum.jsonl", "{\"input\": \"q\", \"context\": \"x\", \"answers\": [\"B\"]}\n");
	struct task_request rq = request("longbench-trec");
	struct task_context c = context_of(&rq, 0);
	assert_false(c.chat);
	assert_string_equal(c.questions[0].metric, "classification");
	assert_int_equal(c.questions[0].n_answers, 3); /* the right class, then all */
	assert_string_equal(c.questions[0].answers[0], "B");
	assert_string_equal(c.questions[0].answers[1], "A");
	task_context_free(&c);
	struct task *t = open_task(&rq);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(task_context_make(t, i, &c, err), -1);
		assert_non_null(strstr(err, "all_classes"));
	}
	task_close(t);
	rq = request("longbench-samsum");
	c = context_of(&rq, 0);
	assert_false(c.chat);
	assert_int_equal(c.questions[0].n_stops, 1);
	assert_string_equal(c.questions[0].stops[0], "\n");
	assert_int_equal(c.questions[0].min_new_tokens, 1);
	task_context_free(&c);
}

static void test_chat_rules(void **state)
{
	(void)state;
	static const char *const raw[] = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"};
	int n_raw = 0;
	for (int i = 0; i < LONGBENCH_V1_TASKS; i++) {
		bool is_raw = false;
		for (int k = 0; k < 6; k++)
			is_raw |= !strcmp(longbench_infos[i].name, raw[k]);
		assert_int_equal(longbench_infos[i].chat, !is_raw);
		assert_non_null(metric_find(longbench_infos[i].metric));
		n_raw += is_raw;
	}
	assert_int_equal(n_raw, 6);
	int n = 0, n_e = 0;
	for (size_t i = 0; i < task_def_count(); i++) { /* every entry of the table knows its task */
		const char *name = task_def_at(i)->name;
		bool e;
		if (strncmp(name, "longbench-", 10) || !strcmp(name, "longbench-v2"))
			continue;
		assert_non_null(longbench_find(name, &e));
		n_e += e;
		n += !e;
	}
	assert_int_equal(n, 21);
	assert_int_equal(n_e, 13);
	bool e;
	assert_string_equal(longbench_find("repobench-p_e", &e)->name, "repobench-p");
	assert_true(e);
	assert_null(longbench_find("qasp", &e));
	assert_null(longbench_find("longbench-v2", &e));
}

static void test_e_bins(void **state)
{
	(void)state;
	put_file("data/qasper_e.jsonl",
		"{\"input\": \"q\", \"context\": \"x\", \"answers\": [\"B\"], \"length\": 3999}\n" QASPER_ROW
		"{\"input\": \"q\", \"context\": \"x\", \"answers\": [\"B\"], \"length\": 7999}\n"
		"{\"input\": \"q\", \"context\": \"x\", \"answers\": [\"B\"], \"length\": 8000}\n");
	static const char *const groups[] = {"0-4k", "4-8k", "4-8k", "8k+"};
	struct task_request rq = request("longbench-e-qasper");
	for (int i = 0; i < 4; i++) {
		struct task_context c = context_of(&rq, i);
		assert_string_equal(c.group, groups[i]);
		task_context_free(&c);
	}
}

static void test_zip(void **state)
{
	(void)state;
	char path[128];
	snprintf(path, sizeof(path), "%s/data.zip", folder);
	zip_t *zip = zip_open(path, ZIP_CREATE, NULL);
	static const char row[] = "{\"input\": \"\", \"context\": \"int a;\\n\", \"answers\": [\"int b;\"]}\n";
	assert_true(zip_file_add(zip, "data/lcc.jsonl", zip_source_buffer(zip, row, sizeof(row) - 1, 0), ZIP_FL_ENC_UTF_8) >= 0);
	assert_int_equal(zip_close(zip), 0);
	struct task_request rq = request("longbench-lcc");
	for (int named = 0; named < 2; named++) { /* found in the folder; named itself */
		struct task_context c = context_of(&rq, 0);
		assert_string_equal(c.text, "Code. \nint a;\n");
		assert_string_equal(c.questions[0].text, "Next:\n");
		assert_string_equal(c.questions[0].metric, "code_sim");
		task_context_free(&c);
		rq.path = path;
	}
	char sha[SHA_LEN];
	struct task_identity id;
	struct task *t = open_task(&rq);
	task_identity(t, &id);
	sha256_hex(row, sizeof(row) - 1, sha);
	assert_string_equal(id.data_sha256, sha); /* of the rows, not of the archive */
	task_close(t);
	rq.name = "longbench-samsum";
	expect_error(&rq, "no data/samsum.jsonl");
	put_file("data.zip", "no archive");
	rq.name = "longbench-lcc";
	expect_error(&rq, "cannot open");
	unlink(path);
}

static void test_errors(void **state)
{
	(void)state;
	struct task_request rq = request("longbench-qaspar");
	expect_error(&rq, "longbench-qasper");
	rq = request("longbench-hotpotqa");
	expect_error(&rq, "neither hotpotqa.jsonl nor data.zip");
	put_file("hotpotqa.jsonl", "{\"input\": \"q\", \"context\": \"x\", \"answers\": [\"B\"]}\n");
	struct task *t = open_task(&rq);
	struct task_context c;
	assert_int_equal(task_context_make(t, 0, &c, err), -1);
	assert_non_null(strstr(err, "{other}"));
	task_close(t);
	rq = request("longbench-musique");
	expect_error(&rq, "nothing about musique");
	rq = request("longbench-gov_report");
	expect_error(&rq, "the length not a number");
	rq = request("longbench-multi_news");
	expect_error(&rq, "the length not a number");
	rq = request("longbench-qasper");
	rq.templates = "/nowhere";
	expect_error(&rq, "dataset2prompt.json is not in /nowhere");
	rq = request("longbench-qasper");
	rq.truncate = "left";
	expect_error(&rq, "'left' is neither");
	rq.truncate = "ids";
	rq.length_tokens = 100;
	rq.drops_ids = false;
	expect_error(&rq, "needs a runner");
	rq = request("longbench-qasper");
	rq.path = NULL;
	expect_error(&rq, "needs a path");
	rq = request("niah-single");
	rq.path = NULL;
	rq.truncate = "ids";
	expect_error(&rq, "no parameter 'truncate'");
	put_file("qasper.jsonl", "{\"input\": \"q\", \"context\": 3}\nnot json\n");
	char path[128];
	snprintf(path, sizeof(path), "%s/qasper.jsonl", folder);
	rq = request("longbench-qasper");
	rq.path = path; /* settings are found around the file */
	t = open_task(&rq);
	assert_int_equal(task_context_make(t, 0, &c, err), -1);
	assert_non_null(strstr(err, "row 0: 'context' or 'input'"));
	assert_int_equal(task_context_make(t, 1, &c, err), -1);
	assert_non_null(strstr(err, "row 1"));
	task_close(t);
	unlink(path);
}

/* ---- the cut ---- */

/* Each byte a token; the context of the prompt is text[0, split). */
static struct task_context cut_as(const char *text, size_t split, int64_t length, const char *how, int special, bool joined)
{
	struct task_context c = {.id = text_copy("c0")};
	struct longbench_prompt p = {text_copy(text), split, joined};
	struct task_request rq = {.length_tokens = length,
		.truncate = how,
		.special_tokens = special,
		.count_tokens = count_bytes,
		.cut_tokens = cut_bytes};
	assert_ok(longbench_cut(&p, &rq, &c, err));
	longbench_prompt_give(&p, &c);
	return c;
}

static struct task_context cut_text(const char *text, size_t split, int64_t length, const char *how, int special)
{
	return cut_as(text, split, length, how, special, false);
}

static void expect_cut(struct task_context c, const char *context, const char *question, int64_t cut)
{
	assert_string_equal(c.text, context);
	assert_string_equal(c.questions[0].text, question);
	assert_int_equal(c.cut_tokens, cut);
	task_context_free(&c);
}

static void test_cut_official(void **state)
{
	(void)state;
	expect_cut(cut_text("abcdefgh", 6, 8, NULL, 0), "abcdef", "gh", 0);
	expect_cut(cut_text("abcdefgh", 6, 6, "official", 0), "abcf", "gh", 2);
	expect_cut(cut_text("abcdefgh", 6, 7, NULL, 0), "abcf", "gh", 2);  /* half = 3: the odd token is lost */
	expect_cut(cut_text("abcdefgh", 6, 8, NULL, 1), "abcef", "gh", 1); /* BOS counts, and is one of the first half */
	expect_cut(cut_text("abcdefgh", 6, 4, NULL, 0), "ab", "gh", 4);    /* the seam where the question begins */
	expect_cut(cut_text("abcdefgh", 6, 2, NULL, 0), "a", "h", 6);      /* into the question */
	expect_cut(cut_text("abcdefgh", 2, 6, NULL, 0), "ab", "cfgh", 2);  /* a long question loses its own middle */
	/* é = c3 a9: cut behind its first byte, and before its second */
	expect_cut(cut_text("ab\xc3\xa9"
			    "defgh",
			   7, 6, NULL, 0),
		"ab\xef\xbf\xbd"
		"f",
		"gh", 3);
	expect_cut(cut_text("abcd\xc3\xa9gh", 6, 6, NULL, 0), "abc\xef\xbf\xbd", "gh", 2);
	/* € = e2 82 ac: one sign for the first part however long, one for each byte of the rest */
	expect_cut(cut_text("a\xe2\x82\xac"
			    "cd\xe2\x82\xacz",
			   9, 6, NULL, 0),
		"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "z", 4);
}

/* v2 decodes both ends as one text: values are those of its pred.py with a tokenizer of bytes. */
static void test_cut_joined(void **state)
{
	(void)state;
	expect_cut(cut_as("abcdefgh", 6, 6, NULL, 0, true), "abcf", "gh", 2);
	expect_cut(cut_as("abcdefgh", 6, 7, NULL, 0, true), "abcef", "gh", 1); /* an odd length: the last end has the odd token */
	struct task_context ids = cut_as("abcdefgh", 6, 7, "ids", 0, true);
	assert_int_equal(ids.drop_from, 3);
	assert_int_equal(ids.drop_tokens, 1);
	task_context_free(&ids);
	/* 中 = e4 b8 ad, 丁 = e4 b8 81: e4 b8 of the one and the last byte of the other make a character */
	expect_cut(cut_as("ab\xe4\xb8\xad..\xe4\xb8\x81gh!", 10, 8, NULL, 0, true), "ab\xe4\xb8\x81", "gh!", 5);
	expect_cut(cut_as("abc\xe4\xb8\xad..\xe4\xb8\x81gh", 11, 8, NULL, 0, true), "abc\xe4\xb8\x81", "gh", 5);
	/* too few bytes: one sign for both parts; bytes which cannot follow: one sign each */
	expect_cut(cut_as("ab\xf0\x9f\x98\x80..\xe4\xb8\x81ghi", 11, 8, NULL, 0, true), "ab\xef\xbf\xbd", "ghi", 6);
	expect_cut(cut_as("abc\xf0\x9f\x98\x80..\xe4\xb8\x81ghi", 12, 8, NULL, 0, true), "abc\xef\xbf\xbd\xef\xbf\xbd", "ghi", 7);
	expect_cut(cut_as("abc\xe0\xa4\x84..\xe4\x81\x81gh", 11, 8, NULL, 0, true), "abc\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd",
		"gh", 5);
}

static void test_cut_ids(void **state)
{
	(void)state;
	static const struct {
		size_t split;
		int64_t length;
		int special;
		int64_t from, n;
	} cases[] = {
		{6, 8, 0, 0, 0}, {6, 6, 0, 3, 2}, {6, 7, 0, 3, 2}, {6, 8, 1, 3, 1},
		{2, 7, 0, 1, 1}, /* the question (6) is more than half: whole, the context keeps what room there is */
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct task_context c = cut_text("abcdefgh", cases[i].split, cases[i].length, "ids", cases[i].special);
		assert_int_equal(strlen(c.text), cases[i].split); /* the text is whole */
		assert_int_equal(c.drop_from, cases[i].from);
		assert_int_equal(c.drop_tokens, cases[i].n);
		assert_int_equal(c.cut_tokens, cases[i].n);
		task_context_free(&c);
	}
	struct task_context c = {.id = "c0"};
	struct longbench_prompt p = {"abcdefgh", 2};
	struct task_request rq = {.length_tokens = 6, .truncate = "ids", .count_tokens = count_bytes, .cut_tokens = cut_bytes};
	assert_int_equal(longbench_cut(&p, &rq, &c, err), -1);
	assert_non_null(strstr(err, "the question alone"));
}

/* ---- v2 ---- */

#define V2_PROMPT "Read.\n<$DOC$>\nQ: $Q$\n(A) $C_A$\n(B) $C_B$\n(C) $C_C$\n(D) $C_D$\n\nSay it."

static void put_v2_row(FILE *f, int i, const char *context)
{
	static const char *const lengths[] = {"short", "medium", "long"};
	json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "question", " who?\n", "choice_A", "a",
		"choice_B", "b {", "choice_C", "c \"]}\\", "choice_D", "d", "answer", "B", "difficulty", i % 2 ? "hard" : "easy",
		"length", lengths[i % 3], "context", context);
	fputs(i ? ",\n  " : "[", f);
	json_dumpf(row, f, JSON_INDENT(2));
	json_decref(row);
}

static void test_v2(void **state)
{
	(void)state;
	char path[128];
	snprintf(path, sizeof(path), "%s/data.json", folder);
	FILE *f = fopen(path, "w");
	put_v2_row(f, 0, "\t one [ two \" \xe2\x80\x83");
	put_v2_row(f, 1, "with $Q$ in it");
	fputs("]\n", f);
	fclose(f);
	put_folder("prompts");
	put_file("prompts/0shot.txt", V2_PROMPT);
	struct task_request rq = request("longbench-v2");
	struct task *t = open_task(&rq);
	assert_int_equal(task_count(t), 2);
	task_close(t);
	struct task_context c = context_of(&rq, 0);
	assert_string_equal(c.text, "Read.\n<one [ two \"");
	assert_string_equal(c.questions[0].text, ">\nQ: who?\n(A) a\n(B) b {\n(C) c \"]}\\\n(D) d\n\nSay it.");
	assert_string_equal(c.questions[0].metric, "longbench_v2");
	assert_string_equal(c.questions[0].answers[0], "B");
	assert_string_equal(c.group, "easy short");
	assert_true(c.chat);
	assert_int_equal(c.questions[0].max_new_tokens, 128);
	task_context_free(&c);
	c = context_of(&rq, 1);
	assert_string_equal(c.text, "Read.\n<with who? in it"); /* as upstream's chain of replacements has it */
	assert_string_equal(c.group, "hard medium");
	task_context_free(&c);
	f = fopen(path, "w");
	put_v2_row(f, 0, "cut short");
	fclose(f);
	expect_error(&rq, "not one whole JSON list");
	unlink(path);
	expect_error(&rq, "cannot");
}

/* Peak of resident memory since the last reset, in bytes; 0 = the kernel does not say. */
static size_t peak_bytes(bool reset)
{
	FILE *f = reset ? fopen("/proc/self/clear_refs", "w") : NULL;
	if (f) {
		fputs("5", f);
		fclose(f);
	}
	char line[256];
	size_t kib = 0;
	f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmHWM:", 6))
			kib = strtoul(line + 6, NULL, 10);
	if (f)
		fclose(f);
	return kib * 1024;
}

static void test_v2_streamed(void **state)
{
	(void)state;
	bool large = getenv("KVB_LARGE") != NULL; /* upstream's size; else a quick one */
	size_t row_bytes = large ? 10000000 : 1500000, file_bytes = large ? 465000000 : 60000000,
	       margin = large ? 64 << 20 : 16 << 20;
	char path[128], *text = mem_new(row_bytes + 1, 1);
	snprintf(path, sizeof(path), "%s/data.json", folder);
	put_file("prompts/0shot.txt", V2_PROMPT);
	FILE *f = fopen(path, "w");
	int rows = 0;
	for (; (size_t)ftello(f) < file_bytes; rows++) {
		memset(text, 'a' + rows % 26, row_bytes);
		put_v2_row(f, rows, text);
	}
	fputs("]", f);
	fclose(f);
	free(text);
	struct task_request rq = request("longbench-v2");
	size_t before = peak_bytes(true);
	struct task *t = open_task(&rq);
	assert_int_equal(task_count(t), rows);
	for (int i = 0; i < rows; i += rows / 8) {
		struct task_context c;
		assert_ok(task_context_make(t, i, &c, err));
		assert_int_equal(c.text[strlen(c.text) - 1], 'a' + i % 26);
		assert_int_equal(strlen(c.text), row_bytes + strlen("Read.\n<"));
		task_context_free(&c);
	}
	task_close(t);
	unlink(path);
	size_t growth = peak_bytes(false) - before;
	print_message("v2: %d rows of %zu bytes: peak memory + %zu KiB\n", rows, row_bytes, growth / 1024);
	if (before && !getenv("KVB_SANITIZED")) /* seen: 6 MB and 40 MB; the whole file would be 60 or 465 */
		assert_true(growth < row_bytes + margin);
}

/* ---- averages ---- */

static void test_averages(void **state)
{
	(void)state;
	double scores[LONGBENCH_V1_TASKS];
	struct longbench_average a[LONGBENCH_AVERAGES];
	for (int i = 0; i < LONGBENCH_V1_TASKS; i++)
		scores[i] = i;
	longbench_averages(scores, a);
	assert_near(a[0].score, 1.);   /* narrativeqa, qasper, multifieldqa_en: 0 1 2 */
	assert_near(a[1].score, 5.);   /* 4 5 6 */
	assert_near(a[2].score, 9.);   /* 8 9 10 */
	assert_near(a[3].score, 13.);  /* 12 13 14 */
	assert_near(a[4].score, 16.5); /* 16 17 */
	assert_near(a[5].score, 19.5); /* 19 20 */
	assert_near(a[6].score, 64. / 6);
	assert_near(a[7].score, 3.); /* multifieldqa_zh alone */
	assert_near(a[13].score, (3 + 7 + 11 + 15 + 18 + 19.5) / 6);
	assert_near(a[14].score, (3 + 15 + 27 + 39 + 33 + 39) / 16.);
	assert_int_equal(a[6].of, 16);
	assert_int_equal(a[13].of, 7);
	assert_int_equal(a[14].of, 16);
	assert_non_null(strstr(a[14].label, "16"));
	scores[4] = NAN; /* hotpotqa: the Chinese half stands, no English whole does */
	longbench_averages(scores, a);
	assert_true(isnan(a[1].score) && isnan(a[6].score) && isnan(a[14].score) && !isnan(a[13].score));
	assert_int_equal(a[14].n, 15);
}

/* ---- the real rows and prompts ---- */

static const struct {
	const char *name;
	int row;
	const char *sha; /* of context, NUL, question: its first 16 digits (made by Python from upstream's files) */
} golden[] = {
	{"multi_news", 0, "ef8f934560204458"},
	{"multi_news", 1, "0977bc71f3d4f42d"},
	{"multifieldqa_zh", 0, "086b8bd2103b78c9"},
	{"multifieldqa_zh", 1, "7ccb4507d07b1ee4"},
	{"passage_retrieval_zh", 0, "2f6861c3871ee15c"},
	{"passage_retrieval_zh", 1, "854bced50d1814cd"},
};

static void test_golden_prompts(void **state)
{
	(void)state;
	need_shared(shared_path("data/longbench/data/multi_news.jsonl"));
	char path[512];
	snprintf(path, sizeof(path), "%s", shared_path("data/longbench"));
	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
		char name[64], sha[SHA_LEN];
		snprintf(name, sizeof(name), "longbench-%s", golden[i].name);
		struct task_request rq = request(name);
		rq.path = path;
		struct task *t = NULL;
		if (task_open(&t, &rq, err) && strstr(err, "python3-jieba")) {
			print_message("skip %s: %s\n", name, err);
			continue;
		}
		struct task_context c;
		assert_non_null(t);
		assert_int_equal(task_count(t), 200);
		assert_ok(task_context_make(t, golden[i].row, &c, err));
		struct sha256 *h = sha256_new();
		sha256_add(h, c.text, strlen(c.text) + 1);
		sha256_add(h, c.questions[0].text, strlen(c.questions[0].text));
		sha256_end(h, sha);
		if (strncmp(sha, golden[i].sha, 16))
			fail_msg("%s row %d: %.16s, not %s", name, golden[i].row, sha, golden[i].sha);
		task_context_free(&c);
		task_close(t);
	}
}

/* Splits a rendered prompt by the template: its context and input in fresh memory; false = another template. */
static bool unrender(const char *template, const char *prompt, char **context, char **input)
{
	const char *at = strstr(template, "{context}"), *mid = at + strlen("{context}"), *in = strstr(mid, "{input}");
	const char *end = in ? in + strlen("{input}") : "";
	size_t head = (size_t)(at - template), n_mid = in ? (size_t)(in - mid) : strlen(mid), n_end = strlen(end),
	       n = strlen(prompt);
	if (strncmp(prompt, template, head) || n < head + n_mid + n_end || strcmp(prompt + n - n_end, end))
		return false;
	for (const char *p = prompt + n - n_end - n_mid; p >= prompt + head; p--) {
		if (strncmp(p, mid, n_mid) || (!in && p[n_mid]))
			continue;
		*context = text_format("%.*s", (int)(p - prompt - (ptrdiff_t)head), prompt + head);
		*input = text_format("%.*s", (int)(n - n_end - (size_t)(p + n_mid - prompt)), p + n_mid);
		return true;
	}
	return false;
}

/* Puts the row into a file of the task's own and takes it out again as a task: is it the prompt? */
static void render_again(const char *task, const char *config, const char *context, const char *input, const char *prompt)
{
	char file[64], name[64];
	bool classes = !strcmp(task, "trec") || !strcmp(task, "lsht");
	json_t *row = json_pack("{s:s, s:s, s:[s], s:o}", "context", context, "input", input, "answers", "Paragraph 1 段落1",
		"all_classes", classes ? json_pack("[s]", "A") : json_null());
	char *line = json_dumps(row, JSON_COMPACT);
	snprintf(file, sizeof(file), "%s.jsonl", task);
	snprintf(name, sizeof(name), "longbench-%s", task);
	put_file(file, line);
	free(line);
	json_decref(row);
	struct task_request rq = request(name);
	rq.templates = config;
	struct task_context c = context_of(&rq, 0);
	char *again = text_format("%s%s", c.text, c.questions[0].text);
	assert_string_equal(again, prompt);
	free(again);
	task_context_free(&c);
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", folder, file);
	unlink(path);
}

static void test_mini_prompts(void **state)
{
	(void)state;
	need_shared(shared_path("data/longbench/config/dataset2prompt.json"));
	char config[512];
	snprintf(config, sizeof(config), "%s", shared_path("data/longbench/config"));
	json_t *templates = json_load_file(shared_path("data/longbench/config/dataset2prompt.json"), 0, NULL);
	bool jieba = !metric_prepare(metric_find("rouge_zh"), err);
	int tasks = 0, rows = 0, others = 0;
	for (int i = 0; i < LONGBENCH_V1_TASKS; i++) {
		const struct longbench_info *info = &longbench_infos[i];
		const char *template = json_string_value(json_object_get(templates, info->name)), *key;
		char below[128];
		snprintf(below, sizeof(below), "data/longbench/mini/MiniLongBench_%s.json", info->name);
		json_t *file = json_load_file(shared_path(below), 0, NULL), *row;
		assert_true(file && template);
		int before = rows;
		if (metric_find(info->metric)->prepare && !jieba) {
			json_decref(file);
			continue;
		}
		json_object_foreach(file, key, row)
		{
			const char *prompt = json_string_value(json_object_get(row, "origin_prompt"));
			char *context = NULL, *input = NULL;
			if (prompt && unrender(template, prompt, &context, &input)) {
				render_again(info->name, config, context, input, prompt);
				rows++;
			} else {
				others++;
			}
			free(context);
			free(input);
		}
		tasks += rows > before;
		if (rows == before)
			print_message("%s: not upstream's template\n", info->name);
		json_decref(file);
	}
	json_decref(templates);
	print_message("%d prompts of %d tasks rendered again, %d made by another template\n", rows, tasks, others);
	assert_int_equal(rows, jieba ? 211 : 211 - 27);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prompt),
		cmocka_unit_test(test_few_shot),
		cmocka_unit_test(test_chat_rules),
		cmocka_unit_test(test_e_bins),
		cmocka_unit_test(test_zip),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_cut_official),
		cmocka_unit_test(test_cut_joined),
		cmocka_unit_test(test_cut_ids),
		cmocka_unit_test(test_v2),
		cmocka_unit_test(test_v2_streamed),
		cmocka_unit_test(test_averages),
		cmocka_unit_test(test_golden_prompts),
		cmocka_unit_test(test_mini_prompts),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
