/* SCBench's tasks: prompts against upstream's own code (hashes), golds, the two modes, the window, and every fault that is kept.
 */
#include "tests/unit/tasks/helpers.h"

#include <jansson.h>
#include <sys/stat.h>

static char err[ERR_LEN];
static char folder[64]; /* of a test's own files */

static const char *const names[] = {"kv", "prefix_suffix", "vt", "repoqa", "qa_eng", "qa_chn", "choice_eng", "many_shot", "mf",
	"summary", "summary_with_needles", "repoqa_and_kv"};
enum { N_TASKS = sizeof(names) / sizeof(names[0]) };

/* Prompts of our own, of the same form as upstream's. */
static const char own_prompts[] =
	"{\"multiturn_templates\": {\"scbench_kv\": \"Find. {context}\\n\\n{input}\", \"scbench_mf\": "
	"\"{prefix}\\n\\n{context}\\n\\n{input}\","
	" \"scbench_repoqa_and_kv\": \"{context}\\n\\n{input}\", \"scbench_summary\": \"{context}\\n\\n{input}\"},"
	" \"multiturn_templates_scdq\": {\"scbench_kv\": \"Find. {context}\", \"scbench_mf\": \"{prefix}\\n\\n{context}\","
	" \"scbench_repoqa_and_kv\": \"{context}\", \"scbench_summary\": \"{context}\"},"
	" \"multiturn_follow_up_templates\": {\"scbench_kv\": \"{pre_ans}\\n\\n{input}\", \"scbench_mf\": "
	"\"{pre_ans}\\n\\n{prefix}\\n\\n{input}\","
	" \"scbench_repoqa_and_kv\": \"{pre_ans}\\n\\n{input}\", \"scbench_summary\": \"{pre_ans}\\n\\n{input}\"},"
	" \"multiturn_follow_up_templates_in_chat_tempate\": {\"scbench_kv\": \"{input}\", \"scbench_mf\": "
	"\"{prefix}\\n\\n{input}\","
	" \"scbench_repoqa_and_kv\": \"{input}\", \"scbench_summary\": \"{input}\"}}";

/* ---- opening ---- */

static struct task_request request(const char *name, const char *mode)
{
	return (struct task_request){
		.name = name, .path = folder, .mode = mode, .depth = NAN, .count_tokens = count_words, .cut_tokens = cut_words};
}

static struct task *open_task(const struct task_request *rq)
{
	struct task *t = NULL;
	assert_ok(task_open(&t, rq, err));
	return t;
}

static struct task_context make(struct task *t, int i)
{
	struct task_context c;
	assert_ok(task_context_make(t, i, &c, err));
	return c;
}

