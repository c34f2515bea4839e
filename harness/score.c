/* score.c: `kvbench score`: scores without running a model: the stored answers of a database anew, or a file of predictions.
 *
 * A database: every "ok" answer is scored by the metrics its row names; only score, also_score and scorer_version change, in one
 * commit. Stdout: how many were scored and how many changed. */
#include "harness/database.h"
#include "harness/verbs.h"
#include "tasks/score.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a database ---- */

struct rescoring {
	struct store *store;
	char **cells; /* ids: rows are changed while none is read */
	int n_cells, cell;
	struct fresh { /* of the cell in hand */
		char *sample;
		double score, also;
	} * v;
	int n, scored, changed, refused;
	char why[ERR_LEN]; /* of the first refused */
};

static int take_cell(void *user, const struct cell_row *c)
{
	struct rescoring *r = user;
	r->cells = mem_grow(r->cells, (size_t)r->n_cells + 1, sizeof *r->cells);
	r->cells[r->n_cells++] = text_copy(c->cell_id);
	return 0;
}

/* Gold answers out of the row's JSON list; *n = -1: it is none. Caller frees both levels. */
static char **gold_list(const char *json, int *n)
{
	json_t *list = json_loads(json, 0, NULL), *v;
	char **gold = mem_new(json_array_size(list) + 1, sizeof *gold);
	size_t i;
	*n = json_is_array(list) ? (int)json_array_size(list) : -1;
	json_array_foreach(list, i, v) gold[i] = text_copy(json_is_string(v) ? json_string_value(v) : "");
	json_decref(list);
	return gold;
}

static double score_of(const char *metric, const char *answer, char *const *gold, int n, char why[ERR_LEN])
{
	const struct metric_def *m = metric_find(metric);
	if (!m)
		return err_set(why, "there is no metric \"%s\"", metric), NAN;
	if (metric_prepare(m, why))
		return NAN;
	double score = m->score(answer, gold, n);
	if (isnan(score))
		err_set(why, "metric %s does not apply", metric);
	return score;
}

static bool same(double a, double b)
{
	return a == b || (isnan(a) && isnan(b));
}

static int score_row(void *user, const struct score_row *row)
{
	struct rescoring *r = user;
	if (strcmp(row->status, "ok"))
		return 0;
	char why[ERR_LEN] = "";
	int n;
	char **gold = gold_list(row->gold, &n);
	double score = score_of(row->metric, row->answer, gold, n, why), also = NAN;
	bool refused = n < 0 || isnan(score);
	if (!refused && *row->also_metric)
		refused = isnan(also = score_of(row->also_metric, row->answer, gold, n, why));
	for (int i = 0; i < n; i++)
		free(gold[i]);
	free(gold);
	if (refused && !r->refused++)
		err_set(r->why, "sample %s: %.400s", row->sample_id, *why ? why : "its gold answers are no list");
	r->scored += !refused;
	if (refused || (same(score, row->score) && same(also, row->also_score) && row->scorer_version == SCORER_VERSION))
		return 0;
	r->changed += !same(score, row->score) || !same(also, row->also_score);
	r->v = mem_grow(r->v, (size_t)r->n + 1, sizeof *r->v);
	r->v[r->n++] = (struct fresh){text_copy(row->sample_id), score, also};
	return 0;
}

static int rescore_cell(struct rescoring *r, const char *cell, char err[ERR_LEN])
{
	int rc = store_samples(r->store, cell, score_row, r, err);
	for (int i = 0; i < r->n; i++) {
		rc = rc ? rc : store_put_score(r->store, cell, r->v[i].sample, r->v[i].score, r->v[i].also, SCORER_VERSION, err);
		free(r->v[i].sample);
	}
	r->n = 0;
	return rc;
}

static int rescore(struct rescoring *r, const char *path, char err[ERR_LEN])
{
	int rc = store_cells(r->store, take_cell, r, err);
	if (!rc && !r->n_cells)
		rc = err_set(err, "%s: holds no results yet", path);
	rc = rc ? rc : store_begin(r->store, err);
	for (int i = 0; i < r->n_cells; i++) {
		rc = rc ? rc : rescore_cell(r, r->cells[i], err);
		free(r->cells[i]);
	}
	free(r->cells);
	free(r->v);
	return rc ? rc : store_commit(r->store, err);
}

