/* test_sweep_suites.c: what the three suites ask of the sweep: turns, cuts, second metrics, groups, data by default, scoring
 * anew. Rows and prompts are of our own making; the runner is the stub, whose tokens are words. */
#include "tests/unit/harness/sweep_bench.h"

#include "harness/models.h"
#include "harness/task_data.h"
#include "harness/verbs.h"

#include <sys/stat.h>

/* Tasks come by --set. */
static const char plan_text[] = "{\"targets\": [\"m\"], \"tasks\": [\"niah-single\"], \"methods\": [], \"retained\": [1],"
				" \"timing\": {\"enabled\": false}}";

static char err[ERR_LEN];

static void put_file(const char *name, const char *text)
{
	char *path = text_format("%s/%s", folder, name), *slash = strrchr(path, '/');
	*slash = 0;
	mkdir(path, 0700);
	*slash = '/';
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	free(path);
}

/* A sweep over one list of tasks, %s in it standing for the folder. */
static void sweep_tasks(struct bench *b, const char *name, const char *tasks)
{
	struct strbuf set = {0};
	strbuf_puts(&set, "tasks=");
	for (const char *at; (at = strstr(tasks, "%s")); tasks = at + 2) {
		strbuf_add(&set, tasks, (size_t)(at - tasks));
		strbuf_puts(&set, folder);
	}
	strbuf_puts(&set, tasks);
	bench_run(b, plan_text, name, (const char *[]){set.text}, 1);
	strbuf_free(&set);
}

/* Every cell and sample as one text, with the columns the suites fill. */
static int tell_sample(void *user, const struct score_row *r)
{
	struct strbuf *b = user;
	strbuf_printf(b, "%s %s %s %g", r->sample_id, r->status, r->metric, r->score);
	if (*r->also_metric)
		strbuf_printf(b, " %s %g", r->also_metric, r->also_score);
	strbuf_printf(b, " group '%s' cut %s %d scorer %d", r->group, r->truncation, (int)r->cut_tokens, r->scorer_version);
	if (!isnan(r->depth))
		strbuf_printf(b, " needle %d %d", (int)r->needle_token, (int)r->needle_char);
	strbuf_puts(b, "\n");
	return 0;
}

static struct store *telling;

static int tell_cell(void *user, const struct cell_row *c)
{
	struct strbuf *b = user;
	if (strcmp(c->method, "full"))
		return 0;
	strbuf_printf(
		b, "%s %s variant '%s' data '%s' seed %d\n", c->task, c->mode, c->task_variant, c->data_state, (int)c->seed);
	return store_samples(telling, c->cell_id, tell_sample, b, err);
}

static char *tell(struct store *s)
{
	struct strbuf b = {0};
	telling = s;
	if (store_cells(s, tell_cell, &b, err))
		fail_msg("%s", err);
	return strbuf_take(&b);
}

static void expect(const struct bench *b, const char *wanted)
{
	char *told = tell(b->store);
	if (strcmp(told, wanted))
		fail_msg("wanted:\n%sgot:\n%s%s", wanted, told, b->sweep.sum.notes.len ? b->sweep.sum.notes.text : "");
	free(told);
}

/* ---- SCBench ---- */

#define FOUR(key, many) "\"scbench_kv\": " key ", \"scbench_many_shot\": " many "}"

static void put_scbench(const char *where)
{
	char *name = text_format("%s/prompts.json", where);
	put_file(name,
		"{\"multiturn_templates\": {" FOUR("\"Find. {context}\\n\\n{input}\"",
			"\"{context}\\n\\n{input}\"") ", \"multiturn_templates_scdq\": {" FOUR("\"Find. {context}\"",
			"\"{context}\"") ", \"multiturn_follow_up_templates\": {" FOUR("\"{pre_ans}\\n\\n{input}\"",
			"\"{pre_ans}\\n\\n{input}\"") ", \"multiturn_follow_up_templates_in_chat_tempate\": {" FOUR("\"{input}\"",
			"\"{input}\"") "}");
	free(name);
	name = text_format("%s/scbench_kv.jsonl", where);
	put_file(name, "{\"context\": \"Code amber 482 137. Code tulip 031 555. Code otter 120 007.\", \"multi_turns\": ["
		       "{\"input\": \"Recall amber.\", \"answer\": \"amber 482 137\"}, {\"input\": \"Recall tulip.\", "
		       "\"answer\": \"tulip "
		       "031 555\"},"
		       " {\"input\": \"Recall otter.\", \"answer\": \"gone\"}]}\n");
	free(name);
	name = text_format("%s/scbench_many_shot.jsonl", where);
	put_file(name,
		"{\"context\": \"Code amber (B) 1. Code tulip 2.\", \"multi_turns\": [{\"input\": \"Recall amber.\", \"answer\": "
		"\"(A)\"}]}\n");
	free(name);
}

