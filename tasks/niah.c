/* niah.c: needles in filler text: one needle, many keys, several values of a key, several keys in one question.
 *
 * The four tasks are one: `questions` questions a context, each for `queries` keys with `values` values each; the needles which
 * nobody asks for are distractors. Keys and values of a context are all different. The text is fitted to the wanted number of
 * the model's own tokens from below: one more sentence of filler would be too much. The way of speaking is in niah_wording.c. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/niah_wording.h"
#include "tasks/task_impl.h"

enum { NIAH_VERSION = 1 }; /* raised when the same request gives another text */

struct niah {
	const struct wording *w;
	int needles, questions, queries, values; /* of one context; questions * queries * values <= needles */
};

/* ---- opening: defaults and limits ---- */

static int at_most(int64_t n, int most)
{
	return n < 1 ? 1 : n > most ? most : (int)n;
}

static int niah_check(const struct task *t, const struct niah *p, char err[ERR_LEN])
{
	const char *name = t->def->name;
	int asked_keys = p->questions * p->queries, asked = asked_keys * p->values;
	if (p->values > p->w->most_values || p->queries > p->w->most_queries)
		return err_set(err, "task %s: the wording '%s' allows %d values and %d queries at most, asked were %d and %d",
			name, p->w->name, p->w->most_values, p->w->most_queries, p->values, p->queries);
	if (asked > p->needles)
		return err_set(
			err, "task %s: %d questions need %d needles, but needles is %d", name, p->questions, asked, p->needles);
	if (asked_keys + p->needles - asked > p->w->keys)
		return err_set(err, "task %s: %d needles are more than the wording '%s' has keys (%d)", name, p->needles,
			p->w->name, p->w->keys);
	if (t->rq.depth < 0 || t->rq.depth > 1)
		return err_set(err, "task %s: depth is a number from 0 to 1, not %g", name, t->rq.depth);
	return 0;
}

/* Number of needles and questions: what the user says, else what the wording suggests for the length. */
static void niah_size(const struct task *t, struct niah *p)
{
	const struct task_request *rq = &t->rq;
	p->values = !task_takes(t->def, "values") ? 1 : rq->values ? rq->values : p->w->values;
	p->queries = !task_takes(t->def, "queries") ? 1 : rq->queries ? rq->queries : p->w->queries;
	p->needles = p->questions = 1;
	if (!task_takes(t->def, "needles"))
		return;
	int a_question = p->queries * p->values;
	p->needles = rq->needles ? rq->needles : at_most(rq->length_tokens / p->w->tokens_a_needle, p->w->most_needles);
	p->questions = rq->questions ? rq->questions : at_most(p->needles / a_question, a_question > 1 ? 5 : 10);
	if (!rq->needles && p->needles < p->questions * a_question)
		p->needles = p->questions * a_question;
}

static int niah_open(struct task *t, char err[ERR_LEN])
{
	struct niah *p = t->state = mem_new(1, sizeof(*p));
	p->w = wording_find(t->rq.wording);
	if (!p->w)
		return err_set(err, "task %s: unknown wording '%s' (there are plain and tiny)", t->def->name, t->rq.wording);
	if (t->rq.length_tokens < 1 || !t->rq.count_tokens)
		return err_set(err, "task %s needs a length in tokens and a tokenizer to count them", t->def->name);
	niah_size(t, p);
	if (niah_check(t, p, err))
		return -1;
	int wanted = t->def == &task_niah_single ? 10 : 50; /* questions a cell, when nothing is said */
	t->contexts = t->rq.contexts ? t->rq.contexts : (wanted + p->questions - 1) / p->questions;
	t->identity.metric = "string_match_all";
	t->identity.version = NIAH_VERSION;
	wording_words_sha256(t->identity.data_sha256);
	wording_sha256(p->w, t->identity.template_sha256);
	return 0;
}

static void niah_close(struct task *t)
{
	free(t->state);
}

/* ---- one context in the making ---- */

struct needle {
	int key, ordinal; /* which of the draft's keys, which of its values (from 0) */
	char *value, *sentence;
	double place;  /* wanted, 0 = before all filler, 1 = after it */
	size_t offset; /* where it came to lie in the text, bytes */
};

struct draft {
	const struct niah *p;
	const struct task_request *rq;
	struct rng filler_rng;
	char **keys; /* the asked ones first */
	int n_keys;
	struct needle *needles; /* in the order of the text */
	char **filler;          /* sentences made so far, not all used */
	int64_t *sum;           /* sum[n]: tokens of the first n sentences, each counted alone */
	int n_filler;
	struct strbuf text;
};

