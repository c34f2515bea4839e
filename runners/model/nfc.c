/* nfc.c: NFC of Unicode 9, with utf8proc's tables and composition, and with our own canonical ordering: utf8proc sorts a run of
 * combining marks by exchanging neighbours, which takes minutes on 400 kB of them. */
#include "runners/model/nfc.h"

#include "harness/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const utf8proc_option_t OPTIONS = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
enum { DECOMPOSED_MAX = 8 }; /* code points of one character; the longest there is has 4 */

/* Characters that change nothing and are changed by nothing: what reorders, decomposes or composes only since Unicode 10 (here up
 * to 18), because the reference's tables (tokenizers 0.23) are Unicode 9's and utf8proc's are as new as its package; and U+11A7,
 * which utf8proc 2.8 swallows behind a Hangul syllable. */
static const struct {
	uint32_t first, last;
} inert[] = {{0x05C8, 0x05C9}, {0x07FD, 0x07FD}, {0x0897, 0x089F}, {0x08CA, 0x08D3}, {0x09FE, 0x09FE}, {0x0C3C, 0x0C3C},
	{0x0D3B, 0x0D3C}, {0x0EBA, 0x0EBA}, {0x11A7, 0x11A7}, {0x1715, 0x1715}, {0x1ABF, 0x1AF0}, {0x1DF6, 0x1DFA},
	{0xA82C, 0xA82C}, {0x105C9, 0x105C9}, {0x105D2, 0x105D2}, {0x105DA, 0x105DA}, {0x105E4, 0x105E4}, {0x10D24, 0x10D27},
	{0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10ECB, 0x10ECF}, {0x10EF0, 0x10EFB}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
	{0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11382, 0x11385}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E},
	{0x11390, 0x11391}, {0x113B8, 0x113B8}, {0x113BB, 0x113BB}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113C9},
	{0x113CE, 0x113D0}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
	{0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
	{0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x1611E, 0x16129}, {0x1612F, 0x1612F},
	{0x16D63, 0x16D63}, {0x16D67, 0x16D6A}, {0x16FF0, 0x16FF1}, {0x1D127, 0x1D128}, {0x1D250, 0x1D252}, {0x1D25B, 0x1D25C},
	{0x1D25F, 0x1D25F}, {0x1D280, 0x1D281}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
	{0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3}, {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5}};

static bool is_inert(uint32_t code)
{
	size_t low = 0, high = sizeof inert / sizeof *inert;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (code > inert[middle].last)
			low = middle + 1;
		else
			high = middle;
	}
	return low < sizeof inert / sizeof *inert && code >= inert[low].first;
}

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

/* Appends the NFC of text without inert characters. */
static int add_normal(const char *s, size_t n, struct strbuf *out, char err[ERR_LEN])
{
	size_t count;
	int32_t *v = decompose(s, n, &count);
	order(v, count);
	utf8proc_ssize_t len = utf8proc_reencode(v, (utf8proc_ssize_t)count, OPTIONS); /* composes, and writes UTF-8 over v */
	if (len > 0)
		strbuf_add(out, (const char *)v, (size_t)len);
	free(v);
	return len < 0 ? err_set(err, "normalising %zu bytes of text to NFC: %s", n, utf8proc_errmsg(len)) : 0;
}

/* Bytes before the first inert character, or all. */
static size_t until_inert(const char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		int step = utf8_step((const unsigned char *)s + i, n - i);
		if (is_inert(utf8_code((const unsigned char *)s + i, step)))
			return i;
		i += (size_t)step;
	}
	return n;
}

int utf8_nfc(const char *s, size_t n, char **out, size_t *out_len, char err[ERR_LEN])
{
	struct strbuf normal = {0};
	*out = NULL;
	*out_len = n;
	if (quick_check(s, n))
		return 0;
	for (size_t i = 0; i < n;) {
		size_t run = until_inert(s + i, n - i), step = 0;
		if (run > 0 && add_normal(s + i, run, &normal, err)) {
			strbuf_free(&normal);
			return -1;
		}
		if (run < n - i)
			step = (size_t)utf8_step((const unsigned char *)s + i + run, n - i - run);
		strbuf_add(&normal, s + i + run, step);
		i += run + step;
	}
	*out_len = normal.len;
	*out = strbuf_take(&normal);
	return 0;
}