static void test_turns_follow_each_other(void **state)
{
	(void)state;
	struct bench b;
	put_scbench("turns");
	sweep_tasks(&b, "turns", "[{\"name\":\"scbench-kv\",\"path\":\"%s/turns\"}]");
	expect(&b, "scbench-kv multi-turn variant '' data 'unpinned' seed 1\n"
		   "c0.q0 ok substring 1 group '' cut none 0 scorer 2\n"
		   "c0.q1 ok substring 1 group '' cut none 0 scorer 2\n"
		   "c0.q2 ok substring 0 group '' cut none 0 scorer 2\n");
	assert_string_equal(stub.seen, "chat drop 0+0\n"
				       "q0 min 0 stops 0\n"
				       "q1 min 0 stops 0 [Recall amber.|amber 482 137]\n"
				       "q2 min 0 stops 0 [Recall amber.|amber 482 137] [Recall tulip.|tulip 031 555]\n");
	end(&b);
}

static void test_the_modes_are_cells_of_their_own(void **state)
{
	(void)state;
	struct bench b;
	put_scbench("modes");
	sweep_tasks(&b, "modes",
		"[{\"name\":\"scbench-kv\",\"path\":\"%s/modes\",\"questions\":1},"
		" {\"name\":\"scbench-kv\",\"path\":\"%s/modes\",\"questions\":1,\"mode\":\"multi-request\"}]");
	expect(&b, "scbench-kv multi-turn variant '' data 'unpinned' seed 1\n"
		   "c0.q0 ok substring 1 group '' cut none 0 scorer 2\n"
		   "scbench-kv multi-request variant '' data 'unpinned' seed 1\n"
		   "c0.q0 ok substring 1 group '' cut none 0 scorer 2\n");
	end(&b);
}

static void test_a_second_metric_is_stored_beside_the_first(void **state)
{
	(void)state;
	struct bench b;
	put_scbench("also");
	sweep_tasks(&b, "also", "[{\"name\":\"scbench-many_shot\",\"path\":\"%s/also\"}]");
	expect(&b, "scbench-many_shot multi-turn variant '' data 'unpinned' seed 1\n"
		   "c0.q0 ok many_shot_upstream 1 many_shot_strict 0 group '' cut none 0 scorer 2\n");
	end(&b);
}

/* Words of the stub: 4 of the template before, 2 behind, 1 BOS. */
static void test_ids_are_left_out_of_the_middle(void **state)
{
	(void)state;
	struct bench b;
	struct strbuf row = {0};
	put_scbench("window");
	strbuf_puts(&row, "{\"context\": \"Code amber 1 2.");
	for (int i = 0; i < 1000; i++)
		strbuf_printf(&row, " w%d", i);
	strbuf_puts(&row, "\", \"multi_turns\": [{\"input\": \"Recall amber.\", \"answer\": \"amber 1 2\"}]}\n");
	put_file("window/scbench_kv.jsonl", row.text);
	strbuf_free(&row);
	sweep_tasks(&b, "window", "[{\"name\":\"scbench-kv\",\"path\":\"%s/window\",\"lengths\":350}]");
	/* 350 - 150 for the answer = 200: 100 - 5 from the front, 100 - 4 from the back of 1005 */
	expect(&b, "scbench-kv multi-turn variant '' data 'unpinned' seed 1\n"
		   "c0.q0 ok substring 1 group '' cut ids 814 scorer 2\n");
	assert_int_equal(strncmp(stub.seen, "chat drop 95+814\n", 17), 0);
	end(&b);
}

