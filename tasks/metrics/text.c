/* text.c: Unicode text operations of the metrics (metrics.h), on utf8proc's tables. */
#include <ctype.h>
#include <stdlib.h>
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

bool text_is_digit(int32_t code)
{
	return code < 128 ? code >= '0' && code <= '9' : utf8proc_category(code) == UTF8PROC_CATEGORY_ND;
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

bool text_is_punctuation_zh(int32_t code)
{
	static const char chinese[] =
		"！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗"
		"〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏";
	const char *p = chinese;
	if (code < 128)
		return ispunct(code);
	for (int32_t of; (of = text_next(&p));)
		if (of == code)
			return true;
	return false;
}

static bool is_cased(int32_t c)
{
	return utf8proc_isupper(c) || utf8proc_islower(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

/* Unicode's Case_Ignorable: what stands inside a word without being a letter of it. */
static bool is_case_ignorable(int32_t c)
{
	static const int32_t inside[] = {'\'', '.', ':', 0xb7, 0x387, 0x55f, 0x5f4, 0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
		0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
		if (c == inside[i])
			return true;
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_SK:
		return true;
	default:
		return false;
	}
}

/* Sigma ends a word: the last character before `rest` that is not ignorable was cased, the first one of rest is not. */
static bool is_last_letter(bool after_cased, const char *rest)
{
	int32_t c = text_next(&rest);
	while (after_cased && c && is_case_ignorable(c))
		c = text_next(&rest);
	return after_cased && !is_cased(c);
}

void text_lower(struct strbuf *b, const char *s)
{
	enum { SIGMA = 0x3a3, LAST_SIGMA = 0x3c2, DOTTED_I = 0x130 /* the one capital whose lower case is two characters */ };
	bool after_cased = false;
	for (int32_t c; (c = text_next(&s));) {
		if (c == DOTTED_I)
			strbuf_puts(b, "i\xcc\x87");
		else
			text_put(b, c == SIGMA && is_last_letter(after_cased, s) ? LAST_SIGMA : utf8proc_tolower(c));
		if (!is_case_ignorable(c))
			after_cased = is_cased(c);
	}
}

/* Letters without a capital of their own (ligatures, some with accents) become what they fold to, in capitals. */
void text_upper(struct strbuf *b, const char *s)
{
	for (int32_t c; (c = text_next(&s));) {
		utf8proc_int32_t folded[8];
		utf8proc_ssize_t n = c < 128 || utf8proc_category(c) == UTF8PROC_CATEGORY_LU
					     ? 1
					     : utf8proc_decompose_char(c, folded, 8, UTF8PROC_CASEFOLD, &(int){0});
		if (n < 2)
			text_put(b, utf8proc_toupper(c));
		for (int i = 0; n > 1 && i < n; i++)
			text_put(b, utf8proc_toupper(folded[i]));
	}
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

char *text_without_nul(const char *s, size_t len)
{
	char *copy = mem_new(len + 1, 1);
	memcpy(copy, s, len);
	for (char *p = copy; (p = memchr(p, '\0', (size_t)(copy + len - p)));)
		*p = 1;
	return copy;
}

char *text_split(char **rest)
{
	const char *p = *rest, *next = p;
	for (; text_is_space(text_next(&next)); p = next)
		;
	const char *word = p, *end = p;
	for (int32_t c; (c = text_next(&p)) && !text_is_space(c); end = p)
		;
	*rest = (char *)p;
	if (end == word)
		return NULL;
	*(char *)end = '\0';
	return (char *)word;
}

char *text_first_line(const char *s)
{
	s += strspn(s, "\n");
	struct strbuf b = {0};
	strbuf_add(&b, s, strcspn(s, "\n"));
	return strbuf_take(&b);
}

struct codes text_codes(const char *s)
{
	size_t len = strlen(s);
	struct codes c = {.v = mem_new(len + 1, sizeof(*c.v)), .at = mem_new(len + 1, sizeof(*c.at))};
	for (const char *p = s; (c.v[c.n] = text_next(&p));)
		c.at[++c.n] = (size_t)(p - s);
	return c;
}

void codes_free(struct codes *c)
{
	free(c->v);
	free(c->at);
}
