/* convert.c: turns the shared copies of public data into rows of the jsonl task; for tests and by hand.
 *
 *   convert longbench-mini FILE > out.jsonl    MiniLongBench_TASK.json, English QA: {"0": {origin_prompt, gold, ..}, ..}
 *   convert longbench-text FILE > out.jsonl    any MiniLongBench_TASK.json: the prompt as a text with a blank question, to train on
 *   convert ruler FILE > out.jsonl             NIAH rows of RULER: {input, outputs, ..}
 *
 * The prompt is split where the question begins, so that the context can be pruned without it. Nothing is rewritten: context +
 * question (+ " " + answer_prefix, RULER) is the prompt again. With CONVERT_NO_MAIN only the functions are compiled. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/base.h"

/* The last occurrence, NULL when there is none. */
static char *find_last(char *s, const char *what)
{
	char *found = NULL;
	for (char *p = s; (p = strstr(p, what)); p++)
		found = p;
	return found;
}

static void row_write(FILE *out, json_t *row)
{
	json_dumpf(row, out, JSON_COMPACT);
	fputc('\n', out);
	json_decref(row);
}

/* ---- LongBench ---- */

static const struct {
	const char *task;
	int max_new_tokens; /* LongBench config/dataset2maxlen.json */
} longbench_qa[] = {
	{"narrativeqa", 128},
	{"qasper", 128},
	{"multifieldqa_en", 64},
	{"hotpotqa", 32},
	{"2wikimqa", 32},
	{"musique", 32},
};

/* Row of the table by the file's name; -1 = not one of the English QA tasks. */
static int longbench_task(const char *path)
{
	for (size_t i = 0; i < sizeof(longbench_qa) / sizeof(longbench_qa[0]); i++)
		if (strstr(path, longbench_qa[i].task))
			return (int)i;
	return -1;
}

/* The question's side: the last "Question:", with the paragraph before it when that is the instruction to answer. */
static char *longbench_question(char *prompt)
{
	char *question = find_last(prompt, "\n\nQuestion:");
	if (!question)
		return NULL;
	*question = '\0';
	char *instruction = find_last(prompt, "\n\n");
	*question = '\n';
	bool belongs = instruction &&
		       (!strncmp(instruction + 2, "Answer the question", 19) || !strncmp(instruction + 2, "Now, answer", 11));
	return belongs ? instruction : question;
}

/* Writes one row for each of the file's; returns their number, or -1. */
static int convert_longbench_mini(const char *path, FILE *out, char err[ERR_LEN])
{
	json_error_t why;
	json_t *file = json_load_file(path, 0, &why), *in;
	const char *key;
	int rows = 0, task = longbench_task(path);
	if (!file || task < 0) {
		json_decref(file);
		return err_set(err, "%s: %s", path, task >= 0 ? why.text : "not one of the English QA tasks");
	}
	json_object_foreach(file, key, in)
	{
		char *prompt = text_copy(json_string_value(json_object_get(in, "origin_prompt")));
		char *question = prompt ? longbench_question(prompt) : NULL;
		char *id = text_format("%s-%s", longbench_qa[task].task, key); /* files may be joined: ids must differ */
		if (question)
			row_write(out, json_pack("{s:s, s:s%, s:s, s:O, s:s, s:i}", "id", id, "context", prompt,
					       (size_t)(question - prompt), "question", question, "answers",
					       json_object_get(in, "gold"), "metric", "qa_f1", "max_new_tokens", longbench_qa[task].max_new_tokens));
		free(id);
		free(prompt);
		if (!question) {
			rows = err_set(err, "%s: row %s has no question", path, key);
			break;
		}
		rows++;
	}
	json_decref(file);
	return rows;
}

/* Writes one row for each of the file's: its prompt, nothing asked; returns their number, or -1. */
static int convert_longbench_text(const char *path, FILE *out, char err[ERR_LEN])
{
	json_error_t why;
	json_t *file = json_load_file(path, 0, &why), *in;
	const char *key, *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	int rows = 0;
	if (!file)
		return err_set(err, "%s: %s", path, why.text);
	json_object_foreach(file, key, in)
	{
		const char *prompt = json_string_value(json_object_get(in, "origin_prompt"));
		if (!prompt) {
			rows = err_set(err, "%s: row %s has no prompt", path, key);
			break;
		}
		char *id = text_format("%.*s-%s", (int)strcspn(name, "."), name, key);
		row_write(out, json_pack("{s:s, s:s, s:s, s:[s], s:s}", "id", id, "context", prompt, "question", " ", "answers", "-",
				       "metric", "qa_f1"));
		free(id);
		rows++;
	}
	json_decref(file);
	return rows;
}

/* ---- RULER ---- */

/* Splits input in place into context | question | answer prefix. */
static int ruler_split(char *input, char **question, char **prefix)
{
	char *one = find_last(input, "\nWhat is the special magic"), *all = find_last(input, "\nWhat are all the special magic");
	*question = one > all ? one : all;
	*prefix = *question ? strstr(*question, " The special magic") : NULL;
	if (!*prefix)
		return -1;
	*(*prefix)++ = '\0';
	return 0;
}

static int convert_ruler(const char *path, FILE *out, char err[ERR_LEN])
{
	FILE *f = fopen(path, "rb");
	char *line = NULL;
	size_t cap = 0;
	int rows = 0;
	if (!f)
		return err_set(err, "%s: %s", path, strerror(errno));
	while (rows >= 0 && getline(&line, &cap, f) > 0) {
		char *question = NULL, *prefix = NULL;
		json_t *in = json_loads(line, 0, NULL);
		char *input = text_copy(json_string_value(json_object_get(in, "input")));
		if (input && !ruler_split(input, &question, &prefix)) {
			row_write(out,
				json_pack("{s:s%, s:s, s:s, s:O, s:s, s:i}", "context", input, (size_t)(question - input),
					"question", question, "answer_prefix", prefix, "answers", json_object_get(in, "outputs"),
					"metric", "string_match_all", "max_new_tokens", 128));
			rows++;
		} else
			rows = err_set(err, "%s: row %d is not a NIAH row of RULER", path, rows + 1);
		free(input);
		json_decref(in);
	}
	free(line);
	fclose(f);
	return rows;
}

#ifndef CONVERT_NO_MAIN
int main(int argc, char **argv)
{
	char err[ERR_LEN];
	int rows = -1;
	if (argc != 3)
		return fprintf(stderr, "usage: convert longbench-mini|longbench-text|ruler FILE > out.jsonl\n"), 2;
	if (!strcmp(argv[1], "longbench-mini"))
		rows = convert_longbench_mini(argv[2], stdout, err);
	else if (!strcmp(argv[1], "longbench-text"))
		rows = convert_longbench_text(argv[2], stdout, err);
	else if (!strcmp(argv[1], "ruler"))
		rows = convert_ruler(argv[2], stdout, err);
	else
		err_set(err, "unknown kind '%s' (longbench-mini, longbench-text, ruler)", argv[1]);
	if (rows < 0)
		fprintf(stderr, "convert: %s\n", err);
	return rows < 0;
}
#endif
