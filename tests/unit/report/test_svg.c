/* The plot layer: scales, ticks, escaping. */
#include "report/svg.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect_text(const char *in, const char *out)
{
	struct strbuf b = {0};
	html_text(&b, in);
	assert_string_equal(b.text ? b.text : "", out);
	strbuf_free(&b);
}

static void hostile_text_is_escaped(void **state)
{
	(void)state;
	expect_text("</script>\"'&<img onerror>", "&lt;/script&gt;&quot;&#39;&amp;&lt;img onerror&gt;");
	expect_text("plain — ünïcödé 中 😀\n\t", "plain — ünïcödé 中 😀\n\t");
	expect_text(NULL, "");
}

#define REPLACED "\xef\xbf\xbd"

/* Control characters, cut and overlong UTF-8, surrogates, U+FFFE: what no XML reader takes becomes U+FFFD. */
static void bad_bytes_are_replaced(void **state)
{
	(void)state;
	expect_text("a\001b\x7f", "a" REPLACED "b" REPLACED);
	expect_text("\xc3", REPLACED);
	expect_text("\xe4\xb8<", REPLACED REPLACED "&lt;");
	expect_text("\xc0\xbc", REPLACED REPLACED);              /* overlong < */
	expect_text("\xed\xa0\x80", REPLACED REPLACED REPLACED); /* a surrogate */
	expect_text("\xef\xbf\xbe", REPLACED REPLACED REPLACED);
	expect_text("\xf5\x80\x80\x80", REPLACED REPLACED REPLACED REPLACED);
	expect_text("\xc2\x85", REPLACED REPLACED); /* a C1 control */
}

static void cutting_keeps_characters(void **state)
{
	(void)state;
	struct strbuf b = {0};
	html_cut(&b, "aä中<bc", 4);
	assert_string_equal(b.text, "aä中 … (3 more bytes)");
	strbuf_free(&b);
}

static void scales(void **state)
{
	(void)state;
	struct svg_scale linear = {0, 1, 100, 0, false}, log = {1, 100, 0, 200, true};
	assert_true(svg_at(&linear, .25) == 75);
	assert_true(fabs(svg_at(&log, 10) - 100) < 1e-9);
	assert_true(fabs(svg_step(1, 5) - .2) < 1e-12);
	assert_true(svg_step(1200, 4) == 500);
	assert_true(svg_step(70, 4) == 20);
}

static int count(const char *text, const char *what)
{
	int n = 0;
	for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
		n++;
	return n;
}

static const char *plain(char *buf, double v)
{
	snprintf(buf, 64, "%g", v);
	return buf;
}

/* Where 1, 2, 5 would leave one label or none, a short logarithmic scale has round steps. */
static void short_log_scales_have_several_labels(void **state)
{
	(void)state;
	struct strbuf b = {0};
	struct svg_plot p = svg_begin(&b, SVG_WIDE, 280, "title", "words");
	p.y = (struct svg_scale){1.05, 1.45, 240, 28, true};
	svg_log_ticks(&p, true, plain);
	svg_end(&p);
	assert_int_equal(count(b.text, "class=\"t\""), 4); /* 1.1 to 1.4 */
	assert_int_equal(count(b.text, ">1.3</text>"), 1);
	strbuf_free(&b);
}

/* Scales that a database of somebody else may ask for: no ticks or a few, and an end. */
static void scales_without_an_extent_end(void **state)
{
	(void)state;
	static const struct svg_scale odd[] = {{0, 0}, {7, 7}, {1, 1 + 2.3e-16}, {1, 1 + 1e-12}, {-1e300, 1e300}, {0, INFINITY}, {-INFINITY, 1},
		{NAN, NAN}, {3, 1}, {-0.05, .02}, {1e18, 1e18 + 512}, {5e-324, 1}, {5e-324, INFINITY}, {1, 1e308}, {INFINITY, INFINITY}};
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
		for (int log = 0; log < 2; log++) {
			double v[SVG_ROUNDS];
			struct strbuf b = {0};
			struct svg_plot p = svg_begin(&b, 300, 200, "t", "d");
			p.y.lo = odd[i].lo, p.y.hi = odd[i].hi, p.y.log = log;
			for (int k = svg_rounds(&p.y, 5, v); k-- > 0;)
				assert_true(isfinite(v[k]) && !(v[k] == 0 && signbit(v[k])));
			log ? svg_log_ticks(&p, true, plain) : svg_y_ticks(&p, 5);
			assert_true(b.len < 200000);
			strbuf_free(&b);
		}
}

/* 0, .2, .4, .6, .8, 1: six ticks in spite of rounding. A NAN cuts a band in two and is passed over by a line. */
static void marks(void **state)
{
	(void)state;
	struct strbuf b = {0};
	struct svg_plot p = svg_begin(&b, 300, 200, "t", "d");
	svg_y_ticks(&p, 5);
	assert_int_equal(count(b.text, "class=\"t\""), 6);
	const double x[] = {0, .2, .4, .6, .8}, y[] = {.1, .2, NAN, .4, .5};
	svg_band(&p, x, y, y, 5);
	assert_int_equal(count(b.text, "class=\"band\""), 2);
	svg_line(&p, "ln", x, y, 5);
	svg_end(&p);
	assert_null(strstr(b.text, "nan"));
	strbuf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(short_log_scales_have_several_labels),
		cmocka_unit_test(hostile_text_is_escaped), cmocka_unit_test(bad_bytes_are_replaced),
		cmocka_unit_test(cutting_keeps_characters), cmocka_unit_test(scales), cmocka_unit_test(scales_without_an_extent_end), cmocka_unit_test(marks)};
	return cmocka_run_group_tests_name("svg", tests, NULL, NULL);
}
