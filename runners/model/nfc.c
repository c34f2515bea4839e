/* nfc.c: NFC with utf8proc's tables and composition, and with our own canonical ordering: utf8proc sorts a run of combining
 * marks by exchanging neighbours, which takes minutes on 400 kB of them. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "runners/model/utf8.h"

static const utf8proc_option_t OPTIONS = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
enum { DECOMPOSED_MAX = 8 }; /* code points of one character; the longest there is has 4 */

/* Nothing below U+0300 combines or decomposes under NFC, and U+0300 is where the first byte reaches 0xCC. */
static bool quick_check(const char *s, size_t n)
{
	unsigned char highest = 0;
	for (size_t i = 0; i < n; i++)
		highest = (unsigned char)s[i] > highest ? (unsigned char)s[i] : highest;
	return highest < 0xCC;
}

/* Fully decomposed code points in the order of the text, with room for one more. */
static int32_t *decompose(const char *s, size_t n, size_t *count)
{
	int32_t *v = NULL;
	size_t cap = 0, used = 0;
	for (size_t i = 0; i < n;) {
		int step = utf8_step((const unsigned char *)s + i, n - i), boundary = 0;
		int32_t code = (int32_t)utf8_code((const unsigned char *)s + i, step);
		if (cap < used + DECOMPOSED_MAX + 1)
			v = mem_grow(v, cap = 2 * used + n / 2 + 64, sizeof *v);
		used += (size_t)utf8proc_decompose_char(code, v + used, DECOMPOSED_MAX, OPTIONS, &boundary);
		i += (size_t)step;
	}
	*count = used;
	return v;
}

static int combining_class(int32_t code)
{
	return utf8proc_get_property(code)->combining_class;
}

/* Stable, by combining class. */
static void order_run(int32_t *v, size_t n, int32_t *scratch)
{
	size_t place[257] = {0};
	for (size_t i = 0; i < n; i++)
		place[combining_class(v[i]) + 1]++;
	for (int c = 1; c < 257; c++)
		place[c] += place[c - 1];
	for (size_t i = 0; i < n; i++)
		scratch[place[combining_class(v[i])]++] = v[i];
	memcpy(v, scratch, n * sizeof *v);
}

static void order(int32_t *v, size_t n)
{
	int32_t *scratch = mem_new(n, sizeof *scratch);
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i; end < n && combining_class(v[end]) > 0;)
			end++;
		if (end > i + 1)
			order_run(v + i, end - i, scratch);
		end += end == i;
	}
	free(scratch);
}

int utf8_nfc(const char *s, size_t n, char **out, size_t *out_len, char err[ERR_LEN])
{
	*out = NULL;
	*out_len = n;
	if (quick_check(s, n))
		return 0;
	size_t count;
	int32_t *v = decompose(s, n, &count);
	order(v, count);
	utf8proc_ssize_t len = utf8proc_reencode(v, (utf8proc_ssize_t)count, OPTIONS); /* composes, and writes UTF-8 over v */
	if (len < 0) {
		free(v);
		return err_set(err, "normalising %zu bytes of text to NFC: %s", n, utf8proc_errmsg(len));
	}
	*out = (char *)v;
	*out_len = (size_t)len;
	return 0;
}
