/* svg.h: a small plot layer that writes SVG into a text: scales, ticks, axes, lines, bands, markers, bars, heat squares.
 *
 * One plot is one <svg> with its own view box; the page's CSS scales it. Colours are never written here: shapes carry classes
 * (cN = series colour N, g = grid, t = tick label ...), so that the page's light and dark sheets decide. Numbers are written with
 * one decimal, so that the same data gives the same bytes. */
#ifndef KVB_REPORT_SVG_H
#define KVB_REPORT_SVG_H

#include "report/text.h"

struct svg_scale {
	double lo, hi; /* data */
	double p0, p1; /* pixels; p0 > p1 for a y axis */
	bool log;      /* lo > 0 */
};
double svg_at(const struct svg_scale *s, double v);
/* The step (1, 2 or 5 times a power of ten) that cuts range into about n parts. */
double svg_step(double range, int n);
enum { SVG_ROUNDS = 16 };
/* Multiples of that step inside a linear scale, from the lowest; returns how many: none where the scale is no finite stretch. */
int svg_rounds(const struct svg_scale *s, int n, double v[SVG_ROUNDS]);

struct svg_plot {
	struct strbuf *out;
	struct svg_scale x, y;
};
/* Charts of a row that holds two are so wide: on a telephone (380 pixels) one fills the row and its texts stay readable. */
enum { SVG_WIDE = 420 };
/* Opens <svg> of w x h with room for axes; title is drawn on top and read to the blind, together with desc. */
struct svg_plot svg_begin(struct strbuf *out, int w, int h, const char *title, const char *desc);
void svg_end(struct svg_plot *p);
void svg_x_tick(struct svg_plot *p, double v, const char *label); /* label NULL: grid line only */
void svg_y_tick(struct svg_plot *p, double v, const char *label);
void svg_x_ticks(struct svg_plot *p, int n); /* round values on a linear axis */
void svg_y_ticks(struct svg_plot *p, int n);
void svg_labels(struct svg_plot *p, const char *x_label, const char *y_label);

/* Points in data coordinates; entries with a NAN are left out (a band is cut there). */
void svg_line(struct svg_plot *p, const char *class, const double *x, const double *y, int n);
void svg_band(struct svg_plot *p, const double *x, const double *lo, const double *hi, int n);
void svg_whisker(struct svg_plot *p, double x, double lo, double hi);
enum { SVG_MARKERS = 6 };
void svg_marker(struct strbuf *out, int kind, double px, double py, double radius); /* kind modulo SVG_MARKERS; pixels */
/* Pixels; title = tooltip. svg_square also carries its own colour, from 0 dark to 1 bright. */
void svg_rect(struct strbuf *out, const char *class, double x, double y, double w, double h, const char *title);
void svg_square(struct strbuf *out, double t, double x, double y, double w, double h, const char *title);
/* anchor: "start", "middle", "end". svg_label cuts the text to so many characters; the whole stands in its tooltip. */
void svg_text(struct strbuf *out, const char *class, double x, double y, const char *anchor, const char *text);
void svg_label(struct strbuf *out, const char *class, double x, double y, const char *anchor, const char *text, int characters);
/* Ticks of a logarithmic scale: 1, 2, 5 (and 1.5, 3, 7 on a short one) times powers of ten, round steps where it spans less than 2.5
 * times its start; labelled by `format` (buf >= 64). */
void svg_log_ticks(struct svg_plot *p, bool y, const char *(*format)(char *buf, double v));
/* A bar of the colours of svg_square from lo to hi with their values. */
void svg_colours(struct strbuf *out, double x, double y, double w, const char *lo, const char *hi, const char *what);

#endif
