/* side.c: one side of a comparison in memory: every cell with its samples and its timed rounds. See compare.h. */
#include "results/compare.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *keep(struct side *s, const char *text)
{
	if (!text)
		return NULL;
	if (s->n_strings == s->cap_strings) {
		s->cap_strings = s->cap_strings ? s->cap_strings * 2 : 256;
		s->strings = mem_grow(s->strings, s->cap_strings, sizeof *s->strings);
	}
	return s->strings[s->n_strings++] = text_copy(text);
}

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* ---- runs, and which one ---- */

static int add_run(void *user, const struct run_row *r)
{
	struct side *s = user;
	s->runs = mem_grow(s->runs, (size_t)s->n_runs + 1, sizeof *s->runs);
	struct run_row *row = &s->runs[s->n_runs++].row;
	*row = *r;
	const char **texts[] = {&row->run_id, &row->version, &row->commit, &row->argv, &row->plan, &row->machine};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		*texts[i] = keep(s, *texts[i]);
	return 0;
}

/* The one run whose id begins with `prefix`: it alone stays. */
static int choose_run(struct side *s, const char *prefix, char err[ERR_LEN])
{
	int found = -1;
	for (int i = 0; i < s->n_runs; i++) {
		if (strncmp(s->runs[i].row.run_id, prefix, strlen(prefix)) != 0)
			continue;
		if (found >= 0)
			return err_set(err, "%s: more than one run's id begins with %s", s->path, prefix);
		found = i;
	}
	if (found < 0)
		return err_set(err, "%s: no run's id begins with \"%s\" (of %d runs)", s->path, prefix, s->n_runs);
	s->runs[0] = s->runs[found];
	s->n_runs = 1;
	snprintf(s->run_id, sizeof s->run_id, "%s", s->runs[0].row.run_id);
	return 0;
}

const struct side_run *side_newest_run(const struct side *s)
{
	return s->n_runs > 0 ? &s->runs[s->n_runs - 1] : NULL;
}

/* ---- cells ---- */

static int add_cell(void *user, const struct cell_row *r)
{
	struct side *s = user;
	s->cells = mem_grow(s->cells, (size_t)s->n_cells + 1, sizeof *s->cells);
	struct side_cell *c = &s->cells[s->n_cells++];
	*c = (struct side_cell){.row = *r};
	const char **texts[] = {&c->row.cell_id, &c->row.target, &c->row.proxy, &c->row.method, &c->row.method_params,
		&c->row.method_origin, &c->row.task, &c->row.task_params, &c->row.task_variant, &c->row.data_state,
		&c->row.metric, &c->row.also_metric, &c->row.protocol, &c->row.mode, &c->row.topology, &c->row.precision,
		&c->row.dtype, &c->row.target_sha256, &c->row.proxy_sha256, &c->row.data_sha256, &c->row.template_sha256};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		*texts[i] = keep(s, *texts[i]);
	return 0;
}

struct loading {
	struct side *s;
	struct side_cell *c;
};

static int add_sample(void *user, const struct score_row *r)
{
	struct loading *l = user;
	struct side *s = l->s;
	struct side_cell *c = l->c;
	if (*s->run_id && strcmp(s->run_id, r->run_id) != 0)
		return 0;
	c->samples = mem_grow(c->samples, (size_t)c->n_samples + 1, sizeof *c->samples);
	c->samples[c->n_samples++] = (struct side_sample){.id = keep(s, r->sample_id),
		.context = keep(s, r->context_id),
		.status = keep(s, r->status),
		.message = keep(s, r->message),
		.question = keep(s, r->question),
		.gold = keep(s, r->gold),
		.answer = keep(s, r->answer),
		.answer_ids = keep(s, r->answer_ids),
		.prompt_sha256 = keep(s, r->prompt_sha256),
		.score = r->score,
		.scorer_version = r->scorer_version,
		.ok = strcmp(r->status, "ok") == 0};
	return 0;
}

static int add_timing(void *user, const struct timing_row *t)
{
	struct loading *l = user;
	struct side_cell *c = l->c;
	if (t->warmup || strcmp(t->phase, "ttft") != 0)
		return 0;
	if (!c->timed_by)
		c->timed_by = keep(l->s, t->run_id);
	c->ttft = mem_grow(c->ttft, (size_t)c->n_ttft + 1, sizeof *c->ttft);
	c->ttft[c->n_ttft++] = (double)t->duration_ns;
	return 0;
}

static int add_fact(void *user, const char *name, int64_t value)
{
	struct loading *l = user;
	if (strcmp(name, "waited_ppm") == 0)
		l->c->waited = (double)value / 1e6;
	return 0;
}

static int load_cell(struct side *s, struct side_cell *c, struct store *store, char err[ERR_LEN])
{
	struct loading l = {s, c};
	int rc = store_samples(store, c->row.cell_id, add_sample, &l, err);
	if (rc == 0)
		rc = store_timings_of(store, c->row.cell_id, *s->run_id ? s->run_id : NULL, add_timing, &l, err);
	c->waited = NAN;
	if (rc == 0)
		rc = store_facts_of(store, c->row.cell_id, *s->run_id ? s->run_id : NULL, add_fact, &l, err);
	c->outliers = stats_outliers(c->ttft, c->n_ttft);
	return rc;
}

