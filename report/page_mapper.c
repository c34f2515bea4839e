/* page_mapper.c: trained parts (ProxyKV's mappers, LKV's modules): recall of the oracle's top-r set at five ratios beside
 * its floor and ceiling, and the curves of every training.
 *
 * Terms by name: "recall@r" (held-out contexts), "prior@r" (the static head prior: the floor), "oracle@r" (the oracle with
 * another chunk size: the ceiling), "perhead@r" (inside each head; its floor is r), "loss" and its parts; every other term
 * is a curve. */
#include "report/page.h"
#include "report/summary.h"
#include "report/svg.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double ratios[] = {.1, .2, .3, .5, .7};
enum { RATIOS = sizeof ratios / sizeof *ratios };

static double last_at(const struct training *t, const char *name, double ratio)
{
	for (int i = 0; i < t->n_curves; i++)
		if (fabs(term_ratio(t->curves[i].term, name) - ratio) < 1e-9)
			return curve_last(&t->curves[i]);
	return NAN;
}

/* ---- recall ---- */

static bool has_recall(const struct training *t)
{
	for (int i = 0; i < RATIOS; i++)
		if (!isnan(last_at(t, "recall", ratios[i])))
			return true;
	return false;
}

static void recall_line(struct svg_plot *p, const struct training *t, const char *name, const char *class, const char *line)
{
	double x[RATIOS], y[RATIOS];
	char title[160];
	strbuf_printf(p->out, "<g class=\"s %s\">", class);
	for (int i = 0; i < RATIOS; i++) {
		x[i] = ratios[i];
		y[i] = last_at(t, name, ratios[i]);
	}
	svg_line(p, line, x, y, RATIOS);
	for (int i = 0; i < RATIOS; i++) {
		if (isnan(y[i]))
			continue;
		strbuf_puts(p->out, "<g class=\"pt\">");
		svg_marker(p->out, 0, svg_at(&p->x, x[i]), svg_at(&p->y, y[i]), 3.2);
		snprintf(title, sizeof title, "%s at r = %g: %.3f", name, x[i], y[i]);
		strbuf_printf(p->out, "<title>%s</title></g>", title);
	}
	strbuf_puts(p->out, "</g>\n");
}

static void recall_chart(struct strbuf *out, const struct training *t)
{
	char *title = text_format("%s %s", t->kind, t->name);
	struct svg_plot p = svg_begin(out, 330, 240, title,
		"Recall over the ratio, with its floor (head prior) and ceiling (the oracle against itself)");
	p.x.hi = .75;
	svg_x_ticks(&p, 5);
	svg_y_ticks(&p, 5);
	svg_labels(&p, "ratio, r", "recall");
	recall_line(&p, t, "oracle", "cf", "ln dash");
	recall_line(&p, t, "prior", "cr", "ln dots");
	recall_line(&p, t, "perhead", "c3", "ln");
	recall_line(&p, t, "recall", "c0", "ln");
	svg_end(&p);
	free(title);
}

static void recall_table(struct report *r)
{
	static const char *const name[] = {"recall", "prior", "oracle", "perhead"};
	struct table t;
	table_begin(&t, "recall", "Recall of the oracle's top-r set at the end of each training", query_trainings());
	table_column(&t, "training", "training");
	table_column(&t, "what", "what");
	t.n_text = 2;
	for (int i = 0; i < RATIOS; i++) {
		char *column = text_format("r_%g", ratios[i]);
		table_column(&t, column, "r = %g", ratios[i]);
		free(column);
	}
	for (int i = 0; i < r->trainings.n; i++) {
		const struct training *x = &r->trainings.v[i];
		char *label = text_format("%s %s", x->kind, x->name), text[32];
		for (int k = 0; k < 4; k++) {
			bool any = false;
			for (int j = 0; j < RATIOS; j++)
				any |= !isnan(last_at(x, name[k], ratios[j]));
			if (!any)
				continue;
			table_text(&t, label);
			table_text(&t, k == 0   ? "recall, held-out contexts"
				       : k == 1 ? "floor: head prior"
				       : k == 2 ? "ceiling: oracle against itself"
						: "recall inside each head");
			for (int j = 0; j < RATIOS; j++) {
				double v = last_at(x, name[k], ratios[j]);
				snprintf(text, sizeof text, "%.3f", v);
				table_number(&t, v, isnan(v) ? "–" : text);
			}
		}
		free(label);
	}
	if (t.n_cells)
		report_table(r, &t);
	else
		table_free(&t);
}

