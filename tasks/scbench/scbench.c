/* scbench.c: the 12 tasks of SCBench (microsoft/MInference, folder scbench): table, files, the cut to the window. scbench-kv is
 * upstream's scbench_kv.
 *
 * Data: a folder with upstream's <task>.jsonl (also below data/), or one such file. Prompts: prompts.h. Both are the user's; a
 * row becomes a context in turns.c.
 *
 * length_tokens is upstream's max_seq_length (its scripts say 131072): a text above length - new tokens x turns (mixed tasks:
 * both new tokens x turns / 2; multi-request: 1000 less) loses its middle, L/2 tokens stay at each end of the whole first prompt,
 * the template's tokens counted. A caller that drops ids cuts exactly as upstream does; else the text is cut at the tokens'
 * edges.
 *
 * Turns: upstream uses a row's first 5, but only if the first row of the file has more; `questions` limits every row. */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/scbench/scbench.h"

enum { SCBENCH_VERSION = 1, MOST_TURNS = 5, REQUEST_RESERVE = 1000 };

/* ---- the tables ---- */

static const struct kind kinds[] = {
	{.name = "scbench_kv", .metric = "substring"},
	{.name = "scbench_prefix_suffix", .metric = "substring"},
	{.name = "scbench_vt", .gold = GOLD_LIST, .metric = "vt_match"},
	{.name = "scbench_repoqa", .gold = GOLD_REPOQA, .metric = "repoqa"},
	{.name = "scbench_qa_eng", .metric = "contains_any"},
	{.name = "scbench_qa_chn", .metric = "qa_chn_upstream", .also = "qa_chn"},
	{.name = "scbench_choice_eng", .gold = GOLD_OPTIONS, .metric = "choice_abcd"},
	{.name = "scbench_many_shot", .metric = "many_shot_upstream", .also = "many_shot_strict"},
	{.name = "scbench_mf", .metric = "first_number"},
	{.name = "scbench_summary", .metric = "rouge_lsum", .forced_start = "This paper"},
	{.name = "scbench_passkey", .metric = "first_integer"},
};

static const struct scbench_task tasks[SCBENCH_TASKS] = {
	{"scbench_kv", {{"scbench_kv", 150}}},
	{"scbench_prefix_suffix", {{"scbench_prefix_suffix", 150}}},
	{"scbench_vt", {{"scbench_vt", 30}}},
	{"scbench_repoqa", {{"scbench_repoqa", 1024}}},
	{"scbench_qa_eng", {{"scbench_qa_eng", 40}}},
	{"scbench_qa_chn", {{"scbench_qa_chn", 40}}},
	{"scbench_choice_eng", {{"scbench_choice_eng", 40}}},
	{"scbench_many_shot", {{"scbench_many_shot", 10}}},
	{"scbench_mf", {{"scbench_mf", 5}}},
	{"scbench_summary", {{"scbench_summary", 200}}},
	{"scbench_summary_with_needles", {{"scbench_summary", 800}, {"scbench_passkey", 15}}},
	{"scbench_repoqa_and_kv", {{"scbench_repoqa", 1024}, {"scbench_kv", 80}}},
};

const struct kind *scbench_kind(const char *name)
{
	const struct kind *k = kinds;
	while (strcmp(k->name, name))
		k++;
	return k;
}

const struct part *scbench_part(const struct scbench_task *task, const json_t *turn)
{
	if (!task->parts[1].kind)
		return &task->parts[0];
	const char *name = json_string_value(json_object_get(turn, "task"));
	for (int i = 0; name && i < 2; i++)
		if (!strcmp(task->parts[i].kind, name))
			return &task->parts[i];
	return NULL;
}

/* ---- the window ---- */

static int64_t window_tokens(const struct task *t)
{
	const struct scbench *s = t->state;
	const struct part *p = s->task->parts;
	int64_t answers =
		p[1].kind ? (p[0].new_tokens + p[1].new_tokens) * s->window_turns / 2 : p[0].new_tokens * s->window_turns;
	return t->rq.length_tokens - answers - (s->requests ? REQUEST_RESERVE : 0);
}

/* Upstream cuts the first prompt as a whole: with the question in multi-turn mode, without it in multi-request mode. */
static int cut_middle(const struct task *t, struct task_context *c, char err[ERR_LEN])
{
	const struct task_request *rq = &t->rq;
	const struct scbench *s = t->state;
	if (!rq->length_tokens)
		return 0;
	if (!rq->count_tokens || (!rq->cut_tokens && !rq->drops_ids))
		return err_set(err, "task %s needs a tokenizer to keep to a length", t->def->name);
	const char *question = s->requests ? "" : c->questions[0].text;
	int64_t text = rq->count_tokens(rq->user, c->text, strlen(c->text));
	int64_t asked = rq->count_tokens(rq->user, question, strlen(question)),
		after = asked + (s->requests ? 0 : rq->tail_tokens);
	int64_t before = rq->special_tokens + rq->head_tokens, limit = window_tokens(t), half = limit / 2;
	if (text < 0 || asked < 0)
		return err_set(err, "context %s: counting tokens failed", c->id);
	if (before + text + after <= limit)
		return 0;
	if (half <= before || half <= after)
		return err_set(err, "task %s: a window of %lld tokens has no room for a context beside its prompt and answers",
			t->def->name, (long long)rq->length_tokens);
	int64_t from = half - before, n = text - from - (half - after);
	if (rq->drops_ids) {
		c->drop_from = from;
		c->drop_tokens = n;
	} else {
		task_context_cut(c, rq, from, n);
	}
	return 0;
}

