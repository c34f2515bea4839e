/* turns.c: a row of SCBench to a context with questions, in upstream's two modes (eval_utils.py: create_multiturn_prompt,
 * create_scdq_prompt).
 *
 * multi-turn     text = the first turn up to and with {context}; question 0 = what follows it, blank line and all; a later
 *                question = the follow-up text; golden = the right answer as Python prints it.
 * multi-request  text = upstream's context part; each question = the bare block, which touches the text without any separator.
 *
 * Kept faults of upstream: multi-turn, chat: every later turn of mf carries the last turn's prefix. Multi-turn: the forced start
 * of summary's answers stays in the history, before the golden answer. Multi-request: mf's context begins with the first turn's
 * input, not with its prefix. In a raw prompt choice_eng's later turns end otherwise than its first one (upstream's texts do). */
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"
#include "tasks/scbench/python_text.h"
#include "tasks/scbench/scbench.h"

/* ---- fields of a turn ---- */

static bool is_mf(const struct scbench *s)
{
	return !strcmp(s->task->name, "scbench_mf");
}

/* `What is <target>?`: the input's first "The <something> is", in lower case and less its " is". Caller frees; NULL = none. */
static char *mf_prefix(const char *input)
{
	for (const char *p = input; (p = strstr(p, "The ")); p++) {
		const char *end = strchrnul(p, '\n'), *last = NULL;
		for (const char *is = p + 4; (is = strstr(is, " is")) && is < end; is++)
			if (is > p + 4)
				last = is;
		if (!last)
			continue;
		char *target = text_format("%.*s", (int)(last - p), p);
		struct strbuf b = {0};
		strbuf_puts(&b, "What is ");
		text_lower(&b, target);
		strbuf_puts(&b, "?");
		free(target);
		return strbuf_take(&b);
	}
	return NULL;
}

static const json_t *turn_at(const json_t *row, int i)
{
	return json_array_get(json_object_get(row, "multi_turns"), (size_t)i);
}

static const char *turn_input(const json_t *row, int i)
{
	return json_string_value(json_object_get(turn_at(row, i), "input"));
}

/* The fields of turn i; the prefix is mf's own, to be freed. */
static int turn_fields(const struct scbench *s, const json_t *row, int i, struct prompt_fields *f, char what[ERR_LEN])
{
	const json_t *options = json_object_get(turn_at(row, i), "options");
	*f = (struct prompt_fields){.input = turn_input(row, i)};
	for (size_t o = 0; o < 4; o++)
		f->options[o] = json_string_value(json_array_get(options, o));
	if (!f->input)
		return err_set(what, "turn %d has no 'input'", i);
	if (is_mf(s) && !(f->prefix = mf_prefix(f->input)))
		return err_set(what, "turn %d: there is no \"The ... is\" in its input", i);
	return 0;
}

/* ---- the context's text ---- */

/* Fills c->text: the template up to and with {context}. */
static int context_text(const struct scbench *s, const json_t *row, struct task_context *c, char what[ERR_LEN])
{
	static const char mark[] = "{context}";
	const char *template = s->requests ? s->prompts.request_context : s->prompts.first, *at = strstr(template, mark);
	const json_t *context = json_object_get(row, "context");
	struct strbuf text = {0}, b = {0};
	struct prompt_fields f = {0};
	if (!context)
		context = json_object_get(row, "input");
	int rc = context ? python_str(&text, context) : -1;
	if (rc || !at || !text.len)
		rc = err_set(what, "'context' is missing, empty or not a text or list");
	else
		rc = turn_fields(s, row, 0, &f, what);
	struct prompt_fields with = f;
	with.context = text.text;
	if (s->requests && f.prefix)
		with.prefix = f.input;
	rc = rc || prompt_fill(&b, template, (size_t)(at - template) + sizeof(mark) - 1, &with, what);
	c->text = strbuf_take(&b);
	strbuf_free(&text);
	free((char *)f.prefix);
	return rc ? -1 : 0;
}

/* ---- the questions ---- */

static const char *question_template(const struct task *t, int i)
{
	const struct scbench *s = t->state;
	const struct prompts *p = &s->prompts;
	if (s->requests)
		return p->request_question;
	if (i == 0)
		return strstr(p->first, "{context}") + strlen("{context}");
	return t->rq.raw_prompt ? p->next_raw : p->next_chat;
}

static int question_text(const struct task *t, const json_t *row, int i, struct task_question *q, char what[ERR_LEN])
{
	const struct scbench *s = t->state;
	const char *template = question_template(t, i);
	struct prompt_fields f, last = {0};
	struct strbuf b = {0};
	int rc = turn_fields(s, row, i, &f, what);
	if (!rc && i && !s->requests && !t->rq.raw_prompt) /* upstream's leak; only mf has a prefix */
		rc = turn_fields(s, row, scbench_turns(s, row) - 1, &last, what);
	struct prompt_fields with = f;
	if (last.prefix)
		with.prefix = last.prefix;
	rc = rc || prompt_fill(&b, template, strlen(template), &with, what);
	q->text = strbuf_take(&b);
	free((char *)f.prefix);
	free((char *)last.prefix);
	return rc ? -1 : 0;
}

