/* utf8.c: see utf8.h. */
#include "harness/base/utf8.h"

/* Length by the first byte and the range of the second, which shuts out overlong forms, surrogates and > U+10FFFF. */
static int lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
	*lo = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
	*hi = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
	return c < 0x80 ? 1 : c < 0xC2 ? -1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : -1;
}

int utf8_step(const unsigned char *s, size_t n)
{
	unsigned char lo, hi;
	int len = lead(s[0], &lo, &hi);
	for (int i = 1; i < len; i++) {
		if ((size_t)i >= n)
			return 0;
		if (s[i] < lo || s[i] > hi)
			return -i;
		lo = 0x80;
		hi = 0xBF;
	}
	return len;
}

bool utf8_valid(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	for (size_t i = 0; i < n;) {
		int step = p[i] < 0x80 ? 1 : utf8_step(p + i, n - i);
		if (step <= 0)
			return false;
		i += (size_t)step;
	}
	return true;
}

void utf8_repair(const char *s, size_t n, struct strbuf *out)
{
	for (size_t i = 0; i < n;) {
		int step = utf8_step((const unsigned char *)s + i, n - i);
		if (step > 0)
			strbuf_add(out, s + i, (size_t)step);
		else
			strbuf_puts(out, "\xEF\xBF\xBD");
		i += step > 0 ? (size_t)step : step < 0 ? (size_t)-step : n - i;
	}
}

uint32_t utf8_code(const unsigned char *s, int len)
{
	static const unsigned char first_bits[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
	uint32_t code = s[0] & first_bits[len];
	for (int i = 1; i < len; i++)
		code = code << 6 | (s[i] & 0x3F);
	return code;
}

bool utf8_is_space(uint32_t c)
{
	return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
	       c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