static void write_file(const char *name, const char *text)
{
	char *path = text_format("%s/%s", folder, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	free(path);
}

static void remove_file(const char *name)
{
	char *path = text_format("%s/%s", folder, name);
	unlink(path);
	free(path);
}

static int setup(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/kvb_scbench_XXXXXX");
	assert_non_null(mkdtemp(folder));
	write_file("prompts.json", own_prompts);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_file("prompts.json");
	for (int i = 0; i < N_TASKS; i++) {
		char *name = text_format("scbench_%s.jsonl", names[i]);
		remove_file(name);
		free(name);
	}
	return rmdir(folder);
}

/* ---- the chat templates of the fixture: what stands around the turns ---- */

static const struct chat {
	const char *name, *head, *tail, *next;
	bool trims;
} chats[] = {
	{"raw", "", "", "", false},
	{"llama-3.1",
		"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
		"Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
		"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n", true},
	{"qwen2.5",
		"<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
		"assistant.<|im_end|>\n<|im_start|>user\n",
		"<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>user\n", false},
};

/* A text with white space off its left or right where the template trims. */
static void put(struct strbuf *b, const struct chat *chat, const char *text, bool left, bool right)
{
	size_t n = strlen(text);
	while (chat->trims && left && n && isspace((unsigned char)*text))
		text++, n--;
	while (chat->trims && right && n && isspace((unsigned char)text[n - 1]))
		n--;
	strbuf_add(b, text, n);
}

/* What the model has before it when it answers question k: what a runner must make of a context. */
static char *render(const struct chat *chat, const struct task_context *c, int k)
{
	struct strbuf b = {0};
	strbuf_puts(&b, chat->head);
	put(&b, chat, c->text, true, false);
	for (int i = c->multi_turn ? 0 : k; i < k; i++) {
		put(&b, chat, c->questions[i].text, i > 0, true);
		strbuf_puts(&b, chat->tail);
		put(&b, chat, c->questions[i].golden, true, true);
		strbuf_puts(&b, chat->next);
	}
	put(&b, chat, c->questions[k].text, c->multi_turn && k > 0, true);
	strbuf_puts(&b, chat->tail);
	strbuf_puts(&b, c->questions[k].answer_prefix);
	return strbuf_take(&b);
}

static const char *text_at(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static const struct chat *chat_of(const char *name)
{
	const struct chat *c = chats;
	while (strcmp(c->name, name))
		c++;
	return c;
}

/* Golds of a list; a bare value is its first. RepoQA's are the functions of the repository. */
static void check_gold(const json_t *want, const struct task_question *q)
{
	if (!strcmp(q->metric, "repoqa")) {
		int found = 0;
		for (int i = 3; i < q->n_answers; i += 2)
			found += !strcmp(q->answers[i], json_string_value(want)) && !strcmp(q->answers[i - 1], q->answers[1]);
		assert_int_equal(found, 1);
		return;
	}
	size_t n = json_is_array(want) ? json_array_size(want) : 1;
	assert_int_equal(q->n_answers, n);
	for (size_t i = 0; i < n; i++) {
		const json_t *one = json_is_array(want) ? json_array_get(want, i) : want;
		char *number = text_format("%lld", (long long)json_integer_value(one));
		assert_string_equal(q->answers[i], json_is_integer(one) ? number : json_string_value(one));
		free(number);
	}
}

static void check_prompt(const json_t *want)
{
	const char *upstream = shared_path("data/scbench/upstream");
	const struct chat *chat = chat_of(text_at(want, "template"));
	struct task_request rq = request(text_at(want, "task"), text_at(want, "mode"));
	int row = (int)json_integer_value(json_object_get(want, "row")),
	    turn = (int)json_integer_value(json_object_get(want, "turn"));
	char sha[SHA_LEN];
	rq.path = "tests/fixtures/scbench";
	rq.templates = upstream;
	rq.raw_prompt = chat == chats;
	struct task *t = open_task(&rq);
	struct task_context c = make(t, row);
	assert_true(turn < c.n_questions);
	char *text = render(chat, &c, turn);
	sha256_hex(text, strlen(text), sha);
	if (strcmp(sha, text_at(want, "sha256")))
		fail_msg("%s row %d %s %s turn %d: %zu bytes, not %d:\n%s", rq.name, row, rq.mode, chat->name, turn, strlen(text),
			(int)json_integer_value(json_object_get(want, "bytes")), text);
	check_gold(json_object_get(want, "gold"), &c.questions[turn]);
	free(text);
	task_context_free(&c);
	task_close(t);
}

/* Every turn of two rows of each task, both modes, three templates: what upstream's program shows the model. */
static void test_prompts(void **state)
{
	(void)state;
	need_shared(shared_path("data/scbench/upstream/eval_utils.py"));
	json_t *all = json_load_file("tests/fixtures/scbench/prompts.json", 0, NULL), *want;
	size_t i;
	assert_non_null(all);
	json_array_foreach(all, i, want)
	{
		check_prompt(want);
	}
	assert_int_equal(i, 618);
	json_decref(all);
}

/* ---- what is asked and scored how ---- */

static void check_metrics(const char *task, const char *mode, int turn, const char *metric, const char *also, int new_tokens)
{
	struct task_request rq = request(task, mode);
	rq.path = "tests/fixtures/scbench";
	rq.templates = shared_path("data/scbench/upstream");
	struct task *t = open_task(&rq);
	struct task_context c = make(t, 0);
	const struct task_question *q = &c.questions[turn];
	assert_string_equal(q->metric, metric);
	assert_true(metric_find(metric) && (!also || metric_find(also)));
	assert_string_equal(q->also ? q->also : "", also ? also : "");
	assert_int_equal(q->max_new_tokens, new_tokens);
	assert_true(c.chat && !c.system && isnan(q->depth) && !q->n_stops);
	task_context_free(&c);
	task_close(t);
}

static void test_metrics(void **state)
{
	(void)state;
	need_shared(shared_path("data/scbench/upstream/eval_utils.py"));
	static const struct {
		const char *task, *metric, *also;
		int turn, new_tokens;
	} want[] = {
		{"scbench-kv", "substring", NULL, 0, 150},
		{"scbench-prefix_suffix", "substring", NULL, 0, 150},
		{"scbench-vt", "vt_match", NULL, 0, 30},
		{"scbench-repoqa", "repoqa", NULL, 0, 1024},
		{"scbench-qa_eng", "contains_any", NULL, 0, 40},
		{"scbench-qa_chn", "qa_chn_upstream", "qa_chn", 0, 40},
		{"scbench-choice_eng", "choice_abcd", NULL, 0, 40},
		{"scbench-many_shot", "many_shot_upstream", "many_shot_strict", 0, 10},
		{"scbench-mf", "first_number", NULL, 0, 5},
		{"scbench-summary", "rouge_lsum", NULL, 0, 200},
		{"scbench-summary_with_needles", "rouge_lsum", NULL, 0, 800},
		{"scbench-summary_with_needles", "first_integer", NULL, 1, 15},
		{"scbench-repoqa_and_kv", "repoqa", NULL, 0, 1024},
	};
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		for (int m = 0; m < 2; m++)
			check_metrics(want[i].task, m ? "multi-request" : "multi-turn", want[i].turn, want[i].metric,
				want[i].also, want[i].new_tokens);
	/* upstream's scorer gives kv turns of the mixed task 0 in multi-request mode only */
	check_metrics("scbench-repoqa_and_kv", "multi-turn", 1, "substring", NULL, 80);
	check_metrics("scbench-repoqa_and_kv", "multi-request", 1, "kv_record", "substring", 80);
}

static void test_identity(void **state)
{
	(void)state;
	write_file("scbench_kv.jsonl", "{\"context\": \"c\", \"multi_turns\": [{\"input\": \"i\", \"answer\": \"a\"}]}\n");
	struct task_identity turns, requests;
	char sha[SHA_LEN];
	struct task_request rq = request("scbench-kv", NULL);
	struct task *t = open_task(&rq);
	task_identity(t, &turns);
	task_close(t);
	rq.mode = "multi-request";
	t = open_task(&rq);
	task_identity(t, &requests);
	task_close(t);
	char *path = text_format("%s/scbench_kv.jsonl", folder);
	assert_ok(sha256_file(path, sha, err));
	free(path);
	assert_string_equal(turns.data_sha256, sha);
	assert_string_equal(turns.mode, "multi-turn");
	assert_string_equal(requests.mode, "multi-request");
	assert_string_equal(turns.template_sha256, requests.template_sha256);
	assert_string_equal(turns.metric, "substring");
}

/* ---- turns and their faults ---- */

/* more: further keys of each turn, with the comma before them. */
static char *row_with_turns(int n, const char *context, const char *input, const char *more)
{
	struct strbuf b = {0};
	strbuf_printf(&b, "{\"context\": %s, \"multi_turns\": [", context);
	for (int i = 0; i < n; i++)
		strbuf_printf(&b, "%s{\"input\": \"%s %d is: \", \"answer\": %d%s}", i ? ", " : "", input, i, i, more);
	strbuf_puts(&b, "]}\n");
	return strbuf_take(&b);
}

static void write_rows(const char *file, int first, int second, const char *context)
{
	char *a = row_with_turns(first, context, "The Number", ""), *b = row_with_turns(second, context, "The Number", "");
	char *both = text_format("%s%s", a, b);
	write_file(file, both);
	free(a);
	free(b);
	free(both);
}

static int turns_of(int first, int second, int questions, int row)
{
	write_rows("scbench_kv.jsonl", first, second, "\"c\"");
	struct task_request rq = request("scbench-kv", NULL);
	rq.questions = questions;
	struct task *t = open_task(&rq);
	struct task_context c = make(t, row);
	int n = c.n_questions;
	task_context_free(&c);
	task_close(t);
	return n;
}

/* Upstream cuts to 5 turns only if its first row has more; a plan's own number counts for every row. */
static void test_turns(void **state)
{
	(void)state;
	assert_int_equal(turns_of(7, 8, 0, 0), 5);
	assert_int_equal(turns_of(7, 8, 0, 1), 5);
	assert_int_equal(turns_of(2, 8, 0, 1), 8);
	assert_int_equal(turns_of(2, 8, 3, 0), 2);
	assert_int_equal(turns_of(2, 8, 3, 1), 3);
}

static void test_mf(void **state)
{
	(void)state;
	write_rows("scbench_mf.jsonl", 3, 1, "[1, -2, 30]");
	struct task_request rq = request("scbench-mf", NULL);
	struct task *t = open_task(&rq);
	struct task_context c = make(t, 0);
	assert_string_equal(c.text, "What is the number 0?\n\n[1, -2, 30]");
	assert_string_equal(c.questions[0].text, "\n\nThe Number 0 is: ");
	/* the last turn's prefix leaks into every later turn of a chat */
	assert_string_equal(c.questions[1].text, "What is the number 2?\n\nThe Number 1 is: ");
	assert_string_equal(c.questions[2].text, "What is the number 2?\n\nThe Number 2 is: ");
	assert_string_equal(c.questions[1].golden, "1");
	task_context_free(&c);
	task_close(t);
	rq.raw_prompt = true; /* ... and not into those of a raw prompt */
	t = open_task(&rq);
	c = make(t, 0);
	assert_string_equal(c.questions[1].text, "\n\nWhat is the number 1?\n\nThe Number 1 is: ");
	task_context_free(&c);
	task_close(t);
	rq.mode = "multi-request"; /* the context begins with the first input, and nothing parts it from the question */
	t = open_task(&rq);
	c = make(t, 0);
	assert_string_equal(c.text, "The Number 0 is: \n\n[1, -2, 30]");
	assert_string_equal(c.questions[1].text, "What is the number 1?\n\nThe Number 1 is: ");
	assert_true(!c.multi_turn && !c.questions[0].golden);
	task_context_free(&c);
	task_close(t);
	write_file("scbench_mf.jsonl", "{\"context\": [1], \"multi_turns\": [{\"input\": \"The\\nnumber is\", \"answer\": 1}]}");
	t = open_task(&rq);
	assert_int_equal(task_context_make(t, 0, &c, err), -1);
	assert_non_null(strstr(err, "scbench_mf.jsonl:1: turn 0: there is no \"The ... is\""));
	task_close(t);
}

/* The forced start of a summary: later turns, in a chat, multi-turn; it stays in the history before the golden answer. */
static void test_forced_start(void **state)
{
	(void)state;
	write_rows("scbench_summary.jsonl", 2, 1, "\"c\"");
	static const struct {
		const char *mode;
		bool raw;
		const char *first, *second, *golden;
	} want[] = {
		{"multi-turn", false, "", "This paper", "This paper1"},
		{"multi-turn", true, "", "", "1"},
		{"multi-request", false, "", "", NULL},
	};
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct task_request rq = request("scbench-summary", want[i].mode);
		rq.raw_prompt = want[i].raw;
		struct task *t = open_task(&rq);
		struct task_context c = make(t, 0);
		assert_string_equal(c.questions[0].answer_prefix, want[i].first);
		assert_string_equal(c.questions[1].answer_prefix, want[i].second);
		assert_string_equal(want[i].golden ? c.questions[1].golden : "", want[i].golden ? want[i].golden : "");
		task_context_free(&c);
		task_close(t);
	}
}

/* Answers in the history as Python prints them; a context under "input"; a list of texts as a gold list. */
static void test_forms(void **state)
{
	(void)state;
	write_file("scbench_kv.jsonl", "{\"input\": [\"a'b\", 1.5, 1e22, -3, \"c\\nd\", []], \"multi_turns\": [{\"input\": "
				       "\"i\", \"answer\": [\"x\", \"y'\\\"z\"]}]}");
	struct task_request rq = request("scbench-kv", NULL);
	struct task *t = open_task(&rq);
	struct task_context c = make(t, 0);
	assert_string_equal(c.text, "Find. [\"a'b\", 1.5, 1e+22, -3, 'c\\nd', []]");
	assert_string_equal(c.questions[0].golden, "['x', 'y\\'\"z']");
	assert_string_equal(c.id, "c0");
	task_context_free(&c);
	task_close(t);
}

/* RepoQA compares with every function which the rows in use ask for in the repository, each once; kv turns give none. */
static void test_needles(void **state)
{
	(void)state;
	struct strbuf b = {0};
	static const char *const rows[][4] = {{"r", "fa", "a", "scbench_repoqa"}, {"r", "fb", "b", "scbench_repoqa"},
		{"r", "v", "k", "scbench_kv"}, {"s", "fc", "c", "scbench_repoqa"}, {"r", "fa", "a", "scbench_repoqa"},
		{"r", "fd", "d", "scbench_repoqa"}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		strbuf_printf(&b, "{\"context\": \"c\", \"lang\": \"go\", \"repo\": \"%s\", \"multi_turns\": [", rows[i][0]);
		strbuf_printf(&b, "{\"input\": \"i\", \"answer\": \"%s\", \"name\": \"%s\", \"task\": \"%s\"}]}\n", rows[i][1],
			rows[i][2], rows[i][3]);
	}
	write_file("scbench_repoqa_and_kv.jsonl", b.text);
	strbuf_free(&b);
	struct task_request rq = request("scbench-repoqa_and_kv", NULL);
	for (int contexts = 5; contexts <= 6; contexts++) {
		rq.contexts = contexts;
		struct task *t = open_task(&rq);
		struct task_context c = make(t, 1);
		const struct task_question *q = &c.questions[0];
		static const char *const want[] = {"go", "b", "a", "fa", "b", "fb", "d", "fd"};
		assert_int_equal(q->n_answers, contexts == 5 ? 6 : 8);
		for (int i = 0; i < q->n_answers; i++)
			assert_string_equal(q->answers[i], want[i]);
		task_context_free(&c);
		task_close(t);
	}
}

/* ---- the window ---- */

/* A context of n words, "w0 w1 ...", one token each. */
static void write_long(const char *file, int n, int turns, const char *more)
{
	struct strbuf b = {0};
	strbuf_puts(&b, "\"w0");
	for (int i = 1; i < n; i++)
		strbuf_printf(&b, " w%d", i);
	strbuf_puts(&b, "\"");
	char *row = row_with_turns(turns, b.text, "The key", more);
	write_file(file, row);
	free(row);
	strbuf_free(&b);
}

static struct task_context make_cut(const struct task_request *rq)
{
	struct task *t = open_task(rq);
	struct task_context c = make(t, 0);
	task_close(t);
	return c;
}

/* The first prompt as upstream cuts it: its first and last limit / 2 tokens. */
static void check_cut(struct task_request rq, int64_t limit)
{
	bool turns = !rq.mode || strcmp(rq.mode, "multi-request");
	rq.length_tokens = 0;
	struct task_context whole = make_cut(&rq);
	const char *question = turns ? whole.questions[0].text : "";
	char *all = text_format("%s%s", whole.text, question);
	int64_t n = count_words(NULL, all, strlen(all));
	assert_true(n > limit);
	size_t head = cut_words(NULL, all, strlen(all), limit / 2), tail = cut_words(NULL, all, strlen(all), n - limit / 2);
	char *want = text_format("%.*s%s", (int)head, all, all + tail);
	rq.length_tokens = limit + (turns ? 750 : 1750);
	struct task_context cut = make_cut(&rq);
	char *got = text_format("%s%s", cut.text, question);
	assert_string_equal(got, want);
	assert_int_equal(cut.cut_tokens, n - limit / 2 * 2);
	rq.drops_ids = true; /* a caller that cuts the ids itself: the same tokens */
	struct task_context drop = make_cut(&rq);
	assert_string_equal(drop.text, whole.text);
	assert_int_equal(drop.drop_from, count_words(NULL, all, head));
	assert_int_equal(drop.drop_tokens, cut.cut_tokens);
	rq.length_tokens += n - limit; /* it just fits */
	struct task_context fits = make_cut(&rq);
	assert_true(!fits.drop_tokens && !fits.cut_tokens);
	free(all);
	free(want);
	free(got);
	task_context_free(&whole);
	task_context_free(&cut);
	task_context_free(&drop);
	task_context_free(&fits);
}

static void test_window(void **state)
{
	(void)state;
	write_long("scbench_kv.jsonl", 400, 5, "");
	check_cut(request("scbench-kv", NULL), 101);
	check_cut(request("scbench-kv", "multi-request"), 101);
	/* the template's tokens count at their ends */
	struct task_request rq = request("scbench-kv", NULL);
	rq.length_tokens = 750 + 200;
	rq.drops_ids = true;
	rq.special_tokens = 1;
	rq.head_tokens = 20;
	rq.tail_tokens = 5;
	struct task_context c = make_cut(&rq);
	int64_t text = count_words(NULL, c.text, strlen(c.text)),
		question = count_words(NULL, c.questions[0].text, strlen(c.questions[0].text));
	assert_int_equal(c.drop_from, 100 - 21);
	assert_int_equal(1 + 20 + text - c.drop_tokens + question + 5, 200);
	task_context_free(&c);
	rq.length_tokens = 760;
	struct task *t = open_task(&rq);
	assert_int_equal(task_context_make(t, 0, &c, err), -1);
	assert_non_null(strstr(err, "has no room for a context"));
	task_close(t);
}

/* The figures of upstream's scripts: kv keeps 130322 tokens of 131072, 129322 in multi-request mode; mixed tasks half of both. */
static void check_limit(const char *task, const char *more, const char *mode, int64_t limit)
{
	char *file = text_format("scbench_%s.jsonl", task + strlen("scbench-"));
	write_long(file, 132000, 5, more);
	free(file);
	struct task_request rq = request(task, mode);
	rq.length_tokens = 131072;
	rq.drops_ids = true;
	struct task_context c = make_cut(&rq);
	int64_t n = count_words(NULL, c.text, strlen(c.text)) +
		    (mode ? 0 : count_words(NULL, c.questions[0].text, strlen(c.questions[0].text)));
	assert_int_equal(n - c.drop_tokens, limit);
	task_context_free(&c);
}

static void test_limits(void **state)
{
	(void)state;
	static const char key[] = ", \"task\": \"scbench_kv\"";
	check_limit("scbench-kv", "", NULL, 130322);
	check_limit("scbench-kv", "", "multi-request", 129322);
	check_limit("scbench-summary", "", NULL, 131072 - 1000);
	check_limit("scbench-repoqa_and_kv", key, NULL, 131072 - (1024 + 80) * 5 / 2);
	check_limit("scbench-repoqa_and_kv", key, "multi-request", 131072 - (1024 + 80) * 5 / 2 - 1000);
}

/* ---- what goes wrong ---- */

static void refuse(const struct task_request *rq, const char *why)
{
	struct task *t = NULL;
	int rc = task_open(&t, rq, err);
	struct task_context c;
	if (!rc) {
		rc = task_context_make(t, 0, &c, err);
		task_close(t);
	}
	if (!rc || !strstr(err, why))
		fail_msg("\"%s\" does not say \"%s\"", rc ? err : "(no error)", why);
}

static void test_errors(void **state)
{
	(void)state;
	struct task_request rq = request("scbench-kv", "multi");
	refuse(&rq, "mode is \"multi-turn\" or \"multi-request\", not \"multi\"");
	rq = request("scbench-kv", NULL);
	rq.path = NULL;
	refuse(&rq, "needs the path of its data: a folder with scbench_kv.jsonl");
	rq = request("scbench-vt", NULL);
	refuse(&rq, "scbench_vt.jsonl: cannot open");
	static const struct {
		const char *row, *why;
	} rows[] = {
		{"", "no rows"},
		{"[1]", ":1: a row must be a JSON object"},
		{"{\"context\": ", "scbench_kv.jsonl:1: "},
		{"{\"context\": \"c\"}", "'multi_turns' is missing or empty"},
		{"{\"context\": {}, \"multi_turns\": [{\"input\": \"i\", \"answer\": \"a\"}]}",
			"'context' is missing, empty or not a text"},
		{"{\"context\": \"c\", \"multi_turns\": [{\"answer\": \"a\"}]}", "turn 0 has no 'input'"},
		{"{\"context\": \"c\", \"multi_turns\": [{\"input\": \"i\"}]}", "turn 0: 'answer' is missing"},
		{"{\"context\": \"c\", \"multi_turns\": [1]}", "turn 0 has no 'input'"},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		write_file("scbench_kv.jsonl", rows[i].row);
		rq = request("scbench-kv", NULL);
		refuse(&rq, rows[i].why);
	}
	write_file("scbench_repoqa_and_kv.jsonl",
		"{\"context\": \"c\", \"multi_turns\": [{\"input\": \"i\", \"answer\": \"a\", \"task\": \"other\"}]}");
	rq = request("scbench-repoqa_and_kv", NULL);
	refuse(&rq, "turn 0: its 'task' is not one of scbench_repoqa_and_kv");
	write_long("scbench_kv.jsonl", 400, 5, "");
	rq = request("scbench-kv", NULL);
	rq.length_tokens = 900;
	rq.cut_tokens = NULL;
	refuse(&rq, "needs a tokenizer");
}

static void test_prompt_errors(void **state)
{
	(void)state;
	write_file("scbench_kv.jsonl", "{\"context\": \"c\", \"multi_turns\": [{\"input\": \"i\", \"answer\": \"a\"}]}");
	struct task_request rq = request("scbench-kv", NULL);
	remove_file("prompts.json");
	refuse(&rq, "SCBench's prompts (prompts.json, or upstream's eval_utils.py) are not in ");
	write_file("prompts.json", "{\"multiturn_templates\": ");
	refuse(&rq, "prompts.json:1: ");
	write_file("prompts.json", "{\"multiturn_templates\": {\"scbench_kv\": \"{input}\"}}");
	refuse(&rq, "the prompts of scbench_kv are not as upstream's eval_utils.py has them");
	struct strbuf odd = {0};
	strbuf_puts(&odd, own_prompts);
	memcpy(strstr(odd.text, "{input}"), "{inqut}", 7);
	write_file("prompts.json", odd.text);
	strbuf_free(&odd);
	refuse(&rq, "the prompt asks for {inqut}, which the row does not have");
	write_file("prompts.json", own_prompts);
}

/* The data may lie in the hub's folder data/, and the prompts above it; or the path may be the file. */
static void test_places(void **state)
{
	(void)state;
	char *below = text_format("%s/data", folder), *file = text_format("%s/data/scbench_kv.jsonl", folder);
	assert_int_equal(mkdir(below, 0700), 0);
	write_file("data/scbench_kv.jsonl", "{\"context\": \"below\", \"multi_turns\": [{\"input\": \"i\", \"answer\": \"a\"}]}");
	remove_file("scbench_kv.jsonl");
	struct task_request rq = request("scbench-kv", NULL);
	for (int i = 0; i < 2; i++) {
		struct task_context c = make_cut(&rq);
		assert_string_equal(c.text, "Find. below");
		task_context_free(&c);
		rq.path = file;
		rq.templates = folder;
	}
	unlink(file);
	rmdir(below);
	free(below);
	free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prompts),
		cmocka_unit_test(test_metrics),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_mf),
		cmocka_unit_test(test_forced_start),
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_needles),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_prompt_errors),
		cmocka_unit_test(test_places),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
