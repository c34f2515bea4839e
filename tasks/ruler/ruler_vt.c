/* ruler_vt.c: variable tracking: a chain of assignments scattered over lines of noise; which variables hold the value?
 *
 * A worked example stands in front: a row of the same kind with shorter names, fitted to 500 tokens. The present release gives
 * every row new names and a new value in it; the one of 2024 keeps the first, splits the noise into sentences where there are as
 * few lines as assignments, and counts the example apart. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

enum {
	NAMES = 5,
	NAME_LETTERS = 5,
	EXAMPLE_LETTERS = 3,
	EXAMPLE_TOKENS = 500,
	LOW = 10000,
	HIGH = 99999,
	OWN_EXAMPLE_FROM = 1024
};

struct chain {
	char names[NAMES][8];
	char value[8];
};

static bool is_example(const struct ruler *r)
{
	return !r->example;
}

/* Two equal names: upstream draws one name more, takes it for a second chain, and stumbles over its missing names. */
static int names_draw(struct ruler *r, struct chain *c, int letters)
{
	for (int i = 0; i < NAMES; i++)
		python_letters(&r->random.python, 'A', letters, c->names[i]);
	for (int i = 0; i < NAMES; i++)
		for (int j = 0; j < i; j++)
			if (!strcmp(c->names[i], c->names[j]))
				return 1;
	return 0;
}

static void value_draw(struct ruler *r, char value[8])
{
	snprintf(value, 8, "%u", LOW + numpy_below(&r->random.numpy, HIGH - LOW));
}

static int chain_draw(struct ruler *r, struct chain *c)
{
	char spare[8];
	int stumbles = names_draw(r, c, is_example(r) ? EXAMPLE_LETTERS : NAME_LETTERS);
	if (stumbles)
		python_letters(&r->random.python, 'A', is_example(r) ? EXAMPLE_LETTERS : NAME_LETTERS, spare);
	if (is_example(r) && !r->oct2024)
		strcpy(c->value, "12345");
	else
		value_draw(r, c->value);
	if (stumbles && !(is_example(r) && !r->oct2024))
		value_draw(r, spare);
	return stumbles;
}

static void line_add(struct strbuf *b, const struct chain *c, int i)
{
	if (i)
		strbuf_printf(b, "VAR %s = VAR %s ", c->names[i], c->names[i - 1]);
	else
		strbuf_printf(b, "VAR %s = %s", c->names[0], c->value);
}

/* The noise as the pieces of one line: one piece, or its sentences with the line end as the last. */
static void noise_pieces(const struct ruler *r, int64_t size, struct ruler_words *pieces)
{
	bool split = r->oct2024 && size <= NAMES;
	pieces->text = text_format("%s%s", r->assets.template.noise, r->oct2024 ? "\n" : "");
	if (!split) {
		ruler_words_add(pieces, pieces->text);
		return;
	}
	struct strbuf b = {0};
	for (const char *p = pieces->text; *p;) {
		size_t n = strcspn(p, ".");
		strbuf_add(&b, p, n + (p[n] == '.'));
		strbuf_add(&b, "", 1);
		p += n + (p[n] == '.');
	}
	free(pieces->text);
	pieces->text = b.text;
	for (const char *p = b.text; p < b.text + b.len; p += strlen(p) + 1)
		ruler_words_add(pieces, p);
}

