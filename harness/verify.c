/* verify.c: `kvbench verify DB`: what went wrong without a word: every silent failure this field has seen, looked for in a
 * finished database. Reads only. The checks are in verify_checks.c. */
#include "harness/json_bytes.h"
#include "harness/verify.h"

#include "harness/verbs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the database in memory ---- */

static const char *keep(struct audit *a, const char *s)
{
	if (a->n_texts == a->cap_texts)
		a->texts = mem_grow(a->texts, a->cap_texts = 2 * a->cap_texts + 64, sizeof *a->texts);
	return a->texts[a->n_texts++] = text_copy(s ? s : "");
}

/* The cell before mostly has the same text: contexts and runs repeat. */
static const char *keep_again(struct audit *a, const char *last, const char *s)
{
	return last && !strcmp(last, s) ? last : keep(a, s);
}

static bool same_comparable(const struct cell_row *x, const struct cell_row *y)
{
	return !strcmp(x->target, y->target) && !strcmp(x->target_sha256, y->target_sha256) && !strcmp(x->proxy, y->proxy) &&
	       !strcmp(x->task, y->task) && !strcmp(x->task_variant, y->task_variant) &&
	       !strcmp(x->task_params, y->task_params) && !strcmp(x->data_sha256, y->data_sha256) &&
	       x->context_tokens == y->context_tokens && !strcmp(x->mode, y->mode) && !strcmp(x->topology, y->topology) &&
	       !strcmp(x->precision, y->precision) && x->seed == y->seed;
}

static void copy_row(struct audit *a, struct audit_cell *c, const struct cell_row *row)
{
	c->row = *row;
	const char **texts[] = {&c->row.cell_id, &c->row.target, &c->row.proxy, &c->row.method, &c->row.method_params,
		&c->row.method_origin, &c->row.task, &c->row.task_params, &c->row.task_variant, &c->row.data_state,
		&c->row.metric, &c->row.protocol, &c->row.mode, &c->row.topology, &c->row.precision, &c->row.dtype,
		&c->row.also_metric, &c->row.target_sha256, &c->row.proxy_sha256, &c->row.data_sha256, &c->row.template_sha256};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		*texts[i] = keep(a, *texts[i]);
}

static int take_cell(void *user, const struct cell_row *row)
{
	struct audit *a = user;
	char length[32] = "";
	a->cells = mem_grow(a->cells, (size_t)a->n_cells + 1, sizeof *a->cells);
	struct audit_cell *c = &a->cells[a->n_cells];
	*c = (struct audit_cell){.group = a->n_cells, .comparable = a->n_cells, .message = ""};
	copy_row(a, c, row);
	if (row->context_tokens)
		snprintf(length, sizeof length, " %lld", (long long)row->context_tokens);
	snprintf(c->label, sizeof c->label, "%s%s %s, %s r %g", c->row.task, length, c->row.protocol, c->row.method,
		c->row.retained_ppm / 1e6);
	for (int i = a->n_cells; i-- > 0 && c->group == a->n_cells;) {
		if (!same_comparable(&a->cells[i].row, &c->row))
			continue;
		c->comparable = a->cells[i].comparable;
		if (!strcmp(a->cells[i].row.protocol, c->row.protocol))
			c->group = a->cells[i].group;
	}
	a->n_cells++;
	return 0;
}

struct taking {
	struct audit *a;
	struct audit_cell *cell;
};

static bool counts_wrong(const struct cell_row *c, const struct score_row *r)
{
	int64_t sum = 0, heads = (int64_t)c->layers * c->kv_heads;
	if (!r->kept)
		return false;
	for (int i = 0; i < r->n_kept; i++) {
		sum += r->kept[i];
		if (r->kept[i] < 0 || r->kept[i] > r->context_tokens)
			return true;
	}
	return r->n_kept != heads || (r->context_tokens && llround(r->retained * ((double)heads * r->context_tokens)) != sum);
}

static bool is_blank(const char *s)
{
	return !s[strspn(s, " \t\n\v\f\r")];
}

static int take_sample(void *user, const struct score_row *r)
{
	struct taking *t = user;
	struct audit_cell *c = t->cell;
	c->samples = mem_grow(c->samples, (size_t)c->n + 1, sizeof *c->samples);
	const struct audit_sample *last = c->n ? &c->samples[c->n - 1] : NULL;
	struct audit_sample *s = &c->samples[c->n++];
	*s = (struct audit_sample){.id = keep(t->a, r->sample_id),
		.context = keep_again(t->a, last ? last->context : NULL, r->context_id),
		.prompt = keep(t->a, r->prompt_sha256),
		.run = keep_again(t->a, last ? last->run : NULL, r->run_id),
		.ok = !strcmp(r->status, "ok"),
		.by_length = !strcmp(r->finish, "length"),
		.score = r->score,
		.also = r->also_score,
		.retained = r->retained,
		.flags = r->flags,
		.context_tokens = r->context_tokens,
		.scorer = r->scorer_version,
		.cut_tokens = r->cut_tokens};
	s->empty = s->ok && is_blank(r->answer);
	s->counts_wrong = s->ok && counts_wrong(&c->row, r);
	char *both = text_format("%s %s", r->answer_ids, r->answer);
	sha256_hex(both, strlen(both), s->answer);
	free(both);
	if (!s->ok && !*c->message)
		c->message = keep(t->a, *r->message ? r->message : r->status);
	return 0;
}

