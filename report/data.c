/* data.c: see data.h. */
#include "report/data.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const phase_name[N_PHASES] = {
	"prefill", "score", "select", "compact", "question", "first_token", "ttft", "second_ttft", "decode"};

static const char *keep(struct data *d, const char *s)
{
	if (!s)
		return NULL;
	if (d->n_strings == d->cap_strings) {
		d->cap_strings = d->cap_strings ? d->cap_strings * 2 : 256;
		d->strings = mem_grow(d->strings, d->cap_strings, sizeof *d->strings);
	}
	return d->strings[d->n_strings++] = text_copy(s);
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
		&c->row.dtype};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		*texts[i] = keep(d, *texts[i]);
	for (int i = 0; i < N_PHASES; i++)
		c->time[i] = (struct spread){NAN, NAN, NAN, 0};
	return 0;
}

/* ---- samples of one cell ---- */

struct loading {
	struct data *d;
	struct cell *c;
	int n_kept;          /* samples whose kept counts were added up */
	double *x[N_PHASES]; /* durations of repetitions after warm-up */
	int n[N_PHASES];
};

static bool blank(const char *s)
{
	return s[strspn(s, " \t\n\v\f\r")] == 0;
}

static void add_kept(struct loading *l, const struct score_row *r)
{
	struct cell *c = l->c;
	int heads = c->row.layers * c->row.kv_heads;
	if (!r->kept || r->n_kept != heads || heads == 0 || r->context_tokens <= 0)
		return;
	if (!c->kept)
		c->kept = mem_new((size_t)heads, sizeof *c->kept);
	for (int i = 0; i < heads; i++)
		c->kept[i] += (double)r->kept[i] / r->context_tokens;
	l->n_kept++;
}

