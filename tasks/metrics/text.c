/* text.c: Unicode text operations of the metrics (metrics.h), on utf8proc's tables. */
#include <string.h>
#include <utf8proc.h>

#include "tasks/metrics/metrics.h"

int32_t text_next(const char **p)
{
	utf8proc_int32_t code;
	if (!**p)
		return 0;
	utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)*p, -1, &code);
	*p += n > 0 ? n : 1;
	return n > 0 ? code : 0xfffd;
}

void text_put(struct strbuf *b, int32_t code)
{
	utf8proc_uint8_t bytes[4];
	strbuf_add(b, (const char *)bytes, (size_t)utf8proc_encode_char(code, bytes));
}

bool text_is_space(int32_t code)
{
	return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0x2028 || code == 0x2029 ||
	       (code > 0x7f && utf8proc_category(code) == UTF8PROC_CATEGORY_ZS);
}

bool text_is_word(int32_t code)
{
	switch (utf8proc_category(code)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_NO:
		return true;
	default:
		return false;
	}
}

void text_lower(struct strbuf *b, const char *s)
{
	for (int32_t c; (c = text_next(&s));)
		if (c == 0x130) /* the one capital whose lower case is two characters */
			strbuf_puts(b, "i\xcc\x87");
		else
			text_put(b, utf8proc_tolower(c));
}

size_t text_strip(const char **s)
{
	const char *p = *s, *end;
	for (const char *next = p; text_is_space(text_next(&next)); p = next)
		;
	*s = end = p;
	for (int32_t c; (c = text_next(&p));)
		if (!text_is_space(c))
			end = p;
	return (size_t)(end - *s);
}
