/* svg.c: see svg.h. */
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void svg_text(struct strbuf *out, const char *class, double x, double y, const char *anchor, const char *text)
{
	strbuf_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", class, x, y, anchor);
	html_text(out, text);
	strbuf_puts(out, "</text>");
}

void svg_label(struct strbuf *out, const char *class, double x, double y, const char *anchor, const char *text, int characters)
{
	int n = 0;
	const char *end = text;
	for (; *end && n < characters; n++)
		for (end++; (*end & 0xc0) == 0x80; end++)
			;
	if (!*end) {
		svg_text(out, class, x, y, anchor, text);
		return;
	}
	do
		end--;
	while ((*end & 0xc0) == 0x80);
	char *cut = text_format("%.*s…", (int)(end - text), text);
	strbuf_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", class, x, y, anchor);
	html_text(out, cut);
	strbuf_puts(out, "<title>");
	html_text(out, text);
	strbuf_puts(out, "</title></text>");
	free(cut);
}

/* ---- scales, frame ---- */

double svg_at(const struct svg_scale *s, double v)
{
	double lo = s->lo, hi = s->hi;
	if (s->log) {
		lo = log10(lo);
		hi = log10(hi);
		v = log10(v);
	}
	return s->p0 + (v - lo) / (hi - lo) * (s->p1 - s->p0);
}

double svg_step(double range, int n)
{
	double rough = range / n, unit = pow(10, floor(log10(rough))), f = rough / unit;
	return unit * (f < 1.5 ? 1 : f < 3 ? 2 : f < 7 ? 5 : 10);
}

/* Counted in doubles and at most so many: between neighbouring numbers a multiple is beyond any int, and one more is the same number. */
int svg_rounds(const struct svg_scale *s, int n, double v[SVG_ROUNDS])
{
	double step = svg_step(s->hi - s->lo, n), first = ceil(s->lo / step - 1e-9);
	int found = 0;
	if (!isfinite(first))
		return 0;
	for (; found < SVG_ROUNDS && (first + found) * step <= s->hi + step * 1e-6; found++)
		v[found] = (first + found) * step;
	return found;
}

struct svg_plot svg_begin(struct strbuf *out, int w, int h, const char *title, const char *desc)
{
	strbuf_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", w, h);
	html_text(out, title);
	strbuf_puts(out, ". ");
	html_text(out, desc);
	strbuf_puts(out, "\">");
	svg_label(out, "h", 48, 16, "start", title, (int)((w - 52) / 7.6));
	return (struct svg_plot){out, {0, 1, 48, w - 18, false}, {0, 1, h - 40, 28, false}};
}

void svg_end(struct svg_plot *p)
{
	strbuf_puts(p->out, "</svg>\n");
}

void svg_x_tick(struct svg_plot *p, double v, const char *label)
{
	double x = svg_at(&p->x, v);
	strbuf_printf(p->out, "<path class=\"g\" d=\"M%.1f %.1fV%.1f\"/>", x, p->y.p0, p->y.p1);
	if (label)
		svg_text(p->out, "t", x, p->y.p0 + 15, "middle", label);
}

void svg_y_tick(struct svg_plot *p, double v, const char *label)
{
	double y = svg_at(&p->y, v);
	strbuf_printf(p->out, "<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/>", p->x.p0, y, p->x.p1);
	if (label)
		svg_text(p->out, "t", p->x.p0 - 6, y + 4, "end", label);
}

static void ticks(struct svg_plot *p, const struct svg_scale *s, int n, void (*tick)(struct svg_plot *, double, const char *))
{
	char label[32];
	double v[SVG_ROUNDS];
	int found = svg_rounds(s, n, v);
	for (int i = 0; i < found; i++) {
		snprintf(label, sizeof label, "%.6g", v[i]);
		tick(p, v[i], label);
	}
}

void svg_x_ticks(struct svg_plot *p, int n)
{
	ticks(p, &p->x, n, svg_x_tick);
}

void svg_y_ticks(struct svg_plot *p, int n)
{
	ticks(p, &p->y, n, svg_y_tick);
}

void svg_log_ticks(struct svg_plot *p, bool y, const char *(*format)(char *buf, double v))
{
	const struct svg_scale *s = y ? &p->y : &p->x;
	static const double few[] = {1, 2, 5}, many[] = {1, 1.5, 2, 3, 5, 7};
	bool near = s->hi / s->lo < 12;
	int n = near ? 6 : 3;
	char text[64];
	if (s->hi / s->lo < 2.5) { /* hardly bent: round steps */
		double v[SVG_ROUNDS];
		int found = svg_rounds(s, 4, v);
		for (int i = 0; i < found; i++)
			(y ? svg_y_tick : svg_x_tick)(p, v[i], format(text, v[i]));
		return;
	}
	if (!isfinite(s->hi))
		return;
	for (double decade = pow(10, floor(log10(s->lo))); decade > 0 && decade <= s->hi; decade *= 10)
		for (int i = 0; i < n; i++) {
			double v = decade * (near ? many[i] : few[i]);
			if (v < s->lo || v > s->hi)
				continue;
			(y ? svg_y_tick : svg_x_tick)(p, v, format(text, v));
		}
}

