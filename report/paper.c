/* paper.c: which published figure meets which measured one, and what tells them apart. See paper.h; the looks are in
 * paper_print.c.
 *
 * A record of published.json holds figures of one (source, model, method, protocol, length, share kept); a figure is of a task,
 * of a set of tasks (their plain mean), or one of the few that are no scores. A set's interval comes from its tasks' own, taken
 * as independent: half width = sqrt(sum of squares) / number. */
#include "report/paper.h"

#include "report/paper_impl.h"
#include "results/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- small words ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

static const json_t *source_of(const struct paper *p, const char *name)
{
	return json_object_get(json_object_get(p->published, "sources"), name);
}

static bool starts(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

/* "Qwen/Qwen3-8B" and "/models/Qwen3-8B.Q4_1.gguf" are the model Qwen3-8B: letters and digits of the last part decide. */
static bool same_model(const char *ours, const char *published)
{
	const char *slash = strrchr(ours, '/'), *a = slash ? slash + 1 : ours, *b = published;
	while (*a && *b && (*a | 32) == (*b | 32))
		a++, b++;
	return !*b && (!*a || *a == '.');
}

/* ---- what was measured ---- */

struct wanted {
	const char *target, *method, *protocol; /* protocol "" = any */
	int ppm;
	int64_t length; /* 0 = any */
};

static bool fits(const struct cell *c, const struct wanted *w, const char *task)
{
	const struct cell_row *r = &c->row;
	return !strcmp(r->target, w->target) && !strcmp(r->task, task) && !strcmp(r->method, w->method) &&
	       (r->retained_ppm == w->ppm || !strcmp(w->method, "full")) && (!*w->protocol || !strcmp(r->protocol, w->protocol));
}

/* The cell at the wanted length, else at the longest; the first of them in plan order. NULL = none. */
static const struct cell *find_cell(const struct data *d, const struct wanted *w, const char *task)
{
	const struct cell *best = NULL;
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		if (!fits(c, w, task))
			continue;
		bool exact = w->length && c->row.context_tokens == w->length;
		bool best_exact = best && w->length && best->row.context_tokens == w->length;
		if (!best || (exact && !best_exact) || (exact == best_exact && c->row.context_tokens > best->row.context_tokens))
			best = c;
	}
	return best;
}

struct mean {
	double mean, lo, hi;     /* 0..1 */
	int n, tasks;            /* samples; tasks that have a score */
	const struct cell *cell; /* any of them */
	const char *failed;      /* of a cell without one: why; NULL */
};

/* Over the tasks that were measured: the caller sees from .tasks whether those are all. */
static struct mean mean_of(const struct data *d, const struct wanted *w, const json_t *tasks)
{
	struct mean m = {0};
	double below = 0, above = 0;
	size_t i;
	json_t *task;
	json_array_foreach(tasks, i, task)
	{
		const struct cell *c = find_cell(d, w, json_string_value(task));
		if (!c)
			continue;
		m.cell = m.cell ? m.cell : c;
		if (!c->row.ok) {
			m.failed = c->message && *c->message ? c->message : "not run yet";
			continue;
		}
		m.mean += c->score.mean;
		below += pow(c->score.mean - c->score.lo, 2);
		above += pow(c->score.hi - c->score.mean, 2);
		m.lo = c->score.lo, m.hi = c->score.hi;
		m.n += c->row.ok;
		m.tasks++;
	}
	m.mean = m.tasks ? m.mean / m.tasks : NAN;
	if (m.tasks != 1) {
		m.lo = m.tasks ? m.mean - sqrt(below) / m.tasks : NAN;
		m.hi = m.tasks ? m.mean + sqrt(above) / m.tasks : NAN;
	}
	return m;
}

/* ---- reasons ---- */

