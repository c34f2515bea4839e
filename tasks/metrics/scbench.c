/* scbench.c: the short scorers of SCBench (compute_scores.py), most of them InfiniteBench's. Upstream's own readings keep its
 * faults; where a reading cannot mean what it should, a sane one stands beside it. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tasks/metrics/metrics.h"

/* ---- texts ---- */

/* The text without white space around it. Caller frees. */
static char *stripped(const char *s)
{
	size_t n = text_strip(&s);
	return text_format("%.*s", (int)n, s);
}

static char *upper(const char *s)
{
	struct strbuf b = {0};
	text_upper(&b, s);
	return strbuf_take(&b);
}

struct characters {
	int32_t *v; /* sorted */
	int n;
};

static int compare_codes(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return (x > y) - (x < y);
}

static struct characters sorted(struct characters s)
{
	qsort(s.v, (size_t)s.n, sizeof(*s.v), compare_codes);
	return s;
}

/* A text's characters, each once: what counts where upstream takes each of them for an answer. */
static struct characters distinct_of(const char *text)
{
	struct codes c = text_codes(text);
	struct characters s = sorted((struct characters){c.v, c.n});
	free(c.at);
	s.n = 0;
	for (int i = 0; i < c.n; i++)
		if (!s.n || s.v[i] != s.v[s.n - 1])
			s.v[s.n++] = s.v[i];
	return s;
}

static bool is_letter_abcd(char c)
{
	return c >= 'A' && c <= 'D';
}

/* ---- containment ---- */

double substring(const char *answer, char *const *gold, int n_gold)
{
	return n_gold ? strstr(answer, gold[0]) != NULL : NAN;
}

double kv_record(const char *answer, char *const *gold, int n_gold)
{
	(void)answer;
	(void)gold;
	return n_gold ? 0 : NAN;
}

double contains_any(const char *answer, char *const *gold, int n_gold)
{
	bool found = false;
	char *text = stripped(answer), *big = upper(text);
	for (int i = 0; i < n_gold && !found; i++) {
		char *g = upper(gold[i]);
		found = strstr(big, g) != NULL;
		free(g);
	}
	free(text);
	free(big);
	return n_gold ? found : NAN;
}

double many_shot_upstream(const char *answer, char *const *gold, int n_gold)
{
	bool found = false;
	char *text = stripped(answer), *big = upper(text);
	struct characters each = distinct_of(n_gold ? gold[0] : "");
	for (int i = 0; i < each.n && !found; i++) {
		struct strbuf one = {0};
		text_put(&one, each.v[i]);
		char *g = upper(one.text);
		found = strstr(big, g) != NULL;
		free(g);
		strbuf_free(&one);
	}
	free(each.v);
	free(text);
	free(big);
	return n_gold ? found : NAN;
}

/* The choice an answer names: in its first parentheses, else its first word. Caller frees. */
static char *choice_of(const char *answer)
{
	const char *open = strchr(answer, '('), *close = open ? strchr(open, ')') : NULL;
	if (close) {
		char *inside = text_format("%.*s", (int)(close - open - 1), open + 1), *choice = stripped(inside);
		free(inside);
		return choice;
	}
	size_t n = text_strip(&answer), letters = 0;
	while (letters < n && isalnum((unsigned char)answer[letters]))
		letters++;
	return text_format("%.*s", (int)letters, answer);
}

double many_shot_strict(const char *answer, char *const *gold, int n_gold)
{
	if (!n_gold)
		return NAN;
	char *said = choice_of(answer), *right = choice_of(gold[0]);
	bool same = *right && !strcmp(said, right);
	free(said);
	free(right);
	return same;
}

/* Python's round(x, 2): printf rounds the binary value exactly, to even where it lies in the middle, as Python does. */
double vt_match(const char *answer, char *const *gold, int n_gold)
{
	char text[16];
	if (!n_gold)
		return NAN;
	double found = 0;
	struct strbuf low = {0};
	text_lower(&low, answer);
	for (int i = 0; i < n_gold; i++) {
		struct strbuf g = {0};
		text_lower(&g, gold[i]);
		found += !g.len || (low.text && strstr(low.text, g.text));
		strbuf_free(&g);
	}
	strbuf_free(&low);
	snprintf(text, sizeof(text), "%.2f", found / n_gold);
	return strtod(text, NULL);
}

/* ---- Chinese questions: F1 over characters ---- */

static struct characters characters_of(const char *text)
{
	struct strbuf low = {0};
	text_lower(&low, text);
	struct characters s = {mem_new(low.len + 1, sizeof(*s.v)), 0};
	const char *p = low.text ? low.text : "";
	for (int32_t c; (c = text_next(&p));)
		if (!text_is_punctuation_zh(c) && !text_is_space(c))
			s.v[s.n++] = c;
	strbuf_free(&low);
	return sorted(s);
}

static double character_f1(const struct characters *p, const char *gold)
{
	struct characters g = characters_of(gold);
	int common = 0;
	for (int i = 0, j = 0; i < p->n && j < g.n;) {
		common += p->v[i] == g.v[j];
		int d = compare_codes(&p->v[i], &g.v[j]);
		i += d <= 0;
		j += d >= 0;
	}
	double precision = (double)common / p->n, recall = (double)common / g.n;
	free(g.v);
	return common ? 2 * precision * recall / (precision + recall) : 0;
}

