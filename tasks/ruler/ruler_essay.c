/* ruler_essay.c: the essay haystack as words and sentences.
 *
 * Upstream splits sentences with NLTK's trained English Punkt, whose parameter file is in no small public place. APPROXIMATED
 * here: a sentence ends behind . ! ? (closing quotes and brackets may follow) unless the word is a known abbreviation, an
 * initial, or the next word begins with a small letter. Needles so land at sentence ends as upstream's do, sometimes at another
 * one: answers, keys and depths are upstream's, the bytes around a needle need not be. Rows say so in their identity ("sentence
 * ends approximated"). */
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

void ruler_essay_make(struct ruler_essay *e, const char *text)
{
	e->text = collapse(text);
	for (const char *p = e->text; *p; p++)
		e->n += *p == ' ';
	e->n++;
	e->word_end = mem_new((size_t)e->n, sizeof(*e->word_end));
	e->sentence_end = mem_new((size_t)e->n, sizeof(*e->sentence_end));
	const char *word = e->text;
	for (int i = 0; i < e->n; i++) {
		size_t len = strcspn(word, " ");
		e->word_end[i] = (size_t)(word + len - e->text);
		const char *next = i + 1 < e->n ? word + len + 1 : "";
		if (ends_sentence(word, len, next))
			e->sentence_end[e->n_sentences++] = i;
		word = next;
	}
}

void ruler_essay_free(struct ruler_essay *e)
{
	free(e->text);
	free(e->word_end);
	free(e->sentence_end);
	memset(e, 0, sizeof(*e));
}
