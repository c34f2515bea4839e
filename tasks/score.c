/* score.c: see score.h. A file is read row by row as JSON objects (a CSV's fields are its texts), a format's row function says
 * what was answered and what is right, the metric scores it. */
#include "tasks/score.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/longbench/longbench.h"
#include "tasks/metrics/metrics.h"

/* What a format's row function makes of a row. */
struct score_row {
	char *answer;
	char **gold;
	int n_gold;
	double judged; /* the score, where the file brings it; NAN = by the metric */
	struct {
		const char *name; /* static; NULL = no more */
		double credit;    /* on top of the score, in this part only */
	} parts[3];
};
enum row_kind { ROW_BAD = -1, ROW_SCORED, ROW_OTHER_TASK, ROW_SKIPPED };

struct score_format {
	const char *name, *extension;
	const char *fields; /* what a row must have, in words */
	int decimals;
	/* The task's metric by upstream's or our name of the task; NULL = not a task of this format. */
	const char *(*metric)(const char *task);
	enum row_kind (*row)(const json_t *row, const char *task, const char *metric, struct score_row *out);
	bool mean_first;                /* 100 * (sum / n), not 100 * sum / n: where a half is rounded, the last bit decides */
	const char *parts[SCORE_PARTS]; /* shown even when empty; NULL = no more */
};

/* ---- texts of a row ---- */

/* A copy. NULL = no text. */
static char *text_of(const json_t *v)
{
	return json_is_string(v) ? text_without_nul(json_string_value(v), json_string_length(v)) : NULL;
}

static void gold_add(struct score_row *r, char *text)
{
	r->gold = mem_grow(r->gold, (size_t)r->n_gold + 1, sizeof(*r->gold));
	r->gold[r->n_gold++] = text;
}

static enum row_kind gold_add_all(struct score_row *r, const json_t *list)
{
	size_t i;
	const json_t *v;
	if (!json_array_size(list))
		return ROW_BAD;
	json_array_foreach(list, i, v)
	{
		char *text = text_of(v);
		if (!text)
			return ROW_BAD;
		gold_add(r, text);
	}
	return ROW_SCORED;
}

static void row_free(struct score_row *r)
{
	while (r->n_gold)
		free(r->gold[--r->n_gold]);
	free(r->gold);
	free(r->answer);
}

/* ---- the formats' rows ---- */

static const char *longbench_metric(const char *task)
{
	bool e;
	const struct longbench_info *info = longbench_find(task, &e);
	return info && !e ? info->metric : NULL;
}

static const char *longbench_e_metric(const char *task)
{
	bool e;
	const struct longbench_info *info = longbench_find(task, &e);
	return info && e ? info->metric : NULL;
}

/* {"pred", "answers", "all_classes", "length"} */
static enum row_kind longbench_row(const json_t *row, const char *task, const char *metric, struct score_row *out)
{
	(void)task;
	const json_t *answers = json_object_get(row, "answers"), *classes = json_object_get(row, "all_classes");
	bool classify = !strcmp(metric, "classification");
	out->answer = text_of(json_object_get(row, "pred"));
	if (!out->answer || gold_add_all(out, answers) || (classify && json_array_size(answers) != 1))
		return ROW_BAD;
	return classify ? gold_add_all(out, classes) : ROW_SCORED;
}

static enum row_kind longbench_e_row(const json_t *row, const char *task, const char *metric, struct score_row *out)
{
	const json_t *length = json_object_get(row, "length");
	if (!json_is_integer(length))
		return ROW_BAD;
	out->parts[0].name = longbench_bins[longbench_bin(json_integer_value(length))];
	return longbench_row(row, task, metric, out);
}

static const char *v2_metric(const char *task)
{
	return !strcmp(task, "longbench-v2") ? "longbench_v2" : NULL;
}

/* The name from the list which v is in lower case; NULL = none. */
static const char *part_named(const json_t *v, const char *const names[], int n)
{
	const char *s = json_string_value(v);
	for (int i = 0; s && i < n; i++)
		if (!strcasecmp(s, names[i]))
			return names[i];
	return NULL;
}