/* The group's number of that reason; texts are freed or kept. */
static int reason_add(struct paper_group *g, struct paper_row *r, char *text, bool blocking)
{
	int k = 0;
	while (k < g->n_reasons && strcmp(g->reasons[k], text))
		k++;
	if (k == g->n_reasons) {
		g->reasons = mem_grow(g->reasons, (size_t)k + 1, sizeof *g->reasons);
		g->blocking = mem_grow(g->blocking, (size_t)k + 1, sizeof *g->blocking);
		g->blocking[k] = blocking;
		g->reasons[g->n_reasons++] = text;
	} else
		free(text);
	if (r->n_reasons < PAPER_REASONS)
		r->reasons[r->n_reasons++] = k;
	r->comparable = r->comparable && !blocking;
	return k;
}

/* What is compared: a published figure's circumstances and the measured cell's. */
struct meeting {
	const struct paper *p;
	struct paper_group *group;
	struct paper_row *row;
	const json_t *record, *source, *stand_in; /* stand_in: tasks in place of the published one; NULL = the task itself */
	const struct cell *cell;
};

static void differ_model(const struct meeting *m)
{
	const char *published = text_of(m->record, "model");
	if (!strcmp(published, "all"))
		reason_add(m->group, m->row,
			text_format("model: %s alone, published over all of the source's", m->cell->row.target), true);
	else if (!same_model(m->cell->row.target, published))
		reason_add(m->group, m->row, text_format("model: %s, published: %s", m->cell->row.target, published), true);
}

/* "q4_k_m" of "name-q4_k_m.gguf": the weights as the file holds them, whatever they become at load. NULL = not quantised, as far
 * as names tell. */
static const char *quantised(const struct cell_row *r)
{
	static const char *const whole[] = {"bf16", "bfloat16", "f16", "float16", "fp16", "f32", "float32", "fp32"};
	for (const char *c = r->target; *c; c++) {
		if ((*c == 'q' || *c == 'Q') && c[1] >= '2' && c[1] <= '8' && c[2] == '_')
			return c;
	}
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
		if (!strcasecmp(r->dtype, whole[i]))
			return NULL;
	}
	return r->dtype;
}

static void differ_weights(const struct meeting *m)
{
	const char *kind = quantised(&m->cell->row);
	if (kind)
		reason_add(m->group, m->row,
			text_format("weights: %.*s, published: not quantised", (int)strcspn(kind, "."), kind), true);
}

static void differ_task(const struct meeting *m)
{
	if (!m->stand_in)
		return;
	struct strbuf b = {0};
	size_t i;
	json_t *task;
	json_array_foreach(m->stand_in, i, task) strbuf_printf(&b, "%s%s", i ? ", " : "", json_string_value(task));
	reason_add(m->group, m->row, text_format("task: %s in place of the published ones", b.text ? b.text : ""), true);
	strbuf_free(&b);
}

static void differ_length(const struct meeting *m)
{
	int64_t published = json_integer_value(json_object_get(m->record, "length")), ours = m->cell->row.context_tokens;
	if (published && published != ours)
		reason_add(m->group, m->row,
			text_format("length: %lld tokens, published: %lld", (long long)ours, (long long)published), true);
	else if (!published && ours && !m->stand_in && starts(m->row->task, "longbench"))
		reason_add(m->group, m->row, text_format("length not stated; cut at %lld tokens here", (long long)ours), false);
}

static void differ_protocol(const struct meeting *m)
{
	const char *published = text_of(m->record, "protocol");
	if (*published && strcmp(published, m->cell->row.protocol))
		reason_add(m->group, m->row, text_format("protocol: %s, published: %s", m->cell->row.protocol, published), true);
}

static void differ_topology(const struct meeting *m)
{
	const char *published = text_of(m->record, "topology");
	if (*published && strcmp(published, m->cell->row.topology))
		reason_add(m->group, m->row,
			text_format("machine: %s, published: %s", m->cell->row.topology,
				!strcmp(published, "dual") ? "two GPUs" : "one shared GPU"),
			true);
}

