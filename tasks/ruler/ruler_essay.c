/* ruler_essay.c: the essay haystack as words and sentences.
 *
 * Upstream splits sentences with NLTK's trained English Punkt; so does ruler_punkt.c, where its parameters are in the folder.
 * Without them APPROXIMATED here: a sentence ends behind . ! ? (closing quotes and brackets may follow) unless the word is a
 * known abbreviation, an initial, or the next word begins with a small letter. Needles then land at sentence ends too, but other
 * bytes stand around them, and since the length of a probe decides what is drawn after it, keys and answers may be others than
 * upstream's. Rows say so in their identity ("sentence ends approximated"). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"
#include "tasks/ruler/ruler.h"

/* str of re.sub(r"\s+", " ", text) */
static char *collapse(const char *text)
{
	struct strbuf b = {0};
	bool space = false;
	for (int32_t c; (c = text_next(&text));) {
		if (!text_is_space(c))
			text_put(&b, c);
		else if (!space)
			strbuf_puts(&b, " ");
		space = text_is_space(c);
	}
	return strbuf_take(&b);
}

/* Bytes of the word up to closing quotes and brackets. */
static size_t bare_length(const char *word, size_t len)
{
	static const char *const closing[] = {"\"", "'", ")", "]", "\xe2\x80\x9d", "\xe2\x80\x99"};
	for (size_t i = 0; i < sizeof(closing) / sizeof(closing[0]); i++) {
		size_t n = strlen(closing[i]);
		if (len > n && !memcmp(word + len - n, closing[i], n)) {
			len -= n;
			i = (size_t)-1;
		}
	}
	return len;
}

static bool is_abbreviation(const char *word, size_t len)
{
	static const char *const known[] = {"mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "e.g", "i.e", "etc", "cf",
		"inc", "corp", "co", "ltd", "u.s", "ph.d", "vol", "jan", "feb", "aug", "sept", "oct", "nov", "dec"};
	while (len && !isalnum((unsigned char)*word))
		word++, len--;
	if (len == 1 && isupper((unsigned char)*word)) /* an initial, but "I." ends a sentence */
		return *word != 'I';
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i]) == len && !strncasecmp(word, known[i], len))
			return true;
	return false;
}

static bool ends_sentence(const char *word, size_t len, const char *next)
{
	len = bare_length(word, len);
	char last = len ? word[len - 1] : ' ';
	if (last == '!' || last == '?')
		return true;
	if (last != '.' || is_abbreviation(word, len - 1))
		return false;
	return !islower((unsigned char)*next);
}

void ruler_sentence_add(struct ruler_sentences *s, size_t from)
{
	if ((s->n & (s->n - 1)) == 0)
		s->v = mem_grow(s->v, (size_t)s->n * 2 + 1, sizeof(*s->v));
	s->v[s->n++] = (struct ruler_sentence){from, from};
}

static void approximated(const char *text, struct ruler_sentences *s)
{
	const char *word = text;
	ruler_sentence_add(s, 0);
	for (size_t len; len = strcspn(word, " "), word[len]; word += len + 1)
		if (ends_sentence(word, len, word + len + 1)) {
			s->v[s->n - 1].to = (size_t)(word + len - text);
			ruler_sentence_add(s, (size_t)(word + len + 1 - text));
		}
	s->v[s->n - 1].to = strlen(text);
}

void ruler_essay_sentences(const struct ruler_essay *e, const char *text, struct ruler_sentences *s)
{
	if (e->punkt)
		ruler_punkt_sentences(e->punkt, text, s);
	else
		approximated(text, s);
}

void ruler_essay_make(struct ruler_essay *e, const char *text)
{
	e->text = collapse(text);
	for (const char *p = e->text; *p; p++)
		e->n += *p == ' ';
	e->n++;
	e->word_end = mem_new((size_t)e->n, sizeof(*e->word_end));
	for (size_t i = 0, at = 0; i < (size_t)e->n; i++, at++)
		e->word_end[i] = at += strcspn(e->text + at, " ");
}

void ruler_essay_free(struct ruler_essay *e)
{
	free(e->text);
	free(e->word_end);
	ruler_punkt_free(e->punkt);
	memset(e, 0, sizeof(*e));
}