/* {"pred": "A", "judge": true, "difficulty", "length"} as judged upstream, or {"response", "answer", ..}. */
static enum row_kind v2_row(const json_t *row, const char *task, const char *metric, struct score_row *out)
{
	(void)task, (void)metric;
	static const char *const difficulties[] = {"Easy", "Hard"}, *const lengths[] = {"Short", "Medium", "Long"};
	const json_t *judge = json_object_get(row, "judge"), *pred = json_object_get(row, "pred");
	out->parts[0].name = part_named(json_object_get(row, "difficulty"), difficulties, 2);
	out->parts[1].name = part_named(json_object_get(row, "length"), lengths, 3);
	if (json_object_get(row, "error") && !judge)
		return ROW_SKIPPED;
	if (!out->parts[0].name || !out->parts[1].name)
		return ROW_BAD;
	out->parts[2].name = "Compensated"; /* upstream's variant: a quarter for no letter */
	out->parts[2].credit = pred && json_is_null(pred) ? .25 : 0;
	out->answer = json_is_boolean(judge) ? text_copy(json_is_string(pred) ? json_string_value(pred) : "")
					     : text_of(json_object_get(row, "response"));
	if (json_is_boolean(judge))
		out->judged = json_is_true(judge);
	else if (json_is_string(json_object_get(row, "answer")))
		gold_add(out, text_of(json_object_get(row, "answer")));
	return out->answer && (out->n_gold || !isnan(out->judged)) ? ROW_SCORED : ROW_BAD;
}

static const char *ruler_name(const char *task)
{
	return strncmp(task, "ruler-", 6) ? task : task + 6;
}

static const char *ruler_metric(const char *task)
{
	static const char *const tasks[] = {"niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1",
		"niah_multikey_2", "niah_multikey_3", "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2"};
	for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++)
		if (!strcmp(ruler_name(task), tasks[i]))
			return strncmp(tasks[i], "qa_", 3) ? "string_match_all" : "string_match_part";
	return NULL;
}

/* {"outputs", "pred"} */
static enum row_kind ruler_row(const json_t *row, const char *task, const char *metric, struct score_row *out)
{
	(void)task, (void)metric;
	out->answer = text_of(json_object_get(row, "pred"));
	return out->answer ? gold_add_all(out, json_object_get(row, "outputs")) : ROW_BAD;
}

/* numpy's print of an array of strings: ['a' "it's"\n 'b'], with \' and the like inside. */
static void gold_add_numpy(struct score_row *r, const char *s)
{
	while (*s) {
		char quote = *s++;
		if (quote != '\'' && quote != '"')
			continue;
		struct strbuf b = {0};
		for (; *s && *s != quote; s++) {
			s += *s == '\\' && s[1];
			strbuf_add(&b, s, 1);
		}
		s += *s == quote;
		gold_add(r, strbuf_take(&b));
	}
}

/* Columns task, answer, predicted_answer. */
static enum row_kind kvpress_row(const json_t *row, const char *task, const char *metric, struct score_row *out)
{
	(void)metric;
	const char *of = json_string_value(json_object_get(row, "task")),
		   *answer = json_string_value(json_object_get(row, "answer"));
	if (!of || !answer)
		return ROW_BAD;
	if (strcmp(of, ruler_name(task)))
		return ROW_OTHER_TASK;
	gold_add_numpy(out, answer);
	out->answer = text_of(json_object_get(row, "predicted_answer"));
	return out->answer && out->n_gold ? ROW_SCORED : ROW_BAD;
}

static const char *infinitebench_metric(const char *task)
{
	static const struct {
		const char *task, *metric;
	} tasks[] = {{"kv_retrieval", "substring"}, {"math_find", "first_number"}, {"longbook_qa_eng", "qa_f1"},
		{"longbook_qa_chn", "qa_chn"}};
	const char *name = strncmp(task, "infinitebench-", 14) ? task : task + 14;
	for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++)
		if (!strcmp(name, tasks[i].task))
			return tasks[i].metric;
	return NULL;
}