static bool is_part(const char *phase)
{
	static const char *const parts[] = {"prefill", "score", "select", "compact", "question", "first_token"};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (!strcmp(phase, parts[i]))
			return true;
	}
	return false;
}

static int take_timing(void *user, const struct timing_row *r)
{
	struct taking *t = user;
	if (r->warmup || r->repetition < 0 || r->repetition >= AUDIT_REPETITIONS)
		return 0;
	if (!t->cell->timing)
		t->cell->timing = mem_new(1, sizeof *t->cell->timing);
	struct audit_timing *m = t->cell->timing;
	m->run = m->run ? m->run : keep(t->a, r->run_id);
	m->n = r->repetition >= m->n ? r->repetition + 1 : m->n;
	if (is_part(r->phase))
		m->parts[r->repetition] += (double)r->duration_ns;
	if (!strcmp(r->phase, "prefill")) {
		m->prefill[r->repetition] = (double)r->duration_ns;
		m->tokens[r->repetition] = r->tokens;
	}
	if (!strcmp(r->phase, "ttft"))
		m->ttft[r->repetition] = (double)r->duration_ns;
	return 0;
}

static int take_run(void *user, const struct run_row *r)
{
	struct audit *a = user;
	a->runs = mem_grow(a->runs, (size_t)a->n_runs + 1, sizeof *a->runs);
	a->runs[a->n_runs++] = (struct audit_run){.id = keep(a, r->run_id),
		.machine = keep(a, r->machine),
		.version = keep(a, r->version),
		.ended = r->ended_unix_ms != 0,
		.dirty = r->dirty};
	return 0;
}

int audit_open(struct audit *a, const char *path, char err[ERR_LEN])
{
	*a = (struct audit){0};
	int rc = store_open_read(&a->store, path, err) || store_cells(a->store, take_cell, a, err) ||
		 store_runs(a->store, take_run, a, err);
	for (int i = 0; i < a->n_cells && !rc; i++) {
		struct taking t = {a, &a->cells[i]};
		rc = store_samples(a->store, a->cells[i].row.cell_id, take_sample, &t, err) ||
		     store_timings(a->store, a->cells[i].row.cell_id, take_timing, &t, err);
	}
	return rc ? -1 : 0;
}

void audit_close(struct audit *a)
{
	for (int i = 0; i < a->n_cells; i++) {
		free(a->cells[i].samples);
		free(a->cells[i].timing);
	}
	for (size_t i = 0; i < a->n_texts; i++)
		free(a->texts[i]);
	for (int i = 0; i < a->n_found; i++) {
		free(a->found[i].where);
		free(a->found[i].what);
	}
	free(a->cells);
	free(a->runs);
	free(a->texts);
	free(a->found);
	store_close(a->store);
	*a = (struct audit){0};
}

/* ---- for the checks ---- */

void audit_find(struct audit *a, bool fault, const char *where, const char *fmt, ...)
{
	char what[ERR_LEN];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	a->found = mem_grow(a->found, (size_t)a->n_found + 1, sizeof *a->found);
	a->found[a->n_found++] = (struct finding){a->running, fault, text_copy(where), text_copy(what)};
}

const struct audit_cell *audit_full(const struct audit *a, int group)
{
	for (int i = 0; i < a->n_cells; i++) {
		if (a->cells[i].group == group && !strcmp(a->cells[i].row.method, "full"))
			return &a->cells[i];
	}
	return NULL;
}

const struct audit_cell *audit_random(const struct audit *a, int group, int ppm)
{
	for (int i = 0; i < a->n_cells; i++) {
		if (a->cells[i].group == group && a->cells[i].row.retained_ppm == ppm &&
			!strcmp(a->cells[i].row.method, "random"))
			return &a->cells[i];
	}
	return NULL;
}

const struct audit_sample *audit_sample(const struct audit_cell *c, const char *id)
{
	int lo = 0, hi = c ? c->n : 0;
	while (lo < hi) {
		int mid = (lo + hi) / 2, order = strcmp(c->samples[mid].id, id);
		if (!order)
			return &c->samples[mid];
		lo = order < 0 ? mid + 1 : lo;
		hi = order < 0 ? hi : mid;
	}
	return NULL;
}

