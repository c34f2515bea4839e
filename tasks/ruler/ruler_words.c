/* ruler_words.c: lists of words, and the millions of adjective-noun pairs that niah draws its keys from. */
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

void ruler_words_add(struct ruler_words *w, const char *word)
{
	if ((w->n & (w->n - 1)) == 0) /* 0 and the powers of two: room for as many again */
		w->v = mem_grow(w->v, (size_t)w->n * 2 + 1, sizeof(*w->v));
	w->v[w->n++] = word;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void ruler_words_sort(struct ruler_words *w)
{
	int kept = 0;
	if (w->n)
		qsort(w->v, (size_t)w->n, sizeof(*w->v), compare);
	for (int i = 0; i < w->n; i++)
		if (!kept || strcmp(w->v[kept - 1], w->v[i]))
			w->v[kept++] = w->v[i];
	w->n = kept;
}

void ruler_words_free(struct ruler_words *w)
{
	free(w->text);
	free(w->v);
	memset(w, 0, sizeof(*w));
}

/* ---- pairs ---- */

/* Does the text `a-` begin the text `b-`? */
static bool begins(const char *a, const char *b)
{
	size_t len = strlen(a);
	return !strncmp(a, b, len) && (b[len] == '-' || !b[len]);
}

/* Compares as if a hyphen stood behind both. */
static int compare_first(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;
	while (*x && *x == *y)
		x++, y++;
	int cx = *x ? (unsigned char)*x : '-', cy = *y ? (unsigned char)*y : '-';
	if (cx != cy)
		return cx - cy;
	return *x ? 1 : *y ? -1 : 0; /* the one with its own hyphen here is the longer one */
}

/* Writes out the pairs of several first words, sorted. */
static void run_write(struct ruler_words *whole, const char *const *first, int n_first, const struct ruler_words *second)
{
	struct strbuf b = {0};
	for (int f = 0; f < n_first; f++)
		for (int s = 0; s < second->n; s++) {
			strbuf_puts(&b, first[f]);
			strbuf_puts(&b, "-");
			strbuf_add(&b, second->v[s], strlen(second->v[s]) + 1);
		}
	const char *end = b.text + b.len;
	whole->text = b.text;
	for (const char *p = b.text; p < end; p += strlen(p) + 1)
		ruler_words_add(whole, p);
	ruler_words_sort(whole);
}

void ruler_pairs_make(struct ruler_pairs *p, struct ruler_words *first, const struct ruler_words *second)
{
	p->second = second;
	p->runs = mem_new((size_t)first->n + 1, sizeof(*p->runs));
	if (first->n)
		qsort(first->v, (size_t)first->n, sizeof(*first->v), compare_first);
	for (int i = 0, n; i < first->n; i += n) {
		struct pair_run *run = &p->runs[p->n_runs++];
		for (n = 1; i + n < first->n && begins(first->v[i], first->v[i + n]); n++)
			;
		*run = (struct pair_run){.begin = p->n, .first = first->v[i]};
		if (n > 1)
			run_write(&run->whole, first->v + i, n, second);
		p->n += n > 1 ? run->whole.n : second->n;
	}
}

void ruler_pairs_at(const struct ruler_pairs *p, int64_t i, struct strbuf *out)
{
	int low = 0, high = p->n_runs; /* the run which holds pair i is in [low, high) */
	while (high - low > 1) {
		int mid = (low + high) / 2;
		if (p->runs[mid].begin <= i)
			low = mid;
		else
			high = mid;
	}
	const struct pair_run *run = &p->runs[low];
	if (run->whole.n) {
		strbuf_puts(out, run->whole.v[i - run->begin]);
		return;
	}
	strbuf_puts(out, run->first);
	strbuf_puts(out, "-");
	strbuf_puts(out, p->second->v[i - run->begin]);
}

void ruler_pairs_free(struct ruler_pairs *p)
{
	for (int i = 0; i < p->n_runs; i++)
		ruler_words_free(&p->runs[i].whole);
	free(p->runs);
	memset(p, 0, sizeof(*p));
}