static int gold_list(struct task_question *q, const json_t *answer)
{
	for (size_t i = 0; i < json_array_size(answer); i++) {
		struct strbuf b = {0};
		python_str(&b, json_array_get(answer, i));
		task_answer_add(q, b.text ? b.text : "");
		strbuf_free(&b);
	}
	return q->n_answers ? 0 : -1;
}

static int gold_options(struct task_question *q, const json_t *turn, const char *answer)
{
	const json_t *options = json_object_get(turn, "options");
	for (int i = 0; i < 4; i++) {
		const char *option = json_string_value(json_array_get(options, (size_t)i));
		if (!option || strcmp(option, answer))
			continue;
		task_answer_add(q, answer);
		task_answer_add(q, (char[]){(char)('A' + i), 0});
		return 0;
	}
	return -1;
}

/* Language, name asked, then name and text of every function of the repository. */
static int gold_repoqa(const struct scbench *s, const json_t *row, const json_t *turn, struct task_question *q)
{
	const char *lang = json_string_value(json_object_get(row, "lang")),
		   *repo = json_string_value(json_object_get(row, "repo"));
	const char *name = json_string_value(json_object_get(turn, "name"));
	if (!lang || !repo || !name)
		return -1;
	task_answer_add(q, lang);
	task_answer_add(q, name);
	for (int i = 0; i < s->needles.n; i++)
		if (!strcmp(s->needles.v[i].repo, repo)) {
			task_answer_add(q, s->needles.v[i].name);
			task_answer_add(q, s->needles.v[i].text);
		}
	return 0;
}

static int question_gold(const struct scbench *s, const json_t *row, const json_t *turn, const struct kind *k, const char *golden,
	struct task_question *q)
{
	const json_t *answer = json_object_get(turn, "answer");
	if (k->gold == GOLD_LIST && json_is_array(answer))
		return gold_list(q, answer);
	if (k->gold == GOLD_OPTIONS)
		return gold_options(q, turn, golden);
	if (k->gold == GOLD_REPOQA)
		return gold_repoqa(s, row, turn, q);
	task_answer_add(q, golden);
	return 0;
}

/* What upstream's program does to the scores of a turn; in multi-request mode kv turns of the mixed task get 0 whatever comes. */
static void question_metrics(const struct scbench *s, const struct kind *k, struct task_question *q)
{
	q->metric = k->metric;
	q->also = k->also;
	if (s->requests && s->task->parts[1].kind && !strcmp(k->name, "scbench_kv")) {
		q->metric = "kv_record";
		q->also = k->metric;
	}
}

static int question_add(const struct task *t, const json_t *row, int i, struct task_context *c, char what[ERR_LEN])
{
	const struct scbench *s = t->state;
	const json_t *turn = turn_at(row, i), *answer = json_object_get(turn, "answer");
	const struct part *part = scbench_part(s->task, turn);
	struct task_question *q = task_question_add(c);
	struct strbuf golden = {0};
	if (!part)
		return err_set(what, "turn %d: its 'task' is not one of %s", i, s->task->name);
	const struct kind *k = scbench_kind(part->kind);
	int rc = answer && !python_str(&golden, answer) && golden.len ? question_gold(s, row, turn, k, golden.text, q) : -1;
	if (rc)
		err_set(what, "turn %d: 'answer' is missing or not as %s has it", i, k->name);
	question_metrics(s, k, q);
	q->max_new_tokens = t->rq.max_new_tokens ? t->rq.max_new_tokens : part->new_tokens;
	if (i && !s->requests && !t->rq.raw_prompt && !s->task->parts[1].kind && k->forced_start) {
		free(q->answer_prefix);
		q->answer_prefix = text_copy(k->forced_start);
	}
	if (!s->requests)
		q->golden = text_format("%s%s", q->answer_prefix, golden.text ? golden.text : "");
	strbuf_free(&golden);
	return rc ? -1 : question_text(t, row, i, q, what);
}

int scbench_turns(const struct scbench *s, const json_t *row)
{
	int n = (int)json_array_size(json_object_get(row, "multi_turns"));
	return s->most_turns && n > s->most_turns ? s->most_turns : n;
}

int scbench_context(const struct task *t, const json_t *row, struct task_context *c, char what[ERR_LEN])
{
	const struct scbench *s = t->state;
	int n = scbench_turns(s, row);
	if (!n)
		return err_set(what, "'multi_turns' is missing or empty");
	c->chat = true;
	c->multi_turn = !s->requests;
	int rc = context_text(s, row, c, what);
	for (int i = 0; i < n && !rc; i++)
		rc = question_add(t, row, i, c, what);
	return rc;
}