/* ---- the files ---- */

/* The task's file: the path itself, or in the folder. Caller frees. */
static char *data_file(const char *path, const char *task)
{
	const char *end = strrchr(path, '.');
	if (end && !strcmp(end, ".jsonl"))
		return text_copy(path);
	char *file = text_format("%s/%s.jsonl", path, task), *below = text_format("%s/data/%s.jsonl", path, task);
	bool is_below = !file_exists(file) && file_exists(below);
	free(is_below ? file : below);
	return is_below ? below : file;
}

static int open_prompts(struct task *t, const char *file, char err[ERR_LEN])
{
	struct scbench *s = t->state;
	char *beside = text_copy(file);
	const char *folder = t->rq.templates ? t->rq.templates : dirname(beside);
	int rc = prompts_open(
		&s->prompts, folder, t->rq.templates ? NULL : t->rq.path, s->task->name, t->identity.template_sha256, err);
	free(beside);
	return rc;
}

/* What the first row decides, and (RepoQA) what all rows ask for. */
static int read_ahead(struct task *t, char err[ERR_LEN])
{
	struct scbench *s = t->state;
	bool all = scbench_kind(s->task->parts[0].kind)->gold == GOLD_REPOQA;
	for (int i = 0; i < (all ? t->contexts : 1); i++) {
		json_t *row = rows_read(s->rows, i, err);
		if (!row)
			return -1;
		int turns = (int)json_array_size(json_object_get(row, "multi_turns"));
		if (i == 0) {
			s->most_turns = t->rq.questions ? t->rq.questions : turns > MOST_TURNS ? MOST_TURNS : 0;
			s->window_turns = scbench_turns(s, row);
		}
		if (all)
			needles_add(&s->needles, row, scbench_turns(s, row));
		json_decref(row);
	}
	return 0;
}

static int read_mode(struct task *t, char err[ERR_LEN])
{
	struct scbench *s = t->state;
	const char *mode = t->rq.mode ? t->rq.mode : "multi-turn";
	s->requests = !strcmp(mode, "multi-request");
	t->identity.mode = s->requests ? "multi-request" : "multi-turn";
	if (s->requests || !strcmp(mode, "multi-turn"))
		return 0;
	return err_set(err, "task %s: mode is \"multi-turn\" or \"multi-request\", not \"%s\"", t->def->name, mode);
}

static int scbench_open(struct task *t, char err[ERR_LEN])
{
	struct scbench *s = t->state = mem_new(1, sizeof(*s));
	s->task = &tasks[t->def - task_scbench];
	if (read_mode(t, err))
		return -1;
	if (!t->rq.path)
		return err_set(err, "task %s needs the path of its data: a folder with %s.jsonl", t->def->name, s->task->name);
	char *file = data_file(t->rq.path, s->task->name);
	int rc = rows_open(&s->rows, file, t->identity.data_sha256, err) || open_prompts(t, file, err);
	free(file);
	if (rc)
		return -1;
	int n = rows_count(s->rows);
	t->contexts = t->rq.contexts && t->rq.contexts < n ? t->rq.contexts : n;
	t->identity.version = SCBENCH_VERSION;
	t->identity.metric = scbench_kind(s->task->parts[0].kind)->metric;
	return read_ahead(t, err);
}

static int scbench_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN])
{
	struct scbench *s = t->state;
	char what[ERR_LEN];
	json_t *row = rows_read(s->rows, i, err);
	int rc = row ? scbench_context(t, row, out, what) : -1;
	if (row && rc)
		rows_error(s->rows, i, err, what);
	json_decref(row);
	return rc ? -1 : cut_middle(t, out, err);
}

static void scbench_close(struct task *t)
{
	struct scbench *s = t->state;
	if (!s)
		return;
	prompts_close(&s->prompts);
	rows_close(s->rows);
	needles_free(&s->needles);
	free(s);
}

/* clang-format off */
#define TASK(name_, title_) \
	{.name = "scbench-" name_, .title = title_, .parameters = "path templates mode length contexts questions max_new_tokens", \
	 .open = scbench_open, .make = scbench_make, .close = scbench_close}
const struct task_def task_scbench[SCBENCH_TASKS] = { /* the order of tasks[] */
	TASK("kv", "SCBench: value of a key in a large JSON object"),
	TASK("prefix_suffix", "SCBench: string with a given beginning and end"),
	TASK("vt", "SCBench: variables tracked through assignments"),
	TASK("repoqa", "SCBench: function of a repository by its description"),
	TASK("qa_eng", "SCBench: questions about an English book"),
	TASK("qa_chn", "SCBench: questions about a Chinese book"),
	TASK("choice_eng", "SCBench: multiple choice about an English book"),
	TASK("many_shot", "SCBench: learning from hundreds of examples"),
	TASK("mf", "SCBench: numbers such as the median of a long list"),
	TASK("summary", "SCBench: summaries of papers"),
	TASK("summary_with_needles", "SCBench: summaries and pass keys in turns"),
	TASK("repoqa_and_kv", "SCBench: functions and keys in turns"),
};
/* clang-format on */
