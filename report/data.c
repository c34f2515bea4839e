/* data.c: see data.h. */
#include "report/data.h"

#include "results/compare.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const phase_name[N_PHASES] = {"prefill", "score", "select", "compact", "question", "first_token", "ttft",
	"second_ttft", "decode", "second_pass", "proxy_prefill", "mapper", "wait", "allocate", "gather"};

/* ---- texts: a hash table of all, since questions and right answers repeat in every cell ---- */

struct strings {
	char **slot; /* [cap], a power of two; NULL = free */
	size_t n, cap;
};

static size_t text_hash(const char *s)
{
	uint64_t h = 14695981039346656037u; /* FNV-1a */
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 1099511628211u;
	return (size_t)(h ^ h >> 32);
}

/* The slot that holds s, or the free one where it belongs. */
static size_t find_slot(const struct strings *t, const char *s)
{
	size_t i = text_hash(s) & (t->cap - 1);
	while (t->slot[i] && strcmp(t->slot[i], s) != 0)
		i = (i + 1) & (t->cap - 1);
	return i;
}

static void grow_strings(struct strings *t)
{
	struct strings old = *t;
	t->cap = old.cap ? old.cap * 2 : 1024;
	t->slot = mem_new(t->cap, sizeof *t->slot);
	for (size_t i = 0; i < old.cap; i++)
		if (old.slot[i])
			t->slot[find_slot(t, old.slot[i])] = old.slot[i];
	free(old.slot);
}