/* ---- LongBench ---- */

static void put_longbench(const char *where)
{
	static const char *const names[] = {"samsum", "qasper", "qasper_e"};
	static const char *const rows[] = {
		"{\"context\": \"One two three four five six seven eight.\", \"input\": \"Recall amber.\", \"answers\": "
		"[\"amber 1\"]}\n",
		"{\"context\": \"Code amber 1 2. One two three four five six seven eight nine ten.\", \"input\": \"Recall "
		"amber.\", "
		"\"answers\": [\"amber 1 2\"]}\n",
		"{\"context\": \"Code amber 1 2.\", \"input\": \"Recall amber.\", \"answers\": [\"amber 1 2\"], \"length\": "
		"5000}\n"};
	char *name;
	for (int i = 0; i < 3; i++) {
		name = text_format("%s/%s.jsonl", where, names[i]);
		put_file(name, rows[i]);
		free(name);
	}
	name = text_format("%s/dataset2prompt.json", where);
	put_file(name, "{\"samsum\": \"{context} {input}\", \"qasper\": \"{context} {input}\"}");
	free(name);
	name = text_format("%s/dataset2maxlen.json", where);
	put_file(name, "{\"samsum\": 8, \"qasper\": 8}");
	free(name);
}

static void test_longbench_rows(void **state)
{
	(void)state;
	struct bench b;
	put_longbench("lb");
	sweep_tasks(&b, "lb",
		"[{\"name\":\"longbench-samsum\",\"path\":\"%s/lb\"}, {\"name\":\"longbench-e-qasper\",\"path\":\"%s/lb\"},"
		" {\"name\":\"longbench-qasper\",\"path\":\"%s/lb\",\"lengths\":12,\"truncate\":\"ids\"},"
		" {\"name\":\"longbench-qasper\",\"path\":\"%s/lb\",\"lengths\":12}]");
	char *told = tell(b.store);
	assert_non_null(strstr(told, "longbench-e-qasper single variant '' data 'unpinned' seed 1\n"
				     "c0.q0 ok qa_f1 1 group '4-8k' cut none 0 scorer 2\n"));
	assert_non_null(strstr(told, "group '' cut ids 5 scorer 2\n"));
	assert_non_null(strstr(told, "group '' cut text 5 scorer 2\n"));
	free(told);
	/* samsum: no template, a line ends the answer, but not its first token */
	assert_int_equal(strncmp(stub.seen, "raw drop 0+0\nq0 min 1 stops 1\n", 30), 0);
	assert_non_null(strstr(stub.seen, "chat drop 5+5\nq0 min 0 stops 0\n"));
	end(&b);
}

/* A question longer than the window is a failed row; the other rows are asked. */
static void test_a_row_that_cannot_be_had(void **state)
{
	(void)state;
	struct bench b;
	put_longbench("bad");
	put_file("bad/qasper.jsonl",
		"{\"context\": \"One two three.\", \"input\": \"a b c d e f g h i j k l m n.\", \"answers\": [\"x\"]}\n"
		"{\"context\": \"Code amber 1 2.\", \"input\": \"Recall amber.\", \"answers\": [\"amber 1 2\"]}\n");
	sweep_tasks(&b, "bad", "[{\"name\":\"longbench-qasper\",\"path\":\"%s/bad\",\"lengths\":8,\"truncate\":\"ids\"}]");
	expect(&b, "longbench-qasper single variant '' data 'unpinned' seed 1\n"
		   "c0 failed  nan group '' cut none 0 scorer 2\n"
		   "c1.q0 ok qa_f1 1 group '' cut none 0 scorer 2\n");
	assert_int_equal(b.sweep.sum.failed, 2); /* full and random */
	assert_true(sweep_failed(&b.sweep.sum));
	const char *note = strstr(b.sweep.sum.notes.text, "context 0: context c0: the question alone has");
	assert_non_null(note);
	assert_null(strstr(note + 1, "context 0:"));
	end(&b);
}