double qa_chn(const char *answer, char *const *gold, int n_gold)
{
	double best = n_gold ? 0 : NAN;
	struct characters p = characters_of(answer);
	for (int i = 0; i < n_gold; i++)
		best = fmax(best, character_f1(&p, gold[i]));
	free(p.v);
	return best;
}

double qa_chn_upstream(const char *answer, char *const *gold, int n_gold)
{
	double best = n_gold ? 0 : NAN;
	struct characters p = characters_of(answer), each = distinct_of(n_gold ? gold[0] : "");
	for (int i = 0; i < each.n; i++) {
		struct strbuf one = {0};
		text_put(&one, each.v[i]);
		best = fmax(best, character_f1(&p, one.text));
		strbuf_free(&one);
	}
	free(p.v);
	free(each.v);
	return best;
}

/* ---- multiple choice ---- */

static bool is_gold(const char *text, size_t len, char *const *gold, int n_gold)
{
	for (int i = 0; i < n_gold; i++)
		if (strlen(gold[i]) == len && !memcmp(gold[i], text, len))
			return true;
	return false;
}

/* Line ends, quotes and marks become blanks, runs of blanks one. */
static void choice_clean(char *s)
{
	size_t n = 0;
	for (const char *p = s; *p; p++) {
		char c = strchr("\n\"'.,?!{}", *p) ? ' ' : *p;
		if (c != ' ' || !n || s[n - 1] != ' ')
			s[n++] = c;
	}
	s[n] = 0;
}

/* What follows an announcement and one more character; the first announcement found decides. NULL = none is there. */
static const char *choice_announced(const char *text)
{
	static const char *const announcements[] = {"answer is:", "answer:", "answer is", "option is"};
	for (size_t i = 0; i < sizeof(announcements) / sizeof(announcements[0]); i++) {
		const char *at = strstr(text, announcements[i]);
		if (at) {
			at += strlen(announcements[i]);
			text_next(&at);
			return at;
		}
	}
	return NULL;
}

/* The first word which "ABCD" contains decides. */
static bool choice_first_letter(const char *text, char *const *gold, int n_gold)
{
	for (const char *p = text, *word = p;;) {
		const char *here = p;
		int32_t c = text_next(&p);
		if (c && !text_is_space(c))
			continue;
		char *w = text_format("%.*s", (int)(here - word), word);
		bool decides = *w && strstr("ABCD", w), right = decides && is_gold(w, strlen(w), gold, n_gold);
		free(w);
		if (decides || !c)
			return right;
		word = p;
	}
}

static bool choice_right(char *answer, char *const *gold, int n_gold)
{
	if (is_letter_abcd(answer[0]))
		return is_gold(answer, 1, gold, n_gold);
	if (is_gold(answer, strlen(answer), gold, n_gold))
		return *answer;
	choice_clean(answer);
	const char *said = choice_announced(answer);
	for (int i = 0; said && *said && i < n_gold; i++)
		if (!strncmp(said, gold[i], strlen(gold[i])))
			return true;
	return !said && choice_first_letter(answer, gold, n_gold);
}

double choice_abcd(const char *answer, char *const *gold, int n_gold)
{
	char *text = stripped(answer);
	bool right = choice_right(text, gold, n_gold);
	free(text);
	return n_gold ? right : NAN;
}

/* ---- numbers ---- */

/* A decimal digit of any script, or -1. Digits of a script follow one another. */
static int digit_of(int32_t c)
{
	int value = 0;
	if (c < 128)
		return c >= '0' && c <= '9' ? c - '0' : -1;
	if (utf8proc_category(c) != UTF8PROC_CATEGORY_ND)
		return -1;
	while (utf8proc_category(c - 1 - value) == UTF8PROC_CATEGORY_ND)
		value++;
	return value % 10;
}

/* Appends the run of digits at *p as ASCII and moves *p behind it. */
static void digits_take(struct strbuf *b, const char **p)
{
	for (int d; (d = digit_of(text_next(&(const char *){*p}))) >= 0; text_next(p))
		strbuf_printf(b, "%d", d);
}

double first_number(const char *answer, char *const *gold, int n_gold)
{
	struct strbuf b = {0};
	for (const char *p = answer; *p && !b.len; text_next(&p)) {
		digits_take(&b, &p);
		size_t whole = b.len;
		if (!whole || *p != '.')
			continue;
		p++;
		strbuf_puts(&b, ".");
		digits_take(&b, &p);
		if (b.len == whole + 1)
			b.text[whole] = 0;
		break;
	}
	double number = b.len ? strtod(b.text, NULL) : NAN, right = n_gold ? strtod(gold[0], NULL) : NAN;
	if (n_gold && !strchr(gold[0], '.'))
		number = trunc(number);
	strbuf_free(&b);
	return n_gold ? number == right : NAN;
}

double first_integer(const char *answer, char *const *gold, int n_gold)
{
	const char *p = answer + strcspn(answer, "0123456789");
	size_t n = strspn(p, "0123456789");
	return n_gold ? strlen(gold[0]) == n && !memcmp(gold[0], p, n) : NAN;
}