/* {"prediction", "ground_truth"}: a text, a list of texts or a number. */
static enum row_kind infinitebench_row(const json_t *row, const char *task, const char *metric, struct score_row *out)
{
	(void)task, (void)metric;
	const json_t *gold = json_object_get(row, "ground_truth");
	out->answer = text_of(json_object_get(row, "prediction"));
	if (!out->answer)
		return ROW_BAD;
	if (json_is_array(gold))
		return gold_add_all(out, gold);
	if (!json_is_string(gold) && !json_is_number(gold))
		return ROW_BAD;
	gold_add(out, json_is_string(gold) ? text_of(gold) : json_dumps(gold, JSON_ENCODE_ANY));
	return ROW_SCORED;
}

static const struct score_format formats[] = {
	{"longbench", ".jsonl", "pred, answers (a list of texts), for classes all_classes", 2, longbench_metric, longbench_row},
	{"longbench-e", ".jsonl", "pred, answers (a list of texts), length (a whole number), for classes all_classes", 2,
		longbench_e_metric, longbench_e_row, true, {"0-4k", "4-8k", "8k+"}},
	{"longbench-v2", ".jsonl", "pred and judge, or response and answer; difficulty, length", 1, v2_metric, v2_row, false,
		{"Easy", "Hard", "Short", "Medium", "Long", "Compensated"}},
	{"ruler", ".jsonl", "pred, outputs (a list of texts)", 2, ruler_metric, ruler_row, true},
	{"kvpress", ".csv", "columns task, answer, predicted_answer", 2, ruler_metric, kvpress_row, true},
	{"infinitebench", ".jsonl", "prediction, ground_truth", 2, infinitebench_metric, infinitebench_row},
};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

/* ---- adding up ---- */

struct tally {
	const struct score_format *format;
	const struct metric_def *metric;
	struct score_result *out;
};

static void part_put(struct score_result *out, const char *name, double score)
{
	int i = 0;
	while (strcmp(out->parts[i].name, name))
		i++;
	out->parts[i].score += score;
	out->parts[i].n++;
}

static int deep_pairs(const struct metric_def *m, const struct score_row *r)
{
	if (m->score == rouge_zh)
		return rouge_zh_deep_pairs(r->answer, r->gold, r->n_gold);
	return m->score == rouge_l || m->score == rouge_l_line ? rouge_deep_pairs(r->answer, r->gold, r->n_gold) : 0;
}

static int row_put(struct tally *t, const struct score_row *r, char err[ERR_LEN])
{
	double s = isnan(r->judged) ? t->metric->score(r->answer, r->gold, r->n_gold) : r->judged;
	const char *visible = r->answer;
	if (isnan(s))
		return err_set(err, "metric %s does not apply", t->metric->name);
	t->out->score += s;
	t->out->n++;
	t->out->empty += !text_strip(&visible);
	t->out->deep_pairs += deep_pairs(t->metric, r);
	for (int i = 0; i < 3 && r->parts[i].name; i++)
		part_put(t->out, r->parts[i].name, s + r->parts[i].credit);
	return 0;
}

static int row_score(struct tally *t, const json_t *row, char err[ERR_LEN])
{
	struct score_row r = {.judged = NAN};
	enum row_kind kind = t->format->row(row, t->out->task, t->metric->name, &r);
	int failed = kind == ROW_BAD ? err_set(err, "not a row of %s's format (%s)", t->format->name, t->format->fields) : 0;
	t->out->skipped += kind == ROW_SKIPPED;
	if (kind == ROW_SCORED)
		failed = row_put(t, &r, err);
	row_free(&r);
	return failed;
}

static double percent(const struct score_format *f, double sum, int n)
{
	return !n ? NAN : f->mean_first ? 100 * (sum / n) : 100 * sum / n;
}

static void means(const struct score_format *f, struct score_result *out)
{
	out->score = percent(f, out->score, out->n);
	for (int i = 0; i < out->n_parts; i++)
		out->parts[i].score = percent(f, out->parts[i].score, out->parts[i].n);
}

/* ---- reading ---- */

static int read_lines(FILE *f, struct tally *t, int *number, char err[ERR_LEN])
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int failed = 0;
	for (*number = 1; !failed && (n = getline(&line, &cap, f)) > 0; ++*number) {
		json_error_t why;
		if (strspn(line, " \t\r\n") == (size_t)n)
			continue;
		json_t *row = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &why);
		failed = row ? row_score(t, row, err) : err_set(err, "%s", why.text);
		json_decref(row);
	}
	free(line);
	--*number;
	return failed;
}