static void differ_template(const struct meeting *m)
{
	const char *published = text_of(m->source, "template");
	if (m->row->score && strcmp(published, "chat"))
		reason_add(m->group, m->row, text_copy("the published figure's chat template is not stated"), false);
}

static int find_template(void *user, const char *group, const char *name, const char *value)
{
	bool *raw = user;
	if (!strcmp(group, "target") && !strcmp(name, "chat_template") && !strcmp(value, "raw"))
		*raw = true;
	return 0;
}

static void differ_data(const struct meeting *m)
{
	const json_t *known = json_object_get(m->source, "data");
	size_t i;
	json_t *one;
	if (m->stand_in || !json_array_size(known) || !starts(m->row->task, "ruler"))
		return;
	json_array_foreach(known, i, one)
	{
		if (!strcmp(json_string_value(one), m->cell->row.task_variant))
			return;
	}
	reason_add(m->group, m->row,
		text_format("rows: %s, published: %s", m->cell->row.task_variant, json_string_value(json_array_get(known, 0))),
		true);
}

/* Some of a task's rows, or rows of which nobody knows whether they are upstream's. */
static void differ_rows(const struct meeting *m)
{
	const struct cell_row *c = &m->cell->row;
	const json_t *facts = json_object_get(json_object_get(m->p->suites, "tasks"), c->task);
	int whole = (int)json_integer_value(json_object_get(facts, "contexts"));
	if (!m->row->score || m->stand_in)
		return;
	if (c->planned < whole)
		reason_add(m->group, m->row, text_format("rows: %d of the task's %d", c->planned, whole), false);
	if (!strcmp(c->data_state, "unpinned"))
		reason_add(m->group, m->row, text_copy("rows: unpinned, nobody knows whether they are upstream's"), false);
}

/* A budget in tokens is another share of every prompt; published: what it is on average. */
static void differ_budget(const struct meeting *m)
{
	int64_t tokens = json_integer_value(json_object_get(m->record, "budget_tokens"));
	if (tokens)
		reason_add(m->group, m->row,
			text_format("budget: a share of each prompt, published: %lld tokens of each, the share is their mean's",
				(long long)tokens),
			true);
}

static void differ_source(const struct meeting *m)
{
	const char *why = text_of(m->source, "differs");
	if (*why && !m->stand_in)
		reason_add(m->group, m->row, text_format("published with %s", why), true);
}

static void differ_note(const struct meeting *m)
{
	if (*text_of(m->record, "note"))
		reason_add(m->group, m->row, text_format("published figure: %s", text_of(m->record, "note")), false);
}

static void (*const differences[])(const struct meeting *) = {differ_model, differ_weights, differ_task, differ_length,
	differ_protocol, differ_topology, differ_template, differ_data, differ_rows, differ_budget, differ_source, differ_note};

/* ---- figures that are no scores ---- */

struct figure {
	double value, full; /* NAN = not measured */
	int n;
	const struct cell *cell;
};

/* KV bytes of the longest cell there is, in GB: what was counted, never scaled to another length. */
static struct figure figure_kv(const struct data *d, const struct wanted *w)
{
	struct figure f = {NAN, NAN, 0, NULL};
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		if (fits(c, w, c->row.task) && c->row.ok && (!f.cell || c->row.context_tokens > f.cell->row.context_tokens))
			f.cell = c;
	}
	if (f.cell) {
		f.value = (double)f.cell->row.kv_bytes_kept / 1e9;
		f.full = (double)f.cell->row.kv_bytes_full / 1e9;
		f.n = f.cell->row.ok;
	}
	return f;
}

/* The method's timed cell and KVzip's of the same panel and run, at the method's smallest timed ratio. */
static struct figure figure_speed(const struct data *d, const struct wanted *w)
{
	struct figure f = {NAN, NAN, 0, NULL};
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		if (strcmp(c->row.method, w->method) || strcmp(c->row.target, w->target) || !cell_timed(c))
			continue;
		for (int k = 0; k < d->n_cells; k++) {
			const struct cell *z = &d->cells[k];
			if (z->panel == c->panel && z->row.retained_ppm == c->row.retained_ppm &&
				!strcmp(z->row.method, "kvzip") && cell_timed(z) &&
				(!f.cell || c->row.retained_ppm < f.cell->row.retained_ppm))
				f = (struct figure){z->time[TTFT].median / c->time[TTFT].median, NAN, c->time[TTFT].n, c};
		}
	}
	return f;
}

