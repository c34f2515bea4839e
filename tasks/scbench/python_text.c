/* python_text.c: str() and repr() of JSON values (python_text.h). */
#include "tasks/scbench/python_text.h"

#include <stdlib.h>
#include <string.h>

static void repr_text(struct strbuf *b, const char *s)
{
	static const char named[] = "\n\t\r\\", letters[] = "ntr\\";
	char quote = strchr(s, '\'') && !strchr(s, '"') ? '"' : '\'';
	strbuf_add(b, &quote, 1);
	for (; *s; s++) {
		const char *at = strchr(named, *s);
		if (at)
			strbuf_printf(b, "\\%c", letters[at - named]);
		else if (*s == quote)
			strbuf_printf(b, "\\%c", *s);
		else if ((unsigned char)*s < 32 || *s == 127)
			strbuf_printf(b, "\\x%02x", *s);
		else
			strbuf_add(b, s, 1);
	}
	strbuf_add(b, &quote, 1);
}

/* The shortest digits that read back as the same number; 1e16 and above as an exponent, as Python does. */
static void repr_real(struct strbuf *b, double d)
{
	char text[40];
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, d);
		if (strtod(text, NULL) == d)
			break;
	}
	if (strchr(text, 'e') && d < 1e16 && d > -1e16 && (d >= 1e-4 || d <= -1e-4))
		snprintf(text, sizeof(text), "%.0f", d);
	strbuf_puts(b, text);
	if (!strpbrk(text, ".en"))
		strbuf_puts(b, ".0");
}

static int repr(struct strbuf *b, const json_t *v)
{
	if (json_is_string(v))
		return repr_text(b, json_string_value(v)), 0;
	if (!json_is_array(v))
		return python_str(b, v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		strbuf_puts(b, i ? ", " : "[");
		if (repr(b, json_array_get(v, i)))
			return -1;
	}
	strbuf_puts(b, json_array_size(v) ? "]" : "[]");
	return 0;
}

int python_str(struct strbuf *b, const json_t *v)
{
	if (json_is_string(v))
		strbuf_puts(b, json_string_value(v));
	else if (json_is_integer(v))
		strbuf_printf(b, "%lld", (long long)json_integer_value(v));
	else if (json_is_real(v))
		repr_real(b, json_real_value(v));
	else if (json_is_boolean(v))
		strbuf_puts(b, json_is_true(v) ? "True" : "False");
	else if (json_is_null(v))
		strbuf_puts(b, "None");
	else
		return json_is_array(v) ? repr(b, v) : -1;
	return 0;
}