const char *data_keep(struct data *d, const char *s)
{
	if (!s)
		return NULL;
	if (!d->strings)
		d->strings = mem_new(1, sizeof *d->strings);
	struct strings *t = d->strings;
	if (2 * t->n >= t->cap)
		grow_strings(t);
	size_t i = find_slot(t, s);
	if (!t->slot[i]) {
		t->slot[i] = text_copy(s);
		t->n++;
	}
	return t->slot[i];
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* ---- cells ---- */

static int add_cell(void *user, const struct cell_row *row)
{
	struct data *d = user;
	d->cells = mem_grow(d->cells, (size_t)d->n_cells + 1, sizeof *d->cells);
	struct cell *c = &d->cells[d->n_cells++];
	*c = (struct cell){.row = *row, .message = "", .kept_least = NAN, .kept_most = NAN};
	const char **texts[] = {&c->row.cell_id, &c->row.target, &c->row.proxy, &c->row.method, &c->row.method_params,
		&c->row.method_origin, &c->row.task, &c->row.task_params, &c->row.task_variant, &c->row.data_state,
		&c->row.metric, &c->row.also_metric, &c->row.protocol, &c->row.mode, &c->row.topology, &c->row.precision,
		&c->row.dtype, &c->row.target_sha256, &c->row.proxy_sha256, &c->row.data_sha256, &c->row.template_sha256};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		*texts[i] = data_keep(d, *texts[i]);
	for (int i = 0; i < N_PHASES; i++)
		c->time[i] = (struct spread){NAN, NAN, NAN, 0};
	return 0;
}

/* ---- samples of one cell ---- */

struct loading {
	struct data *d;
	struct cell *c;
	const char *run;     /* NULL = all */
	int n_kept;          /* samples whose kept counts were added up */
	double *x[N_PHASES]; /* durations of repetitions after warm-up */
	int n[N_PHASES];
	double *device[TTFT + 1]; /* the same by the device's clock */
	int n_device[TTFT + 1];
};

static bool blank(const char *s)
{
	return s[strspn(s, " \t\n\v\f\r")] == 0;
}

static void add_kept(struct loading *l, const struct score_row *r)
{
	struct cell *c = l->c;
	int64_t heads = (int64_t)c->row.layers * c->row.kv_heads;
	if (!r->kept || r->n_kept != heads || heads == 0 || r->context_tokens <= 0)
		return;
	if (!c->kept)
		c->kept = mem_new((size_t)heads, sizeof *c->kept);
	for (int i = 0; i < heads; i++)
		c->kept[i] += (double)r->kept[i] / r->context_tokens;
	l->n_kept++;
}

/* The cell's counts, made anew from the rows that are read: a run's own where one was asked for. */
static void count_sample(struct cell *c, const struct sample *s, const struct score_row *r)
{
	c->row.ok += s->ok;
	c->row.failed += strcmp(s->status, "failed") == 0;
	c->row.oom += strcmp(s->status, "oom") == 0;
	c->row.not_applicable += strcmp(s->status, "not-applicable") == 0;
	c->row.empty += s->empty;
	c->row.length_finish += s->ok && strcmp(r->finish, "length") == 0;
	c->row.cut += s->ok && r->cut_tokens > 0;
}

static int add_sample(void *user, const struct score_row *r)
{
	struct loading *l = user;
	struct cell *c = l->c;
	if (l->run && strcmp(l->run, r->run_id) != 0)
		return 0;
	if ((c->n_samples & (c->n_samples - 1)) == 0) /* grows by doubling */
		c->samples = mem_grow(c->samples, c->n_samples ? 2 * (size_t)c->n_samples : 1, sizeof *c->samples);
	struct sample *s = &c->samples[c->n_samples++];
	*s = (struct sample){.id = data_keep(l->d, r->sample_id),
		.context = data_keep(l->d, r->context_id),
		.answer = data_keep(l->d, r->answer),
		.gold = data_keep(l->d, r->gold),
		.question = data_keep(l->d, r->question),
		.status = data_keep(l->d, r->status),
		.message = data_keep(l->d, r->message),
		.prompt = data_keep(l->d, r->prompt_sha256),
		.group = data_keep(l->d, r->group),
		.score = r->score,
		.retained = r->retained,
		.depth = r->depth,
		.flags = r->flags};
	s->ok = strcmp(s->status, "ok") == 0;
	s->empty = s->ok && blank(s->answer);
	s->cut = r->cut_tokens > 0 || (s->ok && strcmp(r->finish, "length") == 0);
	count_sample(c, s, r);
	for (int bit = 0; bit < SAMPLE_FLAGS; bit++)
		c->flag_count[bit] += s->flags >> bit & 1;
	if (!s->ok && !*c->message)
		c->message = s->message;
	if (s->ok)
		add_kept(l, r);
	return 0;
}

static void mean_kept(struct loading *l)
{
	struct cell *c = l->c;
	for (int i = 0; c->kept && i < c->row.layers * c->row.kv_heads; i++) {
		c->kept[i] /= l->n_kept;
		c->kept_least = fmin(c->kept_least, c->kept[i]); /* fmin, fmax ignore the NAN they start from */
		c->kept_most = fmax(c->kept_most, c->kept[i]);
	}
}

/* Equal texts are one pointer; samples of one context are neighbours mostly, so the search from the newest name ends soon. */
int *cell_contexts(const struct cell *c)
{
	int *number = mem_new((size_t)c->n_samples, sizeof *number), n = 0;
	const char **name = mem_new((size_t)c->n_samples, sizeof *name);
	for (int i = 0; i < c->n_samples; i++) {
		int k = n;
		while (k > 0 && name[k - 1] != c->samples[i].context)
			k--;
		if (k == 0)
			name[n++] = c->samples[i].context;
		number[i] = k ? k - 1 : n - 1;
	}
	free(name);
	return number;
}

/* Wilson where every score is 0 or 1 (a bootstrap of all ones would claim certainty), else the bootstrap over contexts. */
static struct interval score_of(const struct cell *c)
{
	double *x = mem_new((size_t)c->n_samples, sizeof *x);
	int *cluster = cell_contexts(c), n = 0, right = 0;
	bool binary = true;
	for (int i = 0; i < c->n_samples; i++) {
		if (!c->samples[i].ok)
			continue;
		x[n] = c->samples[i].score;
		binary &= x[n] == 0 || x[n] == 1;
		right += x[n] == 1;
		cluster[n++] = cluster[i];
	}
	struct interval r = binary ? stats_wilson(right, n) : stats_bootstrap_clusters(x, cluster, n, 1);
	free(x);
	free(cluster);
	return r;
}

/* ---- timings of one cell ---- */

static int add_timing(void *user, const struct timing_row *t)
{
	struct loading *l = user;
	int phase = 0;
	while (phase < N_PHASES && strcmp(phase_name[phase], t->phase) != 0)
		phase++;
	if (phase == N_PHASES || t->warmup)
		return 0;
	l->x[phase] = mem_grow(l->x[phase], (size_t)l->n[phase] + 1, sizeof(double));
	l->x[phase][l->n[phase]++] = (double)t->duration_ns;
	struct cell *c = l->c;
	if (!c->timed_by)
		c->timed_by = data_keep(l->d, t->run_id);
	if (phase == DECODE)
		c->decode_tokens = t->tokens;
	if (phase == TTFT) {
		c->peak_bytes = t->peak_bytes > c->peak_bytes ? t->peak_bytes : c->peak_bytes;
		c->kv_before = t->kv_bytes_before;
		c->kv_after = t->kv_bytes_after;
	}
	return 0;
}

static int add_device_timing(void *user, const struct timing_row *t)
{
	struct loading *l = user;
	for (int p = 0; p <= TTFT && !t->warmup; p++) {
		if (strcmp(phase_name[p], t->phase))
			continue;
		l->device[p] = mem_grow(l->device[p], (size_t)l->n_device[p] + 1, sizeof(double));
		l->device[p][l->n_device[p]++] = (double)t->duration_ns;
	}
	return 0;
}

/* Over the raw repetitions: medians of parts need not add up to the median of the whole. */
static double parts_of_whole(const struct loading *l)
{
	double parts = 0, whole = 0;
	for (int p = 0; p < N_PARTS; p++)
		for (int i = 0; i < l->n[p]; i++)
			parts += l->x[p][i];
	for (int i = 0; i < l->n[TTFT]; i++)
		whole += l->x[TTFT][i];
	return parts / whole;
}

static void summarise_times(struct loading *l)
{
	l->c->parts_of_whole = parts_of_whole(l);
	for (int p = 0; p < N_PHASES; p++) {
		l->c->time[p] = (struct spread){stats_quantile(l->x[p], l->n[p], .5), stats_quantile(l->x[p], l->n[p], .1),
			stats_quantile(l->x[p], l->n[p], .9), l->n[p]};
		free(l->x[p]);
	}
	for (int p = 0; p <= TTFT; p++) {
		l->c->device_time[p] = stats_quantile(l->device[p], l->n_device[p], .5);
		free(l->device[p]);
	}
}

static int add_memory(void *user, int device, const char *part, int64_t peak_bytes)
{
	struct loading *l = user;
	struct cell *c = l->c;
	c->memory = mem_grow(c->memory, (size_t)c->n_memory + 1, sizeof *c->memory);
	c->memory[c->n_memory++] = (struct memory_part){data_keep(l->d, part), device, peak_bytes};
	return 0;
}

static int add_fact(void *user, const char *name, int64_t value)
{
	struct loading *l = user;
	if (strcmp(name, "prefill_floor_ns") == 0)
		l->c->prefill_floor = (double)value;
	else if (strcmp(name, "second_pass_floor_ns") == 0)
		l->c->second_pass_floor = (double)value;
	else
		l->c->waited = (double)value / 1e6;
	return 0;
}

/* Scores of one process only: what the query averaged over all of them no longer holds. */
static void own_means(struct cell *c)
{
	double score = 0, retained = 0;
	for (int i = 0; i < c->n_samples; i++) {
		score += c->samples[i].ok ? c->samples[i].score : 0;
		retained += c->samples[i].ok && !isnan(c->samples[i].retained) ? c->samples[i].retained : 0;
	}
	c->row.score_mean = score / c->row.ok;
	c->row.retained_mean = retained / c->row.ok;
}

static int load_cell(struct data *d, struct cell *c, struct store *s, const char *run, char err[ERR_LEN])
{
	struct loading l = {.d = d, .c = c, .run = run};
	c->row.ok = c->row.failed = c->row.oom = c->row.not_applicable = c->row.empty = c->row.length_finish = c->row.cut = 0;
	int rc = store_samples(s, c->row.cell_id, add_sample, &l, err);
	if (rc == 0)
		rc = run ? store_timings_of(s, c->row.cell_id, run, add_timing, &l, err)
			 : store_timings(s, c->row.cell_id, add_timing, &l, err);
	if (rc == 0)
		rc = store_device_timings_of(s, c->row.cell_id, run, add_device_timing, &l, err);
	if (rc == 0)
		rc = store_memory(s, c->row.cell_id, add_memory, &l, err);
	c->prefill_floor = c->second_pass_floor = c->waited = NAN;
	if (rc == 0)
		rc = store_facts_of(s, c->row.cell_id, run, add_fact, &l, err);
	if (run)
		own_means(c);
	mean_kept(&l);
	c->score = score_of(c);
	summarise_times(&l);
	return rc;
}

/* ---- variants ---- */

static int find_variant(struct data *d, const struct cell_row *r)
{
	for (int i = 0; i < d->n_variants; i++) {
		const struct variant *v = &d->variants[i];
		if (same_text(v->name, r->method) && same_text(v->params, r->method_params) && same_text(v->proxy, r->proxy))
			return i;
	}
	d->variants = mem_grow(d->variants, (size_t)d->n_variants + 1, sizeof *d->variants);
	d->variants[d->n_variants] = (struct variant){.name = r->method,
		.params = r->method_params,
		.origin = r->method_origin,
		.proxy = r->proxy,
		.full = strcmp(r->method, "full") == 0,
		.random = strcmp(r->method, "random") == 0,
		.control = strcmp(r->method, "full") == 0 || strcmp(r->method, "random") == 0 ||
			   strcmp(r->method, "head-prior") == 0};
	return d->n_variants++;
}

static void label_add(struct variant *v, const char *a, const char *b, const char *c)
{
	size_t len = strlen(v->label);
	snprintf(v->label + len, sizeof v->label - len, " %s%s%s", a, b, c);
}

/* The parameter has another value in some variant of v's name. */
static bool parameter_differs(const struct data *d, const struct variant *v, const char *key, const json_t *value)
{
	bool differs = false;
	for (int i = 0; i < d->n_variants; i++) {
		if (!same_text(d->variants[i].name, v->name))
			continue;
		json_t *other = json_loads(d->variants[i].params, 0, NULL);
		differs = differs || !json_equal(json_object_get(other, key), value);
		json_decref(other);
	}
	return differs;
}

/* Adds the parameters in which v differs from any other variant of its name: those with a plain value, or (lists) the others. */
static void label_differences(const struct data *d, struct variant *v, bool lists)
{
	json_t *own = json_loads(v->params, 0, NULL), *value;
	const char *key;
	json_object_foreach(own, key, value)
	{
		bool list = json_is_object(value) || json_is_array(value);
		if (list != lists || !parameter_differs(d, v, key, value))
			continue;
		char *text = json_is_string(value) ? text_copy(json_string_value(value))
						   : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12));
		if (text)
			label_add(v, key, "=", text);
		free(text);
	}
	json_decref(own);
}

