/* pattern.c: a split pattern from Oniguruma's dialect (what Hugging Face runs) to PCRE2's.
 *
 * One rewriting and many refusals. \s becomes the explicit set [\t-\r U+0085 \p{Z}], since PCRE2's \s also holds U+180E: with
 * that, both agree on every code point in every position. What the two read differently ({1,3}+ is possessive in PCRE2 only, &&
 * intersects in Oniguruma only, ...) and what was never compared is refused by name rather than guessed. */
#include <ctype.h>
#include <string.h>

#include "runners/model/pretoken.h"

#define SPACE_SET "\\t-\\r\\x{85}\\p{Z}"

struct scan {
	const char *whole, *at; /* at: what is not yet copied */
	struct strbuf *out;
	bool in_class;
	char *err;
};

static int refuse(const struct scan *s, const char *what)
{
	return err_set(s->err, "split pattern, character %zu: %s: not supported in '%.300s'", (size_t)(s->at - s->whole) + 1,
		what, s->whole);
}

static void copy(struct scan *s, size_t n)
{
	strbuf_add(s->out, s->at, n);
	s->at += n;
}

/* \p{L}, \P{Nd}: general categories only; scripts and properties differ between Unicode versions. */
static int property(struct scan *s)
{
	const char *p = s->at + 2;
	size_t letters = *p == '{' ? strspn(p + 1, "LMNPSZulmtodscefi") : 0;
	if (letters < 1 || letters > 2 || !strchr("LMNPSZ", p[1]) || p[1 + letters] != '}')
		return refuse(s, "a property that is no general category");
	copy(s, letters + 4);
	return 0;
}

static int space(struct scan *s)
{
	bool negated = s->at[1] == 'S';
	if (s->in_class && negated)
		return refuse(s, "\\S in a class");
	strbuf_puts(s->out, s->in_class ? SPACE_SET : negated ? "[^" SPACE_SET "]" : "[" SPACE_SET "]");
	s->at += 2;
	return 0;
}

static int escape(struct scan *s)
{
	char c = s->at[1];
	if (c == 's' || c == 'S')
		return space(s);
	if (c == 'p' || c == 'P')
		return property(s);
	if (c == 0 || !(strchr("rntd", c) || ispunct((unsigned char)c)))
		return refuse(s, "this escape");
	copy(s, 2);
	return 0;
}

static int class_end(struct scan *s)
{
	s->in_class = false;
	copy(s, 1);
	return 0;
}

static int class_start(struct scan *s)
{
	copy(s, s->at[1] == '^' ? 2 : 1);
	if (*s->at == ']')
		return refuse(s, "an empty class");
	s->in_class = true;
	return 0;
}

static int in_class(struct scan *s)
{
	if (*s->at == ']')
		return class_end(s);
	if (*s->at == '[' || strncmp(s->at, "&&", 2) == 0)
		return refuse(s, "a class in a class");
	copy(s, 1);
	return 0;
}

static int group(struct scan *s)
{
	static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!"};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strncmp(s->at, known[i], strlen(known[i])) == 0) {
			copy(s, strlen(known[i]));
			return 0;
		}
	if (s->at[1] == '?' || s->at[1] == '*')
		return refuse(s, "this kind of group");
	copy(s, 1);
	return 0;
}

/* {3}, {1,3}, {2,} */
static int interval(struct scan *s)
{
	size_t low = strspn(s->at + 1, "0123456789"), n = 1 + low;
	if (s->at[n] == ',')
		n += 1 + strspn(s->at + n + 1, "0123456789");
	if (low == 0 || s->at[n] != '}')
		return refuse(s, "this brace");
	if (s->at[n + 1] == '+' || s->at[n + 1] == '?')
		return refuse(s, "a quantifier after a brace");
	copy(s, n + 1);
	return 0;
}

static int step(struct scan *s)
{
	switch (*s->at) {
	case '\\':
		return escape(s);
	case '[':
		return s->in_class ? in_class(s) : class_start(s);
	case '(':
		return s->in_class ? in_class(s) : group(s);
	case '{':
		return s->in_class ? in_class(s) : interval(s);
	case '.':
	case '^':
		return s->in_class ? in_class(s) : refuse(s, "'.' or '^' outside a class");
	}
	if (s->in_class)
		return in_class(s);
	copy(s, 1);
	return 0;
}

int pattern_rewrite(const char *pattern, struct strbuf *out, char err[ERR_LEN])
{
	struct scan s = {pattern, pattern, out, false, err};
	while (*s.at)
		if (step(&s))
			return -1;
	return 0;
}