/* ---- RULER ---- */

static void test_ruler_of_our_own(void **state)
{
	(void)state;
	struct bench b;
	sweep_tasks(&b, "ruler", "[{\"name\":\"ruler-niah_single_1\",\"lengths\":512,\"contexts\":2}]");
	char *told = tell(b.store);
	assert_int_equal(
		strncmp(told, "ruler-niah_single_1 single variant 'own' data '' seed 1\nc0.q0 ok string_match_all ", 82), 0);
	assert_non_null(strstr(told, " needle "));
	assert_null(strstr(told, "needle -1"));
	free(told);
	end(&b);
}

/* ---- data by default ---- */

static void test_data_lie_where_fetch_puts_them(void **state)
{
	(void)state;
	struct bench b;
	char *data = text_format("%s/data", folder);
	setenv("KVBENCH_DATA", data, 1);
	sweep_tasks(&b, "missing",
		"[{\"name\":\"longbench-qasper\"},{\"name\":\"scbench-kv\"},{\"name\":\"longbench-v2\"},"
		"{\"name\":\"ruler-vt\",\"lengths\":4096,\"generator\":\"upstream\"}]");
	assert_int_equal(b.sweep.sum.contexts_failed, 4);
	assert_non_null(strstr(b.sweep.sum.notes.text, "; `kvbench fetch longbench` gets its data"));
	assert_non_null(strstr(b.sweep.sum.notes.text, "; `kvbench fetch longbench-v2` gets its data"));
	assert_non_null(strstr(b.sweep.sum.notes.text, "; `kvbench fetch scbench` gets its data"));
	assert_non_null(strstr(b.sweep.sum.notes.text, "; `kvbench fetch ruler` gets its data"));
	end(&b);
	mkdir(data, 0700);
	put_longbench("data/longbench");
	sweep_tasks(&b, "default", "[{\"name\":\"longbench-qasper\"}]");
	expect(&b, "longbench-qasper single variant '' data 'unpinned' seed 1\n"
		   "c0.q0 ok qa_f1 1 group '' cut none 0 scorer 2\n");
	end(&b);
	unsetenv("KVBENCH_DATA");
	free(data);
}

static void test_what_is_known_of_the_data(void **state)
{
	(void)state;
	char *data = text_format("%s/known", folder), *scbench = text_format("%s/scbench", data), *file;
	setenv("KVBENCH_DATA", data, 1);
	mkdir(data, 0700);
	assert_string_equal(task_data_state("niah-single", NULL), "");
	assert_string_equal(task_data_state("jsonl", "rows.jsonl"), "unpinned");
	put_file("known/scbench/scbench_kv.jsonl", "{}\n"); /* upstream publishes no hash */
	assert_string_equal(task_data_state("scbench-kv", scbench), "unpinned");
	put_file("known/manifest.json",
		"{\"scbench/scbench_kv.jsonl\": {\"sha256\": "
		"\"ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356\","
		" \"source\": \"microsoft/SCBench\", \"revision\": \"283310bb8c5ba6909dd9a6b1be087d2937f76f6d\"}}");
	assert_string_equal(task_data_state("scbench-kv", scbench), "recorded");
	put_file("known/scbench/scbench_qa_eng.jsonl", "{}\n"); /* not of its pinned size */
	assert_string_equal(task_data_state("scbench-qa_eng", scbench), "unpinned");
	file = text_format("%s/scbench_qa_eng.jsonl", scbench);
	assert_int_equal(truncate(file, 59504656), 0);
	assert_string_equal(task_data_state("scbench-qa_eng", file), "pinned");
	assert_string_equal(task_data_state("scbench-kv", scbench), "recorded"); /* the other task's file is not its own */
	assert_string_equal(task_data_path("ruler-vt", NULL) ? "path" : "none", "none");
	unsetenv("KVBENCH_DATA");
	free(file);
	free(scbench);
	free(data);
}

/* ---- models of the hub cache ---- */

static int name_of(void *user, const struct cell_row *c)
{
	snprintf(user, 64, "%s", c->target);
	return 1;
}