/* One field of a CSV file; *end: what ended it: ',', '\n' or EOF. */
static char *csv_field(FILE *f, int *end)
{
	struct strbuf b = {0};
	int c = getc(f), quoted = c == '"';
	if (quoted)
		c = getc(f);
	for (;; c = getc(f)) {
		if (quoted && c == '"') {
			c = getc(f);
			quoted = c == '"';
		}
		if (c == EOF || (!quoted && (c == ',' || c == '\n')))
			break;
		if (quoted || c != '\r')
			strbuf_add(&b, &(char){(char)c}, 1);
	}
	*end = c;
	return strbuf_take(&b);
}

/* One record: a list of texts. NULL = the end: an empty last line. */
static json_t *csv_record(FILE *f)
{
	json_t *fields = json_array();
	int end = ',';
	while (end == ',') {
		char *text = csv_field(f, &end);
		json_array_append_new(fields, json_stringn_nocheck(text, strlen(text)));
		free(text);
	}
	if (end != EOF || json_array_size(fields) > 1 || json_string_length(json_array_get(fields, 0)))
		return fields;
	json_decref(fields);
	return NULL;
}

static int read_csv(FILE *f, struct tally *t, int *number, char err[ERR_LEN])
{
	json_t *names = csv_record(f), *fields;
	int failed = 0;
	for (*number = 1; !failed && (fields = csv_record(f)); ++*number) {
		json_t *row = json_object(), *name;
		size_t i;
		json_array_foreach(names, i, name) json_object_set(row, json_string_value(name), json_array_get(fields, i));
		failed = json_array_size(fields) == json_array_size(names)
				 ? row_score(t, row, err)
				 : err_set(err, "a record of %zu fields", json_array_size(fields));
		json_decref(row);
		json_decref(fields);
	}
	json_decref(names);
	--*number;
	return failed;
}

static const struct score_format *format_find(const char *path, const char *task)
{
	const char *dot = strrchr(path, '.');
	for (int i = 0; i < FORMATS; i++)
		if (formats[i].metric(task) && dot && !strcmp(dot, formats[i].extension))
			return &formats[i];
	return NULL;
}

static bool has_format(const char *task)
{
	for (int i = 0; i < FORMATS; i++)
		if (formats[i].metric(task))
			return true;
	return false;
}

static int tally_begin(struct tally *t, const char *path, const char *task, const char *metric, char err[ERR_LEN])
{
	struct score_result *out = t->out;
	t->format = format_find(path, task);
	if (!t->format && !has_format(task))
		return err_set(err,
			"no format of predictions is known for task '%s', only for LongBench's, RULER's and InfiniteBench's "
			"tasks",
			task);
	if (!t->format)
		return err_set(err, "%s: predictions for task '%s' end in .jsonl (RULER's by kvpress: .csv)", path, task);
	t->metric = metric_find(metric ? metric : t->format->metric(task));
	if (!t->metric)
		return err_set(err, "unknown metric '%s' (`kvbench list metrics`)", metric);
	snprintf(out->task, sizeof(out->task), "%s", task);
	out->format = t->format->name;
	out->metric = t->metric->name;
	out->decimals = t->format->decimals;
	for (const char *const *name = t->format->parts; *name; name++)
		out->parts[out->n_parts++].name = *name;
	return metric_prepare(t->metric, err);
}

int score_predictions(const char *path, const char *task, const char *metric, struct score_result *out, char err[ERR_LEN])
{
	memset(out, 0, sizeof(*out));
	struct tally t = {.out = out};
	if (tally_begin(&t, path, task, metric, err))
		return -1;
	FILE *f = fopen(path, "rb");
	if (!f)
		return err_set(err, "%s: cannot open: %s", path, strerror(errno));
	char why[ERR_LEN];
	int row = 0, failed = strcmp(t.format->extension, ".csv") ? read_lines(f, &t, &row, why) : read_csv(f, &t, &row, why);
	if (failed)
		err_set(err, "%s: row %d: %.300s", path, row, why);
	else if (ferror(f) || !(out->n + out->skipped))
		failed = err_set(err, "%s: %s", path, ferror(f) ? strerror(errno) : "no row of the task");
	fclose(f);
	means(t.format, out);
	return failed;
}
