/* json_bytes.c: see json_bytes.h. */
#include "harness/json_bytes.h"

#include "harness/base/utf8.h"

#include <string.h>

json_t *json_bytes(const char *s)
{
	struct strbuf b = {0};
	strbuf_puts(&b, "");
	utf8_repair(s, strlen(s), &b);
	json_t *text = json_string(b.text);
	strbuf_free(&b);
	return text;
}
