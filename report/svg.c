/* svg.c: see svg.h. */
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- text ---- */

/* Length of the UTF-8 character at s when it is one that XML allows, else 0. */
static int xml_char(const unsigned char *s)
{
	if (s[0] < 0x80)
		return s[0] >= 0x20 ? s[0] != 0x7f : s[0] == '\t' || s[0] == '\n' || s[0] == '\r';
	int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	uint32_t c = s[0] & (0xff >> (n + 1));
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	for (int i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	bool bad = c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) || c == 0xfffe || c == 0xffff || c < 0xa0;
	return bad ? 0 : n;
}

static void html_char(struct strbuf *out, const char *s, int len)
{
	static const char special[] = "<>&\"'";
	static const char *const entity[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};
	const char *at = len == 1 ? strchr(special, *s) : NULL;
	if (len == 0)
		strbuf_puts(out, "\xef\xbf\xbd");
	else if (at)
		strbuf_puts(out, entity[at - special]);
	else
		strbuf_add(out, s, (size_t)len);
}

void html_cut(struct strbuf *out, const char *s, size_t max)
{
	const char *start = s;
	while (s && *s && (size_t)(s - start) < max) {
		int len = xml_char((const unsigned char *)s);
		html_char(out, s, len);
		s += len ? len : 1;
	}
	if (s && *s)
		strbuf_printf(out, " … (%zu more bytes)", strlen(s));
}

void html_text(struct strbuf *out, const char *s)
{
	html_cut(out, s, SIZE_MAX);
}

void svg_text(struct strbuf *out, const char *class, double x, double y, const char *anchor, const char *text)
{
	strbuf_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", class, x, y, anchor);
	html_text(out, text);
	strbuf_puts(out, "</text>");
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

struct svg_plot svg_begin(struct strbuf *out, int w, int h, const char *title, const char *desc)
{
	strbuf_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", w, h);
	html_text(out, title);
	strbuf_puts(out, ". ");
	html_text(out, desc);
	strbuf_puts(out, "\">");
	svg_text(out, "h", 48, 16, "start", title);
	return (struct svg_plot){out, {0, 1, 48, w - 12, false}, {0, 1, h - 40, 28, false}};
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
	double step = svg_step(s->hi - s->lo, n);
	for (int i = (int)ceil(s->lo / step - 1e-9); i * step <= s->hi + step * 1e-6; i++) {
		snprintf(label, sizeof label, "%.6g", i * step);
		tick(p, i * step, label);
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