/* Mean over every cell below r = 1 that both have, over KVzip's mean over the same, in percent. */
static struct figure figure_recovery(const struct data *d, const struct wanted *w)
{
	struct figure f = {NAN, NAN, 0, NULL};
	double own = 0, kvzip = 0;
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		if (strcmp(c->row.method, w->method) || strcmp(c->row.target, w->target) || !c->row.ok ||
			c->row.retained_ppm == 1000000 || strcmp(c->row.protocol, "agnostic"))
			continue;
		for (int k = 0; k < d->n_cells; k++) {
			const struct cell *z = &d->cells[k];
			if (z->panel != c->panel || z->row.retained_ppm != c->row.retained_ppm ||
				strcmp(z->row.method, "kvzip") || !z->row.ok)
				continue;
			own += c->score.mean;
			kvzip += z->score.mean;
			f.n += c->row.ok;
			f.cell = c;
		}
	}
	f.value = kvzip > 0 ? 100 * own / kvzip : NAN;
	return f;
}

static const struct {
	const char *task;
	struct figure (*of)(const struct data *d, const struct wanted *w);
} figures[] = {
	{"KV cache, GB", figure_kv},
	{"TTFT of kvzip over its own", figure_speed},
	{"share of kvzip's mean score, %", figure_recovery},
};
enum { FIGURES = sizeof figures / sizeof *figures };

/* ---- a published figure ---- */

static void lack_add(struct paper *p, char *text)
{
	for (int i = 0; i < p->n_lacks; i++) {
		if (!strcmp(p->lacks[i].text, text)) {
			p->lacks[i].n++;
			free(text);
			return;
		}
	}
	p->lacks = mem_grow(p->lacks, (size_t)p->n_lacks + 1, sizeof *p->lacks);
	p->lacks[p->n_lacks++] = (struct paper_lack){text, 1};
}

static struct paper_group *group_of(struct paper *p, const json_t *record, const char *target)
{
	const char *source = text_of(source_of(p, text_of(record, "source")), "title"), *model = text_of(record, "model");
	for (int i = 0; i < p->n_groups; i++) {
		struct paper_group *g = &p->groups[i];
		if (!strcmp(g->source, source) && !strcmp(g->model, model) && !strcmp(g->target, target))
			return g;
	}
	p->groups = mem_grow(p->groups, (size_t)p->n_groups + 1, sizeof *p->groups);
	struct paper_group *g = &p->groups[p->n_groups++];
	*g = (struct paper_group){.source = source,
		.how = text_of(source_of(p, text_of(record, "source")), "how"),
		.model = model,
		.target = text_copy(target)};
	return g;
}

/* The same source's full cache on the same task and length; NAN = it gives none. */
static double published_full(const struct paper *p, const json_t *record, const char *task)
{
	size_t i;
	json_t *r;
	json_array_foreach(json_object_get(p->published, "records"), i, r)
	{
		const json_t *value = json_object_get(json_object_get(r, "values"), task);
		if (value && !strcmp(text_of(r, "source"), text_of(record, "source")) &&
			!strcmp(text_of(r, "model"), text_of(record, "model")) &&
			json_integer_value(json_object_get(r, "length")) ==
				json_integer_value(json_object_get(record, "length")) &&
			json_number_value(json_object_get(r, "retained")) >= 1)
			return json_number_value(value);
	}
	return NAN;
}