static void test_a_model_of_the_hub_cache(void **state)
{
	(void)state;
	struct bench b;
	char name[64] = "", *cache = text_format("%s/hub", folder);
	setenv("HF_HUB_CACHE", cache, 1);
	setenv("HF_HUB_OFFLINE", "1", 1);
	bench_run(&b, plan_text, "hub-missing", (const char *[]){"targets=org/name"}, 1);
	assert_int_equal(b.sweep.sum.loads_failed, 1);
	assert_non_null(strstr(b.sweep.sum.notes.text, "org/name is no file and no embedded model"));
	assert_non_null(strstr(b.sweep.sum.notes.text, "kvbench fetch model org/name"));
	end(&b);
	static const char *const folders[] = {"hub", "hub/models--org--name", "hub/models--org--name/refs",
		"hub/models--org--name/snapshots", "hub/models--org--name/snapshots/0123456789012345678901234567890123456789"};
	for (int i = 0; i < 5; i++) {
		char *path = text_format("%s/%s", folder, folders[i]);
		mkdir(path, 0700);
		free(path);
	}
	put_file("hub/models--org--name/refs/main", "0123456789012345678901234567890123456789");
	static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};
	for (int i = 0; i < 4; i++) {
		char *path = text_format("%s/%s", folders[4], files[i]);
		put_file(path, "{}");
		free(path);
	}
	bench_run(&b, plan_text, "hub", (const char *[]){"targets=org/name", "tasks.lengths=100"}, 2);
	if (b.sweep.sum.loads_failed)
		fail_msg("%s", b.sweep.sum.notes.text);
	assert_non_null(strstr(stub.target, "/snapshots/0123456789012345678901234567890123456789"));
	assert_int_equal(store_cells(b.store, name_of, name, err), 1);
	assert_string_equal(name, "org/name"); /* not the commit */
	end(&b);
	unsetenv("HF_HUB_CACHE");
	unsetenv("HF_HUB_OFFLINE");
	free(cache);
}

/* ---- scoring anew ---- */

static int spoil(void *user, const struct cell_row *c)
{
	return store_put_score(user, c->cell_id, "c0.q0", .125, .25, 0, err);
}

static int score_again(const char *db)
{
	struct options o = {.verb = &verb_score, .args = {db}, .n_args = 1};
	return verb_score.run(&o);
}

static void test_stored_answers_are_scored_anew(void **state)
{
	(void)state;
	struct bench b;
	put_scbench("again");
	sweep_tasks(&b, "again", "[{\"name\":\"scbench-many_shot\",\"path\":\"%s/again\"}]");
	char *before = tell(b.store), *all = dump(b.store), *db = text_copy(b.db);
	assert_int_equal(store_cells(b.store, spoil, b.store, err), 0);
	char *spoilt = tell(b.store);
	assert_non_null(strstr(spoilt, "many_shot_upstream 0.125 many_shot_strict 0.25 group '' cut none 0 scorer 0"));
	end(&b);
	int answers = stub.answers;
	assert_int_equal(score_again(db), EXIT_DONE);
	assert_int_equal(stub.answers, answers); /* no model is asked */
	struct store *s = NULL;
	assert_int_equal(store_open_read(&s, db, err), 0);
	char *after = tell(s), *all_after = dump(s);
	assert_string_equal(after, before);
	assert_string_equal(all_after, all);
	store_close(s);
	assert_int_equal(score_again("/gone/x.db"), EXIT_CELLS_FAILED);
	free(before);
	free(spoilt);
	free(after);
	free(all);
	free(all_after);
	free(db);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_turns_follow_each_other),
		TEST(test_the_modes_are_cells_of_their_own),
		TEST(test_a_second_metric_is_stored_beside_the_first),
		TEST(test_ids_are_left_out_of_the_middle),
		TEST(test_longbench_rows),
		TEST(test_a_row_that_cannot_be_had),
		TEST(test_ruler_of_our_own),
		TEST(test_data_lie_where_fetch_puts_them),
		TEST(test_what_is_known_of_the_data),
		TEST(test_a_model_of_the_hub_cache),
		TEST(test_stored_answers_are_scored_anew),
	};
	return bench_tests(tests);
}