/* The full cache of the same setting, timed in the same process. */
static const struct side_cell *full_of(const struct side *s, const struct side_cell *c)
{
	for (int i = 0; i < s->n_cells && c->n_ttft > 0; i++) {
		const struct cell_row *f = &s->cells[i].row, *r = &c->row;
		if (!strcmp(f->method, "full") && same(s->cells[i].timed_by, c->timed_by) && same(f->target, r->target) &&
			same(f->target_sha256, r->target_sha256) && same(f->dtype, r->dtype) &&
			same(f->precision, r->precision) && same(f->topology, r->topology) && same(f->task, r->task) &&
			same(f->task_params, r->task_params) && same(f->task_variant, r->task_variant) &&
			same(f->protocol, r->protocol) && same(f->mode, r->mode) && same(f->proxy, r->proxy) &&
			f->context_tokens == r->context_tokens && f->seed == r->seed &&
			f->measure_version == r->measure_version && s->cells[i].n_ttft == c->n_ttft)
			return &s->cells[i];
	}
	return NULL;
}

/* ---- labels ---- */

static char *value_text(const json_t *v)
{
	char *text = !v                  ? text_copy("")
		     : json_is_string(v) ? text_copy(json_string_value(v))
					 : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
	return text ? text : text_copy("?");
}

void params_differences(
	const char *a, const char *b, void (*each)(void *, const char *key, const char *a, const char *b), void *user)
{
	json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL), *keys = json_object(), *ignored;
	const char *key;
	json_object_update(keys, x);
	json_object_update(keys, y);
	json_object_foreach(keys, key, ignored)
	{
		const json_t *mine = json_object_get(x, key), *theirs = json_object_get(y, key);
		if (json_equal(mine, theirs))
			continue;
		char *p = value_text(mine), *q = value_text(theirs);
		each(user, key, p, q);
		free(p);
		free(q);
	}
	json_decref(keys);
	json_decref(x);
	json_decref(y);
}

static void collect_param(void *user, const char *key, const char *a, const char *b)
{
	(void)b;
	json_object_set_new(user, key, json_string(a));
}

static const char *name_params(struct side *s, const struct side_cell *c)
{
	json_t *found = json_object(), *value;
	struct strbuf b = {0};
	const char *key;
	for (int i = 0; i < s->n_cells; i++) {
		const struct cell_row *other = &s->cells[i].row;
		if (same(other->method, c->row.method) && !same(other->method_params, c->row.method_params))
			params_differences(c->row.method_params, other->method_params, collect_param, found);
	}
	json_object_foreach(found, key, value) strbuf_printf(&b, "%s%s=%.100s", b.len ? " " : "", key, json_string_value(value));
	const char *name = keep(s, b.text ? b.text : "");
	strbuf_free(&b);
	json_decref(found);
	return name;
}

/* Cells of one method and its parameters have one name. */
static void name_all_params(struct side *s)
{
	for (int i = 0; i < s->n_cells; i++) {
		struct side_cell *c = &s->cells[i];
		for (int k = 0; k < i && !c->params; k++) {
			if (same(s->cells[k].row.method, c->row.method) &&
				same(s->cells[k].row.method_params, c->row.method_params))
				c->params = s->cells[k].params;
		}
		if (!c->params)
			c->params = name_params(s, c);
	}
}

static void label_add(struct strbuf *b, const char *name, const char *text)
{
	strbuf_printf(b, ", %s %.100s", name, text);
}

/* The named parts always, the others where cells differ in them. */
static void label_cells(struct side *s)
{
	bool target = false, proxy = false, precision = false, texts = false, seed = false;
	for (int i = 1; i < s->n_cells; i++) {
		const struct cell_row *a = &s->cells[0].row, *b = &s->cells[i].row;
		target = target || !same(a->target, b->target);
		proxy = proxy || !same(a->proxy, b->proxy);
		precision = precision || !same(a->precision, b->precision);
		texts = texts || !same(a->task_variant, b->task_variant);
		seed = seed || a->seed != b->seed;
	}
	for (int i = 0; i < s->n_cells; i++) {
		const struct cell_row *r = &s->cells[i].row;
		struct strbuf b = {0};
		char number[32];
		strbuf_puts(&b, r->task);
		if (r->context_tokens > 0)
			strbuf_printf(&b, " %lld", (long long)r->context_tokens);
		strbuf_printf(&b, "%s%s %s %s%s%s", strcmp(r->mode, "single") ? " " : "",
			strcmp(r->mode, "single") ? r->mode : "", r->protocol, r->method, *s->cells[i].params ? " " : "",
			s->cells[i].params);
		if (strcmp(r->method, "full") != 0)
			strbuf_printf(&b, " r = %g", r->retained_ppm / 1e6);
		if (target)
			label_add(&b, "target", r->target);
		if (proxy && r->proxy)
			label_add(&b, "proxy", r->proxy);
		if (precision)
			label_add(&b, "in", r->precision);
		if (texts && *r->task_variant)
			label_add(&b, "texts", r->task_variant);
		snprintf(number, sizeof number, "%llu", (unsigned long long)r->seed);
		if (seed)
			label_add(&b, "seed", number);
		s->cells[i].label = keep(s, b.text);
		strbuf_free(&b);
	}
}

