/* A paper's comparison over small databases made here: numbers computed by hand, each reason for not comparing, nothing filled
 * in. */
#include "report/paper.h"
#include "results/store.h"
#include "tests/unit/test.h"

#include <unistd.h>

static char folder[64], err[ERR_LEN];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/kvb_paper.XXXXXX" : "/dev/shm/kvb_paper.XXXXXX"); /* many commits */
	return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
	(void)state;
	char *command = text_format("rm -rf %s", folder);
	int rc = system(command);
	free(command);
	return rc;
}

/* What the measured side is; every test changes one thing of `usual`. */
struct setting {
	const char *target, *dtype, *variant, *protocol, *template;
	int64_t length;
	bool no_b, failed; /* without the second task; snapkv's samples failed */
	bool unpinned;
};
static const struct setting usual = {"org/Real-8B", "bf16", "rows", "agnostic", "qwen", 4096, false, false, false};

static void check(int rc)
{
	if (rc)
		fail_msg("%s", err);
}

static void put_cell(struct store *s, const struct setting *k, const char *run, const char *target, const char *task,
	const char *method, int ppm, int right)
{
	char method_id[SHA_LEN], task_id[SHA_LEN], cell[SHA_LEN];
	struct store_method m = {.name = method, .params = "{}", .version = 1, .origin = ""};
	struct store_task t = {.name = task,
		.metric = "string_match_all",
		.params = "{}",
		.variant = k->variant,
		.data_state = k->unpinned ? "unpinned" : "",
		.version = 1,
		.binary_metric = true};
	check(store_put_method(s, &m, method_id, err));
	check(store_put_task(s, &t, task_id, err));
	struct store_cell c = {.target_id = target,
		.method_id = method_id,
		.task_id = task_id,
		.retained_ppm = ppm,
		.context_tokens = k->length,
		.protocol = k->protocol,
		.mode = "single",
		.topology = "cpu",
		.precision = "bf16",
		.measure_version = 1,
		.samples_planned = 20};
	check(store_put_cell(s, &c, cell, err));
	bool fails = k->failed && strcmp(method, "full");
	for (int i = 0; i < 20; i++) {
		char id[16];
		snprintf(id, sizeof id, "s%02d", i);
		struct store_sample p = {.cell_id = cell,
			.run_id = run,
			.sample_id = id,
			.context_id = id,
			.status = fails ? "failed" : "ok",
			.message = fails ? "no trained weights" : "",
			.metric = "string_match_all",
			.score = fails ? NAN : i < right,
			.also_score = NAN,
			.scorer_version = 1,
			.depth = NAN,
			.needle_token = -1,
			.needle_char = -1,
			.context_tokens = 4096,
			.kept_total = 100,
			.kv_bytes_full = 4000000000,
			.kv_bytes_kept = 1200000000};
		check(store_put_sample(s, &p, err));
	}
	struct store_timing ttft = {.cell_id = cell,
		.run_id = run,
		.phase = "ttft",
		.clock = "host",
		.duration_ns = !strcmp(method, "kvzip")    ? 3000
			       : !strcmp(method, "snapkv") ? 1500
							   : 1000};
	for (ttft.repetition = 0; ttft.repetition < 9; ttft.repetition++)
		check(store_put_timings(s, &ttft, 1, err));
}

