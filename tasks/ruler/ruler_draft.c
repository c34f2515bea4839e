/* ruler_draft.c: one row in the making: templates filled in, cut into context, question and answer prefix; memory of the assets.
 */
#include <stdlib.h>
#include <string.h>

#include "tasks/ruler/ruler.h"

void ruler_draft_clear(struct ruler_draft *d)
{
	for (int i = 0; i < d->n_answers; i++)
		free(d->answers[i]);
	d->n_answers = 0;
	d->text.len = d->context_at = d->question_at = d->prefix_at = d->uncounted = 0;
	d->needle_at = SIZE_MAX;
	d->example_apart = false;
}

void ruler_draft_free(struct ruler_draft *d)
{
	ruler_draft_clear(d);
	free(d->answers);
	strbuf_free(&d->text);
	memset(d, 0, sizeof(*d));
}

void ruler_draft_answer(struct ruler_draft *d, const char *answer)
{
	d->answers = mem_grow(d->answers, (size_t)d->n_answers + 1, sizeof(*d->answers));
	d->answers[d->n_answers++] = text_copy(answer);
}

/* ---- templates ---- */

/* Appends the first len bytes of form, filled in. */
static void fill(struct strbuf *b, const char *form, size_t len, const struct ruler_value *values, size_t n_values)
{
	for (const char *p = form, *end = form + len; p < end;) {
		size_t i = 0, n = 0;
		for (; *p == '{' && i < n_values; i++) {
			n = strlen(values[i].name);
			if (!strncmp(p + 1, values[i].name, n) && p[n + 1] == '}')
				break;
		}
		if (*p == '{' && i < n_values) {
			strbuf_puts(b, values[i].text);
			p += n + 2;
		} else {
			size_t plain = 1 + strcspn(p + 1, "{");
			if (plain > (size_t)(end - p))
				plain = (size_t)(end - p);
			strbuf_add(b, p, plain);
			p += plain;
		}
	}
}

void ruler_fill(struct strbuf *b, const char *form, const struct ruler_value *values, size_t n_values)
{
	fill(b, form, strlen(form), values, n_values);
}

void ruler_draft_prompt(struct ruler_draft *d, const struct ruler_template *t, const char *context,
	const struct ruler_value *values, size_t n_values)
{
	static const char place[] = "{context}";
	const char *at = strstr(t->prompt, place), *rest = at ? at + sizeof(place) - 1 : "";
	size_t head = at ? (size_t)(at - t->prompt) : strlen(t->prompt), seam = strspn(rest, " \n");
	fill(&d->text, t->prompt, head, values, n_values);
	d->context_at = d->text.len;
	strbuf_puts(&d->text, context);
	strbuf_add(&d->text, rest, seam);
	d->question_at = d->text.len;
	fill(&d->text, rest + seam, strlen(rest + seam), values, n_values);
	d->prefix_at = d->text.len + (*t->answer_prefix == ' ');
	fill(&d->text, t->answer_prefix, strlen(t->answer_prefix), values, n_values);
}

char *ruler_replace(char *text, const char *from, const char *to)
{
	struct strbuf b = {0};
	const char *p = text, *at;
	for (; *from && (at = strstr(p, from)); p = at + strlen(from)) {
		strbuf_add(&b, p, (size_t)(at - p));
		strbuf_puts(&b, to);
	}
	strbuf_puts(&b, p);
	free(text);
	return strbuf_take(&b);
}

void ruler_template_free(struct ruler_template *t)
{
	free(t->prompt);
	free(t->answer_prefix);
	free(t->needle);
	free(t->noise);
	free(t->document);
	memset(t, 0, sizeof(*t));
}

void ruler_template_sha256(const struct ruler_template *t, char out[SHA_LEN])
{
	const char *const texts[] = {t->prompt, t->answer_prefix, t->needle, t->noise, t->document};
	struct sha256 *h = sha256_new();
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]);
		i++) /* each with its NUL: no two sets of texts run together alike */
		sha256_add(h, texts[i] ? texts[i] : "", (texts[i] ? strlen(texts[i]) : 0) + 1);
	sha256_end(h, out);
}

/* ---- documents ---- */

struct ruler_qa *ruler_qa_add(struct ruler_docs *d, const char *query)
{
	if ((d->n_qas & (d->n_qas - 1)) == 0)
		d->qas = mem_grow(d->qas, (size_t)d->n_qas * 2 + 1, sizeof(*d->qas));
	struct ruler_qa *q = &d->qas[d->n_qas++];
	*q = (struct ruler_qa){.query = text_copy(query)};
	return q;
}

void ruler_qa_answer(struct ruler_qa *q, const char *answer)
{
	q->answers = mem_grow(q->answers, (size_t)q->n_answers + 1, sizeof(*q->answers));
	q->answers[q->n_answers++] = text_copy(answer);
}

void ruler_list_add(int **list, int *n, int document)
{
	*list = mem_grow(*list, (size_t)*n + 1, sizeof(**list));
	(*list)[(*n)++] = document;
}

void ruler_docs_free(struct ruler_docs *d)
{
	for (int i = 0; i < d->n_docs; i++)
		free(d->docs[i]);
	for (int i = 0; i < d->n_qas; i++) {
		struct ruler_qa *q = &d->qas[i];
		for (int k = 0; k < q->n_answers; k++)
			free(q->answers[k]);
		free(q->answers);
		free(q->query);
		free(q->gold);
		free(q->more);
	}
	free(d->docs);
	free(d->qas);
	memset(d, 0, sizeof(*d));
}

void ruler_assets_free(struct ruler_assets *a)
{
	ruler_template_free(&a->template);
	ruler_pairs_free(&a->pairs);
	ruler_words_free(&a->adjectives);
	ruler_words_free(&a->nouns);
	ruler_words_free(&a->words);
	ruler_words_free(&a->long_words);
	ruler_essay_free(&a->essay);
	ruler_docs_free(&a->docs);
}
