/* fields.c: any text as a field of a table in CSV, LaTeX or Markdown. See base.h. */
#include "harness/base/base.h"

#include <stdlib.h>
#include <string.h>

/* Would a spreadsheet run it? Signs begin numbers, too, but -1+cmd() is none. */
static bool is_formula(const char *s)
{
	char *end;
	strtod(s, &end);
	return *s && strchr("=+-@\t", *s) && *end;
}

void csv_text(struct strbuf *out, const char *s)
{
	bool formula = s && is_formula(s);
	if (!s || (!formula && !s[strcspn(s, ",\"\r\n")])) {
		strbuf_puts(out, s ? s : "");
		return;
	}
	strbuf_puts(out, formula ? "\"'" : "\"");
	for (; *s; s++)
		strbuf_puts(out, *s == '"' ? "\"\"" : (char[]){*s, 0});
	strbuf_puts(out, "\"");
}

/* What stands for a character which LaTeX reads as its own, or whose place in its default fonts holds another one (< prints as an
 * inverted exclamation mark, | as a dash); NULL = itself. */
static const char *latex_special(char c)
{
	static const char *const names[] = {['\\'] = "backslash",
		['~'] = "asciitilde",
		['^'] = "asciicircum",
		['<'] = "less",
		['>'] = "greater",
		['|'] = "bar"};
	return c > 0 && (size_t)c < sizeof names / sizeof *names ? names[(size_t)c] : NULL;
}

void latex_text(struct strbuf *out, const char *s)
{
	strbuf_puts(out, s && *s && strchr("[*", *s) ? "{}" : ""); /* at a row's front it would belong to the \\ before */
	for (; s && *s; s++) {
		if (strchr("&%$#_{}", *s))
			strbuf_printf(out, "\\%c", *s);
		else if (latex_special(*s))
			strbuf_printf(out, "\\text%s{}", latex_special(*s));
		else if (*s == '"')
			strbuf_puts(out, "\\symbol{34}");
		else if (strncmp(s, "·", 2) == 0)
			s++, strbuf_puts(out, "$\\cdot$");
		else if (strncmp(s, "×", 2) == 0)
			s++, strbuf_puts(out, "$\\times$");
		else if (strncmp(s, "–", 3) == 0)
			s += 2, strbuf_puts(out, "--");
		else if (strncmp(s, "−", 3) == 0)
			s += 2, strbuf_puts(out, "$-$");
		else
			strbuf_puts(out, (unsigned char)*s < 0x20 || *s == 0x7f ? " " : (char[]){*s, 0});
	}
}

void markdown_text(struct strbuf *out, const char *s)
{
	for (; s && *s; s++)
		if (strchr("|<>*_`\\[]&~", *s))
			strbuf_printf(out, "\\%c", *s);
		else
			strbuf_puts(out, (unsigned char)*s < 0x20 || *s == 0x7f ? " " : (char[]){*s, 0});
}