/* ---- recall against time ---- */

/* Does a method's cell read this training's file? Its parameters name what it reads: {"files": {kind: first digits of SHA-256}}.
 */
static bool reads_weights(const struct cell *c, const struct training *t)
{
	json_t *all = json_loads(c->row.method_params, 0, NULL), *sha;
	const char *kind;
	bool found = false;
	json_object_foreach(json_object_get(all, "files"), kind, sha)
	{
		const char *digits = json_string_value(sha);
		found = found || (digits && *digits && strncmp(t->weights_sha256, digits, strlen(digits)) == 0);
	}
	json_decref(all);
	return found;
}

/* TTFT of the method that a training's file is for, over the full cache's: of its timed cells in this database the one with the
 * longest context. NAN = none was timed beside the full cache. */
static double time_of_full(const struct data *d, const struct training *t)
{
	const struct cell *best = NULL;
	for (int i = 0; i < d->n_cells; i++) {
		const struct cell *c = &d->cells[i];
		if (strcmp(c->row.method, t->kind) == 0 && !isnan(data_ttft_ratio(d, c)) && reads_weights(c, t) &&
			(!best || c->row.context_tokens > best->row.context_tokens))
			best = c;
	}
	return best ? data_ttft_ratio(d, best) : NAN;
}

static const char *times_text(char *buf, double v)
{
	snprintf(buf, 64, "%g×", v);
	return buf;
}

/* One point of the chart. */
struct timed {
	const struct training *training;
	double time, recall;
};

/* Trainings whose file was timed too, each file once; caller frees. */
static struct timed *timed_trainings(const struct report *r, int *n)
{
	const struct trainings *list = &r->trainings;
	struct timed *v = mem_new((size_t)list->n + 1, sizeof *v);
	*n = 0;
	for (int i = 0; i < list->n; i++) {
		const struct timed one = {&list->v[i], time_of_full(r->d, &list->v[i]), last_at(&list->v[i], "recall", .1)};
		bool again = false;
		for (int k = 0; k < *n; k++)
			again = again || strcmp(v[k].training->weights_sha256, one.training->weights_sha256) == 0;
		if (one.time > 0 && !isnan(one.recall) && !again)
			v[(*n)++] = one;
	}
	return v;
}

/* Nothing for fewer than two points. */
static void time_chart(struct report *r)
{
	int n;
	struct timed *v = timed_trainings(r, &n);
	double lo = 1, hi = 1;
	for (int i = 0; i < n; i++) {
		lo = fmin(lo, v[i].time);
		hi = fmax(hi, v[i].time);
	}
	if (n < 2) {
		free(v);
		return;
	}
	strbuf_puts(r->out, "<h3>Recall against time</h3><div class=\"row wide\">\n");
	struct svg_plot p = svg_begin(
		r->out, SVG_WIDE, 280, "recall at r = 0.1", "Recall over time to first token as a multiple of the full cache's");
	p.x = (struct svg_scale){lo / 1.1, hi * 1.35, 48, SVG_WIDE - 12, true};
	svg_log_ticks(&p, false, times_text);
	svg_y_ticks(&p, 5);
	svg_labels(&p, "time to first token, full cache = 1 (log)", "recall");
	for (int i = 0; i < n; i++) {
		const double x = svg_at(&p.x, v[i].time), y = svg_at(&p.y, v[i].recall);
		char *title = text_format("%s: %.3f at %.3g× the full cache's time", v[i].training->name, v[i].recall, v[i].time);
		strbuf_puts(r->out, "<g class=\"s c0\">");
		svg_marker(r->out, 0, x, y, 4);
		strbuf_puts(r->out, "<title>");
		html_text(r->out, title);
		strbuf_puts(r->out, "</title></g>");
		svg_label(r->out, "n", x + 8, y + (i % 2 ? 13 : -3), "start", v[i].training->name, 22);
		free(title);
	}
	svg_end(&p);
	strbuf_puts(r->out, "</div>\n");
	free(v);
}