/* full 100 and 50, kvzip 80 and 50, snapkv 50 and 25 of 100, at r = .3. */
static struct store *make_store(const struct setting *k)
{
	static int number;
	char *path = text_format("%s/%d.db", folder, number++), env[SHA_LEN], target[SHA_LEN], run[33];
	struct store *s;
	check(store_open(&s, path, err));
	free(path);
	struct store_env e = {"h", "o", "c", "i", "cpu", "v", "f", "l", "c", false, 1, 1};
	struct store_model m = {.role = "target",
		.name = k->target,
		.path = "p",
		.arch = "qwen3",
		.dtype = k->dtype,
		.layers = 2,
		.kv_heads = 2,
		.head_dim = 16,
		.kv_bytes_per_token = 256,
		.chat_template = k->template};
	check(store_put_env(s, &e, env, err));
	check(store_put_model(s, &m, target, err));
	check(store_run_begin(s, env, "[]", "{}", run, err));
	put_cell(s, k, run, target, "ruler-a", "full", 1000000, 20);
	put_cell(s, k, run, target, "ruler-a", "kvzip", 300000, 16);
	put_cell(s, k, run, target, "ruler-a", "snapkv", 300000, 10);
	if (!k->no_b) {
		put_cell(s, k, run, target, "ruler-b", "full", 1000000, 10);
		put_cell(s, k, run, target, "ruler-b", "kvzip", 300000, 10);
		put_cell(s, k, run, target, "ruler-b", "snapkv", 300000, 5);
	}
	return s;
}

static const char published[] = "{\"sources\": {\"s\": {\"title\": \"A|B 2024\", \"how\": \"printed\", \"template\": \"chat\", "
				"\"data\": [\"rows\"], \"differs\": \"\"},"
				"  \"odd\": {\"title\": \"Odd\", \"how\": \"printed\", \"template\": \"not stated\", \"data\": "
				"[], \"differs\": \"its own scoring\"}},"
				" \"sets\": {\"ruler: mean of 2\": [\"ruler-a\", \"ruler-b\"], \"ruler: mean of 8\": []},"
				" \"records\": ["
				"  {\"source\": \"s\", \"model\": \"Real-8B\", \"method\": \"full\", \"protocol\": \"\", "
				"\"length\": 4096, \"retained\": 1.0,"
				"   \"values\": {\"ruler: mean of 2\": 80.0, \"ruler-a\": 99.5}},"
				"  {\"source\": \"s\", \"model\": \"Real-8B\", \"method\": \"snapkv\", \"protocol\": "
				"\"agnostic\", \"length\": 4096, \"retained\": 0.3,"
				"   \"tolerance\": 0.5, \"values\": {\"ruler: mean of 2\": 40.0, \"ruler: mean of 8\": 33.0}},"
				"  {\"source\": \"s\", \"model\": \"Real-8B\", \"method\": \"kvzap\", \"protocol\": "
				"\"agnostic\", \"length\": 4096, \"retained\": 0.3,"
				"   \"values\": {\"ruler: mean of 2\": 41.0}},"
				"  {\"source\": \"s\", \"model\": \"Real-8B\", \"method\": \"snapkv\", \"protocol\": "
				"\"agnostic\", \"length\": 4096, \"retained\": 0.9,"
				"   \"values\": {\"ruler: mean of 2\": 70.0}},"
				"  {\"source\": \"s\", \"model\": \"Real-8B\", \"method\": \"snapkv\", \"protocol\": \"\", "
				"\"length\": 0, \"retained\": null, \"topology\": "
				"\"dual\", \"note\": \"approximate\","
				"   \"values\": {\"TTFT of kvzip over its own\": 3.2, \"share of kvzip's mean score, %\": 98.0}},"
				"  {\"source\": \"s\", \"model\": \"Real-8B\", \"method\": \"snapkv\", \"protocol\": \"\", "
				"\"length\": 200000, \"retained\": 0.3,"
				"   \"values\": {\"KV cache, GB\": 3.75}},"
				"  {\"source\": \"odd\", \"model\": \"Real-8B\", \"method\": \"snapkv\", \"protocol\": \"\", "
				"\"length\": 4096, \"retained\": 0.3,"
				"   \"values\": {\"ruler-a\": 60.0}},"
				"  {\"source\": \"s\", \"model\": \"Real-8B\", \"method\": \"snapkv\", \"protocol\": "
				"\"agnostic\", \"length\": 4096, \"retained\": 0.3,"
				"   \"budget_tokens\": 1024, \"values\": {\"ruler-b\": 50.0}},"
				"  {\"source\": \"s\", \"model\": \"Real-8B\", \"method\": \"snapkv\", \"protocol\": "
				"\"agnostic\", \"length\": 4096, \"retained\": null,"
				"   \"budget_tokens\": 2048, \"values\": {\"ruler-b\": 55.0}}]}";