int audit_check(struct audit *a, char err[ERR_LEN])
{
	for (int i = 0; i < n_checks && !*a->err; i++) {
		a->running = &checks[i];
		checks[i].run(a);
	}
	return *a->err ? err_set(err, "%s", a->err) : 0;
}

int audit_faults(const struct audit *a)
{
	int n = 0;
	for (int i = 0; i < a->n_found; i++)
		n += a->found[i].fault;
	return n;
}

/* ---- printing ---- */

static int count_of(const struct audit *a, const struct check *c, bool fault)
{
	int n = 0;
	for (int i = 0; i < a->n_found; i++)
		n += a->found[i].check == c && a->found[i].fault == fault;
	return n;
}

static void print_findings(const struct audit *a, const struct check *c, int most)
{
	int printed = 0, all = count_of(a, c, true) + count_of(a, c, false);
	for (int i = 0; i < a->n_found && printed < most; i++) {
		const struct finding *f = &a->found[i];
		if (f->check != c)
			continue;
		printf("        %s%s%s: %s\n", f->fault ? "" : "(notice) ", f->where, "", f->what);
		printed++;
	}
	if (printed < all)
		printf("        ... and %d more (--all)\n", all - printed);
}

static void print_text(const struct audit *a, int most)
{
	for (int i = 0; i < n_checks; i++) {
		int faults = count_of(a, &checks[i], true), notices = count_of(a, &checks[i], false);
		printf("%-6s  %-12s %s\n", faults ? "FAULT" : notices ? "notice" : "ok", checks[i].name, checks[i].title);
		print_findings(a, &checks[i], most);
	}
	int faults = audit_faults(a);
	printf("%d checks, %d cells, %d faults, %d notices\n", n_checks, a->n_cells, faults, a->n_found - faults);
}

static void print_json(const struct audit *a, const char *path)
{
	json_t *list = json_array();
	for (int i = 0; i < n_checks; i++) {
		json_t *found = json_array();
		for (int k = 0; k < a->n_found; k++) {
			const struct finding *f = &a->found[k];
			if (f->check == &checks[i])
				json_array_append_new(found, json_pack("{s:s, s:o, s:o}", "level", f->fault ? "fault" : "notice",
								     "where", json_bytes(f->where), "what", json_bytes(f->what)));
		}
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:o}", "check", checks[i].name, "title", checks[i].title, "found", found));
	}
	int faults = audit_faults(a);
	json_t *all = json_pack("{s:o, s:i, s:i, s:i, s:o}", "database", json_bytes(path), "cells", a->n_cells, "faults", faults,
		"notices", a->n_found - faults, "checks", list);
	json_dumpf(all, stdout, JSON_INDENT(1));
	printf("\n");
	json_decref(all);
}

/* ---- the verb ---- */

enum { EXIT_FAULTS = 3, EXIT_NOTHING = 4, FEW = 5 };

static int samples_of(const struct audit *a)
{
	int n = 0;
	for (int i = 0; i < a->n_cells; i++)
		n += a->cells[i].n;
	return n;
}

static int run_verify(const struct options *o)
{
	const char *format = option_text(o, "format", "text");
	char err[ERR_LEN] = "";
	struct audit a;
	if (strcmp(format, "text") && strcmp(format, "json"))
		die(EXIT_USAGE, "verify: --format is text or json, not \"%s\"", format);
	int code = audit_open(&a, o->args[0], err) || audit_check(&a, err) ? EXIT_CELLS_FAILED : EXIT_DONE;
	if (code)
		fprintf(stderr, "kvbench verify: %s\n", err);
	else if (!samples_of(&a))
		code = fprintf(stderr, "kvbench verify: %s: nothing was measured\n", o->args[0]) < 0 ? EXIT_CELLS_FAILED
												     : EXIT_NOTHING;
	else if (!strcmp(format, "json"))
		print_json(&a, o->args[0]);
	else
		print_text(&a, option_has(o, "all") ? a.n_found : FEW);
	if (!code)
		code = audit_faults(&a) || (option_has(o, "strict") && a.n_found) ? EXIT_FAULTS : EXIT_DONE;
	audit_close(&a);
	return code;
}

static const struct option_def verify_options[] = {
	{"format", "F", "text (default) or json"},
	{"all", NULL, "every finding, not only the first few of each check"},
	{"strict", NULL, "notices count as faults"},
};
const struct verb verb_verify = {
	.name = "verify",
	.args = "DB",
	.title = "look for failures that nobody reported: no pruning, reused caches, broken baselines, mixed protocols, ...",
	.help = "Exit codes: 0 nothing found but notices, 1 the database cannot be read, 3 faults, 4 nothing was measured.",
	.options = verify_options,
	.n_options = sizeof verify_options / sizeof *verify_options,
	.min_args = 1,
	.max_args = 1,
	.run = run_verify,
};