static bool label_taken(const struct data *d, int variant)
{
	for (int i = 0; i < d->n_variants; i++)
		if (i != variant && strcmp(d->variants[i].label, d->variants[variant].label) == 0)
			return true;
	return false;
}

static void label_variants(struct data *d)
{
	int colour = 0;
	bool proxies_differ = false;
	for (int i = 0; i < d->n_variants; i++)
		proxies_differ = proxies_differ || !same_text(d->variants[i].proxy, d->variants[0].proxy);
	for (int i = 0; i < d->n_variants; i++) {
		struct variant *v = &d->variants[i];
		snprintf(v->label, sizeof v->label, "%s", v->name);
		label_differences(d, v, false);
		if (proxies_differ && v->proxy)
			label_add(v, "+", v->proxy, "");
		v->colour = v->full || v->random ? -1 : colour++;
	}
	bool *taken = mem_new((size_t)d->n_variants, sizeof *taken);
	for (int i = 0; i < d->n_variants; i++)
		taken[i] = label_taken(d, i);
	for (int i = 0; i < d->n_variants; i++) /* what plain values do not tell apart, lists do (hashes of files) */
		if (taken[i])
			label_differences(d, &d->variants[i], true);
	free(taken);
}

/* ---- panels ---- */

bool data_same_setting(const struct cell_row *a, const struct cell_row *b)
{
	return same_text(a->target, b->target) && same_text(a->protocol, b->protocol) && same_text(a->mode, b->mode) &&
	       same_text(a->topology, b->topology) && same_text(a->precision, b->precision) && same_text(a->dtype, b->dtype) &&
	       a->seed == b->seed && a->measure_version == b->measure_version;
}

