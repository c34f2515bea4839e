/* base.c: see base.h: a few lines of plain C each. SHA-256 is sha256.c. */
#include "harness/base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int err_set(char err[ERR_LEN], const char *fmt, ...)
{
	if (!err)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(err, ERR_LEN, fmt, ap);
	va_end(ap);
	return -1;
}

void die(int exit_code, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("kvbench: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(exit_code);
}

void *mem_new(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size ? size : 1);
	if (!p)
		die(1, "out of memory asking for %zu x %zu bytes", count, size);
	return p;
}

void *mem_grow(void *p, size_t count, size_t size)
{
	size_t bytes;
	if (__builtin_mul_overflow(count, size, &bytes) || !(p = realloc(p, bytes ? bytes : 1)))
		die(1, "out of memory asking for %zu x %zu bytes", count, size);
	return p;
}

char *text_copy(const char *s)
{
	if (!s)
		return NULL;
	size_t n = strlen(s) + 1;
	return memcpy(mem_new(n, 1), s, n);
}

/* Bytes that the text takes. C counts to INT_MAX of them: taken for a number, its -1 beyond would give an empty text, or a strbuf one byte
 * too short. */
static size_t format_length(const char *fmt, va_list ap)
{
	int n = vsnprintf(NULL, 0, fmt, ap);
	if (n < 0)
		die(1, "a text cannot be formatted: %s", strerror(errno));
	return (size_t)n;
}

char *text_format(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	size_t n = format_length(fmt, ap);
	va_end(ap);
	char *s = mem_new(n + 1, 1);
	va_start(ap, fmt);
	vsnprintf(s, n + 1, fmt, ap);
	va_end(ap);
	return s;
}

void strbuf_add(struct strbuf *b, const char *s, size_t len)
{
	if (b->len + len + 1 > b->cap) {
		b->cap = (b->len + len + 1) * 2;
		b->text = mem_grow(b->text, b->cap, 1);
	}
	if (len)
		memcpy(b->text + b->len, s, len);
	b->len += len;
	b->text[b->len] = 0;
}

void strbuf_puts(struct strbuf *b, const char *s)
{
	strbuf_add(b, s, strlen(s));
}

void strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	size_t n = format_length(fmt, ap);
	va_end(ap);
	if (b->cap < b->len + n + 1)
		b->text = mem_grow(b->text, b->cap = (b->len + n + 1) * 2, 1);
	va_start(ap, fmt);
	vsnprintf(b->text + b->len, n + 1, fmt, ap);
	va_end(ap);
	b->len += n;
}

char *strbuf_take(struct strbuf *b)
{
	strbuf_add(b, "", 0);
	char *s = b->text;
	*b = (struct strbuf){0};
	return s;
}

void strbuf_free(struct strbuf *b)
{
	free(b->text);
	*b = (struct strbuf){0};
}

int file_read(const char *path, char **data, size_t *len, char err[ERR_LEN])
{
	FILE *f = fopen(path, "rb");
	if (!f)
		return err_set(err, "cannot open %s: %s", path, strerror(errno));
	struct strbuf b = {0};
	char block[65536];
	size_t n;
	strbuf_add(&b, "", 0);
	while ((n = fread(block, 1, sizeof block, f)) > 0)
		strbuf_add(&b, block, n);
	int bad = ferror(f);
	fclose(f);
	if (bad) {
		strbuf_free(&b);
		return err_set(err, "cannot read %s", path);
	}
	*len = b.len;
	*data = strbuf_take(&b);
	return 0;
}

bool file_exists(const char *path)
{
	struct stat s;
	return stat(path, &s) == 0;
}

/* The file behind a link, so that the link stays; caller frees. */
static char *file_place(const char *path)
{
	char *real = realpath(path, NULL), *place = text_copy(real ? real : path);
	free(real);
	return place;
}

static bool stream_write(FILE *f, const struct strbuf *text)
{
	return !text->len || fwrite(text->text, 1, text->len, f) == text->len;
}

static bool plain_or_new(const char *path)
{
	struct stat s;
	return stat(path, &s) != 0 || S_ISREG(s.st_mode);
}

/* What is no plain file (a pipe, a device) has no half-written state to be kept from and must stay where it is. */
static int file_write_into(const char *place, const struct strbuf *text)
{
	FILE *f = fopen(place, "w");
	bool ok = f && stream_write(f, text);
	return f && !fclose(f) && ok ? 0 : -1;
}

int file_write(const char *path, const struct strbuf *text, char err[ERR_LEN])
{
	if (!path)
		return stream_write(stdout, text) ? 0 : err_set(err, "writing the output failed: %s", strerror(errno));
	bool plain = plain_or_new(path);
	char *place = plain ? file_place(path) : text_copy(path), *part = text_format("%s%s", place, plain ? ".part" : "");
	int rc = file_write_into(part, text);
	if (!rc && plain)
		rc = rename(part, place);
	if (rc)
		err_set(err, "cannot write %s: %s", path, strerror(errno));
	if (rc && plain)
		unlink(part);
	free(part);
	free(place);
	return rc;
}

int file_check_place(const char *path, char err[ERR_LEN])
{
	return plain_or_new(path) ? 0 : err_set(err, "cannot write %s: it is no plain file", path);
}

static int64_t clock_read(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

int64_t unix_ms(void)
{
	return clock_read(CLOCK_REALTIME) / 1000000;
}

/* splitmix64 (Steele, Lea, Flood 2014): a full-period counter through a strong mixer. */
static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

struct rng rng_seed(uint64_t seed, uint64_t stream)
{
	return (struct rng){mix(mix(seed + 0x9e3779b97f4a7c15u) ^ (stream * 0xd1342543de82ef95u + 1))};
}

uint64_t rng_next(struct rng *r)
{
	return mix(r->state += 0x9e3779b97f4a7c15u);
}

double rng_unit(struct rng *r)
{
	return (double)(rng_next(r) >> 11) * 0x1p-53;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;
	do
		x = rng_next(r);
	while (x >= limit);
	return x % n;
}

static size_t edit_distance(const char *a, const char *b)
{
	size_t row[128], nb = strlen(b);
	if (strlen(a) > 120 || nb > 120)
		return 1000;
	for (size_t j = 0; j <= nb; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diag = row[0];
		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t best = diag + (a[i - 1] != b[j - 1]);
			diag = row[j];
			best = best < row[j] + 1 ? best : row[j] + 1;
			row[j] = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
		}
	}
	return row[nb];
}

const char *name_nearest(const char *typed, const char *const *names, size_t n)
{
	const char *best = NULL;
	size_t best_d = strlen(typed) / 2 + 2;
	for (size_t i = 0; i < n; i++) {
		size_t d = edit_distance(typed, names[i]);
		if (d < best_d)
			best_d = d, best = names[i];
	}
	return best;
}