static int ascending(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* The lines with the chain among them, in its order; *first = where it begins. */
static char *context_write(struct ruler *r, const struct chain *c, int64_t size, size_t *first)
{
	struct ruler_words pieces = {0};
	struct strbuf b = {0};
	int at[NAMES], next = 0;
	const char *between = r->oct2024 ? " " : "\n";
	noise_pieces(r, size, &pieces);
	int n = (int)size * pieces.n;
	python_sample(&r->random.python, n, NAMES, at);
	qsort(at, NAMES, sizeof(*at), ascending);
	for (int i = 0; i < n; i++) {
		for (; next < NAMES && at[next] == i; next++) {
			strbuf_puts(&b, b.len ? between : "");
			*first = next ? *first : b.len;
			line_add(&b, c, next);
		}
		strbuf_puts(&b, b.len ? between : "");
		strbuf_puts(&b, pieces.v[i % pieces.n]);
	}
	ruler_words_free(&pieces);
	return ruler_replace(strbuf_take(&b), ". \n", ".\n");
}

/* The last NAMES words of the example are its names: each is replaced everywhere, as upstream does. */
static char *example_anew(struct ruler *r)
{
	char old[NAMES][8], new[8], *text = text_copy(r->example);
	const char *end = text + strlen(text);
	for (int i = NAMES - 1; i >= 0; i--) {
		while (strchr(" \n", end[-1]))
			end--;
		memcpy(old[i], end - EXAMPLE_LETTERS, EXAMPLE_LETTERS);
		old[i][EXAMPLE_LETTERS] = '\0';
		end -= EXAMPLE_LETTERS;
	}
	for (int i = 0; i < NAMES; i++) {
		python_letters(&r->random.python, 'A', EXAMPLE_LETTERS, new);
		text = ruler_replace(text, old[i], new);
	}
	value_draw(r, new);
	return ruler_replace(text, "12345", new);
}

static void example_put(struct ruler *r, struct ruler_draft *d, bool final)
{
	if (ruler_is_own(r)) {
		strbuf_puts(&d->text, r->example);
	} else if (r->oct2024) {
		strbuf_printf(&d->text, " %s\n\n", r->example);
		d->uncounted = d->text.len;
		d->example_apart = true;
	} else if (final) {
		char *anew = example_anew(r);
		strbuf_printf(&d->text, "%s\n", anew);
		free(anew);
	} else {
		d->example_apart = true;
	}
}

/* The example of the release of 2024 loses its line ends and the last word before the answer. */
static char *flattened(const char *prompt)
{
	struct strbuf b = {0};
	size_t last = 0;
	for (const char *p = prompt; *(p += strspn(p, " \n")); p += strcspn(p, " \n")) {
		last = b.len;
		strbuf_puts(&b, b.len ? " " : "");
		strbuf_add(&b, p, strcspn(p, " \n"));
	}
	b.len = last;
	strbuf_puts(&b, "");
	return strbuf_take(&b);
}

static void prompt_write(const struct ruler *r, struct ruler_draft *d, const char *context, const char *value)
{
	const struct ruler_value values[] = {{"query", value}, {"num_v", "5"}};
	struct ruler_template t = r->assets.template;
	bool flat = is_example(r) && r->oct2024;
	if (flat)
		t.prompt = flattened(t.prompt);
	ruler_draft_prompt(d, &t, context, values, 2);
	if (flat)
		free(t.prompt);
}

static int vt_write(struct ruler *r, struct ruler_draft *d, int index, int64_t size, bool final, char err[ERR_LEN])
{
	struct chain c = {0};
	size_t first = 0;
	(void)index, (void)err;
	if (chain_draw(r, &c))
		return 1;
	char *context = context_write(r, &c, size, &first);
	if (!is_example(r))
		example_put(r, d, final);
	prompt_write(r, d, context, c.value);
	d->needle_at = d->context_at + first;
	for (int i = 0; i < NAMES; i++)
		ruler_draft_answer(d, c.names[i]);
	free(context);
	return 0;
}

/* ---- the example, then the rows ---- */

static char *example_text(const struct ruler_draft *d, const char *end)
{
	struct strbuf b = {0};
	strbuf_puts(&b, d->text.text);
	for (int i = 0; i < d->n_answers; i++)
		strbuf_printf(&b, " %s", d->answers[i]);
	strbuf_puts(&b, end);
	return strbuf_take(&b);
}

static int vt_fit(struct ruler *r, char err[ERR_LEN])
{
	struct ruler_draft d = {.needle_at = SIZE_MAX};
	int64_t budget = r->budget;
	int new_tokens = r->new_tokens;
	r->budget = EXAMPLE_TOKENS;
	r->new_tokens = r->oct2024 ? new_tokens : 0;
	int failed = ruler_fit_upstream(r, err) || ruler_row_upstream(r, &d, 0, err);
	r->budget = budget;
	r->new_tokens = new_tokens;
	if (!failed) {
		r->example = example_text(&d, r->oct2024 ? "\n\n" : "\n");
		r->example_tokens = ruler_count(r, r->example, strlen(r->example), err);
		failed = r->example_tokens < 0 || ruler_fit_upstream(r, err);
	}
	ruler_draft_free(&d);
	return failed ? -1 : 0;
}

/* Ours: an example of six lines, none where there is little room. */
static int vt_prepare_own(struct ruler *r, char err[ERR_LEN])
{
	struct ruler_draft d = {.needle_at = SIZE_MAX};
	int rc = 1;
	while (r->rq->length_tokens >= OWN_EXAMPLE_FROM && rc > 0) {
		ruler_draft_clear(&d);
		rc = vt_write(r, &d, 0, NAMES + 1, true, err);
	}
	r->example = d.n_answers ? example_text(&d, "\n\n") : text_copy("");
	ruler_draft_free(&d);
	return rc < 0 ? -1 : 0;
}

static int64_t vt_step(const struct ruler *r)
{
	return is_example(r) || (!r->oct2024 && ruler_short(r)) ? 5 : 10;
}

static int64_t vt_least(const struct ruler *r)
{
	return r->oct2024 ? 1 : NAMES;
}

const struct ruler_family ruler_vt = {
	.key = "variable_tracking",
	.unit = "lines",
	.metric = "string_match_all",
	.new_tokens = 30,
	.one_place = true,
	.step = vt_step,
	.least = vt_least,
	.most = ruler_no_limit,
	.write = vt_write,
	.counted = ruler_python_list,
	.fit = vt_fit,
	.row = ruler_row_upstream,
	.prepare_own = vt_prepare_own,
};