static bool same_figure(const struct cell_row *a, const struct cell_row *b)
{
	return same_text(a->task, b->task) && same_text(a->task_params, b->task_params) &&
	       same_text(a->task_variant, b->task_variant) && same_text(a->metric, b->metric) && data_same_setting(a, b);
}

static bool same_panel(const struct cell_row *a, const struct cell_row *b)
{
	return a->context_tokens == b->context_tokens && same_figure(a, b);
}

/* Agnostic before aware, settings and figures in plan order, lengths ascending. */
struct panel_order {
	struct panel panel;
	int first, setting; /* first cell of the figure, of the setting */
};

static int by_order(const void *a, const void *b)
{
	const struct panel_order *p = a, *q = b;
	int protocol = strcmp(p->panel.row->protocol, q->panel.row->protocol);
	if (protocol != 0)
		return protocol;
	if (p->setting != q->setting)
		return p->setting - q->setting;
	if (p->first != q->first)
		return p->first - q->first;
	return (p->panel.row->context_tokens > q->panel.row->context_tokens) -
	       (p->panel.row->context_tokens < q->panel.row->context_tokens);
}

static void collect_panels(struct data *d)
{
	struct panel_order *order = mem_new((size_t)d->n_cells, sizeof *order);
	int n = 0;
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell_row *r = &d->cells[i].row;
		int k = 0, first = i, setting = i;
		while (k < n && !same_panel(order[k].panel.row, r))
			k++;
		if (k < n)
			continue;
		for (int j = n - 1; j >= 0; j--) {
			first = same_figure(order[j].panel.row, r) ? order[j].first : first;
			setting = data_same_setting(order[j].panel.row, r) ? order[j].setting : setting;
		}
		order[n++] = (struct panel_order){{.row = r}, first, setting};
	}
	qsort(order, (size_t)n, sizeof *order, by_order);
	d->panels = mem_new((size_t)n, sizeof *d->panels);
	d->n_panels = n;
	for (int i = 0; i < n; i++)
		d->panels[i] = order[i].panel;
	free(order);
}

