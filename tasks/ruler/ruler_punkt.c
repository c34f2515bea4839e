/* ruler_punkt.c: sentences as NLTK's Punkt finds them (Kiss and Strunk 2006), with the parameters it was trained to.
 *
 * A . ? or ! is looked at where white space and a word, or one of some marks, follow. The word before it, the sign and what
 * follows are cut into tokens; a token at whose end a sentence may end is weighed by its own type (abbreviation, number, initial,
 * dots), by the pair it makes with the next, and by how the next one was written in training. Closing marks behind an end go to
 * the sentence that ends. Texts here have single blanks for white space and none at their ends (ruler_essay.c). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tasks/archive.h"
#include "tasks/metrics/metrics.h"
#include "tasks/metrics/numbering.h"
#include "tasks/ruler/ruler.h"

/* How words were written in training, as bits of ortho_context.tab: at the beginning of a sentence, inside one, unknown where. */
enum {
	BEGIN_UPPER = 1 << 1,
	INSIDE_UPPER = 1 << 2,
	ANY_UPPER = BEGIN_UPPER | INSIDE_UPPER | 1 << 3,
	BEGIN_LOWER = 1 << 4,
	ANY_LOWER = BEGIN_LOWER | 1 << 5 | 1 << 6
};

struct ruler_punkt {
	struct numbering abbreviations, starters;
	struct numbering collocations; /* "first\tsecond" */
	struct numbering words;        /* of ortho, */
	struct numbers ortho;          /* their bits */
};

/* ---- parameters ---- */

static int lines_load(struct numbering *lines, const char *zip, const char *file, struct sha256 *hash, char err[ERR_LEN])
{
	char *name = text_format("punkt_tab/english/%s", file), *data = NULL, *line;
	size_t len = 0;
	int failed = archive_read(zip, name, NULL, &data, &len, err);
	if (!failed)
		sha256_add(hash, data, len);
	for (char *rest = data; !failed && (line = strsep(&rest, "\n"));)
		if (*line)
			numbering_of(lines, line, strlen(line));
	free(data);
	free(name);
	return failed;
}

/* "word\tbits" */
static int ortho_load(struct ruler_punkt *p, const char *zip, struct sha256 *hash, char err[ERR_LEN])
{
	struct numbering lines = {0};
	int failed = lines_load(&lines, zip, "ortho_context.tab", hash, err);
	for (int i = 0; i < lines.n && !failed; i++) {
		size_t n = strcspn(lines.words[i], "\t");
		if (numbering_of(&p->words, lines.words[i], n) == p->ortho.n)
			numbers_add(&p->ortho, atoi(lines.words[i] + n));
	}
	numbering_free(&lines);
	return failed;
}

struct ruler_punkt *ruler_punkt_read(const char *zip, struct sha256 *hash, char err[ERR_LEN])
{
	struct ruler_punkt *p = mem_new(1, sizeof(*p));
	if (!lines_load(&p->abbreviations, zip, "abbrev_types.txt", hash, err) &&
		!lines_load(&p->starters, zip, "sent_starters.txt", hash, err) &&
		!lines_load(&p->collocations, zip, "collocations.tab", hash, err) && !ortho_load(p, zip, hash, err))
		return p;
	ruler_punkt_free(p);
	return NULL;
}

void ruler_punkt_free(struct ruler_punkt *p)
{
	if (!p)
		return;
	numbering_free(&p->abbreviations);
	numbering_free(&p->starters);
	numbering_free(&p->collocations);
	numbering_free(&p->words);
	free(p->ortho.v);
	free(p);
}

static bool has(const struct numbering *set, const char *word, size_t len)
{
	return numbering_find(set, word, len) >= 0;
}

/* ---- tokens ---- */

static bool is_end(char c)
{
	return c && strchr(".?!", c);
}

/* Never inside a word. */
static bool is_mark(char c)
{
	return c && strchr(")\";}]*:@'({[?!", c);
}

static bool begins_word(char c)
{
	return !strchr("(\"`{[:;&#*@)}]-,", c);
}