static bool any_cell(const struct data *d, const char *target, const char *task, const char *method, int ppm)
{
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell_row *r = &d->cells[i].row;
		if (!strcmp(r->target, target) && (!task || !strcmp(r->task, task)) && (!method || !strcmp(r->method, method)) &&
			(!ppm || r->retained_ppm == ppm))
			return true;
	}
	return false;
}

/* Why there is no counterpart. Caller frees. */
static char *why_not(const struct paper *p, const struct wanted *w, const char *task, const json_t *tasks, const struct mean *m)
{
	bool set = strstr(task, ": ") != NULL;
	int measured = 0;
	if (!w->ppm)
		return text_format("%s: the share that was kept is not stated", w->method);
	size_t i;
	json_t *one;
	json_array_foreach(tasks, i, one) measured += any_cell(&p->d, w->target, json_string_value(one), NULL, 0);
	if (set && !json_array_size(tasks))
		return text_format("%s: which tasks is not stated", task);
	if (!measured)
		return text_format("%s: not among the tasks measured", task);
	if (!any_cell(&p->d, w->target, NULL, w->method, 0))
		return text_format("%s was not run", w->method);
	if (!any_cell(&p->d, w->target, NULL, w->method, w->ppm))
		return text_format("r = %g was not run", w->ppm / 1e6);
	if (m->failed)
		return text_format("%s failed: %.400s", w->method, m->failed);
	if (measured < (int)json_array_size(tasks))
		return text_format("%s: %d of its %d tasks measured", task, measured, (int)json_array_size(tasks));
	return text_format(
		"%s at r = %g, %s: no such cell", w->method, w->ppm / 1e6, *w->protocol ? w->protocol : "either protocol");
}

static void row_end(struct meeting *m)
{
	m->row->comparable = true;
	for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
		differences[i](m);
}

static struct paper_row *row_new(
	struct paper_group *g, const struct paper *p, const json_t *record, const char *task, double value)
{
	g->rows = mem_grow(g->rows, (size_t)g->n_rows + 1, sizeof *g->rows);
	struct paper_row *r = &g->rows[g->n_rows++];
	const json_t *retained = json_object_get(record, "retained");
	*r = (struct paper_row){.task = task,
		.method = text_of(record, "method"),
		.protocol = text_of(record, "protocol"),
		.retained = json_is_number(retained) ? json_number_value(retained) : NAN,
		.published = value,
		.tolerance = json_number_value(json_object_get(record, "tolerance")),
		.published_full = published_full(p, record, task),
		.measured = NAN,
		.lo = NAN,
		.hi = NAN,
		.measured_full = NAN};
	return r;
}

/* ---- a figure meets its target ---- */

static void meet_plain(struct paper *p, const json_t *record, const struct wanted *w, const char *task, double value, int k)
{
	struct figure f = figures[k].of(&p->d, w);
	if (!f.cell || isnan(f.value)) {
		lack_add(p, text_format("%s: %s: not measured for %s", text_of(source_of(p, text_of(record, "source")), "title"),
				    task, w->method));
		return;
	}
	struct paper_group *g = group_of(p, record, w->target);
	struct paper_row *r = row_new(g, p, record, task, value);
	r->measured = f.value;
	r->measured_full = f.full;
	r->n = f.n;
	struct meeting m = {p, g, r, record, source_of(p, text_of(record, "source")), NULL, f.cell};
	row_end(&m);
}

/* The tasks of a figure: the set's, or itself. New reference. */
static json_t *tasks_of(const struct paper *p, const char *task)
{
	json_t *set = json_object_get(json_object_get(p->published, "sets"), task);
	return set ? json_incref(set) : json_pack("[s]", task);
}

/* Tasks that stand for this one, or for the suite of this set, at this scale; NULL = none. Borrowed. */
static const json_t *stand_in(const struct paper *p, const char *task)
{
	const char *end = strchr(task, ':');
	const json_t *exact = strcmp(p->scale, "tiny") ? NULL : json_object_get(json_object_get(p->about, "stand_ins"), task);
	if (exact || !end || strcmp(p->scale, "tiny"))
		return exact;
	char *suite = text_format("%.*s", (int)(end - task), task);
	const json_t *list = json_object_get(json_object_get(p->about, "stand_ins"), suite);
	free(suite);
	return list;
}