/* ---- curves ---- */

/* Which chart a term belongs to. */
static int chart_of(const char *term)
{
	static const struct {
		const char *prefix;
		int chart;
	} known[] = {{"recall@", 1}, {"perhead@", 2}, {"prior@", -1}, {"oracle@", -1}, {"lr", -1}, {"loss", 0}, {"L_", 0},
		{"kl", 0}, {"KL", 0}, {"valid", 0}, {"val_", 0}};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strncmp(term, known[i].prefix, strlen(known[i].prefix)) == 0)
			return known[i].chart;
	return 3;
}
static const char *const chart_title[] = {"loss and its terms", "recall", "recall inside heads", "other terms"};
enum {
	CHARTS = 4,
	POINTS = 300 /* of a curve; longer ones are thinned by means of neighbours */
};

static void curve_line(struct svg_plot *p, const struct curve *c, int colour, bool log)
{
	double x[POINTS], y[POINTS];
	int step = (c->n + POINTS - 1) / POINTS, n = 0;
	for (int i = 0; i < c->n; i += step) {
		double sum = 0;
		int count = 0, end = i + step < c->n ? i + step : c->n;
		for (int k = i; k < end; k++)
			if (!isnan(c->value[k]) && (!log || c->value[k] > 0)) {
				sum += c->value[k];
				count++;
			}
		x[n] = (double)c->step[(i + end - 1) / 2];
		y[n++] = count ? sum / count : NAN;
	}
	strbuf_printf(p->out, "<g class=\"s c%d\">", colour % 8);
	svg_line(p, "ln", x, y, n);
	if (n == 1 && !isnan(y[0]))
		svg_marker(p->out, 0, svg_at(&p->x, x[0]), svg_at(&p->y, y[0]), 3);
	strbuf_puts(p->out, "<title>");
	html_text(p->out, c->term);
	strbuf_printf(p->out, ": last %.4g at step %lld</title></g>\n", curve_last(c), (long long)c->step[c->n - 1]);
}

static void range_of(const struct training *t, int chart, struct svg_scale *x, struct svg_scale *y)
{
	x->lo = y->lo = INFINITY;
	x->hi = y->hi = -INFINITY;
	for (int i = 0; i < t->n_curves; i++) {
		const struct curve *c = &t->curves[i];
		if (chart_of(c->term) != chart)
			continue;
		for (int k = 0; k < c->n; k++) {
			x->lo = fmin(x->lo, (double)c->step[k]);
			x->hi = fmax(x->hi, (double)c->step[k]);
			y->lo = fmin(y->lo, c->value[k]);
			y->hi = fmax(y->hi, c->value[k]);
		}
	}
}

static const char *plain_number(char *buf, double v)
{
	snprintf(buf, 64, "%g", v);
	return buf;
}

static void key(struct strbuf *out, const struct training *t, int chart, int w, int y)
{
	int n = 0, across = 0;
	for (int i = 0; i < t->n_curves; i++) {
		if (chart_of(t->curves[i].term) != chart || n > 12)
			continue;
		int length = 22 + 7 * (int)strlen(t->curves[i].term);
		if (across + length > w - 60) {
			across = 0;
			y += 14;
		}
		strbuf_printf(out, "<g class=\"s c%d\"><path class=\"ln\" d=\"M%d %dh14\"/></g>", n++ % 8, 48 + across, y - 4);
		svg_label(out, "t", 66 + across, y, "start", t->curves[i].term, 30);
		across += length;
	}
}