static int add_sample(void *user, const struct score_row *r)
{
	struct loading *l = user;
	struct cell *c = l->c;
	c->samples = mem_grow(c->samples, (size_t)c->n_samples + 1, sizeof *c->samples);
	struct sample *s = &c->samples[c->n_samples++];
	*s = (struct sample){.id = keep(l->d, r->sample_id),
		.context = keep(l->d, r->context_id),
		.answer = keep(l->d, r->answer),
		.gold = keep(l->d, r->gold),
		.question = keep(l->d, r->question),
		.status = keep(l->d, r->status),
		.message = keep(l->d, r->message),
		.score = r->score,
		.retained = r->retained,
		.flags = r->flags};
	s->ok = strcmp(s->status, "ok") == 0;
	s->empty = s->ok && blank(s->answer);
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

/* Small integers for context names, as the bootstrap wants them. */
static int context_number(const struct cell *c, int i)
{
	int k = 0;
	while (strcmp(c->samples[k].context, c->samples[i].context) != 0)
		k++;
	return k;
}

/* Wilson where every score is 0 or 1 (a bootstrap of all ones would claim certainty), else the bootstrap over contexts. */
static struct interval score_of(const struct cell *c)
{
	double *x = mem_new((size_t)c->n_samples, sizeof *x);
	int *cluster = mem_new((size_t)c->n_samples, sizeof *cluster), n = 0, right = 0;
	bool binary = true;
	for (int i = 0; i < c->n_samples; i++) {
		if (!c->samples[i].ok)
			continue;
		x[n] = c->samples[i].score;
		binary &= x[n] == 0 || x[n] == 1;
		right += x[n] == 1;
		cluster[n++] = context_number(c, i);
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
		c->timed_by = keep(l->d, t->run_id);
	if (phase == DECODE)
		c->decode_tokens = t->tokens;
	if (phase == TTFT) {
		c->peak_bytes = t->peak_bytes > c->peak_bytes ? t->peak_bytes : c->peak_bytes;
		c->kv_before = t->kv_bytes_before;
		c->kv_after = t->kv_bytes_after;
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
}

static int load_cell(struct data *d, struct cell *c, struct store *s, char err[ERR_LEN])
{
	struct loading l = {.d = d, .c = c};
	int rc = store_samples(s, c->row.cell_id, add_sample, &l, err);
	if (rc == 0)
		rc = store_timings(s, c->row.cell_id, add_timing, &l, err);
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
		.random = strcmp(r->method, "random") == 0};
	return d->n_variants++;
}

static void label_add(struct variant *v, const char *a, const char *b, const char *c)
{
	size_t len = strlen(v->label);
	snprintf(v->label + len, sizeof v->label - len, " %s%s%s", a, b, c);
}

/* Adds the parameters in which v differs from any other variant of its name. */
static void label_differences(const struct data *d, struct variant *v)
{
	json_t *own = json_loads(v->params, 0, NULL);
	const char *key;
	json_t *value;
	json_object_foreach(own, key, value)
	{
		bool differs = false;
		for (int i = 0; i < d->n_variants; i++) {
			if (!same_text(d->variants[i].name, v->name))
				continue;
			json_t *other = json_loads(d->variants[i].params, 0, NULL);
			differs = differs || !json_equal(json_object_get(other, key), value);
			json_decref(other);
		}
		char *text = differs ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
		if (text)
			label_add(v, key, "=", text);
		free(text);
	}
	json_decref(own);
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
		label_differences(d, v);
		if (proxies_differ && v->proxy)
			label_add(v, "+", v->proxy, "");
		v->colour = v->full || v->random ? -1 : colour++;
	}
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

/* Agnostic before aware, everything else in plan order, lengths ascending: a sort key by the first cell of the figure. */
struct panel_order {
	struct panel panel;
	int first;
};

static int by_order(const void *a, const void *b)
{
	const struct panel_order *p = a, *q = b;
	int protocol = strcmp(p->panel.row->protocol, q->panel.row->protocol);
	if (protocol != 0)
		return protocol;
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
		int k = 0, first = i;
		while (k < n && !same_panel(order[k].panel.row, r))
			k++;
		if (k < n)
			continue;
		for (int j = n - 1; j >= 0; j--)
			first = same_figure(order[j].panel.row, r) ? order[j].first : first;
		order[n++] = (struct panel_order){{.row = r}, first};
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

static void title_panels(struct data *d)
{
	for (int i = 0; i < d->n_panels; i++) {
		struct panel *p = &d->panels[i];
		const struct cell_row *r = p->row;
		bool new_figure = i == 0 || !same_figure(d->panels[i - 1].row, r);
		p->figure = new_figure ? d->n_figures++ : d->n_figures - 1;
		char length[48] = "";
		if (r->context_tokens > 0)
			snprintf(length, sizeof length, " · %lld tokens", (long long)r->context_tokens);
		snprintf(p->title, sizeof p->title, "%.60s%s%s%.20s%s%.50s", r->task, length,
			strcmp(r->mode, "single") ? " · " : "", strcmp(r->mode, "single") ? r->mode : "",
			*r->task_variant ? " · " : "", r->task_variant);
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

int data_load(struct data *d, struct store *s, char err[ERR_LEN])
{
	*d = (struct data){0};
	int rc = store_cells(s, add_cell, d, err);
	for (int i = 0; i < d->n_cells && rc == 0; i++)
		rc = load_cell(d, &d->cells[i], s, err);
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
	d->reference_ppm = commonest_ratio(d, -1, any_cell);
	return 0;
}

void data_free(struct data *d)
{
	for (int i = 0; i < d->n_cells; i++) {
		free(d->cells[i].samples);
		free(d->cells[i].kept);
	}
	for (size_t i = 0; i < d->n_strings; i++)
		free(d->strings[i]);
	free(d->strings);
	free(d->cells);
	free(d->variants);
	free(d->panels);
	free(d->ppm);
	*d = (struct data){0};
}

const struct cell *data_cell(const struct data *d, int panel, int variant, int ppm)
{
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		if (c->panel == panel && c->variant == variant && c->row.retained_ppm == ppm)
			return c;
	}
	return NULL;
}

const struct cell *data_full(const struct data *d, int panel)
{
	for (int i = 0; i < d->n_cells; i++)
		if (d->cells[i].panel == panel && d->variants[d->cells[i].variant].full)
			return &d->cells[i];
	return NULL;
}

const struct cell *data_random(const struct data *d, int panel, int ppm)
{
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		if (c->panel == panel && d->variants[c->variant].random && c->row.retained_ppm == ppm)
			return c;
	}
	return NULL;
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
