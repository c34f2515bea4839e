/* qa_f1.c: LongBench's F1 over words, the larger over the gold answers (metrics.py: normalize_answer, qa_f1_score).
 *
 * Normalising: lower case, ASCII punctuation deleted (a.b becomes ab), the words a, an, the replaced by a space, split at white
 * space. Words are compared as multisets. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/metrics/metrics.h"

struct words {
	char *text; /* holds the words, each ended by NUL */
	char **v;   /* sorted */
	int n;
};

static bool is_article(const char *s, size_t len)
{
	return (len == 1 && *s == 'a') || (len == 2 && !memcmp(s, "an", 2)) || (len == 3 && !memcmp(s, "the", 3));
}

/* Lower-case text without ASCII punctuation; articles (whole runs of word characters) and white space have become blanks. */
static char *normalise(const char *s)
{
	struct strbuf lower = {0}, b = {0};
	size_t run = 0; /* where the present run of word characters began in b */
	text_lower(&lower, s);
	const char *p = lower.text ? lower.text : "";
	for (int32_t c = 1; c;) {
		c = text_next(&p);
		if (c < 128 && ispunct(c))
			continue;
		bool word = c && text_is_word(c);
		if (!word && b.len > run && is_article(b.text + run, b.len - run)) {
			b.len = run;
			strbuf_puts(&b, " ");
		}
		if (c && text_is_space(c))
			strbuf_puts(&b, " ");
		else if (c)
			text_put(&b, c);
		if (!word)
			run = b.len;
	}
	strbuf_free(&lower);
	return strbuf_take(&b);
}

static int compare_words(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static struct words words_of(const char *s)
{
	struct words w = {.text = normalise(s)};
	char *rest = w.text, *word;
	w.v = mem_new(strlen(w.text) / 2 + 1, sizeof(*w.v));
	while ((word = strsep(&rest, " ")))
		if (*word)
			w.v[w.n++] = word;
	qsort(w.v, (size_t)w.n, sizeof(*w.v), compare_words);
	return w;
}

static void words_free(struct words *w)
{
	free(w->text);
	free(w->v);
}

double words_f1(char *const *p, int n_p, char *const *g, int n_g)
{
	int common = 0;
	for (int i = 0, j = 0; i < n_p && j < n_g;) {
		int d = strcmp(p[i], g[j]);
		common += d == 0;
		i += d <= 0;
		j += d >= 0;
	}
	if (!common)
		return 0;
	double precision = (double)common / n_p, recall = (double)common / n_g;
	return 2 * precision * recall / (precision + recall);
}

double qa_f1(const char *answer, char *const *gold, int n_gold)
{
	double best = n_gold ? 0 : NAN;
	struct words p = words_of(answer);
	for (int i = 0; i < n_gold; i++) {
		struct words g = words_of(gold[i]);
		best = fmax(best, words_f1(p.v, p.n, g.v, g.n));
		words_free(&g);
	}
	words_free(&p);
	return best;
}

double qa_f1_line(const char *answer, char *const *gold, int n_gold)
{
	char *line = text_first_line(answer);
	double s = qa_f1(line, gold, n_gold);
	free(line);
	return s;
}