static void meet_score(struct paper *p, const json_t *record, struct wanted w, const char *task, double value)
{
	json_t *own = tasks_of(p, task);
	const json_t *other = stand_in(p, task), *tasks = other ? other : own;
	struct mean m = mean_of(&p->d, &w, tasks);
	if (!m.tasks || m.tasks < (int)json_array_size(tasks)) {
		char *why = why_not(p, &w, task, tasks, &m);
		lack_add(p, text_format("%s: %s", text_of(source_of(p, text_of(record, "source")), "title"), why));
		free(why);
		json_decref(own);
		return;
	}
	struct paper_group *g = group_of(p, record, w.target);
	struct paper_row *r = row_new(g, p, record, task, value);
	r->score = true;
	r->measured = 100 * m.mean;
	r->lo = 100 * m.lo;
	r->hi = 100 * m.hi;
	r->n = m.n;
	struct wanted full = w;
	full.method = "full";
	full.protocol = m.cell->row.protocol;
	full.length = m.cell->row.context_tokens;
	struct mean whole = mean_of(&p->d, &full, tasks);
	r->measured_full = whole.tasks == m.tasks ? 100 * whole.mean : NAN;
	struct meeting meeting = {p, g, r, record, source_of(p, text_of(record, "source")), other, m.cell};
	row_end(&meeting);
	json_decref(own);
}

/* Figures published without a model's name are of all of them. */
static void meet_target(struct paper *p, const json_t *record, const char *target)
{
	const json_t *retained = json_object_get(record, "retained");
	struct wanted w = {.target = target,
		.method = text_of(record, "method"),
		.protocol = text_of(record, "protocol"),
		.ppm = (int)lround(json_number_value(retained) * 1e6),
		.length = json_integer_value(json_object_get(record, "length"))};
	if (json_number_value(retained) >= 1)
		w.method = "full";
	const char *task;
	json_t *value;
	json_object_foreach(json_object_get(record, "values"), task, value)
	{
		int k = 0;
		while (k < FIGURES && strcmp(figures[k].task, task))
			k++;
		if (k < FIGURES)
			meet_plain(p, record, &w, task, json_number_value(value), k);
		else
			meet_score(p, record, w, task, json_number_value(value));
	}
}

/* The targets measured, each once, in plan order. Borrowed. */
static int targets_of(const struct data *d, const char **names, int max)
{
	int n = 0;
	for (int i = 0; i < d->n_cells; i++) {
		int k = 0;
		while (k < n && strcmp(names[k], d->cells[i].row.target))
			k++;
		if (k == n && n < max)
			names[n++] = d->cells[i].row.target;
	}
	return n;
}

enum { MAX_TARGETS = 32 };

/* A record beside the target of its name; beside the only target there is, whatever its name. */
static void meet_record(struct paper *p, const json_t *record)
{
	const char *targets[MAX_TARGETS];
	int n = targets_of(&p->d, targets, MAX_TARGETS), met = 0;
	for (int i = 0; i < n; i++) {
		if (n == 1 || same_model(targets[i], text_of(record, "model"))) {
			meet_target(p, record, targets[i]);
			met++;
		}
	}
	for (size_t k = 0; !met && k < json_object_size(json_object_get(record, "values")); k++)
		lack_add(p, text_format("%s: %s was not run", text_of(source_of(p, text_of(record, "source")), "title"),
				    text_of(record, "model")));
}

/* ---- the paper's choice of records ---- */

/* Entries are a source's name, or [source, suite]. */
static bool is_chosen(const json_t *list, const char *source, const char *suite)
{
	size_t i;
	json_t *one;
	json_array_foreach(list, i, one)
	{
		const json_t *name = json_is_array(one) ? json_array_get(one, 0) : one;
		const char *only = json_string_value(json_array_get(one, 1));
		if (!strcmp(json_string_value(name), source) && (!only || starts(suite, only)))
			return true;
	}
	return false;
}