static void draft_free(struct draft *d)
{
	for (int i = 0; i < d->n_keys; i++)
		free(d->keys[i]);
	for (int i = 0; d->needles && i < d->p->needles; i++) {
		free(d->needles[i].value);
		free(d->needles[i].sentence);
	}
	for (int i = 0; i < d->n_filler; i++)
		free(d->filler[i]);
	free(d->keys);
	free(d->needles);
	free(d->filler);
	free(d->sum);
	strbuf_free(&d->text);
}

/* n different texts, drawn one by one; the caller frees them. */
static char **draw_different(int n, void (*draw)(struct strbuf *, struct rng *), struct rng *r)
{
	char **out = mem_new((size_t)n, sizeof(*out));
	for (int i = 0, j; i < n;) {
		struct strbuf b = {0};
		draw(&b, r);
		for (j = 0; j < i && strcmp(out[j], b.text); j++)
			;
		if (j == i)
			out[i++] = strbuf_take(&b);
		strbuf_free(&b);
	}
	return out;
}

/* Fills key and ordinal of all needles: which key lies where is chance, but first comes before second. */
static void needles_deal(struct draft *d, struct rng *r)
{
	const struct niah *p = d->p;
	int n = 0, asked_keys = p->questions * p->queries, *seen = mem_new((size_t)d->n_keys, sizeof(*seen));
	for (int k = 0; k < d->n_keys; k++)
		for (int v = 0; v < (k < asked_keys ? p->values : 1); v++)
			d->needles[n++].key = k;
	for (int i = n - 1; i > 0; i--) {
		int j = (int)rng_below(r, (uint64_t)i + 1), key = d->needles[i].key;
		d->needles[i].key = d->needles[j].key;
		d->needles[j].key = key;
	}
	for (int i = 0; i < n; i++)
		d->needles[i].ordinal = seen[d->needles[i].key]++;
	free(seen);
}

/* depth = NAN: needles spread evenly, each somewhere in its own share of the text; else all of them at that depth. */
static void needles_make(struct draft *d, double depth, struct rng *r)
{
	const struct niah *p = d->p;
	int asked_keys = p->questions * p->queries;
	d->n_keys = asked_keys + p->needles - asked_keys * p->values;
	d->keys = draw_different(d->n_keys, p->w->key, r);
	d->needles = mem_new((size_t)p->needles, sizeof(*d->needles));
	char **values = draw_different(p->needles, p->w->value, r);
	needles_deal(d, r);
	for (int i = 0; i < p->needles; i++) {
		struct needle *x = &d->needles[i];
		struct strbuf b = {0};
		double jitter = rng_unit(r);
		x->place = isnan(depth) ? (i + jitter) / p->needles : depth;
		x->value = values[i];
		p->w->needle(&b, d->keys[x->key], x->ordinal, x->key < asked_keys ? p->values : 1, x->value);
		x->sentence = strbuf_take(&b);
	}
	free(values);
}

/* ---- fitting to the length ---- */

/* Makes filler until n sentences are there; false when tokens could not be counted. */
static bool filler_have(struct draft *d, int n)
{
	while (d->n_filler < n) {
		struct strbuf b = {0};
		size_t i = (size_t)d->n_filler;
		strbuf_puts(&b, " ");
		d->p->w->filler(&b, &d->filler_rng);
		int64_t tokens = d->rq->count_tokens(d->rq->user, b.text, b.len);
		memmove(b.text, b.text + 1, b.len);
		d->filler = mem_grow(d->filler, i + 1, sizeof(*d->filler));
		d->sum = mem_grow(d->sum, i + 2, sizeof(*d->sum));
		d->filler[i] = strbuf_take(&b);
		d->sum[0] = 0;
		d->sum[i + 1] = d->sum[i] + tokens;
		d->n_filler++;
		if (tokens < 1)
			return false;
	}
	return true;
}

/* The largest number of sentences whose tokens, counted alone, are at most `tokens`; -1 = could not count. */
static int filler_for(struct draft *d, int64_t tokens)
{
	do
		if (!filler_have(d, d->n_filler + 1))
			return -1;
	while (d->sum[d->n_filler] <= tokens);
	int n = d->n_filler - 1;
	while (n > 0 && d->sum[n] > tokens)
		n--;
	return n;
}

static void sentence_add(struct strbuf *b, const char *sentence)
{
	if (b->len)
		strbuf_puts(b, " ");
	strbuf_puts(b, sentence);
}

/* Writes the text with n sentences of filler; returns its tokens (negative: could not count). */
static int64_t draft_write(struct draft *d, int n)
{
	int next = 0;
	d->text.len = 0;
	for (int f = 0; f <= n; f++) {
		for (; next < d->p->needles && lround(d->needles[next].place * n) <= f; next++) {
			d->needles[next].offset = d->text.len + (d->text.len > 0);
			sentence_add(&d->text, d->needles[next].sentence);
		}
		if (f < n)
			sentence_add(&d->text, d->filler[f]);
	}
	return d->rq->count_tokens(d->rq->user, d->text.text, d->text.len);
}