/* A chosen run's cells only. */
static void drop_untouched(struct side *s)
{
	int kept = 0;
	for (int i = 0; i < s->n_cells; i++) {
		if (s->cells[i].n_samples > 0 || s->cells[i].n_ttft > 0)
			s->cells[kept++] = s->cells[i];
	}
	s->n_cells = kept;
}

static int load(struct side *s, struct store *store, const char *run, char err[ERR_LEN])
{
	if (store_runs(store, add_run, s, err) != 0 || (*run && choose_run(s, run, err) != 0) ||
		store_cells(store, add_cell, s, err) != 0)
		return -1;
	for (int i = 0; i < s->n_cells; i++) {
		if (load_cell(s, &s->cells[i], store, err) != 0)
			return -1;
	}
	if (*s->run_id)
		drop_untouched(s);
	for (int i = 0; i < s->n_cells; i++)
		s->cells[i].full = full_of(s, &s->cells[i]);
	name_all_params(s);
	label_cells(s);
	return 0;
}

int side_load(struct side *s, const char *spec, char err[ERR_LEN])
{
	const char *colon = file_exists(spec) ? NULL : strrchr(spec, ':');
	struct store *store = NULL;
	*s = (struct side){.path = colon ? text_format("%.*s", (int)(colon - spec), spec) : text_copy(spec)};
	int rc = store_open_read(&store, s->path, err);
	if (rc == 0)
		rc = load(s, store, colon ? colon + 1 : "", err);
	store_close(store);
	return rc;
}

void side_free(struct side *s)
{
	for (int i = 0; i < s->n_cells; i++) {
		free(s->cells[i].samples);
		free(s->cells[i].ttft);
	}
	for (size_t i = 0; i < s->n_strings; i++)
		free(s->strings[i]);
	free(s->strings);
	free(s->cells);
	free(s->runs);
	free(s->path);
	*s = (struct side){0};
}

/* ---- what a cell is made of ---- */

/* A text, or a whole number (one of the two offsets is used). */
static const struct {
	const char *name;
	size_t text, number;
	enum { IS_TEXT, IS_INT, IS_INT64, IS_SHARE } kind;
} columns[COMPARE_COLUMNS] = {
	{"target", offsetof(struct cell_row, target), 0, IS_TEXT},
	{"target file", offsetof(struct cell_row, target_sha256), 0, IS_TEXT},
	{"proxy", offsetof(struct cell_row, proxy), 0, IS_TEXT},
	{"weights", offsetof(struct cell_row, dtype), 0, IS_TEXT},
	{"precision", offsetof(struct cell_row, precision), 0, IS_TEXT},
	{"topology", offsetof(struct cell_row, topology), 0, IS_TEXT},
	{"task", offsetof(struct cell_row, task), 0, IS_TEXT},
	{"texts", offsetof(struct cell_row, task_variant), 0, IS_TEXT},
	{"task parameters", offsetof(struct cell_row, task_params), 0, IS_TEXT},
	{"data", offsetof(struct cell_row, data_sha256), 0, IS_TEXT},
	{"metric", offsetof(struct cell_row, metric), 0, IS_TEXT},
	{"tokens", 0, offsetof(struct cell_row, context_tokens), IS_INT64},
	{"protocol", offsetof(struct cell_row, protocol), 0, IS_TEXT},
	{"mode", offsetof(struct cell_row, mode), 0, IS_TEXT},
	{"method", offsetof(struct cell_row, method), 0, IS_TEXT},
	{"method parameters", offsetof(struct cell_row, method_params), 0, IS_TEXT},
	{"retained", 0, offsetof(struct cell_row, retained_ppm), IS_SHARE},
	{"seed", 0, offsetof(struct cell_row, seed), IS_INT64},
	{"measuring procedure", 0, offsetof(struct cell_row, measure_version), IS_INT},
};

const char *column_name(int column)
{
	return columns[column].name;
}

const char *column_text(const struct side_cell *c, int column, char buf[COLUMN_TEXT])
{
	const char *row = (const char *)&c->row, *at = row + columns[column].number;
	const char *text = columns[column].kind == IS_TEXT ? *(const char *const *)(row + columns[column].text) : NULL;
	if (columns[column].kind == IS_TEXT)
		snprintf(buf, COLUMN_TEXT, "%s", text ? text : "");
	else if (columns[column].kind == IS_INT64)
		snprintf(buf, COLUMN_TEXT, "%lld", (long long)*(const int64_t *)at);
	else if (columns[column].kind == IS_INT)
		snprintf(buf, COLUMN_TEXT, "%d", *(const int *)at);
	else
		snprintf(buf, COLUMN_TEXT, "%g", *(const int *)at / 1e6);
	return buf;
}