static void meet_all(struct paper *p)
{
	const json_t *chosen = json_object_get(p->about, "records");
	size_t i;
	json_t *record;
	json_array_foreach(json_object_get(p->published, "records"), i, record)
	{
		const char *first = json_object_iter_key(json_object_iter(json_object_get(record, "values")));
		if (is_chosen(chosen, text_of(record, "source"), first ? first : ""))
			meet_record(p, record);
	}
}

/* By task, method, protocol, then falling share kept; the full cache first. */
static int by_place(const void *x, const void *y)
{
	const struct paper_row *a = x, *b = y;
	int order = strcmp(a->task, b->task);
	order = order ? order : !strcmp(b->method, "full") - !strcmp(a->method, "full");
	order = order ? order : strcmp(a->method, b->method);
	order = order ? order : strcmp(a->protocol, b->protocol);
	return order ? order : (a->retained < b->retained) - (a->retained > b->retained);
}

static void sort_rows(struct paper *p)
{
	for (int i = 0; i < p->n_groups; i++)
		qsort(p->groups[i].rows, (size_t)p->groups[i].n_rows, sizeof *p->groups[i].rows, by_place);
}

static void raw_prompts(struct paper *p, struct store *s)
{
	bool raw = false;
	if (store_settings(s, find_template, &raw, NULL) || !raw)
		return;
	for (int i = 0; i < p->n_groups; i++) {
		for (int k = 0; k < p->groups[i].n_rows; k++)
			if (p->groups[i].rows[k].score)
				reason_add(&p->groups[i], &p->groups[i].rows[k],
					text_copy("template: none (raw), published: a chat template"), true);
	}
}

/* Cells of methods which no figure names. */
static int count_alone(const struct paper *p)
{
	int alone = 0;
	for (int i = 0; i < p->d.n_cells; i++) {
		bool named = false;
		for (int g = 0; g < p->n_groups && !named; g++) {
			for (int k = 0; k < p->groups[g].n_rows && !named; k++) {
				const struct paper_row *r = &p->groups[g].rows[k];
				named = !strcmp(r->method, p->d.cells[i].row.method) &&
					(isnan(r->retained) || fabs(r->retained - p->d.cells[i].row.retained_ppm / 1e6) < 1e-6);
			}
		}
		alone += !named;
	}
	return alone;
}

static void paper_free(struct paper *p)
{
	for (int i = 0; i < p->n_groups; i++) {
		struct paper_group *g = &p->groups[i];
		for (int k = 0; k < g->n_reasons; k++)
			free(g->reasons[k]);
		free(g->reasons);
		free(g->blocking);
		free(g->rows);
		free(g->target);
	}
	for (int i = 0; i < p->n_lacks; i++)
		free(p->lacks[i].text);
	free(p->groups);
	free(p->lacks);
	json_decref(p->about);
	json_decref(p->published);
	json_decref(p->suites);
	data_free(&p->d);
}

int paper_write(struct store *s, const struct paper_wish *w, const char *format, struct strbuf *out, char err[ERR_LEN])
{
	json_error_t why;
	struct paper p = {.about = json_loads(w->paper, 0, &why), .scale = w->scale, .left_out = w->left_out};
	p.suites = w->suites ? json_loads(w->suites, 0, NULL) : NULL;
	p.published = p.about ? json_loads(w->published, 0, &why) : NULL;
	int rc = p.published ? data_load(&p.d, s, NULL, err)
			     : err_set(err, "the paper's figures, line %d: %s", why.line, why.text);
	if (!rc) {
		p.title = text_of(p.about, "title");
		meet_all(&p);
		raw_prompts(&p, s);
		sort_rows(&p);
		p.cells_alone = count_alone(&p);
		paper_print(&p, format, out);
	}
	paper_free(&p);
	return rc;
}