/* Bytes of two or more hyphens, of two or more dots, of three or more dots with blanks between; 0 = none begins here. */
static size_t row_of_marks(const char *p)
{
	size_t hyphens = strspn(p, "-"), dots = strspn(p, "."), spaced = 0;
	if (hyphens > 1 || dots > 1)
		return hyphens > 1 ? hyphens : dots;
	while (p[2 * spaced] == '.' && p[2 * spaced + 1] == ' ')
		spaced++;
	spaced += p[2 * spaced] == '.';
	return spaced > 2 ? 2 * spaced - 1 : 0;
}

static bool ends_word(const char *p)
{
	return !*p || *p == ' ' || is_mark(*p) || row_of_marks(p);
}

static size_t token_length(const char *p)
{
	size_t n = row_of_marks(p);
	if (n || !begins_word(*p))
		return n ? n : 1;
	for (n = 1; !ends_word(p + n) && !(p[n] == ',' && ends_word(p + n + 1)); n++)
		;
	return n;
}

struct token {
	const char *text;
	size_t len;
	struct strbuf type; /* lower case, or ##number## */
	bool ends, abbreviation, dots;
};

/* -?[.,]?\d[\d,.-]* */
static bool is_number(const char *s)
{
	s += *s == '-';
	s += *s == '.' || *s == ',';
	if (!text_is_digit(text_next(&s)))
		return false;
	for (int32_t c; (c = text_next(&s));)
		if (!text_is_digit(c) && !strchr(",.-", c < 128 ? c : 'x'))
			return false;
	return true;
}

/* One letter and a dot. */
static bool is_initial(const struct token *t)
{
	const char *p = t->text;
	int32_t c = text_next(&p);
	return (c == '_' || (text_is_word(c) && !text_is_digit(c))) && t->len == (size_t)(p - t->text) + 1 && *p == '.';
}

static int32_t first_letter(const struct token *t)
{
	return text_next(&(const char *){t->text});
}

static bool ends_in_dot(const struct token *t)
{
	return t->text[t->len - 1] == '.';
}

/* What can be said of a token alone. */
static struct token token_of(const struct ruler_punkt *p, const char *text, size_t len)
{
	struct token t = {text, len};
	char *copy = text_format("%.*s", (int)len, text);
	text_lower(&t.type, copy);
	free(copy);
	const char *hyphen = strrchr(t.type.text, '-'), *part = hyphen ? hyphen + 1 : t.type.text;
	size_t bare = t.type.len - 1; /* without the dot */
	t.dots = len > 1 && strspn(text, ".") >= len;
	if (len == 1 && is_end(*text))
		t.ends = true;
	else if (!t.dots && ends_in_dot(&t) && text[len - 2] != '.') {
		t.abbreviation = has(&p->abbreviations, t.type.text, bare) ||
				 has(&p->abbreviations, part, (size_t)(t.type.text + bare - part));
		t.ends = !t.abbreviation;
	}
	if (is_number(t.type.text)) {
		t.type.len = 0;
		strbuf_puts(&t.type, "##number##");
	}
	return t;
}

/* Bytes of a type without the dot at its end. */
static size_t bare_type(const struct token *t)
{
	return t->type.len - (t->type.len > 1 && t->type.text[t->type.len - 1] == '.');
}

/* ---- two tokens ---- */

static int ortho_of(const struct ruler_punkt *p, const struct token *t)
{
	int i = numbering_find(&p->words, t->type.text, t->ends ? bare_type(t) : t->type.len);
	return i < 0 ? 0 : p->ortho.v[i];
}

/* Does the token begin a sentence, by its first letter and how it was written in training? 1 yes, 0 no, -1 who knows. */
static int begins_sentence(const struct ruler_punkt *p, const struct token *t)
{
	int bits = ortho_of(p, t);
	int32_t c = first_letter(t);
	if (t->len == 1 && strchr(";:,.!?", *t->text))
		return 0;
	if (utf8proc_isupper(c) && bits & ANY_LOWER && !(bits & INSIDE_UPPER))
		return 1;
	if (utf8proc_islower(c) && (bits & ANY_UPPER || !(bits & BEGIN_LOWER)))
		return 0;
	return -1;
}