static int score_database(const char *path)
{
	char err[ERR_LEN] = "";
	struct rescoring r = {0};
	int code = file_exists(path) ? database_open(&r.store, path, err)
				     : (err_set(err, "%s: no such database", path), EXIT_CELLS_FAILED);
	if (!code && rescore(&r, path, err))
		code = EXIT_CELLS_FAILED;
	store_close(r.store);
	if (code)
		return fprintf(stderr, "kvbench score: %s\n", err), code;
	printf("%d answers scored by version %d, %d scores changed\n", r.scored, SCORER_VERSION, r.changed);
	if (r.refused)
		fprintf(stderr, "kvbench score: %d answers keep their old score: %s\n", r.refused, r.why);
	return r.refused ? EXIT_CELLS_FAILED : EXIT_DONE;
}

/* ---- a file of predictions ---- */

/* Rounded as Python's round does, a half to the even digit; NAN = null. */
static json_t *rounded(double x, int decimals)
{
	char text[64];
	snprintf(text, sizeof text, "%.*f", decimals, x);
	return isnan(x) ? json_null() : json_real(strtod(text, NULL));
}

static void print_json(const struct score_result *r)
{
	json_t *parts = json_object();
	for (int i = 0; i < r->n_parts; i++)
		json_object_set_new(parts, r->parts[i].name,
			json_pack("{s:o, s:i}", "score", rounded(r->parts[i].score, r->decimals), "n", r->parts[i].n));
	json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o, s:i, s:i, s:i, s:i, s:i, s:o}", "task", r->task, "format", r->format,
		"metric", r->metric, "score", rounded(r->score, r->decimals), "score_unrounded", json_real(r->score), "n", r->n,
		"empty", r->empty, "skipped", r->skipped, "deep_pairs", r->deep_pairs, "scorer_version", SCORER_VERSION, "parts",
		parts);
	json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
	printf("\n");
	json_decref(all);
}

static void print_text(const struct score_result *r)
{
	printf("%s %.*f (%s, %d rows of %s's format", r->task, r->decimals, r->score, r->metric, r->n, r->format);
	printf(r->empty ? ", %d of them empty)\n" : ")\n", r->empty);
	for (int i = 0; i < r->n_parts; i++) {
		char score[32] = "-";
		if (r->parts[i].n)
			snprintf(score, sizeof score, "%.*f", r->decimals, r->parts[i].score);
		printf("  %-12s %s (%d)\n", r->parts[i].name, score, r->parts[i].n);
	}
	if (r->skipped)
		printf("  %d rows have no prediction and are left out\n", r->skipped);
	if (r->deep_pairs)
		printf("  %d texts are too long for upstream's recursion, which gives them 0; they are scored here\n",
			r->deep_pairs);
}

static int score_file(const struct options *o, bool json)
{
	struct score_result r;
	char err[ERR_LEN];
	if (score_predictions(
		    option_text(o, "predictions", NULL), option_text(o, "task", NULL), option_text(o, "metric", NULL), &r, err))
		return fprintf(stderr, "kvbench score: %s\n", err), EXIT_CELLS_FAILED;
	(json ? print_json : print_text)(&r);
	return EXIT_DONE;
}

static int run_score(const struct options *o)
{
	const char *format = option_text(o, "format", "text");
	bool file = option_has(o, "predictions");
	if (file == (o->n_args == 1))
		die(EXIT_USAGE, "score: either a database or --predictions FILE --task T");
	if (file != option_has(o, "task") || (!file && (option_has(o, "metric") || option_has(o, "format"))))
		die(EXIT_USAGE, "score: --predictions and --task go together; --metric and --format are theirs");
	if (strcmp(format, "text") && strcmp(format, "json"))
		die(EXIT_USAGE, "score: --format is text or json, not \"%s\"", format);
	return file ? score_file(o, !strcmp(format, "json")) : score_database(o->args[0]);
}

static const struct option_def score_options[] = {
	{"predictions", "FILE", "instead of a database: LongBench's, RULER's or InfiniteBench's .jsonl, kvpress's .csv"},
	{"task", "T", "whose predictions: longbench-qasper, qasper_e, longbench-v2, niah_single_1, longbook_qa_eng, ..."},
	{"metric", "M", "in place of the task's own (see `kvbench list metrics`)"},
	{"format", "F", "text (default) or json"},
};
const struct verb verb_score = {
	.name = "score",
	.args = "[DB]",
	.title = "score a database's answers anew, or a file of predictions, without running a model",
	.help = "Of a database only the scores and the scorer's version change. A file's score is on upstream's scale, rounded "
		"as\n"
		"upstream prints it (json: score; score_unrounded beside it).",
	.options = score_options,
	.n_options = sizeof score_options / sizeof *score_options,
	.max_args = 1,
	.run = run_score,
};