/* How many of the first n panels carry this title, under the same target and protocol. */
static int titles_before(const struct data *d, int n, const char *title)
{
	size_t len = strlen(title);
	int found = 0;
	for (int i = 0; i < n; i++) {
		const char *t = d->panels[i].title;
		bool same = strncmp(t, title, len) == 0 && (t[len] == 0 || strncmp(t + len, " #", 2) == 0);
		found += same && same_text(d->panels[i].row->protocol, d->panels[n].row->protocol) &&
			 same_text(d->panels[i].row->target, d->panels[n].row->target);
	}
	return found;
}

/* NULL = none. */
static const struct panel *first_titled(const struct data *d, int n, const char *title)
{
	for (int i = 0; i < n; i++)
		if (same_text(d->panels[i].title, title) && same_text(d->panels[i].row->protocol, d->panels[n].row->protocol) &&
			same_text(d->panels[i].row->target, d->panels[n].row->target))
			return &d->panels[i];
	return NULL;
}

/* What the task was asked for otherwise than in the first panel of this title: " · contexts=12". */
static void title_add(void *user, const char *key, const char *own, const char *first)
{
	struct panel *p = user;
	size_t len = strlen(p->title);
	(void)first;
	snprintf(p->title + len, sizeof p->title - len, " · %.24s=%.24s", key, *own ? own : "none");
}