static bool is_collocation(const struct ruler_punkt *p, const struct token *t, const char *next, size_t len)
{
	char *pair = text_format("%.*s\t%.*s", (int)bare_type(t), t->type.text, (int)len, next);
	bool known = has(&p->collocations, pair, strlen(pair));
	free(pair);
	return known;
}

/* Does a sentence end behind t? */
static bool ends_before(const struct ruler_punkt *p, const struct token *t, const struct token *next)
{
	if (!ends_in_dot(t))
		return t->ends;
	size_t len = next->ends ? bare_type(next) : next->type.len;
	bool upper = utf8proc_isupper(first_letter(next)), initial = is_initial(t);
	int begins = begins_sentence(p, next);
	if (is_collocation(p, t, next->type.text, len))
		return false;
	if ((t->abbreviation || t->dots) && !initial && (begins == 1 || (upper && has(&p->starters, next->type.text, len))))
		return true;
	if ((initial || !strcmp(t->type.text, "##number##")) &&
		(begins == 0 || (begins < 0 && initial && upper && !(ortho_of(p, next) & ANY_LOWER))))
		return false;
	return t->ends;
}

/* Does a sentence end in this piece of text, before its last token? */
static bool breaks(const struct ruler_punkt *p, const char *piece)
{
	struct token before = {0};
	bool found = false;
	while (!found && *(piece += strspn(piece, " "))) {
		struct token t = token_of(p, piece, token_length(piece));
		found = before.text && ends_before(p, &before, &t);
		strbuf_free(&before.type);
		before = t;
		piece += t.len;
	}
	strbuf_free(&before.type);
	return found;
}

/* ---- sentences ---- */

/* The sign at `at`, the word from `word` on before it: a break there ends a sentence and begins the next. */
static void weigh(const struct ruler_punkt *p, const char *text, size_t word, size_t at, struct ruler_sentences *s)
{
	size_t next = at + 1 + (text[at + 1] == ' '), end = is_mark(text[at + 1]) ? next + 1 : next + strcspn(text + next, " ");
	char *piece = text_format("%.*s", (int)(end - word), text + word);
	if (breaks(p, piece)) {
		s->v[s->n - 1].to = at + 1;
		ruler_sentence_add(s, next);
	}
	free(piece);
}

/* Where the word before the sign at `at` begins: behind the last blank after the sign before, else where that one's word did. */
static size_t word_before(const char *text, size_t at, size_t sign_before, size_t word)
{
	while (at > sign_before + 1)
		if (text[--at] == ' ')
			return at + 1;
	return word;
}

/* Bytes of closing marks and the blank after them which belong to the sentence before; *marks without the blank. */
static size_t closing(const char *text, size_t len, size_t *marks)
{
	size_t n = 0;
	while (n < len && strchr("\"')]}", text[n]))
		n++;
	*marks = n;
	if (!n || n == len || !strncmp(text + n, "--", 2))
		return n;
	return text[n] == ' ' ? n + 1 : 0;
}

static void realign(const char *text, struct ruler_sentences *s)
{
	int kept = 0;
	for (int i = 0; i < s->n; i++) {
		struct ruler_sentence *x = &s->v[i], *y = x + 1;
		size_t marks, n = i + 1 < s->n ? closing(text + y->from, y->to - y->from, &marks) : 0;
		if (n) {
			x->to = y->from + marks;
			y->from += n;
		}
		if (n || x->to > x->from)
			s->v[kept++] = *x;
	}
	s->n = kept;
}

void ruler_punkt_sentences(const struct ruler_punkt *p, const char *text, struct ruler_sentences *s)
{
	size_t word = 0, sign = 0; /* of the sign that waits: one before the next sign's word is weighed */
	bool waits = false;
	ruler_sentence_add(s, 0);
	for (size_t i = 0; text[i]; i++) {
		if (!is_end(text[i]) || !(is_mark(text[i + 1]) || (text[i + 1] == ' ' && text[i + 2])))
			continue;
		size_t begin = word_before(text, i, sign, word);
		if (waits && sign <= begin)
			weigh(p, text, word, sign, s);
		waits = true;
		word = begin;
		sign = i;
	}
	if (waits)
		weigh(p, text, word, sign, s);
	s->v[s->n - 1].to = strlen(text);
	realign(text, s);
}