static void curve_chart(struct strbuf *out, const struct training *t, int chart)
{
	struct svg_scale x, y;
	int n = 0;
	range_of(t, chart, &x, &y);
	if (!(y.hi >= y.lo) || !isfinite(y.lo) || !isfinite(y.hi))
		return;
	struct svg_plot p = svg_begin(out, 420, 270, chart_title[chart], "Value over training step");
	bool log = chart == 0 && y.lo > 0 && y.hi > 10 * y.lo;
	double room = y.hi > y.lo ? .05 * (y.hi - y.lo) : fmax(fabs(y.hi), 1) * .05;
	p.x.lo = x.lo;
	p.x.hi = x.hi > x.lo ? x.hi : x.lo + 1;
	p.y = (struct svg_scale){log ? y.lo / 1.1 : y.lo - room, log ? y.hi * 1.1 : y.hi + room, 200, 28, log};
	svg_x_ticks(&p, 5);
	if (log)
		svg_log_ticks(&p, true, plain_number);
	else
		svg_y_ticks(&p, 5);
	svg_text(out, "l", (p.x.p0 + p.x.p1) / 2, p.y.p0 + 30, "middle", log ? "step; log scale" : "step");
	for (int i = 0; i < t->n_curves; i++)
		if (chart_of(t->curves[i].term) == chart)
			curve_line(&p, &t->curves[i], n++, log);
	key(out, t, chart, 420, 246);
	svg_end(&p);
}

static void training_row(struct table *t, const struct training *x)
{
	char text[64], *label = text_format("%s %s", x->kind, x->name);
	table_text(t, label);
	free(label);
	snprintf(text, sizeof text, "%lld", (long long)x->steps);
	table_number(t, (double)x->steps, text);
	snprintf(text, sizeof text, "%d", x->n_contexts);
	table_number(t, x->n_contexts, text);
	snprintf(text, sizeof text, "%llu", (unsigned long long)x->seed);
	table_number(t, (double)x->seed, text);
	double took = x->ended_unix_ms ? (x->ended_unix_ms - x->started_unix_ms) / 1e3 : NAN;
	table_number(t, took, isnan(took) ? "not ended" : format_duration(text, took));
	double loss = curve_last(training_curve(x, "loss"));
	snprintf(text, sizeof text, "%.4g", loss);
	table_number(t, loss, isnan(loss) ? "–" : text);
	table_text(t, x->weights_path);
	snprintf(text, sizeof text, "%.12s", x->weights_sha256);
	table_text(t, text);
	table_text(t, x->config);
}

static void training_table(struct report *r)
{
	static const char *const head[][2] = {{"training", "training"}, {"steps", "steps"}, {"contexts", "contexts"},
		{"seed", "seed"}, {"seconds", "took"}, {"loss", "last loss"}, {"weights", "weights"}, {"sha256", "SHA-256"},
		{"config", "settings"}};
	struct table t;
	table_begin(&t, "trainings", "Trainings", query_trainings());
	for (size_t i = 0; i < sizeof head / sizeof *head; i++)
		table_column(&t, head[i][0], "%s", head[i][1]);
	t.plain = true;
	for (int i = 0; i < r->trainings.n; i++)
		training_row(&t, &r->trainings.v[i]);
	report_table(r, &t);
}

static bool there(const struct report *r)
{
	return r->trainings.n > 0;
}

static void write_mapper(struct report *r)
{
	struct strbuf *out = r->out;
	bool any = false;
	page_lead(out, "What was trained, and how well it finds what the oracle would keep. Solid: recall on contexts not "
		       "trained on. Dotted: its floor, the static head prior, which knows nothing of the context. Dashed: its "
		       "ceiling, the oracle with another chunk size against itself. A recall close to its floor proves nothing.");
	for (int i = 0; i < r->trainings.n; i++)
		any |= has_recall(&r->trainings.v[i]);
	if (any) {
		strbuf_puts(out, "<h3>Recall</h3><div class=\"row\">\n");
		for (int i = 0; i < r->trainings.n; i++)
			if (has_recall(&r->trainings.v[i]))
				recall_chart(out, &r->trainings.v[i]);
		strbuf_puts(out, "</div>\n");
		recall_table(r);
	}
	time_chart(r);
	for (int i = 0; i < r->trainings.n; i++) {
		const struct training *t = &r->trainings.v[i];
		strbuf_puts(out, "<h3>");
		html_text(out, t->kind);
		strbuf_puts(out, " ");
		html_text(out, t->name);
		strbuf_puts(
			out, t->n_curves ? "</h3><div class=\"row wide\">\n" : "</h3><p class=\"sub\">No steps: solved at once.");
		for (int c = 0; c < CHARTS; c++)
			curve_chart(out, t, c);
		strbuf_puts(out, t->n_curves ? "</div>\n" : "</p>\n");
	}
	training_table(r);
}

const struct page page_mapper = {"training", "Training", there, write_mapper};