static const char about[] = "{\"title\": \"T & <T>\", \"states\": [\"one thing\"], \"not_stated\": [[\"a size\", \"ours\"]], "
			    "\"records\": [\"s\", [\"odd\", \"ruler\"]],"
			    " \"stand_ins\": {\"ruler\": [\"ruler-a\"]}}";

static const char suites[] = "{\"tasks\": {\"ruler-a\": {\"contexts\": 500}, \"ruler-b\": {\"contexts\": 20}}}";

static char *compare(const struct setting *k, const char *scale, const char *format)
{
	struct store *s = make_store(k);
	struct strbuf out = {0};
	check(paper_write(s, &(struct paper_wish){about, published, scale, suites, "method x: not in this build\n"}, format, &out, err));
	store_close(s);
	return strbuf_take(&out);
}

static void says(const char *text, const char *what)
{
	if (!strstr(text, what))
		fail_msg("\"%s\" is not in:\n%s", what, text);
}

/* The line that starts so. */
static void line_says(const char *text, const char *start, const char *what)
{
	const char *line = strstr(text, start);
	if (!line)
		fail_msg("no line \"%s\" in:\n%s", start, text);
	char *copy = text_format("%.*s", (int)strcspn(line, "\n"), line);
	if (!strstr(copy, what))
		fail_msg("\"%s\" is not in \"%s\"", what, copy);
	free(copy);
}

/* Wilson: 10 of 20 is .2993 .. .7007, 5 of 20 .1119 .. .4687; the mean's sides are their roots of squares by 2. */
static void numbers_by_hand(void **state)
{
	(void)state;
	char *text = compare(&usual, "full", "md");
	line_says(text, "| ruler: mean of 2 | full | 1 |", "| 80 | 1.000 | 75.0 \\[");
	line_says(text, "| ruler: mean of 2 | snapkv | 0.3 |",
		"| 40 ±0.5 | 0.500 | 37.5 \\[25.3, 52.3\\] | 0.500 | 40 | -2.5 \\[-15.2, +12.8\\]");
	line_says(
		text, "| ruler-a | full | 1 |", "| 99.5 | 1.000 | 100.0 \\[83.9, 100.0\\] | 1.000 | 20 | +0.5 \\[-15.6, +0.5\\]");
	free(text);
}

static void figures_that_are_no_scores(void **state)
{
	(void)state;
	char *text = compare(&usual, "full", "md");
	line_says(text, "| TTFT of kvzip over its own | snapkv |", "| 3.2 |  | 2 |  | 9 | not comparable: ");
	says(text, "machine: cpu, published: two GPUs");
	says(text, "published figure: approximate (a difference is given all the same)");
	line_says(text, "| share of kvzip's mean score, % | snapkv |", "| 98 |  | 57.69 |"); /* (50 + 25) / (80 + 50) */
	line_says(text, "| KV cache, GB | snapkv | 0.3 |", "| 3.75 |  | 1.2 | 0.300 | 20 | not comparable: ");
	says(text, "length: 4096 tokens, published: 200000");
	free(text);
}

static void what_is_missing_is_listed(void **state)
{
	(void)state;
	char *text = compare(&usual, "full", "md");
	says(text, "A\\|B 2024: kvzap was not run (1 figure)");
	says(text, "A\\|B 2024: r = 0.9 was not run (1 figure)");
	says(text, "ruler: mean of 8: which tasks is not stated (1 figure)");
	says(text, "snapkv: the share that was kept is not stated (1 figure)");
	assert_null(strstr(text, "| 55 |"));
	says(text, "method x: not in this build");
	says(text, "a size: ours");
	assert_null(strstr(text, "| 70 |")); /* no counterpart, no row */
	free(text);
	struct setting k = usual;
	k.no_b = true;
	text = compare(&k, "full", "md");
	says(text, "ruler: mean of 2: 1 of its 2 tasks measured");
	free(text);
	k = usual;
	k.failed = true;
	text = compare(&k, "full", "md");
	says(text, "snapkv failed: no trained weights");
	free(text);
}