static void title_panels(struct data *d)
{
	for (int i = 0; i < d->n_panels; i++) {
		struct panel *p = &d->panels[i];
		const struct cell_row *r = p->row;
		bool new_figure = i == 0 || !same_figure(d->panels[i - 1].row, r);
		p->figure = new_figure ? d->n_figures++ : d->n_figures - 1;
		if (i == 0 || !data_same_setting(d->panels[i - 1].row, r)) {
			d->setting_of = mem_grow(d->setting_of, (size_t)d->n_settings + 1, sizeof *d->setting_of);
			d->setting_of[d->n_settings++] = i;
		}
		p->setting = d->n_settings - 1;
		char length[48] = "";
		if (r->context_tokens > 0)
			snprintf(length, sizeof length, " · %lld tokens", (long long)r->context_tokens);
		snprintf(p->title, sizeof p->title, "%.60s%s%s%.20s%s%.50s", r->task, length,
			strcmp(r->mode, "single") ? " · " : "", strcmp(r->mode, "single") ? r->mode : "",
			*r->task_variant ? " · " : "", r->task_variant);
		const struct panel *first = first_titled(d, i, p->title);
		if (first)
			params_differences(r->task_params, first->row->task_params, title_add, p);
		int before = titles_before(d, i, p->title);
		if (before > 0) {
			size_t len = strlen(p->title);
			snprintf(p->title + len, sizeof p->title - len, " #%d", before + 1);
		}
	}
}

static int find_panel(const struct data *d, const struct cell_row *r)
{
	int k = 0;
	while (!same_panel(d->panels[k].row, r))
		k++;
	return k;
}

/* ---- ratios ---- */

