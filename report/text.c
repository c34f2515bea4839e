/* text.c: see text.h. */
#include "report/text.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* The UTF-8 character at s: its length and code point; length 0 when it is none that XML allows. */
static int character(const char *text, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)text;
	*code = s[0];
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
	*code = c;
	bool bad = c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) || c == 0xfffe || c == 0xffff || c < 0xa0;
	return bad ? 0 : n;
}

static bool turns_direction(uint32_t c)
{
	return (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* Writes one character as it may stand in any text; true when it was one of the replaced ones. */
static bool replaced(struct strbuf *out, int len, uint32_t code)
{
	if (len == 0)
		strbuf_puts(out, "\xef\xbf\xbd");
	else if (turns_direction(code))
		strbuf_printf(out, "[U+%04X]", code);
	else
		return false;
	return true;
}

/* The special character's stand-in, or NULL. */
static const char *entity(char c)
{
	return c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : c == '\'' ? "&#39;" : NULL;
}

void html_cut(struct strbuf *out, const char *s, size_t max)
{
	const char *start = s;
	uint32_t code;
	while (s && *s && (size_t)(s - start) < max) {
		int len = character(s, &code);
		const char *special = len == 1 ? entity(*s) : NULL;
		if (special)
			strbuf_puts(out, special);
		else if (!replaced(out, len, code))
			strbuf_add(out, s, (size_t)len);
		s += len ? len : 1;
	}
	if (s && *s)
		strbuf_printf(out, " … (%zu more bytes)", strlen(s));
}

void html_text(struct strbuf *out, const char *s)
{
	html_cut(out, s, SIZE_MAX);
}

void json_text(struct strbuf *out, const char *s, size_t max)
{
	const char *start = s;
	uint32_t code;
	strbuf_puts(out, "\"");
	while (s && *s && (size_t)(s - start) < max) {
		int len = character(s, &code);
		if (len == 1 && (code < 0x20 || code == '<'))
			strbuf_printf(out, code == '\n' ? "\\n" : "\\u%04x", code);
		else if (len == 1 && (*s == '"' || *s == '\\'))
			strbuf_printf(out, "\\%c", *s);
		else if (!replaced(out, len, code))
			strbuf_add(out, s, (size_t)len);
		s += len ? len : 1;
	}
	if (s && *s)
		strbuf_printf(out, " … (%zu more bytes)", strlen(s));
	strbuf_puts(out, "\"");
}

/* ---- public copies ---- */

/* A path begins where a "/", "~/" or "./" follows a character that ends words; it ends before white space or a quote. */
static bool path_begins(const char *start, const char *s)
{
	bool head = s == start || strchr(" \t\n\"'=:,[({", s[-1]);
	bool root = *s == '/' && s[1] && s[1] != '/' && s[1] != ' ';
	bool relative = (*s == '~' && s[1] == '/') || (*s == '.' && (s[1] == '/' || (s[1] == '.' && s[2] == '/')));
	return head && (root || relative);
}

static size_t path_length(const char *s)
{
	return strcspn(s, " \t\n\"',;:)]}");
}

static const char *last_part(const char *path, size_t len, size_t *part_len)
{
	size_t end = len;
	while (end > 1 && path[end - 1] == '/')
		end--;
	size_t begin = end;
	while (begin > 0 && path[begin - 1] != '/')
		begin--;
	*part_len = end - begin;
	return path + begin;
}

char *text_public(const char *s, const char *host)
{
	struct strbuf out = {0};
	const char *start = s;
	size_t host_len = host ? strlen(host) : 0;
	while (*s) {
		bool word = s == start || !isalnum((unsigned char)s[-1]);
		if (path_begins(start, s)) {
			size_t len = path_length(s), part;
			const char *last = last_part(s, len, &part);
			strbuf_add(&out, last, part);
			s += len;
		} else if (host_len && word && strncmp(s, host, host_len) == 0 && !isalnum((unsigned char)s[host_len])) {
			strbuf_puts(&out, "host");
			s += host_len;
		} else {
			strbuf_add(&out, s++, 1);
		}
	}
	return strbuf_take(&out);
}
