/* json_bytes.c: see json_bytes.h. */
#include "harness/json_bytes.h"

#include "harness/base/base.h"

#include <utf8proc.h>

json_t *json_bytes(const char *s)
{
	struct strbuf b = {0};
	utf8proc_int32_t code;
	strbuf_puts(&b, "");
	while (*s) {
		utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s, -1, &code);
		if (n > 0)
			strbuf_add(&b, s, (size_t)n);
		else
			strbuf_puts(&b, "\xEF\xBF\xBD");
		s += n > 0 ? n : 1;
	}
	json_t *text = json_string(b.text);
	strbuf_free(&b);
	return text;
}