void svg_labels(struct svg_plot *p, const char *x_label, const char *y_label)
{
	double middle = (p->y.p0 + p->y.p1) / 2;
	svg_text(p->out, "l", (p->x.p0 + p->x.p1) / 2, p->y.p0 + 32, "middle", x_label);
	strbuf_printf(p->out, "<text class=\"l\" transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">",
		p->x.p0 - 36, middle);
	html_text(p->out, y_label);
	strbuf_puts(p->out, "</text>\n");
}

/* ---- marks ---- */

void svg_line(struct svg_plot *p, const char *class, const double *x, const double *y, int n)
{
	bool begun = false;
	strbuf_printf(p->out, "<path class=\"%s\" d=\"", class);
	for (int i = 0; i < n; i++) {
		if (isnan(y[i]))
			continue;
		strbuf_printf(p->out, "%c%.1f %.1f", begun ? 'L' : 'M', svg_at(&p->x, x[i]), svg_at(&p->y, y[i]));
		begun = true;
	}
	strbuf_puts(p->out, begun ? "\"/>" : "M0 0\"/>");
}

/* One closed shape for each stretch without a NAN: along the upper edge, back along the lower one. */
void svg_band(struct svg_plot *p, const double *x, const double *lo, const double *hi, int n)
{
	for (int from = 0, to; from < n; from = to + 1) {
		for (to = from; to < n && !isnan(lo[to]) && !isnan(hi[to]); to++)
			;
		if (to - from < 2)
			continue;
		strbuf_puts(p->out, "<path class=\"band\" d=\"");
		for (int i = from; i < to; i++)
			strbuf_printf(p->out, "%c%.1f %.1f", i > from ? 'L' : 'M', svg_at(&p->x, x[i]), svg_at(&p->y, hi[i]));
		for (int i = to - 1; i >= from; i--)
			strbuf_printf(p->out, "L%.1f %.1f", svg_at(&p->x, x[i]), svg_at(&p->y, lo[i]));
		strbuf_puts(p->out, "z\"/>");
	}
}

void svg_whisker(struct svg_plot *p, double x, double lo, double hi)
{
	if (!isnan(lo) && !isnan(hi))
		strbuf_printf(p->out, "<path class=\"eb\" d=\"M%.1f %.1fV%.1f\"/>", svg_at(&p->x, x), svg_at(&p->y, lo),
			svg_at(&p->y, hi));
}

void svg_marker(struct strbuf *out, int kind, double x, double y, double r)
{
	switch (kind % SVG_MARKERS) {
	case 0:
		strbuf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", x, y, r);
		break;
	case 1:
		strbuf_printf(
			out, "<path d=\"M%.1f %.1fh%.1fv%.1fh%.1fz\"/>", x - r * .9, y - r * .9, r * 1.8, r * 1.8, -r * 1.8);
		break;
	case 2:
		strbuf_printf(out, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y - r * 1.2, r * 1.15, r * 2, -r * 2.3);
		break;
	case 3:
		strbuf_printf(out, "<path d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"/>", x, y - r * 1.35, r * 1.35, r * 1.35,
			-r * 1.35, r * 1.35, -r * 1.35, -r * 1.35);
		break;
	case 4:
		strbuf_printf(out, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y + r * 1.2, r * 1.15, -r * 2, -r * 2.3);
		break;
	default:
		strbuf_printf(out, "<path class=\"x\" d=\"M%.1f %.1fl%.1f %.1fm0 %.1fl%.1f %.1f\"/>", x - r, y - r, 2 * r, 2 * r,
			-2 * r, -2 * r, 2 * r);
	}
}

static void title_and_close(struct strbuf *out, const char *title)
{
	strbuf_puts(out, "><title>");
	html_text(out, title);
	strbuf_puts(out, "</title></rect>");
}

void svg_rect(struct strbuf *out, const char *class, double x, double y, double w, double h, const char *title)
{
	strbuf_printf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"", class, x, y, w, h);
	title_and_close(out, title);
}

/* A viridis-like map: six stops, linear in between. */
void svg_square(struct strbuf *out, double t, double x, double y, double w, double h, const char *title)
{
	static const int stop[6][3] = {
		{68, 1, 84}, {65, 68, 135}, {42, 120, 142}, {34, 168, 132}, {122, 209, 81}, {253, 231, 37}};
	double at = fmin(fmax(t, 0), 1) * 5;
	int i = at >= 5 ? 4 : (int)at, rgb[3];
	for (int k = 0; k < 3; k++)
		rgb[k] = (int)lround(stop[i][k] + (at - i) * (stop[i + 1][k] - stop[i][k]));
	strbuf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#%02x%02x%02x\"", x, y, w, h,
		rgb[0], rgb[1], rgb[2]);
	title_and_close(out, title);
}

void svg_colours(struct strbuf *out, double x, double y, double w, const char *lo, const char *hi, const char *what)
{
	enum { STEPS = 24 };
	svg_text(out, "t", x, y + 20, "start", lo);
	for (int i = 0; i < STEPS; i++)
		svg_square(out, i / (STEPS - 1.0), x + w * i / STEPS, y, w / STEPS + .4, 8, "");
	svg_text(out, "t", x + w, y + 20, "end", hi);
	svg_text(out, "t", x + w + 8, y + 8, "start", what);
}