/* Tokens of sentences add up only nearly, so the whole text is counted, the number of sentences corrected by what is over or
 * missing, and counted again: two or three rounds. fits and over enclose the answer, so that it ends for any tokenizer. */
static int draft_fit(struct draft *d, char err[ERR_LEN])
{
	int64_t target = d->rq->length_tokens, tokens = draft_write(d, 0);
	int fits = 0, over = INT_MAX, n = 0;
	if (tokens > target)
		return err_set(err, "%d needles take %lld tokens, more than the length of %lld", d->p->needles, (long long)tokens,
			(long long)target);
	while (tokens >= 0) {
		if (tokens > target)
			over = n;
		else
			fits = n;
		if (!filler_have(d, fits + 1))
			break;
		if (over == fits + 1 || (n == fits && tokens + d->sum[n + 1] - d->sum[n] > target))
			return n == fits || draft_write(d, fits) >= 0 ? 0 : err_set(err, "counting tokens failed");
		n = filler_for(d, d->sum[n] + target - tokens);
		if (n < 0)
			break;
		n = n <= fits ? fits + 1 : n >= over ? over - 1 : n;
		tokens = draft_write(d, n);
	}
	return err_set(err, "counting tokens failed");
}

/* ---- questions ---- */

static const struct needle *needle_of(const struct draft *d, int key, int ordinal)
{
	const struct needle *x = d->needles;
	while (x->key != key || x->ordinal != ordinal)
		x++;
	return x;
}

/* 0 = the first sentence of the text, 1 = the last */
static double depth_of(const struct draft *d, const struct needle *x)
{
	size_t room = d->text.len - strlen(x->sentence);
	return room ? (double)x->offset / (double)room : 0;
}

static void question_add(struct task_context *c, const struct draft *d, int first_key)
{
	const struct niah *p = d->p;
	struct task_question *q = task_question_add(c);
	struct strbuf text = {0}, prefix = {0};
	p->w->question(&text, d->keys + first_key, p->queries, p->values);
	p->w->answer_prefix(&prefix, d->keys + first_key, p->queries, p->values);
	q->text = strbuf_take(&text);
	free(q->answer_prefix);
	q->answer_prefix = strbuf_take(&prefix);
	for (int k = first_key; k < first_key + p->queries; k++)
		for (int v = 0; v < p->values; v++)
			task_answer_add(q, needle_of(d, k, v)->value);
	q->metric = "string_match_all";
	q->max_new_tokens =
		d->rq->max_new_tokens ? d->rq->max_new_tokens : p->w->new_tokens + p->w->new_tokens_a_value * q->n_answers;
	q->depth = depth_of(d, needle_of(d, first_key, 0));
}

/* The asked depth, else spread evenly over the contexts, both ends included. */
static double single_depth(const struct task *t, int i)
{
	if (!isnan(t->rq.depth))
		return t->rq.depth;
	return t->contexts > 1 ? (double)i / (t->contexts - 1) : .5;
}

static int niah_make(struct task *t, int i, struct task_context *out, char err[ERR_LEN])
{
	const struct niah *p = t->state;
	/* needles and filler come from streams of their own, so that the same needles serve every length with as many of them */
	uint64_t stream = 2 * (uint64_t)i;
	struct rng r = rng_seed(t->rq.seed, stream);
	struct draft d = {.p = p, .rq = &t->rq, .filler_rng = rng_seed(t->rq.seed, stream + 1)};
	needles_make(&d, t->def == &task_niah_single ? single_depth(t, i) : NAN, &r);
	int failed = draft_fit(&d, err);
	if (!failed) {
		out->chat = true;
		for (int q = 0; q < p->questions; q++)
			question_add(out, &d, q * p->queries);
		out->text = strbuf_take(&d.text);
	}
	draft_free(&d);
	return failed;
}

const struct task_def task_niah_single = {"niah-single", "one needle at a depth",
	"length wording contexts depth seed max_new_tokens", niah_open, niah_make, niah_close};
const struct task_def task_niah_multikey = {"niah-multikey", "many needles, one is asked for",
	"length wording contexts questions needles seed max_new_tokens", niah_open, niah_make, niah_close};
const struct task_def task_niah_multivalue = {"niah-multivalue", "many needles, all values of one key are asked for",
	"length wording contexts questions needles values seed max_new_tokens", niah_open, niah_make, niah_close};
const struct task_def task_niah_multiquery = {"niah-multiquery", "many needles, several keys are asked for at once",
	"length wording contexts questions needles queries seed max_new_tokens", niah_open, niah_make, niah_close};