static int ascending(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static void collect_ratios(struct data *d)
{
	d->ppm = mem_new((size_t)d->n_cells, sizeof *d->ppm);
	for (int i = 0; i < d->n_cells; i++)
		d->ppm[i] = d->cells[i].row.retained_ppm;
	qsort(d->ppm, (size_t)d->n_cells, sizeof *d->ppm, ascending);
	for (int i = 0; i < d->n_cells; i++)
		if (i == 0 || d->ppm[i] != d->ppm[i - 1])
			d->ppm[d->n_ppm++] = d->ppm[i];
}

/* n_ppm = not there. */
static int ratio_index(const struct data *d, int ppm)
{
	int k = 0;
	while (k < d->n_ppm && d->ppm[k] != ppm)
		k++;
	return k;
}

/* The ratio below 1 with most of the cells that `counts` accepts; the nearest to .3 among equals; 0 = none. */
static int commonest_ratio(const struct data *d, int panel, bool (*counts)(const struct cell *c))
{
	int best = 0, most = 0;
	for (int k = 0; k < d->n_ppm; k++) {
		int n = 0, ppm = d->ppm[k];
		for (int i = 0; i < d->n_cells; i++)
			n += d->cells[i].row.retained_ppm == ppm && (panel < 0 || d->cells[i].panel == panel) &&
			     counts(&d->cells[i]);
		if (ppm < 1000000 && (n > most || (n == most && n > 0 && abs(ppm - 300000) < abs(best - 300000)))) {
			most = n;
			best = ppm;
		}
	}
	return best;
}

static bool any_cell(const struct cell *c)
{
	(void)c;
	return true;
}

bool cell_timed(const struct cell *c)
{
	return c->time[TTFT].n > 0;
}

int data_timed_ppm(const struct data *d, int panel)
{
	return commonest_ratio(d, panel, cell_timed);
}

const char *data_also_metric(const struct data *d, int panel)
{
	for (int i = 0; i < d->n_cells; i++)
		if (d->cells[i].panel == panel && d->cells[i].row.also_metric)
			return d->cells[i].row.also_metric;
	return NULL;
}

/* ---- the whole ---- */

/* Cells by panel, variant and ratio, so that data_cell is one look-up. */
static void index_cells(struct data *d)
{
	size_t n = (size_t)d->n_panels * d->n_variants * d->n_ppm;
	d->index = mem_new(n, sizeof *d->index);
	memset(d->index, 0xff, n * sizeof *d->index);
	for (int i = d->n_cells - 1; i >= 0; i--) { /* the first in plan order wins */
		const struct cell *c = &d->cells[i];
		d->index[((size_t)c->panel * d->n_variants + c->variant) * d->n_ppm + ratio_index(d, c->row.retained_ppm)] = i;
	}
}

/* A cell none of whose rows are the run's was not measured by it: it leaves, so that the page holds one process only. */
static void drop_other_runs(struct data *d)
{
	int n = 0;
	for (int i = 0; i < d->n_cells; i++) {
		if (d->cells[i].n_samples > 0 || cell_timed(&d->cells[i]))
			d->cells[n++] = d->cells[i];
		else
			free(d->cells[i].memory);
	}
	d->n_cells = n;
}

int data_load(struct data *d, struct store *s, const char *run, char err[ERR_LEN])
{
	*d = (struct data){0};
	int rc = store_cells(s, add_cell, d, err);
	for (int i = 0; i < d->n_cells && rc == 0; i++)
		rc = load_cell(d, &d->cells[i], s, run, err);
	if (run)
		drop_other_runs(d);
	if (rc != 0)
		return rc;
	collect_panels(d);
	title_panels(d);
	for (int i = 0; i < d->n_cells; i++) {
		d->cells[i].variant = find_variant(d, &d->cells[i].row);
		d->cells[i].panel = find_panel(d, &d->cells[i].row);
	}
	label_variants(d);
	collect_ratios(d);
	index_cells(d);
	d->reference_ppm = commonest_ratio(d, -1, any_cell);
	return 0;
}

void data_free(struct data *d)
{
	for (int i = 0; i < d->n_cells; i++) {
		free(d->cells[i].samples);
		free(d->cells[i].kept);
		free(d->cells[i].memory);
	}
	for (size_t i = 0; d->strings && i < d->strings->cap; i++)
		free(d->strings->slot[i]);
	if (d->strings)
		free(d->strings->slot);
	free(d->strings);
	free(d->index);
	free(d->setting_of);
	free(d->cells);
	free(d->variants);
	free(d->panels);
	free(d->ppm);
	*d = (struct data){0};
}

const struct cell *data_cell(const struct data *d, int panel, int variant, int ppm)
{
	int k = ratio_index(d, ppm);
	int i = k < d->n_ppm ? d->index[((size_t)panel * d->n_variants + variant) * d->n_ppm + k] : -1;
	return i < 0 ? NULL : &d->cells[i];
}

const struct cell *data_full(const struct data *d, int panel)
{
	for (int v = 0; v < d->n_variants; v++)
		for (int k = d->n_ppm - 1; k >= 0 && d->variants[v].full; k--) {
			const struct cell *c = data_cell(d, panel, v, d->ppm[k]);
			if (c)
				return c;
		}
	return NULL;
}

const struct cell *data_random(const struct data *d, int panel, int ppm)
{
	for (int v = 0; v < d->n_variants; v++) {
		const struct cell *c = d->variants[v].random ? data_cell(d, panel, v, ppm) : NULL;
		if (c)
			return c;
	}
	return NULL;
}

bool data_in_panel(const struct data *d, int panel, int variant)
{
	for (int k = 0; k < d->n_ppm; k++)
		if (data_cell(d, panel, variant, d->ppm[k]))
			return true;
	return false;
}

const struct sample *cell_sample(const struct cell *c, const char *id)
{
	int lo = 0, hi = c ? c->n_samples : 0;
	while (lo < hi) {
		int middle = (lo + hi) / 2, order = strcmp(c->samples[middle].id, id);
		if (order == 0)
			return &c->samples[middle];
		if (order < 0)
			lo = middle + 1;
		else
			hi = middle;
	}
	return NULL;
}

double data_ttft_ratio(const struct data *d, const struct cell *c)
{
	const struct cell *full = data_full(d, c->panel);
	if (!full || !cell_timed(full) || !cell_timed(c) || !same_text(full->timed_by, c->timed_by))
		return NAN;
	return c->time[TTFT].median / full->time[TTFT].median;
}