/* One thing differs: no difference of the snapkv row is given, and the reason stands there. */
static void differs(const struct setting *k, const char *scale, const char *reason)
{
	char *text = compare(k, scale, "md");
	line_says(text, "| ruler: mean of 2 | snapkv | 0.3 |", "not comparable: ");
	says(text, reason);
	free(text);
}

static void each_reason_is_named(void **state)
{
	(void)state;
	struct setting k = usual;
	k.target = "org/Real-8B-v2";
	differs(&k, "full", "model: org/Real-8B-v2, published: Real-8B");
	k = usual, k.dtype = "Q4_1";
	differs(&k, "full", "weights: Q4\\_1, published: not quantised");
	k = usual, k.target = "Real-8B.q4_k_m.gguf";
	differs(&k, "full", "weights: q4\\_k\\_m, published: not quantised");
	k = usual, k.length = 2048;
	differs(&k, "full", "length: 2048 tokens, published: 4096");
	k = usual, k.variant = "own";
	differs(&k, "full", "rows: own, published: rows");
	k = usual, k.template = "raw";
	differs(&k, "full", "template: none (raw), published: a chat template");
	differs(&usual, "tiny", "task: ruler-a in place of the published ones");
	char *text = compare(&usual, "full", "md");
	line_says(text, "| ruler-a | snapkv | 0.3 |", "not comparable: ");
	says(text, "published with its own scoring");
	says(text, "rows: 20 of the task's 500 (a difference is given all the same)");
	assert_null(strstr(text, "of the task's 20"));
	assert_null(strstr(text, "unpinned"));
	line_says(text, "| ruler-b | snapkv | 0.3 | 50 |", "not comparable: ");
	says(text, "budget: a share of each prompt, published: 1024 tokens of each");
	free(text);
	k = usual, k.unpinned = true;
	text = compare(&k, "full", "md");
	says(text, "rows: unpinned, nobody knows whether they are upstream's (a difference is given all the same)");
	free(text);
}

/* A record of a protocol that was not run meets nothing: two protocols never share a row. */
static void protocols_do_not_meet(void **state)
{
	(void)state;
	struct setting k = usual;
	k.protocol = "aware";
	char *text = compare(&k, "full", "md");
	says(text, "snapkv at r = 0.3, agnostic: no such cell");
	assert_null(strstr(text, "| ruler: mean of 2 | snapkv |"));
	free(text);
}

static void three_looks(void **state)
{
	(void)state;
	char *text = compare(&usual, "full", "html");
	says(text, "<!doctype html>");
	says(text, "</body></html>");
	says(text, "default-src 'none'");
	says(text, "T &amp; &lt;T&gt;");
	says(text, "<td>37.5 [25.3, 52.3]</td>");
	assert_null(strstr(text, "http:"));
	assert_null(strstr(text, "https:"));
	free(text);
	text = compare(&usual, "full", "latex");
	says(text, "T \\& \\textless{}T\\textgreater{}");
	says(text,
		"ruler: mean of 2 & snapkv & 0.3 & 40 ±0.5 & 0.500 & 37.5 [25.3, 52.3] & 0.500 & 40 & -2.5 [-15.2, +12.8]: a \\\\");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_by_hand), cmocka_unit_test(figures_that_are_no_scores),
		cmocka_unit_test(what_is_missing_is_listed), cmocka_unit_test(each_reason_is_named),
		cmocka_unit_test(protocols_do_not_meet), cmocka_unit_test(three_looks)};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
